//! The cost of features beside that of learning from them.

use std::time::Instant;

use argand::{FeatureMap, Rows};
use argand_learn::{GpClassifier, GpOptions, Gram, Labels, Recipe, Scaling, Targets};
use argand_linalg::{Cholesky, Matrix, View, ViewMut, product};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::half_and_half;
use crate::data::{Dataset, Part};
use crate::outcome::{Agreement, Outcome};
use crate::units::{self, Sharing};
use crate::{Context, Error, or_usual};

pub(super) const NAME: &str = "ratio";
pub(super) const TITLE: &str = "Projection time over downstream time";

const DEGREE: usize = 3;
/// The columns of Table 2, with its numbers at D = 2⁹, 2¹¹ and 2¹³.
const TABLE: [(&str, [f64; 3]); 6] = [
    ("srf", [3.51, 0.40, 0.04]),
    ("product-srht", [2.96, 0.33, 0.03]),
    ("ctr-product-srht", [3.32, 0.38, 0.04]),
    ("craft-ctr-product-srht", [6.09, 0.67, 0.06]),
    ("tensor-sketch", [5.13, 0.58, 0.06]),
    ("craft-tensor-sketch", [9.98, 1.08, 0.10]),
];
const THEIR_FEATURES: [usize; 3] = [512, 2048, 8192];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Step {
    Projection(String),
    OurAlgebra,
    TheirAlgebra,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit {
    data: String,
    step: Step,
    features: usize,
    threads: usize,
}

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    dataset: String,
    #[serde(rename = "D")]
    features: usize,
    method: String,
    projection_seconds: f64,
    downstream_seconds: f64,
    authors_algebra_seconds: f64,
    ratio: f64,
    ratio_with_authors_algebra: f64,
    paper: Option<f64>,
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let data = context.datasets()?[0].load()?;
    let sizes = or_usual(&context.settings.features, context.size(&[128, 512], &THEIR_FEATURES));
    let mut wanted = Vec::new();
    for &features in &sizes {
        let projections = TABLE.map(|(method, _)| Step::Projection(method.to_owned()));
        for step in projections.into_iter().chain([Step::OurAlgebra, Step::TheirAlgebra]) {
            if let Step::Projection(method) = &step {
                half_and_half(data.columns(), DEGREE, features, method.parse()?, 0).validate()?;
            }
            wanted.push(Unit {
                data: data.fingerprint().to_owned(),
                step,
                features,
                threads: context.settings.threads,
            });
        }
    }
    let cost = |unit: &Unit| {
        let (rows, dim) = (data.rows() as f64, unit.features as f64);
        match &unit.step {
            Step::Projection(method) if method.starts_with("craft") => 4e5 * rows,
            Step::Projection(_) => 20.0 * rows * dim,
            _ => rows * dim * dim,
        }
    };
    let results = units::run(
        context,
        NAME,
        &wanted,
        Sharing::AloneOnAllThreads,
        |unit| 1e-9 * cost(unit),
        |unit| measure(unit, &data),
    )?;
    let seconds = |features: usize, step: Step| -> Option<f64> {
        let place = wanted.iter().position(|unit| unit.features == features && unit.step == step)?;
        results[place]
    };
    let mut records = Vec::new();
    for &features in &sizes {
        let (ours, theirs) = (seconds(features, Step::OurAlgebra), seconds(features, Step::TheirAlgebra));
        for (method, paper) in TABLE {
            let projection = seconds(features, Step::Projection(method.to_owned()));
            let (Some(projection), Some(ours), Some(theirs)) = (projection, ours, theirs) else { continue };
            let place = THEIR_FEATURES.iter().position(|&known| known == features);
            records.push(Record {
                dataset: data.name.clone(),
                features,
                method: method.to_owned(),
                projection_seconds: projection,
                downstream_seconds: ours,
                authors_algebra_seconds: theirs,
                ratio: projection / ours,
                ratio_with_authors_algebra: projection / theirs,
                paper: place.map(|place| paper[place]),
            });
        }
    }
    Ok(present(&context.recorded(NAME, &records)?, &data))
}

/// Seconds for all training rows, on all threads.
fn measure(unit: &Unit, data: &Dataset) -> Result<f64, Error> {
    let [train, _] = data.scaled(Scaling::NonNegative, 0)?;
    let method = if let Step::Projection(method) = &unit.step { method } else { "ctr-product-srht" };
    let recipe = Recipe::from(half_and_half(data.columns(), DEGREE, unit.features, method.parse()?, 0));
    let pipeline = recipe.pipeline::<f32>()?;
    let inputs = [train.rows()?.into()];
    match unit.step {
        Step::Projection(_) => {
            let begun = Instant::now();
            pipeline.for_each_block(&inputs, |_, _| Ok(()))?;
            Ok(begun.elapsed().as_secs_f64())
        }
        Step::OurAlgebra => {
            let mut gram = Gram::new_within(&recipe, Targets::ClassesApart(data.classes), u64::MAX)?;
            let mut seconds = 0.0;
            pipeline.for_each_block(&inputs, |range, features| {
                let begun = Instant::now();
                gram.update(features, Labels::Classes(&train.labels[range]))?;
                seconds += begun.elapsed().as_secs_f64();
                Ok(())
            })?;
            let begun = Instant::now();
            GpClassifier::fit(&gram, &GpOptions::default())?;
            Ok(seconds + begun.elapsed().as_secs_f64())
        }
        Step::TheirAlgebra => {
            let features = pipeline.transform(&inputs)?;
            let begun = Instant::now();
            one_class(&features, &train, unit.features)?;
            // The other classes cost the same.
            Ok(begun.elapsed().as_secs_f64() * data.classes as f64)
        }
    }
}

/// Φᵀdiag(1/v)Φ + I of one class, factored and solved, as the authors' code does for every class.
fn one_class(features: &[f32], train: &Part, dim: usize) -> Result<Vec<f64>, Error> {
    let rows = train.labels.len();
    let noise = |row: usize| if train.labels[row] == 0 { 0.69 } else { 6.9 };
    let mut scaled = vec![0.0; features.len()];
    scaled.par_chunks_mut(dim).zip(features.par_chunks(dim)).enumerate().for_each(|(row, (to, from))| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from / noise(row));
    });
    let [phi, scaled] = [features, &scaled].map(|values| View::by_rows(values, rows, dim));
    let mut products = vec![0.0_f32; dim * dim];
    let width = dim.div_ceil(rayon::current_num_threads());
    products.par_chunks_mut(width * dim).enumerate().for_each(|(part, out)| {
        let columns = out.len() / dim;
        let out = ViewMut::by_columns(out, dim, columns);
        product(out, scaled.transpose(), phi.columns(part * width..part * width + columns), 1.0);
    });
    let one = |i, j| if i == j { 1.0 } else { 0.0 };
    let matrix = Matrix::from_fn(dim, dim, |i, j| f64::from(products[j * dim + i]) + one(i, j));
    let sums = Rows::new(features, rows, dim)?;
    let right: Vec<f64> =
        (0..dim).map(|i| (0..rows).step_by(100).map(|row| f64::from(sums.row(row)[i])).sum()).collect();
    let factor = Cholesky::new(matrix).map_err(|error| Error::Internal(error.to_string()))?;
    let [_, solution] = factor.solve(&right);
    Ok(solution)
}

fn present(records: &[Record], data: &Dataset) -> Outcome {
    let about = format!(
        "Seconds to project all rows of {} to learn from, over seconds to solve the Gaussian process on them, p = {DEGREE}, all threads. \
         With the authors' algebra (a product of n D² per class, in single precision; one class is timed and counted {} times), and with \
         ours (one pass for all classes, in double precision). The paper's column is from a GPU.",
        data.name, data.classes
    );
    let mut outcome = Outcome::new(NAME, TITLE, about);
    let rows = records.iter().map(|record| {
        [
            record.features.to_string(),
            record.method.clone(),
            format!("{:.3}", record.projection_seconds),
            format!("{:.2}", record.authors_algebra_seconds),
            format!("{:.2}", record.downstream_seconds),
            format!("{:.4}", record.ratio_with_authors_algebra),
            format!("{:.4}", record.ratio),
            record.paper.map_or("–".to_owned(), |paper| format!("{paper:.2}")),
        ]
    });
    outcome.table(
        "Projection time over downstream time.",
        [
            "D",
            "method",
            "projection, s",
            "authors' algebra, s",
            "ours, s",
            "ratio, authors' algebra",
            "ratio, ours",
            "paper",
        ],
        rows.collect(),
    );
    let sizes: Vec<usize> = records.chunk_by(|a, b| a.features == b.features).map(|same| same[0].features).collect();
    let find = |features: usize, method: &str| {
        records.iter().find(|record| record.features == features && record.method == method)
    };
    if let (Some(&low), Some(&high)) = (sizes.first(), sizes.last())
        && low < high
    {
        let falls = TABLE.iter().all(|(method, _)| {
            sizes.windows(2).all(|pair| {
                find(pair[0], method)
                    .zip(find(pair[1], method))
                    .is_some_and(|(low, high)| high.ratio_with_authors_algebra < low.ratio_with_authors_algebra)
            })
        });
        let text = |method: &str| {
            let of = |features| find(features, method).map_or(f64::NAN, |record| record.ratio_with_authors_algebra);
            format!("{method} {:.3} and {:.4}", of(low), of(high))
        };
        outcome.verdict(
            "The ratio falls with D, as the downstream model costs n D² + D³ (Table 2).",
            format!(
                "tested at D = {}, all sketches, authors' algebra; at the first and the last: {}",
                sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
                ["ctr-product-srht", "tensor-sketch", "craft-ctr-product-srht"].map(text).join("; ")
            ),
            Agreement::of(falls),
        );
    }
    let faster = |a: &str, b: &str| {
        let pairs = sizes.iter().filter_map(|&features| Some((find(features, a)?, find(features, b)?)));
        pairs.map(|(a, b)| b.projection_seconds / a.projection_seconds).collect::<Vec<f64>>()
    };
    for (a, b) in [("ctr-product-srht", "tensor-sketch"), ("craft-ctr-product-srht", "craft-tensor-sketch")] {
        let factors = faster(a, b);
        let text: Vec<String> =
            sizes.iter().zip(&factors).map(|(features, factor)| format!("D = {features}: {factor:.1} times")).collect();
        outcome.verdict(
            &format!("{a} is faster than {b} (Table 2)."),
            text.join(", "),
            Agreement::of(factors.iter().all(|&factor| factor > 1.0)),
        );
    }
    outcome
}
