//! Products of borrowed matrices.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// A scalar type with products: `f32` or `f64`.
pub trait Real: Copy + Send + Sync + 'static {
    #[doc(hidden)]
    fn multiply(out: ViewMut<'_, Self>, add: bool, a: View<'_, Self>, b: View<'_, Self>, factor: Self);
}

macro_rules! real {
    ($($type:ident)*) => {$(
        impl Real for $type {
            fn multiply(out: ViewMut<'_, Self>, add: bool, a: View<'_, Self>, b: View<'_, Self>, factor: Self) {
                let accumulate = if add { Accum::Add } else { Accum::Replace };
                matmul(out.0, accumulate, a.0, b.0, factor, Par::Seq);
            }
        }
    )*};
}

real! { f32 f64 }

/// A borrowed matrix.
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T>(pub(crate) MatRef<'a, T>);

/// A mutably borrowed matrix.
#[derive(Debug)]
pub struct ViewMut<'a, T>(pub(crate) MatMut<'a, T>);

impl<'a, T: Real> View<'a, T> {
    /// A matrix stored row by row.
    ///
    /// # Panics
    /// If there are not `rows * columns` numbers.
    #[must_use]
    pub fn by_rows(numbers: &'a [T], rows: usize, columns: usize) -> Self {
        Self(MatRef::from_row_major_slice(numbers, rows, columns))
    }

    /// A matrix stored column by column.
    ///
    /// # Panics
    /// If there are not `rows * columns` numbers.
    #[must_use]
    pub fn by_columns(numbers: &'a [T], rows: usize, columns: usize) -> Self {
        Self(MatRef::from_column_major_slice(numbers, rows, columns))
    }

    /// The transpose.
    #[must_use]
    pub fn transpose(self) -> Self {
        Self(self.0.transpose())
    }

    /// Some of the columns.
    ///
    /// # Panics
    /// If there are fewer columns.
    #[must_use]
    pub fn columns(self, range: Range<usize>) -> Self {
        Self(self.0.subcols(range.start, range.len()))
    }
}

impl<'a, T: Real> ViewMut<'a, T> {
    /// A matrix stored row by row.
    ///
    /// # Panics
    /// If there are not `rows * columns` numbers.
    #[must_use]
    pub fn by_rows(numbers: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self(MatMut::from_row_major_slice_mut(numbers, rows, columns))
    }

    /// A matrix stored column by column.
    ///
    /// # Panics
    /// If there are not `rows * columns` numbers.
    #[must_use]
    pub fn by_columns(numbers: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self(MatMut::from_column_major_slice_mut(numbers, rows, columns))
    }

    /// Splits the matrix into blocks of `width` columns, the last possibly narrower, each with its range of columns.
    #[must_use]
    pub fn column_blocks(self, width: usize) -> Vec<(Range<usize>, Self)> {
        let (mut blocks, mut rest, mut start) = (Vec::new(), self.0, 0);
        while rest.ncols() > 0 {
            let taken = width.max(1).min(rest.ncols());
            let (block, after) = rest.split_at_col_mut(taken);
            blocks.push((start..start + taken, Self(block)));
            start += taken;
            rest = after;
        }
        blocks
    }
}

/// C = factor · AB.
///
/// # Panics
/// If the shapes do not match.
///
/// ```
/// use argand_linalg::{View, ViewMut, product};
/// let (a, b, mut c) = ([1.0, 2.0], [3.0, 4.0], [0.0]);
/// product(ViewMut::by_rows(&mut c, 1, 1), View::by_rows(&a, 1, 2), View::by_rows(&b, 2, 1), 2.0);
/// assert_eq!(c, [22.0]);
/// ```
pub fn product<T: Real>(out: ViewMut<'_, T>, a: View<'_, T>, b: View<'_, T>, factor: T) {
    T::multiply(out, false, a, b, factor);
}

/// C + factor · AB, in place of C.
///
/// # Panics
/// If the shapes do not match.
pub fn add_product<T: Real>(out: ViewMut<'_, T>, a: View<'_, T>, b: View<'_, T>, factor: T) {
    T::multiply(out, true, a, b, factor);
}
