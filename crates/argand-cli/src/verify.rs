//! `argand verify`: tests the sketches against theory on the user's own rows.

use std::fmt::Write as _;
use std::path::PathBuf;

use argand::fit::Fitting;
use argand::verify::{Comparison, Effort, Verification, z_bound};
use argand::{Argument, Error, Kernel, Method, OwnedRows, Spec};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::info::{kernel, read_recipe};
use crate::inputs::{self, KernelArguments};
use crate::selection::FeatureArguments;
use crate::{on_threads, print};

/// Test the sketches against theory on the rows of a file.
///
/// Draws many sketches of pairs of your rows, and compares the mean of their kernel estimates with the kernel, and the variance
/// with the closed form where one is known. Exits with 1 if any disagrees.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The table to sketch, or one table per factor with equally many rows.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    #[command(flatten)]
    kernel: KernelArguments,

    /// Number of features.
    #[arg(long, value_name = "D", default_value_t = 256, allow_negative_numbers = true)]
    features: usize,

    /// Methods to test [default: some with a closed form for this kernel].
    #[arg(long, value_name = "M,...", value_delimiter = ',')]
    method: Vec<Method>,

    /// Test a saved sketch instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["degree", "features", "method", "gamma", "coef0"])]
    spec: Option<PathBuf>,

    /// Sketches drawn per method.
    #[arg(long, value_name = "N", default_value_t = 500, allow_negative_numbers = true)]
    sketches: usize,

    /// Pairs of different rows; half as many rows are also paired with themselves.
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true)]
    pairs: usize,

    /// Read only the first rows [default: all].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    rows: Option<usize>,

    /// Random seed for choosing rows and drawing sketches.
    #[arg(long, value_name = "S", default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,

    /// Show every pair.
    #[arg(long)]
    details: bool,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    tables: FeatureArguments,
}

/// Methods for a kernel that have a closed form.
fn methods(kernel: &Kernel) -> Vec<Method> {
    let products = ["gaussian", "ctr-gaussian", "rademacher", "ctr-rademacher", "product-srht", "ctr-product-srht"];
    let (before, other) = match kernel {
        Kernel::Polynomial(_) => ("", Some("tensor-sketch")),
        Kernel::Gaussian { .. } => ("maclaurin-", Some("rff")),
        _ => ("maclaurin-", None),
    };
    let names = products.into_iter().map(|product| format!("{before}{product}"));
    let names = names.chain(other.map(str::to_owned));
    names.map(|name| name.parse().unwrap_or_else(|_| unreachable!("{name} is a method"))).collect()
}

/// The probability of a false alarm: correct sketches reported to disagree.
const LEVEL: f64 = 0.001;

const EXAMPLES: &str = "\
Examples:
  argand verify train.npy --degree 3 --gamma 0.5 --coef0 0.5
  argand verify train.npy --method ctr-product-srht --features 1024 --sketches 5000 --details
  argand verify train.npy --spec sketch.json";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.rows == Some(0) {
        return Err(Failure::Input("--rows: expected at least 1, got 0".to_owned()));
    }
    let saved = arguments.spec.as_deref().map(read_recipe).transpose()?;
    let prepared = arguments.tables.open::<f64>(&arguments.inputs, saved.as_ref())?;
    let preparation = prepared.recipe(Spec::polynomial(1)).preparation;
    let mut inputs = prepared.inputs;
    let specs = match saved {
        Some(recipe) => vec![recipe.spec],
        None => {
            let (kernel, dims) = arguments.kernel.kernel(inputs.columns())?;
            let spec = |&method: &Method| {
                let spec = Spec::new(dims.clone()).with_kernel(kernel.clone()).with_method(method);
                let features = spec.exact_features().unwrap_or(arguments.features);
                spec.with_features(features)
            };
            let wanted = if arguments.method.is_empty() { methods(&kernel) } else { arguments.method.clone() };
            wanted.iter().map(spec).collect()
        }
    };
    for spec in &specs {
        spec.validate().map_err(|error| Failure::argument(&error))?;
    }
    let diagonal = arguments.pairs.div_ceil(2);
    let effort = Effort { pairs: arguments.pairs, diagonal, sketches: arguments.sketches, seed: arguments.seed };
    effort.validate().map_err(|error| Failure::argument(&error))?;
    inputs.show_progress("");
    let sample = inputs.sample(arguments.rows, arguments.seed)?;
    let files = inputs::names(&arguments.inputs);
    let wrong = |error: Error| match &error {
        Error::Invalid { argument: Argument::Input(_), expected, received } => {
            Failure::Input(format!("{files}: expected {expected}, got {received}"))
        }
        Error::Overflow { .. } => {
            Failure::Input(format!("{files}: features overflow; scale the rows to unit norm, or use a smaller --gamma"))
        }
        _ => Failure::argument(&error),
    };
    let bar = ProgressBar::new(specs.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} methods  {msg}") {
        bar.set_style(style);
    }
    let reports = on_threads(arguments.threads, || {
        let views = sample.views().map_err(wrong)?;
        let scaled = preparation.apply(&views).map_err(wrong)?;
        let views = scaled.as_ref().map_or(views, |tables| tables.iter().map(OwnedRows::view).collect());
        let one = |spec: &Spec| {
            bar.set_message(spec.method.to_string());
            // A method that looks at rows is fitted to the sample; a saved one is as it was.
            let spec = if spec.fit.is_some() { Ok(spec.clone()) } else { spec.fit_to(&views, &Fitting::default()) };
            let report = spec.and_then(|spec| argand::verify::verify(&spec, &views, &effort)).map_err(wrong);
            bar.inc(1);
            report
        };
        specs.iter().map(one).collect::<Result<Vec<Verification>, Failure>>()
    });
    bar.finish_and_clear();
    let reports = reports??;
    let bound = z_bound(reports.iter().map(|report| report.scores().count()).sum(), LEVEL);
    let Some(first) = reports.first() else { return Ok(()) };
    let mut text = format!(
        "Kernel {} on {} pairs of rows from {} rows, {} sketches of {} features for each method\n\n{:<30} {:<26} {:<30} verdict\n",
        kernel(&first.spec),
        first.pairs.len(),
        HumanCount(sample.total as u64),
        first.sketches,
        first.spec.features,
        "method",
        "mean of the estimates",
        "variance over its prediction",
    );
    for report in &reports {
        describe(report, bound, arguments.details, &mut text);
    }
    let _ = write!(
        text,
        "\nz counts standard errors between what was measured and what theory says, corrected for skewness. If theory is right,\n\
         no |z| here exceeds {bound:.1} with a probability of {:.1} %.\n",
        100.0 * (1.0 - LEVEL)
    );
    if let Some(needed) = reports.iter().filter_map(too_few).max() {
        let _ = writeln!(
            text,
            "Where too few sketches were drawn for a judgement, about {} would do.",
            HumanCount(needed as u64)
        );
    }
    match conclusion(&reports, bound) {
        Ok(good) => print(&(text + &good)),
        Err(bad) => {
            print(&text)?;
            Err(bad)
        }
    }
}

/// The last line of the report, or the failure that ends it.
fn conclusion(reports: &[Verification], bound: f64) -> Result<String, Failure> {
    let wrong: Vec<String> =
        reports.iter().filter(|report| disagrees(report, bound)).map(|report| report.spec.method.to_string()).collect();
    if !wrong.is_empty() {
        let what = format!("{} disagree with theory; more --sketches tell chance from error", wrong.join(", "));
        return Err(Failure::Other(what));
    }
    let tested = reports.iter().filter(|report| report.scores().next().is_some()).count();
    Ok(match tested {
        0 => "\nNothing could be judged.\n".to_owned(),
        tested if tested == reports.len() => "\nAll agree with theory.\n".to_owned(),
        tested => format!("\nAll {tested} that could be judged agree with theory.\n"),
    })
}

/// The number of sketches needed to judge everything, if more than were drawn.
fn too_few(report: &Verification) -> Option<usize> {
    let variances = report.pairs.iter().any(|pair| pair.variance.is_some());
    let needed = if variances { report.sketches_for_variances() } else { 0 };
    let needed = if report.is_biased() { needed } else { needed.max(report.sketches_for_means()) };
    Some(needed).filter(|&needed| needed > report.sketches)
}

/// NaN disagrees too.
fn disagrees(report: &Verification, bound: f64) -> bool {
    report.scores().any(|z| z.is_nan() || z.abs() > bound)
}

/// The score furthest from 0; NaN is further than all.
fn worst(scores: impl Iterator<Item = f64>) -> f64 {
    scores.fold(0.0, |worst: f64, z| if z.abs() > worst.abs() || z.is_nan() { z } else { worst })
}

/// A score of readable length.
fn score(z: f64) -> String {
    if z.abs() < 100.0 { format!("z {z:+.1}") } else { format!("z {z:+.0e}") }
}

fn describe(report: &Verification, bound: f64, details: bool, text: &mut String) {
    let means = worst(report.pairs.iter().map(|pair| pair.mean.z));
    let mean = if report.is_biased() {
        let bias = report.pairs.iter().map(|pair| (pair.mean.measured - pair.mean.expected).abs());
        format!("biased, by up to {:.4}", bias.fold(0.0, f64::max))
    } else {
        let enough = report.sketches >= report.sketches_for_means();
        if enough { format!("unbiased, worst {}", score(means)) } else { "too few sketches to tell".to_owned() }
    };
    let compared: Vec<Comparison> = report.pairs.iter().filter_map(|pair| pair.variance).collect();
    let ratios: Vec<f64> =
        compared.iter().filter(|both| both.expected > 0.0).map(|both| both.measured / both.expected).collect();
    let variance = if compared.is_empty() {
        let deviations = report.pairs.iter().map(|pair| pair.deviation);
        format!("no formula; deviation {:.4}", deviations.fold(0.0, f64::max))
    } else {
        let (low, high) = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &r| (low.min(r), high.max(r)));
        let z = worst(compared.iter().map(|both| both.z));
        match (ratios.is_empty(), report.sketches >= report.sketches_for_variances()) {
            (true, _) => "exact".to_owned(),
            (false, true) => format!("{low:.2} to {high:.2}, worst {}", score(z)),
            (false, false) => "too few sketches to tell".to_owned(),
        }
    };
    let verdict = match report.scores().next() {
        None => "not judged",
        Some(_) if disagrees(report, bound) => "DISAGREES",
        Some(_) => "agrees",
    };
    let _ = writeln!(text, "{:<30} {mean:<26} {variance:<30} {verdict}", report.spec.method);
    if details {
        for pair in &report.pairs {
            let _ = write!(
                text,
                "  rows {:>6} and {:>6}: kernel {:.4e}, mean {:.4e} ({})",
                pair.rows.0,
                pair.rows.1,
                pair.mean.expected,
                pair.mean.measured,
                score(pair.mean.z)
            );
            let _ = match pair.variance {
                Some(both) => writeln!(
                    text,
                    "; variance {:.4e} predicted, {:.4e} measured ({})",
                    both.expected,
                    both.measured,
                    score(both.z)
                ),
                None => writeln!(text, "; deviation {:.4e}", pair.deviation),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use argand::verify::PairReport;

    use super::*;

    /// A report of one pair whose mean has this score.
    fn report(z: f64) -> Verification {
        let mean = Comparison { expected: 1.0, measured: 1.0, z };
        let pair = PairReport { rows: (0, 1), mean, variance: None, deviation: 0.1 };
        let spec = Spec::polynomial(3).with_degree(2).with_features(1024);
        Verification { spec, sketches: 500, pairs: vec![pair] }
    }

    /// A single score beyond the bound, or none at all, ends the command with a failure that names the method.
    #[test]
    fn the_command_disagrees_where_theory_and_sketches_do() {
        let bound = z_bound(1, LEVEL);
        for (z, right) in [(0.0, true), (0.9 * bound, true), (1.1 * bound, false), (-9.0, false), (f64::NAN, false)] {
            let reports = [report(0.1), report(z)];
            let mut text = String::new();
            describe(&reports[1], bound, false, &mut text);
            assert_eq!(text.contains("DISAGREES"), !right, "{z}: {text}");
            match conclusion(&reports, bound) {
                Ok(text) => assert!(right && text.contains("All agree"), "{z}: {text}"),
                Err(failure) => {
                    assert!(!right && failure.exit_code() == 1, "{z}: {failure}");
                    assert!(failure.to_string().contains("ctr-product-srht disagree with theory"), "{failure}");
                }
            }
        }
    }
}
