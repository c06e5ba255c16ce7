//! From a sample of rows and a goal to a spec: which method, how many features, what error, what time.
//!
//! [`plan`] turns a [`Request`] into a [`Plan`]. A plan is data: a [`Reason`] says why a method was rejected, a
//! [`Remark`] what stands out, and programs match on them. `Display` puts them into words, and a whole plan into a
//! table.

mod candidates;
mod json;
mod ranking;
mod remarks;
mod request;
mod scale;
mod search;
mod text;
mod timing;

pub use remarks::{Reason, Remark, Unmet};
pub use request::{Goal, Request};

use self::scale::Scale;
use self::search::Search;
use self::timing::Stopwatch;
use crate::error::Error;
use crate::rows::Input;
use crate::scalar::Scalar;
use crate::spec::{Method, Spec};
use crate::theory::ExpectedError;

/// A recommendation, and the alternatives.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The request.
    pub goal: Goal,
    /// Best first: by the total time of features and fit for a target error, by error for a number of features.
    pub candidates: Vec<Candidate>,
    /// Index of the recommended candidate, or why there is none.
    pub recommended: Result<usize, Unmet>,
    /// The methods that cannot reach the goal.
    pub rejected: Vec<Rejected>,
    /// The number of features of the exact polynomial expansion; `None` on overflow.
    pub exact_features: Option<u64>,
    /// The share of pairs of different rows with a < 0, where real sketches have the lower variance.
    pub opposed_pairs: f64,
    /// What the user should know.
    pub remarks: Vec<Remark>,
}

impl Plan {
    /// The recommended sketch.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.get(self.recommended.ok()?)
    }

    /// The candidate of a method.
    #[must_use]
    pub fn candidate(&self, method: Method) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.spec.method == method)
    }
}

/// One way to the goal.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The sketch.
    pub spec: Spec,
    /// Its expected error on these data.
    pub error: ExpectedError,
    /// Seconds for the features of a million rows like these, on this machine, with the current threads.
    pub feature_seconds: f64,
    /// Seconds for a least-squares fit on them, ΦᵀΦ for a million rows, at this machine's rate of matrix multiplication.
    pub fit_seconds: f64,
    /// Bytes of the sketch and one thread's work space.
    pub memory_bytes: u64,
    /// Whether it meets the time budget.
    pub in_time: bool,
}

impl Candidate {
    /// Features and fit.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.feature_seconds + self.fit_seconds
    }
}

/// A method that is not a candidate, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejected {
    /// The method.
    pub method: Method,
    /// Why.
    pub reason: Reason,
}

/// A step of planning, for progress reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Examining the sample and predicting errors by closed form.
    Sampling,
    /// Predicting the error of one method.
    Predicting(Method),
    /// Measuring the error of one method, for which no closed form is known.
    Measuring(Method),
    /// Measuring the time of one method.
    Timing(Method),
}

/// Plans a sketch: predicts the error of every method on the sample, measures its time on this machine, and recommends the best.
///
/// For a target error, each method gets the fewest features whose error, at the upper end of its 95 % interval, reaches the
/// target (the number of features grows in steps of at most 6 %). The one with the shortest total time for features and fit
/// is recommended. For a number of features, the recommended method is the fastest among those whose error is within 5 % of
/// the lowest. `step` is called with every step, for a progress bar.
///
/// # Cost
/// A few seconds for any number of rows: they are sampled.
///
/// # Errors
/// [`Error::Invalid`] naming what is wrong with the request; [`Error::NotFinite`] and [`Error::Invalid`] for tables that do not
/// fit; [`Error::Overflow`] if the kernel of these rows cannot be computed in `f64`.
///
/// ```
/// use argand::plan::{Goal, Request, plan};
/// use argand::{InputDims, Polynomial, Rows};
/// let x: Vec<f32> = (0..200 * 16).map(|i| (i * 37 % 101) as f32 / 300.0).collect();
/// let kernel = Polynomial { degree: 3, gamma: 1.0, coef0: 0.0 };
/// let request = Request::new(kernel, InputDims::Same(16), Goal::Error(0.1));
/// let plan = plan(&request, &[Rows::new(&x, 200, 16)?.into()], |_| {})?;
/// let best = plan.best().unwrap();
/// assert!(best.error.relative <= 0.1);
/// let sketch = best.spec.sketch::<f32>()?;
/// # Ok::<(), argand::Error>(())
/// ```
pub fn plan<T: Scalar>(request: &Request, inputs: &[Input<'_, T>], mut step: impl FnMut(Step)) -> Result<Plan, Error> {
    request.validate()?;
    let mut search = Search::new(request, inputs, &mut step)?;
    let scale = Scale::of(request, inputs);
    scale.check::<T>()?;
    search.step(Step::Sampling);
    let found = match request.goal {
        Goal::Error(target) => search.reach(target)?,
        Goal::Features(features) => search.with(features)?,
    };
    let stopwatch = Stopwatch::new(inputs, request.sampling.seed);
    let mut candidates = Vec::with_capacity(found.len());
    for (spec, error) in found {
        search.step(Step::Timing(spec.method));
        let memory_bytes = spec.memory_bytes::<T>()?;
        let feature_seconds = match stopwatch.feature_seconds(&spec) {
            Ok(seconds) => seconds,
            Err(Error::Overflow { dtype, .. }) => {
                search.reject(spec.method, Reason::Overflow { dtype });
                continue;
            }
            Err(other) => return Err(other),
        };
        let fit_seconds = stopwatch.fit_seconds(&spec);
        let in_time = request.time_budget.is_none_or(|budget| feature_seconds <= budget);
        candidates.push(Candidate { spec, error, feature_seconds, fit_seconds, memory_bytes, in_time });
    }
    let recommended = ranking::rank(request.goal, &mut candidates);
    let mut plan = Plan {
        goal: request.goal,
        recommended: recommended.ok_or_else(|| remarks::unmet(request.time_budget, &candidates, &search.rejected)),
        candidates,
        exact_features: remarks::exact_features(&request.inputs, request.kernel),
        opposed_pairs: search.opposed_pairs(),
        rejected: search.rejected,
        remarks: scale.remarks(),
    };
    plan.remarks.extend(remarks::remarks(&plan, request, inputs));
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;
    use crate::spec::{InputDims, Polynomial};

    pub(super) fn request(degree: usize, dim: usize, goal: Goal) -> Request {
        let mut request = Request::new(Polynomial { degree, gamma: 1.0, coef0: 0.0 }, InputDims::Same(dim), goal);
        // Enough to see what happens.
        (request.sampling.measured_rows, request.sampling.sketches) = (32, 12);
        request
    }

    /// Rows of unit norm.
    pub(super) fn unit(rows: usize, columns: usize, low: f64) -> Vec<f64> {
        let mut values: Vec<f64> =
            (0..rows * columns).map(|i| (i * 7919 % 1009) as f64 / 1009.0 * (1.0 - low) + low).collect();
        for row in values.chunks_exact_mut(columns) {
            let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
            row.iter_mut().for_each(|value| *value /= norm);
        }
        values
    }

    #[test]
    fn a_target_error_is_reached_in_the_shortest_time() {
        let x = unit(60, 8, 0.0);
        let inputs = [Rows::new(&x, 60, 8).unwrap().into()];
        let mut steps = Vec::new();
        let plan = plan(&request(2, 8, Goal::Error(0.1)), &inputs, |step| steps.push(step)).unwrap();
        let times: Vec<f64> = plan.candidates.iter().map(Candidate::total_seconds).collect();
        assert!(times.is_sorted() && plan.recommended == Ok(0));
        assert_eq!(steps[0], Step::Sampling);
        assert!(plan.candidates.len() > 5, "{} candidates", plan.candidates.len());
        let timed = plan.candidates.iter().all(|candidate| steps.contains(&Step::Timing(candidate.spec.method)));
        assert!(timed, "{steps:?}");
    }

    #[test]
    fn a_number_of_features_gets_the_lowest_error() {
        let x = unit(150, 20, 0.0);
        let inputs = [Rows::new(&x, 150, 20).unwrap().into()];
        let plan = plan(&request(4, 20, Goal::Features(128)), &inputs, |_| {}).unwrap();
        let errors: Vec<f64> = plan.candidates.iter().map(|candidate| candidate.error.relative).collect();
        assert!(errors.len() > 5, "{} candidates", errors.len());
        assert!(errors.is_sorted() && plan.candidates.iter().all(|candidate| candidate.spec.features == 128));
        assert!(plan.best().unwrap().error.relative <= 1.05 * errors[0]);
    }

    #[test]
    fn budgets_are_kept() {
        let x = unit(60, 8, 0.0);
        let inputs = [Rows::new(&x, 60, 8).unwrap().into()];
        let none = Request { time_budget: Some(1e-9), ..request(2, 8, Goal::Features(64)) };
        let late = plan(&none, &inputs, |_| {}).unwrap();
        assert!(late.best().is_none() && !late.candidates.is_empty());
        assert!(matches!(late.recommended, Err(Unmet::Time { budget: 1e-9, fastest }) if fastest > 1e-9));
        let small = Request { max_features: 16, ..request(2, 8, Goal::Error(0.001)) };
        let missed = plan(&small, &inputs, |_| {}).unwrap();
        assert!(missed.candidates.is_empty() && missed.recommended == Err(Unmet::Goal));
    }

    /// The budget is for features: the fit, which takes longer, does not count.
    #[test]
    fn the_time_budget_is_for_features_alone() {
        let x = unit(60, 8, 0.0);
        let inputs = [Rows::new(&x, 60, 8).unwrap().into()];
        let method = "ctr-product-srht".parse().unwrap();
        let mut request = Request { methods: vec![method], ..request(2, 8, Goal::Features(8192)) };
        let free = plan(&request, &inputs, |_| {}).unwrap();
        let (features, total) = (free.candidates[0].feature_seconds, free.candidates[0].total_seconds());
        assert!(free.candidates[0].in_time && total > 4.0 * features, "{features} {total}");
        // Between the two, by a wide margin on either side.
        request.time_budget = Some((features * total).sqrt());
        assert!(plan(&request, &inputs, |_| {}).unwrap().candidates[0].in_time);
        request.time_budget = Some(features / 100.0);
        assert!(!plan(&request, &inputs, |_| {}).unwrap().candidates[0].in_time);
    }

    /// Features that overflow `f32` are distinguished from a goal out of reach.
    #[test]
    fn an_overflow_asks_for_scaling() {
        let x: Vec<f32> = unit(60, 8, 0.0).iter().map(|&x| f32::from_f64(1e15 * x)).collect();
        let plan = plan(&request(3, 8, Goal::Features(64)), &[Rows::new(&x, 60, 8).unwrap().into()], |_| {}).unwrap();
        assert_eq!(plan.recommended, Err(Unmet::Scale));
        assert!(matches!(plan.remarks[0], Remark::Scale { degree: 3, .. }), "{:?}", plan.remarks);
    }
}
