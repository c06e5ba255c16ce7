//! Comma-separated numbers, with or without a header. Without one, columns are named by their number,
//! counted from 0.

use std::fs::File;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ReaderBuilder, Terminator};

use super::{
    Block, Column, Columns, Element, LONGEST_LINE, Progress, Reader, Writer, open_file, parse_number, position, quoted,
};
use crate::failure::Failure;
use crate::output::AtomicFile;

/// Bytes per read.
const BUFFER: usize = 1 << 18;

/// Reads a CSV file.
pub(super) struct CsvReader<T> {
    path: PathBuf,
    lines: csv::Reader<Metered>,
    /// The current line and its number.
    record: ByteRecord,
    line: u64,
    /// Whether `record` has yet to be consumed.
    pending: bool,
    /// Names of the fields from the header, or their numbers without one.
    names: Vec<String>,
    column: Column,
    fields: usize,
    /// Fields to leave out of the rows.
    left_out: Vec<usize>,
    total: u64,
    element: PhantomData<T>,
}

impl<T: Element> CsvReader<T> {
    /// Opens a file, leaving out the columns named in `without`.
    pub(super) fn open(path: &Path, without: &[&str]) -> Result<Self, Failure> {
        let mut reader = Self::open_column(path)?;
        reader.left_out = without.iter().map(|name| reader.find(name)).collect::<Result<_, _>>()?;
        if reader.columns() == 0 {
            return Err(Failure::input(path, format!("has no columns besides {without:?}")));
        }
        reader.check_first_row()?;
        Ok(reader)
    }

    /// Opens a file to read one column; the others need not be numbers.
    pub(super) fn open_column(path: &Path) -> Result<Self, Failure> {
        let (file, total) = open_file(path)?;
        let lines = ReaderBuilder::new()
            .has_headers(false)
            // This module compares lengths, for better messages.
            .flexible(true)
            // Trim a carriage return before the line feed like a space; this keeps line numbers simple.
            .terminator(Terminator::Any(b'\n'))
            .buffer_capacity(BUFFER)
            .from_reader(Metered { file, done: 0, allowance: 0 });
        let record = ByteRecord::new();
        let mut reader = Self {
            path: path.to_path_buf(),
            lines,
            record,
            line: 0,
            pending: false,
            names: Vec::new(),
            column: Column::Numbered,
            fields: 0,
            left_out: Vec::new(),
            total,
            element: PhantomData,
        };
        let mut any = reader.advance()?;
        reader.fields = reader.record.len();
        // A row with a missing or misspelt number is not a header: headers have no numbers.
        if reader.record.iter().any(is_text::<T>)
            && !reader.record.iter().any(|field| parse_number::<T>(field).is_some())
        {
            let name = |field: &[u8]| String::from_utf8_lossy(field.trim_ascii()).into_owned();
            reader.names = reader.record.iter().map(name).collect();
            reader.column = Column::Named;
            any = reader.advance()?;
        } else {
            reader.names = (0..reader.fields).map(|index| index.to_string()).collect();
        }
        if !any {
            return Err(Failure::input(path, "has no line of numbers; a table needs at least one row and one column"));
        }
        reader.pending = true;
        Ok(reader)
    }

    /// Checks that the first line of a file without a header has text only in columns left out.
    fn check_first_row(&self) -> Result<(), Failure> {
        let text = |(index, field): &(usize, &[u8])| is_text::<T>(field) && !self.left_out.contains(index);
        match self.record.iter().enumerate().find(text) {
            Some((index, field)) if self.column == Column::Numbered => {
                let place = format!("line {}, field {}", self.line, index + 1);
                let what = format!(
                    "has {} beside numbers; a header has only names, and without one columns are called 0, 1 and so on",
                    quoted(field)
                );
                Err(self.wrong(&place, &what))
            }
            _ => Ok(()),
        }
    }

    /// The column with this name.
    pub(super) fn find(&self, name: &str) -> Result<usize, Failure> {
        position(&self.path, &self.names, name)
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
            let what = format!("has {} fields instead of the {} of the first line", self.record.len(), self.fields);
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
            self.lines.get_mut().allowance = LONGEST_LINE;
            match self.lines.read_byte_record(&mut self.record) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
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
        for (index, field) in self.record.iter().enumerate() {
            if self.left_out.contains(&index) {
                continue;
            }
            let Some(value) = parse_number(field) else {
                let found = if field.trim_ascii().is_empty() { "nothing".into() } else { quoted(field) };
                let place = format!("line {}, field {}", self.line, index + 1);
                return Err(self.wrong(&place, &format!("has {found} instead of a number")));
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
                self.wrong(&place, "does not end; close an open quote, or check that this is a CSV file")
            }
            csv::ErrorKind::Io(error) => Failure::io(&self.path, "read", &error),
            kind => self.wrong(&place, &format!("is malformed: {kind:?}")),
        }
    }
}

/// Whether a field holds something other than a number.
fn is_text<T: Element>(field: &[u8]) -> bool {
    !field.trim_ascii().is_empty() && parse_number::<T>(field).is_none()
}

/// Finds a column by name, or by number in a file without a header.
pub(super) fn find_column(path: &Path, name: &str) -> Result<Option<Column>, Failure> {
    let reader = CsvReader::<f64>::open_column(path)?;
    if reader.names.iter().any(|other| other == name) {
        return Ok(Some(reader.column));
    }
    // Names beside numbers may be a malformed header.
    reader.check_first_row()?;
    Ok(None)
}

/// Line ends inside the fields of a record.
fn line_ends(record: &ByteRecord) -> u64 {
    record.as_slice().iter().map(|&byte| u64::from(byte == b'\n')).sum()
}

impl<T: Element> Reader<T> for CsvReader<T> {
    fn columns(&self) -> usize {
        self.fields - self.left_out.len()
    }

    fn rows(&self) -> Option<u64> {
        None
    }

    fn progress(&self) -> Progress {
        Progress { done: self.lines.get_ref().done.min(self.total), total: self.total }
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

/// A file that counts the bytes read, and refuses to read endlessly within one line.
struct Metered {
    file: File,
    done: u64,
    /// Bytes left before the current line must end.
    allowance: u64,
}

impl Read for Metered {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.allowance == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let count = self.file.read(bytes)?;
        self.done += count as u64;
        self.allowance = self.allowance.saturating_sub(count as u64);
        Ok(count)
    }
}

/// Writes a CSV file with a header.
pub(super) struct CsvWriter<T> {
    path: PathBuf,
    file: AtomicFile,
    width: usize,
    element: PhantomData<T>,
}

impl<T: Element> CsvWriter<T> {
    pub(super) fn create(path: &Path, columns: Columns) -> Result<Self, Failure> {
        let mut file = AtomicFile::create(path)?;
        file.write_all(&line(columns.names())).map_err(|error| Failure::io(path, "write", &error))?;
        Ok(Self { path: path.to_path_buf(), file, width: columns.width(), element: PhantomData })
    }

    fn write_rows(&mut self, rows: &[T]) -> io::Result<()> {
        for row in rows.chunks_exact(self.width) {
            for (column, value) in row.iter().enumerate() {
                let separator = if column == 0 { "" } else { "," };
                // Debug and Display both give the fewest digits that read back the same; Debug knows exponents, where
                // Display writes 1e-30 in 32 characters.
                write!(self.file, "{separator}{value:?}")?;
            }
            self.file.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// A line of text, with quotes where they are needed.
pub(super) fn line(fields: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(fields);
    writer.into_inner().unwrap_or_default()
}

impl<T: Element> Writer<T> for CsvWriter<T> {
    fn write(&mut self, rows: &[T]) -> Result<(), Failure> {
        debug_assert!(rows.len().is_multiple_of(self.width), "whole rows");
        self.write_rows(rows).map_err(|error| Failure::io(&self.path, "write", &error))
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        self.file.commit()
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
        file.set_len(10 * LONGEST_LINE).unwrap();
        let failure = read_all::<f32>(&scratch.path, 10).unwrap_err();
        assert!(failure.to_string().contains("line 2 (counted from 1) does not end"), "{failure}");
    }

    #[test]
    fn written_as_names_and_shortest_numbers() {
        let scratch = Scratch::new("x.csv", "");
        let mut writer = Box::new(CsvWriter::create(&scratch.path, Columns::Complex(2)).unwrap());
        writer.write(&[0.1_f32, 1e-30, -1.0, 16_777_216.0]).unwrap();
        writer.finish().unwrap();
        let text = std::fs::read_to_string(&scratch.path).unwrap();
        assert_eq!(text, "z0_re,z0_im,z1_re,z1_im\n0.1,1e-30,-1.0,16777216.0\n");
    }
}
