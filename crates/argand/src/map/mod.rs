//! Feature maps on this processor: the trait that every consumer calls, and one file per kind of map behind it.

#![allow(unreachable_pub, reason = "the public `Scalar` names some of these types, which nobody else can")]

mod adjoint;
mod cosine;
pub(crate) mod elementary;
mod fourier;
mod maclaurin;
pub(crate) mod monomials;
mod nystrom;
mod pooled;
mod product;
mod room;
mod vanishing;

use std::fmt;

use pulp::Arch;
use rayon::prelude::*;

use crate::draw::{self, Drawn};
use crate::error::{Argument, Error};
use crate::lanes::LANES;
use crate::memory::untouched;
use crate::rows::{self, Groups, Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::{Method, Spec};

pub(crate) use cosine::Cosine;
pub(crate) use fourier::Fourier;
pub(crate) use maclaurin::Maclaurin;
pub(crate) use monomials::Monomials;
pub(crate) use nystrom::Nystrom;
use pooled::Pooling;
pub(crate) use product::Product;
use room::Room;
pub use vanishing::check_vanishing;

/// The interface of all feature maps.
///
/// `T` is the type of inputs and features. A map reads one table, or one per factor with the same number of rows.
pub trait FeatureMap<T: Scalar>: Send + Sync {
    /// Columns of each input table.
    fn input_dims(&self) -> &[usize];

    /// The number D of real output columns.
    fn output_dim(&self) -> usize;

    /// Computes the features of every row.
    ///
    /// # Errors
    /// [`Error::Invalid`] for shapes that do not fit and [`Error::NotFinite`] for inputs with NaN or infinity, both
    /// before anything is written; [`Error::Overflow`] if a feature does not fit into `T`, and
    /// [`Error::Underflow`] if all features of a row are too small for it.
    fn transform_into(&self, inputs: &[Input<'_, T>], out: RowsMut<'_, T>) -> Result<(), Error>;

    /// The adjoint: maps the gradient with respect to the features to that with respect to each input.
    ///
    /// # Formula
    /// gradient = (∂Φ(x)/∂x)ᵀ cotangent, row by row. The [front page](crate#gradients) has an example.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_into`].
    fn vjp_into(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
    ) -> Result<(), Error>;

    /// As [`FeatureMap::transform_into`], into a new row-major buffer.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_into`].
    fn transform(&self, inputs: &[Input<'_, T>]) -> Result<Vec<T>, Error> {
        let rows = inputs.first().map_or(0, Input::rows);
        let mut features = new_rows(rows, self.output_dim())?;
        self.transform_into(inputs, RowsMut::new(&mut features, rows, self.output_dim())?)?;
        Ok(features)
    }

    /// Pooled features: the sum of the features of the rows of each group, one row of `out` per group. An empty group gives zeros.
    ///
    /// # Formula
    /// Ψ(X) = Σ_{x ∈ X} Φ(x). Inner products of sums approximate sums of kernels: E⟨Ψ(X), Ψ(Y)⟩ = Σ_{x ∈ X} Σ_{y ∈ Y} k(x, y). At
    /// degree 2 this is compact bilinear pooling. The [front page](crate#groups-of-rows) has an example.
    ///
    /// # Reference
    /// Gao, Beijbom, Zhang and Darrell, *Compact Bilinear Pooling* (2016).
    ///
    /// # Cost
    /// That of the features and one addition for each. Features are computed in blocks of rows, in parallel, and added while in a
    /// cache: memory is one block (up to 16 MiB, or 16 rows) and a few rows of sums per thread, whatever the number of rows. Sums are
    /// taken in `f64`, in order within 128 rows of a group and then pairwise, and rounded once. They do not depend on the number of
    /// threads, on the block size or on other groups, to the last bit.
    ///
    /// # Errors
    /// [`Error::Invalid`] for groups and shapes that do not fit and [`Error::NotFinite`] for inputs with NaN or infinity, both
    /// before anything is written; [`Error::Overflow`] if a feature does not fit into `T`, with its row, or if a sum does not, with the
    /// first row of its group.
    fn transform_pooled_into(
        &self,
        inputs: &[Input<'_, T>],
        groups: &Groups,
        out: RowsMut<'_, T>,
    ) -> Result<(), Error> {
        pooled::check_shapes(self, inputs, groups, (Argument::Out, out.rows(), out.columns()))?;
        pooled::transform(self, &rows::checked(inputs)?, groups, out)
    }

    /// As [`FeatureMap::transform_pooled_into`], into a new row-major buffer.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_pooled_into`].
    fn transform_pooled(&self, inputs: &[Input<'_, T>], groups: &Groups) -> Result<Vec<T>, Error> {
        let mut sums = new_rows(groups.count(), self.output_dim())?;
        self.transform_pooled_into(inputs, groups, RowsMut::new(&mut sums, groups.count(), self.output_dim())?)?;
        Ok(sums)
    }

    /// The adjoint of [`FeatureMap::transform_pooled_into`]: from the gradient with respect to the sums, one row per group, to that with
    /// respect to each input.
    ///
    /// # Formula
    /// gradient = (∂Φ(x)/∂x)ᵀ cotangent, for every row x with the cotangent of its group.
    ///
    /// # Cost
    /// That of [`FeatureMap::vjp_into`]. A row of the cotangent is read again for every row of its group, and never repeated in memory.
    ///
    /// # Errors
    /// As [`FeatureMap::vjp_into`], and [`Error::Invalid`] for groups that do not fit. Rows of the cotangent are counted in groups.
    fn vjp_pooled_into(
        &self,
        inputs: &[Input<'_, T>],
        groups: &Groups,
        cotangent: Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
    ) -> Result<(), Error> {
        pooled::check_shapes(self, inputs, groups, (Argument::Cotangent, cotangent.rows(), cotangent.columns()))?;
        Input::from(cotangent).check_finite(Argument::Cotangent)?;
        let of_groups: Vec<&[T]> = (0..groups.count()).map(|group| cotangent.row(group)).collect();
        let repeated = Rows::repeated(&of_groups, groups, self.output_dim());
        self.vjp_into(inputs, repeated.known_finite(), gradients)
    }
}

/// Memory for rows that are all going to be written.
fn new_rows<T: Scalar>(rows: usize, columns: usize) -> Result<Vec<T>, Error> {
    let length = rows
        .checked_mul(columns)
        .ok_or_else(|| Error::invalid(Argument::Rows, format!("rows x {columns} that fit into memory"), rows))?;
    Ok(untouched(length))
}

/// Checks the shape of a table of features, given with its name.
fn check_features(
    (argument, got_rows, got_columns): (Argument, usize, usize),
    rows: usize,
    columns: usize,
) -> Result<(), Error> {
    if (got_rows, got_columns) == (rows, columns) {
        return Ok(());
    }
    Err(Error::invalid(argument, format!("{rows} rows x {columns} columns"), format!("{got_rows} x {got_columns}")))
}

/// The default memory limit of a sketch: 4 GiB.
pub const DEFAULT_MEMORY_LIMIT: u64 = 4 << 30;

/// The most rows in a block.
const MAX_BLOCK_ROWS: usize = 4096;

/// The fewest rows in a block, however many threads there are.
const FEWEST_ROWS_FOR_THREADS: usize = 128;

/// Features up to this many bytes stay in the caches for the next reader; more would not fit.
const CACHED_BYTES: usize = 16 << 20;

/// A kind of feature map on this processor, as [`Sketch`] runs it. Its kernels are chosen when it is made.
pub trait Map<T: Scalar>: fmt::Debug + Send + Sync {
    /// Tiles of rows worth computing together.
    fn tiles_per_block(&self) -> usize;

    /// Checks requirements on inputs beyond shape and finite numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the input.
    fn check(&self, inputs: &[Input<'_, T>]) -> Result<(), Error>;

    /// Writes all features, in blocks of this many rows and past the caches if `streamed`; returns the first row that overflows.
    fn transform(
        &self,
        inputs: &[Input<'_, T>],
        out: RowsMut<'_, T>,
        block_rows: usize,
        streamed: bool,
    ) -> Option<usize>;

    /// Writes the sums of the features of groups, computed in blocks of this many rows.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    fn pool(
        &self,
        inputs: &[Input<'_, T>],
        groups: &Groups,
        out: RowsMut<'_, T>,
        block_rows: usize,
    ) -> Result<(), Error>;

    /// Bytes of one thread's work space for [`Map::adjoint`]; `None` on overflow.
    fn adjoint_bytes(&self) -> Option<u64>;

    /// Writes the gradients of all inputs, given tile by tile; returns the first row that overflows.
    fn adjoint(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: &Rows<'_, T>,
        tiles: Vec<Vec<RowsMut<'_, T>>>,
    ) -> Option<usize>;
}

/// What a kind of feature map computes: blocks of rows forwards, tiles of rows backwards, each in one thread's work space. [`Map`] follows.
trait Tiled<T: Scalar>: fmt::Debug + Send + Sync {
    type Scratch;
    type AdjointScratch;

    /// As [`Map::tiles_per_block`].
    fn tiles_per_block(&self) -> usize {
        1
    }

    /// As [`Map::check`].
    fn check(&self, _inputs: &[Input<'_, T>]) -> Result<(), Error> {
        Ok(())
    }

    /// Work space for blocks of at most this many rows.
    fn scratch(&self, rows: usize) -> Self::Scratch;

    /// Writes the features of the rows from `first` on, as many as `out` has; returns the first row that overflows.
    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Self::Scratch,
    ) -> Option<usize>;

    /// Bytes of [`Tiled::adjoint_scratch`]; `None` on overflow.
    fn adjoint_bytes(&self) -> Option<u64>;

    /// Work space for [`Tiled::adjoint_tile`].
    fn adjoint_scratch(&self) -> Self::AdjointScratch;

    /// Writes the gradients of the tile of rows from `first` on; returns the first row that overflows.
    fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut Self::AdjointScratch,
    ) -> Option<usize>;
}

impl<T: Scalar, M: Tiled<T>> Map<T> for M {
    fn tiles_per_block(&self) -> usize {
        Tiled::tiles_per_block(self)
    }

    fn check(&self, inputs: &[Input<'_, T>]) -> Result<(), Error> {
        Tiled::check(self, inputs)
    }

    fn transform(
        &self,
        inputs: &[Input<'_, T>],
        out: RowsMut<'_, T>,
        block_rows: usize,
        streamed: bool,
    ) -> Option<usize> {
        let most = block_rows.min(out.rows());
        first_bad(
            out.blocks(block_rows),
            || self.scratch(most),
            |scratch, number, out| self.block(inputs, number * block_rows, out, streamed, scratch),
        )
    }

    fn pool(
        &self,
        inputs: &[Input<'_, T>],
        groups: &Groups,
        out: RowsMut<'_, T>,
        block_rows: usize,
    ) -> Result<(), Error> {
        let features = |scratch: &mut M::Scratch, first: usize, out: RowsMut<'_, T>| {
            overflow_at::<T>(self.block(inputs, first, out, false, scratch))
        };
        Pooling { block_rows, scratch: &|rows| self.scratch(rows), features: &features }.write(groups, out)
    }

    fn adjoint_bytes(&self) -> Option<u64> {
        Tiled::adjoint_bytes(self)
    }

    fn adjoint(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: &Rows<'_, T>,
        tiles: Vec<Vec<RowsMut<'_, T>>>,
    ) -> Option<usize> {
        first_bad(
            tiles,
            || self.adjoint_scratch(),
            |scratch, tile, mut gradients| self.adjoint_tile(inputs, tile * LANES, cotangent, &mut gradients, scratch),
        )
    }
}

/// Computes all blocks, on the current rayon pool if there are several, and returns their first bad row.
fn first_bad<B: Send, S>(
    mut blocks: Vec<B>,
    scratch: impl Fn() -> S + Send + Sync,
    compute: impl Fn(&mut S, usize, B) -> Option<usize> + Send + Sync,
) -> Option<usize> {
    match blocks.pop() {
        // Waking a pool takes longer than a small block.
        Some(block) if blocks.is_empty() => compute(&mut scratch(), 0, block),
        last => {
            blocks.extend(last);
            let bad = blocks.into_par_iter().enumerate();
            bad.map_init(scratch, |scratch, (number, block)| compute(scratch, number, block)).flatten().min()
        }
    }
}

/// The error for the first row that overflows, if there is one.
fn overflow_at<T: Scalar>(row: Option<usize>) -> Result<(), Error> {
    row.map_or(Ok(()), |row| Err(Error::Overflow { row, dtype: T::NAME }))
}

/// Only reached after an overflow.
#[cold]
fn first_not_finite<T: Scalar>(rows: &mut RowsMut<'_, T>) -> Option<usize> {
    (0..rows.rows()).find(|&row| rows.row_mut(row).iter().any(|value| !value.is_finite()))
}

/// A drawn sketch: inner products of its features approximate the kernel of its [`Spec`].
///
/// # Formula
/// A flat sketch is Φ(x) = (W₁x̃ ∘ … ∘ W_p x̃) / √m with x̃ = (√γ x, √ν). A hierarchical one multiplies two halves of the
/// factors, each projected again, and so does a chain with one factor at a time; every product is divided by √m.
/// TensorSketch is the inverse Fourier transform of such products. CRAFT is (1/√D) P H S z of the E features z of any of
/// them. All are unbiased: E⟨Φ(x), Φ(y)⟩ = (γ⟨x, y⟩ + ν)^p. [`Method`] lists the other kinds: sums of such sketches, cosines and sines,
/// Nyström's features and monomials.
///
/// # Reference
/// Eq. 4 and Alg. 1 of the paper; Ahle et al. (2020), Alg. 1; Pham and Pagh (2013); Hamid et al. (2014).
///
/// # Cost
/// Per row p times the cost of one projection. Rows are computed in parallel on the current rayon pool, in blocks;
/// memory beyond the sketch itself is one block per thread. Features do not depend on the number of threads or on the
/// block size, to the last bit; nor on the instruction set, except for Gaussians and SRF in `f32` and for TensorSketch,
/// which round differently on each.
///
/// ```
/// use argand::{FeatureMap, Rows, Spec};
/// let x = [1.0, 2.0, 3.0, 0.5, 0.5, 0.5];
/// let sketch = Spec::polynomial(3).with_degree(2).with_features(4096).sketch::<f64>()?;
/// let features = sketch.transform(&[Rows::new(&x, 2, 3)?.into()])?;
/// let estimate: f64 = features[..4096].iter().zip(&features[4096..]).map(|(a, b)| a * b).sum();
/// assert!((estimate - 9.0).abs() < 0.5); // (1·½ + 2·½ + 3·½)² = 9
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug)]
pub struct Sketch<T> {
    spec: Spec,
    map: Box<dyn Map<T>>,
    block_rows: usize,
    memory_limit: u64,
}

impl Drawn {
    /// The sketch on this processor, within [`DEFAULT_MEMORY_LIMIT`].
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    ///
    /// ```
    /// use argand::{FeatureMap, Rows, Spec};
    /// let drawn = Spec::polynomial(3).with_features(16).draw()?;
    /// let (single, double) = (drawn.sketch::<f32>()?, drawn.sketch::<f64>()?); // the same numbers, rounded once
    /// let features = double.transform(&[Rows::new(&[1.0, 2.0, 3.0], 1, 3)?.into()])?;
    /// let rounded = single.transform(&[Rows::new(&[1.0, 2.0, 3.0], 1, 3)?.into()])?;
    /// assert!(features.iter().zip(rounded).all(|(a, b)| (a - f64::from(b)).abs() < 1e-5));
    /// # Ok::<(), argand::Error>(())
    /// ```
    pub fn sketch<T: Scalar>(&self) -> Result<Sketch<T>, Error> {
        self.sketch_within(DEFAULT_MEMORY_LIMIT)
    }

    /// As [`Drawn::sketch`], if it needs no more than `memory_limit` bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn sketch_within<T: Scalar>(&self, memory_limit: u64) -> Result<Sketch<T>, Error> {
        self.spec.check_memory::<T>(memory_limit)?;
        let map = T::map(self, Arch::new());
        let block_rows = map.tiles_per_block() * LANES;
        Ok(Sketch { spec: self.spec.clone(), map, block_rows, memory_limit })
    }
}

impl Spec {
    /// Draws the random numbers and makes them ready for this processor, within [`DEFAULT_MEMORY_LIMIT`].
    ///
    /// # Errors
    /// As [`Spec::validate`], and [`Error::TooLarge`].
    pub fn sketch<T: Scalar>(&self) -> Result<Sketch<T>, Error> {
        self.sketch_within(DEFAULT_MEMORY_LIMIT)
    }

    /// As [`Spec::sketch`], if it needs no more than `memory_limit` bytes.
    ///
    /// # Errors
    /// As [`Spec::validate`], and [`Error::TooLarge`].
    pub fn sketch_within<T: Scalar>(&self, memory_limit: u64) -> Result<Sketch<T>, Error> {
        self.check_memory::<T>(memory_limit)?;
        self.draw_within(memory_limit)?.sketch_within(memory_limit)
    }

    /// Bytes the sketch and one thread's work space take on this processor; `u64::MAX` on overflow.
    ///
    /// # Errors
    /// As [`Spec::validate`].
    pub fn memory_bytes<T: Scalar>(&self) -> Result<u64, Error> {
        let drawn = self.drawn_bytes()?;
        if drawn > u64::from(u32::MAX) << 4 {
            // So many factors or numbers that even listing them would take too much memory.
            return Ok(drawn);
        }
        let bytes = match self.method {
            Method::Product(method) => Room::of::<T>(self, &draw::Product::of(self, method)).bytes::<T>(),
            Method::Spherical => cosine::bytes::<T>(self),
            Method::Maclaurin(_) => maclaurin::bytes::<T>(self)?,
            Method::Fourier(frequencies) => fourier::bytes::<T>(self, frequencies),
            Method::Nystrom => nystrom::bytes::<T>(self),
            Method::Exact => monomials::bytes::<T>(self),
        };
        Ok(bytes.and_then(|bytes| bytes.checked_add(drawn)).unwrap_or(u64::MAX))
    }

    fn check_memory<T: Scalar>(&self, limit: u64) -> Result<(), Error> {
        let needed = self.memory_bytes::<T>()?;
        if needed > limit { Err(Error::TooLarge { needed, limit }) } else { Ok(()) }
    }
}

impl<T: Scalar> Sketch<T> {
    /// The spec, with what was fitted.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Sets the number of rows per block, if there are enough rows for all threads: rounded up to whole tiles of 16, at
    /// most 4096. Never changes a feature.
    #[must_use]
    pub fn with_block_rows(mut self, rows: usize) -> Self {
        // Larger blocks are no faster, and need more work space.
        self.block_rows = rows.clamp(1, MAX_BLOCK_ROWS).next_multiple_of(LANES);
        self
    }

    /// Rows in a block: threads share the work equally, and none allocates for absent rows.
    fn rows_together(&self, rows: usize) -> usize {
        if rows.min(self.block_rows) <= FEWEST_ROWS_FOR_THREADS {
            return rows.clamp(1, self.block_rows).next_multiple_of(LANES);
        }
        let blocks = rows.div_ceil(self.block_rows).next_multiple_of(rayon::current_num_threads());
        rows.div_ceil(blocks).next_multiple_of(LANES).max(FEWEST_ROWS_FOR_THREADS)
    }

    fn check(&self, inputs: &[Input<'_, T>], features: (Argument, usize, usize)) -> Result<(), Error> {
        let rows = rows::check_shapes(self.spec.inputs.as_slice(), inputs)?;
        check_features(features, rows, self.output_dim())?;
        rows::check_finite(inputs)?;
        self.map.check(inputs)
    }
}

impl<T: Scalar> FeatureMap<T> for Sketch<T> {
    fn input_dims(&self) -> &[usize] {
        self.spec.inputs.as_slice()
    }

    fn output_dim(&self) -> usize {
        self.spec.features
    }

    fn transform_into(&self, inputs: &[Input<'_, T>], out: RowsMut<'_, T>) -> Result<(), Error> {
        self.check(inputs, (Argument::Out, out.rows(), out.columns()))?;
        let rows = self.rows_together(out.rows());
        let streamed = out.rows() * out.columns() * size_of::<T>() > CACHED_BYTES;
        overflow_at::<T>(self.map.transform(inputs, out, rows, streamed))?;
        check_vanishing(&self.spec, inputs)
    }

    fn transform_pooled_into(
        &self,
        inputs: &[Input<'_, T>],
        groups: &Groups,
        out: RowsMut<'_, T>,
    ) -> Result<(), Error> {
        pooled::check_shapes(self, inputs, groups, (Argument::Out, out.rows(), out.columns()))?;
        rows::check_finite(inputs)?;
        self.map.check(inputs)?;
        let block_rows = pooled::rows_within::<T>(CACHED_BYTES, self.output_dim(), self.block_rows);
        self.map.pool(inputs, groups, out, block_rows)
    }

    fn vjp_into(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
    ) -> Result<(), Error> {
        self.check(inputs, (Argument::Cotangent, cotangent.rows(), cotangent.columns()))?;
        Input::from(cotangent).check_finite(Argument::Cotangent)?;
        if gradients.len() != inputs.len() {
            return Err(Error::invalid(
                Argument::Gradients,
                format!("{} tables, one per input", inputs.len()),
                gradients.len(),
            ));
        }
        for (gradient, input) in gradients.iter().zip(inputs) {
            if (gradient.rows(), gradient.columns()) != (input.rows(), input.columns()) {
                let expected = format!("{} x {}, as the input", input.rows(), input.columns());
                return Err(Error::invalid(
                    Argument::Gradients,
                    expected,
                    format!("{} x {}", gradient.rows(), gradient.columns()),
                ));
            }
        }
        let needed = self.map.adjoint_bytes().unwrap_or(u64::MAX);
        if needed > self.memory_limit {
            return Err(Error::TooLarge { needed, limit: self.memory_limit });
        }
        let mut tiles: Vec<Vec<RowsMut<'_, T>>> = (0..cotangent.rows().div_ceil(LANES)).map(|_| Vec::new()).collect();
        for gradient in gradients {
            for (tile, part) in tiles.iter_mut().zip(gradient.reborrow().blocks(LANES)) {
                tile.push(part);
            }
        }
        overflow_at::<T>(self.map.adjoint(inputs, &cotangent, tiles))
    }
}
