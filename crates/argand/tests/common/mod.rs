//! Shared by the tests: a naive oracle, exact kernels, and tolerances.
#![allow(dead_code, unreachable_pub, reason = "each test file uses only a part of this")]

pub mod data;

use argand::draw::{Map, Projection, Source};
use argand::rng::{Purpose, Stream};
use argand::theory::variance::{Moments, variance};
use argand::{
    Base, FeatureMap, Field, Input, InputDims, Method, Polynomial, ProductMethod, Rows, RowsMut, Scalar, Shape, Sketch,
    SparseRows, Spec,
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

/// Every method that sketches tensor products, with small CRAFT maps.
pub fn methods() -> Vec<Method> {
    Method::products().into_iter().map(|product| Method::Product(product).with_craft_dim(64)).collect()
}

/// Spherical random features for (½⟨x, y⟩ + ½)^degree.
pub fn srf(dim: usize, degree: usize, features: usize) -> Spec {
    let spec = Spec::polynomial(dim).with_degree(degree).with_features(features).with_method("srf".parse().unwrap());
    spec.with_gamma(0.5).with_coef0(0.5)
}

/// x̃ = (√γ x, √ν).
pub fn homogenise(kernel: Polynomial, x: &[f64]) -> Vec<f64> {
    let mut lifted: Vec<f64> = x.iter().map(|x| x * kernel.gamma.sqrt()).collect();
    if kernel.coef0 > 0.0 {
        lifted.push(kernel.coef0.sqrt());
    }
    lifted
}

/// The polynomial kernel of a spec.
pub fn polynomial(spec: &Spec) -> Polynomial {
    spec.kernel.polynomial().expect("a polynomial kernel")
}

fn product(spec: &Spec) -> ProductMethod {
    spec.method.product().expect("a product of projections")
}

/// exp(−2πi row column / length).
fn fourier(length: usize, row: usize, column: usize) -> Complex {
    let (sin, cos) = (-std::f64::consts::TAU * (row * column % length) as f64 / length as f64).sin_cos();
    (cos, sin)
}

/// W, entry by entry from its definition.
pub fn matrix(projection: &Projection) -> Vec<Vec<Complex>> {
    (0..projection.draw.outputs).map(|row| projection.row(row).into_iter().map(Complex::from).collect()).collect()
}

fn multiply(matrix: &[Vec<Complex>], x: &[Complex]) -> Vec<Complex> {
    let add = |sum: Complex, product: Complex| (sum.0 + product.0, sum.1 + product.1);
    matrix.iter().map(|row| row.iter().zip(x).fold((0.0, 0.0), |sum, (&w, &x)| add(sum, times(w, x)))).collect()
}

/// The inverse Fourier transform, made unitary.
fn transform_back(z: &[Complex]) -> Vec<Complex> {
    let m = z.len();
    let conjugate = |(re, im): Complex| (re / (m as f64).sqrt(), -im / (m as f64).sqrt());
    let back: Vec<Vec<Complex>> =
        (0..m).map(|row| (0..m).map(|column| conjugate(fourier(m, row, column))).collect()).collect();
    multiply(&back, z)
}

/// Φ of one row (one slice per input table), by multiplying the drawn matrices.
pub fn oracle_row(spec: &Spec, inputs: &[&[f64]]) -> Vec<f64> {
    let drawn = spec.draw().unwrap();
    let Map::Product(drawn) = &drawn.map else { panic!("{} is not a product", spec.method) };
    let real = |x: &[f64]| x.iter().map(|&x| (x, 0.0)).collect::<Vec<Complex>>();
    let root = (spec.outputs() as f64).sqrt();
    let mut results: Vec<Vec<Complex>> = Vec::new();
    for join in &drawn.joins {
        let mut product = vec![(1.0 / root, 0.0); spec.outputs()];
        for operand in &join.operands {
            let x = match operand.source {
                Source::Factor(factor) => real(&homogenise(polynomial(spec), inputs[factor % inputs.len()])),
                Source::Join(join) => results[join].clone(),
            };
            let projected = multiply(&matrix(&operand.projection), &x);
            product.iter_mut().zip(projected).for_each(|(product, by)| *product = times(*product, by));
        }
        // TensorSketch multiplies Fourier transforms.
        let transforms = spec.method.base() == Some(Base::TensorSketch);
        results.push(if transforms { transform_back(&product) } else { product });
    }
    let result = results.pop().unwrap();
    let features: Vec<f64> = match spec.method.field() {
        Field::Real => result.iter().map(|z| z.0).collect(),
        Field::ComplexToReal => result.iter().map(|z| z.0).chain(result.iter().map(|z| z.1)).collect(),
        Field::Complex => result.iter().flat_map(|z| [z.0, z.1]).collect(),
    };
    let Some(down) = &drawn.craft else { return features };
    multiply(&matrix(down), &real(&features)).iter().map(|z| z.0 / (spec.features as f64).sqrt()).collect()
}

/// The exact kernel of a pair, one slice per input table.
pub fn kernel(spec: &Spec, x: &[&[f64]], y: &[&[f64]]) -> f64 {
    let Polynomial { degree, gamma, coef0 } = polynomial(spec);
    (0..degree)
        .map(|factor| {
            let (x, y) = (x[factor % x.len()], y[factor % y.len()]);
            gamma * x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>() + coef0
        })
        .product()
}

/// The theoretical kernel estimate of one spec for one pair: its mean, and its second moments where a closed form is known.
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
/// partial sum exceeds the ℓ₁ norm of the projected vector times the largest weight, which is below 6 for the Gaussians
/// drawn here. A join's result is projected again, where its ℓ₁ norm is at most m times its largest element.
pub fn rounding<T: Scalar>(spec: &Spec, inputs: &[&[f64]]) -> f64 {
    let m = spec.outputs() as f64;
    let method = spec.method;
    let levels = |dim: f64| match product(spec).base {
        Base::Rademacher => (1.0, dim),
        Base::ProductSrht | Base::TensorSrht => (1.0, dim.log2().ceil()),
        // Buckets, and a Fourier transform of any length.
        Base::TensorSketch => (1.0, dim + 10.0 * m.log2().ceil() + 20.0),
        // Any other matrix, as long as it has no entry above 6.
        _ => (6.0, dim),
    };
    let mut bound = T::EPSILON.to_f64() / m.sqrt();
    let mut depth = 0.0;
    let degree = polynomial(spec).degree;
    for factor in 0..degree {
        let x = homogenise(polynomial(spec), inputs[factor % inputs.len()]);
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

pub fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// The suite that every map runs: a row has the same features whatever the threads, blocks and neighbouring rows.
pub fn conforms<T: Scalar>(map: &dyn FeatureMap<T>, tables: &[Vec<T>]) {
    let dims = map.input_dims();
    let rows = tables[0].len() / dims[0];
    let whole = pool(1).install(|| transform(map, tables));
    assert_eq!(whole.len(), rows * map.output_dim());
    for threads in [2, 3] {
        assert!(pool(threads).install(|| transform(map, tables)) == whole, "{threads} threads");
    }
    // One row alone, and the rows in reverse order.
    for row in [0, rows / 2, rows - 1] {
        let alone: Vec<Vec<T>> = tables.iter().zip(dims).map(|(t, &dim)| t[row * dim..][..dim].to_vec()).collect();
        assert!(transform(map, &alone) == whole[row * map.output_dim()..][..map.output_dim()], "row {row} alone");
    }
    let reversed: Vec<Vec<T>> =
        tables.iter().zip(dims).map(|(t, &dim)| t.rchunks_exact(dim).flatten().copied().collect()).collect();
    let back: Vec<T> = transform(map, &reversed).rchunks_exact(map.output_dim()).flatten().copied().collect();
    assert!(back == whole, "reversed rows");
    // No rows, no features, no error.
    let none: Vec<Vec<T>> = tables.iter().map(|_| vec![]).collect();
    assert_eq!(transform(map, &none), []);
}

/// The adjoint of one sketch against central differences of ⟨g, Φ(x)⟩, in every coordinate.
pub fn check_gradient(spec: &Spec, rows: usize) {
    let sketch: Sketch<f64> = spec.sketch().unwrap();
    let dims = sketch.input_dims().to_vec();
    let mut tables: Vec<Vec<f64>> =
        dims.iter().zip(1..).map(|(&dim, seed)| uniform(seed, rows * dim, -1.0, 1.0)).collect();
    let cotangent = uniform(9, rows * spec.features, -1.0, 1.0);
    let mut gradients: Vec<Vec<f64>> = tables.iter().map(|table| vec![f64::NAN; table.len()]).collect();
    {
        let inputs: Vec<Input<'_, f64>> = tables.iter().zip(&dims).map(|(t, &dim)| dense(t, dim).into()).collect();
        let mut out: Vec<RowsMut<'_, f64>> =
            gradients.iter_mut().zip(&dims).map(|(g, &dim)| RowsMut::new(g, rows, dim).unwrap()).collect();
        sketch.vjp_into(&inputs, dense(&cotangent, spec.features), &mut out).unwrap();
    }
    let value = |tables: &[Vec<f64>]| -> f64 {
        transform(&sketch, tables).iter().zip(&cotangent).map(|(feature, g)| feature * g).sum()
    };
    let step = 1e-5;
    for table in 0..tables.len() {
        for at in 0..tables[table].len() {
            let x = tables[table][at];
            tables[table][at] = x + step;
            let above = value(&tables);
            tables[table][at] = x - step;
            let below = value(&tables);
            tables[table][at] = x;
            let (got, want) = (gradients[table][at], (above - below) / (2.0 * step));
            // Rounding of the difference is about 1e-16 / step times the size of the sum, truncation about step².
            assert!((got - want).abs() < 1e-7 * (1.0 + want.abs()), "{spec:?} [{table}][{at}]: {got} {want}");
        }
    }
}
