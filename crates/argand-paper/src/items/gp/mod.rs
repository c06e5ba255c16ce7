//! Kernel error and test error of Gaussian process classification, for all sketches.

mod grid;
mod reference;
mod verdicts;

use std::sync::Arc;

use argand::rng::StreamVersion;
use argand::{FeatureMap, Method, Polynomial, Rows, Spec, theory};
use argand_figure::{Figure, Panel, Scale, Series, highlighted, key};
use argand_learn::{
    Engine, GpClassifier, GpOptions, POSTERIOR_SAMPLES, Pipeline, Recipe, Scaling, largest,
    mean_negative_log_likelihood,
};
use serde::{Deserialize, Serialize};

use self::grid::Grid;
use super::{METHODS, half_and_half, methods};
use crate::data::{Dataset, Part, shuffled};
use crate::outcome::Outcome;
use crate::span::{self, Spanned};
use crate::units::{self, Sharing};
use crate::{Context, Error, files, or_usual};

pub(super) const NAME: &str = "gp";
pub(super) const TITLE: &str = "Kernel approximation and Gaussian process classification";

/// Test rows for comparing kernel matrices, as in the authors' runs.
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
            |unit| measure(unit, &data, settings.engine.as_ref()),
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

/// Results in the CSV of an earlier run count as finished, even if its units are gone. They stay in the CSV: datasets and numbers of
/// features from separate runs are shown together.
fn take_earlier(context: &Context<'_>) -> Result<Vec<Record>, Error> {
    let path = context.csv(NAME);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let records = files::read_csv::<Record>(&path).map_err(|error| match error {
        Error::File { path, what } => {
            Error::File { path, what: format!("{what}; move it away to use the finished results in units/") }
        }
        other => other,
    })?;
    if context.settings.finished_only {
        return Ok(records);
    }
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

/// The sort key of lines in the CSV, independent of the order of runs; lines with equal keys belong to the same unit.
fn place(record: &Record) -> impl Ord + use<> {
    let method = METHODS.iter().position(|&method| method == record.method).unwrap_or(METHODS.len());
    let set = (record.dataset.clone(), record.data.clone(), record.scaling.to_string());
    (set, record.p, record.features, method, record.method.clone(), record.seed)
}

/// Approximate number of operations.
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
fn measure(unit: &Unit, data: &Dataset, engine: Option<&Arc<dyn Engine>>) -> Result<Found, Error> {
    let [train, test] = data.scaled(unit.scaling, unit.seed)?;
    let spec = unit.spec(data)?;
    let recipe = Recipe::from(spec.clone());
    let pipeline = engine.map_or_else(|| recipe.pipeline(), |engine| recipe.pipeline_with(engine))?;
    let kernel_error = kernel_error(&spec, &pipeline, &kernel_rows(&test, unit.seed))?;
    let [test_error, negative_log_likelihood] = classify(&pipeline, &train, &test, data.classes)?;
    Ok(Found { kernel_error, test_error, negative_log_likelihood })
}

/// The relative error of the kernel matrix of some rows.
fn kernel_error(spec: &Spec, pipeline: &Pipeline<f32>, compared: &Part) -> Result<f64, Error> {
    let rows = compared.rows()?;
    let features = pipeline.transform(&[rows.into()])?;
    let features = Rows::new(&features, rows.rows(), spec.features)?;
    let Some(engine) = pipeline.engine() else {
        return Ok(theory::kernel_error(spec, &[rows.into()], features)?);
    };
    let (approximate, exact) = (engine.inner_products(features)?, engine.inner_products(rows)?);
    let Some(Polynomial { degree, gamma, coef0 }) = spec.kernel.polynomial() else {
        unreachable!("the paper's kernels are polynomial")
    };
    let degree = i32::try_from(degree);
    let degree = degree.map_err(|error| Error::Internal(error.to_string()))?;
    let (mut errors, mut norms) = (0.0, 0.0);
    for row in 0..rows.rows() {
        let range = row * (row + 1) / 2..=row * (row + 3) / 2;
        for (column, (approximate, exact)) in approximate[range.clone()].iter().zip(&exact[range]).enumerate() {
            // Pairs off the diagonal count twice.
            let (kernel, weight) = ((gamma * exact + coef0).powi(degree), if column == row { 1.0 } else { 2.0 });
            errors += weight * (approximate - kernel).powi(2);
            norms += weight * kernel * kernel;
        }
    }
    Ok((errors / norms).sqrt())
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
    let model = GpClassifier::fit(&spanned.gram(train, classes)?, &GpOptions::default())?;
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
         own are split anew by every seed, nine to one. Ratios are geometric means over D; a sign is clear at two standard errors, and a \
         claim agrees if all of its ratios are clearly so."
    );
    let mut outcome = Outcome::new(NAME, TITLE, about);
    for (set, scaling) in &groups {
        outcome.draw(&context.settings.out, &figure(&grid, set, scaling, records))?;
    }
    for (set, scaling) in &groups {
        verdicts::verdicts(&mut outcome, &grid, (set, scaling));
    }
    reference::compare(context, &mut outcome, &grid)?;
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
    let panel = |degree: usize, what: &str, of: fn(&Record) -> f64| {
        let series = names.iter().map(|&name| {
            let mean = |&features: &usize| {
                let (mean, _) = grid.mean(&(set, scaling.to_owned(), degree, features, name), of)?;
                Some((features as f64, mean))
            };
            Series::of_method(name, features.iter().filter_map(mean))
        });
        let shown: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
        let title = format!("{set}, {scaling}, p = {degree}");
        Panel::new(&title, ["features D", what], [Scale::Doubling, Scale::Logarithmic], highlighted(shown))
    };
    let kernel = degrees.iter().map(|&degree| panel(degree, "relative error of the kernel matrix", KERNEL));
    let test = degrees.iter().map(|&degree| panel(degree, "test error of the classifier", TEST));
    let panels: Vec<Panel> = kernel.chain(test).collect();
    Figure {
        name: format!("{NAME}-{set}-{scaling}"),
        caption: format!("{set}, {scaling} data: kernel errors first, then test errors."),
        columns: degrees.len(),
        note: key(panels.iter().flat_map(|panel| &panel.series)),
        panels,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    pub(super) fn record(method: &str, features: usize, seed: u64, kernel_error: f64) -> Record {
        Record {
            dataset: "set".to_owned(),
            data: "data".to_owned(),
            scaling: Scaling::NonNegative,
            p: 3,
            features,
            method: method.to_owned(),
            seed,
            kernel_error,
            test_error: 0.1,
            negative_log_likelihood: 0.2,
        }
    }

    /// Another dataset with another degree adds nothing.
    #[test]
    fn figures_are_of_one_set() {
        let other = Record { dataset: "other".to_owned(), p: 7, ..record("b", 128, 0, 0.1) };
        let records = [record("a", 64, 0, 0.1), other];
        let figure = figure(&Grid::new(&records), "set", "non-negative", &records);
        let titles: Vec<&str> = figure.panels.iter().map(|panel| &*panel.title).collect();
        assert_eq!(titles, ["set, non-negative, p = 3"; 2]);
        assert!(figure.panels.iter().all(|panel| panel.series.len() == 1));
    }
}
