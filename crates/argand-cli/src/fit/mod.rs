//! `argand fit`: from labelled rows to a model.

mod arguments;
mod softmax;
mod work;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use argand_learn::{Preparation, PreparationFit, Recipe, Scaling};

use crate::dataset::{Classes, Dataset, LabelSource, Part, Split, Task};
use crate::failure::Failure;
use crate::inputs::Reservoir;
use crate::model::write_archive;
use crate::on_threads;
use crate::output::{self, AtomicFile};
use crate::sketch::SketchArguments;
pub(crate) use arguments::Arguments;
use arguments::TaskKind;
use work::Work;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check_options()?;
    let labels = LabelSource::find("--labels", &arguments.labels, &arguments.inputs)?;
    let (part, validation_path) = validation(arguments)?;
    let validation_paths: Vec<PathBuf> = validation_path.into_iter().collect();
    let validation_labels = match &validation_paths[..] {
        [] => labels.clone(),
        paths => {
            let column = arguments.validation_labels.as_deref().or(labels.column()).ok_or_else(|| {
                Failure::Input("--validation-labels: expected, because --labels is a separate file".to_owned())
            })?;
            LabelSource::find("--validation-labels", column, paths)?
        }
    };
    let mut training = Dataset::new(&arguments.inputs, labels, part.unwrap_or(Part::All));
    training.progress = !arguments.quiet;
    let validation = match (&validation_paths[..], part) {
        ([], Some(Part::Training(split))) => {
            let mut validation = training.clone();
            validation.part = Part::HeldOut(split);
            Some(validation)
        }
        ([], _) => None,
        (paths, _) => {
            let mut validation = Dataset::new(paths, validation_labels, Part::All);
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

    let saved = arguments.sketch.saved()?;
    let dims = saved.as_ref().map(|spec| ("spec", spec.inputs.as_slice()));
    let spec = arguments.sketch.spec(saved.clone(), training.inputs(dims)?.columns())?;
    let dims = ("sketch", spec.inputs.as_slice());
    if let Some(validation) = &validation {
        validation.inputs(Some(dims))?;
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
        let preparation = prepare(arguments.scaling, &training, dims, &task)?;
        let recipe = Recipe { preparation, spec: spec.clone() };
        let recipe = fit_sketch(&arguments.sketch, recipe, &training, dims, &task)?;
        let pipeline = device.pipeline(&recipe).map_err(|error| Failure::argument(&error))?;
        // Includes what was fitted.
        let recipe = pipeline.recipe().clone();
        let work =
            Work { arguments, training: &training, validation: validation.as_ref(), dims, task, recipe, pipeline };
        work.fit()
    })??;
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

/// Fits a sketch that looks at rows to a sample of the scaled rows to train on, in a separate pass.
fn fit_sketch(
    arguments: &SketchArguments,
    recipe: Recipe,
    training: &Dataset<'_>,
    dims: (&str, &[usize]),
    task: &Task,
) -> Result<Recipe, Failure> {
    if !recipe.spec.method.looks_at_rows() || recipe.spec.fit.is_some() {
        return Ok(recipe);
    }
    let mut reservoir = Reservoir::<f32>::new(dims.1, recipe.spec.seed);
    let mut pass = training.pass(Some(dims), task, "sampling ")?;
    let block_rows = pass.inputs().block_rows();
    while pass.next(block_rows)? {
        let added = pass.inputs().views().and_then(|views| reservoir.add(&views));
        added.map_err(|error| pass.inputs().explain(error))?;
    }
    let sample = reservoir.finish();
    let fitted = sample.views().and_then(|views| recipe.fit_to(&views, &arguments.fitting()));
    fitted.map_err(|error| Failure::argument(&error))
}

/// Fits the scaling, in a separate pass if it depends on the rows.
fn prepare(
    scaling: Scaling,
    training: &Dataset<'_>,
    dims: (&str, &[usize]),
    task: &Task,
) -> Result<Preparation, Failure> {
    let mut fit = PreparationFit::new(scaling, dims.1);
    if fit.needs_rows() {
        let mut pass = training.pass(Some(dims), task, "scaling ")?;
        let block_rows = pass.inputs().block_rows();
        while pass.next(block_rows)? {
            let updated = pass.inputs().views().and_then(|views| fit.update(&views));
            updated.map_err(|error| pass.inputs().explain(error))?;
        }
    }
    fit.finish().map_err(|error| Failure::argument(&error))
}
