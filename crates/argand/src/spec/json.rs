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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
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

/// The checksum of a JSON object, whatever its layout: of all its fields but `checksum`. `None` for other text.
///
/// ```
/// let text = r#"{"b": [1, 0.5], "a": null}"#;
/// assert_eq!(argand::json_checksum(text), argand::json_checksum(r#"{"a":null,"b":[1,0.5],"checksum":"any"}"#));
/// ```
#[must_use]
pub fn json_checksum(text: &str) -> Option<String> {
    let mut file: serde_json::Value = serde_json::from_str(text).ok()?;
    file.as_object_mut()?.remove("checksum");
    Some(format!("crc32 {:08x}", crc32fast::hash(file.to_string().as_bytes())))
}

/// Longer than any spec, also with thousands of landmarks: a wrong file is not read to its end.
const LONGEST: usize = 64 << 20;

/// Read first, so that a newer file is recognised before its unknown fields are rejected.
#[derive(Deserialize)]
struct Versions {
    format: String,
    version: u32,
    stream_version: u32,
}

impl Spec {
    /// The spec as JSON, with a checksum and ending with a newline.
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
        let mut file = SpecFile {
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
            checksum: None,
        };
        // Strings, numbers and lists of numbers always serialise.
        let json = |file: &SpecFile| serde_json::to_string_pretty(file).unwrap_or_default() + "\n";
        file.checksum = json_checksum(&json(&file));
        json(&file)
    }

    /// Reads and validates what [`Spec::to_json`] wrote. The checksum may be missing, as in a spec written by hand;
    /// [`Spec::has_checksum`] tells.
    ///
    /// # Errors
    /// [`Error::Spec`] for text that is not a spec of a known version or does not match its checksum, and the errors of [`Spec::validate`].
    pub fn from_json(text: &str) -> Result<Self, Error> {
        if !text.trim_start().starts_with('{') {
            return Err(Error::Spec(FileFault::Foreign("spec")));
        }
        if text.len() > LONGEST {
            return Err(Error::Spec(FileFault::Content(format!("longer than {LONGEST} bytes"))));
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
        if file.checksum.is_some() && file.checksum != json_checksum(text) {
            return Err(Error::Spec(FileFault::Checksum));
        }
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

    /// Whether [`Spec::from_json`] can notice changes of this text.
    #[must_use]
    pub fn has_checksum(text: &str) -> bool {
        let value = serde_json::from_str::<serde_json::Value>(text);
        value.is_ok_and(|value| value.get("checksum").is_some())
    }
}

/// As [`Spec::to_json`], nested in other JSON, which has a checksum of its own or needs none.
impl Serialize for Spec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut value: serde_json::Value = serde_json::from_str(&self.to_json()).map_err(serde::ser::Error::custom)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("checksum");
        }
        value.serialize(serializer)
    }
}

/// As [`Spec::from_json`], nested in other JSON.
impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Self::from_json(text.get()).map_err(serde::de::Error::custom)
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
  "seed": 18446744073709551615,
  "checksum": "crc32 a97741de"
}
"#
        );
        assert_eq!(Spec::from_json(&json), Ok(spec));
        let distinct = Spec::tensor_product(&[3, 4]).with_features(8);
        assert_eq!(Spec::from_json(&distinct.to_json()), Ok(distinct));
    }

    /// Without the checksum.
    fn by_hand(json: &str) -> String {
        let (start, _) = json.split_once(",\n  \"checksum\"").unwrap();
        format!("{start}\n}}\n")
    }

    /// Every changed byte of a saved spec is an error, or changes nothing but the layout.
    #[test]
    fn every_flipped_bit_and_every_cut_of_a_spec_is_noticed() {
        let spec = Spec::polynomial(64).with_degree(3).with_gamma(0.1).with_features(1024).with_seed(12_345);
        let json = spec.to_json();
        assert!(Spec::has_checksum(&json));
        let mut seen = 0;
        for at in 0..json.len() {
            for bit in 0..8 {
                let mut bytes = json.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let Ok(text) = String::from_utf8(bytes) else { continue };
                seen += 1;
                match Spec::from_json(&text) {
                    Err(_) => {}
                    Ok(read) => assert_eq!(read, spec, "byte {at}, bit {bit}"),
                }
            }
            let cut = Spec::from_json(&json[..at]);
            assert!(cut.is_err() || cut == Ok(spec.clone()), "cut at {at}");
        }
        assert!(seen > 7 * json.len() / 2, "{seen}");
        let changed = Spec::from_json(&json.replace("12345", "12344"));
        assert_eq!(changed, Err(Error::Spec(FileFault::Checksum)));
        // Other layouts of the same data, and specs written by hand.
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(Spec::from_json(&value.to_string()), Ok(spec.clone()));
        assert!(!Spec::has_checksum(&by_hand(&json)));
        assert_eq!(Spec::from_json(&by_hand(&json)), Ok(spec));
    }

    #[test]
    fn other_kernels_have_a_name() {
        let json = by_hand(&Spec::gaussian(64, 0.1).to_json());
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
        let good = by_hand(&Spec::polynomial(4).with_degree(2).with_features(8).to_json());
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
