//! Every picture in `docs/` is what its numbers give, and can be read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use resvg::usvg::{self, Group, Node, Options, Rect, TextAnchor, Tree};

/// The width of a picture on a phone, and the size of the smallest text there.
const PHONE: f32 = 375.0;
const SMALLEST: f32 = 9.5;
/// Other fonts are wider than the one that is measured with: DejaVu Sans by up to this.
const WIDER: f32 = 1.2;

struct Text {
    words: String,
    place: Rect,
    size: f32,
    /// Where text outside is cut.
    frame: Rect,
}

/// What is wrong with a picture, in words.
fn faults(svg: &str) -> Vec<String> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().unwrap().families[0].0.clone();
    fonts.set_sans_serif_family(family);
    let tree = Tree::from_str(svg, &Options { fontdb: Arc::new(fonts), ..Options::default() }).unwrap();
    let mut texts = Vec::new();
    let whole = Rect::from_xywh(0.0, 0.0, tree.size().width(), tree.size().height()).unwrap();
    collect(tree.root(), whole, &mut texts);
    let mut faults = Vec::new();
    if texts.is_empty() {
        faults.push("no text".to_owned());
    }
    for (at, chart) in svg.split("class=\"chart\"").skip(1).enumerate() {
        if !["<polyline", "<circle"].iter().any(|mark| chart.contains(mark)) {
            faults.push(format!("chart {} is empty", at + 1));
        }
    }
    for (at, text) in texts.iter().enumerate() {
        let Text { words, place, size, frame } = text;
        if place.left() < frame.left() - 0.5
            || place.right() > frame.right() + 0.5
            || place.top() < frame.top() - 0.5
            || place.bottom() > frame.bottom() + 0.5
        {
            faults.push(format!("{words:?} is cut"));
        }
        if size * PHONE / whole.width() < SMALLEST {
            faults.push(format!("{words:?} is tiny"));
        }
        for other in &texts[at + 1..] {
            let across = place.right().min(other.place.right()) - place.left().max(other.place.left());
            let down = place.bottom().min(other.place.bottom()) - place.top().max(other.place.top());
            if across > 0.5 && down > 0.5 {
                faults.push(format!("{words:?} and {:?} overlap", other.words));
            }
        }
    }
    faults
}

fn collect(group: &Group, frame: Rect, texts: &mut Vec<Text>) {
    let clip = group.clip_path().map(|clip| clip.root().abs_bounding_box());
    let frame = clip.map_or(frame, |clip| {
        let clip = clip.transform(group.abs_transform()).unwrap();
        let [left, top] = [clip.left().max(frame.left()), clip.top().max(frame.top())];
        Rect::from_ltrb(left, top, clip.right().min(frame.right()), clip.bottom().min(frame.bottom())).unwrap()
    });
    for node in group.children() {
        match node {
            Node::Group(group) => collect(group, frame, texts),
            Node::Text(text) => {
                let chunk = &text.chunks()[0];
                let narrow = text.abs_bounding_box();
                let more = narrow.width() * (WIDER - 1.0);
                let before = match chunk.anchor() {
                    TextAnchor::Start => 0.0,
                    TextAnchor::Middle => more / 2.0,
                    TextAnchor::End => more,
                };
                let place =
                    Rect::from_xywh(narrow.left() - before, narrow.top(), narrow.width() + more, narrow.height());
                let size = chunk.spans()[0].font_size().get() * text.abs_transform().get_scale().0;
                texts.push(Text { words: chunk.text().to_owned(), place: place.unwrap(), size, frame });
            }
            _ => {}
        }
    }
}

/// All SVG files in a folder and below.
fn svg_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(svg_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "svg") {
            found.push(path);
        }
    }
    found
}

#[test]
fn committed_pictures_can_be_read() {
    let files = svg_files(&super::docs());
    assert!(files.len() > 15, "{files:?}");
    let found: Vec<String> = (files.iter())
        .flat_map(|file| {
            let faults = faults(&fs::read_to_string(file).unwrap());
            faults.into_iter().map(|fault| format!("{}: {fault}", file.display()))
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn committed_pictures_are_what_their_numbers_give() {
    for (path, svg) in super::pictures().unwrap() {
        let committed = fs::read_to_string(super::docs().join(&path)).unwrap_or_default();
        assert!(committed == svg, "docs/{}: draw it again with `make figures`", path.display());
    }
}

#[test]
fn faults_of_pictures_are_noticed() {
    let picture = |inside: &str| {
        format!(
            "<svg width=\"480\" height=\"300\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"14\">{inside}</svg>"
        )
    };
    let good = "<text x=\"10\" y=\"20\">first</text><text x=\"60\" y=\"20\">second</text><text x=\"470\" y=\"60\" text-anchor=\"end\">last</text>";
    assert_eq!(faults(&picture(good)), [] as [&str; 0]);
    let empty = "<svg class=\"chart\"><text x=\"10\" y=\"20\">title</text></svg>";
    for (inside, fault) in [
        (empty, "chart 1 is empty"),
        ("<path d=\"M0 0H9\"/>", "no text"),
        (
            "<text x=\"10\" y=\"20\">first</text><text x=\"30\" y=\"25\">second</text>",
            "\"first\" and \"second\" overlap",
        ),
        ("<text x=\"450\" y=\"20\">beyond</text>", "\"beyond\" is cut"),
        ("<text x=\"10\" y=\"298\">low</text>", "\"low\" is cut"),
        ("<text x=\"-1\" y=\"20\">early</text>", "\"early\" is cut"),
        ("<text x=\"10\" y=\"20\" font-size=\"10\">small</text>", "\"small\" is tiny"),
        ("<svg y=\"50\" width=\"480\" height=\"40\"><text x=\"10\" y=\"42\">inner</text></svg>", "\"inner\" is cut"),
    ] {
        assert_eq!(faults(&picture(inside)), [fault]);
    }
}
