//! Fast transforms: Walsh–Hadamard and Fourier.
//!
//! The Hadamard matrix H of a power of two n has entries (−1)^{popcount(j & k)}; it is symmetric, and H H = n I, so
//! applying it twice multiplies by n.
//!
//! ```
//! use argand::transform::fwht::fwht;
//! let mut x = [3.0, 1.0, 4.0, 1.0];
//! fwht(&mut x)?;
//! assert_eq!(x, [9.0, 5.0, -1.0, -1.0]);
//! fwht(&mut x)?;
//! assert_eq!(x.map(|x| x / 4.0), [3.0, 1.0, 4.0, 1.0]);
//! # Ok::<(), argand::Error>(())
//! ```

pub(crate) mod fft;
pub mod fwht;
