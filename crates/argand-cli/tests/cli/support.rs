//! Shared by the suites: a working folder, and tables to put there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use argand::{FeatureMap, Rows, Spec};
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A temporary folder in which the program runs.
pub struct Workspace {
    pub folder: tempfile::TempDir,
}

/// The program's answer.
#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Workspace {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A workspace with `x.npy`, a table of 6 rows and 3 columns.
    pub fn with_table() -> Self {
        let workspace = Self::new();
        workspace.write("x.npy", Table::new(6, 3).npy());
        workspace
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// All files and their contents.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let files = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap());
        files
            .filter(|file| file.file_type().unwrap().is_file())
            .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
            .collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.contents().into_keys().collect()
    }

    /// The program in this folder, with arguments separated by spaces.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argand"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &str) -> Answer {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command that must succeed.
    pub fn succeed(&self, arguments: &str) -> Answer {
        let answer = self.run(arguments);
        assert_eq!(answer.code, Some(0), "{arguments}: {answer:?}");
        answer
    }

    /// Runs a command that must fail as the user's mistake, with a message that contains all of `words`, and leave
    /// every file as it was: without an `out.npy` and with one.
    pub fn refuse(&self, arguments: &str, words: &[&str]) {
        for existing in [false, true] {
            if existing {
                self.write("out.npy", "precious");
            }
            let before = self.contents();
            let Answer { code, stdout, stderr } = self.run(arguments);
            assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments}: {stderr}");
            assert!(words.iter().all(|word| stderr.contains(word)), "{arguments}: {stderr:?} does not have {words:?}");
            assert!(!stderr.contains("panicked"), "{arguments}: {stderr}");
            assert!(self.contents() == before, "{arguments}: files changed, now there are {:?}", self.names());
        }
        fs::remove_file(self.path("out.npy")).unwrap();
    }
}

/// A table of numbers exact in `f32`, some of them negative or zero.
#[derive(Clone)]
pub struct Table {
    pub columns: usize,
    pub values: Vec<f64>,
}

impl Table {
    pub fn new(rows: usize, columns: usize) -> Self {
        let value = |index: usize| ((index * 7 + index / columns * 3) % 11) as f64 / 4.0 - 1.25;
        Self { columns, values: (0..rows * columns).map(value).collect() }
    }

    /// The same table with one number replaced.
    pub fn with(&self, row: usize, column: usize, value: f64) -> Self {
        let mut table = self.clone();
        table.values[row * self.columns + column] = value;
        table
    }

    pub fn rows(&self) -> std::slice::ChunksExact<'_, f64> {
        self.values.chunks_exact(self.columns)
    }

    pub fn npy(&self) -> Vec<u8> {
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        npy("<f8", self.rows().len(), self.columns, &bytes)
    }

    pub fn csv(&self) -> Vec<u8> {
        let line = |row: &[f64]| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n";
        self.rows().map(line).collect::<String>().into_bytes()
    }

    /// Zeros are left out, so the last column needs a nonzero number somewhere.
    pub fn libsvm(&self) -> Vec<u8> {
        let line = |row: &[f64]| {
            let entries = row.iter().enumerate().filter(|&(_, &value)| value != 0.0);
            "1".to_owned()
                + &entries.map(|(column, value)| format!(" {}:{value}", column + 1)).collect::<String>()
                + "\n"
        };
        self.rows().map(line).collect::<String>().into_bytes()
    }

    pub fn parquet(&self) -> Vec<u8> {
        let column = |index| Arc::new(self.rows().map(|row: &[f64]| row[index]).collect::<Float64Array>()) as ArrayRef;
        parquet(
            &RecordBatch::try_from_iter((0..self.columns).map(|index| (format!("x{index}"), column(index)))).unwrap(),
        )
    }

    /// Gzipped.
    pub fn idx(&self) -> Vec<u8> {
        let shape = [self.rows().len(), self.columns].map(|size| u32::try_from(size).unwrap().to_be_bytes());
        let values: Vec<u8> = self.values.iter().flat_map(|value| value.to_be_bytes()).collect();
        gzip(&[&[0, 0, 0x0e, 2], shape.as_flattened(), &values].concat())
    }

    /// The bytes of a file in the format of its extension.
    pub fn file(&self, name: &str) -> Vec<u8> {
        match Path::new(name).extension().and_then(|ending| ending.to_str()) {
            Some("npy") => self.npy(),
            Some("csv") => self.csv(),
            Some("gz") => self.idx(),
            Some("parquet") => self.parquet(),
            _ => self.libsvm(),
        }
    }

    /// The library's features of the rows.
    pub fn features(&self, spec: &Spec) -> Vec<f32> {
        spec.sketch().unwrap().transform(&[self.view(&self.singles())]).unwrap()
    }

    #[allow(clippy::cast_possible_truncation, reason = "the values are exact in f32")]
    pub fn singles(&self) -> Vec<f32> {
        self.values.iter().map(|&value| value as f32).collect()
    }

    pub fn view<'a>(&self, singles: &'a [f32]) -> argand::Input<'a, f32> {
        Rows::new(singles, singles.len() / self.columns, self.columns).unwrap().into()
    }
}

/// An NPY file.
pub fn npy(dtype: &str, rows: usize, columns: usize, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").bytes());
    bytes.extend(data);
    bytes
}

/// Compressed bytes.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A Parquet file as other programs write it.
pub fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// The numbers of an NPY file of this type and shape.
pub fn parse_npy(bytes: &[u8], dtype: &str, rows: usize, columns: usize) -> Vec<f32> {
    let (header, data) = bytes.split_at(128);
    assert_eq!(header, npy(dtype, rows, columns, &[]), "{}", String::from_utf8_lossy(header));
    let (numbers, rest) = data.as_chunks();
    assert!(rest.is_empty());
    numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// The numbers of a CSV file with names `z0`, `z1` and so on.
pub fn parse_csv(bytes: &[u8], columns: usize) -> Vec<f32> {
    let mut lines = str::from_utf8(bytes).unwrap().lines();
    let names: Vec<_> = (0..columns).map(|column| format!("z{column}")).collect();
    assert_eq!(lines.next().unwrap(), names.join(","));
    lines.flat_map(|line| line.split(',')).map(|field| field.parse().unwrap()).collect()
}

/// The numbers of a Parquet file with columns `z0`, `z1` and so on.
pub fn parse_parquet(path: &Path, columns: usize) -> Vec<f32> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    let mut numbers = Vec::new();
    for batch in reader.map(Result::unwrap) {
        assert_eq!(batch.num_columns(), columns);
        assert_eq!(batch.schema().field(columns - 1).name(), &format!("z{}", columns - 1));
        let arrays: Vec<_> = batch.columns().iter().map(|column| column.as_primitive::<Float32Type>()).collect();
        numbers.extend((0..batch.num_rows()).flat_map(|row| arrays.iter().map(move |array| array.value(row))));
    }
    numbers
}

pub fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

pub const INPUTS: [&str; 5] = ["x.npy", "x.csv", "x.parquet", "x.libsvm", "x.idx.gz"];
pub const OUTPUTS: [&str; 3] = ["z.npy", "z.csv", "z.parquet"];
