//! Interruptible training in blocks.

use argand::rng::{Purpose, Stream};
use argand::{Argument, Error, FeatureMap, FileFault, Input, OwnedRows, RowsMut};
use serde::{Deserialize, Serialize};

use super::adam::{Adam, check_learning_rate};
use super::layer::SoftmaxLayer;
use super::pooling::Pooling;
use crate::archive::Archive;
use crate::blocks::FEATURES_AHEAD;

/// Options of a [`Trainer`]. The defaults are the paper's, with three epochs of patience.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerOptions {
    /// Rows in a mini-batch.
    pub batch: usize,
    /// The initial learning rate η.
    pub learning_rate: f64,
    /// Epochs without a new lowest validation loss before the learning rate is divided by 10.
    pub patience: u32,
    /// The seed for the order of rows.
    pub seed: u64,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self { batch: 32, learning_rate: 1e-3, patience: 3, seed: 0 }
    }
}

impl TrainerOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a batch without rows, no patience, or a learning rate that is not positive.
    pub fn validate(&self) -> Result<(), Error> {
        if self.batch == 0 {
            return Err(Error::invalid(Argument::Batch, "at least one row", 0));
        }
        if self.patience == 0 {
            return Err(Error::invalid(Argument::Patience, "at least one epoch", 0));
        }
        check_learning_rate(self.learning_rate)
    }
}

/// A [`Trainer`]'s report on an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Its number, counted from 1.
    pub number: u32,
    /// Mean loss of the rows, each when trained on.
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
/// Rows are visited in random order within a block, drawn from one random stream per seed, epoch and block.
/// A block that ends with an incomplete mini-batch trains on that as well; its rows then weigh more than others.
///
/// Its state can be saved at any time ([`Trainer::to_archive`]) and, once read back, continues exactly as the original.
///
/// # Cost
/// Per block the features of its rows once, 2·C·D multiplications per row and one step of [`Adam`] per mini-batch.
/// Memory: five copies of the parameters, and about 16 MB of features.
#[derive(Debug, Clone, PartialEq)]
pub struct Trainer {
    pub(super) options: TrainerOptions,
    pub(super) layer: SoftmaxLayer,
    pub(super) adam: Adam,
    pub(super) learning_rate: f64,
    /// Completed epochs, blocks of the current one, and the score of its rows so far.
    pub(super) epoch: u32,
    pub(super) block: u32,
    pub(super) rows: u64,
    pub(super) loss_sum: f64,
    /// The lowest validation loss and its parameters.
    pub(super) best: Option<(f64, Vec<f32>)>,
    /// Epochs since then or since the last decay.
    pub(super) stagnant: u32,
}

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
    /// As [`SoftmaxLayer::score`], before the first step and with nothing changed. [`Error::Overflow`] and, from
    /// [`Adam::step`], [`Error::Diverged`] if features or training itself diverge; the trainer is then unusable.
    pub fn train_block(
        &mut self,
        map: &(impl FeatureMap<f32> + ?Sized),
        inputs: &[Input<'_, f32>],
        labels: &[u32],
    ) -> Result<(), Error> {
        self.layer.check_map(map)?;
        argand::check_shapes(map.input_dims(), inputs)?;
        let inputs = argand::checked(inputs)?;
        self.layer.check_labels(inputs[0].rows(), labels)?;
        let order = self.order(labels.len())?;
        self.block =
            self.block.checked_add(1).ok_or_else(|| Error::invalid(Argument::Block, "fewer blocks", "2^32"))?;
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

    /// The rows of the next block in the order of visits (Fisher and Yates).
    pub(super) fn order(&self, rows: usize) -> Result<Vec<usize>, Error> {
        let count = u32::try_from(rows)
            .map_err(|_| Error::invalid(Argument::Labels, "blocks of fewer than 2^32 rows", rows))?;
        let mut order: Vec<usize> = (0..rows).collect();
        let mut stream = Stream::new(self.options.seed, Purpose::Shuffle, self.epoch, self.block);
        for left in (2..=count).rev() {
            order.swap(left as usize - 1, stream.below(left) as usize);
        }
        Ok(order)
    }

    /// Completes an epoch: keeps the weights if the validation loss is the lowest so far, and divides the learning rate
    /// by 10 after as many epochs without one as the patience. Without a validation loss, the training loss decides.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the epoch had no rows, or the loss is not a number.
    pub fn end_epoch(&mut self, validation_loss: Option<f64>) -> Result<Epoch, Error> {
        if self.rows == 0 {
            return Err(Error::invalid(Argument::Labels, "at least one row in an epoch", 0));
        }
        let training_loss = self.loss_sum / self.rows as f64;
        let validation_loss = validation_loss.unwrap_or(training_loss);
        if !validation_loss.is_finite() {
            return Err(Error::invalid(Argument::ValidationLoss, "a finite number", validation_loss));
        }
        let number =
            self.epoch.checked_add(1).ok_or_else(|| Error::invalid(Argument::Epochs, "fewer than 2^32", "one more"))?;
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
            // Never zero, however long training lasts.
            self.learning_rate = (learning_rate / 10.0).max(f64::MIN_POSITIVE);
        }
        (self.epoch, self.block, self.rows, self.loss_sum) = (number, 0, 0, 0.0);
        Ok(Epoch { number, training_loss, validation_loss, learning_rate, improved, decayed })
    }

    /// Completed epochs.
    #[must_use]
    pub fn epochs(&self) -> u32 {
        self.epoch
    }

    /// The current learning rate.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &TrainerOptions {
        &self.options
    }

    /// The current layer, for example to validate it.
    #[must_use]
    pub fn layer(&self) -> &SoftmaxLayer {
        &self.layer
    }

    /// The layer of the epoch with the lowest validation loss, or the current one before the first epoch ends.
    #[must_use]
    pub fn into_best(self) -> SoftmaxLayer {
        match self.best {
            Some((_, parameters)) => SoftmaxLayer { parameters, ..self.layer },
            None => self.layer,
        }
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

/// The kind of archive that holds the state of a [`Trainer`].
pub const TRAINING: &str = "softmax-training";

impl Trainer {
    /// The whole state, for saving. A [note](Archive::with_note) may say what is trained, and on what.
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

    /// Reads the state saved by [`Trainer::to_archive`].
    ///
    /// # Errors
    /// [`Error::Archive`] if it holds something else or is inconsistent, and as [`Trainer::new`].
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
            return Err(Error::Archive(FileFault::Content("the state of training contradicts itself".to_owned())));
        }
        let State { learning_rate, epoch, block, rows, loss_sum, stagnant, .. } = state;
        let start = Self::new(layer, state.options)?;
        Ok(Self { adam, learning_rate, epoch, block, rows, loss_sum, best, stagnant, ..start })
    }
}

/// Translates an error about one of the `rows` selected from a block.
fn in_block(error: Error, rows: &[usize]) -> Error {
    match error {
        Error::Overflow { row, dtype } => Error::Overflow { row: rows[row], dtype },
        Error::Underflow { row, dtype } => Error::Underflow { row: rows[row], dtype },
        other => other,
    }
}
