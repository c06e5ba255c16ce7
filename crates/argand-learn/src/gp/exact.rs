//! Gaussian processes on the exact kernel.

use argand::{Advice, Argument, Error};
use argand_linalg::{Cholesky, Matrix};

use super::classifier::GpOptions;
use super::prediction::GpPrediction;
use super::regressor::Variances;
use super::targets::ClassTargets;
use super::{LOG_TAU, check_positive};
use crate::factor;
use crate::gram::check_classes;

/// A Gaussian process on the exact kernel, for few rows: what those on sketches approximate.
///
/// # Formula
/// With K scaled by the kernel variance and noise variances V: mean μ + k*ᵀ(K + V)⁻¹(t − μ), variance k** − k*ᵀ(K + V)⁻¹k*.
///
/// # Cost
/// n³/3 operations and 8n² bytes per class.
#[derive(Debug, Clone)]
pub struct ExactGp {
    /// One per column, or one for all.
    factors: Vec<Cholesky>,
    solutions: Vec<Vec<f64>>,
    means: Vec<f64>,
    variance: f64,
    log_marginal_likelihood: f64,
}

impl ExactGp {
    /// Classification; `kernel` is the n × n matrix of [`kernel_matrix`](argand::theory::kernel_matrix).
    ///
    /// # Errors
    /// As [`GpClassifier::fit`](crate::GpClassifier::fit).
    pub fn classes(kernel: &[f64], labels: &[u32], classes: usize, options: &GpOptions) -> Result<Self, Error> {
        check_classes(labels, classes)?;
        let mut counts = vec![0.0; classes];
        labels.iter().for_each(|&label| counts[label as usize] += 1.0);
        let transform = ClassTargets::new(&counts, options.alpha)?;
        let variance =
            options.variance.map_or(Ok(transform.variance), |variance| check_positive(Argument::Variance, variance))?;
        let columns: Vec<(Vec<f64>, Vec<f64>)> = (0..classes)
            .map(|class| {
                let own = |label: &u32| usize::from(*label as usize == class);
                let targets = labels.iter().map(|label| transform.targets[own(label)] - transform.means[class]);
                (targets.collect(), labels.iter().map(|label| transform.noise[own(label)]).collect())
            })
            .collect();
        Self::fit(kernel, variance, &columns, transform.means)
    }

    /// Regression of one column of targets.
    ///
    /// # Errors
    /// As [`GpRegressor::fit`](crate::GpRegressor::fit).
    pub fn values(kernel: &[f64], targets: &[f64], variances: Variances) -> Result<Self, Error> {
        let variance = check_positive(Argument::Kernel, variances.kernel)?;
        let noise = check_positive(Argument::Noise, variances.noise)?;
        let mean = targets.iter().sum::<f64>() / targets.len() as f64;
        let centred = targets.iter().map(|target| target - mean).collect();
        Self::fit(kernel, variance, &[(centred, vec![noise; targets.len()])], vec![mean])
    }

    fn fit(kernel: &[f64], variance: f64, columns: &[(Vec<f64>, Vec<f64>)], means: Vec<f64>) -> Result<Self, Error> {
        let rows = columns[0].0.len();
        if rows == 0 || rows.checked_mul(rows) != Some(kernel.len()) {
            return Err(Error::invalid(Argument::Kernel, format!("{rows} x {rows} numbers"), kernel.len()));
        }
        let (mut factors, mut solutions, mut likelihood) = (Vec::new(), Vec::new(), 0.0);
        for (targets, noise) in columns {
            let noise_at = |i: usize, j: usize| if i == j { noise[i] } else { 0.0 };
            let matrix = Matrix::from_fn(rows, rows, |i, j| variance * kernel[i * rows + j] + noise_at(i, j));
            let factor = factor::cholesky(matrix, "the kernel matrix with noise", Advice::Variances)?;
            let [half, solution] = factor.solve(targets);
            let fit: f64 = half.iter().map(|value| value * value).sum();
            likelihood -= 0.5 * (fit + factor.log_determinant() + rows as f64 * LOG_TAU);
            factors.push(factor);
            solutions.push(solution);
        }
        Ok(Self { factors, solutions, means, variance, log_marginal_likelihood: likelihood })
    }

    /// Predictions of rows: `cross` is their kernel with the n rows learnt from, row by row, and `own` that with themselves.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of kernel values.
    pub fn predict(&self, cross: &[f64], own: &[f64]) -> Result<GpPrediction, Error> {
        let (rows, columns) = (self.solutions[0].len(), self.means.len());
        if own.len().checked_mul(rows) != Some(cross.len()) {
            return Err(Error::invalid(Argument::Cross, format!("{} x {rows} numbers", own.len()), cross.len()));
        }
        let (mut means, mut variances) = (vec![0.0; own.len() * columns], vec![0.0; own.len() * columns]);
        for column in 0..columns {
            let mut right = Matrix::from_fn(rows, own.len(), |i, row| self.variance * cross[row * rows + i]);
            self.factors[column].solve_lower(right.view_mut());
            let explained = right.squared_norms();
            for (row, kernel) in cross.chunks(rows).enumerate() {
                let fit: f64 = kernel.iter().zip(&self.solutions[column]).map(|(k, weight)| k * weight).sum();
                means[row * columns + column] = self.means[column] + self.variance * fit;
                variances[row * columns + column] = self.variance * own[row] - explained[row];
            }
        }
        Ok(GpPrediction { columns, means, variances })
    }

    /// The logarithm of the marginal likelihood, summed over classes.
    #[must_use]
    pub fn log_marginal_likelihood(&self) -> f64 {
        self.log_marginal_likelihood
    }
}
