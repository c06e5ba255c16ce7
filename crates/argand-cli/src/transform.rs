//! `argand transform`: from tables of inputs to a table of features, block by block.

use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use argand::{Error, FeatureMap, Field, RowsMut};
use argand_cuda::Real;
use argand_learn::Pipeline;
use indicatif::HumanCount;

use crate::blocks::{DEVICE_BYTES, THREAD_ROWS, TRANSFORM_BYTES};
use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::on_threads;
use crate::output::{self, AtomicFile};
use crate::selection::FeatureArguments;
use crate::sketch::SketchArguments;
use crate::table::{self, Columns, Element};

/// Sketch the rows of a file.
///
/// Reads .npy, .csv (or .data, .dat), .parquet, .libsvm and .idx (also .idx.gz, and MNIST's names), writes .npy, .csv and .parquet,
/// in blocks: files may be larger than memory.
/// Several input files give the sketch of the tensor product of their rows, one factor each. Labels in LIBSVM files are
/// ignored. The output appears once it is complete, or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The table to sketch, or one table per factor with equally many rows.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,

    /// Where to write the features; the extension names the format.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    sketch: SketchArguments,

    /// Save the sketch for later use with --spec.
    #[arg(long, value_name = "FILE")]
    save_spec: Option<PathBuf>,

    /// Type for computation and features.
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,

    #[command(flatten)]
    device: DeviceArguments,

    /// Number of threads [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,

    #[command(flatten)]
    rows: FeatureArguments,

    /// Print nothing on success.
    #[arg(short, long)]
    quiet: bool,
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
  argand transform x.npy -o z.npy --kernel gaussian --length-scale 4 --save-spec sketch.json
  argand transform image.npy text.npy audio.npy -o fused.npy        three inputs: their tensor product
  argand transform x.npy -o z.npy --features 8192 --device cuda     on a GPU";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match arguments.dtype {
        Dtype::F32 => run_in::<f32>(arguments),
        Dtype::F64 => run_in::<f64>(arguments),
    }
}

fn run_in<T: Real + Element>(arguments: &Arguments) -> Result<(), Failure> {
    let saved = arguments.sketch.saved()?;
    let mut taken: Vec<&PathBuf> = arguments.inputs.iter().chain(arguments.sketch.file()).collect();
    output::check_free("--output", &arguments.output, taken.iter().copied())?;
    taken.push(&arguments.output);
    if let Some(path) = arguments.save_spec.as_deref() {
        output::check_free("--save-spec", path, taken.into_iter())?;
    }
    let mut prepared = arguments.rows.open::<T>(&arguments.inputs, saved.as_ref())?;
    let spec = arguments.sketch.spec(saved.as_ref(), prepared.inputs.columns())?;
    let mut recipe = prepared.recipe(spec);
    if recipe.spec.method.looks_at_rows() && recipe.spec.fit.is_none() {
        // A pass over the rows first, for a sample to fit the method to.
        let sample =
            arguments.rows.open::<T>(&arguments.inputs, saved.as_ref())?.inputs.sample(None, recipe.spec.seed)?;
        let fitted = sample.views().and_then(|views| recipe.fit_to(&views, &arguments.sketch.fitting()));
        recipe = fitted.map_err(|error| Failure::argument(&error))?;
    }
    let spec = recipe.spec.clone();
    let inputs = &mut prepared.inputs;
    inputs.advise(", or use --dtype f64 if the file has a finite number there, too large for f32");
    let limit = arguments.rows.table.limit();
    let wrong = |error: Error| match error {
        Error::TooLarge { .. } => Failure::Input(format!("{error} (--memory-limit)")),
        _ => Failure::Input(error.to_string()),
    };
    let needed = spec.memory_bytes::<T>().map_err(wrong)?;
    if needed > limit {
        return Err(wrong(Error::TooLarge { needed, limit }));
    }
    let device = arguments.device.open()?;
    // Create both files before the work to find a bad path at once; they appear after it.
    let mut spec_file = arguments.save_spec.as_deref().map(AtomicFile::create).transpose()?;
    let columns = match spec.method.field() {
        Field::Complex => Columns::Complex(spec.outputs()),
        Field::Real | Field::ComplexToReal => Columns::Real(spec.features),
    };
    let rows = inputs.known_rows().unwrap_or(1);
    // Text takes at least two bytes per number.
    let least = if table::is_text(&arguments.output) { 2 } else { size_of::<T>() as u64 };
    output::check_room(&arguments.output, rows.saturating_mul(spec.features as u64).saturating_mul(least))?;
    let mut writer = table::create::<T>(&arguments.output, columns)?;
    let begun = Instant::now();
    let rows = on_threads(arguments.threads, || {
        let drawn = spec.draw_within(limit).map_err(wrong)?;
        let sketch = device.map::<T>(&drawn, limit).map_err(wrong)?;
        // The sketch's own spec, which includes what was fitted.
        let recipe = recipe.with_spec(drawn.spec);
        let written = recipe.to_json();
        let sketch = Pipeline::new(recipe, sketch).map_err(wrong)?;
        if let (Some(file), Some(path)) = (&mut spec_file, &arguments.save_spec) {
            let written = file.write_all(written.as_bytes()).and_then(|()| file.flush());
            written.map_err(|error| Failure::io(path, "write", &error))?;
        }
        if !arguments.quiet {
            inputs.show_progress("");
        }
        let bytes = if device.is_cpu() { TRANSFORM_BYTES } else { DEVICE_BYTES };
        stream(&sketch, inputs, bytes, |features| writer.write(features))
    })??;
    drop(prepared);
    writer.finish()?.commit_with(spec_file)?;
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

/// Reads and sketches all rows, in blocks of about so many bytes, while another thread writes those before; returns their number.
fn stream<T: Real + Element>(
    sketch: &dyn FeatureMap<T>,
    inputs: &mut Inputs<'_, T>,
    block_bytes: usize,
    mut write: impl FnMut(&[T]) -> Result<(), Failure> + Send,
) -> Result<usize, Failure> {
    // Enough rows to keep every thread busy, as long as there is room for them.
    let fewest = THREAD_ROWS * rayon::current_num_threads();
    let block_rows = inputs.rows_within(block_bytes, sketch.output_dim() * size_of::<T>(), [fewest, usize::MAX]);
    std::thread::scope(|scope| {
        // Two buffers go round: one is filled while the other is written.
        let (full, to_write) = mpsc::sync_channel::<Vec<T>>(1);
        let (written, empty) = mpsc::channel();
        for _ in 0..2 {
            let _ = written.send(Vec::new());
        }
        let writer = scope.spawn(move || -> Result<(), Failure> {
            for features in to_write {
                write(&features)?;
                let _ = written.send(features);
            }
            Ok(())
        });
        let mut sketch_all = || -> Result<(), Failure> {
            // The writer hangs up if it fails, and its error is the one that counts.
            while let Ok(mut features) = empty.recv() {
                let rows = inputs.next(block_rows)?;
                if rows == 0 {
                    break;
                }
                features.resize(rows * sketch.output_dim(), T::ZERO);
                let sketched = inputs.views().and_then(|views| {
                    sketch.transform_into(&views, RowsMut::new(&mut features, rows, sketch.output_dim())?)
                });
                sketched.map_err(|error| inputs.explain(error))?;
                let _ = full.send(features);
            }
            Ok(())
        };
        let sketched = sketch_all();
        drop(full);
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(sketched)?;
        Ok(inputs.rows_before())
    })
}
