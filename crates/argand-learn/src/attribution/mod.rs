//! Data attribution: which examples of a training set helped or harmed a model on some queries.
//!
//! A [`Store`] holds a sketch φ of every example's gradient, layer by layer; [`attribute`] reads one of training examples and one of
//! queries, and finds for every query the examples of largest and smallest score, with the standard error that the sketches leave.
//!
//! # Formula
//! Training on an example moves the weights against its gradient. To first order, this lowers the loss of a query by the inner product
//! of both gradients: *similarity* Σ_l <φ_l, φ'_l> over the layers l. *Cosine* divides it by the norms. *Influence* measures in
//! the metric of the curvature, Σ_l φ'_lᵀ(G_l + λ_l I)⁻¹φ_l with G_l = Σ φ_l φ_lᵀ over the training set. Positive scores are helpful,
//! negative ones harmful.
//!
//! # Reference
//! Grosse et al. 2023, "Studying large language model generalization with influence functions" (damping, per layer);
//! Park et al. 2023, "TRAK: attributing model behavior at scale" (G of projected gradients).
//!
//! # Cost
//! n·D² operations for G, once for a store; n·D multiplications for each query, in one pass. Memory does not grow with n.

mod bars;
mod curvature;
mod reading;
mod selection;
mod store;
#[cfg(test)]
mod tests;
mod top;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use argand::{Argument, DEFAULT_MEMORY_LIMIT, Error};
use argand_linalg::{Real, View, ViewMut, add_product, product};
use rayon::prelude::*;

use crate::blocks;
use crate::engine::Engine;
use curvature::Curvature;
use reading::{Block, SingleRows};
use selection::Selection;
use store::fault;
pub use store::{Layer, Store};
use top::Best;

/// What a score is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Measure {
    /// Inner products in the metric of the damped curvature.
    #[default]
    Influence,
    /// Inner products.
    Similarity,
    /// Inner products divided by the norms.
    Cosine,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Influence, Self::Similarity, Self::Cosine];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Influence => "influence",
            Self::Similarity => "similarity",
            Self::Cosine => "cosine",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|measure| measure.name() == name);
        found.ok_or_else(|| format!("expected influence, similarity or cosine, got \"{name}\""))
    }
}

/// λ of (G + λI)⁻¹.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Damping {
    /// This multiple of the mean eigenvalue of G, tr(G)/D, of every layer.
    Multiple(f64),
    /// This number.
    Lambda(f64),
}

impl Default for Damping {
    fn default() -> Self {
        Self::Multiple(0.1)
    }
}

/// How to score.
#[derive(Debug, Clone)]
pub struct Options {
    /// What a score is.
    pub measure: Measure,
    /// Patterns of the names of layers, in which `*` is any text and `?` any character; all layers without any.
    pub layers: Vec<String>,
    /// λ, for influence.
    pub damping: Damping,
    /// Whether influence takes all layers together rather than one by one.
    pub joint: bool,
    /// Where G is summed up and factored, if not on the processor.
    pub engine: Option<Arc<dyn Engine>>,
    /// Bytes that the curvature, or a matrix of scores, may take.
    pub memory_limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            measure: Measure::default(),
            layers: Vec::new(),
            damping: Damping::default(),
            joint: false,
            engine: None,
            memory_limit: DEFAULT_MEMORY_LIMIT,
        }
    }
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        let (argument, value) = match self.damping {
            Damping::Multiple(value) => (Argument::Damping, value),
            Damping::Lambda(value) => (Argument::Lambda, value),
        };
        if value.is_finite() && value >= 0.0 {
            return Ok(());
        }
        Err(Error::invalid(argument, "a number of at least 0", value))
    }
}

/// What takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Summing up G.
    Summing,
    /// Multiplying examples with queries.
    Scoring,
}

/// How far a stage is, in examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Examples that are done.
    pub done: u64,
    /// Examples of this stage.
    pub total: u64,
}

/// An example in the list of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// The number of the example.
    pub example: u64,
    /// Its score, positive if it is helpful.
    pub score: f64,
    /// The standard error of the score that is due to the sketch; NaN if its projection has a single row.
    pub standard_error: f64,
    /// The first of the neighbouring ranks, from 1 on, whose scores differ by no more than the standard error of the difference ...
    pub rank_low: usize,
    /// ... and the last.
    pub rank_high: usize,
}

/// The examples with the largest and smallest scores for every query.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scores {
    /// The numbers of the queries.
    pub queries: Vec<u64>,
    /// Examples in each list.
    pub top: usize,
    /// Query by query the `top` examples of largest score, which comes first.
    pub helpful: Vec<Ranked>,
    /// Query by query the `top` examples of smallest score, which comes first.
    pub harmful: Vec<Ranked>,
    /// What may be a mistake, or costs time.
    pub notes: Vec<String>,
}

/// Queries as they are multiplied with examples.
struct Queries {
    /// Row by row, for the places of a selection: for influence (G + λI)⁻¹φ, for cosine φ/‖φ‖.
    exact: Vec<f64>,
    rounded: Vec<f32>,
    count: usize,
}

/// Finds the `top` most helpful and the `top` most harmful examples for every query.
///
/// Scores are sums in f64 over the sketches; candidates are found with products in f32, and in a second pass with products in f64 where the rounding of those
/// could hide an example. Neither depends on the number of threads.
/// The sums G of the training examples are kept beside their store, as `gram-….sums`, with the shards that they count: examples
/// that are recorded later are added, and changed ones make them new.
///
/// # Formula
/// A score has the standard error √(Σ_l m/(m−1) Σ_j (t_j − t̄)²) of the jackknife over the m rows of the projection of every layer l, where t_j is what the
/// score loses without row j: for similarity its part of the sum, for influence uᵀB⁻¹v with u = A⁻¹φ', v = A⁻¹φ, A = G + λI and the block B of A⁻¹
/// that belongs to the row, for cosine the linear part of the quotient. It is right for independent rows, and an upper bound for rows that are drawn without replacement.
///
/// # Errors
/// [`Error::Store`] for stores that do not fit together, are empty or damaged, or hold numbers that are not finite;
/// [`Error::Invalid`] for options; [`Error::Singular`] for too little damping; [`Error::Device`].
pub fn attribute(
    train: &Store,
    queries: &Store,
    top: usize,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Scores, Error> {
    if top == 0 {
        return Err(Error::invalid(Argument::Top, "at least 1", top));
    }
    let selection = begin(train, queries, options)?;
    let mut notes = Vec::new();
    let count = usize::try_from(train.examples()).unwrap_or(usize::MAX);
    if top > count {
        notes.push(format!("{}: has {count} examples, fewer than the {top} asked for", train.path().display()));
    }
    let top = top.min(count);
    check_lists(queries, &selection, top, options.memory_limit)?;
    let numbers: Vec<u64> = queries.numbers().collect();
    let together = blocks::queries_together(selection.width, top);
    let (mut helpful, mut harmful) = (Vec::new(), Vec::new());
    let mut curvature = Curvature::new(train, &selection, options);
    for start in (0..numbers.len()).step_by(together) {
        let range = start..numbers.len().min(start + together);
        let batch = Queries::read(queries, &selection, range, options.measure, &mut curvature, progress)?;
        let (before, total) = (start as u64 / together as u64, numbers.len().div_ceil(together) as u64);
        let mut passes = |done| {
            let (done, total) = (before * train.examples() + done, total * train.examples());
            progress(Progress { stage: Stage::Scoring, done, total });
        };
        let best = candidates::<f32>(train, &selection, &batch, top, options.measure, &mut passes)?;
        let (mut lists, sure) = bars::best_of(train, &selection, &batch, best, top, options.measure)?;
        if !sure {
            // Rounding decides, as with next to no damping, or examples that are alike.
            let best = candidates::<f64>(train, &selection, &batch, top, options.measure, &mut passes)?;
            (lists, _) = bars::best_of(train, &selection, &batch, best, top, options.measure)?;
        }
        let [mut more, mut less] = bars::rank(train, &selection, &batch, lists, options.measure, &mut curvature)?;
        helpful.append(&mut more);
        harmful.append(&mut less);
    }
    curvature.notes.dedup();
    notes.append(&mut curvature.notes);
    Ok(Scores { queries: numbers, top, helpful, harmful, notes })
}

/// The scores of all examples for all queries, query by query: as many numbers for each as there are examples, in their order.
///
/// # Cost
/// As [`attribute`], in f64, and 8 bytes for every score.
///
/// # Errors
/// As [`attribute`], and [`Error::TooLarge`].
pub fn score_matrix(
    train: &Store,
    queries: &Store,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<f64>, Vec<String>), Error> {
    let selection = begin(train, queries, options)?;
    let (examples, count) = (train.examples(), queries.examples());
    let needed = (u128::from(examples) + 2 * selection.width as u128) * u128::from(count) * 8;
    let (Ok(needed), limit) = (u64::try_from(needed), options.memory_limit) else {
        return Err(Error::TooLarge { needed: u64::MAX, limit: options.memory_limit });
    };
    if needed > limit {
        return Err(Error::TooLarge { needed, limit });
    }
    // They fit into memory.
    let [examples, count] = [examples, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let mut curvature = Curvature::new(train, &selection, options);
    let all = Queries::read(queries, &selection, 0..count, options.measure, &mut curvature, progress)?;
    let mut scores = vec![0.0; examples * count];
    let (columns, mut done) = (train.columns(), 0);
    train.for_each_block(&train.all_shards(), blocks::scored_block(columns, count), |block| {
        check_numbers(train, &block, selection.layers.iter().map(|layer| &layer.train))?;
        let some = block.numbers.par_chunks(columns * blocks::SCORED_ROWS).map(|numbers| {
            let rows: Vec<f64> =
                numbers.chunks_exact(columns).flat_map(|row| selection.gather(row)).map(f64::from).collect();
            let rows_there = rows.len() / selection.width;
            let mut some = vec![0.0; count * rows_there];
            let right = View::by_rows(&rows, rows_there, selection.width).transpose();
            let left = View::by_rows(&all.exact, count, selection.width);
            product(ViewMut::by_rows(&mut some, count, rows_there), left, right, 1.0);
            if options.measure == Measure::Cosine {
                let norms = rows.chunks_exact(selection.width).map(|row| inverse_norm(row.iter().copied()));
                scale(&mut some, &norms.collect::<Vec<_>>());
            }
            some
        });
        for some in some.collect::<Vec<_>>() {
            let rows = some.len() / count;
            for (scores, some) in scores.chunks_exact_mut(examples).zip(some.chunks_exact(rows)) {
                scores[done..done + rows].copy_from_slice(some);
            }
            done += rows;
        }
        progress(Progress { stage: Stage::Scoring, done: done as u64, total: examples as u64 });
        Ok(())
    })?;
    Ok((scores, curvature.notes))
}

/// What is checked before any work.
fn begin(train: &Store, queries: &Store, options: &Options) -> Result<Selection, Error> {
    options.check()?;
    for store in [train, queries] {
        if store.examples() == 0 {
            let unfinished = match store.unfinished() {
                [] => "",
                _ => " but unfinished ones; finish the recording",
            };
            return Err(fault(store.path(), format!("has no examples{unfinished}")));
        }
        let (columns, limit) = (store.columns(), options.memory_limit);
        // Blocks of one example, and its numbers in double precision.
        if columns as u128 * (reading::BUFFERS as u128 * 4 + 8) > u128::from(limit) {
            return Err(fault(store.path(), format!("examples of {columns} numbers do not fit into {limit} bytes")));
        }
    }
    Selection::new(train, queries, &options.layers)
}

/// Checks that there is room for lists of `top` examples: those of all queries as they are returned, and the numbers of those of one.
fn check_lists(queries: &Store, selection: &Selection, top: usize, limit: u64) -> Result<(), Error> {
    let count = queries.examples();
    let entry = 2 * (u128::from(count) * size_of::<Ranked>() as u128 + selection.width as u128 * 16);
    let most = u128::from(limit).saturating_sub(u128::from(count) * 8) / entry;
    if top as u128 <= most {
        return Ok(());
    }
    if most == 0 {
        let what = format!("the scores of {count} queries do not fit into {limit} bytes; score some at a time");
        return Err(fault(queries.path(), what));
    }
    let expected = format!("at most {most}, so that lists for {count} queries fit into {limit} bytes");
    Err(Error::invalid(Argument::Top, expected, top))
}

impl Queries {
    /// Some of the queries, by their places in the store.
    fn read(
        queries: &Store,
        selection: &Selection,
        range: Range<usize>,
        measure: Measure,
        curvature: &mut Curvature<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let (columns, count) = (queries.columns(), range.len());
        let mut exact = Vec::with_capacity(count * selection.width);
        let (mut shards, mut before) = (Vec::new(), 0);
        let mut starts = Vec::new();
        for (index, shard) in queries.shards().iter().enumerate() {
            if before < range.end && before + shard.rows > range.start {
                shards.push(index);
            }
            starts.push(before);
            before += shard.rows;
        }
        queries.for_each_block(&shards, blocks::scored_block(columns, 1), |block| {
            check_numbers(queries, &block, selection.layers.iter().map(|layer| &layer.query))?;
            let within = usize::try_from(block.first - block.shard.first).unwrap_or(usize::MAX);
            for (place, row) in (starts[block.index] + within..).zip(block.numbers.chunks_exact(columns)) {
                if range.contains(&place) {
                    let numbers = selection.layers.iter().flat_map(|layer| &row[layer.query.clone()]);
                    exact.extend(numbers.map(|&number| f64::from(number)));
                }
            }
            Ok(())
        })?;
        match measure {
            Measure::Similarity => {}
            Measure::Cosine => exact.par_chunks_mut(selection.width).for_each(|query| {
                let factor = inverse_norm(query.iter().copied());
                query.iter_mut().for_each(|number| *number *= factor);
            }),
            Measure::Influence => curvature.precondition(&mut exact, progress)?,
        }
        let rounded = exact.iter().copied().map(f32::narrow).collect();
        Ok(Self { exact, rounded, count })
    }
}

/// 1/‖φ‖, or 0 for zeros.
fn inverse_norm(numbers: impl Iterator<Item = f64>) -> f64 {
    let squared: f64 = numbers.map(|number| number * number).sum();
    if squared > 0.0 { squared.sqrt().recip() } else { 0.0 }
}

/// Multiplies column i by factor i, in rows of as many numbers as there are factors.
fn scale<T: Real + std::ops::MulAssign>(rows: &mut [T], factors: &[T]) {
    for row in rows.chunks_exact_mut(factors.len().max(1)) {
        row.iter_mut().zip(factors).for_each(|(number, &factor)| *number *= factor);
    }
}

/// A precision in which candidates are found.
trait Precision: Real + std::ops::MulAssign + Default + Into<f64> {
    const ONE: Self;
    /// Numbers of a store in it.
    fn numbers(stored: &[f32]) -> Cow<'_, [Self]>;
    /// Those of queries.
    fn of(queries: &Queries) -> &[Self];
    fn narrow(number: f64) -> Self;
}

impl Precision for f32 {
    const ONE: Self = 1.0;

    fn numbers(stored: &[f32]) -> Cow<'_, [Self]> {
        stored.into()
    }

    fn of(queries: &Queries) -> &[Self] {
        &queries.rounded
    }

    #[allow(clippy::cast_possible_truncation, reason = "rounds")]
    fn narrow(number: f64) -> Self {
        number as f32
    }
}

impl Precision for f64 {
    const ONE: Self = 1.0;

    fn numbers(stored: &[f32]) -> Cow<'_, [Self]> {
        stored.iter().map(|&number| number.into()).collect()
    }

    fn of(queries: &Queries) -> &[Self] {
        &queries.exact
    }

    fn narrow(number: f64) -> Self {
        number
    }
}

/// Somewhat more than `top` examples of largest and of smallest score for every query, in one pass over the store.
fn candidates<T: Precision>(
    train: &Store,
    selection: &Selection,
    queries: &Queries,
    top: usize,
    measure: Measure,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<[Best; 2]>, Error> {
    let (columns, runs) = (train.columns(), selection.runs());
    let rows = blocks::scored_block(columns, queries.count);
    let mut best: Vec<[Best; 2]> = (0..queries.count).map(|_| [Best::new(top), Best::new(top)]).collect();
    let (mut scores, mut done) = (Vec::new(), 0);
    let left = View::by_rows(T::of(queries), queries.count, selection.width);
    train.for_each_block(&train.all_shards(), rows, |block| {
        let rows = block.numbers.len() / columns;
        scores.resize(rows * queries.count, T::default());
        let chunks = scores.par_chunks_mut(blocks::SCORED_ROWS * queries.count);
        chunks.zip(block.numbers.par_chunks(blocks::SCORED_ROWS * columns)).for_each(|(scores, numbers)| {
            let rows = numbers.len() / columns;
            let wide = T::numbers(numbers);
            let right = View::by_rows(&wide, rows, columns);
            for (index, (there, places)) in runs.iter().enumerate() {
                let (left, right) = (left.columns(places.clone()), right.columns(there.clone()).transpose());
                let out = ViewMut::by_rows(scores, queries.count, rows);
                if index == 0 { product(out, left, right, T::ONE) } else { add_product(out, left, right, T::ONE) }
            }
            if measure == Measure::Cosine {
                let norm = |row| T::narrow(inverse_norm(selection.gather(row).map(f64::from)));
                scale(scores, &numbers.chunks_exact(columns).map(norm).collect::<Vec<_>>());
            }
        });
        let chunks: Vec<&[T]> = scores.chunks(blocks::SCORED_ROWS * queries.count).collect();
        let wrong = best.par_iter_mut().enumerate().filter_map(|(query, best)| {
            let mut first = 0;
            for scores in &chunks {
                let rows = scores.len() / queries.count;
                let scores = &scores[query * rows..][..rows];
                if let Some(row) = top::take(best, scores, block.first + first as u64) {
                    return Some(first + row);
                }
                first += rows;
            }
            None
        });
        if let Some(row) = wrong.min() {
            check_numbers(train, &block, selection.layers.iter().map(|layer| &layer.train))?;
            let example = block.first + row as u64;
            let what = format!("example {example}: its scores leave the range of single precision; scale the losses");
            return Err(fault(&block.shard.path, what));
        }
        done += rows as u64;
        progress(done);
        Ok(())
    })?;
    Ok(best)
}

/// Checks that some columns of a block are finite.
fn check_numbers<'a>(
    store: &Store,
    block: &Block<'_>,
    columns: impl Iterator<Item = &'a Range<usize>> + Clone,
) -> Result<(), Error> {
    for (example, row) in (block.first..).zip(block.numbers.chunks_exact(store.columns())) {
        for range in columns.clone() {
            // No early end: this way it is vectorised.
            if row[range.clone()].iter().fold(true, |all, number| all & number.is_finite()) {
                continue;
            }
            let place = range.start + row[range.clone()].iter().take_while(|number| number.is_finite()).count();
            let (layer, value) = (store.layer_of(place), row[place]);
            let what = format!(
                "example {example}, layer \"{layer}\": the gradient is {value}; remove the shard and its .json file, \
                 and record it with a finite loss"
            );
            return Err(fault(&block.shard.path, what));
        }
    }
    Ok(())
}
