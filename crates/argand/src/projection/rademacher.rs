//! Projections whose entries are random signs, without multiplications.

use std::ops::Range;
use std::sync::Arc;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::fused::{Factor, Fusible};
use super::signed_sums::{BLOCK, ChunkTimes, Combine, GROUP, GROUPS, NUMBERS, SUMS, Tables, Transpose, look_up};
use super::{FusedBuilder, Fusing, Kind, Needs, Operator, Vectors, Workspace};
use crate::draw::{Draw, Projection, quarter_turn};
use crate::lanes::{self, Aligned, LANES, Lane, LaneBuffer, Multiply, PIECE, add, scale, sub};
use crate::rng::Purpose;
use crate::scalar::Scalar;
use crate::theory::variance::PairStatistics;
use crate::transform::fft::Fourier;
/// The most real rows of W at a time: enough to be worth the signed sums, and few enough for their results to stay in a cache.
const CHUNK: usize = 512;

/// An m × d matrix with independent entries, uniform on {1, −1} or {1, −1, i, −i}.
///
/// # Reference
/// Alg. 1. Row ℓ of factor i comes from the stream (weights, i, ℓ).
pub(crate) struct Rademacher;

impl Kind for Rademacher {
    const NAME: &'static str = "rademacher";

    fn row(projection: &Projection, output: usize) -> Vec<[f64; 2]> {
        turns(&projection.draw, output).map(quarter_turn).collect()
    }

    #[inline(always)]
    fn moments(pair: &PairStatistics, complex: bool) -> [f64; 2] {
        sign_moments(pair, complex)
    }

    fn needs<T: Scalar>(draw: &Draw) -> Needs {
        let fusing = draw.dim.div_ceil(BLOCK).checked_mul(GROUPS * SUMS);
        Needs {
            bytes: SignMatrix::bytes(draw),
            workspace_lanes: CHUNK + CHUNK / 2 + GROUPS * SUMS,
            tiles_per_block: 4,
            // Factors share the sums of their input.
            fusing: fusing.map(|lanes| Fusing { lanes, shared: true, most_bytes: TABLE_BYTES }),
        }
    }

    fn operator<T: Scalar>(projection: &Projection, _: Option<&Fourier<T>>, arch: Arch) -> Box<dyn Operator<T>> {
        Box::new(SignMatrix::new(&projection.draw, arch))
    }
}

/// The signs of one row of W in quarter turns.
fn turns(draw: &Draw, output: usize) -> impl Iterator<Item = u8> {
    let (width, turns) = if draw.complex { (2, 1) } else { (1, 2) };
    draw.stream(Purpose::Weights, output).small_integers(width, draw.dim).into_iter().map(move |drawn| turns * drawn)
}

/// M and M' of rows of random signs.
#[inline(always)]
pub(super) fn sign_moments(pair: &PairStatistics, complex: bool) -> [f64; 2] {
    let (a, cross) = (pair.inner * pair.inner, pair.cross_terms());
    if complex { [pair.norms + cross, 2.0 * a - pair.squares] } else { [pair.norms + 2.0 * cross; 2] }
}

/// The most bytes of signed sums kept at once: little more than a first-level cache.
const TABLE_BYTES: usize = 64 << 10;

/// A matrix of random signs on this processor.
///
/// # Formula
/// A complex sign is w = (u + v)/2 + i(u − v)/2 with two real ones: u = v = 1 is 1, u = −v = 1 is i. So Wx is made of two
/// real projections Ux and Vx.
///
/// # Reference
/// Sums by table lookup: Arlazarov et al. (1970), "On economical construction of the transitive closure of a directed graph".
///
/// # Cost
/// m·d/6 additions per vector, and 64·d/6 for the tables per 512 rows of W; twice that when complex. Memory m·d/6 bytes, twice
/// that when complex.
#[derive(Debug, Clone)]
pub(crate) struct SignMatrix {
    dim: usize,
    complex: bool,
    /// The signs of m real rows of W, or of 2m as pairs u, v: for every chunk, every block of coordinates and every row
    /// in the chunk, the signs of the groups of the block, one bit each, set if negative.
    signs: Arc<Vec<[u8; GROUPS]>>,
    arch: Arch,
}

/// One of the two buffers of a chunk: the first for Re x, the second for Im x.
struct Scratch<'a, T> {
    /// One lane per real row of W.
    sums: &'a mut [Lane<T>],
    /// Real or imaginary parts of complex rows of W.
    parts: &'a mut [Lane<T>],
    tables: &'a mut [Lane<T>; GROUPS * SUMS],
}

/// Splits a buffer.
fn scratch<T: Scalar>(buffer: &mut LaneBuffer<T>) -> Scratch<'_, T> {
    let Some((tables, rest)) = buffer.as_mut().split_first_chunk_mut() else {
        unreachable!("work space is as long as `needs` says")
    };
    let (sums, parts) = rest.split_at_mut(CHUNK);
    Scratch { sums, parts, tables }
}

impl SignMatrix {
    /// Real rows of W.
    fn real_rows(draw: &Draw) -> Option<usize> {
        draw.outputs.checked_mul(if draw.complex { 2 } else { 1 })
    }

    fn bytes(draw: &Draw) -> Option<u64> {
        let bytes = Self::real_rows(draw)?.checked_mul(draw.dim.div_ceil(BLOCK))?.checked_mul(GROUPS)?;
        u64::try_from(bytes).ok()
    }

    /// The signed sums of one tile, at the front of `free`, which is shortened: the same for every projection of these vectors.
    fn tables_in_front<'a, T: Scalar>(&self, x: &[Lane<T>], free: &mut &'a mut [Lane<T>]) -> &'a [Lane<T>] {
        let (tables, rest) = std::mem::take(free).split_at_mut(x.len().div_ceil(BLOCK) * GROUPS * SUMS);
        *free = rest;
        self.arch.dispatch(Tables { x, tables });
        tables
    }

    fn new(draw: &Draw, arch: Arch) -> Self {
        let Draw { complex, dim, outputs, .. } = *draw;
        let step = if complex { 2 } else { 1 };
        let blocks = dim.div_ceil(BLOCK);
        let mut signs = vec![NUMBERS; step * outputs * blocks];
        signs.par_chunks_mut(CHUNK * blocks).enumerate().for_each(|(chunk, signs)| {
            let length = signs.len() / blocks;
            for within in (0..length).step_by(step) {
                let mut set = |part: usize, coordinate: usize, negative: bool| {
                    let (block, place) = (coordinate / BLOCK, coordinate % BLOCK);
                    signs[block * length + within + part][place / GROUP] |= u8::from(negative) << (place % GROUP);
                };
                for (coordinate, turns) in turns(draw, (chunk * CHUNK + within) / step).enumerate() {
                    // Quarter turns 0, 1, 2, 3: u is 1, 1, −1, −1 and v is 1, −1, −1, 1.
                    set(0, coordinate, turns >= 2);
                    if complex {
                        set(1, coordinate, turns == 1 || turns == 2);
                    }
                }
            }
        });
        Self { dim, complex, signs: Arc::new(signs), arch }
    }

    /// Chunks of rows of W: the first row of each, and its signs.
    fn chunks(&self) -> impl Iterator<Item = (usize, &[[u8; GROUPS]])> {
        let blocks = self.dim.div_ceil(BLOCK);
        let first = if self.complex { CHUNK / 2 } else { CHUNK };
        self.signs.chunks(CHUNK * blocks).enumerate().map(move |(chunk, signs)| (chunk * first, signs))
    }
}

impl<T: Scalar> Operator<T> for SignMatrix {
    fn multiply_into(
        &self,
        x: &Vectors<'_, T>,
        workspace: &mut Workspace<T>,
        [into_re, into_im]: [&mut [Lane<T>]; 2],
        first: bool,
    ) {
        let blocks = self.dim.div_ceil(BLOCK);
        let [x_re, x_im] = x.lanes;
        let [first_buffer, second_buffer] = &mut workspace.lanes;
        let Scratch { sums, parts: re, tables } = scratch(first_buffer);
        // Only complex projections have the second one.
        let mut second = self.complex.then(|| scratch(second_buffer));
        let outputs = into_re.len() / x.tiles;
        let mut emit = |tile: usize, row: usize, re: &[Lane<T>], im: &[Lane<T>]| {
            let part = tile * outputs + row..tile * outputs + row + re.len();
            let into_im = if into_im.is_empty() { &mut [] } else { &mut into_im[part.clone()] };
            lanes::multiply(self.arch, &mut into_re[part], into_im, re, im, first);
        };
        for (row, signs) in self.chunks() {
            let of_re = &mut sums[..signs.len() / blocks];
            for (tile, x) in x_re.chunks_exact(self.dim).enumerate() {
                self.arch.dispatch(ChunkTimes { signs, x, sums: of_re, tables });
                let Some(Scratch { sums, parts: im, .. }) = &mut second else {
                    emit(tile, row, of_re, &[]);
                    continue;
                };
                let of_im = if x_im.is_empty() { &mut [] } else { &mut sums[..of_re.len()] };
                if !x_im.is_empty() {
                    let x = &x_im[tile * self.dim..][..self.dim];
                    self.arch.dispatch(ChunkTimes { signs, x, sums: of_im, tables });
                }
                let (re, im) = (&mut re[..of_re.len() / 2], &mut im[..of_re.len() / 2]);
                self.arch.dispatch(Combine { of_re, of_im, re, im });
                emit(tile, row, re, im);
            }
        }
    }

    fn add_transpose(
        &self,
        [v_re, v_im]: [&mut [Lane<T>]; 2],
        workspace: &mut Workspace<T>,
        [gradient_re, gradient_im]: [&mut [Lane<T>]; 2],
    ) {
        let blocks = self.dim.div_ceil(BLOCK);
        let half = T::from_f64(0.5);
        let [first_buffer, second_buffer] = &mut workspace.lanes;
        let Scratch { sums: for_re, tables, .. } = scratch(first_buffer);
        let mut second = self.complex.then(|| scratch(second_buffer));
        for (first, signs) in self.chunks() {
            let for_re = &mut for_re[..signs.len() / blocks];
            if let Some(Scratch { sums, .. }) = &mut second {
                let for_im = &mut sums[..for_re.len()];
                // With w = (u + v)/2 + i(u − v)/2, w (a + ib) is u (a − b)/2 + v (a + b)/2 + i[u (a + b)/2 + v (b − a)/2].
                let pairs = for_re.as_chunks_mut::<2>().0.iter_mut().zip(for_im.as_chunks_mut::<2>().0);
                for ((for_re, for_im), (&a, &b)) in pairs.zip(v_re[first..].iter().zip(&v_im[first..])) {
                    let (sum, difference) = (scale(add(a, b), half), scale(sub(a, b), half));
                    *for_re = [difference, sum];
                    *for_im = [sum, scale(difference, -T::ONE)];
                }
                if !gradient_im.is_empty() {
                    self.arch.dispatch(Transpose { signs, v: for_im, gradient: gradient_im, tables });
                }
            } else {
                for_re.copy_from_slice(&v_re[first..][..for_re.len()]);
            }
            self.arch.dispatch(Transpose { signs, v: for_re, gradient: gradient_re, tables });
        }
    }

    fn fuse(&self, builder: &mut FusedBuilder<T>) {
        builder.add_signs(self);
    }
}

/// The signed sums of a tile, and the projection that looks them up.
#[derive(Debug)]
pub(crate) struct LookedUp<'a, T> {
    matrix: &'a SignMatrix,
    /// As [`SignMatrix::tables_in_front`] left them.
    tables: &'a [Lane<T>],
}

impl<T: Scalar> LookedUp<'_, T> {
    /// Some real outputs.
    #[inline(always)]
    fn sums<S: Simd>(&self, simd: S, mut outputs: Range<usize>, mut sums: &mut [Lane<T>]) {
        let SignMatrix { dim, signs, .. } = self.matrix;
        let blocks = dim.div_ceil(BLOCK);
        while !outputs.is_empty() {
            let (chunk, within) = (outputs.start / CHUNK, outputs.start % CHUNK);
            let signs = &signs[chunk * CHUNK * blocks..];
            let length = CHUNK.min(signs.len() / blocks);
            let count = (length - within).min(outputs.len());
            let (now, later) = sums.split_at_mut(count);
            (sums, outputs.start) = (later, outputs.start + count);
            for (block, tables) in self.tables.as_chunks().0.iter().enumerate() {
                look_up(simd, &signs[block * length + within..][..count], tables, now, block > 0);
            }
        }
    }

    /// Some rows of W x, with room for the sums of complex ones.
    #[inline(always)]
    fn put<S: Simd>(&self, simd: S, outputs: Range<usize>, [re, im]: [&mut [Lane<T>]; 2], sums: &mut [Lane<T>]) {
        if self.matrix.complex {
            let of_re = &mut sums[..2 * outputs.len()];
            self.sums(simd, 2 * outputs.start..2 * outputs.end, of_re);
            Combine { of_re, of_im: &[], re, im }.with_simd(simd);
        } else {
            self.sums(simd, outputs, re);
        }
    }
}

impl<T: Scalar> Fusible<T> for SignMatrix {
    type Taken<'a> = LookedUp<'a, T>;

    fn prepare<'a>(
        &'a self,
        x: &[Lane<T>],
        before: Option<&LookedUp<'a, T>>,
        free: &mut &'a mut [Lane<T>],
    ) -> LookedUp<'a, T> {
        let tables = before.map_or_else(|| self.tables_in_front(x, free), |before| before.tables);
        LookedUp { matrix: self, tables }
    }
}

/// Room for the sums of [`PIECE`] complex outputs, and for their parts.
pub(crate) struct PieceScratch<T> {
    sums: Aligned<[Lane<T>; 2 * PIECE]>,
    parts: [Aligned<[Lane<T>; PIECE]>; 2],
}

impl<T: Scalar> Default for PieceScratch<T> {
    fn default() -> Self {
        let part = || Aligned([[T::ZERO; LANES]; PIECE]);
        Self { sums: Aligned([[T::ZERO; LANES]; 2 * PIECE]), parts: [part(), part()] }
    }
}

impl<T: Scalar> Factor<T> for LookedUp<'_, T> {
    type Scratch = PieceScratch<T>;

    fn outputs(&self) -> usize {
        let SignMatrix { dim, complex, signs, .. } = self.matrix;
        signs.len() / dim.div_ceil(BLOCK) / if *complex { 2 } else { 1 }
    }

    fn complex(&self) -> bool {
        self.matrix.complex
    }

    #[inline(always)]
    fn take<S: Simd>(
        &self,
        simd: S,
        outputs: Range<usize>,
        factor: T,
        [re, im]: [&mut [Lane<T>]; 2],
        scratch: &mut PieceScratch<T>,
    ) {
        self.put(simd, outputs, [&mut *re, &mut *im], &mut scratch.sums.0);
        for lane in re.iter_mut().chain(im) {
            *lane = scale(*lane, factor);
        }
    }

    #[inline(always)]
    fn multiply<S: Simd, const FIRST: bool, const LAST: bool>(
        &self,
        start: &Self,
        simd: S,
        outputs: Range<usize>,
        factor: T,
        [re, im]: [&mut [Lane<T>]; 2],
        scratch: &mut PieceScratch<T>,
    ) {
        let PieceScratch { sums, parts: [new_re, new_im] } = scratch;
        if FIRST {
            start.put(simd, outputs.clone(), [&mut *re, &mut *im], &mut sums.0);
        }
        let (new_re, new_im) = (&mut new_re.0[..re.len()], &mut new_im.0[..im.len()]);
        self.put(simd, outputs, [&mut *new_re, &mut *new_im], &mut sums.0);
        Multiply { re: &mut *re, im: &mut *im, new_re, new_im }.with_simd(simd);
        if LAST {
            for lane in re.iter_mut().chain(im) {
                *lane = scale(*lane, factor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_draw;
    use super::*;
    use crate::rng::Stream;
    use crate::simd::everywhere;
    use crate::spec::Base;

    struct Product<'a> {
        signs: &'a [[u8; GROUPS]],
        x: &'a [Lane<f32>],
        sums: Vec<Lane<f32>>,
    }

    impl WithSimd for Product<'_> {
        type Output = Vec<Lane<f32>>;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, simd: S) -> Vec<Lane<f32>> {
            let tables = &mut [[f32::NAN; LANES]; GROUPS * SUMS];
            ChunkTimes { signs: self.signs, x: self.x, sums: &mut self.sums, tables }.with_simd(simd);
            self.sums
        }
    }

    /// Sums of small integers are exact: every instruction set gives the sum of the definition.
    #[test]
    fn sums_are_the_defined_ones() {
        for (dim, rows) in [(1, 1), (5, 3), (6, 2), (7, 9), (23, 17), (24, 512), (25, 40), (100, 513)] {
            let draw = Draw { seed: 9, stream: 1, ..test_draw(Base::Rademacher, dim, rows) };
            let rademacher = SignMatrix::new(&draw, Arch::new());
            let x: Vec<Lane<f32>> =
                (0..dim).map(|at| std::array::from_fn(|row| ((at * 5 + row * 3) % 13) as f32 - 6.0)).collect();
            for (first, signs) in rademacher.chunks() {
                let count = signs.len() / dim.div_ceil(BLOCK);
                let want: Vec<Lane<f32>> = (first..first + count)
                    .map(|row| {
                        let row = u32::try_from(row).unwrap();
                        let bits = Stream::new(9, Purpose::Weights, 1, row).small_integers(1, dim);
                        bits.iter().zip(&x).fold(
                            [0.0; LANES],
                            |sum, (bit, &x)| {
                                if *bit == 0 { add(sum, x) } else { sub(sum, x) }
                            },
                        )
                    })
                    .collect();
                let sums = vec![[f32::NAN; LANES]; count];
                for (name, got) in everywhere(|| Product { signs, x: &x, sums: sums.clone() }) {
                    assert!(got == want, "{name}: {dim} x {rows}");
                }
            }
        }
    }
}
