//! Projections: linear maps Wᵢ with m rows w and E[w wᴴ] = I, never divided by √m (the sketch does that, once).
//!
//! A projection is one file with a type that implements [`Kind`], and one line in [`bases!`] below that registers it.
//! The trait's defaults suit matrices with independent entries. `CONTRIBUTING.md` walks through it.

mod count_sketch;
mod dense;
mod fused;
mod gaussian;
mod rademacher;
mod signed_sums;
mod srht;
mod srht_row;

use std::fmt;

use pulp::Arch;

use crate::draw::{Draw, Projection, Values};
use crate::lanes::{LANES, Lane, LaneBuffer};
use crate::rows::SparseRows;
use crate::scalar::Scalar;
use crate::theory::variance::{PairStatistics, ProductFormula};
use crate::transform::fft::{Fourier, FourierRows};

pub(crate) use dense::Dense;
pub(crate) use fused::{Fused, FusedBuilder, FusedScratch, Parts};
pub(crate) use srht::Transformed;

/// A kind of projection: how it is drawn, what it is by definition, its moments, and how this processor applies it.
pub(crate) trait Kind {
    /// Its name in methods.
    const NAME: &'static str;

    /// Whether every entry of W is multiplied: m·d operations per row.
    const DENSE: bool = true;

    /// Whether the sketch multiplies Fourier transforms and transforms joins back.
    const MULTIPLIES_TRANSFORMS: bool = false;

    /// One row of W as (re, im) pairs, entry by entry from the definition.
    ///
    /// Independent entries are drawn here, from the stream (weights, factor, row); E|w|² = 1 for each.
    fn row(projection: &Projection, output: usize) -> Vec<[f64; 2]>;

    /// M = E|uv̄|² and M' = E(uv̄)² for the projections u, v of x̃, ỹ by one row of W; M' = M if W is real.
    fn moments(pair: &PairStatistics, complex: bool) -> [f64; 2];

    /// The number s with C = a − (M − a)/s, where C = E[u₁v̄₁ū₂v₂] for two different rows of W and a = ⟨x̃, ỹ⟩²; `None`
    /// if the rows of W are independent, where C = a.
    fn dependence(_dim: usize, _outputs: usize) -> Option<f64> {
        None
    }

    /// Variance and pseudo-variance of an estimate, if they do not follow from [`Kind::moments`].
    fn second_moments(formula: &ProductFormula, factors: &[PairStatistics]) -> [f64; 2]
    where
        Self: Sized,
    {
        formula.of_independent_factors::<Self>(factors)
    }

    /// The values drawn in advance.
    fn draw(_draw: &Draw) -> Values {
        Values::Independent
    }

    /// Bytes that [`Kind::draw`] takes; `None` on overflow.
    fn drawn_bytes(_draw: &Draw) -> Option<u64> {
        Some(0)
    }

    /// The resources that [`Kind::operator`] needs.
    fn needs<T: Scalar>(draw: &Draw) -> Needs {
        Dense::<T>::needs(draw)
    }

    /// W on this processor.
    /// `fourier` is the transform of length m, if the sketch multiplies transforms or a transform follows.
    fn operator<T: Scalar>(projection: &Projection, _fourier: Option<&Fourier<T>>, arch: Arch) -> Box<dyn Operator<T>> {
        Box::new(Dense::<T>::new(projection, arch))
    }
}

/// Declares [`Base`] and forwards its methods to the [`Kind`] of each variant.
macro_rules! bases {
    ($($(#[$doc:meta])* $variant:ident = $kind:ty,)*) => {
        /// The kind of one projection Wᵢ.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Base {
            $($(#[$doc])* $variant,)*
        }

        impl Base {
            /// Every base.
            pub fn all() -> impl Iterator<Item = Self> + Clone {
                [$(Self::$variant),*].into_iter()
            }

            /// Its name in methods, for example `product-srht`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => <$kind as Kind>::NAME,)* }
            }

            /// Whether every entry of W is multiplied, so that a row costs m·d operations per factor.
            #[must_use]
            pub fn is_dense(self) -> bool {
                match self { $(Self::$variant => <$kind as Kind>::DENSE,)* }
            }

            pub(crate) fn multiplies_transforms(self) -> bool {
                match self { $(Self::$variant => <$kind as Kind>::MULTIPLIES_TRANSFORMS,)* }
            }

            pub(crate) fn draw(self, draw: &Draw) -> Values {
                match self { $(Self::$variant => <$kind as Kind>::draw(draw),)* }
            }

            pub(crate) fn drawn_bytes(self, draw: &Draw) -> Option<u64> {
                match self { $(Self::$variant => <$kind as Kind>::drawn_bytes(draw),)* }
            }

            pub(crate) fn dependence(self, dim: usize, outputs: usize) -> Option<f64> {
                match self { $(Self::$variant => <$kind as Kind>::dependence(dim, outputs),)* }
            }

            #[inline(always)]
            pub(crate) fn second_moments(self, formula: &ProductFormula, factors: &[PairStatistics]) -> [f64; 2] {
                match self { $(Self::$variant => <$kind as Kind>::second_moments(formula, factors),)* }
            }

            /// Rows of W, including the Fourier transform after it, if any.
            pub(crate) fn row(self, projection: &Projection, output: usize) -> Vec<[f64; 2]> {
                let row = |output: usize| match self { $(Self::$variant => <$kind as Kind>::row(projection, output),)* };
                if projection.draw.transformed { transformed_row(projection.draw, row, output) } else { row(output) }
            }

            pub(crate) fn needs<T: Scalar>(self, draw: &Draw) -> Needs {
                match self { $(Self::$variant => <$kind as Kind>::needs::<T>(draw),)* }
            }

            pub(crate) fn operator<T: Scalar>(
                self,
                projection: &Projection,
                fourier: Option<&Fourier<T>>,
                arch: Arch,
            ) -> Box<dyn Operator<T>> {
                match self { $(Self::$variant => <$kind as Kind>::operator(projection, fourier, arch),)* }
            }
        }
    };
}

bases! {
    /// Independent normal entries.
    Gaussian = gaussian::Gaussian,
    /// Independent entries, uniform on {1, −1} or {1, −1, i, −i}.
    Rademacher = rademacher::Rademacher,
    /// Rows of a Hadamard matrix with random signs, sampled without replacement (Alg. 2).
    ProductSrht = srht::WithoutReplacement,
    /// The same, sampled with replacement (Ahle et al. 2020, Def. 15).
    TensorSrht = srht::WithReplacement,
    /// CountSketches convolved by Fourier transform (Pham and Pagh 2013).
    TensorSketch = count_sketch::TensorSketch,
}

/// A row of F W/√m.
fn transformed_row(draw: Draw, row: impl Fn(usize) -> Vec<[f64; 2]>, output: usize) -> Vec<[f64; 2]> {
    let root = (draw.outputs as f64).sqrt();
    let mut sums = vec![[0.0; 2]; draw.dim];
    for other in 0..draw.outputs {
        let [cos, sin] = fourier_entry(draw.outputs, output, other).map(|part| part / root);
        for (sum, [re, im]) in sums.iter_mut().zip(row(other)) {
            *sum = [sum[0] + cos * re - sin * im, sum[1] + cos * im + sin * re];
        }
    }
    sums
}

/// exp(−2πi row column / length) as (re, im).
fn fourier_entry(length: usize, row: usize, column: usize) -> [f64; 2] {
    // The product of two sizes of a valid spec fits into 128 bits.
    let turns = (row as u128 * column as u128 % length as u128) as f64 / length as f64;
    let (sin, cos) = (-std::f64::consts::TAU * turns).sin_cos();
    [cos, sin]
}

/// The resources a projection needs on this processor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Needs {
    /// Bytes of the operator itself, beyond the drawn values; `None` on overflow.
    pub(crate) bytes: Option<u64>,
    /// Lanes of [`Workspace`].
    pub(crate) workspace_lanes: usize,
    /// Tiles worth computing together: they share one pass over the weights.
    pub(crate) tiles_per_block: usize,
    /// How a flat product of such projections can be written in one pass.
    pub(crate) fusing: Option<Fusing>,
}

/// The prepared tile, for outputs that are computed as they are written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fusing {
    /// Its lanes for one factor.
    pub(crate) lanes: usize,
    /// Whether all factors that read the same input share it.
    pub(crate) shared: bool,
    /// The most bytes, for all factors, that stay in the intended cache.
    pub(crate) most_bytes: usize,
}

/// A projection W, ready to be applied by this processor.
///
/// Tiles of vectors lie in lanes, as [Re, Im]; the imaginary part is empty where it is zero. Every row's result depends
/// only on its own lane.
pub(crate) trait Operator<T: Scalar>: fmt::Debug + Send + Sync {
    /// Multiplies `into`, m lanes per tile, element by element by Wx, or, if `first`, replaces it by Wx. Im `into` is empty if products
    /// are real.
    fn multiply_into(&self, x: &Vectors<'_, T>, workspace: &mut Workspace<T>, into: [&mut [Lane<T>]; 2], first: bool);

    /// Adds Wᵀv to `gradient`, for one tile; `v` may be overwritten.
    ///
    /// Im v is empty for a real projection; Im of the gradient is empty if only its real part is wanted.
    fn add_transpose(&self, v: [&mut [Lane<T>]; 2], workspace: &mut Workspace<T>, gradient: [&mut [Lane<T>]; 2]);

    /// Whether it reads sparse inputs row by row, without loading them into lanes.
    fn reads_sparse(&self) -> bool {
        false
    }

    /// Joins a flat product that is written in one pass, if it can.
    fn fuse(&self, _builder: &mut FusedBuilder<T>) {}
}

/// The vectors to project, in several tiles.
#[derive(Debug)]
pub(crate) struct Vectors<'a, T> {
    /// Re x and Im x, tile after tile; the latter is empty if x is real.
    pub(crate) lanes: [&'a [Lane<T>]; 2],
    /// The sparse rows, for projections that read them; lanes are then empty.
    pub(crate) rows: Option<SparseTile<'a, T>>,
    /// The number of tiles.
    pub(crate) tiles: usize,
}

impl<'a, T> Vectors<'a, T> {
    /// Re x and Im x of one tile.
    fn tile(&self, tile: usize) -> [&'a [Lane<T>]; 2] {
        self.lanes.map(|x| &x[tile * (x.len() / self.tiles)..][..x.len() / self.tiles])
    }
}

/// Sparse rows as they are stored.
#[derive(Debug)]
pub(crate) struct SparseTile<'a, T> {
    pub(crate) input: &'a SparseRows<'a, T>,
    /// The first row of the first tile.
    pub(crate) first: usize,
    pub(crate) root_gamma: T,
    pub(crate) root_coef0: T,
}

impl<T: Scalar> SparseTile<'_, T> {
    /// Calls `visit(row in the tile, column, value)` for the entries of x̃ in one tile.
    fn for_each(&self, tile: usize, mut visit: impl FnMut(usize, usize, T)) {
        let first = self.first + tile * LANES;
        for row in 0..LANES.min(self.input.rows().saturating_sub(first)) {
            self.input.row(first + row).for_each(|(column, value)| visit(row, column, value * self.root_gamma));
            if self.root_coef0 > T::ZERO {
                visit(row, self.input.columns(), self.root_coef0);
            }
        }
    }
}

/// Work space for any use by a projection.
#[derive(Debug)]
pub(crate) struct Workspace<T> {
    /// Real and imaginary part.
    pub(crate) lanes: [LaneBuffer<T>; 2],
    pub(crate) fourier: FourierRows<T>,
}

impl<T: Scalar> Workspace<T> {
    pub(crate) fn new(lanes: usize, complex: bool, fourier: Option<&Fourier<T>>) -> Self {
        Self {
            lanes: [LaneBuffer::new(lanes), LaneBuffer::new(if complex { lanes } else { 0 })],
            fourier: fourier.map_or_else(FourierRows::empty, Fourier::rows),
        }
    }
}

/// One tile's part of a buffer with m lanes per tile; empty if the buffer is.
fn of_tile<T>(lanes: &mut [Lane<T>], tile: usize, tiles: usize) -> &mut [Lane<T>] {
    let outputs = lanes.len() / tiles;
    &mut lanes[tile * outputs..][..outputs]
}

/// A real projection of seed 0, for tests to change.
#[cfg(test)]
fn test_draw(base: Base, dim: usize, outputs: usize) -> Draw {
    let spec = crate::Spec::polynomial(dim).with_features(outputs);
    let method = crate::ProductMethod { base, field: crate::Field::Real, shape: crate::Shape::Flat, craft: None };
    let draw = crate::draw::Product::of(&spec.with_method(method.into()), method).joins[0].operands[0].projection;
    Draw { sorted: false, ..draw }
}
