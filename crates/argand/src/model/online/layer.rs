//! A softmax layer on features: its loss, its gradients, and its file.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{Argument, Error};
use crate::map::FeatureMap;
use crate::model::archive::Archive;
use crate::model::recipe::Recipe;
use crate::rows::{Input, Rows, RowsMut};
use crate::scalar::Scalar;

/// What is done to the features of a row before they are classified, as bilinear pooling does it.
///
/// # Formula
/// Signed square root: s = z / √(|z| + 10⁻¹⁰), which is sign(z) √|z| with a finite slope at zero. Then L2
/// normalisation: u = s / ‖s‖, and 0 for s = 0.
///
/// # Reference
/// Gao et al. (2016), Sec. 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pooling {
    /// Take signed square roots.
    pub signed_sqrt: bool,
    /// Then divide every row by its norm.
    pub l2: bool,
}

/// Bounds the slope of the signed square root at zero by 10⁵.
const ROOT_OFFSET: f32 = 1e-10;

impl Pooling {
    /// Pools rows of `columns` features in place.
    pub(super) fn apply(self, features: &mut [f32], columns: usize) {
        if self == Self::default() {
            return;
        }
        features.par_chunks_mut(columns).for_each(|row| pulp::Arch::new().dispatch(Pool { pooling: self, row }));
    }

    #[inline(always)]
    fn root(self, row: &mut [f32]) {
        if self.signed_sqrt {
            for value in row {
                *value /= (value.abs() + ROOT_OFFSET).sqrt();
            }
        }
    }

    /// From gradients with respect to pooled features to gradients with respect to the `raw` ones, in place.
    pub(super) fn backward(self, raw: &[f32], columns: usize, gradients: &mut [f32]) {
        if self == Self::default() {
            return;
        }
        gradients.par_chunks_mut(columns).zip(raw.par_chunks(columns)).for_each(|(gradient, raw)| {
            if self.l2 {
                let mut rooted = raw.to_vec();
                self.root(&mut rooted);
                let square = dot(&rooted, &rooted);
                if square == 0.0 {
                    // The slope is infinite there; the row stays where it is.
                    gradient.fill(0.0);
                    return;
                }
                let (along, norm) = (dot(&rooted, gradient) / square, square.sqrt());
                for (gradient, &rooted) in gradient.iter_mut().zip(&rooted) {
                    *gradient = f32::from_f64((f64::from(*gradient) - along * f64::from(rooted)) / norm);
                }
            }
            if self.signed_sqrt {
                for (gradient, raw) in gradient.iter_mut().zip(raw) {
                    let offset = raw.abs() + ROOT_OFFSET;
                    *gradient *= (0.5 * raw.abs() + ROOT_OFFSET) / (offset * offset.sqrt());
                }
            }
        });
    }
}

/// Pools one row. Every instruction set gives the same bits.
struct Pool<'a> {
    pooling: Pooling,
    row: &'a mut [f32],
}

impl WithSimd for Pool<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { pooling, row } = self;
        pooling.root(row);
        let norm = if pooling.l2 { dot(row, row).sqrt() } else { 0.0 };
        if norm > 0.0 {
            let factor = 1.0 / norm;
            for value in row {
                *value = f32::from_f64(f64::from(*value) * factor);
            }
        }
    }
}

/// ⟨a, b⟩ in double precision, summed in an order that depends on the length alone.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 16;
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let mut sum = 0.0;
    for lane in sums {
        sum += lane;
    }
    for (&a, &b) in rest_a.iter().zip(rest_b) {
        sum += f64::from(a) * f64::from(b);
    }
    sum
}

/// Loss and errors of a classifier on some rows; scores of blocks add up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Rows that were classified.
    pub rows: u64,
    /// Sum over the rows of −log P(label).
    pub loss_sum: f64,
    /// Rows whose most probable class is not their label.
    pub errors: u64,
}

impl Score {
    /// Mean negative log-likelihood, also called cross-entropy; NaN without rows.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.rows as f64
    }

    /// Fraction of rows that are classified wrongly; NaN without rows.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        self.errors as f64 / self.rows as f64
    }

    /// The score of these rows and of others.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            loss_sum: self.loss_sum + other.loss_sum,
            errors: self.errors + other.errors,
        }
    }
}

/// A linear layer with softmax on top of features.
///
/// # Formula
/// P(c | x) = softmax(W u + b)_c with u the [pooled](Pooling) features of x; the loss of a batch of n rows is
/// −(1/n) Σᵢ log P(yᵢ | xᵢ).
///
/// # Cost
/// Forward n·C·D multiplications for n rows, C classes and D features, and as many again for each of the gradients with
/// respect to weights and inputs, beside the cost of the feature map.
///
/// ```
/// use argand::model::online::{Pooling, SoftmaxLayer};
/// use argand::{FeatureMap, Rows, Spec};
/// let sketch = Spec::polynomial(3).with_degree(2).with_features(64).sketch::<f32>()?;
/// let layer = SoftmaxLayer::new(4, 64, Pooling::default())?;
/// let features = sketch.transform(&[Rows::new(&[1.0, 2.0, 3.0], 1, 3)?.into()])?;
/// // It starts at zero, knowing nothing.
/// assert_eq!(layer.probabilities(Rows::new(&features, 1, 64)?)?, [0.25; 4]);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SoftmaxLayer {
    pub(super) classes: usize,
    pub(super) features: usize,
    pub(super) pooling: Pooling,
    /// Weights, classes x features and row-major, then one bias per class.
    pub(super) parameters: Vec<f32>,
}

/// The most parameters of a layer: 1 GiB, of which training keeps five copies.
const MOST_PARAMETERS: usize = 1 << 28;

/// Features that are multiplied together. Fixed, so that sums do not depend on the number of threads.
pub(super) const COLUMN_BLOCK: usize = 1024;

/// Rows whose classes are scored together, likewise.
pub(super) const ROW_BLOCK: usize = 256;

impl SoftmaxLayer {
    /// A layer with weights and biases zero. The loss is convex in them: no start is better.
    ///
    /// # Errors
    /// [`Error::Invalid`] for fewer than two classes, no features, or more than 2²⁸ parameters.
    pub fn new(classes: usize, features: usize, pooling: Pooling) -> Result<Self, Error> {
        let parameters = Self::count(classes, features)?;
        Ok(Self { classes, features, pooling, parameters: vec![0.0; parameters] })
    }

    /// A layer with these weights (classes x features, row-major) and biases.
    ///
    /// # Errors
    /// As [`SoftmaxLayer::new`]; [`Error::Invalid`] for other lengths and [`Error::NotFinite`] for NaN and infinities.
    pub fn from_parameters(features: usize, pooling: Pooling, weights: &[f32], biases: &[f32]) -> Result<Self, Error> {
        let classes = biases.len();
        Self::count(classes, features)?;
        if weights.len() != classes * features {
            let expected = format!("{classes} classes x {features} features");
            return Err(Error::invalid(Argument::Weights, expected, weights.len()));
        }
        Input::from(Rows::new(weights, classes, features)?).check_finite(Argument::Weights)?;
        Input::from(Rows::new(biases, 1, classes)?).check_finite(Argument::Biases)?;
        Ok(Self { classes, features, pooling, parameters: [weights, biases].concat() })
    }

    pub(super) fn count(classes: usize, features: usize) -> Result<usize, Error> {
        if classes < 2 || u32::try_from(classes).is_err() {
            return Err(Error::invalid(Argument::Classes, "2 to 4294967295", classes));
        }
        if features == 0 {
            return Err(Error::invalid(Argument::Features, "at least 1", features));
        }
        let count = classes.checked_mul(features).and_then(|weights| weights.checked_add(classes));
        count.filter(|&count| count <= MOST_PARAMETERS).ok_or_else(|| {
            let expected = format!("classes x features of at most {MOST_PARAMETERS}");
            Error::invalid(Argument::Features, expected, format!("{classes} x {features}"))
        })
    }

    /// The number C of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The number D of features.
    #[must_use]
    pub fn features(&self) -> usize {
        self.features
    }

    /// What is done to the features first.
    #[must_use]
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// W, classes x features, row-major.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.parameters[..self.classes * self.features]
    }

    /// b, one per class.
    #[must_use]
    pub fn biases(&self) -> &[f32] {
        &self.parameters[self.classes * self.features..]
    }

    /// P(c | x) of every row from its features, rows x classes and row-major.
    ///
    /// # Errors
    /// [`Error::Invalid`] for features of another width, [`Error::NotFinite`], and [`Error::Overflow`] if products with the
    /// weights do not fit into `f32`.
    pub fn probabilities(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        let logits = self.logits(&self.pooled(features)?);
        let mut probabilities: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
        for (row, probabilities) in probabilities.chunks_mut(self.classes).enumerate() {
            softmax(probabilities, row)?;
        }
        Ok(probabilities)
    }

    /// Loss and errors on labelled rows, from their features.
    ///
    /// # Errors
    /// As [`SoftmaxLayer::probabilities`]; [`Error::Invalid`] for labels that are not one class below C per row.
    pub fn score(&self, features: Rows<'_, f32>, labels: &[u32]) -> Result<Score, Error> {
        self.check_labels(features.rows(), labels)?;
        let logits = self.logits(&self.pooled(features)?);
        let mut score = Score::default();
        for (row, (logits, &label)) in logits.chunks(self.classes).zip(labels).enumerate() {
            let of_label = logits[label as usize];
            let mut row_logits: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
            score.errors += u64::from(logits.iter().any(|&other| other > of_label));
            score.loss_sum += softmax(&mut row_logits, row)? - f64::from(of_label);
            score.rows += 1;
        }
        Ok(score)
    }

    /// The mean loss of a batch and its gradients: with respect to weights (classes x features) and biases into
    /// `gradients`, and, if asked, with respect to every input, so that the layer can sit on top of another model.
    ///
    /// # Formula
    /// With E = (softmax(Wuᵢ + b) − e_yᵢ)/n in row i: ∂/∂W = Eᵀ U, ∂/∂b = Σᵢ Eᵢ, ∂/∂U = E W, and from there through the
    /// pooling and [`FeatureMap::vjp_into`] to the inputs.
    ///
    /// # Errors
    /// As [`SoftmaxLayer::score`], and [`Error::Invalid`] for a batch without rows and for gradients of other sizes.
    pub fn loss_and_gradients(
        &self,
        map: &(impl FeatureMap<f32> + ?Sized),
        inputs: &[Input<'_, f32>],
        labels: &[u32],
        gradients: &mut Gradients,
        input_gradients: Option<&mut [RowsMut<'_, f32>]>,
    ) -> Result<f64, Error> {
        self.check_map(map)?;
        let rows = inputs.first().map_or(0, Input::rows);
        self.check_labels(rows, labels)?;
        if rows == 0 {
            return Err(Error::invalid(Argument::Labels, "at least one row", 0));
        }
        if (gradients.classes, gradients.parameters.len()) != (self.classes, self.parameters.len()) {
            let expected = format!("those of {} classes x {} features", self.classes, self.features);
            return Err(Error::invalid(Argument::Gradients, expected, format!("{} classes", gradients.classes)));
        }
        let raw = map.transform(inputs)?;
        let mut pooled = raw.clone();
        self.pooling.apply(&mut pooled, self.features);
        let mut residuals = Vec::new();
        let loss = self.differentiate(&pooled, labels, &mut residuals, &mut gradients.parameters)?;
        if let Some(input_gradients) = input_gradients {
            let mut cotangent = pooled;
            let residuals = MatRef::from_row_major_slice(&residuals, rows, self.classes);
            let weights = self.weight_matrix();
            let out = MatMut::from_row_major_slice_mut(&mut cotangent, rows, self.features);
            column_blocks(out).into_par_iter().for_each(|(start, out)| {
                let weights = weights.subcols(start, out.ncols());
                matmul(out, Accum::Replace, residuals, weights, 1.0, Par::Seq);
            });
            self.pooling.backward(&raw, self.features, &mut cotangent);
            map.vjp_into(inputs, Rows::new(&cotangent, rows, self.features)?, input_gradients)?;
        }
        Ok(loss)
    }

    /// A copy of features, pooled.
    fn pooled(&self, features: Rows<'_, f32>) -> Result<Vec<f32>, Error> {
        if features.columns() != self.features {
            return Err(Error::invalid(Argument::Features, format!("{} columns", self.features), features.columns()));
        }
        Input::from(features).check_finite(Argument::Features)?;
        let mut pooled: Vec<f32> = (0..features.rows()).flat_map(|row| features.row(row)).copied().collect();
        self.pooling.apply(&mut pooled, self.features);
        Ok(pooled)
    }

    fn weight_matrix(&self) -> MatRef<'_, f32> {
        MatRef::from_row_major_slice(self.weights(), self.classes, self.features)
    }

    /// W u + b of every row of pooled features.
    fn logits(&self, features: &[f32]) -> Vec<f32> {
        let weights = self.weight_matrix();
        let of_block = |block: &[f32]| {
            let rows = block.len() / self.features;
            let block = MatRef::from_row_major_slice(block, rows, self.features);
            let parts: Vec<Vec<f32>> = (0..self.features.div_ceil(COLUMN_BLOCK))
                .into_par_iter()
                .map(|part| {
                    let start = part * COLUMN_BLOCK;
                    let width = COLUMN_BLOCK.min(self.features - start);
                    let mut products = vec![0.0; rows * self.classes];
                    let out = MatMut::from_row_major_slice_mut(&mut products, rows, self.classes);
                    let (block, weights) = (block.subcols(start, width), weights.subcols(start, width));
                    matmul(out, Accum::Replace, block, weights.transpose(), 1.0, Par::Seq);
                    products
                })
                .collect();
            let mut logits = self.biases().repeat(rows);
            for part in parts {
                logits.iter_mut().zip(part).for_each(|(sum, product)| *sum += product);
            }
            logits
        };
        let blocks: Vec<Vec<f32>> = features.par_chunks(ROW_BLOCK * self.features).map(of_block).collect();
        blocks.concat()
    }

    /// The mean loss of pooled features, the residuals E in `residuals` and the gradients in `gradients`.
    pub(super) fn differentiate(
        &self,
        features: &[f32],
        labels: &[u32],
        residuals: &mut Vec<f32>,
        gradients: &mut [f32],
    ) -> Result<f64, Error> {
        let rows = labels.len();
        let logits = self.logits(features);
        residuals.clear();
        let mut loss = 0.0;
        let (weights, biases) = gradients.split_at_mut(self.classes * self.features);
        let mut bias_sums = vec![0.0; self.classes];
        let mut of_row = vec![0.0; self.classes];
        for (row, (logits, &label)) in logits.chunks(self.classes).zip(labels).enumerate() {
            of_row.iter_mut().zip(logits).for_each(|(to, &logit)| *to = f64::from(logit));
            loss += softmax(&mut of_row, row)? - f64::from(logits[label as usize]);
            of_row[label as usize] -= 1.0;
            for (residual, sum) in of_row.iter().zip(&mut bias_sums) {
                let residual = residual / rows as f64;
                *sum += residual;
                residuals.push(f32::from_f64(residual));
            }
        }
        biases.iter_mut().zip(bias_sums).for_each(|(bias, sum)| *bias = f32::from_f64(sum));
        let residuals = MatRef::from_row_major_slice(residuals, rows, self.classes);
        let features = MatRef::from_row_major_slice(features, rows, self.features);
        let out = MatMut::from_row_major_slice_mut(weights, self.classes, self.features);
        column_blocks(out).into_par_iter().for_each(|(start, out)| {
            let features = features.subcols(start, out.ncols());
            matmul(out, Accum::Replace, residuals.transpose(), features, 1.0, Par::Seq);
        });
        Ok(loss / rows as f64)
    }

    pub(super) fn check_map(&self, map: &(impl FeatureMap<f32> + ?Sized)) -> Result<(), Error> {
        if map.output_dim() != self.features {
            return Err(Error::invalid(Argument::Map, format!("{} features", self.features), map.output_dim()));
        }
        Ok(())
    }

    pub(super) fn check_labels(&self, rows: usize, labels: &[u32]) -> Result<(), Error> {
        if labels.len() != rows {
            return Err(Error::invalid(Argument::Labels, format!("one for each of the {rows} rows"), labels.len()));
        }
        match labels.iter().position(|&label| label as usize >= self.classes) {
            Some(row) => {
                let expected = format!("classes below {}", self.classes);
                Err(Error::invalid(Argument::Labels, expected, format!("{} in row {row}", labels[row])))
            }
            None => Ok(()),
        }
    }
}

/// Turns the logits of a row into probabilities, and returns log Σ_c exp(logit_c).
fn softmax(logits: &mut [f64], row: usize) -> Result<f64, Error> {
    if logits.iter().any(|logit| !logit.is_finite()) {
        return Err(Error::Overflow { row, dtype: f32::NAME });
    }
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|&logit| libm::exp(logit - largest)).sum();
    let log_sum = largest + libm::log(sum);
    logits.iter_mut().for_each(|logit| *logit = libm::exp(*logit - log_sum));
    Ok(log_sum)
}

/// A matrix cut into blocks of [`COLUMN_BLOCK`] columns, each with the number of its first column.
fn column_blocks(matrix: MatMut<'_, f32>) -> Vec<(usize, MatMut<'_, f32>)> {
    let (mut blocks, mut rest, mut start) = (Vec::new(), matrix, 0);
    while rest.ncols() > 0 {
        let width = COLUMN_BLOCK.min(rest.ncols());
        let (block, after) = rest.split_at_col_mut(width);
        blocks.push((start, block));
        start += width;
        rest = after;
    }
    blocks
}

/// Gradients of the loss with respect to the parameters of a [`SoftmaxLayer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    classes: usize,
    parameters: Vec<f32>,
}

impl Gradients {
    /// Zeros, in the shape of the layer.
    #[must_use]
    pub fn new(layer: &SoftmaxLayer) -> Self {
        Self { classes: layer.classes, parameters: vec![0.0; layer.parameters.len()] }
    }

    /// ∂loss/∂W, classes x features, row-major.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.parameters[..self.parameters.len() - self.classes]
    }

    /// ∂loss/∂b, one per class.
    #[must_use]
    pub fn biases(&self) -> &[f32] {
        &self.parameters[self.parameters.len() - self.classes..]
    }
}

/// A trained [`SoftmaxLayer`] and how rows become its features.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftmaxClassifier {
    pub(super) header: Header,
    layer: SoftmaxLayer,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    recipe: Recipe,
    pub(super) classes: usize,
    pooling: Pooling,
}

const KIND: &str = "softmax";

impl SoftmaxClassifier {
    /// A model of its parts.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the recipe gives another number of features than the layer takes.
    pub fn new(recipe: Recipe, layer: SoftmaxLayer) -> Result<Self, Error> {
        if recipe.spec.features != layer.features {
            return Err(Error::invalid(Argument::Recipe, format!("{} features", layer.features), recipe.spec.features));
        }
        Ok(Self { header: Header { recipe, classes: layer.classes, pooling: layer.pooling }, layer })
    }

    /// How rows become features.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.header.recipe
    }

    /// What makes probabilities of features.
    #[must_use]
    pub fn layer(&self) -> &SoftmaxLayer {
        &self.layer
    }

    /// The model as a file.
    #[must_use]
    pub fn to_archive(&self) -> Archive {
        Archive::new(KIND, &self.header)
            .with_f32("weights", self.layer.weights().to_vec())
            .with_f32("biases", self.layer.biases().to_vec())
    }

    /// What [`SoftmaxClassifier::to_archive`] made.
    ///
    /// # Errors
    /// [`Error::Archive`], and as [`SoftmaxLayer::new`].
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let header: Header = archive.header(KIND)?;
        let features = header.recipe.spec.features;
        let length = SoftmaxLayer::count(header.classes, features)?;
        let weights = archive.take_f32("weights", length - header.classes)?;
        let biases = archive.take_f32("biases", header.classes)?;
        let layer = SoftmaxLayer::from_parameters(features, header.pooling, &weights, &biases)?;
        Ok(Self { header, layer })
    }
}
