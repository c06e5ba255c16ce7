//! Sketches that one kernel computes in one pass over the rows.

mod srht;
mod tensor_sketch;

use argand::draw::Product;
use argand::{Error, Scalar, Spec};

use crate::driver::{Device, Stream, View};
use crate::view::DeviceRows;

/// Tables that a kernel has room for.
const MOST_TABLES: usize = 16;

/// `Source` in the kernels.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Table {
    x: u64,
    stride: i64,
    columns: i32,
    root_coef0: f32,
}

impl Table {
    /// The sources of a sketch; `roots` are √γ and √ν.
    fn of(inputs: &[DeviceRows], roots: [f64; 2]) -> [Self; MOST_TABLES] {
        let mut tables = [Self::default(); MOST_TABLES];
        for (table, input) in tables.iter_mut().zip(inputs) {
            *table = Self {
                x: input.address,
                stride: input.stride as i64,
                columns: narrow(input.columns),
                root_coef0: f32::from_f64(roots[1]),
            };
        }
        tables
    }
}

fn narrow(size: usize) -> i32 {
    i32::try_from(size).unwrap_or_else(|_| unreachable!("the sizes of a fused sketch are below 2³¹"))
}

/// A sketch in one pass.
#[derive(Debug)]
pub(crate) enum Fused {
    Srht(srht::Srht),
    TensorSketch(tensor_sketch::TensorSketch),
}

impl Fused {
    /// The sketch in one pass, if there is a kernel for it.
    pub(crate) fn new(device: &Device, spec: &Spec, product: &Product) -> Result<Option<Self>, Error> {
        if let Some(srht) = srht::Srht::new(device, spec, product)? {
            return Ok(Some(Self::Srht(srht)));
        }
        Ok(tensor_sketch::TensorSketch::new(device, spec, product)?.map(Self::TensorSketch))
    }

    /// Queues the features of all rows.
    pub(crate) fn transform(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        roots: [f64; 2],
        out: &DeviceRows,
        first_row: usize,
        bad_row: View,
    ) -> Result<(), Error> {
        match self {
            Self::Srht(srht) => srht.transform(stream, inputs, roots, out, first_row, bad_row),
            Self::TensorSketch(sketch) => sketch.transform(stream, inputs, roots, out, first_row, bad_row),
        }
    }

    /// Queues the sums of the features of groups of rows; `starts` has one more entry than there are groups.
    pub(crate) fn transform_pooled(
        &self,
        stream: &Stream,
        inputs: &[DeviceRows],
        roots: [f64; 2],
        starts: View,
        out: &DeviceRows,
        bad_row: View,
    ) -> Result<(), Error> {
        match self {
            Self::Srht(srht) => srht.transform_pooled(stream, inputs, roots, starts, out, bad_row),
            Self::TensorSketch(sketch) => sketch.transform_pooled(stream, inputs, roots, starts, out, bad_row),
        }
    }
}
