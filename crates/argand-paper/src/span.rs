//! Features in as many numbers as the space has dimensions that they span.

use std::ops::Range;

use argand::model::{Pipeline, Recipe};
use argand::rng::{Purpose, Stream};
use argand::{Base, FeatureMap, Rows, Scalar, Spec};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};

use crate::Error;

/// A sketch whose features, where these are more numbers than the space has dimensions that they span, are given in an orthonormal basis of it.
///
/// # Formula
/// Features are polynomials of degree p in the d̃ columns of x̃ = (√γ x, √ν), which span C(d̃ + p − 1, p) dimensions however many features
/// there are. With an orthonormal basis Q of these, Φ = ΦQQᵀ, so that ΦQ has the kernel of Φ, and with it all predictions.
///
/// # Cost
/// For r dimensions some 4Dr² operations, and 2Dr per row, to learn in r dimensions instead of D.
pub(crate) struct Spanned<'a> {
    pipeline: &'a Pipeline<f32>,
    /// D × r, if r < D.
    basis: Option<Mat<f32>>,
}

impl<'a> Spanned<'a> {
    pub(crate) fn new(pipeline: &'a Pipeline<f32>) -> Result<Self, Error> {
        let spec = pipeline.recipe().spec;
        let columns = spec.inputs.as_slice()[0];
        let variables = columns + usize::from(spec.kernel.coef0 > 0.0);
        let dim = monomials(variables, spec.kernel.degree).filter(|&dim| dim < spec.features);
        // Spherical features are no polynomials.
        let Some(dim) = dim.filter(|_| spec.method.base != Base::Spherical) else {
            return Ok(Self { pipeline, basis: None });
        };
        // The features of as many points in general position.
        let mut stream = Stream::new(spec.seed, Purpose::Sample, 12, 0);
        let points: Vec<f64> = (0..dim * columns).map(|_| stream.complex_normal().0).collect();
        let features = spec.sample::<f64>()?.transform(&[Rows::new(&points, dim, columns)?.into()])?;
        let basis = MatRef::from_column_major_slice(&features, spec.features, dim).qr().compute_thin_Q();
        let basis = Mat::from_fn(spec.features, dim, |row, column| f32::from_f64(basis[(row, column)]));
        Ok(Self { pipeline, basis: Some(basis) })
    }

    /// What models take the features to come from: only their number is right.
    pub(crate) fn recipe(&self) -> Result<Recipe, Error> {
        let recipe = self.pipeline.recipe();
        let Some(basis) = &self.basis else { return Ok(recipe) };
        // A real sketch has any number of features.
        let method = "rademacher".parse()?;
        Ok(Spec { features: basis.ncols(), method, ..recipe.spec }.into())
    }

    /// As [`Pipeline::for_each_block`].
    pub(crate) fn for_each_block(
        &self,
        input: Rows<'_, f32>,
        mut consume: impl FnMut(Range<usize>, Rows<'_, f32>) -> Result<(), argand::Error>,
    ) -> Result<(), Error> {
        Ok(self.pipeline.for_each_block(&[input.into()], |range, features| match &self.basis {
            None => consume(range, features),
            Some(basis) => consume(range.clone(), Rows::new(&rotate(features, basis), range.len(), basis.ncols())?),
        })?)
    }
}

/// ΦQ, row by row.
fn rotate(features: Rows<'_, f32>, basis: &Mat<f32>) -> Vec<f32> {
    let (rows, dim) = (features.rows(), basis.ncols());
    let phi = Mat::from_fn(basis.nrows(), rows, |column, row| features.row(row)[column]);
    let mut rotated = vec![0.0; rows * dim];
    let out = MatMut::from_column_major_slice_mut(&mut rotated, dim, rows);
    matmul(out, Accum::Replace, basis.transpose(), phi.as_ref(), 1.0, Par::Seq);
    rotated
}

/// Monomials of a degree in so many variables, if they can be counted.
fn monomials(variables: usize, degree: usize) -> Option<usize> {
    (1..=degree).try_fold(1_usize, |count, i| Some(count.checked_mul(variables.checked_add(i - 1)?)? / i))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of some rows, as they are and in their span.
    fn both(columns: usize, degree: usize, features: usize, method: &str) -> [(Vec<f32>, usize); 2] {
        let mut spec = Spec::new(columns, degree, features).with_method(method.parse().unwrap());
        (spec.kernel.gamma, spec.kernel.coef0) = (0.5, 0.5);
        let rows: Vec<f32> = (0..7 * columns).map(|at| ((at * 7) % 5) as f32 - 1.5).collect();
        let rows = Rows::new(&rows, 7, columns).unwrap();
        let pipeline = Recipe::from(spec).sample::<f32>().unwrap();
        let spanned = Spanned::new(&pipeline).unwrap();
        let mut rotated = Vec::new();
        let gather = |_, features: Rows<'_, f32>| {
            (0..features.rows()).for_each(|row| rotated.extend_from_slice(features.row(row)));
            Ok(())
        };
        spanned.for_each_block(rows, gather).unwrap();
        let dim = spanned.recipe().unwrap().spec.features;
        assert_eq!(rotated.len(), 7 * dim);
        [(pipeline.transform(&[rows.into()]).unwrap(), features), (rotated, dim)]
    }

    #[test]
    fn features_in_their_span_have_the_same_kernel() {
        for method in
            ["ctr-product-srht", "gaussian", "tensor-sketch", "hierarchical-ctr-rademacher", "craft-product-srht"]
        {
            let both = both(4, 3, 64, method);
            // Monomials of degree 3 in 4 variables and the constant.
            assert_eq!(both[1].1, 35, "{method}");
            let product = |(of, dim): &(Vec<f32>, usize), i: usize, j: usize| -> f32 {
                of[i * dim..][..*dim].iter().zip(&of[j * dim..][..*dim]).map(|(a, b)| a * b).sum()
            };
            for (i, j) in (0..7).flat_map(|i| (0..7).map(move |j| (i, j))) {
                let [want, got] = both.each_ref().map(|features| product(features, i, j));
                let size = (product(&both[0], i, i) * product(&both[0], j, j)).sqrt();
                assert!((want - got).abs() < 1e-5 * size, "{method} {i} {j}: {want} {got}");
            }
        }
    }

    #[test]
    fn features_that_span_all_there_is_are_left_alone() {
        for (degree, features, method) in [(3, 35, "gaussian"), (3, 64, "srf"), (30, 64, "rademacher")] {
            let [own, spanned] = both(4, degree, features, method);
            assert_eq!(own, spanned, "{method}");
        }
    }
}
