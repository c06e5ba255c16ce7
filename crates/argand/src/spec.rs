//! What a sketch is, as plain data: the only vocabulary of options.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::rng::STREAM_VERSION;
use crate::spherical::SphericalFit;

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

/// Which tables a sketch reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum InputDims {
    /// One table with this many columns; every factor sees the same x, and the sketch is one of x^{⊗p}.
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

/// What one projection Wᵢ is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// Independent normal entries.
    Gaussian,
    /// Independent entries, uniform on {1, −1} or {1, −1, i, −i}.
    Rademacher,
    /// Rows of a Hadamard matrix with random signs, sampled without replacement (Alg. 2).
    ProductSrht,
    /// The same, sampled with replacement (Ahle et al. 2020, Def. 15).
    TensorSrht,
    /// CountSketches convolved by Fourier transform (Pham and Pagh 2013).
    TensorSketch,
    /// Spherical random features, for rows of unit norm only (Pennington et al. 2015). Biased, and no projection of a
    /// tensor product: it goes with no other field or shape. Rows are scaled to unit norm, which loses their norms.
    Spherical,
}

/// Which numbers a sketch computes with and returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Real projections, `features` real columns.
    Real,
    /// Complex projections; the columns are `features / 2` complex numbers stored as (re, im) pairs.
    Complex,
    /// Complex projections; the columns are [Re…, Im…] (Alg. 1).
    ComplexToReal,
}

impl Field {
    /// Whether the projections are complex.
    #[must_use]
    pub fn is_complex(self) -> bool {
        self != Self::Real
    }
}

/// How the p projections combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Element-wise product of all of them (Eq. 4).
    Flat,
    /// A binary tree of degree-2 sketches (Ahle et al. 2020, Alg. 1).
    Tree,
    /// One factor at a time, with a square SRHT between.
    Chain,
}

/// A combination of base, field, shape and optional CRAFT down-projection, with the paper's name for it.
///
/// ```
/// use argand::{Base, Field, Method};
/// let method: Method = "ctr-product-srht".parse()?;
/// assert_eq!((method.base, method.field), (Base::ProductSrht, Field::ComplexToReal));
/// assert_eq!(method.to_string(), "ctr-product-srht");
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// What one projection is made of.
    pub base: Base,
    /// Which numbers are computed with.
    pub field: Field,
    /// How the projections combine.
    pub shape: Shape,
    /// The up-projection dimension E of a CRAFT map (Hamid et al. 2014), if it is one.
    pub craft: Option<usize>,
}

/// The paper's up-projection dimension, used when a `craft-` method names none.
const DEFAULT_CRAFT: usize = 1 << 15;

const BASES: [(&str, Base); 6] = [
    ("gaussian", Base::Gaussian),
    ("rademacher", Base::Rademacher),
    ("product-srht", Base::ProductSrht),
    ("tensor-srht", Base::TensorSrht),
    ("tensor-sketch", Base::TensorSketch),
    ("srf", Base::Spherical),
];
const FIELDS: [(&str, Field); 3] = [("ctr-", Field::ComplexToReal), ("complex-", Field::Complex), ("", Field::Real)];
const SHAPES: [(&str, Shape); 3] = [("hierarchical-", Shape::Tree), ("chain-", Shape::Chain), ("", Shape::Flat)];

impl Method {
    /// A flat method without CRAFT.
    #[must_use]
    pub const fn flat(base: Base, field: Field) -> Self {
        Self { base, field, shape: Shape::Flat, craft: None }
    }

    /// Every method, with the paper's E for CRAFT maps.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut methods = Vec::new();
        for craft in [None, Some(DEFAULT_CRAFT)] {
            for (_, shape) in SHAPES {
                for (_, base) in BASES {
                    let fields = FIELDS.map(|(_, field)| Self { base, field, shape, craft });
                    methods.extend(fields.into_iter().filter(Self::is_possible));
                }
            }
        }
        methods
    }
}

impl Method {
    /// CRAFT projects real features, and spherical random features stand alone.
    fn is_possible(&self) -> bool {
        let alone = *self == Self::flat(Base::Spherical, Field::Real);
        if self.base == Base::Spherical { alone } else { self.craft.is_none() || self.field != Field::Complex }
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        /// Strips the first prefix that fits; the last entry of each list is the empty one.
        fn strip<'a, V: Copy>(name: &'a str, prefixes: &[(&str, V)]) -> Option<(&'a str, V)> {
            prefixes.iter().find_map(|&(prefix, value)| Some((name.strip_prefix(prefix)?, value)))
        }
        let (rest, craft) = strip(name, &[("craft-", Some(DEFAULT_CRAFT)), ("", None)]).unwrap_or((name, None));
        let parsed = strip(rest, &SHAPES).and_then(|(rest, shape)| {
            let (rest, field) = strip(rest, &FIELDS)?;
            let (_, base) = BASES.iter().find(|(base, _)| *base == rest)?;
            Some(Self { base: *base, field, shape, craft })
        });
        match parsed {
            Some(method) => Ok(method),
            None => {
                let bases = BASES.map(|(base, _)| base).join(", ");
                let expected = format!(
                    "[craft-][hierarchical-|chain-][ctr-|complex-]BASE with BASE one of {bases} (for example ctr-product-srht)"
                );
                Err(Error::invalid("method", expected, format!("\"{name}\"")))
            }
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn name_of<V: PartialEq>(names: &[(&'static str, V)], value: &V) -> &'static str {
            names.iter().find(|(_, listed)| listed == value).map_or("", |(name, _)| name)
        }
        let craft = if self.craft.is_some() { "craft-" } else { "" };
        let (shape, field) = (name_of(&SHAPES, &self.shape), name_of(&FIELDS, &self.field));
        formatter.pad(&format!("{craft}{shape}{field}{}", name_of(&BASES, &self.base)))
    }
}

/// A complete description of a sketch. Same spec, same random numbers, on every machine.
///
/// ```
/// use argand::Spec;
/// let mut spec = Spec::new(64, 3, 1024);
/// spec.kernel.coef0 = 1.0;
/// spec.seed = 42;
/// assert_eq!(Spec::from_json(&spec.to_json())?, spec);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The kernel that inner products of features approximate.
    pub kernel: Kernel,
    /// The tables read.
    pub inputs: InputDims,
    /// The number D of real output columns.
    pub features: usize,
    /// Base, field, shape and CRAFT.
    pub method: Method,
    /// Where the random numbers come from.
    pub seed: u64,
    /// The fit of spherical random features, once it was computed: same numbers, sooner.
    pub spherical: Option<SphericalFit>,
}

/// Version of the JSON format.
const FORMAT_VERSION: u32 = 1;
const FORMAT: &str = "argand-spec";

/// The JSON form; its field order is the order in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecFile {
    format: String,
    version: u32,
    stream_version: u32,
    method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    craft_dim: Option<usize>,
    degree: usize,
    gamma: f64,
    coef0: f64,
    input_dim: InputDims,
    features: usize,
    seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spherical: Option<SphericalFit>,
}

/// What is read first, so that a newer file is recognised before its unknown fields are.
#[derive(Deserialize)]
struct Versions {
    format: String,
    version: u32,
    stream_version: u32,
}

impl Spec {
    /// The default sketch of ⟨x, y⟩^degree for one table: `ctr-product-srht`, γ = 1, ν = 0, seed 0.
    #[must_use]
    pub fn new(input_dim: usize, degree: usize, features: usize) -> Self {
        Self {
            kernel: Kernel { degree, gamma: 1.0, coef0: 0.0 },
            inputs: InputDims::Same(input_dim),
            features,
            method: Method::flat(Base::ProductSrht, Field::ComplexToReal),
            seed: 0,
            spherical: None,
        }
    }

    /// The default sketch of x₁ ⊗ … ⊗ x_p for one table per factor.
    #[must_use]
    pub fn distinct(input_dims: &[usize], features: usize) -> Self {
        let inputs = InputDims::Distinct(input_dims.to_vec());
        Self { inputs, ..Self::new(0, input_dims.len(), features) }
    }

    /// The same spec with another method.
    #[must_use]
    pub fn with_method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// The same spec with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The number m of rows of each projection: D for real sketches, D/2 for complex and spherical ones; E or E/2 for
    /// CRAFT maps.
    #[must_use]
    pub fn rows(&self) -> usize {
        let features = self.method.craft.unwrap_or(self.features);
        let halves = self.method.field.is_complex() || self.method.base == Base::Spherical;
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
            return Err(Error::invalid("degree", "1 to 4294967295", degree));
        }
        for (argument, value) in [("gamma", gamma), ("coef0", coef0)] {
            if !(value.is_finite() && value >= 0.0) {
                let expected = "a finite number of at least 0 (features use its square root, which would be NaN)";
                return Err(Error::invalid(argument, expected, value));
            }
        }
        for &dim in self.inputs.as_slice() {
            if dim == 0 || dim > 1 << 31 {
                return Err(Error::invalid("input_dim", "1 to 2147483648 columns", dim));
            }
        }
        if let InputDims::Distinct(dims) = &self.inputs
            && dims.len() != degree
        {
            return Err(Error::invalid("input_dim", format!("one entry per factor, {degree}"), dims.len()));
        }
        if self.features == 0 || self.features > 1 << 31 {
            return Err(Error::invalid("features", "1 to 2147483648", self.features));
        }
        if self.method.craft.is_none() && self.method.field.is_complex() && self.features % 2 == 1 {
            let expected = format!("an even number for {} (half real, half imaginary parts)", self.method);
            return Err(Error::invalid("features", expected, self.features));
        }
        if let Some(up_dim) = self.method.craft
            && (up_dim < self.features || up_dim % 2 == 1 || up_dim > 1 << 31)
        {
            let expected = format!("an even number from the {} features to 2147483648", self.features);
            return Err(Error::invalid("craft_dim", expected, up_dim));
        }
        if !self.method.is_possible() {
            let expected = "craft- with a real or ctr- sketch, and srf with nothing before it";
            return Err(Error::invalid("method", expected, self.method));
        }
        if self.method.base == Base::Spherical {
            self.validate_spherical()?;
        } else if self.spherical.is_some() {
            return Err(Error::invalid("spherical", "a fit only for srf", self.method));
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
            return Err(Error::invalid("input_dim", "one input for srf", self.inputs.as_slice().len()));
        };
        if !self.features.is_multiple_of(2) {
            return Err(Error::invalid("features", "an even number for srf (half cosines, half sines)", self.features));
        }
        // Smaller γ is a larger s; below, the fit has nothing to fit.
        if !(1e-12..=0.5).contains(&gamma) || (gamma + coef0 - 1.0).abs() > 1e-12 {
            let expected = "for srf gamma = 2/s² and coef0 = 1 - 2/s² with s of at least 2, for example 0.5 and 0.5";
            return Err(Error::invalid("gamma", expected, format!("gamma {gamma} and coef0 {coef0}")));
        }
        if let Some(fit) = &self.spherical {
            fit.validate()?;
            let fitted = (fit.dim, fit.degree);
            if fitted != (dim.max(2), degree) || (fit.s - self.spherical_s()).abs() > 1e-9 * fit.s {
                return Err(Error::invalid(
                    "spherical",
                    "a fit of this kernel and dimension",
                    format!("{fitted:?}, s = {}", fit.s),
                ));
            }
        }
        Ok(())
    }

    /// The spec as JSON, ending with a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        let file = SpecFile {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            stream_version: STREAM_VERSION,
            method: self.method.to_string(),
            craft_dim: self.method.craft,
            degree: self.kernel.degree,
            gamma: self.kernel.gamma,
            coef0: self.kernel.coef0,
            input_dim: self.inputs.clone(),
            features: self.features,
            seed: self.seed,
            spherical: self.spherical.clone(),
        };
        // Strings, numbers and lists of numbers always serialise.
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }

    /// Reads and validates what [`Spec::to_json`] wrote.
    ///
    /// # Errors
    /// [`Error::Json`] for text that is not a spec of a known version, and whatever [`Spec::validate`] finds.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let broken = |error: serde_json::Error| Error::Json(error.to_string());
        let versions: Versions = serde_json::from_str(text).map_err(broken)?;
        if versions.format != FORMAT {
            return Err(Error::Json(format!("expected \"format\": \"{FORMAT}\", got \"{}\"", versions.format)));
        }
        for (name, got, known) in
            [("version", versions.version, FORMAT_VERSION), ("stream_version", versions.stream_version, STREAM_VERSION)]
        {
            if got > known {
                let message =
                    format!("{name} {got} is newer than {known}, the newest this argand knows; please upgrade");
                return Err(Error::Json(message));
            }
            if got == 0 {
                return Err(Error::Json(format!("{name}: expected 1 to {known}, got 0")));
            }
        }
        let file: SpecFile = serde_json::from_str(text).map_err(broken)?;
        let mut method: Method = file.method.parse()?;
        match (file.craft_dim, method.craft) {
            (Some(_), None) => {
                return Err(Error::invalid("craft_dim", "absent, as the method is not a craft- one", file.method));
            }
            (Some(up_dim), Some(_)) => method.craft = Some(up_dim),
            (None, _) => {}
        }
        let spec = Self {
            kernel: Kernel { degree: file.degree, gamma: file.gamma, coef0: file.coef0 },
            inputs: file.input_dim,
            features: file.features,
            method,
            seed: file.seed,
            spherical: file.spherical,
        };
        spec.validate()?;
        Ok(spec)
    }
}

/// As [`Spec::to_json`], inside other JSON.
impl Serialize for Spec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: serde_json::Value = serde_json::from_str(&self.to_json()).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}

/// As [`Spec::from_json`], inside other JSON.
impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Self::from_json(&value.to_string()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_and_prints() {
        let mut names = 0;
        for craft in ["", "craft-"] {
            for shape in ["", "hierarchical-", "chain-"] {
                for field in ["", "ctr-", "complex-"] {
                    for base in ["gaussian", "rademacher", "product-srht", "tensor-srht", "tensor-sketch"] {
                        let name = format!("{craft}{shape}{field}{base}");
                        assert_eq!(name.parse::<Method>().unwrap().to_string(), name);
                        names += 1;
                    }
                }
            }
        }
        assert_eq!(names, 90);
    }

    #[test]
    fn unknown_names_are_errors_that_list_the_known() {
        for name in ["", "srht", "ctr-", "ctr-ctr-gaussian", "Gaussian", "gaussian ", "ctr-hierarchical-gaussian"] {
            let message = name.parse::<Method>().unwrap_err().to_string();
            assert!(message.contains("product-srht") && message.contains(&format!("\"{name}\"")), "{message}");
        }
    }

    #[test]
    fn json_is_readable_and_exact() {
        let mut spec = Spec::new(64, 3, 1024).with_seed(u64::MAX);
        spec.kernel.gamma = 0.1;
        let json = spec.to_json();
        assert_eq!(
            json,
            r#"{
  "format": "argand-spec",
  "version": 1,
  "stream_version": 1,
  "method": "ctr-product-srht",
  "degree": 3,
  "gamma": 0.1,
  "coef0": 0.0,
  "input_dim": 64,
  "features": 1024,
  "seed": 18446744073709551615
}
"#
        );
        assert_eq!(Spec::from_json(&json), Ok(spec));
        let distinct = Spec::distinct(&[3, 4], 8);
        assert_eq!(Spec::from_json(&distinct.to_json()), Ok(distinct));
    }

    #[test]
    fn bad_json_says_what_is_wrong() {
        let good = Spec::new(4, 2, 8).to_json();
        for (from, to, named) in [
            ("\"seed\": 0", "\"seed\": 0, \"colour\": 1", "colour"),
            ("\"seed\": 0", "\"seed\": -1", "-1"),
            ("\"seed\": 0", "\"seed\": 0, \"seed\": 1", "seed"),
            (",\n  \"seed\": 0", "", "seed"),
            ("\"version\": 1", "\"version\": 2", "upgrade"),
            ("\"version\": 1", "\"version\": 0", "version"),
            ("\"stream_version\": 1", "\"stream_version\": 9", "stream_version 9"),
            ("argand-spec", "something", "something"),
            ("\"degree\": 2", "\"degree\": 0", "degree"),
            ("\"degree\": 2", "\"degree\": 1e3", "1000"),
            ("\"features\": 8", "\"features\": 7", "even"),
            ("\"features\": 8", "\"features\": 0", "features"),
            ("\"features\": 8", "\"features\": 18446744073709551615", "features"),
            ("\"input_dim\": 4", "\"input_dim\": 0", "input_dim"),
            ("\"input_dim\": 4", "\"input_dim\": [4]", "input_dim"),
            ("\"input_dim\": 4", "\"input_dim\": []", "input_dim"),
            ("\"gamma\": 1.0", "\"gamma\": -1.0", "gamma"),
            ("\"coef0\": 0.0", "\"coef0\": -0.5", "coef0"),
            ("ctr-product-srht", "ctr-magic", "ctr-magic"),
            ("ctr-product-srht", "craft-complex-product-srht", "craft-"),
            ("\"degree\"", "\"craft_dim\": 64, \"degree\"", "craft_dim"),
            ("}", "", "EOF"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            let message = Spec::from_json(&text).unwrap_err().to_string();
            assert!(message.contains(named), "{to}: {message}");
        }
    }

    #[test]
    fn impossible_combinations() {
        let message = |spec: Spec| spec.validate().unwrap_err().to_string();
        let spec = Spec::new(4, 2, 8);
        let method = |name: &str| spec.clone().with_method(name.parse().unwrap());
        assert!(message(method("craft-complex-gaussian")).contains("craft-"));
        let mut small = method("craft-gaussian");
        small.method.craft = Some(4);
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
