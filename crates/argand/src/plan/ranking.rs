//! Which candidate comes first, and which one is recommended.

use std::cmp::Ordering;

use super::{Candidate, Goal};
use crate::spec::Method;

/// Where time decides among equals, errors up to this many times the lowest count as equal.
const AS_GOOD: f64 = 1.05;

fn by_time(a: &Candidate, b: &Candidate) -> Ordering {
    a.total_seconds().total_cmp(&b.total_seconds())
}

/// Sorts the candidates by what is predicted and returns the index of the recommended one: the fastest for a target error, the one with the lowest
/// median error within a time, and with given features the fastest among those nearly as good.
pub(super) fn rank(goal: Goal, candidates: &mut [Candidate]) -> Option<usize> {
    match goal {
        Goal::Error(_) => candidates.sort_by(by_time),
        Goal::Features(_) | Goal::Time(_) => {
            candidates.sort_by(|a, b| a.error.median.total_cmp(&b.error.median).then(by_time(a, b)));
        }
    }
    let in_time = |&place: &usize| candidates[place].in_time;
    let first = (0..candidates.len()).find(in_time)?;
    let enough = match goal {
        Goal::Error(_) | Goal::Time(_) => return Some(first),
        Goal::Features(_) => AS_GOOD * candidates[first].error.median,
    };
    let close = (first..candidates.len()).filter(in_time).filter(|&place| candidates[place].error.median <= enough);
    close.min_by(|&a, &b| by_time(&candidates[a], &candidates[b]))
}

/// Sorts the candidates that were fitted before the others, by validation error, and returns the index of the recommended one: the lowest error
/// within a time, otherwise the fastest within one standard error of it.
pub(super) fn rank_fitted(goal: Goal, candidates: &mut [Candidate]) -> Option<usize> {
    let error = |candidate: &Candidate| candidate.validation.map_or(f64::INFINITY, |validation| validation.error);
    candidates.sort_by(|a, b| error(a).total_cmp(&error(b)));
    let best = candidates.first()?.validation?;
    if let Goal::Time(_) = goal {
        return Some(0);
    }
    let enough = best.error + best.standard_error;
    let close = (0..candidates.len()).filter(|&place| error(&candidates[place]) <= enough);
    close.min_by(|&a, &b| by_time(&candidates[a], &candidates[b]))
}

/// The candidates worth fitting: in time, and the first of their kind. Predicted errors compare methods of one kind; which kind learns best,
/// only labels tell.
pub(super) fn finalists(candidates: &[Candidate]) -> Vec<usize> {
    let kind = |method: Method| match method {
        Method::Product(_) | Method::Spherical => 0,
        Method::Maclaurin(_) => 1,
        Method::Fourier(_) => 2,
        Method::Nystrom => 3,
        Method::Exact => 4,
    };
    let mut kinds = Vec::new();
    let mut chosen = Vec::new();
    for (place, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| candidate.in_time) {
        let kind = kind(candidate.spec.method);
        if !kinds.contains(&kind) {
            kinds.push(kind);
            chosen.push(place);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Validation;
    use crate::spec::Spec;
    use crate::theory::{ExpectedError, Source};

    fn candidate(median: f64, feature_seconds: f64, in_time: bool) -> Candidate {
        let error =
            ExpectedError { relative: 2.0 * median, standard_error: 0.0, median, rows: 10, source: Source::ClosedForm };
        let spec = Spec::polynomial(4).with_features(8);
        Candidate {
            spec,
            error,
            map_seconds: 0.0,
            feature_seconds,
            fit_seconds: 1.0,
            memory_bytes: 0,
            in_time,
            validation: None,
            other_aim: None,
        }
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
        assert_eq!(candidates.each_ref().map(|candidate| candidate.error.median), [0.09, 0.1, 0.104, 0.11]);
        // Within a time, the lowest error.
        assert_eq!(rank(Goal::Time(9.0), &mut candidates), Some(1));
        candidates.iter_mut().for_each(|candidate| candidate.in_time = false);
        assert_eq!(rank(Goal::Features(8), &mut candidates), None);
        assert_eq!(rank(Goal::Features(8), &mut []), None);
    }

    #[test]
    fn labels_decide_where_there_are_some() {
        let judged = |error: f64, seconds: f64| Candidate {
            validation: Some(Validation { error, standard_error: 0.02, training_rows: 10, rows: 10 }),
            ..candidate(0.1, seconds, true)
        };
        let mut candidates = [candidate(0.01, 1.0, true), judged(0.31, 2.0), judged(0.30, 3.0), judged(0.33, 1.0)];
        // Within one standard error of the lowest, the fastest.
        assert_eq!(rank_fitted(Goal::Features(8), &mut candidates), Some(1));
        let errors = candidates.each_ref().map(|candidate| candidate.validation.map(|validation| validation.error));
        assert_eq!(errors, [Some(0.30), Some(0.31), Some(0.33), None]);
        assert_eq!(rank_fitted(Goal::Time(9.0), &mut candidates), Some(0));
        assert_eq!(rank_fitted(Goal::Time(9.0), &mut [candidate(0.1, 1.0, true)]), None);
    }

    #[test]
    fn the_first_of_every_kind_that_is_in_time_is_a_finalist() {
        let of = |name: &str, in_time| {
            let mut candidate = candidate(0.1, 1.0, in_time);
            candidate.spec.method = name.parse().unwrap();
            candidate
        };
        let candidates = [
            of("nystrom", false),
            of("sorf", true),
            of("rff", true),
            of("maclaurin-gaussian", true),
            of("nystrom", true),
            of("chain-gaussian", true),
            of("gaussian", true),
        ];
        assert_eq!(finalists(&candidates), [1, 3, 4, 5]);
    }
}
