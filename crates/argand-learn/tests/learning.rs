//! Gaussian process classification as in Section 5.2 of the paper, beside the results of its authors: slow, so it only runs with
//! `cargo test --release -p argand-learn --test learning -- --ignored --nocapture`, with `ARGAND_DATA` set.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "rows are few")]

#[allow(dead_code, unreachable_pub, reason = "other tests share it")]
#[path = "../../argand/tests/common/data.rs"]
mod data;

use std::time::Instant;

use argand::rng::{Purpose, Stream};
use argand::{Input, Polynomial, Rows, Spec};
use argand_learn::{
    GpClassifier, GpOptions, Gram, Labels, POSTERIOR_SAMPLES, PreparationFit, Recipe, Scaling, Targets, largest,
    mean_negative_log_likelihood,
};
use data::mean_and_error;

/// Rows and their classes.
struct Part {
    x: Vec<f32>,
    y: Vec<u32>,
}

impl Part {
    fn table(&self) -> [Input<'_, f32>; 1] {
        [Rows::new(&self.x, self.y.len(), self.x.len() / self.y.len()).unwrap().into()]
    }
}

/// Test error and mean negative log-likelihood of one sketch, on non-negative rows of unit norm.
fn classify(train: &Part, test: &Part, classes: usize, spec: Spec) -> [f64; 2] {
    let columns = train.x.len() / train.y.len();
    let (train_rows, test_rows) = (train.table(), test.table());
    let mut fit = PreparationFit::new(Scaling::NonNegative, &[columns]);
    fit.update(&train_rows).unwrap();
    let recipe = Recipe::new(fit.finish().unwrap(), spec);
    let pipeline = recipe.pipeline::<f32>().unwrap();
    let mut gram = Gram::new(&recipe, Targets::ClassesApart(classes)).unwrap();
    pipeline
        .for_each_block(&train_rows, |range, features| gram.update(features, Labels::Classes(&train.y[range])))
        .unwrap();
    let model = GpClassifier::fit(&gram, &GpOptions::default()).unwrap();
    let mut probabilities = Vec::new();
    pipeline
        .for_each_block(&test_rows, |_, features| {
            probabilities.extend(model.predict(features)?.probabilities(POSTERIOR_SAMPLES, recipe.spec.seed)?);
            Ok(())
        })
        .unwrap();
    let wrong = largest(&probabilities, classes).iter().zip(&test.y).filter(|(got, want)| got != want).count();
    [wrong as f64 / test.y.len() as f64, mean_negative_log_likelihood(&probabilities, &test.y).unwrap()]
}

fn spec(columns: usize, degree: usize, features: usize, method: &str, seed: u64) -> Spec {
    let mut spec = Spec::polynomial(columns)
        .with_degree(degree)
        .with_features(features)
        .with_method(method.parse().unwrap())
        .with_seed(seed);
    spec.kernel = Polynomial { degree, gamma: 0.5, coef0: 0.5 }.into();
    spec
}

/// The wanted cells, or those that `ARGAND_METHODS` names, separated by commas.
fn chosen<'a>(methods: &'a [&'a str]) -> Vec<&'a str> {
    let wanted = std::env::var("ARGAND_METHODS").ok();
    let wanted = |method: &&&str| wanted.as_ref().is_none_or(|list| list.split(',').any(|name| name == **method));
    methods.iter().filter(wanted).copied().collect()
}

/// Prints a table beside the authors' results and fails if one differs by more than 4 standard errors of the difference.
fn compare(
    dataset: &str,
    methods: &[&str],
    degrees: &[usize],
    features: &[usize],
    seeds: u64,
    run: impl Fn(&str, usize, usize, u64) -> [f64; 2],
) {
    let grid = data::grid().unwrap();
    println!(
        "\n| {dataset}: sketch | p | D | authors' error | argand | z | authors' log-likelihood | argand | z | s/seed |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut wrong = Vec::new();
    for (degree, count, method) in degrees
        .iter()
        .flat_map(|&degree| features.iter().map(move |&count| (degree, count)))
        .flat_map(|(degree, count)| chosen(methods).into_iter().map(move |method| (degree, count, method)))
    {
        let theirs = grid.iter().find(|result| {
            let place = (result.dataset.as_str(), result.degree, result.features, result.sketch.as_str());
            place == (dataset, degree, count, &method.replace('-', "_"))
        });
        let (their_seeds, their_error, _, their_loss) = theirs.unwrap().test;
        let begun = Instant::now();
        let runs: Vec<[f64; 2]> = (0..seeds).map(|seed| run(method, degree, count, seed)).collect();
        let seconds = begun.elapsed().as_secs_f64() / seeds as f64;
        let [errors, losses] = [0, 1].map(|at| mean_and_error(&runs.iter().map(|run| run[at]).collect::<Vec<_>>()));
        // Their seeds scatter as ours do: their mean has the standard error of ours, times the root of seeds over seeds.
        let z = |(mean, error): (f64, f64), theirs: f64| {
            (mean - theirs) / (error * (1.0 + seeds as f64 / their_seeds).sqrt())
        };
        let (of_error, of_loss) = (z(errors, their_error), z(losses, their_loss));
        println!(
            "| {method} | {degree} | {count} | {their_error:.4} | {:.4} +- {:.4} | {of_error:+.1} | {their_loss:.4} | {:.4} +- {:.4} | {of_loss:+.1} | {seconds:.1} |",
            errors.0, errors.1, losses.0, losses.1
        );
        if of_error.abs() > 4.0 || of_loss.abs() > 4.0 {
            wrong.push(format!("{method} p = {degree} D = {count}: z {of_error:+.1} {of_loss:+.1}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const METHODS: [&str; 7] =
    ["ctr-product-srht", "product-srht", "tensor-sketch", "ctr-rademacher", "rademacher", "ctr-gaussian", "gaussian"];

#[test]
#[ignore = "takes some ten minutes and needs ARGAND_DATA"]
fn mnist_agrees_with_the_authors() {
    let (Some(train), Some(test)) = (data::mnist("train"), data::mnist("t10k")) else { return };
    let [train, test] = [train, test].map(|(x, y)| Part { x, y });
    compare("MNIST", &METHODS, &[3], &[512, 2048], 5, |method, degree, features, seed| {
        classify(&train, &test, 10, spec(784, degree, features, method, seed))
    });
}

/// A fresh split for each seed: nine tenths to learn from, the rest to test on.
fn letter(degrees: &[usize], features: &[usize]) {
    let Some((x, y)) = data::letter() else { return };
    compare("Letter", &METHODS, degrees, features, 20, |method, degree, features, seed| {
        let mut order: Vec<usize> = (0..y.len()).collect();
        let mut stream = Stream::new(seed, Purpose::Sample, 11, 0);
        for position in 0..y.len() {
            order.swap(position, position + stream.below((y.len() - position) as u32) as usize);
        }
        let (test, train) = order.split_at(2000);
        let [train, test] = [train, test].map(|rows| Part {
            x: rows.iter().flat_map(|&row| &x[row * 16..][..16]).copied().collect(),
            y: rows.iter().map(|&row| y[row]).collect(),
        });
        classify(&train, &test, 26, spec(16, degree, features, method, seed))
    });
}

#[test]
#[ignore = "takes some ten minutes and needs ARGAND_DATA"]
fn letter_agrees_with_the_authors() {
    letter(&[3, 7], &[256, 1024]);
}

#[test]
#[ignore = "takes about twenty minutes per method and needs ARGAND_DATA"]
fn letter_with_many_features_agrees_with_the_authors() {
    letter(&[3, 7], &[4096]);
}
