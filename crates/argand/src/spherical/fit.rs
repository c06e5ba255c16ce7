//! Fits the mixture: Levenberg and Marquardt's method on the clipped, renormalised kernel itself.

use super::bessel::SphereCharacteristic;
use super::density::{Component, Density, window};
use super::numerics::{gauss_legendre, golden_section, solve_positive_definite};
use super::{COMPONENTS, SphericalFit};
use crate::error::{Argument, Error};

/// Weights and logarithms of the scales.
const PARAMETERS: usize = 2 * COMPONENTS;

/// Cells of the frequency grid during optimisation.
const CELLS: usize = 2048;

/// Price of a unit of weight, in units of the kernel's error.
///
/// The best distribution is often a single length, which the mixture approaches with ever larger weights of alternating
/// sign. This price stops it at weights near 10⁴, where a peak is about one per cent wide, the grid resolves it, and
/// the cancellation costs 4 of 16 digits.
const WEIGHT_PRICE: f64 = 1e-7;

/// Distances between neighbouring scales at the start, relative to the relative width 1/√(2d) of a component.
///
/// Close scales make the mixture a Gaussian times nearly any polynomial, so the optimiser can move its zeros where it
/// wants; which spacing leads to the lowest error depends on d and p.
const START_SPACINGS: [f64; 3] = [0.5, 1.0, 2.0];

const MAX_STEPS: usize = 200;

/// Steps over which the error must fall by [`STALL_FACTOR`], else the optimiser stops.
const STALL_STEPS: usize = 40;
const STALL_FACTOR: f64 = 0.999;

/// The sampling error of 10⁹ features; a closer fit gains nothing.
const SMALL_ENOUGH: f64 = 2e-5;

/// The mixture of [`COMPONENTS`] Gaussians whose positive part, renormalised, has the kernel closest in mean
/// square to (1 − z²/s²)^p with p = `degree` for 0 ≤ z ≤ 2, as far as the optimiser finds it.
///
/// The objective is the error of the actual kernel of the features, after clipping, not that of the mixture before it.
/// No random numbers are involved: the same arguments give the same fit on every machine. Where d is large or s = 2 and
/// p is small, even the best distribution of frequencies keeps a bias (for d → ∞, s = 2, p = 3: a root mean square of
/// 0.0307 and a maximum of 0.050).
///
/// If directions are drawn in a space larger than that of the data (padded to a power of two, say), `dim` is the
/// dimension of that space.
///
/// # Errors
/// [`Error::Invalid`] unless `dim` ≥ 2, `degree` ≥ 1 and `s` is finite and at least 2.
///
/// # Reference
/// Pennington, Yu and Kumar (2015) for the model; the objective after clipping and the optimiser are ours.
///
/// # Cost
/// 0.1 to 0.5 s on one core, whatever d and p, and about 1 MB.
///
/// ```
/// let fit = argand::spherical::fit(64, 7, 2.0)?;
/// assert_eq!((fit.weights.len(), fit.scales.len()), (10, 10));
/// # Ok::<(), argand::Error>(())
/// ```
pub fn fit(dim: usize, degree: usize, s: f64) -> Result<SphericalFit, Error> {
    validate_kernel(dim, degree, s)?;
    let problem = Problem::new(dim, degree, s);
    let mut best: Option<SphericalFit> = None;
    for spacing in START_SPACINGS {
        let mixture = problem.optimize(problem.start(spacing));
        if let Some(fit) = problem.report(&mixture)
            && best.as_ref().is_none_or(|best| fit.rms_error < best.rms_error)
        {
            best = Some(fit);
        }
        if best.as_ref().is_some_and(|best| best.rms_error < 1.1 * problem.small_enough()) {
            break;
        }
    }
    // Every start is positive and every step keeps it so; only arguments near the ends of the floating-point
    // range fail.
    best.ok_or_else(|| Error::invalid(Argument::S, "a kernel that does not underflow", s))
}

/// What [`fit`] accepts.
pub(super) fn validate_kernel(dim: usize, degree: usize, s: f64) -> Result<(), Error> {
    if !(2..=1 << 31).contains(&dim) {
        return Err(Error::invalid(
            Argument::Dim,
            "2 to 2147483648 (on the sphere of one dimension lie two points)",
            dim,
        ));
    }
    if degree == 0 || u32::try_from(degree).is_err() {
        return Err(Error::invalid(Argument::Degree, "1 to 4294967295", degree));
    }
    if !(s.is_finite() && s >= 2.0) {
        return Err(Error::invalid(Argument::S, "a finite number of at least 2", s));
    }
    Ok(())
}

/// (1 − z²/s²)^p.
pub(super) fn target(degree: usize, s: f64, distance: f64) -> f64 {
    let ratio = distance / s;
    libm::pow((1.0 - ratio) * (1.0 + ratio), degree as f64)
}

/// The parameters of a mixture, weights first.
#[derive(Debug, Clone, Copy)]
struct Mixture {
    weights: [f64; COMPONENTS],
    log_scales: [f64; COMPONENTS],
}

/// The result of one evaluation of the objective.
struct Evaluation {
    /// ∫ max(0, mixture).
    mass: f64,
    /// The objective: mean squared error plus the price of the weights.
    objective: f64,
    /// Half its gradient.
    gradient: [f64; PARAMETERS],
    /// The Gauss–Newton approximation of half its Hessian.
    curvature: [[f64; PARAMETERS]; PARAMETERS],
}

impl Evaluation {
    /// Divides the weights by the mass, and transforms the derivatives accordingly.
    fn rescale(&mut self, mixture: &mut Mixture) {
        mixture.weights.iter_mut().for_each(|weight| *weight /= self.mass);
        for weight in 0..COMPONENTS {
            self.gradient[weight] *= self.mass;
            self.curvature[weight].iter_mut().for_each(|entry| *entry *= self.mass);
            self.curvature.iter_mut().for_each(|row| row[weight] *= self.mass);
        }
        self.mass = 1.0;
    }
}

/// The objective on fixed grids of distances and frequencies.
struct Problem {
    dim: usize,
    degree: usize,
    s: f64,
    /// The one Gaussian that is closest to the kernel.
    single_scale: f64,
    lowest_log_scale: f64,
    highest_log_scale: f64,
    /// End of the interval of distances on which the kernel is not negligible.
    farthest: f64,
    targets: Vec<f64>,
    /// Square roots of the weights of the quadrature over distances.
    importance: Vec<f64>,
    step: f64,
    /// The frequency grid: w and log w.
    radii: Vec<(f64, f64)>,
    /// Ω_d(w z), one row of distances per frequency.
    characteristic: Vec<f64>,
}

impl Problem {
    fn new(dim: usize, degree: usize, s: f64) -> Self {
        let guess = libm::sqrt(degree as f64) / s;
        // Beyond, kernel and Gaussian are both below exp(−81).
        let farthest = (9.0 / guess).min(2.0);
        let (nodes, node_weights) = gauss_legendre(24 + 4 * ceiling(guess * farthest));
        let distances: Vec<f64> = nodes.iter().map(|node| 0.5 * farthest * (1.0 + node)).collect();
        let importance: Vec<f64> = node_weights.iter().map(|weight| libm::sqrt(0.25 * farthest * weight)).collect();
        let targets: Vec<f64> = distances.iter().map(|&distance| target(degree, s, distance)).collect();

        let gaussian_error = |log_scale: f64| {
            let squared_scale = libm::exp(2.0 * log_scale);
            let errors = distances.iter().zip(&targets).zip(&importance).map(|((distance, target), importance)| {
                importance * (libm::exp(-squared_scale * distance * distance) - target)
            });
            errors.map(|error| error * error).sum::<f64>()
        };
        let log_guess = libm::log(guess);
        let single_scale = libm::exp(golden_section(gaussian_error, log_guess - 1.0, log_guess + 1.0));

        // Room for the starts and some drift. Only the resolution of the grid limits low scales.
        let relative_width = 1.0 / libm::sqrt(2.0 * dim as f64);
        let highest_scale = single_scale * (1.0 + (10.0 * relative_width).min(1.5));
        let lowest_scale = single_scale * (1.0 - 20.0 * relative_width).max(0.0);
        let (first, last) = window(dim, lowest_scale, highest_scale);
        let step = (last - first) / CELLS as f64;
        let lowest_scale = lowest_scale.max(4.0 * step);

        // The ends have no mass, and the first may be zero.
        let radii: Vec<f64> = (1..CELLS).map(|index| first + index as f64 * step).collect();
        let table = SphereCharacteristic::new(dim, farthest * last);
        let characteristic = radii
            .iter()
            .flat_map(|radius| distances.iter().map(move |distance| radius * distance))
            .map(|product| table.evaluate(product))
            .collect();
        Self {
            dim,
            degree,
            s,
            single_scale,
            lowest_log_scale: libm::log(lowest_scale),
            highest_log_scale: libm::log(highest_scale),
            farthest,
            targets,
            importance,
            step,
            radii: radii.iter().map(|&radius| (radius, libm::log(radius))).collect(),
            characteristic,
        }
    }

    /// The root mean square over all distances of an error of [`SMALL_ENOUGH`] where the kernel is not negligible.
    fn small_enough(&self) -> f64 {
        SMALL_ENOUGH * libm::sqrt(0.5 * self.farthest)
    }

    /// Positive weights on a ladder of scales around the single best one.
    fn start(&self, spacing: f64) -> Mixture {
        let log_step = spacing * (1.0 / libm::sqrt(2.0 * self.dim as f64)).min(0.25);
        let center = 0.5 * (COMPONENTS as f64 - 1.0);
        let offset = |index: usize| index as f64 - center;
        Mixture {
            weights: std::array::from_fn(|index| libm::exp(-0.8 * offset(index) * offset(index))),
            log_scales: std::array::from_fn(|index| {
                let log_scale = libm::log(self.single_scale) + log_step * offset(index);
                log_scale.clamp(self.lowest_log_scale, self.highest_log_scale)
            }),
        }
    }

    /// Levenberg–Marquardt steps until the error stalls.
    fn optimize(&self, start: Mixture) -> Mixture {
        let mut mixture = start;
        let Some(mut current) = self.evaluate(&mixture) else { return mixture };
        current.rescale(&mut mixture);
        let mut damping = 1e-2;
        let mut history = vec![current.objective];
        while history.len() <= MAX_STEPS {
            let Some((next, evaluation)) = self.improve(&mixture, &current, &mut damping) else { break };
            mixture = next;
            current = evaluation;
            // The kernel does not depend on the scale of the weights; keeping the mass at one keeps them comparable.
            current.rescale(&mut mixture);
            history.push(current.objective);
            let stalled = history.len() > STALL_STEPS
                && current.objective > STALL_FACTOR * STALL_FACTOR * history[history.len() - 1 - STALL_STEPS];
            if stalled || current.objective < self.small_enough() * self.small_enough() {
                break;
            }
        }
        mixture
    }

    /// One step that lowers the objective, if any damping gives one.
    fn improve(&self, mixture: &Mixture, current: &Evaluation, damping: &mut f64) -> Option<(Mixture, Evaluation)> {
        let largest = (0..PARAMETERS).map(|index| current.curvature[index][index]).fold(0.0, f64::max);
        while *damping < 1e12 {
            let mut damped = current.curvature;
            for (index, row) in damped.iter_mut().enumerate() {
                row[index] += *damping * row[index].max(1e-12 * largest);
            }
            let step = solve_positive_definite(damped, current.gradient);
            let candidate = step.map(|step| Mixture {
                weights: std::array::from_fn(|index| mixture.weights[index] - step[index]),
                log_scales: std::array::from_fn(|index| {
                    let log_scale = mixture.log_scales[index] - step[COMPONENTS + index].clamp(-0.3, 0.3);
                    log_scale.clamp(self.lowest_log_scale, self.highest_log_scale)
                }),
            });
            let evaluated = candidate.and_then(|candidate| Some((candidate, self.evaluate(&candidate)?)));
            if let Some((candidate, evaluation)) = evaluated
                && evaluation.objective < current.objective
            {
                *damping = (*damping * 0.2).max(1e-14);
                return Some((candidate, evaluation));
            }
            *damping *= 4.0;
        }
        None
    }

    /// The objective and its derivatives; `None` if the mixture is positive nowhere or not finite.
    ///
    /// With N(z) = ∫ max(0, q) Ω and the mass N(0), the kernel is N(z)/N(0) and its derivative by a parameter θ is
    /// ∫_{q>0} (∂q/∂θ) (Ω(wz) − kernel(z)) dw / N(0): the boundary moves too, but q vanishes there.
    fn evaluate(&self, mixture: &Mixture) -> Option<Evaluation> {
        let components = mixture.log_scales.map(|log_scale| Component::new(self.dim, log_scale));
        let columns = self.targets.len();
        let mut mass = 0.0;
        let mut kernel = vec![0.0; columns];
        let mut masses = [0.0; PARAMETERS];
        let mut derivatives = vec![0.0; PARAMETERS * columns];
        for (&(radius, log_radius), row) in self.radii.iter().zip(self.characteristic.chunks_exact(columns)) {
            let mut by_parameter = [0.0; PARAMETERS];
            let mut density = 0.0;
            for (index, (component, weight)) in components.iter().zip(&mixture.weights).enumerate() {
                let (value, slope) = component.evaluate(radius, log_radius);
                density += weight * value * self.step;
                by_parameter[index] = value * self.step;
                by_parameter[COMPONENTS + index] = weight * slope * self.step;
            }
            if density <= 0.0 {
                continue;
            }
            mass += density;
            add_multiple(&mut kernel, density, row);
            for ((sums, total), share) in derivatives.chunks_exact_mut(columns).zip(&mut masses).zip(by_parameter) {
                if share != 0.0 {
                    *total += share;
                    add_multiple(sums, share, row);
                }
            }
        }
        if !(mass > 0.0 && mass.is_finite()) {
            return None;
        }

        let mut objective = 0.0;
        let mut gradient = [0.0; PARAMETERS];
        let mut curvature = [[0.0; PARAMETERS]; PARAMETERS];
        let mut add_residual = |residual: f64, slopes: &[f64; PARAMETERS]| {
            objective += residual * residual;
            for (row, &slope) in slopes.iter().enumerate() {
                gradient[row] += slope * residual;
                for (entry, other) in curvature[row].iter_mut().zip(slopes) {
                    *entry += slope * other;
                }
            }
        };
        for column in 0..columns {
            let (kernel, importance) = (kernel[column] / mass, self.importance[column]);
            let slopes = std::array::from_fn(|parameter| {
                importance * (derivatives[parameter * columns + column] - masses[parameter] * kernel) / mass
            });
            add_residual(importance * (kernel - self.targets[column]), &slopes);
        }
        for (index, weight) in mixture.weights.iter().enumerate() {
            let relative = weight / mass;
            let slopes = std::array::from_fn(|parameter| {
                let own = if parameter == index { 1.0 } else { 0.0 };
                WEIGHT_PRICE * (own - relative * masses[parameter]) / mass
            });
            add_residual(WEIGHT_PRICE * relative, &slopes);
        }
        objective.is_finite().then_some(Evaluation { mass, objective, gradient, curvature })
    }

    /// The fit with its errors, measured on the finer grid that sampling uses and at other distances.
    fn report(&self, mixture: &Mixture) -> Option<SphericalFit> {
        let scales: Vec<f64> = mixture.log_scales.iter().map(|&log_scale| libm::exp(log_scale)).collect();
        let density = Density::new(self.dim, &mixture.weights, &scales)?;
        let weights = mixture.weights.iter().map(|weight| weight / density.mass).collect();
        let (mut mean_square, mut max_error) = (0.0, 0.0_f64);
        // Where the kernel is negligible a few points are enough to see that the fitted one is too.
        let near = (0.0, self.farthest, self.targets.len() + 5);
        let far = (self.farthest, (5.0 * self.farthest).min(2.0), 8);
        for (begin, end, count) in [near, far] {
            if begin >= end {
                continue;
            }
            let (nodes, node_weights) = gauss_legendre(count);
            // The ends have no weight in the mean, but the maximum may be there.
            let nodes: Vec<f64> = nodes.into_iter().chain([1.0]).collect();
            let distances: Vec<f64> = nodes.iter().map(|node| begin + 0.5 * (end - begin) * (1.0 + node)).collect();
            let errors = distances
                .iter()
                .zip(density.kernels(self.dim, &distances))
                .map(|(&distance, kernel)| kernel - target(self.degree, self.s, distance));
            for (error, weight) in errors.zip(node_weights.into_iter().chain([0.0])) {
                mean_square += 0.25 * (end - begin) * weight * error * error;
                max_error = max_error.max(error.abs());
            }
        }
        let rms_error = libm::sqrt(mean_square);
        Some(SphericalFit { dim: self.dim, degree: self.degree, s: self.s, weights, scales, rms_error, max_error })
    }
}

fn add_multiple(sums: &mut [f64], factor: f64, row: &[f64]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += factor * value;
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive; the cast saturates")]
fn ceiling(value: f64) -> usize {
    libm::ceil(value) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    /// No distribution of lengths can beat the second number, found by non-negative least squares over point masses on
    /// a fine grid (scipy). The mixture comes within a few per cent of it.
    #[test]
    fn close_to_the_best_possible() {
        let cases = [
            ((4, 3, 2.0), 0.003583),
            ((16, 3, 2.0), 0.01807),
            ((16, 7, 2.0), 0.001355),
            ((64, 3, 2.0), 0.02784),
            ((784, 7, 2.0), 0.01128),
        ];
        for ((dim, degree, s), bound) in cases {
            let fit = fit(dim, degree, s).unwrap();
            let ratio = fit.rms_error / bound;
            assert!(ratio > 0.998 && ratio < 1.05, "d = {dim}, p = {degree}, s = {s}: {} of {bound}", fit.rms_error);
            assert!(fit.weights.iter().all(|weight| weight.abs() < 1e5), "{:?}", fit.weights);
        }
    }

    /// For large d only mixtures of Gaussians in z remain, and a single one is best.
    #[test]
    fn large_dimensions_end_at_the_gaussian() {
        let fit = fit(4096, 3, 2.0).unwrap();
        assert!(fit.rms_error < 0.0307 && fit.max_error < 0.05, "{fit:?}");
        let error = (fit.kernel(1.0) - (-0.957_f64 * 0.957).exp()).abs();
        assert!(error < 2e-3, "{error}");
    }

    /// Extreme arguments give a fit, and for large p a good one.
    #[test]
    fn extremes() {
        for (dim, degree, s) in [(2, 1, 2.0), (3, 1, 1e6), (2, 1_000_000, 2.0), (1 << 20, 2, 2.0), (16, 300, 2.0)] {
            let fit = fit(dim, degree, s).unwrap();
            assert_eq!(fit.validate(), Ok(()));
            assert!(
                fit.rms_error <= fit.max_error && fit.max_error < 0.22,
                "d = {dim}, p = {degree}, s = {s}: {fit:?}"
            );
            assert!(degree < 100 || fit.max_error < 2e-4, "d = {dim}, p = {degree}, s = {s}: {fit:?}");
        }
    }

    /// Literal values: a fit is stored, but the same spec must also give the same sketch when fitted anew elsewhere.
    #[test]
    fn value_stability() {
        let fit = fit(16, 3, 2.0).unwrap();
        let radii = fit.radii(3, &mut Stream::new(42, Purpose::Weights, 0, 0));
        for (got, expected) in radii.iter().chain([&fit.rms_error, &fit.max_error]).zip(STABLE) {
            assert!((got / expected - 1.0).abs() < 1e-9, "{radii:?} {fit:?}");
        }
    }

    const STABLE: [f64; 5] =
        [5.25036827725193, 5.301032424885336, 5.248088080453554, 0.01812428975588403, 0.030041532203320273];

    #[test]
    fn bad_arguments_are_named() {
        let named = |result: Result<SphericalFit, Error>| match result {
            Err(Error::Invalid { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        for dim in [0, 1, usize::MAX] {
            assert_eq!(named(fit(dim, 3, 2.0)), Argument::Dim);
        }
        for degree in [0, usize::MAX] {
            assert_eq!(named(fit(16, degree, 2.0)), Argument::Degree);
        }
        for s in [f64::NAN, f64::INFINITY, 1.99, -2.0] {
            assert_eq!(named(fit(16, 3, s)), Argument::S);
        }
    }

    /// The gradient against central differences, at a mixture that is clipped in several places.
    #[test]
    fn derivatives() {
        let problem = Problem::new(6, 4, 2.0);
        let mut mixture = problem.start(1.0);
        for (index, weight) in mixture.weights.iter_mut().enumerate() {
            *weight = if index % 2 == 0 { 1.0 + 0.1 * index as f64 } else { -0.9 };
        }
        let objective = |mixture: &Mixture| problem.evaluate(mixture).unwrap().objective;
        let gradient = problem.evaluate(&mixture).unwrap().gradient;
        let largest = gradient.iter().fold(0.0_f64, |largest, slope| largest.max(slope.abs()));
        for parameter in 0..PARAMETERS {
            let shifted = |shift: f64| {
                let mut mixture = mixture;
                match parameter.checked_sub(COMPONENTS) {
                    None => mixture.weights[parameter] += shift,
                    Some(index) => mixture.log_scales[index] += shift,
                }
                objective(&mixture)
            };
            let slope = 0.5 * (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
            assert!((slope - gradient[parameter]).abs() < 1e-5 * largest, "{parameter}: {slope} {gradient:?}");
        }
    }

    /// Rescaling the weights rescales the derivatives as a fresh evaluation would.
    #[test]
    fn rescaling() {
        let problem = Problem::new(6, 4, 2.0);
        let mut mixture = problem.start(1.0);
        let mut rescaled = problem.evaluate(&mixture).unwrap();
        rescaled.rescale(&mut mixture);
        let fresh = problem.evaluate(&mixture).unwrap();
        assert!((fresh.mass - 1.0).abs() < 1e-12);
        for row in 0..PARAMETERS {
            assert!((fresh.gradient[row] - rescaled.gradient[row]).abs() < 1e-12);
            for column in 0..PARAMETERS {
                assert!((fresh.curvature[row][column] - rescaled.curvature[row][column]).abs() < 1e-12);
            }
        }
    }
}
