//! Tables of `ndarray`.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, Slice};

use crate::error::{Argument, Error};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;

/// A view whose rows are slices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrayRows<'a, T>(ArrayView2<'a, T>);

impl<'a, T> ArrayRows<'a, T> {
    pub(crate) fn dims(&self) -> (usize, usize) {
        self.0.dim()
    }

    #[inline(always)]
    pub(crate) fn row(&self, index: usize) -> &'a [T] {
        let row = self.0.index_axis_move(Axis(0), index);
        row.to_slice().unwrap_or_else(|| unreachable!("the layout was checked"))
    }

    pub(crate) fn slice(&self, rows: Range<usize>) -> Self {
        let mut part = self.0;
        part.slice_axis_inplace(Axis(0), Slice::from(rows));
        Self(part)
    }
}

/// As [`ArrayRows`], to be written.
#[derive(Debug)]
pub(crate) struct ArrayRowsMut<'a, T>(ArrayViewMut2<'a, T>);

impl<T> ArrayRowsMut<'_, T> {
    pub(crate) fn dims(&self) -> (usize, usize) {
        self.0.dim()
    }

    #[inline(always)]
    pub(crate) fn row_mut(&mut self, index: usize) -> &mut [T] {
        let row = self.0.row_mut(index);
        row.into_slice().unwrap_or_else(|| unreachable!("the layout was checked"))
    }

    /// Where the first row starts, and how many numbers the next is away, in either direction.
    pub(crate) fn address_and_stride(&self) -> (usize, usize) {
        (self.0.as_ptr().addr(), self.0.stride_of(Axis(0)).unsigned_abs())
    }

    pub(crate) fn reborrow(&mut self) -> ArrayRowsMut<'_, T> {
        ArrayRowsMut(self.0.view_mut())
    }

    pub(crate) fn split_at(self, rows: usize) -> (Self, Self) {
        let (first, rest) = self.0.split_at(Axis(0), rows);
        (Self(first), Self(rest))
    }
}

/// Checks that rows are slices: columns lie side by side.
fn check(shape: &[usize], strides: &[isize]) -> Result<(), Error> {
    match (shape, strides) {
        (&[rows, columns], &[_, column]) if rows > 0 && columns > 1 && column != 1 => {
            let expected = "the numbers of a row side by side; as_standard_layout() makes a copy that is so";
            Err(Error::invalid(Argument::Data, expected, format!("shape {shape:?} with strides {strides:?}")))
        }
        _ => Ok(()),
    }
}

/// Rows that lie any distance apart, in either direction: whole tables, and slices that leave out rows or columns.
///
/// # Errors
/// [`Error::Invalid`] if the numbers of a row do not lie side by side, as in transposed tables.
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
/// assert!(Rows::try_from(x.slice(s![.., 1..])).is_ok()); // some of the columns
/// assert!(Rows::try_from(x.t()).is_err()); // column by column
/// # Ok::<(), argand::Error>(())
/// ```
impl<'a, T> TryFrom<ArrayView2<'a, T>> for Rows<'a, T> {
    type Error = Error;

    fn try_from(table: ArrayView2<'a, T>) -> Result<Self, Error> {
        if let Some(data) = table.to_slice() {
            return Self::new(data, table.nrows(), table.ncols());
        }
        check(table.shape(), table.strides())?;
        Ok(Self::of_array(ArrayRows(table)))
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

/// As [`Rows`] from a view, to be written.
///
/// # Errors
/// [`Error::Invalid`] if the numbers of a row do not lie side by side.
impl<'a, T> TryFrom<ArrayViewMut2<'a, T>> for RowsMut<'a, T> {
    type Error = Error;

    fn try_from(table: ArrayViewMut2<'a, T>) -> Result<Self, Error> {
        check(table.shape(), table.strides())?;
        let (rows, columns) = table.dim();
        if !table.is_standard_layout() {
            return Ok(Self::of_array(ArrayRowsMut(table)));
        }
        Self::new(table.into_slice().unwrap_or_default(), rows, columns)
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
    use ndarray::s;

    use super::*;
    use crate::map::FeatureMap;
    use crate::spec::Spec;

    fn table() -> Array2<f32> {
        Array2::from_shape_fn((4, 3), |(row, column)| (10 * row + column) as f32)
    }

    fn assert_same(view: ArrayView2<'_, f32>) {
        let rows = Rows::try_from(view).unwrap();
        assert_eq!((rows.rows(), rows.columns()), view.dim());
        for (index, row) in view.rows().into_iter().enumerate() {
            assert_eq!(rows.row(index), row.to_vec());
            assert_eq!(rows.row(index).as_ptr(), row.as_ptr());
        }
    }

    #[test]
    fn rows_are_lent_any_distance_apart() {
        let table = table();
        assert_same(table.view());
        assert_same(table.slice(s![1..3, ..]));
        assert_same(table.slice(s![.., 1..]));
        assert_same(table.slice(s![.., 1..2]));
        assert_same(table.slice(s![..;2, ..2]));
        assert_same(table.slice(s![..;-1, ..]));
        assert_same(table.slice(s![2..2, ..]));
        assert_same(table.row(1).broadcast((3, 3)).unwrap());
        assert_same(table.t().slice(s![.., 1..2]));
        assert_same(table.t().slice(s![..0, ..]));
        let none = Rows::try_from(table.slice(s![.., 3..])).unwrap();
        assert_eq!((none.rows(), none.columns()), (4, 0));
        assert_eq!(Input::try_from(&table).unwrap().rows(), 4);
    }

    #[test]
    fn other_layouts_are_errors_that_say_what_to_do() {
        let table = table();
        for view in [table.t(), table.slice(s![.., ..;2]), table.slice(s![.., ..;-1])] {
            let message = Rows::try_from(view).unwrap_err().to_string();
            assert!(message.contains("as_standard_layout"), "{message}");
        }
        assert_eq!(
            Rows::try_from(table.t()).unwrap_err().to_string(),
            "data: expected the numbers of a row side by side; as_standard_layout() makes a copy that is so, got \
             shape [3, 4] with strides [1, 3]"
        );
    }

    /// Slices, checks for NaN and features read rows with gaps as they read a copy, and write between gaps alone.
    #[test]
    fn gaps_change_nothing() {
        let wide = Array2::from_shape_fn((300, 9), |(row, column)| ((row * 31 + column * 17) % 23) as f32 / 20.0);
        let (view, copy) = (wide.slice(s![..;-1, 2..7]), wide.slice(s![..;-1, 2..7]).as_standard_layout().into_owned());
        let sketch = Spec::polynomial(5).with_features(32).sketch::<f32>().unwrap();
        let want = sketch.transform(&[(&copy).try_into().unwrap()]).unwrap();
        assert_eq!(sketch.transform(&[view.try_into().unwrap()]).unwrap(), want);
        for range in [0..300, 7..8, 299..300, 5..5] {
            let slice = Input::try_from(view).unwrap().slice(range.clone());
            assert_eq!(sketch.transform(&[slice]).unwrap(), want[range.start * 32..range.end * 32]);
        }

        let mut out = Array2::from_elem((300, 40), -7.0_f32);
        let part = out.slice_mut(s![..;-1, 3..35]);
        sketch.transform_into(&[view.try_into().unwrap()], part.try_into().unwrap()).unwrap();
        for (index, row) in out.rows().into_iter().enumerate() {
            let row = row.to_slice().unwrap();
            assert_eq!(row[3..35], want[(299 - index) * 32..][..32]);
            assert!(row[..3].iter().chain(&row[35..]).all(|&value| value == -7.0));
        }

        let mut bad = wide.clone();
        bad[[298, 4]] = f32::NAN; // the second row from the end
        bad[[0, 0]] = f32::NAN; // in a gap
        let input = Input::try_from(bad.slice(s![..;-1, 2..7])).unwrap();
        let error = sketch.transform(&[input]).unwrap_err();
        assert!(matches!(error, Error::NotFinite { row: 1, column: 2, .. }), "{error}");
        let checked = input.slice(2..300).checked(Argument::X).unwrap();
        assert!(!input.is_known_finite() && checked.slice(3..5).is_known_finite());
        assert!(input.known_finite().slice(1..2).check_finite(Argument::X).is_ok());
    }

    #[test]
    fn writing() {
        let mut table = table();
        let mut rows = RowsMut::try_from(table.slice_mut(s![1..3, 1..])).unwrap();
        rows.row_mut(1).fill(-1.0);
        rows.reborrow().row_mut(0)[0] = -2.0;
        assert_eq!(table.row(2).to_vec(), [20.0, -1.0, -1.0]);
        assert_eq!(table.row(1).to_vec(), [10.0, -2.0, 12.0]);
        assert_eq!(RowsMut::try_from(&mut table).unwrap().rows(), 4);
        assert!(RowsMut::try_from(table.view_mut().reversed_axes()).is_err());
    }
}
