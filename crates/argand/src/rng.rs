//! Named, portable random streams.
//!
//! Every random number of a sketch comes from ChaCha8, keyed by the seed and the *purpose* of the numbers, with the
//! *factor* and *block* as the stream number. Streams never overlap, so a factor cannot reuse another's signs, and
//! any part of a sketch can be drawn without drawing the rest. Only integer arithmetic, correctly rounded floating
//! point and the portable `libm` are used: the same spec gives the same numbers on every machine.
//!
//! The values are part of the file format: changing them is a breaking change and adds a [`StreamVersion`].

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::error::FileFault;

/// How random numbers are drawn from a seed. Every version stays drawable: a spec keeps its numbers when newer versions appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamVersion {
    /// The version of the first release.
    V1,
}

impl StreamVersion {
    /// The version of new specs.
    pub const LATEST: Self = Self::V1;

    /// The number in files and in the key of a [`Stream`].
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
        }
    }

    /// The version with this number.
    ///
    /// # Errors
    /// [`FileFault::Newer`] for one that this library does not know yet, [`FileFault::Content`] for one that never existed.
    pub fn from_number(number: u32) -> Result<Self, FileFault> {
        let newest = Self::LATEST.number();
        match number {
            0 => Err(FileFault::Content(format!("stream_version: expected 1 to {newest}, got 0"))),
            1 => Ok(Self::V1),
            found => Err(FileFault::Newer { what: "stream_version", found, newest }),
        }
    }
}

/// The purpose of a stream's numbers. The name is part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Entries of a dense projection; the block is the row of the matrix.
    Weights,
    /// The signs of an SRHT or a CountSketch.
    Signs,
    /// The rows of H that an SRHT samples.
    Rows,
    /// The buckets of a CountSketch.
    Buckets,
    /// The lengths of the frequencies of spherical random features.
    Radii,
    /// The seeds of the terms of a Maclaurin sum; the factor is the degree.
    Terms,
    /// The choice of Nyström's landmarks. They are part of the spec: drawing does not depend on it.
    Landmarks,
    /// Samples of the rows of a table; no sketch depends on it.
    Sample,
    /// Draws of latent functions behind class probabilities; no sketch depends on it.
    Posterior,
    /// The order in which online learning visits the rows of a block; no sketch depends on it.
    Shuffle,
}

impl Purpose {
    /// 16 bytes, padded with zeros.
    const fn name(self) -> &'static [u8; 16] {
        match self {
            Self::Weights => b"weights\0\0\0\0\0\0\0\0\0",
            Self::Signs => b"signs\0\0\0\0\0\0\0\0\0\0\0",
            Self::Rows => b"rows\0\0\0\0\0\0\0\0\0\0\0\0",
            Self::Buckets => b"buckets\0\0\0\0\0\0\0\0\0",
            Self::Radii => b"radii\0\0\0\0\0\0\0\0\0\0\0",
            Self::Terms => b"terms\0\0\0\0\0\0\0\0\0\0\0",
            Self::Landmarks => b"landmarks\0\0\0\0\0\0\0",
            Self::Sample => b"sample\0\0\0\0\0\0\0\0\0\0",
            Self::Posterior => b"posterior\0\0\0\0\0\0\0",
            Self::Shuffle => b"shuffle\0\0\0\0\0\0\0\0\0",
        }
    }
}

/// One stream of random numbers.
///
/// # Formula
/// ChaCha8 with key = `seed (u64) ‖ stream version (u32) ‖ "argd" ‖ purpose (16 bytes)` and stream number
/// `factor · 2³² + block`, all little-endian.
///
/// # Cost
/// One ChaCha8 block (64 bytes) per 8 draws.
#[derive(Debug, Clone)]
pub struct Stream {
    generator: ChaCha8Rng,
}

impl Stream {
    /// The stream for one purpose, factor and block, of version 1: for draws that no sketch depends on.
    ///
    /// ```
    /// use argand::rng::{Purpose, Stream};
    /// let mut stream = Stream::new(7, Purpose::Signs, 0, 0);
    /// assert_eq!(stream.bits(), 0x7229_e496_4ef1_f42f);
    /// ```
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose, factor: u32, block: u32) -> Self {
        Self::of_version(StreamVersion::V1, seed, purpose, factor, block)
    }

    /// The stream of a version for one purpose, factor and block.
    #[must_use]
    pub fn of_version(version: StreamVersion, seed: u64, purpose: Purpose, factor: u32, block: u32) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..12].copy_from_slice(&version.number().to_le_bytes());
        key[12..16].copy_from_slice(b"argd");
        key[16..].copy_from_slice(purpose.name());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(u64::from(factor) << 32 | u64::from(block));
        Self { generator }
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// Uniform on the multiples of 2⁻⁵³ in (0, 1].
    pub fn uniform(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
        ((self.bits() >> 11) + 1) as f64 * UNIT
    }

    /// Uniform on 0, …, `bound` − 1, without bias.
    ///
    /// Widening multiplication with rejection (Lemire 2019, "Fast random integer generation in an interval").
    pub fn below(&mut self, bound: u32) -> u32 {
        debug_assert!(bound > 0, "the range must not be empty");
        let bound = u64::from(bound);
        let reject_under = (1_u64 << 32) % bound;
        loop {
            let product = (self.bits() >> 32) * bound;
            if product & 0xffff_ffff >= reject_under {
                #[allow(clippy::cast_possible_truncation, reason = "product < 2^32 * bound")]
                return (product >> 32) as u32;
            }
        }
    }

    /// One draw of the standard complex normal CN(0, 1): real and imaginary part are independent N(0, ½).
    ///
    /// Box and Muller's transform √(−ln u) · e^{2πiv}; times √2, the parts are two independent N(0, 1).
    pub fn complex_normal(&mut self) -> (f64, f64) {
        let radius = libm::sqrt(-libm::log(self.uniform()));
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * self.uniform());
        (radius * cos, radius * sin)
    }

    /// `count` independent draws of `width` bits each, uniform on 0, …, 2^`width` − 1, low bits of each word first.
    pub fn small_integers(&mut self, width: u32, count: usize) -> Vec<u8> {
        debug_assert!((1..=8).contains(&width) && 64 % width == 0);
        let mask = (1_u64 << width) - 1;
        let per_word = (64 / width) as usize;
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count {
            let mut word = self.bits();
            for _ in 0..per_word.min(count - drawn.len()) {
                #[allow(clippy::cast_possible_truncation, reason = "masked to at most 8 bits")]
                drawn.push((word & mask) as u8);
                word >>= width;
            }
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Literal values pin the streams: a change would alter every saved spec. They were computed by an independent
    /// implementation of ChaCha8 and of the formulas.
    #[test]
    fn golden_vectors() {
        let first = |purpose, factor, block| Stream::new(42, purpose, factor, block).bits();
        assert_eq!(
            [
                first(Purpose::Weights, 0, 0),
                first(Purpose::Weights, 0, 1),
                first(Purpose::Weights, 1, 0),
                first(Purpose::Signs, 0, 0),
                first(Purpose::Rows, 0, 0),
            ],
            [0xafffd9a94fc64b10, 0xae2d932495a156f8, 0x18fd8ded0ea70652, 0x57ac6231ca47b361, 0x3a6bc02df0bf1197]
        );
        let mut stream = Stream::new(u64::MAX, Purpose::Weights, u32::MAX, u32::MAX);
        assert_eq!(stream.uniform(), 0.40631846598340426);
        assert_eq!(stream.complex_normal(), (-0.6753505751361344, 0.9516690682966171));
        assert_eq!((0..8).map(|_| stream.below(10)).collect::<Vec<_>>(), [9, 4, 9, 5, 8, 5, 7, 0]);
        assert_eq!(stream.small_integers(2, 8), [1, 0, 2, 1, 0, 3, 1, 2]);
    }

    /// The key layout matches the documentation: a key written out by hand gives the same numbers.
    #[test]
    fn key_layout() {
        let mut generator = ChaCha8Rng::from_seed(*b"\x05\0\0\0\0\0\0\0\x01\0\0\0argdrows\0\0\0\0\0\0\0\0\0\0\0\0");
        generator.set_stream(3 << 32 | 9);
        assert_eq!(Stream::new(5, Purpose::Rows, 3, 9).bits(), generator.next_u64());
    }

    /// Each of 7 cells within 5 standard deviations of its expected count (family-wise level below 1e-5).
    #[test]
    fn below_is_uniform() {
        let mut stream = Stream::new(1, Purpose::Rows, 0, 0);
        let draws = 70_000;
        let mut counts = [0_u32; 7];
        for _ in 0..draws {
            counts[stream.below(7) as usize] += 1;
        }
        let expected = f64::from(draws) / 7.0;
        let deviation = (expected * 6.0 / 7.0).sqrt();
        for count in counts {
            assert!((f64::from(count) - expected).abs() < 5.0 * deviation, "{counts:?}");
        }
    }

    /// Mean, variance and fourth moment of the complex normal, each within 5 standard errors.
    #[test]
    fn complex_normal_moments() {
        let mut stream = Stream::new(2, Purpose::Weights, 0, 0);
        let draws = 100_000;
        let (mut mean, mut second, mut fourth) = (0.0, 0.0, 0.0);
        for _ in 0..draws {
            let (re, im) = stream.complex_normal();
            let square = re * re + im * im;
            mean += (re + im) / f64::from(draws);
            second += square / f64::from(draws);
            fourth += square * square / f64::from(draws);
        }
        let error = 1.0 / f64::from(draws).sqrt();
        assert!(mean.abs() < 5.0 * error, "mean {mean}");
        // |w|^2 is exponential: E = 1, V = 1; E|w|^4 = 2, V = 24 - 4.
        assert!((second - 1.0).abs() < 5.0 * error, "second moment {second}");
        assert!((fourth - 2.0).abs() < 5.0 * 20_f64.sqrt() * error, "fourth moment {fourth}");
    }

    #[test]
    fn small_integers_use_every_bit_once() {
        let word = Stream::new(3, Purpose::Signs, 0, 0).bits();
        let drawn = Stream::new(3, Purpose::Signs, 0, 0).small_integers(2, 32);
        let rebuilt = drawn.iter().rev().fold(0_u64, |word, &draw| word << 2 | u64::from(draw));
        assert_eq!(rebuilt, word);
    }
}
