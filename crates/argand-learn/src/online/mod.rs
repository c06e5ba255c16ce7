//! Online learning: a softmax classification layer on features, trained by Adam on mini-batches.
//!
//! A [`SoftmaxLayer`] scores classes and differentiates its loss, down to the inputs of the sketch if asked. A [`Trainer`]
//! trains it on a stream of blocks that the caller reads again in every epoch, so data may be larger than memory.
//! The same data, blocks and options give the same weights with any number of threads, to the last bit.
//!
//! # Reference
//! Sec. 5.4 and the appendix on fine-grained recognition of the paper; Gao et al. (2016), "Compact bilinear pooling".

mod adam;
pub(crate) mod classifier;
mod layer;
mod pooling;
#[cfg(test)]
mod tests;
mod trainer;

pub use adam::Adam;
pub use classifier::SoftmaxClassifier;
pub use layer::{Gradients, SoftmaxLayer};
pub use pooling::Pooling;
pub use trainer::{Epoch, TRAINING, Trainer, TrainerOptions};
