//! Matrices with arbitrary entries, given row by row: the default for projections with independent entries.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{Needs, Operator, Vectors, Workspace};
use crate::draw::{Draw, Projection};
use crate::lanes::{self, LANES, Lane, LaneBuffer, add, scale, sub};
use crate::scalar::Scalar;
use crate::simd::prefetch;

/// Real rows of W computed together. Their sums stay in registers: 6 x 4 of 32, or 6 x 2 of 16.
const PANEL: usize = 6;

/// Tiles whose sums are in registers together.
const TILES: usize = 4;

/// The most tiles that share a pass over the weights, in general and where the weights are few enough to stay in a
/// cache: there, more tiles would evict them.
const SHARING: usize = 4 * TILES;
const SHARING_NEAR: usize = TILES;
const NEAR_BYTES: u64 = 16 << 20;
/// The most bytes of tiles kept at once, if there are several.
const TILE_BYTES: usize = 16 << 20;

/// Columns at a time: what panels have in common, [`TILES`] tiles of this length, stays in a first-level cache ...
const DEPTH: usize = 144;
/// ... while this many panels pass over them, whose sums stay in a second-level cache; fewer for vectors no longer than that.
const PANELS: usize = 48;
const SHORT_PANELS: usize = 4;

/// How many columns ahead a panel's weights are prefetched: far enough for a third-level cache to answer.
const AHEAD: usize = 128;

/// An m × d matrix.
///
/// # Cost
/// m·d multiplications and additions per vector, twice that when complex. Memory m·d numbers (2m·d).
#[derive(Debug)]
pub(crate) struct Dense<T> {
    dim: usize,
    outputs: usize,
    complex: bool,
    /// Panels of [`PANEL`] real rows of W, column by column; a complex panel is 3 real parts, then 3 imaginary parts.
    /// In reading order: for every [`PANELS`] panels, one part of the columns of each, then the next part of each.
    weights: Vec<[T; PANEL]>,
    arch: Arch,
}

/// Rows of W in a panel.
const fn panel_rows(complex: bool) -> usize {
    if complex { PANEL / 2 } else { PANEL }
}

/// The columns of each part, split as evenly as possible.
fn parts(dim: usize) -> impl Iterator<Item = Range<usize>> {
    let depth = dim.div_ceil(dim.div_ceil(DEPTH));
    (0..dim).step_by(depth).map(move |start| start..dim.min(start + depth))
}

/// Panels that pass over one part of the columns after the other.
const fn panels_together(dim: usize) -> usize {
    if dim > DEPTH { PANELS } else { SHORT_PANELS }
}

impl<T: Scalar> Dense<T> {
    pub(super) fn needs(draw: &Draw) -> Needs {
        let Draw { outputs, dim, complex, .. } = *draw;
        let bytes = Self::bytes(outputs, dim, complex);
        // For very long vectors, as many as there is room for.
        let near = bytes.is_some_and(|bytes| bytes <= NEAR_BYTES);
        let room = TILE_BYTES / size_of::<Lane<T>>() / dim;
        let tiles_per_block = room.clamp(1, if near { SHARING_NEAR } else { SHARING });
        let workspace_lanes = Self::sums_per_tile(outputs, dim, complex) * tiles_per_block;
        Needs { bytes, workspace_lanes, tiles_per_block, fusing: None }
    }

    /// Lanes of the sums that [`Dense::apply`] keeps for one tile.
    pub(crate) fn sums_per_tile(outputs: usize, dim: usize, complex: bool) -> usize {
        PANEL * panels_together(dim).min(outputs.div_ceil(panel_rows(complex)))
    }

    /// Bytes of a matrix of these sizes; `None` on overflow.
    pub(crate) fn bytes(outputs: usize, dim: usize, complex: bool) -> Option<u64> {
        let panels = outputs.div_ceil(panel_rows(complex));
        let numbers = panels.checked_mul(PANEL)?.checked_mul(dim)?;
        u64::try_from(numbers.checked_mul(size_of::<T>())?).ok()
    }

    pub(super) fn new(projection: &Projection, arch: Arch) -> Self {
        let Draw { outputs, dim, complex, .. } = projection.draw;
        Self::from_rows(outputs, dim, complex, arch, |output| projection.row(output))
    }

    /// The matrix whose rows of (re, im) entries are computed by `row`, in parallel.
    pub(crate) fn from_rows(
        outputs: usize,
        dim: usize,
        complex: bool,
        arch: Arch,
        row: impl Fn(usize) -> Vec<[f64; 2]> + Sync,
    ) -> Self {
        let per_panel = panel_rows(complex);
        let draw = |panel: usize| {
            let mut columns = vec![[T::ZERO; PANEL]; dim];
            for within in 0..per_panel.min(outputs - panel * per_panel) {
                for (column, [re, im]) in columns.iter_mut().zip(row(panel * per_panel + within)) {
                    column[within] = T::from_f64(re);
                    if complex {
                        column[within + per_panel] = T::from_f64(im);
                    }
                }
            }
            columns
        };
        let panels = outputs.div_ceil(per_panel);
        let mut weights = Vec::with_capacity(panels * dim);
        for first in (0..panels).step_by(PANELS) {
            let panels: Vec<_> = (first..panels.min(first + PANELS)).into_par_iter().map(draw).collect();
            for part in parts(dim) {
                panels.iter().for_each(|columns| weights.extend_from_slice(&columns[part.clone()]));
            }
        }
        Self { dim, outputs, complex, weights, arch }
    }

    /// Computes Wx for every tile and hands over (tile, first row of W, real parts, imaginary parts) of some rows of W
    /// at a time; a real matrix has no imaginary parts.
    ///
    /// `x` is [Re x, Im x], the latter empty if x is real. Sums are computed in `of_re` and, for Im x, in `of_im`; as
    /// many tiles as fit into these share a pass over the weights.
    pub(crate) fn apply(
        &self,
        [x_re, x_im]: [&[Lane<T>]; 2],
        [of_re, of_im]: [&mut [Lane<T>]; 2],
        mut emit: impl FnMut(usize, usize, &[Lane<T>], &[Lane<T>]),
    ) {
        let per_panel = panel_rows(self.complex);
        let panels = panels_together(self.dim);
        let sharing = of_re.len() / Self::sums_per_tile(self.outputs, self.dim, self.complex);
        let (of_re, of_im) = (of_re.as_chunks_mut().0, of_im.as_chunks_mut().0);
        for (group, x) in x_re.chunks(sharing * self.dim).enumerate() {
            let tiles = x.len() / self.dim;
            for (chunk, weights) in self.weights.chunks(panels * self.dim).enumerate() {
                self.multiply(weights, x, of_re);
                if !x_im.is_empty() {
                    // Only complex projections see complex vectors: (a + ib)(c + id).
                    self.multiply(weights, &x_im[group * sharing * self.dim..][..x.len()], of_im);
                    let used = weights.len() / self.dim * tiles;
                    for (sums, other) in of_re[..used].iter_mut().zip(&*of_im) {
                        for within in 0..per_panel {
                            let im = (within + per_panel) % PANEL;
                            sums[within] = sub(sums[within], other[im]);
                            sums[im] = add(sums[im], other[within]);
                        }
                    }
                }
                for panel in 0..weights.len() / self.dim {
                    let first = (chunk * panels + panel) * per_panel;
                    let rows = per_panel.min(self.outputs - first);
                    for (tile, sums) in of_re[panel * tiles..][..tiles].iter().enumerate() {
                        let im = if self.complex { &sums[per_panel..][..rows] } else { &[] };
                        emit(group * sharing + tile, first, &sums[..rows], im);
                    }
                }
            }
        }
    }

    /// The products of some panels with some tiles: for every panel, for every tile.
    fn multiply(&self, weights: &[[T; PANEL]], x: &[Lane<T>], sums: &mut [[Lane<T>; PANEL]]) {
        let (dim, panels, tiles) = (self.dim, weights.len() / self.dim, x.len() / self.dim);
        for part in parts(dim) {
            for first in (0..tiles).step_by(TILES) {
                self.arch.dispatch(Panels {
                    weights: &weights[panels * part.start..panels * part.end],
                    depth: part.len(),
                    x: &x[first * dim + part.start..],
                    stride: dim,
                    more: part.start > 0,
                    sums,
                    tiles: first..tiles.min(first + TILES),
                    all_tiles: tiles,
                });
            }
        }
    }

    /// Adds Wᵀv, for one tile.
    pub(crate) fn add_transpose(&self, [v_re, v_im]: [&[Lane<T>]; 2], gradient: [&mut [Lane<T>]; 2]) {
        let per_panel = panel_rows(self.complex);
        let [gradient_re, gradient_im] = gradient;
        let chunks = self.weights.chunks(PANELS * self.dim).enumerate();
        let panels = chunks.flat_map(|(chunk, weights)| {
            let panels = weights.len() / self.dim;
            parts(self.dim).flat_map(move |part| {
                let columns = weights[panels * part.start..panels * part.end].chunks_exact(part.len()).enumerate();
                columns.map(move |(panel, columns)| ((chunk * PANELS + panel) * per_panel, part.start, columns))
            })
        });
        for (first, start, columns) in panels {
            // Re(w v) = Re w Re v − Im w Im v and Im(w v) = Re w Im v + Im w Re v, as sums over the real rows of the panel.
            let (mut for_re, mut for_im) = ([[T::ZERO; LANES]; PANEL], [[T::ZERO; LANES]; PANEL]);
            for within in 0..per_panel.min(self.outputs - first) {
                for_re[within] = v_re[first + within];
                if self.complex {
                    for_re[within + per_panel] = scale(v_im[first + within], -T::ONE);
                    for_im[within] = v_im[first + within];
                    for_im[within + per_panel] = v_re[first + within];
                }
            }
            for (gradient, v) in [(&mut *gradient_re, for_re), (&mut *gradient_im, for_im)] {
                let gradient = gradient.get_mut(start..).unwrap_or_default();
                self.arch.dispatch(PanelTransposed { columns, v, gradient });
            }
        }
    }
}

impl<T: Scalar> Operator<T> for Dense<T> {
    fn multiply_into(
        &self,
        x: &Vectors<'_, T>,
        workspace: &mut Workspace<T>,
        [re, im]: [&mut [Lane<T>]; 2],
        first: bool,
    ) {
        self.apply(x.lanes, workspace.lanes.each_mut().map(LaneBuffer::as_mut), |tile, row, new_re, new_im| {
            let part = tile * self.outputs + row..tile * self.outputs + row + new_re.len();
            let im = if im.is_empty() { &mut [] } else { &mut im[part.clone()] };
            lanes::multiply(self.arch, &mut re[part], im, new_re, new_im, first);
        });
    }

    fn add_transpose(&self, [v_re, v_im]: [&mut [Lane<T>]; 2], _: &mut Workspace<T>, gradient: [&mut [Lane<T>]; 2]) {
        self.add_transpose([v_re, v_im], gradient);
    }
}

/// Adds the rows of a panel, weighted by `v`, to the gradient.
struct PanelTransposed<'a, T> {
    columns: &'a [[T; PANEL]],
    v: [Lane<T>; PANEL],
    gradient: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for PanelTransposed<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let [v0, v1, v2, v3, v4, v5] = self.v;
        for (&[w0, w1, w2, w3, w4, w5], gradient) in self.columns.iter().zip(self.gradient) {
            let low = add(add(scale(v0, w0), scale(v1, w1)), scale(v2, w2));
            let high = add(add(scale(v3, w3), scale(v4, w4)), scale(v5, w5));
            *gradient = add(*gradient, add(low, high));
        }
    }
}

/// The products of some columns of several panels with up to [`TILES`] tiles, which start `stride` lanes apart.
struct Panels<'a, T> {
    weights: &'a [[T; PANEL]],
    depth: usize,
    x: &'a [Lane<T>],
    stride: usize,
    /// Whether to add to the sums instead of replacing them.
    more: bool,
    /// For every panel, for every tile; only some of the tiles are used.
    sums: &'a mut [[Lane<T>; PANEL]],
    tiles: Range<usize>,
    all_tiles: usize,
}

impl<T: Scalar> WithSimd for Panels<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { weights, depth, x, stride, more, sums, tiles, all_tiles } = self;
        for (columns, sums) in weights.chunks_exact(depth).zip(sums.chunks_exact_mut(all_tiles)) {
            Times { columns, x, stride, more, sums: &mut sums[tiles.clone()] }.with_simd(simd);
        }
    }
}

/// The products of the rows of a panel with up to [`TILES`] tiles.
struct Times<'a, T> {
    columns: &'a [[T; PANEL]],
    x: &'a [Lane<T>],
    stride: usize,
    more: bool,
    sums: &'a mut [[Lane<T>; PANEL]],
}

impl<T: Scalar> WithSimd for Times<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // All registers of all tiles, as many at a time as there is room for.
        let registers = T::registers::<S>(self.sums.as_flattened().as_flattened()).len() / PANEL;
        let mut done = 0;
        while S::REGISTER_COUNT >= 32 && done + 4 <= registers {
            self.some::<S, 4>(simd, done);
            done += 4;
        }
        while done + 2 <= registers {
            self.some::<S, 2>(simd, done);
            done += 2;
        }
        if done < registers {
            self.some::<S, 1>(simd, done);
        }
    }
}

impl<T: Scalar> Times<'_, T> {
    /// The registers from `first` on, counted tile by tile.
    #[inline(always)]
    fn some<S: Simd, const COUNT: usize>(&mut self, simd: S, first: usize) {
        let Self { columns, x, stride, more, sums } = self;
        let width = size_of::<Lane<T>>() / size_of::<T::Register<S>>();
        // Loops, because the closures of an array's `map` might not be compiled for this instruction set.
        let (mut place, mut of_x) = ([(0, 0); COUNT], [T::registers::<S>(&[]); COUNT]);
        for (index, (place, of_x)) in place.iter_mut().zip(&mut of_x).enumerate() {
            let (tile, register) = ((first + index) / width, (first + index) % width);
            *place = (tile, register);
            *of_x = &T::registers::<S>(x[tile * *stride..][..columns.len()].as_flattened())[register..];
        }
        let zero = T::splat(simd, T::ZERO);
        let mut registers = [[zero; COUNT]; PANEL];
        if *more {
            for (row, registers) in registers.iter_mut().enumerate() {
                for ((tile, register), sum) in place.into_iter().zip(registers) {
                    *sum = T::registers::<S>(&sums[tile][row])[register];
                }
            }
        }
        for (k, column) in columns.iter().enumerate() {
            let mut x = [zero; COUNT];
            for (x, of_x) in x.iter_mut().zip(of_x) {
                *x = of_x[k * width];
            }
            prefetch(column, AHEAD);
            for (sums, &weight) in registers.iter_mut().zip(column) {
                let weight = T::splat(simd, weight);
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = accumulate::<T, S>(simd, *sum, weight, x);
                }
            }
        }
        for (row, registers) in registers.into_iter().enumerate() {
            for ((tile, register), sum) in place.into_iter().zip(registers) {
                T::registers_mut::<S>(&mut sums[tile][row])[register] = sum;
            }
        }
    }
}

/// a + bc. In `f64`, products are rounded on every instruction set, so that features are the same to the last bit.
#[inline(always)]
fn accumulate<T: Scalar, S: Simd>(simd: S, a: T::Register<S>, b: T::Register<S>, c: T::Register<S>) -> T::Register<S> {
    if size_of::<T>() == size_of::<f64>() {
        T::plus(simd, a, T::times(simd, b, c))
    } else {
        T::plus_product(simd, a, b, c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::everywhere;
    use crate::spec::Base;

    struct Product<'a> {
        columns: &'a [[f32; PANEL]],
        x: &'a [Lane<f32>],
        tiles: usize,
    }

    impl WithSimd for Product<'_> {
        type Output = Vec<[Lane<f32>; PANEL]>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let mut sums = vec![[[f32::NAN; LANES]; PANEL]; self.tiles];
            let stride = self.columns.len();
            let half = stride / 2;
            let (start, end) = self.columns.split_at(half);
            Times { columns: start, x: self.x, stride, more: false, sums: &mut sums }.with_simd(simd);
            Times { columns: end, x: &self.x[half..], stride, more: true, sums: &mut sums }.with_simd(simd);
            sums
        }
    }

    /// Small integers, whose sums of products are exact, fused or not.
    fn value(at: usize) -> f32 {
        ((at * 7) % 11) as f32 - 5.0
    }

    fn lanes(count: usize) -> Vec<Lane<f32>> {
        (0..count).map(|at| std::array::from_fn(|lane| value(at * 2 + lane))).collect()
    }

    #[test]
    fn panels_are_the_defined_ones() {
        for (dim, tiles) in [(2, 1), (3, 2), (7, 3), (16, 4), (33, 4)] {
            let columns: Vec<[f32; PANEL]> =
                (0..dim).map(|k| std::array::from_fn(|row| value(3 * k + 5 * row))).collect();
            let x = lanes(tiles * dim);
            for (name, sums) in everywhere(|| Product { columns: &columns, x: &x, tiles }) {
                for (tile, sums) in sums.iter().enumerate() {
                    for (row, sums) in sums.iter().enumerate() {
                        for (lane, &sum) in sums.iter().enumerate() {
                            let want: f32 = (0..dim).map(|k| columns[k][row] * x[tile * dim + k][lane]).sum();
                            assert!(sum == want, "{name}: {dim} x {tiles}");
                        }
                    }
                }
            }
        }
    }

    /// Matrices of one part, and of several parts and chunks with smaller last ones.
    #[test]
    fn parts_make_the_whole() {
        for (rows, dim, complex) in
            [(13, 3, false), (2 * PANEL * PANELS + 11, 2 * DEPTH + 13, false), (200, DEPTH + 1, true)]
        {
            let entry = |row: usize, column: usize| {
                let im = if complex { value(row + column * 7) } else { 0.0 };
                [value(row * 5 + column * 3), im]
            };
            let row = |row: usize| (0..dim).map(|column| entry(row, column).map(f64::from)).collect();
            let dense = Dense::<f32>::from_rows(rows, dim, complex, Arch::new(), row);
            let tiles = 2 * 3 + 1;
            let (x, mut seen) = (lanes(tiles * dim), 0);
            let mut sums = vec![[f32::NAN; LANES]; 3 * Dense::<f32>::sums_per_tile(rows, dim, complex)];
            dense.apply([&x, &[]], [&mut sums, &mut []], |tile, first, re, im| {
                seen += re.len();
                for (part, sums) in [re, im].into_iter().enumerate() {
                    for (within, sums) in sums.iter().enumerate() {
                        let want = (0..dim).fold([0.0; LANES], |sum, k| {
                            add(sum, scale(x[tile * dim + k], entry(first + within, k)[part]))
                        });
                        assert_eq!(*sums, want, "{rows} x {dim}, tile {tile}, row {}", first + within);
                    }
                }
            });
            assert_eq!(seen, tiles * rows);
            let (v_re, v_im) = (lanes(rows), if complex { lanes(rows + 3).split_off(3) } else { Vec::new() });
            let none = [0.0; LANES];
            let (mut of_re, mut of_im) = (vec![none; dim], vec![none; v_im.len().min(dim)]);
            dense.add_transpose([&v_re, &v_im], [&mut of_re, &mut of_im]);
            for column in 0..dim {
                let (mut re, mut im) = (none, none);
                for (row, &v_re) in v_re.iter().enumerate() {
                    let ([w_re, w_im], v_im) = (entry(row, column), *v_im.get(row).unwrap_or(&none));
                    re = add(re, sub(scale(v_re, w_re), scale(v_im, w_im)));
                    im = add(im, add(scale(v_im, w_re), scale(v_re, w_im)));
                }
                assert_eq!(of_re[column], re, "{rows} x {dim}, column {column}");
                assert!(!complex || of_im[column] == im, "{rows} x {dim}, column {column}");
            }
        }
    }

    /// Work space stays small compared with the weights, even for a few long rows of W.
    #[test]
    fn long_vectors_share_a_pass_with_fewer_others() {
        let tiles =
            |outputs, dim| Dense::<f32>::needs(&super::super::test_draw(Base::Gaussian, dim, outputs)).tiles_per_block;
        assert_eq!(
            [(512, 784), (8192, 4095), (6, 100_000), (6, 700_000), (100, 3_000_000)].map(|(m, d)| tiles(m, d)),
            [SHARING_NEAR, SHARING, 2, 1, 1]
        );
    }
}
