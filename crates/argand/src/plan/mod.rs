//! From a sample of rows and a goal to a spec: which method, how many features, what error, what time.
//!
//! [`plan`] turns a [`Request`] into a [`Plan`]. Whoever has labels may then [fit the finalists](Plan::fit_finalists), and the plan is ranked by
//! what they learn; `argand-learn` does so. A plan is data: a [`Reason`] says why a method was rejected, a
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
use self::search::{Found, Search};
use self::timing::{Stopwatch, Timing};
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
    /// The number of rows that times are for.
    pub rows: usize,
    /// The most seconds for features and fit together.
    pub time_budget: Option<f64>,
    /// Best first: those that were fitted by validation error; the others by total time for a target error, and otherwise by median error.
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

    /// Has the most promising candidate of every kind of method fitted by `fit`, and ranks by validation error from then on: the lowest
    /// error within a time is recommended, and for other goals the fastest within one standard error of the lowest.
    ///
    /// Predicted errors of the kernel matrix compare methods of one kind well. Which kind learns best is another question: the kernel's small
    /// eigenvalues hardly count in the error, but may do so in what is learnt.
    ///
    /// # Errors
    /// Those of `fit`.
    pub fn fit_finalists<E>(&mut self, mut fit: impl FnMut(&Candidate) -> Result<Validation, E>) -> Result<(), E> {
        for place in ranking::finalists(&self.candidates) {
            let candidate = &mut self.candidates[place];
            candidate.validation = Some(fit(candidate)?);
            if let Some(mut other) = candidate.other_aim.take() {
                other.validation = Some(fit(&other)?);
                let error = |candidate: &Candidate| candidate.validation.map(|validation| validation.error);
                if error(&other) < error(candidate) {
                    *candidate = *other;
                }
            }
        }
        if let Some(place) = ranking::rank_fitted(self.goal, &mut self.candidates) {
            self.recommended = Ok(place);
        }
        Ok(())
    }

    /// The candidates that [`Plan::fit_finalists`] has fitted.
    pub fn finalists(&self) -> impl Iterator<Item = &Candidate> {
        ranking::finalists(&self.candidates).into_iter().map(|place| &self.candidates[place])
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
    /// Seconds to find and draw the map, such as to choose and factorise landmarks.
    pub map_seconds: f64,
    /// Seconds for the features of the plan's rows, on this machine, with the current threads.
    pub feature_seconds: f64,
    /// Seconds for a least-squares fit on them, at this machine's rate of such sums.
    pub fit_seconds: f64,
    /// Bytes of the sketch and one thread's work space.
    pub memory_bytes: u64,
    /// Whether all of this meets the time budget.
    pub in_time: bool,
    /// What a model on these features makes of labels, if it was fitted.
    pub validation: Option<Validation>,
    /// A sum of as many features for the other [`Aim`](crate::fit::Aim), if labels will tell which one is better: it then takes this one's place.
    pub other_aim: Option<Box<Candidate>>,
}

impl Candidate {
    /// Map, features and fit.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.map_seconds + self.feature_seconds + self.fit_seconds
    }
}

/// The error on rows that a model was not fitted to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validation {
    /// The share of wrong classes, or the root mean squared error in standard deviations of the targets.
    pub error: f64,
    /// Its standard error, due to the choice of rows.
    pub standard_error: f64,
    /// Rows that the model was fitted to.
    pub training_rows: usize,
    /// Rows on which it was judged.
    pub rows: usize,
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
/// is recommended. For a time, each method gets the most features that can be computed and fitted in it, and the lowest median error is recommended.
/// For a number of features, the recommended method is the fastest among those whose median error is within 5 % of
/// the lowest. `step` is called with every step, for a progress bar.
///
/// # Cost
/// Seconds for any number of rows: they are sampled. [Fits](Plan::fit_finalists) to labels take longer.
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
    plan_timed(request, inputs, &mut step, |rows| Stopwatch::new(inputs, rows, request.sampling.seed))
}

/// As [`plan`], with the times of a machine for so many rows.
fn plan_timed<T: Scalar, M: Timing>(
    request: &Request,
    inputs: &[Input<'_, T>],
    step: &mut dyn FnMut(Step),
    machine: impl FnOnce(usize) -> M,
) -> Result<Plan, Error> {
    request.validate()?;
    let mut search = Search::new(request, inputs, step)?;
    let scale = Scale::of(request, inputs);
    scale.check::<T>()?;
    search.step(Step::Sampling);
    let rows = request.rows.or(request.sampling.population).unwrap_or(inputs[0].rows());
    let timing = machine(rows);
    let found = match request.goal {
        Goal::Error(target) => search.reach(target)?,
        Goal::Features(features) => search.with(features)?,
        Goal::Time(seconds) => search.within(seconds, &timing)?,
    };
    let mut candidates = Vec::with_capacity(found.len());
    for found in found {
        let method = found.spec.method;
        search.step(Step::Timing(method));
        let other = search.for_other_aim(&found.spec)?;
        let mut timed = Vec::with_capacity(2);
        for found in [Some(found), other].into_iter().flatten() {
            match candidate::<T>(found, &timing, request.seconds()) {
                Ok(candidate) => timed.push(candidate),
                Err(Error::Overflow { dtype, .. }) => {
                    search.reject(method, Reason::Overflow { dtype });
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        let mut timed = timed.into_iter();
        if let Some(first) = timed.next() {
            let other_aim = timed.next().filter(|other| other.in_time).map(Box::new);
            candidates.push(Candidate { other_aim, ..first });
        }
    }
    let recommended = ranking::rank(request.goal, &mut candidates);
    let mut plan = Plan {
        goal: request.goal,
        rows,
        time_budget: request.seconds(),
        recommended: recommended.ok_or_else(|| remarks::unmet(request.seconds(), &candidates, &search.rejected)),
        candidates,
        exact_features: remarks::exact_features(&request.inputs, &request.kernel),
        opposed_pairs: search.opposed_pairs(),
        rejected: search.rejected,
        remarks: scale.remarks(),
    };
    plan.remarks.extend(remarks::remarks(&plan, inputs));
    Ok(plan)
}

/// What was found, with its times.
fn candidate<T: Scalar>(found: Found, timing: &dyn Timing, budget: Option<f64>) -> Result<Candidate, Error> {
    let Found { spec, fit_seconds, times, error } = found;
    let memory_bytes = spec.memory_bytes::<T>()?;
    let times = times.map_or_else(|| timing.times(&spec), Ok)?;
    let mut candidate = Candidate {
        spec,
        error,
        map_seconds: fit_seconds + times.draw,
        feature_seconds: times.features,
        fit_seconds: times.fit,
        memory_bytes,
        in_time: true,
        validation: None,
        other_aim: None,
    };
    candidate.in_time = budget.is_none_or(|budget| candidate.total_seconds() <= budget);
    Ok(candidate)
}

#[cfg(test)]
mod tests {
    use super::timing::{FitRates, Times};
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
        let errors: Vec<f64> = plan.candidates.iter().map(|candidate| candidate.error.median).collect();
        assert!(errors.len() > 5, "{} candidates", errors.len());
        assert!(errors.is_sorted() && plan.candidates.iter().all(|candidate| candidate.spec.features == 128));
        assert!(plan.best().unwrap().error.median <= 1.05 * errors[0]);
    }

    #[test]
    fn budgets_are_kept() {
        let x = unit(60, 8, 0.0);
        let inputs = [Rows::new(&x, 60, 8).unwrap().into()];
        let none = Request { time_budget: Some(1e-9), ..request(2, 8, Goal::Features(64)) };
        let late = plan(&none, &inputs, |_| {}).unwrap();
        assert!(late.best().is_none() && !late.candidates.is_empty());
        assert!(matches!(late.recommended, Err(Unmet::Time { budget: 1e-9, fastest }) if fastest > 1e-9));
        let methods = vec!["gaussian".parse().unwrap(), Method::Exact];
        let small = Request { max_features: 16, methods, ..request(2, 8, Goal::Error(0.001)) };
        let missed = plan(&small, &inputs, |_| {}).unwrap();
        assert!(missed.candidates.is_empty() && missed.recommended == Err(Unmet::Goal));
    }

    /// A machine whose times are known: a thousand seconds a draw, and a microsecond for each feature of a row. It is so slow that the
    /// milliseconds of fitting a map, which are real ones, do not matter.
    struct Slow(FitRates);

    impl Slow {
        fn new(rows: usize) -> Self {
            Self(FitRates { rows: rows as f64, product: 5e5, factor: 1e6 })
        }
    }

    impl Timing for Slow {
        fn times(&self, spec: &Spec) -> Result<Times, Error> {
            let features = 1e-6 * self.0.rows * spec.features as f64;
            Ok(Times { draw: 1000.0, features, fit: self.fit_seconds(spec.features) })
        }

        fn fit_seconds(&self, features: usize) -> f64 {
            self.0.seconds(features)
        }
    }

    /// The budget is for everything, of as many rows as were asked for.
    #[test]
    fn the_time_budget_is_total() {
        let x = unit(60, 8, 0.0);
        let inputs = [Rows::new(&x, 60, 8).unwrap().into()];
        let method = "ctr-product-srht".parse().unwrap();
        let asked = Request { methods: vec![method], rows: Some(1_000_000), ..request(2, 8, Goal::Features(1000)) };
        let planned = |request: Request| plan_timed(&request, &inputs, &mut |_| {}, Slow::new).unwrap();
        let free = planned(asked.clone());
        let total = 1000.0 + 1e3 + (2e12 + 1e9 / 3.0) / 1e6;
        assert!(free.candidates[0].in_time && free.rows == 1_000_000);
        assert!((free.candidates[0].total_seconds() - total).abs() < 1.0, "{:?}", free.candidates[0]);
        let in_time = |budget| planned(Request { time_budget: Some(budget), ..asked.clone() }).candidates[0].in_time;
        assert!(in_time(total + 1.0) && !in_time(total - 1.0));
        // Fewer rows take less time for features and products, and as much for the draw and the factor.
        let few = planned(Request { rows: Some(10_000), ..asked.clone() }).candidates[0].total_seconds();
        assert!((few - (1000.0 + 1e1 + (2e10 + 1e9 / 3.0) / 1e6)).abs() < 1.0, "{few}");
    }

    /// At equal time, every method has the features it can afford, and more time buys more of them.
    #[test]
    fn a_time_is_spent_on_features() {
        let x = unit(400, 12, 0.0);
        let inputs = [Rows::new(&x, 400, 12).unwrap().into()];
        let methods = ["ctr-product-srht", "gaussian", "maclaurin-ctr-product-srht", "nystrom", "exact"];
        let methods: Vec<_> = methods.iter().map(|name| name.parse().unwrap()).collect();
        let kernel = Polynomial { degree: 3, gamma: 0.5, coef0: 0.5 };
        let within = |seconds: f64| {
            let request = request(3, 12, Goal::Time(seconds));
            let request = Request { kernel: kernel.into(), methods: methods.clone(), rows: Some(2_000), ..request };
            plan_timed(&request, &inputs, &mut |_| {}, Slow::new).unwrap()
        };
        // In 3,000 seconds, 2,000 go to products and factor.
        let (short, long) = (within(3_000.0), within(100_000.0));
        assert_eq!((short.time_budget, short.candidates.len()), (Some(3_000.0), 5), "{short}");
        for method in ["ctr-product-srht", "gaussian", "maclaurin-ctr-product-srht"] {
            for (plan, seconds) in [(&short, 3_000.0), (&long, 100_000.0)] {
                let features = plan.candidate(method.parse().unwrap()).unwrap().spec.features;
                let total = |features: usize| {
                    let Times { draw, features, fit } =
                        Slow::new(2_000).times(&Spec::polynomial(12).with_features(features)).unwrap();
                    draw + features + fit
                };
                // The next size but one would be too late.
                assert!(total(features) <= seconds && total(features + features / 7) > seconds, "{method}: {plan}");
            }
        }
        for plan in [&short, &long] {
            assert!(plan.candidates.iter().all(|candidate| candidate.in_time), "{plan}");
        }
        // Landmarks are half of the rows that errors are not measured on, at most; all monomials of degree 3 are 455.
        assert!(short.candidate(Method::Nystrom).unwrap().spec.features <= 184);
        assert_eq!(long.candidate(Method::Exact).unwrap().spec.features, 455);
        assert_eq!(long.best().unwrap().spec.method, Method::Exact, "without any error: {long}");
        // No time at all is said so.
        let none = within(10.0);
        assert!(
            none.candidates.is_empty() && matches!(none.recommended, Err(Unmet::Time { budget: 10.0, .. })),
            "{none}"
        );
        assert!(none.rejected.iter().all(|rejected| matches!(rejected.reason, Reason::TooSlow { .. })));
    }

    /// Gaussian kernels have their own methods; labels, not kernel errors, decide which kind learns best.
    #[test]
    fn gaussian_kernels_are_planned_and_judged() {
        let x = unit(300, 6, 0.0);
        let inputs = [Rows::new(&x, 300, 6).unwrap().into()];
        let kernel = crate::spec::Kernel::Gaussian { length_scale: 0.7 };
        let mut request = Request::new(kernel, InputDims::Same(6), Goal::Features(64));
        (request.sampling.measured_rows, request.sampling.sketches) = (32, 12);
        let mut plan = plan(&request, &inputs, |_| {}).unwrap();
        assert_eq!(plan.candidates.len(), 5, "{plan}");
        let (mut fitted, errors) = (Vec::new(), [0.3, 0.1, 0.2]);
        plan.fit_finalists(|candidate| {
            fitted.push(candidate.spec.method);
            let error = errors[fitted.len() - 1];
            Ok::<_, Error>(Validation { error, standard_error: 0.01, training_rows: 200, rows: 100 })
        })
        .unwrap();
        // One of three kinds each.
        assert_eq!(fitted.len(), 3);
        assert_eq!(plan.best().unwrap().spec.method, fitted[1]);
        assert_eq!(plan.candidates[0].validation.unwrap().error, 0.1);
        assert!(plan.candidates[3].validation.is_none());
        let failed: Result<(), &str> = plan.fit_finalists(|_| Err("no labels"));
        assert_eq!(failed, Err("no labels"));
    }

    /// With labels to come, a sum is planned for both aims, and takes its place with the one that learns better.
    #[test]
    fn labels_decide_between_aims() {
        use crate::fit::{Aim, Fit};
        let x = unit(300, 6, 0.0);
        let inputs = [Rows::new(&x, 300, 6).unwrap().into()];
        let kernel = crate::spec::Kernel::Gaussian { length_scale: 0.7 };
        let method: Method = "maclaurin-ctr-product-srht".parse().unwrap();
        let mut request = Request::new(kernel, InputDims::Same(6), Goal::Features(64));
        request = Request { methods: vec![method], aim: Aim::Learning, labelled: true, ..request };
        let aim = |candidate: &Candidate| match &candidate.spec.fit {
            Some(Fit::Maclaurin(allocation)) => allocation.aim,
            other => panic!("{other:?}"),
        };
        for better in [Aim::Kernel, Aim::Learning] {
            let mut plan = plan(&request, &inputs, |_| {}).unwrap();
            assert_eq!((plan.candidates.len(), aim(&plan.candidates[0])), (1, Aim::Learning));
            assert_eq!(plan.candidates[0].other_aim.as_deref().map(aim), Some(Aim::Kernel));
            plan.fit_finalists(|candidate| {
                let error = if aim(candidate) == better { 0.1 } else { 0.2 };
                Ok::<_, Error>(Validation { error, standard_error: 0.01, training_rows: 200, rows: 100 })
            })
            .unwrap();
            let best = plan.best().unwrap();
            assert_eq!((aim(best), best.validation.unwrap().error), (better, 0.1));
        }
        request.labelled = false;
        assert!(plan(&request, &inputs, |_| {}).unwrap().candidates[0].other_aim.is_none());
    }

    /// For a target error, landmarks and sums are candidates beside sketches.
    #[test]
    fn a_target_is_reached_by_every_kind_of_method() {
        let x = unit(300, 6, 0.0);
        let inputs = [Rows::new(&x, 300, 6).unwrap().into()];
        let kernel = Polynomial { degree: 4, gamma: 0.5, coef0: 0.5 };
        let request = Request { kernel: kernel.into(), ..request(4, 6, Goal::Error(0.03)) };
        let plan = plan(
            &Request { methods: Request::new(kernel, InputDims::Same(6), request.goal).methods, ..request },
            &inputs,
            |_| {},
        )
        .unwrap();
        for method in ["nystrom", "exact", "maclaurin-ctr-product-srht", "ctr-product-srht"] {
            let candidate = plan.candidate(method.parse().unwrap()).unwrap_or_else(|| panic!("{method}: {plan}"));
            assert!(candidate.error.interval()[1] <= 0.03 && candidate.error.median > -1e-9, "{candidate:?}");
        }
        assert_eq!(plan.candidate(Method::Exact).unwrap().error.relative, 0.0);
        assert!(plan.remarks.is_empty(), "{:?}", plan.remarks);
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
