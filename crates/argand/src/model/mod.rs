//! Learning on sketches.

mod archive;

pub use archive::Archive;
