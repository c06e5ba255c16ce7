//! Gaussian process classification.

use std::sync::Arc;

use argand::{Advice, Argument, Error, FileFault, Rows};
use argand_linalg::RankUpdate;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::labels::Rule;
use super::prediction::{GpPrediction, POSTERIOR_SAMPLES, prediction};
use super::targets::ClassTargets;
use super::{LOG_TAU, check_positive};
use crate::archive::{Archive, check_columns};
use crate::engine::{Engine, OnEngine};
use crate::factor::{self, PackedFactor, check_features, check_finite, linear};
use crate::gram::{Gram, Targets};
use crate::model::{Model, Predicts, Setting};
use crate::recipe::Recipe;

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
    pub(super) header: ClassifierHeader,
    /// Means are φᵀw + μ: weights of one class after another.
    weights: Vec<f64>,
    /// L/√s of what classes with few rows share.
    pub(super) base: Option<PackedFactor>,
    factors: Vec<ClassFactor>,
    on: OnEngine,
}

/// What gives a class its variances.
#[derive(Debug, Clone, PartialEq)]
enum ClassFactor {
    /// The factor of Λ_c/s.
    Own(PackedFactor),
    /// What the rows of the class add to the base.
    Rows(RankUpdate),
}

impl ClassFactor {
    fn own(&self) -> Option<&PackedFactor> {
        if let Self::Own(factor) = self { Some(factor) } else { None }
    }

    fn update(&self) -> Option<&RankUpdate> {
        if let Self::Rows(update) = self { Some(update) } else { None }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassifierHeader {
    recipe: Recipe,
    rows: u64,
    alpha: f64,
    variance: f64,
    means: Vec<f64>,
    log_marginal_likelihood: f64,
    /// For every class the number of its rows, if its variances are by way of them; nothing if all classes have factors of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) updates: Vec<Option<usize>>,
}

pub(crate) const CLASSIFIER: &str = "gp-classifier";

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
            factor::cholesky(total.combine(scale / others, None, 1.0), "the system of all classes", Advice::Variances)
                .ok()
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
                    let there = match gram.engine() {
                        Some(engine) => {
                            let packed = total.combine_packed(scale / others, weight, &own, 1.0);
                            PackedFactor::on(&**engine, gram.recipe().spec.features, packed)?
                        }
                        None => None,
                    };
                    if let Some(factor) = there {
                        (factor.solved(&right), ClassFactor::Own(factor.divided(scale.sqrt())))
                    } else {
                        let matrix = || total.combine(scale / others, Some((weight, &*own)), 1.0);
                        let what = format!("the system of class {class}");
                        let factor = factor::cholesky_with_floor(matrix, 1.0, &what, Advice::Variances)?;
                        (factor.solved(&right), ClassFactor::Own(PackedFactor::new(&factor, scale.sqrt())))
                    }
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
        let ranks: Vec<_> = fitted.iter().map(|(_, factor, _)| factor.update().map(RankUpdate::rank)).collect();
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
        let base = base.filter(|_| shared).map(|base| PackedFactor::new(&base, scale.sqrt()));
        let factors = fitted.into_iter().map(|(_, factor, _)| factor).collect();
        Ok(Self { header, weights, base, factors, on: OnEngine::new(gram.engine().cloned()) })
    }

    /// The model of the lowest loss among several options, and all losses. `loss` says how good a model is on other rows, for
    /// example [`Score::loss`](crate::Score::loss) of these.
    ///
    /// # Errors
    /// As [`GpClassifier::fit`], those of `loss`, and [`Error::Invalid`] for no options.
    pub fn select<E: From<Error>>(
        gram: &Gram,
        candidates: &[GpOptions],
        mut loss: impl FnMut(&Self) -> Result<f64, E>,
    ) -> Result<(Self, Vec<f64>), E> {
        let (mut best, mut losses) = (None, Vec::new());
        for options in candidates {
            let model = Self::fit(gram, options)?;
            let loss = loss(&model)?;
            if losses.iter().all(|&other| loss < other) {
                best = Some(model);
            }
            losses.push(loss);
        }
        let best = best.ok_or_else(|| Error::invalid(Argument::Candidates, "at least one", 0))?;
        Ok((best, losses))
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
            || {
                let own: Vec<_> = self.factors.iter().filter_map(ClassFactor::own).collect();
                self.on.squared_norms(&own, features)
            },
        );
        let (mut shared, mut own) = (shared.into_iter().skip(1), own?.into_iter());
        let of_class = |factor: &ClassFactor| if factor.own().is_some() { own.next() } else { shared.next() };
        let variances: Vec<_> = self.factors.iter().filter_map(of_class).collect();
        Ok(prediction(features, &self.weights, &self.header.means, &variances))
    }

    /// The most probable class of every row: that of the largest of the probabilities that
    /// [`GpPrediction::probabilities`] gives. Variances are computed where they may decide.
    ///
    /// # Formula
    /// B ≤ Λ_c ≤ (v₀/v₁)B for every class c, so that no two of its variances differ by more than a factor of v₀/v₁: one of them bounds
    /// the others, and these bound the probabilities.
    ///
    /// # Cost
    /// D² operations per row, and D² more for every class that is close; those of [`GpClassifier::predict`] at most.
    ///
    /// # Errors
    /// As [`GpClassifier::predict`].
    pub fn labels(&self, features: Rows<'_, f32>) -> Result<Vec<u32>, Error> {
        // A shared factor and engines give the variances of all classes at little more cost than that of one.
        if self.base.is_some() || self.on.engine.is_some() {
            return self.predict(features)?.labels(POSTERIOR_SAMPLES, 0);
        }
        let means = self.means(features)?;
        let [others, members] = ClassTargets::noise_of(self.header.alpha);
        let own: Vec<_> = self.factors.iter().filter_map(ClassFactor::own).collect();
        let variances_of = |class: usize, rows: &[usize]| -> Result<Vec<f64>, Error> {
            let some: Vec<f32> = rows.iter().flat_map(|&row| features.row(row)).copied().collect();
            let some = Rows::new(&some, rows.len(), features.columns())?.known_finite();
            Ok(own[class].variances(some, &[]).swap_remove(0))
        };
        Rule::new(self.classes(), POSTERIOR_SAMPLES, 0)?.labels(&means, others / members, variances_of)
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
            archive = factor::save_updates(self.factors.iter().filter_map(ClassFactor::update), archive);
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
            let factors = own.map(ClassFactor::Own).collect();
            return Ok(Self { weights, base: None, factors, header, on: OnEngine::default() });
        }
        let base = PackedFactor::load(&mut archive, "base", 1, dim)?.pop();
        let mut updates = factor::load_updates(&mut archive, &rows, dim)?.into_iter();
        let factors = header.updates.iter().filter_map(|rows| match rows {
            Some(_) => updates.next().map(ClassFactor::Rows),
            None => own.next().map(ClassFactor::Own),
        });
        Ok(Self { weights, base, factors: factors.collect(), header, on: OnEngine::default() })
    }
}

/// Whether the factor that classes with kept rows share, and these rows, take less memory, and prediction fewer operations, than a
/// factor for each of these classes.
fn shared_factor_pays(gram: &Gram, classes: usize) -> bool {
    let dim = gram.recipe().spec.features;
    let kept: Vec<usize> = (0..classes).filter_map(|class| gram.kept(class)).map(|kept| kept.len() / dim).collect();
    dim + 2 * kept.iter().sum::<usize>() < kept.len() * dim
}

impl Model for GpClassifier {
    fn kind(&self) -> &'static str {
        CLASSIFIER
    }

    fn name(&self) -> &'static str {
        "gaussian process"
    }

    fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    fn predicts(&self) -> Predicts {
        Predicts::Classes(self.classes())
    }

    fn has_probabilities(&self) -> bool {
        true
    }

    fn settings(&self) -> Vec<(&'static str, Setting)> {
        vec![("alpha", self.header.alpha.into()), ("variance", self.header.variance.into())]
    }

    fn evidence(&self) -> Option<f64> {
        Some(self.log_marginal_likelihood())
    }

    fn scores(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.means(features)
    }

    fn predict(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.predict(features)?.probabilities(POSTERIOR_SAMPLES, 0)
    }

    fn labels(&self, features: Rows<'_, f32>) -> Result<Vec<u32>, Error> {
        self.labels(features)
    }

    fn latent(&self, features: Rows<'_, f32>) -> Result<Option<GpPrediction>, Error> {
        self.predict(features).map(Some)
    }

    fn to_archive(&self) -> Archive {
        self.to_archive()
    }

    fn run_on(&mut self, engine: &Arc<dyn Engine>) {
        self.on = OnEngine::new(Some(Arc::clone(engine)));
    }
}
