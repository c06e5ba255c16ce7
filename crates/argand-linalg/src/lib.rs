//! Dense linear algebra for Argand: products, Cholesky factors, eigenvalues and orthonormal bases.
//!
//! faer is generic: every crate that names one of its types compiles it again. This crate does so once, for the two scalar types, and
//! keeps faer's types out of its signatures. Everything runs on the calling thread: callers split their work.

mod cholesky;
mod eigen;
mod matrix;
mod product;

pub use cholesky::{Cholesky, NotPositiveDefinite, RankUpdate, Solved};
pub use eigen::{Eigen, NoConvergence, eigenvalues};
pub use matrix::Matrix;
pub use product::{Real, View, ViewMut, add_product, product};
