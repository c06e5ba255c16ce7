//! All monomials of a polynomial kernel, with their weights: the exact features.

use pulp::Arch;

use super::{Tiled, first_not_finite};
use crate::lanes::{self, Columns, LANES, Lane, LaneBuffer};
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::simd;
use crate::spec::{Polynomial, Spec};

/// The highest degree.
const MOST_DEGREES: usize = 64;

/// The most monomials.
const MOST: u64 = 1 << 31;

/// Exact features of (γ⟨x, y⟩ + ν)^p.
///
/// # Formula
/// With x̃ = (√γ x, √ν), one feature √(p!/Πkᵢ!) Πx̃ᵢ^{kᵢ} for all k with Σkᵢ = p, in lexicographic order of the factors' indices. Their inner
/// products are the kernel, by the multinomial theorem.
///
/// # Cost
/// One multiplication for every monomial of degree 2 to p.
#[derive(Debug)]
pub struct Monomials<T> {
    /// For the degrees 2 to p, in this order: the place of a monomial of one degree less, counted over all degrees, and the variable it is
    /// multiplied by. The monomials of degree 1 are the variables.
    products: Vec<[u32; 2]>,
    /// The roots of the multinomial coefficients of the monomials of degree p.
    weights: Vec<T>,
    /// The dimension of x̃.
    variables: usize,
    roots: [T; 2],
    arch: Arch,
}

/// The number of monomials of a degree in some variables, if there are not too many.
fn of_degree(variables: usize, degree: usize) -> Option<u64> {
    // (variables + degree − 1 over degree); every partial product is a binomial coefficient.
    let variables = u64::try_from(variables).ok()?;
    let mut product = 1_u64;
    for k in 1..=degree as u64 {
        product = product.checked_mul(variables.checked_add(k - 1)?)? / k;
        if product > MOST {
            return None;
        }
    }
    Some(product)
}

fn variables(dim: usize, kernel: Polynomial) -> usize {
    dim.saturating_add(usize::from(kernel.coef0 > 0.0))
}

/// The number of exact features of a kernel; `None` if there are more than 2³¹, or if the degree is above 64.
pub(crate) fn count(dim: usize, kernel: Polynomial) -> Option<usize> {
    if kernel.degree > MOST_DEGREES {
        return None;
    }
    usize::try_from(of_degree(variables(dim, kernel), kernel.degree)?).ok()
}

/// Monomials of all degrees from 1 on; `None` if there are too many.
fn of_all_degrees(spec: &Spec) -> Option<u64> {
    let kernel = spec.factors();
    // As many as there are of the highest degree with one more variable, but for the constant.
    of_degree(variables(spec.inputs.as_slice()[0], kernel).checked_add(1)?, kernel.degree).map(|all| all - 1)
}

/// Bytes of the list of products; `None` on overflow.
pub(crate) fn drawn_bytes(spec: &Spec) -> Option<u64> {
    // Runs and weights exist while the list is made.
    of_all_degrees(spec)?.checked_mul(8 + 16)
}

/// Bytes of the weights and of one thread's work space; `None` on overflow.
pub(super) fn bytes<T: Scalar>(spec: &Spec) -> Option<u64> {
    let weights = u64::try_from(spec.features).ok()?.checked_mul(size_of::<T>() as u64)?;
    of_all_degrees(spec)?.checked_mul(size_of::<Lane<T>>() as u64)?.checked_add(weights)
}

impl<T: Scalar> Monomials<T> {
    pub(crate) fn new(spec: &Spec, arch: Arch) -> Self {
        let kernel = spec.factors();
        let variables = variables(spec.inputs.as_slice()[0], kernel);
        let narrow = crate::draw::narrow;
        let mut products: Vec<[u32; 2]> = Vec::new();
        // Of the last degree: the last variable, how often it occurs, and the multinomial coefficient.
        let mut last: Vec<(usize, f64, f64)> = (0..variables).map(|variable| (variable, 1.0, 1.0)).collect();
        let mut start = 0;
        for degree in 2..=kernel.degree {
            let mut next = Vec::new();
            for (place, &(before, run, coefficient)) in last.iter().enumerate() {
                for variable in before..variables {
                    let run = if variable == before { run + 1.0 } else { 1.0 };
                    products.push([narrow(start + place), narrow(variable)]);
                    next.push((variable, run, coefficient * degree as f64 / run));
                }
            }
            start += last.len();
            last = next;
        }
        let weights = last.iter().map(|(_, _, coefficient)| T::from_f64(coefficient.sqrt())).collect();
        let roots = [kernel.gamma, kernel.coef0].map(|value| T::from_f64(value.sqrt()));
        Self { products, weights, variables, roots, arch }
    }

    /// Values of all monomials of a tile, by degree.
    fn values(&self, input: &Input<'_, T>, first: usize, values: &mut [Lane<T>]) {
        lanes::load(self.arch, input, first, self.roots, &mut values[..self.variables]);
        for (index, &[before, variable]) in self.products.iter().enumerate() {
            values[self.variables + index] = lanes::mul(values[before as usize], values[variable as usize]);
        }
    }

    /// Monomials of all degrees.
    fn all(&self) -> usize {
        self.variables + self.products.len()
    }
}

impl<T: Scalar> Tiled<T> for Monomials<T> {
    type Scratch = LaneBuffer<T>;
    type AdjointScratch = [LaneBuffer<T>; 2];

    fn scratch(&self, _: usize) -> LaneBuffer<T> {
        LaneBuffer::new(self.all())
    }

    fn block(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        mut out: RowsMut<'_, T>,
        streamed: bool,
        scratch: &mut LaneBuffer<T>,
    ) -> Option<usize> {
        let mut finite = true;
        for at in (0..out.rows()).step_by(LANES) {
            let values = scratch.as_mut();
            self.values(&inputs[0], first + at, values);
            let highest = self.all() - self.weights.len();
            let features = &mut values[highest..];
            for (feature, &weight) in features.iter_mut().zip(&self.weights) {
                *feature = lanes::scale(*feature, weight);
            }
            let all = Columns { start: 0, step: 1 };
            finite &= lanes::store(self.arch, features, T::ONE, all, &mut out, at, streamed);
        }
        if streamed {
            simd::fence();
        }
        if finite { None } else { first_not_finite(&mut out).map(|row| first + row) }
    }

    fn adjoint_bytes(&self) -> Option<u64> {
        u64::try_from(self.all().checked_mul(2 * size_of::<Lane<T>>())?).ok()
    }

    fn adjoint_scratch(&self) -> [LaneBuffer<T>; 2] {
        [LaneBuffer::new(self.all()), LaneBuffer::new(self.all())]
    }

    /// Backwards through the products: v = u x adds g x to the gradient of u and g u to that of x.
    fn adjoint_tile(
        &self,
        inputs: &[Input<'_, T>],
        first: usize,
        cotangent: &Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
        scratch: &mut [LaneBuffer<T>; 2],
    ) -> Option<usize> {
        let [values, slopes] = scratch.each_mut().map(LaneBuffer::as_mut);
        self.values(&inputs[0], first, values);
        let highest = self.all() - self.weights.len();
        slopes[..highest].fill([T::ZERO; LANES]);
        let all = Columns { start: 0, step: 1 };
        lanes::gather(cotangent, first, T::ONE, all, &mut slopes[highest..]);
        for (slope, &weight) in slopes[highest..].iter_mut().zip(&self.weights) {
            *slope = lanes::scale(*slope, weight);
        }
        for (index, &[before, variable]) in self.products.iter().enumerate().rev() {
            let slope = slopes[self.variables + index];
            let (before, variable) = (before as usize, variable as usize);
            slopes[before] = lanes::add(slopes[before], lanes::mul(slope, values[variable]));
            slopes[variable] = lanes::add(slopes[variable], lanes::mul(slope, values[before]));
        }
        let out = &mut gradients[0];
        let finite = lanes::store(self.arch, &slopes[..out.columns()], self.roots[0], all, out, 0, false);
        if finite { None } else { first_not_finite(out).map(|row| first + row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monomials_are_counted() {
        let kernel = |degree, coef0| Polynomial { degree, gamma: 1.0, coef0 };
        assert_eq!(
            [count(16, kernel(2, 0.0)), count(16, kernel(2, 1.0)), count(16, kernel(3, 0.0))],
            [136, 153, 816].map(Some)
        );
        assert_eq!(
            [count(1, kernel(64, 0.0)), count(1, kernel(65, 0.0)), count(1 << 20, kernel(2, 0.0))],
            [Some(1), None, None]
        );
        assert_eq!(count(usize::MAX, kernel(1, 1.0)), None);
        for (dim, degree, coef0) in [(1, 1, 0.0), (3, 1, 0.5), (4, 3, 0.0), (3, 4, 1.0), (2, 7, 1.0)] {
            let spec = Spec::polynomial(dim).with_kernel(kernel(degree, coef0));
            let monomials = Monomials::<f64>::new(&spec, Arch::new());
            assert_eq!(Some(monomials.weights.len()), count(dim, kernel(degree, coef0)));
            assert_eq!(Some(monomials.all() as u64), of_all_degrees(&spec));
        }
    }
}
