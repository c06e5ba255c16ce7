//! The picture of `argand demo`: error over features, both logarithmic, one line per method.

use std::io::Write;
use std::path::Path;

use argand::{Base, Field};
use plotters::prelude::*;

use super::Measurement;
use crate::failure::Failure;
use crate::output::AtomicFile;

/// Colours that stay apart for most kinds of colour blindness, one per base.
fn colour(base: Base) -> RGBColor {
    match base {
        Base::Gaussian => RGBColor(230, 159, 0),
        Base::Rademacher => RGBColor(86, 180, 233),
        Base::ProductSrht => RGBColor(213, 94, 0),
        Base::TensorSrht => RGBColor(0, 158, 115),
        Base::TensorSketch => RGBColor(0, 114, 178),
        Base::Spherical => RGBColor(204, 121, 167),
    }
}

/// Draws `measured` and puts the picture in its place.
pub(super) fn write(mut file: AtomicFile, path: &Path, title: &str, measured: &[Measurement]) -> Result<(), Failure> {
    let svg =
        draw(title, measured).map_err(|error| Failure::Other(format!("{}: cannot draw: {error}", path.display())))?;
    file.write_all(svg.as_bytes()).map_err(|error| Failure::io(path, "write", &error))?;
    file.commit()
}

fn draw(title: &str, measured: &[Measurement]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let bounds = |values: &mut dyn Iterator<Item = f64>, margin: f64| {
            let (low, high) =
                values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
            (low.max(1e-12) / margin)..(high.max(1e-12) * margin)
        };
        // Features are drawn by their base-2 logarithm: ticks at powers of two.
        let doublings = |line: &Measurement| (line.features as f64).log2();
        let features = bounds(&mut measured.iter().map(|line| line.features as f64), 1.15);
        let features = features.start.log2()..features.end.log2();
        let errors = bounds(&mut measured.iter().map(|line| line.mean), 1.25);
        let area = SVGBackend::with_string(&mut svg, (860, 480)).into_drawing_area();
        area.fill(&WHITE)?;
        let first_line = measured.chunk_by(|a, b| a.method == b.method).next().unwrap_or_default();
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(features, errors.log_scale())?;
        chart
            .configure_mesh()
            .x_desc("features D")
            .y_desc("relative Frobenius error")
            .x_labels(first_line.len().clamp(2, 12))
            .x_label_formatter(&|doublings| format!("{:.0}", doublings.exp2()))
            .y_label_formatter(&|value| ((value * 1e4).round() / 1e4).to_string())
            .light_line_style(WHITE)
            .label_style(("sans-serif", 14))
            .draw()?;
        for lines in measured.chunk_by(|a, b| a.method == b.method) {
            let method = lines[0].method;
            // Real sketches are dashed, complex ones solid.
            let style = colour(method.base).stroke_width(2);
            let points = lines.iter().map(|line| (doublings(line), line.mean));
            let dashed = method.field == Field::Real;
            let drawn = if dashed {
                chart.draw_series(DashedLineSeries::new(points.clone(), 6, 5, style))?
            } else {
                chart.draw_series(LineSeries::new(points.clone(), style))?
            };
            drawn.label(method.to_string()).legend(move |(x, y)| {
                let end = if dashed { x + 9 } else { x + 22 };
                PathElement::new(vec![(x, y), (end, y)], style)
            });
            chart.draw_series(points.map(|point| Circle::new(point, 3, colour(method.base).filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .label_font(("sans-serif", 14))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_in_the_legend() {
        let measured: Vec<_> = [Base::Gaussian, Base::TensorSketch]
            .into_iter()
            .flat_map(|base| [Field::Real, Field::ComplexToReal].map(|field| argand::Method::flat(base, field)))
            .flat_map(|method| {
                [(64, 0.2), (256, 0.1)].map(|(features, mean)| Measurement {
                    method,
                    features,
                    mean,
                    deviation: 0.0,
                    milliseconds: 1.0,
                })
            })
            .collect();
        let svg = draw("a title", &measured).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a title"));
        for line in measured {
            assert!(svg.contains(&line.method.to_string()), "{}", line.method);
        }
    }
}
