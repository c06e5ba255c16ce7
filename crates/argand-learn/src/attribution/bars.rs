//! Scores in double precision, their standard errors, and the ranks that are within these.

use std::collections::BTreeMap;

use argand::Error;
use rayon::prelude::*;

use super::curvature::Curvature;
use super::selection::Selection;
use super::store::Store;
use super::top::Best;
use super::{Measure, Queries, Ranked, SingleRows, blocks, inverse_norm};

/// The score of an example for a query: numbers of both at the places of a selection.
fn score(query: &[f64], example: &[f64], measure: Measure) -> f64 {
    let inner: f64 = query.iter().zip(example).map(|(one, other)| one * other).sum();
    if measure == Measure::Cosine { inner * inverse_norm(example.iter().copied()) } else { inner }
}

/// What every row j of every projection contributes to a score: by how much it changes if the row is left out, to first order in 1/m.
///
/// # Formula
/// For similarity uv, with the numbers u of the query and v of the example in row j, or the sum of two such products. For cosine the linear part,
/// uv/‖v‖ − c/2 (v²/‖v‖² + u²) with the unit vector u and the cosine c. For influence uᵀB⁻¹v, where u and v are those of (G + λI)⁻¹φ' and
/// (G + λI)⁻¹φ, and B the rows and columns of (G + λI)⁻¹ at their places: the influence without row j is smaller by just that, since
/// φ'ᵀA⁻¹φ loses that term when rows and columns are taken out of A and both vectors. The caller hands over B⁻¹u ([`Curvature::leave_out`]).
pub(super) fn contributions(selection: &Selection, query: &[f64], example: &[f64], measure: Measure) -> Vec<f64> {
    let (factor, half) = match measure {
        Measure::Cosine => (inverse_norm(example.iter().copied()), 0.5 * score(query, example, measure)),
        _ => (1.0, 0.0),
    };
    let term = |place: usize| {
        let (u, v) = (query[place], factor * example[place]);
        u * v - half * (v * v + u * u)
    };
    let rows = selection.layers.iter().flat_map(|layer| (0..layer.rows()).map(|row| layer.places_of(row)));
    rows.map(|(one, other)| term(one) + other.map_or(0.0, term)).collect()
}

/// The variance of a score with such contributions t: Σ_l m/(m−1) Σ_j (t_j − t̄)² over the layers, each with m rows of its own; not a number for a
/// projection of a single row, of which nobody knows how much it varies.
pub(super) fn variance(selection: &Selection, mut contributions: &[f64]) -> f64 {
    let mut variance = 0.0;
    for layer in &selection.layers {
        let own;
        (own, contributions) = contributions.split_at(layer.rows());
        let rows = own.len() as f64;
        let mean = own.iter().sum::<f64>() / rows;
        variance += rows / (rows - 1.0) * own.iter().map(|term| (term - mean).powi(2)).sum::<f64>();
    }
    variance
}

/// The most helpful and the most harmful examples of every query.
type Lists = Vec<[Vec<Ranked>; 2]>;

/// The lists of all queries, helpful and harmful ones, with standard errors and the ranks that are within them.
pub(super) fn rank(
    train: &Store,
    selection: &Selection,
    queries: &Queries,
    mut lists: Lists,
    measure: Measure,
    curvature: &mut Curvature<'_>,
) -> Result<[Vec<Ranked>; 2], Error> {
    let width = selection.width;
    let top = lists.first().map_or(0, |lists| lists[0].len());
    let together = blocks::compared_together(width, top);
    for (lists, numbers) in lists.chunks_mut(together).zip(queries.exact.chunks(together * width)) {
        let mut examples: Vec<u64> = lists.iter().flatten().flatten().map(|ranked| ranked.example).collect();
        examples.sort_unstable();
        examples.dedup();
        let mut rows = read(train, selection, &examples)?;
        let mut weights = numbers.to_vec();
        if measure == Measure::Influence {
            curvature.leave_out(&mut weights, &mut rows)?;
        }
        lists.par_iter_mut().zip(weights.par_chunks(width)).for_each(|(lists, query)| {
            for list in lists {
                let of = |ranked: &Ranked| {
                    // Every one of them was read.
                    let place = examples.binary_search(&ranked.example).unwrap_or_else(|place| place);
                    contributions(selection, query, &rows[place * width..][..width], measure)
                };
                let contributions: Vec<Vec<f64>> = list.iter().map(of).collect();
                compare(selection, list, &contributions);
            }
        });
    }
    let mut result = [Vec::new(), Vec::new()];
    for lists in lists {
        result.iter_mut().zip(lists).for_each(|(all, list)| all.extend(list));
    }
    Ok(result)
}

/// The candidates with their scores, the best first, without those beyond `top`; and whether these are the best of all examples. They are if the last of
/// them is better than the last candidate by four times the largest rounding error of a candidate: no other example can be as good.
pub(super) fn best_of(
    train: &Store,
    selection: &Selection,
    queries: &Queries,
    best: Vec<[Best; 2]>,
    top: usize,
    measure: Measure,
) -> Result<(Lists, bool), Error> {
    let mut wanted: Vec<(u64, usize, usize)> = Vec::new();
    let mut rounded = BTreeMap::new();
    for (query, lists) in best.into_iter().enumerate() {
        for (list, best) in lists.into_iter().enumerate() {
            for (score, example) in best.entries() {
                wanted.push((example, query, list));
                rounded.insert((query, list, example), score);
            }
        }
    }
    wanted.sort_unstable();
    let scored = for_each_shard(
        train,
        &wanted,
        |(example, ..)| *example,
        |rows, wanted| {
            let (mut numbers, mut scored) = (Vec::new(), Vec::with_capacity(wanted.len()));
            for same in wanted.chunk_by(|one, other| one.0 == other.0) {
                let example = same[0].0;
                numbers.clear();
                numbers.extend(selection.gather(rows.read(example)?).map(f64::from));
                for &(_, query, list) in same {
                    let of_query = &queries.exact[query * selection.width..][..selection.width];
                    let score = score(of_query, &numbers, measure);
                    scored.push((
                        query,
                        list,
                        Ranked { example, score, standard_error: 0.0, rank_low: 0, rank_high: 0 },
                    ));
                }
            }
            Ok(scored)
        },
    )?;
    let mut lists: Lists = (0..queries.count).map(|_| Default::default()).collect();
    for (query, list, ranked) in scored {
        lists[query][list].push(ranked);
    }
    let (mut sure, all) = (true, train.examples());
    for (query, lists) in lists.iter_mut().enumerate() {
        for ((number, list), sign) in lists.iter_mut().enumerate().zip([1.0, -1.0]) {
            // Harmful examples are the best of the opposite scores, as `top::take` has them.
            let key = |ranked: &Ranked| sign * ranked.score + 0.0;
            list.sort_by(|one, other| key(other).total_cmp(&key(one)).then(one.example.cmp(&other.example)));
            let found = |ranked: &Ranked| rounded[&(query, number, ranked.example)];
            let error = list.iter().map(|ranked| (found(ranked) - key(ranked)).abs()).fold(0.0, f64::max);
            let least = list.iter().map(found).fold(f64::INFINITY, f64::min);
            let complete = list.len() as u64 == all;
            list.truncate(top);
            sure &= complete || list.last().is_some_and(|last| key(last) >= least + 4.0 * error);
        }
    }
    Ok((lists, sure))
}

/// The numbers of some examples at the places of a selection, row by row.
fn read(train: &Store, selection: &Selection, examples: &[u64]) -> Result<Vec<f64>, Error> {
    for_each_shard(
        train,
        examples,
        |example| *example,
        |rows, examples| {
            let mut numbers = Vec::with_capacity(examples.len() * selection.width);
            for &example in examples {
                numbers.extend(selection.gather(rows.read(example)?).map(f64::from));
            }
            Ok(numbers)
        },
    )
}

/// Hands every shard those of `wanted`, which are in the order of their examples, that are in it, and puts the results one after the other.
fn for_each_shard<W: Sync, R: Send>(
    train: &Store,
    wanted: &[W],
    example: impl Fn(&W) -> u64,
    work: impl Fn(&mut SingleRows<'_>, &[W]) -> Result<Vec<R>, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let mut rest = wanted;
    let mut of_shards = Vec::new();
    for shard in train.shards() {
        let some;
        (some, rest) = rest.split_at(rest.partition_point(|wanted| example(wanted) < shard.end()));
        if !some.is_empty() {
            of_shards.push((shard, some));
        }
    }
    let results = of_shards
        .into_par_iter()
        .map(|(shard, wanted)| work(&mut SingleRows::open(shard, train.columns())?, wanted))
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(results.into_iter().flatten().collect())
}

/// Standard errors, and which neighbouring ranks of a list are within that of the difference. The spread of the differences of contributions tells: all
/// examples share their projections. Errors that are not known are no reason for a difference.
fn compare(selection: &Selection, list: &mut [Ranked], contributions: &[Vec<f64>]) {
    for at in 0..list.len() {
        let within = |other: &usize| {
            let differences: Vec<f64> =
                contributions[at].iter().zip(&contributions[*other]).map(|(one, other)| one - other).collect();
            let error = variance(selection, &differences).sqrt();
            error.is_nan() || (list[at].score - list[*other].score).abs() <= error
        };
        let low = (0..at).rev().take_while(within).last().unwrap_or(at);
        let high = (at + 1..list.len()).take_while(within).last().unwrap_or(at);
        (list[at].rank_low, list[at].rank_high) = (low + 1, high + 1);
        list[at].standard_error = variance(selection, &contributions[at]).sqrt();
    }
}
