//! Classes by way of their rows, by sums and by the kernel; models in files.

use argand::Rows;

use super::*;
use crate::archive::Archive;
use crate::factor::load_updates;
use crate::gram::tests::problem;
use crate::{Gram, Labels, Recipe, Targets};

const DIM: usize = 66;
const CLASSES: usize = 6;
/// Classes of at most 24 rows are kept, four of them.
const KNOWN: usize = 130;

/// Features of 150 rows times a number, and their classes; if they are redundant, with six that differ and their multiples.
fn features(redundant: bool, factor: f32) -> (Recipe, Vec<f32>, Vec<u32>) {
    let (recipe, mut features, labels) = problem(150, DIM, 6);
    for row in features.chunks_mut(DIM) {
        let first: [f32; 6] = std::array::from_fn(|i| row[i]);
        for (i, value) in row.iter_mut().enumerate() {
            *value = factor * if redundant { first[i % 6] * (1.0 + (i / 6) as f32 / 7.0) } else { *value };
        }
    }
    (recipe, features, labels)
}

fn gram(recipe: &Recipe, features: &[f32], labels: &[u32]) -> Gram {
    let mut gram = Gram::new(recipe, Targets::ClassesApart(CLASSES)).unwrap();
    let known = Rows::new(&features[..KNOWN * DIM], KNOWN, DIM).unwrap();
    gram.update(known, Labels::Classes(&labels[..KNOWN])).unwrap();
    gram
}

fn others(features: &[f32]) -> Rows<'_, f32> {
    Rows::new(&features[KNOWN * DIM..], 150 - KNOWN, DIM).unwrap()
}

/// The largest difference of means, variances and likelihoods, absolute of numbers below one and relative of others.
fn difference(got: (&GpPrediction, f64), want: (&GpPrediction, f64)) -> f64 {
    let numbers = |(prediction, likelihood): (&GpPrediction, f64)| {
        [&prediction.means[..], &prediction.variances, &[likelihood]].concat()
    };
    let (got, want) = (numbers(got), numbers(want));
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| (got - want).abs() / want.abs().max(1.0)).fold(0.0, f64::max)
}

/// By way of kept rows, by factors of their own and by the kernel matrix: one process, on features that are scaled and
/// that are not, that are independent and that repeat each other.
#[test]
fn classes_are_the_same_by_rows_and_by_sums() {
    for (redundant, factor, of_sums, of_kernel) in
        [(false, 1.0, 1e-11, 1e-11), (false, 1e4, 1e-11, 1e-3), (true, 1.0, 1e-10, 1e-10), (true, 1e4, 1e-6, 1e-3)]
    {
        let (recipe, features, labels) = features(redundant, factor);
        let gram = gram(&recipe, &features, &labels);
        let phi = |row: usize, i: usize| f64::from(features[row * DIM + i]);
        let kernel = |(a, b): (usize, usize)| (0..DIM).map(|i| phi(a, i) * phi(b, i)).sum::<f64>();
        let with_known = |rows: std::ops::Range<usize>| -> Vec<f64> {
            rows.flat_map(|a| (0..KNOWN).map(move |b| (a, b))).map(kernel).collect()
        };
        let own: Vec<f64> = (KNOWN..150).map(|row| kernel((row, row))).collect();
        for options in [GpOptions::default(), GpOptions { alpha: 1e-8, variance: Some(2.0) }] {
            let model = GpClassifier::fit(&gram, &options).unwrap();
            let direct = GpClassifier::fit(&gram.folded(), &options).unwrap();
            assert_eq!(model.header.updates.iter().flatten().count(), 4, "{:?}", model.header.updates);
            assert!(direct.base.is_none() && direct.header.updates.is_empty());
            let exact = ExactGp::classes(&with_known(0..KNOWN), &labels[..KNOWN], CLASSES, &options).unwrap();
            let of_exact = exact.predict(&with_known(KNOWN..150), &own).unwrap();
            let [got, of_direct] = [&model, &direct].map(|model| model.predict(others(&features)).unwrap());
            let got = (&got, model.log_marginal_likelihood());
            let [from_sums, from_kernel] = [
                difference(got, (&of_direct, direct.log_marginal_likelihood())),
                difference(got, (&of_exact, exact.log_marginal_likelihood())),
            ];
            let found = format!("{redundant} {factor}: {from_sums:e} {from_kernel:e}");
            assert!(from_sums < of_sums && from_kernel < of_kernel, "{found}");
            assert_eq!(model.means(others(&features)).unwrap(), got.0.means);
        }
    }
    // What f64 cannot hold is refused, as by factors of their own.
    let (recipe, features, labels) = features(true, 1e9);
    let error = GpClassifier::fit(&gram(&recipe, &features, &labels), &GpOptions::default()).unwrap_err();
    assert!(error.to_string().contains("the system of class"), "{error}");
}

/// One class of few rows among others has a factor of its own.
#[test]
fn few_rows_are_used_only_where_that_saves_something() {
    let (recipe, features, mut labels) = features(false, 1.0);
    labels.iter_mut().zip(0..).for_each(|(label, row)| *label = if row < 3 { 0 } else { row % 5 + 1 });
    let gram = gram(&recipe, &features, &labels);
    assert!(gram.kept(0).is_some() && gram.kept(1).is_none());
    let model = GpClassifier::fit(&gram, &GpOptions::default()).unwrap();
    assert!(model.base.is_none() && model.header.updates.is_empty());
    let direct = GpClassifier::fit(&gram.folded(), &GpOptions::default()).unwrap();
    let [got, want] = [&model, &direct].map(|model| model.predict(others(&features)).unwrap());
    assert!(difference((&got, 0.0), (&want, 0.0)) < 1e-11);
}

#[test]
fn threads_and_files_change_nothing() {
    let (recipe, features, labels) = features(false, 1.0);
    let learn = || {
        let model = GpClassifier::fit(&gram(&recipe, &features, &labels), &GpOptions::default()).unwrap();
        let prediction = model.predict(others(&features)).unwrap();
        (model, prediction)
    };
    let (model, prediction) = learn();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(threads.install(learn), (model.clone(), prediction.clone()));
    let read = GpClassifier::from_archive(Archive::from_bytes(&model.to_archive().to_bytes()).unwrap()).unwrap();
    assert_eq!((read.predict(others(&features)).unwrap(), read), (prediction, model.clone()));
    let refused = |change: &dyn Fn(&mut GpClassifier)| {
        let mut changed = model.clone();
        change(&mut changed);
        GpClassifier::from_archive(changed.to_archive()).unwrap_err().to_string()
    };
    let first = model.header.updates.iter().position(Option::is_some).unwrap();
    assert!(refused(&|model| model.base = None).contains("\"base\" is missing"));
    assert!(refused(&|model| model.header.updates.truncate(5)).contains("5 classes, not of 6"));
    assert!(refused(&|model| model.header.updates.clear()).contains("\"factors\" has"));
    assert!(refused(&|model| model.header.updates[first] = None).contains("\"factors\" has"));
    assert!(refused(&|model| model.header.updates[first] = Some(1)).contains("\"updates\" has"));
    assert!(refused(&|model| model.header.updates[first] = Some(usize::MAX)).contains("any memory"));
    let long = load_updates(&mut Archive::new("x", &()).with_f64("updates", vec![0.8; 6]), &[1, 2], 2);
    assert!(long.unwrap_err().to_string().contains("more than all of the variance"));
}
