//! What the commands choose and score, against the library and against definitions: each of these was once wrong in a way that
//! no other test noticed.

use argand::rng::{Purpose, Stream};
use argand::{FeatureMap, Input, Rows};
use argand_learn::{
    Archive, GpClassifier, GpOptions, GpRegressor, Gram, Labels, Model, Pipeline, PreparationFit, Recipe, RidgePath,
    Scaling, Targets, read_model,
};

use crate::models::{labelled_csv, names, npy_column, number, points, value};
use crate::support::*;

fn model(workspace: &Workspace, name: &str) -> Box<dyn Model> {
    read_model(Archive::from_bytes(&workspace.read(name)).unwrap()).unwrap()
}

fn features(pipeline: &Pipeline<f32>, table: &Table) -> Vec<f32> {
    pipeline.transform(&[table.view(&table.singles())]).unwrap()
}

/// A third of the labels are wrong: who chooses on the rows that were learnt from, trusts them too much.
fn noisy(rows: usize, seed: u64) -> (Table, Vec<bool>) {
    let (table, same) = points(rows, seed);
    let mut stream = Stream::new(seed + 100, Purpose::Sample, 9, 0);
    let labels = same.iter().map(|&same| same != (stream.uniform() < 0.35)).collect();
    (table, labels)
}

#[test]
fn penalties_and_noise_are_chosen_on_validation_rows() {
    let workspace = Workspace::new();
    let [(train, train_labels), (test, test_labels)] = [noisy(120, 1), noisy(400, 2)];
    workspace.write("train.csv", labelled_csv(&train, &names(&train_labels)));
    workspace.write("test.csv", labelled_csv(&test, &names(&test_labels)));
    let flags = "--labels kind --features 64 --degree 4 --coef0 1 --validation test.csv -o m";
    workspace.succeed(&format!("fit train.csv --model ridge {flags}"));
    let chosen = number(&workspace.succeed("info m").stdout, "lambda");
    let recipe = model(&workspace, "m").recipe().clone();
    let pipeline = recipe.pipeline::<f32>().unwrap();
    // Classes are in the order of their names: "not, the same", then "same".
    let classes = |labels: &[bool]| labels.iter().map(|&same| u32::from(same)).collect::<Vec<_>>();
    let sums = |table: &Table, labels: &[bool], targets: Targets| {
        let mut gram = Gram::new(&recipe, targets).unwrap();
        let features = features(&pipeline, table);
        gram.update(Rows::new(&features, labels.len(), 64).unwrap(), Labels::Classes(&classes(labels))).unwrap();
        gram
    };
    let gram = sums(&train, &train_labels, Targets::Classes(2));
    let path = RidgePath::new(&gram).unwrap();
    let best = |other: &Gram| {
        let lambdas = path.lambdas();
        lambdas
            .into_iter()
            .min_by(|a, b| path.held_out(other, *a).unwrap().total_cmp(&path.held_out(other, *b).unwrap()))
            .unwrap()
    };
    let held_out = best(&sums(&test, &test_labels, Targets::Classes(2)));
    assert!((chosen / held_out - 1.0).abs() < 1e-9, "{chosen} {held_out}");
    assert!(
        held_out > 10.0 * best(&gram),
        "the rows that were learnt from would choose another: {held_out} {}",
        best(&gram)
    );

    let alphas = [1e-4, 1e-2, 0.1, 0.5];
    workspace.succeed(&format!("fit train.csv --model gp --alpha 0.0001,0.01,0.1,0.5 {flags}"));
    let chosen = number(&workspace.succeed("info m").stdout, "alpha");
    let apart = sums(&train, &train_labels, Targets::ClassesApart(2));
    let best = |table: &Table, labels: &[bool]| {
        let features = features(&pipeline, table);
        let rows = Rows::new(&features, labels.len(), 64).unwrap();
        let loss = |alpha: f64| {
            let model = GpClassifier::fit(&apart, &GpOptions { alpha, variance: None }).unwrap();
            Model::score(&model, rows, Labels::Classes(&classes(labels))).unwrap().loss()
        };
        alphas.into_iter().min_by(|a, b| loss(*a).total_cmp(&loss(*b))).unwrap()
    };
    let held_out = best(&test, &test_labels);
    assert_eq!(chosen, held_out);
    assert_ne!(held_out, best(&train, &train_labels), "the rows that were learnt from would choose another");
}

#[test]
fn scaling_is_learnt_without_the_held_out_rows() {
    let workspace = Workspace::new();
    let (table, same) = points(300, 1);
    workspace.write("train.csv", labelled_csv(&table, &names(&same)));
    workspace.succeed(
        "fit train.csv --labels kind --model ridge -o m --features 16 --scaling standard --validation 0.4 --seed 7",
    );
    // The documented split: one uniform number per row, held out up to the fraction.
    let mut stream = Stream::new(7, Purpose::Sample, 2, 0);
    let kept: Vec<f32> =
        table.singles().chunks(2).filter(|_| stream.uniform() > 0.4).flat_map(<[f32]>::to_vec).collect();
    let fitted = |values: &[f32]| {
        let mut fit = PreparationFit::new(Scaling::Standard, &[2]);
        fit.update(&[Input::from(Rows::new(values, values.len() / 2, 2).unwrap())]).unwrap();
        fit.finish().unwrap()
    };
    let found = model(&workspace, "m").recipe().preparation.clone();
    assert_eq!(found, fitted(&kept));
    assert_ne!(found, fitted(&table.singles()));
}

#[test]
fn scores_of_numbers_are_those_of_their_definitions() {
    let workspace = Workspace::new();
    let (table, _) = points(200, 3);
    let mut stream = Stream::new(9, Purpose::Sample, 9, 0);
    // Far from zero: a sum of squares that is not centred would be a thousand times too large.
    let targets: Vec<f64> = table.rows().map(|row| 40.0 + row[0] * row[1] + 0.2 * stream.uniform()).collect();
    workspace.write("x.npy", table.npy());
    workspace.write("y.npy", npy_column("<f8", 200, &targets.iter().flat_map(|y| y.to_le_bytes()).collect::<Vec<_>>()));
    workspace.succeed("fit x.npy --labels y.npy --task regression --model gp -o m --features 32 --coef0 1");
    let evaluated = workspace.succeed("evaluate m x.npy --labels y.npy").stdout;
    let gp = GpRegressor::from_archive(Archive::from_bytes(&workspace.read("m")).unwrap()).unwrap();
    let recipe: &Recipe = gp.recipe();
    let features = features(&recipe.pipeline::<f32>().unwrap(), &table);
    let predicted = gp.predict(Rows::new(&features, 200, 32).unwrap()).unwrap();
    let errors: Vec<f64> = predicted.means.iter().zip(&targets).map(|(got, want)| (got - want).powi(2)).collect();
    let mean = targets.iter().sum::<f64>() / 200.0;
    let spread: f64 = targets.iter().map(|y| (y - mean).powi(2)).sum();
    let noise = gp.variances().noise;
    let likelihood = |(error, variance): (&f64, &f64)| {
        let variance = variance + noise;
        0.5 * (std::f64::consts::TAU * variance).ln() + error / (2.0 * variance)
    };
    let mnll = errors.iter().zip(&predicted.variances).map(likelihood).sum::<f64>() / 200.0;
    let rmse = (errors.iter().sum::<f64>() / 200.0).sqrt();
    let r2 = 1.0 - errors.iter().sum::<f64>() / spread;
    for (name, want) in [("rmse", rmse), ("r2", r2), ("mnll", mnll)] {
        let got = number(&evaluated, name);
        assert!((got - want).abs() < 2e-6 * want.abs().max(1.0), "{name}: {got} {want}");
    }
    // Far enough from what slips would give.
    assert!(r2 < 0.99 && noise > 1e-3, "{r2} {noise}");
}

#[test]
fn classes_that_are_numbers_are_in_the_order_of_numbers() {
    let workspace = Workspace::new();
    let (table, _) = points(90, 4);
    workspace.write("x.npy", table.npy());
    let labels: String = (0..90).map(|row| ["10\n", "100\n", "9\n"][row % 3]).collect();
    workspace.write("y.csv", format!("y\n{labels}"));
    workspace.succeed("fit x.npy --labels y.csv --model gp -o m --features 8");
    assert_eq!(value(&workspace.succeed("info m").stdout, "predicts"), "3 classes: 9, 10, 100");
    workspace.succeed("predict m x.npy -o p.csv --proba");
    assert!(workspace.read("p.csv").starts_with(b"9,10,100\n"));
}

#[test]
fn plans_obey_the_memory_limit_of_the_command_line() {
    let workspace = Workspace::new();
    workspace.write("x.npy", Table::new(100, 40).npy());
    let plan = "plan x.npy --degree 3 --features 16384 --method gaussian,ctr-product-srht --json";
    let count = |flags: &str| {
        let answer = workspace.succeed(&format!("{plan} {flags}"));
        let plan: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        plan["candidates"].as_array().unwrap().len()
    };
    // Dense weights take 3 · 40 · 16384 numbers, 8 MB; the other's signs a few kilobytes.
    assert_eq!((count(""), count("--memory-limit 4")), (2, 1));
}
