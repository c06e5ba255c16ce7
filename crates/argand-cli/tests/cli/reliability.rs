//! `docs/reliability.md` against the code: the page cannot name a test that is not there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a folder with one of these endings.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, endings, found);
        } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
            found.push(path);
        }
    }
}

/// The names of all functions in the crates, in Rust and in Python.
fn functions() -> BTreeSet<String> {
    let mut sources = Vec::new();
    for folder in ["src", "tests", "benches", "python"] {
        for entry in fs::read_dir(root().join("crates")).unwrap() {
            let folder = entry.unwrap().path().join(folder);
            if folder.is_dir() {
                files(&folder, &["rs", "py"], &mut sources);
            }
        }
    }
    let name = |line: &str| {
        let line = line.trim_start().trim_start_matches("pub ");
        let rest = line.strip_prefix("fn ").or_else(|| line.strip_prefix("def "))?;
        rest.split(['(', '<']).next().map(str::to_owned)
    };
    sources
        .iter()
        .flat_map(|path| fs::read_to_string(path).unwrap().lines().filter_map(name).collect::<Vec<_>>())
        .collect()
}

/// Everything in code marks that looks like the name of a test: words joined by underscores, two at least.
fn named(page: &str) -> BTreeSet<String> {
    let marked = page.split('`').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.contains('_')
            && !text.contains("__")
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    marked.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn tests_that_documents_name_exist() {
    let functions = functions();
    assert!(functions.contains("tests_that_documents_name_exist"));
    for page in ["docs/reliability.md", "SECURITY.md"] {
        let named = named(&fs::read_to_string(root().join(page)).unwrap());
        let missing: Vec<_> = named.difference(&functions).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:?}");
        assert!(page == "SECURITY.md" || named.len() > 60, "{page} names {} tests", named.len());
    }
}

/// Every line of the list of promises has a test or a command.
#[test]
fn every_promise_has_its_tests() {
    let page = fs::read_to_string(root().join("docs/reliability.md")).unwrap();
    for number in 1..=22 {
        let row = page.lines().find(|line| line.starts_with(&format!("| {number} |")));
        let row = row.unwrap_or_else(|| unreachable!("no line {number} in the table of docs/reliability.md"));
        assert!(row.matches('`').count() >= 2, "{row}");
    }
}
