//! What the commands refuse, and how they say so.

use std::fs;
use std::sync::Arc;

use argand::Spec;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;

use crate::support::*;

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
        ("transform x.npy -o out.npy --device gpu", &["--device", "expected cpu, cuda or cuda:N"]),
        ("transform x.npy -o out.npy --device cuda:1000", &["--device: cuda"]),
        ("fit x.npy --labels y.npy --model ridge -o m.model --device cuda:-1", &["--device"]),
        ("info", &["<FILE>"]),
        ("info s.json --devices", &["--devices"]),
        ("demo x.npy", &["'x.npy'"]),
        ("demo --rows 1", &["--rows: expected 2 to 1797, got 1"]),
        ("demo --rows 1798", &["--rows: expected 2 to 1797, got 1798"]),
        ("demo --seeds 0", &["--seeds: expected 1 to 100000, got 0"]),
        ("demo --threads 0", &["--threads: expected 1 to 256, got 0"]),
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
        ("--threads 0", &["--threads: expected 1 to 256, got 0"]),
        ("--threads -1", &["--threads", "'-1'"]),
        ("--threads 100000", &["--threads: expected 1 to 256, got 100000"]),
        // p·D·d beyond the limit, and beyond 64 bits.
        ("--features 2147483648", &["lower features or degree", "--memory-limit"]),
        ("--features 2147483648 --degree 4294967295", &["lower features or degree", "--memory-limit"]),
        ("--features 1000000 --method gaussian --memory-limit 10", &["the limit of 10485760", "--memory-limit"]),
        ("--memory-limit 0", &["a row of 3 columns takes 12 bytes, more than the 0 bytes", "--memory-limit"]),
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
    workspace.succeed("transform x.npy -o out.npy --save-spec s.json --features 8");
    fs::rename(workspace.path("s.json"), workspace.path("s.csv")).unwrap();
    workspace.write("y.csv", "0\n1\n");
    fs::remove_file(workspace.path("out.npy")).unwrap();
    for (arguments, words) in [
        ("transform none.npy -o out.npy", &["none.npy: cannot open"][..]),
        ("transform no/x.csv -o out.npy", &["no/x.csv: cannot open"]),
        ("transform x.npy none.parquet -o out.npy", &["none.parquet: cannot open"]),
        ("transform folder.csv -o out.npy", &["folder.csv: is a folder"]),
        ("transform x.npy/x.csv -o out.npy", &["x.npy/x.csv: cannot open"]),
        ("transform x.txt -o out.npy", &["x.txt: unknown file extension", ".parquet"]),
        ("transform - -o out.npy", &["-: unknown file extension"]),
        (
            "transform x.npy -o out.txt",
            &["out.txt: unknown file extension; expected .npy, .csv, .tsv, .data, .dat, .parquet or .pq\n"],
        ),
        ("transform x.npy -o out", &["out: unknown file extension"]),
        ("transform x.npy -o out.libsvm", &["out.libsvm: LIBSVM files are only read"]),
        ("transform x.npy -o no/out.npy", &["no/out.npy: the folder no does not exist"]),
        ("transform x.npy -o folder.csv", &["folder.csv: is a folder"]),
        ("transform x.npy -o x.npy/z.csv", &["x.npy/z.csv: cannot write"]),
        ("transform x.npy -o ./x.npy", &["--output: expected another file than the inputs", "./x.npy"]),
        ("transform x.npy -o s.csv --spec s.csv", &["--output: expected another file than the inputs", "s.csv"]),
        ("transform x.npy -o out.npy --spec s.csv --save-spec s.csv", &["--save-spec: expected another file", "s.csv"]),
        ("fit x.npy --labels y.csv --model ridge -o s.csv --spec s.csv", &["--output: expected another file", "s.csv"]),
        ("transform x.npy -o out.npy --save-spec no/s.json", &["no/s.json: the folder no does not exist"]),
        ("transform x.npy -o out.npy --save-spec out.npy", &["--save-spec: expected another file", "out.npy"]),
        ("transform x.npy -o out.npy --save-spec ./folder.csv/../out.npy", &["--save-spec: expected another file"]),
        ("transform x.npy -o out.npy --save-spec ./x.npy", &["--save-spec: expected another file", "./x.npy"]),
        ("transform x.npy -o out.npy --spec none.json", &["none.json: cannot open"]),
        ("info none.json", &["none.json: cannot open"]),
        ("info folder.csv", &["folder.csv: is not a store"]),
    ] {
        workspace.refuse(arguments, words);
    }
    #[cfg(unix)]
    {
        workspace.refuse("info /dev/zero", &["/dev/zero: is not a regular file"]);
        std::os::unix::fs::symlink("/dev/null", workspace.path("null.csv")).unwrap();
        workspace.refuse("transform null.csv -o out.npy", &["null.csv: is not a regular file"]);
        workspace.refuse("transform x.npy -o null.csv", &["null.csv: is not a regular file"]);
    }
}

#[test]
fn specs_that_do_not_fit_are_named() {
    let workspace = Workspace::with_table();
    let signed = Spec::polynomial(3).with_degree(2).with_features(8).to_json();
    // As written by hand: the checksum would speak first.
    let good = signed.split_once(",\n  \"checksum\"").unwrap().0.to_owned() + "\n}\n";
    for (from, to, word) in [
        ("\"seed\": 0", "\"seed\": 0, \"colour\": 1", "colour"),
        ("\"version\": 1", "\"version\": 3", "version 3 is newer than 2"),
        ("\"stream_version\": 1", "\"stream_version\": 2", "stream_version 2 is newer than 1"),
        ("\"features\": 8", "\"features\": 7", "features: expected an even number"),
        ("\"degree\": 2", "\"degree\": 0", "degree: expected 1 to"),
        ("\"gamma\": 1.0", "\"gamma\": -1.0", "gamma: expected"),
        ("\"seed\": 0", "\"seed\": \"0\"", "expected u64"),
        (",\n  \"seed\": 0", "", "missing field `seed`"),
        ("argand-spec", "argand", "argand-spec"),
        ("ctr-product-srht", "chain-srf", "method: expected"),
        ("}", "", "EOF"),
        ("\"input_dim\": 3", "\"input_dim\": \"3\"", "input_dim: expected a number of columns"),
        (&good, "", "not an Argand spec"),
        (&good, "garbage", "not an Argand spec"),
        (&good, "[1, 2]", "not an Argand spec"),
        (&good, "argand\u{1a}", "not an Argand spec"),
    ] {
        workspace.write("s.json", good.replacen(from, to, 1));
        workspace.refuse("transform x.npy -o out.npy --spec s.json", &["s.json: ", word]);
        workspace.refuse("info s.json", &["s.json: ", word]);
    }
    workspace.refuse("info x.npy", &["x.npy: is not a spec file"]);
    workspace.write("s.json", " ".repeat(2 << 20));
    workspace.refuse("info s.json", &["s.json: is not an Argand spec"]);
    workspace.write("s.json", good.replace(": 8", ": 1048576").replace(": 2,", ": 1000000,"));
    workspace.refuse("transform x.npy -o out.npy --spec s.json", &["the limit of 4294967296", "--memory-limit"]);
    // Another number of columns or of tables.
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
            // The first of two is reported.
            let table = Table::new(6, 3).with(2, 1, value).with(4, 0, f64::NAN);
            workspace.write(input, table.file(input));
            let message = format!("{input}: row 2, column 1 (both counted from 0) is {word};");
            for output in OUTPUTS {
                workspace.refuse(&format!("transform {input} -o {output}"), &[&message]);
            }
            workspace.refuse(&format!("transform {input} -o out.npy --dtype f64"), &[&message]);
        }
    }
    // In a factor other than the first.
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
    // A row takes 4 kB with its features, and a block 16 MB.
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
    // A row with a misspelt number is not taken for a header.
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
    // Each format under the name of another.
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
    // The shorter one ends with a block.
    refuse(["a.csv", "b.npy"], [4096, 4097], "a.csv: has only 4096 rows");
    refuse(["a.csv", "b.npy"], [8193, 8192], "b.npy: has only 8192 rows");
}
