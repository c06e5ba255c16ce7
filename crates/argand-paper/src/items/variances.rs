//! The closed forms of variances against simulation.

use argand::theory::variance::variance;
use argand::{FeatureMap, Field, Method, Polynomial, Rows, Spec};
use argand_figure::{Figure, Mark, Panel, Scale, Series, Stroke, Style};
use serde::{Deserialize, Serialize};

use super::methods;
use crate::outcome::{Agreement, Outcome};
use crate::units::{self, Sharing};
use crate::{Context, Error};

pub(super) const NAME: &str = "variances";
pub(super) const TITLE: &str = "Variances and pseudo-variances";

const DIM: usize = 16;
const DEGREES: [usize; 3] = [1, 2, 3];
/// Fewer and more features than dimensions.
const FEATURES: [usize; 2] = [12, 48];
/// Draws per unit of work.
const DRAWS: u64 = 2000;
const METHODS: [&str; 9] = [
    "gaussian",
    "complex-gaussian",
    "ctr-gaussian",
    "rademacher",
    "complex-rademacher",
    "ctr-rademacher",
    "product-srht",
    "complex-product-srht",
    "ctr-product-srht",
];
const PAIRS: [&str; 5] = ["non-negative", "parallel", "opposite signs", "orthogonal", "sparse"];

/// The two rows of every pair, in the order of `PAIRS`. The third has a < 0.
fn pairs() -> Vec<[Vec<f64>; 2]> {
    let row = |of: &dyn Fn(usize) -> f64| -> Vec<f64> { (0..DIM).map(of).collect() };
    let wave = row(&|i| 0.2 + ((i * 7 % 11) as f64) / 10.0);
    let alternating = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    vec![
        [wave.clone(), row(&|i| 0.1 + ((i * 5 % 13) as f64) / 12.0)],
        [wave.clone(), wave.iter().map(|value| value * 0.8).collect()],
        [wave.clone(), row(&|i| alternating(i) * wave[i] + 0.1)],
        [row(&|i| alternating(i)), row(&|_| 0.7)],
        [row(&|i| f64::from(u8::from(i < 2))), row(&|i| f64::from(u8::from(i == 0 || i == 5)) * 1.5)],
    ]
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit {
    method: String,
    degree: usize,
    features: usize,
    first_seed: u64,
    draws: u64,
}

/// Sums over draws, for one pair: of |k − μ|², of its square, and the same of Re (k − μ)².
type Sums = [f64; 4];

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    method: String,
    pair: String,
    p: usize,
    #[serde(rename = "D")]
    features: usize,
    draws: u64,
    variance: f64,
    simulated_variance: f64,
    variance_z: f64,
    pseudo_variance: f64,
    simulated_pseudo_variance: f64,
    pseudo_variance_z: f64,
}

fn spec(method: Method, degree: usize, features: usize, seed: u64) -> Spec {
    let mut spec =
        Spec::polynomial(DIM).with_degree(degree).with_features(features).with_method(method).with_seed(seed);
    spec.kernel = Polynomial { degree, gamma: 1.0, coef0: 0.0 }.into();
    spec
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let draws = context.seeds(4_000, 40_000);
    let mut units: Vec<Unit> = Vec::new();
    for features in FEATURES {
        for degree in DEGREES {
            for method in METHODS {
                units.extend(units::parts(draws, DRAWS).map(|(first_seed, draws)| Unit {
                    method: method.to_owned(),
                    degree,
                    features,
                    first_seed,
                    draws,
                }));
            }
        }
    }
    let cost = |unit: &Unit| (unit.degree * unit.features) as f64;
    let results = units::run(context, NAME, &units, Sharing::Parallel, cost, measure)?;
    let mut records = Vec::new();
    for same in (0..units.len()).collect::<Vec<_>>().chunk_by(|&a, &b| {
        let cell = |unit: &Unit| (unit.method.clone(), unit.degree, unit.features);
        cell(&units[a]) == cell(&units[b])
    }) {
        let finished: Vec<(u64, &Vec<Sums>)> =
            same.iter().filter_map(|&at| Some((units[at].draws, results[at].as_ref()?))).collect();
        let draws: u64 = finished.iter().map(|(draws, _)| draws).sum();
        if draws == 0 {
            continue;
        }
        let unit = &units[same[0]];
        let spec = spec(unit.method.parse()?, unit.degree, unit.features, 0);
        for (index, (pair, name)) in pairs().iter().zip(PAIRS).enumerate() {
            let Some(theory) = variance(&spec, &[&pair[0]], &[&pair[1]])? else { continue };
            let sum = |at: usize| finished.iter().map(|(_, sums)| sums[index][at]).sum::<f64>() / draws as f64;
            let score = |expected: f64, mean: f64, square: f64| {
                let error = ((square - mean * mean).max(0.0) / draws as f64).sqrt();
                let rounding = 1e-9 * (1.0 + theory.mean * theory.mean);
                if (mean - expected).abs() <= rounding { 0.0 } else { (mean - expected) / error.max(rounding) }
            };
            records.push(Record {
                method: unit.method.clone(),
                pair: name.to_owned(),
                p: unit.degree,
                features: unit.features,
                draws,
                variance: theory.variance,
                simulated_variance: sum(0),
                variance_z: score(theory.variance, sum(0), sum(1)),
                pseudo_variance: theory.pseudo_variance,
                simulated_pseudo_variance: sum(2),
                pseudo_variance_z: score(theory.pseudo_variance, sum(2), sum(3)),
            });
        }
    }
    present(context, &context.recorded(NAME, &records)?)
}

fn measure(unit: &Unit) -> Result<Vec<Sums>, Error> {
    let method: Method = unit.method.parse()?;
    let pairs = pairs();
    let rows: Vec<f64> = pairs.iter().flatten().flatten().copied().collect();
    let means: Vec<f64> = (pairs.iter())
        .map(|[x, y]| {
            x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>().powi(i32::try_from(unit.degree).unwrap_or(i32::MAX))
        })
        .collect();
    let mut sums = vec![[0.0; 4]; pairs.len()];
    for seed in unit.first_seed..unit.first_seed + unit.draws {
        let sketch = spec(method, unit.degree, unit.features, seed).sketch::<f64>()?;
        let features = sketch.transform(&[Rows::new(&rows, 2 * pairs.len(), DIM)?.into()])?;
        for ((sums, mean), pair) in sums.iter_mut().zip(&means).zip(features.chunks(2 * unit.features)) {
            let (x, y) = pair.split_at(unit.features);
            let (re, im) = if method.field() == Field::Complex {
                let parts = x.chunks_exact(2).zip(y.chunks_exact(2));
                parts.fold((0.0, 0.0), |(re, im), (x, y)| {
                    (re + x[0] * y[0] + x[1] * y[1], im + x[1] * y[0] - x[0] * y[1])
                })
            } else {
                (x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>(), 0.0)
            };
            let off = re - mean;
            let (plain, pseudo) = (off * off + im * im, off * off - im * im);
            for (sum, value) in sums.iter_mut().zip([plain, plain * plain, pseudo, pseudo * pseudo]) {
                *sum += value;
            }
        }
    }
    Ok(sums)
}

/// Variances below this are zero up to rounding: the sketch is exact.
const EXACT: f64 = 1e-9;

/// Fewer draws are not judged.
const FEWEST_DRAWS: u64 = 1000;

/// |z| that a standard normal exceeds once in 200 tables of this size.
const FURTHEST: f64 = 4.8;

fn present(context: &Context<'_>, records: &[Record]) -> Result<Outcome, Error> {
    let draws = records.first().map_or(0, |record| record.draws);
    let about = format!(
        "The closed forms of Table 1 beside {draws} draws, for the kernel ⟨x, y⟩^p in {DIM} dimensions, D = {} and {}, and five pairs of \
         rows: non-negative, parallel, with products of opposite signs (a < 0), orthogonal, sparse. m = D rows for real sketches, D/2 for \
         complex ones; ⌈m/d⌉d − 1 with d padded to a power of two.",
        FEATURES[0], FEATURES[1]
    );
    let mut outcome = Outcome::new(NAME, TITLE, about);
    let parsed = methods(&METHODS)?;
    let panel = |title: &str, of: fn(&Record) -> (f64, f64)| {
        let series = (0..).zip(parsed.iter().zip(METHODS)).map(|(row, (&method, name))| {
            let scores = records.iter().filter(|record| record.method == name).map(of);
            let style = Style { stroke: Stroke::None, mark: Mark::Dot, ..Style::of(method) };
            let shown = scores.filter(|(exact, _)| exact.abs() > EXACT);
            Series::new(name, style, shown.map(|(_, score)| (score, f64::from(row))))
        });
        Panel {
            rules: [Some(0.0), None],
            ..Panel::new(
                title,
                ["standard errors", "simulation minus closed form"],
                [Scale::Linear, Scale::Named(&METHODS)],
                series.collect(),
            )
        }
    };
    outcome.draw(
        &context.settings.out,
        &Figure {
            name: NAME.to_owned(),
            caption: "Every dot is one pair of rows, degree and number of features.".to_owned(),
            columns: 2,
            panels: vec![
                panel("Variance", |record| (record.variance, record.variance_z)),
                panel("Pseudo-variance", |record| (record.pseudo_variance, record.pseudo_variance_z)),
            ],
            note: format!(
                "Every dot is one pair of rows, degree and number of features. If the closed forms are right, one dot in 20 is more than 2 \
                 standard errors away from 0, and none is more than {FURTHEST}."
            ),
        },
    )?;
    let furthest = |method: &str, of: fn(&Record) -> f64| {
        let scores = records.iter().filter(|record| record.method == method).map(of);
        scores.fold(0.0, |worst: f64, z| if z.abs() > worst.abs() { z } else { worst })
    };
    let rows = METHODS.iter().map(|&method| {
        let of: Vec<&Record> = records.iter().filter(|record| record.method == method).collect();
        let example =
            of.iter().find(|record| (record.p, &*record.pair) == (3, "non-negative") && record.features == FEATURES[1]);
        let text = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.4}"));
        [
            method.to_owned(),
            of.len().to_string(),
            text(example.map(|record| record.variance)),
            text(example.map(|record| record.simulated_variance)),
            text(example.map(|record| record.pseudo_variance)),
            text(example.map(|record| record.simulated_pseudo_variance)),
            format!("{:+.1}", furthest(method, |record| record.variance_z)),
            format!("{:+.1}", furthest(method, |record| record.pseudo_variance_z)),
        ]
    });
    outcome.table(
        "The non-negative pair at p = 3, D = 48, and the furthest z-score over all pairs, degrees and numbers of features.",
        ["method", "cells", "variance", "simulated", "pseudo-variance", "simulated", "furthest z", "furthest pseudo z"],
        rows.collect(),
    );
    let worst = records
        .iter()
        .flat_map(|record| [record.variance_z, record.pseudo_variance_z])
        .fold(0.0, |worst: f64, z| worst.max(z.abs()));
    outcome.verdict(
        "The variances and pseudo-variances of Table 1.",
        format!("{} comparisons with simulation; the furthest is {worst:.1} standard errors away", 2 * records.len()),
        // The scatter of few squares says little about their mean.
        if draws < FEWEST_DRAWS { Agreement::Open } else { Agreement::of(worst <= FURTHEST) },
    );
    Ok(outcome)
}
