//! Products of projections on a device, one step at a time: every shape, base and field, and the adjoint.

#![allow(clippy::too_many_arguments, reason = "steps have many")]

use argand::draw::{Join, Product as DrawnProduct, Source, Values};
use argand::{Error, Field, InputDims, Spec};

use crate::driver::{Device, Stream};
use crate::fourier::Fourier;
use crate::memory::{Buffer, View};
use crate::operator::{Operator, Scratch};
use crate::real::Real;
use crate::steps::{FourierTables, Planes, Steps, Transform};
use crate::view::DeviceRows;

/// A product of projections, ready to run.
#[derive(Debug)]
pub(crate) struct Product {
    joins: Vec<Join<Operator>>,
    slots: usize,
    craft: Option<Operator>,
    field: Field,
    inputs: InputDims,
    /// m, the outputs of each projection.
    outputs: usize,
    features: usize,
    roots: [f64; 2],
    fourier: Option<Fourier>,
    widest: usize,
}

/// √γ and √ν of the kernel, which is polynomial for every product of projections.
pub(crate) fn roots(spec: &Spec) -> [f64; 2] {
    let kernel = spec.kernel.polynomial().unwrap_or_else(|| unreachable!("products sketch polynomial kernels"));
    [kernel.gamma.sqrt(), kernel.coef0.sqrt()]
}

/// Memory of one block of rows, cut from one buffer.
struct Cut {
    next: View,
    rows: usize,
}

impl Cut {
    fn take<T>(&mut self, numbers_per_row: usize) -> View {
        let taken = self.next;
        self.next = self.next.skip::<T>(numbers_per_row * self.rows);
        taken
    }

    fn planes<T>(&mut self, numbers_per_row: usize, complex: bool) -> Planes {
        let re = self.take::<T>(numbers_per_row);
        Planes { re, im: if complex { self.take::<T>(numbers_per_row) } else { View::NONE } }
    }
}

/// Where a block of rows is computed.
struct Room {
    x: View,
    slots: Vec<Planes>,
    scratch: Scratch,
    craft: [View; 2],
    /// For the adjoint: every projected operand, the products of those after each operand of a join, v, and the gradient.
    projected: Planes,
    suffix: Planes,
    v: Planes,
    gradient: View,
}

impl Product {
    pub(crate) fn new<T: Real>(device: &Device, spec: &Spec, drawn: &DrawnProduct) -> Result<Self, Error> {
        let Some(method) = spec.method.product() else { unreachable!("only product methods draw products") };
        let outputs = spec.outputs();
        let transforms = drawn.projections().any(|projection| matches!(projection.values, Values::Buckets(_)));
        let mut widest = 0;
        let mut joins = Vec::with_capacity(drawn.joins.len());
        for join in &drawn.joins {
            let mut operands = Vec::with_capacity(join.operands.len());
            for operand in &join.operands {
                widest = widest.max(operand.projection.draw.dim);
                operands.push(argand::draw::Operand {
                    source: operand.source,
                    projection: Operator::new::<T>(device, &operand.projection)?,
                });
            }
            joins.push(Join { operands, slot: join.slot });
        }
        Ok(Self {
            slots: joins.iter().map(|join| join.slot + 1).max().unwrap_or(1),
            joins,
            craft: drawn.craft.as_ref().map(|craft| Operator::new::<T>(device, craft)).transpose()?,
            field: method.field,
            inputs: spec.inputs.clone(),
            outputs,
            features: spec.features,
            roots: roots(spec),
            fourier: transforms.then(|| Fourier::new::<T>(device, outputs)).transpose()?,
            widest,
        })
    }

    fn complex(&self) -> bool {
        self.field.is_complex() || self.fourier.is_some()
    }

    fn scale(&self) -> f64 {
        1.0 / (self.outputs as f64).sqrt()
    }

    /// Start and step of the columns of real and imaginary parts.
    fn columns(&self) -> [[usize; 2]; 2] {
        if self.field == Field::Complex { [[0, 2], [1, 2]] } else { [[0, 1], [self.outputs, 1]] }
    }

    /// Numbers of work space per row.
    pub(crate) fn numbers_per_row(&self, adjoint: bool) -> usize {
        let parts = if self.complex() { 2 } else { 1 };
        let operands = self.joins.iter().map(|join| join.operands.len());
        let up = self.craft.as_ref().map_or(0, |craft| craft.dim + self.features);
        let forward = self.widest + parts * self.slots * self.outputs + 4 * self.outputs + up;
        let backward =
            parts * self.outputs * (operands.clone().sum::<usize>() + operands.max().unwrap_or(0) + 1) + self.widest;
        forward + if adjoint { backward } else { 0 }
    }

    fn room<T: Real>(&self, buffer: &Buffer, rows: usize, adjoint: bool) -> Room {
        let mut cut = Cut { next: buffer.at::<T>(0), rows };
        let (outputs, complex) = (self.outputs, self.complex());
        let operands = self.joins.iter().map(|join| join.operands.len());
        let none = Planes { re: View::NONE, im: View::NONE };
        Room {
            x: cut.take::<T>(self.widest),
            slots: (0..self.slots).map(|_| cut.planes::<T>(outputs, complex)).collect(),
            scratch: Scratch { first: cut.take::<T>(2 * outputs), second: cut.take::<T>(2 * outputs) },
            craft: match &self.craft {
                Some(craft) => [cut.take::<T>(craft.dim), cut.take::<T>(self.features)],
                None => [View::NONE; 2],
            },
            projected: if adjoint { cut.planes::<T>(operands.clone().sum::<usize>() * outputs, complex) } else { none },
            suffix: if adjoint { cut.planes::<T>(operands.max().unwrap_or(0) * outputs, complex) } else { none },
            v: if adjoint { cut.planes::<T>(outputs, complex) } else { none },
            gradient: if adjoint { cut.take::<T>(self.widest) } else { View::NONE },
        }
    }

    fn result(&self, room: &Room) -> Planes {
        self.joins.last().map_or_else(|| unreachable!("there is at least one join"), |join| room.slots[join.slot])
    }

    /// Features of a block of rows.
    pub(crate) fn transform<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        inputs: &[DeviceRows],
        out: &DeviceRows,
        first_row: usize,
        buffer: &Buffer,
        bad_row: View,
    ) -> Result<(), Error> {
        let rows = out.rows;
        let room = self.room::<T>(buffer, rows, false);
        self.products::<T>(steps, stream, inputs, rows, &room, false)?;
        let result = self.result(&room);
        let result = if self.field.is_complex() { result } else { result.real() };
        if let Some(craft) = &self.craft {
            let [up, down] = room.craft;
            let (up, down) = (Planes { re: up, im: View::NONE }, Planes { re: down, im: View::NONE });
            steps.side_by_side(stream, result, self.outputs, self.scale(), up.re, rows)?;
            craft.multiply_into::<T>(steps, stream, None, up, room.scratch, down, true, rows)?;
            let factor = 1.0 / (self.features as f64).sqrt();
            return steps.store(stream, down.re, [self.features; 2], factor, out, [0, 1], first_row, bad_row);
        }
        let [of_re, of_im] = self.columns();
        steps.store(stream, result.re, [self.outputs; 2], self.scale(), out, of_re, first_row, bad_row)?;
        if result.im != View::NONE {
            steps.store(stream, result.im, [self.outputs; 2], self.scale(), out, of_im, first_row, bad_row)?;
        }
        Ok(())
    }

    /// Computes all joins; the result, times √m, is in the last one's slot.
    fn products<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        inputs: &[DeviceRows],
        rows: usize,
        room: &Room,
        keep: bool,
    ) -> Result<(), Error> {
        let tables = self.fourier.as_ref().map(Fourier::tables::<T>);
        let numbers = rows * self.outputs;
        let mut loaded = None;
        let mut kept = 0;
        for (number, join) in self.joins.iter().enumerate() {
            let into = room.slots[join.slot];
            for (index, operand) in join.operands.iter().enumerate() {
                let operator = &operand.projection;
                let x = match operand.source {
                    Source::Factor(factor) => {
                        let table = self.inputs.table_of(factor);
                        if loaded != Some(table) {
                            steps.load_rows(stream, &inputs[table], operator.dim, self.roots, room.x)?;
                            loaded = Some(table);
                        }
                        Planes { re: room.x, im: View::NONE }
                    }
                    Source::Join(source) => {
                        let from = room.slots[self.joins[source].slot];
                        if self.field.is_complex() { from } else { from.real() }
                    }
                };
                if keep {
                    let own = room.projected.part::<T>(kept, numbers);
                    operator.multiply_into::<T>(steps, stream, tables.as_ref(), x, room.scratch, own, true, rows)?;
                    steps.multiply(stream, into, own, index == 0, numbers)?;
                    kept += 1;
                } else {
                    operator.multiply_into::<T>(
                        steps,
                        stream,
                        tables.as_ref(),
                        x,
                        room.scratch,
                        into,
                        index == 0,
                        rows,
                    )?;
                }
            }
            self.transform_join::<T>(steps, stream, tables.as_ref(), into, true, rows)?;
            if number + 1 < self.joins.len() {
                steps.scale(stream, into, self.scale(), numbers)?;
            }
        }
        Ok(())
    }

    /// For TensorSketch, from a product of transforms to the result of a join, up to 1/√m; or the transpose of that.
    fn transform_join<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        tables: Option<&FourierTables>,
        planes: Planes,
        from_frequencies: bool,
        rows: usize,
    ) -> Result<(), Error> {
        let Some(tables) = tables else { return Ok(()) };
        let which = Transform { inverse: true, from_frequencies, factor: self.scale() };
        steps.fourier::<T>(stream, planes, tables, which, planes, true, rows)
    }

    /// Gradients of a block of rows, one table for each input; as on the processor.
    pub(crate) fn adjoint<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        inputs: &[DeviceRows],
        cotangent: &DeviceRows,
        gradients: &[DeviceRows],
        first_row: usize,
        buffer: &Buffer,
        bad_row: View,
    ) -> Result<(), Error> {
        let rows = cotangent.rows;
        let room = self.room::<T>(buffer, rows, true);
        let numbers = rows * self.outputs;
        let bytes = size_of::<T>();
        let tables = self.fourier.as_ref().map(Fourier::tables::<T>);
        let distinct = matches!(self.inputs, InputDims::Distinct(_));
        self.products::<T>(steps, stream, inputs, rows, &room, true)?;
        self.load_cotangent::<T>(steps, stream, cotangent, &room)?;
        if !distinct {
            stream.fill(room.gradient, rows * self.widest * bytes, 0)?;
        }
        let store = |table: usize, dim: usize| {
            let out = &gradients[table];
            // The constant's column comes last and is not stored.
            steps.store(stream, room.gradient, [dim, out.columns], self.roots[0], out, [0, 1], first_row, bad_row)
        };
        let mut end = self.joins.iter().map(|join| join.operands.len()).sum::<usize>();
        for join in self.joins.iter().rev() {
            let operands = join.operands.len();
            end -= operands;
            let u = |index: usize| room.projected.part::<T>(end + index, numbers);
            let suffix = |index: usize| room.suffix.part::<T>(index, numbers);
            let g = room.slots[join.slot];
            // The product of the operands after each one; none after the last.
            for index in (0..operands.saturating_sub(1)).rev() {
                if index + 2 == operands {
                    steps.multiply(stream, suffix(index), u(index + 1), true, numbers)?;
                } else {
                    steps.product(stream, suffix(index), suffix(index + 1), u(index + 1), numbers)?;
                }
            }
            self.transform_join::<T>(steps, stream, tables.as_ref(), g, false, rows)?;
            steps.scale(stream, g, self.scale(), numbers)?;
            for (index, operand) in join.operands.iter().enumerate() {
                let operator = &operand.projection;
                if index + 1 == operands {
                    steps.multiply(stream, room.v, g, true, numbers)?;
                } else {
                    steps.product(stream, room.v, g, suffix(index), numbers)?;
                    steps.multiply(stream, g, u(index), false, numbers)?;
                }
                let into = match operand.source {
                    Source::Factor(_) => {
                        if distinct {
                            stream.fill(room.gradient, rows * operator.dim * bytes, 0)?;
                        }
                        Planes { re: room.gradient, im: View::NONE }
                    }
                    Source::Join(source) => {
                        let into = room.slots[self.joins[source].slot];
                        for plane in [into.re, into.im] {
                            if plane != View::NONE {
                                stream.fill(plane, numbers * bytes, 0)?;
                            }
                        }
                        into
                    }
                };
                operator.add_transpose::<T>(steps, stream, tables.as_ref(), room.v, room.scratch, into, rows)?;
                match operand.source {
                    Source::Factor(factor) if distinct => store(self.inputs.table_of(factor), operator.dim)?,
                    Source::Join(_) if !self.field.is_complex() && into.im != View::NONE => {
                        stream.fill(into.im, numbers * bytes, 0)?;
                    }
                    _ => {}
                }
            }
        }
        if distinct { Ok(()) } else { store(0, self.widest_of_inputs()) }
    }

    /// The dimension of x̃ if all factors share one input: operands of joins may be wider.
    fn widest_of_inputs(&self) -> usize {
        self.inputs.as_slice()[0] + usize::from(self.roots[1] > 0.0)
    }

    /// Leaves g, the conjugated cotangent of the last join, in its slot.
    fn load_cotangent<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        cotangent: &DeviceRows,
        room: &Room,
    ) -> Result<(), Error> {
        let g = self.result(room);
        let rows = cotangent.rows;
        let [of_re, of_im] = self.columns();
        if let Some(craft) = &self.craft {
            let [up, down] = room.craft;
            let factor = 1.0 / (self.features as f64).sqrt();
            steps.fetch(stream, cotangent, [0, 1], factor, down, self.features)?;
            stream.fill(up, rows * craft.dim * size_of::<T>(), 0)?;
            let (up_planes, down) = (Planes { re: up, im: View::NONE }, Planes { re: down, im: View::NONE });
            craft.add_transpose::<T>(steps, stream, None, down, room.scratch, up_planes, rows)?;
            steps.apart(stream, up, self.outputs, g, if self.field.is_complex() { 2 } else { 1 }, rows)?;
        } else {
            steps.fetch(stream, cotangent, of_re, 1.0, g.re, self.outputs)?;
            if self.field.is_complex() {
                steps.fetch(stream, cotangent, of_im, -1.0, g.im, self.outputs)?;
            }
        }
        if !self.field.is_complex() && g.im != View::NONE {
            stream.fill(g.im, rows * self.outputs * size_of::<T>(), 0)?;
        }
        Ok(())
    }
}
