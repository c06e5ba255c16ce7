//! Pooled features: sums of features over groups of rows, and their adjoint.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use argand::{Error, FeatureMap, Groups, Input, InputDims, Rows, RowsMut, Scalar, Sketch, Spec};
use common::*;

const FEATURES: usize = 22;

/// Small and large groups, some of them empty, in 423 rows.
fn groupings() -> [Groups; 3] {
    [
        Groups::from_starts(&[0, 0, 1, 18, 18, 50, 350, 422, 423, 423]).unwrap(),
        Groups::even(423, 9).unwrap(),
        Groups::even(423, 423).unwrap(),
    ]
}

/// Every method, with one and with distinct inputs.
fn specs() -> Vec<Spec> {
    let inputs = [InputDims::Same(9), InputDims::Distinct(vec![4, 9, 5])];
    let products = inputs.iter().flat_map(|inputs| {
        methods().into_iter().map(move |method| spec_for(inputs, 3, FEATURES, method).with_coef0(0.5))
    });
    products.chain([srf(9, 3, FEATURES)]).collect()
}

/// A third of zeros, but no row of zeros.
fn tables<T: Scalar>(spec: &Spec, rows: usize) -> Vec<Vec<T>> {
    let table = |seed: u64, dim: usize| {
        let values = uniform(seed, rows * dim, -1.0, 2.0).into_iter().enumerate();
        let values = values.map(|(at, x)| if x < 0.0 && at % dim > 0 { 0.0 } else { x - 1.1 });
        values.map(T::from_f64).collect()
    };
    spec.inputs.as_slice().iter().zip(1..).map(|(&dim, seed)| table(seed, dim)).collect()
}

fn inputs<'a, T: Scalar>(spec: &Spec, tables: &'a [Vec<T>]) -> Vec<Input<'a, T>> {
    tables.iter().zip(spec.inputs.as_slice()).map(|(table, &dim)| dense(table, dim).into()).collect()
}

/// The gradients that an adjoint writes, one table per input.
fn gradients<T: Scalar>(
    spec: &Spec,
    rows: usize,
    vjp: impl FnOnce(&mut [RowsMut<'_, T>]) -> Result<(), Error>,
) -> Vec<Vec<T>> {
    let dims = spec.inputs.as_slice();
    let mut gradients: Vec<Vec<T>> = dims.iter().map(|&dim| vec![T::from_f64(f64::NAN); rows * dim]).collect();
    let views = gradients.iter_mut().zip(dims).map(|(gradient, &dim)| RowsMut::new(gradient, rows, dim).unwrap());
    vjp(&mut views.collect::<Vec<_>>()).unwrap();
    gradients
}

fn with_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

/// A map that has only what it must: its pooled features are the default ones. It counts rows and looks at blocks.
struct Plain<T> {
    sketch: Sketch<T>,
    rows: AtomicUsize,
}

impl<T: Scalar> FeatureMap<T> for Plain<T> {
    fn input_dims(&self) -> &[usize] {
        self.sketch.input_dims()
    }

    fn output_dim(&self) -> usize {
        self.sketch.output_dim()
    }

    fn transform_into(&self, inputs: &[Input<'_, T>], out: RowsMut<'_, T>) -> Result<(), Error> {
        assert!(inputs.iter().all(Input::is_known_finite), "these numbers would be looked at again");
        assert!(out.rows() <= 16 || out.rows() * out.columns() * size_of::<T>() <= 1 << 20, "a large block");
        self.rows.fetch_add(out.rows(), Ordering::Relaxed);
        self.sketch.transform_into(inputs, out)
    }

    fn vjp_into(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
    ) -> Result<(), Error> {
        self.sketch.vjp_into(inputs, cotangent, gradients)
    }
}

fn sums_of_features<T: Scalar>() {
    for spec in specs() {
        let map = Plain { sketch: spec.sketch::<T>().unwrap(), rows: AtomicUsize::new(0) };
        let tables = tables::<T>(&spec, 423);
        let inputs = inputs(&spec, &tables);
        let sparse: Vec<Csr<T>> =
            tables.iter().zip(spec.inputs.as_slice()).map(|(table, &dim)| Csr::new(table, dim)).collect();
        let sparse: Vec<Input<'_, T>> = sparse.iter().map(|csr| csr.view().into()).collect();
        let features = map.sketch.transform(&inputs).unwrap();
        for groups in groupings() {
            // A dirty output with gaps between its rows: every sum is overwritten, and no gap.
            let stride = FEATURES + 3;
            let mut out = vec![T::from_f64(f64::NAN); groups.count() * stride];
            let view = RowsMut::with_stride(&mut out, groups.count(), FEATURES, stride).unwrap();
            map.sketch.transform_pooled_into(&sparse, &groups, view).unwrap();
            assert_eq!(out.iter().filter(|value| !value.is_finite()).count(), groups.count() * 3);

            let pooled = map.sketch.transform_pooled(&inputs, &groups).unwrap();
            for group in 0..groups.count() {
                let got = &pooled[group * FEATURES..][..FEATURES];
                assert_eq!(got, &out[group * stride..][..FEATURES], "dense and sparse, {}", spec.method);
                for (column, got) in got.iter().enumerate() {
                    let column = groups.range(group).map(|row| features[row * FEATURES + column].to_f64());
                    let (sum, size) = column.fold((0.0, 0.0), |(sum, size), z| (sum + z, size + z.abs()));
                    // Rounded once to the type of the features, from sums in f64.
                    let tolerance = T::EPSILON.to_f64() * f64::abs(sum) + 423.0 * f64::EPSILON * size;
                    assert!((got.to_f64() - sum).abs() <= tolerance, "{}, group {group}: {got} {sum}", spec.method);
                }
            }
            map.rows.store(0, Ordering::Relaxed);
            assert!(map.transform_pooled(&inputs, &groups).unwrap() == pooled, "the default, {}", spec.method);
            assert_eq!(map.rows.load(Ordering::Relaxed), 423);
        }
    }
}

#[test]
fn pooled_features_are_sums_of_features() {
    sums_of_features::<f32>();
    sums_of_features::<f64>();
}

#[test]
fn no_rows_and_no_groups() {
    for spec in specs() {
        let sketch = spec.sketch::<f32>().unwrap();
        let none: Vec<Vec<f32>> = spec.inputs.as_slice().iter().map(|_| vec![]).collect();
        let inputs = inputs(&spec, &none);
        assert_eq!(sketch.transform_pooled(&inputs, &Groups::even(0, 7).unwrap()), Ok(vec![]));
        let empty = Groups::from_starts(&[0, 0, 0]).unwrap();
        assert_eq!(sketch.transform_pooled(&inputs, &empty), Ok(vec![0.0; 2 * FEATURES]));
        let cotangent = dense(&[1.0; 2 * FEATURES], FEATURES);
        gradients(&spec, 0, |out| sketch.vjp_pooled_into(&inputs, &empty, cotangent, out));
    }
}

/// Whatever the threads, blocks and other groups: the same bits.
#[test]
fn sums_do_not_depend_on_threads_blocks_or_other_groups() {
    let rows = 5000;
    for name in ["ctr-product-srht", "hierarchical-gaussian", "tensor-sketch", "rademacher"] {
        let spec = Spec::polynomial(9).with_features(FEATURES).with_method(name.parse().unwrap());
        let x = &tables::<f32>(&spec, rows)[0];
        let input: Input<'_, f32> = dense(x, 9).into();
        let sketch = spec.sketch::<f32>().unwrap();
        let groups = Groups::from_starts(&[0, 3, 3, 200, 201, 3700, 4900, 5000]).unwrap();
        let cotangent = cast::<f32>(&uniform(5, groups.count() * FEATURES, -1.0, 1.0));
        let cotangent = dense(&cotangent, FEATURES);
        let adjoint = |threads: usize| {
            let vjp = || gradients(&spec, rows, |out| sketch.vjp_pooled_into(&[input], &groups, cotangent, out));
            with_threads(threads, vjp)
        };
        let pooled = with_threads(1, || sketch.transform_pooled(&[input], &groups).unwrap());
        let gradient = adjoint(1);
        for threads in [2, 3, 7] {
            assert!(with_threads(threads, || sketch.transform_pooled(&[input], &groups).unwrap()) == pooled, "{name}");
            assert!(adjoint(threads) == gradient, "{name}");
        }
        for block in [1, 48, 1000] {
            let sketch = spec.sketch::<f32>().unwrap().with_block_rows(block);
            assert!(sketch.transform_pooled(&[input], &groups).unwrap() == pooled, "{name}, blocks of {block}");
        }
        for group in 0..groups.count() {
            let rows = groups.range(group);
            let alone = Groups::from_starts(&[0, rows.len()]).unwrap();
            let alone = sketch.transform_pooled(&[input.slice(rows)], &alone).unwrap();
            assert!(alone == pooled[group * FEATURES..][..FEATURES], "{name}, group {group} alone");
        }
    }
}

/// The features of a million equal rows: sums in f32 would be off by a percent.
#[test]
fn long_sums_are_accurate() {
    let rows = 1 << 20;
    let spec = Spec::polynomial(1).with_degree(1).with_features(2);
    let x = vec![0.1_f32; rows];
    let sketch = spec.sketch::<f32>().unwrap();
    let one = sketch.transform(&[dense(&x[..1], 1).into()]).unwrap();
    let sums = sketch.transform_pooled(&[dense(&x, 1).into()], &Groups::even(rows, rows).unwrap()).unwrap();
    assert_eq!(sums, [one[0] * rows as f32, one[1] * rows as f32]);
}

fn adjoint_repeats<T: Scalar>() {
    for spec in specs() {
        let sketch = spec.sketch::<T>().unwrap();
        let tables = tables::<T>(&spec, 423);
        let inputs = inputs(&spec, &tables);
        let dims = spec.inputs.as_slice();
        let sparse: Vec<Csr<T>> = tables.iter().zip(dims).map(|(table, &dim)| Csr::new(table, dim)).collect();
        let sparse: Vec<Input<'_, T>> = sparse.iter().map(|csr| csr.view().into()).collect();
        for groups in groupings() {
            // Numbers between the rows of the cotangent are not read.
            let stride = FEATURES + 1;
            let mut cotangent = cast::<T>(&uniform(5, groups.count() * stride, -1.0, 1.0));
            cotangent.chunks_exact_mut(stride).for_each(|row| row[FEATURES] = T::from_f64(f64::NAN));
            let repeated: Vec<T> = (0..groups.count())
                .flat_map(|group| groups.range(group).flat_map(move |_| group * stride..group * stride + FEATURES))
                .map(|at| cotangent[at])
                .collect();
            let cotangent = Rows::with_stride(&cotangent, groups.count(), FEATURES, stride).unwrap();
            let want = gradients(&spec, 423, |out| sketch.vjp_into(&inputs, dense(&repeated, FEATURES), out));
            for inputs in [&inputs, &sparse] {
                let got = gradients(&spec, 423, |out| sketch.vjp_pooled_into(inputs, &groups, cotangent, out));
                assert!(got == want, "{}", spec.method);
            }
        }
    }
}

#[test]
fn adjoint_is_that_of_the_rows_with_the_cotangent_of_their_group() {
    adjoint_repeats::<f32>();
    adjoint_repeats::<f64>();
}

/// ⟨J v, w⟩ = ⟨v, Jᵀ w⟩, with J v from central differences of pooled features.
#[test]
fn adjoint_is_the_transpose_of_the_derivative() {
    let groups = Groups::from_starts(&[0, 2, 2, 20, 21]).unwrap();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for spec in specs() {
        let sketch = spec.sketch::<f64>().unwrap();
        let x = tables::<f64>(&spec, 21);
        let v: Vec<Vec<f64>> = x.iter().zip(7..).map(|(x, seed)| uniform(seed, x.len(), -1.0, 1.0)).collect();
        let w = uniform(6, groups.count() * FEATURES, -1.0, 1.0);
        let step = 1e-5;
        let [above, below] = [step, -step].map(|step| {
            let moved: Vec<Vec<f64>> =
                x.iter().zip(&v).map(|(x, v)| x.iter().zip(v).map(|(x, v)| x + step * v).collect()).collect();
            sketch.transform_pooled(&inputs(&spec, &moved), &groups).unwrap()
        });
        let forward = (dot(&above, &w) - dot(&below, &w)) / (2.0 * step);
        let gradients =
            gradients(&spec, 21, |out| sketch.vjp_pooled_into(&inputs(&spec, &x), &groups, dense(&w, FEATURES), out));
        let backward: f64 = v.iter().zip(&gradients).map(|(v, gradient)| dot(v, gradient)).sum();
        let size: f64 = gradients.iter().map(|gradient| dot(gradient, gradient)).sum::<f64>().sqrt();
        assert!((forward - backward).abs() < 1e-7 * (1.0 + size), "{}: {forward} {backward}", spec.method);
    }
}

#[test]
fn bad_arguments_are_errors_and_write_nothing() {
    let sketch = Spec::tensor_product(&[3, 2]).with_features(4).sketch::<f32>().unwrap();
    let (x, y) = ([1.0_f32; 9], [1.0_f32; 6]);
    let good: [Input<'_, f32>; 2] = [dense(&x, 3).into(), dense(&y, 2).into()];
    let groups = Groups::from_starts(&[0, 1, 3]).unwrap();
    let mut out = [-1.0_f32; 12];
    let mut run = |inputs: &[Input<'_, f32>], groups: &Groups, rows: usize, columns: usize| {
        let view = RowsMut::new(&mut out[..rows * columns], rows, columns).unwrap();
        let error = sketch.transform_pooled_into(inputs, groups, view).unwrap_err().to_string();
        assert!(out.iter().all(|&value| value == -1.0), "written despite: {error}");
        error
    };
    assert_eq!(run(&good[..1], &groups, 2, 4), "inputs: expected 2 tables, got 1");
    assert_eq!(run(&good, &Groups::even(4, 2).unwrap(), 2, 4), "groups: expected 3 rows, as the input, got 4");
    assert_eq!(run(&good, &groups, 3, 4), "out: expected 2 rows x 4 columns, got 3 x 4");
    assert_eq!(run(&good, &groups, 2, 3), "out: expected 2 rows x 4 columns, got 2 x 3");
    let bad = [1.0, 1.0, 1.0, 1.0, f32::NAN, 1.0];
    let bad = run(&[good[0], dense(&bad, 2).into()], &groups, 2, 4);
    assert_eq!(bad, "input 1: row 2, column 0 is NaN; only finite numbers can be sketched");

    let (mut to_x, mut to_y) = ([-1.0_f32; 9], [-1.0_f32; 6]);
    let mut run = |groups: &Groups, cotangent: &[f32], columns: usize, tables: usize| {
        let mut views = [RowsMut::new(&mut to_x, 3, 3).unwrap(), RowsMut::new(&mut to_y, 3, 2).unwrap()];
        let cotangent = dense(cotangent, columns);
        let error = sketch.vjp_pooled_into(&good, groups, cotangent, &mut views[..tables]).unwrap_err().to_string();
        assert!(to_x.iter().chain(&to_y).all(|&value| value == -1.0), "written despite: {error}");
        error
    };
    let mut cotangent = [1.0; 12];
    let other = Groups::even(2, 1).unwrap();
    assert_eq!(run(&other, &cotangent[..8], 4, 2), "groups: expected 3 rows, as the input, got 2");
    assert_eq!(run(&groups, &cotangent, 4, 2), "cotangent: expected 2 rows x 4 columns, got 3 x 4");
    assert_eq!(run(&groups, &cotangent[..6], 3, 2), "cotangent: expected 2 rows x 4 columns, got 2 x 3");
    assert_eq!(run(&groups, &cotangent[..8], 4, 1), "gradients: expected 2 tables, one per input, got 1");
    cotangent[6] = f32::INFINITY;
    assert!(run(&groups, &cotangent[..8], 4, 2).starts_with("cotangent: row 1, column 2 is inf"));
}

/// A row without direction is found before anything is written, wherever it is.
#[test]
fn rows_that_a_map_cannot_take_are_named() {
    let mut x = uniform(1, 900 * 5, 0.1, 1.0);
    x[777 * 5..778 * 5].fill(0.0);
    let mut out = [-1.0; 3 * 4];
    let view = RowsMut::new(&mut out, 3, 4).unwrap();
    let sketch = srf(5, 3, 4).sketch::<f64>().unwrap();
    let groups = Groups::even(900, 300).unwrap();
    let error = sketch.transform_pooled_into(&[dense(&x, 5).into()], &groups, view).unwrap_err();
    assert!(error.to_string().ends_with("got zeros in row 777") && out == [-1.0; 12], "{error}");
}

#[test]
fn overflow_is_an_error() {
    let groups = Groups::from_starts(&[0, 150, 300, 600]).unwrap();
    for method in methods() {
        let spec = Spec::polynomial(4).with_degree(3).with_features(8).with_method(method);
        let map = Plain { sketch: spec.sketch::<f32>().unwrap(), rows: AtomicUsize::new(0) };
        let mut x = vec![1.0_f32; 600 * 4];
        x[270 * 4..272 * 4].fill(1e20);
        x[450 * 4..].fill(f32::MAX);
        let inputs = [dense(&x, 4).into()];
        let overflow = Error::Overflow { row: 270, dtype: "f32" };
        assert_eq!(map.sketch.transform_pooled(&inputs, &groups), Err(overflow.clone()), "{method}");
        assert_eq!(map.transform_pooled(&inputs, &groups), Err(overflow.clone()), "the default, {method}");
        let (cotangent, mut out) = (vec![1.0; 3 * 8], vec![0.0; 600 * 4]);
        let gradient = &mut [RowsMut::new(&mut out, 600, 4).unwrap()];
        let result = map.sketch.vjp_pooled_into(&inputs, &groups, dense(&cotangent, 8), gradient);
        assert_eq!(result, Err(overflow), "{method}");
    }
    // Features that fit, and a sum that does not: the first row of its group is named.
    let sketch = Spec::polynomial(1).with_degree(1).with_features(2).sketch::<f32>().unwrap();
    let mut x = vec![1.0; 600];
    x[290..].fill(3e38);
    let sums = |x: &[f32]| sketch.transform_pooled(&[dense(x, 1).into()], &groups);
    assert_eq!(sums(&x), Err(Error::Overflow { row: 150, dtype: "f32" }));
    // What cancels in between does not count.
    x.iter_mut().skip(1).step_by(2).for_each(|x| *x = -*x);
    assert_eq!(sums(&x), Ok(vec![0.0; 6]));
}
