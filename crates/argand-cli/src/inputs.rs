//! The tables that a command reads: one, or one per factor, in step.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use argand::rng::{Purpose, Stream};
use argand::{Argument, Error, Input, InputDims, Kernel, Polynomial, Rows, Scalar, SparseRows};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::blocks::{LABELLED_SAMPLE_ROWS, READ_BYTES, READ_ROWS, SAMPLE_BYTES, SAMPLE_ROWS};
use crate::failure::Failure;
use crate::selection::{Picking, Policy};
use crate::table::{self, Block, Element, Reader};

/// Options that describe a kernel.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KernelArguments {
    /// The kernel: polynomial, (G <x,y> + C)^P; gaussian, exp(-|x-y|^2 / (2 L^2));
    /// exponential, exp(<x,y> / L^2); or series, the sum of A_n <x,y>^n.
    #[arg(long, value_enum, value_name = "K", default_value_t = KernelName::Polynomial)]
    kernel: KernelName,

    /// Degree of a polynomial kernel [default: 2; with several inputs, their number].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    degree: Option<usize>,

    /// Factor of the inner product in a polynomial kernel [default: 1]; 1 / (2 L^2) of a gaussian one.
    #[arg(long, value_name = "G", allow_negative_numbers = true)]
    gamma: Option<f64>,

    /// Constant added to the inner product in a polynomial kernel [default: 0].
    #[arg(long, value_name = "C", allow_negative_numbers = true)]
    coef0: Option<f64>,

    /// Length scale of a gaussian or exponential kernel, for example the median distance between rows.
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    length_scale: Option<f64>,

    /// Coefficients of a series, from the constant on: A0,A1,A2...
    #[arg(long, value_name = "A", value_delimiter = ',', allow_negative_numbers = true)]
    coefficients: Vec<f64>,
}

/// Those whose length scale is not out of range.
const GAUSSIAN_GAMMAS: std::ops::RangeInclusive<f64> = 1e-200..=1e199;

/// The kernels by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum KernelName {
    Polynomial,
    Gaussian,
    Exponential,
    Series,
}

impl KernelArguments {
    /// The kernel of tables with these numbers of columns.
    pub(crate) fn kernel(&self, columns: &[usize]) -> Result<(Kernel, InputDims), Failure> {
        let given = [
            ("--degree", self.degree.is_some(), [KernelName::Polynomial; 2]),
            ("--gamma", self.gamma.is_some(), [KernelName::Polynomial, KernelName::Gaussian]),
            ("--coef0", self.coef0.is_some(), [KernelName::Polynomial; 2]),
            ("--length-scale", self.length_scale.is_some(), [KernelName::Gaussian, KernelName::Exponential]),
            ("--coefficients", !self.coefficients.is_empty(), [KernelName::Series; 2]),
        ];
        if let Some((name, ..)) = given.iter().find(|(_, given, kernels)| *given && !kernels.contains(&self.kernel)) {
            return Err(Failure::Input(format!("{name}: not an option of this --kernel")));
        }
        let kernel = match (self.kernel, self.length_scale, self.gamma) {
            (KernelName::Polynomial, ..) => {
                let (kernel, inputs) = self.polynomial(columns)?;
                return Ok((kernel.into(), inputs));
            }
            (KernelName::Gaussian, Some(_), Some(_)) => {
                return Err(Failure::Input("--gamma: expected either this or --length-scale".to_owned()));
            }
            (KernelName::Gaussian, None, Some(gamma)) if !GAUSSIAN_GAMMAS.contains(&gamma) => {
                let [least, most] = [GAUSSIAN_GAMMAS.start(), GAUSSIAN_GAMMAS.end()];
                return Err(Failure::Input(format!(
                    "--gamma: expected a number from {least:e} to {most:e}, got {gamma}"
                )));
            }
            (KernelName::Gaussian, None, Some(gamma)) => Kernel::gaussian_of_gamma(gamma),
            (KernelName::Gaussian, Some(length_scale), None) => Kernel::Gaussian { length_scale },
            (KernelName::Exponential, Some(length_scale), _) => Kernel::Exponential { length_scale },
            (KernelName::Gaussian | KernelName::Exponential, None, _) => {
                return Err(Failure::Input("--length-scale: expected for this --kernel".to_owned()));
            }
            (KernelName::Series, ..) => Kernel::Series { coefficients: self.coefficients.clone() },
        };
        match columns {
            [columns] => Ok((kernel, InputDims::Same(*columns))),
            several => Err(Failure::Input(format!("IN: expected one file for this --kernel, got {}", several.len()))),
        }
    }

    /// The polynomial kernel, for what is about it alone.
    pub(crate) fn polynomial(&self, columns: &[usize]) -> Result<(Polynomial, InputDims), Failure> {
        if self.kernel != KernelName::Polynomial {
            return Err(Failure::Input("--kernel: expected polynomial for this command".to_owned()));
        }
        let (implied, inputs) = match columns {
            [columns] => (self.degree.unwrap_or(2), InputDims::Same(*columns)),
            several => (several.len(), InputDims::Distinct(several.to_vec())),
        };
        match self.degree {
            Some(degree) if degree != implied => {
                Err(Failure::Input(format!("--degree: expected {implied}, one per input, got {degree}")))
            }
            _ => {
                let (gamma, coef0) = (self.gamma.unwrap_or(1.0), self.coef0.unwrap_or(0.0));
                Ok((Polynomial { degree: implied, gamma, coef0 }, inputs))
            }
        }
    }
}

/// Tables read in step: the same rows of each.
pub(crate) struct Inputs<'a, T> {
    paths: &'a [PathBuf],
    readers: Vec<Box<dyn Reader<T>>>,
    columns: Vec<usize>,
    /// The names of the columns of every table; none where it has no names.
    names: Vec<Vec<String>>,
    policy: Policy,
    /// Rows left out for missing numbers.
    dropped: usize,
    /// Bytes that rows may take at a time.
    budget: u64,
    blocks: Vec<Block<T>>,
    /// Number of rows before the current ones, and of the current ones.
    done: usize,
    read: usize,
    /// Which of the current rows were kept, if not all, and how many.
    kept: Option<Vec<usize>>,
    rows: usize,
    bar: ProgressBar,
    begun: Instant,
    /// Advice on a number too large for f32.
    advice: &'static str,
}

impl<'a, T: Scalar + Element> Inputs<'a, T> {
    /// Opens all tables and checks, as far as possible without reading them, that they fit each other and a saved spec or model.
    pub(crate) fn open(paths: &'a [PathBuf], picking: &Picking<'_>, policy: Policy) -> Result<Self, Failure> {
        if let Some(saved) = picking.saved
            && saved.dims.len() != paths.len()
        {
            let (what, count) = (saved.what, saved.dims.len());
            return Err(Failure::Input(format!("IN: expected {count} files for this {what}, got {}", paths.len())));
        }
        picking.check(paths)?;
        let options = picking.arguments.options(policy != Policy::Error);
        let (mut readers, mut names) = (Vec::with_capacity(paths.len()), Vec::with_capacity(paths.len()));
        for (index, path) in paths.iter().enumerate() {
            let expected = picking.saved.map(|saved| (saved.what, saved.dims[index]));
            let picked = picking.pick(index, path)?;
            let reader = table::open::<T>(path, &options, expected.map(|(_, dim)| dim), picked.places.as_deref())?;
            if let Some((what, dim)) = expected
                && reader.columns() != dim
            {
                let what = format!("has {} columns; the {what} is for {dim}", reader.columns());
                return Err(Failure::input(path, what));
            }
            // A column may hold a list of numbers: then names do not tell them apart.
            names.push(if picked.names.len() == reader.columns() { picked.names } else { Vec::new() });
            readers.push(reader);
        }
        let known: Vec<_> = readers.iter().map(|reader| reader.rows()).collect();
        if let Some(Some(first)) = known.first() {
            for (path, rows) in paths.iter().zip(&known).filter_map(|(path, rows)| Some((path, (*rows)?))) {
                if rows != *first {
                    return Err(Failure::input(path, format!("has {rows} rows; {} has {first}", paths[0].display())));
                }
            }
        }
        Ok(Self {
            columns: readers.iter().map(|reader| reader.columns()).collect(),
            names,
            policy,
            dropped: 0,
            budget: options.budget,
            blocks: readers.iter().map(|_| Block::default()).collect(),
            paths,
            readers,
            done: 0,
            read: 0,
            kept: None,
            rows: 0,
            bar: ProgressBar::hidden(),
            begun: Instant::now(),
            advice: "",
        })
    }

    /// Columns of each table.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The names of the columns of every table, as a recipe keeps them: nothing if no table has names.
    pub(crate) fn names(&self) -> Vec<Vec<String>> {
        if self.names.iter().all(Vec::is_empty) { Vec::new() } else { self.names.clone() }
    }

    /// Number of rows, if a format tells before reading them all.
    pub(crate) fn known_rows(&self) -> Option<u64> {
        self.readers.iter().find_map(|reader| reader.rows())
    }

    /// Bytes that the widest row of all tables takes.
    fn row_bytes(&self) -> usize {
        self.readers.iter().map(|reader| reader.row_bytes()).sum::<usize>().max(1)
    }

    /// Rows that take about so many bytes together with so many more for each row, within bounds and the budget.
    pub(crate) fn rows_within(&self, bytes: usize, more: usize, [fewest, most]: [usize; 2]) -> usize {
        let row = self.row_bytes().saturating_add(more);
        let affordable = usize::try_from(self.budget).unwrap_or(usize::MAX) / row;
        (bytes / row).clamp(fewest, most).min(affordable).max(1)
    }

    /// Rows to read at a time where features are not kept: about 32 MB, whatever the number of threads. `more` is what each row takes
    /// beside its numbers.
    pub(crate) fn block_rows(&self, more: usize) -> usize {
        self.rows_within(READ_BYTES, more, READ_ROWS)
    }

    /// Sets the advice on a number that is infinite in f32 but perhaps not in the file.
    pub(crate) fn advise(&mut self, advice: &'static str) {
        self.advice = advice;
    }

    /// Shows a progress bar while reading, preceded by `doing`: on a terminal, not in a pipe.
    pub(crate) fn show_progress(&mut self, doing: &str) {
        let total = self.readers.iter().map(|reader| reader.progress().total).sum();
        self.bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{prefix}{bar:30} {percent:>3}%  {msg}  {eta} left") {
            self.bar.set_style(style);
        }
        self.bar.set_prefix(doing.to_owned());
        self.bar.enable_steady_tick(Duration::from_millis(200));
        self.begun = Instant::now();
    }

    /// Reads at most `most` rows, without those that are dropped for missing numbers; returns how many are left, 0 after the last.
    pub(crate) fn next(&mut self, most: usize) -> Result<usize, Failure> {
        loop {
            let read = self.read(most)?;
            if let Some(kept) = self.complete_rows() {
                self.keep(kept);
            }
            if read == 0 || self.rows > 0 {
                return Ok(self.rows);
            }
        }
    }

    /// The current rows without missing numbers, if those with them are to be dropped.
    pub(crate) fn complete_rows(&mut self) -> Option<Vec<usize>> {
        if self.policy != Policy::Drop {
            return None;
        }
        let complete = |block: &Block<T>, row: usize, columns: usize| match block {
            Block::Dense { values } => !values[row * columns..][..columns].iter().any(|value| value.to_f64().is_nan()),
            Block::Sparse { .. } => true,
        };
        let tables = || self.blocks.iter().zip(&self.columns);
        let kept = (0..self.rows).filter(|&row| tables().all(|(block, &columns)| complete(block, row, columns)));
        let kept: Vec<usize> = kept.collect();
        self.dropped += self.rows - kept.len();
        (kept.len() < self.rows).then_some(kept)
    }

    /// Reads at most `most` rows and fills in missing numbers; returns how many, 0 after the last.
    pub(crate) fn read(&mut self, most: usize) -> Result<usize, Failure> {
        self.done += self.read;
        let rate = (self.done as f64 / self.begun.elapsed().as_secs_f64().max(1e-3)).round();
        self.bar.set_message(format!("{} rows, {} rows/s", HumanCount(self.done as u64), human(rate)));
        self.bar.set_position(self.readers.iter().map(|reader| reader.progress().done).sum());
        let mut counts = Vec::with_capacity(self.readers.len());
        for (reader, block) in self.readers.iter_mut().zip(&mut self.blocks) {
            counts.push(reader.read(most, block)?);
        }
        self.rows = counts[0];
        if let Some(other) = counts.iter().position(|&count| count != self.rows) {
            let shorter = if counts[other] < self.rows { other } else { 0 };
            let what = format!("has only {} rows, fewer than the other inputs", self.done + counts[shorter]);
            return Err(Failure::input(&self.paths[shorter], what));
        }
        (self.read, self.kept) = (self.rows, None);
        if self.rows == 0 && self.dropped > 0 {
            let files = names(self.paths);
            crate::warn(&format!("{files}: left out {} of {} rows for missing numbers", self.dropped, self.done));
        }
        if let Policy::Fill(tables) = &self.policy {
            for (block, means) in self.blocks.iter_mut().zip(tables) {
                let Block::Dense { values } = block else { continue };
                for (value, &mean) in values.iter_mut().zip(means.iter().cycle()) {
                    if value.to_f64().is_nan() {
                        *value = Element::from_f64(mean);
                    }
                }
            }
        }
        Ok(self.rows)
    }

    /// Keeps some of the current rows, given in ascending order.
    pub(crate) fn keep(&mut self, rows: Vec<usize>) {
        self.blocks.iter_mut().zip(&self.columns).for_each(|(block, &columns)| block.keep(&rows, columns));
        self.rows = rows.len();
        self.kept = Some(rows);
    }

    /// Number of rows read before the current ones.
    pub(crate) fn rows_before(&self) -> usize {
        self.done
    }

    /// The current rows.
    pub(crate) fn views(&self) -> Result<Vec<Input<'_, T>>, Error> {
        views(&self.blocks, &self.columns, self.rows)
    }

    /// Translates a library error about the current rows into terms of the files.
    pub(crate) fn explain(&self, error: Error) -> Failure {
        let in_file = |row: usize| self.done + self.kept.as_ref().map_or(row, |kept| kept[row]);
        explain::<T>(error, in_file, self.paths, self.advice)
    }

    /// Rows of a sample.
    pub(crate) fn sample_rows(&self) -> usize {
        self.rows_within(SAMPLE_BYTES, 0, SAMPLE_ROWS)
    }

    /// Rows of a sample from which models learn.
    pub(crate) fn labelled_sample_rows(&self) -> usize {
        self.rows_within(SAMPLE_BYTES, 0, LABELLED_SAMPLE_ROWS)
    }

    /// Reads all rows, or the first `limit` ones, and keeps a random sample of them.
    pub(crate) fn sample(mut self, limit: Option<usize>, seed: u64) -> Result<Sample<T>, Failure> {
        let mut reservoir = Reservoir::new(&self.columns, self.sample_rows(), seed);
        let limit = limit.unwrap_or(usize::MAX);
        while reservoir.total < limit {
            let rows = self.next(reservoir.keep.min(limit - reservoir.total))?;
            if rows == 0 {
                break;
            }
            let views = self.views().map_err(|error| self.explain(error))?;
            reservoir.add(&views, &[]).map_err(|error| self.explain(error))?;
        }
        Ok(reservoir.finish())
    }
}

/// A random sample of rows that come block by block.
pub(crate) struct Reservoir<T> {
    kept: Vec<Kept<T>>,
    columns: Vec<usize>,
    /// The labels of the rows that are kept, if rows have labels.
    labels: Vec<f64>,
    stream: Stream,
    keep: usize,
    total: usize,
}

impl<T: Scalar> Reservoir<T> {
    /// An empty sample of `keep` rows.
    pub(crate) fn new(columns: &[usize], keep: usize, seed: u64) -> Self {
        Self {
            kept: columns.iter().map(|_| Kept::Nothing).collect(),
            columns: columns.to_vec(),
            labels: Vec::new(),
            stream: Stream::new(seed, Purpose::Sample, 1, 0),
            keep,
            total: 0,
        }
    }

    /// Takes the next block of rows into account, with their labels, if they have any: numbers, or numbers of classes.
    pub(crate) fn add(&mut self, views: &[Input<'_, T>], labels: &[f64]) -> Result<(), Error> {
        argand::check_finite(views)?;
        for row in 0..views.first().map_or(0, Input::rows) {
            // Vitter's algorithm R: every row is equally likely to be kept.
            let place = if self.total < self.keep {
                self.total
            } else {
                self.stream.below(u32::try_from(self.total + 1).unwrap_or(u32::MAX)) as usize
            };
            self.total += 1;
            if place < self.keep {
                self.kept.iter_mut().zip(views).for_each(|(kept, view)| kept.put(place, view, row));
                if let Some(&label) = labels.get(row) {
                    self.labels.resize(self.labels.len().max(place + 1), 0.0);
                    self.labels[place] = label;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Sample<T> {
        let blocks = self.kept.into_iter().map(Kept::into_block).collect();
        let rows = self.total.min(self.keep);
        Sample { blocks, columns: self.columns, labels: self.labels, rows, total: self.total }
    }
}

/// Rows of one table, each replaceable.
enum Kept<T> {
    Nothing,
    Dense(Vec<T>),
    Sparse(Vec<Vec<(usize, T)>>),
}

impl<T: Scalar> Kept<T> {
    /// Puts a row at `place`: an occupied one, or the next free one.
    fn put(&mut self, place: usize, table: &Input<'_, T>, row: usize) {
        if let Self::Nothing = self {
            *self = match table {
                Input::Dense(_) => Self::Dense(Vec::new()),
                Input::Sparse(_) => Self::Sparse(Vec::new()),
            };
        }
        match (self, table) {
            (Self::Dense(values), Input::Dense(rows)) => {
                let (row, start) = (rows.row(row), place * rows.columns());
                if start == values.len() {
                    values.extend_from_slice(row);
                } else {
                    values[start..][..row.len()].copy_from_slice(row);
                }
            }
            (Self::Sparse(kept), Input::Sparse(rows)) => {
                let row = rows.row(row).collect();
                if place == kept.len() { kept.push(row) } else { kept[place] = row }
            }
            _ => unreachable!("a table is dense or sparse from its first row to its last"),
        }
    }

    fn into_block(self) -> Block<T> {
        match self {
            Self::Nothing => Block::default(),
            Self::Dense(values) => Block::Dense { values },
            Self::Sparse(rows) => {
                let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
                for row in rows {
                    // Sparse files have 32-bit columns.
                    indices.extend(row.iter().map(|&(column, _)| u32::try_from(column).unwrap_or(u32::MAX)));
                    values.extend(row.iter().map(|&(_, value)| value));
                    indptr.push(values.len() as u64);
                }
                Block::Sparse { indptr, indices, values }
            }
        }
    }
}

impl<T> Drop for Inputs<'_, T> {
    fn drop(&mut self) {
        // Otherwise it would precede the last message.
        self.bar.finish_and_clear();
    }
}

/// Some rows of all tables.
pub(crate) struct Sample<T> {
    blocks: Vec<Block<T>>,
    columns: Vec<usize>,
    /// One label for each row, if rows have labels.
    pub(crate) labels: Vec<f64>,
    /// Number of rows kept.
    pub(crate) rows: usize,
    /// Number of rows read.
    pub(crate) total: usize,
}

impl<T: Scalar> Sample<T> {
    pub(crate) fn views(&self) -> Result<Vec<Input<'_, T>>, Error> {
        // All rows were checked on reading.
        let views = views(&self.blocks, &self.columns, self.rows)?;
        Ok(views.into_iter().map(Input::known_finite).collect())
    }
}

fn views<'b, T: Scalar>(blocks: &'b [Block<T>], columns: &[usize], rows: usize) -> Result<Vec<Input<'b, T>>, Error> {
    let view = |(block, &columns): (&'b Block<T>, &usize)| {
        Ok(match block {
            Block::Dense { values } => Rows::new(values, rows, columns)?.into(),
            Block::Sparse { indptr, indices, values } => {
                SparseRows::new(&indptr[..], &indices[..], values, columns)?.into()
            }
        })
    };
    blocks.iter().zip(columns).map(view).collect()
}

/// The files of a command, for a message about all of them.
pub(crate) fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Translates a library error about one block into terms of the files.
fn explain<T: Scalar>(error: Error, in_file: impl Fn(usize) -> usize, paths: &[PathBuf], advice: &str) -> Failure {
    let all = names(paths);
    match error {
        Error::NotFinite { argument, row, column, value } => {
            let index = if let Argument::Input(Some(index)) = argument { index } else { 0 };
            let path: &Path = paths.get(index).map_or(Path::new(""), PathBuf::as_path);
            let row = in_file(row);
            let rounded = if value.is_infinite() && T::NAME == "f32" { advice } else { "" };
            let place = format!("row {row}, column {column} (both counted from 0)");
            Failure::input(path, format!("{place} is {value}; replace it or drop the row{rounded}"))
        }
        Error::Overflow { row, dtype } => {
            // Advise --dtype only where the option exists.
            let advice = if dtype == "f32" && !advice.is_empty() { ", or use --dtype f64" } else { "" };
            let row = in_file(row);
            Failure::Input(format!(
                "{all}: row {row} (counted from 0) overflows {dtype}; scale the rows (for example to unit norm), or use \
                 a smaller --gamma{advice}"
            ))
        }
        Error::Underflow { row, dtype } => {
            let advice = if dtype == "f32" && !advice.is_empty() { ", or use --dtype f64" } else { "" };
            let row = in_file(row);
            Failure::Input(format!(
                "{all}: row {row} (counted from 0) underflows {dtype}: all of its features would be lost; scale the rows (for \
                 example with --scaling unit), or use a larger --gamma{advice}"
            ))
        }
        other => Failure::Input(format!("{all}: {other}")),
    }
}

/// A rate with three digits and a unit.
fn human(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.1} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::selection::TableArguments;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        table: TableArguments,
    }

    /// Every row of a file is equally likely to be in a sample, wherever it stands.
    #[test]
    fn a_sample_is_of_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = [folder.path().join("x.csv")];
        let rows = 12_000;
        std::fs::write(&path[0], (0..rows).map(|row| format!("{row}\n")).collect::<String>()).unwrap();
        let arguments = Only::parse_from(["argand", "--header", "no"]).table;
        let picking = Picking { arguments: &arguments, labels: &[], label_place: None, saved: None };
        let sample = |seed: u64| {
            let inputs = Inputs::<f64>::open(&path, &picking, Policy::Error).unwrap();
            let sample = inputs.sample(None, seed).unwrap();
            assert_eq!((sample.total, sample.rows), (rows, SAMPLE_ROWS[1]));
            let views = sample.views().unwrap();
            let Input::Dense(table) = views[0] else { unreachable!("text is dense") };
            (0..sample.rows).map(|row| table.row(row)[0]).collect::<Vec<f64>>()
        };
        let mut quarters = [0; 4];
        for seed in 0..5 {
            let mut kept = sample(seed);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the file")]
            kept.iter().for_each(|row| quarters[(row / 3000.0) as usize] += 1);
            kept.sort_by(f64::total_cmp);
            kept.dedup();
            assert_eq!(kept.len(), SAMPLE_ROWS[1], "no row twice");
        }
        // 5 · 4096/4 = 5120 of each quarter, with a deviation of 50.
        assert!(quarters.iter().all(|count| (4820..5420).contains(count)), "{quarters:?}");
        assert_ne!(sample(1), sample(2));
    }
}
