//! Fourier features or a sum of sketches: which of them learns better from the rows at hand.

use argand_linalg::{Cholesky, Matrix, View, ViewMut, product};

use super::learning::along;
use super::{Aim, Fitting, check_rows};
use crate::error::{Argument, Error};
use crate::map::FeatureMap;
use crate::rng::{Purpose, Stream};
use crate::rows::{Input, OwnedRows};
use crate::scalar::Scalar;
use crate::spec::{Base, Field, Frequencies, Kernel, Method, ProductMethod, Shape, Spec};
use crate::theory::{choose_rows, kernel_matrix};

/// The most rows that a model is assumed to learn from, and the most on which it is judged.
const ROWS: usize = 512;

/// The length scales of the processes that targets are drawn from, in those of the kernel: as rough as it allows, and smoother. Nobody knows which they are.
const SMOOTHNESS: [f64; 2] = [1.0, 2.0];

/// The noise λ of the targets, and the penalties of the model: the best one counts.
const NOISE: f64 = 1e-3;
const PENALTIES: [f64; 4] = [1e-3, 1e-2, 1e-1, 1.0];

/// Sketches of each kind.
const SKETCHES: u64 = 3;

/// A sum is chosen where its risk is at most this part of the other's: targets are not those of a Gaussian process, and less says nothing about them.
const CLEARLY: f64 = 0.99;

impl Spec {
    /// The spec of a Gaussian kernel with the method that learns better from such rows: `maclaurin-ctr-product-srht`, fitted for
    /// [`Aim::Learning`], where its risks are lower by a hundredth in each of three pairs of sketches, and otherwise `sorf`, with one feature more if
    /// their number is odd.
    ///
    /// # Formula
    /// A risk is that of a ridge model on targets of a Gaussian process with noise λ and a covariance C: this kernel, or the one of twice its length
    /// scale, whose functions are smoother. With K̂ = ΦΦᵀ, rows n to learn from, others t, and B = K̂_tn (K̂_nn + μI)⁻¹, predictions are By, and
    ///
    /// E‖f_t − By‖² = tr C_tt − 2 tr(B C_nt) + tr(B (C_nn + λI) Bᵀ)
    ///
    /// for the best of some penalties μ. It is exact for the features at hand; `docs/math.md`, section 12, compares it with the objective of a sum.
    ///
    /// # Cost
    /// For at most 1,024 rows: their features, six times, and 2·512²·D multiplications each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other kernels; otherwise as [`Spec::fit_to`].
    ///
    /// ```
    /// use argand::{Method, Rows, Spec};
    /// let x: Vec<f64> = (0..200 * 3).map(|i| f64::from(i * i % 101) / 25.0).collect();
    /// let inputs = [Rows::new(&x, 200, 3)?.into()];
    /// let chosen = |length_scale: f64| Spec::gaussian(3, length_scale).with_features(64).chosen_for_learning(&inputs);
    /// // A narrow kernel in few dimensions: its power series would need many terms.
    /// assert_eq!(chosen(0.4)?.method, "sorf".parse()?);
    /// # Ok::<(), argand::Error>(())
    /// ```
    pub fn chosen_for_learning<T: Scalar>(&self, inputs: &[Input<'_, T>]) -> Result<Self, Error> {
        let Kernel::Gaussian { .. } = self.kernel else {
            return Err(Error::invalid(Argument::Kernel, "gaussian", self.kernel.name()));
        };
        // Fourier features are pairs.
        let fourier = self
            .clone()
            .with_fit(None)
            .with_features(self.features.saturating_add(self.features % 2))
            .with_method(Method::Fourier(Frequencies::Structured));
        fourier.validate()?;
        let total = check_rows(&fourier, inputs, 4, "to compare methods")?;
        let product =
            ProductMethod { base: Base::ProductSrht, field: Field::ComplexToReal, shape: Shape::Flat, craft: None };
        let sum = fourier.clone().with_features(self.features).with_method(Method::Maclaurin(product));
        let sum = match sum.fit_to(inputs, &Fitting::default().with_aim(Aim::Learning)) {
            Ok(sum) => sum,
            // A series that needs too many terms, or features too few for any, leave Fourier features.
            Err(Error::Invalid { argument: Argument::Input(_) | Argument::Features, .. }) => return Ok(fourier),
            Err(other) => return Err(other),
        };
        let chosen = choose_rows(total, 2 * ROWS, self.seed);
        // Tables may be sorted: every second row is learnt from.
        let part = |first: usize| -> Vec<usize> { chosen.iter().copied().skip(first).step_by(2).collect() };
        let task = Task::new(&fourier, &inputs[0], &part(0), &part(1))?;
        let mut seeds = Stream::of_version(self.stream_version, self.seed, Purpose::Terms, 0, 0);
        for sketch in 0..SKETCHES {
            let seed = if sketch == 0 { self.seed } else { seeds.bits() };
            let risks = [&sum, &fourier].map(|spec| task.risks(&spec.clone().with_seed(seed)));
            let [of_sum, of_fourier] = risks;
            if of_sum?.iter().zip(of_fourier?).any(|(of_sum, of_fourier)| *of_sum > CLEARLY * of_fourier) {
                return Ok(fourier);
            }
        }
        Ok(sum)
    }
}

/// Rows to learn from, and others.
struct Task<T> {
    rows: [OwnedRows<T>; 2],
    targets: [Targets; SMOOTHNESS.len()],
}

/// Targets of one smoothness, a process with the covariance C.
struct Targets {
    /// C_nn + λI.
    learnt: Matrix,
    /// C_nt.
    across: Matrix,
    /// tr C_tt.
    variance: f64,
}

impl<T: Scalar> Task<T> {
    fn new(spec: &Spec, input: &Input<'_, T>, learnt: &[usize], judged: &[usize]) -> Result<Self, Error> {
        let all = OwnedRows::take(input, &[learnt, judged].concat());
        let kernel = kernel_matrix(spec, &[all.view()])?;
        let (count, size) = (learnt.len(), learnt.len() + judged.len());
        let targets = |smoothness: f64| {
            // exp(−r²/(2s²ℓ²)) is a power of exp(−r²/(2ℓ²)).
            let entry = |row: usize, column: usize| libm::pow(kernel[row * size + column], smoothness.powi(-2));
            Targets {
                learnt: Matrix::from_fn(count, count, |i, j| entry(i, j) + if i == j { NOISE } else { 0.0 }),
                across: Matrix::from_fn(count, judged.len(), |i, j| entry(i, count + j)),
                variance: (count..size).map(|at| entry(at, at)).sum(),
            }
        };
        let rows = [learnt, judged].map(|rows| OwnedRows::take(input, rows));
        Ok(Self { rows, targets: SMOOTHNESS.map(targets) })
    }

    /// The mean squared error of a model on the features of a spec, for targets of every smoothness.
    fn risks(&self, spec: &Spec) -> Result<[f64; SMOOTHNESS.len()], Error> {
        let sketch = spec.sketch::<T>()?;
        let features = |rows: &OwnedRows<T>| -> Result<Vec<f64>, Error> {
            Ok(sketch.transform(&[rows.view()])?.iter().map(|value| value.to_f64()).collect())
        };
        let (learnt, judged) = (features(&self.rows[0])?, features(&self.rows[1])?);
        let (n, t) = (self.rows[0].view().rows(), self.rows[1].view().rows());
        let [learnt, judged] = [(&learnt, n), (&judged, t)].map(|(z, rows)| View::by_rows(z, rows, spec.features));
        let (mut own, mut across) = (vec![0.0; n * n], vec![0.0; n * t]);
        product(ViewMut::by_columns(&mut own, n, n), learnt, learnt.transpose(), 1.0);
        product(ViewMut::by_columns(&mut across, n, t), learnt, judged.transpose(), 1.0);
        let mut least = [f64::INFINITY; SMOOTHNESS.len()];
        for penalty in PENALTIES {
            let matrix = Matrix::from_fn(n, n, |i, j| own[j * n + i] + if i == j { penalty } else { 0.0 });
            let Ok(factor) = Cholesky::new(matrix) else { continue };
            // Bᵀ, and BᵀB.
            let mut weights = Matrix::from_fn(n, t, |i, j| across[j * n + i]);
            factor.solve_lower(weights.view_mut());
            factor.solve_upper(weights.view_mut());
            let mut squares = Matrix::zeros(n, n);
            product(squares.view_mut(), weights.view(), weights.view().transpose(), 1.0);
            for (least, targets) in least.iter_mut().zip(&self.targets) {
                let error =
                    targets.variance - 2.0 * along(&weights, &targets.across) + along(&squares, &targets.learnt);
                *least = least.min(error / t as f64);
            }
        }
        Ok(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Fit;
    use crate::rows::Rows;

    fn data(rows: usize, dim: usize) -> Vec<f64> {
        let mut stream = Stream::new(3, Purpose::Sample, 1, 1);
        (0..rows * dim).map(|_| stream.uniform() - 0.5).collect()
    }

    /// Against simulated targets: f from the Gaussian process, by the factor of its kernel matrix.
    #[test]
    fn the_risk_is_the_mean_squared_error() {
        let (x, dim, count) = (data(40, 3), 3, 20);
        let input: Input<'_, f64> = Rows::new(&x, 40, dim).unwrap().into();
        let spec = Spec::gaussian(dim, 0.5).with_features(32).with_method("sorf".parse().unwrap());
        let rows: Vec<usize> = (0..40).collect();
        let task = Task::new(&spec, &input, &rows[..count], &rows[count..]).unwrap();
        let risks = task.risks(&spec).unwrap();
        let z = spec.sketch::<f64>().unwrap().transform(&[input]).unwrap();
        let dot = |i: usize, j: usize| -> f64 { (0..32).map(|at| z[i * 32 + at] * z[j * 32 + at]).sum() };
        let models = PENALTIES.map(|penalty| {
            Cholesky::new(Matrix::from_fn(count, count, |i, j| dot(i, j) + if i == j { penalty } else { 0.0 })).unwrap()
        });
        let (mut stream, draws) = (Stream::new(7, Purpose::Sample, 2, 0), 20_000);
        let normal = |stream: &mut Stream| std::f64::consts::SQRT_2 * stream.complex_normal().0;
        for (smoothness, risk) in SMOOTHNESS.into_iter().zip(risks) {
            let exact = kernel_matrix(&Spec::gaussian(dim, 0.5 * smoothness), &[input]).unwrap();
            let jitter = |i: usize, j: usize| if i == j { 1e-10 } else { 0.0 };
            let factor = Cholesky::new(Matrix::from_fn(40, 40, |i, j| exact[i * 40 + j] + jitter(i, j))).unwrap();
            // The columns of L, from L⁻¹: f = Lu has the covariance of the process.
            let mut inverse = Matrix::identity(40);
            factor.solve_lower(inverse.view_mut());
            let mut errors = [0.0; PENALTIES.len()];
            for _ in 0..draws {
                let u: Vec<f64> = (0..40).map(|_| normal(&mut stream)).collect();
                // L u = f by forward substitution on L⁻¹ f = u.
                let mut f: Vec<f64> = Vec::with_capacity(40);
                for row in 0..40 {
                    let before: f64 = (0..row).map(|at| inverse[(row, at)] * f[at]).sum();
                    f.push((u[row] - before) / inverse[(row, row)]);
                }
                let y: Vec<f64> = f[..count].iter().map(|f| f + NOISE.sqrt() * normal(&mut stream)).collect();
                for (error, model) in errors.iter_mut().zip(&models) {
                    let [_, weights] = model.solve(&y);
                    for (row, f) in f.iter().enumerate().skip(count) {
                        let predicted: f64 = (0..count).map(|at| dot(row, at) * weights[at]).sum();
                        *error += (f - predicted).powi(2) / (20 * draws) as f64;
                    }
                }
            }
            let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
            // 20,000 functions of about ten directions leave about half a percent.
            let ratio = risk / least;
            assert!((0.98..1.02).contains(&ratio), "{smoothness}: {ratio}");
        }
    }

    #[test]
    fn wide_kernels_of_many_columns_get_sums_and_narrow_ones_of_few_do_not() {
        let (many, few) = (data(300, 60), data(300, 2));
        let chosen = |x: &[f64], length_scale: f64, features: usize| {
            let dim = x.len() / 300;
            let spec = Spec::gaussian(dim, length_scale).with_features(features).with_seed(3);
            spec.chosen_for_learning(&[Rows::new(x, 300, dim).unwrap().into()]).unwrap()
        };
        let wide = chosen(&many, 3.0, 256);
        assert!(matches!(wide.fit, Some(Fit::Maclaurin(ref sum)) if sum.aim == Aim::Learning), "{wide:?}");
        assert_eq!((wide.seed, wide.features), (3, 256));
        // A sum has as many features as were asked for; Fourier features are pairs.
        let odd =
            [chosen(&many, 3.0, 255), chosen(&few, 0.12, 63)].map(|spec| (spec.method.to_string(), spec.features));
        assert_eq!(odd, [("maclaurin-ctr-product-srht".to_owned(), 255), ("sorf".to_owned(), 64)]);
        let narrow = chosen(&few, 0.12, 64);
        assert_eq!((narrow.method.to_string(), narrow.fit), ("sorf".to_owned(), None));
        // So narrow that there is no series.
        assert_eq!(chosen(&few, 0.01, 64).method.to_string(), "sorf");
    }

    #[test]
    fn other_kernels_and_too_few_rows_are_errors() {
        let x = data(10, 3);
        let inputs = [Rows::new(&x, 10, 3).unwrap().into()];
        let message = |spec: Spec| spec.chosen_for_learning(&inputs).unwrap_err().to_string();
        assert!(message(Spec::polynomial(3).with_features(8)).starts_with("kernel: expected gaussian"));
        assert!(message(Spec::gaussian(4, 1.0).with_features(8)).starts_with("input: "));
        let few = [Rows::new(&x[..9], 3, 3).unwrap().into()];
        let error = Spec::gaussian(3, 1.0).with_features(8).chosen_for_learning(&few).unwrap_err();
        assert!(error.to_string().contains("at least 4 rows"), "{error}");
    }
}
