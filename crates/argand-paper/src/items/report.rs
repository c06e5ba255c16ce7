//! One page with everything: figures, tables and verdicts, without any other file.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::outcome::{Agreement, Outcome, ShownTable};
use crate::{Error, ITEMS};

/// The page, with the pictures of `folder` in it.
pub(crate) fn page(folder: &Path, outcomes: &[Outcome]) -> Result<String, Error> {
    let mut body = String::new();
    let count = |agreement: Agreement| {
        outcomes.iter().flat_map(|outcome| &outcome.verdicts).filter(|verdict| verdict.agreement == agreement).count()
    };
    let (agree, differ, open) = (count(Agreement::Agrees), count(Agreement::Differs), count(Agreement::Open));
    let _ = writeln!(
        body,
        "<header><h1>The paper, reproduced</h1>\n<p>Figures and tables of <cite>Complex-to-Real Sketches for Tensor Products with \
         Applications to the Polynomial Kernel</cite> (Wacker, Ohana and Filippone, 2023), measured again with Argand {}.</p>\n\
         <p class=\"sum\"><b>{agree}</b> claims agree, <b>{differ}</b> differ, <b>{open}</b> cannot be told from these data.</p></header>",
        env!("CARGO_PKG_VERSION")
    );
    body.push_str("<nav><ul>\n");
    for outcome in outcomes {
        let marks: String = outcome.verdicts.iter().map(|verdict| mark(verdict.agreement)).collect();
        let _ = writeln!(
            body,
            "<li><a href=\"#{}\">{}</a> <span class=\"marks\">{marks}</span></li>",
            escape(&outcome.name),
            escape(&outcome.title)
        );
    }
    body.push_str("</ul></nav>\n<main>\n");
    for outcome in outcomes {
        section(&mut body, folder, outcome)?;
    }
    body.push_str(
        "</main>\n<footer><p>Numbers behind every picture are in the CSV files beside this page.</p></footer>\n",
    );
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>The paper, reproduced</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n"
    ))
}

fn section(body: &mut String, folder: &Path, outcome: &Outcome) -> Result<(), Error> {
    let place = ITEMS.iter().find(|item| item.name == outcome.name).map_or("", |item| item.place);
    let _ = writeln!(
        body,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"place\">{}</p>\n<p>{}</p>",
        escape(&outcome.name),
        escape(&outcome.title),
        escape(place),
        escape(&outcome.about)
    );
    if !outcome.verdicts.is_empty() {
        body.push_str("<ul class=\"verdicts\">\n");
        for verdict in &outcome.verdicts {
            let _ = writeln!(
                body,
                "<li class=\"{0}\"><span class=\"badge\">{0}</span> {1}<br><span class=\"found\">{2}</span></li>",
                verdict.agreement.word(),
                escape(&verdict.claim),
                escape(&verdict.found)
            );
        }
        body.push_str("</ul>\n");
    }
    for picture in &outcome.pictures {
        let path = folder.join(format!("{}.svg", picture.file));
        let svg = fs::read_to_string(&path).map_err(|error| Error::io(&path, "read", &error))?;
        // The markup itself, so that text can be found and copied.
        let svg = svg.find("<svg").map_or("", |start| &svg[start..]);
        let _ = writeln!(
            body,
            "<figure><div class=\"wide\">{svg}</div><figcaption>{}</figcaption></figure>",
            escape(&picture.caption)
        );
    }
    for shown in &outcome.tables {
        table(body, shown);
    }
    body.push_str("</section>\n");
    Ok(())
}

/// Longer tables are folded away.
const SHOWN_ROWS: usize = 20;

fn table(body: &mut String, shown: &ShownTable) {
    let folded = shown.rows.len() > SHOWN_ROWS;
    if folded {
        let _ = writeln!(body, "<details><summary>{} ({} rows)</summary>", escape(&shown.caption), shown.rows.len());
    }
    body.push_str("<div class=\"wide\"><table>");
    if !folded {
        let _ = write!(body, "<caption>{}</caption>", escape(&shown.caption));
    }
    let cells = |tag: &str, row: &[String]| {
        row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect::<String>()
    };
    let _ = write!(body, "<thead><tr>{}</tr></thead><tbody>", cells("th", &shown.columns));
    for row in &shown.rows {
        let _ = write!(body, "<tr>{}</tr>", cells("td", row));
    }
    body.push_str("</tbody></table></div>\n");
    if folded {
        body.push_str("</details>\n");
    }
}

fn mark(agreement: Agreement) -> String {
    let sign = match agreement {
        Agreement::Agrees => "✓",
        Agreement::Differs => "✗",
        Agreement::Open => "?",
    };
    format!("<span class=\"{}\" title=\"{0}\">{sign}</span>", agreement.word())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "
:root { --paper: #ffffff; --ink: #1d2330; --soft: #5b6475; --line: #d9dee7; --agrees: #14743f; --differs: #b3261e; --open: #8a6100 }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171d; --ink: #e6e9ef; --soft: #a0a9ba; --line: #333a47; --agrees: #5fd394; --differs: #ff8a80; --open: #f0c15c }
  figure svg { filter: invert(0.92) hue-rotate(180deg) }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }
h1 { font-size: 1.7rem; line-height: 1.2 } h2 { font-size: 1.25rem; margin-top: 2.5rem; padding-top: 1rem; border-top: 1px solid var(--line) }
a { color: inherit } .place, .found, figcaption, caption, footer { color: var(--soft); font-size: .9rem } .place { margin-top: -.6rem }
nav ul { padding-left: 1.1rem } .marks { font-weight: bold; letter-spacing: .1em }
.verdicts { list-style: none; padding: 0 } .verdicts li { padding: .5rem .7rem; margin: .5rem 0; border-left: 4px solid var(--line) }
.verdicts li.agrees { border-color: var(--agrees) } .verdicts li.differs { border-color: var(--differs) } .verdicts li.open { border-color: var(--open) }
.badge { font-size: .75rem; font-weight: bold; text-transform: uppercase; letter-spacing: .05em }
.agrees > .badge, .marks .agrees { color: var(--agrees) } .differs > .badge, .marks .differs { color: var(--differs) }
.open > .badge, .marks .open { color: var(--open) }
figure { margin: 1rem 0 } .wide { overflow-x: auto } figure svg { display: block; max-width: 100%; height: auto; min-width: 36rem }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums } caption { text-align: left; padding: .3rem 0 }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap } summary { cursor: pointer; padding: .4rem 0 }
";
