//! `argand plan` and `argand verify`.

use argand::Spec;

use crate::support::*;

/// Rows of unit norm in `unit.npy`, for the paper's kernel.
fn with_unit_rows(rows: usize, columns: usize) -> Workspace {
    let mut data: Vec<f32> = (0..rows * columns).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect();
    for row in data.chunks_exact_mut(columns) {
        let norm = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        row.iter_mut().for_each(|value| *value /= norm);
    }
    let workspace = Workspace::new();
    let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
    workspace.write("unit.npy", npy("<f4", rows, columns, &bytes));
    workspace
}

/// The recommended command matches the table and works.
#[test]
fn a_plan_is_a_table_and_a_command() {
    let workspace = with_unit_rows(300, 12);
    let plan =
        workspace.succeed("plan unit.npy --degree 3 --gamma 0.5 --coef0 0.5 --target-error 0.1 --save-spec s.json");
    for word in [
        "ctr-product-srht",
        "tensor-sketch",
        "craft-ctr-product-srht",
        "srf",
        "predicted error",
        "300 rows x 12 columns",
    ] {
        assert!(plan.stdout.contains(word), "{word}: {}", plan.stdout);
    }
    let command = plan.stdout.lines().find_map(|line| line.trim().strip_prefix("argand ")).unwrap();
    workspace.succeed(command);
    workspace.succeed("transform unit.npy -o saved.npy --spec s.json");
    assert_eq!(workspace.read("z.npy"), workspace.read("saved.npy"));
}

#[test]
fn a_plan_for_programs_is_json() {
    let workspace = with_unit_rows(200, 6);
    let answer =
        workspace.succeed("plan unit.npy unit.npy --features 64 --json --method ctr-product-srht,gaussian --threads 1");
    let plan: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(plan["candidates"].as_array().map(Vec::len), Some(2));
    let best = usize::try_from(plan["recommended"].as_u64().unwrap()).unwrap();
    let spec = Spec::from_json(&plan["candidates"][best]["spec"].to_string()).unwrap();
    assert_eq!((spec.features, spec.inputs.as_slice()), (64, &[6, 6][..]));
}

/// With a time and labels, candidates of every kind are fitted, and what they learn decides; a picture shows it.
#[test]
fn labels_and_a_time_decide() {
    let workspace = with_unit_rows(400, 6);
    let bytes = workspace.read("unit.npy");
    let values: Vec<f32> = bytes[bytes.len() - 400 * 6 * 4..]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let larger = |row: &[f32]| if row[0] * row[1] > row[2] * row[3] { "up\n" } else { "down\n" };
    workspace.write("y.csv", format!("kind\n{}", values.chunks(6).map(larger).collect::<String>()));
    let products: String = values.chunks(6).map(|row| format!("{}\n", row[0] * row[1])).collect();
    workspace.write("p.csv", format!("product\n{products}"));
    let flags = "--kernel gaussian --length-scale 0.6 --time-budget 5 --rows 20000 --max-features 512 --seed 1";
    let plan = format!("plan unit.npy --labels y.csv {flags}");
    let answer = workspace.succeed(&format!("{plan} --json --plot plan.svg"));
    let json: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!((&json["time_budget"], &json["rows"], &json["recommended"]), (&5.0.into(), &20_000.into(), &0.into()));
    let fitted: Vec<&serde_json::Value> =
        json["candidates"].as_array().unwrap().iter().filter(|line| !line["validation"].is_null()).collect();
    assert_eq!(fitted.len(), 3, "sums, Fourier features and landmarks: {}", answer.stdout);
    let errors: Vec<f64> = fitted.iter().map(|line| line["validation"]["error"].as_f64().unwrap()).collect();
    assert!(errors.is_sorted() && errors[0] < 0.25, "{errors:?}");
    assert_eq!(fitted[0]["validation"]["rows"], 200);
    let svg = String::from_utf8(workspace.read("plan.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("validation error") && svg.contains("nystrom"), "{svg}");
    // The same in words, and a command that works.
    let table = workspace.succeed(&plan).stdout;
    assert!(table.contains("validation error") && table.contains("the lowest validation error within 5 s"), "{table}");
    let command = table.lines().find_map(|line| line.trim().strip_prefix("argand ")).unwrap();
    workspace.succeed(command);
    // Numbers need to be announced.
    let flags = "--features 32 --method ctr-product-srht,nystrom";
    workspace.refuse(&format!("plan unit.npy --labels p.csv {flags}"), &["p.csv", "--task regression"]);
    let table = workspace.succeed(&format!("plan unit.npy --labels p.csv --task regression {flags}")).stdout;
    assert!(table.contains("one standard error of the lowest validation error"), "{table}");
}

/// What was fitted is in the saved spec, and the command says so.
#[test]
fn a_fitted_recommendation_is_saved() {
    let workspace = with_unit_rows(300, 8);
    for method in ["nystrom", "maclaurin-ctr-product-srht"] {
        let flags = format!("--kernel exponential --length-scale 0.8 --features 32 --method {method}");
        let plan = workspace.succeed(&format!("plan unit.npy {flags} --save-spec {method}.json")).stdout;
        let command = plan.lines().find_map(|line| line.trim().strip_prefix("argand ")).unwrap();
        assert!(command.contains(&format!("--spec {method}.json")), "{command}");
        workspace.succeed(command);
        workspace.succeed(&format!("transform unit.npy -o other.npy {flags} --seed 1"));
        assert_ne!(workspace.read("other.npy"), workspace.read("z.npy"));
    }
}

/// Only a sample of many rows is kept, and every row is equally likely to be in it.
#[test]
fn many_rows_are_sampled() {
    let workspace = with_unit_rows(9000, 3);
    let answer = workspace.succeed("plan unit.npy --degree 3 --features 32 --method ctr-product-srht");
    assert!(answer.stdout.contains("on 9,000 rows x 3 columns\n"), "{}", answer.stdout);
    assert!(answer.stdout.contains("on 512 random rows"), "{}", answer.stdout);
    // All rows of the file are looked at; times are for as many as are asked for.
    let answer = workspace.succeed("plan unit.npy --degree 3 --features 32 --rows 100 --method ctr-product-srht");
    assert!(answer.stdout.contains("on 9,000 rows x 3 columns\n"), "{}", answer.stdout);
    assert!(answer.stdout.contains("Time for 100 rows on this machine"), "{}", answer.stdout);
    let sparse: String = (0..5000).map(|row| format!("1 {}:1 {}:0.5\n", row % 7 + 1, row % 90 + 20)).collect();
    workspace.write("x.libsvm", sparse);
    let answer = workspace.succeed("plan x.libsvm --degree 2 --features 32 --method tensor-sketch,ctr-product-srht");
    assert!(answer.stdout.contains("on 5,000 rows x 109 columns\n"), "{}", answer.stdout);
}

#[test]
fn plans_that_cannot_be_made_are_refused() {
    let workspace = with_unit_rows(20, 3);
    for (arguments, words) in [
        ("plan unit.npy", &["--target-error", "--features", "--time-budget"][..]),
        ("plan unit.npy --target-error 0.1 --features 8", &["cannot be used with"]),
        ("plan unit.npy --target-error 0", &["--target-error", "positive"]),
        ("plan unit.npy --target-error -1", &["--target-error", "positive"]),
        ("plan unit.npy --features 1", &["--features", "2"]),
        ("plan unit.npy --features 8 --degree 0", &["--degree"]),
        ("plan unit.npy --features 8 --gamma -1", &["--gamma"]),
        ("plan unit.npy --features 8 --rows 0", &["--rows"]),
        ("plan unit.npy --features 8 --time-budget 0", &["--time-budget"]),
        ("plan unit.npy --time-budget -1", &["--time-budget", "positive"]),
        ("plan unit.npy --features 8 --task regression", &["--labels"]),
        ("plan unit.npy --features 8 --plot unit.npy", &["--plot", "another file"]),
        ("plan unit.npy --features 8 --kernel gaussian", &["--length-scale"]),
        (
            "plan unit.npy --features 8 --kernel gaussian --length-scale 1 --method exact",
            &["--method", "gaussian kernel"],
        ),
        ("plan unit.npy --features 8 --method complex-gaussian", &["--method", "real"]),
        ("plan unit.npy --features 8 --method magic", &["magic"]),
        ("plan unit.npy --features 7 --method ctr-product-srht", &["--features: expected an even number", "got 7"]),
        ("plan missing.npy --features 8", &["missing.npy"]),
        ("plan unit.npy unit.npy --degree 3 --features 8", &["--degree"]),
        ("plan unit.npy --features 8 --save-spec unit.npy", &["--save-spec", "another file"]),
        ("plan unit.npy --features 99999999999", &["--features"]),
        ("plan unit.npy --features 8 --gamma 0", &["unit.npy", "zero"]),
        ("verify unit.npy --sketches 3", &["--sketches"]),
        ("verify unit.npy --pairs 0", &["--pairs"]),
        ("verify unit.npy --features 7", &["--features", "even"]),
        ("verify unit.npy --rows 1", &["unit.npy", "2 rows"]),
    ] {
        workspace.refuse(arguments, words);
    }
    // The table is shown anyway.
    let answer =
        workspace.run("plan unit.npy --target-error 1e-9 --max-features 64 --save-spec s.json --method gaussian");
    assert_eq!((answer.code, workspace.names()), (Some(2), vec!["unit.npy".to_owned()]), "{answer:?}");
    assert!(answer.stdout.contains("needs more than 64") && answer.stderr.contains("no method"), "{answer:?}");
    let nan: Vec<u8> = [1.0_f32, f32::NAN, 1.0, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    workspace.write("nan.npy", npy("<f4", 2, 2, &nan));
    workspace.refuse("plan nan.npy --features 8", &["nan.npy", "row 0, column 1", "NaN"]);
    let huge: Vec<u8> = [1e30_f32, 1e30, 1.0, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    workspace.write("huge.npy", npy("<f4", 2, 2, &huge));
    workspace.refuse("plan huge.npy --features 8 --degree 7", &["huge.npy", "overflows", "--gamma"]);
}

#[test]
fn verify_says_that_sketches_agree_with_theory() {
    let workspace = with_unit_rows(50, 5);
    let answer = workspace.succeed("verify unit.npy --degree 3 --features 32 --sketches 400 --details");
    assert_eq!(answer.stdout.matches(" agrees\n").count(), 7, "{}", answer.stdout);
    assert!(
        answer.stdout.contains("All agree with theory") && answer.stdout.contains("predicted"),
        "{}",
        answer.stdout
    );
    // No closed form, but a known bias.
    let arguments = "verify unit.npy --degree 3 --gamma 0.5 --coef0 0.5 --features 32 --sketches 200";
    let answer = workspace.succeed(&format!("{arguments} --method chain-ctr-product-srht,srf"));
    assert!(answer.stdout.contains("no formula") && answer.stdout.contains("biased, by"), "{}", answer.stdout);
    // So few sketches support no claim.
    let answer = workspace.succeed("verify unit.npy --degree 9 --features 32 --sketches 50 --method gaussian");
    assert!(answer.stdout.contains("not judged") && answer.stdout.contains("would do"), "{}", answer.stdout);
    workspace.succeed("plan unit.npy --degree 2 --features 32 --save-spec s.json");
    workspace.succeed("verify unit.npy --spec s.json --sketches 100");
}

/// Counts of something are numbers to predict, whatever their type.
#[test]
fn whole_numbers_that_are_many_are_warned_of() {
    let workspace = Workspace::new();
    let table = |classes: usize| {
        let line = |x: usize| format!("{}.5,{}.25,{}.75,{}\n", x % 7, x % 5, x % 3, (x * 37) % classes);
        "a,b,c,y\n".to_owned() + &(0..300).map(line).collect::<String>()
    };
    workspace.write("many.csv", table(150));
    workspace.write("few.csv", table(50));
    let said = "--labels: took 150 different whole numbers for classes; use --task regression";
    let plan = "--labels y --features 16 --method gaussian --threads 1";
    assert!(workspace.succeed(&format!("plan many.csv {plan}")).stderr.contains(said));
    assert!(workspace.succeed("fit many.csv --labels y --model ridge -o m.model").stderr.contains(said));
    for quiet in ["many.csv --task regression", "few.csv"] {
        let answer = workspace.succeed(&format!("plan {quiet} {plan} --plot plan.svg"));
        assert!(!answer.stderr.contains("whole numbers"), "{answer:?}");
    }
    // All monomials have no error, and a place in the picture all the same.
    workspace.succeed("plan few.csv --features 64 --method gaussian,exact --plot plan.svg");
    let picture = String::from_utf8(workspace.read("plan.svg")).unwrap();
    let exact = picture.split("data-series=\"exact").nth(1).unwrap().split("</g>").next().unwrap();
    assert!(exact.contains("<circle") || exact.contains("<path"), "{picture}");
    assert!(picture.contains(">0</text>"), "{picture}");
}
