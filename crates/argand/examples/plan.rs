//! From a goal to a sketch: which method, how many features, what error, what time.
//!
//! `cargo run --release --example plan`

use argand::plan::{Goal, Request, plan};
use argand::theory::{Sampling, expected_error, kernel_error};
use argand::{FeatureMap, InputDims, Polynomial, Rows, Spec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A sample of the rows is enough for planning. These have no negative numbers, like counts or pixels.
    let (rows, columns) = (300, 32);
    let x: Vec<f32> = (0..rows * columns).map(|i| (i * 37 % 101) as f32 / 500.0).collect();
    let inputs = [Rows::new(&x, rows, columns)?.into()];

    // The closed form of its variance predicts the error of a sketch before it is drawn.
    for features in [256, 1024, 4096] {
        let spec = Spec::polynomial(columns).with_degree(3).with_features(features);
        let error = expected_error(&spec, &inputs, &Sampling::default())?;
        println!("{} with {features} features: relative error {:.4}", spec.method, error.relative);
    }

    // The other way round: request an error of 5 %. Every method is predicted on the sample and timed on this machine.
    let kernel = Polynomial { degree: 3, gamma: 1.0, coef0: 0.0 };
    let request = Request::new(kernel, InputDims::Same(columns), Goal::Error(0.05));
    let plan = plan(&request, &inputs, |step| println!("{step} ..."))?;
    let best = plan.best().ok_or("no method reaches this error")?;
    println!("recommended: {} with {} features", best.spec.method, best.spec.features);
    println!("{:.4} s for the features of these rows and a fit, {} bytes", best.total_seconds(), best.memory_bytes);
    assert!(best.error.relative <= 0.05);

    // The recommendation is a spec like any other, and keeps its promise.
    let z = best.spec.sketch::<f32>()?.transform(&inputs)?;
    let error = kernel_error(&best.spec, &inputs, Rows::new(&z, rows, best.spec.features)?)?;
    println!("relative error of this sketch: {error:.4}");
    assert!(error < 0.1); // 0.05 is the root mean square over seeds
    Ok(())
}
