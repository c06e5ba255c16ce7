//! Cosines and sines of random projections: the features of spherical random features.

use pulp::Arch;

use super::{Tiled, first_not_finite};
use crate::draw;
use crate::error::Error;
use crate::lanes::{self, Columns, LANES, Lane, LaneBuffer};
use crate::projection::{Dense, Parts};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::simd;
use crate::spec::Spec;

/// Spherical random features.
///
/// # Formula
/// φ(x) = (cos ⟨ω₁, x̂⟩, …, cos ⟨ω_m, x̂⟩, sin ⟨ω₁, x̂⟩, …, sin ⟨ω_m, x̂⟩) / √m with x̂ = x/‖x‖, m = D/2 and frequencies
/// ω = wu: lengths w from the fit, directions u = g/‖g‖ of Gaussian vectors. E⟨φ(x), φ(y)⟩ is the fit's kernel at
/// ‖x̂ − ŷ‖, which is close to, but not the same as, the polynomial one. The norm of x is discarded.
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
    /// m, the number of frequencies.
    outputs: usize,
    scale: T,
    arch: Arch,
}

/// One thread's work space: one tile.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    x: LaneBuffer<T>,
    cosines: LaneBuffer<T>,
    sines: LaneBuffer<T>,
    gradient: LaneBuffer<T>,
    /// With respect to cosines and sines.
    cotangents: [LaneBuffer<T>; 2],
    /// Of the products with the frequencies.
    sums: LaneBuffer<T>,
}

/// Bytes of the frequencies and of one thread's work space; `None` on overflow.
pub(super) fn bytes<T: Scalar>(spec: &Spec) -> Option<u64> {
    let (dim, outputs) = (spec.inputs.as_slice()[0], spec.outputs());
    let sums = Dense::<T>::sums_per_tile(outputs, dim, false);
    let lanes = dim.checked_mul(2)?.checked_add(outputs.checked_mul(4)?)?.checked_add(sums)?;
    let scratch = u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()?;
    Dense::<T>::bytes(outputs, dim, false)?.checked_add(scratch)
}

impl<T: Scalar> Cosine<T> {
    pub(crate) fn new(drawn: &draw::Cosine, arch: Arch) -> Self {
        let (dim, outputs) = (drawn.dim, drawn.radii.len());
        let real = |entry: f64| [entry, 0.0];
        let frequencies =
            Dense::from_rows(outputs, dim, false, arch, |index| drawn.frequency(index).into_iter().map(real).collect());
        Self { frequencies, dim, outputs, scale: T::from_f64(1.0 / (outputs as f64).sqrt()), arch }
    }

    fn scratch(&self) -> Scratch<T> {
        Scratch {
            x: LaneBuffer::new(self.dim),
            cosines: LaneBuffer::new(self.outputs),
            sines: LaneBuffer::new(self.outputs),
            gradient: LaneBuffer::new(self.dim),
            cotangents: [LaneBuffer::new(self.outputs), LaneBuffer::new(self.outputs)],
            sums: LaneBuffer::new(Dense::<T>::sums_per_tile(self.outputs, self.dim, false)),
        }
    }

    /// Cosines and sines of a tile, and the norms of its rows.
    fn angles(&self, input: &Input<'_, T>, first: usize, scratch: &mut Scratch<T>) -> [f64; LANES] {
        let Scratch { x, cosines, sines, sums, .. } = scratch;
        let x = x.as_mut();
        lanes::load(self.arch, input, first, [T::ONE, T::ZERO], x);
        // Scale by the largest entry first, so that squares neither overflow nor vanish.
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

    /// The columns of cosines and sines in a row of features.
    fn columns(&self) -> [Columns; 2] {
        Parts::Apart.columns(self.outputs)
    }

    /// Features of the rows from `first` on, as many as `out` has.
    fn block(
        &self,
        input: &Input<'_, T>,
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) {
        for at in (0..out.rows()).step_by(LANES) {
            self.angles(input, first + at, scratch);
            let parts = [scratch.cosines.as_mut(), scratch.sines.as_mut()];
            for (lanes, columns) in parts.into_iter().zip(self.columns()) {
                // Cosines do not overflow.
                lanes::store(self.arch, lanes, self.scale, columns, &mut out, at, streamed);
            }
        }
        if streamed {
            simd::fence();
        }
    }

    /// Gradient of a tile.
    ///
    /// # Formula
    /// With c, s the cotangents of cosines and sines and v = (cos θ ∘ s − sin θ ∘ c)/√m, the gradient with respect to x̂
    /// is g = Σ_ℓ v_ℓ ω_ℓ, and with respect to x it is (g − x̂⟨x̂, g⟩)/‖x‖.
    fn adjoint_tile(
        &self,
        input: &Input<'_, T>,
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        let norms = self.angles(input, first, scratch);
        let Scratch { x, cosines, sines, gradient, cotangents, .. } = scratch;
        let (cosines, sines, gradient) = (cosines.as_mut(), sines.as_mut(), gradient.as_mut());
        let [columns_cos, columns_sin] = self.columns();
        let [of_cosines, of_sines] = cotangents.each_mut().map(LaneBuffer::as_mut);
        lanes::gather(cotangent, first, self.scale, columns_cos, of_cosines);
        lanes::gather(cotangent, first, self.scale, columns_sin, of_sines);
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
        let finite = lanes::store(self.arch, gradient, T::ONE, columns_cos, out, 0, false);
        if finite { None } else { first_not_finite(out).map(|row| first + row) }
    }
}

impl<T: Scalar> Tiled<T> for Cosine<T> {
    type Scratch = Scratch<T>;
    type AdjointScratch = Scratch<T>;

    /// A row of zeros has no direction.
    fn check(&self, inputs: &[Input<'_, T>]) -> Result<(), Error> {
        inputs[0].check_directions()
    }

    fn scratch(&self, _: usize) -> Scratch<T> {
        self.scratch()
    }

    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        self.block(&inputs[0], first, out, streamed, scratch);
        None
    }

    fn adjoint_bytes(&self) -> Option<u64> {
        // The work space for features is the same.
        Some(0)
    }

    fn adjoint_scratch(&self) -> Scratch<T> {
        self.scratch()
    }

    fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        self.adjoint_tile(&inputs[0], first, cotangent, gradients, scratch)
    }
}
