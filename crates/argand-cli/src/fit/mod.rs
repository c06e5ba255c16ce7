//! `argand fit`: from labelled rows to a model.

mod arguments;
mod from_gram;
mod softmax;
mod work;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use argand_learn::{Missing, Preparation, PreparationFit, Recipe, Scaling};

use crate::dataset::{Classes, Dataset, LabelSource, Part, Split, Task};
use crate::failure::Failure;
use crate::inputs::Reservoir;
use crate::model::{NamedModel, write_archive};
use crate::on_threads;
use crate::output::{self, AtomicFile};
use crate::selection::{Means, Policy, Saved, warn_of_scaling};
use crate::sketch::SketchArguments;
pub(crate) use arguments::Arguments;
pub(crate) use arguments::TaskKind;
use work::{Lines, Work};

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check_options()?;
    if let Some(sums) = &arguments.from_gram {
        return from_gram::run(arguments, sums);
    }
    let labels = arguments.labels.as_deref().unwrap_or_default();
    let labels = LabelSource::find("--labels", labels, &arguments.inputs, &arguments.table)?;
    let (part, validation_path) = validation(arguments)?;
    let validation_paths: Vec<PathBuf> = validation_path.into_iter().collect();
    let validation_labels = match &validation_paths[..] {
        [] => labels.clone(),
        paths => {
            let column = arguments.validation_labels.as_deref().or(labels.column()).ok_or_else(|| {
                Failure::Input("--validation-labels: expected, because --labels is a separate file".to_owned())
            })?;
            LabelSource::find("--validation-labels", column, paths, &arguments.table)?
        }
    };
    let saved = arguments.sketch.saved()?;
    let missing = arguments.table.missing(saved.as_ref().map(|recipe| ("spec", &recipe.missing)))?;
    let policy = missing.as_ref().map_or(Policy::Keep, Policy::from);
    let part = part.unwrap_or(Part::All);
    let mut training = Dataset::new(&arguments.inputs, labels, part, &arguments.table, policy.clone());
    training.progress = !arguments.quiet;
    let mut validation = match (&validation_paths[..], part) {
        ([], Part::Training(split)) => {
            let mut validation = training.clone();
            validation.part = Part::HeldOut(split);
            Some(validation)
        }
        ([], _) => None,
        (paths, _) => {
            let mut validation = Dataset::new(paths, validation_labels, Part::All, &arguments.table, policy);
            validation.leave_out(training.labels.column_name());
            validation.progress = training.progress;
            Some(validation)
        }
    };

    let read = arguments.inputs.iter().chain(&validation_paths).chain(arguments.sketch.file());
    let mut taken: Vec<&PathBuf> = read.collect();
    taken.extend([&training, validation.as_ref().unwrap_or(&training)].map(|dataset| dataset.labels.path()));
    output::check_free("--output", &arguments.output, taken.iter().copied())?;
    taken.push(&arguments.output);
    if let Some(path) = arguments.softmax.checkpoint.as_deref() {
        output::check_free("--checkpoint", path, taken.into_iter())?;
        // Dropped at once: this only checks that the file can be written after the first epoch.
        AtomicFile::create(path)?;
    }

    warn_of_scaling(arguments.scaling, saved.as_ref());
    let fits = saved.as_ref().map(|recipe| Saved::of("spec", recipe));
    let first = training.inputs(fits)?;
    let (spec, columns) = (arguments.sketch.spec(saved.as_ref(), first.columns())?, first.names());
    drop(first);
    let fits = Saved { what: "sketch", dims: spec.inputs.as_slice(), columns: &columns };
    if let Some(validation) = &validation {
        validation.inputs(Some(fits))?;
    }
    let device = arguments.device.open()?;
    // Create the file before the work to find a bad path at once.
    let file = AtomicFile::create(&arguments.output)?;
    let begun = Instant::now();
    let (model, lines) = on_threads(arguments.threads, || {
        let task = match arguments.task {
            TaskKind::Classification => Task::Classification(Classes::collect(&training.labels)?),
            TaskKind::Regression => Task::Regression,
        };
        let missing = match missing {
            Some(missing) => missing,
            None => means(&training, fits, &task)?,
        };
        for dataset in [Some(&mut training), validation.as_mut()].into_iter().flatten() {
            dataset.policy = Policy::from(&missing);
        }
        let preparation = match (arguments.scaling, &saved) {
            (None, Some(recipe)) => recipe.preparation.clone(),
            (scaling, _) => prepare(scaling.unwrap_or(Scaling::None), &training, fits, &task)?,
        };
        let mut recipe = Recipe::new(preparation, spec.clone());
        (recipe.columns, recipe.missing) = (columns.clone(), missing);
        let recipe = fit_sketch(&arguments.sketch, recipe, &training, fits, &task)?;
        let pipeline = device.pipeline(&recipe).map_err(|error| Failure::argument(&error))?;
        // Includes what was fitted.
        let recipe = pipeline.recipe().clone();
        let (training, validation) = (&training, validation.as_ref());
        Work { arguments, training, validation, saved: fits, task, recipe, pipeline }.fit()
    })??;
    finish(arguments, &model, file, begun, &lines)
}

/// Writes the model and says what it is.
fn finish(
    arguments: &Arguments,
    model: &NamedModel,
    file: AtomicFile,
    begun: Instant,
    lines: &Lines,
) -> Result<(), Failure> {
    write_archive(&model.archive(), &arguments.output, file)?;
    if !arguments.quiet {
        let seconds = (begun.elapsed().as_secs_f64() * 100.0).round() / 100.0;
        let mut text = format!("{}: fitted in {seconds} s", arguments.output.display());
        lines.iter().for_each(|(name, value)| text += &format!(", {name} {value}"));
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    Ok(())
}

/// Which rows of the inputs to train on, and the validation file, if any.
fn validation(arguments: &Arguments) -> Result<(Option<Part>, Option<PathBuf>), Failure> {
    let Some(text) = arguments.validation.as_deref() else { return Ok((None, None)) };
    match text.parse::<f64>() {
        Ok(fraction) if fraction > 0.0 && fraction < 1.0 => {
            if arguments.validation_labels.is_some() {
                return Err(Failure::Input("--validation-labels: expected only with a --validation file".to_owned()));
            }
            let seed = arguments.sketch.seed();
            Ok((Some(Part::Training(Split { fraction, seed })), None))
        }
        Ok(fraction) if !Path::new(text).exists() => {
            Err(Failure::Input(format!("--validation: expected a file or a fraction between 0 and 1, got {fraction}")))
        }
        _ if arguments.inputs.len() > 1 => {
            Err(Failure::Input(format!("--validation: expected a fraction for several inputs, got {text}")))
        }
        _ => Ok((None, Some(PathBuf::from(text)))),
    }
}

/// Learns the means of the columns from the rows to learn from.
fn means(training: &Dataset<'_>, saved: Saved<'_>, task: &Task) -> Result<Missing, Failure> {
    let mut means = Means::new(saved.dims);
    let mut pass = training.pass(Some(saved), task, "means ")?;
    let block_rows = pass.inputs().block_rows(0);
    while pass.next(block_rows)? {
        means.update(&pass.inputs().views().map_err(|error| pass.inputs().explain(error))?);
    }
    means.finish(training.paths)
}

/// Fits a sketch that looks at rows to a sample of the scaled rows to train on, in a separate pass.
fn fit_sketch(
    arguments: &SketchArguments,
    recipe: Recipe,
    training: &Dataset<'_>,
    saved: Saved<'_>,
    task: &Task,
) -> Result<Recipe, Failure> {
    if !recipe.spec.method.looks_at_rows() || recipe.spec.fit.is_some() {
        return Ok(recipe);
    }
    let mut pass = training.pass(Some(saved), task, "sampling ")?;
    let mut reservoir = Reservoir::<f32>::new(saved.dims, pass.inputs().sample_rows(), recipe.spec.seed);
    let block_rows = pass.inputs().block_rows(0);
    while pass.next(block_rows)? {
        let added = pass.inputs().views().and_then(|views| reservoir.add(&views, &[]));
        added.map_err(|error| pass.inputs().explain(error))?;
    }
    let sample = reservoir.finish();
    let fitted = sample.views().and_then(|views| recipe.fit_to(&views, &arguments.fitting()));
    fitted.map_err(|error| Failure::argument(&error))
}

/// Fits the scaling, in a separate pass if it depends on the rows.
fn prepare(scaling: Scaling, training: &Dataset<'_>, saved: Saved<'_>, task: &Task) -> Result<Preparation, Failure> {
    let mut fit = PreparationFit::new(scaling, saved.dims);
    if fit.needs_rows() {
        let mut pass = training.pass(Some(saved), task, "scaling ")?;
        let block_rows = pass.inputs().block_rows(0);
        while pass.next(block_rows)? {
            let updated = pass.inputs().views().and_then(|views| fit.update(&views));
            updated.map_err(|error| pass.inputs().explain(error))?;
        }
    }
    fit.finish().map_err(|error| Failure::argument(&error))
}
