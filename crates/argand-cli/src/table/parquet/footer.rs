//! Checks the footer of a Parquet file before the `parquet` crate trusts it.
//!
//! That crate allocates as many list entries as the footer claims, and follows a schema as deep as the footer
//! nests it. A damaged footer could thus ask for hundreds of gigabytes, or overflow the stack: both end the process,
//! and neither can be caught. Walking the bytes once proves that every claimed entry exists.
//!
//! The encoding is Thrift's compact protocol: a structure is a sequence of fields (type and number, then the value)
//! ended by a zero byte; integers are variable-length, zigzag if signed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Bytes after the footer: its length, and the magic word.
const TAIL: u64 = 8;
/// Footers nest fewer than ten levels, tables of numbers even fewer.
const DEEPEST: usize = 24;
/// Field of the footer that lists the schema.
const SCHEMA: i64 = 2;
/// Field of a schema entry that counts its children.
const CHILDREN: i64 = 5;

/// Checks the footer of a file of `total` bytes.
///
/// # Errors
/// The fault, in words.
pub(super) fn check(file: &mut File, total: u64) -> Result<(), String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let mut tail = [0; 8];
    if total < 4 + TAIL {
        return Err("is too short for a Parquet file".into());
    }
    file.seek(SeekFrom::End(-8)).and_then(|_| file.read_exact(&mut tail)).map_err(unreadable)?;
    let [a, b, c, d, magic @ ..] = tail;
    if &magic != b"PAR1" {
        return Err("does not end as a Parquet file does; it is truncated or in another format".into());
    }
    let length = u32::from_le_bytes([a, b, c, d]);
    let start = (total - TAIL).checked_sub(u64::from(length)).ok_or("claims a footer longer than the file")?;
    let mut footer = Vec::new();
    file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
    file.take(u64::from(length)).read_to_end(&mut footer).map_err(unreadable)?;
    check_bytes(&footer).ok_or_else(|| "has a damaged footer".into())
}

/// Fields of a page's header: bytes when decompressed, and as stored.
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;
/// Headers of pages hold a few numbers, and the smallest and largest value.
const LONGEST_PAGE_HEADER: u64 = 1 << 16;

/// The most bytes that a page of a column takes in memory, decompressed or not, for the pages from `start` on that take `length` bytes.
/// Pages that cannot be walked over are left to the `parquet` crate, which refuses them.
pub(super) fn largest_page(file: &mut File, start: u64, length: u64) -> std::io::Result<u64> {
    let (mut at, end, mut largest) = (start, start.saturating_add(length), 0);
    let mut bytes = Vec::new();
    while at < end {
        let mut header = None;
        for longest in [1 << 9, LONGEST_PAGE_HEADER] {
            bytes.clear();
            file.seek(SeekFrom::Start(at))?;
            file.take(longest).read_to_end(&mut bytes)?;
            header = page_sizes(&bytes);
            if header.is_some() {
                break;
            }
        }
        let Some((header, [uncompressed, compressed])) = header else { break };
        largest = largest.max(uncompressed).max(compressed);
        at = at.saturating_add(header).saturating_add(compressed);
    }
    Ok(largest)
}

/// The length of a page's header, and the sizes that it claims.
fn page_sizes(bytes: &[u8]) -> Option<(u64, [u64; 2])> {
    let mut walk = Walk { bytes };
    let (mut number, mut sizes) = (0, [0; 2]);
    while let Some(kind) = walk.field(&mut number)? {
        match (number, kind) {
            (UNCOMPRESSED, Kind::Integer) => sizes[0] = u64::try_from(walk.signed()?).ok()?,
            (COMPRESSED, Kind::Integer) => sizes[1] = u64::try_from(walk.signed()?).ok()?,
            _ => walk.value(kind, DEEPEST)?,
        }
    }
    Some(((bytes.len() - walk.bytes.len()) as u64, sizes))
}

/// Whether a footer is free of the dangers above.
fn check_bytes(footer: &[u8]) -> Option<()> {
    let mut walk = Walk { bytes: footer };
    let mut number = 0;
    while let Some(kind) = walk.field(&mut number)? {
        if number == SCHEMA && kind == Kind::List {
            walk.schema()?;
        } else {
            walk.value(kind, DEEPEST)?;
        }
    }
    Some(())
}

/// The types of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Structure,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        Some(match code & 0x0f {
            1 | 2 => Self::Boolean,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Structure,
            _ => return None,
        })
    }
}

/// The part of a footer still to walk.
struct Walk<'a> {
    bytes: &'a [u8],
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// The type of the next field of a structure, or an inner `None` at its end; `number` carries over between fields.
    fn field(&mut self, number: &mut i64) -> Option<Option<Kind>> {
        let header = self.byte()?;
        if header & 0x0f == 0 {
            return Some(None);
        }
        *number = match header >> 4 {
            0 => self.signed()?,
            step => number.checked_add(i64::from(step))?,
        };
        Some(Some(Kind::of(header)?))
    }

    /// The type and number of the entries of a list.
    fn list(&mut self) -> Option<(Kind, u64)> {
        let header = self.byte()?;
        // Some writers give an empty list no type.
        if header == 0 {
            return Some((Kind::Byte, 0));
        }
        let count = match header >> 4 {
            15 => self.unsigned()?,
            few => u64::from(few),
        };
        Some((Kind::of(header)?, count))
    }

    /// Walks over a value that may nest others up to `depth` levels deep.
    fn value(&mut self, kind: Kind, depth: usize) -> Option<()> {
        let deeper = depth.checked_sub(1)?;
        match kind {
            Kind::Boolean => {}
            Kind::Byte => self.skip(1)?,
            Kind::Integer => self.unsigned().map(drop)?,
            Kind::Double => self.skip(8)?,
            Kind::Binary => {
                let length = self.unsigned()?;
                self.skip(length)?;
            }
            Kind::List => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    self.entry(kind, deeper)?;
                }
            }
            Kind::Map => {
                let count = self.unsigned()?;
                let kinds = if count > 0 { self.byte()? } else { 0x33 };
                let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds)?);
                for _ in 0..count {
                    self.entry(key, deeper)?;
                    self.entry(value, deeper)?;
                }
            }
            Kind::Structure => {
                let mut number = 0;
                while let Some(kind) = self.field(&mut number)? {
                    self.value(kind, deeper)?;
                }
            }
        }
        Some(())
    }

    /// A value inside a list or map, where a boolean takes a byte. Every entry takes at least one.
    fn entry(&mut self, kind: Kind, depth: usize) -> Option<()> {
        self.value(if kind == Kind::Boolean { Kind::Byte } else { kind }, depth)
    }

    /// Walks over the schema, a tree written in depth-first order, and checks how deep it is.
    fn schema(&mut self) -> Option<()> {
        let (kind, count) = self.list()?;
        // Children still to come at each level above.
        let mut open: Vec<u64> = Vec::new();
        for _ in 0..count {
            (kind == Kind::Structure).then_some(())?;
            let (mut number, mut children) = (0, 0);
            while let Some(kind) = self.field(&mut number)? {
                if number == CHILDREN && kind == Kind::Integer {
                    children = u64::try_from(self.signed()?).ok()?;
                } else {
                    self.value(kind, DEEPEST)?;
                }
            }
            if let Some(siblings) = open.last_mut() {
                *siblings -= 1;
            }
            if children > 0 {
                open.push(children);
            }
            (children <= count && open.len() <= DEEPEST).then_some(())?;
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schema entry with `children`, in its encoding.
    fn entry(children: u8) -> [u8; 3] {
        [0x55, 2 * children, 0]
    }

    /// A footer with a schema of these entries.
    fn footer(count: &[u8], entries: &[[u8; 3]]) -> Vec<u8> {
        [&[0x29], count, entries.as_flattened(), &[0]].concat()
    }

    #[test]
    fn claimed_entries_must_be_there() {
        assert!(check_bytes(&footer(&[0x3c], &[entry(2), entry(0), entry(0)])).is_some());
        assert!(check_bytes(&footer(&[0xfc, 3], &[entry(2), entry(0), entry(0)])).is_some());
        assert!(check_bytes(&footer(&[0xfc, 0xff, 0xff, 0xff, 0xff, 7], &[entry(2), entry(0), entry(0)])).is_none());
        assert!(check_bytes(&footer(&[0x2c], &[entry(60), entry(0)])).is_none());
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: u8| {
            let mut entries = vec![entry(1); depth.into()];
            entries.push(entry(0));
            footer(&[0xfc, depth + 1], &entries)
        };
        assert!(check_bytes(&nested(20)).is_some());
        assert!(check_bytes(&nested(90)).is_none());
        // Nested structures outside the schema.
        assert!(check_bytes(&[0x8c; 100]).is_none());
    }
}
