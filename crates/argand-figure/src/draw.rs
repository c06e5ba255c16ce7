//! From a chart to SVG.

use std::fmt::Write;

use crate::axis::Tick;
use crate::text::{LEADING, escape, lines, name, spread, width};
use crate::{Mark, Panel, Scale, Series, Stroke, Style};

/// The width of a picture, and of every chart in it.
pub(crate) const WIDTH: f64 = 480.0;
/// The sizes of text: on a phone, 343 pixels wide, the smaller has ten.
pub(crate) const SMALL: f64 = 14.0;
const LARGE: f64 = 16.0;
const MARGIN: f64 = 10.0;
/// The least height of the area inside the axes.
const INSIDE: f64 = 240.0;
/// The most width for names at the ends of lines; longer ones take several lines.
const NAMES: f64 = 150.0;
/// Between the end of a line and its name.
const LEADER: f64 = 16.0;
const GREY: &str = "#B0B0B0";

/// A text, and its height, as wide as a picture.
pub(crate) fn paragraph(text: &str, size: f64) -> (String, f64) {
    let (mut svg, mut y) = (String::new(), 0.0);
    for line in lines(text, size, WIDTH - 2.0 * MARGIN) {
        y += LEADING * size;
        label(&mut svg, (MARGIN, y), "", &line);
    }
    (svg, y + MARGIN)
}

fn label(svg: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\"{attributes}>{}</text>", escape(text));
}

/// A point of a line and the ends of its error bar, scaled or in pixels.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
    bar: Option<(f64, f64)>,
}

/// An axis: the scaled coordinates it shows, in pixels from `start` to `end`.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn pixel(&self, scaled: f64) -> f64 {
        self.start + (scaled - self.low) / (self.high - self.low) * (self.end - self.start)
    }

    /// As many ticks as fit beside each other.
    fn ticks(&self) -> Vec<Tick> {
        let fit = |ticks: &[Tick]| {
            ticks.windows(2).all(|pair| {
                let room = (self.pixel(pair[1].place) - self.pixel(pair[0].place)).abs();
                room >= (width(&pair[0].text, SMALL) + width(&pair[1].text, SMALL)) / 2.0 + 8.0
            })
        };
        let mut most = 9;
        loop {
            let ticks = self.scale.ticks(self.low, self.high, most);
            if most == 2 || fit(&ticks) {
                return ticks;
            }
            most -= 1;
        }
    }
}

impl Panel {
    /// A description in words, for those who cannot see it.
    pub(crate) fn described(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| &*series.name).collect();
        format!("{}: {} over {} for {}", self.title, self.y_label, self.x_label, names.join(", "))
    }

    /// The points of a line that the axes show, scaled, with their error bars.
    fn shown(&self, series: &Series) -> Vec<Point> {
        let inside = |axis: usize, value: f64| {
            self.scales[axis].shows(value) && self.limits[axis].is_none_or(|(low, high)| (low..=high).contains(&value))
        };
        let [x_scale, y_scale] = self.scales;
        let raised = |y: f64| self.zero.map_or(y, |zero| if y == 0.0 { zero } else { y });
        (series.points.iter().enumerate())
            .map(|(at, &(x, height))| (at, height, x, raised(height)))
            .filter(|&(.., x, y)| inside(0, x) && inside(1, y))
            .map(|(at, height, x, y)| {
                let reach = series.bars.get(at).filter(|reach| reach.is_finite());
                // A bar that reaches below zero has no end on a logarithmic axis.
                let low = |reach: f64| if y_scale.shows(y - reach) { y - reach } else { y };
                let bar = reach.map(|&reach| (y_scale.forward(low(reach)), y_scale.forward((height + reach).max(y))));
                Point { x: x_scale.forward(x), y: y_scale.forward(y), bar }
            })
            .collect()
    }

    /// The scaled coordinates to show of an axis.
    fn range(&self, axis: usize) -> (f64, f64) {
        let scale = self.scales[axis];
        if let Scale::Named(names) = scale {
            return (0.4 - names.len() as f64, 0.6);
        }
        let points = self.series.iter().flat_map(|series| self.shown(series));
        let values = points.flat_map(|Point { x, y, bar }| {
            let [low, high] = if axis == 0 { [x; 2] } else { bar.map_or([y; 2], |(low, high)| [low, high]) };
            [low, high]
        });
        let ruled = self.rules[axis].filter(|&value| scale.shows(value)).map(|value| scale.forward(value));
        let bounds = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (mut low, mut high) = values.chain(ruled).fold((f64::INFINITY, f64::NEG_INFINITY), bounds);
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let margin = if high > low { (high - low) * 0.05 } else { 0.5 };
        (low - margin, high + margin)
    }

    /// The ticks of the vertical axis: above that of zeros, if they have a place, with room for it.
    fn y_ticks(&self, vertical: &Axis) -> Vec<Tick> {
        let mut ticks = vertical.scale.ticks(vertical.low, vertical.high, 9);
        if let Some(zero) = self.zero {
            let zero = Tick { place: vertical.scale.forward(zero), text: "0".to_owned() };
            let room = vertical.pixel(zero.place) - LEADING * SMALL;
            ticks.retain(|tick| self.least_height().is_some() && vertical.pixel(tick.place) < room);
            ticks.insert(0, zero);
        }
        ticks
    }

    /// The chart, and its height.
    pub(crate) fn draw(&self) -> (String, f64) {
        let mut svg = String::new();
        let mut top = MARGIN;
        for (text, size, attributes) in [
            (&self.title, LARGE, format!(" font-size=\"{LARGE}\" font-weight=\"bold\"")),
            (&self.y_label, SMALL, String::new()),
        ] {
            // Bold letters are wider.
            let room = (WIDTH - 2.0 * MARGIN) / if attributes.is_empty() { 1.0 } else { 1.1 };
            for line in lines(text, size, room).iter().filter(|line| !line.is_empty()) {
                top += LEADING * size;
                label(&mut svg, (MARGIN, top), &attributes, line);
            }
        }
        top += 14.0;

        // Names at the ends of lines, in the order of these ends.
        let named: Vec<(&Series, f64, f64)> = (self.series.iter().filter(|series| !series.style.quiet))
            .filter(|_| !matches!(self.scales[1], Scale::Named(_)))
            .filter_map(|series| {
                let last = self.shown(series).into_iter().max_by(|a, b| a.x.total_cmp(&b.x))?;
                Some((series, last.x, last.y))
            })
            .collect();
        let texts: Vec<Vec<String>> = named.iter().map(|(series, ..)| name(&series.name, SMALL, NAMES)).collect();
        let heights: Vec<f64> = texts.iter().map(|lines| LEADING * SMALL * lines.len() as f64).collect();
        let widest = texts.iter().flatten().map(|line| width(line, SMALL)).fold(0.0, f64::max);
        let named_rows = if let Scale::Named(names) = self.scales[1] { 26.0 * names.len() as f64 } else { INSIDE };
        let bottom = top + heights.iter().sum::<f64>().max(named_rows);

        let [(x_low, x_high), (y_low, y_high)] = [self.range(0), self.range(1)];
        let vertical = Axis { scale: self.scales[1], low: y_low, high: y_high, start: bottom, end: top };
        let y_ticks = self.y_ticks(&vertical);
        let left = MARGIN + y_ticks.iter().map(|tick| width(&tick.text, SMALL)).fold(0.0, f64::max) + 8.0;
        let right = WIDTH - MARGIN - if texts.is_empty() { 10.0 } else { widest + LEADER + 4.0 };
        let horizontal = Axis { scale: self.scales[0], low: x_low, high: x_high, start: left, end: right };
        self.draw_axes(&mut svg, &horizontal, &vertical, &y_ticks);

        let place = |x: f64, y: f64| (horizontal.pixel(x), vertical.pixel(y));
        let (quiet, loud): (Vec<&Series>, Vec<&Series>) = self.series.iter().partition(|series| series.style.quiet);
        for series in quiet.into_iter().chain(loud) {
            let points = self.shown(series).into_iter().map(|Point { x, y, bar }| {
                let ((x, y), bar) = (place(x, y), bar.map(|(low, high)| (vertical.pixel(low), vertical.pixel(high))));
                Point { x, y, bar }
            });
            draw_series(&mut svg, series, &points.collect::<Vec<_>>());
        }

        let mut order: Vec<usize> = (0..named.len()).collect();
        order.sort_by(|&a, &b| named[b].2.total_cmp(&named[a].2));
        let wanted: Vec<f64> = order.iter().map(|&at| vertical.pixel(named[at].2)).collect();
        let centres = spread(&wanted, &order.iter().map(|&at| heights[at]).collect::<Vec<_>>(), top, bottom);
        for (&at, centre) in order.iter().zip(centres) {
            let (series, x, y) = named[at];
            let (x, y) = place(x, y);
            let (colour, from) = (hex(series.style), right + LEADER);
            let _ = writeln!(
                svg,
                "<g data-series=\"{}\"><path d=\"M{x:.1} {y:.1}L{:.1} {centre:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.6\" \
                 fill=\"none\"/>",
                escape(&series.name),
                from - 3.0
            );
            let first = centre - heights[at] / 2.0 + 0.95 * SMALL;
            for (row, line) in texts[at].iter().enumerate() {
                label(&mut svg, (from, first + LEADING * SMALL * row as f64), "", line);
            }
            svg.push_str("</g>\n");
        }
        (svg, bottom + 3.6 * SMALL)
    }

    fn draw_axes(&self, svg: &mut String, horizontal: &Axis, vertical: &Axis, y_ticks: &[Tick]) {
        let (left, right, top, bottom) = (horizontal.start, horizontal.end, vertical.end, vertical.start);
        let mut grid = String::new();
        // Whether a label below the chart begins left of it.
        let mut corner_taken = false;
        for tick in horizontal.ticks() {
            let x = horizontal.pixel(tick.place);
            corner_taken |= x - 0.6 * width(&tick.text, SMALL) < left - 6.0;
            let _ = write!(grid, "M{x:.1} {top:.1}V{bottom:.1}");
            label(svg, (x, bottom + 1.2 * SMALL), " text-anchor=\"middle\"", &tick.text);
        }
        for tick in y_ticks {
            let y = vertical.pixel(tick.place);
            let _ = write!(grid, "M{left:.1} {y:.1}H{right:.1}");
            if !(corner_taken && bottom - y < 0.6 * SMALL) {
                label(svg, (left - 6.0, y + 0.35 * SMALL), " text-anchor=\"end\"", &tick.text);
            }
        }
        label(svg, ((left + right) / 2.0, bottom + 2.6 * SMALL), " text-anchor=\"middle\"", &self.x_label);
        let _ = writeln!(svg, "<path d=\"{grid}\" stroke=\"#000000\" stroke-opacity=\"0.13\" fill=\"none\"/>");
        let mut rules = String::new();
        if let Some(x) = self.rules[0] {
            let x = horizontal.pixel(self.scales[0].forward(x));
            let _ = write!(rules, "M{x:.1} {top:.1}V{bottom:.1}");
        }
        if let Some(y) = self.rules[1] {
            let y = vertical.pixel(self.scales[1].forward(y));
            let _ = write!(rules, "M{left:.1} {y:.1}H{right:.1}");
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}{rules}\" stroke=\"#000000\" stroke-opacity=\"0.75\" fill=\"none\"/>"
        );
    }
}

fn hex(style: Style) -> String {
    let (red, green, blue) = style.colour;
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// A line with its marks and error bars, at pixels.
fn draw_series(svg: &mut String, series: &Series, points: &[Point]) {
    let style = series.style;
    let _ = writeln!(svg, "<g data-series=\"{0}\"><title>{0}</title>", escape(&series.name));
    let joined: Vec<String> = points.iter().map(|Point { x, y, .. }| format!("{x:.1},{y:.1}")).collect();
    if style.quiet {
        let _ = writeln!(svg, "<path d=\"M{}\" stroke=\"{GREY}\" fill=\"none\"/>", joined.join("L"));
        svg.push_str("</g>\n");
        return;
    }
    let colour = hex(style);
    let dashes = if style.stroke == Stroke::Dashed { " stroke-dasharray=\"7 5\"" } else { "" };
    if style.stroke != Stroke::None && points.len() > 1 {
        let joined = joined.join(" ");
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes} points=\"{joined}\"/>"
        );
    }
    let mut bars = String::new();
    let mut marks = String::new();
    for &Point { x, y, bar } in points {
        if let Some((low, high)) = bar {
            let _ = write!(bars, "M{x:.1} {low:.1}V{high:.1}");
        }
        let _ = match style.mark {
            Mark::None => Ok(()),
            Mark::Dot => writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"),
            Mark::Triangle => write!(marks, "M{x:.1} {:.1}l4.5 8h-9z", y - 5.0),
            Mark::Cross => write!(marks, "M{:.1} {:.1}l8 8m0 -8l-8 8", x - 4.0, y - 4.0),
        };
    }
    if !bars.is_empty() {
        let _ = writeln!(svg, "<path d=\"{bars}\" stroke=\"{colour}\" stroke-width=\"1.5\" fill=\"none\"/>");
    }
    if !marks.is_empty() {
        let look = if style.mark == Mark::Cross {
            format!("stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"")
        } else {
            format!("fill=\"{colour}\"")
        };
        let _ = writeln!(svg, "<path d=\"{marks}\" {look}/>");
    }
    svg.push_str("</g>\n");
}
