//! Our numbers beside those of the paper's authors.

use std::collections::BTreeMap;

use argand_learn::Scaling;

use super::grid::Grid;
use super::{KERNEL, Record, TEST};
use crate::items::{METHODS, mean_and_deviation};
use crate::outcome::{Agreement, Outcome};
use crate::reference::TheirMean;
use crate::{Context, Error};

/// The distance of two means, in standard errors of their difference. Both scatter alike, so their variances are pooled where the
/// authors' is known.
fn score(ours: &[f64], theirs: TheirMean) -> f64 {
    let (mean, deviation) = mean_and_deviation(ours);
    let (own, other) = (ours.len() as f64, theirs.seeds);
    let variance = match theirs.deviation {
        Some(known) if other > 1.0 => {
            ((own - 1.0) * deviation.powi(2) + (other - 1.0) * known.powi(2)) / (own + other - 2.0)
        }
        _ => deviation.powi(2),
    };
    (mean - theirs.mean) / (variance * (1.0 / own + 1.0 / other)).sqrt()
}

/// |z| up to this is agreement: of the 500 or so comparisons per dataset, one exceeds it by chance once in 30 such tables.
const FURTHEST: f64 = 4.0;

/// Our results beside the authors', method by method.
pub(super) fn compare(context: &Context<'_>, outcome: &mut Outcome, grid: &Grid<'_>) -> Result<(), Error> {
    let Some(reference) = &context.settings.reference else { return Ok(()) };
    let mut lines: BTreeMap<(&str, usize, &str), Vec<[f64; 3]>> = BTreeMap::new();
    for ((set, scaling, degree, features, method), records) in &grid.cells {
        // The authors' CIFAR-10 features came from another network.
        if *scaling != Scaling::NonNegative.to_string() || records.len() < 2 || set.starts_with("cifar") {
            continue;
        }
        let theirs = reference.find(set, *degree, *features, method.parse()?);
        let of = [KERNEL, TEST, |record: &Record| record.negative_log_likelihood];
        let mut scores = [f64::NAN; 3];
        for ((slot, theirs), of) in scores.iter_mut().zip(theirs).zip(of) {
            if let Some(theirs) = theirs {
                *slot = score(&records.iter().map(|record| of(record)).collect::<Vec<_>>(), theirs);
            }
        }
        if scores.iter().any(|score| score.is_finite()) {
            lines.entry((set, *degree, method)).or_default().push(scores);
        }
    }
    let order = |name: &str| METHODS.iter().position(|&method| method == name);
    let mut sorted: Vec<_> = lines.into_iter().collect();
    sorted.sort_by_key(|((set, degree, method), _)| (*set, *degree, order(method)));
    let text = |scores: &[[f64; 3]], at: usize| {
        let known: Vec<f64> = scores.iter().map(|score| score[at]).filter(|score| score.is_finite()).collect();
        let worst = known.iter().copied().fold(0.0, |worst: f64, z| if z.abs() > worst.abs() { z } else { worst });
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        if known.is_empty() { "–".to_owned() } else { format!("{mean:+.1} ({worst:+.1})") }
    };
    let rows: Vec<[String; 7]> = (sorted.iter())
        .map(|((set, degree, method), scores)| {
            let all = scores.iter().flatten().filter(|score| score.is_finite());
            let beyond = all.filter(|score| score.abs() > FURTHEST).count();
            let word = if beyond == 0 { "agrees".to_owned() } else { format!("{beyond} beyond {FURTHEST}") };
            [
                (*set).to_owned(),
                degree.to_string(),
                (*method).to_owned(),
                text(scores, 0),
                text(scores, 1),
                text(scores, 2),
                word,
            ]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let all: Vec<f64> =
        sorted.iter().flat_map(|(_, scores)| scores.iter().flatten()).copied().filter(|z| z.is_finite()).collect();
    let beyond = all.iter().filter(|z| z.abs() > FURTHEST).count();
    let worst = all.iter().fold(0.0, |worst: f64, z| worst.max(z.abs()));
    outcome.verdict(
        "The authors' own numbers (non-negative data).",
        format!("{} comparisons, {beyond} of them further apart than {FURTHEST} standard errors; the furthest is {worst:.1}", all.len()),
        Agreement::of(beyond == 0),
    );
    outcome.table(
        "Difference to the authors' means in standard errors: mean over D (and the furthest). Where they give one seed only, ours stands for its scatter.",
        ["set", "p", "method", "kernel error", "test error", "log-likelihood", "verdict"],
        rows,
    );
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn differences_are_in_standard_errors() {
        let theirs = TheirMean { seeds: 4.0, mean: 0.1, deviation: Some(0.2) };
        let z = score(&[0.1, 0.3], theirs);
        // Variances .02 of two seeds and .04 of four, pooled.
        let pooled = (0.02 + 3.0 * 0.04) / 4.0;
        assert!((z - 0.1 / (pooled * (0.5 + 0.25_f64)).sqrt()).abs() < 1e-12, "{z}");
        // A single seed of theirs scatters like ours.
        let z = score(&[0.1, 0.3], TheirMean { seeds: 1.0, deviation: None, ..theirs });
        assert!((z - 0.1 / (0.02_f64 * 1.5).sqrt()).abs() < 1e-12, "{z}");
    }
}
