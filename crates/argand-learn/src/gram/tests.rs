//! Sums against their definition, in parts, across threads and files.

use super::*;
use argand::Spec;
use argand::rng::{Purpose, Stream};

/// Random features and classes; the recipe is only a name for them.
pub(crate) fn problem(rows: usize, dim: usize, classes: u32) -> (Recipe, Vec<f32>, Vec<u32>) {
    let mut stream = Stream::new(9, Purpose::Sample, 3, 0);
    #[allow(clippy::cast_possible_truncation, reason = "rounding is meant")]
    let features = (0..rows * dim).map(|_| stream.uniform() as f32 - 0.3).collect();
    let labels = (0..).map(|row| if row < 2 * classes { row % classes } else { stream.below(classes) });
    (Recipe::from(Spec::polynomial(3).with_degree(2).with_features(dim)), features, labels.take(rows).collect())
}

fn one_hot(labels: &[u32], classes: usize) -> Vec<f64> {
    labels
        .iter()
        .flat_map(|&label| (0..classes).map(move |class| f64::from(u8::from(class == label as usize))))
        .collect()
}

/// Sums by their definition.
fn naive(features: &[f32], targets: &[f64], dim: usize, columns: usize) -> [Vec<f64>; 3] {
    let rows = features.len() / dim;
    let phi = |row: usize, i: usize| f64::from(features[row * dim + i]);
    let products = (0..dim * dim).map(|at| (0..rows).map(|row| phi(row, at / dim) * phi(row, at % dim)).sum());
    let moments =
        (0..columns * dim).map(|at| (0..rows).map(|row| phi(row, at % dim) * targets[row * columns + at / dim]).sum());
    let sums = (0..dim).map(|i| (0..rows).map(|row| phi(row, i)).sum());
    [products.collect(), moments.collect(), sums.collect()]
}

fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    let size = want.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= tolerance * size, "{got} {want}");
    }
}

/// Sizes around those of strips, tiles and chunks.
#[test]
fn sums_are_those_of_the_definition() {
    for (rows, dim) in [(1, 2), (37, 14), (4099, 66), (600, 258), (17, 514)] {
        let (recipe, features, labels) = problem(rows, dim, 3);
        let table = Rows::new(&features, rows, dim).unwrap();
        let mut hot = one_hot(&labels, 3);
        for targets in [Targets::Classes(3), Targets::ClassesApart(3), Targets::Values(3)] {
            let mut gram = Gram::new(&recipe, targets).unwrap();
            let labels = if let Targets::Values(_) = targets {
                hot.iter_mut().enumerate().for_each(|(at, value)| *value += (at % 5) as f64);
                Labels::Values(Rows::new(&hot, rows, 3).unwrap())
            } else {
                Labels::Classes(&labels)
            };
            gram.update(table, labels).unwrap();
            let [products, moments, sums] = naive(&features, &hot, dim, 3);
            assert_close(&gram.products(), &products, 1e-12);
            let got: Vec<f64> = (0..3).flat_map(|column| gram.moments(column)).collect();
            assert_close(&got, &moments, 1e-12);
            assert_close(&gram.feature_sums(), &sums, 1e-12);
            for column in 0..3 {
                let sum = (0..rows).map(|row| hot[row * 3 + column]).sum::<f64>();
                let spread = (0..rows).map(|row| (hot[row * 3 + column] - sum / rows as f64).powi(2)).sum::<f64>();
                assert_close(&[gram.target_sums()[column], gram.target_spreads()[column]], &[sum, spread], 1e-12);
            }
            let matrix = gram.total().combine(2.0, Some((-1.0, gram.total())), 1.0);
            for (i, j) in [(0, 0), (dim - 1, 0), (dim - 1, dim - 1)] {
                let want = products[i * dim + j] + f64::from(u8::from(i == j));
                assert!((matrix[(i, j)] - want).abs() < 1e-5 * want.abs().max(1.0));
            }
            assert_eq!(Gram::from_bytes(&gram.to_bytes()).unwrap(), gram);
        }
    }
}

#[test]
fn parts_add_up_to_the_whole() {
    let (recipe, features, labels) = problem(500, 30, 4);
    for targets in [Targets::Classes(4), Targets::ClassesApart(4)] {
        let of = |rows: std::ops::Range<usize>| {
            let mut gram = Gram::new(&recipe, targets).unwrap();
            let part = Rows::new(&features[rows.start * 30..rows.end * 30], rows.len(), 30).unwrap();
            gram.update(part, Labels::Classes(&labels[rows])).unwrap();
            gram
        };
        let (whole, mut sum) = (of(0..500), of(0..123));
        sum.merge(&of(123..500)).unwrap();
        assert_eq!(sum.rows(), 500);
        assert_eq!(sum.target_sums(), whole.target_sums());
        assert_close(&sum.products(), &whole.products(), 1e-12);
        let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(threads.install(|| of(0..500)), whole, "one thread and several");
    }
}

impl Gram {
    /// The same sums without kept rows.
    pub(crate) fn folded(&self) -> Self {
        let mut folded = self.clone();
        let sums = (0..self.products.len()).map(|class| Products::Sums(self.of_class(class).into_owned()));
        folded.products = sums.collect();
        folded
    }
}

/// Whichever of both memories the sum is in: rows with rows, rows with sums, sums with rows and sums with sums.
#[test]
fn merging_after_has_the_bits_of_merging() {
    let (recipe, features, labels) = problem(500, 66, 6);
    for targets in [Targets::Classes(6), Targets::ClassesApart(6)] {
        let of = |rows: std::ops::Range<usize>| {
            let mut gram = Gram::new(&recipe, targets).unwrap();
            let part = Rows::new(&features[rows.start * 66..rows.end * 66], rows.len(), 66).unwrap();
            gram.update(part, Labels::Classes(&labels[rows])).unwrap();
            gram
        };
        for [start, cut, end] in [[0, 20, 40], [0, 20, 80], [0, 20, 500], [0, 480, 500], [0, 250, 500]] {
            let (mut first, mut second) = (of(start..cut), of(cut..end));
            second.merge_after(&first).unwrap();
            first.merge(&of(cut..end)).unwrap();
            assert!(second == first, "{targets:?} {cut} {end}");
        }
    }
}

/// Classes of 3 to 36 rows, of which those up to 24 are kept, in one piece, in blocks and in parts that are merged.
/// Parts of as many rows as are summed up at a time give the same bits as all rows at once, in memory that is used again.
#[test]
fn parts_in_one_workspace_have_the_bits_of_the_whole() {
    for (rows, dim) in [(5000, 66), (3000, 14), (2500, 1300)] {
        let (recipe, features, labels) = problem(rows, dim, 3);
        for step in [crate::blocks::SUMMED_ROWS, 2 * crate::blocks::SUMMED_ROWS] {
            let [mut whole, mut parts] = [(); 2].map(|()| Gram::new(&recipe, Targets::Classes(3)).unwrap());
            whole.update(Rows::new(&features, rows, dim).unwrap(), Labels::Classes(&labels)).unwrap();
            let mut workspace = Workspace::default();
            for (features, labels) in features.chunks(step * dim).zip(labels.chunks(step)) {
                let table = Rows::new(features, labels.len(), dim).unwrap();
                parts.update_with(table, Labels::Classes(labels), &mut workspace).unwrap();
            }
            assert!(parts == whole, "{rows} rows, {dim} features, {step} at a time");
        }
    }
}

#[test]
fn kept_rows_stand_for_their_products() {
    let (dim, classes, rows) = (66, 6, 100);
    let (recipe, features, _) = problem(rows, dim, 6);
    let ends = [3, 8, 20, 39, 64, 100];
    let label = |row: usize| ends.iter().position(|&end| row * 37 % rows < end).unwrap();
    let labels: Vec<u32> = (0..rows).map(|row| u32::try_from(label(row)).unwrap()).collect();
    let of = |cuts: &[usize]| {
        let mut gram = Gram::new(&recipe, Targets::ClassesApart(classes)).unwrap();
        for cut in cuts.windows(2) {
            let part = Rows::new(&features[cut[0] * dim..cut[1] * dim], cut[1] - cut[0], dim).unwrap();
            gram.update(part, Labels::Classes(&labels[cut[0]..cut[1]])).unwrap();
        }
        gram
    };
    let kept = |gram: &Gram| (0..classes).map(|class| gram.kept(class).is_some()).collect::<Vec<_>>();
    let whole = of(&[0, rows]);
    assert_eq!(kept(&whole), [true, true, true, true, false, false]);
    let mut grams = vec![of(&[0, 1, 50, 51, rows])];
    // Rows with rows, sums with rows and rows with sums.
    for cut in [50, 90, 10] {
        let mut parts = [of(&[0, cut]), of(&[cut, rows])];
        let [first, second] = &mut parts;
        assert_ne!(first.total().values, second.total().values);
        first.merge(second).unwrap();
        grams.push(first.clone());
    }
    grams.push(Gram::from_bytes(&whole.to_bytes()).unwrap());
    assert_eq!(grams[4], whole);
    grams.push(Gram::from_bytes(&whole.folded().to_bytes()).unwrap());
    grams.push(whole);
    let hot = one_hot(&labels, classes);
    let [products, moments, _] = naive(&features, &hot, dim, classes);
    for gram in &grams[..] {
        assert_close(&gram.products(), &products, 1e-12);
        let got: Vec<f64> = (0..classes).flat_map(|class| gram.moments(class)).collect();
        assert_close(&got, &moments, 1e-12);
        for class in 0..classes {
            let own = (0..rows).filter(|&row| labels[row] as usize == class);
            let own: Vec<f32> = own.flat_map(|row| &features[row * dim..][..dim]).copied().collect();
            let [products, ..] = naive(&own, &[], dim, 0);
            let sums = gram.of_class(class);
            let got: Vec<f64> =
                (0..dim * dim).map(|at| (at / dim, at % dim)).map(|(i, j)| sums.row(i.max(j))[i.min(j)]).collect();
            assert_close(&got, &products, 1e-12);
        }
    }
    assert_eq!(kept(&grams[1]), kept(&grams[6]));
    assert_eq!(kept(&grams[5]), [false; 6]);
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    threads.install(|| {
        let same = of(&[0, rows]);
        assert_eq!((&same, same.total()), (&grams[6], grams[6].total()), "one thread and several");
    });
    // New rows count, whatever was asked before.
    let before = grams[6].total().clone();
    let mut more = grams[6].clone();
    more.update(Rows::new(&features[..dim], 1, dim).unwrap(), Labels::Classes(&[0])).unwrap();
    assert!(more.total().row(0)[0] > before.row(0)[0]);
}

#[test]
fn kept_rows_of_other_numbers_are_errors() {
    let (recipe, features, labels) = problem(40, 60, 5);
    let mut gram = Gram::new(&recipe, Targets::ClassesApart(5)).unwrap();
    gram.update(Rows::new(&features, 40, 60).unwrap(), Labels::Classes(&labels)).unwrap();
    let rows = gram.kept(0).unwrap().to_vec();
    assert_eq!(Gram::from_archive(gram.to_archive()).unwrap(), gram);
    let counts: Vec<_> = (0..5).map(|class| gram.kept(class).map(|kept| kept.len() / 60)).collect();
    let of = |targets: Targets, kept: Vec<Option<usize>>, rows: Vec<f32>| {
        let header = Header { recipe: recipe.clone(), targets, rows: 40, kept };
        let archive = Archive::new(SUMS, &header).with_f64("products", Vec::new()).with_f32("rows", rows);
        Gram::from_archive(archive).unwrap_err().to_string()
    };
    let with = |kept, rows| of(gram.targets, kept, rows);
    let more = |class: usize, count: usize| {
        let mut counts = counts.clone();
        counts[class] = Some(count);
        counts
    };
    assert!(with(counts[1..].to_vec(), rows.clone()).contains("4 groups, not of 5"));
    assert!(with(counts.clone(), rows.clone()).contains("\"rows\" has"));
    assert!(with(more(0, usize::MAX), rows.clone()).contains("any memory"));
    assert!(with(more(0, usize::MAX / 60), rows.clone()).contains("any memory"));
    assert!(of(Targets::Classes(5), vec![Some(1)], vec![0.0; 60]).contains("1 rows, not 40"));
    assert!(with(vec![None; 5], Vec::new()).contains("\"products\" has 0 numbers"));
    assert!(with(Vec::new(), Vec::new()).contains("\"products\" has 0 numbers, not 9150"));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (recipe, features, labels) = problem(10, 6, 3);
    let table = Rows::new(&features, 10, 6).unwrap();
    let mut gram = Gram::new(&recipe, Targets::Classes(3)).unwrap();
    gram.update(table, Labels::Classes(&labels)).unwrap();
    let before = gram.clone();
    let mut other = labels.clone();
    other[7] = 3;
    let message = gram.update(table, Labels::Classes(&other)).unwrap_err().to_string();
    assert!(message.contains("classes below 3, got 3 in row 7"), "{message}");
    assert!(gram.update(table, Labels::Classes(&labels[1..])).unwrap_err().to_string().contains("10 rows"));
    let numbers = [0.0; 30];
    let values = Labels::Values(Rows::new(&numbers, 10, 3).unwrap());
    assert!(gram.update(table, values).unwrap_err().to_string().contains("classes"));
    let narrow = Rows::new(&features[..50], 10, 5).unwrap();
    assert!(gram.update(narrow, Labels::Classes(&labels)).unwrap_err().to_string().contains("6 columns"));
    let mut bad = features.clone();
    bad[8] = f32::INFINITY;
    let bad = Rows::new(&bad, 10, 6).unwrap();
    assert!(matches!(gram.update(bad, Labels::Classes(&labels)), Err(Error::NotFinite { row: 1, column: 2, .. })));
    let mut seeded = recipe.clone();
    seeded.spec.seed = 1;
    assert!(gram.merge(&Gram::new(&seeded, Targets::Classes(3)).unwrap()).is_err());
    assert!(gram.merge(&Gram::new(&recipe, Targets::ClassesApart(3)).unwrap()).is_err());
    assert!(gram.merge_after(&Gram::new(&recipe, Targets::ClassesApart(3)).unwrap()).is_err());
    assert_eq!(gram, before);
    for targets in [Targets::Classes(1), Targets::Values(0), Targets::ClassesApart(usize::MAX)] {
        assert!(Gram::new(&recipe, targets).is_err());
    }
    let large = Recipe::from(Spec::polynomial(3).with_degree(2).with_features(1 << 31));
    assert!(matches!(Gram::new(&large, Targets::ClassesApart(1000)), Err(Error::TooLarge { .. })));
}

/// Classes in another order, with others among them: the sums of the same rows with their classes renamed.
#[test]
fn classes_may_be_counted_otherwise() {
    let (rows, dim) = (40, 14);
    let (recipe, features, labels) = problem(rows, dim, 3);
    let table = Rows::new(&features, rows, dim).unwrap();
    let places = [4, 0, 5];
    let renamed: Vec<u32> = labels.iter().map(|&label| u32::try_from(places[label as usize]).unwrap()).collect();
    for (before, after) in
        [(Targets::Classes(3), Targets::Classes(6)), (Targets::ClassesApart(3), Targets::ClassesApart(6))]
    {
        let mut gram = Gram::new(&recipe, before).unwrap();
        gram.update(table, Labels::Classes(&labels)).unwrap();
        let mut want = Gram::new(&recipe, after).unwrap();
        want.update(table, Labels::Classes(&renamed)).unwrap();
        let got = gram.with_classes(&places, 6).unwrap();
        assert_eq!((got.rows(), got.targets()), (want.rows(), want.targets()));
        assert_eq!(got.target_sums(), want.target_sums());
        assert_close(&got.products(), &want.products(), 1e-12);
        for class in 0..6 {
            assert_eq!(got.moments(class), want.moments(class));
        }
        for places in [&[0, 1][..], &[0, 1, 1], &[0, 1, 6]] {
            assert!(gram.with_classes(places, 6).is_err());
        }
    }
    assert!(Gram::new(&recipe, Targets::Values(1)).unwrap().with_classes(&[0], 2).is_err());
}
