//! The host side of `parts.cu`: large groups of rows in parts, whose sums are added up in double precision: pooled features keep a device busy however few groups
//! there are, and as exact as those of short groups.
//!
//! Parts have a fixed number of rows and are added in order, and only a group's own length decides whether it is cut: sums do not depend on other groups.

use argand::Error;

use crate::driver::{Device, Stream};
use crate::fused::{Call, Fused, narrow};
use crate::launch::{Kernel, Shape, arguments};
use crate::memory::View;
use crate::view::{DeviceRows, Element};

/// Threads of a block.
const THREADS: usize = 256;

/// The rows of a part if the longest group is to be cut; the kernel cuts every group with room for four parts and no other. The more features, the longer the
/// parts: their sums take little memory beside the rows. No more than 2,048 rows are ever summed up in single precision.
pub(crate) fn length(longest: usize, features: usize) -> Option<usize> {
    let length = (features / 32).clamp(32, 512);
    (longest >= 4 * length).then_some(length)
}

/// The kernels that cut groups and add up their parts.
#[derive(Debug)]
pub(crate) struct Parts {
    split: Kernel,
    sum: Kernel,
}

impl Parts {
    pub(crate) fn load(device: &Device) -> Result<Self, Error> {
        let kernel = |name| device.kernel("parts_f32", name);
        Ok(Self { split: kernel("split_groups")?, sum: kernel("sum_parts")? })
    }

    /// Queues the sums of the features of groups of rows, in parts of so many of them.
    pub(crate) fn transform_pooled(
        &self,
        stream: &Stream,
        fused: &Fused,
        call: &Call<'_>,
        starts: View,
        length: usize,
    ) -> Result<(), Error> {
        let (out, rows) = (call.out, call.inputs.first().map_or(0, |input| input.rows));
        let parts = rows / length + out.rows;
        let sums = stream.scratch(parts * out.columns * size_of::<f32>())?;
        let bounds = stream.scratch((out.rows + parts + 2) * size_of::<i64>())?;
        let (first, starts_of_parts) = (bounds.at::<i64>(0), bounds.at::<i64>(out.rows + 1));
        let (groups, rows_of_part) = (out.rows as i64, length as i64);
        let shape = Shape { grid: [out.rows.min(1 << 16), 1], threads: THREADS };
        self.split.launch(stream, shape, arguments![starts, groups, rows_of_part, first, starts_of_parts])?;

        let table =
            DeviceRows { element: Element::F32, rows: parts, stride: out.columns, address: sums.address(), ..*out };
        fused.transform_pooled(stream, &Call { out: &table, ..*call }, starts_of_parts)?;

        let (added, columns) = (sums.at::<f32>(0), narrow(out.columns));
        let (stride, element) = (out.stride as i64, out.element.code());
        let blocks = (out.rows * out.columns).div_ceil(THREADS).min(32 * stream.device().info().multiprocessors);
        self.sum.launch(
            stream,
            Shape { grid: [blocks, 1], threads: THREADS },
            arguments![added, columns, first, starts, out.address, element, stride, groups, call.bad_row],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_cut_if_they_are_long() {
        assert_eq!(length(256, 256), Some(32));
        assert_eq!(length(256, 4096), None);
        assert_eq!(length(784, 8192), None);
        assert_eq!(length(128, 64), Some(32));
        assert_eq!(length(127, 64), None);
        assert_eq!(length(1 << 20, 1 << 20), Some(512));
        assert_eq!(length(0, 64), None);
    }
}
