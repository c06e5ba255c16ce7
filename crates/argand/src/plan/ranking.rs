//! Which candidate comes first, and which one is recommended.

use super::{Candidate, Goal};

/// For a given number of features, errors up to this many times the lowest count as equal, and time decides.
const AS_GOOD: f64 = 1.05;

/// Sorts the candidates and returns the index of the recommended one.
pub(super) fn rank(goal: Goal, candidates: &mut [Candidate]) -> Option<usize> {
    let by_time = |a: &Candidate, b: &Candidate| a.total_seconds().total_cmp(&b.total_seconds());
    match goal {
        Goal::Error(_) => candidates.sort_by(by_time),
        Goal::Features(_) => candidates.sort_by(|a, b| a.error.relative.total_cmp(&b.error.relative)),
    }
    let in_time = |&place: &usize| candidates[place].in_time;
    let first = (0..candidates.len()).find(in_time)?;
    let enough = match goal {
        Goal::Error(_) => return Some(first),
        Goal::Features(_) => AS_GOOD * candidates[first].error.relative,
    };
    let close = (first..candidates.len()).filter(in_time).filter(|&place| candidates[place].error.relative <= enough);
    close.min_by(|&a, &b| by_time(&candidates[a], &candidates[b]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use crate::theory::{ExpectedError, Source};

    fn candidate(relative: f64, feature_seconds: f64, in_time: bool) -> Candidate {
        let error =
            ExpectedError { relative, standard_error: 0.0, median: relative, rows: 10, source: Source::ClosedForm };
        let spec = Spec::polynomial(4).with_features(8);
        Candidate { spec, error, feature_seconds, fit_seconds: 1.0, memory_bytes: 0, in_time }
    }

    #[test]
    fn a_target_is_reached_in_the_shortest_time() {
        let mut candidates =
            [(0.1, 3.0, true), (0.1, 1.0, false), (0.1, 2.0, true)].map(|(e, s, t)| candidate(e, s, t));
        assert_eq!(rank(Goal::Error(0.1), &mut candidates), Some(1));
        assert_eq!(candidates.each_ref().map(|candidate| candidate.feature_seconds), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn with_given_features_time_decides_among_nearly_equal_errors() {
        let mut candidates = [(0.11, 0.1, true), (0.104, 1.0, true), (0.1, 3.0, true), (0.09, 0.5, false)]
            .map(|(e, s, t)| candidate(e, s, t));
        // The lowest error takes too long; 4 % above the next costs less, 10 % above is too much.
        assert_eq!(rank(Goal::Features(8), &mut candidates), Some(2));
        assert_eq!(candidates.each_ref().map(|candidate| candidate.error.relative), [0.09, 0.1, 0.104, 0.11]);
        candidates.iter_mut().for_each(|candidate| candidate.in_time = false);
        assert_eq!(rank(Goal::Features(8), &mut candidates), None);
        assert_eq!(rank(Goal::Features(8), &mut []), None);
    }
}
