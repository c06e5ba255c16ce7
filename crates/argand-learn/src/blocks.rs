//! How much is worked on at a time.
//!
//! Every size of a block in this crate stands here. None of them depends on the number of threads: sums are the same on any machine.

/// Bytes of features that are in memory at a time, about, and the bounds on their rows.
const FEATURE_BYTES: usize = 128 << 20;
const FEATURE_ROWS: [usize; 2] = [256, 16384];

/// Rows of so many numbers of so many bytes each that fit into `bytes`, within bounds.
#[must_use]
pub fn rows_within(bytes: usize, columns: usize, number_bytes: usize, [fewest, most]: [usize; 2]) -> usize {
    (bytes / number_bytes.max(1) / columns.max(1)).clamp(fewest, most)
}

/// Rows whose features are computed, summed up or predicted from at a time: 256 to 16,384, of about 128 MB.
///
/// ```
/// assert_eq!(argand_learn::blocks::feature_rows::<f32>(4096), 8192);
/// ```
#[must_use]
pub fn feature_rows<T>(features: usize) -> usize {
    rows_within(FEATURE_BYTES, features, size_of::<T>(), FEATURE_ROWS)
}

/// Rows whose products are summed up before they are added to those of others.
pub(crate) const SUMMED_ROWS: usize = 1024;

/// Rows that systems of equations are solved for together.
pub(crate) const SOLVED_ROWS: usize = 256;

/// Bytes of features that online learning computes ahead of its steps: enough rows for all threads, little enough for the caches.
pub(crate) const FEATURES_AHEAD: usize = 16 << 20;

/// Features that a softmax layer multiplies together.
pub(crate) const COLUMN_BLOCK: usize = 1024;

/// Rows whose classes a softmax layer scores together.
pub(crate) const ROW_BLOCK: usize = 256;
