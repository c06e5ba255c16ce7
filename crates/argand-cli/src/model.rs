//! Files of models: what they hold, and what they predict.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use argand::model::online::SoftmaxClassifier;
use argand::model::{
    Archive, GpClassifier, GpRegressor, Labels, POSTERIOR_SAMPLES, Recipe, Ridge, largest, mean_negative_log_likelihood,
};
use argand::{Error, FileFault, Rows};
use serde::{Deserialize, Serialize};

use crate::dataset::{Classes, Task};
use crate::failure::Failure;
use crate::output::AtomicFile;

/// Any model that can be in a file.
#[derive(Debug)]
pub(crate) enum Model {
    Ridge(Ridge),
    GpClassifier(GpClassifier),
    GpRegressor(GpRegressor),
    Softmax(SoftmaxClassifier),
}

/// What this program adds to a model.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The names of the classes.
    classes: Option<Vec<String>>,
    /// The column that held the labels, to be left out of the features.
    label_column: Option<String>,
}

/// A model, and what its numbers stand for.
#[derive(Debug)]
pub(crate) struct NamedModel {
    pub(crate) model: Model,
    pub(crate) task: Task,
    pub(crate) label_column: Option<String>,
}

/// Text from a file, without what could command a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// How every file of a model or of training begins.
const MAGIC: &[u8; 8] = b"argand\x1a\n";

/// Whether a file is one of a model rather than of a spec.
pub(crate) fn is_archive(path: &Path) -> Result<bool, Failure> {
    let mut start = Vec::new();
    let file = File::open(path).map_err(|error| Failure::io(path, "open", &error))?;
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(|error| Failure::io(path, "read", &error))?;
    Ok(start == MAGIC)
}

/// Reads and checks a file of a model or of training.
pub(crate) fn read_archive(path: &Path) -> Result<Archive, Failure> {
    let file = File::open(path).map_err(|error| Failure::io(path, "open", &error))?;
    Archive::read_from(BufReader::with_capacity(1 << 18, file)).map_err(|error| Failure::input(path, error))
}

/// Completes a file.
pub(crate) fn write_archive(archive: &Archive, path: &Path, mut file: AtomicFile) -> Result<(), Failure> {
    archive.write_to(&mut file).map_err(|error| Failure::io(path, "write", &error))?;
    file.commit()
}

impl NamedModel {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        Self::from_archive(read_archive(path)?).map_err(|error| Failure::input(path, error))
    }

    fn from_archive(archive: Archive) -> Result<Self, Error> {
        let note = archive.note::<Option<Note>>()?.unwrap_or_default();
        let model = match archive.kind() {
            "ridge" => Model::Ridge(Ridge::from_archive(archive)?),
            "gp-classifier" => Model::GpClassifier(GpClassifier::from_archive(archive)?),
            "gp-regressor" => Model::GpRegressor(GpRegressor::from_archive(archive)?),
            "softmax" => Model::Softmax(SoftmaxClassifier::from_archive(archive)?),
            other => {
                return Err(Error::Archive(FileFault::Content(format!(
                    "it is a file of \"{other}\", which is no model"
                ))));
            }
        };
        let task = match (model.classes(), note.classes) {
            (None, _) => Task::Regression,
            (Some(count), _) if count < 2 => {
                return Err(Error::Archive(FileFault::Content(format!("it has {count} classes"))));
            }
            (Some(count), None) => {
                Task::Classification((0..count).map(|class| class.to_string()).collect::<Vec<_>>().into())
            }
            (Some(count), Some(names)) if names.len() == count => Task::Classification(names.into()),
            (Some(count), Some(names)) => {
                return Err(Error::Archive(FileFault::Content(format!(
                    "it has {count} classes and names for {}",
                    names.len()
                ))));
            }
        };
        let columns = model.columns();
        if columns != 1 && task == Task::Regression {
            return Err(Error::Archive(FileFault::Content(format!(
                "it predicts {columns} numbers at once; this command knows one"
            ))));
        }
        Ok(Self { model, task, label_column: note.label_column })
    }

    /// What is saved.
    pub(crate) fn archive(&self) -> Archive {
        let note = Note {
            classes: self.classes().map(|classes| classes.names().to_vec()),
            label_column: self.label_column.clone(),
        };
        let archive = match &self.model {
            Model::Ridge(model) => model.to_archive(),
            Model::GpClassifier(model) => model.to_archive(),
            Model::GpRegressor(model) => model.to_archive(),
            Model::Softmax(model) => model.to_archive(),
        };
        archive.with_note(&note)
    }

    /// The classes that it tells apart.
    pub(crate) fn classes(&self) -> Option<&Classes> {
        match &self.task {
            Task::Classification(classes) => Some(classes),
            Task::Regression => None,
        }
    }

    /// What there is to say about it, name by name.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let mut lines = match &self.model {
            Model::Ridge(model) => vec![("model", "ridge".to_owned()), ("lambda", model.lambda().to_string())],
            Model::GpClassifier(model) => {
                let options = model.options();
                vec![
                    ("model", "gaussian process".to_owned()),
                    ("alpha", options.alpha.to_string()),
                    ("variance", options.variance.unwrap_or_default().to_string()),
                    ("evidence", format!("log marginal likelihood {}", model.log_marginal_likelihood())),
                ]
            }
            Model::GpRegressor(model) => vec![
                ("model", "gaussian process".to_owned()),
                ("variance", model.variances().kernel.to_string()),
                ("noise", model.variances().noise.to_string()),
                ("evidence", format!("log marginal likelihood {}", model.log_marginal_likelihood())),
            ],
            Model::Softmax(model) => {
                let pooling = model.layer().pooling();
                let pooling = match (pooling.signed_sqrt, pooling.l2) {
                    (false, false) => "none",
                    (true, false) => "signed square root",
                    (false, true) => "L2 normalisation",
                    (true, true) => "signed square root, L2 normalisation",
                };
                vec![("model", "softmax".to_owned()), ("pooling", pooling.to_owned())]
            }
        };
        lines.push((
            "predicts",
            match &self.task {
                Task::Regression => "a number".to_owned(),
                Task::Classification(classes) => {
                    const SHOWN: usize = 12;
                    let names = classes.names();
                    let more = if names.len() > SHOWN { ", ..." } else { "" };
                    format!("{} classes: {}{more}", names.len(), plain(&names[..names.len().min(SHOWN)].join(", ")))
                }
            },
        ));
        if let Some(column) = &self.label_column {
            lines.push(("labels", format!("column {}", plain(column))));
        }
        lines.push(("scaling", self.model.recipe().preparation.scaling().to_string()));
        lines
    }
}

impl Model {
    /// How rows become features.
    pub(crate) fn recipe(&self) -> &Recipe {
        match self {
            Self::Ridge(model) => model.recipe(),
            Self::GpClassifier(model) => model.recipe(),
            Self::GpRegressor(model) => model.recipe(),
            Self::Softmax(model) => model.recipe(),
        }
    }

    /// The number of classes, if it predicts such.
    fn classes(&self) -> Option<usize> {
        match self {
            Self::Ridge(model) => model.is_classifier().then(|| model.columns()),
            Self::GpClassifier(model) => Some(model.classes()),
            Self::GpRegressor(_) => None,
            Self::Softmax(model) => Some(model.layer().classes()),
        }
    }

    /// Numbers predicted for a row.
    fn columns(&self) -> usize {
        match self {
            Self::Ridge(model) => model.columns(),
            Self::GpClassifier(model) => model.classes(),
            Self::GpRegressor(model) => model.columns(),
            Self::Softmax(model) => model.layer().classes(),
        }
    }

    /// Whether it knows how likely classes are.
    pub(crate) fn has_probabilities(&self) -> bool {
        matches!(self, Self::GpClassifier(_) | Self::Softmax(_))
    }

    /// What it makes of features: probabilities or scores of classes, or numbers; row by row.
    pub(crate) fn predict(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        match self {
            Self::Ridge(model) => model.predict(features),
            Self::GpClassifier(model) => model.predict(features)?.probabilities(POSTERIOR_SAMPLES, 0),
            Self::GpRegressor(model) => model.means(features),
            Self::Softmax(model) => model.layer().probabilities(features),
        }
    }

    /// The most probable classes, from what was [predicted](Self::predict).
    pub(crate) fn most_probable(&self, predicted: &[f64]) -> Vec<u32> {
        largest(predicted, self.columns())
    }
}

/// How good predictions are; scores of blocks add up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Score {
    pub(crate) rows: f64,
    /// Rows of another class than predicted.
    errors: f64,
    /// Sum of −log of the probability, or density, of the truth.
    loss: f64,
    /// Sums of squared errors, of targets and of their squares.
    squares: f64,
    targets: f64,
    target_squares: f64,
}

impl Score {
    /// Takes some rows into account.
    pub(crate) fn update(&mut self, model: &Model, features: Rows<'_, f32>, labels: Labels<'_>) -> Result<(), Error> {
        let rows = features.rows();
        self.rows += rows as f64;
        match labels {
            Labels::Classes(labels) => {
                let predicted = model.predict(features)?;
                let classes = model.most_probable(&predicted);
                self.errors += classes.iter().zip(labels).filter(|(class, label)| class != label).count() as f64;
                if model.has_probabilities() {
                    self.loss += mean_negative_log_likelihood(&predicted, labels)? * rows as f64;
                }
            }
            Labels::Values(values) => {
                let (means, variances) = match model {
                    Model::GpRegressor(model) => {
                        let predicted = model.predict(features)?;
                        let noise = model.variances().noise;
                        (predicted.means, predicted.variances.iter().map(|variance| variance + noise).collect())
                    }
                    other => (other.predict(features)?, Vec::new()),
                };
                for (row, mean) in means.iter().enumerate() {
                    let target = values.row(row)[0];
                    let square = (target - mean).powi(2);
                    self.squares += square;
                    self.targets += target;
                    self.target_squares += target * target;
                    if let Some(variance) = variances.get(row) {
                        self.loss += 0.5 * (square / variance + (std::f64::consts::TAU * variance).ln());
                    }
                }
            }
        }
        Ok(())
    }

    /// Mean negative log-likelihood.
    pub(crate) fn loss(&self) -> f64 {
        self.loss / self.rows
    }

    /// What there is to say about it, name by name.
    pub(crate) fn describe(&self, model: &Model) -> Vec<(&'static str, String)> {
        let mut lines = vec![("rows", self.rows.to_string())];
        if model.classes().is_some() {
            lines.push(("error", format!("{:.6}", self.errors / self.rows)));
        } else {
            let spread = self.target_squares - self.targets * self.targets / self.rows;
            lines.push(("rmse", format!("{:.6}", (self.squares / self.rows).sqrt())));
            if spread > 0.0 {
                lines.push(("r2", format!("{:.6}", 1.0 - self.squares / spread)));
            }
        }
        if model.has_probabilities() || matches!(model, Model::GpRegressor(_)) {
            lines.push(("mnll", format!("{:.6}", self.loss())));
        }
        lines
    }
}
