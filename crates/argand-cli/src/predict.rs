//! `argand predict`: predictions of a model for rows.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use argand::Rows;
use indicatif::HumanCount;

use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::model::NamedModel;
use crate::on_threads;
use crate::output;
use crate::selection::{Picking, Policy, Saved, TableArguments};
use crate::table::{self, Columns, LabelWriter, Writer};

/// Predict labels with a model.
///
/// Reads the tables that `argand fit` reads, in blocks, and writes one label or number per row: as .npy, .csv or .parquet, by
/// extension. The column that held the labels when the model was fitted is left out; the others are matched by
/// name where the model and the table have names, and otherwise by position. The output appears once it is complete, or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A model written by `argand fit`.
    model: PathBuf,

    /// The table to predict for, or one table per factor with equally many rows.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    /// Where to write the predictions; the extension names the format.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Write the probability of every class instead of the most probable one.
    #[arg(long)]
    proba: bool,

    #[command(flatten)]
    device: DeviceArguments,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    table: TableArguments,

    /// Print nothing on success.
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  argand predict digits.model test.csv -o predicted.csv
  argand predict digits.model test.parquet -o probabilities.npy --proba";

/// The output.
enum Out {
    Labels(LabelWriter),
    Numbers(Box<dyn Writer<f64>>),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut named = NamedModel::read(&arguments.model)?;
    let device = arguments.device.open()?;
    device.take(&mut *named.model);
    let mut taken = arguments.inputs.iter().chain([&arguments.model]);
    output::check_free("--output", &arguments.output, &mut taken)?;
    let recipe = named.model.recipe();
    let missing = arguments.table.missing(Some(("model", &recipe.missing)))?;
    let labels: Vec<String> = named.label_column.clone().into_iter().collect();
    let picking = Picking {
        arguments: &arguments.table,
        labels: &labels,
        label_place: named.label_place,
        saved: Some(Saved::of("model", recipe)),
    };
    let policy = missing.as_ref().map_or(Policy::Error, Policy::from);
    let mut inputs = Inputs::<f32>::open(&arguments.inputs, &picking, policy)?;
    let numbers = |names: Vec<String>| table::create::<f64>(&arguments.output, Columns::Named(names)).map(Out::Numbers);
    let mut out = match named.classes() {
        None if arguments.proba => {
            return Err(Failure::Input("--proba: expected a model of classes, got one of numbers".to_owned()));
        }
        None => numbers(vec!["prediction".to_owned()])?,
        Some(_) if arguments.proba && !named.model.has_probabilities() => {
            let kind = named.model.name();
            return Err(Failure::Input(format!("--proba: expected a model with probabilities, got {kind}")));
        }
        Some(classes) if arguments.proba => numbers(classes.names().to_vec())?,
        Some(classes) => Out::Labels(LabelWriter::create(&arguments.output, classes.names())?),
    };
    let begun = Instant::now();
    let rows = on_threads(arguments.threads, || {
        let pipeline = device.pipeline(named.model.recipe());
        let pipeline = pipeline.map_err(|error| Failure::input(&arguments.model, error))?;
        if !arguments.quiet {
            inputs.show_progress("");
        }
        let block_rows = inputs.block_rows(named.task.predicted_bytes());
        while inputs.next(block_rows)? > 0 {
            let (mut labels, mut numbers) = (Vec::new(), Vec::new());
            let views = inputs.views().map_err(|error| inputs.explain(error))?;
            let predict = |_, features: Rows<'_, f32>| {
                match &out {
                    Out::Labels(_) => labels.extend(named.model.labels(features)?),
                    Out::Numbers(_) => numbers.extend(named.model.predict(features)?),
                }
                Ok(())
            };
            pipeline.for_each_block(&views, predict).map_err(|error| inputs.explain(error))?;
            match &mut out {
                Out::Labels(writer) => writer.write(&labels)?,
                Out::Numbers(writer) => writer.write(&numbers)?,
            }
        }
        Ok::<_, Failure>(inputs.rows_before())
    })??;
    drop(inputs);
    match out {
        Out::Labels(writer) => writer.finish()?.commit()?,
        Out::Numbers(writer) => writer.finish()?.commit()?,
    }
    if !arguments.quiet {
        let seconds = (begun.elapsed().as_secs_f64() * 100.0).round() / 100.0;
        let rows = HumanCount(rows as u64);
        let _ = writeln!(std::io::stderr(), "{}: {rows} rows in {seconds} s", arguments.output.display());
    }
    Ok(())
}
