//! The figures and tables of the paper, measured again: numbers first (CSV), then pictures drawn from them, then a verdict.
//!
//! Every item of [`ITEMS`] is one figure or table. The caller handles users' files and terminals and passes in
//! [`Settings`] and a [`Progress`]; all output goes to one folder.

pub mod data;
mod files;
mod items;
mod outcome;
mod png;
mod reference;
mod span;
pub mod temporary;
mod units;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argand::Method;
use argand_learn::{Engine, Scaling};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use data::{Dataset, Part, Source};
pub use items::{ITEMS, Item, METHODS};
pub use outcome::{Agreement, Outcome, Picture, ShownTable, Verdict};
pub use reference::Reference;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument or the data cannot be used.
    #[error(transparent)]
    Argand(#[from] argand::Error),
    /// Data is missing or cannot be used.
    #[error("{0}")]
    Data(String),
    /// A system call failed.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A file holds something other than expected.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// No part of an item is finished, and nothing was to run.
    #[error("{0}: nothing is finished yet")]
    Unfinished(String),
    /// A bug in this program.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    fn io(path: &Path, doing: &'static str, error: &io::Error) -> Self {
        Self::Io { path: path.to_owned(), doing, source: io::Error::new(error.kind(), error.to_string()) }
    }
}

/// Receives progress. Weights are proportional to the expected time.
pub trait Progress: Sync {
    /// Work of this weight begins, some of it already done.
    fn start(&self, item: &str, total: u64, done: u64);
    /// More is done.
    fn advance(&self, weight: u64);
    /// All is done, or the work stopped.
    fn finish(&self);
}

/// Ignores progress.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _: &str, _: u64, _: u64) {}
    fn advance(&self, _: u64) {}
    fn finish(&self) {}
}

/// What to run, and where to write.
#[derive(Debug, Default)]
pub struct Settings {
    /// The folder for all output.
    pub out: PathBuf,
    /// Smaller sizes and fewer seeds: all items in some five minutes on two cores.
    pub quick: bool,
    /// Number of seeds, or draws, instead of the default.
    pub seeds: Option<u64>,
    /// Threads.
    pub threads: usize,
    /// Run nothing: show what earlier runs have finished.
    pub finished_only: bool,
    /// The datasets, in display order; items that need only one take the first.
    pub datasets: Vec<Source>,
    /// The authors' results.
    pub reference: Option<Reference>,
    /// Degrees for `gp` and `variance-ratio` instead of the default.
    pub degrees: Vec<usize>,
    /// Numbers of features instead of the default.
    pub features: Vec<usize>,
    /// Methods instead of the default.
    pub methods: Vec<Method>,
    /// Scalings of the data instead of the paper's two.
    pub scalings: Vec<Scaling>,
    /// Where `gp` runs, if not on the processor.
    pub engine: Option<Arc<dyn Engine>>,
}

/// Settings and progress.
pub(crate) struct Context<'a> {
    settings: &'a Settings,
    progress: &'a dyn Progress,
}

/// The given values, or the default.
fn or_usual<T: Clone>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual.to_vec() } else { given.to_vec() }
}

impl Context<'_> {
    /// The quick or the full value of something.
    fn size<T>(&self, quick: T, full: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// Number of seeds: as set, or the quick or full number.
    fn seeds(&self, quick: u64, full: u64) -> u64 {
        self.settings.seeds.unwrap_or_else(|| self.size(quick, full))
    }

    /// The datasets, at least one.
    fn datasets(&self) -> Result<&[Source], Error> {
        self.settings.datasets()
    }

    fn csv(&self, item: &str) -> PathBuf {
        self.settings.out.join(format!("{item}.csv"))
    }

    /// Writes the numbers of an item and reads them back, so that what is shown is what the file holds. Where nothing is to run, the
    /// file of an earlier run is enough.
    fn recorded<R: Serialize + DeserializeOwned>(&self, item: &str, records: &[R]) -> Result<Vec<R>, Error> {
        let path = self.csv(item);
        if !records.is_empty() {
            files::write_csv(&path, records)?;
        } else if !self.settings.finished_only || !path.exists() {
            return Err(Error::Unfinished(item.to_owned()));
        }
        files::read_csv(&path)
    }
}

impl Settings {
    fn datasets(&self) -> Result<&[Source], Error> {
        if self.datasets.is_empty() {
            let ways =
                "fetch it with `make data` and pass --data data, or use the embedded digits with --dataset digits";
            return Err(Error::Data(format!("expected data, got none: {ways}")));
        }
        Ok(&self.datasets)
    }
}

/// Runs items one by one: writes CSV, pictures and `NAME.json` with the verdicts, and passes each outcome to `shown`.
///
/// # Errors
/// Faults of the data, before any work; faults of other arguments, before the work of an item; errors of the
/// system.
pub fn reproduce(
    items: &[&Item],
    settings: &Settings,
    progress: &dyn Progress,
    mut shown: impl FnMut(&Outcome),
) -> Result<(), Error> {
    if items.iter().any(|item| item.needs_data) {
        for source in settings.datasets()? {
            source.load()?;
        }
    }
    for item in items {
        files::create_folder(&settings.out)?;
        let outcome = match (item.run)(&Context { settings, progress }) {
            // Among several items, show those that are finished.
            Err(Error::Unfinished(_)) if items.len() > 1 => continue,
            other => other?,
        };
        outcome.save(&settings.out)?;
        shown(&outcome);
    }
    Ok(())
}

/// Writes `report.html` and `report.md` from the results of all items in a folder.
///
/// # Errors
/// [`Error::Data`] if there are no results yet; errors of the system.
pub fn report(folder: &Path) -> Result<PathBuf, Error> {
    let outcomes: Vec<Outcome> =
        ITEMS.iter().filter_map(|item| Outcome::load(folder, item.name).transpose()).collect::<Result<_, _>>()?;
    if outcomes.is_empty() {
        return Err(Error::Data(format!("{}: nothing to report yet; reproduce something first", folder.display())));
    }
    let path = folder.join("report.html");
    files::write(&path, items::report::page(folder, &outcomes)?.as_bytes())?;
    files::write(&folder.join("report.md"), items::markdown::page(&outcomes).as_bytes())?;
    Ok(path)
}
