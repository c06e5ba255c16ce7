//! Files of predicted classes: one column of whole numbers or text.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;

use super::{Written, csv, npy};
use crate::failure::Failure;
use crate::output::AtomicFile;

/// The name of the column, where columns have names.
const NAME: &str = "label";

/// Writes predicted classes. The file stays invisible until what [`finish`](Self::finish) returns is committed.
pub(crate) struct LabelWriter {
    path: PathBuf,
    sink: Sink,
    rows: u64,
}

enum Sink {
    /// The encoding of every class in the file, one after another.
    Items {
        file: AtomicFile,
        items: Vec<Vec<u8>>,
        npy: Option<String>,
    },
    Parquet {
        writer: Box<ArrowWriter<AtomicFile>>,
        schema: Arc<Schema>,
        classes: Classes,
    },
}

/// Classes are written as whole numbers if all of them are.
enum Classes {
    Integers(Vec<i64>),
    Text(Vec<String>),
}

impl Classes {
    fn new(names: &[String]) -> Self {
        let integer = |name: &String| name.parse::<i64>().ok().filter(|integer| integer.to_string() == *name);
        match names.iter().map(integer).collect() {
            Some(integers) => Self::Integers(integers),
            None => Self::Text(names.to_vec()),
        }
    }
}

impl LabelWriter {
    /// Starts a file of classes with these names.
    ///
    /// # Errors
    /// As [`create`](super::create).
    pub(crate) fn create(path: &Path, names: &[String]) -> Result<Self, Failure> {
        let format = Written::of(path)?;
        let classes = Classes::new(names);
        let mut file = AtomicFile::create(path)?;
        let failed = |error| Failure::io(path, "write", &error);
        let sink = match format {
            Written::Csv => {
                let delimiter = csv::delimiter_of(path);
                file.write_all(&csv::line(delimiter, [NAME])).map_err(failed)?;
                Sink::Items { file, items: names.iter().map(|name| csv::line(delimiter, [name])).collect(), npy: None }
            }
            Written::Npy => {
                // A placeholder: the number of rows is known at the end.
                file.write_all(&[0; npy::HEADER]).map_err(failed)?;
                let (dtype, items) = npy_items(&classes);
                Sink::Items { file, items, npy: Some(dtype) }
            }
            Written::Parquet => {
                let kind = if let Classes::Integers(_) = classes { DataType::Int64 } else { DataType::Utf8 };
                let schema = Arc::new(Schema::new(vec![Field::new(NAME, kind, false)]));
                let writer = ArrowWriter::try_new(file, Arc::clone(&schema), None);
                let writer = writer.map_err(|error| super::parquet::cannot_write(path, &error))?;
                Sink::Parquet { writer: Box::new(writer), schema, classes }
            }
        };
        Ok(Self { path: path.to_path_buf(), sink, rows: 0 })
    }

    /// Appends the classes of some rows.
    ///
    /// # Errors
    /// The system cannot write, for example for lack of space.
    pub(crate) fn write(&mut self, classes: &[u32]) -> Result<(), Failure> {
        self.rows += classes.len() as u64;
        match &mut self.sink {
            Sink::Items { file, items, .. } => {
                let mut rows = classes.iter();
                rows.try_for_each(|&class| file.write_all(&items[class as usize]))
                    .map_err(|error| Failure::io(&self.path, "write", &error))
            }
            Sink::Parquet { writer, schema, classes: known } => {
                let classes = classes.iter().map(|&class| class as usize);
                let column: ArrayRef = match known {
                    Classes::Integers(known) => Arc::new(Int64Array::from_iter_values(classes.map(|at| known[at]))),
                    Classes::Text(known) => Arc::new(StringArray::from_iter_values(classes.map(|at| &known[at]))),
                };
                let batch = RecordBatch::try_new(Arc::clone(schema), vec![column]);
                let written = batch.map_err(Into::into).and_then(|batch| writer.write(&batch));
                written.map_err(|error| super::parquet::cannot_write(&self.path, &error))
            }
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The system cannot write.
    pub(crate) fn finish(self) -> Result<AtomicFile, Failure> {
        match self.sink {
            Sink::Items { mut file, npy, .. } => {
                if let Some(dtype) = npy {
                    let header = npy::header(&dtype, &format!("({},)", self.rows));
                    let patched = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&header));
                    patched.map_err(|error| Failure::io(&self.path, "write", &error))?;
                }
                Ok(file)
            }
            Sink::Parquet { writer, .. } => {
                let file = writer.into_inner();
                file.map_err(|error| super::parquet::cannot_write(&self.path, &error))
            }
        }
    }
}

/// NumPy's type for the classes, and their items: 64-bit integers, or text of four bytes per character.
fn npy_items(classes: &Classes) -> (String, Vec<Vec<u8>>) {
    match classes {
        Classes::Integers(integers) => {
            ("<i8".to_owned(), integers.iter().map(|integer| integer.to_le_bytes().to_vec()).collect())
        }
        Classes::Text(names) => {
            let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(1);
            let item = |name: &String| {
                let mut item: Vec<u8> = name.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
                item.resize(4 * longest, 0);
                item
            };
            (format!("<U{longest}"), names.iter().map(item).collect())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::LabelReader;
    use super::super::tests::Scratch;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let predicted = [2, 0, 1, 1, 2];
        for names in [["-1", "3", "10"], ["cat", "d, \"og\"", "ß 3"], ["0", "1", "x"], ["0.5", "01", "1"]] {
            let names = names.map(str::to_owned);
            for file in ["y.csv", "y.npy", "y.parquet"] {
                let scratch = Scratch::new(file, "");
                let mut writer = LabelWriter::create(&scratch.path, &names).unwrap();
                writer.write(&predicted[..2]).unwrap();
                writer.write(&[]).unwrap();
                writer.write(&predicted[2..]).unwrap();
                writer.finish().unwrap().commit().unwrap();
                let mut reader = LabelReader::open(&scratch.path, &super::super::Options::default(), None).unwrap();
                let mut read = Vec::new();
                let rows = reader.read(9, &mut |label| {
                    read.push(label.name().into_owned());
                    Ok(())
                });
                assert_eq!(rows, Ok(5), "{file}");
                // "01" is read as a whole number.
                let expected = predicted.map(|class| names[class as usize].replace("01", "1"));
                assert_eq!(read, expected, "{file}");
            }
        }
        let scratch = Scratch::new("y.svm", "old");
        assert!(LabelWriter::create(&scratch.path, &[]).err().unwrap().to_string().contains("only read"));
    }
}
