//! Learning on another device than the processor.

use std::fmt;
use std::sync::{Arc, OnceLock};

use argand::draw::Drawn;
use argand::{Error, FeatureMap, Input, Rows};
use rayon::prelude::*;

use crate::factor::PackedFactor;
use crate::gram::{Gram, Labels, Targets};
use crate::recipe::Pipeline;

/// A device that computes features and what learning does with them. It enters by [`Recipe::pipeline_with`](crate::Recipe::pipeline_with); sums
/// of such a pipeline and models fitted to them stay on it.
///
/// Symmetric and lower triangular matrices are packed: row i in the numbers from i(i + 1)/2 on.
pub trait Engine: fmt::Debug + Send + Sync {
    /// A drawn sketch, ready to run.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn sketch(&self, drawn: &Drawn) -> Result<EngineSketch, Error>;

    /// L of A = LLᵀ in place of A. Where A is not positive definite, L has numbers that are NaN.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn cholesky(&self, size: usize, packed: &mut [f64]) -> Result<(), Error>;

    /// Lower triangular matrices, kept for [`Factors::squared_norms`].
    ///
    /// # Errors
    /// [`Error::Device`].
    fn factors(&self, size: usize, packed: &[&[f64]]) -> Result<Arc<dyn Factors>, Error>;

    /// ΦΦᵀ of rows Φ.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn inner_products(&self, rows: Rows<'_, f32>) -> Result<Vec<f64>, Error>;
}

/// A sketch on an [`Engine`].
pub struct EngineSketch {
    /// The features.
    pub map: Box<dyn FeatureMap<f32>>,
    /// Starts sums over rows of features and so many further numbers, for each of so many groups of rows.
    pub sums: StartSums,
}

impl fmt::Debug for EngineSketch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EngineSketch").field("features", &self.map.output_dim()).finish_non_exhaustive()
    }
}

/// [`EngineSketch::sums`]
pub type StartSums = Box<dyn Fn(usize, usize) -> Result<Box<dyn Sums>, Error> + Send + Sync>;

/// ZᵀZ of groups of rows on an [`Engine`], where a row of Z has the features of a row and then further numbers.
pub trait Sums: Send {
    /// Adds rows: their further numbers, row by row, and the group of each.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_into`]. The sums are then of no use.
    fn add(&mut self, inputs: &[Input<'_, f32>], others: &[f64], groups: &[u32]) -> Result<(), Error>;

    /// The sums of every group, packed.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn finish(self: Box<Self>) -> Result<Vec<Vec<f64>>, Error>;
}

/// Lower triangular matrices on an [`Engine`].
pub trait Factors: fmt::Debug + Send + Sync {
    /// ‖L⁻¹φ‖² of every row φ, for one matrix L after the other.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn squared_norms(&self, rows: Rows<'_, f32>) -> Result<Vec<Vec<f64>>, Error>;
}

/// Sums over rows where a pipeline computes their features: [`Pipeline::summing`].
pub struct Summing<'a> {
    pipeline: &'a Pipeline<f32>,
    /// The sums; until the end those of targets alone if the others are on an engine.
    gram: Gram,
    sums: Option<Box<dyn Sums>>,
    rows: u64,
}

impl fmt::Debug for Summing<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Summing").field("pipeline", &self.pipeline).finish_non_exhaustive()
    }
}

impl<'a> Summing<'a> {
    pub(crate) fn new(pipeline: &'a Pipeline<f32>, targets: Targets, memory_limit: u64) -> Result<Self, Error> {
        let gram = Gram::new_within(pipeline.recipe(), targets, memory_limit)?;
        // Products of classes apart come with the sums of features; others with the sums of targets, too.
        let more = if let Targets::ClassesApart(_) = targets { 1 } else { 1 + targets.columns() };
        let sums = pipeline.start_sums().map(|start| start(more, targets.groups())).transpose()?;
        Ok(Self { pipeline, gram, sums, rows: 0 })
    }

    /// Adds rows and their targets.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_into`] and [`Gram::update`].
    pub fn update(&mut self, inputs: &[Input<'_, f32>], labels: Labels<'_>) -> Result<(), Error> {
        let rows = argand::check_shapes(self.pipeline.input_dims(), inputs)?;
        self.gram.check_labels(labels, rows)?;
        let Some(sums) = &mut self.sums else {
            return self
                .pipeline
                .for_each_block(inputs, |range, features| self.gram.update(features, labels.slice(range)));
        };
        let (mut others, mut groups) = (Vec::new(), vec![0; rows]);
        let columns = self.gram.targets().columns();
        match (self.gram.targets(), labels) {
            (Targets::ClassesApart(_), Labels::Classes(classes)) => {
                others.resize(rows, 1.0);
                groups.copy_from_slice(classes);
            }
            (_, Labels::Classes(classes)) => {
                others.resize(rows * (columns + 1), 0.0);
                for (others, &class) in others.chunks_exact_mut(columns + 1).zip(classes) {
                    others[0] = 1.0;
                    others[1 + class as usize] = 1.0;
                }
            }
            (_, Labels::Values(values)) => {
                (0..rows).for_each(|row| {
                    others.push(1.0);
                    others.extend_from_slice(values.row(row));
                });
            }
        }
        self.gram.add_labels(self.rows, labels);
        self.rows += rows as u64;
        self.pipeline.with_prepared(inputs, |inputs| sums.add(inputs, &others, &groups))
    }

    /// The sums.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn finish(self) -> Result<Gram, Error> {
        let Some(sums) = self.sums else { return Ok(self.gram) };
        Ok(self.gram.with_sums(self.rows, sums.finish()?, self.pipeline.engine()))
    }
}

/// Where the variances of a model are computed.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnEngine {
    pub(crate) engine: Option<Arc<dyn Engine>>,
    /// The factors on the engine, from the first prediction on.
    factors: OnceLock<Arc<dyn Factors>>,
}

impl PartialEq for OnEngine {
    /// A model is the same wherever it runs.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl OnEngine {
    pub(crate) fn new(engine: Option<Arc<dyn Engine>>) -> Self {
        Self { engine, factors: OnceLock::new() }
    }

    /// ‖L⁻¹φ‖² of every row φ, for one factor L after the other: always the same factors.
    pub(crate) fn squared_norms(
        &self,
        factors: &[&PackedFactor],
        features: Rows<'_, f32>,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let Some(engine) = self.engine.as_ref().filter(|_| !factors.is_empty()) else {
            return Ok(factors.par_iter().map(|factor| factor.variances(features, &[]).swap_remove(0)).collect());
        };
        let there = match self.factors.get() {
            Some(there) => there,
            None => {
                let packed: Vec<&[f64]> = factors.iter().map(|factor| factor.values()).collect();
                let there = engine.factors(features.columns(), &packed)?;
                self.factors.get_or_init(|| there)
            }
        };
        there.squared_norms(features)
    }
}
