//! One linear map Wᵢ each: m rows w with E[w wᴴ] = I, never divided by √m (the sketch does that, once).
//!
//! To add a projection: write its file here, add its arm to every `match` below and its [`Base`] variant; the
//! compiler lists the rest. `CONTRIBUTING.md` goes through it step by step.

mod count_sketch;
mod dense;
mod srht;

use crate::lanes::{self, LANES, Lane, LaneBuffer};
use crate::rng::{Purpose, Stream};
use crate::rows::Input;
use crate::scalar::Scalar;
use crate::spec::Base;
use crate::transform::fft::{Fourier, FourierRows};

use count_sketch::CountSketch;
pub(crate) use dense::Dense;
pub(crate) use srht::{Parts, Srht, write_products};

/// What a projection is drawn from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) base: Base,
    pub(crate) complex: bool,
    pub(crate) seed: u64,
    /// Selects the random stream: the factor, or a number after all factors.
    pub(crate) factor: u32,
    /// Whether an SRHT may sort its sample.
    pub(crate) sorted: bool,
    /// The dimension of what is projected.
    pub(crate) dim: usize,
    /// The number m of rows.
    pub(crate) rows: usize,
}

impl Draw {
    /// Random signs in quarter turns, one per coordinate.
    fn signs(self) -> Vec<u8> {
        let mut stream = Stream::new(self.seed, Purpose::Signs, self.factor, 0);
        if self.complex {
            stream.small_integers(2, self.dim)
        } else {
            stream.small_integers(1, self.dim).into_iter().map(|bit| 2 * bit).collect()
        }
    }
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
    CountSketch(CountSketch<T>),
    /// F S/√m with S an SRHT: mixes a vector whose transform is to be multiplied.
    TransformedSrht(Srht, Fourier<T>, T),
}

/// Rows of an input as they are stored, for projections that can do without lanes.
#[derive(Debug)]
pub(crate) struct RowSource<'a, 'b, T> {
    pub(crate) input: &'a Input<'b, T>,
    /// The row that the first tile starts with.
    pub(crate) first: usize,
    pub(crate) root_gamma: T,
    pub(crate) root_coef0: T,
}

impl<T: Scalar> RowSource<'_, '_, T> {
    /// Calls `visit(row in the tile, column, value)` for the entries of x̃ in one tile.
    fn for_each(&self, tile: usize, mut visit: impl FnMut(usize, usize, T)) {
        let first = self.first + tile * LANES;
        for row in 0..LANES.min(self.input.rows().saturating_sub(first)) {
            match self.input {
                Input::Dense(rows) => {
                    for (column, &value) in rows.row(first + row).iter().enumerate() {
                        visit(row, column, value * self.root_gamma);
                    }
                }
                Input::Sparse(rows) => {
                    rows.row(first + row).for_each(|(column, value)| visit(row, column, value * self.root_gamma));
                }
            }
            if self.root_coef0 > T::ZERO {
                visit(row, self.input.columns(), self.root_coef0);
            }
        }
    }
}

/// Work space that a projection may use as it likes.
#[derive(Debug)]
pub(crate) struct Workspace<T> {
    /// Real and imaginary part.
    pub(crate) lanes: [LaneBuffer<T>; 2],
    fourier: FourierRows<T>,
}

impl<T: Scalar> Workspace<T> {
    pub(crate) fn new(lanes: usize, complex: bool, fourier: Option<&Fourier<T>>) -> Self {
        Self {
            lanes: [LaneBuffer::new(lanes), LaneBuffer::new(if complex { lanes } else { 0 })],
            fourier: fourier.map_or_else(FourierRows::empty, Fourier::rows),
        }
    }

    /// Replaces a tile by its inverse transform, made unitary.
    pub(crate) fn transform_back(&mut self, fourier: &Fourier<T>, re: &mut [Lane<T>], im: &mut [Lane<T>]) {
        let unitary = T::from_f64(1.0 / (re.len() as f64).sqrt());
        for (at, (&re, &im)) in re.iter().zip(&*im).enumerate() {
            self.fourier.set_lane(at, re, im);
        }
        fourier.inverse(&mut self.fourier);
        for (at, (re, im)) in re.iter_mut().zip(im).enumerate() {
            let (new_re, new_im) = self.fourier.lane(at);
            *re = lanes::scale(new_re, unitary);
            *im = lanes::scale(new_im, unitary);
        }
    }
}

impl<T: Scalar> Projection<T> {
    /// Draws a projection; `fourier` is the transform of length m, for those that need it.
    pub(crate) fn sample(draw: Draw, fourier: Option<&Fourier<T>>) -> Self {
        match (draw.base, fourier) {
            (Base::Gaussian | Base::Rademacher, _) => Self::Dense(Dense::sample(draw)),
            (Base::TensorSketch, Some(fourier)) => Self::CountSketch(CountSketch::sample(draw, fourier)),
            (Base::ProductSrht, Some(fourier)) => {
                let scale = T::from_f64(1.0 / (draw.rows as f64).sqrt());
                Self::TransformedSrht(Srht::sample(draw), fourier.clone(), scale)
            }
            // Spherical features are no products, and TensorSketch always comes with a transform.
            (Base::ProductSrht | Base::TensorSrht | Base::TensorSketch | Base::Spherical, _) => {
                Self::Srht(Srht::sample(draw))
            }
        }
    }

    /// Bytes that [`Projection::sample`] allocates, if they can be counted.
    pub(crate) fn bytes(draw: Draw) -> Option<u64> {
        match draw.base {
            Base::Gaussian | Base::Rademacher => Dense::<T>::bytes(draw),
            Base::ProductSrht | Base::TensorSrht | Base::Spherical => Srht::bytes(draw),
            Base::TensorSketch => CountSketch::<T>::bytes(draw),
        }
    }

    /// Lanes of [`Workspace`] that one tile needs.
    pub(crate) fn workspace_lanes(draw: Draw) -> usize {
        match draw.base {
            Base::Gaussian | Base::Rademacher | Base::TensorSketch => 0,
            Base::ProductSrht | Base::TensorSrht | Base::Spherical => draw.dim.next_power_of_two(),
        }
    }

    /// Lanes of the whole transform of one tile, for projections that sample one; `None` for others.
    pub(crate) fn transformed_lanes(draw: Draw) -> Option<usize> {
        match draw.base {
            Base::ProductSrht | Base::TensorSrht => Srht::transformed_lanes(draw),
            Base::Gaussian | Base::Rademacher | Base::TensorSketch | Base::Spherical => None,
        }
    }

    /// Tiles worth computing together: dense weights are then read once for all of them.
    pub(crate) fn tiles_per_block(base: Base) -> usize {
        match base {
            Base::Gaussian | Base::Rademacher => 4,
            Base::ProductSrht | Base::TensorSrht | Base::TensorSketch | Base::Spherical => 1,
        }
    }

    /// Whether [`Projection::apply`] reads an input from its rows, so that nobody needs to put it into lanes.
    #[inline(always)]
    pub(crate) fn reads_rows(&self) -> bool {
        matches!(self, Self::CountSketch(_))
    }

    /// Computes Wx for every tile and hands over (tile, row of W, real part, imaginary part).
    ///
    /// `x` is [Re x, Im x], the latter empty if x is real; `rows` is where an input comes from, for projections that
    /// read it from there. The imaginary part of a real projection is zero. Each row's value depends on its own lane
    /// only.
    #[inline(always)]
    pub(crate) fn apply(
        &self,
        x: [&[Lane<T>]; 2],
        rows: Option<&RowSource<'_, '_, T>>,
        tiles: usize,
        workspace: &mut Workspace<T>,
        mut emit: impl FnMut(usize, usize, Lane<T>, Lane<T>),
    ) {
        match self {
            Self::Dense(dense) => dense.apply(x, emit),
            Self::Srht(srht) => srht.apply(x, &mut workspace.lanes, emit),
            Self::CountSketch(_) | Self::TransformedSrht(..) => {
                let dim = x[0].len() / tiles;
                for tile in 0..tiles {
                    let part = |x: &'_ [Lane<T>]| if x.is_empty() { 0..0 } else { tile * dim..(tile + 1) * dim };
                    let x = [&x[0][part(x[0])], &x[1][part(x[1])]];
                    let count = self.transformed(x, rows, tile, workspace);
                    for row in 0..count {
                        let (re, im) = workspace.fourier.lane(row);
                        emit(tile, row, re, im);
                    }
                }
            }
        }
    }

    /// Leaves the transformed projection of one tile in the work space; returns its number of elements.
    fn transformed(
        &self,
        x: [&[Lane<T>]; 2],
        rows: Option<&RowSource<'_, '_, T>>,
        tile: usize,
        workspace: &mut Workspace<T>,
    ) -> usize {
        match (self, rows) {
            (Self::CountSketch(count), Some(rows)) => count.project_rows(rows, tile, &mut workspace.fourier),
            (Self::CountSketch(count), None) => count.project_lanes(x, &mut workspace.fourier),
            (Self::TransformedSrht(srht, fourier, factor), _) => {
                let Workspace { lanes, fourier: rows } = workspace;
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        srht.apply(x, lanes, |_, row, re, im| {
                            rows.set_lane(row, lanes::scale(re, *factor), lanes::scale(im, *factor));
                        });
                    },
                );
                fourier.forward(rows);
            }
            (Self::Dense(_) | Self::Srht(_), _) => {}
        }
        workspace.fourier.length()
    }

    /// Adds Wᵀv to `gradient`, for one tile; both are [Re, Im].
    ///
    /// Im v is empty for a real projection; Im of the gradient is empty if only its real part is wanted.
    #[inline(always)]
    pub(crate) fn add_transpose(
        &self,
        v: [&mut [Lane<T>]; 2],
        workspace: &mut Workspace<T>,
        gradient: [&mut [Lane<T>]; 2],
    ) {
        let [v_re, v_im] = v;
        match self {
            Self::Dense(dense) => dense.add_transpose([v_re, v_im], gradient),
            Self::Srht(srht) => srht.add_transpose([v_re, v_im], &mut workspace.lanes, gradient),
            Self::CountSketch(count) => count.add_transpose([v_re, v_im], &mut workspace.fourier, gradient),
            Self::TransformedSrht(srht, fourier, factor) => {
                // (F S/√m)ᵀ = Sᵀ F/√m.
                for (at, (&re, &im)) in v_re.iter().zip(&*v_im).enumerate() {
                    workspace.fourier.set_lane(at, re, im);
                }
                fourier.forward(&mut workspace.fourier);
                for (at, (re, im)) in v_re.iter_mut().zip(v_im.iter_mut()).enumerate() {
                    let (new_re, new_im) = workspace.fourier.lane(at);
                    *re = lanes::scale(new_re, *factor);
                    *im = lanes::scale(new_im, *factor);
                }
                srht.add_transpose([v_re, v_im], &mut workspace.lanes, gradient);
            }
        }
    }
}
