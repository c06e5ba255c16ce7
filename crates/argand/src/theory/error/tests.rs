use super::super::variance::variance;
use super::*;
use crate::rows::SparseRows;

/// 40 rows of 6 numbers of both signs, some zero.
fn data() -> Vec<f64> {
    (0..240).map(|i| f64::from(i * 37 % 23 - 9) / 10.0 * f64::from(u8::from(i % 5 != 0))).collect()
}

#[test]
fn error_of_hand_made_matrices() {
    // Φ = I: ΦΦᵀ = I, against K = XXᵀ with X = [[1, 0], [2, 1]]: [[1, 2], [2, 5]].
    let x = [1.0, 0.0, 2.0, 1.0];
    let inputs = [Rows::new(&x, 2, 2).unwrap().into()];
    let identity = [1.0, 0.0, 0.0, 1.0];
    let error = kernel_error(
        &Spec::polynomial(2).with_degree(1).with_features(2),
        &inputs,
        Rows::new(&identity, 2, 2).unwrap(),
    )
    .unwrap();
    assert!((error - (24.0_f64 / 34.0).sqrt()).abs() < 1e-12);
    assert_eq!(
        kernel_error(&Spec::polynomial(2).with_degree(1).with_features(2), &inputs, Rows::new(&x, 2, 2).unwrap())
            .unwrap(),
        0.0
    );
    // Complex features z = i and z = 1: the Hermitian product i is off by 1 from the kernel 0 · 1, and |z|² = 1 is right.
    let complex = Spec::polynomial(2).with_degree(1).with_features(2).with_method("complex-gaussian".parse().unwrap());
    let inputs = [Rows::new(&[1.0, 0.0, 0.0, 1.0], 2, 2).unwrap().into()];
    let error = kernel_error(&complex, &inputs, Rows::new(&[0.0, 1.0, 1.0, 0.0], 2, 2).unwrap()).unwrap();
    assert!((error - 1.0).abs() < 1e-12, "{error}");
}

/// From a sample, pairs of different rows count n(n−1)/(r(r−1)) times, and a row with itself n/r times.
#[test]
fn sums_of_a_population_are_extrapolated_apart() {
    let sums = RowSums { others: vec![1.0, 2.0, 3.0], itself: vec![4.0, 5.0, 6.0] };
    // 6 · 10·9/(3·2) + 15 · 10/3, and without the first row 4 · 10·9/(2·1) + 11 · 10/2.
    assert!((sums.total(None, 10) - 140.0).abs() < 1e-12);
    assert!((sums.total(Some(0), 10) - 235.0).abs() < 1e-12);
    assert!((sums.total(None, 3) - 21.0).abs() < 1e-12, "all rows: the sum itself");
}

/// What is almost the whole population is almost certain: the standard error shrinks with the share that is missing.
#[test]
fn the_standard_error_is_that_of_a_finite_population() {
    let x = data();
    let inputs = [Rows::new(&x, 40, 6).unwrap().into()];
    let spec = Spec::polynomial(6).with_degree(3).with_features(64);
    let error = |population| expected_error(&spec, &inputs, &Sampling::default().with_population(population)).unwrap();
    let [whole, almost, small] = [40, 41, 1 << 40].map(|n| error(n).standard_error);
    assert_eq!(whole, 0.0);
    assert!(small > 0.0, "{small}");
    // √(1 − 40/41) = 0.156, and less because the diagonal, which varies most, counts less in a large population: 0.56 without it.
    let shrunk = almost / small;
    assert!((0.03..0.3).contains(&shrunk), "{shrunk}");
}

/// Against the double sum, entry by entry from the definition: several blocks, dense and sparse rows.
#[test]
fn expected_error_is_the_double_sum() {
    let long: Vec<f64> = (0..300 * 6).map(|i| f64::from(i * 37 % 23 - 9) / 10.0).collect();
    for (all, rows) in [(data(), 40), (long, 300)] {
        let starts: Vec<u64> = (0..=rows as u64).map(|row| 6 * row).collect();
        // Shuffled columns within a row must not change the sums.
        let columns: Vec<u64> = (0..rows as u64 * 6).map(|entry| 5 - entry % 6).collect();
        let reversed: Vec<f64> = all.chunks_exact(6).flat_map(|row| row.iter().rev()).copied().collect();
        for method in ["ctr-product-srht", "complex-rademacher", "tensor-sketch"] {
            let mut spec = Spec::polynomial(6).with_degree(3).with_features(20).with_method(method.parse().unwrap());
            spec = spec.with_gamma(0.7).with_coef0(0.3);
            let (mut errors, mut norms) = (0.0, 0.0);
            for x in all.chunks_exact(6) {
                for y in all.chunks_exact(6) {
                    let moments = variance(&spec, &[x], &[y]).unwrap().unwrap();
                    errors += moments.variance;
                    norms += moments.mean.powi(2);
                }
            }
            let want = (errors / norms).sqrt();
            let dense = [Rows::new(&all, rows, 6).unwrap().into()];
            let sparse = [SparseRows::new(&starts[..], &columns[..], &reversed, 6).unwrap().into()];
            for inputs in [&dense, &sparse] {
                let got = expected_error(&spec, inputs, &Sampling::default()).unwrap();
                assert!((got.relative / want - 1.0).abs() < 1e-10, "{method}: {} {want}", got.relative);
                assert_eq!((got.standard_error, got.rows, got.source), (0.0, rows, Source::ClosedForm));
            }
        }
    }
}

/// A sample of the rows gives nearly the value of all rows, within the stated interval and without bias towards smaller errors.
#[test]
fn a_subsample_estimates_the_whole() {
    let x: Vec<f64> = (0..600 * 6_i32).map(|i| f64::from(i * i % 101 - 30) / 60.0).collect();
    let inputs = [Rows::new(&x, 600, 6).unwrap().into()];
    let spec = Spec::polynomial(6).with_degree(3).with_features(64);
    let whole = expected_error(&spec, &inputs, &Sampling::default()).unwrap();
    let mut within = 0;
    for seed in 0..40 {
        let sampling = Sampling { rows: 100, seed, ..Sampling::default() };
        let part = expected_error(&spec, &inputs, &sampling).unwrap();
        assert!(part.standard_error > 0.0 && part.standard_error < 0.1 * part.relative && part.rows == 100);
        let [low, high] = part.interval();
        within += i32::from((low..=high).contains(&whole.relative));
    }
    // 95 % of 40 are 38.
    assert!(within >= 33, "{within} of 40 intervals hold {}", whole.relative);
    // The same rows from a larger population: the diagonal counts for less, and there is a sampling error.
    let many = Sampling { population: Some(1_000_000), ..Sampling::default() };
    let many = expected_error(&spec, &inputs, &many).unwrap();
    assert!((many.relative / whole.relative - 1.0).abs() < 0.1 && many.relative != whole.relative);
    assert!(many.standard_error > 0.0);
}

/// A measurement of a method with a closed form agrees with it.
#[test]
fn measurements_agree_with_the_closed_form() {
    let x = data();
    let inputs = [Rows::new(&x, 40, 6).unwrap().into()];
    for method in Method::products().into_iter().map(Method::Product) {
        let spec = Spec::polynomial(6).with_degree(2).with_features(32).with_method(method);
        let Some(formula) = Formula::of(&spec).unwrap() else { continue };
        let predictor = Predictor::new(&spec, &inputs, &Sampling::default()).unwrap();
        let (closed, measured) =
            (predictor.predict_all(&[formula]).unwrap()[0], predictor.measure(&spec, 200).unwrap());
        assert_eq!(measured.source, Source::MonteCarlo { sketches: 200 });
        let z = (measured.relative - closed.relative) / measured.standard_error;
        assert!(z.abs() < 4.5, "{method}: {measured:?} {closed:?}");
    }
}

#[test]
fn what_cannot_be_predicted_is_an_error() {
    let spec = Spec::polynomial(2).with_degree(2).with_features(8);
    let x = [1e200, 0.0, 1.0, 1.0];
    let inputs = [Rows::new(&x, 2, 2).unwrap().into()];
    assert_eq!(expected_error(&spec, &inputs, &Sampling::default()), Err(Error::Overflow { row: 0, dtype: "f64" }));
    let inputs = [Rows::new(&[1.0, f64::NAN], 1, 2).unwrap().into()];
    assert!(matches!(expected_error(&spec, &inputs, &Sampling::default()), Err(Error::NotFinite { .. })));
    let none: [f64; 0] = [];
    let inputs = [Rows::new(&none, 0, 2).unwrap().into()];
    assert!(matches!(expected_error(&spec, &inputs, &Sampling::default()), Err(Error::Invalid { .. })));
    let inputs = [Rows::new(&[0.0; 4], 2, 2).unwrap().into()];
    let zeros = expected_error(&spec, &inputs, &Sampling::default()).unwrap_err();
    assert!(zeros.to_string().contains("zeros"));
    let features = |value: f64| kernel_error(&spec, &inputs, Rows::new(&[value; 16], 2, 8).unwrap());
    assert_eq!([0.0, 1.0].map(features), [Err(zeros.clone()), Err(zeros)]);
    assert_eq!(features(1e200), Err(Error::Overflow { row: 1, dtype: "f64" }));
    let few = Sampling { rows: 1, ..Sampling::default() };
    assert!(expected_error(&spec, &inputs, &few).unwrap_err().to_string().starts_with("rows"));
}
