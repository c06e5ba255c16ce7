//! Checks sketches against theory: draws many on the user's rows and tests their kernel estimates.

use rayon::prelude::*;

use crate::error::{Argument, Error};
use crate::fit::Fit;
use crate::map::FeatureMap;
use crate::rows::{Input, OwnedRows};
use crate::scalar::Scalar;
use crate::spec::{Field, Frequencies, Method, Shape, Spec};
use crate::theory::variance::{Moments, power, variance};
use crate::theory::{choose_rows, kernel_matrix};

/// How many pairs are examined, and on how many sketches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Pairs of different rows.
    pub pairs: usize,
    /// Rows paired with themselves, in addition.
    pub diagonal: usize,
    /// Sketches drawn.
    pub sketches: usize,
    /// The seed of the choice of rows and of the sketches.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { pairs: 8, diagonal: 4, sketches: 500, seed: 0 }
    }
}

impl Effort {
    /// Checks that there are enough sketches and pairs.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the argument.
    pub fn validate(&self) -> Result<(), Error> {
        if self.sketches < 10 {
            return Err(Error::invalid(Argument::Sketches, "at least 10", self.sketches));
        }
        if self.pairs == 0 && self.diagonal == 0 {
            return Err(Error::invalid(Argument::Pairs, "at least 1", 0));
        }
        Ok(())
    }
}

/// A measured and an expected number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The theoretical value.
    pub expected: f64,
    /// The average over the sketches.
    pub measured: f64,
    /// How many standard errors they are apart, corrected for skewness: about normal if theory is right.
    pub z: f64,
}

impl Comparison {
    fn times(self, scale: f64) -> Self {
        Self { expected: self.expected * scale, measured: self.measured * scale, ..self }
    }
}

/// The result for one pair of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairReport {
    /// The two rows, counted from 0.
    pub rows: (usize, usize),
    /// The mean of the kernel estimates.
    pub mean: Comparison,
    /// Their variance, where a closed form is known. The expected value is 0 where the sketch is exact.
    pub variance: Option<Comparison>,
    /// Their measured standard deviation.
    pub deviation: f64,
}

/// The result for one spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Verification {
    /// The sketch.
    pub spec: Spec,
    /// Sketches drawn.
    pub sketches: usize,
    /// Pair by pair.
    pub pairs: Vec<PairReport>,
}

impl Verification {
    /// z-scores that should be normal: means of unbiased sketches, and variances where there are enough sketches to judge them.
    pub fn scores(&self) -> impl Iterator<Item = f64> + '_ {
        let means = self.sketches >= self.sketches_for_means() && !self.is_biased();
        let variances = self.sketches >= self.sketches_for_variances();
        let means = self.pairs.iter().filter(move |_| means).map(|pair| pair.mean.z);
        means.chain(self.pairs.iter().filter(move |_| variances).filter_map(|pair| Some(pair.variance?.z)))
    }

    /// The number of sketches whose mean is about normal.
    ///
    /// # Formula
    /// 4γ² with the skewness γ² = (E|w|⁶/(E|w|⁴)^{3/2})^{2p}/m of a Gaussian sketch at x = y: 15/3^{3/2} real, 6/2^{3/2}
    /// complex. Trees and chains have the tails of a low degree.
    #[must_use]
    pub fn sketches_for_means(&self) -> usize {
        self.sketches_for(4.0, 225.0 / 27.0, 36.0 / 8.0, 0.0)
    }

    /// The number of sketches whose variance has a relative standard error of a fifth, even at x = y.
    ///
    /// # Formula
    /// 20(κ + 2) with the kurtosis κ = (E|w|⁸/(E|w|⁴)²)^p/m of a Gaussian sketch at x = y: 105/9 real, 24/4 complex. It grows
    /// so fast with the degree that variances are out of reach from p = 5 or 6 on.
    #[must_use]
    pub fn sketches_for_variances(&self) -> usize {
        self.sketches_for(20.0, 105.0 / 9.0, 24.0 / 4.0, 2.0)
    }

    fn sketches_for(&self, factor: f64, real: f64, complex: f64, more: f64) -> usize {
        let (field, shape) = (self.spec.method.field(), self.spec.method.shape());
        // Features other than products are bounded, or have the tails of the highest power of a sum.
        let (degree, shape) = match (self.spec.method, &self.spec.fit) {
            (Method::Maclaurin(product), Some(Fit::Maclaurin(allocation))) => {
                (allocation.terms.last().map_or(1, |term| term.degree), Some(product.shape))
            }
            (Method::Product(_), _) => (self.spec.factors().degree, shape),
            _ => (1, shape),
        };
        let degree = if shape == Some(Shape::Flat) { degree } else { degree.min(3) };
        let ratio = if field.is_complex() { complex } else { real };
        let needed = factor * (power(ratio, degree) / self.spec.outputs() as f64 + more);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; the cast saturates")]
        let needed = needed.ceil() as usize;
        needed
    }

    /// Whether the method is known to be biased; its means are then reported but not tested.
    #[must_use]
    pub fn is_biased(&self) -> bool {
        // A sum leaves out powers; structured frequencies are nearly Gaussian.
        matches!(
            self.spec.method,
            Method::Spherical | Method::Nystrom | Method::Maclaurin(_) | Method::Fourier(Frequencies::Structured)
        )
    }

    /// The z-score furthest from 0.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.scores().fold(0.0, |worst, z| if z.abs() > worst.abs() || z.is_nan() { z } else { worst })
    }
}

/// The |z| that the largest of `count` independent normal scores exceeds with a probability of `level`.
///
/// # Formula
/// Šidák: 2Φ(−z) = 1 − (1 − level)^{1/count}.
#[must_use]
pub fn z_bound(count: usize, level: f64) -> f64 {
    let each = -(f64::ln_1p(-level) / count.max(1) as f64).exp_m1();
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        let exceeded = libm::erfc(middle / std::f64::consts::SQRT_2);
        if exceeded > each { low = middle } else { high = middle }
    }
    high
}

/// Draws many sketches of a spec and compares their kernel estimates with theory.
///
/// # Formula
/// For each pair of rows the mean of k̂ is compared with k and the mean of |k̂ − k|² with the variance. With skewness γ of n
/// samples and t = (mean − expected)/deviation, z = √n (t + γt²/3 + γ²t³/27 + γ/(6n)), which is much closer to normal than √n t
/// for skewed samples.
///
/// # Reference
/// `theory::variance` for what is expected; Hall (1992), *On the removal of skewness by transformation*, for z.
///
/// # Errors
/// As [`Spec::sketch`]; [`Error::Invalid`] and [`Error::NotFinite`] for tables that do not fit or have fewer than two rows.
pub fn verify<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>], effort: &Effort) -> Result<Verification, Error> {
    effort.validate()?;
    let total = inputs.first().map_or(0, Input::rows);
    if total < 2 {
        return Err(Error::invalid(Argument::Input(None), "at least 2 rows", total));
    }
    let rows = choose_rows(total, (2 * effort.pairs).max(effort.diagonal).max(2), effort.seed);
    let tables: Vec<OwnedRows<T>> = inputs.iter().map(|input| OwnedRows::take(input, &rows)).collect();
    let taken: Vec<Input<'_, T>> = tables.iter().map(OwnedRows::view).collect();
    let exact = kernel_matrix(spec, &taken)?;
    // Neighbours first, then rows further apart.
    let different = (1..rows.len()).flat_map(|apart| (apart..rows.len()).map(move |row| (row - apart, row)));
    let itself = (0..effort.diagonal.min(rows.len())).map(|row| (row, row));
    let pairs: Vec<(usize, usize)> = different.take(effort.pairs).chain(itself).collect();

    let drawn = spec.sketch::<T>()?;
    // The fit of spherical features does not depend on the seed.
    let spec = drawn.spec().clone();
    let estimates = (0..effort.sketches)
        .into_par_iter()
        .map(|sketch| {
            let seed = effort.seed.wrapping_add(sketch as u64);
            let features = spec.clone().with_seed(seed).sketch::<T>()?.transform(&taken)?;
            let row = |row: usize| &features[row * spec.features..][..spec.features];
            Ok(pairs.iter().map(|&(i, j)| estimate(spec.method.field(), row(i), row(j))).collect::<Vec<_>>())
        })
        .collect::<Result<Vec<_>, Error>>()?;

    let dense: Vec<Vec<Vec<f64>>> = taken.iter().map(dense_rows).collect();
    let mut reports = Vec::with_capacity(pairs.len());
    for (index, &(i, j)) in pairs.iter().enumerate() {
        let kernel = exact[i * rows.len() + j];
        let [x, y] = [i, j].map(|row| dense.iter().map(|table| &table[row][..]).collect::<Vec<_>>());
        let expected = variance(&spec, &x, &y)?;
        // In units of the kernel's scale, so that nothing overflows.
        let scale = (exact[i * rows.len() + i] * exact[j * rows.len() + j]).abs().sqrt().max(kernel.abs());
        if !(scale.is_finite() && scale > 0.0) {
            let received = format!("rows {} and {} with a kernel of {scale}", rows[i], rows[j]);
            return Err(Error::invalid(
                Argument::Input(None),
                "rows whose kernel is neither zero nor infinite: scale them",
                received,
            ));
        }
        let samples = estimates.iter().map(|estimates| estimates[index].map(|part| part / scale));
        // That of a sum is not the kernel: it leaves out powers.
        let mean = expected.map_or(kernel, |expected| expected.mean) / scale;
        let (real, squares): (Vec<f64>, Vec<f64>) = samples.map(|[re, im]| (re, (re - mean).powi(2) + im * im)).unzip();
        // The rounding error of an estimate without variance.
        let rounding = 100.0 * T::EPSILON.to_f64();
        let average = real.iter().sum::<f64>() / real.len() as f64;
        let spread = real.iter().map(|value| (value - average).powi(2)).sum::<f64>() / real.len() as f64;
        let predicted = |expected: Moments| {
            let variance = expected.variance / scale / scale;
            compare(&squares, if variance > rounding * rounding { variance } else { 0.0 }, rounding * rounding)
        };
        reports.push(PairReport {
            rows: (rows[i], rows[j]),
            mean: compare(&real, kernel / scale, rounding).times(scale),
            variance: expected.map(|expected| predicted(expected).times(scale * scale)),
            deviation: spread.sqrt() * scale,
        });
    }
    Ok(Verification { spec: spec.with_seed(effort.seed), sketches: effort.sketches, pairs: reports })
}

/// The rows of a table in double precision.
fn dense_rows<T: Scalar>(input: &Input<'_, T>) -> Vec<Vec<f64>> {
    (0..input.rows())
        .map(|row| match input {
            Input::Dense(rows) => rows.row(row).iter().map(|value| value.to_f64()).collect(),
            Input::Sparse(rows) => {
                let mut dense = vec![0.0; rows.columns()];
                rows.row(row).for_each(|(column, value)| dense[column] += value.to_f64());
                dense
            }
        })
        .collect()
}

/// The kernel estimate of two rows of features, real and imaginary part.
fn estimate<T: Scalar>(field: Field, x: &[T], y: &[T]) -> [f64; 2] {
    let dot = |x: &[T], y: &[T]| x.iter().zip(y).map(|(x, y)| x.to_f64() * y.to_f64()).sum::<f64>();
    if field != Field::Complex {
        return [dot(x, y), 0.0];
    }
    let imaginary = |x: &[T], y: &[T]| x[1].to_f64() * y[0].to_f64() - x[0].to_f64() * y[1].to_f64();
    [dot(x, y), x.chunks_exact(2).zip(y.chunks_exact(2)).map(|(x, y)| imaginary(x, y)).sum()]
}

/// The mean of samples and its expected value; differences up to `rounding` are ignored.
fn compare(samples: &[f64], expected: f64, rounding: f64) -> Comparison {
    let count = samples.len() as f64;
    let measured = samples.iter().sum::<f64>() / count;
    let central = |power: i32| samples.iter().map(|sample| (sample - measured).powi(power)).sum::<f64>() / count;
    let deviation = (central(2) * count / (count - 1.0)).sqrt();
    let difference = measured - expected;
    let z = if difference.abs() <= rounding {
        0.0
    } else if deviation <= rounding {
        f64::INFINITY.copysign(difference)
    } else {
        let (t, skewness) = (difference / deviation, central(3) / deviation.powi(3));
        count.sqrt() * (t + skewness * t * t / 3.0 + (skewness * t).powi(2) * t / 27.0 + skewness / (6.0 * count))
    };
    Comparison { expected, measured, z }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};
    use crate::rows::{Rows, SparseRows};

    #[test]
    fn bounds_are_normal_quantiles() {
        assert!((z_bound(1, 0.05) - 1.959_964).abs() < 1e-5);
        assert!((z_bound(1, 0.01) - 2.575_829).abs() < 1e-5);
        assert!((z_bound(100, 0.01) - 3.889).abs() < 2e-2);
    }

    /// Squares of normal variables, with a skewness of √8: the corrected score exceeds 1.96 on either side about as often as
    /// it should, where the plain one is lopsided.
    #[test]
    fn scores_of_skewed_samples_are_nearly_normal() {
        let mut stream = Stream::new(5, Purpose::Weights, 0, 0);
        let (mut low, mut high) = (0, 0);
        for _ in 0..4000 {
            let samples: Vec<f64> = (0..50).map(|_| 2.0 * stream.complex_normal().0.powi(2)).collect();
            let z = compare(&samples, 1.0, 0.0).z;
            low += i32::from(z < -1.96);
            high += i32::from(z > 1.96);
        }
        // 2.5 % of 4000 are 100; without the correction there are about 300 below and 25 above.
        assert!((70..=160).contains(&low) && (60..=150).contains(&high), "{low} {high}");
    }

    #[test]
    fn a_sketch_without_variance_is_right_or_infinitely_wrong() {
        assert_eq!(compare(&[2.0; 20], 2.0, 1e-12).z, 0.0);
        assert_eq!(compare(&[2.0; 20], 3.0, 1e-12).z, f64::NEG_INFINITY);
    }

    /// The same samples of a sketch agree with what theory says of it, and with nothing else.
    #[test]
    fn wrong_means_and_variances_are_found_out() {
        let x = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0, 2.0, 1.5];
        let spec = Spec::polynomial(4).with_degree(2).with_features(64);
        let kernel = (x[..4].iter().zip(&x[4..]).map(|(a, b)| a * b).sum::<f64>()).powi(2);
        let estimates: Vec<f64> = (0..2000)
            .map(|seed| {
                let sketch = spec.clone().with_seed(seed).sketch::<f64>().unwrap();
                let features = crate::FeatureMap::transform(&sketch, &[Rows::new(&x, 2, 4).unwrap().into()]).unwrap();
                estimate(Field::ComplexToReal, &features[..64], &features[64..])[0]
            })
            .collect();
        let expected = variance(&spec, &[&x[..4]], &[&x[4..]]).unwrap().unwrap().variance;
        let squares: Vec<f64> = estimates.iter().map(|value| (value - kernel).powi(2)).collect();
        let bound = z_bound(2, 0.001);
        let report = |mean: f64, of_squares: f64| {
            let pair = PairReport {
                rows: (0, 1),
                mean: compare(&estimates, mean, 0.0),
                variance: Some(compare(&squares, of_squares, 0.0)),
                deviation: 0.0,
            };
            Verification { spec: spec.clone(), sketches: 2000, pairs: vec![pair] }
        };
        let right = report(kernel, expected);
        assert!(right.scores().count() == 2 && right.worst().abs() < bound, "{right:?}");
        // The mean of 2,000 is known to a forty-fifth of the deviation, the variance to some 4 %.
        let off = expected.sqrt() / 8.0;
        for wrong in [
            report(kernel + off, expected),
            report(kernel - off, expected),
            report(kernel, 0.7 * expected),
            report(kernel, 1.4 * expected),
        ] {
            assert!(wrong.worst().abs() > bound, "{wrong:?}");
        }
    }

    /// Entries of the same column of a sparse row are added, as in the sketch.
    #[test]
    fn repeated_columns_are_added() {
        let starts = [0_u64, 3, 5, 7];
        let sparse =
            SparseRows::new(&starts[..], &[0_u64, 1, 0, 1, 1, 2, 0][..], &[1.0, 2.0, 0.5, 3.0, -1.0, 1.0, 2.0], 3)
                .unwrap();
        let dense = [1.5, 2.0, 0.0, 0.0, 2.0, 0.0, 2.0, 0.0, 1.0];
        let spec = Spec::polynomial(3).with_degree(2).with_features(16);
        let effort = Effort { sketches: 50, ..Effort::default() };
        let [a, b] = [Input::from(sparse), Rows::new(&dense, 3, 3).unwrap().into()]
            .map(|input| verify(&spec, &[input], &effort).unwrap().pairs);
        assert!(!a.is_empty() && a.len() == b.len());
        for (a, b) in a.iter().zip(&b) {
            let [a, b] = [a, b].map(|pair| [pair.mean.expected, pair.mean.measured, pair.variance.unwrap().expected]);
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs().max(1.0)), "{a:?} {b:?}");
        }
    }

    /// What theory says of a sketch, its estimates follow.
    #[test]
    fn right_sketches_agree_where_there_is_enough_to_judge() {
        let x: Vec<f64> = (0..60).map(|i| f64::from(i * 7 % 11) - 3.0).collect();
        let inputs = [Rows::new(&x, 10, 6).unwrap().into()];
        for method in ["ctr-product-srht", "complex-rademacher", "tensor-sketch", "hierarchical-gaussian"] {
            let spec = Spec::polynomial(6).with_degree(3).with_features(128).with_method(method.parse().unwrap());
            let report = verify(&spec, &inputs, &Effort::default()).unwrap();
            let count = report.scores().count();
            assert_eq!(count, 24, "{method}");
            assert!(report.worst().abs() < z_bound(count, 0.001), "{method}: {report:?}");
        }
        // A sum that leaves out much: its estimates vary about its own mean, not about the kernel.
        let spec = Spec::gaussian(6, 5.0).with_features(12).with_method("maclaurin-rademacher".parse().unwrap());
        let spec = spec.fit_to(&inputs, &crate::fit::Fitting::default()).unwrap();
        let report = verify(&spec, &inputs, &Effort { sketches: 2000, ..Effort::default() }).unwrap();
        let off = |pair: &PairReport| (pair.mean.measured - pair.mean.expected).abs() > pair.deviation;
        assert!(report.is_biased() && report.pairs.iter().any(off), "{report:?}");
        let count = report.scores().count();
        assert!(count > 0 && report.worst().abs() < z_bound(count, 0.001), "{report:?}");
        // At a high degree, a few hundred sketches say nothing about the variance.
        let high = verify(
            &Spec::polynomial(6).with_degree(7).with_features(64),
            &inputs,
            &Effort { sketches: 60, ..Effort::default() },
        )
        .unwrap();
        assert_eq!(high.scores().count(), 0);
        assert!(high.sketches_for_variances() > 100_000 && high.sketches_for_means() > 60);
        let samples: Vec<f64> = (0..500).map(|i| f64::from(i % 10)).collect();
        assert!(compare(&samples, 4.5, 0.0).z.abs() < 0.1 && compare(&samples, 5.5, 0.0).z < -6.0);
    }

    #[test]
    fn too_little_to_verify_is_an_error() {
        let x = [1.0_f32, 2.0];
        let spec = Spec::polynomial(2).with_degree(2).with_features(8);
        let named = |rows: usize, effort: Effort| {
            let inputs = [Rows::new(&x[..2 * rows], rows, 2).unwrap().into()];
            verify(&spec, &inputs, &effort).unwrap_err().to_string()
        };
        assert!(named(1, Effort::default()).starts_with("input"));
        let zero = [Rows::new(&[0.0_f32; 4], 2, 2).unwrap().into()];
        assert!(verify(&spec, &zero, &Effort::default()).unwrap_err().to_string().contains("kernel of 0"));
        assert!(named(1, Effort { sketches: 3, ..Effort::default() }).starts_with("sketches"));
        assert!(named(1, Effort { pairs: 0, diagonal: 0, ..Effort::default() }).starts_with("pairs"));
    }
}
