//! Moment constants: how heavy the tails of a projection are.

use std::f64::consts::PI;

use crate::error::{Argument, Error};
use crate::spec::{Base, Field};

/// The smallest known C with ‖wᵀa‖_{L^t} ≤ C ‖a‖₂ for every a, where w has independent entries of this kind.
///
/// By the lemma, ‖(w₁ ⊗ … ⊗ w_p)ᵀ x‖_{L^t} ≤ C^p ‖x‖₂ for every x, tensor product or not.
///
/// # Formula
/// C_t = √2 π^{−1/(2t)} Γ((t + 1)/2)^{1/t} for real and C_t = Γ(t/2 + 1)^{1/t} for complex weights. Both are tight, for
/// complex Rademacher weights at even t. Between the nearest even numbers a < t < b, they satisfy
/// C_t ≤ C_a^{a(b−t)/(t(b−a))} C_b^{b(t−a)/(t(b−a))} by Hölder's inequality.
///
/// # Reference
/// Lemma 3.1 and Appendix A.1 of the paper; Haagerup (1981) for real Rademacher weights.
///
/// # Errors
/// [`Error::Invalid`] for t below 2 or not finite, and for bases other than Gaussian and Rademacher.
///
/// ```
/// use argand::theory::moments::moment_constant;
/// use argand::{Base, Field};
/// let real = moment_constant(Base::Gaussian, Field::Real, 4.0)?;
/// let complex = moment_constant(Base::Rademacher, Field::Complex, 4.0)?;
/// assert!((real.powi(4) - 3.0).abs() < 1e-12 && (complex.powi(4) - 2.0).abs() < 1e-12);
/// # Ok::<(), argand::Error>(())
/// ```
pub fn moment_constant(base: Base, field: Field, t: f64) -> Result<f64, Error> {
    if !(t.is_finite() && t >= 2.0) {
        return Err(Error::invalid(Argument::T, "a finite number of at least 2", t));
    }
    let complex = |t: f64| (libm::lgamma(t / 2.0 + 1.0) / t).exp();
    match (base, field.is_complex()) {
        (Base::Gaussian | Base::Rademacher, false) => {
            Ok(2_f64.sqrt() * ((libm::lgamma((t + 1.0) / 2.0) - PI.ln() / 2.0) / t).exp())
        }
        (Base::Gaussian, true) => Ok(complex(t)),
        (Base::Rademacher, true) => {
            let below = 2.0 * (t / 2.0).floor();
            let above = below + 2.0;
            let weight = |even: f64, distance: f64| even * distance / (t * (above - below));
            Ok(complex(below).powf(weight(below, above - t)) * complex(above).powf(weight(above, t - below)))
        }
        _ => Err(Error::invalid(Argument::Base, "gaussian or rademacher, whose entries are independent", base.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(base: Base, field: Field, t: f64) -> f64 {
        moment_constant(base, field, t).unwrap()
    }

    /// E|g|^t by Simpson's rule: of a normal variable, and of a complex one through its exponential squared modulus.
    #[test]
    fn gaussian_constants_are_the_moments() {
        let simpson = |f: &dyn Fn(f64) -> f64, end: f64| {
            let steps = 200_000;
            let width = end / f64::from(steps);
            let at = |i: i32| {
                f(f64::from(i) * width) * if i == 0 || i == steps { 1.0 } else { 2.0 + 2.0 * f64::from(i % 2) }
            };
            (0..=steps).map(at).sum::<f64>() * width / 3.0
        };
        for t in [2.0, 2.5, 3.0, 4.0, 7.3, 16.0] {
            let real = simpson(&|x| 2.0 * x.powf(t) * (-x * x / 2.0).exp() / (2.0 * PI).sqrt(), 20.0);
            assert!((constant(Base::Gaussian, Field::Real, t).powf(t) / real - 1.0).abs() < 1e-8, "{t}");
            let complex = simpson(&|r| 2.0 * r.powf(t + 1.0) * (-r * r).exp(), 20.0);
            assert!((constant(Base::Gaussian, Field::Complex, t).powf(t) / complex - 1.0).abs() < 1e-8, "{t}");
        }
    }

    /// Over all sign vectors of a small dimension: never above the constant, and near it when no entry dominates.
    #[test]
    fn rademacher_constants_bound_every_sign_vector() {
        let moment = |a: &[f64], complex: bool, t: f64| {
            let values: u32 = if complex { 4 } else { 2 };
            let count = values.pow(u32::try_from(a.len()).unwrap());
            let total: f64 = (0..count)
                .map(|mut code| {
                    let (mut re, mut im) = (0.0, 0.0);
                    for a in a {
                        match (complex, code % values) {
                            (_, 0) => re += a,
                            (true, 1) => im += a,
                            (true, 3) => im -= a,
                            _ => re -= a,
                        }
                        code /= values;
                    }
                    f64::hypot(re, im).powf(t)
                })
                .sum();
            (total / f64::from(count)).powf(1.0 / t)
        };
        for t in [2.0, 2.7, 3.0, 4.0, 5.5, 6.0, 10.0] {
            for (field, length) in [(Field::Real, 16), (Field::Complex, 8)] {
                let bound = constant(Base::Rademacher, field, t);
                let even = vec![1.0 / (length as f64).sqrt(); length];
                let uneven: Vec<f64> = (0..6).map(|k| 0.5_f64.powi(k)).collect();
                let norm = uneven.iter().map(|a| a * a).sum::<f64>().sqrt();
                assert!(moment(&even, field.is_complex(), t) <= bound * (1.0 + 1e-12), "{t}");
                assert!(moment(&uneven, field.is_complex(), t) <= bound * norm * (1.0 + 1e-12), "{t}");
                if t <= 4.0 {
                    assert!(moment(&even, field.is_complex(), t) > 0.96 * bound, "{t}");
                }
            }
        }
    }

    #[test]
    fn interpolation_is_an_upper_bound_that_meets_the_even_values() {
        for step in 0..200 {
            let t = 2.0 + f64::from(step) * 0.05;
            let [gaussian, rademacher] =
                [Base::Gaussian, Base::Rademacher].map(|base| constant(base, Field::Complex, t));
            let even = (t / 2.0).fract() < 1e-9 || (t / 2.0).fract() > 1.0 - 1e-9;
            assert!(if even { (gaussian - rademacher).abs() < 1e-9 } else { gaussian < rademacher }, "{t}");
            assert!(rademacher < constant(Base::Rademacher, Field::Real, t) || t == 2.0, "{t}");
        }
    }

    #[test]
    fn what_is_no_constant_is_an_error() {
        for t in [1.9, f64::NAN, f64::INFINITY] {
            assert!(moment_constant(Base::Gaussian, Field::Real, t).unwrap_err().to_string().starts_with("t: "));
        }
        let error = moment_constant(Base::TensorSketch, Field::Real, 4.0).unwrap_err();
        assert!(error.to_string().ends_with("got tensor-sketch"), "{error}");
    }
}
