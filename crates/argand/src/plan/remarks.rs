//! Reasons and remarks of a plan, as data: why a method was rejected, what stands out, why nothing is recommended.
//! `text.rs` puts them into words.

use super::{Candidate, Plan, Rejected};
use crate::error::Error;
use crate::rows::Input;
use crate::scalar::Scalar;
use crate::spec::{Base, Field, InputDims, Kernel, Method};

/// Why a method is not among the candidates.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// There is no such sketch, for example because the method does not support the kernel.
    Impossible(Error),
    /// The sketch takes more memory than allowed.
    Memory {
        /// Bytes needed.
        bytes: u64,
        /// With this many features.
        features: usize,
    },
    /// The method requires rows of unit norm; these are not.
    NotUnitNorm,
    /// The features of these rows are too large for their type.
    Overflow {
        /// `f32` or `f64`.
        dtype: &'static str,
    },
    /// By the closed form, the target needs more features than the request considers.
    TooManyFeatures {
        /// The most features considered.
        most: usize,
    },
    /// Even few features take longer than the time of the plan.
    TooSlow {
        /// The seconds of the fewest features that were tried.
        seconds: f64,
    },
    /// Every measurement missed the target.
    Missed {
        /// The most features measured.
        features: usize,
    },
}

/// Something the user should know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Remark {
    /// Typical values of the kernel are far from 1.
    Scale {
        /// The median of k(x, x).
        kernel: f64,
        /// The degree of the kernel.
        degree: usize,
        /// The median of ‖x‖². Its inverse is a good gamma.
        squared_norm: f64,
        /// Whether `coef0` is the cause rather than the rows.
        by_constant: bool,
    },
    /// A few rows outweigh all others.
    Outliers {
        /// The share of the kernel matrix due to the largest hundredth of the rows.
        share: f64,
    },
    /// The recommended method is biased.
    Biased(Method),
    /// A real sketch is better than its Complex-to-Real counterpart on these data.
    RealWins {
        /// The real method.
        real: Method,
        /// Its counterpart.
        ctr: Method,
        /// The share of pairs of different rows with a < 0.
        opposed_pairs: f64,
    },
    /// The rows are so sparse that tensor-sketch is faster than the transforms.
    Sparse {
        /// Average number of stored entries per row.
        stored: f64,
        /// Columns.
        columns: usize,
        /// The method whose cost follows the stored entries, and its seconds for the features of the plan's rows.
        sparse: (Method, f64),
        /// The method whose cost follows the columns, and its seconds.
        dense: (Method, f64),
    },
}

/// Why no candidate is recommended.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Unmet {
    /// Features overflow: the data must be scaled first.
    Scale,
    /// No method reaches the target error within the features and memory allowed.
    Goal,
    /// No candidate meets the time budget.
    Time {
        /// The time budget in seconds.
        budget: f64,
        /// The seconds of the fastest candidate.
        fastest: f64,
    },
}

/// Dimension of the exact feature map of a polynomial kernel: monomials of degree p in x̃, or the tensor product of distinct inputs.
pub(super) fn exact_features(inputs: &InputDims, kernel: &Kernel) -> Option<u64> {
    let kernel = kernel.polynomial()?;
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

/// What stands out in a plan.
pub(super) fn remarks<T: Scalar>(plan: &Plan, inputs: &[Input<'_, T>]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if let Some(best) = plan.best().filter(|best| best.spec.method == Method::Spherical) {
        remarks.push(Remark::Biased(best.spec.method));
    }
    remarks.extend([Base::ProductSrht, Base::Rademacher].into_iter().filter_map(|base| real_wins(plan, base)));
    if let [input] = inputs {
        remarks.extend(sparse(plan, input));
    }
    remarks
}

/// Complex-to-Real sketches have the lower variance unless many pairs have a < 0.
fn real_wins(plan: &Plan, base: Base) -> Option<Remark> {
    let [real, ctr] = [Field::Real, Field::ComplexToReal].map(|field| plan.candidate(Method::flat(base, field)));
    let (real, ctr) = (real?, ctr?);
    let better = real.spec.features < ctr.spec.features
        || real.spec.features == ctr.spec.features && real.error.relative < ctr.error.relative;
    (better && plan.opposed_pairs > 0.0).then_some(Remark::RealWins {
        real: real.spec.method,
        ctr: ctr.spec.method,
        opposed_pairs: plan.opposed_pairs,
    })
}

fn sparse<T: Scalar>(plan: &Plan, input: &Input<'_, T>) -> Option<Remark> {
    let Input::Sparse(rows) = input else { return None };
    let sparse = plan.candidate(Method::flat(Base::TensorSketch, Field::Real))?;
    let dense = plan.candidate(Method::flat(Base::ProductSrht, Field::ComplexToReal))?;
    if sparse.feature_seconds >= dense.feature_seconds {
        return None;
    }
    let stored: usize = (0..rows.rows()).map(|row| rows.row(row).count()).sum();
    Some(Remark::Sparse {
        stored: stored as f64 / input.rows() as f64,
        columns: input.columns(),
        sparse: (sparse.spec.method, sparse.feature_seconds),
        dense: (dense.spec.method, dense.feature_seconds),
    })
}

/// Why none of the candidates is recommended.
pub(super) fn unmet(time_budget: Option<f64>, candidates: &[Candidate], rejected: &[Rejected]) -> Unmet {
    if !candidates.is_empty() {
        // Without a budget, no candidate is too slow.
        let fastest = candidates.iter().map(Candidate::total_seconds).fold(f64::INFINITY, f64::min);
        return Unmet::Time { budget: time_budget.unwrap_or(f64::INFINITY), fastest };
    }
    let too_slow =
        |rejected: &Rejected| if let Reason::TooSlow { seconds } = rejected.reason { Some(seconds) } else { None };
    if let (Some(budget), Some(fastest)) = (time_budget, rejected.iter().filter_map(too_slow).reduce(f64::min)) {
        return Unmet::Time { budget, fastest };
    }
    let overflow = rejected.iter().any(|rejected| matches!(rejected.reason, Reason::Overflow { .. }));
    if overflow { Unmet::Scale } else { Unmet::Goal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Request;
    use crate::plan::tests::{request, unit};
    use crate::plan::{Goal, plan};
    use crate::rows::{Rows, SparseRows};
    use crate::spec::Polynomial;

    #[test]
    fn exact_expansions_are_counted() {
        let count = |inputs: &InputDims, degree, coef0| {
            exact_features(inputs, &Polynomial { degree, gamma: 1.0, coef0 }.into())
        };
        let same = |dim, degree, coef0| count(&InputDims::Same(dim), degree, coef0);
        assert_eq!(same(3, 2, 0.0), Some(6)); // x², y², z², xy, xz, yz
        assert_eq!(same(3, 2, 1.0), Some(10)); // and x, y, z, 1
        assert_eq!(same(1, 7, 0.0), Some(1));
        assert_eq!(same(64, 3, 0.0), Some(45_760));
        assert_eq!(same(1000, 100, 0.0), None);
        let distinct = InputDims::Distinct(vec![3, 4]);
        assert_eq!(count(&distinct, 2, 0.0), Some(12));
        assert_eq!(count(&distinct, 2, 1.0), Some(20));
        assert_eq!(exact_features(&InputDims::Same(3), &Kernel::Gaussian { length_scale: 1.0 }), None);
    }

    /// Where all monomials are few, they are the recommendation, not a remark beside another one.
    #[test]
    fn small_expansions_need_no_sketch() {
        let x = unit(50, 3, 0.0);
        let plan = plan(&request(2, 3, Goal::Features(64)), &[Rows::new(&x, 50, 3).unwrap().into()], |_| {}).unwrap();
        let best = plan.best().unwrap();
        assert_eq!((best.spec.method, best.spec.features), (Method::Exact, 6), "{plan}");
        // They are no choice where they are more than was asked for.
        let few = crate::plan::plan(&request(2, 3, Goal::Features(4)), &[Rows::new(&x, 50, 3).unwrap().into()], |_| {});
        let few = few.unwrap();
        let rejected = few.rejected.iter().find(|rejected| rejected.method == Method::Exact).unwrap();
        assert_eq!(rejected.reason, Reason::TooManyFeatures { most: 4 });
    }

    /// Two kinds of rows, each with one large coordinate, nearly orthogonal and with opposite signs.
    #[test]
    fn real_sketches_win_on_opposed_pairs() {
        let opposed: Vec<f64> = (0..80).flat_map(|i| if i % 2 == 0 { [0.2, -0.5] } else { [0.56, 0.15] }).collect();
        let inputs = [Rows::new(&opposed, 80, 2).unwrap().into()];
        let plan = plan(&request(2, 2, Goal::Features(2)), &inputs, |_| {}).unwrap();
        let [wins_real, wins_ctr] =
            [Field::Real, Field::ComplexToReal].map(|field| Method::flat(Base::Rademacher, field));
        let won = |remark: &Remark| {
            matches!(remark, Remark::RealWins { real, ctr, opposed_pairs }
                if *real == wins_real && *ctr == wins_ctr && *opposed_pairs > 0.0)
        };
        assert!(plan.remarks.iter().any(won), "{:?}", plan.remarks);
    }

    /// Ten of 50,000 numbers: transforming all of them takes longer than hashing ten.
    #[test]
    fn tensor_sketch_wins_on_very_sparse_rows() {
        let (starts, values) = ((0..=40_u64).map(|row| 10 * row).collect::<Vec<_>>(), vec![0.3; 400]);
        let columns: Vec<u64> = (0..400).map(|entry| entry * 7919 % 50_000).collect();
        let sparse = SparseRows::new(&starts[..], &columns[..], &values, 50_000).unwrap();
        let methods = ["tensor-sketch", "ctr-product-srht"].map(|name| name.parse().unwrap()).to_vec();
        let few = Request { methods, ..request(2, 50_000, Goal::Features(256)) };
        let noticed = |remark: &Remark| matches!(remark, Remark::Sparse { stored: 10.0, columns: 50_000, .. });
        // Measured times depend on what else the machine is doing.
        assert!((0..10).any(|_| plan(&few, &[sparse.into()], |_| {}).unwrap().remarks.iter().any(noticed)));
    }
}
