//! Gaussian processes on sketches, and exact ones to compare them with.

use faer::Mat;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::archive::{Archive, check_columns};
use super::gram::{Gram, Targets, check_classes};
use super::recipe::Recipe;
use super::softmax::AveragedSoftmax;
use super::solve::{Cholesky, Eigen, PackedFactor, RowUpdate, check_finite, linear};
use crate::error::{Argument, Error, FileFault};
use crate::rng::{Purpose, Stream};
use crate::rows::{Input, Rows};

const LOG_TAU: f64 = 1.837_877_066_409_345_5;

/// Classes turned into targets of regression with a noise of their own.
///
/// # Formula
/// With y = 1 for members of a class and 0 for others: v = log(1 + 1/(y + α)), t = log(y + α) − v/2. The prior mean of class c
/// is μ_c = log p_c + mean(t) − mean(log p) with p_c its share of the rows, and the kernel variance is the variance of all t − μ_c.
/// Both depend on the numbers of rows in the classes only.
///
/// # Reference
/// Milios et al. (2018), "Dirichlet-based Gaussian processes for large-scale calibrated classification", as run for Section 5.2 of
/// the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassTargets {
    /// The variance v of the noise, of others and of members.
    pub noise: [f64; 2],
    /// The target t, of others and of members.
    pub targets: [f64; 2],
    /// The prior mean μ of every class.
    pub means: Vec<f64>,
    /// The variance of all entries of t − μ.
    pub variance: f64,
}

impl ClassTargets {
    /// From the number of rows in every class.
    ///
    /// # Errors
    /// [`Error::Invalid`] for α that is not positive, fewer than two classes, or a class without rows.
    ///
    /// ```
    /// use argand::model::ClassTargets;
    /// let mnist = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949].map(f64::from);
    /// assert!((ClassTargets::new(&mnist, 0.001)?.variance - 9.0274).abs() < 1e-4); // what the paper's authors had
    /// # Ok::<(), argand::Error>(())
    /// ```
    pub fn new(counts: &[f64], alpha: f64) -> Result<Self, Error> {
        if !(alpha > 0.0 && alpha.is_finite()) {
            return Err(Error::invalid(Argument::Alpha, "a positive number", alpha));
        }
        if counts.len() < 2 {
            return Err(Error::invalid(Argument::Classes, "at least 2", counts.len()));
        }
        if let Some(class) = counts.iter().position(|&count| count < 1.0) {
            return Err(Error::invalid(
                Argument::Labels,
                "at least one row of every class",
                format!("none of class {class}"),
            ));
        }
        let noise = [0.0, 1.0].map(|y| (1.0 + 1.0 / (y + alpha)).ln());
        let targets = [(0.0, noise[0]), (1.0, noise[1])].map(|(y, noise): (f64, f64)| (y + alpha).ln() - noise / 2.0);
        let (rows, classes): (f64, _) = (counts.iter().sum(), counts.len() as f64);
        let shares: Vec<f64> = counts.iter().map(|count| (count / rows).ln()).collect();
        let mean_target = ((classes - 1.0) * targets[0] + targets[1]) / classes;
        let offset = mean_target - shares.iter().sum::<f64>() / classes;
        let means: Vec<f64> = shares.iter().map(|share| share + offset).collect();
        let squares = counts
            .iter()
            .zip(&means)
            .map(|(count, mean)| count * (targets[1] - mean).powi(2) + (rows - count) * (targets[0] - mean).powi(2));
        // The mean of t − μ over all entries is zero.
        let variance = squares.sum::<f64>() / (rows * classes);
        Ok(Self { noise, targets, means, variance })
    }
}

/// Predictive means and variances of latent functions, row by row with one column per class or target.
#[derive(Debug, Clone, PartialEq)]
pub struct GpPrediction {
    /// Columns: classes, or columns of targets.
    pub columns: usize,
    /// Means.
    pub means: Vec<f64>,
    /// Variances of the latent function, without noise.
    pub variances: Vec<f64>,
}

/// Draws behind class probabilities unless told otherwise: the paper's.
pub const POSTERIOR_SAMPLES: usize = 1000;

impl GpPrediction {
    /// Class probabilities: the softmax averaged over draws of the latent functions, the same draws for every row.
    ///
    /// # Formula
    /// (1/S) Σ_s softmax(m + √v ∘ ε_s) with ε_s standard normal.
    ///
    /// # Cost
    /// S exponentials per row and class.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no samples.
    pub fn probabilities(&self, samples: usize, seed: u64) -> Result<Vec<f64>, Error> {
        if samples == 0 || samples.checked_mul(self.columns).is_none() {
            return Err(Error::invalid(Argument::Samples, "at least 1", samples));
        }
        let mut stream = Stream::new(seed, Purpose::Posterior, 0, 0);
        let normals = std::iter::repeat_with(|| {
            let (re, im) = stream.complex_normal();
            [re, im].map(|part| part * std::f64::consts::SQRT_2)
        });
        let draws: Vec<f64> = normals.flatten().take(samples * self.columns).collect();
        let average = AveragedSoftmax::new(&draws, self.columns);
        let mut probabilities = vec![0.0; self.means.len()];
        let rows = self.means.par_chunks(self.columns).zip(self.variances.par_chunks(self.columns));
        rows.zip(probabilities.par_chunks_mut(self.columns)).with_min_len(8).for_each(|((means, variances), out)| {
            let deviations: Vec<f64> = variances.iter().map(|variance| variance.max(0.0).sqrt()).collect();
            average.add(means, &deviations, out);
        });
        Ok(probabilities)
    }
}

/// What a Gaussian process for classes may be told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpOptions {
    /// The α of [`ClassTargets`].
    pub alpha: f64,
    /// The kernel variance; without one, that of the targets.
    pub variance: Option<f64>,
}

impl Default for GpOptions {
    fn default() -> Self {
        Self { alpha: 0.001, variance: None }
    }
}

fn check_positive(argument: Argument, value: f64) -> Result<f64, Error> {
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(Error::invalid(argument, "a positive number", value)) }
}

/// Gaussian process classification on a sketch, all classes from one pass over the rows.
///
/// # Formula
/// For class c with kernel variance s, Λ_c = s Φᵀdiag(1/v_c)Φ + I. As v_c takes one value v₁ for members and another v₀ for others,
/// Λ_c = (s/v₀) G + s(1/v₁ − 1/v₀) G_c + I with G = ΦᵀΦ = Σ G_c. Mean √s φᵀΛ_c⁻¹b_c + μ_c with
/// b_c = √s Φᵀdiag(1/v_c)(t − μ_c), variance s φᵀΛ_c⁻¹φ.
///
/// All classes share B = (s/v₀) G + I. Those of few rows Φ_c, where they save anything, are solved by way of these: with B = LLᵀ,
/// w = s(1/v₁ − 1/v₀), U = √w L⁻¹Φ_cᵀ, I + UᵀU = RRᵀ and T = R⁻¹Uᵀ, Λ_c⁻¹ = L⁻ᵀ(I − TᵀT)L⁻¹. As B ≤ Λ_c ≤ (v₀/v₁)B, at most
/// a factor of v₀/v₁, 10 for the default α, is lost to cancellation.
///
/// # Reference
/// Section 5.2 of the paper; Milios et al. (2018) for the targets. The identity for two noise levels is ours.
///
/// # Cost
/// D³/3 operations per class after the pass over the rows; D² per class and predicted row. Memory 4D² bytes per class. A class of few
/// rows n_c takes n_c D² + 2n_c² D operations, 2n_c D per predicted row and 8n_c D bytes instead, and all such classes together
/// D³/3, D² and 4D² more.
#[derive(Debug, Clone, PartialEq)]
pub struct GpClassifier {
    header: ClassifierHeader,
    /// Means are φᵀw + μ: weights of one class after another.
    weights: Vec<f64>,
    /// L/√s of what classes with few rows share.
    base: Option<PackedFactor>,
    factors: Vec<ClassFactor>,
}

/// What gives a class its variances.
#[derive(Debug, Clone, PartialEq)]
enum ClassFactor {
    /// The factor of Λ_c/s.
    Own(PackedFactor),
    /// What the rows of the class add to the base.
    Rows(RowUpdate),
}

impl ClassFactor {
    fn own(&self) -> Option<&PackedFactor> {
        if let Self::Own(factor) = self { Some(factor) } else { None }
    }

    fn update(&self) -> Option<&RowUpdate> {
        if let Self::Rows(update) = self { Some(update) } else { None }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassifierHeader {
    recipe: Recipe,
    rows: u64,
    alpha: f64,
    variance: f64,
    means: Vec<f64>,
    log_marginal_likelihood: f64,
    /// For every class the number of its rows, if its variances are by way of them; nothing if all classes have factors of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    updates: Vec<Option<usize>>,
}

const CLASSIFIER: &str = "gp-classifier";
const ADVICE: &str = "use a smaller kernel variance, or larger noise";

impl GpClassifier {
    /// Learns from the sums of every class.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a Gram that is not of [`Targets::ClassesApart`], a class without rows, or options that are not
    /// positive; [`Error::Singular`] if Λ_c, whose eigenvalues are at least 1, is too ill-conditioned for f64.
    pub fn fit(gram: &Gram, options: &GpOptions) -> Result<Self, Error> {
        let Targets::ClassesApart(classes) = gram.targets() else {
            let expected = "a Gram with the products of every class, Targets::ClassesApart";
            return Err(Error::invalid(Argument::Gram, expected, format!("{:?}", gram.targets())));
        };
        let labels = ClassTargets::new(gram.target_sums(), options.alpha)?;
        let scale =
            options.variance.map_or(Ok(labels.variance), |variance| check_positive(Argument::Variance, variance))?;
        let (total, sums, rows) = (gram.total(), gram.feature_sums(), gram.rows() as f64);
        let [others, members] = labels.noise;
        let weight = scale * (1.0 / members - 1.0 / others);
        let base = shared_factor_pays(gram, classes).then(|| {
            // Where rounding has made it indefinite, every class is repaired on its own.
            Cholesky::new(total.combine(scale / others, None, 1.0), "the system of all classes", ADVICE).ok()
        });
        let base = base.flatten();
        let fit_class = |class: usize| -> Result<_, Error> {
            let [outside, inside] = [0, 1].map(|y| labels.targets[y] - labels.means[class]);
            let right: Vec<f64> = gram
                .moments(class)
                .iter()
                .zip(&sums)
                .map(|(own, all)| scale.sqrt() * (inside / members * own + outside / others * (all - own)))
                .collect();
            let by_rows = base.as_ref().zip(gram.kept(class));
            let (mut solved, factor) = match by_rows.and_then(|(base, kept)| base.with_rows(kept, weight, &right)) {
                Some((solved, update)) => (solved, ClassFactor::Rows(update)),
                None => {
                    let own = gram.of_class(class);
                    let matrix = || total.combine(scale / others, Some((weight, &*own)), 1.0);
                    let factor = Cholesky::with_floor(matrix, 1.0, &format!("the system of class {class}"), ADVICE)?;
                    (factor.solved(&right), ClassFactor::Own(factor.packed(scale.sqrt())))
                }
            };
            check_finite(&solved.solution)?;
            solved.solution.iter_mut().for_each(|weight| *weight *= scale.sqrt());
            let count = gram.target_sums()[class];
            let fit = [(inside, members, count), (outside, others, rows - count)];
            let residual: f64 =
                fit.iter().map(|(target, noise, count)| count * (target * target / noise + noise.ln())).sum();
            let likelihood = -0.5 * (residual - solved.explained + solved.log_determinant + rows * LOG_TAU);
            Ok((solved.solution, factor, likelihood))
        };
        let fitted: Vec<_> = (0..classes).into_par_iter().map(fit_class).collect::<Result<_, _>>()?;
        let ranks: Vec<_> = fitted.iter().map(|(_, factor, _)| factor.update().map(RowUpdate::rows)).collect();
        let shared = ranks.iter().any(Option::is_some);
        let header = ClassifierHeader {
            recipe: gram.recipe().clone(),
            rows: gram.rows(),
            alpha: options.alpha,
            variance: scale,
            means: labels.means,
            log_marginal_likelihood: fitted.iter().map(|(_, _, likelihood)| likelihood).sum(),
            updates: if shared { ranks } else { Vec::new() },
        };
        let weights = fitted.iter().flat_map(|(weights, _, _)| weights).copied().collect();
        let base = base.filter(|_| shared).map(|base| base.packed(scale.sqrt()));
        Ok(Self { header, weights, base, factors: fitted.into_iter().map(|(_, factor, _)| factor).collect() })
    }

    /// The best of several options by the mean negative log-likelihood of other rows, and all of their likelihoods.
    ///
    /// # Errors
    /// As [`GpClassifier::fit`] and [`GpClassifier::predict`]; [`Error::Invalid`] for no options.
    pub fn select(
        gram: &Gram,
        candidates: &[GpOptions],
        features: Rows<'_, f32>,
        labels: &[u32],
    ) -> Result<(Self, Vec<f64>), Error> {
        let (mut best, mut losses) = (None, Vec::new());
        for options in candidates {
            let model = Self::fit(gram, options)?;
            let probabilities = model.predict(features)?.probabilities(POSTERIOR_SAMPLES, 0)?;
            let loss = mean_negative_log_likelihood(&probabilities, labels)?;
            if losses.iter().all(|&other| loss < other) {
                best = Some(model);
            }
            losses.push(loss);
        }
        Ok((best.ok_or_else(|| Error::invalid(Argument::Candidates, "at least one", 0))?, losses))
    }

    /// Means and variances of the classes' latent functions.
    ///
    /// # Errors
    /// [`Error::Invalid`] for features of another width, [`Error::NotFinite`].
    pub fn predict(&self, features: Rows<'_, f32>) -> Result<GpPrediction, Error> {
        check_features(features, self.weights.len() / self.header.means.len())?;
        let updates: Vec<_> = self.factors.iter().filter_map(ClassFactor::update).collect();
        let (shared, own) = rayon::join(
            || self.base.as_ref().map_or_else(Vec::new, |base| base.variances(features, &updates)),
            || -> Vec<_> {
                let own = self.factors.par_iter().map(ClassFactor::own);
                own.map(|factor| factor.map(|factor| factor.variances(features, &[]).swap_remove(0))).collect()
            },
        );
        let mut shared = shared.into_iter().skip(1);
        let variances: Vec<_> = own.into_iter().filter_map(|own| own.or_else(|| shared.next())).collect();
        Ok(prediction(features, &self.weights, &self.header.means, &variances))
    }

    /// Means alone, without the D² operations per row and class of variances.
    ///
    /// # Errors
    /// As [`GpClassifier::predict`].
    pub fn means(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        check_features(features, self.weights.len() / self.header.means.len())?;
        Ok(linear(features, &self.weights, &self.header.means))
    }

    /// How rows become features.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    /// The number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.header.means.len()
    }

    /// α and the kernel variance.
    #[must_use]
    pub fn options(&self) -> GpOptions {
        GpOptions { alpha: self.header.alpha, variance: Some(self.header.variance) }
    }

    /// The logarithm of the marginal likelihood of the transformed labels, summed over classes.
    #[must_use]
    pub fn log_marginal_likelihood(&self) -> f64 {
        self.header.log_marginal_likelihood
    }

    /// The model as a file.
    #[must_use]
    pub fn to_archive(&self) -> Archive {
        let mut archive = Archive::new(CLASSIFIER, &self.header).with_f64("weights", self.weights.clone());
        if let Some(base) = &self.base {
            archive = PackedFactor::save("base", [base], archive);
            archive = RowUpdate::save(self.factors.iter().filter_map(ClassFactor::update), archive);
        }
        PackedFactor::save("factors", self.factors.iter().filter_map(ClassFactor::own), archive)
    }

    /// What [`GpClassifier::to_archive`] made.
    ///
    /// # Errors
    /// [`Error::Archive`].
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let header: ClassifierHeader = archive.header(CLASSIFIER)?;
        let (dim, classes) = (header.recipe.spec.features, header.means.len());
        check_columns(classes)?;
        let length = dim.saturating_mul(classes);
        let weights = archive.take_f64("weights", length)?;
        if !header.updates.is_empty() && header.updates.len() != classes {
            return Err(Error::Archive(FileFault::Content(format!(
                "updates of {} classes, not of {classes}",
                header.updates.len()
            ))));
        }
        let rows: Vec<usize> = header.updates.iter().flatten().copied().collect();
        let mut own = PackedFactor::load(&mut archive, "factors", classes - rows.len(), dim)?.into_iter();
        if rows.is_empty() {
            return Ok(Self { weights, base: None, factors: own.map(ClassFactor::Own).collect(), header });
        }
        let base = PackedFactor::load(&mut archive, "base", 1, dim)?.pop();
        let mut updates = RowUpdate::load(&mut archive, &rows, dim)?.into_iter();
        let factors = header.updates.iter().filter_map(|rows| match rows {
            Some(_) => updates.next().map(ClassFactor::Rows),
            None => own.next().map(ClassFactor::Own),
        });
        Ok(Self { weights, base, factors: factors.collect(), header })
    }
}

/// Whether the factor that classes with kept rows share, and these rows, take less memory, and prediction fewer operations, than a
/// factor for each of these classes.
fn shared_factor_pays(gram: &Gram, classes: usize) -> bool {
    let dim = gram.recipe().spec.features;
    let kept: Vec<usize> = (0..classes).filter_map(|class| gram.kept(class)).map(|kept| kept.len() / dim).collect();
    dim + 2 * kept.iter().sum::<usize>() < kept.len() * dim
}

fn check_features(features: Rows<'_, f32>, dim: usize) -> Result<(), Error> {
    if features.columns() != dim {
        return Err(Error::invalid(Argument::Features, format!("{dim} columns"), features.columns()));
    }
    Input::from(features).check_finite(Argument::Features)
}

/// Means and variances; the latter of every column, or those of all.
fn prediction(features: Rows<'_, f32>, weights: &[f64], means: &[f64], variances: &[Vec<f64>]) -> GpPrediction {
    let columns = means.len();
    let at = |at: usize| variances[at % columns % variances.len()][at / columns];
    let variances = (0..features.rows() * columns).map(at).collect();
    GpPrediction { columns, means: linear(features, weights, means), variances }
}

/// Gaussian process regression on a sketch, with noise of one variance.
///
/// # Formula
/// Λ = (s/σ²) ΦᵀΦ + I; mean ȳ + (s/σ²) φᵀΛ⁻¹Φᵀ(y − ȳ), variance s φᵀΛ⁻¹φ. Several columns of targets share s and σ².
/// Where s or σ² is not given, both maximise the marginal likelihood: with the eigenvalues e of ΦᵀΦ and r = s/σ², the best σ² is
/// (1/n)(‖y − ȳ‖² − Σ r z²/(1 + re)) for z = QᵀΦᵀ(y − ȳ), so that the search is over r alone.
///
/// # Cost
/// D³/3 operations after the pass over the rows, some 9D³ with a search; D² per predicted row.
#[derive(Debug, Clone, PartialEq)]
pub struct GpRegressor {
    header: RegressorHeader,
    weights: Vec<f64>,
    factor: PackedFactor,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegressorHeader {
    recipe: Recipe,
    rows: u64,
    noise: f64,
    variance: f64,
    means: Vec<f64>,
    log_marginal_likelihood: f64,
}

const REGRESSOR: &str = "gp-regressor";

/// The kernel variance s and the variance σ² of the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variances {
    /// Of the kernel.
    pub kernel: f64,
    /// Of the noise.
    pub noise: f64,
}

impl GpRegressor {
    /// Learns from sums; without variances, with those of the largest marginal likelihood.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a Gram of classes, fewer than two rows, variances that are not positive, or targets that do not
    /// vary; [`Error::Singular`] if Λ is too ill-conditioned for f64.
    pub fn fit(gram: &Gram, variances: Option<Variances>) -> Result<Self, Error> {
        let Targets::Values(columns) = gram.targets() else {
            return Err(Error::invalid(
                Argument::Gram,
                "a Gram of numbers, Targets::Values",
                format!("{:?}", gram.targets()),
            ));
        };
        let rows = gram.rows() as f64;
        if rows < 2.0 {
            return Err(Error::invalid(Argument::Rows, "at least 2", gram.rows()));
        }
        let means: Vec<f64> = gram.target_sums().iter().map(|sum| sum / rows).collect();
        let spread: Vec<f64> = (gram.target_squares().iter().zip(&means))
            .map(|(squares, mean)| (squares - rows * mean * mean).max(0.0))
            .collect();
        let sums = gram.feature_sums();
        let centred = |column: usize| -> Vec<f64> {
            gram.moments(column).iter().zip(&sums).map(|(moment, sum)| moment - means[column] * sum).collect()
        };
        let Variances { kernel, noise } = match variances {
            Some(Variances { kernel, noise }) => Variances {
                kernel: check_positive(Argument::Kernel, kernel)?,
                noise: check_positive(Argument::Noise, noise)?,
            },
            None => {
                if !spread.iter().any(|&spread| spread > 0.0) {
                    return Err(Error::invalid(
                        Argument::Labels,
                        "targets that vary",
                        "equal ones; give the variances",
                    ));
                }
                let moments: Vec<_> = (0..columns).map(centred).collect();
                best_variances(&Eigen::new(gram.total(), None)?, &moments, &spread, rows)
            }
        };
        let matrix = || gram.total().combine(kernel / noise, None, 1.0);
        let factor = Cholesky::with_floor(matrix, 1.0, "the system", ADVICE)?;
        let (mut weights, mut explained) = (Vec::new(), 0.0);
        for column in 0..columns {
            let [half, solution] = factor.solve(&centred(column));
            check_finite(&solution)?;
            explained += half.iter().map(|value| value * value).sum::<f64>() * kernel / (noise * noise);
            weights.extend(solution.iter().map(|weight| weight * kernel / noise));
        }
        let residual = spread.iter().sum::<f64>() / noise - explained;
        let each = factor.log_determinant() + rows * (noise.ln() + LOG_TAU);
        let header = RegressorHeader {
            recipe: gram.recipe().clone(),
            rows: gram.rows(),
            noise,
            variance: kernel,
            means,
            log_marginal_likelihood: -0.5 * (residual + columns as f64 * each),
        };
        Ok(Self { header, weights, factor: factor.packed(kernel.sqrt()) })
    }

    /// Means and variances of the latent functions; those of observations have [`Variances::noise`] more.
    ///
    /// # Errors
    /// [`Error::Invalid`] for features of another width, [`Error::NotFinite`].
    pub fn predict(&self, features: Rows<'_, f32>) -> Result<GpPrediction, Error> {
        check_features(features, self.weights.len() / self.header.means.len())?;
        let variances = self.factor.variances(features, &[]);
        Ok(prediction(features, &self.weights, &self.header.means, &variances))
    }

    /// Means alone.
    ///
    /// # Errors
    /// As [`GpRegressor::predict`].
    pub fn means(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        check_features(features, self.weights.len() / self.header.means.len())?;
        Ok(linear(features, &self.weights, &self.header.means))
    }

    /// How rows become features.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    /// Columns of targets.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.header.means.len()
    }

    /// The variances of kernel and noise.
    #[must_use]
    pub fn variances(&self) -> Variances {
        Variances { kernel: self.header.variance, noise: self.header.noise }
    }

    /// The logarithm of the marginal likelihood, summed over columns of targets.
    #[must_use]
    pub fn log_marginal_likelihood(&self) -> f64 {
        self.header.log_marginal_likelihood
    }

    /// The model as a file.
    #[must_use]
    pub fn to_archive(&self) -> Archive {
        let archive = Archive::new(REGRESSOR, &self.header).with_f64("weights", self.weights.clone());
        PackedFactor::save("factors", [&self.factor], archive)
    }

    /// What [`GpRegressor::to_archive`] made.
    ///
    /// # Errors
    /// [`Error::Archive`].
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let header: RegressorHeader = archive.header(REGRESSOR)?;
        let dim = header.recipe.spec.features;
        check_columns(header.means.len())?;
        let weights = archive.take_f64("weights", dim.saturating_mul(header.means.len()))?;
        let factor = PackedFactor::load(&mut archive, "factors", 1, dim)?.swap_remove(0);
        Ok(Self { weights, factor, header })
    }
}

/// The variances of the largest marginal likelihood: over r = s/σ² by a grid and then golden sections, σ² in closed form.
fn best_variances(eigen: &Eigen, moments: &[Vec<f64>], spread: &[f64], rows: f64) -> Variances {
    let columns = moments.len() as f64;
    let mut squares: Vec<f64> =
        moments.iter().map(|moments| eigen.rotate(moments)).fold(vec![0.0; eigen.values.len()], |sums, rotated| {
            sums.iter().zip(rotated).map(|(a, b)| a + b * b).collect()
        });
    // Where features do not vary, there is nothing to explain but rounding, and a large r would explain everything by that.
    squares.iter_mut().zip(&eigen.values).filter(|(_, e)| **e == 0.0).for_each(|(z, _)| *z = 0.0);
    let total: f64 = spread.iter().sum();
    // Noise below the rounding of the features is none of theirs.
    let least = 1e-12 * total / (rows * columns);
    let noise_at = |ratio: f64| {
        let explained: f64 = squares.iter().zip(&eigen.values).map(|(z, e)| ratio * z / (1.0 + ratio * e)).sum();
        ((total - explained) / (rows * columns)).max(least)
    };
    // −2/columns times the logarithm of the likelihood, but for constants.
    let loss = |log_ratio: f64| {
        let ratio = log_ratio.exp();
        rows * noise_at(ratio).ln() + eigen.values.iter().map(|e| (ratio * e).ln_1p()).sum::<f64>()
    };
    let largest = eigen.values.last().copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
    let centre = -largest.ln();
    let (from, to, steps) = (centre - 10.0, centre + 30.0, 80_u32);
    let step = (to - from) / f64::from(steps);
    let grid = (0..=steps).map(|i| from + f64::from(i) * step);
    let best = grid.min_by(|a, b| loss(*a).total_cmp(&loss(*b))).unwrap_or(centre);
    let (mut low, mut high) = (best - step, best + step);
    let golden = (5_f64.sqrt() - 1.0) / 2.0;
    while high - low > 1e-6 {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if loss(left) < loss(right) { high = right } else { low = left }
    }
    let ratio = ((low + high) / 2.0).exp();
    let noise = noise_at(ratio);
    Variances { kernel: ratio * noise, noise }
}

/// A Gaussian process on the exact kernel, for few rows: what those on sketches approximate.
///
/// # Formula
/// With K scaled by the kernel variance and noise variances V: mean μ + k*ᵀ(K + V)⁻¹(t − μ), variance k** − k*ᵀ(K + V)⁻¹k*.
///
/// # Cost
/// n³/3 operations and 8n² bytes per class.
#[derive(Debug, Clone)]
pub struct ExactGp {
    /// One per column, or one for all.
    factors: Vec<Cholesky>,
    solutions: Vec<Vec<f64>>,
    means: Vec<f64>,
    variance: f64,
    log_marginal_likelihood: f64,
}

impl ExactGp {
    /// Classification; `kernel` is the n × n matrix of [`kernel_matrix`](crate::theory::kernel_matrix).
    ///
    /// # Errors
    /// As [`GpClassifier::fit`].
    pub fn classes(kernel: &[f64], labels: &[u32], classes: usize, options: &GpOptions) -> Result<Self, Error> {
        check_classes(labels, classes)?;
        let mut counts = vec![0.0; classes];
        labels.iter().for_each(|&label| counts[label as usize] += 1.0);
        let transform = ClassTargets::new(&counts, options.alpha)?;
        let variance =
            options.variance.map_or(Ok(transform.variance), |variance| check_positive(Argument::Variance, variance))?;
        let columns: Vec<(Vec<f64>, Vec<f64>)> = (0..classes)
            .map(|class| {
                let own = |label: &u32| usize::from(*label as usize == class);
                let targets = labels.iter().map(|label| transform.targets[own(label)] - transform.means[class]);
                (targets.collect(), labels.iter().map(|label| transform.noise[own(label)]).collect())
            })
            .collect();
        Self::fit(kernel, variance, &columns, transform.means)
    }

    /// Regression of one column of targets.
    ///
    /// # Errors
    /// As [`GpRegressor::fit`].
    pub fn values(kernel: &[f64], targets: &[f64], variances: Variances) -> Result<Self, Error> {
        let variance = check_positive(Argument::Kernel, variances.kernel)?;
        let noise = check_positive(Argument::Noise, variances.noise)?;
        let mean = targets.iter().sum::<f64>() / targets.len() as f64;
        let centred = targets.iter().map(|target| target - mean).collect();
        Self::fit(kernel, variance, &[(centred, vec![noise; targets.len()])], vec![mean])
    }

    fn fit(kernel: &[f64], variance: f64, columns: &[(Vec<f64>, Vec<f64>)], means: Vec<f64>) -> Result<Self, Error> {
        let rows = columns[0].0.len();
        if rows == 0 || rows.checked_mul(rows) != Some(kernel.len()) {
            return Err(Error::invalid(Argument::Kernel, format!("{rows} x {rows} numbers"), kernel.len()));
        }
        let (mut factors, mut solutions, mut likelihood) = (Vec::new(), Vec::new(), 0.0);
        for (targets, noise) in columns {
            let noise_at = |i: usize, j: usize| if i == j { noise[i] } else { 0.0 };
            let matrix = Mat::from_fn(rows, rows, |i, j| variance * kernel[i * rows + j] + noise_at(i, j));
            let factor = Cholesky::new(matrix, "the kernel matrix with noise", ADVICE)?;
            let [half, solution] = factor.solve(targets);
            let fit: f64 = half.iter().map(|value| value * value).sum();
            likelihood -= 0.5 * (fit + factor.log_determinant() + rows as f64 * LOG_TAU);
            factors.push(factor);
            solutions.push(solution);
        }
        Ok(Self { factors, solutions, means, variance, log_marginal_likelihood: likelihood })
    }

    /// Predictions of rows: `cross` is their kernel with the n rows learnt from, row by row, and `own` that with themselves.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of kernel values.
    pub fn predict(&self, cross: &[f64], own: &[f64]) -> Result<GpPrediction, Error> {
        let (rows, columns) = (self.solutions[0].len(), self.means.len());
        if own.len().checked_mul(rows) != Some(cross.len()) {
            return Err(Error::invalid(Argument::Cross, format!("{} x {rows} numbers", own.len()), cross.len()));
        }
        let (mut means, mut variances) = (vec![0.0; own.len() * columns], vec![0.0; own.len() * columns]);
        for column in 0..columns {
            let right = Mat::from_fn(rows, own.len(), |i, row| self.variance * cross[row * rows + i]);
            let explained = self.factors[column].norms(right);
            for (row, kernel) in cross.chunks(rows).enumerate() {
                let fit: f64 = kernel.iter().zip(&self.solutions[column]).map(|(k, weight)| k * weight).sum();
                means[row * columns + column] = self.means[column] + self.variance * fit;
                variances[row * columns + column] = self.variance * own[row] - explained[row];
            }
        }
        Ok(GpPrediction { columns, means, variances })
    }

    /// The logarithm of the marginal likelihood, summed over classes.
    #[must_use]
    pub fn log_marginal_likelihood(&self) -> f64 {
        self.log_marginal_likelihood
    }
}

/// The class of the largest of each row's numbers.
#[must_use]
pub fn largest(values: &[f64], classes: usize) -> Vec<u32> {
    let of_row = |row: &[f64]| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        u32::try_from(best.map_or(0, |(class, _)| class)).unwrap_or(u32::MAX)
    };
    values.chunks(classes.max(1)).map(of_row).collect()
}

/// The mean of −log of the probability given to the true class.
///
/// # Errors
/// [`Error::Invalid`] for no rows, or labels that do not fit the probabilities.
pub fn mean_negative_log_likelihood(probabilities: &[f64], labels: &[u32]) -> Result<f64, Error> {
    if labels.is_empty() || !probabilities.len().is_multiple_of(labels.len()) {
        let expected = format!("one for each row of {} probabilities", probabilities.len());
        return Err(Error::invalid(Argument::Labels, expected, labels.len()));
    }
    let classes = probabilities.len() / labels.len();
    check_classes(labels, classes)?;
    let rows = probabilities.chunks(classes).zip(labels);
    // A probability that rounds to zero is not infinitely surprising.
    Ok(rows.map(|(row, &label)| -row[label as usize].max(f64::MIN_POSITIVE).ln()).sum::<f64>() / labels.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Labels;
    use crate::model::gram::tests::problem;

    const DIM: usize = 66;
    const CLASSES: usize = 6;
    /// Classes of at most 24 rows are kept, four of them.
    const KNOWN: usize = 130;

    /// Features of 150 rows times a number, and their classes; if they are redundant, with six that differ and their multiples.
    fn features(redundant: bool, factor: f32) -> (Recipe, Vec<f32>, Vec<u32>) {
        let (recipe, mut features, labels) = problem(150, DIM, 6);
        for row in features.chunks_mut(DIM) {
            let first: [f32; 6] = std::array::from_fn(|i| row[i]);
            for (i, value) in row.iter_mut().enumerate() {
                *value = factor * if redundant { first[i % 6] * (1.0 + (i / 6) as f32 / 7.0) } else { *value };
            }
        }
        (recipe, features, labels)
    }

    fn gram(recipe: &Recipe, features: &[f32], labels: &[u32]) -> Gram {
        let mut gram = Gram::new(recipe, Targets::ClassesApart(CLASSES)).unwrap();
        let known = Rows::new(&features[..KNOWN * DIM], KNOWN, DIM).unwrap();
        gram.update(known, Labels::Classes(&labels[..KNOWN])).unwrap();
        gram
    }

    fn others(features: &[f32]) -> Rows<'_, f32> {
        Rows::new(&features[KNOWN * DIM..], 150 - KNOWN, DIM).unwrap()
    }

    /// The largest difference of means, variances and likelihoods, absolute of numbers below one and relative of others.
    fn difference(got: (&GpPrediction, f64), want: (&GpPrediction, f64)) -> f64 {
        let numbers = |(prediction, likelihood): (&GpPrediction, f64)| {
            [&prediction.means[..], &prediction.variances, &[likelihood]].concat()
        };
        let (got, want) = (numbers(got), numbers(want));
        assert_eq!(got.len(), want.len());
        got.iter().zip(want).map(|(got, want)| (got - want).abs() / want.abs().max(1.0)).fold(0.0, f64::max)
    }

    /// By way of kept rows, by factors of their own and by the kernel matrix: one process, on features that are scaled and
    /// that are not, that are independent and that repeat each other.
    #[test]
    fn classes_are_the_same_by_rows_and_by_sums() {
        for (redundant, factor, of_sums, of_kernel) in
            [(false, 1.0, 1e-11, 1e-11), (false, 1e4, 1e-11, 1e-3), (true, 1.0, 1e-10, 1e-10), (true, 1e4, 1e-6, 1e-3)]
        {
            let (recipe, features, labels) = features(redundant, factor);
            let gram = gram(&recipe, &features, &labels);
            let phi = |row: usize, i: usize| f64::from(features[row * DIM + i]);
            let kernel = |(a, b): (usize, usize)| (0..DIM).map(|i| phi(a, i) * phi(b, i)).sum::<f64>();
            let with_known = |rows: std::ops::Range<usize>| -> Vec<f64> {
                rows.flat_map(|a| (0..KNOWN).map(move |b| (a, b))).map(kernel).collect()
            };
            let own: Vec<f64> = (KNOWN..150).map(|row| kernel((row, row))).collect();
            for options in [GpOptions::default(), GpOptions { alpha: 1e-8, variance: Some(2.0) }] {
                let model = GpClassifier::fit(&gram, &options).unwrap();
                let direct = GpClassifier::fit(&gram.folded(), &options).unwrap();
                assert_eq!(model.header.updates.iter().flatten().count(), 4, "{:?}", model.header.updates);
                assert!(direct.base.is_none() && direct.header.updates.is_empty());
                let exact = ExactGp::classes(&with_known(0..KNOWN), &labels[..KNOWN], CLASSES, &options).unwrap();
                let of_exact = exact.predict(&with_known(KNOWN..150), &own).unwrap();
                let [got, of_direct] = [&model, &direct].map(|model| model.predict(others(&features)).unwrap());
                let got = (&got, model.log_marginal_likelihood());
                let [from_sums, from_kernel] = [
                    difference(got, (&of_direct, direct.log_marginal_likelihood())),
                    difference(got, (&of_exact, exact.log_marginal_likelihood())),
                ];
                let found = format!("{redundant} {factor}: {from_sums:e} {from_kernel:e}");
                assert!(from_sums < of_sums && from_kernel < of_kernel, "{found}");
                assert_eq!(model.means(others(&features)).unwrap(), got.0.means);
            }
        }
        // What f64 cannot hold is refused, as by factors of their own.
        let (recipe, features, labels) = features(true, 1e9);
        let error = GpClassifier::fit(&gram(&recipe, &features, &labels), &GpOptions::default()).unwrap_err();
        assert!(error.to_string().contains("the system of class"), "{error}");
    }

    /// One class of few rows among others has a factor of its own.
    #[test]
    fn few_rows_are_used_only_where_that_saves_something() {
        let (recipe, features, mut labels) = features(false, 1.0);
        labels.iter_mut().zip(0..).for_each(|(label, row)| *label = if row < 3 { 0 } else { row % 5 + 1 });
        let gram = gram(&recipe, &features, &labels);
        assert!(gram.kept(0).is_some() && gram.kept(1).is_none());
        let model = GpClassifier::fit(&gram, &GpOptions::default()).unwrap();
        assert!(model.base.is_none() && model.header.updates.is_empty());
        let direct = GpClassifier::fit(&gram.folded(), &GpOptions::default()).unwrap();
        let [got, want] = [&model, &direct].map(|model| model.predict(others(&features)).unwrap());
        assert!(difference((&got, 0.0), (&want, 0.0)) < 1e-11);
    }

    #[test]
    fn threads_and_files_change_nothing() {
        let (recipe, features, labels) = features(false, 1.0);
        let learn = || {
            let model = GpClassifier::fit(&gram(&recipe, &features, &labels), &GpOptions::default()).unwrap();
            let prediction = model.predict(others(&features)).unwrap();
            (model, prediction)
        };
        let (model, prediction) = learn();
        let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(threads.install(learn), (model.clone(), prediction.clone()));
        let read = GpClassifier::from_archive(Archive::from_bytes(&model.to_archive().to_bytes()).unwrap()).unwrap();
        assert_eq!((read.predict(others(&features)).unwrap(), read), (prediction, model.clone()));
        let refused = |change: &dyn Fn(&mut GpClassifier)| {
            let mut changed = model.clone();
            change(&mut changed);
            GpClassifier::from_archive(changed.to_archive()).unwrap_err().to_string()
        };
        let first = model.header.updates.iter().position(Option::is_some).unwrap();
        assert!(refused(&|model| model.base = None).contains("\"base\" is missing"));
        assert!(refused(&|model| model.header.updates.truncate(5)).contains("5 classes, not of 6"));
        assert!(refused(&|model| model.header.updates.clear()).contains("\"factors\" has"));
        assert!(refused(&|model| model.header.updates[first] = None).contains("\"factors\" has"));
        assert!(refused(&|model| model.header.updates[first] = Some(1)).contains("\"updates\" has"));
        assert!(refused(&|model| model.header.updates[first] = Some(usize::MAX)).contains("any memory"));
        let long = RowUpdate::load(&mut Archive::new("x", &()).with_f64("updates", vec![0.8; 6]), &[1, 2], 2);
        assert!(long.unwrap_err().to_string().contains("more than the variance"));
    }
}
