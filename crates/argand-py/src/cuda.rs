//! A sketch on a GPU, at the level of addresses: the package reads them from the arrays of PyTorch and CuPy.

#![allow(unsafe_code, reason = "nobody can check an address in device memory")]

use std::sync::OnceLock;

use argand::draw::Drawn;
use argand::{Error, Spec};
use argand_cuda::{Device, DeviceRows, Element, Real, Stream};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::failure::value_error;
use crate::running::interruptible;

/// Address, rows, columns and the numbers from one row to the next.
type Place = (u64, usize, usize, usize);

/// A spec on one GPU, in single and double precision once needed.
#[pyclass(frozen, module = "argand._argand")]
pub(crate) struct CudaSketch {
    spec: Spec,
    device: Device,
    single: OnceLock<argand_cuda::CudaSketch<f32>>,
    double: OnceLock<argand_cuda::CudaSketch<f64>>,
}

/// The precisions a GPU computes in.
trait OnDevice: Real {
    fn place(sketch: &CudaSketch) -> &OnceLock<argand_cuda::CudaSketch<Self>>;
}

impl OnDevice for f32 {
    fn place(sketch: &CudaSketch) -> &OnceLock<argand_cuda::CudaSketch<Self>> {
        &sketch.single
    }
}

impl OnDevice for f64 {
    fn place(sketch: &CudaSketch) -> &OnceLock<argand_cuda::CudaSketch<Self>> {
        &sketch.double
    }
}

/// The number of GPUs; an error says why there is none.
#[pyfunction]
pub(crate) fn cuda_devices(py: Python<'_>) -> PyResult<usize> {
    py.detach(argand_cuda::count).map_err(value_error)
}

fn element(name: &str) -> PyResult<Element> {
    Ok(match name {
        "float32" => Element::F32,
        "float16" => Element::F16,
        "bfloat16" => Element::Bf16,
        "float64" => Element::F64,
        other => {
            let message = format!("X: expected float32, float16, bfloat16 or float64, got {other}");
            return Err(PyTypeError::new_err(message));
        }
    })
}

/// The tables of a call, and where their work is queued.
struct Call {
    stream: Stream,
    element: Element,
}

impl Call {
    fn new(sketch: &CudaSketch, stream: usize, name: &str) -> PyResult<Self> {
        // SAFETY: the package passes the current stream of the library that the arrays belong to, on their device.
        let stream = unsafe { sketch.device.foreign_stream(std::ptr::with_exposed_provenance_mut(stream)) };
        Ok(Self { stream, element: element(name)? })
    }

    fn rows(&self, (address, rows, columns, stride): Place) -> Result<DeviceRows, Error> {
        // SAFETY: the package reads address, shape and stride from an array of this device that it keeps until its work is queued;
        // what is freed afterwards is used again in the order of the stream.
        unsafe { DeviceRows::from_address(address, self.element, rows, columns, stride) }
    }

    fn all(&self, places: &[Place]) -> Result<Vec<DeviceRows>, Error> {
        places.iter().map(|&place| self.rows(place)).collect()
    }
}

/// Calls a generic function in the precision that numbers of this type are computed with.
macro_rules! in_precision_of {
    ($call:expr, $self:ident.$function:ident($($argument:expr),*)) => {
        if $call.element == Element::F64 { $self.$function::<f64>($($argument),*) } else { $self.$function::<f32>($($argument),*) }
    };
}

#[pymethods]
impl CudaSketch {
    #[new]
    fn new(py: Python<'_>, spec: &str, device: usize) -> PyResult<Self> {
        let spec = Spec::from_json(spec).map_err(value_error)?;
        let device = py.detach(|| Device::open(device)).map_err(value_error)?;
        Ok(Self { spec, device, single: OnceLock::new(), double: OnceLock::new() })
    }

    /// Queues the features of tables of this type on a stream, and returns. With the address of the starts of groups, their sums.
    #[pyo3(signature = (stream, element, tables, out, starts=None))]
    fn transform(
        &self,
        py: Python<'_>,
        stream: usize,
        element: &str,
        tables: Vec<Place>,
        out: Place,
        starts: Option<u64>,
    ) -> PyResult<()> {
        let call = Call::new(self, stream, element)?;
        in_precision_of!(call, self.queue(py, &call, &tables, out, starts))
    }

    /// Queues the gradients with respect to each table.
    #[pyo3(signature = (stream, element, tables, cotangent, gradients, starts=None))]
    #[allow(clippy::too_many_arguments, reason = "a call has many")]
    fn vjp(
        &self,
        py: Python<'_>,
        stream: usize,
        element: &str,
        tables: Vec<Place>,
        cotangent: Place,
        gradients: Vec<Place>,
        starts: Option<u64>,
    ) -> PyResult<()> {
        let call = Call::new(self, stream, element)?;
        in_precision_of!(call, self.queue_vjp(py, &call, &tables, cotangent, &gradients, starts))
    }

    /// Waits for the work on a stream; an error names the first row whose features did not fit.
    fn finish(&self, py: Python<'_>, stream: usize, element: &str) -> PyResult<()> {
        let call = Call::new(self, stream, element)?;
        in_precision_of!(call, self.wait(py, &call))
    }
}

impl CudaSketch {
    fn ready<T: OnDevice>(&self, py: Python<'_>) -> PyResult<&argand_cuda::CudaSketch<T>> {
        let place = T::place(self);
        if let Some(sketch) = place.get() {
            return Ok(sketch);
        }
        let (spec, device) = (self.spec.clone(), self.device.clone());
        let make = move || {
            let drawn: Drawn = spec.draw()?;
            argand_cuda::CudaSketch::<T>::new(&device, &drawn)
        };
        let sketch = interruptible(py, None, make)?.map_err(value_error)?;
        // If another thread was faster, its sketch is identical.
        Ok(place.get_or_init(|| sketch))
    }

    fn queue<T: OnDevice>(
        &self,
        py: Python<'_>,
        call: &Call,
        tables: &[Place],
        out: Place,
        starts: Option<u64>,
    ) -> PyResult<()> {
        let sketch = self.ready::<T>(py)?;
        let queue = || {
            let (tables, out) = (call.all(tables)?, call.rows(out)?);
            match starts {
                None => sketch.transform_on(&call.stream, &tables, &out),
                // SAFETY: the package passes as many numbers as `out` has rows and one more, that rise in equal steps to the rows of
                // all tables, and keeps them until the work is queued.
                Some(starts) => unsafe { sketch.transform_pooled_at(&call.stream, &tables, starts, out.rows(), &out) },
            }
        };
        py.detach(queue).map_err(value_error)
    }

    fn queue_vjp<T: OnDevice>(
        &self,
        py: Python<'_>,
        call: &Call,
        tables: &[Place],
        cotangent: Place,
        gradients: &[Place],
        starts: Option<u64>,
    ) -> PyResult<()> {
        let sketch = self.ready::<T>(py)?;
        let queue = || {
            let (tables, cotangent, gradients) = (call.all(tables)?, call.rows(cotangent)?, call.all(gradients)?);
            let (stream, groups) = (&call.stream, cotangent.rows());
            match starts {
                None => sketch.vjp_on(stream, &tables, &cotangent, &gradients),
                // SAFETY: as in `queue`.
                Some(starts) => unsafe {
                    sketch.vjp_pooled_at(stream, &tables, starts, groups, &cotangent, &gradients)
                },
            }
        };
        py.detach(queue).map_err(value_error)
    }

    fn wait<T: OnDevice>(&self, py: Python<'_>, call: &Call) -> PyResult<()> {
        let sketch = self.ready::<T>(py)?;
        py.detach(|| sketch.finish(&call.stream)).map_err(value_error)
    }
}
