//! Charts of lines and points as SVG, in one style: a colour for every base, solid lines for Complex-to-Real sketches and dashed ones for
//! real ones, names at the ends of lines, and text that can be read on a phone.

mod attribution;
mod axis;
mod draw;
mod page;
mod plan;
mod style;
mod text;

pub use attribution::{Answer, Content, Exhibit, SHOWN_EXAMPLES, SHOWN_QUERIES, Scored, attribution_page};
pub use axis::Scale;
pub use plan::{plan_fragment, plan_page};
pub use style::{COLOURS, Mark, Stroke, Style, highlighted, key};
pub use text::escape;

use draw::{SMALL, WIDTH};

/// One line, or a cloud of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, shown where it ends.
    pub name: String,
    /// Its look.
    pub style: Style,
    /// Its points; any that the axes cannot show are left out.
    pub points: Vec<(f64, f64)>,
    /// How far the error bar of a point reaches up and down; none if empty.
    pub bars: Vec<f64>,
}

impl Series {
    /// A line in a style.
    pub fn new(name: impl Into<String>, style: Style, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), style, points: points.into_iter().collect(), bars: Vec::new() }
    }

    /// The line of a method, with its usual name and look.
    pub fn of_method(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let style = name.parse().map_or(Style::numbered(COLOURS.len() - 1), Style::of);
        Self::new(name, style, points)
    }

    /// The same with error bars.
    #[must_use]
    pub fn with_bars(mut self, bars: impl IntoIterator<Item = f64>) -> Self {
        self.bars = bars.into_iter().collect();
        self
    }
}

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The title above it.
    pub title: String,
    /// The label below it.
    pub x_label: String,
    /// The label above the vertical axis.
    pub y_label: String,
    /// How its axes are divided.
    pub scales: [Scale; 2],
    /// Its lines.
    pub series: Vec<Series>,
    /// What to show of an axis, if not everything.
    pub limits: [Option<(f64, f64)>; 2],
    /// A line across the chart at a value of an axis, such as a ratio of 1.
    pub rules: [Option<f64>; 2],
    /// The height at which zeros are drawn, where the vertical axis is logarithmic; without it, they are left out.
    pub zero: Option<f64>,
}

impl Panel {
    /// A chart of everything in its lines.
    #[must_use]
    pub fn new(title: &str, [x_label, y_label]: [&str; 2], scales: [Scale; 2], series: Vec<Series>) -> Self {
        let [title, x_label, y_label] = [title, x_label, y_label].map(str::to_owned);
        Self { title, x_label, y_label, scales, series, limits: [None; 2], rules: [None; 2], zero: None }
    }

    /// The same with zeros, if there are any, below all that is positive: at a third of the smallest.
    #[must_use]
    pub fn with_zeros(self) -> Self {
        let zero =
            self.heights().any(|height| height == 0.0).then(|| self.least_height().map_or(1.0, |least| least / 3.0));
        Self { zero, ..self }
    }

    fn heights(&self) -> impl Iterator<Item = f64> + '_ {
        self.series.iter().flat_map(|series| &series.points).map(|point| point.1).chain(self.rules[1])
    }

    /// The smallest positive height of a point or rule.
    fn least_height(&self) -> Option<f64> {
        self.heights().filter(|&height| height > 0.0 && height.is_finite()).min_by(f64::total_cmp)
    }
}

/// Charts that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The file name without its extension.
    pub name: String,
    /// What it shows.
    pub caption: String,
    /// Charts side by side, on a page that arranges them. The picture has them one below the other, for phones.
    pub columns: usize,
    /// The charts.
    pub panels: Vec<Panel>,
    /// What to know about the lines, below the charts.
    pub note: String,
}

const CHART: &str = "class=\"chart\"";
const NOTE: &str = "class=\"note\"";

impl Figure {
    /// The picture: one SVG element for each chart and one for the note, inside one that places them.
    #[must_use]
    pub fn svg(&self) -> String {
        let (mut parts, mut height) = (String::new(), 0.0);
        for panel in &self.panels {
            let (body, own) = panel.draw();
            let more = format!("{CHART} role=\"img\" aria-label=\"{}\"", escape(&panel.described()));
            parts.push_str(&part(&more, height, own, &body));
            height += own;
        }
        if !self.note.is_empty() {
            let (body, own) = draw::paragraph(&self.note, SMALL);
            parts.push_str(&part(NOTE, height, own, &body));
            height += own;
        }
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        format!(
            "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" data-columns=\"{columns}\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n<rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"#FFFFFF\"/>\n{parts}</svg>\n"
        )
    }
}

/// An element with a drawing inside, at its place in the picture.
fn part(attributes: &str, y: f64, height: f64, body: &str) -> String {
    format!(
        "<svg {attributes} y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"{SMALL}\">\n{body}</svg>\n"
    )
}

/// The parts of a picture, for a page to arrange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// Charts side by side, where there is room.
    pub columns: u32,
    /// An SVG element each.
    pub charts: &'a str,
    /// An SVG element, or nothing.
    pub note: &'a str,
}

impl<'a> Parts<'a> {
    /// The parts of a picture made by [`Figure::svg`].
    #[must_use]
    pub fn of(svg: &'a str) -> Option<Self> {
        let (_, columns) = svg.split_once("data-columns=\"")?;
        let columns = columns.split('"').next()?.parse().ok()?;
        let start = svg.find(&format!("<svg {CHART}"))?;
        let parts = svg.get(start..svg.rfind("</svg>")?)?;
        let (charts, note) = parts.split_at(parts.find(&format!("<svg {NOTE}")).unwrap_or(parts.len()));
        Some(Self { columns, charts, note })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn figure(points: &[(f64, f64)]) -> Figure {
        let series = vec![
            Series::new("first", Style::numbered(0), points.iter().copied()).with_bars([0.01; 4]),
            Series::of_method("product-srht", points.iter().copied()),
        ];
        let panel = Panel::new("a < b", ["x", "y"], [Scale::Doubling, Scale::Logarithmic], series);
        let note = "What & why".to_owned();
        Figure { name: "name".to_owned(), caption: String::new(), columns: 2, panels: vec![panel.clone(), panel], note }
    }

    /// Names are at the ends of lines in every chart; text is escaped; points without a logarithm are left out.
    #[test]
    fn figures_are_drawn() {
        let svg = figure(&[(64.0, 0.1), (128.0, 0.0), (256.0, f64::NAN), (512.0, 0.02)]).svg();
        assert!(svg.starts_with("<svg") && svg.contains(">a &lt; b</text>") && svg.contains("What &amp; why"));
        assert_eq!(svg.matches(">first</text>").count(), 2, "{svg}");
        assert!(svg.contains("stroke-dasharray") && !svg.contains("NaN") && !svg.contains("inf"));
        let parts = Parts::of(&svg).unwrap();
        assert_eq!((parts.columns, parts.charts.matches("<svg").count()), (2, 2));
        assert_eq!(parts.note.matches("<svg").count(), 1);
    }

    /// Every zero has a point, at a tick of its own below the others; without a positive number, it is the only one.
    #[test]
    fn zeros_are_drawn_below_all_others() {
        let ticks = |points: &[(f64, f64)]| -> Vec<String> {
            let style = Style { mark: Mark::Dot, ..Style::numbered(0) };
            let series = vec![Series::new("first", style, points.iter().copied()).with_bars([0.02; 2])];
            let panel = Panel::new("", ["x", "y"], [Scale::Doubling, Scale::Logarithmic], series).with_zeros();
            let svg = Figure { panels: vec![panel], ..figure(&[]) }.svg();
            assert!(svg.matches("<circle").count() == points.len() && !svg.contains("NaN"), "{svg}");
            let texts = svg.split("text-anchor=\"end\">").skip(1);
            texts.map(|text| text.split('<').next().unwrap().to_owned()).collect()
        };
        let found = ticks(&[(64.0, 0.0), (128.0, 0.03)]);
        assert!(found[0] == "0" && found.len() > 2 && found[1..].iter().all(|tick| tick != "0"), "{found:?}");
        assert_eq!(ticks(&[(64.0, 0.0), (128.0, 0.0)]), ["0"]);
        assert!(!ticks(&[(64.0, 0.1), (128.0, 0.2)]).contains(&"0".to_owned()));
    }

    #[test]
    fn figures_without_points_are_drawn_all_the_same() {
        for points in [&[][..], &[(2.0, f64::NAN)], &[(2.0, 1.0)]] {
            let svg = figure(points).svg();
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        assert!(Parts::of(&Figure { note: String::new(), ..figure(&[]) }.svg()).unwrap().note.is_empty());
    }
}
