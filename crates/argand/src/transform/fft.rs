//! Discrete Fourier transforms of the sixteen rows of a tile.

#![allow(unreachable_pub, reason = "a sealed trait of the public `Scalar` names these types")]

use std::fmt;
use std::sync::Arc;

use argand_fft::{Complex, Planned};
use pulp::{Arch, Simd, WithSimd};

use crate::lanes::{LANES, Lane, LaneBuffer, complex_mul, scale};
use crate::projection::Transformed;
use crate::scalar::Scalar;

/// An in-place transform of all rows, one after the other, with work space.
type Transform<T> = Box<dyn Fn(&mut [Complex<T>], &mut [Complex<T>]) + Send + Sync>;

/// Plans for one length, any length, in both directions, without normalisation.
#[derive(Clone)]
pub struct Fourier<T> {
    length: usize,
    arch: Arch,
    plan: Plan<T>,
}

#[derive(Clone)]
enum Plan<T> {
    /// Powers of two: all rows at once, in lanes.
    Lanes(Arc<Radix4<T>>),
    /// Other lengths.
    Rows(Arc<PerRow<T>>),
}

struct PerRow<T> {
    scratch: usize,
    forward: Transform<T>,
    inverse: Transform<T>,
}

impl<T> fmt::Debug for Fourier<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fourier").field("length", &self.length).finish_non_exhaustive()
    }
}

impl<T: Planned + Scalar> Fourier<T> {
    /// Plans; reached through [`Engine::fourier`](crate::scalar::Engine), which keeps the FFT library's trait bound out of [`Scalar`].
    pub(crate) fn plan(length: usize, arch: Arch) -> Self {
        if length.is_power_of_two() && u32::try_from(length).is_ok() {
            return Self { length, arch, plan: Plan::Lanes(Arc::new(Radix4::new(length))) };
        }
        let [forward, inverse] = T::plan(length);
        let per_row = PerRow {
            scratch: forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len()),
            forward: Box::new(move |rows, scratch| forward.process_with_scratch(rows, scratch)),
            inverse: Box::new(move |rows, scratch| inverse.process_with_scratch(rows, scratch)),
        };
        Self { length, arch, plan: Plan::Rows(Arc::new(per_row)) }
    }
}

/// The data to transform, and work space.
#[derive(Debug)]
pub(crate) struct FourierRows<T> {
    length: usize,
    arch: Arch,
    data: Data<T>,
}

#[derive(Debug)]
enum Data<T> {
    /// Real and imaginary parts, and the positions of frequencies after a transform.
    Lanes { parts: [LaneBuffer<T>; 2], positions: Arc<Radix4<T>> },
    /// One row after the other.
    Rows { rows: Vec<Complex<T>>, scratch: Vec<Complex<T>> },
}

impl<T: Scalar> Fourier<T> {
    /// Work space for these transforms.
    pub(crate) fn rows(&self) -> FourierRows<T> {
        let zero = Complex::new(T::ZERO, T::ZERO);
        let length = self.length;
        let data = match &self.plan {
            Plan::Lanes(radix4) => {
                Data::Lanes { parts: [LaneBuffer::new(length), LaneBuffer::new(length)], positions: radix4.clone() }
            }
            Plan::Rows(per_row) => {
                Data::Rows { rows: vec![zero; LANES * length], scratch: vec![zero; per_row.scratch] }
            }
        };
        FourierRows { length, arch: self.arch, data }
    }

    /// Multiplies every row by F, F_{jk} = exp(−2πijk/m).
    pub(crate) fn forward(&self, rows: &mut FourierRows<T>) {
        match (&self.plan, &mut rows.data) {
            (Plan::Lanes(radix4), Data::Lanes { parts: [re, im], .. }) => {
                self.arch.dispatch(Frequencies { radix4, re: re.as_mut(), im: im.as_mut() });
            }
            (Plan::Rows(per_row), Data::Rows { rows, scratch }) => (per_row.forward)(rows, scratch),
            _ => unreachable!("{}", OTHER_PLAN),
        }
    }

    /// Multiplies every row by the complex conjugate of F.
    pub(crate) fn inverse(&self, rows: &mut FourierRows<T>) {
        match (&self.plan, &mut rows.data) {
            // Swapping real and imaginary parts before and after a linear map conjugates it.
            (Plan::Lanes(radix4), Data::Lanes { parts: [re, im], .. }) => {
                self.arch.dispatch(Frequencies { radix4, re: im.as_mut(), im: re.as_mut() });
            }
            (Plan::Rows(per_row), Data::Rows { rows, scratch }) => (per_row.inverse)(rows, scratch),
            _ => unreachable!("{}", OTHER_PLAN),
        }
    }
}

/// Why a plan never sees rows made by another.
const OTHER_PLAN: &str = "the plan that made the rows transforms them";

impl<T: Scalar> FourierRows<T> {
    /// No rows, for sketches without transforms.
    pub(crate) fn empty() -> Self {
        Self { length: 1, arch: Arch::new(), data: Data::Rows { rows: Vec::new(), scratch: Vec::new() } }
    }

    pub(crate) fn clear(&mut self) {
        match &mut self.data {
            Data::Lanes { parts, .. } => parts.iter_mut().for_each(|part| part.as_mut().fill([T::ZERO; LANES])),
            Data::Rows { rows, .. } => rows.fill(Complex::new(T::ZERO, T::ZERO)),
        }
    }

    /// Adds to one element of one row, before a transform.
    #[inline(always)]
    pub(crate) fn add(&mut self, row: usize, at: usize, re: T, im: T) {
        match &mut self.data {
            Data::Lanes { parts: [to_re, to_im], .. } => {
                to_re.as_mut()[at][row] += re;
                to_im.as_mut()[at][row] += im;
            }
            Data::Rows { rows, .. } => {
                let element = &mut rows[row * self.length + at];
                *element = Complex::new(element.re + re, element.im + im);
            }
        }
    }

    /// Real and imaginary parts before a transform, if stored in lanes.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> Option<[&mut [Lane<T>]; 2]> {
        match &mut self.data {
            Data::Lanes { parts, .. } => Some(parts.each_mut().map(LaneBuffer::as_mut)),
            Data::Rows { .. } => None,
        }
    }

    /// Replaces element `at` of all rows, before a transform.
    #[inline(always)]
    pub(crate) fn set_lane(&mut self, at: usize, re: Lane<T>, im: Lane<T>) {
        match &mut self.data {
            Data::Lanes { parts: [to_re, to_im], .. } => {
                to_re.as_mut()[at] = re;
                to_im.as_mut()[at] = im;
            }
            Data::Rows { rows, .. } => {
                for (row, (re, im)) in re.into_iter().zip(im).enumerate() {
                    rows[row * self.length + at] = Complex::new(re, im);
                }
            }
        }
    }

    /// Replaces all rows, before a transform, by a tile times `factor`.
    pub(crate) fn load(&mut self, re: &[Lane<T>], im: &[Lane<T>], factor: T) {
        let arch = self.arch;
        if let Some([to_re, to_im]) = self.parts() {
            for (from, to) in [(re, to_re), (im, to_im)] {
                arch.dispatch(Scaled { from, to, factor });
            }
        } else {
            for (at, (&re, &im)) in re.iter().zip(im).enumerate() {
                self.set_lane(at, scale(re, factor), scale(im, factor));
            }
        }
    }

    /// Element `at` of all rows, after a transform.
    pub(crate) fn lane(&mut self, at: usize) -> (Lane<T>, Lane<T>) {
        match &mut self.data {
            Data::Lanes { parts: [re, im], positions } => {
                let at = positions.positions[at] as usize;
                (re.as_mut()[at], im.as_mut()[at])
            }
            Data::Rows { rows, .. } => {
                let element = |row: usize| rows[row * self.length + at];
                (std::array::from_fn(|row| element(row).re), std::array::from_fn(|row| element(row).im))
            }
        }
    }

    /// All rows after a transform, if stored in lanes.
    pub(crate) fn transformed(&mut self) -> Option<Transformed<'_, T>> {
        match &mut self.data {
            Data::Lanes { parts: [re, im], positions } => {
                Some(Transformed { sampled: &positions.positions, re: re.as_mut(), im: im.as_mut() })
            }
            Data::Rows { .. } => None,
        }
    }

    /// Multiplies a tile by all rows after a transform, or, if `first`, replaces it by them.
    pub(crate) fn multiply_into(&mut self, re: &mut [Lane<T>], im: &mut [Lane<T>], first: bool) {
        let arch = self.arch;
        if let Some(transformed) = self.transformed() {
            transformed.multiply_into(arch, re, im, first);
            return;
        }
        for (at, (re, im)) in re.iter_mut().zip(im).enumerate() {
            let new = self.lane(at);
            (*re, *im) = if first { new } else { complex_mul((*re, *im), new) };
        }
    }

    /// Replaces a tile by its inverse transform, made unitary.
    pub(crate) fn transform_back(&mut self, fourier: &Fourier<T>, re: &mut [Lane<T>], im: &mut [Lane<T>]) {
        self.load(re, im, T::from_f64(1.0 / (re.len() as f64).sqrt()));
        fourier.inverse(self);
        self.multiply_into(re, im, true);
    }
}

/// Copies lanes, times a factor.
struct Scaled<'a, T> {
    from: &'a [Lane<T>],
    to: &'a mut [Lane<T>],
    factor: T,
}

impl<T: Scalar> WithSimd for Scaled<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let factor = T::splat(simd, self.factor);
        let to = T::registers_mut::<S>(self.to.as_flattened_mut());
        for (to, &from) in to.iter_mut().zip(T::registers::<S>(self.from.as_flattened())) {
            *to = T::times(simd, from, factor);
        }
    }
}

/// A transform in lanes, whose length is a power of two.
///
/// Four points at a time, from the largest distance to the smallest (Gentleman and Sande 1966), in place. Frequencies
/// stay in permuted order, which costs nothing: products do not depend on it, and readers use `positions`.
#[derive(Debug)]
struct Radix4<T> {
    /// For blocks of length n, n/4, …: ω^j, ω^{2j} and ω^{3j} with ω = exp(−2πi/n), for j below n/4.
    twiddles: Vec<Vec<[[T; 2]; 3]>>,
    /// The position of each frequency.
    positions: Vec<u32>,
}

impl<T: Scalar> Radix4<T> {
    fn new(length: usize) -> Self {
        let mut twiddles = vec![];
        let mut block = length;
        while block >= 4 {
            let power = |at: usize| {
                let (sin, cos) = libm::sincos(-std::f64::consts::TAU * at as f64 / block as f64);
                [T::from_f64(cos), T::from_f64(sin)]
            };
            twiddles.push((0..block / 4).map(|j| [power(j), power(2 * j), power(3 * j)]).collect());
            block /= 4;
        }
        // Part q of a block holds the frequencies q modulo 4 (or 2): built from the shortest block up.
        let mut frequencies = if block == 2 { vec![0, 1] } else { vec![0] };
        while frequencies.len() < length {
            frequencies = (0..4).flat_map(|part| frequencies.iter().map(move |at| 4 * at + part)).collect();
        }
        let mut positions = vec![0; length];
        for (position, frequency) in (0..).zip(frequencies) {
            positions[frequency] = position;
        }
        Self { twiddles, positions }
    }
}

/// Transforms all rows of a tile.
struct Frequencies<'a, T> {
    radix4: &'a Radix4<T>,
    re: &'a mut [Lane<T>],
    im: &'a mut [Lane<T>],
}

/// Lanes transformed to completion before the next are begun: both parts stay in a first-level cache.
const CACHED: usize = 256;

impl<T: Scalar> WithSimd for Frequencies<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { radix4: Radix4 { twiddles, .. }, re, im } = self;
        let far = twiddles.iter().take_while(|twiddles| 4 * twiddles.len() > CACHED).count();
        for twiddles in &twiddles[..far] {
            pass(simd, re, im, twiddles);
        }
        let length = twiddles.get(far).map_or(2.min(re.len()), |twiddles| 4 * twiddles.len());
        for (re, im) in re.chunks_exact_mut(length).zip(im.chunks_exact_mut(length)) {
            for twiddles in &twiddles[far..] {
                pass(simd, re, im, twiddles);
            }
            // An odd power of two leaves pairs.
            if length.trailing_zeros() % 2 == 1 {
                for part in [re, im] {
                    for pair in T::registers_mut::<S>(part.as_flattened_mut()).chunks_exact_mut(2 * width::<T, S>()) {
                        let (a, b) = pair.split_at_mut(width::<T, S>());
                        for (a, b) in a.iter_mut().zip(b) {
                            (*a, *b) = (T::plus(simd, *a, *b), T::minus(simd, *a, *b));
                        }
                    }
                }
            }
        }
    }
}

/// Registers in a lane.
const fn width<T: Scalar, S: Simd>() -> usize {
    size_of::<Lane<T>>() / size_of::<T::Register<S>>()
}

/// Four points at a time, in every block.
#[inline(always)]
fn pass<T: Scalar, S: Simd>(simd: S, re: &mut [Lane<T>], im: &mut [Lane<T>], twiddles: &[[[T; 2]; 3]]) {
    let width = width::<T, S>();
    let quarter = twiddles.len() * width;
    let (re, im) = (T::registers_mut::<S>(re.as_flattened_mut()), T::registers_mut::<S>(im.as_flattened_mut()));
    for (re, im) in re.chunks_exact_mut(4 * quarter).zip(im.chunks_exact_mut(4 * quarter)) {
        let [re0, re1, re2, re3] = quarters(re, quarter);
        let [im0, im1, im2, im3] = quarters(im, quarter);
        for (at, twiddles) in twiddles.iter().enumerate() {
            for at in at * width..(at + 1) * width {
                let (even_re, odd_re) = (T::plus(simd, re0[at], re2[at]), T::plus(simd, re1[at], re3[at]));
                let (even_im, odd_im) = (T::plus(simd, im0[at], im2[at]), T::plus(simd, im1[at], im3[at]));
                let (left_re, right_re) = (T::minus(simd, re0[at], re2[at]), T::minus(simd, re1[at], re3[at]));
                let (left_im, right_im) = (T::minus(simd, im0[at], im2[at]), T::minus(simd, im1[at], im3[at]));
                (re0[at], im0[at]) = (T::plus(simd, even_re, odd_re), T::plus(simd, even_im, odd_im));
                // Minus i times the right difference, in either direction.
                let first = (T::plus(simd, left_re, right_im), T::minus(simd, left_im, right_re));
                let second = (T::minus(simd, even_re, odd_re), T::minus(simd, even_im, odd_im));
                let third = (T::minus(simd, left_re, right_im), T::plus(simd, left_im, right_re));
                (re1[at], im1[at]) = turn::<T, S>(simd, first, twiddles[0]);
                (re2[at], im2[at]) = turn::<T, S>(simd, second, twiddles[1]);
                (re3[at], im3[at]) = turn::<T, S>(simd, third, twiddles[2]);
            }
        }
    }
}

/// A complex product with one number for all rows.
#[inline(always)]
fn turn<T: Scalar, S: Simd>(
    simd: S,
    (re, im): (T::Register<S>, T::Register<S>),
    [cos, sin]: [T; 2],
) -> (T::Register<S>, T::Register<S>) {
    let (cos, sin, minus_sin) = (T::splat(simd, cos), T::splat(simd, sin), T::splat(simd, -sin));
    (
        T::plus_product(simd, T::times(simd, re, cos), im, minus_sin),
        T::plus_product(simd, T::times(simd, im, cos), re, sin),
    )
}

/// The four quarters of a block.
#[inline(always)]
fn quarters<R>(block: &mut [R], quarter: usize) -> [&mut [R]; 4] {
    let (low, high) = block.split_at_mut(2 * quarter);
    let ((a, b), (c, d)) = (low.split_at_mut(quarter), high.split_at_mut(quarter));
    // Equal lengths, stated so that the compiler can drop the bounds checks.
    [&mut a[..quarter], &mut b[..quarter], &mut c[..quarter], &mut d[..quarter]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition, for lengths with large and small prime factors.
    #[test]
    fn transforms_are_the_defined_ones() {
        for length in [1, 2, 4, 7, 8, 12, 16, 31, 64, 128, 1024, 2048] {
            let tolerance = 1e-13 * length as f64;
            let fourier = Fourier::<f64>::plan(length, Arch::new());
            let mut rows = fourier.rows();
            let value = |row: usize, at: usize| ((row * 7 + at * 3) % 11) as f64 - 5.0;
            for at in 0..length {
                rows.set_lane(at, std::array::from_fn(|row| value(row, at)), [0.5; LANES]);
            }
            fourier.forward(&mut rows);
            for at in (0..length).step_by(1 + length / 64) {
                let (re, im) = rows.lane(at);
                for row in 0..LANES {
                    let mut want = (0.0, 0.0);
                    for k in 0..length {
                        let (sin, cos) = (-std::f64::consts::TAU * (at * k % length) as f64 / length as f64).sin_cos();
                        want = (want.0 + value(row, k) * cos - 0.5 * sin, want.1 + value(row, k) * sin + 0.5 * cos);
                    }
                    assert!(
                        (re[row] - want.0).abs() < 1e-11 + tolerance && (im[row] - want.1).abs() < 1e-11 + tolerance,
                        "{length} {at} {row}"
                    );
                }
            }
            let (mut re, mut im) = (vec![[0.0; LANES]; length], vec![[0.0; LANES]; length]);
            rows.multiply_into(&mut re, &mut im, true);
            rows.load(&re, &im, 1.0 / length as f64);
            fourier.inverse(&mut rows);
            for at in 0..length {
                let (re, im) = rows.lane(at);
                for row in 0..LANES {
                    assert!((re[row] - value(row, at)).abs() < 1e-12);
                    assert!((im[row] - 0.5).abs() < 1e-12);
                }
            }
        }
    }

    /// Every instruction set, up to rounding.
    #[test]
    fn instruction_sets_agree() {
        for length in [2, 4, 32, 512, 4096] {
            let radix4 = Radix4::<f32>::new(length);
            let lane = |at: usize| std::array::from_fn(|row| ((at * 13 + row * 5) % 17) as f32 / 17.0 - 0.5);
            let data: Vec<Lane<f32>> = (0..length).map(lane).collect();
            let results = crate::simd::everywhere(|| Owned { radix4: &radix4, re: data.clone(), im: data.clone() });
            let (_, want) = &results[0];
            for (name, got) in &results {
                let pairs = got.as_flattened().iter().zip(want.as_flattened());
                assert!(
                    pairs.into_iter().all(|(got, want)| (got - want).abs() < 1e-5 * length as f32),
                    "{name} {length}"
                );
            }
        }
    }

    struct Owned<'a> {
        radix4: &'a Radix4<f32>,
        re: Vec<Lane<f32>>,
        im: Vec<Lane<f32>>,
    }

    impl WithSimd for Owned<'_> {
        type Output = Vec<Lane<f32>>;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, simd: S) -> Vec<Lane<f32>> {
            Frequencies { radix4: self.radix4, re: &mut self.re, im: &mut self.im }.with_simd(simd);
            self.re.into_iter().chain(self.im).collect()
        }
    }
}
