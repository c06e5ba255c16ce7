//! From a [`Spec`] to its random draws: plain data that every back end reads.
//!
//! [`Spec::draw`] is the one place that draws a sketch's random numbers, numbers its streams and lays out its joins. The result
//! does not depend on the machine, the number of threads, the scalar type or the back end that runs it. Back ends never draw
//! numbers themselves.
//!
//! ```
//! use argand::Spec;
//! use argand::draw::{Map, Values};
//! let drawn = Spec::polynomial(3).with_degree(2).with_features(8).with_seed(7).draw()?;
//! let Map::Product(product) = &drawn.map else { unreachable!("the default is a product") };
//! // One join multiplies both factors; each is an SRHT of the three columns, padded to four, with four complex outputs.
//! let first = &product.joins[0].operands[0].projection;
//! assert_eq!((first.draw.dim, first.draw.outputs), (3, 4));
//! let Values::Hadamard(hadamard) = &first.values else { unreachable!("the default base is ProductSRHT") };
//! assert_eq!(hadamard.sampled, [0, 1, 2, 3]);
//! // The first row of H is all ones, so the first row of W = P H D holds the signs: i, −1, −i, …
//! assert_eq!(first.row(0), hadamard.turns.iter().map(|&turns| argand::draw::quarter_turn(turns)).collect::<Vec<_>>());
//! # Ok::<(), argand::Error>(())
//! ```

mod cosine;
mod fourier;
mod joins;
mod nystrom;

use std::sync::Arc;

use crate::error::Error;
use crate::fit::Fit;
use crate::map::DEFAULT_MEMORY_LIMIT;
use crate::map::monomials;
use crate::rng::{Purpose, Stream, StreamVersion};
use crate::spec::{Base, InputDims, Method, ProductMethod, Shape, Spec};
use crate::spherical;

pub use cosine::Cosine;
pub use fourier::{Fourier, FourierValues};
pub use joins::{Join, Operand, Source};
pub use nystrom::Nystrom;

/// The random draws of a [`Spec`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Drawn {
    /// The spec, with what was fitted.
    pub spec: Spec,
    /// The drawn numbers.
    pub map: Map,
}

/// One variant for each kind of feature map.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Map {
    /// Products of projections.
    Product(Product),
    /// Cosines and sines of projections of rows of unit norm.
    Cosine(Cosine),
    /// Cosines and sines of projections.
    Fourier(Fourier),
    /// The terms of a sum, in the order of its [`Allocation`](crate::fit::Allocation): each is a sketch of its own, drawn from a plain spec.
    Maclaurin(Vec<Drawn>),
    /// Kernels with landmarks, whitened.
    Nystrom(Nystrom),
    /// Monomials: nothing is drawn.
    Exact,
}

/// Products of projections: flat, in a tree or in a chain, with or without a CRAFT projection after them.
/// `P` represents a projection: a drawn [`Projection`], or the [`Draw`] that describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Product<P = Projection> {
    /// In the order of computation: operands before their users, the result last.
    pub joins: Vec<Join<P>>,
    /// A real SRHT from E up-projected features down to D (Hamid et al. 2014).
    pub craft: Option<P>,
}

/// How to draw one projection.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Draw {
    /// Its base.
    pub base: Base,
    /// Whether its entries are complex.
    pub complex: bool,
    /// The dimension of the projected vectors.
    pub dim: usize,
    /// The number m of outputs.
    pub outputs: usize,
    /// Whether the sampled coordinates are sorted. Permuting the outputs of all factors alike leaves the kernel
    /// estimate unchanged, so the first factor of a flat sketch may be sorted.
    pub sorted: bool,
    /// Whether a Fourier transform, divided by √m, follows: for mixing vectors whose transforms are multiplied.
    pub transformed: bool,
    /// The seed of its random numbers.
    pub seed: u64,
    /// Its stream number: the factor, or a number after all factors.
    pub stream: u32,
    /// The stream version its random numbers are drawn with.
    pub stream_version: StreamVersion,
}

impl Draw {
    /// The stream for a purpose; `block` separates parts that are drawn independently.
    pub(crate) fn stream(&self, purpose: Purpose, block: usize) -> Stream {
        Stream::of_version(self.stream_version, self.seed, purpose, self.stream, narrow(block))
    }

    /// Random signs in quarter turns, one per coordinate.
    pub(crate) fn signs(&self) -> Vec<u8> {
        let mut stream = self.stream(Purpose::Signs, 0);
        if self.complex {
            stream.small_integers(2, self.dim)
        } else {
            stream.small_integers(1, self.dim).into_iter().map(|bit| 2 * bit).collect()
        }
    }

    /// Draws the projection.
    #[must_use]
    pub(crate) fn projection(self) -> Projection {
        Projection { values: self.base.draw(&self), draw: self }
    }
}

/// The sizes of a valid spec, and indices into them, fit into 32 bits.
pub(crate) fn narrow(size: usize) -> u32 {
    u32::try_from(size).unwrap_or_else(|_| unreachable!("the sizes of a valid spec are below 2³²"))
}

/// One drawn projection W: `outputs` rows w of length `dim` with E[w wᴴ] = I, never divided by √m.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Projection {
    /// Its description.
    pub draw: Draw,
    /// The drawn values.
    pub values: Values,
}

impl Projection {
    /// One row of W as (re, im) pairs, entry by entry from the definition.
    ///
    /// For [`Values::Independent`] this draws the entries, each row of W from its own stream; for others it is the
    /// reference that fast code is checked against.
    #[must_use]
    pub fn row(&self, output: usize) -> Vec<[f64; 2]> {
        self.draw.base.row(self, output)
    }

    /// Bytes of the drawn values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.values {
            Values::Independent => 0,
            Values::Hadamard(hadamard) => (hadamard.turns.len() + 4 * hadamard.sampled.len()) as u64,
            Values::Buckets(buckets) => (buckets.turns.len() + 4 * buckets.buckets.len()) as u64,
        }
    }
}

/// The drawn values of one projection.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Values {
    /// Nothing to keep: entries are independent, and [`Projection::row`] draws them row by row.
    Independent,
    /// A subsampled randomised Hadamard transform.
    Hadamard(Arc<Hadamard>),
    /// A CountSketch.
    Buckets(Arc<Buckets>),
}

/// The signs D and the sample P of an SRHT P H D.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hadamard {
    /// The diagonal of D as a [`quarter_turn`] each, one per coordinate before padding.
    pub turns: Vec<u8>,
    /// The row of H, which is `dim` padded to a power of two, behind each output.
    pub sampled: Vec<u32>,
}

/// The signs and hashes of a CountSketch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Buckets {
    /// The sign of each coordinate as a [`quarter_turn`].
    pub turns: Vec<u8>,
    /// The bucket of each coordinate.
    pub buckets: Vec<u32>,
}

/// A complex sign from its number of quarter turns: 1, i, −1, −i as (re, im). A real sign has 0 or 2 turns.
#[must_use]
pub fn quarter_turn(turns: u8) -> [f64; 2] {
    [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]][usize::from(turns & 3)]
}

impl Product<Draw> {
    /// The layout of a spec: which projections are joined, and the streams of each.
    ///
    /// Streams are numbered: factor i has number i, the projection of the result of join j has number p + j, and a CRAFT projection
    /// the number after all of them.
    pub(crate) fn of(spec: &Spec, method: ProductMethod) -> Self {
        let ProductMethod { base, field, shape, craft } = method;
        let (degree, outputs) = (spec.factors().degree, spec.outputs());
        let draw = |number: usize, dim: usize| Draw {
            base,
            complex: field.is_complex(),
            dim,
            outputs,
            sorted: false,
            transformed: false,
            seed: spec.seed,
            stream: narrow(number),
            stream_version: spec.stream_version,
        };
        // A tree projects results like inputs; a chain uses an SRHT.
        let mixed = |join: usize| {
            let draw = draw(degree + join, outputs);
            if shape == Shape::Chain {
                Draw { base: Base::ProductSrht, transformed: base.multiplies_transforms(), ..draw }
            } else {
                draw
            }
        };
        let joins = joins::joins(shape, degree, |source| match source {
            Source::Factor(factor) => {
                Draw { sorted: factor == 0 && shape == Shape::Flat, ..draw(factor, spec.factor_dim(factor)) }
            }
            Source::Join(join) => mixed(join),
        });
        let craft = craft.map(|up| Draw {
            base: Base::ProductSrht,
            complex: false,
            sorted: true,
            outputs: spec.features,
            ..draw(degree + joins.len(), up)
        });
        Self { joins, craft }
    }

    /// Draws all projections.
    fn draw(self) -> Product {
        let joins = self.joins.into_iter().map(|join| join.map(Draw::projection)).collect();
        Product { joins, craft: self.craft.map(Draw::projection) }
    }

    /// Bytes that drawing takes; `None` on overflow.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.projections().try_fold(0_u64, |sum, draw| sum.checked_add(draw.base.drawn_bytes(draw)?))
    }
}

impl<P> Product<P> {
    /// Every projection, in the order of computation.
    pub fn projections(&self) -> impl Iterator<Item = &P> {
        let operands = self.joins.iter().flat_map(|join| &join.operands);
        operands.map(|operand| &operand.projection).chain(&self.craft)
    }

    /// The number of slots for results of joins.
    pub(crate) fn slots(&self) -> usize {
        self.joins.iter().map(|join| join.slot + 1).max().unwrap_or(1)
    }
}

impl InputDims {
    /// The table a factor reads.
    #[must_use]
    pub fn table_of(&self, factor: usize) -> usize {
        match self {
            Self::Same(_) => 0,
            Self::Distinct(_) => factor,
        }
    }
}

impl Spec {
    /// Draws the random numbers, within [`DEFAULT_MEMORY_LIMIT`].
    ///
    /// # Errors
    /// As [`Spec::validate`], and [`Error::TooLarge`].
    pub fn draw(&self) -> Result<Drawn, Error> {
        self.draw_within(DEFAULT_MEMORY_LIMIT)
    }

    /// Draws the random numbers if they take no more than `memory_limit` bytes.
    ///
    /// # Errors
    /// As [`Spec::validate`], and [`Error::TooLarge`].
    pub fn draw_within(&self, memory_limit: u64) -> Result<Drawn, Error> {
        let needed = self.drawn_bytes()?;
        if needed > memory_limit {
            return Err(Error::TooLarge { needed, limit: memory_limit });
        }
        self.check_fitted()?;
        let mut spec = self.clone();
        let map = match self.method {
            Method::Product(method) => Map::Product(Product::of(self, method).draw()),
            Method::Spherical => {
                let fit = match spec.fit.take() {
                    Some(Fit::Spherical(fit)) => fit,
                    _ => spherical::fit(Cosine::direction_dim(self), self.factors().degree, self.spherical_s())?,
                };
                let map = Map::Cosine(Cosine::draw(self, &fit));
                spec.fit = Some(Fit::Spherical(fit));
                map
            }
            Method::Maclaurin(product) => {
                let terms = self.allocation().term_specs(self, product).map(|term| term.draw_within(memory_limit));
                Map::Maclaurin(terms.collect::<Result<_, _>>()?)
            }
            Method::Fourier(frequencies) => Map::Fourier(Fourier::draw(self, frequencies)),
            Method::Nystrom => match &self.fit {
                Some(Fit::Nystrom(landmarks)) => Map::Nystrom(Nystrom::draw(self, landmarks)?),
                _ => unreachable!("it was checked that the spec is fitted"),
            },
            Method::Exact => Map::Exact,
        };
        Ok(Drawn { spec, map })
    }

    /// The shares of a Maclaurin sum.
    pub(crate) fn allocation(&self) -> &crate::fit::Allocation {
        match &self.fit {
            Some(Fit::Maclaurin(allocation)) => allocation,
            _ => unreachable!("it was checked that the spec is fitted"),
        }
    }

    /// Bytes that drawing takes; `u64::MAX` on overflow.
    ///
    /// # Errors
    /// As [`Spec::validate`].
    pub fn drawn_bytes(&self) -> Result<u64, Error> {
        self.validate()?;
        let bytes = match self.method {
            // Refuse a huge degree before listing its factors.
            Method::Product(_) if self.factor_bytes() > u64::from(u32::MAX) => Some(self.factor_bytes()),
            Method::Product(method) => {
                Product::of(self, method).bytes().and_then(|bytes| bytes.checked_add(self.factor_bytes()))
            }
            Method::Spherical => u64::try_from(self.outputs()).ok().and_then(|outputs| outputs.checked_mul(8)),
            Method::Maclaurin(product) => {
                self.check_fitted()?;
                let mut sum = Some(0_u64);
                for term in self.allocation().term_specs(self, product) {
                    let bytes = term.drawn_bytes()?;
                    sum = sum.and_then(|sum| sum.checked_add(bytes));
                }
                sum
            }
            Method::Fourier(frequencies) => Fourier::bytes(self, frequencies),
            Method::Nystrom => Nystrom::bytes(self),
            Method::Exact => monomials::drawn_bytes(self),
        };
        Ok(bytes.unwrap_or(u64::MAX))
    }

    /// Bytes of the lists of factors, before anything is drawn.
    fn factor_bytes(&self) -> u64 {
        /// Allocator overhead per factor: it matters for sketches with very many tiny factors.
        const ALLOCATION: usize = 64;
        let per_factor = size_of::<Operand<Projection>>() + size_of::<Join<Projection>>() + ALLOCATION;
        (self.factors().degree as u64).saturating_mul(per_factor as u64)
    }
}
