//! LIBSVM (also called SVMlight) text: `label index:value index:value … # comment`, indices ascending from 1.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use super::{Block, Element, Options, Progress, Reader, open_file, parse_number, quoted, warn_of_cut};
use crate::failure::Failure;

/// Bytes per read.
const BUFFER: usize = 1 << 18;

/// The last column that the library takes, counted from 0: it allows 2^31.
const LAST_COLUMN: u32 = (1 << 31) - 1;

/// Reads a LIBSVM file. Labels are checked and ignored.
pub(super) struct LibsvmReader<T> {
    lines: Lines,
    rows: u64,
    columns: usize,
    /// Numbers in the fullest row.
    fullest: usize,
    total: u64,
    element: PhantomData<T>,
}

impl<T: Element> LibsvmReader<T> {
    /// Reads the file once to check it and to count its rows and columns.
    pub(super) fn open(path: &Path, options: &Options, columns: Option<usize>) -> Result<Self, Failure> {
        let (mut lines, total) = Lines::open(path, options)?;
        let (mut rows, mut used, mut fullest) = (0, 0, 0);
        loop {
            let mut entries = 0;
            let entry = |column, _| {
                used = used.max(column as usize + 1);
                entries += 1;
            };
            if lines.next_row::<T>(columns, entry)?.is_none() {
                break;
            }
            fullest = fullest.max(entries);
            rows += 1;
        }
        let columns = columns.unwrap_or(used);
        if rows == 0 || columns == 0 {
            let what = format!("has {rows} rows and {columns} columns; a table needs at least one of each");
            return Err(Failure::input(path, what));
        }
        lines.text.seek(SeekFrom::Start(0)).map_err(|error| Failure::io(path, "read", &error))?;
        (lines.number, lines.done) = (0, 0);
        Ok(Self { lines, rows, columns, fullest, total, element: PhantomData })
    }
}

impl<T: Element> Reader<T> for LibsvmReader<T> {
    fn columns(&self) -> usize {
        self.columns
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn row_bytes(&self) -> usize {
        size_of::<u64>() + self.fullest * (size_of::<u32>() + size_of::<T>())
    }

    fn progress(&self) -> Progress {
        Progress { done: self.lines.done.min(self.total), total: self.total }
    }

    fn read(&mut self, max_rows: usize, block: &mut Block<T>) -> Result<usize, Failure> {
        let (indptr, indices, values) = block.clear_sparse();
        indptr.push(0);
        for row in 0..max_rows {
            let store = |column, value| {
                indices.push(column);
                values.push(value);
            };
            if self.lines.next_row(Some(self.columns), store)?.is_none() {
                return Ok(row);
            }
            indptr.push(values.len() as u64);
        }
        Ok(max_rows)
    }
}

/// Reads the file line by line.
pub(super) struct Lines {
    path: PathBuf,
    text: BufReader<File>,
    line: Vec<u8>,
    longest: u64,
    /// Number of the current line, counted from 1.
    number: u64,
    /// Bytes read so far.
    done: u64,
}

impl Lines {
    /// Opens the file; returns its length as well.
    pub(super) fn open(path: &Path, options: &Options) -> Result<(Self, u64), Failure> {
        let (file, total) = open_file(path)?;
        let text = BufReader::with_capacity(BUFFER, file);
        let (path, longest) = (path.to_path_buf(), options.longest_line());
        Ok((Self { path, text, line: Vec::new(), longest, number: 0, done: 0 }, total))
    }

    /// Passes the entries of the next row to `entry`; returns its label, or none at the end.
    pub(super) fn next_row<T: Element>(
        &mut self,
        columns: Option<usize>,
        mut entry: impl FnMut(u32, T),
    ) -> Result<Option<f64>, Failure> {
        while self.next_line()? {
            match parse_row(&self.line, columns, &mut entry) {
                Ok(Some(label)) => return Ok(Some(label)),
                Ok(None) => {}
                Err(what) => {
                    return Err(Failure::input(&self.path, format!("line {} (counted from 1) {what}", self.number)));
                }
            }
        }
        Ok(None)
    }

    fn next_line(&mut self) -> Result<bool, Failure> {
        self.line.clear();
        self.number += 1;
        let read = (&mut self.text).take(self.longest).read_until(b'\n', &mut self.line);
        let count = read.map_err(|error| Failure::io(&self.path, "read", &error))? as u64;
        self.done += count;
        if count == self.longest && self.line.last() != Some(&b'\n') {
            let longest = crate::info::bytes(self.longest);
            let what = format!("line {} (counted from 1) does not end within {longest}", self.number);
            let advice = "check that this is a LIBSVM file, or raise --memory-limit";
            return Err(Failure::input(&self.path, format!("{what}; {advice}")));
        }
        if self.line.last().is_some_and(|&byte| byte != b'\n') {
            warn_of_cut(&self.path);
        }
        Ok(count > 0)
    }
}

/// Passes the entries of a line to `entry`; returns its label unless the line is blank or a comment.
fn parse_row<T: Element>(
    line: &[u8],
    columns: Option<usize>,
    entry: &mut impl FnMut(u32, T),
) -> Result<Option<f64>, String> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let line = line.split(|&byte| byte == b'#').next().unwrap_or(line);
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(label) = words.next() else { return Ok(None) };
    let Some(number) = parse_number(label) else {
        return Err(format!("starts with {} instead of a number as label", quoted(label)));
    };
    let mut previous = 0;
    for word in words {
        let malformed = || format!("has {} instead of index:value", quoted(word));
        let colon = word.iter().position(|&byte| byte == b':').ok_or_else(malformed)?;
        let (index, value) = (&word[..colon], &word[colon + 1..]);
        if index == b"qid" {
            continue;
        }
        let index: u64 = str::from_utf8(index).ok().and_then(|text| text.parse().ok()).ok_or_else(malformed)?;
        if index == 0 {
            return Err(format!("has index 0 in {}; indices count from 1", quoted(word)));
        }
        if index <= previous {
            return Err(format!("has index {index} after {previous}; indices must ascend"));
        }
        if let Some(columns) = columns.filter(|&columns| index > columns as u64) {
            return Err(format!("has index {index}, but the table has {columns} columns"));
        }
        previous = index;
        let column = u32::try_from(index - 1)
            .ok()
            .filter(|&column| column <= LAST_COLUMN)
            .ok_or_else(|| format!("has index {index}; the largest possible is 2^31"))?;
        entry(column, parse_number(value).ok_or_else(malformed)?);
    }
    Ok(Some(number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::{open, tests::Scratch};
    use super::*;

    #[test]
    fn rows_become_sparse_blocks() {
        let text = "\u{feff}# made by hand\n+1 qid:3 1:0.5 4:-2e1 # why\r\n\n-1\n0 2:1\n3.5 3:nan";
        let scratch = Scratch::new("x.svm", text);
        let mut reader = open::<f64>(&scratch.path, &Options::default(), None, None).unwrap();
        assert_eq!((reader.columns(), reader.rows()), (4, Some(4)));
        let mut block = Block::default();
        assert_eq!(reader.read(3, &mut block), Ok(3));
        let (indptr, indices, values) = (vec![0, 2, 2, 3], vec![0, 3, 1], vec![0.5, -20.0, 1.0]);
        assert_eq!(block, Block::Sparse { indptr, indices, values });
        assert_eq!(reader.read(3, &mut block), Ok(1));
        let Block::Sparse { indptr, indices, values } = &block else { unreachable!() };
        assert_eq!((indptr.as_slice(), indices.as_slice(), values[0].is_nan()), (&[0, 1][..], &[2][..], true));
        assert_eq!(reader.read(3, &mut block), Ok(0));
        assert_eq!(reader.progress(), Progress { done: text.len() as u64, total: text.len() as u64 });
    }

    #[test]
    fn columns_can_be_imposed() {
        let scratch = Scratch::new("x.libsvm", "1 1:1\n2 3:1\n");
        assert_eq!(open::<f32>(&scratch.path, &Options::default(), Some(7), None).unwrap().columns(), 7);
        let failure = open::<f32>(&scratch.path, &Options::default(), Some(2), None).err().unwrap();
        assert!(failure.to_string().contains("line 2 (counted from 1) has index 3, but the table has 2 columns"));
        let scratch = Scratch::new("x.libsvm", "1\n");
        assert_eq!(open::<f32>(&scratch.path, &Options::default(), Some(1), None).unwrap().columns(), 1);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, message) in [
            ("1 1:1\n1 0:1\n", "line 2 (counted from 1) has index 0 in \"0:1\"; indices count from 1"),
            ("1 2:1 2:1\n", "line 1 (counted from 1) has index 2 after 2; indices must ascend"),
            ("1 2:1 1:1\n", "line 1 (counted from 1) has index 1 after 2"),
            ("\n1 -1:1\n", "line 2 (counted from 1) has \"-1:1\" instead of index:value"),
            ("1 1:x\n", "has \"1:x\" instead of index:value"),
            ("1 1:\n", "has \"1:\" instead of index:value"),
            ("1 1\n", "has \"1\" instead of index:value"),
            ("a 1:1\n", "starts with \"a\" instead of a number as label"),
            ("1:1\n", "starts with \"1:1\" instead of a number as label"),
            ("1 2147483649:1\n", "has index 2147483649; the largest possible is 2^31"),
            ("1 4294967297:1\n", "has index 4294967297; the largest possible is 2^31"),
            ("# nothing\n", "has 0 rows and 0 columns"),
            ("1\n2\n", "has 2 rows and 0 columns"),
            ("", "is empty"),
        ] {
            let scratch = Scratch::new("x.svmlight", text);
            let failure = open::<f32>(&scratch.path, &Options::default(), None, None).err().unwrap();
            assert_eq!(failure.exit_code(), 2);
            assert!(failure.to_string().contains(message), "{failure} does not say {message}");
        }
    }
}
