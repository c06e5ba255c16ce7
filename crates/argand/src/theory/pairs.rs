//! All pairs of rows of a sample, in blocks and in parallel.

use std::ops::Range;

use argand_linalg::{View, ViewMut, product};
use rayon::prelude::*;

use super::variance::{PairStatistics, power};
use crate::error::{Argument, Error};
use crate::fit::Fit;
use crate::rng::{Purpose, Stream};
use crate::rows::{Input, Rows};
use crate::scalar::Scalar;
use crate::spec::{InputDims, Kernel, Spec};

/// Rows in a block: its products stay in the second-level cache, and there are enough blocks for all threads.
const BLOCK: usize = 128;

/// Rows in double precision, ready for their inner products.
#[derive(Debug)]
pub(crate) struct Sample {
    kernel: Kernel,
    /// γ and ν of the vectors x̃ whose statistics are computed.
    lift: [f64; 2],
    distinct: bool,
    tables: Vec<Table>,
    rows: usize,
}

#[derive(Debug)]
struct Table {
    entries: Entries,
    /// ‖x‖² of every row.
    norms: Vec<f64>,
}

#[derive(Debug)]
enum Entries {
    Dense {
        columns: usize,
        values: Vec<f64>,
        squares: Vec<f64>,
    },
    /// The occurring columns, renumbered, and the entries of every row by ascending column.
    Sparse {
        columns: usize,
        starts: Vec<usize>,
        entries: Vec<(usize, f64)>,
    },
}

impl Table {
    /// Dense rows are shifted by the centre, if there is one; sparse rows with a centre become dense. Then all are divided by the scale.
    fn new<T: Scalar>(input: &Input<'_, T>, centre: Option<&[f64]>, scale: f64) -> Self {
        match input {
            Input::Sparse(rows) if centre.is_some() => {
                let mut values = vec![T::ZERO; rows.rows() * rows.columns()];
                for (row, to) in values.chunks_exact_mut(rows.columns()).enumerate() {
                    rows.row(row).for_each(|(column, value)| to[column] += value);
                }
                let dense = Rows::new(&values, rows.rows(), rows.columns());
                Self::new(&dense.unwrap_or_else(|_| unreachable!("the length fits")).into(), centre, scale)
            }
            Input::Dense(rows) => {
                let mut values: Vec<f64> =
                    (0..rows.rows()).flat_map(|row| rows.row(row)).map(|value| value.to_f64()).collect();
                if let Some(centre) = centre {
                    for row in values.chunks_exact_mut(rows.columns()) {
                        row.iter_mut().zip(centre).for_each(|(value, centre)| *value -= centre);
                    }
                }
                values.iter_mut().for_each(|value| *value /= scale);
                let squares: Vec<f64> = values.iter().map(|value| value * value).collect();
                let columns = rows.columns();
                let norms = (0..rows.rows()).map(|row| squares[row * columns..][..columns].iter().sum()).collect();
                Self { entries: Entries::Dense { columns, values, squares }, norms }
            }
            Input::Sparse(rows) => {
                let mut used: Vec<usize> =
                    (0..rows.rows()).flat_map(|row| rows.row(row)).map(|(column, _)| column).collect();
                used.sort_unstable();
                used.dedup();
                let (mut starts, mut entries) = (vec![0], Vec::new());
                for row in 0..rows.rows() {
                    let place = |column| used.partition_point(|&other| other < column);
                    let mut row: Vec<(usize, f64)> =
                        rows.row(row).map(|(column, value)| (place(column), value.to_f64() / scale)).collect();
                    row.sort_by_key(|&(column, _)| column);
                    // Duplicate entries of a column are summed.
                    let same = row.chunk_by(|a, b| a.0 == b.0);
                    entries.extend(same.map(|same| (same[0].0, same.iter().map(|(_, value)| value).sum::<f64>())));
                    starts.push(entries.len());
                }
                let norm = |ends: &[usize]| entries[ends[0]..ends[1]].iter().map(|(_, value)| value * value).sum();
                let norms = starts.windows(2).map(norm).collect();
                Self { norms, entries: Entries::Sparse { columns: used.len(), starts, entries } }
            }
        }
    }

    /// ⟨x, y⟩ and, if wanted, Σ x²y² of a block of pairs, row by row.
    fn products(&self, first: &Range<usize>, second: &Range<usize>, squares: bool) -> [Vec<f64>; 2] {
        match &self.entries {
            Entries::Dense { columns, values, squares: squared } => [(values, true), (squared, squares)]
                .map(|(values, wanted)| if wanted { inner_products(values, *columns, first, second) } else { vec![] }),
            Entries::Sparse { columns, starts, entries } => {
                let of = |row: usize| &entries[starts[row]..starts[row + 1]];
                let mut inner = Vec::with_capacity(first.len() * second.len());
                let mut squared = Vec::with_capacity(if squares { inner.capacity() } else { 0 });
                let mut spread = vec![0.0; *columns];
                for row in first.clone() {
                    of(row).iter().for_each(|&(column, value)| spread[column] = value);
                    for other in second.clone() {
                        let products = of(other).iter().map(|&(column, value)| value * spread[column]);
                        inner.push(products.clone().sum());
                        if squares {
                            squared.push(products.map(|product| product * product).sum());
                        }
                    }
                    of(row).iter().for_each(|&(column, _)| spread[column] = 0.0);
                }
                [inner, squared]
            }
        }
    }
}

/// Inner products of the rows `first` with the rows `second` of one row-major table.
pub(super) fn inner_products(values: &[f64], columns: usize, first: &Range<usize>, second: &Range<usize>) -> Vec<f64> {
    let mut products = vec![0.0; first.len() * second.len()];
    let part =
        |rows: &Range<usize>| View::by_rows(&values[rows.start * columns..rows.end * columns], rows.len(), columns);
    let out = ViewMut::by_rows(&mut products, first.len(), second.len());
    product(out, part(first), part(second).transpose(), 1.0);
    products
}

/// A quantity of pairs, summed row by row.
#[derive(Debug, Clone)]
pub(crate) struct RowSums {
    /// Σ_{j≠i} f(i, j)
    pub(super) others: Vec<f64>,
    /// f(i, i)
    pub(super) itself: Vec<f64>,
}

impl Sample {
    /// The inputs must fit the spec and be finite.
    pub(super) fn new<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>]) -> Self {
        Self::around(spec, inputs, centre(spec, inputs).as_deref())
    }

    /// Some of the rows with a given [`centre`].
    pub(super) fn around<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>], centre: Option<&[f64]>) -> Self {
        Self { lift: spec.kernel.lift(), ..Self::centred(spec, inputs, centre, 1.0) }
    }

    /// The same with x̃ = (x − c)/s for a centre c and a scale s, whatever the kernel.
    pub(crate) fn centred<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>], centre: Option<&[f64]>, scale: f64) -> Self {
        Self {
            kernel: spec.kernel.clone(),
            lift: [1.0, 0.0],
            distinct: matches!(spec.inputs, InputDims::Distinct(_)),
            tables: inputs.iter().map(|input| Table::new(input, centre, scale)).collect(),
            rows: inputs.first().map_or(0, Input::rows),
        }
    }

    /// ‖x‖² of every row of the first table.
    pub(crate) fn squared_norms(&self) -> impl Iterator<Item = f64> + '_ {
        self.tables.iter().take(1).flat_map(|table| table.norms.iter().copied())
    }

    /// ⟨x, y⟩ of every pair of rows of the first table, row by row.
    pub(crate) fn inner_products(&self) -> Vec<f64> {
        let all = 0..self.rows;
        self.tables.first().map_or(Vec::new(), |table| {
            let [inner, _] = table.products(&all, &all, false);
            inner
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// k(x, y) from the statistics of each table.
    #[inline(always)]
    pub(super) fn kernel(&self, factors: &[PairStatistics]) -> f64 {
        match &self.kernel {
            Kernel::Polynomial(_) if self.distinct => factors.iter().map(|factor| factor.inner).product(),
            Kernel::Polynomial(kernel) => factors.first().map_or(1.0, |factor| power(factor.inner, kernel.degree)),
            kernel => factors.first().map_or(1.0, |factor| kernel.value(factor.inner, factor.norm_sum)),
        }
    }

    /// The pairs of one block with j ≤ i: calls `visit((i, j), statistics)`; `squares` stay 0 unless requested.
    fn visit(
        &self,
        [first, second]: [&Range<usize>; 2],
        squares: bool,
        mut visit: impl FnMut((usize, usize), &[PairStatistics]),
    ) {
        let products: Vec<_> = self.tables.iter().map(|table| table.products(first, second, squares)).collect();
        let mut factors =
            vec![PairStatistics { inner: 0.0, squares: 0.0, norms: 0.0, norm_sum: 0.0 }; self.tables.len()];
        for (row, i) in first.clone().enumerate() {
            for (column, j) in second.clone().enumerate().take_while(|&(_, j)| j <= i) {
                let at = row * second.len() + column;
                for (factor, (table, [inner, squared])) in factors.iter_mut().zip(self.tables.iter().zip(&products)) {
                    let squares = if squares { squared[at] } else { 0.0 };
                    *factor =
                        PairStatistics::from_sums(self.lift, inner[at], squares, [table.norms[i], table.norms[j]]);
                }
                visit((i, j), &factors);
            }
        }
    }

    /// Sums of several quantities of every pair. `prepare` is called once per block of pairs, `quantities` once per pair with
    /// its result, the place of the pair in the block, the pair's statistics and where the quantities go.
    ///
    /// The sums do not depend on the number of threads.
    pub(crate) fn row_sums<P>(
        &self,
        count: usize,
        squares: bool,
        prepare: impl Fn(&Range<usize>, &Range<usize>) -> P + Sync,
        quantities: impl Fn(&P, usize, &[PairStatistics], &mut [f64]) + Sync,
    ) -> Vec<RowSums> {
        let starts: Vec<usize> = (0..self.rows).step_by(BLOCK).collect();
        let range = |start: usize| start..(start + BLOCK).min(self.rows);
        let blocks: Vec<[Range<usize>; 2]> = starts
            .iter()
            .flat_map(|&i| starts.iter().filter(move |&&j| j <= i).map(move |&j| [range(i), range(j)]))
            .collect();
        let sums: Vec<_> = blocks
            .par_iter()
            .map(|[first, second]| {
                let prepared = prepare(first, second);
                let mut values = vec![0.0; count];
                let [mut of_first, mut of_second, mut itself] =
                    [first, second, first].map(|rows| vec![0.0; count * rows.len()]);
                self.visit([first, second], squares, |(i, j), factors| {
                    let (row, column) = (i - first.start, j - second.start);
                    quantities(&prepared, row * second.len() + column, factors, &mut values);
                    for (quantity, &value) in values.iter().enumerate() {
                        if i == j {
                            itself[quantity * first.len() + row] = value;
                        } else {
                            of_first[quantity * first.len() + row] += value;
                            of_second[quantity * second.len() + column] += value;
                        }
                    }
                });
                (of_first, of_second, itself)
            })
            .collect();
        let empty = RowSums { others: vec![0.0; self.rows], itself: vec![0.0; self.rows] };
        let mut total = vec![empty; count];
        for ([first, second], (of_first, of_second, itself)) in blocks.iter().zip(sums) {
            for (quantity, total) in total.iter_mut().enumerate() {
                for (rows, part) in [(first, &of_first), (second, &of_second)] {
                    for (sum, value) in total.others[rows.clone()].iter_mut().zip(&part[quantity * rows.len()..]) {
                        *sum += value;
                    }
                }
                for (sum, value) in total.itself[first.clone()].iter_mut().zip(&itself[quantity * first.len()..]) {
                    *sum += value;
                }
            }
        }
        total
    }
}

/// Where the origin of rows is put for a Gaussian kernel: distances are more accurate, and statistics those of a Maclaurin sum, with the rows around
/// their centre.
pub(super) fn centre<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>]) -> Option<Vec<f64>> {
    spec.kernel.radial().and_then(|_| match &spec.fit {
        Some(Fit::Maclaurin(allocation)) => allocation.centre.clone(),
        _ => inputs.first().and_then(mean),
    })
}

/// The mean of dense rows.
pub(crate) fn mean<T: Scalar>(input: &Input<'_, T>) -> Option<Vec<f64>> {
    let Input::Dense(rows) = input else { return None };
    let mut mean = vec![0.0; rows.columns()];
    for row in 0..rows.rows() {
        mean.iter_mut().zip(rows.row(row)).for_each(|(sum, value)| *sum += value.to_f64());
    }
    mean.iter_mut().for_each(|sum| *sum /= rows.rows() as f64);
    Some(mean)
}

/// Checks that tables fit a spec and each other, are not empty and hold finite numbers.
pub(super) fn check<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>]) -> Result<(), Error> {
    spec.validate()?;
    if crate::rows::check_shapes(spec.inputs.as_slice(), inputs)? == 0 {
        return Err(Error::invalid(Argument::Input(None), "at least one row", 0));
    }
    crate::rows::check_finite(inputs)
}

/// A sample of `total` rows without repetition, in ascending order; all of them if that many are requested.
pub(crate) fn choose_rows(total: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..total).collect();
    if wanted < total {
        let mut stream = Stream::new(seed, Purpose::Sample, 0, 0);
        for position in 0..wanted {
            // Tables of more than 2³² rows are sampled from their first ones.
            let left = u32::try_from(total - position).unwrap_or(u32::MAX);
            order.swap(position, position + stream.below(left) as usize);
        }
        order.truncate(wanted);
        order.sort_unstable();
    }
    order
}

/// The exact kernel of every pair of rows, row by row.
///
/// # Formula
/// [`Kernel::value`], or Πᵢ (γ⟨xᵢ, yᵢ⟩ + ν) with one table per factor.
///
/// # Cost
/// n² d operations, in blocks and in parallel; 8n² bytes.
///
/// # Errors
/// As [`Spec::validate`]; [`Error::Invalid`] and [`Error::NotFinite`] for tables that do not fit, [`Error::TooLarge`] for a
/// result of more than [`DEFAULT_MEMORY_LIMIT`](crate::DEFAULT_MEMORY_LIMIT).
pub fn kernel_matrix<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>]) -> Result<Vec<f64>, Error> {
    check(spec, inputs)?;
    let sample = Sample::new(spec, inputs);
    let rows = sample.rows;
    let needed = (rows as u64).saturating_mul(rows as u64).saturating_mul(8);
    if needed > crate::DEFAULT_MEMORY_LIMIT {
        return Err(Error::TooLarge { needed, limit: crate::DEFAULT_MEMORY_LIMIT });
    }
    let mut matrix = vec![0.0; rows * rows];
    matrix.par_chunks_mut(BLOCK * rows).enumerate().for_each(|(block, part)| {
        let first = block * BLOCK..(block * BLOCK + part.len() / rows);
        sample.visit([&first, &(0..first.end)], false, |(i, j), factors| {
            part[(i - first.start) * rows + j] = sample.kernel(factors);
        });
    });
    for i in 0..rows {
        for j in 0..i {
            matrix[j * rows + i] = matrix[i * rows + j];
        }
    }
    Ok(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row is equally likely, whatever its place.
    #[test]
    fn rows_are_chosen_at_random() {
        let (total, wanted, seeds) = (200, 50, 400);
        let mut chosen = vec![0_u32; total];
        for seed in 0..seeds {
            let rows = choose_rows(total, wanted, seed);
            assert!(rows.len() == wanted && rows.is_sorted_by(|a, b| a < b), "{rows:?}");
            rows.iter().for_each(|&row| chosen[row] += 1);
        }
        // Each is binomial with mean 100 and deviation 8.7: six deviations, for 200 rows.
        let bounds = 48..=152;
        assert!(chosen.iter().all(|count| bounds.contains(count)), "{chosen:?}");
        assert_eq!(choose_rows(7, 9, 3), [0, 1, 2, 3, 4, 5, 6]);
    }
}
