//! The flat sketch: element-wise product of p projections.

#![allow(unreachable_pub, reason = "a sealed trait of the public `Scalar` names these types")]

use crate::lanes::{self, LANES, Lane, LaneBuffer, Layout, complex_mul, mul};
use crate::projection::{Draw, Projection, Workspace};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::{Field, InputDims, Spec};

/// The p drawn projections and how they are fed and read.
#[derive(Debug)]
pub struct Product<T> {
    factors: Vec<Factor<T>>,
    field: Field,
    /// m, the rows of each projection.
    rows: usize,
    workspace_lanes: usize,
    tiles_per_block: usize,
    root_gamma: T,
    root_coef0: T,
    /// 1/√m: the one place where features are scaled.
    scale: T,
}

#[derive(Debug)]
struct Factor<T> {
    projection: Projection<T>,
    /// Which input table it reads.
    input: usize,
    /// The dimension of x̃.
    dim: usize,
}

/// One thread's work space for [`Product::forward`].
#[derive(Debug)]
pub struct ForwardScratch<T> {
    x: LaneBuffer<T>,
    re: LaneBuffer<T>,
    im: LaneBuffer<T>,
    workspace: Workspace<T>,
}

/// One thread's work space for [`Product::backward`]: one tile.
#[derive(Debug)]
pub struct BackwardScratch<T> {
    x: LaneBuffer<T>,
    gradient: LaneBuffer<T>,
    /// uᵢ = Wᵢ x̃, factor after factor.
    projected: [LaneBuffer<T>; 2],
    /// u_{i+1} ∘ … ∘ u_p, factor after factor.
    suffix: [LaneBuffer<T>; 2],
    /// The conjugated cotangent times u₁ ∘ … ∘ u_{i−1}.
    prefix: [LaneBuffer<T>; 2],
    v: [LaneBuffer<T>; 2],
    workspace: Workspace<T>,
}

/// What an allocator may add to the buffers of one factor: it counts when a sketch has very many tiny factors.
const ALLOCATION: usize = 64;

/// What each factor is drawn from.
fn draws(spec: &Spec) -> impl Iterator<Item = Draw> + '_ {
    spec.factor_dims().zip(0_u32..).map(|(dim, factor)| Draw {
        base: spec.method.base,
        complex: spec.method.field.is_complex(),
        seed: spec.seed,
        factor,
        dim,
        rows: spec.rows(),
    })
}

impl<T: Scalar> Product<T> {
    pub(super) fn sample(spec: &Spec) -> Self {
        let distinct = matches!(spec.inputs, InputDims::Distinct(_));
        let factors: Vec<_> = draws(spec)
            .enumerate()
            .map(|(index, draw)| Factor {
                projection: Projection::sample(draw),
                input: if distinct { index } else { 0 },
                dim: draw.dim,
            })
            .collect();
        Self {
            factors,
            field: spec.method.field,
            rows: spec.rows(),
            workspace_lanes: draws(spec).map(Projection::<T>::workspace_lanes).max().unwrap_or(0),
            tiles_per_block: Projection::<T>::tiles_per_block(spec.method.base),
            root_gamma: T::from_f64(spec.kernel.gamma.sqrt()),
            root_coef0: T::from_f64(spec.kernel.coef0.sqrt()),
            scale: T::from_f64(1.0 / (spec.rows() as f64).sqrt()),
        }
    }

    /// Bytes of all projections and of one [`ForwardScratch`], if they can be counted.
    pub(super) fn bytes(spec: &Spec) -> Option<u64> {
        // All factors of one table are alike, so a huge degree is counted without a loop.
        let (drawn, widest) = match &spec.inputs {
            InputDims::Same(_) => {
                let draw = draws(spec).next()?;
                (Projection::<T>::bytes(draw)?.checked_mul(u64::try_from(spec.kernel.degree).ok()?)?, draw)
            }
            InputDims::Distinct(_) => {
                let drawn =
                    draws(spec).map(Projection::<T>::bytes).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))?;
                (drawn, draws(spec).max_by_key(|draw| draw.dim)?)
            }
        };
        let tiles = Projection::<T>::tiles_per_block(spec.method.base);
        let lanes = tiles
            .checked_mul(widest.dim.checked_add(widest.rows.checked_mul(2)?)?)?
            .checked_add(Projection::<T>::workspace_lanes(widest).checked_mul(2)?)?;
        let factors = u64::try_from(spec.kernel.degree.checked_mul(size_of::<Factor<T>>() + ALLOCATION)?).ok()?;
        drawn.checked_add(lane_bytes::<T>(lanes)?)?.checked_add(factors)
    }

    /// Bytes of one [`BackwardScratch`], if they can be counted.
    pub(super) fn backward_bytes(&self) -> Option<u64> {
        let products = self.factors.len().checked_mul(2)?.checked_add(2)?.checked_mul(self.rows)?.checked_mul(2)?;
        lane_bytes::<T>(products.checked_add(2 * self.widest())?.checked_add(2 * self.workspace_lanes)?)
    }

    pub(super) fn tiles_per_block(&self) -> usize {
        self.tiles_per_block
    }

    fn widest(&self) -> usize {
        self.factors.iter().map(|factor| factor.dim).max().unwrap_or(0)
    }

    /// Lanes for imaginary parts: none when real.
    fn imaginary(&self, lanes: usize) -> usize {
        if self.field.is_complex() { lanes } else { 0 }
    }

    pub(super) fn forward_scratch(&self, tiles: usize) -> ForwardScratch<T> {
        ForwardScratch {
            x: LaneBuffer::new(tiles * self.widest()),
            re: LaneBuffer::new(tiles * self.rows),
            im: LaneBuffer::new(self.imaginary(tiles * self.rows)),
            workspace: Workspace::new(self.workspace_lanes, self.field.is_complex()),
        }
    }

    pub(super) fn backward_scratch(&self) -> BackwardScratch<T> {
        let pair = |lanes| [LaneBuffer::new(lanes), LaneBuffer::new(self.imaginary(lanes))];
        BackwardScratch {
            x: LaneBuffer::new(self.widest()),
            gradient: LaneBuffer::new(self.widest()),
            projected: pair(self.factors.len() * self.rows),
            suffix: pair(self.factors.len() * self.rows),
            prefix: pair(self.rows),
            v: pair(self.rows),
            workspace: Workspace::new(self.workspace_lanes, self.field.is_complex()),
        }
    }

    /// Where real and imaginary parts go in a row of features.
    fn layouts(&self) -> (Layout, Layout) {
        match self.field {
            Field::Real | Field::ComplexToReal => (Layout { start: 0, step: 1 }, Layout { start: self.rows, step: 1 }),
            Field::Complex => (Layout { start: 0, step: 2 }, Layout { start: 1, step: 2 }),
        }
    }

    /// See [`Kernels::forward`].
    #[inline(always)]
    fn forward(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        mut out: RowsMut<'_, T>,
        scratch: &mut ForwardScratch<T>,
    ) -> Option<usize> {
        let ForwardScratch { x, re, im, workspace } = scratch;
        let (re, im, rows, complex) = (re.as_mut(), im.as_mut(), self.rows, self.field.is_complex());
        let tiles = out.rows().div_ceil(LANES);
        for (index, factor) in self.factors.iter().enumerate() {
            let x = &mut x.as_mut()[..tiles * factor.dim];
            if index == 0 || factor.input > 0 {
                for (tile, x) in x.chunks_exact_mut(factor.dim).enumerate() {
                    lanes::load(&inputs[factor.input], first + tile * LANES, self.root_gamma, self.root_coef0, x);
                }
            }
            let projection = &factor.projection;
            match (index, complex) {
                (0, false) => projection.apply(x, workspace, |tile, row, new_re, _| re[tile * rows + row] = new_re),
                (_, false) => projection.apply(x, workspace, |tile, row, new_re, _| {
                    let at = tile * rows + row;
                    re[at] = mul(re[at], new_re);
                }),
                (0, true) => projection.apply(x, workspace, |tile, row, new_re, new_im| {
                    let at = tile * rows + row;
                    (re[at], im[at]) = (new_re, new_im);
                }),
                (_, true) => projection.apply(x, workspace, |tile, row, new_re, new_im| {
                    let at = tile * rows + row;
                    (re[at], im[at]) = complex_mul((re[at], im[at]), (new_re, new_im));
                }),
            }
        }
        let (layout_re, layout_im) = self.layouts();
        let mut finite = true;
        for tile in 0..tiles {
            let part = tile * rows..(tile + 1) * rows;
            finite &= lanes::store(&re[part.clone()], self.scale, layout_re, &mut out, tile * LANES);
            if complex {
                finite &= lanes::store(&im[part], self.scale, layout_im, &mut out, tile * LANES);
            }
        }
        if finite { None } else { first_not_finite(&mut out).map(|row| first + row) }
    }

    /// See [`Kernels::backward`].
    #[inline(always)]
    fn backward(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut BackwardScratch<T>,
    ) -> Option<usize> {
        let BackwardScratch { x, gradient, projected, suffix, prefix, v, workspace } = scratch;
        let (rows, degree, complex) = (self.rows, self.factors.len(), self.field.is_complex());
        let [u_re, u_im] = projected.each_mut().map(LaneBuffer::as_mut);
        let [suffix_re, suffix_im] = suffix.each_mut().map(LaneBuffer::as_mut);
        let [prefix_re, prefix_im] = prefix.each_mut().map(LaneBuffer::as_mut);
        let [v_re, v_im] = v.each_mut().map(LaneBuffer::as_mut);

        for (index, factor) in self.factors.iter().enumerate() {
            let x = &mut x.as_mut()[..factor.dim];
            if index == 0 || factor.input > 0 {
                lanes::load(&inputs[factor.input], first, self.root_gamma, self.root_coef0, x);
            }
            factor.projection.apply(x, workspace, |_, row, new_re, new_im| {
                u_re[index * rows + row] = new_re;
                if complex {
                    u_im[index * rows + row] = new_im;
                }
            });
        }

        let last = (degree - 1) * rows;
        suffix_re[last..].fill([T::ONE; LANES]);
        if complex {
            suffix_im[last..].fill([T::ZERO; LANES]);
        }
        for at in (0..last).rev() {
            let next = at + rows;
            if complex {
                let product = complex_mul((suffix_re[next], suffix_im[next]), (u_re[next], u_im[next]));
                (suffix_re[at], suffix_im[at]) = product;
            } else {
                suffix_re[at] = mul(suffix_re[next], u_re[next]);
            }
        }

        let (layout_re, layout_im) = self.layouts();
        lanes::gather(cotangent, first, self.scale, layout_re, prefix_re);
        if complex {
            lanes::gather(cotangent, first, -self.scale, layout_im, prefix_im);
        }

        let gradient = gradient.as_mut();
        let mut bad: Option<usize> = None;
        for (index, factor) in self.factors.iter().enumerate() {
            let gradient = &mut gradient[..factor.dim];
            if index == 0 || factor.input > 0 {
                gradient.fill([T::ZERO; LANES]);
            }
            for row in 0..rows {
                let at = index * rows + row;
                if complex {
                    let left = (prefix_re[row], prefix_im[row]);
                    (v_re[row], v_im[row]) = complex_mul(left, (suffix_re[at], suffix_im[at]));
                    (prefix_re[row], prefix_im[row]) = complex_mul(left, (u_re[at], u_im[at]));
                } else {
                    v_re[row] = mul(prefix_re[row], suffix_re[at]);
                    prefix_re[row] = mul(prefix_re[row], u_re[at]);
                }
            }
            factor.projection.add_transpose([v_re, v_im], workspace, gradient);
            // The gradient of an input is complete after the last factor that reads it.
            let complete = index + 1 == degree || self.factors[index + 1].input != factor.input;
            if complete {
                let out = &mut gradients[factor.input];
                let columns = out.columns();
                let layout = Layout { start: 0, step: 1 };
                if !lanes::store(&gradient[..columns], self.root_gamma, layout, out, 0) {
                    let row = first_not_finite(out);
                    bad = [bad, row].into_iter().flatten().min();
                }
            }
        }
        bad.map(|row| first + row)
    }
}

fn lane_bytes<T>(lanes: usize) -> Option<u64> {
    u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()
}

/// Only reached after an overflow.
#[cold]
fn first_not_finite<T: Scalar>(rows: &mut RowsMut<'_, T>) -> Option<usize> {
    (0..rows.rows()).find(|&row| rows.row_mut(row).iter().any(|value| !value.is_finite()))
}

/// The loops of the product, compiled for each instruction set when this crate is, not when generic code is used.
pub trait Kernels: Sized {
    /// Features of the rows from `first` on, as many as `out` has; returns the first row that overflows.
    fn forward(
        product: &Product<Self>,
        inputs: &[Input<'_, Self>],
        first: usize,
        out: RowsMut<'_, Self>,
        scratch: &mut ForwardScratch<Self>,
    ) -> Option<usize>;

    /// Gradients of the tile of rows from `first` on; returns the first row that overflows.
    ///
    /// # Formula
    /// With c = g_re + i g_im the cotangent and uⱼ = Wⱼ x̃, the gradient is Σᵢ Re Wᵢᵀ (c̄ ∘ Π_{j≠i} uⱼ) / √m, times √γ.
    fn backward(
        product: &Product<Self>,
        inputs: &[Input<'_, Self>],
        first: usize,
        cotangent: &Rows<'_, Self>,
        gradients: &mut [RowsMut<'_, Self>],
        scratch: &mut BackwardScratch<Self>,
    ) -> Option<usize>;
}

macro_rules! kernels {
    ($type:ident) => {
        impl Kernels for $type {
            fn forward(
                product: &Product<Self>,
                inputs: &[Input<'_, Self>],
                first: usize,
                out: RowsMut<'_, Self>,
                scratch: &mut ForwardScratch<Self>,
            ) -> Option<usize> {
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || product.forward(inputs, first, out, scratch),
                )
            }

            fn backward(
                product: &Product<Self>,
                inputs: &[Input<'_, Self>],
                first: usize,
                cotangent: &Rows<'_, Self>,
                gradients: &mut [RowsMut<'_, Self>],
                scratch: &mut BackwardScratch<Self>,
            ) -> Option<usize> {
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || product.backward(inputs, first, cotangent, gradients, scratch),
                )
            }
        }
    };
}

kernels!(f32);
kernels!(f64);
