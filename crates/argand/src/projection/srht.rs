//! The subsampled randomised Hadamard transform.

use super::{Draw, quarter_turn};
use crate::lanes::{LANES, Lane, LaneBuffer, add, scale};
use crate::rng::{Purpose, Stream};
use crate::scalar::Scalar;
use crate::spec::Base;
use crate::transform::fwht::fwht_lanes;

/// W = P H D: random signs D, the Hadamard matrix H, and the sampled rows P.
///
/// # Formula
/// With n the dimension padded to a power of two and B = ⌈m/n⌉, P takes m of the Bn rows of B stacked copies of H
/// without replacement (ProductSRHT), or m rows of H with replacement (TensorSRHT). D has entries uniform on {1, −1}
/// or {1, −1, i, −i}.
///
/// The first factor of a flat sketch keeps its sample in ascending order: permuting the features of all factors alike
/// does not change an inner product, so only the other factors need a random order.
///
/// # Reference
/// Alg. 2 of the paper; Ahle et al. (2020), Def. 15, for sampling with replacement.
///
/// # Cost
/// n log₂ n + m operations per row and factor, twice that when complex. Memory 4m + n bytes.
#[derive(Debug)]
pub(crate) struct Srht {
    complex: bool,
    /// n, the padded dimension.
    padded: usize,
    /// The diagonal of D in quarter turns, one per coordinate before padding.
    turns: Vec<u8>,
    /// The row of H that each row of W takes.
    sampled: Vec<u32>,
}

impl Srht {
    pub(super) fn bytes(draw: Draw) -> Option<u64> {
        let padded = draw.dim.checked_next_power_of_two()?;
        // Without replacement, all stacked rows are listed while drawing.
        let stacked = draw.rows.checked_next_multiple_of(padded)?;
        let listed = u32::try_from(if draw.base == Base::TensorSrht { draw.rows } else { stacked }).ok()?;
        Some(4 * u64::from(listed) + u64::try_from(padded).ok()?)
    }

    pub(super) fn sample(draw: Draw) -> Self {
        let Draw { complex, seed, factor, dim, rows, .. } = draw;
        let padded = dim.next_power_of_two();
        let mut stream = Stream::new(seed, Purpose::Rows, factor, 0);
        // Sizes were counted by `bytes` and fit.
        let narrow = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let mut sampled: Vec<u32> = if draw.base == Base::TensorSrht {
            (0..rows).map(|_| stream.below(narrow(padded))).collect()
        } else {
            let stacked = narrow(rows.next_multiple_of(padded));
            let mut order: Vec<u32> = (0..stacked).collect();
            // Fisher and Yates, stopped after the rows needed.
            for position in 0..rows {
                let left = stacked - narrow(position);
                order.swap(position, position + stream.below(left) as usize);
            }
            order.truncate(rows);
            order.shrink_to_fit();
            order
        };
        if draw.sorted {
            sampled.sort_unstable();
        }
        for row in &mut sampled {
            *row &= narrow(padded - 1);
        }
        Self { complex, padded, turns: draw.signs(), sampled }
    }

    /// Real and, if complex, imaginary part of the work space, as long as the padded dimension.
    #[inline(always)]
    fn parts<'a, T: Scalar>(&self, [re, im]: &'a mut [LaneBuffer<T>; 2]) -> [&'a mut [Lane<T>]; 2] {
        [&mut re.as_mut()[..self.padded], &mut im.as_mut()[..if self.complex { self.padded } else { 0 }]]
    }

    #[inline(always)]
    pub(super) fn apply<T: Scalar>(
        &self,
        [x_re, x_im]: [&[Lane<T>]; 2],
        workspace: &mut [LaneBuffer<T>; 2],
        mut emit: impl FnMut(usize, usize, Lane<T>, Lane<T>),
    ) {
        let dim = self.turns.len();
        for (tile, x_re) in x_re.chunks_exact(dim).enumerate() {
            let x_im = if x_im.is_empty() { x_im } else { &x_im[tile * dim..][..dim] };
            let mut parts = self.parts(workspace);
            for (part, values) in parts.iter_mut().enumerate() {
                let (signed, padding) = values.split_at_mut(dim.min(values.len()));
                for ((value, &x), &turns) in signed.iter_mut().zip(x_re).zip(&self.turns) {
                    *value = scale(x, quarter_turn(turns)[part]);
                }
                // (a + ib)(c + id): the imaginary part of x meets the other part of the sign.
                for ((value, &x), &turns) in signed.iter_mut().zip(x_im).zip(&self.turns) {
                    let sign = quarter_turn::<T>(turns)[1 - part];
                    *value = add(*value, scale(x, if part == 0 { -sign } else { sign }));
                }
                padding.fill([T::ZERO; LANES]);
                fwht_lanes(values);
            }
            let [re, im] = parts;
            for (row, &sampled) in self.sampled.iter().enumerate() {
                let im = if self.complex { im[sampled as usize] } else { [T::ZERO; LANES] };
                emit(tile, row, re[sampled as usize], im);
            }
        }
    }

    /// Wᵀ = D H Pᵀ: scatter, transform, turn.
    #[inline(always)]
    pub(super) fn add_transpose<T: Scalar>(
        &self,
        v: [&[Lane<T>]; 2],
        workspace: &mut [LaneBuffer<T>; 2],
        gradient: [&mut [Lane<T>]; 2],
    ) {
        let [gradient_re, gradient_im] = gradient;
        let parts = self.parts(workspace);
        for (part, (spread, v)) in parts.into_iter().zip(v).enumerate() {
            // A real projection has no imaginary part to spread, whether v has one or not.
            if spread.is_empty() {
                continue;
            }
            spread.fill([T::ZERO; LANES]);
            for (&row, &v) in self.sampled.iter().zip(v) {
                spread[row as usize] = add(spread[row as usize], v);
            }
            fwht_lanes(spread);
            // Re(w v) = Re w Re v − Im w Im v.
            let sign = if part == 0 { T::ONE } else { -T::ONE };
            for ((gradient, &value), &turns) in gradient_re.iter_mut().zip(&*spread).zip(&self.turns) {
                *gradient = add(*gradient, scale(value, sign * quarter_turn::<T>(turns)[part]));
            }
            // Im(w v) = Im w Re v + Re w Im v.
            for ((gradient, &value), &turns) in gradient_im.iter_mut().zip(&*spread).zip(&self.turns) {
                *gradient = add(*gradient, scale(value, quarter_turn::<T>(turns)[1 - part]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(base: Base, factor: u32, dim: usize, rows: usize) -> Srht {
        Srht::sample(Draw { base, complex: true, seed: 3, factor, sorted: factor == 0, dim, rows })
    }

    #[test]
    fn without_replacement_every_row_is_used_evenly() {
        for (dim, rows) in [(8, 8), (8, 32), (5, 24), (1, 7)] {
            for factor in 0..3 {
                let srht = draw(Base::ProductSrht, factor, dim, rows);
                let mut counts = vec![0; srht.padded];
                srht.sampled.iter().for_each(|&row| counts[row as usize] += 1);
                assert!(counts.iter().all(|&count| count == rows / srht.padded), "{dim} {rows}: {counts:?}");
            }
        }
        // Fewer rows than a multiple of the dimension: no row more often than the stack holds it.
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
