//! cuBLAS, where it is found: PyTorch, CuPy and the CUDA toolkit bring it. Everything also runs without it.

#![allow(unsafe_code, reason = "cuBLAS is a C library")]

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use argand::{DeviceFault, Error};
use cudarc::cublas::{result, sys};

use crate::driver::{Device, Stream};
use crate::memory::View;
use crate::real::Real;

/// A handle of cuBLAS.
#[derive(Debug)]
pub(crate) struct Blas {
    handle: Mutex<Handle>,
    device: Device,
}

#[derive(Debug)]
pub(crate) struct Handle(sys::cublasHandle_t);

impl Handle {
    /// The device is bound to this thread.
    pub(crate) fn destroy(self) {
        // SAFETY: it was made here and is destroyed once. An error cannot be reported.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

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
        let handle = match device.idle_blas().pop() {
            Some(handle) => handle,
            None => Handle(result::create_handle().ok()?),
        };
        Some(Self { handle: Mutex::new(handle), device: device.clone() })
    }

    /// C, rows x columns, from A and B with this inner length.
    pub(crate) fn multiply<T: Real>(
        &self,
        stream: &Stream,
        form: Form,
        [a, b, c]: [View; 3],
        [rows, columns, inner]: [usize; 3],
    ) -> Result<(), Error> {
        let (rows, columns, inner) = (narrow(rows), narrow(columns), narrow(inner));
        // Row-major C is column-major Cᵀ: the operands change places.
        let plain = sys::cublasOperation_t::CUBLAS_OP_N;
        let transposed = sys::cublasOperation_t::CUBLAS_OP_T;
        let ((op_b, stride_b), (op_a, stride_a), beta) = match form {
            Form::ByTransposed => ((transposed, inner), (plain, inner), 0.0),
            Form::Add => ((plain, columns), (plain, inner), 1.0),
        };
        let (alpha, beta) = (T::from_f64(1.0), T::from_f64(beta));
        self.call(stream, |handle| {
            let (sizes, operands) = ([columns, rows, inner], [(b.0, stride_b), (a.0, stride_a)]);
            // SAFETY: the matrices lie in buffers of the caller's, with these sizes.
            unsafe { T::gemm(handle, [op_b, op_a], sizes, alpha, operands, beta, (c.0, columns)) }
        })
    }

    /// Calls cuBLAS on a stream, one thread at a time.
    fn call(
        &self,
        stream: &Stream,
        routine: impl FnOnce(sys::cublasHandle_t) -> Result<(), result::CublasError>,
    ) -> Result<(), Error> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.bind()?;
        // SAFETY: the stream is alive, and the handle is locked.
        let set = unsafe { result::set_stream(handle.0, stream.raw().cast()) };
        set.and_then(|()| routine(handle.0)).map_err(|error| Error::Device {
            device: format!("cuda:{}", self.device.info().number),
            fault: DeviceFault::Driver(format!("cuBLAS: {:?}", error.0)),
        })
    }

    /// The lower triangle of C = βC + αAᵀA, or of C = βC + αAAᵀ: C has `size` rows, and the sums have `inner` terms.
    pub(crate) fn add_square(
        &self,
        stream: &Stream,
        square: Square,
        [alpha, beta]: [f64; 2],
        a: Table,
        c: Table,
        [size, inner]: [usize; 2],
    ) -> Result<(), Error> {
        // Row by row is column by column, transposed: lower triangles are upper ones.
        let operation = match square {
            Square::OfColumns => sys::cublasOperation_t::CUBLAS_OP_N,
            Square::OfRows => sys::cublasOperation_t::CUBLAS_OP_T,
        };
        self.call(stream, |handle| {
            // SAFETY: the matrices lie in buffers of the caller's, with these sizes.
            unsafe {
                sys::cublasDsyrk_v2(
                    handle,
                    sys::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
                    operation,
                    narrow(size),
                    narrow(inner),
                    &raw const alpha,
                    a.view.0 as *const f64,
                    narrow(a.stride),
                    &raw const beta,
                    c.view.0 as *mut f64,
                    narrow(c.stride),
                )
            }
            .result()
        })
    }

    /// C = C + AᵀB, with so many columns of A and of B, and so many rows of both.
    pub(crate) fn add_product(
        &self,
        stream: &Stream,
        [a, b, c]: [Table; 3],
        [a_columns, b_columns, rows]: [usize; 3],
    ) -> Result<(), Error> {
        let operations = [sys::cublasOperation_t::CUBLAS_OP_N, sys::cublasOperation_t::CUBLAS_OP_T];
        let sizes = [b_columns, a_columns, rows].map(narrow);
        let operands = [b, a].map(|table| (table.view.0, narrow(table.stride)));
        self.call(stream, |handle| {
            // SAFETY: the matrices lie in buffers of the caller's, with these sizes.
            unsafe { f64::gemm(handle, operations, sizes, 1.0, operands, 1.0, (c.view.0, narrow(c.stride))) }
        })
    }

    /// L⁻¹x in place of every row x, with `size` numbers in a row.
    pub(crate) fn solve_rows(
        &self,
        stream: &Stream,
        lower: Table,
        x: Table,
        [size, rows]: [usize; 2],
    ) -> Result<(), Error> {
        let one = 1.0;
        self.call(stream, |handle| {
            // SAFETY: the matrices lie in buffers of the caller's, with these sizes.
            unsafe {
                sys::cublasDtrsm_v2(
                    handle,
                    sys::cublasSideMode_t::CUBLAS_SIDE_LEFT,
                    sys::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
                    sys::cublasOperation_t::CUBLAS_OP_T,
                    sys::cublasDiagType_t::CUBLAS_DIAG_NON_UNIT,
                    narrow(size),
                    narrow(rows),
                    &raw const one,
                    lower.view.0 as *const f64,
                    narrow(lower.stride),
                    x.view.0 as *mut f64,
                    narrow(x.stride),
                )
            }
            .result()
        })
    }
}

fn narrow(size: usize) -> c_int {
    c_int::try_from(size).unwrap_or_else(|_| unreachable!("blocks of rows have fewer than 2³¹ numbers a side"))
}

/// A matrix of doubles in device memory, row by row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) view: View,
    /// Numbers from one row to the next.
    pub(crate) stride: usize,
}

impl Table {
    /// The part that begins at a row and a column.
    pub(crate) fn part_at(self, row: usize, column: usize) -> Self {
        Self { view: self.view.skip::<f64>(row * self.stride + column), ..self }
    }
}

/// The products of all pairs of columns, or of all pairs of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Square {
    OfColumns,
    OfRows,
}

impl Drop for Blas {
    /// Gives the handle back: making and destroying one waits for all work on the device.
    fn drop(&mut self) {
        let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.device.idle_blas().push(Handle(handle.0));
    }
}
