//! Ridge regression and classification on sketches.

use std::ops::Range;

use argand::{Argument, Error, Rows};
use argand_linalg::{Cholesky, Eigen, Matrix, product};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::archive::{Archive, check_columns};
use crate::blocks::SOLVED_ROWS;
use crate::factor::{self, check_features, check_finite, linear};
use crate::few_rows::FewRows;
use crate::gram::{Gram, Labels, Targets, Triangle};
use crate::model::{Model, Predicts, Setting};
use crate::recipe::Recipe;

/// A linear model on features, with an unpenalised intercept.
///
/// # Formula
/// The minimum of Σ (y − φᵀw − b)² + λ‖w‖² for every column of targets; classes are regressed on 1 and −1.
///
/// # Cost
/// D³/3 operations after the pass over the rows, of n < D rows n²D + n³/3 instead, and those of [`RidgePath`] for λ within rounding; D per column
/// and predicted row.
///
/// ```
/// use argand_learn::{Gram, Labels, Recipe, Ridge, Targets};
/// use argand::{Rows, Spec};
/// let x: Vec<f32> = (0..40).map(|i| (i as f32 * 0.7).sin()).collect();
/// let y: Vec<f64> = x.chunks(2).map(|x| f64::from(x[0] * x[1])).collect(); // a polynomial of degree 2
/// let (rows, targets) = (Rows::new(&x, 20, 2)?, Rows::new(&y, 20, 1)?);
/// let recipe = Recipe::from(Spec::polynomial(2).with_degree(2).with_features(128));
/// let pipeline = recipe.pipeline::<f32>()?;
/// let mut gram = Gram::new(&recipe, Targets::Values(1))?;
/// let (mut model, mut worst) = (None, 0.0_f64);
/// pipeline.for_each_block(&[rows.into()], |_, features| {
///     gram.update(features, Labels::Values(targets))?;
///     let ridge = Ridge::fit(&gram, 1e-4)?;
///     worst = ridge.predict(features)?.iter().zip(&y).map(|(got, want)| (got - want).abs()).fold(0.0, f64::max);
///     model = Some(ridge);
///     Ok(())
/// })?;
/// assert!(worst < 1e-2);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Ridge {
    header: Header,
    /// One column after another.
    weights: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    recipe: Recipe,
    rows: u64,
    classes: bool,
    lambda: f64,
    intercepts: Vec<f64>,
}

pub(crate) const KIND: &str = "ridge";

/// Sums of centred features and of targets as regressed on.
struct Centred {
    rows: f64,
    feature_means: Vec<f64>,
    target_means: Vec<f64>,
    /// Φᵀ(y − ȳ) of every column.
    moments: Vec<Vec<f64>>,
    /// ‖y − ȳ‖² of every column.
    spread: Vec<f64>,
}

impl Centred {
    fn new(gram: &Gram) -> Result<Self, Error> {
        let rows = gram.rows() as f64;
        if gram.rows() == 0 {
            return Err(Error::invalid(Argument::Rows, "at least 1", 0));
        }
        let sums = gram.feature_sums();
        let [scale, shift] = signs(gram.targets());
        let means = gram.target_sums().iter().map(|sum| sum / rows);
        let moments = means.clone().enumerate().map(|(column, mean)| {
            gram.moments(column).iter().zip(&sums).map(|(moment, sum)| scale * (moment - mean * sum)).collect()
        });
        Ok(Self {
            rows,
            moments: moments.collect(),
            spread: gram.target_spreads().iter().map(|spread| scale * scale * spread).collect(),
            target_means: means.map(|mean| scale * mean + shift).collect(),
            feature_means: sums.iter().map(|sum| sum / rows).collect(),
        })
    }

    /// √n times the mean features: what centring takes from ΦᵀΦ is its product with itself.
    fn centre(&self) -> Vec<f64> {
        let root = self.rows.sqrt();
        self.feature_means.iter().map(|mean| mean * root).collect()
    }

    /// (ΦᵀΦ + λI)⁻¹ times the moments of every column, one after another; nothing if λ is too small relative to the products for f64.
    fn solve(&self, total: &Triangle, lambda: f64) -> Option<Vec<f64>> {
        let centre = self.centre();
        if lambda <= factor::rounding_of_centring(&centre) {
            return None;
        }
        let factor = Cholesky::with_floor(|| factor::centred(total, &centre, lambda), lambda).ok()?;
        Some(self.moments.iter().flat_map(|moments| factor.solve(moments)[1].clone()).collect())
    }

    /// The intercept that maps the mean features to the mean targets.
    fn intercepts(&self, weights: &[f64]) -> Vec<f64> {
        let dot = |weights: &[f64]| weights.iter().zip(&self.feature_means).map(|(w, mean)| w * mean).sum::<f64>();
        weights.chunks(self.feature_means.len()).zip(&self.target_means).map(|(w, mean)| mean - dot(w)).collect()
    }
}

/// Targets are scale·y + shift: classes come as 0 and 1.
fn signs(targets: Targets) -> [f64; 2] {
    if let Targets::Values(_) = targets { [1.0, 0.0] } else { [2.0, -1.0] }
}

fn check_lambda(lambda: f64) -> Result<(), Error> {
    if lambda >= 0.0 && lambda.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(Argument::Lambda, "a finite number of at least 0", lambda))
}

impl Ridge {
    /// The model for one λ > 0; for λ = 0, the best fit with the smallest weights. Directions of features that cannot be told from rounding
    /// are left out where λ is that small, too.
    ///
    /// # Errors
    /// [`Error::Invalid`] for λ < 0 or no rows; [`Error::Singular`] for features too large for f64.
    pub fn fit(gram: &Gram, lambda: f64) -> Result<Self, Error> {
        check_lambda(lambda)?;
        let centred = Centred::new(gram)?;
        let weights = match gram.all_kept() {
            _ if lambda == 0.0 => None,
            Some(rows) => FewRows::new(rows, &centred.feature_means).solve(&centred.moments, lambda),
            None => centred.solve(gram.total(), lambda),
        };
        match weights {
            Some(weights) => Self::assemble(gram, &centred, lambda, weights),
            None => RidgePath::new(gram)?.at(lambda),
        }
    }

    fn assemble(gram: &Gram, centred: &Centred, lambda: f64, weights: Vec<f64>) -> Result<Self, Error> {
        check_finite(&weights)?;
        let header = Header {
            recipe: gram.recipe().clone(),
            rows: gram.rows(),
            classes: !matches!(gram.targets(), Targets::Values(_)),
            lambda,
            intercepts: centred.intercepts(&weights),
        };
        check_finite(&header.intercepts)?;
        Ok(Self { header, weights })
    }

    /// Predicted targets, or scores of classes, row by row.
    ///
    /// # Errors
    /// [`Error::Invalid`] for features of another width, [`Error::NotFinite`].
    pub fn predict(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        check_features(features, self.header.recipe.spec.features)?;
        Ok(linear(features, &self.weights, &self.header.intercepts))
    }

    /// How rows become features.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    /// The penalty λ.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.header.lambda
    }

    /// Whether it is a classifier.
    #[must_use]
    pub fn is_classifier(&self) -> bool {
        self.header.classes
    }

    /// Number of target columns, or of classes.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.header.intercepts.len()
    }

    /// Weights, one column after another.
    #[must_use]
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Intercepts, one for each column.
    #[must_use]
    pub fn intercepts(&self) -> &[f64] {
        &self.header.intercepts
    }

    /// The model as a file.
    #[must_use]
    pub fn to_archive(&self) -> Archive {
        Archive::new(KIND, &self.header).with_f64("weights", self.weights.clone())
    }

    /// Reads the result of [`Ridge::to_archive`].
    ///
    /// # Errors
    /// [`Error::Archive`].
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let header: Header = archive.header(KIND)?;
        check_columns(header.intercepts.len())?;
        let length = header.recipe.spec.features.saturating_mul(header.intercepts.len());
        Ok(Self { weights: archive.take_f64("weights", length)?, header })
    }
}

impl Model for Ridge {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn name(&self) -> &'static str {
        "ridge"
    }

    fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    fn predicts(&self) -> Predicts {
        if self.header.classes { Predicts::Classes(self.columns()) } else { Predicts::Values(self.columns()) }
    }

    fn settings(&self) -> Vec<(&'static str, Setting)> {
        vec![("lambda", self.header.lambda.into())]
    }

    fn scores(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.predict(features)
    }

    fn to_archive(&self) -> Archive {
        self.to_archive()
    }
}

/// Ridge models for all λ from one eigendecomposition.
///
/// # Formula
/// With the centred Gram QEQᵀ and z = QᵀΦᵀ(y − ȳ): w(λ) = Q z/(E + λ). Directions whose eigenvalues are below 10⁻¹² of the largest, or within the rounding
/// of centring, are left out.
///
/// # Cost
/// About 9D³ operations once, of n < D rows 9n³ + 6n²D instead; D² for the model of one λ, D for its generalised cross-validation.
#[derive(Debug)]
pub struct RidgePath<'a> {
    gram: &'a Gram,
    centred: Centred,
    eigen: Eigen,
    /// z of every column; zero where the eigenvalue is.
    rotated: Vec<Vec<f64>>,
}

impl std::fmt::Debug for Centred {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Centred").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<'a> RidgePath<'a> {
    /// Decomposes the Gram.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no rows; [`Error::Singular`] if the eigenvalues do not converge.
    pub fn new(gram: &'a Gram) -> Result<Self, Error> {
        let centred = Centred::new(gram)?;
        let eigen = match gram.all_kept() {
            Some(rows) => FewRows::new(rows, &centred.feature_means).eigen()?,
            None => factor::eigen(gram.total(), Some(&centred.centre()))?,
        };
        let rotate = |moments: &Vec<f64>| {
            let rotated = eigen.rotate(moments).into_iter().zip(&eigen.values);
            rotated.map(|(z, value)| if *value > 0.0 { z } else { 0.0 }).collect()
        };
        let rotated = centred.moments.iter().map(rotate).collect();
        Ok(Self { gram, centred, eigen, rotated })
    }

    /// f(e) of every eigenvalue e, 0 where that is 0.
    fn each(&self, f: impl Fn(f64) -> f64) -> Vec<f64> {
        self.eigen.values.iter().map(|&value| if value > 0.0 { f(value) } else { 0.0 }).collect()
    }

    /// λ/(e + λ), the share of each direction that a model leaves unexplained.
    fn unexplained(&self, lambda: f64) -> Vec<f64> {
        self.each(|value| lambda / (value + lambda))
    }

    /// The number of directions in which features vary.
    fn rank(&self) -> usize {
        self.eigen.values.iter().filter(|value| **value > 0.0).count()
    }

    /// The model for one λ.
    ///
    /// # Errors
    /// [`Error::Invalid`] for λ < 0.
    pub fn at(&self, lambda: f64) -> Result<Ridge, Error> {
        check_lambda(lambda)?;
        let inverses = self.each(|value| 1.0 / (value + lambda));
        let solve = |rotated: &Vec<f64>| -> Vec<f64> {
            self.eigen.rotate_back(&rotated.iter().zip(&inverses).map(|(z, inverse)| z * inverse).collect::<Vec<_>>())
        };
        let weights = self.rotated.iter().flat_map(solve).collect();
        Ridge::assemble(self.gram, &self.centred, lambda, weights)
    }

    /// Candidate penalties: 25 from 10⁻¹² to 1 times the largest eigenvalue, by equal factors. If that is 0, times 1.
    #[must_use]
    pub fn lambdas(&self) -> Vec<f64> {
        let largest = self.eigen.values.last().copied().filter(|&largest| largest > 0.0).unwrap_or(1.0);
        (0..25).map(|step| largest * 10_f64.powf(f64::from(step) / 2.0 - 12.0)).collect()
    }

    /// The effective number of parameters: 1 + Σ e/(e + λ).
    #[must_use]
    pub fn degrees_of_freedom(&self, lambda: f64) -> f64 {
        1.0 + self.each(|value| value / (value + lambda)).iter().sum::<f64>()
    }

    /// The mean squared error expected on new rows, without any: n RSS/(n − degrees of freedom)².
    ///
    /// # Formula
    /// With s = λ/(e + λ) in each of r directions, RSS = ‖y − ȳ‖² − Σ z²/e + Σ (z²/e) s² and n − degrees of freedom = n − 1 − r + Σ s: nothing is
    /// lost where a small λ explains nearly all. For r = n − 1, every target can be explained.
    ///
    /// # Reference
    /// Golub, Heath and Wahba (1979), "Generalized cross-validation as a method for choosing a good ridge parameter".
    #[must_use]
    pub fn generalised_cross_validation(&self, lambda: f64) -> f64 {
        let (rows, unexplained) = (self.centred.rows, self.unexplained(lambda));
        let beyond = rows - 1.0 - self.rank() as f64;
        let mut residual = 0.0;
        for (rotated, spread) in self.rotated.iter().zip(&self.centred.spread) {
            let explained = || rotated.iter().zip(self.each(|value| 1.0 / value)).map(|(z, inverse)| z * z * inverse);
            if beyond > 0.0 {
                residual += (spread - explained().sum::<f64>()).max(0.0);
            }
            residual += explained().zip(&unexplained).map(|(square, share)| square * share * share).sum::<f64>();
        }
        let left = beyond.max(0.0) + unexplained.iter().sum::<f64>();
        if left > 0.0 { residual * rows / (left * left) } else { f64::INFINITY }
    }

    /// The mean squared error on other rows, from their sums alone.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the sums are empty, or of another recipe or kind.
    pub fn held_out(&self, other: &Gram, lambda: f64) -> Result<f64, Error> {
        self.gram.check_same(other)?;
        if other.rows() == 0 {
            return Err(Error::invalid(Argument::Other, "at least 1 row", 0));
        }
        let model = self.at(lambda)?;
        let (total, sums, rows) = (other.total(), other.feature_sums(), other.rows() as f64);
        let [scale, shift] = signs(other.targets());
        let dim = sums.len();
        let (mut squares, spreads) = (0.0, other.target_spreads());
        for (column, (weights, &offset)) in model.weights.chunks(dim).zip(&model.header.intercepts).enumerate() {
            // Σ (scale·(y − ȳ) + constant − φᵀw)², multiplied out.
            let mean = other.target_sums()[column] / rows;
            let constant = scale * mean + shift - offset;
            let moments = other.moments(column);
            let mut quadratic = 0.0;
            for (row, &weight) in weights.iter().enumerate() {
                let products = total.row(row);
                let lower: f64 = products[..row].iter().zip(weights).map(|(product, other)| product * other).sum();
                quadratic += weight * (2.0 * lower + products[row] * weight);
            }
            let linear: f64 = (moments.iter().zip(&sums).zip(weights))
                .map(|((moment, sum), weight)| weight * (scale * (moment - mean * sum) + constant * sum))
                .sum();
            squares += scale * scale * spreads[column] + rows * constant * constant;
            squares += quadratic - 2.0 * linear;
        }
        Ok(squares.max(0.0) / rows)
    }

    /// Starts a second pass over the training rows, for the error of each when left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for λ < 0.
    pub fn leave_one_out(&'a self, lambdas: &[f64]) -> Result<LeaveOneOut<'a>, Error> {
        lambdas.iter().try_for_each(|&lambda| check_lambda(lambda))?;
        Ok(LeaveOneOut { path: self, lambdas: lambdas.to_vec(), errors: vec![0.0; lambdas.len()] })
    }
}

/// Leave-one-out errors of ridge models, for several λ at once.
///
/// # Formula
/// (y − ŷ)/(1 − h) with the leverage h = 1/n + Σ u²/(e + λ) of a centred row u in the basis of eigenvectors. With s = λ/(e + λ), y − ŷ is
/// y − ȳ − Σ uz/e + Σ (uz/e) s, and 1 − h is 1 − 1/n − Σ u²/e + Σ (u²/e) s: what does not depend on λ is zero where a row alone varies in some direction,
/// and nothing is lost where a small λ explains nearly all. λ = 0 is its limit.
///
/// # Cost
/// D² operations per row for all λ together, and D for every column of targets and λ.
#[derive(Debug)]
pub struct LeaveOneOut<'a> {
    path: &'a RidgePath<'a>,
    lambdas: Vec<f64>,
    errors: Vec<f64>,
}

/// A row with less than this share of its target beyond all directions is alone in some of them.
const ALONE: f64 = 1e-9;

/// λ = 0 is this share of the largest eigenvalue.
const LIMIT: f64 = 1e-30;

impl LeaveOneOut<'_> {
    /// Adds rows that the Gram holds.
    ///
    /// # Errors
    /// As [`Gram::update`].
    pub fn update(&mut self, features: Rows<'_, f32>, labels: Labels<'_>) -> Result<(), Error> {
        self.path.gram.check(features, labels)?;
        let starts: Vec<usize> = (0..features.rows()).step_by(SOLVED_ROWS).collect();
        let of_block =
            |start: usize| self.errors_of(features, labels, start..(start + SOLVED_ROWS).min(features.rows()));
        let errors: Vec<Vec<f64>> = starts.into_par_iter().map(of_block).collect();
        // In order, whatever the number of threads.
        for block in errors {
            self.errors.iter_mut().zip(block).for_each(|(sum, error)| *sum += error);
        }
        Ok(())
    }

    /// The summed squared errors of some rows for each λ.
    fn errors_of(&self, features: Rows<'_, f32>, labels: Labels<'_>, range: Range<usize>) -> Vec<f64> {
        let (centred, eigen) = (&self.path.centred, &self.path.eigen);
        let (dim, rows, columns) = (centred.feature_means.len(), range.len(), self.path.rotated.len());
        let directions = eigen.values.len();
        let [scale, shift] = signs(self.path.gram.targets());
        let block = Matrix::from_fn(dim, rows, |i, row| {
            f64::from(features.row(range.start + row)[i]) - centred.feature_means[i]
        });
        let mut along = Matrix::zeros(directions, rows);
        product(along.view_mut(), eigen.vectors.view().transpose(), block.view(), 1.0);
        // u/√e and z/√e.
        let inverses = self.path.each(|value| value.sqrt().recip());
        let basis = Matrix::from_fn(directions, rows, |i, row| along[(i, row)] * inverses[i]);
        let explained = Matrix::from_fn(directions, columns, |i, column| self.path.rotated[column][i] * inverses[i]);
        let mut fits = Matrix::zeros(rows, columns);
        product(fits.view_mut(), basis.view().transpose(), explained.view(), 1.0);
        let beyond = basis.squared_norms().into_iter().map(|norm| 1.0 - 1.0 / centred.rows - norm);
        // What only this row can explain, it explains wholly as λ falls.
        let beyond: Vec<f64> = beyond.map(|beyond| if beyond < ALONE { 0.0 } else { beyond }).collect();
        let residuals = Matrix::from_fn(rows, columns, |row, column| {
            let target = match labels {
                Labels::Values(values) => values.row(range.start + row)[column],
                Labels::Classes(classes) => f64::from(u8::from(classes[range.start + row] as usize == column)),
            };
            let residual = scale * target + shift - centred.target_means[column] - fits[(row, column)];
            if beyond[row] > 0.0 { residual } else { 0.0 }
        });
        let squares = Matrix::from_fn(directions, rows, |i, row| basis[(i, row)] * basis[(i, row)]);
        let least = LIMIT * eigen.values.last().copied().unwrap_or(0.0);
        let unexplained: Vec<_> = self.lambdas.iter().map(|lambda| self.path.unexplained(lambda.max(least))).collect();
        let shares = Matrix::from_fn(directions, unexplained.len(), |i, at| unexplained[at][i]);
        let mut left = Matrix::zeros(rows, unexplained.len());
        product(left.view_mut(), squares.view().transpose(), shares.view(), 1.0);
        let error_at = |(at, shares): (usize, &Vec<f64>)| {
            let weights = Matrix::from_fn(directions, columns, |i, column| shares[i] * explained[(i, column)]);
            product(fits.view_mut(), basis.view().transpose(), weights.view(), 1.0);
            let mut error = 0.0;
            for (row, beyond) in beyond.iter().enumerate() {
                let left = beyond + left[(row, at)];
                // A single row says nothing about others.
                if left > 0.0 {
                    error +=
                        (0..columns).map(|at| ((residuals[(row, at)] + fits[(row, at)]) / left).powi(2)).sum::<f64>();
                }
            }
            error
        };
        unexplained.iter().enumerate().map(error_at).collect()
    }

    /// The mean squared error for each λ.
    #[must_use]
    pub fn errors(&self) -> Vec<f64> {
        self.errors.iter().map(|error| error / self.path.centred.rows).collect()
    }
}
