//! `argand fit`, `predict` and `evaluate` from the user's side.

use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use argand::rng::{Purpose, Stream};
use argand::{Input, Rows, Spec};
use argand_learn::{Gram, Labels, Recipe, Ridge, Targets};
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};

use crate::support::*;

/// Points in the plane, away from the axes, and whether their coordinates have the same sign: no line separates the two
/// classes, but a polynomial of degree 2 does.
pub fn points(rows: usize, seed: u64) -> (Table, Vec<bool>) {
    let mut stream = Stream::new(seed, Purpose::Sample, 9, 0);
    let mut coordinate = || {
        // Multiples of 1/64 are exact in f32.
        let magnitude = f64::from(20 + stream.below(45)) / 64.0;
        if stream.bits() & 1 == 0 { magnitude } else { -magnitude }
    };
    let table = Table { columns: 2, values: (0..2 * rows).map(|_| coordinate()).collect() };
    let same = table.rows().map(|row| row[0] * row[1] > 0.0).collect();
    (table, same)
}

pub fn names(same: &[bool]) -> Vec<&'static str> {
    same.iter().map(|&same| if same { "same" } else { "not, the same" }).collect()
}

/// A CSV file whose second column holds the labels.
pub fn labelled_csv(table: &Table, labels: &[&str]) -> String {
    let lines = table.rows().zip(labels).map(|(row, label)| format!("{},\"{label}\",{}\n", row[0], row[1]));
    "x,kind,y\n".to_owned() + &lines.collect::<String>()
}

/// The same table as a Parquet file.
fn labelled_parquet(table: &Table, labels: &[&str]) -> Vec<u8> {
    let column = |index: usize| Arc::new(table.rows().map(|row| row[index]).collect::<Float64Array>()) as ArrayRef;
    let labels: ArrayRef = Arc::new(StringArray::from(labels.to_vec()));
    parquet(&RecordBatch::try_from_iter([("x", column(0)), ("kind", labels), ("y", column(1))]).unwrap())
}

/// A one-dimensional NPY file.
pub fn npy_column(dtype: &str, rows: usize, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({rows},), }}");
    [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes(), data].concat()
}

/// A workspace with 300 labelled training rows and 200 others.
pub fn workspace() -> (Workspace, Vec<bool>) {
    let workspace = Workspace::new();
    let (train, same) = points(300, 1);
    workspace.write("train.csv", labelled_csv(&train, &names(&same)));
    workspace.write("train.parquet", labelled_parquet(&train, &names(&same)));
    workspace.write("train.npy", train.npy());
    let (test, same) = points(200, 2);
    workspace.write("test.csv", labelled_csv(&test, &names(&same)));
    workspace.write("test.npy", test.npy());
    (workspace, same)
}

/// One line printed by `evaluate` or `info`.
pub fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    assert!(line.is_some(), "{name} is missing in {text}");
    line.unwrap()[name.len()..].trim()
}

pub fn number(text: &str, name: &str) -> f64 {
    value(text, name).parse().unwrap()
}

const SOFTMAX: &str = "--model softmax --epochs 6 --learning-rate 0.05 --batch 16";

/// The same rows and labels in the style of UCI's and MNIST's files: text without a header and with the label first, and
/// gzipped small whole numbers with labels in another file.
#[test]
fn files_of_uci_and_mnist_are_learnt_from() {
    let (workspace, _) = workspace();
    for (name, seed) in [("train", 1), ("test", 2)] {
        let (table, same) = points(300, seed);
        let whole = |row: &[f64]| [row[0], row[1]].map(|value| (64.0 * value).to_string());
        let lines = table.rows().zip(&same).map(|(row, &same)| {
            let label = if same { "S" } else { "N" };
            let [x, y] = whole(row);
            (format!("{label},{x},{y}\n"), format!("{x},{y}\n"))
        });
        let (labelled, bare): (String, String) = lines.unzip();
        workspace.write(&format!("{name}.data"), labelled);
        workspace.write(&format!("{name}-bare.data"), bare);
        #[allow(clippy::cast_possible_truncation, reason = "whole numbers of at most 64")]
        let pixels: Vec<u8> = table.values.iter().flat_map(|value| ((64.0 * value) as i8).to_be_bytes()).collect();
        let images = [&[0, 0, 0x09, 3, 0, 0, 1, 44, 0, 0, 0, 1, 0, 0, 0, 2][..], &pixels].concat();
        workspace.write(&format!("{name}-images-idx3-ubyte.gz"), gzip(&images));
        let labels: Vec<u8> = same.iter().map(|&same| u8::from(same)).collect();
        let labels = [&[0, 0, 0x08, 1, 0, 0, 1, 44][..], &labels].concat();
        workspace.write(&format!("{name}-labels.idx1-ubyte"), labels);
    }
    let mut errors = Vec::new();
    for (train, test) in [
        ("train.data --labels 0", "test.data --labels 0"),
        (
            "train-images-idx3-ubyte.gz --labels train-labels.idx1-ubyte",
            "test-images-idx3-ubyte.gz --labels test-labels.idx1-ubyte",
        ),
    ] {
        workspace.succeed(&format!("fit {train} --model gp -o m --features 64 --gamma 0.001"));
        let evaluated = workspace.succeed(&format!("evaluate m {test}")).stdout;
        assert_eq!(value(&evaluated, "rows"), "300");
        assert!(number(&evaluated, "error") < 0.03, "{train}: {evaluated}");
        errors.push(value(&evaluated, "error").to_owned());
    }
    assert_eq!(errors[0], errors[1]);

    // Rows without labels keep all columns: a number does not tell whether a column holds labels.
    workspace
        .succeed("fit train.data --labels 0 --validation test.data --model ridge -o m --features 64 --gamma 0.001");
    workspace.succeed("predict m test-bare.data -o p.csv");
    assert_eq!(workspace.read("p.csv").iter().filter(|&&byte| byte == b'\n').count(), 301);
    // The labels, which have no name, are where they were.
    workspace.succeed("predict m test.data -o q.csv");
    assert_eq!(workspace.read("p.csv"), workspace.read("q.csv"));
    workspace.refuse("evaluate m test-bare.data --labels 0", &["has 1 columns; the model is for 2"]);
    let fit = |labels: &str| format!("fit train.data --labels {labels} --model gp -o out.npy --features 64");
    workspace.refuse(&fit("kind"), &["--labels: expected a column or a file", "there are \"0\", \"1\", \"2\""]);
    workspace.refuse(&fit("1"), &["train.data: line 1, field 1"]);
    workspace.refuse(&fit("3"), &["--labels: expected a column or a file, found neither named 3"]);
    workspace.refuse(&fit("test-images-idx3-ubyte.gz"), &["train.data: line 1, field 1"]);
    let fit = |labels: &str| format!("fit train-bare.data --labels {labels} --model gp -o out.npy --features 64");
    workspace.refuse(&fit("2"), &["--labels: expected a column or a file, found neither named 2"]);
    workspace.refuse(&fit("test-images-idx3-ubyte.gz"), &["has 2 columns; expected one column of labels"]);
    workspace.refuse("predict m test-bare.data -o out.idx", &["out.idx: IDX files are only read; write .npy"]);
}

#[test]
fn every_model_learns_and_says_so() {
    let (workspace, same) = workspace();
    for (model, probabilities) in [("--model gp", true), ("--model ridge", false), (SOFTMAX, true)] {
        workspace.succeed(&format!("fit train.csv --labels kind {model} -o m --features 64"));
        let evaluated = workspace.succeed("evaluate m test.csv --labels kind").stdout;
        assert_eq!(value(&evaluated, "rows"), "200");
        assert!(number(&evaluated, "error") < 0.03, "{model}: {evaluated}");

        // Labels come back unchanged in every format, whether or not the file still has its own.
        for input in ["test.csv", "test.npy"] {
            for output in ["p.csv", "p.npy", "p.parquet"] {
                workspace.succeed(&format!("predict m {input} -o {output}"));
                let answer = workspace.succeed(&format!("evaluate m {input} --labels {output}"));
                assert_eq!(value(&answer.stdout, "error"), "0.000000", "{model} {input} {output}");
            }
        }
        let predicted = String::from_utf8(workspace.read("p.csv")).unwrap();
        let mut lines = predicted.lines();
        assert_eq!(lines.next(), Some("label"));
        let wrong = lines.zip(names(&same)).filter(|(line, name)| line.trim_matches('"') != *name).count();
        assert_eq!(format!("{:.6}", wrong as f64 / 200.0), value(&evaluated, "error"));

        if probabilities {
            workspace.succeed("predict m test.csv -o q.csv --proba");
            let text = String::from_utf8(workspace.read("q.csv")).unwrap();
            let mut lines = text.lines();
            assert_eq!(lines.next(), Some("\"not, the same\",same"));
            let mut loss = 0.0;
            for (line, &same) in lines.zip(&same) {
                let row: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
                assert!((row[0] + row[1] - 1.0).abs() < 1e-9 && row.iter().all(|p| *p >= 0.0), "{line}");
                loss -= row[usize::from(same)].ln() / 200.0;
            }
            assert!((loss - number(&evaluated, "mnll")).abs() < 1e-5, "{loss} {evaluated}");
        } else {
            assert!(!evaluated.contains("mnll"));
            workspace.refuse("predict m test.csv -o out.npy --proba", &["--proba", "ridge"]);
        }
        let info = workspace.succeed("info m").stdout;
        assert_eq!(value(&info, "predicts"), "2 classes: not, the same, same");
        assert_eq!((value(&info, "labels"), value(&info, "scaling")), ("column kind", "none"));
        assert!(value(&info, "features").starts_with("64 ") && value(&info, "kernel") == "(<x,y>)^2", "{info}");
    }
}

#[test]
fn labels_are_the_same_in_every_file() {
    let (workspace, _) = workspace();
    let (train, same) = points(300, 1);
    let digits: Vec<String> = same.iter().map(|&same| if same { "7" } else { "-1" }.to_owned()).collect();
    let bytes: Vec<u8> = same.iter().map(|&same| if same { 7 } else { 255 }).collect();
    let floats: Vec<u8> = same.iter().flat_map(|&same| if same { 7_f64 } else { -1.0 }.to_le_bytes()).collect();
    let text: ArrayRef = Arc::new(StringArray::from(digits.clone()));
    workspace.write("y.csv", digits.join("\n"));
    workspace.write("named.csv", "label\n".to_owned() + &digits.join("\n"));
    workspace.write("y.npy", npy_column("|i1", 300, &bytes));
    workspace.write("f.npy", npy_column("<f8", 300, &floats));
    workspace.write("y.parquet", parquet(&RecordBatch::try_from_iter([("y", text)]).unwrap()));
    let lines = String::from_utf8(train.libsvm()).unwrap();
    let relabelled = lines.lines().zip(&digits).map(|(line, label)| format!("{label}{}\n", &line[1..]));
    workspace.write("y.libsvm", relabelled.collect::<String>());
    workspace.succeed("fit train.npy --labels y.csv --model ridge -o first --features 16");
    for labels in ["named.csv", "y.npy", "f.npy", "y.parquet", "y.libsvm"] {
        workspace.succeed(&format!("fit train.npy --labels {labels} --model ridge -o m --features 16"));
        assert_eq!(workspace.read("m"), workspace.read("first"), "{labels}");
    }
    // Sparse rows, and whole numbers that stay whole.
    workspace.succeed("fit y.libsvm --labels y.libsvm --model ridge -o m --features 16");
    workspace.succeed("predict m train.npy -o p.npy --quiet");
    let predicted = workspace.read("p.npy");
    assert!(String::from_utf8_lossy(&predicted[..128]).contains("'<i8'"));
    assert!(predicted[128..].as_chunks().0.iter().all(|&item| [7, -1].contains(&i64::from_le_bytes(item))));
    let info = workspace.succeed("info m").stdout;
    assert_eq!(value(&info, "predicts"), "2 classes: -1, 7");
    // A label column gives the same result in either format.
    workspace.succeed("fit train.csv --labels kind --model ridge -o first --features 16");
    workspace.succeed("fit train.parquet --labels kind --model ridge -o m --features 16");
    assert_eq!(workspace.read("m"), workspace.read("first"));
}

#[test]
fn numbers_are_predicted_as_the_library_does() {
    let (workspace, _) = workspace();
    let (table, _) = points(300, 1);
    let targets: Vec<f64> = table.rows().map(|row| row[0] * row[1] + 0.5 * row[0] * row[0] - 3.0).collect();
    workspace.write("y.npy", npy_column("<f8", 300, &targets.iter().flat_map(|y| y.to_le_bytes()).collect::<Vec<_>>()));
    let fit = "fit train.npy --labels y.npy --task regression --features 32 --coef0 1 --seed 5 -o m";
    workspace.succeed(&format!("{fit} --model ridge --lambda 0.01"));
    workspace.succeed("predict m train.npy -o p.npy");

    let mut spec = Spec::polynomial(2).with_degree(2).with_features(32).with_seed(5);
    spec = spec.with_coef0(1.0);
    let recipe = Recipe::from(spec);
    let pipeline = recipe.pipeline::<f32>().unwrap();
    let singles = table.singles();
    let inputs: [Input<'_, f32>; 1] = [table.view(&singles)];
    let mut gram = Gram::new(&recipe, Targets::Values(1)).unwrap();
    let update = |range: std::ops::Range<usize>, features: Rows<'_, f32>| {
        let rows = range.len();
        gram.update(features, Labels::Values(Rows::new(&targets[range], rows, 1)?))
    };
    pipeline.for_each_block(&inputs, update).unwrap();
    let ridge = Ridge::fit(&gram, 0.01).unwrap();
    let mut expected = Vec::new();
    pipeline
        .for_each_block(&inputs, |_, features| {
            expected.extend(ridge.predict(features)?);
            Ok(())
        })
        .unwrap();
    let bytes: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(workspace.read("p.npy"), npy("<f8", 300, 1, &bytes));

    for model in
        ["--model ridge", "--model ridge --validation 0.3", "--model gp", "--model gp --noise 0.001 --variance 1"]
    {
        workspace.succeed(&format!("{fit} {model}"));
        let evaluated = workspace.succeed("evaluate m train.npy --labels y.npy").stdout;
        assert!(number(&evaluated, "rmse") < 0.05 && number(&evaluated, "r2") > 0.95, "{model}: {evaluated}");
        assert_eq!(evaluated.contains("mnll"), model.contains("gp"));
        assert_eq!(value(&workspace.succeed("info m").stdout, "predicts"), "a number");
    }
    workspace.refuse("predict m train.npy -o out.npy --proba", &["--proba", "numbers"]);
    workspace.refuse("fit train.npy --labels y.npy --model gp -o out.npy", &["y.npy: row 0", "--task regression"]);
    workspace.refuse("fit train.npy --labels y.npy --model softmax --task regression -o out.npy", &["--task"]);
}

#[test]
fn options_are_chosen_on_validation_rows() {
    let (workspace, _) = workspace();
    // An absurd noise is not chosen, by a validation file or by held-out rows.
    for validation in ["test.csv", "0.25"] {
        let fit = format!("fit train.csv --labels kind --model gp --features 32 --validation {validation} -o m");
        let answer = workspace.succeed(&format!("{fit} --alpha 1e9,0.01"));
        assert_eq!(value(&workspace.succeed("info m").stdout, "alpha"), "0.01");
        assert!(answer.stderr.contains("alpha 0.01, variance "), "{}", answer.stderr);
        assert!(answer.stderr.contains(", error 0."), "{}", answer.stderr);
        workspace.succeed(&format!("{fit} --alpha 0.01 --variance 1e-9,4"));
        assert_eq!(value(&workspace.succeed("info m").stdout, "variance"), "4");
    }
    for validation in ["--validation test.csv", "--validation 0.25", ""] {
        workspace.succeed(&format!("fit train.csv --labels kind --model ridge --features 32 {validation} -o m"));
        let lambda = number(&workspace.succeed("info m").stdout, "lambda");
        // Candidate penalties range from 1e-12 to 1 times the largest eigenvalue, about 100 here.
        assert!((1e-11..1e3).contains(&lambda), "{lambda}");
        let evaluated = workspace.succeed("evaluate m test.csv --labels kind").stdout;
        assert!(number(&evaluated, "error") < 0.2, "{evaluated}");
    }
    // Held-out rows are not trained on: the models differ. A validation file leaves the model the same.
    workspace.succeed("fit train.csv --labels kind --model ridge --lambda 1 --features 32 -o all");
    workspace.succeed("fit train.csv --labels kind --model ridge --lambda 1 --features 32 -o rest --validation 0.5");
    workspace
        .succeed("fit train.csv --labels kind --model ridge --lambda 1 --features 32 -o same --validation test.csv");
    assert_eq!(workspace.read("all"), workspace.read("same"));
    assert_ne!(workspace.read("all"), workspace.read("rest"));
}

#[test]
fn rows_are_scaled_when_learning_and_when_predicting() {
    let (workspace, _) = workspace();
    let mut models = Vec::new();
    // Shifted to be non-negative and scaled to the circle, points keep only their angle: some classes mix.
    for (scaling, most) in [("none", 0.05), ("unit", 0.05), ("non-negative", 0.3), ("standard", 0.05)] {
        let kernel = "--degree 3 --gamma 0.5 --coef0 0.5 --features 128";
        workspace.succeed(&format!("fit train.csv --labels kind --model gp -o m {kernel} --scaling {scaling}"));
        assert_eq!(value(&workspace.succeed("info m").stdout, "scaling"), scaling);
        let evaluated = workspace.succeed("evaluate m test.csv --labels kind").stdout;
        assert!(number(&evaluated, "error") < most, "{scaling}: {evaluated}");
        assert!(!models.contains(&workspace.read("m")));
        models.push(workspace.read("m"));
    }
}

#[test]
fn threads_change_nothing() {
    let (workspace, _) = workspace();
    for model in ["--model gp", "--model ridge", SOFTMAX] {
        let files = [1, 2, 3].map(|threads| {
            let flags = format!("--features 64 --scaling standard --threads {threads} -o m");
            workspace.succeed(&format!("fit train.csv --labels kind {model} {flags}"));
            workspace.succeed(&format!("predict m test.csv -o p.npy --threads {threads}"));
            (workspace.read("m"), workspace.read("p.npy"))
        });
        assert!(files.iter().all(|file| *file == files[0]), "{model}");
    }
}

#[test]
fn training_that_was_killed_goes_on() {
    let (workspace, _) = workspace();
    let fit = "fit train.csv --labels kind --model softmax --epochs 40 --validation 0.2 --features 512 --patience 2";
    workspace.succeed(&format!("{fit} -o whole"));
    let mut child = workspace.command(&format!("{fit} -o m --checkpoint state")).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !workspace.path("state").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "there is no checkpoint");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let epochs = number(&workspace.succeed("info state").stdout, "epochs");
    assert!((1.0..40.0).contains(&epochs) && !workspace.path("m").exists(), "killed too late, after {epochs} epochs");
    let resumed = workspace.succeed(&format!("{fit} -o m --checkpoint state")).stderr;
    assert!(resumed.starts_with(&format!("epoch {}/40: ", epochs + 1.0)), "{resumed}");
    assert_eq!(workspace.read("m"), workspace.read("whole"));
    // A complete state needs no more training, and can be continued.
    let again = workspace.succeed(&format!("{fit} -o again --checkpoint state")).stderr;
    assert!(!again.contains("epoch "), "{again}");
    assert_eq!(workspace.read("again"), workspace.read("whole"));
    workspace.succeed(&format!("{} -o more --checkpoint state", fit.replace("40", "42")));
    assert_eq!(number(&workspace.succeed("info state").stdout, "epochs"), 42.0);
    workspace.succeed(&format!("{} -o fresh", fit.replace("40", "42")));
    assert_eq!(workspace.read("more"), workspace.read("fresh"));

    // It is no model.
    let words = ["state: model file: expected a file of kind ridge, ", "got \"softmax-training\""];
    workspace.refuse("predict state test.csv -o out.npy", &words);

    // The state belongs to this run only.
    let state = workspace.read("state");
    for other in
        ["--seed 3", "--batch 8", "--learning-rate 0.5", "--l2", "--signed-sqrt", "--degree 3", "--scaling unit"]
    {
        workspace.refuse(&format!("{fit} {other} -o out.npy --checkpoint state"), &["state: belongs to another run"]);
    }
    let other = fit.replace("--validation 0.2", "--validation test.csv");
    workspace.refuse(&format!("{other} -o out.npy --checkpoint state"), &["state: belongs to another run"]);
    workspace.refuse(&format!("{fit} -o out.npy --checkpoint state"), &["state: holds 42 epochs", "--epochs 40"]);
    workspace.write("state", &state[..state.len() - 1]);
    workspace.refuse(&format!("{fit} -o out.npy --checkpoint state"), &["state: ", "damaged"]);
    workspace.write("state", workspace.read("whole"));
    workspace.refuse(&format!("{fit} -o out.npy --checkpoint state"), &["state: ", "softmax-training"]);
}

#[test]
fn several_inputs_are_factors() {
    let (workspace, _) = workspace();
    let (train, _) = points(300, 1);
    for column in 0..2 {
        let values: Vec<f64> = train.rows().map(|row| row[column]).collect();
        workspace.write(&format!("{column}.npy"), Table { columns: 1, values }.npy());
    }
    // The product of the two numbers tells the classes apart.
    workspace.write("y.csv", "y\n".to_owned() + &names(&points(300, 1).1).join("\n").replace(", ", " "));
    workspace.succeed("fit 0.npy 1.npy --labels y.csv --model ridge -o m --features 8");
    let evaluated = workspace.succeed("evaluate m 0.npy 1.npy --labels y.csv").stdout;
    assert!(number(&evaluated, "error") < 0.03, "{evaluated}");
    workspace.refuse("predict m 0.npy -o out.npy", &["IN: expected 2 files for this model, got 1"]);
}

#[test]
fn mistakes_are_named_before_any_work() {
    let (workspace, _) = workspace();
    let bad = "x,kind,y\n1,a,2\n1,b,nan\n2,,3\n";
    workspace.write("bad.csv", bad);
    workspace.write("short.csv", "kind\na\nb\n");
    workspace.write("one.csv", "kind\n".to_owned() + &"a\n".repeat(300));
    workspace.write("kind", "a file with the name of a column");
    workspace.write("no.csv", "1,2\n3,4\n");
    workspace.write("only.csv", "kind\na\nb\n");
    workspace.write("headless.csv", "a\nb\n".repeat(150));
    workspace.write("long.csv", "y\n".to_owned() + &"a\nb\n".repeat(151));
    for (arguments, words) in [
        (
            "fit only.csv --labels only.csv",
            &["only.csv: line 2, field 1 (counted from 1) has \"a\" instead of a number"][..],
        ),
        ("fit train.csv --labels kind", &["--labels: kind is both a file and a column of train.csv; write ./kind"]),
        ("fit train.csv --labels nothing", &["--labels: expected a column or a file, found neither named nothing"]),
        ("fit train.npy --labels short.csv", &["short.csv: has 2 labels for 300 rows"]),
        ("fit train.npy --labels headless.csv", &["headless.csv: has 299 labels for 300 rows; a first line of text"]),
        ("fit train.npy --labels long.csv", &["long.csv: has more labels than the 300 rows"]),
        ("fit train.npy --labels one.csv", &["one.csv: has labels of 1 classes"]),
        ("fit train.npy --labels train.npy", &["train.npy: has 2 columns; expected one column of labels"]),
        ("fit train.npy --labels test.csv", &["test.csv: has 3 columns"]),
    ] {
        workspace.refuse(&format!("{arguments} --model ridge -o out.npy"), words);
    }
    fs::remove_file(workspace.path("kind")).unwrap();
    let bad_rows = "fit bad.csv --labels kind --model ridge -o out.npy";
    workspace.refuse(bad_rows, &["bad.csv: line 4, field 2 (counted from 1) has nothing instead of a label"]);
    workspace.write("bad.csv", bad.replace("2,,3", "2,b,3"));
    workspace.refuse(bad_rows, &["bad.csv: row 1, column 1 (both counted from 0) is NaN"]);
    for (options, words) in [
        ("--model ridge --lambda -1", &["--lambda: expected a finite number of at least 0, got -1"][..]),
        ("--model ridge --alpha 1", &["--alpha: is for --model gp only"]),
        ("--model gp --lambda 1", &["--lambda: is for --model ridge only"]),
        ("--model gp --alpha 0", &["--alpha: expected a finite number above 0, got 0"]),
        ("--model gp --alpha 1,2", &["--alpha", "--validation"]),
        ("--model gp --variance 1,2", &["--variance", "--validation"]),
        ("--model gp --noise 1", &["--noise: is for regression only"]),
        ("--model gp --task regression --noise 1", &["--noise", "--variance"]),
        ("--model gp --memory-limit 0", &["--memory-limit"]),
        ("--model gp --epochs 3", &["--epochs: is for --model softmax only"]),
        ("--model softmax --epochs 0", &["--epochs: expected at least 1"]),
        ("--model softmax --batch 0", &["--batch: expected at least one row"]),
        ("--model softmax --batch 18446744073709551615", &["--batch: expected at most 65536"]),
        ("--model softmax --learning-rate 0", &["--learning-rate: expected a finite number above 0"]),
        ("--model softmax --patience 0", &["--patience"]),
        ("--model softmax --checkpoint out.npy", &["--checkpoint: expected another file"]),
        ("--model softmax --checkpoint train.csv", &["--checkpoint: expected another file"]),
        ("--model softmax --checkpoint no/state", &["no/state: the folder no does not exist"]),
        ("--model ridge --validation 1.5", &["--validation: expected a file or a fraction"]),
        ("--model ridge --validation 0.0000001", &["--validation: no row is held out"]),
        ("--model ridge --validation nothing.csv", &["nothing.csv: cannot open"]),
        ("--model ridge --validation test.npy", &["--validation-labels"]),
        ("--model ridge --validation no.csv", &["--validation-labels"]),
        ("--model ridge --scaling odd", &["--scaling", "non-negative"]),
        ("--model ridge --features 7", &["--features: expected an even number"]),
        ("--model ridge --degree 0", &["--degree"]),
        ("--model ridge --threads 0", &["--threads"]),
        ("--model forest", &["--model", "softmax"]),
    ] {
        workspace.refuse(&format!("fit train.csv --labels kind -o out.npy {options}"), words);
    }
    workspace.refuse("fit train.csv --labels kind --model ridge -o train.csv", &["--output: expected another file"]);
    workspace.refuse("fit train.csv --labels kind --model ridge -o no/m", &["no/m: the folder no does not exist"]);

    workspace.succeed("fit train.csv --labels kind --model ridge -o m --features 8");
    workspace.refuse("predict m train.csv -o m", &["--output: expected another file"]);
    workspace.refuse("predict m train.csv -o out.svm", &["out.svm: LIBSVM files are only read"]);
    workspace.refuse("predict train.csv train.csv -o out.npy", &["train.csv: model file: not an Argand model file"]);
    workspace.write("wide.npy", Table::new(5, 3).npy());
    workspace.refuse("predict m wide.npy -o out.npy", &["wide.npy: has 3 columns; the model is for 2"]);
    workspace.write("strange.csv", "x,kind,y\n1,cat,2\n");
    workspace.refuse(
        "evaluate m strange.csv --labels kind",
        &["strange.csv: line 2", "\"cat\", which the model does not know"],
    );
    let two = concat!(env!("CARGO_MANIFEST_DIR"), "/../argand-learn/tests/fixture/v1/ridge-regression");
    workspace.refuse(&format!("predict {two} wide.npy -o out.npy"), &["predicts 2 numbers at once"]);
    assert_eq!(value(&workspace.succeed(&format!("info {two}")).stdout, "predicts"), "2 numbers");
    let mut damaged = workspace.read("m");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    workspace.write("m", &damaged);
    workspace.refuse("predict m train.csv -o out.npy", &["m: model file: "]);
    workspace.refuse("info m", &["m: model file: "]);
}
