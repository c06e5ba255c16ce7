//! Labelled rows in files, read in blocks, in as many passes as a model needs.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use argand::rng::{Purpose, Stream};
use argand::{Error, Input, Rows};
use argand_learn::{Labels, Pipeline, Targets};

use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::selection::{Picking, Policy, Saved, TableArguments};
use crate::table::{self, Column, Label, LabelReader, Options, listed};
use crate::warn;

/// Where labels are: in a file of their own, or in a column of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelSource {
    path: PathBuf,
    column: Option<(String, Column)>,
    options: Options,
}

impl LabelSource {
    /// Resolves `option`: a column of an input by name (by number in text without a header), or else a file.
    pub(crate) fn find(
        option: &str,
        text: &str,
        inputs: &[PathBuf],
        arguments: &TableArguments,
    ) -> Result<Self, Failure> {
        let (file, options) = (Path::new(text), arguments.options(false));
        let (mut with_column, mut there) = (Vec::new(), Vec::new());
        for path in inputs {
            if let Some((names, column)) = table::names(path, &options)? {
                if names.iter().any(|name| name == text) {
                    with_column.push((path, column));
                }
                there.extend(names);
            }
        }
        match with_column[..] {
            [(path, _)] if file.is_file() => Err(Failure::Input(format!(
                "{option}: {text} is both a file and a column of {}; write ./{text} for the file, or rename it",
                path.display()
            ))),
            [(path, column)] => Ok(Self { path: path.clone(), column: Some((text.to_owned(), column)), options }),
            [] if file.exists() => Ok(Self { path: file.to_path_buf(), column: None, options }),
            [] => {
                let there = if there.is_empty() { String::new() } else { format!("; there are {}", listed(&there)) };
                let what = format!("expected a column or a file, found neither named {text}");
                Err(Failure::Input(format!("{option}: {what}{there}")))
            }
            _ => Err(Failure::Input(format!("{option}: expected a column of one input, but several have {text}"))),
        }
    }

    /// The column of an input that holds labels instead of features.
    pub(crate) fn column(&self) -> Option<&str> {
        self.column.as_ref().map(|(column, _)| column.as_str())
    }

    /// The same, if its name finds it in other files. A number cannot: another file may have no labels.
    pub(crate) fn column_name(&self) -> Option<&str> {
        self.column().filter(|_| !matches!(self.column, Some((_, Column::Numbered))))
    }

    /// The place of the column, where columns have numbers.
    pub(crate) fn column_place(&self) -> Option<usize> {
        self.column().filter(|_| matches!(self.column, Some((_, Column::Numbered))))?.parse().ok()
    }

    /// The file.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    fn open(&self) -> Result<LabelReader, Failure> {
        LabelReader::open(&self.path, &self.options, self.column())
    }
}

/// The SHA-256 of a file, in hexadecimal digits.
pub(crate) fn digest(path: &Path) -> Result<String, Failure> {
    use sha2::{Digest, Sha256};
    use std::io::Read;
    let failed = |error: std::io::Error| Failure::io(path, "read", &error);
    let (mut file, _) = table::open_regular(path)?;
    let (mut hash, mut bytes) = (Sha256::new(), vec![0; 1 << 18]);
    loop {
        match file.read(&mut bytes).map_err(failed)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            count => hash.update(&bytes[..count]),
        }
    }
}

/// The names of classes, in the order in which a model counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Classes {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

/// More classes than this are probably numbers.
const MOST_CLASSES: usize = 1 << 16;

/// Up to so many whole numbers, or a tenth of the rows, are surely classes.
const FEW_CLASSES: usize = 100;

impl Classes {
    /// All classes in a label file, numbers first and in ascending order.
    pub(crate) fn collect(source: &LabelSource) -> Result<Self, Failure> {
        let names = Self::found([source])?;
        if names.len() < 2 {
            let what = format!("has labels of {} classes; a model tells at least 2 apart", names.len());
            return Err(Failure::input(&source.path, what));
        }
        Ok(Self::in_order(names))
    }

    /// The names of all classes in some label files.
    pub(crate) fn found<'a>(sources: impl IntoIterator<Item = &'a LabelSource>) -> Result<BTreeSet<String>, Failure> {
        let (mut names, mut rows, mut whole) = (BTreeSet::new(), 0, true);
        let mut take = |label: Label<'_>| {
            rows += 1;
            whole &= matches!(label, Label::Integer(_));
            if let Label::Number(number) = label {
                return Err(format!("is {number}, not a class; use --task regression to predict numbers"));
            }
            let name = label.name();
            if !names.contains(&*name) {
                names.insert(name.into_owned());
                if names.len() > MOST_CLASSES {
                    return Err(format!("is class {}; use --task regression to predict numbers", MOST_CLASSES + 1));
                }
            }
            Ok(())
        };
        for source in sources {
            let mut reader = source.open()?;
            while reader.read(1 << 12, &mut take)? > 0 {}
        }
        if whole && names.len() > FEW_CLASSES.max(rows / 10) {
            let what = format!("took {} different whole numbers for classes", names.len());
            warn(&format!("--labels: {what}; use --task regression if they are numbers to predict"));
        }
        Ok(names)
    }

    /// Numbers first, in ascending order.
    pub(crate) fn in_order(names: BTreeSet<String>) -> Self {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_by_key(|name| (name.parse::<i64>().unwrap_or(i64::MAX), name.clone()));
        Self::from(names)
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

impl From<Vec<String>> for Classes {
    fn from(names: Vec<String>) -> Self {
        let numbers = (0..).zip(&names).map(|(number, name)| (name.clone(), number)).collect();
        Self { names, numbers }
    }
}

/// What is predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    /// One of these classes.
    Classification(Classes),
    /// A number.
    Regression,
}

impl Task {
    /// Bytes that the predictions for a row take.
    pub(crate) fn predicted_bytes(&self) -> usize {
        match self {
            // So few that blocks, and with them models, are as large as they always were.
            Self::Classification(classes) if classes.names.len() <= 256 => 0,
            Self::Classification(classes) => 3 * size_of::<f64>() * classes.names.len(),
            Self::Regression => 0,
        }
    }

    /// Targets for a [`Gram`](argand_learn::Gram), with separate products for every class if `apart`.
    pub(crate) fn targets(&self, apart: bool) -> Targets {
        match self {
            Self::Regression => Targets::Values(1),
            Self::Classification(classes) if apart => Targets::ClassesApart(classes.names.len()),
            Self::Classification(classes) => Targets::Classes(classes.names.len()),
        }
    }
}

/// A random choice of rows: the same in every pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    /// The share that is held out.
    pub(crate) fraction: f64,
    pub(crate) seed: u64,
}

/// Which rows of a file are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Part {
    All,
    Training(Split),
    HeldOut(Split),
}

/// Labelled rows in files.
#[derive(Debug, Clone)]
pub(crate) struct Dataset<'a> {
    pub(crate) paths: &'a [PathBuf],
    pub(crate) labels: LabelSource,
    pub(crate) part: Part,
    arguments: &'a TableArguments,
    /// Columns that hold labels, not features.
    without: Vec<String>,
    /// What becomes of missing numbers.
    pub(crate) policy: Policy,
    /// Show a progress bar for every pass.
    pub(crate) progress: bool,
    /// Who does not have a class that a row is of, in words.
    pub(crate) unknown: &'static str,
}

impl<'a> Dataset<'a> {
    pub(crate) fn new(
        paths: &'a [PathBuf],
        labels: LabelSource,
        part: Part,
        arguments: &'a TableArguments,
        policy: Policy,
    ) -> Self {
        let without = labels.column().map(str::to_owned).into_iter().collect();
        Self { paths, labels, part, arguments, without, policy, progress: false, unknown: "the model does not know" }
    }

    /// Leaves out another label column, if there is one.
    pub(crate) fn leave_out(&mut self, column: Option<&str>) {
        self.without.extend(column.filter(|column| self.labels.column() != Some(column)).map(str::to_owned));
    }

    /// Opens the tables; `saved` is as in [`Inputs::open`].
    pub(crate) fn inputs(&self, saved: Option<Saved<'_>>) -> Result<Inputs<'a, f32>, Failure> {
        let picking = Picking { arguments: self.arguments, labels: &self.without, label_place: None, saved };
        Inputs::open(self.paths, &picking, self.policy.clone())
    }

    /// Starts to read rows and labels. `saved` is as in [`Inputs::open`]; `doing` precedes the progress bar.
    pub(crate) fn pass(&'a self, saved: Option<Saved<'_>>, task: &'a Task, doing: &str) -> Result<Pass<'a>, Failure> {
        let mut inputs = self.inputs(saved)?;
        let labels = self.labels.open()?;
        if let (Some(rows), Some(count)) = (inputs.known_rows(), labels.rows())
            && rows != count
        {
            return Err(self.other_count(count, rows));
        }
        if self.progress {
            inputs.show_progress(doing);
        }
        let chooser = match self.part {
            Part::All => None,
            Part::Training(split) => Some((split, false)),
            Part::HeldOut(split) => Some((split, true)),
        };
        // Factor 1 belongs to the samples of `plan`.
        let chooser =
            chooser.map(|(split, held_out)| (Stream::new(split.seed, Purpose::Sample, 2, 0), split.fraction, held_out));
        Ok(Pass { dataset: self, inputs, labels, task, chooser, classes: Vec::new(), values: Vec::new() })
    }

    fn other_count(&self, labels: u64, rows: u64) -> Failure {
        let header = if labels + 1 == rows { "; a first line of text is taken for a header" } else { "" };
        Failure::input(&self.labels.path, format!("has {labels} labels for {rows} rows{header}"))
    }
}

/// One pass over labelled rows.
pub(crate) struct Pass<'a> {
    dataset: &'a Dataset<'a>,
    inputs: Inputs<'a, f32>,
    labels: LabelReader,
    task: &'a Task,
    /// The random source of the split, the share held out, and whether the held-out rows are the ones read.
    chooser: Option<(Stream, f64, bool)>,
    /// Labels of the current rows; one of the two is in use.
    classes: Vec<u32>,
    values: Vec<f64>,
}

impl<'a> Pass<'a> {
    /// The tables.
    pub(crate) fn inputs(&self) -> &Inputs<'a, f32> {
        &self.inputs
    }

    /// Reads at most `most` rows; returns whether there were any.
    pub(crate) fn next(&mut self, most: usize) -> Result<bool, Failure> {
        loop {
            let rows = self.inputs.read(most)?;
            self.classes.clear();
            self.values.clear();
            let (classes, values, task) = (&mut self.classes, &mut self.values, self.task);
            let unknown = self.dataset.unknown;
            let count = self.labels.read(rows.max(1), &mut |label| match task {
                Task::Classification(known) => match known.numbers.get(&*label.name()) {
                    Some(&number) => {
                        classes.push(number);
                        Ok(())
                    }
                    None => Err(format!("is of class {:?}, which {unknown}", label.name())),
                },
                Task::Regression => {
                    values.push(label.number().ok_or_else(|| format!("has {:?} instead of a number", label.name()))?);
                    Ok(())
                }
            })?;
            let before = self.inputs.rows_before();
            if count != rows {
                let [labels, rows] = [before + count, before + rows].map(|count| count as u64);
                return Err(if rows < labels {
                    Failure::input(&self.dataset.labels.path, format!("has more labels than the {rows} rows"))
                } else {
                    self.dataset.other_count(labels, self.inputs.known_rows().unwrap_or(rows))
                });
            }
            if rows == 0 {
                return Ok(false);
            }
            let complete = self.inputs.complete_rows();
            if self.chooser.is_some() || complete.is_some() {
                // Every row draws its number, whether it is complete or not.
                let chosen = |_: &usize| match &mut self.chooser {
                    Some((stream, fraction, held_out)) => (stream.uniform() <= *fraction) == *held_out,
                    None => true,
                };
                let mut kept: Vec<usize> = (0..rows).filter(chosen).collect();
                if let Some(complete) = complete {
                    kept.retain(|row| complete.binary_search(row).is_ok());
                }
                for (to, &from) in kept.iter().enumerate() {
                    match self.task {
                        Task::Classification(_) => self.classes[to] = self.classes[from],
                        Task::Regression => self.values[to] = self.values[from],
                    }
                }
                self.classes.truncate(kept.len());
                self.values.truncate(kept.len());
                self.inputs.keep(kept);
            }
            if self.rows() > 0 {
                return Ok(true);
            }
        }
    }

    fn rows(&self) -> usize {
        self.classes.len().max(self.values.len())
    }

    /// The labels of the current rows as numbers: those of classes are their places.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        match self.task {
            Task::Classification(_) => self.classes.iter().map(|&class| f64::from(class)).collect(),
            Task::Regression => self.values.clone(),
        }
    }

    /// The classes of the current rows.
    pub(crate) fn classes(&self) -> &[u32] {
        &self.classes
    }

    /// The labels of some of the current rows.
    pub(crate) fn labels(&self, range: Range<usize>) -> Result<Labels<'_>, Error> {
        Ok(match self.task {
            Task::Classification(_) => Labels::Classes(&self.classes[range]),
            Task::Regression => {
                let rows = range.len();
                Labels::Values(Rows::new(&self.values[range], rows, 1)?)
            }
        })
    }

    /// All rows of a single table, made dense, and their classes, if they take no more than `limit` bytes.
    pub(crate) fn read_all(mut self, limit: u64) -> Result<(Vec<f32>, Vec<u32>), Failure> {
        let (mut values, mut classes) = (Vec::new(), Vec::<u32>::new());
        let row_bytes = 4 * self.inputs.columns()[0] as u64;
        let known = self.inputs.known_rows().unwrap_or(1);
        let block_rows = self.inputs.block_rows(0).min(1 << 12);
        while self.next(block_rows)? {
            let needed = row_bytes.saturating_mul(known.max((classes.len() + self.rows()) as u64));
            if needed > limit {
                let [needed, limit] = [needed, limit].map(crate::info::bytes);
                let what = format!("takes {needed} as a dense table, more than --memory-limit, {limit}");
                return Err(Failure::input(&self.dataset.paths[0], what));
            }
            let views = self.inputs.views().map_err(|error| self.inputs.explain(error))?;
            for row in 0..self.rows() {
                match &views[0] {
                    Input::Dense(rows) => values.extend_from_slice(rows.row(row)),
                    Input::Sparse(rows) => {
                        let start = values.len();
                        values.resize(start + rows.columns(), 0.0);
                        rows.row(row).for_each(|(column, value)| values[start + column] += value);
                    }
                }
            }
            classes.extend_from_slice(&self.classes);
        }
        Ok((values, classes))
    }

    /// Passes the features and labels of all rows to `consume`, block by block; returns the number of rows.
    pub(crate) fn for_each(
        self,
        pipeline: &Pipeline<f32>,
        mut consume: impl FnMut(Rows<'_, f32>, Labels<'_>) -> Result<(), Error>,
    ) -> Result<usize, Failure> {
        self.for_each_rows(|inputs, labels| {
            pipeline.for_each_block(inputs, |range, features| consume(features, labels.slice(range)))
        })
    }

    /// Passes all rows and their labels to `consume`, block by block; returns the number of rows.
    pub(crate) fn for_each_rows(
        mut self,
        mut consume: impl FnMut(&[Input<'_, f32>], Labels<'_>) -> Result<(), Error>,
    ) -> Result<usize, Failure> {
        let (block_rows, mut rows) = (self.inputs.block_rows(self.task.predicted_bytes()), 0);
        while self.next(block_rows)? {
            let views = self.inputs.views().map_err(|error| self.inputs.explain(error))?;
            let consumed = self.labels(0..self.rows()).and_then(|labels| consume(&views, labels));
            consumed.map_err(|error| self.inputs.explain(error))?;
            rows += self.rows();
        }
        Ok(rows)
    }
}
