//! One self-contained page: figures, tables and verdicts.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::outcome::{Agreement, Outcome, ShownTable, Verdict};
use crate::{Error, ITEMS};
use argand_figure::{Parts, escape};

const ALL: [Agreement; 3] = [Agreement::Agrees, Agreement::Differs, Agreement::Open];

/// The page, with the pictures of `folder` in it.
pub(crate) fn page(folder: &Path, outcomes: &[Outcome]) -> Result<String, Error> {
    let mut body = String::new();
    summary(&mut body, outcomes);
    body.push_str("<main>\n");
    for outcome in outcomes {
        section(&mut body, folder, outcome)?;
    }
    body.push_str(
        "</main>\n<footer><p>The numbers behind every picture are in the CSV files beside this page.</p></footer>\n",
    );
    // The policy keeps browsers from loading or running anything, whatever the page contains.
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>The paper, reproduced</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n"
    ))
}

/// What the page shows, how many claims agree, and which do not.
fn summary(body: &mut String, outcomes: &[Outcome]) {
    let _ = writeln!(
        body,
        "<header>\n<h1>The paper, reproduced</h1>\n<p>Figures and tables of <cite>Complex-to-Real Sketches for Tensor Products with \
         Applications to the Polynomial Kernel</cite> (Wacker, Ohana and Filippone, 2023), measured again with Argand {}.</p>\n\
         <ul class=\"tally\">",
        env!("CARGO_PKG_VERSION")
    );
    let verdicts: Vec<&Verdict> = outcomes.iter().flat_map(|outcome| &outcome.verdicts).collect();
    for agreement in ALL {
        let count = count(&verdicts, agreement);
        let what = match (agreement, count) {
            (Agreement::Agrees, 1) => "claim agrees",
            (Agreement::Agrees, _) => "claims agree",
            (Agreement::Differs, 1) => "differs",
            (Agreement::Differs, _) => "differ",
            (Agreement::Open, _) => "cannot be told from these data",
        };
        let _ = writeln!(body, "<li class=\"{}\"><b>{count}</b> {what}</li>", agreement.word());
    }
    body.push_str("</ul>\n<nav aria-label=\"Contents\">\n<ol>\n");
    for outcome in outcomes {
        let _ = write!(
            body,
            "<li><a href=\"#{}\">{}</a> {}",
            escape(&outcome.name),
            escape(&outcome.title),
            badges(&outcome.verdicts.iter().collect::<Vec<_>>())
        );
        let mut claims: Vec<&str> = Vec::new();
        for verdict in &outcome.verdicts {
            if !claims.contains(&&*verdict.claim) {
                claims.push(&verdict.claim);
            }
        }
        let mut doubtful = String::new();
        for claim in claims {
            let same: Vec<&Verdict> = outcome.verdicts.iter().filter(|verdict| verdict.claim == claim).collect();
            if count(&same, Agreement::Agrees) < same.len() {
                let _ = write!(doubtful, "<li>{} {}</li>", prose(claim), badges(&same));
            }
        }
        if !doubtful.is_empty() {
            let _ = write!(body, "\n<ul>{doubtful}</ul>");
        }
        body.push_str("</li>\n");
    }
    body.push_str("</ol>\n</nav>\n</header>\n");
}

fn count(verdicts: &[&Verdict], agreement: Agreement) -> usize {
    verdicts.iter().filter(|verdict| verdict.agreement == agreement).count()
}

/// How many claims agree, differ and stay open, leaving out zeros.
fn badges(verdicts: &[&Verdict]) -> String {
    let mut text = String::new();
    for agreement in ALL {
        match count(verdicts, agreement) {
            0 => {}
            1 if verdicts.len() == 1 => text.push_str(&badge(agreement, agreement.word())),
            1 => text.push_str(&badge(agreement, &format!("1 {}", agreement.word()))),
            many => {
                let word = match agreement {
                    Agreement::Agrees => "agree",
                    Agreement::Differs => "differ",
                    Agreement::Open => "open",
                };
                text.push_str(&badge(agreement, &format!("{many} {word}")));
            }
        }
    }
    text
}

fn badge(agreement: Agreement, text: &str) -> String {
    let sign = match agreement {
        Agreement::Agrees => "✓",
        Agreement::Differs => "✗",
        Agreement::Open => "?",
    };
    format!("<span class=\"badge {}\"><span aria-hidden=\"true\">{sign}</span> {text}</span> ", agreement.word())
}

fn section(body: &mut String, folder: &Path, outcome: &Outcome) -> Result<(), Error> {
    let place = ITEMS.iter().find(|item| item.name == outcome.name).map_or("", |item| item.place);
    let _ = writeln!(
        body,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"place\">{}</p>\n<p>{}</p>",
        escape(&outcome.name),
        escape(&outcome.title),
        escape(place),
        prose(&outcome.about)
    );
    if !outcome.verdicts.is_empty() {
        body.push_str("<ul class=\"verdicts\">\n");
        for verdict in &outcome.verdicts {
            let _ = writeln!(
                body,
                "<li class=\"{}\">{}{} <span class=\"found\">{}</span></li>",
                verdict.agreement.word(),
                badge(verdict.agreement, verdict.agreement.word()),
                prose(&verdict.claim),
                prose(&verdict.found)
            );
        }
        body.push_str("</ul>\n");
    }
    for picture in &outcome.pictures {
        let path = folder.join(format!("{}.svg", picture.file));
        let svg = fs::read_to_string(&path).map_err(|error| Error::io(&path, "read", &error))?;
        // Inline markup: text can be found and copied and takes the page's colours, and charts stack on phones.
        let Some(Parts { columns, charts, note }) = Parts::of(&svg) else {
            return Err(Error::File {
                path,
                what: format!("was drawn by another version; reproduce {} again", outcome.name),
            });
        };
        let _ = writeln!(
            body,
            "<figure><div class=\"charts wide\" style=\"--columns: {columns}\">\n{charts}</div>\n{note}\n\
             <figcaption>{}</figcaption></figure>",
            prose(&picture.caption)
        );
    }
    for shown in &outcome.tables {
        table(body, shown);
    }
    body.push_str("</section>\n");
    Ok(())
}

/// Longer tables start collapsed.
const SHOWN_ROWS: usize = 20;

fn table(body: &mut String, shown: &ShownTable) {
    let caption = escape(&shown.caption);
    let folded = shown.rows.len() > SHOWN_ROWS;
    if folded {
        let _ = writeln!(body, "<details><summary>{caption} ({} rows)</summary>", shown.rows.len());
    } else {
        let _ = writeln!(body, "<p class=\"caption\">{caption}</p>");
    }
    // Readers without a pointer scroll with the keyboard.
    let _ = write!(body, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table>");
    let classes: Vec<&str> = (0..shown.columns.len())
        .map(|column| {
            let numeric = shown.rows.iter().filter_map(|row| row.get(column)).all(|cell| is_number(cell));
            if numeric { " class=\"number\"" } else { "" }
        })
        .collect();
    let cells = |tag: &str, more: &str, row: &[String]| {
        let cells =
            row.iter().zip(&classes).map(|(cell, class)| format!("<{tag}{more}{class}>{}</{tag}>", escape(cell)));
        cells.collect::<String>()
    };
    let _ = writeln!(body, "<thead><tr>{}</tr></thead>\n<tbody>", cells("th", " scope=\"col\"", &shown.columns));
    for row in &shown.rows {
        let _ = writeln!(body, "<tr>{}</tr>", cells("td", "", row));
    }
    body.push_str("</tbody></table></div>\n");
    if folded {
        body.push_str("</details>\n");
    }
}

/// Whether a cell is typeset as a number: its first word is one, or it is empty.
fn is_number(cell: &str) -> bool {
    cell.split_whitespace().next().is_none_or(|word| word == "–" || word.parse::<f64>().is_ok())
}

/// Sentences without line breaks between a number and its unit or symbol.
fn prose(text: &str) -> String {
    let together = [" = ", " ± ", " ⊗ ", " %", "Fig. ", "Sec. ", "App. ", "Table ", "Lemma ", "Theorem "];
    together.iter().fold(escape(text), |text, words| text.replace(words, &words.replace(' ', "&nbsp;")))
}

const STYLE: &str = "
:root { --paper: #fff; --ink: #1d2330; --soft: #566073; --line: #d9dee7; --agrees: #14743f; --differs: #b3261e; --open: #7d5700 }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14171d; --ink: #e6e9ef; --soft: #a5aebf; --line: #363d4a; --agrees: #5fd394; --differs: #ff8a80; --open: #f0c15c }
  figure [stroke='#5A5A5A'] { stroke: #a5aebf } figure [fill='#5A5A5A'] { fill: #a5aebf }
}
* { box-sizing: border-box }
html { background: var(--paper); -webkit-text-size-adjust: 100%; text-size-adjust: 100% }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; color: var(--ink); overflow-wrap: anywhere;
  font: 1rem/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .75rem }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 }
p { max-width: 46rem; margin: .75rem 0; text-wrap: pretty }
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: .15em }
section { margin-top: 2.5rem; padding-top: 2rem; border-top: 1px solid var(--line) }
.place, .found, figcaption, .caption, summary, footer { color: var(--soft); font-size: .9rem }
.place { margin: .15rem 0 0 } .place::first-letter { text-transform: uppercase } .found { display: block; margin-top: .1rem; line-height: 1.45; text-wrap: pretty }
.agrees { --tone: var(--agrees) } .differs { --tone: var(--differs) } .open { --tone: var(--open) }
.tally { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; list-style: none }
.tally li { flex: 1 1 9rem; padding: .6rem .9rem; border: 1px solid var(--line); border-top: 4px solid var(--tone); border-radius: .3rem;
  line-height: 1.3 }
.tally b { display: block; font-size: 1.9rem; line-height: 1.2; color: var(--tone) }
.badge { display: inline-block; margin-right: .25rem; font-size: .8rem; font-weight: 600; white-space: nowrap; color: var(--tone) }
nav ol { margin: 0; padding-left: 1.6rem } nav ol > li { padding: .2rem 0 } nav a { margin-right: .5rem }
nav ul { padding-left: 1.1rem; font-size: .9rem; color: var(--soft) }
.verdicts { padding: 0; list-style: none }
.verdicts li { max-width: 46rem; margin: .6rem 0; padding: .1rem 0 .1rem .8rem; border-left: 4px solid var(--tone) }
figure { margin: 1.5rem 0 } figcaption { margin-top: .5rem }
.wide { overflow-x: auto }
.charts { display: grid; grid-template-columns: repeat(var(--columns), minmax(18rem, 30rem)); gap: .5rem 0 }
.charts svg { display: block; width: 100%; height: auto }
.note { display: block; max-width: 100%; height: auto }
figure text { fill: var(--ink) } figure [stroke='#000000'] { stroke: var(--ink) }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; overflow-wrap: normal }
.caption { margin: 1.5rem 0 .25rem }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap }
th { vertical-align: bottom } thead th { border-bottom: 2px solid var(--line) }
.number { text-align: right } th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper) }
summary { cursor: pointer; padding: .4rem 0 } :focus-visible { outline: 2px solid var(--soft); outline-offset: 2px }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line) }
@media (max-width: 40rem) {
  h1 { font-size: 1.6rem } .charts { grid-template-columns: minmax(0, 30rem) }
  .tally { gap: .5rem } .tally li { flex-basis: 6rem; padding: .5rem .6rem; font-size: .875rem }
}
@media print {
  html { font-size: 10pt } body { max-width: none; padding: 0 } nav a { text-decoration: none }
  h2, .place { break-after: avoid } figure, tr, .verdicts li { break-inside: avoid }
  .wide { overflow: visible } th, td { white-space: normal }
  .charts { grid-template-columns: repeat(var(--columns), minmax(0, 30rem)) }
  details::details-content { content-visibility: visible; display: block }
}
";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use argand_figure::{Figure, Panel, Scale, Series, Style};

    const MARKUP: &str = "<script src=\"x\">&</script>";
    const ESCAPED: &str = "&lt;script src=&quot;x&quot;&gt;&amp;&lt;/script&gt;";

    fn figure(text: &str) -> Figure {
        let series = Series::new(text, Style::numbered(0), [(0.0, 1.0), (1.0, 2.0)]);
        let panel = Panel::new(text, [text; 2], [Scale::Linear; 2], vec![series]);
        let [caption, note] = [text; 2].map(str::to_owned);
        Figure { name: "picture".to_owned(), caption, columns: 2, panels: vec![panel; 3], note }
    }

    #[test]
    fn text_is_never_markup() {
        let folder = tempfile::tempdir().unwrap();
        let mut outcome = Outcome::new(MARKUP, MARKUP, MARKUP.to_owned());
        outcome.draw(folder.path(), &figure(MARKUP)).unwrap();
        outcome.draw(folder.path(), &figure(MARKUP)).unwrap();
        for rows in [1, SHOWN_ROWS + 1] {
            outcome.table(MARKUP, [MARKUP, MARKUP], vec![[(); 2].map(|()| MARKUP.to_owned()); rows]);
        }
        for agreement in ALL {
            outcome.verdict(MARKUP, MARKUP.to_owned(), agreement);
        }
        let page = page(folder.path(), &[outcome]).unwrap();
        assert!(!page.contains("<script"));
        // Contents 3, section 3, verdicts 6, pictures 2 × (caption, note, 3 charts × (4 words, title and axes, line 2 and name 1; the name at
        // its end takes two lines)), tables with their captions twice and heads 2 × (2 + 2), cells 2 × (1 + 21).
        let pictures = 2 * (1 + 1 + 3 * (4 + 3 + 3));
        assert_eq!(page.matches(ESCAPED).count(), 3 + 3 + 6 + pictures + 8 + 44);
        assert_eq!(page.matches(" id=").count(), 1);
    }

    #[test]
    fn charts_of_a_picture_become_elements_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut outcome = Outcome::new("moments", "Title", String::new());
        outcome.draw(folder.path(), &figure("f")).unwrap();
        let svg = fs::read_to_string(folder.path().join("picture.svg")).unwrap();
        let parts = Parts::of(&svg).unwrap();
        assert_eq!((parts.columns, parts.charts.matches("<svg").count()), (2, 3));
        assert_eq!(parts.note.matches("<svg").count(), 1);
        for part in [parts.charts, parts.note] {
            assert_eq!(part.matches("<svg").count(), part.matches("</svg>").count());
        }
        let page = page(folder.path(), &[outcome.clone()]).unwrap();
        assert!(page.contains(parts.charts) && page.contains(parts.note) && page.contains("--columns: 2"));

        fs::write(folder.path().join("picture.svg"), "<svg></svg>").unwrap();
        let error = super::page(folder.path(), &[outcome.clone()]).unwrap_err().to_string();
        assert!(error.contains("picture.svg") && error.contains("reproduce moments again"), "{error}");
        fs::remove_file(folder.path().join("picture.svg")).unwrap();
        let error = super::page(folder.path(), &[outcome]).unwrap_err().to_string();
        assert!(error.contains("picture.svg"), "{error}");
    }

    #[test]
    fn an_outcome_may_have_nothing_to_show() {
        let outcome = Outcome::new("moments", "Constants", "Nothing was found.".to_owned());
        let page = page(Path::new("nowhere"), &[outcome]).unwrap();
        let (_, section) = page.split_once("<main>").unwrap();
        assert!(section.contains("<h2>Constants</h2>") && section.contains("<p>Nothing was found.</p>"));
        for empty in ["<figure", "<table", "<details", "<ul", "badge"] {
            assert!(!section.contains(empty), "{empty}");
        }
        assert_eq!(page.matches("<b>0</b>").count(), 3);
    }

    #[test]
    fn the_summary_names_claims_that_do_not_agree_once() {
        let mut outcome = Outcome::new("gp", "Title", String::new());
        for (claim, agreement) in [
            ("First.", Agreement::Agrees),
            ("Second.", Agreement::Agrees),
            ("Second.", Agreement::Differs),
            ("Second.", Agreement::Differs),
            ("Third.", Agreement::Open),
        ] {
            outcome.verdict(claim, "found".to_owned(), agreement);
        }
        let page = page(Path::new("nowhere"), &[outcome]).unwrap();
        let (summary, _) = page.split_once("<main>").unwrap();
        for (count, what) in [(2, "claims agree"), (2, "differ"), (1, "cannot be told from these data")] {
            assert!(summary.contains(&format!("<b>{count}</b> {what}</li>")), "{what}");
        }
        assert_eq!(["First.", "Second.", "Third."].map(|claim| summary.matches(claim).count()), [0, 1, 1]);
        let (_, second) = summary.split_once("Second.").unwrap();
        let (second, third) = second.split_once("Third.").unwrap();
        assert!(second.contains("1 agrees") && second.contains("2 differ") && !second.contains("open"));
        assert!(third.contains("</span> open</span>") && !third.contains("differ"));
    }

    #[test]
    fn columns_of_numbers_are_told_from_words() {
        for number in ["1.5", "-2", "+0.3 (4.1)", "1e-3 ± 2e-4", "", "–"] {
            assert!(is_number(number), "{number:?}");
        }
        for words in ["gaussian", "D = 3", "agrees"] {
            assert!(!is_number(words), "{words:?}");
        }
    }
}
