//! The error of a kernel matrix: predicted before a sketch is drawn, measured afterwards.

use rayon::prelude::*;

use super::pairs::{RowSums, Sample, centre, check, choose_rows, inner_products};
use super::variance::{Formula, PairStatistics};
use crate::error::{Argument, Error};
use crate::map::FeatureMap;
use crate::rows::{Input, OwnedRows, Rows};
use crate::scalar::Scalar;
use crate::spec::{Field, Method, Spec};

/// The sketches drawn for a median beside a closed form, at least and at most, the bytes of all of them, and the most that one of them may take.
const TYPICAL_SKETCHES: [u64; 2] = [5, 15];
const TYPICAL_BYTES: u64 = 240 << 20;
const MOST_TYPICAL_BYTES: u64 = 64 << 20;

/// How an [`ExpectedError`] was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// From the closed form of the variance.
    ClosedForm,
    /// Measured, because no closed form is known: the average over this many sketches drawn on the sample.
    MonteCarlo {
        /// The number of sketches drawn.
        sketches: usize,
    },
}

/// A predicted relative error of a kernel matrix.
///
/// # Formula
/// √(E‖K̂ − K‖²_F) / ‖K‖_F, the root mean square over sketches. A typical sketch is better, because the mean includes the long tail of the squared
/// error: the [median](ExpectedError::median) is less than half of it for products of seven factors. `docs/math.md` says why.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ExpectedError {
    /// The relative error.
    pub relative: f64,
    /// Its standard error: 0 if exact, otherwise due to the choice of rows and sketches.
    pub standard_error: f64,
    /// The median over sketches: half of them are better. [`expected_error`] measures it on sketches with other seeds, 5 to 15 of them beside a closed form; it is
    /// the root mean square where one sketch takes more than 64 MiB ([`ExpectedError::median_is_measured`]).
    pub median: f64,
    /// The number of rows examined.
    pub rows: usize,
    /// Closed form or measurement.
    pub source: Source,
}

impl ExpectedError {
    /// Whether the median was measured on sketches. If not, it is the root mean square, which is larger.
    #[must_use]
    #[allow(clippy::float_cmp, reason = "a copy")]
    pub fn median_is_measured(&self) -> bool {
        self.median != self.relative || self.relative == 0.0
    }

    /// An interval with a coverage of about 95 %.
    #[must_use]
    pub fn interval(&self) -> [f64; 2] {
        let margin = 1.96 * self.standard_error;
        [(self.relative - margin).max(0.0), self.relative + margin]
    }
}

/// How much of the data is examined. Start from the default and override fields.
///
/// ```
/// use argand::theory::Sampling;
/// let sampling = Sampling::default().with_rows(500).with_population(1_000_000);
/// assert_eq!((sampling.rows, sampling.population, sampling.seed), (500, Some(1_000_000), 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Sampling {
    /// The most rows whose pairs are summed; larger tables are sampled at random.
    pub rows: usize,
    /// The most rows on which sketches without a closed form are measured.
    pub measured_rows: usize,
    /// The number of sketches drawn on them.
    pub sketches: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// The size of the population, if the rows are already a sample.
    pub population: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { rows: 2048, measured_rows: 512, sketches: 32, seed: 0, population: None }
    }
}

impl Sampling {
    /// The same with another number of rows.
    #[must_use]
    pub fn with_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// The same with another number of rows and sketches for measurements without a closed form.
    #[must_use]
    pub fn with_measurements(self, measured_rows: usize, sketches: usize) -> Self {
        Self { measured_rows, sketches, ..self }
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same for rows sampled from this many.
    #[must_use]
    pub fn with_population(self, rows: usize) -> Self {
        Self { population: Some(rows), ..self }
    }

    fn check(&self) -> Result<(), Error> {
        for (argument, value) in [
            (Argument::Rows, self.rows),
            (Argument::MeasuredRows, self.measured_rows),
            (Argument::Sketches, self.sketches),
        ] {
            if value < 2 {
                return Err(Error::invalid(argument, "at least 2", value));
            }
        }
        Ok(())
    }
}

/// The expected relative Frobenius error of a sketch of these rows.
///
/// Sums the variances of all entries of the kernel matrix where a closed form is known, and otherwise measures sketches
/// with other seeds. Exact for up to [`Sampling::rows`] rows; beyond that, an estimate from a sample of the rows, with
/// a jackknife standard error.
///
/// # Formula
/// √(Σᵢⱼ V(xᵢ, xⱼ) / Σᵢⱼ k(xᵢ, xⱼ)²); the square of what a `maclaurin-` sum leaves out is added to V. With r of n rows, pairs of different rows count n(n−1)/(r(r−1)) times and pairs of a row
/// with itself n/r times.
///
/// # Reference
/// Section 5.1 of the paper for the error, Table 1 for the variances.
///
/// # Cost
/// r² d operations, in blocks and in parallel; memory r d.
///
/// # Errors
/// As [`Spec::validate`]; [`Error::Invalid`] and [`Error::NotFinite`] for tables that do not fit or whose kernel is zero,
/// [`Error::Overflow`] if the squares of kernel values are too large for `f64`.
///
/// ```
/// use argand::{Rows, Spec, theory};
/// let x: Vec<f64> = (0..50 * 8).map(|i| f64::from(i % 7)).collect();
/// let inputs = [Rows::new(&x, 50, 8)?.into()];
/// let error = |features| {
///     let spec = Spec::polynomial(8).with_degree(2).with_features(features);
///     theory::expected_error(&spec, &inputs, &theory::Sampling::default())
/// };
/// let ratio = error(256)?.relative / error(1024)?.relative;
/// assert!((1.9..2.1).contains(&ratio)); // four times the features, half the error
/// # Ok::<(), argand::Error>(())
/// ```
pub fn expected_error<T: Scalar>(
    spec: &Spec,
    inputs: &[Input<'_, T>],
    sampling: &Sampling,
) -> Result<ExpectedError, Error> {
    Predictor::new(spec, inputs, sampling)?.predict(spec, sampling.sketches)
}

/// A sample of rows for predicting the errors of many specs.
#[derive(Debug)]
pub(crate) struct Predictor<T> {
    sample: Sample,
    /// Rows for measurements, without and with their statistics.
    measured: Vec<OwnedRows<T>>,
    measured_sample: Sample,
    population: usize,
    seed: u64,
}

impl<T: Scalar> Predictor<T> {
    /// Samples rows for the kernel and the inputs of `spec`.
    pub(crate) fn new(spec: &Spec, inputs: &[Input<'_, T>], sampling: &Sampling) -> Result<Self, Error> {
        sampling.check()?;
        check(spec, inputs)?;
        let total = inputs[0].rows();
        let take = |rows: usize| -> Vec<OwnedRows<T>> {
            let chosen = choose_rows(total, rows, sampling.seed);
            inputs.iter().map(|input| OwnedRows::take(input, &chosen)).collect()
        };
        // That of all rows, as a fit has it.
        let centre = centre(spec, inputs);
        let sample_of = |rows: &[OwnedRows<T>]| {
            let views: Vec<_> = rows.iter().map(OwnedRows::view).collect();
            Sample::around(spec, &views, centre.as_deref())
        };
        let measured = take(sampling.measured_rows);
        Ok(Self {
            sample: sample_of(&take(sampling.rows)),
            measured_sample: sample_of(&measured),
            measured,
            population: sampling.population.unwrap_or(total).max(total),
            seed: sampling.seed,
        })
    }

    /// The expected error of one spec, measured on `sketches` sketches if there is no closed form.
    pub(crate) fn predict(&self, spec: &Spec, sketches: usize) -> Result<ExpectedError, Error> {
        match Formula::of(spec)? {
            Some(formula) => {
                let error = self.predict_all(std::slice::from_ref(&formula))?[0];
                Ok(ExpectedError { median: error.relative * self.typical(spec, formula)?, ..error })
            }
            None => self.measure(spec, sketches),
        }
    }

    /// The ratio of the median error to the root mean square, measured on a few sketches; 1 where they would take too long to draw.
    fn typical(&self, spec: &Spec, formula: Formula) -> Result<f64, Error> {
        let bytes = spec.memory_bytes::<T>()?;
        if spec.method == Method::Exact || bytes > MOST_TYPICAL_BYTES {
            return Ok(1.0);
        }
        let [fewest, most] = TYPICAL_SKETCHES;
        let sketches = (TYPICAL_BYTES / bytes.max(1)).clamp(fewest, most);
        #[allow(clippy::cast_possible_truncation, reason = "at most 15")]
        let drawn = match self.draw(spec, sketches as usize) {
            // The closed form does not care about the type of features.
            Err(Error::Overflow { .. }) => return Ok(1.0),
            drawn => drawn?,
        };
        let norms = &drawn[0][1];
        let errors = drawn.iter().map(|[errors, _]| Ok(self.ratio(errors, norms, 0.0)?[0]));
        let median = median(errors.collect::<Result<_, Error>>()?);
        let expected = self.predict_on(&self.measured_sample, &[formula])?[0].relative;
        Ok(if expected > 0.0 { median / expected } else { 1.0 })
    }

    /// The expected errors of many specs with closed forms, in one pass over the pairs.
    pub(crate) fn predict_all(&self, formulas: &[Formula]) -> Result<Vec<ExpectedError>, Error> {
        self.predict_on(&self.sample, formulas)
    }

    fn predict_on(&self, sample: &Sample, formulas: &[Formula]) -> Result<Vec<ExpectedError>, Error> {
        let sums = sample.row_sums(
            formulas.len() + 1,
            true,
            |_, _| (),
            |(), _, factors, values| {
                values[0] = sample.kernel(factors).powi(2);
                let kernel = sample.kernel(factors);
                for (value, formula) in values[1..].iter_mut().zip(formulas) {
                    let moments = formula.moments(factors);
                    // A sum leaves out powers; all other closed forms are of unbiased estimates.
                    let bias = if formula.is_biased() { moments.mean - kernel } else { 0.0 };
                    *value = moments.variance + bias * bias;
                }
            },
        );
        let (norms, errors) = (&sums[0], &sums[1..]);
        errors
            .iter()
            .map(|errors| {
                let [relative, standard_error] = self.ratio(errors, norms, 0.0)?;
                let (median, rows) = (relative, sample.rows());
                Ok(ExpectedError { relative, standard_error, median, rows, source: Source::ClosedForm })
            })
            .collect()
    }

    /// The share of pairs of different rows with a < 0 in some factor.
    pub(crate) fn opposed_pairs(&self) -> f64 {
        let opposed = |(): &(), _: usize, factors: &[PairStatistics], values: &mut [f64]| {
            // Rounding may leave a negative number where a is 0.
            let opposed = |factor: &PairStatistics| factor.cross_terms() < -1e-12 * factor.norms;
            values[0] = f64::from(u8::from(factors.iter().any(opposed)));
        };
        let sums = self.sample.row_sums(1, true, |_, _| (), opposed);
        let pairs = self.sample.rows() * (self.sample.rows() - 1);
        sums[0].others.iter().sum::<f64>() / pairs.max(1) as f64
    }

    /// |k̂ − k|² and k² of the measured rows, for at least two drawn sketches.
    fn draw(&self, spec: &Spec, sketches: usize) -> Result<Vec<[RowSums; 2]>, Error> {
        let inputs: Vec<_> = self.measured.iter().map(OwnedRows::view).collect();
        let rows = self.measured_sample.rows();
        // The first sketch computes the fit of spherical features, which does not depend on the seed.
        let spec = spec.sketch::<T>()?.spec().clone();
        let draw = |sketch: usize| {
            // Seeds that users do not choose: the measured sketches exclude the one they will draw.
            let seed = (self.seed ^ 0x6d65_6173_7572_6564).wrapping_add(sketch as u64);
            let features = spec.clone().with_seed(seed).sketch::<T>()?.transform(&inputs)?;
            let features = Rows::new(&features, rows, spec.features)?;
            Ok(squared_errors(&self.measured_sample, features, spec.method.field()))
        };
        (0..sketches.max(2)).into_par_iter().map(draw).collect()
    }

    /// The error of a spec, measured on at least two drawn sketches. Nyström's features do not depend on the seed: its landmarks are fitted.
    fn measure(&self, spec: &Spec, sketches: usize) -> Result<ExpectedError, Error> {
        let rows = self.measured_sample.rows();
        let drawn = self.draw(spec, if spec.method == Method::Nystrom { 2 } else { sketches })?;
        let norms = drawn[0][1].clone();
        let single = drawn.iter().map(|[errors, _]| Ok(self.ratio(errors, &norms, 0.0)?[0].powi(2)));
        let single = single.collect::<Result<Vec<f64>, Error>>()?;
        let mut errors = drawn[0][0].clone();
        drawn[1..].iter().for_each(|[more, _]| errors.add(more));
        let count = single.len() as f64;
        errors.scale(1.0 / count);
        let mean = single.iter().sum::<f64>() / count;
        let of_sketches = single.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / (count * (count - 1.0));
        let [relative, standard_error] = self.ratio(&errors, &norms, of_sketches)?;
        let source = Source::MonteCarlo { sketches: single.len() };
        let median = median(single).sqrt();
        Ok(ExpectedError { relative, standard_error, median, rows, source })
    }

    /// The root of the ratio of two sums over all pairs of the population, and its standard error; `variance` is the
    /// part of the squared ratio's variance that does not come from the choice of rows.
    fn ratio(&self, errors: &RowSums, norms: &RowSums, variance: f64) -> Result<[f64; 2], Error> {
        let rows = errors.itself.len();
        let [error, norm] = totals(errors, norms, self.population)?;
        let mut of_rows = 0.0;
        if rows < self.population && rows > 2 {
            let without = |row| {
                let [error, norm] = [errors, norms].map(|sums| sums.total(Some(row), self.population));
                if norm > 0.0 { error / norm } else { 0.0 }
            };
            let ratios: Vec<f64> = (0..rows).map(without).collect();
            let mean = ratios.iter().sum::<f64>() / rows as f64;
            let spread: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
            let missing = 1.0 - rows as f64 / self.population as f64;
            of_rows = missing * spread * (rows - 1) as f64 / rows as f64;
        }
        let relative = (error / norm).sqrt();
        let standard_error = (of_rows + variance).sqrt() / (2.0 * relative);
        Ok([relative, if relative > 0.0 { standard_error } else { 0.0 }])
    }
}

/// The middle of some numbers, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

impl RowSums {
    /// Estimates the sum over all pairs of a population from a sample: these rows, or all but one of them.
    pub(crate) fn total(&self, without: Option<usize>, population: usize) -> f64 {
        let mut rows = self.itself.len();
        let [mut others, mut itself] = [&self.others, &self.itself].map(|sums| sums.iter().sum::<f64>());
        if let Some(row) = without {
            others -= 2.0 * self.others[row];
            itself -= self.itself[row];
            rows -= 1;
        }
        let (sampled, all) = (rows as f64, population as f64);
        if rows < 2 {
            return itself * all / sampled;
        }
        others * (all * (all - 1.0)) / (sampled * (sampled - 1.0)) + itself * all / sampled
    }

    fn add(&mut self, other: &Self) {
        for (sums, others) in [(&mut self.others, &other.others), (&mut self.itself, &other.itself)] {
            sums.iter_mut().zip(others).for_each(|(sum, value)| *sum += value);
        }
    }

    fn scale(&mut self, factor: f64) {
        self.others.iter_mut().chain(&mut self.itself).for_each(|sum| *sum *= factor);
    }
}

/// The sums of |k̂ − k|² and k² over all pairs of a population, if their ratio means anything.
fn totals(errors: &RowSums, norms: &RowSums, population: usize) -> Result<[f64; 2], Error> {
    for sums in [norms, errors] {
        if !sums.total(None, population).is_finite() {
            let largest = sums.itself.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(row, _)| row);
            return Err(Error::Overflow { row: largest, dtype: "f64" });
        }
    }
    let [error, norm] = [errors, norms].map(|sums| sums.total(None, population));
    if norm < f64::MIN_POSITIVE / f64::EPSILON {
        let expected = "rows whose kernel is not zero: scale them to unit norm, or use a larger gamma";
        return Err(Error::invalid(
            Argument::Input(None),
            expected,
            "a kernel matrix of zeros, as far as f64 can tell",
        ));
    }
    Ok([error, norm])
}

/// |k̂ − k|² and k² of every pair.
fn squared_errors<T: Scalar>(sample: &Sample, features: Rows<'_, T>, field: Field) -> [RowSums; 2] {
    let columns = features.columns();
    let values: Vec<f64> = (0..features.rows()).flat_map(|row| features.row(row).iter().map(|z| z.to_f64())).collect();
    // For (re, im) pairs, the real inner product with (−im, re) is the imaginary part of the Hermitian one.
    let turned: Option<Vec<f64>> =
        (field == Field::Complex).then(|| values.chunks_exact(2).flat_map(|z| [-z[1], z[0]]).collect());
    let sums = sample.row_sums(
        2,
        false,
        |first, second| {
            let real = inner_products(&values, columns, first, second);
            let imaginary = turned.as_ref().map(|turned| {
                let block = |values: &[f64], rows: &std::ops::Range<usize>| {
                    values[rows.start * columns..rows.end * columns].to_vec()
                };
                let both = [block(&values, first), block(turned, second)].concat();
                inner_products(&both, columns, &(0..first.len()), &(first.len()..first.len() + second.len()))
            });
            (real, imaginary)
        },
        |(real, imaginary), at, factors, sums| {
            let kernel = sample.kernel(factors);
            let imaginary = imaginary.as_ref().map_or(0.0, |imaginary| imaginary[at]);
            sums[0] = (real[at] - kernel).powi(2) + imaginary * imaginary;
            sums[1] = kernel * kernel;
        },
    );
    match <[RowSums; 2]>::try_from(sums) {
        Ok(sums) => sums,
        Err(_) => unreachable!("two quantities were asked for"),
    }
}

/// The relative error of the kernel matrix approximated by features.
///
/// # Formula
/// ‖ΦΦᵀ − K‖_F / ‖K‖_F over all pairs of the rows, with Φᴴ for the features of `complex-` methods.
///
/// # Reference
/// Section 5.1 of the paper.
///
/// # Cost
/// n²(d + D) operations in double precision, in blocks and in parallel; memory 8n(d + D) bytes.
///
/// # Errors
/// As [`Spec::validate`]; [`Error::Invalid`] and [`Error::NotFinite`] for tables that do not fit or whose kernel is zero,
/// [`Error::Overflow`] if the squares of kernel values or of their errors are too large for `f64`.
///
/// ```
/// use argand::{FeatureMap, Rows, Spec, theory};
/// let x: Vec<f64> = (0..50 * 8).map(|i| f64::from(i % 7)).collect();
/// let inputs = [Rows::new(&x, 50, 8)?.into()];
/// let spec = Spec::polynomial(8).with_degree(2).with_features(1024);
/// let features = spec.sketch::<f64>()?.transform(&inputs)?;
/// let error = theory::kernel_error(&spec, &inputs, Rows::new(&features, 50, 1024)?)?;
/// assert!(error < 0.1);
/// # Ok::<(), argand::Error>(())
/// ```
pub fn kernel_error<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>], features: Rows<'_, T>) -> Result<f64, Error> {
    check(spec, inputs)?;
    let rows = inputs[0].rows();
    if (features.rows(), features.columns()) != (rows, spec.features) {
        let received = format!("{} x {}", features.rows(), features.columns());
        return Err(Error::invalid(Argument::Features, format!("{rows} rows x {} columns", spec.features), received));
    }
    Input::from(features).check_finite(Argument::Features)?;
    let sample = Sample::new(spec, inputs);
    let [errors, norms] = squared_errors(&sample, features, spec.method.field());
    let [error, norm] = totals(&errors, &norms, rows)?;
    Ok((error / norm).sqrt())
}

#[cfg(test)]
mod tests;
