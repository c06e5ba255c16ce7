//! Memory of a device, and memory of the host that a device copies from and to.

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::c_void;
use std::mem::size_of_val;
use std::sync::{Mutex, PoisonError};

use argand::Error;
use cudarc::driver::{CudaContext, result, sys};

use crate::driver::Device;

/// Memory that was given back, to be used again or freed with more of it: freeing waits for all work on the device.
#[derive(Debug, Default)]
pub(crate) struct Returned(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// Addresses in device memory, and their bytes in all.
    device: Vec<u64>,
    device_bytes: usize,
    /// Page-locked memory of the host, with its bytes.
    pinned: Vec<(usize, usize)>,
}

/// Bytes given back after which device memory is freed, and of page-locked memory that are kept.
const MOST_RETURNED: usize = 256 << 20;
const MOST_PINNED: usize = 1 << 30;

impl Returned {
    fn lists(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether enough was given back to free it.
    fn take_back(&self, address: u64, bytes: usize) -> bool {
        let mut lists = self.lists();
        lists.device.push(address);
        lists.device_bytes += bytes;
        lists.device_bytes > MOST_RETURNED
    }

    /// Frees device memory that was given back. The device is bound to this thread.
    pub(crate) fn free(&self, context: &CudaContext, stream: sys::CUstream) {
        let addresses = {
            let mut lists = self.lists();
            lists.device_bytes = 0;
            std::mem::take(&mut lists.device)
        };
        if addresses.is_empty() || context.synchronize().is_err() {
            return;
        }
        for address in addresses {
            // SAFETY: allocated by `Device::allocate`, given back by its buffer, freed once, and all work is done. An error cannot be reported.
            let _ = unsafe { result::free_async(address, stream) };
        }
    }

    /// Frees everything that was given back. The device is bound to this thread, and nothing of it is in use.
    pub(crate) fn free_all(&self, context: &CudaContext, stream: sys::CUstream) {
        self.free(context, stream);
        for (address, _) in std::mem::take(&mut self.lists().pinned) {
            // SAFETY: allocated and given back by `Pinned`, and freed once. An error cannot be reported.
            let _ = unsafe { result::free_host(address as *mut c_void) };
        }
    }

    /// Page-locked memory of at least so many bytes, if some was given back that is not much longer.
    fn pinned(&self, bytes: usize) -> Option<(usize, usize)> {
        let mut lists = self.lists();
        let at = lists.pinned.iter().position(|&(_, length)| length >= bytes && length <= bytes.saturating_mul(2))?;
        Some(lists.pinned.swap_remove(at))
    }

    /// Keeps page-locked memory; `false` if there is enough already.
    fn keep_pinned(&self, address: usize, bytes: usize) -> bool {
        let mut lists = self.lists();
        let kept: usize = lists.pinned.iter().map(|&(_, length)| length).sum();
        let room = kept + bytes <= MOST_PINNED;
        if room {
            lists.pinned.push((address, bytes));
        }
        room
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
    /// Memory that was allocated; on a stream, if it is scratch memory.
    pub(crate) fn new(device: &Device, address: u64, bytes: usize, stream: Option<sys::CUstream>) -> Self {
        Self { device: device.clone(), address, bytes, stream: stream.map(Handle) }
    }

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
        if self.device.bind().is_err() {
            return;
        }
        match self.stream {
            None => {
                if self.device.returned().take_back(self.address, self.bytes) {
                    self.device.free_returned();
                }
            }
            Some(stream) => {
                // SAFETY: it was allocated on this stream and is freed once, after the work that uses it. An error cannot be reported.
                let _ = unsafe { result::free_async(self.address, stream.0) };
            }
        }
    }
}

/// Page-locked memory of the host, which is copied to and from a device while other work goes on.
pub(crate) struct Pinned<T> {
    device: Device,
    data: *mut T,
    length: usize,
    /// Bytes that were allocated, at least those of the numbers.
    bytes: usize,
}

// SAFETY: it owns its memory, like a vector.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Plain> Pinned<T> {
    /// Memory for this many numbers, whatever they are.
    pub(crate) fn new(device: &Device, length: usize) -> Result<Self, Error> {
        let needed = (length * size_of::<T>()).max(1);
        if let Some((address, bytes)) = device.returned().pinned(needed) {
            return Ok(Self { device: device.clone(), data: address as *mut T, length, bytes });
        }
        device.bind()?;
        // SAFETY: zero bytes are numbers.
        let data = unsafe {
            let data = result::malloc_host(needed, 0).map_err(|error| device.failed(error))?;
            std::ptr::write_bytes(data.cast::<u8>(), 0, needed);
            data.cast()
        };
        Ok(Self { device: device.clone(), data, length, bytes: needed })
    }

    pub(crate) fn numbers(&mut self) -> &mut [T] {
        // SAFETY: the memory holds `length` initialised numbers and is borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.length) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if !self.device.returned().keep_pinned(self.data as usize, self.bytes) && self.device.bind().is_ok() {
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
unsafe impl Plain for i32 {}
// SAFETY: a number.
unsafe impl Plain for i64 {}
// SAFETY: a number.
unsafe impl Plain for f32 {}
// SAFETY: a number.
unsafe impl Plain for f64 {}
