//! Stores: folders with a sketch of every example's gradient, as `argand.attribution.GradientStore` writes them.
//!
//! `store.json` says what was recorded; a shard is `shard-000000004096.npy`, a table of float32 with a row for each example from number
//! 4096 on, and a `.json` of the same name with its length and CRC-32, which appears last. A table without it is unfinished, and ignored.
//!
//! Whoever records locks the folder for itself to write a shard. Both files are `.argand-shard-….npy` and `.json` first, and count from the second one on:
//! then a description that is replaced goes, and the table and its description take their names, in this order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use argand::{Error, Field, FileFault, Method, Spec};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The newest version that can be read.
const VERSION: u32 = 1;
const FORMAT: &str = "argand-gradients";
/// Larger than any description of layers, or of a shard: a wrong file is not read to its end.
const LONGEST_DESCRIPTION: u64 = 64 << 20;
const LONGEST_ENTRY: u64 = 1 << 16;
/// Before the names of shards that are not in their place yet.
const PENDING: &str = ".argand-";

/// A folder with a sketch of every example's gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct Store {
    path: PathBuf,
    model: Option<String>,
    layers: Vec<Layer>,
    shards: Vec<Shard>,
    unfinished: Vec<PathBuf>,
}

/// A layer, and the columns of its sketch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Layer {
    /// The name of the module.
    pub name: String,
    /// `linear`, `embedding`, `conv1x1` or `other`.
    pub kind: String,
    /// The number of its inputs.
    pub inputs: u64,
    /// The number of its outputs.
    pub outputs: u64,
    /// Its columns.
    pub columns: Range<usize>,
    /// The sketch; nothing for the projection of somebody else.
    pub spec: Option<Spec>,
}

/// Which columns of a layer belong to one row of its projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Terms {
    /// Each is a row of its own.
    Single,
    /// Columns j and m + j: real and imaginary part.
    Halves,
    /// Columns 2j and 2j + 1.
    Neighbours,
}

impl Layer {
    pub(super) fn terms(&self) -> Terms {
        match &self.spec {
            // A CRAFT map ends with a real projection, and a series has several sketches side by side.
            Some(spec) if spec.method.craft().is_none() && matches!(spec.method, Method::Product(_)) => {
                match spec.method.field() {
                    Field::Real => Terms::Single,
                    Field::ComplexToReal => Terms::Halves,
                    Field::Complex => Terms::Neighbours,
                }
            }
            _ => Terms::Single,
        }
    }
}

/// Some examples with consecutive numbers, in one file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    /// The file that describes it, and what it says.
    entry: PathBuf,
    text: String,
    pub(super) first: u64,
    pub(super) rows: usize,
    pub(super) crc32: u32,
    /// Where the numbers start.
    pub(super) offset: usize,
}

impl Shard {
    /// The number after its last example.
    pub(super) fn end(&self) -> u64 {
        self.first + self.rows as u64
    }

    /// That the table at its path is still the one described when the store was opened: before it is replaced, its description goes.
    pub(super) fn check_unchanged(&self) -> Result<(), Error> {
        check_unchanged(&self.entry, &self.text)
    }
}

/// Read first, so that a newer store is recognised before anything else is.
#[derive(Deserialize)]
struct Versions {
    format: String,
    version: u32,
}

#[derive(Deserialize)]
struct Description {
    model: Option<String>,
    layers: Vec<LayerEntry>,
}

#[derive(Deserialize)]
struct LayerEntry {
    name: String,
    kind: String,
    inputs: u64,
    outputs: u64,
    features: usize,
    spec: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ShardEntry {
    first: u64,
    rows: usize,
    crc32: String,
}

/// An error about a file or folder of a store.
pub(super) fn fault(path: &Path, what: impl Into<String>) -> Error {
    Error::Store { path: path.to_owned(), fault: FileFault::Content(what.into()) }
}

/// An error of the system.
pub(super) fn failed(path: &Path, doing: &str, error: &io::Error) -> Error {
    fault(path, format!("cannot {doing}: {error}"))
}

/// An error of JSON.
fn unparsed(path: &Path, error: serde_json::Error) -> Error {
    Error::Store { path: path.to_owned(), fault: FileFault::caused_by(error) }
}

/// Opens a file, and nothing that would wait for somebody to write into it.
fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

fn read_text(path: &Path, longest: u64) -> Result<String, Error> {
    let file = open_regular(path).map_err(|error| failed(path, "open", &error))?;
    let mut bytes = Vec::new();
    file.take(longest + 1).read_to_end(&mut bytes).map_err(|error| failed(path, "read", &error))?;
    if bytes.len() as u64 > longest {
        return Err(fault(path, format!("is longer than {longest} bytes; is it a file of a store?")));
    }
    String::from_utf8(bytes).map_err(|_| fault(path, "is not text"))
}

/// That a shard is described as it was.
fn check_unchanged(entry: &Path, text: &str) -> Result<(), Error> {
    if read_text(entry, LONGEST_ENTRY).is_ok_and(|now| now == text) { Ok(()) } else { Err(recorded(entry)) }
}

/// That the description of a shard went away or changed.
fn recorded(entry: &Path) -> Error {
    fault(entry.parent().unwrap_or(entry), "is being recorded: a shard was replaced; run again when that is done")
}

/// Waits until nobody writes shards, and keeps others from it until the result goes; nothing where folders have no locks.
fn lock(folder: &Path) -> Option<File> {
    let file = folder.is_dir().then(|| File::open(folder).ok())??;
    file.lock_shared().ok().map(|()| file)
}

impl Store {
    /// Reads the description of a store, and of its shards, whose lengths are compared with those of their files. Their numbers are
    /// checked when they are read. Waits for shards that are being written.
    ///
    /// # Errors
    /// [`Error::Store`], which names the file and says what is wrong with it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let (model, layers) = describe(&path)?;
        let columns = layers.last().map_or(0, |layer| layer.columns.end);
        let _lock = lock(&path);
        // Whether the newest description of a shard is still pending.
        let (mut entries, mut tables) = (BTreeMap::new(), BTreeSet::new());
        let unreadable = |error: &io::Error| failed(&path, "list", error);
        for entry in fs::read_dir(&path).map_err(|error| unreadable(&error))? {
            let name = entry.map_err(|error| unreadable(&error))?.file_name();
            let Some(full) = name.to_str() else { continue };
            let (name, pending) = full.strip_prefix(PENDING).map_or((full, false), |name| (name, true));
            if !name.starts_with("shard-") {
                continue;
            }
            if let Some(stem) = name.strip_suffix(".json") {
                *entries.entry(stem.to_owned()).or_default() |= pending;
            } else if let Some(stem) = name.strip_suffix(".npy").filter(|_| !pending) {
                tables.insert(stem.to_owned());
            }
        }
        let mut shards = Vec::with_capacity(entries.len());
        for (stem, pending) in entries {
            tables.remove(&stem);
            shards.push(open_shard(&path, &stem, pending, columns)?);
        }
        shards.sort_by_key(|shard| shard.first);
        if let Some((one, other)) =
            shards.iter().zip(shards.iter().skip(1)).find(|(one, other)| one.end() > other.first)
        {
            let (one, end) = (one.path.display(), one.end());
            let what = format!("starts before {one} ends, at example {end}; remove one of them and its .json file");
            return Err(fault(&other.path, what));
        }
        let unfinished = tables.into_iter().map(|stem| path.join(stem + ".npy")).collect();
        Ok(Self { path, model, layers, shards, unfinished })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the weights that gradients are of, if it was recorded.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The layers, in the order of their columns.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Numbers per example.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.columns.end)
    }

    /// The number of examples.
    #[must_use]
    pub fn examples(&self) -> u64 {
        self.shards.iter().map(|shard| shard.rows as u64).sum()
    }

    /// The numbers of the examples, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.shards.iter().flat_map(|shard| shard.first..shard.end())
    }

    /// The number of shards.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Numbers of examples before the last that were not recorded.
    #[must_use]
    pub fn gaps(&self) -> Vec<Range<u64>> {
        let starts = self.shards.iter().map(|shard| shard.first);
        let ends = std::iter::once(0).chain(self.shards.iter().map(Shard::end));
        ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start).collect()
    }

    /// Tables of recordings that were interrupted, or go on.
    #[must_use]
    pub fn unfinished(&self) -> &[PathBuf] {
        &self.unfinished
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The layer that a column belongs to.
    pub(super) fn layer_of(&self, column: usize) -> &str {
        let layer = self.layers.iter().find(|layer| layer.columns.contains(&column));
        layer.map_or("", |layer| &layer.name)
    }
}

/// Reads `store.json`.
fn describe(folder: &Path) -> Result<(Option<String>, Vec<Layer>), Error> {
    let path = folder.join("store.json");
    let missing =
        |error: Error| if path.exists() { error } else { fault(folder, "is not a store: it has no store.json") };
    let text = read_text(&path, LONGEST_DESCRIPTION).map_err(missing)?;
    let broken = |error| unparsed(&path, error);
    let wrong = |what: String| Err(fault(&path, what));
    let versions: Versions = serde_json::from_str(&text).map_err(broken)?;
    match versions {
        Versions { format, .. } if format != FORMAT => {
            return wrong(format!("expected \"format\": \"{FORMAT}\", got \"{format}\""));
        }
        Versions { version: 0, .. } => return wrong(format!("version: expected {VERSION}, got 0")),
        Versions { version: 1..=VERSION, .. } => {}
        Versions { version: found, .. } => {
            let fault = FileFault::Newer { what: "version", found, newest: VERSION };
            return Err(Error::Store { path, fault });
        }
    }
    let description: Description = serde_json::from_str(&text).map_err(broken)?;
    let (mut layers, mut seen, mut end) = (Vec::new(), BTreeMap::new(), 0_usize);
    for (place, LayerEntry { name, kind, inputs, outputs, features, spec }) in
        description.layers.into_iter().enumerate()
    {
        if let Some(before) = seen.insert(name.clone(), place) {
            return wrong(format!("layer \"{name}\" is there twice, as number {before} and {place}"));
        }
        if !["linear", "embedding", "conv1x1", "other"].contains(&kind.as_str()) {
            return wrong(format!(
                "layer \"{name}\": expected the kind linear, embedding, conv1x1 or other, got \"{kind}\""
            ));
        }
        let spec = match spec.map(|text| Spec::from_json(text.get())).transpose() {
            Ok(Some(spec)) if spec.features != features => {
                return wrong(format!("layer \"{name}\": its spec has {} features, not {features}", spec.features));
            }
            Ok(spec) => spec,
            Err(error) => return wrong(format!("layer \"{name}\": {error}")),
        };
        let start = end;
        let sum = start.checked_add(features).filter(|sum| features > 0 && sum.checked_mul(size_of::<f32>()).is_some());
        let Some(sum) = sum else {
            return wrong(format!(
                "layer \"{name}\": expected at least one feature that memory can hold, got {features}"
            ));
        };
        end = sum;
        layers.push(Layer { name, kind, inputs, outputs, columns: start..end, spec });
    }
    if layers.is_empty() {
        return wrong("has no layers; record some".to_owned());
    }
    Ok((description.model, layers))
}

/// Reads the description of a shard, and compares it with the start and the length of its table.
fn open_shard(folder: &Path, stem: &str, pending: bool, columns: usize) -> Result<Shard, Error> {
    let of_kind = |pending: bool, kind: &str| {
        let before = if pending { PENDING } else { "" };
        folder.join(format!("{before}{stem}.{kind}"))
    };
    let entry = of_kind(pending, "json");
    // The table takes its name before its description does.
    let path = Some(of_kind(true, "npy")).filter(|path| pending && path.exists()).unwrap_or(of_kind(false, "npy"));
    let text =
        read_text(&entry, LONGEST_ENTRY).map_err(|error| if entry.exists() { error } else { recorded(&entry) })?;
    // What looks wrong may be a table that replaces the one described.
    described_shard(stem, columns, &entry, path, &text)
        .map_err(|error| check_unchanged(&entry, &text).err().unwrap_or(error))
}

fn described_shard(stem: &str, columns: usize, entry: &Path, path: PathBuf, text: &str) -> Result<Shard, Error> {
    let broken = |error| unparsed(entry, error);
    let ShardEntry { first, rows, crc32 } = serde_json::from_str(text).map_err(broken)?;
    if stem != format!("shard-{first:012}") {
        return Err(fault(entry, format!("says that its first example is {first}; was it renamed?")));
    }
    let digits = crc32.len() == 8 && crc32.bytes().all(|digit| digit.is_ascii_hexdigit());
    let Some(crc32) = u32::from_str_radix(&crc32, 16).ok().filter(|_| digits) else {
        return Err(fault(entry, format!("crc32: expected 8 hexadecimal digits, got \"{crc32}\"")));
    };
    let numbers = rows.checked_mul(columns).and_then(|count| count.checked_mul(size_of::<f32>()));
    let (Some(bytes), Some(_)) = (numbers.filter(|_| rows > 0), first.checked_add(rows as u64)) else {
        return Err(fault(entry, format!("rows: expected at least 1 that memory can hold, got {rows}")));
    };
    let mut file = open_regular(&path).map_err(|error| {
        fault(&path, format!("cannot open: {error}; if it is lost, remove {stem}.json and record its examples again"))
    })?;
    let length = file.metadata().map_err(|error| failed(&path, "read", &error))?.len();
    let offset = read_header(&path, &mut file, rows, columns)?;
    if Some(length) != (offset as u64).checked_add(bytes as u64) {
        let what = format!(
            "expected {offset} + {bytes} bytes for {rows} rows of {columns} numbers, got {length}; \
             remove it and {stem}.json, and record its examples again"
        );
        return Err(fault(&path, what));
    }
    Ok(Shard { path, entry: entry.to_owned(), text: text.to_owned(), first, rows, crc32, offset })
}

/// Where the numbers of a table in NPY format start, if it is one of this shape.
fn read_header(path: &Path, file: &mut File, rows: usize, columns: usize) -> Result<usize, Error> {
    const START: usize = 10;
    let foreign = |_: io::Error| fault(path, "is not a table in NPY format 1.0");
    let mut start = [0; START];
    file.read_exact(&mut start).map_err(foreign)?;
    let [magic @ .., low, high] = start;
    if magic != *b"\x93NUMPY\x01\x00" {
        return Err(fault(path, "is not a table in NPY format 1.0"));
    }
    let mut header = vec![0; u16::from_le_bytes([low, high]).into()];
    file.read_exact(&mut header).map_err(foreign)?;
    let found: String = String::from_utf8_lossy(&header).split_whitespace().collect();
    let expected = format!("{{'descr':'<f4','fortran_order':False,'shape':({rows},{columns})");
    if found.strip_prefix(&expected).is_none_or(|rest| !matches!(rest, "}" | ",}")) {
        let shown: String = found.chars().take(200).collect();
        return Err(fault(path, format!("expected {expected}}}, got {shown}")));
    }
    Ok(START + header.len())
}
