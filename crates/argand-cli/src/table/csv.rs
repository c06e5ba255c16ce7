//! Numbers separated by commas or other characters, with or without a header, also gzipped. Without a header, columns are named by
//! their number, counted from 0.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::{ByteRecord, ReaderBuilder, Terminator};
use flate2::read::MultiGzDecoder;

use super::{
    Block, Column, Columns, Element, Format, Header, Options, Progress, Reader, Writer, is_missing, open_file,
    parse_number, position, quoted, warn_of_cut,
};
use crate::failure::Failure;
use crate::output::AtomicFile;

/// Bytes per read.
const BUFFER: usize = 1 << 18;

/// Reads a CSV file.
pub(super) struct CsvReader<T> {
    path: PathBuf,
    options: Options,
    lines: csv::Reader<Metered>,
    /// The current line and its number.
    record: ByteRecord,
    line: u64,
    /// Whether `record` has yet to be consumed.
    pending: bool,
    /// Names of the fields from the header, if there is one.
    names: Option<Vec<String>>,
    fields: usize,
    /// The fields that make up a row.
    picked: Vec<usize>,
    total: u64,
    element: PhantomData<T>,
}

impl<T: Element> CsvReader<T> {
    /// Opens a file to read the picked columns.
    pub(super) fn open(path: &Path, options: &Options, picked: Option<&[usize]>) -> Result<Self, Failure> {
        let mut reader = Self::open_column(path, options)?;
        reader.picked = picked.map_or_else(|| (0..reader.fields).collect(), <[usize]>::to_vec);
        if reader.picked.is_empty() {
            return Err(Failure::input(path, "has no columns of features besides those left out"));
        }
        reader.check_first_row()?;
        Ok(reader)
    }

    /// Opens a file to read one column; the others need not be numbers.
    pub(super) fn open_column(path: &Path, options: &Options) -> Result<Self, Failure> {
        let (file, total) = open_file(path)?;
        let lines = ReaderBuilder::new()
            .has_headers(false)
            .delimiter(options.delimiter.unwrap_or_else(|| delimiter_of(path)))
            // This module compares lengths, for better messages.
            .flexible(true)
            // Trim a carriage return before the line feed like a space; this keeps line numbers simple.
            .terminator(Terminator::Any(b'\n'))
            .buffer_capacity(BUFFER)
            .from_reader(Metered::new(file, Format::of(path)? == Format::CsvGz));
        let record = ByteRecord::new();
        let mut reader = Self {
            path: path.to_path_buf(),
            options: *options,
            lines,
            record,
            line: 0,
            pending: false,
            names: None,
            fields: 0,
            picked: Vec::new(),
            total,
            element: PhantomData,
        };
        let mut any = reader.advance()?;
        reader.fields = reader.record.len();
        // Its place, its number and its name.
        let bytes = 64 * reader.fields as u64;
        if bytes > options.budget {
            return Err(options.too_large(path, &format!("a line of {} fields", reader.fields), bytes));
        }
        if any && reader.is_header() {
            let name = |field: &[u8]| String::from_utf8_lossy(field.trim_ascii()).into_owned();
            reader.names = Some(reader.record.iter().map(name).collect());
            any = reader.advance()?;
            reader.explain_header(any);
        }
        if !any {
            return Err(Failure::input(path, "has no line of numbers; a table needs at least one row and one column"));
        }
        reader.pending = true;
        Ok(reader)
    }

    /// Whether the first line, the current one, names the columns.
    fn is_header(&self) -> bool {
        match self.options.header {
            Header::Yes => true,
            Header::No => false,
            Header::Auto => {
                // A row with a missing or misspelt number is not a header: headers have no numbers.
                let text = |field: &[u8]| is_text::<T>(field) && !is_missing(field);
                self.record.iter().any(text) && !self.record.iter().any(|field| parse_number::<T>(field).is_some())
                    || counts(&self.record)
            }
        }
    }

    /// Says that the first line was taken for a header, if that is not obvious from the second, the current one.
    fn explain_header(&self, any: bool) {
        let Some(names) = self.names.as_ref().filter(|_| any && self.options.header == Header::Auto) else { return };
        let text = |name: &String| is_text::<T>(name.as_bytes());
        let obvious = names.iter().zip(self.record.iter()).any(|(name, field)| text(name) && !is_text::<T>(field));
        if !obvious {
            let first = super::listed(names);
            crate::warn(&format!(
                "{}: took line 1 ({first}) for names of columns; use --header no if it is a row, or yes to be sure",
                self.path.display()
            ));
        }
    }

    /// Checks that the first line of a file without a header has numbers in the picked columns.
    fn check_first_row(&self) -> Result<(), Failure> {
        let text = |&index: &usize| {
            let field = self.record.get(index).unwrap_or_default();
            is_text::<T>(field) && !(self.options.missing && is_missing(field))
        };
        match self.picked.iter().copied().find(text) {
            Some(index) if self.names.is_none() => {
                let place = format!("line {}, field {}", self.line, index + 1);
                let what = format!(
                    "has {} beside numbers; a header has only names (or use --header yes), and without one columns are \
                     called 0, 1 and so on{}",
                    quoted(&self.record[index]),
                    self.suspicion()
                );
                Err(self.wrong(&place, &what))
            }
            _ => Ok(()),
        }
    }

    /// The delimiter that the only field of a line seems to have, as advice.
    fn suspicion(&self) -> String {
        let named = [(b';', "semicolon"), (b'\t', "tab"), (b'|', "'|'"), (b' ', "space"), (b',', "comma")];
        let field = self.record.get(0).unwrap_or_default().trim_ascii();
        let other = named.iter().find(|(byte, _)| self.fields == 1 && field.contains(byte));
        other.map_or(String::new(), |(_, name)| {
            format!("; perhaps fields are separated otherwise: try --delimiter {name}")
        })
    }

    /// The names of the fields, and whether they are from a header.
    fn into_names(self) -> (Vec<String>, Column) {
        match self.names {
            Some(names) => (names, Column::Named),
            None => ((0..self.fields).map(|index| index.to_string()).collect(), Column::Numbered),
        }
    }

    /// The number of fields in a line.
    pub(super) fn fields(&self) -> usize {
        self.fields
    }

    /// The column with this name.
    pub(super) fn find(&self, name: &str) -> Result<usize, Failure> {
        match &self.names {
            Some(names) => position(&self.path, names, name),
            None => (0..self.fields).find(|index| index.to_string() == name).ok_or_else(|| {
                Failure::input(&self.path, format!("has no column {name:?}; it has 0 to {}", self.fields - 1))
            }),
        }
    }

    /// Passes one field of each of the next rows to `take`, which may fail; returns the number of rows.
    pub(super) fn read_field(
        &mut self,
        field: usize,
        max_rows: usize,
        take: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<usize, Failure> {
        for row in 0..max_rows {
            if !self.next_record()? {
                return Ok(row);
            }
            take(&self.record[field]).map_err(|what| {
                let place = format!("line {}, field {}", self.line, field + 1);
                self.wrong(&place, &what)
            })?;
        }
        Ok(max_rows)
    }

    /// Reads the next row into `record` and checks its number of fields; returns whether there was one.
    fn next_record(&mut self) -> Result<bool, Failure> {
        if !self.pending && !self.advance()? {
            return Ok(false);
        }
        self.pending = false;
        if self.record.len() != self.fields {
            let what = format!(
                "has {} fields instead of the {} of the first line{}",
                self.record.len(),
                self.fields,
                self.suspicion()
            );
            return Err(self.wrong(&format!("line {}", self.line), &what));
        }
        Ok(true)
    }

    /// Reads the next line into `record`; returns whether there was one. Blank lines are allowed only at the end: between
    /// two rows one may be a missing number.
    fn advance(&mut self) -> Result<bool, Failure> {
        let mut blank = None;
        loop {
            self.line = self.lines.position().line();
            self.lines.get_mut().allowance = self.options.longest_line();
            match self.lines.read_byte_record(&mut self.record) {
                Ok(true) => {}
                Ok(false) => {
                    if self.lines.get_ref().last.is_some_and(|byte| byte != b'\n') {
                        warn_of_cut(&self.path);
                    }
                    return Ok(false);
                }
                Err(error) => return Err(self.failure(error)),
            }
            if self.record.len() == 1 && self.record[0].trim_ascii().is_empty() {
                blank.get_or_insert(self.line);
                continue;
            }
            // The parser skips empty lines but counts them; a line break inside quotes does not end a line.
            let spanned = self.lines.position().line() - self.line;
            if spanned > 1 && spanned - 1 > line_ends(&self.record) {
                blank.get_or_insert(self.line);
            }
            return match blank {
                None => Ok(true),
                Some(line) => {
                    Err(self.wrong(&format!("line {line}"), "is blank, and more lines follow; remove it or fill it in"))
                }
            };
        }
    }

    /// Appends the numbers of the line in `record`.
    fn take(&mut self, values: &mut Vec<T>) -> Result<(), Failure> {
        for &index in &self.picked {
            let field = &self.record[index];
            let value = match parse_number(field) {
                Some(value) => value,
                None if self.options.missing && is_missing(field) => T::from_f64(f64::NAN),
                None => {
                    let found = if field.trim_ascii().is_empty() { "nothing".into() } else { quoted(field) };
                    let place = format!("line {}, field {}", self.line, index + 1);
                    let advice =
                        if is_missing(field) { "; use --missing drop or mean".into() } else { self.suspicion() };
                    return Err(self.wrong(&place, &format!("has {found} instead of a number{advice}")));
                }
            };
            values.push(value);
        }
        Ok(())
    }

    /// A fault at `place`, a line or a field in it.
    fn wrong(&self, place: &str, what: &str) -> Failure {
        Failure::input(&self.path, format!("{place} (counted from 1) {what}"))
    }

    fn failure(&self, error: csv::Error) -> Failure {
        let place = format!("line {}", self.line);
        match error.into_kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let longest = crate::info::bytes(self.options.longest_line());
                let advice = "close an open quote, check that this is a CSV file, or raise --memory-limit";
                self.wrong(&place, &format!("does not end within {longest}; {advice}"))
            }
            csv::ErrorKind::Io(error) => super::idx::failure(&self.path, &error),
            kind => self.wrong(&place, &format!("is malformed: {kind:?}")),
        }
    }
}

/// What separates fields in a file with this extension.
pub(super) fn delimiter_of(path: &Path) -> u8 {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if name.trim_end_matches(".gz").ends_with(".tsv") { b'\t' } else { b',' }
}

/// Whether a field holds something other than a number.
fn is_text<T: Element>(field: &[u8]) -> bool {
    !field.trim_ascii().is_empty() && parse_number::<T>(field).is_none()
}

/// Whether a line counts its fields: pandas writes such names where there are no others.
fn counts(record: &ByteRecord) -> bool {
    let whole = |field: &[u8]| str::from_utf8(field.trim_ascii()).ok()?.parse::<u64>().ok();
    let first = record.get(0).and_then(whole).filter(|&first| first <= 1);
    first.is_some_and(|first| {
        record.len() > 2 && record.iter().zip(first..).all(|(field, number)| whole(field) == Some(number))
    })
}

/// The names of the columns, or their numbers.
pub(super) fn names(path: &Path, options: &Options) -> Result<(Vec<String>, Column), Failure> {
    Ok(CsvReader::<f64>::open_column(path, options)?.into_names())
}

/// Line ends inside the fields of a record.
fn line_ends(record: &ByteRecord) -> u64 {
    record.as_slice().iter().map(|&byte| u64::from(byte == b'\n')).sum()
}

impl<T: Element> Reader<T> for CsvReader<T> {
    fn columns(&self) -> usize {
        self.picked.len()
    }

    fn rows(&self) -> Option<u64> {
        None
    }

    fn progress(&self) -> Progress {
        let done = (&*self.lines.get_ref().file).stream_position().unwrap_or(0);
        Progress { done: done.min(self.total), total: self.total }
    }

    fn read(&mut self, max_rows: usize, block: &mut Block<T>) -> Result<usize, Failure> {
        let values = block.clear_dense();
        for row in 0..max_rows {
            if !self.next_record()? {
                return Ok(row);
            }
            self.take(values)?;
        }
        Ok(max_rows)
    }
}

/// A file, decompressed if need be, that refuses to be read endlessly within one line.
struct Metered {
    file: Arc<File>,
    contents: Box<dyn Read + Send>,
    /// Bytes left before the current line must end.
    allowance: u64,
    /// The last byte read.
    last: Option<u8>,
}

impl Metered {
    fn new(file: File, compressed: bool) -> Self {
        let file = Arc::new(file);
        let plain = Arc::clone(&file);
        let contents: Box<dyn Read + Send> = if compressed {
            Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(BUFFER, plain)))
        } else {
            Box::new(plain)
        };
        Self { file, contents, allowance: 0, last: None }
    }
}

impl Read for Metered {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.allowance == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let count = self.contents.read(bytes)?;
        self.last = bytes[..count].last().copied().or(self.last);
        self.allowance = self.allowance.saturating_sub(count as u64);
        Ok(count)
    }
}

/// Writes a CSV file with a header.
pub(super) struct CsvWriter<T> {
    path: PathBuf,
    file: AtomicFile,
    width: usize,
    delimiter: char,
    element: PhantomData<T>,
}

impl<T: Element> CsvWriter<T> {
    pub(super) fn create(path: &Path, columns: Columns) -> Result<Self, Failure> {
        let mut file = AtomicFile::create(path)?;
        let delimiter = delimiter_of(path);
        file.write_all(&line(delimiter, columns.names())).map_err(|error| Failure::io(path, "write", &error))?;
        let (path, delimiter) = (path.to_path_buf(), char::from(delimiter));
        Ok(Self { path, file, width: columns.width(), delimiter, element: PhantomData })
    }

    fn write_rows(&mut self, rows: &[T]) -> io::Result<()> {
        for row in rows.chunks_exact(self.width) {
            for (column, value) in row.iter().enumerate() {
                if column > 0 {
                    write!(self.file, "{}", self.delimiter)?;
                }
                // Debug and Display both give the fewest digits that read back the same; Debug knows exponents, where
                // Display writes 1e-30 in 32 characters.
                write!(self.file, "{value:?}")?;
            }
            self.file.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// A line of text, with quotes where they are needed.
pub(super) fn line(delimiter: u8, fields: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(fields);
    writer.into_inner().unwrap_or_default()
}

impl<T: Element> Writer<T> for CsvWriter<T> {
    fn write(&mut self, rows: &[T]) -> Result<(), Failure> {
        debug_assert!(rows.len().is_multiple_of(self.width), "whole rows");
        self.write_rows(rows).map_err(|error| Failure::io(&self.path, "write", &error))
    }

    fn finish(self: Box<Self>) -> Result<AtomicFile, Failure> {
        Ok(self.file)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::tests::{Scratch, read_all};
    use super::*;

    #[test]
    fn tolerated_spellings() {
        for (text, columns, expected) in [
            ("1,2\n3,4\n", 2, vec![1.0, 2.0, 3.0, 4.0]),
            ("1,2\n3,4", 2, vec![1.0, 2.0, 3.0, 4.0]),
            ("a,b\r\n1,2\r\n3,4\r\n\r\n", 2, vec![1.0, 2.0, 3.0, 4.0]),
            ("\u{feff}1,2\n3,4\n\n \n", 2, vec![1.0, 2.0, 3.0, 4.0]),
            ("\u{feff}x, y\n 1 ,\t2\n+3e0,.4E1\n", 2, vec![1.0, 2.0, 3.0, 4.0]),
            ("\"a, or\nb\",\"c\"\n\"1\",2\n", 2, vec![1.0, 2.0]),
            (",a\n0,1\n", 2, vec![0.0, 1.0]),
            ("5\n6\n", 1, vec![5.0, 6.0]),
            ("inf,-Infinity\n", 2, vec![f64::INFINITY, f64::NEG_INFINITY]),
        ] {
            let scratch = Scratch::new("x.csv", text);
            assert_eq!(read_all::<f64>(&scratch.path, 1).unwrap(), (columns, expected.clone()), "{text:?}");
            assert_eq!(read_all::<f64>(&scratch.path, 7).unwrap(), (columns, expected), "{text:?}");
        }
        let scratch = Scratch::new("x.csv", "nan,1\n");
        assert!(read_all::<f32>(&scratch.path, 1).unwrap().1[0].is_nan());
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, message) in [
            ("a,b\n1,2\n3,x\n", "line 3, field 2 (counted from 1) has \"x\" instead of a number"),
            ("1,2\r\n3,x\r\n", "line 2, field 2 (counted from 1) has \"x\" instead of a number"),
            ("1,2\n,4\n", "line 2, field 1 (counted from 1) has nothing instead of a number"),
            ("1,\n3,4\n", "line 1, field 2 (counted from 1) has nothing"),
            ("1,2,N/A\n3,4,5\n", "line 1, field 3 (counted from 1) has \"N/A\" beside numbers"),
            ("1,\"2\n3,4\n", "line 1, field 2 (counted from 1) has \"2\\n3,4\" beside numbers"),
            ("\"a\nb\",c\n1,2\n3, \n", "line 4, field 2 (counted from 1)"),
            ("1,2\n3,4,5\n", "line 2 (counted from 1) has 3 fields instead of the 2 of the first line"),
            ("a,b\n1\n", "line 2 (counted from 1) has 1 fields instead of the 2"),
            ("1,2\n\n3,4\n", "line 2 (counted from 1) is blank"),
            ("1\r\n2\r\n\r\n3\r\n", "line 3 (counted from 1) is blank"),
            ("a\n\n\n3\n", "line 2 (counted from 1) is blank"),
            ("a,b\n", "has no line of numbers"),
            ("\n\n", "has no line of numbers"),
            ("", "is empty"),
        ] {
            let scratch = Scratch::new("x.csv", text);
            let failure = read_all::<f32>(&scratch.path, 10).unwrap_err();
            assert_eq!(failure.exit_code(), 2);
            assert!(failure.to_string().contains(message), "{failure} does not say {message}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_in_bounded_memory() {
        let scratch = Scratch::new("x.csv", "1,2\n\"");
        let file = File::options().write(true).open(&scratch.path).unwrap();
        file.set_len(10 * Options::default().longest_line()).unwrap();
        let failure = read_all::<f32>(&scratch.path, 10).unwrap_err();
        assert!(failure.to_string().contains("line 2 (counted from 1) does not end"), "{failure}");
    }

    /// The columns and numbers of a text, read with options.
    fn read_with(name: &str, contents: &[u8], options: &Options) -> Result<(Vec<String>, Vec<f64>), Failure> {
        let scratch = Scratch::new(name, contents);
        let names = names(&scratch.path, options)?.0;
        let mut reader = CsvReader::<f64>::open(&scratch.path, options, None)?;
        let mut block = Block::default();
        reader.read(100, &mut block)?;
        let Block::Dense { values } = block else { unreachable!("text is dense") };
        Ok((names, values))
    }

    #[test]
    fn headers_are_decided_by_option_or_by_contents() {
        let [auto, yes, no] =
            [Header::Auto, Header::Yes, Header::No].map(|header| Options { header, ..Options::default() });
        let numbers = |values: &[f64]| values.to_vec();
        for (text, options, names, values) in [
            // Names that are numbers: pandas counts columns that have no names.
            ("0,1,2\n5,6,7\n", &auto, ["0", "1", "2"], numbers(&[5.0, 6.0, 7.0])),
            ("1,2,3\n5,6,7\n", &auto, ["1", "2", "3"], numbers(&[5.0, 6.0, 7.0])),
            ("1,2,3\n5,6,7\n", &no, ["0", "1", "2"], numbers(&[1.0, 2.0, 3.0, 5.0, 6.0, 7.0])),
            ("3,1,2\n5,6,7\n", &auto, ["0", "1", "2"], numbers(&[3.0, 1.0, 2.0, 5.0, 6.0, 7.0])),
            ("3,1,2\n5,6,7\n", &yes, ["3", "1", "2"], numbers(&[5.0, 6.0, 7.0])),
            ("a,b,c\n5,6,7\n", &auto, ["a", "b", "c"], numbers(&[5.0, 6.0, 7.0])),
        ] {
            let (got, numbers) = read_with("x.csv", text.as_bytes(), options).unwrap();
            assert_eq!((got.as_slice(), numbers), (&names.map(str::to_owned)[..], values), "{text}");
        }
        // A first row in which everything is missing is a row.
        let failure = read_with("x.csv", b"?,NA\n1,2\n", &auto).unwrap_err().to_string();
        assert!(failure.contains("line 1, field 1 (counted from 1) has \"?\""), "{failure}");
        let failure = read_with("x.csv", b"a,b\n1,2\n", &no).unwrap_err().to_string();
        assert!(failure.contains("has \"a\" beside numbers"), "{failure}");
    }

    #[test]
    fn other_delimiters_and_compressed_text() {
        let expected = vec![1.0, 2.5, 3.0, 4.0];
        let semicolon = Options { delimiter: Some(b';'), ..Options::default() };
        for (name, contents, options) in [
            ("x.tsv", b"a\tb\n1\t2.5\n3\t4\n".to_vec(), Options::default()),
            ("x.csv", b"a;b\n1;2.5\n3;4\n".to_vec(), semicolon),
            ("x.csv.gz", super::super::idx::tests::gzip(b"a,b\n1,2.5\n3,4\n"), Options::default()),
            ("X.TSV.GZ", super::super::idx::tests::gzip(b"a\tb\n1\t2.5\n3\t4\n"), Options::default()),
        ] {
            assert_eq!(read_with(name, &contents, &options).unwrap(), (vec!["a".into(), "b".into()], expected.clone()));
        }
        let cut = super::super::idx::tests::gzip(b"a,b\n1,2.5\n3,4\n");
        let failure = read_with("x.csv.gz", &cut[..cut.len() - 9], &Options::default()).unwrap_err().to_string();
        assert!(failure.contains("truncated"), "{failure}");
        let failure = read_with("x.csv", b"1;2\n3;4\n", &Options::default()).unwrap_err().to_string();
        assert!(failure.contains("--delimiter semicolon"), "{failure}");
    }

    #[test]
    fn missing_numbers_are_nan_if_allowed() {
        let options = Options { missing: true, ..Options::default() };
        let (_, values) = read_with("x.csv", b"a,b,c\n1,,NA\n?,2,n/a\n", &options).unwrap();
        let missing: Vec<bool> = values.iter().map(|value| value.is_nan()).collect();
        assert_eq!(missing, [false, true, true, true, false, true]);
        assert!(read_with("x.csv", b"a,b\n1,x\n", &options).is_err());
    }

    #[test]
    fn written_as_names_and_shortest_numbers() {
        let scratch = Scratch::new("x.csv", "");
        let mut writer = Box::new(CsvWriter::create(&scratch.path, Columns::Complex(2)).unwrap());
        writer.write(&[0.1_f32, 1e-30, -1.0, 16_777_216.0]).unwrap();
        writer.finish().unwrap().commit().unwrap();
        let text = std::fs::read_to_string(&scratch.path).unwrap();
        assert_eq!(text, "z0_re,z0_im,z1_re,z1_im\n0.1,1e-30,-1.0,16777216.0\n");
    }
}
