//! Learning on sketches.
//!
//! A [`Recipe`] turns rows into features, block by block; a [`Gram`] sums them up in one pass, across files and machines;
//! [`Ridge`], [`GpRegressor`] and [`GpClassifier`] are solved from the sums, and predict from features. [`ExactGp`] is what the
//! latter two approximate. [`online`] trains a softmax layer by Adam, also through the sketch. All of them are kept in [`Archive`]s.

mod archive;
mod gp;
mod gram;
pub mod online;
mod products;
mod recipe;
mod ridge;
mod softmax;
mod solve;

pub use archive::Archive;
pub use gp::{
    ClassTargets, ExactGp, GpClassifier, GpOptions, GpPrediction, GpRegressor, POSTERIOR_SAMPLES, Variances, largest,
    mean_negative_log_likelihood,
};
pub use gram::{Gram, Labels, Targets};
pub use recipe::{Pipeline, Preparation, PreparationFit, Recipe, Scaling};
pub use ridge::{LeaveOneOut, Ridge, RidgePath};
