//! The quality of predictions.

use argand::{Argument, Error, Rows};

use crate::gram::{Labels, Spread, check_classes};
use crate::model::{Model, Predicts};

/// The quality of predictions for some rows; scores of blocks add up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Score {
    /// Number of rows predicted.
    pub rows: u64,
    /// Sum of −log of the probability, or density, of the truth; zero for models without either.
    pub loss_sum: f64,
    /// Number of rows whose most probable class is not their label.
    pub errors: u64,
    /// Sum of squared errors, over all columns of numbers.
    pub squares: f64,
    /// The true numbers.
    targets: Spread,
}

impl Score {
    /// Mean negative log-likelihood, for classes also called cross-entropy; NaN without rows.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.rows as f64
    }

    /// Fraction of misclassified rows; NaN without rows.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        self.errors as f64 / self.rows as f64
    }

    /// Root mean squared error; NaN without rows.
    #[must_use]
    pub fn rmse(&self) -> f64 {
        (self.squares / self.rows as f64).sqrt()
    }

    /// The share of variance explained, for one column of numbers that vary.
    #[must_use]
    pub fn r2(&self) -> Option<f64> {
        let spread = self.targets.significant();
        (spread > 0.0).then(|| 1.0 - self.squares / spread)
    }

    /// The combined score of these rows and others.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            loss_sum: self.loss_sum + other.loss_sum,
            errors: self.errors + other.errors,
            squares: self.squares + other.squares,
            targets: self.targets.plus(other.targets),
        }
    }

    /// The score of a model on some rows.
    pub(crate) fn of(
        model: &(impl Model + ?Sized),
        features: Rows<'_, f32>,
        labels: Labels<'_>,
    ) -> Result<Self, Error> {
        if labels.rows() != features.rows() {
            let expected = format!("{} rows, as the features", features.rows());
            return Err(Error::invalid(Argument::Labels, expected, labels.rows()));
        }
        let mut score = Self { rows: features.rows() as u64, ..Self::default() };
        match (model.predicts(), labels) {
            (_, Labels::Classes([])) => {}
            (Predicts::Classes(classes), Labels::Classes(labels)) => {
                check_classes(labels, classes)?;
                let predicted = model.predict(features)?;
                let wrong = |(class, label): &(u32, &u32)| class != *label;
                score.errors = largest(&predicted, classes).into_iter().zip(labels).filter(wrong).count() as u64;
                if model.has_probabilities() {
                    score.loss_sum = mean_negative_log_likelihood(&predicted, labels)? * labels.len() as f64;
                }
            }
            (Predicts::Values(columns), Labels::Values(values)) => {
                if values.columns() != columns {
                    return Err(Error::invalid(Argument::Labels, format!("{columns} columns"), values.columns()));
                }
                let (means, variances) = match model.noise() {
                    Some(noise) => match model.latent(features)? {
                        Some(found) => (found.means, found.variances.iter().map(|latent| latent + noise).collect()),
                        None => (model.predict(features)?, vec![noise; values.rows() * columns]),
                    },
                    None => (model.predict(features)?, Vec::new()),
                };
                let targets: Vec<f64> = (0..values.rows()).flat_map(|row| values.row(row)).copied().collect();
                score.targets = Spread::of(&targets);
                for (at, (mean, target)) in means.iter().zip(&targets).enumerate() {
                    let square = (target - mean).powi(2);
                    score.squares += square;
                    if let Some(variance) = variances.get(at) {
                        score.loss_sum += 0.5 * (square / variance + (std::f64::consts::TAU * variance).ln());
                    }
                }
            }
            (Predicts::Classes(_), Labels::Values(_)) => {
                return Err(Error::invalid(Argument::Labels, "classes, as the model predicts", "numbers"));
            }
            (Predicts::Values(_), Labels::Classes(_)) => {
                return Err(Error::invalid(Argument::Labels, "numbers, as the model predicts", "classes"));
            }
        }
        Ok(score)
    }
}

/// The class of the largest of each row's numbers.
#[must_use]
pub fn largest(values: &[f64], classes: usize) -> Vec<u32> {
    let of_row = |row: &[f64]| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        u32::try_from(best.map_or(0, |(class, _)| class)).unwrap_or(u32::MAX)
    };
    values.chunks(classes.max(1)).map(of_row).collect()
}

/// The mean of −log of the probability given to the true class.
///
/// # Errors
/// [`Error::Invalid`] for no rows, or labels that do not fit the probabilities.
pub fn mean_negative_log_likelihood(probabilities: &[f64], labels: &[u32]) -> Result<f64, Error> {
    if labels.is_empty() || !probabilities.len().is_multiple_of(labels.len()) {
        let expected = format!("one for each row of {} probabilities", probabilities.len());
        return Err(Error::invalid(Argument::Labels, expected, labels.len()));
    }
    let classes = probabilities.len() / labels.len();
    check_classes(labels, classes)?;
    let rows = probabilities.chunks(classes).zip(labels);
    // A probability that rounds to zero does not make the loss infinite.
    Ok(rows.map(|(row, &label)| -row[label as usize].max(f64::MIN_POSITIVE).ln()).sum::<f64>() / labels.len() as f64)
}
