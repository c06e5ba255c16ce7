//! Rows with classes, and how they are split and scaled.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use argand::rng::{Purpose, Stream};
use argand::{Argument, Input, Rows};
use argand_learn::{PreparationFit, Scaling};
use sha2::{Digest, Sha256};

use crate::Error;

/// Rows and their classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// One row after the other.
    pub values: Vec<f32>,
    /// The class of every row, counted from 0.
    pub labels: Vec<u32>,
}

impl Part {
    /// Numbers in a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.values.len().checked_div(self.labels.len()).unwrap_or(0)
    }

    /// The rows.
    ///
    /// # Errors
    /// [`Error::Argand`] if their length does not fit.
    pub fn rows(&self) -> Result<Rows<'_, f32>, Error> {
        Ok(Rows::new(&self.values, self.labels.len(), self.columns())?)
    }

    /// Some of the rows.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let columns = self.columns();
        let values = rows.iter().flat_map(|&row| &self.values[row * columns..][..columns]).copied().collect();
        Self { values, labels: rows.iter().map(|&row| self.labels[row]).collect() }
    }
}

/// A set of labelled rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// The number of classes.
    pub classes: usize,
    /// Training rows, or all rows.
    train: Part,
    /// Test rows, where the set defines them; other sets are split anew for every seed.
    test: Option<Part>,
    /// A hash of all numbers.
    fingerprint: String,
}

/// The share of test rows where the set defines none: 1 in 10, as in the authors' runs.
const TESTED: usize = 10;

impl Dataset {
    /// Checks the rows and takes them.
    ///
    /// # Errors
    /// [`Error::Data`] for too few rows, rows of different widths, or numbers that are not finite.
    pub fn new(name: &str, train: Part, test: Option<Part>) -> Result<Self, Error> {
        let mut hash = Sha256::new();
        let columns = train.columns();
        for part in std::iter::once(&train).chain(&test) {
            let rows = part.labels.len();
            if rows < TESTED || part.columns() != columns || part.values.len() != rows * columns {
                let what = format!("{rows} rows of {} columns", part.columns());
                return Err(Error::Data(format!("{name}: expected at least 10 rows of equal width, got {what}")));
            }
            let finite = Input::from(part.rows()?).check_finite(Argument::Data);
            finite.map_err(|error| Error::Data(format!("{name}: {error}")))?;
            for values in part.values.chunks(1 << 14) {
                hash.update(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
            }
            hash.update(part.labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<u8>>());
        }
        let labels = std::iter::once(&train).chain(&test).flat_map(|part| &part.labels);
        let classes = labels.max().map_or(0, |&largest| largest as usize + 1);
        let fingerprint = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name: name.to_owned(), classes, train, test, fingerprint })
    }

    /// Handwritten digits: 1,797 rows of 64 pixels, embedded in this program.
    ///
    /// # Errors
    /// None in practice.
    pub fn digits() -> Result<Self, Error> {
        let (pixels, labels) = DIGITS.split_at(DIGIT_ROWS * DIGIT_COLUMNS);
        let values = pixels.iter().map(|&pixel| f32::from(pixel)).collect();
        let labels = labels.iter().map(|&label| u32::from(label)).collect();
        Self::new("digits", Part { values, labels }, None)
    }

    /// A hash of the numbers.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The rows not reserved for tests: all of them, where the set reserves none.
    #[must_use]
    pub fn to_learn_from(&self) -> &Part {
        &self.train
    }

    /// Training and test rows. Sets with test rows keep those; others give a tenth of their rows, drawn anew for
    /// every seed, but never the only row of a class.
    #[must_use]
    pub fn split(&self, seed: u64) -> [Cow<'_, Part>; 2] {
        if let Some(test) = &self.test {
            return [Cow::Borrowed(&self.train), Cow::Borrowed(test)];
        }
        let mut test = shuffled(self.train.labels.len(), seed);
        let mut train = test.split_off(test.len() / TESTED);
        let mut known = vec![false; self.classes];
        train.iter().for_each(|&row| known[self.train.labels[row] as usize] = true);
        // A class without training rows cannot be learnt: move its first row over.
        test.retain(|&row| {
            let seen = std::mem::replace(&mut known[self.train.labels[row] as usize], true);
            if !seen {
                train.push(row);
            }
            seen
        });
        [Cow::Owned(self.train.select(&train)), Cow::Owned(self.train.select(&test))]
    }

    /// [`Dataset::split`], scaled by what the training rows teach.
    ///
    /// # Errors
    /// As [`PreparationFit::update`].
    pub fn scaled(&self, scaling: Scaling, seed: u64) -> Result<[Part; 2], Error> {
        let parts = self.split(seed);
        let mut fit = PreparationFit::new(scaling, &[self.columns()]);
        fit.update(&[parts[0].rows()?.into()])?;
        let preparation = fit.finish()?;
        let scale = |part: &Part| -> Result<Part, Error> {
            Ok(Part { values: preparation.scale(part.rows()?)?, labels: part.labels.clone() })
        };
        Ok([scale(&parts[0])?, scale(&parts[1])?])
    }

    /// Numbers in a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.train.columns()
    }

    /// Rows in all.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.train.labels.len() + self.test.as_ref().map_or(0, |test| test.labels.len())
    }
}

/// 0, …, `count` − 1 in random order.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut stream = Stream::new(seed, Purpose::Sample, 11, 0);
    for position in 0..count {
        let left = u32::try_from(count - position).unwrap_or(u32::MAX);
        order.swap(position, position + stream.below(left) as usize);
    }
    order
}

const DIGIT_ROWS: usize = 1797;
const DIGIT_COLUMNS: usize = 64;
/// Pixels row by row, then labels; `data/README.md` describes it.
static DIGITS: &[u8; DIGIT_ROWS * (DIGIT_COLUMNS + 1)] = include_bytes!("../data/digits.u8");

type Loader = Box<dyn Fn() -> Result<Dataset, Error> + Send + Sync>;

/// A dataset read when first needed.
pub struct Source {
    name: String,
    loader: Loader,
    loaded: OnceLock<Arc<Dataset>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Source").field(&self.name).finish()
    }
}

impl Source {
    /// A dataset with this name, and how to read it.
    pub fn new(name: &str, loader: impl Fn() -> Result<Dataset, Error> + Send + Sync + 'static) -> Self {
        Self { name: name.to_owned(), loader: Box::new(loader), loaded: OnceLock::new() }
    }

    /// The embedded digits.
    #[must_use]
    pub fn digits() -> Self {
        Self::new("digits", Dataset::digits)
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dataset.
    ///
    /// # Errors
    /// Errors of reading it.
    pub fn load(&self) -> Result<Arc<Dataset>, Error> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(Arc::clone(loaded));
        }
        let loaded = Arc::new((self.loader)()?);
        Ok(Arc::clone(self.loaded.get_or_init(|| loaded)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn digits_are_the_ones_described() {
        let digits = Dataset::digits().unwrap();
        assert_eq!((digits.rows(), digits.columns(), digits.classes), (1797, 64, 10));
        // The first digit is a 0 whose first row of pixels is 0 0 5 13 9 1 0 0.
        assert_eq!(digits.train.values[..8], [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0]);
        assert_eq!(digits.train.labels[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    /// Every row is on exactly one side: the authors' runs had copies on both.
    #[test]
    fn no_row_is_on_both_sides_of_a_split() {
        let values = (0..230_u8).map(f32::from).collect();
        let set = Dataset::new("numbers", Part { values, labels: vec![0; 115] }, None).unwrap();
        let mut tests = Vec::new();
        for seed in 0..20 {
            let [train, test] = set.split(seed);
            assert_eq!((train.labels.len(), test.labels.len()), (104, 11));
            let mut all: Vec<f32> = train.values.iter().chain(&test.values).copied().collect();
            all.sort_by(f32::total_cmp);
            assert_eq!(all, set.train.values, "seed {seed}");
            tests.push(test.values.clone());
        }
        tests.dedup();
        assert_eq!(tests.len(), 20, "another split for every seed");
    }

    #[test]
    fn every_class_is_there_to_learn_from() {
        let values = (0..40_u8).map(f32::from).collect();
        let labels = (0..20).map(|row| if row == 7 { 2 } else { row % 2 }).collect();
        let set = Dataset::new("rare", Part { values, labels }, None).unwrap();
        let sizes: Vec<usize> = (0..40).map(|seed| set.split(seed)[1].labels.len()).collect();
        assert!((0..40).all(|seed| set.split(seed)[0].labels.contains(&2)));
        assert!(sizes.contains(&1) && sizes.contains(&2), "the rare row was drawn for a test now and then: {sizes:?}");
    }

    #[test]
    fn scaling_learns_from_the_rows_to_learn_from_alone() {
        let train = Part { values: (0..20).flat_map(|i| [i as f32 + 3.0, 1.0]).collect(), labels: vec![0; 20] };
        let test = Part { values: (0..10).flat_map(|_| [2.0, 1.0]).collect(), labels: vec![1; 10] };
        let set = Dataset::new("numbers", train, Some(test)).unwrap();
        let [_, test] = set.scaled(Scaling::NonNegative, 0).unwrap();
        // 2 minus the smallest of the others, 3, is −1: already of unit norm.
        assert_eq!(test.values[..2], [-1.0, 0.0]);
    }

    #[test]
    fn wrong_sets_are_errors() {
        let part = |values: Vec<f32>, rows| Part { values, labels: vec![0; rows] };
        assert!(Dataset::new("few", part(vec![1.0; 9], 9), None).is_err());
        assert!(Dataset::new("ragged", part(vec![1.0; 21], 10), None).is_err());
        assert!(Dataset::new("wide", part(vec![1.0; 20], 10), Some(part(vec![1.0; 30], 10))).is_err());
        assert!(Dataset::new("infinite", part(vec![f32::INFINITY; 20], 10), None).is_err());
    }
}
