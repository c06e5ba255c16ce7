//! Fast linear transforms.

pub mod fwht;
