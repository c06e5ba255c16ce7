//! Tables of `arrow`: fixed-size lists, or numbers one row after the other.
//!
//! Arrow stores the columns of a `RecordBatch` separately. A column of vectors, such as embeddings, is stored row by
//! row: a `FixedSizeListArray`, which converts with `try_into`. [`rows`] is for plain numbers.
//!
//! ```
//! use argand::{FeatureMap, Spec};
//! use arrow_array::FixedSizeListArray;
//! use arrow_array::types::Float32Type;
//!
//! let vectors = [[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]].map(|row| Some(row.map(Some)));
//! let column = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 3);
//! let sketch = Spec::polynomial(3).with_features(4096).sketch::<f32>()?;
//! let features = sketch.transform(&[(&column).try_into()?])?;
//! let estimate: f32 = features[..4096].iter().zip(&features[4096..]).map(|(a, b)| a * b).sum();
//! assert!((estimate - 9.0).abs() < 0.5); // (1·½ + 2·½ + 3·½)² = 9
//! # Ok::<(), argand::Error>(())
//! ```

use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, FixedSizeListArray, PrimitiveArray};

use crate::error::{Argument, Error};
use crate::rows::{Input, Rows};

/// Checks that there are no nulls.
fn check_nulls(array: &dyn Array, what: &str) -> Result<(), Error> {
    match array.logical_null_count() {
        0 => Ok(()),
        nulls => {
            let expected = format!("{what} without nulls; fill them, or leave their rows out");
            Err(Error::invalid(Argument::Data, expected, format!("{nulls} nulls")))
        }
    }
}

/// The numbers of an array as rows of `columns` numbers, one after the other.
///
/// # Errors
/// [`Error::Invalid`] for nulls and for a length that is not a multiple of `columns`.
///
/// ```
/// use argand::interop::arrow;
/// use arrow_array::Float64Array;
/// let numbers = Float64Array::from(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let rows = arrow::rows(&numbers, 3)?;
/// assert_eq!(rows.row(1), [4.0, 5.0, 6.0]);
/// # Ok::<(), argand::Error>(())
/// ```
pub fn rows<P: ArrowPrimitiveType>(array: &PrimitiveArray<P>, columns: usize) -> Result<Rows<'_, P::Native>, Error> {
    if columns == 0 {
        return Err(Error::invalid(Argument::InputDim, "at least 1 column", 0));
    }
    check_nulls(array, "numbers")?;
    if !array.len().is_multiple_of(columns) {
        let expected = format!("a multiple of {columns} numbers, one for each column");
        return Err(Error::invalid(Argument::Data, expected, array.len()));
    }
    Rows::new(array.values(), array.len() / columns, columns)
}

fn list_rows<P: ArrowPrimitiveType>(lists: &FixedSizeListArray) -> Result<Rows<'_, P::Native>, Error> {
    check_nulls(lists, "lists")?;
    let values = lists.values();
    let Some(values) = values.as_any().downcast_ref::<PrimitiveArray<P>>() else {
        let expected = format!("lists of {}", P::DATA_TYPE);
        return Err(Error::invalid(Argument::Data, expected, values.data_type()));
    };
    check_nulls(values, "numbers")?;
    let columns = usize::try_from(lists.value_length())
        .map_err(|_| Error::invalid(Argument::InputDim, "a list length of at least 0", lists.value_length()))?;
    Rows::new(values.values(), lists.len(), columns)
}

macro_rules! lists {
    ($($scalar:ident, $type:ident;)*) => {
        $(
            /// One row per list; slices work too.
            ///
            /// # Errors
            /// [`Error::Invalid`] for nulls, in lists or instead of lists, and for lists of another type.
            impl<'a> TryFrom<&'a FixedSizeListArray> for Rows<'a, $scalar> {
                type Error = Error;

                fn try_from(lists: &'a FixedSizeListArray) -> Result<Self, Error> {
                    list_rows::<$type>(lists)
                }
            }

            /// As [`Rows`] from the same array.
            impl<'a> TryFrom<&'a FixedSizeListArray> for Input<'a, $scalar> {
                type Error = Error;

                fn try_from(lists: &'a FixedSizeListArray) -> Result<Self, Error> {
                    Rows::try_from(lists).map(Self::from)
                }
            }
        )*
    };
}

lists! {
    f32, Float32Type;
    f64, Float64Type;
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{Float32Array, Float64Array};

    use super::*;

    type Row = Option<[Option<f32>; 2]>;

    fn lists(rows: impl IntoIterator<Item = Row>) -> FixedSizeListArray {
        FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, 2)
    }

    fn row(number: u8) -> Row {
        Some([Some(f32::from(number)), Some(0.5)])
    }

    fn message(lists: &FixedSizeListArray) -> String {
        Rows::<f32>::try_from(lists).unwrap_err().to_string()
    }

    #[test]
    fn lists_and_slices_of_them_are_lent() {
        let lists = lists((0..5).map(row));
        let rows = Rows::<f32>::try_from(&lists).unwrap();
        assert_eq!((rows.rows(), rows.columns(), rows.row(4)), (5, 2, &[4.0, 0.5][..]));
        let slice = lists.slice(2, 2);
        let sliced = Rows::<f32>::try_from(&slice).unwrap();
        assert_eq!((sliced.rows(), sliced.row(0)), (2, &[2.0, 0.5][..]));
        assert_eq!(sliced.row(0).as_ptr(), rows.row(2).as_ptr());
        assert_eq!(Input::<f32>::try_from(&lists.slice(5, 0)).unwrap().rows(), 0);
    }

    #[test]
    fn nulls_and_other_types_are_errors() {
        let with_null = lists([row(0), None, row(2)]);
        assert_eq!(
            message(&with_null),
            "data: expected lists without nulls; fill them, or leave their rows out, got 1 nulls"
        );
        let rows = with_null.slice(2, 1);
        assert_eq!(Rows::<f32>::try_from(&rows).unwrap().row(0), [2.0, 0.5]); // the null is outside of the slice
        assert!(message(&lists([row(0), Some([None, Some(1.0)])])).contains("numbers without nulls"));
        let whole = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), Some(2)])], 2);
        assert_eq!(message(&whole), "data: expected lists of Float32, got Int32");
        assert!(Rows::<f64>::try_from(&lists([row(0)])).unwrap_err().to_string().contains("Float64, got Float32"));
    }

    #[test]
    fn numbers_with_a_width() {
        let numbers = Float32Array::from_iter_values((0..7).map(|v| v as f32));
        assert_eq!(rows(&numbers.slice(1, 6), 2).unwrap().row(2), [5.0, 6.0]);
        assert_eq!(
            rows(&numbers, 2).unwrap_err().to_string(),
            "data: expected a multiple of 2 numbers, one for each column, got 7"
        );
        assert!(rows(&numbers, 0).unwrap_err().to_string().starts_with("input_dim"));
        let with_null = Float64Array::from(vec![Some(1.0), None]);
        assert!(rows(&with_null, 2).unwrap_err().to_string().contains("numbers without nulls"));
    }
}
