//! The authors' results, from a CSV file.

use std::path::Path;

use argand::Method;
use serde::Deserialize;

use crate::{Error, files};

/// One line of the file.
#[derive(Debug, Clone, Deserialize)]
struct Record {
    dataset: String,
    p: usize,
    #[serde(rename = "D")]
    features: usize,
    sketch: String,
    seeds: Option<f64>,
    rel_frob: Option<f64>,
    rel_frob_sd: Option<f64>,
    test_seeds: Option<f64>,
    test_error: Option<f64>,
    test_error_sd: Option<f64>,
    test_mnll: Option<f64>,
}

/// A mean over some seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TheirMean {
    pub(crate) seeds: f64,
    pub(crate) mean: f64,
    /// The standard deviation over seeds, where given.
    pub(crate) deviation: Option<f64>,
}

/// The authors' results for closed-form GP classification on non-negative rows of unit norm.
///
/// The file has the columns dataset, p, D, sketch, seeds, rel_frob, rel_frob_sd, test_seeds, test_error, test_error_sd and test_mnll; others are
/// ignored.
#[derive(Debug, Clone)]
pub struct Reference {
    records: Vec<Record>,
}

impl Reference {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::File`] for other columns.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self { records: files::read_csv(path)? })
    }

    /// The authors' relative Frobenius error, test error and mean negative log-likelihood.
    pub(crate) fn find(&self, dataset: &str, degree: usize, features: usize, method: Method) -> [Option<TheirMean>; 3] {
        let letters = |name: &str| name.to_lowercase().replace('-', "_");
        let method = letters(&method.to_string());
        let found = self.records.iter().find(|record| {
            letters(&record.dataset) == letters(dataset)
                && (record.p, record.features) == (degree, features)
                && letters(&record.sketch) == method
        });
        let mean = |seeds: Option<f64>, mean: Option<f64>, deviation| {
            Some(TheirMean { seeds: seeds?, mean: mean?, deviation })
        };
        found.map_or([None; 3], |found| {
            [
                mean(found.seeds, found.rel_frob, found.rel_frob_sd),
                mean(found.test_seeds, found.test_error, found.test_error_sd),
                mean(found.test_seeds, found.test_mnll, None),
            ]
        })
    }
}
