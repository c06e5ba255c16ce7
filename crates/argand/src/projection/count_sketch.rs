//! CountSketch, seen in the frequency domain.

use pulp::{Simd, WithSimd};

use super::{Draw, RowSource, quarter_turn};
use crate::lanes::{LANES, Lane, add, scale, sub};
use crate::rng::{Purpose, Stream};
use crate::scalar::Scalar;
use crate::transform::fft::{Fourier, FourierRows};

/// W = F C: every coordinate is thrown into one of m buckets with a random sign (C), and the buckets are transformed (F).
///
/// # Formula
/// (Cx)_b = Σ_{k: h(k) = b} s_k x_k with h uniform on the m buckets and s uniform on {1, −1} or {1, −1, i, −i};
/// F_{jb} = exp(−2πijb/m). Entries of W have modulus 1, and E[w wᴴ] = I for every row. The element-wise product of the
/// Wᵢxᵢ is the transform of the convolution of the Cᵢxᵢ; the sketch transforms it back, which makes it TensorSketch.
///
/// # Reference
/// Pham and Pagh (2013), "Fast and scalable polynomial kernels via explicit feature maps".
///
/// # Cost
/// Non-zeros of the row + m log m, per row and factor. Memory 5d bytes.
#[derive(Debug)]
pub(crate) struct CountSketch<T> {
    buckets: Vec<u32>,
    /// The signs in quarter turns.
    turns: Vec<u8>,
    fourier: Fourier<T>,
}

impl<T: Scalar> CountSketch<T> {
    pub(super) fn bytes(draw: Draw) -> Option<u64> {
        u64::try_from(draw.dim.checked_mul(5)?).ok()
    }

    pub(super) fn sample(draw: Draw, fourier: &Fourier<T>) -> Self {
        let mut stream = Stream::new(draw.seed, Purpose::Buckets, draw.factor, 0);
        // A spec has fewer than 2³² rows.
        let rows = u32::try_from(draw.rows).unwrap_or(u32::MAX);
        let buckets = (0..draw.dim).map(|_| stream.below(rows)).collect();
        Self { buckets, turns: draw.signs(), fourier: fourier.clone() }
    }

    /// F C x for one tile of rows, left in `rows`.
    pub(super) fn project_rows(&self, source: &RowSource<'_, '_, T>, tile: usize, rows: &mut FourierRows<T>) {
        rows.clear();
        source.for_each(tile, |row, column, value| {
            let [re, im] = quarter_turn::<T>(self.turns[column]);
            rows.add(row, self.buckets[column] as usize, re * value, im * value);
        });
        self.fourier.forward(rows);
    }

    /// The same for a tile in lanes.
    pub(super) fn project_lanes(&self, x: [&[Lane<T>]; 2], rows: &mut FourierRows<T>) {
        rows.clear();
        if let Some(into) = rows.parts() {
            pulp::Arch::new().dispatch(Scatter { count: self, x, into });
        } else {
            for (column, &x_re) in x[0].iter().enumerate() {
                let [re, im] = quarter_turn::<T>(self.turns[column]);
                let x_im = x[1].get(column).copied().unwrap_or([T::ZERO; LANES]);
                let bucket = self.buckets[column] as usize;
                for row in 0..LANES {
                    rows.add(row, bucket, re * x_re[row] - im * x_im[row], im * x_re[row] + re * x_im[row]);
                }
            }
        }
        self.fourier.forward(rows);
    }

    /// Wᵀ = Cᵀ F: transform, then read every coordinate's bucket.
    #[inline(always)]
    pub(super) fn add_transpose(&self, v: [&[Lane<T>]; 2], rows: &mut FourierRows<T>, gradient: [&mut [Lane<T>]; 2]) {
        rows.load(v[0], v[1], T::ONE);
        self.fourier.forward(rows);
        let [gradient_re, gradient_im] = gradient;
        for (column, (&bucket, &turns)) in self.buckets.iter().zip(&self.turns).enumerate() {
            let [sign_re, sign_im] = quarter_turn(turns);
            let (re, im) = rows.lane(bucket as usize);
            gradient_re[column] = add(gradient_re[column], sub(scale(re, sign_re), scale(im, sign_im)));
            if let Some(gradient) = gradient_im.get_mut(column) {
                *gradient = add(*gradient, add(scale(re, sign_im), scale(im, sign_re)));
            }
        }
    }
}

/// Adds a tile to its buckets.
struct Scatter<'a, T> {
    count: &'a CountSketch<T>,
    x: [&'a [Lane<T>]; 2],
    into: [&'a mut [Lane<T>]; 2],
}

impl<T: Scalar> WithSimd for Scatter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { count: CountSketch { buckets, turns, .. }, x: [x_re, x_im], into: [into_re, into_im] } = self;
        for (x, imaginary) in [(x_re, false), (x_im, true)] {
            for ((&bucket, &turns), x) in buckets.iter().zip(turns).zip(x) {
                // A factor i is one more quarter turn. Signs are products, because no branch could guess them.
                let [re, im] = quarter_turn::<T>(turns + u8::from(imaginary)).map(|part| T::splat(simd, part));
                let at = bucket as usize;
                let sums =
                    T::registers_mut::<S>(&mut into_re[at]).iter_mut().zip(T::registers_mut::<S>(&mut into_im[at]));
                for ((sum_re, sum_im), &x) in sums.zip(T::registers::<S>(x)) {
                    *sum_re = T::plus_product(simd, *sum_re, x, re);
                    *sum_im = T::plus_product(simd, *sum_im, x, im);
                }
            }
        }
    }
}
