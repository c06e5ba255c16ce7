//! Projections in device memory.

#![allow(clippy::too_many_arguments, reason = "steps have many")]

use std::sync::OnceLock;

use argand::Base;
use argand::Error;
use argand::draw::{Projection, Values};

use crate::blas::Form;
use crate::driver::{Device, Stream};
use crate::memory::{Buffer, View};
use crate::real::Real;
use crate::steps::{FourierTables, Planes, SrhtTables, Steps, Transform};

/// A projection, ready to be applied by a device.
#[derive(Debug)]
pub(crate) struct Operator {
    projection: Projection,
    pub(crate) dim: usize,
    outputs: usize,
    complex: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Srht {
        turns: Buffer,
        sampled: Buffer,
        starts: Buffer,
        order: Buffer,
        transformed: bool,
    },
    /// The weights are only needed for the transpose.
    Signs {
        codes: Buffer,
        weights: OnceLock<Buffer>,
    },
    Dense {
        weights: Buffer,
    },
    CountSketch {
        starts: Buffer,
        order: Buffer,
        buckets: Buffer,
        turns: Buffer,
    },
}

/// Scratch memory of an operator: planes of rows x (twice the outputs).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scratch {
    pub(crate) first: View,
    pub(crate) second: View,
}

/// Lists the positions of each value below `values`, in ascending order: starts and order.
pub(crate) fn positions(values: usize, list: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0_u32; values + 1];
    list.iter().for_each(|&value| starts[value as usize + 1] += 1);
    for value in 0..values {
        starts[value + 1] += starts[value];
    }
    let mut next = starts.clone();
    let mut order = vec![0_u32; list.len()];
    for (position, &value) in (0_u32..).zip(list) {
        order[next[value as usize] as usize] = position;
        next[value as usize] += 1;
    }
    (starts, order)
}

impl Operator {
    pub(crate) fn new<T: Real>(device: &Device, projection: &Projection) -> Result<Self, Error> {
        let draw = projection.draw;
        let kind = match &projection.values {
            Values::Hadamard(hadamard) => {
                let (starts, order) = positions(draw.dim.next_power_of_two(), &hadamard.sampled);
                Kind::Srht {
                    turns: device.upload(&hadamard.turns)?,
                    sampled: device.upload(&hadamard.sampled)?,
                    starts: device.upload(&starts)?,
                    order: device.upload(&order)?,
                    transformed: draw.transformed,
                }
            }
            Values::Buckets(buckets) => {
                let (starts, order) = positions(draw.outputs, &buckets.buckets);
                Kind::CountSketch {
                    starts: device.upload(&starts)?,
                    order: device.upload(&order)?,
                    buckets: device.upload(&buckets.buckets)?,
                    turns: device.upload(&buckets.turns)?,
                }
            }
            _ if draw.base == Base::Rademacher => {
                Kind::Signs { codes: device.upload(&sign_codes(projection))?, weights: OnceLock::new() }
            }
            _ => Kind::Dense { weights: device.upload(&weights::<T>(projection))? },
        };
        Ok(Self { projection: projection.clone(), dim: draw.dim, outputs: draw.outputs, complex: draw.complex, kind })
    }

    /// Real rows of W.
    fn real_rows(&self) -> usize {
        self.outputs * if self.complex { 2 } else { 1 }
    }

    fn srht_tables(&self) -> Option<SrhtTables> {
        let Kind::Srht { turns, sampled, starts, order, .. } = &self.kind else { return None };
        Some(SrhtTables {
            dim: self.dim,
            padded: self.dim.next_power_of_two(),
            outputs: self.outputs,
            complex: self.complex,
            turns: turns.at::<u8>(0),
            sampled: sampled.at::<u32>(0),
            starts: starts.at::<u32>(0),
            order: order.at::<u32>(0),
        })
    }

    /// Multiplies `into` by Wx, or replaces it.
    pub(crate) fn multiply_into<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        fourier: Option<&FourierTables>,
        x: Planes,
        scratch: Scratch,
        into: Planes,
        first: bool,
        rows: usize,
    ) -> Result<(), Error> {
        let forward = Transform { inverse: false, from_frequencies: false, factor: 1.0 };
        let planes = Planes { re: scratch.first, im: scratch.second };
        match &self.kind {
            Kind::Srht { transformed, .. } => {
                let Some(tables) = self.srht_tables() else { unreachable!("this is an SRHT") };
                if !transformed {
                    return steps.srht::<T>(stream, x, &tables, into, first, rows);
                }
                let Some(fourier) = fourier else { unreachable!("a transform that follows is planned") };
                let planes = if self.complex { planes } else { planes.real() };
                steps.srht::<T>(stream, x, &tables, planes, true, rows)?;
                let which = Transform { factor: 1.0 / (self.outputs as f64).sqrt(), ..forward };
                steps.fourier::<T>(stream, planes, fourier, which, into, first, rows)
            }
            Kind::CountSketch { starts, order, turns, .. } => {
                let Some(fourier) = fourier else { unreachable!("a sketch that multiplies transforms plans them") };
                let tables = [starts.at::<u32>(0), order.at::<u32>(0), turns.at::<u8>(0)];
                steps.count_sketch(stream, x, self.dim, tables, self.outputs, planes, rows)?;
                steps.fourier::<T>(stream, planes, fourier, forward, into, first, rows)
            }
            Kind::Signs { codes, .. } => {
                let sum = |x, sums| {
                    steps.signed_sums::<T>(stream, x, self.dim, codes.at::<u32>(0), self.real_rows(), sums, rows)
                };
                self.sums_into(steps, stream, x, planes, into, first, rows, sum)
            }
            Kind::Dense { weights } => {
                let sizes = [rows, self.real_rows(), self.dim];
                let sum = |x, sums| steps.dense::<T>(stream, Form::ByTransposed, [x, weights.at::<T>(0), sums], sizes);
                self.sums_into(steps, stream, x, planes, into, first, rows, sum)
            }
        }
    }

    /// Real projections of both parts of x, combined.
    fn sums_into(
        &self,
        steps: &Steps,
        stream: &Stream,
        x: Planes,
        sums: Planes,
        into: Planes,
        first: bool,
        rows: usize,
        sum: impl Fn(View, View) -> Result<(), Error>,
    ) -> Result<(), Error> {
        sum(x.re, sums.re)?;
        let sums = if x.im == View::NONE { sums.real() } else { sums };
        if sums.im != View::NONE {
            sum(x.im, sums.im)?;
        }
        let halves = matches!(self.kind, Kind::Signs { .. });
        steps.combine(stream, sums, self.outputs, self.complex, halves, into, first, rows)
    }

    /// Adds Wᵀv to a gradient, whose imaginary plane is absent if only its real part is wanted.
    pub(crate) fn add_transpose<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        fourier: Option<&FourierTables>,
        v: Planes,
        scratch: Scratch,
        gradient: Planes,
        rows: usize,
    ) -> Result<(), Error> {
        let back = Transform { inverse: false, from_frequencies: true, factor: 1.0 };
        let planes = Planes { re: scratch.first, im: scratch.second };
        match &self.kind {
            Kind::Srht { transformed, .. } => {
                let Some(tables) = self.srht_tables() else { unreachable!("this is an SRHT") };
                if !transformed {
                    return steps.srht_transpose::<T>(stream, v, &tables, gradient, rows);
                }
                let Some(fourier) = fourier else { unreachable!("a transform that follows is planned") };
                let which = Transform { factor: 1.0 / (self.outputs as f64).sqrt(), ..back };
                steps.fourier::<T>(stream, v, fourier, which, planes, true, rows)?;
                steps.srht_transpose::<T>(stream, planes, &tables, gradient, rows)
            }
            Kind::CountSketch { buckets, turns, .. } => {
                let Some(fourier) = fourier else { unreachable!("a sketch that multiplies transforms plans them") };
                steps.fourier::<T>(stream, v, fourier, back, planes, true, rows)?;
                let tables = [buckets.at::<u32>(0), turns.at::<u8>(0)];
                steps.count_sketch_transpose(stream, planes, self.outputs, tables, self.dim, gradient, rows)
            }
            Kind::Signs { weights, .. } => {
                if weights.get().is_none() {
                    // Another thread may have been faster; then this copy is dropped.
                    let _ = weights.set(stream.device().upload(&weights_of::<T>(self))?);
                }
                let Some(weights) = weights.get() else { unreachable!("set above") };
                self.transposed_sums::<T>(steps, stream, weights, v, scratch, gradient, rows)
            }
            Kind::Dense { weights } => self.transposed_sums::<T>(steps, stream, weights, v, scratch, gradient, rows),
        }
    }

    fn transposed_sums<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        weights: &Buffer,
        v: Planes,
        scratch: Scratch,
        gradient: Planes,
        rows: usize,
    ) -> Result<(), Error> {
        let sizes = [rows, self.dim, self.real_rows()];
        for (imaginary, gradient) in [(false, gradient.re), (true, gradient.im)] {
            if gradient == View::NONE {
                continue;
            }
            let factors = if self.complex {
                steps.spread(stream, v, imaginary, scratch.first, rows * self.outputs)?;
                scratch.first
            } else {
                v.re
            };
            steps.dense::<T>(stream, Form::Add, [factors, weights.at::<T>(0), gradient], sizes)?;
        }
        Ok(())
    }
}

fn weights_of<T: Real>(operator: &Operator) -> Vec<T> {
    weights(&operator.projection)
}

/// Every entry of W, row by row; a complex row is its real parts, then its imaginary ones.
fn weights<T: Real>(projection: &Projection) -> Vec<T> {
    use rayon::prelude::*;
    let draw = projection.draw;
    let width = draw.dim * if draw.complex { 2 } else { 1 };
    let mut weights = vec![T::ZERO; draw.outputs * width];
    weights.par_chunks_mut(width.max(1)).enumerate().for_each(|(output, row)| {
        for (column, [re, im]) in projection.row(output).into_iter().enumerate() {
            row[column] = T::from_f64(re);
            if draw.complex {
                row[draw.dim + column] = T::from_f64(im);
            }
        }
    });
    weights
}

/// As in the kernel: coordinates in a group, and groups in a block.
const GROUP: usize = 6;
const GROUPS: usize = 4;

/// The negative signs of W: for every block of coordinates and every real row, a byte for each of four groups.
fn sign_codes(projection: &Projection) -> Vec<u32> {
    use rayon::prelude::*;
    let draw = projection.draw;
    let parts = if draw.complex { 2 } else { 1 };
    let (blocks, rows) = (draw.dim.div_ceil(GROUP * GROUPS), draw.outputs * parts);
    let by_row: Vec<Vec<u32>> = (0..draw.outputs)
        .into_par_iter()
        .flat_map_iter(|output| {
            let entries = projection.row(output);
            // w = (u + v)/2 + i(u − v)/2 with real signs u and v.
            (0..parts).map(move |part| {
                let mut codes = vec![0_u32; blocks];
                for (column, [re, im]) in entries.iter().enumerate() {
                    let negative = if part == 0 { re + im < 0.0 } else { re - im < 0.0 };
                    let (block, within) = (column / (GROUP * GROUPS), column % (GROUP * GROUPS));
                    codes[block] |= u32::from(negative) << (8 * (within / GROUP) + within % GROUP);
                }
                codes
            })
        })
        .collect();
    let mut codes = vec![0_u32; blocks * rows];
    for (row, of_row) in by_row.iter().enumerate() {
        for (block, &code) in of_row.iter().enumerate() {
            codes[block * rows + row] = code;
        }
    }
    codes
}
