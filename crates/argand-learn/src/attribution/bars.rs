//! Scores in double precision, their standard errors, and the ranks that are within these.

use argand::Error;
use rayon::prelude::*;

use super::selection::Selection;
use super::store::{Store, Terms};
use super::top::Best;
use super::{Measure, Queries, Ranked, SingleRows, inverse_norm};

/// The score of an example for a query, and its standard error: numbers of both at the places of a selection.
///
/// # Formula
/// Σ t_j and √(Σ_l m/(m−1) Σ_j (t_j − t̄)²) over the rows j of the projection of every layer l. For cosine, t_j is the linear part of
/// what row j contributes: uv/‖v‖ − c/2 (v²/‖v‖² + u²) with the unit vector u, the example v and their cosine c.
pub(super) fn estimate(
    selection: &Selection,
    query: &[f64],
    example: &[f64],
    measure: Measure,
    terms: &mut Vec<f64>,
) -> [f64; 2] {
    let score = contributions(selection, query, example, measure, terms);
    [score, variance(selection, terms).sqrt()]
}

/// The score, and in `terms` what every row of every projection contributes to it.
fn contributions(selection: &Selection, query: &[f64], example: &[f64], measure: Measure, terms: &mut Vec<f64>) -> f64 {
    let inner: f64 = query.iter().zip(example).map(|(one, other)| one * other).sum();
    let (factor, half) = match measure {
        Measure::Cosine => {
            let factor = inverse_norm(example.iter().copied());
            (factor, 0.5 * inner * factor)
        }
        _ => (1.0, 0.0),
    };
    let term = |place: usize| {
        let (u, v) = (query[place], factor * example[place]);
        u * v - half * (v * v + u * u)
    };
    terms.clear();
    for layer in &selection.layers {
        let (start, rows) = (layer.places.start, layer.rows());
        match layer.terms {
            Terms::Single => terms.extend(layer.places.clone().map(term)),
            Terms::Halves => terms.extend((0..rows).map(|j| term(start + j) + term(start + rows + j))),
            Terms::Neighbours => terms.extend((0..rows).map(|j| term(start + 2 * j) + term(start + 2 * j + 1))),
        }
    }
    inner * factor
}

/// The variance of a sum of such terms; not a number for a projection of a single row, of which nobody knows how much it varies.
fn variance(selection: &Selection, mut terms: &[f64]) -> f64 {
    let mut variance = 0.0;
    for layer in &selection.layers {
        let own;
        (own, terms) = terms.split_at(layer.rows());
        let rows = own.len() as f64;
        let mean = own.iter().sum::<f64>() / rows;
        variance += rows / (rows - 1.0) * own.iter().map(|term| (term - mean).powi(2)).sum::<f64>();
    }
    variance
}

/// The `top` best of the candidates for every query, helpful and harmful ones: their rows are read once more.
pub(super) fn rank(
    train: &Store,
    selection: &Selection,
    queries: &Queries,
    best: Vec<[Best; 2]>,
    top: usize,
    measure: Measure,
) -> Result<[Vec<Ranked>; 2], Error> {
    let mut wanted: Vec<(u64, usize, usize)> = Vec::new();
    for (query, lists) in best.into_iter().enumerate() {
        for (list, best) in lists.into_iter().enumerate() {
            wanted.extend(best.examples().map(|example| (example, query, list)));
        }
    }
    wanted.sort_unstable();
    let mut rest = &wanted[..];
    let mut of_shards = Vec::new();
    for shard in train.shards() {
        let some;
        (some, rest) = rest.split_at(rest.partition_point(|&(example, ..)| example < shard.end()));
        of_shards.push((shard, some));
    }
    let scored = of_shards.into_par_iter().filter(|(_, wanted)| !wanted.is_empty()).map(|(shard, wanted)| {
        let mut rows = SingleRows::open(shard, train.columns())?;
        let (mut numbers, mut terms, mut scored) = (Vec::new(), Vec::new(), Vec::with_capacity(wanted.len()));
        for same in wanted.chunk_by(|one, other| one.0 == other.0) {
            let example = same[0].0;
            numbers.clear();
            numbers.extend(selection.gather(rows.read(example)?).map(f64::from));
            for &(_, query, list) in same {
                let of_query = &queries.exact[query * selection.width..][..selection.width];
                let [score, standard_error] = estimate(selection, of_query, &numbers, measure, &mut terms);
                let ranked = Ranked { example, score, standard_error, rank_low: 0, rank_high: 0 };
                scored.push((query, list, ranked));
            }
        }
        Ok(scored)
    });
    let mut lists: Vec<[Vec<Ranked>; 2]> = (0..queries.count).map(|_| Default::default()).collect();
    for (query, list, ranked) in scored.collect::<Result<Vec<_>, Error>>()?.into_iter().flatten() {
        lists[query][list].push(ranked);
    }
    lists.par_iter_mut().enumerate().try_for_each(|(query, [helpful, harmful])| {
        let of_query = &queries.exact[query * selection.width..][..selection.width];
        for (list, sign) in [(helpful, -1.0), (harmful, 1.0)] {
            let key = |ranked: &Ranked| sign * ranked.score + 0.0;
            list.sort_by(|one, other| key(one).total_cmp(&key(other)).then(one.example.cmp(&other.example)));
            list.truncate(top);
            let terms = |ranked: &Ranked| terms_of(train, selection, of_query, ranked.example, measure);
            let terms = list.iter().map(terms).collect::<Result<Vec<_>, Error>>()?;
            compare(selection, list, &terms);
        }
        Ok::<(), Error>(())
    })?;
    let mut result = [Vec::new(), Vec::new()];
    for lists in lists {
        result.iter_mut().zip(lists).for_each(|(all, list)| all.extend(list));
    }
    Ok(result)
}

/// What the rows of the projections contribute to the score of one example.
fn terms_of(
    train: &Store,
    selection: &Selection,
    query: &[f64],
    example: u64,
    measure: Measure,
) -> Result<Vec<f64>, Error> {
    let shard = &train.shards()[train.shards().partition_point(|shard| shard.end() <= example)];
    let mut rows = SingleRows::open(shard, train.columns())?;
    let numbers: Vec<f64> = selection.gather(rows.read(example)?).map(f64::from).collect();
    let mut terms = Vec::new();
    contributions(selection, query, &numbers, measure, &mut terms);
    Ok(terms)
}

/// Which neighbouring ranks of a list are within the standard error of the difference, which the spread of the differences of terms tells: all
/// examples share their projections. Errors that are not known are no reason for a difference.
fn compare(selection: &Selection, list: &mut [Ranked], terms: &[Vec<f64>]) {
    for at in 0..list.len() {
        let within = |other: &usize| {
            let differences: Vec<f64> = terms[at].iter().zip(&terms[*other]).map(|(one, other)| one - other).collect();
            let error = variance(selection, &differences).sqrt();
            error.is_nan() || (list[at].score - list[*other].score).abs() <= error
        };
        let low = (0..at).rev().take_while(within).last().unwrap_or(at);
        let high = (at + 1..list.len()).take_while(within).last().unwrap_or(at);
        (list[at].rank_low, list[at].rank_high) = (low + 1, high + 1);
    }
}
