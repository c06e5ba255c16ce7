//! How an axis is divided, and its ticks.

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of two, for sizes.
    Doubling,
    /// By powers of ten.
    Logarithmic,
    /// By name: 0, 1, 2, … are these, from the top of a chart to its bottom.
    Named(&'static [&'static str]),
}

/// A mark on an axis, at a scaled coordinate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) place: f64,
    pub(crate) text: String,
}

impl Scale {
    pub(crate) fn forward(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Named(_) => -value,
            Self::Doubling => value.log2(),
            Self::Logarithmic => value.log10(),
        }
    }

    /// Whether a value has a place on the axis.
    pub(crate) fn shows(self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || !matches!(self, Self::Doubling | Self::Logarithmic))
    }

    /// At most `most` ticks (two or more) between scaled coordinates, as many as round numbers allow.
    pub(crate) fn ticks(self, low: f64, high: f64, most: usize) -> Vec<Tick> {
        match self {
            Self::Linear => linear_ticks(low, high, most),
            Self::Doubling => {
                let places = multiples(((high - low) / most as f64).ceil().max(1.0), low, high);
                places.map(|place| Tick { place, text: format!("{}", place.exp2().round()) }).collect()
            }
            Self::Logarithmic => logarithmic_ticks(low, high, most),
            Self::Named(names) => (0..)
                .zip(names)
                .map(|(place, &name)| Tick { place: -f64::from(place), text: name.to_owned() })
                .collect(),
        }
    }
}

/// Steps of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<Tick> {
    let rough = (high - low).max(1e-300) / most as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|&step| step >= rough).unwrap_or(power);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 12")]
    let decimals = (-(step * 1.000_001).log10().floor()).clamp(0.0, 12.0) as usize;
    let text = |place: f64| {
        if low.abs().max(high.abs()) < 1e6 {
            return format!("{place:.decimals$}");
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 12")]
        let digits = (place.abs().log10().floor() - step.log10().floor()).clamp(0.0, 12.0) as usize;
        format!("{place:.digits$e}").trim_end_matches("e0").to_owned()
    };
    // A tick at zero has no sign.
    let places = multiples(step, low, high).map(|place| if place.abs() < step / 2.0 { 0.0 } else { place });
    places.map(|place| Tick { place, text: text(place) }).collect()
}

/// Round numbers, finer or coarser; ranges too short for any are divided evenly.
fn logarithmic_ticks(low: f64, high: f64, most: usize) -> Vec<Tick> {
    const DIGITS: [&[f64]; 4] = [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    let places = |digits: &[f64], step: f64| -> Vec<f64> {
        let decades = multiples(step, low.floor() - step, high);
        let all = decades.flat_map(|decade| digits.iter().map(move |digit| decade + digit.log10()));
        all.filter(|place| (low - 1e-9..=high + 1e-9).contains(place)).collect()
    };
    let finest = places(DIGITS[0], 1.0);
    if finest.len() <= 2 {
        let even = linear_ticks(10_f64.powf(low), 10_f64.powf(high), most);
        return even.into_iter().map(|tick| Tick { place: tick.place.log10(), ..tick }).collect();
    }
    let finer = DIGITS.iter().map(|digits| places(digits, 1.0)).find(|places| places.len() <= most);
    let chosen = finer.unwrap_or_else(|| places(&[1.0], ((high - low) / most as f64).ceil().max(1.0)));
    let text = |place: f64| {
        let value = 10_f64.powf(place);
        if (-3.5..5.5).contains(&place) {
            format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            format!("{value:.1e}").replace(".0e", "e")
        }
    };
    chosen.into_iter().map(|place| Tick { place, text: text(place) }).collect()
}

fn multiples(step: f64, low: f64, high: f64) -> impl Iterator<Item = f64> {
    let first = (low / step - 1e-9).ceil();
    let places = (0..100).map(move |index| (first + f64::from(index)) * step);
    places.take_while(move |&place| place <= high + step * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, low: f64, high: f64, most: usize) -> Vec<String> {
        scale.ticks(low, high, most).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(texts(Scale::Linear, -0.02, 1.03, 8), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(Scale::Linear, -0.52, 0.52, 5), ["-0.5", "0.0", "0.5"]);
        assert_eq!(texts(Scale::Linear, 0.0, 1.0, 10)[..3], ["0.0", "0.1", "0.2"]);
        assert_eq!(texts(Scale::Doubling, 7.8, 13.2, 8), ["256", "512", "1024", "2048", "4096", "8192"]);
        assert_eq!(texts(Scale::Doubling, 7.8, 13.2, 3), ["256", "1024", "4096"]);
        assert_eq!(texts(Scale::Logarithmic, -2.1, -0.2, 9), ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]);
        assert_eq!(texts(Scale::Logarithmic, 0.05, 2.7, 9), ["2", "5", "10", "20", "50", "100", "200", "500"]);
        assert_eq!(texts(Scale::Logarithmic, -6.0, 0.0, 9), ["1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]);
        assert_eq!(texts(Scale::Named(&["a", "b"]), -0.5, 1.5, 2), ["a", "b"]);
    }

    #[test]
    fn every_axis_has_ticks_with_short_names_of_their_own() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for (low, high) in
                [(0.34, 0.76), (0.41, 0.58), (0.5, 0.501), (1e-3, 2.0), (3.0, 4e9), (1.0, 1e30), (9.5e6, 1e7)]
            {
                let (from, to) = (scale.forward(low), scale.forward(high));
                let ticks = scale.ticks(from, to, 9);
                assert!((2..=10).contains(&ticks.len()), "{scale:?} {low} {high}: {ticks:?}");
                let slack = 1e-6 * (to - from);
                assert!(ticks.iter().all(|tick| (from - slack..=to + slack).contains(&tick.place)), "{ticks:?}");
                assert!(ticks.iter().all(|tick| tick.text.len() <= 7), "{scale:?} {low} {high}: {ticks:?}");
                assert!(ticks.windows(2).all(|pair| pair[0].place < pair[1].place), "{ticks:?}");
                assert!(ticks.windows(2).all(|pair| pair[0].text != pair[1].text), "{ticks:?}");
            }
        }
        assert_eq!(texts(Scale::Linear, -7e7, 7e7, 9)[3], "0");
        for scale in [Scale::Linear, Scale::Doubling, Scale::Logarithmic] {
            for (low, high) in [(-3.0, -2.9), (0.0, 1e-9), (-300.0, 300.0), (1.0, 1e6)] {
                let ticks = scale.ticks(low, high, 9);
                assert!(ticks.len() <= 12 && ticks.windows(2).all(|pair| pair[0].place < pair[1].place), "{scale:?}");
            }
        }
    }
}
