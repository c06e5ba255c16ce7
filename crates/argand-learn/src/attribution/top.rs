//! The largest scores among many.

use std::cmp::Ordering;

/// Candidates beyond those asked for: rounded scores may have the wrong order at the end of the list.
const SPARE: usize = 8;

/// The examples of largest score; of equal scores, those of smallest number.
pub(super) struct Best {
    keep: usize,
    entries: Vec<(f64, u64)>,
    /// Examples from now on need more.
    threshold: f64,
}

impl Best {
    pub(super) fn new(top: usize) -> Self {
        Self { keep: top.saturating_add(SPARE), entries: Vec::new(), threshold: f64::NEG_INFINITY }
    }

    /// Examples come in the order of their numbers, so that of equal scores the first ones stay.
    fn push(&mut self, score: f64, example: u64) {
        if score <= self.threshold {
            return;
        }
        self.entries.push((score, example));
        if self.entries.len() >= 2 * self.keep {
            let (_, last, _) = self.entries.select_nth_unstable_by(self.keep - 1, order);
            self.threshold = last.0;
            self.entries.truncate(self.keep);
        }
    }

    /// The scores and the examples, in no order.
    pub(super) fn entries(mut self) -> Vec<(f64, u64)> {
        if self.entries.len() > self.keep {
            self.entries.select_nth_unstable_by(self.keep - 1, order);
            self.entries.truncate(self.keep);
        }
        self.entries
    }
}

fn order(one: &(f64, u64), other: &(f64, u64)) -> Ordering {
    other.0.total_cmp(&one.0).then(one.1.cmp(&other.1))
}

/// Takes the scores of consecutive examples, for the largest and the smallest of them; or says which is not finite.
pub(super) fn take<T: Copy + Into<f64>>([large, small]: &mut [Best; 2], scores: &[T], first: u64) -> Option<usize> {
    for (row, score) in scores.iter().map(|&score| score.into()).enumerate() {
        // False for nearly all of them; NaN is never within.
        if !(score <= large.threshold && score >= -small.threshold) {
            if !score.is_finite() {
                return Some(row);
            }
            large.push(score, first + row as u64);
            // Adding zero makes one zero of both: ties are ties.
            small.push(0.0 - score, first + row as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_and_smallest_are_found_and_ties_go_to_the_first() {
        let scores: Vec<f32> = (0..1000_u32).map(|i| (i * 7919 % 101) as f32 - 50.0).collect();
        let mut best = [Best::new(3), Best::new(3)];
        for (chunk, scores) in scores.chunks(70).enumerate() {
            assert_eq!(take(&mut best, scores, 5 + 70 * chunk as u64), None);
        }
        for (best, sign) in best.into_iter().zip([1.0, -1.0]) {
            let mut all: Vec<(f64, u64)> = scores.iter().map(|&score| f64::from(score) * sign).zip(5..).collect();
            all.sort_by(order);
            let mut got: Vec<u64> = best.entries().into_iter().map(|(_, example)| example).collect();
            let mut want: Vec<u64> = all[..3 + SPARE].iter().map(|(_, example)| *example).collect();
            got.sort_unstable();
            want.sort_unstable();
            assert_eq!(got, want);
        }
        assert_eq!(take(&mut [Best::new(1), Best::new(1)], &[1.0, f64::NAN], 0), Some(1));
        let mut full = [Best::new(1), Best::new(1)];
        assert_eq!(take(&mut full, &scores, 0), None);
        assert_eq!(take(&mut full, &[0.0, f64::NEG_INFINITY], 0), Some(1));
        assert_eq!(take(&mut full, &[0.0, 0.0, f64::NAN], 0), Some(2));
    }
}
