//! A drawn sketch on a GPU.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use argand::draw::{Drawn, Map};
use argand::{Argument, DeviceFault, Error, Groups, Spec};

use crate::cosine::Cosine;
use crate::driver::{Device, Stream};
use crate::fused::{AdjointCall, Call, Fused};
use crate::host::Lane;
use crate::memory::{Buffer, View};
use crate::parts::{self, Parts};
use crate::product::Product;
use crate::real::Real;
use crate::steps::Steps;
use crate::view::{DeviceRows, Element};

/// Bytes of work space for a block of rows, unless one row needs more.
const BLOCK_BYTES: usize = 1 << 30;

/// A drawn sketch on a GPU: the same features as on the processor.
///
/// Features of SRHT and Rademacher sketches are the same to the last bit; those of others differ by rounding. `T` is the
/// type that is computed with. Tables in device memory may also be float16 or bfloat16, for `f32` sketches.
///
/// # Reference
/// As [`argand::Sketch`].
///
/// # Cost
/// Flat SRHT sketches of at most 2048 padded columns, and flat TensorSketches with transforms of 64, 128, … or 8192 numbers whose
/// rows fit into shared memory beside them, are computed in one pass over the rows: device memory is read and written once. Others
/// take a few passes for each factor.
///
/// ```no_run
/// use argand::{FeatureMap, Rows, Spec};
/// use argand_cuda::{CudaSketch, Device};
/// let drawn = Spec::polynomial(784).with_degree(3).with_features(4096).draw()?;
/// let sketch = CudaSketch::<f32>::new(&Device::open(0)?, &drawn)?;
/// let x = vec![0.5; 1000 * 784];
/// let features = sketch.transform(&[Rows::new(&x, 1000, 784)?.into()])?;
/// # Ok::<(), argand::Error>(())
/// ```
pub struct CudaSketch<T> {
    device: Device,
    spec: Spec,
    fused: Option<Fused>,
    /// Beside `fused`, and not loaded later: a CUDA graph that is being recorded cannot load a kernel.
    parts: Option<Parts>,
    /// Loaded when first needed: what is fused needs none of them.
    steps: OnceLock<Steps>,
    map: Kind,
    /// The first row of all calls whose features do not fit, or `u64::MAX`.
    bad_row: Buffer,
    /// Buffers for host rows that no call is using.
    idle: Mutex<Vec<Lane<T>>>,
}

impl<T> fmt::Debug for CudaSketch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaSketch").field("device", &self.device).field("spec", &self.spec).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Kind {
    Product(Box<Product>),
    Cosine(Cosine),
}

impl<T: Real> CudaSketch<T> {
    /// Copies a drawn sketch to a GPU and chooses its kernels.
    ///
    /// # Errors
    /// [`Error::Device`] if its memory does not suffice or its driver fails.
    pub fn new(device: &Device, drawn: &Drawn) -> Result<Self, Error> {
        let (map, fused) = match &drawn.map {
            Map::Product(product) => {
                let fused = if T::ELEMENT == Element::F32 { Fused::new(device, &drawn.spec, product)? } else { None };
                (Kind::Product(Box::new(Product::new::<T>(device, &drawn.spec, product)?)), fused)
            }
            Map::Cosine(cosine) => (Kind::Cosine(Cosine::new::<T>(device, cosine)?), None),
            _ => {
                let expected = "a method that runs on a GPU";
                return Err(Error::invalid(Argument::Method, expected, drawn.spec.method));
            }
        };
        Ok(Self {
            device: device.clone(),
            spec: drawn.spec.clone(),
            parts: fused.as_ref().map(|_| Parts::load(device)).transpose()?,
            fused,
            steps: OnceLock::new(),
            map,
            bad_row: device.upload(&[u64::MAX])?,
            idle: Mutex::default(),
        })
    }

    fn steps(&self) -> Result<&Steps, Error> {
        if let Some(steps) = self.steps.get() {
            return Ok(steps);
        }
        let steps = Steps::load::<T>(&self.device)?;
        // If another thread was faster, its steps are the same.
        Ok(self.steps.get_or_init(|| steps))
    }

    /// The spec. For spherical random features it holds the fit.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether features are computed in one pass.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        self.fused.is_some()
    }

    /// The same sketch one step at a time, to compare with.
    #[must_use]
    pub fn without_fusing(mut self) -> Self {
        self.fused = None;
        self
    }

    /// Queues the features of tables in device memory, and returns. [`CudaSketch::finish`] waits and reports overflows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for tables that do not fit, before anything is queued; [`Error::Device`].
    pub fn transform_on(&self, stream: &Stream, inputs: &[DeviceRows], out: &DeviceRows) -> Result<(), Error> {
        self.queue(stream, inputs, out, 0, &self.bad_row)
    }

    /// Queues features of rows that are `first_row` and those after it for the caller; `bad_row` receives the first that does not fit.
    pub(crate) fn queue(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        out: &DeviceRows,
        first_row: usize,
        bad_row: &Buffer,
    ) -> Result<(), Error> {
        let rows = self.check(inputs)?;
        self.check_features(out, rows, Argument::Out)?;
        if rows == 0 {
            return Ok(());
        }
        let bad_row = bad_row.at::<u64>(0);
        if let Some(fused) = &self.fused {
            return fused.transform(stream, &Call { inputs, out, first_row, bad_row });
        }
        let numbers = match &self.map {
            Kind::Product(product) => product.numbers_per_row(false),
            Kind::Cosine(cosine) => cosine.numbers_per_row(false),
        };
        self.in_blocks(stream, rows, numbers, |first, count, buffer| {
            let inputs: Vec<DeviceRows> = inputs.iter().map(|input| input.range(first, count)).collect();
            let (out, first) = (out.range(first, count), first_row + first);
            match &self.map {
                Kind::Product(product) => {
                    product.transform::<T>(self.steps()?, stream, &inputs, &out, first, buffer, bad_row)
                }
                Kind::Cosine(cosine) => {
                    cosine.transform::<T>(self.steps()?, stream, &inputs[0], &out, first, buffer, bad_row)
                }
            }
        })
    }

    /// Queues the adjoint: gradients with respect to each input, from those with respect to the features.
    ///
    /// # Errors
    /// As [`CudaSketch::transform_on`].
    pub fn vjp_on(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        cotangent: &DeviceRows,
        gradients: &[DeviceRows],
    ) -> Result<(), Error> {
        self.queue_vjp(stream, inputs, cotangent, gradients, 0, &self.bad_row)
    }

    /// As [`CudaSketch::queue`], for the adjoint.
    pub(crate) fn queue_vjp(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        cotangent: &DeviceRows,
        gradients: &[DeviceRows],
        first_row: usize,
        bad_row: &Buffer,
    ) -> Result<(), Error> {
        let rows = self.check(inputs)?;
        self.check_features(cotangent, rows, Argument::Cotangent)?;
        self.check_gradients(gradients, rows)?;
        if rows == 0 {
            return Ok(());
        }
        let bad_row = bad_row.at::<u64>(0);
        if let Some(fused) = &self.fused {
            let features = Call { inputs, out: cotangent, first_row, bad_row };
            if fused.adjoint(stream, &AdjointCall { features, gradients, groups: None })? {
                return Ok(());
            }
        }
        let numbers = match &self.map {
            Kind::Product(product) => product.numbers_per_row(true),
            Kind::Cosine(cosine) => cosine.numbers_per_row(true),
        };
        self.in_blocks(stream, rows, numbers, |first, count, buffer| {
            let part = |table: &DeviceRows| table.range(first, count);
            let inputs: Vec<DeviceRows> = inputs.iter().map(part).collect();
            let gradients: Vec<DeviceRows> = gradients.iter().map(part).collect();
            let (cotangent, first) = (part(cotangent), first_row + first);
            match &self.map {
                Kind::Product(product) => {
                    product.adjoint::<T>(self.steps()?, stream, &inputs, &cotangent, &gradients, first, buffer, bad_row)
                }
                Kind::Cosine(cosine) => cosine.adjoint::<T>(
                    self.steps()?,
                    stream,
                    &inputs[0],
                    &cotangent,
                    &gradients[0],
                    first,
                    buffer,
                    bad_row,
                ),
            }
        })
    }

    /// Waits for the work on a stream.
    ///
    /// # Errors
    /// [`Error::Overflow`] with the first row since the last call whose features did not fit; [`Error::Device`] if work failed.
    pub fn finish(&self, stream: &Stream) -> Result<(), Error> {
        Self::finish_with(stream, &self.bad_row)
    }

    pub(crate) fn finish_with(stream: &Stream, bad_row: &Buffer) -> Result<(), Error> {
        let mut bad = [0_u64];
        stream.read(bad_row, 0, &mut bad)?;
        if bad[0] == u64::MAX {
            return Ok(());
        }
        stream.write(&[u64::MAX], bad_row, 0)?;
        stream.synchronize()?;
        Err(Error::Overflow { row: usize::try_from(bad[0]).unwrap_or(usize::MAX), dtype: T::NAME })
    }

    pub(crate) fn idle_lanes(&self) -> Vec<Lane<T>> {
        std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn keep_lanes(&self, lanes: Vec<Lane<T>>) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = lanes;
    }

    fn check_element(table: &DeviceRows, argument: Argument) -> Result<(), Error> {
        let double = table.element == Element::F64;
        if double == (T::ELEMENT == Element::F64) {
            return Ok(());
        }
        let expected = if double { "float32, float16 or bfloat16" } else { "float64" };
        Err(Error::invalid(argument, expected, table.element.name()))
    }

    fn check(&self, inputs: &[DeviceRows]) -> Result<usize, Error> {
        let dims = self.spec.inputs.as_slice();
        let Some(first) = inputs.first().filter(|_| inputs.len() == dims.len()) else {
            return Err(Error::invalid(Argument::Inputs, format!("{} tables", dims.len()), inputs.len()));
        };
        for (index, (input, &dim)) in inputs.iter().zip(dims).enumerate() {
            let argument = Argument::input(index, dims.len());
            Self::check_element(input, argument)?;
            if input.element != first.element {
                return Err(Error::invalid(
                    argument,
                    format!("{}, as the first input", first.element.name()),
                    input.element.name(),
                ));
            }
            if input.columns != dim {
                return Err(Error::invalid(argument, format!("{dim} columns"), input.columns));
            }
            if input.rows != first.rows {
                return Err(Error::invalid(argument, format!("{} rows, as the first input", first.rows), input.rows));
            }
        }
        Ok(first.rows)
    }

    fn check_features(&self, table: &DeviceRows, rows: usize, argument: Argument) -> Result<(), Error> {
        Self::check_element(table, argument)?;
        if (table.rows, table.columns) != (rows, self.spec.features) {
            let received = format!("{} x {}", table.rows, table.columns);
            return Err(Error::invalid(argument, format!("{rows} rows x {} columns", self.spec.features), received));
        }
        Ok(())
    }

    /// Runs blocks of rows in one scratch buffer, in smaller blocks if memory does not suffice.
    fn in_blocks(
        &self,
        stream: &Stream,
        rows: usize,
        numbers_per_row: usize,
        run: impl Fn(usize, usize, &Buffer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let per_row = numbers_per_row.saturating_mul(size_of::<T>());
        let mut count = (BLOCK_BYTES / per_row.max(1)).clamp(1, rows);
        let buffer = loop {
            match stream.scratch(count.saturating_mul(per_row)) {
                Err(Error::Device { fault: DeviceFault::Memory { .. }, .. }) if count > 1 => count /= 2,
                other => break other?,
            }
        };
        for first in (0..rows).step_by(count) {
            run(first, count.min(rows - first), &buffer)?;
        }
        Ok(())
    }
}

impl<T: Real> CudaSketch<T> {
    /// Queues the sums of the features of groups of rows. Where features are computed in one pass, they are never written row by row; others
    /// are, in blocks.
    ///
    /// # Errors
    /// As [`CudaSketch::transform_on`].
    pub fn transform_pooled_on(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        groups: &Groups,
        out: &DeviceRows,
    ) -> Result<(), Error> {
        let starts = self.upload_starts(stream, inputs, groups)?;
        let longest = groups.starts().windows(2).map(|group| group[1] - group[0]).max().unwrap_or_default();
        self.queue_pooled(stream, inputs, starts.at::<u64>(0), [groups.count(), longest], out)
    }

    /// As [`CudaSketch::transform_pooled_on`], for groups whose starts already lie in device memory: nothing is copied there, so that
    /// a CUDA graph can record it. Groups should be about as long as each other: those that are much longer than the mean may be less exact.
    ///
    /// # Errors
    /// As [`CudaSketch::transform_pooled_on`].
    ///
    /// # Safety
    /// `starts` is the address of `groups + 1` numbers of 64 bits that rise from 0 to the number of rows, on this device, until the
    /// work is done.
    #[allow(unsafe_code, reason = "nobody can check an address")]
    pub unsafe fn transform_pooled_at(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        starts: u64,
        groups: usize,
        out: &DeviceRows,
    ) -> Result<(), Error> {
        let rows = inputs.first().map_or(0, |input| input.rows);
        self.queue_pooled(stream, inputs, View(starts), [groups, rows.div_ceil(groups.max(1))], out)
    }

    /// The starts of groups of the rows of these tables, in device memory.
    fn upload_starts(&self, stream: &Stream, inputs: &[DeviceRows], groups: &Groups) -> Result<Buffer, Error> {
        let rows = self.check(inputs)?;
        if groups.rows() != rows {
            return Err(Error::invalid(Argument::Groups, format!("groups of {rows} rows"), groups.rows()));
        }
        let starts: Vec<u64> = groups.starts().iter().map(|&start| start as u64).collect();
        let buffer = stream.scratch(size_of_val(&starts[..]))?;
        stream.write(&starts, &buffer, 0)?;
        Ok(buffer)
    }

    fn queue_pooled(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        starts: View,
        [groups, longest]: [usize; 2],
        out: &DeviceRows,
    ) -> Result<(), Error> {
        let rows = self.check(inputs)?;
        self.check_features(out, groups, Argument::Out)?;
        if groups == 0 {
            return Ok(());
        }
        let bad_row = self.bad_row.at::<u64>(0);
        if let (Some(fused), Some(parts)) = (&self.fused, &self.parts) {
            let call = Call { inputs, out, first_row: 0, bad_row };
            if let Some(length) = parts::length(longest, self.spec.features) {
                match parts.transform_pooled(stream, fused, &call, starts, length) {
                    // Without room for the sums of parts, groups are summed up in one piece.
                    Err(Error::Device { fault: DeviceFault::Memory { .. }, .. }) => {}
                    other => return other,
                }
            }
            return fused.transform_pooled(stream, &call, starts);
        }
        let bytes = groups.saturating_mul(self.spec.features).saturating_mul(size_of::<f64>());
        let sums = stream.scratch(bytes)?;
        stream.fill(sums.at::<u8>(0), bytes, 0)?;
        if rows > 0 {
            self.in_blocks(stream, rows, self.spec.features, |first, count, buffer| {
                let features = self.features_in(buffer, count);
                let inputs: Vec<DeviceRows> = inputs.iter().map(|input| input.range(first, count)).collect();
                self.queue(stream, &inputs, &features, first, &self.bad_row)?;
                self.steps()?.add_to_groups(stream, &features, starts, groups, first, sums.at::<f64>(0))
            })?;
        }
        self.steps()?.store_groups(stream, sums.at::<f64>(0), starts, out, bad_row)
    }

    /// A buffer as the features of so many rows.
    fn features_in(&self, buffer: &Buffer, rows: usize) -> DeviceRows {
        let columns = self.spec.features;
        DeviceRows { address: buffer.address(), element: T::ELEMENT, rows, columns, stride: columns }
    }

    /// Queues the adjoint of [`CudaSketch::transform_pooled_on`]: the cotangent has a row for each group.
    ///
    /// # Errors
    /// As [`CudaSketch::vjp_on`].
    pub fn vjp_pooled_on(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        groups: &Groups,
        cotangent: &DeviceRows,
        gradients: &[DeviceRows],
    ) -> Result<(), Error> {
        let starts = self.upload_starts(stream, inputs, groups)?;
        self.queue_vjp_pooled(stream, inputs, starts.at::<u64>(0), groups.count(), cotangent, gradients)
    }

    /// As [`CudaSketch::vjp_pooled_on`], for groups whose starts already lie in device memory.
    ///
    /// # Errors
    /// As [`CudaSketch::vjp_on`].
    ///
    /// # Safety
    /// As [`CudaSketch::transform_pooled_at`].
    #[allow(unsafe_code, reason = "nobody can check an address")]
    pub unsafe fn vjp_pooled_at(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        starts: u64,
        groups: usize,
        cotangent: &DeviceRows,
        gradients: &[DeviceRows],
    ) -> Result<(), Error> {
        self.queue_vjp_pooled(stream, inputs, View(starts), groups, cotangent, gradients)
    }

    fn queue_vjp_pooled(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        starts: View,
        groups: usize,
        cotangent: &DeviceRows,
        gradients: &[DeviceRows],
    ) -> Result<(), Error> {
        let rows = self.check(inputs)?;
        self.check_features(cotangent, groups, Argument::Cotangent)?;
        self.check_gradients(gradients, rows)?;
        if rows == 0 {
            return Ok(());
        }
        if let Some(fused) = &self.fused {
            let features = Call { inputs, out: cotangent, first_row: 0, bad_row: self.bad_row.at::<u64>(0) };
            if fused.adjoint(stream, &AdjointCall { features, gradients, groups: Some((starts, groups)) })? {
                return Ok(());
            }
        }
        self.in_blocks(stream, rows, self.spec.features, |first, count, buffer| {
            let repeated = self.features_in(buffer, count);
            self.steps()?.repeat_groups(stream, cotangent, starts, first, &repeated)?;
            let part = |table: &DeviceRows| table.range(first, count);
            let inputs: Vec<DeviceRows> = inputs.iter().map(part).collect();
            let gradients: Vec<DeviceRows> = gradients.iter().map(part).collect();
            self.queue_vjp(stream, &inputs, &repeated, &gradients, first, &self.bad_row)
        })
    }

    fn check_gradients(&self, gradients: &[DeviceRows], rows: usize) -> Result<(), Error> {
        let dims = self.spec.inputs.as_slice();
        if gradients.len() != dims.len() {
            return Err(Error::invalid(Argument::Gradients, format!("{} tables", dims.len()), gradients.len()));
        }
        for (gradient, &dim) in gradients.iter().zip(dims) {
            if (gradient.rows, gradient.columns) != (rows, dim) {
                let received = format!("{} x {}", gradient.rows, gradient.columns);
                return Err(Error::invalid(Argument::Gradients, format!("{rows} rows x {dim} columns"), received));
            }
            Self::check_element(gradient, Argument::Gradients)?;
        }
        Ok(())
    }
}
