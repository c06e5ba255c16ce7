//! The positive part of a signed Gaussian mixture, as a density of the frequency length.

use super::bessel::SphereCharacteristic;

/// Cells of the table that sampling and quadrature use.
const CELLS: usize = 4096;

/// A component is negligible this many scales σ above and below its centre σ√(2d): the length has standard deviation
/// σ, and the slowest tail, that of d = 2, has fallen to 10⁻¹⁵.
const TAIL: f64 = 10.0;

/// The density of the frequency length that belongs to exp(−σ² z²) in R^d, and its derivative by log σ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Component {
    /// m = (d − 1)/2: the density is proportional to (y² e^{1−y²})^m with y = w / (2σ√m), which peaks at y = 1.
    half_power: f64,
    /// log(2σ√m).
    log_mode: f64,
    /// 1 / (2σ√m)².
    inverse_square: f64,
    /// The logarithm of the density at the peak, m^m e^{−m} / (σ Γ(m + ½)).
    log_peak: f64,
}

impl Component {
    pub(crate) fn new(dim: usize, log_scale: f64) -> Self {
        let half_power = 0.5 * (dim as f64 - 1.0);
        let log_peak = if half_power < 100.0 {
            half_power * (libm::log(half_power) - 1.0) - libm::lgamma(half_power + 0.5)
        } else {
            // Stirling's series at m + ½ (DLMF 5.11.8), because the difference above cancels; the next term is below
            // 10⁻¹³.
            let inverse = 1.0 / half_power;
            inverse / 24.0 - 7.0 / 2880.0 * inverse * inverse * inverse - 0.5 * libm::log(std::f64::consts::TAU)
        };
        let log_mode = log_scale + 0.5 * libm::log(4.0 * half_power);
        Self { half_power, log_mode, inverse_square: libm::exp(-2.0 * log_mode), log_peak: log_peak - log_scale }
    }

    /// The density and its derivative by log σ, at a radius w given as w and log w.
    #[inline]
    pub(crate) fn evaluate(&self, radius: f64, log_radius: f64) -> (f64, f64) {
        let excess = radius * radius * self.inverse_square - 1.0;
        let exponent = self.half_power * (2.0 * (log_radius - self.log_mode) - excess);
        // exp(−100) is negligible also after a multiplication by the largest weights.
        if exponent < -100.0 {
            return (0.0, 0.0);
        }
        let density = libm::exp(exponent + self.log_peak);
        (density, density * (2.0 * self.half_power * excess - 1.0))
    }
}

/// Where a component with scale `lowest_scale` begins and one with `highest_scale` ends.
pub(crate) fn window(dim: usize, lowest_scale: f64, highest_scale: f64) -> (f64, f64) {
    let center = libm::sqrt(2.0 * dim as f64);
    ((lowest_scale * (center - TAIL)).max(0.0), highest_scale * (center + TAIL))
}

/// A density on equally spaced nodes, and its distribution function.
#[derive(Debug, Clone)]
pub(crate) struct Density {
    first: f64,
    step: f64,
    /// At the nodes, scaled such that the trapezoidal rule gives one.
    values: Vec<f64>,
    /// The distribution function at the nodes, from 0 to 1.
    cumulative: Vec<f64>,
    /// The mass of the positive part before scaling.
    pub(crate) mass: f64,
}

impl Density {
    /// Tabulates max(0, Σᵢ cᵢ pᵢ(w)); `None` if it is zero or not finite on all of the grid.
    pub(crate) fn new(dim: usize, weights: &[f64], scales: &[f64]) -> Option<Self> {
        let lowest_scale = scales.iter().copied().fold(f64::INFINITY, f64::min);
        let highest_scale = scales.iter().copied().fold(0.0, f64::max);
        if dim < 2 || !(lowest_scale > 0.0 && highest_scale.is_finite()) {
            return None;
        }
        let components: Vec<Component> = scales.iter().map(|&scale| Component::new(dim, libm::log(scale))).collect();
        let tabulate = |first: f64, last: f64| -> (f64, Vec<f64>) {
            let step = (last - first) / CELLS as f64;
            let value = |index: usize| {
                let radius = first + index as f64 * step;
                if radius <= 0.0 {
                    return 0.0;
                }
                let log_radius = libm::log(radius);
                let terms = weights.iter().zip(&components);
                terms.map(|(weight, component)| weight * component.evaluate(radius, log_radius).0).sum::<f64>().max(0.0)
            };
            (step, (0..=CELLS).map(value).collect())
        };
        let (first, last) = window(dim, lowest_scale, highest_scale);
        let (step, values) = tabulate(first, last);
        // A second table covers only the support: narrow peaks get all the cells.
        let negligible = 1e-16 * values.iter().copied().fold(0.0, f64::max);
        let begin = values.iter().position(|&value| value > negligible)?;
        let end = values.iter().rposition(|&value| value > negligible)?;
        let last = first + (end as f64 + 1.0).min(CELLS as f64) * step;
        let first = first + (begin as f64 - 1.0).max(0.0) * step;
        let (step, mut values) = tabulate(first, last);

        let mut cumulative = vec![0.0];
        let mut mass = 0.0;
        for pair in values.windows(2) {
            mass += 0.5 * (pair[0] + pair[1]) * step;
            cumulative.push(mass);
        }
        if !(mass > 0.0 && mass.is_finite()) {
            return None;
        }
        values.iter_mut().chain(&mut cumulative).for_each(|value| *value /= mass);
        Some(Self { first, step, values, cumulative, mass })
    }

    /// The w at which the distribution function is `probability`, for 0 < `probability` ≤ 1.
    pub(crate) fn quantile(&self, probability: f64) -> f64 {
        // The last node is reached with probability one, whatever rounding did to its cumulative value.
        let upper = self.cumulative.partition_point(|&cumulative| cumulative < probability).clamp(1, CELLS);
        let (below, above) = (self.cumulative[upper - 1], self.cumulative[upper]);
        let fraction = if above > below { ((probability - below) / (above - below)).min(1.0) } else { 1.0 };
        self.first + ((upper - 1) as f64 + fraction) * self.step
    }

    /// ∫ p(w) Ω_d(w z) dw for each distance z, by the trapezoidal rule.
    pub(crate) fn kernels(&self, dim: usize, distances: &[f64]) -> Vec<f64> {
        let farthest = distances.iter().fold(0.0_f64, |farthest, distance| farthest.max(distance.abs()));
        let last = self.first + CELLS as f64 * self.step;
        let characteristic = SphereCharacteristic::new(dim, farthest * last);
        let kernel = |&distance: &f64| {
            let mut sum = 0.0;
            for (index, &value) in self.values.iter().enumerate() {
                if value > 0.0 {
                    let share = if index == 0 || index == CELLS { 0.5 * value } else { value };
                    let radius = self.first + index as f64 * self.step;
                    sum += share * self.step * characteristic.evaluate(radius * distance);
                }
            }
            sum
        };
        distances.iter().map(kernel).collect()
    }
}
