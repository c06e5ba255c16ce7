//! Features in about as many numbers as they span dimensions.

use std::ops::Range;

use argand::rng::{Purpose, Stream};
use argand::{FeatureMap, Rows, Scalar, Spec};
use argand_learn::{Gram, Labels, Pipeline, Recipe, Targets};
use argand_linalg::{Matrix, View, ViewMut, product};

use crate::Error;
use crate::data::Part;

/// A sketch with many features, in an orthonormal basis of (nearly) the space they span.
///
/// # Formula
/// A large sketch has more features than the kernel has dimensions that matter. With SΦ, r random signed sums of the features Φ of all
/// rows, and an orthonormal basis Q of its row space, ΦQ replaces Φ: its kernel is ΦQQᵀΦᵀ, and a row loses
/// ‖φ‖² − ‖Qᵀφ‖². If any row of a sample loses more than [`LOSS`] of ‖φ‖², features stay unchanged.
///
/// Features are polynomials of degree p in the d̃ columns of x̃ = (√γ x, √ν), which span C(d̃ + p − 1, p) dimensions however many features
/// there are: with such an r, nothing is lost. Spherical features are not polynomials, and stay unchanged if they would lose too much.
///
/// # Reference
/// Halko, Martinsson and Tropp (2011), "Finding structure with randomness", Section 4, with the sums of Clarkson and Woodruff (2013).
///
/// # Cost
/// About 4Dr² operations, and 2Dr per row, to learn in r dimensions instead of D.
pub(crate) struct Spanned<'a> {
    pipeline: &'a Pipeline<f32>,
    basis: Option<Basis>,
}

/// A D × r matrix, column by column.
struct Basis {
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

/// Fewer features would save little time.
const MANY: usize = 8192;

/// Sums that each row enters.
const SUMS: usize = 4;

/// The share of its squared norm, and so of its prior variance, that a row may lose. On Letter at p = 7 and D = 8192, negative
/// log-likelihoods of .5 change by less than 1e-4.
const LOSS: f64 = 2e-4;

/// Rows checked for loss.
const SAMPLE: usize = 256;

impl<'a> Spanned<'a> {
    /// For these rows.
    pub(crate) fn new(pipeline: &'a Pipeline<f32>, inputs: &[Rows<'_, f32>]) -> Result<Self, Error> {
        match dimensions(&pipeline.recipe().spec, inputs.iter().map(Rows::rows).sum()) {
            Some(dim) => Self::with_dimensions(pipeline, inputs, dim),
            None => Ok(Self { pipeline, basis: None }),
        }
    }

    fn with_dimensions(pipeline: &'a Pipeline<f32>, inputs: &[Rows<'_, f32>], dim: usize) -> Result<Self, Error> {
        let spec = &pipeline.recipe().spec;
        let mut sums = Matrix::zeros(spec.features, dim);
        let mut stream = Stream::new(spec.seed, Purpose::Sample, 12, 0);
        let choices = u32::try_from(2 * dim).unwrap_or(u32::MAX);
        for &input in inputs {
            pipeline.for_each_block(&[input.into()], |_, features| {
                for row in (0..features.rows()).flat_map(|row| [row; SUMS]) {
                    let choice = stream.below(choices) as usize;
                    let sign = if choice.is_multiple_of(2) { 1.0 } else { -1.0 };
                    let sum = sums.column_mut(choice / 2);
                    sum.iter_mut().zip(features.row(row)).for_each(|(sum, &value)| *sum += sign * f64::from(value));
                }
                Ok(())
            })?;
        }
        let basis = sums.orthonormal_basis();
        let values = (0..dim).flat_map(|column| basis.column(column)).map(|&value| f32::from_f64(value)).collect();
        let basis = Basis { rows: spec.features, columns: dim, values };
        let loss = inputs.last().map_or(Ok(0.0), |&input| largest_loss(pipeline, input, &basis))?;
        Ok(Self { pipeline, basis: (loss <= LOSS).then_some(basis) })
    }

    /// The recipe that models see; only its number of features is right.
    pub(crate) fn recipe(&self) -> Result<Recipe, Error> {
        let recipe = self.pipeline.recipe();
        let Some(basis) = &self.basis else { return Ok(recipe.clone()) };
        // A real sketch has any number of features.
        let method = "rademacher".parse()?;
        let mut spec = recipe.spec.clone().with_features(basis.columns).with_method(method);
        spec.fit = None;
        Ok(spec.into())
    }

    /// The sums of rows, every class apart.
    pub(crate) fn gram(&self, rows: &Part, classes: usize) -> Result<Gram, Error> {
        let (input, targets) = (rows.rows()?, Targets::ClassesApart(classes));
        if self.basis.is_none() {
            let mut summing = self.pipeline.summing(targets, u64::MAX)?;
            summing.update(&[input.into()], Labels::Classes(&rows.labels))?;
            return Ok(summing.finish()?);
        }
        let mut gram = Gram::new_within(&self.recipe()?, targets, u64::MAX)?;
        self.for_each_block(input, |range, features| gram.update(features, Labels::Classes(&rows.labels[range])))?;
        Ok(gram)
    }

    /// As [`Pipeline::for_each_block`].
    pub(crate) fn for_each_block(
        &self,
        input: Rows<'_, f32>,
        mut consume: impl FnMut(Range<usize>, Rows<'_, f32>) -> Result<(), argand::Error>,
    ) -> Result<(), Error> {
        Ok(self.pipeline.for_each_block(&[input.into()], |range, features| match &self.basis {
            None => consume(range, features),
            Some(basis) => consume(range.clone(), Rows::new(&rotate(features, basis), range.len(), basis.columns)?),
        })?)
    }
}

/// ΦQ, row by row.
fn rotate(features: Rows<'_, f32>, basis: &Basis) -> Vec<f32> {
    let rows = features.rows();
    let phi: Vec<f32> = (0..rows).flat_map(|row| features.row(row)).copied().collect();
    let phi = View::by_columns(&phi, basis.rows, rows);
    let mut rotated = vec![0.0; rows * basis.columns];
    let out = ViewMut::by_columns(&mut rotated, basis.columns, rows);
    product(out, View::by_columns(&basis.values, basis.rows, basis.columns).transpose(), phi, 1.0);
    rotated
}

/// The largest share of its squared norm that any of the first rows loses in a basis.
fn largest_loss(pipeline: &Pipeline<f32>, input: Rows<'_, f32>, basis: &Basis) -> Result<f64, Error> {
    let (rows, columns) = (input.rows().min(SAMPLE), input.columns());
    let sample: Vec<f32> = (0..rows).flat_map(|row| input.row(row)).copied().collect();
    let features = pipeline.transform(&[Rows::new(&sample, rows, columns)?.into()])?;
    let rotated = rotate(Rows::new(&features, rows, basis.rows)?, basis);
    let square = |row: &[f32]| row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
    let losses = features.chunks(basis.rows).zip(rotated.chunks(basis.columns)).map(|(before, after)| {
        let before = square(before);
        // A row of zeros has nothing to lose.
        if before > 0.0 { 1.0 - square(after) / before } else { 0.0 }
    });
    Ok(losses.fold(0.0, f64::max))
}

/// The dimension r to learn in for this many rows, where that pays.
pub(crate) fn dimensions(spec: &Spec, rows: usize) -> Option<usize> {
    let kernel = spec.kernel.polynomial()?;
    let variables = spec.inputs.as_slice()[0] + usize::from(kernel.coef0 > 0.0);
    let most = spec.features / 4;
    let dim = monomials(variables, kernel.degree).map_or(most, |dim| dim.min(most));
    (spec.features >= MANY && rows >= 2 * dim).then_some(dim)
}

/// The number of monomials of a degree in this many variables, if it does not overflow.
fn monomials(variables: usize, degree: usize) -> Option<usize> {
    (1..=degree).try_fold(1_usize, |count, i| Some(count.checked_mul(variables.checked_add(i - 1)?)? / i))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: usize = 90;

    /// A sketch of random rows in four columns.
    fn problem(degree: usize, features: usize, method: &str) -> (Pipeline<f32>, Vec<f32>) {
        let mut spec =
            Spec::polynomial(4).with_degree(degree).with_features(features).with_method(method.parse().unwrap());
        spec = spec.with_gamma(0.5).with_coef0(0.5);
        let mut stream = Stream::new(1, Purpose::Sample, 0, 0);
        let rows = (0..ROWS * 4).map(|_| f32::from_f64(stream.complex_normal().0)).collect();
        (Recipe::from(spec).pipeline::<f32>().unwrap(), rows)
    }

    /// The features of all rows.
    fn features(spanned: &Spanned<'_>, rows: Rows<'_, f32>) -> Vec<f32> {
        let mut all = Vec::new();
        let gather = |_, features: Rows<'_, f32>| {
            (0..features.rows()).for_each(|row| all.extend_from_slice(features.row(row)));
            Ok(())
        };
        spanned.for_each_block(rows, gather).unwrap();
        let spec = spanned.recipe().unwrap().spec;
        spec.validate().unwrap();
        assert_eq!(all.len(), rows.rows() * spec.features);
        all
    }

    #[test]
    fn spherical_features_have_a_span_too() {
        let (pipeline, rows) = problem(3, 64, "srf");
        let rows = Rows::new(&rows, ROWS, 4).unwrap();
        let spanned = Spanned::with_dimensions(&pipeline, &[rows], 60).unwrap();
        assert_eq!(features(&spanned, rows).len(), ROWS * 60);
    }

    /// Polynomials of degree 3 in 4 variables and the constant span 35 dimensions.
    #[test]
    fn features_in_their_span_have_the_same_kernel() {
        for method in
            ["ctr-product-srht", "gaussian", "tensor-sketch", "hierarchical-ctr-rademacher", "craft-product-srht"]
        {
            let (pipeline, rows) = problem(3, 64, method);
            let rows = Rows::new(&rows, ROWS, 4).unwrap();
            let spanned = Spanned::with_dimensions(&pipeline, &[rows], 35).unwrap();
            assert_eq!(spanned.recipe().unwrap().spec.features, 35, "{method}");
            let both = [(pipeline.transform(&[rows.into()]).unwrap(), 64), (features(&spanned, rows), 35)];
            let product = |(of, dim): &(Vec<f32>, usize), i: usize, j: usize| -> f32 {
                of[i * dim..][..*dim].iter().zip(&of[j * dim..][..*dim]).map(|(a, b)| a * b).sum()
            };
            for (i, j) in (0..ROWS).flat_map(|i| (0..ROWS).map(move |j| (i, j))) {
                let [want, got] = both.each_ref().map(|features| product(features, i, j));
                let size = (product(&both[0], i, i) * product(&both[0], j, j)).sqrt();
                assert!((want - got).abs() < 1e-5 * size, "{method} {i} {j}: {want} {got}");
            }
        }
    }

    #[test]
    fn features_that_would_lose_something_are_left_alone() {
        for (method, dim) in [("ctr-product-srht", 30), ("srf", 20)] {
            let (pipeline, rows) = problem(3, 64, method);
            let rows = Rows::new(&rows, ROWS, 4).unwrap();
            let spanned = Spanned::with_dimensions(&pipeline, &[rows], dim).unwrap();
            assert_eq!(features(&spanned, rows), pipeline.transform(&[rows.into()]).unwrap(), "{method}");
        }
    }

    #[test]
    fn only_many_features_of_more_rows_are_worth_a_basis() {
        for (features, count, dim) in [(MANY, ROWS, 35), (MANY - 2, ROWS, MANY - 2), (MANY, 69, MANY)] {
            let (pipeline, rows) = problem(3, features, "ctr-product-srht");
            let rows = Rows::new(&rows[..count * 4], count, 4).unwrap();
            let spanned = Spanned::new(&pipeline, &[rows]).unwrap();
            assert_eq!(spanned.recipe().unwrap().spec.features, dim);
        }
    }
}
