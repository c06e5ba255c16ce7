//! Files that nobody would write: whatever is read answers any bytes with a value or an error, in little memory.
//!
//! Every target is a function of some bytes. `the_corpus_is_answered` replays the files in `tests/corpus`; `mutated_files_are_answered`
//! changes them field by field, and goes on from what gave an answer that is new. `make fuzz` does that for many more cases with a
//! new seed. All tests of this program run in [`MEMORY`](crate::MEMORY); a target that takes more aborts them, and the case is left
//! in `target/tmp/fuzz`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod mutate;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use argand::{FeatureMap, Input, Rows, SparseRows, Spec};
use argand_learn::online::Trainer;
use argand_learn::{Archive, GpClassifier, GpOptions, GpRegressor, Gram, Model, Recipe, Ridge};
use serde::Deserialize;

use crate::model::NamedModel;
use crate::table::tests::Numbers;
use crate::table::{self, Block, LabelReader, Options};
use mutate::Shape;

/// Answers some bytes, in a folder for files.
type Answers = fn(&Path, &[u8]) -> Result<(), String>;

/// What is tried: a name, which is that of its folder in the corpus; how its files are built; and what answers them.
const TARGETS: [(&str, Shape, Answers); 13] = [
    ("spec", Shape::Json, spec),
    ("recipe", Shape::Json, recipe),
    ("model", Shape::Archive, model),
    ("gram", Shape::Archive, gram),
    ("state", Shape::Archive, state),
    ("npy", Shape::Npy, |folder, bytes| read_table(folder, "x.npy", bytes)),
    ("csv", Shape::Text, |folder, bytes| read_table(folder, "x.csv", bytes)),
    ("csv-gz", Shape::GzippedText, |folder, bytes| read_table(folder, "x.csv.gz", bytes)),
    ("libsvm", Shape::Text, |folder, bytes| read_table(folder, "x.libsvm", bytes)),
    ("idx", Shape::Binary, |folder, bytes| read_table(folder, "x.idx", bytes)),
    ("idx-gz", Shape::GzippedBinary, |folder, bytes| read_table(folder, "x.idx.gz", bytes)),
    ("parquet", Shape::Binary, |folder, bytes| read_table(folder, "x.parquet", bytes)),
    ("sparse", Shape::Json, sparse),
];

/// Rows, pages and lines may take 64 MB each: all of a case takes less than [`MEMORY`](crate::MEMORY).
fn options() -> Options {
    Options { budget: table::share_of(1 << 30), ..Options::default() }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|error| error.to_string())
}

/// A spec that is read is written and read again, and sketches a row or says why not.
fn spec(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let spec = Spec::from_json(text(bytes)?).map_err(|error| error.to_string())?;
    assert_eq!(Spec::from_json(&spec.to_json()).unwrap(), spec);
    transformed(&spec)
}

fn transformed(spec: &Spec) -> Result<(), String> {
    if spec.features > 1 << 12 || spec.inputs.as_slice().iter().sum::<usize>() > 1 << 12 {
        return Err("too large for a test".to_owned());
    }
    let sketch = spec.sketch_within::<f32>(1 << 26).map_err(|error| error.to_string())?;
    let tables: Vec<Vec<f32>> = sketch.spec().inputs.as_slice().iter().map(|&dim| vec![0.25; dim]).collect();
    let inputs: Vec<Input<'_, f32>> = tables.iter().map(|x| Rows::new(x, 1, x.len()).unwrap().into()).collect();
    let features = sketch.transform(&inputs).map_err(|error| error.to_string())?;
    assert!(features.iter().all(|feature| feature.is_finite()));
    Ok(())
}

fn recipe(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let recipe = Recipe::from_json(text(bytes)?).map_err(|error| error.to_string())?;
    assert_eq!(Recipe::from_json(&recipe.to_json()).unwrap(), recipe);
    transformed(&recipe.spec)
}

/// A model that is read is written and read again, and predicts.
fn model(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let read = |bytes: &[u8]| Archive::from_bytes(bytes).and_then(NamedModel::from_archive);
    let named = read(bytes).map_err(|error| error.to_string())?;
    assert_eq!(read(&named.archive().to_bytes()).unwrap().describe(), named.describe());
    predicts(&*named.model)
}

/// Predictions of a row are as many as promised, and labels are classes.
fn predicts(model: &dyn Model) -> Result<(), String> {
    let dim = model.recipe().spec.features;
    let features = vec![0.5_f32; dim];
    let features = Rows::new(&features, 1, dim).unwrap();
    let predicted = model.predict(features).map_err(|error| error.to_string())?;
    assert_eq!(predicted.len(), model.predicts().columns());
    if let argand_learn::Predicts::Classes(classes) = model.predicts() {
        let labels = model.labels(features).map_err(|error| error.to_string())?;
        assert!(labels.len() == 1 && (labels[0] as usize) < classes, "{labels:?}");
    }
    Ok(())
}

/// Sums that are read are written and read again, merge with themselves, and give models or errors.
fn gram(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let mut gram = Gram::from_bytes(bytes).map_err(|error| error.to_string())?;
    // NaN is not equal to itself; bytes are.
    assert_eq!(Gram::from_bytes(&gram.to_bytes()).unwrap().to_bytes(), gram.to_bytes());
    let again = gram.clone();
    if gram.rows() < u64::MAX / 2 {
        gram.merge(&again).unwrap();
    }
    let ridge = Ridge::fit(&gram, 0.5).map_err(|error| error.to_string()).and_then(|model| predicts(&model));
    let regressor = GpRegressor::fit(&gram, None).map_err(|error| error.to_string());
    let regressor = regressor.and_then(|model| predicts(&model));
    let classifier = GpClassifier::fit(&gram, &GpOptions::default()).map_err(|error| error.to_string());
    ridge.and(regressor.or(classifier.and_then(|model| predicts(&model))))
}

fn state(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let read = |bytes: &[u8]| Archive::from_bytes(bytes).and_then(Trainer::from_archive);
    let trainer = read(bytes).map_err(|error| error.to_string())?;
    let again = read(&trainer.to_archive().to_bytes()).unwrap();
    assert_eq!(again.to_archive().to_bytes(), trainer.to_archive().to_bytes());
    Ok(())
}

/// A table has the same rows in blocks of any size, as many as it claims, in columns that it has; its labels are read, too.
fn read_table(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), String> {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    let labels = || -> Result<usize, String> {
        let failed = |failure: crate::Failure| failure.to_string();
        let mut reader = LabelReader::open(&path, &options(), None).map_err(failed)?;
        let (mut rows, mut take) = (0, |_: table::Label<'_>| Ok(()));
        loop {
            match reader.read(100, &mut take).map_err(failed)? {
                0 => return Ok(rows),
                more => rows += more,
            }
        }
    };
    let _ = labels();
    let names = table::names(&path, &options());
    let [one, other] = [3, 1000].map(|rows| read_blocks(&path, rows));
    assert_eq!(one, other, "in blocks of 3 and of 1000 rows");
    assert!(one.is_err() || names.is_ok(), "{:?}", names.err());
    one.map(|_| ())
}

/// All numbers, as bits, with where they are; or the error without its row, which names the block.
fn read_blocks(path: &Path, max_rows: usize) -> Result<Vec<(u64, u64, u64)>, String> {
    let failed = |failure: crate::Failure| failure.to_string();
    let options = Options { missing: true, ..options() };
    let mut reader = table::open::<f64>(path, &options, None, None).map_err(failed)?;
    let (mut block, mut all, mut row) = (Block::default(), Vec::new(), 0_u64);
    let columns = reader.columns();
    assert!(columns > 0);
    // As the commands do, at most as many rows as fit.
    let max_rows = max_rows.min((1 << 26) / reader.row_bytes().max(1)).max(1);
    loop {
        let count = reader.read(max_rows, &mut block).map_err(failed)?;
        match &block {
            Block::Dense { values } => {
                assert_eq!(values.len(), count * columns);
                // Of rows that are very wide, some columns.
                for (index, values) in values.chunks(columns).enumerate() {
                    let numbers = values.iter().enumerate().take(100);
                    all.extend(numbers.map(|(at, value)| (row + index as u64, at as u64, value.to_bits())));
                }
            }
            Block::Sparse { indptr, indices, values } => {
                assert_eq!((indptr.len(), indices.len()), (count + 1, values.len()));
                for index in 0..count {
                    for entry in indptr[index]..indptr[index + 1] {
                        let entry = usize::try_from(entry).unwrap();
                        assert!((indices[entry] as usize) < columns);
                        all.push((row + index as u64, u64::from(indices[entry]), values[entry].to_bits()));
                    }
                }
            }
        }
        row += count as u64;
        if count < max_rows {
            assert!(reader.rows().is_none_or(|rows| rows == row), "{:?} rows, not {row}", reader.rows());
            return Ok(all);
        }
        if all.len() > 1 << 20 {
            return Ok(all);
        }
    }
}

#[derive(Deserialize)]
struct Csr {
    columns: usize,
    indptr: Vec<u64>,
    indices: Vec<u64>,
    values: Vec<f64>,
}

/// Sparse rows have the features of the dense rows that they stand for.
fn sparse(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let Csr { columns, indptr, indices, values } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let rows = SparseRows::new(&indptr[..], &indices[..], &values, columns).map_err(|error| error.to_string())?;
    if columns > 1000 || rows.rows() > 1000 {
        return Err("too large for a test".to_owned());
    }
    let mut dense = vec![0.0; rows.rows() * columns];
    for row in 0..rows.rows() {
        rows.row(row).for_each(|(column, value)| dense[row * columns + column] += value);
    }
    let spec = Spec::polynomial(columns).with_degree(2).with_features(16);
    let sketch = spec.sketch::<f64>().map_err(|error| error.to_string())?;
    let dense = Rows::new(&dense, rows.rows(), columns).unwrap();
    let [got, want] = [Input::Sparse(rows), dense.into()].map(|input| sketch.transform(&[input]));
    match (got, want) {
        (Ok(got), Ok(want)) => assert_eq!(got, want),
        (Err(_), Err(want)) => return Err(want.to_string()),
        (got, want) => unreachable!("sparse {got:?}, dense {want:?}"),
    }
    Ok(())
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name)
}

/// The files of a target, in order.
fn files(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(corpus(name)).unwrap_or_else(|error| unreachable!("no corpus of {name}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Every file of the corpus is answered; of every target, some are read and some are refused.
#[test]
fn the_corpus_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _, run) in TARGETS {
        let files = files(name);
        let read = files.iter().filter(|(path, bytes)| {
            eprintln!("{}", path.display());
            run(folder.path(), bytes).is_ok()
        });
        let read = read.count();
        assert!(0 < read && read < files.len(), "{name}: {read} of {} files are read", files.len());
    }
}

/// An answer without what differs from case to case: its numbers, and what it quotes.
fn kind_of(answer: &Result<(), String>) -> String {
    let Err(message) = answer else { return "read".to_owned() };
    let ends = [message.split('"').next(), message.rsplit('"').next().filter(|_| message.contains('"'))];
    let words = ends.into_iter().flatten().flat_map(|part| part.split(|c: char| !c.is_ascii_alphabetic()));
    words.filter(|word| word.len() > 1).take(12).collect::<Vec<_>>().join(" ")
}

/// A number from the environment.
fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| unreachable!("{name} is a number")))
}

/// Files of the corpus with some fields changed, always the same ones unless `ARGAND_FUZZ_SEED` says otherwise; `ARGAND_FUZZ_CASES` of
/// each target. With `ARGAND_FUZZ_SAVE`, what gave an answer that is new goes into the corpus.
#[test]
fn mutated_files_are_answered() {
    let (seed, cases) = (variable("ARGAND_FUZZ_SEED", 1), variable("ARGAND_FUZZ_CASES", 400));
    let left = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp/fuzz");
    fs::create_dir_all(&left).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let only = std::env::var("ARGAND_FUZZ_ONLY").unwrap_or_default();
    for (name, shape, run) in TARGETS.into_iter().filter(|(name, ..)| name.contains(&only)) {
        let mut numbers = Numbers::new(seed);
        let mut pool: Vec<Vec<u8>> = files(name).into_iter().map(|(_, bytes)| bytes).collect();
        let answers: Vec<_> = pool.iter().map(|bytes| run(folder.path(), bytes)).collect();
        let mut seen: BTreeSet<String> = answers.iter().map(kind_of).collect();
        // Most changes are to files that are read: a second mistake seldom shows.
        let good: Vec<usize> = (0..pool.len()).filter(|&at| answers[at].is_ok()).collect();
        let (known, mut read) = (seen.len(), 0);
        for _ in 0..cases {
            let start = if numbers.below(4) > 0 { good[numbers.below(good.len())] } else { numbers.below(pool.len()) };
            let mut bytes = pool[start].clone();
            (0..=numbers.below(3)).for_each(|_| bytes = shape.mutate(&bytes, &pool, &mut numbers));
            bytes.truncate(1 << 16);
            // Here it stays, should it end the tests.
            fs::write(left.join(name), &bytes).unwrap();
            let answer = run(folder.path(), &bytes);
            read += u64::from(answer.is_ok());
            let kind = kind_of(&answer);
            if seen.insert(kind) {
                if std::env::var_os("ARGAND_FUZZ_SAVE").is_some() && bytes.len() <= 4096 {
                    fs::write(corpus(name).join(format!("found-{:02}", seen.len())), &bytes).unwrap();
                }
                pool.push(bytes);
            }
        }
        let new = seen.len() - known;
        eprintln!("{name}: {cases} cases with seed {seed}, {read} read, {} answers, {new} of them new", seen.len());
    }
}
