//! From a sample of rows and a goal to a spec: which method, how many features, what error, what time.

use std::time::{Duration, Instant};

use argand_linalg::{View, ViewMut, product};
use serde::Serialize;

use crate::error::{Argument, Error};
use crate::map::{DEFAULT_MEMORY_LIMIT, FeatureMap};
use crate::rows::{Input, OwnedRows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::{Base, Field, InputDims, Kernel, Method, ProductMethod, Shape, Spec};
use crate::theory::variance::{Formula, power};
use crate::theory::{ExpectedError, Predictor, Sampling, Source, choose_rows};

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// A relative Frobenius error of the kernel matrix of at most this much.
    Error(f64),
    /// The lowest error with this many features.
    Features(usize),
}

/// What a plan is made for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The kernel to approximate.
    pub kernel: Kernel,
    /// The tables that are read.
    pub inputs: InputDims,
    /// A target error or a number of features.
    pub goal: Goal,
    /// Methods to choose from.
    pub methods: Vec<Method>,
    /// The most seconds that the features of a million rows may take.
    pub time_budget: Option<f64>,
    /// The most bytes that a sketch may take.
    pub memory_limit: u64,
    /// The most features to consider for a target error.
    pub max_features: usize,
    /// How much of the data is looked at.
    pub sampling: Sampling,
    /// The seed of the recommended spec.
    pub seed: u64,
}

/// Measured methods are not tried with more features than this: drawing and measuring them would take too long.
const MOST_MEASURED: usize = 1 << 15;

/// Bytes of all the sketches that one measurement draws, unless twelve of them take more.
const DRAWN_BYTES: u64 = 1 << 28;

impl Request {
    /// All methods worth considering, no budgets, and a sample that plans in seconds.
    #[must_use]
    pub fn new(kernel: Kernel, inputs: InputDims, goal: Goal) -> Self {
        Self {
            methods: candidates(kernel.degree),
            kernel,
            inputs,
            goal,
            time_budget: None,
            memory_limit: DEFAULT_MEMORY_LIMIT,
            max_features: 1 << 17,
            sampling: Sampling { rows: 512, measured_rows: 64, sketches: 96, ..Sampling::default() },
            seed: 0,
        }
    }

    /// Checks the request.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the argument.
    pub fn validate(&self) -> Result<(), Error> {
        match self.goal {
            Goal::Error(target) if !(target > 0.0 && target.is_finite()) => {
                return Err(Error::invalid(Argument::TargetError, "a positive number, for example 0.05", target));
            }
            Goal::Features(features) if features < 2 => {
                return Err(Error::invalid(Argument::Features, "at least 2", features));
            }
            _ => {}
        }
        if self.max_features < 2 {
            return Err(Error::invalid(Argument::MaxFeatures, "at least 2", self.max_features));
        }
        if let Some(budget) = self.time_budget.filter(|budget| !(*budget > 0.0 && budget.is_finite())) {
            return Err(Error::invalid(Argument::TimeBudget, "a positive number of seconds per million rows", budget));
        }
        if self.methods.is_empty() {
            return Err(Error::invalid(Argument::Methods, "at least one", 0));
        }
        if let Some(method) = self.methods.iter().find(|method| method.field() == Field::Complex) {
            return Err(Error::invalid(Argument::Methods, "real or ctr- methods, whose features are real", method));
        }
        // Whatever is wrong with the kernel, the inputs or the features is wrong for every method.
        let features = if let Goal::Features(features) = self.goal { features } else { 2 };
        self.spec(Method::flat(Base::Gaussian, Field::Real), features).validate()
    }

    fn spec(&self, method: Method, features: usize) -> Spec {
        let Self { kernel, ref inputs, seed, .. } = *self;
        Spec::new(inputs.clone()).with_kernel(kernel).with_features(features).with_method(method).with_seed(seed)
    }
}

/// What the paper compares, and chains, without those that are the same sketch at this degree.
fn candidates(degree: usize) -> Vec<Method> {
    let mut methods: Vec<Method> = [Base::ProductSrht, Base::TensorSketch, Base::Rademacher, Base::Gaussian]
        .map(|base| Method::flat(base, Field::Real))
        .into();
    methods.extend(
        [Base::ProductSrht, Base::Rademacher, Base::Gaussian].map(|base| Method::flat(base, Field::ComplexToReal)),
    );
    let product = |shape, craft| {
        Method::Product(ProductMethod { base: Base::ProductSrht, field: Field::ComplexToReal, shape, craft })
    };
    if degree > 2 {
        methods.push(product(Shape::Tree, None));
    }
    // With three factors the tree is the chain.
    if degree > 3 {
        methods.push(product(Shape::Chain, None));
    }
    methods.push(product(Shape::Flat, Some(ProductMethod::DEFAULT_CRAFT)));
    methods.push(Method::Spherical);
    methods
}

/// One way to the goal.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The sketch.
    pub spec: Spec,
    /// The error that it will have on these data.
    pub error: ExpectedError,
    /// Seconds for the features of a million rows like these, on this machine, with the current threads.
    pub feature_seconds: f64,
    /// Seconds for one least-squares fit on them, ΦᵀΦ for a million rows, at this machine's rate of matrix multiplication.
    pub fit_seconds: f64,
    /// Bytes of the sketch and one thread's work space.
    pub memory_bytes: u64,
    /// Whether it keeps within the time budget.
    pub in_time: bool,
}

impl Candidate {
    /// Features and fit.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.feature_seconds + self.fit_seconds
    }
}

/// A method that is not among the candidates, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejected {
    /// The method.
    pub method: Method,
    /// A reason to be read by people.
    pub reason: String,
}

/// What to do, and what else could be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What was asked for.
    pub goal: Goal,
    /// The best first: for a target error by the time of features and fit together, for a number of features by error.
    pub candidates: Vec<Candidate>,
    /// Place of the recommended candidate, if one keeps within the budgets.
    pub recommended: Option<usize>,
    /// What cannot reach the goal.
    pub rejected: Vec<Rejected>,
    /// The number of features of the exact polynomial expansion, if it can be counted.
    pub exact_features: Option<u64>,
    /// The share of pairs of different rows with a < 0, where real sketches have the lower variance.
    pub opposed_pairs: f64,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Plan {
    /// The recommended sketch.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.get(self.recommended?)
    }

    /// The plan as JSON, ending with a newline; specs are as [`Spec::to_json`] writes them.
    #[must_use]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct File<'a> {
            target_error: Option<f64>,
            target_features: Option<usize>,
            recommended: Option<usize>,
            candidates: Vec<Line>,
            rejected: Vec<[String; 2]>,
            exact_features: Option<u64>,
            opposed_pairs: f64,
            notes: &'a [String],
        }
        #[derive(Serialize)]
        struct Line {
            spec: serde_json::Value,
            predicted_error: f64,
            standard_error: f64,
            measured_sketches: Option<usize>,
            feature_seconds_per_million_rows: f64,
            fit_seconds_per_million_rows: f64,
            memory_bytes: u64,
            in_time: bool,
        }
        let line = |candidate: &Candidate| Line {
            spec: serde_json::from_str(&candidate.spec.to_json()).unwrap_or_default(),
            predicted_error: candidate.error.relative,
            standard_error: candidate.error.standard_error,
            measured_sketches: match candidate.error.source {
                Source::ClosedForm => None,
                Source::MonteCarlo { sketches } => Some(sketches),
            },
            feature_seconds_per_million_rows: candidate.feature_seconds,
            fit_seconds_per_million_rows: candidate.fit_seconds,
            memory_bytes: candidate.memory_bytes,
            in_time: candidate.in_time,
        };
        let (target_error, target_features) = match self.goal {
            Goal::Error(target) => (Some(target), None),
            Goal::Features(features) => (None, Some(features)),
        };
        let file = File {
            target_error,
            target_features,
            recommended: self.recommended,
            candidates: self.candidates.iter().map(line).collect(),
            rejected: self.rejected.iter().map(|no| [no.method.to_string(), no.reason.clone()]).collect(),
            exact_features: self.exact_features,
            opposed_pairs: self.opposed_pairs,
            notes: &self.notes,
        };
        // Numbers, strings and lists of them always serialise.
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }
}

/// Plans a sketch: the error of every method is predicted on the sample, its time is measured on this machine, and the best
/// one is recommended.
///
/// For a target error, each method gets the fewest features whose error, at the upper end of its 95 % interval, reaches the
/// target (features are counted in steps of at most 6 %). The one with the shortest time for features and fit together is
/// recommended. For a number of features, the recommended method is the fastest among those whose error is within 5 % of the
/// lowest. `step` is told what is being done, for a progress bar.
///
/// # Cost
/// Some seconds, whatever the number of rows: they are sampled.
///
/// # Errors
/// [`Error::Invalid`] naming what is wrong with the request; [`Error::NotFinite`] and [`Error::Invalid`] for tables that do not
/// fit; [`Error::Overflow`] if the kernel of these rows cannot be computed in `f64`.
///
/// ```
/// use argand::plan::{Goal, Request, plan};
/// use argand::{InputDims, Kernel, Rows};
/// let x: Vec<f32> = (0..200 * 16).map(|i| (i * 37 % 101) as f32 / 300.0).collect();
/// let kernel = Kernel { degree: 3, gamma: 1.0, coef0: 0.0 };
/// let request = Request::new(kernel, InputDims::Same(16), Goal::Error(0.1));
/// let plan = plan(&request, &[Rows::new(&x, 200, 16)?.into()], |_| {})?;
/// let best = plan.best().unwrap();
/// assert!(best.error.relative <= 0.1);
/// let sketch = best.spec.sketch::<f32>()?;
/// # Ok::<(), argand::Error>(())
/// ```
pub fn plan<T: Scalar>(request: &Request, inputs: &[Input<'_, T>], step: impl FnMut(&str)) -> Result<Plan, Error> {
    request.validate()?;
    let any = request.spec(Method::flat(Base::Gaussian, Field::Real), 2);
    let predictor = Predictor::new(&any, inputs, &request.sampling)?;
    Planner { request, inputs, predictor, step, rejected: Vec::new() }.plan()
}

struct Planner<'a, 'b, T, S> {
    request: &'a Request,
    inputs: &'a [Input<'b, T>],
    predictor: Predictor<T>,
    step: S,
    rejected: Vec<Rejected>,
}

impl<T: Scalar, S: FnMut(&str)> Planner<'_, '_, T, S> {
    fn plan(mut self) -> Result<Plan, Error> {
        let scale = Scale::of(self.request, self.inputs);
        scale.check::<T>()?;
        (self.step)("predicting errors");
        let opposed_pairs = self.predictor.opposed_pairs();
        let found = match self.request.goal {
            Goal::Error(target) => self.reach(target)?,
            Goal::Features(features) => self.with(features)?,
        };
        let rate = matrix_multiplication_rate();
        let rows = self.timing_rows();
        let mut candidates = Vec::with_capacity(found.len());
        for (spec, error) in found {
            (self.step)(&format!("timing {}", spec.method));
            let memory_bytes = spec.memory_bytes::<T>()?;
            let feature_seconds = match seconds_per_million(&spec, &rows) {
                Ok(seconds) => seconds,
                Err(Error::Overflow { .. }) => {
                    self.reject(spec.method, format!("its features overflow {}", T::NAME));
                    continue;
                }
                Err(other) => return Err(other),
            };
            let fit_seconds = 1e6 * (spec.features as f64).powi(2) / rate;
            let in_time = self.request.time_budget.is_none_or(|budget| feature_seconds <= budget);
            candidates.push(Candidate { spec, error, feature_seconds, fit_seconds, memory_bytes, in_time });
        }
        let recommended = rank(self.request.goal, &mut candidates);
        let exact_features = exact_features(&self.request.inputs, self.request.kernel);
        let mut plan = Plan {
            goal: self.request.goal,
            candidates,
            recommended,
            rejected: self.rejected,
            exact_features,
            opposed_pairs,
            notes: scale.notes(self.request),
        };
        plan.notes.extend(remarks(&plan, self.request, self.inputs));
        Ok(plan)
    }

    /// The methods asked for, each once.
    fn methods(&self) -> Vec<Method> {
        let methods = &self.request.methods;
        methods.iter().enumerate().filter(|(at, method)| !methods[..*at].contains(method)).map(|(_, &m)| m).collect()
    }

    fn reject(&mut self, method: Method, reason: impl Into<String>) {
        self.rejected.push(Rejected { method, reason: reason.into() });
    }

    /// Whether a sketch can be drawn at all; if not, it is rejected.
    fn possible(&mut self, spec: &Spec) -> bool {
        let unit = |rows: &Input<'_, T>| (0..rows.rows()).all(|row| (norm(rows, row) - 1.0).abs() < 1e-3);
        let reason = match spec.memory_bytes::<T>() {
            Err(error) => Some(error.to_string()),
            Ok(needed) if needed > self.request.memory_limit => {
                Some(format!("takes {needed} bytes with {} features", spec.features))
            }
            Ok(_) if spec.method == Method::Spherical && !self.inputs.iter().all(unit) => {
                Some("needs rows of unit norm".to_owned())
            }
            Ok(_) => None,
        };
        match reason {
            Some(reason) => {
                self.reject(spec.method, reason);
                false
            }
            None => true,
        }
    }

    /// All methods with a given number of features.
    fn with(&mut self, features: usize) -> Result<Vec<(Spec, ExpectedError)>, Error> {
        let mut found = Vec::new();
        for method in self.methods() {
            let spec = self.request.spec(method, features);
            if self.possible(&spec) {
                (self.step)(&format!("predicting the error of {method}"));
                let measured = self.measurable(spec)?;
                found.extend(measured);
            }
        }
        Ok(found)
    }

    /// The error of a spec by closed form or measurement; rejected if it cannot be measured.
    fn measurable(&mut self, mut spec: Spec) -> Result<Option<(Spec, ExpectedError)>, Error> {
        if Formula::of(&spec)?.is_none() && spec.method == Method::Spherical {
            spec.spherical.clone_from(&Spec { features: 2, ..spec.clone() }.sketch::<T>()?.spec().spherical);
        }
        // Large sketches take long to draw: fewer of them, and a wider interval.
        let affordable = usize::try_from(DRAWN_BYTES / spec.memory_bytes::<T>()?.max(1)).unwrap_or(usize::MAX);
        let sketches = self.request.sampling.sketches.min(affordable.max(12));
        match self.predictor.predict(&spec, sketches) {
            Ok(error) => Ok(Some((spec, error))),
            Err(Error::Overflow { dtype, .. }) if dtype == T::NAME && dtype != "f64" => {
                self.reject(spec.method, format!("its features overflow {dtype}"));
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// The fewest features of every method that reach a target error.
    fn reach(&mut self, target: f64) -> Result<Vec<(Spec, ExpectedError)>, Error> {
        let request = self.request;
        let mut closed = Vec::new();
        let mut others = Vec::new();
        for method in self.methods() {
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
        // Powers of two first, then the sizes between the last that misses the target and the first that reaches it.
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
                None => self.reject(method, format!("needs more than {} features", request.max_features)),
            }
        }
        for method in others {
            (self.step)(&format!("measuring the error of {method}"));
            // Spherical features may never reach the target, however many; they start small.
            let guess = if method == Method::Spherical { 512 } else { flat.unwrap_or(1024) };
            found.extend(self.search(method, target, guess)?);
        }
        Ok(found)
    }

    /// For each list of specs, the first one that reaches the target, in one pass over the data for all of them.
    fn first_to_reach(&self, target: f64, lists: Vec<Vec<Spec>>) -> Result<Vec<Option<(Spec, ExpectedError)>>, Error> {
        let formulas = lists.iter().flatten().map(Formula::of).collect::<Result<Vec<_>, _>>()?;
        let formulas: Vec<Formula> = formulas.into_iter().flatten().collect();
        let mut errors = self.predictor.predict_all(&formulas)?.into_iter();
        let first = |list: Vec<Spec>| {
            let errors: Vec<_> = errors.by_ref().take(list.len()).collect();
            list.into_iter().zip(errors).find(|(_, error)| error.interval()[1] <= target)
        };
        Ok(lists.into_iter().map(first).collect())
    }

    /// The features with which a measured method reaches the target: the error falls about as 1/√D, and is measured anew at
    /// every guess.
    fn search(&mut self, method: Method, target: f64, guess: usize) -> Result<Option<(Spec, ExpectedError)>, Error> {
        let most = self.request.max_features.min(method.craft().unwrap_or(MOST_MEASURED)).min(MOST_MEASURED) & !1;
        let mut spec = self.request.spec(method, next_size(guess.min(most)).min(most));
        let mut reached: Option<(Spec, ExpectedError)> = None;
        let mut previous = f64::INFINITY;
        for _ in 0..4 {
            if !self.possible(&spec) {
                return Ok(reached);
            }
            let Some((measured, error)) = self.measurable(spec)? else { return Ok(reached) };
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
            // Close enough: another measurement would gain less than its own uncertainty.
            if next == spec.features || (0.93..=1.0).contains(&ratio) {
                break;
            }
            spec.features = next;
        }
        if reached.is_none() && spec.features == most && !most.is_power_of_two() {
            // Errors are not quite monotone: whole Hadamard matrices, at powers of two, are better than a bit more.
            spec.features = most.next_power_of_two() / 2;
            reached = self.measurable(spec.clone())?.filter(|(_, error)| error.interval()[1] <= target);
        }
        if reached.is_none() {
            self.reject(method, format!("misses the target with up to {} features, measured", spec.features));
        }
        Ok(reached)
    }

    /// Rows on which times are measured.
    fn timing_rows(&self) -> Vec<OwnedRows<T>> {
        let rows = choose_rows(self.inputs[0].rows(), TIMED_ROWS, self.request.sampling.seed);
        // Few rows are repeated: the time per row is that of many.
        let rows: Vec<usize> = rows.iter().copied().cycle().take(TIMED_ROWS).collect();
        self.inputs.iter().map(|input| OwnedRows::take(input, &rows)).collect()
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

/// Sorts the candidates and returns the place of the recommended one.
fn rank(goal: Goal, candidates: &mut [Candidate]) -> Option<usize> {
    let by_time = |a: &Candidate, b: &Candidate| a.total_seconds().total_cmp(&b.total_seconds());
    match goal {
        Goal::Error(_) => candidates.sort_by(by_time),
        Goal::Features(_) => candidates.sort_by(|a, b| a.error.relative.total_cmp(&b.error.relative)),
    }
    let in_time = |&place: &usize| candidates[place].in_time;
    let first = (0..candidates.len()).find(in_time)?;
    let enough = match goal {
        Goal::Error(_) => return Some(first),
        Goal::Features(_) => 1.05 * candidates[first].error.relative,
    };
    let close = (first..candidates.len()).filter(in_time).filter(|&place| candidates[place].error.relative <= enough);
    close.min_by(|&a, &b| by_time(&candidates[a], &candidates[b]))
}

/// Dimension of the exact feature map: monomials of degree p in x̃, or the tensor product of distinct inputs.
fn exact_features(inputs: &InputDims, kernel: Kernel) -> Option<u64> {
    let constant = u64::from(kernel.coef0 > 0.0);
    match inputs {
        InputDims::Distinct(dims) => {
            dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(u64::try_from(dim).ok()? + constant))
        }
        InputDims::Same(dim) => {
            let dim = u64::try_from(*dim).ok()? + constant;
            let degree = u64::try_from(kernel.degree).ok()?;
            // (dim + degree − 1 over degree); every partial product is a binomial coefficient.
            (1..=degree.min(dim - 1))
                .try_fold(1_u64, |product, k| product.checked_mul(dim + degree - k).map(|product| product / k))
        }
    }
}

/// ‖x‖² of one row.
fn norm<T: Scalar>(rows: &Input<'_, T>, row: usize) -> f64 {
    let square = |value: T| value.to_f64() * value.to_f64();
    match rows {
        Input::Dense(rows) => rows.row(row).iter().map(|&value| square(value)).sum(),
        Input::Sparse(rows) => rows.row(row).map(|(_, value)| square(value)).sum(),
    }
}

/// How large the kernel of a row with itself is.
struct Scale {
    /// The median of ‖x‖², the geometric mean over the tables.
    norm: f64,
    median: f64,
    largest: f64,
    /// The part of Σ k(x, x)² that belongs to the largest hundredth of the rows.
    share: f64,
    /// Rows looked at.
    rows: usize,
}

impl Scale {
    fn of<T: Scalar>(request: &Request, inputs: &[Input<'_, T>]) -> Self {
        let Kernel { degree, gamma, coef0 } = request.kernel;
        let rows = choose_rows(inputs[0].rows(), 4096, request.sampling.seed);
        let norms: Vec<Vec<f64>> =
            inputs.iter().map(|input| rows.iter().map(|&row| norm(input, row)).collect()).collect();
        let median = |values: &[f64]| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        let kernels: Vec<f64> = (0..rows.len())
            .map(|row| {
                let factors = norms.iter().map(|norms| gamma * norms[row] + coef0);
                if inputs.len() == 1 { power(factors.product(), degree) } else { factors.product() }
            })
            .collect();
        let logarithms = norms.iter().map(|norms| median(norms).max(f64::MIN_POSITIVE).ln());
        let mut squares: Vec<f64> = kernels.iter().map(|kernel| kernel * kernel).collect();
        squares.sort_by(|a, b| b.total_cmp(a));
        let largest_rows = squares.len().div_ceil(100);
        let total: f64 = squares.iter().sum();
        Self {
            norm: (logarithms.sum::<f64>() / norms.len() as f64).exp(),
            median: median(&kernels),
            largest: squares[0].sqrt(),
            share: if total > 0.0 { squares[..largest_rows].iter().sum::<f64>() / total } else { 0.0 },
            rows: rows.len(),
        }
    }

    /// Errors if features of these rows would all be zero in `T`.
    fn check<T: Scalar>(&self) -> Result<(), Error> {
        // A thousandth of a typical feature should still have most of its digits.
        let small = self.largest.sqrt() * 1e-3;
        if (T::from_f64(small).to_f64() - small).abs() > 1e-3 * small {
            let expected = "rows whose kernel is not zero: scale them to unit norm, or use a larger gamma";
            let received = format!("kernel values of {:.0e}, too small for {}", self.largest, T::NAME);
            return Err(Error::invalid(Argument::Input(None), expected, received));
        }
        Ok(())
    }

    fn notes(&self, request: &Request) -> Vec<String> {
        let mut notes = Vec::new();
        let Kernel { degree, gamma, coef0 } = request.kernel;
        if !(1e-4..=1e4).contains(&self.median) {
            let (too_large, by_constant) = (self.median > 1.0, coef0 > gamma * self.norm);
            notes.push(format!(
                "The data need scaling: kernel values are around {:.0e} at degree {degree}, and features {}. {}",
                self.median,
                if too_large { "may overflow" } else { "are tiny" },
                if by_constant {
                    format!("coef0 makes them: set it to 1 or so, and gamma to {:.3e}.", 1.0 / self.norm)
                } else {
                    format!(
                        "Rows have squared norms around {:.3e}: set gamma to {:.3e}, or scale the rows to unit norm.",
                        self.norm,
                        1.0 / self.norm
                    )
                },
            ));
        }
        if self.share > 0.5 && self.rows >= 20 {
            notes.push(format!(
                "The data need scaling: the largest hundredth of the rows makes {:.0} % of the kernel matrix, and of the error; a sample may \
                 miss them. Scale the rows to unit norm.",
                100.0 * self.share
            ));
        }
        notes
    }
}

/// What stands out in a plan.
fn remarks<T: Scalar>(plan: &Plan, request: &Request, inputs: &[Input<'_, T>]) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |base, field| plan.candidates.iter().find(|candidate| candidate.spec.method == Method::flat(base, field));
    let features = plan.best().map_or(request.max_features, |best| best.spec.features);
    if let Some(exact) = plan.exact_features.filter(|&exact| exact <= features as u64) {
        notes.push(format!(
            "The exact polynomial expansion has only {exact} features: use it instead of a sketch, without any error."
        ));
    }
    if plan.best().is_some_and(|best| best.spec.method == Method::Spherical) {
        notes.push(
            "srf is biased: with more features its error stays above its bias. It needs rows of unit norm, always."
                .to_owned(),
        );
    }
    for base in [Base::ProductSrht, Base::Rademacher] {
        if let (Some(real), Some(ctr)) = (of(base, Field::Real), of(base, Field::ComplexToReal))
            && plan.opposed_pairs > 0.0
            && (real.spec.features < ctr.spec.features
                || real.spec.features == ctr.spec.features && real.error.relative < ctr.error.relative)
        {
            notes.push(format!(
                "{} beats {} on these data: products of coordinates have opposite signs (a < 0) in {:.0} % of all pairs.",
                real.spec.method,
                ctr.spec.method,
                100.0 * plan.opposed_pairs
            ));
        }
    }
    let stored = |input: &Input<'_, T>| match input {
        Input::Dense(_) => None,
        Input::Sparse(rows) => Some((0..rows.rows()).map(|row| rows.row(row).count()).sum::<usize>()),
    };
    if let [input] = inputs
        && let Some(stored) = stored(input)
        && let (Some(tensor), Some(other)) =
            (of(Base::TensorSketch, Field::Real), of(Base::ProductSrht, Field::ComplexToReal))
        && tensor.feature_seconds < other.feature_seconds
    {
        notes.push(format!(
            "The rows are sparse ({:.1} of {} numbers on average): tensor-sketch costs by non-zeros and takes {:.1} s per million rows, {} {:.1} s.",
            stored as f64 / input.rows() as f64,
            input.columns(),
            tensor.feature_seconds,
            other.spec.method,
            other.feature_seconds
        ));
    }
    let overflow = |rejected: &Rejected| rejected.reason.contains("overflow");
    if plan.candidates.is_empty() && plan.rejected.iter().any(overflow) {
        notes.push("No method can be used before the data are scaled.".to_owned());
    } else if plan.candidates.is_empty() {
        notes.push("No method reaches the goal: allow a larger error, more features or more memory.".to_owned());
    } else if let (None, Some(budget)) = (plan.recommended, request.time_budget) {
        let fastest = plan.candidates.iter().map(|candidate| candidate.feature_seconds).fold(f64::INFINITY, f64::min);
        notes.push(format!("No method keeps within {budget} s per million rows; the fastest takes {fastest:.2} s."));
    }
    notes
}

/// Rows on which times are measured.
const TIMED_ROWS: usize = 2048;

/// How long a measurement may take.
const MEASUREMENT: Duration = Duration::from_millis(60);

/// The shortest time of `work`, in seconds.
fn fastest(mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let (begun, mut best) = (Instant::now(), f64::INFINITY);
    while begun.elapsed() < MEASUREMENT {
        let started = Instant::now();
        work()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Seconds for the features of a million rows.
fn seconds_per_million<T: Scalar>(spec: &Spec, tables: &[OwnedRows<T>]) -> Result<f64, Error> {
    // Dense weights take long to draw, and their cost is proportional to the features: some are enough.
    let dense = matches!(spec.method.base(), Some(Base::Gaussian | Base::Rademacher));
    let mut small = spec.clone();
    while dense && small.features > 2048 {
        small.features = (small.features / 2).next_multiple_of(2);
    }
    let sketch = small.sketch_within::<T>(u64::MAX)?;
    let time = |rows: usize| -> Result<f64, Error> {
        let taken: Vec<usize> = (0..rows).collect();
        let tables: Vec<OwnedRows<T>> = tables.iter().map(|table| OwnedRows::take(&table.view(), &taken)).collect();
        let inputs: Vec<Input<'_, T>> = tables.iter().map(OwnedRows::view).collect();
        let mut features = vec![T::ZERO; rows * small.features];
        let seconds = fastest(|| sketch.transform_into(&inputs, RowsMut::new(&mut features, rows, small.features)?))?;
        Ok(seconds / rows as f64)
    };
    // A few rows tell how many can be measured in the time there is.
    let all = tables[0].view().rows();
    let few = all.min(64);
    let per_row = time(few)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of rows")]
    let affordable = (MEASUREMENT.as_secs_f64() / 4.0 / per_row) as usize;
    let rows = affordable.min((1 << 22) / small.features).min(all);
    let per_row = if rows > few { time(rows)? } else { per_row };
    Ok(per_row * 1e6 * spec.features as f64 / small.features as f64)
}

/// Operations per second of f32 matrix multiplication on all threads of the current pool.
fn matrix_multiplication_rate() -> f64 {
    const SIZE: usize = 384;
    let work = || {
        let a: Vec<f32> = (0..SIZE * SIZE).map(|at| ((at % SIZE * 7 + at / SIZE * 3) % 11) as f32 - 5.0).collect();
        let (a, mut out) = (View::by_columns(&a, SIZE, SIZE), vec![0.0; SIZE * SIZE]);
        for _ in 0..8 {
            product(ViewMut::by_columns(&mut out, SIZE, SIZE), a.transpose(), a, 1.0);
        }
        out[0]
    };
    let seconds = fastest(|| {
        rayon::broadcast(|_| std::hint::black_box(work()));
        Ok(())
    });
    let operations = (8 * 2 * SIZE.pow(3) * rayon::current_num_threads()) as f64;
    operations / seconds.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Rows, SparseRows};

    fn request(degree: usize, dim: usize, goal: Goal) -> Request {
        let mut request = Request::new(Kernel { degree, gamma: 1.0, coef0: 0.0 }, InputDims::Same(dim), goal);
        // Enough to see what happens.
        (request.sampling.measured_rows, request.sampling.sketches) = (32, 12);
        request
    }

    /// Rows of unit norm.
    fn unit(rows: usize, columns: usize, low: f64) -> Vec<f64> {
        let mut values: Vec<f64> =
            (0..rows * columns).map(|i| (i * 7919 % 1009) as f64 / 1009.0 * (1.0 - low) + low).collect();
        for row in values.chunks_exact_mut(columns) {
            let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
            row.iter_mut().for_each(|value| *value /= norm);
        }
        values
    }

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
        // A limit that is no such size is the last one.
        let expected: Vec<usize> = (52..64).step_by(2).chain((64..=100).step_by(4)).collect();
        assert_eq!(sizes_up_to(100), expected);
    }

    #[test]
    fn exact_expansions_are_counted() {
        let same = |dim, degree, coef0| exact_features(&InputDims::Same(dim), Kernel { degree, gamma: 1.0, coef0 });
        assert_eq!(same(3, 2, 0.0), Some(6)); // x², y², z², xy, xz, yz
        assert_eq!(same(3, 2, 1.0), Some(10)); // and x, y, z, 1
        assert_eq!(same(1, 7, 0.0), Some(1));
        assert_eq!(same(64, 3, 0.0), Some(45_760));
        assert_eq!(same(1000, 100, 0.0), None);
        let distinct = InputDims::Distinct(vec![3, 4]);
        assert_eq!(exact_features(&distinct, Kernel { degree: 2, gamma: 1.0, coef0: 0.0 }), Some(12));
        assert_eq!(exact_features(&distinct, Kernel { degree: 2, gamma: 1.0, coef0: 1.0 }), Some(20));
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
                let error = crate::theory::expected_error(&fewer, &inputs, &Sampling::default()).unwrap();
                assert!(error.relative > 0.08, "{} {}", fewer.method, fewer.features);
            }
        }
        let times: Vec<f64> = plan.candidates.iter().map(Candidate::total_seconds).collect();
        assert!(times.is_sorted() && plan.recommended == Some(0));
        // Complex-to-Real needs fewer features than real, on non-negative rows.
        let needed = |name: &str| {
            let method = name.parse().unwrap();
            plan.candidates.iter().find(|candidate| candidate.spec.method == method).unwrap().spec.features
        };
        for base in ["product-srht", "rademacher", "gaussian"] {
            assert!(needed(&format!("ctr-{base}")) < needed(base), "{base}");
        }
        let json: serde_json::Value = serde_json::from_str(&plan.to_json()).unwrap();
        assert_eq!(json["candidates"].as_array().map(Vec::len), Some(plan.candidates.len()));
        let best = &json["candidates"][0]["spec"];
        assert_eq!(Spec::from_json(&best.to_string()).unwrap(), plan.best().unwrap().spec);
    }

    #[test]
    fn a_number_of_features_gets_the_lowest_error() {
        let x = unit(150, 20, 0.0);
        let inputs = [Rows::new(&x, 150, 20).unwrap().into()];
        let plan = plan(&request(4, 20, Goal::Features(128)), &inputs, |_| {}).unwrap();
        let errors: Vec<f64> = plan.candidates.iter().map(|candidate| candidate.error.relative).collect();
        assert!(errors.is_sorted() && plan.candidates.iter().all(|candidate| candidate.spec.features == 128));
        assert!(plan.best().unwrap().error.relative <= 1.05 * errors[0]);
        // The kernel of spherical features is another one.
        let srf = plan.rejected.iter().find(|rejected| rejected.method == Method::Spherical).unwrap();
        assert!(srf.reason.contains("gamma"), "{}", srf.reason);
    }

    #[test]
    fn budgets_are_kept() {
        let x = unit(60, 8, 0.0);
        let inputs = [Rows::new(&x, 60, 8).unwrap().into()];
        let none = Request { time_budget: Some(1e-9), ..request(2, 8, Goal::Features(64)) };
        let plan_none = plan(&none, &inputs, |_| {}).unwrap();
        assert!(plan_none.best().is_none() && plan_none.notes.iter().any(|note| note.contains("keeps within")));
        let small = Request { max_features: 16, ..request(2, 8, Goal::Error(0.001)) };
        let plan_small = plan(&small, &inputs, |_| {}).unwrap();
        assert!(plan_small.candidates.is_empty() && plan_small.notes.iter().any(|note| note.contains("No method")));
        assert!(plan_small.rejected.iter().any(|rejected| rejected.reason.contains("16")));
        let tight = Request { memory_limit: 1, ..request(2, 8, Goal::Features(64)) };
        assert!(
            plan(&tight, &inputs, |_| {})
                .unwrap()
                .rejected
                .iter()
                .all(|rejected| rejected.reason.contains("bytes") || rejected.reason.contains("gamma"))
        );
    }

    #[test]
    fn what_users_should_know_is_said() {
        let said = |request: &Request, inputs: &[Input<'_, f64>], word: &str| {
            let notes = plan(request, inputs, |_| {}).unwrap().notes;
            assert!(notes.iter().any(|note| note.contains(word)), "{word}: {notes:?}");
        };
        // 6 monomials need no sketch of 64 features.
        let x = unit(50, 3, 0.0);
        said(
            &request(2, 3, Goal::Features(64)),
            &[Rows::new(&x, 50, 3).unwrap().into()],
            "exact polynomial expansion has only 6",
        );
        // Norms of 100 at degree 3; one of 1000 among 1; a constant of 1000.
        let large: Vec<f64> = x.iter().map(|x| 100.0 * x).collect();
        said(&request(3, 3, Goal::Features(8)), &[Rows::new(&large, 50, 3).unwrap().into()], "set gamma to 1.000e-4");
        let outlier: Vec<f64> = x.iter().enumerate().map(|(i, x)| if i < 3 { 1e3 * x } else { *x }).collect();
        said(&request(3, 3, Goal::Features(8)), &[Rows::new(&outlier, 50, 3).unwrap().into()], "largest hundredth");
        let constant =
            Request { kernel: Kernel { degree: 3, gamma: 1.0, coef0: 1000.0 }, ..request(3, 3, Goal::Features(8)) };
        said(&constant, &[Rows::new(&x, 50, 3).unwrap().into()], "coef0 makes them");
        // Two kinds of rows, each with one large coordinate, nearly orthogonal and with opposite signs.
        let opposed: Vec<f64> = (0..80).flat_map(|i| if i % 2 == 0 { [0.2, -0.5] } else { [0.56, 0.15] }).collect();
        said(
            &request(2, 2, Goal::Features(2)),
            &[Rows::new(&opposed, 80, 2).unwrap().into()],
            "rademacher beats ctr-rademacher",
        );
        // Ten of 50,000 numbers: transforming all of them takes longer than hashing ten.
        let (starts, values) = ((0..=40_u64).map(|row| 10 * row).collect::<Vec<_>>(), vec![0.3; 400]);
        let columns: Vec<u64> = (0..400).map(|entry| entry * 7919 % 50_000).collect();
        let sparse = SparseRows::new(&starts[..], &columns[..], &values, 50_000).unwrap();
        let methods = ["tensor-sketch", "ctr-product-srht"].map(|name| name.parse().unwrap()).to_vec();
        let few = Request { methods, ..request(2, 50_000, Goal::Features(256)) };
        // It is said by measured times, which other programs may disturb.
        let noticed = || plan(&few, &[sparse.into()], |_| {}).unwrap().notes.iter().any(|note| note.contains("sparse"));
        assert!((0..10).any(|_| noticed()));
    }

    /// Features of 1e-27 at degree 3 are zero in `f32`, and can be had in `f64`.
    #[test]
    fn rows_too_small_for_the_type_are_an_error() {
        let x: Vec<f64> = unit(50, 3, 0.0).iter().map(|x| 1e-18 * x).collect();
        let small: Vec<f32> = x.iter().map(|&x| f32::from_f64(x)).collect();
        let request =
            Request { methods: vec![Method::flat(Base::Gaussian, Field::Real)], ..request(3, 3, Goal::Features(8)) };
        let error = plan(&request, &[Rows::new(&small, 50, 3).unwrap().into()], |_| {}).unwrap_err().to_string();
        assert!(error.starts_with("input") && error.contains("f32"), "{error}");
        assert!(plan(&request, &[Rows::new(&x, 50, 3).unwrap().into()], |_| {}).unwrap().best().is_some());
    }

    #[test]
    fn wrong_requests_name_the_argument() {
        let x = [1.0, 2.0];
        let inputs = [Rows::new(&x, 1, 2).unwrap().into()];
        let good = request(2, 2, Goal::Error(0.1));
        for (wrong, named) in [
            (request(2, 2, Goal::Error(0.0)), "target_error"),
            (request(2, 2, Goal::Error(f64::NAN)), "target_error"),
            (request(2, 2, Goal::Features(0)), "features"),
            (request(0, 2, Goal::Features(8)), "degree"),
            (Request { time_budget: Some(0.0), ..good.clone() }, "time_budget"),
            (Request { max_features: 0, ..good.clone() }, "max_features"),
            (Request { methods: vec![], ..good.clone() }, "methods"),
            (Request { methods: vec!["complex-gaussian".parse().unwrap()], ..good.clone() }, "methods"),
            (request(2, 3, Goal::Features(8)), "input"),
            (request(2, 2, Goal::Features(1 << 40)), "features"),
            (Request { kernel: Kernel { degree: 2, gamma: 0.0, coef0: 0.0 }, ..good.clone() }, "input"),
        ] {
            let error = plan(&wrong, &inputs, |_| {}).unwrap_err().to_string();
            assert!(error.starts_with(named), "{named}: {error}");
        }
    }
}
