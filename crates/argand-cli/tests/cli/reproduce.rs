//! `argand reproduce` from the user's side.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::*;

const SMALL: &str =
    "--dataset digits --method gaussian,ctr-product-srht,srf --features 32,64 --degree 3 --seeds 3 --quiet";

fn csv(workspace: &Workspace, place: &str) -> String {
    String::from_utf8(workspace.read(place)).unwrap()
}

#[test]
fn items_write_numbers_pictures_and_a_report() {
    let workspace = Workspace::new();
    let answer = workspace.succeed("reproduce moments variance-ratio --quick --degree 2,3 --quiet -o out");
    assert!(
        answer.stdout.contains("agrees") && answer.stdout.contains("3.000000000000 and 2.000000000000"),
        "{answer:?}"
    );
    for item in ["moments", "variance-ratio"] {
        for ending in ["csv", "svg", "png", "json"] {
            assert!(!workspace.read(&format!("out/{item}.{ending}")).is_empty(), "{item}.{ending}");
        }
    }
    let lines: Vec<String> = csv(&workspace, "out/variance-ratio.csv").lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "dataset,scaling,p,pairs,at_most_one,share,ratio");
    // Two scalings, two degrees, 0 % to 100 %.
    assert_eq!(lines.len(), 1 + 2 * 2 * 101);
    let page = csv(&workspace, "out/report.html");
    assert!(page.contains("<svg") && page.contains("Constants of the moment bounds"));
    fs::remove_file(workspace.path("out/report.html")).unwrap();
    workspace.succeed("reproduce report -o out");
    assert_eq!(csv(&workspace, "out/report.html"), page);
}

#[test]
fn the_list_names_every_item() {
    let answer = Workspace::new().succeed("reproduce list");
    for name in
        ["moments", "norm-error", "variances", "gp", "time", "ratio", "online", "error-probability", "variance-ratio"]
    {
        assert!(answer.stdout.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
}

/// A run killed midway and restarted with another number of threads gives the same numbers and repeats no unit.
#[test]
fn an_interrupted_run_goes_on() {
    let workspace = Workspace::new();
    workspace.succeed(&format!("reproduce gp {SMALL} --threads 2 -o whole"));
    // Count complete files; others are written under temporary names.
    let units = |folder: &str| {
        let files = fs::read_dir(workspace.path(folder).join("units/gp")).into_iter().flatten();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "json")).count()
    };
    let mut child = workspace
        .command(&format!("reproduce gp {SMALL} --threads 1 -o cut"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while units("cut") < 5 && begun.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = units("cut");
    assert!((5..units("whole")).contains(&done), "{done} units when it was killed");
    assert!(!workspace.path("cut/gp.csv").exists());
    let partial = workspace.succeed(&format!("reproduce gp {SMALL} --finished -o cut"));
    assert!(partial.stdout.starts_with("gp: "));
    let lines = csv(&workspace, "cut/gp.csv").lines().count() - 1;
    assert_eq!(lines, done);
    workspace.succeed(&format!("reproduce gp {SMALL} --threads 2 -o cut"));
    assert_eq!(csv(&workspace, "cut/gp.csv"), csv(&workspace, "whole/gp.csv"));
    // The CSV alone is enough to resume, too.
    fs::create_dir(workspace.path("from-csv")).unwrap();
    fs::copy(workspace.path("whole/gp.csv"), workspace.path("from-csv/gp.csv")).unwrap();
    workspace.succeed(&format!("reproduce gp {SMALL} --finished -o from-csv"));
    assert_eq!(csv(&workspace, "from-csv/gp.csv"), csv(&workspace, "whole/gp.csv"));
    assert_eq!(workspace.read("from-csv/gp-digits-standard.svg"), workspace.read("whole/gp-digits-standard.svg"));
}

/// Separate runs for datasets and features are shown together, and a damaged CSV is not trusted.
#[test]
fn runs_add_up() {
    let workspace = Workspace::new();
    let run = |arguments: &str| {
        workspace
            .succeed(&format!("reproduce gp --method srf,gaussian --degree 3 --seeds 2 --quiet -o out {arguments}"))
    };
    run("--dataset digits --features 32 --scaling standard");
    run("--dataset digits --features 64,64 --scaling standard,standard");
    let both = csv(&workspace, "out/gp.csv");
    assert_eq!(both.lines().count(), 1 + 2 * 2 * 2, "{both}");
    run("--dataset digits --features 32,64 --scaling standard");
    assert_eq!(csv(&workspace, "out/gp.csv"), both);
    workspace.write("out/gp.csv", &both[..both.len() - 30]);
    let answer = workspace.run("reproduce gp --dataset digits --quick --finished --quiet -o out");
    assert!(
        answer.code == Some(2) && answer.stderr.contains("gp.csv") && answer.stderr.contains("move it away"),
        "{answer:?}"
    );
}

#[test]
fn tables_of_users_and_references_are_read() {
    let workspace = Workspace::new();
    let line = |row: u32| {
        let class = if row.is_multiple_of(2) { "even" } else { "odd" };
        format!("{},{},{class}\n", row % 2 * 3 + row % 7 + 1, row % 5 + 1)
    };
    workspace.write("mine.csv", "a,b,kind\n".to_owned() + &(0..60).map(line).collect::<String>());
    workspace.write(
        "reference.csv",
        "dataset,p,D,sketch,seeds,rel_frob,rel_frob_sd,test_seeds,test_error,test_error_sd,test_mnll,feature_s\n\
         mine,3,16,ctr_gaussian,20,50.0,0.01,1,0.5,,0.7,1\n",
    );
    let arguments = "--table mine.csv --labels kind --method ctr-gaussian --features 16 --degree 3 --seeds 2 --quiet";
    let answer = workspace.succeed(&format!("reproduce gp {arguments} --reference reference.csv -o out"));
    assert!(
        answer.stdout.contains("differs  The authors' own numbers") && answer.stdout.contains("3 comparisons"),
        "{answer:?}"
    );
    assert!(csv(&workspace, "out/gp.csv").lines().nth(1).unwrap().starts_with("mine,"));
}

#[test]
fn mistakes_are_explained_before_any_work() {
    let workspace = Workspace::new();
    workspace.write("x.csv", "a,b\n1,2\n");
    fs::create_dir(workspace.path("empty")).unwrap();
    for (arguments, words) in [
        ("reproduce everything", &["NAME", "everything", "moments"][..]),
        ("reproduce gp", &["make data", "--dataset digits"]),
        ("reproduce all", &["make data", "--dataset digits"]),
        ("reproduce gp --dataset mnist", &["--dataset", "mnist", "--data"]),
        ("reproduce gp --dataset nist", &["--dataset", "nist", "cifar10-conv"]),
        ("reproduce gp --data empty", &["empty", "mnist/"]),
        ("reproduce gp --data empty/nowhere --dataset letter", &["letter", "--data"]),
        ("reproduce gp --table x.csv --labels c", &["--labels", "c"]),
        ("reproduce gp --dataset digits --reference nowhere.csv", &["nowhere.csv", "open"]),
        ("reproduce gp --dataset digits --reference x.csv", &["x.csv", "missing field"]),
        ("reproduce report", &["nothing to report"]),
    ] {
        workspace.refuse(arguments, words);
        assert!(!workspace.path("reproduced").exists(), "{arguments}");
    }
    // Faults of an item are found before its first unit.
    workspace.refuse("reproduce gp --dataset digits --features 63 --quiet", &["--features", "even"]);
    workspace.refuse("reproduce gp --dataset digits --finished --quiet", &["nothing is finished"]);
    assert_eq!(fs::read_dir(workspace.path("reproduced/units/gp")).map_or(0, Iterator::count), 0);
}
