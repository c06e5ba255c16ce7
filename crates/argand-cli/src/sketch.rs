//! Options that describe a sketch.

use std::path::PathBuf;

use argand::{Method, Spec};
use argand_learn::Recipe;

use crate::failure::Failure;
use crate::info::read_recipe;
use crate::inputs::KernelArguments;

/// A description of a sketch, or a file with one.
#[derive(Debug, clap::Args)]
pub(crate) struct SketchArguments {
    #[command(flatten)]
    kernel: KernelArguments,

    /// Number of real output columns.
    #[arg(long, value_name = "D", default_value_t = 1024, allow_negative_numbers = true)]
    features: usize,

    /// How to sketch: srf, or `[craft-][hierarchical-|chain-][ctr-|complex-]BASE`, where
    /// BASE is one of gaussian, rademacher, product-srht, tensor-srht and tensor-sketch.
    #[arg(long, value_name = "M", default_value = "ctr-product-srht")]
    method: Method,

    /// Features before the down-projection of a craft- method [default: 32768].
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    craft_dim: Option<usize>,

    /// Random seed: same seed, same features.
    #[arg(long, value_name = "S", default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,

    /// Use a saved sketch instead of describing one.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["degree", "features", "method", "craft_dim", "gamma", "coef0", "seed"]
    )]
    spec: Option<PathBuf>,
}

impl SketchArguments {
    /// The seed.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The file that is read.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        self.spec.as_ref()
    }

    /// The saved sketch, if one is named, and what precedes it.
    pub(crate) fn saved(&self) -> Result<Option<Recipe>, Failure> {
        self.spec.as_deref().map(read_recipe).transpose()
    }

    /// The saved sketch, or the described one for tables with these numbers of columns.
    pub(crate) fn spec(&self, saved: Option<&Recipe>, columns: &[usize]) -> Result<Spec, Failure> {
        if let Some(recipe) = saved {
            return Ok(recipe.spec.clone());
        }
        let (kernel, inputs) = self.kernel.kernel(columns)?;
        let mut method = self.method;
        if let Some(craft_dim) = self.craft_dim {
            if method.craft().is_none() {
                return Err(Failure::Input(format!("--craft-dim: expected a craft- method, got {method}")));
            }
            method = method.with_craft_dim(craft_dim);
        }
        let spec =
            Spec::new(inputs).with_kernel(kernel).with_features(self.features).with_method(method).with_seed(self.seed);
        spec.validate().map_err(|error| Failure::argument(&error))?;
        Ok(spec)
    }
}
