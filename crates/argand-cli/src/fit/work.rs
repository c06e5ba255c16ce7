//! Fits models that are solved from sums.

use argand::{Argument, Error};
use argand_learn::{
    GpClassifier, GpOptions, GpRegressor, Gram, Model, Pipeline, Recipe, Ridge, RidgePath, Score, Variances,
};

use super::arguments::{Arguments, GpArguments, Kind, TaskKind};
use crate::dataset::{Dataset, Part, Task};
use crate::failure::Failure;
use crate::model::{NamedModel, describe_score};
use crate::selection::Saved;

/// Everything needed to fit a model.
pub(super) struct Work<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) training: &'a Dataset<'a>,
    pub(super) validation: Option<&'a Dataset<'a>>,
    pub(super) saved: Saved<'a>,
    pub(super) task: Task,
    pub(super) recipe: Recipe,
    pub(super) pipeline: Pipeline<f32>,
}

/// The description of a finished model.
pub(super) type Lines = Vec<(&'static str, String)>;

impl Work<'_> {
    pub(super) fn fit(self) -> Result<(NamedModel, Lines), Failure> {
        let model: Box<dyn Model> = match (self.arguments.model, self.arguments.task) {
            (Kind::Ridge, _) => Box::new(self.ridge()?),
            (Kind::Gp, TaskKind::Classification) => Box::new(self.gp_classifier()?),
            (Kind::Gp, TaskKind::Regression) => Box::new(self.gp_regressor()?),
            (Kind::Softmax, _) => Box::new(self.softmax()?),
        };
        let settings = model.settings();
        let mut lines: Lines = settings.into_iter().map(|(name, setting)| (name, setting.to_string())).collect();
        if let Some(validation) = self.validation {
            let score = self.score(&*model, validation)?;
            lines.extend(describe_score(&score, &*model).into_iter().filter(|(name, _)| *name != "rows"));
        }
        let label_column = self.training.labels.column_name().map(str::to_owned);
        let label_place = self.training.labels.column_place();
        Ok((NamedModel { model, task: self.task, label_column, label_place }, lines))
    }

    /// Translates a library error about an option.
    pub(super) fn wrong(&self, error: &Error) -> Failure {
        match error {
            Error::Invalid { argument: Argument::Labels | Argument::Rows | Argument::Gram, .. } => {
                Failure::input(self.training.labels.path(), error)
            }
            Error::TooLarge { .. } => Failure::Input(format!("{error} (--memory-limit)")),
            _ => Failure::argument(error),
        }
    }

    /// Sums of features, separate for every class if `apart`.
    fn gram(&self, dataset: &Dataset<'_>, apart: bool, doing: &str) -> Result<Gram, Failure> {
        let limit = self.arguments.table.limit();
        let summing = self.pipeline.summing(self.task.targets(apart), limit);
        let mut summing = summing.map_err(|error| self.wrong(&error))?;
        let pass = dataset.pass(Some(self.saved), &self.task, doing)?;
        let rows = pass.for_each_rows(|inputs, labels| summing.update(inputs, labels))?;
        self.check_any(dataset, rows)?;
        summing.finish().map_err(|error| self.wrong(&error))
    }

    /// Checks that a random split leaves some rows on either side.
    pub(super) fn check_any(&self, dataset: &Dataset<'_>, rows: usize) -> Result<(), Failure> {
        if rows == 0 {
            let what = if let Part::HeldOut(_) = dataset.part { "held out" } else { "left to learn from" };
            return Err(Failure::Input(format!("--validation: no row is {what}; choose another fraction")));
        }
        Ok(())
    }

    fn score(&self, model: &dyn Model, dataset: &Dataset<'_>) -> Result<Score, Failure> {
        let mut score = Score::default();
        let pass = dataset.pass(Some(self.saved), &self.task, "validation ")?;
        let rows = pass.for_each(&self.pipeline, |features, labels| {
            score = score.plus(model.score(features, labels)?);
            Ok(())
        })?;
        self.check_any(dataset, rows)?;
        Ok(score)
    }

    fn ridge(&self) -> Result<Ridge, Failure> {
        let gram = self.gram(self.training, false, "features ")?;
        let wrong = |error: Error| self.wrong(&error);
        if let Some(lambda) = self.arguments.ridge.lambda {
            return Ridge::fit(&gram, lambda).map_err(wrong);
        }
        let path = RidgePath::new(&gram).map_err(wrong)?;
        let lambdas = path.lambdas();
        let errors = match self.validation {
            Some(validation) => {
                let other = self.gram(validation, false, "validation ")?;
                lambdas
                    .iter()
                    .map(|&lambda| path.held_out(&other, lambda))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(wrong)?
            }
            None => {
                let mut left_out = path.leave_one_out(&lambdas).map_err(wrong)?;
                let pass = self.training.pass(Some(self.saved), &self.task, "leaving out ")?;
                pass.for_each(&self.pipeline, |features, labels| left_out.update(features, labels))?;
                left_out.errors()
            }
        };
        let best = errors.iter().zip(&lambdas).min_by(|a, b| a.0.total_cmp(b.0)).map_or(1.0, |(_, &lambda)| lambda);
        path.at(best).map_err(wrong)
    }

    fn gp_classifier(&self) -> Result<GpClassifier, Failure> {
        let GpArguments { alpha, variance, .. } = &self.arguments.gp;
        let gram = self.gram(self.training, true, "features ")?;
        let default = GpOptions::default();
        let alphas = if alpha.is_empty() { &[default.alpha][..] } else { alpha };
        let variances: Vec<_> =
            if variance.is_empty() { vec![None] } else { variance.iter().copied().map(Some).collect() };
        let candidates =
            alphas.iter().flat_map(|&alpha| variances.iter().map(move |&variance| GpOptions { alpha, variance }));
        let candidates: Vec<GpOptions> = candidates.collect();
        let loss = |model: &GpClassifier| match self.validation {
            // With a single candidate there is nothing to choose.
            Some(validation) if candidates.len() > 1 => Ok(self.score(model, validation)?.loss()),
            _ => Ok(0.0),
        };
        match GpClassifier::select(&gram, &candidates, loss) {
            Ok((model, _)) => Ok(model),
            Err(Stopped::Fitting(error)) => Err(self.wrong(&error)),
            Err(Stopped::Validating(failure)) => Err(failure),
        }
    }

    fn gp_regressor(&self) -> Result<GpRegressor, Failure> {
        let gram = self.gram(self.training, false, "features ")?;
        GpRegressor::fit(&gram, given_variances(&self.arguments.gp)).map_err(|error| self.wrong(&error))
    }
}

/// The variances of a Gaussian process for numbers, if they are given.
pub(super) fn given_variances(GpArguments { variance, noise, .. }: &GpArguments) -> Option<Variances> {
    variance.first().zip(*noise).map(|(&kernel, noise)| Variances { kernel, noise })
}

/// Why choosing among options stopped.
enum Stopped {
    Fitting(Error),
    Validating(Failure),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Fitting(error)
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Validating(failure)
    }
}
