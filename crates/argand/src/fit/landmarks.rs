//! The landmarks of Nyström's method.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Fitting, check_rows};
use crate::error::{Argument, Error};
use crate::rng::{Purpose, Stream};
use crate::rows::Input;
use crate::scalar::{Scalar, dot};
use crate::spec::{Kernel, Spec};

/// How landmarks are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Selection {
    /// Rows at random (Williams and Seeger 2001).
    Uniform,
    /// Rows at random, in proportion to their ridge leverage scores, which are estimated from rows at random (Musco and Musco 2017).
    Leverage,
    /// By randomly pivoted Cholesky: every row in proportion to what the rows before it leave of its kernel (Chen et al. 2023).
    Pivoted,
}

impl Selection {
    const ALL: [(&'static str, Self); 3] =
        [("uniform", Self::Uniform), ("leverage", Self::Leverage), ("pivoted", Self::Pivoted)];

    /// Its name: `uniform`, `leverage` or `pivoted`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, listed)| *listed == self).map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Selection {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|(listed, _)| *listed == name);
        found
            .map(|(_, selection)| *selection)
            .ok_or_else(|| Error::invalid(Argument::Selection, "uniform, leverage or pivoted", format!("\"{name}\"")))
    }
}

/// Rows whose kernels with a row x are its features, once whitened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Landmarks {
    columns: usize,
    /// Row by row.
    values: Arc<Vec<f64>>,
}

/// In JSON: the numbers as little-endian bytes in base 64.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LandmarksFile {
    columns: usize,
    dtype: String,
    values: String,
}

impl Serialize for Landmarks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[allow(clippy::cast_possible_truncation, reason = "the point is whether anything is lost")]
        let single = |value: f64| value as f32;
        let exact = self.values.iter().all(|&value| f64::from(single(value)) == value);
        let bytes: Vec<u8> = if exact {
            self.values.iter().flat_map(|&value| single(value).to_le_bytes()).collect()
        } else {
            self.values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        let dtype = if exact { "f32" } else { "f64" }.to_owned();
        LandmarksFile { columns: self.columns, dtype, values: STANDARD.encode(bytes) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Landmarks {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let LandmarksFile { columns, dtype, values } = LandmarksFile::deserialize(deserializer)?;
        let bytes = STANDARD.decode(values).map_err(|error| D::Error::custom(format!("landmarks: {error}")))?;
        let values: Vec<f64> = match dtype.as_str() {
            "f32" => bytes.as_chunks().0.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes))).collect(),
            "f64" => bytes.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect(),
            other => return Err(D::Error::custom(format!("landmarks: expected dtype f32 or f64, got \"{other}\""))),
        };
        let size = if dtype == "f32" { 4 } else { 8 };
        if columns == 0 || !bytes.len().is_multiple_of(size) || !values.len().is_multiple_of(columns) {
            return Err(D::Error::custom(format!("landmarks: expected whole rows of {columns} columns")));
        }
        Ok(Self { columns, values: Arc::new(values) })
    }
}

/// The most candidates for landmarks that are looked at, for each landmark; there are at least [`FEWEST_CANDIDATES`].
const CANDIDATES: usize = 4;
const FEWEST_CANDIDATES: usize = 4096;

/// The most rows from which leverage scores are estimated.
const PILOT: usize = 1024;

impl Landmarks {
    /// From rows, one after the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are not whole rows.
    pub fn new(values: Vec<f64>, columns: usize) -> Result<Self, Error> {
        if columns == 0 || !values.len().is_multiple_of(columns) {
            return Err(Error::invalid(Argument::Landmarks, format!("whole rows of {columns} columns"), values.len()));
        }
        Ok(Self { columns, values: Arc::new(values) })
    }

    /// The number of landmarks.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// One landmark.
    #[must_use]
    pub fn row(&self, index: usize) -> &[f64] {
        &self.values[index * self.columns..][..self.columns]
    }

    /// Checks that they belong to a spec.
    pub(crate) fn validate(&self, spec: &Spec) -> Result<(), Error> {
        let (features, dim) = (spec.features, spec.inputs.as_slice()[0]);
        if (self.rows(), self.columns) != (features, dim) {
            let expected = format!("{features} rows of {dim} columns");
            return Err(Error::invalid(Argument::Landmarks, expected, format!("{} of {}", self.rows(), self.columns)));
        }
        if let Some(value) = self.values.iter().find(|value| !value.is_finite()) {
            return Err(Error::invalid(Argument::Landmarks, "finite numbers", value));
        }
        let mut seen = HashSet::with_capacity(features);
        if let Some(row) = (0..features).find(|&row| !seen.insert(bits(self.row(row)))) {
            return Err(Error::invalid(Argument::Landmarks, "different rows", format!("row {row} a second time")));
        }
        Ok(())
    }

    /// Selects as many rows as the spec has features.
    ///
    /// # Cost
    /// Uniform: none. Leverage: n·d·s + n·s² for n candidates and a pilot of s = min(D, 1024) rows. Pivoted: n·d·D + n·D². Candidates are
    /// min(n, max(4D, 4096)) rows at random.
    pub(super) fn select<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>], fitting: &Fitting) -> Result<Self, Error> {
        let Fitting { selection, fewer, .. } = *fitting;
        let mut wanted = spec.features;
        let total = check_rows(spec, inputs, 1, "to choose landmarks from")?;
        let too_many = |found: usize| {
            let expected = format!("at most the {found} different rows of the input as landmarks");
            Error::invalid(Argument::Features, expected, spec.features)
        };
        if wanted > total && !fewer {
            return Err(too_many(total));
        }
        // Different rows in random order; as many as are needed.
        let most = if selection == Selection::Uniform {
            wanted
        } else {
            wanted.saturating_mul(CANDIDATES).max(FEWEST_CANDIDATES)
        };
        let mut stream = Stream::of_version(spec.stream_version, spec.seed, Purpose::Landmarks, 0, 0);
        let mut order: Vec<usize> = (0..total).collect();
        let mut seen = HashSet::new();
        let mut candidates: Vec<f64> = Vec::new();
        for position in 0..total {
            let left = u32::try_from(total - position).unwrap_or(u32::MAX);
            order.swap(position, position + stream.below(left) as usize);
            let row = row_of(&inputs[0], order[position]);
            if seen.insert(bits(&row)) {
                candidates.extend(row);
            }
            if seen.len() == most {
                break;
            }
        }
        if seen.len() < wanted && !fewer {
            return Err(too_many(seen.len()));
        }
        wanted = wanted.min(seen.len());
        let columns = spec.inputs.as_slice()[0];
        let table = Candidates::new(&spec.kernel, candidates, columns);
        let chosen = match selection {
            Selection::Uniform => (0..wanted).collect(),
            Selection::Leverage => table.by_leverage(wanted, &mut stream),
            Selection::Pivoted => table.by_pivots(wanted, &mut stream),
        };
        let values = chosen.iter().flat_map(|&row| table.row(row)).copied().collect();
        Self::new(values, columns)
    }
}

/// The bits of a row; 0 and −0 are the same number.
fn bits(row: &[f64]) -> Vec<u64> {
    row.iter().map(|value| (value + 0.0).to_bits()).collect()
}

/// One row in double precision.
fn row_of<T: Scalar>(input: &Input<'_, T>, row: usize) -> Vec<f64> {
    let mut values = vec![0.0; input.columns()];
    match input {
        Input::Dense(rows) => values.iter_mut().zip(rows.row(row)).for_each(|(to, value)| *to = value.to_f64()),
        Input::Sparse(rows) => rows.row(row).for_each(|(column, value)| values[column] += value.to_f64()),
    }
    values
}

/// Different rows to choose landmarks from.
struct Candidates<'a> {
    kernel: &'a Kernel,
    values: Vec<f64>,
    columns: usize,
    norms: Vec<f64>,
}

impl<'a> Candidates<'a> {
    fn new(kernel: &'a Kernel, values: Vec<f64>, columns: usize) -> Self {
        let norms = values.chunks_exact(columns).map(|row| dot(row, row)).collect();
        Self { kernel, values, columns, norms }
    }

    fn rows(&self) -> usize {
        self.norms.len()
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..][..self.columns]
    }

    fn kernel(&self, i: usize, j: usize) -> f64 {
        self.kernel.value(dot(self.row(i), self.row(j)), self.norms[i] + self.norms[j])
    }

    fn diagonal(&self) -> Vec<f64> {
        (0..self.rows()).map(|row| self.kernel(row, row)).collect()
    }

    /// Appends column `pivot` of the kernel matrix, less what the factors before it explain, to the factor of every row.
    fn append(&self, pivot: usize, factors: &mut [Vec<f64>], residual: &mut [f64], ridge: f64) {
        let own = factors[pivot].clone();
        let root = (residual[pivot] + ridge).sqrt();
        factors.par_iter_mut().zip(residual.par_iter_mut()).enumerate().for_each(|(row, (factor, residual))| {
            let entry = (self.kernel(row, pivot) - dot(factor, &own)) / root;
            factor.push(entry);
            *residual = (*residual - entry * entry).max(0.0);
        });
    }

    /// Randomly pivoted Cholesky.
    fn by_pivots(&self, wanted: usize, stream: &mut Stream) -> Vec<usize> {
        let mut residual = self.diagonal();
        let mut factors: Vec<Vec<f64>> = vec![Vec::with_capacity(wanted); self.rows()];
        let smallest = 1e-12 * residual.iter().copied().fold(0.0, f64::max);
        let mut chosen = Vec::with_capacity(wanted);
        let mut taken = vec![false; self.rows()];
        while chosen.len() < wanted {
            let Some(pivot) = draw(&residual, smallest, stream) else { break };
            chosen.push(pivot);
            taken[pivot] = true;
            self.append(pivot, &mut factors, &mut residual, 0.0);
            residual[pivot] = 0.0;
        }
        // All are explained: any of the others will do.
        let others = (0..self.rows()).filter(|&row| !taken[row]).take(wanted - chosen.len());
        chosen.extend(others);
        chosen
    }

    /// Without replacement, in proportion to (k(x, x) − k(x, S)(K_SS + λI)⁻¹k(S, x))/λ for the first rows S.
    fn by_leverage(&self, wanted: usize, stream: &mut Stream) -> Vec<usize> {
        let pilot = wanted.min(PILOT).min(self.rows());
        let mut residual = self.diagonal();
        let mut factors: Vec<Vec<f64>> = vec![Vec::with_capacity(pilot); self.rows()];
        // λ: what a landmark may leave unexplained of an average row.
        let ridge = 1e-3 * residual.iter().sum::<f64>() / self.rows() as f64;
        for pivot in 0..pilot {
            // The factor of K_SS + λI: the pivot's own entry includes λ, which its residual must not.
            self.append(pivot, &mut factors, &mut residual, ridge);
        }
        // A leverage score is at most 1; the estimate may be larger, and must not be 0.
        let mut scores: Vec<f64> = residual.iter().map(|left| (left / ridge).clamp(1e-9, 1.0)).collect();
        let mut chosen = Vec::with_capacity(wanted);
        while chosen.len() < wanted {
            let Some(row) = draw(&scores, 0.0, stream) else { break };
            chosen.push(row);
            scores[row] = 0.0;
        }
        chosen
    }
}

/// An index in proportion to weights; `None` if none is larger than `smallest`.
fn draw(weights: &[f64], smallest: f64, stream: &mut Stream) -> Option<usize> {
    let total: f64 = weights.iter().filter(|weight| **weight > smallest).sum();
    let mut left = stream.uniform() * total;
    let mut last = None;
    for (index, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > smallest) {
        last = Some(index);
        left -= weight;
        if left <= 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Fit;
    use crate::map::FeatureMap;
    use crate::rows::Rows;
    use crate::theory;

    /// Three dense clusters and some outliers.
    fn data() -> Vec<f64> {
        let mut stream = Stream::new(5, Purpose::Sample, 2, 0);
        let centre = |row: usize| if row < 290 { (row % 3) as f64 } else { 3.0 + row as f64 / 50.0 };
        (0..300).flat_map(|row| [centre(row), -centre(row)]).map(|centre| centre + 0.05 * stream.uniform()).collect()
    }

    fn spec(features: usize) -> Spec {
        Spec::gaussian(2, 0.5).with_features(features).with_method("nystrom".parse().unwrap())
    }

    #[test]
    fn selections_that_look_are_better_on_clusters() {
        let x = data();
        let inputs = [Rows::new(&x, 300, 2).unwrap().into()];
        let error = |selection: Selection| {
            let fitting = Fitting::default().with_selection(selection);
            let errors = (0..20).map(|seed| {
                let fitted = spec(20).with_seed(seed).fit_to(&inputs, &fitting).unwrap();
                let features = fitted.sketch::<f64>().unwrap().transform(&inputs).unwrap();
                theory::kernel_error(&fitted, &inputs, Rows::new(&features, 300, 20).unwrap()).unwrap()
            });
            errors.sum::<f64>() / 20.0
        };
        let [uniform, leverage, pivoted] = Selection::ALL.map(|(_, selection)| error(selection));
        assert!(leverage < 0.9 * uniform && pivoted < 0.5 * uniform, "{uniform} {leverage} {pivoted}");
    }

    #[test]
    fn landmarks_are_saved_exactly() {
        let x = data();
        for x in [x.clone(), x.iter().map(|&x| f64::from(f32::from_f64(x))).collect::<Vec<_>>()] {
            let fitted = spec(30).fit_to(&[Rows::new(&x, 300, 2).unwrap().into()], &Fitting::default()).unwrap();
            let json = fitted.to_json();
            assert_eq!(Spec::from_json(&json).unwrap(), fitted);
            // As if written by hand: without its checksum.
            let json = format!("{}\n}}", json.split_once(",\n  \"checksum\"").unwrap().0);
            for (from, to) in [
                ("\"columns\": 2", "\"columns\": 0"),
                ("\"columns\": 2", "\"columns\": 3"),
                ("f32", "f16"),
                ("f64", "f16"),
            ] {
                if json.contains(from) {
                    assert!(Spec::from_json(&json.replace(from, to)).unwrap_err().to_string().contains("landmarks"));
                }
            }
        }
    }

    #[test]
    fn too_many_or_equal_landmarks_are_errors() {
        let x = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, -0.0, 1.0];
        let inputs = [Rows::new(&x, 5, 2).unwrap().into()];
        for selection in Selection::ALL.map(|(_, selection)| selection) {
            let fitting = Fitting::default().with_selection(selection);
            let fitted = spec(3).fit_to(&inputs, &fitting).unwrap();
            assert!(fitted.sketch::<f64>().is_ok());
            for (features, named) in [(6, "at most the 5"), (4, "at most the 3 different rows")] {
                let message = spec(features).fit_to(&inputs, &fitting).unwrap_err().to_string();
                assert!(message.starts_with("features: ") && message.contains(named), "{message}");
                assert_eq!(spec(features).fit_to(&inputs, &fitting.or_fewer()).unwrap().features, 3);
            }
        }
        let same = Landmarks::new(vec![1.0, 2.0, 1.0, 2.0], 2).unwrap();
        let message = spec(2).with_fit(Fit::Nystrom(same)).validate().unwrap_err().to_string();
        assert!(message.contains("different rows, got row 1"), "{message}");
        assert!(Landmarks::new(vec![1.0; 3], 2).is_err());
        assert!("random".parse::<Selection>().unwrap_err().to_string().starts_with("selection"));
    }
}
