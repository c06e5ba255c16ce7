//! What sketches of the powers of a kernel cost a model that learns from them.

use argand_linalg::{Cholesky, Matrix, product};

use crate::spec::Kernel;
use crate::theory::Sample;

/// The penalty λ of the assumed model, in means of k(x, x).
const PENALTY: f64 = 1e-3;

/// For the powers n = 0, 1, …, `most`: the cost Cₙ of a sketch with one feature, and that of leaving out all powers above n. `None` if the kernel
/// matrix is too large for `f64`.
///
/// # Formula
/// Let Kₙ be the kernel matrix of aₙ⟨x, y⟩ⁿ alone, K the sum of all and A = (K + λI)⁻¹. A ridge model of targets y predicts KAy, and an error E of the
/// kernel matrix changes that by λAEAy, to first order. On average over targets with the covariance K + λI, as a Gaussian process has them, the square
/// of the change is λ² tr(A E A E A). A sketch of Kₙ with D features has E = (1/D) Σ zzᵀ − Kₙ and, if the z are Gaussian,
/// E[E A E] = (tr(AKₙ) Kₙ + KₙAKₙ)/D. Without the second term, which is smaller by the rank of Kₙ,
///
/// Cₙ = tr(AKₙ) tr(A²Kₙ).
///
/// Leaving out T = Σ_{n>N} Kₙ means E = −T. As far as T is a multiple of I it acts like a larger λ, which whoever fits a model chooses anyway: with
/// T' = T − (tr T/m) I, the cost is tr(A T' A T' A). The factor λ² is the same for all.
///
/// # Cost
/// 4m³ operations for every power, with m rows.
pub(super) fn costs(kernel: &Kernel, sample: &Sample, most: usize) -> Option<[Vec<f64>; 2]> {
    let inner = sample.inner_products();
    let norms: Vec<f64> = sample.squared_norms().collect();
    let size = norms.len();
    let matrix = |entry: &dyn Fn(f64, f64) -> f64| {
        Matrix::from_fn(size, size, |row, column| entry(inner[row * size + column], norms[row] + norms[column]))
    };
    // g(x) g(y), the factor of all powers.
    let radial = |norms: f64| kernel.radial().map_or(1.0, |scale: f64| libm::exp(-norms / (2.0 * scale * scale)));
    let whole = matrix(&|inner, norms| kernel.value(inner, norms));
    let trace = |matrix: &Matrix| (0..size).map(|at| matrix[(at, at)]).sum::<f64>();
    let penalty = PENALTY * trace(&whole) / size as f64;
    let mut inverse = Matrix::identity(size);
    let factor =
        Cholesky::new(Matrix::from_fn(size, size, |i, j| whole[(i, j)] + if i == j { penalty } else { 0.0 })).ok()?;
    factor.solve_lower(inverse.view_mut());
    factor.solve_upper(inverse.view_mut());
    let square = times(&inverse, &inverse);
    let mut left = whole;
    let (mut sketched, mut left_out) = (Vec::with_capacity(most + 1), Vec::with_capacity(most + 1));
    for degree in 0..=most {
        let coefficient = kernel.coefficient(degree);
        if coefficient > 0.0 {
            let power = matrix(&|inner, norms| coefficient * libm::pow(inner, degree as f64) * radial(norms));
            sketched.push(along(&inverse, &power) * along(&square, &power));
            left = Matrix::from_fn(size, size, |row, column| left[(row, column)] - power[(row, column)]);
        } else {
            sketched.push(0.0);
        }
        let mean = trace(&left) / size as f64;
        let other = Matrix::from_fn(size, size, |i, j| left[(i, j)] - if i == j { mean } else { 0.0 });
        let product = times(&inverse, &other);
        // tr(A T' A T' A) is the sum of the entries of (A T')² times those of A.
        left_out.push(along(&inverse, &times(&product, &product)).max(0.0));
    }
    sketched.iter().chain(&left_out).all(|cost| cost.is_finite()).then_some([sketched, left_out])
}

fn times(a: &Matrix, b: &Matrix) -> Matrix {
    let mut out = Matrix::zeros(a.rows(), b.columns());
    product(out.view_mut(), a.view(), b.view(), 1.0);
    out
}

/// The sum of all Aᵢⱼ Bᵢⱼ: tr(AᵀB).
pub(super) fn along(a: &Matrix, b: &Matrix) -> f64 {
    (0..a.columns()).map(|at| a.column(at).iter().zip(b.column(at)).map(|(a, b)| a * b).sum::<f64>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::FeatureMap;
    use crate::rng::{Purpose, Stream};
    use crate::rows::Rows;
    use crate::spec::Spec;

    /// Against simulation, with features that are Gaussian: those of ⟨x, y⟩ alone. The term that is left out is one part in fifty, as 50 is the rank.
    #[test]
    fn the_cost_of_a_sketch_is_what_predictions_change_by() {
        let (rows, dim, features, sketches) = (60, 50, 400, 300);
        let mut stream = Stream::new(1, Purpose::Sample, 5, 0);
        let x: Vec<f64> = (0..rows * dim).map(|_| (stream.uniform() - 0.5) / (dim as f64).sqrt()).collect();
        let inputs = [Rows::new(&x, rows, dim).unwrap().into()];
        let kernel = Kernel::Series { coefficients: vec![0.0, 1.0] };
        let spec = Spec::polynomial(dim).with_kernel(kernel.clone()).with_method("nystrom".parse().unwrap());
        let sample = Sample::centred(&spec, &inputs, None, 1.0);
        let [sketched, left_out] = costs(&kernel, &sample, 1).unwrap();
        assert!(left_out[1] < 1e-12 * left_out[0] && sketched[0] == 0.0, "{left_out:?}");

        let exact = crate::theory::kernel_matrix(&spec, &inputs).unwrap();
        let exact = Matrix::from_fn(rows, rows, |i, j| exact[i * rows + j]);
        let penalty = PENALTY * (0..rows).map(|at| exact[(at, at)]).sum::<f64>() / rows as f64;
        let regular = Matrix::from_fn(rows, rows, |i, j| exact[(i, j)] + if i == j { penalty } else { 0.0 });
        let factor = Cholesky::new(regular).unwrap();
        let mut inverse = Matrix::identity(rows);
        factor.solve_lower(inverse.view_mut());
        factor.solve_upper(inverse.view_mut());
        let mut sum = 0.0;
        for seed in 0..sketches {
            let sketch = Spec::polynomial(dim).with_degree(1).with_features(features).with_seed(seed);
            let sketch = sketch.with_method("gaussian".parse().unwrap()).sketch::<f64>().unwrap();
            let z = sketch.transform(&inputs).unwrap();
            let dot = |i: usize, j: usize| -> f64 {
                z[i * features..][..features].iter().zip(&z[j * features..]).map(|(a, b)| a * b).sum()
            };
            let error = Matrix::from_fn(rows, rows, |i, j| dot(i, j) - exact[(i, j)]);
            let change = times(&inverse, &error);
            sum += along(&inverse, &times(&change, &change));
        }
        let measured = sum / sketches as f64 * features as f64;
        // 300 sketches of 50 directions leave about 1 %.
        let ratio = measured / sketched[1];
        assert!((0.95..1.08).contains(&ratio), "{ratio}");
    }

    /// What is left out and the same in all directions costs nothing: a penalty replaces it.
    #[test]
    fn a_multiple_of_the_identity_may_be_left_out() {
        let x: Vec<f64> = (0..16).map(|at| f64::from(u8::from(at % 5 == 0))).collect();
        let inputs = [Rows::new(&x, 4, 4).unwrap().into()];
        let kernel = Kernel::Series { coefficients: vec![0.5, 1.0, 1.0] };
        let spec = Spec::polynomial(4).with_kernel(kernel.clone()).with_method("nystrom".parse().unwrap());
        let [sketched, left_out] = costs(&kernel, &Sample::centred(&spec, &inputs, None, 1.0), 2).unwrap();
        // Rows are orthogonal: all powers above 0 are the identity.
        assert!(left_out.iter().all(|&cost| cost < 1e-20) && sketched[1] > 0.0 && sketched[1] == sketched[2]);
    }
}
