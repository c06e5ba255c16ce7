//! The subsampled randomised Hadamard transform.

use std::ops::Range;
use std::sync::Arc;

use pulp::{Arch, Simd, WithSimd};

use super::fused::{Factor, Fusible};
use super::rademacher::sign_moments;
use super::srht_row::{SignedRow, TransformedRow};
use super::{FusedBuilder, Fusing, Kind, Needs, Operator, Vectors, Workspace, of_tile};
use crate::draw::{Draw, Hadamard, Projection, Values, narrow, quarter_turn};
use crate::lanes::{LANES, Lane, LaneBuffer, add, complex_product, scale};
use crate::rng::Purpose;
use crate::scalar::Scalar;
use crate::theory::variance::PairStatistics;
use crate::transform::fft::Fourier;
use crate::transform::fwht::{across_lanes, butterfly8};

/// W = P H D with rows sampled without replacement: ProductSRHT.
///
/// # Formula
/// With n the dimension padded to a power of two and B = ⌈m/n⌉, P takes m of the Bn rows of B stacked copies of the Hadamard
/// matrix H. D has entries uniform on {1, −1} or {1, −1, i, −i}.
///
/// # Reference
/// Alg. 2 of the paper.
pub(crate) struct WithoutReplacement;

/// W = P H D with rows sampled with replacement: TensorSRHT.
///
/// # Reference
/// Ahle et al. (2020), Def. 15.
pub(crate) struct WithReplacement;

impl Kind for WithoutReplacement {
    const NAME: &'static str = "product-srht";
    const DENSE: bool = false;

    fn row(projection: &Projection, output: usize) -> Vec<[f64; 2]> {
        hadamard_row(projection, output)
    }

    #[inline(always)]
    fn moments(pair: &PairStatistics, complex: bool) -> [f64; 2] {
        sign_moments(pair, complex)
    }

    fn dependence(dim: usize, outputs: usize) -> Option<f64> {
        (outputs > 1).then(|| outputs.next_multiple_of(dim.next_power_of_two()) as f64 - 1.0)
    }

    fn draw(draw: &Draw) -> Values {
        let (outputs, padded) = (draw.outputs, draw.dim.next_power_of_two());
        let mut stream = draw.stream(Purpose::Rows, 0);
        let stacked = narrow(outputs.next_multiple_of(padded));
        let mut order: Vec<u32> = (0..stacked).collect();
        // Fisher–Yates, stopped after m rows.
        for position in 0..outputs {
            let left = stacked - narrow(position);
            order.swap(position, position + stream.below(left) as usize);
        }
        order.truncate(outputs);
        order.shrink_to_fit();
        values(draw, order)
    }

    fn drawn_bytes(draw: &Draw) -> Option<u64> {
        // All stacked rows are listed while drawing.
        bytes(draw, draw.outputs.checked_next_multiple_of(draw.dim.checked_next_power_of_two()?)?)
    }

    fn needs<T: Scalar>(draw: &Draw) -> Needs {
        Srht::needs(draw)
    }

    fn operator<T: Scalar>(projection: &Projection, fourier: Option<&Fourier<T>>, arch: Arch) -> Box<dyn Operator<T>> {
        operator(projection, fourier, arch)
    }
}

impl Kind for WithReplacement {
    const NAME: &'static str = "tensor-srht";
    const DENSE: bool = false;

    fn row(projection: &Projection, output: usize) -> Vec<[f64; 2]> {
        hadamard_row(projection, output)
    }

    #[inline(always)]
    fn moments(pair: &PairStatistics, complex: bool) -> [f64; 2] {
        sign_moments(pair, complex)
    }

    fn draw(draw: &Draw) -> Values {
        let mut stream = draw.stream(Purpose::Rows, 0);
        let padded = narrow(draw.dim.next_power_of_two());
        values(draw, (0..draw.outputs).map(|_| stream.below(padded)).collect())
    }

    fn drawn_bytes(draw: &Draw) -> Option<u64> {
        bytes(draw, draw.outputs)
    }

    fn needs<T: Scalar>(draw: &Draw) -> Needs {
        Srht::needs(draw)
    }

    fn operator<T: Scalar>(projection: &Projection, fourier: Option<&Fourier<T>>, arch: Arch) -> Box<dyn Operator<T>> {
        operator(projection, fourier, arch)
    }
}

/// The transform, and a Fourier transform after it if requested.
fn operator<T: Scalar>(projection: &Projection, fourier: Option<&Fourier<T>>, arch: Arch) -> Box<dyn Operator<T>> {
    let srht = Srht::of(projection, arch);
    match fourier {
        Some(fourier) if projection.draw.transformed => {
            let scale = T::from_f64(1.0 / (projection.draw.outputs as f64).sqrt());
            Box::new(TransformedSrht { srht, fourier: fourier.clone(), scale })
        }
        _ => Box::new(srht),
    }
}

/// The drawn values, given rows of the stacked copies of H in the order drawn.
fn values(draw: &Draw, mut sampled: Vec<u32>) -> Values {
    if draw.sorted {
        sampled.sort_unstable();
    }
    let padded = narrow(draw.dim.next_power_of_two());
    for row in &mut sampled {
        *row &= padded - 1;
    }
    Values::Hadamard(Arc::new(Hadamard { turns: draw.signs(), sampled }))
}

/// Bytes of the signs and of a list of this many rows of H; `None` on overflow.
fn bytes(draw: &Draw, listed: usize) -> Option<u64> {
    let padded = draw.dim.checked_next_power_of_two()?;
    Some(4 * u64::from(u32::try_from(listed).ok()?) + u64::try_from(padded).ok()?)
}

fn hadamard(projection: &Projection) -> &Arc<Hadamard> {
    let Values::Hadamard(hadamard) = &projection.values else { unreachable!("an SRHT draws a Hadamard sample") };
    hadamard
}

/// (−1)^{popcount(j & k)} times the sign of coordinate k, for the sampled row j.
fn hadamard_row(projection: &Projection, output: usize) -> Vec<[f64; 2]> {
    let Hadamard { turns, sampled } = &**hadamard(projection);
    let signed = |(k, &turns): (u32, &u8)| {
        let sign = if (sampled[output] & k).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        quarter_turn(turns).map(|part| sign * part)
    };
    (0..).zip(turns).map(signed).collect()
}

/// W = P H D on this processor.
///
/// # Cost
/// n log₂ n + m operations per vector, twice that when complex. Memory 4m + n bytes.
#[derive(Debug, Clone)]
pub(crate) struct Srht {
    complex: bool,
    /// n, the padded dimension.
    padded: usize,
    hadamard: Arc<Hadamard>,
    arch: Arch,
}

/// The most bytes of transforms kept at once: a second-level cache.
const FUSED_BYTES: usize = 2 << 20;

impl Srht {
    fn needs(draw: &Draw) -> Needs {
        let padded = draw.dim.next_power_of_two();
        let lanes = padded * if draw.complex { 2 } else { 1 };
        let fusing = Some(Fusing { lanes, shared: false, most_bytes: FUSED_BYTES });
        Needs { bytes: Some(0), workspace_lanes: padded, tiles_per_block: 1, fusing }
    }

    fn of(projection: &Projection, arch: Arch) -> Self {
        Self {
            complex: projection.draw.complex,
            padded: projection.draw.dim.next_power_of_two(),
            hadamard: hadamard(projection).clone(),
            arch,
        }
    }

    /// H D x for one tile, left in the work space.
    fn transform<'a, T: Scalar>(
        &'a self,
        x: [&[Lane<T>]; 2],
        [re, im]: &'a mut [LaneBuffer<T>; 2],
    ) -> Transformed<'a, T> {
        let (re, im) = (&mut re.as_mut()[..self.padded], im.as_mut());
        let im = &mut im[..if self.complex { self.padded } else { 0 }];
        self.transform_into(x, [&mut *re, &mut *im]);
        Transformed { sampled: &self.hadamard.sampled, re, im }
    }

    fn transform_into<T: Scalar>(&self, x: [&[Lane<T>]; 2], [re, im]: [&mut [Lane<T>]; 2]) {
        let (one, zero) = (T::ONE, T::ZERO);
        let [x_re, x_im] = x;
        // Parts of the product with 1, i, −1, −i: each is a signed part of x, or zero.
        let (sources, signs_re, signs_im) = if x_im.is_empty() {
            ([x_re, x_re], [one, zero, -one, zero], [zero, one, zero, -one])
        } else {
            ([x_re, x_im], [one, -one, -one, one], [one, one, -one, -one])
        };
        let turns = &self.hadamard.turns;
        self.arch.dispatch(SignedFwht { turns, sources, signs: signs_re, into: re });
        if self.complex {
            self.arch.dispatch(SignedFwht { turns, sources: [sources[1], sources[0]], signs: signs_im, into: im });
        }
    }
}

impl<T: Scalar> Fusible<T> for Srht {
    type Taken<'a> = Transformed<'a, T>;

    fn prepare<'a>(
        &'a self,
        x: &[Lane<T>],
        _: Option<&Transformed<'a, T>>,
        free: &mut &'a mut [Lane<T>],
    ) -> Transformed<'a, T> {
        let (re, rest) = std::mem::take(free).split_at_mut(self.padded);
        let (im, rest) = rest.split_at_mut(if self.complex { self.padded } else { 0 });
        *free = rest;
        self.transform_into([x, &[]], [re, im]);
        Transformed { sampled: &self.hadamard.sampled, re, im }
    }

    const FEW_ROWS: usize = 4;

    fn prepare_row<'a>(&'a self, x: &[T], free: &mut &'a mut [T]) -> Option<TransformedRow<'a, T>> {
        let (re, rest) = std::mem::take(free).split_at_mut(self.padded);
        let (im, rest) = rest.split_at_mut(if self.complex { self.padded } else { 0 });
        *free = rest;
        let turns = &self.hadamard.turns;
        for (part, into) in [&mut *re, &mut *im].into_iter().enumerate().filter(|(_, into)| !into.is_empty()) {
            let signs = [0, 1, 2, 3].map(|turns| T::from_f64(quarter_turn(turns)[part]));
            self.arch.dispatch(SignedRow { turns, x, signs, into });
        }
        Some(TransformedRow { sampled: &self.hadamard.sampled, re, im })
    }
}

impl<T: Scalar> Operator<T> for Srht {
    fn multiply_into(
        &self,
        x: &Vectors<'_, T>,
        workspace: &mut Workspace<T>,
        [re, im]: [&mut [Lane<T>]; 2],
        first: bool,
    ) {
        for tile in 0..x.tiles {
            let (re, im) = (of_tile(re, tile, x.tiles), of_tile(im, tile, x.tiles));
            self.transform(x.tile(tile), &mut workspace.lanes).multiply_into(self.arch, re, im, first);
        }
    }

    /// Wᵀ = D H Pᵀ: scatter, transform, turn.
    fn add_transpose(
        &self,
        v: [&mut [Lane<T>]; 2],
        workspace: &mut Workspace<T>,
        [gradient_re, gradient_im]: [&mut [Lane<T>]; 2],
    ) {
        let Hadamard { turns, sampled } = &*self.hadamard;
        // A real projection has no imaginary part to scatter, whether v has one or not.
        let parts = if self.complex { 2 } else { 1 };
        for (part, v) in v.into_iter().enumerate().take(parts) {
            let spread = &mut workspace.lanes[part].as_mut()[..self.padded];
            // Re(w v) = Re w Re v − Im w Im v and Im(w v) = Im w Re v + Re w Im v.
            let sign = if part == 0 { 1.0 } else { -1.0 };
            let signs = [0, 1, 2, 3].map(|turns| T::from_f64(sign * quarter_turn(turns)[part]));
            let other_signs = [0, 1, 2, 3].map(|turns| T::from_f64(quarter_turn(turns)[1 - part]));
            let gradients = [(&mut *gradient_re, signs), (&mut *gradient_im, other_signs)];
            self.arch.dispatch(SpreadTransform { turns, sampled, v, spread, gradients });
        }
    }

    fn fuse(&self, builder: &mut FusedBuilder<T>) {
        builder.add_srht(self);
    }
}

/// F S/√m with S an SRHT: mixes a vector whose transform will be multiplied.
#[derive(Debug)]
struct TransformedSrht<T> {
    srht: Srht,
    fourier: Fourier<T>,
    /// 1/√m
    scale: T,
}

impl<T: Scalar> Operator<T> for TransformedSrht<T> {
    fn multiply_into(
        &self,
        x: &Vectors<'_, T>,
        workspace: &mut Workspace<T>,
        [re, im]: [&mut [Lane<T>]; 2],
        first: bool,
    ) {
        let Workspace { lanes, fourier: rows } = workspace;
        for tile in 0..x.tiles {
            let Transformed { sampled, re: mixed_re, im: mixed_im } = self.srht.transform(x.tile(tile), lanes);
            for (output, &sampled) in sampled.iter().enumerate() {
                let zero = [T::ZERO; LANES];
                let im = mixed_im.get(sampled as usize).copied().unwrap_or(zero);
                rows.set_lane(output, scale(mixed_re[sampled as usize], self.scale), scale(im, self.scale));
            }
            self.fourier.forward(rows);
            rows.multiply_into(of_tile(re, tile, x.tiles), of_tile(im, tile, x.tiles), first);
        }
    }

    /// (F S/√m)ᵀ = Sᵀ F/√m.
    fn add_transpose(
        &self,
        [v_re, v_im]: [&mut [Lane<T>]; 2],
        workspace: &mut Workspace<T>,
        gradient: [&mut [Lane<T>]; 2],
    ) {
        workspace.fourier.load(v_re, v_im, self.scale);
        self.fourier.forward(&mut workspace.fourier);
        workspace.fourier.multiply_into(v_re, v_im, true);
        self.srht.add_transpose([v_re, v_im], workspace, gradient);
    }
}

/// Adds D H Pᵀ v to gradients, each with the signs of its own part.
struct SpreadTransform<'a, T> {
    turns: &'a [u8],
    sampled: &'a [u32],
    v: &'a [Lane<T>],
    spread: &'a mut [Lane<T>],
    gradients: [(&'a mut [Lane<T>], [T; 4]); 2],
}

impl<T: Scalar> WithSimd for SpreadTransform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { turns, sampled, v, spread, gradients } = self;
        spread.fill([T::ZERO; LANES]);
        for (&at, &v) in sampled.iter().zip(v) {
            spread[at as usize] = add(spread[at as usize], v);
        }
        across_lanes(simd, spread);
        for (gradient, signs) in gradients {
            for ((gradient, &value), &turns) in gradient.iter_mut().zip(&*spread).zip(turns) {
                *gradient = add(*gradient, scale(value, signs[usize::from(turns & 3)]));
            }
        }
    }
}

/// One part of H D x: coordinate k of D x is `signs[turns[k]]` times the same coordinate of `sources[turns[k] & 1]`.
pub(super) struct SignedFwht<'a, T> {
    pub(super) turns: &'a [u8],
    pub(super) sources: [&'a [Lane<T>]; 2],
    pub(super) signs: [T; 4],
    pub(super) into: &'a mut [Lane<T>],
}

impl<T: Scalar> SignedFwht<'_, T> {
    /// Register `within` a lane of coordinate `at` of D x; zero in the padding.
    #[inline(always)]
    fn signed<S: Simd>(&self, simd: S, at: usize, within: usize) -> T::Register<S> {
        match self.turns.get(at) {
            Some(&turns) => {
                let source = if turns & 1 == 0 { self.sources[0] } else { self.sources[1] };
                let sign = T::splat(simd, self.signs[usize::from(turns & 3)]);
                T::times(simd, T::registers::<S>(&source[at])[within], sign)
            }
            None => T::splat(simd, T::ZERO),
        }
    }
}

impl<T: Scalar> WithSimd for SignedFwht<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let into = std::mem::take(&mut self.into);
        let length = into.len();
        let per_lane = T::registers::<S>(&[T::ZERO; LANES]).len();
        if length < 8 {
            for (at, lane) in into.iter_mut().enumerate() {
                for within in 0..per_lane {
                    T::registers_mut::<S>(lane)[within] = self.signed(simd, at, within);
                }
            }
            return across_lanes(simd, into);
        }
        // Signs are applied with the three outermost levels: one pass reads x and writes the work space for both.
        let eighth = length / 8;
        for at in 0..eighth {
            for within in 0..per_lane {
                let old = [
                    self.signed(simd, at, within),
                    self.signed(simd, at + eighth, within),
                    self.signed(simd, at + 2 * eighth, within),
                    self.signed(simd, at + 3 * eighth, within),
                    self.signed(simd, at + 4 * eighth, within),
                    self.signed(simd, at + 5 * eighth, within),
                    self.signed(simd, at + 6 * eighth, within),
                    self.signed(simd, at + 7 * eighth, within),
                ];
                for (part, new) in butterfly8::<T, S>(simd, old).into_iter().enumerate() {
                    T::registers_mut::<S>(&mut into[at + part * eighth])[within] = new;
                }
            }
        }
        for block in into.chunks_exact_mut(eighth) {
            across_lanes(simd, block);
        }
    }
}

/// H D x of one tile, and the coordinates to sample.
#[derive(Debug)]
pub(crate) struct Transformed<'a, T> {
    pub(crate) sampled: &'a [u32],
    pub(crate) re: &'a [Lane<T>],
    /// Empty if the projection is real.
    pub(crate) im: &'a [Lane<T>],
}

impl<T: Scalar> Transformed<'_, T> {
    /// Multiplies `re` and `im` by this projection of the tile, or, if `first`, replaces them by it.
    pub(crate) fn multiply_into(&self, arch: Arch, re: &mut [Lane<T>], im: &mut [Lane<T>], first: bool) {
        arch.dispatch(MultiplyTaken { factor: self, re, im, first });
    }
}

struct MultiplyTaken<'a, T> {
    factor: &'a Transformed<'a, T>,
    re: &'a mut [Lane<T>],
    im: &'a mut [Lane<T>],
    first: bool,
}

impl<T: Scalar> WithSimd for MultiplyTaken<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { factor, re, im, first } = self;
        let outputs = 0..factor.sampled.len();
        if first {
            factor.take(simd, outputs, T::ONE, [re, im], &mut ());
        } else {
            factor.multiply::<S, false, false>(factor, simd, outputs, T::ONE, [re, im], &mut ());
        }
    }
}

impl<T: Scalar> Factor<T> for Transformed<'_, T> {
    type Scratch = ();

    fn outputs(&self) -> usize {
        self.sampled.len()
    }

    fn complex(&self) -> bool {
        !self.im.is_empty()
    }

    #[inline(always)]
    fn take<S: Simd>(&self, simd: S, outputs: Range<usize>, scale: T, [re, im]: [&mut [Lane<T>]; 2], (): &mut ()) {
        let scale = T::splat(simd, scale);
        for (into, from) in [(re, self.re), (im, self.im)] {
            for (into, &at) in into.iter_mut().zip(&self.sampled[outputs.clone()]) {
                let from = T::registers::<S>(&from[at as usize]);
                for (into, &from) in T::registers_mut::<S>(into).iter_mut().zip(from) {
                    *into = T::times(simd, from, scale);
                }
            }
        }
    }

    #[inline(always)]
    fn multiply<S: Simd, const FIRST: bool, const LAST: bool>(
        &self,
        start: &Self,
        simd: S,
        outputs: Range<usize>,
        scale: T,
        [re, im]: [&mut [Lane<T>]; 2],
        (): &mut (),
    ) {
        let scale = T::splat(simd, scale);
        let sampled = start.sampled[outputs.clone()].iter().zip(&self.sampled[outputs]);
        if im.is_empty() {
            for (re, (&from, &at)) in re.iter_mut().zip(sampled) {
                let re = T::registers_mut::<S>(re);
                let from = if FIRST { T::registers::<S>(&start.re[from as usize]) } else { &[] };
                let by = T::registers::<S>(&self.re[at as usize]);
                for (within, re) in re.iter_mut().enumerate() {
                    let old = if FIRST { from[within] } else { *re };
                    let product = T::times(simd, old, by[within]);
                    *re = if LAST { T::times(simd, product, scale) } else { product };
                }
            }
        } else {
            for ((re, im), (&from, &at)) in re.iter_mut().zip(im).zip(sampled) {
                let (re, im) = (T::registers_mut::<S>(re), T::registers_mut::<S>(im));
                let from_re = if FIRST { T::registers::<S>(&start.re[from as usize]) } else { &[] };
                let from_im = if FIRST { T::registers::<S>(&start.im[from as usize]) } else { &[] };
                let by_re = T::registers::<S>(&self.re[at as usize]);
                let by_im = T::registers::<S>(&self.im[at as usize]);
                for (within, (re, im)) in re.iter_mut().zip(im).enumerate() {
                    let old = if FIRST { (from_re[within], from_im[within]) } else { (*re, *im) };
                    let new = complex_product::<T, S>(simd, old, (by_re[within], by_im[within]));
                    *re = if LAST { T::times(simd, new.0, scale) } else { new.0 };
                    *im = if LAST { T::times(simd, new.1, scale) } else { new.1 };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_draw;
    use super::*;
    use crate::spec::Base;

    fn draw(base: Base, stream: u32, dim: usize, outputs: usize) -> Arc<Hadamard> {
        let draw = Draw { complex: true, seed: 3, stream, sorted: stream == 0, ..test_draw(base, dim, outputs) };
        hadamard(&draw.projection()).clone()
    }

    #[test]
    fn without_replacement_every_row_is_used_evenly() {
        for (dim, rows) in [(8, 8), (8, 32), (5, 24), (1, 7)] {
            for factor in 0..3 {
                let srht = draw(Base::ProductSrht, factor, dim, rows);
                let mut counts = vec![0; dim.next_power_of_two()];
                srht.sampled.iter().for_each(|&row| counts[row as usize] += 1);
                assert!(counts.iter().all(|&count| count == rows / counts.len()), "{dim} {rows}: {counts:?}");
            }
        }
        // Fewer rows than a multiple of the dimension: no row occurs more often than in the stack.
        let srht = draw(Base::ProductSrht, 1, 16, 37);
        let most = (0..16).map(|row| srht.sampled.iter().filter(|&&sampled| sampled == row).count()).max();
        assert!(most <= Some(3), "{:?}", srht.sampled);
    }

    #[test]
    fn with_replacement_rows_collide() {
        let srht = draw(Base::TensorSrht, 1, 256, 256);
        let mut distinct = srht.sampled.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // Expected 256 (1 − 1/e) ≈ 162 with standard deviation below 8.
        assert!((130..=194).contains(&distinct.len()), "{}", distinct.len());
    }

    #[test]
    fn only_the_first_factor_is_sorted() {
        let sorted = |factor| draw(Base::ProductSrht, factor, 64, 40).sampled.is_sorted();
        assert_eq!([sorted(0), sorted(1), sorted(2)], [true, false, false]);
    }
}
