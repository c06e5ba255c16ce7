//! What Gaussian processes predict.

use argand::rng::{Purpose, Stream};
use argand::{Argument, Error, Rows};
use rayon::prelude::*;

use super::averaged::AveragedSoftmax;
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
