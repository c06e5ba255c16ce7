//! Pooling of features before classification.

use argand::Scalar;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Normalisation of a row's features before classification, as in bilinear pooling.
///
/// # Formula
/// Signed square root: s = z / √(|z| + 10⁻¹⁰), which is sign(z) √|z| with a finite slope at zero. Then L2
/// normalisation: u = s / ‖s‖, and 0 for s = 0.
///
/// # Reference
/// Gao et al. (2016), Sec. 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pooling {
    /// Take signed square roots.
    pub signed_sqrt: bool,
    /// Then divide every row by its norm.
    pub l2: bool,
}

/// Bounds the slope of the signed square root at zero by 10⁵.
const ROOT_OFFSET: f32 = 1e-10;

impl Pooling {
    /// A description in words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match (self.signed_sqrt, self.l2) {
            (false, false) => "none",
            (true, false) => "signed square root",
            (false, true) => "L2 normalisation",
            (true, true) => "signed square root, L2 normalisation",
        }
    }

    /// Pools rows of `columns` features in place.
    pub(super) fn apply(self, features: &mut [f32], columns: usize) {
        if self == Self::default() {
            return;
        }
        features.par_chunks_mut(columns).for_each(|row| pulp::Arch::new().dispatch(Pool { pooling: self, row }));
    }

    #[inline(always)]
    fn root(self, row: &mut [f32]) {
        if self.signed_sqrt {
            for value in row {
                *value /= (value.abs() + ROOT_OFFSET).sqrt();
            }
        }
    }

    /// Turns gradients with respect to pooled features into gradients with respect to the `raw` ones, in place.
    pub(super) fn backward(self, raw: &[f32], columns: usize, gradients: &mut [f32]) {
        if self == Self::default() {
            return;
        }
        gradients.par_chunks_mut(columns).zip(raw.par_chunks(columns)).for_each(|(gradient, raw)| {
            if self.l2 {
                let mut rooted = raw.to_vec();
                self.root(&mut rooted);
                let square = dot(&rooted, &rooted);
                if square == 0.0 {
                    // The slope is infinite there; the row stays where it is.
                    gradient.fill(0.0);
                    return;
                }
                let (along, norm) = (dot(&rooted, gradient) / square, square.sqrt());
                for (gradient, &rooted) in gradient.iter_mut().zip(&rooted) {
                    *gradient = f32::from_f64((f64::from(*gradient) - along * f64::from(rooted)) / norm);
                }
            }
            if self.signed_sqrt {
                for (gradient, raw) in gradient.iter_mut().zip(raw) {
                    let offset = raw.abs() + ROOT_OFFSET;
                    *gradient *= (0.5 * raw.abs() + ROOT_OFFSET) / (offset * offset.sqrt());
                }
            }
        });
    }
}

/// Pools one row. Every instruction set gives the same bits.
struct Pool<'a> {
    pooling: Pooling,
    row: &'a mut [f32],
}

impl WithSimd for Pool<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { pooling, row } = self;
        pooling.root(row);
        let norm = if pooling.l2 { dot(row, row).sqrt() } else { 0.0 };
        if norm > 0.0 {
            let factor = 1.0 / norm;
            for value in row {
                *value = f32::from_f64(f64::from(*value) * factor);
            }
        }
    }
}

/// ⟨a, b⟩ in double precision, summed in an order that depends only on the length.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 16;
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let mut sum = 0.0;
    for lane in sums {
        sum += lane;
    }
    for (&a, &b) in rest_a.iter().zip(rest_b) {
        sum += f64::from(a) * f64::from(b);
    }
    sum
}
