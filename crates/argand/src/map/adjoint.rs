//! The adjoint of a product of projections.

use super::first_not_finite;
use super::product::{Product, Scratch};
use crate::draw::Source;
use crate::lanes::{self, Columns, LANES, Lane, LaneBuffer};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;

/// One thread's work space: one tile.
#[derive(Debug)]
pub(super) struct AdjointScratch<T> {
    forward: Scratch<T>,
    gradient: LaneBuffer<T>,
    /// Every projected operand, join after join.
    projected: [LaneBuffer<T>; 2],
    /// For each operand of a join, the product of those after it.
    suffix: [LaneBuffer<T>; 2],
    v: [LaneBuffer<T>; 2],
}

impl<T: Scalar> Product<T> {
    pub(super) fn adjoint_scratch(&self) -> AdjointScratch<T> {
        let operands = self.joins.iter().map(|join| join.operands.len());
        AdjointScratch {
            forward: self.slot_scratch(1),
            gradient: LaneBuffer::new(self.room.widest),
            projected: self.pair(operands.clone().sum::<usize>() * self.outputs),
            suffix: self.pair(operands.max().unwrap_or(0) * self.outputs),
            v: self.pair(self.outputs),
        }
    }

    /// Gradients of the tile of rows from `first` on; returns the first row that overflows.
    ///
    /// # Formula
    /// For a function L of the features, let g be such that dL = Re Σ g dz, for the result z of any join: at the last
    /// one it is the conjugated cotangent. With z = (u₁ ∘ … ∘ u_k)/√m and uᵢ = Wᵢ yᵢ, the g of an operand is
    /// Wᵢᵀ (g ∘ Π_{j≠i} uⱼ)/√m; that of an input, real, is its real part, times √γ.
    pub(super) fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut AdjointScratch<T>,
    ) -> Option<usize> {
        let AdjointScratch { forward, gradient, projected, suffix, v } = scratch;
        let (outputs, arch) = (self.outputs, self.arch);
        let [u_re, u_im] = projected.each_mut().map(LaneBuffer::as_mut);
        self.products(inputs, first, 1, forward, Some([&mut *u_re, &mut *u_im]));
        self.load_cotangent(cotangent, first, forward);

        let Scratch { slots, workspace, .. } = forward;
        let [suffix_re, suffix_im] = suffix.each_mut().map(LaneBuffer::as_mut);
        let [v_re, v_im] = v.each_mut().map(LaneBuffer::as_mut);
        let gradient = gradient.as_mut();
        if !self.distinct() {
            gradient.fill([T::ZERO; LANES]);
        }
        let mut bad: Option<usize> = None;
        let mut store = |gradient: &[Lane<T>], out: &mut RowsMut<'_, T>| {
            let (columns, all) = (out.columns(), Columns { start: 0, step: 1 });
            if !lanes::store(arch, &gradient[..columns], self.roots[0], all, out, 0, false) {
                bad = [bad, first_not_finite(out)].into_iter().flatten().min();
            }
        };
        let mut end = u_re.len();
        for join in self.joins.iter().rev() {
            let operands = join.operands.len();
            let start = end - operands * outputs;
            let u: [&[Lane<T>]; 2] = [&u_re[start..end], if u_im.is_empty() { &[] } else { &u_im[start..end] }];
            end = start;
            suffix_products(arch, [&mut *suffix_re, &mut *suffix_im], u, operands, outputs);
            let [g_re, g_im] = slots[join.slot].each_mut().map(LaneBuffer::as_mut);
            self.transform_join(g_re, g_im, workspace);
            lanes::scale_all(arch, g_re, self.scale);
            lanes::scale_all(arch, g_im, self.scale);
            for (index, operand) in join.operands.iter().enumerate() {
                let [g_re, g_im] = slots[join.slot].each_mut().map(LaneBuffer::as_mut);
                let after = part([&*suffix_re, &*suffix_im], index, outputs);
                lanes::product_into(arch, [&mut *v_re, &mut *v_im], [&*g_re, &*g_im], after);
                let [own_re, own_im] = part(u, index, outputs);
                lanes::multiply(arch, g_re, g_im, own_re, own_im, false);
                let operator = &operand.projection.operator;
                match operand.source {
                    Source::Factor(_) => {
                        let gradient = &mut gradient[..operand.projection.dim];
                        if self.distinct() {
                            gradient.fill([T::ZERO; LANES]);
                        }
                        operator.add_transpose([v_re, v_im], workspace, [gradient, &mut []]);
                        if let (true, Some(table)) = (self.distinct(), self.table(operand)) {
                            store(gradient, &mut gradients[table]);
                        }
                    }
                    Source::Join(source) => {
                        let [re, im] = slots[self.joins[source].slot].each_mut().map(LaneBuffer::as_mut);
                        re.fill([T::ZERO; LANES]);
                        im.fill([T::ZERO; LANES]);
                        operator.add_transpose([v_re, v_im], workspace, [re, im]);
                        if !self.field.is_complex() {
                            im.fill([T::ZERO; LANES]);
                        }
                    }
                }
            }
        }
        if !self.distinct() {
            store(gradient, &mut gradients[0]);
        }
        bad.map(|row| first + row)
    }

    /// Leaves the g of the formula in the slot of the last join's result; from here on, every slot holds the g of its own join.
    fn load_cotangent(&self, cotangent: &Rows<'_, T>, first: usize, scratch: &mut Scratch<T>) {
        let Scratch { slots, workspace, craft: [up, down], .. } = scratch;
        let [g_re, g_im] = slots[self.result_slot()].each_mut().map(LaneBuffer::as_mut);
        let [columns_re, columns_im] = self.parts().columns(self.outputs);
        if let Some(craft) = &self.craft {
            let (up, down) = (up.as_mut(), down.as_mut());
            lanes::gather(cotangent, first, craft.scale, columns_re, down);
            up.fill([T::ZERO; LANES]);
            craft.operator.add_transpose([down, &mut []], workspace, [up, &mut []]);
            g_re.copy_from_slice(&up[..self.outputs]);
            g_im.iter_mut().zip(&up[self.outputs..]).for_each(|(g, &up)| *g = lanes::scale(up, -T::ONE));
        } else {
            lanes::gather(cotangent, first, T::ONE, columns_re, g_re);
            if self.field.is_complex() {
                lanes::gather(cotangent, first, -T::ONE, columns_im, g_im);
            }
        }
        if !self.field.is_complex() {
            g_im.fill([T::ZERO; LANES]);
        }
    }
}

/// One operand's part of [Re, Im].
fn part<'a, T>([re, im]: [&'a [Lane<T>]; 2], index: usize, outputs: usize) -> [&'a [Lane<T>]; 2] {
    let of = |lanes: &'a [Lane<T>]| if lanes.is_empty() { lanes } else { &lanes[index * outputs..][..outputs] };
    [of(re), of(im)]
}

/// For every operand, the product of those after it.
fn suffix_products<T: Scalar>(
    arch: pulp::Arch,
    [suffix_re, suffix_im]: [&mut [Lane<T>]; 2],
    u: [&[Lane<T>]; 2],
    operands: usize,
    outputs: usize,
) {
    let complex = !suffix_im.is_empty();
    let last = (operands - 1) * outputs;
    suffix_re[last..][..outputs].fill([T::ONE; LANES]);
    if complex {
        suffix_im[last..][..outputs].fill([T::ZERO; LANES]);
    }
    for index in (0..operands - 1).rev() {
        let split = (index + 1) * outputs;
        let (before_re, after_re) = suffix_re.split_at_mut(split);
        let (before_im, after_im) = suffix_im.split_at_mut(if complex { split } else { 0 });
        let into_im = if complex { &mut before_im[split - outputs..] } else { &mut [] };
        let after_im = if complex { &after_im[..outputs] } else { &[] };
        let into = [&mut before_re[split - outputs..], into_im];
        lanes::product_into(arch, into, [&after_re[..outputs], after_im], part(u, index + 1, outputs));
    }
}
