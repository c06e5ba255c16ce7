//! How long features and fits take on this machine.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use argand_linalg::{Cholesky, Matrix, View, ViewMut, add_product};
use cpu_time::ThreadTime;

use crate::error::Error;
use crate::map::FeatureMap;
use crate::rows::{Input, OwnedRows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::{Base, Spec};
use crate::theory::choose_rows;

/// Rows on which times are measured.
const TIMED_ROWS: usize = 2048;

/// The fewest rows of a piece: maps work on blocks of so many.
const FEWEST_ROWS: usize = 64;

/// The time limit of a measurement.
const MEASUREMENT: Duration = Duration::from_millis(60);

/// About how long a piece of it takes: on a busy machine, some pieces as short as this are not interrupted, and the fastest counts.
const PIECE: Duration = Duration::from_millis(2);

/// The fewest pieces of a measurement.
const FEWEST_PIECES: usize = 5;

/// The time since it was started: that of the processor for work on one thread, where others do not count; otherwise that on the wall.
pub(super) enum Clock {
    Thread(ThreadTime),
    Wall(Instant),
}

impl Clock {
    pub(super) fn start() -> Self {
        // Outside of a pool, the thread that works is not the one that waits.
        let alone = rayon::current_thread_index().is_some() && rayon::current_num_threads() == 1;
        let thread = if alone { ThreadTime::try_now().ok() } else { None };
        thread.map_or_else(|| Self::Wall(Instant::now()), Self::Thread)
    }

    pub(super) fn seconds(&self) -> f64 {
        match self {
            Self::Thread(begun) => begun.try_elapsed().unwrap_or_default().as_secs_f64(),
            Self::Wall(begun) => begun.elapsed().as_secs_f64(),
        }
    }
}

/// The time that sketches and fits take. Plans of users measure it; tests of plans set it, so that they do not depend on the machine.
pub(super) trait Timing {
    /// The times of a fitted spec.
    fn times(&self, spec: &Spec) -> Result<Times, Error>;

    /// Seconds for one least-squares fit on so many features of all rows.
    fn fit_seconds(&self, features: usize) -> f64;
}

/// The speed of least-squares fits.
#[derive(Debug, Clone, Copy)]
pub(super) struct FitRates {
    /// The number of rows that times are for.
    pub(super) rows: f64,
    /// Operations per second of sums ΦᵀΦ in double precision.
    pub(super) product: f64,
    /// Operations per second of Cholesky factors, in double precision.
    pub(super) factor: f64,
}

impl FitRates {
    /// Half of ΦᵀΦ, nD² operations, and its Cholesky factor, D³/3 operations.
    pub(super) fn seconds(&self, features: usize) -> f64 {
        let features = features as f64;
        self.rows * features.powi(2) / self.product + features.powi(3) / 3.0 / self.factor
    }
}

/// Measures the time of sketches on some rows, for as many as a plan is about.
pub(super) struct Stopwatch<T> {
    tables: Vec<OwnedRows<T>>,
    rates: FitRates,
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
    /// Selects rows to measure on, and measures the rates of sums and of Cholesky factors.
    pub(super) fn new(inputs: &[Input<'_, T>], rows: usize, seed: u64) -> Self {
        let chosen = choose_rows(inputs[0].rows(), TIMED_ROWS, seed);
        // Repeat few rows, so that the time per row is that of many.
        let chosen: Vec<usize> = chosen.iter().copied().cycle().take(TIMED_ROWS).collect();
        Self {
            tables: inputs.iter().map(|input| OwnedRows::take(input, &chosen)).collect(),
            rates: FitRates { rows: rows as f64, product: sums_rate(), factor: cholesky_rate() },
        }
    }
}

impl<T: Scalar> Timing for Stopwatch<T> {
    fn fit_seconds(&self, features: usize) -> f64 {
        self.rates.seconds(features)
    }

    fn times(&self, spec: &Spec) -> Result<Times, Error> {
        let small = timed(spec);
        let clock = Clock::start();
        let sketch = small.sketch_within::<T>(u64::MAX)?;
        let draw = clock.seconds();
        // Pieces are written side by side, so that features go to memory, as those of many rows do.
        let room = ((1 << 22) / small.features).clamp(FEWEST_ROWS, TIMED_ROWS);
        let mut features = vec![T::ZERO; room * small.features];
        let mut time = |rows: usize| -> Result<f64, Error> {
            let mut place = 0;
            let seconds = fastest(|| {
                place = if place + 2 * rows <= room { place + rows } else { 0 };
                let inputs: Vec<Input<'_, T>> =
                    self.tables.iter().map(|table| table.view().slice(place..place + rows)).collect();
                let part = &mut features[place * small.features..][..rows * small.features];
                sketch.transform_into(&inputs, RowsMut::new(part, rows, small.features)?)
            })?;
            Ok(seconds / rows as f64)
        };
        // A few rows tell how many make a piece.
        let per_row = time(FEWEST_ROWS)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of rows")]
        let rows = ((PIECE.as_secs_f64() / per_row) as usize / FEWEST_ROWS * FEWEST_ROWS).min(room);
        let per_row = if rows > FEWEST_ROWS { time(rows)? } else { per_row };
        let part = spec.features as f64 / small.features as f64;
        Ok(Times {
            draw: draw * part,
            features: per_row * self.rates.rows * part,
            fit: self.fit_seconds(spec.features),
        })
    }
}

/// The spec that is timed in place of another. Dense weights are slow to draw, and their cost is proportional to the features: a few are enough.
fn timed(spec: &Spec) -> Spec {
    let dense = matches!(spec.method.base(), Some(Base::Gaussian | Base::Rademacher));
    let mut small = spec.clone();
    while dense && small.features > 2048 {
        small.features = (small.features / 2).next_multiple_of(2);
    }
    small
}

/// The shortest time of `work`, in seconds.
fn fastest(mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let (begun, mut best, mut pieces) = (Instant::now(), f64::INFINITY, 0);
    while pieces < FEWEST_PIECES || begun.elapsed() < MEASUREMENT {
        let clock = Clock::start();
        work()?;
        best = best.min(clock.seconds());
        pieces += 1;
    }
    Ok(best)
}

/// Operations per second of sums ΦᵀΦ on all threads of the current pool: as fits do, features become f64, and their products are added to those of
/// other rows.
fn sums_rate() -> f64 {
    /// The products of so many rows are a piece.
    const ROWS: usize = 256;
    const SIZE: usize = 384;
    let features: Vec<f32> = (0..ROWS * SIZE).map(|at| ((at % SIZE * 7 + at / SIZE * 3) % 11) as f32 - 5.0).collect();
    let threads = rayon::current_num_threads();
    let room = || Mutex::new((vec![0.0; ROWS * SIZE], vec![0.0; SIZE * SIZE]));
    let rooms: Vec<_> = (0..threads).map(|_| room()).collect();
    let seconds = fastest(|| {
        rayon::broadcast(|context| {
            let mut room = rooms[context.index()].lock().unwrap_or_else(PoisonError::into_inner);
            let (rows, sums) = &mut *room;
            rows.iter_mut().zip(&features).for_each(|(to, &from)| *to = f64::from(from));
            let rows = View::by_rows(rows, ROWS, SIZE);
            add_product(ViewMut::by_columns(sums, SIZE, SIZE), rows.transpose(), rows, 1.0);
            std::hint::black_box(sums[0]);
        });
        Ok(())
    });
    (2 * ROWS * SIZE.pow(2) * threads) as f64 / seconds.unwrap_or(1.0)
}

/// Operations per second of the Cholesky factor of one matrix.
fn cholesky_rate() -> f64 {
    const SIZE: usize = 512;
    let matrix = |row: usize, column: usize| {
        ((row * 7 + column * 7) % 11) as f64 + if row == column { 12.0 * SIZE as f64 } else { 0.0 }
    };
    // The matrix takes a small part of the time to write.
    let seconds = fastest(|| {
        std::hint::black_box(Cholesky::new(Matrix::from_fn(SIZE, SIZE, matrix)).is_ok());
        Ok(())
    });
    SIZE.pow(3) as f64 / 3.0 / seconds.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

    /// With many rows, the products take all the time; with one, the factor does.
    #[test]
    fn fits_grow_by_two_powers_of_the_features_or_three() {
        let ratio = |rows: f64| {
            let rates = FitRates { rows, product: 8.0, factor: 4.0 };
            rates.seconds(4096) / rates.seconds(2048)
        };
        assert!((ratio(1e12) - 4.0).abs() < 1e-6);
        assert!((ratio(1.0) - 8.0).abs() < 0.01);
        let rates = FitRates { rows: 3.0, product: 8.0, factor: 4.0 };
        assert_eq!(rates.seconds(6), 3.0 * 36.0 / 8.0 + 216.0 / 3.0 / 4.0);
    }

    /// Checks only what does not depend on the machine: 256 times the features take longer by far.
    #[test]
    fn times_grow_with_the_features() {
        let x = [1.0_f32, 2.0, 3.0, 4.0];
        let stopwatch = Stopwatch::new(&[Rows::new(&x, 2, 2).unwrap().into()], 1000, 0);
        assert!(stopwatch.fit_seconds(64) > 0.0);
        let times = |features| stopwatch.times(&Spec::polynomial(2).with_features(features)).unwrap();
        let [few, many] = [16, 4096].map(times);
        assert!(few.draw > 0.0 && few.features > 0.0 && many.features > few.features, "{few:?} {many:?}");
        assert_eq!(many.fit, stopwatch.fit_seconds(4096));
    }

    #[test]
    fn dense_weights_are_timed_on_few_features() {
        let spec =
            |name: &str, features| Spec::polynomial(2).with_features(features).with_method(name.parse().unwrap());
        for (name, features, expected) in
            [("gaussian", 2048, 2048), ("ctr-rademacher", 5000, 1250), ("gaussian", 1 << 16, 2048), ("srf", 5000, 5000)]
        {
            assert_eq!(timed(&spec(name, features)).features, expected, "{name}, {features}");
        }
        assert_eq!(timed(&spec("ctr-product-srht", 5000)), spec("ctr-product-srht", 5000));
    }
}
