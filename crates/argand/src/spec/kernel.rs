//! Kernels: what inner products of features approximate.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Argument, Error};

/// The polynomial kernel (γ⟨x, y⟩ + ν)^p.
///
/// # Reference
/// Eq. 1 of the paper, with scikit-learn's names: `gamma` is γ, `coef0` is ν, `degree` is p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polynomial {
    /// The degree p, at least 1.
    pub degree: usize,
    /// The factor γ of the inner product, at least 0.
    pub gamma: f64,
    /// The constant ν, at least 0.
    pub coef0: f64,
}

/// A kernel that features approximate.
///
/// ```
/// use argand::{Kernel, Polynomial};
/// let cubic: Kernel = Polynomial { degree: 3, gamma: 0.5, coef0: 0.5 }.into();
/// assert_eq!(cubic.value(0.5, 2.0), 0.75_f64.powi(3)); // ⟨x, y⟩ = ½, whatever the norms
/// let gaussian = Kernel::Gaussian { length_scale: 2.0 };
/// assert_eq!(gaussian, Kernel::gaussian_of_gamma(0.125)); // scikit-learn's gamma is 1/(2ℓ²)
/// assert!((gaussian.value(0.5, 2.0) - (-1.0_f64 / 8.0).exp()).abs() < 1e-15); // ‖x − y‖² = 2 − 2·½
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Kernel {
    /// (γ⟨x, y⟩ + ν)^p, or Πᵢ (γ⟨xᵢ, yᵢ⟩ + ν) with one table per factor.
    // In JSON, its parameters stand in the spec itself.
    #[serde(skip)]
    Polynomial(Polynomial),
    /// exp(−‖x − y‖²/(2ℓ²)), the radial basis function.
    Gaussian {
        /// The length scale ℓ, positive. scikit-learn's `gamma` is 1/(2ℓ²).
        length_scale: f64,
    },
    /// exp(⟨x, y⟩/ℓ²)
    Exponential {
        /// The length scale ℓ, positive.
        length_scale: f64,
    },
    /// Σₙ aₙ⟨x, y⟩ⁿ
    Series {
        /// The coefficients a₀, a₁, …, none negative: then, and only then, is this a kernel in every dimension (Schoenberg 1942).
        coefficients: Vec<f64>,
    },
}

impl From<Polynomial> for Kernel {
    fn from(polynomial: Polynomial) -> Self {
        Self::Polynomial(polynomial)
    }
}

impl Kernel {
    /// The highest power of ⟨x, y⟩ that sketches of a sum take into account.
    pub const MOST_DEGREES: usize = 64;

    /// The Gaussian kernel exp(−gamma ‖x − y‖²), with scikit-learn's parameter.
    #[must_use]
    pub fn gaussian_of_gamma(gamma: f64) -> Self {
        Self::Gaussian { length_scale: (0.5 / gamma).sqrt() }
    }

    /// The polynomial kernel, if it is one.
    #[must_use]
    pub fn polynomial(&self) -> Option<Polynomial> {
        if let Self::Polynomial(polynomial) = self { Some(*polynomial) } else { None }
    }

    /// Its name: `polynomial`, `gaussian`, `exponential` or `series`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Polynomial(_) => "polynomial",
            Self::Gaussian { .. } => "gaussian",
            Self::Exponential { .. } => "exponential",
            Self::Series { .. } => "series",
        }
    }

    /// The kernel of two rows, from ⟨x, y⟩ and ‖x‖² + ‖y‖².
    #[must_use]
    pub fn value(&self, inner: f64, squared_norms: f64) -> f64 {
        match self {
            Self::Polynomial(Polynomial { degree, gamma, coef0 }) => {
                (gamma * inner + coef0).powi(i32::try_from(*degree).unwrap_or(i32::MAX))
            }
            Self::Gaussian { length_scale } => {
                // Rounding may leave a negative distance.
                libm::exp(-(0.5 * squared_norms - inner).max(0.0) / (length_scale * length_scale))
            }
            Self::Exponential { length_scale } => libm::exp(inner / (length_scale * length_scale)),
            Self::Series { coefficients } => coefficients.iter().rev().fold(0.0, |sum, a| sum * inner + a),
        }
    }

    /// γ and ν of the vectors x̃ = (√γ x, √ν) whose inner products [`PairStatistics`](crate::theory::variance::PairStatistics) holds:
    /// those of a polynomial kernel; otherwise x̃ = x.
    pub(crate) fn lift(&self) -> [f64; 2] {
        self.polynomial().map_or([1.0, 0.0], |Polynomial { gamma, coef0, .. }| [gamma, coef0])
    }

    /// The length scale of a Gaussian kernel, whose features have the factor exp(−‖x‖²/(2ℓ²)) beside their power series.
    #[must_use]
    pub fn radial(&self) -> Option<f64> {
        if let Self::Gaussian { length_scale } = self { Some(*length_scale) } else { None }
    }

    /// The same kernel of x/ℓ and y/ℓ, whose powers neither overflow nor vanish whatever the unit of the rows, and ℓ; 1 where there is no length scale.
    pub(crate) fn in_length_scales(&self) -> (Self, f64) {
        match self {
            Self::Gaussian { length_scale } => (Self::Gaussian { length_scale: 1.0 }, *length_scale),
            Self::Exponential { length_scale } => (Self::Exponential { length_scale: 1.0 }, *length_scale),
            Self::Polynomial(_) | Self::Series { .. } => (self.clone(), 1.0),
        }
    }

    /// The coefficient aₙ of ⟨x, y⟩ⁿ in the power series f of k(x, y) = g(x) g(y) f(⟨x, y⟩), where g(x) = exp(−‖x‖²/(2ℓ²)) for a Gaussian
    /// kernel and 1 for all others.
    ///
    /// # Formula
    /// Polynomial: (p over n) γⁿ ν^{p−n}. Gaussian and exponential: 1/(n! ℓ²ⁿ).
    #[must_use]
    pub fn coefficient(&self, degree: usize) -> f64 {
        match self {
            Self::Polynomial(Polynomial { degree: most, gamma, coef0 }) => {
                if degree > *most {
                    return 0.0;
                }
                let chosen = (1..=degree).fold(1.0, |product, k| product * (most - degree + k) as f64 / k as f64);
                let power = |base: f64, exponent: usize| base.powi(i32::try_from(exponent).unwrap_or(i32::MAX));
                chosen * power(*gamma, degree) * power(*coef0, most - degree)
            }
            Self::Gaussian { length_scale } | Self::Exponential { length_scale } => {
                let rate = 1.0 / (length_scale * length_scale);
                (1..=degree).fold(1.0, |product, k| product * rate / k as f64)
            }
            Self::Series { coefficients } => coefficients.get(degree).copied().unwrap_or(0.0),
        }
    }

    /// The n-th root of aₙ, n ≥ 1, which is finite where aₙ may not be.
    pub(crate) fn coefficient_root(&self, degree: usize) -> f64 {
        let (unscaled, scale) = self.in_length_scales();
        libm::pow(unscaled.coefficient(degree), 1.0 / degree as f64) / (scale * scale)
    }

    /// Checks its parameters.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the argument.
    pub fn validate(&self) -> Result<(), Error> {
        match self {
            Self::Polynomial(Polynomial { degree, gamma, coef0 }) => {
                if *degree == 0 || u32::try_from(*degree).is_err() {
                    return Err(Error::invalid(Argument::Degree, "1 to 4294967295", degree));
                }
                for (argument, value) in [(Argument::Gamma, *gamma), (Argument::Coef0, *coef0)] {
                    if !(value.is_finite() && value >= 0.0) {
                        let expected =
                            "a finite number of at least 0 (features use its square root, which would be NaN)";
                        return Err(Error::invalid(argument, expected, value));
                    }
                }
                Ok(())
            }
            Self::Gaussian { length_scale } | Self::Exponential { length_scale } => {
                // Its square and its inverse square are divided by.
                if (1e-100..=1e100).contains(length_scale) {
                    return Ok(());
                }
                let expected = "a number from 1e-100 to 1e100, for example the median distance between rows";
                Err(Error::invalid(Argument::LengthScale, expected, format!("{length_scale:?}")))
            }
            Self::Series { coefficients } => {
                if coefficients.is_empty() || coefficients.len() > Self::MOST_DEGREES + 1 {
                    let expected = format!("1 to {} numbers, for the powers from 0 on", Self::MOST_DEGREES + 1);
                    return Err(Error::invalid(Argument::Coefficients, expected, coefficients.len()));
                }
                for (degree, &value) in coefficients.iter().enumerate() {
                    if !(value.is_finite() && value >= 0.0) {
                        let expected = "finite numbers of at least 0: with a negative one this is not a kernel";
                        let received = format!("{value} for the power {degree}");
                        return Err(Error::invalid(Argument::Coefficients, expected, received));
                    }
                }
                if coefficients.iter().all(|&value| value == 0.0) {
                    return Err(Error::invalid(Argument::Coefficients, "one that is not 0", "zeros only"));
                }
                Ok(())
            }
        }
    }
}

/// In mathematical notation, for one table: `(0.5 <x,y> + 0.5)^3`, `exp(-|x-y|^2 / (2 * 1.5^2))`.
impl fmt::Display for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&match self {
            Self::Polynomial(Polynomial { degree, gamma, coef0 }) => {
                let gamma = if *gamma == 1.0 { String::new() } else { format!("{gamma} ") };
                let coef0 = if *coef0 == 0.0 { String::new() } else { format!(" + {coef0}") };
                format!("({gamma}<x,y>{coef0})^{degree}")
            }
            Self::Gaussian { length_scale } => format!("exp(-|x-y|^2 / (2 * {length_scale}^2))"),
            Self::Exponential { length_scale } => format!("exp(<x,y> / {length_scale}^2)"),
            Self::Series { coefficients } => {
                let terms =
                    coefficients.iter().enumerate().filter(|(_, a)| **a != 0.0).map(|(degree, a)| match degree {
                        0 => format!("{a}"),
                        1 => format!("{a} <x,y>"),
                        _ => format!("{a} <x,y>^{degree}"),
                    });
                terms.collect::<Vec<_>>().join(" + ")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_sum_to_the_kernel() {
        let (inner, norms): (f64, f64) = (0.3, 1.7);
        for kernel in [
            Kernel::from(Polynomial { degree: 5, gamma: 0.7, coef0: 0.2 }),
            Polynomial { degree: 3, gamma: 2.0, coef0: 0.0 }.into(),
            Kernel::Gaussian { length_scale: 0.8 },
            Kernel::Exponential { length_scale: 1.3 },
            Kernel::Series { coefficients: vec![0.5, 0.0, 2.0] },
        ] {
            let series: f64 = (0..40).map(|n| kernel.coefficient(n) * libm::pow(inner, n as f64)).sum();
            let radial = kernel.radial().map_or(1.0, |scale| (-0.5 * norms / scale.powi(2)).exp());
            let value = kernel.value(inner, norms);
            assert!((series * radial - value).abs() < 1e-14 * value.abs(), "{kernel}");
        }
        assert_eq!(Kernel::Series { coefficients: vec![0.5, 1.0, 2.0] }.to_string(), "0.5 + 1 <x,y> + 2 <x,y>^2");
    }

    #[test]
    fn kernels_that_are_none_name_the_argument() {
        let named = |kernel: Kernel| kernel.validate().unwrap_err().to_string();
        for length_scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(named(Kernel::Gaussian { length_scale }).starts_with("length_scale"), "{length_scale}");
            assert!(named(Kernel::Exponential { length_scale }).starts_with("length_scale"), "{length_scale}");
        }
        assert!(named(Kernel::gaussian_of_gamma(-1.0)).starts_with("length_scale"));
        // As short as it is, it is positive: what is wrong with it is said.
        let short = named(Kernel::Gaussian { length_scale: 1e-200 });
        assert!(short.contains("from 1e-100 to 1e100") && short.ends_with("got 1e-200"), "{short}");
        assert!(named(Kernel::Gaussian { length_scale: 0.0 }).ends_with("got 0.0"));
        for coefficients in
            [vec![], vec![1.0; 66], vec![0.0, 0.0], vec![1.0, -1e-9], vec![f64::NAN], vec![f64::INFINITY]]
        {
            assert!(
                named(Kernel::Series { coefficients: coefficients.clone() }).starts_with("coefficients"),
                "{coefficients:?}"
            );
        }
        assert!(named(Kernel::Series { coefficients: vec![1.0, -2.0] }).contains("-2 for the power 1"));
    }
}
