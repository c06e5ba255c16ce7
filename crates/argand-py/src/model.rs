//! Learning on features: the sums, and the models solved from them.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argand::{Argument, Error, Rows, Spec};
use argand_learn::blocks::cached_rows;
use argand_learn::{
    Archive, GpClassifier, GpOptions, GpRegressor, Labels, Recipe, Ridge, Setting, Targets, Workspace, read_model,
};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::failure::model_error;
use crate::running::interruptible;
use crate::sketch::Sketch;
use crate::table::Table;

/// The sums of features and targets. Pickled as the file that other machines merge.
#[pyclass(frozen, module = "argand._argand")]
pub(crate) struct Gram(Arc<Mutex<argand_learn::Gram>>);

/// Memory that [`Gram::learn`] works in, for the next call: where an allocator keeps none, as in Dask's workers, the system has to clear it
/// every time.
#[pyclass(frozen, module = "argand._argand")]
#[derive(Default)]
pub(crate) struct Scratch(Mutex<Vec<(Vec<f32>, Workspace)>>);

#[pymethods]
impl Scratch {
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

impl Scratch {
    fn spare(&self) -> MutexGuard<'_, Vec<(Vec<f32>, Workspace)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Targets that a thread can own.
pub(crate) enum OwnedLabels {
    Values { values: Vec<f64>, columns: usize },
    Classes(Vec<u32>),
}

impl OwnedLabels {
    pub(crate) fn new(labels: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(classes) = labels.cast::<PyArray1<u32>>() {
            return Ok(Self::Classes(classes.try_readonly()?.as_slice()?.to_vec()));
        }
        let wrong = |_| PyTypeError::new_err("y: expected classes in uint32 or a table of float64");
        let values = labels.cast::<PyArray2<f64>>().map_err(wrong)?;
        Ok(Self::Values { columns: values.dims()[1], values: values.try_readonly()?.as_slice()?.to_vec() })
    }

    pub(crate) fn view(&self) -> Result<Labels<'_>, Error> {
        self.slice(0..self.rows())
    }

    fn rows(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Values { values, columns } => values.len() / (*columns).max(1),
        }
    }

    /// Those of the rows in a range.
    fn slice(&self, range: Range<usize>) -> Result<Labels<'_>, Error> {
        Ok(match self {
            Self::Classes(classes) => Labels::Classes(&classes[range]),
            Self::Values { values, columns } => {
                Labels::Values(Rows::new(&values[range.start * columns..range.end * columns], range.len(), *columns)?)
            }
        })
    }
}

/// Features that a thread can own.
struct Features {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
}

impl Features {
    fn new(features: &PyReadonlyArray2<'_, f32>) -> PyResult<Self> {
        Ok(Self { values: features.as_slice()?.to_vec(), rows: features.dims()[0], columns: features.dims()[1] })
    }

    fn view(&self) -> Result<Rows<'_, f32>, Error> {
        Rows::new(&self.values, self.rows, self.columns)
    }
}

fn lock(gram: &Mutex<argand_learn::Gram>) -> MutexGuard<'_, argand_learn::Gram> {
    gram.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Gram {
    /// Starts without rows; `targets` is "values", "classes" or "classes apart".
    #[staticmethod]
    fn empty(spec: &str, targets: &str, columns: usize) -> PyResult<Self> {
        let spec = Spec::from_json(spec).map_err(model_error)?;
        let targets = match targets {
            "values" => Targets::Values(columns),
            "classes" => Targets::Classes(columns),
            "classes apart" => Targets::ClassesApart(columns),
            other => {
                let error = Error::invalid(Argument::Targets, "values, classes or classes apart", other);
                return Err(model_error(error));
            }
        };
        let gram = argand_learn::Gram::new(&Recipe::from(spec), targets).map_err(model_error)?;
        Ok(Self(Arc::new(Mutex::new(gram))))
    }

    /// Restores from the bytes of a file, as such or as an array of them.
    #[new]
    fn new(py: Python<'_>, bytes: &Bound<'_, PyAny>) -> PyResult<Self> {
        let gram = if let Ok(array) = bytes.cast::<PyArray1<u8>>() {
            let array = array.try_readonly()?;
            let bytes = array.as_slice()?;
            py.detach(|| argand_learn::Gram::from_bytes(bytes))
        } else {
            argand_learn::Gram::from_bytes(bytes.extract()?)
        };
        Ok(Self(Arc::new(Mutex::new(gram.map_err(model_error)?))))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &lock(&self.0).to_bytes())
    }

    /// Pickled as an array, which goes over a network without being copied.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (Bound<'py, PyArray1<u8>>,)) {
        let (py, gram) = (slf.py(), Arc::clone(&slf.get().0));
        let bytes = py.detach(|| lock(&gram).to_bytes());
        (slf.get_type(), (PyArray1::from_vec(py, bytes),))
    }

    /// Adds rows, of which `first_row` is the first; if interrupted, the sums are unusable.
    ///
    /// Some rows at a time: their features stay near the processor, and in the same memory, as the system takes its time to hand out more.
    #[expect(clippy::too_many_arguments, reason = "called from one place, in Python")]
    fn learn(
        &self,
        py: Python<'_>,
        sketch: &Sketch,
        table: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        threads: Option<usize>,
        first_row: usize,
        scratch: Option<&Scratch>,
    ) -> PyResult<()> {
        let table = Table::<f32>::new(table)?;
        let view = table.view()?;
        let input = py.detach(|| view.input()).map_err(model_error)?;
        let (rows, columns, labels) = (input.rows(), sketch.features(), Arc::new(OwnedLabels::new(labels)?));
        if labels.rows() != rows {
            return Err(model_error(Error::invalid(Argument::Labels, format!("{rows} rows, as X"), labels.rows())));
        }
        // The rows of a class are summed up together.
        let apart = matches!(lock(&self.0).targets(), Targets::ClassesApart(_));
        let step = if apart { rows.max(1) } else { cached_rows(columns) };
        let (mut features, mut workspace) = scratch.and_then(|scratch| scratch.spare().pop()).unwrap_or_default();
        features.resize(step.min(rows) * columns, 0.0);
        for start in (0..rows).step_by(step) {
            let range = start..rows.min(start + step);
            let fail = move |error: Error| model_error(error.in_rows_from(first_row + start));
            features.truncate(range.len() * columns);
            sketch.fill(py, &[input.slice(range.clone())], &mut features, threads, fail)?;
            let (gram, labels) = (Arc::clone(&self.0), Arc::clone(&labels));
            let add = move || {
                let rows = Rows::new(&features, range.len(), columns)?;
                lock(&gram).update_with(rows, labels.slice(range)?, &mut workspace)?;
                Ok((features, workspace))
            };
            (features, workspace) = interruptible(py, threads, add)?.map_err(fail)?;
        }
        if let Some(scratch) = scratch {
            // Features of all rows are many.
            scratch.spare().push((if apart { Vec::new() } else { features }, workspace));
        }
        Ok(())
    }

    /// These sums and those of other rows, which both stay as they are.
    fn merged(&self, py: Python<'_>, other: &Self, threads: Option<usize>) -> PyResult<Self> {
        let (own, other) = (Arc::clone(&self.0), Arc::clone(&other.0));
        let add = move || {
            let mut sum = lock(&own).clone();
            sum.merge(&lock(&other)).map(|()| sum)
        };
        let sum = interruptible(py, threads, add)?.map_err(model_error)?;
        Ok(Self(Arc::new(Mutex::new(sum))))
    }

    /// Adds the sums of earlier rows, which stay as they are: as `earlier.merged(self)`, without another copy.
    fn follow(&self, py: Python<'_>, earlier: &Self, threads: Option<usize>) -> PyResult<()> {
        let (own, earlier) = (Arc::clone(&self.0), Arc::clone(&earlier.0));
        interruptible(py, threads, move || lock(&own).merge_after(&lock(&earlier)))?.map_err(model_error)
    }

    /// Bytes of the sums at most, for those who decide where to keep them.
    fn __sizeof__(&self) -> u64 {
        let gram = lock(&self.0);
        argand_learn::Gram::bytes(gram.recipe().spec.features, gram.targets())
    }

    /// The number of rows so far.
    #[getter]
    fn rows(&self) -> u64 {
        lock(&self.0).rows()
    }

    /// Ridge regression or classification.
    fn ridge(&self, py: Python<'_>, alpha: f64, threads: Option<usize>) -> PyResult<Model> {
        self.solve(py, threads, move |gram| Ridge::fit(gram, alpha))
    }

    /// A Gaussian process for classes.
    fn gp_classifier(
        &self,
        py: Python<'_>,
        alpha: f64,
        variance: Option<f64>,
        threads: Option<usize>,
    ) -> PyResult<Model> {
        let options = GpOptions { alpha, variance };
        self.solve(py, threads, move |gram| GpClassifier::fit(gram, &options))
    }

    /// A Gaussian process for numbers; variances that are not given maximise the likelihood.
    fn gp_regressor(
        &self,
        py: Python<'_>,
        kernel: Option<f64>,
        noise: Option<f64>,
        threads: Option<usize>,
    ) -> PyResult<Model> {
        self.solve(py, threads, move |gram| GpRegressor::fit_given(gram, kernel, noise))
    }
}

impl Gram {
    fn solve<M: argand_learn::Model>(
        &self,
        py: Python<'_>,
        threads: Option<usize>,
        fit: impl FnOnce(&argand_learn::Gram) -> Result<M, Error> + Send + 'static,
    ) -> PyResult<Model> {
        let gram = Arc::clone(&self.0);
        let fitted = interruptible(py, threads, move || fit(&lock(&gram)))?.map_err(model_error)?;
        Ok(Model(Arc::new(fitted)))
    }
}

/// A model of any kind. Pickled as its file.
#[pyclass(frozen, module = "argand._argand")]
pub(crate) struct Model(Arc<dyn argand_learn::Model>);

#[pymethods]
impl Model {
    /// Restores from the result of `__getnewargs__`.
    #[new]
    fn new(bytes: &[u8]) -> PyResult<Self> {
        let model = Archive::from_bytes(bytes).and_then(read_model).map_err(model_error)?;
        Ok(Self(model.into()))
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>,) {
        (PyBytes::new(py, &self.0.to_archive().to_bytes()),)
    }

    /// Predicted targets, or scores of classes, row by row.
    fn means<'py>(
        &self,
        py: Python<'py>,
        features: PyReadonlyArray2<'py, f32>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let found = self.on_features(py, &features, threads, |model, features| model.scores(features))?;
        Ok(PyArray1::from_vec(py, found))
    }

    /// Means and variances of the latent functions, row by row.
    fn means_and_variances<'py>(
        &self,
        py: Python<'py>,
        features: PyReadonlyArray2<'py, f32>,
        threads: Option<usize>,
    ) -> PyResult<[Bound<'py, PyArray1<f64>>; 2]> {
        let found = self.on_features(py, &features, threads, |model, features| model.latent(features))?;
        let found = found.ok_or_else(|| self.lacks("variances"))?;
        Ok([found.means, found.variances].map(|column| PyArray1::from_vec(py, column)))
    }

    /// Probabilities of classes, row by row.
    fn probabilities<'py>(
        &self,
        py: Python<'py>,
        features: PyReadonlyArray2<'py, f32>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        if !self.0.has_probabilities() {
            return Err(self.lacks("probabilities"));
        }
        let found = self.on_features(py, &features, threads, |model, features| model.predict(features))?;
        Ok(PyArray1::from_vec(py, found))
    }

    /// The most probable class of every row, counted from 0.
    fn labels<'py>(
        &self,
        py: Python<'py>,
        features: PyReadonlyArray2<'py, f32>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let found = self.on_features(py, &features, threads, |model, features| model.labels(features))?;
        Ok(PyArray1::from_vec(py, found))
    }

    /// Weights, one column of targets after another, and intercepts; ridge models only.
    #[getter]
    fn coefficients<'py>(&self, py: Python<'py>) -> Option<[Bound<'py, PyArray1<f64>>; 2]> {
        let model: &dyn Any = &*self.0;
        let ridge = model.downcast_ref::<Ridge>()?;
        Some([PyArray1::from_slice(py, ridge.weights()), PyArray1::from_slice(py, ridge.intercepts())])
    }

    /// The numeric options it was fitted with, by name.
    #[getter]
    fn settings(&self) -> BTreeMap<&'static str, f64> {
        let number = |(name, setting)| if let Setting::Number(number) = setting { Some((name, number)) } else { None };
        self.0.settings().into_iter().filter_map(number).collect()
    }

    /// The log marginal likelihood; Gaussian processes only.
    #[getter]
    fn evidence(&self) -> Option<f64> {
        self.0.evidence()
    }
}

impl Model {
    fn on_features<R: Send + 'static>(
        &self,
        py: Python<'_>,
        features: &PyReadonlyArray2<'_, f32>,
        threads: Option<usize>,
        compute: impl FnOnce(&dyn argand_learn::Model, Rows<'_, f32>) -> Result<R, Error> + Send + 'static,
    ) -> PyResult<R> {
        let (model, features) = (Arc::clone(&self.0), Features::new(features)?);
        interruptible(py, threads, move || compute(&*model, features.view()?))?.map_err(model_error)
    }

    fn lacks(&self, what: &str) -> PyErr {
        PyTypeError::new_err(format!("a {} model has no {what}", self.0.name()))
    }
}
