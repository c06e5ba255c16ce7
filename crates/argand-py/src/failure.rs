//! Translates library errors into Python's, with Python's argument names.

use argand::{Advice, Argument, Error};
use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

/// The Python keyword or attribute for a library argument.
fn python_name(argument: Argument) -> String {
    let name = match argument {
        Argument::Input(Some(index)) => return format!("X[{index}]"),
        Argument::Input(None) | Argument::Inputs | Argument::Rows => "X",
        Argument::InputDim => "dims",
        Argument::Features => "n_components",
        Argument::MaxFeatures => "max_components",
        Argument::Lambda | Argument::Noise => "alpha",
        Argument::Labels | Argument::Classes | Argument::Targets => "y",
        Argument::RowStarts => "X.indptr",
        Argument::ColumnsOf => "X.indices",
        Argument::Kernel => "K",
        Argument::Base => "method",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// A `ValueError` that names the argument, of what computes in the precision of its input.
pub(crate) fn value_error(error: Error) -> PyErr {
    translated(error, "", ", or pass float64")
}

/// A `ValueError` that names the argument, of a model: they compute in float32 whatever the input.
pub(crate) fn model_error(error: Error) -> PyErr {
    translated(error, ", in which models compute", "")
}

/// Says `precision` of float32 where it overflows, and adds `wider` to what helps.
fn translated(error: Error, precision: &str, wider: &str) -> PyErr {
    let [size, other] = if let Error::Underflow { .. } = error { ["small", "larger"] } else { ["large", "smaller"] };
    let message = match error {
        Error::Invalid { argument, expected, received } => {
            format!("{}: expected {expected}, got {received}", python_name(argument))
        }
        Error::NotFinite { argument, row, column, value } => {
            let name = python_name(argument);
            format!("{name}: row {row}, column {column} is {value}; only finite numbers can be sketched")
        }
        Error::Overflow { row, dtype } | Error::Underflow { row, dtype } => {
            let [precision, wider] = if dtype == "f32" { [precision, wider] } else { [""; 2] };
            format!(
                "X: the features of row {row} are too {size} for float{}{precision}; scale the rows (for example to unit \
                 norm) or use a {other} gamma{wider}",
                &dtype[1..]
            )
        }
        Error::TooLarge { needed, limit } => format!(
            "n_components: would take {needed} bytes, more than {limit}; lower n_components or degree, or use a method with \
             a smaller sketch"
        ),
        Error::Singular { what, advice } => {
            let (name, advice) = match advice {
                Advice::Variances => ("kernel_variance", "use a smaller kernel_variance, or larger noise".to_owned()),
                Advice::Damping => ("damping", "use a larger damping".to_owned()),
                other => ("X", other.to_string()),
            };
            format!("{name}: {what} is singular to working precision; {advice}")
        }
        device @ Error::Device { .. } => return PyRuntimeError::new_err(device.to_string()),
        other => other.to_string(),
    };
    PyValueError::new_err(message)
}
