//! One linear map Wᵢ each: m rows w with E[w wᴴ] = I, never divided by √m (the sketch does that, once).
//!
//! To add a projection: write its file here, add its arm to every `match` below and its [`Base`] variant; the
//! compiler lists the rest. `CONTRIBUTING.md` goes through it step by step.

mod count_sketch;
mod dense;
mod fused;
mod rademacher;
mod srht;

use crate::lanes::{self, LANES, Lane, LaneBuffer};
use crate::rng::{Purpose, Stream};
use crate::rows::SparseRows;
use crate::scalar::Scalar;
use crate::spec::Base;
use crate::transform::fft::{Fourier, FourierRows};

use count_sketch::CountSketch;
pub(crate) use dense::Dense;
pub(crate) use fused::{Parts, write_products};
pub(crate) use rademacher::{LookedUp, Rademacher};
pub(crate) use srht::{Srht, Transformed};

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
    Rademacher(Rademacher),
    Srht(Srht),
    CountSketch(CountSketch<T>),
    /// F S/√m with S an SRHT: mixes a vector whose transform is to be multiplied.
    TransformedSrht(Srht, Fourier<T>, T),
}

/// Sparse rows as they are stored, for projections that can do without lanes.
#[derive(Debug)]
pub(crate) struct RowSource<'a, 'b, T> {
    pub(crate) input: &'a SparseRows<'b, T>,
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
            self.input.row(first + row).for_each(|(column, value)| visit(row, column, value * self.root_gamma));
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
        self.fourier.load(re, im, T::from_f64(1.0 / (re.len() as f64).sqrt()));
        fourier.inverse(&mut self.fourier);
        self.fourier.store(re, im);
    }
}

impl<T: Scalar> Projection<T> {
    /// Draws a projection; `fourier` is the transform of length m, for those that need it.
    pub(crate) fn sample(draw: Draw, fourier: Option<&Fourier<T>>) -> Self {
        match (draw.base, fourier) {
            (Base::Gaussian, _) => Self::Dense(Dense::sample(draw)),
            (Base::Rademacher, _) => Self::Rademacher(Rademacher::sample(draw)),
            (Base::TensorSketch, Some(fourier)) => Self::CountSketch(CountSketch::sample(draw, fourier)),
            (Base::ProductSrht, Some(fourier)) => {
                let scale = T::from_f64(1.0 / (draw.rows as f64).sqrt());
                Self::TransformedSrht(Srht::sample(draw), fourier.clone(), scale)
            }
            // Spherical features are no products, and TensorSketch always comes with a transform.
            (Base::ProductSrht | Base::TensorSrht | Base::TensorSketch, _) => Self::Srht(Srht::sample(draw)),
        }
    }

    /// Bytes that [`Projection::sample`] allocates, if they can be counted.
    pub(crate) fn bytes(draw: Draw) -> Option<u64> {
        match draw.base {
            Base::Gaussian => Dense::<T>::bytes(draw),
            Base::Rademacher => Rademacher::bytes(draw),
            Base::ProductSrht | Base::TensorSrht => Srht::bytes(draw),
            Base::TensorSketch => CountSketch::<T>::bytes(draw),
        }
    }

    /// Lanes of [`Workspace`] that it needs.
    pub(crate) fn workspace_lanes(draw: Draw) -> usize {
        match draw.base {
            Base::Gaussian => Dense::<T>::workspace_lanes(draw),
            Base::TensorSketch => 0,
            Base::Rademacher => Rademacher::workspace_lanes(),
            Base::ProductSrht | Base::TensorSrht => draw.dim.next_power_of_two(),
        }
    }

    /// Lanes of the whole transform of one tile, for projections that sample one; `None` for others.
    pub(crate) fn transformed_lanes(draw: Draw) -> Option<usize> {
        match draw.base {
            Base::ProductSrht | Base::TensorSrht => Srht::transformed_lanes(draw),
            Base::Gaussian | Base::Rademacher | Base::TensorSketch => None,
        }
    }

    /// Tiles worth computing together: weights are then read once for all of them.
    pub(crate) fn tiles_per_block(draw: Draw) -> usize {
        match draw.base {
            Base::Gaussian => Dense::<T>::tiles_per_block(draw),
            Base::Rademacher => 4,
            Base::ProductSrht | Base::TensorSrht | Base::TensorSketch => 1,
        }
    }

    /// Whether [`Projection::apply`] reads a sparse input from its rows, so that nobody needs to put it into lanes.
    pub(crate) fn reads_sparse(&self) -> bool {
        matches!(self, Self::CountSketch(_))
    }

    /// Computes Wx for every tile and hands over (tile, first row of W, real parts, imaginary parts) of some rows at a time.
    ///
    /// `x` is [Re x, Im x], the latter empty if x is real; `rows` is where an input comes from, for projections that
    /// read it from there. The imaginary parts of a real projection may be left out. Each row's value depends on its own lane
    /// only.
    pub(crate) fn apply(
        &self,
        x: [&[Lane<T>]; 2],
        rows: Option<&RowSource<'_, '_, T>>,
        tiles: usize,
        workspace: &mut Workspace<T>,
        mut emit: impl FnMut(usize, usize, &[Lane<T>], &[Lane<T>]),
    ) {
        match self {
            Self::Dense(dense) => dense.apply(x, workspace.lanes.each_mut().map(LaneBuffer::as_mut), emit),
            Self::Rademacher(rademacher) => rademacher.apply(x, &mut workspace.lanes, emit),
            Self::Srht(srht) => srht.apply(x, &mut workspace.lanes, |tile, row, re, im| emit(tile, row, &[re], &[im])),
            Self::CountSketch(_) | Self::TransformedSrht(..) => {
                for tile in 0..tiles {
                    self.transformed(x, rows, (tile, tiles), workspace);
                    for row in 0..workspace.fourier.length() {
                        let (re, im) = workspace.fourier.lane(row);
                        emit(tile, row, &[re], &[im]);
                    }
                }
            }
        }
    }

    /// As [`Projection::apply`]: multiplies `re` and `im`, m lanes per tile, by Wx, or, if `first`, replaces them. `im` is
    /// empty if products are real.
    pub(crate) fn multiply_into(
        &self,
        x: [&[Lane<T>]; 2],
        rows: Option<&RowSource<'_, '_, T>>,
        tiles: usize,
        workspace: &mut Workspace<T>,
        [re, im]: [&mut [Lane<T>]; 2],
        first: bool,
    ) {
        let m = re.len() / tiles;
        let in_lanes = workspace.fourier.parts().is_some();
        if matches!(self, Self::Srht(_)) || in_lanes && matches!(self, Self::CountSketch(_) | Self::TransformedSrht(..))
        {
            for tile in 0..tiles {
                let part = tile * m..(tile + 1) * m;
                let im = if im.is_empty() { &mut [] } else { &mut im[part.clone()] };
                let whole = if let Self::Srht(srht) = self {
                    Some(srht.transform(one_tile(x, tile, tiles), &mut workspace.lanes))
                } else {
                    self.transformed(x, rows, (tile, tiles), workspace);
                    workspace.fourier.transformed()
                };
                if let Some(whole) = whole {
                    whole.multiply_into(&mut re[part], im, first);
                }
            }
        } else {
            self.apply(x, rows, tiles, workspace, |tile, row, new_re, new_im| {
                let part = tile * m + row..tile * m + row + new_re.len();
                let im = if im.is_empty() { &mut [] } else { &mut im[part.clone()] };
                lanes::multiply(&mut re[part], im, new_re, new_im, first);
            });
        }
    }

    /// Leaves the transformed projection of one tile in the work space.
    fn transformed(
        &self,
        x: [&[Lane<T>]; 2],
        rows: Option<&RowSource<'_, '_, T>>,
        (tile, tiles): (usize, usize),
        workspace: &mut Workspace<T>,
    ) {
        let x = one_tile(x, tile, tiles);
        match (self, rows) {
            (Self::CountSketch(count), Some(rows)) => count.project_rows(rows, tile, &mut workspace.fourier),
            (Self::CountSketch(count), None) => count.project_lanes(x, &mut workspace.fourier),
            (Self::TransformedSrht(srht, fourier, factor), _) => {
                let Workspace { lanes, fourier: rows } = workspace;
                srht.apply(x, lanes, |_, row, re, im| {
                    rows.set_lane(row, lanes::scale(re, *factor), lanes::scale(im, *factor));
                });
                fourier.forward(rows);
            }
            (Self::Dense(_) | Self::Rademacher(_) | Self::Srht(_), _) => {}
        }
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
            Self::Rademacher(rademacher) => rademacher.add_transpose([v_re, v_im], &mut workspace.lanes, gradient),
            Self::Srht(srht) => srht.add_transpose([v_re, v_im], &mut workspace.lanes, gradient),
            Self::CountSketch(count) => count.add_transpose([v_re, v_im], &mut workspace.fourier, gradient),
            Self::TransformedSrht(srht, fourier, factor) => {
                // (F S/√m)ᵀ = Sᵀ F/√m.
                workspace.fourier.load(v_re, v_im, *factor);
                fourier.forward(&mut workspace.fourier);
                workspace.fourier.store(v_re, v_im);
                srht.add_transpose([v_re, v_im], &mut workspace.lanes, gradient);
            }
        }
    }
}

/// One of several tiles of [Re x, Im x], which may be empty.
fn one_tile<T>(x: [&[Lane<T>]; 2], tile: usize, tiles: usize) -> [&[Lane<T>]; 2] {
    x.map(|x| &x[tile * (x.len() / tiles)..][..x.len() / tiles])
}
