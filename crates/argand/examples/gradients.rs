//! Training through a sketch: `vjp_into` carries gradients from features back to their rows.
//!
//! The target is the product of the first two of eight columns. There are 36 products of two columns, and only 16 features: a model
//! that is linear in the features has to learn, along with its weights, how much each column matters.
//!
//! `cargo run --release --example gradients`

use argand::{FeatureMap, Rows, RowsMut, Spec};

const ROWS: usize = 256;
const COLUMNS: usize = 8;
const FEATURES: usize = 16;

fn main() -> Result<(), argand::Error> {
    let x: Vec<f64> = (0..ROWS * COLUMNS).map(|i| (0.7 * (i * i) as f64).sin()).collect();
    let targets: Vec<f64> = x.chunks(COLUMNS).map(|row| row[0] * row[1]).collect();
    let sketch = Spec::polynomial(COLUMNS).with_degree(2).with_features(FEATURES).sketch::<f64>()?;

    // The parameters: one scale per column, before the sketch, and one weight per feature, after it.
    let (mut scales, mut weights) = ([0.7; COLUMNS], [0.0; FEATURES]);
    let mut losses = Vec::new();
    for _ in 0..200 {
        // Forward: scale, sketch, weigh, compare.
        let scaled: Vec<f64> = x.chunks(COLUMNS).flat_map(|row| row.iter().zip(scales).map(|(x, s)| x * s)).collect();
        let input = Rows::new(&scaled, ROWS, COLUMNS)?.into();
        let z = sketch.transform(&[input])?;
        let predicted = z.chunks(FEATURES).map(|z| z.iter().zip(weights).map(|(z, w)| z * w).sum::<f64>());
        let residuals: Vec<f64> = predicted.zip(&targets).map(|(predicted, target)| predicted - target).collect();
        losses.push(residuals.iter().map(|r| r * r).sum::<f64>() / ROWS as f64);

        // Backward: the gradient of the loss with respect to the features, 2/n · residual · weight, is the cotangent.
        let step = residuals.iter().map(|r| 2.0 / ROWS as f64 * r);
        let cotangent: Vec<f64> = step.clone().flat_map(|r| weights.map(|w| r * w)).collect();
        let mut gradient = vec![0.0; ROWS * COLUMNS];
        let gradients = &mut [RowsMut::new(&mut gradient, ROWS, COLUMNS)?];
        sketch.vjp_into(&[input], Rows::new(&cotangent, ROWS, FEATURES)?, gradients)?;

        // One step of gradient descent on scales and weights.
        for (gradient, x) in gradient.chunks(COLUMNS).zip(x.chunks(COLUMNS)) {
            scales.iter_mut().zip(gradient).zip(x).for_each(|((scale, g), x)| *scale -= 0.3 * g * x);
        }
        for (r, z) in step.zip(z.chunks(FEATURES)) {
            weights.iter_mut().zip(z).for_each(|(weight, z)| *weight -= 0.3 * r * z);
        }
    }
    println!("mean squared error: {:.4} at first, {:.4} after 200 steps", losses[0], losses[199]);
    println!("scales: {scales:.2?}");
    assert!(losses[199] < 0.1 * losses[0]);
    assert!(scales[2..].iter().all(|scale| *scale < scales[0].min(scales[1]))); // the two that matter stand out
    Ok(())
}
