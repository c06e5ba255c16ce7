//! The measured limits of this machine.

use std::hint::black_box;

use crate::Shape;
use crate::report::best;
use crate::rivals::Rivals;

/// Rates in units per second.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes read plus bytes written.
    pub(crate) copy: f64,
    /// Bytes written past the caches, by one thread.
    pub(crate) write: f64,
    /// The same, by two threads together.
    pub(crate) write_two: f64,
    /// Additions of `f32`, one thread.
    pub(crate) adds: f64,
    /// Multiplications and additions of a matrix product by numpy's BLAS, one thread.
    pub(crate) gemm: Option<f64>,
}

/// Far larger than any cache.
const LENGTH: usize = 1 << 26;

impl Limits {
    pub(crate) fn measure(rivals: Option<&mut Rivals>) -> Self {
        let (mut from, mut to) = (vec![1.0_f32; LENGTH], vec![0.0_f32; LENGTH]);
        let bytes = (LENGTH * size_of::<f32>()) as f64;
        let copy = 2.0 * bytes / best(0.5, || black_box(&mut to).copy_from_slice(black_box(&from)));
        let write = bytes / best(0.5, || write_past_caches(black_box(&mut to)));
        let both = best(0.5, || {
            std::thread::scope(|scope| {
                scope.spawn(|| write_past_caches(&mut from));
                write_past_caches(&mut to);
            });
        });
        let gemm = rivals.map(|rivals| {
            let size = 2048;
            let time = rivals.time("gemm", Shape { rows: size, dim: size, degree: 1, features: size });
            2.0 * (size as f64).powi(3) / time
        });
        Self { copy, write, write_two: 2.0 * bytes / both, adds: add_peak(), gemm }
    }

    /// The shortest time we think possible for ctr-product-srht: memory, and 2p Hadamard transforms at 30 % of the
    /// addition rate, the share the fastest published code reaches.
    pub(crate) fn bound(&self, Shape { rows, dim, degree, features }: Shape) -> f64 {
        let padded = dim.next_power_of_two();
        let bytes = (rows * (dim + features) * size_of::<f32>()) as f64;
        let adds = (rows * 2 * degree * padded) as f64 * (padded as f64).log2();
        bytes / self.write + adds / (0.3 * self.adds)
    }
}

fn add_peak() -> f64 {
    (Sums::REPEAT * 8 * 16) as f64 / best(0.5, || pulp::Arch::new().dispatch(Sums))
}

/// Eight independent sums, twice the latency of an addition on two ports. Named, so that they stay in registers.
struct Sums;

impl Sums {
    const REPEAT: usize = 100_000;
}

impl pulp::NullaryFnOnce for Sums {
    type Output = ();

    // A method rather than a closure, because a closure may not be inlined, and is then compiled for the oldest processor.
    #[inline(always)]
    fn call(self) {
        #[inline(always)]
        fn add(sum: [f32; 16], term: [f32; 16]) -> [f32; 16] {
            std::array::from_fn(|lane| sum[lane] + term[lane])
        }
        let term = black_box([1.0; 16]);
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = black_box([[0.0; 16]; 8]);
        for _ in 0..Self::REPEAT {
            (a, b, c, d) = (add(a, term), add(b, term), add(c, term), add(d, term));
            (e, f, g, h) = (add(e, term), add(f, term), add(g, term), add(h, term));
        }
        black_box([a, b, c, d, e, f, g, h]);
    }
}

/// Ones everywhere, with stores that do not read what they overwrite where the processor has them.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "non-temporal stores are intrinsics")]
fn write_past_caches(data: &mut [f32]) {
    use std::arch::x86_64::{_mm_set1_ps, _mm_sfence, _mm_stream_ps};
    let start = data.as_ptr().align_offset(16).min(data.len());
    let (chunks, _) = data[start..].as_chunks_mut::<4>();
    for chunk in chunks {
        // SAFETY: SSE belongs to x86-64; `chunk` is 16 writable bytes, aligned to 16.
        unsafe { _mm_stream_ps(chunk.as_mut_ptr(), _mm_set1_ps(1.0)) };
    }
    // SAFETY: SSE belongs to x86-64.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn write_past_caches(data: &mut [f32]) {
    data.fill(1.0);
}
