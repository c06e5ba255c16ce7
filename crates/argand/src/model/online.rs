//! Online learning: a softmax classification layer on features, trained by Adam on mini-batches.
//!
//! A [`SoftmaxLayer`] scores classes and differentiates its loss, down to the inputs of the sketch if asked. A [`Trainer`]
//! teaches it from a stream of blocks that the caller reads again in every epoch, so that data may be larger than memory.
//! The same data, blocks and options give the same weights with any number of threads, to the last bit.
//!
//! # Reference
//! Sec. 5.4 and the appendix on fine-grained recognition of the paper; Gao et al. (2016), "Compact bilinear pooling".

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::archive::Archive;
use super::recipe::Recipe;
use crate::error::Error;
use crate::rng::{Purpose, Stream};
use crate::rows::{Input, OwnedRows, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::sketch::FeatureMap;

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
    fn apply(self, features: &mut [f32], columns: usize) {
        if self == Self::default() {
            return;
        }
        features.par_chunks_mut(columns).for_each(|row| {
            self.root(row);
            let norm = dot(row, row).sqrt();
            if self.l2 && norm > 0.0 {
                row.iter_mut().for_each(|value| *value = f32::from_f64(f64::from(*value) / norm));
            }
        });
    }

    fn root(self, row: &mut [f32]) {
        if self.signed_sqrt {
            row.iter_mut().for_each(|value| *value /= (value.abs() + ROOT_OFFSET).sqrt());
        }
    }

    /// From gradients with respect to pooled features to gradients with respect to the `raw` ones, in place.
    fn backward(self, raw: &[f32], columns: usize, gradients: &mut [f32]) {
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

/// ⟨a, b⟩ in double precision, summed in an order that depends on the length alone.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 8;
    let product = |(&a, &b): (&f32, &f32)| f64::from(a) * f64::from(b);
    let mut sums = [0.0; LANES];
    let (mut a, mut b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a, b) in a.by_ref().zip(b.by_ref()) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, pair)| *sum += product(pair));
    }
    sums.iter().sum::<f64>() + a.remainder().iter().zip(b.remainder()).map(product).sum::<f64>()
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
/// let sketch = Spec::new(3, 2, 64).sample::<f32>()?;
/// let layer = SoftmaxLayer::new(4, 64, Pooling::default())?;
/// let features = sketch.transform(&[Rows::new(&[1.0, 2.0, 3.0], 1, 3)?.into()])?;
/// // It starts at zero, knowing nothing.
/// assert_eq!(layer.probabilities(Rows::new(&features, 1, 64)?)?, [0.25; 4]);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SoftmaxLayer {
    classes: usize,
    features: usize,
    pooling: Pooling,
    /// Weights, classes x features and row-major, then one bias per class.
    parameters: Vec<f32>,
}

/// The most parameters of a layer: 1 GiB, of which training keeps five copies.
const MOST_PARAMETERS: usize = 1 << 28;

/// Features that are multiplied together. Fixed, so that sums do not depend on the number of threads.
const COLUMN_BLOCK: usize = 1024;

/// Rows whose classes are scored together, likewise.
const ROW_BLOCK: usize = 256;

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
            return Err(Error::invalid("weights", expected, weights.len()));
        }
        Input::from(Rows::new(weights, classes, features)?).check_finite("weights")?;
        Input::from(Rows::new(biases, 1, classes)?).check_finite("biases")?;
        Ok(Self { classes, features, pooling, parameters: [weights, biases].concat() })
    }

    fn count(classes: usize, features: usize) -> Result<usize, Error> {
        if classes < 2 || u32::try_from(classes).is_err() {
            return Err(Error::invalid("classes", "2 to 4294967295", classes));
        }
        if features == 0 {
            return Err(Error::invalid("features", "at least 1", features));
        }
        let count = classes.checked_mul(features).and_then(|weights| weights.checked_add(classes));
        count.filter(|&count| count <= MOST_PARAMETERS).ok_or_else(|| {
            let expected = format!("classes x features of at most {MOST_PARAMETERS}");
            Error::invalid("features", expected, format!("{classes} x {features}"))
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
        map: &impl FeatureMap<f32>,
        inputs: &[Input<'_, f32>],
        labels: &[u32],
        gradients: &mut Gradients,
        input_gradients: Option<&mut [RowsMut<'_, f32>]>,
    ) -> Result<f64, Error> {
        self.check_map(map)?;
        let rows = inputs.first().map_or(0, Input::rows);
        self.check_labels(rows, labels)?;
        if rows == 0 {
            return Err(Error::invalid("labels", "at least one row", 0));
        }
        if (gradients.classes, gradients.parameters.len()) != (self.classes, self.parameters.len()) {
            let expected = format!("those of {} classes x {} features", self.classes, self.features);
            return Err(Error::invalid("gradients", expected, format!("{} classes", gradients.classes)));
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
            return Err(Error::invalid("features", format!("{} columns", self.features), features.columns()));
        }
        Input::from(features).check_finite("features")?;
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
    fn differentiate(
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

    fn check_map(&self, map: &impl FeatureMap<f32>) -> Result<(), Error> {
        if map.output_dim() != self.features {
            return Err(Error::invalid("map", format!("{} features", self.features), map.output_dim()));
        }
        Ok(())
    }

    fn check_labels(&self, rows: usize, labels: &[u32]) -> Result<(), Error> {
        if labels.len() != rows {
            return Err(Error::invalid("labels", format!("one for each of the {rows} rows"), labels.len()));
        }
        match labels.iter().position(|&label| label as usize >= self.classes) {
            Some(row) => {
                let expected = format!("classes below {}", self.classes);
                Err(Error::invalid("labels", expected, format!("{} in row {row}", labels[row])))
            }
            None => Ok(()),
        }
    }
}

/// Checks that all inputs are what the map takes, as it would itself, but before the first rows go through it.
fn check_inputs(map: &impl FeatureMap<f32>, inputs: &[Input<'_, f32>]) -> Result<(), Error> {
    let dims = map.input_dims();
    if inputs.len() != dims.len() || inputs.is_empty() {
        return Err(Error::invalid("inputs", format!("{} tables", dims.len()), inputs.len()));
    }
    let rows = inputs[0].rows();
    for (index, (input, &dim)) in inputs.iter().zip(dims).enumerate() {
        let argument = if dims.len() == 1 { "input".to_owned() } else { format!("input {index}") };
        if input.columns() != dim {
            return Err(Error::invalid(&argument, format!("{dim} columns"), input.columns()));
        }
        if input.rows() != rows {
            return Err(Error::invalid(&argument, format!("{rows} rows, as the first input"), input.rows()));
        }
        input.check_finite(&argument)?;
    }
    Ok(())
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

/// The optimiser Adam: steps along running means of gradients, divided by the root of running means of their squares.
///
/// # Formula
/// With β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸ and the gradient g at step t: m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g²,
/// θ ← θ − η (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε).
///
/// # Reference
/// Kingma and Ba (2015), "Adam: a method for stochastic optimization", Alg. 1.
///
/// # Cost
/// Reads four numbers and writes three per parameter and step.
#[derive(Debug, Clone, PartialEq)]
pub struct Adam {
    first: Vec<f32>,
    second: Vec<f32>,
    steps: u64,
}

impl Adam {
    const BETA: [f64; 2] = [0.9, 0.999];
    const EPSILON: f32 = 1e-8;
    /// Parameters that one thread updates before it looks for more.
    const CHUNK: usize = 1 << 14;

    /// The state before the first step for this many parameters.
    #[must_use]
    pub fn new(parameters: usize) -> Self {
        Self { first: vec![0.0; parameters], second: vec![0.0; parameters], steps: 0 }
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes one step with the given learning rate η.
    ///
    /// # Errors
    /// [`Error::Invalid`] for lengths that differ, a learning rate that is not positive, and, with the parameters then
    /// unspecified, for gradients that are not finite or whose squares do not fit into `f32`.
    pub fn step(&mut self, learning_rate: f64, parameters: &mut [f32], gradients: &[f32]) -> Result<(), Error> {
        check_learning_rate(learning_rate)?;
        for (argument, length) in [("parameters", parameters.len()), ("gradients", gradients.len())] {
            if length != self.first.len() {
                return Err(Error::invalid(argument, format!("{} numbers", self.first.len()), length));
            }
        }
        self.steps += 1;
        let [mean_share, square_share] = Self::BETA.map(|beta| f32::from_f64(1.0 - beta));
        let [keep_mean, keep_square] = Self::BETA.map(f32::from_f64);
        // From 2⁵³ steps on both powers are zero anyhow.
        let [mean_bias, square_bias] = Self::BETA.map(|beta| 1.0 - libm::pow(beta, self.steps as f64));
        let rate = f32::from_f64(learning_rate / mean_bias);
        let unbias = f32::from_f64(1.0 / square_bias);
        let finite = parameters
            .par_chunks_mut(Self::CHUNK)
            .zip(gradients.par_chunks(Self::CHUNK))
            .zip(self.first.par_chunks_mut(Self::CHUNK).zip(self.second.par_chunks_mut(Self::CHUNK)))
            .map(|((parameters, gradients), (first, second))| {
                let moments = first.iter_mut().zip(second.iter_mut());
                let mut finite = true;
                for ((parameter, &gradient), (first, second)) in parameters.iter_mut().zip(gradients).zip(moments) {
                    *first = keep_mean * *first + mean_share * gradient;
                    *second = keep_square * *second + square_share * (gradient * gradient);
                    *parameter -= rate * *first / ((*second * unbias).sqrt() + Self::EPSILON);
                    finite &= (*second * unbias + parameter.abs()).is_finite();
                }
                finite
            })
            .reduce(|| true, |one, other| one & other);
        if finite {
            Ok(())
        } else {
            let expected = "finite numbers whose squares fit into f32: scale the rows, or lower the learning rate";
            Err(Error::invalid("gradients", expected, format!("larger ones in step {}", self.steps)))
        }
    }
}

fn check_learning_rate(learning_rate: f64) -> Result<(), Error> {
    if learning_rate.is_finite() && learning_rate > 0.0 {
        Ok(())
    } else {
        Err(Error::invalid("learning_rate", "a finite number above 0", learning_rate))
    }
}

/// How a [`Trainer`] trains. The default is the paper's, with three epochs of patience.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerOptions {
    /// Rows in a mini-batch.
    pub batch: usize,
    /// The learning rate η at the start.
    pub learning_rate: f64,
    /// Epochs without a new lowest validation loss after which the learning rate is divided by 10.
    pub patience: u32,
    /// Where the order of rows comes from.
    pub seed: u64,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self { batch: 32, learning_rate: 1e-3, patience: 3, seed: 0 }
    }
}

impl TrainerOptions {
    /// Checks that there is something to train with.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a batch without rows, no patience, or a learning rate that is not positive.
    pub fn validate(&self) -> Result<(), Error> {
        if self.batch == 0 {
            return Err(Error::invalid("batch", "at least one row", 0));
        }
        if self.patience == 0 {
            return Err(Error::invalid("patience", "at least one epoch", 0));
        }
        check_learning_rate(self.learning_rate)
    }
}

/// What a [`Trainer`] says of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Its number, counted from 1.
    pub number: u32,
    /// Mean loss of the rows, each at the time it was trained on.
    pub training_loss: f64,
    /// The loss that decides.
    pub validation_loss: f64,
    /// The learning rate of the epoch.
    pub learning_rate: f64,
    /// The validation loss was the lowest so far: the weights are kept.
    pub improved: bool,
    /// The next epoch has a tenth of the learning rate.
    pub decayed: bool,
}

/// Trains a [`SoftmaxLayer`] block by block: [`Trainer::train_block`] for every block of an epoch, then
/// [`Trainer::end_epoch`].
///
/// Rows are visited in random order within a block: a stream of random numbers for every seed, epoch and block decides.
/// A block that ends with an incomplete mini-batch trains on that as well; its rows then weigh more than others.
///
/// Its state can be saved at any time ([`Trainer::to_archive`]), and what is read back continues exactly as the original.
///
/// # Cost
/// Per block the features of its rows once, 2·C·D multiplications per row and one step of [`Adam`] per mini-batch.
/// Memory: five copies of the parameters, and about 16 MB of features.
#[derive(Debug, Clone, PartialEq)]
pub struct Trainer {
    options: TrainerOptions,
    layer: SoftmaxLayer,
    adam: Adam,
    learning_rate: f64,
    /// Epochs that are complete, blocks of the present one, and the score of its rows so far.
    epoch: u32,
    block: u32,
    rows: u64,
    loss_sum: f64,
    /// The lowest validation loss and its parameters.
    best: Option<(f64, Vec<f32>)>,
    /// Epochs since then or since the last decay.
    stagnant: u32,
}

/// Bytes of features that are computed ahead of the steps: enough rows for all threads, little enough for the caches.
const FEATURES_AHEAD: usize = 16 << 20;

impl Trainer {
    /// Starts from a layer.
    ///
    /// # Errors
    /// As [`TrainerOptions::validate`].
    pub fn new(layer: SoftmaxLayer, options: TrainerOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self {
            adam: Adam::new(layer.parameters.len()),
            learning_rate: options.learning_rate,
            epoch: 0,
            block: 0,
            rows: 0,
            loss_sum: 0.0,
            best: None,
            stagnant: 0,
            options,
            layer,
        })
    }

    /// Trains on the next block of the epoch, in mini-batches of shuffled rows.
    ///
    /// # Errors
    /// As [`SoftmaxLayer::score`], before the first step and with everything as it was. [`Error::Overflow`] and, from
    /// [`Adam::step`], [`Error::Invalid`] if features or the training itself diverge; the trainer is then of no use.
    pub fn train_block(
        &mut self,
        map: &impl FeatureMap<f32>,
        inputs: &[Input<'_, f32>],
        labels: &[u32],
    ) -> Result<(), Error> {
        self.layer.check_map(map)?;
        check_inputs(map, inputs)?;
        self.layer.check_labels(inputs[0].rows(), labels)?;
        let order = self.order(labels.len())?;
        self.block = self.block.checked_add(1).ok_or_else(|| Error::invalid("block", "fewer blocks", "2^32"))?;
        let Self { layer, adam, .. } = self;
        let (batch, columns) = (self.options.batch.min(labels.len().max(1)), layer.features);
        let ahead = (FEATURES_AHEAD / size_of::<f32>() / columns / batch).max(1) * batch;
        let mut gradients = vec![0.0; layer.parameters.len()];
        let (mut features, mut residuals) = (Vec::new(), Vec::new());
        for rows in order.chunks(ahead) {
            let taken: Vec<_> = inputs.iter().map(|input| OwnedRows::take(input, rows)).collect();
            let views: Vec<_> = taken.iter().map(OwnedRows::view).collect();
            features.resize(rows.len() * columns, 0.0);
            let out = RowsMut::new(&mut features, rows.len(), columns)?;
            map.transform_into(&views, out).map_err(|error| in_block(error, rows))?;
            layer.pooling.apply(&mut features, columns);
            for (features, rows) in features.chunks(batch * columns).zip(rows.chunks(batch)) {
                let labels: Vec<u32> = rows.iter().map(|&row| labels[row]).collect();
                let loss = layer.differentiate(features, &labels, &mut residuals, &mut gradients);
                self.loss_sum += loss.map_err(|error| in_block(error, rows))? * rows.len() as f64;
                self.rows += rows.len() as u64;
                adam.step(self.learning_rate, &mut layer.parameters, &gradients)?;
            }
        }
        Ok(())
    }

    /// The rows of the next block in the order in which they are visited (Fisher and Yates).
    fn order(&self, rows: usize) -> Result<Vec<usize>, Error> {
        let count =
            u32::try_from(rows).map_err(|_| Error::invalid("labels", "blocks of fewer than 2^32 rows", rows))?;
        let mut order: Vec<usize> = (0..rows).collect();
        let mut stream = Stream::new(self.options.seed, Purpose::Shuffle, self.epoch, self.block);
        for left in (2..=count).rev() {
            order.swap(left as usize - 1, stream.below(left) as usize);
        }
        Ok(order)
    }

    /// Completes an epoch: keeps the weights if the validation loss is the lowest so far, and divides the learning rate
    /// by 10 if it was not for as many epochs as the patience. Without a validation loss, the training loss decides.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the epoch had no rows, or the loss is not a number.
    pub fn end_epoch(&mut self, validation_loss: Option<f64>) -> Result<Epoch, Error> {
        if self.rows == 0 {
            return Err(Error::invalid("labels", "at least one row in an epoch", 0));
        }
        let training_loss = self.loss_sum / self.rows as f64;
        let validation_loss = validation_loss.unwrap_or(training_loss);
        if !validation_loss.is_finite() {
            return Err(Error::invalid("validation_loss", "a finite number", validation_loss));
        }
        let number =
            self.epoch.checked_add(1).ok_or_else(|| Error::invalid("epochs", "fewer than 2^32", "one more"))?;
        let improved = self.best.as_ref().is_none_or(|(lowest, _)| validation_loss < *lowest);
        if improved {
            self.best = Some((validation_loss, self.layer.parameters.clone()));
            self.stagnant = 0;
        } else {
            self.stagnant += 1;
        }
        let decayed = self.stagnant == self.options.patience;
        let learning_rate = self.learning_rate;
        if decayed {
            self.stagnant = 0;
            // Never zero, however long it goes on.
            self.learning_rate = (learning_rate / 10.0).max(f64::MIN_POSITIVE);
        }
        (self.epoch, self.block, self.rows, self.loss_sum) = (number, 0, 0, 0.0);
        Ok(Epoch { number, training_loss, validation_loss, learning_rate, improved, decayed })
    }

    /// Epochs that are complete.
    #[must_use]
    pub fn epochs(&self) -> u32 {
        self.epoch
    }

    /// The present learning rate.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    /// How it trains.
    #[must_use]
    pub fn options(&self) -> &TrainerOptions {
        &self.options
    }

    /// The layer as it is now, for example to validate it.
    #[must_use]
    pub fn layer(&self) -> &SoftmaxLayer {
        &self.layer
    }

    /// The layer of the epoch with the lowest validation loss, or as it is before the first epoch ends.
    #[must_use]
    pub fn into_best(self) -> SoftmaxLayer {
        match self.best {
            Some((_, parameters)) => SoftmaxLayer { parameters, ..self.layer },
            None => self.layer,
        }
    }
}

/// A trained [`SoftmaxLayer`] and how rows become its features.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftmaxClassifier {
    header: Header,
    layer: SoftmaxLayer,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    recipe: Recipe,
    classes: usize,
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
            return Err(Error::invalid("recipe", format!("{} features", layer.features), recipe.spec.features));
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

/// The JSON header of a saved [`Trainer`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    classes: usize,
    features: usize,
    pooling: Pooling,
    options: TrainerOptions,
    steps: u64,
    learning_rate: f64,
    epoch: u32,
    block: u32,
    rows: u64,
    loss_sum: f64,
    lowest_loss: Option<f64>,
    stagnant: u32,
}

const TRAINING: &str = "softmax-training";

impl Trainer {
    /// The whole state, to be saved. A [note](Archive::with_note) may say what is being trained, and on what.
    #[must_use]
    pub fn to_archive(&self) -> Archive {
        let state = State {
            classes: self.layer.classes,
            features: self.layer.features,
            pooling: self.layer.pooling,
            options: self.options,
            steps: self.adam.steps,
            learning_rate: self.learning_rate,
            epoch: self.epoch,
            block: self.block,
            rows: self.rows,
            loss_sum: self.loss_sum,
            lowest_loss: self.best.as_ref().map(|(loss, _)| *loss),
            stagnant: self.stagnant,
        };
        let archive = Archive::new(TRAINING, &state)
            .with_f32("parameters", self.layer.parameters.clone())
            .with_f32("first moments", self.adam.first.clone())
            .with_f32("second moments", self.adam.second.clone());
        match &self.best {
            Some((_, parameters)) => archive.with_f32("best parameters", parameters.clone()),
            None => archive,
        }
    }

    /// The state that [`Trainer::to_archive`] saved.
    ///
    /// # Errors
    /// [`Error::Archive`] if it is of something else or contradicts itself, and as [`Trainer::new`].
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let state: State = archive.header(TRAINING)?;
        let length = SoftmaxLayer::count(state.classes, state.features)?;
        let mut take = |name: &str| archive.take_f32(name, length);
        let parameters = take("parameters")?;
        let layer =
            SoftmaxLayer { classes: state.classes, features: state.features, pooling: state.pooling, parameters };
        let adam = Adam { first: take("first moments")?, second: take("second moments")?, steps: state.steps };
        let best = match state.lowest_loss {
            Some(loss) => Some((loss, take("best parameters")?)),
            None => None,
        };
        check_learning_rate(state.learning_rate)?;
        if adam.second.iter().any(|&moment| moment < 0.0) || state.stagnant >= state.options.patience {
            return Err(Error::Archive("the state of training contradicts itself".to_owned()));
        }
        let State { learning_rate, epoch, block, rows, loss_sum, stagnant, .. } = state;
        let start = Self::new(layer, state.options)?;
        Ok(Self { adam, learning_rate, epoch, block, rows, loss_sum, best, stagnant, ..start })
    }
}

/// An error about one of the `rows` of a block that were taken out of it.
fn in_block(error: Error, rows: &[usize]) -> Error {
    match error {
        Error::Overflow { row, dtype } => Error::Overflow { row: rows[row], dtype },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::SparseRows;
    use crate::sketch::Sketch;
    use crate::spec::Spec;

    const POOLINGS: [Pooling; 4] = [
        Pooling { signed_sqrt: false, l2: false },
        Pooling { signed_sqrt: true, l2: false },
        Pooling { signed_sqrt: false, l2: true },
        Pooling { signed_sqrt: true, l2: true },
    ];

    /// Standard normal numbers.
    fn normals(count: usize, factor: u32) -> Vec<f32> {
        let mut stream = Stream::new(9, Purpose::Weights, factor, 0);
        (0..count).map(|_| f32::from_f64(std::f64::consts::SQRT_2 * stream.complex_normal().0)).collect()
    }

    fn input(values: &[f32], columns: usize) -> [Input<'_, f32>; 1] {
        [Rows::new(values, values.len() / columns, columns).unwrap().into()]
    }

    /// The score of a layer on rows.
    fn score(
        layer: &SoftmaxLayer,
        map: &Sketch<f32>,
        inputs: &[Input<'_, f32>],
        labels: &[u32],
    ) -> Result<Score, Error> {
        let features = map.transform(inputs)?;
        layer.score(Rows::new(&features, inputs[0].rows(), map.output_dim())?, labels)
    }

    /// The loss from its definition, in double precision: no matrix products, no code shared but the sketch.
    struct Oracle {
        sketch: Sketch<f64>,
        pooling: Pooling,
        weights: Vec<f64>,
        biases: Vec<f64>,
        x: Vec<f64>,
        labels: Vec<u32>,
    }

    impl Oracle {
        fn loss(&self) -> f64 {
            let (rows, columns) = (self.labels.len(), self.sketch.output_dim());
            let x = Rows::new(&self.x, rows, self.x.len() / rows).unwrap();
            let features = self.sketch.transform(&[x.into()]).unwrap();
            let mut loss = 0.0;
            for (features, &label) in features.chunks(columns).zip(&self.labels) {
                let mut u = features.to_vec();
                if self.pooling.signed_sqrt {
                    u.iter_mut().for_each(|z| *z /= (z.abs() + 1e-10).sqrt());
                }
                if self.pooling.l2 {
                    let norm = u.iter().map(|z| z * z).sum::<f64>().sqrt();
                    u.iter_mut().for_each(|z| *z /= norm);
                }
                let logits = self.weights.chunks(columns).zip(&self.biases);
                let logits: Vec<f64> =
                    logits.map(|(w, b)| b + w.iter().zip(&u).map(|(w, u)| w * u).sum::<f64>()).collect();
                loss += logits.iter().map(|l| l.exp()).sum::<f64>().ln() - logits[label as usize];
            }
            loss / rows as f64
        }

        /// Central differences with respect to all numbers that `parameters` selects.
        fn gradient(&mut self, parameters: fn(&mut Self) -> &mut Vec<f64>) -> Vec<f64> {
            let step = 1e-6;
            (0..parameters(self).len())
                .map(|index| {
                    let before = parameters(self)[index];
                    let mut at = |value| {
                        parameters(self)[index] = value;
                        self.loss()
                    };
                    let slope = (at(before + step) - at(before - step)) / (2.0 * step);
                    parameters(self)[index] = before;
                    slope
                })
                .collect()
        }
    }

    fn widened(values: &[f32]) -> Vec<f64> {
        values.iter().map(|&value| f64::from(value)).collect()
    }

    /// Every gradient against finite differences of the definition, to 500 roundings of the largest entry: the signed
    /// square root of a feature near zero magnifies its rounding.
    #[test]
    fn gradients_are_those_of_the_definition() {
        let (rows, dim, features, classes) = (7, 5, 16, 3);
        let spec = Spec::new(dim, 3, features).with_seed(4);
        let sketch = spec.sample::<f32>().unwrap();
        let (x, weights, biases) = (normals(rows * dim, 1), normals(classes * features, 2), normals(classes, 3));
        let labels = [0, 2, 1, 1, 0, 2, 2];
        for pooling in POOLINGS {
            let layer = SoftmaxLayer::from_parameters(features, pooling, &weights, &biases).unwrap();
            let mut gradients = Gradients::new(&layer);
            let mut of_input = vec![f32::NAN; x.len()];
            let mut tables = [RowsMut::new(&mut of_input, rows, dim).unwrap()];
            let inputs = input(&x, dim);
            let loss = layer.loss_and_gradients(&sketch, &inputs, &labels, &mut gradients, Some(&mut tables)).unwrap();
            let mut oracle = Oracle {
                sketch: spec.sample().unwrap(),
                pooling,
                weights: widened(&weights),
                biases: widened(&biases),
                x: widened(&x),
                labels: labels.to_vec(),
            };
            assert!((loss - oracle.loss()).abs() < 1e-5 * loss, "{pooling:?}: {loss} {}", oracle.loss());
            let score = score(&layer, &sketch, &inputs, &labels).unwrap();
            assert_eq!((score.rows, score.loss()), (7, loss));
            for (name, got, expected) in [
                ("weights", gradients.weights(), oracle.gradient(|oracle| &mut oracle.weights)),
                ("biases", gradients.biases(), oracle.gradient(|oracle| &mut oracle.biases)),
                ("inputs", &of_input, oracle.gradient(|oracle| &mut oracle.x)),
            ] {
                assert_eq!(got.len(), expected.len());
                let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
                assert!(largest > 1e-3, "{name}: nothing to compare");
                for (&got, expected) in got.iter().zip(&expected) {
                    let error = (f64::from(got) - expected).abs() / largest;
                    assert!(error < 500.0 * f64::from(f32::EPSILON), "{pooling:?} {name}: {got} {expected}");
                }
            }
        }
    }

    /// More classes, rows and features than fit into one block of either kind, against plain sums.
    #[test]
    fn blocks_of_rows_and_columns_add_up() {
        let (rows, features, classes) = (2 * ROW_BLOCK + 3, COLUMN_BLOCK + 10, 5);
        let sketch = Spec::new(3, 2, features).sample::<f32>().unwrap();
        let (x, weights, biases) = (normals(rows * 3, 1), normals(classes * features, 2), normals(classes, 3));
        let layer = SoftmaxLayer::from_parameters(features, Pooling::default(), &weights, &biases).unwrap();
        let z = sketch.transform(&input(&x, 3)).unwrap();
        let probabilities = layer.probabilities(Rows::new(&z, rows, features).unwrap()).unwrap();
        let labels = vec![1; rows];
        let mut gradients = Gradients::new(&layer);
        layer.loss_and_gradients(&sketch, &input(&x, 3), &labels, &mut gradients, None).unwrap();
        let mut weight_gradient = vec![0.0; classes * features];
        for (row, got) in probabilities.chunks(classes).enumerate() {
            let z = &z[row * features..][..features];
            let logits: Vec<f64> =
                weights.chunks(features).zip(&biases).map(|(w, &b)| f64::from(b) + dot(w, z)).collect();
            let sum: f64 = logits.iter().map(|l| l.exp()).sum();
            for (class, (&got, logit)) in got.iter().zip(&logits).enumerate() {
                let p = logit.exp() / sum;
                assert!((got - p).abs() < 1e-4, "row {row}: {got} {p}");
                let residual = (p - if class == 1 { 1.0 } else { 0.0 }) / rows as f64;
                let gradient = &mut weight_gradient[class * features..][..features];
                gradient.iter_mut().zip(z).for_each(|(sum, &z)| *sum += residual * f64::from(z));
            }
        }
        let largest = weight_gradient.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        for (&got, expected) in gradients.weights().iter().zip(&weight_gradient) {
            assert!((f64::from(got) - expected).abs() < 1e-4 * largest, "{got} {expected}");
        }
    }

    /// Four steps by hand (that is, by the formulas in double precision).
    #[test]
    fn adam_by_hand() {
        let mut adam = Adam::new(1);
        let mut parameter = [0.5];
        let gradients = [(1.0, 0.1), (-2.0, 0.1), (0.5, 0.1), (0.0, 0.01)];
        let expected = [0.400_000_001, 0.436_610_353, 0.450_279_420, 0.451_399_106];
        for ((gradient, rate), expected) in gradients.into_iter().zip(expected) {
            adam.step(rate, &mut parameter, &[gradient]).unwrap();
            assert!((f64::from(parameter[0]) - expected).abs() < 4.0 * f64::from(f32::EPSILON), "{parameter:?}");
        }
        assert_eq!(adam.steps(), 4);
    }

    /// Points whose class is the sign of x₁x₂, away from the axes: no line separates them, degree 2 does.
    fn crossed(rows: usize) -> (Vec<f32>, Vec<u32>) {
        let mut stream = Stream::new(5, Purpose::Weights, 7, 0);
        let mut coordinate = || {
            let magnitude = 0.3 + 0.7 * stream.uniform();
            f32::from_f64(if stream.bits() & 1 == 0 { magnitude } else { -magnitude })
        };
        let x: Vec<f32> = (0..2 * rows).map(|_| coordinate()).collect();
        let labels = x.chunks(2).map(|x| u32::from(x[0] * x[1] > 0.0)).collect();
        (x, labels)
    }

    fn trainer(features: usize, options: TrainerOptions) -> Trainer {
        Trainer::new(SoftmaxLayer::new(2, features, Pooling::default()).unwrap(), options).unwrap()
    }

    const QUICK: TrainerOptions = TrainerOptions { batch: 8, learning_rate: 0.05, patience: 2, seed: 3 };

    #[test]
    fn a_separable_problem_is_learnt() {
        let (x, labels) = crossed(300);
        for pooling in POOLINGS {
            let sketch = Spec::new(2, 2, 64).sample::<f32>().unwrap();
            let layer = SoftmaxLayer::new(2, 64, pooling).unwrap();
            let before = score(&layer, &sketch, &input(&x, 2), &labels).unwrap();
            assert!((before.loss() - 2_f64.ln()).abs() < 1e-6);
            let mut trainer = Trainer::new(layer, QUICK).unwrap();
            for _ in 0..10 {
                for block in 0..3 {
                    let (x, labels) = (&x[block * 200..][..200], &labels[block * 100..][..100]);
                    trainer.train_block(&sketch, &input(x, 2), labels).unwrap();
                }
                trainer.end_epoch(None).unwrap();
            }
            let score = score(&trainer.into_best(), &sketch, &input(&x, 2), &labels).unwrap();
            assert!(score.errors == 0 && score.loss() < 0.1, "{pooling:?} {score:?}");
        }
    }

    #[test]
    fn sparse_rows_train_as_dense_ones_do() {
        let (x, labels) = crossed(40);
        let sketch = Spec::new(2, 2, 32).sample::<f32>().unwrap();
        let starts: Vec<u32> = (0..=40).map(|row| 2 * row).collect();
        let columns: Vec<u32> = (0..80).map(|entry| entry % 2).collect();
        let sparse = [SparseRows::new(&starts[..], &columns[..], &x, 2).unwrap().into()];
        let [mut first, mut second] = [trainer(32, QUICK), trainer(32, QUICK)];
        first.train_block(&sketch, &input(&x, 2), &labels).unwrap();
        second.train_block(&sketch, &sparse, &labels).unwrap();
        assert_eq!(first, second);
    }

    /// Two epochs of two blocks, with many blocks of columns and an incomplete batch in each.
    #[test]
    fn training_does_not_depend_on_threads_and_continues_where_it_was_saved() {
        let (x, labels) = crossed(100);
        let features = 2 * COLUMN_BLOCK + 6;
        let sketch = Spec::new(2, 2, features).sample::<f32>().unwrap();
        let run = |threads: usize, interrupted: bool| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let pooling = Pooling { signed_sqrt: true, l2: true };
                let mut trainer = Trainer::new(SoftmaxLayer::new(2, features, pooling).unwrap(), QUICK).unwrap();
                for epoch in 0..2 {
                    for block in 0..2 {
                        trainer
                            .train_block(&sketch, &input(&x[block * 100..][..100], 2), &labels[block * 50..][..50])
                            .unwrap();
                        if interrupted {
                            let bytes = trainer.to_archive().to_bytes();
                            trainer = Trainer::from_archive(Archive::from_bytes(&bytes).unwrap()).unwrap();
                        }
                    }
                    assert_eq!(trainer.end_epoch(None).unwrap().number, epoch + 1);
                }
                trainer
            })
        };
        let alone = run(1, false);
        assert_eq!(alone.adam.steps(), 2 * 2 * 7);
        for (threads, interrupted) in [(1, true), (2, false), (3, true)] {
            assert!(run(threads, interrupted) == alone, "{threads} threads");
        }
    }

    #[test]
    fn saved_states_that_are_wrong_are_refused() {
        let (x, labels) = crossed(20);
        let sketch = Spec::new(2, 2, 8).sample::<f32>().unwrap();
        let mut trainer = trainer(8, QUICK);
        trainer.train_block(&sketch, &input(&x, 2), &labels).unwrap();
        trainer.end_epoch(None).unwrap();
        let read = |change: fn(&mut Trainer)| {
            let mut trainer = trainer.clone();
            change(&mut trainer);
            Trainer::from_archive(Archive::from_bytes(&trainer.to_archive().to_bytes())?)
        };
        assert_eq!(read(|_| ()), Ok(trainer.clone()));
        for change in [
            (|trainer: &mut Trainer| trainer.learning_rate = 0.0) as fn(&mut Trainer),
            |trainer| trainer.options.batch = 0,
            |trainer| trainer.stagnant = trainer.options.patience,
            |trainer| trainer.layer.classes = 1,
            |trainer| trainer.layer.features = 7,
            |trainer| trainer.layer.parameters[3] = f32::NAN,
            |trainer| trainer.adam.second[3] = -1.0,
            |trainer| trainer.adam.first.truncate(3),
            |trainer| trainer.best = Some((0.5, Vec::new())),
        ] {
            read(change).unwrap_err();
        }
        Trainer::from_archive(Archive::new("other", &())).unwrap_err();
    }

    #[test]
    fn models_are_saved_and_read() {
        let spec = Spec::new(2, 2, 8);
        let pooling = Pooling { signed_sqrt: true, l2: false };
        let layer = SoftmaxLayer::from_parameters(8, pooling, &normals(24, 1), &normals(3, 2)).unwrap();
        let model = SoftmaxClassifier::new(spec.clone().into(), layer.clone()).unwrap();
        let bytes = model.to_archive().to_bytes();
        let read = SoftmaxClassifier::from_archive(Archive::from_bytes(&bytes).unwrap()).unwrap();
        assert_eq!(read, model);
        assert_eq!((read.layer(), &read.recipe().spec), (&layer, &spec));
        let other = SoftmaxClassifier::new(Spec::new(2, 2, 10).into(), layer).unwrap_err();
        assert!(other.to_string().starts_with("recipe: "));
        let mut wrong = model;
        wrong.header.classes = 4;
        SoftmaxClassifier::from_archive(Archive::from_bytes(&wrong.to_archive().to_bytes()).unwrap()).unwrap_err();
        SoftmaxClassifier::from_archive(Archive::new("other", &())).unwrap_err();
    }

    #[test]
    fn every_epoch_and_block_has_its_own_order() {
        let mut trainer = trainer(4, QUICK);
        let mut orders = Vec::new();
        for (epoch, block, seed) in [(0, 0, 1), (0, 1, 1), (1, 0, 1), (0, 0, 2)] {
            (trainer.epoch, trainer.block, trainer.options.seed) = (epoch, block, seed);
            let order = trainer.order(20).unwrap();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..20).collect::<Vec<_>>());
            assert!(!orders.contains(&order));
            orders.push(order);
        }
        (trainer.epoch, trainer.block, trainer.options.seed) = (0, 0, 1);
        assert_eq!(trainer.order(20).unwrap(), orders[0]);
        // All six orders of three rows are equally likely: 6000 draws, each count within 5 standard deviations.
        let mut counts = std::collections::BTreeMap::new();
        for block in 0..6000 {
            trainer.block = block;
            *counts.entry(trainer.order(3).unwrap()).or_insert(0) += 1;
        }
        let deviation = (1000.0_f64 * 5.0 / 6.0).sqrt();
        assert!(
            counts.len() == 6 && counts.values().all(|&count: &i32| f64::from(count - 1000).abs() < 5.0 * deviation)
        );
    }

    #[test]
    fn the_learning_rate_decays_when_the_loss_stagnates_and_the_best_weights_are_kept() {
        let (x, labels) = crossed(16);
        let sketch = Spec::new(2, 2, 8).sample::<f32>().unwrap();
        let mut trainer = trainer(8, TrainerOptions { learning_rate: 1.0, ..QUICK });
        let mut best = None;
        // (validation loss, improved, decayed), with a patience of 2.
        for (number, (loss, improved, decayed)) in [
            (0.7, true, false),
            (0.6, true, false),
            (0.6, false, false),
            (0.65, false, true),
            (0.5, true, false),
            (0.9, false, false),
            (0.8, false, true),
            (0.7, false, false),
            (0.6, false, true),
        ]
        .into_iter()
        .enumerate()
        {
            trainer.train_block(&sketch, &input(&x, 2), &labels).unwrap();
            let rate = trainer.learning_rate();
            let epoch = trainer.end_epoch(Some(loss)).unwrap();
            assert_eq!(
                (epoch.number as usize, epoch.validation_loss, epoch.improved, epoch.decayed),
                (number + 1, loss, improved, decayed)
            );
            assert_eq!(epoch.learning_rate, rate);
            let expected = if decayed { rate / 10.0 } else { rate };
            assert_eq!(trainer.learning_rate(), expected);
            if improved {
                best = Some(trainer.layer().clone());
            }
        }
        assert!((trainer.learning_rate() - 1e-3).abs() < 1e-15);
        assert_ne!(best.as_ref(), Some(trainer.layer()));
        assert_eq!(best, Some(trainer.into_best()));
    }

    #[test]
    fn rows_without_length_are_left_at_zero() {
        let mut row = [0.0, 0.0, 3.0, -4.0];
        Pooling { signed_sqrt: false, l2: true }.apply(&mut row, 2);
        assert_eq!(row, [0.0, 0.0, 0.6, -0.8]);
        let mut row = [0.0, 4.0, -9.0, 1e-38];
        Pooling { signed_sqrt: true, l2: false }.apply(&mut row, 4);
        assert_eq!(row[..3], [0.0, 2.0, -3.0]);
        let mut gradient = [1.0; 4];
        Pooling { signed_sqrt: true, l2: true }.backward(&[0.0, 0.0, 0.0, 1.0], 2, &mut gradient);
        assert!(gradient.iter().all(|value| value.is_finite()), "{gradient:?}");
        assert_eq!(gradient[..2], [0.0; 2]);
    }

    #[test]
    fn bad_input_is_named() {
        let message = |result: Result<(), Error>| result.unwrap_err().to_string();
        let new = |classes, features| message(SoftmaxLayer::new(classes, features, Pooling::default()).map(|_| ()));
        assert!(new(1, 4).starts_with("classes: "));
        assert!(new(2, 0).starts_with("features: "));
        assert!(new(2, usize::MAX).starts_with("features: "));
        assert!(new(1 << 20, 1 << 9).starts_with("features: "));
        let parts = |weights: &[f32], biases: &[f32]| {
            message(SoftmaxLayer::from_parameters(2, Pooling::default(), weights, biases).map(|_| ()))
        };
        assert!(parts(&[0.0; 5], &[0.0; 2]).starts_with("weights: "));
        assert!(parts(&[f32::NAN; 4], &[0.0; 2]).starts_with("weights: "));
        assert!(parts(&[0.0; 4], &[0.0, f32::INFINITY]).starts_with("biases: "));

        let layer = SoftmaxLayer::new(2, 8, Pooling::default()).unwrap();
        for (change, named) in [
            (TrainerOptions { batch: 0, ..QUICK }, "batch: "),
            (TrainerOptions { patience: 0, ..QUICK }, "patience: "),
            (TrainerOptions { learning_rate: 0.0, ..QUICK }, "learning_rate: "),
            (TrainerOptions { learning_rate: -1.0, ..QUICK }, "learning_rate: "),
            (TrainerOptions { learning_rate: f64::NAN, ..QUICK }, "learning_rate: "),
            (TrainerOptions { learning_rate: f64::INFINITY, ..QUICK }, "learning_rate: "),
        ] {
            assert!(message(Trainer::new(layer.clone(), change).map(|_| ())).starts_with(named));
        }

        let sketch = Spec::new(2, 2, 8).sample::<f32>().unwrap();
        let wide = Spec::new(2, 2, 10).sample::<f32>().unwrap();
        let (good, bad) = ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, f32::NAN, 4.0]);
        let mut trainer = Trainer::new(layer.clone(), QUICK).unwrap();
        let untouched = trainer.clone();
        let mut gradients = Gradients::new(&layer);
        for (map, x, columns, labels, named) in [
            (&wide, &good, 2, &[0, 1][..], ""),
            (&sketch, &good, 2, &[0], "labels: "),
            (&sketch, &good, 2, &[0, 1, 1], "labels: "),
            (&sketch, &good, 2, &[0, 2], "labels: expected classes below 2, got 2 in row 1"),
            (&sketch, &good, 4, &[0], "input: "),
            (&sketch, &bad, 2, &[0, 1], "input: row 1, column 0 is NaN"),
        ] {
            let inputs = input(x, columns);
            for message in [
                message(trainer.train_block(map, &inputs, labels)),
                message(score(&layer, map, &inputs, labels).map(|_| ())),
                message(layer.loss_and_gradients(map, &inputs, labels, &mut gradients, None).map(|_| ())),
            ] {
                assert!(message.starts_with(named), "{message}");
            }
        }
        assert!(message(trainer.train_block(&wide, &input(&good, 2), &[0, 1])).starts_with("map: "));
        assert!(message(score(&layer, &wide, &input(&good, 2), &[0, 1]).map(|_| ())).starts_with("features: "));
        assert!(message(trainer.train_block(&sketch, &[], &[])).starts_with("inputs: "));
        assert!(message(trainer.end_epoch(None).map(|_| ())).starts_with("labels: "));
        assert_eq!(trainer, untouched);
        trainer.train_block(&sketch, &input(&good, 2), &[0, 1]).unwrap();
        assert!(message(trainer.end_epoch(Some(f64::NAN)).map(|_| ())).starts_with("validation_loss: "));

        let empty = layer.loss_and_gradients(&sketch, &input(&[], 2), &[], &mut gradients, None);
        assert!(message(empty.map(|_| ())).starts_with("labels: "));
        let mut other = Gradients::new(&SoftmaxLayer::new(4, 8, Pooling::default()).unwrap());
        let wrong = layer.loss_and_gradients(&sketch, &input(&good, 2), &[0, 1], &mut other, None);
        assert!(message(wrong.map(|_| ())).starts_with("gradients: "));

        let mut adam = Adam::new(1);
        assert!(message(adam.step(0.0, &mut [0.0], &[1.0])).starts_with("learning_rate: "));
        assert!(message(adam.step(0.1, &mut [0.0; 2], &[1.0])).starts_with("parameters: "));
        assert!(message(adam.step(0.1, &mut [0.0], &[])).starts_with("gradients: "));
        assert_eq!(adam, Adam::new(1));
        assert!(message(adam.step(0.1, &mut [0.0], &[1e30])).starts_with("gradients: "));
    }

    /// A row whose features fit but whose logits do not.
    #[test]
    fn overflow_names_the_row_in_the_block() {
        let sketch = Spec::new(1, 1, 2).sample::<f32>().unwrap();
        let layer = SoftmaxLayer::from_parameters(2, Pooling::default(), &[1e4; 4], &[0.0; 2]).unwrap();
        let x = [1.0, 1.0, 1.0, 1e36];
        let overflow = Error::Overflow { row: 3, dtype: "f32" };
        let features = sketch.transform(&input(&x, 1)).unwrap();
        assert_eq!(layer.probabilities(Rows::new(&features, 4, 2).unwrap()), Err(overflow.clone()));
        let mut trainer = Trainer::new(layer, TrainerOptions { batch: 1, learning_rate: 1e-9, ..QUICK }).unwrap();
        assert_eq!(trainer.train_block(&sketch, &input(&x, 1), &[0; 4]), Err(overflow));
    }
}
