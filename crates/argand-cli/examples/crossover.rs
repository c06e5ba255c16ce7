//! Draws the figure of `docs/math.md`, section 9: where Complex-to-Real sketches beat real ones, and where not.
//!
//! `cargo run --release --package argand-cli --example crossover docs/crossover.svg`

use argand::theory::variance::{Formula, PairStatistics};
use argand::{Base, Field, Method, Polynomial, Spec};
use plotters::prelude::*;

/// a/N and the variance of a CtR-Rademacher sketch over that of a real one, for x = (1, 1)/√2 and y = (cos θ, sin θ).
fn ratio(degree: usize, angle: f64) -> Result<(f64, f64), argand::Error> {
    let kernel = Polynomial { degree, gamma: 1.0, coef0: 0.0 };
    let x = [0.5_f64.sqrt(); 2];
    let pair = PairStatistics::new(&kernel.into(), &x, &[angle.cos(), angle.sin()])?;
    let mut variances = [0.0; 2];
    for (variance, field) in variances.iter_mut().zip([Field::ComplexToReal, Field::Real]) {
        let spec = Spec::polynomial(2)
            .with_degree(degree)
            .with_features(1024)
            .with_method(Method::flat(Base::Rademacher, field));
        *variance = Formula::of(&spec)?.map_or(f64::NAN, |formula| formula.moments(&[pair]).variance);
    }
    Ok((pair.cross_terms() / pair.norms, variances[0] / variances[1]))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: crossover FILE.svg")?;
    let area = SVGBackend::new(&path, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(14)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.52..0.52, (0.2..10.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("a / (|x|^2 |y|^2), below 0: products of coordinates have opposite signs")
        .y_desc("variance, Complex-to-Real over real")
        .light_line_style(WHITE)
        .label_style(("sans-serif", 14))
        .draw()?;
    chart.draw_series([
        PathElement::new([(-0.52, 1.0), (0.52, 1.0)], BLACK.stroke_width(1)),
        PathElement::new([(0.0, 0.2), (0.0, 10.0)], BLACK.stroke_width(1)),
    ])?;
    let colours = [RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(230, 159, 0), RGBColor(213, 94, 0)];
    for (degree, colour) in [2, 3, 5, 7].into_iter().zip(colours) {
        // From θ = −45° to 45°, where a grows from −½ to ½.
        let angles = (0..=200).map(|step| (f64::from(step) / 100.0 - 1.0) * std::f64::consts::FRAC_PI_4);
        let mut points = angles.map(|angle| ratio(degree, angle)).collect::<Result<Vec<_>, _>>()?;
        // At a = −½ the real sketch has no variance at all.
        points.retain(|&(_, ratio)| ratio <= 10.0);
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(format!("p = {degree}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .label_font(("sans-serif", 14))
        .draw()?;
    area.present()?;
    Ok(())
}
