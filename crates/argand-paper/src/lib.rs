//! The figures and tables of the paper, measured again: numbers first (CSV), then pictures drawn from them, then a verdict.
//!
//! Every item of [`ITEMS`] is one figure or table. Files and terminals of users are the business of the caller, who hands in
//! [`Settings`] and a [`Progress`]; what is written goes to one folder.

pub mod data;
pub mod figure;
mod files;
mod items;
mod outcome;
mod reference;
mod span;
mod units;

use std::io;
use std::path::{Path, PathBuf};

use argand::Method;
use argand_learn::Scaling;
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
    /// Data are missing, or cannot be used.
    #[error("{0}")]
    Data(String),
    /// The system refused something.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A file holds something else than expected.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Nothing is finished yet of an item, and nothing was to be run.
    #[error("{0}: nothing is finished yet")]
    Unfinished(String),
    /// A fault of this program.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    fn io(path: &Path, doing: &'static str, error: &io::Error) -> Self {
        Self::Io { path: path.to_owned(), doing, source: io::Error::new(error.kind(), error.to_string()) }
    }
}

/// Who is told how far the work is. Weights are proportional to the expected time.
pub trait Progress: Sync {
    /// Work of this weight begins, of which some is done already.
    fn start(&self, item: &str, total: u64, done: u64);
    /// Some more is done.
    fn advance(&self, weight: u64);
    /// All is done, or nothing more will be.
    fn finish(&self);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _: &str, _: u64, _: u64) {}
    fn advance(&self, _: u64) {}
    fn finish(&self) {}
}

/// What to run, and where to put it.
#[derive(Debug, Default)]
pub struct Settings {
    /// The folder for everything that is written.
    pub out: PathBuf,
    /// Smaller sizes and fewer seeds: all items in some five minutes on two cores.
    pub quick: bool,
    /// Seeds, or draws, in place of the usual number.
    pub seeds: Option<u64>,
    /// Threads.
    pub threads: usize,
    /// Run nothing: show what earlier runs have finished.
    pub finished_only: bool,
    /// The data, in the order in which they are shown; items that want one set take the first.
    pub datasets: Vec<Source>,
    /// The authors' results.
    pub reference: Option<Reference>,
    /// Degrees in place of the usual ones of `gp` and `variance-ratio`.
    pub degrees: Vec<usize>,
    /// Numbers of features in place of the usual ones.
    pub features: Vec<usize>,
    /// Methods in place of the usual ones.
    pub methods: Vec<Method>,
    /// Scalings of the data in place of the paper's two.
    pub scalings: Vec<Scaling>,
}

/// Settings, and who is told.
pub(crate) struct Context<'a> {
    settings: &'a Settings,
    progress: &'a dyn Progress,
}

/// The given values, or the usual ones.
fn or_usual<T: Clone>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual.to_vec() } else { given.to_vec() }
}

impl Context<'_> {
    /// The quick or the full value of something.
    fn size<T>(&self, quick: T, full: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// Seeds: as told, or the quick or the full number.
    fn seeds(&self, quick: u64, full: u64) -> u64 {
        self.settings.seeds.unwrap_or_else(|| self.size(quick, full))
    }

    /// The data; at least one set.
    fn datasets(&self) -> Result<&[Source], Error> {
        self.settings.datasets()
    }

    fn csv(&self, item: &str) -> PathBuf {
        self.settings.out.join(format!("{item}.csv"))
    }

    /// Writes the numbers of an item and reads them back: what is shown is what is in the file.
    fn recorded<R: Serialize + DeserializeOwned>(&self, item: &str, records: &[R]) -> Result<Vec<R>, Error> {
        if records.is_empty() {
            return Err(Error::Unfinished(item.to_owned()));
        }
        files::write_csv(&self.csv(item), records)?;
        files::read_csv(&self.csv(item))
    }
}

impl Settings {
    fn datasets(&self) -> Result<&[Source], Error> {
        if self.datasets.is_empty() {
            let ways =
                "fetch them with `make data` and give --data data, or run on the embedded digits with --dataset digits";
            return Err(Error::Data(format!("data are needed: {ways}")));
        }
        Ok(&self.datasets)
    }
}

/// Runs items, one after the other: CSV, pictures, and `NAME.json` with the verdicts, of which `shown` is told.
///
/// # Errors
/// What is wrong with the data, before any work; what is wrong with other arguments, before the work of an item; what the system
/// refuses.
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
            // Among several, what is finished is shown.
            Err(Error::Unfinished(_)) if items.len() > 1 => continue,
            other => other?,
        };
        outcome.save(&settings.out)?;
        shown(&outcome);
    }
    Ok(())
}

/// Writes `report.html`, and `report.md`, from what all items have left in a folder.
///
/// # Errors
/// [`Error::Data`] if there is nothing yet; what the system refuses.
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
