//! The theory of the paper as functions: what a sketch's error will be, before it is drawn.
//!
//! [`moments`] and [`bounds`] are the concentration results, [`variance`] the variances of kernel estimates. [`expected_error`]
//! sums the variances over all pairs of a sample: the expected squared Frobenius error of a kernel matrix is the sum of
//! the variances of its entries. [`kernel_error`] measures the actual error of computed features.
//!
//! ```
//! use argand::Spec;
//! use argand::theory::variance::variance;
//!
//! // One pair of rows, x = (1, 1, 1, 1) = y: k = ⟨x, y⟩² = 16.
//! let x = [1.0; 4];
//! let moments = |method: &str| -> Result<_, argand::Error> {
//!     let spec = Spec::polynomial(4).with_degree(2).with_features(64).with_method(method.parse()?);
//!     Ok(variance(&spec, &[&x], &[&x])?.unwrap())
//! };
//! let (real, complex) = (moments("gaussian")?, moments("ctr-gaussian")?);
//! assert_eq!((real.mean, real.variance), (16.0, 32.0)); // ((3² − 1) · 16²)/64
//! assert!(complex.variance < real.variance);
//! # Ok::<(), argand::Error>(())
//! ```

pub mod bounds;
mod error;
pub mod moments;
mod pairs;
pub mod variance;

pub(crate) use error::Predictor;
pub use error::{ExpectedError, Sampling, Source, expected_error, kernel_error};
pub use pairs::kernel_matrix;
pub(crate) use pairs::{RowSums, Sample, choose_rows, mean};
