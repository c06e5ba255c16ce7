//! The optimiser.

use argand::{Argument, Error, Scalar};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

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
    pub(super) first: Vec<f32>,
    pub(super) second: Vec<f32>,
    pub(super) steps: u64,
}

impl Adam {
    const BETA: [f64; 2] = [0.9, 0.999];
    const EPSILON: f32 = 1e-8;
    /// Parameters that a thread updates at a time.
    const CHUNK: usize = 1 << 14;

    /// The initial state for this many parameters.
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
    /// [`Error::Invalid`] for lengths that differ and a learning rate that is not positive; [`Error::Diverged`], with the parameters
    /// then unspecified, for gradients that are not finite or whose squares do not fit into `f32`.
    pub fn step(&mut self, learning_rate: f64, parameters: &mut [f32], gradients: &[f32]) -> Result<(), Error> {
        check_learning_rate(learning_rate)?;
        for (argument, length) in [(Argument::Parameters, parameters.len()), (Argument::Gradients, gradients.len())] {
            if length != self.first.len() {
                return Err(Error::invalid(argument, format!("{} numbers", self.first.len()), length));
            }
        }
        self.steps += 1;
        // Beyond 2⁵³ steps both powers are zero anyway.
        let [mean_bias, square_bias] = Self::BETA.map(|beta| 1.0 - libm::pow(beta, self.steps as f64));
        let rate = f32::from_f64(learning_rate / mean_bias);
        let unbias = f32::from_f64(1.0 / square_bias);
        let finite = parameters
            .par_chunks_mut(Self::CHUNK)
            .zip(gradients.par_chunks(Self::CHUNK))
            .zip(self.first.par_chunks_mut(Self::CHUNK).zip(self.second.par_chunks_mut(Self::CHUNK)))
            .map(|((parameters, gradients), (first, second))| {
                pulp::Arch::new().dispatch(Step { rate, unbias, parameters, gradients, first, second })
            })
            .reduce(|| true, |one, other| one & other);
        if finite { Ok(()) } else { Err(Error::Diverged) }
    }
}

/// Steps some parameters; returns whether all stay finite. Element by element and without fused operations, it
/// gives the same bits on every instruction set.
struct Step<'a> {
    rate: f32,
    unbias: f32,
    parameters: &'a mut [f32],
    gradients: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl WithSimd for Step<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        let Self { rate, unbias, parameters, gradients, first, second } = self;
        let [mean_share, square_share] = Adam::BETA.map(|beta| f32::from_f64(1.0 - beta));
        let [keep_mean, keep_square] = Adam::BETA.map(f32::from_f64);
        let mut finite = true;
        for ((parameter, &gradient), (first, second)) in
            parameters.iter_mut().zip(gradients).zip(first.iter_mut().zip(second))
        {
            *first = keep_mean * *first + mean_share * gradient;
            *second = keep_square * *second + square_share * (gradient * gradient);
            *parameter -= rate * *first / ((*second * unbias).sqrt() + Adam::EPSILON);
            finite &= (*second * unbias + parameter.abs()).is_finite();
        }
        finite
    }
}

pub(super) fn check_learning_rate(learning_rate: f64) -> Result<(), Error> {
    if learning_rate.is_finite() && learning_rate > 0.0 {
        Ok(())
    } else {
        Err(Error::invalid(Argument::LearningRate, "a finite number above 0", learning_rate))
    }
}
