//! A file of any size through a sketch, block by block, in bounded memory.
//!
//! `cargo run --release --example streaming`

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};

use argand::{FeatureMap, Rows, RowsMut, Sketch, Spec};

const COLUMNS: usize = 16;
const FEATURES: usize = 128;
/// A few hundred rows are enough for full speed on one thread; use a few thousand to keep more threads busy.
const BLOCK: usize = 1000;

/// Reads rows of little-endian numbers, writes their features, and returns the number of rows.
fn stream(sketch: &Sketch<f32>, mut source: impl Read, mut sink: impl Write) -> Result<usize, Box<dyn Error>> {
    let (mut bytes, mut z) = (Vec::new(), vec![0.0; BLOCK * FEATURES]);
    let mut total = 0;
    loop {
        bytes.clear();
        source.by_ref().take((BLOCK * COLUMNS * 4) as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(total);
        }
        let x: Vec<f32> = bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect();

        // The last block may be short. If the file ends within a row, `Rows::new` fails.
        let rows = x.len().div_ceil(COLUMNS);
        let z = &mut z[..rows * FEATURES];
        let (input, out) = (Rows::new(&x, rows, COLUMNS)?, RowsMut::new(z, rows, FEATURES)?);

        // Errors name the row in the block; `in_rows_from` converts it to the row in the file.
        sketch.transform_into(&[input.into()], out).map_err(|error| error.in_rows_from(total))?;
        z.iter().try_for_each(|z| sink.write_all(&z.to_le_bytes()))?;
        total += rows;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("argand-streaming-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (input, output) = (folder.join("x.bin"), folder.join("z.bin"));
    let x: Vec<f32> = (0..10_500 * COLUMNS).map(|i| (0.31 * i as f32).sin()).collect();
    fs::write(&input, x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())?;

    let sketch = Spec::polynomial(COLUMNS).with_degree(3).with_features(FEATURES).sketch::<f32>()?;
    let mut sink = BufWriter::new(File::create(&output)?);
    let rows = stream(&sketch, File::open(&input)?, &mut sink)?;
    sink.into_inner()?.sync_all()?;
    println!("{rows} rows in blocks of {BLOCK}: {} bytes of features", fs::metadata(&output)?.len());

    // A row's features do not depend on the rows around it: blocks give the same, to the last bit, as everything at once.
    let whole = sketch.transform(&[Rows::new(&x, rows, COLUMNS)?.into()])?;
    assert!(fs::read(&output)? == whole.iter().flat_map(|z| z.to_le_bytes()).collect::<Vec<_>>());
    fs::remove_dir_all(&folder)?;
    Ok(())
}
