//! The fast Walsh–Hadamard transform.

use crate::error::Error;
use crate::lanes::{LANES, Lane, add, sub};
use crate::scalar::Scalar;

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
        return Err(Error::invalid("data", "a length that is a power of two", data.len()));
    }
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            let (lanes, rest) = data.as_chunks_mut();
            if lanes.is_empty() {
                reference(rest);
            } else {
                // H_n = (I ⊗ H_16)(H_{n/16} ⊗ I): whole vectors first, then within each.
                fwht_lanes(lanes);
                for lane in lanes {
                    within::<T>(lane);
                }
            }
        },
    );
    Ok(())
}

/// The textbook transform, one butterfly at a time: what the others are checked against.
///
/// `data` must have a power of two of elements; others are transformed up to the first level that does not split.
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

/// The transform of sixteen neighbours.
#[inline(always)]
fn within<T: Scalar>(lane: &mut Lane<T>) {
    let mut stride = LANES / 2;
    while stride > 0 {
        let old = *lane;
        // Branch-free in the index, so that each level becomes a shuffle, an addition and a blend.
        for (index, value) in lane.iter_mut().enumerate() {
            let partner = old[index ^ stride];
            *value = if index & stride == 0 { old[index] + partner } else { partner - old[index] };
        }
        stride /= 2;
    }
}

/// Lanes that are transformed to the end before the next ones are begun: 128 KiB of `f32`, well inside a second-level
/// cache.
const CACHED: usize = 2048;

/// The transform across lanes: sixteen vectors at once. `data.len()` is a power of two.
///
/// Must be inlined into a function compiled for the instruction set at hand, as everything it calls.
#[inline(always)]
pub(crate) fn fwht_lanes<T: Scalar>(data: &mut [Lane<T>]) {
    let mut length = data.len();
    while length > CACHED {
        for block in data.chunks_exact_mut(length) {
            radix8(block);
        }
        length /= 8;
    }
    for cached in data.chunks_exact_mut(length.max(1)) {
        let mut length = cached.len();
        while length >= 8 {
            for block in cached.chunks_exact_mut(length) {
                radix8(block);
            }
            length /= 8;
        }
        match length {
            4 => cached.chunks_exact_mut(4).for_each(|block| {
                if let [a, b, c, d] = block {
                    [*a, *b, *c, *d] = butterfly4([*a, *b, *c, *d]);
                }
            }),
            2 => cached.chunks_exact_mut(2).for_each(|block| {
                if let [a, b] = block {
                    (*a, *b) = (add(*a, *b), sub(*a, *b));
                }
            }),
            _ => {}
        }
    }
}

/// The three outermost levels of one block in one pass.
#[inline(always)]
fn radix8<T: Scalar>(block: &mut [Lane<T>]) {
    let eighth = block.len() / 8;
    let (low, high) = block.split_at_mut(4 * eighth);
    let (p0, p1) = low.split_at_mut(2 * eighth);
    let (p2, p3) = high.split_at_mut(2 * eighth);
    let (a, b) = p0.split_at_mut(eighth);
    let (c, d) = p1.split_at_mut(eighth);
    let (e, f) = p2.split_at_mut(eighth);
    let (g, h) = p3.split_at_mut(eighth);
    // Equal lengths, said in a way the compiler can use to drop the bounds checks.
    let (b, c, d) = (&mut b[..a.len()], &mut c[..a.len()], &mut d[..a.len()]);
    let (e, f) = (&mut e[..a.len()], &mut f[..a.len()]);
    let (g, h) = (&mut g[..a.len()], &mut h[..a.len()]);
    for i in 0..a.len() {
        let upper = [add(a[i], e[i]), add(b[i], f[i]), add(c[i], g[i]), add(d[i], h[i])];
        let lower = [sub(a[i], e[i]), sub(b[i], f[i]), sub(c[i], g[i]), sub(d[i], h[i])];
        [a[i], b[i], c[i], d[i]] = butterfly4(upper);
        [e[i], f[i], g[i], h[i]] = butterfly4(lower);
    }
}

#[inline(always)]
fn butterfly4<T: Scalar>([a, b, c, d]: [Lane<T>; 4]) -> [Lane<T>; 4] {
    let (s, t, u, v) = (add(a, c), add(b, d), sub(a, c), sub(b, d));
    [add(s, t), sub(s, t), add(u, v), sub(u, v)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    fn random(length: usize, seed: u64) -> Vec<f64> {
        let mut stream = Stream::new(seed, Purpose::Weights, 0, 0);
        (0..length).map(|_| stream.complex_normal().0).collect()
    }

    /// Straight from the definition; itself checked on H₁, H₂ and H₄ written by hand.
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
            fwht_lanes(&mut lanes);
            for lane in 0..LANES {
                let mut want: Vec<f64> = (0..length).map(|k| data[k * LANES + lane]).collect();
                reference(&mut want);
                assert!(lanes.iter().map(|l| l[lane]).eq(want), "2^{bits}, lane {lane}");
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
