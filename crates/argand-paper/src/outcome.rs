//! The results of an item.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use argand_figure::Figure;
use serde::{Deserialize, Serialize};

use crate::{Error, files};

/// Whether a claim of the paper holds here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// It does.
    Agrees,
    /// It does not.
    Differs,
    /// The data cannot tell.
    Open,
}

impl Agreement {
    /// The verdict on a tested claim.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Agrees } else { Self::Differs }
    }

    /// The verdict on a claim that numbers, given with standard errors, are negative: agrees if all clearly are, differs if one clearly
    /// is not, and open otherwise.
    pub(crate) fn of_negative(numbers: &[(f64, f64)]) -> Self {
        /// Standard errors that make a sign clear.
        const CLEARLY: f64 = 2.0;
        match numbers {
            [] => Self::Open,
            _ if numbers.iter().any(|(value, error)| *value > CLEARLY * error) => Self::Differs,
            _ if numbers.iter().all(|(value, error)| -value > CLEARLY * error) => Self::Agrees,
            _ => Self::Open,
        }
    }

    /// The verdict as a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Open => "open",
        }
    }
}

/// A claim of the paper beside our number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What the paper says.
    pub claim: String,
    /// What was found.
    pub found: String,
    /// Whether they agree.
    pub agreement: Agreement,
}

impl Verdict {
    pub(crate) fn new(claim: &str, found: String, agreement: Agreement) -> Self {
        Self { claim: claim.to_owned(), found, agreement }
    }
}

/// A picture: `FILE.svg` and `FILE.png`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// The file name without its extension.
    pub file: String,
    /// What it shows.
    pub caption: String,
}

/// A table for readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownTable {
    /// What it shows.
    pub caption: String,
    /// The column headings.
    pub columns: Vec<String>,
    /// The lines.
    pub rows: Vec<Vec<String>>,
}

/// All results of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The item.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What was measured, in a sentence or two.
    pub about: String,
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Tables.
    pub tables: Vec<ShownTable>,
    /// Claims.
    pub verdicts: Vec<Verdict>,
}

impl Outcome {
    pub(crate) fn new(name: &str, title: &str, about: String) -> Self {
        let [name, title] = [name, title].map(str::to_owned);
        Self { name, title, about, pictures: Vec::new(), tables: Vec::new(), verdicts: Vec::new() }
    }

    /// Draws a figure into the folder and adds it.
    pub(crate) fn draw(&mut self, folder: &Path, figure: &Figure) -> Result<(), Error> {
        let svg = figure.svg();
        files::write(&folder.join(format!("{}.svg", figure.name)), svg.as_bytes())?;
        files::write(&folder.join(format!("{}.png", figure.name)), &crate::png::png(&svg)?)?;
        self.pictures.push(Picture { file: figure.name.clone(), caption: figure.caption.clone() });
        Ok(())
    }

    pub(crate) fn table<const N: usize>(&mut self, caption: &str, columns: [&str; N], rows: Vec<[String; N]>) {
        self.tables.push(ShownTable {
            caption: caption.to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: rows.into_iter().map(|row| row.to_vec()).collect(),
        });
    }

    pub(crate) fn verdict(&mut self, claim: &str, found: String, agreement: Agreement) {
        self.verdicts.push(Verdict::new(claim, found, agreement));
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Internal(error.to_string()))?;
        files::write(&folder.join(format!("{}.json", self.name)), text.as_bytes())
    }

    /// The results saved by an earlier run, if any.
    pub(crate) fn load(folder: &Path, name: &str) -> Result<Option<Self>, Error> {
        let path = folder.join(format!("{name}.json"));
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path, "read", &error)),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Error::File { path, what: format!("is not a result: {error}") }),
        }
    }
}
