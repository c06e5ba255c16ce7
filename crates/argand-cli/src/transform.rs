//! `argand transform`: from tables of inputs to a table of features, block by block.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use argand::{Error, FeatureMap, Field, Input, Kernel, Method, Rows, RowsMut, Scalar, Sketch, SparseRows, Spec};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::info::read_spec;
use crate::on_threads;
use crate::output::AtomicFile;
use crate::table::{self, Block, Columns, Element, Reader};

/// Sketch the rows of a file.
///
/// Reads .npy, .csv, .parquet and .libsvm, writes .npy, .csv and .parquet, in blocks: files may be larger than memory.
/// Several input files give the sketch of the tensor product of their rows, one factor each. Labels in LIBSVM files are
/// left out. The output appears when it is complete, or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The table to sketch, or one table per factor with equally many rows.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    /// Where the features go; the ending says in which format.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    sketch: SketchArguments,

    /// Use a saved sketch instead of describing one.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["degree", "features", "method", "craft_dim", "gamma", "coef0", "seed"]
    )]
    spec: Option<PathBuf>,

    /// Save the sketch for later use with --spec.
    #[arg(long, value_name = "FILE")]
    save_spec: Option<PathBuf>,

    /// Type of the computation and of the features.
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    /// Most memory the sketch itself may take, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = argand::DEFAULT_MEMORY_LIMIT >> 20, allow_negative_numbers = true)]
    memory_limit: u64,

    /// Say nothing on success.
    #[arg(short, long)]
    quiet: bool,
}

/// What describes a sketch.
#[derive(Debug, clap::Args)]
struct SketchArguments {
    /// Degree of the kernel [default: 2; with several inputs, their number].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    degree: Option<usize>,

    /// Number of real output columns.
    #[arg(long, value_name = "D", default_value_t = 1024, allow_negative_numbers = true)]
    features: usize,

    /// How to sketch: srf, or BASE with what may stand before it, as in `[craft-][hierarchical-|chain-][ctr-|complex-]BASE`;
    /// BASE is one of gaussian, rademacher, product-srht, tensor-srht and tensor-sketch.
    #[arg(long, value_name = "M", default_value = "ctr-product-srht")]
    method: Method,

    /// Features before the down-projection of a craft- method [default: 32768].
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    craft_dim: Option<usize>,

    /// Factor of the inner product.
    #[arg(long, value_name = "G", default_value_t = 1.0, allow_negative_numbers = true)]
    gamma: f64,

    /// Constant added to the inner product.
    #[arg(long, value_name = "C", default_value_t = 0.0, allow_negative_numbers = true)]
    coef0: f64,

    /// Where the random numbers come from: same seed, same features.
    #[arg(long, value_name = "S", default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Dtype {
    F32,
    F64,
}

const EXAMPLES: &str = "\
Examples:
  argand transform x.npy -o z.npy --degree 3 --features 2048 --gamma 0.5 --coef0 0.5
  argand transform train.parquet -o train-z.parquet --degree 3 --save-spec sketch.json
  argand transform test.csv -o test-z.csv --spec sketch.json        the same sketch, for other rows
  argand transform image.npy text.npy audio.npy -o fused.npy        three inputs: their tensor product";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match arguments.dtype {
        Dtype::F32 => run_in::<f32>(arguments),
        Dtype::F64 => run_in::<f64>(arguments),
    }
}

fn run_in<T: Scalar + Element>(arguments: &Arguments) -> Result<(), Failure> {
    let saved = arguments.spec.as_deref().map(read_spec).transpose()?;
    if let Some(path) = arguments.save_spec.as_deref() {
        let taken = |other: &PathBuf| resolve(other) == resolve(path);
        if arguments.inputs.iter().chain([&arguments.output]).any(taken) {
            let what = "expected another file than the input and the output";
            return Err(Failure::Input(format!("--save-spec: {what}, got {}", path.display())));
        }
    }
    let mut readers = open(&arguments.inputs, saved.as_ref())?;
    let spec = match saved {
        Some(spec) => spec,
        None => describe(&arguments.sketch, &readers.iter().map(|reader| reader.columns()).collect::<Vec<_>>())?,
    };
    let limit = arguments.memory_limit.saturating_mul(1 << 20);
    let wrong = |error: Error| match error {
        Error::TooLarge { .. } => Failure::Input(format!("{error} (--memory-limit)")),
        _ => Failure::Input(error.to_string()),
    };
    let needed = spec.memory_bytes::<T>().map_err(wrong)?;
    if needed > limit {
        return Err(wrong(Error::TooLarge { needed, limit }));
    }
    // Both files are created before the work, so that a bad path is found at once, and appear after it.
    let mut spec_file = arguments.save_spec.as_deref().map(AtomicFile::create).transpose()?;
    let columns = match spec.method.field {
        Field::Complex => Columns::Complex(spec.rows()),
        Field::Real | Field::ComplexToReal => Columns::Real(spec.features),
    };
    let mut writer = table::create::<T>(&arguments.output, columns)?;
    let begun = Instant::now();
    let rows = on_threads(arguments.threads, || {
        let sketch = spec.sample_within::<T>(limit).map_err(wrong)?;
        if let (Some(file), Some(path)) = (&mut spec_file, &arguments.save_spec) {
            // The sketch's own spec: it also holds what was fitted.
            let written = file.write_all(sketch.spec().to_json().as_bytes()).and_then(|()| file.flush());
            written.map_err(|error| Failure::io(path, "write", &error))?;
        }
        let progress = Progress::new(&readers, arguments.quiet);
        stream(&sketch, &mut readers, &arguments.inputs, &progress, |features| writer.write(features))
    })??;
    writer.finish()?;
    if let Some(file) = spec_file {
        file.commit()?;
    }
    if !arguments.quiet {
        let _ = writeln!(
            std::io::stderr(),
            "{}: {} rows x {} features in {} s",
            arguments.output.display(),
            HumanCount(rows as u64),
            spec.features,
            (begun.elapsed().as_secs_f64() * 100.0).round() / 100.0,
        );
    }
    Ok(())
}

/// The file that a path leads to, however it is spelt.
fn resolve(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = || Some(fs::canonicalize(folder).ok()?.join(path.file_name()?));
    fs::canonicalize(path).ok().or_else(new).unwrap_or_else(|| path.to_path_buf())
}

/// Opens all tables and checks that they fit each other and the saved spec, as far as can be told without reading them.
fn open<T: Element>(paths: &[PathBuf], saved: Option<&Spec>) -> Result<Vec<Box<dyn Reader<T>>>, Failure> {
    let dims = saved.map(|spec| spec.inputs.as_slice());
    if let Some(dims) = dims
        && dims.len() != paths.len()
    {
        return Err(Failure::Input(format!("IN: expected {} files for this spec, got {}", dims.len(), paths.len())));
    }
    let mut readers = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        let expected = dims.map(|dims| dims[index]);
        let reader = table::open::<T>(path, expected)?;
        if let Some(expected) = expected
            && reader.columns() != expected
        {
            let what = format!("has {} columns; the spec is for {expected}", reader.columns());
            return Err(Failure::input(path, what));
        }
        readers.push(reader);
    }
    let known: Vec<_> = readers.iter().map(|reader| reader.rows()).collect();
    if let Some(Some(first)) = known.first() {
        for (path, rows) in paths.iter().zip(&known).filter_map(|(path, rows)| Some((path, (*rows)?))) {
            if rows != *first {
                return Err(Failure::input(path, format!("has {rows} rows; {} has {first}", paths[0].display())));
            }
        }
    }
    Ok(readers)
}

/// The spec that the arguments describe.
fn describe(arguments: &SketchArguments, dims: &[usize]) -> Result<Spec, Failure> {
    let mut spec = match dims {
        [dim] => Spec::new(*dim, arguments.degree.unwrap_or(2), arguments.features),
        several => Spec::distinct(several, arguments.features),
    };
    if let Some(degree) = arguments.degree
        && degree != spec.kernel.degree
    {
        return Err(Failure::Input(format!("--degree: expected {}, one per input, got {degree}", dims.len())));
    }
    spec.kernel = Kernel { gamma: arguments.gamma, coef0: arguments.coef0, ..spec.kernel };
    let mut method = arguments.method;
    if arguments.craft_dim.is_some() {
        if method.craft.is_none() {
            return Err(Failure::Input(format!("--craft-dim: expected a craft- method, got {method}")));
        }
        method.craft = arguments.craft_dim;
    }
    spec = spec.with_method(method).with_seed(arguments.seed);
    spec.validate().map_err(|error| Failure::argument(&error))?;
    Ok(spec)
}

/// Bytes of input and features that are in memory at a time, about.
const BLOCK_BYTES: usize = 16 << 20;

/// Reads, sketches and hands over all rows; returns their number.
fn stream<T: Scalar + Element>(
    sketch: &Sketch<T>,
    readers: &mut [Box<dyn Reader<T>>],
    paths: &[PathBuf],
    progress: &Progress,
    mut write: impl FnMut(&[T]) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let width = sketch.output_dim() + sketch.input_dims().iter().sum::<usize>();
    // Enough rows to keep every thread busy, however wide they are.
    let block_rows = (BLOCK_BYTES / size_of::<T>() / width).max(16 * rayon::current_num_threads());
    let mut blocks: Vec<Block<T>> = readers.iter().map(|_| Block::default()).collect();
    let mut features = Vec::new();
    let mut done = 0;
    loop {
        let mut counts = Vec::with_capacity(readers.len());
        for (reader, block) in readers.iter_mut().zip(&mut blocks) {
            counts.push(reader.read(block_rows, block)?);
        }
        let rows = counts[0];
        if let Some(other) = counts.iter().position(|&count| count != rows) {
            let shorter = if counts[other] < rows { other } else { 0 };
            let what = format!("has only {} rows, fewer than the other inputs", done + counts[shorter]);
            return Err(Failure::input(&paths[shorter], what));
        }
        if rows == 0 {
            return Ok(done);
        }
        features.resize(rows * sketch.output_dim(), T::ZERO);
        sketch_block(sketch, &blocks, rows, &mut features).map_err(|error| explain::<T>(error, done, paths))?;
        write(&features)?;
        done += rows;
        progress.update(readers, done);
    }
}

fn sketch_block<T: Scalar>(sketch: &Sketch<T>, blocks: &[Block<T>], rows: usize, out: &mut [T]) -> Result<(), Error> {
    let inputs = blocks
        .iter()
        .zip(sketch.input_dims())
        .map(|(block, &dim)| {
            Ok(match block {
                Block::Dense { values } => Input::from(Rows::new(values, rows, dim)?),
                Block::Sparse { indptr, indices, values } => {
                    SparseRows::new(&indptr[..], &indices[..], values, dim)?.into()
                }
            })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    sketch.transform_into(&inputs, RowsMut::new(out, rows, sketch.output_dim())?)
}

/// The library's error about one block, in terms of the files.
fn explain<T: Scalar>(error: Error, rows_before: usize, paths: &[PathBuf]) -> Failure {
    let all = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    match error {
        Error::NotFinite { argument, row, column, value } => {
            // Several inputs are called "input 0", "input 1", …; a single one is "input".
            let index = argument.rsplit(' ').next().and_then(|index| index.parse().ok()).unwrap_or(0);
            let path: &Path = paths.get(index).map_or(Path::new(""), PathBuf::as_path);
            let row = rows_before + row;
            let rounded = if value.is_infinite() && T::NAME == "f32" {
                ", or use --dtype f64 if the file has a finite number there that is too large for f32"
            } else {
                ""
            };
            let place = format!("row {row}, column {column} (both counted from 0)");
            Failure::input(path, format!("{place} is {value}; replace it or drop the row{rounded}"))
        }
        Error::Overflow { row, dtype } => {
            let advice = if dtype == "f32" { ", or use --dtype f64" } else { "" };
            let row = rows_before + row;
            Failure::Input(format!(
                "{all}: row {row} (counted from 0) overflows {dtype}; scale the rows (for example to unit norm), or use \
                 a smaller --gamma{advice}"
            ))
        }
        other => Failure::Input(format!("{all}: {other}")),
    }
}

/// A bar on a terminal, nothing in a pipe or when it is to be quiet.
struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    fn new<T>(readers: &[Box<dyn Reader<T>>], quiet: bool) -> Self {
        let total = readers.iter().map(|reader| reader.progress().total).sum();
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}  {eta} left") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, begun: Instant::now() }
    }

    fn update<T>(&self, readers: &[Box<dyn Reader<T>>], rows: usize) {
        let rate = (rows as f64 / self.begun.elapsed().as_secs_f64().max(1e-3)).round();
        self.bar.set_message(format!("{} rows, {} rows/s", HumanCount(rows as u64), human(rate)));
        self.bar.set_position(readers.iter().map(|reader| reader.progress().done).sum());
    }
}

/// A rate with three digits and a unit.
fn human(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.1} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // It would stand before the last message.
        self.bar.finish_and_clear();
    }
}
