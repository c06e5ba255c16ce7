//! Scores of training examples as a page: queries with the examples that helped and harmed them most.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::page::page;
use crate::text::escape;

/// Queries that a page shows at most.
pub const SHOWN_QUERIES: usize = 50;
/// Examples that a page shows at most in each list of a query.
pub const SHOWN_EXAMPLES: usize = 12;
/// Letters of a text that a page shows at most, and of a label.
const SHOWN_LETTERS: usize = 1000;
const SHOWN_LABEL: usize = 100;

/// What an example looks like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Content {
    /// Nobody knows.
    #[default]
    Unknown,
    /// Its text.
    Text(String),
    /// A picture, from [`Content::image`].
    Image {
        /// A PNG file as a URI.
        uri: String,
    },
}

impl Content {
    /// A picture of one byte per pixel, or of three: red, green, blue.
    ///
    /// # Errors
    /// What is wrong with its size.
    pub fn image(width: u32, height: u32, pixels: &[u8]) -> Result<Self, String> {
        let area = u64::from(width) * u64::from(height);
        let colour = match pixels.len() as u64 {
            length if area > 0 && length == area => png::ColorType::Grayscale,
            length if area > 0 && Some(length) == area.checked_mul(3) => png::ColorType::Rgb,
            length => return Err(format!("{length} bytes are not a picture of {width} x {height} pixels")),
        };
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(colour);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
        written.map_err(|error| format!("cannot make a picture: {error}"))?;
        Ok(Self::Image { uri: format!("data:image/png;base64,{}", STANDARD.encode(file)) })
    }
}

/// An example or a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exhibit {
    /// Its number.
    pub number: u64,
    /// Its class, if it has one.
    pub label: Option<String>,
    /// What it looks like.
    pub content: Content,
}

/// An example in the list of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The example.
    pub example: Exhibit,
    /// Its score.
    pub score: f64,
    /// The standard error of the score.
    pub standard_error: f64,
    /// The first and the last rank whose scores are within the error.
    pub ranks: [usize; 2],
}

/// A query and its examples.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The query.
    pub query: Exhibit,
    /// Those of largest score, the largest first.
    pub helpful: Vec<Scored>,
    /// Those of smallest score, the smallest first.
    pub harmful: Vec<Scored>,
}

/// Scores as a page of its own: no script, and nothing from outside. `about` says what was scored; `measure` is what a score is.
#[must_use]
pub fn attribution_page(about: &str, measure: &str, answers: &[Answer]) -> String {
    let mut body = format!("<div class=\"argand-scores\">\n<style>\n{}</style>\n", include_str!("attribution.css"));
    let _ = writeln!(
        body,
        "<h1>Which examples helped, and which harmed?</h1>\n<p class=\"soft\">{}</p>\n<p class=\"soft\">Bars are scores ({}), lines one \
         standard error of the sketch to both sides. ≈ marks ranks that the sketch does not tell apart.</p>",
        escape(about),
        escape(measure)
    );
    for answer in answers {
        let _ = writeln!(
            body,
            "<section>\n<div class=\"query\"><h2>Query {}</h2>{}{}</div>\n<div>",
            answer.query.number,
            shown(&answer.query, "query"),
            answer.query.label.as_ref().map_or(String::new(), |label| format!("<p>{}</p>", cut(label, SHOWN_LABEL)))
        );
        for (kind, title, list) in
            [("helpful", "Most helpful", &answer.helpful), ("harmful", "Most harmful", &answer.harmful)]
        {
            let _ = writeln!(body, "<div class=\"{kind}\"><h3>{title}</h3>");
            write_list(&mut body, list);
            body.push_str("</div>\n");
        }
        body.push_str("</div>\n</section>\n");
    }
    body.push_str("</div>\n");
    page("Which examples helped?", "img-src data:; style-src 'unsafe-inline'", &body)
}

fn write_list(body: &mut String, list: &[Scored]) {
    let text = list.iter().any(|scored| matches!(scored.example.content, Content::Text(_)));
    let reach = |scored: &Scored| if scored.standard_error.is_finite() { scored.standard_error } else { 0.0 };
    let low = list.iter().map(|scored| scored.score - reach(scored)).fold(0.0, f64::min);
    let high = list.iter().map(|scored| scored.score + reach(scored)).fold(0.0, f64::max);
    let at = |value: f64| if high > low { (value - low) / (high - low) * 100.0 } else { 0.0 };
    let _ = writeln!(body, "<ol{}>", if text { " class=\"text\"" } else { "" });
    for (rank, scored) in (1..).zip(list) {
        let Scored { example, score, standard_error, ranks: [first, last] } = scored;
        let label =
            example.label.as_ref().map_or(String::new(), |label| format!(", <bdi>{}</bdi>", cut(label, SHOWN_LABEL)));
        let error = if standard_error.is_finite() { format!(" ± {}", digits(*standard_error)) } else { String::new() };
        let [zero, end, left, right] = [0.0, *score, score - reach(scored), score + reach(scored)].map(at);
        let unsure = if first < last {
            format!(" <span class=\"unsure\">≈ ranks {first}–{last}</span>")
        } else {
            String::new()
        };
        let _ = writeln!(
            body,
            "<li>{}<span class=\"number\">{rank}. example {}{label}</span>\n\
             <svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect x=\"{:.2}\" y=\"2\" width=\"{:.2}\" \
             height=\"6\"/><path class=\"zero\" d=\"M{zero:.2} 0V10\"/><path d=\"M{left:.2} 5H{right:.2}\"/></svg>\
             <span class=\"score\">{}{error}</span>{unsure}</li>",
            shown(example, "example"),
            example.number,
            zero.min(end),
            (end - zero).abs(),
            digits(*score)
        );
    }
    body.push_str("</ol>\n");
}

fn shown(exhibit: &Exhibit, what: &str) -> String {
    match &exhibit.content {
        Content::Unknown => String::new(),
        Content::Image { uri } => format!("<img src=\"{uri}\" alt=\"{what} {}\">", exhibit.number),
        // The direction is that of the text, Arabic for example.
        Content::Text(text) => format!("<blockquote dir=\"auto\">{}</blockquote>", cut(text, SHOWN_LETTERS)),
    }
}

/// The start of a text, escaped.
fn cut(text: &str, letters: usize) -> String {
    let start: String = text.chars().take(letters).collect();
    let more = if start.len() < text.len() { " …" } else { "" };
    escape(&start) + more
}

/// Three significant digits.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-3..1e4).contains(&size) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 5")]
        let decimals = (2.0 - size.max(1e-3).log10().floor()).clamp(0.0, 5.0) as usize;
        format!("{value:.decimals$}")
    } else {
        format!("{value:.2e}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn pages_have_everything_and_escape_it() {
        const MARKUP: &str = "<script>x & 'y'</script>";
        let exhibit = |content| Exhibit { number: 7, label: Some(MARKUP.to_owned()), content };
        let scored = |score, ranks| Scored {
            example: exhibit(Content::Text(MARKUP.repeat(60))),
            score,
            standard_error: 0.25,
            ranks,
        };
        let answer = Answer {
            query: exhibit(Content::image(2, 1, &[0, 255]).unwrap()),
            helpful: vec![scored(1.5, [1, 2]), scored(1.25, [1, 2])],
            harmful: vec![scored(-20000.0, [1, 1]), Scored { standard_error: f64::NAN, ..scored(0.0, [1, 2]) }],
        };
        let page = attribution_page(MARKUP, "influence", &[answer]);
        assert!(!page.contains("<script"), "{page}");
        assert_eq!(page.matches("<li>").count(), 4);
        assert_eq!(page.matches("≈ ranks 1–2").count(), 3);
        assert!(page.contains("1.50 ± 0.250") && page.contains("-2.00e4 ± 0.250") && !page.contains("NaN"), "{page}");
        let long = Exhibit { label: Some("w".repeat(5000)), ..exhibit(Content::Unknown) };
        let answer = Answer { query: long.clone(), helpful: vec![], harmful: vec![] };
        let answer = Answer { helpful: vec![Scored { example: long, ..scored(1.0, [1, 1]) }], ..answer };
        let labels = attribution_page("", "", &[answer]);
        assert_eq!(labels.matches(&format!("{} …<", "w".repeat(100))).count(), 2, "{labels}");
        assert!(page.contains(" …</blockquote>") && page.contains("src=\"data:image/png;base64,iVBOR"));
        assert!(page.contains("default-src 'none'"));
        assert!(attribution_page("", "", &[]).ends_with("</html>\n"));
    }

    #[test]
    fn pictures_have_one_or_three_bytes_per_pixel() {
        assert!(matches!(Content::image(2, 3, &[9; 18]), Ok(Content::Image { .. })));
        for (width, height, count) in [(2, 3, 5), (0, 0, 0), (u32::MAX, u32::MAX, 3), (2, 3, 24)] {
            assert!(Content::image(width, height, &vec![0; count]).is_err());
        }
    }
}
