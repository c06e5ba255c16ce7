//! Spherical random features on a device.

#![allow(clippy::too_many_arguments, reason = "steps have many")]

use argand::Error;
use argand::draw;
use rayon::prelude::*;

use crate::blas::Form;
use crate::driver::{Device, Stream};
use crate::memory::{Buffer, View};
use crate::real::Real;
use crate::steps::Steps;
use crate::view::DeviceRows;

/// Cosines and sines of random projections.
#[derive(Debug)]
pub(crate) struct Cosine {
    frequencies: Buffer,
    dim: usize,
    outputs: usize,
}

impl Cosine {
    pub(crate) fn new<T: Real>(device: &Device, drawn: &draw::Cosine) -> Result<Self, Error> {
        let (dim, outputs) = (drawn.dim, drawn.radii.len());
        let rows: Vec<Vec<f64>> = (0..outputs).into_par_iter().map(|index| drawn.frequency(index)).collect();
        let frequencies: Vec<T> = rows.iter().flatten().map(|&entry| T::from_f64(entry)).collect();
        Ok(Self { frequencies: device.upload(&frequencies)?, dim, outputs })
    }

    /// Numbers of work space per row; norms are double.
    pub(crate) fn numbers_per_row(&self, adjoint: bool) -> usize {
        2 + self.dim + 2 * self.outputs + if adjoint { self.dim + 2 * self.outputs } else { 0 }
    }

    /// Work space: norms, directions, cosines, sines.
    fn room<T: Real>(&self, buffer: &Buffer, rows: usize) -> [View; 4] {
        let norms = buffer.at::<T>(0);
        let x = norms.skip::<f64>(rows);
        let cosines = x.skip::<T>(rows * self.dim);
        [norms, x, cosines, cosines.skip::<T>(rows * self.outputs)]
    }

    fn angles<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        input: &DeviceRows,
        [norms, x, cosines, sines]: [View; 4],
    ) -> Result<(), Error> {
        steps.normalise(stream, input, x, norms)?;
        let sizes = [input.rows, self.outputs, self.dim];
        steps.dense::<T>(stream, Form::ByTransposed, [x, self.frequencies.at::<T>(0), cosines], sizes)?;
        steps.cosines(stream, cosines, sines, input.rows * self.outputs)
    }

    pub(crate) fn transform<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        input: &DeviceRows,
        out: &DeviceRows,
        first_row: usize,
        buffer: &Buffer,
        bad_row: View,
    ) -> Result<(), Error> {
        let room = self.room::<T>(buffer, out.rows);
        self.angles::<T>(steps, stream, input, room)?;
        let [_, _, cosines, sines] = room;
        let factor = 1.0 / (self.outputs as f64).sqrt();
        steps.store(stream, cosines, [self.outputs; 2], factor, out, [0, 1], first_row, bad_row)?;
        steps.store(stream, sines, [self.outputs; 2], factor, out, [self.outputs, 1], first_row, bad_row)
    }

    pub(crate) fn adjoint<T: Real>(
        &self,
        steps: &Steps,
        stream: &Stream,
        input: &DeviceRows,
        cotangent: &DeviceRows,
        out: &DeviceRows,
        first_row: usize,
        buffer: &Buffer,
        bad_row: View,
    ) -> Result<(), Error> {
        let rows = cotangent.rows;
        let room = self.room::<T>(buffer, rows);
        self.angles::<T>(steps, stream, input, room)?;
        let [norms, x, cosines, sines] = room;
        let of_cosines = sines.skip::<T>(rows * self.outputs);
        let of_sines = of_cosines.skip::<T>(rows * self.outputs);
        let gradient = of_sines.skip::<T>(rows * self.outputs);
        let factor = 1.0 / (self.outputs as f64).sqrt();
        steps.fetch(stream, cotangent, [0, 1], factor, of_cosines, self.outputs)?;
        steps.fetch(stream, cotangent, [self.outputs, 1], factor, of_sines, self.outputs)?;
        steps.cosine_cotangent(stream, [cosines, sines, of_cosines, of_sines], rows * self.outputs)?;
        stream.fill(gradient, rows * self.dim * size_of::<T>(), 0)?;
        let sizes = [rows, self.dim, self.outputs];
        steps.dense::<T>(stream, Form::Add, [of_cosines, self.frequencies.at::<T>(0), gradient], sizes)?;
        steps.across(stream, x, gradient, norms, self.dim, rows)?;
        steps.store(stream, gradient, [self.dim; 2], 1.0, out, [0, 1], first_row, bad_row)
    }
}
