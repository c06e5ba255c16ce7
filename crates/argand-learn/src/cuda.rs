//! [`Engine`] on an NVIDIA GPU.

use std::sync::{Arc, Mutex, PoisonError};

use argand::draw::Drawn;
use argand::{Error, FeatureMap, Groups, Input, Rows, RowsMut};
use argand_cuda::{Algebra, CudaSketch, Device, Products};

use crate::engine::{Engine, EngineSketch, Factors, Sums};

/// A GPU on which models learn.
#[derive(Debug)]
pub struct CudaEngine {
    device: Device,
    /// Handles and streams that nobody is using.
    idle: Mutex<Vec<Algebra>>,
}

impl CudaEngine {
    /// Nothing if cuBLAS is not found: features are computed without it, but not what is learnt from them.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn find(device: &Device) -> Result<Option<Self>, Error> {
        let algebra = Algebra::find(device)?;
        Ok(algebra.map(|algebra| Self { device: device.clone(), idle: Mutex::new(vec![algebra]) }))
    }

    fn take(&self) -> Result<Algebra, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| algebra(&self.device), Ok)
    }

    fn with<R>(&self, work: impl FnOnce(&Algebra) -> Result<R, Error>) -> Result<R, Error> {
        let algebra = self.take()?;
        let result = work(&algebra);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(algebra);
        result
    }
}

/// Another handle, where there was one before.
fn algebra(device: &Device) -> Result<Algebra, Error> {
    Algebra::find(device)?.ok_or_else(|| Error::Device {
        device: format!("cuda:{}", device.info().number),
        fault: argand::DeviceFault::Driver("cuBLAS was there and is gone".to_owned()),
    })
}

impl Engine for CudaEngine {
    fn sketch(&self, drawn: &Drawn) -> Result<EngineSketch, Error> {
        let sketch = Arc::new(CudaSketch::<f32>::new(&self.device, drawn)?);
        let device = self.device.clone();
        let map = Box::new(Shared(Arc::clone(&sketch)));
        let sums = move |more, groups| -> Result<Box<dyn Sums>, Error> {
            // A handle of its own: sums then do not depend on what else runs.
            Ok(Box::new(Products::new(algebra(&device)?, Arc::clone(&sketch), more, groups)?))
        };
        Ok(EngineSketch { map, sums: Box::new(sums) })
    }

    fn cholesky(&self, size: usize, packed: &mut [f64]) -> Result<(), Error> {
        self.with(|algebra| algebra.cholesky(size, packed))
    }

    fn factors(&self, size: usize, packed: &[&[f64]]) -> Result<Arc<dyn Factors>, Error> {
        Ok(Arc::new(self.take()?.factors(size, packed)?))
    }

    fn inner_products(&self, rows: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        self.with(|algebra| algebra.inner_products(rows))
    }
}

impl Sums for Products {
    fn add(&mut self, inputs: &[Input<'_, f32>], others: &[f64], groups: &[u32]) -> Result<(), Error> {
        self.add(inputs, others, groups)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Vec<f64>>, Error> {
        (*self).finish()
    }
}

impl Factors for argand_cuda::Factors {
    fn squared_norms(&self, rows: Rows<'_, f32>) -> Result<Vec<Vec<f64>>, Error> {
        self.squared_norms(rows)
    }
}

/// A sketch that a pipeline and its sums share.
struct Shared(Arc<CudaSketch<f32>>);

impl FeatureMap<f32> for Shared {
    fn input_dims(&self) -> &[usize] {
        self.0.input_dims()
    }

    fn output_dim(&self) -> usize {
        self.0.output_dim()
    }

    fn transform_into(&self, inputs: &[Input<'_, f32>], out: RowsMut<'_, f32>) -> Result<(), Error> {
        self.0.transform_into(inputs, out)
    }

    fn vjp_into(
        &self,
        inputs: &[Input<'_, f32>],
        cotangent: Rows<'_, f32>,
        gradients: &mut [RowsMut<'_, f32>],
    ) -> Result<(), Error> {
        self.0.vjp_into(inputs, cotangent, gradients)
    }

    fn transform_pooled_into(
        &self,
        inputs: &[Input<'_, f32>],
        groups: &Groups,
        out: RowsMut<'_, f32>,
    ) -> Result<(), Error> {
        self.0.transform_pooled_into(inputs, groups, out)
    }
}
