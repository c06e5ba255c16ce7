//! Learning on sketches.
//!
//! A [`Recipe`] turns rows into features, block by block; a [`Gram`] sums them up in one pass, across files and machines;
//! [`Ridge`], [`GpRegressor`] and [`GpClassifier`] are solved from the sums, and predict from features. [`ExactGp`] is what the
//! latter two approximate. [`fit_finalists`] lets labels decide which candidate of a [plan](argand::plan) is best. [`online`] trains a softmax layer by Adam, also through the sketch. [`attribution`] scores examples by sketches of their gradients. All of them are [`Model`]s and kept in
//! [`Archive`]s, from which [`read_model`] reads any of them.

mod archive;
pub mod attribution;
pub mod blocks;
#[cfg(feature = "cuda")]
mod cuda;
mod engine;
mod factor;
mod few_rows;
mod finalists;
mod gp;
mod gram;
mod model;
pub mod online;
mod preparation;
mod recipe;
mod ridge;
mod score;

pub use archive::Archive;
#[cfg(feature = "cuda")]
pub use cuda::CudaEngine;
pub use engine::{Engine, EngineSketch, Factors, StartSums, Summing, Sums};
pub use finalists::{FEWEST_LABELLED_ROWS, fit_finalists};
pub use gp::{ClassTargets, ExactGp, GpClassifier, GpOptions, GpPrediction, GpRegressor, POSTERIOR_SAMPLES, Variances};
pub use gram::{Gram, Labels, SUMS, Targets, Workspace};
pub use model::{Model, Predicts, Setting, kinds, read_model};
pub use preparation::{Preparation, PreparationFit, Scaling};
pub use recipe::{Missing, Pipeline, Recipe};
pub use ridge::{LeaveOneOut, Ridge, RidgePath};
pub use score::{Score, largest, mean_negative_log_likelihood};
