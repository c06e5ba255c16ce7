//! `argand reproduce`: measures the paper's figures and tables again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use argand::Method;
use argand_learn::{Missing, Scaling};
use argand_paper::{Dataset, Error, ITEMS, Item, Outcome, Part, Progress, Reference, Settings, Source};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::dataset::{self, Classes, LabelSource, Task};
use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::print;
use crate::selection::{Policy, TableArguments};

/// Measure the paper's figures and tables again.
///
/// Every item writes its numbers (CSV) into a folder, then pictures drawn from them (SVG, PNG), and prints the paper's claims
/// beside what was found; `report.html` shows everything on one page. An interrupted run resumes when
/// started again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  argand reproduce list                                      what there is
  argand reproduce all --quick                               everything on embedded digits, in some minutes
  argand reproduce gp --data data --dataset letter           one item on real data (see `make data`)
  argand reproduce gp --data data --dataset letter --finished   what an unfinished run has so far
  argand reproduce gp --table mine.parquet --labels class    on your own rows")]
pub(crate) struct Arguments {
    /// Items: names from `list`, `all`, or `report` for the page alone.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// The folder with data: mnist/, fashion-mnist/, letter/ or cifar10-conv/ inside it.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Datasets to use: digits (embedded) or folders inside --data [default: all present].
    #[arg(long, value_name = "SET,...", value_delimiter = ',')]
    dataset: Vec<String>,

    /// A table of your own, in any format that `fit` reads.
    #[arg(long, value_name = "FILE", requires = "labels")]
    table: Option<PathBuf>,

    /// The labels of --table: a column of it, or a file.
    #[arg(long, value_name = "FILE|COLUMN", requires = "table")]
    labels: Option<String>,

    /// The folder to write to.
    #[arg(short, long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,

    /// Use smaller sizes and fewer seeds, on the embedded digits unless data is named.
    #[arg(long)]
    quick: bool,

    /// Number of seeds, or draws, instead of the default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    seeds: Option<u64>,

    /// Degrees for gp and variance-ratio instead of the default.
    #[arg(long, value_name = "P,...", value_delimiter = ',')]
    degree: Vec<usize>,

    /// Numbers of features instead of the default.
    #[arg(long, value_name = "D,...", value_delimiter = ',')]
    features: Vec<usize>,

    /// Methods for gp and online instead of the paper's.
    #[arg(long, value_name = "M,...", value_delimiter = ',')]
    method: Vec<Method>,

    /// Scalings for gp and variance-ratio: non-negative, standard [default: both].
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    scaling: Vec<Scaling>,

    /// The authors' own gp results to compare with, as CSV.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,

    #[command(flatten)]
    device: DeviceArguments,

    /// Run nothing: show what earlier runs finished in the same folder.
    #[arg(long)]
    finished: bool,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    #[command(flatten)]
    tables: TableArguments,

    /// Hide progress bars.
    #[arg(long)]
    quiet: bool,
}

/// More seeds than these would take years.
const MOST_SEEDS: u64 = 1_000_000;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.names.iter().any(|name| name == "list") {
        let lines: Vec<String> =
            ITEMS.iter().map(|item| format!("{:<18} {} ({})\n", item.name, item.title, item.place)).collect();
        return print(&lines.concat());
    }
    let items = items(&arguments.names)?;
    let ascending = |given: &[usize]| given.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let threads = crate::on_threads(arguments.threads, rayon::current_num_threads)?;
    let datasets = datasets(arguments, items.iter().any(|item| item.needs_data))?;
    let device = arguments.device.open()?;
    if !device.is_cpu() {
        if let Some(item) = items.iter().find(|item| item.name != "gp") {
            return Err(Failure::Input(format!("--device: gp alone runs on a GPU, not {}", item.name)));
        }
        if device.engine().is_none() {
            return Err(Failure::Input(
                "--device: gp needs cuBLAS, which was not found; install CUDA's libraries".to_owned(),
            ));
        }
    }
    let settings = Settings {
        out: arguments.out.clone(),
        quick: arguments.quick,
        seeds: arguments.seeds,
        threads,
        finished_only: arguments.finished,
        datasets,
        reference: arguments.reference.as_deref().map(Reference::read).transpose().map_err(failure)?,
        degrees: ascending(&arguments.degree),
        features: ascending(&arguments.features),
        methods: unrepeated(&arguments.method),
        scalings: unrepeated(&arguments.scaling),
        engine: device.engine().cloned(),
    };
    let bar = Bar::new(arguments.quiet);
    let mut printed = Ok(());
    let shown = |outcome: &Outcome| printed = printed.clone().and(print(&describe(outcome)));
    argand_paper::reproduce(&items, &settings, &bar, shown).map_err(failure)?;
    printed?;
    let path = argand_paper::report(&arguments.out).map_err(failure)?;
    print(&format!("Report: {}\n", path.display()))
}

/// Drops duplicates.
fn unrepeated<T: Copy + PartialEq>(named: &[T]) -> Vec<T> {
    named.iter().fold(Vec::new(), |mut kept, &value| {
        if !kept.contains(&value) {
            kept.push(value);
        }
        kept
    })
}

/// The items with these names.
fn items(names: &[String]) -> Result<Vec<&'static Item>, Failure> {
    let mut items: Vec<&'static Item> = Vec::new();
    for name in names.iter().filter(|name| *name != "report") {
        let mut found = ITEMS.iter().filter(|item| name == "all" || item.name == name).peekable();
        if found.peek().is_none() {
            let known: Vec<&str> = ITEMS.iter().map(|item| item.name).collect();
            let known = known.join(", ");
            return Err(Failure::Input(format!("NAME: expected list, all, report, {known}; got {name:?}")));
        }
        let new: Vec<_> = found.filter(|item| !items.iter().any(|known| known.name == item.name)).collect();
        items.extend(new);
    }
    Ok(items)
}

/// Formats claims beside findings.
fn describe(outcome: &Outcome) -> String {
    let mut text = format!("{}: {}\n", outcome.name, outcome.title);
    for verdict in &outcome.verdicts {
        text.push_str(&format!("  {:<8} {}\n           {}\n", verdict.agreement.word(), verdict.claim, verdict.found));
    }
    text
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Argand(error) => Failure::argument(&error),
        Error::Io { path, doing, source } => Failure::io(&path, doing, &source),
        Error::Data(_) | Error::File { .. } | Error::Unfinished(_) => Failure::Input(error.to_string()),
        other => Failure::Other(other.to_string()),
    }
}

/// A dataset known by name: its folder, and its files as several packages name them.
struct Known {
    name: &'static str,
    packages: &'static [Package],
}

/// Training rows and their labels (a file, or a column), and the same for testing.
struct Package {
    train: [&'static str; 2],
    test: Option<[&'static str; 2]>,
}

const MNIST: &[Package] = &[
    Package {
        train: ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"],
        test: Some(["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]),
    },
    Package {
        train: ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
        test: Some(["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]),
    },
];

const KNOWN: [Known; 4] = [
    Known { name: "mnist", packages: MNIST },
    Known {
        name: "letter",
        packages: &[
            Package { train: ["letter-recognition.data", "0"], test: None },
            Package { train: ["letter.dat", "16"], test: None },
        ],
    },
    Known {
        name: "cifar10-conv",
        packages: &[Package {
            train: ["train-features.npy", "train-labels.npy"],
            test: Some(["test-features.npy", "test-labels.npy"]),
        }],
    },
    Known { name: "fashion-mnist", packages: MNIST },
];

/// The datasets that the arguments name; without any, all that are present.
fn datasets(arguments: &Arguments, needed: bool) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    if let (Some(path), Some(labels)) = (&arguments.table, &arguments.labels) {
        let name = path.file_stem().map_or_else(|| "table".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let (path, labels, tables) = (path.clone(), labels.clone(), arguments.tables.clone());
        sources.push(Source::new(&name, {
            let name = name.clone();
            move || load(&name, &path, &labels, None, &tables)
        }));
    }
    let there = |name: &str| {
        let folder = arguments.data.as_ref()?.join(name);
        folder.is_dir().then_some(folder)
    };
    for name in &arguments.dataset {
        if name == "digits" {
            sources.push(Source::digits());
            continue;
        }
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            let names = names.join(", ");
            return Err(Failure::Input(format!("--dataset: expected digits, {names}; got {name:?}")));
        };
        let Some(folder) = there(name) else {
            let what = "is not in the folder that --data names; `make data` fetches mnist, fashion-mnist and letter into data/";
            return Err(Failure::Input(format!("--dataset: {name} {what}")));
        };
        sources.push(source(known, folder, &arguments.tables));
    }
    if sources.is_empty() {
        sources.extend(KNOWN.iter().filter_map(|known| Some(source(known, there(known.name)?, &arguments.tables))));
    }
    if let (Some(folder), true) = (&arguments.data, sources.is_empty()) {
        return Err(Failure::input(folder, "holds none of mnist/, letter/, cifar10-conv/ and fashion-mnist/"));
    }
    for (index, source) in sources.iter().enumerate() {
        if sources[..index].iter().any(|other: &Source| other.name() == source.name()) {
            let what = format!("expected datasets with different names, got two called {}", source.name());
            return Err(Failure::Input(format!("--dataset: {what}")));
        }
    }
    if sources.is_empty() && needed && arguments.quick {
        sources.push(Source::digits());
    }
    Ok(sources)
}

fn source(known: &'static Known, folder: PathBuf, tables: &TableArguments) -> Source {
    let tables = tables.clone();
    Source::new(known.name, move || {
        let package = known.packages.iter().find(|package| folder.join(package.train[0]).is_file());
        let Some(Package { train, test }) = package else {
            let names: Vec<&str> = known.packages.iter().map(|package| package.train[0]).collect();
            return Err(Error::Data(format!("{}: expected it to contain {}", folder.display(), names.join(" or "))));
        };
        let files = |[rows, labels]: &[&str; 2]| {
            let file = folder.join(labels);
            let labels = if file.is_file() { file.display().to_string() } else { (*labels).to_owned() };
            (folder.join(rows), labels)
        };
        let (train, labels) = files(train);
        load(known.name, &train, &labels, test.as_ref().map(files), &tables)
    })
}

/// Reads rows and labels into memory.
fn load(
    name: &str,
    train: &Path,
    labels: &str,
    test: Option<(PathBuf, String)>,
    tables: &TableArguments,
) -> Result<Dataset, Error> {
    let read = || -> Result<_, Failure> {
        let paths = [train.to_path_buf()];
        let source = LabelSource::find("--labels", labels, &paths, tables)?;
        let task = Task::Classification(Classes::collect(&source)?);
        let part = |paths: &[PathBuf], source: LabelSource| -> Result<Part, Failure> {
            let missing = tables.missing(Some(("table", &Missing::Error)))?;
            let policy = missing.as_ref().map_or(Policy::Error, Policy::from);
            let dataset = dataset::Dataset::new(paths, source, dataset::Part::All, tables, policy);
            let (values, labels) = dataset.pass(None, &task, "")?.read_all(tables.limit())?;
            Ok(Part { values, labels })
        };
        let train = part(&paths, source)?;
        let test = test.as_ref().map(|(path, labels)| {
            let paths = [path.clone()];
            part(&paths, LabelSource::find("--labels", labels, &paths, tables)?)
        });
        Ok((train, test.transpose()?))
    };
    let (train, test) = read().map_err(|failure| Error::Data(failure.to_string()))?;
    Dataset::new(name, train, test)
}

/// A progress bar with the time left.
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new(quiet: bool) -> Self {
        let bar = ProgressBar::hidden();
        if !quiet {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:<18} {bar:30} {percent:>3}%  {elapsed} so far, {eta} left")
        {
            bar.set_style(style);
        }
        Self { bar }
    }
}

impl Progress for Bar {
    fn start(&self, item: &str, total: u64, done: u64) {
        self.bar.reset();
        self.bar.set_length(total);
        self.bar.set_prefix(item.to_owned());
        self.bar.set_position(done);
        self.bar.reset_eta();
        self.bar.enable_steady_tick(std::time::Duration::from_millis(500));
    }

    fn advance(&self, weight: u64) {
        self.bar.inc(weight);
    }

    fn finish(&self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }
}
