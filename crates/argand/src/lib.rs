//! Argand sketches tensor products and polynomial kernels with complex random projections, and hands back real
//! features.
//!
//! A [`Spec`] says what a sketch is; [`Spec::sketch`] draws it; the resulting [`Sketch`] is a [`FeatureMap`].
//! It implements "Complex-to-Real Sketches for Tensor Products with Applications to the Polynomial Kernel" (Wacker,
//! Ohana and Filippone, AISTATS 2023), called *the paper* throughout.

mod error;
pub mod interop;
mod lanes;
pub mod model;
pub mod plan;
mod projection;
pub mod rng;
mod rows;
mod scalar;
mod simd;
mod sketch;
mod spec;
pub mod spherical;
pub mod theory;
pub mod transform;
pub mod verify;

pub use error::{Argument, Cause, Error, FileFault};
pub use rows::{Indices, Input, Rows, RowsMut, SparseRows, check_finite, check_shapes};
pub use scalar::Scalar;
pub use sketch::{DEFAULT_MEMORY_LIMIT, FeatureMap, Sketch};
/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

pub use spec::{Base, Field, InputDims, Kernel, Method, ProductMethod, Shape, Spec};
