//! Every method on a GPU beside the processor. Without a GPU, each test says so and passes: `make test-gpu` needs one.

#![allow(unsafe_code, reason = "views of own device buffers")]

use argand::{Base, Error, FeatureMap, Groups, InputDims, Method, Polynomial, Rows, RowsMut, Scalar, Spec};
use argand_cuda::{Algebra, Buffer, CudaSketch, Device, DeviceRows, Element, Real};
use half::{bf16, f16};

fn device() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            assert!(std::env::var_os("ARGAND_NEEDS_GPU").is_none(), "ARGAND_NEEDS_GPU is set, and there is none");
            None
        }
    }
}

/// Numbers between −1 and 1 that differ between seeds.
fn numbers<T: Scalar>(seed: u64, count: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::from_f64((state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

/// Every method that runs on a GPU, with small CRAFT maps.
fn methods() -> Vec<Method> {
    let products = Method::products().into_iter().map(|product| Method::Product(product).with_craft_dim(64));
    products.chain([Method::Spherical]).collect()
}

/// Whether the features have to be the processor's to the last bit.
fn exact(method: Method) -> bool {
    matches!(method.base(), Some(Base::ProductSrht | Base::TensorSrht | Base::Rademacher))
}

struct Case {
    spec: Spec,
    rows: usize,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, method) in methods().into_iter().enumerate() {
        let shapes = [(7, 32, 1, 5), (33, 40, 2, 9), (100, 64, 3, 17), (20, 96, 4, 3), (64, 50, 3, 6)];
        for (dim, features, degree, rows) in shapes {
            let mut spec = Spec::polynomial(dim).with_degree(degree).with_features(features).with_method(method);
            spec.kernel = Polynomial { gamma: 0.5, coef0: if number % 2 == 0 { 0.25 } else { 0.0 }, degree }.into();
            spec = spec.with_seed(number as u64);
            if spec.validate().is_ok() {
                cases.push(Case { spec, rows });
            }
        }
        let dims = [5, 40, 17];
        let mut spec = Spec::tensor_product(&dims).with_features(48).with_method(method).with_seed(3);
        spec = spec.with_coef0(0.5);
        if spec.validate().is_ok() {
            cases.push(Case { spec, rows: 11 });
        }
    }
    // Beyond shared memory, and lengths of every fused kernel.
    for (dim, features) in [
        (1, 8),
        (31, 100),
        (60, 256),
        (120, 130),
        (250, 512),
        (511, 1024),
        (1000, 4096),
        (2000, 512),
        (3000, 64),
        (40_000, 64),
    ] {
        for method in ["product-srht", "ctr-product-srht", "complex-tensor-srht"] {
            let method: Method = method.parse().expect("a method");
            cases.push(Case {
                spec: Spec::polynomial(dim).with_degree(3).with_features(features).with_method(method),
                rows: 7,
            });
        }
    }
    // More factors than warps take at once, and outputs that sample a value many times.
    for (dim, features, degree) in
        [(1000, 8192, 3), (1024, 2048, 7), (30, 4096, 6), (200, 1000, 8), (2000, 1024, 3), (500, 64, 10)]
    {
        for method in ["product-srht", "ctr-product-srht"] {
            let mut spec = Spec::polynomial(dim).with_degree(degree).with_features(features);
            spec = spec.with_gamma(1.0 / dim as f64);
            cases.push(Case { spec: spec.with_method(method.parse().expect("a method")), rows: 9 });
        }
    }
    for features in [4096, 3000, 20_000] {
        let method = "tensor-sketch".parse().expect("a method");
        cases.push(Case {
            spec: Spec::polynomial(50).with_degree(3).with_features(features).with_method(method),
            rows: 3,
        });
    }
    cases.extend(tensor_sketches());
    // `make sanitize-gpu` shares the cases among several processes ("2/8" are the third and every eighth after it), and lets racecheck,
    // which takes a thousand times as long, have fewer rows of many features.
    if let Some(most) = number("ARGAND_GPU_NUMBERS") {
        cases.iter_mut().for_each(|case| case.rows = case.rows.min((most / case.spec.features).max(2)));
    }
    let Ok(part) = std::env::var("ARGAND_GPU_PART") else { return cases };
    let (first, parts) = part.split_once('/').expect("ARGAND_GPU_PART=part/parts");
    let number = |text: &str| text.parse::<usize>().expect("a number in ARGAND_GPU_PART");
    cases.into_iter().skip(number(first)).step_by(number(parts)).collect()
}

/// A number from the environment.
fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Every fused TensorSketch: all lengths, fewer and more coordinates than buckets, a constant, distinct inputs, odd and even rows.
fn tensor_sketches() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in (6..=13).map(|log| 1 << log) {
        for (name, parts) in [("tensor-sketch", 1), ("ctr-tensor-sketch", 2), ("complex-tensor-sketch", 2)] {
            let with = |spec: Spec| spec.with_features(parts * length).with_method(name.parse().expect("a method"));
            for (dim, coef0, degree, rows) in
                [(5, 0.0, 1, 1), (100, 0.25, 2, 600), (1000, 0.0, 3, 5), (3000, 0.5, 4, 2)]
            {
                let mut spec = with(Spec::polynomial(dim));
                spec.kernel = Polynomial { gamma: 0.5, coef0, degree }.into();
                cases.push(Case { spec, rows });
            }
            let mut spec = with(Spec::tensor_product(&[40, 300, 17]));
            spec = spec.with_coef0(0.5);
            cases.push(Case { spec, rows: 7 });
        }
    }
    cases
}

fn tables<T: Scalar>(spec: &Spec, rows: usize) -> Vec<Vec<T>> {
    spec.inputs.as_slice().iter().enumerate().map(|(table, &dim)| numbers(table as u64 + 1, rows * dim)).collect()
}

fn views<'a, T: Scalar>(spec: &Spec, tables: &'a [Vec<T>], rows: usize) -> Vec<argand::Input<'a, T>> {
    let dims = spec.inputs.as_slice();
    tables.iter().zip(dims).map(|(table, &dim)| Rows::new(table, rows, dim).expect("a table").into()).collect()
}

fn largest<T: Scalar>(values: &[T]) -> f64 {
    values.iter().map(|value| value.to_f64().abs()).fold(0.0, f64::max)
}

/// The largest difference, of the largest number.
fn difference<T: Scalar>(want: &[T], got: &[T]) -> f64 {
    let differences = want.iter().zip(got).map(|(a, b)| (a.to_f64() - b.to_f64()).abs());
    let worst = differences.fold(0.0, |worst, now| if now > worst || now.is_nan() { now } else { worst });
    worst / largest(want).max(f64::MIN_POSITIVE)
}

fn compare<T: Real>(tolerance: f64) {
    let Some(device) = device() else { return };
    let mut failures = Vec::new();
    let mut fused = 0;
    for Case { spec, rows } in cases() {
        let drawn = spec.draw().expect("a sketch");
        let tables = tables::<T>(&spec, rows);
        let inputs = views(&spec, &tables, rows);
        let want = drawn.sketch::<T>().expect("a sketch").transform(&inputs).expect("features");
        let name = format!("{} {:?} D = {} {} {rows} rows", spec.method, spec.inputs, spec.features, spec.kernel);
        let mut sketch = CudaSketch::<T>::new(&device, &drawn).expect("a sketch on the device");
        fused += usize::from(sketch.is_fused());
        let cotangent = numbers::<T>(9, rows * spec.features);
        let cotangent = Rows::new(&cotangent, rows, spec.features).expect("a table");
        let gradients = |map: &dyn FeatureMap<T>| {
            let mut gradients: Vec<Vec<T>> = tables.iter().map(|table| vec![T::ZERO; table.len()]).collect();
            let mut outs: Vec<_> = gradients
                .iter_mut()
                .zip(spec.inputs.as_slice())
                .map(|(table, &dim)| argand::RowsMut::new(table, rows, dim).expect("a table"))
                .collect();
            map.vjp_into(&inputs, cotangent, &mut outs).expect("gradients");
            drop(outs);
            gradients.concat()
        };
        let want_gradients = gradients(&drawn.sketch::<T>().expect("a sketch"));
        let began = std::time::Instant::now();
        loop {
            let is_fused = sketch.is_fused();
            let got = sketch.transform(&inputs).expect("features");
            let worst = difference(&want, &got);
            let bad = if exact(spec.method) { want != got } else { worst.is_nan() || worst > tolerance };
            if bad {
                failures.push(format!("{name}, fused {is_fused}: {worst:e}"));
            }
            let worst = difference(&want_gradients, &gradients(&sketch));
            if worst.is_nan() || worst > tolerance {
                failures.push(format!("{name}, adjoint, fused {is_fused}: {worst:e}"));
            }
            // What has a kernel of its own also goes step by step, under racecheck only if it is small: the same kernels take all sizes.
            if !is_fused || number("ARGAND_GPU_NUMBERS").is_some_and(|most| spec.features > most) {
                break;
            }
            sketch = sketch.without_fusing();
        }
        eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    let parted = std::env::var_os("ARGAND_GPU_PART").is_some();
    assert!(fused > 20 || parted || T::NAME == "f64", "{fused} sketches were fused");
}

#[test]
fn features_and_gradients_are_the_processors_in_single_precision() {
    compare::<f32>(1e-5);
}

#[test]
fn features_and_gradients_are_the_processors_in_double_precision() {
    compare::<f64>(1e-12);
}

/// A table in a buffer of its own.
fn view(buffer: &Buffer, element: Element, rows: usize, columns: usize) -> DeviceRows {
    assert!(buffer.bytes() >= rows * columns * element.bytes());
    // SAFETY: the buffer is long enough, and outlives the work in these tests.
    unsafe { DeviceRows::from_address(buffer.address(), element, rows, columns, columns) }.expect("a table")
}

/// float16 and bfloat16 in and out, beside the features of the rounded rows.
#[test]
fn halves_are_rounded_features_of_rounded_rows() {
    let Some(device) = device() else { return };
    let stream = device.stream().expect("a stream");
    for method in [
        "ctr-product-srht",
        "product-srht",
        "complex-product-srht",
        "gaussian",
        "tensor-sketch",
        "complex-tensor-sketch",
    ] {
        for (rows, dim, features) in [(9, 100, 96), (6, 1024, 4096), (5, 33, 50), (5, 33, 128)] {
            let spec = Spec::polynomial(dim)
                .with_degree(3)
                .with_features(features)
                .with_method(method.parse().expect("a method"));
            let drawn = spec.draw().expect("a sketch");
            let sketch = CudaSketch::<f32>::new(&device, &drawn).expect("a sketch");
            // Multiples of 1/64 below 1 are exact in both types.
            let x: Vec<f32> = numbers::<f32>(5, rows * dim).iter().map(|value| (value * 64.0).trunc() / 64.0).collect();
            let want = drawn
                .sketch::<f32>()
                .expect("a sketch")
                .transform(&[Rows::new(&x, rows, dim).expect("a table").into()])
                .expect("features");
            for element in [Element::F16, Element::Bf16] {
                let bits: Vec<u16> = x.iter().map(|&value| encode(element, value)).collect();
                let (x, out) =
                    (device.upload(&bits).expect("memory"), device.allocate(rows * features * 2).expect("memory"));
                sketch
                    .transform_on(&stream, &[view(&x, element, rows, dim)], &view(&out, element, rows, features))
                    .expect("queued");
                sketch.finish(&stream).expect("features");
                let mut got = vec![0_u16; rows * features];
                out.read(&mut got).expect("a copy");
                let unit = if element == Element::F16 { 1.0 / 1024.0 } else { 1.0 / 128.0 };
                for (got, want) in got.iter().zip(&want) {
                    let got = decode(element, *got);
                    assert!(
                        (got - want).abs() <= unit * want.abs() + 1e-6 + 1e-5 * 64.0,
                        "{method} {element:?}: {got} {want}"
                    );
                }
            }
        }
    }
}

fn encode(element: Element, value: f32) -> u16 {
    if element == Element::F16 { f16::from_f32(value).to_bits() } else { bf16::from_f32(value).to_bits() }
}

fn decode(element: Element, bits: u16) -> f32 {
    if element == Element::F16 { f16::from_bits(bits).to_f32() } else { bf16::from_bits(bits).to_f32() }
}

#[test]
fn pooled_features_are_sums() {
    let Some(device) = device() else { return };
    let stream = device.stream().expect("a stream");
    for method in [
        "ctr-product-srht",
        "product-srht",
        "complex-product-srht",
        "complex-tensor-srht",
        "tensor-sketch",
        "ctr-tensor-sketch",
        "gaussian",
        "hierarchical-ctr-rademacher",
    ] {
        for (dim, features, starts) in
            [(60, 128, vec![0, 5, 5, 12, 40]), (512, 8192, vec![0, 33, 64]), (20, 512, vec![0, 1])]
        {
            // Racecheck looks at fewer rows.
            let few = number("ARGAND_GPU_NUMBERS").is_some();
            let starts = if few && features > 2000 { vec![0, 3, 4] } else { starts };
            let groups = Groups::from_starts(&starts).expect("groups");
            let (rows, count) = (groups.rows(), groups.count());
            let spec = Spec::polynomial(dim)
                .with_degree(2)
                .with_features(features)
                .with_method(method.parse().expect("a method"));
            let drawn = spec.draw().expect("a sketch");
            let x = numbers::<f32>(7, rows * dim);
            let inputs = [Rows::new(&x, rows, dim).expect("a table").into()];
            let want = drawn.sketch::<f32>().expect("a sketch").transform_pooled(&inputs, &groups).expect("features");
            let sketch = CudaSketch::<f32>::new(&device, &drawn).expect("a sketch");
            let (there, out) =
                (device.upload(&x).expect("memory"), device.allocate(count * features * 4).expect("memory"));
            let tables = [view(&there, Element::F32, rows, dim)];
            let starts = device.upload(&starts.iter().map(|&start| start as u64).collect::<Vec<_>>()).expect("memory");
            for starts_on_device in [false, true] {
                let into = view(&out, Element::F32, count, features);
                if starts_on_device {
                    // SAFETY: the buffer holds one start per group and the number of rows, until the work is done.
                    unsafe { sketch.transform_pooled_at(&stream, &tables, starts.address(), count, &into) }
                        .expect("queued");
                } else {
                    sketch.transform_pooled_on(&stream, &tables, &groups, &into).expect("queued");
                }
                sketch.finish(&stream).expect("features");
                let mut got = vec![0.0_f32; count * features];
                out.read(&mut got).expect("a copy");
                let worst = difference(&want, &got);
                assert!(worst < 1e-5, "{method} {dim} {features}: {worst:e}");
                out.write(&vec![0.0_f32; count * features]).expect("cleared");
            }

            let cotangent = numbers::<f32>(8, count * features);
            let mut want = vec![0.0_f32; rows * dim];
            let gradient = RowsMut::new(&mut want, rows, dim).expect("a table");
            let cotangents = Rows::new(&cotangent, count, features).expect("a table");
            let host = drawn.sketch::<f32>().expect("a sketch");
            host.vjp_pooled_into(&inputs, &groups, cotangents, &mut [gradient]).expect("gradients");
            let (cotangent, out) =
                (device.upload(&cotangent).expect("memory"), device.allocate(rows * dim * 4).expect("memory"));
            sketch
                .vjp_pooled_on(
                    &stream,
                    &[view(&there, Element::F32, rows, dim)],
                    &groups,
                    &view(&cotangent, Element::F32, count, features),
                    &[view(&out, Element::F32, rows, dim)],
                )
                .expect("queued");
            sketch.finish(&stream).expect("gradients");
            let mut got = vec![0.0_f32; rows * dim];
            out.read(&mut got).expect("a copy");
            let worst = difference(&want, &got);
            assert!(worst < 1e-5, "{method} {dim} {features}, gradients: {worst:e}");
        }
    }
}

/// Groups of many rows are cut into parts: sums stay those of the processor, and those of every group are the same to the last bit without the others.
#[test]
fn long_groups_are_summed_up_in_parts() {
    let Some(device) = device() else { return };
    let stream = device.stream().expect("a stream");
    // Racecheck looks at fewer rows and features.
    let few = number("ARGAND_GPU_NUMBERS").is_some();
    let starts: &[usize] = if few { &[0, 140, 140, 400] } else { &[0, 300, 300, 500, 800, 801, 861] };
    let sizes: &[usize] = if few { &[64] } else { &[64, 250, 1024] };
    let groups = Groups::from_starts(starts).expect("groups");
    let (rows, count) = (groups.rows(), groups.count());
    // Factors of one length, and of lengths so different that one is transformed as a short one.
    let all_dims: [&[usize]; 6] = [&[60, 60], &[64, 300], &[512, 2048], &[1500, 30], &[7, 100, 900], &[33]];
    for method in ["ctr-product-srht", "product-srht", "complex-product-srht", "tensor-sketch", "ctr-tensor-sketch"] {
        for (dims, features) in all_dims.into_iter().flat_map(|dims| sizes.iter().map(move |&size| (dims, size))) {
            let method: Method = method.parse().expect("a method");
            let spec = Spec::tensor_product(dims).with_features(features).with_method(method).with_seed(7);
            let drawn = spec.draw().expect("a sketch");
            let tables = tables::<f32>(&spec, rows);
            let sketch = CudaSketch::<f32>::new(&device, &drawn).expect("a sketch");
            let want = drawn
                .sketch::<f32>()
                .expect("a sketch")
                .transform_pooled(&views(&spec, &tables, rows), &groups)
                .expect("features");
            let pooled = |tables: &[Vec<f32>], groups: &Groups, element: Element| {
                let (rows, count) = (groups.rows(), groups.count());
                let inputs: Vec<Buffer> = tables.iter().map(|table| device.upload(table).expect("memory")).collect();
                let inputs_on: Vec<DeviceRows> =
                    inputs.iter().zip(dims).map(|(buffer, &dim)| view(buffer, Element::F32, rows, dim)).collect();
                let out = device.allocate(count * features * element.bytes()).expect("memory");
                let into = view(&out, element, count, features);
                sketch.transform_pooled_on(&stream, &inputs_on, groups, &into).expect("queued");
                sketch.finish(&stream).expect("features");
                out
            };
            let name = format!("{} {dims:?} {features}", spec.method);
            let mut got = vec![0.0_f32; count * features];
            pooled(&tables, &groups, Element::F32).read(&mut got).expect("a copy");
            let worst = difference(&want, &got);
            assert!(worst < 1e-5, "{name}: {worst:e}");

            let mut halves = vec![0_u16; count * features];
            pooled(&tables, &groups, Element::Bf16).read(&mut halves).expect("a copy");
            let rounded: Vec<u16> = got.iter().map(|&value| encode(Element::Bf16, value)).collect();
            assert!(halves == rounded, "{name}: bfloat16");

            for (group, range) in starts.windows(2).enumerate().filter(|(_, range)| range[0] < range[1]) {
                let part = |table: &Vec<f32>, dim: usize| table[range[0] * dim..range[1] * dim].to_vec();
                let own: Vec<Vec<f32>> = tables.iter().zip(dims).map(|(table, &dim)| part(table, dim)).collect();
                let alone = Groups::from_starts(&[0, range[1] - range[0]]).expect("a group");
                let mut sums = vec![0.0_f32; features];
                pooled(&own, &alone, Element::F32).read(&mut sums).expect("a copy");
                assert!(sums == got[group * features..][..features], "{name}: group {group} alone");
            }
        }
    }
}

/// Kernels are shared: a sketch that needs little shared memory does not take it from one that needs much.
#[test]
fn sketches_live_side_by_side() {
    let Some(device) = device() else { return };
    for method in ["ctr-product-srht", "tensor-sketch", "gaussian", "hierarchical-product-srht"] {
        let sketches: Vec<_> = [7, 1, 3]
            .into_iter()
            .map(|degree| {
                let spec = Spec::polynomial(900).with_degree(degree).with_features(2048);
                let drawn = spec.with_method(method.parse().expect("a method")).draw().expect("a sketch");
                (CudaSketch::<f32>::new(&device, &drawn).expect("a sketch"), drawn)
            })
            .collect();
        let x: Vec<f32> = numbers::<f32>(5, 3 * 900).into_iter().map(|value| value / 20.0).collect();
        for (sketch, drawn) in sketches {
            let inputs = [Rows::new(&x, 3, 900).expect("a table").into()];
            let want = drawn.sketch::<f32>().expect("a sketch").transform(&inputs).expect("features");
            let got = sketch.transform(&inputs).expect("features");
            let worst = difference(&want, &got);
            assert!(worst <= 1e-5, "{method}: {worst:e}");
            let cotangent = Rows::new(&want, 3, 2048).expect("a table");
            let mut gradient = vec![0.0; 3 * 900];
            let gradients = RowsMut::new(&mut gradient, 3, 900).expect("a table");
            sketch.vjp_into(&inputs, cotangent, &mut [gradients]).expect("gradients");
        }
    }
}

#[test]
fn overflow_names_the_row() {
    let Some(device) = device() else { return };
    for method in ["ctr-product-srht", "gaussian", "tensor-sketch"] {
        let spec = Spec::polynomial(40).with_degree(3).with_features(64).with_method(method.parse().expect("a method"));
        let sketch = CudaSketch::<f32>::new(&device, &spec.draw().expect("a sketch")).expect("a sketch");
        let mut x = numbers::<f32>(1, 10 * 40);
        x[4 * 40] = 1e20;
        let inputs = [Rows::new(&x, 10, 40).expect("a table").into()];
        let error = sketch.transform(&inputs).expect_err("an overflow");
        assert!(matches!(error, Error::Overflow { row: 4, .. }), "{method}: {error}");
        x[4 * 40] = 0.5;
        sketch.transform(&[Rows::new(&x, 10, 40).expect("a table").into()]).expect("the error is forgotten");
    }
}

/// Two rows of a real TensorSketch share a transform: neither spoils the other.
#[test]
fn rows_of_other_sizes_keep_their_precision() {
    let Some(device) = device() else { return };
    let (rows, dim, features) = (6, 200, 1024);
    let method = "tensor-sketch".parse().expect("a method");
    let drawn =
        Spec::polynomial(dim).with_degree(3).with_features(features).with_method(method).draw().expect("a sketch");
    let mut x = numbers::<f32>(1, rows * dim);
    for (row, factor) in x.chunks_exact_mut(dim).zip([1e-6, 1e5, 1.0, 0.0, 1e9, 1.0]) {
        row.iter_mut().for_each(|value| *value *= factor);
    }
    let inputs = [Rows::new(&x, rows, dim).expect("a table").into()];
    let want = drawn.sketch::<f32>().expect("a sketch").transform(&inputs).expect("features");
    let sketch = CudaSketch::<f32>::new(&device, &drawn).expect("a sketch");
    assert!(sketch.is_fused());
    let got = sketch.transform(&inputs).expect("features");
    for (row, (want, got)) in want.chunks_exact(features).zip(got.chunks_exact(features)).enumerate() {
        let worst = difference(want, got);
        assert!(worst <= 1e-5, "row {row}: {worst:e} of {:e}", largest(want));
    }
    // The second of two rows overflows, and the first does not.
    x[3 * dim] = 1e20;
    let error = sketch.transform(&[Rows::new(&x, rows, dim).expect("a table").into()]).expect_err("an overflow");
    assert!(matches!(error, Error::Overflow { row: 3, .. }), "{error}");
    // All features of a row would be lost.
    x[3 * dim] = 0.0;
    x[..dim].fill(1e-15);
    let error = sketch.transform(&[Rows::new(&x, rows, dim).expect("a table").into()]).expect_err("an underflow");
    assert!(matches!(error, Error::Underflow { row: 0, .. }), "{error}");
}

#[test]
fn bad_shapes_are_refused() {
    let Some(device) = device() else { return };
    let spec = Spec::new(InputDims::Same(40)).with_features(64);
    let sketch = CudaSketch::<f32>::new(&device, &spec.draw().expect("a sketch")).expect("a sketch");
    let x = numbers::<f32>(1, 10 * 30);
    let error = sketch.transform(&[Rows::new(&x, 10, 30).expect("a table").into()]).expect_err("wrong columns");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert!(sketch.transform(&[]).is_err());
    let none = sketch.transform(&[Rows::new(&[], 0, 40).expect("a table").into()]).expect("no rows");
    assert!(none.is_empty());
}

/// Without a driver, or past the last device, an error says so.
#[test]
fn a_missing_device_is_an_error() {
    let error = Device::open(1000).expect_err("no machine has so many");
    assert!(matches!(error, Error::Device { .. }), "{error}");
    assert!(error.to_string().starts_with("cuda"), "{error}");
}

/// A positive definite matrix, packed: sizes around those of blocks.
#[test]
fn algebra_is_that_of_the_definition() {
    let Some(device) = device() else { return };
    let Some(algebra) = Algebra::find(&device).expect("a working device") else {
        eprintln!("skipped: cuBLAS was not found");
        assert!(std::env::var_os("ARGAND_NEEDS_GPU").is_none(), "ARGAND_NEEDS_GPU is set, and there is no cuBLAS");
        return;
    };
    for size in [1, 5, 63, 64, 65, 200, 513] {
        let features = numbers::<f32>(size as u64, (size + 3) * size);
        let at = |row: usize, column: usize| row * (row + 1) / 2 + column;
        // ΦΦᵀ for two rows more than columns, and ΦᵀΦ + I of the columns.
        let rows = Rows::new(&features, size + 3, size).expect("a table");
        let products = algebra.inner_products(rows).expect("products");
        for (row, column) in [(0, 0), (size + 2, 0), (size + 2, size + 2), (size / 2, size / 3)] {
            let want: f64 =
                rows.row(row).iter().zip(rows.row(column)).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            assert!((products[at(row, column)] - want).abs() < 1e-12 * size as f64, "{size}: {row} {column}");
        }
        let mut matrix = Vec::new();
        for i in 0..size {
            for j in 0..=i {
                let product: f64 =
                    (0..rows.rows()).map(|row| f64::from(rows.row(row)[i]) * f64::from(rows.row(row)[j])).sum();
                matrix.push(product + f64::from(u8::from(i == j)));
            }
        }
        let mut lower = matrix.clone();
        algebra.cholesky(size, &mut lower).expect("a factor");
        for i in 0..size {
            for j in 0..=i {
                let want: f64 = (0..=j).map(|k| lower[at(i, k)] * lower[at(j, k)]).sum();
                assert!((want - matrix[at(i, j)]).abs() < 1e-11 * size as f64, "{size}: {i} {j}");
            }
        }
        // What is not positive definite has no factor.
        let mut indefinite: Vec<f64> = matrix.iter().map(|value| -value).collect();
        algebra.cholesky(size, &mut indefinite).expect("no fault");
        assert!(indefinite[0].is_nan());
        let factors = Algebra::find(&device).expect("a device").expect("cuBLAS").factors(size, &[&lower, &lower]);
        let norms = factors.expect("factors").squared_norms(rows).expect("norms");
        assert_eq!(norms[0], norms[1]);
        for (row, norm) in norms[0].iter().enumerate() {
            let mut solved: Vec<f64> = Vec::new();
            for (i, &value) in rows.row(row).iter().enumerate() {
                let known: f64 = solved.iter().enumerate().map(|(k, value)| lower[at(i, k)] * value).sum();
                solved.push((f64::from(value) - known) / lower[at(i, i)]);
            }
            let want: f64 = solved.iter().map(|value| value * value).sum();
            assert!((norm - want).abs() < 1e-10 * (1.0 + want), "{size} {row}: {norm} {want}");
        }
    }
}
