//! Time and error of features, over their number.

use std::time::Instant;

use argand::theory::kernel_error;
use argand::{FeatureMap, Rows, RowsMut};
use argand_figure::{Figure, Panel, Scale, Series, key};
use argand_learn::Scaling;
use serde::{Deserialize, Serialize};

use super::{half_and_half, mean_and_deviation};
use crate::data::{Dataset, shuffled};
use crate::outcome::{Agreement, Outcome};
use crate::units::{self, Sharing};
use crate::{Context, Error, or_usual};

pub(super) const NAME: &str = "time";
pub(super) const TITLE: &str = "Time for features";

const ROWS: usize = 1000;
const DEGREE: usize = 3;
const METHODS: [&str; 8] = [
    "gaussian",
    "ctr-gaussian",
    "rademacher",
    "ctr-rademacher",
    "product-srht",
    "ctr-product-srht",
    "tensor-sketch",
    "srf",
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit {
    data: String,
    method: String,
    features: usize,
    seeds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Found {
    milliseconds: f64,
    errors: Vec<f64>,
}

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    dataset: String,
    #[serde(rename = "d")]
    columns: usize,
    method: String,
    #[serde(rename = "D")]
    features: usize,
    milliseconds: f64,
    kernel_error: f64,
    kernel_error_deviation: f64,
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let data = context.datasets()?[0].load()?;
    let features =
        or_usual(&context.settings.features, context.size(&[64, 256, 1024, 4096], &[256, 512, 1024, 2048, 4096, 8192]));
    let mut wanted = Vec::new();
    for &features in &features {
        for method in METHODS {
            half_and_half(data.columns(), DEGREE, features, method.parse()?, 0).validate()?;
            wanted.push(Unit {
                data: data.fingerprint().to_owned(),
                method: method.to_owned(),
                features,
                seeds: context.seeds(3, 10),
            });
        }
    }
    let results = units::run(
        context,
        NAME,
        &wanted,
        Sharing::AloneOnOneThread,
        |unit| unit.features as f64,
        |unit| measure(unit, &data),
    )?;
    let records: Vec<Record> = (wanted.into_iter().zip(results))
        .filter_map(|(unit, found)| {
            let found: Found = found?;
            let (kernel_error, kernel_error_deviation) = mean_and_deviation(&found.errors);
            Some(Record {
                dataset: data.name.clone(),
                columns: data.columns(),
                method: unit.method,
                features: unit.features,
                milliseconds: found.milliseconds,
                kernel_error,
                kernel_error_deviation,
            })
        })
        .collect();
    present(context, &context.recorded(NAME, &records)?)
}

/// The fastest of several seeds, each the faster of two runs into an existing buffer.
fn measure(unit: &Unit, data: &Dataset) -> Result<Found, Error> {
    let [_, test] = data.scaled(Scaling::NonNegative, 0)?;
    let mut rows = shuffled(test.labels.len(), 0);
    rows.truncate(ROWS);
    let part = test.select(&rows);
    let inputs = [part.rows()?.into()];
    let count = part.labels.len();
    let mut features = vec![0.0_f32; count * unit.features];
    let (mut milliseconds, mut errors) = (f64::INFINITY, Vec::new());
    for seed in 0..unit.seeds {
        let spec = half_and_half(data.columns(), DEGREE, unit.features, unit.method.parse()?, seed);
        let sketch = spec.sketch::<f32>()?;
        for _ in 0..2 {
            let begun = Instant::now();
            sketch.transform_into(&inputs, RowsMut::new(&mut features, count, unit.features)?)?;
            milliseconds = milliseconds.min(begun.elapsed().as_secs_f64() * 1e3);
        }
        errors.push(kernel_error(&spec, &inputs, Rows::new(&features, count, unit.features)?)?);
    }
    Ok(Found { milliseconds, errors })
}

fn present(context: &Context<'_>, records: &[Record]) -> Result<Outcome, Error> {
    let (set, columns) = records.first().map_or(("", 0), |record| (&*record.dataset, record.columns));
    let about = format!(
        "Time for the features of up to {ROWS} test rows of {set} (d = {columns}), p = {DEGREE}, on one thread, and the relative Frobenius \
         error of the kernel matrix. The paper timed PyTorch on a GPU."
    );
    let mut outcome = Outcome::new(NAME, TITLE, about);
    let panel = |title: &str, y_label: &str, of: fn(&Record) -> f64| {
        let series = METHODS.iter().map(|&name| {
            let of_method = records.iter().filter(|record| record.method == name);
            Series::of_method(name, of_method.map(|record| (record.features as f64, of(record))))
        });
        Panel::new(title, ["features D", y_label], [Scale::Doubling, Scale::Logarithmic], series.collect())
    };
    let panels = vec![
        panel(&format!("Time for up to {ROWS} rows of {set}, p = {DEGREE}"), "milliseconds, one thread", |record| {
            record.milliseconds
        }),
        panel("Error of their kernel matrix", "relative Frobenius error", |record| record.kernel_error),
    ];
    outcome.draw(
        &context.settings.out,
        &Figure {
            name: NAME.to_owned(),
            caption: format!("{set}: time, and kernel error."),
            columns: 2,
            note: key(&panels[0].series),
            panels,
        },
    )?;
    let last = records.iter().map(|record| record.features).max().unwrap_or(0);
    let find = |method: &str| records.iter().find(|record| record.method == method && record.features == last);
    let (Some(real), Some(ctr), Some(tensor), Some(spherical)) =
        (find("product-srht"), find("ctr-product-srht"), find("tensor-sketch"), find("srf"))
    else {
        return Ok(outcome);
    };
    let slowest_of_ours = real.milliseconds.max(ctr.milliseconds);
    let other = |record: &&Record| !record.method.ends_with("product-srht") && record.method != "srf";
    let others = records.iter().filter(|record| record.features == last).filter(other);
    if let Some(fastest) = others.min_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds)) {
        outcome.verdict(
            "ProductSRHT and CtR-ProductSRHT have lower construction times than the other sketches when D is much larger than d (Fig. 3 \
             left).",
            format!(
                "tested at D = {last}, d = {columns}: product-srht {:.2} ms, ctr-product-srht {:.2} ms; the fastest other but srf is {}, {:.2} ms",
                real.milliseconds, ctr.milliseconds, fastest.method, fastest.milliseconds
            ),
            Agreement::of(fastest.milliseconds > slowest_of_ours),
        );
    }
    outcome.verdict(
        "SRF is about as fast as they are (Fig. 3 left).",
        format!(
            "tested at D = {last}, where up to twice as long counts as about as fast: srf takes {:.1} times as long as ctr-product-srht",
            spherical.milliseconds / ctr.milliseconds
        ),
        Agreement::of(spherical.milliseconds < 2.0 * ctr.milliseconds),
    );
    outcome.verdict(
        "There is a small overhead for CtR-ProductSRHT compared to ProductSRHT (Sec. 5.3).",
        format!(
            "tested at D = {last}, where less than twice counts as small: {:.2} times",
            ctr.milliseconds / real.milliseconds
        ),
        Agreement::of(ctr.milliseconds / real.milliseconds < 2.0),
    );
    let mut sizes: Vec<usize> = records.iter().map(|record| record.features).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let lowest = |features: usize| {
        let same = records.iter().filter(|record| record.features == features);
        same.min_by(|a, b| a.kernel_error.total_cmp(&b.kernel_error)).map_or("none", |record| &record.method)
    };
    let all: Vec<String> = sizes.iter().map(|&features| format!("{} at D = {features}", lowest(features))).collect();
    outcome.verdict(
        "CtR-ProductSRHT is the most accurate sketch for p = 3 (Fig. 3 right).",
        format!(
            "tested at D = {last}, where it has an error of {:.4}; the lowest are {}",
            ctr.kernel_error,
            all.join(", ")
        ),
        Agreement::of(lowest(last) == "ctr-product-srht"),
    );
    if let [first, .., _] = sizes[..] {
        let fall = |of: &Record| {
            let before = records.iter().find(|record| record.method == of.method && record.features == first);
            before.map_or(f64::NAN, |before| of.kernel_error / before.kernel_error)
        };
        let unbiased = (first as f64 / last as f64).sqrt();
        outcome.verdict(
            "SRF is strongly biased (Fig. 3 right).",
            format!(
                "tested as an error that falls to more than 1.5 times √({first}/{last}) = {unbiased:.2} from D = {first} to {last}: srf to {:.2}, \
                 ctr-product-srht to {:.2}, tensor-sketch to {:.2}",
                fall(spherical),
                fall(ctr),
                fall(tensor)
            ),
            Agreement::of(fall(spherical) > 1.5 * unbiased),
        );
    }
    Ok(outcome)
}
