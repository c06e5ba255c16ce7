//! The whitening of Nyström's features.

use std::sync::Arc;

use argand_linalg::{Cholesky, Matrix, View, ViewMut, product};

use crate::error::{Advice, Error};
use crate::fit::Landmarks;
use crate::spec::Spec;

/// What is added to the diagonal of the landmarks' kernel matrix, relative to its mean: kernels of landmarks are off by no more than this, and
/// whitening enlarges rounding errors by no more than the inverse of its root.
const RIDGE: f64 = 1e-6;

/// Nyström's features: L⁻¹ k(Z, x) for landmarks Z, with LLᵀ = k(Z, Z) + 10⁻⁶ t I and t the mean of k(z, z).
///
/// # Formula
/// ⟨φ(x), φ(y)⟩ = k(x, Z)(k(Z, Z) + εI)⁻¹k(Z, y). For Gaussian kernels, rows and landmarks are shifted by the mean of the landmarks first, which
/// changes nothing but rounding errors.
///
/// # Reference
/// Williams and Seeger, *Using the Nyström Method to Speed Up Kernel Machines* (2001).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Nystrom {
    /// What rows are shifted by: the mean of the landmarks for Gaussian kernels, otherwise zeros.
    pub centre: Arc<Vec<f64>>,
    /// The shifted landmarks, row by row.
    pub landmarks: Arc<Vec<f64>>,
    /// ‖z‖² of each.
    pub norms: Arc<Vec<f64>>,
    /// L⁻¹, row by row; entries after the diagonal are zeros.
    pub whitening: Arc<Vec<f64>>,
}

impl Nystrom {
    pub(super) fn draw(spec: &Spec, landmarks: &Landmarks) -> Result<Self, Error> {
        let (count, dim) = (landmarks.rows(), spec.inputs.as_slice()[0]);
        let mut centre = vec![0.0; dim];
        if spec.kernel.radial().is_some() {
            for row in 0..count {
                centre.iter_mut().zip(landmarks.row(row)).for_each(|(sum, value)| *sum += value);
            }
            centre.iter_mut().for_each(|sum| *sum /= count as f64);
        }
        let shifted: Vec<f64> = (0..count)
            .flat_map(|row| landmarks.row(row).iter().zip(&centre))
            .map(|(value, centre)| value - centre)
            .collect();
        let norms: Vec<f64> =
            shifted.chunks_exact(dim).map(|row| row.iter().map(|value| value * value).sum()).collect();
        let mut inner = vec![0.0; count * count];
        let rows = View::by_rows(&shifted, count, dim);
        product(ViewMut::by_rows(&mut inner, count, count), rows, rows.transpose(), 1.0);
        let kernel = |i: usize, j: usize| spec.kernel.value(inner[i * count + j], norms[i] + norms[j]);
        let mean = (0..count).map(|row| kernel(row, row)).sum::<f64>() / count as f64;
        let singular =
            |_| Error::Singular { what: "the kernel matrix of the landmarks".to_owned(), advice: Advice::Scale };
        let matrix = Matrix::from_fn(count, count, |i, j| kernel(i, j) + if i == j { RIDGE * mean } else { 0.0 });
        let factor = Cholesky::new(matrix).map_err(singular)?;
        let mut inverse = vec![0.0; count * count];
        inverse.iter_mut().step_by(count + 1).for_each(|diagonal| *diagonal = 1.0);
        factor.solve_lower(ViewMut::by_rows(&mut inverse, count, count));
        for (row, values) in inverse.chunks_exact_mut(count).enumerate() {
            values[row + 1..].fill(0.0);
        }
        Ok(Self {
            centre: Arc::new(centre),
            landmarks: Arc::new(shifted),
            norms: Arc::new(norms),
            whitening: Arc::new(inverse),
        })
    }

    /// Bytes that drawing takes; `None` on overflow.
    pub(crate) fn bytes(spec: &Spec) -> Option<u64> {
        let (count, dim) = (u64::try_from(spec.features).ok()?, u64::try_from(spec.inputs.as_slice()[0]).ok()?);
        // The kernel matrix, its factor and the inverse exist together for a while.
        count.checked_mul(count.checked_mul(3)?.checked_add(dim)?)?.checked_mul(8)
    }
}
