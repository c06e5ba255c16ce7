//! The two floating-point types of features.

#![allow(unreachable_pub, reason = "the public `Scalar` has `Engine`, which nobody else can name, as a supertrait")]

use std::fmt::{Debug, Display};
use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Sub};

use pulp::{Arch, Simd};

use crate::draw::{self, Drawn};
use crate::lanes::Lane;
use crate::map::{self, Cosine, Fourier as FourierMap, Maclaurin, Map, Monomials, Nystrom, Product};
use crate::simd::Vector;
use crate::transform::fft::Fourier;

/// Code compiled for each scalar type in this crate, not wherever generic code is used.
pub trait Engine: Sized {
    /// Plans the Fourier transforms of a length.
    fn fourier(length: usize, arch: Arch) -> Fourier<Self>;

    /// Chooses the kernels of this processor for a drawn sketch.
    fn map(drawn: &Drawn, arch: Arch) -> Box<dyn Map<Self>>;

    /// Replaces angles by their cosines, and writes their sines.
    fn turn<S: Simd>(simd: S, angles: &mut [Lane<Self>], sines: &mut [Lane<Self>]);
}

/// `f32` or `f64`, and no other type.
///
/// Random numbers are drawn in `f64` and rounded once, so the two types describe the same sketch.
pub trait Scalar:
    Engine
    + Vector
    + Copy
    + Default
    + Debug
    + Display
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
{
    /// `"f32"` or `"f64"`.
    const NAME: &'static str;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Distance from one to the next larger number.
    const EPSILON: Self;
    /// The smallest positive number of full precision.
    const MIN_POSITIVE: Self;

    /// Rounds to nearest.
    fn from_f64(value: f64) -> Self;
    /// Widens, exactly.
    fn to_f64(self) -> f64;
    /// Neither NaN nor infinite.
    fn is_finite(self) -> bool;
}

macro_rules! scalar {
    ($type:ident, $turn:expr) => {
        impl Engine for $type {
            fn fourier(length: usize, arch: Arch) -> Fourier<Self> {
                Fourier::plan(length, arch)
            }

            fn map(drawn: &Drawn, arch: Arch) -> Box<dyn Map<Self>> {
                match &drawn.map {
                    draw::Map::Product(product) => Box::new(Product::new(&drawn.spec, product, arch)),
                    draw::Map::Cosine(cosine) => Box::new(Cosine::new(cosine, arch)),
                    draw::Map::Fourier(fourier) => Box::new(FourierMap::new(fourier, arch)),
                    draw::Map::Maclaurin(terms) => Box::new(Maclaurin::new(&drawn.spec, terms, arch)),
                    draw::Map::Nystrom(nystrom) => Box::new(Nystrom::new(&drawn.spec, nystrom, arch)),
                    draw::Map::Exact => Box::new(Monomials::new(&drawn.spec, arch)),
                }
            }

            #[inline(always)]
            fn turn<S: Simd>(simd: S, angles: &mut [Lane<Self>], sines: &mut [Lane<Self>]) {
                $turn(simd, angles, sines);
            }
        }

        impl Scalar for $type {
            const NAME: &'static str = stringify!($type);
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const EPSILON: Self = $type::EPSILON;
            const MIN_POSITIVE: Self = $type::MIN_POSITIVE;

            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "rounding to the type is the purpose")]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                $type::is_finite(self)
            }
        }
    };
}

scalar!(f32, map::elementary::turn_single);
scalar!(f64, map::elementary::turn);

/// ⟨x, y⟩ in eight sums, always in the same order.
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let ((x, rest_x), (y, rest_y)) = (x.as_chunks::<8>(), y.as_chunks::<8>());
    for (x, y) in x.iter().zip(y) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f64>() + rest_x.iter().zip(rest_y).map(|(x, y)| x * y).sum::<f64>()
}
