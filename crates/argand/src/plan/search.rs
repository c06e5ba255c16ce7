//! The number of features each method needs to reach the goal, and its error.

use super::remarks::Reason;
use super::scale::has_unit_rows;
use super::timing::{Clock, Times, Timing};
use super::{Rejected, Request, Step};
use crate::error::{Argument, Error};
use crate::fit::{Aim, Fitting, Selection};
use crate::rows::{Input, OwnedRows};
use crate::scalar::Scalar;
use crate::spec::{Base, Field, Frequencies, Method, Spec};
use crate::theory::variance::Formula;
use crate::theory::{ExpectedError, Predictor, choose_rows};

/// The most features tried for measured methods: drawing and measuring more would take too long.
const MOST_MEASURED: usize = 1 << 15;

/// Bytes of all the sketches that one measurement draws, unless twelve of them take more.
const DRAWN_BYTES: u64 = 1 << 28;

/// Numbers that the sketches of one measurement draw, at about 20 ns each.
const DRAWN_NUMBERS: usize = 1 << 24;

/// The features with which the first measurement of time is made.
const PROBE: usize = 512;

/// A sketch, fitted if its method looks at rows.
pub(super) struct Found {
    pub(super) spec: Spec,
    /// Seconds to fit it.
    pub(super) fit_seconds: f64,
    /// Its times, if they were measured already.
    pub(super) times: Option<Times>,
    pub(super) error: ExpectedError,
}

/// A search for sketches, and the methods rejected so far.
pub(super) struct Search<'a, 'b, T> {
    request: &'a Request,
    inputs: &'a [Input<'b, T>],
    /// The rows on which no error is measured, if there are any: landmarks come from them, as errors on landmarks are zero.
    others: Option<OwnedRows<T>>,
    predictor: Predictor<T>,
    step: &'a mut dyn FnMut(Step),
    pub(super) rejected: Vec<Rejected>,
}

impl<'a, 'b, T: Scalar> Search<'a, 'b, T> {
    /// Samples the rows.
    pub(super) fn new(
        request: &'a Request,
        inputs: &'a [Input<'b, T>],
        step: &'a mut dyn FnMut(Step),
    ) -> Result<Self, Error> {
        let sampling = &request.sampling;
        let predictor = Predictor::new(&request.plain_spec(2), inputs, sampling)?;
        let measured = choose_rows(inputs[0].rows(), sampling.measured_rows, sampling.seed);
        let others: Vec<usize> = (0..inputs[0].rows()).filter(|row| measured.binary_search(row).is_err()).collect();
        let wanted = request.methods.contains(&Method::Nystrom) && others.len() > 1;
        let others = wanted.then(|| OwnedRows::take(&inputs[0], &others));
        Ok(Self { request, inputs, others, predictor, step, rejected: Vec::new() })
    }

    /// The share of pairs of different rows with a < 0; it says nothing about kernels that are not polynomial.
    pub(super) fn opposed_pairs(&self) -> f64 {
        if self.request.kernel.polynomial().is_some() { self.predictor.opposed_pairs() } else { 0.0 }
    }

    /// Reports progress.
    pub(super) fn step(&mut self, step: Step) {
        (self.step)(step);
    }

    /// Rejects a method.
    pub(super) fn reject(&mut self, method: Method, reason: Reason) {
        self.rejected.push(Rejected { method, reason });
    }

    /// Whether a sketch can be drawn at all; rejects it if not.
    fn possible(&mut self, spec: &Spec) -> bool {
        let reason = match spec.memory_bytes::<T>() {
            Err(error) => Reason::Impossible(error),
            Ok(bytes) if bytes > self.request.memory_limit => Reason::Memory { bytes, features: spec.features },
            Ok(_) if spec.method == Method::Spherical && !self.inputs.iter().all(has_unit_rows) => Reason::NotUnitNorm,
            Ok(_) => return true,
        };
        self.reject(spec.method, reason);
        false
    }

    /// The sketch of a method with so many features, fitted, and the seconds that took; rejected if there is none.
    fn fitted(&mut self, method: Method, features: usize) -> Option<(Spec, f64)> {
        self.fitted_for(self.request.aim, method, features)
    }

    /// As [`Search::fitted`], for an aim.
    fn fitted_for(&mut self, aim: Aim, method: Method, features: usize) -> Option<(Spec, f64)> {
        let spec = self.request.spec(method, features);
        if !method.looks_at_rows() {
            return self.possible(&spec).then_some((spec, 0.0));
        }
        let clock = Clock::start();
        // Landmarks at random cost no time, which buys more of them than better ones are worth.
        let fitting = Fitting::default().with_selection(Selection::Uniform).with_aim(aim);
        let fitted = match (&self.others, method) {
            (Some(others), Method::Nystrom) if features > others.view().rows() => {
                let (most, all) = (others.view().rows(), self.inputs[0].rows());
                let expected =
                    format!("at most {most} landmarks, as errors are measured on the other {} rows", all - most);
                Err(Error::invalid(Argument::Features, expected, features))
            }
            (Some(others), Method::Nystrom) => spec.fit_to(&[others.view()], &fitting),
            _ => spec.fit_to(self.inputs, &fitting),
        };
        let seconds = clock.seconds();
        match fitted {
            Ok(fitted) => self.possible(&fitted).then_some((fitted, seconds)),
            Err(error) => {
                self.reject(method, Reason::Impossible(error));
                None
            }
        }
    }

    /// The same sum for the other aim, if labels will tell which one is better.
    pub(super) fn for_other_aim(&mut self, spec: &Spec) -> Result<Option<Found>, Error> {
        if !(self.request.labelled && matches!(spec.method, Method::Maclaurin(_))) {
            return Ok(None);
        }
        let other = if self.request.aim == Aim::Kernel { Aim::Learning } else { Aim::Kernel };
        match self.fitted_for(other, spec.method, spec.features) {
            Some((fitted, fit_seconds)) => self.predict(fitted, fit_seconds),
            None => Ok(None),
        }
    }

    /// The most features of a method that a search for a goal considers.
    fn most_features(&self, method: Method) -> usize {
        let most = self.request.max_features.min(method.craft().unwrap_or(usize::MAX));
        // Half of the rows, so that there is a choice.
        let landmarks = self.others.as_ref().map_or(self.inputs[0].rows(), |others| others.view().rows()) / 2;
        if method == Method::Nystrom { most.min(landmarks.max(2)) } else { most }
    }

    /// All methods with a given number of features; all monomials may be fewer.
    pub(super) fn with(&mut self, features: usize) -> Result<Vec<Found>, Error> {
        let mut found = Vec::new();
        for method in self.request.distinct_methods() {
            self.step(Step::Predicting(method));
            if self.request.spec(method, features).features > features {
                self.reject(method, Reason::TooManyFeatures { most: features });
            } else if let Some((spec, fit_seconds)) = self.fitted(method, features) {
                found.extend(self.predict(spec, fit_seconds)?);
            }
        }
        Ok(found)
    }

    /// Every method with the most features that can be computed and fitted in so many seconds.
    pub(super) fn within(&mut self, seconds: f64, timing: &dyn Timing) -> Result<Vec<Found>, Error> {
        let mut found = Vec::new();
        for method in self.request.distinct_methods() {
            self.step(Step::Timing(method));
            if let Some((spec, fit_seconds, times)) = self.largest_within(method, seconds, timing)? {
                self.step(Step::Predicting(method));
                let predicted = self.predict(spec, fit_seconds)?;
                found.extend(predicted.map(|predicted| Found { times: Some(times), ..predicted }));
            }
        }
        Ok(found)
    }

    /// The sketch of a method with the most features in time. Times of some sizes are measured, those of others follow from them.
    fn largest_within(
        &mut self,
        method: Method,
        seconds: f64,
        timing: &dyn Timing,
    ) -> Result<Option<(Spec, f64, Times)>, Error> {
        let most = self.most_features(method);
        if method == Method::Exact && self.request.spec(method, 2).features > most {
            self.reject(method, Reason::TooManyFeatures { most });
            return Ok(None);
        }
        let sizes: Vec<usize> =
            std::iter::successors(Some(2), |&size| Some(next_size(size + 1)).filter(|&next| next <= most)).collect();
        let mut size = sizes.iter().copied().rfind(|&size| size <= PROBE).unwrap_or(2);
        let (mut best, mut too_large): (Option<(Spec, f64, Times)>, usize) = (None, usize::MAX);
        let mut last = 0.0;
        for _ in 0..5 {
            let Some((spec, fit_seconds)) = self.fitted(method, size) else { return Ok(best) };
            let times = match timing.times(&spec) {
                Err(Error::Overflow { dtype, .. }) => {
                    self.reject(method, Reason::Overflow { dtype });
                    return Ok(None);
                }
                times => times?,
            };
            let Times { draw, features, fit } = times;
            last = fit_seconds + draw + features + fit;
            if last <= seconds {
                if best.as_ref().is_none_or(|(best, ..)| best.features < spec.features) {
                    best = Some((spec, fit_seconds, times));
                }
            } else {
                too_large = size;
            }
            if method == Method::Exact {
                break;
            }
            // Costs grow by at least one power of the features, those of whitened kernels by two.
            let powers = if method == Method::Nystrom { [3, 2] } else { [1, 1] };
            let expected = |&other: &usize| {
                let ratio = other as f64 / size as f64;
                (fit_seconds + draw) * ratio.powi(powers[0])
                    + features * ratio.powi(powers[1])
                    + timing.fit_seconds(other)
            };
            let next = sizes.iter().copied().rfind(|other| *other < too_large && expected(other) <= seconds);
            let known = best.as_ref().map_or(0, |(best, ..)| best.features);
            match next.or_else(|| sizes.iter().copied().rfind(|&other| 2 * other <= size)) {
                // Less than a step of sizes is left to gain.
                Some(next) if 16 * next > 17 * known && next != size => size = next,
                _ => break,
            }
        }
        if best.is_none() {
            self.reject(method, Reason::TooSlow { seconds: last });
        }
        Ok(best)
    }

    /// The error of a fitted spec by closed form or measurement; rejected if it cannot be measured.
    fn predict(&mut self, mut spec: Spec, fit_seconds: f64) -> Result<Option<Found>, Error> {
        if spec.method == Method::Spherical {
            spec.fit.clone_from(&Spec { features: 2, ..spec.clone() }.sketch::<T>()?.spec().fit);
        }
        // Large sketches are slow to draw: use fewer, and accept a wider interval.
        let affordable = usize::try_from(DRAWN_BYTES / spec.memory_bytes::<T>()?.max(1)).unwrap_or(usize::MAX);
        let affordable = affordable.min(DRAWN_NUMBERS / drawn_numbers(&spec).max(1));
        let sketches = self.request.sampling.sketches.min(affordable.max(12));
        match self.predictor.predict(&spec, sketches) {
            Ok(error) => Ok(Some(Found { spec, fit_seconds, times: None, error })),
            // Features overflow in their own type; an overflow in `f64` is the kernel's, whatever the method.
            Err(Error::Overflow { dtype, .. }) if dtype == T::NAME && dtype != f64::NAME => {
                self.reject(spec.method, Reason::Overflow { dtype });
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// The fewest features of every method that reach a target error.
    pub(super) fn reach(&mut self, target: f64) -> Result<Vec<Found>, Error> {
        let request = self.request;
        let mut closed = Vec::new();
        let mut others = Vec::new();
        let mut found = Vec::new();
        for method in request.distinct_methods() {
            let small = request.spec(method, 2);
            if method == Method::Exact && small.features > request.max_features {
                self.reject(method, Reason::TooManyFeatures { most: request.max_features });
            } else if method.looks_at_rows() {
                others.push(method);
            } else if self.possible(&small) {
                match Formula::of(&small)? {
                    Some(_) if method == Method::Exact => found.extend(self.predict(small, 0.0)?),
                    Some(_) => closed.push(method),
                    None => others.push(method),
                }
            }
        }
        let specs = |sizes: &dyn Fn(usize) -> Vec<usize>| -> Vec<Vec<Spec>> {
            let of =
                |(index, &method)| sizes(index).into_iter().map(|features| request.spec(method, features)).collect();
            closed.iter().enumerate().map(of).collect()
        };
        // Powers of two first, then the sizes between the last miss and the first hit.
        let doublings: Vec<usize> =
            (1..usize::BITS).map(|bits| 1 << bits).take_while(|&d| d < request.max_features).collect();
        let doublings: Vec<usize> = doublings.into_iter().chain([request.max_features & !1]).collect();
        let coarse = self.first_to_reach(target, specs(&|_| doublings.clone()))?;
        let fine = specs(&|index| coarse[index].as_ref().map_or(vec![], |spec| sizes_up_to(spec.features)));
        let fine = self.first_to_reach(target, fine)?;
        let mut guess = None;
        for ((method, coarse), fine) in closed.into_iter().zip(coarse).zip(fine) {
            match fine.or(coarse) {
                Some(spec) => {
                    if self.possible(&spec) {
                        if method == Method::flat(Base::ProductSrht, Field::ComplexToReal) {
                            guess = Some(spec.features);
                        }
                        found.extend(self.predict(spec, 0.0)?);
                    }
                }
                None => self.reject(method, Reason::TooManyFeatures { most: request.max_features }),
            }
        }
        for method in others {
            self.step(Step::Measuring(method));
            let guess = match method {
                // Spherical features may never reach the target, and landmarks are few: start small.
                Method::Spherical | Method::Nystrom => 512,
                _ => guess.unwrap_or(1024),
            };
            found.extend(self.measure_until(method, target, guess)?);
        }
        Ok(found)
    }

    /// For each list of specs, the first one that reaches the target, in one pass over the data for all of them.
    fn first_to_reach(&self, target: f64, lists: Vec<Vec<Spec>>) -> Result<Vec<Option<Spec>>, Error> {
        let formulas = lists.iter().flatten().map(Formula::of).collect::<Result<Vec<_>, _>>()?;
        let formulas: Vec<Formula> = formulas.into_iter().flatten().collect();
        let mut errors = self.predictor.predict_all(&formulas)?.into_iter();
        let first = |list: Vec<Spec>| {
            let errors: Vec<_> = errors.by_ref().take(list.len()).collect();
            let hit = list.into_iter().zip(errors).find(|(_, error)| error.interval()[1] <= target);
            hit.map(|(spec, _)| spec)
        };
        Ok(lists.into_iter().map(first).collect())
    }

    /// The features with which a measured method reaches the target: the error falls roughly as 1/√D, and is measured at every guess.
    fn measure_until(&mut self, method: Method, target: f64, guess: usize) -> Result<Option<Found>, Error> {
        let most = self.most_features(method).min(MOST_MEASURED) & !1;
        let mut features = next_size(guess.min(most)).min(most);
        let mut reached: Option<Found> = None;
        let (mut previous, mut tried) = (f64::INFINITY, 0);
        for _ in 0..4 {
            let Some((spec, fit_seconds)) = self.fitted(method, features) else { return Ok(reached) };
            let Some(found) = self.predict(spec, fit_seconds)? else { return Ok(reached) };
            tried = tried.max(features);
            let ratio = found.error.interval()[1] / target;
            if ratio <= 1.0 && reached.as_ref().is_none_or(|best| features < best.spec.features) {
                reached = Some(found);
            }
            // A biased method stagnates.
            if ratio > 1.15 && ratio > 0.8 * previous {
                break;
            }
            previous = ratio;
            let wanted = (features as f64 * ratio * ratio).clamp(2.0, most as f64);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped to a small positive range"
            )]
            let next = next_size(wanted.ceil() as usize).min(most);
            // Close enough: another measurement would gain less than its uncertainty.
            if next == features || (0.93..=1.0).contains(&ratio) {
                break;
            }
            features = next;
        }
        if reached.is_none() && features == most && !most.is_power_of_two() {
            // Errors are not quite monotone: whole Hadamard matrices, at powers of two, beat slightly larger sizes.
            let whole = most.next_power_of_two() / 2;
            let Some((spec, fit_seconds)) = self.fitted(method, whole) else { return Ok(None) };
            let Some(found) = self.predict(spec, fit_seconds)? else { return Ok(None) };
            reached = Some(found).filter(|found| found.error.interval()[1] <= target);
        }
        if reached.is_none() {
            self.reject(method, Reason::Missed { features: tried });
        }
        Ok(reached)
    }
}

/// How many normal numbers take as long as drawing Fourier features: structured ones have the lengths of Gaussian vectors, and orthogonal ones, which
/// are made orthogonal at about a hundred operations per number, much more to do.
fn drawn_numbers(spec: &Spec) -> usize {
    let Method::Fourier(frequencies) = spec.method else { return 0 };
    let dim = spec.inputs.as_slice()[0];
    let each = if frequencies == Frequencies::Orthogonal { 1 + dim / 50 } else { 1 };
    spec.outputs().saturating_mul(dim).saturating_mul(each)
}

/// The next number of features worth considering: even, and with at most five significant bits, so that steps are at most 6 %.
fn next_size(features: usize) -> usize {
    let bits = usize::BITS - features.max(1).leading_zeros();
    features.max(2).next_multiple_of(1 << bits.saturating_sub(5).max(1))
}

/// The sizes above half of `last`, up to `last`.
fn sizes_up_to(last: usize) -> Vec<usize> {
    let next = |&size: &usize| Some(next_size(size + 1)).filter(|&next| next <= last);
    let mut sizes: Vec<usize> = std::iter::successors(Some(next_size(last / 2 + 1)), next).collect();
    if sizes.last() != Some(&last) {
        sizes.push(last);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Argument;
    use crate::plan::tests::{request, unit};
    use crate::plan::{Goal, plan};
    use crate::rows::Rows;
    use crate::theory::{Sampling, Source, expected_error};

    #[test]
    fn sizes_are_even_and_close_together() {
        assert_eq!([1, 2, 3, 31, 33, 63, 65, 1000, 1025].map(next_size), [2, 2, 4, 32, 34, 64, 68, 1024, 1088]);
        assert_eq!(sizes_up_to(2), [2]);
        assert_eq!(sizes_up_to(8), [6, 8]);
        for last in [64, 1 << 17] {
            let sizes = sizes_up_to(last);
            assert_eq!((sizes.len(), sizes.last()), (16, Some(&last)));
            assert!(sizes.windows(2).all(|pair| pair[0] < pair[1] && 16 * (pair[1] - pair[0]) <= pair[0]), "{sizes:?}");
        }
        // A limit between such sizes comes last.
        let expected: Vec<usize> = (52..64).step_by(2).chain((64..=100).step_by(4)).collect();
        assert_eq!(sizes_up_to(100), expected);
    }

    #[test]
    fn a_target_is_reached_with_few_features() {
        let x = unit(150, 20, 0.0);
        let inputs = [Rows::new(&x, 150, 20).unwrap().into()];
        let plan = plan(&request(3, 20, Goal::Error(0.08)), &inputs, |_| {}).unwrap();
        assert!(plan.best().is_some() && plan.opposed_pairs == 0.0);
        for candidate in &plan.candidates {
            assert!(candidate.error.interval()[1] <= 0.08, "{candidate:?}");
            assert!(candidate.feature_seconds > 0.0 && candidate.fit_seconds > 0.0);
            if candidate.error.source == Source::ClosedForm && candidate.spec.method != Method::Exact {
                // With a tenth fewer features the target is missed.
                let fewer = Spec { features: candidate.spec.features * 9 / 20 * 2, ..candidate.spec.clone() };
                let error = expected_error(&fewer, &inputs, &Sampling::default()).unwrap();
                assert!(error.relative > 0.08, "{} {}", fewer.method, fewer.features);
            }
        }
        // Complex-to-Real needs fewer features than real, on non-negative rows.
        for base in [Base::ProductSrht, Base::Rademacher, Base::Gaussian] {
            let [real, ctr] = [Field::Real, Field::ComplexToReal]
                .map(|field| plan.candidate(Method::flat(base, field)).unwrap().spec.features);
            assert!(ctr < real, "{base:?}: {ctr}, {real}");
        }
    }

    /// Of a sample, the upper end of the interval reaches the target, not the estimate.
    #[test]
    fn a_target_is_reached_with_confidence() {
        let x = unit(60, 20, 0.0);
        let inputs = [Rows::new(&x, 60, 20).unwrap().into()];
        let mut request = request(3, 20, Goal::Error(0.1));
        request.sampling = request.sampling.with_rows(5).with_population(100_000);
        // All monomials have no error.
        request.methods.retain(|&method| method != Method::Exact);
        let plan = plan(&request, &inputs, |_| {}).unwrap();
        let closed: Vec<_> = plan.candidates.iter().filter(|c| c.error.source == Source::ClosedForm).collect();
        assert!(closed.len() > 3);
        for candidate in closed {
            let error = candidate.error;
            assert!(error.interval()[1] <= 0.1, "{candidate:?}");
            // Wider than the steps between numbers of features: the estimate alone would have stopped earlier.
            assert!(error.interval()[1] > 1.08 * error.relative, "{candidate:?}");
        }
    }

    /// Few features would fit into memory, those of the goal do not: the last check counts.
    #[test]
    fn the_memory_limit_holds_for_the_sketch_that_is_found() {
        let x = unit(60, 20, 0.0);
        let inputs = [Rows::new(&x, 60, 20).unwrap().into()];
        let method: Method = "gaussian".parse().unwrap();
        let mut request = Request { methods: vec![method], ..request(3, 20, Goal::Error(0.1)) };
        let found = plan(&request, &inputs, |_| {}).unwrap();
        let (bytes, features) = (found.candidates[0].memory_bytes, found.candidates[0].spec.features);
        request.memory_limit = bytes;
        assert_eq!(plan(&request, &inputs, |_| {}).unwrap().candidates.len(), 1);
        request.memory_limit = bytes - 1;
        let rejected = plan(&request, &inputs, |_| {}).unwrap();
        assert!(rejected.candidates.is_empty());
        assert_eq!(rejected.rejected, [Rejected { method, reason: Reason::Memory { bytes, features } }]);
    }

    #[test]
    fn what_cannot_reach_the_goal_is_rejected_for_a_reason() {
        let x = unit(60, 8, 0.0);
        let inputs = [Rows::new(&x, 60, 8).unwrap().into()];
        let reasons = |request: &Request| -> Vec<Rejected> {
            let mut request = request.clone();
            request.methods.retain(|&method| ![Method::Nystrom, Method::Exact].contains(&method));
            let plan = plan(&request, &inputs, |_| {}).unwrap();
            // Every method is rejected: none is forgotten, and none is a candidate all the same.
            assert_eq!((plan.candidates.len(), plan.rejected.len()), (0, request.distinct_methods().len()));
            plan.rejected
        };
        // The kernel of spherical features is another one.
        let gamma =
            |reason: &Reason| matches!(reason, Reason::Impossible(Error::Invalid { argument: Argument::Gamma, .. }));
        for Rejected { method, reason } in reasons(&Request { memory_limit: 1, ..request(2, 8, Goal::Features(64)) }) {
            assert!(matches!(reason, Reason::Memory { features: 64, .. }) || gamma(&reason), "{method}: {reason:?}");
        }
        // After 20 features, 16 are tried as well.
        for most in [16, 20] {
            let request = Request { max_features: most, ..request(2, 8, Goal::Error(0.001)) };
            for Rejected { method, reason } in reasons(&request) {
                match method.craft() {
                    _ if method == Method::Spherical => assert!(gamma(&reason), "{reason:?}"),
                    Some(_) => assert_eq!(reason, Reason::Missed { features: most }),
                    None => assert_eq!(reason, Reason::TooManyFeatures { most }, "{method}"),
                }
            }
        }
    }
}
