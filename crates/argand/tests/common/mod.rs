//! What the tests share: a naive oracle, exact kernels, and tolerances.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod data;

use argand::rng::{Purpose, Stream};
use argand::theory::variance::{Moments, variance};
use argand::{
    Base, FeatureMap, Field, Input, InputDims, Kernel, Method, ProductMethod, Rows, Scalar, Shape, SparseRows, Spec,
};

pub type Complex = (f64, f64);

pub fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// Test data: uniform on [low, high], from the project's own portable streams.
pub fn uniform(seed: u64, length: usize, low: f64, high: f64) -> Vec<f64> {
    let mut stream = Stream::new(seed, Purpose::Weights, u32::MAX, 0);
    (0..length).map(|_| low + (high - low) * stream.uniform()).collect()
}

pub fn cast<T: Scalar>(data: &[f64]) -> Vec<T> {
    data.iter().map(|&value| T::from_f64(value)).collect()
}

pub fn dense<T>(data: &[T], columns: usize) -> Rows<'_, T> {
    Rows::new(data, data.len() / columns, columns).unwrap()
}

/// Dense data as CSR, without the zeros.
pub struct Csr<T> {
    pub starts: Vec<u32>,
    pub columns: Vec<u64>,
    pub values: Vec<T>,
    pub width: usize,
}

impl<T: Scalar> Csr<T> {
    pub fn new(data: &[T], width: usize) -> Self {
        let mut csr = Self { starts: vec![0], columns: vec![], values: vec![], width };
        for row in data.chunks_exact(width) {
            for (column, &value) in row.iter().enumerate().filter(|&(_, &value)| value != T::ZERO) {
                csr.columns.push(column as u64);
                csr.values.push(value);
            }
            csr.starts.push(csr.values.len() as u32);
        }
        csr
    }

    pub fn view(&self) -> SparseRows<'_, T> {
        SparseRows::new(&self.starts[..], &self.columns[..], &self.values, self.width).unwrap()
    }
}

/// Every method that sketches tensor products, with CRAFT maps of a size for tests.
pub fn methods() -> Vec<Method> {
    Method::all().into_iter().filter(|&method| method != Method::Spherical).map(|m| m.with_craft_dim(64)).collect()
}

/// Spherical random features for (½⟨x, y⟩ + ½)^degree.
pub fn srf(dim: usize, degree: usize, features: usize) -> Spec {
    let mut spec =
        Spec::polynomial(dim).with_degree(degree).with_features(features).with_method("srf".parse().unwrap());
    (spec.kernel.gamma, spec.kernel.coef0) = (0.5, 0.5);
    spec
}

/// x̃ = (√γ x, √ν).
pub fn homogenise(kernel: Kernel, x: &[f64]) -> Vec<f64> {
    let mut lifted: Vec<f64> = x.iter().map(|x| x * kernel.gamma.sqrt()).collect();
    if kernel.coef0 > 0.0 {
        lifted.push(kernel.coef0.sqrt());
    }
    lifted
}

fn product(spec: &Spec) -> ProductMethod {
    spec.method.product().expect("a product of projections")
}

/// What a matrix is drawn from.
#[derive(Clone, Copy)]
pub struct Draw {
    pub base: Base,
    pub complex: bool,
    pub seed: u64,
    pub factor: usize,
    pub sorted: bool,
    pub dim: usize,
    pub rows: usize,
}

/// A projection matrix, entry by entry from the definition.
pub fn matrix(draw: Draw) -> Vec<Vec<Complex>> {
    let Draw { base, complex, seed, factor, sorted, dim, rows } = draw;
    let index = factor as u32;
    let sign = |bits: u64| {
        if complex {
            [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][bits as usize]
        } else {
            (1.0 - 2.0 * bits as f64, 0.0)
        }
    };
    let width = if complex { 2 } else { 1 };
    // Signs are read from the low end of each 64-bit word, at most 64 / width from one.
    let signs = |stream: &mut Stream, count: usize| -> Vec<Complex> {
        let mut drawn = vec![];
        while drawn.len() < count {
            let word = stream.bits();
            drawn.extend((0..64 / width).map(|place| sign(word >> (place * width) & ((1 << width) - 1))));
        }
        drawn.truncate(count);
        drawn
    };
    match base {
        Base::Gaussian => (0..rows)
            .map(|row| {
                let mut stream = Stream::new(seed, Purpose::Weights, index, row as u32);
                if complex {
                    (0..dim).map(|_| stream.complex_normal()).collect()
                } else {
                    let pairs = (0..dim.div_ceil(2)).map(|_| stream.complex_normal());
                    let parts = pairs.flat_map(|(re, im)| [re, im]);
                    parts.map(|part| (part * 2_f64.sqrt(), 0.0)).take(dim).collect()
                }
            })
            .collect(),
        Base::Rademacher => {
            (0..rows).map(|row| signs(&mut Stream::new(seed, Purpose::Weights, index, row as u32), dim)).collect()
        }
        Base::ProductSrht | Base::TensorSrht => {
            let padded = dim.next_power_of_two();
            let diagonal = signs(&mut Stream::new(seed, Purpose::Signs, index, 0), dim);
            let mut stream = Stream::new(seed, Purpose::Rows, index, 0);
            let mut chosen: Vec<usize> = if base == Base::TensorSrht {
                (0..rows).map(|_| stream.below(padded as u32) as usize).collect()
            } else {
                // Draw without replacement by taking from the stack of all rows what is at the drawn place, and
                // moving the first of those left into the gap.
                let mut left: std::collections::VecDeque<usize> = (0..rows.div_ceil(padded) * padded).collect();
                (0..rows)
                    .map(|_| {
                        let place = stream.below(left.len() as u32) as usize;
                        let taken = left[place];
                        left[place] = left[0];
                        left.pop_front();
                        taken
                    })
                    .collect()
            };
            if sorted {
                chosen.sort_unstable();
            }
            let hadamard =
                |row: usize, column: usize| if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            chosen
                .iter()
                .map(|&row| (0..dim).map(|k| times((hadamard(row % padded, k), 0.0), diagonal[k])).collect())
                .collect()
        }
        Base::TensorSketch => {
            let diagonal = signs(&mut Stream::new(seed, Purpose::Signs, index, 0), dim);
            let mut stream = Stream::new(seed, Purpose::Buckets, index, 0);
            let buckets: Vec<usize> = (0..dim).map(|_| stream.below(rows as u32) as usize).collect();
            (0..rows)
                .map(|row| (0..dim).map(|k| times(fourier(rows, row, buckets[k]), diagonal[k])).collect())
                .collect()
        }
        other => panic!("{other:?} has no oracle yet"),
    }
}

/// exp(−2πi row column / length).
fn fourier(length: usize, row: usize, column: usize) -> Complex {
    let (sin, cos) = (-std::f64::consts::TAU * (row * column % length) as f64 / length as f64).sin_cos();
    (cos, sin)
}

fn multiply(matrix: &[Vec<Complex>], x: &[Complex]) -> Vec<Complex> {
    let add = |sum: Complex, product: Complex| (sum.0 + product.0, sum.1 + product.1);
    matrix.iter().map(|row| row.iter().zip(x).fold((0.0, 0.0), |sum, (&w, &x)| add(sum, times(w, x)))).collect()
}

/// The definition of a sketch, one shape after the other.
struct Oracle<'a> {
    spec: &'a Spec,
    inputs: &'a [&'a [f64]],
    /// Joins so far: every join's result is projected with matrices of its own.
    joins: usize,
}

impl Oracle<'_> {
    fn draw(&self, factor: usize, dim: usize) -> Draw {
        let method = self.spec.method;
        let sorted = factor == 0 && method.shape() == Some(Shape::Flat);
        let complex = method.field().is_complex();
        Draw {
            base: product(self.spec).base,
            complex,
            seed: self.spec.seed,
            factor,
            sorted,
            dim,
            rows: self.spec.outputs(),
        }
    }

    /// Wᵢ x̃ᵢ
    fn factor(&self, factor: usize) -> Vec<Complex> {
        let x = homogenise(self.spec.kernel, self.inputs[factor % self.inputs.len()]);
        let x: Vec<Complex> = x.into_iter().map(|x| (x, 0.0)).collect();
        multiply(&matrix(self.draw(factor, x.len())), &x)
    }

    /// The product of operands, divided by √m, and for TensorSketch transformed back; and the number of this join.
    fn join(&mut self, operands: &[Vec<Complex>]) -> (Vec<Complex>, usize) {
        let m = self.spec.outputs();
        let root = (m as f64).sqrt();
        let mut product: Vec<Complex> = (0..m)
            .map(|at| operands.iter().fold((1.0 / root, 0.0), |product, operand| times(product, operand[at])))
            .collect();
        if self.spec.method.base() == Some(Base::TensorSketch) {
            let back: Vec<Vec<Complex>> = (0..m)
                .map(|row| {
                    let conjugate = |(re, im): Complex| (re / root, -im / root);
                    (0..m).map(|column| conjugate(fourier(m, row, column))).collect()
                })
                .collect();
            product = multiply(&back, &product);
        }
        self.joins += 1;
        (product, self.joins - 1)
    }

    /// The projection of a join's result.
    fn mix(&self, (result, join): (Vec<Complex>, usize)) -> Vec<Complex> {
        let m = self.spec.outputs();
        let own = self.draw(self.spec.kernel.degree + join, m);
        if self.spec.method.shape() != Some(Shape::Chain) {
            return multiply(&matrix(own), &result);
        }
        let mixed = multiply(&matrix(Draw { base: Base::ProductSrht, ..own }), &result);
        if self.spec.method.base() != Some(Base::TensorSketch) {
            return mixed;
        }
        let scaled: Vec<Complex> = mixed.iter().map(|z| (z.0 / (m as f64).sqrt(), z.1 / (m as f64).sqrt())).collect();
        let transform: Vec<Vec<Complex>> =
            (0..m).map(|row| (0..m).map(|column| fourier(m, row, column)).collect()).collect();
        multiply(&transform, &scaled)
    }

    /// An operand of a tree that covers the factors `first..end`.
    fn tree(&mut self, first: usize, end: usize) -> Vec<Complex> {
        if end - first == 1 {
            return self.factor(first);
        }
        let joined = self.halves(first, end);
        self.mix(joined)
    }

    fn halves(&mut self, first: usize, end: usize) -> (Vec<Complex>, usize) {
        let middle = first + (end - first).div_ceil(2);
        let operands = [self.tree(first, middle), self.tree(middle, end)];
        self.join(&operands)
    }

    fn result(&mut self) -> Vec<Complex> {
        let degree = self.spec.kernel.degree;
        let all = |oracle: &mut Self, count: usize| {
            let operands: Vec<_> = (0..count).map(|factor| oracle.factor(factor)).collect();
            oracle.join(&operands)
        };
        match product(self.spec).shape {
            shape if degree <= 2 || shape == Shape::Flat => all(self, degree).0,
            Shape::Tree => self.halves(0, degree).0,
            Shape::Chain => {
                let mut result = all(self, 2);
                for factor in 2..degree {
                    let operands = [self.mix(result), self.factor(factor)];
                    result = self.join(&operands);
                }
                result.0
            }
            other => panic!("{other:?} has no oracle yet"),
        }
    }
}

/// Φ of one row (one slice per input table), by multiplying matrices.
pub fn oracle_row(spec: &Spec, inputs: &[&[f64]]) -> Vec<f64> {
    let mut oracle = Oracle { spec, inputs, joins: 0 };
    let product = oracle.result();
    let features: Vec<f64> = match spec.method.field() {
        Field::Real => product.iter().map(|z| z.0).collect(),
        Field::ComplexToReal => product.iter().map(|z| z.0).chain(product.iter().map(|z| z.1)).collect(),
        Field::Complex => product.iter().flat_map(|z| [z.0, z.1]).collect(),
    };
    let Some(up) = spec.method.craft() else { return features };
    let down = Draw {
        base: Base::ProductSrht,
        complex: false,
        sorted: true,
        rows: spec.features,
        ..oracle.draw(spec.kernel.degree + oracle.joins, up)
    };
    let features: Vec<Complex> = features.into_iter().map(|z| (z, 0.0)).collect();
    multiply(&matrix(down), &features).iter().map(|z| z.0 / (spec.features as f64).sqrt()).collect()
}

/// The exact kernel of a pair, one slice per input table.
pub fn kernel(spec: &Spec, x: &[&[f64]], y: &[&[f64]]) -> f64 {
    (0..spec.kernel.degree)
        .map(|factor| {
            let (x, y) = (x[factor % x.len()], y[factor % y.len()]);
            spec.kernel.gamma * x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>() + spec.kernel.coef0
        })
        .product()
}

/// What the kernel estimate of one spec for one pair should be: its mean, and its second moments where a closed form is
/// known.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    pub mean: f64,
    pub second: Option<Moments>,
}

pub fn truth(spec: &Spec, x: &[&[f64]], y: &[&[f64]]) -> Truth {
    Truth { mean: kernel(spec, x, y), second: variance(spec, x, y).unwrap() }
}

/// The kernel estimate from two rows of features.
pub fn estimate(field: Field, x: &[f64], y: &[f64]) -> Complex {
    if field == Field::Complex {
        let pairs = x.chunks_exact(2).zip(y.chunks_exact(2));
        pairs.fold((0.0, 0.0), |sum, (x, y)| {
            let product = times((x[0], x[1]), (y[0], -y[1]));
            (sum.0 + product.0, sum.1 + product.1)
        })
    } else {
        (x.iter().zip(y).map(|(x, y)| x * y).sum(), 0.0)
    }
}

/// Bound on the rounding error of a feature.
///
/// Each factor's sum has a depth of at most d (dense) or log₂ n (Hadamard); products and scalings add some more. No
/// partial sum exceeds the ℓ₁ norm of what is projected times the largest weight, which is below 6 for the Gaussians
/// drawn here. A join's result is projected again, where its ℓ₁ norm is at most m times its largest element.
pub fn rounding<T: Scalar>(spec: &Spec, inputs: &[&[f64]]) -> f64 {
    let m = spec.outputs() as f64;
    let method = spec.method;
    let levels = |dim: f64| match product(spec).base {
        Base::Gaussian => (6.0, dim),
        Base::Rademacher => (1.0, dim),
        Base::ProductSrht | Base::TensorSrht => (1.0, dim.log2().ceil()),
        // Buckets, and a Fourier transform of any length.
        Base::TensorSketch => (1.0, dim + 10.0 * m.log2().ceil() + 20.0),
        other => panic!("{other:?} has no bound yet"),
    };
    let mut bound = T::EPSILON.to_f64() / m.sqrt();
    let mut depth = 0.0;
    let degree = spec.kernel.degree;
    for factor in 0..degree {
        let x = homogenise(spec.kernel, inputs[factor % inputs.len()]);
        let (weight, levels) = levels(x.len() as f64);
        bound *= weight * x.iter().map(|x| x.abs()).sum::<f64>();
        depth += levels + 4.0;
    }
    let joins = if method.shape() == Some(Shape::Flat) { 1 } else { (degree - 1).max(1) };
    for _ in 1..joins {
        let (weight, levels) = levels(m);
        bound *= weight * m.sqrt();
        depth += levels + 4.0;
    }
    if method.base() == Some(Base::TensorSketch) {
        bound *= m.sqrt().powi(joins as i32);
    }
    if let Some(up) = method.craft() {
        bound *= up as f64 / (spec.features as f64).sqrt();
        depth += (up as f64).log2() + 4.0;
    }
    bound * depth
}

/// Column counts for a spec with the same or with distinct inputs.
pub fn spec_for(inputs: &InputDims, degree: usize, features: usize, method: Method) -> Spec {
    let spec = match inputs {
        InputDims::Same(dim) => Spec::polynomial(*dim).with_degree(degree).with_features(features),
        InputDims::Distinct(dims) => Spec::tensor_product(dims).with_features(features),
    };
    spec.with_method(method)
}

pub fn transform<T: Scalar>(map: &dyn FeatureMap<T>, tables: &[Vec<T>]) -> Vec<T> {
    let inputs: Vec<Input<'_, T>> =
        tables.iter().zip(map.input_dims()).map(|(table, &dim)| dense(table, dim).into()).collect();
    map.transform(&inputs).unwrap()
}
