//! Argand sketches tensor products and polynomial kernels with complex random projections, and hands back real
//! features.
//!
//! A [`Spec`] says what a sketch is; [`Spec::sketch`] draws it; the resulting [`Sketch`] is a [`FeatureMap`].
//! It implements "Complex-to-Real Sketches for Tensor Products with Applications to the Polynomial Kernel" (Wacker,
//! Ohana and Filippone, AISTATS 2023), called *the paper* throughout.

pub mod draw;
mod error;
mod lanes;
mod map;
mod memory;
pub mod plan;
mod projection;
pub mod rng;
mod rows;
mod scalar;
mod simd;
mod spec;
pub mod spherical;
pub mod theory;
pub mod transform;
pub mod verify;

pub use draw::Drawn;
pub use error::{Argument, Cause, Error, FileFault};
pub use map::{DEFAULT_MEMORY_LIMIT, FeatureMap, Sketch};
pub use rows::{Indices, Input, OwnedRows, Rows, RowsMut, SparseRows, check_finite, check_shapes, checked};
pub use scalar::Scalar;
/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

pub use spec::{Base, Field, InputDims, Kernel, Method, ProductMethod, Shape, Spec};
