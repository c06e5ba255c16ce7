//! The scale of the kernel: features must neither overflow nor vanish, and a few rows must not outweigh all others.

use super::Request;
use super::remarks::Remark;
use crate::error::{Argument, Error};
use crate::rows::Input;
use crate::scalar::Scalar;
use crate::spec::{Kernel, Polynomial};
use crate::theory::choose_rows;
use crate::theory::variance::power;

/// The most rows examined.
const ROWS: usize = 4096;

/// The scale of k(x, x).
pub(super) struct Scale {
    kernel: Kernel,
    /// The median of ‖x‖², the geometric mean over the tables.
    squared_norm: f64,
    median: f64,
    largest: f64,
    /// The share of Σ k(x, x)² due to the largest hundredth of the rows.
    share: f64,
    /// Rows examined.
    rows: usize,
}

impl Scale {
    pub(super) fn of<T: Scalar>(request: &Request, inputs: &[Input<'_, T>]) -> Self {
        let rows = choose_rows(inputs[0].rows(), ROWS, request.sampling.seed);
        let norms: Vec<Vec<f64>> =
            inputs.iter().map(|input| rows.iter().map(|&row| squared_norm(input, row)).collect()).collect();
        let median = |values: &[f64]| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        let kernels: Vec<f64> = (0..rows.len())
            .map(|row| match &request.kernel {
                Kernel::Polynomial(Polynomial { degree, gamma, coef0 }) => {
                    let factors = norms.iter().map(|norms| gamma * norms[row] + coef0);
                    if inputs.len() == 1 { power(factors.product(), *degree) } else { factors.product() }
                }
                kernel => kernel.value(norms[0][row], 2.0 * norms[0][row]),
            })
            .collect();
        let logarithms = norms.iter().map(|norms| median(norms).max(f64::MIN_POSITIVE).ln());
        let mut squares: Vec<f64> = kernels.iter().map(|kernel| kernel * kernel).collect();
        squares.sort_by(|a, b| b.total_cmp(a));
        let largest_rows = squares.len().div_ceil(100);
        let total: f64 = squares.iter().sum();
        Self {
            kernel: request.kernel.clone(),
            squared_norm: (logarithms.sum::<f64>() / norms.len() as f64).exp(),
            median: median(&kernels),
            largest: squares[0].sqrt(),
            share: if total > 0.0 { squares[..largest_rows].iter().sum::<f64>() / total } else { 0.0 },
            rows: rows.len(),
        }
    }

    /// Errors if features of these rows would all be zero in `T`.
    pub(super) fn check<T: Scalar>(&self) -> Result<(), Error> {
        // A thousandth of a typical feature should still have most of its digits.
        let small = self.largest.sqrt() * 1e-3;
        let rounded = T::from_f64(small).to_f64();
        // Features too large for `T` are caught when they overflow, method by method.
        if rounded.is_finite() && (rounded - small).abs() > 1e-3 * small {
            let expected = "rows whose kernel is not zero: scale them to unit norm, or use a larger gamma";
            let received = format!("kernel values of {:.0e}, too small for {}", self.largest, T::NAME);
            return Err(Error::invalid(Argument::Input(None), expected, received));
        }
        Ok(())
    }

    pub(super) fn remarks(&self) -> Vec<Remark> {
        let mut remarks = Vec::new();
        if let Kernel::Polynomial(Polynomial { degree, gamma, coef0 }) = self.kernel
            && !(1e-4..=1e4).contains(&self.median)
        {
            remarks.push(Remark::Scale {
                kernel: self.median,
                degree,
                squared_norm: self.squared_norm,
                by_constant: coef0 > gamma * self.squared_norm,
            });
        }
        if self.share > 0.5 && self.rows >= 20 {
            remarks.push(Remark::Outliers { share: self.share });
        }
        remarks
    }
}

/// Whether all rows have unit norm, up to rounding.
pub(super) fn has_unit_rows<T: Scalar>(rows: &Input<'_, T>) -> bool {
    (0..rows.rows()).all(|row| (squared_norm(rows, row) - 1.0).abs() < 1e-3)
}

/// ‖x‖² of one row.
fn squared_norm<T: Scalar>(rows: &Input<'_, T>, row: usize) -> f64 {
    let square = |value: T| value.to_f64() * value.to_f64();
    match rows {
        Input::Dense(rows) => rows.row(row).iter().map(|&value| square(value)).sum(),
        Input::Sparse(rows) => rows.row(row).map(|(_, value)| square(value)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{request, unit};
    use crate::plan::{Goal, plan};
    use crate::rows::Rows;
    use crate::spec::{Base, Field, Method};

    /// The remarks about 50 rows of 3 numbers.
    fn said(x: &[f64], coef0: f64) -> Vec<Remark> {
        let kernel = Polynomial { degree: 3, gamma: 1.0, coef0 };
        let request = Request { kernel: kernel.into(), ..request(3, 3, Goal::Features(8)) };
        Scale::of(&request, &[Rows::new(x, 50, 3).unwrap().into()]).remarks()
    }

    #[test]
    fn data_that_need_scaling_are_found() {
        let x = unit(50, 3, 0.0);
        assert_eq!(said(&x, 0.0), []);
        let large: Vec<f64> = x.iter().map(|x| 100.0 * x).collect();
        let [Remark::Scale { kernel, degree: 3, squared_norm, by_constant: false }] = said(&large, 0.0)[..] else {
            panic!("{:?}", said(&large, 0.0))
        };
        assert!((kernel / 1e12 - 1.0).abs() < 1e-9 && (squared_norm / 1e4 - 1.0).abs() < 1e-9);
        assert!(matches!(said(&x, 1000.0)[..], [Remark::Scale { by_constant: true, .. }]));
        let outlier: Vec<f64> = x.iter().enumerate().map(|(i, x)| if i < 3 { 1e3 * x } else { *x }).collect();
        assert!(matches!(said(&outlier, 0.0)[..], [Remark::Outliers { share }] if share > 0.99));
    }

    /// Features of 1e-27 at degree 3 are zero in `f32`, but not in `f64`.
    #[test]
    fn rows_too_small_for_the_type_are_an_error() {
        let x: Vec<f64> = unit(50, 3, 0.0).iter().map(|x| 1e-18 * x).collect();
        let small: Vec<f32> = x.iter().map(|&x| f32::from_f64(x)).collect();
        let request =
            Request { methods: vec![Method::flat(Base::Gaussian, Field::Real)], ..request(3, 3, Goal::Features(8)) };
        let error = plan(&request, &[Rows::new(&small, 50, 3).unwrap().into()], |_| {}).unwrap_err();
        assert!(matches!(error, Error::Invalid { argument: Argument::Input(None), .. }), "{error}");
        assert!(error.to_string().contains("f32"), "{error}");
        assert!(plan(&request, &[Rows::new(&x, 50, 3).unwrap().into()], |_| {}).unwrap().best().is_some());
    }
}
