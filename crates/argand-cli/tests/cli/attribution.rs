//! `argand attribute`: tables, messages, and its page in a real browser. Screenshots stay in `target/tmp/attribution`.

use std::fs;
use std::path::Path;

use argand_learn::attribution::{Options, Store, attribute};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::report::{Browser, DESKTOP, PHONE, PHONE_AT_NIGHT, View};
use crate::support::*;

/// A text that would be markup if not escaped.
const MARKUP: &str = "<img/src=x/onerror=alert(1)>";
const COLUMNS: usize = 7;

/// Adds a shard to a store with the layers `a`, of 4 numbers, and `b`, of 3.
fn record(workspace: &Workspace, store: &str, first: usize, rows: usize, model: &str) {
    let folder = workspace.path(store);
    fs::create_dir_all(&folder).unwrap();
    let layer = |name: &str, features: usize| json!({"name": name, "kind": "linear", "inputs": 2, "outputs": 2, "features": features, "spec": null});
    let about = json!({
        "format": "argand-gradients", "version": 1, "shard_rows": 64, "model": model, "layers": [layer("a", 4), layer("b", 3)],
    });
    fs::write(folder.join("store.json"), about.to_string()).unwrap();
    let number = |at: usize| ((at * 2_654_435_761 + at * at * 40_503) % 2003) as f32 / 1000.0 - 1.0;
    let numbers: Vec<u8> = (0..rows * COLUMNS).flat_map(|at| number(at + 31 * first + 1).to_le_bytes()).collect();
    let table = npy("<f4", rows, COLUMNS, &numbers);
    let mut sum = flate2::Crc::new();
    sum.update(&table);
    let entry = json!({"first": first, "rows": rows, "crc32": format!("{:08x}", sum.sum())});
    fs::write(folder.join(format!("shard-{first:012}.npy")), table).unwrap();
    fs::write(folder.join(format!("shard-{first:012}.json")), entry.to_string()).unwrap();
}

/// 40 examples, with a gap, and 4 queries; what they look like as text, as images, and their labels.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    record(&workspace, "train", 0, 25, "0a");
    record(&workspace, "train", 30, 15, "0a");
    record(&workspace, "queries", 0, 4, "0a");
    let line =
        |number: usize| format!("{MARKUP} example {number}: {}\n", "a text of several words ".repeat(number % 9));
    workspace.write("train.txt", (0..45).map(line).collect::<String>());
    let line = |number: usize| json!({"text": format!("query {number}\nof two lines"), "more": 1}).to_string() + "\n";
    workspace.write("queries.jsonl", (0..4).map(line).collect::<String>());
    let pixels: Vec<u8> = (0..=250_u8).cycle().take(45 * 12 * 10 * 3).collect();
    let header = npy("|u1", 45, 12, &[]);
    let header = String::from_utf8_lossy(&header[10..]).replace("(45, 12)", "(45, 12, 10, 3)");
    let header = format!("{:<117}\n", header.trim_end());
    workspace.write("train.npy", [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), &pixels].concat());
    let sizes = [4_u32, 12, 10].map(u32::to_be_bytes);
    workspace.write("queries.idx.gz", gzip(&[&[0, 0, 8, 3], sizes.as_flattened(), &pixels[..4 * 120]].concat()));
    let labels: String = (0..45).map(|number| format!("class-{}\n", number % 3)).collect();
    workspace.write("labels.csv", "class\n".to_owned() + &labels);
    workspace.write("labels.txt", labels);
    workspace
}

#[test]
fn scores_are_those_of_the_library() {
    let workspace = workspace();
    let shown = workspace.succeed("attribute train queries --top 6 -o scores.parquet").stdout;
    assert!(shown.starts_with("query 0\n") && shown.contains("and 1 more queries"), "{shown}");
    assert!(shown.contains("influence of 40 examples for 4 queries"), "{shown}");
    let [train, queries] = ["train", "queries"].map(|name| Store::open(workspace.path(name)).unwrap());
    let scores = attribute(&train, &queries, 6, &Options::default(), &mut |_| ()).unwrap();
    let expected: Vec<_> = (0..4)
        .flat_map(|query| {
            [("helpful", &scores.helpful), ("harmful", &scores.harmful)].into_iter().flat_map(move |(kind, list)| {
                (1_i64..)
                    .zip(&list[6 * query..][..6])
                    .map(move |(rank, ranked)| (query as i64, kind.to_owned(), rank, *ranked))
            })
        })
        .collect();
    let file = fs::File::open(workspace.path("scores.parquet")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    let [batch] = &batches[..] else { panic!("{} batches", batches.len()) };
    let names = ["query", "rank", "kind", "example", "score", "standard_error", "rank_low", "rank_high"];
    assert!(batch.schema().fields().iter().map(|field| field.name()).eq(names));
    assert_eq!(batch.num_rows(), expected.len());
    let whole = |column: usize, row: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
    let real = |column: usize, row: usize| batch.column(column).as_primitive::<Float64Type>().value(row);
    for (row, (query, kind, rank, ranked)) in expected.iter().enumerate() {
        assert_eq!((whole(0, row), whole(1, row)), (*query, *rank));
        assert_eq!(batch.column(2).as_string::<i32>().value(row), kind);
        assert_eq!(whole(3, row), i64::try_from(ranked.example).unwrap());
        assert_eq!(
            [real(4, row), real(5, row)].map(f64::to_bits),
            [ranked.score, ranked.standard_error].map(f64::to_bits)
        );
        assert_eq!([whole(6, row), whole(7, row)], [ranked.rank_low, ranked.rank_high].map(|rank| rank as i64));
    }
    // The same as text, on one thread, without the sums that were kept.
    for entry in fs::read_dir(workspace.path("train")).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|ending| ending == "sums") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let quiet = workspace.succeed("attribute train queries --top 6 -o scores.csv --threads 1 --quiet");
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    let text = String::from_utf8(workspace.read("scores.csv")).unwrap();
    let lines: Vec<String> = expected
        .iter()
        .map(|(query, kind, rank, of)| {
            format!(
                "{query},{rank},{kind},{},{},{},{},{}",
                of.example, of.score, of.standard_error, of.rank_low, of.rank_high
            )
        })
        .collect();
    assert_eq!(text.trim_end(), names.join(",") + "\n" + &lines.join("\n"));
}

#[test]
fn options_and_mistakes() {
    let workspace = workspace();
    for options in
        ["--score cosine --layers b", "--score similarity", "--joint --lambda 0.5", "--damping 2 --layers a b"]
    {
        workspace.succeed(&format!("attribute train queries --top 3 {options} -o out.csv"));
    }
    fs::remove_file(workspace.path("out.csv")).unwrap();
    let clipped = workspace.succeed("attribute train queries --top 99 --quiet");
    assert!(clipped.stderr.contains("train: has 40 examples, fewer than the 99 asked for"), "{}", clipped.stderr);
    for (options, words) in [
        ("train queries --top 0", &["--top: expected at least 1"][..]),
        ("train queries --layers c*", &["--layers: expected patterns of \"a\", \"b\""]),
        ("train queries --damping -1", &["--damping: expected a number of at least 0"]),
        ("train queries --score loss", &["expected influence, similarity or cosine"]),
        ("train queries -o out.npy", &["out.npy", "write .parquet or .csv"]),
        ("train queries -o out.bin", &["out.bin", "unknown file extension"]),
        ("train absent", &["absent: is not a store"]),
        ("train queries --train-examples train.txt", &["--report"]),
        ("train queries --report train.txt --train-examples train.txt", &["--report"]),
        ("train queries --report queries/store.json", &["--report: expected another file than the inputs"]),
        ("train queries --report train/shard-000000000000.npy", &["--report: expected another file than the inputs"]),
        ("train queries --report queries/../train/new.html", &["--report: expected another file", "in train"]),
        ("./train queries -o queries/scores.csv", &["--output: expected another file", "in queries"]),
        ("train queries --report p.html --query-examples labels.csv", &["labels.csv: is not an IDX file"]),
        (
            "train queries --report p.html --train-examples queries.jsonl",
            &["queries.jsonl: has 4 lines", "not among them"],
        ),
        ("train queries --report p.html --train-examples queries.idx.gz", &["queries.idx.gz: has 4 images"]),
        ("train queries --device cuda:99", &["--device"]),
    ] {
        workspace.refuse(&format!("attribute {options} --quiet"), words);
    }
    record(&workspace, "other", 0, 2, "0b");
    workspace.refuse("attribute train other", &["other: holds gradients of another model (0b) than train (0a)"]);
    let path = workspace.path("train/shard-000000000030.npy");
    let mut bytes = fs::read(&path).unwrap();
    bytes[200] ^= 1;
    fs::write(&path, bytes).unwrap();
    workspace.refuse("attribute train queries --score cosine", &["train/shard-000000000030.npy: damaged"]);
}

#[test]
fn stores_are_described() {
    let workspace = workspace();
    fs::write(workspace.path("train/shard-000000000099.npy"), "part").unwrap();
    let text = workspace.succeed("info train").stdout;
    for words in [
        "examples  40",
        "shards    2",
        "each      7 numbers, 28 bytes",
        "gap       examples 25 to 29",
        "unfinished shard-000000000099.npy",
        "layer     a: linear of 2 to 2, 4 features of another projection",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Names of layers are text of somebody else.
    let about = String::from_utf8(workspace.read("train/store.json")).unwrap();
    workspace.write("train/store.json", about.replace("\"b\"", "\"\\u001b[31mb\\nc\""));
    let text = workspace.succeed("info train").stdout;
    assert!(text.contains("layer     \\u{1b}[31mb\\nc: linear"), "{text}");
    fs::create_dir(workspace.path("folder")).unwrap();
    workspace.refuse("info folder", &["folder: is not a store"]);
}

/// The sums cannot be kept: a note, and the same scores.
#[cfg(unix)]
#[test]
fn a_store_that_is_read_only_is_only_a_note() {
    use std::os::unix::fs::PermissionsExt;
    let workspace = workspace();
    let expected = workspace.succeed("attribute train queries").stdout;
    for entry in fs::read_dir(workspace.path("train")).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|ending| ending == "sums") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    fs::set_permissions(workspace.path("train"), fs::Permissions::from_mode(0o555)).unwrap();
    let writable = fs::write(workspace.path("train/probe"), "").is_ok();
    let answer = workspace.succeed("attribute train queries");
    fs::set_permissions(workspace.path("train"), fs::Permissions::from_mode(0o755)).unwrap();
    if writable {
        eprintln!("NOT RUN: whoever may write everywhere has no read-only folders");
        return;
    }
    assert!(answer.stderr.contains("cannot keep the sums of layer \"a\""), "{}", answer.stderr);
    let lists = |text: &str| text.rsplit_once(" in ").unwrap().0.to_owned();
    assert_eq!(lists(&answer.stdout), lists(&expected));
}

const TEXTS: &str =
    "--train-examples train.txt --query-examples queries.jsonl --train-labels labels.csv --query-labels labels.txt";
const IMAGES: &str = "--train-examples train.npy --query-examples queries.idx.gz --train-labels labels.csv";

#[test]
fn the_page_of_scores_looks_right() {
    let workspace = workspace();
    for (options, images) in [(TEXTS, false), (IMAGES, true), ("", false)] {
        workspace.succeed(&format!("attribute train queries --top 9 --report page.html {options}"));
        let page = String::from_utf8(workspace.read("page.html")).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!((page.matches("<section>").count(), page.matches("<li>").count()), (4, 4 * 2 * 9));
        assert!(!page.contains(MARKUP) && !page.contains("<script"));
        assert_eq!(page.matches("data:image/png").count(), if images { 4 * 19 } else { 0 });
    }
    let Some(browser) = Browser::find(LOOK) else {
        eprintln!("NOT RUN: the page of scores was not looked at, for want of a browser: `apt-get install chromium`");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attribution");
    let _ = fs::remove_dir_all(&folder);
    for (name, options) in [("texts", TEXTS), ("images", IMAGES)] {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        workspace.succeed(&format!("attribute train queries --top 9 --report page.html {options}"));
        let page = String::from_utf8(workspace.read("page.html")).unwrap();
        fs::write(folder.join("page.html"), &page).unwrap();
        let narrow = View { name: "narrow", width: 375, ..PHONE };
        for view in [DESKTOP, PHONE, PHONE_AT_NIGHT, narrow] {
            let seen = browser.look(&folder, "page.html", view);
            browser.photograph(&folder, "page.html", view, &seen);
            assert_eq!(seen["faults"], Value::Array(Vec::new()), "{name}, {}", view.name);
            let background = if view.dark { "rgb(20, 23, 29)" } else { "rgb(255, 255, 255)" };
            assert_eq!(seen["background"], background, "{name}, {}", view.name);
            assert_eq!((&seen["bars"], &seen["errors"]), (&json!(72), &json!(72)), "{name}, {}", view.name);
            assert!(seen["unsure"].as_u64().unwrap() > 0, "{seen}");
        }
        // A check that sees nothing would find no fault here, either.
        let broken = page.replace(
            "</body>",
            "<p style=\"width: 900px\">wide</p><img src=\"https://example.org/x.png\"><p style=\"color: #eee\">pale</p>\
             <style>.number { position: absolute }</style></body>",
        );
        fs::write(folder.join("broken.html"), broken).unwrap();
        let seen = browser.look(&folder, "broken.html", narrow);
        fs::remove_file(folder.join("broken.html")).unwrap();
        let faults = seen["faults"].to_string();
        for fault in ["wider than the screen", "an outside resource", "too pale: pale", "overlap"] {
            assert!(faults.contains(fault), "{fault} was not noticed: {faults}");
        }
    }
}

/// Says what is wrong with the page.
const LOOK: &str = r"function look() {
  const page = frame.contentDocument, view = frame.contentWindow, faults = [];
  const all = selector => [...page.querySelectorAll(selector)], words = element => element.textContent.trim().slice(0, 40);
  const background = view.getComputedStyle(page.documentElement).backgroundColor;
  if (page.documentElement.scrollWidth > view.innerWidth)
    faults.push(`the page is wider than the screen: ${page.documentElement.scrollWidth}`);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = view.getComputedStyle(at).backgroundColor;
      if (colour != 'rgba(0, 0, 0, 0)') return colour;
    }
    return background;
  };
  for (const element of all('h1, h2, h3, p, li, blockquote, .number, .score, .unsure')) {
    const style = view.getComputedStyle(element), { left, right, width } = element.getBoundingClientRect();
    if (!width && element.textContent) faults.push(`invisible: ${words(element)}`);
    if (left < 0 || right > view.innerWidth) faults.push(`off the screen: ${words(element)}`);
    if (contrast(style.color, behind(element)) < 4.5) faults.push(`too pale: ${words(element)}`);
  }
  for (const item of all('li')) {
    const outer = item.getBoundingClientRect();
    const parts = [...item.children].filter(part => part.getBoundingClientRect().width).map(part => [words(part) || part.tagName, part.getBoundingClientRect()]);
    parts.forEach(([name, box], index) => {
      if (box.left < outer.left - 1 || box.right > outer.right + 1 || box.bottom > outer.bottom + 1) faults.push(`cut: ${name}`);
      for (const [other, place] of parts.slice(index + 1))
        if (Math.min(box.right, place.right) - Math.max(box.left, place.left) > 1 && Math.min(box.bottom, place.bottom) - Math.max(box.top, place.top) > 2)
          faults.push(`parts overlap: ${name}, ${other}`);
    });
  }
  for (const image of all('img')) {
    if (!image.src.startsWith('data:')) faults.push(`an outside resource: ${image.src}`);
    else if (!image.naturalWidth || image.getBoundingClientRect().width < 40) faults.push(`a picture that cannot be seen: ${image.alt}`);
  }
  const errors = all('svg path:not(.zero)').length, bars = all('svg rect').length, unsure = all('.unsure').length;
  return { faults, background, bars, errors, unsure, height: page.documentElement.scrollHeight };
}";
