//! The fixture that the library, the command line and the Python package agree on, to the last digit.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use argand::{FeatureMap, Rows, Spec};

/// All numbers of a CSV file, row by row, without the given number of header lines.
fn numbers(text: &str, header_lines: usize) -> Vec<f64> {
    text.lines().skip(header_lines).flat_map(|line| line.split(',')).map(|field| field.parse().unwrap()).collect()
}

#[test]
fn features_are_those_of_the_command_line() {
    let spec = Spec::from_json(include_str!("fixture/spec.json")).unwrap();
    assert_eq!(spec.to_json(), include_str!("fixture/spec.json"));
    let x = numbers(include_str!("fixture/x.csv"), 0);
    let expected = numbers(include_str!("fixture/features.csv"), 1);
    assert_eq!((x.len(), expected.len()), (7 * 5, 7 * 16));
    let features = spec.sketch::<f64>().unwrap().transform(&[Rows::new(&x, 7, 5).unwrap().into()]).unwrap();
    assert_eq!(features, expected);
}
