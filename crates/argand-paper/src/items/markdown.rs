//! The report as Markdown, beside its pictures.

use std::fmt::Write;

use crate::ITEMS;
use crate::outcome::Outcome;

/// The findings of all items; pictures have the names of their files in the folder.
pub(crate) fn page(outcomes: &[Outcome]) -> String {
    let mut text = String::from("# The paper, reproduced\n");
    for outcome in outcomes {
        let place = ITEMS.iter().find(|item| item.name == outcome.name).map_or("", |item| item.place);
        let _ = write!(text, "\n## {}\n\n*{place}.* {}\n\n", outcome.title, outcome.about);
        for verdict in &outcome.verdicts {
            let _ = writeln!(text, "- **{}**: {} *{}*", verdict.agreement.word(), verdict.claim, verdict.found);
        }
        for picture in &outcome.pictures {
            let _ = write!(text, "\n![{}](<{}.svg>)\n", picture.caption.replace(['[', ']'], ""), picture.file);
        }
        for table in &outcome.tables {
            let line = |cells: &[String]| {
                format!("| {} |\n", cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
            };
            let rule = vec!["---".to_owned(); table.columns.len()];
            let _ = write!(text, "\n{}\n\n{}{}", table.caption, line(&table.columns), line(&rule));
            table.rows.iter().for_each(|row| text.push_str(&line(row)));
        }
        let _ = write!(text, "\nNumbers: [{0}.csv]({0}.csv)\n", outcome.name);
    }
    text
}
