//! Gaussian processes on sketches, and exact ones to compare them with.

mod averaged;
mod classifier;
mod exact;
mod labels;
mod prediction;
mod regressor;
mod targets;
#[cfg(test)]
mod tests;

use argand::{Argument, Error};

pub(crate) use classifier::CLASSIFIER;
pub use classifier::{GpClassifier, GpOptions};
pub use exact::ExactGp;
pub use prediction::{GpPrediction, POSTERIOR_SAMPLES};
pub(crate) use regressor::REGRESSOR;
pub use regressor::{GpRegressor, Variances};
pub use targets::ClassTargets;

/// log 2π
const LOG_TAU: f64 = 1.837_877_066_409_345_5;

fn check_positive(argument: Argument, value: f64) -> Result<f64, Error> {
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(Error::invalid(argument, "a positive number", value)) }
}
