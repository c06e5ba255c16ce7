//! The memory of a product of projections on this processor, counted before anything is drawn.

use crate::draw::{self, Draw};
use crate::lanes::Lane;
use crate::projection::Needs;
use crate::scalar::Scalar;
use crate::spec::Spec;

/// Bytes of features worth computing at a time: enough work to pay for handing it to a thread.
const BLOCK_BYTES: usize = 256 << 10;

/// Lanes of one thread's work space, and the sizes that determine them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Room {
    /// The dimension of the widest x̃.
    pub(super) widest: usize,
    /// m
    outputs: usize,
    /// The number of slots for results of joins.
    pub(super) slots: usize,
    pub(super) workspace_lanes: usize,
    /// Lanes of the prepared tile that outputs are gathered from, if features are written in one pass.
    pub(super) fused_lanes: Option<usize>,
    pub(super) tiles_per_block: usize,
    /// Lanes before and after a CRAFT projection.
    pub(super) craft: [usize; 2],
    /// The number of operands of all joins, and the most of one join.
    operands: usize,
    most_operands: usize,
    transforms: bool,
    /// Bytes of all operators; `None` on overflow.
    operator_bytes: Option<u64>,
}

impl Room {
    pub(super) fn of<T: Scalar>(spec: &Spec, plan: &draw::Product<Draw>) -> Self {
        let needs: Vec<Needs> = plan.projections().map(|draw| draw.base.needs::<T>(draw)).collect();
        let tables = spec.inputs.as_slice().len();
        let operands = plan.joins.iter().map(|join| join.operands.len());
        let fused_lanes = fused_lanes::<T>(plan, &needs, tables);
        let of_features = BLOCK_BYTES / size_of::<Lane<T>>() / spec.features;
        let of_operators = needs.iter().map(|needs| needs.tiles_per_block).max().unwrap_or(1);
        Self {
            widest: (0..tables).map(|factor| spec.factor_dim(factor)).max().unwrap_or(0),
            outputs: spec.outputs(),
            slots: plan.slots(),
            workspace_lanes: needs.iter().map(|needs| needs.workspace_lanes).max().unwrap_or(0),
            fused_lanes,
            tiles_per_block: if fused_lanes.is_some() { of_features.clamp(1, 8) } else { of_operators },
            craft: plan.craft.map_or([0, 0], |draw| [draw.dim, draw.outputs]),
            operands: operands.clone().sum(),
            most_operands: operands.max().unwrap_or(0),
            transforms: spec.method.base().is_some_and(|base| base.multiplies_transforms()),
            operator_bytes: needs.iter().try_fold(0_u64, |sum, needs| sum.checked_add(needs.bytes?)),
        }
    }

    /// Bytes of all operators and of one thread's work space; `None` on overflow.
    pub(super) fn bytes<T>(&self) -> Option<u64> {
        let lanes = match self.fused_lanes {
            Some(lanes) => lanes.checked_add(self.widest)?,
            None => self.slot_lanes(self.tiles_per_block)?,
        };
        self.operator_bytes?.checked_add(lane_bytes::<T>(lanes)?)
    }

    /// Bytes of one thread's work space for the adjoint; `None` on overflow.
    pub(super) fn adjoint_bytes<T>(&self) -> Option<u64> {
        let products = self.operands.checked_add(self.most_operands)?.checked_add(1)?;
        let products = products.checked_mul(self.outputs)?.checked_mul(2)?;
        lane_bytes::<T>(self.slot_lanes(1)?.checked_add(self.widest)?.checked_add(products)?)
    }

    /// Lanes of one thread's work space with products in slots; `None` on overflow.
    fn slot_lanes(&self, tiles: usize) -> Option<usize> {
        let per_tile = self.widest.checked_add(self.outputs.checked_mul(2)?.checked_mul(self.slots)?)?;
        let transform = if self.transforms { self.outputs.checked_mul(4)? } else { 0 };
        let craft = self.craft[0].checked_add(self.craft[1])?;
        let workspace = self.workspace_lanes.checked_mul(2)?;
        tiles.checked_mul(per_tile)?.checked_add(transform)?.checked_add(craft)?.checked_add(workspace)
    }
}

/// Lanes of the prepared tile of a flat sketch, if there is one and it fits into its cache.
fn fused_lanes<T>(plan: &draw::Product<Draw>, needs: &[Needs], tables: usize) -> Option<usize> {
    if plan.joins.len() != 1 || plan.craft.is_some() {
        return None;
    }
    let (mut lanes, mut most_bytes) = (0_usize, usize::MAX);
    for (factor, needs) in needs.iter().enumerate() {
        let fusing = needs.fusing?;
        most_bytes = most_bytes.min(fusing.most_bytes);
        if !fusing.shared || factor < tables {
            lanes = lanes.checked_add(fusing.lanes)?;
        }
    }
    (lanes.checked_mul(size_of::<Lane<T>>())? <= most_bytes).then_some(lanes)
}

fn lane_bytes<T>(lanes: usize) -> Option<u64> {
    u64::try_from(lanes.checked_mul(size_of::<Lane<T>>())?).ok()
}
