//! Views of input and output tables, and copies of some of their rows.
//!
//! Numbers are checked once: a view from [`Input::checked`] remembers that its numbers are finite, and so do its slices.

mod input;
mod owned;
mod sparse;

use std::ops::Range;

use crate::error::{Argument, Error};

pub use input::{Input, check_finite, check_shapes, checked};
pub use owned::OwnedRows;
pub use sparse::{Indices, SparseRows};

/// A dense row-major table; there may be gaps between rows.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    stride: usize,
    /// All numbers are known to be finite.
    finite: bool,
}

/// As [`Rows`], mutable.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    stride: usize,
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
    /// [`Error::Invalid`] for any other length.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::with_stride(data, rows, columns, columns)
    }

    /// A table whose row `i` starts at `i * stride`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rows overlap or reach beyond `data`.
    pub fn with_stride(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Result<Self, Error> {
        check_length(data.len(), rows, columns, stride)?;
        Ok(Self { data, rows, columns, stride, finite: false })
    }

    /// Marks the numbers as finite, so that they are not checked again. Use it for numbers that are finite by
    /// construction, such as features, and [`Input::checked`] for all others.
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
        &self.data[index * self.stride..][..self.columns]
    }

    /// The rows in a range.
    fn slice(&self, range: Range<usize>) -> Self {
        let start = if range.is_empty() { 0 } else { range.start * self.stride };
        let length = if range.is_empty() { 0 } else { (range.len() - 1) * self.stride + self.columns };
        Self { data: &self.data[start..][..length], rows: range.len(), ..*self }
    }

    /// The numbers of some rows in as few slices as possible: one if there are no gaps.
    fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
        let Self { data, columns, stride, .. } = *self;
        let together = if stride == columns { rows.len().max(1) } else { 1 };
        rows.step_by(together).map(move |first| &data[first * stride..][..together * columns])
    }
}

impl<'a, T> RowsMut<'a, T> {
    /// A table without gaps: `data` holds exactly `rows * columns` numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other length.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::with_stride(data, rows, columns, columns)
    }

    /// A table whose row `i` starts at `i * stride`; gaps between rows are not written.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rows overlap or reach beyond `data`.
    pub fn with_stride(data: &'a mut [T], rows: usize, columns: usize, stride: usize) -> Result<Self, Error> {
        check_length(data.len(), rows, columns, stride)?;
        Ok(Self { data, rows, columns, stride })
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
        &mut self.data[index * self.stride..][..self.columns]
    }

    /// Columns from `column` to the first one that starts a cache line in every row; none if rows are aligned differently.
    pub(crate) fn before_line(&self, column: usize) -> usize {
        const LINE: usize = 64;
        let size = size_of::<T>();
        if !(self.stride * size).is_multiple_of(LINE) {
            return 0;
        }
        let past = (self.data.as_ptr().addr() + column * size) % LINE;
        (LINE - past) % LINE / size
    }

    /// Reborrows the table.
    pub fn reborrow(&mut self) -> RowsMut<'_, T> {
        RowsMut { data: self.data, rows: self.rows, columns: self.columns, stride: self.stride }
    }

    /// The table cut into blocks of `block_rows` rows, the last one possibly shorter.
    pub(crate) fn blocks(self, block_rows: usize) -> Vec<RowsMut<'a, T>> {
        let Self { mut data, rows, columns, stride } = self;
        let mut blocks = Vec::with_capacity(rows.div_ceil(block_rows));
        let mut left = rows;
        while left > 0 {
            let taken = left.min(block_rows);
            // The last row of the whole table may end before its stride does.
            let length = if taken == left { data.len() } else { taken * stride };
            let (block, rest) = data.split_at_mut(length);
            blocks.push(RowsMut { data: block, rows: taken, columns, stride });
            data = rest;
            left -= taken;
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
