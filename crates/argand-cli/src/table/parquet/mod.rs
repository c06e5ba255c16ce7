//! Parquet: columns stored one after the other within groups of rows.

mod footer;
mod labels;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::Cell;
use std::fs::File;
use std::io::Seek;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

pub(super) use self::labels::ParquetLabels;
pub(super) use self::writer::ParquetWriter;
use super::{Block, Element, Options, Progress, Reader, Stored, open_file};
use crate::failure::Failure;

/// Bytes of decoded columns held at a time.
const BATCH: usize = 1 << 23;
/// Rows transposed at a time, so that their cache lines stay in the cache.
const TILE: usize = 64;
/// Reads a Parquet file of numeric columns.
///
/// Rows need all columns at once, so besides a batch, one page of every column is in memory: as most programs write
/// them, up to a megabyte.
pub(super) struct ParquetReader {
    path: PathBuf,
    options: Options,
    batches: ParquetRecordBatchReader,
    schema: Arc<Schema>,
    /// Where in a row the numbers of each column of `schema` go.
    places: Vec<usize>,
    batch: RecordBatch,
    /// The first row of `batch` not yet handed out.
    next_in_batch: usize,
    next_row: u64,
    rows: u64,
    columns: usize,
    total: u64,
}

/// Opens a file and checks its footer; returns its rows and length as well.
fn open_checked(
    path: &Path,
    table: &Options,
    options: ArrowReaderOptions,
) -> Result<(ParquetRecordBatchReaderBuilder<File>, u64, u64), Failure> {
    let (mut file, total) = open_file(path)?;
    footer::check(&mut file, total).map_err(|what| Failure::input(path, what))?;
    file.rewind().map_err(|error| Failure::io(path, "read", &error))?;
    let mut pages = file.try_clone().map_err(|error| Failure::io(path, "read", &error))?;
    let builder = guarded(path, || ParquetRecordBatchReaderBuilder::try_new_with_options(file, options))?;
    let rows = check_sizes(builder.metadata(), total);
    let rows = rows.ok_or_else(|| Failure::input(path, "has a damaged footer"))?;
    check_pages(path, table, &mut pages, builder.metadata())?;
    check_compression(builder.metadata()).map_err(|what| Failure::input(path, what))?;
    Ok((builder, rows, total))
}

/// Checks that no page takes too much memory: pages are decompressed whole, into as many bytes as they claim.
fn check_pages(path: &Path, table: &Options, file: &mut File, metadata: &ParquetMetaData) -> Result<(), Failure> {
    let mut all = 0_u64;
    for group in metadata.row_groups() {
        // One page of every column is in memory.
        let mut largest_pages = 0_u64;
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let (start, length) = (u64::try_from(start), u64::try_from(column.compressed_size()));
            let (Ok(start), Ok(length)) = (start, length) else { continue };
            let largest = footer::largest_page(file, start, length);
            let largest = largest.map_err(|error| Failure::io(path, "read", &error))?;
            largest_pages = largest_pages.saturating_add(largest);
        }
        all = all.max(largest_pages);
    }
    if all > table.budget {
        return Err(table.too_large(path, "a page of every column", all));
    }
    Ok(())
}

/// Checks that all columns can be decompressed.
fn check_compression(metadata: &ParquetMetaData) -> Result<(), String> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let unknown = columns
        .map(|column| (column, column.compression()))
        .find(|(_, compression)| matches!(compression, Compression::BROTLI(_) | Compression::LZO));
    unknown.map_or(Ok(()), |(column, compression)| {
        let expected = "write the file with snappy, gzip, lz4, zstd or no compression";
        Err(format!(
            "column {:?} is compressed with {compression}, which is not supported; {expected}",
            column.column_path().string()
        ))
    })
}

/// The names of the columns.
pub(super) fn names(path: &Path, options: &Options) -> Result<Vec<String>, Failure> {
    let (builder, _, _) = open_checked(path, options, ArrowReaderOptions::new())?;
    Ok(names_of(builder.schema()))
}

fn names_of(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

impl ParquetReader {
    /// Opens a file to read the picked columns.
    pub(super) fn open(path: &Path, options: &Options, picked: Option<&[usize]>) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::input(path, what);
        let (mut builder, rows, total) = open_checked(path, options, ArrowReaderOptions::new())?;
        let mut schema = Arc::clone(builder.schema());
        let picked = picked.map_or_else(|| (0..schema.fields().len()).collect(), <[usize]>::to_vec);
        // The file's columns come in their own order.
        let mut kept = picked.clone();
        kept.sort_unstable();
        if kept.len() < schema.fields().len() {
            let damaged = |_| wrong("has a damaged footer".into());
            schema = Arc::new(schema.project(&kept).map_err(damaged)?);
            let mask = ProjectionMask::roots(builder.parquet_schema(), kept.iter().copied());
            builder = builder.with_projection(mask);
        }
        let (mut columns, mut places) = (0_usize, vec![0; kept.len()]);
        for column in &picked {
            let index = kept.partition_point(|other| other < column);
            let field = schema.field(index);
            places[index] = columns;
            let numbers = width(field).ok_or_else(|| {
                wrong(format!(
                    "column {:?} has type {}; only numbers and fixed-size lists of floats are read, \
                     so convert or drop it (--drop)",
                    field.name(),
                    field.data_type()
                ))
            })?;
            columns = columns.checked_add(numbers).ok_or_else(|| wrong("has too many columns".into()))?;
        }
        if rows == 0 || columns == 0 {
            let what = format!("has {rows} rows and {columns} columns; a table needs at least one of each");
            return Err(wrong(what));
        }
        options.check_row(path, columns as u64, columns as u64 * size_of::<f64>() as u64)?;
        let batch_rows = (BATCH / size_of::<f64>() / columns).max(1);
        let batches = guarded(path, || builder.with_batch_size(batch_rows).build())?;
        let batch = RecordBatch::new_empty(Arc::clone(&schema));
        let (path, options) = (path.to_path_buf(), *options);
        Ok(Self { path, options, batches, schema, places, batch, next_in_batch: 0, next_row: 0, rows, columns, total })
    }

    /// Decodes the next rows; returns whether there were any.
    fn next_batch(&mut self) -> Result<bool, Failure> {
        let next = guarded(&self.path, || self.batches.next().transpose().map_err(ParquetError::from))?;
        let Some(batch) = next.filter(|batch| batch.num_rows() > 0) else {
            if self.next_row == self.rows {
                return Ok(false);
            }
            let what = format!("has {} rows instead of the {} that its footer claims", self.next_row, self.rows);
            return Err(Failure::input(&self.path, what));
        };
        if batch.schema_ref().fields() != self.schema.fields() {
            return Err(Failure::input(&self.path, "has columns of changing type; the file is damaged"));
        }
        for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
            if let Some(row) = first_null(column.as_ref()).filter(|_| !self.options.missing) {
                return Err(Failure::input(
                    &self.path,
                    format!(
                        "row {} (counted from 0), column {:?} is null; fill it in or drop the row (--missing)",
                        self.next_row + row as u64,
                        field.name()
                    ),
                ));
            }
        }
        (self.batch, self.next_in_batch) = (batch, 0);
        Ok(true)
    }
}

/// The number of rows, if all sizes in the footer are possible.
fn check_sizes(metadata: &ParquetMetaData, total: u64) -> Option<u64> {
    let mut rows = 0_u64;
    for group in metadata.row_groups() {
        rows = rows.checked_add(u64::try_from(group.num_rows()).ok()?)?;
        for column in group.columns() {
            let start = u64::try_from(column.dictionary_page_offset().unwrap_or(column.data_page_offset())).ok()?;
            let length = u64::try_from(column.compressed_size()).ok()?;
            (start.checked_add(length)? <= total).then_some(())?;
        }
    }
    (u64::try_from(metadata.file_metadata().num_rows()) == Ok(rows)).then_some(rows)
}

/// How many numbers a column holds per row; `None` if it holds something else.
fn width(field: &Field) -> Option<usize> {
    match field.data_type() {
        DataType::Boolean => Some(1),
        kind if kind.is_integer() || kind.is_floating() => Some(1),
        DataType::FixedSizeList(item, length) if item.data_type().is_floating() => usize::try_from(*length).ok(),
        _ => None,
    }
}

/// The first row with a missing number.
fn first_null(column: &dyn Array) -> Option<usize> {
    let null = |array: &dyn Array| (array.null_count() > 0).then(|| (0..array.len()).find(|&i| array.is_null(i)));
    null(column).flatten().or_else(|| {
        let list = column.as_fixed_size_list_opt()?;
        let length = usize::try_from(list.value_length()).ok().filter(|&length| length > 0)?;
        null(list.values().as_ref()).flatten().map(|item| item / length)
    })
}

impl<T: Element> Reader<T> for ParquetReader {
    fn columns(&self) -> usize {
        self.columns
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn progress(&self) -> Progress {
        // Columns are read side by side, so only rows measure progress.
        let done = u128::from(self.total) * u128::from(self.next_row) / u128::from(self.rows);
        Progress { done: u64::try_from(done).unwrap_or(self.total), total: self.total }
    }

    fn read(&mut self, max_rows: usize, block: &mut Block<T>) -> Result<usize, Failure> {
        let elements = block.clear_dense();
        let mut done = 0;
        while done < max_rows && (self.next_in_batch < self.batch.num_rows() || self.next_batch()?) {
            let count = (max_rows - done).min(self.batch.num_rows() - self.next_in_batch);
            let rows = self.next_in_batch..self.next_in_batch + count;
            append_rows(&self.batch, rows, self.columns, &self.places, elements);
            done += count;
            self.next_in_batch += count;
            self.next_row += count as u64;
        }
        Ok(done)
    }
}

/// Appends some rows of a batch, row-major.
fn append_rows<T: Element>(
    batch: &RecordBatch,
    rows: Range<usize>,
    columns: usize,
    places: &[usize],
    elements: &mut Vec<T>,
) {
    let start = elements.len();
    elements.resize(start + rows.len() * columns, T::default());
    let mut first = rows.start;
    for tile in elements[start..].chunks_mut(TILE * columns) {
        let count = tile.len() / columns;
        for (&place, array) in places.iter().zip(batch.columns()) {
            copy_column(array.as_ref(), first, columns, &mut tile[place..]);
            if first_null(array.as_ref()).is_some() {
                erase_nulls(array.as_ref(), first, columns, place, tile);
            }
        }
        first += count;
    }
}

/// Writes NaN where a number is missing.
fn erase_nulls<T: Element>(column: &dyn Array, first: usize, stride: usize, place: usize, tile: &mut [T]) {
    let nan = T::from_f64(f64::NAN);
    let list = column.as_fixed_size_list_opt();
    let length = list.map_or(1, |list| usize::try_from(list.value_length()).unwrap_or(0));
    for (row, elements) in tile.chunks_mut(stride).enumerate() {
        for (item, element) in elements[place..place + length].iter_mut().enumerate() {
            let missing = |list: &arrow_array::FixedSizeListArray| list.values().is_null((first + row) * length + item);
            if column.is_null(first + row) || list.is_some_and(missing) {
                *element = nan;
            }
        }
    }
}

/// Copies a column from row `first` on into every `stride`-th element of a tile.
fn copy_column<T: Element>(column: &dyn Array, first: usize, stride: usize, tile: &mut [T]) {
    match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean();
            for (row, element) in tile.iter_mut().step_by(stride).enumerate() {
                *element = values.value(first + row).to_element();
            }
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            let items = column.as_fixed_size_list().values();
            for (row, elements) in tile.chunks_mut(stride).enumerate() {
                let elements = &mut elements[..length];
                copy_numbers(items.as_ref(), (first + row) * length, 1, elements);
            }
        }
        _ => copy_numbers(column, first, stride, tile),
    }
}

/// Copies numbers from index `first` on into every `stride`-th element of `elements`.
fn copy_numbers<T: Element>(numbers: &dyn Array, first: usize, stride: usize, elements: &mut [T]) {
    fn copy<N: ArrowPrimitiveType<Native: Stored>, T: Element>(
        numbers: &dyn Array,
        first: usize,
        stride: usize,
        elements: &mut [T],
    ) {
        let numbers = &numbers.as_primitive::<N>().values()[first..];
        for (element, number) in elements.iter_mut().step_by(stride).zip(numbers) {
            *element = number.to_element();
        }
    }
    let copy = match numbers.data_type() {
        DataType::Float16 => copy::<Float16Type, T>,
        DataType::Float32 => copy::<Float32Type, T>,
        DataType::Float64 => copy::<Float64Type, T>,
        DataType::Int8 => copy::<Int8Type, T>,
        DataType::Int16 => copy::<Int16Type, T>,
        DataType::Int32 => copy::<Int32Type, T>,
        DataType::Int64 => copy::<Int64Type, T>,
        DataType::UInt8 => copy::<UInt8Type, T>,
        DataType::UInt16 => copy::<UInt16Type, T>,
        DataType::UInt32 => copy::<UInt32Type, T>,
        DataType::UInt64 => copy::<UInt64Type, T>,
        other => unreachable!("a column of type {other} was refused when the file was opened"),
    };
    copy(numbers, first, stride, elements);
}

thread_local! {
    /// Whether a panic on this thread will become a [`Failure`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a part of the `parquet` crate, which panics on some damaged files; the user sees only the failure.
fn guarded<R>(path: &Path, run: impl FnOnce() -> Result<R, ParquetError>) -> Result<R, Failure> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                report(panic);
            }
        }));
    });
    GUARDED.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    GUARDED.set(false);
    match result {
        Ok(result) => result.map_err(|error| Failure::input(path, format!("cannot be read as Parquet: {error}"))),
        Err(_) => Err(Failure::input(path, "cannot be read as Parquet: the file is damaged")),
    }
}

/// Only the system can keep the `parquet` crate from writing: the rows are plain numbers.
pub(super) fn cannot_write(path: &Path, error: &ParquetError) -> Failure {
    Failure::Other(format!("{}: cannot write: {error}", path.display()))
}
