//! Learning on sketches.

mod archive;
mod gram;
mod recipe;

pub use archive::Archive;
pub use gram::{Gram, Labels, Targets};
pub use recipe::{Pipeline, Preparation, PreparationFit, Recipe, Scaling};
