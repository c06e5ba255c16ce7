//! Views of input and output tables, and copies of some of their rows.
//!
//! Numbers are checked once: a view that [`Input::checked`] has looked at remembers that its numbers are finite, and so do its slices.

use std::ops::Range;

use rayon::prelude::*;

use crate::error::{Argument, Error};
use crate::lanes;
use crate::scalar::Scalar;

/// Rows that are looked at together.
const CHECKED_ROWS: usize = 64;

/// A dense row-major table; rows may be further apart than they are long.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    stride: usize,
    /// All numbers are known to be finite.
    finite: bool,
}

/// As [`Rows`], to be written.
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
        Ok(Self { data, rows, columns, stride, finite: false })
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
        &self.data[index * self.stride..][..self.columns]
    }

    /// The numbers of some rows, as few slices: one if there are no gaps.
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

    /// Columns from `column` to the first one that starts a cache line in every row; none if rows differ in that.
    pub(crate) fn before_line(&self, column: usize) -> usize {
        const LINE: usize = 64;
        let size = size_of::<T>();
        if !(self.stride * size).is_multiple_of(LINE) {
            return 0;
        }
        let past = (self.data.as_ptr().addr() + column * size) % LINE;
        (LINE - past) % LINE / size
    }

    /// The same table, borrowed for a shorter time.
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

/// Column indices of a [`SparseRows`]; what numeric libraries call `int32` and `int64`, read without sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Indices<'a> {
    /// 32-bit indices.
    U32(&'a [u32]),
    /// 64-bit indices.
    U64(&'a [u64]),
}

impl<'a> From<&'a [u32]> for Indices<'a> {
    fn from(indices: &'a [u32]) -> Self {
        Self::U32(indices)
    }
}

impl<'a> From<&'a [u64]> for Indices<'a> {
    fn from(indices: &'a [u64]) -> Self {
        Self::U64(indices)
    }
}

impl Indices<'_> {
    fn len(&self) -> usize {
        match self {
            Self::U32(indices) => indices.len(),
            Self::U64(indices) => indices.len(),
        }
    }

    /// Index `at`, saturated: one too large for this machine is too large for any table on it.
    #[inline(always)]
    fn get(&self, at: usize) -> usize {
        match self {
            Self::U32(indices) => indices[at] as usize,
            Self::U64(indices) => usize::try_from(indices[at]).unwrap_or(usize::MAX),
        }
    }
}

/// Rows in compressed sparse row (CSR) form: row `i` has the entries `row_starts[i]..row_starts[i + 1]`.
///
/// Columns need not be sorted within a row; entries that name the same column are added up.
#[derive(Debug, Clone, Copy)]
pub struct SparseRows<'a, T> {
    row_starts: Indices<'a>,
    columns_of: Indices<'a>,
    values: &'a [T],
    columns: usize,
    /// All numbers are known to be finite.
    finite: bool,
}

impl<'a, T: Scalar> SparseRows<'a, T> {
    /// A checked view.
    ///
    /// # Errors
    /// [`Error::Invalid`] if lengths do not fit, row starts decrease, or a column is out of range.
    pub fn new(
        row_starts: impl Into<Indices<'a>>,
        columns_of: impl Into<Indices<'a>>,
        values: &'a [T],
        columns: usize,
    ) -> Result<Self, Error> {
        let (row_starts, columns_of) = (row_starts.into(), columns_of.into());
        if row_starts.len() == 0 {
            return Err(Error::invalid(Argument::RowStarts, "one entry more than rows", "no entry"));
        }
        if columns_of.len() != values.len() {
            return Err(Error::invalid(
                Argument::ColumnsOf,
                format!("as many as the {} values", values.len()),
                columns_of.len(),
            ));
        }
        let mut previous = row_starts.get(0);
        for row in 0..row_starts.len() - 1 {
            let end = row_starts.get(row + 1);
            if end < previous || end > values.len() {
                return Err(Error::invalid(
                    Argument::RowStarts,
                    format!("{previous} to {} after row {row}", values.len()),
                    end,
                ));
            }
            if let Some(entry) = (previous..end).find(|&entry| columns_of.get(entry) >= columns) {
                return Err(Error::invalid(
                    Argument::ColumnsOf,
                    format!("columns below {columns} in row {row}"),
                    columns_of.get(entry),
                ));
            }
            previous = end;
        }
        Ok(Self { row_starts, columns_of, values, columns, finite: false })
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.row_starts.len() - 1
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Columns and values of row `index`, in the order stored.
    #[inline(always)]
    pub fn row(&self, index: usize) -> impl Iterator<Item = (usize, T)> + use<'a, T> {
        let (columns_of, values) = (self.columns_of, self.values);
        (self.row_starts.get(index)..self.row_starts.get(index + 1))
            .map(move |entry| (columns_of.get(entry), values[entry]))
    }
}

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

    /// The same table, once its numbers were found to be finite: neither it nor a slice of it is looked at again. `argument` is what
    /// the table is called in the message.
    ///
    /// # Errors
    /// [`Error::NotFinite`] with the first row and column that is not.
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

    /// Checks that all numbers are finite, unless that is known; `argument` is what the table is called in the message.
    ///
    /// # Errors
    /// [`Error::NotFinite`] with the first row and column that is not.
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
        // Waking a pool takes longer than a look at a few numbers.
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

/// Checks that tables have these numbers of columns and equally many rows; returns their number of rows.
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
/// [`Error::NotFinite`] with the first table, row and column that does not.
pub fn check_finite<T: Scalar>(inputs: &[Input<'_, T>]) -> Result<(), Error> {
    let count = inputs.len();
    inputs.iter().enumerate().try_for_each(|(index, input)| input.check_finite(Argument::input(index, count)))
}

/// Tables that were [checked](Input::checked), each under its place among them.
///
/// # Errors
/// [`Error::NotFinite`] with the first table, row and column that does not hold a finite number.
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
            Self::Dense(rows) => {
                let end = if range.is_empty() { 0 } else { (range.len() - 1) * rows.stride + rows.columns };
                let start = if range.is_empty() { 0 } else { range.start * rows.stride };
                Self::Dense(Rows { data: &rows.data[start..][..end], rows: range.len(), ..*rows })
            }
            Self::Sparse(rows) => {
                let starts = range.start..range.end + 1;
                let row_starts = match rows.row_starts {
                    Indices::U32(all) => Indices::U32(&all[starts]),
                    Indices::U64(all) => Indices::U64(&all[starts]),
                };
                Self::Sparse(SparseRows { row_starts, ..*rows })
            }
        }
    }
}

/// Rows that own their numbers: copied from a table, or made from one.
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

    /// The rows with these numbers, in this order.
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

    /// The rows as an input.
    #[must_use]
    pub fn view(&self) -> Input<'_, T> {
        let finite = self.finite;
        match &self.parts {
            Parts::Dense { rows, columns, values } => {
                Input::Dense(Rows { data: values, rows: *rows, columns: *columns, stride: *columns, finite })
            }
            Parts::Sparse { columns, row_starts, columns_of, values } => {
                let (row_starts, columns_of) = (Indices::U64(row_starts), Indices::U64(columns_of));
                Input::Sparse(SparseRows { row_starts, columns_of, values, columns: *columns, finite })
            }
        }
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

    #[test]
    fn sparse_views_are_checked() {
        let values = [1.0_f32, 2.0, 3.0];
        let view = |starts: &[u32], columns: &[u64]| {
            SparseRows::new(starts, columns, &values, 4)
                .map(|rows| (0..rows.rows()).map(|r| rows.row(r).count()).collect::<Vec<_>>())
        };
        assert_eq!(view(&[0, 2, 2, 3], &[3, 1, 0]), Ok(vec![2, 0, 1]));
        for (starts, columns) in [
            (vec![], vec![0, 1, 2]),
            (vec![0, 3], vec![0, 1]),
            (vec![0, 2, 1], vec![0, 1, 2]),
            (vec![0, 4], vec![0, 1, 2]),
            (vec![0, 3], vec![0, 1, 4]),
            (vec![0, 3], vec![0, 1, u64::MAX]),
        ] {
            assert!(matches!(view(&starts, &columns), Err(Error::Invalid { .. })), "{starts:?} {columns:?}");
        }
    }

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
        // What lies between rows is nobody's.
        data[200 * 3 + 2] = f32::INFINITY;
        assert!(Input::from(Rows::with_stride(&data[..299 * 3], 299, 2, 3).unwrap()).check_finite(Argument::X).is_ok());
        let error = Input::from(Rows::with_stride(&data, 300, 2, 3).unwrap()).check_finite(Argument::X).unwrap_err();
        assert_eq!(error.to_string(), "x: row 299, column 0 is inf; only finite numbers can be sketched");
        let sparse =
            SparseRows::new(&[0_u64, 1, 3][..], &[0_u32, 2, 1][..], &[1.0, f64::NAN, f64::NEG_INFINITY], 3).unwrap();
        let error = Input::from(sparse).check_finite(Argument::X).unwrap_err();
        assert_eq!(error.to_string(), "x: row 1, column 1 is -inf; only finite numbers can be sketched");
    }

    /// A NaN under a mark that there is none is not found: whoever is handed checked rows does not look at them again.
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
