//! A plan as JSON.

use serde::Serialize;

use super::{Candidate, Goal, Plan};
use crate::theory::Source;

#[derive(Serialize)]
struct File {
    target_error: Option<f64>,
    target_features: Option<usize>,
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
    measured_sketches: Option<usize>,
    feature_seconds_per_million_rows: f64,
    fit_seconds_per_million_rows: f64,
    memory_bytes: u64,
    in_time: bool,
}

impl Line {
    fn of(candidate: &Candidate) -> Self {
        Self {
            spec: serde_json::from_str(&candidate.spec.to_json()).unwrap_or_default(),
            predicted_error: candidate.error.relative,
            standard_error: candidate.error.standard_error,
            measured_sketches: match candidate.error.source {
                Source::ClosedForm => None,
                Source::MonteCarlo { sketches } => Some(sketches),
            },
            feature_seconds_per_million_rows: candidate.feature_seconds,
            fit_seconds_per_million_rows: candidate.fit_seconds,
            memory_bytes: candidate.memory_bytes,
            in_time: candidate.in_time,
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
        };
        let file = File {
            target_error,
            target_features,
            recommended: self.recommended.ok(),
            candidates: self.candidates.iter().map(Line::of).collect(),
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
        // srf has other kernels, and 6 monomials do not need a sketch.
        assert_eq!(json["rejected"][0][0], "srf");
        assert_eq!(json["notes"][0], plan.remarks[0].to_string());
        assert_eq!(json["exact_features"], 6);
    }
}
