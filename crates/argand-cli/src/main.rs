//! `argand`: sketches tensor products and polynomial kernels from the command line.

mod attribute;
mod blocks;
mod dataset;
mod demo;
mod device;
mod evaluate;
mod examples;
mod failure;
mod fit;
#[cfg(test)]
mod fuzz;
mod info;
mod inputs;
mod manual;
mod model;
mod output;
mod plan;
mod predict;
mod reproduce;
mod selection;
mod signals;
mod sketch;
mod sums;
mod table;
mod transform;
mod verify;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{Parser, Subcommand};

use failure::Failure;

/// Tests run in 512 MB: a file that makes a reader take more ends them.
#[cfg(test)]
#[global_allocator]
static MEMORY: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, 512 << 20);

/// Sketches of tensor products and polynomial kernels.
///
/// Turns rows of numbers into random features whose inner products approximate (gamma <x,y> + coef0)^degree.
#[derive(Debug, Parser)]
#[command(name = "argand", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  argand demo                                              see the sketches at work on handwritten digits
  argand transform x.npy -o z.npy --degree 3 --features 1024
  argand plan x.npy --degree 3 --target-error 0.05         which method, and how many features
  argand verify x.npy --degree 3                           test the sketches against theory
  argand fit x.csv --labels class --model gp -o m.model    learn from labelled rows
  argand gram part-1.csv --labels class --spec s.json -o 1.gram   sums of a part of the rows, for `argand merge`
  argand predict m.model new.csv -o predicted.csv
  argand evaluate m.model test.csv --labels class
  argand attribute train-store query-store -o scores.parquet   which examples helped or harmed
  argand info sketch.json                                  describe a saved sketch, or a model
  argand info --devices                                    which GPUs there are, for --device cuda
  argand reproduce all --quick                             the paper's figures and tables, measured again

Exit codes: 0 success, 2 wrong usage or input, 1 anything else.";

#[derive(Debug, Subcommand)]
enum Command {
    Transform(transform::Arguments),
    Plan(plan::Arguments),
    Verify(verify::Arguments),
    Fit(Box<fit::Arguments>),
    Gram(Box<sums::GramArguments>),
    Merge(sums::MergeArguments),
    Predict(predict::Arguments),
    Evaluate(evaluate::Arguments),
    Attribute(Box<attribute::Arguments>),
    Info(info::Arguments),
    Demo(demo::Arguments),
    Reproduce(Box<reproduce::Arguments>),
    Completions(manual::CompletionArguments),
    Man(manual::ManualArguments),
}

fn main() -> ExitCode {
    signals::handle();
    let result = match Arguments::parse().command {
        Command::Transform(arguments) => transform::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Gram(arguments) => sums::gram(&arguments),
        Command::Merge(arguments) => sums::merge(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Evaluate(arguments) => evaluate::run(&arguments),
        Command::Attribute(arguments) => attribute::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::manual(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If standard error is closed, nobody is left to tell.
            let _ = writeln!(io::stderr(), "argand: {}", plain(&failure.to_string()));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Text without the control characters that a terminal would obey: names and values may come from files of others.
fn plain(text: &str) -> String {
    let replace = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(replace).collect()
}

/// Says what may be a mistake, once however often it is met.
fn warn(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned()) {
        // If standard error is closed, nobody is left to tell.
        let _ = writeln!(io::stderr(), "argand: warning: {}", plain(what));
    }
}

/// Prints to standard output. A reader that leaves early (`argand demo | head`) is not a failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(plain(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Other(format!("standard output: cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

/// Far more threads than cores never help; each takes a megabyte, and failures to start them cannot all be caught.
const MOST_THREADS: usize = 256;
/// What sets the number of threads where no option does.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// Runs `work` on `threads` threads, or on all cores.
fn on_threads<R: Send>(threads: Option<usize>, work: impl FnOnce() -> R + Send) -> Result<R, Failure> {
    if let Some(threads) = threads.filter(|threads| !(1..=MOST_THREADS).contains(threads)) {
        return Err(Failure::Input(format!("--threads: expected 1 to {MOST_THREADS}, got {threads}")));
    }
    // Threads outside of the pool, too, are as many as the variable says.
    if let Some(many) = std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.trim().parse::<u64>().ok())
        && many > MOST_THREADS as u64
    {
        return Err(Failure::Input(format!("{THREADS_VARIABLE}: expected at most {MOST_THREADS}, got {many}")));
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .map_err(|error| Failure::Other(format!("--threads: cannot start the threads: {error}")))?;
    Ok(pool.install(work))
}
