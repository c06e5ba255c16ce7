//! The fast Walsh–Hadamard transform.

use pulp::{Simd, WithSimd};

use crate::error::{Argument, Error};
use crate::lanes::{LANES, Lane};
use crate::scalar::Scalar;
use crate::simd::Vector;

/// Multiplies `data` by the unnormalised Hadamard matrix H, in place.
///
/// # Formula
/// (Hx)_j = Σ_k (−1)^{popcount(j & k)} x_k, so that H Hᵀ = n I.
///
/// # Reference
/// Section 4 of the paper; Fino and Algazi (1976). Butterflies go from the largest stride to the smallest, and every
/// implementation here performs the same additions in the same order: results are bit-identical.
///
/// # Cost
/// n log₂ n additions.
///
/// # Errors
/// [`Error::Invalid`] unless the length is a power of two.
///
/// ```
/// let mut x = [1.0, 2.0, 3.0, 4.0];
/// argand::transform::fwht::fwht(&mut x)?;
/// assert_eq!(x, [10.0, -2.0, -4.0, 0.0]);
/// # Ok::<(), argand::Error>(())
/// ```
pub fn fwht<T: Scalar>(data: &mut [T]) -> Result<(), Error> {
    if !data.len().is_power_of_two() {
        return Err(Error::invalid(Argument::Data, "a length that is a power of two", data.len()));
    }
    pulp::Arch::new().dispatch(Single(data));
    Ok(())
}

struct Single<'a, T>(&'a mut [T]);

impl<T: Scalar> WithSimd for Single<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        transform_row(simd, self.0);
    }
}

/// As [`fwht`], for code that knows its instruction set. `data.len()` is a power of two.
#[inline(always)]
pub(crate) fn transform_row<T: Scalar, S: Simd>(simd: S, data: &mut [T]) {
    if data.len() < LANES {
        return reference(data);
    }
    // H_n = (I ⊗ H_16)(H_{n/16} ⊗ I): whole lanes first, then within each.
    across(
        simd,
        data,
        #[inline(always)]
        |block| T::hadamard(simd, block.as_chunks_mut().0),
    );
}

/// The textbook transform, one butterfly at a time: the reference for the others.
/// The length of `data` must be a power of two; others are transformed up to the first level that does not split.
pub fn reference<T: Scalar>(data: &mut [T]) {
    let mut stride = data.len() / 2;
    while stride > 0 {
        for block in data.chunks_exact_mut(2 * stride) {
            let (low, high) = block.split_at_mut(stride);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        stride /= 2;
    }
}

type Register<T, S> = <T as Vector>::Register<S>;

/// Bytes transformed to completion before the next are begun: within a first-level and a second-level cache.
const FIRST_LEVEL: usize = 32 << 10;
const SECOND_LEVEL: usize = 1 << 20;

/// The transform of sixteen vectors at once, side by side in lanes. `data.len()` is a power of two.
#[inline(always)]
pub(crate) fn across_lanes<T: Scalar, S: Simd>(simd: S, data: &mut [Lane<T>]) {
    across(
        simd,
        data.as_flattened_mut(),
        #[inline(always)]
        |_| {},
    );
}

/// H_{n/16} ⊗ I: all levels with strides of whole lanes. Every block is handed to `then` as soon as it is complete.
#[inline(always)]
fn across<T: Scalar, S: Simd>(simd: S, data: &mut [T], mut then: impl FnMut(&mut [T])) {
    blocks_within(
        simd,
        data,
        SECOND_LEVEL,
        #[inline(always)]
        |outer| {
            blocks_within(
                simd,
                outer,
                FIRST_LEVEL,
                #[inline(always)]
                |inner| {
                    finish(simd, inner);
                    then(inner);
                },
            );
        },
    );
}

/// The outermost levels, until blocks have at most this many bytes; these are handed on.
#[inline(always)]
fn blocks_within<T: Scalar, S: Simd>(simd: S, data: &mut [T], bytes: usize, mut then: impl FnMut(&mut [T])) {
    let mut length = data.len();
    while length * size_of::<T>() > bytes {
        for block in data.chunks_exact_mut(length) {
            radix8(simd, block);
        }
        length /= 8;
    }
    for block in data.chunks_exact_mut(length) {
        then(block);
    }
}

/// The remaining levels, three at a time.
#[inline(always)]
fn finish<T: Scalar, S: Simd>(simd: S, data: &mut [T]) {
    let mut length = data.len();
    while length >= 8 * LANES {
        for block in data.chunks_exact_mut(length) {
            radix8(simd, block);
        }
        length /= 8;
    }
    let registers = T::registers_mut::<S>(data);
    let lane = LANES * size_of::<T>() / size_of::<Register<T, S>>();
    match length / LANES {
        4 => {
            for block in registers.chunks_exact_mut(4 * lane) {
                for i in 0..lane {
                    let old = [block[i], block[i + lane], block[i + 2 * lane], block[i + 3 * lane]];
                    [block[i], block[i + lane], block[i + 2 * lane], block[i + 3 * lane]] =
                        butterfly4::<T, S>(simd, old);
                }
            }
        }
        2 => {
            for block in registers.chunks_exact_mut(2 * lane) {
                for i in 0..lane {
                    let (a, b) = (block[i], block[i + lane]);
                    (block[i], block[i + lane]) = (T::plus(simd, a, b), T::minus(simd, a, b));
                }
            }
        }
        // A single lane, or fewer numbers than a lane has.
        0 | 1 => {}
        _ => unreachable!("three levels at a time leave fewer than three"),
    }
}

/// The three outermost levels of one block in one pass: eight registers at a time, few enough for any cache even if
/// their stride maps all of them to one set.
#[inline(always)]
fn radix8<T: Scalar, S: Simd>(simd: S, block: &mut [T]) {
    let block = T::registers_mut::<S>(block);
    let eighth = block.len() / 8;
    let (low, high) = block.split_at_mut(4 * eighth);
    let (p0, p1) = low.split_at_mut(2 * eighth);
    let (p2, p3) = high.split_at_mut(2 * eighth);
    let (a, b) = p0.split_at_mut(eighth);
    let (c, d) = p1.split_at_mut(eighth);
    let (e, f) = p2.split_at_mut(eighth);
    let (g, h) = p3.split_at_mut(eighth);
    // Equal lengths, stated so that the compiler can drop the bounds checks.
    let (b, c, d) = (&mut b[..a.len()], &mut c[..a.len()], &mut d[..a.len()]);
    let (e, f) = (&mut e[..a.len()], &mut f[..a.len()]);
    let (g, h) = (&mut g[..a.len()], &mut h[..a.len()]);
    for i in 0..a.len() {
        let old = [a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]];
        [a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]] = butterfly8::<T, S>(simd, old);
    }
}

/// Three levels.
#[inline(always)]
pub(crate) fn butterfly8<T: Scalar, S: Simd>(
    simd: S,
    [a, b, c, d, e, f, g, h]: [Register<T, S>; 8],
) -> [Register<T, S>; 8] {
    let (plus, minus) = (T::plus::<S>, T::minus::<S>);
    let upper = [plus(simd, a, e), plus(simd, b, f), plus(simd, c, g), plus(simd, d, h)];
    let lower = [minus(simd, a, e), minus(simd, b, f), minus(simd, c, g), minus(simd, d, h)];
    let [a, b, c, d] = butterfly4::<T, S>(simd, upper);
    let [e, f, g, h] = butterfly4::<T, S>(simd, lower);
    [a, b, c, d, e, f, g, h]
}

/// Two levels.
#[inline(always)]
fn butterfly4<T: Scalar, S: Simd>(simd: S, [a, b, c, d]: [Register<T, S>; 4]) -> [Register<T, S>; 4] {
    let (plus, minus) = (T::plus::<S>, T::minus::<S>);
    let (s, t, u, v) = (plus(simd, a, c), plus(simd, b, d), minus(simd, a, c), minus(simd, b, d));
    [plus(simd, s, t), minus(simd, s, t), plus(simd, u, v), minus(simd, u, v)]
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Batch<'a, T>(&'a mut [Lane<T>]);

    impl<T: Scalar> WithSimd for Batch<'_, T> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            across_lanes(simd, self.0);
        }
    }
    use crate::rng::{Purpose, Stream};
    use crate::simd::everywhere;

    fn random(length: usize, seed: u64) -> Vec<f64> {
        let mut stream = Stream::new(seed, Purpose::Weights, 0, 0);
        (0..length).map(|_| stream.complex_normal().0).collect()
    }

    /// Straight from the definition, and itself checked against H₁, H₂ and H₄ written by hand.
    fn naive(data: &[f64]) -> Vec<f64> {
        let sign = |bits: usize| if bits.count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        (0..data.len()).map(|j| data.iter().enumerate().map(|(k, x)| sign(j & k) * x).sum()).collect()
    }

    #[test]
    fn naive_matches_hand_written_matrices() {
        assert_eq!(naive(&[3.0]), [3.0]);
        assert_eq!(naive(&[1.0, 10.0]), [11.0, -9.0]);
        assert_eq!(naive(&[1.0, 10.0, 100.0, 1000.0]), [1111.0, -909.0, -1089.0, 891.0]);
    }

    #[test]
    fn reference_matches_naive() {
        for bits in 0..11 {
            let data = random(1 << bits, bits);
            let mut fast = data.clone();
            reference(&mut fast);
            for (got, want) in fast.iter().zip(naive(&data)) {
                assert!((got - want).abs() < 1e-12 * f64::from(1 << bits), "2^{bits}");
            }
        }
    }

    /// Bit for bit: all versions perform the same additions in the same order.
    #[test]
    fn every_length_equals_the_reference() {
        for bits in 0..=20 {
            let data = random(1 << bits, bits);
            let mut want = data.clone();
            reference(&mut want);
            let mut got = data.clone();
            fwht(&mut got).unwrap();
            assert!(got == want, "f64, 2^{bits}");
            let mut want: Vec<f32> = data.iter().map(|&x| f32::from_f64(x)).collect();
            let mut got = want.clone();
            reference(&mut want);
            fwht(&mut got).unwrap();
            assert!(got == want, "f32, 2^{bits}");
        }
    }

    #[test]
    fn lanes_transform_each_row() {
        for bits in 0..=13 {
            let length = 1 << bits;
            let data = random(length * LANES, bits);
            let mut lanes: Vec<Lane<f64>> = data.as_chunks().0.to_vec();
            pulp::Arch::new().dispatch(Batch(&mut lanes));
            for lane in 0..LANES {
                let mut want: Vec<f64> = (0..length).map(|k| data[k * LANES + lane]).collect();
                reference(&mut want);
                assert!(lanes.iter().map(|l| l[lane]).eq(want), "2^{bits}, lane {lane}");
            }
        }
    }

    struct Transformed<T>(Vec<T>);

    impl<T: Scalar> WithSimd for Transformed<T> {
        type Output = Vec<T>;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, simd: S) -> Vec<T> {
            Single(&mut self.0).with_simd(simd);
            self.0
        }
    }

    #[test]
    fn every_instruction_set_equals_the_reference() {
        for bits in 4..=16 {
            let double = random(1 << bits, bits);
            let single: Vec<f32> = double.iter().map(|&x| f32::from_f64(x)).collect();
            let (mut want_double, mut want_single) = (double.clone(), single.clone());
            reference(&mut want_double);
            reference(&mut want_single);
            for (name, got) in everywhere(|| Transformed(double.clone())) {
                assert!(got == want_double, "{name}, f64, 2^{bits}");
            }
            for (name, got) in everywhere(|| Transformed(single.clone())) {
                assert!(got == want_single, "{name}, f32, 2^{bits}");
            }
        }
    }

    #[test]
    fn other_lengths_are_errors() {
        for length in [0, 3, 12, 1000] {
            assert!(fwht(&mut vec![0.0_f32; length]).is_err(), "{length}");
        }
    }
}
