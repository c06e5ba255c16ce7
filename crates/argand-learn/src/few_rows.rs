//! Fewer rows n than features D: systems of n unknowns instead of D.

use argand::Error;
use argand_linalg::{Cholesky, Eigen, Matrix, View, product};
use rayon::prelude::*;

use crate::factor;

/// Φᵀ of centred features: a column for each row.
pub(crate) struct FewRows {
    columns: Matrix,
}

impl FewRows {
    /// From features, row by row, and their means.
    pub(crate) fn new(rows: &[f32], means: &[f64]) -> Self {
        let dim = means.len();
        let columns = Matrix::from_fn(dim, rows.len() / dim, |i, row| f64::from(rows[row * dim + i]) - means[i]);
        Self { columns }
    }

    /// (ΦᵀΦ + λI)⁻¹m for every m, one after another; nothing if λ is too small relative to the products for f64.
    ///
    /// # Formula
    /// (m − Φᵀ(ΦΦᵀ + λI)⁻¹Φm)/λ, then the same for what is left of m: the difference has lost digits where λ is small.
    pub(crate) fn solve(&self, moments: &[Vec<f64>], lambda: f64) -> Option<Vec<f64>> {
        let (phi, transposed) = (self.columns.view().transpose(), self.columns.view());
        let (dim, rows, targets) = (self.columns.rows(), self.columns.columns(), moments.len());
        let kernel = times(phi, transposed, rows, rows);
        let matrix = || {
            let mut matrix = kernel.clone();
            (0..rows).for_each(|row| matrix[(row, row)] += lambda);
            matrix
        };
        let factor = Cholesky::with_floor(matrix, lambda).ok()?;
        let mut solution = Matrix::zeros(dim, targets);
        let mut left = Matrix::from_fn(dim, targets, |i, target| moments[target][i]);
        for _ in 0..2 {
            let mut inner = times(phi, left.view(), rows, targets);
            factor.solve_lower(inner.view_mut());
            factor.solve_upper(inner.view_mut());
            let explained = times(transposed, inner.view(), dim, targets);
            for target in 0..targets {
                let sums =
                    solution.column_mut(target).iter_mut().zip(left.column(target)).zip(explained.column(target));
                sums.for_each(|((sum, left), explained)| *sum += (left - explained) / lambda);
            }
            let along = times(phi, solution.view(), rows, targets);
            let fitted = times(transposed, along.view(), dim, targets);
            left = Matrix::from_fn(dim, targets, |i, target| {
                moments[target][i] - lambda * solution[(i, target)] - fitted[(i, target)]
            });
        }
        Some((0..targets).flat_map(|target| solution.column(target).to_vec()).collect())
    }

    /// The eigenvalues of ΦᵀΦ that are not zero, and their eigenvectors, by way of an orthonormal basis of what the rows span.
    ///
    /// # Errors
    /// [`Error::Singular`] if the eigenvalues do not converge.
    pub(crate) fn eigen(&self) -> Result<Eigen, Error> {
        let (dim, rows) = (self.columns.rows(), self.columns.columns());
        let basis = self.columns.orthonormal_basis();
        let along = times(basis.view().transpose(), self.columns.view(), rows, rows);
        let small = factor::eigen_of(&times(along.view(), along.view().transpose(), rows, rows), 0.0)?;
        let zeros = small.values.iter().filter(|value| **value == 0.0).count();
        let vectors = times(basis.view(), small.vectors.view().columns(zeros..rows), dim, rows - zeros);
        Ok(Eigen { values: small.values[zeros..].to_vec(), vectors })
    }
}

/// AB of some rows and columns, a few columns at a time.
fn times(a: View<'_, f64>, b: View<'_, f64>, rows: usize, columns: usize) -> Matrix {
    const TOGETHER: usize = 64;
    let mut result = Matrix::zeros(rows, columns);
    let blocks = result.view_mut().column_blocks(TOGETHER);
    blocks.into_par_iter().for_each(|(range, block)| product(block, a, b.columns(range), 1.0));
    result
}

#[cfg(test)]
mod tests {
    use argand::Rows;

    use crate::gram::tests::problem;
    use crate::{Gram, Labels, Ridge, RidgePath, Targets};

    const DIM: usize = 66;

    fn assert_close(got: &[f64], want: &[f64], what: &str) {
        assert_eq!(got.len(), want.len(), "{what}");
        let size = want.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() <= 1e-9 * size, "{what}: {got} {want}");
        }
    }

    /// Systems of as many unknowns as rows, or as features: the same models, errors and degrees of freedom, also of rows that repeat.
    #[test]
    fn ridge_of_few_rows_is_that_of_their_sums() {
        let (recipe, features, labels) = problem(DIM, DIM, 3);
        for (rows, repeated) in [(1, false), (2, false), (20, false), (20, true), (DIM - 1, false)] {
            let mut features = features[..rows * DIM].to_vec();
            if repeated {
                features.copy_within(..rows / 2 * DIM, rows / 2 * DIM);
            }
            let table = Rows::new(&features, rows, DIM).unwrap();
            let values: Vec<f64> = (0..2 * rows).map(|at| 3.0 + f64::from(features[at * DIM / 2])).collect();
            for targets in [Targets::Classes(3), Targets::Values(2)] {
                let labels = match targets {
                    Targets::Values(_) => Labels::Values(Rows::new(&values, rows, 2).unwrap()),
                    _ => Labels::Classes(&labels[..rows]),
                };
                let mut gram = Gram::new(&recipe, targets).unwrap();
                gram.update(table, labels).unwrap();
                let sums = gram.folded();
                assert!(gram.all_kept().is_some() && sums.all_kept().is_none());
                assert_eq!(Gram::from_bytes(&gram.to_bytes()).unwrap(), gram);
                let [path, of_sums] = [&gram, &sums].map(|gram| RidgePath::new(gram).unwrap());
                for lambda in [1e-3, 1.0, 100.0] {
                    let [few, many] = [&gram, &sums].map(|gram| Ridge::fit(gram, lambda).unwrap());
                    let (along, other) = (path.at(lambda).unwrap(), of_sums.at(lambda).unwrap());
                    for (model, what) in [(&few, "rows"), (&along, "path"), (&other, "path of sums")] {
                        let what = format!("{what}: {rows} rows, λ = {lambda}");
                        assert_close(model.weights(), many.weights(), &what);
                        assert_close(model.intercepts(), many.intercepts(), &what);
                    }
                    let numbers = |path: &RidgePath<'_>| {
                        let mut left_out = path.leave_one_out(&[lambda]).unwrap();
                        left_out.update(table, labels).unwrap();
                        let error = if rows > 1 { left_out.errors()[0] } else { 0.0 };
                        [path.degrees_of_freedom(lambda), error, path.held_out(&gram, lambda).unwrap()]
                    };
                    assert_close(&numbers(&path), &numbers(&of_sums), &format!("{rows} rows, λ = {lambda}"));
                }
                if rows > 1 {
                    assert_close(&path.lambdas(), &of_sums.lambdas(), "penalties");
                    let [few, many] = [&path, &of_sums].map(|path| path.at(0.0).unwrap());
                    assert_close(few.weights(), many.weights(), "the smallest weights that fit");
                }
                // With one more row than can be kept, sums take over; merging does, too.
                let mut more = gram.clone();
                more.merge(&gram).unwrap();
                assert_eq!(more.all_kept().is_some(), 2 * rows < DIM);
                let mut of_both = sums.clone();
                of_both.merge(&gram).unwrap();
                let [few, many] = [&more, &of_both].map(|gram| Ridge::fit(gram, 1.0).unwrap());
                assert_close(few.weights(), many.weights(), "merged");
            }
        }
    }
}
