//! Signed sums by table lookup: the kernels of matrices of random signs.

use pulp::{Simd, WithSimd};

use crate::lanes::{LANES, Lane, add, sub};
use crate::scalar::Scalar;

/// Coordinates in a group: all signed sums of a group are computed once, and every row of W looks up its own. Larger
/// groups would cost more than they save.
pub(super) const GROUP: usize = 6;

/// Signed sums of a group.
pub(super) const SUMS: usize = 1 << GROUP;

/// Groups at a time: their sums of sixteen rows, 16 KiB of `f32`, stay in the first-level cache.
pub(super) const GROUPS: usize = 4;

/// The two bits of a group's byte that are not signs: the group's number, so that the byte is the index of its sum.
pub(super) const NUMBERS: [u8; GROUPS] = [0, 1 << GROUP, 2 << GROUP, 3 << GROUP];

/// Coordinates at a time.
pub(super) const BLOCK: usize = GROUPS * GROUP;
/// Multiplies one tile by a chunk of rows of W.
pub(super) struct ChunkTimes<'a, T> {
    pub(super) signs: &'a [[u8; GROUPS]],
    pub(super) x: &'a [Lane<T>],
    pub(super) sums: &'a mut [Lane<T>],
    pub(super) tables: &'a mut [Lane<T>; GROUPS * SUMS],
}

impl<T: Scalar> WithSimd for ChunkTimes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { signs, x, sums, tables } = self;
        for (block, (signs, x)) in signs.chunks_exact(sums.len()).zip(x.chunks(BLOCK)).enumerate() {
            block_tables(simd, x, tables);
            look_up(simd, signs, tables, sums, block > 0);
        }
    }
}

/// The signed sums of all groups, block by block.
pub(super) struct Tables<'a, T> {
    pub(super) x: &'a [Lane<T>],
    pub(super) tables: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for Tables<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (x, tables) in self.x.chunks(BLOCK).zip(self.tables.as_chunks_mut().0) {
            block_tables(simd, x, tables);
        }
    }
}
/// The signed sums of one block.
#[inline(always)]
fn block_tables<T: Scalar, S: Simd>(simd: S, x: &[Lane<T>], tables: &mut [Lane<T>; GROUPS * SUMS]) {
    let mut padded = [[T::ZERO; LANES]; BLOCK];
    padded[..x.len()].copy_from_slice(x);
    for (table, group) in tables.as_chunks_mut().0.iter_mut().zip(padded.as_chunks().0) {
        signed_sums(simd, group, table);
    }
}

/// The sums of a block for every row of W, added to the previous ones if `more`.
#[inline(always)]
pub(super) fn look_up<T: Scalar, S: Simd>(
    simd: S,
    signs: &[[u8; GROUPS]],
    tables: &[Lane<T>; GROUPS * SUMS],
    sums: &mut [Lane<T>],
    more: bool,
) {
    if more {
        look_up_sums::<T, S, true>(simd, signs, tables, sums);
    } else {
        look_up_sums::<T, S, false>(simd, signs, tables, sums);
    }
}

#[inline(always)]
fn look_up_sums<T: Scalar, S: Simd, const MORE: bool>(
    simd: S,
    signs: &[[u8; GROUPS]],
    tables: &[Lane<T>; GROUPS * SUMS],
    sums: &mut [Lane<T>],
) {
    for (sum, &groups) in sums.iter_mut().zip(signs) {
        let sum = T::registers_mut::<S>(sum);
        let [a, b, c, d] = groups.map(
            #[inline(always)]
            |group| T::registers::<S>(&tables[usize::from(group)]),
        );
        for register in 0..sum.len() {
            let low = T::plus(simd, a[register], b[register]);
            let four = T::plus(simd, low, T::plus(simd, c[register], d[register]));
            sum[register] = if MORE { T::plus(simd, sum[register], four) } else { four };
        }
    }
}

/// From pairs of real projections of Re x, and of Im x if there is one, to complex ones.
pub(super) struct Combine<'a, T> {
    pub(super) of_re: &'a [Lane<T>],
    pub(super) of_im: &'a [Lane<T>],
    pub(super) re: &'a mut [Lane<T>],
    pub(super) im: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for Combine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let half = T::splat(simd, T::from_f64(0.5));
        let (pairs, _) = self.of_re.as_chunks::<2>();
        let (other, _) = self.of_im.as_chunks::<2>();
        for (row, ((re, im), [u, v])) in self.re.iter_mut().zip(self.im).zip(pairs).enumerate() {
            let (re, im) = (T::registers_mut::<S>(re), T::registers_mut::<S>(im));
            let (u, v) = (T::registers::<S>(u), T::registers::<S>(v));
            for register in 0..re.len() {
                let mut parts = (T::plus(simd, u[register], v[register]), T::minus(simd, u[register], v[register]));
                if let Some([u, v]) = other.get(row) {
                    // (a + ib)(c + id)
                    let (u, v) = (T::registers::<S>(u)[register], T::registers::<S>(v)[register]);
                    parts.0 = T::minus(simd, parts.0, T::minus(simd, u, v));
                    parts.1 = T::plus(simd, parts.1, T::plus(simd, u, v));
                }
                re[register] = T::times(simd, parts.0, half);
                im[register] = T::times(simd, parts.1, half);
            }
        }
    }
}

/// All signed sums of a group; the bits of a sum's index mark the negative signs.
#[inline(always)]
fn signed_sums<T: Scalar, S: Simd>(simd: S, group: &[Lane<T>; GROUP], table: &mut [Lane<T>; SUMS]) {
    let (x, table) = (T::registers::<S>(group.as_flattened()), T::registers_mut::<S>(table.as_flattened_mut()));
    let width = x.len() / GROUP;
    for register in 0..width {
        let low = of_half::<T, S>(simd, [x[register], x[width + register], x[2 * width + register]]);
        let high = of_half::<T, S>(simd, [x[3 * width + register], x[4 * width + register], x[5 * width + register]]);
        for (eight, high) in high.into_iter().enumerate() {
            for (one, low) in low.into_iter().enumerate() {
                table[(8 * eight + one) * width + register] = T::plus(simd, low, high);
            }
        }
    }
}

/// The same for half a group.
#[inline(always)]
fn of_half<T: Scalar, S: Simd>(simd: S, [a, b, c]: [T::Register<S>; 3]) -> [T::Register<S>; 8] {
    let zero = T::splat(simd, T::ZERO);
    let (sum, difference) = (T::plus(simd, a, b), T::minus(simd, a, b));
    let (minus_sum, minus_difference) = (T::minus(simd, zero, sum), T::minus(simd, zero, difference));
    [
        T::plus(simd, sum, c),
        T::plus(simd, minus_difference, c),
        T::plus(simd, difference, c),
        T::plus(simd, minus_sum, c),
        T::minus(simd, sum, c),
        T::minus(simd, minus_difference, c),
        T::minus(simd, difference, c),
        T::minus(simd, minus_sum, c),
    ]
}

/// Adds the transpose of a chunk of rows of W, times one tile, to a gradient: [`ChunkTimes`] backwards.
pub(super) struct Transpose<'a, T> {
    pub(super) signs: &'a [[u8; GROUPS]],
    pub(super) v: &'a [Lane<T>],
    pub(super) gradient: &'a mut [Lane<T>],
    pub(super) tables: &'a mut [Lane<T>; GROUPS * SUMS],
}

impl<T: Scalar> WithSimd for Transpose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { signs, v, gradient, tables } = self;
        for (signs, gradient) in signs.chunks_exact(v.len()).zip(gradient.chunks_mut(BLOCK)) {
            tables.fill([T::ZERO; LANES]);
            for (&v, groups) in v.iter().zip(signs) {
                for &group in groups {
                    let entry = &mut tables[usize::from(group)];
                    *entry = add(*entry, v);
                }
            }
            for (table, gradient) in tables.chunks_exact_mut(SUMS).zip(gradient.chunks_mut(GROUP)) {
                // Entries with the highest bit set are negative for the last coordinate, and likewise for those before.
                let mut left = SUMS;
                for coordinate in (0..GROUP).rev() {
                    left /= 2;
                    let (low, high) = table.split_at_mut(left);
                    let mut total = [T::ZERO; LANES];
                    for (low, &mut high) in low.iter_mut().zip(high) {
                        total = add(total, sub(*low, high));
                        *low = add(*low, high);
                    }
                    if let Some(gradient) = gradient.get_mut(coordinate) {
                        *gradient = add(*gradient, total);
                    }
                }
            }
        }
    }
}
