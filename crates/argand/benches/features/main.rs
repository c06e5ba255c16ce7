//! Compares feature construction with scikit-learn, numpy and the limits of the machine, all in one run.
//!
//! `make bench`: f32, output buffer reused, best of several runs, one thread unless said otherwise. The scikit-learn
//! and numpy columns need `ARGAND_PYTHON`, an interpreter with the packages of `crates/argand-py/requirements.txt`.
//! Arguments: names of sections to run (default: all), of methods to measure (default: all), and `--docs` to put the
//! tables into `docs/`. Tables are also written as CSV to `target/bench/`.

#![allow(clippy::cast_possible_truncation, reason = "sizes are small, and rounding to f32 is meant")]

mod limits;
mod report;
mod rivals;

use std::fmt;
use std::hint::black_box;

use argand::rng::{Purpose, Stream};
use argand::transform::fwht;
use argand::{FeatureMap, Field, Method, Rows, RowsMut, SparseRows, Spec};
use cpu_time::ThreadTime;
use limits::Limits;
use report::{METHODS, ROUNDS, Report, Table, best, data, digits, goal, in_rounds};
use rivals::Rivals;

/// The sizes of one measurement: rows x d, p, D.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) dim: usize,
    pub(crate) degree: usize,
    pub(crate) features: usize,
}

const fn shape(rows: usize, dim: usize, degree: usize, features: usize) -> Shape {
    Shape { rows, dim, degree, features }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} x {}, {}, {}", self.rows, self.dim, self.degree, self.features)
    }
}

const SHAPES: [Shape; 8] = [
    shape(1000, 784, 3, 512),
    shape(1000, 784, 3, 2048),
    shape(1000, 784, 3, 8192),
    shape(1000, 784, 7, 8192),
    shape(20000, 784, 3, 2048),
    shape(20000, 63, 3, 2048),
    shape(20000, 15, 3, 512),
    shape(1000, 4095, 3, 8192),
];

/// Seconds of one method, on the current pool.
fn transform(method: &str, Shape { rows, dim, degree, features }: Shape, budget: f64) -> f64 {
    let method = method.parse().expect("a method");
    let sketch = Spec::polynomial(dim)
        .with_degree(degree)
        .with_features(features)
        .with_method(method)
        .sketch::<f32>()
        .expect("a valid spec");
    let x = data(rows * dim);
    let mut out = vec![0.0; rows * features];
    best(budget, || {
        let x = Rows::new(&x, rows, dim).expect("shape").into();
        let out = RowsMut::new(&mut out, rows, features).expect("shape");
        sketch.transform_into(&[x], out).expect("finite");
    })
}

/// Ten lines anyone would write for real ProductSRHT: pad, flip, transform, gather, multiply, row by row.
fn textbook(Shape { rows, dim, degree, features }: Shape) -> f64 {
    let padded = dim.next_power_of_two();
    let mut stream = Stream::new(2, Purpose::Rows, 0, 0);
    let signs: Vec<f32> = (0..degree * dim).map(|_| stream.below(2) as f32 * 2.0 - 1.0).collect();
    let sampled: Vec<usize> = (0..degree * features).map(|_| stream.below(padded as u32) as usize).collect();
    let x = data(rows * dim);
    let mut out = vec![0.0; rows * features];
    best(0.0, || {
        for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(features)) {
            out.fill(1.0 / (features as f32).sqrt());
            for (signs, sampled) in signs.chunks_exact(dim).zip(sampled.chunks_exact(features)) {
                let mut spread = vec![0.0; padded];
                spread.iter_mut().zip(x.iter().zip(signs)).for_each(|(s, (x, sign))| *s = x * sign);
                fwht::reference(&mut spread);
                out.iter_mut().zip(sampled).for_each(|(out, &row)| *out *= spread[row]);
            }
        }
        black_box(&mut out);
    })
}

/// Milliseconds with three digits.
fn ms(seconds: f64) -> String {
    digits(seconds * 1e3)
}

fn show_limits(report: &Report, limits: &Limits) {
    let mut table = Table::new(["limit", "measured"]);
    let giga = |value: f64, unit: &str| format!("{:.1} {unit}", value / 1e9);
    table.push(["copy, bytes read and written".into(), giga(limits.copy, "GB/s")]);
    table.push(["non-temporal write".into(), giga(limits.write, "GB/s")]);
    table.push(["non-temporal write, two threads".into(), giga(limits.write_two, "GB/s")]);
    table.push(["additions".into(), giga(limits.adds, "G/s")]);
    let gemm = limits.gemm.map_or("-".into(), |gemm| giga(gemm, "GFlop/s"));
    table.push(["numpy's matrix product, 2048 cubed".into(), gemm]);
    report.table("limits", "Limits of this machine, f32, one thread unless said otherwise", &table);
}

fn show_fwht(report: &Report, limits: &Limits) {
    // FFHT's published AVX code on the same kind of machine, as a share of its 92 G additions per second.
    let ffht = |bits: u32| match bits {
        6 => Some(21.0),
        8 => Some(79.0),
        10 => Some(348.0),
        12 => Some(1466.0),
        14 => Some(8700.0),
        16 => Some(40600.0),
        _ => None,
    };
    let mut table =
        Table::new(["length", "reference, ns", "argand, ns", "share of additions, %", "FFHT's share, %", "goal"]);
    for bits in 6..=16 {
        // Aligned to a cache line, as a library that transforms in place would do.
        let mut memory = vec![0.0_f32; (1 << bits) + 16];
        let start = memory.as_ptr().align_offset(64).min(16);
        let buffer = &mut memory[start..start + (1 << bits)];
        let repeat = (1 << 20) / buffer.len();
        let mut time = |transform: &dyn Fn(&mut [f32])| {
            best(0.2, || (0..repeat).for_each(|_| transform(black_box(&mut *buffer)))) / repeat as f64
        };
        let [slow, fast] = in_rounds(ROUNDS, || {
            [time(&|data| fwht::reference(data)), time(&|data| fwht::fwht(data).expect("a power of two"))]
        });
        let adds = f64::from(bits << bits);
        let share = adds / fast / limits.adds;
        let theirs = ffht(bits).map(|ns| adds / (ns * 1e-9) / 92e9);
        // 30 % from 256 on; below, FFHT's own share.
        let wanted = if bits >= 8 { 0.3 } else { theirs.unwrap_or(0.0) };
        table.push([
            format!("{}", 1 << bits),
            format!("{:.0}", slow * 1e9),
            format!("{:.0}", fast * 1e9),
            format!("{:.0}", share * 100.0),
            theirs.map_or(String::new(), |share| format!("{:.0}", share * 100.0)),
            (if share >= wanted { "✓" } else { "✗" }).into(),
        ]);
    }
    report.table("fwht", "Walsh-Hadamard transform of one vector, f32", &table);
}

/// The table of all methods beside the others, and the one of goals.
fn show_features(report: &Report, limits: &Limits, rivals: &mut Option<Rivals>) {
    let mut times = Table::new(
        ["rows x d, p, D", "scikit-learn", "numpy", "numpy, ctr", "textbook product-srht", "bound"]
            .into_iter()
            .chain(METHODS),
    );
    let mut goals = Table::new([
        "rows x d, p, D",
        "ctr-product-srht: bound x, ≤ 2.5",
        "ctr-product-srht: scikit-learn, ≥ 20 (60)",
        "rademacher: numpy, ≥ 2",
        "ctr-rademacher: numpy ctr, ≥ 2",
        "gaussian: numpy, ≥ 0.95",
        "ctr-gaussian: numpy ctr, ≥ 0.95",
        "tensor-sketch: scikit-learn, ≥ 4",
        "slowest method: scikit-learn, > 1",
    ]);
    for (index, shape) in SHAPES.into_iter().enumerate() {
        // Times that were not measured count as infinite.
        let others = ["sklearn", "numpy", "numpy-ctr"];
        let best: [f64; 4 + METHODS.len()] = in_rounds(ROUNDS, || {
            let mut rival = |name| rivals.as_mut().map_or(f64::INFINITY, |rivals| rivals.time(name, shape));
            let [sklearn, numpy, numpy_ctr] = others.map(&mut rival);
            let ours = |method| if report.wants_method(method) { transform(method, shape, 0.4) } else { f64::INFINITY };
            let argand = METHODS.map(ours);
            std::array::from_fn(|at| match at {
                0 => sklearn,
                1 => numpy,
                2 => numpy_ctr,
                3 => textbook(shape),
                at => argand[at - 4],
            })
        });
        let measured = best.map(|time| Some(time).filter(|time| time.is_finite()));
        let [sklearn, numpy, numpy_ctr, textbook] = [0, 1, 2, 3].map(|at| measured[at]);
        let argand: [Option<f64>; METHODS.len()] = std::array::from_fn(|at| measured[at + 4]);
        let bound = limits.bound(shape);
        let all = [sklearn, numpy, numpy_ctr, textbook, Some(bound)].into_iter().chain(argand);
        times.push(std::iter::once(shape.to_string()).chain(all.map(|time| time.map_or("-".into(), ms))));

        let of = |name| METHODS.iter().position(|&method| method == name).and_then(|at| argand[at]);
        let against = |time: Option<f64>, ours: Option<f64>, least: f64| {
            let ratio = time.zip(ours).map(|(time, ours)| time / ours);
            ratio.map_or("-".into(), |ratio| goal(ratio, ratio >= least))
        };
        let srht = of("ctr-product-srht");
        let slowest = argand.into_iter().flatten().reduce(f64::max);
        goals.push([
            shape.to_string(),
            srht.map_or("-".into(), |srht| goal(srht / bound, srht / bound <= 2.5)),
            against(sklearn, srht, if index == 2 { 60.0 } else { 20.0 }),
            against(numpy, of("rademacher"), 2.0),
            against(numpy_ctr, of("ctr-rademacher"), 2.0),
            against(numpy, of("gaussian"), 0.95),
            against(numpy_ctr, of("ctr-gaussian"), 0.95),
            against(sklearn, of("tensor-sketch"), 4.0),
            against(sklearn, slowest, 1.0),
        ]);
        eprintln!("{shape}: done");
    }
    report.table("features", "Features, f32, one thread, output buffer reused, ms", &times);
    report.table("goals", "The same as ratios, with their goals (✓ met, ✗ missed)", &goals);
}

/// Every sketch beside scikit-learn's, in processor time: it tells more on a machine that others use.
fn show_methods(report: &Report, rivals: &mut Option<Rivals>) {
    const SIZES: [Shape; 2] = [shape(1000, 784, 3, 2048), shape(1000, 784, 7, 2048)];
    let theirs = SIZES.map(|size| rivals.as_mut().map(|rivals| rivals.time("sklearn-processor", size)));
    let mut header = vec!["method".to_owned()];
    header.extend(SIZES.iter().flat_map(|size| [format!("{size}, ms"), "scikit-learn's over it".to_owned()]));
    let mut table = Table::new(header);
    let line = |name: &str, times: [Option<f64>; 2]| {
        let cells = times.iter().zip(&theirs).flat_map(|(&time, &theirs)| {
            let ratio = theirs.zip(time).map(|(theirs, time)| theirs / time);
            [time.map_or("-".into(), ms), ratio.map_or("-".into(), digits)]
        });
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    table.push(line("PolynomialCountSketch", theirs));
    for method in Method::products()
        .into_iter()
        .filter(|method| method.field != Field::Complex)
        .map(Method::Product)
        .chain([Method::Spherical])
    {
        let times = SIZES.map(|size| processor_time(method, size));
        table.push(line(&method.to_string(), times));
        eprintln!("{method}: done");
    }
    report.table("methods", "Every method, f32, one thread, processor time", &table);
}

/// Seconds of processor time for the features of one method: the least of three runs. None if its sketch exceeds the memory limit.
fn processor_time(method: Method, Shape { rows, dim, degree, features }: Shape) -> Option<f64> {
    let spec = Spec::polynomial(dim)
        .with_degree(degree)
        .with_features(features)
        .with_method(method)
        .with_gamma(0.5)
        .with_coef0(0.5);
    let sketch = match spec.sketch::<f32>() {
        Err(argand::Error::TooLarge { .. }) => return None,
        sketch => sketch.expect("a valid spec"),
    };
    let mut out = vec![0.0; rows * features];
    // Rows of unit norm, which spherical features need.
    let mut x = data(rows * dim);
    for row in x.chunks_exact_mut(dim) {
        let norm = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        row.iter_mut().for_each(|value| *value /= norm);
    }
    let mut run = || {
        let begun = ThreadTime::now();
        let input = Rows::new(&x, rows, dim).expect("shape").into();
        sketch.transform_into(&[input], RowsMut::new(&mut out, rows, features).expect("shape")).expect("finite");
        begun.elapsed().as_secs_f64()
    };
    run();
    (0..3).map(|_| run()).reduce(f64::min)
}

fn show_threads(report: &Report) {
    /// Rounds: two cores are quiet together more rarely than one.
    const PAIRED: usize = 8;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        println!("threads: skipped, one core only\n");
        return;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("two threads");
    let mut table = Table::new(["rows x d, p, D", "method", "one thread, ms", "two threads, ms", "ratio, ≥ 1.8"]);
    for shape in SHAPES.into_iter().filter(|shape| shape.rows >= 20000) {
        for method in METHODS.into_iter().filter(|method| report.wants_method(method)) {
            let [one, two] =
                in_rounds(PAIRED, || [transform(method, shape, 0.2), pool.install(|| transform(method, shape, 0.2))]);
            table.push([shape.to_string(), method.into(), ms(one), ms(two), goal(one / two, one / two >= 1.8)]);
        }
    }
    report.table("threads", "One and two threads", &table);
}

fn show_scaling(report: &Report) {
    const BASE: Shape = shape(1000, 512, 3, 4096);
    type Vary = fn(&mut Shape) -> &mut usize;
    let axes: [(&str, Vary, &[usize]); 4] = [
        ("D", |shape| &mut shape.features, &[256, 512, 1024, 2048, 4096, 8192, 16384, 32768]),
        ("d", |shape| &mut shape.dim, &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096]),
        ("p", |shape| &mut shape.degree, &[1, 2, 4, 8, 16]),
        ("n", |shape| &mut shape.rows, &[1, 4, 16, 64, 256, 1024, 4096]),
    ];
    let methods = ["ctr-product-srht", "gaussian", "rademacher", "tensor-sketch"];
    let mut table = Table::new(["over", "size"].into_iter().chain(methods));
    for (name, vary, sizes) in axes {
        let measured: Vec<[f64; 4]> = sizes
            .iter()
            .map(|&size| {
                let mut shape = BASE;
                *vary(&mut shape) = size;
                methods.map(|method| transform(method, shape, 0.1))
            })
            .collect();
        for (size, times) in sizes.iter().zip(&measured) {
            table.push([name.to_owned(), size.to_string()].into_iter().chain(times.map(ms)));
        }
    }
    report.table("scaling", &format!("Time over each size, ms; the others stay at {BASE}"), &table);
}

fn show_sparse(report: &Report) {
    let mut table = Table::new(["columns", "microseconds per row"]);
    for columns in [1_000_u32, 1_000_000] {
        let rows = 2000;
        let mut stream = Stream::new(3, Purpose::Rows, 0, 0);
        let starts: Vec<u32> = (0..=rows).map(|row| 10 * row as u32).collect();
        let indices: Vec<u32> = (0..10 * rows).map(|_| stream.below(columns)).collect();
        let values = data(10 * rows);
        let method = "tensor-sketch".parse().expect("a method");
        let sketch = Spec::polynomial(columns as usize)
            .with_degree(3)
            .with_features(1024)
            .with_method(method)
            .sketch::<f32>()
            .expect("a valid spec");
        let mut out = vec![0.0_f32; rows * 1024];
        let time = best(0.4, || {
            let x = SparseRows::new(&starts[..], &indices[..], &values, columns as usize).expect("shape");
            let out = RowsMut::new(&mut out, rows, 1024).expect("shape");
            sketch.transform_into(&[x.into()], out).expect("finite");
        });
        table.push([columns.to_string(), format!("{:.1}", time * 1e6 / rows as f64)]);
    }
    report.table("sparse", "tensor-sketch on sparse rows with 10 non-zeros, p = 3, D = 1024", &table);
}

/// A few rows at a time, and new results beside a reused buffer.
fn show_batches(report: &Report) {
    let (dim, degree, features) = (512, 3, 4096);
    let sketch =
        Spec::polynomial(dim).with_degree(degree).with_features(features).sketch::<f32>().expect("a valid spec");
    let (x, mut out) = (data(16 * dim), vec![0.0; 16 * features]);
    let mut time = |rows: usize| {
        best(0.3, || {
            for _ in 0..100 {
                let x = Rows::new(&x[..rows * dim], rows, dim).expect("shape").into();
                let out = RowsMut::new(&mut out[..rows * features], rows, features).expect("shape");
                sketch.transform_into(&[x], out).expect("finite");
            }
        }) / 100.0
    };
    let tile = time(16);
    let mut table = Table::new(["rows", "microseconds", "times their share of sixteen"]);
    for rows in [1, 2, 4, 7, 8, 12, 16] {
        let taken = time(rows);
        table.push([rows.to_string(), digits(taken * 1e6), digits(taken / (tile * rows as f64 / 16.0))]);
    }
    report.table("batches", "Few rows, d = 512, p = 3, D = 4096, ctr-product-srht, one thread", &table);

    let mut table = Table::new(["rows x d, p, D", "new result, ms", "reused buffer, ms", "ratio"]);
    for shape @ Shape { rows, dim, degree, features } in [shape(20000, 63, 3, 2048), shape(60000, 784, 3, 2048)] {
        let spec = Spec::polynomial(dim).with_degree(degree).with_features(features);
        let (sketch, x) = (spec.sketch::<f32>().expect("a valid spec"), data(rows * dim));
        let input = || Rows::new(&x, rows, dim).expect("shape").into();
        let fresh = best(1.0, || drop(black_box(sketch.transform(&[input()]).expect("finite"))));
        let mut out = vec![0.0; rows * features];
        let reused = best(1.0, || {
            sketch.transform_into(&[input()], RowsMut::new(&mut out, rows, features).expect("shape")).expect("finite");
        });
        table.push([shape.to_string(), digits(fresh * 1e3), digits(reused * 1e3), digits(fresh / reused)]);
    }
    report.table("results", "New results beside a reused buffer, ctr-product-srht, all threads", &table);
}

fn main() {
    let report = Report::from_arguments();
    let mut rivals = Rivals::start();
    let limits = Limits::measure(rivals.as_mut());
    show_limits(&report, &limits);
    let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    single.install(|| {
        if report.wants("fwht") {
            show_fwht(&report, &limits);
        }
        if report.wants("features") {
            show_features(&report, &limits, &mut rivals);
        }
        if report.wants("methods") {
            show_methods(&report, &mut rivals);
        }
        if report.wants("scaling") {
            show_scaling(&report);
        }
        if report.wants("sparse") {
            show_sparse(&report);
        }
    });
    if report.wants("batches") {
        show_batches(&report);
    }
    if report.wants("threads") {
        single.install(|| show_threads(&report));
    }
}
