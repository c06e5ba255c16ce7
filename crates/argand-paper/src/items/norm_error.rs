//! How far the norm of a sketch is from that of the tensor product, over the degree.

use argand::{FeatureMap, Method, Polynomial, Rows, Spec};
use argand_figure::{Figure, Panel, Scale, Series, key};
use serde::{Deserialize, Serialize};

use super::mean_and_deviation;
use crate::outcome::{Agreement, Outcome};
use crate::units::{self, Sharing};
use crate::{Context, Error};

pub(super) const NAME: &str = "norm-error";
pub(super) const TITLE: &str = "Error of norms over the degree";

const ROWS: usize = 128;
const DIM: usize = 64;
const LARGEST_DEGREE: usize = 10;
/// Draws per unit of work.
const DRAWS: u64 = 1000;
const METHODS: [&str; 4] = ["gaussian", "ctr-gaussian", "rademacher", "ctr-rademacher"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit {
    method: String,
    degree: usize,
    first_seed: u64,
    draws: u64,
}

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    method: String,
    p: usize,
    draws: u64,
    mean_error: f64,
    standard_error: f64,
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let draws = context.seeds(2_000, 30_000);
    let units: Vec<Unit> = (1..=LARGEST_DEGREE)
        .flat_map(|degree| METHODS.map(|method| (degree, method)))
        .flat_map(|(degree, method)| {
            units::parts(draws, DRAWS).map(move |(first_seed, draws)| Unit {
                method: method.to_owned(),
                degree,
                first_seed,
                draws,
            })
        })
        .collect();
    let results = units::run(context, NAME, &units, Sharing::Parallel, |unit| unit.degree as f64, measure)?;
    let mut records: Vec<Record> = Vec::new();
    for degree in 1..=LARGEST_DEGREE {
        for method in METHODS {
            let of_cell =
                units.iter().zip(&results).filter(|(unit, _)| (unit.degree, &*unit.method) == (degree, method));
            let errors: Vec<f64> = of_cell.filter_map(|(_, errors)| errors.as_ref()).flatten().copied().collect();
            if errors.is_empty() {
                continue;
            }
            let (mean_error, deviation) = mean_and_deviation(&errors);
            let draws = errors.len() as u64;
            let standard_error = deviation / (draws as f64).sqrt();
            records.push(Record { method: method.to_owned(), p: degree, draws, mean_error, standard_error });
        }
    }
    present(context, &context.recorded(NAME, &records)?)
}

/// | ‖Sx‖² − ‖x‖² | of every draw for x = a ⊗ … ⊗ a with equal entries and unit norm.
fn measure(unit: &Unit) -> Result<Vec<f64>, Error> {
    let method: Method = unit.method.parse()?;
    let row = vec![(DIM as f64).sqrt().recip(); DIM];
    let errors = (unit.first_seed..unit.first_seed + unit.draws).map(|seed| -> Result<f64, Error> {
        let mut spec =
            Spec::polynomial(DIM).with_degree(unit.degree).with_features(ROWS).with_method(method).with_seed(seed);
        spec.kernel = Polynomial { degree: unit.degree, gamma: 1.0, coef0: 0.0 }.into();
        let features = spec.sketch::<f64>()?.transform(&[Rows::new(&row, 1, DIM)?.into()])?;
        Ok((features.iter().map(|value| value * value).sum::<f64>() - 1.0).abs())
    });
    errors.collect()
}

fn present(context: &Context<'_>, records: &[Record]) -> Result<Outcome, Error> {
    let draws = records.first().map_or(0, |record| record.draws);
    let about = format!(
        "Mean of | ‖Sx‖² − ‖x‖² | over {draws} draws of S with {ROWS} rows, x = a ⊗ … ⊗ a with a = (1, …, 1)/8 in {DIM} dimensions. A \
         Complex-to-Real sketch with {ROWS} rows has {} complex ones. At large p the mean rests on rare large values.",
        ROWS / 2
    );
    let mut outcome = Outcome::new(NAME, TITLE, about);
    let series = METHODS.iter().map(|&name| {
        let of_method = records.iter().filter(|record| record.method == name);
        Series::of_method(name, of_method.map(|record| (record.p as f64, record.mean_error)))
    });
    let series: Vec<Series> = series.collect();
    outcome.draw(
        &context.settings.out,
        &Figure {
            name: NAME.to_owned(),
            caption: format!("Mean error of the squared norm, {ROWS} rows."),
            columns: 1,
            note: key(&series),
            panels: vec![Panel::new(
                "Error of a squared norm of 1",
                ["degree p", &format!("mean of | |Sx|² − 1 |, {ROWS} features")],
                [Scale::Linear, Scale::Logarithmic],
                series,
            )],
        },
    )?;
    let find =
        |method: &str, degree: usize| records.iter().find(|record| record.method == method && record.p == degree);
    for (real, complex) in [("gaussian", "ctr-gaussian"), ("rademacher", "ctr-rademacher")] {
        let ratios: Vec<(usize, f64, f64)> = (1..=LARGEST_DEGREE)
            .filter_map(|degree| {
                let (real, complex) = (find(real, degree)?, find(complex, degree)?);
                let ratio = complex.mean_error / real.mean_error;
                let relative = |record: &Record| (record.standard_error / record.mean_error).powi(2);
                Some((degree, ratio, ratio * (relative(real) + relative(complex)).sqrt()))
            })
            .collect();
        let text: Vec<String> =
            ratios.iter().map(|(degree, ratio, error)| format!("p = {degree}: {ratio:.2} ± {error:.2}")).collect();
        let beyond_one = ratios.iter().filter(|(degree, ..)| *degree >= 2);
        let below_one: Vec<(f64, f64)> = beyond_one.map(|(_, ratio, error)| (ratio - 1.0, *error)).collect();
        outcome.verdict(
            &format!("{complex} sketches preserve norms better than {real} ones (Fig. 1 right)."),
            format!("tested at every p from 2; mean errors, {complex} over {real}, {}", text.join(", ")),
            Agreement::of_negative(&below_one),
        );
        let (found, agreement) = growth(&ratios);
        outcome.verdict(
            &format!("The gain of {complex} over {real} sketches grows with p (Fig. 1 right)."),
            found,
            agreement,
        );
    }
    Ok(outcome)
}

/// Whether ratios fall from every degree to the next, and up to which degree they clearly do: (degree, ratio, standard error) each.
fn growth(ratios: &[(usize, f64, f64)]) -> (String, Agreement) {
    let steps: Vec<(f64, f64)> = (ratios.windows(2))
        .map(|pair| {
            let [(_, low, low_error), (_, high, high_error)] = [pair[0], pair[1]];
            (high / low - 1.0, high / low * (low_error / low).hypot(high_error / high))
        })
        .collect();
    let clear = steps.iter().take_while(|&&step| Agreement::of_negative(&[step]) == Agreement::Agrees).count();
    let (Some(first), Some(last), Some(end)) = (ratios.first(), ratios.last(), ratios.get(clear)) else {
        return ("nothing to compare".to_owned(), Agreement::Open);
    };
    let found = if clear == steps.len() {
        format!(
            "the ratio falls clearly at every step from p = {} ({:.2}) to {} ({:.2})",
            first.0, first.1, last.0, last.1
        )
    } else {
        format!(
            "the ratio falls clearly at every step from p = {} ({:.2}) to {} ({:.2}); the step after that is not clear, and at p = {} it is \
             {:.2} ± {:.2}",
            first.0, first.1, end.0, end.1, last.0, last.1, last.2
        )
    };
    (found, Agreement::of_negative(&steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim of growth holds only if every step shows it.
    #[test]
    fn growth_is_tested_step_by_step() {
        let ratio = |degree: usize, ratio: f64| (degree, ratio, 0.01);
        let (found, agreement) = growth(&[ratio(1, 1.0), ratio(2, 0.9), ratio(3, 0.8)]);
        assert_eq!(agreement, Agreement::Agrees, "{found}");
        let (found, agreement) = growth(&[ratio(1, 1.0), ratio(2, 0.9), ratio(3, 0.895)]);
        assert_eq!(agreement, Agreement::Open);
        assert!(found.contains("to 2 (0.90); the step after that is not clear, and at p = 3 it is 0.90"), "{found}");
        assert_eq!(growth(&[ratio(1, 1.0), ratio(2, 0.9), ratio(3, 0.95)]).1, Agreement::Differs);
        assert_eq!(growth(&[]).1, Agreement::Open);
    }
}
