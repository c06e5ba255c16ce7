//! The drawn matrices of every spec, entry by entry, against code that shares only the random streams with the library.
//! Then stream versions, and independence of the number of threads.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod common;

use argand::draw::{Draw, Map, Projection};
use argand::rng::{Purpose, Stream, StreamVersion};
use argand::{Base, Field, Method, Spec};
use common::*;

/// A projection matrix, entry by entry from the definition and the streams; `None` for a base that this file does not know.
fn independent(draw: Draw) -> Option<Vec<Vec<Complex>>> {
    let Draw { base, complex, seed, stream: index, sorted, dim, outputs: rows, .. } = draw;
    let sign = |bits: u64| {
        if complex {
            [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][bits as usize]
        } else {
            (1.0 - 2.0 * bits as f64, 0.0)
        }
    };
    let width = if complex { 2 } else { 1 };
    // Signs are read from the low end of each 64-bit word, at most 64 / width from one.
    let signs = |stream: &mut Stream, count: usize| -> Vec<Complex> {
        let mut drawn = vec![];
        while drawn.len() < count {
            let word = stream.bits();
            drawn.extend((0..64 / width).map(|place| sign(word >> (place * width) & ((1 << width) - 1))));
        }
        drawn.truncate(count);
        drawn
    };
    Some(match base {
        Base::Gaussian => (0..rows)
            .map(|row| {
                let mut stream = Stream::new(seed, Purpose::Weights, index, row as u32);
                if complex {
                    (0..dim).map(|_| stream.complex_normal()).collect()
                } else {
                    let pairs = (0..dim.div_ceil(2)).map(|_| stream.complex_normal());
                    let parts = pairs.flat_map(|(re, im)| [re, im]);
                    parts.map(|part| (part * 2_f64.sqrt(), 0.0)).take(dim).collect()
                }
            })
            .collect(),
        Base::Rademacher => {
            (0..rows).map(|row| signs(&mut Stream::new(seed, Purpose::Weights, index, row as u32), dim)).collect()
        }
        Base::ProductSrht | Base::TensorSrht => {
            let padded = dim.next_power_of_two();
            let diagonal = signs(&mut Stream::new(seed, Purpose::Signs, index, 0), dim);
            let mut stream = Stream::new(seed, Purpose::Rows, index, 0);
            let mut chosen: Vec<usize> = if base == Base::TensorSrht {
                (0..rows).map(|_| stream.below(padded as u32) as usize).collect()
            } else {
                // Draw without replacement: take the row of H at the drawn position of the stack, and move the first
                // remaining one into the gap.
                let mut left: std::collections::VecDeque<usize> = (0..rows.div_ceil(padded) * padded).collect();
                (0..rows)
                    .map(|_| {
                        let place = stream.below(left.len() as u32) as usize;
                        let taken = left[place];
                        left[place] = left[0];
                        left.pop_front();
                        taken
                    })
                    .collect()
            };
            if sorted {
                chosen.sort_unstable();
            }
            let hadamard =
                |row: usize, column: usize| if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            chosen
                .iter()
                .map(|&row| (0..dim).map(|k| times((hadamard(row % padded, k), 0.0), diagonal[k])).collect())
                .collect()
        }
        Base::TensorSketch => {
            let diagonal = signs(&mut Stream::new(seed, Purpose::Signs, index, 0), dim);
            let mut stream = Stream::new(seed, Purpose::Buckets, index, 0);
            let buckets: Vec<usize> = (0..dim).map(|_| stream.below(rows as u32) as usize).collect();
            (0..rows)
                .map(|row| (0..dim).map(|k| times(fourier(rows, row, buckets[k]), diagonal[k])).collect())
                .collect()
        }
        _ => return None,
    })
}

/// exp(−2πi row column / length).
fn fourier(length: usize, row: usize, column: usize) -> Complex {
    let (sin, cos) = (-std::f64::consts::TAU * (row * column % length) as f64 / length as f64).sin_cos();
    (cos, sin)
}

fn close(got: &[Vec<Complex>], want: &[Vec<Complex>]) -> bool {
    let pairs = got.iter().flatten().zip(want.iter().flatten());
    got.len() == want.len() && pairs.into_iter().all(|(a, b)| (a.0 - b.0).abs() < 1e-12 && (a.1 - b.1).abs() < 1e-12)
}

fn projections(spec: &Spec) -> Vec<Projection> {
    let Map::Product(product) = spec.draw().unwrap().map else { panic!("{} is not a product", spec.method) };
    product.projections().cloned().collect()
}

/// All matrices of all methods, except for the Fourier transforms after some.
#[test]
fn matrices_are_those_of_the_streams() {
    for method in methods() {
        for (dim, degree, features) in [(1, 1, 2), (5, 3, 14), (8, 4, 16), (33, 2, 50)] {
            let mut spec = Spec::polynomial(dim).with_degree(degree).with_features(features).with_method(method);
            spec = spec.with_coef0(0.5).with_seed(2024);
            for (number, mut projection) in projections(&spec).into_iter().enumerate() {
                projection.draw.transformed = false;
                if let Some(want) = independent(projection.draw) {
                    assert!(close(&matrix(&projection), &want), "{method} {dim} {degree} {features}: {number}");
                }
            }
        }
    }
}

/// No two projections of a sketch share a stream, and factors come first.
#[test]
fn streams_are_numbered_apart() {
    for method in methods() {
        let spec = Spec::polynomial(6).with_degree(5).with_features(12).with_method(method);
        let mut numbers: Vec<u32> = projections(&spec).iter().map(|projection| projection.draw.stream).collect();
        numbers.sort_unstable();
        assert_eq!(numbers[..5], [0, 1, 2, 3, 4], "{method}");
        assert!(numbers.is_sorted_by(|a, b| a < b), "{method}: {numbers:?}");
    }
}

/// E[w wᴴ] = I for every base and field: the mean of |w|² over many entries, within 5 standard errors.
#[test]
fn entries_have_unit_second_moments() {
    for base in Base::all() {
        for field in [Field::Real, Field::ComplexToReal] {
            let spec = Spec::polynomial(64).with_degree(1).with_features(512).with_method(Method::flat(base, field));
            let entries: Vec<f64> =
                matrix(&projections(&spec)[0]).iter().flatten().map(|&(re, im)| re * re + im * im).collect();
            let count = entries.len() as f64;
            let mean = entries.iter().sum::<f64>() / count;
            let spread = entries.iter().map(|square| (square - mean).powi(2)).sum::<f64>() / count;
            assert!((mean - 1.0).abs() <= 5.0 * (spread / count).sqrt() + 1e-12, "{base:?} {field:?}: {mean}");
        }
    }
}

/// A spec keeps its stream version, whatever the latest one is.
#[test]
fn stream_versions_stay_with_the_spec() {
    let spec = Spec::polynomial(4).with_features(8);
    assert_eq!((spec.stream_version, StreamVersion::V1.number()), (StreamVersion::LATEST, 1));
    let read = Spec::from_json(&spec.to_json()).unwrap();
    assert_eq!(read.stream_version, StreamVersion::V1);
    assert_eq!(read.draw().unwrap(), spec.draw().unwrap());
    assert!(projections(&read).iter().all(|projection| projection.draw.stream_version == StreamVersion::V1));
}

#[test]
fn drawing_counts_its_memory() {
    for method in methods() {
        let spec = Spec::polynomial(100).with_degree(3).with_features(64).with_method(method);
        let bytes: u64 = projections(&spec).iter().map(Projection::bytes).sum();
        assert!(bytes <= spec.drawn_bytes().unwrap(), "{method}");
        assert!(spec.drawn_bytes().unwrap() <= spec.memory_bytes::<f32>().unwrap(), "{method}");
    }
}
