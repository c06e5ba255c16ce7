//! The subsampled randomised Hadamard transform.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{Draw, quarter_turn};
use crate::lanes::{Aligned, FiniteCheck, LANES, Lane, LaneBuffer, PIECE, add, put, scale};
use crate::rng::{Purpose, Stream};
use crate::rows::RowsMut;
use crate::scalar::Scalar;
use crate::spec::Base;
use crate::transform::fwht::{across_lanes, butterfly8, fwht_lanes};

/// W = P H D: random signs D, the Hadamard matrix H, and the sampled rows P.
///
/// # Formula
/// With n the dimension padded to a power of two and B = ⌈m/n⌉, P takes m of the Bn rows of B stacked copies of H
/// without replacement (ProductSRHT), or m rows of H with replacement (TensorSRHT). D has entries uniform on {1, −1}
/// or {1, −1, i, −i}.
///
/// The first factor of a flat sketch keeps its sample in ascending order: permuting the features of all factors alike
/// does not change an inner product, so only the other factors need a random order.
///
/// # Reference
/// Alg. 2 of the paper; Ahle et al. (2020), Def. 15, for sampling with replacement.
///
/// # Cost
/// n log₂ n + m operations per row and factor, twice that when complex. Memory 4m + n bytes.
#[derive(Debug)]
pub(crate) struct Srht {
    complex: bool,
    /// n, the padded dimension.
    padded: usize,
    /// The diagonal of D in quarter turns, one per coordinate before padding.
    turns: Vec<u8>,
    /// The row of H that each row of W takes.
    sampled: Vec<u32>,
}

impl Srht {
    pub(super) fn bytes(draw: Draw) -> Option<u64> {
        let padded = draw.dim.checked_next_power_of_two()?;
        // Without replacement, all stacked rows are listed while drawing.
        let stacked = draw.rows.checked_next_multiple_of(padded)?;
        let listed = u32::try_from(if draw.base == Base::TensorSrht { draw.rows } else { stacked }).ok()?;
        Some(4 * u64::from(listed) + u64::try_from(padded).ok()?)
    }

    pub(super) fn sample(draw: Draw) -> Self {
        let Draw { complex, seed, factor, dim, rows, .. } = draw;
        let padded = dim.next_power_of_two();
        let mut stream = Stream::new(seed, Purpose::Rows, factor, 0);
        // Sizes were counted by `bytes` and fit.
        let narrow = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let mut sampled: Vec<u32> = if draw.base == Base::TensorSrht {
            (0..rows).map(|_| stream.below(narrow(padded))).collect()
        } else {
            let stacked = narrow(rows.next_multiple_of(padded));
            let mut order: Vec<u32> = (0..stacked).collect();
            // Fisher and Yates, stopped after the rows needed.
            for position in 0..rows {
                let left = stacked - narrow(position);
                order.swap(position, position + stream.below(left) as usize);
            }
            order.truncate(rows);
            order.shrink_to_fit();
            order
        };
        if draw.sorted {
            sampled.sort_unstable();
        }
        for row in &mut sampled {
            *row &= narrow(padded - 1);
        }
        Self { complex, padded, turns: draw.signs(), sampled }
    }

    /// Real and, if complex, imaginary part of the work space, as long as the padded dimension.
    #[inline(always)]
    fn parts<'a, T: Scalar>(&self, [re, im]: &'a mut [LaneBuffer<T>; 2]) -> [&'a mut [Lane<T>]; 2] {
        [&mut re.as_mut()[..self.padded], &mut im.as_mut()[..if self.complex { self.padded } else { 0 }]]
    }

    /// Lanes of what [`Srht::transform`] leaves for one tile.
    pub(super) fn transformed_lanes(draw: Draw) -> Option<usize> {
        draw.dim.checked_next_power_of_two()?.checked_mul(if draw.complex { 2 } else { 1 })
    }

    /// H D x for one tile, left in the front of `free`, which is shortened by that.
    pub(crate) fn transform_in_front<'a, T: Scalar>(
        &'a self,
        x: [&[Lane<T>]; 2],
        free: &mut &'a mut [Lane<T>],
    ) -> Transformed<'a, T> {
        let (re, rest) = std::mem::take(free).split_at_mut(self.padded);
        let (im, rest) = rest.split_at_mut(if self.complex { self.padded } else { 0 });
        *free = rest;
        self.transform_into(x, [re, im]);
        Transformed { sampled: &self.sampled, re, im }
    }

    /// H D x for one tile, left in the work space.
    pub(crate) fn transform<'a, T: Scalar>(
        &'a self,
        x: [&[Lane<T>]; 2],
        workspace: &'a mut [LaneBuffer<T>; 2],
    ) -> Transformed<'a, T> {
        let [re, im] = self.parts(workspace);
        self.transform_into(x, [&mut *re, &mut *im]);
        Transformed { sampled: &self.sampled, re, im }
    }

    fn transform_into<T: Scalar>(&self, x: [&[Lane<T>]; 2], [re, im]: [&mut [Lane<T>]; 2]) {
        let (one, zero) = (T::ONE, T::ZERO);
        let [x_re, x_im] = x;
        // Parts of the product with 1, i, −1, −i: each is a part of x, or nothing, with a sign.
        let (sources, signs_re, signs_im) = if x_im.is_empty() {
            ([x_re, x_re], [one, zero, -one, zero], [zero, one, zero, -one])
        } else {
            ([x_re, x_im], [one, -one, -one, one], [one, one, -one, -one])
        };
        let turns = &self.turns;
        pulp::Arch::new().dispatch(SignedFwht { turns, sources, signs: signs_re, into: re });
        if self.complex {
            pulp::Arch::new().dispatch(SignedFwht {
                turns,
                sources: [sources[1], sources[0]],
                signs: signs_im,
                into: im,
            });
        }
    }

    #[inline(always)]
    pub(super) fn apply<T: Scalar>(
        &self,
        [x_re, x_im]: [&[Lane<T>]; 2],
        workspace: &mut [LaneBuffer<T>; 2],
        mut emit: impl FnMut(usize, usize, Lane<T>, Lane<T>),
    ) {
        let dim = self.turns.len();
        for (tile, x_re) in x_re.chunks_exact(dim).enumerate() {
            let x_im = if x_im.is_empty() { x_im } else { &x_im[tile * dim..][..dim] };
            let Transformed { sampled, re, im } = self.transform([x_re, x_im], workspace);
            for (row, &sampled) in sampled.iter().enumerate() {
                let im = if self.complex { im[sampled as usize] } else { [T::ZERO; LANES] };
                emit(tile, row, re[sampled as usize], im);
            }
        }
    }

    /// Wᵀ = D H Pᵀ: scatter, transform, turn.
    #[inline(always)]
    pub(super) fn add_transpose<T: Scalar>(
        &self,
        v: [&[Lane<T>]; 2],
        workspace: &mut [LaneBuffer<T>; 2],
        gradient: [&mut [Lane<T>]; 2],
    ) {
        let [gradient_re, gradient_im] = gradient;
        let parts = self.parts(workspace);
        for (part, (spread, v)) in parts.into_iter().zip(v).enumerate() {
            // A real projection has no imaginary part to spread, whether v has one or not.
            if spread.is_empty() {
                continue;
            }
            spread.fill([T::ZERO; LANES]);
            for (&row, &v) in self.sampled.iter().zip(v) {
                spread[row as usize] = add(spread[row as usize], v);
            }
            fwht_lanes(spread);
            // Re(w v) = Re w Re v − Im w Im v.
            let sign = if part == 0 { T::ONE } else { -T::ONE };
            for ((gradient, &value), &turns) in gradient_re.iter_mut().zip(&*spread).zip(&self.turns) {
                *gradient = add(*gradient, scale(value, sign * quarter_turn::<T>(turns)[part]));
            }
            // Im(w v) = Im w Re v + Re w Im v.
            for ((gradient, &value), &turns) in gradient_im.iter_mut().zip(&*spread).zip(&self.turns) {
                *gradient = add(*gradient, scale(value, quarter_turn::<T>(turns)[1 - part]));
            }
        }
    }
}

/// One part of H D x: coordinate k of D x is `signs[turns[k]]` times the same coordinate of `sources[turns[k] & 1]`.
struct SignedFwht<'a, T> {
    turns: &'a [u8],
    sources: [&'a [Lane<T>]; 2],
    signs: [T; 4],
    into: &'a mut [Lane<T>],
}

impl<T: Scalar> SignedFwht<'_, T> {
    /// Register `within` a lane of coordinate `at` of D x; zero in the padding.
    #[inline(always)]
    fn signed<S: Simd>(&self, simd: S, at: usize, within: usize) -> T::Register<S> {
        match self.turns.get(at) {
            Some(&turns) => {
                let source = if turns & 1 == 0 { self.sources[0] } else { self.sources[1] };
                let sign = T::splat(simd, self.signs[usize::from(turns & 3)]);
                T::times(simd, T::registers::<S>(&source[at])[within], sign)
            }
            None => T::splat(simd, T::ZERO),
        }
    }
}

impl<T: Scalar> WithSimd for SignedFwht<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let into = std::mem::take(&mut self.into);
        let length = into.len();
        let per_lane = T::registers::<S>(&[T::ZERO; LANES]).len();
        if length < 8 {
            for (at, lane) in into.iter_mut().enumerate() {
                for within in 0..per_lane {
                    T::registers_mut::<S>(lane)[within] = self.signed(simd, at, within);
                }
            }
            return across_lanes(simd, into);
        }
        // The signs go with the three outermost levels: x is read and the work space written once for both.
        let eighth = length / 8;
        for at in 0..eighth {
            for within in 0..per_lane {
                let old = [
                    self.signed(simd, at, within),
                    self.signed(simd, at + eighth, within),
                    self.signed(simd, at + 2 * eighth, within),
                    self.signed(simd, at + 3 * eighth, within),
                    self.signed(simd, at + 4 * eighth, within),
                    self.signed(simd, at + 5 * eighth, within),
                    self.signed(simd, at + 6 * eighth, within),
                    self.signed(simd, at + 7 * eighth, within),
                ];
                for (part, new) in butterfly8::<T, S>(simd, old).into_iter().enumerate() {
                    T::registers_mut::<S>(&mut into[at + part * eighth])[within] = new;
                }
            }
        }
        for block in into.chunks_exact_mut(eighth) {
            across_lanes(simd, block);
        }
    }
}

/// H D x of one tile, and the rows that are taken of it.
#[derive(Debug)]
pub(crate) struct Transformed<'a, T> {
    pub(crate) sampled: &'a [u32],
    pub(crate) re: &'a [Lane<T>],
    /// Empty if the projection is real.
    pub(crate) im: &'a [Lane<T>],
}

impl<T: Scalar> Transformed<'_, T> {
    /// Multiplies `re` and `im` by this projection of the tile, or, if `first`, replaces them by it.
    pub(crate) fn multiply_into(&self, re: &mut [Lane<T>], im: &mut [Lane<T>], first: bool) {
        pulp::Arch::new().dispatch(Multiply { factor: self, re, im, first });
    }
}

struct Multiply<'a, T> {
    factor: &'a Transformed<'a, T>,
    re: &'a mut [Lane<T>],
    im: &'a mut [Lane<T>],
    first: bool,
}

impl<T: Scalar> WithSimd for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { factor, re, im, first } = self;
        let rows = 0..factor.sampled.len();
        if first {
            take(simd, factor, rows, T::ONE, re, im);
        } else {
            multiply::<T, S, false, false>(simd, [factor; 2], rows, T::ONE, re, im);
        }
    }
}

/// Where real and imaginary parts of products go in a row of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// All real parts, then the imaginary ones, if there are any.
    Apart,
    /// Side by side.
    Interleaved,
}

/// Writes the element-wise product of projections, times `scale`, as features of the tile of rows from `first` on;
/// reports whether all are finite.
///
/// One pass over the output, with the transforms in a cache: gather, multiply, transpose, write.
pub(crate) fn write_products<T: Scalar>(
    factors: &[Transformed<'_, T>],
    scale: T,
    parts: Parts,
    out: &mut RowsMut<'_, T>,
    first: usize,
    streamed: bool,
) -> bool {
    pulp::Arch::new().dispatch(WriteProducts { factors, scale, parts, out, first, streamed })
}

struct WriteProducts<'a, 'b, T> {
    factors: &'a [Transformed<'a, T>],
    scale: T,
    parts: Parts,
    out: &'a mut RowsMut<'b, T>,
    first: usize,
    streamed: bool,
}

impl<T: Scalar> WithSimd for WriteProducts<'_, '_, T> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { factors, scale, parts, out, first, streamed } = self;
        let Some(Transformed { sampled, im, .. }) = factors.first() else { return true };
        let (rows, complex) = (sampled.len(), !im.is_empty());
        let mut re = Aligned([[T::ZERO; LANES]; PIECE]);
        let mut im = Aligned([[T::ZERO; LANES]; PIECE]);
        let mut other = Aligned([[T::ZERO; LANES]; PIECE]);
        let per_row = if parts == Parts::Interleaved { 2 } else { 1 };
        // A short piece first, so that the others start cache lines.
        let short = (out.before_line(0) / per_row).min(rows);
        // Where the real parts end in the middle of a cache line, the imaginary ones of the short piece fill it.
        let shares = parts == Parts::Apart && complex && short < rows && out.before_line(rows) == short;
        let shared = if shares { short } else { 0 };
        let mut check = FiniteCheck::new(simd);
        let mut row = 0;
        while row < rows {
            let count = if row < short { short } else { PIECE / per_row }.min(rows - row);
            let (new_re, rest_re) = re.0.split_at_mut(count);
            let new_im = &mut im.0[..if complex { count } else { 0 }];
            let at = row..row + count;
            let [start, others @ ..] = factors else { break };
            for (index, factor) in others.iter().enumerate() {
                let (first, last) = (index == 0, index + 1 == others.len());
                let both = [start, factor];
                match (first, last) {
                    (true, true) => multiply::<T, S, true, true>(simd, both, at.clone(), scale, new_re, new_im),
                    (true, false) => multiply::<T, S, true, false>(simd, both, at.clone(), scale, new_re, new_im),
                    (false, true) => multiply::<T, S, false, true>(simd, both, at.clone(), scale, new_re, new_im),
                    (false, false) => multiply::<T, S, false, false>(simd, both, at.clone(), scale, new_re, new_im),
                }
            }
            if others.is_empty() {
                take(simd, start, at, scale, new_re, new_im);
            }
            check.look_at(new_re);
            check.look_at(new_im);
            match parts {
                Parts::Interleaved => {
                    for (pair, (&re, &im)) in other.0.as_chunks_mut().0.iter_mut().zip(new_re.iter().zip(&*new_im)) {
                        *pair = [re, im];
                    }
                    put(simd, &other.0[..2 * count], out, first, 2 * row, streamed);
                }
                Parts::Apart => {
                    let more = if row + count == rows { shared } else { 0 };
                    rest_re[..more].copy_from_slice(&other.0[..more]);
                    put(simd, &re.0[..count + more], out, first, row, streamed);
                    if row < shared {
                        other.0[..shared].copy_from_slice(&im.0[..shared]);
                    } else if complex {
                        put(simd, new_im, out, first, rows + row, streamed);
                    }
                }
            }
            row += count;
        }
        check.all_finite()
    }
}

/// Rows of W x, times `scale`.
#[inline(always)]
fn take<T: Scalar, S: Simd>(
    simd: S,
    factor: &Transformed<'_, T>,
    rows: Range<usize>,
    scale: T,
    re: &mut [Lane<T>],
    im: &mut [Lane<T>],
) {
    let scale = T::splat(simd, scale);
    for (into, from) in [(re, factor.re), (im, factor.im)] {
        for (into, &at) in into.iter_mut().zip(&factor.sampled[rows.clone()]) {
            let from = T::registers::<S>(&from[at as usize]);
            for (into, &from) in T::registers_mut::<S>(into).iter_mut().zip(from) {
                *into = T::times(simd, from, scale);
            }
        }
    }
}

/// Multiplies what is there, or, if `FIRST`, the same rows of `start`, by rows of W x and, if `LAST`, by `scale`.
#[inline(always)]
fn multiply<T: Scalar, S: Simd, const FIRST: bool, const LAST: bool>(
    simd: S,
    [start, factor]: [&Transformed<'_, T>; 2],
    rows: Range<usize>,
    scale: T,
    re: &mut [Lane<T>],
    im: &mut [Lane<T>],
) {
    let &Transformed { re: start_re, im: start_im, sampled: from } = start;
    let &Transformed { re: factor_re, im: factor_im, sampled } = factor;
    let scale = T::splat(simd, scale);
    let sampled = from[rows.clone()].iter().zip(&sampled[rows]);
    if im.is_empty() {
        for (re, (&from, &at)) in re.iter_mut().zip(sampled) {
            let re = T::registers_mut::<S>(re);
            let from = if FIRST { T::registers::<S>(&start_re[from as usize]) } else { &[] };
            let by = T::registers::<S>(&factor_re[at as usize]);
            for (within, re) in re.iter_mut().enumerate() {
                let old = if FIRST { from[within] } else { *re };
                let product = T::times(simd, old, by[within]);
                *re = if LAST { T::times(simd, product, scale) } else { product };
            }
        }
    } else {
        for ((re, im), (&from, &at)) in re.iter_mut().zip(im).zip(sampled) {
            let (re, im) = (T::registers_mut::<S>(re), T::registers_mut::<S>(im));
            let from_re = if FIRST { T::registers::<S>(&start_re[from as usize]) } else { &[] };
            let from_im = if FIRST { T::registers::<S>(&start_im[from as usize]) } else { &[] };
            let by_re = T::registers::<S>(&factor_re[at as usize]);
            let by_im = T::registers::<S>(&factor_im[at as usize]);
            for (within, (re, im)) in re.iter_mut().zip(im).enumerate() {
                let (old_re, old_im) = if FIRST { (from_re[within], from_im[within]) } else { (*re, *im) };
                let (by_re, by_im) = (by_re[within], by_im[within]);
                // Every product and sum is rounded, as on machines that cannot multiply and add at once.
                let new_re = T::minus(simd, T::times(simd, old_re, by_re), T::times(simd, old_im, by_im));
                let new_im = T::plus(simd, T::times(simd, old_re, by_im), T::times(simd, old_im, by_re));
                *re = if LAST { T::times(simd, new_re, scale) } else { new_re };
                *im = if LAST { T::times(simd, new_im, scale) } else { new_im };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::everywhere;

    /// Features of one tile, from transforms to the output, in tables that start `offset` numbers after a cache line.
    struct Features<'a, T> {
        factors: &'a [Srht],
        x: &'a [Lane<T>],
        parts: Parts,
        offset: usize,
        streamed: bool,
    }

    impl<T: Scalar> WithSimd for Features<'_, T> {
        type Output = Vec<T>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<T> {
            let Self { factors, x, parts, offset, streamed } = self;
            let mut buffers: Vec<[Vec<Lane<T>>; 2]> = Vec::new();
            for Srht { complex, padded, turns, .. } in factors {
                let mut buffer =
                    [vec![[T::ONE; LANES]; *padded], vec![[T::ONE; LANES]; if *complex { *padded } else { 0 }]];
                for (part, into) in buffer.iter_mut().enumerate() {
                    let signs = std::array::from_fn(|turns| quarter_turn::<T>([0, 1, 2, 3][turns])[part]);
                    if !into.is_empty() {
                        SignedFwht { turns, sources: [x, x], signs, into }.with_simd(simd);
                    }
                }
                buffers.push(buffer);
            }
            let factors: Vec<Transformed<'_, T>> = factors
                .iter()
                .zip(&buffers)
                .map(|(srht, [re, im])| Transformed { sampled: &srht.sampled, re, im })
                .collect();
            let columns = factors[0].sampled.len() * if factors[0].im.is_empty() { 1 } else { 2 };
            let mut memory = LaneBuffer::new((offset + LANES * columns).div_ceil(LANES));
            let table = &mut memory.as_mut().as_flattened_mut()[offset..][..LANES * columns];
            let mut out = RowsMut::new(table, LANES, columns).unwrap();
            let scale = T::from_f64(0.3);
            let write = WriteProducts { factors: &factors, scale, parts, out: &mut out, first: 0, streamed };
            assert!(write.with_simd(simd));
            crate::simd::fence();
            table.to_vec()
        }
    }

    fn instruction_sets_agree<T: Scalar>() {
        for (dim, rows, degree) in [(1, 1, 1), (3, 20, 2), (16, 32, 3), (50, 64, 3), (50, 48, 1), (100, 70, 4)] {
            for (complex, parts) in [(false, Parts::Apart), (true, Parts::Apart), (true, Parts::Interleaved)] {
                let base = Base::ProductSrht;
                let one = |factor| Srht::sample(Draw { base, complex, seed: 5, factor, sorted: false, dim, rows });
                let factors: Vec<Srht> = (0..degree).map(one).collect();
                let value = |at: usize, row: usize| T::from_f64(((at * 31 + row * 17) % 23) as f64 / 7.0 - 1.0);
                let x: Vec<Lane<T>> = (0..dim).map(|at| std::array::from_fn(|row| value(at, row))).collect();
                let features =
                    |offset, streamed| everywhere(|| Features { factors: &factors, x: &x, parts, offset, streamed });
                let (_, want) = &features(0, false)[0];
                for (offset, streamed) in [(0, false), (0, true), (4, true), (5, false), (12, true), (15, true)] {
                    for (name, got) in features(offset, streamed) {
                        assert!(got == *want, "{name}: {dim} {rows} {degree} {parts:?}, {offset}, {streamed}");
                    }
                }
            }
        }
    }

    /// Bit for bit, cached or streamed, wherever the table starts.
    #[test]
    fn features_agree_on_every_instruction_set() {
        instruction_sets_agree::<f32>();
        instruction_sets_agree::<f64>();
    }

    fn draw(base: Base, factor: u32, dim: usize, rows: usize) -> Srht {
        Srht::sample(Draw { base, complex: true, seed: 3, factor, sorted: factor == 0, dim, rows })
    }

    #[test]
    fn without_replacement_every_row_is_used_evenly() {
        for (dim, rows) in [(8, 8), (8, 32), (5, 24), (1, 7)] {
            for factor in 0..3 {
                let srht = draw(Base::ProductSrht, factor, dim, rows);
                let mut counts = vec![0; srht.padded];
                srht.sampled.iter().for_each(|&row| counts[row as usize] += 1);
                assert!(counts.iter().all(|&count| count == rows / srht.padded), "{dim} {rows}: {counts:?}");
            }
        }
        // Fewer rows than a multiple of the dimension: no row more often than the stack holds it.
        let srht = draw(Base::ProductSrht, 1, 16, 37);
        let most = (0..16).map(|row| srht.sampled.iter().filter(|&&sampled| sampled == row).count()).max();
        assert!(most <= Some(3), "{:?}", srht.sampled);
    }

    #[test]
    fn with_replacement_rows_collide() {
        let srht = draw(Base::TensorSrht, 1, 256, 256);
        let mut distinct = srht.sampled.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // Expected 256 (1 − 1/e) ≈ 162 with standard deviation below 8.
        assert!((130..=194).contains(&distinct.len()), "{}", distinct.len());
    }

    #[test]
    fn only_the_first_factor_is_sorted() {
        let sorted = |factor| draw(Base::ProductSrht, factor, 64, 40).sampled.is_sorted();
        assert_eq!([sorted(0), sorted(1), sorted(2)], [true, false, false]);
    }
}
