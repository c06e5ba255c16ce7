//! One linear map Wᵢ each: m rows w with E[w wᴴ] = I, never divided by √m (the sketch does that, once).
//!
//! To add a projection: write its file here, add its arm to every `match` below and its [`Base`] variant; the
//! compiler lists the rest. `CONTRIBUTING.md` goes through it step by step.

mod dense;
mod srht;

use crate::lanes::{Lane, LaneBuffer};
use crate::scalar::Scalar;
use crate::spec::Base;

use dense::Dense;
use srht::Srht;

/// What a projection is drawn from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) base: Base,
    pub(crate) complex: bool,
    pub(crate) seed: u64,
    /// Which of the p factors: selects the random stream.
    pub(crate) factor: u32,
    /// The dimension of x̃.
    pub(crate) dim: usize,
    /// The number m of rows.
    pub(crate) rows: usize,
}

/// The four values of a complex sign, counted in quarter turns: 1, i, −1, −i. A real sign is turn 0 or 2.
#[inline(always)]
fn quarter_turn<T: Scalar>(turns: u8) -> [T; 2] {
    let (one, zero) = (T::ONE, T::ZERO);
    [[one, zero], [zero, one], [-one, zero], [zero, -one]][usize::from(turns & 3)]
}

/// A drawn projection.
#[derive(Debug)]
pub(crate) enum Projection<T> {
    Dense(Dense<T>),
    Srht(Srht),
}

/// Work space that a projection may use as it likes.
#[derive(Debug)]
pub(crate) struct Workspace<T> {
    re: LaneBuffer<T>,
    im: LaneBuffer<T>,
}

impl<T: Scalar> Workspace<T> {
    pub(crate) fn new(lanes: usize, complex: bool) -> Self {
        Self { re: LaneBuffer::new(lanes), im: LaneBuffer::new(if complex { lanes } else { 0 }) }
    }
}

impl<T: Scalar> Projection<T> {
    pub(crate) fn sample(draw: Draw) -> Self {
        match draw.base {
            Base::Gaussian | Base::Rademacher => Self::Dense(Dense::sample(draw)),
            // A spec with a TensorSketch does not validate, so none is drawn here.
            Base::ProductSrht | Base::TensorSrht | Base::TensorSketch => Self::Srht(Srht::sample(draw)),
        }
    }

    /// Bytes that [`Projection::sample`] allocates, if they can be counted.
    pub(crate) fn bytes(draw: Draw) -> Option<u64> {
        match draw.base {
            Base::Gaussian | Base::Rademacher => Dense::<T>::bytes(draw),
            Base::ProductSrht | Base::TensorSrht | Base::TensorSketch => Srht::bytes(draw),
        }
    }

    /// Lanes of [`Workspace`] that one tile needs.
    pub(crate) fn workspace_lanes(draw: Draw) -> usize {
        match draw.base {
            Base::Gaussian | Base::Rademacher => 0,
            Base::ProductSrht | Base::TensorSrht | Base::TensorSketch => draw.dim.next_power_of_two(),
        }
    }

    /// Tiles worth computing together: dense weights are then read once for all of them.
    pub(crate) fn tiles_per_block(base: Base) -> usize {
        match base {
            Base::Gaussian | Base::Rademacher => 4,
            Base::ProductSrht | Base::TensorSrht | Base::TensorSketch => 1,
        }
    }

    /// Computes Wx for every tile in `x` and hands over (tile, row of W, real part, imaginary part).
    ///
    /// The imaginary part of a real projection is zero. Each row's value depends on its own lane only.
    #[inline(always)]
    pub(crate) fn apply(
        &self,
        x: &[Lane<T>],
        workspace: &mut Workspace<T>,
        emit: impl FnMut(usize, usize, Lane<T>, Lane<T>),
    ) {
        match self {
            Self::Dense(dense) => dense.apply(x, emit),
            Self::Srht(srht) => srht.apply(x, workspace, emit),
        }
    }

    /// Adds Re(Wᵀv) to `gradient`, for one tile; `v` is [Re v, Im v], the latter empty for a real projection.
    #[inline(always)]
    pub(crate) fn add_transpose(&self, v: [&[Lane<T>]; 2], workspace: &mut Workspace<T>, gradient: &mut [Lane<T>]) {
        match self {
            Self::Dense(dense) => dense.add_transpose(v, gradient),
            Self::Srht(srht) => srht.add_transpose(v, workspace, gradient),
        }
    }
}
