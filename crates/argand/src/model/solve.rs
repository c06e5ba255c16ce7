//! Factorisations shared by the models.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{BlockStructure, matmul as triangular_matmul};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};
use rayon::prelude::*;

use super::archive::Archive;
use super::gram::Triangle;
use crate::error::{Error, FileFault};
use crate::rows::Rows;

/// A = LLᵀ.
#[derive(Debug, Clone)]
pub(crate) struct Cholesky {
    lower: Mat<f64>,
}

impl Cholesky {
    /// Factors a matrix of which only the lower triangle is read.
    ///
    /// # Errors
    /// [`Error::Singular`] if it is not positive definite, or so nearly not that its solutions would have no correct digit.
    pub(crate) fn new(mut matrix: Mat<f64>, what: &str, advice: &'static str) -> Result<Self, Error> {
        let size = matrix.nrows();
        let diagonal = |matrix: &Mat<f64>| (0..size).map(|i| matrix[(i, i)]).fold(0.0, f64::max);
        let largest = diagonal(&matrix);
        let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(size, Par::Seq, Default::default()));
        let done = cholesky_in_place(
            matrix.as_mut(),
            Default::default(),
            Par::Seq,
            MemStack::new(&mut memory),
            Default::default(),
        );
        let pivots = (0..size).map(|i| matrix[(i, i)]).fold(f64::INFINITY, f64::min);
        // A pivot that is not a number is no larger than anything.
        let regular = pivots * pivots > f64::EPSILON * largest;
        if done.is_err() || !regular {
            return Err(Error::Singular { what: what.to_owned(), advice });
        }
        Ok(Self { lower: matrix })
    }

    /// As [`Cholesky::new`] for a matrix with eigenvalues of at least `floor`, but for rounding: where that
    /// has made it indefinite, the eigenvalues below are lifted to `floor`, which gives the nearest matrix of the kind.
    pub(crate) fn with_floor(
        matrix: impl Fn() -> Mat<f64>,
        floor: f64,
        what: &str,
        advice: &'static str,
    ) -> Result<Self, Error> {
        let singular = match Self::new(matrix(), what, advice) {
            Ok(factor) => return Ok(factor),
            Err(singular) => singular,
        };
        let Ok(decomposed) = matrix().self_adjoint_eigen(Side::Lower) else { return Err(singular) };
        let mut scaled = decomposed.U().to_owned();
        for (column, &value) in scaled.col_iter_mut().zip(decomposed.S().column_vector().iter()) {
            column.iter_mut().for_each(|entry| *entry *= value.max(floor).sqrt());
        }
        Self::new(&scaled * scaled.transpose(), what, advice)
    }

    /// L⁻¹b and A⁻¹b.
    pub(crate) fn solve(&self, right: &[f64]) -> [Vec<f64>; 2] {
        let mut values = Mat::from_fn(right.len(), 1, |row, _| right[row]);
        solve_lower_triangular_in_place(self.lower.as_ref(), values.as_mut(), Par::Seq);
        let half = values.col(0).iter().copied().collect();
        solve_upper_triangular_in_place(self.lower.transpose(), values.as_mut(), Par::Seq);
        [half, values.col(0).iter().copied().collect()]
    }

    /// bᵀA⁻¹b, A⁻¹b and log det A.
    pub(crate) fn solved(&self, right: &[f64]) -> Solved {
        let [half, solution] = self.solve(right);
        Solved { explained: square(&half), solution, log_determinant: self.log_determinant() }
    }

    /// As [`Cholesky::solved`] for A + wΦᵀΦ with the few rows of Φ, and what [`RowUpdate`] says; nothing if rounding has
    /// made I + wΦA⁻¹Φᵀ indefinite.
    ///
    /// # Formula
    /// With U = √w L⁻¹Φᵀ, I + UᵀU = RRᵀ and T = R⁻¹Uᵀ: (A + wΦᵀΦ)⁻¹ = L⁻ᵀ(I − TᵀT)L⁻¹ and
    /// log det(A + wΦᵀΦ) = log det A + log det(I + UᵀU).
    ///
    /// # Cost
    /// nD²/2 + n²D + n³/6 multiplications.
    pub(crate) fn with_rows(&self, rows: &[f32], weight: f64, right: &[f64]) -> Option<(Solved, RowUpdate)> {
        let dim = self.lower.nrows();
        let (count, root) = (rows.len() / dim, weight.sqrt());
        // The right-hand side is one more column.
        let columns = rows.iter().map(|&value| root * f64::from(value)).chain(right.iter().copied());
        let mut values: Vec<f64> = columns.collect();
        let together = MatMut::from_column_major_slice_mut(&mut values, dim, count + 1);
        solve_lower_triangular_in_place(self.lower.as_ref(), together, Par::Seq);
        let half = values.split_off(rows.len());
        let mut inner = Mat::<f64>::identity(count, count);
        let along = MatRef::from_column_major_slice(&values, dim, count);
        triangular_matmul(
            inner.as_mut(),
            BlockStructure::TriangularLower,
            Accum::Add,
            along.transpose(),
            BlockStructure::Rectangular,
            along,
            BlockStructure::Rectangular,
            1.0,
            Par::Seq,
        );
        let inner = Self::new(inner, "", "").ok()?;
        let transposed = MatMut::from_row_major_slice_mut(&mut values, count, dim);
        solve_lower_triangular_in_place(inner.lower.as_ref(), transposed, Par::Seq);
        let update = RowUpdate { dim, values };
        let half = MatRef::from_column_major_slice(&half, dim, 1);
        let (mut along, mut rest) = (Mat::zeros(count, 1), half.to_owned());
        matmul(along.as_mut(), Accum::Replace, update.matrix(), half, 1.0, Par::Seq);
        matmul(rest.as_mut(), Accum::Add, update.matrix().transpose(), along.as_ref(), -1.0, Par::Seq);
        let explained = half.squared_norm_l2() - along.squared_norm_l2();
        solve_upper_triangular_in_place(self.lower.transpose(), rest.as_mut(), Par::Seq);
        let solution = rest.col(0).iter().copied().collect();
        let log_determinant = self.log_determinant() + inner.log_determinant();
        Some((Solved { explained, solution, log_determinant }, update))
    }

    /// log det A
    pub(crate) fn log_determinant(&self) -> f64 {
        2.0 * (0..self.lower.nrows()).map(|i| self.lower[(i, i)].ln()).sum::<f64>()
    }

    /// ‖L⁻¹b‖² of every column of a matrix, which is used up.
    pub(crate) fn norms(&self, mut right: Mat<f64>) -> Vec<f64> {
        solve_lower_triangular_in_place(self.lower.as_ref(), right.as_mut(), Par::Seq);
        right.col_iter().map(|column| column.squared_norm_l2()).collect()
    }

    /// L divided by a number, to be kept.
    pub(crate) fn packed(&self, divisor: f64) -> PackedFactor {
        let dim = self.lower.nrows();
        let rows = (0..dim).flat_map(|row| (0..=row).map(move |column| (row, column)));
        PackedFactor { dim, values: rows.map(|at| self.lower[at] / divisor).collect() }
    }
}

/// What is known of a system Ax = b once it is solved.
pub(crate) struct Solved {
    /// bᵀA⁻¹b
    pub(crate) explained: f64,
    /// A⁻¹b
    pub(crate) solution: Vec<f64>,
    /// log det A
    pub(crate) log_determinant: f64,
}

fn square(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum()
}

/// The T of [`Cholesky::with_rows`], row by row: for its A = LLᵀ, φᵀ(A + wΦᵀΦ)⁻¹φ = ‖L⁻¹φ‖² − ‖T L⁻¹φ‖².
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowUpdate {
    dim: usize,
    values: Vec<f64>,
}

impl RowUpdate {
    fn matrix(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice(&self.values, self.rows(), self.dim)
    }

    pub(crate) fn rows(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Appends updates to an archive.
    pub(crate) fn save<'a>(updates: impl Iterator<Item = &'a Self>, archive: Archive) -> Archive {
        archive.with_f64("updates", updates.flat_map(|update| &update.values).copied().collect())
    }

    /// Updates by so many rows each that [`save`](Self::save) wrote.
    pub(crate) fn load(archive: &mut Archive, rows: &[usize], dim: usize) -> Result<Vec<Self>, Error> {
        let count = rows.iter().try_fold(0_usize, |sum, &rows| sum.checked_add(rows));
        let values =
            archive.take_f64("updates", count.and_then(|count| count.checked_mul(dim)).ok_or_else(too_large)?)?;
        // All singular values of T are below 1.
        if values.chunks_exact(dim).any(|row| square(row) >= 1.0) {
            return Err(Error::Archive(FileFault::Content(
                "an update by rows has more than the variance there is".to_owned(),
            )));
        }
        let mut rest = &values[..];
        let update = |&rows: &usize| {
            let values;
            (values, rest) = rest.split_at(rows * dim);
            Self { dim, values: values.to_vec() }
        };
        Ok(rows.iter().map(update).collect())
    }
}

fn too_large() -> Error {
    Error::Archive(FileFault::Content("its header claims more than any memory".to_owned()))
}

/// A lower triangular matrix L, row by row: φᵀ(LLᵀ)⁻¹φ is a variance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackedFactor {
    dim: usize,
    values: Vec<f64>,
}

/// Rows whose variances are computed together.
const VARIANCE_ROWS: usize = 256;

impl PackedFactor {
    /// ‖L⁻¹φ‖² of every row φ; then, for every update, what is left of them.
    pub(crate) fn variances(&self, features: Rows<'_, f32>, updates: &[&RowUpdate]) -> Vec<Vec<f64>> {
        let mut lower = Mat::<f64>::zeros(self.dim, self.dim);
        let mut rest = &self.values[..];
        for row in 0..self.dim {
            let values;
            (values, rest) = rest.split_at(row + 1);
            values.iter().enumerate().for_each(|(column, &value)| lower[(row, column)] = value);
        }
        let starts: Vec<usize> = (0..features.rows()).step_by(VARIANCE_ROWS).collect();
        let blocks = starts.into_par_iter().map(|start| {
            let count = VARIANCE_ROWS.min(features.rows() - start);
            let mut right = Mat::from_fn(self.dim, count, |i, row| f64::from(features.row(start + row)[i]));
            solve_lower_triangular_in_place(lower.as_ref(), right.as_mut(), Par::Seq);
            let norms: Vec<f64> = right.col_iter().map(|column| column.squared_norm_l2()).collect();
            let left = updates.par_iter().map(|update| {
                let mut along = Mat::<f64>::zeros(update.rows(), count);
                matmul(along.as_mut(), Accum::Replace, update.matrix(), right.as_ref(), 1.0, Par::Seq);
                let explained = along.col_iter().map(|column| column.squared_norm_l2());
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

    /// `count` factors that [`save`](Self::save) wrote.
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

/// Eigenvalues below this share of the largest are rounding: that of features to f32 is about its square, 10⁻¹⁴.
const ROUNDING: f64 = 1e-12;

/// A = QEQᵀ with ascending eigenvalues.
#[derive(Debug, Clone)]
pub(crate) struct Eigen {
    pub(crate) values: Vec<f64>,
    pub(crate) vectors: Mat<f64>,
}

impl Eigen {
    /// Of A − b bᵀ with A from a Gram; eigenvalues of no more than rounding count as zeros.
    pub(crate) fn new(triangle: &Triangle, centre: Option<&[f64]>) -> Result<Self, Error> {
        let mut matrix = triangle.combine(1.0, None, 0.0);
        let size = matrix.nrows();
        if let Some(centre) = centre {
            for column in 0..size {
                for row in column..size {
                    matrix[(row, column)] -= centre[row] * centre[column];
                }
            }
        }
        let decomposed = matrix.self_adjoint_eigen(Side::Lower).map_err(|_| Error::Singular {
            what: "the Gram matrix".to_owned(),
            advice: "its eigenvalues did not converge; scale the rows",
        })?;
        let mut values: Vec<f64> = decomposed.S().column_vector().iter().copied().collect();
        let largest = values.last().copied().unwrap_or(0.0);
        let rounding = ROUNDING * largest;
        values.iter_mut().filter(|value| **value < rounding).for_each(|value| *value = 0.0);
        Ok(Self { values, vectors: decomposed.U().to_owned() })
    }

    /// Qᵀb
    pub(crate) fn rotate(&self, vector: &[f64]) -> Vec<f64> {
        self.vectors.col_iter().map(|column| column.iter().zip(vector).map(|(q, value)| q * value).sum()).collect()
    }

    /// Qz
    pub(crate) fn rotate_back(&self, vector: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; vector.len()];
        for (column, &factor) in self.vectors.col_iter().zip(vector) {
            sum.iter_mut().zip(column.iter()).for_each(|(sum, q)| *sum += factor * q);
        }
        sum
    }
}

/// Checks that solutions are numbers: sums of huge features overflow.
pub(crate) fn check_finite(solution: &[f64]) -> Result<(), Error> {
    if solution.iter().all(|value| value.is_finite()) {
        return Ok(());
    }
    Err(Error::Singular { what: "a system of numbers this large".to_owned(), advice: "scale the rows" })
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

/// Σ φ w in f64, in sixteen partial sums that a compiler can compute side by side.
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
    use crate::model::gram::tests::problem;

    /// [[2, 1], [1, 0]] has the eigenvalues 1 ± √2: the negative one is lifted, the other stays.
    #[test]
    fn eigenvalues_are_lifted_to_the_floor() {
        let matrix = || Mat::from_fn(2, 2, |i, j| [[2.0, 1.0], [1.0, 0.0]][i][j]);
        assert!(Cholesky::new(matrix(), "A", "").is_err());
        let lower = Cholesky::with_floor(matrix, 0.5, "A", "").unwrap().lower;
        let [a, b, c] = [lower[(0, 0)], lower[(1, 0)], lower[(1, 1)]];
        let [trace, determinant] = [a * a + b * b + c * c, (a * c).powi(2)];
        let large = 1.0 + 2_f64.sqrt();
        assert!((trace - (large + 0.5)).abs() < 1e-12 && (determinant - large * 0.5).abs() < 1e-12);
        // One that is definite is left alone, whatever the floor.
        let identity = Cholesky::with_floor(|| Mat::identity(2, 2), 9.0, "A", "").unwrap();
        assert!((identity.lower[(0, 0)] - 1.0).abs() < 1e-15);
    }
    use crate::model::{Gram, Labels, Targets};

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
            let factor = Cholesky::new(matrix.clone(), "A", "").unwrap();
            let right: Vec<f64> = (0..dim).map(|i| (i as f64).sin()).collect();
            let [half, solution] = factor.solve(&right);
            for (i, right) in right.iter().enumerate() {
                let residual = (0..dim).map(|j| full(i, j) * solution[j]).sum::<f64>() - right;
                assert!(residual.abs() < 1e-10, "{residual}");
            }
            let quadratic: f64 = right.iter().zip(&solution).map(|(a, b)| a * b).sum();
            assert!((half.iter().map(|v| v * v).sum::<f64>() - quadratic).abs() < 1e-10 * quadratic.abs());
            let rows = Rows::new(&features, 400, dim).unwrap();
            let variances = &factor.packed(2.0).variances(rows, &[])[0];
            for row in [0, 255, 256, 399] {
                let phi: Vec<f64> = rows.row(row).iter().map(|&value| f64::from(value)).collect();
                let [_, solution] = factor.solve(&phi);
                let want = 4.0 * phi.iter().zip(&solution).map(|(a, b)| a * b).sum::<f64>();
                assert!((variances[row] - want).abs() < 1e-4 * want, "{} {want}", variances[row]);
            }
        }
    }

    /// What rounding has made indefinite, or is no number, is nothing to solve with.
    #[test]
    fn rows_that_make_no_sense_are_refused() {
        let (gram, features) = gram(100, 14);
        let factor = Cholesky::new(gram.total().combine(1.0, None, 1.0), "A", "").unwrap();
        assert!(factor.with_rows(&features[..42], 0.5, &[1.0; 14]).is_some());
        for weight in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(factor.with_rows(&features[..42], weight, &[1.0; 14]).is_none());
        }
    }

    #[test]
    fn eigenvectors_rebuild_the_matrix() {
        let (gram, _) = gram(100, 14);
        let centre: Vec<f64> = gram.feature_sums().iter().map(|sum| sum / 10.0).collect();
        let eigen = Eigen::new(gram.total(), Some(&centre)).unwrap();
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
        let error = Cholesky::new(gram.total().combine(1.0, None, 0.0), "the matrix", "add something").unwrap_err();
        assert_eq!(error.to_string(), "the matrix is singular to working precision; add something");
        let eigen = Eigen::new(gram.total(), None).unwrap();
        assert_eq!(eigen.values.iter().filter(|&&value| value > 0.0).count(), 5);
    }
}
