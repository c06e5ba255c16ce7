//! Cholesky factors of positive definite matrices, and systems solved with them.

use std::error::Error;
use std::fmt;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::triangular::{BlockStructure, matmul as triangular_matmul};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::{Accum, Mat, MatMut, MatRef, Par};

use crate::eigen::Eigen;
use crate::matrix::Matrix;
use crate::product::{View, ViewMut, add_product, product};

/// The matrix is not positive definite, or so close to indefinite that solutions would have no correct digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotPositiveDefinite;

impl fmt::Display for NotPositiveDefinite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the matrix is not positive definite to working precision")
    }
}

impl Error for NotPositiveDefinite {}

/// A = LLᵀ.
#[derive(Debug, Clone)]
pub struct Cholesky {
    lower: Matrix,
}

impl Cholesky {
    /// Factors a matrix, reading only its lower triangle.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if a pivot is at most ε times the largest number on the diagonal.
    ///
    /// ```
    /// use argand_linalg::{Cholesky, Matrix};
    /// let factor = Cholesky::new(Matrix::from_fn(2, 2, |i, j| [[4.0, 2.0], [2.0, 5.0]][i][j]))?;
    /// let [half, solution] = factor.solve(&[2.0, 5.0]);
    /// assert_eq!((half, solution), (vec![1.0, 2.0], vec![0.0, 1.0]));
    /// # Ok::<(), argand_linalg::NotPositiveDefinite>(())
    /// ```
    pub fn new(mut matrix: Matrix) -> Result<Self, NotPositiveDefinite> {
        let size = matrix.rows();
        let largest = (0..size).map(|i| matrix[(i, i)]).fold(0.0, f64::max);
        let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(size, Par::Seq, Default::default()));
        let done = cholesky_in_place(
            matrix.0.as_mut(),
            Default::default(),
            Par::Seq,
            MemStack::new(&mut memory),
            Default::default(),
        );
        let pivots = (0..size).map(|i| matrix[(i, i)]).fold(f64::INFINITY, f64::min);
        // A NaN pivot fails every comparison.
        let regular = pivots * pivots > f64::EPSILON * largest;
        if done.is_err() || !regular { Err(NotPositiveDefinite) } else { Ok(Self { lower: matrix }) }
    }

    /// As [`Cholesky::new`] for a matrix whose eigenvalues are at least `floor`, up to rounding. If rounding made it
    /// indefinite, smaller eigenvalues are raised to `floor`, which gives the nearest such matrix.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if that does not help.
    pub fn with_floor(matrix: impl Fn() -> Matrix, floor: f64) -> Result<Self, NotPositiveDefinite> {
        Self::new(matrix()).or_else(|_| Self::lifted(&matrix(), floor))
    }

    fn lifted(matrix: &Matrix, floor: f64) -> Result<Self, NotPositiveDefinite> {
        let Eigen { values, vectors } = Eigen::new(matrix).map_err(|_| NotPositiveDefinite)?;
        let mut scaled = vectors.0;
        for (column, value) in scaled.col_iter_mut().zip(values) {
            column.iter_mut().for_each(|entry| *entry *= value.max(floor).sqrt());
        }
        Self::new(Matrix(&scaled * scaled.transpose()))
    }

    /// An existing factor: a lower triangular matrix with a positive diagonal. The upper triangle is not read.
    #[must_use]
    pub fn from_lower(lower: Matrix) -> Self {
        Self { lower }
    }

    /// L; its upper triangle is unspecified.
    #[must_use]
    pub fn lower(&self) -> &Matrix {
        &self.lower
    }

    /// L⁻¹B, in place of B.
    pub fn solve_lower(&self, right: ViewMut<'_, f64>) {
        solve_lower_triangular_in_place(self.lower.0.as_ref(), right.0, Par::Seq);
    }

    /// L⁻ᵀB, in place of B.
    pub fn solve_upper(&self, right: ViewMut<'_, f64>) {
        solve_upper_triangular_in_place(self.lower.0.transpose(), right.0, Par::Seq);
    }

    /// L⁻¹b and A⁻¹b.
    #[must_use]
    pub fn solve(&self, right: &[f64]) -> [Vec<f64>; 2] {
        let mut values = Matrix::from_fn(right.len(), 1, |row, _| right[row]);
        self.solve_lower(values.view_mut());
        let half = values.column(0).to_vec();
        self.solve_upper(values.view_mut());
        [half, values.column(0).to_vec()]
    }

    /// bᵀA⁻¹b, A⁻¹b and log det A.
    #[must_use]
    pub fn solved(&self, right: &[f64]) -> Solved {
        let [half, solution] = self.solve(right);
        let explained = half.iter().map(|value| value * value).sum();
        Solved { explained, solution, log_determinant: self.log_determinant() }
    }

    /// log det A
    #[must_use]
    pub fn log_determinant(&self) -> f64 {
        2.0 * (0..self.lower.rows()).map(|i| self.lower[(i, i)].ln()).sum::<f64>()
    }

    /// As [`Cholesky::solved`] for A + wΦᵀΦ with few rows of Φ, and their [`RankUpdate`]; `None` if rounding made I + wΦA⁻¹Φᵀ
    /// indefinite.
    ///
    /// # Formula
    /// With U = √w L⁻¹Φᵀ, I + UᵀU = RRᵀ and T = R⁻¹Uᵀ: (A + wΦᵀΦ)⁻¹ = L⁻ᵀ(I − TᵀT)L⁻¹ and
    /// log det(A + wΦᵀΦ) = log det A + log det(I + UᵀU).
    ///
    /// # Cost
    /// nD²/2 + n²D + n³/6 multiplications.
    #[must_use]
    pub fn with_rows(&self, rows: &[f32], weight: f64, right: &[f64]) -> Option<(Solved, RankUpdate)> {
        let dim = self.lower.rows();
        let (count, root) = (rows.len() / dim, weight.sqrt());
        // The right-hand side is one more column.
        let columns = rows.iter().map(|&value| root * f64::from(value)).chain(right.iter().copied());
        let mut values: Vec<f64> = columns.collect();
        self.solve_lower(ViewMut::by_columns(&mut values, dim, count + 1));
        let half = values.split_off(rows.len());
        let mut inner = Mat::<f64>::identity(count, count);
        let along = MatRef::from_column_major_slice(&values, dim, count);
        triangular_matmul(
            inner.as_mut(),
            BlockStructure::TriangularLower,
            Accum::Add,
            along.transpose(),
            BlockStructure::Rectangular,
            along,
            BlockStructure::Rectangular,
            1.0,
            Par::Seq,
        );
        let inner = Self::new(Matrix(inner)).ok()?;
        let transposed = MatMut::from_row_major_slice_mut(&mut values, count, dim);
        inner.solve_lower(ViewMut(transposed));
        let update = RankUpdate { dim, values };
        let half = MatRef::from_column_major_slice(&half, dim, 1);
        let (mut along, mut rest) = (Matrix::zeros(count, 1), Matrix(half.to_owned()));
        product(along.view_mut(), update.view(), View(half), 1.0);
        add_product(rest.view_mut(), update.view().transpose(), along.view(), -1.0);
        let explained = half.squared_norm_l2() - along.0.squared_norm_l2();
        self.solve_upper(rest.view_mut());
        let solution = rest.column(0).to_vec();
        let log_determinant = self.log_determinant() + inner.log_determinant();
        Some((Solved { explained, solution, log_determinant }, update))
    }
}

/// The solution of a system Ax = b.
#[derive(Debug, Clone, PartialEq)]
pub struct Solved {
    /// bᵀA⁻¹b
    pub explained: f64,
    /// A⁻¹b
    pub solution: Vec<f64>,
    /// log det A
    pub log_determinant: f64,
}

/// The T of [`Cholesky::with_rows`]: for its A = LLᵀ, φᵀ(A + wΦᵀΦ)⁻¹φ = ‖L⁻¹φ‖² − ‖T L⁻¹φ‖².
#[derive(Debug, Clone, PartialEq)]
pub struct RankUpdate {
    dim: usize,
    values: Vec<f64>,
}

impl RankUpdate {
    /// T from its numbers, row by row.
    #[must_use]
    pub fn from_rows(dim: usize, values: Vec<f64>) -> Self {
        Self { dim, values }
    }

    /// The numbers of T, row by row.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of rows of T, the same as of Φ.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.values.len() / self.dim
    }

    /// T
    #[must_use]
    pub fn view(&self) -> View<'_, f64> {
        View::by_rows(&self.values, self.rank(), self.dim)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// [[2, 1], [1, 0]] has the eigenvalues 1 ± √2: the negative one is raised, the other stays.
    #[test]
    fn eigenvalues_are_lifted_to_the_floor() {
        let matrix = || Matrix::from_fn(2, 2, |i, j| [[2.0, 1.0], [1.0, 0.0]][i][j]);
        assert!(Cholesky::new(matrix()).is_err());
        let lower = Cholesky::with_floor(matrix, 0.5).unwrap().lower;
        let [a, b, c] = [lower[(0, 0)], lower[(1, 0)], lower[(1, 1)]];
        let [trace, determinant] = [a * a + b * b + c * c, (a * c).powi(2)];
        let large = 1.0 + 2_f64.sqrt();
        assert!((trace - (large + 0.5)).abs() < 1e-12 && (determinant - large * 0.5).abs() < 1e-12);
        // A definite matrix stays unchanged, whatever the floor.
        let identity = Cholesky::with_floor(|| Matrix::identity(2), 9.0).unwrap();
        assert!((identity.lower[(0, 0)] - 1.0).abs() < 1e-15);
    }

    /// A + wΦᵀΦ by rows and by its factor.
    #[test]
    fn rows_are_added_to_a_factor() {
        let (dim, count, weight) = (5, 3, 0.5);
        let rows: Vec<f32> = (0..count * dim).map(|at| (at * 7 % 11) as f32 - 5.0).collect();
        let right: Vec<f64> = (0..dim).map(|i| i as f64 - 1.5).collect();
        let matrix = |weight: f64| {
            Matrix::from_fn(dim, dim, |i, j| {
                let products = rows.chunks(dim).map(|row| f64::from(row[i]) * f64::from(row[j])).sum::<f64>();
                weight * products + if i == j { 2.0 + i as f64 } else { 0.1 }
            })
        };
        let base = Cholesky::new(matrix(0.0)).unwrap();
        let (got, update) = base.with_rows(&rows, weight, &right).unwrap();
        let want = Cholesky::new(matrix(weight)).unwrap().solved(&right);
        assert!((got.explained - want.explained).abs() < 1e-12);
        assert!((got.log_determinant - want.log_determinant).abs() < 1e-12);
        got.solution.iter().zip(&want.solution).for_each(|(got, want)| assert!((got - want).abs() < 1e-12));
        assert_eq!((update.rank(), update.values().len()), (count, count * dim));
        // Matrices that are indefinite by rounding, or NaN, give no solution.
        for weight in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(base.with_rows(&rows, weight, &right).is_none());
        }
    }
}
