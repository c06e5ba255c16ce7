//! Test error over time: the README's picture, and those of docs/kernels.md. Attribution over bytes: docs/attribution.md.

use std::collections::BTreeSet;
use std::fs;

use argand_figure::{COLOURS, Figure, Mark, Panel, Scale, Series, Stroke, Style};
use serde::Deserialize;

use super::{Failure, Table, docs, figure};

/// Lines of these maps, in the order of their colours; scikit-learn's have the colour of what they stand beside, and are dashed.
const MAPS: [(&str, usize, Stroke); 11] = [
    ("exact", 6, Stroke::Solid),
    ("ctr-product-srht", 1, Stroke::Solid),
    ("chain-ctr-product-srht", 4, Stroke::Solid),
    ("maclaurin-ctr-product-srht", 5, Stroke::Solid),
    ("maclaurin-ctr-product-srht for learning", 3, Stroke::Solid),
    ("nystrom", 0, Stroke::Solid),
    ("sorf", 2, Stroke::Solid),
    ("orf", 6, Stroke::Solid),
    ("sklearn RBFSampler", 2, Stroke::Dashed),
    ("sklearn Nystroem", 0, Stroke::Dashed),
    ("sklearn PolynomialCountSketch", 1, Stroke::Dashed),
];

/// The kernels of the study, and their titles.
const KERNELS: [(&str, &str); 5] = [
    ("polynomial 3", "(½ + ½⟨x, y⟩)³"),
    ("polynomial 7", "(½ + ½⟨x, y⟩)⁷"),
    ("gaussian 1", "Gaussian, as wide as the median distance"),
    ("gaussian 0.5", "Gaussian, half as wide"),
    ("gaussian 0.3", "Gaussian, three tenths as wide"),
];

/// One result of `make study`.
#[derive(Deserialize)]
struct Measured {
    set: String,
    kernel: String,
    method: String,
    feature_seconds: f64,
    fit_seconds: f64,
    test_error: f64,
}

/// One picture for every set of the study.
pub(super) fn kernels() -> Result<Vec<Figure>, Failure> {
    let text = fs::read_to_string(docs().join("kernels/results.jsonl"))?;
    let results = text.lines().map(serde_json::from_str).collect::<Result<Vec<Measured>, _>>()?;
    let sets: BTreeSet<&str> = results.iter().map(|result| &*result.set).collect();
    let of_set = |set: &str| {
        let panels = KERNELS.iter().map(|&(kernel, title)| panel(&results, set, kernel, title));
        let note = "Processor time of one thread for features and fit of 8,000 rows; lower left is better. Dashed lines are scikit-learn's, in the \
                    colour of the map of that kind; CountSketch is PolynomialCountSketch.";
        figure(&format!("kernels/{set}"), "", panels.collect(), note)
    };
    sets.into_iter().map(of_set).collect()
}

fn panel(results: &[Measured], set: &str, kernel: &str, title: &str) -> Panel {
    let series = MAPS.iter().map(|&(method, colour, stroke)| {
        let of = results.iter().filter(|one| one.set == set && one.kernel == kernel && one.method == method);
        let mut points: Vec<(f64, f64)> =
            of.map(|one| (one.feature_seconds + one.fit_seconds, one.test_error)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mark = if points.len() == 1 { Mark::Triangle } else { Mark::Dot };
        let name = method
            .replace("maclaurin-ctr-product-srht", "maclaurin-")
            .replace(" for", ",")
            .replace("sklearn Polynomial", "sklearn ");
        Series::new(name, Style { stroke, mark, ..Style::numbered(colour) }, points)
    });
    let series = series.filter(|series| !series.points.is_empty()).collect();
    Panel::new(&format!("{set}: {title}"), ["seconds", "test error"], [Scale::Logarithmic; 2], series)
}

/// The README's picture, from what `make front` measured.
pub(super) fn front() -> Result<Figure, Failure> {
    let table = Table::read(&docs().join("front.csv"))?;
    let percent = |name: &str| table.points(2, 3, |row| row[0] == name).into_iter().map(|(x, y)| (x, 100.0 * y));
    let lines = [
        ("Argand", "Argand's PolynomialSketch", 1, Stroke::Solid),
        ("scikit-learn, Nystroem", "scikit-learn's Nystroem", 0, Stroke::Solid),
        ("scikit-learn, CountSketch", "scikit-learn's PolynomialCountSketch", 6, Stroke::Dashed),
    ];
    let series = lines.map(|(name, of, colour, stroke)| {
        Series::new(name, Style { stroke, mark: Mark::Dot, ..Style::numbered(colour) }, percent(of))
    });
    let linear = percent("a linear model on the pixels").next().ok_or("no linear model in front.csv")?.1;
    let panel = Panel {
        rules: [None, Some(linear)],
        ..Panel::new(
            "Handwritten digits: lower left is better",
            ["processor seconds for features and fit", "test error, %"],
            [Scale::Logarithmic; 2],
            series.to_vec(),
        )
    };
    let note = "PolynomialSketch beside Nystroem and PolynomialCountSketch: 20,000 digits to learn from, one thread. Points are 128, 256, … 8192 features (4096 for Nystroem). The line across is a linear \
                model on the pixels.";
    figure("front", "", vec![panel], note)
}

/// What is asked of sketched gradients, with the title, label and scale of its panel.
const QUESTIONS: [(&str, &str, &str, Scale); 4] = [
    ("errors-vision", "Vision transformer: inner products", "relative error", Scale::Logarithmic),
    ("errors-language", "Language model: inner products", "relative error", Scale::Logarithmic),
    ("mislabelled", "Mislabelled examples found", "area under the curve", Scale::Linear),
    ("lds", "Losses after training on halves", "linear datamodeling score", Scale::Linear),
];

/// Gradients by what is kept of them: the first question for the README, the others for docs/attribution.md.
pub(super) fn attribution() -> Result<[Figure; 2], Failure> {
    let table = Table::read(&docs().join("attribution.csv"))?;
    let grey = Style { mark: Mark::Dot, ..Style::numbered(COLOURS.len() - 1) };
    let methods: [(&str, &str, Style); 5] = [
        ("two-sided", "two-sided", grey),
        ("coordinates", "coordinates", Style { stroke: Stroke::Dashed, ..grey }),
        ("traker", "traker, dattri", Style { mark: Mark::Dot, ..Style::numbered(2) }),
        ("ctr-product-srht", "ctr-product-srht", Style::of("ctr-product-srht".parse()?)),
        ("tensor-sketch", "tensor-sketch", Style::of("tensor-sketch".parse()?)),
    ];
    let panels = QUESTIONS.map(|(question, title, label, scale)| {
        let series = methods.iter().map(|&(method, name, style)| {
            let wanted = |row: &[String]| row[0] == question && row[1] == method;
            let errors = table.points(2, 4, wanted);
            Series::new(name, style, table.points(2, 3, wanted)).with_bars(errors.into_iter().map(|(_, error)| error))
        });
        Panel::new(title, ["bytes for each layer and example", label], [Scale::Doubling, scale], series.collect())
    });
    let note = "Bars are standard errors over sketches. two-sided and coordinates are what other packages keep; traker and dattri project gradients that \
                are formed in full.";
    let (first, others) = panels.split_at(1);
    Ok([figure("attribution", "", first.to_vec(), note)?, figure("attribution-quality", "", others.to_vec(), note)?])
}
