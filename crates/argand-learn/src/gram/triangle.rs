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
    pub(crate) fn zeros(dim: usize) -> Self {
        Self { dim, values: vec![0.0; dim * (dim + 1) / 2] }
    }

    /// Of numbers row by row, of which there are enough.
    pub(crate) fn from_values(dim: usize, values: Vec<f64>) -> Self {
        Self { dim, values }
    }

    /// Row by row.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// The sum of the diagonal.
    pub(crate) fn trace(&self) -> f64 {
        (0..self.dim).map(|row| self.values[row * (row + 3) / 2]).sum()
    }

    /// Entries 0..=row of a row.
    pub(crate) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * (row + 1) / 2..][..=row]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.add_packed(&other.values);
    }

    /// Adds another triangle, row by row.
    pub(crate) fn add_packed(&mut self, values: &[f64]) {
        self.values.par_iter_mut().zip(values).with_min_len(1 << 14).for_each(|(sum, value)| *sum += value);
    }

    /// self + c·I, packed.
    pub(crate) fn plus(&self, c: f64) -> Vec<f64> {
        let mut packed = self.values.clone();
        (0..self.dim).for_each(|row| packed[row * (row + 3) / 2] += c);
        packed
    }

    /// Adds the products of rows.
    pub(crate) fn add_rows(&mut self, rows: &[&[f32]], packed: &mut Packed) {
        for rows in rows.chunks(SUMMED_ROWS) {
            packed.fill(rows);
            packed.add_products(self.dim, &mut self.values, false);
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

/// ΦᵀΦ of a group of rows (all of them, or those of a class), or these rows while they are few.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Products {
    /// Features, row by row.
    Rows(Vec<f32>),
    Sums(Triangle),
}

/// Classes from which on their rows are kept while they are few: with fewer that have [`most_kept`] rows, a factor that all of them
/// share takes more than it saves.
const KEEPING_CLASSES: usize = 5;

/// Rows of each group that are kept at most.
///
/// Of a single group, fewer than features: ridge regression then takes n²D + n³/3 operations by way of them instead of nD² + D³/3, in
/// less memory than the sums. Of classes, three eighths of the features, in three eighths of the memory of the sums: by way
/// of n rows, a class takes nD²/2 + n²D multiplications instead of D³/6, fewer below n = 0.23D, and as much time at D/3, as
/// products of matrices are faster than factorisations. A predicted row takes nD instead of D²/2.
pub(super) fn most_kept(groups: usize, dim: usize) -> usize {
    match groups {
        1 => dim.saturating_sub(1),
        KEEPING_CLASSES.. => dim / 8 * 3,
        _ => 0,
    }
}

impl Products {
    /// Of no rows.
    pub(super) fn empty(groups: usize, dim: usize) -> Self {
        if most_kept(groups, dim) > 0 { Self::Rows(Vec::new()) } else { Self::Sums(Triangle::zeros(dim)) }
    }

    /// Sums up rows that are kept, if they would be more than `most` with `more` of them.
    pub(super) fn prepare(&mut self, more: usize, most: usize, dim: usize, packed: &mut Packed) {
        if let Self::Rows(kept) = self
            && kept.len() / dim + more > most
        {
            *self = Self::Sums(sums_of(kept, dim, packed));
        }
    }

    pub(super) fn add_rows(&mut self, rows: &[&[f32]], most: usize, dim: usize, packed: &mut Packed) {
        self.prepare(rows.len(), most, dim, packed);
        match self {
            Self::Sums(sums) => sums.add_rows(rows, packed),
            Self::Rows(kept) => rows.iter().for_each(|row| kept.extend_from_slice(row)),
        }
    }

    pub(super) fn merge(&mut self, other: &Self, most: usize, dim: usize, packed: &mut Packed) {
        match (&mut *self, other) {
            (_, Self::Rows(rows)) => self.add_rows(&split(rows, dim), most, dim, packed),
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
