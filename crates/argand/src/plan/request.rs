//! The request behind a plan.

use super::candidates::candidates;
use crate::error::{Argument, Error};
use crate::map::DEFAULT_MEMORY_LIMIT;
use crate::spec::{Base, Field, InputDims, Method, Polynomial, Spec};
use crate::theory::Sampling;

/// The goal of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// A relative Frobenius error of the kernel matrix of at most this much.
    Error(f64),
    /// The lowest error with this many features.
    Features(usize),
}

/// The input of a plan: kernel, goal, methods and limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The kernel to approximate.
    pub kernel: Polynomial,
    /// The input tables.
    pub inputs: InputDims,
    /// A target error or a number of features.
    pub goal: Goal,
    /// Methods to choose from.
    pub methods: Vec<Method>,
    /// The most seconds for the features of a million rows.
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
    pub fn new(kernel: Polynomial, inputs: InputDims, goal: Goal) -> Self {
        Self {
            methods: candidates(kernel.degree),
            kernel,
            inputs,
            goal,
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
        // Invalid kernels, inputs or features are invalid for every method.
        let features = if let Goal::Features(features) = self.goal { features } else { 2 };
        self.plain_spec(features).validate()?;
        let mut of_methods = self.methods.iter().map(|&method| self.spec(method, features).validate());
        match of_methods.next() {
            Some(Err(first)) if of_methods.all(|other| other.is_err()) => Err(first),
            _ => Ok(()),
        }
    }

    /// The sketch of a method for this request.
    pub(super) fn spec(&self, method: Method, features: usize) -> Spec {
        let Self { kernel, ref inputs, seed, .. } = *self;
        Spec::new(inputs.clone()).with_kernel(kernel).with_features(features).with_method(method).with_seed(seed)
    }

    /// A sketch whose method adds no conditions.
    pub(super) fn plain_spec(&self, features: usize) -> Spec {
        self.spec(Method::flat(Base::Gaussian, Field::Real), features)
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
                Request { kernel: Polynomial { degree: 2, gamma: 0.0, coef0: 0.0 }, ..good.clone() },
                Argument::Input(None),
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
