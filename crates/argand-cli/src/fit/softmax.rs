//! Training a softmax layer, epoch by epoch.

use std::io::Write;
use std::path::Path;

use argand::{Error, FeatureMap};
use argand_learn::online::{Pooling, SoftmaxClassifier, SoftmaxLayer, Trainer};
use argand_learn::{Labels, Recipe, Score};
use serde::{Deserialize, Serialize};

use super::work::Work;
use crate::dataset::{Dataset, Task, digest};
use crate::failure::Failure;
use crate::model::{read_archive, write_archive};
use crate::output::AtomicFile;

impl Work<'_> {
    pub(super) fn softmax(&self) -> Result<SoftmaxClassifier, Failure> {
        let options = &self.arguments.softmax;
        let trainer_options = self.arguments.trainer_options();
        let epochs = options.epochs();
        let wrong = |error: Error| self.wrong(&error);
        let classes = if let Task::Classification(classes) = &self.task { classes.names() } else { &[] };
        let pooling = Pooling { signed_sqrt: options.signed_sqrt, l2: options.l2 };
        let layer = SoftmaxLayer::new(classes.len(), self.pipeline.output_dim(), pooling).map_err(wrong)?;
        let mut trainer = Trainer::new(layer, trainer_options).map_err(wrong)?;
        let run = self.run(classes)?;
        if let Some(path) = options.checkpoint.as_deref().filter(|path| path.exists()) {
            trainer = resume(path, &trainer, &run)?;
            if trainer.epochs() > epochs {
                let what =
                    format!("holds {} epochs, more than --epochs {epochs}; remove it to start over", trainer.epochs());
                return Err(Failure::input(path, what));
            }
        }
        while trainer.epochs() < epochs {
            let doing = format!("epoch {}/{epochs} ", trainer.epochs() + 1);
            let mut pass = self.training.pass(Some(self.saved), &self.task, &doing)?;
            let block_rows = pass.inputs().block_rows(0).next_multiple_of(trainer_options.batch);
            let mut any = 0;
            while pass.next(block_rows)? {
                let views = pass.inputs().views();
                let trained = views.and_then(|views| trainer.train_block(&self.pipeline, &views, pass.classes()));
                trained.map_err(|error| match error {
                    Error::Diverged => {
                        Failure::Input("--learning-rate: training diverges; lower it, or scale the rows".to_owned())
                    }
                    other => pass.inputs().explain(other),
                })?;
                any += pass.classes().len();
            }
            drop(pass);
            self.check_any(self.training, any)?;
            let validation = self.validation.map(|dataset| self.layer_loss(trainer.layer(), dataset)).transpose()?;
            let epoch = trainer.end_epoch(validation).map_err(wrong)?;
            if let Some(path) = options.checkpoint.as_deref() {
                write_archive(&trainer.to_archive().with_note(&run), path, AtomicFile::create(path)?)?;
            }
            if !self.arguments.quiet {
                let validation = validation.map_or(String::new(), |loss| format!(", validation loss {loss:.6}"));
                let _ = writeln!(
                    std::io::stderr(),
                    "epoch {}/{epochs}: training loss {:.6}{validation}, learning rate {}",
                    epoch.number,
                    epoch.training_loss,
                    epoch.learning_rate,
                );
            }
        }
        SoftmaxClassifier::new(self.recipe.clone(), trainer.into_best()).map_err(wrong)
    }

    fn layer_loss(&self, layer: &SoftmaxLayer, dataset: &Dataset<'_>) -> Result<f64, Failure> {
        let mut score = Score::default();
        let pass = dataset.pass(Some(self.saved), &self.task, "validation ")?;
        let rows = pass.for_each(&self.pipeline, |features, labels| {
            if let Labels::Classes(labels) = labels {
                score = score.plus(layer.score(features, labels)?);
            }
            Ok(())
        })?;
        self.check_any(dataset, rows)?;
        Ok(score.loss())
    }

    /// Identifies the run that a checkpoint belongs to; empty without one.
    fn run(&self, classes: &[String]) -> Result<Run, Failure> {
        let mut files: Vec<String> = Vec::new();
        for dataset in [Some(self.training), self.validation].into_iter().flatten() {
            for path in dataset.paths.iter().chain([dataset.labels.path()]) {
                // Reading every byte once takes far less than an epoch, and nothing if there is no checkpoint.
                if self.arguments.softmax.checkpoint.is_some() {
                    files.push(digest(path)?);
                }
            }
        }
        Ok(Run {
            recipe: self.recipe.clone(),
            classes: classes.to_vec(),
            label_column: self.training.labels.column().map(str::to_owned),
            validation: self.arguments.validation.clone(),
            files,
        })
    }
}

/// What is trained, and on what: only the same run may resume a checkpoint.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    recipe: Recipe,
    classes: Vec<String>,
    label_column: Option<String>,
    validation: Option<String>,
    /// What the files hold, wherever they are: their SHA-256.
    files: Vec<String>,
}

/// The saved state, if it belongs to the same run as `fresh`.
fn resume(path: &Path, fresh: &Trainer, run: &Run) -> Result<Trainer, Failure> {
    let archive = read_archive(path)?;
    let note = archive.note::<Run>();
    let saved = Trainer::from_archive(archive).map_err(|error| Failure::input(path, error))?;
    let same_layer = |trainer: &Trainer| {
        let layer = trainer.layer();
        (layer.classes(), layer.features(), layer.pooling(), *trainer.options())
    };
    if note.as_ref() != Ok(run) || same_layer(&saved) != same_layer(fresh) {
        let what = "belongs to another run, with other rows or labels, another sketch, scaling or options";
        return Err(Failure::input(path, format!("{what}; remove it or name another --checkpoint")));
    }
    Ok(saved)
}
