//! Spherical random features: the polynomial kernel on the unit sphere as a mixture of cosines.
//!
//! On the unit sphere, ((1 − 2/s²) + (2/s²)⟨x, y⟩)^p = (1 − z²/s²)^p depends on z = ‖x − y‖ alone, but it is not a
//! positive definite function of x − y: no distribution of frequencies ω has E[cos ⟨ω, x − y⟩] equal to it. Spherical
//! random features draw frequencies from a distribution that comes close. Their directions are uniform; the
//! distribution of their lengths is a [`SphericalFit`], found by [`fit`]. What remains is a bias, which the fit
//! reports.
//!
//! # Reference
//! Pennington, Yu and Kumar (2015), "Spherical Random Features for Polynomial Kernels", NeurIPS.

mod bessel;
mod density;
mod fit;
mod numerics;

use serde::{Deserialize, Serialize};

use crate::error::{Argument, Error};
use crate::rng::Stream;

pub use bessel::sphere_characteristic;
use density::Density;
pub use fit::fit;

/// The number of Gaussians in the mixture, as in the reference.
pub const COMPONENTS: usize = 10;

/// A distribution of frequency lengths w = ‖ω‖ in R^d whose kernel comes close to (1 − z²/s²)^p for 0 ≤ z ≤ 2.
///
/// It is the positive part of a mixture of Gaussians over ω with weights of either sign, renormalised. Only `dim`,
/// `weights` and `scales` matter; the other fields record what was fitted and how well.
///
/// # Formula
/// The density of w is p₊(w) = max(0, Σᵢ cᵢ pᵢ(w)) / ∫ max(0, Σᵢ cᵢ pᵢ), where
/// pᵢ(w) = (w / 2σᵢ)^{d−1} exp(−w² / 4σᵢ²) / (σᵢ Γ(d/2)) integrates to one and belongs to exp(−σᵢ² z²). The kernel that
/// features estimate is ∫ p₊(w) Ω_d(w z) dw with Ω_d of [`sphere_characteristic`].
///
/// # Reference
/// Pennington, Yu and Kumar (2015).
///
/// ```
/// use argand::spherical;
/// let fit = spherical::fit(16, 3, 2.0)?;
/// assert!((fit.rms_error - 0.0181).abs() < 2e-4);
/// assert!((fit.kernel(1.0) - 0.75_f64.powi(3)).abs() <= fit.max_error);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SphericalFit {
    /// The dimension d of the frequencies, at least 2.
    pub dim: usize,
    /// The degree p of the kernel.
    pub degree: usize,
    /// The parameter s of the kernel, at least 2.
    pub s: f64,
    /// The weights cᵢ, of either sign, scaled such that the positive part has mass one.
    pub weights: Vec<f64>,
    /// The scales σᵢ, positive, as many as weights.
    pub scales: Vec<f64>,
    /// Root mean square of (fitted kernel − kernel) over z in [0, 2].
    pub rms_error: f64,
    /// Maximum of |fitted kernel − kernel| over z in [0, 2].
    pub max_error: f64,
}

impl SphericalFit {
    /// Checks that the fields of a fit read from a file describe a distribution.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the field.
    ///
    /// # Cost
    /// One evaluation of the density on a grid, below 10 ms.
    pub fn validate(&self) -> Result<(), Error> {
        fit::validate_kernel(self.dim, self.degree, self.s)?;
        if self.weights.is_empty() {
            return Err(Error::invalid(Argument::Weights, "at least one", 0));
        }
        if self.weights.len() != self.scales.len() {
            let expected = format!("as many scales as weights, {}", self.weights.len());
            return Err(Error::invalid(Argument::Scales, expected, self.scales.len()));
        }
        if let Some(weight) = self.weights.iter().find(|weight| !weight.is_finite()) {
            return Err(Error::invalid(Argument::Weights, "finite numbers", weight));
        }
        if let Some(scale) = self.scales.iter().find(|scale| !(scale.is_finite() && **scale > 0.0)) {
            return Err(Error::invalid(Argument::Scales, "finite positive numbers", scale));
        }
        for (argument, value) in [(Argument::RmsError, self.rms_error), (Argument::MaxError, self.max_error)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::invalid(argument, "a finite number of at least 0", value));
            }
        }
        if self.density().is_none() {
            return Err(Error::invalid(
                Argument::Weights,
                "a mixture that is positive somewhere",
                format!("{:?}", self.weights),
            ));
        }
        Ok(())
    }

    /// Draws `count` independent frequency lengths.
    ///
    /// One uniform number each, through the inverse of the distribution function, which is tabulated on 4096 cells that
    /// cover the support and linear within a cell. If [`SphericalFit::validate`] fails, the lengths may be meaningless,
    /// but they are finite: a mixture that is positive nowhere gives zeros.
    ///
    /// # Cost
    /// O(1) per draw (12 comparisons), after 5 to 10 ms for the table.
    #[must_use]
    pub fn radii(&self, count: usize, stream: &mut Stream) -> Vec<f64> {
        match self.density() {
            Some(density) => (0..count).map(|_| density.quantile(stream.uniform())).collect(),
            None => vec![0.0; count],
        }
    }

    /// The kernel that features with these frequencies estimate without bias, at distance z = `distance`.
    ///
    /// # Formula
    /// ∫ p₊(w) Ω_d(w z) dw, by the trapezoidal rule on the table that [`SphericalFit::radii`] samples from; it resolves
    /// the oscillations of Ω_d for distances up to about 100/σ.
    ///
    /// # Cost
    /// About 5 to 20 ms; [`SphericalFit::kernels`] shares most of it among many distances.
    #[must_use]
    pub fn kernel(&self, distance: f64) -> f64 {
        self.kernels(&[distance])[0]
    }

    /// [`SphericalFit::kernel`] at many distances.
    ///
    /// # Cost
    /// Up to 4096 values of Ω_d per distance, typically a millisecond.
    #[must_use]
    pub fn kernels(&self, distances: &[f64]) -> Vec<f64> {
        match self.density() {
            Some(density) => density.kernels(self.dim, distances),
            // All frequencies are zero, as in `radii`.
            None => vec![1.0; distances.len()],
        }
    }

    /// The target kernel, (1 − z²/s²)^p, at distance z = `distance`.
    #[must_use]
    pub fn target(&self, distance: f64) -> f64 {
        fit::target(self.degree, self.s, distance)
    }

    fn density(&self) -> Option<Density> {
        Density::new(self.dim, &self.weights, &self.scales)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    fn single_gaussian(dim: usize, scale: f64) -> SphericalFit {
        let (weights, scales) = (vec![1.0], vec![scale]);
        SphericalFit { dim, degree: 1, s: 2.0, weights, scales, rms_error: 0.0, max_error: 0.0 }
    }

    /// One positive Gaussian is not clipped: its kernel is exp(−σ² z²), which pins the normalisation of everything.
    #[test]
    fn one_gaussian_has_a_gaussian_kernel() {
        for dim in [2, 3, 7, 16, 785, 4096] {
            for scale in [0.1, 0.9, 2.5] {
                let fit = single_gaussian(dim, scale);
                let distances = [0.0, 0.1, 0.5, 1.0, 1.5, 2.0];
                for (distance, kernel) in distances.into_iter().zip(fit.kernels(&distances)) {
                    let error = (kernel - (-(scale * distance).powi(2)).exp()).abs();
                    assert!(error < 1e-6, "d = {dim}, scale {scale}, z = {distance}: {error:e}");
                }
            }
        }
    }

    /// w² / 4σ² of a single Gaussian is Gamma(d/2, 1): mean, variance and the largest deviation from the distribution
    /// function of d = 2, each within 5 standard errors.
    #[test]
    fn radii_have_the_right_moments() {
        let count = 100_000;
        for dim in [2, 5, 64, 1024] {
            let mut stream = Stream::new(11, Purpose::Weights, 0, 0);
            let radii = single_gaussian(dim, 0.7).radii(count, &mut stream);
            let draws: Vec<f64> = radii.iter().map(|radius| (radius / 1.4).powi(2)).collect();
            let (count, shape) = (count as f64, 0.5 * dim as f64);
            let mean = draws.iter().sum::<f64>() / count;
            let variance = draws.iter().map(|draw| (draw - shape).powi(2)).sum::<f64>() / count;
            assert!((mean - shape).abs() < 5.0 * (shape / count).sqrt(), "d = {dim}: mean {mean}");
            // The fourth central moment of Gamma(a, 1) is 3a² + 6a.
            let error = ((2.0 * shape * shape + 6.0 * shape) / count).sqrt();
            assert!((variance - shape).abs() < 5.0 * error, "d = {dim}: variance {variance}");
            if dim == 2 {
                let mut sorted = draws;
                sorted.sort_by(f64::total_cmp);
                let deviation =
                    sorted.iter().enumerate().map(|(rank, draw)| (1.0 - (-draw).exp() - rank as f64 / count).abs());
                let largest = deviation.fold(0.0, f64::max);
                assert!(largest < 2.5 / count.sqrt(), "Kolmogorov–Smirnov distance {largest}");
            }
        }
    }

    /// The mean of Ω_d(w z) over drawn w is the kernel that the fit reports, also where the mixture is clipped.
    #[test]
    fn radii_belong_to_the_kernel() {
        for (dim, degree) in [(4, 2), (16, 7)] {
            let fit = fit(dim, degree, 2.0).unwrap();
            let count = 4_000;
            let radii = fit.radii(count, &mut Stream::new(5, Purpose::Weights, 1, 0));
            for distance in [0.3, 1.0, 1.7] {
                let values: Vec<f64> =
                    radii.iter().map(|radius| sphere_characteristic(dim, radius * distance)).collect();
                let mean = values.iter().sum::<f64>() / count as f64;
                let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64;
                let error = (mean - fit.kernel(distance)).abs();
                assert!(error < 5.0 * (variance / count as f64).sqrt() + 1e-6, "d = {dim}, z = {distance}: {error:e}");
            }
        }
    }

    #[test]
    fn the_reported_errors_are_those_of_the_kernel() {
        for (dim, degree, s) in [(2, 2, 2.0), (300, 3, 4.0), (8, 200, 2.0)] {
            let fit = fit(dim, degree, s).unwrap();
            let count = 101;
            let distances: Vec<f64> = (0..count).map(|index| 2.0 * f64::from(index) / f64::from(count - 1)).collect();
            let errors: Vec<f64> =
                distances.iter().zip(fit.kernels(&distances)).map(|(&z, kernel)| kernel - fit.target(z)).collect();
            let maximum = errors.iter().fold(0.0_f64, |maximum, error| maximum.max(error.abs()));
            let rms = (errors.iter().map(|error| error * error).sum::<f64>() / f64::from(count)).sqrt();
            assert!(
                (fit.max_error / maximum - 1.0).abs() < 0.05,
                "d = {dim}, p = {degree}: {} {maximum}",
                fit.max_error
            );
            assert!((fit.rms_error / rms - 1.0).abs() < 0.05, "d = {dim}, p = {degree}: {} {rms}", fit.rms_error);
        }
    }

    #[test]
    fn a_fit_survives_its_file() {
        let fit = fit(5, 3, 2.5).unwrap();
        let json = serde_json::to_string(&fit).unwrap();
        let back: SphericalFit = serde_json::from_str(&json).unwrap();
        assert_eq!(back, fit);
        assert_eq!(back.validate(), Ok(()));
        let draw = |fit: &SphericalFit| fit.radii(5, &mut Stream::new(1, Purpose::Weights, 0, 0));
        assert_eq!(draw(&back), draw(&fit));
    }

    #[test]
    fn broken_fits_are_named_and_harmless() {
        let good = single_gaussian(4, 1.0);
        assert_eq!(good.validate(), Ok(()));
        let broken = [
            ("dim", SphericalFit { dim: 1, ..good.clone() }),
            ("degree", SphericalFit { degree: 0, ..good.clone() }),
            ("s", SphericalFit { s: f64::NAN, ..good.clone() }),
            ("weights", SphericalFit { weights: vec![-1.0], ..good.clone() }),
            ("weights", SphericalFit { weights: vec![0.0], ..good.clone() }),
            ("weights", SphericalFit { weights: vec![], scales: vec![], ..good.clone() }),
            ("weights", SphericalFit { weights: vec![f64::INFINITY], ..good.clone() }),
            ("scales", SphericalFit { scales: vec![], ..good.clone() }),
            ("scales", SphericalFit { scales: vec![0.0], ..good.clone() }),
            ("scales", SphericalFit { scales: vec![f64::NAN], ..good.clone() }),
            ("rms_error", SphericalFit { rms_error: -1.0, ..good.clone() }),
            ("max_error", SphericalFit { max_error: f64::NAN, ..good.clone() }),
        ];
        for (field, fit) in broken {
            match fit.validate() {
                Err(Error::Invalid { argument, .. }) => assert_eq!(argument.to_string(), field),
                other => panic!("{field}: {other:?}"),
            }
            let radii = fit.radii(3, &mut Stream::new(1, Purpose::Weights, 0, 0));
            assert!(radii.iter().all(|radius| radius.is_finite()), "{field}: {radii:?}");
        }
    }
}
