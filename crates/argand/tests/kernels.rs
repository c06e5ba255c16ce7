//! Feature maps of all kernels: sums of sketches, Fourier features, Nyström's features and monomials, against their definitions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod common;

use argand::draw::Map;
use argand::fit::{Fit, Fitting, Selection};
use argand::theory::{self, Sampling, Source, expected_error, kernel_error};
use argand::{Error, FeatureMap, Groups, Input, Kernel, Polynomial, Rows, Scalar, Sketch, Spec};
use common::*;

const DIM: usize = 5;

/// Rows of moderate length, some entries zero.
fn data(rows: usize) -> Vec<f64> {
    uniform(3, rows * DIM, -0.6, 1.0).iter().map(|&x| if x.abs() < 0.1 { 0.0 } else { x }).collect()
}

fn kernels() -> Vec<Kernel> {
    vec![
        Polynomial { degree: 3, gamma: 0.7, coef0: 0.4 }.into(),
        Kernel::Gaussian { length_scale: 1.1 },
        Kernel::Exponential { length_scale: 1.2 },
        Kernel::Series { coefficients: vec![0.0, 0.5, 0.25, 0.0, 0.125] },
    ]
}

fn spec(method: &str, kernel: Kernel, features: usize) -> Spec {
    Spec::polynomial(DIM).with_kernel(kernel).with_features(features).with_method(method.parse().unwrap()).with_seed(11)
}

fn fit(spec: &Spec) -> Spec {
    spec.fit_to(&[dense(&data(60), DIM).into()], &Fitting::default()).unwrap()
}

/// Every new method with every kernel it is for, fitted.
fn specs() -> Vec<Spec> {
    let mut specs = Vec::new();
    for kernel in kernels() {
        for base in
            ["ctr-product-srht", "gaussian", "chain-ctr-rademacher", "hierarchical-tensor-srht", "ctr-tensor-sketch"]
        {
            specs.push(fit(&spec(&format!("maclaurin-{base}"), kernel.clone(), 64)));
        }
        specs.push(fit(&spec("nystrom", kernel, 20)));
    }
    // The linear term is sketched if there is no room for it.
    specs.push(fit(&spec("maclaurin-ctr-product-srht", Kernel::Exponential { length_scale: 2.0 }, 5)));
    for method in ["rff", "orf", "sorf"] {
        specs.push(spec(method, Kernel::Gaussian { length_scale: 0.8 }, 46));
    }
    specs.push(spec("exact", Polynomial { degree: 3, gamma: 0.7, coef0: 0.4 }.into(), 56));
    specs.push(spec("exact", Polynomial { degree: 4, gamma: 1.3, coef0: 0.0 }.into(), 70));
    specs.push(spec("exact", Polynomial { degree: 1, gamma: 1.3, coef0: 0.0 }.into(), 5));
    specs
}

#[test]
fn features_do_not_depend_on_threads_blocks_or_neighbours() {
    let x = data(131);
    for spec in specs() {
        let sketch = spec.sketch::<f64>().unwrap();
        conforms(&sketch, std::slice::from_ref(&x));
        conforms(&spec.sketch::<f32>().unwrap(), &[cast(&x)]);
        let want = transform(&sketch, std::slice::from_ref(&x));
        for block in [1, 48, 1000] {
            let sketch = spec.sketch::<f64>().unwrap().with_block_rows(block);
            assert!(
                transform(&sketch, std::slice::from_ref(&x)) == want,
                "{} {}, blocks of {block}",
                spec.method,
                spec.kernel
            );
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    for spec in specs() {
        check_gradient(&spec, 3);
    }
}

/// Sparse rows, rows with gaps, pooled rows and single precision: the same features.
#[test]
fn features_do_not_depend_on_the_form_of_the_input() {
    let (rows, x) = (37, data(37));
    let csr = Csr::new(&x, DIM);
    let padded: Vec<f64> = x.chunks_exact(DIM).flat_map(|row| row.iter().copied().chain([f64::NAN; 3])).collect();
    for spec in specs() {
        let name = format!("{} {}", spec.method, spec.kernel);
        let sketch = spec.sketch::<f64>().unwrap();
        let want = transform(&sketch, std::slice::from_ref(&x));
        let close = |got: &[f64], tolerance: f64, what: &str| {
            let largest = want.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
            let apart = got.iter().zip(&want).fold(0.0_f64, |most, (got, want)| most.max((got - want).abs()));
            assert!(apart <= tolerance * largest, "{name}, {what}: {apart} of {largest}");
        };
        close(&sketch.transform(&[csr.view().into()]).unwrap(), 1e-12, "sparse");
        let strided = Rows::with_stride(&padded[..padded.len() - 3], rows, DIM, DIM + 3).unwrap();
        assert!(sketch.transform(&[strided.into()]).unwrap() == want, "{name}");
        let single: Vec<f64> = transform(&spec.sketch::<f32>().unwrap(), &[cast(&x)])
            .iter()
            .map(|&value: &f32| f64::from(value))
            .collect();
        // Whitening enlarges rounding errors by up to 10³.
        close(&single, if spec.method.to_string() == "nystrom" { 1e-3 } else { 2e-5 }, "f32");
        // The gradient of sparse rows.
        let cotangent = uniform(5, rows * spec.features, -1.0, 1.0);
        let gradient = |input: Input<'_, f64>| {
            let mut out = vec![0.0; rows * DIM];
            let table = argand::RowsMut::new(&mut out, rows, DIM).unwrap();
            sketch.vjp_into(&[input], dense(&cotangent, spec.features), &mut [table]).unwrap();
            out
        };
        for (sparse, dense) in gradient(csr.view().into()).iter().zip(gradient(dense(&x, DIM).into())) {
            assert!((sparse - dense).abs() < 1e-9, "{name}");
        }
        let pooled = sketch.transform_pooled(&[dense(&x, DIM).into()], &Groups::even(rows, rows).unwrap()).unwrap();
        for (column, pooled) in pooled.iter().enumerate() {
            let sum: f64 = want.iter().skip(column).step_by(spec.features).sum();
            assert!((pooled - sum).abs() < 1e-11 * (1.0 + sum.abs()), "{name}: {pooled} {sum}");
        }
    }
}

/// What a spec says, computed term by term from the definition.
fn by_definition(spec: &Spec, x: &[f64]) -> Vec<f64> {
    let drawn = spec.draw().unwrap();
    let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    match (&drawn.map, &spec.fit) {
        (Map::Maclaurin(terms), Some(Fit::Maclaurin(allocation))) => {
            let centre = allocation.centre.clone().unwrap_or_else(|| vec![0.0; DIM]);
            let u: Vec<f64> = x.iter().zip(&centre).map(|(x, c)| x - c).collect();
            let g = spec.kernel.radial().map_or(1.0, |scale| (-square(&u) / (2.0 * scale * scale)).exp());
            let mut features = Vec::new();
            if spec.kernel.coefficient(0) > 0.0 {
                features.push(g * spec.kernel.coefficient(0).sqrt());
            }
            if allocation.linear {
                features.extend(u.iter().map(|u| g * spec.kernel.coefficient(1).sqrt() * u));
            }
            for (term, drawn) in allocation.terms.iter().zip(terms) {
                // The sketch of ⟨x, y⟩ⁿ with the weight outside.
                let plain = drawn.spec.clone().with_gamma(1.0);
                let weight = g * spec.kernel.coefficient(term.degree).sqrt();
                features.extend(oracle_row(&plain, &[&u]).iter().map(|feature| weight * feature));
            }
            features.resize(spec.features, 0.0);
            features
        }
        (Map::Fourier(fourier), _) => {
            let angle = |index: usize| fourier.frequency(index).iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
            let angles: Vec<f64> = (0..fourier.outputs).map(angle).collect();
            let root = (fourier.outputs as f64).sqrt();
            angles.iter().map(|angle| angle.cos() / root).chain(angles.iter().map(|angle| angle.sin() / root)).collect()
        }
        (Map::Nystrom(nystrom), Some(Fit::Nystrom(landmarks))) => {
            let kernel = |z: &[f64]| {
                let inner = z.iter().zip(x).map(|(z, x)| z * x).sum::<f64>();
                spec.kernel.value(inner, square(z) + square(x))
            };
            let kernels: Vec<f64> = (0..spec.features).map(|row| kernel(landmarks.row(row))).collect();
            let rows = nystrom.whitening.chunks_exact(spec.features);
            rows.map(|row| row.iter().zip(&kernels).map(|(w, k)| w * k).sum()).collect()
        }
        (Map::Exact, _) => {
            let kernel = polynomial(spec);
            let lifted = homogenise(kernel, x);
            let mut features = Vec::new();
            let mut indices = vec![0; kernel.degree];
            loop {
                let factorial = |n: usize| (1..=n).product::<usize>() as f64;
                let repeats = indices.chunk_by(|a, b| a == b).map(|run| factorial(run.len())).product::<f64>();
                let weight = (factorial(kernel.degree) / repeats).sqrt();
                features.push(weight * indices.iter().map(|&index| lifted[index]).product::<f64>());
                // The next ascending list of indices.
                let Some(place) = (0..kernel.degree).rev().find(|&place| indices[place] + 1 < lifted.len()) else {
                    break;
                };
                let next = indices[place] + 1;
                indices[place..].fill(next);
            }
            features
        }
        _ => panic!("{} has no definition here", spec.method),
    }
}

#[test]
fn features_equal_the_definition() {
    let x = data(19);
    for spec in specs() {
        let features = transform(&spec.sketch::<f64>().unwrap(), std::slice::from_ref(&x));
        for (got, x) in features.chunks_exact(spec.features).zip(x.chunks_exact(DIM)) {
            let want = by_definition(&spec, x);
            assert_eq!(want.len(), spec.features);
            let scale = want.iter().fold(1.0_f64, |most, value| most.max(value.abs()));
            for (column, (got, want)) in got.iter().zip(&want).enumerate() {
                // Whitening enlarges rounding errors by up to 10³.
                assert!((got - want).abs() < 1e-11 * scale, "{} {} {column}: {got} {want}", spec.method, spec.kernel);
            }
        }
    }
}

fn relative_error(spec: &Spec, x: &[f64]) -> f64 {
    let features = spec.sketch::<f64>().unwrap().transform(&[dense(x, DIM).into()]).unwrap();
    kernel_error(spec, &[dense(x, DIM).into()], dense(&features, spec.features)).unwrap()
}

/// Monomials are exact; so is Nyström's method on its landmarks, up to its ridge.
#[test]
fn exact_maps_are_exact() {
    let x = data(20);
    let all: Vec<f64> = x.chunks_exact(DIM).flatten().copied().collect();
    for spec in specs() {
        match spec.method.to_string().as_str() {
            "exact" => {
                assert!(relative_error(&spec, &x) < 1e-14, "{}", spec.kernel);
                let expected = expected_error(&spec, &[dense(&x, DIM).into()], &Sampling::default()).unwrap();
                assert_eq!((expected.relative, expected.source), (0.0, Source::ClosedForm));
            }
            "nystrom" => {
                for selection in [Selection::Uniform, Selection::Leverage, Selection::Pivoted] {
                    let fitting = Fitting::default().with_selection(selection);
                    let fitted = spec.fit_to(&[dense(&all, DIM).into()], &fitting).unwrap();
                    assert!(relative_error(&fitted, &all) < 1e-5, "{}", spec.kernel);
                }
            }
            _ => {}
        }
    }
    // Written out: (x₁, x₂) at degree 2.
    let square = Spec::polynomial(2).with_features(3).with_method("exact".parse().unwrap()).sketch::<f64>().unwrap();
    let features = square.transform(&[dense(&[2.0, 3.0], 2).into()]).unwrap();
    assert!(
        features.iter().zip([4.0, 72_f64.sqrt(), 9.0]).all(|(got, want)| (got - want).abs() < 1e-14),
        "{features:?}"
    );
}

/// The closed forms of sums and of independent frequencies predict the root mean square error of drawn sketches within 5 %; other maps are measured.
#[test]
fn expected_errors_are_those_of_sketches() {
    let x = data(60);
    let inputs = [dense(&x, DIM).into()];
    let (mut closed, mut measured) = (0, 0);
    for spec in specs() {
        let expected = expected_error(&spec, &inputs, &Sampling::default()).unwrap();
        let name = format!("{} {}", spec.method, spec.kernel);
        if expected.source != Source::ClosedForm {
            measured += 1;
            assert!(expected.relative > 0.0 && expected.median <= 1.2 * expected.relative, "{name}: {expected:?}");
            continue;
        }
        closed += 1;
        let squares = (0..600).map(|seed| relative_error(&spec.clone().with_seed(1000 + seed), &x).powi(2));
        let simulated = (squares.sum::<f64>() / 600.0).sqrt();
        // Monomials are exact up to rounding.
        assert!(
            (simulated - expected.relative).abs() <= 0.05 * expected.relative + 1e-14,
            "{name}: {expected:?} {simulated}"
        );
    }
    assert!(closed >= 12 && measured >= 8, "{closed} {measured}");
}

/// Rows and length scales in a unit whose squares do not fit into `f32`. A power of two leaves no rounding: all bits are the same.
#[test]
fn features_do_not_depend_on_the_unit_of_rows_and_length_scale() {
    fn check<T: Scalar>(spec: &Spec, in_unit: &Spec, unit: f64) {
        let in_units = |values: &[f64], unit: f64| -> Vec<T> { values.iter().map(|x| T::from_f64(x * unit)).collect() };
        let (x, name) = (data(19), format!("{} {}", spec.method, in_unit.kernel));
        let [sketch, other] = [spec, in_unit].map(|spec| spec.sketch::<T>().unwrap());
        assert!(transform(&sketch, &[in_units(&x, 1.0)]) == transform(&other, &[in_units(&x, unit)]), "{name}");
        let csr = [1.0, unit].map(|unit| Csr::new(&in_units(&x, unit), DIM));
        let [own, others] = [(&sketch, &csr[0]), (&other, &csr[1])]
            .map(|(sketch, csr)| sketch.transform(&[csr.view().into()]).unwrap());
        assert!(own == others, "{name}, sparse");
        // Derivatives by rows are in one over the unit.
        let cotangent = in_units(&uniform(5, 19 * spec.features, -1.0, 1.0), 1.0);
        let gradient = |sketch: &Sketch<T>, x: Vec<T>, unit: f64| {
            let mut out = vec![T::ZERO; 19 * DIM];
            let table = argand::RowsMut::new(&mut out, 19, DIM).unwrap();
            sketch.vjp_into(&[dense(&x, DIM).into()], dense(&cotangent, spec.features), &mut [table]).unwrap();
            out.iter().map(|value| value.to_f64() * unit).collect::<Vec<f64>>()
        };
        let of_unit = gradient(&other, in_units(&x, unit), unit);
        assert!(gradient(&sketch, in_units(&x, 1.0), 1.0) == of_unit, "{name}, gradient");
    }
    let sample = data(60);
    for spec in specs() {
        for unit in [-83, 83].map(|power| 2_f64.powi(power)) {
            let kernel = match spec.kernel {
                Kernel::Gaussian { length_scale } => Kernel::Gaussian { length_scale: length_scale * unit },
                Kernel::Exponential { length_scale } => Kernel::Exponential { length_scale: length_scale * unit },
                _ => continue,
            };
            let rows: Vec<f64> = sample.iter().map(|x| x * unit).collect();
            let in_unit = spec.clone().with_kernel(kernel).with_fit(None);
            let in_unit = in_unit.fit_to(&[dense(&rows, DIM).into()], &Fitting::default()).unwrap();
            check::<f32>(&spec, &in_unit, unit);
            check::<f64>(&spec, &in_unit, unit);
        }
    }
}

/// Rows that are too many length scales away for the type have no features, not those of a row nearby.
#[test]
fn distances_that_overflow_are_errors() {
    let spec = fit(&spec("nystrom", Kernel::Gaussian { length_scale: 1e-3 }, 20));
    let far = cast(&[3e37, 3e37, 0.0, 0.0, 0.0]);
    let features = spec.sketch::<f32>().unwrap().transform(&[dense(&far, DIM).into()]);
    assert_eq!(features, Err(Error::Overflow { row: 0, dtype: "f32" }));
    let features = spec.sketch::<f64>().unwrap().transform(&[dense(&[3e37, 3e37, 0.0, 0.0, 0.0], DIM).into()]);
    assert!(features.unwrap().iter().all(|&feature| feature == 0.0));
}

/// At equal features, a sum beats the flat sketch of a high degree and random Fourier features of a wide kernel.
#[test]
fn sums_need_fewer_features() {
    let x: Vec<f64> = uniform(8, 200 * 20, 0.0, 1.0);
    let unit: Vec<f64> = x
        .chunks_exact(20)
        .flat_map(|row| {
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter().map(move |x| x / norm)
        })
        .collect();
    let inputs = [Rows::new(&unit, 200, 20).unwrap().into()];
    let error = |spec: &Spec| expected_error(spec, &inputs, &Sampling::default()).unwrap().relative;
    let plain = Spec::polynomial(20).with_kernel(Polynomial { degree: 7, gamma: 0.5, coef0: 0.5 }).with_features(512);
    let sum = plain.clone().with_method("maclaurin-ctr-product-srht".parse().unwrap());
    let sum = sum.fit_to(&inputs, &Fitting::default()).unwrap();
    assert!(error(&sum) < 0.5 * error(&plain), "{} {}", error(&sum), error(&plain));
    let rff = Spec::gaussian(20, 1.0).with_features(512).with_method("rff".parse().unwrap());
    let sum = rff.clone().with_method("maclaurin-ctr-product-srht".parse().unwrap());
    let sum = sum.fit_to(&inputs, &Fitting::default()).unwrap();
    assert!(error(&sum) < 0.5 * error(&rff), "{} {}", error(&sum), error(&rff));
}

#[test]
fn fitted_specs_are_portable() {
    let x = data(7);
    for spec in specs() {
        let read = Spec::from_json(&spec.to_json()).unwrap();
        assert_eq!(read, spec);
        let features = |spec: &Spec| transform(&spec.sketch::<f64>().unwrap(), std::slice::from_ref(&x));
        assert!(features(&read) == features(&spec));
        // Fitting again, to the same rows, changes nothing.
        assert_eq!(fit(&spec), spec);
    }
}

#[test]
fn kernels_of_pairs_are_exact() {
    let x = data(9);
    for kernel in kernels() {
        let spec = spec("nystrom", kernel.clone(), 4);
        let matrix = theory::kernel_matrix(&spec, &[dense(&x, DIM).into()]).unwrap();
        for (i, a) in x.chunks_exact(DIM).enumerate() {
            for (j, b) in x.chunks_exact(DIM).enumerate() {
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let want = kernel.value(dot(a, b), dot(a, a) + dot(b, b));
                assert!((matrix[9 * i + j] - want).abs() < 1e-13 * want.abs(), "{kernel} {i} {j}");
            }
        }
    }
}

#[test]
fn bad_input_is_refused() {
    let message = |result: Result<Spec, Error>| result.unwrap_err().to_string();
    let sum = spec("maclaurin-ctr-product-srht", Kernel::Gaussian { length_scale: 0.01 }, 64);
    let x = data(60);
    let inputs = [dense(&x, DIM).into()];
    let said = message(sum.fit_to(&inputs, &Fitting::default()));
    assert!(said.starts_with("input: ") && said.contains("length_scale") && said.contains("orf"), "{said}");
    assert!(message(sum.fit_to(&inputs, &Fitting::default().with_rows(1))).starts_with("rows"));
    let mut bad = x.clone();
    bad[7] = f64::NAN;
    let bad = sum.fit_to(&[dense(&bad, DIM).into()], &Fitting::default());
    assert!(matches!(bad, Err(Error::NotFinite { row: 1, column: 2, .. })), "{bad:?}");
    for method in ["maclaurin-gaussian", "nystrom"] {
        let unfitted = spec(method, Kernel::Gaussian { length_scale: 1.0 }, 64);
        assert!(unfitted.sketch::<f64>().unwrap_err().to_string().starts_with("fit: "));
    }
    let huge = [1e308_f64, 1.0, 1.0, 1.0, 1.0];
    // Sums of at least quadratic terms, monomials and kernels overflow; nothing is written as if it were right.
    for spec in specs().iter().filter(|spec| spec.kernel.radial().is_none()) {
        let linear = match &spec.fit {
            Some(Fit::Maclaurin(allocation)) => allocation.terms.iter().all(|term| term.degree == 1),
            _ => spec.kernel.polynomial().is_some_and(|kernel| kernel.degree == 1),
        };
        let features = spec.sketch::<f64>().unwrap().transform(&[dense(&huge, DIM).into()]);
        let expected = Err(Error::Overflow { row: 0, dtype: "f64" });
        assert!(features == expected || linear && features.is_ok(), "{} {}", spec.method, spec.kernel);
    }
}

/// Literal values: a change would alter saved specs.
#[test]
fn values_are_stable() {
    let x = [0.5, -0.25, 0.75, 0.0, 1.0];
    let mut wrong = Vec::new();
    for (method, features, want) in [
        ("rff", 4, [0.030631419908260512, 0.24431496834974503, 0.7064430027358214, 0.6635587360891747]),
        ("orf", 4, [0.32094340723930953, -0.4085757221259851, 0.6300756536715434, 0.5771186007132587]),
        ("sorf", 4, [0.4421058246211109, 0.6432773643931801, -0.5518536398684776, 0.2935885427930793]),
    ] {
        let spec = spec(method, Kernel::Gaussian { length_scale: 0.8 }, features);
        let got = transform(&spec.sketch::<f64>().unwrap(), &[x.to_vec()]);
        if !got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12) {
            wrong.push(format!("{method}: {got:?}"));
        }
    }
    let json = r#"{"format": "argand-spec", "version": 2, "stream_version": 1, "method": "maclaurin-ctr-product-srht",
        "kernel": {"name": "gaussian", "length_scale": 0.8}, "input_dim": 5, "features": 12, "seed": 11,
        "maclaurin": {"linear": true, "terms": [{"degree": 2, "features": 4}, {"degree": 3, "features": 2}],
        "centre": [0.1, 0.2, 0.3, 0.4, 0.5]}}"#;
    let got = transform(&Spec::from_json(json).unwrap().sketch::<f64>().unwrap(), &[x.to_vec()]);
    let want = [
        0.46686331570996537,
        0.2334316578549827,
        -0.26261061508685557,
        0.26261061508685557,
        -0.2334316578549827,
        0.2917895723187284,
        0.08388950204163438,
        -0.060181599290737714,
        -0.15683689512131646,
        -0.03829738136683308,
        0.13010420821552734,
        0.06812323348624179,
    ];
    if !got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12) {
        wrong.push(format!("maclaurin-ctr-product-srht: {got:?}"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
