//! Views of sparse tables.

use std::ops::Range;

use crate::error::{Argument, Error};
use crate::scalar::Scalar;

/// Column indices of a [`SparseRows`]: the `int32` and `int64` of numeric libraries, read as unsigned.
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

    /// Index `at`, saturated: an index too large for this machine is too large for any table on it.
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
/// Columns need not be sorted within a row; duplicate entries of a column are summed.
#[derive(Debug, Clone, Copy)]
pub struct SparseRows<'a, T> {
    pub(super) row_starts: Indices<'a>,
    pub(super) columns_of: Indices<'a>,
    pub(super) values: &'a [T],
    pub(super) columns: usize,
    /// All numbers are known to be finite.
    pub(super) finite: bool,
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
            return Err(Error::invalid(Argument::RowStarts, "one more entry than rows", "none"));
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

    /// The rows in a range.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        let starts = range.start..range.end + 1;
        let row_starts = match self.row_starts {
            Indices::U32(all) => Indices::U32(&all[starts]),
            Indices::U64(all) => Indices::U64(&all[starts]),
        };
        Self { row_starts, ..*self }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FeatureMap, Input, Rows, Spec};

    /// Repeated columns of a row are summed, by methods that load rows and by those that go through their entries.
    #[test]
    fn repeated_columns_are_summed() {
        let values = [1.5, -2.0, 0.25, 1.0, 1.0];
        let sparse = SparseRows::new(&[0_u32, 3, 5][..], &[1_u32, 1, 0, 2, 2][..], &values, 3).unwrap();
        let dense = Rows::new(&[0.25, -0.5, 0.0, 0.0, 0.0, 2.0], 2, 3).unwrap();
        for method in ["ctr-product-srht", "gaussian", "ctr-rademacher", "tensor-sketch", "chain-product-srht"] {
            let spec = Spec::polynomial(3).with_degree(2).with_features(16).with_method(method.parse().unwrap());
            let sketch = spec.sketch::<f64>().unwrap();
            let [got, want] = [Input::Sparse(sparse), dense.into()].map(|input| sketch.transform(&[input]).unwrap());
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() < 1e-14, "{method}: {got} {want}");
            }
        }
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
}
