//! What every `FeatureMap` promises: invariance, adjoint, errors, and pinned values.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod common;

use argand::fit::Fit;
use argand::{Base, Error, FeatureMap, Field, Input, InputDims, Method, Rows, RowsMut, Spec};
use common::*;
use proptest::prelude::*;

#[test]
fn features_do_not_depend_on_threads_blocks_or_neighbours() {
    for method in methods() {
        for inputs in [InputDims::Same(21), InputDims::Distinct(vec![6, 21, 3])] {
            let spec = spec_for(&inputs, 3, 46, method).with_seed(3);
            let tables: Vec<Vec<f64>> =
                inputs.as_slice().iter().zip(1..).map(|(&dim, seed)| uniform(seed, 131 * dim, -1.0, 1.0)).collect();
            let singles: Vec<Vec<f32>> = tables.iter().map(|table| cast(table)).collect();
            let (double, single) = (spec.sketch::<f64>().unwrap(), spec.sketch::<f32>().unwrap());
            conforms(&double, &tables);
            conforms(&single, &singles);
            let want = transform(&double, &tables);
            for block in [1, 16, 17, 48, 1000, usize::MAX] {
                let sketch = spec.sketch::<f64>().unwrap().with_block_rows(block);
                assert!(transform(&sketch, &tables) == want, "{method}, blocks of {block}");
            }
        }
    }
}

#[test]
fn spherical_features_conform() {
    let x = uniform(3, 131 * 21, -1.0, 1.0);
    let spec = srf(21, 3, 46).with_seed(3);
    conforms(&spec.sketch::<f64>().unwrap(), std::slice::from_ref(&x));
    conforms(&spec.sketch::<f32>().unwrap(), &[cast(&x)]);
    let sketch = spec.sketch::<f64>().unwrap().with_block_rows(1000);
    assert_eq!(transform(&sketch, std::slice::from_ref(&x)), transform(&spec.sketch::<f64>().unwrap(), &[x]));
}

/// From the definition: frequencies drawn again, cosines and sines of plain sums.
#[test]
fn spherical_features_equal_the_oracle() {
    use argand::rng::{Purpose, Stream};
    for (dim, features) in [(1, 2), (2, 6), (5, 8), (17, 40)] {
        let sketch = srf(dim, 3, features).with_seed(8).sketch::<f64>().unwrap();
        let Some(Fit::Spherical(fit)) = sketch.spec().fit.clone() else { panic!("srf is fitted") };
        let m = features / 2;
        let radii = fit.radii(m, &mut Stream::new(8, Purpose::Radii, 0, 0));
        let x = uniform(5, dim, -3.0, 4.0);
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let got = transform(&sketch, std::slice::from_ref(&x));
        for row in 0..m {
            let mut stream = Stream::new(8, Purpose::Weights, 0, row as u32);
            let mut g: Vec<f64> =
                (0..fit.dim.div_ceil(2)).flat_map(|_| <[f64; 2]>::from(stream.complex_normal())).collect();
            g.truncate(fit.dim);
            let length = g.iter().map(|g| g * g).sum::<f64>().sqrt();
            let angle: f64 = g.iter().zip(&x).map(|(g, x)| radii[row] * g / length * x / norm).sum();
            let root = (m as f64).sqrt();
            assert!((got[row] - angle.cos() / root).abs() < 1e-13, "{dim} {row}");
            assert!((got[m + row] - angle.sin() / root).abs() < 1e-13, "{dim} {row}");
        }
    }
}

/// The fit is saved with the spec, and gives the same sketch.
#[test]
fn spherical_fits_are_saved() {
    let spec = srf(9, 4, 10);
    let sketch = spec.sketch::<f64>().unwrap();
    let saved = Spec::from_json(&sketch.spec().to_json()).unwrap();
    assert_eq!(&saved, sketch.spec());
    let x = uniform(1, 9, -1.0, 1.0);
    let again = saved.sketch::<f64>().unwrap();
    assert_eq!(transform(&again, std::slice::from_ref(&x)), transform(&sketch, std::slice::from_ref(&x)));
    // Fits of another kernel are refused, and so are kernels that srf does not support and rows without direction.
    let mut other = saved.clone();
    other = other.with_degree(5);
    assert!(message(other.sketch::<f64>()).contains("spherical"));
    let mut other = saved.clone();
    other = other.with_gamma(1.0);
    assert!(message(other.sketch::<f64>()).contains("gamma"));
    assert!(message(srf(9, 4, 9).sketch::<f64>()).contains("even"));
    assert!("ctr-srf".parse::<Method>().is_err());
    assert!(message(sketch.transform(&[dense(&[0.0; 9], 9).into()])).contains("row 0"));
}

/// f32 features equal the f64 ones up to rounding, on data of a realistic size.
#[test]
fn f32_agrees_with_f64() {
    for method in methods() {
        let mut spec = Spec::polynomial(300).with_degree(4).with_features(512).with_method(method);
        spec.method = spec.method.with_craft_dim(1024);
        let x: Vec<f64> = uniform(1, 300, 0.0, 0.1).iter().map(|&x| f64::from(x as f32)).collect();
        let double = transform(&spec.sketch::<f64>().unwrap(), std::slice::from_ref(&x));
        let single = transform(&spec.sketch::<f32>().unwrap(), &[cast(&x)]);
        let tolerance = rounding::<f32>(&spec, &[&x]);
        for (a, b) in double.iter().zip(single) {
            assert!((a - f64::from(b)).abs() <= tolerance, "{method}: {a} {b}");
        }
    }
}

#[test]
fn spherical_gradients_match_finite_differences() {
    check_gradient(&srf(5, 3, 14), 2);
    check_gradient(&srf(1, 2, 4), 1);
}

#[test]
fn gradients_match_finite_differences() {
    for method in methods() {
        for (inputs, degree) in [
            (InputDims::Same(5), 1),
            (InputDims::Same(5), 3),
            (InputDims::Same(8), 2),
            (InputDims::Distinct(vec![2, 5, 3]), 3),
        ] {
            for (gamma, coef0) in [(1.0, 0.0), (0.5, 0.7)] {
                let mut spec = spec_for(&inputs, degree, 14, method);
                spec = spec.with_gamma(gamma).with_coef0(coef0);
                check_gradient(&spec, 2);
            }
        }
    }
}

/// Many rows, tables with gaps, sparse input and f32: the adjoint is the same.
#[test]
fn gradients_do_not_depend_on_the_form_of_the_input() {
    for method in methods() {
        let spec = Spec::polynomial(9).with_degree(3).with_features(20).with_method(method);
        let rows = 37;
        let x: Vec<f64> = uniform(4, rows * 9, -1.0, 1.0).iter().map(|&x| x.max(0.0)).collect();
        let cotangent = uniform(5, rows * 20, -1.0, 1.0);
        let (sketch, single) = (spec.sketch::<f64>().unwrap(), spec.sketch::<f32>().unwrap());
        let vjp = |input: Input<'_, f64>, threads: usize| {
            let mut out = vec![0.0; rows * 9];
            let mut gradient = [RowsMut::new(&mut out, rows, 9).unwrap()];
            pool(threads).install(|| sketch.vjp_into(&[input], dense(&cotangent, 20), &mut gradient)).unwrap();
            out
        };
        let want = vjp(dense(&x, 9).into(), 1);
        assert_eq!(vjp(dense(&x, 9).into(), 3), want);
        assert_eq!(vjp(Csr::new(&x, 9).view().into(), 2), want);
        let (x, cotangent) = (cast::<f32>(&x), cast::<f32>(&cotangent));
        let mut out = vec![f32::NAN; rows * 10];
        let mut gradient = [RowsMut::with_stride(&mut out, rows, 9, 10).unwrap()];
        single.vjp_into(&[dense(&x, 9).into()], dense(&cotangent, 20), &mut gradient).unwrap();
        for (got, want) in out.chunks(10).zip(want.chunks(9)) {
            assert!(got[9].is_nan());
            for (got, want) in got.iter().zip(want) {
                assert!((f64::from(*got) - want).abs() < 2e-4, "{method}: {got} {want}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Φ(cx) = c^p Φ(x) without a constant, for powers of two, where scaling is exact.
    #[test]
    fn homogeneous(dim in 1_usize..40, degree in 1_usize..5, half in 1_usize..40, seed: u64, which: prop::sample::Index) {
        let mut spec = Spec::polynomial(dim).with_degree(degree).with_features(2 * half).with_seed(seed).with_method(*which.get(&methods()));
        spec.method = spec.method.with_craft_dim(2 * half + 6);
        let sketch = spec.sketch::<f64>().unwrap();
        let x = uniform(seed, dim, -1.0, 1.0);
        let doubled: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
        let factor = 2_f64.powi(degree as i32);
        let scaled: Vec<f64> = transform(&sketch, &[x]).iter().map(|z| factor * z).collect();
        prop_assert_eq!(transform(&sketch, &[doubled]), scaled);
    }

    /// Linear in each of several distinct inputs.
    #[test]
    fn multilinear(first in 1_usize..20, second in 1_usize..20, half in 1_usize..20, seed: u64, which: prop::sample::Index) {
        let mut spec = Spec::tensor_product(&[first, second]).with_features(2 * half).with_seed(seed).with_method(*which.get(&methods()));
        spec.method = spec.method.with_craft_dim(2 * half + 6);
        let sketch = spec.sketch::<f64>().unwrap();
        let (x, y) = (uniform(seed, first, -1.0, 1.0), uniform(seed ^ 1, first, -1.0, 1.0));
        let other = uniform(seed ^ 2, second, -1.0, 1.0);
        let sum: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let map = |x: Vec<f64>| transform(&sketch, &[x, other.clone()]);
        for ((of_sum, a), b) in map(sum).iter().zip(map(x)).zip(map(y)) {
            prop_assert!((of_sum - a - b).abs() < 1e-10);
        }
    }

    /// A spec survives JSON, and its method survives its name.
    #[test]
    fn specs_round_trip(dim in 1_usize..1000, degree in 1_usize..9, half in 1_usize..1000, seed: u64,
                        gamma in 0.0..1e3_f64, coef0 in 0.0..1e3_f64, which: prop::sample::Index, distinct: bool) {
        let mut spec = if distinct { Spec::tensor_product(&vec![dim; degree]).with_features(2 * half) } else { Spec::polynomial(dim).with_degree(degree).with_features(2 * half) };
        spec = spec.with_seed(seed).with_method(*which.get(&methods()));
        spec = spec.with_gamma(gamma).with_coef0(coef0);
        spec.method = spec.method.with_craft_dim(2 * half + 6);
        prop_assert_eq!(Spec::from_json(&spec.to_json()), Ok(spec.clone()));
        let named: Method = spec.method.to_string().parse().unwrap();
        prop_assert_eq!(named.with_craft_dim(2 * half + 6), spec.method);
    }
}

fn message<V: std::fmt::Debug>(result: Result<V, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn bad_inputs_are_errors_and_write_nothing() {
    let sketch = Spec::tensor_product(&[3, 2]).with_features(4).sketch::<f32>().unwrap();
    let (x, y) = ([1.0_f32; 6], [1.0_f32; 4]);
    let mut out = [-1.0_f32; 8];
    let mut run = |inputs: &[Input<'_, f32>], rows: usize, columns: usize| {
        let error =
            message(sketch.transform_into(inputs, RowsMut::new(&mut out[..rows * columns], rows, columns).unwrap()));
        assert!(out.iter().all(|&value| value == -1.0), "written despite: {error}");
        error
    };
    let (good_x, good_y): (Input<'_, f32>, Input<'_, f32>) = (dense(&x, 3).into(), dense(&y, 2).into());
    assert_eq!(run(&[good_x], 2, 4), "inputs: expected 2 tables, got 1");
    assert_eq!(run(&[], 2, 4), "inputs: expected 2 tables, got 0");
    assert_eq!(run(&[good_y, good_x], 2, 4), "input 0: expected 3 columns, got 2");
    let short = dense(&y[..2], 2).into();
    assert_eq!(run(&[good_x, short], 2, 4), "input 1: expected 2 rows, as the first input, got 1");
    assert_eq!(run(&[good_x, good_y], 2, 3), "out: expected 2 rows x 4 columns, got 2 x 3");
    assert_eq!(run(&[good_x, good_y], 1, 4), "out: expected 2 rows x 4 columns, got 1 x 4");
    let bad = [1.0, 1.0, 1.0, f32::NEG_INFINITY];
    let error = run(&[good_x, dense(&bad, 2).into()], 2, 4);
    assert_eq!(error, "input 1: row 1, column 1 is -inf; only finite numbers can be sketched");
}

#[test]
fn bad_gradients_are_errors() {
    let sketch = Spec::polynomial(3).with_degree(2).with_features(4).sketch::<f64>().unwrap();
    let (x, mut cotangent, mut out) = (vec![1.0; 6], vec![1.0; 8], vec![0.0; 6]);
    let run = |cotangent: Rows<'_, f64>, gradients: &mut [RowsMut<'_, f64>]| {
        message(sketch.vjp_into(&[dense(&x, 3).into()], cotangent, gradients))
    };
    assert_eq!(run(dense(&cotangent, 4), &mut []), "gradients: expected 1 tables, one per input, got 0");
    let mut narrow = [RowsMut::new(&mut out[..4], 2, 2).unwrap()];
    assert_eq!(run(dense(&cotangent, 4), &mut narrow), "gradients: expected 2 x 3, as the input, got 2 x 2");
    let mut right = [RowsMut::new(&mut out, 2, 3).unwrap()];
    assert_eq!(run(dense(&cotangent[..4], 4), &mut right), "cotangent: expected 2 rows x 4 columns, got 1 x 4");
    cotangent[5] = f64::NAN;
    assert!(run(dense(&cotangent, 4), &mut right).starts_with("cotangent: row 1, column 1 is NaN"));
}

/// Overflow is an error naming the first row, in every method, never an infinity.
#[test]
fn overflow_is_an_error() {
    for method in methods() {
        let spec = Spec::polynomial(4).with_degree(3).with_features(8).with_method(method);
        let mut x = vec![1.0_f32; 200 * 4];
        x[70 * 4..72 * 4].fill(1e20);
        x[150 * 4..].fill(f32::MAX);
        let sketch = spec.sketch::<f32>().unwrap();
        let error = sketch.transform(&[dense(&x, 4).into()]).unwrap_err();
        assert_eq!(error, Error::Overflow { row: 70, dtype: "f32" }, "{method}");
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        assert!(spec.sketch::<f64>().unwrap().transform(&[dense(&wide, 4).into()]).is_ok(), "{method}");
        let (cotangent, mut out) = (vec![1.0; 200 * 8], vec![0.0; 200 * 4]);
        let mut gradient = [RowsMut::new(&mut out, 200, 4).unwrap()];
        let error = sketch.vjp_into(&[dense(&x, 4).into()], dense(&cotangent, 8), &mut gradient).unwrap_err();
        assert_eq!(error, Error::Overflow { row: 70, dtype: "f32" }, "{method}");
    }
}

/// A tiny spec can describe a huge sketch: refused before anything is allocated.
#[test]
fn huge_sketches_are_refused() {
    let method = |name: &str| name.parse::<Method>().unwrap();
    for (dim, degree, features, name) in [
        (1 << 31, 1, 2, "product-srht"),
        (1 << 30, 3, 1 << 30, "gaussian"),
        (1 << 31, 4_000_000_000, 1 << 31, "ctr-gaussian"),
        (1, 4_000_000_000, 2, "ctr-product-srht"),
        (1, 1, 1 << 31, "ctr-rademacher"),
        (1 << 31, 4_000_000_000, 1 << 31, "tensor-srht"),
    ] {
        let spec = Spec::polynomial(dim).with_degree(degree).with_features(features).with_method(method(name));
        assert!(matches!(spec.sketch::<f32>(), Err(Error::TooLarge { .. })), "{spec:?}");
    }
    let spec = Spec::polynomial(64).with_degree(3).with_features(1024);
    let needed = spec.memory_bytes::<f64>().unwrap();
    assert!(spec.sketch_within::<f64>(needed).is_ok());
    assert_eq!(spec.sketch_within::<f64>(needed - 1).unwrap_err(), Error::TooLarge { needed, limit: needed - 1 });
    // The adjoint keeps all factors' projections and obeys the same limit.
    let sketch = spec.sketch_within::<f64>(needed).unwrap();
    let (x, cotangent, mut out) = (vec![0.0; 64], vec![0.0; 1024], vec![0.0; 64]);
    let mut gradient = [RowsMut::new(&mut out, 1, 64).unwrap()];
    let result = sketch.vjp_into(&[dense(&x, 64).into()], dense(&cotangent, 1024), &mut gradient);
    assert!(matches!(result, Err(Error::TooLarge { .. })));
}

/// Literal features of every method: a change here breaks every saved spec, and needs a changelog line.
#[test]
#[allow(clippy::approx_constant, reason = "a drawn value happens to be the square root of two")]
fn values_are_stable() {
    let x = [0.5, -1.0, 2.0, 0.25, 1.5];
    let pinned: [(Base, [[f64; 4]; 3]); 4] = [
        (
            Base::Gaussian,
            [
                [5.53665155294655, 2.1608852028977767, 5.1434377997921406, 3.50867130541558],
                [3.753284448674635, 1.2843133296874478, 1.1135793864965704, 1.3007193000808075],
                [3.753284448674635, 1.1135793864965704, 1.2843133296874478, 1.3007193000808075],
            ],
        ),
        (
            Base::Rademacher,
            [
                [1.96875, 3.28125, -1.03125, -4.59375],
                [-0.08838834764831843, 1.9003494744388463, -2.1655145173838015, 1.0606601717798212],
                [-0.08838834764831843, -2.1655145173838015, 1.9003494744388463, 1.0606601717798212],
            ],
        ),
        (
            Base::ProductSrht,
            [
                [1.59375, 0.28125, -2.96875, 2.03125],
                [0.044194173824159216, 2.695844603273712, 1.414213562373095, -0.7071067811865475],
                [0.044194173824159216, 1.414213562373095, 2.695844603273712, -0.7071067811865475],
            ],
        ),
        (
            Base::TensorSrht,
            [
                [1.40625, 5.34375, -1.40625, 2.03125],
                [0.044194173824159216, -0.9280776503073436, 1.414213562373095, -0.7071067811865475],
                [0.044194173824159216, 1.414213562373095, -0.9280776503073436, -0.7071067811865475],
            ],
        ),
    ];
    for base in Base::all() {
        // Its values go through a Fourier transform: they are pinned below.
        if base == Base::TensorSketch {
            continue;
        }
        let fields = pinned.iter().find(|(pinned, _)| *pinned == base).map_or([[0.0; 4]; 3], |&(_, fields)| fields);
        for (field, want) in [Field::Real, Field::ComplexToReal, Field::Complex].into_iter().zip(fields) {
            let mut spec = Spec::polynomial(5)
                .with_degree(2)
                .with_features(4)
                .with_method(Method::flat(base, field))
                .with_seed(2024);
            spec = spec.with_coef0(1.0);
            let got = transform(&spec.sketch::<f64>().unwrap(), &[x.to_vec()]);
            assert_eq!(got, want, "{}", spec.method);
        }
    }
}

/// The same for composed methods. TensorSketch goes through a Fourier transform, whose last bits depend on the
/// instruction set.
#[test]
fn composed_values_are_stable() {
    let x = [0.5, -1.0, 2.0, 0.25, 1.5];
    let pinned: [(&str, [f64; 4]); 7] = [
        ("tensor-sketch", [-3.078125, 0.34375, -2.28125, -10.625]),
        ("ctr-tensor-sketch", [3.124999999999999, 9.999999999999998, 1.0937499999999998, 7.109374999999999]),
        ("hierarchical-ctr-gaussian", [7.654135871563011, -9.487631294810663, -4.390224608559684, 5.80105234145704]),
        ("chain-ctr-product-srht", [1.9921874999999996, -2.2265624999999996, -3.3984374999999996, -2.6953124999999996]),
        ("chain-tensor-sketch", [-4.6796875, 1.2578125, -2.8046875, 6.8828125]),
        ("craft-ctr-product-srht", [14.318912319027584, -7.258893050618149, 19.2355141569653, -9.976834740803941]),
        ("srf", [-0.01580335745261752, 0.22328595064494575, 0.7069301619631353, 0.6709272570439979]),
    ];
    for (name, want) in pinned {
        let mut spec = if name == "srf" {
            srf(5, 3, 4)
        } else {
            Spec::polynomial(5).with_degree(3).with_features(4).with_method(name.parse().unwrap())
        };
        spec.seed = 2024;
        spec.method = spec.method.with_craft_dim(16);
        let got = transform(&spec.sketch::<f64>().unwrap(), &[x.to_vec()]);
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() < 1e-13 * (1.0 + want.abs()), "{name}: {got:?}");
        }
    }
}
