//! What is left behind, what must not be replaced, and what messages say.

use std::fs;
#[cfg(unix)]
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::*;

/// Temporary files of a killed `argand reproduce` go with the next run, in every folder that it writes to.
#[test]
fn reproduce_sweeps_what_a_killed_run_left() {
    let workspace = Workspace::new();
    let run = "reproduce moments --quick --degree 2 --quiet -o out";
    workspace.succeed(run);
    let old = SystemTime::now() - Duration::from_secs(7200);
    let folders: Vec<_> =
        ["out", "out/units/moments"].into_iter().filter(|folder| workspace.path(folder).is_dir()).collect();
    assert!(folders.contains(&"out"));
    let left = |folder: &str| workspace.path(folder).join(".argand-00ff.tmp");
    for folder in &folders {
        fs::write(left(folder), "left by a killed process").unwrap();
        fs::File::options().write(true).open(left(folder)).unwrap().set_modified(old).unwrap();
    }
    workspace.succeed(run);
    for folder in &folders {
        assert!(!left(folder).exists(), "{folder}");
    }
}

/// A file that may not grow (`ulimit -f`) is an error of writing: the signal that the system sends does not end the program.
#[cfg(unix)]
#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let workspace = Workspace::new();
    workspace.write("x.npy", Table::new(3000, 3).npy());
    for output in ["z.npy", "z.csv", "z.parquet"] {
        workspace.write(output, "precious");
        let before = workspace.contents();
        let command =
            format!("ulimit -f 8; exec {} transform x.npy -o {output} --features 64", env!("CARGO_BIN_EXE_argand"));
        let done = Command::new("sh").args(["-c", &command]).current_dir(workspace.folder.path()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{output}: {:?} {said}", done.status);
        assert!(said.contains(output) && said.contains("cannot write"), "{said}");
        assert!(workspace.contents() == before, "{output}: {:?}", workspace.names());
    }
}

/// No output replaces what the command reads.
#[test]
fn inputs_are_never_outputs() {
    let workspace = Workspace::with_table();
    workspace.write("y.csv", "0\n1\n0\n1\n0\n1\n");
    workspace.succeed("transform x.npy -o z.npy --features 4 --save-spec s.json");
    workspace.succeed("fit x.npy --labels y.csv --header no --model ridge --features 4 -o m");
    for (arguments, kept) in [
        ("transform x.npy -o x.npy", "x.npy"),
        ("transform x.npy -o ./x.npy", "x.npy"),
        ("transform x.npy -o z.npy --save-spec z.npy", "z.npy"),
        ("transform x.npy -o z.npy --save-spec x.npy", "x.npy"),
        ("fit x.npy --labels y.csv --header no --model ridge --spec s.json -o s.json", "s.json"),
        ("fit x.npy --labels y.csv --header no --model ridge -o y.csv", "y.csv"),
        ("predict m x.npy -o m.npy/../x.npy", "x.npy"),
        ("predict m x.npy -o x.npy", "x.npy"),
    ] {
        let before = workspace.read(kept);
        let answer = workspace.run(arguments);
        assert_eq!(answer.code, Some(2), "{arguments}: {}", answer.stderr);
        assert!(workspace.read(kept) == before, "{arguments}");
    }
}

/// Messages list the columns that there are, and suspect the delimiter.
#[test]
fn messages_list_columns_and_suspect_the_delimiter() {
    let workspace = Workspace::new();
    workspace.write("x.csv", "a,b,c\n1,2,3\n4,5,6\n");
    workspace.write("semicolon.csv", "a;b;c\n1;2;3\n4;5;6\n");
    let there = "there are \"a\", \"b\", \"c\"";
    workspace.refuse("transform x.csv -o out.npy --columns d", &["--columns", "\"d\"", there]);
    workspace.refuse("transform x.csv -o out.npy --drop d", &["--drop", "\"d\"", there]);
    workspace.refuse("fit x.csv --labels d --model ridge -o out.npy", &["--labels", "named d", there]);
    for command in ["transform semicolon.csv -o out.npy", "plan semicolon.csv --features 4"] {
        workspace.refuse(command, &["semicolon.csv", "try --delimiter semicolon"]);
    }
}
