//! Gaussian process regression.

use std::sync::Arc;

use argand::{Advice, Argument, Error, Rows};
use argand_linalg::Eigen;
use serde::{Deserialize, Serialize};

use super::prediction::{GpPrediction, prediction};
use super::{LOG_TAU, check_positive};
use crate::archive::{Archive, check_columns};
use crate::engine::{Engine, OnEngine};
use crate::factor::{self, PackedFactor, check_features, check_finite, linear};
use crate::gram::{Gram, Targets};
use crate::model::{Model, Predicts, Setting};
use crate::recipe::Recipe;

/// Gaussian process regression on a sketch, with noise of one variance.
///
/// # Formula
/// Λ = (s/σ²) ΦᵀΦ + I; mean ȳ + (s/σ²) φᵀΛ⁻¹Φᵀ(y − ȳ), variance s φᵀΛ⁻¹φ. Several columns of targets share s and σ².
/// What is not given of s and σ² maximises the marginal likelihood: with the eigenvalues e of ΦᵀΦ and r = s/σ², the best σ² is
/// (1/n)(‖y − ȳ‖² − Σ z²/e + Σ (z²/e)/(1 + re)) for z = QᵀΦᵀ(y − ȳ), so that the search is over r alone.
///
/// # Cost
/// D³/3 operations after the pass over the rows, some 9D³ with a search; D² per predicted row.
#[derive(Debug, Clone, PartialEq)]
pub struct GpRegressor {
    header: RegressorHeader,
    weights: Vec<f64>,
    factor: PackedFactor,
    on: OnEngine,
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

pub(crate) const REGRESSOR: &str = "gp-regressor";

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
    /// [`Error::Invalid`] for a Gram of classes, fewer than two rows, variances that are not positive, targets too large for their
    /// squares, or, where variances are not given, targets that do not vary and features of zeros; [`Error::Singular`] if Λ is too ill-conditioned for f64.
    pub fn fit(gram: &Gram, variances: Option<Variances>) -> Result<Self, Error> {
        Self::fit_given(gram, variances.map(|given| given.kernel), variances.map(|given| given.noise))
    }

    /// As [`GpRegressor::fit`], where either variance may be given: the other then maximises the marginal likelihood.
    ///
    /// # Errors
    /// As [`GpRegressor::fit`].
    pub fn fit_given(gram: &Gram, kernel: Option<f64>, noise: Option<f64>) -> Result<Self, Error> {
        let kernel = kernel.map(|kernel| check_positive(Argument::Kernel, kernel)).transpose()?;
        let noise = noise.map(|noise| check_positive(Argument::Noise, noise)).transpose()?;
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
        let spread = gram.target_spreads();
        let too_large = || {
            let expected = "targets whose squares, divided by the noise, can be summed in f64";
            Error::invalid(Argument::Labels, expected, "larger ones; scale them")
        };
        if !spread.iter().sum::<f64>().is_finite() {
            return Err(too_large());
        }
        let sums = gram.feature_sums();
        let centred = |column: usize| -> Vec<f64> {
            gram.moments(column).iter().zip(&sums).map(|(moment, sum)| moment - means[column] * sum).collect()
        };
        let Variances { kernel, noise } = match (kernel, noise) {
            (Some(kernel), Some(noise)) => Variances { kernel, noise },
            _ => {
                if !spread.iter().any(|&spread| spread > 0.0) {
                    return Err(Error::invalid(
                        Argument::Labels,
                        "targets that vary",
                        "equal ones; give the variances",
                    ));
                }
                let eigen = factor::eigen(gram.total(), None)?;
                if !eigen.values.iter().any(|&value| value > 0.0) {
                    return Err(Error::invalid(
                        Argument::Rows,
                        "rows whose features are not all zero",
                        "zeros; give the variances",
                    ));
                }
                let moments: Vec<_> = (0..columns).map(centred).collect();
                best_variances(&eigen, &moments, &spread, rows, [kernel, noise])
            }
        };
        let matrix = || gram.total().combine(kernel / noise, None, 1.0);
        let factor = factor::cholesky_with_floor(matrix, 1.0, "the system", Advice::Variances)?;
        let (mut weights, mut explained) = (Vec::new(), 0.0);
        for column in 0..columns {
            let [half, solution] = factor.solve(&centred(column));
            check_finite(&solution)?;
            explained += half.iter().map(|value| value * value).sum::<f64>() / noise * (kernel / noise);
            weights.extend(solution.iter().map(|weight| weight * (kernel / noise)));
        }
        let residual = spread.iter().sum::<f64>() / noise - explained;
        let each = factor.log_determinant() + rows * (noise.ln() + LOG_TAU);
        let log_marginal_likelihood = -0.5 * (residual + columns as f64 * each);
        if !log_marginal_likelihood.is_finite() {
            return Err(too_large());
        }
        let header = RegressorHeader {
            recipe: gram.recipe().clone(),
            rows: gram.rows(),
            noise,
            variance: kernel,
            means,
            log_marginal_likelihood,
        };
        let on = OnEngine::new(gram.engine().cloned());
        Ok(Self { header, weights, factor: PackedFactor::new(&factor, kernel.sqrt()), on })
    }

    /// Means and variances of the latent functions; those of observations have [`Variances::noise`] more.
    ///
    /// # Errors
    /// [`Error::Invalid`] for features of another width, [`Error::NotFinite`].
    pub fn predict(&self, features: Rows<'_, f32>) -> Result<GpPrediction, Error> {
        check_features(features, self.weights.len() / self.header.means.len())?;
        let variances = self.on.squared_norms(&[&self.factor], features)?;
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
        Ok(Self { weights, factor, header, on: OnEngine::default() })
    }
}

/// The variances of the largest marginal likelihood: over r = s/σ² by a grid and then golden sections, σ² in closed form unless one of
/// the two, kernel and noise, is given.
fn best_variances(
    eigen: &Eigen,
    moments: &[Vec<f64>],
    spread: &[f64],
    rows: f64,
    [kernel, noise]: [Option<f64>; 2],
) -> Variances {
    let columns = moments.len() as f64;
    let mut squares: Vec<f64> =
        moments.iter().map(|moments| eigen.rotate(moments)).fold(vec![0.0; eigen.values.len()], |sums, rotated| {
            sums.iter().zip(rotated).map(|(a, b)| a + b * b).collect()
        });
    // z²/e. Where features do not vary, there is nothing to explain but rounding, and a large r would explain everything by that.
    squares.iter_mut().zip(&eigen.values).for_each(|(z, e)| *z = if *e > 0.0 { *z / e } else { 0.0 });
    let total: f64 = spread.iter().sum();
    // Noise below the rounding of the features is none of theirs.
    let least = 1e-12 * total / (rows * columns);
    let rank = eigen.values.iter().filter(|e| **e > 0.0).count();
    let beyond = if rank as f64 >= rows { 0.0 } else { (total - squares.iter().sum::<f64>()).max(0.0) };
    let best_noise = |ratio: f64| {
        let left: f64 = squares.iter().zip(&eigen.values).map(|(square, e)| square / (1.0 + ratio * e)).sum();
        ((beyond + left) / (rows * columns)).max(least)
    };
    let noise_at = |ratio: f64| match (kernel, noise) {
        (_, Some(noise)) => noise,
        (Some(kernel), None) => kernel / ratio,
        (None, None) => best_noise(ratio),
    };
    // −2/columns times the logarithm of the likelihood, but for constants.
    let loss = |log_ratio: f64| {
        let ratio = log_ratio.exp();
        let determinant = rows * noise_at(ratio).ln() + eigen.values.iter().map(|e| (ratio * e).ln_1p()).sum::<f64>();
        // Of the best noise, the residual is a constant.
        let given = kernel.is_some() || noise.is_some();
        determinant + if given { rows * best_noise(ratio) / noise_at(ratio) } else { 0.0 }
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
    Variances { kernel: kernel.unwrap_or(ratio * noise), noise }
}

impl Model for GpRegressor {
    fn kind(&self) -> &'static str {
        REGRESSOR
    }

    fn name(&self) -> &'static str {
        "gaussian process"
    }

    fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    fn predicts(&self) -> Predicts {
        Predicts::Values(self.columns())
    }

    fn noise(&self) -> Option<f64> {
        Some(self.header.noise)
    }

    fn settings(&self) -> Vec<(&'static str, Setting)> {
        vec![("variance", self.header.variance.into()), ("noise", self.header.noise.into())]
    }

    fn evidence(&self) -> Option<f64> {
        Some(self.log_marginal_likelihood())
    }

    fn scores(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.means(features)
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
