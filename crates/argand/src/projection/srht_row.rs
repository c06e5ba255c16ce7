//! Features of single rows of flat SRHT sketches, for batches too small to fill a tile.
//!
//! A tile computes sixteen rows for the price of one. For a few, it is faster to transform one row at a time, with its
//! coordinates side by side in registers. The operations and their order are those of a tile: features are the same to the last bit.

use pulp::{Simd, WithSimd};

use super::Parts;
use crate::lanes::{Columns, LANES, Lane, add, mul, scale, sub};
use crate::scalar::Scalar;
use crate::transform::fwht::transform_row;

/// H D x of one row, and the coordinates to sample.
#[derive(Debug)]
pub(super) struct TransformedRow<'a, T> {
    pub(super) sampled: &'a [u32],
    pub(super) re: &'a [T],
    /// Empty if the projection is real.
    pub(super) im: &'a [T],
}

/// One part of H D x: coordinate k of D x is `signs[turns[k]]` times that of x, and zero in the padding.
pub(super) struct SignedRow<'a, T> {
    pub(super) turns: &'a [u8],
    pub(super) x: &'a [T],
    pub(super) signs: [T; 4],
    pub(super) into: &'a mut [T],
}

impl<T: Scalar> WithSimd for SignedRow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (signed, padding) = self.into.split_at_mut(self.turns.len());
        for ((into, &x), &turns) in signed.iter_mut().zip(self.x).zip(self.turns) {
            *into = x * self.signs[usize::from(turns & 3)];
        }
        padding.fill(T::ZERO);
        transform_row(simd, self.into);
    }
}

/// Writes the element-wise product of projections of one row, times `scale`; reports whether all features are finite.
pub(super) struct WriteRow<'a, T> {
    pub(super) factors: &'a [TransformedRow<'a, T>],
    pub(super) scale: T,
    pub(super) parts: Parts,
    pub(super) out: &'a mut [T],
}

impl<T: Scalar> WithSimd for WriteRow<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        let Self { factors, scale: factor, parts, out } = self;
        let [first, ..] = factors else { unreachable!("a sketch has at least one factor") };
        let (outputs, complex) = (first.sampled.len(), !first.im.is_empty());
        let [columns_re, columns_im] = parts.columns(outputs);
        // Zero times a number that is not finite is NaN, and stays so in a sum.
        let mut check = [T::ZERO; LANES];
        for start in (0..outputs).step_by(LANES) {
            let count = LANES.min(outputs - start);
            let [re, im] = if complex { complex_product(factors, start) } else { real_product(factors, start) };
            let re = scale(re, factor);
            check = add(check, scale(re, T::ZERO));
            put(out, columns_re, start, &re[..count]);
            if complex {
                let im = scale(im, factor);
                check = add(check, scale(im, T::ZERO));
                put(out, columns_im, start, &im[..count]);
            }
        }
        check == [T::ZERO; LANES]
    }
}

/// Sixteen outputs, or those that are left, multiplied over all factors.
#[inline(always)]
fn complex_product<T: Scalar>(factors: &[TransformedRow<'_, T>], start: usize) -> [Lane<T>; 2] {
    let [first, others @ ..] = factors else { unreachable!("a sketch has at least one factor") };
    let (mut re, mut im) = (take(first.re, first.sampled, start), take(first.im, first.sampled, start));
    for other in others {
        let (by_re, by_im) = (take(other.re, other.sampled, start), take(other.im, other.sampled, start));
        (re, im) = (sub(mul(re, by_re), mul(im, by_im)), add(mul(re, by_im), mul(im, by_re)));
    }
    [re, im]
}

/// As [`complex_product`], of real factors.
#[inline(always)]
fn real_product<T: Scalar>(factors: &[TransformedRow<'_, T>], start: usize) -> [Lane<T>; 2] {
    let [first, others @ ..] = factors else { unreachable!("a sketch has at least one factor") };
    let first = take(first.re, first.sampled, start);
    let re = others.iter().fold(first, |re, other| mul(re, take(other.re, other.sampled, start)));
    [re, [T::ZERO; LANES]]
}

/// Sixteen sampled numbers, or those that are left and then zeros.
#[inline(always)]
fn take<T: Scalar>(from: &[T], sampled: &[u32], start: usize) -> Lane<T> {
    let mut taken = [T::ZERO; LANES];
    if let Some(sampled) = sampled[start..].first_chunk::<LANES>() {
        // Of constant length, so that it is unrolled.
        for lane in 0..LANES {
            taken[lane] = from[sampled[lane] as usize];
        }
    } else {
        taken.iter_mut().zip(&sampled[start..]).for_each(|(taken, &at)| *taken = from[at as usize]);
    }
    taken
}

#[inline(always)]
fn put<T: Scalar>(out: &mut [T], Columns { start: column, step }: Columns, start: usize, values: &[T]) {
    let out = &mut out[column + step * start..];
    if step == 1 {
        out[..values.len()].copy_from_slice(values);
    } else {
        out.iter_mut().step_by(step).zip(values).for_each(|(to, &value)| *to = value);
    }
}
