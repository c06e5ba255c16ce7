//! Two tables about the same items, say images and captions, and the products of all their columns.
//!
//! `cargo run --release --example distinct_inputs`

use argand::{FeatureMap, Rows, Spec};

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn main() -> Result<(), argand::Error> {
    // Row i of both tables describes item i. The numbers of columns may differ.
    let rows = 50;
    let (image_columns, text_columns) = (300, 64);
    let images: Vec<f64> = (0..rows * image_columns).map(|i| (0.11 * i as f64).sin() / 10.0).collect();
    let texts: Vec<f64> = (0..rows * text_columns).map(|i| (0.23 * i as f64).cos() / 5.0).collect();
    let (images, texts) = (Rows::new(&images, rows, image_columns)?, Rows::new(&texts, rows, text_columns)?);

    // The tensor product of two rows has 300 · 64 = 19200 entries. Its sketch has 4096, and the product is never formed.
    let features = 4096;
    let sketch = Spec::tensor_product(&[image_columns, text_columns]).with_features(features).sketch::<f64>()?;
    assert_eq!(sketch.input_dims(), [image_columns, text_columns]);
    let z = sketch.transform(&[images.into(), texts.into()])?;
    let z = Rows::new(&z, rows, features)?;

    // Items are alike if both their images and their texts are: inner products multiply.
    let (mut squared_error, mut squared_kernel) = (0.0, 0.0);
    for i in 0..rows {
        for j in 0..rows {
            let exact = dot(images.row(i), images.row(j)) * dot(texts.row(i), texts.row(j));
            squared_error += (dot(z.row(i), z.row(j)) - exact).powi(2);
            squared_kernel += exact.powi(2);
        }
    }
    let error = (squared_error / squared_kernel).sqrt();
    println!("19200 products in {features} features: relative error of the kernel matrix {error:.4}");
    assert!(error < 0.1);
    Ok(())
}
