//! How the powers of ⟨x, y⟩ share the features of a `maclaurin-` sketch.

use serde::{Deserialize, Serialize};

use super::{Fitting, check_rows, learning};
use crate::error::{Argument, Error};
use crate::rng::{Purpose, Stream};
use crate::rows::{Input, OwnedRows};
use crate::scalar::Scalar;
use crate::spec::{Field, InputDims, Kernel, Method, Polynomial, ProductMethod, Shape, Spec};
use crate::theory::variance::{Formula, PairStatistics};
use crate::theory::{RowSums, Sample, choose_rows, mean};

/// What the shares of the powers are best for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Aim {
    /// The kernel matrix: its expected squared error is least.
    #[default]
    Kernel,
    /// Models: the expected squared change of a ridge model's predictions is least. High powers have little weight in the kernel matrix but may be
    /// what tells rows apart.
    Learning,
}

impl Aim {
    const ALL: [(&'static str, Self); 2] = [("kernel", Self::Kernel), ("learning", Self::Learning)];

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_kernel(&self) -> bool {
        *self == Self::Kernel
    }
}

impl std::str::FromStr for Aim {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|(listed, _)| *listed == name);
        found
            .map(|(_, aim)| *aim)
            .ok_or_else(|| Error::invalid(Argument::Aim, "kernel or learning", format!("\"{name}\"")))
    }
}

/// The features of one power of ⟨x, y⟩.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// The power n.
    pub degree: usize,
    /// The features of its sketch.
    pub features: usize,
}

/// How a `maclaurin-` sketch spends its features: on the constant (one, if a₀ > 0), on the rows themselves (d, if `linear`), and on a sketch of
/// aₙ⟨x, y⟩ⁿ for each of the `terms`. Features left over are zeros: there are none unless the kernel needs no more.
///
/// # Formula
/// With the coefficients aₙ of [`Kernel::coefficient`], g(x) = exp(−‖x − c‖²/(2ℓ²)) for a Gaussian kernel (1 for others) and sketches Φₙ of ⟨x, y⟩ⁿ,
///
/// φ(x) = g(x) · (√a₀, √a₁(x − c), √aₙ Φₙ(x − c), …).
///
/// The centre c is the mean of the rows for a Gaussian kernel, which does not change when all rows are shifted, while their norms, and
/// with them the powers that matter, shrink. It is 0 for all other kernels, and for sparse rows, which it would fill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Allocation {
    /// What it is best for.
    #[serde(default, skip_serializing_if = "Aim::is_kernel")]
    pub aim: Aim,
    /// Whether the linear term is exact.
    pub linear: bool,
    /// The sketched powers, ascending.
    pub terms: Vec<Term>,
    /// The centre c, one number per column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub centre: Option<Vec<f64>>,
}

/// Columns of one part of the features.
pub(crate) struct Layout {
    /// Whether the constant has a column, the first one.
    pub(crate) constant: bool,
    /// The first column of the linear term, if it is exact.
    pub(crate) linear: Option<usize>,
    /// The first column of every term.
    pub(crate) terms: Vec<usize>,
    /// The number of columns that are not zero for every row.
    pub(crate) used: usize,
}

impl Allocation {
    /// Where each part of the features lies; `None` on overflow.
    pub(crate) fn layout(&self, spec: &Spec) -> Option<Layout> {
        let constant = spec.kernel.coefficient(0) > 0.0;
        let mut used = usize::from(constant);
        let linear = self.linear.then_some(used);
        if self.linear {
            used = used.checked_add(spec.inputs.as_slice()[0])?;
        }
        let mut terms = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            terms.push(used);
            used = used.checked_add(term.features)?;
        }
        Some(Layout { constant, linear, terms, used })
    }

    /// Every term as a sketch of its own: a plain spec of aₙ⟨x, y⟩ⁿ whose seed is drawn from that of the sum.
    pub(crate) fn term_specs<'a>(&'a self, spec: &'a Spec, product: ProductMethod) -> impl Iterator<Item = Spec> + 'a {
        self.terms.iter().map(move |&term| term_spec(spec, product, term))
    }

    /// Checks that it belongs to a spec.
    pub(crate) fn validate(&self, spec: &Spec, product: ProductMethod) -> Result<(), Error> {
        let wrong = |expected: &str, received: String| Err(Error::invalid(Argument::Maclaurin, expected, received));
        let least = if self.linear { 2 } else { 1 };
        let mut before = least - 1;
        for &Term { degree, features } in &self.terms {
            if degree <= before || degree > Kernel::MOST_DEGREES {
                return wrong("ascending powers, each once and at most 64", format!("{degree} after {before}"));
            }
            before = degree;
            if features == 0 || features % unit(product) != 0 {
                return wrong(
                    "features that are not 0, and even for ctr-",
                    format!("{features} for the power {degree}"),
                );
            }
            let root = spec.kernel.coefficient_root(degree);
            if !(root > 0.0 && root.is_finite()) {
                return wrong("powers whose coefficient is positive and finite", degree.to_string());
            }
        }
        match self.layout(spec) {
            Some(layout) if layout.used <= spec.features => {}
            _ => return wrong("no more than the features of the spec", "more".to_owned()),
        }
        if let Some(centre) = &self.centre {
            if spec.kernel.radial().is_none() {
                return wrong("a centre only for a gaussian kernel", spec.kernel.name().to_owned());
            }
            let dim = spec.inputs.as_slice()[0];
            if centre.len() != dim || centre.iter().any(|value| !value.is_finite()) {
                return wrong("a centre with a finite number per column", format!("{} numbers", centre.len()));
            }
        }
        Ok(())
    }

    /// Shares the features of a spec such that the expected squared error of the kernel matrix of a sample of rows is least, or what it costs a model.
    ///
    /// # Formula
    /// With D features left after the exact terms, D_n of them for the power n and V_n = C_n/D_n the summed variances of its sketch (by
    /// closed form; C_n hardly depends on D_n), the expected squared error is Σ C_n/D_n + T_N, where T_N sums the squares of what the powers
    /// above N would add. For given N it is least for D_n ∝ √C_n, at (Σ√C_n)²/D + T_N; the best N follows by comparison. Sketches without a
    /// closed form are shared as flat ones of the same base. For [`Aim::Learning`], C_n and T_N are those of `learning.rs`.
    pub(super) fn fit<T: Scalar>(
        spec: &Spec,
        product: ProductMethod,
        inputs: &[Input<'_, T>],
        &Fitting { rows, aim, .. }: &Fitting,
    ) -> Result<Self, Error> {
        let total = check_rows(spec, inputs, 2, "to share features among the powers of the kernel")?;
        if rows < 2 {
            return Err(Error::invalid(Argument::Rows, "at least 2", rows));
        }
        let centre = spec.kernel.radial().and_then(|_| mean(&inputs[0]));
        let chosen = OwnedRows::take(&inputs[0], &choose_rows(total, rows, spec.seed));
        let (kernel, scale) = spec.kernel.in_length_scales();
        let spec = &spec.clone().with_kernel(kernel);
        let sample = Sample::centred(spec, &[chosen.view()], centre.as_deref(), scale);
        let sums = Sums { spec, product, aim, sample, population: total, most: 0 };
        let most = sums.most_degrees()?;
        let allocation = Sums { most, ..sums }.share()?;
        Ok(Self { centre, ..allocation })
    }
}

/// Features come in pairs for Complex-to-Real sketches.
fn unit(product: ProductMethod) -> usize {
    if product.field == Field::ComplexToReal { 2 } else { 1 }
}

/// The plain sketch of aₙ⟨x, y⟩ⁿ = ⟨γ^½ x, γ^½ y⟩ⁿ with γ = aₙ^{1/n}.
fn term_spec(spec: &Spec, product: ProductMethod, Term { degree, features }: Term) -> Spec {
    let gamma = spec.kernel.coefficient_root(degree);
    let seed =
        Stream::of_version(spec.stream_version, spec.seed, Purpose::Terms, crate::draw::narrow(degree), 0).bits();
    Spec { stream_version: spec.stream_version, ..Spec::new(InputDims::Same(spec.inputs.as_slice()[0])) }
        .with_kernel(Polynomial { degree, gamma, coef0: 0.0 })
        .with_features(features)
        .with_method(Method::Product(product))
        .with_seed(seed)
}

/// The statistics of a term's vectors √γ x from those of x.
#[inline(always)]
pub(crate) fn scaled(pair: &PairStatistics, gamma: f64) -> PairStatistics {
    let square = gamma * gamma;
    PairStatistics {
        inner: gamma * pair.inner,
        squares: square * pair.squares,
        norms: square * pair.norms,
        norm_sum: gamma * pair.norm_sum,
    }
}

/// (g(x) g(y))², the factor of all variances.
#[inline(always)]
pub(crate) fn radial_square(kernel: &Kernel, pair: &PairStatistics) -> f64 {
    kernel.radial().map_or(1.0, |scale| libm::exp(-pair.norm_sum / (scale * scale)))
}

/// Sums over the pairs of a sample that decide how features are shared. Rows are in units of the length scale, if there is one.
struct Sums<'a> {
    spec: &'a Spec,
    product: ProductMethod,
    aim: Aim,
    sample: Sample,
    population: usize,
    /// The highest power considered.
    most: usize,
}

impl Sums<'_> {
    /// The highest power that matters for these rows: the ones above add less than 10⁻⁸ to k(x, x).
    ///
    /// # Errors
    /// If a hundredth of k(x, x) is above the power 64.
    fn most_degrees(&self) -> Result<usize, Error> {
        let kernel = &self.spec.kernel;
        let (mut explained, mut all) = (vec![0.0; Kernel::MOST_DEGREES + 1], 0.0);
        for norm in self.sample.squared_norms() {
            let value = kernel.value(norm, 2.0 * norm);
            let radial = kernel.radial().map_or(1.0, |scale| libm::exp(-norm / (scale * scale)));
            let mut sum = 0.0;
            for (degree, explained) in explained.iter_mut().enumerate() {
                let coefficient = kernel.coefficient(degree);
                if coefficient > 0.0 {
                    sum += coefficient * libm::pow(norm, degree as f64) * radial;
                }
                *explained += sum;
            }
            all += value;
        }
        if !all.is_finite() {
            let expected = "rows whose kernel fits into f64: scale them to unit norm, or use a larger length_scale";
            return Err(Error::invalid(Argument::Input(None), expected, "an infinite one"));
        }
        // Coefficients may be infinite where rows are far too long.
        let missing =
            |degree: usize| Some(1.0 - explained[degree] / all).filter(|missing| !missing.is_nan()).unwrap_or(1.0);
        if missing(Kernel::MOST_DEGREES) > 0.01 {
            let expected = "rows on which the power series of the kernel needs at most 64 terms: use a larger length_scale, scale the rows, \
                            or use another method (orf for a gaussian kernel, nystrom for any)";
            let received = format!("{:.0} % of k(x, x) beyond that", 100.0 * missing(Kernel::MOST_DEGREES));
            return Err(Error::invalid(Argument::Input(None), expected, received));
        }
        Ok((0..Kernel::MOST_DEGREES).find(|&degree| missing(degree) < 1e-8).unwrap_or(Kernel::MOST_DEGREES))
    }

    /// The powers with a coefficient, from `first` to the highest considered.
    fn degrees(&self, first: usize) -> Vec<usize> {
        (first..=self.most).filter(|&degree| self.spec.kernel.coefficient(degree) > 0.0).collect()
    }

    /// Sums over all pairs of the population: of the variance of each term's sketch, in the order of `terms`, and of the square of what the powers
    /// above N add, for N = 0, …, `most`.
    fn over_pairs(&self, terms: &[Term]) -> Result<[Vec<f64>; 2], Error> {
        let kernel = &self.spec.kernel;
        // Shapes without a closed form are shared like flat sketches.
        let flat = ProductMethod { shape: Shape::Flat, ..self.product };
        let mut formulas = Vec::with_capacity(terms.len());
        for &term in terms {
            let spec = term_spec(self.spec, flat, term);
            let formula = Formula::of(&spec)?.unwrap_or_else(|| unreachable!("flat sketches have a closed form"));
            formulas.push((formula, spec.factors().gamma));
        }
        let coefficients: Vec<f64> = (0..=self.most).map(|degree| kernel.coefficient(degree)).collect();
        let sums = self.sample.row_sums(
            formulas.len() + coefficients.len(),
            true,
            |_, _| (),
            |(), _, factors, values| {
                let pair = &factors[0];
                let square = radial_square(kernel, pair);
                for (value, (formula, gamma)) in values.iter_mut().zip(&formulas) {
                    *value = square * formula.moments(&[scaled(pair, *gamma)]).variance;
                }
                let (mut left, mut power) = (kernel.value(pair.inner, pair.norm_sum), square.sqrt());
                for (value, coefficient) in values[formulas.len()..].iter_mut().zip(&coefficients) {
                    left -= coefficient * power;
                    *value = left * left;
                    power *= pair.inner;
                }
            },
        );
        let totals: Vec<f64> = sums.iter().map(|sums: &RowSums| sums.total(None, self.population)).collect();
        if totals.iter().any(|total| !total.is_finite()) {
            let expected = "rows whose kernel and its square fit into f64: scale them to unit norm";
            return Err(Error::invalid(Argument::Input(None), expected, "larger ones"));
        }
        let (variances, tails) = totals.split_at(formulas.len());
        Ok([variances.to_vec(), tails.to_vec()])
    }

    /// The constants C_n of some terms, and T_N for N = 0, …, `most`.
    fn costs(&self, terms: &[Term]) -> Result<[Vec<f64>; 2], Error> {
        match self.aim {
            Aim::Kernel => {
                let [variances, tails] = self.over_pairs(terms)?;
                let constants = variances.iter().zip(terms).map(|(variance, term)| variance * term.features as f64);
                Ok([constants.collect(), tails])
            }
            Aim::Learning => {
                let Some([costs, tails]) = learning::costs(&self.spec.kernel, &self.sample, self.most) else {
                    let expected = "rows whose kernel matrix can be inverted in f64: scale them to unit norm";
                    return Err(Error::invalid(Argument::Input(None), expected, "others"));
                };
                Ok([terms.iter().map(|term| costs[term.degree]).collect(), tails])
            }
        }
    }

    /// The best shares, with the linear term exact or sketched.
    fn share(&self) -> Result<Allocation, Error> {
        let Self { spec, .. } = self;
        let constant = usize::from(spec.kernel.coefficient(0) > 0.0);
        let dim = spec.inputs.as_slice()[0];
        let has_linear = spec.kernel.coefficient(1) > 0.0;
        let mut best: Option<(f64, Allocation)> = None;
        for linear in [true, false] {
            let exact = constant + if linear && has_linear { dim } else { 0 };
            // To sketch what could be exact is worth a comparison only where it takes many features.
            let needless = !linear && has_linear && 2 * (constant + dim) <= spec.features;
            if exact > spec.features || (linear && !has_linear) || needless {
                continue;
            }
            let (error, terms) = self.share_among(if linear { 2 } else { 1 }, spec.features - exact)?;
            if best.as_ref().is_none_or(|(least, _)| error < *least) {
                best = Some((error, Allocation { aim: self.aim, linear, terms, centre: None }));
            }
        }
        match best {
            Some((_, allocation)) if constant > 0 || allocation.linear || !allocation.terms.is_empty() => {
                Ok(allocation)
            }
            _ => {
                let expected = format!("at least {} for {}", unit(self.product) + constant, spec.method);
                Err(Error::invalid(Argument::Features, expected, spec.features))
            }
        }
    }

    /// The best shares of `features` among the powers from `first` on, and the expected squared error.
    fn share_among(&self, first: usize, features: usize) -> Result<(f64, Vec<Term>), Error> {
        let unit = unit(self.product);
        let degrees = self.degrees(first);
        let share = features / unit;
        // Without a part that is exact, a sketch of nothing has no features at all.
        let fewest = usize::from(features == self.spec.features);
        // Constants C_n are taken where the sketches will be: first at equal shares, then at the shares that follow.
        let equal = (share / degrees.len().max(1)).clamp(1, 1 << 20);
        let dim = self.spec.inputs.as_slice()[0];
        let at = |degree: usize, units: usize| {
            // A sketch of ⟨x, y⟩ with more than d features may be exact, which says nothing about fewer.
            let most = if degree == 1 { (dim / unit).max(1) } else { usize::MAX };
            Term { degree, features: unit * units.clamp(1, most) }
        };
        let mut terms: Vec<Term> = degrees.iter().map(|&degree| at(degree, equal)).collect();
        let mut found = (f64::INFINITY, Vec::new());
        for _ in 0..2 {
            let [constants, tails] = self.costs(&terms)?;
            let mut least = (f64::INFINITY, 0);
            let mut roots = 0.0;
            for count in fewest..=degrees.len().min(share) {
                if count > 0 {
                    roots += constants[count - 1].sqrt();
                }
                // Powers between two with a coefficient add nothing.
                let highest = degrees.get(count).map_or(self.most, |next| next - 1);
                let error = roots * roots / (features.max(1) as f64) + tails[highest];
                if error < least.0 {
                    least = (error, count);
                }
            }
            let (error, count) = least;
            let units = apportion(&constants[..count].iter().map(|c| c.sqrt()).collect::<Vec<_>>(), share);
            let shared: Vec<Term> =
                degrees.iter().zip(&units).map(|(&degree, &units)| Term { degree, features: unit * units }).collect();
            found = (error, shared);
            terms = degrees
                .iter()
                .enumerate()
                .map(|(n, &degree)| at(degree, units.get(n).copied().unwrap_or(equal)))
                .collect();
            if self.aim == Aim::Learning {
                // Its constants do not depend on shares.
                break;
            }
        }
        Ok(found)
    }
}

/// Whole units in proportion to weights, at least one each: floors first, then the largest remainders.
fn apportion(weights: &[f64], units: usize) -> Vec<usize> {
    let total: f64 = weights.iter().sum();
    if weights.is_empty() {
        return Vec::new();
    }
    let spare = units - weights.len();
    let shares: Vec<f64> = weights
        .iter()
        .map(|weight| if total > 0.0 { spare as f64 * weight / total } else { spare as f64 / weights.len() as f64 })
        .collect();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a number of units")]
    let mut given: Vec<usize> = shares.iter().map(|share| share.floor() as usize).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| shares[b].fract().total_cmp(&shares[a].fract()));
    // Fewer than there are weights.
    let left = spare.saturating_sub(given.iter().sum());
    for &index in order.iter().cycle().take(left) {
        given[index] += 1;
    }
    given.iter().map(|given| given + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Fit;
    use crate::rows::Rows;

    #[test]
    fn units_are_shared_in_proportion() {
        assert_eq!(apportion(&[], 5), [0_usize; 0]);
        assert_eq!(apportion(&[1.0, 1.0], 2), [1, 1]);
        assert_eq!(apportion(&[3.0, 1.0], 10), [7, 3]);
        assert_eq!(apportion(&[1.0, 0.0, 0.0], 10), [8, 1, 1]);
        assert_eq!(apportion(&[0.0, 0.0], 7).iter().sum::<usize>(), 7);
        assert_eq!(apportion(&[0.3, 0.5, 0.1], 1000).iter().sum::<usize>(), 1000);
    }

    fn data(rows: usize, dim: usize, scale: f64) -> Vec<f64> {
        let mut stream = Stream::new(3, Purpose::Sample, 1, 1);
        (0..rows * dim).map(|_| scale * (stream.uniform() - 0.3)).collect()
    }

    fn fitted(spec: &Spec, x: &[f64]) -> Result<Allocation, Error> {
        let dim = spec.inputs.as_slice()[0];
        let fitted = spec.fit_to(&[Rows::new(x, x.len() / dim, dim).unwrap().into()], &Fitting::default())?;
        let Some(Fit::Maclaurin(allocation)) = fitted.fit else { panic!("{fitted:?}") };
        Ok(allocation)
    }

    fn spec(dim: usize, kernel: impl Into<Kernel>, features: usize) -> Spec {
        Spec::polynomial(dim)
            .with_method("maclaurin-ctr-gaussian".parse().unwrap())
            .with_kernel(kernel)
            .with_features(features)
    }

    /// Independent rows of W, where V_n = C_n/D_n exactly: moving features from any power to any other, or dropping the highest, is worse.
    #[test]
    fn no_other_shares_are_better() {
        let x = data(60, 6, 0.8);
        let inputs = [Rows::new(&x, 60, 6).unwrap().into()];
        let spec = spec(6, Kernel::Exponential { length_scale: 1.0 }, 400);
        let error = |allocation: &Allocation| {
            let spec = spec.clone().with_fit(Fit::Maclaurin(allocation.clone()));
            crate::theory::expected_error(&spec, &inputs, &crate::theory::Sampling::default()).unwrap().relative
        };
        let best = fitted(&spec, &x).unwrap();
        assert!(best.linear && best.terms.len() > 1 && best.centre.is_none(), "{best:?}");
        assert_eq!(best.layout(&spec).unwrap().used, 399, "one is left over, as terms have pairs");
        let least = error(&best);
        for from in 0..best.terms.len() {
            for to in (0..best.terms.len()).filter(|&to| to != from) {
                let mut other = best.clone();
                if other.terms[from].features < 20 {
                    continue;
                }
                other.terms[from].features -= 16;
                other.terms[to].features += 16;
                assert!(error(&other) > least, "{other:?}");
            }
        }
        let mut fewer = best.clone();
        let dropped = fewer.terms.pop().unwrap();
        fewer.terms[0].features += dropped.features;
        assert!(error(&fewer) > least);
    }

    #[test]
    fn gaussian_rows_are_centred_and_sparse_ones_are_not() {
        let x: Vec<f64> = data(50, 3, 1.0).iter().map(|x| x + 100.0).collect();
        let spec = spec(3, Kernel::Gaussian { length_scale: 1.0 }, 64);
        let centre = fitted(&spec, &x).unwrap().centre.unwrap();
        assert!(centre.iter().all(|c| (c - 100.2).abs() < 0.1), "{centre:?}");
        // Without centring, the same rows would need thousands of terms.
        let starts: Vec<u64> = (0..=50).map(|row| 3 * row).collect();
        let columns: Vec<u64> = (0..150).map(|i| i % 3).collect();
        let sparse = OwnedRows::sparse(starts, columns, x.clone(), 3).unwrap();
        let message = spec.fit_to(&[sparse.view()], &Fitting::default()).unwrap_err().to_string();
        assert!(message.contains("length_scale") && message.contains("nystrom"), "{message}");
    }

    /// Rows in few dimensions, on a wide kernel: what little the high powers add to the kernel matrix is what models need them for.
    #[test]
    fn learning_wants_higher_powers() {
        let x = data(200, 6, 1.0);
        let inputs = [Rows::new(&x, 200, 6).unwrap().into()];
        let spec = spec(6, Kernel::Gaussian { length_scale: 1.5 }, 256);
        let of = |aim: Aim| match spec.fit_to(&inputs, &Fitting::default().with_aim(aim)).unwrap().fit {
            Some(Fit::Maclaurin(allocation)) => allocation,
            other => panic!("{other:?}"),
        };
        let (kernel, learning) = (of(Aim::Kernel), of(Aim::Learning));
        assert!(learning.aim == Aim::Learning && learning.linear && learning.centre == kernel.centre);
        let above = |allocation: &Allocation, degree: usize| -> usize {
            allocation.terms.iter().filter(|term| term.degree > degree).map(|term| term.features).sum()
        };
        assert!(above(&learning, 2) > 2 * above(&kernel, 2), "{kernel:?} {learning:?}");
        let fitted = spec.clone().with_fit(Fit::Maclaurin(learning.clone()));
        assert_eq!(Spec::from_json(&fitted.to_json()).unwrap(), fitted);
        assert!(
            fitted.to_json().contains("learning") && !spec.with_fit(Fit::Maclaurin(kernel)).to_json().contains("aim")
        );
        assert!("error".parse::<Aim>().unwrap_err().to_string().starts_with("aim: expected kernel or learning"));
    }

    /// A kernel without powers above 1 is exact, and what is left over are zeros.
    #[test]
    fn short_series_are_exact() {
        let x = data(20, 3, 1.0);
        let allocation = fitted(&spec(3, Polynomial { degree: 1, gamma: 2.0, coef0: 0.5 }, 64), &x).unwrap();
        assert_eq!(allocation, Allocation { aim: Aim::Kernel, linear: true, terms: vec![], centre: None });
        // The homogeneous kernel has one power: the plain sketch.
        let allocation = fitted(&spec(3, Polynomial { degree: 3, gamma: 2.0, coef0: 0.0 }, 64), &x).unwrap();
        assert_eq!(allocation.terms, [Term { degree: 3, features: 64 }]);
        // So few that a sketch is worse than none, which would have no features: it is what was asked for all the same.
        let mut x = data(300, 100, 1.0);
        for row in x.chunks_mut(100) {
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter_mut().for_each(|x| *x /= norm);
        }
        let few = spec(100, Polynomial { degree: 3, gamma: 1.0, coef0: 0.0 }, 20);
        for method in ["maclaurin-ctr-product-srht", "maclaurin-gaussian"] {
            let allocation = fitted(&few.clone().with_method(method.parse().unwrap()), &x).unwrap();
            assert_eq!(allocation.terms, [Term { degree: 3, features: 20 }], "{method}");
        }
        // Fewer features than columns: the linear term is sketched, too.
        let x = data(20, 40, 0.2);
        let allocation = fitted(&spec(40, Kernel::Exponential { length_scale: 1.0 }, 21), &x).unwrap();
        assert!(!allocation.linear && allocation.terms[0].degree == 1, "{allocation:?}");
    }

    #[test]
    fn allocations_of_other_specs_are_errors() {
        let x = data(20, 3, 1.0);
        let good = spec(3, Kernel::Gaussian { length_scale: 1.0 }, 64);
        let allocation = fitted(&good, &x).unwrap();
        let message = |change: &dyn Fn(&mut Spec, &mut Allocation)| {
            let (mut spec, mut allocation) = (good.clone(), allocation.clone());
            change(&mut spec, &mut allocation);
            spec.with_fit(Fit::Maclaurin(allocation)).validate().unwrap_err().to_string()
        };
        for named in [
            message(&|spec, _| spec.features = 32),
            message(&|_, allocation| allocation.terms[0].features = 3),
            message(&|_, allocation| allocation.terms[0].degree = 1),
            message(&|_, allocation| allocation.terms[0].degree = 99),
            message(&|_, allocation| allocation.terms[0].features = usize::MAX - 1),
            message(&|_, allocation| allocation.centre = Some(vec![0.0])),
            message(&|spec, _| spec.kernel = Kernel::Exponential { length_scale: 1.0 }),
        ] {
            assert!(named.starts_with("maclaurin: "), "{named}");
        }
        let named = message(&|spec, _| spec.method = Method::Nystrom);
        assert!(named.starts_with("fit: "), "{named}");
        assert!(good.draw().unwrap_err().to_string().starts_with("fit: expected a spec that was fitted"));
        let few = good.fit_to(&[Rows::new(&x[..3], 1, 3).unwrap().into()], &Fitting::default());
        assert!(few.unwrap_err().to_string().contains("at least 2 rows"));
        let tiny = spec(3, Polynomial { degree: 3, gamma: 2.0, coef0: 0.0 }, 1);
        assert!(fitted(&tiny, &x).unwrap_err().to_string().starts_with("features: expected at least 2"));
    }
}
