//! Argand's sketches on NVIDIA GPUs.
//!
//! [`CudaSketch`] reads an [`argand::draw::Drawn`] and gives the same features as [`argand::Sketch`]. Nothing of CUDA is needed to build; at
//! run time the driver suffices. Without one, [`Device::open`] returns an error that says what to do.
//!
//! ```
//! use argand_cuda::{CudaSketch, Device};
//! match Device::open(0) {
//!     Ok(device) => println!("{}", device.info().name),
//!     Err(error) => println!("{error}"), // "cuda: no CUDA driver found; install …"
//! }
//! ```

mod algebra;
mod blas;
mod cosine;
mod driver;
mod fourier;
mod fused;
mod host;
mod kernels;
mod launch;
mod memory;
mod operator;
mod parts;
mod place;
mod product;
mod real;
mod sketch;
mod steps;
mod view;

pub use algebra::{Algebra, Factors, Products};
pub use driver::{Device, DeviceInfo, Stream, count};
pub use memory::{Buffer, Plain};
pub use real::Real;
pub use sketch::CudaSketch;
pub use view::{DeviceRows, Element};
