//! The request behind a plan.

use super::candidates::candidates;
use crate::error::{Argument, Error};
use crate::fit::Aim;
use crate::map::DEFAULT_MEMORY_LIMIT;
use crate::spec::{Base, Field, InputDims, Kernel, Method, Spec};
use crate::theory::Sampling;

/// The goal of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// A relative Frobenius error of the kernel matrix of at most this much.
    Error(f64),
    /// The lowest error with this many features.
    Features(usize),
    /// The lowest error within this many seconds, for features and fit together.
    Time(f64),
}

/// The input of a plan: kernel, goal, methods and limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The kernel to approximate.
    pub kernel: Kernel,
    /// The input tables.
    pub inputs: InputDims,
    /// A target error, a number of features or a time.
    pub goal: Goal,
    /// Methods to choose from.
    pub methods: Vec<Method>,
    /// What `maclaurin-` methods share their features for.
    pub aim: Aim,
    /// Whether [finalists will be fitted](super::Plan::fit_finalists) to labels: sums for the other aim are then planned, too.
    pub labelled: bool,
    /// The number of rows whose features are computed and fitted; by default those of the population.
    pub rows: Option<usize>,
    /// The most seconds for the features of these rows and a fit on them.
    pub time_budget: Option<f64>,
    /// The most bytes for a sketch.
    pub memory_limit: u64,
    /// The most features to consider for a target error.
    pub max_features: usize,
    /// How much of the data is examined.
    pub sampling: Sampling,
    /// The seed of the recommended spec.
    pub seed: u64,
}

impl Request {
    /// The default limit on features for a target error.
    pub const DEFAULT_MAX_FEATURES: usize = 1 << 17;

    /// All methods worth considering, no budgets, and a sample that plans in seconds.
    #[must_use]
    pub fn new(kernel: impl Into<Kernel>, inputs: InputDims, goal: Goal) -> Self {
        let kernel = kernel.into();
        Self {
            methods: candidates(&kernel, &inputs),
            kernel,
            inputs,
            goal,
            aim: Aim::Kernel,
            labelled: false,
            rows: None,
            time_budget: None,
            memory_limit: DEFAULT_MEMORY_LIMIT,
            max_features: Self::DEFAULT_MAX_FEATURES,
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
        self.kernel.validate()?;
        if self.rows == Some(0) {
            return Err(Error::invalid(Argument::Rows, "at least 1", 0));
        }
        if self.max_features < 2 {
            return Err(Error::invalid(Argument::MaxFeatures, "at least 2", self.max_features));
        }
        if let Some(budget) = self.seconds().filter(|budget| !(*budget > 0.0 && budget.is_finite())) {
            return Err(Error::invalid(Argument::TimeBudget, "a positive number of seconds", budget));
        }
        if self.methods.is_empty() {
            return Err(Error::invalid(Argument::Methods, "at least one", 0));
        }
        if let Some(method) = self.methods.iter().find(|method| method.field() == Field::Complex) {
            return Err(Error::invalid(Argument::Methods, "real or ctr- methods, whose features are real", method));
        }
        // Invalid kernels, inputs or features are invalid for every method.
        let features = if let Goal::Features(features) = self.goal { features } else { 2 };
        self.plain_spec(features).validate()?;
        let mut of_methods = self.methods.iter().map(|&method| self.spec(method, features).validate());
        match of_methods.next() {
            Some(Err(first)) if of_methods.all(|other| other.is_err()) => Err(first),
            _ => Ok(()),
        }
    }

    /// The most seconds, as the goal or beside it.
    pub(super) fn seconds(&self) -> Option<f64> {
        if let Goal::Time(seconds) = self.goal { Some(seconds) } else { self.time_budget }
    }

    /// The sketch of a method for this request, not fitted yet; all monomials are as many as they are.
    pub(super) fn spec(&self, method: Method, features: usize) -> Spec {
        let Self { ref kernel, ref inputs, seed, .. } = *self;
        let spec = Spec::new(inputs.clone()).with_kernel(kernel.clone()).with_method(method).with_seed(seed);
        let features = spec.exact_features().unwrap_or(features);
        spec.with_features(features)
    }

    /// A sketch whose method adds no conditions.
    pub(super) fn plain_spec(&self, features: usize) -> Spec {
        let polynomial = self.kernel.polynomial().is_some();
        let plain = if polynomial { Method::flat(Base::Gaussian, Field::Real) } else { Method::Nystrom };
        self.spec(plain, features)
    }

    /// The methods to choose from, each once.
    pub(super) fn distinct_methods(&self) -> Vec<Method> {
        let mut methods = Vec::with_capacity(self.methods.len());
        for &method in &self.methods {
            if !methods.contains(&method) {
                methods.push(method);
            }
        }
        methods
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::plan::tests::request;
    use crate::rows::Rows;
    use crate::spec::Polynomial;

    #[test]
    fn wrong_requests_name_the_argument() {
        let x = [1.0, 2.0];
        let inputs = [Rows::new(&x, 1, 2).unwrap().into()];
        let good = request(2, 2, Goal::Error(0.1));
        let methods = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        for (wrong, named) in [
            (request(2, 2, Goal::Error(0.0)), Argument::TargetError),
            (request(2, 2, Goal::Error(f64::NAN)), Argument::TargetError),
            (request(2, 2, Goal::Features(0)), Argument::Features),
            (request(0, 2, Goal::Features(8)), Argument::Degree),
            (Request { time_budget: Some(0.0), ..good.clone() }, Argument::TimeBudget),
            (Request { max_features: 0, ..good.clone() }, Argument::MaxFeatures),
            (Request { methods: vec![], ..good.clone() }, Argument::Methods),
            (Request { methods: methods(&["complex-gaussian"]), ..good.clone() }, Argument::Methods),
            (Request { methods: methods(&["ctr-gaussian"]), ..request(2, 2, Goal::Features(7)) }, Argument::Features),
            (
                Request { methods: methods(&["srf", "ctr-gaussian"]), ..request(2, 2, Goal::Features(7)) },
                Argument::Features,
            ),
            (Request { methods: methods(&["srf"]), ..good.clone() }, Argument::Gamma),
            (request(2, 3, Goal::Features(8)), Argument::Input(None)),
            (request(2, 2, Goal::Features(1 << 40)), Argument::Features),
            (
                Request { kernel: Polynomial { degree: 2, gamma: 0.0, coef0: 0.0 }.into(), ..good.clone() },
                Argument::Input(None),
            ),
            (Request { rows: Some(0), ..good.clone() }, Argument::Rows),
            (request(2, 2, Goal::Time(0.0)), Argument::TimeBudget),
            (request(2, 2, Goal::Time(f64::INFINITY)), Argument::TimeBudget),
            (Request { kernel: Kernel::Gaussian { length_scale: 0.0 }, ..good.clone() }, Argument::LengthScale),
            (
                Request {
                    kernel: Kernel::Gaussian { length_scale: 1.0 },
                    methods: methods(&["gaussian", "exact"]),
                    ..good.clone()
                },
                Argument::Method,
            ),
        ] {
            let error = plan(&wrong, &inputs, |_| {}).unwrap_err();
            assert!(matches!(error, Error::Invalid { argument, .. } if argument == named), "{named}: {error}");
        }
    }

    #[test]
    fn a_method_named_twice_is_considered_once() {
        let mut twice = request(2, 2, Goal::Error(0.1));
        let once = twice.methods.clone();
        twice.methods.extend(once.clone());
        assert_eq!(twice.distinct_methods(), once);
    }
}
