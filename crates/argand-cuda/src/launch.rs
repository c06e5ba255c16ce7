//! Kernels and their launches.

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::c_void;
use std::sync::OnceLock;

use argand::Error;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUfunction_attribute_enum as FunctionAttribute};

use crate::driver::{Device, Stream, positive};

/// A compiled kernel.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    device: Device,
    handle: sys::CUfunction,
    shared: usize,
}

// SAFETY: the handle is only passed to the driver, which is thread-safe.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [usize; 2],
    pub(crate) threads: usize,
}

impl Kernel {
    /// A function of a module that stays loaded as long as the device is open.
    pub(crate) fn new(device: &Device, handle: sys::CUfunction) -> Self {
        Self { device: device.clone(), handle, shared: 0 }
    }

    /// The same kernel with this many bytes of shared memory per block.
    pub(crate) fn with_shared(mut self, bytes: usize) -> Result<Self, Error> {
        let own = FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let most = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.device.bind()?;
        // The limit belongs to the function, which other sketches share: it is the same for all of them, the device's.
        // SAFETY: the function is loaded.
        unsafe {
            result::function::get_function_attribute(self.handle, own).and_then(|own| {
                let shared = i32::try_from(self.device.info().shared_memory).unwrap_or(i32::MAX);
                result::function::set_function_attribute(self.handle, most, shared - own)
            })
        }
        .map_err(|error| self.device.failed(error))?;
        self.shared = bytes;
        Ok(self)
    }

    /// The same kernel, launched with another size of shared memory.
    pub(crate) fn sharing(mut self, bytes: usize) -> Self {
        self.shared = bytes;
        self
    }

    /// Blocks of this many threads that a multiprocessor runs at once.
    pub(crate) fn blocks_at_once(&self, threads: usize) -> Result<usize, Error> {
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        self.device.bind()?;
        // SAFETY: the function is loaded.
        let blocks =
            unsafe { result::occupancy::max_active_block_per_multiprocessor(self.handle, threads, self.shared) };
        Ok(positive(blocks.map_err(|error| self.device.failed(error))?).max(1))
    }

    /// Queues the kernel.
    ///
    /// `arguments` are pointers to its arguments in order, as [`arguments!`] makes them. Every caller in this crate is one
    /// function per kernel with typed arguments, next to others like it, and owns the buffers it passes or holds its caller's views.
    pub(crate) fn launch(&self, stream: &Stream, shape: Shape, arguments: &mut [*mut c_void]) -> Result<(), Error> {
        let narrow = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let [x, y] = shape.grid.map(narrow);
        if x == 0 || y == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the arguments match the kernel's parameters, and their buffers outlive the work on this stream.
        unsafe {
            result::launch_kernel(
                self.handle,
                (x, y, 1),
                (narrow(shape.threads), 1, 1),
                narrow(self.shared),
                stream.raw().cast(),
                arguments,
            )
        }
        .map_err(|error| self.device.failed(error))
    }
}

/// A large kernel that is loaded when it is first needed.
#[derive(Debug)]
pub(crate) struct Lazy {
    module: String,
    name: &'static str,
    shared: usize,
    threads: usize,
    loaded: OnceLock<(Kernel, usize)>,
}

impl Lazy {
    /// A kernel that is launched in blocks of so many threads with so many bytes of shared memory each.
    pub(crate) fn new(module: &str, name: &'static str, shared: usize, threads: usize) -> Self {
        Self { module: module.to_owned(), name, shared, threads, loaded: OnceLock::new() }
    }

    /// Threads of a block.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The kernel, and the blocks that the device runs at once.
    pub(crate) fn get(&self, device: &Device) -> Result<(&Kernel, usize), Error> {
        if self.loaded.get().is_none() {
            let kernel = device.kernel_alone(&self.module, self.name)?.with_shared(self.shared)?;
            let blocks = device.info().multiprocessors * kernel.blocks_at_once(self.threads)?;
            // If another thread was faster, its kernel is the same.
            let _ = self.loaded.set((kernel, blocks));
        }
        let (kernel, blocks) = self.loaded.get().unwrap_or_else(|| unreachable!("it was just loaded"));
        Ok((kernel, *blocks))
    }

    /// Queues as many blocks as there is work for, or as run at once.
    pub(crate) fn launch(&self, stream: &Stream, work: usize, arguments: &mut [*mut c_void]) -> Result<(), Error> {
        let (kernel, blocks) = self.get(stream.device())?;
        kernel.launch(stream, Shape { grid: [work.min(blocks), 1], threads: self.threads }, arguments)
    }

    /// Queues this many blocks.
    pub(crate) fn launch_all(
        &self,
        stream: &Stream,
        grid: [usize; 2],
        arguments: &mut [*mut c_void],
    ) -> Result<(), Error> {
        self.get(stream.device())?.0.launch(stream, Shape { grid, threads: self.threads }, arguments)
    }
}

/// Pointers to arguments, for [`Kernel::launch`].
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => {
        &mut [$((&raw const $argument).cast_mut().cast::<std::ffi::c_void>()),*]
    };
}

pub(crate) use arguments;
