//! Projections with independent entries: Gaussian and Rademacher.

use rayon::prelude::*;

use super::{Draw, quarter_turn};
use crate::lanes::{LANES, Lane, add, scale, sub};
use crate::rng::{Purpose, Stream};
use crate::scalar::Scalar;
use crate::spec::Base;

/// Real rows computed together: their sums stay in registers.
const PANEL: usize = 8;

/// An m × d matrix with independent entries of mean 0 and E|w|² = 1.
///
/// # Formula
/// Gaussian: N(0, 1) or CN(0, 1). Rademacher: uniform on {1, −1} or {1, −1, i, −i}.
///
/// # Reference
/// Alg. 1. Row ℓ of factor i comes from the stream (weights, i, ℓ).
///
/// # Cost
/// m·d multiplications and additions per row and factor, twice that when complex. Memory m·d numbers (2m·d).
#[derive(Debug)]
pub(crate) struct Dense<T> {
    dim: usize,
    rows: usize,
    complex: bool,
    /// Panels of [`PANEL`] real rows, column by column; a complex panel is 4 real parts, then 4 imaginary parts.
    weights: Vec<T>,
}

/// Rows of W in a panel.
const fn panel_rows(complex: bool) -> usize {
    if complex { PANEL / 2 } else { PANEL }
}

impl<T: Scalar> Dense<T> {
    pub(super) fn bytes(draw: Draw) -> Option<u64> {
        Self::bytes_of(draw.rows, draw.dim, draw.complex)
    }

    pub(super) fn sample(draw: Draw) -> Self {
        Self::from_rows(draw.rows, draw.dim, draw.complex, |row| entries(draw, row))
    }

    /// Bytes of a matrix of these sizes, if they can be counted.
    pub(crate) fn bytes_of(rows: usize, dim: usize, complex: bool) -> Option<u64> {
        let panels = rows.div_ceil(panel_rows(complex));
        let numbers = panels.checked_mul(PANEL)?.checked_mul(dim)?;
        u64::try_from(numbers.checked_mul(size_of::<T>())?).ok()
    }

    /// A matrix whose rows of (re, im) entries `row` computes, in parallel.
    pub(crate) fn from_rows(
        rows: usize,
        dim: usize,
        complex: bool,
        row: impl Fn(usize) -> Vec<[f64; 2]> + Sync,
    ) -> Self {
        let per_panel = panel_rows(complex);
        let mut weights = vec![T::ZERO; rows.div_ceil(per_panel) * PANEL * dim];
        weights.par_chunks_mut(PANEL * dim).enumerate().for_each(|(panel, weights)| {
            for within in 0..per_panel.min(rows - panel * per_panel) {
                let entries = row(panel * per_panel + within);
                for (column, [re, im]) in weights.chunks_exact_mut(PANEL).zip(entries) {
                    column[within] = T::from_f64(re);
                    if complex {
                        column[within + per_panel] = T::from_f64(im);
                    }
                }
            }
        });
        Self { dim, rows, complex, weights }
    }

    #[inline(always)]
    pub(crate) fn apply(&self, [x_re, x_im]: [&[Lane<T>]; 2], mut emit: impl FnMut(usize, usize, Lane<T>, Lane<T>)) {
        let per_panel = panel_rows(self.complex);
        for (panel, weights) in self.weights.chunks_exact(PANEL * self.dim).enumerate() {
            let (columns, _) = weights.as_chunks::<PANEL>();
            let first = panel * per_panel;
            for (tile, x_re) in x_re.chunks_exact(self.dim).enumerate() {
                let mut sums = panel_times(columns, x_re);
                if !x_im.is_empty() {
                    // Only complex projections meet complex vectors: (a + ib)(c + id).
                    let other = panel_times(columns, &x_im[tile * self.dim..][..self.dim]);
                    for within in 0..per_panel {
                        sums[within] = sub(sums[within], other[(within + per_panel) % PANEL]);
                        let im = (within + per_panel) % PANEL;
                        sums[im] = add(sums[im], other[within]);
                    }
                }
                for within in 0..per_panel.min(self.rows - first) {
                    let im = if self.complex { sums[within + per_panel] } else { [T::ZERO; LANES] };
                    emit(tile, first + within, sums[within], im);
                }
            }
        }
    }

    #[inline(always)]
    pub(crate) fn add_transpose(&self, [v_re, v_im]: [&[Lane<T>]; 2], gradient: [&mut [Lane<T>]; 2]) {
        let per_panel = panel_rows(self.complex);
        let [gradient_re, gradient_im] = gradient;
        for (panel, weights) in self.weights.chunks_exact(PANEL * self.dim).enumerate() {
            let (columns, _) = weights.as_chunks::<PANEL>();
            let first = panel * per_panel;
            // Re(w v) = Re w Re v − Im w Im v and Im(w v) = Re w Im v + Im w Re v, as sums over the panel's real rows.
            let (mut for_re, mut for_im) = ([[T::ZERO; LANES]; PANEL], [[T::ZERO; LANES]; PANEL]);
            for within in 0..per_panel.min(self.rows - first) {
                for_re[within] = v_re[first + within];
                if self.complex {
                    for_re[within + per_panel] = scale(v_im[first + within], -T::ONE);
                    for_im[within] = v_im[first + within];
                    for_im[within + per_panel] = v_re[first + within];
                }
            }
            add_panel_transposed(columns, for_re, gradient_re);
            add_panel_transposed(columns, for_im, gradient_im);
        }
    }
}

/// Adds the panel's rows, weighted by `v`, to the gradient.
#[inline(always)]
fn add_panel_transposed<T: Scalar>(columns: &[[T; PANEL]], v: [Lane<T>; PANEL], gradient: &mut [Lane<T>]) {
    let [v0, v1, v2, v3, v4, v5, v6, v7] = v;
    for (&[w0, w1, w2, w3, w4, w5, w6, w7], gradient) in columns.iter().zip(gradient) {
        let low = add(add(scale(v0, w0), scale(v1, w1)), add(scale(v2, w2), scale(v3, w3)));
        let high = add(add(scale(v4, w4), scale(v5, w5)), add(scale(v6, w6), scale(v7, w7)));
        *gradient = add(*gradient, add(low, high));
    }
}

/// The products of a panel's rows with one tile. Named sums rather than an array: they must stay in registers.
#[inline(always)]
fn panel_times<T: Scalar>(columns: &[[T; PANEL]], x: &[Lane<T>]) -> [Lane<T>; PANEL] {
    let zero = [T::ZERO; LANES];
    let (mut s0, mut s1, mut s2, mut s3) = (zero, zero, zero, zero);
    let (mut s4, mut s5, mut s6, mut s7) = (zero, zero, zero, zero);
    for (&[w0, w1, w2, w3, w4, w5, w6, w7], &x) in columns.iter().zip(x) {
        s0 = add(s0, scale(x, w0));
        s1 = add(s1, scale(x, w1));
        s2 = add(s2, scale(x, w2));
        s3 = add(s3, scale(x, w3));
        s4 = add(s4, scale(x, w4));
        s5 = add(s5, scale(x, w5));
        s6 = add(s6, scale(x, w6));
        s7 = add(s7, scale(x, w7));
    }
    [s0, s1, s2, s3, s4, s5, s6, s7]
}

/// The entries of one row of W, in order.
fn entries(draw: Draw, row: usize) -> Vec<[f64; 2]> {
    // A spec has fewer than 2³² rows.
    let block = u32::try_from(row).unwrap_or(u32::MAX);
    let mut stream = Stream::new(draw.seed, Purpose::Weights, draw.factor, block);
    match (draw.base, draw.complex) {
        (Base::Gaussian, true) => (0..draw.dim).map(|_| stream.complex_normal().into()).collect(),
        (Base::Gaussian, false) => {
            let both = |(re, im)| [re, im].map(|part: f64| [part * std::f64::consts::SQRT_2, 0.0]);
            (0..draw.dim.div_ceil(2)).flat_map(|_| both(stream.complex_normal())).take(draw.dim).collect()
        }
        (_, true) => stream.small_integers(2, draw.dim).into_iter().map(quarter_turn).collect(),
        (_, false) => stream.small_integers(1, draw.dim).into_iter().map(|bit| quarter_turn(2 * bit)).collect(),
    }
}
