//! Options that describe a sketch.

use std::path::PathBuf;

use argand::fit::{Aim, Fitting, Selection};
use argand::{Base, Field, Method, ProductMethod, Shape, Spec};
use argand_learn::Recipe;

use crate::failure::Failure;
use crate::info::read_recipe;
use crate::inputs::KernelArguments;

/// A description of a sketch, or a file with one.
#[derive(Debug, clap::Args)]
pub(crate) struct SketchArguments {
    #[command(flatten)]
    kernel: KernelArguments,

    /// Number of real output columns [default: 1024; for exact, all monomials].
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    features: Option<usize>,

    /// How to sketch: `[craft-][hierarchical-|chain-][ctr-|complex-]BASE`, where BASE is one of gaussian,
    /// rademacher, product-srht, tensor-srht and tensor-sketch; srf; exact (all monomials). For any kernel:
    /// `maclaurin-` and one of the above, or nystrom; for gaussian ones also rff, orf and sorf
    /// [default: ctr-product-srht; maclaurin-ctr-product-srht for other kernels].
    #[arg(long, value_name = "M")]
    method: Option<Method>,

    /// How nystrom selects its landmarks: uniform, leverage or pivoted (by randomly pivoted Cholesky).
    #[arg(long, value_name = "S", default_value = "pivoted")]
    landmarks: Selection,

    /// What maclaurin- methods share their features for: kernel (the lowest error of the kernel matrix) or learning (of a model's predictions).
    #[arg(long, value_name = "A", default_value = "kernel")]
    aim: Aim,

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
        conflicts_with_all = [
            "kernel", "degree", "features", "method", "landmarks", "aim", "craft_dim", "gamma", "coef0", "length_scale",
            "coefficients", "seed"
        ]
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

    /// How to fit a method that looks at rows.
    pub(crate) fn fitting(&self) -> Fitting {
        Fitting::default().with_selection(self.landmarks).with_aim(self.aim)
    }

    /// The saved sketch, or the described one for tables with these numbers of columns.
    pub(crate) fn spec(&self, saved: Option<&Recipe>, columns: &[usize]) -> Result<Spec, Failure> {
        if let Some(recipe) = saved {
            return Ok(recipe.spec.clone());
        }
        let (kernel, inputs) = self.kernel.kernel(columns)?;
        let plain =
            ProductMethod { base: Base::ProductSrht, field: Field::ComplexToReal, shape: Shape::Flat, craft: None };
        let default = if kernel.polynomial().is_some() { Method::Product(plain) } else { Method::Maclaurin(plain) };
        let mut method = self.method.unwrap_or(default);
        if let Some(craft_dim) = self.craft_dim {
            if method.craft().is_none() {
                return Err(Failure::Input(format!("--craft-dim: expected a craft- method, got {method}")));
            }
            method = method.with_craft_dim(craft_dim);
        }
        let mut spec = Spec::new(inputs).with_kernel(kernel).with_method(method).with_seed(self.seed);
        spec.features = self.features.or(spec.exact_features()).unwrap_or(1024);
        spec.validate().map_err(|error| Failure::argument(&error))?;
        Ok(spec)
    }
}
