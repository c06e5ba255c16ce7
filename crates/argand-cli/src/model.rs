//! Model files: their contents and description.

use std::io::{BufReader, Read};
use std::path::Path;

use argand::{Error, FileFault};
use argand_learn::{Archive, Model, Predicts, Score, read_model};
use serde::{Deserialize, Serialize};

use crate::dataset::{Classes, Task};
use crate::failure::Failure;
use crate::output::AtomicFile;
use crate::table::open_regular;

/// What the command line stores beside a model.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The names of the classes.
    classes: Option<Vec<String>>,
    /// The column that held the labels, to leave out of the features.
    label_column: Option<String>,
    /// Its place, where columns had no names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label_place: Option<usize>,
}

/// A model and the meaning of its predictions.
#[derive(Debug)]
pub(crate) struct NamedModel {
    pub(crate) model: Box<dyn Model>,
    pub(crate) task: Task,
    pub(crate) label_column: Option<String>,
    pub(crate) label_place: Option<usize>,
}

/// Whether a file holds a model or a training state rather than a spec.
pub(crate) fn is_archive(path: &Path) -> Result<bool, Failure> {
    let mut start = Vec::new();
    let (file, _) = open_regular(path)?;
    let length = Archive::MAGIC.len() as u64;
    file.take(length).read_to_end(&mut start).map_err(|error| Failure::io(path, "read", &error))?;
    Ok(start == Archive::MAGIC)
}

/// Reads and checks a model or training state file.
pub(crate) fn read_archive(path: &Path) -> Result<Archive, Failure> {
    let (file, _) = open_regular(path)?;
    Archive::read_from(BufReader::with_capacity(1 << 18, file)).map_err(|error| Failure::input(path, error))
}

/// Completes a file.
pub(crate) fn write_archive(archive: &Archive, path: &Path, mut file: AtomicFile) -> Result<(), Failure> {
    archive.write_to(&mut file).map_err(|error| Failure::io(path, "write", &error))?;
    file.commit()
}

impl NamedModel {
    /// Reads and checks a file for predictions of one class or number per row.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let named = Self::from_archive(read_archive(path)?).map_err(|error| Failure::input(path, error))?;
        match named.model.predicts() {
            Predicts::Values(columns) if columns > 1 => {
                Err(Failure::input(path, format!("predicts {columns} numbers at once; this command predicts one")))
            }
            _ => Ok(named),
        }
    }

    pub(crate) fn from_archive(archive: Archive) -> Result<Self, Error> {
        let wrong = |what: String| Err(Error::Archive(FileFault::Content(what)));
        let note = archive.note::<Option<Note>>();
        // What is no model has a note of its own.
        let model = read_model(archive)?;
        let note = note?.unwrap_or_default();
        let task = match (model.predicts(), note.classes) {
            (Predicts::Values(_), _) => Task::Regression,
            (Predicts::Classes(count), _) if count < 2 => return wrong(format!("it has {count} classes")),
            (Predicts::Classes(count), None) => {
                Task::Classification((0..count).map(|class| class.to_string()).collect::<Vec<_>>().into())
            }
            (Predicts::Classes(count), Some(names)) if names.len() == count => Task::Classification(names.into()),
            (Predicts::Classes(count), Some(names)) => {
                return wrong(format!("it has {count} classes and names for {}", names.len()));
            }
        };
        Ok(Self { model, task, label_column: note.label_column, label_place: note.label_place })
    }

    /// The contents to save.
    pub(crate) fn archive(&self) -> Archive {
        let note = Note {
            classes: self.classes().map(|classes| classes.names().to_vec()),
            label_column: self.label_column.clone(),
            label_place: self.label_place,
        };
        self.model.to_archive().with_note(&note)
    }

    /// The classes it predicts.
    pub(crate) fn classes(&self) -> Option<&Classes> {
        match &self.task {
            Task::Classification(classes) => Some(classes),
            Task::Regression => None,
        }
    }

    /// Describes the model as names and values.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("model", self.model.name().to_owned())];
        lines.extend(self.model.settings().into_iter().map(|(name, setting)| (name, setting.to_string())));
        lines.extend(self.model.evidence().map(|found| ("evidence", format!("log marginal likelihood {found}"))));
        lines.push((
            "predicts",
            match &self.task {
                Task::Regression => match self.model.predicts().columns() {
                    1 => "a number".to_owned(),
                    columns => format!("{columns} numbers"),
                },
                Task::Classification(classes) => {
                    const SHOWN: usize = 12;
                    let names = classes.names();
                    let more = if names.len() > SHOWN { ", ..." } else { "" };
                    format!("{} classes: {}{more}", names.len(), names[..names.len().min(SHOWN)].join(", "))
                }
            },
        ));
        if let Some(column) = &self.label_column {
            lines.push(("labels", format!("column {column}")));
        }
        lines.push(("scaling", self.model.recipe().preparation.scaling().to_string()));
        lines
    }
}

/// Describes the score of a model as names and values.
pub(crate) fn describe_score(score: &Score, model: &dyn Model) -> Vec<(&'static str, String)> {
    let mut lines = vec![("rows", score.rows.to_string())];
    match model.predicts() {
        Predicts::Classes(_) => lines.push(("error", format!("{:.6}", score.error_rate()))),
        Predicts::Values(_) => {
            lines.push(("rmse", format!("{:.6}", score.rmse())));
            lines.extend(score.r2().map(|r2| ("r2", format!("{r2:.6}"))));
        }
    }
    if model.has_probabilities() || model.noise().is_some() {
        lines.push(("mnll", format!("{:.6}", score.loss())));
    }
    lines
}
