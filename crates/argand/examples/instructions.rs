//! One transform of a small input, for counting instructions: `instructions METHOD`, under callgrind (`make instructions`).

use argand::{FeatureMap, Rows, RowsMut, Sketch, Spec};

const ROWS: usize = 64;
const DIM: usize = 784;
const DEGREE: usize = 3;
const FEATURES: usize = 2048;

/// What callgrind counts: kept out of line, so that it has a name.
#[inline(never)]
fn measured(sketch: &Sketch<f32>, x: &[f32], out: &mut [f32]) -> Result<(), argand::Error> {
    sketch.transform_into(&[Rows::new(x, ROWS, DIM)?.into()], RowsMut::new(out, ROWS, FEATURES)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let method = std::env::args().nth(1).ok_or("name a method")?.parse()?;
    let sketch =
        Spec::polynomial(DIM).with_degree(DEGREE).with_features(FEATURES).with_method(method).sketch::<f32>()?;
    let x = vec![0.125; ROWS * DIM];
    let mut out = vec![0.0; ROWS * FEATURES];
    // The main thread does the work, so that all of it is counted.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build()?;
    pool.install(|| measured(&sketch, &x, &mut out))?;
    Ok(())
}
