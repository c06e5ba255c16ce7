//! How much is read and written at a time.
//!
//! Training blocks do not depend on the number of threads, so that a model is the same on any machine. Output blocks do: features
//! are the same in any block.

/// About how many bytes of rows to read at a time where features are not kept, and bounds on the number of rows.
pub(crate) const READ_BYTES: usize = 32 << 20;
pub(crate) const READ_ROWS: [usize; 2] = [256, 1 << 16];

/// About how many bytes of rows and features `transform` holds at a time, and the fewest rows per thread.
pub(crate) const TRANSFORM_BYTES: usize = 16 << 20;
pub(crate) const THREAD_ROWS: usize = 16;

/// The same where a GPU computes, which is faster on more rows at a time.
pub(crate) const DEVICE_BYTES: usize = 128 << 20;

/// About how many bytes a sample takes, and bounds on its number of rows.
pub(crate) const SAMPLE_BYTES: usize = 256 << 20;
pub(crate) const SAMPLE_ROWS: [usize; 2] = [64, 4096];

/// The same for a sample from which models learn.
pub(crate) const LABELLED_SAMPLE_ROWS: [usize; 2] = [64, 16384];
