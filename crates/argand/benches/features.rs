//! Feature construction beside scikit-learn and a textbook implementation, and the transform beside its reference.
//!
//! `make bench`. One thread, f32, output buffer reused, best of several runs; all columns are from the same run. The
//! scikit-learn column needs `ARGAND_PYTHON`, an interpreter with the packages of `requirements.txt`.

#![allow(clippy::cast_possible_truncation, reason = "sizes are small, and rounding to f32 is meant")]

use std::hint::black_box;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use argand::rng::{Purpose, Stream};
use argand::transform::fwht;
use argand::{FeatureMap, Method, Rows, RowsMut, SparseRows, Spec};

/// The fastest of as many runs as fit into 0.4 seconds, at least 3.
fn best(mut run: impl FnMut()) -> Duration {
    run();
    let begun = Instant::now();
    let mut fastest = Duration::MAX;
    let mut runs = 0;
    while runs < 3 || begun.elapsed() < Duration::from_millis(400) {
        let start = Instant::now();
        run();
        fastest = fastest.min(start.elapsed());
        runs += 1;
    }
    fastest
}

fn data(length: usize) -> Vec<f32> {
    let mut stream = Stream::new(1, Purpose::Weights, 0, 0);
    (0..length).map(|_| stream.uniform() as f32 / 8.0).collect()
}

/// Ten lines anyone would write for real ProductSRHT: pad, flip, transform, gather, multiply, row by row.
fn textbook(x: &[f32], dim: usize, degree: usize, signs: &[f32], sampled: &[usize], out: &mut [f32]) {
    let padded = dim.next_power_of_two();
    let features = sampled.len() / degree;
    for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(features)) {
        out.fill(1.0 / (features as f32).sqrt());
        for factor in 0..degree {
            let mut spread = vec![0.0; padded];
            let signs = &signs[factor * dim..];
            spread.iter_mut().zip(x.iter().zip(signs)).for_each(|(s, (x, sign))| *s = x * sign);
            fwht::reference(&mut spread);
            let sampled = &sampled[factor * features..];
            out.iter_mut().zip(sampled).for_each(|(out, &row)| *out *= spread[row]);
        }
    }
}

/// Milliseconds of scikit-learn's PolynomialCountSketch for each shape, if there is an interpreter to ask.
fn sklearn(shapes: &[[usize; 4]]) -> Option<Vec<f64>> {
    let Some(python) = std::env::var_os("ARGAND_PYTHON") else {
        eprintln!("ARGAND_PYTHON is not set: no scikit-learn column");
        return None;
    };
    let mut command = Command::new(python);
    command.args(["-c", include_str!("sklearn_times.py")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(variable, "1");
    }
    let mut child = command.spawn().expect("ARGAND_PYTHON runs");
    let lines: Vec<String> = shapes.iter().map(|shape| shape.map(|size| size.to_string()).join(" ") + "\n").collect();
    child.stdin.take().expect("piped").write_all(lines.concat().as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let times = String::from_utf8_lossy(&output.stdout).lines().map(|line| line.parse().expect("a number")).collect();
    output.status.success().then_some(times)
}

fn main() {
    let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    single.install(|| {
        println!("Walsh-Hadamard transform, f32\n\n| length | reference | argand | ratio |\n|---:|---:|---:|---:|");
        for bits in [6, 8, 10, 12, 14, 16, 20] {
            let mut buffer = vec![0.0_f32; 1 << bits];
            let repeat = (1 << 20) / buffer.len();
            let mut time = |transform: &dyn Fn(&mut [f32])| {
                best(|| (0..repeat).for_each(|_| transform(black_box(&mut buffer)))).as_nanos() as f64 / repeat as f64
            };
            let slow = time(&|data| fwht::reference(data));
            let fast = time(&|data| fwht::fwht(data).expect("a power of two"));
            println!("| {} | {slow:.0} ns | {fast:.0} ns | {:.1} |", 1 << bits, slow / fast);
        }

        println!("\nFeatures, f32, one thread, ms (in brackets: times faster than scikit-learn)\n");
        let methods: Vec<Method> = [
            "gaussian",
            "ctr-gaussian",
            "rademacher",
            "ctr-rademacher",
            "product-srht",
            "ctr-product-srht",
            "chain-ctr-product-srht",
            "tensor-sketch",
        ]
        .map(|name| name.parse().expect("a method"))
        .to_vec();
        let shapes = [
            [1000, 784, 3, 512],
            [1000, 784, 3, 2048],
            [1000, 784, 3, 8192],
            [1000, 784, 7, 8192],
            [20000, 784, 3, 2048],
            [20000, 63, 3, 2048],
            [20000, 15, 3, 512],
            [1000, 4095, 3, 8192],
        ];
        let rivals = sklearn(&shapes);
        let names: Vec<_> = methods.iter().map(Method::to_string).collect();
        println!(
            "| rows x d, p, D | scikit-learn PolynomialCountSketch | textbook product-srht | {} |",
            names.join(" | ")
        );
        println!("|---|{}", "---:|".repeat(methods.len() + 2));
        for (index, [rows, dim, degree, features]) in shapes.into_iter().enumerate() {
            let x = data(rows * dim);
            let mut out = vec![0.0_f32; rows * features];
            let mut stream = Stream::new(2, Purpose::Rows, 0, 0);
            let signs: Vec<f32> = (0..degree * dim).map(|_| stream.below(2) as f32 * 2.0 - 1.0).collect();
            let padded = dim.next_power_of_two() as u32;
            let sampled: Vec<usize> = (0..degree * features).map(|_| stream.below(padded) as usize).collect();
            let slow = best(|| textbook(&x, dim, degree, &signs, &sampled, black_box(&mut out))).as_secs_f64();
            let rival = rivals.as_ref().and_then(|times| times.get(index)).copied();
            let against = |time: f64| {
                let ratio = rival.map(|rival| rival / 1e3 / time);
                ratio.map_or(String::new(), |ratio| format!(" ({ratio:.*}x)", usize::from(ratio < 10.0)))
            };
            let rival = rival.map_or("-".to_owned(), |rival| format!("{rival:.0}"));
            print!("| {rows} x {dim}, {degree}, {features} | {rival} | {:.1}{} |", slow * 1e3, against(slow));
            for &method in &methods {
                let sketch =
                    Spec::new(dim, degree, features).with_method(method).sample::<f32>().expect("a valid spec");
                let time = best(|| {
                    let x = Rows::new(&x, rows, dim).expect("shape").into();
                    let out = RowsMut::new(&mut out, rows, features).expect("shape");
                    sketch.transform_into(&[x], out).expect("finite");
                })
                .as_secs_f64();
                print!(" {:.1}{} |", time * 1e3, against(time));
            }
            println!();
        }

        println!("\ntensor-sketch on sparse rows with 10 non-zeros, p = 3, D = 1024\n");
        println!("| columns | microseconds per row |\n|---:|---:|");
        for columns in [1_000_u32, 1_000_000] {
            let rows = 2000;
            let mut stream = Stream::new(3, Purpose::Rows, 0, 0);
            let starts: Vec<u32> = (0..=rows).map(|row| 10 * row as u32).collect();
            let indices: Vec<u32> = (0..10 * rows).map(|_| stream.below(columns)).collect();
            let values = data(10 * rows);
            let method = "tensor-sketch".parse().expect("a method");
            let sketch =
                Spec::new(columns as usize, 3, 1024).with_method(method).sample::<f32>().expect("a valid spec");
            let mut out = vec![0.0_f32; rows * 1024];
            let time = best(|| {
                let x = SparseRows::new(&starts[..], &indices[..], &values, columns as usize).expect("shape");
                let out = RowsMut::new(&mut out, rows, 1024).expect("shape");
                sketch.transform_into(&[x.into()], out).expect("finite");
            });
            println!("| {columns} | {:.1} |", time.as_secs_f64() * 1e6 / rows as f64);
        }
    });
}
