//! A drawn sketch, as Python holds it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use argand::fit::Fitting;
use argand::{Base, Error, FeatureMap, FileFault, Input, InputDims, Kernel, Method, Polynomial, RowsMut, Scalar, Spec};
use argand_learn::blocks::feature_rows;
use argand_learn::{Missing, Recipe, Scaling};
use numpy::{Element, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::failure::{model_error, value_error};
use crate::running::{interruptible, pool};
use crate::table::{self, Table};

/// The sketch of a saved spec or recipe. Columns are named and scaled in Python by others, so a recipe that does more than name them
/// is refused.
fn read_spec(text: &str) -> Result<Spec, Error> {
    let recipe = Recipe::from_json(text)?;
    if recipe.preparation.scaling() != Scaling::None || recipe.missing != Missing::Error {
        let what =
            "it scales rows or replaces missing numbers; use it with the command line, or save a sketch without these";
        return Err(Error::Spec(FileFault::Content(what.to_owned())));
    }
    Ok(recipe.spec)
}

/// How long a block of rows may take between checks for Python's signals.
const BLOCK_TIME: Duration = Duration::from_millis(200);

/// The JSON of a spec, from keywords; `dims` has one entry, or one per factor of a product of `distinct` tables. The kernel is polynomial, unless a
/// `length_scale` (of a Gaussian kernel, or an `exponential` one) or `coefficients` are given.
#[pyfunction]
#[pyo3(signature = (*, dims, distinct, degree=2, gamma=1.0, coef0=0.0, n_components, method, craft_dim, seed,
                    length_scale=None, exponential=false, coefficients=None))]
#[allow(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn spec(
    dims: Vec<usize>,
    distinct: bool,
    degree: usize,
    gamma: f64,
    coef0: f64,
    n_components: usize,
    method: &str,
    craft_dim: usize,
    seed: u64,
    length_scale: Option<f64>,
    exponential: bool,
    coefficients: Option<Vec<f64>>,
) -> PyResult<String> {
    let mut method: Method = method.parse().map_err(value_error)?;
    method = method.with_craft_dim(craft_dim);
    let inputs = match dims[..] {
        [dim] if !distinct => InputDims::Same(dim),
        _ => InputDims::Distinct(dims),
    };
    let kernel = match (coefficients, length_scale) {
        (Some(coefficients), _) => Kernel::Series { coefficients },
        (None, Some(length_scale)) if exponential => Kernel::Exponential { length_scale },
        (None, Some(length_scale)) => Kernel::Gaussian { length_scale },
        (None, None) => Polynomial { degree, gamma, coef0 }.into(),
    };
    let spec = Spec::new(inputs).with_kernel(kernel).with_features(n_components).with_method(method).with_seed(seed);
    spec.validate().map_err(value_error)?;
    Ok(spec.to_json())
}

/// The number of exact features of a polynomial kernel, if they can be computed.
#[pyfunction]
pub(crate) fn exact_features(dim: usize, degree: usize, gamma: f64, coef0: f64) -> Option<usize> {
    Spec::polynomial(dim).with_kernel(Polynomial { degree, gamma, coef0 }).with_method(Method::Exact).exact_features()
}

/// The JSON of a spec fitted to rows, if its method looks at them. There are as many landmarks as different rows, if those are fewer.
#[pyfunction]
pub(crate) fn fit_spec<'py>(
    py: Python<'py>,
    spec: &str,
    table: Bound<'py, PyAny>,
    selection: &str,
    aim: &str,
    threads: Option<usize>,
) -> PyResult<String> {
    let spec = Spec::from_json(spec).map_err(value_error)?;
    let (selection, aim) = (selection.parse().map_err(value_error)?, aim.parse().map_err(value_error)?);
    let fitting = Fitting::default().with_selection(selection).with_aim(aim).or_fewer();
    let tables = [table];
    let fitted = if table::is_single(&tables) {
        fitted::<f32>(py, spec, &tables, fitting, threads)
    } else {
        fitted::<f64>(py, spec, &tables, fitting, threads)
    };
    Ok(fitted?.to_json())
}

fn fitted<'py, T: Precision>(
    py: Python<'py>,
    spec: Spec,
    tables: &[Bound<'py, PyAny>],
    fitting: Fitting,
    threads: Option<usize>,
) -> PyResult<Spec> {
    let rows = table::owned::<T>(tables)?;
    interruptible(py, threads, move || spec.fit_to(&table::inputs(&rows)?, &fitting))?.map_err(value_error)
}

/// The JSON of the spec of a Gaussian kernel with the method that learns better from rows, fitted to them.
#[pyfunction]
pub(crate) fn choose_spec<'py>(
    py: Python<'py>,
    spec: &str,
    table: Bound<'py, PyAny>,
    n_components: usize,
    threads: Option<usize>,
) -> PyResult<String> {
    fn chosen<'py, T: Precision>(
        py: Python<'py>,
        spec: Spec,
        tables: &[Bound<'py, PyAny>],
        threads: Option<usize>,
    ) -> PyResult<Spec> {
        let rows = table::owned::<T>(tables)?;
        interruptible(py, threads, move || spec.chosen_for_learning(&table::inputs(&rows)?))?.map_err(value_error)
    }
    let spec = Spec::from_json(spec).map_err(value_error)?.with_features(n_components);
    let tables = [table];
    let single = table::is_single(&tables);
    let chosen =
        if single { chosen::<f32>(py, spec, &tables, threads) } else { chosen::<f64>(py, spec, &tables, threads) };
    Ok(chosen?.to_json())
}

/// A spec, and its sketches in single and double precision once needed. Pickled as its spec.
#[pyclass(frozen, module = "argand._argand")]
pub(crate) struct Sketch {
    spec: Spec,
    single: OnceLock<argand::Sketch<f32>>,
    double: OnceLock<argand::Sketch<f64>>,
}

/// The precisions of a sketch.
pub(crate) trait Precision: Scalar + Element {
    fn place(sketch: &Sketch) -> &OnceLock<argand::Sketch<Self>>;
}

impl Precision for f32 {
    fn place(sketch: &Sketch) -> &OnceLock<argand::Sketch<Self>> {
        &sketch.single
    }
}

impl Precision for f64 {
    fn place(sketch: &Sketch) -> &OnceLock<argand::Sketch<Self>> {
        &sketch.double
    }
}

#[pymethods]
impl Sketch {
    #[new]
    fn new(spec: &str) -> PyResult<Self> {
        let spec = read_spec(spec).map_err(value_error)?;
        Ok(Self { spec, single: OnceLock::new(), double: OnceLock::new() })
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.spec(),)
    }

    /// The spec as JSON; includes the fit of spherical features once drawn.
    #[getter]
    fn spec(&self) -> String {
        let drawn = self.single.get().map(argand::Sketch::spec).or(self.double.get().map(argand::Sketch::spec));
        drawn.unwrap_or(&self.spec).to_json()
    }

    /// The name of its method.
    #[getter]
    fn method(&self) -> String {
        self.spec.method.to_string()
    }

    /// The number of real columns.
    #[getter]
    pub(crate) fn features(&self) -> usize {
        self.spec.features
    }

    /// Rows to compute features for and learn from at a time.
    #[getter]
    fn block_rows(&self) -> usize {
        feature_rows::<f32>(self.spec.features)
    }

    /// Draws the random numbers for inputs of single or double precision.
    fn draw(&self, py: Python<'_>, single: bool, threads: Option<usize>) -> PyResult<()> {
        if single { self.drawn::<f32>(py, threads).map(drop) } else { self.drawn::<f64>(py, threads).map(drop) }
    }

    /// Writes the features of all tables into `out`, which sets the precision.
    ///
    /// If `out` holds something worth keeping, all numbers are checked before any is written.
    fn transform<'py>(
        &self,
        py: Python<'py>,
        tables: Vec<Bound<'py, PyAny>>,
        out: &Bound<'py, PyAny>,
        keep: bool,
        threads: Option<usize>,
    ) -> PyResult<()> {
        if let Ok(out) = out.cast::<PyArray2<f32>>() {
            self.transform_into(py, &tables, out, keep, threads, value_error)
        } else if let Ok(out) = out.cast::<PyArray2<f64>>() {
            self.transform_into(py, &tables, out, keep, threads, value_error)
        } else {
            Err(PyTypeError::new_err("out: expected a table of float32 or float64"))
        }
    }

    /// Writes the features that a model computes with into `out`: those of a block of a larger table, in which messages count
    /// rows from `first_row`.
    fn transform_block<'py>(
        &self,
        py: Python<'py>,
        table: Bound<'py, PyAny>,
        out: &Bound<'py, PyArray2<f32>>,
        threads: Option<usize>,
        first_row: usize,
    ) -> PyResult<()> {
        let fail = |error: Error| model_error(error.in_rows_from(first_row));
        self.transform_into(py, &[table], out, false, threads, fail)
    }
}

impl Sketch {
    pub(crate) fn drawn<T: Precision>(&self, py: Python<'_>, threads: Option<usize>) -> PyResult<&argand::Sketch<T>> {
        let place = T::place(self);
        if let Some(sketch) = place.get() {
            return Ok(sketch);
        }
        let spec = self.spec.clone();
        let sketch = interruptible(py, threads, move || spec.sketch::<T>())?.map_err(value_error)?;
        // If another thread was faster, its sketch is identical.
        Ok(place.get_or_init(|| sketch))
    }

    fn transform_into<'py, T: Precision>(
        &self,
        py: Python<'py>,
        tables: &[Bound<'py, PyAny>],
        out: &Bound<'py, PyArray2<T>>,
        keep: bool,
        threads: Option<usize>,
        fail: impl Fn(Error) -> PyErr,
    ) -> PyResult<()> {
        let tables = tables.iter().map(Table::<T>::new).collect::<PyResult<Vec<_>>>()?;
        let views = tables.iter().map(Table::view).collect::<PyResult<Vec<_>>>()?;
        let rows = out.dims()[0];
        if let Some(table) = views.iter().position(|view| view.rows() != rows) {
            let message = format!("X[{table}]: expected {rows} rows, as the first table, got {}", views[table].rows());
            return Err(PyValueError::new_err(message));
        }
        if !out.is_c_contiguous() {
            return Err(PyTypeError::new_err("out: expected a C-contiguous array"));
        }
        let mut out =
            out.try_readwrite().map_err(|_| PyValueError::new_err("out: must be writable and not overlap X"))?;
        let out = out.as_slice_mut()?;
        let pool = pool(threads)?;
        // Indices are checked on the whole table, so that messages count rows from its start. Numbers are checked
        // once: here, or block by block.
        let inputs = py
            .detach(|| {
                pool.install(|| {
                    let inputs = table::inputs(&views)?;
                    if keep { argand::checked(&inputs) } else { Ok(inputs) }
                })
            })
            .map_err(value_error)?;
        self.fill(py, &inputs, out, threads, fail)
    }

    /// Writes the features of all rows into `out`, row by row.
    pub(crate) fn fill<T: Precision>(
        &self,
        py: Python<'_>,
        inputs: &[Input<'_, T>],
        out: &mut [T],
        threads: Option<usize>,
        fail: impl Fn(Error) -> PyErr,
    ) -> PyResult<()> {
        let rows = inputs[0].rows();
        let columns = out.len().checked_div(rows).unwrap_or(0);
        let sketch = self.drawn::<T>(py, threads)?;
        let pool = pool(threads)?;
        let mut blocks = Blocks::new(&self.spec, pool.current_num_threads());
        let mut start = 0;
        while start < rows {
            let end = rows.min(start.saturating_add(blocks.rows));
            let part = &mut out[start * columns..end * columns];
            let begun = Instant::now();
            py.detach(|| {
                pool.install(|| {
                    let inputs: Vec<_> = inputs.iter().map(|input| input.slice(start..end)).collect();
                    sketch.transform_into(&inputs, RowsMut::new(part, end - start, columns)?)
                })
            })
            .map_err(|error| fail(error.in_rows_from(start)))?;
            blocks.learn(begun.elapsed());
            start = end;
            py.check_signals()?;
        }
        Ok(())
    }
}

/// How many rows to compute between checks for Python's signals.
struct Blocks {
    rows: usize,
}

impl Blocks {
    /// A first guess: a few milliseconds even for dense weights.
    fn new(spec: &Spec, threads: usize) -> Self {
        let (columns, projected) = (spec.inputs.as_slice().iter().sum::<usize>(), spec.outputs());
        // Nyström's features, Fourier features and spherical ones are dense; sums are not, as a rule.
        let dense = matches!(spec.method.base(), None | Some(Base::Gaussian | Base::Rademacher))
            && !matches!(spec.method, Method::Maclaurin(_) | Method::Exact);
        let work = if dense {
            columns.saturating_mul(projected)
        } else {
            columns.saturating_add(projected).saturating_mul(32)
        };
        let factors = spec.kernel.polynomial().map_or(8, |kernel| kernel.degree);
        let rows = (1_usize << 27) / work.saturating_mul(factors).max(1);
        Self { rows: rows.saturating_mul(threads).max(16 * threads) }
    }

    /// Aims at [`BLOCK_TIME`], growing at most eightfold at once.
    fn learn(&mut self, elapsed: Duration) {
        let factor = (BLOCK_TIME.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)).clamp(1e-3, 8.0);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number of rows, saturated"
        )]
        let rows = (self.rows as f64 * factor) as usize;
        self.rows = rows.max(16);
    }
}
