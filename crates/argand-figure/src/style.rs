//! How lines look: one look for every method, wherever it is drawn.

use argand::{Base, Field, Method, Shape};

use crate::Series;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
    /// How its points are joined.
    pub stroke: Stroke,
    /// The mark of its points.
    pub mark: Mark,
    /// Thin, grey and without a name, behind the lines that matter.
    pub quiet: bool,
}

/// How the points of a line are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// By a line.
    Solid,
    /// By a dashed line.
    Dashed,
    /// Not at all.
    None,
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
        Self { colour: COLOURS[index % COLOURS.len()], stroke: Stroke::Solid, mark: Mark::None, quiet: false }
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
        let stroke = if method.field() == Field::Real { Stroke::Dashed } else { Stroke::Solid };
        Self { colour, stroke, mark, quiet: false }
    }
}

/// With more lines than these, only those that matter most are named.
const MOST_NAMED: usize = 8;

/// The methods that matter most: the default, what it improves on, and what may improve on it.
const FOREMOST: [&str; 7] = [
    "ctr-product-srht",
    "product-srht",
    "tensor-sketch",
    "chain-ctr-product-srht",
    "hierarchical-ctr-product-srht",
    "craft-ctr-product-srht",
    "srf",
];

/// The lines of a chart: all of them if they are few. Of many, those that matter most stand out before the rest in grey.
#[must_use]
pub fn highlighted(mut series: Vec<Series>) -> Vec<Series> {
    let foremost = |series: &Series| FOREMOST.contains(&&*series.name);
    if series.len() > MOST_NAMED && series.iter().filter(|series| foremost(series)).count() > 2 {
        for series in &mut series {
            series.style.quiet = !foremost(series);
        }
    }
    series
}

/// A sentence or two about what colours, dashes, marks and grey mean in charts of methods.
#[must_use]
pub fn key<'a>(series: impl IntoIterator<Item = &'a Series>) -> String {
    let (mut named, mut quiet): (Vec<&Series>, Vec<&str>) = (Vec::new(), Vec::new());
    for series in series {
        if !series.style.quiet {
            named.push(series);
        } else if !quiet.contains(&&*series.name) {
            quiet.push(&series.name);
        }
    }
    let any = |of: &dyn Fn(&Series) -> bool| named.iter().any(|series| of(series));
    let mut text = String::new();
    if any(&|series| series.style.stroke == Stroke::Dashed) && any(&|series| series.style.stroke == Stroke::Solid) {
        text.push_str("Solid lines are Complex-to-Real sketches, dashed ones are real. ");
    }
    if !quiet.is_empty() {
        text.push_str(&format!("In grey: {}. ", quiet.join(", ")));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
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
    fn of_many_lines_few_stand_out() {
        let lines = |names: &[&str]| names.iter().map(|name| Series::of_method(name, [])).collect::<Vec<_>>();
        let few = highlighted(lines(&["gaussian", "srf"]));
        assert!(few.iter().all(|series| !series.style.quiet) && key(&few).is_empty());
        let names = ["gaussian", "ctr-gaussian", "rademacher", "craft-tensor-sketch", "hierarchical-tensor-sketch"];
        let many = highlighted(lines(&[&names[..], &FOREMOST[..]].concat()));
        assert!(many.iter().all(|series| series.style.quiet == names.contains(&&*series.name)));
        let key = key(&many);
        assert!(key.contains("dashed ones are real") && key.contains("In grey: gaussian, ctr-gaussian"), "{key}");
        // Lines of which none is foremost are all named.
        let others = highlighted(vec![Series::of_method("gaussian", []); 12]);
        assert!(others.iter().all(|series| !series.style.quiet));
    }
}
