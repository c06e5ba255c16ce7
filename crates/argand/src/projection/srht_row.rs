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
        let [first, others @ ..] = factors else { unreachable!("a sketch has at least one factor") };
        let outputs = first.sampled.len();
        let columns = parts.columns(outputs);
        let mut finite = true;
        for start in (0..outputs).step_by(LANES) {
            let count = LANES.min(outputs - start);
            let [mut re, mut im] = take(first, start, count);
            for other in others {
                let [by_re, by_im] = take(other, start, count);
                if first.im.is_empty() {
                    re = mul(re, by_re);
                } else {
                    let product = sub(mul(re, by_re), mul(im, by_im));
                    (re, im) = (product, add(mul(re, by_im), mul(im, by_re)));
                }
            }
            for (part, Columns { start: column, step }) in [re, im].into_iter().zip(columns) {
                if column == 0 || !first.im.is_empty() {
                    let part = scale(part, factor);
                    finite &= part[..count].iter().all(|value| value.is_finite());
                    put(&mut out[column + step * start..], &part[..count], step);
                }
            }
        }
        finite
    }
}

/// Some outputs of one factor as [Re, Im]; zeros where there are none.
#[inline(always)]
fn take<T: Scalar>(from: &TransformedRow<'_, T>, start: usize, count: usize) -> [Lane<T>; 2] {
    let mut parts = [[T::ZERO; LANES]; 2];
    let sampled = &from.sampled[start..][..count];
    for (part, table) in parts.iter_mut().zip([from.re, from.im]) {
        if !table.is_empty() {
            for (value, &at) in part.iter_mut().zip(sampled) {
                *value = table[at as usize];
            }
        }
    }
    parts
}

#[inline(always)]
fn put<T: Scalar>(out: &mut [T], values: &[T], step: usize) {
    if step == 1 {
        out[..values.len()].copy_from_slice(values);
    } else {
        out.iter_mut().step_by(step).zip(values).for_each(|(to, &value)| *to = value);
    }
}
