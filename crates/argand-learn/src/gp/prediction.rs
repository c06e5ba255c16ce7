//! What Gaussian processes predict.

use argand::rng::{Purpose, Stream};
use argand::{Argument, Error, Rows};
use rayon::prelude::*;

use super::averaged::AveragedSoftmax;
use super::labels::Rule;
use crate::factor::linear;

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
        let average = AveragedSoftmax::new(&draws(self.columns, samples, seed)?, self.columns);
        let mut probabilities = vec![0.0; self.means.len()];
        let rows = self.means.par_chunks(self.columns).zip(self.variances.par_chunks(self.columns));
        rows.zip(probabilities.par_chunks_mut(self.columns))
            .with_min_len(8)
            .for_each(|((means, variances), out)| average.add(means, &deviations(variances), out));
        Ok(probabilities)
    }

    /// The most probable class of every row: that of the largest of its [`probabilities`](Self::probabilities). They are not
    /// computed where one class is ahead in every draw.
    ///
    /// # Cost
    /// S exponentials per class, for rows that the margin does not decide.
    ///
    /// # Errors
    /// As [`GpPrediction::probabilities`].
    pub fn labels(&self, samples: usize, seed: u64) -> Result<Vec<u32>, Error> {
        let rule = Rule::new(self.columns, samples, seed)?;
        let rows = self.means.par_chunks(self.columns).zip(self.variances.par_chunks(self.columns));
        Ok(rows.with_min_len(8).map(|(means, variances)| rule.label(means, variances)).collect())
    }
}

/// Standard normal numbers, one for every class and draw.
pub(super) fn draws(columns: usize, samples: usize, seed: u64) -> Result<Vec<f64>, Error> {
    if samples == 0 || samples.checked_mul(columns).is_none() {
        return Err(Error::invalid(Argument::Samples, "at least 1", samples));
    }
    let mut stream = Stream::new(seed, Purpose::Posterior, 0, 0);
    let normals = std::iter::repeat_with(|| {
        let (re, im) = stream.complex_normal();
        [re, im].map(|part| part * std::f64::consts::SQRT_2)
    });
    Ok(normals.flatten().take(samples * columns).collect())
}

pub(super) fn deviations(variances: &[f64]) -> Vec<f64> {
    variances.iter().map(|variance| variance.max(0.0).sqrt()).collect()
}

/// Means and variances; the latter of every column, or those of all.
pub(super) fn prediction(
    features: Rows<'_, f32>,
    weights: &[f64],
    means: &[f64],
    variances: &[Vec<f64>],
) -> GpPrediction {
    let columns = means.len();
    let at = |at: usize| variances[at % columns % variances.len()][at / columns];
    let variances = (0..features.rows() * columns).map(at).collect();
    GpPrediction { columns, means: linear(features, weights, means), variances }
}
