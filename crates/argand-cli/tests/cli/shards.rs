//! `argand gram`, `merge` and `fit --from-gram` from the user's side.

use crate::models::{labelled_csv, names, number, points, value};
use crate::support::*;

/// Three parts of the same rows, all of them, others to judge by, and a spec with a scaling.
fn parts() -> Workspace {
    let workspace = Workspace::new();
    let (train, same) = points(300, 1);
    let names_of = names(&same);
    workspace.write("all.csv", labelled_csv(&train, &names_of));
    for (part, range) in [0..90, 90..110, 110..300].into_iter().enumerate() {
        let table = Table { columns: 2, values: train.values[2 * range.start..2 * range.end].to_vec() };
        workspace.write(&format!("part-{part}.csv"), labelled_csv(&table, &names_of[range]));
    }
    let (test, same) = points(200, 2);
    workspace.write("test.csv", labelled_csv(&test, &names(&same)));
    let spec = "--labels kind --degree 2 --features 64 --scaling standard --save-spec s.json";
    workspace.succeed(&format!("transform all.csv -o z.npy {spec}"));
    workspace
}

fn error(workspace: &Workspace, model: &str) -> f64 {
    number(&workspace.succeed(&format!("evaluate {model} test.csv --labels kind")).stdout, "error")
}

/// Parts that were summed up apart, in any order, give the model that all rows give, to the last bit in any order of merging.
#[test]
fn parts_merge_to_what_all_rows_give() {
    let workspace = parts();
    for model in ["ridge", "gp"] {
        let sums = format!("--labels kind --spec s.json --model {model} -q");
        for part in 0..3 {
            workspace.succeed(&format!("gram part-{part}.csv -o {part}.gram {sums}"));
        }
        workspace.succeed("merge 2.gram 0.gram 1.gram -o all.gram");
        workspace.succeed("merge 1.gram 2.gram -o some.gram");
        workspace.succeed("merge some.gram 0.gram -o again.gram");
        workspace.succeed("merge 0.gram 1.gram 2.gram -o other.gram");
        assert_eq!(workspace.read("all.gram"), workspace.read("other.gram"));
        let info = workspace.succeed("info again.gram").stdout;
        assert_eq!(value(&info, "sums"), "of   300 rows");
        assert!(info.contains("part-1.csv, 20 rows"), "{info}");
        assert_eq!([value(&info, "labels"), value(&info, "scaling")], ["column kind", "standard"]);

        workspace.succeed(&format!("gram all.csv -o whole.gram {sums}"));
        workspace.succeed(&format!("gram part-1.csv part-0.csv part-2.csv -o files.gram {sums}"));
        let options = if model == "ridge" { "--lambda 0.5" } else { "" };
        workspace.succeed(&format!("fit all.csv --labels kind --spec s.json --model {model} -o rows.model {options}"));
        let rows = workspace.succeed("predict rows.model test.csv -o rows.csv").stderr;
        for gram in ["all", "again", "whole", "files"] {
            workspace.succeed(&format!("fit --from-gram {gram}.gram --model {model} -o sums.model {options}"));
            workspace.succeed("predict sums.model test.csv -o sums.csv");
            assert_eq!(workspace.read("sums.csv"), workspace.read("rows.csv"), "{model} {gram} {rows}");
        }
        assert!(error(&workspace, "sums.model") < 0.1);
    }
    // A ridge learns from the larger sums of a Gaussian process, too, and chooses its penalty without rows, or by those of others.
    workspace.succeed("fit --from-gram all.gram --model ridge -o gcv.model");
    assert!(error(&workspace, "gcv.model") < 0.1);
    workspace.succeed("gram test.csv -o test.gram --labels kind --spec s.json --model gp");
    workspace.succeed("fit --from-gram all.gram --model ridge -o held.model --validation test.gram");
    assert!(error(&workspace, "held.model") < 0.1);
}

/// Classes that only some parts have are united, and numbers are summed up as well.
#[test]
fn parts_may_have_other_classes_and_labels_may_be_numbers() {
    let workspace = Workspace::new();
    let line = |x: usize, label: &str| format!("{}.5,{}.25,{label}\n", x % 7, x % 5);
    let table = |labels: &[&str]| {
        "a,b,y\n".to_owned() + &(0..60).map(|x| line(x + labels.len(), labels[x % labels.len()])).collect::<String>()
    };
    workspace.write("1.csv", table(&["10", "9"]));
    workspace.write("2.csv", table(&["9", "100", "x"]));
    workspace.write("3.csv", table(&["100"]));
    workspace.succeed("transform 1.csv -o z.npy --labels y --features 32 --save-spec s.json");
    for model in ["ridge", "gp"] {
        let sums = format!("--labels y --spec s.json --model {model}");
        workspace.succeed(&format!("gram 1.csv -o 1.gram {sums}"));
        workspace.succeed(&format!("gram 2.csv -o 2.gram {sums}"));
        workspace.refuse(&format!("gram 3.csv -o 3.gram {sums}"), &["--classes", "1 classes"]);
        workspace.succeed(&format!("gram 3.csv -o 3.gram {sums} --classes 100,9"));
        workspace.refuse(&format!("gram 3.csv -o no.gram {sums} --classes 100,"), &["--classes", "got an empty one"]);
        let said = ["3.csv", "is of class \"100\", which --classes does not name"];
        workspace.refuse(&format!("gram 3.csv -o no.gram {sums} --classes 9,10"), &said);
        workspace.succeed("merge 1.gram 2.gram 3.gram -o all.gram");
        let info = workspace.succeed("info all.gram").stdout;
        assert_eq!(value(&info, "classes"), r#""9", "10", "100", "x""#);
        workspace.succeed(&format!("fit --from-gram all.gram --model {model} -o m.model"));
        workspace.succeed(&format!("gram 1.csv 2.csv 3.csv -o files.gram {sums}"));
        workspace.succeed(&format!("fit --from-gram files.gram --model {model} -o f.model"));
        for name in ["m", "f"] {
            workspace.succeed(&format!("predict {name}.model 2.csv -o {name}.csv"));
        }
        assert_eq!(workspace.read("m.csv"), workspace.read("f.csv"));
    }
    workspace.write("n.csv", table(&["0.5", "2.25", "-1"]));
    workspace.succeed("gram n.csv -o n.gram --labels y --spec s.json --task regression");
    workspace.succeed("fit --from-gram n.gram --model gp --task regression -o n.model");
    workspace.refuse("fit --from-gram n.gram --model gp -o n.model", &["n.gram", "--task regression"]);
    workspace.refuse("merge n.gram 1.gram -o no.gram", &["--task"]);
}

/// Another column of labels is another thing to learn. Labels in a file of their own have no column, and go with any.
#[test]
fn sums_of_other_labels_are_refused() {
    let workspace = Workspace::new();
    let lines = |rows: std::ops::Range<usize>| rows.map(|x| format!("{}.5,{}.25,{x},{}\n", x % 7, x % 5, x * x));
    for (name, rows) in [("1", 0..50), ("2", 50..90)] {
        workspace.write(&format!("{name}.csv"), "a,b,y,z\n".to_owned() + &lines(rows.clone()).collect::<String>());
        workspace.write(&format!("{name}-bare.csv"), lines(rows).collect::<String>());
    }
    workspace.write("3.csv", "a,b\n1,2\n3,4\n5,7\n");
    workspace.write("labels.csv", "y\n1\n2\n3\n");
    workspace.succeed("transform 3.csv -o z.npy --features 32 --save-spec s.json");
    let sums = "--spec s.json --task regression";
    for (name, labels) in [("1", "y"), ("2", "y"), ("2", "z"), ("3", "labels.csv")] {
        workspace.succeed(&format!("gram {name}.csv --labels {labels} -o {name}-{labels}.gram {sums}"));
    }
    let said = ["2-z.gram", "--labels", "\"z\"", "\"y\""];
    workspace.refuse("fit --from-gram 1-y.gram --validation 2-z.gram --task regression --model ridge -o m", &said);
    workspace.refuse("merge 1-y.gram 2-z.gram -o no.gram", &["--labels", "\"z\"", "\"y\""]);
    workspace.succeed("merge 3-labels.csv.gram 1-y.gram 2-y.gram -o all.gram");
    assert_eq!(value(&workspace.succeed("info all.gram").stdout, "labels"), "column y");
    workspace.succeed("fit --from-gram all.gram --task regression --model ridge -o y.model");
    workspace.succeed("predict y.model 1.csv -o predicted.csv");
    // Where columns have no names, their places tell.
    workspace.succeed("transform 1-bare.csv -o z.npy --columns 0,1 --features 32 --save-spec s.json");
    workspace.succeed(&format!("gram 1-bare.csv --labels 2 --columns 0,1 -o 1.gram {sums}"));
    workspace.succeed(&format!("gram 2-bare.csv --labels 3 --columns 0,1 -o 2.gram {sums}"));
    workspace.refuse("merge 1.gram 2.gram -o no.gram", &["--labels", "column 2", "column 3"]);
}

/// What is to be learnt must not be among the features.
#[test]
fn specs_that_use_the_labels_are_refused() {
    let workspace = Workspace::new();
    let rows: String = (0..40).map(|x| format!("{},{},{}\n", x % 7, x % 5, x)).collect();
    workspace.write("all.csv", "a,b,c\n".to_owned() + &rows);
    workspace.succeed("transform all.csv -o z.npy --features 16 --save-spec s.json");
    let words = &["--labels", "no feature of the spec", "\"a\""];
    workspace.refuse("gram all.csv --labels a --task regression --spec s.json -o no.gram", words);
    workspace.refuse("fit all.csv --labels a --task regression --model ridge --spec s.json -o no.model", words);
    let dropped = "gram all.csv --labels a --drop b --task regression --spec t.json -o no.gram";
    workspace.succeed("transform all.csv --drop a -o z.npy --features 16 --save-spec t.json");
    workspace.refuse(dropped, &["--drop", "\"b\""]);
}

/// Nothing is counted twice, and nothing is added to sums of something else.
#[test]
fn sums_that_do_not_belong_together_are_refused() {
    let workspace = parts();
    let sums = "--labels kind --spec s.json";
    workspace.succeed(&format!("gram part-0.csv -o 0.gram {sums}"));
    workspace.succeed(&format!("gram part-1.csv -o 1.gram {sums}"));
    workspace.succeed("merge 0.gram 1.gram -o both.gram");
    workspace.write("copy.csv", workspace.read("part-0.csv"));
    workspace.succeed(&format!("gram copy.csv -o copy.gram {sums}"));
    workspace.refuse("merge both.gram 1.gram -o no.gram", &["part-1.csv", "too"]);
    workspace.refuse("merge 0.gram copy.gram -o no.gram", &["copy.csv", "0.gram"]);
    workspace.refuse(&format!("gram part-0.csv copy.csv -o no.gram {sums}"), &["copy.csv", "part-0.csv"]);
    workspace.refuse("fit --from-gram both.gram --model ridge -o m.model --validation 1.gram", &["1.gram", "too"]);
    // The same rows with labels in a file of their own.
    let rows: String = (0..30).map(|row| format!("{},{},{}\n", row % 7, row % 5, ["a", "b"][row % 2])).collect();
    let kinds: String = (0..30).map(|row| format!("{}\n", ["a", "b"][row % 2])).collect();
    workspace.write("own.csv", "x,y,kind\n".to_owned() + &rows);
    workspace.write("kinds.csv", "kind\n".to_owned() + &kinds);
    workspace.succeed(&format!("gram own.csv -o own.gram {sums}"));
    workspace.succeed("gram own.csv --drop kind --labels kinds.csv --spec s.json -o apart.gram");
    workspace.refuse("merge own.gram apart.gram -o no.gram", &["apart.gram", "own.csv"]);
    workspace.succeed("transform part-0.csv -o z.npy --labels kind --features 64 --save-spec t.json");
    workspace.succeed("gram part-1.csv -o other.gram --labels kind --spec t.json");
    workspace.refuse("merge 0.gram other.gram -o no.gram", &["--spec"]);
    workspace.succeed(&format!("gram part-1.csv -o gp.gram {sums} --model gp"));
    workspace.refuse("merge 0.gram gp.gram -o no.gram", &["--model"]);
    workspace.refuse("fit --from-gram 0.gram --model gp -o m.model", &["0.gram", "--model gp"]);
    workspace.refuse("fit --from-gram 0.gram --model softmax -o m.model", &["--model"]);
    workspace.refuse("fit --from-gram s.json --model ridge -o m.model", &["s.json"]);
    for (option, value) in [
        ("--kernel", "gaussian"),
        ("--length-scale", "2"),
        ("--coefficients", "1,2"),
        ("--landmarks", "uniform"),
        ("--aim", "learning"),
        ("--columns", "x"),
        ("--drop", "x"),
        ("--missing", "drop"),
        ("--header", "no"),
        ("--delimiter", "tab"),
        ("--memory-limit", "9"),
        ("--validation-labels", "kind"),
    ] {
        let words = ["--from-gram", option, "cannot be used with"];
        workspace
            .refuse(&format!("fit --from-gram 0.gram --model ridge -o m --validation 1.gram {option} {value}"), &words);
    }
    workspace.succeed("gram part-1.csv -o dropped.gram --labels kind --spec s.json --missing drop");
    workspace.refuse("merge 0.gram dropped.gram -o no.gram", &["dropped.gram: was made with another --missing"]);
    workspace.refuse("merge 0.gram -o 0.gram", &["--output"]);
    workspace
        .refuse(&format!("gram part-0.csv part-1.csv -o no.gram --spec s.json --labels {}", "z.npy"), &["--labels"]);
    let mut damaged = workspace.read("0.gram");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    workspace.write("0.gram", damaged);
    workspace.refuse("merge 0.gram 1.gram -o no.gram", &["0.gram", "damaged"]);
    assert!(!workspace.names().contains(&"no.gram".to_owned()));
}
