//! Features added up over groups of rows, block by block: those of all rows are never in memory together.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::{FeatureMap, check_features};
use crate::error::{Argument, Error};
use crate::lanes::{LANES, LaneBuffer};
use crate::rows::{self, Groups, Input, RowsMut};
use crate::scalar::Scalar;

/// Rows of a group that are added one after the other. The sums of such runs are added pairwise, in an order that depends on the
/// number of rows in the group alone.
const RUN: usize = 128;

/// The most rows that a thread computes in order, if there are enough for this many shares per thread.
const MOST_ROWS: usize = 4096;
const SHARES: usize = 4;

/// What a map without blocks of its own computes at a time: few enough features for a second-level cache, and enough rows for most maps.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_ROWS: usize = 256;

/// Whole tiles of rows, at least one and at most `most_rows`, whose features take this many bytes.
pub(super) fn rows_within<T>(bytes: usize, features: usize, most_rows: usize) -> usize {
    let rows = bytes / size_of::<T>() / features.max(1);
    (rows / LANES * LANES).min(most_rows).max(LANES)
}

/// Checks that groups fit the inputs, and that a table has one row of features per group.
pub(super) fn check_shapes<T: Scalar>(
    map: &(impl FeatureMap<T> + ?Sized),
    inputs: &[Input<'_, T>],
    groups: &Groups,
    table: (Argument, usize, usize),
) -> Result<(), Error> {
    let rows = rows::check_shapes(map.input_dims(), inputs)?;
    if groups.rows() != rows {
        return Err(Error::invalid(Argument::Groups, format!("{rows} rows, as the input"), groups.rows()));
    }
    check_features(table, groups.count(), map.output_dim())
}

/// Writes the pooled features of any map; inputs and shapes are checked.
pub(super) fn transform<T: Scalar>(
    map: &(impl FeatureMap<T> + ?Sized),
    inputs: &[Input<'_, T>],
    groups: &Groups,
    out: RowsMut<'_, T>,
) -> Result<(), Error> {
    let block_rows = rows_within::<T>(BLOCK_BYTES, map.output_dim(), BLOCK_ROWS);
    let features = |(): &mut (), first: usize, out: RowsMut<'_, T>| {
        let rows = first..first + out.rows();
        let inputs: Vec<Input<'_, T>> = inputs.iter().map(|input| input.slice(rows.clone())).collect();
        map.transform_into(&inputs, out).map_err(|error| error.in_rows_from(first))
    };
    Pooling { block_rows, scratch: &|_| (), features: &features }.write(groups, out)
}

/// Writes the features of the rows from a given one on, as many as there is room for.
type Features<'a, T, S> = dyn Fn(&mut S, usize, RowsMut<'_, T>) -> Result<(), Error> + Sync + 'a;

/// How to compute features, block by block.
pub(super) struct Pooling<'a, T, S> {
    /// The most rows computed together.
    pub(super) block_rows: usize,
    /// Makes one thread's work space for blocks of at most this many rows.
    pub(super) scratch: &'a (dyn Fn(usize) -> S + Sync),
    pub(super) features: &'a Features<'a, T, S>,
}

impl<T: Scalar, S> Pooling<'_, T, S> {
    /// Writes the sum of the features of every group.
    pub(super) fn write(&self, groups: &Groups, out: RowsMut<'_, T>) -> Result<(), Error> {
        // No sum depends on this.
        let share = groups.rows().div_ceil(SHARES * rayon::current_num_threads()).clamp(RUN, MOST_ROWS);
        self.write_groups(groups, 0..groups.count(), out, share)
    }

    /// Writes the sums of some groups; no thread computes more than `share` rows in order.
    fn write_groups(
        &self,
        groups: &Groups,
        some: Range<usize>,
        mut out: RowsMut<'_, T>,
        share: usize,
    ) -> Result<(), Error> {
        let starts = &groups.starts()[some.start..=some.end];
        let (first, end) = (starts[0], starts[some.len()]);
        if end - first <= share {
            let mut block = self.block(first..end, out.columns());
            return some.enumerate().try_for_each(|(at, group)| {
                let sum = self.sum(groups.range(group), &mut block)?;
                round(&sum, out.row_mut(at), groups.range(group).start)
            });
        }
        if some.len() == 1 {
            let sum = self.sum_in_parallel(first..end, out.columns(), share)?;
            return round(&sum, out.row_mut(0), first);
        }
        let before = starts[1..some.len() - 1].partition_point(|&start| start < first.midpoint(end)) + 1;
        let (left, right) = out.split_at(before);
        let cut = some.start + before;
        let (left, right) = rayon::join(
            || self.write_groups(groups, some.start..cut, left, share),
            || self.write_groups(groups, cut..some.end, right, share),
        );
        left.and(right)
    }

    /// The sum of the features of some rows of one group, cut where [`Sums`] adds runs.
    fn sum_in_parallel(&self, rows: Range<usize>, columns: usize, share: usize) -> Result<Vec<f64>, Error> {
        if rows.len() <= share {
            return self.sum(rows.clone(), &mut self.block(rows, columns));
        }
        // As many runs on the left as the largest power of two that leaves some on the right.
        let runs = rows.len().div_ceil(RUN).next_power_of_two() / 2;
        let cut = rows.start + runs * RUN;
        let (left, right) = rayon::join(
            || self.sum_in_parallel(rows.start..cut, columns, share),
            || self.sum_in_parallel(cut..rows.end, columns, share),
        );
        let mut sum = left?;
        add(&mut sum, &right?);
        Ok(sum)
    }

    /// The sum of the features of some rows, all of one group. They follow those of the previous call with this block.
    fn sum(&self, mut rows: Range<usize>, block: &mut Block<T, S>) -> Result<Vec<f64>, Error> {
        let columns = block.columns;
        let mut sums = Sums::new(columns);
        while !rows.is_empty() {
            if block.rows.end <= rows.start {
                block.rows = rows.start..block.end.min(rows.start + self.block_rows);
                let features = &mut block.features.as_mut().as_flattened_mut()[..block.rows.len() * columns];
                let out = RowsMut::new(features, block.rows.len(), columns)?;
                (self.features)(&mut block.scratch, rows.start, out)?;
            }
            let stop = rows.end.min(block.rows.end);
            let (from, to) = (rows.start - block.rows.start, stop - block.rows.start);
            sums.add(&block.features.as_mut().as_flattened()[from * columns..to * columns]);
            rows.start = stop;
        }
        Ok(sums.total())
    }

    /// Room for blocks of some rows.
    fn block(&self, rows: Range<usize>, columns: usize) -> Block<T, S> {
        let most = rows.len().min(self.block_rows);
        Block {
            rows: rows.start..rows.start,
            end: rows.end,
            columns,
            features: LaneBuffer::new((most * columns).div_ceil(LANES)),
            scratch: (self.scratch)(most),
        }
    }
}

/// Features of a block of rows, which need not end where a group does.
struct Block<T, S> {
    /// The rows whose features these are.
    rows: Range<usize>,
    /// The end of the last block.
    end: usize,
    columns: usize,
    features: LaneBuffer<T>,
    scratch: S,
}

/// Writes sums in the type of the features; `first` is the first row of their group.
fn round<T: Scalar>(sums: &[f64], out: &mut [T], first: usize) -> Result<(), Error> {
    let mut finite = true;
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = T::from_f64(sum);
        finite &= out.is_finite();
    }
    if finite { Ok(()) } else { Err(Error::Overflow { row: first, dtype: T::NAME }) }
}

/// Sums of columns: rows are added in runs of [`RUN`], and runs pairwise.
struct Sums {
    /// Of the rows after the last whole run, and how many there are.
    run: Vec<f64>,
    rows: usize,
    /// Of 2^i whole runs at index i, if the number of whole runs has this bit.
    runs: Vec<Option<Vec<f64>>>,
}

impl Sums {
    fn new(columns: usize) -> Self {
        Self { run: vec![0.0; columns], rows: 0, runs: Vec::new() }
    }

    /// Adds rows that lie one after the other.
    fn add<T: Scalar>(&mut self, mut features: &[T]) {
        let columns = self.run.len();
        while !features.is_empty() {
            let taken = (features.len() / columns).min(RUN - self.rows);
            let (rows, later) = features.split_at(taken * columns);
            Arch::new().dispatch(AddRows { sums: &mut self.run, rows });
            self.rows += taken;
            if self.rows == RUN {
                self.end_run();
            }
            features = later;
        }
    }

    fn end_run(&mut self) {
        let columns = self.run.len();
        let mut sum = std::mem::replace(&mut self.run, vec![0.0; columns]);
        self.rows = 0;
        for of_as_many in &mut self.runs {
            match of_as_many.take() {
                Some(before) => add(&mut sum, &before),
                None => {
                    *of_as_many = Some(sum);
                    return;
                }
            }
        }
        self.runs.push(Some(sum));
    }

    fn total(self) -> Vec<f64> {
        let mut total = self.run;
        self.runs.iter().flatten().for_each(|sum| add(&mut total, sum));
        total
    }
}

fn add(sums: &mut [f64], others: &[f64]) {
    sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
}

/// Adds rows to sums, in order.
struct AddRows<'a, T> {
    sums: &'a mut [f64],
    rows: &'a [T],
}

impl<T: Scalar> WithSimd for AddRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let columns = self.sums.len();
        // Four rows side by side: sums are read and written a fourth as often.
        let (fours, rest) = self.rows.split_at(self.rows.len() / (4 * columns) * (4 * columns));
        for four in fours.chunks_exact(4 * columns) {
            let (first, last) = four.split_at(2 * columns);
            let ((a, b), (c, d)) = (first.split_at(columns), last.split_at(columns));
            for ((((sum, a), b), c), d) in self.sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *sum = *sum + a.to_f64() + b.to_f64() + c.to_f64() + d.to_f64();
            }
        }
        for row in rest.chunks_exact(columns) {
            for (sum, value) in self.sums.iter_mut().zip(row) {
                *sum += value.to_f64();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of all sizes, so that every order of additions rounds differently.
    fn feature(row: usize, column: usize) -> f64 {
        let turn = (row * 7919 + column * 104_729) as f64;
        turn.sin() * [1.0, 1e3, 1e7, 1e-4, 1e5][row % 5]
    }

    fn pooled(groups: &Groups, columns: usize, block_rows: usize, share: usize) -> Vec<f64> {
        let features = |(): &mut (), first: usize, mut out: RowsMut<'_, f64>| {
            assert!((1..=block_rows).contains(&out.rows()) && first + out.rows() <= groups.rows());
            for at in 0..out.rows() {
                let row = out.row_mut(at).iter_mut().enumerate();
                row.for_each(|(column, value)| *value = feature(first + at, column));
            }
            Ok(())
        };
        let mut sums = vec![f64::NAN; groups.count() * columns];
        let out = RowsMut::new(&mut sums, groups.count(), columns).unwrap();
        let pooling = Pooling { block_rows, scratch: &|_| (), features: &features };
        pooling.write_groups(groups, 0..groups.count(), out, share).unwrap();
        sums
    }

    /// The order of additions in words: rows one after the other within a run, runs pairwise.
    fn expected(rows: Range<usize>, column: usize) -> f64 {
        let runs = rows.len().div_ceil(RUN);
        if runs <= 1 {
            return rows.fold(0.0, |sum, row| sum + feature(row, column));
        }
        let cut = rows.start + (runs.next_power_of_two() / 2) * RUN;
        expected(rows.start..cut, column) + expected(cut..rows.end, column)
    }

    #[test]
    fn the_order_of_additions_depends_on_the_group_alone() {
        let columns = 5;
        for starts in [
            &[0, 0][..],
            &[0, 1, 2, 3, 3, 10],
            &[0, 127, 255, 384, 384, 513],
            &[0, 3000],
            &[0, 0, 5, 1200, 1201, 1201, 1300, 2068, 2068],
        ] {
            let groups = Groups::from_starts(starts).unwrap();
            let want: Vec<f64> = (0..groups.count())
                .flat_map(|group| (0..columns).map(move |column| (group, column)))
                .map(|(group, column)| expected(groups.range(group), column))
                .collect();
            for share in [RUN, 2 * RUN + 5, 1000, usize::MAX] {
                for block_rows in [1, 16, 100, 256] {
                    assert!(pooled(&groups, columns, block_rows, share) == want, "{starts:?} {share} {block_rows}");
                }
            }
        }
    }

    #[test]
    fn of_several_errors_the_first_is_returned() {
        let groups = Groups::even(4000, 10).unwrap();
        let bad = [1234, 1300, 3999];
        let features = |(): &mut (), first: usize, out: RowsMut<'_, f32>| {
            let row = bad.into_iter().find(|row| (first..first + out.rows()).contains(row));
            super::super::overflow_at::<f32>(row)
        };
        let mut sums = vec![0.0; 400];
        let pooling = Pooling { block_rows: 16, scratch: &|_| (), features: &features };
        let error = pooling.write(&groups, RowsMut::new(&mut sums, 400, 1).unwrap()).unwrap_err();
        assert_eq!(error, Error::Overflow { row: 1234, dtype: "f32" });
    }
}
