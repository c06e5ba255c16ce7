//! The frequencies of spherical random features.

use crate::rng::{Purpose, Stream, StreamVersion};
use crate::spec::Spec;
use crate::spherical::SphericalFit;

use super::narrow;

/// The draws of spherical random features: m frequencies ω = wu with lengths w from a [`SphericalFit`] and directions
/// u = g/‖g‖ of Gaussian vectors.
///
/// # Reference
/// Pennington, Yu and Kumar (2015).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Cosine {
    /// The dimension of the rows.
    pub dim: usize,
    /// The lengths of the frequencies, one per frequency.
    pub radii: Vec<f64>,
    /// The dimension of the directions: at least 2, as rows with a single column are padded with a zero.
    pub direction_dim: usize,
    /// The seed of the directions.
    pub seed: u64,
    /// The stream version they are drawn with.
    pub stream_version: StreamVersion,
}

impl Cosine {
    pub(crate) fn direction_dim(spec: &Spec) -> usize {
        spec.inputs.as_slice()[0].max(2)
    }

    pub(super) fn draw(spec: &Spec, fit: &SphericalFit) -> Self {
        let (seed, stream_version) = (spec.seed, spec.stream_version);
        let mut lengths = Stream::of_version(stream_version, seed, Purpose::Radii, 0, 0);
        Self {
            dim: spec.inputs.as_slice()[0],
            radii: fit.radii(spec.outputs(), &mut lengths),
            direction_dim: fit.dim,
            seed,
            stream_version,
        }
    }

    /// One frequency, drawn from its own stream.
    #[must_use]
    pub fn frequency(&self, index: usize) -> Vec<f64> {
        let mut stream = Stream::of_version(self.stream_version, self.seed, Purpose::Weights, 0, narrow(index));
        let pairs = (0..self.direction_dim.div_ceil(2)).flat_map(|_| <[f64; 2]>::from(stream.complex_normal()));
        let direction: Vec<f64> = pairs.take(self.direction_dim).collect();
        let norm = direction.iter().map(|g| g * g).sum::<f64>().sqrt();
        direction.iter().take(self.dim).map(|g| self.radii[index] * g / norm).collect()
    }
}
