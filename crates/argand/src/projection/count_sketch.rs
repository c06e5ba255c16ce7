//! CountSketch, seen in the frequency domain.

use std::sync::Arc;

use pulp::{Arch, Simd, WithSimd};

use super::{Kind, Needs, Operator, SparseTile, Vectors, Workspace, fourier_entry, of_tile};
use crate::draw::{Buckets, Draw, Projection, Values, narrow, quarter_turn};
use crate::lanes::{LANES, Lane, add, scale, sub};
use crate::rng::Purpose;
use crate::scalar::Scalar;
use crate::theory::variance::{PairStatistics, ProductFormula};
use crate::transform::fft::{Fourier, FourierRows};

/// W = F C: every coordinate is hashed into one of m buckets with a random sign (C), and the buckets are transformed (F).
///
/// # Formula
/// (Cx)_b = Σ_{k: h(k) = b} s_k x_k with h uniform on the m buckets and s uniform on {1, −1} or {1, −1, i, −i};
/// F_{jb} = exp(−2πijb/m). Entries of W have modulus 1, and E[w wᴴ] = I for every row of W. The element-wise product of
/// the Wᵢxᵢ is the transform of the convolution of the Cᵢxᵢ; the sketch transforms it back, which makes it
/// TensorSketch.
///
/// # Reference
/// Pham and Pagh (2013), "Fast and scalable polynomial kernels via explicit feature maps".
pub(crate) struct TensorSketch;

impl Kind for TensorSketch {
    const NAME: &'static str = "tensor-sketch";
    const DENSE: bool = false;
    const MULTIPLIES_TRANSFORMS: bool = true;

    fn row(projection: &Projection, output: usize) -> Vec<[f64; 2]> {
        let Buckets { turns, buckets } = &**drawn(projection);
        let entry = |(&turns, &bucket): (&u8, &u32)| {
            let ([re, im], [cos, sin]) =
                (quarter_turn(turns), fourier_entry(projection.draw.outputs, output, bucket as usize));
            [re * cos - im * sin, re * sin + im * cos]
        };
        turns.iter().zip(buckets).map(entry).collect()
    }

    #[inline(always)]
    fn moments(pair: &PairStatistics, complex: bool) -> [f64; 2] {
        super::rademacher::sign_moments(pair, complex)
    }

    /// The buckets make outputs dependent; see [`Formula`] for the result.
    #[inline(always)]
    fn second_moments(formula: &ProductFormula, factors: &[PairStatistics]) -> [f64; 2] {
        formula.of_tensor_sketch(factors)
    }

    fn draw(draw: &Draw) -> Values {
        let mut stream = draw.stream(Purpose::Buckets, 0);
        let outputs = narrow(draw.outputs);
        let buckets = (0..draw.dim).map(|_| stream.below(outputs)).collect();
        Values::Buckets(Arc::new(Buckets { turns: draw.signs(), buckets }))
    }

    fn drawn_bytes(draw: &Draw) -> Option<u64> {
        u64::try_from(draw.dim.checked_mul(5)?).ok()
    }

    fn needs<T: Scalar>(_: &Draw) -> Needs {
        Needs { bytes: Some(0), workspace_lanes: 0, tiles_per_block: 1, fusing: None }
    }

    fn operator<T: Scalar>(projection: &Projection, fourier: Option<&Fourier<T>>, arch: Arch) -> Box<dyn Operator<T>> {
        let Some(fourier) = fourier else { unreachable!("a sketch that multiplies transforms plans them") };
        Box::new(CountSketch { drawn: drawn(projection).clone(), fourier: fourier.clone(), arch })
    }
}

fn drawn(projection: &Projection) -> &Arc<Buckets> {
    let Values::Buckets(buckets) = &projection.values else { unreachable!("a CountSketch draws buckets") };
    buckets
}

/// W = F C on this processor.
///
/// # Cost
/// Non-zeros of the vector + m log m. Memory 5d bytes.
#[derive(Debug)]
struct CountSketch<T> {
    drawn: Arc<Buckets>,
    fourier: Fourier<T>,
    arch: Arch,
}

impl<T: Scalar> CountSketch<T> {
    /// C x for one tile of sparse rows.
    fn scatter_rows(&self, source: &SparseTile<'_, T>, tile: usize, rows: &mut FourierRows<T>) {
        let Buckets { turns, buckets } = &*self.drawn;
        source.for_each(tile, |row, column, value| {
            let [re, im] = quarter_turn(turns[column]).map(T::from_f64);
            rows.add(row, buckets[column] as usize, re * value, im * value);
        });
    }

    /// C x for one tile in lanes.
    fn scatter_lanes(&self, x: [&[Lane<T>]; 2], rows: &mut FourierRows<T>) {
        let Buckets { turns, buckets } = &*self.drawn;
        if let Some(into) = rows.parts() {
            self.arch.dispatch(Scatter { drawn: &self.drawn, x, into });
            return;
        }
        for (column, &x_re) in x[0].iter().enumerate() {
            let [re, im] = quarter_turn(turns[column]).map(T::from_f64);
            let x_im = x[1].get(column).copied().unwrap_or([T::ZERO; LANES]);
            let bucket = buckets[column] as usize;
            for row in 0..LANES {
                rows.add(row, bucket, re * x_re[row] - im * x_im[row], im * x_re[row] + re * x_im[row]);
            }
        }
    }
}

impl<T: Scalar> Operator<T> for CountSketch<T> {
    fn multiply_into(
        &self,
        x: &Vectors<'_, T>,
        workspace: &mut Workspace<T>,
        [re, im]: [&mut [Lane<T>]; 2],
        first: bool,
    ) {
        let rows = &mut workspace.fourier;
        for tile in 0..x.tiles {
            rows.clear();
            match &x.rows {
                Some(source) => self.scatter_rows(source, tile, rows),
                None => self.scatter_lanes(x.tile(tile), rows),
            }
            self.fourier.forward(rows);
            rows.multiply_into(of_tile(re, tile, x.tiles), of_tile(im, tile, x.tiles), first);
        }
    }

    /// Wᵀ = Cᵀ F: transform, then read every coordinate's bucket.
    fn add_transpose(
        &self,
        [v_re, v_im]: [&mut [Lane<T>]; 2],
        workspace: &mut Workspace<T>,
        [gradient_re, gradient_im]: [&mut [Lane<T>]; 2],
    ) {
        let rows = &mut workspace.fourier;
        rows.load(v_re, v_im, T::ONE);
        self.fourier.forward(rows);
        let Buckets { turns, buckets } = &*self.drawn;
        for (column, (&bucket, &turns)) in buckets.iter().zip(turns).enumerate() {
            let [sign_re, sign_im] = quarter_turn(turns).map(T::from_f64);
            let (re, im) = rows.lane(bucket as usize);
            gradient_re[column] = add(gradient_re[column], sub(scale(re, sign_re), scale(im, sign_im)));
            if let Some(gradient) = gradient_im.get_mut(column) {
                *gradient = add(*gradient, add(scale(re, sign_im), scale(im, sign_re)));
            }
        }
    }

    fn reads_sparse(&self) -> bool {
        true
    }
}

/// Adds a tile to its buckets.
struct Scatter<'a, T> {
    drawn: &'a Buckets,
    x: [&'a [Lane<T>]; 2],
    into: [&'a mut [Lane<T>]; 2],
}

impl<T: Scalar> WithSimd for Scatter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { drawn: Buckets { buckets, turns }, x: [x_re, x_im], into: [into_re, into_im] } = self;
        for (x, imaginary) in [(x_re, false), (x_im, true)] {
            for ((&bucket, &turns), x) in buckets.iter().zip(turns).zip(x) {
                // A factor i is one more quarter turn. Signs are multiplied, because branches would be unpredictable.
                let [re, im] = quarter_turn(turns + u8::from(imaginary)).map(
                    #[inline(always)]
                    |part| T::splat(simd, T::from_f64(part)),
                );
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
