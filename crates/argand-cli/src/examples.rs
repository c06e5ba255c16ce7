//! What examples look like, for a page of scores: lines of text, images, and labels.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use argand_figure::{Content, Exhibit};

use crate::failure::Failure;
use crate::table::{Header, Label, LabelReader, Options, open_regular, read_images};

/// A longer line is no example to look at.
const LONGEST_LINE: u64 = 16 << 20;
/// Labels read at a time.
const LABELS: usize = 1 << 14;

/// The examples with some numbers, from files of all of them.
///
/// # Errors
/// [`Failure::Input`] if a file has fewer examples, or others than text and images.
pub(crate) fn exhibits(
    examples: Option<&Path>,
    labels: Option<&Path>,
    numbers: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, Exhibit>, Failure> {
    let mut found: BTreeMap<u64, Exhibit> =
        numbers.iter().map(|&number| (number, Exhibit { number, ..Exhibit::default() })).collect();
    if let Some(path) = examples {
        read_contents(path, numbers, |number, content| {
            found.entry(number).or_default().content = content;
        })?;
    }
    if let Some(path) = labels {
        read_labels(path, numbers, |number, label| {
            found.entry(number).or_default().label = Some(label);
        })?;
    }
    Ok(found)
}

/// Labels: a line of text for each, or a table of one column, with its name in the first line if it is text.
fn read_labels(path: &Path, numbers: &BTreeSet<u64>, mut put: impl FnMut(u64, String)) -> Result<(), Failure> {
    if ending(path).as_deref() == Some("txt") {
        return read_lines(path, numbers, |number, line| {
            put(number, line.to_owned());
            Ok(())
        });
    }
    let options = Options { header: Header::Yes, ..Options::default() };
    let mut reader = LabelReader::open(path, &options, None)?;
    let mut row = 0_u64;
    let mut take = |label: Label<'_>| {
        if numbers.contains(&row) {
            put(row, label.name().into_owned());
        }
        row += 1;
        Ok(())
    };
    while reader.read(LABELS, &mut take)? > 0 {}
    check_last(path, numbers, row, "labels")
}

fn ending(path: &Path) -> Option<String> {
    path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase)
}

fn read_contents(path: &Path, numbers: &BTreeSet<u64>, mut put: impl FnMut(u64, Content)) -> Result<(), Failure> {
    let json = match ending(path).as_deref() {
        Some("txt") => false,
        Some("jsonl") => true,
        _ => {
            let numbers: Vec<u64> = numbers.iter().copied().collect();
            return read_images(path, &numbers, |number, width, height, pixels| {
                let content = Content::image(width, height, pixels).map_err(|what| Failure::input(path, what))?;
                put(number, content);
                Ok(())
            });
        }
    };
    read_lines(path, numbers, |number, line| {
        put(number, Content::Text(if json { text_of(path, number, line)? } else { line.to_owned() }));
        Ok(())
    })
}

/// The lines with some numbers, counted from 0.
fn read_lines(
    path: &Path,
    numbers: &BTreeSet<u64>,
    mut put: impl FnMut(u64, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut file = BufReader::new(open_regular(path)?.0);
    let (mut line, mut place) = (Vec::new(), 0);
    let last = numbers.last().copied();
    while Some(place) <= last {
        line.clear();
        let read = file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::io(path, "read", &error))? == 0 {
            break;
        }
        if line.len() as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
            return Err(Failure::input(path, format!("line {} is longer than {LONGEST_LINE} bytes", place + 1)));
        }
        if numbers.contains(&place) {
            let text = String::from_utf8_lossy(&line);
            put(place, text.trim_end_matches(['\n', '\r']))?;
        }
        place += 1;
    }
    check_last(path, numbers, place, "lines")
}

/// The text of a line of JSON: a string, or the field "text" of an object.
fn text_of(path: &Path, place: u64, line: &str) -> Result<String, Failure> {
    let wrong = |what: String| Failure::input(path, format!("line {}: {what}", place + 1));
    let value: serde_json::Value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
    let text = value.get("text").unwrap_or(&value).as_str();
    text.map(str::to_owned).ok_or_else(|| wrong("expected a string, or an object with a \"text\"".to_owned()))
}

fn check_last(path: &Path, numbers: &BTreeSet<u64>, count: u64, what: &str) -> Result<(), Failure> {
    match numbers.last() {
        Some(&last) if last >= count => {
            Err(Failure::input(path, format!("has {count} {what}, and example {last} is not among them")))
        }
        _ => Ok(()),
    }
}
