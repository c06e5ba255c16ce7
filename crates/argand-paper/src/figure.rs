//! Charts of lines and points: SVG, and PNG rendered from it.

use std::sync::{Arc, LazyLock};

use argand::{Base, Field, Method, Shape};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged};
use plotters::prelude::*;
use resvg::{tiny_skia, usvg};

use crate::Error;

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of two, for numbers of features.
    Doubling,
    /// By powers of ten.
    Logarithmic,
}

impl Scale {
    fn forward(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Doubling => value.log2(),
            Self::Logarithmic => value.log10(),
        }
    }

    fn shows(self, value: f64) -> bool {
        value.is_finite() && (self == Self::Linear || value > 0.0)
    }

    /// Positions of ticks in scaled coordinates.
    fn ticks(self, low: f64, high: f64) -> Vec<f64> {
        match self {
            Self::Linear => {
                let (step, _) = linear_step(low, high);
                multiples(step, low, high)
            }
            Self::Doubling => multiples(((high - low) / 10.0).ceil().max(1.0), low, high),
            Self::Logarithmic => {
                let ticks = round_ticks(low, high);
                if ticks.len() > 2 {
                    return ticks;
                }
                let (low, high) = (10_f64.powf(low), 10_f64.powf(high));
                Self::Linear.ticks(low, high).into_iter().map(f64::log10).collect()
            }
        }
    }

    /// A tick as text.
    fn text(self, tick: f64, low: f64, high: f64) -> String {
        match self {
            Self::Linear => {
                let (step, decimals) = linear_step(low, high);
                if low.abs().max(high.abs()) < 1e6 {
                    return format!("{tick:.decimals$}");
                }
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 12")]
                let digits = (tick.abs().log10().floor() - step.log10().floor()).clamp(0.0, 12.0) as usize;
                format!("{tick:.digits$e}").trim_end_matches("e0").to_owned()
            }
            Self::Doubling => format!("{}", tick.exp2().round()),
            Self::Logarithmic => {
                let value = 10_f64.powf(tick);
                if round_ticks(low, high).len() <= 2 {
                    Self::Linear.text(value, 10_f64.powf(low), 10_f64.powf(high))
                } else if (-3.5..5.5).contains(&tick) {
                    let rounded = format!("{value:.4}");
                    rounded.trim_end_matches('0').trim_end_matches('.').to_owned()
                } else {
                    format!("{value:.1e}").replace(".0e", "e")
                }
            }
        }
    }
}

/// Round numbers on a logarithmic scale. Ranges too short for any are divided evenly.
fn round_ticks(low: f64, high: f64) -> Vec<f64> {
    let span = high - low;
    let digits: &[f64] = match () {
        () if span > 3.2 => &[1.0],
        () if span > 1.0 => &[1.0, 2.0, 5.0],
        () => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
    };
    let step = (span / 10.0).ceil().max(1.0);
    let decades = multiples(step, low.floor() - step, high);
    let ticks = decades.iter().flat_map(|decade| digits.iter().map(move |digit| decade + digit.log10()));
    ticks.filter(|tick| (low..=high).contains(tick)).collect()
}

/// A step of 1, 2 or 5 times a power of ten that gives four to ten ticks, and the decimals it needs.
fn linear_step(low: f64, high: f64) -> (f64, usize) {
    let rough = (high - low).max(1e-300) / 8.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|&step| step >= rough).unwrap_or(power);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 12")]
    let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    (step, decimals)
}

fn multiples(step: f64, low: f64, high: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil();
    let places = (0..100).map(|index| (first + f64::from(index)) * step);
    places.take_while(|&place| place <= high + step * 1e-9).collect()
}

/// A range of scaled coordinates with its ticks.
#[derive(Clone)]
struct Range {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Ranged for Range {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        #[allow(clippy::cast_possible_truncation, reason = "pixels")]
        let pixels = (share * f64::from(limit.1 - limit.0)).round() as i32;
        limit.0 + pixels
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl plotters::coord::ranged1d::ValueFormatter<f64> for Range {
    fn format(value: &f64) -> String {
        value.to_string()
    }
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
    /// Dashed instead of solid.
    pub dashed: bool,
    /// The mark of its points.
    pub mark: Mark,
}

/// The mark at the points of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    None,
    /// A dot.
    Dot,
    /// A triangle.
    Triangle,
    /// A cross.
    Cross,
}

/// Colours that remain distinct for most kinds of colour blindness.
pub const COLOURS: [(u8, u8, u8); 7] =
    [(0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (90, 90, 90)];

/// The colours of bases, in the order of [`Base::all`]; the first are those of [`COLOURS`].
const BASE_COLOURS: [(u8, u8, u8); 8] = [
    (230, 159, 0),
    (86, 180, 233),
    (213, 94, 0),
    (0, 158, 115),
    (0, 114, 178),
    (90, 90, 90),
    (150, 100, 40),
    (120, 60, 160),
];

/// The colour of spherical random features, which have no base.
const SPHERICAL_COLOUR: (u8, u8, u8) = (204, 121, 167);

impl Style {
    /// A solid line in one of [`COLOURS`].
    #[must_use]
    pub fn numbered(index: usize) -> Self {
        Self { colour: COLOURS[index % COLOURS.len()], dashed: false, mark: Mark::None }
    }

    /// The look of a method wherever it is drawn: one colour per base, dashed for real sketches, crosses for trees and chains,
    /// triangles for CRAFT.
    #[must_use]
    pub fn of(method: Method) -> Self {
        let colour = match method.base().and_then(|base| Base::all().position(|other| other == base)) {
            Some(place) => BASE_COLOURS[place % BASE_COLOURS.len()],
            None => SPHERICAL_COLOUR,
        };
        let mark = match (method.craft(), method.shape()) {
            (Some(_), _) => Mark::Triangle,
            (None, None | Some(Shape::Flat)) => Mark::Dot,
            (None, _) => Mark::Cross,
        };
        Self { colour, dashed: method.field() == Field::Real, mark }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend; lines with the same name share an entry.
    pub name: String,
    /// Its look.
    pub style: Style,
    /// Its points; any that the axes cannot show are left out.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The line of a method, with its usual name and look.
    pub fn of_method(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let style = name.parse().map_or(Style::numbered(COLOURS.len() - 1), Style::of);
        Self { name: name.to_owned(), style, points: points.into_iter().collect() }
    }
}

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The title above it.
    pub title: String,
    /// The label below it.
    pub x_label: String,
    /// The label beside it.
    pub y_label: String,
    /// How its axes are divided.
    pub scales: [Scale; 2],
    /// Its lines.
    pub series: Vec<Series>,
}

/// Charts side by side, with one legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The file name without its extension.
    pub name: String,
    /// What it shows.
    pub caption: String,
    /// Charts side by side.
    pub columns: usize,
    /// The charts.
    pub panels: Vec<Panel>,
}

const PANEL: (u32, u32) = (430, 330);
/// The height of a line of the legend.
const LINE: u32 = 22;
const FONT: &str = "sans-serif";

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Figure {
    /// The picture: one SVG element per chart and legend entry, inside one that places them.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be drawn.
    pub fn svg(&self) -> Result<String, Error> {
        self.draw().map_err(|error| Error::Internal(format!("{}: cannot draw: {error}", self.name)))
    }

    fn draw(&self) -> Result<String, Box<dyn std::error::Error>> {
        let mut legend: Vec<&Series> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !legend.iter().any(|known| known.name == series.name) {
                legend.push(series);
            }
        }
        let columns = u32::try_from(self.columns.clamp(1, self.panels.len().max(1)))?;
        let mut parts = String::new();
        for (index, panel) in (0..).zip(&self.panels) {
            let place = (index % columns * PANEL.0, index / columns * PANEL.1);
            let more = format!("{CHART} role=\"img\" aria-label=\"{}\"", escape(&panel.described()));
            parts.push_str(&part(place, PANEL, &more, |area| panel.draw(area))?);
        }
        let charts = u32::try_from(self.panels.len())?.div_ceil(columns) * PANEL.1;
        let widths = legend.iter().map(|series| entry_width(&series.name)).collect::<Result<Vec<u32>, _>>()?;
        let widest = widths.iter().copied().max().unwrap_or(PANEL.0);
        let width = (PANEL.0 * columns).max(widest);
        let per_line = width / widest;
        for ((index, series), own) in (0..).zip(&legend).zip(widths) {
            let place = (index % per_line * (width / per_line), charts + 4 + index / per_line * LINE);
            parts.push_str(&part(place, (own, LINE), ENTRY, |area| series.explain(area))?);
        }
        let height = charts + u32::try_from(legend.len())?.div_ceil(per_line) * LINE + 8;
        Ok(format!(
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" data-columns=\"{columns}\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n{parts}</svg>\n"
        ))
    }
}

const CHART: &str = "class=\"chart\"";
const ENTRY: &str = "class=\"entry\"";

/// An element with a drawing inside, at its position in the picture.
fn part(
    (x, y): (u32, u32),
    size: (u32, u32),
    attributes: &str,
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw(&area)?;
    area.present()?;
    drop(area);
    Ok(svg.replacen("<svg", &format!("<svg {attributes} x=\"{x}\" y=\"{y}\""), 1))
}

/// The parts of a picture, for a page to arrange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// Charts side by side, where there is room.
    pub(crate) columns: u32,
    /// An SVG element each.
    pub(crate) charts: &'a str,
    /// An SVG element each.
    pub(crate) legend: &'a str,
}

impl<'a> Parts<'a> {
    /// The parts of a picture made by [`Figure::svg`].
    pub(crate) fn of(svg: &'a str) -> Option<Self> {
        let (_, columns) = svg.split_once("data-columns=\"")?;
        let columns = columns.split('"').next()?.parse().ok()?;
        let start = svg.find(&format!("<svg {CHART}"))?;
        let parts = svg.get(start..svg.rfind("</svg>")?)?;
        let (charts, legend) = parts.split_at(parts.find(&format!("<svg {ENTRY}")).unwrap_or(parts.len()));
        Some(Self { columns, charts, legend })
    }
}

/// Escapes text for markup, between tags or quotes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Width of a name in the legend, in any usual font.
fn entry_width(name: &str) -> Result<u32, std::num::TryFromIntError> {
    Ok(48 + u32::try_from(name.chars().count())? * 15 / 2)
}

fn colour(style: Style) -> RGBColor {
    RGBColor(style.colour.0, style.colour.1, style.colour.2)
}

fn line(style: Style) -> ShapeStyle {
    colour(style).stroke_width(2)
}

/// A mark at a pixel.
fn mark(area: &Area<'_>, style: Style, at: (i32, i32)) -> Drawn {
    match style.mark {
        Mark::None => {}
        Mark::Dot => area.draw(&Circle::new(at, 3, colour(style).filled()))?,
        Mark::Triangle => area.draw(&TriangleMarker::new(at, 5, colour(style).filled()))?,
        Mark::Cross => area.draw(&Cross::new(at, 4, colour(style).stroke_width(2)))?,
    }
    Ok(())
}

impl Series {
    /// Draws its entry of the legend.
    fn explain(&self, area: &Area<'_>) -> Drawn {
        // Wide enough for two dashes beside the mark.
        let strokes: &[[i32; 2]] = if self.style.dashed { &[[0, 8], [20, 28]] } else { &[[0, 28]] };
        for &[start, end] in strokes {
            area.draw(&PathElement::new([(6 + start, 11), (6 + end, 11)], line(self.style)))?;
        }
        mark(area, self.style, (20, 11))?;
        area.draw(&Text::new(self.name.clone(), (40, 4), (FONT, 16)))?;
        Ok(())
    }
}

impl Panel {
    /// A description in words, for those who cannot see it.
    fn described(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| &*series.name).collect();
        format!("{}: {} over {} for {}", self.title, self.y_label, self.x_label, names.join(", "))
    }

    fn range(&self, axis: usize) -> Range {
        let scale = self.scales[axis];
        let values = self.series.iter().flat_map(|series| &series.points).map(|point| [point.0, point.1]);
        let shown = values.filter(|point| (0..2).all(|at| self.scales[at].shows(point[at])));
        let (mut low, mut high) = shown
            .map(|point| scale.forward(point[axis]))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let margin = if high > low { (high - low) * 0.05 } else { 0.5 };
        (low, high) = (low - margin, high + margin);
        Range { low, high, ticks: scale.ticks(low, high) }
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let [x, y] = [self.range(0), self.range(1)];
        let text = |axis: usize, range: &Range| {
            let (scale, low, high) = (self.scales[axis], range.low, range.high);
            move |tick: &f64| scale.text(*tick, low, high)
        };
        let (x_text, y_text) = (text(0, &x), text(1, &y));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 18))
            .margin(8)
            .margin_right(16)
            .x_label_area_size(46)
            .y_label_area_size(66)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_label_formatter(&x_text)
            .y_label_formatter(&y_text)
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .draw()?;
        for series in &self.series {
            let shown =
                series.points.iter().filter(|point| self.scales[0].shows(point.0) && self.scales[1].shows(point.1));
            let points: Vec<_> =
                shown.map(|point| (self.scales[0].forward(point.0), self.scales[1].forward(point.1))).collect();
            if series.style.dashed {
                chart.draw_series(DashedLineSeries::new(points.iter().copied(), 6, 5, line(series.style)))?;
            } else {
                chart.draw_series(LineSeries::new(points.iter().copied(), line(series.style)))?;
            }
            for point in &points {
                mark(area, series.style, chart.backend_coord(point))?;
            }
        }
        Ok(())
    }
}

/// One font for all pictures: they look alike even on machines without fonts.
static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    fonts.set_sans_serif_family(family.unwrap_or_default());
    Arc::new(fonts)
});

/// A picture as pixels, at twice its size.
///
/// # Errors
/// [`Error::Internal`] if it cannot be drawn.
pub fn png(svg: &str) -> Result<Vec<u8>, Error> {
    let internal = |what: String| Error::Internal(format!("cannot draw a PNG: {what}"));
    let options = usvg::Options { fontdb: Arc::clone(&FONTS), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| internal(error.to_string()))?;
    let size = tree.size().to_int_size().scale_by(2.0).ok_or_else(|| internal("no size".to_owned()))?;
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).ok_or_else(|| internal("no memory".to_owned()))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| internal(error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A new base needs a colour of its own.
    #[test]
    fn every_base_has_its_own_colour() {
        let flat = Base::all().map(|base| Method::flat(base, Field::ComplexToReal));
        let mut owners = std::collections::BTreeMap::new();
        for method in flat.chain([Method::Spherical]) {
            if let Some(other) = owners.insert(Style::of(method).colour, method) {
                panic!("{method} has the colour of {other}");
            }
        }
        // Fields, shapes and CRAFT keep the colour of their base.
        for method in Method::products().into_iter().map(Method::Product) {
            let base = method.base().map_or(method, |base| Method::flat(base, Field::ComplexToReal));
            assert_eq!(Style::of(method).colour, Style::of(base).colour, "{method}");
        }
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let texts = |scale: Scale, low: f64, high: f64| -> Vec<String> {
            scale.ticks(low, high).iter().map(|&tick| scale.text(tick, low, high)).collect()
        };
        assert_eq!(texts(Scale::Linear, -0.1, 1.05), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(Scale::Doubling, 7.8, 10.2), ["256", "512", "1024"]);
        assert_eq!(texts(Scale::Logarithmic, -2.1, -0.2), ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]);
        assert_eq!(texts(Scale::Logarithmic, 0.05, 2.7), ["2", "5", "10", "20", "50", "100", "200", "500"]);
        assert_eq!(texts(Scale::Logarithmic, -6.0, 0.0), ["1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]);
        for scale in [Scale::Linear, Scale::Doubling, Scale::Logarithmic] {
            for (low, high) in [(-3.0, -2.9), (0.0, 1e-9), (-300.0, 300.0), (1.0, 1e6)] {
                let ticks = scale.ticks(low, high);
                assert!(ticks.len() <= 101 && ticks.windows(2).all(|pair| pair[0] < pair[1]), "{scale:?} {low} {high}");
            }
        }
    }

    fn figure(points: Vec<(f64, f64)>) -> Figure {
        let series = |name: &str, style| Series { name: name.to_owned(), style, points: points.clone() };
        let panel = Panel {
            title: "a < b".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            scales: [Scale::Doubling, Scale::Logarithmic],
            series: vec![
                series("first", Style::numbered(0)),
                series("second", Style { dashed: true, ..Style::numbered(1) }),
            ],
        };
        Figure { name: "name".to_owned(), caption: String::new(), columns: 2, panels: vec![panel.clone(), panel] }
    }

    /// A name in two panels appears once in the legend; text is escaped; points without a logarithm are left out.
    #[test]
    fn figures_are_drawn() {
        let svg = figure(vec![(64.0, 0.1), (128.0, 0.0), (256.0, f64::NAN), (512.0, 0.01)]).svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a &lt; b"));
        assert_eq!(svg.matches(">\nfirst\n<").count(), 1, "{svg}");
        assert!(!svg.contains("NaN"));
        let png = png(&svg).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        let pixels = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!(pixels.width(), 2 * 2 * PANEL.0);
        let blue =
            pixels.pixels().iter().filter(|pixel| (pixel.red(), pixel.green(), pixel.blue()) == COLOURS[0]).count();
        let dark =
            pixels.pixels().iter().filter(|pixel| pixel.red() < 60 && pixel.green() < 60 && pixel.blue() < 60).count();
        assert!(blue > 500 && dark > 500, "{blue} pixels of a line, {dark} of text and axes");
    }

    #[test]
    fn figures_without_points_are_drawn_all_the_same() {
        for points in [vec![], vec![(2.0, f64::NAN)], vec![(2.0, 1.0)]] {
            png(&figure(points).svg().unwrap()).unwrap();
        }
    }

    #[test]
    fn every_axis_has_ticks_with_short_names_of_their_own() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for (low, high) in
                [(0.34, 0.76), (0.41, 0.58), (0.5, 0.501), (1e-3, 2.0), (3.0, 4e9), (1.0, 1e30), (9.5e6, 1e7)]
            {
                let (from, to) = (scale.forward(low), scale.forward(high));
                let ticks = scale.ticks(from, to);
                assert!((3..=12).contains(&ticks.len()), "{scale:?} {low} {high}: {ticks:?}");
                let slack = 1e-6 * (to - from);
                assert!(ticks.iter().all(|tick| (from - slack..=to + slack).contains(tick)), "{ticks:?}");
                let mut names: Vec<String> = ticks.iter().map(|&tick| scale.text(tick, from, to)).collect();
                assert!(names.iter().all(|name| name.len() <= 7), "{scale:?} {low} {high}: {names:?}");
                names.dedup();
                assert_eq!(names.len(), ticks.len(), "{scale:?} {low} {high}: {names:?}");
            }
        }
        assert_eq!(Scale::Linear.text(0.0, -7e7, 7e7), "0");
    }
}
