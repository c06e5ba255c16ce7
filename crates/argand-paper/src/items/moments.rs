//! The constants C_t of the moment bounds.

use argand::theory::moments::moment_constant;
use argand::{Base, Field, Method};
use argand_figure::{Figure, Mark, Panel, Scale, Series, Style};
use serde::{Deserialize, Serialize};

use crate::outcome::{Agreement, Outcome};
use crate::{Context, Error};

pub(super) const NAME: &str = "moments";
pub(super) const TITLE: &str = "Constants of the moment bounds";

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    t: f64,
    real: f64,
    complex_gaussian: f64,
    complex_rademacher: f64,
    real_over_root_t: f64,
    complex_gaussian_over_root_t: f64,
    complex_rademacher_over_root_t: f64,
}

/// The largest t of the figure, and its steps.
const LARGEST: u32 = 20;
const STEPS: u32 = 20;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let record = |t: f64| -> Result<Record, Error> {
        let real = moment_constant(Base::Gaussian, Field::Real, t)?;
        let complex_gaussian = moment_constant(Base::Gaussian, Field::Complex, t)?;
        let complex_rademacher = moment_constant(Base::Rademacher, Field::Complex, t)?;
        Ok(Record {
            t,
            real,
            complex_gaussian,
            complex_rademacher,
            real_over_root_t: real / t.sqrt(),
            complex_gaussian_over_root_t: complex_gaussian / t.sqrt(),
            complex_rademacher_over_root_t: complex_rademacher / t.sqrt(),
        })
    };
    let places = (0..=(LARGEST - 2) * STEPS).map(|step| 2.0 + f64::from(step) / f64::from(STEPS));
    let records = places.map(record).collect::<Result<Vec<_>, _>>()?;
    present(context, &context.recorded(NAME, &records)?)
}

fn present(context: &Context<'_>, records: &[Record]) -> Result<Outcome, Error> {
    let about = "C_t of Lemma 3.1: the bound on the t-th absolute moment of one projection. For complex Rademacher weights the paper has \
                 a closed form at even t and interpolates between them.";
    let mut outcome = Outcome::new(NAME, TITLE, about.to_owned());
    let looks = [(Base::Gaussian, Field::Real), (Base::Gaussian, Field::Complex), (Base::Rademacher, Field::Complex)];
    let panel = |title: &str, y_label: &str, of: [fn(&Record) -> f64; 3]| {
        let names = ["real", "complex Gaussian", "complex Rademacher"].into_iter().zip(looks).zip(of);
        let series = names.map(|((name, (base, field)), of)| {
            let style = Style { mark: Mark::None, ..Style::of(Method::flat(base, field)) };
            Series::new(name, style, records.iter().map(|record| (record.t, of(record))))
        });
        Panel::new(title, ["t", y_label], [Scale::Linear; 2], series.collect())
    };
    outcome.draw(
        &context.settings.out,
        &Figure {
            name: NAME.to_owned(),
            caption: "C_t over t, and divided by √t.".to_owned(),
            columns: 2,
            panels: vec![
                panel(
                    "Bound on the t-th moment of a projection",
                    "C_t",
                    [|r| r.real, |r| r.complex_gaussian, |r| r.complex_rademacher],
                ),
                panel(
                    "The same, over its growth",
                    "C_t / √t",
                    [|r| r.real_over_root_t, |r| r.complex_gaussian_over_root_t, |r| r.complex_rademacher_over_root_t],
                ),
            ],
            note: "Dashed: real weights, Gaussian and Rademacher alike. Solid: complex ones.".to_owned(),
        },
    )?;
    let at = |t: f64| records.iter().find(|record| (record.t - t).abs() < 1e-9);
    let (Some(four), Some(last)) = (at(4.0), at(f64::from(LARGEST))) else {
        return Err(Error::Internal("the table of constants is incomplete".to_owned()));
    };
    let even: Vec<&Record> = (1..=LARGEST / 2).filter_map(|half| at(f64::from(2 * half))).collect();
    let gains: Vec<f64> = even.iter().map(|record| record.real / record.complex_gaussian).collect();
    let grows = gains.windows(2).all(|pair| pair[0] < pair[1]);
    outcome.verdict(
        "Moments of complex weights are smaller than those of real ones, with a gain that grows with t (Fig. 1 left).",
        format!(
            "real over complex at t = 4: {:.4}, at t = {LARGEST}: {:.4}; the gain {} at every even t",
            four.real / four.complex_gaussian,
            last.real / last.complex_gaussian,
            if grows { "grows" } else { "does not grow" }
        ),
        Agreement::of(grows && gains[1] > 1.0),
    );
    outcome.verdict(
        "C_4 to the fourth power is 3 for real weights and 2 for complex ones, so that 3^p becomes 2^p (after Theorem 3.2).",
        format!("{:.12} and {:.12}", four.real.powi(4), four.complex_gaussian.powi(4)),
        Agreement::of((four.real.powi(4) - 3.0).abs() < 1e-9 && (four.complex_gaussian.powi(4) - 2.0).abs() < 1e-9),
    );
    Ok(outcome)
}
