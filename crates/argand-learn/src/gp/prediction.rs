//! What Gaussian processes predict.

use argand::rng::{Purpose, Stream};
use argand::{Argument, Error, Rows};
use rayon::prelude::*;

use super::averaged::AveragedSoftmax;
use crate::factor::linear;
use crate::score::largest;

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
        let average = AveragedSoftmax::new(&self.draws(samples, seed)?, self.columns);
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
        let draws = self.draws(samples, seed)?;
        let mut bounds = vec![[f64::INFINITY, f64::NEG_INFINITY]; self.columns];
        for draw in draws.chunks_exact(self.columns) {
            for ([low, high], &value) in bounds.iter_mut().zip(draw) {
                (*low, *high) = (low.min(value), high.max(value));
            }
        }
        let average = AveragedSoftmax::new(&draws, self.columns);
        let label = |(means, variances): (&[f64], &[f64])| {
            let deviations = deviations(variances);
            let best = largest(means, self.columns)[0];
            let ahead = means[best as usize] + deviations[best as usize] * bounds[best as usize][0];
            let behind = |(class, [_, high]): (usize, &[f64; 2])| {
                // More than rounding could make up for.
                class == best as usize || ahead - (means[class] + deviations[class] * high) > 1e-9
            };
            if bounds.iter().enumerate().all(behind) {
                return best;
            }
            let mut probabilities = vec![0.0; self.columns];
            average.add(means, &deviations, &mut probabilities);
            largest(&probabilities, self.columns)[0]
        };
        let rows = self.means.par_chunks(self.columns).zip(self.variances.par_chunks(self.columns));
        Ok(rows.with_min_len(8).map(label).collect())
    }

    /// Standard normal numbers, one for every class and draw.
    fn draws(&self, samples: usize, seed: u64) -> Result<Vec<f64>, Error> {
        if samples == 0 || samples.checked_mul(self.columns).is_none() {
            return Err(Error::invalid(Argument::Samples, "at least 1", samples));
        }
        let mut stream = Stream::new(seed, Purpose::Posterior, 0, 0);
        let normals = std::iter::repeat_with(|| {
            let (re, im) = stream.complex_normal();
            [re, im].map(|part| part * std::f64::consts::SQRT_2)
        });
        Ok(normals.flatten().take(samples * self.columns).collect())
    }
}

fn deviations(variances: &[f64]) -> Vec<f64> {
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
