//! Shared by the benches: how they measure, and where results go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use argand::rng::{Purpose, Stream};

pub(crate) const METHODS: [&str; 8] = [
    "gaussian",
    "ctr-gaussian",
    "rademacher",
    "ctr-rademacher",
    "product-srht",
    "ctr-product-srht",
    "tensor-sketch",
    "ctr-tensor-sketch",
];

/// Seconds of the fastest run: as many as fit into `budget` seconds, at least 3, after one to warm up.
pub(crate) fn best(budget: f64, mut run: impl FnMut()) -> f64 {
    run();
    let begun = Instant::now();
    let mut fastest = Duration::MAX;
    let mut runs = 0;
    while runs < 3 || begun.elapsed().as_secs_f64() < budget {
        let start = Instant::now();
        run();
        fastest = fastest.min(start.elapsed());
        runs += 1;
    }
    fastest.as_secs_f64()
}

pub(crate) fn data(length: usize) -> Vec<f32> {
    let mut stream = Stream::new(1, Purpose::Weights, 0, 0);
    (0..length).map(|_| stream.uniform() as f32 / 8.0).collect()
}

/// How often compared measurements take turns.
pub(crate) const ROUNDS: usize = 3;

/// Compared measurements take turns, and the best of each counts: a shared machine is not quiet for long.
pub(crate) fn in_rounds<const N: usize>(rounds: usize, mut measure: impl FnMut() -> [f64; N]) -> [f64; N] {
    (0..rounds).fold([f64::INFINITY; N], |best, _| {
        let times = measure();
        std::array::from_fn(|at| best[at].min(times[at]))
    })
}

/// Rows of text, shown as Markdown and kept as CSV.
pub(crate) struct Table {
    header: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), lines: vec![] }
    }

    pub(crate) fn push<S: Into<String>>(&mut self, line: impl IntoIterator<Item = S>) {
        self.lines.push(line.into_iter().map(Into::into).collect());
    }

    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|---|{}\n", "---:|".repeat(self.header.len() - 1));
        line(&self.header) + &rule + &self.lines.iter().map(|cells| line(cells)).collect::<String>()
    }

    pub(crate) fn csv(&self) -> String {
        let line = |cells: &Vec<String>| format!("\"{}\"\n", cells.join("\",\""));
        std::iter::once(&self.header).chain(&self.lines).map(line).collect()
    }
}

/// The sections to measure, besides the limits.
pub(crate) const SECTIONS: [&str; 10] =
    ["fwht", "features", "methods", "scaling", "sparse", "batches", "gram", "gp", "shortcuts", "threads"];

/// Where results go.
pub(crate) struct Report {
    /// Sections and methods asked for; all if none.
    wanted: Vec<String>,
    /// The folder of the documentation, if it should be written.
    pub(crate) docs: Option<PathBuf>,
    pub(crate) csv: PathBuf,
}

impl Report {
    pub(crate) fn wants(&self, section: &str) -> bool {
        let mut sections = self.wanted.iter().filter(|wanted| !METHODS.contains(&wanted.as_str())).peekable();
        sections.peek().is_none() || sections.any(|wanted| wanted == section)
    }

    pub(crate) fn wants_method(&self, method: &str) -> bool {
        let mut methods = self.wanted.iter().filter(|wanted| METHODS.contains(&wanted.as_str())).peekable();
        methods.peek().is_none() || methods.any(|wanted| wanted == method)
    }

    /// Shows a table under a title, keeps it as CSV, and replaces the one of this name in `docs/benchmarks.md`.
    pub(crate) fn table(&self, name: &str, title: &str, table: &Table) {
        println!("{title}\n\n{}", table.markdown());
        fs::create_dir_all(&self.csv).expect("the target folder");
        fs::write(self.csv.join(format!("{name}.csv")), table.csv()).expect("the target folder");
        if let Some(docs) = &self.docs {
            let path = docs.join("benchmarks.md");
            let page = fs::read_to_string(&path).expect("docs/benchmarks.md");
            let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
            let (before, rest) = page.split_once(&start).expect("a place for the table");
            let (_, after) = rest.split_once(&end).expect("an end of the table");
            fs::write(&path, format!("{before}{start}{title}\n\n{}{end}{after}", table.markdown())).expect("docs");
        }
    }

    /// The parsed arguments; exits with the reason if they are wrong. All benches know each other's sections.
    pub(crate) fn from_arguments() -> Self {
        let (mut docs, mut wanted) = (None, vec![]);
        // Cargo adds `--bench`.
        for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
            if argument == "--docs" {
                docs = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"));
            } else if SECTIONS.iter().chain(&METHODS).any(|known| *known == argument) {
                wanted.push(argument);
            } else {
                eprintln!(
                    "{argument}: expected sections to measure ({}; default: all), methods ({}; default: all), or --docs to write tables into docs/",
                    SECTIONS.join(", "),
                    METHODS.join(", ")
                );
                std::process::exit(2);
            }
        }
        if docs.is_some() && wanted.iter().any(|wanted| METHODS.contains(&wanted.as_str())) {
            eprintln!("--docs: tables in docs/ have all methods; leave out the names of methods");
            std::process::exit(2);
        }
        Self { wanted, docs, csv: Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench") }
    }
}

pub(crate) fn digits(value: f64) -> String {
    format!("{value:.*}", usize::from(value < 100.0) + usize::from(value < 10.0))
}

/// A ratio, and whether it meets its goal.
pub(crate) fn goal(ratio: f64, met: bool) -> String {
    format!("{} {}", digits(ratio), if met { "✓" } else { "✗" })
}
