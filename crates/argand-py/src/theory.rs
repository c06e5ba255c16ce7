//! Theory and planning for Python.

use argand::fit::Aim;
use argand::plan::{Goal, Plan, Request};
use argand::theory::bounds::{self, Guarantee, Order};
use argand::theory::variance::{Formula, PairStatistics, gaussian_advantage, rademacher_advantage};
use argand::theory::{self, Sampling, Source};
use argand::{Argument, Base, Error, Kernel, Method, Rows, Scalar, Spec};
use numpy::{Element, IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::failure::value_error;
use crate::model::OwnedLabels;
use crate::running::interruptible;
use crate::table::{inputs, is_single, owned};

/// Rows of f64, one per pair.
type Pairs<'py> = PyReadonlyArray2<'py, f64>;

fn statistics(kernel: &Kernel, x: &Pairs<'_>, y: &Pairs<'_>) -> PyResult<Vec<PairStatistics>> {
    let [rows, columns] = [x.dims()[0], x.dims()[1]];
    let [other_rows, other_columns] = [y.dims()[0], y.dims()[1]];
    if (rows, columns) != (other_rows, other_columns) {
        let message = format!("y: expected {rows} x {columns} numbers, as x, got {other_rows} x {other_columns}");
        return Err(PyValueError::new_err(message));
    }
    let (x, y) = (Rows::new(x.as_slice()?, rows, columns), Rows::new(y.as_slice()?, rows, columns));
    let (x, y) = (x.map_err(value_error)?, y.map_err(value_error)?);
    (0..rows).map(|row| PairStatistics::new(kernel, x.row(row), y.row(row)).map_err(value_error)).collect()
}

/// Mean, variance and pseudo-variance of the kernel estimates of pairs of rows, if there is a closed form; `x` and `y` have one
/// table per input of the spec.
#[pyfunction]
pub(crate) fn moments<'py>(
    py: Python<'py>,
    spec: &str,
    x: Vec<Pairs<'py>>,
    y: Vec<Pairs<'py>>,
) -> PyResult<Option<[Bound<'py, PyArray1<f64>>; 3]>> {
    let spec = Spec::from_json(spec).map_err(value_error)?;
    let Some(formula) = Formula::of(&spec).map_err(value_error)? else { return Ok(None) };
    let tables = x.iter().zip(&y).map(|(x, y)| statistics(&spec.kernel, x, y)).collect::<PyResult<Vec<_>>>()?;
    let pairs = tables.iter().map(Vec::len).min().unwrap_or(0);
    let moments: Vec<_> =
        (0..pairs).map(|pair| formula.moments(&tables.iter().map(|table| table[pair]).collect::<Vec<_>>())).collect();
    let column = |of: fn(&argand::theory::variance::Moments) -> f64| {
        moments.iter().map(of).collect::<Vec<f64>>().into_pyarray(py)
    };
    Ok(Some([column(|m| m.mean), column(|m| m.variance), column(|m| m.pseudo_variance)]))
}

/// How much lower the variance of a Complex-to-Real sketch is, for pairs of rows.
#[pyfunction]
pub(crate) fn advantage<'py>(
    py: Python<'py>,
    spec: &str,
    x: Pairs<'py>,
    y: Pairs<'py>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let spec = Spec::from_json(spec).map_err(value_error)?;
    let formula = if spec.method.base() == Some(Base::Gaussian) { gaussian_advantage } else { rademacher_advantage };
    let pairs = statistics(&spec.kernel, &x, &y)?;
    let degree = spec.kernel.polynomial().map_or(1, |kernel| kernel.degree);
    let advantages: Vec<f64> = pairs.iter().map(|pair| formula(pair, degree, spec.features)).collect();
    Ok(advantages.into_pyarray(py))
}

/// The constant of Lemma 3.1.
#[pyfunction]
pub(crate) fn moment_constant(method: &str, t: f64) -> PyResult<f64> {
    let method: Method = method.parse().map_err(value_error)?;
    let Some(base) = method.base() else {
        return Err(PyValueError::new_err(format!("method: expected a method with a projection, got {method}")));
    };
    theory::moments::moment_constant(base, method.field(), t).map_err(value_error)
}

/// The order of the sketch size that a guarantee needs; `of` is "norm", "matrix product" or "spectrum".
#[pyfunction]
pub(crate) fn guarantee(
    of: &str,
    method: &str,
    degree: usize,
    epsilon: f64,
    delta: f64,
    statistical_dimension: f64,
) -> PyResult<(f64, f64)> {
    let method: Method = method.parse().map_err(value_error)?;
    let guarantee = Guarantee { field: method.field(), degree, epsilon, delta };
    let order = match of {
        "norm" => guarantee.norm_rows(),
        "matrix product" => guarantee.matrix_product_features(),
        _ => guarantee.spectral_features(statistical_dimension),
    };
    let Order { quadratic, linear } = order.map_err(value_error)?;
    Ok((quadratic, linear))
}

/// The statistical dimension of a kernel matrix.
#[pyfunction]
pub(crate) fn statistical_dimension(py: Python<'_>, kernel: Pairs<'_>, alpha: f64) -> PyResult<f64> {
    let kernel = kernel.as_slice()?.to_vec();
    interruptible(py, None, move || bounds::statistical_dimension(&kernel, alpha))?.map_err(value_error)
}

/// The spectral error of an approximate kernel matrix.
#[pyfunction]
pub(crate) fn spectral_error(py: Python<'_>, kernel: Pairs<'_>, approximation: Pairs<'_>, alpha: f64) -> PyResult<f64> {
    let (kernel, approximation) = (kernel.as_slice()?.to_vec(), approximation.as_slice()?.to_vec());
    interruptible(py, None, move || bounds::spectral_error(&kernel, &approximation, alpha))?.map_err(value_error)
}

/// Calls a generic function in the precision of the tables.
macro_rules! in_precision_of {
    ($tables:expr, $function:ident($($argument:expr),*)) => {
        if is_single($tables) { $function::<f32>($($argument),*) } else { $function::<f64>($($argument),*) }
    };
}

/// Relative error, its standard error and the number of sketches drawn, if any, for a sample of `population` rows.
#[pyfunction]
pub(crate) fn expected_error(
    py: Python<'_>,
    spec: &str,
    tables: Vec<Bound<'_, PyAny>>,
    population: usize,
    threads: Option<usize>,
) -> PyResult<(f64, f64, Option<usize>)> {
    fn predict<T: Scalar + Element>(
        py: Python<'_>,
        spec: Spec,
        tables: &[Bound<'_, PyAny>],
        population: usize,
        threads: Option<usize>,
    ) -> PyResult<(f64, f64, Option<usize>)> {
        let tables = owned::<T>(tables)?;
        let sampling = Sampling::default().with_population(population);
        let predicted =
            interruptible(py, threads, move || theory::expected_error(&spec, &inputs(&tables)?, &sampling))?;
        let error = predicted.map_err(value_error)?;
        let sketches = if let Source::MonteCarlo { sketches } = error.source { Some(sketches) } else { None };
        Ok((error.relative, error.standard_error, sketches))
    }
    let spec = Spec::from_json(spec).map_err(value_error)?;
    in_precision_of!(&tables, predict(py, spec, &tables, population, threads))
}

/// The relative error of the kernel matrix of these features.
#[pyfunction]
pub(crate) fn kernel_error(
    py: Python<'_>,
    spec: &str,
    tables: Vec<Bound<'_, PyAny>>,
    features: &Bound<'_, PyAny>,
    threads: Option<usize>,
) -> PyResult<f64> {
    fn measure<T: Scalar + Element>(
        py: Python<'_>,
        spec: Spec,
        tables: &[Bound<'_, PyAny>],
        features: &Bound<'_, PyAny>,
        threads: Option<usize>,
    ) -> PyResult<f64> {
        let tables = owned::<T>(tables)?;
        let wrong = || PyTypeError::new_err(format!("Z: expected a table of {}, as X", T::NAME));
        let features: PyReadonlyArray2<'_, T> = features.extract().map_err(|_| wrong())?;
        let ([rows, columns], values) = ([features.dims()[0], features.dims()[1]], features.as_slice()?.to_vec());
        let measured = interruptible(py, threads, move || {
            theory::kernel_error(&spec, &inputs(&tables)?, Rows::new(&values, rows, columns)?)
        })?;
        measured.map_err(value_error)
    }
    let spec = Spec::from_json(spec).map_err(value_error)?;
    in_precision_of!(&tables, measure(py, spec, &tables, features, threads))
}

/// A plan, given as JSON, as HTML to embed in a notebook.
#[pyfunction]
pub(crate) fn plan_html(plan: &str, about: &str) -> PyResult<String> {
    let command = |_: &str| "argand transform x.npy -o z.npy --spec sketch.json".to_owned();
    argand_figure::plan_fragment(&[plan], about, command).map_err(PyValueError::new_err)
}

/// The plan for a sample of `population` rows with the kernel and tables of a spec: as JSON, as text, and why nothing is recommended, if so.
/// With labels, classes in uint32 or a table of float64, its finalists are fitted.
#[pyfunction]
#[pyo3(signature = (tables, labels, *, spec, target_error, n_components, methods, rows, time_budget, max_components, population, seed,
    threads))]
#[allow(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn plan(
    py: Python<'_>,
    tables: Vec<Bound<'_, PyAny>>,
    labels: Option<Bound<'_, PyAny>>,
    spec: &str,
    target_error: Option<f64>,
    n_components: Option<usize>,
    methods: Option<Vec<String>>,
    rows: Option<usize>,
    time_budget: Option<f64>,
    max_components: usize,
    population: usize,
    seed: u64,
    threads: Option<usize>,
) -> PyResult<(String, String, Option<String>)> {
    fn make<T: Scalar + Element>(
        py: Python<'_>,
        request: Request,
        tables: &[Bound<'_, PyAny>],
        labels: Option<OwnedLabels>,
        threads: Option<usize>,
    ) -> PyResult<Plan> {
        let tables = owned::<T>(tables)?;
        let plan = interruptible(py, threads, move || {
            let inputs = inputs(&tables)?;
            let mut plan = argand::plan::plan(&request, &inputs, |_| {})?;
            if let Some(labels) = labels {
                argand_learn::fit_finalists(&mut plan, &inputs, labels.view()?, request.seed, |_| {})?;
            }
            Ok(plan)
        })?;
        plan.map_err(value_error)
    }
    let goal = match (target_error, n_components, time_budget) {
        (Some(target), None, _) => Goal::Error(target),
        (None, Some(features), _) => Goal::Features(features),
        (None, None, Some(seconds)) => Goal::Time(seconds),
        _ => return Err(PyTypeError::new_err("plan: expected either target_error or n_components, or a time_budget")),
    };
    let Spec { kernel, inputs, .. } = Spec::from_json(spec).map_err(value_error)?;
    let labels = labels.as_ref().map(OwnedLabels::new).transpose()?;
    let mut request = Request::new(kernel, inputs, goal);
    if let Some(methods) = methods {
        let parse = |method: &String| {
            method.parse().map_err(|error| match error {
                Error::Invalid { expected, received, .. } => Error::invalid(Argument::Methods, expected, received),
                other => other,
            })
        };
        request.methods = methods.iter().map(parse).collect::<Result<_, Error>>().map_err(value_error)?;
    }
    request.aim = if labels.is_some() { Aim::Learning } else { Aim::Kernel };
    request.labelled = labels.is_some();
    request.rows = rows;
    request.time_budget = time_budget;
    request.max_features = max_components;
    (request.seed, request.sampling.seed) = (seed, seed);
    request.sampling.population = Some(population);
    request.validate().map_err(value_error)?;
    let plan = in_precision_of!(&tables, make(py, request, &tables, labels, threads))?;
    Ok((plan.to_json(), plan.to_string(), plan.recommended.err().map(|unmet| unmet.to_string())))
}
