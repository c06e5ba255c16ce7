//! cuBLAS, where it is found: PyTorch, CuPy and the CUDA toolkit bring it. Everything also runs without it.

#![allow(unsafe_code, reason = "cuBLAS is a C library")]

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use argand::{DeviceFault, Error};
use cudarc::cublas::{result, sys};

use crate::driver::{Device, Stream, View};
use crate::real::Real;

/// A handle of cuBLAS.
#[derive(Debug)]
pub(crate) struct Blas {
    handle: Mutex<Handle>,
    device: Device,
}

#[derive(Debug)]
struct Handle(sys::cublasHandle_t);

// SAFETY: the handle is used by one thread at a time.
unsafe impl Send for Handle {}

/// A product of row-major matrices: C = A Bᵀ, or C = C + A B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    ByTransposed,
    Add,
}

impl Blas {
    /// cuBLAS on this device, if it is found.
    pub(crate) fn find(device: &Device) -> Option<Self> {
        device.bind().ok()?;
        // SAFETY: looks whether a library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return None;
        }
        let handle = Mutex::new(Handle(result::create_handle().ok()?));
        Some(Self { handle, device: device.clone() })
    }

    /// C, rows x columns, from A and B with this inner length.
    pub(crate) fn multiply<T: Real>(
        &self,
        stream: &Stream,
        form: Form,
        [a, b, c]: [View; 3],
        [rows, columns, inner]: [usize; 3],
    ) -> Result<(), Error> {
        let failed = |error: result::CublasError| Error::Device {
            device: format!("cuda:{}", self.device.info().number),
            fault: DeviceFault::Driver(format!("cuBLAS: {:?}", error.0)),
        };
        let narrow = |size: usize| {
            c_int::try_from(size).unwrap_or_else(|_| unreachable!("blocks of rows have fewer than 2³¹ numbers a side"))
        };
        let (rows, columns, inner) = (narrow(rows), narrow(columns), narrow(inner));
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.bind()?;
        // Row-major C is column-major Cᵀ: the operands change places.
        let plain = sys::cublasOperation_t::CUBLAS_OP_N;
        let transposed = sys::cublasOperation_t::CUBLAS_OP_T;
        let ((op_b, stride_b), (op_a, stride_a), beta) = match form {
            Form::ByTransposed => ((transposed, inner), (plain, inner), 0.0),
            Form::Add => ((plain, columns), (plain, inner), 1.0),
        };
        let (alpha, beta) = (T::from_f64(1.0), T::from_f64(beta));
        // SAFETY: the matrices lie in buffers of the caller's, with these sizes; the handle is locked.
        unsafe {
            result::set_stream(handle.0, stream.raw().cast()).map_err(failed)?;
            T::gemm(
                handle.0,
                [op_b, op_a],
                [columns, rows, inner],
                alpha,
                [(b.0, stride_b), (a.0, stride_a)],
                beta,
                (c.0, columns),
            )
            .map_err(failed)
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: made here, destroyed once. An error cannot be reported.
        let _ = unsafe { result::destroy_handle(handle.0) };
    }
}
