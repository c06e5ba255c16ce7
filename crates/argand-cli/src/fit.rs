//! `argand fit`: from labelled rows to a model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use argand::model::online::{Pooling, SoftmaxClassifier, SoftmaxLayer, Trainer, TrainerOptions};
use argand::model::{
    GpClassifier, GpOptions, GpRegressor, Gram, Labels, Pipeline, PreparationFit, Recipe, Ridge, RidgePath, Scaling,
    Variances,
};
use argand::{Argument, Error, FeatureMap};
use serde::{Deserialize, Serialize};

use crate::dataset::{Classes, Dataset, LabelSource, Part, Split, Task};
use crate::failure::Failure;
use crate::model::{Model, NamedModel, Score, read_archive, write_archive};
use crate::on_threads;
use crate::output::{self, AtomicFile};
use crate::sketch::SketchArguments;

/// Learn a model from labelled rows.
///
/// Sketches the rows and fits a Gaussian process (gp), ridge regression (ridge) or a softmax layer trained by Adam (softmax)
/// on the features, in blocks: files may be larger than memory. The model holds the sketch and the scaling, and `argand predict`
/// needs nothing else. It appears when it is complete, or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The table to learn from, or one table per factor with equally many rows.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    /// What is to be predicted: a column of IN by its name (or its number, counted from 0, in text without a header), or a file
    /// with one column or of LIBSVM. Classes are whole numbers or text.
    #[arg(long, value_name = "FILE|COLUMN")]
    labels: String,

    /// What to fit.
    #[arg(long, value_enum)]
    model: Kind,

    /// Where the model goes.
    #[arg(short, long, value_name = "MODEL")]
    output: PathBuf,

    /// Whether labels are classes or numbers.
    #[arg(long, value_enum, default_value_t = TaskKind::Classification)]
    task: TaskKind,

    #[command(flatten)]
    sketch: SketchArguments,

    /// What is done to rows before they are sketched: none, unit (to unit norm), non-negative (less the smallest value of each
    /// column, then to unit norm) or standard (less the mean, divided by the standard deviation, then to unit norm).
    #[arg(long, value_name = "SCALING", default_value_t = Scaling::None)]
    scaling: Scaling,

    /// Rows to choose options by: a file like IN, or a fraction of its rows, which are then not learnt from.
    #[arg(long, value_name = "FILE|FRACTION")]
    validation: Option<String>,

    /// The labels of a validation file [default: its column that --labels names].
    #[arg(long, value_name = "FILE|COLUMN", requires = "validation")]
    validation_labels: Option<String>,

    #[command(flatten)]
    ridge: RidgeArguments,

    #[command(flatten)]
    gp: GpArguments,

    #[command(flatten)]
    softmax: SoftmaxArguments,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    /// Most memory the sums of a Gaussian process or ridge model may take, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = argand::DEFAULT_MEMORY_LIMIT >> 20, allow_negative_numbers = true)]
    memory_limit: u64,

    /// Say nothing on success.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Gp,
    Ridge,
    Softmax,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TaskKind {
    Classification,
    Regression,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Ridge")]
struct RidgeArguments {
    /// The penalty [default: the best of 25 by leaving out rows one by one, or on the validation rows].
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    lambda: Option<f64>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Gaussian process")]
struct GpArguments {
    /// The noise of class labels, or several to choose from on the validation rows [default: 0.001].
    #[arg(long, value_name = "A,...", value_delimiter = ',', allow_negative_numbers = true)]
    alpha: Vec<f64>,

    /// The kernel variance, or for classes several to choose from on the validation rows [default: that of the transformed labels;
    /// for numbers, by the marginal likelihood].
    #[arg(long, value_name = "V,...", value_delimiter = ',', allow_negative_numbers = true)]
    variance: Vec<f64>,

    /// The variance of the noise of numbers, together with --variance [default: by the marginal likelihood].
    #[arg(long, value_name = "V", allow_negative_numbers = true)]
    noise: Option<f64>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Softmax")]
struct SoftmaxArguments {
    /// Passes over the rows [default: 50].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    epochs: Option<u32>,

    /// Rows in a mini-batch [default: 32].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    batch: Option<usize>,

    /// The step of Adam at the start [default: 0.001].
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    learning_rate: Option<f64>,

    /// Epochs without a lower validation (or else training) loss, after which the learning rate is divided by 10 [default: 3].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    patience: Option<u32>,

    /// Take signed square roots of the features.
    #[arg(long)]
    signed_sqrt: bool,

    /// Scale the features of a row to unit norm.
    #[arg(long)]
    l2: bool,

    /// Save the state of training after every epoch, and go on from it if it exists.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  argand fit train.csv --labels class --model gp -o digits.model --degree 3 --gamma 0.5 --coef0 0.5 --scaling unit
  argand fit letter-recognition.data --labels 0 --model gp -o letter.model --scaling unit
  argand fit train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz --model ridge -o mnist.model
  argand fit x.npy --labels y.npy --model ridge --task regression -o prices.model --features 4096
  argand fit train.parquet --labels kind --model softmax --validation 0.1 --checkpoint run.state -o kind.model
  argand predict digits.model test.csv -o predicted.csv

Rows of a softmax model are shuffled in blocks of some 32 MB: shuffle a larger file that is sorted by label.";

/// Larger batches would need blocks larger than others are.
const LARGEST_BATCH: usize = 1 << 16;

impl SoftmaxArguments {
    fn epochs(&self) -> u32 {
        self.epochs.unwrap_or(50)
    }
}

impl Arguments {
    fn trainer_options(&self) -> TrainerOptions {
        let (options, defaults) = (&self.softmax, TrainerOptions::default());
        TrainerOptions {
            batch: options.batch.unwrap_or(defaults.batch),
            learning_rate: options.learning_rate.unwrap_or(defaults.learning_rate),
            patience: options.patience.unwrap_or(defaults.patience),
            seed: self.sketch.seed(),
        }
    }

    /// Checks what can be checked before any file is read: values, and that options are for the chosen model.
    fn check_options(&self) -> Result<(), Failure> {
        let (ridge, gp, softmax) = (&self.ridge, &self.gp, &self.softmax);
        for (given, option, kind) in [
            (ridge.lambda.is_some(), "--lambda", Kind::Ridge),
            (!gp.alpha.is_empty(), "--alpha", Kind::Gp),
            (!gp.variance.is_empty(), "--variance", Kind::Gp),
            (gp.noise.is_some(), "--noise", Kind::Gp),
            (softmax.epochs.is_some(), "--epochs", Kind::Softmax),
            (softmax.batch.is_some(), "--batch", Kind::Softmax),
            (softmax.learning_rate.is_some(), "--learning-rate", Kind::Softmax),
            (softmax.patience.is_some(), "--patience", Kind::Softmax),
            (softmax.signed_sqrt, "--signed-sqrt", Kind::Softmax),
            (softmax.l2, "--l2", Kind::Softmax),
            (softmax.checkpoint.is_some(), "--checkpoint", Kind::Softmax),
        ] {
            if given && kind != self.model {
                let name = format!("{kind:?}").to_lowercase();
                return Err(Failure::Input(format!("{option}: is for --model {name} only")));
            }
        }
        for (option, values, zero) in [
            ("--lambda", ridge.lambda.as_slice(), true),
            ("--alpha", &gp.alpha, false),
            ("--variance", &gp.variance, false),
            ("--noise", gp.noise.as_slice(), false),
        ] {
            for &value in values {
                if !(value.is_finite() && (value > 0.0 || zero && value == 0.0)) {
                    let expected = if zero { "of at least" } else { "above" };
                    return Err(Failure::Input(format!(
                        "{option}: expected a finite number {expected} 0, got {value}"
                    )));
                }
            }
        }
        self.trainer_options().validate().map_err(|error| Failure::argument(&error))?;
        if softmax.batch.is_some_and(|batch| batch > LARGEST_BATCH) {
            return Err(Failure::Input(format!("--batch: expected at most {LARGEST_BATCH}, got a larger number")));
        }
        if softmax.epochs() == 0 {
            return Err(Failure::Input("--epochs: expected at least 1, got 0".to_owned()));
        }
        let wrong = |message: &str| Err(Failure::Input(message.to_owned()));
        match (self.model, self.task) {
            (Kind::Softmax, TaskKind::Regression) => {
                wrong("--task: expected classification for --model softmax, got regression")
            }
            (Kind::Gp, TaskKind::Regression) if !gp.alpha.is_empty() => wrong("--alpha: is for classification only"),
            (Kind::Gp, TaskKind::Regression) if gp.variance.len() != usize::from(gp.noise.is_some()) => {
                wrong("--noise: expected together with one --variance, or neither")
            }
            (Kind::Gp, TaskKind::Classification) if gp.noise.is_some() => wrong("--noise: is for regression only"),
            (Kind::Gp, TaskKind::Classification) if gp.alpha.len() > 1 && self.validation.is_none() => {
                wrong("--alpha: expected one number, or --validation to choose by")
            }
            (Kind::Gp, TaskKind::Classification) if gp.variance.len() > 1 && self.validation.is_none() => {
                wrong("--variance: expected one number, or --validation to choose by")
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check_options()?;
    let labels = LabelSource::find("--labels", &arguments.labels, &arguments.inputs)?;
    let (part, validation_path) = validation(arguments)?;
    let validation_paths: Vec<PathBuf> = validation_path.into_iter().collect();
    let validation_labels = match &validation_paths[..] {
        [] => labels.clone(),
        paths => {
            let column = arguments.validation_labels.as_deref().or(labels.column()).ok_or_else(|| {
                Failure::Input("--validation-labels: expected, as --labels is a file of its own".to_owned())
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

    let mut taken: Vec<&PathBuf> = arguments.inputs.iter().chain(&validation_paths).collect();
    taken.extend([&training, validation.as_ref().unwrap_or(&training)].map(|dataset| dataset.labels.path()));
    output::check_free("--output", &arguments.output, taken.iter().copied())?;
    taken.push(&arguments.output);
    if let Some(path) = arguments.softmax.checkpoint.as_deref() {
        output::check_free("--checkpoint", path, taken.into_iter())?;
        // Dropped at once: this only checks that the file can be there after the first epoch.
        AtomicFile::create(path)?;
    }

    let saved = arguments.sketch.saved()?;
    let dims = saved.as_ref().map(|spec| ("spec", spec.inputs.as_slice()));
    let spec = arguments.sketch.spec(saved.clone(), training.inputs(dims)?.columns())?;
    let dims = ("sketch", spec.inputs.as_slice());
    if let Some(validation) = &validation {
        validation.inputs(Some(dims))?;
    }
    // Created before the work, so that a bad path is found at once.
    let file = AtomicFile::create(&arguments.output)?;
    let begun = Instant::now();
    let (model, lines) = on_threads(arguments.threads, || {
        let task = match arguments.task {
            TaskKind::Classification => Task::Classification(Classes::collect(&training.labels)?),
            TaskKind::Regression => Task::Regression,
        };
        let preparation = prepare(arguments.scaling, &training, dims, &task)?;
        let recipe = Recipe { preparation, spec: spec.clone() };
        let pipeline = recipe.pipeline::<f32>().map_err(|error| Failure::argument(&error))?;
        // With what was fitted for spherical random features.
        let recipe = pipeline.recipe();
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

/// Which rows of the inputs are learnt from, and the file of validation, if there is one.
fn validation(arguments: &Arguments) -> Result<(Option<Part>, Option<PathBuf>), Failure> {
    let Some(text) = arguments.validation.as_deref() else { return Ok((None, None)) };
    match text.parse::<f64>() {
        Ok(fraction) if fraction > 0.0 && fraction < 1.0 => {
            if arguments.validation_labels.is_some() {
                return Err(Failure::Input("--validation-labels: expected with a file of --validation".to_owned()));
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

/// Learns the scaling, in a pass of its own if it depends on the rows.
fn prepare(
    scaling: Scaling,
    training: &Dataset<'_>,
    dims: (&str, &[usize]),
    task: &Task,
) -> Result<argand::model::Preparation, Failure> {
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

/// Everything that a model is fitted to and with.
struct Work<'a> {
    arguments: &'a Arguments,
    training: &'a Dataset<'a>,
    validation: Option<&'a Dataset<'a>>,
    dims: (&'a str, &'a [usize]),
    task: Task,
    recipe: Recipe,
    pipeline: Pipeline<f32>,
}

/// What is said of a model when it is done.
type Lines = Vec<(&'static str, String)>;

impl Work<'_> {
    fn fit(self) -> Result<(NamedModel, Lines), Failure> {
        let model = match (self.arguments.model, self.arguments.task) {
            (Kind::Ridge, _) => Model::Ridge(self.ridge()?),
            (Kind::Gp, TaskKind::Classification) => Model::GpClassifier(self.gp_classifier()?),
            (Kind::Gp, TaskKind::Regression) => {
                let GpArguments { variance, noise, .. } = &self.arguments.gp;
                let variances = variance.first().zip(*noise).map(|(&kernel, noise)| Variances { kernel, noise });
                let gram = self.gram(self.training, false, "features ")?;
                let fitted = GpRegressor::fit(&gram, variances);
                Model::GpRegressor(fitted.map_err(|error| self.wrong(&error))?)
            }
            (Kind::Softmax, _) => Model::Softmax(self.softmax()?),
        };
        let mut lines = match &model {
            Model::Ridge(model) => vec![("lambda", model.lambda().to_string())],
            Model::GpClassifier(model) => {
                let GpOptions { alpha, variance } = model.options();
                vec![("alpha", alpha.to_string()), ("variance", variance.unwrap_or_default().to_string())]
            }
            Model::GpRegressor(model) => {
                vec![("variance", model.variances().kernel.to_string()), ("noise", model.variances().noise.to_string())]
            }
            Model::Softmax(_) => vec![],
        };
        if let Some(validation) = self.validation {
            let score = self.score(&model, validation)?;
            lines.extend(score.describe(&model).into_iter().filter(|(name, _)| *name != "rows"));
        }
        let label_column = self.training.labels.column_name().map(str::to_owned);
        Ok((NamedModel { model, task: self.task, label_column }, lines))
    }

    /// What the library says of an option.
    fn wrong(&self, error: &Error) -> Failure {
        match error {
            Error::Invalid { argument: Argument::Labels | Argument::Rows | Argument::Gram, .. } => {
                Failure::input(self.training.labels.path(), error)
            }
            Error::TooLarge { .. } => Failure::Input(format!("{error} (--memory-limit)")),
            _ => Failure::argument(error),
        }
    }

    /// Sums of features, of every class `apart` if asked.
    fn gram(&self, dataset: &Dataset<'_>, apart: bool, doing: &str) -> Result<Gram, Failure> {
        let limit = self.arguments.memory_limit.saturating_mul(1 << 20);
        let gram = Gram::new_within(&self.recipe, self.task.targets(apart), limit);
        let mut gram = gram.map_err(|error| self.wrong(&error))?;
        let pass = dataset.pass(Some(self.dims), &self.task, doing)?;
        let rows = pass.for_each(&self.pipeline, |features, labels| gram.update(features, labels))?;
        self.check_any(dataset, rows)?;
        Ok(gram)
    }

    /// A random choice may leave nothing.
    fn check_any(&self, dataset: &Dataset<'_>, rows: usize) -> Result<(), Failure> {
        if rows == 0 {
            let what = if let Part::HeldOut(_) = dataset.part { "held out" } else { "left to learn from" };
            return Err(Failure::Input(format!("--validation: no row is {what}; choose another fraction")));
        }
        Ok(())
    }

    fn score(&self, model: &Model, dataset: &Dataset<'_>) -> Result<Score, Failure> {
        let mut score = Score::default();
        let pass = dataset.pass(Some(self.dims), &self.task, "validation ")?;
        let rows = pass.for_each(&self.pipeline, |features, labels| score.update(model, features, labels))?;
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
                let pass = self.training.pass(Some(self.dims), &self.task, "leaving out ")?;
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
        let choose = alphas.len() * variances.len() > 1;
        let mut best: Option<(f64, GpClassifier)> = None;
        for options in candidates {
            let fitted = GpClassifier::fit(&gram, &options);
            let model = Model::GpClassifier(fitted.map_err(|error| self.wrong(&error))?);
            let loss = match self.validation {
                Some(validation) if choose => self.score(&model, validation)?.loss(),
                _ => 0.0,
            };
            if let Model::GpClassifier(model) = model
                && best.as_ref().is_none_or(|(lowest, _)| loss < *lowest)
            {
                best = Some((loss, model));
            }
        }
        let (_, model) = best.ok_or_else(|| Failure::Input("--alpha: expected at least one number".to_owned()))?;
        Ok(model)
    }

    fn softmax(&self) -> Result<SoftmaxClassifier, Failure> {
        let options = &self.arguments.softmax;
        let trainer_options = self.arguments.trainer_options();
        let epochs = options.epochs();
        let wrong = |error: Error| self.wrong(&error);
        let classes = if let Task::Classification(classes) = &self.task { classes.names() } else { &[] };
        let pooling = Pooling { signed_sqrt: options.signed_sqrt, l2: options.l2 };
        let layer = SoftmaxLayer::new(classes.len(), self.pipeline.output_dim(), pooling).map_err(wrong)?;
        let mut trainer = Trainer::new(layer, trainer_options).map_err(wrong)?;
        let run = self.run(classes);
        if let Some(path) = options.checkpoint.as_deref().filter(|path| path.exists()) {
            trainer = resume(path, &trainer, &run)?;
            if trainer.epochs() > epochs {
                let what =
                    format!("holds {} epochs, more than --epochs {epochs}; remove it to start anew", trainer.epochs());
                return Err(Failure::input(path, what));
            }
        }
        while trainer.epochs() < epochs {
            let doing = format!("epoch {}/{epochs} ", trainer.epochs() + 1);
            let mut pass = self.training.pass(Some(self.dims), &self.task, &doing)?;
            let block_rows = pass.inputs().block_rows().next_multiple_of(trainer_options.batch);
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
        let mut score = argand::model::online::Score::default();
        let pass = dataset.pass(Some(self.dims), &self.task, "validation ")?;
        let rows = pass.for_each(&self.pipeline, |features, labels| {
            if let Labels::Classes(labels) = labels {
                score = score.plus(layer.score(features, labels)?);
            }
            Ok(())
        })?;
        self.check_any(dataset, rows)?;
        Ok(score.loss())
    }

    /// What a checkpoint belongs to.
    fn run(&self, classes: &[String]) -> Run {
        let mut files: Vec<(String, u64)> = Vec::new();
        for dataset in [Some(self.training), self.validation].into_iter().flatten() {
            for path in dataset.paths.iter().chain([dataset.labels.path()]) {
                let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                files.push((path.display().to_string(), length));
            }
        }
        Run {
            recipe: self.recipe.clone(),
            classes: classes.to_vec(),
            label_column: self.training.labels.column().map(str::to_owned),
            validation: self.arguments.validation.clone(),
            files,
        }
    }
}

/// What is trained, and on what: a checkpoint is continued by the same run only.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    recipe: Recipe,
    classes: Vec<String>,
    label_column: Option<String>,
    validation: Option<String>,
    /// Names and lengths.
    files: Vec<(String, u64)>,
}

/// The saved state of the same run as that of `fresh`.
fn resume(path: &Path, fresh: &Trainer, run: &Run) -> Result<Trainer, Failure> {
    let archive = read_archive(path)?;
    let note = archive.note::<Run>();
    let saved = Trainer::from_archive(archive).map_err(|error| Failure::input(path, error))?;
    let same_layer = |trainer: &Trainer| {
        let layer = trainer.layer();
        (layer.classes(), layer.features(), layer.pooling(), *trainer.options())
    };
    if note.as_ref() != Ok(run) || same_layer(&saved) != same_layer(fresh) {
        let what = "is the state of another training: of other files, sketch, scaling or options";
        return Err(Failure::input(path, format!("{what}; remove it or name another --checkpoint")));
    }
    Ok(saved)
}
