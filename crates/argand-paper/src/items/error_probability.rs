//! How often a norm is off by a quarter, over the number of features.

use argand::{FeatureMap, Method, Polynomial, Rows, Spec};
use argand_figure::{Figure, Panel, Scale, Series, key};
use serde::{Deserialize, Serialize};

use crate::outcome::{Agreement, Outcome};
use crate::units::{self, Sharing};
use crate::{Context, Error, or_usual};

pub(super) const NAME: &str = "error-probability";
pub(super) const TITLE: &str = "Probability of a large error";

const DIM: usize = 64;
const DEGREE: usize = 2;
const EPSILON: f64 = 0.25;
/// Draws per unit of work.
const DRAWS: u64 = 2000;
const METHODS: [&str; 5] = ["rademacher", "ctr-rademacher", "product-srht", "ctr-product-srht", "tensor-sketch"];
/// The vectors, by the ratio r of their largest entry to their norm.
const VECTORS: [&str; 2] = ["r = 0.58", "r = 0.125"];

/// (√d, √d, 1, …, 1) and (1, …, 1).
fn vectors() -> [Vec<f64>; 2] {
    let mut peaked = vec![1.0; DIM];
    peaked[..2].fill((DIM as f64).sqrt());
    [peaked, vec![1.0; DIM]]
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit {
    method: String,
    features: usize,
    first_seed: u64,
    draws: u64,
}

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    vector: String,
    method: String,
    #[serde(rename = "D")]
    features: usize,
    draws: u64,
    large_errors: u64,
    probability: f64,
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let draws = context.seeds(4_000, 30_000);
    let features = or_usual(
        &context.settings.features,
        context.size(&[64, 128, 256, 512], &[64, 128, 256, 512, 1024, 2048, 4096]),
    );
    let units: Vec<Unit> = (features.iter())
        .flat_map(|&features| METHODS.map(|method| (features, method)))
        .flat_map(|(features, method)| {
            units::parts(draws, DRAWS).map(move |(first_seed, draws)| Unit {
                method: method.to_owned(),
                features,
                first_seed,
                draws,
            })
        })
        .collect();
    let results = units::run(context, NAME, &units, Sharing::Parallel, |unit| unit.features as f64, measure)?;
    let mut records = Vec::new();
    for (index, vector) in VECTORS.iter().enumerate() {
        for method in METHODS {
            for &features in &features {
                let of_cell =
                    units.iter().zip(&results).filter(|(unit, _)| (unit.features, &*unit.method) == (features, method));
                let (mut draws, mut large_errors) = (0, 0);
                for (unit, counts) in of_cell {
                    if let Some(counts) = counts {
                        draws += unit.draws;
                        large_errors += counts[index];
                    }
                }
                if draws > 0 {
                    records.push(Record {
                        vector: (*vector).to_owned(),
                        method: method.to_owned(),
                        features,
                        draws,
                        large_errors,
                        probability: large_errors as f64 / draws as f64,
                    });
                }
            }
        }
    }
    present(context, &context.recorded(NAME, &records)?)
}

/// Draws with a large error, for either vector.
fn measure(unit: &Unit) -> Result<[u64; 2], Error> {
    let method: Method = unit.method.parse()?;
    let vectors = vectors();
    let rows = vectors.concat();
    let mut counts = [0; 2];
    for seed in unit.first_seed..unit.first_seed + unit.draws {
        let mut spec =
            Spec::polynomial(DIM).with_degree(DEGREE).with_features(unit.features).with_method(method).with_seed(seed);
        spec.kernel = Polynomial { degree: DEGREE, gamma: 1.0, coef0: 0.0 }.into();
        let features = spec.sketch::<f64>()?.transform(&[Rows::new(&rows, 2, DIM)?.into()])?;
        for ((count, vector), features) in counts.iter_mut().zip(&vectors).zip(features.chunks(unit.features)) {
            let norm = vector.iter().map(|value| value * value).sum::<f64>().powi(2);
            let sketched: f64 = features.iter().map(|value| value * value).sum();
            *count += u64::from((sketched - norm).abs() >= EPSILON * norm);
        }
    }
    Ok(counts)
}

fn present(context: &Context<'_>, records: &[Record]) -> Result<Outcome, Error> {
    let draws = records.first().map_or(0, |record| record.draws);
    let about = format!(
        "Share of {draws} draws of S for which ‖S x^⊗{DEGREE}‖² is off by a quarter or more, for d = {DIM} and p = {DEGREE}. First \
         x = (√d, √d, 1, …, 1), then x = (1, …, 1). A share of zero cannot be drawn on a logarithmic axis."
    );
    let mut outcome = Outcome::new(NAME, TITLE, about);
    let panels = VECTORS.iter().zip(["Two large entries", "Equal entries"]).map(|(&vector, entries)| {
        let series = METHODS.iter().map(|&name| {
            let shown = records.iter().filter(|record| record.vector == vector && record.method == name);
            Series::of_method(name, shown.map(|record| (record.features as f64, record.probability)))
        });
        Panel::new(
            &format!("{entries} ({vector})"),
            ["features D", "share of draws that are off by a quarter or more"],
            [Scale::Doubling, Scale::Logarithmic],
            series.collect(),
        )
    });
    let panels: Vec<Panel> = panels.collect();
    outcome.draw(
        &context.settings.out,
        &Figure {
            name: NAME.to_owned(),
            caption: "Empirical probability of a relative error of a quarter or more.".to_owned(),
            columns: 2,
            note: key(panels.iter().flat_map(|panel| &panel.series)) + " A line ends where no draw is off.",
            panels,
        },
    )?;
    // The largest D at which the best of ours still shows errors is the most telling.
    let find = |vector: &str, method: &str, features: usize| {
        let found =
            |record: &&Record| record.vector == vector && record.method == method && record.features == features;
        records.iter().find(found)
    };
    let mut features: Vec<usize> = records.iter().map(|record| record.features).collect();
    features.sort_unstable();
    features.dedup();
    let ours = &METHODS[..4];
    let text = |vector: &str, features: usize| {
        let of = |&method: &&str| Some(format!("{method} {:.2e}", find(vector, method, features)?.probability));
        format!("{vector}, D = {features}: {}", METHODS.iter().filter_map(of).collect::<Vec<_>>().join(", "))
    };
    // The most telling number of features. Where ours show no error, count one as an upper bound.
    let factors = features.iter().filter_map(|&features| {
        let tensor = find(VECTORS[0], "tensor-sketch", features)?;
        let worst = ours.iter().filter_map(|method| find(VECTORS[0], method, features)?.large_errors.into()).max()?;
        Some((tensor.large_errors as f64 / worst.max(1) as f64, worst, features))
    });
    if let Some((factor, worst, features)) = factors.max_by(|a, b| a.0.total_cmp(&b.0)) {
        let found = if worst == 0 { "times or more, as no other fails" } else { "times" };
        outcome.verdict(
            "For a vector with large entries (r = 0.58) TensorSketch fails two orders of magnitude more often than the others at large D \
             (Fig. 4 left).",
            format!("{}: {factor:.0} {found}", text(VECTORS[0], features)),
            // Few draws show too little.
            if factor >= 100.0 { Agreement::Agrees } else { Agreement::Open },
        );
    }
    let shown = features.iter().rev().find(|&&features| {
        ours.iter().filter_map(|method| find(VECTORS[1], method, features)).all(|record| record.large_errors >= 20)
    });
    if let Some(&shown) = shown {
        let tensor = find(VECTORS[1], "tensor-sketch", shown).map_or(f64::NAN, |record| record.probability);
        let worst = ours.iter().filter_map(|method| find(VECTORS[1], method, shown)).map(|record| record.probability);
        let worst = worst.fold(0.0, f64::max);
        outcome.verdict(
            "For a vector with equal entries (r = 0.125) TensorSketch is no worse than the others by orders of magnitude (Fig. 4 right).",
            format!("tested as less than 10 times the worst of the others, at {}", text(VECTORS[1], shown)),
            Agreement::of(tensor < 10.0 * worst),
        );
    }
    Ok(outcome)
}
