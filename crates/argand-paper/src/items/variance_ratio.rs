//! How much lower the variance of Complex-to-Real Rademacher sketches is, pair by pair.

use argand::theory::variance::{Formula, PairStatistics};
use argand::{Base, Field, Method, Polynomial, Spec};
use argand_figure::{Figure, Panel, Scale, Series, Style};
use argand_learn::Scaling;
use serde::{Deserialize, Serialize};

use crate::data::{Dataset, shuffled};
use crate::outcome::{Agreement, Outcome};
use crate::units::{self, Sharing};
use crate::{Context, Error, or_usual};

pub(super) const NAME: &str = "variance-ratio";
pub(super) const TITLE: &str = "Variance of CtR-Rademacher over that of Rademacher";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit {
    data: String,
    scaling: Scaling,
    /// The degree p of the kernel ⟨x, y⟩^p.
    homogeneous_degree: usize,
    rows: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Found {
    pairs: u64,
    at_most_one: f64,
    /// At 0 %, 1 %, …, 100 % of the pairs.
    quantiles: Vec<f64>,
}

/// A line of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    dataset: String,
    scaling: Scaling,
    p: usize,
    pairs: u64,
    at_most_one: f64,
    share: f64,
    ratio: f64,
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome, Error> {
    let degrees = or_usual(&context.settings.degrees, &[2, 3, 5, 7]);
    let scalings = or_usual(&context.settings.scalings, &[Scaling::NonNegative, Scaling::Standard]);
    let mut records = Vec::new();
    for source in context.datasets()? {
        let data = source.load()?;
        let mut wanted = Vec::new();
        for &scaling in &scalings {
            for &degree in &degrees {
                Spec::polynomial(data.columns()).with_degree(degree).with_features(2).validate()?;
                wanted.push(Unit {
                    data: data.fingerprint().to_owned(),
                    scaling,
                    homogeneous_degree: degree,
                    rows: context.size(300, 1000),
                });
            }
        }
        let results = units::run(context, NAME, &wanted, Sharing::Parallel, |_| 1.0, |unit| measure(unit, &data))?;
        for (unit, found) in wanted.iter().zip(results) {
            let Some(Found { pairs, at_most_one, quantiles }) = found else { continue };
            records.extend(quantiles.iter().enumerate().map(|(percent, &ratio)| Record {
                dataset: data.name.clone(),
                scaling: unit.scaling,
                p: unit.homogeneous_degree,
                pairs,
                at_most_one,
                share: percent as f64 / 100.0,
                ratio,
            }));
        }
    }
    present(context, &context.recorded(NAME, &records)?)
}

fn rademacher(field: Field) -> Method {
    Method::flat(Base::Rademacher, field)
}

/// All pairs of different rows.
fn measure(unit: &Unit, data: &Dataset) -> Result<Found, Error> {
    let [train, _] = data.scaled(unit.scaling, 0)?;
    let mut chosen = shuffled(train.labels.len(), 1);
    chosen.truncate(unit.rows);
    let part = train.select(&chosen);
    let rows: Vec<Vec<f64>> =
        part.values.chunks(part.columns()).map(|row| row.iter().map(|&value| f64::from(value)).collect()).collect();
    let kernel = Polynomial { degree: unit.homogeneous_degree, gamma: 1.0, coef0: 0.0 };
    let formula = |field| -> Result<Formula, Error> {
        let mut spec = Spec::polynomial(data.columns())
            .with_degree(unit.homogeneous_degree)
            .with_features(1024)
            .with_method(rademacher(field));
        spec.kernel = kernel.into();
        Formula::of(&spec)?.ok_or_else(|| Error::Internal("a closed form is missing".to_owned()))
    };
    let (real, complex) = (formula(Field::Real)?, formula(Field::ComplexToReal)?);
    let mut ratios = Vec::new();
    for (index, x) in rows.iter().enumerate() {
        for y in &rows[..index] {
            let pair = [PairStatistics::new(&kernel.into(), x, y)?];
            let ratio = complex.moments(&pair).variance / real.moments(&pair).variance;
            // Two variances of zero have no ratio.
            if !ratio.is_nan() {
                ratios.push(ratio);
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    if ratios.is_empty() {
        return Err(Error::Data(format!("{}: no pair of rows has a variance", data.name)));
    }
    // Pairs without products of different coordinates have equal variances up to rounding.
    let at_most_one = ratios.partition_point(|&ratio| ratio <= 1.0 + 1e-12) as f64 / ratios.len() as f64;
    let quantiles = (0..=100).map(|percent| ratios[percent * (ratios.len() - 1) / 100]).collect();
    Ok(Found { pairs: ratios.len() as u64, at_most_one, quantiles })
}

/// A few pairs have ratios far above all others, which would leave no room for these.
const LARGEST_SHOWN: f64 = 2.0;

fn present(context: &Context<'_>, records: &[Record]) -> Result<Outcome, Error> {
    let about = "The share of pairs of different rows for which the ratio of variances, at equal D, is below a value: closed forms, for \
                 the kernel ⟨x, y⟩^p, to which the paper's condition a ≥ 0 refers. The ratio depends neither on D nor on the norms of rows.";
    let mut outcome = Outcome::new(NAME, TITLE, about.to_owned());
    let mut sets: Vec<&str> = Vec::new();
    let mut scalings: Vec<Scaling> = Vec::new();
    let mut degrees: Vec<usize> = Vec::new();
    for record in records {
        if !sets.contains(&&*record.dataset) {
            sets.push(&record.dataset);
        }
        if !scalings.contains(&record.scaling) {
            scalings.push(record.scaling);
        }
        if !degrees.contains(&record.p) {
            degrees.push(record.p);
        }
    }
    degrees.sort_unstable();
    let of = |set: &str, scaling: Scaling, degree: usize| -> Vec<&Record> {
        let matches = |record: &&Record| record.dataset == set && record.scaling == scaling && record.p == degree;
        records.iter().filter(matches).collect()
    };
    let panels =
        sets.iter().flat_map(|set| scalings.iter().map(move |&scaling| (*set, scaling))).map(|(set, scaling)| {
            let series = degrees.iter().enumerate().map(|(index, &degree)| {
                let quantiles = of(set, scaling, degree).into_iter().map(|record| (100.0 * record.share, record.ratio));
                Series::new(format!("p = {degree}"), Style::numbered(index), quantiles)
            });
            Panel {
                limits: [None, Some((0.0, LARGEST_SHOWN))],
                rules: [None, Some(1.0)],
                ..Panel::new(
                    &format!("{set}, {scaling}"),
                    ["% of the pairs have at most this ratio", "variance, Complex-to-Real over real"],
                    [Scale::Linear; 2],
                    series.collect(),
                )
            }
        });
    let beyond = records.iter().filter(|record| record.ratio > LARGEST_SHOWN);
    let (largest, least) =
        beyond.fold((0.0, 1.0), |(largest, least), record| (record.ratio.max(largest), record.share.min(least)));
    let mut note = "Below the line at 1, Complex-to-Real sketches have the lower variance.".to_owned();
    if largest > 0.0 {
        note.push_str(&format!(
            " Ratios above {LARGEST_SHOWN}, of at most {:.0} % of the pairs, are not drawn; the largest is {largest:.1}.",
            100.0 * (1.0 - least) + 1.0
        ));
    }
    outcome.draw(
        &context.settings.out,
        &Figure {
            name: NAME.to_owned(),
            caption: "Quantiles of the ratio of variances over pairs of rows.".to_owned(),
            columns: scalings.len(),
            panels: panels.collect(),
            note,
        },
    )?;
    for &set in &sets {
        for &scaling in &scalings {
            let shares: Vec<(usize, f64, f64)> = (degrees.iter())
                .filter_map(|&degree| {
                    let median =
                        of(set, scaling, degree).into_iter().find(|record| (record.share - 0.5).abs() < 1e-9)?;
                    Some((degree, median.at_most_one, median.ratio))
                })
                .collect();
            let text: Vec<String> = (shares.iter())
                .map(|(degree, below, median)| {
                    format!("p = {degree}: {:.1} % at most 1, median {median:.2}", 100.0 * below)
                })
                .collect();
            let pairs = degrees.first().and_then(|&degree| of(set, scaling, degree).first().map(|record| record.pairs));
            let found = format!("{set}, {scaling}, {} pairs: {}", pairs.unwrap_or(0), text.join("; "));
            if scaling == Scaling::NonNegative {
                let all = shares.iter().all(|&(_, below, _)| below >= 1.0);
                let falls = shares.len() > 1 && shares.windows(2).all(|pair| pair[1].2 < pair[0].2);
                let claim = "On non-negative data no ratio is above one, and the median ratio falls with p.";
                outcome.verdict(claim, found, Agreement::of(all && falls));
            } else if scaling == Scaling::Standard {
                // The paper's claims are about its own sets; others have nothing to agree with.
                let (claim, least, most) = if ["mnist", "cifar"].iter().any(|known| set.contains(known)) {
                    ("On centred MNIST and CIFAR-10 most ratios are below one, though not all.", 0.5, 1.0)
                } else {
                    ("On centred Letter and Mocap around half of the ratios (40 to 60 %) are below one.", 0.4, 0.6)
                };
                let holds = shares.iter().all(|&(_, below, _)| below > least && below < most);
                let known = ["mnist", "cifar", "letter", "mocap"].iter().any(|known| set.contains(known));
                outcome.verdict(claim, found, if known { Agreement::of(holds) } else { Agreement::Open });
            }
        }
    }
    Ok(outcome)
}
