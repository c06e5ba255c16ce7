//! Text in a picture: its width in whatever font a reader has, lines, and places that do not overlap.

/// The distance from line to line, over the size of the font.
pub(crate) const LEADING: f64 = 1.2;

/// The width of a text in the widest of the usual sans-serif fonts.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let ems = |letter: char| match letter {
        'i' | 'j' | 'l' | '|' | '.' | ',' | ':' | ';' | '\'' | ' ' => 0.35,
        't' | 'f' | 'r' | '-' | '(' | ')' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' => 0.98,
        _ => 0.64,
    };
    size * text.chars().map(ems).sum::<f64>()
}

/// A name in one line or, if it is wider than `most`, in two of about the same width, broken at a space rather than after a hyphen.
/// Longer ones take more.
pub(crate) fn name(text: &str, size: f64, most: f64) -> Vec<String> {
    if width(text, size) <= most {
        return vec![text.to_owned()];
    }
    for separator in [' ', '-'] {
        let halves = text.match_indices(separator).map(|(at, _)| text.split_at(at + 1));
        let wider = |(one, other): &(&str, &str)| width(one.trim_end(), size).max(width(other, size));
        let best = halves.min_by(|a, b| wider(a).total_cmp(&wider(b)));
        if let Some((one, other)) = best.filter(|halves| wider(halves) <= most) {
            return vec![one.trim_end().to_owned(), other.to_owned()];
        }
    }
    lines(text, size, most)
}

/// Lines no wider than `most`, broken at spaces. A word that is wider is broken anywhere.
pub(crate) fn lines(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        if width((line.clone() + word).trim_end(), size) > most && !line.is_empty() {
            lines.push(line.trim_end().to_owned());
            line.clear();
        }
        for letter in word.chars() {
            if width(&line, size) + width(&letter.to_string(), size) > most && !letter.is_whitespace() {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

/// The centres nearest to `wanted` at which boxes of these heights, in the same order from top to bottom, do not overlap and lie
/// between `top` and `bottom`, which have room for all of them.
pub(crate) fn spread(wanted: &[f64], heights: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    /// Boxes that touch: their number, height, and the sum of the tops that they want the first to have.
    struct Pile {
        count: usize,
        height: f64,
        tops: f64,
    }
    let start = |pile: &Pile| (pile.tops / pile.count as f64).min(bottom - pile.height).max(top);
    let mut piles: Vec<Pile> = Vec::new();
    for (&wanted, &height) in wanted.iter().zip(heights) {
        let mut last = Pile { count: 1, height, tops: wanted - height / 2.0 };
        while let Some(above) = piles.pop_if(|above| start(above) + above.height > start(&last)) {
            last = Pile {
                count: above.count + last.count,
                tops: above.tops + last.tops - last.count as f64 * above.height,
                height: above.height + last.height,
            };
        }
        piles.push(last);
    }
    let mut heights = heights.iter();
    let mut centres = Vec::with_capacity(wanted.len());
    for pile in &piles {
        let mut place = start(pile);
        for height in heights.by_ref().take(pile.count) {
            centres.push(place + height / 2.0);
            place += height;
        }
    }
    centres
}

/// Escapes text for markup, between tags or quotes.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_where_words_end() {
        assert_eq!(name("hierarchical-ctr-product-srht", 14.0, 150.0), ["hierarchical-", "ctr-product-srht"]);
        assert_eq!(name("compact, ctr-product-srht", 14.0, 150.0), ["compact,", "ctr-product-srht"]);
        assert_eq!(name("srf", 14.0, 150.0), ["srf"]);
        assert_eq!(name("aaaaaaaaaa", 10.0, 20.0), ["aaa", "aaa", "aaa", "a"]);
        assert_eq!(lines("one and two", 14.0, width("one and", 14.0)), ["one and", "two"]);
        assert_eq!(lines("aaaaaaaaaa", 10.0, 20.0), ["aaa", "aaa", "aaa", "a"]);
        assert_eq!(lines("", 10.0, 20.0), [""]);
    }

    #[test]
    fn boxes_are_spread_and_stay_inside() {
        assert_eq!(spread(&[10.0, 50.0], &[10.0, 10.0], 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[50.0, 50.0], &[10.0, 10.0], 0.0, 100.0), [45.0, 55.0]);
        assert_eq!(spread(&[0.0, 0.0, 0.0], &[10.0, 10.0, 10.0], 0.0, 100.0), [5.0, 15.0, 25.0]);
        assert_eq!(spread(&[99.0, 99.0], &[10.0, 20.0], 0.0, 100.0), [75.0, 90.0]);
        assert_eq!(spread(&[], &[], 0.0, 100.0), [] as [f64; 0]);
        // Many boxes of many heights.
        let wanted: Vec<f64> = (0..40).map(|at| f64::from(at * at % 97)).collect::<Vec<_>>();
        let mut sorted = wanted;
        sorted.sort_by(f64::total_cmp);
        let heights: Vec<f64> = (0..40).map(|at| 1.0 + f64::from(at % 3) / 2.0).collect();
        let centres = spread(&sorted, &heights, 0.0, 100.0);
        for at in 1..40 {
            let room = (heights[at - 1] + heights[at]) / 2.0;
            assert!(centres[at] - centres[at - 1] >= room - 1e-9, "{at}");
        }
        assert!(centres[0] >= heights[0] / 2.0 - 1e-9 && centres[39] + heights[39] / 2.0 <= 100.0 + 1e-9);
    }
}
