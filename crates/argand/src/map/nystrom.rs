//! Nyström's features on this processor.

use pulp::{Arch, Simd, WithSimd};

use super::elementary::{Wide, exponential};
use super::{Tiled, first_not_finite};
use crate::draw;
use crate::lanes::{self, Columns, LANES, Lane, LaneBuffer};
use crate::projection::Dense;
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::simd;
use crate::spec::{Kernel, Polynomial, Spec};

/// Tiles that share a pass over the landmarks and over the whitening.
const TILES: usize = 4;

/// Nyström's features.
///
/// # Formula
/// φ(x) = L⁻¹ k(Z, x), see [`draw::Nystrom`]. Rows and landmarks are divided by the length scale first, if there is one: inner products then fit
/// into `f32` whatever the unit of the rows.
///
/// # Cost
/// D·d + D² multiplications and additions per row.
#[derive(Debug)]
pub struct Nystrom<T> {
    /// Of rows in length scales.
    kernel: Kernel,
    /// What a length scale is multiplied by to be 1.
    scale: T,
    landmarks: Dense<T>,
    norms: Vec<f64>,
    centre: Option<Vec<T>>,
    whitening: Dense<T>,
    dim: usize,
    /// D
    count: usize,
    arch: Arch,
}

/// One thread's work space for some tiles.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    x: LaneBuffer<T>,
    /// Kernels with the landmarks.
    kernels: LaneBuffer<T>,
    features: LaneBuffer<T>,
    sums: LaneBuffer<T>,
}

#[derive(Debug)]
pub(super) struct AdjointScratch<T> {
    forward: Scratch<T>,
    /// With respect to kernels.
    slopes: LaneBuffer<T>,
    gradient: LaneBuffer<T>,
}

fn sums_per_tile<T: Scalar>(count: usize, dim: usize) -> usize {
    Dense::<T>::sums_per_tile(count, dim, false).max(Dense::<T>::sums_per_tile(count, count, false))
}

fn scratch_lanes<T: Scalar>(count: usize, dim: usize, tiles: usize) -> Option<usize> {
    dim.checked_add(count.checked_mul(2)?)?.checked_add(sums_per_tile::<T>(count, dim))?.checked_mul(tiles)
}

/// Bytes of the matrices and of one thread's work space; `None` on overflow.
pub(super) fn bytes<T: Scalar>(spec: &Spec) -> Option<u64> {
    let (count, dim) = (spec.features, spec.inputs.as_slice()[0]);
    let scratch = u64::try_from(scratch_lanes::<T>(count, dim, TILES)?.checked_mul(size_of::<Lane<T>>())?).ok()?;
    Dense::<T>::bytes(count, dim, false)?.checked_add(Dense::<T>::bytes(count, count, false)?)?.checked_add(scratch)
}

impl<T: Scalar> Nystrom<T> {
    pub(crate) fn new(spec: &Spec, drawn: &draw::Nystrom, arch: Arch) -> Self {
        let (count, dim) = (spec.features, spec.inputs.as_slice()[0]);
        let (kernel, scale) = spec.kernel.in_length_scales();
        let dense = |values: &[f64], columns: usize, scale: f64| {
            Dense::from_rows(count, columns, false, arch, |row| {
                values[row * columns..][..columns].iter().map(|&entry| [entry / scale, 0.0]).collect()
            })
        };
        let centred = spec.kernel.radial().is_some();
        Self {
            kernel,
            scale: T::from_f64(1.0 / scale),
            landmarks: dense(&drawn.landmarks, dim, scale),
            norms: drawn.norms.iter().map(|norm| norm / (scale * scale)).collect(),
            centre: centred.then(|| drawn.centre.iter().map(|&value| T::from_f64(value)).collect()),
            whitening: dense(&drawn.whitening, count, 1.0),
            dim,
            count,
            arch,
        }
    }

    fn scratch_for(&self, tiles: usize) -> Scratch<T> {
        Scratch {
            x: LaneBuffer::new(tiles * self.dim),
            kernels: LaneBuffer::new(tiles * self.count),
            features: LaneBuffer::new(tiles * self.count),
            sums: LaneBuffer::new(tiles * sums_per_tile::<T>(self.count, self.dim)),
        }
    }

    /// Leaves the kernels of some tiles with the landmarks in the work space or, if `slopes`, their derivatives by ⟨z, x⟩.
    fn kernels(&self, input: &Input<'_, T>, first: usize, tiles: usize, slopes: bool, scratch: &mut Scratch<T>) {
        let (dim, count) = (self.dim, self.count);
        let x = &mut scratch.x.as_mut()[..tiles * dim];
        let scale_on_load = if self.centre.is_some() { T::ONE } else { self.scale };
        let mut norms = [[0.0; LANES]; TILES];
        for ((tile, x), norms) in x.chunks_exact_mut(dim).enumerate().zip(&mut norms) {
            lanes::load(self.arch, input, first + tile * LANES, [scale_on_load, T::ZERO], x);
            if let Some(centre) = &self.centre {
                for (lane, &centre) in x.iter_mut().zip(centre) {
                    *lane = lanes::mul(lanes::sub(*lane, [centre; LANES]), [self.scale; LANES]);
                }
            }
            for lane in x.iter() {
                for (norm, value) in norms.iter_mut().zip(lane) {
                    *norm += value.to_f64() * value.to_f64();
                }
            }
        }
        let kernels = &mut scratch.kernels.as_mut()[..tiles * count];
        let sums = scratch.sums.as_mut();
        let used = tiles * Dense::<T>::sums_per_tile(count, dim, false);
        self.landmarks.apply([x, &[]], [&mut sums[..used], &mut []], |tile, row, inner, _| {
            let into = &mut kernels[tile * count + row..][..inner.len()];
            let of_landmarks = &self.norms[row..][..inner.len()];
            self.arch.dispatch(Values { kernel: &self.kernel, inner, norms: &norms[tile], of_landmarks, slopes, into });
        });
    }
}

/// Kernels, or their derivatives by ⟨z, x⟩, of a tile with some landmarks.
struct Values<'a, T> {
    kernel: &'a Kernel,
    inner: &'a [Lane<T>],
    /// ‖x‖²
    norms: &'a Wide,
    /// ‖z‖²
    of_landmarks: &'a [f64],
    slopes: bool,
    into: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for Values<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { kernel, inner, norms, of_landmarks, slopes, into } = self;
        for ((inner, &of_landmark), into) in inner.iter().zip(of_landmarks).zip(into) {
            let mut t = [0.0; LANES];
            for lane in 0..LANES {
                t[lane] = inner[lane].to_f64();
            }
            let mut value = match kernel {
                // In length scales, these are their own derivatives.
                Kernel::Gaussian { .. } => {
                    for lane in 0..LANES {
                        // NaN where the inner product overflows.
                        let half = 0.5 * (norms[lane] + of_landmark) - t[lane] + 0.0 * t[lane];
                        // Rounding may leave a negative distance.
                        t[lane] = if half < 0.0 { 0.0 } else { -half };
                    }
                    exponential(&t)
                }
                Kernel::Exponential { .. } => exponential(&t),
                Kernel::Polynomial(Polynomial { degree, gamma, coef0 }) => {
                    let exponent = i32::try_from(if slopes { degree - 1 } else { *degree }).unwrap_or(i32::MAX);
                    let factor = if slopes { *degree as f64 * gamma } else { 1.0 };
                    let mut value = [0.0; LANES];
                    for lane in 0..LANES {
                        value[lane] = factor * (gamma * t[lane] + coef0).powi(exponent);
                    }
                    value
                }
                Kernel::Series { coefficients } => {
                    let mut value = [0.0; LANES];
                    for (degree, coefficient) in coefficients.iter().enumerate().rev() {
                        if slopes && degree == 0 {
                            continue;
                        }
                        let coefficient = if slopes { coefficient * degree as f64 } else { *coefficient };
                        for lane in 0..LANES {
                            value[lane] = value[lane] * t[lane] + coefficient;
                        }
                    }
                    value
                }
            };
            for (to, value) in into.iter_mut().zip(&mut value) {
                *to = T::from_f64(*value);
            }
        }
    }
}

impl<T: Scalar> Tiled<T> for Nystrom<T> {
    type Scratch = Scratch<T>;
    type AdjointScratch = AdjointScratch<T>;

    fn tiles_per_block(&self) -> usize {
        TILES
    }

    fn scratch(&self, rows: usize) -> Scratch<T> {
        self.scratch_for(rows.div_ceil(LANES).clamp(1, TILES))
    }

    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        let count = self.count;
        let mut finite = true;
        for start in (0..out.rows()).step_by(TILES * LANES) {
            let tiles = (out.rows() - start).div_ceil(LANES).min(TILES);
            self.kernels(&inputs[0], first + start, tiles, false, scratch);
            let Scratch { kernels, features, sums, .. } = scratch;
            let features = features.as_mut();
            let used = tiles * Dense::<T>::sums_per_tile(count, count, false);
            let kernels = &kernels.as_mut()[..tiles * count];
            self.whitening.apply([kernels, &[]], [&mut sums.as_mut()[..used], &mut []], |tile, row, values, _| {
                features[tile * count + row..][..values.len()].copy_from_slice(values);
            });
            for (tile, features) in features.chunks_exact(count).take(tiles).enumerate() {
                let (all, at) = (Columns { start: 0, step: 1 }, start + tile * LANES);
                finite &= lanes::store(self.arch, features, T::ONE, all, &mut out, at, streamed);
            }
        }
        if streamed {
            simd::fence();
        }
        if finite { None } else { first_not_finite(&mut out).map(|row| first + row) }
    }

    fn adjoint_bytes(&self) -> Option<u64> {
        let lanes = scratch_lanes::<T>(self.count, self.dim, 1)?.checked_add(self.count)?.checked_add(self.dim)?;
        u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()
    }

    fn adjoint_scratch(&self) -> AdjointScratch<T> {
        AdjointScratch {
            forward: self.scratch_for(1),
            slopes: LaneBuffer::new(self.count),
            gradient: LaneBuffer::new(self.dim),
        }
    }

    /// # Formula
    /// With h = L⁻ᵀ g and v_i = h_i ∂k(z_i, x)/∂⟨z_i, x⟩, the gradient is Σ v_i z_i, less (Σ v_i) x for a Gaussian kernel: all divided by the
    /// length scale, once more for the chain rule.
    fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        AdjointScratch { forward, slopes, gradient }: &mut AdjointScratch<T>,
    ) -> Option<usize> {
        let all = Columns { start: 0, step: 1 };
        self.kernels(&inputs[0], first, 1, true, forward);
        let Scratch { x, kernels, features, .. } = forward;
        let (cotangents, v) = (features.as_mut(), slopes.as_mut());
        lanes::gather(cotangent, first, T::ONE, all, cotangents);
        v.fill([T::ZERO; LANES]);
        self.whitening.add_transpose([cotangents, &[]], [&mut *v, &mut []]);
        let mut sum = [T::ZERO; LANES];
        for (v, &slope) in v.iter_mut().zip(&*kernels.as_mut()) {
            *v = lanes::mul(*v, slope);
            sum = lanes::add(sum, *v);
        }
        let gradient = gradient.as_mut();
        gradient.fill([T::ZERO; LANES]);
        self.landmarks.add_transpose([v, &[]], [&mut *gradient, &mut []]);
        if self.centre.is_some() {
            for (gradient, &x) in gradient.iter_mut().zip(&*x.as_mut()) {
                *gradient = lanes::sub(*gradient, lanes::mul(sum, x));
            }
        }
        let out = &mut gradients[0];
        let finite = lanes::store(self.arch, gradient, self.scale, all, out, 0, false);
        if finite { None } else { first_not_finite(out).map(|row| first + row) }
    }
}
