//! `argand attribute`: which training examples helped or harmed a model on some queries.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use argand::{Argument, Error};
use argand_figure::{Answer, SHOWN_EXAMPLES, SHOWN_QUERIES, Scored, attribution_page};
use argand_learn::attribution::{self, Damping, Measure, Options, Progress, Ranked, Scores, Stage, Store};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::device::DeviceArguments;
use crate::examples::exhibits;
use crate::failure::Failure;
use crate::info::bytes;
use crate::output::{self, AtomicFile};
use crate::table::RankedWriter;
use crate::{on_threads, print, warn};

/// Score training examples for queries, by sketches of their gradients.
///
/// TRAIN and QUERIES are stores, folders with a sketch of every example's gradient that argand.attribution.GradientStore records in Python. For
/// every query, the examples of largest score helped (training on them lowers its loss), those of smallest score harmed. Scores come
/// with the standard error of the sketch, and with the ranks that are within it.
///
/// Influence is φᵀ(G + λI)⁻¹φ' per layer, with the sum G of φφᵀ over all training examples (Grosse et al. 2023; Park et al. 2023).
/// G takes n D² operations and is kept beside TRAIN; a grown store adds what is new.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The store of training examples.
    train: PathBuf,

    /// The store of queries: of the same model, layers and sketches.
    queries: PathBuf,

    /// Where to write the scores, as .parquet or .csv: query, rank, kind, example, score, standard_error, rank_low, rank_high.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// Examples in each list of a query.
    #[arg(long, value_name = "K", default_value_t = 20, allow_negative_numbers = true)]
    top: usize,

    /// What a score is: influence, similarity (inner products) or cosine.
    #[arg(long, value_name = "SCORE", default_value_t = Measure::Influence)]
    score: Measure,

    /// Score by some layers only: patterns of names, with * for any text and ? for any character [default: all].
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    layers: Vec<String>,

    /// λ as a multiple of the mean eigenvalue of G, of every layer.
    #[arg(long, value_name = "MULTIPLE", default_value_t = 0.1, allow_negative_numbers = true)]
    damping: f64,

    /// λ itself, the same for all layers.
    #[arg(long, value_name = "LAMBDA", conflicts_with = "damping", allow_negative_numbers = true)]
    lambda: Option<f64>,

    /// Take all layers together, with one G of all of their features, rather than one by one.
    #[arg(long)]
    joint: bool,

    #[command(flatten)]
    device: DeviceArguments,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    page: PageArguments,

    /// Print nothing on success.
    #[arg(short, long)]
    quiet: bool,
}

/// The page.
#[derive(Debug, clap::Args)]
struct PageArguments {
    /// Write a page that shows queries with their most helpful and most harmful examples.
    #[arg(long, value_name = "PAGE.html")]
    report: Option<PathBuf>,

    /// What training examples look like: .txt or .jsonl (a line for each; strings, or objects with "text"), or bytes of images as .npy
    /// (n x h x w or n x h x w x 3) or IDX.
    #[arg(long, value_name = "FILE", requires = "report")]
    train_examples: Option<PathBuf>,

    /// What queries look like.
    #[arg(long, value_name = "FILE", requires = "report")]
    query_examples: Option<PathBuf>,

    /// Labels of the training examples: .txt with a line for each, or a table of one column (.csv with its name, .npy, IDX, .parquet).
    #[arg(long, value_name = "FILE", requires = "report")]
    train_labels: Option<PathBuf>,

    /// Labels of the queries.
    #[arg(long, value_name = "FILE", requires = "report")]
    query_labels: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  argand attribute train-store query-store --top 20 -o scores.parquet
  argand attribute train-store query-store --score cosine --layers 'blocks.*.fc?' 'head' -o scores.csv
  argand attribute train-store query-store --joint --damping 0.01 --device cuda -o scores.parquet
  argand attribute train-store query-store --report page.html --train-examples train.txt --query-examples queries.jsonl
  argand info train-store                                  its layers and examples";

/// Queries, and examples of each list, that are printed.
const PRINTED: [usize; 2] = [3, 5];

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let page = &arguments.page;
    let inputs = [&page.train_examples, &page.query_examples, &page.train_labels, &page.query_labels];
    let inputs: Vec<&PathBuf> = inputs.into_iter().flatten().collect();
    for (option, path) in [("--output", &arguments.output), ("--report", &page.report)] {
        if let Some(path) = path {
            output::check_outside(option, path, [&arguments.train, &arguments.queries].into_iter())?;
        }
    }
    if let Some(path) = &arguments.output {
        output::check_free("--output", path, inputs.iter().copied())?;
    }
    if let Some(path) = &page.report {
        output::check_free("--report", path, inputs.iter().copied().chain(&arguments.output))?;
    }
    let opened = arguments.device.open()?;
    let stores = [&arguments.train, &arguments.queries].map(Store::open);
    let [train, queries] = stores.map(|store| store.map_err(|error| failure(&error)));
    let (train, queries) = (train?, queries?);
    if page.report.is_some() {
        // Files that are absent or too short, before any work.
        let last = |store: &Store, most| BTreeSet::from_iter(store.numbers().take(most).last());
        exhibits(page.train_examples.as_deref(), page.train_labels.as_deref(), &last(&train, usize::MAX))?;
        exhibits(page.query_examples.as_deref(), page.query_labels.as_deref(), &last(&queries, SHOWN_QUERIES))?;
    }
    let table = arguments.output.as_deref().map(RankedWriter::create).transpose()?;
    let report = page.report.as_deref().map(AtomicFile::create).transpose()?;
    let options = Options {
        measure: arguments.score,
        layers: arguments.layers.clone(),
        damping: arguments.lambda.map_or(Damping::Multiple(arguments.damping), Damping::Lambda),
        joint: arguments.joint,
        engine: opened.engine().cloned(),
        ..Options::default()
    };
    let begun = Instant::now();
    let mut bar = Bar::new(train.columns() as u64 * 4);
    let scores = on_threads(arguments.threads, || {
        attribution::attribute(&train, &queries, arguments.top, &options, &mut |progress| bar.show(progress))
    });
    bar.bar.finish_and_clear();
    let scores = scores?.map_err(|error| failure(&error))?;
    let seconds = begun.elapsed().as_secs_f64();
    scores.notes.iter().for_each(|note| warn(note));
    // The page first: it may find an example that is none.
    let page = report.map(|file| Ok::<_, Failure>((file, page_of(arguments, &scores)?))).transpose()?;
    if let Some(table) = table {
        table.write(&scores)?;
    }
    if let (Some((mut file, text)), Some(path)) = (page, arguments.page.report.as_deref()) {
        let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| Failure::io(path, "write", &error))?;
        file.commit()?;
    }
    if arguments.quiet {
        return Ok(());
    }
    let mut text = shown(&scores);
    let _ = writeln!(
        text,
        "{} of {} examples for {} queries in {seconds:.1} s",
        arguments.score,
        HumanCount(train.examples()),
        HumanCount(scores.queries.len() as u64),
    );
    print(&text)
}

/// A library error, with the names of the options.
fn failure(error: &Error) -> Failure {
    match error {
        Error::Invalid {
            argument: Argument::Joint | Argument::Layers | Argument::Damping | Argument::Lambda | Argument::Top,
            ..
        } => Failure::argument(error),
        Error::Singular { .. } => Failure::Input(format!("--damping: {error}")),
        other => Failure::Input(other.to_string()),
    }
}

/// A bar for every stage.
struct Bar {
    bar: ProgressBar,
    stage: Option<Stage>,
    begun: Instant,
    row_bytes: u64,
}

impl Bar {
    fn new(row_bytes: u64) -> Self {
        Self { bar: ProgressBar::hidden(), stage: None, begun: Instant::now(), row_bytes }
    }

    fn show(&mut self, progress: Progress) {
        if self.stage != Some(progress.stage) {
            self.bar.finish_and_clear();
            self.bar = ProgressBar::with_draw_target(Some(progress.total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{prefix}{bar:30} {percent:>3}%  {msg}  {eta} left") {
                self.bar.set_style(style);
            }
            self.bar.set_prefix(match progress.stage {
                Stage::Summing => "summing  ",
                Stage::Scoring => "scoring  ",
            });
            self.bar.enable_steady_tick(Duration::from_millis(200));
            (self.stage, self.begun) = (Some(progress.stage), Instant::now());
        }
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.done);
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-3);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a speed to look at")]
        let speed = ((progress.done * self.row_bytes) as f64 / seconds) as u64;
        self.bar.set_message(format!("{} examples, {}/s", HumanCount(progress.done), bytes(speed)));
    }
}

/// The lists of query `at`.
fn lists(scores: &Scores, at: usize, most: usize) -> [(&'static str, &[Ranked]); 2] {
    [("helpful", &scores.helpful), ("harmful", &scores.harmful)]
        .map(|(kind, list)| (kind, &list[at * scores.top..][..scores.top.min(most)]))
}

/// The first entries of the first queries.
fn shown(scores: &Scores) -> String {
    let mut text = String::new();
    for (at, query) in scores.queries.iter().enumerate().take(PRINTED[0]) {
        let _ = writeln!(
            text,
            "query {query}\n  {:8} {:>4} {:>12} {:>14} {:>12}  ranks within the error",
            "kind", "rank", "example", "score", "error"
        );
        for (kind, list) in lists(scores, at, PRINTED[1]) {
            for (rank, ranked) in (1..).zip(list) {
                let Ranked { example, score, standard_error, rank_low, rank_high } = ranked;
                let ranks = if rank_low < rank_high { format!("{rank_low} to {rank_high}") } else { "-".to_owned() };
                let _ = writeln!(
                    text,
                    "  {kind:8} {rank:>4} {example:>12} {score:>14.6e} {standard_error:>12.2e}  {ranks}"
                );
            }
        }
    }
    let more = scores.queries.len().saturating_sub(PRINTED[0]);
    if more > 0 {
        let _ = writeln!(text, "and {more} more queries");
    }
    text
}

/// The page of the first queries.
fn page_of(arguments: &Arguments, scores: &Scores) -> Result<String, Failure> {
    let page = &arguments.page;
    let count = scores.queries.len().min(SHOWN_QUERIES);
    let entries = || (0..count).flat_map(|at| lists(scores, at, SHOWN_EXAMPLES)).flat_map(|(_, list)| list);
    let examples: BTreeSet<u64> = entries().map(|ranked| ranked.example).collect();
    let queries: BTreeSet<u64> = scores.queries[..count].iter().copied().collect();
    let mut queries = exhibits(page.query_examples.as_deref(), page.query_labels.as_deref(), &queries)?;
    let examples = exhibits(page.train_examples.as_deref(), page.train_labels.as_deref(), &examples)?;
    let answers: Vec<Answer> = (0..count)
        .map(|at| {
            let scored = |ranked: &Ranked| Scored {
                example: examples.get(&ranked.example).cloned().unwrap_or_default(),
                score: ranked.score,
                standard_error: ranked.standard_error,
                ranks: [ranked.rank_low, ranked.rank_high],
            };
            let [helpful, harmful] =
                lists(scores, at, SHOWN_EXAMPLES).map(|(_, list)| list.iter().map(scored).collect());
            Answer { query: queries.remove(&scores.queries[at]).unwrap_or_default(), helpful, harmful }
        })
        .collect();
    let name = |path: &Path| path.display().to_string();
    let all = scores.queries.len();
    let some = if count < all { format!("the first {count} of {all}") } else { all.to_string() };
    let about = format!("Examples of {} for {some} queries of {}", name(&arguments.train), name(&arguments.queries));
    Ok(attribution_page(&about, &arguments.score.to_string(), &answers))
}
