//! What is predicted, and the targets of some rows.

use std::ops::Range;

use argand::{Argument, Error, Input, Rows};
use serde::{Deserialize, Serialize};

use super::products::{Group, WIDTH};

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Targets {
    /// This many columns of numbers.
    Values(usize),
    /// One of this many classes; products of features are summed up over all of them.
    Classes(usize),
    /// One of this many classes; products of features are kept for every class, which
    /// [`GpClassifier`](crate::GpClassifier) needs.
    ClassesApart(usize),
}

impl Targets {
    /// Columns of targets: classes count as 0 and 1.
    #[must_use]
    pub fn columns(self) -> usize {
        match self {
            Self::Values(columns) => columns,
            Self::Classes(classes) | Self::ClassesApart(classes) => classes,
        }
    }

    pub(super) fn check(self) -> Result<(), Error> {
        let (fewest, what) = if let Self::Values(_) = self { (1, "1 column of numbers") } else { (2, "2 classes") };
        if self.columns() < fewest || u32::try_from(self.columns()).is_err() {
            return Err(Error::invalid(Argument::Targets, format!("at least {what}"), self.columns()));
        }
        Ok(())
    }

    /// Groups of rows whose products are apart.
    pub(crate) fn groups(self) -> usize {
        if let Self::ClassesApart(classes) = self { classes } else { 1 }
    }
}

/// Targets of some rows.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// Numbers.
    Values(Rows<'a, f64>),
    /// Classes, counted from 0.
    Classes(&'a [u32]),
}

impl Labels<'_> {
    /// Those of some of the rows.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Classes(classes) => Self::Classes(&classes[range]),
            Self::Values(values) => match Input::from(values).slice(range) {
                Input::Dense(values) => Self::Values(values),
                Input::Sparse(_) => unreachable!("dense rows have dense parts"),
            },
        }
    }

    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Values(rows) => rows.rows(),
            Self::Classes(classes) => classes.len(),
        }
    }
}

/// Checks that all classes are among the first `classes` ones.
pub(crate) fn check_classes(labels: &[u32], classes: usize) -> Result<(), Error> {
    match labels.iter().position(|&label| label as usize >= classes) {
        None => Ok(()),
        Some(row) => {
            let received = format!("{} in row {row}", labels[row]);
            Err(Error::invalid(Argument::Labels, format!("classes below {classes}"), received))
        }
    }
}

/// A column of targets of some rows.
pub(super) enum Column {
    Values(Vec<f64>),
    /// Ones in these places of the chunk, zeros elsewhere.
    Members(Vec<usize>),
}

impl Column {
    /// Σ yφ for a group of features of the same rows.
    pub(super) fn products(&self, rows: &[&Group]) -> Group {
        match self {
            Self::Values(targets) => targets.iter().zip(rows).fold([0.0; WIDTH], |mut sums, (target, row)| {
                sums.iter_mut().zip(*row).for_each(|(sum, value)| *sum += target * value);
                sums
            }),
            Self::Members(places) => sum(places.iter().map(|&place| rows[place])),
        }
    }

    /// Σ y, Σ y² and, of numbers, Σ (y − ȳ)².
    pub(super) fn sums(&self) -> [f64; 3] {
        match self {
            Self::Values(targets) => {
                let spread = Spread::of(targets);
                [spread.sum, targets.iter().map(|target| target * target).sum(), spread.squares]
            }
            Self::Members(places) => [places.len() as f64, places.len() as f64, 0.0],
        }
    }
}

/// How numbers vary. Σ y² − nȳ² would lose all digits where their mean is large.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Spread {
    /// n
    pub(crate) count: f64,
    /// Σ y
    pub(crate) sum: f64,
    /// Σ (y − ȳ)²
    pub(crate) squares: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let (count, sum) = (values.len() as f64, values.iter().sum::<f64>());
        let mean = sum / count.max(1.0);
        let [left, squares] = values.iter().fold([0.0; 2], |[left, squares], value| {
            let apart = value - mean;
            [left + apart, squares + apart * apart]
        });
        // The mean is rounded.
        Self { count, sum, squares: squares - left * left / count.max(1.0) }
    }

    /// That of both; their order does not matter, to the last bit.
    ///
    /// # Reference
    /// Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise algorithm for computing sample variances".
    pub(crate) fn plus(self, other: Self) -> Self {
        if self.count == 0.0 || other.count == 0.0 {
            return if self.count == 0.0 { other } else { self };
        }
        let (count, apart) = (self.count + other.count, self.sum / self.count - other.sum / other.count);
        let between = apart * apart * (self.count * other.count / count);
        Self { count, sum: self.sum + other.sum, squares: self.squares + other.squares + between }
    }

    /// Σ (y − ȳ)², zero for numbers that differ by rounding alone.
    pub(crate) fn significant(self) -> f64 {
        let rounding = 64.0 * f64::EPSILON * self.sum / self.count.max(1.0);
        if self.squares <= self.count * rounding * rounding { 0.0 } else { self.squares }
    }
}

pub(super) fn sum<'a>(rows: impl Iterator<Item = &'a Group>) -> Group {
    rows.fold([0.0; WIDTH], |mut sums, row| {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        sums
    })
}

pub(super) fn target_columns(rows: &[usize], labels: Labels<'_>, columns: usize) -> Vec<Column> {
    match labels {
        Labels::Values(values) => (0..columns)
            .map(|column| Column::Values(rows.iter().map(|&row| values.row(row)[column]).collect()))
            .collect(),
        Labels::Classes(labels) => {
            let mut members = vec![Vec::new(); columns];
            rows.iter().enumerate().for_each(|(place, &row)| members[labels[row] as usize].push(place));
            members.into_iter().map(Column::Members).collect()
        }
    }
}
