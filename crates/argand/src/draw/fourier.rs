//! The frequencies of random Fourier features.

use std::sync::Arc;

use rayon::prelude::*;

use crate::rng::{Purpose, Stream, StreamVersion};
use crate::scalar::dot;
use crate::spec::{Frequencies, Spec};

use super::narrow;

/// The draws of random Fourier features: m frequencies ω whose cosines and sines ⟨ω, x⟩ are the features.
///
/// # Formula
/// Each ω is N(0, I/ℓ²), exactly or nearly so:
///
/// * `rff`: independent (Rahimi and Recht 2007).
/// * `orf`: in blocks of d, the directions of Gaussian vectors made orthogonal one after the other, times the lengths of other Gaussian
///   vectors (Yu et al. 2016).
/// * `sorf`: in blocks of n, d padded to a power of two of at least 16, the directions of the rows of H D₁ H D₂ H D₃ with random signs D, in n dimensions, times the
///   lengths of Gaussian vectors (Yu et al. 2016, who give all of them the length √n, which biases the kernel for small d).
///
/// # Reference
/// Rahimi and Recht, *Random Features for Large-Scale Kernel Machines* (2007); Yu, Suresh, Choromanski, Holtmann-Rice and Kumar,
/// *Orthogonal Random Features* (2016).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fourier {
    /// The dimension d of the rows.
    pub dim: usize,
    /// The number m of frequencies.
    pub outputs: usize,
    /// The length scale ℓ of the kernel.
    pub length_scale: f64,
    /// The drawn values.
    pub values: FourierValues,
    seed: u64,
    stream_version: StreamVersion,
}

/// The drawn values of random Fourier features.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FourierValues {
    /// Nothing to keep: frequencies are independent, and [`Fourier::frequency`] draws each from a stream of its own.
    Independent,
    /// All frequencies, times ℓ, one after the other.
    Orthogonal(Arc<Vec<f64>>),
    /// Structured ones.
    Structured {
        /// The signs D₃, D₂, D₁ of every block, n each, as 0 and 2 quarter turns.
        signs: Arc<Vec<u8>>,
        /// The length of every frequency, times ℓ.
        lengths: Arc<Vec<f64>>,
    },
}

impl Fourier {
    pub(super) fn draw(spec: &Spec, frequencies: Frequencies) -> Self {
        let length_scale = spec.kernel.radial().unwrap_or_else(|| unreachable!("Fourier features are Gaussian"));
        let (dim, outputs) = (spec.inputs.as_slice()[0], spec.outputs());
        let mut drawn = Self {
            dim,
            outputs,
            length_scale,
            values: FourierValues::Independent,
            seed: spec.seed,
            stream_version: spec.stream_version,
        };
        match frequencies {
            Frequencies::Independent => {}
            Frequencies::Orthogonal => drawn.values = FourierValues::Orthogonal(Arc::new(drawn.orthogonal())),
            Frequencies::Structured => {
                let padded = drawn.padded();
                let mut stream = Stream::of_version(spec.stream_version, spec.seed, Purpose::Signs, 0, 0);
                let signs = stream.small_integers(1, 3 * padded * outputs.div_ceil(padded));
                let length = |index: usize| {
                    let normal = drawn.normal(0, index, padded);
                    dot(&normal, &normal).sqrt()
                };
                drawn.values = FourierValues::Structured {
                    signs: Arc::new(signs.into_iter().map(|bit| 2 * bit).collect()),
                    lengths: Arc::new((0..outputs).into_par_iter().map(length).collect()),
                };
            }
        }
        drawn
    }

    /// Bytes that drawing takes; `None` on overflow.
    pub(crate) fn bytes(spec: &Spec, frequencies: Frequencies) -> Option<u64> {
        let (dim, outputs) = (spec.inputs.as_slice()[0], spec.outputs());
        let bytes = match frequencies {
            Frequencies::Independent => 0,
            Frequencies::Orthogonal => outputs.checked_mul(dim)?.checked_mul(8)?,
            Frequencies::Structured => {
                let signs =
                    outputs.checked_next_multiple_of(dim.checked_next_power_of_two()?.max(16))?.checked_mul(3)?;
                signs.checked_add(outputs.checked_mul(8)?)?
            }
        };
        u64::try_from(bytes).ok()
    }

    /// n, the size of the blocks of structured frequencies.
    pub(crate) fn padded(&self) -> usize {
        self.dim.next_power_of_two().max(16)
    }

    /// A vector of N(0, 1), from a stream of its own.
    fn normal(&self, factor: u32, index: usize, length: usize) -> Vec<f64> {
        let mut stream = Stream::of_version(self.stream_version, self.seed, Purpose::Weights, factor, narrow(index));
        let pairs = (0..length.div_ceil(2)).flat_map(|_| <[f64; 2]>::from(stream.complex_normal()));
        pairs.take(length).map(|normal| std::f64::consts::SQRT_2 * normal).collect()
    }

    /// Blocks of orthogonal vectors by Gram and Schmidt, twice for good measure, with the lengths of other vectors.
    fn orthogonal(&self) -> Vec<f64> {
        let dim = self.dim;
        let mut all: Vec<f64> = Vec::with_capacity(self.outputs * dim);
        for index in 0..self.outputs {
            let mut vector = self.normal(0, index, dim);
            let block = &all[index / dim * dim * dim..];
            for _ in 0..2 {
                for before in block.chunks_exact(dim) {
                    let along = dot(before, &vector);
                    vector.iter_mut().zip(before).for_each(|(value, before)| *value -= along * before);
                }
            }
            let norm = dot(&vector, &vector).sqrt();
            all.extend(vector.iter().map(|value| value / norm));
        }
        for (index, vector) in all.chunks_exact_mut(dim).enumerate() {
            let other = self.normal(1, index, dim);
            let length = dot(&other, &other).sqrt();
            vector.iter_mut().for_each(|value| *value *= length);
        }
        all
    }

    /// One frequency, entry by entry from the definition.
    #[must_use]
    pub fn frequency(&self, index: usize) -> Vec<f64> {
        let row = match &self.values {
            FourierValues::Independent => self.normal(0, index, self.dim),
            FourierValues::Orthogonal(all) => all[index * self.dim..][..self.dim].to_vec(),
            FourierValues::Structured { signs, lengths } => {
                let padded = self.padded();
                let mut row = structured_row(signs, padded, index);
                row.truncate(self.dim);
                // A row of the product of three Hadamard matrices has the length n^{3/2}.
                let factor = lengths[index] / (padded as f64).powf(1.5);
                row.iter().map(|entry| factor * entry).collect()
            }
        };
        row.iter().map(|value| value / self.length_scale).collect()
    }
}

/// A row of H D₁ H D₂ H D₃: the transposed product, applied to a unit vector.
fn structured_row(signs: &[u8], padded: usize, index: usize) -> Vec<f64> {
    let block = &signs[3 * padded * (index / padded)..][..3 * padded];
    let mut row = vec![0.0; padded];
    row[index % padded] = 1.0;
    for signs in block.chunks_exact(padded).rev() {
        crate::transform::fwht::reference(&mut row);
        row.iter_mut().zip(signs).for_each(|(value, &turns)| *value *= if turns == 0 { 1.0 } else { -1.0 });
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Map;

    fn drawn(method: &str, dim: usize, features: usize) -> Fourier {
        let spec = Spec::gaussian(dim, 0.5).with_features(features).with_method(method.parse().unwrap()).with_seed(3);
        let Map::Fourier(fourier) = spec.draw().unwrap().map else { panic!("{method}") };
        fourier
    }

    /// Within a block frequencies are orthogonal; their squared lengths are d/ℓ² on average.
    #[test]
    fn blocks_are_orthogonal() {
        for (method, dim, block) in [("orf", 5, 5), ("orf", 1, 1), ("sorf", 16, 16), ("sorf", 32, 32)] {
            let fourier = drawn(method, dim, 2 * (2 * block + 1));
            let frequencies: Vec<Vec<f64>> = (0..fourier.outputs).map(|index| fourier.frequency(index)).collect();
            for i in 0..fourier.outputs {
                for j in 0..i {
                    let cosine = dot(&frequencies[i], &frequencies[j])
                        / (dot(&frequencies[i], &frequencies[i]) * dot(&frequencies[j], &frequencies[j])).sqrt();
                    // Those of different blocks of sorf may be orthogonal by chance.
                    let orthogonal = cosine.abs() < 1e-12;
                    assert!(
                        orthogonal == (i / block == j / block) || method == "sorf" && orthogonal,
                        "{method}: {i} {j} {cosine}"
                    );
                }
            }
            let many = drawn(method, dim, 2000);
            let square = |index: usize| many.frequency(index).iter().map(|entry| (0.5 * entry).powi(2)).sum::<f64>();
            let mean = (0..1000).map(square).sum::<f64>() / 1000.0;
            // The squared length of a Gaussian vector has the variance 2d.
            let z = (mean - dim as f64) / (2.0 * dim as f64 / 1000.0).sqrt();
            assert!(z.abs() < 4.5, "{method} {dim}: {mean}");
        }
    }
}
