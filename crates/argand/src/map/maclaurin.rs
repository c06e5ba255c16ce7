//! The power series of a kernel, term by term.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::adjoint::AdjointScratch as TermAdjointScratch;
use super::product::{Product, Scratch as TermScratch};
use super::{Room, Tiled, first_not_finite};
use crate::draw::{self, Drawn};
use crate::error::Error;
use crate::lanes::LANES;
use crate::rows::{Input, OwnedRows, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::simd;
use crate::spec::{Method, Spec};

/// Tiles worth computing together if there is no term to ask.
const TILES: usize = 4;

/// A sum of sketches, side by side.
///
/// # Formula
/// φ(x) = g(x) (√a₀, √a₁ u, √aₙ Φₙ(u), …) with u = x − c, as in [`Allocation`](crate::fit::Allocation). The factor g(x) = exp(−‖u‖²/(2ℓ²)) of a Gaussian
/// kernel goes into the row that a term sees: Φₙ is homogeneous of degree n, so it sketches g(x)^{1/n} u.
///
/// # Reference
/// Cotter, Keshet and Srebro, *Explicit Approximations of the Gaussian Kernel* (2011), for the expansion with all monomials; Wacker, Kanagawa and Filippone,
/// *Improved Random Features for Dot Product Kernels* (2022), for sharing features by variance.
///
/// # Cost
/// That of its terms, and for a Gaussian kernel d multiplications for every term.
#[derive(Debug)]
pub struct Maclaurin<T> {
    terms: Vec<Term<T>>,
    /// √a₀, if the constant has a column.
    constant: Option<f64>,
    /// The first column of the linear term and √a₁.
    linear: Option<(usize, f64)>,
    /// 1/ℓ² of a Gaussian kernel.
    rate: Option<f64>,
    centre: Option<Vec<f64>>,
    dim: usize,
    /// Columns that are zeros for every row.
    zeros: Range<usize>,
    arch: Arch,
}

#[derive(Debug)]
struct Term<T> {
    degree: usize,
    columns: Range<usize>,
    product: Product<T>,
}

/// One thread's work space.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    terms: Vec<TermScratch<T>>,
    prepared: Prepared<T>,
}

#[derive(Debug)]
pub(super) struct AdjointScratch<T> {
    terms: Vec<TermAdjointScratch<T>>,
    prepared: Prepared<T>,
    /// The gradient of a term, and of all of them.
    part: Vec<T>,
    sum: Vec<f64>,
}

/// Rows as the terms of a Gaussian kernel see them.
#[derive(Debug)]
struct Prepared<T> {
    /// u, unless rows stay sparse.
    centred: Vec<T>,
    /// g^{1/n} u of one term.
    scaled: Vec<T>,
    /// ‖u‖²/(2ℓ²) of every row.
    exponents: Vec<f64>,
}

/// Bytes of all terms and of one thread's work space; `None` on overflow.
///
/// # Errors
/// If the spec is not fitted.
pub(super) fn bytes<T: Scalar>(spec: &Spec) -> Result<Option<u64>, Error> {
    spec.check_fitted()?;
    let Method::Maclaurin(product) = spec.method else { unreachable!("only Maclaurin sums come here") };
    let (mut sum, mut tiles) = (Some(0_u64), TILES);
    for term in spec.allocation().term_specs(spec, product) {
        let room = Room::of::<T>(&term, &draw::Product::of(&term, product));
        tiles = tiles.max(room.tiles_per_block);
        sum = sum.zip(room.bytes::<T>()).and_then(|(sum, bytes)| sum.checked_add(bytes));
    }
    let rows = 2 * tiles * LANES * size_of::<T>();
    let prepared = spec.inputs.as_slice()[0].checked_mul(rows).and_then(|bytes| u64::try_from(bytes).ok());
    Ok(sum.zip(prepared).and_then(|(sum, prepared)| sum.checked_add(prepared)))
}

impl<T: Scalar> Maclaurin<T> {
    pub(crate) fn new(spec: &Spec, drawn: &[Drawn], arch: Arch) -> Self {
        let allocation = spec.allocation();
        let layout = allocation.layout(spec).unwrap_or_else(|| unreachable!("the spec is valid"));
        let term = |((drawn, term), &start): ((&Drawn, &crate::fit::Term), &usize)| {
            let draw::Map::Product(product) = &drawn.map else { unreachable!("terms are products") };
            Term {
                degree: term.degree,
                columns: start..start + term.features,
                product: Product::new(&drawn.spec, product, arch),
            }
        };
        let root = |degree: usize| spec.kernel.coefficient(degree).sqrt();
        Self {
            terms: drawn.iter().zip(&allocation.terms).zip(&layout.terms).map(term).collect(),
            constant: layout.constant.then(|| root(0)),
            linear: layout.linear.map(|start| (start, root(1))),
            rate: spec.kernel.radial().map(|scale| 1.0 / (scale * scale)),
            centre: allocation.centre.clone(),
            dim: spec.inputs.as_slice()[0],
            zeros: layout.used..spec.features,
            arch,
        }
    }

    /// Work space for the rows of a block; sparse rows that stay sparse need none.
    fn prepared(&self, rows: usize) -> Prepared<T> {
        let numbers = if self.rate.is_some() { rows * self.dim } else { 0 };
        Prepared { centred: vec![T::ZERO; numbers], scaled: vec![T::ZERO; numbers], exponents: vec![0.0; rows] }
    }

    /// Writes u and its exponent for some rows.
    fn centre(&self, input: &Input<'_, T>, first: usize, rows: usize, rate: f64, prepared: &mut Prepared<T>) {
        let Prepared { centred, exponents, .. } = prepared;
        for ((row, to), exponent) in centred.chunks_exact_mut(self.dim).take(rows).enumerate().zip(exponents) {
            let from = match input {
                Input::Dense(table) => Some(table.row(first + row)),
                Input::Sparse(table) => {
                    to.fill(T::ZERO);
                    table.row(first + row).for_each(|(column, value)| to[column] += value);
                    None
                }
            };
            *exponent = 0.5 * rate * self.arch.dispatch(Centre { from, centre: self.centre.as_deref(), to });
        }
    }

    /// Writes the linear term and the zeros, and returns the first row that overflows; `linear` writes a row of the former, given √a₁.
    fn write_exact(&self, out: &mut RowsMut<'_, T>, mut linear: impl FnMut(usize, f64, &mut [T])) -> Option<usize> {
        let mut bad = None;
        for row in 0..out.rows() {
            let features = out.row_mut(row);
            features[self.zeros.clone()].fill(T::ZERO);
            if let Some((start, root)) = self.linear {
                let features = &mut features[start..][..self.dim];
                linear(row, root, features);
                if bad.is_none() && features.iter().any(|value| !value.is_finite()) {
                    bad = Some(row);
                }
            }
        }
        bad
    }

    /// Gaussian kernels: every term sees rows of its own.
    fn gaussian_block(
        &self,
        input: &Input<'_, T>,
        first: usize,
        out: &mut RowsMut<'_, T>,
        rate: f64,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        let rows = out.rows();
        let Scratch { terms, prepared } = scratch;
        self.centre(input, first, rows, rate, prepared);
        let Prepared { centred, scaled, exponents } = prepared;
        let factor = |row: usize, degree: f64| libm::exp(-exponents[row] / degree);
        let mut bad = self.write_exact(out, |row, root, to| {
            let factor = root * factor(row, 1.0);
            let from = &centred[row * self.dim..][..self.dim];
            self.arch.dispatch(Scale { from, factor, to });
        });
        if let Some(root) = self.constant {
            (0..rows).for_each(|row| out.row_mut(row)[0] = T::from_f64(root * factor(row, 1.0)));
        }
        for (term, scratch) in self.terms.iter().zip(terms) {
            for ((row, to), u) in
                scaled.chunks_exact_mut(self.dim).take(rows).enumerate().zip(centred.chunks_exact(self.dim))
            {
                let factor = T::from_f64(factor(row, term.degree as f64));
                to.iter_mut().zip(u).for_each(|(to, &u)| *to = u * factor);
            }
            let table = table(scaled, rows, self.dim);
            let part = out.columns_in(&term.columns);
            bad = [bad, term.product.block(&[table.into()], 0, part, streamed, scratch)].into_iter().flatten().min();
        }
        bad.map(|row| first + row)
    }

    /// As [`Maclaurin::gaussian_block`] for sparse rows without a centre, which stay sparse.
    fn sparse_block(
        &self,
        input: &Input<'_, T>,
        first: usize,
        out: &mut RowsMut<'_, T>,
        rate: f64,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        let rows: Vec<usize> = (first..first + out.rows()).collect();
        let taken = OwnedRows::take(input, &rows);
        let Input::Sparse(sparse) = taken.view() else { unreachable!("sparse rows stay sparse") };
        // Entries of a column that occurs twice are one.
        let exponent = |row: usize| {
            let mut entries: Vec<(usize, f64)> =
                sparse.row(row).map(|(column, value)| (column, value.to_f64())).collect();
            entries.sort_by_key(|&(column, _)| column);
            let sums = entries.chunk_by(|a, b| a.0 == b.0).map(|same| same.iter().map(|(_, value)| value).sum::<f64>());
            0.5 * rate * sums.map(|value| value * value).sum::<f64>()
        };
        let exponents: Vec<f64> = (0..rows.len()).map(exponent).collect();
        let factor = |row: usize, degree: f64| libm::exp(-exponents[row] / degree);
        let mut bad = self.write_exact(out, |row, root, to| {
            let factor = T::from_f64(root * factor(row, 1.0));
            to.fill(T::ZERO);
            sparse.row(row).for_each(|(column, value)| to[column] += value * factor);
        });
        if let Some(root) = self.constant {
            (0..rows.len()).for_each(|row| out.row_mut(row)[0] = T::from_f64(root * factor(row, 1.0)));
        }
        for (term, scratch) in self.terms.iter().zip(&mut scratch.terms) {
            let scaled = taken.scaled(|row| T::from_f64(factor(row, term.degree as f64)));
            let part = out.columns_in(&term.columns);
            bad = [bad, term.product.block(&[scaled.view()], 0, part, streamed, scratch)].into_iter().flatten().min();
        }
        bad.map(|row| first + row)
    }

    /// Kernels without a factor g: terms see the rows as they are.
    fn plain_block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        out: &mut RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        let mut bad = self.write_exact(out, |row, root, to| {
            let root = T::from_f64(root);
            crate::lanes::load_row(&inputs[0], first + row, [root, T::ZERO], to);
        });
        if let Some(root) = self.constant {
            (0..out.rows()).for_each(|row| out.row_mut(row)[0] = T::from_f64(root));
        }
        bad = bad.map(|row| first + row);
        for (term, scratch) in self.terms.iter().zip(&mut scratch.terms) {
            let part = out.columns_in(&term.columns);
            bad = [bad, term.product.block(inputs, first, part, streamed, scratch)].into_iter().flatten().min();
        }
        bad
    }
}

/// Writes x − c, of x where it is or elsewhere, and returns ‖x − c‖², in as many sums as there are lanes: always in the same order.
struct Centre<'a, T> {
    from: Option<&'a [T]>,
    centre: Option<&'a [f64]>,
    to: &'a mut [T],
}

impl<T: Scalar> WithSimd for Centre<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let Self { from, centre, to } = self;
        if let Some(from) = from {
            to.copy_from_slice(from);
        }
        if let Some(centre) = centre {
            for (value, centre) in to.iter_mut().zip(centre) {
                *value = T::from_f64(value.to_f64() - centre);
            }
        }
        let mut sums = [0.0; LANES];
        let (whole, rest) = to.as_chunks::<LANES>();
        for lane in whole {
            for at in 0..LANES {
                sums[at] += lane[at].to_f64() * lane[at].to_f64();
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum += value.to_f64() * value.to_f64();
        }
        sums.iter().sum()
    }
}

/// Writes a multiple of a row.
struct Scale<'a, T> {
    from: &'a [T],
    factor: f64,
    to: &'a mut [T],
}

impl<T: Scalar> WithSimd for Scale<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = T::from_f64(self.factor * from.to_f64());
        }
    }
}

/// The first rows of a buffer as a table.
fn table<T>(values: &[T], rows: usize, columns: usize) -> Rows<'_, T> {
    Rows::new(&values[..rows * columns], rows, columns).unwrap_or_else(|_| unreachable!("the length fits"))
}

impl<T: Scalar> Tiled<T> for Maclaurin<T> {
    type Scratch = Scratch<T>;
    type AdjointScratch = AdjointScratch<T>;

    fn tiles_per_block(&self) -> usize {
        self.terms.iter().map(|term| Tiled::tiles_per_block(&term.product)).max().unwrap_or(TILES)
    }

    fn scratch(&self, rows: usize) -> Scratch<T> {
        Scratch {
            terms: self.terms.iter().map(|term| term.product.scratch(rows)).collect(),
            prepared: self.prepared(rows),
        }
    }

    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut Scratch<T>,
    ) -> Option<usize> {
        let bad = match (self.rate, &inputs[0]) {
            (None, _) => self.plain_block(inputs, first, &mut out, streamed, scratch),
            (Some(rate), input @ Input::Sparse(_)) if self.centre.is_none() => {
                self.sparse_block(input, first, &mut out, rate, streamed, scratch)
            }
            (Some(rate), input) => self.gaussian_block(input, first, &mut out, rate, streamed, scratch),
        };
        if streamed {
            simd::fence();
        }
        bad
    }

    fn adjoint_bytes(&self) -> Option<u64> {
        let rows = u64::try_from(self.dim.checked_mul(LANES * (3 * size_of::<T>() + 8))?).ok()?;
        self.terms.iter().try_fold(rows, |sum, term| sum.checked_add(Tiled::adjoint_bytes(&term.product)?))
    }

    fn adjoint_scratch(&self) -> AdjointScratch<T> {
        AdjointScratch {
            terms: self.terms.iter().map(|term| term.product.adjoint_scratch()).collect(),
            prepared: Prepared {
                centred: vec![T::ZERO; LANES * self.dim],
                scaled: vec![T::ZERO; LANES * self.dim],
                exponents: vec![0.0; LANES],
            },
            part: vec![T::ZERO; LANES * self.dim],
            sum: vec![0.0; LANES * self.dim],
        }
    }

    /// # Formula
    /// Let v be the gradient of a term with respect to s u with s = g^{1/n}, the row it sees. With respect to x it is s(v − u⟨u, v⟩/(nℓ²)). The linear
    /// term is that of n = 1 with v = √a₁ times its cotangent, and the constant adds −√a₀ g u/ℓ² times its own.
    fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        AdjointScratch { terms, prepared, part, sum }: &mut AdjointScratch<T>,
    ) -> Option<usize> {
        let (dim, out) = (self.dim, &mut gradients[0]);
        let rows = out.rows();
        let cotangent = cotangent.slice(first..first + rows);
        let rate = self.rate.unwrap_or(0.0);
        self.centre(&inputs[0], first, rows, rate, prepared);
        let Prepared { centred, scaled, exponents } = prepared;
        let sum = &mut sum[..rows * dim];
        sum.fill(0.0);
        // Adds the gradient of one term for one row; `v(column)` is that with respect to s u.
        let mut add = |row: usize, degree: f64, v: &dyn Fn(usize) -> f64| {
            let u = &centred[row * dim..][..dim];
            let factor = libm::exp(-exponents[row] / degree);
            let along = if rate > 0.0 {
                u.iter().enumerate().map(|(column, u)| u.to_f64() * v(column)).sum::<f64>()
            } else {
                0.0
            };
            for (column, sum) in sum[row * dim..][..dim].iter_mut().enumerate() {
                *sum += factor * (v(column) - u[column].to_f64() * along * rate / degree);
            }
        };
        for row in 0..rows {
            let cotangent = cotangent.row(row);
            if let Some((start, root)) = self.linear {
                add(row, 1.0, &|column| root * cotangent[start + column].to_f64());
            }
        }
        for (term, scratch) in self.terms.iter().zip(terms) {
            let degree = term.degree as f64;
            for ((row, to), u) in scaled.chunks_exact_mut(dim).take(rows).enumerate().zip(centred.chunks_exact(dim)) {
                let factor = T::from_f64(libm::exp(-exponents[row] / degree));
                to.iter_mut().zip(u).for_each(|(to, &u)| *to = u * factor);
            }
            let part = &mut part[..rows * dim];
            let Ok(gradient) = RowsMut::new(part, rows, dim) else { unreachable!("the length fits") };
            let seen = [table(scaled, rows, dim).into()];
            term.product.adjoint_tile(&seen, 0, &cotangent.columns_in(&term.columns), &mut [gradient], scratch);
            for row in 0..rows {
                let v = &part[row * dim..][..dim];
                add(row, degree, &|column| v[column].to_f64());
            }
        }
        for row in 0..rows {
            let of_constant = self
                .constant
                .map_or(0.0, |root| -root * rate * libm::exp(-exponents[row]) * cotangent.row(row)[0].to_f64());
            let u = &centred[row * dim..][..dim];
            let total =
                sum[row * dim..][..dim].iter().zip(u).map(|(sum, u)| T::from_f64(sum + of_constant * u.to_f64()));
            out.row_mut(row).iter_mut().zip(total).for_each(|(to, total)| *to = total);
        }
        first_not_finite(out).map(|row| first + row)
    }
}
