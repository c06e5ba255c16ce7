//! A trained softmax layer, and its file.

use argand::{Argument, Error, Rows};
use serde::{Deserialize, Serialize};

use super::layer::SoftmaxLayer;
use super::pooling::Pooling;
use crate::archive::Archive;
use crate::model::{Model, Predicts, Setting};
use crate::recipe::Recipe;

/// A trained [`SoftmaxLayer`] and how rows become its features.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftmaxClassifier {
    pub(super) header: Header,
    layer: SoftmaxLayer,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    recipe: Recipe,
    pub(super) classes: usize,
    pooling: Pooling,
}

pub(crate) const KIND: &str = "softmax";

impl SoftmaxClassifier {
    /// A model from its parts.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the recipe gives another number of features than the layer takes.
    pub fn new(recipe: Recipe, layer: SoftmaxLayer) -> Result<Self, Error> {
        if recipe.spec.features != layer.features {
            return Err(Error::invalid(Argument::Recipe, format!("{} features", layer.features), recipe.spec.features));
        }
        Ok(Self { header: Header { recipe, classes: layer.classes, pooling: layer.pooling }, layer })
    }

    /// How rows become features.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    /// The layer that turns features into probabilities.
    #[must_use]
    pub fn layer(&self) -> &SoftmaxLayer {
        &self.layer
    }

    /// The model as a file.
    #[must_use]
    pub fn to_archive(&self) -> Archive {
        Archive::new(KIND, &self.header)
            .with_f32("weights", self.layer.weights().to_vec())
            .with_f32("biases", self.layer.biases().to_vec())
    }

    /// Reads the result of [`SoftmaxClassifier::to_archive`].
    ///
    /// # Errors
    /// [`Error::Archive`], and as [`SoftmaxLayer::new`].
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let header: Header = archive.header(KIND)?;
        let features = header.recipe.spec.features;
        let length = SoftmaxLayer::count(header.classes, features)?;
        let weights = archive.take_f32("weights", length - header.classes)?;
        let biases = archive.take_f32("biases", header.classes)?;
        let layer = SoftmaxLayer::from_parameters(features, header.pooling, &weights, &biases)?;
        Ok(Self { header, layer })
    }
}

impl Model for SoftmaxClassifier {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn name(&self) -> &'static str {
        "softmax"
    }

    fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    fn predicts(&self) -> Predicts {
        Predicts::Classes(self.layer.classes())
    }

    fn has_probabilities(&self) -> bool {
        true
    }

    fn settings(&self) -> Vec<(&'static str, Setting)> {
        vec![("pooling", Setting::Text(self.layer.pooling().describe()))]
    }

    fn scores(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.layer.scores(features)
    }

    fn predict(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.layer.probabilities(features)
    }

    fn to_archive(&self) -> Archive {
        self.to_archive()
    }
}
