//! Tables of `ndarray`.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use crate::error::{Argument, Error};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;

/// Rows with gaps cannot be borrowed as one slice: someone else may be writing into the gaps.
fn layout(shape: &[usize], strides: &[isize]) -> Error {
    let has_gaps = match (shape, strides) {
        // The stride of columns means nothing if there is only one.
        (&[_, columns], &[row, column]) => row > 0 && (column == 1 || columns == 1) && row.unsigned_abs() > columns,
        _ => false,
    };
    let with_stride = if has_gaps { "use Rows::with_stride on the slice of the whole table, or " } else { "" };
    let expected = format!("row-major rows without gaps ({with_stride}copy it with as_standard_layout())");
    Error::invalid(Argument::Data, expected, format!("shape {shape:?} with strides {strides:?}"))
}

/// Rows in standard layout, that of every `Array2` unless transposed or made in column-major order.
///
/// # Errors
/// [`Error::Invalid`] for other layouts: transposed tables, and slices that leave out columns or reverse rows.
///
/// ```
/// use argand::{FeatureMap, Rows, Spec};
/// use ndarray::{Array2, array, s};
///
/// let x = array![[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]];
/// let sketch = Spec::polynomial(3).with_features(4096).sketch::<f64>()?;
/// let mut features = Array2::zeros((2, 4096));
/// sketch.transform_into(&[x.view().try_into()?], features.view_mut().try_into()?)?;
/// let estimate = features.row(0).dot(&features.row(1));
/// assert!((estimate - 9.0).abs() < 0.5); // (1·½ + 2·½ + 3·½)² = 9
///
/// assert!(Rows::try_from(x.slice(s![1.., ..])).is_ok()); // some of the rows
/// assert!(Rows::try_from(x.t()).is_err()); // not row by row
/// # Ok::<(), argand::Error>(())
/// ```
impl<'a, T> TryFrom<ArrayView2<'a, T>> for Rows<'a, T> {
    type Error = Error;

    fn try_from(table: ArrayView2<'a, T>) -> Result<Self, Error> {
        let data = table.to_slice().ok_or_else(|| layout(table.shape(), table.strides()))?;
        Self::new(data, table.nrows(), table.ncols())
    }
}

/// As [`Rows`] from a view.
impl<'a, T> TryFrom<&'a Array2<T>> for Rows<'a, T> {
    type Error = Error;

    fn try_from(table: &'a Array2<T>) -> Result<Self, Error> {
        table.view().try_into()
    }
}

/// As [`Rows`] from a view.
impl<'a, T: Scalar> TryFrom<ArrayView2<'a, T>> for Input<'a, T> {
    type Error = Error;

    fn try_from(table: ArrayView2<'a, T>) -> Result<Self, Error> {
        Rows::try_from(table).map(Self::from)
    }
}

/// As [`Rows`] from a view.
impl<'a, T: Scalar> TryFrom<&'a Array2<T>> for Input<'a, T> {
    type Error = Error;

    fn try_from(table: &'a Array2<T>) -> Result<Self, Error> {
        table.view().try_into()
    }
}

/// As [`Rows`] from a view, mutable.
///
/// # Errors
/// [`Error::Invalid`] for layouts other than row-major rows without gaps.
impl<'a, T> TryFrom<ArrayViewMut2<'a, T>> for RowsMut<'a, T> {
    type Error = Error;

    fn try_from(table: ArrayViewMut2<'a, T>) -> Result<Self, Error> {
        let (rows, columns) = table.dim();
        let error = layout(table.shape(), table.strides());
        Self::new(table.into_slice().ok_or(error)?, rows, columns)
    }
}

/// As [`RowsMut`] from a view.
impl<'a, T> TryFrom<&'a mut Array2<T>> for RowsMut<'a, T> {
    type Error = Error;

    fn try_from(table: &'a mut Array2<T>) -> Result<Self, Error> {
        table.view_mut().try_into()
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Axis, s};

    use super::*;

    fn table() -> Array2<f32> {
        Array2::from_shape_fn((4, 3), |(row, column)| (10 * row + column) as f32)
    }

    fn assert_same(view: ArrayView2<'_, f32>) {
        let rows = Rows::try_from(view).unwrap();
        assert_eq!((rows.rows(), rows.columns()), view.dim());
        for (index, row) in view.rows().into_iter().enumerate() {
            assert_eq!(rows.row(index), row.to_slice().unwrap());
            assert_eq!(rows.row(index).as_ptr(), row.as_ptr());
        }
    }

    #[test]
    fn rows_without_gaps_are_lent() {
        let table = table();
        assert_same(table.view());
        assert_same(table.slice(s![1..3, ..]));
        assert_same(table.slice(s![2..3, 1..])); // one row has no gaps, wherever the next would be
        assert_same(table.slice(s![3..;-1, ..]).slice(s![..1, ..]));
        assert_same(table.slice(s![2..2, ..]));
        assert_same(table.column(1).to_owned().view().insert_axis(Axis(1)));
        assert_same(table.t().as_standard_layout().view());
        let none = Rows::try_from(table.slice(s![.., 3..])).unwrap();
        assert_eq!((none.rows(), none.columns()), (4, 0));
        assert_eq!(Input::try_from(&table).unwrap().rows(), 4);
    }

    #[test]
    fn other_layouts_are_errors_that_say_what_to_do() {
        let table = table();
        let message = |view: ArrayView2<'_, f32>| Rows::try_from(view).unwrap_err().to_string();
        for (view, with_stride) in [
            (table.slice(s![.., ..2]), true),
            (table.slice(s![..;2, ..]), true),
            (table.slice(s![.., 1..2]), true),
            (table.slice(s![..;-1, ..]), false),
            (table.slice(s![.., ..;-1]), false),
            (table.slice(s![.., ..;2]), false),
            (table.t(), false),
            (table.row(0).broadcast((2, 3)).unwrap(), false),
        ] {
            let message = message(view);
            assert!(message.starts_with("data: expected row-major rows without gaps"), "{message}");
            assert!(message.contains("as_standard_layout"), "{message}");
            assert_eq!(message.contains("with_stride"), with_stride, "{view:?}: {message}");
        }
        assert_eq!(
            message(table.t()),
            "data: expected row-major rows without gaps (copy it with as_standard_layout()), got shape [3, 4] with \
             strides [1, 3]"
        );
    }

    /// The error recommends a way to read some of the columns.
    #[test]
    fn columns_of_a_table() {
        let table = table();
        let whole = table.as_slice().unwrap();
        let rows = Rows::with_stride(&whole[1..], 4, 2, 3).unwrap();
        for (index, row) in table.slice(s![.., 1..]).rows().into_iter().enumerate() {
            assert_eq!(rows.row(index), row.to_slice().unwrap());
        }
    }

    #[test]
    fn writing() {
        let mut table = table();
        let mut rows = RowsMut::try_from(table.slice_mut(s![1..3, ..])).unwrap();
        rows.row_mut(1).fill(-1.0);
        assert_eq!(table.row(2).to_vec(), [-1.0; 3]);
        assert_eq!(table.row(1)[0], 10.0);
        assert_eq!(RowsMut::try_from(&mut table).unwrap().rows(), 4);
        assert!(RowsMut::try_from(table.slice_mut(s![.., 1..])).is_err());
        assert!(RowsMut::try_from(table.view_mut().reversed_axes()).is_err());
    }
}
