//! ΦᵀΦ of a block of rows in f64: half of a matrix product, with one copy of the features for both sides.
//!
//! Products of f32 features are exact in f64. Sums in f32 would be off by 10⁻⁷ of the largest entry, which can be more than all that a
//! model is to learn from, where rows are long or a penalty is small.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Features that lie side by side for each row: a cache line.
pub(super) const WIDTH: usize = 8;
pub(super) type Group = [f64; WIDTH];
/// Groups that one group is multiplied with: 8 x 3 registers of 32, or 8 of 16, at a time.
const TILES: usize = 3;
/// Rows at a time: of them, the groups that others are multiplied with stay in a first-level cache ...
const DEPTH: usize = 128;
/// ... and this many of the others, of all blocks, in a second-level one.
const STRIP: usize = 12;
/// Sums of the products of one group with [`TILES`] others.
type Sums = [[Group; TILES]; WIDTH];
/// Sums of a group that are added to a row of the triangle one after the other: some lines of it.
const TOGETHER: usize = 4;

/// Some rows of features: a block of [`DEPTH`] rows (or the last, shorter one) after the other, of each block a group of features after
/// the other, and of each group its rows. What is worked on together so lies together, and is not found in the few places of a cache that
/// addresses far apart by a power of two share.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// With some numbers to spare, so that groups can start a cache line.
    numbers: Vec<f64>,
    start: usize,
    rows: usize,
    /// For each row.
    groups: usize,
}

impl Packed {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Copies rows, of which there is at least one.
    pub(super) fn fill(&mut self, rows: &[&[f32]]) {
        let groups = rows[0].len().div_ceil(WIDTH).next_multiple_of(TILES);
        let needed = groups * rows.len() * WIDTH + WIDTH;
        if self.numbers.len() < needed {
            self.numbers = vec![0.0; needed];
            self.start = self.numbers.as_ptr().align_offset(size_of::<Group>()).min(WIDTH);
        }
        (self.rows, self.groups) = (rows.len(), groups);
        let packed = &mut self.numbers[self.start..].as_chunks_mut::<WIDTH>().0[..groups * rows.len()];
        packed.par_chunks_mut(DEPTH * groups).zip(rows.par_chunks(DEPTH)).for_each(|(packed, rows)| {
            pulp::Arch::new().dispatch(Fill { rows, packed });
        });
    }

    /// The blocks of rows, and how many rows each has.
    fn blocks(&self) -> impl Iterator<Item = (&[Group], usize)> {
        let packed = &self.numbers[self.start..].as_chunks::<WIDTH>().0[..self.groups * self.rows];
        packed.chunks(DEPTH * self.groups).map(|block| (block, block.len() / self.groups))
    }

    /// One group, row by row.
    pub(super) fn group(&self, index: usize) -> impl Iterator<Item = &Group> {
        self.blocks().flat_map(move |(block, rows)| &block[index * rows..][..rows])
    }

    /// Adds ΦᵀΦ to a lower triangle that is stored row by row. One of zeros is not read: to hand out memory that is read and then written
    /// takes the system twice as long.
    pub(super) fn add_products(&self, dim: usize, triangle: &mut [f64], zeros: bool) {
        let (mut strips, mut rest) = (Vec::new(), triangle);
        for start in (0..dim).step_by(STRIP * WIDTH) {
            let end = (start + STRIP * WIDTH).min(dim);
            let strip;
            (strip, rest) = rest.split_at_mut((end * (end + 1) - start * (start + 1)) / 2);
            strips.push((start..end, strip));
        }
        // The longest first, so that threads end together.
        strips
            .into_par_iter()
            .rev()
            .with_max_len(1)
            .for_each(|(features, strip)| self.add_strip(features, strip, zeros));
    }

    /// Adds the products of some features, which start a group, with all features up to themselves.
    fn add_strip(&self, features: Range<usize>, strip: &mut [f64], zeros: bool) {
        let groups = features.start / WIDTH..features.end.div_ceil(WIDTH);
        let mut sums = vec![[Sums::default(); TOGETHER]; groups.len()];
        for start in (0..groups.end).step_by(TOGETHER * TILES) {
            let columns: Vec<usize> = (start..groups.end).step_by(TILES).take(TOGETHER).collect();
            for (index, (block, rows)) in self.blocks().enumerate() {
                let group = |index: usize| &block[index * rows..][..rows];
                for (place, &first) in columns.iter().enumerate() {
                    let columns = std::array::from_fn(|tile| group(first + tile));
                    // Groups before the first are in the upper triangle.
                    for (at, sums) in groups.clone().zip(&mut sums).skip(first.saturating_sub(groups.start)) {
                        let sums = &mut sums[place];
                        pulp::Arch::new().dispatch(Products { rows: group(at), columns, more: index > 0, sums });
                    }
                }
            }
            for (group, sums) in groups.clone().zip(&sums).skip(start.saturating_sub(groups.start)) {
                for (within, row) in (group * WIDTH..features.end).enumerate().take(WIDTH) {
                    let at = (row * (row + 1) - features.start * (features.start + 1)) / 2;
                    for (first, sums) in columns.iter().zip(sums).take_while(|(first, _)| **first <= group) {
                        let totals = strip[at + first * WIDTH..=at + row].iter_mut();
                        let sums = totals.zip(sums[within].as_flattened());
                        sums.for_each(|(total, sum)| *total = if zeros { 0.0 } else { *total } + sum);
                    }
                }
            }
        }
    }
}

/// Copies rows into groups; what is beyond the last feature goes nowhere.
struct Fill<'a> {
    rows: &'a [&'a [f32]],
    packed: &'a mut [Group],
}

impl WithSimd for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        /// Groups that are copied before the next ones: some lines from each row.
        const ACROSS: usize = 16;
        let count = self.rows.len();
        for (part, packed) in self.packed.chunks_mut(ACROSS * count).enumerate() {
            for (within, row) in self.rows.iter().enumerate() {
                let (values, rest) = row[(part * ACROSS * WIDTH).min(row.len())..].as_chunks::<WIDTH>();
                for (packed, values) in packed.chunks_mut(count).zip(values) {
                    packed[within] = values.map(f64::from);
                }
                if let Some(last) = packed.get_mut(values.len() * count + within) {
                    last.iter_mut().zip(rest).for_each(|(to, &from)| *to = f64::from(from));
                }
            }
        }
    }
}

/// The products of a group of features with [`TILES`] groups, row by row.
struct Products<'a> {
    rows: &'a [Group],
    columns: [&'a [Group]; TILES],
    /// Whether to add to the sums rather than to replace them.
    more: bool,
    sums: &'a mut Sums,
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let registers = S::as_simd_f64s(self.sums[0].as_flattened()).0.len();
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
        let Self { rows, columns, more, sums } = self;
        let width = size_of::<Group>() / size_of::<S::f64s>();
        let columns: [_; COUNT] = std::array::from_fn(|index| {
            let (tile, register) = ((first + index) / width, (first + index) % width);
            &S::as_simd_f64s(columns[tile][..rows.len()].as_flattened()).0[register..]
        });
        let mut registers = [[simd.splat_f64s(0.0); COUNT]; WIDTH];
        for (k, row) in rows.iter().enumerate() {
            let columns = columns.map(|column| column[k * width]);
            for (sums, &value) in registers.iter_mut().zip(row) {
                let value = simd.splat_f64s(value);
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = simd.mul_add_e_f64s(value, column, *sum);
                }
            }
        }
        // Sums of sums: the rounding of each grows with its length.
        for (registers, sums) in registers.into_iter().zip(&mut **sums) {
            let sums = &mut S::as_mut_simd_f64s(sums.as_flattened_mut()).0[first..first + COUNT];
            for (sum, register) in sums.iter_mut().zip(registers) {
                *sum = if *more { simd.add_f64s(*sum, register) } else { register };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `make()` in plain code and on every instruction set that this processor has.
    fn everywhere<Op: WithSimd>(make: impl Fn() -> Op) -> Vec<(&'static str, Op::Output)> {
        let mut results = vec![("plain code", Simd::vectorize(pulp::Scalar, make()))];
        #[cfg(target_arch = "x86_64")]
        {
            results.extend(pulp::x86::V3::try_new().map(|simd| ("AVX2", Simd::vectorize(simd, make()))));
            results.extend(pulp::x86::V4::try_new().map(|simd| ("AVX-512", Simd::vectorize(simd, make()))));
        }
        #[cfg(target_arch = "aarch64")]
        results.extend(pulp::aarch64::Neon::try_new().map(|simd| ("NEON", Simd::vectorize(simd, make()))));
        results
    }

    struct Twice<'a> {
        packed: &'a [Group],
    }

    impl WithSimd for Twice<'_> {
        type Output = Sums;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Sums {
            let mut sums = [[[f64::NAN; WIDTH]; TILES]; WIDTH];
            let rows = self.packed.len() / (TILES + 1);
            for (part, more) in [(0..rows / 2, false), (rows / 2..rows, true)] {
                let group = |index: usize| &self.packed[index * rows..][part.clone()];
                let columns = std::array::from_fn(|tile| group(tile + 1));
                Products { rows: group(0), columns, more, sums: &mut sums }.with_simd(simd);
            }
            sums
        }
    }

    /// Sums of products of small integers are exact, fused or not.
    #[test]
    fn products_are_the_defined_ones() {
        for rows in [2, 3, 17] {
            let value = |at: usize| ((at * 7) % 11) as f64 - 5.0;
            let packed: Vec<Group> =
                (0..(TILES + 1) * rows).map(|at| std::array::from_fn(|column| value(at * 3 + column))).collect();
            for (name, sums) in everywhere(|| Twice { packed: &packed }) {
                for (at, sum) in sums.as_flattened().as_flattened().iter().enumerate() {
                    let (row, tile, column) = (at / (TILES * WIDTH), at / WIDTH % TILES, at % WIDTH);
                    let want: f64 = (0..rows).map(|k| packed[k][row] * packed[(tile + 1) * rows + k][column]).sum();
                    assert!(*sum == want, "{name}: {rows} rows, {at}");
                }
            }
        }
    }
}
