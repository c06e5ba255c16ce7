//! The number of features each method needs to reach the goal, and its error.

use super::remarks::Reason;
use super::scale::has_unit_rows;
use super::{Rejected, Request, Step};
use crate::error::Error;
use crate::rows::Input;
use crate::scalar::Scalar;
use crate::spec::{Base, Field, Method, Spec};
use crate::theory::variance::Formula;
use crate::theory::{ExpectedError, Predictor};

/// The most features tried for measured methods: drawing and measuring more would take too long.
const MOST_MEASURED: usize = 1 << 15;

/// Bytes of all the sketches that one measurement draws, unless twelve of them take more.
const DRAWN_BYTES: u64 = 1 << 28;

/// A sketch and its expected error.
type Found = (Spec, ExpectedError);

/// A search for sketches, and the methods rejected so far.
pub(super) struct Search<'a, 'b, T> {
    request: &'a Request,
    inputs: &'a [Input<'b, T>],
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
        let predictor = Predictor::new(&request.plain_spec(2), inputs, &request.sampling)?;
        Ok(Self { request, inputs, predictor, step, rejected: Vec::new() })
    }

    /// The share of pairs of different rows with a < 0.
    pub(super) fn opposed_pairs(&self) -> f64 {
        self.predictor.opposed_pairs()
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

    /// All methods with a given number of features.
    pub(super) fn with(&mut self, features: usize) -> Result<Vec<Found>, Error> {
        let mut found = Vec::new();
        for method in self.request.distinct_methods() {
            let spec = self.request.spec(method, features);
            if self.possible(&spec) {
                self.step(Step::Predicting(method));
                found.extend(self.predict(spec)?);
            }
        }
        Ok(found)
    }

    /// The error of a spec by closed form or measurement; rejected if it cannot be measured.
    fn predict(&mut self, mut spec: Spec) -> Result<Option<Found>, Error> {
        if Formula::of(&spec)?.is_none() && spec.method == Method::Spherical {
            spec.fit.clone_from(&Spec { features: 2, ..spec.clone() }.sketch::<T>()?.spec().fit);
        }
        // Large sketches are slow to draw: use fewer, and accept a wider interval.
        let affordable = usize::try_from(DRAWN_BYTES / spec.memory_bytes::<T>()?.max(1)).unwrap_or(usize::MAX);
        let sketches = self.request.sampling.sketches.min(affordable.max(12));
        match self.predictor.predict(&spec, sketches) {
            Ok(error) => Ok(Some((spec, error))),
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
        for method in request.distinct_methods() {
            if self.possible(&request.spec(method, 2)) {
                match Formula::of(&request.spec(method, 2))? {
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
        let fine = specs(&|index| coarse[index].as_ref().map_or(vec![], |(spec, _)| sizes_up_to(spec.features)));
        let fine = self.first_to_reach(target, fine)?;
        let mut found = Vec::new();
        let mut flat = None;
        for ((method, coarse), fine) in closed.into_iter().zip(coarse).zip(fine) {
            match fine.or(coarse) {
                Some((spec, error)) => {
                    if self.possible(&spec) {
                        if method == Method::flat(Base::ProductSrht, Field::ComplexToReal) {
                            flat = Some(spec.features);
                        }
                        found.push((spec, error));
                    }
                }
                None => self.reject(method, Reason::TooManyFeatures { most: request.max_features }),
            }
        }
        for method in others {
            self.step(Step::Measuring(method));
            // Spherical features may never reach the target; start small.
            let guess = if method == Method::Spherical { 512 } else { flat.unwrap_or(1024) };
            found.extend(self.measure_until(method, target, guess)?);
        }
        Ok(found)
    }

    /// For each list of specs, the first one that reaches the target, in one pass over the data for all of them.
    fn first_to_reach(&self, target: f64, lists: Vec<Vec<Spec>>) -> Result<Vec<Option<Found>>, Error> {
        let formulas = lists.iter().flatten().map(Formula::of).collect::<Result<Vec<_>, _>>()?;
        let formulas: Vec<Formula> = formulas.into_iter().flatten().collect();
        let mut errors = self.predictor.predict_all(&formulas)?.into_iter();
        let first = |list: Vec<Spec>| {
            let errors: Vec<_> = errors.by_ref().take(list.len()).collect();
            list.into_iter().zip(errors).find(|(_, error)| error.interval()[1] <= target)
        };
        Ok(lists.into_iter().map(first).collect())
    }

    /// The features with which a measured method reaches the target: the error falls roughly as 1/√D, and is measured at every guess.
    fn measure_until(&mut self, method: Method, target: f64, guess: usize) -> Result<Option<Found>, Error> {
        let most = self.request.max_features.min(method.craft().unwrap_or(MOST_MEASURED)).min(MOST_MEASURED) & !1;
        let mut spec = self.request.spec(method, next_size(guess.min(most)).min(most));
        let mut reached: Option<Found> = None;
        let mut previous = f64::INFINITY;
        for _ in 0..4 {
            if !self.possible(&spec) {
                return Ok(reached);
            }
            let Some((measured, error)) = self.predict(spec)? else { return Ok(reached) };
            spec = measured;
            let ratio = error.interval()[1] / target;
            if ratio <= 1.0 && reached.as_ref().is_none_or(|(best, _)| spec.features < best.features) {
                reached = Some((spec.clone(), error));
            }
            // A biased method stagnates.
            if ratio > 1.15 && ratio > 0.8 * previous {
                break;
            }
            previous = ratio;
            let wanted = (spec.features as f64 * ratio * ratio).clamp(2.0, most as f64);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped to a small positive range"
            )]
            let next = next_size(wanted.ceil() as usize).min(most);
            // Close enough: another measurement would gain less than its uncertainty.
            if next == spec.features || (0.93..=1.0).contains(&ratio) {
                break;
            }
            spec.features = next;
        }
        if reached.is_none() && spec.features == most && !most.is_power_of_two() {
            // Errors are not quite monotone: whole Hadamard matrices, at powers of two, beat slightly larger sizes.
            spec.features = most.next_power_of_two() / 2;
            let Some(found) = self.predict(spec.clone())? else { return Ok(None) };
            reached = Some(found).filter(|(_, error)| error.interval()[1] <= target);
        }
        if reached.is_none() {
            self.reject(method, Reason::Missed { features: spec.features });
        }
        Ok(reached)
    }
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
            if candidate.error.source == Source::ClosedForm {
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
            let plan = plan(request, &inputs, |_| {}).unwrap();
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
        for Rejected { method, reason } in reasons(&Request { max_features: 16, ..request(2, 8, Goal::Error(0.001)) }) {
            match method.craft() {
                _ if method == Method::Spherical => assert!(gamma(&reason), "{reason:?}"),
                Some(_) => assert_eq!(reason, Reason::Missed { features: 16 }),
                None => assert_eq!(reason, Reason::TooManyFeatures { most: 16 }, "{method}"),
            }
        }
    }
}
