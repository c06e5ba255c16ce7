//! A plan in words. The command line and the Python package show them as they are.

use std::fmt;

use super::{Candidate, Goal, Plan, Reason, Remark, Step, Unmet, Validation};
use crate::spec::Method;
use crate::theory::Source;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sampling => f.write_str("predicting errors"),
            Self::Predicting(method) => write!(f, "predicting the error of {method}"),
            Self::Measuring(method) => write!(f, "measuring the error of {method}"),
            Self::Timing(method) => write!(f, "timing {method}"),
        }
    }
}

/// A predicate, to follow the name of the method.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible(error) => write!(f, "{error}"),
            Self::Memory { bytes, features } => write!(f, "takes {bytes} bytes with {features} features"),
            Self::NotUnitNorm => f.write_str("needs rows of unit norm"),
            Self::Overflow { dtype } => write!(f, "its features overflow {dtype}"),
            Self::TooManyFeatures { most } => write!(f, "needs more than {most} features"),
            Self::TooSlow { seconds } => write!(f, "takes {}", in_words(*seconds)),
            Self::Missed { features } => write!(f, "misses the target with up to {features} features, measured"),
        }
    }
}

/// One or more sentences.
impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale { kernel, degree, squared_norm, by_constant } => {
                let features = if *kernel > 1.0 { "may overflow" } else { "are tiny" };
                let gamma = 1.0 / squared_norm;
                write!(
                    f,
                    "The data need scaling: kernel values are around {kernel:.0e} at degree {degree}, and features {features}. "
                )?;
                if *by_constant {
                    write!(f, "The cause is coef0: set it to about 1, and gamma to {gamma:.3e}.")
                } else {
                    write!(
                        f,
                        "Rows have squared norms around {squared_norm:.3e}: set gamma to {gamma:.3e}, or scale the rows to unit norm."
                    )
                }
            }
            Self::Outliers { share } => write!(
                f,
                "The data need scaling: the largest hundredth of the rows makes up {:.0} % of the kernel matrix, and of the error; a \
                 sample may miss them. Scale the rows to unit norm.",
                100.0 * share
            ),
            Self::Biased(method) => write!(
                f,
                "{method} is biased: with more features its error stays above its bias. It needs rows of unit norm, always."
            ),
            Self::RealWins { real, ctr, opposed_pairs } => write!(
                f,
                "{real} beats {ctr} on these data: products of coordinates have opposite signs (a < 0) in {:.0} % of all pairs.",
                100.0 * opposed_pairs
            ),
            Self::Sparse { stored, columns, sparse: (sparse, fast), dense: (dense, slow) } => write!(
                f,
                "The rows are sparse ({stored:.1} of {columns} numbers on average): {sparse} costs by non-zeros and takes {fast:.1} s \
                 for its features, {dense} {slow:.1} s."
            ),
        }
    }
}

/// A clause that starts with "no method", for error messages.
impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale => f.write_str("no method can be used before the data are scaled"),
            Self::Goal => f.write_str("no method reaches the goal: allow a larger error, more features or more memory"),
            Self::Time { budget, fastest } => {
                write!(f, "no method keeps within {budget} s; the fastest takes {}", in_words(*fastest))
            }
        }
    }
}

/// Remarks, a table of candidates with the rejected methods below, how to read it, and the recommendation.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let notes = self.notes();
        for note in &notes {
            writeln!(f, "Note: {note}")?;
        }
        if !notes.is_empty() {
            writeln!(f)?;
        }
        self.write_table(f)?;
        self.write_legend(f)?;
        if let Some(best) = self.best() {
            let why = match (self.goal, best.validation) {
                (Goal::Time(seconds), Some(_)) => format!("the lowest validation error within {seconds} s"),
                (_, Some(_)) => "the fastest within one standard error of the lowest validation error".to_owned(),
                (Goal::Error(target), None) => format!("the shortest time to an error of {target}"),
                (Goal::Features(features), None) => {
                    format!("the fastest within 5 % of the lowest median error with {features} features")
                }
                (Goal::Time(seconds), None) => format!("the lowest median error within {seconds} s"),
            };
            let spec = &best.spec;
            writeln!(f, "\nRecommended: {} with {} features, {why}.", spec.method, spec.features)?;
        }
        Ok(())
    }
}

impl Candidate {
    /// Whether the root mean square stands in for a median below it, which was not measured. Nyström's landmarks are fitted: one error is all there is.
    fn median_is_bounded(&self) -> bool {
        self.spec.method != Method::Nystrom && !self.error.median_is_measured()
    }
}

impl Plan {
    /// Notes for the user, in sentences: the remarks, and why nothing is recommended.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let unmet = self.recommended.err().map(|unmet| {
            let clause = unmet.to_string();
            let (first, rest) = clause.split_at(1);
            format!("{}{rest}.", first.to_uppercase())
        });
        self.remarks.iter().map(Remark::to_string).chain(unmet).collect()
    }

    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.candidates.iter().map(|candidate| candidate.spec.method);
        let methods = methods.chain(self.rejected.iter().map(|rejected| rejected.method));
        let width = methods.map(|method| method.to_string().len()).max().unwrap_or(0);
        let judged = self.candidates.iter().any(|candidate| candidate.validation.is_some());
        if !self.candidates.is_empty() {
            writeln!(
                f,
                "  {:<width$} {:>8}   {:>6}  {:<18} {:>9}  {:>9} {:>9}   {:>9}{}",
                "method",
                "features",
                "median",
                "predicted error",
                "total",
                "features",
                "fit",
                "memory",
                if judged { "   validation error" } else { "" }
            )?;
        }
        for (place, candidate) in self.candidates.iter().enumerate() {
            let Candidate { spec, error, .. } = candidate;
            let mark = if self.recommended == Ok(place) { '*' } else { ' ' };
            let measured = if error.source == Source::ClosedForm { ' ' } else { 'm' };
            let late = if candidate.in_time { ' ' } else { '!' };
            let below = if candidate.median_is_bounded() { '<' } else { ' ' };
            let validation = candidate.validation.map_or(String::new(), |validation| {
                format!("   {:.4} +- {:.4}", validation.error, 1.96 * validation.standard_error)
            });
            writeln!(
                f,
                "{mark} {:<width$} {:>8}  {below}{:.4}  {:.4} +- {:.4} {measured} {:>9}{late} {:>9} {:>9}   {:>9}{validation}",
                spec.method,
                spec.features,
                error.median,
                error.relative,
                1.96 * error.standard_error,
                in_words(candidate.total_seconds()),
                in_words(candidate.feature_seconds),
                in_words(candidate.fit_seconds),
                bytes(candidate.memory_bytes),
            )?;
        }
        for rejected in &self.rejected {
            writeln!(f, "  {:<width$} {}", rejected.method, rejected.reason)?;
        }
        Ok(())
    }

    fn write_legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows_behind = |closed: bool| {
            let errors = self.candidates.iter().map(|candidate| &candidate.error);
            errors.filter(|error| (error.source == Source::ClosedForm) == closed).map(|error| error.rows).next()
        };
        writeln!(
            f,
            "\nError: relative, of the whole kernel matrix; the median over sketches, and the root mean square with a 95 % interval."
        )?;
        if self.candidates.iter().any(Candidate::median_is_bounded) {
            writeln!(f, "<: the median was not measured, as the sketch is large; it is below the root mean square")?;
        }
        if self.candidates.iter().any(|candidate| candidate.spec.method == Method::Nystrom) {
            writeln!(f, "nystrom: of one set of landmarks, so that both errors are the same")?;
        }
        if let Some(rows) = rows_behind(true) {
            writeln!(f, "From the closed form on {rows} random rows")?;
        }
        if let Some(rows) = rows_behind(false) {
            writeln!(f, "m: no closed form is known, measured on sketches of {rows} random rows")?;
        }
        let late = self.candidates.iter().any(|candidate| !candidate.in_time);
        writeln!(
            f,
            "Time for {} rows on this machine: in total, for the features, and for a least-squares fit on them (D x D sums).{}",
            self.rows,
            if late { " ! over the budget." } else { "" },
        )?;
        if let Some(Validation { training_rows, rows, .. }) = self.candidates.iter().find_map(|of| of.validation) {
            writeln!(
                f,
                "Validation: the best of every kind, fitted to {training_rows} rows and judged on {rows} others, with a 95 % interval.",
            )?;
        }
        Ok(())
    }
}

/// A number of seconds in two or three digits.
fn in_words(seconds: f64) -> String {
    match seconds {
        0.0..0.000_099_5 => format!("{:.1} us", 1e6 * seconds),
        0.0..0.000_995 => format!("{:.0} us", 1e6 * seconds),
        0.0..0.0995 => format!("{:.1} ms", 1e3 * seconds),
        0.0..0.995 => format!("{seconds:.2} s"),
        0.995..99.5 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

/// A number of bytes, human-readable.
fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Rejected, Validation};
    use crate::spec::{Base, Field, Method, Spec};
    use crate::theory::ExpectedError;

    fn plan() -> Plan {
        let candidate = |name: &str, source, in_time| Candidate {
            spec: Spec::polynomial(16).with_features(256).with_method(name.parse().unwrap()),
            error: ExpectedError { relative: 0.0498, standard_error: 1e-4, median: 0.0401, rows: 512, source },
            map_seconds: 0.01,
            feature_seconds: 0.73,
            fit_seconds: 117.4,
            memory_bytes: 68_200,
            in_time,
            validation: None,
            other_aim: None,
        };
        let measured = Source::MonteCarlo { sketches: 96 };
        Plan {
            goal: Goal::Features(256),
            rows: 60_000,
            time_budget: None,
            candidates: vec![
                candidate("ctr-product-srht", Source::ClosedForm, true),
                candidate("chain-ctr-product-srht", measured, false),
            ],
            recommended: Ok(0),
            rejected: vec![Rejected { method: Method::Spherical, reason: Reason::NotUnitNorm }],
            exact_features: Some(136),
            opposed_pairs: 0.0,
            remarks: vec![Remark::Outliers { share: 0.66 }],
        }
    }

    #[test]
    fn a_plan_prints_as_a_table() {
        let expected = "\
Note: The data need scaling: the largest hundredth of the rows makes up 66 % of the kernel matrix, and of the error; a sample may miss them. Scale the rows to unit norm.

  method                 features   median  predicted error        total   features       fit      memory
* ctr-product-srht            256   0.0401  0.0498 +- 0.0002       118 s     0.73 s     117 s     68.2 kB
  chain-ctr-product-srht      256   0.0401  0.0498 +- 0.0002 m     118 s!    0.73 s     117 s     68.2 kB
  srf                    needs rows of unit norm

Error: relative, of the whole kernel matrix; the median over sketches, and the root mean square with a 95 % interval.
From the closed form on 512 random rows
m: no closed form is known, measured on sketches of 512 random rows
Time for 60000 rows on this machine: in total, for the features, and for a least-squares fit on them (D x D sums). ! over the budget.

Recommended: ctr-product-srht with 256 features, the fastest within 5 % of the lowest median error with 256 features.
";
        assert_eq!(plan().to_string(), expected);
    }

    #[test]
    fn validation_errors_are_columns_of_their_own() {
        let mut plan = Plan { goal: Goal::Time(200.0), remarks: vec![], ..plan() };
        plan.candidates[1].validation =
            Some(Validation { error: 0.0312, standard_error: 0.001, training_rows: 4096, rows: 5904 });
        let text = plan.to_string();
        assert!(text.contains("  memory   validation error\n"), "{text}");
        assert!(text.contains("  68.2 kB   0.0312 +- 0.0020\n"), "{text}");
        assert!(text.contains("fitted to 4096 rows and judged on 5904 others"), "{text}");
        assert!(text.contains("the lowest median error within 200 s."), "{text}");
        plan.recommended = Ok(1);
        assert!(plan.to_string().contains("chain-ctr-product-srht with 256 features, the lowest validation error"));
    }

    /// Of sketches that are too large to draw; the landmarks of Nyström's features are what they are.
    #[test]
    fn medians_that_were_not_measured_are_marked() {
        let mut plan = plan();
        plan.candidates.truncate(1);
        plan.candidates[0].error.median = plan.candidates[0].error.relative;
        let text = plan.to_string();
        assert!(text.contains(" <0.0498  0.0498") && text.contains("\n<: the median was not measured, as"), "{text}");
        plan.candidates[0].spec.method = Method::Nystrom;
        let text = plan.to_string();
        assert!(text.contains("  0.0498  0.0498") && text.contains("\nnystrom: of one set of landmarks"), "{text}");
        assert!(!text.contains('<'), "{text}");
    }

    #[test]
    fn a_plan_without_candidates_says_why() {
        let text = Plan { candidates: vec![], recommended: Err(Unmet::Goal), remarks: vec![], ..plan() }.to_string();
        assert!(text.starts_with("Note: No method reaches the goal: allow a larger error,"), "{text}");
        assert!(text.contains("\n  srf needs rows of unit norm\n") && !text.contains("Recommended"), "{text}");
    }

    #[test]
    fn remarks_name_what_to_do() {
        let [real, ctr] = [Field::Real, Field::ComplexToReal].map(|field| Method::flat(Base::Rademacher, field));
        let tensor = Method::flat(Base::TensorSketch, Field::Real);
        let scale = |by_constant| Remark::Scale { kernel: 1e12, degree: 3, squared_norm: 1e4, by_constant };
        for (remark, words) in [
            (scale(false), "squared norms around 1.000e4: set gamma to 1.000e-4, or scale the rows to unit norm."),
            (scale(true), "The cause is coef0: set it to about 1, and gamma to 1.000e-4."),
            (Remark::Outliers { share: 0.66 }, "largest hundredth of the rows makes up 66 % of"),
            (Remark::RealWins { real, ctr, opposed_pairs: 0.25 }, "rademacher beats ctr-rademacher on"),
            (
                Remark::Sparse { stored: 10.0, columns: 50_000, sparse: (tensor, 1.25), dense: (ctr, 20.0) },
                "(10.0 of 50000 numbers on average): tensor-sketch costs by non-zeros and takes 1.2 s for its features, ctr-rademacher 20.0 s.",
            ),
        ] {
            assert!(remark.to_string().contains(words), "{remark}");
        }
        let late = Unmet::Time { budget: 2.0, fastest: 3.0 };
        assert_eq!(late.to_string(), "no method keeps within 2 s; the fastest takes 3.0 s");
    }

    #[test]
    fn times_and_sizes_are_short() {
        let times = [0.000_002, 0.000_12, 0.001, 0.004, 0.994, 0.996, 99.4, 99.6].map(in_words);
        assert_eq!(times, ["2.0 us", "120 us", "1.0 ms", "4.0 ms", "0.99 s", "1.0 s", "99.4 s", "100 s"]);
        assert_eq!([999, 1000, 2_500_000, 3 << 30].map(bytes), ["999 bytes", "1.0 kB", "2.5 MB", "3.2 GB"]);
    }
}
