//! Sketches: from a [`Spec`] to features.

mod cosine;
mod product;
mod shape;

use rayon::prelude::*;

use crate::error::{Argument, Error};
use crate::lanes::LANES;
use crate::rows::{self, Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::{Method, Spec};
use crate::spherical;

use cosine::Cosine;
pub(crate) use product::Kernels;
use product::Product;

/// What every consumer of features calls.
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
    /// before anything is written; [`Error::Overflow`] if a feature does not fit into `T`.
    fn transform_into(&self, inputs: &[Input<'_, T>], out: RowsMut<'_, T>) -> Result<(), Error>;

    /// The adjoint: from the gradient with respect to the features to the gradient with respect to each input.
    ///
    /// # Formula
    /// gradient = (∂Φ(x)/∂x)ᵀ cotangent, row by row.
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
        let length = rows.checked_mul(self.output_dim()).ok_or_else(|| {
            Error::invalid(Argument::Rows, format!("rows x {} that fit into memory", self.output_dim()), rows)
        })?;
        let mut features = vec![T::ZERO; length];
        self.transform_into(inputs, RowsMut::new(&mut features, rows, self.output_dim())?)?;
        Ok(features)
    }
}

/// The memory a sketch may take unless told otherwise: 4 GiB.
pub const DEFAULT_MEMORY_LIMIT: u64 = 4 << 30;

/// The most rows in a block.
const MAX_BLOCK_ROWS: usize = 4096;

/// Blocks do not get smaller than this for the sake of more threads.
const FEWEST_ROWS_FOR_THREADS: usize = 128;

/// Features up to this many bytes are left in the caches, for whoever reads them next; more would not stay there.
const CACHED_BYTES: usize = 16 << 20;

/// Computes all blocks, on the current rayon pool if there are several, and gives the first of their bad rows.
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

/// A drawn sketch: inner products of its features approximate the kernel of its [`Spec`].
///
/// # Formula
/// A flat sketch is Φ(x) = (W₁x̃ ∘ … ∘ W_p x̃) / √m with x̃ = (√γ x, √ν). A hierarchical one multiplies two halves of the
/// factors, each projected again, and so does a chain with one factor at a time; every product is divided by √m.
/// TensorSketch is the inverse Fourier transform of such products. CRAFT is (1/√D) P H S z of the E features z of any of
/// them. All are unbiased: E⟨Φ(x), Φ(y)⟩ = (γ⟨x, y⟩ + ν)^p.
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
    map: Map<T>,
    block_rows: usize,
    memory_limit: u64,
}

/// The two kinds of features.
#[derive(Debug)]
enum Map<T> {
    Product(Product<T>),
    Cosine(Cosine<T>),
}

impl Spec {
    /// Draws the random numbers, within [`DEFAULT_MEMORY_LIMIT`].
    ///
    /// # Errors
    /// As [`Spec::validate`], and [`Error::TooLarge`].
    pub fn sketch<T: Scalar>(&self) -> Result<Sketch<T>, Error> {
        self.sketch_within(DEFAULT_MEMORY_LIMIT)
    }

    /// Draws the random numbers if the sketch needs no more than `memory_limit` bytes.
    ///
    /// # Errors
    /// As [`Spec::validate`], and [`Error::TooLarge`].
    pub fn sketch_within<T: Scalar>(&self, memory_limit: u64) -> Result<Sketch<T>, Error> {
        let needed = self.memory_bytes::<T>()?;
        if needed > memory_limit {
            return Err(Error::TooLarge { needed, limit: memory_limit });
        }
        let mut spec = self.clone();
        let (map, tiles) = match self.method {
            Method::Product(method) => {
                let product = Product::sample(self, method);
                let tiles = product.tiles_per_block();
                (Map::Product(product), tiles)
            }
            Method::Spherical => {
                let fit = match &self.spherical {
                    Some(fit) => fit.clone(),
                    None => spherical::fit(cosine::frequency_dim(self), self.kernel.degree, self.spherical_s())?,
                };
                let map = Map::Cosine(Cosine::sample(self, &fit));
                spec.spherical = Some(fit);
                (map, 1)
            }
        };
        Ok(Sketch { spec, map, block_rows: tiles * LANES, memory_limit })
    }

    /// Bytes the drawn sketch and one thread's work space take; `u64::MAX` if they cannot be counted.
    ///
    /// # Errors
    /// As [`Spec::validate`].
    pub fn memory_bytes<T: Scalar>(&self) -> Result<u64, Error> {
        self.validate()?;
        let bytes = match self.method {
            Method::Product(method) => product::bytes::<T>(self, method),
            Method::Spherical => cosine::bytes::<T>(self),
        };
        Ok(bytes.unwrap_or(u64::MAX))
    }
}

impl<T: Scalar> Sketch<T> {
    /// What was drawn. For spherical random features it holds the fit.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Sets how many rows are computed together, if there is enough for all threads: rounded up to whole tiles of 16, at most 4096.
    /// Never changes a feature.
    #[must_use]
    pub fn with_block_rows(mut self, rows: usize) -> Self {
        // A block never needs to be larger than this for speed, and its work space grows with it.
        self.block_rows = rows.clamp(1, MAX_BLOCK_ROWS).next_multiple_of(LANES);
        self
    }

    /// Rows in a block, so that all threads have as much to do, and none makes room for rows that there are not.
    fn rows_together(&self, rows: usize) -> usize {
        if rows.min(self.block_rows) <= FEWEST_ROWS_FOR_THREADS {
            return rows.clamp(1, self.block_rows).next_multiple_of(LANES);
        }
        let blocks = rows.div_ceil(self.block_rows).next_multiple_of(rayon::current_num_threads());
        rows.div_ceil(blocks).next_multiple_of(LANES).max(FEWEST_ROWS_FOR_THREADS)
    }

    fn check(&self, inputs: &[Input<'_, T>], features: (Argument, usize, usize)) -> Result<(), Error> {
        let rows = rows::check_shapes(self.spec.inputs.as_slice(), inputs)?;
        let (argument, got_rows, got_columns) = features;
        if (got_rows, got_columns) != (rows, self.output_dim()) {
            let expected = format!("{rows} rows x {} columns", self.output_dim());
            return Err(Error::invalid(argument, expected, format!("{got_rows} x {got_columns}")));
        }
        rows::check_finite(inputs)?;
        if let Map::Cosine(_) = self.map {
            inputs.iter().try_for_each(Cosine::check)?;
        }
        Ok(())
    }

    fn overflow_at(row: Option<usize>) -> Result<(), Error> {
        row.map_or(Ok(()), |row| Err(Error::Overflow { row, dtype: T::NAME }))
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
        let blocks = out.blocks(rows);
        let first_bad = match &self.map {
            Map::Product(product) => first_bad(
                blocks,
                || product.forward_scratch(rows / LANES),
                |scratch, block, out| T::forward(product, inputs, block * rows, out, streamed, scratch),
            ),
            Map::Cosine(cosine) => first_bad(
                blocks,
                || cosine.scratch(),
                |scratch, block, out| T::cosine_forward(cosine, &inputs[0], block * rows, out, streamed, scratch),
            ),
        };
        Self::overflow_at(first_bad)
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
        if let Method::Product(method) = self.spec.method {
            let needed = product::backward_bytes::<T>(&self.spec, method).unwrap_or(u64::MAX);
            if needed > self.memory_limit {
                return Err(Error::TooLarge { needed, limit: self.memory_limit });
            }
        }
        let mut tiles: Vec<Vec<RowsMut<'_, T>>> = (0..cotangent.rows().div_ceil(LANES)).map(|_| Vec::new()).collect();
        for gradient in gradients {
            for (tile, part) in tiles.iter_mut().zip(gradient.reborrow().blocks(LANES)) {
                tile.push(part);
            }
        }
        let first_bad = match &self.map {
            Map::Product(product) => first_bad(
                tiles,
                || product.backward_scratch(),
                |scratch, tile, mut gradients| {
                    T::backward(product, inputs, tile * LANES, &cotangent, &mut gradients, scratch)
                },
            ),
            Map::Cosine(cosine) => first_bad(
                tiles,
                || cosine.scratch(),
                |scratch, tile, mut gradients| {
                    T::cosine_backward(cosine, &inputs[0], tile * LANES, &cotangent, &mut gradients, scratch)
                },
            ),
        };
        Self::overflow_at(first_bad)
    }
}
