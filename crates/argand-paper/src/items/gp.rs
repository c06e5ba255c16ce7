//! Kernel error and test error of Gaussian process classification, all sketches beside each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use argand::rng::StreamVersion;
use argand::theory::kernel_error;
use argand::{FeatureMap, Method, Rows, Spec};
use argand_learn::{
    GpClassifier, GpOptions, Gram, Labels, POSTERIOR_SAMPLES, Pipeline, Recipe, Scaling, Targets, largest,
    mean_negative_log_likelihood,
};
use serde::{Deserialize, Serialize};

use super::{METHODS, half_and_half, mean_and_deviation, methods};
use crate::data::{Dataset, Part, shuffled};
use crate::figure::{Figure, Panel, Scale, Series};
use crate::outcome::{Agreement, Outcome};
use crate::span::{self, Spanned};
use crate::units::{self, Sharing};
use crate::{Context, Error, files, or_usual};

pub(super) const NAME: &str = "gp";
pub(super) const TITLE: &str = "Kernel approximation and Gaussian process classification";

/// Rows of the test set on which the kernel matrix is compared, as the authors did.
const KERNEL_ROWS: usize = 5000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit {
    data: String,
    scaling: Scaling,
    degree: usize,
    features: usize,
    method: String,
    seed: u64,
}

impl Unit {
    fn spec(&self, data: &Dataset) -> Result<Spec, Error> {
        Ok(half_and_half(data.columns(), self.degree, self.features, self.method.parse()?, self.seed))
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Found {
    kernel_error: f64,
    test_error: f64,
    negative_log_likelihood: f64,
}

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    dataset: String,
    data: String,
    scaling: Scaling,
    p: usize,
    #[serde(rename = "D")]
    features: usize,
    method: String,
    seed: u64,
    kernel_error: f64,
    test_error: f64,
    negative_log_likelihood: f64,
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let settings = context.settings;
    let sets = context.datasets()?;
    let methods: Vec<Method> = or_usual(&settings.methods, &methods(&METHODS)?);
    let degrees = or_usual(&settings.degrees, &[3, 7]);
    let features =
        or_usual(&settings.features, context.size(&[128, 256, 512, 1024], &[256, 512, 1024, 2048, 4096, 8192]));
    let scalings = or_usual(&settings.scalings, &[Scaling::NonNegative, Scaling::Standard]);
    let mut records = take_earlier(context)?;
    for source in sets {
        let data = source.load()?;
        let version = format!("{}-{}", data.fingerprint(), StreamVersion::LATEST.number());
        let mut wanted = Vec::new();
        for &scaling in &scalings {
            for &features in &features {
                for seed in 0..context.seeds(5, 20) {
                    for &degree in &degrees {
                        for method in &methods {
                            let (data_version, method) = (version.clone(), method.to_string());
                            let unit = Unit { data: data_version, scaling, degree, features, method, seed };
                            unit.spec(&data)?.validate()?;
                            wanted.push(unit);
                        }
                    }
                }
            }
        }
        let results = units::run(
            context,
            NAME,
            &wanted,
            Sharing::Parallel,
            |unit| cost(unit, &data),
            |unit| measure(unit, &data),
        )?;
        records.extend(wanted.into_iter().zip(results).filter_map(|(unit, found)| {
            let found: Found = found?;
            Some(Record {
                dataset: data.name.clone(),
                data: unit.data,
                scaling: unit.scaling,
                p: unit.degree,
                features: unit.features,
                method: unit.method,
                seed: unit.seed,
                kernel_error: found.kernel_error,
                test_error: found.test_error,
                negative_log_likelihood: found.negative_log_likelihood,
            })
        }));
    }
    records.sort_by_cached_key(place);
    records.dedup_by_key(|record| place(record));
    present(context, &context.recorded(NAME, &records)?)
}

/// Results in the CSV of an earlier run count as finished, also where its units are gone. They stay in the CSV: sets and numbers of
/// features that were run apart are shown together.
fn take_earlier(context: &Context<'_>) -> Result<Vec<Record>, Error> {
    let path = context.csv(NAME);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let records = files::read_csv::<Record>(&path).map_err(|error| match error {
        Error::File { path, what } => {
            Error::File { path, what: format!("{what}; move it away, and what else is finished is taken from units/") }
        }
        other => other,
    })?;
    for record in &records {
        let unit = Unit {
            data: record.data.clone(),
            scaling: record.scaling,
            degree: record.p,
            features: record.features,
            method: record.method.clone(),
            seed: record.seed,
        };
        let found = Found {
            kernel_error: record.kernel_error,
            test_error: record.test_error,
            negative_log_likelihood: record.negative_log_likelihood,
        };
        units::keep(context, NAME, &unit, found)?;
    }
    Ok(records)
}

/// The order of lines in the CSV, which does not depend on the order of runs; lines of one place are of the same unit.
fn place(record: &Record) -> impl Ord + use<> {
    let method = METHODS.iter().position(|&method| method == record.method).unwrap_or(METHODS.len());
    let set = (record.dataset.clone(), record.data.clone(), record.scaling.to_string());
    (set, record.p, record.features, method, record.method.clone(), record.seed)
}

/// Operations, about.
fn cost(unit: &Unit, data: &Arc<Dataset>) -> f64 {
    let (rows, features, classes) = (data.rows() as f64, unit.features as f64, data.classes as f64);
    let per_feature = if unit.method.starts_with("craft") { 4e5 } else { 10.0 * features };
    let spanned = unit.spec(data).ok().and_then(|spec| span::dimensions(&spec, data.rows()));
    let (dim, basis) = spanned.map_or((features, 0.0), |dim| {
        let dim = dim as f64;
        (dim, features * dim * (2.0 * dim + rows))
    });
    let products = rows * dim * dim + classes * (dim.powi(3) / 3.0).min(rows / classes * dim * dim);
    1e-9 * (products + basis + rows * per_feature + 0.1 * rows * dim * dim)
}

/// One sketch: its kernel error and the classifier on top of it.
fn measure(unit: &Unit, data: &Dataset) -> Result<Found, Error> {
    let [train, test] = data.scaled(unit.scaling, unit.seed)?;
    let spec = unit.spec(data)?;
    let pipeline = Recipe::from(spec.clone()).pipeline::<f32>()?;
    let compared = kernel_rows(&test, unit.seed);
    let inputs = [compared.rows()?.into()];
    let features = pipeline.transform(&inputs)?;
    let kernel_error = kernel_error(&spec, &inputs, Rows::new(&features, compared.labels.len(), spec.features)?)?;
    drop(features);
    let [test_error, negative_log_likelihood] = classify(&pipeline, &train, &test, data.classes)?;
    Ok(Found { kernel_error, test_error, negative_log_likelihood })
}

/// The rows on which kernel matrices are compared.
fn kernel_rows(test: &Part, seed: u64) -> Part {
    let mut rows = shuffled(test.labels.len(), seed);
    rows.truncate(KERNEL_ROWS);
    test.select(&rows)
}

/// Test error and mean negative log-likelihood.
fn classify(pipeline: &Pipeline<f32>, train: &Part, test: &Part, classes: usize) -> Result<[f64; 2], Error> {
    let spanned = Spanned::new(pipeline, &[train.rows()?, test.rows()?])?;
    let mut gram = Gram::new_within(&spanned.recipe()?, Targets::ClassesApart(classes), u64::MAX)?;
    spanned.for_each_block(train.rows()?, |range, features| {
        gram.update(features, Labels::Classes(&train.labels[range]))
    })?;
    let model = GpClassifier::fit(&gram, &GpOptions::default())?;
    drop(gram);
    let (mut probabilities, seed) = (Vec::new(), pipeline.recipe().spec.seed);
    spanned.for_each_block(test.rows()?, |_, features| {
        probabilities.extend(model.predict(features)?.probabilities(POSTERIOR_SAMPLES, seed)?);
        Ok(())
    })?;
    let predicted = largest(&probabilities, classes);
    let wrong = predicted.iter().zip(&test.labels).filter(|(got, want)| got != want).count();
    let loss = mean_negative_log_likelihood(&probabilities, &test.labels)?;
    Ok([wrong as f64 / test.labels.len() as f64, loss])
}

/// The seeds of one cell of the grid.
type Cell<'a> = (&'a str, String, usize, usize, &'a str);

struct Grid<'a> {
    cells: BTreeMap<Cell<'a>, Vec<&'a Record>>,
}

impl<'a> Grid<'a> {
    fn new(records: &'a [Record]) -> Self {
        let mut cells: BTreeMap<Cell<'a>, Vec<&Record>> = BTreeMap::new();
        for record in records {
            let cell = (&*record.dataset, record.scaling.to_string(), record.p, record.features, &*record.method);
            cells.entry(cell).or_default().push(record);
        }
        Self { cells }
    }

    /// Mean and standard error of a cell.
    fn mean(&self, cell: &Cell<'a>, of: fn(&Record) -> f64) -> Option<(f64, f64)> {
        let values: Vec<f64> = self.cells.get(cell)?.iter().map(|record| of(record)).collect();
        let (mean, deviation) = mean_and_deviation(&values);
        Some((mean, deviation / (values.len() as f64).sqrt()))
    }

    /// Numbers of features in a set.
    fn features(&self, set: &str, scaling: &str) -> Vec<usize> {
        let mut features: Vec<usize> =
            self.cells.keys().filter(|cell| cell.0 == set && cell.1 == scaling).map(|cell| cell.3).collect();
        features.sort_unstable();
        features.dedup();
        features
    }

    /// The logarithm of a mean, and its standard error.
    fn log_mean(&self, cell: &Cell<'a>, of: fn(&Record) -> f64) -> Option<Log> {
        let (mean, error) = self.mean(cell, of)?;
        // An error of zero has no logarithm.
        (mean > 0.0).then(|| Log { value: mean.ln(), error: error / mean })
    }

    /// One method's mean over another's, as the geometric mean over D.
    fn ratio(
        &self,
        (set, scaling): (&'a str, &str),
        degree: usize,
        pair: [&'a str; 2],
        of: fn(&Record) -> f64,
    ) -> Option<Log> {
        let ratios = self.features(set, scaling).into_iter().filter_map(|features| {
            let [one, other] =
                pair.map(|method| self.log_mean(&(set, scaling.to_owned(), degree, features, method), of));
            Some(one?.minus(other?))
        });
        let (count, sum) = ratios.fold((0.0, None), |(count, sum): (f64, Option<Log>), ratio| {
            (count + 1.0, Some(sum.map_or(ratio, |sum| sum.plus(ratio))))
        });
        sum.map(|sum| Log { value: sum.value / count, error: sum.error / count })
    }
}

/// The logarithm of something positive, with its standard error.
#[derive(Debug, Clone, Copy)]
struct Log {
    value: f64,
    error: f64,
}

impl Log {
    fn plus(self, other: Self) -> Self {
        Self { value: self.value + other.value, error: self.error.hypot(other.error) }
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self { value: -other.value, ..other })
    }
}

/// A ratio that the paper says to be below 1, or above.
struct Expected {
    name: String,
    ratio: Option<Log>,
    below: bool,
}

/// Whether all ratios are where they are expected.
fn judge(expected: &[Expected]) -> Option<(String, Agreement)> {
    let (mut words, mut numbers) = (Vec::new(), Vec::new());
    for Expected { name, ratio, below } in expected {
        let Log { value, error } = (*ratio)?;
        // One seed has no error to be judged by.
        let within = if error.is_finite() { format!(" ± {:.2}", value.exp() * error) } else { String::new() };
        words.push(format!("{name} {:.2}{within}", value.exp()));
        numbers.push((if *below { value } else { -value }, error));
    }
    Some((words.join(", "), Agreement::of_negative(&numbers)))
}

const KERNEL: fn(&Record) -> f64 = |record| record.kernel_error;
const TEST: fn(&Record) -> f64 = |record| record.test_error;

fn present(context: &Context<'_>, records: &[Record]) -> Result<Outcome, Error> {
    let grid = Grid::new(records);
    let mut groups: Vec<(&str, String)> = Vec::new();
    for record in records {
        let group = (&*record.dataset, record.scaling.to_string());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let seeds = grid.cells.values().map(Vec::len);
    let (fewest, most) = (seeds.clone().min().unwrap_or(0), seeds.max().unwrap_or(0));
    let seeds = match (fewest, most) {
        (_, 1) => "1 seed".to_owned(),
        _ if fewest == most => format!("{most} seeds"),
        _ => format!("{fewest} to {most} seeds"),
    };
    let about = format!(
        "Relative Frobenius error of the kernel matrix on up to {KERNEL_ROWS} test rows, and test error of the closed-form classifier, \
         for the kernel (½ + ½⟨x, y⟩)^p on rows of unit norm. Means over {seeds} per cell; sets without a test set of their \
         own are split anew by every seed, nine to one."
    );
    let mut outcome = Outcome::new(NAME, TITLE, about);
    for (set, scaling) in &groups {
        outcome.draw(&context.settings.out, &figure(&grid, set, scaling, records))?;
    }
    for (set, scaling) in &groups {
        verdicts(&mut outcome, &grid, (set, scaling));
    }
    compare(context, &mut outcome, &grid)?;
    Ok(outcome)
}

fn figure(grid: &Grid<'_>, set: &str, scaling: &str, records: &[Record]) -> Figure {
    let own = |record: &&Record| record.dataset == set && record.scaling.to_string() == scaling;
    let records: Vec<&Record> = records.iter().filter(own).collect();
    let mut degrees: Vec<usize> = records.iter().map(|record| record.p).collect();
    degrees.sort_unstable();
    degrees.dedup();
    let features = grid.features(set, scaling);
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        if !names.contains(&&*record.method) {
            names.push(&record.method);
        }
    }
    let panel = |degree: usize, what: &str, scale: Scale, of: fn(&Record) -> f64| Panel {
        title: format!("{set}, {scaling}, p = {degree}"),
        x_label: "features D".to_owned(),
        y_label: what.to_owned(),
        scales: [Scale::Doubling, scale],
        series: (names.iter())
            .map(|&name| {
                let mean = |&features: &usize| {
                    let (mean, _) = grid.mean(&(set, scaling.to_owned(), degree, features, name), of)?;
                    Some((features as f64, mean))
                };
                Series::of_method(name, features.iter().filter_map(mean))
            })
            .collect(),
    };
    let kernel = degrees.iter().map(|&degree| panel(degree, "relative Frobenius error", Scale::Logarithmic, KERNEL));
    let test = degrees.iter().map(|&degree| panel(degree, "test error", Scale::Logarithmic, TEST));
    Figure {
        name: format!("{NAME}-{set}-{scaling}"),
        caption: format!("{set}, {scaling} data: kernel errors first, then test errors."),
        columns: degrees.len(),
        panels: kernel.chain(test).collect(),
    }
}

fn verdicts(outcome: &mut Outcome, grid: &Grid<'_>, group: (&str, &str)) {
    let (set, scaling) = group;
    const PAIRS: [[&str; 2]; 3] =
        [["ctr-gaussian", "gaussian"], ["ctr-rademacher", "rademacher"], ["ctr-product-srht", "product-srht"]];
    let mut claim = |claim: &str, expected: Vec<Expected>| {
        if let Some((found, agreement)) = judge(&expected) {
            outcome.verdict(claim, format!("{set}, {scaling}: {found}"), agreement);
        }
    };
    let over = |degree: usize, pair: [&'static str; 2], of: fn(&Record) -> f64, below: bool| Expected {
        name: format!("{} over {} at p = {degree}:", pair[0], pair[1]),
        ratio: grid.ratio(group, degree, pair, of),
        below,
    };
    let non_negative = scaling == Scaling::NonNegative.to_string();
    claim(
        if non_negative {
            "CtR sketches generally have lower kernel errors than their real analogs (Sec. 5.2)."
        } else {
            "CtR sketches lead to some improvements over their real analogs even for zero-centred data (App. D)."
        },
        [3, 7].iter().flat_map(|&degree| PAIRS.map(|pair| over(degree, pair, KERNEL, true))).collect(),
    );
    if !non_negative {
        return;
    }
    claim(
        "The advantage of CtR sketches in kernel errors is larger for p = 7 than for p = 3 (Sec. 5.2).",
        PAIRS
            .map(|pair| {
                let [low, high] = [3, 7].map(|degree| grid.ratio(group, degree, pair, KERNEL));
                let ratio = high.zip(low).map(|(high, low)| high.minus(low));
                Expected { name: format!("ratio for {} at p = 7 over that at p = 3:", pair[0]), ratio, below: true }
            })
            .into(),
    );
    claim(
        "CtR sketches have lower test errors than their real analogs at p = 7 (Sec. 5.2).",
        PAIRS.map(|pair| over(7, pair, TEST, true)).into(),
    );
    const TREES: [[&str; 2]; 2] =
        [["hierarchical-ctr-product-srht", "ctr-product-srht"], ["hierarchical-tensor-sketch", "tensor-sketch"]];
    claim(
        "Hierarchical sketches improve kernel errors for p = 7 only, and are worse for p = 3 (Sec. 5.2).",
        [3, 7].iter().flat_map(|&degree| TREES.map(|pair| over(degree, pair, KERNEL, degree == 7))).collect(),
    );
    const CRAFT: [[&str; 2]; 3] = [
        ["craft-product-srht", "product-srht"],
        ["craft-ctr-product-srht", "ctr-product-srht"],
        ["craft-tensor-sketch", "tensor-sketch"],
    ];
    claim(
        "CRAFT maps always improve kernel errors (Sec. 5.2).",
        [3, 7].iter().flat_map(|&degree| CRAFT.map(|pair| over(degree, pair, KERNEL, true))).collect(),
    );
    let features = grid.features(set, scaling);
    if let [low, .., high] = features[..] {
        let fall = |method: &'static str| {
            let [low, high] =
                [low, high].map(|features| grid.log_mean(&(set, scaling.to_owned(), 3, features, method), KERNEL));
            Some(high?.minus(low?))
        };
        claim(
            "SRF is biased: for p = 3 the kernel errors of the others fall faster with D than that of SRF, which stagnates (Sec. 5.2).",
            ["ctr-product-srht", "tensor-sketch"]
                .map(|method| Expected {
                    name: format!("error at D = {high} over that at {low}, {method} over srf:"),
                    ratio: fall(method).zip(fall("srf")).map(|(method, spherical)| method.minus(spherical)),
                    below: true,
                })
                .into(),
        );
    }
}

/// How far two means are apart, in standard errors of their difference. Both scatter alike: their variances are pooled, where the
/// authors' is known.
fn score(ours: &[f64], theirs: crate::reference::TheirMean) -> f64 {
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

/// |z| up to this is agreement: among the some 500 comparisons of a set, one beyond it is expected in 30 such tables if all is well.
const FURTHEST: f64 = 4.0;

/// Ours beside the authors', method by method.
fn compare(context: &Context<'_>, outcome: &mut Outcome, grid: &Grid<'_>) -> Result<(), Error> {
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
mod tests;
