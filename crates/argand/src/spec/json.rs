//! Specs as JSON files.

use serde::{Deserialize, Serialize};

use super::{InputDims, Kernel, Method, Polynomial, Spec};
use crate::error::{Argument, Error, FileFault};
use crate::fit::{Allocation, Fit, Landmarks};
use crate::rng::StreamVersion;
use crate::spherical::SphericalFit;

/// Newest version of the JSON format. Version 1 has polynomial kernels, and methods that fit nothing to rows; what it can say is
/// still written in it.
const FORMAT_VERSION: u32 = 2;
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel: Option<Kernel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    degree: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gamma: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    coef0: Option<f64>,
    input_dim: InputDims,
    features: usize,
    seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spherical: Option<SphericalFit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    maclaurin: Option<Allocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    landmarks: Option<Landmarks>,
}

impl SpecFile {
    /// The kernel: its parameters in the spec itself if it is polynomial, and under `kernel` otherwise.
    fn kernel(&mut self) -> Result<Kernel, Error> {
        let missing = |name: &str| Error::Spec(FileFault::Content(format!("missing field `{name}`")));
        match (self.kernel.take(), self.degree, self.gamma, self.coef0) {
            (None, degree, gamma, coef0) => Ok(Kernel::Polynomial(Polynomial {
                degree: degree.ok_or_else(|| missing("degree"))?,
                gamma: gamma.ok_or_else(|| missing("gamma"))?,
                coef0: coef0.ok_or_else(|| missing("coef0"))?,
            })),
            (Some(kernel), None, None, None) => Ok(kernel),
            (Some(kernel), ..) => {
                let what = format!("kernel: a {} kernel has no degree, gamma or coef0", kernel.name());
                Err(Error::Spec(FileFault::Content(what)))
            }
        }
    }

    /// What was fitted, of which there is at most one thing.
    fn fit(&mut self) -> Result<Option<Fit>, Error> {
        let fits = [
            self.spherical.take().map(Fit::Spherical),
            self.maclaurin.take().map(Fit::Maclaurin),
            self.landmarks.take().map(Fit::Nystrom),
        ];
        let mut fits = fits.into_iter().flatten();
        let fit = fits.next();
        if fits.next().is_some() {
            let what = "expected at most one of spherical, maclaurin and landmarks";
            return Err(Error::Spec(FileFault::Content(what.to_owned())));
        }
        Ok(fit)
    }
}

/// Read first, so that a newer file is recognised before its unknown fields are rejected.
#[derive(Deserialize)]
struct Versions {
    format: String,
    version: u32,
    stream_version: u32,
}

impl Spec {
    /// The spec as JSON, ending with a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        let polynomial = self.kernel.polynomial();
        let first = polynomial.is_some() && matches!(self.method, Method::Product(_) | Method::Spherical);
        let (mut spherical, mut maclaurin, mut landmarks) = (None, None, None);
        match self.fit.clone() {
            Some(Fit::Spherical(fit)) => spherical = Some(fit),
            Some(Fit::Maclaurin(fit)) => maclaurin = Some(fit),
            Some(Fit::Nystrom(fit)) => landmarks = Some(fit),
            None => {}
        }
        let file = SpecFile {
            format: FORMAT.to_owned(),
            version: if first { 1 } else { FORMAT_VERSION },
            stream_version: self.stream_version.number(),
            method: self.method.to_string(),
            craft_dim: self.method.craft(),
            kernel: polynomial.is_none().then(|| self.kernel.clone()),
            degree: polynomial.map(|kernel| kernel.degree),
            gamma: polynomial.map(|kernel| kernel.gamma),
            coef0: polynomial.map(|kernel| kernel.coef0),
            input_dim: self.inputs.clone(),
            features: self.features,
            seed: self.seed,
            spherical,
            maclaurin,
            landmarks,
        };
        // Strings, numbers and lists of numbers always serialise.
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }

    /// Reads and validates what [`Spec::to_json`] wrote.
    ///
    /// # Errors
    /// [`Error::Spec`] for text that is not a spec of a known version, and the errors of [`Spec::validate`].
    pub fn from_json(text: &str) -> Result<Self, Error> {
        if !text.trim_start().starts_with('{') {
            return Err(Error::Spec(FileFault::Foreign("spec")));
        }
        let broken = |error: serde_json::Error| Error::Spec(FileFault::caused_by(error));
        let versions: Versions = serde_json::from_str(text).map_err(broken)?;
        if versions.format != FORMAT {
            let what = format!("expected \"format\": \"{FORMAT}\", got \"{}\"", versions.format);
            return Err(Error::Spec(FileFault::Content(what)));
        }
        let fault = match versions.version {
            0 => Some(FileFault::Content(format!("version: expected 1 to {FORMAT_VERSION}, got 0"))),
            1..=FORMAT_VERSION => None,
            found => Some(FileFault::Newer { what: "version", found, newest: FORMAT_VERSION }),
        };
        fault.map_or(Ok(()), |fault| Err(Error::Spec(fault)))?;
        let stream_version = StreamVersion::from_number(versions.stream_version).map_err(Error::Spec)?;
        let mut file: SpecFile = serde_json::from_str(text).map_err(broken)?;
        let mut method: Method = file.method.parse()?;
        if let Some(up_dim) = file.craft_dim {
            if method.craft().is_none() {
                let expected = "no value, as the method is not a craft- one";
                return Err(Error::invalid(Argument::CraftDim, expected, file.method));
            }
            method = method.with_craft_dim(up_dim);
        }
        let spec = Self {
            kernel: file.kernel()?,
            fit: file.fit()?,
            inputs: file.input_dim,
            features: file.features,
            method,
            seed: file.seed,
            stream_version,
        };
        spec.validate()?;
        Ok(spec)
    }
}

/// As [`Spec::to_json`], nested in other JSON.
impl Serialize for Spec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: serde_json::Value = serde_json::from_str(&self.to_json()).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}

/// As [`Spec::from_json`], nested in other JSON.
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
    fn json_is_readable_and_exact() {
        let spec = Spec::polynomial(64).with_degree(3).with_gamma(0.1).with_features(1024).with_seed(u64::MAX);
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
        let distinct = Spec::tensor_product(&[3, 4]).with_features(8);
        assert_eq!(Spec::from_json(&distinct.to_json()), Ok(distinct));
    }

    #[test]
    fn other_kernels_have_a_name() {
        let json = Spec::gaussian(64, 0.1).to_json();
        assert_eq!(
            json,
            r#"{
  "format": "argand-spec",
  "version": 2,
  "stream_version": 1,
  "method": "sorf",
  "kernel": {
    "name": "gaussian",
    "length_scale": 0.1
  },
  "input_dim": 64,
  "features": 1024,
  "seed": 0
}
"#
        );
        let nystrom: Method = "nystrom".parse().unwrap();
        for kernel in [
            Kernel::Gaussian { length_scale: 0.1 },
            Kernel::Exponential { length_scale: 1e-3 },
            Kernel::Series { coefficients: vec![1.0, 0.0, 1.0 / 3.0] },
            Polynomial { degree: 2, gamma: 0.3, coef0: 0.0 }.into(),
        ] {
            let spec = Spec::polynomial(4).with_kernel(kernel).with_method(nystrom);
            assert_eq!(Spec::from_json(&spec.to_json()), Ok(spec));
        }
        for (from, to, named) in [
            ("0.1", "0.0", "length_scale"),
            ("gaussian", "gausian", "gausian"),
            ("\"length_scale\"", "\"scale\"", "scale"),
            ("\"seed\": 0", "\"seed\": 0, \"degree\": 2", "degree"),
            ("\"seed\": 0", "\"seed\": 0, \"maclaurin\": {\"linear\": true, \"terms\": []}", "maclaurin-"),
            ("sorf", "ctr-gaussian", "method"),
        ] {
            let message = Spec::from_json(&json.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(message.contains(named), "{to}: {message}");
        }
    }

    #[test]
    fn bad_json_says_what_is_wrong() {
        let good = Spec::polynomial(4).with_degree(2).with_features(8).to_json();
        for (from, to, named) in [
            ("\"seed\": 0", "\"seed\": 0, \"colour\": 1", "colour"),
            ("\"seed\": 0", "\"seed\": -1", "-1"),
            ("\"seed\": 0", "\"seed\": 0, \"seed\": 1", "seed"),
            (",\n  \"seed\": 0", "", "seed"),
            ("\"version\": 1", "\"version\": 3", "upgrade"),
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
            ("\"input_dim\": 4", "\"input_dim\": \"4\"", "input_dim: expected a number of columns, or a list"),
            ("\"gamma\": 1.0", "\"gamma\": -1.0", "gamma"),
            ("\"coef0\": 0.0", "\"coef0\": -0.5", "coef0"),
            ("ctr-product-srht", "ctr-magic", "ctr-magic"),
            ("ctr-product-srht", "craft-complex-product-srht", "craft-"),
            ("\"degree\"", "\"craft_dim\": 64, \"degree\"", "craft_dim"),
            ("}", "", "EOF"),
            (&good, "[]", "not an Argand spec file"),
            (&good, "", "not an Argand spec file"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            let message = Spec::from_json(&text).unwrap_err().to_string();
            assert!(message.contains(named), "{to}: {message}");
        }
    }
}
