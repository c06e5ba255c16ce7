//! Random Fourier features on this processor.

use pulp::{Arch, Simd, WithSimd};

use super::{Tiled, first_not_finite};
use crate::draw::{self, FourierValues};
use crate::lanes::{self, Columns, LANES, Lane, LaneBuffer};
use crate::projection::{Dense, Parts};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::simd;
use crate::spec::{Frequencies, Spec};
use crate::transform::fwht;

/// Tiles that share a pass over dense frequencies.
const TILES: usize = 4;

/// Angles whose cosines and sines are written while they are in the first-level cache.
const PIECE: usize = 64;

/// Random Fourier features of the Gaussian kernel.
///
/// # Formula
/// φ(x) = (cos ⟨ω₁, x⟩, …, cos ⟨ω_m, x⟩, sin ⟨ω₁, x⟩, …, sin ⟨ω_m, x⟩)/√m with m = D/2 and the frequencies of
/// [`draw::Fourier`]. E⟨φ(x), φ(y)⟩ = E cos ⟨ω, x − y⟩ = exp(−‖x − y‖²/(2ℓ²)), for `sorf` nearly so.
///
/// # Reference
/// Rahimi and Recht (2007); Yu et al. (2016).
///
/// # Cost
/// Per row m sines and cosines, and m·d multiplications and additions; for `sorf` 3⌈m/n⌉n log₂ n additions instead.
#[derive(Debug)]
pub struct Fourier<T> {
    frequencies: Projected<T>,
    dim: usize,
    /// m, the number of frequencies.
    outputs: usize,
    scale: T,
    arch: Arch,
}

/// The frequencies as a linear map.
#[derive(Debug)]
enum Projected<T> {
    Dense(Dense<T>),
    Structured(Structured<T>),
}

/// H D₁ H D₂ H D₃ in blocks of n, with a factor for every frequency.
#[derive(Debug)]
struct Structured<T> {
    /// D₃, D₂ and D₁ of every block, n numbers each.
    signs: Vec<T>,
    padded: usize,
    /// The length of every frequency, divided by that of a row, n^{3/2}.
    factors: Vec<T>,
}

/// One thread's work space.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    x: LaneBuffer<T>,
    /// Angles, then cosines, of all tiles.
    angles: LaneBuffer<T>,
    /// Of one piece, or of one tile for the adjoint.
    sines: LaneBuffer<T>,
    /// Sums of the products with dense frequencies, or one block of structured ones.
    work: LaneBuffer<T>,
}

#[derive(Debug)]
pub(super) struct AdjointScratch<T> {
    forward: Scratch<T>,
    gradient: LaneBuffer<T>,
    /// With respect to cosines and sines.
    cotangents: [LaneBuffer<T>; 2],
}

/// Lanes of `work` for some tiles.
fn work_lanes<T: Scalar>(dense: bool, dim: usize, outputs: usize, tiles: usize) -> usize {
    if dense { tiles * Dense::<T>::sums_per_tile(outputs, dim, false) } else { dim.next_power_of_two().max(16) }
}

/// Bytes of the frequencies and of one thread's work space; `None` on overflow.
pub(super) fn bytes<T: Scalar>(spec: &Spec, frequencies: Frequencies) -> Option<u64> {
    let (dim, outputs) = (spec.inputs.as_slice()[0], spec.outputs());
    let dense = frequencies != Frequencies::Structured;
    let padded = dim.checked_next_power_of_two()?.max(16);
    let own = if dense {
        Dense::<T>::bytes(outputs, dim, false)?
    } else {
        let signs = outputs.checked_next_multiple_of(padded)?.checked_mul(3)?.checked_add(outputs)?;
        u64::try_from(signs.checked_mul(size_of::<T>())?).ok()?
    };
    let tiles = if dense { TILES } else { 1 };
    let lanes = dim.checked_add(outputs)?.checked_mul(tiles)?.checked_add(outputs)?;
    let lanes = lanes.checked_add(work_lanes::<T>(dense, dim, outputs, tiles))?;
    own.checked_add(u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()?)
}

impl<T: Scalar> Fourier<T> {
    pub(crate) fn new(drawn: &draw::Fourier, arch: Arch) -> Self {
        let (dim, outputs) = (drawn.dim, drawn.outputs);
        let frequencies = match &drawn.values {
            FourierValues::Structured { signs, lengths } => {
                let padded = drawn.padded();
                let row = (padded as f64).powf(1.5) * drawn.length_scale;
                Projected::Structured(Structured {
                    signs: signs.iter().map(|&turns| if turns == 0 { T::ONE } else { -T::ONE }).collect(),
                    padded,
                    factors: lengths.iter().map(|length| T::from_f64(length / row)).collect(),
                })
            }
            _ => Projected::Dense(Dense::from_rows(outputs, dim, false, arch, |index| {
                drawn.frequency(index).into_iter().map(|entry| [entry, 0.0]).collect()
            })),
        };
        Self { frequencies, dim, outputs, scale: T::from_f64(1.0 / (outputs as f64).sqrt()), arch }
    }

    fn scratch_for(&self, tiles: usize) -> Scratch<T> {
        let dense = matches!(self.frequencies, Projected::Dense(_));
        Scratch {
            x: LaneBuffer::new(tiles * self.dim),
            angles: LaneBuffer::new(tiles * self.outputs),
            sines: LaneBuffer::new(self.outputs),
            work: LaneBuffer::new(work_lanes::<T>(dense, self.dim, self.outputs, tiles)),
        }
    }

    /// The most tiles whose angles are computed together.
    fn tiles(&self) -> usize {
        if matches!(self.frequencies, Projected::Dense(_)) { TILES } else { 1 }
    }

    /// Leaves the angles of some tiles in the work space.
    fn angles(&self, input: &Input<'_, T>, first: usize, tiles: usize, scratch: &mut Scratch<T>) {
        let (dim, outputs) = (self.dim, self.outputs);
        let x = &mut scratch.x.as_mut()[..tiles * dim];
        for (tile, x) in x.chunks_exact_mut(dim).enumerate() {
            lanes::load(self.arch, input, first + tile * LANES, [T::ONE, T::ZERO], x);
        }
        let angles = &mut scratch.angles.as_mut()[..tiles * outputs];
        match &self.frequencies {
            Projected::Dense(dense) => {
                let sums = scratch.work.as_mut();
                let used = sums.len().min(tiles * Dense::<T>::sums_per_tile(outputs, dim, false));
                dense.apply([x, &[]], [&mut sums[..used], &mut []], |tile, row, values, _| {
                    angles[tile * outputs + row..][..values.len()].copy_from_slice(values);
                });
            }
            Projected::Structured(structured) => {
                for (x, angles) in x.chunks_exact(dim).zip(angles.chunks_exact_mut(outputs)) {
                    let work = scratch.work.as_mut();
                    for (block, angles) in angles.chunks_mut(structured.padded).enumerate() {
                        let signs = structured.signs(block);
                        let factors = &structured.factors[block * structured.padded..];
                        self.arch.dispatch(Forward { signs, factors, x, work: &mut *work, angles });
                    }
                }
            }
        }
    }

    /// The columns of cosines and sines in a row of features.
    fn columns(&self) -> [Columns; 2] {
        Parts::Apart.columns(self.outputs)
    }
}

impl<T: Scalar> Structured<T> {
    /// D₃, D₂ and D₁ of a block.
    fn signs(&self, block: usize) -> [&[T]; 3] {
        let signs = &self.signs[3 * self.padded * block..][..3 * self.padded];
        let (third, rest) = signs.split_at(self.padded);
        let (second, first) = rest.split_at(self.padded);
        [third, second, first]
    }
}

/// One block of H D₁ H D₂ H D₃ x, times factors.
struct Forward<'a, T> {
    signs: [&'a [T]; 3],
    factors: &'a [T],
    x: &'a [Lane<T>],
    work: &'a mut [Lane<T>],
    angles: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { signs: [third, second, first], factors, x, work, angles } = self;
        let (filled, padding) = work.split_at_mut(x.len());
        lanes::scale_into(simd, x, third.iter().copied(), filled);
        padding.fill([T::ZERO; LANES]);
        fwht::across_lanes(simd, work);
        for signs in [second, first] {
            lanes::scale_each(simd, work, signs);
            fwht::across_lanes(simd, work);
        }
        lanes::scale_into(simd, work, factors.iter().copied(), angles);
    }
}

/// Adds one block of D₃ H D₂ H D₁ H v, with v times factors, to a gradient.
struct Backward<'a, T> {
    signs: [&'a [T]; 3],
    factors: &'a [T],
    v: &'a [Lane<T>],
    work: &'a mut [Lane<T>],
    gradient: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { signs: [third, second, first], factors, v, work, gradient } = self;
        let (filled, padding) = work.split_at_mut(v.len());
        lanes::scale_into(simd, v, factors.iter().copied(), filled);
        padding.fill([T::ZERO; LANES]);
        for signs in [first, second, third] {
            fwht::across_lanes(simd, work);
            lanes::scale_each(simd, work, signs);
        }
        for (sum, &new) in gradient.iter_mut().zip(&*work) {
            *sum = lanes::add(*sum, new);
        }
    }
}

/// Replaces angles by their cosines and writes their sines.
struct Turn<'a, T> {
    angles: &'a mut [Lane<T>],
    sines: &'a mut [Lane<T>],
}

impl<T: Scalar> WithSimd for Turn<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        T::turn(simd, self.angles, self.sines);
    }
}

impl<T: Scalar> Tiled<T> for Fourier<T> {
    type Scratch = Scratch<T>;
    type AdjointScratch = AdjointScratch<T>;

    fn tiles_per_block(&self) -> usize {
        TILES
    }

    fn scratch(&self, rows: usize) -> Scratch<T> {
        self.scratch_for(rows.div_ceil(LANES).clamp(1, self.tiles()))
    }

    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        for start in (0..out.rows()).step_by(self.tiles() * LANES) {
            let tiles = (out.rows() - start).div_ceil(LANES).min(self.tiles());
            self.angles(&inputs[0], first + start, tiles, scratch);
            let Scratch { angles, sines, .. } = scratch;
            for (tile, angles) in angles.as_mut().chunks_exact_mut(self.outputs).take(tiles).enumerate() {
                let at = start + tile * LANES;
                // Angles that overflow give NaN, which is reported.
                let mut finite = true;
                for (piece, angles) in angles.chunks_mut(PIECE).enumerate() {
                    let sines = &mut sines.as_mut()[..angles.len()];
                    self.arch.dispatch(Turn { angles: &mut *angles, sines: &mut *sines });
                    for (lanes, columns) in [angles, sines].into_iter().zip(self.columns()) {
                        let columns = Columns { start: columns.start + piece * PIECE, ..columns };
                        finite &= lanes::store(self.arch, lanes, self.scale, columns, &mut out, at, streamed);
                    }
                }
                if !finite {
                    return first_not_finite(&mut out).map(|row| first + row);
                }
            }
        }
        if streamed {
            simd::fence();
        }
        None
    }

    fn adjoint_bytes(&self) -> Option<u64> {
        let dense = matches!(self.frequencies, Projected::Dense(_));
        let lanes = self.dim.checked_mul(2)?.checked_add(self.outputs.checked_mul(4)?)?;
        let lanes = lanes.checked_add(work_lanes::<T>(dense, self.dim, self.outputs, 1))?;
        u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()
    }

    fn adjoint_scratch(&self) -> AdjointScratch<T> {
        AdjointScratch {
            forward: self.scratch_for(1),
            gradient: LaneBuffer::new(self.dim),
            cotangents: [LaneBuffer::new(self.outputs), LaneBuffer::new(self.outputs)],
        }
    }

    /// # Formula
    /// With c, s the cotangents of cosines and sines, the gradient is Σ_ℓ (cos θ_ℓ s_ℓ − sin θ_ℓ c_ℓ) ω_ℓ/√m.
    fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        AdjointScratch { forward, gradient, cotangents }: &mut AdjointScratch<T>,
    ) -> Option<usize> {
        self.angles(&inputs[0], first, 1, forward);
        let Scratch { angles, sines, work, .. } = forward;
        let (cosines, sines) = (angles.as_mut(), sines.as_mut());
        self.arch.dispatch(Turn { angles: &mut *cosines, sines: &mut *sines });
        let [columns_cos, columns_sin] = self.columns();
        let [v, of_sines] = cotangents.each_mut().map(LaneBuffer::as_mut);
        lanes::gather(cotangent, first, self.scale, columns_cos, v);
        lanes::gather(cotangent, first, self.scale, columns_sin, of_sines);
        for (row, v) in v.iter_mut().enumerate() {
            *v = lanes::sub(lanes::mul(cosines[row], of_sines[row]), lanes::mul(sines[row], *v));
        }
        let gradient = gradient.as_mut();
        gradient.fill([T::ZERO; LANES]);
        match &self.frequencies {
            Projected::Dense(dense) => dense.add_transpose([v, &[]], [&mut *gradient, &mut []]),
            Projected::Structured(structured) => {
                for (block, v) in v.chunks(structured.padded).enumerate() {
                    let (signs, work) = (structured.signs(block), work.as_mut());
                    let gradient = &mut *gradient;
                    let factors = &structured.factors[block * structured.padded..];
                    self.arch.dispatch(Backward { signs, factors, v, work, gradient });
                }
            }
        }
        let out = &mut gradients[0];
        let finite = lanes::store(self.arch, gradient, T::ONE, columns_cos, out, 0, false);
        if finite { None } else { first_not_finite(out).map(|row| first + row) }
    }
}
