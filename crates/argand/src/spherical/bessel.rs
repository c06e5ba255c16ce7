//! The characteristic function of the uniform distribution on a sphere, a Bessel function in disguise.

use std::f64::consts::TAU;

/// Odd dimensions up to here have a closed form of a few terms; from the next one on, the integrand of the trapezoidal
/// rule vanishes to order 15 or more where |sin|^(d−2) has its kink, and the rule needs no extra nodes for it.
const LARGEST_CLOSED_FORM: usize = 15;

/// Beyond this radius, and the dimension, all that is left is the leading oscillation of d = 2 and 4.
const FAR: f64 = 1e6;

/// Weights of the trapezoidal rule below this share of the largest are left out.
const NEGLIGIBLE: f64 = 1e-18;

/// The characteristic function Ω_d of the uniform distribution on the unit sphere of R^d, at radius t:
/// E[exp(i t ⟨u, e⟩)] for u uniform on the sphere and any unit vector e.
///
/// A radial kernel is a mixture of these: if the frequency ω has length w and a uniform direction, then
/// E[cos ⟨ω, x − y⟩] = Ω_d(w ‖x − y‖). The absolute error is below 10⁻¹⁴ for d ≥ 2 and t ≤ 10³ (beyond, it grows like
/// t · 10⁻¹⁷); the result is the same on every machine. The sign of t does not matter. In one dimension the sphere is
/// two points, and Ω_1 = cos; NaN is returned for a NaN and for d = 0.
///
/// # Formula
/// Ω_d(t) = ₀F₁(; d/2; −t²/4) = Γ(d/2) (2/t)^{d/2−1} J_{d/2−1}(t)
///        = ∫ cos(t sin φ) cos^{d−2} φ dφ / ∫ cos^{d−2} φ dφ over −π/2 ≤ φ ≤ π/2.
///
/// # Reference
/// Pennington, Yu and Kumar (2015), "Spherical Random Features for Polynomial Kernels"; DLMF 10.9.4.
///
/// # Cost
/// O(1 + t/√d) cosines and powers. [`crate::spherical`] keeps tables, so that many values pay for them only once.
///
/// ```
/// use argand::spherical::sphere_characteristic;
/// assert!((sphere_characteristic(3, 2.0) - 2_f64.sin() / 2.0).abs() < 1e-14);
/// assert!((sphere_characteristic(4096, 64.0) - 0.606_493_647_177_055_3).abs() < 1e-13);
/// ```
#[must_use]
pub fn sphere_characteristic(dim: usize, radius: f64) -> f64 {
    if dim == 0 {
        return f64::NAN;
    }
    SphereCharacteristic::new(dim, 0.0).evaluate(radius)
}

/// [`sphere_characteristic`] of one dimension, with tables for many evaluations.
#[derive(Debug, Clone)]
pub(crate) struct SphereCharacteristic {
    dim: usize,
    /// Ordered by the largest radius they serve.
    rules: Vec<TrapezoidalRule>,
}

impl SphereCharacteristic {
    /// Prepares for radii up to `largest_radius`; larger ones are correct too, but slower.
    pub(crate) fn new(dim: usize, largest_radius: f64) -> Self {
        let mut rules = Vec::new();
        if !has_closed_form(dim) {
            let mut radius = largest_radius.min(FAR);
            while radius > series_limit(dim) {
                rules.push(TrapezoidalRule::new(dim, radius));
                // A factor of 3/4 between the tables wastes one node in seven on average.
                radius *= 0.75;
            }
            rules.reverse();
        }
        Self { dim, rules }
    }

    /// Ω_d(`radius`).
    pub(crate) fn evaluate(&self, radius: f64) -> f64 {
        let radius = radius.abs();
        if !radius.is_finite() {
            // Zero in the limit, or NaN.
            return 1.0 / radius;
        }
        if radius <= series_limit(self.dim) {
            return power_series(self.dim, radius);
        }
        if has_closed_form(self.dim) {
            return closed_form(self.dim, radius);
        }
        if radius > FAR.max(self.dim as f64) {
            return far_field(self.dim, radius);
        }
        let first = self.rules.partition_point(|rule| rule.largest_radius < radius);
        match self.rules.get(first) {
            Some(rule) => rule.evaluate(radius),
            None => TrapezoidalRule::new(self.dim, radius).evaluate(radius),
        }
    }
}

fn has_closed_form(dim: usize) -> bool {
    dim % 2 == 1 && dim <= LARGEST_CLOSED_FORM
}

/// Up to this radius the alternating power series loses less than one digit: its terms add up to less than exp(t²/2d)
/// in absolute value.
fn series_limit(dim: usize) -> f64 {
    let dim_f64 = dim as f64;
    if has_closed_form(dim) { 0.5 * dim_f64 } else { libm::sqrt(2.0 * dim_f64) }
}

/// Σ_k (−t²/4)^k / (k! (d/2)_k).
fn power_series(dim: usize, radius: f64) -> f64 {
    let half_dim = 0.5 * dim as f64;
    let argument = -0.25 * radius * radius;
    let (mut sum, mut term, mut index) = (1.0, 1.0_f64, 0.0);
    while term.abs() > 1e-17 {
        term *= argument / ((index + 1.0) * (half_dim + index));
        sum += term;
        index += 1.0;
    }
    sum
}

/// Ω_{d+2} = d (d − 2) (Ω_d − Ω_{d−2}) / t², upwards from Ω_1 = cos t and Ω_3 = sin t / t.
///
/// This is J_{ν+1} = (2ν/t) J_ν − J_{ν−1} in disguise. Upwards it is stable for t above the order; below, the power
/// series takes over.
fn closed_form(dim: usize, radius: f64) -> f64 {
    let (sin, cos) = libm::sincos(radius);
    if dim == 1 {
        return cos;
    }
    let (mut lower, mut value) = (cos, sin / radius);
    let mut current = 3;
    while current < dim {
        let factor = (current * (current - 2)) as f64 / (radius * radius);
        (lower, value) = (value, factor * (value - lower));
        current += 2;
    }
    value
}

/// Hankel's expansion with two terms for d = 2 and 4, and zero for larger even d.
///
/// The first term left out bounds the remainder (DLMF 10.17.iii) and is below 10⁻¹⁵. For d ≥ 6, with |J(t)| ≤ 0.7858
/// t^{−1/3} (Landau 2000), the function is below Γ(d/2) (2/t)^{d/2−1} t^{−1/3}; the logarithm of this is convex in d,
/// so that for t > 10⁶ and d < t it is largest at d = 6, and there below 10⁻¹³.
fn far_field(dim: usize, radius: f64) -> f64 {
    if dim > 4 {
        return 0.0;
    }
    let (sin, cos) = libm::sincos(radius);
    let envelope = libm::sqrt(std::f64::consts::FRAC_1_PI / radius);
    if dim == 2 {
        envelope * ((cos + sin) + (sin - cos) / (8.0 * radius))
    } else {
        2.0 / radius * envelope * ((sin - cos) + 3.0 * (sin + cos) / (8.0 * radius))
    }
}

/// The trapezoidal rule for the integral over φ.
///
/// For even d the integrand is analytic and periodic, so that the error is the sum of its Fourier coefficients at the
/// multiples of the number of nodes M per turn. Those of cos(t sin φ) are J_M(t), negligible once M exceeds t by
/// several t^{1/3}; those of cos^{d−2} φ are binomial, with standard deviation √d. All weights are positive and sum to
/// one: rounding errors are not amplified, however small the result.
#[derive(Debug, Clone)]
struct TrapezoidalRule {
    largest_radius: f64,
    /// (weight, sin φ) for 0 ≤ φ ≤ π/2; the other half mirrors it.
    nodes: Vec<(f64, f64)>,
}

impl TrapezoidalRule {
    fn new(dim: usize, largest_radius: f64) -> Self {
        let dim_f64 = dim as f64;
        let deviations = (8.6 * libm::sqrt(dim_f64)).min(dim_f64 + 24.0);
        let quarter = libm::ceil(0.25 * (largest_radius + 8.0 * libm::cbrt(largest_radius) + deviations + 24.0));
        let step = TAU / (4.0 * quarter);
        let mut nodes = vec![(0.5, 0.0)];
        let mut total = 0.5;
        let mut index = 1.0;
        while index <= quarter {
            let (sin, cos) = libm::sincos(index * step);
            let weight = if index < quarter {
                // Near the middle, where a large power would magnify it, 1 − cos must not be rounded.
                let log_cos = if sin < 0.5 { 0.5 * libm::log1p(-sin * sin) } else { libm::log(cos) };
                libm::exp((dim_f64 - 2.0) * log_cos)
            } else if dim == 2 {
                0.5
            } else {
                0.0
            };
            if weight < NEGLIGIBLE {
                break;
            }
            nodes.push((weight, sin));
            total += weight;
            index += 1.0;
        }
        for (weight, _) in &mut nodes {
            *weight /= total;
        }
        Self { largest_radius, nodes }
    }

    fn evaluate(&self, radius: f64) -> f64 {
        self.nodes.iter().map(|&(weight, sine)| weight * libm::cos(radius * sine)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (d, t, Ω_d(t)), computed with mpmath at more than 60 digits as `hyp0f1(d/2, -t**2/4)`.
    const REFERENCE: [(usize, f64, f64); 70] = [
        (2, 0.57, 0.9204095648682318),
        (2, 2.69, -0.13801810071293222),
        (2, 4.67, -0.27760733755670475),
        (2, 102.83, 0.004590472303329412),
        (2, 205.66, -0.04359326908960427),
        (3, 0.79, 0.8991813574906428),
        (3, 3.29, -0.044943213922285265),
        (3, 6.72, 0.06295467219389835),
        (3, 103.46, 0.00203905467193691),
        (3, 206.93, -0.0019489454955460275),
        (4, 1.0, 0.880101171489867),
        (4, 3.8, 0.0067478962772272106),
        (4, 8.6, 0.06343135919671643),
        (4, 104.0, 0.00066034642555546),
        (4, 208.0, -6.827959150466834e-05),
        (5, 1.19, 0.8653671005391168),
        (5, 4.25, 0.039114478931359026),
        (5, 10.38, 0.013887650606013236),
        (5, 104.47, 0.0001901294069338463),
        (5, 208.94, 1.9839837655462446e-06),
        (8, 1.53, 0.8619833128972372),
        (8, 5.37, 0.08937784116264383),
        (8, 13.33, -0.0013544849017677243),
        (8, 105.66, 2.991459569948532e-06),
        (8, 211.31, 1.6353814804426557e-08),
        (16, 2.1, 0.8703259402802236),
        (16, 7.6, 0.12857457537340428),
        (16, 18.2, 1.5345893479195536e-05),
        (16, 108.0, -1.695569533044134e-10),
        (16, 216.0, -1.5838105678455014e-12),
        (17, 2.25, 0.8606334907861901),
        (17, 7.83, 0.13111687087153656),
        (17, 19.61, -5.704770285839917e-05),
        (17, 108.25, -1.3291916198029726e-11),
        (17, 216.49, -4.1547612826555144e-13),
        (64, 3.9, 0.8877695640179346),
        (64, 15.2, 0.15594646343485974),
        (64, 33.4, 2.1629881672647355e-05),
        (64, 116.0, -3.46753067227178e-26),
        (64, 232.0, -3.1481360540290804e-32),
        (100, 4.8, 0.8910716012990613),
        (100, 19.0, 0.15905227932849428),
        (100, 41.0, 8.981531561965156e-05),
        (100, 120.0, -1.824026955712893e-26),
        (100, 240.0, -3.025549191886457e-41),
        (257, 7.31, 0.9012225415070597),
        (257, 30.46, 0.16236644437872896),
        (257, 61.9, 0.0004585755519668415),
        (257, 132.06, 4.3313544466219654e-19),
        (257, 264.12, 6.953828612646415e-58),
        (784, 12.2, 0.9094321031353821),
        (784, 53.2, 0.1637899264464981),
        (784, 102.4, 0.001176074006028691),
        (784, 156.0, 1.3149805221469742e-07),
        (784, 312.0, 1.7812541843281562e-30),
        (785, 12.31, 0.9079811593315114),
        (785, 53.23, 0.16383452114526875),
        (785, 103.46, 0.001029907667461095),
        (785, 156.04, 1.331871548309029e-07),
        (785, 312.07, 1.919644376336666e-30),
        (1024, 14.0, 0.9087256421287072),
        (1024, 60.8, 0.16395054857073985),
        (1024, 117.6, 0.001115942788883473),
        (1024, 164.0, 1.6629291867909801e-06),
        (1024, 328.0, 6.589552795451302e-25),
        (4096, 26.9, 0.9154557933780906),
        (4096, 121.6, 0.16434359309069538),
        (4096, 224.2, 0.0021438186755870186),
        (4096, 228.0, 0.0017370445198859716),
        (4096, 456.0, 8.071434201298659e-12),
    ];

    #[test]
    fn agrees_with_reference_values() {
        for (dim, radius, expected) in REFERENCE {
            let error = (sphere_characteristic(dim, radius) - expected).abs();
            assert!(error < 1e-14, "d = {dim}, t = {radius}: error {error:e}");
            let tabulated = SphereCharacteristic::new(dim, 4.0 * (dim as f64).sqrt() + 200.0);
            let error = (tabulated.evaluate(-radius) - expected).abs();
            assert!(error < 1e-14, "d = {dim}, t = {radius}, from the table: error {error:e}");
        }
    }

    /// Neighbouring methods agree where one takes over from the other.
    #[test]
    fn no_seams() {
        for dim in (1..40).chain([63, 64, 65, 1000, 1001]) {
            let limit = series_limit(dim);
            for radius in [0.99 * limit, limit, 1.01 * limit] {
                let series = power_series(dim, radius);
                let other = if has_closed_form(dim) {
                    closed_form(dim, radius)
                } else {
                    TrapezoidalRule::new(dim, radius).evaluate(radius)
                };
                assert!((series - other).abs() < 1e-13, "d = {dim}, t = {radius}: {series} and {other}");
            }
        }
    }

    /// The recurrence between d − 2, d and d + 2 holds across even, odd, small and large dimensions.
    #[test]
    fn recurrence_links_the_dimensions() {
        for dim in [4, 5, 13, 14, 15, 16, 17, 18, 33, 100, 301] {
            for radius in [0.7, 3.0, 11.0, 40.0, 150.0] {
                let at = |dim| sphere_characteristic(dim, radius);
                let factor = (dim * (dim - 2)) as f64 / (radius * radius);
                let error = (at(dim + 2) - factor * (at(dim) - at(dim - 2))).abs();
                assert!(error < 1e-13 * factor.max(1.0), "d = {dim}, t = {radius}: {error:e}");
            }
        }
    }

    #[test]
    fn limits() {
        assert!(sphere_characteristic(0, 1.0).is_nan());
        assert!((sphere_characteristic(1, 2.0) - 2_f64.cos()).abs() < 1e-15);
        for dim in [2, 3, 16, 17, 4096, 1 << 31] {
            assert_eq!(sphere_characteristic(dim, 0.0), 1.0);
            assert_eq!(sphere_characteristic(dim, f64::NEG_INFINITY), 0.0);
            assert!(sphere_characteristic(dim, f64::NAN).is_nan());
        }
        for dim in [2, 4, 6, 100] {
            let radius = 1.5 * FAR;
            let error = far_field(dim, radius) - TrapezoidalRule::new(dim, radius).evaluate(radius);
            assert!(error.abs() < 1e-12, "d = {dim}: {error:e}");
        }
        // For large d it tends to the Gaussian exp(−t²/2d).
        let gaussian = (-0.5 * 9.0_f64).exp();
        assert!((sphere_characteristic(1 << 30, 3.0 * 32768.0) - gaussian).abs() < 1e-6);
    }
}
