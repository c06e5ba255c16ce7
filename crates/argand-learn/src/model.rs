//! What all models have in common, and the list of them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use argand::{Error, FileFault, Rows};

use crate::archive::Archive;
use crate::engine::Engine;
use crate::gp::{GpClassifier, GpPrediction, GpRegressor};
use crate::gram::Labels;
use crate::online::SoftmaxClassifier;
use crate::recipe::Recipe;
use crate::ridge::Ridge;
use crate::score::{Score, largest};

/// What a model predicts for every row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predicts {
    /// One of this many classes.
    Classes(usize),
    /// This many numbers.
    Values(usize),
}

impl Predicts {
    /// Numbers that [`Model::predict`] gives for a row.
    #[must_use]
    pub fn columns(self) -> usize {
        match self {
            Self::Classes(columns) | Self::Values(columns) => columns,
        }
    }
}

/// The value of an option that a model was fitted with.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Setting {
    /// A number.
    Number(f64),
    /// A choice.
    Text(&'static str),
}

impl From<f64> for Setting {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Text(text) => formatter.pad(text),
        }
    }
}

/// A fitted model on features, of whatever kind: how rows become features, what it predicts from them, and its file.
///
/// [`read_model`] reads any of them. Who needs more than this of a model takes it for what it is, as [`Any`].
///
/// ```
/// use argand::{Rows, Spec};
/// use argand_learn::{Gram, Labels, Model, Predicts, Recipe, Ridge, Targets, read_model};
/// let recipe = Recipe::from(Spec::polynomial(2).with_features(4));
/// let mut gram = Gram::new(&recipe, Targets::Classes(2))?;
/// let features = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0];
/// gram.update(Rows::new(&features, 2, 4)?, Labels::Classes(&[0, 1]))?;
/// let model: Box<dyn Model> = read_model(Ridge::fit(&gram, 0.1)?.to_archive())?;
/// assert_eq!((model.kind(), model.predicts()), ("ridge", Predicts::Classes(2)));
/// let score = model.score(Rows::new(&features, 2, 4)?, Labels::Classes(&[0, 1]))?;
/// assert_eq!((score.rows, score.errors), (2, 0));
/// # Ok::<(), argand::Error>(())
/// ```
pub trait Model: Any + fmt::Debug + Send + Sync {
    /// The kind of its [`Archive`].
    fn kind(&self) -> &'static str;

    /// What people call it. Models of classes and of numbers may share a name.
    fn name(&self) -> &'static str;

    /// How rows become features.
    fn recipe(&self) -> &Recipe;

    /// Classes, or columns of numbers.
    fn predicts(&self) -> Predicts;

    /// Whether [`Model::predict`] gives probabilities of classes.
    fn has_probabilities(&self) -> bool {
        false
    }

    /// The variance of observed numbers around the latent function, of models that know it.
    fn noise(&self) -> Option<f64> {
        None
    }

    /// The options it was fitted with, by name.
    fn settings(&self) -> Vec<(&'static str, Setting)>;

    /// The logarithm of the marginal likelihood, of models that have one.
    fn evidence(&self) -> Option<f64> {
        None
    }

    /// Numbers, or a score for every class that is larger for likelier ones: row by row, and cheaper than probabilities.
    ///
    /// # Errors
    /// [`Error::Invalid`] for features of another width, [`Error::NotFinite`], and [`Error::Overflow`].
    fn scores(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error>;

    /// Numbers, or probabilities of classes, or their scores where there are no probabilities: row by row.
    ///
    /// # Errors
    /// As [`Model::scores`].
    fn predict(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.scores(features)
    }

    /// The class of every row: that of the largest of what [`Model::predict`] gives, which need not be computed for it.
    ///
    /// # Errors
    /// As [`Model::scores`].
    fn labels(&self, features: Rows<'_, f32>) -> Result<Vec<u32>, Error> {
        Ok(largest(&self.predict(features)?, self.predicts().columns()))
    }

    /// Means and variances of the latent functions, of models that have them.
    ///
    /// # Errors
    /// As [`Model::scores`].
    fn latent(&self, features: Rows<'_, f32>) -> Result<Option<GpPrediction>, Error> {
        let _ = features;
        Ok(None)
    }

    /// The model as a file.
    fn to_archive(&self) -> Archive;

    /// Lets an engine compute what is expensive in predictions, if anything is. A fitted model runs where it was fitted.
    fn run_on(&mut self, engine: &Arc<dyn Engine>) {
        let _ = engine;
    }

    /// How good predictions of some rows are.
    ///
    /// # Errors
    /// As [`Model::scores`]; [`Error::Invalid`] for labels of another kind or number.
    fn score(&self, features: Rows<'_, f32>, labels: Labels<'_>) -> Result<Score, Error> {
        Score::of(self, features, labels)
    }
}

/// What makes a model of a file.
type Reader = fn(Archive) -> Result<Box<dyn Model>, Error>;

fn boxed<M: Model>(model: M) -> Box<dyn Model> {
    Box::new(model)
}

/// Every kind of model. A new one is a line here.
const MODELS: [(&str, Reader); 4] = [
    (crate::ridge::KIND, |archive| Ridge::from_archive(archive).map(boxed)),
    (crate::gp::CLASSIFIER, |archive| GpClassifier::from_archive(archive).map(boxed)),
    (crate::gp::REGRESSOR, |archive| GpRegressor::from_archive(archive).map(boxed)),
    (crate::online::classifier::KIND, |archive| SoftmaxClassifier::from_archive(archive).map(boxed)),
];

/// The kinds of models that [`read_model`] knows.
pub fn kinds() -> impl ExactSizeIterator<Item = &'static str> {
    MODELS.iter().map(|(kind, _)| *kind)
}

/// The model in a file, of whatever kind.
///
/// # Errors
/// [`Error::Archive`], with [`FileFault::Kind`] if the file holds something else than a model.
pub fn read_model(archive: Archive) -> Result<Box<dyn Model>, Error> {
    match MODELS.iter().find(|(kind, _)| *kind == archive.kind()) {
        Some((_, read)) => read(archive),
        None => Err(Error::Archive(FileFault::Kind {
            expected: kinds().collect::<Vec<_>>().join(", "),
            found: archive.kind().to_owned(),
        })),
    }
}
