//! Scores beside their definition, and stores that grew.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them short")]

mod stores;

use std::fs;
use std::path::{Path, PathBuf};

use argand::{FeatureMap, Rows, RowsMut, Spec};
use serde_json::{Value, json};

use super::selection::Chosen;
use super::*;

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("argand-attribution-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn layer(name: &str, features: usize, spec: Option<Spec>) -> Value {
    let spec: Value = spec.map_or(Value::Null, |spec| serde_json::from_str(&spec.to_json()).unwrap());
    json!({"name": name, "kind": "linear", "inputs": 3, "outputs": 4, "features": features, "spec": spec})
}

fn spec(method: &str, features: usize, seed: u64) -> Spec {
    Spec::tensor_product(&[3, 4]).with_method(method.parse().unwrap()).with_features(features).with_seed(seed)
}

/// Three layers of 6, 4 and 3 numbers.
fn layers() -> Vec<Value> {
    vec![
        layer("a.fc1", 6, Some(spec("ctr-rademacher", 6, 1))),
        layer("a.fc2", 4, Some(spec("gaussian", 4, 2))),
        layer("b", 3, None),
    ]
}

fn describe(path: &Path, layers: &[Value]) {
    fs::create_dir_all(path).unwrap();
    let text = json!({"format": "argand-gradients", "version": 1, "shard_rows": 8, "model": "00ff", "layers": layers});
    fs::write(path.join("store.json"), text.to_string()).unwrap();
}

fn table(rows: &[f32], columns: usize) -> Vec<u8> {
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {columns}), }}", rows.len() / columns);
    let header = format!("{shape:<117}\n");
    let mut bytes =
        [&b"\x93NUMPY\x01\x00"[..], &u16::try_from(header.len()).unwrap().to_le_bytes(), header.as_bytes()].concat();
    rows.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

fn shard(path: &Path, first: u64, rows: &[f32], columns: usize) {
    shard_named(path, "", first, rows, columns);
}

/// A shard whose file names start with `before`.
fn shard_named(path: &Path, before: &str, first: u64, rows: &[f32], columns: usize) {
    let bytes = table(rows, columns);
    fs::write(path.join(format!("{before}shard-{first:012}.npy")), &bytes).unwrap();
    let crc = format!("{:08x}", crc32fast::hash(&bytes));
    let entry = json!({"first": first, "rows": rows.len() / columns, "crc32": crc});
    fs::write(path.join(format!("{before}shard-{first:012}.json")), entry.to_string()).unwrap();
}

fn remove(path: &Path, stem: &str) {
    ["npy", "json"].iter().for_each(|kind| fs::remove_file(path.join(format!("{stem}.{kind}"))).unwrap());
}

/// Numbers of no pattern, from -1 to 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

const COLUMNS: usize = 13;

/// 20 examples in shards of 8, 8 and 4 with a gap before the last, and 3 queries.
fn problem(name: &str) -> (Folder, Vec<f32>, Vec<f32>) {
    let (folder, rows, queries) = (Folder::new(name), numbers(20 * COLUMNS, 1), numbers(3 * COLUMNS, 2));
    describe(&folder.join("train"), &layers());
    for (first, range) in [(0, 0..8), (8, 8..16), (32, 16..20)] {
        shard(&folder.join("train"), first, &rows[range.start * COLUMNS..range.end * COLUMNS], COLUMNS);
    }
    describe(&folder.join("queries"), &layers());
    shard(&folder.join("queries"), 5, &queries, COLUMNS);
    (folder, rows, queries)
}

fn open(folder: &Folder) -> [Store; 2] {
    ["train", "queries"].map(|name| Store::open(folder.join(name)).unwrap())
}

fn run(folder: &Folder, top: usize, options: &Options) -> Result<Scores, Error> {
    let [train, queries] = ["train", "queries"].map(|name| Store::open(folder.join(name)));
    attribute(&train?, &queries?, top, options, &mut |_| ())
}

/// (G + λI)⁻¹ by Gauss and Jordan.
fn solve(rows: &[Vec<f64>], right: &[f64], damping: Damping) -> Vec<f64> {
    let dim = right.len();
    let mut matrix: Vec<Vec<f64>> =
        (0..dim).map(|i| (0..dim).map(|j| rows.iter().map(|row| row[i] * row[j]).sum()).collect()).collect();
    let trace: f64 = (0..dim).map(|i| matrix[i][i]).sum();
    let lambda = match damping {
        Damping::Lambda(lambda) => lambda,
        Damping::Multiple(multiple) => multiple * trace / dim as f64,
    };
    (0..dim).for_each(|i| {
        matrix[i][i] += lambda;
        matrix[i].push(right[i]);
    });
    for i in 0..dim {
        let pivot = matrix[i].clone();
        for (j, row) in matrix.iter_mut().enumerate() {
            let factor = if i == j { 1.0 - 1.0 / pivot[i] } else { row[i] / pivot[i] };
            row.iter_mut().zip(&pivot).for_each(|(number, pivot)| *number -= factor * pivot);
        }
    }
    matrix.iter().map(|row| row[dim]).collect()
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

/// The score of every example for every query, by definition, for these groups of columns.
fn oracle(rows: &[f32], queries: &[f32], groups: &[Range<usize>], options: &Options) -> Vec<f64> {
    let part = |row: &[f32], range: &Range<usize>| row[range.clone()].iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let rows: Vec<&[f32]> = rows.chunks(COLUMNS).collect();
    let mut scores = Vec::new();
    for query in queries.chunks(COLUMNS) {
        for row in &rows {
            let products = groups.iter().map(|range| {
                let all: Vec<Vec<f64>> = rows.iter().map(|row| part(row, range)).collect();
                let (query, row) = (part(query, range), part(row, range));
                match options.measure {
                    Measure::Influence => dot(&solve(&all, &query, options.damping), &row),
                    _ => dot(&query, &row),
                }
            });
            let sum: f64 = products.sum();
            let norm = |row: &[f32]| groups.iter().map(|g| dot(&part(row, g), &part(row, g))).sum::<f64>().sqrt();
            scores.push(if options.measure == Measure::Cosine { sum / norm(row) / norm(query) } else { sum });
        }
    }
    scores
}

#[test]
fn scores_are_the_defined_ones() {
    let (folder, rows, queries) = problem("oracle");
    let [a, b, c] = [0..6, 6..10, 10..13];
    let cases = [
        (Options::default(), vec![a.clone(), b.clone(), c.clone()]),
        (Options { joint: true, ..Options::default() }, vec![0..13]),
        (
            Options { damping: Damping::Lambda(0.3), layers: vec!["b".into(), "*1".into()], ..Options::default() },
            vec![a.clone(), c.clone()],
        ),
        (
            Options { measure: Measure::Similarity, layers: vec!["a.*".into()], ..Options::default() },
            vec![a.clone(), b.clone()],
        ),
        (
            Options { measure: Measure::Cosine, layers: vec!["a.fc1".into(), "b".into()], ..Options::default() },
            vec![a, c],
        ),
        (Options { measure: Measure::Cosine, ..Options::default() }, vec![0..13]),
    ];
    for (options, groups) in cases {
        let want = oracle(&rows, &queries, &groups, &options);
        let [train, query_store] = open(&folder);
        let (got, _) = score_matrix(&train, &query_store, &options, &mut |_| ()).unwrap();
        assert_eq!(got.len(), want.len());
        got.iter().zip(&want).for_each(|(got, want)| assert!((got - want).abs() < 1e-12, "{got} {want} {options:?}"));
        let scores = run(&folder, 4, &options).unwrap();
        assert_eq!((&scores.queries[..], scores.top), (&[5, 6, 7][..], 4));
        let examples: Vec<u64> = (0..16).chain(32..36).collect();
        for (query, want) in want.chunks(20).enumerate() {
            let mut order: Vec<usize> = (0..20).collect();
            order.sort_by(|&i, &j| want[j].total_cmp(&want[i]));
            for (list, order) in
                [(&scores.helpful, order.clone()), (&scores.harmful, order.iter().rev().copied().collect())]
            {
                for (rank, ranked) in list[4 * query..][..4].iter().enumerate() {
                    assert_eq!(ranked.example, examples[order[rank]], "{options:?}");
                    assert!((ranked.score - want[order[rank]]).abs() < 1e-12);
                    assert!(ranked.standard_error > 0.0);
                    assert!((1..=rank + 1).contains(&ranked.rank_low) && (rank + 1..=4).contains(&ranked.rank_high));
                }
            }
        }
    }
}

/// Similarity of one query and one example, by hand: a ctr layer has three pairs of columns.
#[test]
fn standard_errors_are_the_defined_ones() {
    let (folder, rows, queries) = problem("bars");
    let similarity = Options { measure: Measure::Similarity, ..Options::default() };
    let scores = run(&folder, 20, &similarity).unwrap();
    let spread = |terms: &[f64]| {
        let (m, mean) = (terms.len() as f64, terms.iter().sum::<f64>() / terms.len() as f64);
        m / (m - 1.0) * terms.iter().map(|t| (t - mean).powi(2)).sum::<f64>()
    };
    let query = &queries[COLUMNS..];
    let t: Vec<f64> = (0..COLUMNS).map(|j| f64::from(rows[3 * COLUMNS + j]) * f64::from(query[j])).collect();
    let want = (spread(&[t[0] + t[3], t[1] + t[4], t[2] + t[5]]) + spread(&t[6..10]) + spread(&t[10..])).sqrt();
    let second = &scores.helpful[20..40];
    let got = second.iter().find(|ranked| ranked.example == 3).unwrap();
    assert!((got.standard_error - want).abs() < 1e-12, "{got:?} {want}");
    // All examples share the projection: differences of terms tell how well two scores are told apart.
    let row = |example: u64| usize::try_from(if example < 16 { example } else { example - 16 }).unwrap() * COLUMNS;
    for (at, one) in second.iter().enumerate() {
        let near = |other: &&Ranked| {
            let [a, b] = [one, other].map(|ranked| row(ranked.example));
            let t: Vec<f64> =
                (0..COLUMNS).map(|j| (f64::from(rows[a + j]) - f64::from(rows[b + j])) * f64::from(query[j])).collect();
            let error = spread(&[t[0] + t[3], t[1] + t[4], t[2] + t[5]]) + spread(&t[6..10]) + spread(&t[10..]);
            (one.score - other.score).abs() <= error.sqrt()
        };
        let before = second[..at].iter().rev().take_while(near).count();
        let after = second[at + 1..].iter().take_while(near).count();
        assert_eq!((one.rank_low, one.rank_high), (at + 1 - before, at + 1 + after), "rank {at}");
    }
    // The cosine of an example with itself is 1 whatever the sketch.
    shard(&folder.join("queries"), 5, &rows[..3 * COLUMNS], COLUMNS);
    let cosine = Options { measure: Measure::Cosine, ..Options::default() };
    let first = run(&folder, 1, &cosine).unwrap().helpful[1];
    assert_eq!(first.example, 1);
    assert!((first.score - 1.0).abs() < 1e-12 && first.standard_error < 1e-8, "{first:?}");
}

/// What influence loses without one row of a projection, by leaving its columns out, for layers one by one and all together.
#[test]
fn standard_errors_of_influence_leave_rows_out() {
    let (folder, rows, queries) = problem("jackknife");
    // Real and imaginary parts of the first layer are three columns apart.
    let rows_of_layers: [Vec<Vec<usize>>; 3] = [
        (0..3).map(|j| vec![j, j + 3]).collect(),
        (6..10).map(|j| vec![j]).collect(),
        (10..13).map(|j| vec![j]).collect(),
    ];
    let damping = Damping::Lambda(0.3);
    let without = |table: &[f32], left_out: &[usize], group: &Range<usize>| -> Vec<Vec<f64>> {
        let kept: Vec<usize> = group.clone().filter(|column| !left_out.contains(column)).collect();
        table.chunks(COLUMNS).map(|row| kept.iter().map(|&column| f64::from(row[column])).collect()).collect()
    };
    for (joint, groups) in [(false, vec![0..6, 6..10, 10..13]), (true, vec![0..13])] {
        let options = Options { damping, joint, ..Options::default() };
        let scores = run(&folder, 20, &options).unwrap();
        let influence = |query: usize, example: usize, left_out: &[usize]| -> f64 {
            let of_group = |group: &Range<usize>| {
                let [all, queries] = [&rows, &queries].map(|table| without(table, left_out, group));
                dot(&solve(&all, &queries[query], damping), &all[example])
            };
            groups.iter().map(of_group).sum()
        };
        for (query, list) in scores.helpful.chunks(20).enumerate() {
            for ranked in list.iter().step_by(6) {
                let example = usize::try_from(if ranked.example < 16 { ranked.example } else { ranked.example - 16 });
                let example = example.unwrap();
                let whole = influence(query, example, &[]);
                assert!((ranked.score - whole).abs() < 1e-12);
                let variance: f64 = rows_of_layers
                    .iter()
                    .map(|rows| {
                        let lost: Vec<f64> = rows.iter().map(|row| whole - influence(query, example, row)).collect();
                        let (m, mean) = (lost.len() as f64, lost.iter().sum::<f64>() / lost.len() as f64);
                        m / (m - 1.0) * lost.iter().map(|t| (t - mean).powi(2)).sum::<f64>()
                    })
                    .sum();
                let got = ranked.standard_error;
                assert!((got - variance.sqrt()).abs() < 1e-9 * got, "{got} {} {joint}", variance.sqrt());
            }
        }
    }
}

/// Over seeds, influence spreads as its standard errors say, with many examples for each number and with few.
#[test]
fn standard_errors_of_influence_are_calibrated() {
    const SEEDS: u64 = 150;
    let (dims, folder) = ([12, 10], Folder::new("calibrated"));
    for (method, features, count) in [("rademacher", 192, 40), ("ctr-gaussian", 192, 40), ("ctr-rademacher", 192, 400)]
    {
        // Gradients with a few strong directions, as those of networks have.
        let factors = dims.map(|dim| {
            let numbers = numbers((count + 2) * dim, 20 + dim as u64);
            numbers.into_iter().enumerate().map(|(at, x)| x / (1 + at % dim) as f32).collect::<Vec<_>>()
        });
        let mut scores = vec![Vec::new(); 2 * count];
        let mut squares = vec![0.0; 2 * count];
        for seed in 0..SEEDS {
            let spec = Spec::tensor_product(&dims)
                .with_method(method.parse().unwrap())
                .with_features(features)
                .with_seed(seed);
            let sketch = spec.sketch::<f32>().unwrap();
            let tables = [0, 1].map(|i| Rows::new(&factors[i], count + 2, dims[i]).unwrap().into());
            let sketches = sketch.transform(&tables).unwrap();
            let (train, queries) = sketches.split_at(count * features);
            for (name, rows) in [("train", train), ("queries", queries)] {
                let _ = fs::remove_dir_all(folder.join(name));
                let mut layer = layer("a", features, Some(spec.clone()));
                (layer["inputs"], layer["outputs"]) = (json!(dims[0]), json!(dims[1]));
                describe(&folder.join(name), &[layer]);
                shard(&folder.join(name), 0, rows, features);
            }
            let found = run(&folder, count, &Options::default()).unwrap();
            assert!(found.notes.is_empty(), "{:?}", found.notes);
            for (query, list) in found.helpful.chunks(count).enumerate() {
                for ranked in list {
                    let at = query * count + usize::try_from(ranked.example).unwrap();
                    scores[at].push(ranked.score);
                    squares[at] += ranked.standard_error.powi(2) / SEEDS as f64;
                }
            }
        }
        let spread = |scores: &[f64]| {
            let mean = scores.iter().sum::<f64>() / SEEDS as f64;
            scores.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / (SEEDS - 1) as f64
        };
        let mut ratios: Vec<f64> =
            scores.iter().zip(&squares).map(|(scores, square)| (square / spread(scores)).sqrt()).collect();
        ratios.sort_by(f64::total_cmp);
        let [low, median, high] = [1, 5, 9].map(|tenth| ratios[tenth * ratios.len() / 10]);
        println!(
            "{method}, {features} features, {count} examples: reported over actual error {low:.2} {median:.2} {high:.2}"
        );
        // The jackknife is not below the variance (Efron and Stein 1981), and the less above it the more rows there are; an actual error is known to six per cent.
        assert!(low > 0.9 && (0.97..1.2).contains(&median) && high < 1.3, "{method}: {low} {median} {high}");
    }
}

#[test]
fn threads_make_no_difference() {
    let folder = Folder::new("threads");
    let (columns, rows) = (70, numbers(3000 * 70, 3));
    for (name, shards) in [("train", vec![0..2500, 2500..3000]), ("queries", vec![7..40])] {
        describe(&folder.join(name), &[layer("a", 40, None), layer("b", 30, None)]);
        for range in shards {
            shard(&folder.join(name), range.start as u64, &rows[range.start * columns..range.end * columns], columns);
        }
    }
    for measure in Measure::ALL {
        let options = Options { measure, ..Options::default() };
        let on = |threads| {
            for entry in fs::read_dir(folder.join("train")).unwrap().map(Result::unwrap) {
                if entry.file_name().to_str().unwrap().ends_with(".sums") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&folder, 9, &options).unwrap())
        };
        let one = on(1);
        assert!(one.notes.is_empty(), "{:?}", one.notes);
        assert_eq!(one, on(2));
        assert_eq!(one, on(3));
        // Queries are examples, too: each is the most similar to itself.
        if measure == Measure::Cosine {
            assert!(one.helpful.chunks(9).zip(7..).all(|(list, query)| list[0].example == query));
        }
    }
}

#[test]
fn equal_scores_are_in_the_order_of_examples() {
    let folder = Folder::new("ties");
    let row = numbers(COLUMNS, 4);
    for (name, count) in [("train", 200), ("queries", 1)] {
        describe(&folder.join(name), &layers());
        shard(&folder.join(name), 0, &row.repeat(count), COLUMNS);
    }
    for measure in Measure::ALL {
        let scores = run(&folder, 5, &Options { measure, ..Options::default() }).unwrap();
        for list in [&scores.helpful, &scores.harmful] {
            assert_eq!(list.iter().map(|ranked| ranked.example).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
            assert!(list.iter().all(|ranked| (ranked.rank_low, ranked.rank_high) == (1, 5)));
        }
    }
}

/// With fewer examples than numbers and next to no damping, (G + λI)⁻¹φ' is nearly all in directions that no example has: rounding in single precision is larger
/// than the scores.
#[test]
fn rounding_hides_no_example() {
    let (folder, columns, count) = (Folder::new("rounding"), 96, 60);
    let layers = [layer("one", columns, None)];
    describe(&folder.join("train"), &layers);
    shard(&folder.join("train"), 0, &numbers(count * columns, 3), columns);
    describe(&folder.join("queries"), &layers);
    shard(&folder.join("queries"), 0, &numbers(4 * columns, 4), columns);
    let options = Options { damping: Damping::Multiple(1e-9), ..Options::default() };
    let scores = run(&folder, 5, &options).unwrap();
    let [train, queries] = open(&folder);
    let (all, _) = score_matrix(&train, &queries, &options, &mut |_| ()).unwrap();
    for (query, all) in all.chunks_exact(count).enumerate() {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&one, &other| all[other].total_cmp(&all[one]));
        let of = |list: &[Ranked]| -> Vec<usize> {
            list[5 * query..][..5].iter().map(|ranked| usize::try_from(ranked.example).unwrap()).collect()
        };
        assert_eq!(of(&scores.helpful), order[..5], "query {query}");
        let harmful: Vec<usize> = order.iter().rev().take(5).copied().collect();
        assert_eq!(of(&scores.harmful), harmful, "query {query}");
    }
}

/// The files of sums in a folder, and their bytes.
fn sums(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sums"));
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn sums_are_kept_and_grow_with_the_store() {
    let (folder, rows, queries) = problem("sums");
    let train = folder.join("train");
    let summed = |folder: &Folder| {
        let mut examples = 0;
        let [train, queries] = open(folder);
        let mut count = |progress: Progress| {
            if progress.stage == Stage::Summing {
                examples = progress.done;
            }
        };
        let scores = attribute(&train, &queries, 3, &Options::default(), &mut count).unwrap();
        (examples, scores)
    };
    let (examples, first) = summed(&folder);
    assert_eq!((examples, sums(&train).len()), (20, 3));
    assert_eq!(summed(&folder), (0, first.clone()));
    // A grown store: only what is new is read, and the bytes are those of all at once.
    let more = numbers(6 * COLUMNS, 9);
    shard(&train, 36, &more, COLUMNS);
    let (examples, grown) = summed(&folder);
    assert_eq!(examples, 6);
    let bytes = sums(&train);
    bytes.iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    assert_eq!(summed(&folder), (26, grown.clone()));
    assert_eq!(sums(&train), bytes);
    let want = oracle(&[&rows[..], &more].concat(), &queries, &[0..6, 6..10, 10..13], &Options::default());
    let best = want[..26].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    assert!((grown.helpful[0].score - best).abs() < 1e-12);
    // A changed shard, a removed one, and damaged sums make them new.
    shard(&train, 8, &numbers(8 * COLUMNS, 10), COLUMNS);
    assert_eq!(summed(&folder).0, 26);
    remove(&train, "shard-000000000008");
    assert_eq!(summed(&folder).0, 18);
    let (path, mut bytes) = sums(&train).swap_remove(1);
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
    assert_eq!(summed(&folder).0, 18);
    let (examples, kept) = summed(&folder);
    assert_eq!(examples, 0);
    // Sums that cannot be kept are a note, and nothing is left of them.
    let (path, _) = sums(&train).swap_remove(0);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let (examples, scores) = summed(&folder);
    assert_eq!((examples, &scores.helpful), (18, &kept.helpful));
    assert!(matches!(&scores.notes[..], [note] if note.contains("cannot keep the sums")), "{:?}", scores.notes);
    let left = |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".unfinished");
    assert!(!fs::read_dir(&train).unwrap().map(Result::unwrap).any(left));
}

/// Over seeds, estimates of <A, B> for sums of outer products spread as the mean of the reported squared errors says, if rows are
/// independent: both are compared by the standard error of their difference. Rows of an SRHT are drawn without replacement, and
/// spread no more than that.
#[test]
fn standard_errors_are_calibrated() {
    const SEEDS: u64 = 2000;
    let (terms, dims, features) = (3, [6, 5], 32);
    let factors: Vec<Vec<f64>> = [(0, 11), (1, 12), (0, 13), (1, 14)]
        .map(|(which, seed)| numbers(terms * dims[which], seed).into_iter().map(f64::from).collect())
        .into();
    let matrix = |at: usize| {
        let entry =
            |i: usize, j: usize| (0..terms).map(|t| factors[at][t * 6 + i] * factors[at + 1][t * 5 + j]).sum::<f64>();
        (0..6).flat_map(|i| (0..5).map(move |j| (i, j))).map(|(i, j)| entry(i, j)).collect::<Vec<_>>()
    };
    let exact = dot(&matrix(0), &matrix(2));
    for method in ["rademacher", "gaussian", "ctr-rademacher", "ctr-gaussian", "product-srht", "ctr-product-srht"] {
        let (mut estimates, mut squares) = (Vec::new(), Vec::new());
        for seed in 0..SEEDS {
            let spec = Spec::tensor_product(&dims)
                .with_method(method.parse().unwrap())
                .with_features(features)
                .with_seed(seed);
            let sketch = spec.sketch::<f64>().unwrap();
            let pooled = |at: usize| {
                let mut out = vec![0.0; terms * features];
                let tables = [0, 1].map(|i| Rows::new(&factors[at + i], terms, dims[i]).unwrap().into());
                sketch.transform_into(&tables, RowsMut::new(&mut out, terms, features).unwrap()).unwrap();
                (0..features).map(|j| out.iter().skip(j).step_by(features).sum()).collect::<Vec<f64>>()
            };
            let place = 0..features;
            let layer = Layer {
                name: String::new(),
                kind: String::new(),
                inputs: 6,
                outputs: 5,
                columns: place.clone(),
                spec: Some(spec),
            };
            let (name, train, query, places) = (String::new(), place.clone(), place.clone(), place);
            let chosen = Chosen { name, train, query, places, terms: layer.terms() };
            let selection = Selection { layers: vec![chosen], width: features };
            let (query, example) = (pooled(0), pooled(2));
            estimates.push(dot(&query, &example));
            let contributions = bars::contributions(&selection, &query, &example, Measure::Similarity);
            squares.push(bars::variance(&selection, &contributions));
        }
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / SEEDS as f64;
        let spread = |numbers: &[f64]| {
            let centre = mean(numbers);
            mean(&numbers.iter().map(|number| (number - centre).powi(2)).collect::<Vec<_>>())
        };
        let error_of_mean = (spread(&estimates) / SEEDS as f64).sqrt();
        assert!((mean(&estimates) - exact).abs() < 4.0 * error_of_mean, "{method}: {} {exact}", mean(&estimates));
        // For every seed, what its estimate says of the variance less what it reports.
        let differences: Vec<f64> =
            estimates.iter().zip(&squares).map(|(estimate, square)| (estimate - exact).powi(2) - square).collect();
        let z = mean(&differences) / (spread(&differences) / SEEDS as f64).sqrt();
        let ratio = (mean(&squares) / spread(&estimates)).sqrt();
        println!("{method}: reported over actual error {ratio:.3}, z = {z:.2}");
        assert!(z < 4.0 && (z > -4.0 || method.contains("srht")), "{method}: z = {z}, ratio {ratio}");
        // Here m is several times the dimensions, and samples are far from independent.
        assert!(ratio < if method.contains("srht") { 2.0 } else { 1.1 }, "{method}: {ratio}");
    }
}
