//! Fourier transforms of any length for `f32` and `f64`.
//!
//! RustFFT is generic: any crate that names a type compiles all of it, for every instruction set. This crate does so once, not
//! with every change of the library that uses it.

use std::sync::Arc;

pub use rustfft::Fft;
pub use rustfft::num_complex::Complex;
use rustfft::{FftNum, FftPlanner};

/// A scalar type with transforms.
pub trait Planned: FftNum {
    /// The forward and inverse transforms of a length, without normalisation.
    fn plan(length: usize) -> [Arc<dyn Fft<Self>>; 2];
}

macro_rules! planned {
    ($($type:ident)*) => {$(
        impl Planned for $type {
            fn plan(length: usize) -> [Arc<dyn Fft<Self>>; 2] {
                let mut planner = FftPlanner::new();
                [planner.plan_fft_forward(length), planner.plan_fft_inverse(length)]
            }
        }
    )*};
}

planned! { f32 f64 }
