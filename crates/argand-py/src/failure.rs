//! Errors of the library, under the names that Python users know.

use argand::Error;
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

/// The keyword or attribute that Python users know an argument of the library by.
fn python_name(argument: &str) -> String {
    let name = match argument {
        "input" | "inputs" | "rows" => "X",
        "input_dim" => "dims",
        "features" => "n_components",
        "max_features" => "max_components",
        "lambda" | "noise" => "alpha",
        "labels" | "classes" | "targets" => "y",
        "row_starts" => "X.indptr",
        "columns_of" => "X.indices",
        "kernel" => "K",
        other => return other.strip_prefix("input ").map_or_else(|| other.to_owned(), |index| format!("X[{index}]")),
    };
    name.to_owned()
}

/// A `ValueError` that names the argument.
pub(crate) fn value_error(error: Error) -> PyErr {
    let message = match error {
        Error::Invalid { argument, expected, received } => {
            format!("{}: expected {expected}, got {received}", python_name(&argument))
        }
        Error::NotFinite { argument, row, column, value } => {
            Error::NotFinite { argument: python_name(&argument), row, column, value }.to_string()
        }
        Error::Overflow { row, dtype } => {
            let wider = if dtype == "f32" { ", or pass float64" } else { "" };
            format!(
                "X: the features of row {row} are too large for float{}; scale the rows (for example to unit norm) or use \
                 a smaller gamma{wider}",
                &dtype[1..]
            )
        }
        Error::TooLarge { needed, limit } => format!(
            "n_components: would take {needed} bytes, more than {limit}; lower n_components or degree, or use a method with \
             a smaller sketch"
        ),
        Error::Singular { what, .. } => format!("alpha: {what} is singular to working precision; use a larger alpha"),
        other => other.to_string(),
    };
    PyValueError::new_err(message)
}

/// The same error for a block that starts at row `start` of the whole table.
pub(crate) fn in_whole_table(error: Error, start: usize) -> Error {
    match error {
        Error::NotFinite { argument, row, column, value } => {
            Error::NotFinite { argument, row: row.saturating_add(start), column, value }
        }
        Error::Overflow { row, dtype } => Error::Overflow { row: row.saturating_add(start), dtype },
        other => other,
    }
}
