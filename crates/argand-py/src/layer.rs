//! What a layer of a network calls: features and their adjoint, through which NaN and infinity pass.

use argand::draw::Map;
use argand::{Error, FeatureMap, Groups, Input, Rows, RowsMut, Spec};
use numpy::{IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray2, PyReadwriteArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::failure::value_error;
use crate::running::{interruptible, pool};
use crate::sketch::{Precision, Sketch};

/// So few rows are computed by the calling thread: to wake another one takes longer.
const FEW_ROWS: usize = 16;

/// Writes the features into `out`, which sets the precision, added up over each `group` rows.
///
/// Rows with NaN or infinity have features that are not finite, and so have rows whose features do not fit.
#[pyfunction]
pub(crate) fn layer<'py>(
    py: Python<'py>,
    sketch: &Sketch,
    tables: Vec<Bound<'py, PyAny>>,
    out: &Bound<'py, PyAny>,
    group: usize,
    threads: usize,
) -> PyResult<()> {
    if let Ok(out) = out.cast::<PyArray2<f32>>() {
        forward(py, sketch.drawn(py, Some(threads))?, &arrays(&tables)?, out.try_readwrite()?, group, threads)
    } else {
        let out = out.cast::<PyArray2<f64>>().map_err(|_| not_real())?;
        forward(py, sketch.drawn(py, Some(threads))?, &arrays(&tables)?, out.try_readwrite()?, group, threads)
    }
}

/// Writes the gradients with respect to each table, from the cotangent of what [`layer`] writes.
#[pyfunction]
pub(crate) fn layer_vjp<'py>(
    py: Python<'py>,
    sketch: &Sketch,
    tables: Vec<Bound<'py, PyAny>>,
    cotangent: &Bound<'py, PyAny>,
    gradients: Vec<Bound<'py, PyAny>>,
    group: usize,
    threads: usize,
) -> PyResult<()> {
    if let Ok(cotangent) = cotangent.cast::<PyArray2<f32>>() {
        let cotangent = cotangent.try_readonly()?;
        backward(py, sketch.drawn(py, Some(threads))?, &arrays(&tables)?, &cotangent, &gradients, group, threads)
    } else {
        let cotangent = cotangent.cast::<PyArray2<f64>>().map_err(|_| not_real())?.try_readonly()?;
        backward(py, sketch.drawn(py, Some(threads))?, &arrays(&tables)?, &cotangent, &gradients, group, threads)
    }
}

/// The frequencies of spherical random features, one per row; `None` for other sketches.
#[pyfunction]
pub(crate) fn frequencies<'py>(py: Python<'py>, spec: &str) -> PyResult<Option<Bound<'py, PyArray2<f64>>>> {
    let spec = Spec::from_json(spec).map_err(value_error)?;
    let drawn = interruptible(py, None, move || spec.draw())?.map_err(value_error)?;
    let Map::Cosine(cosine) = &drawn.map else { return Ok(None) };
    let rows = cosine.radii.len();
    let frequencies: Vec<f64> = (0..rows).flat_map(|index| cosine.frequency(index)).collect();
    frequencies.into_pyarray(py).reshape([rows, cosine.dim]).map(Some)
}

fn not_real() -> PyErr {
    PyTypeError::new_err("expected a table of float32 or float64")
}

fn arrays<'py, T: Precision>(tables: &[Bound<'py, PyAny>]) -> PyResult<Vec<PyReadonlyArray2<'py, T>>> {
    tables
        .iter()
        .map(|table| table.cast::<PyArray2<T>>().map_err(|_| not_real())?.try_readonly().map_err(PyErr::from))
        .collect()
}

/// A view whose numbers are not looked at: NaN and infinity are computed with.
fn view<'a, T: Precision>(array: &'a PyReadonlyArray2<'_, T>) -> PyResult<Rows<'a, T>> {
    let [rows, columns] = [array.dims()[0], array.dims()[1]];
    Ok(Rows::new(array.as_slice()?, rows, columns).map_err(value_error)?.known_finite())
}

/// Features that do not fit are written as infinity, NaN or zero like all others, and the rows after them are computed.
fn overflow_passes(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::Overflow { .. } | Error::Underflow { .. }) => Ok(()),
        other => other,
    }
}

/// Runs work without Python's lock, on a pool unless there are few rows.
fn run<R: Send>(py: Python<'_>, rows: usize, threads: usize, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    if rows <= FEW_ROWS {
        return Ok(py.detach(work));
    }
    let pool = pool(Some(threads))?;
    Ok(py.detach(|| pool.install(work)))
}

fn forward<T: Precision>(
    py: Python<'_>,
    sketch: &argand::Sketch<T>,
    tables: &[PyReadonlyArray2<'_, T>],
    mut out: PyReadwriteArray2<'_, T>,
    group: usize,
    threads: usize,
) -> PyResult<()> {
    let inputs = tables.iter().map(|table| Ok(view(table)?.into())).collect::<PyResult<Vec<Input<'_, T>>>>()?;
    let rows = inputs.first().map_or(0, Input::rows);
    let [out_rows, columns] = [out.dims()[0], out.dims()[1]];
    let out = RowsMut::new(out.as_slice_mut()?, out_rows, columns).map_err(value_error)?;
    let computed = if group == 1 {
        run(py, rows, threads, || overflow_passes(sketch.transform_into(&inputs, out)))?
    } else {
        // A pool even for few rows: sums ask how many threads there are.
        run(py, usize::MAX, threads, || add_up(sketch, &inputs, &Groups::even(rows, group)?, out))?
    };
    computed.map_err(value_error)
}

fn backward<T: Precision>(
    py: Python<'_>,
    sketch: &argand::Sketch<T>,
    tables: &[PyReadonlyArray2<'_, T>],
    cotangent: &PyReadonlyArray2<'_, T>,
    gradients: &[Bound<'_, PyAny>],
    group: usize,
    threads: usize,
) -> PyResult<()> {
    let inputs = tables.iter().map(|table| Ok(view(table)?.into())).collect::<PyResult<Vec<Input<'_, T>>>>()?;
    let rows = inputs.first().map_or(0, Input::rows);
    let cotangent = view(cotangent)?;
    let arrays = gradients.iter().map(|gradient| gradient.cast::<PyArray2<T>>().map_err(|_| not_real()));
    let mut arrays = arrays.map(|array| Ok(array?.try_readwrite()?)).collect::<PyResult<Vec<_>>>()?;
    let mut gradients = Vec::new();
    for array in &mut arrays {
        let [rows, columns] = [array.dims()[0], array.dims()[1]];
        gradients.push(RowsMut::new(array.as_slice_mut()?, rows, columns).map_err(value_error)?);
    }
    let computed = run(py, rows, threads, || {
        overflow_passes(if group == 1 {
            sketch.vjp_into(&inputs, cotangent, &mut gradients)
        } else {
            sketch.vjp_pooled_into(&inputs, &Groups::even(rows, group)?, cotangent, &mut gradients)
        })
    })?;
    computed.map_err(value_error)
}

/// Pooled features. Sums stop at the first feature that does not fit; then they are taken again, group by group, with all features.
fn add_up<T: Precision>(
    sketch: &argand::Sketch<T>,
    inputs: &[Input<'_, T>],
    groups: &Groups,
    mut out: RowsMut<'_, T>,
) -> Result<(), Error> {
    match sketch.transform_pooled_into(inputs, groups, out.reborrow()) {
        Err(Error::Overflow { .. }) => {}
        other => return other,
    }
    let columns = out.columns();
    for group in 0..groups.count() {
        let rows = groups.range(group);
        let mut features = vec![T::ZERO; rows.len() * columns];
        let part: Vec<Input<'_, T>> = inputs.iter().map(|input| input.slice(rows.clone())).collect();
        overflow_passes(sketch.transform_into(&part, RowsMut::new(&mut features, rows.len(), columns)?))?;
        let mut sums = vec![0.0; columns];
        for row in features.chunks_exact(columns) {
            sums.iter_mut().zip(row).for_each(|(sum, feature)| *sum += feature.to_f64());
        }
        out.row_mut(group).iter_mut().zip(sums).for_each(|(into, sum)| *into = T::from_f64(sum));
    }
    Ok(())
}
