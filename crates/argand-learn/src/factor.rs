//! Factorisations shared by models: made from the sums of a Gram, kept in files, and used for variances.

use argand::{Advice, Argument, Error, FileFault, Input, Rows};
use argand_linalg::{Cholesky, Eigen, Matrix, RankUpdate, Solved, product};
use rayon::prelude::*;

use crate::archive::Archive;
use crate::blocks::SOLVED_ROWS;
use crate::engine::Engine;
use crate::gram::Triangle;

/// A = LLᵀ; the error names A as `what`, and says what helps.
///
/// # Errors
/// [`Error::Singular`]
pub(crate) fn cholesky(matrix: Matrix, what: &str, advice: Advice) -> Result<Cholesky, Error> {
    Cholesky::new(matrix).map_err(|_| Error::Singular { what: what.to_owned(), advice })
}

/// As [`cholesky`] for a matrix whose eigenvalues are at least `floor`, up to rounding.
///
/// # Errors
/// [`Error::Singular`]
pub(crate) fn cholesky_with_floor(
    matrix: impl Fn() -> Matrix,
    floor: f64,
    what: &str,
    advice: Advice,
) -> Result<Cholesky, Error> {
    Cholesky::with_floor(matrix, floor).map_err(|_| Error::Singular { what: what.to_owned(), advice })
}

/// Appends updates to an archive.
pub(crate) fn save_updates<'a>(updates: impl Iterator<Item = &'a RankUpdate>, archive: Archive) -> Archive {
    archive.with_f64("updates", updates.flat_map(RankUpdate::values).copied().collect())
}

/// Reads the updates of these ranks written by [`save_updates`].
pub(crate) fn load_updates(archive: &mut Archive, ranks: &[usize], dim: usize) -> Result<Vec<RankUpdate>, Error> {
    let count = ranks.iter().try_fold(0_usize, |sum, &rank| sum.checked_add(rank));
    let values = archive.take_f64("updates", count.and_then(|count| count.checked_mul(dim)).ok_or_else(too_large)?)?;
    // All singular values of T are below 1.
    if values.chunks_exact(dim).any(|row| row.iter().map(|value| value * value).sum::<f64>() >= 1.0) {
        return Err(Error::Archive(FileFault::Content("an update explains more than all of the variance".to_owned())));
    }
    let mut rest = &values[..];
    let update = |&rank: &usize| {
        let values;
        (values, rest) = rest.split_at(rank * dim);
        RankUpdate::from_rows(dim, values.to_vec())
    };
    Ok(ranks.iter().map(update).collect())
}

/// The error for a header whose lengths overflow when multiplied.
pub(crate) fn too_large() -> Error {
    Error::Archive(FileFault::Content("the header claims more than any memory holds".to_owned()))
}

/// A lower triangular matrix L, row by row: φᵀ(LLᵀ)⁻¹φ is a variance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackedFactor {
    dim: usize,
    values: Vec<f64>,
}

impl PackedFactor {
    /// L divided by a number, from a matrix.
    pub(crate) fn new(factor: &Cholesky, divisor: f64) -> Self {
        let (lower, dim) = (factor.lower(), factor.lower().rows());
        let places = (0..dim).flat_map(|row| (0..=row).map(move |column| (row, column)));
        Self { dim, values: places.map(|at| lower[at] / divisor).collect() }
    }

    /// The factor of a matrix, packed, on an engine; nothing if it is not positive definite, by the measure of [`Cholesky::new`].
    pub(crate) fn on(engine: &dyn Engine, dim: usize, mut packed: Vec<f64>) -> Result<Option<Self>, Error> {
        let diagonal = |packed: &[f64]| (0..dim).map(|row| packed[row * (row + 3) / 2]).collect::<Vec<_>>();
        let largest = diagonal(&packed).into_iter().fold(0.0, f64::max);
        engine.cholesky(dim, &mut packed)?;
        // A NaN fails every comparison.
        let regular = diagonal(&packed).into_iter().all(|pivot| pivot * pivot > f64::EPSILON * largest);
        Ok(regular.then_some(Self { dim, values: packed }))
    }

    /// Row by row.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// L divided by a number.
    pub(crate) fn divided(mut self, divisor: f64) -> Self {
        self.values.par_iter_mut().with_min_len(1 << 14).for_each(|value| *value /= divisor);
        self
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * (row + 1) / 2..][..=row]
    }

    /// As [`Cholesky::solved`].
    pub(crate) fn solved(&self, right: &[f64]) -> Solved {
        let mut half = Vec::with_capacity(self.dim);
        for (row, right) in right.iter().enumerate() {
            let (pivot, before) = self.row(row).split_last().unwrap_or_else(|| unreachable!("rows have a pivot"));
            let known: f64 = before.iter().zip(&half).map(|(entry, value)| entry * value).sum();
            half.push((right - known) / pivot);
        }
        let mut solution = half.clone();
        for row in (0..self.dim).rev() {
            let (pivot, before) = self.row(row).split_last().unwrap_or_else(|| unreachable!("rows have a pivot"));
            let value = solution[row] / pivot;
            solution[row] = value;
            solution.iter_mut().zip(before).for_each(|(other, entry)| *other -= entry * value);
        }
        let log_determinant = 2.0 * (0..self.dim).map(|row| self.row(row)[row].ln()).sum::<f64>();
        Solved { explained: half.iter().map(|value| value * value).sum(), solution, log_determinant }
    }

    /// L as a whole matrix.
    pub(crate) fn cholesky(&self) -> Cholesky {
        let mut lower = Matrix::zeros(self.dim, self.dim);
        for row in 0..self.dim {
            self.row(row).iter().enumerate().for_each(|(column, &value)| lower[(row, column)] = value);
        }
        Cholesky::from_lower(lower)
    }

    /// ‖L⁻¹φ‖² of every row φ; then the remainder after every update.
    pub(crate) fn variances(&self, features: Rows<'_, f32>, updates: &[&RankUpdate]) -> Vec<Vec<f64>> {
        let factor = self.cholesky();
        let starts: Vec<usize> = (0..features.rows()).step_by(SOLVED_ROWS).collect();
        let blocks = starts.into_par_iter().map(|start| {
            let count = SOLVED_ROWS.min(features.rows() - start);
            let mut right = Matrix::from_fn(self.dim, count, |i, row| f64::from(features.row(start + row)[i]));
            factor.solve_lower(right.view_mut());
            let norms = right.squared_norms();
            let left = updates.par_iter().map(|update| {
                let mut along = Matrix::zeros(update.rank(), count);
                product(along.view_mut(), update.view(), right.view(), 1.0);
                let explained = along.squared_norms();
                norms.iter().zip(explained).map(|(norm, explained)| (norm - explained).max(0.0)).collect()
            });
            let mut left: Vec<Vec<f64>> = left.collect();
            left.insert(0, norms);
            left
        });
        let blocks: Vec<_> = blocks.collect();
        (0..=updates.len()).map(|which| blocks.iter().flat_map(|block| &block[which]).copied().collect()).collect()
    }

    /// Appends factors to an archive.
    pub(crate) fn save<'a>(name: &str, factors: impl IntoIterator<Item = &'a Self>, archive: Archive) -> Archive {
        archive.with_f64(name, factors.into_iter().flat_map(|factor| &factor.values).copied().collect())
    }

    /// Reads `count` factors written by [`save`](Self::save).
    pub(crate) fn load(archive: &mut Archive, name: &str, count: usize, dim: usize) -> Result<Vec<Self>, Error> {
        let size = dim.checked_add(1).and_then(|next| dim.checked_mul(next)).ok_or_else(too_large)? / 2;
        let values = archive.take_f64(name, size.checked_mul(count).ok_or_else(too_large)?)?;
        let factor = |values: &[f64]| Self { dim, values: values.to_vec() };
        let factors: Vec<_> = values.chunks_exact(size).map(factor).collect();
        let diagonal = |factor: &Self| (0..dim).all(|row| factor.values[row * (row + 3) / 2] > 0.0);
        if !factors.iter().all(diagonal) {
            return Err(Error::Archive(FileFault::Content("a factor has a diagonal that is not positive".to_owned())));
        }
        Ok(factors)
    }
}

/// Eigenvalues below this share of the largest are rounding: features rounded to f32 contribute about ε² = 10⁻¹⁴.
const ROUNDING: f64 = 1e-12;

/// What rounding does to the eigenvalues of A − b bᵀ: the sums in A, and their differences, are rounded in proportion to the diagonal of b bᵀ.
pub(crate) fn rounding_of_centring(centre: &[f64]) -> f64 {
    8.0 * f64::EPSILON * centre.iter().map(|entry| entry * entry).sum::<f64>()
}

/// The lower triangle of A − b bᵀ + λI with A from a Gram.
pub(crate) fn centred(triangle: &Triangle, centre: &[f64], lambda: f64) -> Matrix {
    let mut matrix = triangle.combine(1.0, None, lambda);
    for column in 0..matrix.columns() {
        for row in column..matrix.rows() {
            matrix[(row, column)] -= centre[row] * centre[column];
        }
    }
    matrix
}

/// The eigenvalues and eigenvectors of A − b bᵀ with A from a Gram; eigenvalues within rounding count as zero.
pub(crate) fn eigen(triangle: &Triangle, centre: Option<&[f64]>) -> Result<Eigen, Error> {
    match centre {
        Some(centre) => eigen_of(&centred(triangle, centre, 0.0), rounding_of_centring(centre)),
        None => eigen_of(&triangle.combine(1.0, None, 0.0), 0.0),
    }
}

/// The eigenvalues and eigenvectors of the lower triangle of a matrix; eigenvalues within its rounding count as zero.
pub(crate) fn eigen_of(matrix: &Matrix, rounding: f64) -> Result<Eigen, Error> {
    let mut eigen = Eigen::new(matrix)
        .map_err(|_| Error::Singular { what: "the Gram matrix".to_owned(), advice: Advice::Scale })?;
    let rounding = rounding.max(ROUNDING * eigen.values.last().copied().unwrap_or(0.0));
    eigen.values.iter_mut().filter(|value| **value < rounding).for_each(|value| *value = 0.0);
    Ok(eigen)
}

/// Checks the width of features and that they are finite.
pub(crate) fn check_features(features: Rows<'_, f32>, dim: usize) -> Result<(), Error> {
    if features.columns() != dim {
        return Err(Error::invalid(Argument::Features, format!("{dim} columns"), features.columns()));
    }
    Input::from(features).check_finite(Argument::Features)
}

/// Checks that solutions are finite: sums of huge features overflow.
pub(crate) fn check_finite(solution: &[f64]) -> Result<(), Error> {
    if solution.iter().all(|value| value.is_finite()) {
        return Ok(());
    }
    Err(Error::Singular { what: "a system of numbers this large".to_owned(), advice: Advice::Scale })
}

/// φᵀw + b for every row and every column of weights, row by row.
///
/// `weights` hold one column after another, `offsets` one number for each.
pub(crate) fn linear(features: Rows<'_, f32>, weights: &[f64], offsets: &[f64]) -> Vec<f64> {
    let dim = features.columns();
    let mut out = vec![0.0; features.rows() * offsets.len()];
    out.par_chunks_mut(offsets.len()).enumerate().with_min_len(16).for_each(|(row, out)| {
        let features = features.row(row);
        for ((out, weights), offset) in out.iter_mut().zip(weights.chunks(dim)).zip(offsets) {
            *out = offset + dot(features, weights);
        }
    });
    out
}

/// Σ φ w in f64, in sixteen partial sums that a compiler can vectorise.
fn dot(features: &[f32], weights: &[f64]) -> f64 {
    const SUMS: usize = 16;
    let mut sums = [0.0; SUMS];
    let (features, weights) = (features.chunks(SUMS), weights.chunks(SUMS));
    for (features, weights) in features.zip(weights) {
        for (sum, (&feature, weight)) in sums.iter_mut().zip(features.iter().zip(weights)) {
            *sum += f64::from(feature) * weight;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gram::tests::problem;
    use crate::{Gram, Labels, Targets};

    fn gram(rows: usize, dim: usize) -> (Gram, Vec<f32>) {
        let (recipe, features, labels) = problem(rows, dim, 2);
        let mut gram = Gram::new(&recipe, Targets::Classes(2)).unwrap();
        gram.update(Rows::new(&features, rows, dim).unwrap(), Labels::Classes(&labels)).unwrap();
        (gram, features)
    }

    #[test]
    fn residuals_are_small() {
        for dim in [2, 14, 130] {
            let (gram, features) = gram(400, dim);
            let matrix = gram.total().combine(1.0, None, 0.5);
            let full = |i: usize, j: usize| matrix[(i.max(j), i.min(j))];
            let factor = cholesky(matrix.clone(), "A", Advice::Scale).unwrap();
            let right: Vec<f64> = (0..dim).map(|i| (i as f64).sin()).collect();
            let [half, solution] = factor.solve(&right);
            for (i, right) in right.iter().enumerate() {
                let residual = (0..dim).map(|j| full(i, j) * solution[j]).sum::<f64>() - right;
                assert!(residual.abs() < 1e-10, "{residual}");
            }
            let quadratic: f64 = right.iter().zip(&solution).map(|(a, b)| a * b).sum();
            assert!((half.iter().map(|v| v * v).sum::<f64>() - quadratic).abs() < 1e-10 * quadratic.abs());
            let rows = Rows::new(&features, 400, dim).unwrap();
            let variances = &PackedFactor::new(&factor, 2.0).variances(rows, &[])[0];
            for row in [0, 255, 256, 399] {
                let phi: Vec<f64> = rows.row(row).iter().map(|&value| f64::from(value)).collect();
                let [_, solution] = factor.solve(&phi);
                let want = 4.0 * phi.iter().zip(&solution).map(|(a, b)| a * b).sum::<f64>();
                assert!((variances[row] - want).abs() < 1e-4 * want, "{} {want}", variances[row]);
            }
        }
    }

    #[test]
    fn eigenvectors_rebuild_the_matrix() {
        let (gram, _) = gram(100, 14);
        let centre: Vec<f64> = gram.feature_sums().iter().map(|sum| sum / 10.0).collect();
        let eigen = eigen(gram.total(), Some(&centre)).unwrap();
        let vector: Vec<f64> = (0..14).map(|i| f64::from(i) - 3.0).collect();
        let rotated: Vec<f64> = eigen.rotate(&vector).iter().zip(&eigen.values).map(|(a, b)| a * b).collect();
        let got = eigen.rotate_back(&rotated);
        let products = gram.products();
        for i in 0..14 {
            let want: f64 = (0..14).map(|j| (products[i * 14 + j] - centre[i] * centre[j]) * vector[j]).sum();
            assert!((got[i] - want).abs() < 1e-8, "{} {want}", got[i]);
        }
    }

    #[test]
    fn singular_matrices_are_errors() {
        let (gram, _) = gram(5, 14);
        let error = cholesky(gram.total().combine(1.0, None, 0.0), "the matrix", Advice::Scale).unwrap_err();
        assert_eq!(error.to_string(), "the matrix is singular to working precision; scale the rows");
        let eigen = eigen(gram.total(), None).unwrap();
        assert_eq!(eigen.values.iter().filter(|&&value| value > 0.0).count(), 5);
    }
}
