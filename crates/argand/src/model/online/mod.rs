//! Online learning: a softmax classification layer on features, trained by Adam on mini-batches.
//!
//! A [`SoftmaxLayer`] scores classes and differentiates its loss, down to the inputs of the sketch if asked. A [`Trainer`]
//! teaches it from a stream of blocks that the caller reads again in every epoch, so that data may be larger than memory.
//! The same data, blocks and options give the same weights with any number of threads, to the last bit.
//!
//! # Reference
//! Sec. 5.4 and the appendix on fine-grained recognition of the paper; Gao et al. (2016), "Compact bilinear pooling".

mod adam;
mod layer;
#[cfg(test)]
mod tests;
mod trainer;

pub use adam::Adam;
pub use layer::{Gradients, Pooling, Score, SoftmaxClassifier, SoftmaxLayer};
pub use trainer::{Epoch, Trainer, TrainerOptions};
