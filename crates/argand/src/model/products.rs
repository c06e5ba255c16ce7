//! ΦᵀΦ of a block of rows in f64: half of a matrix product, with one copy of the features for both sides.
//!
//! Products of f32 features are exact in f64. Sums in f32 would be off by 10⁻⁷ of the largest entry, which can be more than all that a
//! model is to learn from, where rows are long or a penalty is small.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::lanes::{LANES, Lane, LaneBuffer};
use crate::simd::Vector;

/// Features in half a lane, each of which is multiplied with [`TILES`] lanes of others: 8 x 3 registers of 32, or 8 of
/// 16, at a time.
const HALF: usize = LANES / 2;
const TILES: usize = 3;
/// Rows at a time, and lanes of features that go through them before the next ones: they stay in a second-level cache.
const DEPTH: usize = 256;
const STRIP: usize = 12;
/// Sums of half a lane of features with [`TILES`] lanes of others.
type Sums = [[Lane<f64>; TILES]; HALF];

/// Some rows of features, sixteen features at a time: all rows of the first sixteen, then those of the next.
pub(super) struct Packed {
    lanes: LaneBuffer<f64>,
    rows: usize,
}

impl Packed {
    pub(super) fn new() -> Self {
        Self { lanes: LaneBuffer::new(0), rows: 0 }
    }

    /// Copies rows, of which there is at least one.
    pub(super) fn fill(&mut self, rows: &[&[f32]]) {
        /// Lanes of a row, and rows, that are copied before the next ones: some lines from and to each of them.
        const ACROSS: usize = 16;
        const DOWN: usize = 32;
        let (columns, count) = (rows[0].len(), rows.len());
        let groups = columns.div_ceil(LANES).next_multiple_of(TILES);
        if self.lanes.len() < groups * count {
            self.lanes = LaneBuffer::new(groups * count);
        }
        self.rows = count;
        let lanes = &mut self.lanes.as_mut()[..groups * count];
        lanes.par_chunks_mut(ACROSS * count).enumerate().for_each(|(part, lanes)| {
            for (block, rows) in rows.chunks(DOWN).enumerate() {
                for (within, row) in rows.iter().enumerate() {
                    for (group, lanes) in lanes.chunks_mut(count).enumerate() {
                        let lane = &mut lanes[block * DOWN + within];
                        let start = ((part * ACROSS + group) * LANES).min(columns);
                        let values = &row[start..(start + LANES).min(columns)];
                        // What is beyond the last feature goes nowhere.
                        lane.iter_mut().zip(values).for_each(|(to, &from)| *to = f64::from(from));
                    }
                }
            }
        });
    }

    /// The values of one feature, in the order of the rows.
    pub(super) fn feature(&self, index: usize) -> impl Iterator<Item = f64> + Clone + '_ {
        let lanes = &self.lanes.as_ref()[index / LANES * self.rows..][..self.rows];
        lanes.iter().map(move |lane| lane[index % LANES])
    }

    /// Adds ΦᵀΦ to a lower triangle that is stored row by row.
    pub(super) fn add_products(&self, dim: usize, triangle: &mut [f64]) {
        let (mut strips, mut rest) = (Vec::new(), triangle);
        for start in (0..dim).step_by(STRIP * LANES) {
            let end = (start + STRIP * LANES).min(dim);
            let strip;
            (strip, rest) = rest.split_at_mut((end * (end + 1) - start * (start + 1)) / 2);
            strips.push((start..end, strip));
        }
        // The longest first, so that threads end together.
        strips.into_par_iter().rev().with_max_len(1).for_each(|(features, strip)| self.add_strip(features, strip));
    }

    /// Adds the products of some features, which start a lane, with all features up to themselves.
    fn add_strip(&self, features: Range<usize>, strip: &mut [f64]) {
        let (rows, lanes) = (self.rows, self.lanes.as_ref());
        let halves = features.start / HALF..features.end.div_ceil(HALF);
        let mut sums = vec![Sums::default(); halves.len()];
        for first in (0..features.end.div_ceil(LANES)).step_by(TILES) {
            // The others are in the upper triangle.
            let halves = halves.start.max(first * LANES / HALF)..halves.end;
            for start in (0..rows).step_by(DEPTH) {
                let depth = start..(start + DEPTH).min(rows);
                for (half, sums) in halves.clone().zip(&mut sums) {
                    let lane = half * HALF / LANES * rows;
                    pulp::Arch::new().dispatch(Products {
                        rows: &lanes[lane + depth.start..lane + depth.end],
                        upper: half % 2 == 1,
                        columns: &lanes[first * rows + start..],
                        stride: rows,
                        more: start > 0,
                        sums,
                    });
                }
            }
            let column = first * LANES;
            for (half, sums) in halves.zip(&sums) {
                for (row, sums) in (half * HALF..features.end).zip(sums).filter(|(row, _)| *row >= column) {
                    let at = (row * (row + 1) - features.start * (features.start + 1)) / 2;
                    let totals = strip[at + column..=at + row].iter_mut();
                    totals.zip(sums.as_flattened()).for_each(|(total, sum)| *total += sum);
                }
            }
        }
    }
}

/// The products of half a lane of features with [`TILES`] lanes, which begin every `stride`.
struct Products<'a> {
    rows: &'a [Lane<f64>],
    /// Which half.
    upper: bool,
    columns: &'a [Lane<f64>],
    stride: usize,
    /// Whether to add to the sums rather than to replace them.
    more: bool,
    sums: &'a mut Sums,
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let registers = f64::registers::<S>(self.sums[0].as_flattened()).len();
        let mut done = 0;
        while S::REGISTER_COUNT >= 32 && done + 3 <= registers {
            self.some::<S, 3>(simd, done);
            done += 3;
        }
        while done < registers {
            self.some::<S, 1>(simd, done);
            done += 1;
        }
    }
}

impl Products<'_> {
    /// The registers from `first` on, counted tile by tile.
    #[inline(always)]
    fn some<S: Simd, const COUNT: usize>(&mut self, simd: S, first: usize) {
        let Self { rows, upper, columns, stride, more, sums } = self;
        let width = size_of::<Lane<f64>>() / size_of::<<f64 as Vector>::Register<S>>();
        let columns: [_; COUNT] = std::array::from_fn(|index| {
            let (tile, register) = ((first + index) / width, (first + index) % width);
            &f64::registers::<S>(columns[tile * *stride..][..rows.len()].as_flattened())[register..]
        });
        let mut registers = [[f64::splat(simd, 0.0); COUNT]; HALF];
        for (k, lane) in rows.iter().enumerate() {
            let columns = columns.map(|column| column[k * width]);
            let halves = lane.as_chunks::<HALF>().0;
            for (sums, &value) in registers.iter_mut().zip(&halves[usize::from(*upper)]) {
                let value = f64::splat(simd, value);
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = f64::plus_product(simd, *sum, value, column);
                }
            }
        }
        // Sums of sums: the rounding of each grows with its length.
        for (registers, sums) in registers.into_iter().zip(&mut **sums) {
            let sums = &mut f64::registers_mut::<S>(sums.as_flattened_mut())[first..first + COUNT];
            for (sum, register) in sums.iter_mut().zip(registers) {
                *sum = if *more { f64::plus(simd, *sum, register) } else { register };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::everywhere;

    struct Twice<'a> {
        lanes: &'a [Lane<f64>],
        rows: usize,
        upper: bool,
    }

    impl WithSimd for Twice<'_> {
        type Output = Sums;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Sums {
            let mut sums = [[[f64::NAN; LANES]; TILES]; HALF];
            for (part, more) in [(0..self.rows / 2, false), (self.rows / 2..self.rows, true)] {
                let columns = &self.lanes[self.rows + part.start..];
                let rows = &self.lanes[part];
                let sums = &mut sums;
                Products { rows, upper: self.upper, columns, stride: self.rows, more, sums }.with_simd(simd);
            }
            sums
        }
    }

    /// Sums of products of small integers are exact, fused or not.
    #[test]
    fn products_are_the_defined_ones() {
        for rows in [2, 3, 17] {
            let value = |at: usize| ((at * 7) % 11) as f64 - 5.0;
            let lanes: Vec<Lane<f64>> =
                (0..(TILES + 1) * rows).map(|at| std::array::from_fn(|column| value(at * 3 + column))).collect();
            for upper in [false, true] {
                for (name, sums) in everywhere(|| Twice { lanes: &lanes, rows, upper }) {
                    for (at, sum) in sums.as_flattened().as_flattened().iter().enumerate() {
                        let (row, tile, column) = (at / (TILES * LANES), at / LANES % TILES, at % LANES);
                        let row = row + if upper { HALF } else { 0 };
                        let want: f64 = (0..rows).map(|k| lanes[k][row] * lanes[(tile + 1) * rows + k][column]).sum();
                        assert!(*sum == want, "{name}: {rows} rows, {at}");
                    }
                }
            }
        }
    }
}
