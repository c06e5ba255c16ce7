//! A softmax layer on features: its loss and its gradients.

use argand::{Argument, Error, FeatureMap, Input, Rows, RowsMut, Scalar};
use argand_linalg::{View, ViewMut, product};
use rayon::prelude::*;

use super::pooling::Pooling;
use crate::blocks::{COLUMN_BLOCK, ROW_BLOCK};
use crate::factor::check_features;
use crate::gram::check_classes;
use crate::score::Score;

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
/// use argand_learn::online::{Pooling, SoftmaxLayer};
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

/// The most parameters of a layer: 1 GiB; training keeps five copies.
const MOST_PARAMETERS: usize = 1 << 28;

impl SoftmaxLayer {
    /// A layer with zero weights and biases. The loss is convex, so no start is better.
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

    /// The pooling of features.
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

    /// W u + b of every row, rows x classes and row-major: the log-probabilities up to a constant per row.
    ///
    /// # Errors
    /// As [`SoftmaxLayer::probabilities`].
    pub fn scores(&self, features: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        let logits = self.logits(&self.pooled(features)?);
        match logits.iter().position(|logit| !logit.is_finite()) {
            Some(at) => Err(Error::Overflow { row: at / self.classes, dtype: f32::NAME }),
            None => Ok(logits.iter().map(|&logit| f64::from(logit)).collect()),
        }
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
            let residuals = View::by_rows(&residuals, rows, self.classes);
            let weights = self.weight_matrix();
            let out = ViewMut::by_rows(&mut cotangent, rows, self.features);
            out.column_blocks(COLUMN_BLOCK)
                .into_par_iter()
                .for_each(|(columns, out)| product(out, residuals, weights.columns(columns), 1.0));
            self.pooling.backward(&raw, self.features, &mut cotangent);
            map.vjp_into(inputs, Rows::new(&cotangent, rows, self.features)?, input_gradients)?;
        }
        Ok(loss)
    }

    /// A copy of features, pooled.
    fn pooled(&self, features: Rows<'_, f32>) -> Result<Vec<f32>, Error> {
        check_features(features, self.features)?;
        let mut pooled: Vec<f32> = (0..features.rows()).flat_map(|row| features.row(row)).copied().collect();
        self.pooling.apply(&mut pooled, self.features);
        Ok(pooled)
    }

    fn weight_matrix(&self) -> View<'_, f32> {
        View::by_rows(self.weights(), self.classes, self.features)
    }

    /// W u + b of every row of pooled features.
    fn logits(&self, features: &[f32]) -> Vec<f32> {
        let weights = self.weight_matrix();
        let of_block = |block: &[f32]| {
            let rows = block.len() / self.features;
            let block = View::by_rows(block, rows, self.features);
            let parts: Vec<Vec<f32>> = (0..self.features.div_ceil(COLUMN_BLOCK))
                .into_par_iter()
                .map(|part| {
                    let columns = part * COLUMN_BLOCK..self.features.min((part + 1) * COLUMN_BLOCK);
                    let mut products = vec![0.0; rows * self.classes];
                    let out = ViewMut::by_rows(&mut products, rows, self.classes);
                    product(out, block.columns(columns.clone()), weights.columns(columns).transpose(), 1.0);
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
        let residuals = View::by_rows(residuals, rows, self.classes).transpose();
        let features = View::by_rows(features, rows, self.features);
        let out = ViewMut::by_rows(weights, self.classes, self.features);
        out.column_blocks(COLUMN_BLOCK)
            .into_par_iter()
            .for_each(|(columns, out)| product(out, residuals, features.columns(columns), 1.0));
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
        check_classes(labels, self.classes)
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
