//! Features of rows in the host's memory, in blocks: while one block is computed, the next one is copied.

use argand::{Argument, Error, FeatureMap, Input, Method, Rows, RowsMut, check_shapes, check_vanishing, checked};
use rayon::prelude::*;

use crate::driver::{Device, Stream};
use crate::memory::{Buffer, Pinned};
use crate::real::Real;
use crate::sketch::CudaSketch;
use crate::view::DeviceRows;

/// Bytes of a block, for all tables that go in or come out.
const BLOCK_BYTES: usize = 32 << 20;

/// Blocks in flight, where each is on its own.
const LANES: usize = 2;

/// How rows are sent in blocks.
pub(crate) struct Traffic {
    /// The most blocks in flight.
    pub(crate) lanes: usize,
    /// The most rows in a block.
    pub(crate) most_rows: usize,
}

/// One table of a block: in page-locked memory and on the device.
struct Table<T> {
    host: Pinned<T>,
    device: Buffer,
    columns: usize,
}

impl<T: Real> Table<T> {
    fn new(device: &Device, rows: usize, columns: usize) -> Result<Self, Error> {
        let numbers = rows * columns;
        Ok(Self { host: Pinned::new(device, numbers)?, device: device.allocate(numbers * size_of::<T>())?, columns })
    }

    fn rows(&self, rows: usize) -> DeviceRows {
        let columns = self.columns;
        DeviceRows { address: self.device.address(), element: T::ELEMENT, rows, columns, stride: columns }
    }

    /// Fills it with rows, dense, and queues their way to the device.
    fn send(&mut self, stream: &Stream, input: &Input<'_, T>) -> Result<(), Error> {
        let (rows, columns) = (input.rows(), self.columns);
        let into = &mut self.host.numbers()[..rows * columns];
        into.par_chunks_mut(columns.max(1)).with_min_len(64).enumerate().for_each(|(row, into)| match input {
            Input::Dense(dense) => into.copy_from_slice(dense.row(row)),
            Input::Sparse(sparse) => {
                into.fill(T::ZERO);
                sparse.row(row).for_each(|(column, value)| into[column] = value);
            }
        });
        stream.send(&mut self.host, rows * columns, &self.device)
    }

    /// Copies what has arrived to the caller's rows.
    fn deliver(&mut self, out: &mut RowsMut<'_, T>, first: usize, rows: usize) {
        let from = self.host.numbers().chunks_exact(self.columns.max(1));
        for (row, from) in from.take(rows).enumerate() {
            out.row_mut(first + row).copy_from_slice(from);
        }
    }
}

/// A stream with the tables of one block.
pub(crate) struct Lane<T> {
    stream: Stream,
    /// The most rows.
    capacity: usize,
    inputs: Vec<Table<T>>,
    outputs: Vec<Table<T>>,
    /// The rows in flight: the first one and their number.
    busy: Option<(usize, usize)>,
}

impl<T: Real> Lane<T> {
    fn new(device: &Device, rows: usize, inputs: &[usize], outputs: &[usize]) -> Result<Self, Error> {
        let tables = |columns: &[usize]| -> Result<Vec<Table<T>>, Error> {
            columns.iter().map(|&columns| Table::new(device, rows, columns)).collect()
        };
        let (inputs, outputs) = (tables(inputs)?, tables(outputs)?);
        Ok(Self { stream: device.stream()?, capacity: rows, inputs, outputs, busy: None })
    }

    /// Whether it has room for blocks of so many rows with so many columns in and out.
    fn suits(&self, rows: usize, inputs: &[usize], outputs: &[usize]) -> bool {
        let columns =
            |tables: &[Table<T>], wanted: &[usize]| tables.iter().map(|table| table.columns).eq(wanted.iter().copied());
        self.capacity >= rows && columns(&self.inputs, inputs) && columns(&self.outputs, outputs)
    }

    /// Waits for the rows in flight, if any, and delivers them.
    fn land(&mut self, outs: &mut [RowsMut<'_, T>]) -> Result<(), Error> {
        let Some((first, rows)) = self.busy.take() else { return Ok(()) };
        self.stream.synchronize()?;
        for (table, out) in self.outputs.iter_mut().zip(outs) {
            table.deliver(out, first, rows);
        }
        Ok(())
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        // After an error, copies may still be under way; page-locked memory must outlive them.
        let _ = self.stream.synchronize();
    }
}

impl<T: Real> CudaSketch<T> {
    /// Sends blocks of rows, and of the cotangent if there is one, queues work on them and delivers the results.
    pub(crate) fn in_flight(
        &self,
        traffic: &Traffic,
        inputs: &[Input<'_, T>],
        cotangent: Option<&Input<'_, T>>,
        outs: &mut [RowsMut<'_, T>],
        queue: impl Fn(&Stream, &[DeviceRows], &[DeviceRows], usize, &Buffer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let rows = inputs.first().map_or(0, Input::rows);
        let dims: Vec<usize> = inputs.iter().map(Input::columns).chain(cotangent.map(Input::columns)).collect();
        let widths: Vec<usize> = outs.iter().map(RowsMut::columns).collect();
        let per_row = dims.iter().chain(&widths).sum::<usize>() * size_of::<T>();
        let block = (BLOCK_BYTES / per_row.max(1)).min(traffic.most_rows).clamp(1, rows.max(1));
        // Page-locked memory is slow to get, so lanes of earlier calls are used again.
        let mut lanes = self.idle_lanes();
        lanes.retain(|lane| lane.suits(block, &dims, &widths));
        lanes.truncate(traffic.lanes);
        while lanes.len() < rows.div_ceil(block).min(traffic.lanes) {
            lanes.push(Lane::new(self.device(), block, &dims, &widths)?);
        }
        let bad_row = self.device().upload(&[u64::MAX])?;
        for (number, first) in (0..rows).step_by(block).enumerate() {
            let at = number % lanes.len();
            let lane = &mut lanes[at];
            lane.land(outs)?;
            let count = block.min(rows - first);
            for (table, input) in lane.inputs.iter_mut().zip(inputs) {
                table.send(&lane.stream, &input.slice(first..first + count))?;
            }
            if let (Some(cotangent), Some(table)) = (cotangent, lane.inputs.last_mut()) {
                table.send(&lane.stream, &cotangent.slice(first..first + count))?;
            }
            let into: Vec<DeviceRows> = lane.inputs.iter().map(|table| table.rows(count)).collect();
            let from: Vec<DeviceRows> = lane.outputs.iter().map(|table| table.rows(count)).collect();
            queue(&lane.stream, &into, &from, first, &bad_row)?;
            for table in &mut lane.outputs {
                lane.stream.receive(&table.device, &mut table.host, count * table.columns)?;
            }
            lane.busy = Some((first, count));
        }
        for lane in &mut lanes {
            lane.land(outs)?;
        }
        if let Some(lane) = lanes.first() {
            Self::finish_with(&lane.stream, &bad_row)?;
        }
        self.keep_lanes(lanes);
        Ok(())
    }
}

/// Features and gradients of one block do not depend on others.
const APART: Traffic = Traffic { lanes: LANES, most_rows: usize::MAX };

fn check_table(argument: Argument, [rows, columns]: [usize; 2], expected: [usize; 2]) -> Result<(), Error> {
    if [rows, columns] == expected {
        return Ok(());
    }
    let expected = format!("{} rows x {} columns", expected[0], expected[1]);
    Err(Error::invalid(argument, expected, format!("{rows} x {columns}")))
}

impl<T: Real> FeatureMap<T> for CudaSketch<T> {
    fn input_dims(&self) -> &[usize] {
        self.spec().inputs.as_slice()
    }

    fn output_dim(&self) -> usize {
        self.spec().features
    }

    fn transform_into(&self, inputs: &[Input<'_, T>], out: RowsMut<'_, T>) -> Result<(), Error> {
        let rows = check_shapes(self.input_dims(), inputs)?;
        check_table(Argument::Out, [out.rows(), out.columns()], [rows, self.output_dim()])?;
        self.check_rows(inputs)?;
        self.in_flight(&APART, &checked(inputs)?, None, &mut [out], |stream, inputs, outs, first, bad_row| {
            self.queue(stream, inputs, &outs[0], first, bad_row)
        })?;
        check_vanishing(self.spec(), inputs)
    }

    fn vjp_into(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
    ) -> Result<(), Error> {
        let dims = self.input_dims();
        let rows = check_shapes(dims, inputs)?;
        check_table(Argument::Cotangent, [cotangent.rows(), cotangent.columns()], [rows, self.output_dim()])?;
        if gradients.len() != dims.len() {
            return Err(Error::invalid(Argument::Gradients, format!("{} tables", dims.len()), gradients.len()));
        }
        for (gradient, &dim) in gradients.iter().zip(dims) {
            check_table(Argument::Gradients, [gradient.rows(), gradient.columns()], [rows, dim])?;
        }
        self.check_rows(inputs)?;
        let inputs = checked(inputs)?;
        let cotangent = Input::from(cotangent).checked(Argument::Cotangent)?;
        self.in_flight(&APART, &inputs, Some(&cotangent), gradients, |stream, tables, outs, first, bad_row| {
            let (cotangent, inputs) =
                tables.split_last().unwrap_or_else(|| unreachable!("the cotangent is the last table"));
            self.queue_vjp(stream, inputs, cotangent, outs, first, bad_row)
        })
    }
}

impl<T: Real> CudaSketch<T> {
    pub(crate) fn check_rows(&self, inputs: &[Input<'_, T>]) -> Result<(), Error> {
        if self.spec().method == Method::Spherical { inputs[0].check_directions() } else { Ok(()) }
    }
}
