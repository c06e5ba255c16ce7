//! How much is worked on at a time.
//!
//! Every size of a block in this crate stands here. None of them depends on the number of threads: sums are the same on any machine.

/// Bytes of features that are in memory at a time, about, and the bounds on their rows.
const CACHED_BYTES: usize = 16 << 20;
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

/// Rows whose features are summed up while they are in a cache, or nearly so: about 16 MB of them, in whole parts of the sums, so that sums
/// do not depend on this.
///
/// ```
/// assert_eq!(argand_learn::blocks::cached_rows(2048), 2048);
/// ```
#[must_use]
pub fn cached_rows(features: usize) -> usize {
    rows_within(CACHED_BYTES, features, size_of::<f32>(), FEATURE_ROWS).next_multiple_of(SUMMED_ROWS)
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

/// Bytes of gradients that are read from a store at a time, about.
const STORE_BYTES: usize = 32 << 20;

/// Bytes of scores for these.
const SCORE_BYTES: usize = 32 << 20;

/// Examples that one thread multiplies with all queries.
pub(crate) const SCORED_ROWS: usize = 64;

/// Examples of so many numbers that are scored at a time for so many queries.
pub(crate) fn scored_block(columns: usize, queries: usize) -> usize {
    let [rows, scores] = [(STORE_BYTES, columns), (SCORE_BYTES, queries)]
        .map(|(bytes, columns)| rows_within(bytes, columns, size_of::<f32>(), [1, 1 << 16]));
    rows.min(scores)
}

/// Examples of so many numbers whose products are summed up at a time: more on a device, which hands back the sums of each block.
pub(crate) fn summed_block(columns: usize, on_device: bool) -> usize {
    let bytes = if on_device { FEATURE_BYTES } else { STORE_BYTES };
    rows_within(bytes, columns, size_of::<f32>(), [1, SUMMED_ROWS.max(if on_device { FEATURE_ROWS[1] } else { 0 })])
}

/// Bytes of the sums of layers that share a pass over a store, and of factors that are kept for the next queries.
pub(crate) const SUMS_BYTES: u64 = 256 << 20;

/// Bytes of queries, and of the examples kept for them, that share a pass over a store.
const QUERY_BYTES: usize = 192 << 20;

/// Queries of so many numbers that share a pass over a store, if so many examples are kept for each.
pub(crate) fn queries_together(width: usize, top: usize) -> usize {
    let bytes = width.saturating_mul(12).saturating_add(top.saturating_mul(256));
    (QUERY_BYTES / bytes.max(1)).max(1)
}

/// Queries whose lists of `top` examples, of so many numbers each, are compared at a time.
pub(crate) fn compared_together(width: usize, top: usize) -> usize {
    (QUERY_BYTES / width.saturating_mul(top).saturating_mul(2 * size_of::<f64>()).max(1)).max(1)
}
