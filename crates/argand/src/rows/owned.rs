//! Rows that own their numbers.

use super::{Indices, Input, Numbers, Rows, SparseRows};
use crate::error::Error;
use crate::scalar::Scalar;

/// Rows that own their numbers, copied or computed from a table.
#[derive(Debug, Clone)]
pub struct OwnedRows<T> {
    parts: Parts<T>,
    finite: bool,
}

#[derive(Debug, Clone)]
enum Parts<T> {
    Dense { rows: usize, columns: usize, values: Vec<T> },
    Sparse { columns: usize, row_starts: Vec<u64>, columns_of: Vec<u64>, values: Vec<T> },
}

impl<T: Scalar> OwnedRows<T> {
    /// Dense rows, one after the other.
    ///
    /// # Errors
    /// As [`Rows::new`].
    pub fn dense(values: Vec<T>, rows: usize, columns: usize) -> Result<Self, Error> {
        Rows::new(&values, rows, columns)?;
        Ok(Self { parts: Parts::Dense { rows, columns, values }, finite: false })
    }

    /// Sparse rows, as in [`SparseRows`].
    ///
    /// # Errors
    /// As [`SparseRows::new`].
    pub fn sparse(row_starts: Vec<u64>, columns_of: Vec<u64>, values: Vec<T>, columns: usize) -> Result<Self, Error> {
        SparseRows::new(&row_starts[..], &columns_of[..], &values, columns)?;
        Ok(Self { parts: Parts::Sparse { columns, row_starts, columns_of, values }, finite: false })
    }

    /// As [`Rows::known_finite`].
    #[must_use]
    pub fn known_finite(mut self) -> Self {
        self.finite = true;
        self
    }

    /// The rows with these indices, in this order.
    ///
    /// # Panics
    /// If one of them does not exist.
    #[must_use]
    pub fn take(input: &Input<'_, T>, rows: &[usize]) -> Self {
        let columns = input.columns();
        let parts = match input {
            Input::Dense(table) => {
                let values = rows.iter().flat_map(|&row| table.row(row)).copied().collect();
                Parts::Dense { rows: rows.len(), columns, values }
            }
            Input::Sparse(table) => {
                let (mut row_starts, mut columns_of, mut values) = (vec![0], vec![], vec![]);
                for &row in rows {
                    for (column, value) in table.row(row) {
                        columns_of.push(column as u64);
                        values.push(value);
                    }
                    row_starts.push(values.len() as u64);
                }
                Parts::Sparse { columns, row_starts, columns_of, values }
            }
        };
        Self { parts, finite: input.is_known_finite() }
    }

    /// The same rows, each times a factor.
    pub(crate) fn scaled(&self, factor: impl Fn(usize) -> T) -> Self {
        let mut scaled = self.clone();
        match &mut scaled.parts {
            Parts::Dense { columns, values, .. } => {
                for (row, values) in values.chunks_exact_mut((*columns).max(1)).enumerate() {
                    values.iter_mut().for_each(|value| *value *= factor(row));
                }
            }
            Parts::Sparse { row_starts, values, .. } => {
                for (row, ends) in row_starts.windows(2).enumerate() {
                    let range = ends.iter().map(|&end| usize::try_from(end).unwrap_or(usize::MAX));
                    let (start, end) = (range.clone().min().unwrap_or(0), range.max().unwrap_or(0));
                    let factor = factor(row);
                    values[start..end].iter_mut().for_each(|value| *value *= factor);
                }
            }
        }
        scaled
    }

    /// The rows as an input.
    #[must_use]
    pub fn view(&self) -> Input<'_, T> {
        let finite = self.finite;
        match &self.parts {
            Parts::Dense { rows, columns, values } => {
                let numbers = Numbers::Slice { data: values, stride: *columns };
                Input::Dense(Rows { numbers, rows: *rows, start: 0, columns: *columns, finite })
            }
            Parts::Sparse { columns, row_starts, columns_of, values } => {
                let (row_starts, columns_of) = (Indices::U64(row_starts), Indices::U64(columns_of));
                Input::Sparse(SparseRows { row_starts, columns_of, values, columns: *columns, finite })
            }
        }
    }
}
