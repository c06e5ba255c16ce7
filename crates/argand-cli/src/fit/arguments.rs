//! Arguments of `argand fit`.

use std::path::PathBuf;

use argand_learn::Scaling;
use argand_learn::online::TrainerOptions;

use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::selection::TableArguments;
use crate::sketch::SketchArguments;

/// Learn a model from labelled rows.
///
/// Sketches the rows and fits a Gaussian process (gp), ridge regression (ridge) or a softmax layer trained by Adam (softmax)
/// on the features, in blocks: files may be larger than memory. The model includes the sketch and the scaling; `argand predict`
/// needs nothing else. It appears once it is complete, or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The table to learn from, or one table per factor with equally many rows.
    #[arg(required_unless_present = "from_gram", value_name = "IN")]
    pub(super) inputs: Vec<PathBuf>,

    /// What to predict: a column of IN by its name (or its number, counted from 0, in text without a header), or a file
    /// with one column or a LIBSVM file. Classes are whole numbers or text.
    #[arg(long, value_name = "FILE|COLUMN", required_unless_present = "from_gram")]
    pub(super) labels: Option<String>,

    /// Learn from the sums of `argand gram` or `argand merge` instead of rows. Without --lambda, a ridge's penalty is chosen by generalised
    /// cross-validation, or on the sums of other rows with --validation GRAM.
    #[arg(
        long,
        value_name = "GRAM",
        conflicts_with_all = ["inputs", "labels", "validation_labels", "spec", "kernel", "degree", "gamma", "coef0",
            "length_scale", "coefficients", "features", "method", "landmarks", "aim", "craft_dim", "seed", "scaling",
            "header", "delimiter", "columns", "drop", "missing", "memory_limit", "device"]
    )]
    pub(super) from_gram: Option<PathBuf>,

    /// What to fit.
    #[arg(long, value_enum)]
    pub(super) model: Kind,

    /// Where to write the model.
    #[arg(short, long, value_name = "MODEL")]
    pub(super) output: PathBuf,

    /// Whether labels are classes or numbers.
    #[arg(long, value_enum, default_value_t = TaskKind::Classification)]
    pub(super) task: TaskKind,

    #[command(flatten)]
    pub(super) sketch: SketchArguments,

    /// How to scale rows before sketching: none, unit (to unit norm), non-negative (subtract the smallest value of each
    /// column, then to unit norm) or standard (subtract the mean, divide by the standard deviation, then to unit norm) [default:
    /// that of --spec, or else none].
    #[arg(long, value_name = "SCALING")]
    pub(super) scaling: Option<Scaling>,

    /// Rows for choosing options: a file like IN, or a fraction of its rows, held out from training.
    #[arg(long, value_name = "FILE|FRACTION")]
    pub(super) validation: Option<String>,

    /// The labels of a validation file [default: its --labels column].
    #[arg(long, value_name = "FILE|COLUMN", requires = "validation")]
    pub(super) validation_labels: Option<String>,

    #[command(flatten)]
    pub(super) ridge: RidgeArguments,

    #[command(flatten)]
    pub(super) gp: GpArguments,

    #[command(flatten)]
    pub(super) softmax: SoftmaxArguments,

    #[command(flatten)]
    pub(super) device: DeviceArguments,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) threads: Option<usize>,

    #[command(flatten)]
    pub(super) table: TableArguments,

    /// Print nothing on success.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    Gp,
    Ridge,
    Softmax,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TaskKind {
    Classification,
    Regression,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Ridge")]
pub(super) struct RidgeArguments {
    /// The penalty [default: the best of 25 by leave-one-out error, or on the validation rows].
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    pub(super) lambda: Option<f64>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Gaussian process")]
pub(super) struct GpArguments {
    /// The noise added to class labels, or several to choose from on the validation rows [default: 0.001].
    #[arg(long, value_name = "A,...", value_delimiter = ',', allow_negative_numbers = true)]
    pub(super) alpha: Vec<f64>,

    /// The kernel variance, or for classes several to choose from on the validation rows [default: that of the transformed labels;
    /// for numbers, by the marginal likelihood].
    #[arg(long, value_name = "V,...", value_delimiter = ',', allow_negative_numbers = true)]
    pub(super) variance: Vec<f64>,

    /// The noise variance of numbers, together with --variance [default: by the marginal likelihood].
    #[arg(long, value_name = "V", allow_negative_numbers = true)]
    pub(super) noise: Option<f64>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Softmax")]
pub(super) struct SoftmaxArguments {
    /// Passes over the rows [default: 50].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) epochs: Option<u32>,

    /// Rows in a mini-batch [default: 32].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) batch: Option<usize>,

    /// Adam's initial learning rate [default: 0.001].
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub(super) learning_rate: Option<f64>,

    /// Divide the learning rate by 10 after this many epochs without a lower validation (or else training) loss [default: 3].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) patience: Option<u32>,

    /// Take signed square roots of the features.
    #[arg(long)]
    pub(super) signed_sqrt: bool,

    /// Scale the features of a row to unit norm.
    #[arg(long)]
    pub(super) l2: bool,

    /// Save the training state after every epoch, and resume from it if it exists.
    #[arg(long, value_name = "FILE")]
    pub(super) checkpoint: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  argand fit train.csv --labels class --model gp -o digits.model --degree 3 --gamma 0.5 --coef0 0.5 --scaling unit
  argand fit letter-recognition.data --labels 0 --model gp -o letter.model --scaling unit
  argand fit train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz --model ridge -o mnist.model
  argand fit x.npy --labels y.npy --model ridge --task regression -o prices.model --features 4096
  argand fit train.parquet --labels kind --model softmax --validation 0.1 --checkpoint run.state -o kind.model
  argand fit --from-gram sums.gram --model ridge -o prices.model
  argand predict digits.model test.csv -o predicted.csv

Rows of a softmax model are shuffled in blocks of some 32 MB: shuffle a larger file that is sorted by label.";

/// Larger batches would need larger blocks.
const LARGEST_BATCH: usize = 1 << 16;

impl SoftmaxArguments {
    pub(super) fn epochs(&self) -> u32 {
        self.epochs.unwrap_or(50)
    }
}

impl Arguments {
    pub(super) fn trainer_options(&self) -> TrainerOptions {
        let (options, defaults) = (&self.softmax, TrainerOptions::default());
        TrainerOptions {
            batch: options.batch.unwrap_or(defaults.batch),
            learning_rate: options.learning_rate.unwrap_or(defaults.learning_rate),
            patience: options.patience.unwrap_or(defaults.patience),
            seed: self.sketch.seed(),
        }
    }

    /// Checks, before any file is read, that values are valid and options are for the chosen model.
    pub(super) fn check_options(&self) -> Result<(), Failure> {
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
                wrong("--noise: expected together with exactly one --variance, or neither")
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
