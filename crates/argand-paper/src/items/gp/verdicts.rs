//! The paper's claims about kernel errors and test errors, judged.

use argand_learn::Scaling;

use super::grid::{Grid, Log};
use super::{KERNEL, Record, TEST};
use crate::outcome::{Agreement, Outcome};

/// A ratio that the paper claims to be below 1, or above.
struct Expected {
    name: String,
    ratio: Option<Log>,
    below: bool,
}

/// Whether all ratios are where they are expected, each in words, and how many clearly are.
fn judge(expected: &[Expected]) -> Option<(String, Agreement)> {
    let (mut words, mut numbers) = (Vec::new(), Vec::new());
    for Expected { name, ratio, below } in expected {
        let Log { value, error } = (*ratio)?;
        // A single seed gives no standard error.
        let within = if error.is_finite() { format!(" ± {:.2}", value.exp() * error) } else { String::new() };
        words.push(format!("{name} {:.2}{within}", value.exp()));
        numbers.push((if *below { value } else { -value }, error));
    }
    let clear = numbers.iter().filter(|&&number| Agreement::of_negative(&[number]) == Agreement::Agrees).count();
    let words = format!("{clear} of {} clearly so: {}", numbers.len(), words.join(", "));
    Some((words, Agreement::of_negative(&numbers)))
}

pub(super) fn verdicts(outcome: &mut Outcome, grid: &Grid<'_>, group: (&str, &str)) {
    let (set, scaling) = group;
    const PAIRS: [[&str; 2]; 3] =
        [["ctr-gaussian", "gaussian"], ["ctr-rademacher", "rademacher"], ["ctr-product-srht", "product-srht"]];
    let features = grid.features(set, scaling);
    let [low, high] = [features.first(), features.last()].map(|size| size.copied().unwrap_or(0));
    let mut claim = |claim: &str, expected: Vec<Expected>| {
        if let Some((found, agreement)) = judge(&expected) {
            outcome.verdict(claim, format!("{set}, {scaling}, D = {low} to {high}: {found}"), agreement);
        }
    };
    let over = |degree: usize, pair: [&'static str; 2], of: fn(&Record) -> f64, below: bool| Expected {
        name: format!("{} over {} at p = {degree}:", pair[0], pair[1]),
        ratio: grid.ratio(group, degree, pair, of),
        below,
    };
    let non_negative = scaling == Scaling::NonNegative.to_string();
    claim(
        if non_negative {
            "CtR sketches have lower kernel errors than their real analogs, here at p = 3 and 7 (Sec. 5.2)."
        } else {
            "CtR sketches lead to some improvements over their real analogs even for zero-centred data (App. D)."
        },
        [3, 7].iter().flat_map(|&degree| PAIRS.map(|pair| over(degree, pair, KERNEL, true))).collect(),
    );
    if !non_negative {
        return;
    }
    claim(
        "The advantage of CtR sketches in kernel errors is larger for p = 7 than for p = 3 (Sec. 5.2).",
        PAIRS
            .map(|pair| {
                let [low, high] = [3, 7].map(|degree| grid.ratio(group, degree, pair, KERNEL));
                let ratio = high.zip(low).map(|(high, low)| high.minus(low));
                Expected { name: format!("ratio for {} at p = 7 over that at p = 3:", pair[0]), ratio, below: true }
            })
            .into(),
    );
    claim(
        "CtR sketches have lower test errors than their real analogs at p = 7 (Sec. 5.2).",
        PAIRS.map(|pair| over(7, pair, TEST, true)).into(),
    );
    const TREES: [[&str; 2]; 2] =
        [["hierarchical-ctr-product-srht", "ctr-product-srht"], ["hierarchical-tensor-sketch", "tensor-sketch"]];
    claim(
        "Hierarchical sketches improve kernel errors for p = 7 only, and are worse for p = 3 (Sec. 5.2).",
        [3, 7].iter().flat_map(|&degree| TREES.map(|pair| over(degree, pair, KERNEL, degree == 7))).collect(),
    );
    const CRAFT: [[&str; 2]; 3] = [
        ["craft-product-srht", "product-srht"],
        ["craft-ctr-product-srht", "ctr-product-srht"],
        ["craft-tensor-sketch", "tensor-sketch"],
    ];
    claim(
        "CRAFT maps improve kernel errors, here at p = 3 and 7 (Sec. 5.2).",
        [3, 7].iter().flat_map(|&degree| CRAFT.map(|pair| over(degree, pair, KERNEL, true))).collect(),
    );
    let fall = |method: &'static str| {
        let [low, high] =
            [low, high].map(|features| grid.log_mean(&(set, scaling.to_owned(), 3, features, method), KERNEL));
        Some(high?.minus(low?))
    };
    if low < high {
        claim(
            "SRF is biased: for p = 3 the kernel errors of the others fall faster with D (Sec. 5.2).",
            ["ctr-product-srht", "tensor-sketch"]
                .map(|method| Expected {
                    name: format!("error at D = {high} over that at {low}, {method} over srf:"),
                    ratio: fall(method).zip(fall("srf")).map(|(method, spherical)| method.minus(spherical)),
                    below: true,
                })
                .into(),
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
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
        assert_eq!(judge(&[expected(0.0, 0.25, true)]).unwrap().0, "0 of 1 clearly so: it is 1.00 ± 0.25");
        assert_eq!(judge(&[expected(0.0, f64::NAN, true)]).unwrap().0, "0 of 1 clearly so: it is 1.00");
    }
}
