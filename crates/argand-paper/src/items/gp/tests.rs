//! Verdicts and earlier results.

use super::*;

fn expected(value: f64, error: f64, below: bool) -> Expected {
    Expected { name: "it is".to_owned(), ratio: Some(Log { value, error }), below }
}

#[test]
fn claims_hold_differ_or_stay_open() {
    let verdict = |all: &[Expected]| judge(all).map(|(_, agreement)| agreement);
    let right = || expected(-0.5, 0.1, true);
    assert_eq!(verdict(&[right(), expected(0.5, 0.1, false)]), Some(Agreement::Agrees));
    assert_eq!(verdict(&[right(), expected(0.1, 0.1, true)]), Some(Agreement::Open));
    assert_eq!(verdict(&[right(), expected(-0.1, 0.1, true)]), Some(Agreement::Open));
    assert_eq!(verdict(&[right(), expected(f64::NAN, 0.1, true)]), Some(Agreement::Open));
    assert_eq!(verdict(&[expected(0.3, 0.1, true), right()]), Some(Agreement::Differs));
    assert_eq!(verdict(&[expected(0.3, 0.1, true), expected(0.1, 0.1, true)]), Some(Agreement::Differs));
    assert_eq!(verdict(&[expected(0.3, f64::NAN, true)]), Some(Agreement::Open));
    assert_eq!(verdict(&[right(), Expected { ratio: None, ..right() }]), None);
    assert_eq!(judge(&[expected(0.0, 0.25, true)]).unwrap().0, "it is 1.00 ± 0.25");
    assert_eq!(judge(&[expected(0.0, f64::NAN, true)]).unwrap().0, "it is 1.00");
}

fn record(method: &str, features: usize, seed: u64, kernel_error: f64) -> Record {
    Record {
        dataset: "set".to_owned(),
        data: "data".to_owned(),
        scaling: Scaling::NonNegative,
        p: 3,
        features,
        method: method.to_owned(),
        seed,
        kernel_error,
        test_error: 0.1,
        negative_log_likelihood: 0.2,
    }
}

/// Another set with another degree adds nothing.
#[test]
fn figures_are_of_one_set() {
    let other = Record { dataset: "other".to_owned(), p: 7, ..record("b", 128, 0, 0.1) };
    let records = [record("a", 64, 0, 0.1), other];
    let figure = figure(&Grid::new(&records), "set", "non-negative", &records);
    let titles: Vec<&str> = figure.panels.iter().map(|panel| &*panel.title).collect();
    assert_eq!(titles, ["set, non-negative, p = 3"; 2]);
    assert!(figure.panels.iter().all(|panel| panel.series.len() == 1));
}

/// Two cells of two seeds: ratios of means, geometric over D, with errors that add up in squares.
#[test]
fn ratios_are_geometric_means_over_features() {
    let records = [
        record("a", 64, 0, 0.1),
        record("a", 64, 1, 0.3),
        record("b", 64, 0, 0.1),
        record("b", 64, 1, 0.1),
        record("a", 128, 0, 0.8),
        record("b", 128, 0, 0.1),
        record("a", 128, 1, 0.8),
        record("b", 128, 1, 0.1),
    ];
    let ratio = Grid::new(&records).ratio(("set", "non-negative"), 3, ["a", "b"], KERNEL).unwrap();
    // 2 and 8; the first mean, 0.2, has a standard error of 0.1.
    assert!((ratio.value.exp() - 4.0).abs() < 1e-12 && (ratio.error - 0.25).abs() < 1e-12, "{ratio:?}");
    let theirs = crate::reference::TheirMean { seeds: 4.0, mean: 0.1, deviation: Some(0.2) };
    let z = score(&[0.1, 0.3], theirs);
    // Variances .02 of two seeds and .04 of four, pooled.
    let pooled = (0.02 + 3.0 * 0.04) / 4.0;
    assert!((z - 0.1 / (pooled * (0.5 + 0.25_f64)).sqrt()).abs() < 1e-12, "{z}");
    // A single seed of theirs scatters as ours do.
    let z = score(&[0.1, 0.3], crate::reference::TheirMean { seeds: 1.0, deviation: None, ..theirs });
    assert!((z - 0.1 / (0.02_f64 * 1.5).sqrt()).abs() < 1e-12, "{z}");
}
