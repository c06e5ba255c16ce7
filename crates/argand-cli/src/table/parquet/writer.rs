//! Writes tables as Parquet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Repetition};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::DataType as Physical;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, Type};

use super::cannot_write;
use crate::failure::Failure;
use crate::output::AtomicFile;
use crate::table::{Columns, Element, Writer};

/// Columns transposed at a time, so that their cache lines stay in the cache.
const STRIP: usize = 16;
/// Bytes of rows gathered into one group.
const GROUP: usize = 1 << 24;
/// In wide tables a group grows until every column has this many bytes, up to four times the above. The description of
/// a column in a group stays in memory to the end, for the writer and for every reader: some 700 bytes each.
const GROUP_COLUMN: usize = 1 << 16;
/// Bytes of a page.
const PAGE: usize = 1 << 20;
/// The most columns written; a column takes 1500 bytes of memory even in a file of one row.
const MOST_COLUMNS: usize = 1 << 20;

/// Writes a Parquet file of float columns, uncompressed: features look like noise to a compressor. Pages carry checksums, which the
/// `parquet` crate reads but does not write; so they are put together here.
pub(in crate::table) struct ParquetWriter<T: Element> {
    path: PathBuf,
    file: SerializedFileWriter<AtomicFile>,
    width: usize,
    /// Rows gathered for the current group, and how many elements fill it.
    group: Vec<T>,
    full: usize,
}

impl<T: Element> ParquetWriter<T> {
    pub(in crate::table) fn create(path: &Path, columns: Columns) -> Result<Self, Failure> {
        let width = columns.width();
        if width > MOST_COLUMNS {
            let what = format!("Parquet supports at most {MOST_COLUMNS} columns, got {width} columns; write .npy");
            return Err(Failure::input(path, what));
        }
        let file = AtomicFile::create(path)?;
        let bytes = (width * GROUP_COLUMN).clamp(GROUP, 4 * GROUP);
        let full = (bytes / size_of::<T>() / width.max(1)).max(1) * width;
        let open = || {
            let column = |name: String| {
                Type::primitive_type_builder(&name, T::Parquet::get_physical_type())
                    .with_repetition(Repetition::REQUIRED)
                    .build()
                    .map(Arc::new)
            };
            let fields = columns.names().map(column).collect::<Result<_, _>>()?;
            let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
            let properties = WriterProperties::builder()
                .set_dictionary_enabled(false)
                .set_statistics_enabled(EnabledStatistics::None)
                .set_offset_index_disabled(true)
                .build();
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
        };
        let file = open().map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_path_buf(), file, width, group: Vec::new(), full })
    }

    /// Writes the rows gathered so far as one group.
    fn write_group(&mut self) -> Result<(), ParquetError> {
        let rows = self.group.len() / self.width;
        let mut columns = vec![T::default(); rows * STRIP.min(self.width)];
        let descriptions = self.file.schema_descr().columns().to_vec();
        let mut group = self.file.next_row_group()?;
        for start in (0..self.width).step_by(STRIP) {
            let count = STRIP.min(self.width - start);
            for (index, row) in self.group.chunks_exact(self.width).enumerate() {
                for (column, &element) in row[start..start + count].iter().enumerate() {
                    columns[column * rows + index] = element;
                }
            }
            for (column, description) in columns.chunks_exact(rows).zip(&descriptions[start..start + count]) {
                let (pages, close) = chunk(column, description)?;
                group.append_column(&pages, close)?;
            }
        }
        group.close()?;
        self.group.clear();
        Ok(())
    }
}

/// A column of a group: its pages, and what the footer says of them.
fn chunk<T: Element>(column: &[T], description: &ColumnDescPtr) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
    let (mut pages, mut page) = (Vec::with_capacity(size_of_val(column) + 64), Vec::new());
    for values in column.chunks(PAGE / size_of::<T>()) {
        page.clear();
        T::append_bytes(values, &mut page);
        append_page_header(values.len(), &page, &mut pages);
        pages.extend_from_slice(&page);
    }
    // Groups are small.
    let length = i64::try_from(pages.len()).unwrap_or(i64::MAX);
    let metadata = ColumnChunkMetaData::builder(Arc::clone(description))
        .set_compression(Compression::UNCOMPRESSED)
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE])
        .set_total_compressed_size(length)
        .set_total_uncompressed_size(length)
        .set_num_values(i64::try_from(column.len()).unwrap_or(i64::MAX))
        .set_data_page_offset(0)
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: pages.len() as u64,
        rows_written: column.len() as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok((pages.into(), close))
}

/// The header of a page of plain values that are never null, in Thrift's compact protocol: type, size, size in the file, checksum, and a
/// structure of the number of values and of the encodings of values, definition and repetition levels.
fn append_page_header(values: usize, page: &[u8], out: &mut Vec<u8>) {
    /// A 32-bit integer in the next field.
    const INTEGER: u8 = 0x15;
    /// A structure in the next field.
    const STRUCTURE: u8 = 0x1c;
    const STOP: u8 = 0;
    const DATA_PAGE: i32 = 0;
    const PLAIN: i32 = 0;
    /// Run lengths, of levels that there are none of.
    const LEVELS: i32 = 3;
    let integer = |number: i32, out: &mut Vec<u8>| {
        out.push(INTEGER);
        let mut left = ((number << 1) ^ (number >> 31)).cast_unsigned();
        while left >= 0x80 {
            out.push(left.to_le_bytes()[0] | 0x80);
            left >>= 7;
        }
        out.push(left.to_le_bytes()[0]);
    };
    // Pages are small.
    let size = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
    let mut sum = flate2::Crc::new();
    sum.update(page);
    for number in [DATA_PAGE, size(page.len()), size(page.len()), sum.sum().cast_signed()] {
        integer(number, out);
    }
    out.push(STRUCTURE);
    for number in [size(values), PLAIN, LEVELS, LEVELS] {
        integer(number, out);
    }
    out.extend([STOP, STOP]);
}

impl<T: Element> Writer<T> for ParquetWriter<T> {
    fn write(&mut self, mut rows: &[T]) -> Result<(), Failure> {
        debug_assert!(rows.len().is_multiple_of(self.width), "whole rows");
        while !rows.is_empty() {
            let (taken, rest) = rows.split_at(rows.len().min(self.full - self.group.len()));
            self.group.extend_from_slice(taken);
            rows = rest;
            if self.group.len() == self.full {
                self.write_group().map_err(|error| cannot_write(&self.path, &error))?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<AtomicFile, Failure> {
        if !self.group.is_empty() {
            self.write_group().map_err(|error| cannot_write(&self.path, &error))?;
        }
        self.file.into_inner().map_err(|error| cannot_write(&self.path, &error))
    }
}
