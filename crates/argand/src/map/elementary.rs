//! Exponentials, sines and cosines of sixteen numbers at once: in plain double precision that compilers turn into vectors, and sines and cosines in
//! single precision, too. Every product and sum is rounded, so that results are the same on all instruction sets, to the last bit.

use pulp::Simd;

use crate::lanes::{LANES, Lane};
use crate::scalar::Scalar;

/// Sixteen numbers in double precision.
pub(super) type Wide = [f64; LANES];

/// 1.5 · 2⁵²: adding it rounds to whole numbers, and leaves them in the low bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// The largest angle for which the reduction below is exact enough: the number of quarter turns has 20 bits.
const LARGEST_ANGLE: f64 = 1e6;

/// π/2 in three parts; the first two have 33 bits, so that their products with a number of quarter turns are exact.
#[allow(clippy::excessive_precision, reason = "the parts are exact")]
const QUARTER: [f64; 3] =
    [1.570_796_326_734_125_614_17, 6.077_100_506_303_965_976_60e-11, 2.022_266_248_795_950_631_54e-21];

/// Replaces angles by their cosines, and writes their sines.
#[inline(always)]
pub(crate) fn turn<S: Simd>(_: S, angles: &mut [Lane<f64>], sines: &mut [Lane<f64>]) {
    for (angle, sine) in angles.iter_mut().zip(sines) {
        (*sine, *angle) = sine_cosine(angle);
    }
}

/// Taylor coefficients 1/n! with alternating signs; on |r| ≤ π/4 what is left out is below 2⁻⁵⁶.
const SINE: [f64; 8] = [
    1.0,
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
];
const COSINE: [f64; 9] = [
    1.0,
    -1.0 / 2.0,
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
];

#[inline(always)]
fn polynomial<const COUNT: usize>(coefficients: &[f64; COUNT], x: f64) -> f64 {
    let mut sum = coefficients[COUNT - 1];
    for index in (0..COUNT - 1).rev() {
        sum = sum * x + coefficients[index];
    }
    sum
}

/// (sine, cosine), with errors of about 2⁻⁵².
///
/// # Formula
/// x = k π/2 + r with |r| ≤ π/4, the Taylor polynomials at r, and their exchange and signs by k modulo 4.
#[inline(always)]
fn sine_cosine(angles: &Wide) -> (Wide, Wide) {
    let (mut sines, mut cosines) = ([0.0; LANES], [0.0; LANES]);
    let mut largest = 0.0_f64;
    for lane in 0..LANES {
        let x = angles[lane];
        largest = if x.abs() > largest { x.abs() } else { largest };
        let shifted = x * std::f64::consts::FRAC_2_PI + ROUNDING;
        let turns = shifted - ROUNDING;
        let quadrant = shifted.to_bits();
        let r = ((x - turns * QUARTER[0]) - turns * QUARTER[1]) - turns * QUARTER[2];
        let square = r * r;
        let (sine, cosine) = (r * polynomial(&SINE, square), polynomial(&COSINE, square));
        let odd = quadrant & 1 == 1;
        let (a, b) = if odd { (cosine, sine) } else { (sine, cosine) };
        // The sign of the sine changes after half a turn, that of the cosine a quarter earlier.
        let flip = |value: f64, bit: u64| f64::from_bits(value.to_bits() ^ (bit & 2) << 62);
        sines[lane] = flip(a, quadrant);
        cosines[lane] = flip(b, quadrant.wrapping_add(1));
    }
    if largest > LARGEST_ANGLE {
        for lane in (0..LANES).filter(|&lane| angles[lane].abs() > LARGEST_ANGLE) {
            (sines[lane], cosines[lane]) = libm::sincos(angles[lane]);
        }
    }
    (sines, cosines)
}

/// As [`ROUNDING`], in single precision: 1.5 · 2²³.
const ROUNDING_SINGLE: f32 = 12_582_912.0;

/// As [`LARGEST_ANGLE`], in single precision: 13 bits.
const LARGEST_SINGLE_ANGLE: f32 = 1e4;

/// π/2 in three parts; the first two have at most 11 bits.
#[allow(clippy::excessive_precision, reason = "the parts are exact")]
const QUARTER_SINGLE: [f32; 3] = [1.570_312_5, 4.837_512_969_970_703_125e-4, 7.549_789_954_891_882e-8];

/// On |r| ≤ π/4 what is left out is below 2⁻²⁸.
const SINE_SINGLE: [f32; 5] = [1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5_040.0, 1.0 / 362_880.0];
const COSINE_SINGLE: [f32; 6] = [1.0, -1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0];

#[inline(always)]
fn polynomial_single<S: Simd, const COUNT: usize>(simd: S, coefficients: &[f32; COUNT], x: S::f32s) -> S::f32s {
    let mut sum = simd.splat_f32s(coefficients[COUNT - 1]);
    for index in (0..COUNT - 1).rev() {
        sum = simd.add_f32s(simd.mul_f32s(sum, x), simd.splat_f32s(coefficients[index]));
    }
    sum
}

/// Replaces angles by their cosines, and writes their sines, in single precision, with errors of about 2⁻²³. See [`sine_cosine`].
#[inline(always)]
pub(crate) fn turn_single<S: Simd>(simd: S, angles: &mut [Lane<f32>], sines: &mut [Lane<f32>]) {
    let mut largest = simd.splat_f32s(0.0);
    for &x in S::as_simd_f32s(angles.as_flattened()).0 {
        largest = simd.max_f32s(largest, simd.abs_f32s(x));
    }
    let far = simd.reduce_max_f32s(largest) > LARGEST_SINGLE_ANGLE;
    let before: Vec<Lane<f32>> = if far { angles.to_vec() } else { Vec::new() };
    let registers = S::as_mut_simd_f32s(angles.as_flattened_mut()).0.iter_mut();
    for (angle, sine) in registers.zip(S::as_mut_simd_f32s(sines.as_flattened_mut()).0) {
        (*sine, *angle) = sine_cosine_single(simd, *angle);
    }
    // Each by itself: no row depends on its neighbours.
    for (at, before) in before.iter().enumerate() {
        for (lane, &angle) in before.iter().enumerate().filter(|(_, angle)| angle.abs() > LARGEST_SINGLE_ANGLE) {
            let (sine, cosine) = libm::sincos(f64::from(angle));
            (sines[at][lane], angles[at][lane]) = (f32::from_f64(sine), f32::from_f64(cosine));
        }
    }
}

#[inline(always)]
fn sine_cosine_single<S: Simd>(simd: S, x: S::f32s) -> (S::f32s, S::f32s) {
    let splat = |value: f32| simd.splat_f32s(value);
    let shifted = simd.add_f32s(simd.mul_f32s(x, splat(std::f32::consts::FRAC_2_PI)), splat(ROUNDING_SINGLE));
    let turns = simd.sub_f32s(shifted, splat(ROUNDING_SINGLE));
    let quadrant = simd.transmute_u32s_f32s(shifted);
    let mut r = x;
    for part in QUARTER_SINGLE {
        r = simd.sub_f32s(r, simd.mul_f32s(turns, splat(part)));
    }
    let square = simd.mul_f32s(r, r);
    let sine = simd.mul_f32s(r, polynomial_single(simd, &SINE_SINGLE, square));
    let cosine = polynomial_single(simd, &COSINE_SINGLE, square);
    let one = simd.splat_u32s(1);
    let even = simd.equal_u32s(simd.and_u32s(quadrant, one), simd.splat_u32s(0));
    let (a, b) = (simd.select_f32s(even, sine, cosine), simd.select_f32s(even, cosine, sine));
    (flip_single(simd, a, quadrant), flip_single(simd, b, simd.add_u32s(quadrant, one)))
}

/// Changes the sign where a number of quarter turns has the bit 2.
#[inline(always)]
fn flip_single<S: Simd>(simd: S, value: S::f32s, quadrant: S::u32s) -> S::f32s {
    let sign = simd.wrapping_dyn_shl_u32s(simd.and_u32s(quadrant, simd.splat_u32s(2)), simd.splat_u32s(30));
    simd.transmute_f32s_u32s(simd.xor_u32s(simd.transmute_u32s_f32s(value), sign))
}

const EXPONENTIAL: [f64; 13] = [
    1.0,
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
];

/// ln 2 in two parts; the product of the first with an exponent is exact.
#[allow(clippy::excessive_precision, reason = "the parts are exact")]
const LN_2: [f64; 2] = [6.931_471_803_691_238_164_90e-1, 1.908_214_929_270_587_700_02e-10];

/// eˣ, with relative errors of about 2⁻⁵¹; below −708 it is 0, and above 709 infinite.
///
/// # Formula
/// x = k ln 2 + r with |r| ≤ ln 2/2, and 2ᵏ times the Taylor polynomial at r.
#[inline(always)]
pub(super) fn exponential(x: &Wide) -> Wide {
    let mut result = [0.0; LANES];
    for lane in 0..LANES {
        let x = x[lane];
        // Comparisons, because NaN must stay.
        let clamped = if x < -708.0 { -708.0 } else { x };
        let clamped = if clamped > 709.0 { 709.0 } else { clamped };
        let shifted = clamped * std::f64::consts::LOG2_E + ROUNDING;
        let power = shifted - ROUNDING;
        let r = (clamped - power * LN_2[0]) - power * LN_2[1];
        let value = polynomial(&EXPONENTIAL, r) * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
        let value = if x < -708.0 { 0.0 } else { value };
        result[lane] = if x > 709.0 { f64::INFINITY } else { value };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};
    use crate::simd;

    fn numbers(scale: f64) -> impl Iterator<Item = Wide> {
        let mut stream = Stream::new(1, Purpose::Sample, 9, 9);
        (0..2000).map(move |_| std::array::from_fn(|_| scale * (2.0 * stream.uniform() - 1.0)))
    }

    #[test]
    fn sines_and_cosines_agree_with_libm() {
        let quarters: Wide = std::array::from_fn(|lane| (lane as f64 - 8.0) * std::f64::consts::FRAC_PI_2);
        for scale in [1e-300, 1e-3, 1.0, 30.0, 1e4, 9e5, 1e12] {
            for angles in numbers(scale).chain([quarters, [0.0; LANES]]) {
                let (sines, cosines) = sine_cosine(&angles);
                for lane in 0..LANES {
                    let (sine, cosine) = libm::sincos(angles[lane]);
                    assert!((sines[lane] - sine).abs() <= 4e-16, "sin {}: {} {sine}", angles[lane], sines[lane]);
                    assert!(
                        (cosines[lane] - cosine).abs() <= 4e-16,
                        "cos {}: {} {cosine}",
                        angles[lane],
                        cosines[lane]
                    );
                }
            }
        }
    }

    struct Turn(Vec<Lane<f32>>);

    impl pulp::WithSimd for Turn {
        type Output = [Vec<Lane<f32>>; 2];

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, simd: S) -> [Vec<Lane<f32>>; 2] {
            let mut sines = self.0.clone();
            turn_single(simd, &mut self.0, &mut sines);
            [sines, self.0]
        }
    }

    /// Within 2⁻²³, which is one unit in the last place of numbers around one, and with the same bits on all instruction sets.
    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "test data")]
    fn single_sines_and_cosines_agree_with_libm() {
        let quarters: Wide = std::array::from_fn(|lane| (lane as f64 - 8.0) * std::f64::consts::FRAC_PI_2);
        for scale in [1e-30, 1e-3, 1.0, 30.0, 1e3, 9.9e3, 3e4, 1e12] {
            let angles: Vec<Lane<f32>> = numbers(scale).chain([quarters]).map(|x| x.map(|x| x as f32)).collect();
            let everywhere = simd::everywhere(|| Turn(angles.clone()));
            for (name, [sines, cosines]) in &everywhere {
                assert!(sines == &everywhere[0].1[0] && cosines == &everywhere[0].1[1], "{name}");
            }
            let [sines, cosines] = &everywhere[0].1;
            for ((angle, sine), cosine) in angles.iter().zip(sines).zip(cosines) {
                for lane in 0..LANES {
                    let wanted = libm::sincos(f64::from(angle[lane]));
                    let errors = [f64::from(sine[lane]) - wanted.0, f64::from(cosine[lane]) - wanted.1];
                    assert!(errors.iter().all(|error| error.abs() <= 1.2e-7), "{}: {errors:?}", angle[lane]);
                    // A row does not depend on its neighbours: alone it has the same values.
                    let mut alone = [[angle[lane]; LANES]];
                    let mut of_alone = alone;
                    turn_single(pulp::Scalar, &mut alone, &mut of_alone);
                    assert_eq!([of_alone[0][0], alone[0][0]], [sine[lane], cosine[lane]]);
                }
            }
        }
        let mut infinite = [[f32::INFINITY; LANES]];
        let mut sines = infinite;
        turn_single(pulp::Scalar, &mut infinite, &mut sines);
        assert!(sines[0][0].is_nan() && infinite[0][0].is_nan());
    }

    #[test]
    fn exponentials_agree_with_libm() {
        for scale in [1e-300, 1e-3, 1.0, 30.0, 700.0] {
            for x in numbers(scale).chain([[0.0; LANES]]) {
                for (got, x) in exponential(&x).into_iter().zip(x) {
                    assert!((got / libm::exp(x) - 1.0).abs() < 1e-15, "exp {x}: {got}");
                }
            }
        }
        let mut special = [0.0; LANES];
        special[..4].copy_from_slice(&[-1e9, 1e9, f64::NEG_INFINITY, f64::NAN]);
        let got = exponential(&special);
        assert!(got[0] == 0.0 && got[1] == f64::INFINITY && got[2] == 0.0 && got[3].is_nan() && got[4] == 1.0);
    }
}
