//! How many outputs a guarantee needs, and what spectral guarantees mean.
//!
//! The paper's theorems say D = O(…): they leave a constant factor open, and so do these functions. An [`Order`]
//! compares sketches and shows how the requirement grows; do not allocate features by it. Instead,
//! [`expected_error`](super::expected_error) and [`plan`](crate::plan) predict the error itself.

use argand_linalg::{Cholesky, Matrix, View};

use super::moments::moment_constant;
use crate::error::{Argument, Error};
use crate::spec::{Base, Field};

/// The two terms of D = O(max{…}), without the constant that the paper leaves unspecified.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Order {
    /// The term in ε⁻².
    pub quadratic: f64,
    /// The term in ε⁻¹.
    pub linear: f64,
}

impl Order {
    /// The larger term: the argument of O(·).
    #[must_use]
    pub fn expression(&self) -> f64 {
        self.quadratic.max(self.linear)
    }

    fn times(self, factor: f64) -> Self {
        Self { quadratic: factor * self.quadratic, linear: factor * self.linear }
    }
}

/// A guarantee: an error of at most ε with probability at least 1 − δ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guarantee {
    /// Real or complex weights, Gaussian or Rademacher: C₄⁴ is 3 or 2.
    pub field: Field,
    /// The degree p.
    pub degree: usize,
    /// ε > 0
    pub epsilon: f64,
    /// δ, the probability of failure.
    pub delta: f64,
}

impl Guarantee {
    /// C₄², p and log(1/δ), if the theorem covers the guarantee.
    fn parts(&self, largest_delta: f64) -> Result<(f64, f64, f64), Error> {
        if self.degree == 0 {
            return Err(Error::invalid(Argument::Degree, "at least 1", 0));
        }
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(Error::invalid(Argument::Epsilon, "a positive number", self.epsilon));
        }
        if !(self.delta > 0.0 && self.delta < largest_delta) {
            let expected = format!("a number between 0 and {largest_delta:.4}, where the theorem holds");
            return Err(Error::invalid(Argument::Delta, expected, self.delta));
        }
        let constant = moment_constant(Base::Gaussian, self.field, 4.0)?;
        Ok((constant * constant, self.degree as f64, -self.delta.ln()))
    }

    /// The order of m, the number of outputs of a real or complex sketch, that preserves the norm of any one vector:
    /// Pr{|‖Sx‖² − ‖x‖²| ≤ ε‖x‖²} ≥ 1 − δ.
    ///
    /// # Formula
    /// max{C₄^{4p} log(1/δ) ε⁻², (C₄² e/2)^p log^p(1/δ) ε⁻¹} for δ < e⁻², up to an unspecified constant.
    ///
    /// # Reference
    /// Theorem 3.2. A Complex-to-Real sketch has two features per output.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the theorem's range.
    pub fn norm_rows(&self) -> Result<Order, Error> {
        let (c, p, log) = self.parts((-2.0_f64).exp())?;
        Ok(Order {
            quadratic: c.powf(2.0 * p) * log / self.epsilon.powi(2),
            linear: (c * std::f64::consts::E / 2.0 * log).powf(p) / self.epsilon,
        })
    }

    /// As [`norm_rows`](Self::norm_rows) with the free parameter of its proof, the paper's γ: a smaller one allows a
    /// larger δ < e^{−2pγ} and needs more outputs.
    ///
    /// # Formula
    /// max{(C₄ e^{γ/2})^{4p} (log(1/δ)/(pγ)) ε⁻², (C₄² e^{1+γ}/2)^p (log(1/δ)/(pγ))^p ε⁻¹}. At γ = 1/p its terms are e² and e
    /// times those of Theorem 3.2, which the paper counts as part of the unspecified constant.
    ///
    /// # Reference
    /// Appendix A.2, general form of Theorem 3.2.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the theorem's range.
    pub fn norm_rows_with(&self, trade_off: f64) -> Result<Order, Error> {
        if !(trade_off > 0.0 && trade_off.is_finite()) {
            return Err(Error::invalid(Argument::TradeOff, "a positive number", trade_off));
        }
        let (c, p, log) = self.parts((-2.0 * self.degree as f64 * trade_off).exp())?;
        let t = log / (p * trade_off);
        Ok(Order {
            quadratic: (c * trade_off.exp()).powf(2.0 * p) * t / self.epsilon.powi(2),
            linear: (c * (1.0 + trade_off).exp() / 2.0 * t).powf(p) / self.epsilon,
        })
    }

    /// The order of the number of features that preserves inner products and matrix products:
    /// Pr{‖(SX)ᵀSY − XᵀY‖_F ≤ ε‖X‖_F‖Y‖_F} ≥ 1 − δ.
    ///
    /// # Formula
    /// [`norm_rows`](Self::norm_rows), twice that for Complex-to-Real sketches.
    ///
    /// # Reference
    /// Corollary 3.3.
    ///
    /// # Errors
    /// As [`norm_rows`](Self::norm_rows).
    pub fn matrix_product_features(&self) -> Result<Order, Error> {
        Ok(self.norm_rows()?.times(if self.field == Field::ComplexToReal { 2.0 } else { 1.0 }))
    }

    /// The order of the number of features that preserves the spectrum of a kernel matrix with this statistical dimension:
    /// (1 − ε)(K + λI) ≼ K̂ + λI ≼ (1 + ε)(K + λI) with probability at least 1 − δ.
    ///
    /// # Formula
    /// s_λ(K)² times [`matrix_product_features`](Self::matrix_product_features), as the paper states it in Section 3.2. Substituting
    /// ε/s_λ(K) for ε in Theorem 3.2 multiplies the term in ε⁻² by s_λ² and that in ε⁻¹ by s_λ only; the stated order is
    /// sufficient for both if s_λ(K) ≥ 1.
    ///
    /// # Reference
    /// Eq. 6 and Appendix A.5.
    ///
    /// # Errors
    /// As [`norm_rows`](Self::norm_rows), and for a statistical dimension below 0.
    pub fn spectral_features(&self, statistical_dimension: f64) -> Result<Order, Error> {
        if !(statistical_dimension >= 0.0 && statistical_dimension.is_finite()) {
            return Err(Error::invalid(
                Argument::StatisticalDimension,
                "a number of at least 0",
                statistical_dimension,
            ));
        }
        Ok(self.matrix_product_features()?.times(statistical_dimension.powi(2)))
    }
}

/// Checks a square matrix given row by row; returns its size.
fn square(argument: Argument, matrix: &[f64]) -> Result<usize, Error> {
    let size = matrix.len().isqrt();
    if size == 0 || size * size != matrix.len() {
        return Err(Error::invalid(argument, "n x n numbers of a square matrix", matrix.len()));
    }
    if let Some(value) = matrix.iter().find(|value| !value.is_finite()) {
        return Err(Error::invalid(argument, "finite numbers", value));
    }
    let largest = matrix.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let (row, column) = (0..size * size)
        .map(|at| (at / size, at % size))
        .find(|&(row, column)| (matrix[row * size + column] - matrix[column * size + row]).abs() > 1e-6 * largest)
        .unwrap_or((0, 0));
    if row != column {
        let received = format!("{} and {}", matrix[row * size + column], matrix[column * size + row]);
        let expected = format!("a symmetric matrix, equal numbers at ({row}, {column}) and ({column}, {row})");
        return Err(Error::invalid(argument, expected, received));
    }
    Ok(size)
}

fn check_lambda(lambda: f64) -> Result<(), Error> {
    if lambda >= 0.0 && lambda.is_finite() {
        Ok(())
    } else {
        Err(Error::invalid(Argument::Lambda, "a finite number of at least 0", lambda))
    }
}

/// Eigenvalues below this, relative to the largest, are rounding errors.
fn rounding(size: usize) -> f64 {
    size as f64 * f64::EPSILON
}

fn eigenvalues(matrix: View<'_, f64>, argument: Argument) -> Result<Vec<f64>, Error> {
    let found = argand_linalg::eigenvalues(matrix);
    found.map_err(|_| Error::invalid(argument, "a matrix whose eigenvalues can be computed", "no convergence"))
}

/// The λ-statistical dimension of a kernel matrix, given row by row.
///
/// # Formula
/// s_λ(K) = Tr K(K + λI)⁻¹ = Σ μᵢ/(μᵢ + λ) over the eigenvalues μᵢ. At λ = 0 it is the numerical rank.
///
/// # Reference
/// Section 3.2 of the paper.
///
/// # Cost
/// O(n³)
///
/// # Errors
/// [`Error::Invalid`] for a matrix that is not square, symmetric, finite and positive semi-definite, or λ < 0.
///
/// ```
/// use argand::theory::bounds::statistical_dimension;
/// let s = statistical_dimension(&[3.0, 0.0, 0.0, 1.0], 1.0)?;
/// assert!((s - 1.25).abs() < 1e-12); // 3/4 + 1/2
/// # Ok::<(), argand::Error>(())
/// ```
pub fn statistical_dimension(kernel: &[f64], lambda: f64) -> Result<f64, Error> {
    let size = square(Argument::Kernel, kernel)?;
    check_lambda(lambda)?;
    let values = eigenvalues(View::by_rows(kernel, size, size), Argument::Kernel)?;
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let smallest = values.iter().copied().fold(0.0_f64, f64::min);
    if smallest < -1e-6 * largest {
        return Err(Error::invalid(
            Argument::Kernel,
            "a positive semi-definite matrix",
            format!("eigenvalue {smallest}"),
        ));
    }
    let real = |value: &&f64| **value > rounding(size) * largest;
    Ok(values.iter().filter(real).map(|value| value / (value + lambda)).sum())
}

/// The smallest ε with (1 − ε)(K + λI) ≼ K̂ + λI ≼ (1 + ε)(K + λI): how good an approximate kernel matrix is for learning.
///
/// # Formula
/// The largest modulus of an eigenvalue of L⁻¹(K̂ − K)L⁻ᵀ with K + λI = LLᵀ.
///
/// # Reference
/// Eq. 6 of the paper.
///
/// # Cost
/// O(n³)
///
/// # Errors
/// [`Error::Invalid`] for matrices that are not square, symmetric and finite, or of different sizes, and if K + λI is not
/// positive definite to working precision; use a larger λ.
///
/// ```
/// use argand::theory::bounds::spectral_error;
/// let error = spectral_error(&[1.0, 0.0, 0.0, 1.0], &[1.5, 0.0, 0.0, 1.0], 1.0)?;
/// assert!((error - 0.25).abs() < 1e-12); // 2.5 ≤ (1 + ¼) 2
/// # Ok::<(), argand::Error>(())
/// ```
pub fn spectral_error(kernel: &[f64], approximation: &[f64], lambda: f64) -> Result<f64, Error> {
    let size = square(Argument::Kernel, kernel)?;
    if square(Argument::Approximation, approximation)? != size {
        return Err(Error::invalid(
            Argument::Approximation,
            format!("{} numbers, as kernel", kernel.len()),
            approximation.len(),
        ));
    }
    check_lambda(lambda)?;
    let regularised = Matrix::from_fn(size, size, |i, j| kernel[i * size + j] + if i == j { lambda } else { 0.0 });
    let singular =
        || Error::invalid(Argument::Lambda, "a larger number: kernel + lambda I must be positive definite", lambda);
    let factor = Cholesky::new(regularised).map_err(|_| singular())?;
    let diagonal = || (0..size).map(|i| factor.lower()[(i, i)]);
    let (smallest, largest) = (diagonal().fold(f64::INFINITY, f64::min), diagonal().fold(0.0, f64::max));
    if smallest * smallest <= rounding(size) * largest * largest {
        return Err(singular());
    }
    let mut difference = Matrix::from_fn(size, size, |i, j| approximation[i * size + j] - kernel[i * size + j]);
    factor.solve_lower(difference.view_mut());
    let mut whitened = Matrix::from_fn(size, size, |i, j| difference[(j, i)]);
    factor.solve_lower(whitened.view_mut());
    let values = eigenvalues(whitened.view(), Argument::Approximation)?;
    Ok(values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Guarantee = Guarantee { field: Field::Complex, degree: 3, epsilon: 0.1, delta: 0.01 };

    #[test]
    fn theorem_3_2_by_hand() {
        let log = 100_f64.ln();
        let complex = ASKED.norm_rows().unwrap();
        assert!((complex.quadratic / (8.0 * log * 100.0) - 1.0).abs() < 1e-12);
        assert!(
            (complex.linear / ((2_f64.sqrt() * std::f64::consts::E / 2.0 * log).powi(3) * 10.0) - 1.0).abs() < 1e-12
        );
        assert_eq!(complex.expression(), complex.quadratic.max(complex.linear));
        let real = Guarantee { field: Field::Real, ..ASKED }.norm_rows().unwrap();
        // 3^p against 2^p, and √3^p against √2^p.
        assert!((real.quadratic / complex.quadratic - 1.5_f64.powi(3)).abs() < 1e-12);
        assert!((real.linear / complex.linear - 1.5_f64.powf(1.5)).abs() < 1e-12);
        let ctr = Guarantee { field: Field::ComplexToReal, ..ASKED };
        assert_eq!(ctr.norm_rows(), ASKED.norm_rows());
        assert_eq!(ctr.matrix_product_features().unwrap().quadratic, 2.0 * complex.quadratic);
        assert_eq!(ctr.spectral_features(3.0).unwrap().linear, 18.0 * complex.linear);
    }

    #[test]
    fn the_general_form_at_one_over_p_is_the_theorem_times_its_constants() {
        for degree in 1..6 {
            let asked = Guarantee { degree, ..ASKED };
            let (special, general) = (asked.norm_rows().unwrap(), asked.norm_rows_with(1.0 / degree as f64).unwrap());
            let e = std::f64::consts::E;
            assert!((general.quadratic / special.quadratic / (e * e) - 1.0).abs() < 1e-12);
            assert!((general.linear / special.linear / e - 1.0).abs() < 1e-12);
        }
        // A smaller trade-off allows δ that the theorem does not.
        let likely = Guarantee { delta: 0.5, ..ASKED };
        assert!(likely.norm_rows().is_err() && likely.norm_rows_with(0.1).is_ok());
    }

    #[test]
    fn guarantees_outside_of_the_theorem_are_errors() {
        for (wrong, named) in [
            (Guarantee { delta: 0.14, ..ASKED }, "delta"),
            (Guarantee { delta: 0.0, ..ASKED }, "delta"),
            (Guarantee { epsilon: 0.0, ..ASKED }, "epsilon"),
            (Guarantee { epsilon: f64::NAN, ..ASKED }, "epsilon"),
            (Guarantee { degree: 0, ..ASKED }, "degree"),
        ] {
            assert!(wrong.norm_rows().unwrap_err().to_string().starts_with(named), "{wrong:?}");
        }
        assert!(ASKED.norm_rows_with(0.0).unwrap_err().to_string().starts_with("trade_off"));
        assert!(ASKED.spectral_features(-1.0).is_err());
    }

    #[test]
    fn statistical_dimension_of_known_spectra() {
        // Rank 1 with eigenvalue 5: [1, 2]ᵀ[1, 2].
        let rank_one = [1.0, 2.0, 2.0, 4.0];
        assert!((statistical_dimension(&rank_one, 0.0).unwrap() - 1.0).abs() < 1e-12);
        assert!((statistical_dimension(&rank_one, 5.0).unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(statistical_dimension(&[0.0; 4], 0.0).unwrap(), 0.0);
        for (matrix, lambda, named) in [
            (&[1.0, 2.0, 0.0][..], 1.0, "kernel"),
            (&[1.0, 2.0, 0.0, 1.0], 1.0, "kernel"),
            (&[1.0, 2.0, 2.0, 1.0], 1.0, "kernel"),
            (&[1.0, f64::NAN, f64::NAN, 1.0], 1.0, "kernel"),
            (&[], 1.0, "kernel"),
            (&[1.0], -1.0, "lambda"),
        ] {
            assert!(statistical_dimension(matrix, lambda).unwrap_err().to_string().starts_with(named), "{matrix:?}");
        }
    }

    /// The spectral order holds at the returned ε and at no smaller one.
    #[test]
    fn spectral_error_is_the_smallest() {
        let (kernel, approximation, lambda) = ([2.0, 1.0, 1.0, 3.0], [2.5, 0.5, 0.5, 3.5], 0.5);
        let error = spectral_error(&kernel, &approximation, lambda).unwrap();
        let lowest = |epsilon: f64, sign: f64| {
            let with = |at: usize, matrix: &[f64; 4]| matrix[at] + if at.is_multiple_of(3) { lambda } else { 0.0 };
            let at = |at: usize| sign * (with(at, &approximation) - (1.0 + sign * -epsilon) * with(at, &kernel));
            // The smaller eigenvalue of a symmetric 2 x 2 matrix.
            let (mean, half) = (f64::midpoint(at(0), at(3)), (at(0) - at(3)) / 2.0);
            mean - f64::hypot(half, at(1))
        };
        // sign 1: K̂ − (1 − ε)K ≽ 0; sign −1: (1 + ε)K − K̂ ≽ 0.
        let holds = |epsilon: f64| lowest(epsilon, 1.0) >= -1e-12 && lowest(epsilon, -1.0) >= -1e-12;
        assert!(holds(error) && !holds(0.999 * error), "{error}");
        assert!(
            spectral_error(&[1.0, 1.0, 1.0, 1.0], &approximation, 0.0).unwrap_err().to_string().starts_with("lambda")
        );
        assert!(spectral_error(&[1.0], &approximation, 1.0).is_err());
    }
}
