//! Features of flat sketches in one pass: prepared tiles stay in a cache, and products are written as soon as they are computed.

use std::fmt;
use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::rademacher::SignMatrix;
use super::srht::Srht;
use super::srht_row::{TransformedRow, WriteRow};
use crate::lanes::{self, Aligned, Columns, FiniteCheck, LANES, Lane, PIECE, put};
use crate::rows::{Input, RowsMut};
use crate::scalar::Scalar;

/// A flat sketch that writes its features in one pass.
pub(crate) trait Fused<T: Scalar>: fmt::Debug + Send + Sync {
    /// The most rows that are faster one by one than as a tile, and a sixteenth of its work space.
    fn few_rows(&self) -> usize;

    /// Writes the features of the tile of rows that starts at `first` in the inputs and at `at` in `out`; reports whether all are finite.
    fn write_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        scratch: FusedScratch<'_, T>,
        out: &mut RowsMut<'_, T>,
        at: usize,
        streamed: bool,
    ) -> bool;
}

/// Work space of [`Fused::write_tile`].
pub(crate) struct FusedScratch<'a, T> {
    /// As long as the longest x̃.
    pub(crate) x: &'a mut [Lane<T>],
    /// The prepared tiles of all factors.
    pub(crate) taken_from: &'a mut [Lane<T>],
}

/// The factors of a flat sketch for one pass, by kind.
#[derive(Debug)]
pub(crate) struct FusedBuilder<T> {
    srhts: Vec<Srht>,
    signs: Vec<SignMatrix>,
    scale: T,
    parts: Parts,
    roots: [T; 2],
    arch: Arch,
}

impl<T: Scalar> FusedBuilder<T> {
    /// No factors yet; features are products times `scale`, and x̃ = (√γ x, √ν).
    pub(crate) fn new(scale: T, parts: Parts, roots: [T; 2], arch: Arch) -> Self {
        Self { srhts: Vec::new(), signs: Vec::new(), scale, parts, roots, arch }
    }

    pub(super) fn add_srht(&mut self, srht: &Srht) {
        self.srhts.push(srht.clone());
    }

    pub(super) fn add_signs(&mut self, signs: &SignMatrix) {
        self.signs.push(signs.clone());
    }

    /// The sketch whose factors read the given tables, if all are of one kind.
    pub(crate) fn build(self, tables: &[usize]) -> Option<Box<dyn Fused<T>>> {
        let Self { srhts, signs, scale, parts, roots, arch } = self;
        if srhts.len() == tables.len() {
            let factors = tables.iter().copied().zip(srhts).collect();
            return Some(Box::new(FusedProduct { factors, scale, parts, roots, arch }));
        }
        if signs.len() == tables.len() {
            let factors = tables.iter().copied().zip(signs).collect();
            return Some(Box::new(FusedProduct { factors, scale, parts, roots, arch }));
        }
        None
    }
}

/// A projection whose outputs can be computed one piece at a time.
pub(super) trait Fusible<T: Scalar>: fmt::Debug + Send + Sync {
    type Taken<'a>: Factor<T>
    where
        Self: 'a;

    /// Prepares a tile at the front of `free`, and shortens it; `before` is the previous factor, if it read the same x.
    fn prepare<'a>(
        &'a self,
        x: &[Lane<T>],
        before: Option<&Self::Taken<'a>>,
        free: &mut &'a mut [Lane<T>],
    ) -> Self::Taken<'a>;

    /// The most rows that are faster one by one than as a tile.
    const FEW_ROWS: usize = 0;

    /// Prepares a single row at the front of `free`, if single rows are supported.
    fn prepare_row<'a>(&'a self, _x: &[T], _free: &mut &'a mut [T]) -> Option<TransformedRow<'a, T>> {
        None
    }
}

/// Factors, each with the table it reads.
#[derive(Debug)]
struct FusedProduct<T, P> {
    factors: Vec<(usize, P)>,
    scale: T,
    parts: Parts,
    roots: [T; 2],
    arch: Arch,
}

impl<T: Scalar, P: Fusible<T>> FusedProduct<T, P> {
    /// Writes the features of one row; reports whether they are finite.
    fn write_row(&self, inputs: &[Input<'_, T>], row: usize, scratch: FusedScratch<'_, T>, out: &mut [T]) -> bool {
        let (x, mut free) = (scratch.x.as_flattened_mut(), scratch.taken_from.as_flattened_mut());
        let constant = usize::from(self.roots[1] > T::ZERO);
        let mut loaded = None;
        let mut factors = Vec::with_capacity(self.factors.len());
        for (table, factor) in &self.factors {
            let x = &mut x[..inputs[*table].columns() + constant];
            if loaded != Some(table) {
                lanes::load_row(&inputs[*table], row, self.roots, x);
                loaded = Some(table);
            }
            factors.extend(factor.prepare_row(x, &mut free));
        }
        self.arch.dispatch(WriteRow { factors: &factors, scale: self.scale, parts: self.parts, out })
    }
}

impl<T: Scalar, P: Fusible<T>> Fused<T> for FusedProduct<T, P> {
    fn few_rows(&self) -> usize {
        P::FEW_ROWS
    }

    fn write_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        scratch: FusedScratch<'_, T>,
        out: &mut RowsMut<'_, T>,
        at: usize,
        streamed: bool,
    ) -> bool {
        let FusedScratch { x, taken_from: mut free } = scratch;
        let rows = LANES.min(out.rows() - at);
        if rows <= P::FEW_ROWS {
            return (0..rows).fold(true, |finite, row| {
                let scratch = FusedScratch { x: &mut *x, taken_from: &mut *free };
                self.write_row(inputs, first + row, scratch, out.row_mut(at + row)) & finite
            });
        }
        let constant = usize::from(self.roots[1] > T::ZERO);
        let mut loaded = None;
        let mut factors: Vec<P::Taken<'_>> = Vec::with_capacity(self.factors.len());
        for (table, factor) in &self.factors {
            let x = &mut x[..inputs[*table].columns() + constant];
            let again = loaded == Some(table);
            if !again {
                lanes::load(self.arch, &inputs[*table], first, self.roots, x);
                loaded = Some(table);
            }
            let before = factors.last().filter(|_| again);
            let next = factor.prepare(x, before, &mut free);
            factors.push(next);
        }
        write_products(self.arch, &factors, self.scale, self.parts, out, at, streamed)
    }
}

/// The outputs W x for one tile, prepared.
///
/// Parts are [Re, Im], the latter empty if W is real.
pub(crate) trait Factor<T: Scalar> {
    /// Work space, made once for a tile.
    type Scratch: Default;

    /// The number of outputs.
    fn outputs(&self) -> usize;

    fn complex(&self) -> bool;

    /// Some outputs, times `scale`; at most [`PIECE`] if there is work space.
    fn take<S: Simd>(
        &self,
        simd: S,
        outputs: Range<usize>,
        scale: T,
        parts: [&mut [Lane<T>]; 2],
        scratch: &mut Self::Scratch,
    );

    /// Multiplies the present values, or, if `FIRST`, the same outputs of `start`, by some outputs and, if `LAST`, by `scale`.
    fn multiply<S: Simd, const FIRST: bool, const LAST: bool>(
        &self,
        start: &Self,
        simd: S,
        outputs: Range<usize>,
        scale: T,
        parts: [&mut [Lane<T>]; 2],
        scratch: &mut Self::Scratch,
    );
}

/// The layout of real and imaginary parts in a row of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// All real parts, then all imaginary parts, if any.
    Apart,
    /// Side by side.
    Interleaved,
}

impl Parts {
    /// The columns of real and imaginary parts of this many products.
    pub(crate) fn columns(self, outputs: usize) -> [Columns; 2] {
        match self {
            Self::Apart => [0, outputs].map(|start| Columns { start, step: 1 }),
            Self::Interleaved => [0, 1].map(|start| Columns { start, step: 2 }),
        }
    }
}

/// Writes the element-wise product of projections, times `scale`, as features of the tile of rows from `first` on;
/// reports whether all are finite.
/// One pass over the output, with prepared tiles in a cache: gather, multiply, transpose, write.
fn write_products<T: Scalar>(
    arch: Arch,
    factors: &[impl Factor<T>],
    scale: T,
    parts: Parts,
    out: &mut RowsMut<'_, T>,
    first: usize,
    streamed: bool,
) -> bool {
    arch.dispatch(WriteProducts { factors, scale, parts, out, first, streamed })
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
        let (outputs, complex) = (start.outputs(), start.complex());
        let mut scratch = F::Scratch::default();
        let mut re = Aligned([[T::ZERO; LANES]; PIECE]);
        let mut im = Aligned([[T::ZERO; LANES]; PIECE]);
        let mut other = Aligned([[T::ZERO; LANES]; PIECE]);
        let per_output = if parts == Parts::Interleaved { 2 } else { 1 };
        // A short piece first, so that the others start on cache lines.
        let short = (out.before_line(0) / per_output).min(outputs);
        // Where the real parts end in the middle of a cache line, the imaginary ones of the short piece fill it.
        let shares = parts == Parts::Apart && complex && short < outputs && out.before_line(outputs) == short;
        let shared = if shares { short } else { 0 };
        let mut check = FiniteCheck::new(simd);
        let mut done = 0;
        while done < outputs {
            let count = if done < short { short } else { PIECE / per_output }.min(outputs - done);
            let (new_re, rest_re) = re.0.split_at_mut(count);
            let new_im = &mut im.0[..if complex { count } else { 0 }];
            let at = done..done + count;
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
                    put(simd, &other.0[..2 * count], out, first, 2 * done, streamed);
                }
                Parts::Apart => {
                    let more = if done + count == outputs { shared } else { 0 };
                    rest_re[..more].copy_from_slice(&other.0[..more]);
                    put(simd, &re.0[..count + more], out, first, done, streamed);
                    if done < shared {
                        other.0[..shared].copy_from_slice(&im.0[..shared]);
                    } else if complex {
                        put(simd, new_im, out, first, outputs + done, streamed);
                    }
                }
            }
            done += count;
        }
        check.all_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::lanes::LaneBuffer;
    use crate::projection::test_draw;
    use crate::simd::arches;
    use crate::spec::Base;

    /// Features of the rows of `x` in a table that starts `offset` numbers after a cache line.
    fn written<T: Scalar>(arch: Arch, draws: &[Draw], parts: Parts, x: &[T], offset: usize, streamed: bool) -> Vec<T> {
        let Draw { complex, outputs, dim, .. } = draws[0];
        let mut builder = FusedBuilder::new(T::from_f64(0.3), parts, [T::ONE, T::ZERO], arch);
        draws.iter().for_each(|draw| draw.base.operator::<T>(&draw.projection(), None, arch).fuse(&mut builder));
        let fused = builder.build(&vec![0; draws.len()]).unwrap();
        let columns = outputs * if complex { 2 } else { 1 };
        let mut memory = LaneBuffer::new((offset + LANES * columns).div_ceil(LANES));
        let table = &mut memory.as_mut().as_flattened_mut()[offset..][..LANES * columns];
        let mut out = RowsMut::new(table, LANES, columns).unwrap();
        let lanes: usize = draws.iter().map(|draw| draw.base.needs::<T>(draw).fusing.unwrap().lanes).sum();
        let (mut space, mut taken_from) = (LaneBuffer::new(dim), LaneBuffer::new(lanes));
        let scratch = FusedScratch { x: space.as_mut(), taken_from: taken_from.as_mut() };
        let input = crate::Rows::new(x, LANES, dim).unwrap().into();
        assert!(fused.write_tile(&[input], 0, scratch, &mut out, 0, streamed));
        crate::simd::fence();
        table.to_vec()
    }

    fn instruction_sets_agree<T: Scalar>(base: Base) {
        for (dim, outputs, degree) in
            [(1, 1, 1), (3, 20, 2), (16, 32, 3), (50, 64, 3), (50, 48, 1), (100, 70, 4), (9, 530, 2)]
        {
            for (complex, parts) in [(false, Parts::Apart), (true, Parts::Apart), (true, Parts::Interleaved)] {
                let one = |stream| Draw { complex, seed: 5, stream, ..test_draw(base, dim, outputs) };
                let draws: Vec<Draw> = (0..degree).map(one).collect();
                let x: Vec<T> = (0..LANES * dim).map(|at| T::from_f64((at * 31 % 23) as f64 / 7.0 - 1.0)).collect();
                let [(_, plain), ..] = &arches()[..] else { unreachable!("plain code is always available") };
                let want = written(*plain, &draws, parts, &x, 0, false);
                for (offset, streamed) in [(0, false), (0, true), (4, true), (5, false), (12, true), (15, true)] {
                    for (name, arch) in arches() {
                        let got = written(arch, &draws, parts, &x, offset, streamed);
                        assert!(
                            got == want,
                            "{base:?} {name}: {dim} {outputs} {degree} {parts:?}, {offset}, {streamed}"
                        );
                    }
                }
            }
        }
    }

    /// Bit for bit the same, cached or streamed, wherever the table starts.
    #[test]
    fn features_agree_on_every_instruction_set() {
        for base in [Base::ProductSrht, Base::Rademacher] {
            instruction_sets_agree::<f32>(base);
            instruction_sets_agree::<f64>(base);
        }
    }
}
