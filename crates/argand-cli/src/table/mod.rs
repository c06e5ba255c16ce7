//! Tables of numbers in files: read and written block by block, so that a file may be larger than memory.
//!
//! The file extension decides the format. A reader promises to check the file as far as possible before the first row, to
//! answer any bytes with rows or a [`Failure`], and to use memory that does not grow with the
//! number of rows.

mod csv;
mod idx;
mod images;
mod labels;
mod libsvm;
mod npy;
mod parquet;
mod predicted;
mod ranked;
#[cfg(test)]
pub(crate) mod tests;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::{self, File};
use std::path::Path;
use std::str::FromStr;

use half::f16;

pub(crate) use images::read_images;
pub(crate) use labels::{Label, LabelReader};
pub(crate) use predicted::LabelWriter;
pub(crate) use ranked::RankedWriter;

use crate::failure::Failure;
use crate::output::AtomicFile;

/// How tables are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether the first line of text names the columns.
    pub(crate) header: Header,
    /// What separates fields of text; by the extension if not given.
    pub(crate) delimiter: Option<u8>,
    /// Whether a missing number is read as NaN; otherwise it is an error.
    pub(crate) missing: bool,
    /// Bytes that rows, pages and the like may each take at a time.
    pub(crate) budget: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { header: Header::Auto, delimiter: None, missing: false, budget: share_of(argand::DEFAULT_MEMORY_LIMIT) }
    }
}

impl Options {
    /// A longer line of text is not taken for a row of a table: its fields take up to sixteen times as much memory.
    fn longest_line(&self) -> u64 {
        (self.budget / 16).max(1 << 10)
    }

    /// Checks that one row fits into memory before any is read.
    fn check_row(&self, path: &Path, columns: u64, row_bytes: u64) -> Result<(), Failure> {
        if row_bytes > self.budget {
            return Err(self.too_large(path, &format!("a row of {columns} columns"), row_bytes));
        }
        Ok(())
    }

    /// The error for a part of a file that takes too much memory.
    fn too_large(&self, path: &Path, what: &str, bytes: u64) -> Failure {
        let (bytes, budget) = (crate::info::bytes(bytes), crate::info::bytes(self.budget));
        let what = format!("{what} takes {bytes}, more than the {budget} that --memory-limit leaves for it");
        Failure::input(path, format!("{what}; raise it if the file is right"))
    }
}

/// The share of a memory limit that rows, pages or predictions may each take at a time.
pub(crate) fn share_of(memory_limit: u64) -> u64 {
    memory_limit / 16
}

/// Whether the first line of text names the columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Header {
    /// If it has text and no numbers, or counts the columns.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It is a row like any other.
    No,
}

/// Text that stands for a missing number.
fn is_missing(field: &[u8]) -> bool {
    let field = field.trim_ascii();
    field.is_empty()
        || [&b"?"[..], b"NA", b"N/A", b"NaN", b"null", b"None", b"-"].iter().any(|m| field.eq_ignore_ascii_case(m))
}

/// One block of rows. Pass the same one to every call to reuse its memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block<T> {
    /// Row-major, rows times columns values.
    Dense {
        /// The rows, one after the other.
        values: Vec<T>,
    },
    /// Compressed sparse rows; the columns of a row ascend.
    Sparse {
        /// Where each row starts in the other two, and where the last one ends.
        indptr: Vec<u64>,
        /// Columns, counted from 0.
        indices: Vec<u32>,
        /// Values in these columns.
        values: Vec<T>,
    },
}

impl<T> Default for Block<T> {
    fn default() -> Self {
        Self::Dense { values: Vec::new() }
    }
}

impl<T: Copy> Block<T> {
    /// Keeps some rows, in ascending order, of a table with this many columns.
    pub(crate) fn keep(&mut self, rows: &[usize], columns: usize) {
        match self {
            Self::Dense { values } => {
                for (to, &from) in rows.iter().enumerate() {
                    values.copy_within(from * columns..(from + 1) * columns, to * columns);
                }
                values.truncate(rows.len() * columns);
            }
            Self::Sparse { indptr, indices, values } => {
                let (mut kept, mut ends) = (0, vec![0]);
                for &row in rows {
                    // Lengths of data in memory fit.
                    let [start, end] = [row, row + 1].map(|at| usize::try_from(indptr[at]).unwrap_or(usize::MAX));
                    indices.copy_within(start..end, kept);
                    values.copy_within(start..end, kept);
                    kept += end - start;
                    ends.push(kept as u64);
                }
                indices.truncate(kept);
                values.truncate(kept);
                *indptr = ends;
            }
        }
    }
}

impl<T> Block<T> {
    /// Turns the block into an empty dense one.
    fn clear_dense(&mut self) -> &mut Vec<T> {
        if let Self::Sparse { .. } = self {
            *self = Self::default();
        }
        match self {
            Self::Dense { values } => {
                values.clear();
                values
            }
            Self::Sparse { .. } => unreachable!("it was made dense"),
        }
    }

    /// Turns the block into an empty sparse one: row starts, columns, values.
    fn clear_sparse(&mut self) -> (&mut Vec<u64>, &mut Vec<u32>, &mut Vec<T>) {
        if let Self::Dense { .. } = self {
            *self = Self::Sparse { indptr: Vec::new(), indices: Vec::new(), values: Vec::new() };
        }
        match self {
            Self::Sparse { indptr, indices, values } => {
                indptr.clear();
                indices.clear();
                values.clear();
                (indptr, indices, values)
            }
            Self::Dense { .. } => unreachable!("it was made sparse"),
        }
    }
}

/// The element type of a table in memory: `f32` or `f64`. Numbers of other types are rounded once.
pub(crate) trait Element: Copy + Default + Debug + FromStr + Send + Sync + 'static {
    /// This type in a Parquet file.
    type Parquet: ::parquet::data_type::DataType<T = Self>;
    /// This type in an NPY header.
    const NPY: &'static str;
    /// A pair of these, real and imaginary part, in an NPY header.
    const NPY_COMPLEX: &'static str;

    /// From single precision.
    fn from_f32(value: f32) -> Self;
    /// From double precision.
    fn from_f64(value: f64) -> Self;
    /// From a signed integer.
    fn from_i64(value: i64) -> Self;
    /// From an unsigned integer.
    fn from_u64(value: u64) -> Self;
    /// Appends the little-endian bytes of all `values`.
    fn append_bytes(values: &[Self], bytes: &mut Vec<u8>);
}

macro_rules! element {
    ($type:ident, $parquet:ident, $npy:literal, $npy_complex:literal) => {
        #[allow(trivial_numeric_casts, clippy::cast_possible_truncation, reason = "rounding is the purpose")]
        impl Element for $type {
            type Parquet = ::parquet::data_type::$parquet;
            const NPY: &'static str = $npy;
            const NPY_COMPLEX: &'static str = $npy_complex;

            fn from_f32(value: f32) -> Self {
                value as Self
            }
            fn from_f64(value: f64) -> Self {
                value as Self
            }
            fn from_i64(value: i64) -> Self {
                value as Self
            }
            fn from_u64(value: u64) -> Self {
                value as Self
            }
            fn append_bytes(values: &[Self], bytes: &mut Vec<u8>) {
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
    };
}

element!(f32, FloatType, "<f4", "<c8");
element!(f64, DoubleType, "<f8", "<c16");

/// A number as a file stores it.
trait Stored: Copy {
    /// The nearest element.
    fn to_element<T: Element>(self) -> T;
}

macro_rules! stored {
    ($($type:ident: |$value:ident| $convert:ident($wider:expr);)*) => {$(
        impl Stored for $type {
            fn to_element<T: Element>(self) -> T {
                let $value = self;
                T::$convert($wider)
            }
        }
    )*};
}

stored! {
    f16: |value| from_f32(value.to_f32());
    f32: |value| from_f32(value);
    f64: |value| from_f64(value);
    i8: |value| from_f32(f32::from(value));
    i16: |value| from_f32(f32::from(value));
    i32: |value| from_f64(f64::from(value));
    i64: |value| from_i64(value);
    u8: |value| from_f32(f32::from(value));
    u16: |value| from_f32(f32::from(value));
    u32: |value| from_f64(f64::from(value));
    u64: |value| from_u64(value);
    bool: |value| from_f32(f32::from(u8::from(value)));
}

/// A reader's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes read so far.
    pub(crate) done: u64,
    /// Bytes in the file.
    pub(crate) total: u64,
}

/// Reads a table from its first row to its last.
pub(crate) trait Reader<T>: Send {
    /// Numbers per row; at least one.
    fn columns(&self) -> usize;

    /// Number of rows, if the format tells before reading them all.
    fn rows(&self) -> Option<u64>;

    /// Progress of the reader.
    fn progress(&self) -> Progress;

    /// Bytes that the widest row takes in memory.
    fn row_bytes(&self) -> usize {
        self.columns() * size_of::<T>()
    }

    /// Replaces the contents of `block` with the next `max_rows` rows and returns how many there were: fewer only at the
    /// end, 0 after it.
    ///
    /// # Errors
    /// The contents of the file are wrong, or it cannot be read; the reader yields no rows after that.
    fn read(&mut self, max_rows: usize, block: &mut Block<T>) -> Result<usize, Failure>;
}

/// Writes a table. It stays invisible until what [`finish`](Self::finish) returns is committed.
pub(crate) trait Writer<T>: Send {
    /// Appends whole rows, row-major.
    ///
    /// # Errors
    /// The system cannot write, for example for lack of space.
    fn write(&mut self, rows: &[T]) -> Result<(), Failure>;

    /// Completes the file.
    ///
    /// # Errors
    /// The system cannot write.
    fn finish(self: Box<Self>) -> Result<AtomicFile, Failure>;
}

/// The columns of an output table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Columns {
    /// Named real numbers.
    Named(Vec<String>),
    /// This many real numbers.
    Real(usize),
    /// This many complex numbers, each given as its real and then its imaginary part: rows are twice as wide.
    Complex(usize),
}

impl Columns {
    /// Elements in a row.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Named(names) => names.len(),
            Self::Real(columns) => *columns,
            Self::Complex(columns) => 2 * columns,
        }
    }

    /// The name of an element of a row, for formats with column names.
    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.width()).map(move |column| match self {
            Self::Named(names) => names[column].clone(),
            Self::Real(_) => format!("z{column}"),
            Self::Complex(_) => format!("z{}_{}", column / 2, if column % 2 == 0 { "re" } else { "im" }),
        })
    }
}

/// The formats, named by file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Npy,
    Csv,
    /// Gzipped.
    CsvGz,
    Parquet,
    Libsvm,
    Idx,
}

impl Format {
    /// The format that a file extension names.
    fn of(path: &Path) -> Result<Self, Failure> {
        Self::named(path).ok_or_else(|| {
            Failure::input(
                path,
                "unknown file extension; expected .npy, .csv, .tsv, .data, .dat (each of these four also with .gz), \
                 .parquet, .pq, .libsvm, .svm, .svmlight, .idx or .idx.gz, or the name of an MNIST file",
            )
        })
    }

    /// As [`of`](Self::of), if the extension is known.
    fn named(path: &Path) -> Option<Self> {
        let lower = |text: &OsStr| text.to_string_lossy().to_lowercase();
        if path.file_name().is_some_and(|name| idx::is_name(&lower(name))) {
            return Some(Self::Idx);
        }
        match path.extension().map(lower).as_deref() {
            Some("npy") => Some(Self::Npy),
            Some("csv" | "tsv" | "data" | "dat") => Some(Self::Csv),
            Some("gz") if Self::named(&path.with_extension("")) == Some(Self::Csv) => Some(Self::CsvGz),
            Some("parquet" | "pq") => Some(Self::Parquet),
            Some("libsvm" | "svm" | "svmlight") => Some(Self::Libsvm),
            _ => None,
        }
    }
}

/// Whether tables with this name are written as text.
pub(crate) fn is_text(path: &Path) -> bool {
    Format::named(path) == Some(Format::Csv)
}

/// The formats that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Npy,
    Csv,
    Parquet,
}

impl Written {
    /// The format that a file extension names.
    fn of(path: &Path) -> Result<Self, Failure> {
        let what = match Format::named(path) {
            Some(Format::Npy) => return Ok(Self::Npy),
            Some(Format::Csv) => return Ok(Self::Csv),
            Some(Format::Parquet) => return Ok(Self::Parquet),
            Some(Format::Libsvm) => "LIBSVM files are only read; write .npy, .csv or .parquet",
            Some(Format::CsvGz) => "compressed text is only read; write .npy, .csv or .parquet",
            Some(Format::Idx) => "IDX files are only read; write .npy, .csv or .parquet",
            None => "unknown file extension; expected .npy, .csv, .tsv, .data, .dat, .parquet or .pq",
        };
        Err(Failure::input(path, what))
    }
}

/// Opens a table for reading. `columns` is the expected number for a LIBSVM file, if known: such a file names only
/// the columns it uses. Other formats tell their number of columns and ignore this one. `picked` are the columns to read, in their
/// order, as counted by [`names`]; other columns need not hold numbers.
///
/// # Errors
/// [`Failure::Input`] if the extension is unknown, the file is missing, its contents are not a table of numbers with at
/// least one row and one column, a row takes too much memory, or a LIBSVM file uses a column beyond `columns`.
pub(crate) fn open<T: Element>(
    path: &Path,
    options: &Options,
    columns: Option<usize>,
    picked: Option<&[usize]>,
) -> Result<Box<dyn Reader<T>>, Failure> {
    let reader: Box<dyn Reader<T>> = match Format::of(path)? {
        Format::Npy => Box::new(npy::NpyReader::open(path, picked)?),
        Format::Csv | Format::CsvGz => Box::new(csv::CsvReader::open(path, options, picked)?),
        Format::Parquet => Box::new(parquet::ParquetReader::open(path, options, picked)?),
        Format::Libsvm => Box::new(libsvm::LibsvmReader::open(path, options, columns)?),
        Format::Idx => Box::new(idx::IdxReader::open(path)?),
    };
    options.check_row(path, reader.columns() as u64, reader.row_bytes() as u64)?;
    Ok(reader)
}

/// How columns are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// By name.
    Named,
    /// By position, counted from 0: in text without a header, and in arrays.
    Numbered,
}

/// The names of all columns; their numbers, counted from 0, where they have none. LIBSVM and IDX files have neither.
///
/// # Errors
/// As [`open`], as far as names are concerned.
pub(crate) fn names(path: &Path, options: &Options) -> Result<Option<(Vec<String>, Column)>, Failure> {
    Ok(match Format::of(path)? {
        Format::Csv | Format::CsvGz => Some(csv::names(path, options)?),
        Format::Parquet => Some((parquet::names(path, options)?, Column::Named)),
        Format::Npy => Some((npy::names(path)?, Column::Numbered)),
        Format::Libsvm | Format::Idx => None,
    })
}

/// The index of the column with this name.
pub(crate) fn position(path: &Path, names: &[String], name: &str) -> Result<usize, Failure> {
    let mut found = names.iter().enumerate().filter(|(_, other)| *other == name).map(|(index, _)| index);
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index),
        (None, _) => Err(Failure::input(path, format!("has no column {name:?}; it has {}", listed(names)))),
        (Some(_), Some(_)) => Err(Failure::input(path, format!("has several columns {name:?}"))),
    }
}

/// Some names, for a message.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let quoted: Vec<String> = names.iter().take(SHOWN).map(|name| self::quoted(name.as_bytes())).collect();
    let more = names.len().saturating_sub(SHOWN);
    quoted.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// Starts a table that appears at `path` once finished.
///
/// # Errors
/// [`Failure::Input`] if the extension is unknown or names a read-only format, or the file cannot be created.
pub(crate) fn create<T: Element>(path: &Path, columns: Columns) -> Result<Box<dyn Writer<T>>, Failure> {
    Ok(match Written::of(path)? {
        Written::Npy => Box::new(npy::NpyWriter::create(path, columns)?),
        Written::Csv => Box::new(csv::CsvWriter::create(path, columns)?),
        Written::Parquet => Box::new(parquet::ParquetWriter::create(path, columns)?),
    })
}

/// Opens a regular file; returns its length as well. A pipe has no length to check, and opening one may wait for ever.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64), Failure> {
    let metadata = fs::metadata(path).map_err(|error| Failure::io(path, "open", &error))?;
    if metadata.is_dir() {
        return Err(Failure::input(path, "is a folder; name a file to read"));
    }
    if !metadata.is_file() {
        return Err(Failure::input(path, "is not a regular file; save it to a file first"));
    }
    let file = File::open(path).map_err(|error| Failure::io(path, "open", &error))?;
    Ok((file, metadata.len()))
}

/// Opens a regular, non-empty file; returns its length as well.
fn open_file(path: &Path) -> Result<(File, u64), Failure> {
    let (file, length) = open_regular(path)?;
    if length == 0 {
        return Err(Failure::input(path, "is empty; a table needs at least one row and one column"));
    }
    Ok((file, length))
}

/// Says that text may have been cut off inside its last number.
fn warn_of_cut(path: &Path) {
    let what = "the last line has no end; if the file was cut off, its last number may be wrong";
    crate::warn(&format!("{}: {what}", path.display()));
}

/// Parses a number, ignoring spaces around it.
fn parse_number<T: Element>(text: &[u8]) -> Option<T> {
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// Quotes text for a message: short, and readable whatever its bytes.
fn quoted(text: &[u8]) -> String {
    const LONGEST: usize = 40;
    let text = String::from_utf8_lossy(text.get(..4 * LONGEST).unwrap_or(text));
    let mut short: String = text.trim().chars().take(LONGEST).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    format!("{short:?}")
}
