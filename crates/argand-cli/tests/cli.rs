//! The command line as its users meet it: the real program, real files, exit codes and messages.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use argand::{FeatureMap, Method, Spec};
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;

use support::*;

// What it computes.

#[test]
fn every_format_gives_the_features_of_the_library() {
    let table = Table::new(200, 3);
    for mut method in Method::all() {
        method = method.with_craft_dim(32);
        let mut spec = Spec::polynomial(3).with_degree(3).with_features(10).with_method(method).with_seed(7);
        (spec.kernel.gamma, spec.kernel.coef0) = (0.5, 0.5);
        let expected = bits(&table.features(&spec));
        let workspace = Workspace::new();
        for input in INPUTS {
            workspace.write(input, table.file(input));
            let flags = "--degree 3 --features 10 --gamma 0.5 --coef0 0.5 --seed 7";
            let craft = if method.craft().is_some() { "--craft-dim 32" } else { "" };
            workspace.succeed(&format!("transform {input} -o z.npy --method {method} {craft} {flags}"));
            let (dtype, columns) = if method.field() == argand::Field::Complex { ("<c8", 5) } else { ("<f4", 10) };
            assert_eq!(bits(&parse_npy(&workspace.read("z.npy"), dtype, 200, columns)), expected, "{method} {input}");
        }
    }
}

#[test]
fn every_input_goes_to_every_output() {
    let table = Table::new(200, 3);
    let workspace = Workspace::new();
    let expected = bits(&table.features(&Spec::polynomial(3).with_degree(2).with_features(10)));
    for input in INPUTS {
        workspace.write(input, table.file(input));
        for output in OUTPUTS {
            workspace.succeed(&format!("transform {input} -o {output} --features 10"));
        }
        assert_eq!(bits(&parse_npy(&workspace.read("z.npy"), "<f4", 200, 10)), expected, "{input}");
        assert_eq!(bits(&parse_csv(&workspace.read("z.csv"), 10)), expected, "{input}");
        assert_eq!(bits(&parse_parquet(&workspace.path("z.parquet"), 10)), expected, "{input}");
    }
    // What was written can be read.
    for input in OUTPUTS {
        workspace.succeed(&format!("transform {input} -o again.npy --features 4"));
        workspace.succeed(&format!("transform {input} -o again-{input} --features 4"));
        assert_eq!(parse_npy(&workspace.read("again.npy"), "<f4", 200, 4).len(), 800);
    }
    assert_eq!(
        bits(&parse_csv(&workspace.read("again-z.csv"), 4)),
        bits(&parse_parquet(&workspace.path("again-z.parquet"), 4))
    );
}

#[test]
fn the_fixture_agrees_to_the_last_digit() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../argand/tests/fixture");
    let workspace = Workspace::new();
    for name in ["x.csv", "spec.json"] {
        fs::copy(fixture.join(name), workspace.path(name)).unwrap();
    }
    workspace.succeed("transform x.csv -o z.csv --spec spec.json --dtype f64 --save-spec saved.json");
    let expected = fs::read_to_string(fixture.join("features.csv")).unwrap();
    assert_eq!(String::from_utf8(workspace.read("z.csv")).unwrap(), expected);
    assert_eq!(workspace.read("saved.json"), workspace.read("spec.json"));
    let flags = "--degree 3 --features 16 --gamma 0.5 --coef0 1 --seed 42 --method ctr-product-srht --dtype f64";
    workspace.succeed(&format!("transform x.csv -o same.csv {flags}"));
    assert_eq!(workspace.read("same.csv"), workspace.read("z.csv"));
}

#[test]
fn several_inputs_are_factors() {
    let tables = [Table::new(50, 3), Table::new(50, 1), Table::new(50, 6)];
    let workspace = Workspace::new();
    for (name, table) in ["a.csv", "b.npy", "c.libsvm"].iter().zip(&tables) {
        workspace.write(name, table.file(name));
    }
    let singles = tables.each_ref().map(Table::singles);
    let views: Vec<_> = tables.iter().zip(&singles).map(|(table, singles)| table.view(singles)).collect();
    let spec = Spec::tensor_product(&[3, 1, 6]).with_features(8).with_seed(5);
    let expected: Vec<f32> = spec.sketch().unwrap().transform(&views).unwrap();
    workspace.succeed("transform a.csv b.npy c.libsvm -o z.npy --features 8 --seed 5 --save-spec s.json");
    assert_eq!(bits(&parse_npy(&workspace.read("z.npy"), "<f4", 50, 8)), bits(&expected));
    workspace.succeed("transform a.csv b.npy c.libsvm -o same.npy --spec s.json");
    assert_eq!(workspace.read("same.npy"), workspace.read("z.npy"));
    // The order matters, and the same table twice is two factors.
    workspace.refuse("transform b.npy a.csv c.libsvm -o out.npy --spec s.json", &["b.npy: has 1 columns", "for 3"]);
    workspace.succeed("transform b.npy b.npy -o twice.npy --features 8 --degree 2");
}

#[test]
fn threads_change_nothing() {
    let workspace = Workspace::new();
    workspace.write("x.npy", Table::new(3000, 5).npy());
    for output in OUTPUTS {
        let files = [1, 2, 3].map(|threads| {
            workspace.succeed(&format!("transform x.npy -o {output} --features 64 --coef0 1 --threads {threads}"));
            workspace.read(output)
        });
        assert!(files[0] == files[1] && files[0] == files[2], "{output}");
    }
}

#[test]
fn complex_features_are_pairs() {
    let workspace = Workspace::with_table();
    for (dtype, complex, real) in [("f32", "<c8", "<f4"), ("f64", "<c16", "<f8")] {
        let flags = format!("--features 8 --dtype {dtype} --method");
        workspace.succeed(&format!("transform x.npy -o z.npy {flags} complex-product-srht"));
        workspace.succeed(&format!("transform x.npy -o real.npy {flags} ctr-product-srht"));
        let (pairs, parts) = (workspace.read("z.npy"), workspace.read("real.npy"));
        assert_eq!((&pairs[..128], &parts[..128]), (&npy(complex, 6, 4, &[])[..], &npy(real, 6, 8, &[])[..]));
        // The same numbers in another order: real parts first.
        let size = if dtype == "f32" { 4 } else { 8 };
        for (pairs, parts) in pairs[128..].chunks(8 * size).zip(parts[128..].chunks(8 * size)) {
            let number = |bytes: &[u8], index: usize| bytes[index * size..][..size].to_vec();
            for index in 0..4 {
                assert_eq!(number(pairs, 2 * index), number(parts, index));
                assert_eq!(number(pairs, 2 * index + 1), number(parts, 4 + index));
            }
        }
    }
    workspace.succeed("transform x.npy -o z.csv --features 4 --method complex-gaussian");
    assert!(workspace.read("z.csv").starts_with(b"z0_re,z0_im,z1_re,z1_im\n"));
}

#[test]
fn awkward_but_right() {
    let workspace = Workspace::new();
    workspace.write("one.csv", "2.5\n");
    workspace.write("names.csv", "\u{feff}\"a, b\",c\r\n\"1\", 2 \r\n-3e-1,.5\r\n\r\n");
    workspace.write("wide.csv", Table::new(1, 100_000).csv());
    workspace.write("tiny.csv", "1e-300,0\n5e-324,1e-45\n");
    workspace.write("bytes.npy", npy("|u1", 2, 2, &[1, 2, 3, 255]));
    for (input, rows) in [("one.csv", 1), ("names.csv", 2), ("wide.csv", 1), ("tiny.csv", 2), ("bytes.npy", 2)] {
        workspace.succeed(&format!("transform {input} -o z.npy --features 2 --degree 1"));
        assert_eq!(parse_npy(&workspace.read("z.npy"), "<f4", rows, 2).len(), 2 * rows, "{input}");
    }
    // γ = ν = 0: the kernel is zero, and so are the features.
    workspace.succeed("transform one.csv -o z.npy --features 2 --gamma 0");
    assert_eq!(parse_npy(&workspace.read("z.npy"), "<f4", 1, 2), [0.0, 0.0]);
    // Reading is done when the output takes its place, so that it may be the input's.
    workspace.succeed("transform names.csv -o expected.csv --features 4");
    workspace.succeed("transform names.csv -o names.csv --features 4");
    assert_eq!(workspace.read("names.csv"), workspace.read("expected.csv"));
    // Any name will do.
    let name = "ünï \"çødé\" 数.csv";
    fs::copy(workspace.path("one.csv"), workspace.path(name)).unwrap();
    let status = workspace.command("transform -q --features 2 -o 出.csv").arg(name).status().unwrap();
    assert!(status.success() && workspace.names().contains(&"出.csv".to_owned()));
}

// What it says.

#[test]
fn transform_says_one_line_or_nothing() {
    let workspace = Workspace::new();
    workspace.write("x.npy", Table::new(20_000, 8).npy());
    let answer = workspace.succeed("transform x.npy -o z.npy --features 512");
    assert_eq!(answer.stdout, "");
    assert!(answer.stderr.starts_with("z.npy: 20,000 rows x 512 features in "), "{answer:?}");
    // A progress bar would go back and draw over itself.
    assert_eq!(answer.stderr.matches(['\n', '\r', '\u{1b}', '%']).collect::<String>(), "\n", "{answer:?}");
    for flag in ["--quiet", "-q"] {
        let answer = workspace.succeed(&format!("transform x.npy -o z.npy --features 8 {flag}"));
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("", ""));
    }
}

#[test]
fn info_describes_a_spec() {
    let workspace = Workspace::with_table();
    let describe = |flags: &str| {
        workspace.succeed(&format!("transform x.npy -o z.npy --save-spec s.json {flags}"));
        let answer = workspace.succeed("info s.json");
        assert_eq!(answer.stderr, "");
        answer.stdout
    };
    let text = describe("--degree 3 --features 16 --gamma 0.5 --coef0 1 --seed 42");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "method    ctr-product-srht",
            "kernel    (0.5 <x,y> + 1)^3",
            "input     1 table with 3 columns",
            "features  16 (8 real parts, then 8 imaginary parts)",
            "seed      42",
        ]
    );
    assert!(lines[5].starts_with("memory    ") && lines.len() == 6, "{text}");
    assert!(describe("--features 4 --method complex-gaussian").contains("features  4 (2 complex numbers)\n"));
    let text = describe("x.npy --features 5 --method rademacher");
    assert!(text.contains("input     2 tables with 3, 3 columns\nfeatures  5 (real)\n"), "{text}");
    assert!(text.contains("kernel    product over the 2 inputs of (<x_i,y_i>)\n"), "{text}");
}

#[test]
fn help_has_examples() {
    let workspace = Workspace::new();
    for arguments in [
        "--help",
        "-h",
        "help",
        "transform --help",
        "transform -h",
        "info --help",
        "demo --help",
        "plan --help",
        "verify --help",
    ] {
        let answer = workspace.succeed(arguments);
        assert!(answer.stdout.contains("Example") && answer.stdout.contains("  argand "), "{answer:?}");
        assert_eq!(answer.stderr, "");
    }
    assert_eq!(workspace.succeed("--version").stdout, concat!("argand ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn demo_measures_every_method() {
    let workspace = Workspace::new();
    let answer = workspace.succeed("demo --rows 100 --seeds 2 --features 32");
    assert_eq!(answer.stderr, "");
    let table = answer.stdout;
    for base in ["gaussian", "rademacher", "product-srht"] {
        for method in [base.to_owned(), format!("ctr-{base}")] {
            assert!(
                table.lines().any(|line| line.split_whitespace().take(2).eq([&method[..], "32"])),
                "{method} in {table}"
            );
        }
    }
    for method in ["tensor-sketch", "ctr-product-srht", "product-srht"] {
        for prefix in ["hierarchical-", "craft-"] {
            assert!(table.contains(&format!("\n{prefix}{method} ")), "{prefix}{method} in {table}");
        }
    }
    assert!(table.contains("\nchain-ctr-product-srht ") && table.contains("\nsrf "), "{table}");
    for line in table.lines().filter(|line| line.ends_with(" ms")) {
        let error: f64 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        assert!(error > 0.0 && error < 2.0, "{line}");
    }
    // The same but for the time, whatever the number of threads.
    let errors = |flags: &str| {
        let answer = workspace.succeed(&format!("demo --rows 100 --seeds 2 --features 32 {flags}"));
        answer.stdout.lines().map(|line| line.get(..62).unwrap_or(line).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(errors("--threads 1"), errors("--threads 3"));
    workspace.succeed("demo --rows 10 --seeds 1 --features 8,16 --method gaussian --plot error.svg");
    assert_eq!(workspace.names(), ["error.svg"]);
    assert!(workspace.read("error.svg").starts_with(b"<svg "));
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let workspace = Workspace::new();
    for arguments in ["demo --rows 300 --seeds 3 --features 32,64", "help transform"] {
        let mut command = workspace.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(!line.is_empty());
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{arguments}");
    }
}

// What it refuses.

#[test]
fn wrong_usage() {
    let workspace = Workspace::with_table();
    workspace.write("s.json", Spec::polynomial(3).with_degree(2).with_features(8).to_json());
    for (arguments, words) in [
        ("", &["Usage: argand"][..]),
        ("sketch x.npy", &["'sketch'"]),
        ("transform", &["--output", "<IN>"]),
        ("transform x.npy", &["--output"]),
        ("transform -o out.npy", &["<IN>"]),
        ("transform x.npy -o out.npy --colour red", &["--colour"]),
        ("transform x.npy -o out.npy --dtype f16", &["--dtype", "f32, f64"]),
        ("transform x.npy -o out.npy --spec s.json --degree 2", &["--spec", "--degree"]),
        ("transform x.npy -o out.npy --spec s.json --features 8", &["--spec", "--features"]),
        ("transform x.npy -o out.npy --spec s.json --seed 0", &["--spec", "--seed"]),
        ("transform x.npy -o out.npy --spec s.json --method gaussian", &["--spec", "--method"]),
        ("transform x.npy -o out.npy --spec s.json --gamma 1", &["--spec", "--gamma"]),
        ("transform x.npy -o out.npy --spec s.json --coef0 1", &["--spec", "--coef0"]),
        ("info", &["<FILE>"]),
        ("demo x.npy", &["'x.npy'"]),
        ("demo --rows 1", &["--rows: expected 2 to 1797, got 1"]),
        ("demo --rows 1798", &["--rows: expected 2 to 1797, got 1798"]),
        ("demo --seeds 0", &["--seeds: expected at least 1, got 0"]),
        ("demo --threads 0", &["--threads: expected 1 to 1024, got 0"]),
        ("demo --features 0", &["--features: expected 1 to"]),
        ("demo --features 32,33", &["--features: expected an even number"]),
        ("demo --features 2147483648", &["--features: expected fewer"]),
        ("demo --degree 0", &["--degree: expected 1 to"]),
        ("demo --method ctr-srf", &["--method", "or srf, got \"ctr-srf\""]),
        ("demo --plot no/error.svg", &["no/error.svg: the folder no does not exist"]),
    ] {
        workspace.refuse(arguments, words);
    }
}

#[test]
fn bad_arguments_are_named() {
    let workspace = Workspace::with_table();
    for (flags, words) in [
        ("--features 0", &["--features: expected 1 to 2147483648, got 0"][..]),
        ("--features -8", &["--features", "'-8'"]),
        ("--features 7", &["--features: expected an even number for ctr-product-srht", "got 7"]),
        ("--features 7 --method complex-gaussian", &["--features: expected an even number for complex-gaussian"]),
        ("--features 2147483649", &["--features: expected 1 to 2147483648, got 2147483649"]),
        ("--features 18446744073709551616", &["--features"]),
        ("--features 2e3", &["--features", "'2e3'"]),
        ("--degree 0", &["--degree: expected 1 to 4294967295, got 0"]),
        ("--degree -1", &["--degree", "'-1'"]),
        ("--degree 4294967296", &["--degree: expected 1 to 4294967295"]),
        ("--gamma -0.5", &["--gamma: expected a finite number of at least 0", "NaN", "got -0.5"]),
        ("--coef0 -1", &["--coef0: expected a finite number of at least 0", "NaN", "got -1"]),
        ("--gamma nan", &["--gamma", "got NaN"]),
        ("--coef0 inf", &["--coef0", "got inf"]),
        ("--gamma two", &["--gamma", "'two'"]),
        ("--seed -1", &["--seed", "'-1'"]),
        ("--method srht", &["--method", "\"srht\"", "ctr-product-srht"]),
        ("--method srf", &["--gamma: expected for srf", "0.5 and 0.5"]),
        ("--method craft-complex-gaussian", &["--method: expected", "craft- with a real or ctr- sketch"]),
        ("--method craft-gaussian --craft-dim 5", &["--craft-dim: expected an even number"]),
        ("--method gaussian --craft-dim 64", &["--craft-dim: expected a craft- method, got gaussian"]),
        ("--threads 0", &["--threads: expected 1 to 1024, got 0"]),
        ("--threads -1", &["--threads", "'-1'"]),
        ("--threads 100000", &["--threads: expected 1 to 1024, got 100000"]),
        // p·D·d beyond the limit, and beyond what can be counted.
        ("--features 2147483648", &["lower features or degree", "--memory-limit"]),
        ("--features 2147483648 --degree 4294967295", &["lower features or degree", "--memory-limit"]),
        ("--features 1000000 --method gaussian --memory-limit 10", &["the limit of 10485760", "--memory-limit"]),
        ("--memory-limit 0", &["the limit of 0", "--memory-limit"]),
    ] {
        workspace.refuse(&format!("transform x.npy -o out.npy {flags}"), words);
    }
    for output in OUTPUTS {
        workspace.refuse(&format!("transform x.npy -o {output} --features 2147483648"), &["--memory-limit"]);
    }
    workspace.refuse("transform x.npy -o z.parquet --features 1048578", &["z.parquet", "1048578 columns", ".npy"]);
    workspace.refuse("transform x.npy x.npy -o out.npy --degree 3", &["--degree: expected 2, one per input, got 3"]);
}

#[test]
fn files_that_cannot_be_are_named() {
    let workspace = Workspace::with_table();
    fs::create_dir(workspace.path("folder.csv")).unwrap();
    workspace.write("x.txt", "1,2\n");
    for (arguments, words) in [
        ("transform none.npy -o out.npy", &["none.npy: cannot open"][..]),
        ("transform no/x.csv -o out.npy", &["no/x.csv: cannot open"]),
        ("transform x.npy none.parquet -o out.npy", &["none.parquet: cannot open"]),
        ("transform folder.csv -o out.npy", &["folder.csv: is a folder"]),
        ("transform x.npy/x.csv -o out.npy", &["x.npy/x.csv: cannot open"]),
        ("transform x.txt -o out.npy", &["x.txt: the ending names no known format", ".parquet"]),
        ("transform - -o out.npy", &["-: the ending names no known format"]),
        ("transform x.npy -o out.txt", &["out.txt: the ending names no known format"]),
        ("transform x.npy -o out", &["out: the ending names no known format"]),
        ("transform x.npy -o out.libsvm", &["out.libsvm: LIBSVM files are only read"]),
        ("transform x.npy -o no/out.npy", &["no/out.npy: the folder no does not exist"]),
        ("transform x.npy -o folder.csv", &["folder.csv: is a folder"]),
        ("transform x.npy -o x.npy/z.csv", &["x.npy/z.csv: cannot write"]),
        ("transform x.npy -o out.npy --save-spec no/s.json", &["no/s.json: the folder no does not exist"]),
        ("transform x.npy -o out.npy --save-spec out.npy", &["--save-spec: expected another file", "out.npy"]),
        ("transform x.npy -o out.npy --save-spec ./folder.csv/../out.npy", &["--save-spec: expected another file"]),
        ("transform x.npy -o out.npy --save-spec ./x.npy", &["--save-spec: expected another file", "./x.npy"]),
        ("transform x.npy -o out.npy --spec none.json", &["none.json: cannot open"]),
        ("info none.json", &["none.json: cannot open"]),
        ("info folder.csv", &["folder.csv: cannot read"]),
    ] {
        workspace.refuse(arguments, words);
    }
    #[cfg(unix)]
    {
        workspace.refuse("info /dev/zero", &["/dev/zero: is not a spec file"]);
        std::os::unix::fs::symlink("/dev/null", workspace.path("null.csv")).unwrap();
        workspace.refuse("transform null.csv -o out.npy", &["null.csv: is not a regular file"]);
        workspace.refuse("transform x.npy -o null.csv", &["null.csv: is not a regular file"]);
    }
}

#[test]
fn specs_that_do_not_fit_are_named() {
    let workspace = Workspace::with_table();
    let good = Spec::polynomial(3).with_degree(2).with_features(8).to_json();
    for (from, to, word) in [
        ("\"seed\": 0", "\"seed\": 0, \"colour\": 1", "colour"),
        ("\"version\": 1", "\"version\": 2", "version 2 is newer than 1"),
        ("\"stream_version\": 1", "\"stream_version\": 2", "stream_version 2 is newer than 1"),
        ("\"features\": 8", "\"features\": 7", "features: expected an even number"),
        ("\"degree\": 2", "\"degree\": 0", "degree: expected 1 to"),
        ("\"gamma\": 1.0", "\"gamma\": -1.0", "gamma: expected"),
        ("\"seed\": 0", "\"seed\": \"0\"", "expected u64"),
        (",\n  \"seed\": 0", "", "missing field `seed`"),
        ("argand-spec", "argand", "argand-spec"),
        ("ctr-product-srht", "chain-srf", "method: expected"),
        ("}", "", "EOF"),
        (&good, "", "EOF"),
        (&good, "garbage", "spec: expected value"),
        (&good, "[1, 2]", "spec: "),
        (&good, "\u{0}\u{1}", "spec: "),
    ] {
        workspace.write("s.json", good.replacen(from, to, 1));
        workspace.refuse("transform x.npy -o out.npy --spec s.json", &["s.json: ", word]);
        workspace.refuse("info s.json", &["s.json: ", word]);
    }
    workspace.refuse("info x.npy", &["x.npy: is not a spec file"]);
    workspace.write("s.json", " ".repeat(2 << 20));
    workspace.refuse("info s.json", &["s.json: is not a spec file"]);
    workspace.write("s.json", good.replace(": 8", ": 1048576").replace(": 2,", ": 1000000,"));
    workspace.refuse("transform x.npy -o out.npy --spec s.json", &["the limit of 4294967296", "--memory-limit"]);
    // For other columns, or another number of tables.
    workspace.write("s.json", Spec::polynomial(2).with_degree(2).with_features(8).to_json());
    workspace.write("two.json", Spec::tensor_product(&[3, 3]).with_features(8).to_json());
    for input in INPUTS {
        workspace.write(input, Table::new(6, 3).file(input));
        let words = if input == "x.libsvm" { "line 1 (counted from 1) has index 3" } else { "has 3 columns" };
        workspace.refuse(&format!("transform {input} -o out.npy --spec s.json"), &[&format!("{input}: {words}"), "2"]);
        let words = "IN: expected 2 files for this spec, got 1";
        workspace.refuse(&format!("transform {input} -o out.npy --spec two.json"), &[words]);
    }
    // A LIBSVM file need not use the last columns.
    workspace.write("s.json", Spec::polynomial(9).with_degree(2).with_features(8).to_json());
    workspace.succeed("transform x.libsvm -o z.npy --spec s.json");
    workspace.refuse("transform x.csv -o out.npy --spec s.json", &["x.csv: has 3 columns; the spec is for 9"]);
}

#[test]
fn numbers_that_are_not_finite_are_named() {
    let workspace = Workspace::new();
    for input in INPUTS {
        for (value, word) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
            // Of two, the first counts.
            let table = Table::new(6, 3).with(2, 1, value).with(4, 0, f64::NAN);
            workspace.write(input, table.file(input));
            let message = format!("{input}: row 2, column 1 (both counted from 0) is {word};");
            for output in OUTPUTS {
                workspace.refuse(&format!("transform {input} -o {output}"), &[&message]);
            }
            workspace.refuse(&format!("transform {input} -o out.npy --dtype f64"), &[&message]);
        }
    }
    // In another than the first factor.
    workspace.write("y.csv", Table::new(6, 3).csv());
    workspace.refuse("transform y.csv x.npy -o out.npy", &["x.npy: row 2, column 1"]);
    // Finite, but not in f32.
    for input in INPUTS {
        workspace.write(input, Table::new(6, 3).with(5, 2, 1e39).file(input));
        let words = [&format!("{input}: row 5, column 2"), "is inf", "--dtype f64"];
        workspace.refuse(&format!("transform {input} -o out.npy"), &words);
        workspace.succeed(&format!("transform {input} -o z.npy --dtype f64"));
    }
}

#[test]
fn the_last_row_of_many_is_checked_too() {
    let workspace = Workspace::new();
    // A row takes 4 kB with its features, and a block has 16 MB.
    let flags = "-o out.npy --features 1022 --method rademacher --save-spec s.json";
    let (table, last) = (Table::new(9001, 2), 9000);
    for input in INPUTS {
        workspace.write(input, table.with(last, 1, f64::NAN).file(input));
        let message = format!("{input}: row {last}, column 1 (both counted from 0) is NaN");
        workspace.refuse(&format!("transform {input} {flags}"), &[&message]);
        workspace.write(input, table.with(last, 1, 1e30).file(input));
        let message = format!("{input}: row {last} (counted from 0) overflows f32");
        workspace.refuse(&format!("transform {input} {flags}"), &[&message, "--gamma", "--dtype f64"]);
    }
    let text = [table.csv(), b"1\n".to_vec()].concat();
    workspace.write("x.csv", text);
    workspace.refuse(&format!("transform x.csv {flags}"), &["x.csv: line 9002 (counted from 1) has 1 fields"]);
}

#[test]
fn overflow_is_an_error_until_the_type_is_wide_enough() {
    let workspace = Workspace::new();
    for input in INPUTS {
        workspace.write(input, Table::new(6, 3).with(3, 2, 1e30).file(input));
        let message = format!("{input}: row 3 (counted from 0) overflows f32");
        workspace.refuse(&format!("transform {input} -o out.npy"), &[&message, "--dtype f64"]);
        workspace.succeed(&format!("transform {input} -o z.csv --features 8 --dtype f64"));
        let text = String::from_utf8(workspace.read("z.csv")).unwrap();
        assert!(!text.contains("inf") && !text.contains("NaN"));
        workspace.write(input, Table::new(6, 3).with(3, 2, 1e200).file(input));
        let message = format!("{input}: row 3 (counted from 0) overflows f64");
        workspace.refuse(&format!("transform {input} -o out.npy --dtype f64"), &[&message, "--gamma"]);
    }
}

#[test]
fn tables_without_rows_or_columns_are_refused() {
    let workspace = Workspace::new();
    let no_rows = RecordBatch::try_from_iter([("a", Arc::new(Float64Array::from(vec![0.0; 0])) as ArrayRef)]).unwrap();
    let options = RecordBatchOptions::new().with_row_count(Some(3));
    let no_columns = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    for (input, bytes, words) in [
        ("x.npy", vec![], "is empty"),
        ("x.csv", vec![], "is empty"),
        ("x.parquet", vec![], "is empty"),
        ("x.libsvm", vec![], "is empty"),
        ("x.npy", npy("<f4", 0, 3, &[]), "the shape is (0, 3)"),
        ("x.npy", npy("<f4", 3, 0, &[]), "the shape is (3, 0)"),
        ("x.csv", b"a,b\n".to_vec(), "has no line of numbers"),
        ("x.csv", b"\n\n\n".to_vec(), "has no line of numbers"),
        ("x.parquet", parquet(&no_rows), "has 0 rows and 1 columns"),
        ("x.parquet", parquet(&no_columns), "has 0 rows and 0 columns"),
        ("x.libsvm", b"# nothing\n".to_vec(), "has 0 rows and 0 columns"),
        ("x.libsvm", b"1\n-1\n".to_vec(), "has 2 rows and 0 columns"),
    ] {
        workspace.write(input, bytes);
        workspace.refuse(&format!("transform {input} -o out.npy"), &[&format!("{input}: {words}")]);
    }
}

#[test]
fn malformed_files_are_refused() {
    let workspace = Workspace::new();
    let refuse = |input: &str, bytes: &[u8], words: &str| {
        workspace.write(input, bytes);
        workspace.refuse(&format!("transform {input} -o out.npy --features 8"), &[&format!("{input}: "), words]);
    };
    refuse("x.csv", b"1,2,3\n4,5\n6,7,8\n", "line 2 (counted from 1) has 2 fields instead of the 3");
    refuse("x.csv", b"1,2\n3,4,5\n", "line 2 (counted from 1) has 3 fields instead of the 2");
    refuse("x.csv", b"a,b\n1,2\n3,x\n", "line 3, field 2 (counted from 1) has \"x\"");
    refuse("x.csv", b"1,2\n3,\n", "line 2, field 2 (counted from 1) has nothing");
    refuse("x.csv", b"1,2\n\n3,4\n", "line 2 (counted from 1) is blank");
    refuse("x.csv", b"1;2\n3;4\n", "\"3;4\" instead of a number");
    // A row is not taken for a header because one of its numbers is misspelt.
    refuse("x.csv", b"1,NA,3\n4,5,6\n", "line 1, field 2 (counted from 1) has \"NA\" beside numbers");
    refuse("x.libsvm", b"1 1:1\n1 2:1 1:1\n", "line 2 (counted from 1) has index 1 after 2");
    refuse("x.libsvm", b"1 0:1\n", "line 1 (counted from 1) has index 0");
    refuse("x.libsvm", b"1 1:1\n1 x\n", "line 2 (counted from 1) has \"x\"");
    refuse("x.libsvm", b"1 1:1\n1 4294967296:1\n", "line 2 (counted from 1) has index 4294967296");
    refuse("x.npy", &npy("<c8", 1, 1, &[0; 8]), "dtype <c8 is not supported");
    refuse("x.npy", &[Table::new(6, 3).npy(), vec![0]].concat(), "trailing bytes");
    for (input, kept) in [("x.npy", 0), ("x.parquet", 0), ("x.npy", 128), ("x.parquet", 200)] {
        let whole = Table::new(50, 3).file(input);
        for length in [kept + 1, kept + 5, kept + 50, whole.len() / 2, whole.len() - 8, whole.len() - 1] {
            refuse(input, &whole[..length], "");
        }
    }
    // Each format in the place of another.
    for (name, other) in INPUTS.iter().flat_map(|name| INPUTS.map(|other| (*name, other))) {
        if name != other {
            refuse(name, &Table::new(6, 3).file(other), "");
        }
    }
}

#[test]
fn inputs_must_have_equally_many_rows() {
    let workspace = Workspace::new();
    let refuse = |[first, second]: [&str; 2], rows: [usize; 2], message: &str| {
        workspace.write(first, Table::new(rows[0], 1).file(first));
        workspace.write(second, Table::new(rows[1], 1).file(second));
        workspace.refuse(&format!("transform {first} {second} -o out.npy --features 1022"), &[message]);
    };
    refuse(["a.npy", "b.npy"], [5, 4], "b.npy: has 4 rows; a.npy has 5");
    refuse(["a.parquet", "b.libsvm"], [4, 5], "b.libsvm: has 5 rows; a.parquet has 4");
    refuse(["a.csv", "b.csv"], [5, 4], "b.csv: has only 4 rows");
    refuse(["a.npy", "b.csv"], [4, 5], "a.npy: has only 4 rows");
    // Where the shorter one ends, a block ends.
    refuse(["a.csv", "b.npy"], [4096, 4097], "a.csv: has only 4096 rows");
    refuse(["a.csv", "b.npy"], [8193, 8192], "b.npy: has only 8192 rows");
}

// What it leaves behind when it is killed.

/// Ends a long transform once it has written something, and returns the names that are left.
#[cfg(target_os = "linux")]
fn names_after_death(existing: &[&str], output: &str, kill: impl Fn(&mut std::process::Child)) -> Vec<String> {
    use std::time::{Duration, Instant};

    let workspace = Workspace::new();
    workspace.write("x.npy", npy("|u1", 200_000, 16, &[1; 3_200_000]));
    for name in existing {
        workspace.write(name, "precious");
    }
    let flags = "--method gaussian --degree 4 --features 4096 --gamma 0.01 --save-spec s.json";
    let mut child =
        workspace.command(&format!("transform x.npy -o {output} {flags}")).stderr(Stdio::null()).spawn().unwrap();
    // The file has no name, but the system lists it among those that the process has open.
    let descriptors = format!("/proc/{}/fd", child.id());
    let written = || {
        let entries = fs::read_dir(&descriptors).unwrap().flatten().map(|entry| entry.path());
        let ours = entries.filter(|path| {
            fs::read_link(path).is_ok_and(|file| file.starts_with(workspace.folder.path()) && !file.ends_with("x.npy"))
        });
        ours.filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum::<u64>()
    };
    let begun = Instant::now();
    while written() < 1 << 20 {
        assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(), "it does not write");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill(&mut child);
    assert_eq!(child.wait().unwrap().code(), None, "it was to end by a signal");
    for name in existing {
        assert_eq!(workspace.read(name), b"precious");
    }
    workspace.names()
}

#[cfg(target_os = "linux")]
#[test]
fn killed_it_leaves_nothing() {
    use rustix::fs::{Mode, OFlags};

    // Without unnamed files, as on some file systems, a killed process cannot but leave its temporary one.
    let folder = tempfile::tempdir().unwrap();
    if rustix::fs::open(folder.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).is_err() {
        return;
    }
    let terminate = |child: &mut std::process::Child| {
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    };
    assert_eq!(names_after_death(&[], "z.npy", |child| child.kill().unwrap()), ["x.npy"]);
    assert_eq!(names_after_death(&[], "z.csv", terminate), ["x.npy"]);
    assert_eq!(names_after_death(&["z.parquet"], "z.parquet", terminate), ["x.npy", "z.parquet"]);
}

// Planning and verifying.

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

/// The recommended command is what the table says, and works.
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
    assert_eq!((spec.features, spec.kernel.degree, spec.inputs.as_slice()), (64, 2, &[6, 6][..]));
}

/// Only a sample of many rows is kept, and every row has the same chance to be in it.
#[test]
fn many_rows_are_sampled() {
    let workspace = with_unit_rows(9000, 3);
    let answer = workspace.succeed("plan unit.npy --degree 3 --features 32 --method ctr-product-srht");
    assert!(answer.stdout.contains("on 9,000 rows x 3 columns\n"), "{}", answer.stdout);
    assert!(answer.stdout.contains("on 512 random rows"), "{}", answer.stdout);
    let answer = workspace.succeed("plan unit.npy --degree 3 --features 32 --rows 100 --method ctr-product-srht");
    assert!(answer.stdout.contains("on 100 rows x 3 columns\n"), "{}", answer.stdout);
    let sparse: String = (0..5000).map(|row| format!("1 {}:1 {}:0.5\n", row % 7 + 1, row % 90 + 20)).collect();
    workspace.write("x.libsvm", sparse);
    let answer = workspace.succeed("plan x.libsvm --degree 2 --features 32 --method tensor-sketch,ctr-product-srht");
    assert!(answer.stdout.contains("on 5,000 rows x 109 columns\n"), "{}", answer.stdout);
}

#[test]
fn plans_that_cannot_be_made_are_refused() {
    let workspace = with_unit_rows(20, 3);
    for (arguments, words) in [
        ("plan unit.npy", &["--target-error", "--features"][..]),
        ("plan unit.npy --target-error 0.1 --features 8", &["cannot be used with"]),
        ("plan unit.npy --target-error 0", &["--target-error", "positive"]),
        ("plan unit.npy --target-error -1", &["--target-error", "positive"]),
        ("plan unit.npy --features 1", &["--features", "2"]),
        ("plan unit.npy --features 8 --degree 0", &["--degree"]),
        ("plan unit.npy --features 8 --gamma -1", &["--gamma"]),
        ("plan unit.npy --features 8 --rows 0", &["--rows"]),
        ("plan unit.npy --features 8 --time-budget 0", &["--time-budget"]),
        ("plan unit.npy --features 8 --method complex-gaussian", &["--method", "real"]),
        ("plan unit.npy --features 8 --method magic", &["magic"]),
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
    // The table is shown all the same.
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
    // No closed form, and a bias that is known.
    let arguments = "verify unit.npy --degree 3 --gamma 0.5 --coef0 0.5 --features 32 --sketches 200";
    let answer = workspace.succeed(&format!("{arguments} --method chain-ctr-product-srht,srf"));
    assert!(answer.stdout.contains("no formula") && answer.stdout.contains("biased, by"), "{}", answer.stdout);
    // Nothing is claimed that so few sketches cannot show.
    let answer = workspace.succeed("verify unit.npy --degree 9 --features 32 --sketches 50 --method gaussian");
    assert!(answer.stdout.contains("not judged") && answer.stdout.contains("would do"), "{}", answer.stdout);
    workspace.succeed("plan unit.npy --degree 2 --features 32 --save-spec s.json");
    workspace.succeed("verify unit.npy --spec s.json --sketches 100");
}
