//! Lines over doublings, both axes logarithmic.

use plotters::prelude::*;

/// A chart and its lines: name and points (x, y).
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Colours that remain distinct under most kinds of colour blindness.
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(120, 120, 120),
];

/// Draws the panels, two in a row, as SVG; y is in milliseconds.
pub(crate) fn draw(panels: &[Panel]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let down = u32::try_from(panels.len().div_ceil(2))?;
        let area = SVGBackend::with_string(&mut svg, (1000, 380 * down)).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, area) in panels.iter().zip(area.split_evenly((down as usize, 2))) {
            let points = || panel.lines.iter().flat_map(|(_, points)| points);
            let range = |values: &mut dyn Iterator<Item = f64>, margin: f64| {
                let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
                low / margin..high * margin
            };
            let x = range(&mut points().map(|point| point.0), 1.15);
            let y = range(&mut points().map(|point| point.1), 1.5);
            let mut chart = ChartBuilder::on(&area)
                .caption(&panel.title, ("sans-serif", 17))
                .margin(10)
                .x_label_area_size(28)
                .y_label_area_size(56)
                .build_cartesian_2d(x.start.log2()..x.end.log2(), y.log_scale())?;
            chart
                .configure_mesh()
                .y_desc("ms")
                .x_labels(8)
                .x_label_formatter(&|doublings| format!("{:.0}", doublings.exp2()))
                .y_label_formatter(&|ms| format!("{ms}"))
                .light_line_style(WHITE)
                .label_style(("sans-serif", 13))
                .draw()?;
            for ((name, points), colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
                let style = colour.stroke_width(2);
                let points = points.iter().map(|&(x, y)| (x.log2(), y));
                chart
                    .draw_series(LineSeries::new(points.clone(), style))?
                    .label(name)
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
                chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.85))
                .label_font(("sans-serif", 13))
                .draw()?;
        }
        area.present()?;
    }
    Ok(svg)
}
