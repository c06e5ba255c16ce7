//! Features of flat sketches in one pass: what a tile's rows of Wx are taken from stays in a cache, and products are written as
//! they are made.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::lanes::{Aligned, FiniteCheck, LANES, Lane, PIECE, put};
use crate::rows::RowsMut;
use crate::scalar::Scalar;

/// The rows of W x for one tile, ready to be taken.
///
/// Parts are [Re, Im], the latter empty if W is real.
pub(crate) trait Factor<T: Scalar> {
    /// Work space, made once for a tile.
    type Scratch: Default;

    /// The number of rows of W.
    fn rows(&self) -> usize;

    fn complex(&self) -> bool;

    /// Some rows, at most [`PIECE`] for those that have work space, times `scale`.
    fn take<S: Simd>(
        &self,
        simd: S,
        rows: Range<usize>,
        scale: T,
        parts: [&mut [Lane<T>]; 2],
        scratch: &mut Self::Scratch,
    );

    /// Multiplies what is there, or, if `FIRST`, the same rows of `start`, by some rows and, if `LAST`, by `scale`.
    fn multiply<S: Simd, const FIRST: bool, const LAST: bool>(
        &self,
        start: &Self,
        simd: S,
        rows: Range<usize>,
        scale: T,
        parts: [&mut [Lane<T>]; 2],
        scratch: &mut Self::Scratch,
    );
}

/// Where real and imaginary parts of products go in a row of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// All real parts, then the imaginary ones, if there are any.
    Apart,
    /// Side by side.
    Interleaved,
}

/// Writes the element-wise product of projections, times `scale`, as features of the tile of rows from `first` on;
/// reports whether all are finite.
///
/// One pass over the output, with what the factors take their rows from in a cache: gather, multiply, transpose, write.
pub(crate) fn write_products<T: Scalar>(
    factors: &[impl Factor<T>],
    scale: T,
    parts: Parts,
    out: &mut RowsMut<'_, T>,
    first: usize,
    streamed: bool,
) -> bool {
    pulp::Arch::new().dispatch(WriteProducts { factors, scale, parts, out, first, streamed })
}

struct WriteProducts<'a, 'b, T, F> {
    factors: &'a [F],
    scale: T,
    parts: Parts,
    out: &'a mut RowsMut<'b, T>,
    first: usize,
    streamed: bool,
}

impl<T: Scalar, F: Factor<T>> WithSimd for WriteProducts<'_, '_, T, F> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { factors, scale, parts, out, first, streamed } = self;
        let [start, others @ ..] = factors else { return true };
        let (rows, complex) = (start.rows(), start.complex());
        let mut scratch = F::Scratch::default();
        let mut re = Aligned([[T::ZERO; LANES]; PIECE]);
        let mut im = Aligned([[T::ZERO; LANES]; PIECE]);
        let mut other = Aligned([[T::ZERO; LANES]; PIECE]);
        let per_row = if parts == Parts::Interleaved { 2 } else { 1 };
        // A short piece first, so that the others start cache lines.
        let short = (out.before_line(0) / per_row).min(rows);
        // Where the real parts end in the middle of a cache line, the imaginary ones of the short piece fill it.
        let shares = parts == Parts::Apart && complex && short < rows && out.before_line(rows) == short;
        let shared = if shares { short } else { 0 };
        let mut check = FiniteCheck::new(simd);
        let mut row = 0;
        while row < rows {
            let count = if row < short { short } else { PIECE / per_row }.min(rows - row);
            let (new_re, rest_re) = re.0.split_at_mut(count);
            let new_im = &mut im.0[..if complex { count } else { 0 }];
            let at = row..row + count;
            for (index, factor) in others.iter().enumerate() {
                let (parts, scratch) = ([&mut *new_re, &mut *new_im], &mut scratch);
                let (first, last, at) = (index == 0, index + 1 == others.len(), at.clone());
                match (first, last) {
                    (true, true) => factor.multiply::<S, true, true>(start, simd, at, scale, parts, scratch),
                    (true, false) => factor.multiply::<S, true, false>(start, simd, at, scale, parts, scratch),
                    (false, true) => factor.multiply::<S, false, true>(start, simd, at, scale, parts, scratch),
                    (false, false) => factor.multiply::<S, false, false>(start, simd, at, scale, parts, scratch),
                }
            }
            if others.is_empty() {
                start.take(simd, at, scale, [&mut *new_re, &mut *new_im], &mut scratch);
            }
            check.look_at(new_re);
            check.look_at(new_im);
            match parts {
                Parts::Interleaved => {
                    for (pair, (&re, &im)) in other.0.as_chunks_mut().0.iter_mut().zip(new_re.iter().zip(&*new_im)) {
                        *pair = [re, im];
                    }
                    put(simd, &other.0[..2 * count], out, first, 2 * row, streamed);
                }
                Parts::Apart => {
                    let more = if row + count == rows { shared } else { 0 };
                    rest_re[..more].copy_from_slice(&other.0[..more]);
                    put(simd, &re.0[..count + more], out, first, row, streamed);
                    if row < shared {
                        other.0[..shared].copy_from_slice(&im.0[..shared]);
                    } else if complex {
                        put(simd, new_im, out, first, rows + row, streamed);
                    }
                }
            }
            row += count;
        }
        check.all_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::LaneBuffer;
    use crate::projection::rademacher::Tables;
    use crate::projection::srht::SignedFwht;
    use crate::projection::{Draw, LookedUp, Rademacher, Srht, Transformed, quarter_turn};
    use crate::simd::everywhere;
    use crate::spec::Base;

    /// Features of one tile, from its rows of Wx to the output, in tables that start `offset` numbers after a cache line.
    struct Features<'a, T, F> {
        factors: F,
        x: &'a [Lane<T>],
        parts: Parts,
        offset: usize,
        streamed: bool,
    }

    fn written<T: Scalar, S: Simd, F>(simd: S, factors: &[impl Factor<T>], how: &Features<'_, T, F>) -> Vec<T> {
        let columns = factors[0].rows() * if factors[0].complex() { 2 } else { 1 };
        let mut memory = LaneBuffer::new((how.offset + LANES * columns).div_ceil(LANES));
        let table = &mut memory.as_mut().as_flattened_mut()[how.offset..][..LANES * columns];
        let mut out = RowsMut::new(table, LANES, columns).unwrap();
        let (scale, parts, streamed) = (T::from_f64(0.3), how.parts, how.streamed);
        let write = WriteProducts { factors, scale, parts, out: &mut out, first: 0, streamed };
        assert!(write.with_simd(simd));
        crate::simd::fence();
        table.to_vec()
    }

    impl<T: Scalar> WithSimd for Features<'_, T, &[Srht]> {
        type Output = Vec<T>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<T> {
            let mut buffers: Vec<[Vec<Lane<T>>; 2]> = Vec::new();
            for Srht { complex, padded, turns, .. } in self.factors {
                let mut buffer =
                    [vec![[T::ONE; LANES]; *padded], vec![[T::ONE; LANES]; if *complex { *padded } else { 0 }]];
                for (part, into) in buffer.iter_mut().enumerate() {
                    let signs = std::array::from_fn(|turns| quarter_turn::<T>([0, 1, 2, 3][turns])[part]);
                    if !into.is_empty() {
                        SignedFwht { turns, sources: [self.x, self.x], signs, into }.with_simd(simd);
                    }
                }
                buffers.push(buffer);
            }
            let factors = self.factors.iter().zip(&buffers);
            let factors: Vec<_> =
                factors.map(|(srht, [re, im])| Transformed { sampled: &srht.sampled, re, im }).collect();
            written(simd, &factors, &self)
        }
    }

    impl<T: Scalar> WithSimd for Features<'_, T, &[Rademacher]> {
        type Output = Vec<T>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<T> {
            let mut tables = vec![[T::ONE; LANES]; Rademacher::table_lanes(self.x.len()).unwrap()];
            Tables { x: self.x, tables: &mut tables }.with_simd(simd);
            let of = |rademacher| LookedUp { rademacher, tables: &tables };
            let factors: Vec<_> = self.factors.iter().map(of).collect();
            written(simd, &factors, &self)
        }
    }

    fn instruction_sets_agree<T: Scalar, P>(base: Base, sample: impl Fn(Draw) -> P)
    where
        for<'a> Features<'a, T, &'a [P]>: WithSimd<Output = Vec<T>>,
    {
        for (dim, rows, degree) in
            [(1, 1, 1), (3, 20, 2), (16, 32, 3), (50, 64, 3), (50, 48, 1), (100, 70, 4), (9, 530, 2)]
        {
            for (complex, parts) in [(false, Parts::Apart), (true, Parts::Apart), (true, Parts::Interleaved)] {
                let one = |factor| sample(Draw { base, complex, seed: 5, factor, sorted: false, dim, rows });
                let factors: Vec<P> = (0..degree).map(one).collect();
                let value = |at: usize, row: usize| T::from_f64(((at * 31 + row * 17) % 23) as f64 / 7.0 - 1.0);
                let x: Vec<Lane<T>> = (0..dim).map(|at| std::array::from_fn(|row| value(at, row))).collect();
                let features = |offset, streamed| {
                    everywhere(|| Features { factors: &factors[..], x: &x, parts, offset, streamed })
                };
                let (_, want) = &features(0, false)[0];
                for (offset, streamed) in [(0, false), (0, true), (4, true), (5, false), (12, true), (15, true)] {
                    for (name, got) in features(offset, streamed) {
                        assert!(got == *want, "{base:?} {name}: {dim} {rows} {degree} {parts:?}, {offset}, {streamed}");
                    }
                }
            }
        }
    }

    /// Bit for bit, cached or streamed, wherever the table starts.
    #[test]
    fn features_agree_on_every_instruction_set() {
        instruction_sets_agree::<f32, _>(Base::ProductSrht, Srht::sample);
        instruction_sets_agree::<f64, _>(Base::ProductSrht, Srht::sample);
        instruction_sets_agree::<f32, _>(Base::Rademacher, Rademacher::sample);
        instruction_sets_agree::<f64, _>(Base::Rademacher, Rademacher::sample);
    }
}
