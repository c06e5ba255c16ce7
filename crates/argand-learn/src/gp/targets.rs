//! Classes as targets of regression.

use argand::{Argument, Error};

/// Below it, 1 + 1/(1 + α) differs from 1 in f64.
const LARGEST_ALPHA: f64 = 9e15;

/// Classes turned into targets of regression with a noise of their own.
///
/// # Formula
/// With y = 1 for members of a class and 0 for others: v = log(1 + 1/(y + α)), t = log(y + α) − v/2. The prior mean of class c
/// is μ_c = log p_c + mean(t) − mean(log p) with p_c its share of the rows, and the kernel variance is the variance of all t − μ_c.
/// Both depend on the numbers of rows in the classes only.
///
/// # Reference
/// Milios et al. (2018), "Dirichlet-based Gaussian processes for large-scale calibrated classification", as run for Section 5.2 of
/// the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassTargets {
    /// The variance v of the noise, of others and of members.
    pub noise: [f64; 2],
    /// The target t, of others and of members.
    pub targets: [f64; 2],
    /// The prior mean μ of every class.
    pub means: Vec<f64>,
    /// The variance of all entries of t − μ.
    pub variance: f64,
}

impl ClassTargets {
    /// From the number of rows in every class.
    ///
    /// # Errors
    /// [`Error::Invalid`] for α that is not positive or too large, fewer than two classes, or a class without rows.
    ///
    /// ```
    /// use argand_learn::ClassTargets;
    /// let mnist = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949].map(f64::from);
    /// assert!((ClassTargets::new(&mnist, 0.001)?.variance - 9.0274).abs() < 1e-4); // what the paper's authors had
    /// # Ok::<(), argand::Error>(())
    /// ```
    pub fn new(counts: &[f64], alpha: f64) -> Result<Self, Error> {
        if !(alpha > 0.0 && alpha < LARGEST_ALPHA) {
            let expected =
                format!("a positive number below {LARGEST_ALPHA:e} (beyond that, the noise of labels rounds to 0)");
            return Err(Error::invalid(Argument::Alpha, expected, format!("{alpha:?}")));
        }
        if counts.len() < 2 {
            return Err(Error::invalid(Argument::Classes, "at least 2", counts.len()));
        }
        if let Some(class) = counts.iter().position(|&count| count < 1.0) {
            return Err(Error::invalid(
                Argument::Labels,
                "at least one row of every class",
                format!("none of class {class}"),
            ));
        }
        let noise = Self::noise_of(alpha);
        let targets = [(0.0, noise[0]), (1.0, noise[1])].map(|(y, noise): (f64, f64)| (y + alpha).ln() - noise / 2.0);
        let (rows, classes): (f64, _) = (counts.iter().sum(), counts.len() as f64);
        let shares: Vec<f64> = counts.iter().map(|count| (count / rows).ln()).collect();
        let mean_target = ((classes - 1.0) * targets[0] + targets[1]) / classes;
        let offset = mean_target - shares.iter().sum::<f64>() / classes;
        let means: Vec<f64> = shares.iter().map(|share| share + offset).collect();
        let squares = counts
            .iter()
            .zip(&means)
            .map(|(count, mean)| count * (targets[1] - mean).powi(2) + (rows - count) * (targets[0] - mean).powi(2));
        // The mean of t − μ over all entries is zero.
        let variance = squares.sum::<f64>() / (rows * classes);
        Ok(Self { noise, targets, means, variance })
    }

    /// The variance v of the noise, of others and of members.
    pub(super) fn noise_of(alpha: f64) -> [f64; 2] {
        [0.0, 1.0].map(|y| (1.0 + 1.0 / (y + alpha)).ln())
    }
}
