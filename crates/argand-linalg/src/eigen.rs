//! Eigenvalues of symmetric matrices.

use std::error::Error;
use std::fmt;

use faer::Side;

use crate::matrix::Matrix;
use crate::product::View;

/// The eigenvalues of a matrix could not be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoConvergence;

impl fmt::Display for NoConvergence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the eigenvalues did not converge")
    }
}

impl Error for NoConvergence {}

/// A = QEQᵀ with ascending eigenvalues.
#[derive(Debug, Clone)]
pub struct Eigen {
    /// The diagonal of E.
    pub values: Vec<f64>,
    /// Q, a column for each eigenvalue.
    pub vectors: Matrix,
}

impl Eigen {
    /// Decomposes a symmetric matrix, reading only its lower triangle.
    ///
    /// # Errors
    /// [`NoConvergence`], for example if numbers are not finite.
    ///
    /// ```
    /// use argand_linalg::{Eigen, Matrix};
    /// let matrix = Matrix::from_fn(2, 2, |i, j| if i == j { 2.0 } else { 1.0 });
    /// let eigen = Eigen::new(&matrix)?;
    /// assert!((eigen.values[0] - 1.0).abs() < 1e-15 && (eigen.values[1] - 3.0).abs() < 1e-15);
    /// # Ok::<(), argand_linalg::NoConvergence>(())
    /// ```
    pub fn new(matrix: &Matrix) -> Result<Self, NoConvergence> {
        let found = matrix.0.self_adjoint_eigen(Side::Lower).map_err(|_| NoConvergence)?;
        let values = found.S().column_vector().iter().copied().collect();
        Ok(Self { values, vectors: Matrix(found.U().to_owned()) })
    }

    /// Qᵀb
    #[must_use]
    pub fn rotate(&self, vector: &[f64]) -> Vec<f64> {
        let product = |column: &[f64]| column.iter().zip(vector).map(|(q, value)| q * value).sum();
        (0..self.vectors.columns()).map(|index| product(self.vectors.column(index))).collect()
    }

    /// Qz
    #[must_use]
    pub fn rotate_back(&self, vector: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.vectors.rows()];
        for (index, &factor) in vector.iter().enumerate() {
            sum.iter_mut().zip(self.vectors.column(index)).for_each(|(sum, q)| *sum += factor * q);
        }
        sum
    }
}

/// The ascending eigenvalues of a symmetric matrix, reading only its lower triangle.
///
/// # Errors
/// As [`Eigen::new`].
pub fn eigenvalues(matrix: View<'_, f64>) -> Result<Vec<f64>, NoConvergence> {
    matrix.0.self_adjoint_eigenvalues(Side::Lower).map_err(|_| NoConvergence)
}
