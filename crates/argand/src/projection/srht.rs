//! The subsampled randomised Hadamard transform.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::fused::Factor;
use super::{Draw, quarter_turn};
use crate::lanes::{LANES, Lane, LaneBuffer, add, complex_product, scale};
use crate::rng::{Purpose, Stream};
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
    pub(super) complex: bool,
    /// n, the padded dimension.
    pub(super) padded: usize,
    /// The diagonal of D in quarter turns, one per coordinate before padding.
    pub(super) turns: Vec<u8>,
    /// The row of H that each row of W takes.
    pub(super) sampled: Vec<u32>,
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
pub(super) struct SignedFwht<'a, T> {
    pub(super) turns: &'a [u8],
    pub(super) sources: [&'a [Lane<T>]; 2],
    pub(super) signs: [T; 4],
    pub(super) into: &'a mut [Lane<T>],
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
            factor.take(simd, rows, T::ONE, [re, im], &mut ());
        } else {
            factor.multiply::<S, false, false>(factor, simd, rows, T::ONE, [re, im], &mut ());
        }
    }
}

impl<T: Scalar> Factor<T> for Transformed<'_, T> {
    type Scratch = ();

    fn rows(&self) -> usize {
        self.sampled.len()
    }

    fn complex(&self) -> bool {
        !self.im.is_empty()
    }

    #[inline(always)]
    fn take<S: Simd>(&self, simd: S, rows: Range<usize>, scale: T, [re, im]: [&mut [Lane<T>]; 2], (): &mut ()) {
        let scale = T::splat(simd, scale);
        for (into, from) in [(re, self.re), (im, self.im)] {
            for (into, &at) in into.iter_mut().zip(&self.sampled[rows.clone()]) {
                let from = T::registers::<S>(&from[at as usize]);
                for (into, &from) in T::registers_mut::<S>(into).iter_mut().zip(from) {
                    *into = T::times(simd, from, scale);
                }
            }
        }
    }

    #[inline(always)]
    fn multiply<S: Simd, const FIRST: bool, const LAST: bool>(
        &self,
        start: &Self,
        simd: S,
        rows: Range<usize>,
        scale: T,
        [re, im]: [&mut [Lane<T>]; 2],
        (): &mut (),
    ) {
        let scale = T::splat(simd, scale);
        let sampled = start.sampled[rows.clone()].iter().zip(&self.sampled[rows]);
        if im.is_empty() {
            for (re, (&from, &at)) in re.iter_mut().zip(sampled) {
                let re = T::registers_mut::<S>(re);
                let from = if FIRST { T::registers::<S>(&start.re[from as usize]) } else { &[] };
                let by = T::registers::<S>(&self.re[at as usize]);
                for (within, re) in re.iter_mut().enumerate() {
                    let old = if FIRST { from[within] } else { *re };
                    let product = T::times(simd, old, by[within]);
                    *re = if LAST { T::times(simd, product, scale) } else { product };
                }
            }
        } else {
            for ((re, im), (&from, &at)) in re.iter_mut().zip(im).zip(sampled) {
                let (re, im) = (T::registers_mut::<S>(re), T::registers_mut::<S>(im));
                let from_re = if FIRST { T::registers::<S>(&start.re[from as usize]) } else { &[] };
                let from_im = if FIRST { T::registers::<S>(&start.im[from as usize]) } else { &[] };
                let by_re = T::registers::<S>(&self.re[at as usize]);
                let by_im = T::registers::<S>(&self.im[at as usize]);
                for (within, (re, im)) in re.iter_mut().zip(im).enumerate() {
                    let old = if FIRST { (from_re[within], from_im[within]) } else { (*re, *im) };
                    let new = complex_product::<T, S>(simd, old, (by_re[within], by_im[within]));
                    *re = if LAST { T::times(simd, new.0, scale) } else { new.0 };
                    *im = if LAST { T::times(simd, new.1, scale) } else { new.1 };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
