//! One file per figure or table of the paper.

mod error_probability;
mod gp;
pub(crate) mod markdown;
mod moments;
mod norm_error;
mod online;
mod ratio;
pub(crate) mod report;
mod time;
mod variance_ratio;
mod variances;

use argand::{Method, Polynomial, Spec};

use crate::{Context, Error, Outcome};

/// A figure or table that can be measured again.
#[derive(Clone, Copy)]
pub struct Item {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its place in the paper.
    pub place: &'static str,
    /// Whether it needs data.
    pub needs_data: bool,
    pub(crate) run: fn(&Context<'_>) -> Result<Outcome, Error>,
}

impl std::fmt::Debug for Item {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Item").field(&self.name).finish()
    }
}

macro_rules! item {
    ($module:ident, $place:literal, $needs_data:literal) => {
        Item { name: $module::NAME, title: $module::TITLE, place: $place, needs_data: $needs_data, run: $module::run }
    };
}

/// All items, in the order of the paper.
pub const ITEMS: [Item; 9] = [
    item!(moments, "Fig. 1 left and the figure of App. A", false),
    item!(norm_error, "Fig. 1 right", false),
    item!(variances, "Table 1", false),
    item!(gp, "Fig. 2 and the last four figures", true),
    item!(time, "Fig. 3", true),
    item!(ratio, "Table 2", true),
    item!(online, "Section 5.4 and its figure in the appendix", true),
    item!(error_probability, "Fig. 4", false),
    item!(variance_ratio, "the first figure of App. D", true),
];

/// The 14 sketches that the paper compares.
pub const METHODS: [&str; 14] = [
    "gaussian",
    "ctr-gaussian",
    "rademacher",
    "ctr-rademacher",
    "product-srht",
    "ctr-product-srht",
    "tensor-sketch",
    "hierarchical-product-srht",
    "hierarchical-ctr-product-srht",
    "hierarchical-tensor-sketch",
    "srf",
    "craft-product-srht",
    "craft-ctr-product-srht",
    "craft-tensor-sketch",
];

fn methods(names: &[&str]) -> Result<Vec<Method>, Error> {
    names.iter().map(|name| Ok(name.parse::<Method>()?)).collect()
}

/// The spec of a sketch of the paper's kernel (½ + ½⟨x, y⟩)^p.
fn half_and_half(columns: usize, degree: usize, features: usize, method: Method, seed: u64) -> Spec {
    let mut spec =
        Spec::polynomial(columns).with_degree(degree).with_features(features).with_method(method).with_seed(seed);
    spec.kernel = Polynomial { degree, gamma: 0.5, coef0: 0.5 }.into();
    spec
}

/// Mean and standard deviation.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { f64::NAN })
}
