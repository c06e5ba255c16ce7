//! A sketch as plain data: the only vocabulary of options.

mod json;
mod method;

use serde::{Deserialize, Serialize};

use crate::error::{Argument, Error};
use crate::rng::StreamVersion;
use crate::spherical::SphericalFit;

pub use json::json_checksum;
pub use method::{Base, Field, Method, ProductMethod, Shape};

/// The polynomial kernel (γ⟨x, y⟩ + ν)^p.
///
/// # Reference
/// Eq. 1 of the paper, with scikit-learn's names: `gamma` is γ, `coef0` is ν, `degree` is p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    /// The degree p, at least 1.
    pub degree: usize,
    /// The factor γ of the inner product, at least 0.
    pub gamma: f64,
    /// The constant ν, at least 0.
    pub coef0: f64,
}

/// The tables a sketch reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged, expecting = "input_dim: expected a number of columns, or a list with one for every factor")]
pub enum InputDims {
    /// One table with this many columns; every factor reads the same x, and the sketch approximates x^{⊗p}.
    Same(usize),
    /// One table per factor, for x₁ ⊗ … ⊗ x_p; the kernel is Πᵢ (γ⟨xᵢ, yᵢ⟩ + ν).
    Distinct(Vec<usize>),
}

impl InputDims {
    /// Columns of each table: one entry, or one per factor.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        match self {
            Self::Same(dim) => std::slice::from_ref(dim),
            Self::Distinct(dims) => dims,
        }
    }
}

/// A complete description of a sketch. Same spec, same random numbers, on every machine.
///
/// Start from [`Spec::polynomial`] or [`Spec::tensor_product`] and override the defaults.
///
/// ```
/// use argand::Spec;
/// let spec = Spec::polynomial(64).with_degree(3).with_coef0(1.0).with_features(1024).with_seed(42);
/// assert_eq!(Spec::from_json(&spec.to_json())?, spec);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Spec {
    /// The kernel that inner products of features approximate.
    pub kernel: Kernel,
    /// The tables it reads.
    pub inputs: InputDims,
    /// The number D of real output columns.
    pub features: usize,
    /// How rows become features.
    pub method: Method,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The version of the random streams.
    pub stream_version: StreamVersion,
    /// The fit of spherical random features, once computed: saves time, changes no number.
    pub spherical: Option<SphericalFit>,
}

/// Declares builder methods that replace one part of a spec.
macro_rules! builders {
    ($($(#[$doc:meta])* $name:ident($($place:ident).+: $type:ty))*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, value: $type) -> Self {
            self.$($place).+ = value;
            self
        })*
    };
}

impl Spec {
    /// A sketch of ⟨x, y⟩² for one table with `input_dim` columns: `ctr-product-srht`, 1024 features, γ = 1, ν = 0, seed 0.
    #[must_use]
    pub fn polynomial(input_dim: usize) -> Self {
        Self::new(InputDims::Same(input_dim))
    }

    /// A sketch of x₁ ⊗ … ⊗ x_p for one table per factor, with the given numbers of columns: `ctr-product-srht`, 1024
    /// features, γ = 1, ν = 0, seed 0.
    #[must_use]
    pub fn tensor_product(input_dims: &[usize]) -> Self {
        Self::new(InputDims::Distinct(input_dims.to_vec()))
    }

    /// The sketch of [`Spec::polynomial`] or [`Spec::tensor_product`].
    #[must_use]
    pub fn new(inputs: InputDims) -> Self {
        let degree = if let InputDims::Distinct(dims) = &inputs { dims.len() } else { 2 };
        Self {
            kernel: Kernel { degree, gamma: 1.0, coef0: 0.0 },
            inputs,
            features: 1024,
            method: Method::flat(Base::ProductSrht, Field::ComplexToReal),
            seed: 0,
            stream_version: StreamVersion::LATEST,
            spherical: None,
        }
    }

    builders! {
        /// The same spec for another kernel.
        with_kernel(kernel: Kernel)
        /// The same spec with another degree p.
        with_degree(kernel.degree: usize)
        /// The same spec with another factor γ of the inner product.
        with_gamma(kernel.gamma: f64)
        /// The same spec with another constant ν.
        with_coef0(kernel.coef0: f64)
        /// The same spec with another number D of features.
        with_features(features: usize)
        /// The same spec with another method.
        with_method(method: Method)
        /// The same spec with another seed.
        with_seed(seed: u64)
    }

    /// The number m of outputs of each projection: D for real sketches, D/2 for complex and spherical ones; E or E/2 for CRAFT maps.
    #[must_use]
    pub fn outputs(&self) -> usize {
        let features = self.method.craft().unwrap_or(self.features);
        let halves = self.method.field().is_complex() || self.method == Method::Spherical;
        if halves { features / 2 } else { features }
    }

    /// Dimension of a factor's vector x̃ᵢ = (√γ xᵢ, √ν).
    pub(crate) fn factor_dim(&self, factor: usize) -> usize {
        let dims = self.inputs.as_slice();
        dims[factor % dims.len()].saturating_add(usize::from(self.kernel.coef0 > 0.0))
    }

    /// Checks that the spec describes a sketch.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the argument.
    pub fn validate(&self) -> Result<(), Error> {
        let Kernel { degree, gamma, coef0 } = self.kernel;
        if degree == 0 || u32::try_from(degree).is_err() {
            return Err(Error::invalid(Argument::Degree, "1 to 4294967295", degree));
        }
        for (argument, value) in [(Argument::Gamma, gamma), (Argument::Coef0, coef0)] {
            if !(value.is_finite() && value >= 0.0) {
                let expected = "a finite number of at least 0 (features use its square root, which would be NaN)";
                return Err(Error::invalid(argument, expected, value));
            }
        }
        for &dim in self.inputs.as_slice() {
            if dim == 0 || dim > 1 << 31 {
                return Err(Error::invalid(Argument::InputDim, "1 to 2147483648 columns", dim));
            }
        }
        if let InputDims::Distinct(dims) = &self.inputs
            && dims.len() != degree
        {
            return Err(Error::invalid(Argument::InputDim, format!("one entry per factor, {degree}"), dims.len()));
        }
        if self.features == 0 || self.features > 1 << 31 {
            return Err(Error::invalid(Argument::Features, "1 to 2147483648", self.features));
        }
        if self.method.craft().is_none() && self.method.field().is_complex() && self.features % 2 == 1 {
            let expected = format!("an even number for {} (half real, half imaginary parts)", self.method);
            return Err(Error::invalid(Argument::Features, expected, self.features));
        }
        if let Some(up_dim) = self.method.craft()
            && (up_dim < self.features || up_dim % 2 == 1 || up_dim > 1 << 31)
        {
            let expected = format!("an even number from the {} features to 2147483648", self.features);
            return Err(Error::invalid(Argument::CraftDim, expected, up_dim));
        }
        if !self.method.is_possible() {
            let expected = "craft- with a real or ctr- sketch";
            return Err(Error::invalid(Argument::Method, expected, self.method));
        }
        if self.method == Method::Spherical {
            self.validate_spherical()?;
        } else if self.spherical.is_some() {
            return Err(Error::invalid(Argument::Spherical, "a fit only for srf", self.method));
        }
        Ok(())
    }

    /// The parameter s of spherical random features, from γ = 2/s².
    pub(crate) fn spherical_s(&self) -> f64 {
        (2.0 / self.kernel.gamma).sqrt()
    }

    fn validate_spherical(&self) -> Result<(), Error> {
        let Kernel { degree, gamma, coef0 } = self.kernel;
        let InputDims::Same(dim) = self.inputs else {
            return Err(Error::invalid(Argument::InputDim, "one input for srf", self.inputs.as_slice().len()));
        };
        if !self.features.is_multiple_of(2) {
            return Err(Error::invalid(
                Argument::Features,
                "an even number for srf (half cosines, half sines)",
                self.features,
            ));
        }
        // A smaller γ is a larger s; below this, there is nothing to fit.
        if !(1e-12..=0.5).contains(&gamma) || (gamma + coef0 - 1.0).abs() > 1e-12 {
            let expected = "for srf gamma = 2/s² and coef0 = 1 - 2/s² with s of at least 2, for example 0.5 and 0.5";
            return Err(Error::invalid(Argument::Gamma, expected, format!("gamma {gamma} and coef0 {coef0}")));
        }
        if let Some(fit) = &self.spherical {
            fit.validate()?;
            let fitted = (fit.dim, fit.degree);
            if fitted != (dim.max(2), degree) || (fit.s - self.spherical_s()).abs() > 1e-9 * fit.s {
                return Err(Error::invalid(
                    Argument::Spherical,
                    "a fit of this kernel and dimension",
                    format!("{fitted:?}, s = {}", fit.s),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_combinations() {
        let message = |spec: Spec| spec.validate().unwrap_err().to_string();
        let spec = Spec::polynomial(4).with_degree(2).with_features(8);
        let method = |name: &str| spec.clone().with_method(name.parse().unwrap());
        assert!(message(method("craft-complex-gaussian")).contains("craft-"));
        let mut small = method("craft-gaussian");
        small.method = small.method.with_craft_dim(4);
        assert!(message(small).contains("craft_dim"));
        for value in [f64::NAN, f64::INFINITY, -1.0] {
            let mut spec = spec.clone();
            spec.kernel.gamma = value;
            assert!(message(spec.clone()).contains("gamma"));
            spec.kernel.gamma = 1.0;
            spec.kernel.coef0 = value;
            assert!(message(spec).contains("coef0"));
        }
    }
}
