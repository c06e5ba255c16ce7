//! Products of projections on this processor: flat, in a tree or in a chain, with or without a CRAFT projection after them.

use pulp::Arch;

use super::adjoint::AdjointScratch;
use super::room::Room;
use super::{Tiled, first_not_finite};
use crate::draw::{self, Draw, Join, Operand, Projection, Source};
use crate::lanes::{self, LANES, Lane, LaneBuffer};
use crate::projection::{Fused, FusedBuilder, FusedScratch, Operator, Parts, SparseTile, Vectors, Workspace};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::simd;
use crate::spec::{Field, InputDims, Polynomial, ProductMethod, Spec};
use crate::transform::fft::Fourier;

/// The operators of all projections, and their inputs, joins and outputs.
#[derive(Debug)]
pub struct Product<T> {
    /// In the order of computation; the last one is the result.
    pub(super) joins: Vec<Join<Applied<T>>>,
    pub(super) craft: Option<Craft<T>>,
    pub(super) field: Field,
    inputs: InputDims,
    /// m, the outputs of each projection.
    pub(super) outputs: usize,
    /// √γ and √ν.
    pub(super) roots: [T; 2],
    /// 1/√m, once for every join: the one place where products are scaled.
    pub(super) scale: T,
    /// For TensorSketch, which multiplies transforms and transforms joins back.
    fourier: Option<Fourier<T>>,
    /// A flat sketch whose features are written in one pass.
    fused: Option<Box<dyn Fused<T>>>,
    pub(super) room: Room,
    pub(super) arch: Arch,
}

/// A projection on this processor.
#[derive(Debug)]
pub(super) struct Applied<T> {
    pub(super) dim: usize,
    pub(super) operator: Box<dyn Operator<T>>,
}

/// A real SRHT from E up-projected features down to D, divided by √D (Hamid et al. 2014).
#[derive(Debug)]
pub(super) struct Craft<T> {
    pub(super) operator: Box<dyn Operator<T>>,
    pub(super) scale: T,
}

/// One thread's work space for features.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    x: LaneBuffer<T>,
    /// The prepared tile that outputs are gathered from, if features are written in one pass.
    taken_from: LaneBuffer<T>,
    pub(super) slots: Vec<[LaneBuffer<T>; 2]>,
    pub(super) workspace: Workspace<T>,
    /// Before and after a CRAFT projection.
    pub(super) craft: [LaneBuffer<T>; 2],
}

impl<T: Scalar> Product<T> {
    pub(crate) fn new(spec: &Spec, drawn: &draw::Product, arch: Arch) -> Self {
        let Some(method) = spec.method.product() else { unreachable!("only product methods draw products") };
        let ProductMethod { base, field, .. } = method;
        let one_over_root = |count: usize| T::from_f64(1.0 / (count as f64).sqrt());
        let outputs = spec.outputs();
        let fourier = base.multiplies_transforms().then(|| T::fourier(outputs, arch));
        let operator = |projection: &Projection, fourier: Option<&Fourier<T>>| {
            projection.draw.base.operator(projection, fourier, arch)
        };
        let applied = |projection: Projection| Applied {
            dim: projection.draw.dim,
            operator: operator(&projection, fourier.as_ref()),
        };
        let Polynomial { gamma, coef0, .. } = spec.factors();
        let roots = [gamma, coef0].map(|value| T::from_f64(value.sqrt()));
        let mut product = Self {
            // Cloning a drawn projection shares its values.
            joins: drawn.joins.iter().map(|join| join.clone().map(applied)).collect(),
            craft: drawn.craft.as_ref().map(|projection| Craft {
                operator: operator(projection, None),
                scale: one_over_root(projection.draw.outputs),
            }),
            field,
            inputs: spec.inputs.clone(),
            outputs,
            roots,
            scale: one_over_root(outputs),
            fourier,
            fused: None,
            room: Room::of::<T>(spec, &draw::Product::<Draw>::of(spec, method)),
            arch,
        };
        if product.room.fused_lanes.is_some() {
            product.fused = Some(product.fuse());
        }
        product
    }

    /// The same sketch, written in one pass.
    fn fuse(&self) -> Box<dyn Fused<T>> {
        let mut builder = FusedBuilder::new(self.scale, self.parts(), self.roots, self.arch);
        let operands = self.joins.iter().flat_map(|join| &join.operands);
        operands.clone().for_each(|operand| operand.projection.operator.fuse(&mut builder));
        let tables: Vec<usize> = operands.map(|operand| self.table(operand).unwrap_or_default()).collect();
        builder.build(&tables).unwrap_or_else(|| unreachable!("every factor can be fused"))
    }

    /// The table an operand reads, if any.
    pub(super) fn table<P>(&self, operand: &Operand<P>) -> Option<usize> {
        if let Source::Factor(factor) = operand.source { Some(self.inputs.table_of(factor)) } else { None }
    }

    /// Whether each factor reads a table of its own.
    pub(super) fn distinct(&self) -> bool {
        matches!(self.inputs, InputDims::Distinct(_))
    }

    /// Whether products are complex: products of transforms are, even in a real sketch.
    pub(super) fn complex(&self) -> bool {
        self.field.is_complex() || self.fourier.is_some()
    }

    /// The columns of real and imaginary parts in a row of features.
    pub(super) fn parts(&self) -> Parts {
        if self.field == Field::Complex { Parts::Interleaved } else { Parts::Apart }
    }

    /// A pair of buffers for real and imaginary parts; the latter is empty when products are real.
    pub(super) fn pair(&self, lanes: usize) -> [LaneBuffer<T>; 2] {
        [LaneBuffer::new(lanes), LaneBuffer::new(if self.complex() { lanes } else { 0 })]
    }

    /// Work space for blocks of at most this many rows.
    fn scratch(&self, rows: usize) -> Scratch<T> {
        let few = self.fused.as_ref().is_some_and(|fused| rows <= fused.few_rows());
        let lanes_of = |lanes: usize| LaneBuffer::new(if few { lanes.div_ceil(LANES) } else { lanes });
        match self.room.fused_lanes {
            None => self.slot_scratch(rows.div_ceil(LANES)),
            Some(lanes) => Scratch {
                x: lanes_of(self.room.widest),
                taken_from: lanes_of(lanes),
                slots: Vec::new(),
                workspace: Workspace::new(0, false, None),
                craft: [LaneBuffer::new(0), LaneBuffer::new(0)],
            },
        }
    }

    pub(super) fn slot_scratch(&self, tiles: usize) -> Scratch<T> {
        Scratch {
            x: LaneBuffer::new(tiles * self.room.widest),
            taken_from: LaneBuffer::new(0),
            slots: (0..self.room.slots).map(|_| self.pair(tiles * self.outputs)).collect(),
            workspace: Workspace::new(self.room.workspace_lanes, self.complex(), self.fourier.as_ref()),
            craft: self.room.craft.map(LaneBuffer::new),
        }
    }

    /// From the product of a join's operands to its result, up to the factor 1/√m. The map is symmetric, so it is its own transpose.
    pub(super) fn transform_join(&self, re: &mut [Lane<T>], im: &mut [Lane<T>], workspace: &mut Workspace<T>) {
        if let Some(fourier) = &self.fourier {
            workspace.fourier.transform_back(fourier, re, im);
        }
    }

    /// Features of the rows from `first` on, as many as `out` has; reports the first row that overflows.
    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        let mut finite = true;
        if let Some(fused) = &self.fused {
            for at in (0..out.rows()).step_by(LANES) {
                let scratch = FusedScratch { x: scratch.x.as_mut(), taken_from: scratch.taken_from.as_mut() };
                finite &= fused.write_tile(inputs, first + at, scratch, &mut out, at, streamed);
            }
        } else {
            finite = self.through_slots(inputs, first, &mut out, streamed, scratch);
        }
        if streamed {
            simd::fence();
        }
        if finite { None } else { first_not_finite(&mut out).map(|row| first + row) }
    }

    /// Products in slots, then features; reports whether they are finite.
    fn through_slots(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        out: &mut RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> bool {
        let (tiles, outputs) = (out.rows().div_ceil(LANES), self.outputs);
        self.products(inputs, first, tiles, scratch, None);
        let Scratch { slots, workspace, craft: [up, down], .. } = scratch;
        let [re, im] = slots[self.result_slot()].each_mut().map(LaneBuffer::as_mut);
        let [columns_re, columns_im] = self.parts().columns(outputs);
        let mut finite = true;
        for tile in 0..tiles {
            let part = tile * outputs..(tile + 1) * outputs;
            let re = &re[part.clone()];
            let im = if self.field.is_complex() { &im[part] } else { &[] };
            let at = tile * LANES;
            if let Some(craft) = &self.craft {
                let (up, down) = (up.as_mut(), down.as_mut());
                up[..outputs].copy_from_slice(re);
                up[outputs..].copy_from_slice(im);
                lanes::scale_all(self.arch, up, self.scale);
                let x = Vectors { lanes: [up, &[]], rows: None, tiles: 1 };
                craft.operator.multiply_into(&x, workspace, [down, &mut []], true);
                finite &= lanes::store(self.arch, down, craft.scale, columns_re, out, at, streamed);
            } else {
                finite &= lanes::store(self.arch, re, self.scale, columns_re, out, at, streamed);
                finite &= lanes::store(self.arch, im, self.scale, columns_im, out, at, streamed);
            }
        }
        finite
    }

    /// The slot of the last join's result.
    pub(super) fn result_slot(&self) -> usize {
        self.joins.last().map_or_else(|| unreachable!("there is at least one join"), |join| join.slot)
    }

    /// Computes all joins; the result, times √m, is in the last one's slot. If given, `kept` receives every projected
    /// operand in the order of computation.
    pub(super) fn products(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        tiles: usize,
        scratch: &mut Scratch<T>,
        mut kept: Option<[&mut [Lane<T>]; 2]>,
    ) {
        let Scratch { x, slots, workspace, .. } = scratch;
        let length = tiles * self.outputs;
        let mut loaded = None;
        for (number, join) in self.joins.iter().enumerate() {
            for (index, operand) in join.operands.iter().enumerate() {
                let Applied { dim, operator } = &operand.projection;
                let (into, from) = match operand.source {
                    Source::Factor(_) => (&mut slots[join.slot], None),
                    Source::Join(source) => match slots.get_disjoint_mut([join.slot, self.joins[source].slot]) {
                        Ok([into, from]) => (into, Some(from)),
                        Err(_) => unreachable!("a join's slot is not one of its operands'"),
                    },
                };
                let [re, im] = self.both(into, length);
                let vectors = match (from, self.table(operand)) {
                    (Some([re, im]), _) => {
                        let im = if self.field.is_complex() { &im.as_mut()[..length] } else { &[] };
                        Vectors { lanes: [&re.as_mut()[..length], im], rows: None, tiles }
                    }
                    (None, Some(table)) => match &inputs[table] {
                        Input::Sparse(input) if operator.reads_sparse() => {
                            let [root_gamma, root_coef0] = self.roots;
                            let rows = Some(SparseTile { input, first, root_gamma, root_coef0 });
                            Vectors { lanes: [&[], &[]], rows, tiles }
                        }
                        input => {
                            let x = &mut x.as_mut()[..tiles * dim];
                            if loaded != Some(table) {
                                for (tile, x) in x.chunks_exact_mut(*dim).enumerate() {
                                    lanes::load(self.arch, input, first + tile * LANES, self.roots, x);
                                }
                                loaded = Some(table);
                            }
                            Vectors { lanes: [x, &[]], rows: None, tiles }
                        }
                    },
                    (None, None) => unreachable!("an operand is a factor or an earlier join"),
                };
                if let Some([keep_re, keep_im]) = &mut kept {
                    let (new_re, rest_re) = std::mem::take(keep_re).split_at_mut(length);
                    let (new_im, rest_im) = std::mem::take(keep_im).split_at_mut(im.len());
                    (*keep_re, *keep_im) = (rest_re, rest_im);
                    operator.multiply_into(&vectors, workspace, [&mut *new_re, &mut *new_im], true);
                    lanes::multiply(self.arch, re, im, new_re, new_im, index == 0);
                } else {
                    operator.multiply_into(&vectors, workspace, [re, im], index == 0);
                }
            }
            let [re, im] = self.both(&mut slots[join.slot], length);
            for tile in 0..tiles {
                let part = tile * self.outputs..(tile + 1) * self.outputs;
                let im = if im.is_empty() { &mut [] } else { &mut im[part.clone()] };
                self.transform_join(&mut re[part], im, workspace);
            }
            if number + 1 < self.joins.len() {
                lanes::scale_all(self.arch, re, self.scale);
                lanes::scale_all(self.arch, im, self.scale);
            }
        }
    }

    /// Real and imaginary parts in a pair of buffers.
    fn both<'a>(&self, [re, im]: &'a mut [LaneBuffer<T>; 2], length: usize) -> [&'a mut [Lane<T>]; 2] {
        [&mut re.as_mut()[..length], &mut im.as_mut()[..if self.complex() { length } else { 0 }]]
    }
}

impl<T: Scalar> Tiled<T> for Product<T> {
    type Scratch = Scratch<T>;
    type AdjointScratch = AdjointScratch<T>;

    fn tiles_per_block(&self) -> usize {
        self.room.tiles_per_block
    }

    fn scratch(&self, rows: usize) -> Scratch<T> {
        self.scratch(rows)
    }

    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        self.block(inputs, first, out, streamed, scratch)
    }

    fn adjoint_bytes(&self) -> Option<u64> {
        self.room.adjoint_bytes::<T>()
    }

    fn adjoint_scratch(&self) -> AdjointScratch<T> {
        self.adjoint_scratch()
    }

    fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut AdjointScratch<T>,
    ) -> Option<usize> {
        self.adjoint_tile(inputs, first, cotangent, gradients, scratch)
    }
}
