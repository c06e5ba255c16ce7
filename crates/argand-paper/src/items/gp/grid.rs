//! Results by dataset, degree, features and method: means over seeds, and their ratios.

use std::collections::BTreeMap;

use super::Record;
use crate::items::mean_and_deviation;

/// The seeds of one cell of the grid.
pub(super) type Cell<'a> = (&'a str, String, usize, usize, &'a str);

pub(super) struct Grid<'a> {
    pub(super) cells: BTreeMap<Cell<'a>, Vec<&'a Record>>,
}

impl<'a> Grid<'a> {
    pub(super) fn new(records: &'a [Record]) -> Self {
        let mut cells: BTreeMap<Cell<'a>, Vec<&Record>> = BTreeMap::new();
        for record in records {
            let cell = (&*record.dataset, record.scaling.to_string(), record.p, record.features, &*record.method);
            cells.entry(cell).or_default().push(record);
        }
        Self { cells }
    }

    /// Mean and standard error of a cell.
    pub(super) fn mean(&self, cell: &Cell<'a>, of: fn(&Record) -> f64) -> Option<(f64, f64)> {
        let values: Vec<f64> = self.cells.get(cell)?.iter().map(|record| of(record)).collect();
        let (mean, deviation) = mean_and_deviation(&values);
        Some((mean, deviation / (values.len() as f64).sqrt()))
    }

    /// Numbers of features for a dataset.
    pub(super) fn features(&self, set: &str, scaling: &str) -> Vec<usize> {
        let mut features: Vec<usize> =
            self.cells.keys().filter(|cell| cell.0 == set && cell.1 == scaling).map(|cell| cell.3).collect();
        features.sort_unstable();
        features.dedup();
        features
    }

    /// The logarithm of a mean, and its standard error.
    pub(super) fn log_mean(&self, cell: &Cell<'a>, of: fn(&Record) -> f64) -> Option<Log> {
        let (mean, error) = self.mean(cell, of)?;
        // An error of zero has no logarithm.
        (mean > 0.0).then(|| Log { value: mean.ln(), error: error / mean })
    }

    /// The ratio of two methods' means, as the geometric mean over D.
    pub(super) fn ratio(
        &self,
        (set, scaling): (&'a str, &str),
        degree: usize,
        pair: [&'a str; 2],
        of: fn(&Record) -> f64,
    ) -> Option<Log> {
        let ratios = self.features(set, scaling).into_iter().filter_map(|features| {
            let [one, other] =
                pair.map(|method| self.log_mean(&(set, scaling.to_owned(), degree, features, method), of));
            Some(one?.minus(other?))
        });
        let (count, sum) = ratios.fold((0.0, None), |(count, sum): (f64, Option<Log>), ratio| {
            (count + 1.0, Some(sum.map_or(ratio, |sum| sum.plus(ratio))))
        });
        sum.map(|sum| Log { value: sum.value / count, error: sum.error / count })
    }
}

/// The logarithm of a positive number, with its standard error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl Log {
    fn plus(self, other: Self) -> Self {
        Self { value: self.value + other.value, error: self.error.hypot(other.error) }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(Self { value: -other.value, ..other })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::items::gp::KERNEL;
    use crate::items::gp::tests::record;

    /// Two cells of two seeds: ratios of means, geometric over D, with errors that add up in squares.
    #[test]
    fn ratios_are_geometric_means_over_features() {
        let records = [
            record("a", 64, 0, 0.1),
            record("a", 64, 1, 0.3),
            record("b", 64, 0, 0.1),
            record("b", 64, 1, 0.1),
            record("a", 128, 0, 0.8),
            record("b", 128, 0, 0.1),
            record("a", 128, 1, 0.8),
            record("b", 128, 1, 0.1),
        ];
        let ratio = Grid::new(&records).ratio(("set", "non-negative"), 3, ["a", "b"], KERNEL).unwrap();
        // 2 and 8; the first mean, 0.2, has a standard error of 0.1.
        assert!((ratio.value.exp() - 4.0).abs() < 1e-12 && (ratio.error - 0.25).abs() < 1e-12, "{ratio:?}");
    }
}
