//! Views of input and output tables, and copies of some of their rows.
//!
//! Numbers are checked once: a view that [`Input::checked`] has looked at remembers that its numbers are finite, and so do its slices.

mod groups;
mod input;
mod owned;
mod sparse;

use std::ops::Range;

use crate::error::{Argument, Error};
#[cfg(any(feature = "ndarray", feature = "faer"))]
use crate::interop;

pub use groups::Groups;
pub use input::{Input, check_finite, check_shapes, checked};
pub use owned::OwnedRows;
pub use sparse::{Indices, SparseRows};

/// A dense row-major table; rows may be further apart than they are long.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    numbers: Numbers<'a, T>,
    rows: usize,
    /// The first column of `numbers` that belongs to the table.
    start: usize,
    columns: usize,
    /// All numbers are known to be finite.
    finite: bool,
}

/// Where the numbers of a table lie. A slice must not reach over what lies between the rows of another library's view: it may be
/// lent to someone else, or not be initialised. Such views are asked for one row at a time.
#[derive(Debug, Clone, Copy)]
enum Numbers<'a, T> {
    /// Row `i` starts at `i * stride`.
    Slice { data: &'a [T], stride: usize },
    #[cfg(feature = "ndarray")]
    Array(interop::ndarray::ArrayRows<'a, T>),
    #[cfg(feature = "faer")]
    Matrix(interop::faer::MatrixRows<'a, T>),
    /// Row `i` is that of the group of row `first + i`.
    Repeated { of_groups: &'a [&'a [T]], groups: &'a Groups, first: usize },
}

/// As [`Rows`], to be written.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    numbers: NumbersMut<'a, T>,
    rows: usize,
    /// The first column of `numbers` that belongs to the table.
    start: usize,
    columns: usize,
}

/// As [`Numbers`], to be written.
#[derive(Debug)]
enum NumbersMut<'a, T> {
    Slice {
        data: &'a mut [T],
        stride: usize,
    },
    #[cfg(feature = "ndarray")]
    Array(interop::ndarray::ArrayRowsMut<'a, T>),
    #[cfg(feature = "faer")]
    Matrix(interop::faer::MatrixRowsMut<'a, T>),
}

/// Elements spanned by a table: the last row needs no padding after it.
fn span(rows: usize, columns: usize, stride: usize) -> Result<usize, Error> {
    if stride < columns {
        return Err(Error::invalid(Argument::Stride, format!("at least the {columns} columns"), stride));
    }
    match rows.checked_sub(1) {
        None => Ok(0),
        Some(before_last) => {
            before_last.checked_mul(stride).and_then(|start| start.checked_add(columns)).ok_or_else(|| {
                Error::invalid(Argument::Rows, "a table that fits into memory", format!("{rows} rows of {stride}"))
            })
        }
    }
}

fn check_length(length: usize, rows: usize, columns: usize, stride: usize) -> Result<(), Error> {
    let needed = span(rows, columns, stride)?;
    if length < needed || (stride == columns && length != needed) {
        return Err(Error::invalid(Argument::Data, format!("{needed} numbers for {rows} x {columns}"), length));
    }
    Ok(())
}

impl<'a, T> Rows<'a, T> {
    /// A table without gaps: `data` holds exactly `rows * columns` numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the length is another.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::with_stride(data, rows, columns, columns)
    }

    /// A table whose row `i` starts at `i * stride`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rows overlap or reach beyond `data`.
    pub fn with_stride(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Result<Self, Error> {
        check_length(data.len(), rows, columns, stride)?;
        Ok(Self { numbers: Numbers::Slice { data, stride }, rows, start: 0, columns, finite: false })
    }

    #[cfg(feature = "ndarray")]
    pub(crate) fn of_array(array: interop::ndarray::ArrayRows<'a, T>) -> Self {
        let (rows, columns) = array.dims();
        Self { numbers: Numbers::Array(array), rows, start: 0, columns, finite: false }
    }

    #[cfg(feature = "faer")]
    pub(crate) fn of_matrix(matrix: interop::faer::MatrixRows<'a, T>) -> Self {
        let (rows, columns) = matrix.dims();
        Self { numbers: Numbers::Matrix(matrix), rows, start: 0, columns, finite: false }
    }

    /// One row per group, repeated for all rows of its group without a copy.
    pub(crate) fn repeated(of_groups: &'a [&'a [T]], groups: &'a Groups, columns: usize) -> Self {
        let numbers = Numbers::Repeated { of_groups, groups, first: 0 };
        Self { numbers, rows: groups.rows(), start: 0, columns, finite: false }
    }

    /// The same rows, whose numbers are known to be finite: they are not looked at again. This is for numbers that are finite by
    /// construction, such as features; [`Input::checked`] is for all others.
    #[must_use]
    pub fn known_finite(mut self) -> Self {
        self.finite = true;
        self
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Row `index`.
    #[must_use]
    #[inline(always)]
    pub fn row(&self, index: usize) -> &'a [T] {
        let row = match &self.numbers {
            Numbers::Slice { data, stride } => &data[index * stride..],
            #[cfg(feature = "ndarray")]
            Numbers::Array(array) => array.row(index),
            #[cfg(feature = "faer")]
            Numbers::Matrix(matrix) => matrix.row(index),
            Numbers::Repeated { of_groups, groups, first } => of_groups[groups.of_row(first + index)],
        };
        &row[self.start..][..self.columns]
    }

    /// Some of the columns.
    pub(crate) fn columns_in(&self, range: &Range<usize>) -> Self
    where
        T: Copy,
    {
        debug_assert!(range.end <= self.columns, "columns of the table");
        Self { start: self.start + range.start, columns: range.len(), ..*self }
    }

    /// The rows in a range.
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        let rows = range.len();
        let numbers = match &self.numbers {
            Numbers::Slice { data, stride } => {
                let start = if range.is_empty() { 0 } else { range.start * stride };
                let length = if range.is_empty() { 0 } else { (rows - 1) * stride + self.start + self.columns };
                Numbers::Slice { data: &data[start..][..length], stride: *stride }
            }
            #[cfg(feature = "ndarray")]
            Numbers::Array(array) => Numbers::Array(array.slice(range)),
            #[cfg(feature = "faer")]
            Numbers::Matrix(matrix) => Numbers::Matrix(matrix.slice(range)),
            Numbers::Repeated { of_groups, groups, first } => {
                Numbers::Repeated { of_groups, groups, first: first + range.start }
            }
        };
        Self { numbers, rows, ..*self }
    }

    /// The numbers of some rows, as few slices: one if there are no gaps.
    fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = &'a [T]> + use<'a, T>
    where
        T: Copy,
    {
        let table = *self;
        let whole = match table.numbers {
            Numbers::Slice { data, stride } if stride == table.columns && table.start == 0 => Some(data),
            _ => None,
        };
        let together = if whole.is_some() { rows.len().max(1) } else { 1 };
        rows.step_by(together).map(move |first| match whole {
            Some(data) => &data[first * table.columns..][..together * table.columns],
            None => table.row(first),
        })
    }
}

impl<'a, T> RowsMut<'a, T> {
    /// A table without gaps: `data` holds exactly `rows * columns` numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the length is another.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::with_stride(data, rows, columns, columns)
    }

    /// A table whose row `i` starts at `i * stride`; what lies between the rows is left alone.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rows overlap or reach beyond `data`.
    pub fn with_stride(data: &'a mut [T], rows: usize, columns: usize, stride: usize) -> Result<Self, Error> {
        check_length(data.len(), rows, columns, stride)?;
        Ok(Self { numbers: NumbersMut::Slice { data, stride }, rows, start: 0, columns })
    }

    #[cfg(feature = "ndarray")]
    pub(crate) fn of_array(array: interop::ndarray::ArrayRowsMut<'a, T>) -> Self {
        let (rows, columns) = array.dims();
        Self { numbers: NumbersMut::Array(array), rows, start: 0, columns }
    }

    #[cfg(feature = "faer")]
    pub(crate) fn of_matrix(matrix: interop::faer::MatrixRowsMut<'a, T>) -> Self {
        let (rows, columns) = matrix.dims();
        Self { numbers: NumbersMut::Matrix(matrix), rows, start: 0, columns }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Row `index`.
    #[inline(always)]
    pub fn row_mut(&mut self, index: usize) -> &mut [T] {
        let row = match &mut self.numbers {
            NumbersMut::Slice { data, stride } => &mut data[index * *stride..],
            #[cfg(feature = "ndarray")]
            NumbersMut::Array(array) => array.row_mut(index),
            #[cfg(feature = "faer")]
            NumbersMut::Matrix(matrix) => matrix.row_mut(index),
        };
        &mut row[self.start..][..self.columns]
    }

    /// Some of the columns.
    pub(crate) fn columns_in(&mut self, range: &Range<usize>) -> RowsMut<'_, T> {
        debug_assert!(range.end <= self.columns, "columns of the table");
        let (start, columns) = (self.start + range.start, range.len());
        RowsMut { start, columns, ..self.reborrow() }
    }

    /// Columns from `column` to the first one that starts a cache line in every row; none if rows differ in that.
    pub(crate) fn before_line(&self, column: usize) -> usize {
        const LINE: usize = 64;
        let size = size_of::<T>();
        let (address, stride) = match &self.numbers {
            NumbersMut::Slice { data, stride } => (data.as_ptr().addr(), *stride),
            #[cfg(feature = "ndarray")]
            NumbersMut::Array(array) => array.address_and_stride(),
            #[cfg(feature = "faer")]
            NumbersMut::Matrix(matrix) => matrix.address_and_stride(),
        };
        if !(stride * size).is_multiple_of(LINE) {
            return 0;
        }
        let past = (address + (self.start + column) * size) % LINE;
        (LINE - past) % LINE / size
    }

    /// The same table, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> RowsMut<'_, T> {
        let numbers = match &mut self.numbers {
            NumbersMut::Slice { data, stride } => NumbersMut::Slice { data, stride: *stride },
            #[cfg(feature = "ndarray")]
            NumbersMut::Array(array) => NumbersMut::Array(array.reborrow()),
            #[cfg(feature = "faer")]
            NumbersMut::Matrix(matrix) => NumbersMut::Matrix(matrix.reborrow()),
        };
        RowsMut { numbers, rows: self.rows, start: self.start, columns: self.columns }
    }

    /// The first rows and the others.
    pub(crate) fn split_at(self, rows: usize) -> (Self, Self) {
        let Self { numbers, rows: all, start, columns } = self;
        let (first, rest) = match numbers {
            NumbersMut::Slice { data, stride } => {
                // The last row of the whole table may end before its stride does.
                let length = if rows == all { data.len() } else { rows * stride };
                let (first, rest) = data.split_at_mut(length);
                (NumbersMut::Slice { data: first, stride }, NumbersMut::Slice { data: rest, stride })
            }
            #[cfg(feature = "ndarray")]
            NumbersMut::Array(array) => {
                let (first, rest) = array.split_at(rows);
                (NumbersMut::Array(first), NumbersMut::Array(rest))
            }
            #[cfg(feature = "faer")]
            NumbersMut::Matrix(matrix) => {
                let (first, rest) = matrix.split_at(rows);
                (NumbersMut::Matrix(first), NumbersMut::Matrix(rest))
            }
        };
        (Self { numbers: first, rows, start, columns }, Self { numbers: rest, rows: all - rows, start, columns })
    }

    /// The table cut into blocks of `block_rows` rows, the last one possibly shorter.
    pub(crate) fn blocks(self, block_rows: usize) -> Vec<RowsMut<'a, T>> {
        let mut blocks = Vec::with_capacity(self.rows.div_ceil(block_rows));
        let mut left = self;
        while left.rows > 0 {
            let taken = left.rows.min(block_rows);
            let (block, rest) = left.split_at(taken);
            blocks.push(block);
            left = rest;
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_rows_and_blocks() {
        let data: Vec<f32> = (0..11).map(|v| v as f32).collect();
        let rows = Rows::with_stride(&data, 3, 3, 4).unwrap();
        assert_eq!(rows.row(2), [8.0, 9.0, 10.0]);
        let mut data = data.clone();
        let blocks = RowsMut::with_stride(&mut data, 3, 3, 4).unwrap().blocks(2);
        assert_eq!(blocks.iter().map(RowsMut::rows).collect::<Vec<_>>(), [2, 1]);
        for mut block in blocks {
            block.row_mut(0).fill(0.0);
        }
        assert_eq!(data, [0.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn some_columns_of_rows_and_blocks() {
        let mut data: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let rows = Rows::new(&data, 3, 4).unwrap().columns_in(&(1..4)).columns_in(&(1..2));
        assert_eq!((rows.rows(), rows.columns(), rows.row(2)), (3, 1, &[10.0][..]));
        assert_eq!(rows.slice(1..3).row(0), [6.0]);
        assert_eq!(rows.runs(0..2).collect::<Vec<_>>(), [[2.0], [6.0]]);
        let mut table = RowsMut::new(&mut data, 3, 4).unwrap();
        for mut block in table.columns_in(&(2..4)).blocks(2) {
            block.row_mut(0).fill(0.0);
        }
        assert_eq!(data, [0.0, 1.0, 0.0, 0.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0, 0.0]);
    }

    #[test]
    fn rows_are_repeated_for_their_groups() {
        let data: Vec<f64> = (0..6).map(f64::from).collect();
        let of_groups: Vec<&[f64]> = data.chunks(2).collect();
        let groups = Groups::from_starts(&[0, 2, 2, 5]).unwrap();
        let repeated = Rows::repeated(&of_groups, &groups, 2);
        assert_eq!((repeated.rows(), repeated.columns()), (5, 2));
        let slice = repeated.slice(1..4);
        assert_eq!((slice.rows(), slice.row(0), slice.row(2)), (3, &data[..2], &data[4..]));
        let runs: Vec<&[f64]> = slice.slice(0..2).runs(0..2).collect();
        assert_eq!(runs, [&data[..2], &data[4..]]);
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let data = [0.0_f64; 6];
        assert!(Rows::new(&data, 2, 3).is_ok());
        assert!(Rows::new(&data, 2, 2).is_err());
        assert!(Rows::new(&data, 3, 3).is_err());
        assert!(Rows::with_stride(&data, 2, 3, 2).is_err());
        assert!(Rows::with_stride(&data, usize::MAX, 2, 3).is_err());
        assert!(Rows::new(&data[..0], 0, 3).is_ok());
    }
}
