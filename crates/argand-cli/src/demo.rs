//! `argand demo`: the sketches at work on a small real dataset.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use argand::theory::kernel_error;
use argand::{FeatureMap, Method, Rows, RowsMut, Spec};
use argand_paper::figure::{Figure, Panel, Scale, Series, Style};
use argand_paper::{Dataset, Part};

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
#[derive(Debug, Clone, Copy)]
struct Measurement {
    method: Method,
    features: usize,
    mean: f64,
    deviation: f64,
    milliseconds: f64,
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
    let picture = arguments.plot.as_deref().map(AtomicFile::create).transpose()?;
    let measured = on_threads(arguments.threads, || measure_all(arguments, data.to_learn_from(), &specs))??;
    if let (Some(mut file), Some(path), Some(spec)) = (picture, &arguments.plot, specs.first()) {
        let title = format!("{} on {} handwritten digits", kernel(spec), arguments.rows);
        let svg = figure(title, &measured).svg().map_err(|error| Failure::Other(error.to_string()))?;
        file.write_all(svg.as_bytes()).map_err(|error| Failure::io(path, "write", &error))?;
        file.commit()?;
    }
    Ok(())
}

/// Error over features, one line per method.
fn figure(title: String, measured: &[Measurement]) -> Figure {
    let series = measured.chunk_by(|a, b| a.method == b.method).map(|lines| Series {
        name: lines[0].method.to_string(),
        style: Style::of(lines[0].method),
        points: lines.iter().map(|line| (line.features as f64, line.mean)).collect(),
    });
    let panel = Panel {
        title: title.clone(),
        x_label: "features D".to_owned(),
        y_label: "relative Frobenius error".to_owned(),
        scales: [Scale::Doubling, Scale::Logarithmic],
        series: series.collect(),
    };
    Figure { name: "demo".to_owned(), caption: title, columns: 1, panels: vec![panel] }
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
    let mut measured = Vec::with_capacity(specs.len());
    let mut previous = first.method;
    for spec in specs {
        let line = measure(spec, &data, arguments.seeds)?;
        if line.method != previous {
            print("\n")?;
            previous = line.method;
        }
        print(&format!(
            "{:<30} {:>8}   {:.4} +- {:<9.4}   {:>6.2} ms\n",
            line.method, line.features, line.mean, line.deviation, line.milliseconds
        ))?;
        measured.push(line);
    }
    if let Some(most) = measured.iter().map(|line| line.features).max() {
        let at_most = measured.iter().filter(|line| line.features == most);
        if let Some(best) = at_most.min_by(|a, b| a.mean.total_cmp(&b.mean)) {
            print(&format!("\nLowest error with {most} features: {} ({:.4}).\n", best.method, best.mean))?;
        }
    }
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
    let count = errors.len() as f64;
    let mean = errors.iter().sum::<f64>() / count;
    let squares = errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>();
    let deviation = if errors.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
    Ok(Measurement { method: spec.method, features: spec.features, mean, deviation, milliseconds: fastest })
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

    #[test]
    fn every_method_is_in_the_legend() {
        let line =
            |method: Method, features, mean| Measurement { method, features, mean, deviation: 0.0, milliseconds: 1.0 };
        let methods: Vec<Method> = METHODS.split(',').map(|name| name.parse().unwrap()).collect();
        let measured: Vec<_> =
            methods.iter().flat_map(|&method| [line(method, 64, 0.2), line(method, 256, 0.1)]).collect();
        let svg = figure("a title".to_owned(), &measured).svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a title"));
        for method in methods {
            assert!(svg.contains(&method.to_string()), "{method}");
        }
    }
}
