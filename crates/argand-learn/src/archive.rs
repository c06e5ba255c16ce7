//! Files of models: a header in JSON and arrays of numbers, with a version and a checksum.
//!
//! They hold numbers and names, never code: reading a file from somebody else can fail, and nothing worse.
//!
//! The bytes are `argand\x1a\n`, the version and the length of the header (`u32` each), the header, the arrays one after
//! another, and the CRC-32 of all of it; everything is little-endian.

use std::io::{self, Read, Write};

use argand::{Error, FileFault};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The version that is written. Every version from 1 on can be read: `tests/fixture` holds files of each.
const VERSION: u32 = 1;
/// Headers hold a spec, some parameters and the names of classes.
const LONGEST_HEADER: u32 = 64 << 20;
/// Numbers converted at a time.
const CHUNK: usize = 1 << 16;

/// What a model file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Archive {
    kind: String,
    /// JSON that is parsed when somebody says what it holds: parsed as anything it would take a hundred times the memory.
    header: String,
    note: String,
    arrays: Vec<(String, Array)>,
}

/// The note of an archive without one.
const NO_NOTE: &str = "null";

#[derive(Debug, Clone, PartialEq)]
enum Array {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// The JSON before the arrays.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    kind: String,
    arrays: Vec<Entry>,
    header: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    dtype: String,
    length: u64,
}

impl Archive {
    /// The first bytes of every archive.
    pub const MAGIC: [u8; 8] = *b"argand\x1a\n";

    /// An archive without arrays; `header` may be any data that JSON can hold.
    pub(crate) fn new(kind: &str, header: &impl Serialize) -> Self {
        // Structs of numbers and strings always serialise.
        let header = serde_json::to_value(header).unwrap_or_default().to_string();
        Self { kind: kind.to_owned(), header, note: NO_NOTE.to_owned(), arrays: Vec::new() }
    }

    /// Adds what whoever saves the archive wants to find in it again, for example the names of classes.
    #[must_use]
    pub fn with_note(mut self, note: &impl Serialize) -> Self {
        self.note = serde_json::to_value(note).unwrap_or_default().to_string();
        self
    }

    /// What [`Archive::with_note`] added.
    ///
    /// # Errors
    /// [`Error::Archive`] if there is none, or one of another shape.
    pub fn note<N: DeserializeOwned>(&self) -> Result<N, Error> {
        serde_json::from_str(&self.note).map_err(|error| Error::Archive(FileFault::in_part("note", error)))
    }

    /// Adds an array.
    pub(crate) fn with_f32(mut self, name: &str, values: Vec<f32>) -> Self {
        self.arrays.push((name.to_owned(), Array::F32(values)));
        self
    }

    /// Adds an array.
    pub(crate) fn with_f64(mut self, name: &str, values: Vec<f64>) -> Self {
        self.arrays.push((name.to_owned(), Array::F64(values)));
        self
    }

    /// What it holds, for example `ridge`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The header as JSON.
    #[must_use]
    pub fn header_json(&self) -> String {
        serde_json::from_str::<Value>(&self.header).map_or_else(|_| self.header.clone(), |value| format!("{value:#}"))
    }

    /// The header, if the archive is of this kind.
    pub(crate) fn header<H: DeserializeOwned>(&self, kind: &str) -> Result<H, Error> {
        if self.kind != kind {
            return Err(Error::Archive(FileFault::Kind { expected: kind.to_owned(), found: self.kind.clone() }));
        }
        serde_json::from_str(&self.header).map_err(|error| Error::Archive(FileFault::in_part("header", error)))
    }

    /// Whether it has an array of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.arrays.iter().any(|(other, _)| other == name)
    }

    fn take(&mut self, name: &str) -> Result<Array, Error> {
        match self.arrays.iter().position(|(other, _)| other == name) {
            Some(index) => Ok(self.arrays.swap_remove(index).1),
            None => Err(Error::Archive(FileFault::Content(format!("the array \"{name}\" is missing")))),
        }
    }

    /// Takes an array out, if it has the given length and finite numbers only.
    pub(crate) fn take_f32(&mut self, name: &str, length: usize) -> Result<Vec<f32>, Error> {
        match self.take(name)? {
            Array::F32(values) => check(name, values, length, |value| value.is_finite()),
            Array::F64(_) => {
                Err(Error::Archive(FileFault::Content(format!("the array \"{name}\" is of f64, not of f32"))))
            }
        }
    }

    /// Takes an array out, if it has the given length and finite numbers only.
    pub(crate) fn take_f64(&mut self, name: &str, length: usize) -> Result<Vec<f64>, Error> {
        match self.take(name)? {
            Array::F64(values) => check(name, values, length, |value| value.is_finite()),
            Array::F32(_) => {
                Err(Error::Archive(FileFault::Content(format!("the array \"{name}\" is of f32, not of f64"))))
            }
        }
    }

    /// Writes the bytes.
    ///
    /// # Errors
    /// Whatever `out` reports, or a header of more than 64 MB.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        let mut out = Checked { inner: out, hasher: crc32fast::Hasher::new() };
        let entry = |(name, array): &(String, Array)| {
            let (dtype, length) = match array {
                Array::F32(values) => ("f32", values.len()),
                Array::F64(values) => ("f64", values.len()),
            };
            Entry { name: name.clone(), dtype: dtype.to_owned(), length: length as u64 }
        };
        let arrays = self.arrays.iter().map(entry).collect();
        let raw = |text: &String| RawValue::from_string(text.clone());
        let note = (self.note != NO_NOTE).then(|| raw(&self.note)).transpose()?;
        let header = Header { kind: self.kind.clone(), arrays, header: raw(&self.header)?, note };
        let header = serde_json::to_vec(&header)?;
        let length = u32::try_from(header.len()).ok().filter(|&length| length <= LONGEST_HEADER);
        let length = length.ok_or_else(|| io::Error::other("the header is longer than 64 MB"))?;
        out.write_all(&Self::MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&header)?;
        for (_, array) in &self.arrays {
            match array {
                Array::F32(values) => write_numbers(&mut out, values, |value| value.to_le_bytes())?,
                Array::F64(values) => write_numbers(&mut out, values, |value| value.to_le_bytes())?,
            }
        }
        let sum = out.hasher.finalize().to_le_bytes();
        out.inner.write_all(&sum)?;
        out.inner.flush()
    }

    /// The bytes that [`Archive::write_to`] writes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = self.arrays.iter().map(|(_, array)| match array {
            Array::F32(values) => size_of_val(&values[..]),
            Array::F64(values) => size_of_val(&values[..]),
        });
        let mut bytes = Vec::with_capacity(self.header.len() + numbers.sum::<usize>() + 4096);
        // Memory takes whatever is written, and the headers that this crate makes are short.
        let _ = self.write_to(&mut bytes);
        bytes
    }

    /// Reads what [`Archive::write_to`] wrote, to the end.
    ///
    /// # Errors
    /// [`Error::Archive`] if it is not such a file, of a newer version, damaged, or cannot be read. Memory grows with the
    /// bytes that are there, whatever lengths the header claims.
    pub fn read_from(source: impl Read) -> Result<Self, Error> {
        let mut source = Checked { inner: source, hasher: crc32fast::Hasher::new() };
        let magic: [u8; 8] = source.bytes()?;
        if magic != Self::MAGIC {
            return Err(Error::Archive(FileFault::Foreign("model")));
        }
        match u32::from_le_bytes(source.bytes()?) {
            0 => return Err(Error::Archive(FileFault::Content("version: expected 1 or more, got 0".to_owned()))),
            1..=VERSION => {}
            found => return Err(Error::Archive(FileFault::Newer { what: "version", found, newest: VERSION })),
        }
        let length = u32::from_le_bytes(source.bytes()?);
        if length > LONGEST_HEADER {
            return Err(Error::Archive(FileFault::Damaged("the header is longer than 64 MB")));
        }
        let header = source.many(u64::from(length))?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|error| Error::Archive(FileFault::in_part("header", error)))?;
        let mut arrays = Vec::new();
        for Entry { name, dtype, length } in header.arrays {
            let array = match dtype.as_str() {
                "f32" => Array::F32(source.numbers(length, f32::from_le_bytes)?),
                "f64" => Array::F64(source.numbers(length, f64::from_le_bytes)?),
                _ => {
                    return Err(Error::Archive(FileFault::Content(format!(
                        "the array \"{name}\" is of the unknown type \"{dtype}\""
                    ))));
                }
            };
            arrays.push((name, array));
        }
        let computed = source.hasher.clone().finalize();
        if u32::from_le_bytes(source.bytes()?) != computed {
            return Err(Error::Archive(FileFault::Damaged("the checksum does not match")));
        }
        match source.inner.read(&mut [0]) {
            Ok(0) => {
                let text = |raw: Box<RawValue>| String::from(Box::<str>::from(raw));
                let note = header.note.map_or_else(|| NO_NOTE.to_owned(), text);
                Ok(Self { kind: header.kind, header: text(header.header), note, arrays })
            }
            Ok(_) => Err(Error::Archive(FileFault::Damaged("there are bytes after its end"))),
            Err(error) => Err(Error::Archive(FileFault::caused_by(error))),
        }
    }

    /// As [`Archive::read_from`], from memory.
    ///
    /// # Errors
    /// As [`Archive::read_from`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::read_from(bytes)
    }
}

/// Checks that a model that was read predicts something.
pub(crate) fn check_columns(columns: usize) -> Result<(), Error> {
    if columns == 0 {
        Err(Error::Archive(FileFault::Content("it has no classes or targets".to_owned())))
    } else {
        Ok(())
    }
}

fn check<T: Copy>(name: &str, values: Vec<T>, length: usize, finite: impl Fn(T) -> bool) -> Result<Vec<T>, Error> {
    if values.len() != length {
        return Err(Error::Archive(FileFault::Content(format!(
            "the array \"{name}\" has {} numbers, not {length}",
            values.len()
        ))));
    }
    if let Some(at) = values.iter().position(|&value| !finite(value)) {
        return Err(Error::Archive(FileFault::Content(format!("the array \"{name}\" is not finite at {at}"))));
    }
    Ok(values)
}

fn write_numbers<T: Copy, const N: usize>(
    out: &mut impl Write,
    values: &[T],
    bytes_of: impl Fn(T) -> [u8; N],
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(CHUNK * N);
    for chunk in values.chunks(CHUNK) {
        bytes.clear();
        chunk.iter().for_each(|&value| bytes.extend_from_slice(&bytes_of(value)));
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Bytes on their way, and their checksum.
struct Checked<I> {
    inner: I,
    hasher: crc32fast::Hasher,
}

impl<I: Write> Write for Checked<I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<I: Read> Checked<I> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.inner.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Archive(FileFault::Damaged("it ends too early")),
            _ => Error::Archive(FileFault::caused_by(error)),
        })?;
        self.hasher.update(bytes);
        Ok(())
    }

    fn many(&mut self, length: u64) -> Result<Vec<u8>, Error> {
        self.numbers(length, |[byte]: [u8; 1]| byte)
    }

    fn numbers<T, const N: usize>(&mut self, length: u64, from: impl Fn([u8; N]) -> T) -> Result<Vec<T>, Error> {
        let (mut values, mut bytes) = (Vec::new(), vec![0; CHUNK * N]);
        let mut left = length;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            self.fill(&mut bytes[..count * N])?;
            values.extend(bytes[..count * N].as_chunks().0.iter().map(|&chunk| from(chunk)));
            left -= count as u64;
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Parameters {
        lambda: f64,
        classes: Vec<String>,
    }

    fn sample() -> (Archive, Parameters) {
        let parameters = Parameters { lambda: 0.1 + 0.2, classes: vec!["a".to_owned(), "ß".to_owned()] };
        let archive = Archive::new("test", &parameters)
            .with_f64("weights", (0..70_000).map(|i| f64::from(i).sqrt()).collect())
            .with_f32("factor", vec![1.5, -0.0, f32::MIN_POSITIVE])
            .with_note(&["cat", "dog"]);
        (archive, parameters)
    }

    #[test]
    fn what_is_written_is_read() {
        let (archive, parameters) = sample();
        let mut read = Archive::from_bytes(&archive.to_bytes()).unwrap();
        assert_eq!(read, archive);
        assert_eq!(read.header::<Parameters>("test").unwrap(), parameters);
        assert_eq!(read.note::<[String; 2]>().unwrap(), ["cat", "dog"]);
        let wrong = read.note::<u32>().unwrap_err();
        assert!(matches!(&wrong, Error::Archive(FileFault::Part { part: "note", .. })), "{wrong}");
        assert!(wrong.source().and_then(std::error::Error::source).is_some(), "the cause is kept");
        assert!(Archive::new("test", &()).note::<[String; 2]>().is_err());
        assert_eq!(read.take_f32("factor", 3).unwrap(), [1.5, -0.0, f32::MIN_POSITIVE]);
        assert_eq!(read.take_f64("weights", 70_000).unwrap()[4], 2.0);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let (mut archive, _) = sample();
        assert!(archive.header::<Parameters>("other").unwrap_err().to_string().contains("kind other, got \"test\""));
        assert!(archive.clone().take_f32("factor", 4).unwrap_err().to_string().contains("3 numbers, not 4"));
        assert!(archive.clone().take_f64("factor", 3).unwrap_err().to_string().contains("of f32"));
        assert!(archive.take_f64("bias", 3).unwrap_err().to_string().contains("\"bias\" is missing"));
        let mut infinite = Archive::new("test", &()).with_f32("x", vec![0.0, f32::NAN]);
        assert!(infinite.take_f32("x", 2).unwrap_err().to_string().contains("not finite at 1"));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let archive = Archive::new("test", &vec![1, 2]).with_f32("x", vec![1.0, 2.0]);
        let bytes = archive.to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(Archive::from_bytes(&damaged).is_err(), "byte {at}, bit {bit}");
            }
            assert!(Archive::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(Archive::from_bytes(&[&bytes[..], &[0]].concat()).unwrap_err().to_string().contains("after its end"));
    }

    /// A short file that claims to be long is an error, not an allocation.
    #[test]
    fn claimed_lengths_allocate_nothing() {
        let header =
            r#"{"kind":"x","arrays":[{"name":"a","dtype":"f64","length":18446744073709551615}],"header":null}"#;
        let mut bytes = [&Archive::MAGIC[..], &1_u32.to_le_bytes()].concat();
        bytes.extend_from_slice(&u32::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        assert!(Archive::from_bytes(&bytes).unwrap_err().to_string().contains("ends too early"));
        let mut newer = Archive::new("test", &()).to_bytes();
        newer[8] = 2;
        assert!(Archive::from_bytes(&newer).unwrap_err().to_string().contains("upgrade"));
    }
}
