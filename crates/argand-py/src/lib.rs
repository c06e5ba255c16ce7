//! Argand for Python: this crate converts, the library computes, and the package `argand` provides the scikit-learn interface.

mod attribution;
mod cuda;
mod failure;
mod layer;
mod model;
mod running;
mod sketch;
mod table;
mod theory;

use pyo3::prelude::*;

/// The functions that the package `argand` calls. Not a public interface.
#[pymodule]
mod _argand {
    #[pymodule_export]
    use crate::attribution::{attribute, attribution_page, attribution_page_limits, score_matrix};
    #[pymodule_export]
    use crate::cuda::{CudaSketch, cuda_devices};
    #[pymodule_export]
    use crate::layer::{frequencies, layer, layer_vjp};
    #[pymodule_export]
    use crate::model::{Gram, Model, Scratch};
    #[pymodule_export]
    use crate::sketch::{Sketch, choose_spec, exact_features, fit_spec, spec};
    #[pymodule_export]
    use crate::theory::{
        advantage, expected_error, guarantee, kernel_error, moment_constant, moments, plan, plan_html, spectral_error,
        statistical_dimension,
    };
}
