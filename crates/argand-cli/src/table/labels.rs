//! One column of a file, read as labels: names of classes, or numbers.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::csv::CsvReader;
use super::idx::IdxReader;
use super::libsvm::Lines;
use super::npy::{NpyReader, NpyText};
use super::parquet::ParquetLabels;
use super::{Block, Format, Options, Reader, quoted};
use crate::failure::Failure;

/// The label of one row. A whole number is one in every format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Label<'a> {
    /// A whole number.
    Integer(i64),
    /// Any other finite number.
    Number(f64),
    /// Text that is not a number.
    Text(&'a str),
}

impl<'a> Label<'a> {
    /// Parses text.
    pub(super) fn from_text(text: &'a str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("has nothing instead of a label".to_owned());
        }
        match (text.parse(), text.parse()) {
            (Ok(integer), _) => Ok(Self::Integer(integer)),
            (_, Ok(number)) => Self::from_number(number),
            _ => Ok(Self::Text(text)),
        }
    }

    /// Classifies a number.
    pub(super) fn from_number(number: f64) -> Result<Self, String> {
        /// From here on, `f64` cannot tell all whole numbers apart.
        const EXACT: f64 = (1_u64 << 53) as f64;
        if !number.is_finite() {
            return Err(format!("is {number}; labels are finite numbers or text"));
        }
        if number.fract() == 0.0 && number.abs() < EXACT {
            #[allow(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            return Ok(Self::Integer(number as i64));
        }
        Ok(Self::Number(number))
    }

    /// The label as text, independent of the format.
    pub(crate) fn name(self) -> Cow<'a, str> {
        match self {
            Self::Integer(integer) => Cow::Owned(integer.to_string()),
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }

    /// The label as a number, if any.
    pub(crate) fn number(self) -> Option<f64> {
        match self {
            Self::Integer(integer) => Some(integer as f64),
            Self::Number(number) => Some(number),
            Self::Text(_) => None,
        }
    }
}

/// Reads labels from the first row to the last.
pub(crate) struct LabelReader {
    path: PathBuf,
    source: Source,
    next_row: u64,
}

enum Source {
    Numbers(Box<dyn Reader<f64>>, Block<f64>),
    Text(NpyText),
    Csv(Box<CsvReader<f64>>, usize),
    Parquet(Box<ParquetLabels>),
    Libsvm(Lines),
}

impl Source {
    fn numbers(path: &Path, reader: impl Reader<f64> + 'static) -> Result<Self, Failure> {
        only_column(path, reader.columns())?;
        Ok(Self::Numbers(Box::new(reader), Block::default()))
    }
}

impl LabelReader {
    /// Opens the column with this name, or the only column of a file; in a LIBSVM file, the labels.
    ///
    /// # Errors
    /// As [`open`](super::open) for tables.
    pub(crate) fn open(path: &Path, options: &Options, column: Option<&str>) -> Result<Self, Failure> {
        let source = match Format::of(path)? {
            Format::Npy => match NpyText::open(path)? {
                Some(text) => Source::Text(text),
                None => {
                    let reader = match column {
                        Some(name) => {
                            NpyReader::open(path, Some(&[super::position(path, &super::npy::names(path)?, name)?]))?
                        }
                        None => NpyReader::open_column(path)?,
                    };
                    Source::numbers(path, reader)?
                }
            },
            Format::Idx => Source::numbers(path, IdxReader::open(path)?)?,
            Format::Csv | Format::CsvGz => {
                let reader = CsvReader::open_column(path, options)?;
                let field = match column {
                    Some(name) => reader.find(name)?,
                    None => only_column(path, reader.fields())?,
                };
                Source::Csv(Box::new(reader), field)
            }
            Format::Parquet => Source::Parquet(Box::new(ParquetLabels::open(path, options, column)?)),
            Format::Libsvm => Source::Libsvm(Lines::open(path, options)?.0),
        };
        Ok(Self { path: path.to_path_buf(), source, next_row: 0 })
    }

    /// The number of labels, if the format tells before reading them all.
    pub(crate) fn rows(&self) -> Option<u64> {
        match &self.source {
            Source::Numbers(reader, _) => reader.rows(),
            Source::Text(reader) => Some(reader.rows()),
            Source::Parquet(reader) => Some(reader.rows()),
            Source::Csv(..) | Source::Libsvm(_) => None,
        }
    }

    /// Passes the labels of the next `max_rows` rows to `take`, which may fail; returns how many there were: fewer only
    /// at the end.
    ///
    /// # Errors
    /// The contents of the file are wrong, or it cannot be read.
    pub(crate) fn read(
        &mut self,
        max_rows: usize,
        take: &mut dyn FnMut(Label<'_>) -> Result<(), String>,
    ) -> Result<usize, Failure> {
        let (path, next_row) = (&self.path, &mut self.next_row);
        let mut take_row = |label: Result<Label<'_>, String>| {
            let taken = label.and_then(&mut *take);
            *next_row += 1;
            taken.map_err(|what| Failure::input(path, format!("row {} (counted from 0) {what}", *next_row - 1)))
        };
        match &mut self.source {
            Source::Numbers(reader, block) => {
                let rows = reader.read(max_rows, block)?;
                if let Block::Dense { values } = block {
                    values.iter().try_for_each(|&value| take_row(Label::from_number(value)))?;
                }
                Ok(rows)
            }
            Source::Text(reader) => {
                for row in 0..max_rows {
                    let Some(text) = reader.next()? else { return Ok(row) };
                    take_row(Label::from_text(&text))?;
                }
                Ok(max_rows)
            }
            Source::Libsvm(lines) => {
                for row in 0..max_rows {
                    let Some(label) = lines.next_row::<f64>(None, |_, _| ())? else { return Ok(row) };
                    take_row(Label::from_number(label))?;
                }
                Ok(max_rows)
            }
            Source::Csv(reader, field) => reader.read_field(*field, max_rows, &mut |text| {
                let text = str::from_utf8(text).map_err(|_| format!("has {}, which is not UTF-8", quoted(text)))?;
                Label::from_text(text).and_then(&mut *take)
            }),
            Source::Parquet(reader) => reader.read(max_rows, take),
        }
    }
}

/// The index of a file's only column.
pub(super) fn only_column(path: &Path, columns: usize) -> Result<usize, Failure> {
    if columns == 1 {
        Ok(0)
    } else {
        Err(Failure::input(path, format!("has {columns} columns; expected one column of labels")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int8Type;
    use arrow_array::{
        ArrayRef, BooleanArray, DictionaryArray, Float32Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
        StringViewArray, UInt64Array,
    };
    use parquet::arrow::ArrowWriter;

    use super::super::idx::tests::{gzip, idx};
    use super::super::tests::{Numbers, Scratch, read_all};
    use super::super::{Column, names, open};
    use super::*;

    /// The names of all labels, read `max_rows` at a time.
    fn labels(path: &Path, column: Option<&str>, max_rows: usize) -> Result<Vec<String>, Failure> {
        let mut reader = LabelReader::open(path, &Options::default(), column)?;
        let mut names = Vec::new();
        let mut take = |label: Label<'_>| {
            names.push(label.name().into_owned());
            Ok(())
        };
        let mut rows = 0;
        loop {
            let count = reader.read(max_rows, &mut take)?;
            rows += count as u64;
            if count < max_rows {
                assert!(reader.rows().is_none_or(|expected| expected == rows));
                assert_eq!(reader.read(max_rows, &mut take)?, 0);
                return Ok(names);
            }
        }
    }

    /// How a column is found, if it is there.
    fn find_column(path: &Path, name: &str) -> Result<Option<Column>, Failure> {
        let found = names(path, &Options::default())?.filter(|(names, _)| names.iter().any(|other| other == name));
        Ok(found.map(|(_, column)| column))
    }

    fn npy(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
        [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes(), data].concat()
    }

    fn parquet(columns: &[(&str, ArrayRef)]) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter_with_nullable(columns.iter().map(|(n, a)| (n, Arc::clone(a), true)));
        let (batch, mut bytes) = (batch.unwrap(), Vec::new());
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    }

    #[test]
    fn the_same_label_has_the_same_name_in_every_format() {
        let utf32 = |text: &str| text.chars().flat_map(|c| (c as u32).to_le_bytes()).collect::<Vec<_>>();
        let files = [
            ("y.csv", "y\n3\n-1\n3\n".into()),
            ("y.data", "3\n-1\n3\n".into()),
            ("y-idx1-ubyte", idx(0x09, &[3], &[3, 255, 3])),
            ("y.idx.gz", gzip(&idx(0x0c, &[3, 1], &[3, -1, 3].map(i32::to_be_bytes).concat()))),
            ("y.csv", "3\n -1.0\n+3e0\n".into()),
            ("y.svm", "3 1:5\n# no row\n-1\n3.0 2:7\n".into()),
            ("y.npy", npy("|i1", "(3,)", &[3, 255, 3])),
            ("y.npy", npy("<f4", "(3, 1)", &[3.0_f32, -1.0, 3.0].map(f32::to_le_bytes).concat())),
            ("y.npy", npy("<U2", "(3,)", &[utf32("3\0"), utf32("-1"), utf32("3\0")].concat())),
            ("y.parquet", parquet(&[("y", Arc::new(Int64Array::from(vec![3, -1, 3])))])),
            ("y.parquet", parquet(&[("y", Arc::new(Float32Array::from(vec![3.0, -1.0, 3.0])))])),
            ("y.parquet", parquet(&[("y", Arc::new(StringArray::from(vec!["3", "-1", "3"])))])),
        ];
        for (name, contents) in files {
            let scratch = Scratch::new(name, &contents);
            for max_rows in [1, 2, 3, 10] {
                assert_eq!(labels(&scratch.path, None, max_rows).unwrap(), ["3", "-1", "3"], "{name} {contents:?}");
            }
        }
    }

    #[test]
    fn text_and_large_numbers_keep_their_name() {
        let dictionary: DictionaryArray<Int8Type> = ["cat", "dog", "cat"].into_iter().collect();
        let big = |text: &str| text.chars().flat_map(|c| (c as u32).to_be_bytes()).collect::<Vec<_>>();
        for (name, contents, expected) in [
            ("y.csv", b"animal\ncat\n\"d, og\"\n cat \n".to_vec(), ["cat", "d, og", "cat"]),
            ("y.csv", "y\n0.5\n9007199254740993\nß\n".into(), ["0.5", "9007199254740993", "ß"]),
            ("y.npy", npy(">U3", "(3, 1)", &[big("cat"), big("dög"), big("c\0\0")].concat()), ["cat", "dög", "c"]),
            ("y.parquet", parquet(&[("y", Arc::new(dictionary))]), ["cat", "dog", "cat"]),
            ("y.parquet", parquet(&[("y", Arc::new(LargeStringArray::from(vec!["a", "b", "c"])))]), ["a", "b", "c"]),
            ("y.parquet", parquet(&[("y", Arc::new(StringViewArray::from(vec!["a", "b", "c"])))]), ["a", "b", "c"]),
            ("y.parquet", parquet(&[("y", Arc::new(BooleanArray::from(vec![true, false, true])))]), ["1", "0", "1"]),
            (
                "y.parquet",
                parquet(&[("y", Arc::new(UInt64Array::from(vec![u64::MAX, 1 << 62, 1])))]),
                ["18446744073709552000", "4611686018427387904", "1"],
            ),
        ] {
            let scratch = Scratch::new(name, &contents);
            assert_eq!(labels(&scratch.path, None, 2).unwrap(), expected, "{name} {expected:?}");
        }
    }

    #[test]
    fn a_column_is_either_label_or_features() {
        let (numbers, more): (ArrayRef, ArrayRef) =
            (Arc::new(Float32Array::from(vec![1.0, 2.0])), Arc::new(Float32Array::from(vec![3.0, 4.0])));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["cat", "dog"]));
        let table = parquet(&[("a", numbers), ("kind of", text), ("b", more)]);
        for (name, contents) in [("x.parquet", table), ("x.csv", b"a, kind of,b\n1,cat,3\n2,dog,4\n".to_vec())] {
            let scratch = Scratch::new(name, contents);
            assert_eq!(find_column(&scratch.path, "kind of").unwrap(), Some(Column::Named));
            assert_eq!(find_column(&scratch.path, "c").unwrap(), None);
            assert_eq!(labels(&scratch.path, Some("kind of"), 5).unwrap(), ["cat", "dog"]);
            let mut reader = open::<f32>(&scratch.path, &Options::default(), None, Some(&[0, 2])).unwrap();
            let mut block = Block::default();
            assert_eq!((reader.columns(), reader.read(5, &mut block)), (2, Ok(2)));
            assert_eq!(block, Block::Dense { values: vec![1.0, 3.0, 2.0, 4.0] });
            assert!(read_all::<f32>(&scratch.path, 5).is_err());
            for column in [None, Some("c")] {
                assert_eq!(labels(&scratch.path, column, 5).unwrap_err().exit_code(), 2);
            }
            let mut reader = open::<f32>(&scratch.path, &Options::default(), None, Some(&[2, 0])).unwrap();
            assert_eq!((reader.columns(), reader.read(5, &mut block)), (2, Ok(2)));
            assert_eq!(block, Block::Dense { values: vec![3.0, 1.0, 4.0, 2.0] }, "in the order that was asked for");
        }
    }

    #[test]
    fn columns_without_names_are_called_by_their_number() {
        let scratch = Scratch::new("letter.data", "T,2,8\nI, 5,12\n");
        assert_eq!(labels(&scratch.path, Some("0"), 5).unwrap(), ["T", "I"]);
        assert_eq!(labels(&scratch.path, Some("2"), 1).unwrap(), ["8", "12"]);
        assert_eq!(find_column(&scratch.path, "0").unwrap(), Some(Column::Numbered));
        let mut reader = open::<f32>(&scratch.path, &Options::default(), None, Some(&[1, 2])).unwrap();
        let mut block = Block::default();
        assert_eq!((reader.columns(), reader.read(5, &mut block)), (2, Ok(2)));
        assert_eq!(block, Block::Dense { values: vec![2.0, 8.0, 5.0, 12.0] });
        let numbers = Scratch::new("x.csv", "1,2\n3,4\n");
        assert_eq!(labels(&numbers.path, Some("1"), 5).unwrap(), ["2", "4"]);
        for name in ["2", "-1", "01", "+0", ""] {
            assert_eq!(find_column(&numbers.path, name).unwrap(), None, "{name}");
            assert!(labels(&numbers.path, Some(name), 5).is_err());
        }
        // With a header, only its names count.
        let named = Scratch::new("x.csv", "a,b\n3,4\n");
        assert_eq!(find_column(&named.path, "0").unwrap(), None);
        // Text may be a header or a mistake.
        for (text, picked) in [("0,1,y\n2,3,4\n", None), ("T,2,NA\nI,3,4\n", Some(&[1, 2][..]))] {
            let scratch = Scratch::new("x.csv", text);
            let failure = open::<f32>(&scratch.path, &Options::default(), None, picked).err().unwrap().to_string();
            assert!(failure.contains("beside numbers; a header has only names"), "{failure}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        for (name, contents, message) in [
            ("y.csv", b"y\n1\n\"\"\n2\n".to_vec(), "line 3"),
            ("y.csv", b"y,z\n1,2\n".to_vec(), "has 2 columns; expected one column of labels"),
            ("y.csv", b"y\n1\nnan\n".to_vec(), "line 3, field 1 (counted from 1) is NaN"),
            ("y.csv", b"y\na\n\xff\xfe\n".to_vec(), "not UTF-8"),
            (
                "y.npy",
                npy("<f4", "(2,)", &[1.0, f32::INFINITY].map(f32::to_le_bytes).concat()),
                "row 1 (counted from 0) is inf",
            ),
            ("y.npy", npy("|i1", "(1, 2)", &[1, 2]), "has 2 columns"),
            ("y.npy", npy("<U1", "(2,)", &[0; 7]), "truncated"),
            ("y.npy", npy("<U1", "(2, 2)", &[0; 16]), "expected one column of labels"),
            ("y.npy", npy("<U0", "(2,)", &[]), "truncated"),
            ("y.npy", npy("<U1", "(1,)", &[255; 4]), "row 0 (counted from 0) is not text"),
            ("y.npy", npy("<U1", "(1,)", &[0; 4]), "has nothing instead of a label"),
            ("y.npy", npy("<U99999999999999999999", "(1,)", &[0; 4]), "is not supported"),
            ("y.npy", npy("<U999999999999999999", "(1,)", &[0; 4]), "truncated"),
            ("y.idx", idx(0x08, &[1, 2], &[1, 2]), "has 2 columns"),
            ("y.idx", idx(0x0d, &[1], &f32::NAN.to_be_bytes()), "row 0 (counted from 0) is NaN"),
            ("y.svm", b"nan 1:2\n".to_vec(), "row 0 (counted from 0) is NaN"),
            ("y.parquet", parquet(&[("y", nulls)]), "row 1 (counted from 0), column \"y\" is null"),
        ] {
            let scratch = Scratch::new(name, &contents);
            let failure = labels(&scratch.path, None, 10).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{failure}");
            assert!(failure.to_string().contains(message), "{failure} does not say {message}");
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        let mut numbers = Numbers::new(8);
        let text: StringArray = (0..60).map(|_| Some(["cat", "dog", "mouse"][numbers.below(3)])).collect();
        let whole = [
            ("y.parquet", parquet(&[("y", Arc::new(text))])),
            ("y.npy", npy("<U3", "(20,)", &[b'a', 0, 0, 0].repeat(60))),
        ];
        for (name, bytes) in &whole {
            for _ in 0..400 {
                let mut damaged = bytes.clone();
                for _ in 0..=numbers.below(3) {
                    let at = numbers.below(damaged.len());
                    damaged[at] ^= 1 << numbers.below(8);
                }
                let scratch = Scratch::new(name, &damaged);
                if let Err(failure) = labels(&scratch.path, None, 7) {
                    assert!(failure.to_string().starts_with(&scratch.path.display().to_string()), "{failure}");
                }
            }
        }
    }
}
