//! The CUDA driver, loaded when it is first needed: devices, modules, memory, streams and launches.
//!
//! Nothing of CUDA is needed to build or to install. Kernels are PTX text in this crate, which the driver compiles for its GPU and keeps in
//! its own cache. Unsafe code is here, in `memory.rs`, in `launch.rs` and around cuBLAS; the rest sees memory as [`Buffer`]s and launches as [`Kernel::launch`].

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_void};
use std::fmt;
use std::mem::size_of_val;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use argand::{DeviceFault, Error};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, DriverError, result};

use crate::blas;
use crate::kernels;
use crate::launch::Kernel;
use crate::memory::{Buffer, Pinned, Plain, Returned, View};

/// A GPU, opened. Clones share it.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    context: Arc<CudaContext>,
    info: DeviceInfo,
    pools: Pools,
    returned: Returned,
    modules: Mutex<HashMap<String, Module>>,
    /// Handles of cuBLAS that nobody is using.
    blas: Mutex<Vec<blas::Handle>>,
}

impl Drop for Inner {
    /// Nothing of the device is in use any more: kernels, buffers and streams hold it.
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_err() {
            return;
        }
        self.returned.free_all(&self.context, self.pools.stream);
        for handle in self.blas.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            handle.destroy();
        }
        for module in self.modules.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            // SAFETY: it was loaded here and is unloaded once. An error cannot be reported.
            let _ = unsafe { result::module::unload(module.0) };
        }
        self.pools.destroy();
    }
}

/// What there is to know about a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number, counted from 0.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub compute_capability: (i32, i32),
    /// Bytes of memory.
    pub memory: u64,
    /// Its multiprocessors.
    pub multiprocessors: usize,
    /// Bytes of shared memory a block can have.
    pub shared_memory: usize,
    /// The newest CUDA version its driver supports, for example 13000.
    pub driver: i32,
}

/// Where memory comes from. What a pool keeps depends on all that was taken from it, so buffers have their own.
#[derive(Clone, Copy)]
struct Pools {
    /// For one stream, returned and taken in its order.
    scratch: sys::CUmemoryPool,
    /// For any stream, taken on `stream`.
    buffers: sys::CUmemoryPool,
    stream: sys::CUstream,
}

// SAFETY: the handle is only passed to the driver, which is thread-safe.
unsafe impl Send for Pools {}
// SAFETY: as above.
unsafe impl Sync for Pools {}

#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

// SAFETY: as for `Pools`.
unsafe impl Send for Module {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.0.info).finish()
    }
}

/// Bytes of a part of a long copy.
const STAGED_BYTES: usize = 4 << 20;

/// Devices in use, by number.
static OPENED: Mutex<BTreeMap<usize, Weak<Inner>>> = Mutex::new(BTreeMap::new());

/// The oldest driver whose PTX and symbols suffice.
const OLDEST_DRIVER: i32 = 12000;

/// How many CUDA devices there are.
///
/// # Errors
/// [`Error::Device`] if there is no driver, or one that is too old.
pub fn count() -> Result<usize, Error> {
    let missing = |message: &str| Error::Device {
        device: "cuda".to_owned(),
        fault: DeviceFault::NoDriver(format!(
            "{message}; install NVIDIA's driver 525 or newer, or run on the processor"
        )),
    };
    // SAFETY: looks whether a library can be loaded.
    if !unsafe { sys::is_culib_present() } {
        return Err(missing("no CUDA driver found"));
    }
    let failed = |error: DriverError| missing(&format!("the CUDA driver does not start: {}", describe(error)));
    match result::init() {
        Ok(()) => {}
        // A driver without a GPU that it may use.
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
        Err(error) => return Err(failed(error)),
    }
    let version = driver_version().map_err(failed)?;
    if version < OLDEST_DRIVER {
        let found = format!("the CUDA driver supports CUDA {}.{} only", version / 1000, version % 1000 / 10);
        return Err(missing(&found));
    }
    let count = result::device::get_count().map_err(failed)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

fn driver_version() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok(version)
}

/// The driver's words for an error.
fn describe(error: DriverError) -> String {
    let words = error.error_string().ok().and_then(|words| words.to_str().ok()).unwrap_or("unknown error");
    format!("{words} ({:?})", error.0)
}

impl Device {
    /// Opens a GPU. As long as it is in use, opening it again gives the same one, with the kernels it has loaded.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no driver or no such GPU.
    pub fn open(number: usize) -> Result<Self, Error> {
        let count = count()?;
        let name = format!("cuda:{number}");
        if number >= count {
            return Err(Error::Device { device: name, fault: DeviceFault::Absent(count) });
        }
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(&number).and_then(Weak::upgrade) {
            return Ok(Self(device));
        }
        let failed = |error| Error::Device { device: name.clone(), fault: DeviceFault::Driver(describe(error)) };
        let context = CudaContext::new(number).map_err(failed)?;
        let attribute = |attribute| context.attribute(attribute).map_err(failed);
        let info = DeviceInfo {
            number,
            name: context.name().map_err(failed)?,
            compute_capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            memory: context.total_mem().map_err(failed)? as u64,
            multiprocessors: positive(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?),
            shared_memory: positive(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?),
            driver: driver_version().map_err(failed)?,
        };
        let pools = Pools::new(number).map_err(failed)?;
        let inner = Arc::new(Inner {
            context,
            info,
            pools,
            returned: Returned::default(),
            modules: Mutex::default(),
            blas: Mutex::default(),
        });
        opened.insert(number, Arc::downgrade(&inner));
        Ok(Self(inner))
    }

    /// What there is to know about it.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Bytes of memory that are free now.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn free_memory(&self) -> Result<u64, Error> {
        self.bind()?;
        let (free, _) = result::mem_get_info().map_err(|error| self.failed(error))?;
        Ok(free as u64)
    }

    pub(crate) fn failed(&self, error: DriverError) -> Error {
        self.fault(DeviceFault::Driver(describe(error)))
    }

    fn fault(&self, fault: DeviceFault) -> Error {
        Error::Device { device: format!("cuda:{}", self.0.info.number), fault }
    }

    pub(crate) fn bind(&self) -> Result<(), Error> {
        self.0.context.bind_to_thread().map_err(|error| self.failed(error))
    }

    /// Keeps up to so many bytes of scratch memory for later calls, instead of 1 GiB. Other programs cannot use what is kept.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn keep_scratch(&self, bytes: u64) -> Result<(), Error> {
        self.bind()?;
        self.0.pools.keep_scratch(bytes).map_err(|error| self.failed(error))
    }

    pub(crate) fn idle_blas(&self) -> MutexGuard<'_, Vec<blas::Handle>> {
        self.0.blas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn returned(&self) -> &Returned {
        &self.0.returned
    }

    /// Waits until all work on this device is done.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.0.context.synchronize().map_err(|error| self.failed(error))
    }

    /// Frees what buffers have given back.
    pub(crate) fn free_returned(&self) {
        self.0.returned.free(&self.0.context, self.0.pools.stream);
    }

    /// Returns memory to the system that is kept and not in use.
    fn give_back(&self) {
        self.free_returned();
        // What streams have given back counts as unused once their work is done. Errors show in the next allocation.
        let _ = self.0.context.synchronize();
        self.0.pools.trim();
    }

    /// An allocation failed: says how much was needed and is free.
    fn out_of_memory(&self, needed: usize, error: DriverError) -> Error {
        if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let free = self.free_memory().unwrap_or_default();
            self.fault(DeviceFault::Memory { needed: needed as u64, free })
        } else {
            self.failed(error)
        }
    }

    /// Memory for this many bytes, not initialised.
    ///
    /// # Errors
    /// [`Error::Device`] if there is not enough.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        self.bind()?;
        let Pools { buffers, stream, .. } = self.0.pools;
        // Faster than plain memory, which is taken and freed by one thread after the other.
        // SAFETY: nothing is read before it is written. Other streams can use the memory once this one has been waited for.
        let take = || unsafe {
            let address = result::mem_pool::alloc_async(buffers, bytes.max(1), stream)?;
            result::stream::synchronize(stream)?;
            Ok(address)
        };
        Ok(Buffer::new(self, self.taken(bytes, take)?, bytes, None))
    }

    /// Takes memory; if that fails, once more without what is kept.
    fn taken(&self, bytes: usize, take: impl Fn() -> Result<u64, DriverError>) -> Result<u64, Error> {
        let again = |_| {
            self.give_back();
            take()
        };
        take().or_else(again).map_err(|error| self.out_of_memory(bytes, error))
    }

    /// A copy of these numbers in device memory.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<Buffer, Error> {
        let buffer = self.allocate(size_of_val(values))?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// A stream of its own.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn stream(&self) -> Result<Stream, Error> {
        self.bind()?;
        let handle =
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(|error| self.failed(error))?;
        Ok(Stream { device: self.clone(), handle, owned: true })
    }

    /// The stream of somebody else, for example PyTorch's current one.
    ///
    /// # Safety
    /// `handle` must be a `CUstream` of this device's primary context, and live as long as the result.
    #[must_use]
    pub unsafe fn foreign_stream(&self, handle: *mut c_void) -> Stream {
        Stream { device: self.clone(), handle: handle.cast(), owned: false }
    }

    /// A kernel of one of the crate's modules, which is loaded on first use.
    pub(crate) fn kernel(&self, module: &str, name: &str) -> Result<Kernel, Error> {
        self.kernel_of(module.to_owned(), name, || text_of(module).to_owned())
    }

    /// A kernel without the others of its module: large ones take the driver long to compile.
    pub(crate) fn kernel_alone(&self, module: &str, name: &str) -> Result<Kernel, Error> {
        self.kernel_of(format!("{module} {name}"), name, || kernels::alone(text_of(module), name))
    }

    fn kernel_of(&self, module: String, name: &str, text: impl Fn() -> String) -> Result<Kernel, Error> {
        self.bind()?;
        let mut modules = self.0.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = if let Some(loaded) = modules.get(&module) {
            *loaded
        } else {
            let text = CString::new(text()).unwrap_or_else(|_| unreachable!("PTX has no zero bytes"));
            // SAFETY: the image is PTX text that ends with a zero.
            let handle = unsafe { result::module::load_data(text.as_ptr().cast()) };
            let loaded = Module(handle.map_err(|error| self.failed(error))?);
            modules.insert(module, loaded);
            loaded
        };
        let name = CString::new(name).unwrap_or_else(|_| unreachable!("names of kernels have no zero bytes"));
        // SAFETY: the module stays loaded as long as the device's context.
        let handle = unsafe { result::module::get_function(loaded.0, name) }.map_err(|error| self.failed(error))?;
        Ok(Kernel::new(self, handle))
    }
}

fn text_of(module: &str) -> &'static str {
    kernels::text(module).unwrap_or_else(|| unreachable!("only the crate's own modules are asked for"))
}

impl Pools {
    fn new(number: usize) -> Result<Self, DriverError> {
        // SAFETY: zero is a valid value of every field.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = i32::try_from(number).unwrap_or_default();
        // SAFETY: the properties are valid.
        let pool = || unsafe { result::mem_pool::create(&raw const properties) };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let pools = Self { scratch: pool()?, buffers: pool()?, stream };
        pools.keep_scratch(1 << 30)?;
        Ok(pools)
    }

    /// Keeps scratch memory that was given back, as long as all of it has at most so many bytes.
    fn keep_scratch(self, mut bytes: u64) -> Result<(), DriverError> {
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool lives as long as its device, and the attribute is a number of 64 bits.
        unsafe { result::mem_pool::set_attribute(self.scratch, attribute, (&raw mut bytes).cast()) }
    }

    /// Returns what is not in use to the system. Errors show in the next allocation.
    fn trim(self) {
        for pool in [self.scratch, self.buffers] {
            // SAFETY: the pool lives as long as its device.
            let _ = unsafe { result::mem_pool::trim_to(pool, 0) };
        }
    }

    /// Nothing of them is in use any more.
    fn destroy(self) {
        // SAFETY: they were made here and are destroyed once. An error cannot be reported.
        let _ = unsafe {
            result::mem_pool::destroy(self.scratch)
                .and_then(|()| result::mem_pool::destroy(self.buffers))
                .and_then(|()| result::stream::destroy(self.stream))
        };
    }
}

pub(crate) fn positive(value: i32) -> usize {
    usize::try_from(value).unwrap_or_default()
}

/// A queue of work on a device.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: sys::CUstream,
    owned: bool,
}

// SAFETY: the handle is only passed to the driver, which is thread-safe.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until all its work is done.
    ///
    /// # Errors
    /// [`Error::Device`] if some of the work failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.device.bind()?;
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.handle) }.map_err(|error| self.device.failed(error))
    }

    /// Scratch memory that is returned in the order of this stream.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<Buffer, Error> {
        self.device.bind()?;
        let device = &self.device;
        // SAFETY: nothing is read before it is written, and the memory is used on this stream alone.
        let take = || unsafe { result::mem_pool::alloc_async(device.0.pools.scratch, bytes.max(1), self.handle) };
        Ok(Buffer::new(device, device.taken(bytes, take)?, bytes, Some(self.handle)))
    }

    /// Copies numbers to the device. Returns once they can be changed again.
    pub(crate) fn write<T: Plain>(&self, values: &[T], buffer: &Buffer, at_byte: usize) -> Result<(), Error> {
        if size_of_val(values) < STAGED_BYTES {
            return self.write_directly(values, buffer, at_byte);
        }
        let mut stages = self.stages::<T>()?;
        for (number, part) in values.chunks(stages[0].numbers().len()).enumerate() {
            if number >= 2 && number % 2 == 0 {
                self.synchronize()?;
            }
            let stage = &mut stages[number % 2].numbers()[..part.len()];
            stage.copy_from_slice(part);
            self.write_directly(stage, buffer, at_byte + number * STAGED_BYTES)?;
        }
        self.synchronize()
    }

    /// Page-locked memory for long copies. Without it the driver copies for one thread after the other.
    fn stages<T: Plain>(&self) -> Result<[Pinned<T>; 2], Error> {
        let stage = || Pinned::new(&self.device, STAGED_BYTES / size_of::<T>());
        Ok([stage()?, stage()?])
    }

    fn write_directly<T: Plain>(&self, values: &[T], buffer: &Buffer, at_byte: usize) -> Result<(), Error> {
        assert!(at_byte + size_of_val(values) <= buffer.bytes(), "numbers fit into their buffer");
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range lies in the buffer. Memory that is not page-locked has been read when the call returns.
        unsafe { result::memcpy_htod_async(buffer.address() + at_byte as u64, values, self.handle) }
            .map_err(|error| self.device.failed(error))
    }

    /// Queues a copy of the first numbers to a buffer. The caller waits for the stream before it changes or drops them.
    pub(crate) fn send<T: Plain>(&self, numbers: &mut Pinned<T>, count: usize, buffer: &Buffer) -> Result<(), Error> {
        self.write_directly(&numbers.numbers()[..count], buffer, 0)
    }

    /// Queues a copy from a buffer to the first numbers. The caller waits for the stream before it reads or drops them.
    pub(crate) fn receive<T: Plain>(
        &self,
        buffer: &Buffer,
        numbers: &mut Pinned<T>,
        count: usize,
    ) -> Result<(), Error> {
        self.queue_read(buffer, 0, &mut numbers.numbers()[..count])
    }

    /// Copies numbers from the device, after all work so far; waits for them.
    pub(crate) fn read<T: Plain>(&self, buffer: &Buffer, at_byte: usize, values: &mut [T]) -> Result<(), Error> {
        if size_of_val(values) < STAGED_BYTES {
            return self.read_directly(buffer, at_byte, values);
        }
        let mut stages = self.stages::<T>()?;
        let length = stages[0].numbers().len();
        for (number, pair) in values.chunks_mut(2 * length).enumerate() {
            for (within, part) in pair.chunks_mut(length).enumerate() {
                let at_byte = at_byte + (2 * number + within) * STAGED_BYTES;
                self.queue_read(buffer, at_byte, &mut stages[within].numbers()[..part.len()])?;
            }
            self.synchronize()?;
            for (part, stage) in pair.chunks_mut(length).zip(&mut stages) {
                part.copy_from_slice(&stage.numbers()[..part.len()]);
            }
        }
        Ok(())
    }

    fn read_directly<T: Plain>(&self, buffer: &Buffer, at_byte: usize, values: &mut [T]) -> Result<(), Error> {
        self.queue_read(buffer, at_byte, values)?;
        self.synchronize()
    }

    /// The caller waits for the stream before it uses the values.
    fn queue_read<T: Plain>(&self, buffer: &Buffer, at_byte: usize, values: &mut [T]) -> Result<(), Error> {
        assert!(at_byte + size_of_val(values) <= buffer.bytes(), "numbers come from their buffer");
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range lies in the buffer, and the values are kept until the copy is done.
        unsafe { result::memcpy_dtoh_async(values, buffer.address() + at_byte as u64, self.handle) }
            .map_err(|error| self.device.failed(error))
    }

    /// Queues a copy within the device.
    ///
    /// # Errors
    /// [`Error::Device`].
    ///
    /// # Panics
    /// If one of the buffers is shorter.
    pub fn copy(&self, from: &Buffer, to: &Buffer, bytes: usize) -> Result<(), Error> {
        assert!(bytes <= from.bytes() && bytes <= to.bytes(), "both buffers are long enough");
        self.device.bind()?;
        // SAFETY: both buffers are long enough.
        unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, self.handle) }
            .map_err(|error| self.device.failed(error))
    }

    /// Sets bytes of a buffer.
    pub(crate) fn fill(&self, view: View, bytes: usize, value: u8) -> Result<(), Error> {
        self.device.bind()?;
        // SAFETY: callers pass ranges of their own buffers.
        unsafe { result::memset_d8_async(view.0, value, bytes, self.handle) }.map_err(|error| self.device.failed(error))
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.handle.cast()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned && self.device.bind().is_ok() {
            // SAFETY: it was created here; the driver finishes its work first. An error cannot be reported.
            let _ = unsafe { result::stream::destroy(self.handle) };
        }
    }
}
