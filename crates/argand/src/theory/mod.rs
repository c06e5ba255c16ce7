//! The theory of the paper as functions: what a sketch's error will be, before it is drawn.
//!
//! [`moments`] and [`bounds`] are the concentration results, [`variance`] the variances of kernel estimates. [`expected_error`]
//! sums the variances over all pairs of a sample: the expected squared Frobenius error of a kernel matrix is the sum of
//! the variances of its entries. [`kernel_error`] is the error that was made, once features are there.

pub mod bounds;
mod error;
pub mod moments;
mod pairs;
pub mod variance;

pub(crate) use error::Predictor;
pub use error::{ExpectedError, Sampling, Source, expected_error, kernel_error};
pub(crate) use pairs::choose_rows;
pub use pairs::kernel_matrix;
