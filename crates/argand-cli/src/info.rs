//! `argand info`: what a saved sketch or model is.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

use argand::fit::Fit;
use argand::{Error, Field, FileFault, InputDims, Kernel, Polynomial, Spec};
use argand_learn::attribution::Store;
use argand_learn::online::{TRAINING, Trainer};
use argand_learn::{Missing, Recipe, SUMS, Scaling};

use crate::device;
use crate::failure::Failure;
use crate::model::{NamedModel, is_archive, read_archive};
use crate::print;
use crate::sums::Sums;
use crate::table::{listed, open_regular};

/// Describe a saved sketch or model, or the devices of this machine.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  argand transform x.npy -o z.npy --save-spec sketch.json\n  argand info sketch.json\n  argand info train-store\n  argand info --devices"
)]
pub(crate) struct Arguments {
    /// A spec written by `argand transform --save-spec`, or a model by `argand fit`, or sums by `argand gram`, or a store of gradients.
    #[arg(required_unless_present = "devices", conflicts_with = "devices")]
    file: Option<PathBuf>,

    /// List the processor and the GPUs that --device accepts.
    #[arg(long)]
    devices: bool,
}

/// Larger than any spec with the names and scaling of a million columns: a wrong file is not read to its end.
const LONGEST_SPEC: u64 = 64 << 20;

/// Reads and checks a file of a sketch and what precedes it.
pub(crate) fn read_recipe(path: &Path) -> Result<Recipe, Failure> {
    parse_recipe(path, &read_text(path)?).map_err(|error| Failure::input(path, error))
}

fn parse_recipe(path: &Path, text: &str) -> Result<Recipe, Error> {
    let recipe = Recipe::from_json(text)?;
    if !Spec::has_checksum(text) {
        crate::warn(&format!("{}: has no checksum, so a changed byte would not be noticed", path.display()));
    }
    Ok(recipe)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let (file, _) = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(LONGEST_SPEC + 1).read_to_end(&mut bytes).map_err(|error| Failure::io(path, "read", &error))?;
    if bytes.len() as u64 > LONGEST_SPEC {
        return Err(Failure::input(path, format!("is not a spec file: it is longer than {LONGEST_SPEC} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Failure::input(path, "is not a spec file: it is not text"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some(path) = &arguments.file else { return device::list() };
    let wrong = |error| Failure::input(path, error);
    if path.is_dir() {
        return print(&describe_store(path)?);
    }
    if !is_archive(path)? {
        let recipe = parse_recipe(path, &read_text(path)?).map_err(|error| match error {
            Error::Spec(FileFault::Foreign(_)) => Failure::input(path, "is not an Argand spec or model file"),
            other => wrong(other),
        })?;
        let mut lines = describe(&recipe.spec).map_err(wrong)?;
        if recipe.preparation.scaling() != Scaling::None {
            lines.push(("scaling", recipe.preparation.scaling().to_string()));
        }
        lines.extend(describe_columns(&recipe));
        return print(&table_of(&lines));
    }
    let archive = read_archive(path)?;
    if archive.kind() == TRAINING {
        let trainer = Trainer::from_archive(archive).map_err(wrong)?;
        let layer = trainer.layer();
        return print(&table_of(&[
            ("state of", "training a softmax model".to_owned()),
            ("epochs", trainer.epochs().to_string()),
            ("step", trainer.learning_rate().to_string()),
            ("classes", layer.classes().to_string()),
            ("features", layer.features().to_string()),
        ]));
    }
    let (mut lines, recipe) = if archive.kind() == SUMS {
        let sums = Sums::read(path)?;
        (sums.describe(), sums.gram.recipe().clone())
    } else {
        let named = NamedModel::from_archive(archive).map_err(wrong)?;
        (named.describe(), named.model.recipe().clone())
    };
    lines.extend(describe(&recipe.spec).map_err(wrong)?);
    lines.extend(describe_columns(&recipe));
    print(&table_of(&lines))
}

/// Examples and layers of a store of gradients.
fn describe_store(path: &Path) -> Result<String, Failure> {
    let store = Store::open(path).map_err(|error| Failure::Input(error.to_string()))?;
    let row_bytes = store.columns() as u64 * size_of::<f32>() as u64;
    let mut lines = vec![
        ("store of", "sketches of gradients, for `argand attribute`".to_owned()),
        ("model", store.model().unwrap_or("not recorded").to_owned()),
        ("examples", store.examples().to_string()),
        ("shards", store.shard_count().to_string()),
        ("each", format!("{} numbers, {}", store.columns(), bytes(row_bytes))),
        ("together", bytes(row_bytes.saturating_mul(store.examples()))),
    ];
    const SHOWN: usize = 10;
    let (gaps, name) = (store.gaps(), "gap");
    lines.extend(gaps.iter().take(SHOWN).map(|gap| (name, format!("examples {} to {}", gap.start, gap.end - 1))));
    if gaps.len() > SHOWN {
        lines.push((name, format!("and {} more", gaps.len() - SHOWN)));
    }
    for file in store.unfinished() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        lines.push(("unfinished", format!("{name}, which is ignored")));
    }
    for layer in store.layers() {
        let sketch = layer.spec.as_ref().map_or_else(
            || "of another projection".to_owned(),
            |spec| format!("of {}, seed {}", spec.method, spec.seed),
        );
        let shape = format!("{} of {} to {}", layer.kind, layer.inputs, layer.outputs);
        let name = layer.name.escape_debug();
        lines.push(("layer", format!("{name}: {shape}, {} features {sketch}", layer.columns.len())));
    }
    Ok(table_of(&lines))
}

/// The columns that a recipe reads, and what becomes of missing numbers.
fn describe_columns(recipe: &Recipe) -> Vec<(&'static str, String)> {
    let mut lines: Vec<_> =
        recipe.columns.iter().filter(|names| !names.is_empty()).map(|names| ("columns", listed(names))).collect();
    lines.extend(match recipe.missing {
        Missing::Error => None,
        Missing::Drop => Some(("missing", "rows are dropped".to_owned())),
        Missing::Mean(_) => Some(("missing", "filled with the mean of the column".to_owned())),
    });
    lines
}

/// Names and values, one pair per line.
pub(crate) fn table_of(lines: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<9} {value}");
    }
    text
}

/// `1234567` as `1.2 MB`.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

/// The kernel in mathematical notation.
pub(crate) fn kernel(spec: &Spec) -> String {
    match (&spec.inputs, spec.kernel.polynomial()) {
        (InputDims::Distinct(dims), Some(kernel)) => {
            let factor = Kernel::from(Polynomial { degree: 1, ..kernel }).to_string();
            let factor = factor.trim_end_matches("^1").replace("<x,y>", "<x_i,y_i>");
            format!("product over the {} inputs of {factor}", dims.len())
        }
        _ => spec.kernel.to_string(),
    }
}

fn describe(spec: &Spec) -> Result<Vec<(&'static str, String)>, argand::Error> {
    let layout = match spec.method.field() {
        Field::Real => "real".to_owned(),
        Field::ComplexToReal => format!("{0} real parts, then {0} imaginary parts", spec.outputs()),
        Field::Complex => format!("{} complex numbers", spec.outputs()),
    };
    let inputs = match &spec.inputs {
        InputDims::Same(dim) => format!("1 table with {dim} columns"),
        InputDims::Distinct(dims) => {
            let dims: Vec<_> = dims.iter().map(usize::to_string).collect();
            format!("{} tables with {} columns", dims.len(), dims.join(", "))
        }
    };
    let memory = [spec.memory_bytes::<f32>()?, spec.memory_bytes::<f64>()?].map(bytes);
    let layout = match &spec.fit {
        Some(Fit::Maclaurin(allocation)) => {
            let terms = allocation.terms.iter().map(|term| format!("{} for the power {}", term.features, term.degree));
            let linear = allocation.linear.then(|| format!("{} linear", spec.inputs.as_slice()[0]));
            linear.into_iter().chain(terms).collect::<Vec<_>>().join(", ")
        }
        _ => layout,
    };
    Ok(vec![
        ("method", spec.method.to_string()),
        ("kernel", kernel(spec)),
        ("input", inputs),
        ("features", format!("{} ({layout})", spec.features)),
        ("seed", spec.seed.to_string()),
        ("memory", format!("{} in f32, {} in f64", memory[0], memory[1])),
    ])
}
