//! How much is read and written at a time.
//!
//! Blocks of rows to learn from do not depend on the number of threads: a model is the same on any machine. Those of features that
//! are written do, and their numbers are the same in any block.

/// Bytes of rows that are read at a time where features are not kept, about, and the bounds on their rows.
pub(crate) const READ_BYTES: usize = 32 << 20;
pub(crate) const READ_ROWS: [usize; 2] = [256, 1 << 16];

/// Bytes of rows and features that `transform` holds at a time, about, and the fewest rows of a thread.
pub(crate) const TRANSFORM_BYTES: usize = 16 << 20;
pub(crate) const THREAD_ROWS: usize = 16;

/// Bytes of a sample, about, and the bounds on its number of rows.
pub(crate) const SAMPLE_BYTES: usize = 256 << 20;
pub(crate) const SAMPLE_ROWS: [usize; 2] = [64, 4096];
