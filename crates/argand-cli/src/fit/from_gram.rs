//! Fits models to sums that were made before.

use std::path::{Path, PathBuf};
use std::time::Instant;

use argand::Error;
use argand_learn::{GpClassifier, GpOptions, GpRegressor, Model, Ridge, RidgePath, Targets};

use super::arguments::{Arguments, Kind, TaskKind};
use super::work::{Lines, given_variances};
use super::{finish, output};
use crate::dataset::Task;
use crate::failure::Failure;
use crate::model::NamedModel;
use crate::on_threads;
use crate::output::AtomicFile;
use crate::sums::Sums;

pub(super) fn run(arguments: &Arguments, path: &Path) -> Result<(), Failure> {
    let wrong = |what: &str| Err(Failure::Input(what.to_owned()));
    if arguments.model == Kind::Softmax {
        return wrong("--model: expected ridge or gp with --from-gram; a softmax layer is trained on rows");
    }
    let validation = arguments.validation.as_ref().map(PathBuf::from);
    if validation.is_some() && (arguments.model == Kind::Gp || arguments.ridge.lambda.is_some()) {
        return wrong(
            "--validation: expected with --model ridge without --lambda; judge other models by `argand evaluate`",
        );
    }
    let read = [Some(path), validation.as_deref()].into_iter().flatten().map(Path::to_path_buf).collect::<Vec<_>>();
    output::check_free("--output", &arguments.output, read.iter())?;
    let sums = Sums::read(path)?;
    match (&sums.task, arguments.task) {
        (Task::Regression, TaskKind::Classification) => {
            return Err(Failure::input(path, "holds sums of numbers; use --task regression"));
        }
        (Task::Classification(_), TaskKind::Regression) => {
            return Err(Failure::input(path, "holds sums of classes; use --task classification"));
        }
        _ => {}
    }
    if let (Kind::Gp, Targets::Classes(_)) = (arguments.model, sums.gram.targets()) {
        return Err(Failure::input(
            path,
            "holds sums for ridge regression; make those of a Gaussian process with --model gp",
        ));
    }
    let other = validation.as_deref().map(|path| Sums::read(path)?.like(&sums, path)).transpose()?;
    let file = AtomicFile::create(&arguments.output)?;
    let begun = Instant::now();
    let failed = |error: Error| match error {
        Error::Invalid { .. } => Failure::input(path, error),
        other => Failure::argument(&other),
    };
    let model = on_threads(arguments.threads, || -> Result<Box<dyn Model>, Error> {
        let gram = &sums.gram;
        Ok(match (arguments.model, arguments.task) {
            (Kind::Ridge | Kind::Softmax, _) => Box::new(ridge(arguments, &sums, other.as_ref())?),
            (Kind::Gp, TaskKind::Classification) => {
                let (gp, default) = (&arguments.gp, GpOptions::default());
                let alpha = gp.alpha.first().copied().unwrap_or(default.alpha);
                Box::new(GpClassifier::fit(gram, &GpOptions { alpha, variance: gp.variance.first().copied() })?)
            }
            (Kind::Gp, TaskKind::Regression) => Box::new(GpRegressor::fit(gram, given_variances(&arguments.gp))?),
        })
    })?
    .map_err(failed)?;
    let lines: Lines = model.settings().into_iter().map(|(name, setting)| (name, setting.to_string())).collect();
    let named = NamedModel { model, task: sums.task, label_column: sums.label_column, label_place: sums.label_place };
    finish(arguments, &named, file, begun, &lines)
}

/// With the given penalty, or the best by the error on other rows or generalised cross-validation.
fn ridge(arguments: &Arguments, sums: &Sums, other: Option<&Sums>) -> Result<Ridge, Error> {
    if let Some(lambda) = arguments.ridge.lambda {
        return Ridge::fit(&sums.gram, lambda);
    }
    let path = RidgePath::new(&sums.gram)?;
    let mut best = (f64::INFINITY, 1.0);
    for lambda in path.lambdas() {
        let error = match other {
            Some(other) => path.held_out(&other.gram, lambda)?,
            None => path.generalised_cross_validation(lambda),
        };
        if error < best.0 {
            best = (error, lambda);
        }
    }
    path.at(best.1)
}
