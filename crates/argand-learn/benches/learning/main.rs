//! Sums of products beside the matrix product of the same library, and Gaussian processes beside plain algebra.
//!
//! `make bench`: sections `gram` and `gp`.

#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

#[allow(dead_code, reason = "the other bench uses the rest")]
#[path = "../../../argand/benches/features/report.rs"]
mod report;

use std::hint::black_box;
use std::time::Instant;

use argand::rng::{Purpose, Stream};
use argand::{FeatureMap, Input, Rows, Spec};
use argand_learn::{GpClassifier, GpOptions, Gram, Labels, PreparationFit, Recipe, Scaling, Targets};
use argand_linalg::{Cholesky, Matrix, View, ViewMut, product};
use rayon::prelude::*;

use report::{ROUNDS, Report, Table, best, data, goal, in_rounds};

/// Sums of products at the speed of a matrix product, one thread.
fn show_gram(report: &Report) {
    let mut table = Table::new(["D", "matrix product in f64, GFlop/s", "Gram, GFlop/s", "ratio, ≥ 0.85"]);
    for dim in [1024, 2048, 4096] {
        let rows = 4096;
        let features = data(rows * dim);
        let targets = vec![0.0; rows];
        let recipe = Recipe::from(Spec::polynomial(3).with_degree(2).with_features(dim));
        let mut gram = Gram::new(&recipe, Targets::Values(1)).expect("a small Gram");
        let mut out = vec![0.0_f64; dim * dim];
        // Both factors as this library likes them best, and in the precision of the sums.
        let factor: Vec<f64> = features.iter().map(|&feature| f64::from(feature)).collect();
        let factor = View::by_rows(&factor, dim, rows);
        let [plain, sums] = in_rounds(ROUNDS, || {
            let plain = best(0.5, || product(ViewMut::by_columns(&mut out, dim, dim), factor, factor.transpose(), 1.0));
            let sums = best(0.5, || {
                let labels = Labels::Values(Rows::new(&targets, rows, 1).expect("shape"));
                gram.update(Rows::new(&features, rows, dim).expect("shape"), labels).expect("finite");
            });
            [plain, sums]
        });
        let work = (rows * dim * dim) as f64 / 1e9;
        let ratio = plain / sums / 2.0;
        let cells = [format!("{:.0}", 2.0 * work / plain), format!("{:.0}", work / sums), goal(ratio, ratio >= 0.85)];
        table.push(std::iter::once(dim.to_string()).chain(cells));
    }
    let title = "Sums of products of 4,096 rows of features, one thread; half of a product's operations";
    report.table("gram", title, &table);
}

/// Gaussian process classification of as many rows as MNIST has, all threads.
fn show_gp(report: &Report) {
    const CLASSES: usize = 10;
    let (rows, columns, features, tested) = (60_000, 784, 2048, 10_000);
    let x = data(rows * columns);
    let mut stream = Stream::new(5, Purpose::Rows, 1, 0);
    let y: Vec<u32> = (0..rows).map(|_| stream.below(CLASSES as u32)).collect();
    let input: [Input<'_, f32>; 1] = [Rows::new(&x, rows, columns).expect("shape").into()];
    let few: [Input<'_, f32>; 1] = [Rows::new(&x[..tested * columns], tested, columns).expect("shape").into()];
    let preparation = PreparationFit::new(Scaling::Unit, &[columns]).finish().expect("no rows are needed");
    let recipe = Recipe::new(preparation, Spec::polynomial(columns).with_degree(3).with_features(features));
    let pipeline = recipe.pipeline::<f32>().expect("a valid spec");
    let (mut table, begun) = (Table::new(["step", "seconds"]), Instant::now());
    let mut gram = Gram::new(&recipe, Targets::ClassesApart(CLASSES)).expect("a small Gram");
    let summed = pipeline.for_each_block(&input, |range, block| gram.update(block, Labels::Classes(&y[range])));
    summed.expect("finite");
    let sums = begun.elapsed().as_secs_f64();
    let model = GpClassifier::fit(&gram, &GpOptions::default()).expect("well-conditioned");
    let ours = begun.elapsed().as_secs_f64();
    table.push(["features and sums of every class, one pass".to_owned(), format!("{sums:.1}")]);
    table.push([format!("{CLASSES} factorisations"), format!("{:.1}", ours - sums)]);
    for (name, variances) in [("means", false), ("means and variances", true)] {
        let begun = Instant::now();
        let predicted = pipeline.for_each_block(&few, |_, block| {
            if variances {
                black_box(model.predict(block)?);
            } else {
                black_box(model.means(block)?);
            }
            Ok(())
        });
        predicted.expect("finite");
        let what = format!("prediction of {tested} rows: {name}");
        table.push([what, format!("{:.1}", begun.elapsed().as_secs_f64())]);
    }
    let begun = Instant::now();
    let all = pipeline.transform(&input).expect("finite");
    let weights = plain(&all, &y, features, CLASSES);
    let theirs = begun.elapsed().as_secs_f64();
    black_box(weights);
    table.push(["the same fit, class by class in plain algebra".to_owned(), format!("{theirs:.1}")]);
    table.push(["ratio of the fits, ≥ 5".to_owned(), goal(theirs / ours, theirs / ours >= 5.0)]);
    let title = "GP classification: 60,000 x 784, p = 3, ctr-product-srht, D = 2048, 10 classes, all threads";
    report.table("gp", title, &table);
}

/// Φᵀdiag(1/v)Φ + I for every class by one matrix product each, on all threads, factored and solved.
fn plain(features: &[f32], labels: &[u32], dim: usize, classes: usize) -> Vec<Vec<f64>> {
    let rows = labels.len();
    let phi = View::by_rows(features, rows, dim);
    (0..classes)
        .map(|class| {
            let noise = |row: usize| if labels[row] as usize == class { 0.69 } else { 6.9 };
            let mut scaled = vec![0.0; features.len()];
            scaled.par_chunks_mut(dim).zip(features.par_chunks(dim)).enumerate().for_each(|(row, (to, from))| {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from / noise(row));
            });
            let scaled = View::by_rows(&scaled, rows, dim);
            let mut products = vec![0.0_f32; dim * dim];
            let width = dim.div_ceil(rayon::current_num_threads());
            let blocks = ViewMut::by_columns(&mut products, dim, dim).column_blocks(width);
            blocks
                .into_par_iter()
                .for_each(|(columns, out)| product(out, scaled.transpose(), phi.columns(columns), 1.0));
            let one = |i, j| if i == j { 1.0 } else { 0.0 };
            let matrix = Matrix::from_fn(dim, dim, |i, j| f64::from(products[j * dim + i]) + one(i, j));
            let sum = |i: usize| (0..rows).step_by(1000).map(|row| f64::from(features[row * dim + i])).sum();
            let [_, solution] =
                Cholesky::new(matrix).expect("positive definite").solve(&(0..dim).map(sum).collect::<Vec<f64>>());
            solution
        })
        .collect()
}

fn main() {
    let report = Report::from_arguments();
    if report.wants("gram") {
        let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
        single.install(|| show_gram(&report));
    }
    if report.wants("gp") {
        show_gp(&report);
    }
}
