//! Exponentials, sines and cosines of sixteen numbers at once, in plain double precision that compilers turn into vectors.

use crate::lanes::LANES;

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
pub(super) fn sine_cosine(angles: &Wide) -> (Wide, Wide) {
    let (mut sines, mut cosines) = ([0.0; LANES], [0.0; LANES]);
    let mut largest = 0.0_f64;
    for lane in 0..LANES {
        let x = angles[lane];
        let size = x.abs();
        largest = if size > largest { size } else { largest };
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
        for lane in 0..LANES {
            (sines[lane], cosines[lane]) = libm::sincos(angles[lane]);
        }
    }
    (sines, cosines)
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
