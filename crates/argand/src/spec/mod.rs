//! A sketch as plain data: the only vocabulary of options.

mod json;
mod kernel;
mod method;

use serde::{Deserialize, Serialize};

use crate::error::{Argument, Error};
use crate::fit::Fit;
use crate::map::monomials;
use crate::rng::StreamVersion;
use crate::spherical::SphericalFit;

pub use json::json_checksum;
pub use kernel::{Kernel, Polynomial};
pub use method::{Base, Field, Frequencies, Method, ProductMethod, Shape};

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
/// Start from [`Spec::polynomial`], [`Spec::gaussian`] or [`Spec::tensor_product`] and override the defaults.
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
    /// What was fitted before drawing: [`Fit`] says which methods need it. [`Spec::fit_to`] fits it.
    pub fit: Option<Fit>,
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

    /// Features of the Gaussian kernel exp(−‖x − y‖²/(2ℓ²)) for one table with `input_dim` columns: `sorf`, 1024 features, seed 0.
    ///
    /// ```
    /// use argand::{FeatureMap, Rows, Spec};
    /// let x = [1.0, 2.0, 3.0, 1.5, 2.5, 2.5]; // 2 rows of 3 numbers
    /// let sketch = Spec::gaussian(3, 1.0).with_features(4096).sketch::<f64>()?;
    /// let features = sketch.transform(&[Rows::new(&x, 2, 3)?.into()])?;
    /// let estimate: f64 = features[..4096].iter().zip(&features[4096..]).map(|(a, b)| a * b).sum();
    /// assert!((estimate - (-0.75_f64 / 2.0).exp()).abs() < 0.03); // ‖x − y‖² = ¾
    /// # Ok::<(), argand::Error>(())
    /// ```
    #[must_use]
    pub fn gaussian(input_dim: usize, length_scale: f64) -> Self {
        Self {
            kernel: Kernel::Gaussian { length_scale },
            method: Method::Fourier(Frequencies::Structured),
            ..Self::new(InputDims::Same(input_dim))
        }
    }

    /// The sketch of [`Spec::polynomial`] or [`Spec::tensor_product`].
    #[must_use]
    pub fn new(inputs: InputDims) -> Self {
        let degree = if let InputDims::Distinct(dims) = &inputs { dims.len() } else { 2 };
        Self {
            kernel: Polynomial { degree, gamma: 1.0, coef0: 0.0 }.into(),
            inputs,
            features: 1024,
            method: Method::flat(Base::ProductSrht, Field::ComplexToReal),
            seed: 0,
            stream_version: StreamVersion::LATEST,
            fit: None,
        }
    }

    /// The same spec for another kernel. What was fitted for the previous one is dropped.
    #[must_use]
    pub fn with_kernel(mut self, kernel: impl Into<Kernel>) -> Self {
        self.kernel = kernel.into();
        self.fit = None;
        self
    }

    /// The same spec with another method. What was fitted for the previous one is dropped.
    #[must_use]
    pub fn with_method(mut self, method: Method) -> Self {
        if self.method != method {
            self.fit = None;
        }
        self.method = method;
        self
    }

    /// The same spec with something else fitted.
    #[must_use]
    pub fn with_fit(mut self, fit: impl Into<Option<Fit>>) -> Self {
        self.fit = fit.into();
        self
    }

    /// The same spec with another degree p of its polynomial kernel; others stay as they are.
    #[must_use]
    pub fn with_degree(self, degree: usize) -> Self {
        self.with_polynomial(|kernel| kernel.degree = degree)
    }

    /// The same spec with another factor γ of the inner product in its polynomial kernel; others stay as they are.
    #[must_use]
    pub fn with_gamma(self, gamma: f64) -> Self {
        self.with_polynomial(|kernel| kernel.gamma = gamma)
    }

    /// The same spec with another constant ν in its polynomial kernel; others stay as they are.
    #[must_use]
    pub fn with_coef0(self, coef0: f64) -> Self {
        self.with_polynomial(|kernel| kernel.coef0 = coef0)
    }

    fn with_polynomial(mut self, change: impl FnOnce(&mut Polynomial)) -> Self {
        if let Kernel::Polynomial(kernel) = &mut self.kernel {
            change(kernel);
        }
        self
    }

    builders! {
        /// The same spec with another number D of features.
        with_features(features: usize)
        /// The same spec with another seed.
        with_seed(seed: u64)
    }

    /// The number m of outputs of each projection: D for real sketches, D/2 for complex ones and for cosines and sines; E or E/2 for
    /// CRAFT maps. D where features have other origins.
    #[must_use]
    pub fn outputs(&self) -> usize {
        let features = self.method.craft().unwrap_or(self.features);
        let halves = self.method.field().is_complex() || matches!(self.method, Method::Spherical | Method::Fourier(_));
        if halves { features / 2 } else { features }
    }

    /// The number of features of an `exact` map of this kernel, if the method is one.
    #[must_use]
    pub fn exact_features(&self) -> Option<usize> {
        match (self.method, self.kernel.polynomial(), &self.inputs) {
            (Method::Exact, Some(kernel), InputDims::Same(dim)) => monomials::count(*dim, kernel),
            _ => None,
        }
    }

    /// The kernel of a product of projections, of spherical features or of monomials: they have no other.
    pub(crate) fn factors(&self) -> Polynomial {
        self.kernel.polynomial().unwrap_or_else(|| unreachable!("{} is for polynomial kernels only", self.method))
    }

    /// Dimension of a factor's vector x̃ᵢ = (√γ xᵢ, √ν).
    pub(crate) fn factor_dim(&self, factor: usize) -> usize {
        let dims = self.inputs.as_slice();
        dims[factor % dims.len()].saturating_add(usize::from(self.factors().coef0 > 0.0))
    }

    /// Checks that the spec describes a sketch.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the argument.
    pub fn validate(&self) -> Result<(), Error> {
        self.kernel.validate()?;
        for &dim in self.inputs.as_slice() {
            if dim == 0 || dim > 1 << 31 {
                return Err(Error::invalid(Argument::InputDim, "1 to 2147483648 columns", dim));
            }
        }
        if let InputDims::Distinct(dims) = &self.inputs {
            let Kernel::Polynomial(Polynomial { degree, .. }) = self.kernel else {
                let expected = format!("one table for a {} kernel", self.kernel.name());
                return Err(Error::invalid(Argument::InputDim, expected, dims.len()));
            };
            if dims.len() != degree {
                return Err(Error::invalid(Argument::InputDim, format!("one entry per factor, {degree}"), dims.len()));
            }
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
            let expected = match self.method {
                Method::Maclaurin(_) => "maclaurin- with a real or ctr- sketch, without craft-",
                _ => "craft- with a real or ctr- sketch",
            };
            return Err(Error::invalid(Argument::Method, expected, self.method));
        }
        self.validate_kernel_of_method()?;
        self.validate_fit()
    }

    /// Checks that the method is for this kernel and these tables.
    fn validate_kernel_of_method(&self) -> Result<(), Error> {
        let polynomial = self.kernel.polynomial().is_some();
        let suits = match self.method {
            Method::Product(_) | Method::Spherical | Method::Exact => polynomial,
            Method::Fourier(_) => self.kernel.radial().is_some(),
            Method::Maclaurin(_) | Method::Nystrom => true,
        };
        if !suits {
            let expected = match self.kernel {
                Kernel::Gaussian { .. } => "maclaurin-..., rff, orf, sorf or nystrom for a gaussian kernel",
                Kernel::Polynomial(_) => "no rff, orf or sorf for a polynomial kernel",
                _ => "maclaurin-... or nystrom for a kernel that is neither polynomial nor gaussian",
            };
            return Err(Error::invalid(Argument::Method, expected, self.method));
        }
        let InputDims::Same(dim) = self.inputs else {
            if self.method.product().is_some() {
                return Ok(());
            }
            let expected = format!("one input for {}", self.method);
            return Err(Error::invalid(Argument::InputDim, expected, self.inputs.as_slice().len()));
        };
        match self.method {
            Method::Fourier(_) if !self.features.is_multiple_of(2) => {
                let expected = format!("an even number for {} (half cosines, half sines)", self.method);
                Err(Error::invalid(Argument::Features, expected, self.features))
            }
            Method::Exact => match monomials::count(dim, self.factors()) {
                Some(count) if count == self.features => Ok(()),
                Some(count) => {
                    Err(Error::invalid(Argument::Features, format!("{count}, all monomials, for exact"), self.features))
                }
                None => Err(Error::invalid(
                    Argument::Method,
                    "another than exact, as there are more than 2147483648 monomials",
                    self.method,
                )),
            },
            Method::Spherical => self.validate_spherical(),
            _ => Ok(()),
        }
    }

    /// Checks that what was fitted belongs to this method, kernel and number of features.
    fn validate_fit(&self) -> Result<(), Error> {
        match (&self.fit, self.method) {
            (None, _) => Ok(()),
            (Some(Fit::Spherical(fit)), Method::Spherical) => self.validate_spherical_fit(fit),
            (Some(Fit::Maclaurin(allocation)), Method::Maclaurin(product)) => allocation.validate(self, product),
            (Some(Fit::Nystrom(landmarks)), Method::Nystrom) => landmarks.validate(self),
            (Some(fit), method) => {
                let expected = match fit {
                    Fit::Spherical(_) => "a fit of spherical features only for srf",
                    Fit::Maclaurin(_) => "shares of features only for maclaurin-",
                    Fit::Nystrom(_) => "landmarks only for nystrom",
                };
                Err(Error::invalid(Argument::Fit, expected, method))
            }
        }
    }

    /// The parameter s of spherical random features, from γ = 2/s².
    pub(crate) fn spherical_s(&self) -> f64 {
        (2.0 / self.factors().gamma).sqrt()
    }

    fn validate_spherical(&self) -> Result<(), Error> {
        let Polynomial { gamma, coef0, .. } = self.factors();
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
        Ok(())
    }

    fn validate_spherical_fit(&self, fit: &SphericalFit) -> Result<(), Error> {
        fit.validate()?;
        let fitted = (fit.dim, fit.degree);
        let dim = self.inputs.as_slice()[0];
        if fitted != (dim.max(2), self.factors().degree) || (fit.s - self.spherical_s()).abs() > 1e-9 * fit.s {
            return Err(Error::invalid(
                Argument::Spherical,
                "a fit of this kernel and dimension",
                format!("{fitted:?}, s = {}", fit.s),
            ));
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
            assert!(message(spec.clone().with_gamma(value)).contains("gamma"));
            assert!(message(spec.clone().with_coef0(value)).contains("coef0"));
        }
        // Methods and kernels that do not go together.
        let gaussian = Spec::gaussian(4, 1.0).with_features(8);
        assert_eq!(gaussian.validate(), Ok(()));
        for (spec, named) in [
            (method("rff"), "method"),
            (method("exact"), "features: expected 10"),
            (method("maclaurin-complex-gaussian"), "maclaurin-"),
            (method("maclaurin-craft-gaussian"), "maclaurin-"),
            (gaussian.clone().with_method("ctr-gaussian".parse().unwrap()), "rff"),
            (gaussian.clone().with_method("exact".parse().unwrap()), "rff"),
            (gaussian.clone().with_method("srf".parse().unwrap()), "rff"),
            (gaussian.clone().with_features(7), "even"),
            (gaussian.clone().with_kernel(Kernel::Exponential { length_scale: 1.0 }), "maclaurin-"),
            (Spec::tensor_product(&[2, 3]).with_kernel(Kernel::Exponential { length_scale: 1.0 }), "input_dim"),
            (Spec::tensor_product(&[2, 3]).with_method("nystrom".parse().unwrap()), "input_dim"),
        ] {
            let message = message(spec);
            assert!(message.contains(named), "{named}: {message}");
        }
    }
}
