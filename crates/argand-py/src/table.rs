//! Python tables as the library reads them.

use std::borrow::Cow;

use argand::{Error, Indices, Input, Rows, Scalar, SparseRows};
use numpy::{Element, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// An array of unsigned indices.
enum IndexArray<'py> {
    U32(PyReadonlyArray1<'py, u32>),
    U64(PyReadonlyArray1<'py, u64>),
}

/// A borrowed table: a C-contiguous array, or the tuple (indptr, indices, data, columns) of a CSR matrix.
pub(crate) struct Table<'py, T: Element>(Parts<'py, T>);

enum Parts<'py, T: Element> {
    Dense(PyReadonlyArray2<'py, T>),
    Sparse {
        row_starts: IndexArray<'py>,
        columns_of: IndexArray<'py>,
        values: PyReadonlyArray1<'py, T>,
        columns: usize,
    },
}

/// The package passes only what the following functions accept; anything else is a bug in it.
fn unexpected(what: &str) -> PyErr {
    PyTypeError::new_err(format!("X: expected {what}"))
}

impl<'py> IndexArray<'py> {
    fn new(array: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = array.cast::<PyArray1<u32>>() {
            Ok(Self::U32(array.try_readonly()?))
        } else {
            let array = array.cast::<PyArray1<u64>>().map_err(|_| unexpected("indices of 32 or 64 bits"))?;
            Ok(Self::U64(array.try_readonly()?))
        }
    }

    fn view(&self) -> PyResult<IndexView<'_>> {
        Ok(match self {
            Self::U32(indices) => IndexView::U32(Cow::Borrowed(indices.as_slice()?)),
            Self::U64(indices) => IndexView::U64(Cow::Borrowed(indices.as_slice()?)),
        })
    }
}

impl<'py, T: Scalar + Element> Table<'py, T> {
    pub(crate) fn new(table: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = table.cast::<PyArray2<T>>() {
            if !array.is_c_contiguous() {
                return Err(unexpected("a C-contiguous array"));
            }
            return Ok(Self(Parts::Dense(array.try_readonly()?)));
        }
        let (row_starts, columns_of, values, columns): (
            Bound<'py, PyAny>,
            Bound<'py, PyAny>,
            Bound<'py, PyAny>,
            usize,
        ) = table.extract().map_err(|_| unexpected(&format!("a table of {}", T::NAME)))?;
        let values = values.cast::<PyArray1<T>>().map_err(|_| unexpected(&format!("a table of {}", T::NAME)))?;
        Ok(Self(Parts::Sparse {
            row_starts: IndexArray::new(&row_starts)?,
            columns_of: IndexArray::new(&columns_of)?,
            values: values.try_readonly()?,
            columns,
        }))
    }

    /// A view that can be read without Python's lock.
    pub(crate) fn view(&self) -> PyResult<View<'_, T>> {
        Ok(match &self.0 {
            Parts::Dense(array) => {
                let [rows, columns] = [array.dims()[0], array.dims()[1]];
                View::Dense { values: Cow::Borrowed(array.as_slice()?), rows, columns }
            }
            Parts::Sparse { row_starts, columns_of, values, columns } => View::Sparse {
                row_starts: row_starts.view()?,
                columns_of: columns_of.view()?,
                values: Cow::Borrowed(values.as_slice()?),
                columns: *columns,
            },
        })
    }
}

#[derive(Clone)]
pub(crate) enum IndexView<'a> {
    U32(Cow<'a, [u32]>),
    U64(Cow<'a, [u64]>),
}

impl IndexView<'_> {
    fn len(&self) -> usize {
        match self {
            Self::U32(indices) => indices.len(),
            Self::U64(indices) => indices.len(),
        }
    }

    fn all(&self) -> Indices<'_> {
        match self {
            Self::U32(indices) => indices[..].into(),
            Self::U64(indices) => indices[..].into(),
        }
    }

    fn into_owned(self) -> IndexView<'static> {
        match self {
            Self::U32(indices) => IndexView::U32(indices.into_owned().into()),
            Self::U64(indices) => IndexView::U64(indices.into_owned().into()),
        }
    }
}

/// The numbers of a table, borrowed from Python or owned.
#[derive(Clone)]
pub(crate) enum View<'a, T: Clone> {
    Dense { values: Cow<'a, [T]>, rows: usize, columns: usize },
    Sparse { row_starts: IndexView<'a>, columns_of: IndexView<'a>, values: Cow<'a, [T]>, columns: usize },
}

impl<T: Scalar> View<'_, T> {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Dense { rows, .. } => *rows,
            Self::Sparse { row_starts, .. } => row_starts.len().saturating_sub(1),
        }
    }

    /// All rows.
    pub(crate) fn input(&self) -> Result<Input<'_, T>, Error> {
        match self {
            Self::Dense { values, rows, columns } => Ok(Rows::new(values, *rows, *columns)?.into()),
            Self::Sparse { row_starts, columns_of, values, columns } => {
                Ok(SparseRows::new(row_starts.all(), columns_of.all(), values, *columns)?.into())
            }
        }
    }

    /// A copy that outlives Python's arrays.
    pub(crate) fn into_owned(self) -> View<'static, T> {
        match self {
            Self::Dense { values, rows, columns } => View::Dense { values: values.into_owned().into(), rows, columns },
            Self::Sparse { row_starts, columns_of, values, columns } => View::Sparse {
                row_starts: row_starts.into_owned(),
                columns_of: columns_of.into_owned(),
                values: values.into_owned().into(),
                columns,
            },
        }
    }
}

/// All rows of several tables.
pub(crate) fn inputs<'a, T: Scalar>(views: &'a [View<'_, T>]) -> Result<Vec<Input<'a, T>>, Error> {
    views.iter().map(View::input).collect()
}

/// Copies of Python tables.
pub(crate) fn owned<T: Scalar + Element>(tables: &[Bound<'_, PyAny>]) -> PyResult<Vec<View<'static, T>>> {
    tables.iter().map(|table| Ok(Table::<T>::new(table)?.view()?.into_owned())).collect()
}

/// Whether the first table holds single-precision numbers; all tables of a call have one type.
pub(crate) fn is_single(tables: &[Bound<'_, PyAny>]) -> bool {
    tables.first().is_some_and(|table| Table::<f32>::new(table).is_ok())
}
