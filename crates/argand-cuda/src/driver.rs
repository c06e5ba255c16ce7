//! The CUDA driver, loaded when it is first needed: devices, modules, memory, streams and launches.
//!
//! Nothing of CUDA is needed to build or to install. Kernels are PTX text in this crate, which the driver compiles for its GPU and keeps in
//! its own cache. Unsafe code is here, in `launch.rs` and around cuBLAS; the rest sees memory as [`Buffer`]s and launches as [`Kernel::launch`].

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::fmt;
use std::mem::size_of_val;
use std::sync::{Arc, Mutex, PoisonError};

use argand::{DeviceFault, Error};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, DriverError, result};

use crate::launch::Kernel;

/// A GPU, opened. Clones share it.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    context: Arc<CudaContext>,
    info: DeviceInfo,
    /// Memory that is returned and taken in the order of a stream.
    pool: Pool,
    modules: Mutex<HashMap<&'static str, Module>>,
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

#[derive(Clone, Copy)]
struct Pool(sys::CUmemoryPool);

// SAFETY: the handle is only passed to the driver, which is thread-safe.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

// SAFETY: as for `Pool`.
unsafe impl Send for Module {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.0.info).finish()
    }
}

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
    result::init().map_err(failed)?;
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
    /// Opens a GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no driver or no such GPU.
    pub fn open(number: usize) -> Result<Self, Error> {
        let count = count()?;
        let name = format!("cuda:{number}");
        if number >= count {
            return Err(Error::Device { device: name, fault: DeviceFault::Absent(count) });
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
        let pool = pool(number).map_err(failed)?;
        Ok(Self(Arc::new(Inner { context, info, pool, modules: Mutex::default() })))
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

    /// Waits until all work on this device is done.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.0.context.synchronize().map_err(|error| self.failed(error))
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
        // SAFETY: nothing is read before it is written.
        let address = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(|error| self.out_of_memory(bytes, error))?;
        Ok(Buffer { device: self.clone(), address, bytes, stream: None })
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
        let Some((module, text)) = crate::kernels::module(module) else {
            unreachable!("only the crate's own modules are asked for")
        };
        self.bind()?;
        let mut modules = self.0.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = if let Some(loaded) = modules.get(module) {
            *loaded
        } else {
            let text = CString::new(text).unwrap_or_else(|_| unreachable!("PTX has no zero bytes"));
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

/// A pool that keeps the memory it was given back.
fn pool(number: usize) -> Result<Pool, DriverError> {
    // SAFETY: zero is a valid value of every field.
    let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = i32::try_from(number).unwrap_or_default();
    // SAFETY: the properties are valid, and the attribute is a number of 64 bits.
    unsafe {
        let pool = result::mem_pool::create(&raw const properties)?;
        let mut kept: u64 = 1 << 30;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        result::mem_pool::set_attribute(pool, attribute, (&raw mut kept).cast())?;
        Ok(Pool(pool))
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
        // SAFETY: nothing is read before it is written, and the memory is used on this stream alone.
        let address = unsafe { result::mem_pool::alloc_async(self.device.0.pool.0, bytes.max(1), self.handle) }
            .map_err(|error| self.device.out_of_memory(bytes, error))?;
        Ok(Buffer { device: self.device.clone(), address, bytes, stream: Some(Handle(self.handle)) })
    }

    /// Copies numbers to the device. Returns once they can be changed again.
    pub(crate) fn write<T: Plain>(&self, values: &[T], buffer: &Buffer, at_byte: usize) -> Result<(), Error> {
        assert!(at_byte + size_of_val(values) <= buffer.bytes, "numbers fit into their buffer");
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range lies in the buffer. Memory that is not page-locked has been read when the call returns.
        unsafe { result::memcpy_htod_async(buffer.address + at_byte as u64, values, self.handle) }
            .map_err(|error| self.device.failed(error))
    }

    /// Queues a copy of the first numbers to a buffer. The caller waits for the stream before it changes or drops them.
    pub(crate) fn send<T: Plain>(&self, numbers: &mut Pinned<T>, count: usize, buffer: &Buffer) -> Result<(), Error> {
        self.write(&numbers.numbers()[..count], buffer, 0)
    }

    /// Queues a copy from a buffer to the first numbers. The caller waits for the stream before it reads or drops them.
    pub(crate) fn receive<T: Plain>(
        &self,
        buffer: &Buffer,
        numbers: &mut Pinned<T>,
        count: usize,
    ) -> Result<(), Error> {
        assert!(count * size_of::<T>() <= buffer.bytes, "numbers come from their buffer");
        self.device.bind()?;
        let into = &mut numbers.numbers()[..count];
        if into.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies in the buffer, and the caller keeps the numbers until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(into, buffer.address, self.handle) }
            .map_err(|error| self.device.failed(error))
    }

    /// Copies numbers from the device, after all work so far; waits for them.
    pub(crate) fn read<T: Plain>(&self, buffer: &Buffer, at_byte: usize, values: &mut [T]) -> Result<(), Error> {
        assert!(at_byte + size_of_val(values) <= buffer.bytes, "numbers come from their buffer");
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range lies in the buffer, and the values are borrowed until the copy is done.
        unsafe { result::memcpy_dtoh_async(values, buffer.address + at_byte as u64, self.handle) }
            .map_err(|error| self.device.failed(error))?;
        self.synchronize()
    }

    /// Queues a copy within the device.
    ///
    /// # Errors
    /// [`Error::Device`].
    ///
    /// # Panics
    /// If one of the buffers is shorter.
    pub fn copy(&self, from: &Buffer, to: &Buffer, bytes: usize) -> Result<(), Error> {
        assert!(bytes <= from.bytes && bytes <= to.bytes, "both buffers are long enough");
        self.device.bind()?;
        // SAFETY: both buffers are long enough.
        unsafe { result::memcpy_dtod_async(to.address, from.address, bytes, self.handle) }
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

#[derive(Debug, Clone, Copy)]
struct Handle(sys::CUstream);

/// Device memory.
#[derive(Debug)]
pub struct Buffer {
    device: Device,
    address: u64,
    bytes: usize,
    /// For scratch memory, the stream it is returned on.
    stream: Option<Handle>,
}

// SAFETY: the address is only passed to the driver, which is thread-safe.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Its device address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The address of the number at this index.
    pub(crate) fn at<T>(&self, index: usize) -> View {
        debug_assert!(index * size_of::<T>() <= self.bytes, "a view begins in its buffer");
        View(self.address + (index * size_of::<T>()) as u64)
    }

    /// Copies numbers to the device and waits.
    ///
    /// # Errors
    /// [`Error::Device`].
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn write<T: Plain>(&self, values: &[T]) -> Result<(), Error> {
        assert!(size_of_val(values) <= self.bytes, "numbers fit into their buffer");
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // A short copy returns before the numbers have arrived, and other streams do not wait for it.
        // SAFETY: the buffer is long enough, and the values are plain.
        unsafe {
            result::memcpy_htod_sync(self.address, values)
                .and_then(|()| result::stream::synchronize(result::stream::null()))
                .map_err(|error| self.device.failed(error))
        }
    }

    /// Copies numbers from the device. Waits for this copy, not for other streams.
    ///
    /// # Errors
    /// [`Error::Device`].
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn read<T: Plain>(&self, values: &mut [T]) -> Result<(), Error> {
        assert!(size_of_val(values) <= self.bytes, "numbers come from their buffer");
        self.device.bind()?;
        // SAFETY: the buffer is long enough, and the values are plain.
        unsafe { result::memcpy_dtoh_sync(values, self.address) }.map_err(|error| self.device.failed(error))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: it was allocated here and is freed once; scratch memory on its own stream, after the work that uses it.
            let _ = unsafe {
                match self.stream {
                    Some(stream) => result::free_async(self.address, stream.0),
                    None => result::free_sync(self.address),
                }
            };
        }
    }
}

/// Page-locked memory of the host, which is copied to and from a device while other work goes on.
pub(crate) struct Pinned<T> {
    device: Device,
    data: *mut T,
    length: usize,
}

// SAFETY: it owns its memory, like a vector.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Plain> Pinned<T> {
    /// Memory for this many numbers, all zero.
    pub(crate) fn new(device: &Device, length: usize) -> Result<Self, Error> {
        device.bind()?;
        let bytes = length * size_of::<T>();
        // SAFETY: zero bytes are numbers.
        let data = unsafe {
            let data = result::malloc_host(bytes.max(1), 0).map_err(|error| device.failed(error))?;
            std::ptr::write_bytes(data.cast::<u8>(), 0, bytes);
            data.cast()
        };
        Ok(Self { device: device.clone(), data, length })
    }

    pub(crate) fn numbers(&mut self) -> &mut [T] {
        // SAFETY: the memory holds `length` initialised numbers and is borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.length) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: allocated here, freed once. Users wait for their streams before they drop it. An error cannot be reported.
            let _ = unsafe { result::free_host(self.data.cast()) };
        }
    }
}

/// An address in device memory; zero where an argument is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct View(pub(crate) u64);

impl View {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn skip<T>(self, count: usize) -> Self {
        if self == Self::NONE { self } else { Self(self.0 + (count * size_of::<T>()) as u64) }
    }
}

/// Numbers that can be copied as bytes.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub unsafe trait Plain: Copy {}

// SAFETY: a number.
unsafe impl Plain for u8 {}
// SAFETY: a number.
unsafe impl Plain for u16 {}
// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: a number.
unsafe impl Plain for i64 {}
// SAFETY: a number.
unsafe impl Plain for f32 {}
// SAFETY: a number.
unsafe impl Plain for f64 {}
