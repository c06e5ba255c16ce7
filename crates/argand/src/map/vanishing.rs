//! Rows whose features would all be lost to underflow.

use crate::error::Error;
use crate::rows::Input;
use crate::scalar::Scalar;
use crate::spec::{Method, Polynomial, Spec};

/// Refuses rows whose features would all be lost below the range of `T`. Every back end asks after it has computed features: rows that overflow are reported first.
///
/// # Errors
/// [`Error::Underflow`] with the first such row.
pub fn check_vanishing<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>]) -> Result<(), Error> {
    first_vanishing(spec, inputs).map_or(Ok(()), |row| Err(Error::Underflow { row, dtype: T::NAME }))
}

/// The first row that is not zero but whose features are below the normal range of `T`.
///
/// # Formula
/// The D features of a row have the expected square norm k(x, x) = Πᵢ (γ‖xᵢ‖² + ν), so a typical one is √(k(x, x)/D). With one factor,
/// features are as exact as the rows, and maps other than products have a constant, cosines or directions of rows: none of them can vanish.
///
/// # Cost
/// One number per row, unless numbers are tiny.
fn first_vanishing<T: Scalar>(spec: &Spec, inputs: &[Input<'_, T>]) -> Option<usize> {
    let (Method::Product(_), Some(Polynomial { degree, gamma, coef0 })) = (spec.method, spec.kernel.polynomial())
    else {
        return None;
    };
    if degree == 1 || gamma == 0.0 {
        return None;
    }
    // ln √k(x, x) of the smallest row whose features are normal numbers.
    let least = T::MIN_POSITIVE.to_f64().ln() + 0.5 * (spec.features as f64).ln();
    let per_factor = (2.0 * least / degree as f64).exp();
    if per_factor <= coef0 {
        return None;
    }
    let enough = ((per_factor - coef0) / gamma).sqrt();
    let repeated = (degree / inputs.len().max(1)) as f64;
    let vanishes = |row: &usize| {
        if inputs.iter().all(|input| any(input, *row, |value| value.abs() >= enough)) {
            return false;
        }
        let factor = |input: &Input<'_, T>| (gamma * square_norm(input, *row) + coef0).ln();
        let logarithm = 0.5 * repeated * inputs.iter().map(factor).sum::<f64>();
        // A kernel that is exactly 0 has the features it should have.
        logarithm > f64::NEG_INFINITY && logarithm < least
    };
    (0..inputs.first().map_or(0, Input::rows)).find(vanishes)
}

/// Whether an entry of a row is such.
fn any<T: Scalar>(input: &Input<'_, T>, row: usize, such: impl Fn(f64) -> bool) -> bool {
    match input {
        Input::Dense(rows) => rows.row(row).iter().any(|value| such(value.to_f64())),
        Input::Sparse(rows) => rows.row(row).any(|(_, value)| such(value.to_f64())),
    }
}

/// ‖x‖²; entries of the same column count apart, which is close enough here.
fn square_norm<T: Scalar>(input: &Input<'_, T>, row: usize) -> f64 {
    let square = |value: T| value.to_f64() * value.to_f64();
    match input {
        Input::Dense(rows) => rows.row(row).iter().map(|&value| square(value)).sum(),
        Input::Sparse(rows) => rows.row(row).map(|(_, value)| square(value)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, FeatureMap, Rows, Scalar, Spec};

    fn features<T: Scalar>(spec: &Spec, row: [f64; 4]) -> Result<Vec<T>, Error> {
        let x = [[1.0; 4], row].concat().into_iter().map(T::from_f64).collect::<Vec<_>>();
        spec.sketch()?.transform(&[Rows::new(&x, 2, 4)?.into()])
    }

    /// Norms 1e-30 to 1e30 and degrees up to 20: features are accurate, or an error says which way they left the range.
    #[test]
    fn features_out_of_range_are_errors_in_both_directions() {
        let (mut under, mut over, mut fine) = (0, 0, 0);
        for degree in 2..=20 {
            for exponent in -30..=30 {
                let spec = Spec::polynomial(4).with_degree(degree).with_features(64);
                let scale = 10_f64.powi(exponent);
                let row = [0.3, -0.4, 0.5, 0.7].map(|value| value * scale);
                let exact = features::<f64>(&spec, [0.3, -0.4, 0.5, 0.7]).unwrap();
                match features::<f32>(&spec, row) {
                    Err(Error::Underflow { row: 1, dtype: "f32" }) => under += 1,
                    Err(Error::Overflow { row: 1, dtype: "f32" }) => over += 1,
                    Ok(got) => {
                        fine += 1;
                        let factor = scale.powi(i32::try_from(degree).unwrap());
                        let size = exact[64..].iter().fold(0.0_f64, |most, value| most.max(value.abs()));
                        let close = |(got, exact): (&f32, &f64)| (f64::from(*got) / factor - exact).abs() < 1e-4 * size;
                        assert!(got[64..].iter().zip(&exact[64..]).all(close), "degree {degree}, 1e{exponent}");
                    }
                    Err(other) => unreachable!("{other}"),
                }
            }
        }
        assert!(under > 200 && over > 200 && fine > 150, "{under} {over} {fine}");
    }

    #[test]
    fn what_cannot_vanish_is_no_error() {
        let spec = Spec::polynomial(4).with_degree(5).with_features(8);
        assert_eq!(features::<f32>(&spec, [0.0; 4]).unwrap()[8..], [0.0; 8]);
        assert!(matches!(features::<f32>(&spec, [1e-10; 4]), Err(Error::Underflow { row: 1, .. })));
        assert!(features::<f64>(&spec, [1e-10; 4]).is_ok());
        assert!(features::<f32>(&spec.clone().with_coef0(1.0), [1e-10; 4]).is_ok());
        assert!(features::<f32>(&spec.clone().with_gamma(1e10), [1e-10; 4]).is_ok());
        assert!(features::<f32>(&spec.with_degree(1), [1e-44; 4]).is_ok());
        // A factor of zeros makes the kernel exactly zero; a tiny one beside a large one does not vanish.
        let product = Spec::tensor_product(&[1, 1]).with_features(4);
        let of = |x: f32, y: f32| {
            let (x, y) = ([x], [y]);
            let views = [&x, &y].map(|value| Rows::new(value, 1, 1).unwrap().into());
            product.sketch::<f32>().unwrap().transform(&views)
        };
        assert!(of(0.0, 1e-30).is_ok() && of(1e-30, 1e20).is_ok());
        assert!(matches!(of(1e-30, 1e-20), Err(Error::Underflow { row: 0, .. })));
    }
}
