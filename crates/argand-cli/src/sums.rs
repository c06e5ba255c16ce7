//! `argand gram` and `argand merge`: sums over parts of the rows, made anywhere, added up, and learnt from by `argand fit --from-gram`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use argand::{Error, FileFault, InputDims};
use argand_learn::{Gram, Targets};
use serde::{Deserialize, Serialize};

use crate::dataset::{Classes, Dataset, LabelSource, Part, Task, digest};
use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::fit::TaskKind;
use crate::info::read_recipe;
use crate::model::{read_archive, write_archive};
use crate::on_threads;
use crate::output::{self, AtomicFile};
use crate::selection::{Policy, Saved, TableArguments};
use crate::table::listed;

/// Sum up a part of the rows, to be merged with others and learnt from.
///
/// Writes all that ridge regression and Gaussian processes learn from: n, sums and products of features and labels, D²/2 numbers whatever the number
/// of rows, or the features of fewer than D rows. `argand merge` adds up the sums of other parts, made here or on other machines; `argand fit --from-gram` learns from them what it would have
/// learnt from all rows. Every part needs the same --spec, which holds sketch and scaling.
#[derive(Debug, clap::Args)]
#[command(after_help = GRAM_EXAMPLES)]
pub(crate) struct GramArguments {
    /// Tables with parts of the rows. For a product of several tables, one part as one table per factor.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    /// What to predict: a column of IN, or a file with the labels of a single part, as in `argand fit`.
    #[arg(long, value_name = "FILE|COLUMN")]
    labels: String,

    /// The sketch and scaling, from --save-spec of `argand plan` or `argand transform`.
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,

    /// Where to write the sums.
    #[arg(short, long, value_name = "GRAM")]
    output: PathBuf,

    /// What the sums are for. Those of a Gaussian process for classes are apart for every class, and larger; a ridge learns from them, too.
    #[arg(long, value_enum, default_value_t = SumsFor::Ridge)]
    model: SumsFor,

    /// Whether labels are classes or numbers.
    #[arg(long, value_enum, default_value_t = TaskKind::Classification)]
    task: TaskKind,

    /// All classes, where a part may have rows of one alone [default: those found; `argand merge` unites them].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    classes: Vec<String>,

    #[command(flatten)]
    device: DeviceArguments,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    table: TableArguments,

    /// Print nothing on success.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SumsFor {
    Ridge,
    Gp,
}

const GRAM_EXAMPLES: &str = "\
Examples:
  argand plan sample.csv --labels class --degree 3 --features 2048 --scaling unit --save-spec sketch.json
  argand gram part-1.csv --labels class --spec sketch.json -o part-1.gram          # on one machine
  argand gram part-2.csv part-3.csv --labels class --spec sketch.json -o rest.gram # on another
  argand merge part-1.gram rest.gram -o all.gram
  argand fit --from-gram all.gram --model ridge -o class.model";

/// Add up the sums of parts of the rows.
///
/// The result does not depend on the order of the files. Sums of another sketch, scaling or label are refused, and so are rows that were counted before:
/// every part is known by the SHA-256 of its tables.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  argand merge part-*.gram -o all.gram\n  argand fit --from-gram all.gram --model gp -o class.model"
)]
pub(crate) struct MergeArguments {
    /// Files of `argand gram` or `argand merge`.
    #[arg(required = true, value_name = "GRAM")]
    inputs: Vec<PathBuf>,

    /// Where to write the sums.
    #[arg(short, long, value_name = "GRAM")]
    output: PathBuf,

    /// Print nothing on success.
    #[arg(short, long)]
    quiet: bool,
}

/// What is stored beside the sums.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    classes: Option<Vec<String>>,
    label_column: Option<String>,
    label_place: Option<usize>,
    /// The rows that were counted, by the SHA-256 of their tables.
    parts: BTreeMap<String, CountedPart>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountedPart {
    /// The name of its first file.
    name: String,
    rows: u64,
}

/// Sums and their meaning.
pub(crate) struct Sums {
    pub(crate) gram: Gram,
    pub(crate) task: Task,
    pub(crate) label_column: Option<String>,
    pub(crate) label_place: Option<usize>,
    parts: BTreeMap<String, CountedPart>,
}

impl Sums {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let archive = read_archive(path)?;
        let note = archive.note::<Note>();
        let wrong = |error: Error| Failure::input(path, error);
        // What is no Gram has a note of its own.
        let gram = Gram::from_archive(archive).map_err(wrong)?;
        let note = note.map_err(wrong)?;
        let task = match (gram.targets(), note.classes) {
            (Targets::Values(1), None) => Some(Task::Regression),
            (Targets::Classes(count) | Targets::ClassesApart(count), Some(names))
                if names.len() == count && names.iter().collect::<BTreeSet<_>>().len() == count =>
            {
                Some(Task::Classification(names.into()))
            }
            _ => None,
        };
        let counted = note.parts.values().try_fold(0_u64, |sum, part| sum.checked_add(part.rows));
        match task {
            Some(task) if counted == Some(gram.rows()) => Ok(Self {
                gram,
                task,
                label_column: note.label_column,
                label_place: note.label_place,
                parts: note.parts,
            }),
            _ => Err(wrong(Error::Archive(FileFault::Content("its sums and their description disagree".to_owned())))),
        }
    }

    fn write(&self, path: &Path, file: AtomicFile) -> Result<(), Failure> {
        let note = Note {
            classes: self.classes().map(<[String]>::to_vec),
            label_column: self.label_column.clone(),
            label_place: self.label_place,
            parts: self.parts.clone(),
        };
        write_archive(&self.gram.to_archive().with_note(&note), path, file)
    }

    fn classes(&self) -> Option<&[String]> {
        if let Task::Classification(classes) = &self.task { Some(classes.names()) } else { None }
    }

    /// The sums, from `path`, with classes counted as in `other`, if they are of the same features and labels and none of its rows.
    pub(crate) fn like(mut self, other: &Self, path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| Err(Failure::input(path, what));
        if let Some(name) = self.counted_in(&other.parts) {
            return wrong(format!("counts the rows of {name}, which are in the other sums, too"));
        }
        let [own, expected] = [&self, other].map(|sums| sums.gram.recipe());
        if own != expected {
            let mut alike = own.clone();
            alike.missing.clone_from(&expected.missing);
            if alike == *expected {
                return wrong("was made with another --missing than the other sums".to_owned());
            }
            return wrong("was made with another --spec: another sketch, scaling or other columns".to_owned());
        }
        let names = [&self, other].map(|sums| sums.label_column.as_ref().map(|name| format!("{name:?}")));
        let places = [&self, other].map(|sums| sums.label_place.map(|place| format!("column {place}")));
        for labels in [names, places] {
            if let [Some(own), Some(expected)] = labels
                && own != expected
            {
                return wrong(format!("was made with --labels {own}, the other sums with {expected}"));
            }
        }
        match (self.gram.targets(), other.gram.targets()) {
            (Targets::Values(_), Targets::Values(_)) => return Ok(self),
            (Targets::Classes(_), Targets::Classes(_)) | (Targets::ClassesApart(_), Targets::ClassesApart(_)) => {}
            (Targets::Classes(_), Targets::ClassesApart(_)) | (Targets::ClassesApart(_), Targets::Classes(_)) => {
                return wrong("was made for another --model: one of ridge and gp".to_owned());
            }
            _ => return wrong("was made for another --task: one of classification and regression".to_owned()),
        }
        let (Some(own), Some(names)) = (self.classes(), other.classes()) else { return Ok(self) };
        let place = |class: &String| names.iter().position(|name| name == class).ok_or_else(|| class.clone());
        match own.iter().map(place).collect::<Result<Vec<usize>, _>>() {
            Ok(places) => {
                let gram = self.gram.with_classes(&places, names.len());
                self.gram = gram.map_err(|error| Failure::input(path, error))?;
                self.task = other.task.clone();
                Ok(self)
            }
            Err(class) => wrong(format!("has rows of class {class:?}, which the other sums do not know")),
        }
    }

    /// The name of a part that is among others.
    fn counted_in(&self, parts: &BTreeMap<String, CountedPart>) -> Option<&str> {
        self.parts.iter().find(|(digest, _)| parts.contains_key(*digest)).map(|(_, part)| part.name.as_str())
    }
}

pub(crate) fn gram(arguments: &GramArguments) -> Result<(), Failure> {
    let mut recipe = read_recipe(&arguments.spec)?;
    output::check_free("--output", &arguments.output, arguments.inputs.iter().chain([&arguments.spec]))?;
    let paths: Vec<&[PathBuf]> = match &recipe.spec.inputs {
        InputDims::Same(_) => arguments.inputs.chunks(1).collect(),
        InputDims::Distinct(_) => vec![&arguments.inputs],
    };
    let policy = arguments.table.missing(Some(("spec", &recipe.missing)))?;
    recipe.missing = policy.unwrap_or(recipe.missing);
    let mut datasets = Vec::new();
    for paths in paths {
        let labels = LabelSource::find("--labels", &arguments.labels, paths, &arguments.table)?;
        if labels.column().is_none() && arguments.inputs.len() > 1 && matches!(recipe.spec.inputs, InputDims::Same(_)) {
            let what = "expected a column for several parts; sum up each part beside its file of labels";
            return Err(Failure::Input(format!("--labels: {what}")));
        }
        output::check_free("--output", &arguments.output, [labels.path()].into_iter())?;
        let mut dataset = Dataset::new(paths, labels, Part::All, &arguments.table, Policy::from(&recipe.missing));
        dataset.progress = !arguments.quiet;
        dataset.unknown = "--classes does not name";
        datasets.push(dataset);
    }
    // Columns are those of the spec, or of the first table.
    let first = datasets[0].inputs(Some(Saved::of("spec", &recipe)))?.names();
    if recipe.columns.is_empty() {
        recipe.columns = first;
    }
    for dataset in &datasets {
        dataset.inputs(Some(Saved::of("spec", &recipe)))?;
    }
    let device = arguments.device.open()?;
    // Create the file before the work to find a bad path at once.
    let file = AtomicFile::create(&arguments.output)?;
    let sums = on_threads(arguments.threads, || -> Result<Sums, Failure> {
        // In an order that does not depend on that of the arguments.
        let mut parts: BTreeMap<String, &Dataset<'_>> = BTreeMap::new();
        for dataset in &datasets {
            // Rows are the same whatever their labels, and in whatever order the tables of a product are named.
            let files: BTreeSet<String> = dataset.paths.iter().map(|path| digest(path)).collect::<Result<_, _>>()?;
            if let Some(same) = parts.insert(files.into_iter().collect::<Vec<_>>().join(" "), dataset) {
                let what = format!("holds the same rows as {}", same.paths[0].display());
                return Err(Failure::input(&dataset.paths[0], what));
            }
        }
        let task = arguments.task(&datasets)?;
        let pipeline = device.pipeline(&recipe).map_err(|error| Failure::argument(&error))?;
        // Includes what was fitted for spherical random features.
        let recipe = pipeline.recipe();
        let failed = |error: Error| match error {
            Error::TooLarge { .. } => Failure::Input(format!("{error} (--memory-limit)")),
            other => Failure::argument(&other),
        };
        let targets = task.targets(arguments.model == SumsFor::Gp);
        let mut summing = pipeline.summing(targets, arguments.table.limit()).map_err(failed)?;
        let mut counted = BTreeMap::new();
        for (digest, dataset) in parts {
            let name = dataset.paths[0].file_name().unwrap_or_default().to_string_lossy().into_owned();
            let pass = dataset.pass(Some(Saved::of("spec", recipe)), &task, &format!("{name} "))?;
            let rows = pass.for_each_rows(|inputs, labels| summing.update(inputs, labels))?;
            if rows == 0 {
                return Err(Failure::input(&dataset.paths[0], "has no rows to sum up"));
            }
            counted.insert(digest, CountedPart { name, rows: rows as u64 });
        }
        let labels = &datasets[0].labels;
        Ok(Sums {
            gram: summing.finish().map_err(failed)?,
            task,
            label_column: labels.column_name().map(str::to_owned),
            label_place: labels.column_place(),
            parts: counted,
        })
    })??;
    sums.write(&arguments.output, file)?;
    report(&arguments.output, &sums, arguments.quiet);
    Ok(())
}

impl GramArguments {
    fn task(&self, datasets: &[Dataset<'_>]) -> Result<Task, Failure> {
        let wrong = |what: &str| Err(Failure::Input(format!("--classes: {what}")));
        // As labels of tables, without spaces around them.
        let given: BTreeSet<String> = self.classes.iter().map(|name| name.trim().to_owned()).collect();
        match (self.task, self.classes.len()) {
            (TaskKind::Regression, 0) => Ok(Task::Regression),
            (TaskKind::Regression, _) => wrong("is for --task classification only"),
            (TaskKind::Classification, 0) => {
                let found = Classes::found(datasets.iter().map(|dataset| &dataset.labels))?;
                if found.len() < 2 {
                    return wrong(&format!("expected, because these rows have labels of {} classes", found.len()));
                }
                Ok(Task::Classification(Classes::in_order(found)))
            }
            (TaskKind::Classification, _) if given.contains("") => wrong("expected names, got an empty one"),
            (TaskKind::Classification, count) if given.len() < count.max(2) => {
                wrong("expected at least 2 different names")
            }
            (TaskKind::Classification, _) => Ok(Task::Classification(Classes::in_order(given))),
        }
    }
}

pub(crate) fn merge(arguments: &MergeArguments) -> Result<(), Failure> {
    output::check_free("--output", &arguments.output, arguments.inputs.iter())?;
    // Sums may be large: all are looked at first, then added one at a time, in the order of what they hold.
    let (mut classes, mut order) = (BTreeSet::new(), Vec::new());
    let mut all: BTreeMap<String, (CountedPart, &Path)> = BTreeMap::new();
    for path in &arguments.inputs {
        let sums = Sums::read(path)?;
        classes.extend(sums.classes().unwrap_or_default().iter().cloned());
        order.push((sums.parts.keys().cloned().collect::<Vec<_>>(), path));
        for (digest, part) in sums.parts {
            if let Some((_, other)) = all.get(&digest) {
                let what = format!("counts the rows of {}, which are in {}, too", part.name, other.display());
                return Err(Failure::input(path, what));
            }
            all.insert(digest, (part, path));
        }
    }
    order.sort();
    let file = AtomicFile::create(&arguments.output)?;
    let mut total: Option<Sums> = None;
    for (_, path) in order {
        let mut next = Sums::read(path)?;
        match &mut total {
            None => {
                if let Task::Classification(own) = &next.task {
                    let united = Classes::in_order(std::mem::take(&mut classes));
                    let place =
                        |class: &String| united.names().iter().position(|name| name == class).unwrap_or(usize::MAX);
                    let places: Vec<usize> = own.names().iter().map(place).collect();
                    let widened = next.gram.with_classes(&places, united.names().len());
                    next.gram = widened.map_err(|error| Failure::input(path, error))?;
                    next.task = Task::Classification(united);
                }
                total = Some(next);
            }
            Some(total) => {
                let mut next = next.like(total, path)?;
                total.gram.merge(&next.gram).map_err(|error| Failure::input(path, error))?;
                total.parts.append(&mut next.parts);
                // Labels in files of their own do not say which column to leave out.
                total.label_column = total.label_column.take().or(next.label_column);
                total.label_place = total.label_place.or(next.label_place);
            }
        }
    }
    let Some(total) = total else { return Err(Failure::Input("GRAM: expected files to merge".to_owned())) };
    total.write(&arguments.output, file)?;
    report(&arguments.output, &total, arguments.quiet);
    Ok(())
}

fn report(path: &Path, sums: &Sums, quiet: bool) {
    if !quiet {
        let (rows, parts) = (sums.gram.rows(), sums.parts.len());
        let s = if parts == 1 { "" } else { "s" };
        let _ = writeln!(std::io::stderr(), "{}: sums of {rows} rows in {parts} part{s}", path.display());
    }
}

impl Sums {
    /// Describes them as names and values.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("sums of", format!("{} rows", self.gram.rows()))];
        let model = match self.gram.targets() {
            Targets::ClassesApart(_) => "ridge and gp",
            Targets::Classes(_) => "ridge",
            Targets::Values(_) => "ridge and gp, for numbers",
        };
        lines.push(("for", model.to_owned()));
        lines.extend(self.classes().map(|names| ("classes", listed(names))));
        lines.extend(self.label_column.as_ref().map(|column| ("labels", format!("column {column}"))));
        lines.extend(self.label_place.map(|place| ("labels", format!("column {place}"))));
        lines.push(("scaling", self.gram.recipe().preparation.scaling().to_string()));
        lines.extend(self.parts.values().map(|part| ("part", format!("{}, {} rows", part.name, part.rows))));
        lines
    }
}
