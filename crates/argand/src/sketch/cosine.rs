//! Cosines and sines of random projections: the features of spherical random features.

#![allow(unreachable_pub, reason = "a sealed trait of the public `Scalar` names these types")]

use crate::error::{Argument, Error};
use crate::lanes::{self, LANES, Lane, LaneBuffer, Layout};
use crate::projection::Dense;
use crate::rng::{Purpose, Stream};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::Spec;
use crate::spherical::SphericalFit;

/// Spherical random features.
///
/// # Formula
/// φ(x) = (cos ⟨ω₁, x̂⟩, …, cos ⟨ω_m, x̂⟩, sin ⟨ω₁, x̂⟩, …, sin ⟨ω_m, x̂⟩) / √m with x̂ = x/‖x‖, m = D/2 and frequencies
/// ω = wu: lengths w from the fit, directions u = g/‖g‖ of Gaussian vectors. E⟨φ(x), φ(y)⟩ is the fit's kernel at
/// ‖x̂ − ŷ‖, which is close to, but not the same as, the polynomial one. The norm of x is lost.
///
/// # Reference
/// Pennington, Yu and Kumar (2015).
///
/// # Cost
/// m·d multiplications and additions and m sines and cosines per row. Memory m·d numbers.
#[derive(Debug)]
pub struct Cosine<T> {
    frequencies: Dense<T>,
    dim: usize,
    rows: usize,
    scale: T,
}

/// One thread's work space: one tile.
#[derive(Debug)]
pub struct CosineScratch<T> {
    x: LaneBuffer<T>,
    cosines: LaneBuffer<T>,
    sines: LaneBuffer<T>,
    gradient: LaneBuffer<T>,
    /// Of the products with the frequencies.
    sums: LaneBuffer<T>,
}

/// Frequencies live in at least two dimensions; an input with one column has a zero for the other.
pub(super) fn frequency_dim(spec: &Spec) -> usize {
    spec.inputs.as_slice()[0].max(2)
}

/// Bytes of the frequencies and of one thread's work space, if they can be counted.
pub(super) fn bytes<T: Scalar>(spec: &Spec) -> Option<u64> {
    let (dim, rows) = (spec.inputs.as_slice()[0], spec.outputs());
    let sums = Dense::<T>::sums_per_tile(rows, dim, false);
    let lanes = dim.checked_mul(2)?.checked_add(rows.checked_mul(2)?)?.checked_add(sums)?;
    let scratch = u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()?;
    Dense::<T>::bytes_of(rows, dim, false)?.checked_add(scratch)
}

impl<T: Scalar> Cosine<T> {
    pub(super) fn sample(spec: &Spec, fit: &SphericalFit) -> Self {
        let (dim, rows) = (spec.inputs.as_slice()[0], spec.outputs());
        let radii = fit.radii(rows, &mut Stream::new(spec.seed, Purpose::Radii, 0, 0));
        let frequencies = Dense::from_rows(rows, dim, false, |row| {
            // A spec has fewer than 2³² rows.
            let block = u32::try_from(row).unwrap_or(u32::MAX);
            let mut stream = Stream::new(spec.seed, Purpose::Weights, 0, block);
            let pairs = (0..fit.dim.div_ceil(2)).flat_map(|_| <[f64; 2]>::from(stream.complex_normal()));
            let direction: Vec<f64> = pairs.take(fit.dim).collect();
            let norm = direction.iter().map(|g| g * g).sum::<f64>().sqrt();
            direction.iter().take(dim).map(|g| [radii[row] * g / norm, 0.0]).collect()
        });
        Self { frequencies, dim, rows, scale: T::from_f64(1.0 / (rows as f64).sqrt()) }
    }

    pub(super) fn scratch(&self) -> CosineScratch<T> {
        CosineScratch {
            x: LaneBuffer::new(self.dim),
            cosines: LaneBuffer::new(self.rows),
            sines: LaneBuffer::new(self.rows),
            gradient: LaneBuffer::new(self.dim),
            sums: LaneBuffer::new(Dense::<T>::sums_per_tile(self.rows, self.dim, false)),
        }
    }

    /// A row of zeros has no direction.
    pub(super) fn check(input: &Input<'_, T>) -> Result<(), Error> {
        let zero = (0..input.rows()).find(|&row| match input {
            Input::Dense(rows) => rows.row(row).iter().all(|&value| value == T::ZERO),
            Input::Sparse(rows) => rows.row(row).all(|(_, value)| value == T::ZERO),
        });
        match zero {
            Some(row) => Err(Error::invalid(
                Argument::Input(None),
                "rows that can be scaled to unit norm",
                format!("zeros in row {row}"),
            )),
            None => Ok(()),
        }
    }

    /// Cosines and sines of a tile, and the norms of its rows.
    #[inline(always)]
    fn angles(&self, input: &Input<'_, T>, first: usize, scratch: &mut CosineScratch<T>) -> [f64; LANES] {
        let CosineScratch { x, cosines, sines, sums, .. } = scratch;
        let x = x.as_mut();
        lanes::load(input, first, T::ONE, T::ZERO, x);
        // Scaled by the largest entry first, so that squares neither overflow nor vanish.
        let largest = x.iter().fold([0.0_f64; LANES], |largest, lane| {
            std::array::from_fn(|row| largest[row].max(lane[row].to_f64().abs()))
        });
        let squares = x.iter().fold([0.0_f64; LANES], |sum, lane| {
            std::array::from_fn(|row| sum[row] + (lane[row].to_f64() / largest[row].max(f64::MIN_POSITIVE)).powi(2))
        });
        let norms: [f64; LANES] = std::array::from_fn(|row| largest[row] * squares[row].sqrt());
        for lane in x.iter_mut() {
            *lane = std::array::from_fn(|row| T::from_f64(lane[row].to_f64() / norms[row].max(f64::MIN_POSITIVE)));
        }
        let (cosines, sines) = (cosines.as_mut(), sines.as_mut());
        self.frequencies.apply([x, &[]], [sums.as_mut(), &mut []], |_, first, angles, _| {
            for (row, angle) in (first..).zip(angles) {
                let both: [(f64, f64); LANES] = std::array::from_fn(|lane| libm::sincos(angle[lane].to_f64()));
                cosines[row] = std::array::from_fn(|lane| T::from_f64(both[lane].1));
                sines[row] = std::array::from_fn(|lane| T::from_f64(both[lane].0));
            }
        });
        norms
    }

    fn layouts(&self) -> [Layout; 2] {
        [Layout { start: 0, step: 1 }, Layout { start: self.rows, step: 1 }]
    }

    /// Features of a tile.
    #[inline(always)]
    pub(super) fn forward(
        &self,
        input: &Input<'_, T>,
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut CosineScratch<T>,
    ) -> Option<usize> {
        for tile in 0..out.rows().div_ceil(LANES) {
            self.angles(input, first + tile * LANES, scratch);
            let parts = [scratch.cosines.as_mut(), scratch.sines.as_mut()];
            for (lanes, layout) in parts.into_iter().zip(self.layouts()) {
                lanes::store(lanes, self.scale, layout, &mut out, tile * LANES, streamed);
            }
        }
        // Cosines do not overflow.
        None
    }

    /// Gradient of a tile.
    ///
    /// # Formula
    /// With c, s the cotangents of cosines and sines and v = (cos θ ∘ s − sin θ ∘ c)/√m, the gradient with respect to x̂
    /// is g = Σ_ℓ v_ℓ ω_ℓ, and with respect to x it is (g − x̂⟨x̂, g⟩)/‖x‖.
    #[inline(always)]
    pub(super) fn backward(
        &self,
        input: &Input<'_, T>,
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut CosineScratch<T>,
    ) -> Option<usize> {
        let norms = self.angles(input, first, scratch);
        let CosineScratch { x, cosines, sines, gradient, .. } = scratch;
        let (cosines, sines, gradient) = (cosines.as_mut(), sines.as_mut(), gradient.as_mut());
        let [layout_cos, layout_sin] = self.layouts();
        let mut cotangents = [LaneBuffer::new(self.rows), LaneBuffer::new(self.rows)];
        let [of_cosines, of_sines] = cotangents.each_mut().map(LaneBuffer::as_mut);
        lanes::gather(cotangent, first, self.scale, layout_cos, of_cosines);
        lanes::gather(cotangent, first, self.scale, layout_sin, of_sines);
        for (row, v) in of_cosines.iter_mut().enumerate() {
            *v = lanes::sub(lanes::mul(cosines[row], of_sines[row]), lanes::mul(sines[row], *v));
        }
        gradient.fill([T::ZERO; LANES]);
        self.frequencies.add_transpose([of_cosines, &[]], [gradient, &mut []]);
        let x = x.as_mut();
        let along = gradient.iter().zip(&*x).fold([T::ZERO; LANES], |sum, (&g, &x)| lanes::add(sum, lanes::mul(g, x)));
        for (g, &x) in gradient.iter_mut().zip(&*x) {
            let across = lanes::sub(*g, lanes::mul(x, along));
            *g = std::array::from_fn(|row| T::from_f64(across[row].to_f64() / norms[row].max(f64::MIN_POSITIVE)));
        }
        let out = &mut gradients[0];
        let finite = lanes::store(gradient, T::ONE, layout_cos, out, 0, false);
        if finite { None } else { super::product::first_not_finite(out).map(|row| first + row) }
    }
}
