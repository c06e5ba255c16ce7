//! The one error type of the library.

use thiserror::Error;

/// Everything that can go wrong, each with what was expected and what was received.
///
/// Bad input is reported before any work is done on it. Only [`Error::Overflow`] is found while computing; the
/// caller's output buffer then holds unspecified values.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument has a value that is not allowed.
    #[error("{argument}: expected {expected}, got {received}")]
    Invalid {
        /// Name of the argument as users know it.
        argument: String,
        /// What would have been accepted.
        expected: String,
        /// What was given.
        received: String,
    },
    /// An input holds NaN or an infinity.
    #[error("{argument}: row {row}, column {column} is {value}; only finite numbers can be sketched")]
    NotFinite {
        /// Name of the argument.
        argument: String,
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
    /// A spec file cannot be understood.
    #[error("spec: {0}")]
    Json(String),
    /// A file of a model or of its state cannot be understood.
    #[error("model file: {0}")]
    Archive(String),
    /// A system of equations has no unique solution in the precision at hand.
    #[error("{what} is singular to working precision; {advice}")]
    Singular {
        /// Which matrix.
        what: String,
        /// What helps.
        advice: &'static str,
    },
}

impl Error {
    /// Shorthand for [`Error::Invalid`].
    pub(crate) fn invalid(argument: &str, expected: impl ToString, received: impl ToString) -> Self {
        Self::Invalid { argument: argument.to_owned(), expected: expected.to_string(), received: received.to_string() }
    }
}
