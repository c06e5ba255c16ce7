//! Input tables, dense or sparse, and their checks.

use std::ops::Range;

use rayon::prelude::*;

use super::{Rows, SparseRows};
use crate::error::{Argument, Error};
use crate::lanes;
use crate::scalar::Scalar;

/// Rows checked at a time.
const CHECKED_ROWS: usize = 64;

/// One input table, dense or sparse.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a, T> {
    /// Dense rows.
    Dense(Rows<'a, T>),
    /// Sparse rows.
    Sparse(SparseRows<'a, T>),
}

impl<'a, T> From<Rows<'a, T>> for Input<'a, T> {
    fn from(rows: Rows<'a, T>) -> Self {
        Self::Dense(rows)
    }
}

impl<'a, T> From<SparseRows<'a, T>> for Input<'a, T> {
    fn from(rows: SparseRows<'a, T>) -> Self {
        Self::Sparse(rows)
    }
}

impl<'a, T: Scalar> Input<'a, T> {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Self::Dense(rows) => rows.rows(),
            Self::Sparse(rows) => rows.rows(),
        }
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        match self {
            Self::Dense(rows) => rows.columns(),
            Self::Sparse(rows) => rows.columns(),
        }
    }

    /// Checks that all numbers are finite and returns the table marked as such: neither it nor its slices are checked
    /// again. `argument` names the table in the message.
    ///
    /// # Errors
    /// [`Error::NotFinite`] with the first offending row and column.
    pub fn checked(self, argument: Argument) -> Result<Self, Error> {
        self.check_finite(argument)?;
        Ok(self.known_finite())
    }

    /// As [`Rows::known_finite`].
    #[must_use]
    pub fn known_finite(mut self) -> Self {
        match &mut self {
            Self::Dense(rows) => rows.finite = true,
            Self::Sparse(rows) => rows.finite = true,
        }
        self
    }

    /// Whether all numbers are known to be finite.
    #[must_use]
    pub fn is_known_finite(&self) -> bool {
        match self {
            Self::Dense(rows) => rows.finite,
            Self::Sparse(rows) => rows.finite,
        }
    }

    /// Checks that all numbers are finite, unless that is known; `argument` names the table in the message.
    ///
    /// # Errors
    /// [`Error::NotFinite`] with the first offending row and column.
    pub fn check_finite(&self, argument: Argument) -> Result<(), Error> {
        if self.is_known_finite() {
            return Ok(());
        }
        let numbers = match self {
            Self::Dense(rows) => rows.rows() * rows.columns(),
            Self::Sparse(rows) => rows.values.len(),
        };
        let block = |start: usize| start..self.rows().min(start + CHECKED_ROWS);
        let bad = |&start: &usize| match self {
            Self::Dense(rows) => !rows.runs(block(start)).all(lanes::all_finite),
            Self::Sparse(rows) => block(start).flat_map(|row| rows.row(row)).any(|(_, value)| !value.is_finite()),
        };
        // Waking a pool takes longer than checking a few numbers.
        let bad_block = if numbers < 1 << 17 {
            (0..self.rows()).step_by(CHECKED_ROWS).find(bad)
        } else {
            (0..self.rows()).into_par_iter().step_by(CHECKED_ROWS).find_first(bad)
        };
        let first_in_row = |row: usize| match self {
            Self::Dense(rows) => rows.row(row).iter().copied().enumerate().find(|(_, value)| !value.is_finite()),
            Self::Sparse(rows) => {
                rows.row(row).filter(|(_, value)| !value.is_finite()).min_by_key(|&(column, _)| column)
            }
        };
        let first = |start| block(start).find_map(|row| first_in_row(row).map(|(column, value)| (row, column, value)));
        let Some((row, column, value)) = bad_block.and_then(first) else { return Ok(()) };
        Err(Error::NotFinite { argument, row, column, value: value.to_f64() })
    }
}

impl<T: Scalar> Input<'_, T> {
    /// Checks that every row has a direction, as spherical random features need.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first row of zeros.
    pub fn check_directions(&self) -> Result<(), Error> {
        let zero = (0..self.rows()).find(|&row| match self {
            Self::Dense(rows) => rows.row(row).iter().all(|&value| value == T::ZERO),
            Self::Sparse(rows) => rows.row(row).all(|(_, value)| value == T::ZERO),
        });
        let Some(row) = zero else { return Ok(()) };
        let expected = "rows that can be scaled to unit norm";
        Err(Error::invalid(Argument::Input(None), expected, format!("zeros in row {row}")))
    }
}

/// Checks that tables have these numbers of columns and the same number of rows, which it returns.
///
/// # Errors
/// [`Error::Invalid`] naming the table.
pub fn check_shapes<T: Scalar>(dims: &[usize], inputs: &[Input<'_, T>]) -> Result<usize, Error> {
    if inputs.len() != dims.len() || inputs.is_empty() {
        return Err(Error::invalid(Argument::Inputs, format!("{} tables", dims.len()), inputs.len()));
    }
    let rows = inputs[0].rows();
    for (index, (input, &dim)) in inputs.iter().zip(dims).enumerate() {
        let argument = Argument::input(index, dims.len());
        if input.columns() != dim {
            return Err(Error::invalid(argument, format!("{dim} columns"), input.columns()));
        }
        if input.rows() != rows {
            return Err(Error::invalid(argument, format!("{rows} rows, as the first input"), input.rows()));
        }
    }
    Ok(rows)
}

/// Checks that tables hold finite numbers.
///
/// # Errors
/// [`Error::NotFinite`] with the first offending table, row and column.
pub fn check_finite<T: Scalar>(inputs: &[Input<'_, T>]) -> Result<(), Error> {
    let count = inputs.len();
    inputs.iter().enumerate().try_for_each(|(index, input)| input.check_finite(Argument::input(index, count)))
}

/// [Checks](Input::checked) tables, each named by its index.
///
/// # Errors
/// [`Error::NotFinite`] with the first offending table, row and column.
pub fn checked<'a, T: Scalar>(inputs: &[Input<'a, T>]) -> Result<Vec<Input<'a, T>>, Error> {
    let count = inputs.len();
    inputs.iter().enumerate().map(|(index, input)| input.checked(Argument::input(index, count))).collect()
}

impl<T: Scalar> Input<'_, T> {
    /// The rows in a range.
    ///
    /// # Panics
    /// If the range does not lie in the table.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows(), "rows {range:?} of {}", self.rows());
        match self {
            Self::Dense(rows) => Self::Dense(rows.slice(range)),
            Self::Sparse(rows) => Self::Sparse(rows.slice(range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::OwnedRows;

    #[test]
    fn slices_are_the_rows_of_the_range() {
        let data: Vec<f32> = (0..11).map(|v| v as f32).collect();
        let dense = Input::from(Rows::with_stride(&data, 3, 3, 4).unwrap());
        let sparse = Input::from(
            SparseRows::new(&[0_u32, 1, 3, 4][..], &[0_u32, 2, 1, 3][..], &[1.0_f32, 2.0, 3.0, 4.0], 4).unwrap(),
        );
        for input in [dense, sparse] {
            for range in [0..3, 1..3, 2..3, 1..1, 3..3] {
                let rows: Vec<usize> = range.clone().collect();
                let (slice, taken) = (input.slice(range), OwnedRows::take(&input, &rows));
                let whole: Vec<usize> = (0..rows.len()).collect();
                assert_eq!(slice.rows(), rows.len());
                assert_eq!(format!("{:?}", OwnedRows::take(&slice, &whole)), format!("{taken:?}"));
            }
        }
    }

    #[test]
    fn first_bad_entry_is_named() {
        let mut data = vec![0.0_f32; 300 * 3];
        data[200 * 3 + 2] = f32::NAN;
        data[299 * 3] = f32::INFINITY;
        let error = Input::from(Rows::new(&data, 300, 3).unwrap()).check_finite(Argument::X).unwrap_err();
        assert_eq!(error.to_string(), "x: row 200, column 2 is NaN; only finite numbers can be sketched");
        // Numbers in gaps between rows do not count.
        data[200 * 3 + 2] = f32::INFINITY;
        assert!(Input::from(Rows::with_stride(&data[..299 * 3], 299, 2, 3).unwrap()).check_finite(Argument::X).is_ok());
        let error = Input::from(Rows::with_stride(&data, 300, 2, 3).unwrap()).check_finite(Argument::X).unwrap_err();
        assert_eq!(error.to_string(), "x: row 299, column 0 is inf; only finite numbers can be sketched");
        let sparse =
            SparseRows::new(&[0_u64, 1, 3][..], &[0_u32, 2, 1][..], &[1.0, f64::NAN, f64::NEG_INFINITY], 3).unwrap();
        let error = Input::from(sparse).check_finite(Argument::X).unwrap_err();
        assert_eq!(error.to_string(), "x: row 1, column 1 is -inf; only finite numbers can be sketched");
    }

    /// A NaN in rows marked as finite goes unnoticed: checked rows are not checked again.
    #[test]
    fn checked_rows_are_not_looked_at_again() {
        let data = [1.0, 2.0, f64::NAN, 4.0];
        let dense = Input::from(Rows::new(&data, 2, 2).unwrap());
        let sparse = Input::from(SparseRows::new(&[0_u64, 2, 4][..], &[0_u64, 1, 0, 1][..], &data, 2).unwrap());
        for input in [dense, sparse] {
            assert!(input.checked(Argument::X).is_err() && checked(&[input]).is_err());
            // Slices and copies remember.
            let first = input.slice(0..1).checked(Argument::X).unwrap();
            assert!(first.is_known_finite() && OwnedRows::take(&first, &[0]).view().is_known_finite());
            assert!(!input.is_known_finite() && !OwnedRows::take(&input, &[0]).view().is_known_finite());
            let marked = input.known_finite();
            assert!(marked.checked(Argument::X).is_ok() && check_finite(&[marked]).is_ok());
            assert!(marked.slice(1..2).check_finite(Argument::X).is_ok());
        }
        assert!(OwnedRows::dense(vec![0.0; 3], 2, 2).is_err());
        assert!(OwnedRows::sparse(vec![0, 1], vec![2], vec![0.0], 2).is_err());
    }
}
