//! The variance of a kernel estimate: Table 1 of the paper, and what it leaves out.

use crate::error::{Argument, Error};
use crate::fit::{Allocation, Fit, radial_square, scaled};
use crate::projection::Kind;
use crate::spec::{Base, Field, Frequencies, InputDims, Kernel, Method, ProductMethod, Shape, Spec};

/// Everything the variance of a kernel estimate depends on, for one factor of one pair x, y.
///
/// # Formula
/// ⟨x̃, ỹ⟩, Σ x̃ₖ²ỹₖ², ‖x̃‖²‖ỹ‖² and ‖x̃‖² + ‖ỹ‖², where x̃ = (√γ x, √ν) for a polynomial kernel and x̃ = x for all others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairStatistics {
    /// ⟨x̃, ỹ⟩
    pub inner: f64,
    /// q = Σ x̃ₖ²ỹₖ²
    pub squares: f64,
    /// N = ‖x̃‖²‖ỹ‖²
    pub norms: f64,
    /// ‖x̃‖² + ‖ỹ‖²
    pub norm_sum: f64,
}

impl PairStatistics {
    /// From the two rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they differ in length.
    pub fn new(kernel: &Kernel, x: &[f64], y: &[f64]) -> Result<Self, Error> {
        if x.len() != y.len() {
            return Err(Error::invalid(Argument::Y, format!("{} numbers, as x", x.len()), y.len()));
        }
        let sum = |term: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(&x, &y)| term(x, y)).sum::<f64>();
        let norms = [sum(&|x, _| x * x), sum(&|_, y| y * y)];
        Ok(Self::from_sums(kernel.lift(), sum(&|x, y| x * y), sum(&|x, y| x * x * y * y), norms))
    }

    /// From ⟨x, y⟩, Σ xₖ²yₖ² and [‖x‖², ‖y‖²], before γ and ν are applied.
    #[inline(always)]
    pub(crate) fn from_sums([gamma, coef0]: [f64; 2], inner: f64, squares: f64, norms: [f64; 2]) -> Self {
        Self {
            inner: gamma * inner + coef0,
            squares: gamma * gamma * squares + coef0 * coef0,
            norms: (gamma * norms[0] + coef0) * (gamma * norms[1] + coef0),
            norm_sum: gamma * (norms[0] + norms[1]) + 2.0 * coef0,
        }
    }

    /// The statistics of x and y from those of x̃ and ỹ.
    #[inline(always)]
    fn unlifted(&self, [gamma, coef0]: [f64; 2]) -> Self {
        let square = gamma * gamma;
        Self {
            inner: (self.inner - coef0) / gamma,
            squares: (self.squares - coef0 * coef0) / square,
            norms: (self.norms - coef0 * (self.norm_sum - coef0)) / square,
            norm_sum: (self.norm_sum - 2.0 * coef0) / gamma,
        }
    }

    /// a = Σ_{k≠l} x̃ₖx̃ₗỹₖỹₗ = ⟨x̃, ỹ⟩² − Σ x̃ₖ²ỹₖ²: where it is negative, real Rademacher sketches have a lower variance
    /// than Complex-to-Real ones.
    ///
    /// # Reference
    /// Theorem 3.4. It is never negative for rows without negative numbers, nor for parallel rows.
    #[must_use]
    #[inline(always)]
    pub fn cross_terms(&self) -> f64 {
        self.inner * self.inner - self.squares
    }
}

/// First and second moments of a kernel estimate k̂.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// k = E k̂
    pub mean: f64,
    /// E|k̂ − k|², where k̂ is the real inner product of features or, for `complex-` methods, the Hermitian one.
    pub variance: f64,
    /// E(k̂ − k)²: less than the variance for `complex-` methods, equal to it for others. May be negative.
    pub pseudo_variance: f64,
}

/// The closed form of a spec's variance, ready to be applied to many pairs.
///
/// # Formula
/// Per factor let a = ⟨x̃, ỹ⟩² and, with q and N as in [`PairStatistics`], M = E|uv̄|² and M' = E(uv̄)² for the
/// projections u, v of x̃, ỹ by one row of W; C and C' the same for two different rows of W. With products over the
/// factors,
///
/// E|k̂|² = ΠM/m + (1 − 1/m) ΠC and E k̂² = ΠM'/m + (1 − 1/m) ΠC',
///
/// both less k² = Πa for variance and pseudo-variance. Gaussian: M = N + ra, M' = 2a if complex; Rademacher and SRHT:
/// M = N + r(a − q), M' = 2a − q; r is 2 for real and 1 for complex weights, and M' = M if real. C = a, except for
/// ProductSRHT: C = a − (M − a)/(⌈m/n⌉n − 1) with n the padded dimension. A Complex-to-Real sketch of D features has
/// m = D/2 and half the sum of variance and pseudo-variance. For TensorSketch with b = N − q, c = a − q,
///
/// V = \[Π(a + b) + Π(a + c) − 2Πa\]/m + κ\[Π(a + b + c) − Π(a + b) − Π(a + c) + Πa\]/m², κ = 2 for even m, else 1,
///
/// if real; if complex \[Π(a + b) − Πa\]/m and \[Π(a + c) − Πa\]/m. Hierarchical Gaussian sketches have a recursion,
/// derived in `docs/math.md` with all of the above.
///
/// # Reference
/// Eq. 7 and Table 1 of the paper; TensorSketch and hierarchical sketches are derived in `docs/math.md`, section 8.
///
/// # Cost
/// A few operations per factor; a power in place of the product when all factors are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    form: Form,
}

/// The closed forms.
#[derive(Debug, Clone, PartialEq)]
enum Form {
    Product(ProductFormula),
    /// Independent sketches of the terms, with γ = aₙ^{1/n} each: variances add up. Powers above the last term are missing.
    Sum {
        kernel: Kernel,
        lift: [f64; 2],
        exact: Vec<f64>,
        terms: Vec<(ProductFormula, f64)>,
    },
    /// Independent frequencies, m of them: each has the variance (1 − k²)²/2.
    Fourier {
        kernel: Kernel,
        outputs: usize,
    },
    /// No error at all.
    Exact {
        degree: usize,
    },
}

impl Formula {
    /// The closed form for a spec, if one is known: for flat sketches, for trees and chains of degree 1 and 2 (which are flat), for hierarchical
    /// Gaussian ones, and for fitted sums of such terms; for `rff` and `exact`; not for CRAFT maps, spherical and orthogonal features, and Nyström's.
    ///
    /// # Errors
    /// As [`Spec::validate`].
    pub fn of(spec: &Spec) -> Result<Option<Self>, Error> {
        spec.validate()?;
        let form = match (spec.method, &spec.fit) {
            (Method::Product(method), _) => ProductFormula::of(spec, method).map(Form::Product),
            (Method::Maclaurin(product), Some(Fit::Maclaurin(allocation))) => {
                let exact =
                    (0..=usize::from(allocation.linear)).map(|degree| spec.kernel.coefficient(degree)).collect();
                let term = |term: Spec| Some((ProductFormula::of(&term, product)?, term.factors().gamma));
                let terms: Option<Vec<_>> = allocation.term_specs(spec, product).map(term).collect();
                // A kernel that is constant has no statistics of x.
                terms.filter(|_| spec.kernel.lift()[0] > 0.0).map(|terms| Form::Sum {
                    kernel: spec.kernel.clone(),
                    lift: spec.kernel.lift(),
                    exact,
                    terms,
                })
            }
            (Method::Fourier(Frequencies::Independent), _) => {
                Some(Form::Fourier { kernel: spec.kernel.clone(), outputs: spec.outputs() })
            }
            (Method::Exact, _) => Some(Form::Exact { degree: spec.factors().degree }),
            _ => None,
        };
        Ok(form.map(|form| Self { form }))
    }

    /// Whether the mean is not the kernel: a sum leaves out its highest powers.
    pub(crate) fn is_biased(&self) -> bool {
        matches!(self.form, Form::Sum { .. })
    }

    /// The moments for one pair: one entry per table, so a single one if every factor reads the same rows. The rows of a sum with a centre are
    /// those around it.
    #[must_use]
    pub fn moments(&self, factors: &[PairStatistics]) -> Moments {
        match &self.form {
            Form::Product(product) => product.moments(factors),
            Form::Sum { kernel, lift, exact, terms } => {
                let pair = factors[0].unlifted(*lift);
                let square = radial_square(kernel, &pair);
                let powers =
                    exact.iter().enumerate().map(|(degree, coefficient)| coefficient * power(pair.inner, degree));
                let (mut mean, mut variance) = (powers.sum::<f64>(), 0.0);
                for (formula, gamma) in terms {
                    let moments = formula.moments(&[scaled(&pair, *gamma)]);
                    mean += moments.mean;
                    variance += moments.variance;
                }
                Moments { mean: mean * square.sqrt(), variance: variance * square, pseudo_variance: variance * square }
            }
            Form::Fourier { kernel, outputs } => {
                let mean = kernel.value(factors[0].inner, factors[0].norm_sum);
                let variance = (1.0 - mean * mean).powi(2) / (2.0 * *outputs as f64);
                Moments { mean, variance, pseudo_variance: variance }
            }
            Form::Exact { degree } => {
                Moments { mean: power(factors[0].inner, *degree), variance: 0.0, pseudo_variance: 0.0 }
            }
        }
    }
}

/// The closed form of a product of projections.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProductFormula {
    base: Base,
    field: Field,
    degree: usize,
    distinct: bool,
    /// Whether the projections are joined in a tree.
    tree: bool,
    /// m
    outputs: usize,
    /// How dependent the outputs are, one number per table: ⌈m/n⌉n − 1 for ProductSRHT.
    dependence: Option<Vec<f64>>,
}

impl ProductFormula {
    fn of(spec: &Spec, method: ProductMethod) -> Option<Self> {
        let degree = spec.factors().degree;
        let flat = method.shape == Shape::Flat || degree <= 2;
        let tree = !flat && method.shape == Shape::Tree && method.base == Base::Gaussian;
        if method.craft.is_some() || !(flat || tree) {
            return None;
        }
        let distinct = matches!(spec.inputs, InputDims::Distinct(_));
        let tables = spec.inputs.as_slice().len();
        let dependence = |factor| method.base.dependence(spec.factor_dim(factor), spec.outputs());
        Some(Self {
            base: method.base,
            field: method.field,
            degree,
            distinct,
            tree,
            outputs: spec.outputs(),
            dependence: (0..tables).map(dependence).collect(),
        })
    }

    /// Π term(factor) over all factors; `factors` has one entry per factor, or one for all.
    #[inline(always)]
    fn product(&self, factors: &[PairStatistics], term: impl Fn(usize, &PairStatistics) -> f64) -> f64 {
        if self.distinct {
            factors.iter().enumerate().map(|(index, factor)| term(index, factor)).product()
        } else {
            factors.first().map_or(1.0, |factor| power(term(0, factor), self.degree))
        }
    }

    fn moments(&self, factors: &[PairStatistics]) -> Moments {
        let mean = self.product(factors, |_, factor| factor.inner);
        let [variance, pseudo_variance] = self.second_moments(factors);
        let (variance, pseudo_variance) = match self.field {
            Field::Real => (variance, variance),
            Field::Complex => (variance, pseudo_variance),
            Field::ComplexToReal => {
                let half = not_below_zero(f64::midpoint(variance, pseudo_variance));
                (half, half)
            }
        };
        // Rounding may leave a negative number where the sketch is exact.
        Moments { mean, variance: not_below_zero(variance), pseudo_variance }
    }

    /// Variance and pseudo-variance of a complex estimate; both are the variance for a real one.
    #[inline(always)]
    fn second_moments(&self, factors: &[PairStatistics]) -> [f64; 2] {
        let a = self.product(factors, |_, factor| factor.inner * factor.inner);
        if self.tree {
            let [plain, pseudo, _] = self.gaussian_tree(factors, 0, self.degree);
            return [plain - a, pseudo - a];
        }
        self.base.second_moments(self, factors)
    }

    /// Variance and pseudo-variance of flat sketches whose factors are independent: from one output's M and M' of each factor.
    #[inline(always)]
    pub(crate) fn of_independent_factors<K: Kind>(&self, factors: &[PairStatistics]) -> [f64; 2] {
        let a = self.product(factors, |_, factor| factor.inner * factor.inner);
        let complex = self.field.is_complex();
        let variance = self.of_outputs(factors, a, |factor| K::moments(factor, complex)[0]);
        [variance, if complex { self.of_outputs(factors, a, |factor| K::moments(factor, true)[1]) } else { variance }]
    }

    /// Variance and pseudo-variance of TensorSketch.
    #[inline(always)]
    pub(crate) fn of_tensor_sketch(&self, factors: &[PairStatistics]) -> [f64; 2] {
        let m = self.outputs as f64;
        let square = |factor: &PairStatistics| factor.inner * factor.inner;
        let a = self.product(factors, |_, factor| square(factor));
        let b = |factor: &PairStatistics| factor.norms - factor.squares;
        let with_b = self.product(factors, |_, factor| square(factor) + b(factor)) - a;
        let with_c = self.product(factors, |_, factor| square(factor) + factor.cross_terms()) - a;
        if self.field.is_complex() {
            return [with_b / m, with_c / m];
        }
        let both = self.product(factors, |_, factor| square(factor) + b(factor) + factor.cross_terms()) - a;
        // The solutions of 2u = 0 modulo m.
        let kappa = if self.outputs.is_multiple_of(2) { 2.0 } else { 1.0 };
        let variance = (with_b + with_c) / m + kappa * (both - with_b - with_c) / (m * m);
        [variance, variance]
    }

    /// ΠM/m + (1 − 1/m) ΠC − Πa, given M of one factor.
    #[inline(always)]
    fn of_outputs(&self, factors: &[PairStatistics], a: f64, one_output: impl Fn(&PairStatistics) -> f64) -> f64 {
        let m = self.outputs as f64;
        let same = self.product(factors, |_, factor| one_output(factor));
        let Some(dependence) = &self.dependence else { return (same - a) / m };
        let other = self.product(factors, |table, factor| {
            let a = factor.inner * factor.inner;
            a - (one_output(factor) - a) / dependence[table]
        });
        (same - a) / m + (1.0 - 1.0 / m) * (other - a)
    }

    /// E|⟨z, z'⟩|², E⟨z, z'⟩² and E‖z‖²‖z'‖² of the features of the factors `first..end`.
    fn gaussian_tree(&self, factors: &[PairStatistics], first: usize, end: usize) -> [f64; 3] {
        if end - first == 1 {
            let factor = factors[first % factors.len()];
            let a = factor.inner * factor.inner;
            return [a, a, factor.norms];
        }
        let complex = self.field.is_complex();
        let middle = first + (end - first).div_ceil(2);
        let halves = [self.gaussian_tree(factors, first, middle), self.gaussian_tree(factors, middle, end)];
        let product = |term: &dyn Fn([f64; 3]) -> f64| term(halves[0]) * term(halves[1]);
        let same_row = product(&|[plain, _, norms]| norms + if complex { plain } else { 2.0 * plain });
        let pseudo_same_row = product(&|[_, pseudo, norms]| if complex { 2.0 * pseudo } else { norms + 2.0 * pseudo });
        let m = self.outputs as f64;
        let average = |same: f64, other: f64| same / m + (1.0 - 1.0 / m) * other;
        [
            average(same_row, product(&|[plain, _, _]| plain)),
            average(pseudo_same_row, product(&|[_, pseudo, _]| pseudo)),
            average(same_row, product(&|[_, _, norms]| norms)),
        ]
    }
}

/// Clamps a variance that rounding left just below zero; NaN, after an overflow, stays NaN.
#[inline(always)]
fn not_below_zero(variance: f64) -> f64 {
    if variance < 0.0 { 0.0 } else { variance }
}

#[inline(always)]
pub(crate) fn power(base: f64, exponent: usize) -> f64 {
    base.powi(i32::try_from(exponent).unwrap_or(i32::MAX))
}

/// Mean, variance and pseudo-variance of a spec's kernel estimate for one pair, if a closed form is known; `x` and `y` have
/// one row per input table.
///
/// # Reference
/// See [`Formula`].
///
/// # Errors
/// As [`Spec::validate`]; [`Error::Invalid`] for rows that do not fit the spec or are not finite.
///
/// ```
/// use argand::{Spec, theory::variance::variance};
/// // One full Hadamard matrix at degree 1 is orthogonal: no variance. At degree 2 there is some.
/// let (x, y) = ([1.0, 2.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]);
/// let exact = variance(&Spec::polynomial(4).with_degree(1).with_features(8), &[&x], &[&y])?.unwrap();
/// assert!((exact.mean - 2.0).abs() < 1e-12 && exact.variance < 1e-12);
/// let moments = variance(&Spec::polynomial(4).with_degree(2).with_features(8), &[&x], &[&y])?.unwrap();
/// assert!((moments.mean - 4.0).abs() < 1e-12 && moments.variance > 1.0);
/// # Ok::<(), argand::Error>(())
/// ```
pub fn variance(spec: &Spec, x: &[&[f64]], y: &[&[f64]]) -> Result<Option<Moments>, Error> {
    let formula = Formula::of(spec)?;
    let dims = spec.inputs.as_slice();
    for (argument, rows) in [(Argument::X, x), (Argument::Y, y)] {
        if rows.len() != dims.len() {
            return Err(Error::invalid(argument, format!("{} rows, one per input", dims.len()), rows.len()));
        }
        for (row, &dim) in rows.iter().zip(dims) {
            if row.len() != dim {
                return Err(Error::invalid(argument, format!("{dim} numbers"), row.len()));
            }
            if let Some(value) = row.iter().find(|value| !value.is_finite()) {
                return Err(Error::invalid(argument, "finite numbers", value));
            }
        }
    }
    let factors = x.iter().zip(y).map(|(x, y)| around(spec, x, y)).collect::<Result<Vec<_>, _>>()?;
    Ok(formula.map(|formula| formula.moments(&factors)))
}

/// The statistics of a pair, around the centre of a sum if it has one.
fn around(spec: &Spec, x: &[f64], y: &[f64]) -> Result<PairStatistics, Error> {
    let Some(Fit::Maclaurin(Allocation { centre: Some(centre), .. })) = &spec.fit else {
        return PairStatistics::new(&spec.kernel, x, y);
    };
    let shifted = |row: &[f64]| row.iter().zip(centre).map(|(value, centre)| value - centre).collect::<Vec<f64>>();
    PairStatistics::new(&spec.kernel, &shifted(x), &shifted(y))
}

/// How much lower the variance of a CtR-Rademacher sketch is than that of a real one with as many features.
///
/// # Formula
/// (1/D) Σ_{k=2}^p Σ_{j=0}^{k−1} (p over k)(k over j) b_j a^{p−j} with a = [`PairStatistics::cross_terms`] and
/// b_j = N^j − q^j. Summing over k first leaves Σ_{j=1}^{p−1} (p over j)(2^{p−j} − 1) b_j a^{p−j} / D, which is computed. It is
/// not negative if a ≥ 0, and may be otherwise.
///
/// # Reference
/// Theorem 3.4.
#[must_use]
pub fn rademacher_advantage(pair: &PairStatistics, degree: usize, features: usize) -> f64 {
    let a = pair.cross_terms();
    let terms = binomials(degree).map(|(j, binomial)| {
        let b = power(pair.norms, j) - power(pair.squares, j);
        binomial * (power(2.0, degree - j) - 1.0) * b * power(a, degree - j)
    });
    terms.sum::<f64>() / features as f64
}

/// How much lower the variance of a CtR-Gaussian sketch is than that of a real one with as many features.
///
/// # Formula
/// (1/D) Σ_{k=0}^{p−1} (p over k)(2^k − 1) ⟨x̃, ỹ⟩^{2k} N^{p−k} ≥ 0.
///
/// # Reference
/// Theorem 3.5.
#[must_use]
pub fn gaussian_advantage(pair: &PairStatistics, degree: usize, features: usize) -> f64 {
    let terms = binomials(degree).filter(|&(k, _)| k < degree).map(|(k, binomial)| {
        binomial * (power(2.0, k) - 1.0) * power(pair.inner, 2 * k) * power(pair.norms, degree - k)
    });
    terms.sum::<f64>() / features as f64
}

/// (k, degree over k) for k = 0, …, degree.
fn binomials(degree: usize) -> impl Iterator<Item = (usize, f64)> {
    let mut binomial = 1.0;
    (0..=degree).map(move |k| {
        let this = binomial;
        binomial *= (degree - k) as f64 / (k + 1) as f64;
        (k, this)
    })
}

#[cfg(test)]
mod tests {
    /// An overflow is never reported as zero variance.
    #[test]
    fn overflow_is_not_zero() {
        let large = [1e200, 2e200];
        let moments =
            super::variance(&crate::Spec::polynomial(2).with_degree(2).with_features(8), &[&large], &[&large])
                .unwrap()
                .unwrap();
        assert!(!moments.variance.is_finite(), "{moments:?}");
    }

    use super::*;
    use crate::spec::Polynomial;

    fn pairs() -> Vec<PairStatistics> {
        let kernel = Polynomial { degree: 1, gamma: 0.7, coef0: 0.2 }.into();
        let rows: [[[f64; 3]; 2]; 5] = [
            [[1.0, 2.0, 3.0], [0.5, 1.0, 0.2]],
            [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]],
            [[1.0, -1.0, 0.0], [1.0, 1.0, 0.0]],
            [[1.0, 2.0, -0.5], [-1.0, 0.3, 1.0]],
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        ];
        rows.iter().map(|[x, y]| PairStatistics::new(&kernel, x, y).unwrap()).collect()
    }

    fn flat(base: Base, field: Field, degree: usize, pair: PairStatistics) -> f64 {
        let spec = Spec::polynomial(3)
            .with_degree(degree)
            .with_features(10)
            .with_method(Method::flat(base, field))
            .with_coef0(0.2);
        Formula::of(&spec).unwrap().unwrap().moments(&[pair]).variance
    }

    /// Theorems 3.4 and 3.5 against the differences of Table 1 and the double sum as printed.
    #[test]
    fn advantages_are_differences_of_variances() {
        for degree in 1..=8 {
            for pair in pairs() {
                for (base, advantage) in [
                    (Base::Rademacher, rademacher_advantage(&pair, degree, 10)),
                    (Base::Gaussian, gaussian_advantage(&pair, degree, 10)),
                ] {
                    let [real, ctr] = [Field::Real, Field::ComplexToReal].map(|field| flat(base, field, degree, pair));
                    assert!((real - ctr - advantage).abs() < 1e-12 * (real + ctr), "{base:?} {degree} {pair:?}");
                    if base == Base::Gaussian || pair.cross_terms() >= 0.0 {
                        assert!(advantage >= 0.0, "{base:?} {degree} {pair:?}");
                    }
                }
                let (a, mut printed) = (pair.cross_terms(), 0.0);
                for (k, over_k) in binomials(degree).skip(2) {
                    for (j, over_j) in binomials(k).take(k) {
                        let b = power(pair.norms, j) - power(pair.squares, j);
                        printed += over_k * over_j * b * power(a, degree - j);
                    }
                }
                let ours = rademacher_advantage(&pair, degree, 1);
                assert!((printed - ours).abs() < 1e-11 * (1.0 + ours.abs()), "{degree} {pair:?}: {printed} {ours}");
            }
        }
        // Where a < 0 the real sketch wins: (1, 1, 0) and (1, −1, 0) without a constant.
        let kernel = Polynomial { degree: 2, gamma: 1.0, coef0: 0.0 }.into();
        let opposed = PairStatistics::new(&kernel, &[1.0, -1.0, 0.0], &[1.0, 1.0, 0.0]).unwrap();
        assert!(opposed.cross_terms() < 0.0 && rademacher_advantage(&opposed, 2, 10) < 0.0);
    }

    /// Hand-computed values of Table 1: x = y = (1, 1), so a = 4, q = 2, N = 4.
    #[test]
    fn table_1_by_hand() {
        let kernel = Polynomial { degree: 1, gamma: 1.0, coef0: 0.0 }.into();
        let pair = PairStatistics::new(&kernel, &[1.0, 1.0], &[1.0, 1.0]).unwrap();
        assert_eq!((pair.inner, pair.squares, pair.norms, pair.cross_terms()), (2.0, 2.0, 4.0, 2.0));
        let of = |base, field, degree, features| {
            let spec =
                Spec::polynomial(2).with_degree(degree).with_features(features).with_method(Method::flat(base, field));
            let moments = Formula::of(&spec).unwrap().unwrap().moments(&[pair]);
            (moments.variance, moments.pseudo_variance)
        };
        // (4 + 2·4)² − 16 = 128; complex (4 + 4)² − 16 = 48 and (2·4)² − 16 = 48.
        assert_eq!(of(Base::Gaussian, Field::Real, 2, 4), (32.0, 32.0));
        assert_eq!(of(Base::Gaussian, Field::Complex, 2, 8), (12.0, 12.0));
        assert_eq!(of(Base::Gaussian, Field::ComplexToReal, 2, 8), (12.0, 12.0));
        // (4 + 2·2)² − 16 = 48; complex (4 + 2)² − 16 = 20 and (8 − 2)² − 16 = 20.
        assert_eq!(of(Base::Rademacher, Field::Real, 2, 4), (12.0, 12.0));
        assert_eq!(of(Base::Rademacher, Field::ComplexToReal, 2, 8), (5.0, 5.0));
        // m = 4 of n = 2: ⌈4/2⌉2 − 1 = 3, C = 4 − (8 − 4)/3 = 8/3: 64/4 + ¾·64/9 − 16 = 16/3.
        assert!((of(Base::ProductSrht, Field::Real, 2, 4).0 - 16.0 / 3.0).abs() < 1e-12);
        // b = c = 2: (36 + 36 − 32)/4 + (2/16)(64 − 72 + 16) = 11, for even m.
        assert_eq!(of(Base::TensorSketch, Field::Real, 2, 4).0, 11.0);
    }

    #[test]
    fn distinct_factors_that_are_equal_give_the_power() {
        for method in Method::all() {
            let same = Spec::polynomial(5).with_degree(3).with_features(24).with_method(method);
            let distinct = Spec::tensor_product(&[5, 5, 5]).with_features(24).with_method(method);
            let pair =
                PairStatistics::new(&same.kernel, &[1.0, 2.0, 0.5, 0.0, -1.0], &[0.3, 1.0, 1.0, 2.0, 1.0]).unwrap();
            if let (Ok(Some(same)), Ok(Some(distinct))) = (Formula::of(&same), Formula::of(&distinct)) {
                let (same, distinct) = (same.moments(&[pair]), distinct.moments(&[pair; 3]));
                assert!((same.variance - distinct.variance).abs() < 1e-12 * same.variance, "{method}");
                assert!((same.mean - distinct.mean).abs() < 1e-12, "{method}");
            }
        }
    }

    #[test]
    fn rows_that_do_not_fit_are_errors() {
        let spec = Spec::polynomial(2).with_degree(2).with_features(8);
        let row = [1.0, 2.0];
        assert!(variance(&spec, &[&row], &[&row[..1]]).unwrap_err().to_string().starts_with("y: "));
        assert!(variance(&spec, &[&row, &row], &[&row]).unwrap_err().to_string().starts_with("x: "));
        assert!(variance(&spec, &[&[f64::NAN, 0.0]], &[&row]).unwrap_err().to_string().starts_with("x: "));
        assert_eq!(variance(&spec.with_method("srf".parse().unwrap()), &[&row], &[&row]).unwrap_or(None), None);
    }
}
