//! Learning on features: sums over rows in one pass, then ridge regression and a Gaussian process from the sums.
//!
//! `cargo run --release --example models`

use argand::{Error, Input, Rows, Spec};
use argand_learn::{GpClassifier, GpOptions, Gram, Labels, PreparationFit, Recipe, Ridge, Scaling, Targets, largest};

const COLUMNS: usize = 6;

/// The share of rows whose class, the place of the largest of the scores, is another.
fn error_rate(scores: &[f64], classes: &[u32]) -> f64 {
    let wrong = largest(scores, 3).iter().zip(classes).filter(|(got, want)| got != want).count();
    wrong as f64 / classes.len() as f64
}

fn main() -> Result<(), Error> {
    // Three classes by the product of two of six columns: nothing that is linear in the rows can tell them apart.
    let x: Vec<f32> = (0..3000 * COLUMNS).map(|i| (0.7 * (i * i % 10_007) as f32).sin()).collect();
    let product = |row: &[f32]| row[0] * row[1];
    let classes: Vec<u32> =
        x.chunks(COLUMNS).map(|row| u32::from(product(row) > -0.1) + u32::from(product(row) > 0.1)).collect();
    let train: [Input<'_, f32>; 1] = [Rows::new(&x[..2000 * COLUMNS], 2000, COLUMNS)?.into()];
    let test: [Input<'_, f32>; 1] = [Rows::new(&x[2000 * COLUMNS..], 1000, COLUMNS)?.into()];

    // A recipe is the way from rows to features: a scaling, fitted on the rows to learn from, and a sketch.
    let mut scaling = PreparationFit::new(Scaling::Standard, &[COLUMNS]);
    scaling.update(&train)?;
    let spec = Spec::polynomial(COLUMNS).with_degree(2).with_coef0(1.0).with_features(256);
    let recipe = Recipe::new(scaling.finish()?, spec);
    let pipeline = recipe.pipeline::<f32>()?;

    // One pass over the rows, in blocks. Sums of other files and machines could be merged in.
    let mut gram = Gram::new(&recipe, Targets::ClassesApart(3))?;
    pipeline.for_each_block(&train, |range, features| gram.update(features, Labels::Classes(&classes[range])))?;

    // Both models come from the same sums.
    let ridge = Ridge::fit(&gram, 1.0)?;
    let gp = GpClassifier::fit(&gram, &GpOptions::default())?;
    let (mut by_ridge, mut by_gp) = (vec![], vec![]);
    pipeline.for_each_block(&test, |_, features| {
        by_ridge.extend(ridge.predict(features)?);
        by_gp.extend(gp.predict(features)?.probabilities(200, 0)?);
        Ok(())
    })?;
    let truth = &classes[2000..];
    println!("test error: ridge {:.3}", error_rate(&by_ridge, truth));
    println!("test error: Gaussian process {:.3}", error_rate(&by_gp, truth));
    assert!(error_rate(&by_ridge, truth) < 0.25 && error_rate(&by_gp, truth) < 0.15);

    // A model is a file that holds its recipe, and no code.
    let bytes = gp.to_archive().to_bytes();
    let loaded = GpClassifier::from_archive(argand_learn::Archive::from_bytes(&bytes)?)?;
    assert_eq!(loaded, gp);
    Ok(())
}
