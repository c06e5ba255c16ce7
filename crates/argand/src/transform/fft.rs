//! Discrete Fourier transforms of the sixteen rows of a tile.

#![allow(unreachable_pub, reason = "a sealed trait of the public `Scalar` names these types")]

use std::fmt;
use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{FftNum, FftPlanner};

use crate::lanes::{LANES, Lane};
use crate::scalar::Scalar;

/// A transform of all rows, in place, with work space.
type Transform<T> = Arc<dyn Fn(&mut [Complex<T>], &mut [Complex<T>]) + Send + Sync>;

/// Plans for one length, any length, both ways, without normalisation.
#[derive(Clone)]
pub struct Fourier<T> {
    length: usize,
    scratch: usize,
    forward: Transform<T>,
    inverse: Transform<T>,
}

impl<T> fmt::Debug for Fourier<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fourier").field("length", &self.length).finish_non_exhaustive()
    }
}

impl<T: FftNum> Fourier<T> {
    /// Plans; reached through [`Kernels::fourier`](crate::sketch::Kernels), which keeps the library's bound out of
    /// [`Scalar`].
    pub(crate) fn plan(length: usize) -> Self {
        let mut planner = FftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(length), planner.plan_fft_inverse(length));
        Self {
            length,
            scratch: forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len()),
            forward: Arc::new(move |rows, scratch| forward.process_with_scratch(rows, scratch)),
            inverse: Arc::new(move |rows, scratch| inverse.process_with_scratch(rows, scratch)),
        }
    }
}

/// Work space for the transforms: one row after the other.
#[derive(Debug)]
pub(crate) struct FourierRows<T> {
    rows: Vec<Complex<T>>,
    scratch: Vec<Complex<T>>,
    length: usize,
}

impl<T: Scalar> Fourier<T> {
    /// Work space for these transforms.
    pub(crate) fn rows(&self) -> FourierRows<T> {
        let zero = Complex::new(T::ZERO, T::ZERO);
        let (rows, scratch) = (vec![zero; LANES * self.length], vec![zero; self.scratch]);
        FourierRows { rows, scratch, length: self.length }
    }

    /// Multiplies every row by F, F_{jk} = exp(−2πijk/m).
    pub(crate) fn forward(&self, rows: &mut FourierRows<T>) {
        (self.forward)(&mut rows.rows, &mut rows.scratch);
    }

    /// Multiplies every row by the complex conjugate of F.
    pub(crate) fn inverse(&self, rows: &mut FourierRows<T>) {
        (self.inverse)(&mut rows.rows, &mut rows.scratch);
    }
}

impl<T: Scalar> FourierRows<T> {
    /// No rows, for sketches that transform none.
    pub(crate) fn empty() -> Self {
        Self { rows: Vec::new(), scratch: Vec::new(), length: 1 }
    }

    /// Elements of a row.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn clear(&mut self) {
        self.rows.fill(Complex::new(T::ZERO, T::ZERO));
    }

    /// Adds to one element of one row.
    #[inline(always)]
    pub(crate) fn add(&mut self, row: usize, at: usize, re: T, im: T) {
        let element = &mut self.rows[row * self.length + at];
        *element = Complex::new(element.re + re, element.im + im);
    }

    /// Element `at` of all rows.
    #[inline(always)]
    pub(crate) fn lane(&self, at: usize) -> (Lane<T>, Lane<T>) {
        let element = |row: usize| self.rows[row * self.length + at];
        (std::array::from_fn(|row| element(row).re), std::array::from_fn(|row| element(row).im))
    }

    /// Replaces element `at` of all rows.
    #[inline(always)]
    pub(crate) fn set_lane(&mut self, at: usize, re: Lane<T>, im: Lane<T>) {
        for (row, (re, im)) in re.into_iter().zip(im).enumerate() {
            self.rows[row * self.length + at] = Complex::new(re, im);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition, for lengths with large and small prime factors.
    #[test]
    fn transforms_are_the_defined_ones() {
        for length in [1, 2, 7, 12, 31, 64] {
            let fourier = Fourier::<f64>::plan(length);
            let mut rows = fourier.rows();
            let value = |row: usize, at: usize| ((row * 7 + at * 3) % 11) as f64 - 5.0;
            for at in 0..length {
                rows.set_lane(at, std::array::from_fn(|row| value(row, at)), [0.5; LANES]);
            }
            fourier.forward(&mut rows);
            for at in 0..length {
                let (re, im) = rows.lane(at);
                for row in 0..LANES {
                    let mut want = (0.0, 0.0);
                    for k in 0..length {
                        let (sin, cos) = (-std::f64::consts::TAU * (at * k % length) as f64 / length as f64).sin_cos();
                        want = (want.0 + value(row, k) * cos - 0.5 * sin, want.1 + value(row, k) * sin + 0.5 * cos);
                    }
                    assert!(
                        (re[row] - want.0).abs() < 1e-11 && (im[row] - want.1).abs() < 1e-11,
                        "{length} {at} {row}"
                    );
                }
            }
            fourier.inverse(&mut rows);
            for at in 0..length {
                let (re, im) = rows.lane(at);
                for row in 0..LANES {
                    assert!((re[row] / length as f64 - value(row, at)).abs() < 1e-12);
                    assert!((im[row] / length as f64 - 0.5).abs() < 1e-12);
                }
            }
        }
    }
}
