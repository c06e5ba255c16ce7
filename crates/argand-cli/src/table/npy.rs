//! NumPy's own format: a header (a line of Python), then the numbers as in memory.
//!
//! A strict parser reads the header, which is one dictionary of three keys: a general parser of
//! Python literals would recurse as deep as a hostile file asks.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use half::f16;

use super::{Block, Columns, Element, Progress, Reader, Stored, Writer, open_file};
use crate::failure::Failure;
use crate::output::AtomicFile;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Bytes converted at a time: they stay in the cache between reading and converting. A multiple of every item size.
pub(super) const CHUNK: usize = 1 << 18;
/// Headers of plain number types are far shorter.
const LONGEST_HEADER: usize = 1 << 20;
/// Bytes per item of text; class names are shorter.
const LONGEST_TEXT: u64 = 1 << 16;
/// Length of a written header's text with padding: room for any two 64-bit sizes.
const HEADER_TEXT: u8 = 118;

/// Decodes whole items and appends their elements.
pub(super) type Decode<T> = fn(&[u8], &mut Vec<T>);

/// Reads a two-dimensional NPY file.
pub(super) struct NpyReader<T> {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    decode: Decode<T>,
    row_bytes: usize,
    item_bytes: usize,
    /// Columns in the file.
    width: usize,
    /// Those that make up a row, if not all in their order.
    picked: Option<Vec<usize>>,
    /// Where the first number of a table in Fortran order is: its columns are stored one after the other.
    columns_from: Option<u64>,
    rows: u64,
    next_row: u64,
    total: u64,
}

/// The numbers of the columns.
pub(super) fn names(path: &Path) -> Result<Vec<String>, Failure> {
    let (_, _, header) = open_header(path)?;
    // More columns than this are not picked by number.
    let columns = header.shape.get(1).copied().unwrap_or(1).min(1 << 20);
    Ok((0..columns).map(|column| column.to_string()).collect())
}

impl<T: Element> NpyReader<T> {
    /// Opens a table to read the picked columns.
    pub(super) fn open(path: &Path, picked: Option<&[usize]>) -> Result<Self, Failure> {
        let mut reader = Self::open_array(path, false)?;
        reader.picked = picked.filter(|picked| !picked.iter().copied().eq(0..reader.width)).map(<[usize]>::to_vec);
        if reader.columns() == 0 {
            return Err(Failure::input(path, "has no columns of features besides those left out"));
        }
        Ok(reader)
    }

    /// Opens an array of one column or one dimension.
    pub(super) fn open_column(path: &Path) -> Result<Self, Failure> {
        Self::open_array(path, true)
    }

    fn open_array(path: &Path, one_column: bool) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::input(path, what);
        let (mut file, total, header) = open_header(path)?;
        let (decode, item_bytes) = decoder::<T>(&header.dtype).ok_or_else(|| {
            wrong(format!(
                "dtype {} is not supported; save real numbers, for example with x.astype(numpy.float32)",
                header.dtype
            ))
        })?;
        let (rows, columns) = match *header.shape.as_slice() {
            [rows] if one_column => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => {
                return Err(wrong(format!(
                    "the array has {} dimensions, but a table has 2; save x.reshape(rows, columns), \
                     or x.reshape(1, -1) for one row",
                    header.shape.len()
                )));
            }
        };
        if rows == 0 || columns == 0 {
            return Err(wrong(format!(
                "the shape is ({rows}, {columns}); a table needs at least one row and one column"
            )));
        }
        let start = file.stream_position().map_err(|error| Failure::io(path, "read", &error))?;
        let row_bytes = columns.checked_mul(item_bytes);
        let data_bytes = row_bytes.and_then(|row| row.checked_mul(rows));
        if data_bytes.and_then(|data| data.checked_add(start)) != Some(total) {
            let expected = data_bytes.map_or("more than 2^64".into(), |data| data.to_string());
            return Err(wrong(format!(
                "shape ({rows}, {columns}) of dtype {} takes {expected} bytes, but {} follow the header; \
                 the file is truncated or has trailing bytes",
                header.dtype,
                total.saturating_sub(start)
            )));
        }
        let too_wide = || wrong(format!("a row of {columns} columns does not fit in memory"));
        Ok(Self {
            path: path.to_path_buf(),
            file,
            bytes: vec![0; CHUNK],
            decode,
            row_bytes: row_bytes.and_then(|row| usize::try_from(row).ok()).ok_or_else(too_wide)?,
            item_bytes: usize::try_from(item_bytes).map_err(|_| too_wide())?,
            width: usize::try_from(columns).map_err(|_| too_wide())?,
            picked: None,
            // A single row or column has the same layout in both orders.
            columns_from: (header.fortran_order && rows > 1 && columns > 1).then_some(start),
            rows,
            next_row: 0,
            total,
        })
    }
}

impl<T: Element> NpyReader<T> {
    /// Appends so many rows of a table in Fortran order: the picked columns one after the other, a part of each.
    fn read_columns(&mut self, start: u64, rows: usize, values: &mut Vec<T>) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::io(&self.path, "read", &error);
        let picked: Vec<usize> = self.picked.clone().unwrap_or_else(|| (0..self.width).collect());
        values.resize(rows * picked.len(), T::default());
        let mut part = Vec::new();
        for (to, &column) in picked.iter().enumerate() {
            // The sizes were checked against the length of the file.
            let first = (column as u64 * self.rows + self.next_row) * self.item_bytes as u64;
            self.file.seek(SeekFrom::Start(start + first)).map_err(failed)?;
            let (mut left, mut row) = (rows * self.item_bytes, 0);
            while left > 0 {
                let bytes = &mut self.bytes[..left.min(CHUNK)];
                self.file.read_exact(bytes).map_err(failed)?;
                part.clear();
                (self.decode)(bytes, &mut part);
                for value in &part {
                    values[row * picked.len() + to] = *value;
                    row += 1;
                }
                left -= bytes.len();
            }
        }
        Ok(())
    }
}

impl<T: Element> Reader<T> for NpyReader<T> {
    fn columns(&self) -> usize {
        self.picked.as_ref().map_or(self.width, Vec::len)
    }

    fn row_bytes(&self) -> usize {
        // All columns are read before some are picked.
        self.width * size_of::<T>()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn progress(&self) -> Progress {
        // The header counts as read from the start.
        let left = (self.rows - self.next_row) * self.row_bytes as u64;
        Progress { done: self.total - left, total: self.total }
    }

    fn read(&mut self, max_rows: usize, block: &mut Block<T>) -> Result<usize, Failure> {
        let values = block.clear_dense();
        let rows = usize::try_from(self.rows - self.next_row).map_or(max_rows, |left| left.min(max_rows));
        let Some(mut left) = rows.checked_mul(self.row_bytes) else {
            return Err(Failure::input(&self.path, format!("{rows} rows do not fit in memory")));
        };
        if let Some(start) = self.columns_from {
            self.read_columns(start, rows, values)?;
            self.next_row += rows as u64;
            return Ok(rows);
        }
        while left > 0 {
            let bytes = &mut self.bytes[..left.min(CHUNK)];
            self.file.read_exact(bytes).map_err(|error| Failure::io(&self.path, "read", &error))?;
            (self.decode)(bytes, values);
            left -= bytes.len();
        }
        if let Some(picked) = &self.picked {
            *values =
                values.chunks_exact(self.width).flat_map(|row| picked.iter().map(|&column| row[column])).collect();
        }
        self.next_row += rows as u64;
        Ok(rows)
    }
}

/// Reads an NPY file of text as labels.
pub(super) struct NpyText {
    path: PathBuf,
    file: BufReader<File>,
    big: bool,
    item: Vec<u8>,
    rows: u64,
    next_row: u64,
}

impl NpyText {
    /// Opens a text array of one column or dimension; `None` if it does not hold text.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, Failure> {
        let (file, total, header) = open_header(path)?;
        let Some((order @ ("<" | ">"), kind)) = header.dtype.split_at_checked(1) else { return Ok(None) };
        let Some(length) = kind.strip_prefix('U').and_then(|length| length.parse::<u64>().ok()) else {
            return Ok(None);
        };
        let ([rows] | [rows, 1]) = *header.shape.as_slice() else {
            return Err(Failure::input(
                path,
                format!("the shape is {:?}; expected one column of labels", header.shape),
            ));
        };
        let mut file = BufReader::new(file);
        let start = file.stream_position().map_err(|error| Failure::io(path, "read", &error))?;
        let item_bytes = length.checked_mul(4).filter(|&bytes| (1..=LONGEST_TEXT).contains(&bytes));
        let data_bytes = item_bytes.and_then(|bytes| bytes.checked_mul(rows)?.checked_add(start));
        match (item_bytes.map(usize::try_from), data_bytes == Some(total)) {
            (Some(Ok(bytes)), true) => {
                let (path, item) = (path.to_path_buf(), vec![0; bytes]);
                Ok(Some(Self { path, file, big: order == ">", item, rows, next_row: 0 }))
            }
            _ => {
                let what = format!("{rows} items of dtype {} do not take {total} bytes", header.dtype);
                Err(Failure::input(path, format!("{what}; the file is truncated or has trailing bytes")))
            }
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// The text of the next row, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<String>, Failure> {
        if self.next_row == self.rows {
            return Ok(None);
        }
        self.file.read_exact(&mut self.item).map_err(|error| Failure::io(&self.path, "read", &error))?;
        self.next_row += 1;
        let characters = self.item.as_chunks().0.iter();
        let codes = characters.map(|&code| if self.big { u32::from_be_bytes(code) } else { u32::from_le_bytes(code) });
        // Zeros pad shorter items.
        let text: Option<String> = codes.map(char::from_u32).collect();
        let text = text.ok_or_else(|| {
            let what = format!("row {} (counted from 0) is not text; the file is damaged", self.next_row - 1);
            Failure::input(&self.path, what)
        })?;
        Ok(Some(text.trim_end_matches('\0').to_owned()))
    }
}

/// Opens a file and reads its header; returns its length as well. The file is then at its first item.
pub(super) fn open_header(path: &Path) -> Result<(File, u64, Header), Failure> {
    let (mut file, total) = open_file(path)?;
    let text = read_header(&mut file).map_err(|fault| match fault {
        HeaderFault::Contents(what) => Failure::input(path, what),
        HeaderFault::System(error) => Failure::io(path, "read", &error),
    })?;
    let header = Header::parse(&text).ok_or_else(|| {
        let what = format!("the NPY header {} is malformed", super::quoted(&text));
        Failure::input(path, format!("{what}; save the array again with numpy.save"))
    })?;
    Ok((file, total, header))
}

/// Why a header cannot be read.
enum HeaderFault {
    Contents(String),
    System(std::io::Error),
}

/// The text of the header; the file is then at its first number.
fn read_header(file: &mut impl Read) -> Result<Vec<u8>, HeaderFault> {
    let wrong = |what: String| HeaderFault::Contents(what);
    let ended = |what: &'static str| {
        move |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => HeaderFault::Contents(what.to_owned()),
            _ => HeaderFault::System(error),
        }
    };
    let foreign = "is not an NPY file; save it with numpy.save";
    let truncated = ended("the NPY header is truncated; copy or save the file again");
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(ended(foreign))?;
    if !start.starts_with(MAGIC) {
        return Err(wrong(foreign.into()));
    }
    let mut length = [0; 4];
    match start[6] {
        1 => file.read_exact(&mut length[..2]).map_err(truncated)?,
        2 | 3 => file.read_exact(&mut length).map_err(truncated)?,
        version => return Err(wrong(format!("NPY version {version} is not known; expected 1, 2 or 3"))),
    }
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > LONGEST_HEADER {
        return Err(wrong(format!("the NPY header claims {length} bytes; the file is not a plain array of numbers")));
    }
    let mut text = vec![0; length];
    file.read_exact(&mut text).map_err(truncated)?;
    Ok(text)
}

/// The contents of an NPY header.
pub(super) struct Header {
    /// The type, as NumPy writes it, or the Python text of a structured one.
    pub(super) dtype: String,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<u64>,
}

impl Header {
    /// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, keys in any order.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut text = Literal(str::from_utf8(text).ok()?);
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        text.skip("{")?;
        while text.skip("}").is_none() {
            let key = text.string()?;
            text.skip(":")?;
            match key {
                "descr" => dtype = Some(text.string().or_else(|| text.list())?.to_string()),
                "fortran_order" => {
                    fortran_order = Some(text.skip("True").is_some() || text.skip("False").map(|()| false)?);
                }
                "shape" => shape = Some(text.tuple()?),
                _ => return None,
            }
            if text.skip(",").is_none() && !text.0.trim_start().starts_with('}') {
                return None;
            }
        }
        text.0.trim().is_empty().then_some(Self { dtype: dtype?, fortran_order: fortran_order?, shape: shape? })
    }
}

/// The rest of a Python literal being parsed.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    /// Skips `token` and spaces before it, if it is next.
    fn skip(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(token)?;
        Some(())
    }

    /// A string in either kind of quotes. No string here contains a quote or an escape.
    fn string(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (string, rest) = text[1..].split_once(quote)?;
        self.0 = rest;
        Some(string)
    }

    /// The text of a list, for messages: everything up to the last bracket before the next key or the end.
    fn list(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        if !text.starts_with('[') {
            return None;
        }
        let end = text.find("'fortran_order'").or_else(|| text.find("'shape'")).unwrap_or(text.len());
        let (list, rest) = text.split_at(text[..end].rfind(']')? + 1);
        self.0 = rest;
        Some(list)
    }

    /// A tuple of sizes; Python 2 wrote `3L` for large ones.
    fn tuple(&mut self) -> Option<Vec<u64>> {
        self.skip("(")?;
        let mut sizes = Vec::new();
        while self.skip(")").is_none() {
            let text = self.0.trim_start();
            let end = text.find(|c: char| !c.is_ascii_digit())?;
            sizes.push(text[..end].parse().ok()?);
            self.0 = text[end..].strip_prefix('L').unwrap_or(&text[end..]);
            if self.skip(",").is_none() && !self.0.trim_start().starts_with(')') {
                return None;
            }
        }
        Some(sizes)
    }
}

/// The decoder for items of this type, and their size in bytes.
pub(super) fn decoder<T: Element>(dtype: &str) -> Option<(Decode<T>, u64)> {
    macro_rules! decode {
        ($type:ident, $from_bytes:ident) => {
            |bytes, elements| {
                let (items, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
                elements.extend(items.iter().map(|&item| <$type>::$from_bytes(item).to_element::<T>()));
            }
        };
    }
    macro_rules! ordered {
        ($type:ident, $big:expr) => {
            (
                if $big { decode!($type, from_be_bytes) } else { decode!($type, from_le_bytes) },
                size_of::<$type>() as u64,
            )
        };
    }
    // NumPy writes the byte order of one-byte types as '|'.
    let (big, kind) = match dtype.split_at_checked(1)? {
        ("<", kind) => (false, kind),
        (">", kind) => (true, kind),
        ("|", kind @ ("i1" | "u1" | "b1")) => (false, kind),
        _ => return None,
    };
    Some(match kind {
        "f2" => ordered!(f16, big),
        "f4" => ordered!(f32, big),
        "f8" => ordered!(f64, big),
        "i1" => ordered!(i8, big),
        "i2" => ordered!(i16, big),
        "i4" => ordered!(i32, big),
        "i8" => ordered!(i64, big),
        "u1" => ordered!(u8, big),
        "u2" => ordered!(u16, big),
        "u4" => ordered!(u32, big),
        "u8" => ordered!(u64, big),
        "b1" => (|bytes, elements| elements.extend(bytes.iter().map(|&byte| (byte != 0).to_element::<T>())), 1),
        _ => return None,
    })
}

/// Writes a two-dimensional NPY file, in C order and little-endian.
pub(super) struct NpyWriter<T> {
    path: PathBuf,
    file: AtomicFile,
    bytes: Vec<u8>,
    columns: Columns,
    elements: u64,
    element: PhantomData<T>,
}

impl<T: Element> NpyWriter<T> {
    pub(super) fn create(path: &Path, columns: Columns) -> Result<Self, Failure> {
        let mut file = AtomicFile::create(path)?;
        // A placeholder: the number of rows is known at the end.
        file.write_all(&[0; HEADER]).map_err(|error| Failure::io(path, "write", &error))?;
        Ok(Self { path: path.to_path_buf(), file, bytes: Vec::new(), columns, elements: 0, element: PhantomData })
    }

    /// The header of the finished file.
    fn header(&self) -> [u8; HEADER] {
        let (dtype, columns) = match self.columns {
            Columns::Real(_) | Columns::Named(_) => (T::NPY, self.columns.width()),
            Columns::Complex(columns) => (T::NPY_COMPLEX, columns),
        };
        let rows = self.elements / (self.columns.width().max(1) as u64);
        header(dtype, &format!("({rows}, {columns})"))
    }
}

/// Length of every written header: ten bytes precede the text, and the format requires a multiple of 64.
pub(super) const HEADER: usize = 10 + HEADER_TEXT as usize;

/// The header of an array in C order.
pub(super) fn header(dtype: &str, shape: &str) -> [u8; HEADER] {
    let text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    // Two bytes of version, two of length; the text ends with a line feed.
    let start = [MAGIC.as_slice(), &[1, 0, HEADER_TEXT, 0]].concat();
    let end = format!("{text:<width$}\n", width = usize::from(HEADER_TEXT) - 1);
    let mut header = [b' '; HEADER];
    header.iter_mut().zip(start.into_iter().chain(end.bytes())).for_each(|(to, from)| *to = from);
    header
}

impl<T: Element> Writer<T> for NpyWriter<T> {
    fn write(&mut self, rows: &[T]) -> Result<(), Failure> {
        debug_assert!(rows.len().is_multiple_of(self.columns.width()), "whole rows");
        for chunk in rows.chunks(CHUNK / size_of::<T>()) {
            self.bytes.clear();
            T::append_bytes(chunk, &mut self.bytes);
            self.file.write_all(&self.bytes).map_err(|error| Failure::io(&self.path, "write", &error))?;
        }
        self.elements += rows.len() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<AtomicFile, Failure> {
        let header = self.header();
        let patched = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&header));
        patched.map_err(|error| Failure::io(&self.path, "write", &error))?;
        Ok(self.file)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
