//! `argand demo`: the sketches at work on a small real dataset.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use argand::theory::kernel_error;
use argand::{FeatureMap, Method, Rows, RowsMut, Spec};
use argand_figure::{Figure, Panel, Scale, Series, Style, highlighted, key};
use argand_paper::{Dataset, Part};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::info::kernel;
use crate::output::AtomicFile;
use crate::{on_threads, print};

/// Measure every method on handwritten digits.
///
/// Prints the relative Frobenius error of the approximate kernel matrix, mean and standard deviation over seeds, and
/// the time for the features (the fastest seed's). The rows have unit norm and the kernel is the paper's,
/// (<x,y>/2 + 1/2)^degree.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  argand demo
  argand demo --degree 7 --seeds 5 --features 512,2048 --plot error.svg

Data: E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, CC BY 4.0.")]
pub(crate) struct Arguments {
    /// Degree of the kernel.
    #[arg(long, value_name = "P", default_value_t = 3, allow_negative_numbers = true)]
    degree: usize,

    /// Numbers of features to try.
    #[arg(
        long,
        value_name = "D,...",
        value_delimiter = ',',
        default_value = "128,512,2048",
        allow_negative_numbers = true
    )]
    features: Vec<usize>,

    /// Methods to try.
    #[arg(long, value_name = "M,...", value_delimiter = ',', default_value = METHODS)]
    method: Vec<Method>,

    /// Sketches drawn per method and number of features.
    #[arg(long, value_name = "N", default_value_t = 5, allow_negative_numbers = true)]
    seeds: u64,

    /// Rows of the data to use.
    #[arg(long, value_name = "N", default_value_t = 500, allow_negative_numbers = true)]
    rows: usize,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    /// Plot the errors to an SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The methods that the paper compares, and chains.
const METHODS: &str = "gaussian,ctr-gaussian,rademacher,ctr-rademacher,product-srht,ctr-product-srht,tensor-sketch,\
    chain-ctr-product-srht,hierarchical-product-srht,hierarchical-ctr-product-srht,hierarchical-tensor-sketch,srf,\
    craft-product-srht,craft-ctr-product-srht,craft-tensor-sketch";

/// More sketches than these would take days.
const MOST_SEEDS: u64 = 100_000;

/// The first rows of the digits, each scaled to unit norm.
fn digits(digits: &Part, rows: usize) -> Vec<f32> {
    let columns = digits.columns();
    let mut table = Vec::with_capacity(rows * columns);
    for pixels in digits.values[..rows * columns].chunks_exact(columns) {
        let norm = pixels.iter().map(|pixel| pixel * pixel).sum::<f32>().sqrt();
        table.extend(pixels.iter().map(|pixel| pixel / norm));
    }
    table
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
struct Measurement {
    method: Method,
    features: usize,
    /// One for each seed.
    errors: Vec<f64>,
    milliseconds: f64,
}

impl Measurement {
    fn mean(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len() as f64
    }

    fn deviation(&self) -> f64 {
        let squares: f64 = self.errors.iter().map(|error| (error - self.mean()).powi(2)).sum();
        if self.errors.len() > 1 { (squares / (self.errors.len() as f64 - 1.0)).sqrt() } else { 0.0 }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let data = Dataset::digits().map_err(|error| Failure::Other(error.to_string()))?;
    if !(2..=data.rows()).contains(&arguments.rows) {
        return Err(Failure::Input(format!("--rows: expected 2 to {}, got {}", data.rows(), arguments.rows)));
    }
    if !(1..=MOST_SEEDS).contains(&arguments.seeds) {
        return Err(Failure::Input(format!("--seeds: expected 1 to {MOST_SEEDS}, got {}", arguments.seeds)));
    }
    let specs = arguments
        .method
        .iter()
        .flat_map(|&method| arguments.features.iter().map(move |&features| (method, features)))
        .map(|(method, features)| {
            let spec = Spec::polynomial(data.columns())
                .with_degree(arguments.degree)
                .with_features(features)
                .with_method(method)
                .with_gamma(0.5)
                .with_coef0(0.5);
            spec.validate().map_err(|error| Failure::argument(&error))?;
            if method.looks_at_rows() {
                return Err(Failure::Input(format!("--method: expected one that does not look at rows, got {method}")));
            }
            let bytes = (arguments.rows * size_of::<f32>()) as u64 * features as u64;
            if bytes > argand::DEFAULT_MEMORY_LIMIT {
                let what = format!("{features} for {} rows take {bytes} bytes", arguments.rows);
                return Err(Failure::Input(format!("--features: expected fewer, as {what}")));
            }
            Ok(spec)
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let Some(first) = specs.first() else { return Ok(()) };
    let picture = arguments.plot.as_deref().map(AtomicFile::create).transpose()?;
    let measured = on_threads(arguments.threads, || measure_all(arguments, data.to_learn_from(), &specs))??;
    print(&conclusion(arguments.degree, &measured))?;
    if let (Some(mut file), Some(path)) = (picture, &arguments.plot) {
        let svg = figure(first, arguments, &measured).svg();
        file.write_all(svg.as_bytes()).map_err(|error| Failure::io(path, "write", &error))?;
        file.commit()?;
    }
    Ok(())
}

/// Error over features, one line per method.
fn figure(spec: &Spec, arguments: &Arguments, measured: &[Measurement]) -> Figure {
    let series = measured.chunk_by(|a, b| a.method == b.method).map(|lines| {
        let points = lines.iter().map(|line| (line.features as f64, line.mean()));
        let series = Series::new(lines[0].method.to_string(), Style::of(lines[0].method), points);
        // A single sketch has no scatter.
        let root = (arguments.seeds as f64).sqrt();
        if arguments.seeds > 1 { series.with_bars(lines.iter().map(|line| line.deviation() / root)) } else { series }
    });
    let panel = Panel::new(
        "Lower is better: error of the kernel matrix",
        ["features D", &format!("relative error of {} on {} digits", kernel(spec), arguments.rows)],
        [Scale::Doubling, Scale::Logarithmic],
        highlighted(series.collect()),
    );
    let bars = if arguments.seeds > 1 { " Bars are standard errors." } else { "" };
    let note = format!("Means of {} sketches.{bars} {}", arguments.seeds, key(&panel.series));
    Figure { name: "demo".to_owned(), caption: String::new(), columns: 1, panels: vec![panel], note }
}

fn measure_all(arguments: &Arguments, part: &Part, specs: &[Spec]) -> Result<Vec<Measurement>, Failure> {
    let data = digits(part, arguments.rows);
    let Some(first) = specs.first() else { return Ok(Vec::new()) };
    print(&format!(
        "Kernel {} on {} of {} handwritten digits ({} pixels, unit norm), {} seeds\n\n\
         {:<30} {:>8}   {:<19}   {:>9}\n",
        kernel(first),
        arguments.rows,
        part.labels.len(),
        part.columns(),
        arguments.seeds,
        "method",
        "features",
        "relative error",
        "time",
    ))?;
    let style = ProgressStyle::with_template("measuring {wide_msg} {pos}/{len} [{bar:20}]").ok();
    let bar = ProgressBar::new(specs.len() as u64).with_style(style.unwrap_or_else(ProgressStyle::default_bar));
    let mut measured: Vec<Measurement> = Vec::with_capacity(specs.len());
    for spec in specs {
        bar.set_message(format!("{}, {} features", spec.method, spec.features));
        let line = measure(spec, &data, arguments.seeds)?;
        let gap = if measured.last().is_some_and(|last| last.method != line.method) { "\n" } else { "" };
        let text = format!(
            "{gap}{:<30} {:>8}   {:.4} +- {:<9.4}   {:>6.2} ms\n",
            line.method.to_string(),
            line.features,
            line.mean(),
            line.deviation(),
            line.milliseconds
        );
        bar.suspend(|| print(&text))?;
        bar.inc(1);
        measured.push(line);
    }
    bar.finish_and_clear();
    Ok(measured)
}

fn measure(spec: &Spec, data: &[f32], seeds: u64) -> Result<Measurement, Failure> {
    let wrong = |error: argand::Error| Failure::argument(&error);
    let columns = spec.inputs.as_slice()[0];
    let rows = data.len() / columns;
    let mut features = vec![0.0_f32; rows * spec.features];
    let mut errors = Vec::new();
    let mut fastest = f64::INFINITY;
    for seed in 0..seeds {
        let sketch = spec.clone().with_seed(seed).sketch::<f32>().map_err(wrong)?;
        let inputs = [Rows::new(data, rows, columns).map_err(wrong)?.into()];
        let begun = Instant::now();
        let out = RowsMut::new(&mut features, rows, spec.features).map_err(wrong)?;
        sketch.transform_into(&inputs, out).map_err(wrong)?;
        fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e3);
        let features = Rows::new(&features, rows, spec.features).map_err(wrong)?;
        errors.push(kernel_error(spec, &inputs, features).map_err(wrong)?);
    }
    Ok(Measurement { method: spec.method, features: spec.features, errors, milliseconds: fastest })
}

/// What the table says, and what to do with it.
fn conclusion(degree: usize, measured: &[Measurement]) -> String {
    let Some(most) = measured.iter().map(|line| line.features).max() else { return String::new() };
    let largest: Vec<&Measurement> = measured.iter().filter(|line| line.features == most).collect();
    let mut text = String::from("\nWhat this means\n");
    for (method, same) in coinciding(measured) {
        text.push_str(&format!("  {same} is the same sketch as {method} at degree {degree}.\n"));
    }
    let say = |line: &Measurement| format!("{} ({:.4}, {:.2} ms)", line.method, line.mean(), line.milliseconds);
    let best = largest.iter().min_by(|a, b| a.mean().total_cmp(&b.mean()));
    let fastest = largest.iter().min_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
    if let (Some(best), Some(fastest)) = (best, fastest) {
        text.push_str(&format!(
            "  With {most} features the lowest error is that of {}: entries of the kernel matrix are off\n  \
             by {:.1} % of their root mean square. The fastest is {}.\n",
            say(best),
            100.0 * best.mean(),
            say(fastest)
        ));
    }
    let find = |name: &str| largest.iter().find(|line| line.method.to_string() == name);
    if let (Some(ours), Some(theirs)) = (find("ctr-product-srht"), find("tensor-sketch")) {
        text.push_str(&format!(
            "  The default, {}, has {:.2} of the error of {},\n  \
             which is scikit-learn's PolynomialCountSketch, in {:.2} of the time.\n",
            say(ours),
            ours.mean() / theirs.mean(),
            say(theirs),
            ours.milliseconds / theirs.milliseconds
        ));
    }
    let biased = if find("srf").is_some() { "; that of srf stops falling at its bias" } else { "" };
    text.push_str(&format!("  Four times the features halve an error{biased}.\n"));
    text.push_str(
        "\nWhat to try next\n  \
         argand plan your.csv --degree 3 --target-error 0.05   which method and how many features, for your rows\n  \
         argand demo --degree 7 --plot error.svg               a higher degree, where trees and CRAFT pay, and a picture\n",
    );
    text
}

/// Pairs of methods that gave the same errors, all of them: an earlier one, and one that coincides with it.
fn coinciding(measured: &[Measurement]) -> Vec<(Method, Method)> {
    let methods: Vec<&[Measurement]> = measured.chunk_by(|a, b| a.method == b.method).collect();
    let errors = |lines: &[Measurement]| lines.iter().map(|line| line.errors.clone()).collect::<Vec<_>>();
    (1..methods.len())
        .filter_map(|at| {
            let first = methods[..at].iter().find(|earlier| errors(earlier) == errors(methods[at]))?;
            Some((first[0].method, methods[at][0].method))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn digits_have_unit_norm() {
        let data = Dataset::digits().unwrap();
        let norm = |row: &[f32]| row.iter().map(|pixel| pixel * pixel).sum::<f32>();
        assert!(digits(data.to_learn_from(), data.rows()).chunks_exact(64).all(|row| (norm(row) - 1.0).abs() < 1e-5));
    }

    fn line(method: &str, features: usize, errors: &[f64]) -> Measurement {
        Measurement { method: method.parse().unwrap(), features, errors: errors.to_vec(), milliseconds: 1.0 }
    }

    fn spec() -> Spec {
        Spec::polynomial(64).with_degree(2)
    }

    #[test]
    fn every_method_is_in_the_picture() {
        let methods: Vec<&str> = METHODS.split(',').collect();
        let measured: Vec<_> = (methods.iter())
            .flat_map(|method| [line(method, 64, &[0.2, 0.3]), line(method, 256, &[0.1, 0.2])])
            .collect();
        let arguments = Arguments {
            degree: 2,
            features: vec![64, 256],
            method: Vec::new(),
            seeds: 2,
            rows: 10,
            threads: None,
            plot: None,
        };
        let svg = figure(&spec(), &arguments, &measured).svg();
        assert!(svg.starts_with("<svg") && svg.contains("Means of 2 sketches"));
        for method in methods {
            assert!(svg.contains(&format!("<title>{method}</title>")), "{method}");
        }
    }

    #[test]
    fn the_conclusion_says_which_methods_coincide_and_what_the_numbers_mean() {
        let measured = [
            line("ctr-product-srht", 64, &[0.2, 0.3]),
            line("ctr-product-srht", 256, &[0.1, 0.1]),
            line("tensor-sketch", 64, &[0.2, 0.3]),
            line("tensor-sketch", 256, &[0.2, 0.2]),
            line("chain-ctr-product-srht", 64, &[0.2, 0.3]),
            line("chain-ctr-product-srht", 256, &[0.1, 0.1]),
        ];
        let text = conclusion(2, &measured);
        assert_eq!(text.matches("is the same sketch as").count(), 1, "{text}");
        assert!(text.contains("chain-ctr-product-srht is the same sketch as ctr-product-srht at degree 2."), "{text}");
        assert!(text.contains("With 256 features the lowest error is that of ctr-product-srht (0.1000"), "{text}");
        assert!(text.contains("has 0.50 of the error of tensor-sketch"), "{text}");
        assert!(text.contains("argand plan your.csv"), "{text}");
        assert_eq!(conclusion(2, &[]), "");
    }
}
