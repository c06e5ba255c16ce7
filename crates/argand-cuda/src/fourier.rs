//! Tables of discrete Fourier transforms of any length.

use std::f64::consts::PI;

use argand::Error;

use crate::driver::Device;
use crate::memory::{Buffer, View};
use crate::real::Real;
use crate::steps::FourierTables;

/// The tables of a transform of one length, in device memory.
#[derive(Debug)]
pub(crate) struct Fourier {
    length: usize,
    padded: usize,
    roots: Buffer,
    /// For lengths other than powers of two (Bluestein 1970).
    chirp: Option<[Buffer; 2]>,
}

impl Fourier {
    pub(crate) fn new<T: Real>(device: &Device, length: usize) -> Result<Self, Error> {
        let padded = if length.is_power_of_two() { length } else { (2 * length - 1).next_power_of_two() };
        let roots: Vec<[f64; 2]> = (0..padded / 2).map(|at| turn(-2.0 * at as f64 / padded as f64)).collect();
        let chirp = if padded == length {
            None
        } else {
            // k² modulo 2n: the argument stays small and exact.
            let chirp: Vec<[f64; 2]> = (0..length)
                .map(|k| turn(-((k as u128 * k as u128 % (2 * length as u128)) as f64) / length as f64))
                .collect();
            let mut filter = vec![[0.0; 2]; padded];
            for (k, &[re, im]) in chirp.iter().enumerate() {
                filter[k] = [re / padded as f64, -im / padded as f64];
                filter[(padded - k) % padded] = filter[k];
            }
            to_reversed(&mut filter, &roots);
            Some([device.upload(&rounded::<T>(&chirp))?, device.upload(&rounded::<T>(&filter))?])
        };
        Ok(Self { length, padded, roots: device.upload(&rounded::<T>(&roots))?, chirp })
    }

    pub(crate) fn tables<T: Real>(&self) -> FourierTables {
        let [chirp, filter] = match &self.chirp {
            Some(buffers) => buffers.each_ref().map(|buffer| buffer.at::<T>(0)),
            None => [View::NONE; 2],
        };
        FourierTables { length: self.length, padded: self.padded, roots: self.roots.at::<T>(0), chirp, filter }
    }
}

/// exp(πi x) as (re, im).
pub(crate) fn turn(x: f64) -> [f64; 2] {
    let (sin, cos) = (PI * x).sin_cos();
    [cos, sin]
}

fn rounded<T: Real>(pairs: &[[f64; 2]]) -> Vec<T> {
    pairs.as_flattened().iter().map(|&value| T::from_f64(value)).collect()
}

/// The transform as in the kernel: from natural to bit-reversed order.
fn to_reversed(data: &mut [[f64; 2]], roots: &[[f64; 2]]) {
    let length = data.len();
    let mut stride = length / 2;
    while stride > 0 {
        let step = length / (2 * stride);
        for block in data.chunks_exact_mut(2 * stride) {
            let (low, high) = block.split_at_mut(stride);
            for (at, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let ([c, s], difference) = (roots[at * step], [a[0] - b[0], a[1] - b[1]]);
                *a = [a[0] + b[0], a[1] + b[1]];
                *b = [difference[0] * c - difference[1] * s, difference[0] * s + difference[1] * c];
            }
        }
        stride /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_the_defined_one_in_reversed_order() {
        let length = 16;
        let roots: Vec<[f64; 2]> = (0..length / 2).map(|at| turn(-2.0 * at as f64 / length as f64)).collect();
        let data: Vec<[f64; 2]> = (0..length).map(|at| [(at * 7 % 5) as f64, (at * 3 % 4) as f64]).collect();
        let mut got = data.clone();
        to_reversed(&mut got, &roots);
        for (position, got) in got.iter().enumerate() {
            let frequency = position.reverse_bits() >> (usize::BITS - 4);
            let mut want = [0.0; 2];
            for (at, [re, im]) in data.iter().enumerate() {
                let [c, s] = turn(-2.0 * (at * frequency % length) as f64 / length as f64);
                want = [want[0] + re * c - im * s, want[1] + re * s + im * c];
            }
            assert!((got[0] - want[0]).abs() < 1e-12 && (got[1] - want[1]).abs() < 1e-12, "{position}");
        }
    }
}
