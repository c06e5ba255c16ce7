//! Sketches that are made and dropped by the thousand, and shared by many threads.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use argand::{FeatureMap, Rows, Spec};

/// Resident memory in kilobytes, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().trim_end_matches(" kB").parse().ok()
}

const METHODS: [&str; 6] = [
    "ctr-product-srht",
    "gaussian",
    "ctr-rademacher",
    "tensor-sketch",
    "hierarchical-ctr-product-srht",
    "chain-product-srht",
];

/// A thousand sketches are made, used and dropped in the memory of the first hundred.
#[test]
fn memory_does_not_grow_with_the_number_of_sketches() {
    let x: Vec<f32> = (0..200 * 24).map(|i| (i * 37 % 101) as f32 / 101.0).collect();
    let cycle = |seed: u64| {
        let method = METHODS[usize::try_from(seed).unwrap() % METHODS.len()].parse().unwrap();
        let spec = Spec::polynomial(24).with_degree(3).with_features(512).with_method(method).with_seed(seed);
        let sketch = spec.sketch::<f32>().unwrap();
        sketch.transform(&[Rows::new(&x, 200, 24).unwrap().into()]).unwrap()[0]
    };
    let first: f32 = (0..100).map(&cycle).sum();
    assert!(first.is_finite());
    let Some(before) = resident() else {
        eprintln!("not tested: this system does not tell how much memory is resident");
        return;
    };
    let rest: f32 = (100..1100).map(cycle).sum();
    assert!(rest.is_finite());
    let after = resident().unwrap();
    // A leak of one sketch in ten would take 100 times 400 kB and more.
    assert!(after < before + 16_000, "{before} kB before, {after} kB after");
}

/// Sixteen threads use one sketch at the same time, each with its own rows, and get the features that one thread gets.
#[test]
fn threads_share_a_sketch() {
    for method in METHODS {
        let sketch = Spec::polynomial(24)
            .with_degree(3)
            .with_features(256)
            .with_method(method.parse().unwrap())
            .sketch::<f32>()
            .unwrap();
        let rows = |thread: usize| -> Vec<f32> {
            (0..50 * 24).map(|i| ((i + 7 * thread) * 37 % 101) as f32 / 101.0).collect()
        };
        let features = |x: &[f32]| sketch.transform(&[Rows::new(x, 50, 24).unwrap().into()]).unwrap();
        let alone: Vec<Vec<f32>> = (0..16).map(|thread| features(&rows(thread))).collect();
        std::thread::scope(|scope| {
            for (thread, alone) in alone.iter().enumerate() {
                scope.spawn(move || (0..20).for_each(|_| assert_eq!(features(&rows(thread)), *alone, "{method}")));
            }
        });
    }
}
