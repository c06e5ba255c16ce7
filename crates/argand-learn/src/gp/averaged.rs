//! Softmax averaged over draws, many draws side by side.

use pulp::{Simd, WithSimd};

/// Draws that are worked on together: every loop over them becomes vector instructions.
const TOGETHER: usize = 64;

/// Σ_s softmax(m + d ∘ ε_s) over draws ε_s, for one row after another.
///
/// # Cost
/// One exponential per draw and class, two of them in the time of one of libm's.
pub(super) struct AveragedSoftmax {
    classes: usize,
    /// Blocks of draws, class by class within a block: what is missing in the last is not used.
    blocks: Vec<Block>,
}

struct Block {
    count: usize,
    draws: Vec<[f64; TOGETHER]>,
}

impl AveragedSoftmax {
    /// From one draw after another, `classes` numbers each.
    pub(super) fn new(draws: &[f64], classes: usize) -> Self {
        let block = |draws: &[f64]| {
            let mut block = vec![[0.0; TOGETHER]; classes];
            for (place, draw) in draws.chunks_exact(classes).enumerate() {
                draw.iter().zip(&mut block).for_each(|(&value, of_class)| of_class[place] = value);
            }
            Block { count: draws.len() / classes, draws: block }
        };
        Self { classes, blocks: draws.chunks(TOGETHER * classes).map(block).collect() }
    }

    /// Adds the mean over the draws to `out`.
    pub(super) fn add(&self, means: &[f64], deviations: &[f64], out: &mut [f64]) {
        pulp::Arch::new().dispatch(Addition { average: self, means, deviations, out });
    }

    /// Bounds of the mean over the draws, class by class, for any deviations between the `least` and the `most`.
    pub(super) fn bounds(&self, means: &[f64], least: &[f64], most: &[f64]) -> [Vec<f64>; 2] {
        let mut bounds = [vec![0.0; self.classes], vec![0.0; self.classes]];
        pulp::Arch::new().dispatch(Bounds { average: self, means, least, most, bounds: &mut bounds });
        bounds
    }
}

struct Addition<'a> {
    average: &'a AveragedSoftmax,
    means: &'a [f64],
    deviations: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for Addition<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { average: AveragedSoftmax { classes, blocks }, means, deviations, out } = self;
        let samples: usize = blocks.iter().map(|block| block.count).sum();
        let mut latent = vec![[0.0; TOGETHER]; *classes];
        for block in blocks {
            let mut largest = [f64::NEG_INFINITY; TOGETHER];
            for (class, (latent, draws)) in latent.iter_mut().zip(&block.draws).enumerate() {
                for place in 0..TOGETHER {
                    latent[place] = means[class] + deviations[class] * draws[place];
                    largest[place] = if latent[place] > largest[place] { latent[place] } else { largest[place] };
                }
            }
            let mut sums = [0.0; TOGETHER];
            for latent in &mut latent {
                for place in 0..TOGETHER {
                    latent[place] = exponential(latent[place] - largest[place]);
                    sums[place] += latent[place];
                }
            }
            for (out, latent) in out.iter_mut().zip(&latent) {
                let mut shares = [0.0; TOGETHER];
                for place in 0..TOGETHER {
                    shares[place] = latent[place] / sums[place];
                }
                *out += shares[..block.count].iter().sum::<f64>() / samples as f64;
            }
        }
    }
}

struct Bounds<'a> {
    average: &'a AveragedSoftmax,
    means: &'a [f64],
    least: &'a [f64],
    most: &'a [f64],
    bounds: &'a mut [Vec<f64>; 2],
}

impl WithSimd for Bounds<'_> {
    type Output = ();

    /// A share is lowest where its own latent function is lowest and all others are highest.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        /// More than the rounding of sums over classes.
        const ROUNDING: f64 = 1e-12;
        let Self { average: AveragedSoftmax { classes, blocks }, means, least, most, bounds: [lower, upper] } = self;
        let samples: usize = blocks.iter().map(|block| block.count).sum();
        let (mut low, mut high) = (vec![[0.0; TOGETHER]; *classes], vec![[0.0; TOGETHER]; *classes]);
        for block in blocks {
            let mut largest = [f64::NEG_INFINITY; TOGETHER];
            for (class, draws) in block.draws.iter().enumerate() {
                let (low, high) = (&mut low[class], &mut high[class]);
                for place in 0..TOGETHER {
                    let ends = [least[class] * draws[place], most[class] * draws[place]];
                    let [one, other] = if ends[0] < ends[1] { ends } else { [ends[1], ends[0]] };
                    (low[place], high[place]) = (means[class] + one, means[class] + other);
                    largest[place] = if high[place] > largest[place] { high[place] } else { largest[place] };
                }
            }
            let (mut of_low, mut of_high) = ([0.0; TOGETHER], [0.0; TOGETHER]);
            for (low, high) in low.iter_mut().zip(&mut high) {
                for place in 0..TOGETHER {
                    low[place] = exponential(low[place] - largest[place]);
                    high[place] = exponential(high[place] - largest[place]);
                    of_low[place] += low[place];
                    of_high[place] += high[place];
                }
            }
            for class in 0..*classes {
                let (mut least, mut most) = ([0.0; TOGETHER], [0.0; TOGETHER]);
                for place in 0..TOGETHER {
                    let (low, high) = (low[class][place], high[class][place]);
                    let [others_most, others_least] = [of_high[place] - high, of_low[place] - low];
                    let others_most = if others_most > 0.0 { others_most } else { 0.0 } + ROUNDING * of_high[place];
                    let others_least = others_least - ROUNDING * of_low[place];
                    let others_least = if others_least > 0.0 { others_least } else { 0.0 };
                    least[place] = low / (low + others_most);
                    most[place] = high / (high + others_least);
                }
                lower[class] += least[..block.count].iter().sum::<f64>() / samples as f64;
                upper[class] += most[..block.count].iter().sum::<f64>() / samples as f64;
            }
        }
    }
}

/// e^x for x ≤ 0 to within 2 units in the last place; below −708 the smallest number that it gives there.
///
/// # Formula
/// x = k ln 2 + r with |r| ≤ ½ ln 2, and Taylor's series of e^r to r¹³. No operation is fused, so that it is the same everywhere.
#[inline(always)]
fn exponential(x: f64) -> f64 {
    /// Adding it leaves the nearest integer in the low bits.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let x = if x > -708.0 { x } else { -708.0 };
    let shifted = x * std::f64::consts::LOG2_E + SHIFT;
    let k = shifted - SHIFT;
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let mut series = 1.0 / 6_227_020_800.0;
    for factorial in
        [479_001_600.0, 39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0]
    {
        series = series * r + 1.0 / factorial;
    }
    series * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// e^{z} / Σ e^{z}, in place.
    fn softmax(values: &mut [f64]) {
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        values.iter_mut().for_each(|value| *value = libm::exp(*value - largest));
        let sum: f64 = values.iter().sum();
        values.iter_mut().for_each(|value| *value /= sum);
    }

    #[test]
    fn exponentials_are_those_of_libm() {
        for step in 0..=70_800 {
            let x = -f64::from(step) / 100.0;
            let want = libm::exp(x);
            assert!((exponential(x) - want).abs() <= 2.0 * f64::EPSILON * want, "{x}: {} {want}", exponential(x));
        }
        assert!(exponential(-1e9) < 1e-300 && exponential(f64::NEG_INFINITY) < 1e-300);
    }

    /// Also where the last block is not full, and where classes are far apart.
    #[test]
    fn averages_are_those_of_one_draw_at_a_time() {
        for (samples, classes) in [(1, 2), (64, 3), (65, 10), (200, 26)] {
            let draws: Vec<f64> = (0..samples * classes).map(|i| (i * 37 % 101) as f64 / 25.0 - 2.0).collect();
            let means: Vec<f64> =
                (0..classes).map(|class| if class == 1 { -900.0 } else { class as f64 / 7.0 }).collect();
            let deviations: Vec<f64> = (0..classes).map(|class| 0.1 + class as f64).collect();
            let mut got = vec![0.0; classes];
            AveragedSoftmax::new(&draws, classes).add(&means, &deviations, &mut got);
            let mut want = vec![0.0; classes];
            for draw in draws.chunks(classes) {
                let mut latent: Vec<f64> = (0..classes).map(|at| means[at] + deviations[at] * draw[at]).collect();
                softmax(&mut latent);
                want.iter_mut().zip(latent).for_each(|(sum, value)| *sum += value / samples as f64);
            }
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= 1e-14, "{samples} {classes}: {got} {want}");
            }
            // Bounds hold for deviations between the ends, and meet where these do.
            let average = AveragedSoftmax::new(&draws, classes);
            let of = |factor: f64| deviations.iter().map(|deviation| factor * deviation).collect::<Vec<f64>>();
            let [lower, upper] = average.bounds(&means, &of(0.5), &of(2.0));
            for factor in [0.5, 0.8, 1.0, 2.0] {
                let mut shares = vec![0.0; classes];
                average.add(&means, &of(factor), &mut shares);
                // Exponentials do not tell numbers below e^-708 apart.
                let within = |at: usize| lower[at] <= shares[at] + 1e-300 && shares[at] <= upper[at] + 1e-300;
                let within = (0..classes).all(within);
                assert!(within, "{factor}: {lower:?} {shares:?} {upper:?}");
            }
            let [lower, upper] = average.bounds(&means, &deviations, &deviations);
            for (at, want) in want.iter().enumerate() {
                assert!(lower[at] <= *want + 1e-14 && want - 1e-14 <= upper[at]);
                assert!(upper[at] - lower[at] < 1e-11, "{lower:?} {upper:?}");
            }
        }
    }
}
