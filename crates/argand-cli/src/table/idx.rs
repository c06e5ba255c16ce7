//! IDX, the format of MNIST: a type, the sizes of all dimensions, then the numbers, big-endian; often gzipped.
//!
//! The first dimension counts rows; the others make up one row. A 28 x 28 image has 784 columns, and a one-dimensional
//! array is a table of one column.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

use super::npy::{CHUNK, Decode, decoder};
use super::{Block, Element, Progress, Reader, open_file};
use crate::failure::Failure;

pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The highest compression ratio of Deflate.
const BEST_COMPRESSION: u64 = 1032;

/// Whether a lower-case file name is an IDX file's: `x.idx`, or like MNIST's `train-images-idx3-ubyte` and
/// `train-images.idx3-ubyte`; each also with `.gz`.
pub(super) fn is_name(name: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let of_mnist = |name: &str| {
        let dimensions = name.strip_suffix("-ubyte").and_then(|name| name.strip_suffix(|c: char| c.is_ascii_digit()));
        dimensions.is_some_and(|name| name.ends_with("-idx") || name.ends_with(".idx"))
    };
    name.ends_with(".idx") || of_mnist(name)
}

/// Reads an IDX file.
pub(super) struct IdxReader<T> {
    path: PathBuf,
    file: Arc<File>,
    /// The contents, decompressed if need be.
    contents: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    decode: Decode<T>,
    row_bytes: usize,
    columns: usize,
    rows: u64,
    next_row: u64,
    total: u64,
}

impl<T: Element> IdxReader<T> {
    /// Opens a file and reads its header. An uncompressed file must have exactly the length that the header implies.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::input(path, what);
        let (mut file, total) = open_file(path)?;
        // Check the first bytes: a browser may have silently decompressed the file.
        let mut start = [0; 2];
        let compressed = file.read_exact(&mut start).is_ok() && start == GZIP;
        file.rewind().map_err(|error| Failure::io(path, "read", &error))?;
        let file = Arc::new(file);
        let buffered = BufReader::with_capacity(CHUNK, Arc::clone(&file));
        let mut contents: Box<dyn Read + Send> =
            if compressed { Box::new(MultiGzDecoder::new(buffered)) } else { Box::new(buffered) };

        let mut magic = [0; 4];
        contents.read_exact(&mut magic).map_err(|error| failure(path, &error))?;
        let [0, 0, code, dimensions] = magic else {
            return Err(wrong(
                "is not an IDX file: expected two zeros, a type and a number of dimensions first".into(),
            ));
        };
        let dtype = match code {
            0x08 => "|u1",
            0x09 => "|i1",
            0x0b => ">i2",
            0x0c => ">i4",
            0x0d => ">f4",
            0x0e => ">f8",
            _ => return Err(wrong(format!("type 0x{code:02x} is not known to IDX; check the format"))),
        };
        let Some((decode, item_bytes)) = decoder::<T>(dtype) else {
            return Err(wrong(format!("numbers of type {dtype} cannot be read")));
        };
        let mut sizes = vec![0; 4 * usize::from(dimensions)];
        contents.read_exact(&mut sizes).map_err(|error| failure(path, &error))?;
        let shape: Vec<u64> = sizes.as_chunks().0.iter().map(|&size| u64::from(u32::from_be_bytes(size))).collect();
        let [rows, row_shape @ ..] = &shape[..] else {
            return Err(wrong("the array has no dimensions; a table needs at least one row and one column".into()));
        };
        if shape.contains(&0) {
            return Err(wrong(format!("the shape is {shape:?}; a table needs at least one row and one column")));
        }

        let columns = row_shape.iter().try_fold(1_u64, |columns, &size| columns.checked_mul(size));
        let row_bytes = columns.and_then(|columns| columns.checked_mul(item_bytes));
        let data_bytes = row_bytes.and_then(|row| row.checked_mul(*rows));
        let header_bytes = (magic.len() + sizes.len()) as u64;
        let whole_bytes = data_bytes.and_then(|data| data.checked_add(header_bytes));
        // The uncompressed length is known only at the end; until then, never allocate for data that cannot come.
        let possible = whole_bytes.is_some_and(|whole| {
            if compressed { whole <= total.saturating_mul(BEST_COMPRESSION) } else { whole == total }
        });
        let (Some(columns), Some(row_bytes), true) = (
            columns.and_then(|columns| usize::try_from(columns).ok()),
            row_bytes.and_then(|row| usize::try_from(row).ok()),
            possible,
        ) else {
            let expected = whole_bytes.map_or("more than 2^64".into(), |whole| whole.to_string());
            let gzip = if compressed { " of gzip" } else { "" };
            return Err(wrong(format!(
                "an IDX file of shape {shape:?} has {expected} bytes, but this one has {total}{gzip}; the file is \
                 truncated or has trailing bytes"
            )));
        };
        Ok(Self {
            path: path.to_path_buf(),
            file,
            contents,
            bytes: vec![0; CHUNK],
            decode,
            row_bytes,
            columns,
            rows: *rows,
            next_row: 0,
            total,
        })
    }

    /// Checks that nothing follows the last row, and the checksum of gzip.
    fn finish(&mut self) -> Result<(), Failure> {
        match self.contents.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Failure::input(&self.path, format!("has trailing bytes after its {} rows", self.rows))),
            Err(error) => Err(failure(&self.path, &error)),
        }
    }
}

/// Explains why reading contents that may be gzipped failed.
pub(super) fn failure(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::input(path, "ends too early; the file is truncated, copy it again"),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            Failure::input(path, format!("the gzip data is damaged ({error}); copy the file again"))
        }
        _ => Failure::io(path, "read", error),
    }
}

impl<T: Element> Reader<T> for IdxReader<T> {
    fn columns(&self) -> usize {
        self.columns
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn progress(&self) -> Progress {
        let done = (&*self.file).stream_position().unwrap_or(0);
        Progress { done: done.min(self.total), total: self.total }
    }

    fn read(&mut self, max_rows: usize, block: &mut Block<T>) -> Result<usize, Failure> {
        let values = block.clear_dense();
        let left = self.rows - self.next_row;
        let rows = usize::try_from(left).map_or(max_rows, |left| left.min(max_rows));
        let Some(mut left) = rows.checked_mul(self.row_bytes) else {
            return Err(Failure::input(&self.path, format!("{rows} rows do not fit in memory")));
        };
        while left > 0 {
            let bytes = &mut self.bytes[..left.min(CHUNK)];
            self.contents.read_exact(bytes).map_err(|error| failure(&self.path, &error))?;
            (self.decode)(bytes, values);
            left -= bytes.len();
        }
        self.next_row += rows as u64;
        if rows > 0 && self.next_row == self.rows {
            self.finish()?;
        }
        Ok(rows)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::Stored;
    use super::super::tests::{Numbers, Scratch, read_all};
    use super::*;

    /// An IDX file.
    pub(in super::super) fn idx(code: u8, shape: &[u32], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, code, u8::try_from(shape.len()).unwrap()];
        bytes.extend(shape.iter().flat_map(|size| size.to_be_bytes()));
        bytes.extend(data);
        bytes
    }

    /// Gzipped bytes.
    pub(in super::super) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn names_of_idx_files() {
        for name in ["x.idx", "train-images-idx3-ubyte", "train-images.idx3-ubyte", "train-labels-idx1-ubyte"] {
            assert!(is_name(name) && is_name(&format!("{name}.gz")), "{name}");
        }
        for name in ["idx", "x.idx.bz2", "x.gz", "idx3-ubyte", "x-ubyte", "x-idx-ubyte", "xidx3-ubyte", "x.idx.csv", ""]
        {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn every_type_plain_and_compressed() {
        macro_rules! check {
            ($($code:literal: $type:ident $values:expr;)*) => {$(
                let values: [$type; 4] = $values;
                let data: Vec<u8> = values.iter().flat_map(|value| value.to_be_bytes()).collect();
                let expected: Vec<f64> = values.iter().map(|value| value.to_element()).collect();
                let rounded: Vec<f32> = values.iter().map(|value| value.to_element()).collect();
                for (shape, columns) in [(&[2, 2][..], 2), (&[4], 1), (&[1, 2, 1, 2], 4)] {
                    let plain = idx($code, shape, &data);
                    for (name, bytes) in [("x.idx", plain.clone()), ("X.IDX.GZ", gzip(&plain)), ("x.idx.gz", plain)] {
                        let scratch = Scratch::new(name, bytes);
                        assert_eq!(read_all::<f64>(&scratch.path, 1).unwrap(), (columns, expected.clone()));
                        assert_eq!(read_all::<f32>(&scratch.path, 9).unwrap(), (columns, rounded.clone()));
                    }
                }
            )*};
        }
        check! {
            0x08: u8 [0, 1, 128, u8::MAX];
            0x09: i8 [0, -1, i8::MIN, i8::MAX];
            0x0b: i16 [0, -1, i16::MIN, i16::MAX];
            0x0c: i32 [0, -1, i32::MIN, i32::MAX];
            0x0d: f32 [1.0, -2.5, f32::MAX, 1e-40];
            0x0e: f64 [1.0, -2.5, 0.1, f64::INFINITY];
        }
    }

    #[test]
    fn large_files_come_in_many_chunks() {
        let mut numbers = Numbers::new(3);
        let data: Vec<u8> = (0..700 * 784).map(|_| numbers.next().to_le_bytes()[0]).collect();
        let expected: Vec<f32> = data.iter().map(|&byte| f32::from(byte)).collect();
        let plain = idx(0x08, &[700, 28, 28], &data);
        // A file compressed in two parts is one file, too.
        let (first, second) = plain.split_at(300_000);
        let parts = [gzip(first), gzip(second)].concat();
        for bytes in [plain.clone(), gzip(&plain), parts] {
            let scratch = Scratch::new("train-images-idx3-ubyte.gz", bytes);
            for max_rows in [7, 640, usize::MAX] {
                assert!(read_all::<f32>(&scratch.path, max_rows).unwrap() == (784, expected.clone()));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let four = idx(0x08, &[2, 2], &[1, 2, 3, 4]);
        let zip = gzip(&four);
        let mut checksum = zip.clone();
        let end = checksum.len() - 8;
        checksum[end] ^= 1;
        for (bytes, message) in [
            (vec![], "is empty"),
            (vec![0, 0, 8], "ends too early"),
            (vec![0, 0, 8, 2, 0, 0, 0, 1], "ends too early"),
            (b"1,2\n3,4\n".to_vec(), "is not an IDX file"),
            (vec![0x1f, 0x8b], "ends too early"),
            (gzip(b""), "ends too early"),
            (gzip(b"1,2\n3,4\n"), "is not an IDX file"),
            (idx(0x0a, &[1], &[1]), "type 0x0a is not known"),
            (idx(0x08, &[], &[]), "has no dimensions"),
            (idx(0x08, &[0, 2], &[]), "the shape is [0, 2]"),
            (idx(0x08, &[2, 0], &[]), "the shape is [2, 0]"),
            (four[..15].to_vec(), "of shape [2, 2] has 16 bytes, but this one has 15; the file is truncated"),
            ([four.clone(), vec![0]].concat(), "has 16 bytes, but this one has 17"),
            (idx(0x0e, &[u32::MAX; 2], &[1]), "has more than 2^64 bytes, but this one has 13;"),
            (idx(0x0e, &[u32::MAX; 255], &[1]), "has more than 2^64 bytes"),
            (gzip(&idx(0x08, &[1, 1 << 20], &[1])), " of gzip; the file is truncated"),
            (gzip(&four[..15]), "ends too early"),
            (zip[..zip.len() - 1].to_vec(), "ends too early"),
            (gzip(&[four.clone(), vec![0]].concat()), "has trailing bytes after its 2 rows"),
            ([zip.clone(), b"something else".to_vec()].concat(), "the gzip data is damaged"),
            // Too short to distinguish from another, truncated part.
            ([zip.clone(), b"else".to_vec()].concat(), "ends too early"),
            (checksum, "the gzip data is damaged"),
        ] {
            let scratch = Scratch::new("x.idx.gz", bytes);
            let failure = read_all::<f32>(&scratch.path, 2).unwrap_err();
            assert_eq!(failure.exit_code(), 2);
            assert!(failure.to_string().starts_with(&*scratch.path.to_string_lossy()));
            assert!(failure.to_string().contains(message), "{failure} does not say {message}");
        }
    }
}
