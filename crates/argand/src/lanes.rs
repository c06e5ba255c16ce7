//! Sixteen rows side by side.
//!
//! Sketches work on tiles of [`LANES`] rows, transposed: coordinate k of all sixteen rows lies in one [`Lane`]. A
//! butterfly of the Hadamard transform, a sampled coordinate and a weight then act on whole vectors of rows, without
//! shuffles on any instruction set, and in the same order for every row, whatever the block it is computed in.

use pulp::{Arch, Simd, WithSimd};

use crate::rows::{Input, Rows, RowsMut};
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

/// Writes lanes times a factor each. In registers: left to itself, the compiler gathers numbers across lanes.
#[inline(always)]
pub(crate) fn scale_into<T: Scalar, S: Simd>(
    simd: S,
    from: &[Lane<T>],
    factors: impl IntoIterator<Item = T>,
    to: &mut [Lane<T>],
) {
    for ((to, from), factor) in to.iter_mut().zip(from).zip(factors) {
        let factor = T::splat(simd, factor);
        for (to, &from) in T::registers_mut::<S>(to).iter_mut().zip(T::registers::<S>(from)) {
            *to = T::times(simd, from, factor);
        }
    }
}

/// As [`scale_into`], in place.
#[inline(always)]
pub(crate) fn scale_each<T: Scalar, S: Simd>(simd: S, lanes: &mut [Lane<T>], factors: &[T]) {
    for (lane, &factor) in lanes.iter_mut().zip(factors) {
        let factor = T::splat(simd, factor);
        for value in T::registers_mut::<S>(lane) {
            *value = T::times(simd, *value, factor);
        }
    }
}

/// (a + ib)(c + id), in lanes.
#[inline(always)]
pub(crate) fn complex_mul<T: Scalar>(a: (Lane<T>, Lane<T>), b: (Lane<T>, Lane<T>)) -> (Lane<T>, Lane<T>) {
    (sub(mul(a.0, b.0), mul(a.1, b.1)), add(mul(a.0, b.1), mul(a.1, b.0)))
}

/// As [`complex_mul`], in registers. Every product and sum is rounded, as on machines without fused multiply-add.
#[inline(always)]
pub(crate) fn complex_product<T: Scalar, S: Simd>(
    simd: S,
    a: (T::Register<S>, T::Register<S>),
    b: (T::Register<S>, T::Register<S>),
) -> (T::Register<S>, T::Register<S>) {
    let re = T::minus(simd, T::times(simd, a.0, b.0), T::times(simd, a.1, b.1));
    (re, T::plus(simd, T::times(simd, a.0, b.1), T::times(simd, a.1, b.0)))
}

/// Loads the tile of `input` that starts at row `first` as x̃ = (√γ x, √ν); lanes past the last row hold finite numbers
/// that are never read.
///
/// `tile` has one lane per coordinate of x̃: the constant is present when it has one more lane than `input` has columns.
pub(crate) fn load<T: Scalar>(
    arch: Arch,
    input: &Input<'_, T>,
    first: usize,
    [root_gamma, root_coef0]: [T; 2],
    tile: &mut [Lane<T>],
) {
    let (body, constant) = tile.split_at_mut(input.columns());
    match input {
        Input::Dense(rows) => arch.dispatch(Load { rows, first, root_gamma, lanes: body }),
        Input::Sparse(rows) => {
            body.fill([T::ZERO; LANES]);
            let count = LANES.min(rows.rows().saturating_sub(first));
            let entries = (0..count).flat_map(|row| rows.row(first + row).map(move |entry| (row, entry)));
            entries.for_each(|(row, (column, value))| body[column][row] += value * root_gamma);
        }
    }
    constant.fill([root_coef0; LANES]);
}

/// Loads one row of `input` as x̃ = (√γ x, √ν), as [`load`] does.
pub(crate) fn load_row<T: Scalar>(input: &Input<'_, T>, row: usize, [root_gamma, root_coef0]: [T; 2], x: &mut [T]) {
    let (body, constant) = x.split_at_mut(input.columns());
    match input {
        Input::Dense(rows) => body.iter_mut().zip(rows.row(row)).for_each(|(to, &x)| *to = x * root_gamma),
        Input::Sparse(rows) => {
            body.fill(T::ZERO);
            rows.row(row).for_each(|(column, value)| body[column] += value * root_gamma);
        }
    }
    constant.fill(root_coef0);
}

struct Load<'a, 'b, T> {
    rows: &'a Rows<'b, T>,
    first: usize,
    root_gamma: T,
    lanes: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for Load<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, first, root_gamma, lanes } = self;
        let count = LANES.min(rows.rows().saturating_sub(first));
        let mut square = Aligned([[T::ZERO; LANES]; LANES]);
        let (pieces, rest) = lanes.as_chunks_mut::<LANES>();
        let whole = pieces.len() * LANES;
        for (piece, lanes) in pieces.iter_mut().enumerate() {
            for row in 0..count {
                let (values, _) = rows.row(first + row).as_chunks::<LANES>();
                square.0[row] = scale(values[piece], root_gamma);
            }
            for (quad, lanes) in lanes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *lanes = T::transpose(simd, &square.0, quad);
            }
        }
        for row in 0..count {
            for (to, &value) in square.0[row].iter_mut().zip(&rows.row(first + row)[whole..]) {
                *to = value * root_gamma;
            }
        }
        for (quad, lanes) in rest.chunks_mut(4).enumerate() {
            let columns = T::transpose(simd, &square.0, quad);
            lanes.copy_from_slice(&columns[..lanes.len()]);
        }
    }
}

/// Lanes that a kernel keeps in the first-level cache; no vector straddles two cache lines.
#[repr(align(64))]
pub(crate) struct Aligned<L>(pub(crate) L);

/// Multiplies `re` and `im` by new factors, or, if `first`, replaces them. `im` is empty if factors are real.
pub(crate) fn multiply<T: Scalar>(
    arch: Arch,
    re: &mut [Lane<T>],
    im: &mut [Lane<T>],
    new_re: &[Lane<T>],
    new_im: &[Lane<T>],
    first: bool,
) {
    if first {
        re.copy_from_slice(new_re);
        im.copy_from_slice(&new_im[..im.len()]);
    } else {
        arch.dispatch(Multiply { re, im, new_re, new_im });
    }
}

/// Multiplies `re` and `im` by new factors.
pub(crate) struct Multiply<'a, T> {
    pub(crate) re: &'a mut [Lane<T>],
    pub(crate) im: &'a mut [Lane<T>],
    pub(crate) new_re: &'a [Lane<T>],
    pub(crate) new_im: &'a [Lane<T>],
}

impl<T: Scalar> WithSimd for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let re = T::registers_mut::<S>(self.re.as_flattened_mut());
        let im = T::registers_mut::<S>(self.im.as_flattened_mut());
        let (new_re, new_im) = (self.new_re.as_flattened(), self.new_im.as_flattened());
        let (new_re, new_im) = (T::registers::<S>(new_re), T::registers::<S>(new_im));
        if im.is_empty() {
            for (re, &new) in re.iter_mut().zip(new_re) {
                *re = T::times(simd, *re, new);
            }
            return;
        }
        for ((re, im), (&new_re, &new_im)) in re.iter_mut().zip(im).zip(new_re.iter().zip(new_im)) {
            (*re, *im) = complex_product::<T, S>(simd, (*re, *im), (new_re, new_im));
        }
    }
}

/// The output columns of lanes: lane l goes to column `start + l * step`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) start: usize,
    pub(crate) step: usize,
}

/// Writes `lanes`, times `factor`, into the rows of `out` from `first` on, past the caches if `streamed`; reports whether
/// all values are finite.
pub(crate) fn store<T: Scalar>(
    arch: Arch,
    lanes: &[Lane<T>],
    factor: T,
    columns: Columns,
    out: &mut RowsMut<'_, T>,
    first: usize,
    streamed: bool,
) -> bool {
    arch.dispatch(Store { lanes, factor, columns, out, first, streamed })
}

struct Store<'a, 'b, T> {
    lanes: &'a [Lane<T>],
    factor: T,
    columns: Columns,
    out: &'a mut RowsMut<'b, T>,
    first: usize,
    streamed: bool,
}

impl<T: Scalar> WithSimd for Store<'_, '_, T> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { mut lanes, factor, columns: Columns { start: mut column, step }, out, first, streamed } = self;
        let mut check = FiniteCheck::new(simd);
        let mut piece = Aligned([[T::ZERO; LANES]; PIECE]);
        // A short piece first, so that the others start on cache lines.
        let mut length = match out.before_line(column) {
            short if short > 0 && step == 1 => short,
            _ => PIECE,
        };
        while !lanes.is_empty() {
            let (next, rest) = lanes.split_at(length.min(lanes.len()));
            (lanes, length) = (rest, PIECE);
            let piece = &mut piece.0[..next.len()];
            scale_into(simd, next, std::iter::repeat(factor), piece);
            check.look_at(piece);
            if step == 1 {
                put(simd, piece, out, first, column, streamed);
            } else {
                for row in 0..LANES.min(out.rows() - first) {
                    let values = out.row_mut(first + row)[column..].iter_mut().step_by(step);
                    for (value, lane) in values.zip(&*piece) {
                        *value = lane[row];
                    }
                }
            }
            column += step * next.len();
        }
        check.all_finite()
    }
}

/// Multiplies all lanes by a factor.
pub(crate) fn scale_all<T: Scalar>(arch: Arch, lanes: &mut [Lane<T>], factor: T) {
    arch.dispatch(ScaleAll { lanes, factor });
}

struct ScaleAll<'a, T> {
    lanes: &'a mut [Lane<T>],
    factor: T,
}

impl<T: Scalar> WithSimd for ScaleAll<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let factor = T::splat(simd, self.factor);
        for lane in T::registers_mut::<S>(self.lanes.as_flattened_mut()) {
            *lane = T::times(simd, *lane, factor);
        }
    }
}

/// Replaces `into` by the products of `a` and `b`, element by element; parts are [Re, Im], the latter empty if they are real.
pub(crate) fn product_into<T: Scalar>(
    arch: Arch,
    [re, im]: [&mut [Lane<T>]; 2],
    [a_re, a_im]: [&[Lane<T>]; 2],
    [b_re, b_im]: [&[Lane<T>]; 2],
) {
    re.copy_from_slice(a_re);
    im.copy_from_slice(a_im);
    multiply(arch, re, im, b_re, b_im, false);
}

/// Whether many lanes are finite, at one addition each.
///
/// Zero times a number that is not finite is NaN, which persists in a sum. Four sums avoid waiting for one another.
pub(crate) struct FiniteCheck<T: Scalar, S: Simd> {
    simd: S,
    sums: [T::Register<S>; 4],
}

impl<T: Scalar, S: Simd> FiniteCheck<T, S> {
    #[inline(always)]
    pub(crate) fn new(simd: S) -> Self {
        Self { simd, sums: [T::splat(simd, T::ZERO); 4] }
    }

    #[inline(always)]
    pub(crate) fn look_at(&mut self, lanes: &[Lane<T>]) {
        let zero = T::splat(self.simd, T::ZERO);
        let [mut a, mut b, mut c, mut d] = self.sums;
        let (fours, rest) = T::registers::<S>(lanes.as_flattened()).as_chunks::<4>();
        for four in fours {
            a = T::plus_product(self.simd, a, four[0], zero);
            b = T::plus_product(self.simd, b, four[1], zero);
            c = T::plus_product(self.simd, c, four[2], zero);
            d = T::plus_product(self.simd, d, four[3], zero);
        }
        for &register in rest {
            a = T::plus_product(self.simd, a, register, zero);
        }
        self.sums = [a, b, c, d];
    }

    #[inline(always)]
    pub(crate) fn all_finite(self) -> bool {
        let [a, b, c, d] = self.sums;
        let mut sum = [T::ZERO; LANES];
        let both = T::plus(self.simd, T::plus(self.simd, a, b), T::plus(self.simd, c, d));
        T::registers_mut::<S>(&mut sum)[0] = both;
        sum == [T::ZERO; LANES]
    }
}

/// Whether all numbers are finite.
pub(crate) fn all_finite<T: Scalar>(values: &[T]) -> bool {
    Arch::new().dispatch(AllFinite(values))
}

struct AllFinite<'a, T>(&'a [T]);

impl<T: Scalar> WithSimd for AllFinite<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let (lanes, rest) = self.0.as_chunks();
        let mut check = FiniteCheck::new(simd);
        check.look_at(lanes);
        check.all_finite() && rest.iter().all(|value| value.is_finite())
    }
}

/// Lanes written together: neighbouring pairs of cache lines are faster than single ones.
pub(crate) const PIECE: usize = 2 * LANES;

/// Writes at most [`PIECE`] lanes into neighbouring columns of the rows of `out` from `first` on, past the caches if
/// `streamed` and aligned to cache lines.
#[inline(always)]
pub(crate) fn put<T: Scalar, S: Simd>(
    simd: S,
    lanes: &[Lane<T>],
    out: &mut RowsMut<'_, T>,
    first: usize,
    column: usize,
    streamed: bool,
) {
    let rows = LANES.min(out.rows() - first);
    let (squares, rest) = lanes.as_chunks::<LANES>();
    // Loops of constant length, so that transposed values stay in registers.
    for quad in 0..rows.div_ceil(4) {
        match squares {
            [left, right] => {
                let (left, right) = (T::transpose(simd, left, quad), T::transpose(simd, right, quad));
                for row in 0..4 {
                    if 4 * quad + row < rows {
                        let (to, _) = out.row_mut(first + 4 * quad + row)[column..][..PIECE].as_chunks_mut();
                        write(simd, left[row], &mut to[0], streamed);
                        write(simd, right[row], &mut to[1], streamed);
                    }
                }
            }
            [square] => {
                for (row, &values) in T::transpose(simd, square, quad).iter().enumerate() {
                    if 4 * quad + row < rows {
                        let (to, _) = out.row_mut(first + 4 * quad + row)[column..][..LANES].as_chunks_mut();
                        write(simd, values, &mut to[0], streamed);
                    }
                }
            }
            [] => {}
            _ => unreachable!("a piece is at most two squares"),
        }
    }
    if rest.is_empty() {
        return;
    }
    let mut square = Aligned([[T::ZERO; LANES]; LANES]);
    square.0[..rest.len()].copy_from_slice(rest);
    for quad in 0..rows.div_ceil(4) {
        for (row, values) in T::transpose(simd, &square.0, quad).iter().enumerate() {
            if 4 * quad + row < rows {
                let to = &mut out.row_mut(first + 4 * quad + row)[column + squares.len() * LANES..];
                for (to, &value) in to.iter_mut().zip(&values[..rest.len()]) {
                    *to = value;
                }
            }
        }
    }
}

#[inline(always)]
fn write<T: Scalar, S: Simd>(simd: S, from: Lane<T>, to: &mut Lane<T>, streamed: bool) {
    if streamed {
        T::stream(simd, from, to);
    } else {
        *to = from;
    }
}

/// Loads the columns that [`store`] would have written, times `factor`.
#[inline(always)]
pub(crate) fn gather<T: Scalar>(rows: &Rows<'_, T>, first: usize, factor: T, columns: Columns, lanes: &mut [Lane<T>]) {
    let count = LANES.min(rows.rows() - first);
    if count < LANES {
        lanes.fill([T::ZERO; LANES]);
    }
    for row in 0..count {
        let values = rows.row(first + row)[columns.start..].iter().step_by(columns.step);
        for (lane, &value) in lanes.iter_mut().zip(values) {
            lane[row] = value * factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{everywhere, fence};

    /// Writes numbered lanes into a table that starts `offset` numbers after a cache line, and returns all of its memory.
    struct Written<T> {
        lanes: Vec<Lane<T>>,
        rows: usize,
        columns: usize,
        stride: usize,
        offset: usize,
        streamed: bool,
    }

    impl<T: Scalar> WithSimd for Written<T> {
        type Output = Vec<T>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<T> {
            let Self { lanes, rows, columns, stride, offset, streamed } = self;
            let length = (rows - 1) * stride + columns;
            let mut memory = LaneBuffer::new((offset + length).div_ceil(LANES));
            let memory = memory.as_mut().as_flattened_mut();
            let layout = Columns { start: 1, step: 1 };
            let table = &mut memory[offset..][..length];
            if let Ok(mut out) = RowsMut::with_stride(table, rows, columns, stride) {
                let store = Store { lanes: &lanes, factor: T::ONE, columns: layout, out: &mut out, first: 0, streamed };
                assert!(store.with_simd(simd));
            }
            fence();
            memory.to_vec()
        }
    }

    fn stores_agree<T: Scalar>() {
        for (rows, count, gap) in
            [(16, 64, 0), (16, 63, 0), (16, 48, 15), (7, 100, 3), (1, 1, 0), (13, 33, 14), (16, 31, 0)]
        {
            for offset in [0, 1, 4, 8, 15] {
                let columns = count + 1;
                let value = |row: usize, at: usize| T::from_f64((1 + row + 1000 * at) as f64);
                let lanes: Vec<Lane<T>> = (0..count).map(|at| std::array::from_fn(|row| value(row, at))).collect();
                let stride = columns + gap;
                let mut want = vec![T::ZERO; (offset + (rows - 1) * stride + columns).next_multiple_of(LANES)];
                for row in 0..rows {
                    (0..count).for_each(|at| want[offset + row * stride + 1 + at] = value(row, at));
                }
                for streamed in [false, true] {
                    let written = || Written { lanes: lanes.clone(), rows, columns, stride, offset, streamed };
                    for (name, got) in everywhere(written) {
                        assert!(got == want, "{name}: {rows} x {count}, gap {gap}, offset {offset}, {streamed}");
                    }
                }
            }
        }
    }

    /// Cached or streamed, aligned or not, with gaps or without: the same numbers in the same places, and no others.
    #[test]
    fn stores_agree_on_awkward_tables() {
        stores_agree::<f32>();
        stores_agree::<f64>();
    }

    #[test]
    fn what_is_not_finite_is_seen_anywhere() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..7 * LANES + 5 {
                let mut values = [f32::MAX; 7 * LANES + 5];
                assert!(everywhere(|| AllFinite(&values)).iter().all(|(_, finite)| *finite));
                values[at] = bad;
                assert!(everywhere(|| AllFinite(&values)).iter().all(|(_, finite)| !finite), "{bad} {at}");
            }
        }
    }

    struct Loaded<'a>(Rows<'a, f32>, usize);

    impl WithSimd for Loaded<'_> {
        type Output = Vec<Lane<f32>>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<Lane<f32>> {
            let mut lanes = vec![[f32::NAN; LANES]; self.0.columns()];
            Load { rows: &self.0, first: self.1, root_gamma: 0.5, lanes: &mut lanes }.with_simd(simd);
            lanes
        }
    }

    #[test]
    fn tiles_are_loaded() {
        for columns in [1, 15, 16, 17, 50] {
            let data: Vec<f32> = (0..37 * columns).map(|value| value as f32).collect();
            let rows = Rows::new(&data, 37, columns).unwrap();
            for first in [0, 16, 32] {
                for (name, lanes) in everywhere(|| Loaded(rows, first)) {
                    for (column, lane) in lanes.iter().enumerate() {
                        for (row, &value) in lane.iter().enumerate() {
                            let want = data.get((first + row) * columns + column).map_or(0.0, |x| x * 0.5);
                            assert_eq!(value, want, "{name}: {columns} columns, row {first} + {row}, {column}");
                        }
                    }
                }
            }
        }
    }
}
