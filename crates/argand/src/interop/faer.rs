//! Matrices of `faer`.

use std::ops::Range;

use faer::prelude::{Reborrow, ReborrowMut};
use faer::{ContiguousFwd, MatMut, MatRef};

use crate::error::{Argument, Error};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;

/// A view whose rows are slices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixRows<'a, T>(MatRef<'a, T, usize, usize, isize, ContiguousFwd>);

impl<'a, T> MatrixRows<'a, T> {
    pub(crate) fn dims(&self) -> (usize, usize) {
        self.0.shape()
    }

    #[inline(always)]
    pub(crate) fn row(&self, index: usize) -> &'a [T] {
        self.0.row(index).as_slice()
    }

    pub(crate) fn slice(&self, rows: Range<usize>) -> Self {
        Self(self.0.subrows(rows.start, rows.len()))
    }
}

/// As [`MatrixRows`], to be written.
#[derive(Debug)]
pub(crate) struct MatrixRowsMut<'a, T>(MatMut<'a, T, usize, usize, isize, ContiguousFwd>);

impl<T> MatrixRowsMut<'_, T> {
    pub(crate) fn dims(&self) -> (usize, usize) {
        self.0.shape()
    }

    #[inline(always)]
    pub(crate) fn row_mut(&mut self, index: usize) -> &mut [T] {
        self.0.rb_mut().row_mut(index).as_slice_mut()
    }

    /// Where the first row starts, and how many numbers the next is away, in either direction.
    pub(crate) fn address_and_stride(&self) -> (usize, usize) {
        (self.0.rb().as_ptr().addr(), self.0.row_stride().unsigned_abs())
    }

    pub(crate) fn reborrow(&mut self) -> MatrixRowsMut<'_, T> {
        MatrixRowsMut(self.0.rb_mut())
    }

    pub(crate) fn split_at(self, rows: usize) -> (Self, Self) {
        let (first, rest) = self.0.split_at_row_mut(rows);
        (Self(first), Self(rest))
    }
}

fn layout(strides: [isize; 2]) -> Error {
    let expected = "the numbers of a row side by side; keep rows as columns of a Mat, and lend its transpose()";
    Error::invalid(Argument::Data, expected, format!("strides {strides:?}"))
}

/// Rows of a row-major matrix, any distance apart, in either direction.
///
/// A `Mat` is column-major: keep every row of data in one of its columns, and lend its transpose.
///
/// # Errors
/// [`Error::Invalid`] if the numbers of a row do not lie side by side.
///
/// ```
/// use argand::{FeatureMap, Rows, Spec};
/// use faer::{Mat, mat};
///
/// let x = mat![[1.0, 0.5], [2.0, 0.5], [3.0, 0.5]]; // two rows of three numbers, as columns
/// let sketch = Spec::polynomial(3).with_features(4096).sketch::<f64>()?;
/// let mut features = Mat::zeros(4096, 2);
/// sketch.transform_into(&[x.transpose().try_into()?], features.transpose_mut().try_into()?)?;
/// let estimate = features.col(0).transpose() * features.col(1);
/// assert!((estimate - 9.0).abs() < 0.5); // (1·½ + 2·½ + 3·½)² = 9
///
/// assert!(Rows::try_from(x.as_ref()).is_err()); // column by column
/// # Ok::<(), argand::Error>(())
/// ```
impl<'a, T> TryFrom<MatRef<'a, T>> for Rows<'a, T> {
    type Error = Error;

    fn try_from(matrix: MatRef<'a, T>) -> Result<Self, Error> {
        // Strides mean nothing if there are no numbers, nor does that of columns if there is only one.
        if matrix.nrows() == 0 || matrix.ncols() == 0 {
            return Self::new(&[], matrix.nrows(), matrix.ncols());
        }
        if matrix.ncols() == 1
            && let Some(column) = matrix.col(0).try_as_col_major()
        {
            return Self::new(column.as_slice(), matrix.nrows(), 1);
        }
        let rows = matrix.try_as_row_major().ok_or_else(|| layout([matrix.row_stride(), matrix.col_stride()]))?;
        Ok(Self::of_matrix(MatrixRows(rows)))
    }
}

/// As [`Rows`] from the same matrix.
impl<'a, T: Scalar> TryFrom<MatRef<'a, T>> for Input<'a, T> {
    type Error = Error;

    fn try_from(matrix: MatRef<'a, T>) -> Result<Self, Error> {
        Rows::try_from(matrix).map(Self::from)
    }
}

/// As [`Rows`] from a matrix, to be written.
///
/// # Errors
/// [`Error::Invalid`] if the numbers of a row do not lie side by side.
impl<'a, T> TryFrom<MatMut<'a, T>> for RowsMut<'a, T> {
    type Error = Error;

    fn try_from(matrix: MatMut<'a, T>) -> Result<Self, Error> {
        let (rows, columns) = matrix.shape();
        if rows == 0 || columns == 0 {
            return Self::new(&mut [], rows, columns);
        }
        let error = layout([matrix.row_stride(), matrix.col_stride()]);
        if columns == 1 && matrix.row_stride() == 1 {
            let column = matrix.col_mut(0).try_as_col_major_mut().ok_or(error)?;
            return Self::new(column.as_slice_mut(), rows, 1);
        }
        matrix.try_as_row_major_mut().map(|rows| Self::of_matrix(MatrixRowsMut(rows))).ok_or(error)
    }
}

#[cfg(test)]
mod tests {
    use faer::Mat;

    use super::*;
    use crate::map::FeatureMap;
    use crate::spec::Spec;

    /// Column j is row j of data.
    fn columns() -> Mat<f32> {
        Mat::from_fn(5, 100, |i, j| ((i * 17 + j * 31) % 23) as f32 / 20.0)
    }

    #[test]
    fn rows_are_lent_any_distance_apart() {
        let columns = columns();
        assert!(columns.col_stride() > 5, "columns of a Mat have gaps between them");
        for matrix in [
            columns.transpose(),
            columns.transpose().subrows(3, 4),
            columns.transpose().subcols(1, 3),
            columns.transpose().reverse_rows(),
            columns.transpose().subrows(2, 0),
            columns.subrows(0, 1).transpose(),
        ] {
            let rows = Rows::try_from(matrix).unwrap();
            assert_eq!((rows.rows(), rows.columns()), matrix.shape());
            for row in 0..rows.rows() {
                assert!(rows.row(row).iter().enumerate().all(|(column, value)| *value == matrix[(row, column)]));
            }
        }
        let one = Rows::try_from(columns.subcols(7, 1)).unwrap();
        assert_eq!((one.rows(), one.columns(), one.row(2)), (5, 1, &[columns[(2, 7)]][..]));
        for none in [columns.subcols(7, 0), columns.subrows(2, 0)] {
            let rows = Rows::try_from(none).unwrap();
            assert_eq!((rows.rows(), rows.columns()), none.shape());
        }
    }

    #[test]
    fn writing() {
        let mut columns = columns();
        let untouched = columns[(3, 0)];
        let mut rows = RowsMut::try_from(columns.as_mut().subrows_mut(0, 3).transpose_mut()).unwrap();
        rows.reborrow().row_mut(99).fill(-1.0);
        rows.row_mut(0)[2] = -2.0;
        assert_eq!((columns[(1, 99)], columns[(2, 0)], columns[(3, 0)]), (-1.0, -2.0, untouched));
        RowsMut::try_from(columns.as_mut().subcols_mut(7, 1)).unwrap().row_mut(4)[0] = -3.0;
        assert_eq!(columns[(4, 7)], -3.0);
        let none = RowsMut::try_from(columns.as_mut().subcols_mut(7, 0)).unwrap();
        assert_eq!((none.rows(), none.columns()), (5, 0));
    }

    #[test]
    fn slices_remember_that_numbers_are_finite() {
        let mut columns = columns();
        columns[(2, 60)] = f32::NAN;
        let input = Input::try_from(columns.transpose()).unwrap();
        assert!(!input.is_known_finite() && input.checked(Argument::X).is_err());
        let checked = input.slice(0..60).checked(Argument::X).unwrap();
        assert!(checked.is_known_finite() && checked.slice(3..5).is_known_finite());
        assert!(input.known_finite().slice(60..61).check_finite(Argument::X).is_ok());
    }

    #[test]
    fn columns_first_is_an_error_that_says_what_to_do() {
        let columns = columns();
        let message = Rows::try_from(columns.as_ref()).unwrap_err().to_string();
        assert!(message.starts_with("data: expected the numbers of a row side by side"), "{message}");
        assert!(message.contains("transpose()"), "{message}");
        assert!(Rows::try_from(columns.transpose().reverse_cols()).is_err());
        assert!(RowsMut::try_from(columns.clone().as_mut()).is_err());
    }

    #[test]
    fn features_between_gaps() {
        let columns = columns();
        let sketch = Spec::polynomial(5).with_features(36).sketch::<f32>().unwrap();
        let copy: Vec<f32> = (0..100).flat_map(|j| columns.col(j).iter().copied().collect::<Vec<_>>()).collect();
        let want = sketch.transform(&[Rows::new(&copy, 100, 5).unwrap().into()]).unwrap();
        let input = Input::try_from(columns.transpose()).unwrap();
        assert_eq!(sketch.transform(&[input]).unwrap(), want);
        assert_eq!(sketch.transform(&[input.slice(40..57)]).unwrap(), want[40 * 36..57 * 36]);

        let mut out = Mat::from_fn(38, 100, |_, _| -7.0_f32);
        let inner = out.as_mut().subrows_mut(1, 36).transpose_mut();
        sketch.transform_into(&[input], inner.try_into().unwrap()).unwrap();
        for (column, want) in want.chunks(36).enumerate() {
            let got: Vec<f32> = out.col(column).iter().copied().collect();
            assert_eq!((got[0], &got[1..37], got[37]), (-7.0, want, -7.0));
        }
    }
}
