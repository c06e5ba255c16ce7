//! Registers of the instruction set at hand, for either scalar type.
//!
//! Kernels are generic over pulp's `Simd`: a token whose existence proves that the processor has the instructions. They
//! must be inlined into the function that pulp compiles for an instruction set, like everything they call.

#![allow(unreachable_pub, reason = "a sealed trait of the public `Scalar` names these types")]

use pulp::Simd;

use crate::lanes::{LANES, Lane};

/// The operations that kernels need from a scalar type.
pub trait Vector: Sized + Copy {
    /// A register: its length divides [`LANES`].
    type Register<S: Simd>: Copy;

    /// A slice of whole lanes, in registers.
    fn registers<S: Simd>(data: &[Self]) -> &[Self::Register<S>];
    /// As [`Vector::registers`], mutable.
    fn registers_mut<S: Simd>(data: &mut [Self]) -> &mut [Self::Register<S>];
    /// The same number in every element.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Register<S>;
    /// a + b
    fn plus<S: Simd>(simd: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// a − b
    fn minus<S: Simd>(simd: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// ab
    fn times<S: Simd>(simd: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// a + bc, rounded once where that is as fast.
    fn plus_product<S: Simd>(
        simd: S,
        a: Self::Register<S>,
        b: Self::Register<S>,
        c: Self::Register<S>,
    ) -> Self::Register<S>;
    /// Multiplies every lane by H₁₆, as butterflies from the largest stride to the smallest.
    fn hadamard<S: Simd>(simd: S, lanes: &mut [Lane<Self>]);
    /// Columns 4·`quad` to 4·`quad` + 3 of a square.
    fn transpose<S: Simd>(simd: S, square: &[Lane<Self>; LANES], quad: usize) -> [Lane<Self>; 4];
    /// Writes past the caches, if `to` starts a cache line; call [`fence`] afterwards.
    fn stream<S: Simd>(simd: S, from: Lane<Self>, to: &mut Lane<Self>);
}

macro_rules! vector {
    ($type:ident, $of:ident, $register:ident, $registers:ident, $registers_mut:ident, $splat:ident, $add:ident, $sub:ident,
     $mul:ident, $mul_add:ident) => {
        impl Vector for $type {
            type Register<S: Simd> = S::$register;

            #[inline(always)]
            fn registers<S: Simd>(data: &[Self]) -> &[S::$register] {
                S::$registers(data).0
            }
            #[inline(always)]
            fn registers_mut<S: Simd>(data: &mut [Self]) -> &mut [S::$register] {
                S::$registers_mut(data).0
            }
            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$register {
                simd.$splat(value)
            }
            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$register, b: S::$register) -> S::$register {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn minus<S: Simd>(simd: S, a: S::$register, b: S::$register) -> S::$register {
                simd.$sub(a, b)
            }
            #[inline(always)]
            fn times<S: Simd>(simd: S, a: S::$register, b: S::$register) -> S::$register {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn plus_product<S: Simd>(simd: S, a: S::$register, b: S::$register, c: S::$register) -> S::$register {
                simd.$mul_add(b, c, a)
            }
            #[inline(always)]
            fn hadamard<S: Simd>(simd: S, lanes: &mut [Lane<Self>]) {
                $of::hadamard(simd, lanes);
            }
            #[inline(always)]
            fn transpose<S: Simd>(simd: S, square: &[Lane<Self>; LANES], quad: usize) -> [Lane<Self>; 4] {
                $of::transpose(simd, square, quad)
            }
            #[inline(always)]
            fn stream<S: Simd>(simd: S, from: Lane<Self>, to: &mut Lane<Self>) {
                $of::stream(simd, from, to);
            }
        }
    };
}

vector!(f32, singles, f32s, as_simd_f32s, as_mut_simd_f32s, splat_f32s, add_f32s, sub_f32s, mul_f32s, mul_add_e_f32s);
vector!(f64, doubles, f64s, as_simd_f64s, as_mut_simd_f64s, splat_f64s, add_f64s, sub_f64s, mul_f64s, mul_add_e_f64s);

/// H₁₆ for every lane, for any instruction set.
#[inline(always)]
fn hadamard<T: Copy + std::ops::Add<Output = T> + std::ops::Sub<Output = T>>(lanes: &mut [Lane<T>]) {
    for lane in lanes {
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
}

/// Four columns of a square, for any instruction set.
#[inline(always)]
fn transpose<T: Copy + Default>(square: &[Lane<T>; LANES], quad: usize) -> [Lane<T>; 4] {
    let mut columns = [[T::default(); LANES]; 4];
    for (at, row) in square.iter().enumerate() {
        for (column, &value) in columns.iter_mut().zip(&row[4 * quad..4 * quad + 4]) {
            column[at] = value;
        }
    }
    columns
}

/// Whether a lane starts a cache line.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn starts_line<T>(lane: &Lane<T>) -> bool {
    lane.as_ptr().addr().is_multiple_of(64)
}

/// Prefetches the value `ahead` places after this one, possibly past the end of a slice.
#[inline(always)]
pub(crate) fn prefetch<T>(from: &T, ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "there is no safe prefetch")]
    // SAFETY: every x86-64 processor has the instruction, which reads nothing and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).wrapping_add(ahead).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, ahead);
}

/// Makes the writes of [`Vector::stream`] visible to other threads before any later write.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "nothing else orders non-temporal stores")]
    // SAFETY: every x86-64 processor has the instruction, and it has no operands.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// The token as that of instruction set `V`, if it is one: decided at compile time.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn specific<S: Simd, V: Simd>(simd: S) -> Option<V> {
    (&simd as &dyn std::any::Any).downcast_ref().copied()
}

/// ±1: negative where the position has the bit `stride`.
#[cfg(target_arch = "x86_64")]
const fn signs(stride: usize) -> Lane<f32> {
    let mut signs = [1.0; LANES];
    let mut at = 0;
    while at < LANES {
        if at & stride != 0 {
            signs[at] = -1.0;
        }
        at += 1;
    }
    signs
}

mod singles {
    use super::{LANES, Lane, Simd};
    #[cfg(target_arch = "x86_64")]
    use super::{signs, specific, starts_line};
    #[cfg(target_arch = "x86_64")]
    use pulp::{cast, x86::V3, x86::V4};
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::{__m128, __m256, __m512};

    #[inline(always)]
    pub(super) fn hadamard<S: Simd>(simd: S, lanes: &mut [Lane<f32>]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = specific::<S, V4>(simd) {
            let avx = simd.avx512f;
            // The partner plus or minus the number itself: products with ±1 are exact.
            for lane in lanes {
                let v: __m512 = cast(*lane);
                let v = avx._mm512_fmadd_ps(v, cast(signs(8)), avx._mm512_shuffle_f32x4::<0b01_00_11_10>(v, v));
                let v = avx._mm512_fmadd_ps(v, cast(signs(4)), avx._mm512_shuffle_f32x4::<0b10_11_00_01>(v, v));
                let v = avx._mm512_fmadd_ps(v, cast(signs(2)), avx._mm512_permute_ps::<0b01_00_11_10>(v));
                let v = avx._mm512_fmadd_ps(v, cast(signs(1)), avx._mm512_permute_ps::<0b10_11_00_01>(v));
                *lane = cast(v);
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = specific::<S, V3>(simd) {
            let (avx, fma) = (simd.avx, simd.fma);
            for lane in lanes {
                let [low, high]: [__m256; 2] = cast(*lane);
                let halves = [avx._mm256_add_ps(low, high), avx._mm256_sub_ps(low, high)];
                *lane = cast(halves.map(
                    #[inline(always)]
                    |v| {
                        let v = fma._mm256_fmadd_ps(v, half_signs(4), avx._mm256_permute2f128_ps::<1>(v, v));
                        let v = fma._mm256_fmadd_ps(v, half_signs(2), avx._mm256_permute_ps::<0b01_00_11_10>(v));
                        fma._mm256_fmadd_ps(v, half_signs(1), avx._mm256_permute_ps::<0b10_11_00_01>(v))
                    },
                ));
            }
            return;
        }
        let _ = simd;
        super::hadamard(lanes);
    }

    #[inline(always)]
    pub(super) fn transpose<S: Simd>(simd: S, square: &[Lane<f32>; LANES], quad: usize) -> [Lane<f32>; 4] {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = specific::<S, V4>(simd) {
            let avx = simd.avx512f;
            // Loads of quarters are cheaper than shuffles across them; four 4 x 4 squares remain.
            let [a, b, c, d] = {
                macro_rules! rows {
                    ($first:expr) => {{
                        let v = avx._mm512_castps128_ps512(quarter(square, $first, quad));
                        let v = avx._mm512_insertf32x4::<1>(v, quarter(square, $first + 4, quad));
                        let v = avx._mm512_insertf32x4::<2>(v, quarter(square, $first + 8, quad));
                        avx._mm512_insertf32x4::<3>(v, quarter(square, $first + 12, quad))
                    }};
                }
                [rows!(0), rows!(1), rows!(2), rows!(3)]
            };
            let (low, high) = (avx._mm512_unpacklo_ps(a, b), avx._mm512_unpackhi_ps(a, b));
            let (low_next, high_next) = (avx._mm512_unpacklo_ps(c, d), avx._mm512_unpackhi_ps(c, d));
            return [
                cast(avx._mm512_shuffle_ps::<0b01_00_01_00>(low, low_next)),
                cast(avx._mm512_shuffle_ps::<0b11_10_11_10>(low, low_next)),
                cast(avx._mm512_shuffle_ps::<0b01_00_01_00>(high, high_next)),
                cast(avx._mm512_shuffle_ps::<0b11_10_11_10>(high, high_next)),
            ];
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = specific::<S, V3>(simd) {
            let avx = simd.avx;
            macro_rules! rows {
                ($first:expr) => {{
                    let v = avx._mm256_castps128_ps256(quarter(square, $first, quad));
                    avx._mm256_insertf128_ps::<1>(v, quarter(square, $first + 4, quad))
                }};
            }
            macro_rules! half {
                ($first:expr) => {{
                    let [a, b, c, d] = [rows!($first), rows!($first + 1), rows!($first + 2), rows!($first + 3)];
                    let (low, high) = (avx._mm256_unpacklo_ps(a, b), avx._mm256_unpackhi_ps(a, b));
                    let (low_next, high_next) = (avx._mm256_unpacklo_ps(c, d), avx._mm256_unpackhi_ps(c, d));
                    let columns: [__m256; 4] = [
                        avx._mm256_shuffle_ps::<0b01_00_01_00>(low, low_next),
                        avx._mm256_shuffle_ps::<0b11_10_11_10>(low, low_next),
                        avx._mm256_shuffle_ps::<0b01_00_01_00>(high, high_next),
                        avx._mm256_shuffle_ps::<0b11_10_11_10>(high, high_next),
                    ];
                    columns
                }};
            }
            let (left, right) = (half!(0), half!(8));
            return [
                cast([left[0], right[0]]),
                cast([left[1], right[1]]),
                cast([left[2], right[2]]),
                cast([left[3], right[3]]),
            ];
        }
        let _ = simd;
        super::transpose(square, quad)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn half_signs(stride: usize) -> __m256 {
        cast(signs(stride).as_chunks::<8>().0[0])
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn quarter(square: &[Lane<f32>; LANES], row: usize, quad: usize) -> __m128 {
        cast(square[row].as_chunks::<4>().0[quad])
    }

    #[inline(always)]
    pub(super) fn stream<S: Simd>(simd: S, from: Lane<f32>, to: &mut Lane<f32>) {
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "there is no safe non-temporal store")]
        if starts_line(to) {
            if let Some(simd) = specific::<S, V4>(simd) {
                // SAFETY: `to` is 64 writable bytes at a multiple of 64.
                unsafe { simd.avx512f._mm512_stream_ps(to.as_mut_ptr(), cast(from)) };
                return;
            }
            if let Some(simd) = specific::<S, V3>(simd) {
                let [low, high]: [__m256; 2] = cast(from);
                // SAFETY: `to` is 64 writable bytes at a multiple of 64.
                unsafe {
                    simd.avx._mm256_stream_ps(to.as_mut_ptr(), low);
                    simd.avx._mm256_stream_ps(to[8..].as_mut_ptr(), high);
                }
                return;
            }
        }
        let _ = simd;
        *to = from;
    }
}

mod doubles {
    use super::{LANES, Lane, Simd};
    #[cfg(target_arch = "x86_64")]
    use super::{specific, starts_line};
    #[cfg(target_arch = "x86_64")]
    use pulp::{cast, x86::V3, x86::V4};
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::{__m256d, __m512d};

    #[inline(always)]
    pub(super) fn hadamard<S: Simd>(_: S, lanes: &mut [Lane<f64>]) {
        super::hadamard(lanes);
    }

    #[inline(always)]
    pub(super) fn transpose<S: Simd>(_: S, square: &[Lane<f64>; LANES], quad: usize) -> [Lane<f64>; 4] {
        super::transpose(square, quad)
    }

    #[inline(always)]
    pub(super) fn stream<S: Simd>(simd: S, from: Lane<f64>, to: &mut Lane<f64>) {
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "there is no safe non-temporal store")]
        if starts_line(to) {
            if let Some(simd) = specific::<S, V4>(simd) {
                let [low, high]: [__m512d; 2] = cast(from);
                // SAFETY: `to` is 128 writable bytes at a multiple of 64.
                unsafe {
                    simd.avx512f._mm512_stream_pd(to.as_mut_ptr(), low);
                    simd.avx512f._mm512_stream_pd(to[8..].as_mut_ptr(), high);
                }
                return;
            }
            if let Some(simd) = specific::<S, V3>(simd) {
                let parts: [__m256d; 4] = cast(from);
                for (to, part) in to.as_chunks_mut::<4>().0.iter_mut().zip(parts) {
                    // SAFETY: `to` is 32 writable bytes at a multiple of 32.
                    unsafe { simd.avx._mm256_stream_pd(to.as_mut_ptr(), part) };
                }
                return;
            }
        }
        let _ = simd;
        *to = from;
    }
}

/// Plain code, and every instruction set that this processor has.
#[cfg(test)]
pub(crate) fn arches() -> Vec<(&'static str, pulp::Arch)> {
    let mut arches = vec![("plain code", pulp::Arch::Scalar)];
    #[cfg(target_arch = "x86_64")]
    {
        arches.extend(pulp::x86::V3::try_new().map(|simd| ("AVX2", pulp::Arch::V3(simd))));
        arches.extend(pulp::x86::V4::try_new().map(|simd| ("AVX-512", pulp::Arch::V4(simd))));
    }
    #[cfg(target_arch = "aarch64")]
    arches.extend(pulp::aarch64::Neon::try_new().map(|simd| ("NEON", pulp::Arch::Neon(simd))));
    arches
}

/// Runs `make()` on all of [`arches`].
#[cfg(test)]
pub(crate) fn everywhere<Op: pulp::WithSimd>(make: impl Fn() -> Op) -> Vec<(&'static str, Op::Output)> {
    arches().into_iter().map(|(name, arch)| (name, arch.dispatch(make()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Columns<T>([Lane<T>; LANES]);

    impl<T: Vector> pulp::WithSimd for Columns<T> {
        type Output = Vec<Lane<T>>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<Lane<T>> {
            (0..4).flat_map(|quad| T::transpose(simd, &self.0, quad)).collect()
        }
    }

    #[test]
    fn squares_are_transposed() {
        let single: [Lane<f32>; LANES] = std::array::from_fn(|row| std::array::from_fn(|at| (100 * row + at) as f32));
        let double = single.map(|row| row.map(f64::from));
        for (name, columns) in everywhere(|| Columns(single)) {
            assert!((0..256).all(|at| columns[at % 16][at / 16] == single[at / 16][at % 16]), "{name}, f32");
        }
        for (name, columns) in everywhere(|| Columns(double)) {
            assert!((0..256).all(|at| columns[at % 16][at / 16] == double[at / 16][at % 16]), "{name}, f64");
        }
    }
}
