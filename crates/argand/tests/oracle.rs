//! Every method against the naive oracle, and the oracle against cases worked out by hand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod common;

use argand::draw::Map;
use argand::{Base, FeatureMap, Field, Input, InputDims, Method, RowsMut, Scalar, Spec};
use common::*;

fn drawn(spec: &Spec) -> Vec<Vec<Vec<Complex>>> {
    let Map::Product(product) = spec.draw().unwrap().map else { panic!("{} is not a product", spec.method) };
    product.projections().map(matrix).collect()
}

fn flat(base: Base, dim: usize, degree: usize, features: usize) -> Spec {
    let method = Method::flat(base, Field::Real);
    Spec::polynomial(dim).with_degree(degree).with_features(features).with_method(method).with_seed(5)
}

/// d = 1: W is a column of signs, so features are ± x^p/√m, and the signs alone determine the oracle.
#[test]
fn oracle_in_one_dimension() {
    let spec = flat(Base::Rademacher, 1, 3, 4);
    let signs = drawn(&spec);
    for (row, &feature) in oracle_row(&spec, &[&[2.0]]).iter().enumerate() {
        let sign: f64 = signs.iter().map(|matrix| matrix[row][0].0).product();
        assert_eq!(feature, sign * 8.0 / 2.0);
    }
}

/// m = n and p = 1: each row of HD is used once, so features are an isometry of x.
#[test]
fn oracle_of_a_full_hadamard_matrix_is_orthogonal() {
    let w = &drawn(&flat(Base::ProductSrht, 4, 1, 4))[0];
    for i in 0..4 {
        for j in 0..4 {
            let product: f64 = (0..4).map(|row| w[row][i].0 * w[row][j].0).sum();
            assert_eq!(product, if i == j { 4.0 } else { 0.0 });
        }
    }
}

/// TensorSketch by hand: the features are the circular convolution of the CountSketches.
#[test]
fn oracle_of_tensor_sketch_is_a_convolution() {
    use argand::rng::{Purpose, Stream};
    let (dim, rows) = (4, 5);
    let spec = Spec::polynomial(dim)
        .with_degree(2)
        .with_features(rows)
        .with_method(Method::flat(Base::TensorSketch, Field::Real))
        .with_seed(5);
    let x = [1.0, -2.0, 3.0, 0.5];
    let count = |factor: u32| {
        let mut signs = Stream::new(5, Purpose::Signs, factor, 0).small_integers(1, dim).into_iter();
        let mut buckets = Stream::new(5, Purpose::Buckets, factor, 0);
        let mut sketch = [0.0; 5];
        for x in x {
            let sign = 1.0 - 2.0 * f64::from(signs.next().unwrap());
            sketch[buckets.below(5) as usize] += sign * x;
        }
        sketch
    };
    let (a, b) = (count(0), count(1));
    for (at, got) in oracle_row(&spec, &[&x]).into_iter().enumerate() {
        let want: f64 = (0..rows).map(|shift| a[shift] * b[(rows + at - shift) % rows]).sum();
        assert!((got - want).abs() < 1e-12, "{got} {want}");
    }
}

/// The layouts: complex pairs, CtR halves, and their relation.
#[test]
fn oracle_layouts_hold_the_same_numbers() {
    let spec =
        |field| Spec::polynomial(3).with_degree(2).with_features(8).with_method(Method::flat(Base::Gaussian, field));
    let x = [0.5, -1.0, 2.0];
    let (pairs, halves) = (oracle_row(&spec(Field::Complex), &[&x]), oracle_row(&spec(Field::ComplexToReal), &[&x]));
    for row in 0..4 {
        assert_eq!((pairs[2 * row], pairs[2 * row + 1]), (halves[row], halves[4 + row]));
    }
}

/// Sizes: one, not a power of two, D below and above d, D not a multiple of d, more rows than a block.
fn shapes() -> Vec<(InputDims, usize, usize)> {
    let same = InputDims::Same;
    let distinct = |dims: &[usize]| InputDims::Distinct(dims.to_vec());
    vec![
        (same(1), 1, 2),
        (same(1), 3, 6),
        (same(2), 1, 4),
        (same(5), 2, 4),
        (same(7), 3, 26),
        (same(8), 2, 16),
        (same(16), 1, 10),
        (same(33), 4, 50),
        (distinct(&[4]), 1, 8),
        (distinct(&[3, 5]), 2, 12),
        (distinct(&[9, 1, 16]), 3, 22),
    ]
}

fn compare<T: Scalar>(rows: usize) {
    for (inputs, degree, features) in shapes() {
        for method in methods() {
            for (gamma, coef0) in [(1.0, 0.0), (0.4, 1.5), (0.0, 2.0)] {
                let mut spec = spec_for(&inputs, degree, features, method).with_seed(11);
                spec = spec.with_gamma(gamma).with_coef0(coef0);
                let sketch = spec.sketch::<T>().unwrap();
                let tables: Vec<Vec<f64>> = inputs
                    .as_slice()
                    .iter()
                    .zip(1..)
                    .map(|(&dim, seed)| {
                        // A third of zeros, so that the sparse form differs, and rounded so that f32 holds it exactly.
                        let table = uniform(seed, rows * dim, -1.0, 2.0);
                        table.iter().map(|&x| if x < 0.0 { 0.0 } else { f64::from((x - 1.0) as f32) }).collect()
                    })
                    .collect();
                let cast_tables: Vec<Vec<T>> = tables.iter().map(|table| cast(table)).collect();
                let sparse: Vec<Csr<T>> =
                    cast_tables.iter().zip(inputs.as_slice()).map(|(table, &dim)| Csr::new(table, dim)).collect();

                // A dirty output with gaps between its rows: every feature is overwritten, and no gap.
                let stride = features + 3;
                let mut out = vec![T::from_f64(f64::NAN); rows * stride];
                let views: Vec<Input<'_, T>> = sparse.iter().map(|csr| csr.view().into()).collect();
                sketch.transform_into(&views, RowsMut::with_stride(&mut out, rows, features, stride).unwrap()).unwrap();
                assert_eq!(out.iter().filter(|value| !value.is_finite()).count(), rows * 3);

                let got = transform(&sketch, &cast_tables);
                for row in 0..rows {
                    let x: Vec<&[f64]> =
                        tables.iter().zip(inputs.as_slice()).map(|(table, &dim)| &table[row * dim..][..dim]).collect();
                    let tolerance = rounding::<T>(&spec, &x);
                    let got = &got[row * features..][..features];
                    assert_eq!(got, &out[row * stride..][..features], "dense and sparse, {spec:?}");
                    for (got, want) in got.iter().zip(oracle_row(&spec, &x)) {
                        let error = (got.to_f64() - want).abs();
                        assert!(error <= tolerance, "{} {spec:?} row {row}: {got} {want}", T::NAME);
                    }
                }
            }
        }
    }
}

#[test]
fn f64_equals_the_oracle() {
    compare::<f64>(3);
}

#[test]
fn f32_equals_the_oracle() {
    compare::<f32>(19);
}
