//! A plan as JSON.

use serde::Serialize;

use super::{Candidate, Goal, Plan};
use crate::theory::Source;

#[derive(Serialize)]
struct File {
    target_error: Option<f64>,
    target_features: Option<usize>,
    time_budget: Option<f64>,
    rows: usize,
    recommended: Option<usize>,
    candidates: Vec<Line>,
    /// Method and reason.
    rejected: Vec<[String; 2]>,
    exact_features: Option<u64>,
    opposed_pairs: f64,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    spec: serde_json::Value,
    predicted_error: f64,
    standard_error: f64,
    median_error: f64,
    measured_sketches: Option<usize>,
    map_seconds: f64,
    feature_seconds: f64,
    fit_seconds: f64,
    total_seconds: f64,
    feature_seconds_per_million_rows: f64,
    fit_seconds_per_million_rows: f64,
    memory_bytes: u64,
    in_time: bool,
    validation: Option<Judgement>,
}

/// A [`Validation`](super::Validation).
#[derive(Serialize)]
struct Judgement {
    error: f64,
    standard_error: f64,
    training_rows: usize,
    rows: usize,
}

impl Line {
    fn of(candidate: &Candidate, rows: usize) -> Self {
        let per_million = 1e6 / rows as f64;
        Self {
            spec: serde_json::from_str(&candidate.spec.to_json()).unwrap_or_default(),
            predicted_error: candidate.error.relative,
            standard_error: candidate.error.standard_error,
            median_error: candidate.error.median,
            measured_sketches: match candidate.error.source {
                Source::ClosedForm => None,
                Source::MonteCarlo { sketches } => Some(sketches),
            },
            map_seconds: candidate.map_seconds,
            feature_seconds: candidate.feature_seconds,
            fit_seconds: candidate.fit_seconds,
            total_seconds: candidate.total_seconds(),
            feature_seconds_per_million_rows: candidate.feature_seconds * per_million,
            fit_seconds_per_million_rows: candidate.fit_seconds * per_million,
            memory_bytes: candidate.memory_bytes,
            in_time: candidate.in_time,
            validation: candidate.validation.map(|of| Judgement {
                error: of.error,
                standard_error: of.standard_error,
                training_rows: of.training_rows,
                rows: of.rows,
            }),
        }
    }
}

impl Plan {
    /// The plan as JSON, ending with a newline; specs are as [`Spec::to_json`](crate::Spec::to_json) writes them.
    #[must_use]
    pub fn to_json(&self) -> String {
        let (target_error, target_features) = match self.goal {
            Goal::Error(target) => (Some(target), None),
            Goal::Features(features) => (None, Some(features)),
            Goal::Time(_) => (None, None),
        };
        let file = File {
            target_error,
            target_features,
            time_budget: self.time_budget,
            rows: self.rows,
            recommended: self.recommended.ok(),
            candidates: self.candidates.iter().map(|candidate| Line::of(candidate, self.rows)).collect(),
            rejected: self.rejected.iter().map(|no| [no.method.to_string(), no.reason.to_string()]).collect(),
            exact_features: self.exact_features,
            opposed_pairs: self.opposed_pairs,
            notes: self.notes(),
        };
        // Numbers, strings and lists of them always serialise.
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::tests::{request, unit};
    use crate::plan::{Goal, plan};
    use crate::rows::Rows;
    use crate::spec::Spec;

    #[test]
    fn json_holds_the_whole_plan() {
        let x = unit(50, 3, 0.0);
        let inputs = [Rows::new(&x, 50, 3).unwrap().into()];
        let plan = plan(&request(2, 3, Goal::Features(64)), &inputs, |_| {}).unwrap();
        let json: serde_json::Value = serde_json::from_str(&plan.to_json()).unwrap();
        assert_eq!((json["target_error"].as_f64(), json["target_features"].as_u64()), (None, Some(64)));
        assert_eq!(json["candidates"].as_array().map(Vec::len), Some(plan.candidates.len()));
        for (line, candidate) in json["candidates"].as_array().unwrap().iter().zip(&plan.candidates) {
            assert_eq!(Spec::from_json(&line["spec"].to_string()).unwrap(), candidate.spec);
        }
        assert_eq!(json["recommended"], plan.recommended.unwrap());
        // srf has other kernels, there are too few rows for 64 landmarks, and 6 monomials do not need a sketch.
        assert_eq!((&json["rejected"][0][0], &json["rejected"][1][0]), (&"srf".into(), &"nystrom".into()));
        assert_eq!(
            (&json["exact_features"], &json["rows"], &json["notes"]),
            (&6.into(), &50.into(), &plan.notes().into())
        );
        assert_eq!((json["candidates"][0]["median_error"].as_f64(), &json["time_budget"]), (Some(0.0), &().into()));
        let parts = ["map_seconds", "feature_seconds", "fit_seconds"].map(|part| json["candidates"][0][part].as_f64());
        let total = parts.into_iter().flatten().sum::<f64>();
        assert!((json["candidates"][0]["total_seconds"].as_f64().unwrap() - total).abs() <= 1e-12 * total);
    }
}
