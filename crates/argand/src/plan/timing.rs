//! How long features and fits take on this machine.

use std::time::{Duration, Instant};

use argand_linalg::{View, ViewMut, product};

use crate::error::Error;
use crate::map::FeatureMap;
use crate::rows::{Input, OwnedRows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::{Base, Spec};
use crate::theory::choose_rows;

/// Rows on which times are measured.
const TIMED_ROWS: usize = 2048;

/// The time limit of a measurement.
const MEASUREMENT: Duration = Duration::from_millis(60);

/// Measures the time of sketches on some rows, for as many as a plan is about.
pub(super) struct Stopwatch<T> {
    tables: Vec<OwnedRows<T>>,
    /// The number of rows that times are for.
    rows: f64,
    /// Operations per second of matrix multiplication.
    rate: f64,
}

/// Seconds for a sketch and what follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// To draw it.
    pub(super) draw: f64,
    /// To compute the features of all rows.
    pub(super) features: f64,
    /// To fit a model to them.
    pub(super) fit: f64,
}

impl<T: Scalar> Stopwatch<T> {
    /// Selects rows to measure on, and measures the rate of matrix multiplication.
    pub(super) fn new(inputs: &[Input<'_, T>], rows: usize, seed: u64) -> Self {
        let chosen = choose_rows(inputs[0].rows(), TIMED_ROWS, seed);
        // Repeat few rows, so that the time per row is that of many.
        let chosen: Vec<usize> = chosen.iter().copied().cycle().take(TIMED_ROWS).collect();
        Self {
            tables: inputs.iter().map(|input| OwnedRows::take(input, &chosen)).collect(),
            rows: rows as f64,
            rate: matrix_multiplication_rate(),
        }
    }

    /// Seconds for one least-squares fit on so many features of all rows: ΦᵀΦ, of which one half is computed, and its Cholesky factor in double
    /// precision, at half the rate.
    pub(super) fn fit_seconds(&self, features: usize) -> f64 {
        let features = features as f64;
        features.powi(2) * (self.rows + 2.0 / 3.0 * features) / self.rate
    }

    /// The times of a fitted spec.
    pub(super) fn times(&self, spec: &Spec) -> Result<Times, Error> {
        // Dense weights are slow to draw, and their cost is proportional to the features: a few are enough.
        let dense = matches!(spec.method.base(), Some(Base::Gaussian | Base::Rademacher));
        let mut small = spec.clone();
        while dense && small.features > 2048 {
            small.features = (small.features / 2).next_multiple_of(2);
        }
        let begun = Instant::now();
        let sketch = small.sketch_within::<T>(u64::MAX)?;
        let draw = begun.elapsed().as_secs_f64();
        let time = |rows: usize| -> Result<f64, Error> {
            let taken: Vec<usize> = (0..rows).collect();
            let tables: Vec<OwnedRows<T>> =
                self.tables.iter().map(|table| OwnedRows::take(&table.view(), &taken)).collect();
            let inputs: Vec<Input<'_, T>> = tables.iter().map(OwnedRows::view).collect();
            let mut features = vec![T::ZERO; rows * small.features];
            let seconds =
                fastest(|| sketch.transform_into(&inputs, RowsMut::new(&mut features, rows, small.features)?))?;
            Ok(seconds / rows as f64)
        };
        // A few rows tell how many fit into the time limit.
        let few = TIMED_ROWS.min(64);
        let per_row = time(few)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of rows")]
        let affordable = (MEASUREMENT.as_secs_f64() / 4.0 / per_row) as usize;
        let rows = affordable.min((1 << 22) / small.features).min(TIMED_ROWS);
        let per_row = if rows > few { time(rows)? } else { per_row };
        let part = spec.features as f64 / small.features as f64;
        Ok(Times { draw: draw * part, features: per_row * self.rows * part, fit: self.fit_seconds(spec.features) })
    }
}

/// The shortest time of `work`, in seconds.
fn fastest(mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let (begun, mut best) = (Instant::now(), f64::INFINITY);
    while begun.elapsed() < MEASUREMENT {
        let started = Instant::now();
        work()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Operations per second of f32 matrix multiplication on all threads of the current pool.
fn matrix_multiplication_rate() -> f64 {
    const SIZE: usize = 384;
    let work = || {
        let a: Vec<f32> = (0..SIZE * SIZE).map(|at| ((at % SIZE * 7 + at / SIZE * 3) % 11) as f32 - 5.0).collect();
        let (a, mut out) = (View::by_columns(&a, SIZE, SIZE), vec![0.0; SIZE * SIZE]);
        for _ in 0..8 {
            product(ViewMut::by_columns(&mut out, SIZE, SIZE), a.transpose(), a, 1.0);
        }
        out[0]
    };
    let seconds = fastest(|| {
        rayon::broadcast(|_| std::hint::black_box(work()));
        Ok(())
    });
    let operations = (8 * 2 * SIZE.pow(3) * rayon::current_num_threads()) as f64;
    operations / seconds.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

    /// Checks only what does not depend on the machine.
    #[test]
    fn times_grow_with_the_features() {
        let x = [1.0_f32, 2.0, 3.0, 4.0];
        let inputs = [Rows::new(&x, 2, 2).unwrap().into()];
        let stopwatch = Stopwatch { rows: 1e12, ..Stopwatch::new(&inputs, 1, 0) };
        let spec = |features| Spec::polynomial(2).with_features(features);
        // With many rows, the products take all the time; with one, the factor does.
        let ratio = |stopwatch: &Stopwatch<f32>| stopwatch.fit_seconds(4096) / stopwatch.fit_seconds(2048);
        assert!((ratio(&stopwatch) - 4.0).abs() < 1e-6 && stopwatch.fit_seconds(64) > 0.0);
        assert!((ratio(&Stopwatch::new(&inputs, 1, 0)) - 8.0).abs() < 0.01);
        let seconds = |spec: &Spec| stopwatch.times(spec).unwrap().features;
        let [few, many] = [16, 4096].map(|features| seconds(&spec(features)));
        assert!(few > 0.0 && many > few, "{few} {many}");
        // Dense weights are timed on a few features, and the time of many is in proportion.
        let dense = |features| spec(features).with_method("gaussian".parse().unwrap());
        let [few, many] = [2048, 1 << 16].map(|features| seconds(&dense(features)));
        assert!(many > 8.0 * few && many < 128.0 * few, "{few} {many}");
    }
}
