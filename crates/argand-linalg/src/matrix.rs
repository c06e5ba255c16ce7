//! A matrix of double-precision numbers.

use std::ops::{Index, IndexMut};

use faer::Mat;

use crate::product::{View, ViewMut};

/// A matrix of `f64`, column by column.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix(pub(crate) Mat<f64>);

impl Matrix {
    /// A matrix of zeros.
    #[must_use]
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self(Mat::zeros(rows, columns))
    }

    /// The identity.
    #[must_use]
    pub fn identity(size: usize) -> Self {
        Self(Mat::identity(size, size))
    }

    /// A matrix from the number at every (row, column).
    #[must_use]
    pub fn from_fn(rows: usize, columns: usize, mut number: impl FnMut(usize, usize) -> f64) -> Self {
        let mut matrix = Self::zeros(rows, columns);
        for column in 0..columns {
            matrix.column_mut(column).iter_mut().enumerate().for_each(|(row, to)| *to = number(row, column));
        }
        matrix
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.0.nrows()
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.0.ncols()
    }

    /// One column.
    #[must_use]
    pub fn column(&self, index: usize) -> &[f64] {
        self.0.col_as_slice(index)
    }

    /// One column, mutable.
    pub fn column_mut(&mut self, index: usize) -> &mut [f64] {
        self.0.col_as_slice_mut(index)
    }

    /// A view of the whole matrix.
    #[must_use]
    pub fn view(&self) -> View<'_, f64> {
        View(self.0.as_ref())
    }

    /// A mutable view of the whole matrix.
    pub fn view_mut(&mut self) -> ViewMut<'_, f64> {
        ViewMut(self.0.as_mut())
    }

    /// ‖a‖² of every column a.
    #[must_use]
    pub fn squared_norms(&self) -> Vec<f64> {
        self.0.col_iter().map(|column| column.squared_norm_l2()).collect()
    }

    /// An orthonormal basis of the space that the columns span, if they are independent: the thin Q of A = QR.
    ///
    /// ```
    /// use argand_linalg::Matrix;
    /// let basis = Matrix::from_fn(2, 1, |row, _| [3.0, 4.0][row]).orthonormal_basis();
    /// assert!((basis[(0, 0)].abs() - 0.6).abs() < 1e-15 && (basis[(1, 0)].abs() - 0.8).abs() < 1e-15);
    /// ```
    #[must_use]
    pub fn orthonormal_basis(&self) -> Self {
        Self(self.0.qr().compute_thin_Q())
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;

    #[inline]
    fn index(&self, (row, column): (usize, usize)) -> &f64 {
        &self.0[(row, column)]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    #[inline]
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut f64 {
        &mut self.0[(row, column)]
    }
}
