//! Sums of products beside the matrix product of the same library, Gaussian processes beside plain algebra, and shortcuts beside the long way.
//!
//! `make bench`: sections `gram`, `gp` and `shortcuts`.

#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

#[allow(dead_code, reason = "the other bench uses the rest")]
#[path = "../../../argand/benches/features/report.rs"]
mod report;

use std::hint::black_box;
use std::time::Instant;

use argand::rng::{Purpose, Stream};
use argand::{FeatureMap, Input, Rows, Spec};
use argand_learn::{
    GpClassifier, GpOptions, Gram, Labels, POSTERIOR_SAMPLES, PreparationFit, Recipe, Ridge, RidgePath, Scaling,
    Targets,
};
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

/// Labels of a Gaussian process, by the variances that decide and by all of them, and ridge of fewer rows than features by its rows and by
/// its sums; all threads.
fn show_shortcuts(report: &Report) {
    const CLASSES: usize = 26;
    let (rows, columns, features) = (20_000, 16, 1024);
    let mut stream = Stream::new(6, Purpose::Rows, 2, 0);
    let centres: Vec<f32> = (0..CLASSES * columns).map(|_| stream.complex_normal().0 as f32).collect();
    let y: Vec<u32> = (0..rows).map(|_| stream.below(CLASSES as u32)).collect();
    // A fifth of the rows are nearer to another class than to their own.
    let x: Vec<f32> = y
        .iter()
        .flat_map(|&class| {
            let centre = &centres[class as usize * columns..][..columns];
            centre.iter().map(|centre| centre + 0.8 * stream.complex_normal().0 as f32).collect::<Vec<_>>()
        })
        .collect();
    let input: [Input<'_, f32>; 1] = [Rows::new(&x, rows, columns).expect("shape").into()];
    let preparation = PreparationFit::new(Scaling::Unit, &[columns]).finish().expect("no rows are needed");
    let recipe = Recipe::new(preparation, Spec::polynomial(columns).with_degree(3).with_features(features));
    let all = recipe.pipeline::<f32>().and_then(|pipeline| pipeline.transform(&input)).expect("a valid spec");
    let block = Rows::new(&all, rows, features).expect("shape");
    let mut gram = Gram::new(&recipe, Targets::ClassesApart(CLASSES)).expect("a small Gram");
    gram.update(block, Labels::Classes(&y)).expect("finite");
    let model = GpClassifier::fit(&gram, &GpOptions::default()).expect("well-conditioned");
    let all_variances = || model.predict(block).and_then(|found| found.labels(POSTERIOR_SAMPLES, 0)).expect("finite");
    let few_variances = || model.labels(block).expect("finite");
    assert_eq!(all_variances(), few_variances());
    let [slow, fast] = in_rounds(ROUNDS, || {
        [best(0.0, || drop(black_box(all_variances()))), best(0.0, || drop(black_box(few_variances())))]
    });
    let mut table = Table::new(["", "all of it, seconds", "what decides, seconds", "ratio"]);
    let cells = |[slow, fast]: [f64; 2]| [format!("{slow:.2}"), format!("{fast:.2}"), format!("{:.1}", slow / fast)];
    let labels = "labels of 20,000 rows by a GP, D = 1024, 26 classes".to_owned();
    table.push(std::iter::once(labels).chain(cells([slow, fast])));
    let few = 400;
    let some = Rows::new(&all[..few * features], few, features).expect("shape");
    let mut kept = Gram::new(&recipe, Targets::Classes(CLASSES)).expect("a small Gram");
    kept.update(some, Labels::Classes(&y[..few])).expect("finite");
    // Rows of zeros up to D have the same products; n and the mean differ.
    let zeros = vec![0.0; features * features];
    let padding = Rows::new(&zeros, features, features).expect("shape");
    let mut sums = kept.clone();
    sums.update(padding, Labels::Classes(&vec![0; features])).expect("finite");
    for (name, path) in [("one penalty", false), ("all penalties", true)] {
        let fit = |gram: &Gram| {
            if path {
                RidgePath::new(gram).and_then(|path| path.at(1.0)).expect("well-conditioned")
            } else {
                Ridge::fit(gram, 1.0).expect("well-conditioned")
            }
        };
        let times = in_rounds(ROUNDS, || {
            [best(0.0, || drop(black_box(fit(&sums)))), best(0.0, || drop(black_box(fit(&kept))))]
        });
        table.push(std::iter::once(format!("ridge of 400 rows, D = 1024, {name}")).chain(cells(times)));
    }
    report.table("shortcuts", "Labels by the variances that decide, and ridge by way of few rows; all threads", &table);
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
    if report.wants("shortcuts") {
        show_shortcuts(&report);
    }
}
