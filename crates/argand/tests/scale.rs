//! Statistics at scale: every sketch of tensor products, degrees up to 10, at seeds that nobody has seen before.
//!
//! The seed is printed; `ARGAND_SEED` repeats a run, `ARGAND_SKETCHES` says how many sketches are drawn for each spec. Scores are judged
//! together: right sketches and formulas fail with a probability of [`LEVEL`], as far as corrected scores are normal. They are
//! judged only where five times the sketches are drawn from which on `verify` takes them for normal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod common;

use argand::verify::{Verification, z_bound};
use argand::{Base, Field, Method, Spec};
use common::*;
use rayon::prelude::*;

/// The probability that something right fails.
const LEVEL: f64 = 1e-6;
const DIM: usize = 8;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A seed from the clock.
fn fresh() -> u64 {
    variable("ARGAND_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    })
}

fn sketches() -> usize {
    variable("ARGAND_SKETCHES").unwrap_or(4000) as usize
}

/// How many standard errors the mean of samples is from its expectation, corrected for skewness (Hall 1992); 0 where they differ by
/// rounding.
fn score(samples: &[f64], expected: f64) -> f64 {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let central = |power: i32| samples.iter().map(|sample| (sample - mean).powi(power)).sum::<f64>() / count;
    let deviation = central(2).sqrt();
    if (mean - expected).abs() <= 1e-11 * (1.0 + expected.abs()) {
        return 0.0;
    }
    let (t, skewness) = ((mean - expected) / deviation, central(3) / deviation.powi(3));
    count.sqrt() * (t + skewness * t * t / 3.0 + (skewness * t).powi(2) * t / 27.0 + skewness / (6.0 * count))
}

/// Two rows of norm one at an angle, and what the sketches of some seeds estimate for the two and for the first with itself.
fn estimates(
    spec: &Spec,
    seed: u64,
    count: usize,
    features: &(dyn Fn(&Spec, &[f64]) -> Vec<f64> + Sync),
) -> [Vec<Complex>; 2] {
    let table = rows(seed).concat();
    let both = (0..count as u64).into_par_iter().map(|sketch| {
        let spec = spec.clone().with_seed(seed.wrapping_add(sketch));
        let features = features(&spec, &table);
        let (x, y) = features.split_at(spec.features);
        let field = spec.method.field();
        (estimate(field, x, y), estimate(field, x, x))
    });
    let (pairs, itself) = both.unzip();
    [pairs, itself]
}

fn rows(seed: u64) -> [Vec<f64>; 2] {
    [0, 1].map(|at| {
        let row = uniform(seed.wrapping_add(at), DIM, -0.3, 1.0);
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| x / norm).collect()
    })
}

/// The scores of means and variances that can be judged with so many sketches.
fn scores(spec: &Spec, seed: u64, count: usize, features: &(dyn Fn(&Spec, &[f64]) -> Vec<f64> + Sync)) -> Vec<f64> {
    let needed = Verification { spec: spec.clone(), sketches: count, pairs: vec![] };
    if count < 5 * needed.sketches_for_means() {
        return vec![];
    }
    let [x, y] = rows(seed);
    let mut scores = Vec::new();
    for ((x, y), estimates) in [(&x, &y), (&x, &x)].into_iter().zip(estimates(spec, seed, count, features)) {
        let truth = truth(spec, &[x], &[y]);
        let (real, imaginary): (Vec<f64>, Vec<f64>) = estimates.iter().copied().unzip();
        scores.push(score(&real, truth.mean));
        if spec.method.field() == Field::Complex {
            scores.push(score(&imaginary, 0.0));
        }
        if let Some(second) = truth.second.filter(|_| count >= 5 * needed.sketches_for_variances()) {
            let squares: Vec<f64> = estimates.iter().map(|(re, im)| (re - truth.mean).powi(2) + im * im).collect();
            scores.push(score(&squares, second.variance));
        }
    }
    scores
}

fn features(spec: &Spec, table: &[f64]) -> Vec<f64> {
    transform(&spec.sketch::<f64>().unwrap(), &[table.to_vec()])
}

/// With as many features as make its estimates about normal, up to 2048.
fn spec(method: Method, degree: usize, count: usize) -> Spec {
    let of = |features| Spec::polynomial(DIM).with_degree(degree).with_features(features).with_method(method);
    let enough = |features: &usize| {
        let needed = Verification { spec: of(*features), sketches: count, pairs: vec![] };
        count >= 5 * needed.sketches_for_means()
    };
    let features = [64, 128, 256, 512, 1024, 2048].into_iter().find(enough).unwrap_or(64);
    of(features).with_gamma(0.8).with_coef0(if degree.is_multiple_of(2) { 0.2 } else { 0.0 })
}

#[test]
#[ignore = "minutes: make test-slow"]
fn every_sketch_has_its_mean_and_variance_at_new_seeds() {
    let (seed, count) = (fresh(), sketches());
    eprintln!("seed {seed}, {count} sketches of each spec");
    let mut all = Vec::new();
    let (mut specs, mut unjudged) = (0, Vec::new());
    for method in methods() {
        for degree in [1, 2, 3, 4, 5, 6, 8, 10] {
            let spec = spec(method, degree, count);
            let scores = scores(&spec, seed, count, &features);
            specs += 1;
            if scores.is_empty() {
                unjudged.push(format!("{method} p = {degree}"));
            }
            all.extend(scores.into_iter().map(|z| (z, format!("{method} p = {degree} D = {}", spec.features))));
        }
    }
    let bound = z_bound(all.len(), LEVEL);
    all.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    eprintln!("{specs} specs, {} scores, bound {bound:.2}, worst {:?}", all.len(), &all[..3]);
    eprintln!("not judged, for want of sketches: {} specs: {}", unjudged.len(), unjudged.join(", "));
    let wrong: Vec<_> = all.iter().filter(|(z, _)| z.is_nan() || z.abs() > bound).collect();
    assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    assert!(all.len() > 2 * specs, "{} scores of {specs} specs", all.len());
}

/// A change to features, which makes them wrong.
type Mutant = (&'static str, fn(&Spec, &[f64]) -> Vec<f64>);

const MUTANTS: [Mutant; 5] = [
    ("scaled by 1.03", |spec, table| features(spec, table).iter().map(|z| 1.03 * z).collect()),
    ("the last feature is missing", |spec, table| {
        let mut all = features(spec, table);
        all.chunks_exact_mut(spec.features).for_each(|row| row[spec.features - 1] = 0.0);
        all
    }),
    ("every other feature repeated", |spec, table| {
        let mut all = features(spec, table);
        all.chunks_exact_mut(2).for_each(|pair| pair[1] = pair[0]);
        all
    }),
    ("the same seed for all", |spec, table| features(&spec.clone().with_seed(1), table)),
    ("the degree above", |spec, table| {
        features(&spec.clone().with_degree(spec.kernel.polynomial().unwrap().degree + 1), table)
    }),
];

/// At the same level mistakes are found, by as many sketches as see the sixteenth feature missing at eleven standard errors.
#[test]
#[ignore = "minutes: make test-slow"]
fn mutants_fail_at_new_seeds() {
    let (seed, count) = (fresh(), 20_000);
    eprintln!("seed {seed}, {count} sketches of each mutant");
    // As many scores as the whole family has.
    let bound = z_bound(4000, LEVEL);
    for base in Base::all() {
        for field in [Field::Real, Field::Complex, Field::ComplexToReal] {
            let spec = spec(Method::flat(base, field), 2, count).with_features(16);
            for (name, mutant) in MUTANTS {
                let scores = scores(&spec, seed, count, &mutant);
                let worst = scores.into_iter().fold(0.0, |worst: f64, z| worst.max(z.abs()));
                assert!(worst > bound, "seed {seed}: {} {name}: {worst}", spec.method);
            }
        }
    }
}
