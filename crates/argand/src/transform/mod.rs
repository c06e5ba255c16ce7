//! Fast linear transforms.

pub(crate) mod fft;
pub mod fwht;
