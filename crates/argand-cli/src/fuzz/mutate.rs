//! Changes to files that keep what surrounds the change right: lengths and checksums are made anew.

use std::io::{Read, Write};

use serde_json::Value;

use crate::table::tests::Numbers;

/// How a file is built.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Json,
    /// Magic, version, length of the header, header in JSON, numbers, checksum.
    Archive,
    /// Magic, version, length of the header, header in text, numbers.
    Npy,
    Text,
    Binary,
    GzippedText,
    GzippedBinary,
}

/// Numbers at which arithmetic goes wrong.
const NUMBERS: [&str; 21] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "255",
    "256",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e-320",
    "0.1",
];

/// Text that means something to a reader of tables.
const WORDS: [&str; 22] = [
    "", " ", ",", ";", "\t", "\n", "\r\n", "\r", "\"", "\"\"", "'", "#", ":", "nan", "inf", "-", "?", "1:1", "0:1",
    "1e999", "\u{feff}", "\0",
];

impl Shape {
    /// Some bytes with one change; `others` lend parts of theirs.
    pub(super) fn mutate(self, bytes: &[u8], others: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
        // Now and then, what surrounds a change is not made right.
        if numbers.below(10) == 0 {
            return binary(bytes, others, numbers);
        }
        match self {
            Self::Json => json(bytes, numbers),
            Self::Archive => archive(bytes, numbers).unwrap_or_else(|| binary(bytes, others, numbers)),
            Self::Npy => npy(bytes, numbers).unwrap_or_else(|| binary(bytes, others, numbers)),
            Self::Text => text(bytes, numbers),
            Self::Binary => binary(bytes, others, numbers),
            Self::GzippedText => gzip(&text(&gunzip(bytes), numbers)),
            Self::GzippedBinary => gzip(&binary(&gunzip(bytes), others, numbers)),
        }
    }
}

fn one_of<'a>(list: &[&'a str], numbers: &mut Numbers) -> &'a str {
    list[numbers.below(list.len())]
}

/// Flips, cuts, copies of parts, and integers of all widths and both orders.
fn binary(bytes: &[u8], others: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.is_empty() {
        return vec![0];
    }
    let at = numbers.below(bytes.len());
    match numbers.below(6) {
        0 => bytes[at] ^= 1 << numbers.below(8),
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(at..(at + 1 + numbers.below(8)).min(bytes.len()))),
        3 => {
            let other = &others[numbers.below(others.len())];
            let start = numbers.below(other.len().max(1)).min(other.len());
            let end = (start + numbers.below(64)).min(other.len());
            bytes.splice(at..at, other[start..end].iter().copied());
        }
        _ => {
            let number = one_of(&NUMBERS, numbers).parse::<i128>().unwrap_or(-1) & i128::from(u64::MAX);
            let number = u64::try_from(number).unwrap_or(u64::MAX);
            let width = 1 << numbers.below(4);
            let number = if numbers.below(2) == 0 {
                number.to_le_bytes()[..width].to_vec()
            } else {
                number.to_be_bytes()[8 - width..].to_vec()
            };
            bytes.iter_mut().skip(at).zip(number).for_each(|(to, from)| *to = from);
        }
    }
    bytes
}

/// A token, a separator or a line is replaced, removed or repeated.
fn text(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let (mut tokens, mut token): (Vec<Vec<u8>>, Vec<u8>) = (Vec::new(), Vec::new());
    for &byte in bytes {
        if b",;:\t\n\r \"'[](){}".contains(&byte) {
            tokens.extend([std::mem::take(&mut token), vec![byte]]);
        } else {
            token.push(byte);
        }
    }
    tokens.push(token);
    let (at, other) = (numbers.below(tokens.len()), numbers.below(tokens.len()));
    match numbers.below(7) {
        0 => tokens[at] = one_of(&NUMBERS, numbers).into(),
        1 => tokens[at] = one_of(&WORDS, numbers).into(),
        2 => tokens.insert(at, one_of(&WORDS, numbers).into()),
        3 => drop(tokens.remove(at)),
        4 => tokens.swap(at, other),
        5 => {
            let end = (at + 1 + numbers.below(40)).min(tokens.len());
            let again = tokens[at..end].to_vec();
            tokens.splice(at..at, again);
        }
        _ => tokens.truncate(at),
    }
    tokens.concat()
}

/// One value somewhere in the tree is replaced, removed, or changes its place.
fn json(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let Ok(mut tree) = serde_json::from_slice::<Value>(bytes) else { return text(bytes, numbers) };
    // Without its checksum, a changed file says more than that it was changed.
    if let Some(object) = tree.as_object_mut() {
        object.remove("checksum");
    }
    let count = nodes(&tree);
    let (target, source) = (numbers.below(count), numbers.below(count));
    let lent = find(&mut tree, &mut { source }).map_or(Value::Null, |value| value.clone());
    let value = match numbers.below(8) {
        0 => Value::Null,
        1 => Value::Array(vec![]),
        2 => Value::Object(serde_json::Map::new()),
        3 => Value::String(one_of(&WORDS, numbers).to_owned()),
        4 => lent,
        _ => serde_json::from_str(one_of(&NUMBERS, numbers)).unwrap_or(Value::Bool(true)),
    };
    if let Some(place) = find(&mut tree, &mut { target }) {
        match place {
            Value::Object(map) if numbers.below(3) == 0 && !map.is_empty() => {
                let key = map.keys().nth(numbers.below(map.len())).cloned().unwrap_or_default();
                map.remove(&key);
            }
            Value::Array(list) if numbers.below(2) == 0 && !list.is_empty() => match numbers.below(2) {
                0 => drop(list.pop()),
                _ => list.push(value),
            },
            place => *place = value,
        }
    }
    tree.to_string().into_bytes()
}

fn nodes(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(list) => list.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

/// The node that is `left` nodes further on.
fn find<'a>(tree: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(tree);
    }
    *left -= 1;
    match tree {
        Value::Array(list) => list.iter_mut().find_map(|child| find(child, left)),
        Value::Object(map) => map.values_mut().find_map(|child| find(child, left)),
        _ => None,
    }
}

/// The header or the numbers of an archive change; its length and checksum are made anew.
fn archive(bytes: &[u8], numbers: &mut Numbers) -> Option<Vec<u8>> {
    let length = usize::try_from(u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?)).ok()?;
    let (header, rest) = bytes.get(16..)?.split_at_checked(length)?;
    let data = rest.get(..rest.len().checked_sub(4)?)?;
    let (header, data) = match numbers.below(4) {
        0 if !data.is_empty() => (header.to_vec(), binary(data, &[data.to_vec()], numbers)),
        _ => (json(header, numbers), data.to_vec()),
    };
    let length = u32::try_from(header.len()).ok()?.to_le_bytes();
    let mut bytes = [&bytes[..12], &length, &header, &data].concat();
    let mut sum = flate2::Crc::new();
    sum.update(&bytes);
    bytes.extend_from_slice(&sum.sum().to_le_bytes());
    Some(bytes)
}

/// The header or the numbers of an NPY file change; its length is made anew.
fn npy(bytes: &[u8], numbers: &mut Numbers) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?));
    let (header, data) = bytes.get(10..)?.split_at_checked(length)?;
    if numbers.below(4) == 0 {
        return Some([&bytes[..10 + length], &binary(data, &[data.to_vec()], numbers)].concat());
    }
    let header = text(header, numbers);
    let length = u16::try_from(header.len()).ok()?.to_le_bytes();
    Some([&bytes[..8], &length, &header, data].concat())
}

/// What is compressed, or the bytes where they cannot be.
fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match flate2::read::GzDecoder::new(bytes).take(1 << 20).read_to_end(&mut plain) {
        Ok(_) => plain,
        Err(_) => bytes.to_vec(),
    }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default()
}
