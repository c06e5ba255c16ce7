//! Files of every released version: they are read, and predict what they did when they were written.
//!
//! `fixture/vN` holds what version N of the format wrote: one file of every kind, specs of every family of methods, and
//! `expected.json` with numbers that came of them. Files of a version are never written again; a new version gets a folder of its
//! own, with `cargo test -p argand-learn --test versions -- --ignored`, and a line in `VERSIONS`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use argand::{FeatureMap, Rows, Scalar, Spec};
use argand_learn::online::{Pooling, SoftmaxClassifier, SoftmaxLayer, TRAINING, Trainer, TrainerOptions};
use argand_learn::{
    Archive, GpClassifier, GpOptions, GpRegressor, Gram, Labels, Model, Predicts, PreparationFit, Recipe, Ridge,
    Scaling, Targets, Variances, kinds, read_model,
};

/// Versions of the format that were released.
const VERSIONS: [u32; 1] = [1];

/// One method of every family, by name.
const METHODS: [&str; 11] = [
    "gaussian",
    "ctr-gaussian",
    "rademacher",
    "complex-rademacher",
    "ctr-product-srht",
    "ctr-tensor-srht",
    "tensor-sketch",
    "hierarchical-ctr-product-srht",
    "chain-ctr-rademacher",
    "craft-ctr-product-srht",
    "srf",
];

const COLUMNS: usize = 3;
const KNOWN: usize = 36;
const ALL: usize = 40;

/// Rows from arithmetic alone, so that they are the same in all versions.
fn number<T: Scalar>(row: usize, column: usize) -> T {
    T::from_f64(((row * 37 + column * 23 + row * column * 5) % 29) as f64 / 8.0 - 1.5)
}

fn rows<T: Scalar>(range: Range<usize>) -> Vec<T> {
    range.flat_map(|row| (0..COLUMNS).map(move |column| number(row, column))).collect()
}

fn class(row: usize, classes: u32) -> u32 {
    u32::try_from(row).unwrap() * 5 % classes
}

/// What the command line adds to its files.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Note {
    classes: Option<Vec<String>>,
    label_column: Option<String>,
}

fn note() -> Note {
    Note { classes: None, label_column: Some("kind".to_owned()) }
}

fn folder(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixture/v{version}"))
}

fn spec(method: &str) -> Spec {
    let method: argand::Method = method.parse().unwrap();
    let method = if method.craft().is_some() { method.with_craft_dim(16) } else { method };
    Spec::polynomial(COLUMNS)
        .with_degree(3)
        .with_gamma(0.5)
        .with_coef0(0.5)
        .with_features(8)
        .with_method(method)
        .with_seed(7)
}

/// Features of some rows, by the recipe that a file holds.
fn features(recipe: &Recipe, range: Range<usize>) -> Vec<f32> {
    let (count, x) = (range.len(), rows::<f32>(range));
    recipe.pipeline().unwrap().transform(&[Rows::new(&x, count, COLUMNS).unwrap().into()]).unwrap()
}

fn gram(recipe: &Recipe, targets: Targets) -> Gram {
    let mut gram = Gram::new(recipe, targets).unwrap();
    let features = features(recipe, 0..KNOWN);
    let values: Vec<f64> = (0..KNOWN * targets.columns()).map(|at| number::<f64>(at, 1)).collect();
    let classes: Vec<u32> = (0..KNOWN).map(|row| class(row, u32::try_from(targets.columns()).unwrap())).collect();
    let labels = match targets {
        Targets::Values(columns) => Labels::Values(Rows::new(&values, KNOWN, columns).unwrap()),
        Targets::Classes(_) | Targets::ClassesApart(_) => Labels::Classes(&classes),
    };
    gram.update(Rows::new(&features, KNOWN, recipe.spec.features).unwrap(), labels).unwrap();
    gram
}

/// What a model makes of rows that it has not seen.
fn predicted(model: &dyn Model) -> Vec<f64> {
    let features = features(model.recipe(), KNOWN..ALL);
    let features = Rows::new(&features, ALL - KNOWN, model.recipe().spec.features).unwrap();
    let mut numbers = model.predict(features).unwrap();
    numbers.extend(
        model.latent(features).unwrap().into_iter().flat_map(|latent| [latent.means, latent.variances].concat()),
    );
    numbers.extend(model.evidence());
    numbers
}

/// What can be computed from any of the files.
fn numbers(archive: Archive) -> Vec<f64> {
    match archive.kind() {
        "gram" => {
            let gram = Gram::from_archive(archive).unwrap();
            [vec![gram.rows() as f64], predicted(&Ridge::fit(&gram, 0.5).unwrap())].concat()
        }
        TRAINING => {
            let trainer = Trainer::from_archive(archive).unwrap();
            let state = vec![f64::from(trainer.epochs()), trainer.learning_rate()];
            let recipe = Recipe::from(spec("ctr-product-srht"));
            [state, predicted(&SoftmaxClassifier::new(recipe, trainer.into_best()).unwrap())].concat()
        }
        _ => predicted(&*read_model(archive).unwrap()),
    }
}

/// Features of some rows, in double precision.
fn spec_numbers(json: &str) -> Vec<f64> {
    let x = rows::<f64>(0..2);
    let sketch = Spec::from_json(json).unwrap().sketch::<f64>().unwrap();
    sketch.transform(&[Rows::new(&x, 2, COLUMNS).unwrap().into()]).unwrap()
}

fn assert_close(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{name}");
    let size = want.iter().fold(1.0_f64, |most, value| most.max(value.abs()));
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * size, "{name} at {at}: {got}, expected {want}");
    }
}

#[test]
fn files_of_every_version_predict_what_they_did() {
    for version in VERSIONS {
        let folder = folder(version);
        let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: BTreeMap<String, Vec<f64>> = serde_json::from_str(&expected).unwrap();
        let mut left: Vec<&str> = kinds().chain(["gram", TRAINING]).collect();
        for (name, want) in &expected {
            let path = folder.join(name);
            if name.ends_with(".json") {
                let json = fs::read_to_string(&path).unwrap();
                assert_close(name, &spec_numbers(&json), want, 1e-12);
                assert_eq!(Spec::from_json(&json).unwrap().method, spec(name.split('.').nth(1).unwrap()).method);
                continue;
            }
            let archive = Archive::from_bytes(&fs::read(&path).unwrap()).unwrap();
            assert_eq!(archive.note::<Note>().unwrap(), note());
            left.retain(|kind| *kind != archive.kind());
            // Features in single precision round in different ways on different processors.
            assert_close(name, &numbers(archive), want, 1e-5);
        }
        assert!(left.is_empty(), "there is no file of {left:?}");
        assert_eq!(expected.keys().filter(|name| name.ends_with(".json")).count(), METHODS.len());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), expected.len() + 1, "a file without expected numbers");
    }
}

/// The registry reads every model as what it is, and writes the same bytes again.
#[test]
fn files_are_written_as_they_were_read() {
    let newest = VERSIONS[VERSIONS.len() - 1];
    for entry in fs::read_dir(folder(newest)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let archive = Archive::from_bytes(&bytes).unwrap();
        let again = match archive.kind() {
            "gram" => Gram::from_archive(archive).unwrap().to_archive(),
            TRAINING => Trainer::from_archive(archive).unwrap().to_archive(),
            _ => {
                let model = read_model(archive).unwrap();
                let regression = path.to_string_lossy().contains("regression");
                assert_eq!(matches!(model.predicts(), Predicts::Values(_)), regression, "{path:?}");
                model.to_archive()
            }
        };
        assert!(again.with_note(&note()).to_bytes() == bytes, "{path:?}");
    }
}

#[test]
#[ignore = "writes the files of a new version"]
fn write_the_files_of_a_new_version() {
    let version = u32::from_le_bytes(
        Ridge::fit(&gram(&spec("gaussian").into(), Targets::Values(1)), 1.0).unwrap().to_archive().to_bytes()[8..12]
            .try_into()
            .unwrap(),
    );
    let folder = folder(version);
    assert!(!folder.exists(), "files of version {version} are written once");
    let mut fit = PreparationFit::new(Scaling::Standard, &[COLUMNS]);
    fit.update(&[Rows::new(&rows::<f32>(0..KNOWN), KNOWN, COLUMNS).unwrap().into()]).unwrap();
    let recipe = Recipe::new(fit.finish().unwrap(), spec("ctr-product-srht"));
    let recipe = &recipe;
    // With 24 features, classes of six rows are kept and share a factor.
    let wide = &Recipe::new(recipe.preparation.clone(), recipe.spec.clone().with_features(24));
    let trainer = {
        let pooling = Pooling { signed_sqrt: true, l2: true };
        let layer = SoftmaxLayer::new(3, 8, pooling).unwrap();
        let options = TrainerOptions { batch: 8, learning_rate: 0.05, patience: 1, seed: 3 };
        let mut trainer = Trainer::new(layer, options).unwrap();
        let (x, labels) = (rows::<f32>(0..KNOWN), (0..KNOWN).map(|row| class(row, 3)).collect::<Vec<_>>());
        let sketch = recipe.spec.sketch::<f32>().unwrap();
        for loss in [0.9, 1.1] {
            trainer.train_block(&sketch, &[Rows::new(&x, KNOWN, COLUMNS).unwrap().into()], &labels).unwrap();
            trainer.end_epoch(Some(loss)).unwrap();
        }
        trainer
    };
    let softmax = SoftmaxClassifier::new(recipe.clone(), trainer.clone().into_best()).unwrap();
    let variances = Variances { kernel: 2.0, noise: 0.1 };
    let archives = [
        ("ridge-regression", Ridge::fit(&gram(recipe, Targets::Values(2)), 0.5).unwrap().to_archive()),
        ("ridge-classification", Ridge::fit(&gram(recipe, Targets::Classes(3)), 0.5).unwrap().to_archive()),
        (
            "gp-classification",
            GpClassifier::fit(&gram(recipe, Targets::ClassesApart(3)), &GpOptions::default()).unwrap().to_archive(),
        ),
        (
            "gp-classification-shared",
            GpClassifier::fit(&gram(wide, Targets::ClassesApart(6)), &GpOptions::default()).unwrap().to_archive(),
        ),
        ("gp-regression", GpRegressor::fit(&gram(recipe, Targets::Values(1)), Some(variances)).unwrap().to_archive()),
        ("softmax", softmax.to_archive()),
        ("softmax-training", trainer.to_archive()),
        ("gram-sums", gram(recipe, Targets::Values(2)).to_archive()),
        ("gram-rows", gram(wide, Targets::ClassesApart(6)).to_archive()),
    ];
    fs::create_dir(&folder).unwrap();
    let mut expected = BTreeMap::new();
    for (name, archive) in archives {
        let archive = archive.with_note(&note());
        fs::write(folder.join(name), archive.to_bytes()).unwrap();
        expected.insert(name.to_owned(), numbers(archive));
    }
    for method in METHODS {
        // Drawn, for the fit of spherical features.
        let json = spec(method).sketch::<f64>().unwrap().spec().to_json();
        let name = format!("spec.{method}.json");
        fs::write(folder.join(&name), &json).unwrap();
        expected.insert(name, spec_numbers(&json));
    }
    fs::write(folder.join("expected.json"), serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
}
