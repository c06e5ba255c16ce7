//! Products of projections: flat, in a tree or in a chain, with or without a CRAFT projection after them.

#![allow(unreachable_pub, reason = "a sealed trait of the public `Scalar` names these types")]

use super::cosine::{Cosine, CosineScratch};
use super::shape::{self, Operand};
use crate::lanes::{self, LANES, Lane, LaneBuffer, Layout, complex_mul, mul};
use crate::projection::{Draw, LookedUp, Parts, Projection, Rademacher, RowSource, Workspace, write_products};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::simd;
use crate::spec::{Base, Field, InputDims, ProductMethod, Shape, Spec};
use crate::transform::fft::Fourier;

/// The drawn projections, and how they are fed, joined and read.
#[derive(Debug)]
pub struct Product<T> {
    /// In the order of computation; the last one is the result.
    joins: Vec<Join<T>>,
    field: Field,
    /// Whether each factor reads its own input.
    distinct: bool,
    /// m, the rows of each projection.
    rows: usize,
    /// The dimension of the widest x̃.
    widest: usize,
    slots: usize,
    workspace_lanes: usize,
    /// Lanes of [`ForwardScratch::taken_from`], if products are written without a slot.
    fused_lanes: Option<usize>,
    tiles_per_block: usize,
    root_gamma: T,
    root_coef0: T,
    /// 1/√m, once for every join: the one place where products are scaled.
    scale: T,
    /// For TensorSketch, products are of transforms, and joins are transformed back.
    fourier: Option<Fourier<T>>,
    craft: Option<Craft<T>>,
}

#[derive(Debug)]
struct Join<T> {
    operands: Vec<Projected<T>>,
    slot: usize,
}

/// An operand and what it is projected with.
#[derive(Debug)]
struct Projected<T> {
    source: Source,
    dim: usize,
    projection: Projection<T>,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    /// An input table.
    Input(usize),
    /// The result of the join in this slot.
    Slot(usize),
}

/// A real SRHT from E up-projected features down to D, divided by √D (Hamid et al. 2014).
#[derive(Debug)]
struct Craft<T> {
    projection: Projection<T>,
    up: usize,
    down: usize,
    scale: T,
}

/// One thread's work space for [`Kernels::forward`].
#[derive(Debug)]
pub struct ForwardScratch<T> {
    x: LaneBuffer<T>,
    /// What factors take the rows of one tile from, for [`Product::fused`].
    taken_from: LaneBuffer<T>,
    slots: Vec<[LaneBuffer<T>; 2]>,
    workspace: Workspace<T>,
    craft: [LaneBuffer<T>; 2],
}

/// The most bytes of transforms that are kept at once: a second-level cache.
const FUSED_BYTES: usize = 2 << 20;

/// The most bytes of signed sums that are kept at once: not much more than a first-level cache.
const TABLE_BYTES: usize = 64 << 10;

/// Bytes of features worth computing at a time: work that makes up for handing it to a thread.
const BLOCK_BYTES: usize = 256 << 10;

/// One thread's work space for [`Kernels::backward`]: one tile.
#[derive(Debug)]
pub struct BackwardScratch<T> {
    forward: ForwardScratch<T>,
    gradient: LaneBuffer<T>,
    /// Every projected operand, join after join.
    projected: [LaneBuffer<T>; 2],
    /// The product of the operands after each one, within a join.
    suffix: [LaneBuffer<T>; 2],
    v: [LaneBuffer<T>; 2],
}

/// A sketch before it is drawn: what its memory is counted from.
struct Blueprint<'a> {
    spec: &'a Spec,
    method: ProductMethod,
    joins: Vec<shape::Join>,
}

impl<'a> Blueprint<'a> {
    fn new(spec: &'a Spec, method: ProductMethod) -> Self {
        Self { spec, method, joins: shape::joins(method.shape, spec.kernel.degree) }
    }

    fn transforms(&self) -> bool {
        self.method.base == Base::TensorSketch
    }

    fn number(&self, index: usize) -> u32 {
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// What the projection of a factor is drawn from.
    fn factor(&self, factor: usize) -> Draw {
        let (method, seed) = (self.method, self.spec.seed);
        Draw {
            base: method.base,
            complex: method.field.is_complex(),
            seed,
            factor: self.number(factor),
            sorted: factor == 0 && method.shape == Shape::Flat,
            dim: self.spec.factor_dim(factor),
            rows: self.spec.outputs(),
        }
    }

    /// What the projection of a join's result is drawn from: square, of the sketch's own base in a tree, an SRHT in a
    /// chain.
    fn mixer(&self, join: usize) -> Draw {
        let base = if self.method.shape == Shape::Chain { Base::ProductSrht } else { self.method.base };
        let factor = self.number(self.spec.kernel.degree + join);
        Draw { base, factor, sorted: false, dim: self.spec.outputs(), ..self.factor(0) }
    }

    /// What the CRAFT projection is drawn from.
    fn craft(&self) -> Option<Draw> {
        let up = self.method.craft?;
        let factor = self.number(self.spec.kernel.degree + self.joins.len());
        let draw = Draw { base: Base::ProductSrht, complex: false, factor, sorted: true, dim: up, ..self.factor(0) };
        Some(Draw { rows: self.spec.features, ..draw })
    }

    fn slots(&self) -> usize {
        self.joins.iter().map(|join| join.slot + 1).max().unwrap_or(1)
    }

    /// Every projection.
    fn draws(&self) -> impl Iterator<Item = Draw> + '_ {
        let operands = self.joins.iter().flat_map(|join| &join.operands);
        let drawn = operands.map(|operand| match *operand {
            Operand::Factor(factor) => self.factor(factor),
            Operand::Join(join) => self.mixer(join),
        });
        drawn.chain(self.craft())
    }

    fn widest(&self) -> usize {
        let tables = self.spec.inputs.as_slice().len();
        (0..tables).map(|factor| self.spec.factor_dim(factor)).max().unwrap_or(0)
    }

    fn workspace_lanes<T: Scalar>(&self) -> usize {
        self.draws().map(Projection::<T>::workspace_lanes).max().unwrap_or(0)
    }

    /// Lanes of what the factors of a flat sketch take a tile's rows from, if they have such and all of it fits into a cache.
    fn fused_lanes<T: Scalar>(&self) -> Option<usize> {
        if self.joins.len() != 1 || self.transforms() || self.method.craft.is_some() {
            return None;
        }
        let (lanes, most): (Vec<_>, _) = if self.method.base == Base::Rademacher {
            // Factors share the sums of their input.
            let inputs = 0..self.spec.inputs.as_slice().len();
            (inputs.map(|input| Rademacher::table_lanes(self.spec.factor_dim(input))).collect(), TABLE_BYTES)
        } else {
            (self.draws().map(Projection::<T>::transformed_lanes).collect(), FUSED_BYTES)
        };
        let lanes = lanes.into_iter().try_fold(0_usize, |sum, lanes| sum.checked_add(lanes?))?;
        (lanes.checked_mul(size_of::<Lane<T>>())? <= most).then_some(lanes)
    }

    fn tiles_per_block<T: Scalar>(&self) -> usize {
        let of_features = BLOCK_BYTES / size_of::<Lane<T>>() / self.spec.features;
        let of_draws = self.draws().map(Projection::<T>::tiles_per_block).max().unwrap_or(1);
        if self.fused_lanes::<T>().is_some() { of_features.clamp(1, 8) } else { of_draws }
    }

    /// Lanes of one [`ForwardScratch`] with `tiles` tiles, if they can be counted.
    fn forward_lanes<T: Scalar>(&self, tiles: usize) -> Option<usize> {
        if let Some(transforms) = self.fused_lanes::<T>() {
            return transforms.checked_add(self.widest());
        }
        self.slot_lanes::<T>(tiles)
    }

    /// As [`Blueprint::forward_lanes`], with products in slots.
    fn slot_lanes<T: Scalar>(&self, tiles: usize) -> Option<usize> {
        let rows = self.spec.outputs();
        let per_tile = self.widest().checked_add(rows.checked_mul(2)?.checked_mul(self.slots())?)?;
        let transform = if self.transforms() { rows.checked_mul(4)? } else { 0 };
        let craft = self.craft().map_or(Some(0), |draw| draw.dim.checked_add(draw.rows))?;
        let workspace = self.workspace_lanes::<T>().checked_mul(2)?;
        tiles.checked_mul(per_tile)?.checked_add(transform)?.checked_add(craft)?.checked_add(workspace)
    }

    /// Lanes of one [`BackwardScratch`], if they can be counted.
    fn backward_lanes<T: Scalar>(&self) -> Option<usize> {
        let operands: usize = self.joins.iter().map(|join| join.operands.len()).sum();
        let most = self.joins.iter().map(|join| join.operands.len()).max().unwrap_or(0);
        let products = operands.checked_add(most)?.checked_add(1)?.checked_mul(self.spec.outputs())?.checked_mul(2)?;
        self.slot_lanes::<T>(1)?.checked_add(self.widest())?.checked_add(products)
    }
}

/// What an allocator may add to the buffers of one factor: it counts when a sketch has very many tiny factors.
const ALLOCATION: usize = 64;

/// Bytes of a spec's sketch and of one thread's work space, if they can be counted.
pub(super) fn bytes<T: Scalar>(spec: &Spec, method: ProductMethod) -> Option<u64> {
    // Before the joins are listed: a huge degree is refused without a list of its factors.
    let per_factor = size_of::<Projected<T>>() + size_of::<shape::Join>() + ALLOCATION;
    let factors = u64::try_from(spec.kernel.degree.checked_mul(per_factor)?).ok()?;
    if factors > u64::from(u32::MAX) {
        return Some(factors);
    }
    let blueprint = Blueprint::new(spec, method);
    let drawn = blueprint.draws().map(Projection::<T>::bytes).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))?;
    let tiles = blueprint.tiles_per_block::<T>();
    drawn.checked_add(lane_bytes::<T>(blueprint.forward_lanes::<T>(tiles)?)?)?.checked_add(factors)
}

/// Bytes of one [`BackwardScratch`], if they can be counted.
pub(super) fn backward_bytes<T: Scalar>(spec: &Spec, method: ProductMethod) -> Option<u64> {
    lane_bytes::<T>(Blueprint::new(spec, method).backward_lanes::<T>()?)
}

fn lane_bytes<T>(lanes: usize) -> Option<u64> {
    u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()
}

impl<T: Scalar> Product<T> {
    pub(super) fn sample(spec: &Spec, method: ProductMethod) -> Self {
        let blueprint = Blueprint::new(spec, method);
        let distinct = matches!(spec.inputs, InputDims::Distinct(_));
        let fourier = blueprint.transforms().then(|| T::fourier(spec.outputs()));
        let project = |operand: &Operand| {
            let (source, draw) = match *operand {
                Operand::Factor(factor) => (Source::Input(if distinct { factor } else { 0 }), blueprint.factor(factor)),
                Operand::Join(join) => (Source::Slot(blueprint.joins[join].slot), blueprint.mixer(join)),
            };
            Projected { source, dim: draw.dim, projection: Projection::sample(draw, fourier.as_ref()) }
        };
        let joins = blueprint
            .joins
            .iter()
            .map(|join| Join { operands: join.operands.iter().map(project).collect(), slot: join.slot })
            .collect();
        let root = |value: f64| T::from_f64(value.sqrt());
        let one_over_root = |count: usize| T::from_f64(1.0 / (count as f64).sqrt());
        Self {
            joins,
            field: method.field,
            distinct,
            rows: spec.outputs(),
            widest: blueprint.widest(),
            slots: blueprint.slots(),
            workspace_lanes: blueprint.workspace_lanes::<T>(),
            fused_lanes: blueprint.fused_lanes::<T>(),
            tiles_per_block: blueprint.tiles_per_block::<T>(),
            root_gamma: root(spec.kernel.gamma),
            root_coef0: root(spec.kernel.coef0),
            scale: one_over_root(spec.outputs()),
            craft: blueprint.craft().map(|draw| Craft {
                projection: Projection::sample(draw, None),
                up: draw.dim,
                down: draw.rows,
                scale: one_over_root(draw.rows),
            }),
            fourier,
        }
    }

    pub(super) fn tiles_per_block(&self) -> usize {
        self.tiles_per_block
    }

    /// Whether products are complex: those of transforms are, even of a real sketch.
    fn complex(&self) -> bool {
        self.field.is_complex() || self.fourier.is_some()
    }

    /// A pair of buffers for real and imaginary parts; none for the latter when products are real.
    fn pair(&self, lanes: usize) -> [LaneBuffer<T>; 2] {
        [LaneBuffer::new(lanes), LaneBuffer::new(if self.complex() { lanes } else { 0 })]
    }

    pub(super) fn forward_scratch(&self, tiles: usize) -> ForwardScratch<T> {
        match self.fused_lanes {
            None => self.slot_scratch(tiles),
            Some(lanes) => ForwardScratch {
                x: LaneBuffer::new(self.widest),
                taken_from: LaneBuffer::new(lanes),
                slots: Vec::new(),
                workspace: Workspace::new(0, false, None),
                craft: [LaneBuffer::new(0), LaneBuffer::new(0)],
            },
        }
    }

    fn slot_scratch(&self, tiles: usize) -> ForwardScratch<T> {
        let (up, down) = self.craft.as_ref().map_or((0, 0), |craft| (craft.up, craft.down));
        ForwardScratch {
            x: LaneBuffer::new(tiles * self.widest),
            taken_from: LaneBuffer::new(0),
            slots: (0..self.slots).map(|_| self.pair(tiles * self.rows)).collect(),
            workspace: Workspace::new(self.workspace_lanes, self.complex(), self.fourier.as_ref()),
            craft: [LaneBuffer::new(up), LaneBuffer::new(down)],
        }
    }

    pub(super) fn backward_scratch(&self) -> BackwardScratch<T> {
        let operands = self.joins.iter().map(|join| join.operands.len());
        BackwardScratch {
            forward: self.slot_scratch(1),
            gradient: LaneBuffer::new(self.widest),
            projected: self.pair(operands.clone().sum::<usize>() * self.rows),
            suffix: self.pair(operands.max().unwrap_or(0) * self.rows),
            v: self.pair(self.rows),
        }
    }

    /// Where real and imaginary parts go in a row of features.
    fn layouts(&self) -> (Layout, Layout) {
        match self.field {
            Field::Real | Field::ComplexToReal => (Layout { start: 0, step: 1 }, Layout { start: self.rows, step: 1 }),
            Field::Complex => (Layout { start: 0, step: 2 }, Layout { start: 1, step: 2 }),
        }
    }

    /// From the product of a join's operands to its result, but for the factor 1/√m. The map is symmetric, and so its own
    /// transpose.
    #[inline(always)]
    fn transform_join(&self, re: &mut [Lane<T>], im: &mut [Lane<T>], workspace: &mut Workspace<T>) {
        if let Some(fourier) = &self.fourier {
            workspace.transform_back(fourier, re, im);
        }
    }

    /// The factor 1/√m of a join.
    #[inline(always)]
    fn scale_join(&self, re: &mut [Lane<T>], im: &mut [Lane<T>]) {
        for lane in re.iter_mut().chain(im) {
            *lane = lanes::scale(*lane, self.scale);
        }
    }

    /// See [`Kernels::forward`].
    #[inline(always)]
    fn forward(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut ForwardScratch<T>,
    ) -> Option<usize> {
        let finite = if self.fused_lanes.is_some() {
            self.fused(inputs, first, &mut out, streamed, scratch)
        } else {
            self.through_slots(inputs, first, &mut out, streamed, scratch)
        };
        if finite { None } else { first_not_finite(&mut out).map(|row| first + row) }
    }

    /// A flat sketch with SRHTs or few random signs: all transforms or signed sums of a tile, then its features; reports whether they are
    /// finite.
    fn fused(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        out: &mut RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut ForwardScratch<T>,
    ) -> bool {
        let parts = if self.field == Field::Complex { Parts::Interleaved } else { Parts::Apart };
        let operands = self.joins.iter().flat_map(|join| &join.operands);
        let mut finite = true;
        for tile in 0..out.rows().div_ceil(LANES) {
            let x = scratch.x.as_mut();
            let mut free = scratch.taken_from.as_mut();
            let (mut loaded, mut tables): (_, &[Lane<T>]) = (None, &[]);
            // One of them stays empty.
            let (mut transformed, mut looked_up) = (Vec::new(), Vec::new());
            for operand in operands.clone() {
                // Every factor of a flat sketch reads an input.
                let Source::Input(input) = operand.source else { continue };
                let x = &mut x[..operand.dim];
                let new = loaded != Some(input);
                if new {
                    lanes::load(&inputs[input], first + tile * LANES, self.root_gamma, self.root_coef0, x);
                    loaded = Some(input);
                }
                match &operand.projection {
                    Projection::Srht(srht) => transformed.push(srht.transform_in_front([x, &[]], &mut free)),
                    Projection::Rademacher(rademacher) => {
                        if new {
                            tables = Rademacher::tables_in_front(x, &mut free);
                        }
                        looked_up.push(LookedUp { rademacher, tables });
                    }
                    // `fused_lanes` has seen that there are no others.
                    Projection::Dense(_) | Projection::CountSketch(_) | Projection::TransformedSrht(..) => {}
                }
            }
            finite &= write_products(&transformed, self.scale, parts, out, tile * LANES, streamed);
            finite &= write_products(&looked_up, self.scale, parts, out, tile * LANES, streamed);
        }
        finite
    }

    /// Any other sketch: products in slots, then features; reports whether they are finite.
    #[inline(always)]
    fn through_slots(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        out: &mut RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut ForwardScratch<T>,
    ) -> bool {
        let tiles = out.rows().div_ceil(LANES);
        let rows = self.rows;
        self.products::<false>(inputs, first, tiles, scratch, [&mut [], &mut []]);
        let ForwardScratch { slots, workspace, craft: [up, down], .. } = scratch;
        let Some(root) = self.joins.last() else { return true };
        let [re, im] = slots[root.slot].each_mut().map(LaneBuffer::as_mut);
        let (layout_re, layout_im) = self.layouts();
        let mut finite = true;
        for tile in 0..tiles {
            let part = tile * rows..(tile + 1) * rows;
            let re = &re[part.clone()];
            let im = if self.field.is_complex() { &im[part] } else { &[] };
            let first = tile * LANES;
            if let Some(craft) = &self.craft {
                let (up, down) = (up.as_mut(), down.as_mut());
                for (up, &result) in up.iter_mut().zip(re.iter().chain(im)) {
                    *up = lanes::scale(result, self.scale);
                }
                craft.projection.apply([up, &[]], None, 1, workspace, |_, row, new, _| {
                    down[row..][..new.len()].copy_from_slice(new);
                });
                finite &= lanes::store(down, craft.scale, layout_re, out, first, streamed);
            } else {
                finite &= lanes::store(re, self.scale, layout_re, out, first, streamed);
                finite &= lanes::store(im, self.scale, layout_im, out, first, streamed);
            }
        }
        finite
    }

    /// Computes all joins; the result, times √m, is in the last one's slot. With `KEEP`, for one tile, every projected
    /// operand is left in `kept`, in the order of computation.
    #[inline(always)]
    fn products<const KEEP: bool>(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        tiles: usize,
        scratch: &mut ForwardScratch<T>,
        kept: [&mut [Lane<T>]; 2],
    ) {
        let ForwardScratch { x, slots, workspace, .. } = scratch;
        let (rows, complex) = (self.rows, self.complex());
        let [mut keep_re, mut keep_im] = kept;
        let mut loaded = None;
        for (number, join) in self.joins.iter().enumerate() {
            let last = number + 1 == self.joins.len();
            for (index, operand) in join.operands.iter().enumerate() {
                let (into, from) = match operand.source {
                    Source::Input(_) => (&mut slots[join.slot], None),
                    // A join's slot is never one of its operands'.
                    Source::Slot(slot) => match slots.get_disjoint_mut([join.slot, slot]) {
                        Ok([into, from]) => (into, Some(from.each_mut().map(LaneBuffer::as_mut))),
                        Err(_) => return,
                    },
                };
                let [re, im] = into.each_mut().map(LaneBuffer::as_mut);
                let x = &mut x.as_mut()[..tiles * operand.dim.min(self.widest)];
                let mut stored = None;
                let from: [&[Lane<T>]; 2] = match (from, operand.source) {
                    (Some([re, im]), _) => {
                        [&re[..tiles * rows], if self.field.is_complex() { &im[..tiles * rows] } else { &[] }]
                    }
                    (None, Source::Input(input) | Source::Slot(input)) => {
                        let (root_gamma, root_coef0) = (self.root_gamma, self.root_coef0);
                        match &inputs[input] {
                            Input::Sparse(input) if operand.projection.reads_sparse() => {
                                stored = Some(RowSource { input, first, root_gamma, root_coef0 });
                                [&[], &[]]
                            }
                            table => {
                                if loaded != Some(input) {
                                    for (tile, x) in x.chunks_exact_mut(operand.dim).enumerate() {
                                        lanes::load(table, first + tile * LANES, root_gamma, root_coef0, x);
                                    }
                                    loaded = Some(input);
                                }
                                [x, &[]]
                            }
                        }
                    }
                };
                let (projection, stored) = (&operand.projection, stored.as_ref());
                if KEEP {
                    let (new_re, rest_re) = std::mem::take(&mut keep_re).split_at_mut(rows);
                    let (new_im, rest_im) = std::mem::take(&mut keep_im).split_at_mut(if complex { rows } else { 0 });
                    (keep_re, keep_im) = (rest_re, rest_im);
                    projection.apply(from, stored, tiles, workspace, |_, row, re, im| {
                        new_re[row..][..re.len()].copy_from_slice(re);
                        if complex {
                            new_im[row..][..im.len()].copy_from_slice(im);
                        }
                    });
                    for row in 0..rows {
                        match (index, complex) {
                            (0, false) => re[row] = new_re[row],
                            (_, false) => re[row] = mul(re[row], new_re[row]),
                            (0, true) => (re[row], im[row]) = (new_re[row], new_im[row]),
                            (_, true) => {
                                (re[row], im[row]) = complex_mul((re[row], im[row]), (new_re[row], new_im[row]));
                            }
                        }
                    }
                } else {
                    let im = if complex { &mut im[..tiles * rows] } else { &mut [] };
                    projection.multiply_into(from, stored, tiles, workspace, [&mut re[..tiles * rows], im], index == 0);
                }
            }
            let [re, im] = slots[join.slot].each_mut().map(LaneBuffer::as_mut);
            for tile in 0..tiles {
                let part = tile * rows..(tile + 1) * rows;
                let im = if complex { &mut im[part.clone()] } else { &mut [] };
                self.transform_join(&mut re[part.clone()], im, workspace);
                if !last {
                    self.scale_join(&mut re[part], im);
                }
            }
        }
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
        let BackwardScratch { forward, gradient, projected, suffix, v } = scratch;
        let (rows, complex) = (self.rows, self.complex());
        let [u_re, u_im] = projected.each_mut().map(LaneBuffer::as_mut);
        self.products::<true>(inputs, first, 1, forward, [u_re, u_im]);

        let ForwardScratch { slots, workspace, craft: [up, down], .. } = forward;
        let [suffix_re, suffix_im] = suffix.each_mut().map(LaneBuffer::as_mut);
        let [v_re, v_im] = v.each_mut().map(LaneBuffer::as_mut);
        let gradient = gradient.as_mut();

        // From here on slots hold what is called g in the formula, for the result of the join they belong to.
        let [g_re, g_im] = slots[self.joins.last()?.slot].each_mut().map(LaneBuffer::as_mut);
        let (layout_re, layout_im) = self.layouts();
        if let Some(craft) = &self.craft {
            let (up, down) = (up.as_mut(), down.as_mut());
            lanes::gather(cotangent, first, craft.scale, layout_re, down);
            up.fill([T::ZERO; LANES]);
            craft.projection.add_transpose([down, &mut []], workspace, [up, &mut []]);
            g_re.copy_from_slice(&up[..rows]);
            g_im.iter_mut().zip(&up[rows..]).for_each(|(g, &up)| *g = lanes::scale(up, -T::ONE));
        } else {
            lanes::gather(cotangent, first, T::ONE, layout_re, g_re);
            if self.field.is_complex() {
                lanes::gather(cotangent, first, -T::ONE, layout_im, g_im);
            }
        }
        if !self.field.is_complex() {
            g_im.fill([T::ZERO; LANES]);
        }
        if !self.distinct {
            gradient.fill([T::ZERO; LANES]);
        }

        let mut bad: Option<usize> = None;
        let mut store = |gradient: &[Lane<T>], out: &mut RowsMut<'_, T>| {
            let columns = out.columns();
            if !lanes::store(&gradient[..columns], self.root_gamma, Layout { start: 0, step: 1 }, out, 0, false) {
                bad = [bad, first_not_finite(out)].into_iter().flatten().min();
            }
        };
        let mut end = u_re.len();
        for join in self.joins.iter().rev() {
            let operands = join.operands.len();
            let start = end - operands * rows;
            let (u_re, u_im) = (&u_re[start..end], if complex { &u_im[start..end] } else { &u_im[..0] });
            end = start;
            let last = (operands - 1) * rows;
            suffix_re[last..][..rows].fill([T::ONE; LANES]);
            if complex {
                suffix_im[last..][..rows].fill([T::ZERO; LANES]);
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
            let [g_re, g_im] = slots[join.slot].each_mut().map(LaneBuffer::as_mut);
            self.transform_join(g_re, g_im, workspace);
            self.scale_join(g_re, g_im);
            for (index, operand) in join.operands.iter().enumerate() {
                let [g_re, g_im] = slots[join.slot].each_mut().map(LaneBuffer::as_mut);
                for row in 0..rows {
                    let at = index * rows + row;
                    if complex {
                        let left = (g_re[row], g_im[row]);
                        (v_re[row], v_im[row]) = complex_mul(left, (suffix_re[at], suffix_im[at]));
                        (g_re[row], g_im[row]) = complex_mul(left, (u_re[at], u_im[at]));
                    } else {
                        v_re[row] = mul(g_re[row], suffix_re[at]);
                        g_re[row] = mul(g_re[row], u_re[at]);
                    }
                }
                match operand.source {
                    Source::Input(input) => {
                        let gradient = &mut gradient[..operand.dim];
                        if self.distinct {
                            gradient.fill([T::ZERO; LANES]);
                        }
                        operand.projection.add_transpose([v_re, v_im], workspace, [gradient, &mut []]);
                        if self.distinct {
                            store(gradient, &mut gradients[input]);
                        }
                    }
                    Source::Slot(slot) => {
                        let [re, im] = slots[slot].each_mut().map(LaneBuffer::as_mut);
                        re.fill([T::ZERO; LANES]);
                        im.fill([T::ZERO; LANES]);
                        operand.projection.add_transpose([v_re, v_im], workspace, [re, im]);
                        if !self.field.is_complex() {
                            im.fill([T::ZERO; LANES]);
                        }
                    }
                }
            }
        }
        if !self.distinct {
            store(gradient, &mut gradients[0]);
        }
        bad.map(|row| first + row)
    }
}

/// Only reached after an overflow.
#[cold]
pub(super) fn first_not_finite<T: Scalar>(rows: &mut RowsMut<'_, T>) -> Option<usize> {
    (0..rows.rows()).find(|&row| rows.row_mut(row).iter().any(|value| !value.is_finite()))
}

/// The loops of the product, compiled for each instruction set when this crate is, not when generic code is used.
pub trait Kernels: Sized {
    /// As [`Kernels::forward`], for spherical random features.
    fn cosine_forward(
        cosine: &Cosine<Self>,
        input: &Input<'_, Self>,
        first: usize,
        out: RowsMut<'_, Self>,
        streamed: bool,
        scratch: &mut CosineScratch<Self>,
    ) -> Option<usize>;

    /// As [`Kernels::backward`], for spherical random features.
    fn cosine_backward(
        cosine: &Cosine<Self>,
        input: &Input<'_, Self>,
        first: usize,
        cotangent: &Rows<'_, Self>,
        gradients: &mut [RowsMut<'_, Self>],
        scratch: &mut CosineScratch<Self>,
    ) -> Option<usize>;

    /// Plans the Fourier transforms of a length.
    fn fourier(length: usize) -> Fourier<Self>;

    /// Features of the rows from `first` on, as many as `out` has, written past the caches if `streamed`; returns the
    /// first row that overflows.
    fn forward(
        product: &Product<Self>,
        inputs: &[Input<'_, Self>],
        first: usize,
        out: RowsMut<'_, Self>,
        streamed: bool,
        scratch: &mut ForwardScratch<Self>,
    ) -> Option<usize>;

    /// Gradients of the tile of rows from `first` on; returns the first row that overflows.
    ///
    /// # Formula
    /// For a function L of the features, let g be such that dL = Re Σ g dz, for the result z of any join: at the last
    /// one it is the conjugated cotangent. With z = (u₁ ∘ … ∘ u_k)/√m and uᵢ = Wᵢ yᵢ, the g of an operand is
    /// Wᵢᵀ (g ∘ Π_{j≠i} uⱼ)/√m; that of an input, real, is its real part, times √γ.
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
            fn fourier(length: usize) -> Fourier<Self> {
                Fourier::plan(length)
            }

            fn cosine_forward(
                cosine: &Cosine<Self>,
                input: &Input<'_, Self>,
                first: usize,
                out: RowsMut<'_, Self>,
                streamed: bool,
                scratch: &mut CosineScratch<Self>,
            ) -> Option<usize> {
                let bad = pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || cosine.forward(input, first, out, streamed, scratch),
                );
                if streamed {
                    simd::fence();
                }
                bad
            }

            fn cosine_backward(
                cosine: &Cosine<Self>,
                input: &Input<'_, Self>,
                first: usize,
                cotangent: &Rows<'_, Self>,
                gradients: &mut [RowsMut<'_, Self>],
                scratch: &mut CosineScratch<Self>,
            ) -> Option<usize> {
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || cosine.backward(input, first, cotangent, gradients, scratch),
                )
            }

            fn forward(
                product: &Product<Self>,
                inputs: &[Input<'_, Self>],
                first: usize,
                out: RowsMut<'_, Self>,
                streamed: bool,
                scratch: &mut ForwardScratch<Self>,
            ) -> Option<usize> {
                let bad = pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || product.forward(inputs, first, out, streamed, scratch),
                );
                if streamed {
                    simd::fence();
                }
                bad
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
