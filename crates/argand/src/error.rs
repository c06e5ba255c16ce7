//! The one error type of the library.
//!
//! Errors are data: callers match on variants, [`Argument`]s and [`FileFault`]s, never on words. `Display` uses the
//! library's own names of arguments; the command line and the Python package substitute theirs for [`Argument`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Every error, with what was expected and what was received.
///
/// Bad input is reported before any work is done on it. Only [`Error::Overflow`], [`Error::Underflow`] and [`Error::Diverged`] are
/// found while computing; the caller's output buffer then holds unspecified values.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument has a value that is not allowed.
    #[error("{argument}: expected {expected}, got {received}")]
    Invalid {
        /// Which argument.
        argument: Argument,
        /// What would have been accepted.
        expected: String,
        /// What was given.
        received: String,
    },
    /// An input holds NaN or an infinity.
    #[error("{argument}: row {row}, column {column} is {value}; only finite numbers can be sketched")]
    NotFinite {
        /// Which argument.
        argument: Argument,
        /// First offending row, counted from 0.
        row: usize,
        /// First offending column in that row, counted from 0.
        column: usize,
        /// `NaN`, `inf` or `-inf`.
        value: f64,
    },
    /// The result does not fit into the floating-point type.
    #[error(
        "row {row}: the result overflows {dtype}; scale the rows (for example to unit norm), use a smaller gamma, \
         or compute in f64"
    )]
    Overflow {
        /// First offending row, counted from 0.
        row: usize,
        /// `f32` or `f64`.
        dtype: &'static str,
    },
    /// All features of a row that is not zero would be lost below the range of the floating-point type.
    #[error(
        "row {row}: the result underflows {dtype}; scale the rows (for example to unit norm), use a larger gamma, \
         or compute in f64"
    )]
    Underflow {
        /// First offending row, counted from 0.
        row: usize,
        /// `f32` or `f64`.
        dtype: &'static str,
    },
    /// A sketch would need more memory than allowed.
    #[error(
        "{needed} bytes of memory are needed, more than the limit of {limit}; lower features or degree, or raise the limit"
    )]
    TooLarge {
        /// Bytes the sketch and one thread's scratch need; `u64::MAX` when the number itself overflows.
        needed: u64,
        /// The limit in force.
        limit: u64,
    },
    /// A saved spec cannot be read.
    #[error("spec: {0}")]
    Spec(#[source] FileFault),
    /// A saved model, or the saved state of one, cannot be read.
    #[error("model file: {0}")]
    Archive(#[source] FileFault),
    /// A store of gradients, or a file of it, cannot be used.
    #[error("{}: {fault}", path.display())]
    Store {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        fault: FileFault,
    },
    /// A system of equations has no unique solution in the precision at hand.
    #[error("{what} is singular to working precision; {advice}")]
    Singular {
        /// Which matrix.
        what: String,
        /// What helps.
        advice: Advice,
    },
    /// A training step left the range of the floating-point type.
    #[error("training diverges; lower the learning rate, or scale the rows")]
    Diverged,
    /// A device other than the processor cannot do the work.
    #[error("{device}: {fault}")]
    Device {
        /// Which device, for example `cuda:0`.
        device: String,
        /// Why not.
        #[source]
        fault: DeviceFault,
    },
}

impl Error {
    /// Shorthand for [`Error::Invalid`].
    pub fn invalid(argument: Argument, expected: impl ToString, received: impl ToString) -> Self {
        Self::Invalid { argument, expected: expected.to_string(), received: received.to_string() }
    }

    /// The same error for rows that start at row `start` of a larger table.
    #[must_use]
    pub fn in_rows_from(self, start: usize) -> Self {
        match self {
            Self::NotFinite { argument, row, column, value } => {
                Self::NotFinite { argument, row: row.saturating_add(start), column, value }
            }
            Self::Overflow { row, dtype } => Self::Overflow { row: row.saturating_add(start), dtype },
            Self::Underflow { row, dtype } => Self::Underflow { row: row.saturating_add(start), dtype },
            other => other,
        }
    }
}

/// Why a device cannot do the work.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// Its driver is not installed, or too old.
    #[error("{0}")]
    NoDriver(String),
    /// There is no device of this number.
    #[error("not found; this machine has {0} CUDA devices")]
    Absent(usize),
    /// Its memory does not suffice.
    #[error("{needed} bytes of device memory are needed, and {free} are free")]
    Memory {
        /// Bytes needed at once, in the smallest blocks.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The driver reported an error.
    #[error("{0}")]
    Driver(String),
}

/// What helps against a singular system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// A smaller kernel variance, or larger noise.
    Variances,
    /// Rows of another scale.
    Scale,
    /// More damping of the curvature.
    Damping,
}

impl fmt::Display for Advice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Variances => "use a smaller kernel variance, or larger noise",
            Self::Scale => "scale the rows",
            Self::Damping => "use a larger damping",
        })
    }
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum FileFault {
    /// It is not an Argand file of this kind.
    #[error("not an Argand {0} file")]
    Foreign(&'static str),
    /// A newer Argand wrote it.
    #[error("{what} {found} is newer than {newest}, the newest this Argand knows; please upgrade")]
    Newer {
        /// Which of its versions.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest version that can be read.
        newest: u32,
    },
    /// It holds another kind than requested.
    #[error("expected a file of kind {expected}, got \"{found}\"")]
    Kind {
        /// The kind or kinds that would have been accepted.
        expected: String,
        /// The kind it holds.
        found: String,
    },
    /// Bytes were changed or lost.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// It is not what was written.
    #[error("the checksum does not match: a byte was changed; remove the line \"checksum\" if you edited the file")]
    Checksum,
    /// It is intact, but its content is invalid.
    #[error("{0}")]
    Content(String),
    /// A part of it cannot be parsed.
    #[error("{part}: {cause}")]
    Part {
        /// Which part.
        part: &'static str,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// Reading or parsing failed.
    #[error("{0}")]
    Cause(#[source] Cause),
}

impl FileFault {
    /// A fault with a cause.
    pub fn caused_by(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Cause(Cause(Arc::new(error)))
    }

    /// A fault of one part, with a cause.
    pub fn in_part(part: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Part { part, cause: Cause(Arc::new(error)) }
    }
}

/// Another library's error behind one of ours. Two are equal if their messages are.
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Declares [`Argument`]: a variant and the library's name for each.
macro_rules! arguments {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// What an [`enum@Error`] is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Argument {
            /// A table of rows: its index among several, or `None` for the only one.
            Input(Option<usize>),
            $($(#[$doc])* #[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl fmt::Display for Argument {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Input(None) => formatter.pad("input"),
                    Self::Input(Some(index)) => formatter.pad(&format!("input {index}")),
                    $(Self::$variant => formatter.pad($name),)*
                }
            }
        }
    };
}

impl Argument {
    /// Input `index` of `count`.
    #[must_use]
    pub fn input(index: usize, count: usize) -> Self {
        Self::Input((count > 1).then_some(index))
    }
}

arguments! {
    Aim "aim",
    Alpha "alpha",
    Approximation "approximation",
    Base "base",
    Batch "batch",
    Biases "biases",
    Block "block",
    Candidates "candidates",
    Classes "classes",
    Coef0 "coef0",
    Coefficients "coefficients",
    ColumnsOf "columns_of",
    Cotangent "cotangent",
    CraftDim "craft_dim",
    Cross "cross",
    Damping "damping",
    Data "data",
    Degree "degree",
    Delta "delta",
    Dim "dim",
    Epochs "epochs",
    Epsilon "epsilon",
    Features "features",
    Fit "fit",
    Gamma "gamma",
    Gradients "gradients",
    Gram "gram",
    Groups "groups",
    InputDim "input_dim",
    Inputs "inputs",
    Joint "joint",
    Kernel "kernel",
    Labels "labels",
    Lambda "lambda",
    Landmarks "landmarks",
    Layers "layers",
    LearningRate "learning_rate",
    LengthScale "length_scale",
    Maclaurin "maclaurin",
    Map "map",
    MaxError "max_error",
    MaxFeatures "max_features",
    MeasuredRows "measured_rows",
    Method "method",
    Methods "methods",
    Noise "noise",
    Other "other",
    Out "out",
    Pairs "pairs",
    Parameters "parameters",
    Patience "patience",
    Preparation "preparation",
    Recipe "recipe",
    RmsError "rms_error",
    RowStarts "row_starts",
    Rows "rows",
    S "s",
    Samples "samples",
    Scales "scales",
    Scaling "scaling",
    Selection "selection",
    Sketches "sketches",
    Spherical "spherical",
    StatisticalDimension "statistical_dimension",
    StreamVersion "stream_version",
    Stride "stride",
    T "t",
    TargetError "target_error",
    Targets "targets",
    TimeBudget "time_budget",
    Top "top",
    TradeOff "trade_off",
    ValidationLoss "validation_loss",
    Variance "variance",
    Weights "weights",
    X "x",
    Y "y",
}
