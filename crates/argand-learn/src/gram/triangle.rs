//! ΦᵀΦ of some rows: as sums, or as the rows themselves while they are few.

use argand_linalg::Matrix;
use rayon::prelude::*;

use super::products::Packed;
use crate::blocks::SUMMED_ROWS;

/// The lower triangle of a symmetric matrix, row by row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Triangle {
    pub(super) dim: usize,
    pub(super) values: Vec<f64>,
}

impl Triangle {
    pub(super) fn zeros(dim: usize) -> Self {
        Self { dim, values: vec![0.0; dim * (dim + 1) / 2] }
    }

    /// Entries 0..=row of a row.
    pub(crate) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * (row + 1) / 2..][..=row]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.values.par_iter_mut().zip(&other.values).with_min_len(1 << 14).for_each(|(sum, value)| *sum += value);
    }

    /// Adds the products of rows.
    pub(super) fn add_rows(&mut self, rows: &[&[f32]], packed: &mut Packed) {
        for rows in rows.chunks(SUMMED_ROWS) {
            packed.fill(rows);
            packed.add_products(self.dim, &mut self.values);
        }
    }

    /// a·self + b·other + c·I, packed.
    pub(crate) fn combine_packed(&self, a: f64, b: f64, other: &Self, c: f64) -> Vec<f64> {
        let mut packed: Vec<f64> =
            self.values.iter().zip(&other.values).map(|(one, other)| a * one + b * other).collect();
        (0..self.dim).for_each(|row| packed[row * (row + 3) / 2] += c);
        packed
    }

    /// a·self + b·other + c·I as the lower triangle of a matrix; what is above is zero.
    pub(crate) fn combine(&self, a: f64, other: Option<(f64, &Self)>, c: f64) -> Matrix {
        const COLUMNS: usize = 16;
        let mut matrix = Matrix::zeros(self.dim, self.dim);
        // A few columns at a time, so that both sides are read and written in lines.
        for first in (0..self.dim).step_by(COLUMNS) {
            for row in first..self.dim {
                for column in first..=(first + COLUMNS - 1).min(row) {
                    let second = other.map_or(0.0, |(b, other)| b * other.row(row)[column]);
                    let diagonal = if row == column { c } else { 0.0 };
                    matrix[(row, column)] = a * self.row(row)[column] + second + diagonal;
                }
            }
        }
        matrix
    }
}

/// ΦᵀΦ of the rows of a class, or these rows while they are few.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Products {
    /// Features, row by row.
    Rows(Vec<f32>),
    Sums(Triangle),
}

/// Classes from which on their rows are kept while they are few: with fewer that have [`most_kept`] rows, a factor that all of them
/// share takes more than it saves.
pub(super) const KEEPING_CLASSES: usize = 5;

/// Rows of a class that are kept at most: three eighths of the features, in three eighths of the memory of the sums.
///
/// By way of n rows, a class takes nD²/2 + n²D multiplications instead of D³/6: fewer below n = 0.23D, and as much time at D/3, as
/// products of matrices are faster than factorisations. A predicted row takes nD instead of D²/2.
fn most_kept(dim: usize) -> usize {
    dim / 8 * 3
}

impl Products {
    pub(super) fn add_rows(&mut self, rows: &[&[f32]], dim: usize, packed: &mut Packed) {
        match self {
            Self::Sums(sums) => sums.add_rows(rows, packed),
            Self::Rows(kept) if kept.len() / dim + rows.len() <= most_kept(dim) => {
                rows.iter().for_each(|row| kept.extend_from_slice(row));
            }
            Self::Rows(kept) => {
                let mut sums = sums_of(kept, dim, packed);
                sums.add_rows(rows, packed);
                *self = Self::Sums(sums);
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self, dim: usize, packed: &mut Packed) {
        match (&mut *self, other) {
            (_, Self::Rows(rows)) => self.add_rows(&split(rows, dim), dim, packed),
            (Self::Sums(sums), Self::Sums(other)) => sums.add(other),
            (Self::Rows(kept), Self::Sums(other)) => {
                let mut sums = sums_of(kept, dim, packed);
                sums.add(other);
                *self = Self::Sums(sums);
            }
        }
    }
}

pub(super) fn split(rows: &[f32], dim: usize) -> Vec<&[f32]> {
    rows.chunks_exact(dim).collect()
}

pub(super) fn sums_of(rows: &[f32], dim: usize, packed: &mut Packed) -> Triangle {
    let mut sums = Triangle::zeros(dim);
    sums.add_rows(&split(rows, dim), packed);
    sums
}
