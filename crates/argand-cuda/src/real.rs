//! The scalar types that kernels compute with.

#![allow(unsafe_code, reason = "cuBLAS is a C library")]

use std::ffi::c_int;

use argand::Scalar;
use cudarc::cublas::{result, sys};

use crate::memory::Plain;
use crate::view::Element;

/// `f32` or `f64`.
pub trait Real: Scalar + Plain {
    /// The type in device memory.
    const ELEMENT: Element;
    /// The module with its steps.
    #[doc(hidden)]
    const STEPS: &'static str;

    /// Rows of W for each thread of `signed_sums`.
    #[doc(hidden)]
    const SIGN_OUTPUTS: usize;

    /// α A B + β C, column-major, with a stride for each matrix.
    ///
    /// # Safety
    /// As cuBLAS: sizes and strides must describe device memory.
    #[doc(hidden)]
    unsafe fn gemm(
        handle: sys::cublasHandle_t,
        operations: [sys::cublasOperation_t; 2],
        sizes: [c_int; 3],
        alpha: Self,
        operands: [(u64, c_int); 2],
        beta: Self,
        c: (u64, c_int),
    ) -> Result<(), result::CublasError>;
}

macro_rules! real {
    ($type:ident, $element:ident, $steps:literal, $sign_outputs:literal, $gemm:ident) => {
        impl Real for $type {
            const ELEMENT: Element = Element::$element;
            const STEPS: &'static str = $steps;
            const SIGN_OUTPUTS: usize = $sign_outputs;

            unsafe fn gemm(
                handle: sys::cublasHandle_t,
                [op_a, op_b]: [sys::cublasOperation_t; 2],
                [m, n, k]: [c_int; 3],
                alpha: Self,
                [(a, stride_a), (b, stride_b)]: [(u64, c_int); 2],
                beta: Self,
                (c, stride_c): (u64, c_int),
            ) -> Result<(), result::CublasError> {
                // SAFETY: the caller's.
                unsafe {
                    result::$gemm(
                        handle,
                        op_a,
                        op_b,
                        m,
                        n,
                        k,
                        &raw const alpha,
                        a as *const Self,
                        stride_a,
                        b as *const Self,
                        stride_b,
                        &raw const beta,
                        c as *mut Self,
                        stride_c,
                    )
                }
            }
        }
    };
}

real!(f32, F32, "steps_f32", 8, sgemm);
real!(f64, F64, "steps_f64", 4, dgemm);
