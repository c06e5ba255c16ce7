//! Sketches that one kernel computes in one pass over the rows.

mod srht;
mod tensor_sketch;

use argand::draw::{Draw, Operand, Product, Projection, Source, Values};
use argand::{Error, Spec};

use crate::driver::{Device, Stream};
use crate::memory::View;
use crate::view::{DeviceRows, Element};

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
    /// The sources of a sketch; √ν is zero if there is no constant.
    fn of(inputs: &[DeviceRows], root_coef0: f32) -> [Self; MOST_TABLES] {
        let mut tables = [Self::default(); MOST_TABLES];
        for (table, input) in tables.iter_mut().zip(inputs) {
            *table = Self { x: input.address, stride: input.stride as i64, columns: narrow(input.columns), root_coef0 };
        }
        tables
    }
}

pub(crate) fn narrow(size: usize) -> i32 {
    i32::try_from(size).unwrap_or_else(|_| unreachable!("the sizes of a fused sketch are below 2³¹"))
}

/// A sketch in one pass.
#[derive(Debug)]
pub(crate) enum Fused {
    Srht(Box<srht::Srht>),
    TensorSketch(Box<tensor_sketch::TensorSketch>),
}

impl Fused {
    /// The sketch in one pass, if there is a kernel for it.
    pub(crate) fn new(device: &Device, spec: &Spec, product: &Product) -> Result<Option<Self>, Error> {
        if let Some(srht) = srht::Srht::new(device, spec, product)? {
            return Ok(Some(Self::Srht(Box::new(srht))));
        }
        Ok(tensor_sketch::TensorSketch::new(device, spec, product)?.map(Box::new).map(Self::TensorSketch))
    }

    /// Queues the features of all rows.
    pub(crate) fn transform(&self, stream: &Stream, call: &Call<'_>) -> Result<(), Error> {
        match self {
            Self::Srht(srht) => srht.transform(stream, call),
            Self::TensorSketch(sketch) => sketch.transform(stream, call),
        }
    }

    /// Queues the adjoint; `false` if there is no kernel for it.
    pub(crate) fn adjoint(&self, stream: &Stream, call: &AdjointCall<'_>) -> Result<bool, Error> {
        match self {
            Self::Srht(srht) => srht.adjoint(stream, call),
            Self::TensorSketch(_) => Ok(false),
        }
    }

    /// Queues the sums of the features of groups of rows; `starts` has one more entry than there are groups.
    pub(crate) fn transform_pooled(&self, stream: &Stream, call: &Call<'_>, starts: View) -> Result<(), Error> {
        match self {
            Self::Srht(srht) => srht.transform_pooled(stream, call, starts),
            Self::TensorSketch(sketch) => sketch.transform_pooled(stream, call, starts),
        }
    }
}

/// What a sketch is asked to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) inputs: &'a [DeviceRows],
    pub(crate) out: &'a DeviceRows,
    /// The number of the first row, and where the first one that does not fit is recorded.
    pub(crate) first_row: usize,
    pub(crate) bad_row: View,
}

/// What an adjoint is asked to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdjointCall<'a> {
    /// As for features, with the cotangent in their place.
    pub(crate) features: Call<'a>,
    pub(crate) gradients: &'a [DeviceRows],
    /// If the cotangent has a row for each group: where their starts lie, and their number.
    pub(crate) groups: Option<(View, usize)>,
}

impl Call<'_> {
    /// The type of the inputs, which is the same for all.
    fn element(&self) -> i32 {
        self.inputs.first().map_or(Element::F32, |input| input.element).code()
    }

    fn input_rows(&self) -> i64 {
        self.inputs.first().map_or(0, |input| input.rows) as i64
    }
}

/// The drawn values of a flat product whose factors are all of one kind; `None` for other products. There is at least one factor.
fn flat<'a, V>(product: &'a Product, of_kind: impl Fn(&'a Values) -> Option<&'a V>) -> Option<(Vec<&'a V>, Draw)> {
    let [join] = &product.joins[..] else { return None };
    let factor = |operand: &'a Operand<Projection>| {
        let untransformed = !operand.projection.draw.transformed;
        of_kind(&operand.projection.values).filter(|_| untransformed && matches!(operand.source, Source::Factor(_)))
    };
    let factors: Vec<&V> = join.operands.iter().map(factor).collect::<Option<_>>()?;
    let first = join.operands.first().filter(|_| product.craft.is_none())?;
    Some((factors, first.projection.draw))
}
