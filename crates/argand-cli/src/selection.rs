//! Which columns of tables are features, and how tables are read.

use std::path::{Path, PathBuf};

use argand::{Input, Scalar, Spec};
use argand_learn::{Missing, Preparation, PreparationFit, Recipe, Scaling};

use crate::dataset::LabelSource;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::table::{self, Column, Element, Header, Options, listed, position};
use crate::warn;

/// Options on tables, the same for all commands that read them.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Tables")]
pub(crate) struct TableArguments {
    /// Whether the first line of text names the columns; auto decides by its contents, and says so where that is not obvious.
    #[arg(long, value_enum, default_value_t)]
    header: Header,

    /// What separates fields of text: a character, or comma, semicolon, tab or space [default: tab in .tsv, else comma].
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter)]
    delimiter: Option<u8>,

    /// The columns to use, in this order: by name, or by number, counted from 0, where they have none [default: all, or those of
    /// a saved sketch or model].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "drop")]
    columns: Vec<String>,

    /// Columns to leave out.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    drop: Vec<String>,

    /// What to do about missing numbers: end with an error, drop their rows, or put the mean of the column in [default: that of a
    /// saved sketch or model, or else error].
    #[arg(long, value_enum)]
    missing: Option<MissingKind>,

    /// Memory limit in MiB, of a sketch and of the sums of a model; rows, pages of files and predictions may each take a sixteenth of it.
    #[arg(long, value_name = "MIB", default_value_t = argand::DEFAULT_MEMORY_LIMIT >> 20, allow_negative_numbers = true)]
    memory_limit: u64,
}

/// As [`Missing`], before any mean is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MissingKind {
    Error,
    Drop,
    Mean,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("comma", _) => Ok(b','),
        ("semicolon", _) => Ok(b';'),
        ("tab" | "\\t", _) => Ok(b'\t'),
        ("space", _) => Ok(b' '),
        (_, &[byte]) if byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"\n\r\".+-".contains(&byte) => Ok(byte),
        _ => Err("expected one character other than a letter, digit, sign or quote, or comma, semicolon, tab or space"
            .into()),
    }
}

/// What becomes of missing numbers while rows are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Policy {
    /// They are not finite, and found out as such.
    Error,
    /// They stay NaN, for whoever learns the means.
    Keep,
    Drop,
    Fill(Vec<Vec<f64>>),
}

impl From<&Missing> for Policy {
    fn from(missing: &Missing) -> Self {
        match missing {
            Missing::Error => Self::Error,
            Missing::Drop => Self::Drop,
            Missing::Mean(means) => Self::Fill(means.clone()),
        }
    }
}

impl TableArguments {
    /// The memory limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.memory_limit.saturating_mul(1 << 20)
    }

    /// How to read tables in which missing numbers are errors, or NaN.
    pub(crate) fn options(&self, missing: bool) -> Options {
        Options { header: self.header, delimiter: self.delimiter, missing, budget: table::share_of(self.limit()) }
    }

    /// What becomes of missing numbers, given what a saved sketch or model says; `None` if means must be learnt first.
    ///
    /// # Errors
    /// Means are wanted from a model that has none.
    pub(crate) fn missing(&self, saved: Option<(&str, &Missing)>) -> Result<Option<Missing>, Failure> {
        match (self.missing, saved) {
            (None, Some((_, missing))) => Ok(Some(missing.clone())),
            (None | Some(MissingKind::Error), _) => Ok(Some(Missing::Error)),
            (Some(MissingKind::Drop), _) => Ok(Some(Missing::Drop)),
            (Some(MissingKind::Mean), Some((_, means @ Missing::Mean(_)))) => Ok(Some(means.clone())),
            (Some(MissingKind::Mean), Some((what, _))) => {
                Err(Failure::Input(format!("--missing: mean: expected a {what} that was made with it")))
            }
            (Some(MissingKind::Mean), None) => Ok(None),
        }
    }
}

/// Options on what precedes a sketch, for commands that learn nothing else.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FeatureArguments {
    /// Labels, which are not features: a column of IN, or a file. Only `argand plan` learns from them.
    #[arg(long, value_name = "FILE|COLUMN")]
    labels: Option<String>,

    /// How to scale rows before sketching: none, unit, non-negative or standard, as in `argand fit` [default: that of --spec, or
    /// else none].
    #[arg(long, value_name = "SCALING")]
    scaling: Option<Scaling>,

    #[command(flatten)]
    pub(crate) table: TableArguments,
}

/// Opened tables, and what precedes the sketch of their rows.
pub(crate) struct Prepared<'a, T> {
    pub(crate) inputs: Inputs<'a, T>,
    missing: Missing,
    preparation: Preparation,
    /// Where labels are, if they were named.
    pub(crate) labels: Option<LabelSource>,
}

impl<T: Scalar + Element> Prepared<'_, T> {
    /// The recipe with this sketch.
    pub(crate) fn recipe(&self, spec: Spec) -> Recipe {
        let mut recipe = Recipe::new(self.preparation.clone(), spec);
        (recipe.columns, recipe.missing) = (self.inputs.names(), self.missing.clone());
        recipe
    }
}

/// Says that rows are scaled otherwise than a saved sketch expects.
pub(crate) fn warn_of_scaling(given: Option<Scaling>, saved: Option<&Recipe>) {
    if let (Some(given), Some(recipe)) = (given, saved)
        && given != recipe.preparation.scaling()
    {
        let made = recipe.preparation.scaling();
        warn(&format!("--scaling: {given}, but the saved sketch was made for rows of scaling {made}; plan again"));
    }
}

impl FeatureArguments {
    /// Opens tables, and learns means and scaling from them in separate passes where they depend on the rows.
    pub(crate) fn open<'a, T: Scalar + Element>(
        &self,
        paths: &'a [PathBuf],
        saved: Option<&Recipe>,
    ) -> Result<Prepared<'a, T>, Failure> {
        let find = |text: &String| LabelSource::find("--labels", text, paths, &self.table);
        let source = self.labels.as_ref().map(find).transpose()?;
        let labels: Vec<String> = source.iter().filter_map(|source| source.column().map(str::to_owned)).collect();
        let fits = saved.map(|recipe| Saved::of("spec", recipe));
        let picking = Picking { arguments: &self.table, labels: &labels, label_place: None, saved: fits };
        let open = |policy: Policy| Inputs::<T>::open(paths, &picking, policy);
        let missing = match self.table.missing(saved.map(|recipe| ("spec", &recipe.missing)))? {
            Some(missing) => missing,
            None => {
                let mut inputs = open(Policy::Keep)?;
                let mut means = Means::new(inputs.columns());
                let rows = inputs.block_rows(0);
                while inputs.next(rows)? > 0 {
                    means.update(&inputs.views().map_err(|error| inputs.explain(error))?);
                }
                means.finish(paths)?
            }
        };
        let inputs = open(Policy::from(&missing))?;
        warn_of_scaling(self.scaling, saved);
        let preparation = match (self.scaling, saved) {
            (None, Some(recipe)) => recipe.preparation.clone(),
            (scaling, _) => {
                let mut fit = PreparationFit::new(scaling.unwrap_or(Scaling::None), inputs.columns());
                if fit.needs_rows() {
                    let mut inputs = open(Policy::from(&missing))?;
                    let rows = inputs.block_rows(0);
                    while inputs.next(rows)? > 0 {
                        let updated = inputs.views().and_then(|views| fit.update(&views));
                        updated.map_err(|error| inputs.explain(error))?;
                    }
                }
                fit.finish().map_err(|error| Failure::argument(&error))?
            }
        };
        Ok(Prepared { inputs, missing, preparation, labels: source })
    }

    /// The options as they were given, but for defaults.
    pub(crate) fn flags(&self) -> String {
        let table = &self.table;
        let listed = |names: &[String]| (!names.is_empty()).then(|| names.join(","));
        let header = (table.header != Header::Auto).then(|| format!("{:?}", table.header).to_lowercase());
        [
            ("labels", self.labels.clone()),
            ("scaling", self.scaling.map(|scaling| scaling.to_string())),
            ("columns", listed(&table.columns)),
            ("drop", listed(&table.drop)),
            ("header", header),
            ("delimiter", table.delimiter.map(|byte| char::from(byte).to_string())),
            ("missing", table.missing.map(|missing| format!("{missing:?}").to_lowercase())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some(format!(" --{name} {}", quoted(&value?))))
        .collect()
    }
}

/// Text quoted for a shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// What tables must fit: its name in messages, its numbers of columns, and their names, if known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved<'a> {
    pub(crate) what: &'a str,
    pub(crate) dims: &'a [usize],
    pub(crate) columns: &'a [Vec<String>],
}

impl<'a> Saved<'a> {
    /// The columns of a recipe.
    pub(crate) fn of(what: &'a str, recipe: &'a Recipe) -> Self {
        Self { what, dims: recipe.spec.inputs.as_slice(), columns: &recipe.columns }
    }
}

/// How columns are picked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Picking<'a> {
    pub(crate) arguments: &'a TableArguments,
    /// Columns of labels: left out where they are.
    pub(crate) labels: &'a [String],
    /// The place of the labels in tables whose columns are numbered: left out of those that have one column too many.
    pub(crate) label_place: Option<usize>,
    pub(crate) saved: Option<Saved<'a>>,
}

/// The columns of a table that are features: their places, if not all, and their names, if they have any.
pub(crate) struct Picked {
    pub(crate) places: Option<Vec<usize>>,
    pub(crate) names: Vec<String>,
}

impl Picking<'_> {
    /// Checks that every column that an option names is in one of the tables.
    pub(crate) fn check(&self, paths: &[PathBuf]) -> Result<(), Failure> {
        for (option, named) in [("--columns", &self.arguments.columns), ("--drop", &self.arguments.drop)] {
            if named.is_empty() {
                continue;
            }
            let mut all = Vec::new();
            for path in paths {
                all.extend(table::names(path, &self.arguments.options(true))?.map_or(Vec::new(), |(names, _)| names));
            }
            if let Some(name) = named.iter().find(|name| !all.contains(name)) {
                let there = if all.is_empty() { "none that can be named".to_owned() } else { listed(&all) };
                return Err(Failure::Input(format!(
                    "{option}: expected columns that there are, got {name:?}; there are {there}"
                )));
            }
        }
        Ok(())
    }

    /// The features of the table with this number.
    pub(crate) fn pick(&self, number: usize, path: &Path) -> Result<Picked, Failure> {
        let Some((names, kind)) = table::names(path, &self.arguments.options(true))? else {
            return Ok(Picked { places: None, names: Vec::new() });
        };
        let wanted = self.saved.and_then(|saved| saved.columns.get(number)).filter(|names| !names.is_empty());
        let is_label = |name: &String| self.labels.contains(name);
        let mut places: Vec<usize> = match wanted {
            _ if !self.arguments.columns.is_empty() => {
                let there = self.arguments.columns.iter().filter(|&name| names.contains(name));
                there.map(|name| position(path, &names, name)).collect::<Result<_, _>>()?
            }
            Some(wanted) if kind == Column::Named => {
                let what = self.saved.map_or("", |saved| saved.what);
                for (option, named) in [("--labels", self.labels), ("--drop", &self.arguments.drop)] {
                    if let Some(name) = wanted.iter().find(|name| named.contains(name)) {
                        let expected = format!("expected a column that is no feature of the {what}, got {name:?}");
                        return Err(Failure::Input(format!("{option}: {expected}; make a {what} without it")));
                    }
                }
                let unused =
                    |name: &&String| !wanted.contains(name) && !is_label(name) && !self.arguments.drop.contains(name);
                let unused: Vec<String> = names.iter().filter(unused).cloned().collect();
                if !unused.is_empty() && wanted.iter().all(|name| names.contains(name)) {
                    warn(&format!("{}: left out {}, which the {what} does not know", path.display(), listed(&unused)));
                }
                wanted.iter().map(|name| position(path, &names, name)).collect::<Result<_, _>>()?
            }
            _ => (0..names.len())
                .filter(|&at| !is_label(&names[at]) && !self.arguments.drop.contains(&names[at]))
                .collect(),
        };
        if kind == Column::Numbered
            && let (Some(saved), Some(place)) = (self.saved, self.label_place)
            && saved.dims.get(number) == Some(&(places.len() - usize::from(!places.is_empty())))
        {
            places.retain(|&other| other != place);
        }
        let all = places.iter().copied().eq(0..names.len());
        let picked: Vec<String> = places.iter().map(|&at| names[at].clone()).collect();
        let named = kind == Column::Named && (wanted.is_some() || can_match(path, &picked));
        Ok(Picked { places: (!all).then_some(places), names: if named { picked } else { Vec::new() } })
    }
}

/// Whether columns can be matched by their names later; says what looks like a mistake.
fn can_match(path: &Path, names: &[String]) -> bool {
    if let Some(index) = names.iter().find(|name| is_index(name)) {
        let what = "looks like the row numbers that pandas writes, and is taken for a feature";
        let advice = format!("leave it out with --drop {index:?}, or write the file with index=False");
        warn(&format!("{}: column {index:?} {what}; {advice}", path.display()));
    }
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    if let Some((_, name)) = twice {
        warn(&format!(
            "{}: has several columns {name:?}; columns are matched by their place, not by name",
            path.display()
        ));
    }
    twice.is_none()
}

fn is_index(name: &str) -> bool {
    name.is_empty() || name == "Unnamed: 0" || name.starts_with("__index_level_")
}

/// Learns the means of columns from rows with missing numbers.
pub(crate) struct Means {
    tables: Vec<Vec<(f64, u64)>>,
}

impl Means {
    pub(crate) fn new(dims: &[usize]) -> Self {
        Self { tables: dims.iter().map(|&dim| vec![(0.0, 0); dim]).collect() }
    }

    pub(crate) fn update<T: Scalar>(&mut self, inputs: &[Input<'_, T>]) {
        for (table, input) in self.tables.iter_mut().zip(inputs) {
            // No number of a sparse table can be missing.
            let Input::Dense(rows) = input else { continue };
            for row in 0..rows.rows() {
                for ((mean, count), value) in table.iter_mut().zip(rows.row(row)) {
                    let value = value.to_f64();
                    if !value.is_nan() {
                        *count += 1;
                        *mean += (value - *mean) / *count as f64;
                    }
                }
            }
        }
    }

    /// The means.
    ///
    /// # Errors
    /// A column without any number.
    pub(crate) fn finish(self, paths: &[PathBuf]) -> Result<Missing, Failure> {
        for (table, path) in self.tables.iter().zip(paths) {
            if let Some(column) = table.iter().position(|&(_, count)| count == 0) {
                return Err(Failure::input(
                    path,
                    format!("column {column} (counted from 0) has no number; drop it (--drop)"),
                ));
            }
        }
        let means = |table: Vec<(f64, u64)>| table.into_iter().map(|(mean, _)| mean).collect();
        Ok(Missing::Mean(self.tables.into_iter().map(means).collect()))
    }
}
