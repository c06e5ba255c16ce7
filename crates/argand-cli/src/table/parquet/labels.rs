//! Reads labels from Parquet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReader};
use parquet::errors::ParquetError;

use super::{guarded, names_of, open_checked};
use crate::failure::Failure;
use crate::table::labels::{Label, only_column};
use crate::table::{Options, Stored, position};

/// Labels decoded at a time.
const LABEL_BATCH: usize = 1 << 13;

/// Reads one column of a Parquet file as labels.
pub(in crate::table) struct ParquetLabels {
    path: PathBuf,
    batches: ParquetRecordBatchReader,
    name: String,
    column: Option<Arc<dyn Array>>,
    next_in_column: usize,
    next_row: u64,
    rows: u64,
}

impl ParquetLabels {
    /// Opens the column with this name, or the only one.
    pub(in crate::table) fn open(path: &Path, table: &Options, column: Option<&str>) -> Result<Self, Failure> {
        // Without Arrow's metadata, text is plain text, whatever it was in memory.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let (builder, rows, _) = open_checked(path, table, options)?;
        let names = names_of(builder.schema());
        let index = match column {
            Some(name) => position(path, &names, name)?,
            None => only_column(path, names.len())?,
        };
        let kind = builder.schema().field(index).data_type();
        if !(kind.is_integer() || kind.is_floating() || matches!(kind, DataType::Boolean | DataType::Utf8)) {
            let what = format!("column {:?} has type {kind}; labels are numbers or text", names[index]);
            return Err(Failure::input(path, what));
        }
        let mask = ProjectionMask::roots(builder.parquet_schema(), [index]);
        let builder = builder.with_projection(mask).with_batch_size(LABEL_BATCH);
        let batches = guarded(path, || builder.build())?;
        let (path, name) = (path.to_path_buf(), names[index].clone());
        Ok(Self { path, batches, name, column: None, next_in_column: 0, next_row: 0, rows })
    }

    pub(in crate::table) fn rows(&self) -> u64 {
        self.rows
    }

    /// Passes the labels of the next rows to `take`, which may fail; returns how many there were.
    pub(in crate::table) fn read(
        &mut self,
        max_rows: usize,
        take: &mut dyn FnMut(Label<'_>) -> Result<(), String>,
    ) -> Result<usize, Failure> {
        for row in 0..max_rows {
            let column = match self.column.take().filter(|column| self.next_in_column < column.len()) {
                Some(column) => column,
                None => {
                    let next = guarded(&self.path, || self.batches.next().transpose().map_err(ParquetError::from))?;
                    let Some(batch) = next.filter(|batch| batch.num_rows() > 0 && batch.num_columns() == 1) else {
                        return Ok(row);
                    };
                    self.next_in_column = 0;
                    Arc::clone(batch.column(0))
                }
            };
            label_at(column.as_ref(), self.next_in_column).and_then(&mut *take).map_err(|what| {
                let place = format!("row {} (counted from 0), column {:?}", self.next_row, self.name);
                Failure::input(&self.path, format!("{place} {what}"))
            })?;
            self.next_in_column += 1;
            self.next_row += 1;
            self.column = Some(column);
        }
        Ok(max_rows)
    }
}

fn label_at(column: &dyn Array, row: usize) -> Result<Label<'_>, String> {
    fn integer<N: ArrowPrimitiveType<Native: TryInto<i64> + Stored>>(
        column: &dyn Array,
        row: usize,
    ) -> Result<Label<'static>, String> {
        let value = column.as_primitive::<N>().value(row);
        value.try_into().map_or_else(|_| Label::from_number(value.to_element()), |integer| Ok(Label::Integer(integer)))
    }
    fn number<N: ArrowPrimitiveType<Native: Stored>>(column: &dyn Array, row: usize) -> Result<Label<'static>, String> {
        Label::from_number(column.as_primitive::<N>().value(row).to_element())
    }
    if column.is_null(row) {
        return Err("is null; fill it in or drop the row".to_owned());
    }
    match column.data_type() {
        DataType::Boolean => Ok(Label::Integer(column.as_boolean().value(row).into())),
        DataType::Utf8 => Label::from_text(column.as_string::<i32>().value(row)),
        DataType::Float16 => number::<Float16Type>(column, row),
        DataType::Float32 => number::<Float32Type>(column, row),
        DataType::Float64 => number::<Float64Type>(column, row),
        DataType::Int8 => integer::<Int8Type>(column, row),
        DataType::Int16 => integer::<Int16Type>(column, row),
        DataType::Int32 => integer::<Int32Type>(column, row),
        DataType::Int64 => integer::<Int64Type>(column, row),
        DataType::UInt8 => integer::<UInt8Type>(column, row),
        DataType::UInt16 => integer::<UInt16Type>(column, row),
        DataType::UInt32 => integer::<UInt32Type>(column, row),
        DataType::UInt64 => integer::<UInt64Type>(column, row),
        other => Err(format!("has type {other}; the file is damaged")),
    }
}
