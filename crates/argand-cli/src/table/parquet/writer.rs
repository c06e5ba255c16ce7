//! Writes tables as Parquet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Repetition;
use parquet::data_type::DataType as Physical;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

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
/// The most columns written; a column takes 1500 bytes of memory even in a file of one row.
const MOST_COLUMNS: usize = 1 << 20;

/// Writes a Parquet file of float columns, uncompressed: features look like noise to a compressor.
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
        let mut group = self.file.next_row_group()?;
        for start in (0..self.width).step_by(STRIP) {
            let count = STRIP.min(self.width - start);
            for (index, row) in self.group.chunks_exact(self.width).enumerate() {
                for (column, &element) in row[start..start + count].iter().enumerate() {
                    columns[column * rows + index] = element;
                }
            }
            for column in columns.chunks_exact(rows).take(count) {
                let Some(mut chunk) = group.next_column()? else { break };
                chunk.typed::<T::Parquet>().write_batch(column, None, None)?;
                chunk.close()?;
            }
        }
        group.close()?;
        self.group.clear();
        Ok(())
    }
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
