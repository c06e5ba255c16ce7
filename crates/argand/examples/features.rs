//! From rows to features: what goes in, what comes out, and how accurate it is.
//!
//! `cargo run --release --example features`

use argand::{FeatureMap, Rows, Spec, theory};

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn main() -> Result<(), argand::Error> {
    // 200 rows of 20 numbers, one row after the other. Any buffer of yours will do: it is borrowed, not copied.
    let (rows, columns) = (200, 20);
    let x: Vec<f32> = (0..rows * columns).map(|i| (0.37 * i as f32).sin()).collect();
    let table = Rows::new(&x, rows, columns)?;

    // Say which kernel, (⟨x, y⟩/20 + 1)³, and how many features. The seed determines the random numbers.
    let features = 2048;
    let spec =
        Spec::polynomial(columns).with_degree(3).with_gamma(0.05).with_coef0(1.0).with_features(features).with_seed(7);

    // Draw the sketch once. Use it for all rows to be compared, in training and in prediction.
    let sketch = spec.sketch::<f32>()?;
    let z = sketch.transform(&[table.into()])?;
    assert_eq!(z.len(), rows * features);

    // An inner product of features estimates the kernel, so whatever is linear in z is a kernel method in x.
    let estimate = dot(&z[..features], &z[features..2 * features]);
    let exact = (0.05 * dot(table.row(0), table.row(1)) + 1.0).powi(3);
    println!("kernel of the first two rows: {estimate:.4} by features, {exact:.4} exactly");
    assert!((estimate - exact).abs() < 0.3);

    // How far off is the whole 200 x 200 kernel matrix, and how far was it expected to be before anything was drawn?
    let error = theory::kernel_error(&spec, &[table.into()], Rows::new(&z, rows, features)?)?;
    let expected = theory::expected_error(&spec, &[table.into()], &theory::Sampling::default())?;
    println!("relative error of the kernel matrix: {error:.4}, expected {:.4}", expected.relative);
    assert!(error < 2.0 * expected.relative);
    Ok(())
}
