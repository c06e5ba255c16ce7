//! Sixteen rows side by side.
//!
//! Sketches work on tiles of [`LANES`] rows, transposed: coordinate k of all sixteen rows lies in one [`Lane`]. A
//! butterfly of the Hadamard transform, a sampled coordinate and a weight then act on whole vectors of rows, without
//! shuffles on any instruction set, and in the same order for every row, whatever the block it is computed in.

use crate::rows::{Input, RowsMut};
use crate::scalar::Scalar;

/// Rows in a tile: one AVX-512 register of `f32`.
pub(crate) const LANES: usize = 16;

/// One coordinate of sixteen rows.
pub(crate) type Lane<T> = [T; LANES];

/// Lanes aligned to cache lines, so that a vector never straddles two.
#[derive(Debug)]
pub(crate) struct LaneBuffer<T> {
    data: Vec<T>,
    start: usize,
    lanes: usize,
}

impl<T: Scalar> LaneBuffer<T> {
    pub(crate) fn new(lanes: usize) -> Self {
        let slack = 64 / size_of::<T>();
        let data = vec![T::ZERO; lanes * LANES + slack];
        let start = data.as_ptr().align_offset(64).min(slack);
        Self { data, start, lanes }
    }

    #[inline(always)]
    pub(crate) fn as_mut(&mut self) -> &mut [Lane<T>] {
        self.data[self.start..][..self.lanes * LANES].as_chunks_mut().0
    }
}

#[inline(always)]
pub(crate) fn add<T: Scalar>(a: Lane<T>, b: Lane<T>) -> Lane<T> {
    std::array::from_fn(|lane| a[lane] + b[lane])
}

#[inline(always)]
pub(crate) fn sub<T: Scalar>(a: Lane<T>, b: Lane<T>) -> Lane<T> {
    std::array::from_fn(|lane| a[lane] - b[lane])
}

#[inline(always)]
pub(crate) fn mul<T: Scalar>(a: Lane<T>, b: Lane<T>) -> Lane<T> {
    std::array::from_fn(|lane| a[lane] * b[lane])
}

#[inline(always)]
pub(crate) fn scale<T: Scalar>(a: Lane<T>, factor: T) -> Lane<T> {
    std::array::from_fn(|lane| a[lane] * factor)
}

/// (a + ib)(c + id), in lanes.
#[inline(always)]
pub(crate) fn complex_mul<T: Scalar>(a: (Lane<T>, Lane<T>), b: (Lane<T>, Lane<T>)) -> (Lane<T>, Lane<T>) {
    (sub(mul(a.0, b.0), mul(a.1, b.1)), add(mul(a.0, b.1), mul(a.1, b.0)))
}

/// Loads the tile of `input` that starts at row `first` as x̃ = (√γ x, √ν); lanes past the last row hold
/// finite numbers that nobody reads.
///
/// `tile` has one lane per coordinate of x̃: the constant is there when it has one more lane than `input` columns.
#[inline(always)]
pub(crate) fn load<T: Scalar>(input: &Input<'_, T>, first: usize, root_gamma: T, root_coef0: T, tile: &mut [Lane<T>]) {
    let columns = input.columns();
    let rows = LANES.min(input.rows().saturating_sub(first));
    let (body, constant) = tile.split_at_mut(columns);
    match input {
        Input::Dense(dense) => {
            if rows < LANES {
                body.fill([T::ZERO; LANES]);
            }
            // Square pieces keep both sides of the transposition in the first-level cache.
            for (piece, lanes) in body.chunks_mut(LANES).enumerate() {
                for row in 0..rows {
                    let values = &dense.row(first + row)[piece * LANES..];
                    for (lane, &value) in lanes.iter_mut().zip(values) {
                        lane[row] = value * root_gamma;
                    }
                }
            }
        }
        Input::Sparse(sparse) => {
            body.fill([T::ZERO; LANES]);
            let entries = (0..rows).flat_map(|row| sparse.row(first + row).map(move |entry| (row, entry)));
            entries.for_each(|(row, (column, value))| body[column][row] += value * root_gamma);
        }
    }
    constant.fill([root_coef0; LANES]);
}

/// Where the columns of a lane go in a row of output: column of lane l is `start + l * step`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) start: usize,
    pub(crate) step: usize,
}

/// Writes `lanes`, times `factor`, into the rows of `out` from `first` on; reports whether all values are finite.
#[inline(always)]
pub(crate) fn store<T: Scalar>(
    lanes: &[Lane<T>],
    factor: T,
    layout: Layout,
    out: &mut RowsMut<'_, T>,
    first: usize,
) -> bool {
    let rows = LANES.min(out.rows() - first);
    let mut finite = true;
    for (piece, lanes) in lanes.chunks(LANES).enumerate() {
        let start = layout.start + piece * LANES * layout.step;
        for row in 0..rows {
            let values = &mut out.row_mut(first + row)[start..];
            if layout.step == 1 {
                for (value, lane) in values.iter_mut().zip(lanes) {
                    *value = lane[row] * factor;
                    finite &= value.is_finite();
                }
            } else {
                for (value, lane) in values.iter_mut().step_by(layout.step).zip(lanes) {
                    *value = lane[row] * factor;
                    finite &= value.is_finite();
                }
            }
        }
    }
    finite
}

/// Loads the columns that [`store`] would have written, times `factor`.
#[inline(always)]
pub(crate) fn gather<T: Scalar>(
    rows: &crate::rows::Rows<'_, T>,
    first: usize,
    factor: T,
    layout: Layout,
    lanes: &mut [Lane<T>],
) {
    let count = LANES.min(rows.rows() - first);
    if count < LANES {
        lanes.fill([T::ZERO; LANES]);
    }
    for row in 0..count {
        let values = rows.row(first + row)[layout.start..].iter().step_by(layout.step);
        for (lane, &value) in lanes.iter_mut().zip(values) {
            lane[row] = value * factor;
        }
    }
}
