//! What the tests share: a naive oracle, exact kernels, Table 1 of the paper, and tolerances.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use argand::rng::{Purpose, Stream};
use argand::{Base, FeatureMap, Field, Input, InputDims, Kernel, Method, Rows, Scalar, SparseRows, Spec};

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

/// Every method that can be drawn.
pub fn methods() -> Vec<Method> {
    Method::available()
}

/// x̃ = (√γ x, √ν).
pub fn homogenise(kernel: Kernel, x: &[f64]) -> Vec<f64> {
    let mut lifted: Vec<f64> = x.iter().map(|x| x * kernel.gamma.sqrt()).collect();
    if kernel.coef0 > 0.0 {
        lifted.push(kernel.coef0.sqrt());
    }
    lifted
}

/// The matrix W of one factor, entry by entry from the definition.
pub fn matrix(spec: &Spec, factor: usize, dim: usize) -> Vec<Vec<Complex>> {
    let rows = spec.rows();
    let complex = spec.method.field.is_complex();
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
    match spec.method.base {
        Base::Gaussian => (0..rows)
            .map(|row| {
                let mut stream = Stream::new(spec.seed, Purpose::Weights, index, row as u32);
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
            (0..rows).map(|row| signs(&mut Stream::new(spec.seed, Purpose::Weights, index, row as u32), dim)).collect()
        }
        Base::ProductSrht | Base::TensorSrht => {
            let padded = dim.next_power_of_two();
            let diagonal = signs(&mut Stream::new(spec.seed, Purpose::Signs, index, 0), dim);
            let mut stream = Stream::new(spec.seed, Purpose::Rows, index, 0);
            let mut chosen: Vec<usize> = if spec.method.base == Base::TensorSrht {
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
            if factor == 0 {
                chosen.sort_unstable();
            }
            let hadamard =
                |row: usize, column: usize| if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            chosen
                .iter()
                .map(|&row| (0..dim).map(|k| times((hadamard(row % padded, k), 0.0), diagonal[k])).collect())
                .collect()
        }
        Base::TensorSketch => panic!("no oracle for {}", spec.method),
    }
}

/// Φ of one row (one slice per input table), by multiplying matrices.
pub fn oracle_row(spec: &Spec, inputs: &[&[f64]]) -> Vec<f64> {
    let rows = spec.rows();
    let mut product = vec![(1.0 / (rows as f64).sqrt(), 0.0); rows];
    for factor in 0..spec.kernel.degree {
        let x = homogenise(spec.kernel, inputs[factor % inputs.len()]);
        for (value, weights) in product.iter_mut().zip(matrix(spec, factor, x.len())) {
            let dot = weights.iter().zip(&x).fold((0.0, 0.0), |sum, (w, x)| (sum.0 + w.0 * x, sum.1 + w.1 * x));
            *value = times(*value, dot);
        }
    }
    match spec.method.field {
        Field::Real => product.iter().map(|z| z.0).collect(),
        Field::ComplexToReal => product.iter().map(|z| z.0).chain(product.iter().map(|z| z.1)).collect(),
        Field::Complex => product.iter().flat_map(|z| [z.0, z.1]).collect(),
    }
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

/// The variances of one spec's kernel estimate for one pair, from Table 1.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    pub mean: f64,
    /// E|k̂ − k|², for the real inner product of the features or, if complex, the Hermitian one.
    pub variance: f64,
    /// E(k̂ − k)² of a complex estimate.
    pub pseudo_variance: f64,
}

/// # Formula
/// With per-factor second moments s = E|u v̄|² of one row, cross moments c of two rows, and a = ⟨x, y⟩²:
/// Var = (Π s − Π a)/m + (1 − 1/m)(Π c − Π a). Independent rows have c = a; rows drawn without replacement from B
/// stacked Hadamard matrices of size n have c = a − (s − a)/(Bn − 1). The pseudo-variance is the same with E(u v̄)².
pub fn truth(spec: &Spec, x: &[&[f64]], y: &[&[f64]]) -> Truth {
    let m = spec.rows() as f64;
    let complex = spec.method.field.is_complex();
    // [Π s, Π c] for the variance and the pseudo-variance, and Π a.
    let (mut plain, mut pseudo, mut squared) = ([1.0, 1.0], [1.0, 1.0], 1.0);
    for factor in 0..spec.kernel.degree {
        let x = homogenise(spec.kernel, x[factor % x.len()]);
        let y = homogenise(spec.kernel, y[factor % y.len()]);
        let sum = |term: &dyn Fn(f64, f64) -> f64| x.iter().zip(&y).map(|(&x, &y)| term(x, y)).sum::<f64>();
        let a = sum(&|x, y| x * y).powi(2);
        let q = sum(&|x, y| x * x * y * y);
        let norms = sum(&|x, _| x * x) * sum(&|_, y| y * y);
        let real_or_complex = if complex { 1.0 } else { 2.0 };
        let (s, pseudo_s) = match spec.method.base {
            Base::Gaussian => (norms + real_or_complex * a, 2.0 * a),
            _ => (norms + real_or_complex * (a - q), 2.0 * a - q),
        };
        let stacked = spec.rows().next_multiple_of(x.len().next_power_of_two()) as f64;
        let cross = |s: f64| if spec.method.base == Base::ProductSrht { a - (s - a) / (stacked - 1.0) } else { a };
        plain = [plain[0] * s, plain[1] * cross(s)];
        pseudo = [pseudo[0] * pseudo_s, pseudo[1] * cross(pseudo_s)];
        squared *= a;
    }
    let combine = |[s, c]: [f64; 2]| (s - squared) / m + if m > 1.0 { (1.0 - 1.0 / m) * (c - squared) } else { 0.0 };
    let (variance, pseudo_variance) = (combine(plain), combine(pseudo));
    let mean = kernel(spec, x, y);
    match spec.method.field {
        Field::Real => Truth { mean, variance, pseudo_variance: variance },
        Field::Complex => Truth { mean, variance, pseudo_variance },
        Field::ComplexToReal => {
            let variance = (variance + pseudo_variance) / 2.0;
            Truth { mean, variance, pseudo_variance: variance }
        }
    }
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

/// Bound on the rounding error of a feature, relative to the product of the factors' ℓ₁ norms.
///
/// Each factor's sum has a depth of at most d (dense) or log₂ n (Hadamard), and the p products add p roundings; no
/// partial sum exceeds the ℓ₁ norm of x̃ times the largest weight, which is below 6 for the Gaussians drawn here.
pub fn rounding<T: Scalar>(spec: &Spec, inputs: &[&[f64]]) -> f64 {
    let mut bound = T::EPSILON.to_f64();
    let mut depth = 0.0;
    for factor in 0..spec.kernel.degree {
        let x = homogenise(spec.kernel, inputs[factor % inputs.len()]);
        let (weight, levels) = match spec.method.base {
            Base::Gaussian => (6.0, x.len() as f64),
            Base::Rademacher => (1.0, x.len() as f64),
            _ => (1.0, (x.len() as f64).log2().ceil()),
        };
        bound *= weight * x.iter().map(|x| x.abs()).sum::<f64>();
        depth += levels + 4.0;
    }
    bound * depth / (spec.rows() as f64).sqrt()
}

/// Column counts for a spec with the same or with distinct inputs.
pub fn spec_for(inputs: &InputDims, degree: usize, features: usize, method: Method) -> Spec {
    let spec = match inputs {
        InputDims::Same(dim) => Spec::new(*dim, degree, features),
        InputDims::Distinct(dims) => Spec::distinct(dims, features),
    };
    spec.with_method(method)
}

pub fn transform<T: Scalar>(map: &dyn FeatureMap<T>, tables: &[Vec<T>]) -> Vec<T> {
    let inputs: Vec<Input<'_, T>> =
        tables.iter().zip(map.input_dims()).map(|(table, &dim)| dense(table, dim).into()).collect();
    map.transform(&inputs).unwrap()
}
