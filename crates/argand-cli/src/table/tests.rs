//! Tests for all formats: round trips, damaged files and missing files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// A file in a temporary folder, removed with it.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
    folder: tempfile::TempDir,
}

impl Scratch {
    pub(super) fn new(name: &str, contents: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, contents).unwrap();
        Self { path, folder }
    }
}

/// The number of columns and all values of a table read in blocks of `max_rows`; sparse rows are filled with zeros.
pub(super) fn read_all<T: Element>(path: &Path, max_rows: usize) -> Result<(usize, Vec<T>), Failure> {
    let mut reader = open::<T>(path, &Options::default(), None, None)?;
    let columns = reader.columns();
    let (mut block, mut all, mut rows) = (Block::default(), Vec::new(), 0);
    loop {
        let count = reader.read(max_rows, &mut block)?;
        rows += count as u64;
        match &block {
            Block::Dense { values } => {
                assert_eq!(values.len(), count * columns);
                all.extend_from_slice(values);
            }
            Block::Sparse { indptr, indices, values } => {
                assert_eq!((indptr.len(), indices.len()), (count + 1, values.len()));
                for row in indptr.windows(2) {
                    let (start, end) = (usize::try_from(row[0]).unwrap(), usize::try_from(row[1]).unwrap());
                    // Damaged files may name absurdly high columns; fill only the others.
                    let offset = all.len();
                    all.resize(offset + columns.min(1000), T::default());
                    for (&column, &value) in indices[start..end].iter().zip(&values[start..end]) {
                        assert!((column as usize) < columns);
                        if column < 1000 {
                            all[offset + column as usize] = value;
                        }
                    }
                }
            }
        }
        if count < max_rows {
            assert!(reader.rows().is_none_or(|expected| expected == rows));
            assert_eq!(reader.progress().done, reader.progress().total);
            assert_eq!(reader.read(max_rows, &mut block)?, 0);
            return Ok((columns, all));
        }
    }
}

/// Reproducible pseudo-random numbers.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

fn write_all<T: Element>(path: &Path, columns: Columns, blocks: &[&[T]]) {
    let mut writer = create::<T>(path, columns).unwrap();
    for block in blocks {
        writer.write(block).unwrap();
    }
    writer.finish().unwrap().commit().unwrap();
}

fn round_trip<T: Element + PartialEq + From<f32>>(name: &str) {
    let mut numbers = Numbers::new(7);
    for (rows, width) in [(1, 1), (3, 2), (200, 30), (2, 5000), (1000, 4)] {
        // All magnitudes of a float, of both signs.
        let number = |bits: u64| f32::from_bits(u32::try_from(bits >> 32).unwrap());
        let values: Vec<T> = std::iter::repeat_with(|| number(numbers.next()))
            .filter(|number| number.is_finite())
            .map(|number| T::from(number))
            .take(rows * width)
            .collect();
        let scratch = Scratch::new(name, "");
        let (first, second) = values.split_at(rows / 2 * width);
        write_all(&scratch.path, Columns::Real(width), &[first, second]);
        for max_rows in [1, 77, usize::MAX] {
            assert_eq!(
                read_all::<T>(&scratch.path, max_rows).unwrap(),
                (width, values.clone()),
                "{name} {rows} {width}"
            );
        }
        let names: Vec<_> =
            fs::read_dir(scratch.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
fn what_is_written_is_read() {
    for name in ["x.npy", "x.csv", "x.parquet", "X.PQ"] {
        round_trip::<f32>(name);
        round_trip::<f64>(name);
    }
}

#[test]
fn an_unfinished_table_leaves_nothing_behind() {
    for name in ["y.npy", "y.csv", "y.parquet"] {
        let scratch = Scratch::new("other", "");
        let mut writer = create::<f64>(&scratch.path.with_file_name(name), Columns::Real(2)).unwrap();
        writer.write(&[1.0; 2000]).unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(scratch.folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let scratch = Scratch::new("x.npz", "");
    let refuse = |path: &Path| {
        let failure = open::<f32>(path, &Options::default(), None, None).err().unwrap();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().starts_with(&format!("{}: ", path.display())), "{failure}");
        failure.to_string()
    };
    assert!(
        refuse(&scratch.path).contains(
            "expected .npy, .csv, .tsv, .data, .dat (each of these four also with .gz), .parquet, .pq, .libsvm"
        )
    );
    assert!(refuse(Path::new("table")).contains("expected .npy, "));
    for name in
        ["x.npy", "x.CSV", "x.tsv", "x.csv.gz", "x.data", "x.parquet", "x.svm", "x.idx", "x.idx.gz", "x-idx3-ubyte"]
    {
        let path = scratch.path.with_file_name(name);
        assert!(refuse(&path).contains("cannot open: "));
        fs::create_dir(&path).unwrap();
        assert!(refuse(&path).contains("is a folder"));
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(refuse(&path).contains("is empty"));
    }
    for name in ["x.svm", "x.idx.gz"] {
        let failure = create::<f32>(Path::new(name), Columns::Real(1)).err().unwrap();
        assert!(failure.to_string().contains("files are only read; write .npy, .csv or .parquet"));
    }
    let failure = create::<f32>(Path::new("no/such/x.csv"), Columns::Real(1)).err().unwrap();
    assert_eq!(failure.to_string(), "no/such/x.csv: the folder no/such does not exist; create it first");
}

/// Damages a file in many ways and reads it: the result is rows or a failure, never a panic.
pub(super) fn read_damaged(name: &str, whole: &[u8], tries: usize) {
    let mut numbers = Numbers::new(whole.len() as u64);
    let scratch = Scratch::new(name, whole);
    read_all::<f32>(&scratch.path, 10).unwrap();
    for attempt in 0..tries {
        let mut bytes = whole.to_vec();
        match attempt % 4 {
            0 => bytes.truncate(numbers.below(whole.len())),
            1 => {
                let byte = numbers.below(whole.len());
                bytes[byte] ^= 1 << numbers.below(8);
            }
            // A byte matters most in headers and footers.
            2 => {
                let near = numbers.below(whole.len().min(400));
                let byte = if attempt % 8 == 2 { near } else { whole.len() - 1 - near };
                bytes[byte] = numbers.next().to_le_bytes()[0];
            }
            _ => {
                for _ in 0..1 + numbers.below(8) {
                    let byte = numbers.below(whole.len());
                    bytes[byte] = [0, 0x7f, 0xff, b'9', b'\n'][numbers.below(5)];
                }
            }
        }
        fs::write(&scratch.path, &bytes).unwrap();
        if let Err(failure) = read_all::<f32>(&scratch.path, 10) {
            assert!(failure.to_string().starts_with(&*scratch.path.to_string_lossy()), "{failure}");
            assert_eq!(failure.exit_code(), 2, "{failure}");
        }
    }
}

#[test]
fn damaged_files_never_panic() {
    for name in ["x.npy", "x.csv", "x.parquet"] {
        let scratch = Scratch::new(name, "");
        write_all(&scratch.path, Columns::Real(3), &[&[1.5_f64; 30], &[0.1; 30]]);
        read_damaged(name, &fs::read(&scratch.path).unwrap(), 800);
    }
    let idx = idx::tests::idx(0x0d, &[20, 3], &[0; 240]);
    read_damaged("x.idx", &idx, 800);
    read_damaged("x.idx.gz", &idx::tests::gzip(&idx), 800);
    read_damaged("x.svm", b"1 1:2 3:4.5 # c\n-1 qid:3 2:1e3\n0\n2 1:1 2:2 3:3\n", 800);
}

#[test]
fn some_rows_are_kept() {
    let mut dense = Block::Dense { values: vec![0, 1, 10, 11, 20, 21, 30, 31] };
    dense.keep(&[1, 3], 2);
    assert_eq!(dense, Block::Dense { values: vec![10, 11, 30, 31] });
    dense.keep(&[], 2);
    assert_eq!(dense, Block::Dense { values: vec![] });
    let mut sparse =
        Block::Sparse { indptr: vec![0, 2, 2, 3, 5], indices: vec![0, 4, 1, 2, 3], values: vec![1, 2, 3, 4, 5] };
    sparse.keep(&[1, 2, 3], 5);
    let expected = Block::Sparse { indptr: vec![0, 0, 1, 3], indices: vec![1, 2, 3], values: vec![3, 4, 5] };
    assert_eq!(sparse, expected);
    sparse.keep(&[2], 5);
    assert_eq!(sparse, Block::Sparse { indptr: vec![0, 2], indices: vec![2, 3], values: vec![4, 5] });
}
