//! `argand evaluate`: how well a model predicts.

use std::path::PathBuf;

use argand_learn::Score;

use crate::dataset::{Dataset, LabelSource, Part};
use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::info::table_of;
use crate::model::{NamedModel, describe_score};
use crate::selection::{Policy, Saved, TableArguments};
use crate::{on_threads, print};

/// Compare the predictions of a model with the truth.
///
/// For classes, prints the share of misclassified rows (error); for numbers, the root mean squared error
/// (rmse) and the share of variance explained (r2). Probabilistic models also get their mean negative
/// log-likelihood (mnll).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  argand evaluate digits.model test.csv --labels class")]
pub(crate) struct Arguments {
    /// A model written by `argand fit`.
    model: PathBuf,

    /// The table to predict for, or one table per factor with equally many rows.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    /// The truth: a column of IN by its name (or its number, counted from 0, in text without a header), or a file with one column
    /// or a LIBSVM file.
    #[arg(long, value_name = "FILE|COLUMN")]
    labels: String,

    #[command(flatten)]
    device: DeviceArguments,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    table: TableArguments,

    /// Hide the progress bar.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut named = NamedModel::read(&arguments.model)?;
    let device = arguments.device.open()?;
    device.take(&mut *named.model);
    let labels = LabelSource::find("--labels", &arguments.labels, &arguments.inputs, &arguments.table)?;
    let recipe = named.model.recipe().clone();
    let missing = arguments.table.missing(Some(("model", &recipe.missing)))?;
    let policy = missing.as_ref().map_or(Policy::Error, Policy::from);
    let mut dataset = Dataset::new(&arguments.inputs, labels, Part::All, &arguments.table, policy);
    dataset.leave_out(named.label_column.as_deref());
    dataset.progress = !arguments.quiet;
    let score = on_threads(arguments.threads, || {
        let pipeline = device.pipeline(named.model.recipe());
        let pipeline = pipeline.map_err(|error| Failure::input(&arguments.model, error))?;
        let mut score = Score::default();
        let pass = dataset.pass(Some(Saved::of("model", &recipe)), &named.task, "")?;
        pass.for_each(&pipeline, |features, labels| {
            score = score.plus(named.model.score(features, labels)?);
            Ok(())
        })?;
        Ok::<_, Failure>(score)
    })??;
    print(&table_of(&describe_score(&score, &*named.model)))
}
