//! What is found out before a sketch is drawn: the part of a [`Spec`] that depends on rows.
//!
//! Most methods need the number of columns and a seed. Three need more, and what they need becomes part of the spec as plain data, its
//! [`Fit`]: from then on the spec can be saved, sent and drawn anywhere, without the rows it was fitted to.
//!
//! | method | what is fitted | on | size |
//! |---|---|---|---|
//! | `srf` | the distribution of frequencies | the kernel alone; [`Spec::draw`] does it if it is missing | 20 numbers |
//! | `maclaurin-` | an [`Allocation`]: how many features each power of ⟨x, y⟩ has; for Gaussian kernels also the centre of the rows | a sample of rows | a few numbers, and d for the centre |
//! | `nystrom` | [`Landmarks`]: D rows | a sample of rows | D·d numbers, which *are* the map: nothing smaller describes it |
//!
//! [`Spec::fit_to`] fits; [`Spec::draw`] refuses to draw a method that [looks at rows](crate::Method::looks_at_rows) and was not fitted. What
//! follows from a fit, such as the seeds of the terms of a sum or the factor of the landmarks' kernel matrix, is computed on drawing and never
//! stored. In JSON, landmarks are their bytes in base 64, in single precision where that is exact.

mod allocation;
mod choice;
mod landmarks;
mod learning;

use crate::error::{Argument, Error};
use crate::rows::Input;
use crate::scalar::Scalar;
use crate::spec::{Method, Spec};
use crate::spherical::SphericalFit;

pub use allocation::{Aim, Allocation, Term};
pub(crate) use allocation::{radial_square, scaled};
pub use landmarks::{Landmarks, Selection};

/// What was fitted before drawing.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fit {
    /// The frequencies of spherical random features.
    Spherical(SphericalFit),
    /// The features of each power, for `maclaurin-` methods.
    Maclaurin(Allocation),
    /// The landmarks of `nystrom`.
    Nystrom(Landmarks),
}

/// How to fit. Start from the default and override fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Fitting {
    /// The most rows whose pairs decide how powers share the features; larger tables are sampled at random.
    pub rows: usize,
    /// What the shares of powers are best for.
    pub aim: Aim,
    /// How landmarks are selected.
    pub selection: Selection,
    /// Whether fewer landmarks, and features, will do if there are fewer different rows than features.
    pub fewer: bool,
}

impl Default for Fitting {
    fn default() -> Self {
        Self { rows: 256, aim: Aim::Kernel, selection: Selection::Pivoted, fewer: false }
    }
}

impl Fitting {
    /// The same with another number of rows.
    #[must_use]
    pub fn with_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// The same with another aim.
    #[must_use]
    pub fn with_aim(self, aim: Aim) -> Self {
        Self { aim, ..self }
    }

    /// The same with another selection of landmarks.
    #[must_use]
    pub fn with_selection(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// The same for rows of which there may be fewer than features: there are then as many landmarks as different rows.
    #[must_use]
    pub fn or_fewer(self) -> Self {
        Self { fewer: true, ..self }
    }
}

impl Spec {
    /// The same spec, fitted to rows if its method [looks at rows](Method::looks_at_rows); otherwise as it is. The seed of the spec decides
    /// which rows are sampled.
    ///
    /// # Errors
    /// As [`Spec::validate`]; [`Error::Invalid`] and [`Error::NotFinite`] for tables that do not fit, that have too few rows, or on which the
    /// power series of the kernel would need too many terms.
    ///
    /// ```
    /// use argand::fit::Fitting;
    /// use argand::{FeatureMap, Rows, Spec, theory};
    /// let x: Vec<f64> = (0..60 * 5).map(|i| f64::from(i * i % 23) / 23.0).collect();
    /// let inputs = [Rows::new(&x, 60, 5)?.into()];
    /// let spec = Spec::gaussian(5, 1.0).with_features(512).with_method("maclaurin-ctr-product-srht".parse()?);
    /// let fitted = spec.fit_to(&inputs, &Fitting::default())?;
    /// assert_eq!(Spec::from_json(&fitted.to_json())?, fitted);
    ///
    /// let features = fitted.sketch::<f64>()?.transform(&inputs)?;
    /// let error = theory::kernel_error(&fitted, &inputs, Rows::new(&features, 60, 512)?)?;
    /// assert!(error < 0.01);
    /// # Ok::<(), argand::Error>(())
    /// ```
    pub fn fit_to<T: Scalar>(&self, inputs: &[Input<'_, T>], fitting: &Fitting) -> Result<Self, Error> {
        let unfitted = self.clone().with_fit(None);
        unfitted.validate()?;
        let fit = match self.method {
            Method::Maclaurin(product) => Fit::Maclaurin(Allocation::fit(&unfitted, product, inputs, fitting)?),
            Method::Nystrom => {
                let landmarks = Landmarks::select(&unfitted, inputs, fitting)?;
                let fitted = unfitted.with_features(landmarks.rows()).with_fit(Fit::Nystrom(landmarks));
                fitted.validate()?;
                return Ok(fitted);
            }
            _ => return Ok(self.clone()),
        };
        let fitted = unfitted.with_fit(fit);
        fitted.validate()?;
        Ok(fitted)
    }

    /// Errors if the method looks at rows and nothing was fitted.
    pub(crate) fn check_fitted(&self) -> Result<(), Error> {
        if self.method.looks_at_rows() && self.fit.is_none() {
            let expected = format!("a spec that was fitted to rows (Spec::fit_to), as {} looks at them", self.method);
            return Err(Error::invalid(Argument::Fit, expected, "one that was not"));
        }
        Ok(())
    }
}

/// Checks that rows fit a spec, are finite and not too few.
fn check_rows<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>], fewest: usize, what: &str) -> Result<usize, Error> {
    let rows = crate::rows::check_shapes(spec.inputs.as_slice(), inputs)?;
    if rows < fewest {
        return Err(Error::invalid(Argument::Input(None), format!("at least {fewest} rows {what}"), rows));
    }
    crate::rows::check_finite(inputs)?;
    Ok(rows)
}
