//! The data and the authors' results in the folder that `ARGAND_DATA` names.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

/// The folder; prints a message if there is none.
pub fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("ARGAND_DATA").map(PathBuf::from);
    if folder.is_none() {
        println!("ARGAND_DATA is not set: nothing compared");
    }
    folder
}

/// Letter as in UCI's file: 20,000 rows of 16 numbers, and their classes, one of 26 letters.
pub fn letter() -> Option<(Vec<f32>, Vec<u32>)> {
    let text = fs::read_to_string(folder()?.join("data/letter/letter-recognition.data")).unwrap();
    let values = text.lines().flat_map(|line| line.split(',').skip(1).map(|value| value.trim().parse().unwrap()));
    let letters = text.lines().map(|line| u32::from(line.as_bytes()[0] - b'A'));
    Some((values.collect(), letters.collect()))
}

/// The bytes of MNIST's images and labels; `part` is `t10k` or `train`.
pub fn mnist(part: &str) -> Option<(Vec<f32>, Vec<u32>)> {
    let folder = folder()?.join("data/mnist");
    let read = |name: &str, header: usize| {
        let mut bytes = Vec::new();
        let file = fs::File::open(folder.join(format!("{part}-{name}-ubyte.gz"))).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        bytes.split_off(header)
    };
    let (images, labels) = (read("images-idx3", 16), read("labels-idx1", 8));
    assert_eq!(images.len(), labels.len() * 784);
    Some((images.into_iter().map(f32::from).collect(), labels.into_iter().map(u32::from).collect()))
}

/// One row of the authors' results.
pub struct Result {
    pub dataset: String,
    pub degree: usize,
    pub features: usize,
    pub sketch: String,
    /// Seeds, mean and standard deviation of the relative Frobenius error, where there are several seeds.
    pub kernel: Option<(f64, f64, f64)>,
    /// Seeds, mean and, where there are several seeds, standard deviation of the test error; the negative log-likelihood.
    pub test: (f64, f64, Option<f64>, f64),
}

pub fn grid() -> Option<Vec<Result>> {
    let text = fs::read_to_string(folder()?.join("reference/gp-grid.csv")).unwrap();
    let lines = text.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<f64>().ok();
        Result {
            dataset: fields[0].to_owned(),
            degree: fields[1].parse().unwrap(),
            features: fields[2].parse().unwrap(),
            sketch: fields[3].to_owned(),
            kernel: number(4).zip(number(5)).zip(number(6)).map(|((seeds, mean), deviation)| (seeds, mean, deviation)),
            test: (number(7).unwrap_or(0.0), number(8).unwrap_or(f64::NAN), number(9), number(10).unwrap_or(f64::NAN)),
        }
    });
    Some(lines.collect())
}

/// Mean and standard error.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}
