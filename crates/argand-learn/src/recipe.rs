//! From raw rows to features: scaling, then a sketch.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use argand::draw::Drawn;
use argand::fit::Fitting;
use argand::{Argument, Error, FeatureMap, Input, OwnedRows, Rows, RowsMut, Scalar, Spec};
use serde::{Deserialize, Serialize};

use crate::blocks::feature_rows;
use crate::engine::{Engine, EngineSketch, StartSums, Summing};
use crate::gram::Targets;
use crate::preparation::{Preparation, read_row};

/// How rows become features, as plain data: a scaling and a sketch. Part of every model; Grams must share it to merge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The scaling of rows.
    pub preparation: Preparation,
    /// The sketch of scaled rows.
    pub spec: Spec,
}

impl From<Spec> for Recipe {
    fn from(spec: Spec) -> Self {
        Self { preparation: Preparation::none(), spec }
    }
}

impl Recipe {
    /// The same recipe with its sketch fitted to a sample of raw rows, if its method [looks at rows](argand::Method::looks_at_rows) and was not fitted yet.
    ///
    /// # Errors
    /// As [`Spec::fit_to`], and [`Error::Invalid`] if the preparation is for other tables.
    pub fn fit_to<T: Scalar>(&self, inputs: &[Input<'_, T>], fitting: &Fitting) -> Result<Self, Error> {
        if !self.spec.method.looks_at_rows() || self.spec.fit.is_some() {
            return Ok(self.clone());
        }
        let dims = self.spec.inputs.as_slice();
        self.preparation.check(dims)?;
        argand::check_shapes(dims, inputs)?;
        let inputs = argand::checked(inputs)?;
        let spec = match self.preparation.apply(&inputs)? {
            None => self.spec.fit_to(&inputs, fitting)?,
            Some(scaled) => self.spec.fit_to(&scaled.iter().map(OwnedRows::view).collect::<Vec<_>>(), fitting)?,
        };
        Ok(Self { preparation: self.preparation.clone(), spec })
    }

    /// Draws the sketch for this processor.
    ///
    /// # Errors
    /// As [`Spec::sketch`], and [`Error::Invalid`] if the preparation is for other tables.
    pub fn pipeline<T: Scalar>(&self) -> Result<Pipeline<T>, Error> {
        self.pipeline_on(|drawn| Ok(Box::new(drawn.sketch()?)))
    }

    /// Draws the sketch and hands it to a back end.
    ///
    /// # Errors
    /// As [`Recipe::pipeline`], and those of the back end.
    pub fn pipeline_on<T: Scalar>(
        &self,
        back_end: impl FnOnce(&Drawn) -> Result<Box<dyn FeatureMap<T>>, Error>,
    ) -> Result<Pipeline<T>, Error> {
        let drawn = self.spec.draw()?;
        let map = back_end(&drawn)?;
        // The drawn spec includes what was fitted on drawing.
        Pipeline::new(Self { preparation: self.preparation.clone(), spec: drawn.spec }, map)
    }

    /// Draws the sketch for an engine, on which sums and models of the pipeline stay.
    ///
    /// # Errors
    /// As [`Recipe::pipeline`], and [`Error::Device`].
    pub fn pipeline_with(&self, engine: &Arc<dyn Engine>) -> Result<Pipeline<f32>, Error> {
        let mut start = None;
        let mut pipeline = self.pipeline_on(|drawn| {
            let EngineSketch { map, sums } = engine.sketch(drawn)?;
            start = Some(sums);
            Ok(map)
        })?;
        pipeline.engine = start.map(|start| (Arc::clone(engine), start));
        Ok(pipeline)
    }
}

/// A drawn [`Recipe`]: the [`FeatureMap`] from raw rows. It hides who runs the map, and on which device.
pub struct Pipeline<T> {
    recipe: Recipe,
    map: Box<dyn FeatureMap<T>>,
    engine: Option<(Arc<dyn Engine>, StartSums)>,
}

impl<T> fmt::Debug for Pipeline<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pipeline").field("recipe", &self.recipe).finish_non_exhaustive()
    }
}

impl<T: Scalar> Pipeline<T> {
    /// A recipe whose sketch a back end has drawn.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the map or the preparation is for other tables.
    pub fn new(recipe: Recipe, map: Box<dyn FeatureMap<T>>) -> Result<Self, Error> {
        let (dims, features) = (recipe.spec.inputs.as_slice(), recipe.spec.features);
        recipe.preparation.check(dims)?;
        if (map.input_dims(), map.output_dim()) != (dims, features) {
            let expected = format!("{features} features of columns {dims:?}");
            let received = format!("{} features of columns {:?}", map.output_dim(), map.input_dims());
            return Err(Error::invalid(Argument::Map, expected, received));
        }
        Ok(Self { recipe, map, engine: None })
    }

    /// The recipe that was drawn.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Rows per block in [`Pipeline::for_each_block`].
    #[must_use]
    pub fn block_rows(&self) -> usize {
        feature_rows::<T>(self.output_dim())
    }

    /// Checks rows, scales them and passes them on.
    pub(crate) fn with_prepared(
        &self,
        inputs: &[Input<'_, T>],
        consume: impl FnOnce(&[Input<'_, T>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        argand::check_shapes(self.input_dims(), inputs)?;
        let inputs = argand::checked(inputs)?;
        match self.recipe.preparation.apply(&inputs)? {
            None => consume(&inputs),
            Some(prepared) => consume(&prepared.iter().map(OwnedRows::view).collect::<Vec<_>>()),
        }
    }

    /// Computes features block by block: those of all rows are never in memory together.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_into`], with row numbers in the whole input, and those of `consume`.
    pub fn for_each_block(
        &self,
        inputs: &[Input<'_, T>],
        mut consume: impl FnMut(Range<usize>, Rows<'_, T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let rows = argand::check_shapes(self.input_dims(), inputs)?;
        let inputs = argand::checked(inputs)?;
        let (block, columns) = (self.block_rows(), self.output_dim());
        let mut features = vec![T::ZERO; block.min(rows) * columns];
        for start in (0..rows).step_by(block) {
            let range = start..(start + block).min(rows);
            let inputs: Vec<_> = inputs.iter().map(|input| input.slice(range.clone())).collect();
            let features = &mut features[..range.len() * columns];
            self.transform_into(&inputs, RowsMut::new(features, range.len(), columns)?)
                .map_err(|error| error.in_rows_from(start))?;
            // Maps report overflow, so features are finite.
            consume(range.clone(), Rows::new(features, range.len(), columns)?.known_finite())?;
        }
        Ok(())
    }
}

impl Pipeline<f32> {
    /// Sums over rows for a model: on the engine, if the pipeline runs on one.
    ///
    /// # Errors
    /// As [`Gram::new_within`](crate::Gram::new_within), and [`Error::Device`].
    ///
    /// ```
    /// use argand::{Rows, Spec};
    /// use argand_learn::{Labels, Recipe, Targets};
    /// let recipe = Recipe::from(Spec::polynomial(3).with_degree(2).with_features(64));
    /// let pipeline = recipe.pipeline::<f32>()?;
    /// let mut summing = pipeline.summing(Targets::Classes(2), 1 << 30)?;
    /// summing.update(&[Rows::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?.into()], Labels::Classes(&[0, 1]))?;
    /// assert_eq!(summing.finish()?.rows(), 2);
    /// # Ok::<(), argand::Error>(())
    /// ```
    pub fn summing(&self, targets: Targets, memory_limit: u64) -> Result<Summing<'_>, Error> {
        Summing::new(self, targets, memory_limit)
    }

    /// The engine it runs on, if not on the processor.
    #[must_use]
    pub fn engine(&self) -> Option<&Arc<dyn Engine>> {
        self.engine.as_ref().map(|(engine, _)| engine)
    }

    pub(crate) fn start_sums(&self) -> Option<&StartSums> {
        self.engine.as_ref().map(|(_, start)| start)
    }
}

impl<T: Scalar> FeatureMap<T> for Pipeline<T> {
    fn input_dims(&self) -> &[usize] {
        self.map.input_dims()
    }

    fn output_dim(&self) -> usize {
        self.map.output_dim()
    }

    fn transform_into(&self, inputs: &[Input<'_, T>], out: RowsMut<'_, T>) -> Result<(), Error> {
        self.with_prepared(inputs, |inputs| self.map.transform_into(inputs, out))
    }

    fn vjp_into(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
    ) -> Result<(), Error> {
        argand::check_shapes(self.input_dims(), inputs)?;
        let inputs = argand::checked(inputs)?;
        let Some(prepared) = self.recipe.preparation.apply(&inputs)? else {
            return self.map.vjp_into(&inputs, cotangent, gradients);
        };
        let views: Vec<_> = prepared.iter().map(OwnedRows::view).collect();
        self.map.vjp_into(&views, cotangent, gradients)?;
        // Through u/‖u‖: the part along the row is lost, the rest is divided by the norm.
        for ((input, gradient), table) in inputs.iter().zip(gradients).zip(self.recipe.preparation.tables()) {
            let mut row = vec![0.0; input.columns()];
            for index in 0..input.rows() {
                read_row(input, index, &mut row);
                let norm = table.scaled(&mut row);
                let gradient = gradient.row_mut(index);
                let along: f64 = row.iter().zip(&*gradient).map(|(value, slope)| value * slope.to_f64()).sum();
                for (column, slope) in gradient.iter_mut().enumerate() {
                    let across = slope.to_f64() - row[column] * along / (norm * norm);
                    *slope = T::from_f64(if norm > 0.0 { across * table.scale(column) / norm } else { 0.0 });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::preparation::{PreparationFit, Scaling};

    const X: [f64; 12] = [1.0, 5.0, -2.0, 3.0, 5.0, 0.0, -1.0, 5.0, 7.0, 0.5, 5.0, 1.0];

    /// The adjoint against finite differences, through the scaling.
    #[test]
    fn gradients_pass_through_the_scaling() {
        for scaling in [Scaling::None, Scaling::Unit, Scaling::NonNegative, Scaling::Standard] {
            let mut fit = PreparationFit::new(scaling, &[3]);
            fit.update(&[Rows::new(&X, 4, 3).unwrap().into()]).unwrap();
            let recipe = Recipe {
                preparation: fit.finish().unwrap(),
                spec: Spec::polynomial(3).with_degree(3).with_features(16).with_seed(5),
            };
            assert_eq!(serde_json::from_str::<Recipe>(&serde_json::to_string(&recipe).unwrap()).unwrap(), recipe);
            let pipeline = recipe.pipeline::<f64>().unwrap();
            let cotangent: Vec<f64> = (0..4 * 16).map(|i| f64::from(i * 37 % 11) - 5.0).collect();
            let value = |x: &[f64]| -> f64 {
                let features = pipeline.transform(&[Rows::new(x, 4, 3).unwrap().into()]).unwrap();
                features.iter().zip(&cotangent).map(|(a, b)| a * b).sum()
            };
            let mut gradient = vec![0.0; 12];
            pipeline
                .vjp_into(
                    &[Rows::new(&X, 4, 3).unwrap().into()],
                    Rows::new(&cotangent, 4, 16).unwrap(),
                    &mut [RowsMut::new(&mut gradient, 4, 3).unwrap()],
                )
                .unwrap();
            for at in 0..12 {
                let step = 1e-5;
                let [up, down] = [step, -step].map(|step| {
                    let mut x = X;
                    x[at] += step;
                    value(&x)
                });
                let slope = (up - down) / (2.0 * step);
                let size = gradient.iter().fold(0.0_f64, |most, slope| most.max(slope.abs()));
                assert!((slope - gradient[at]).abs() < 1e-6 * size, "{scaling} {at}: {slope} {}", gradient[at]);
            }
        }
    }

    /// A sketch that looks at rows sees them as the pipeline will: scaled. Its fit travels with the recipe.
    #[test]
    fn sketches_are_fitted_to_scaled_rows() {
        let inputs = [Rows::new(&X, 4, 3).unwrap().into()];
        for method in ["maclaurin-ctr-product-srht", "nystrom"] {
            let mut fit = PreparationFit::new(Scaling::Standard, &[3]);
            fit.update(&inputs).unwrap();
            let spec = Spec::gaussian(3, 2.0).with_features(4).with_method(method.parse().unwrap());
            let recipe = Recipe { preparation: fit.finish().unwrap(), spec: spec.clone() };
            assert!(recipe.pipeline::<f64>().unwrap_err().to_string().starts_with("fit: "));
            let fitted = recipe.fit_to(&inputs, &Fitting::default()).unwrap();
            let scaled = recipe.preparation.apply(&inputs).unwrap().unwrap();
            assert_eq!(fitted.spec, spec.fit_to(&[scaled[0].view()], &Fitting::default()).unwrap());
            assert_ne!(fitted.spec, spec.fit_to(&inputs, &Fitting::default()).unwrap());
            assert_eq!(fitted.fit_to(&inputs, &Fitting::default()).unwrap(), fitted);
            assert_eq!(serde_json::from_str::<Recipe>(&serde_json::to_string(&fitted).unwrap()).unwrap(), fitted);
            assert_eq!(fitted.pipeline::<f64>().unwrap().transform(&inputs).unwrap().len(), 16);
        }
    }

    #[test]
    fn blocks_are_the_rows_of_the_whole() {
        let x: Vec<f32> = (0..600 * 3).map(|i| (i % 17) as f32 - 8.0).collect();
        let mut recipe = Recipe::from(Spec::polynomial(3).with_degree(2).with_features(1 << 16));
        recipe.preparation = PreparationFit::new(Scaling::Unit, &[3]).finish().unwrap();
        let pipeline = recipe.pipeline::<f32>().unwrap();
        let inputs = [Rows::new(&x, 600, 3).unwrap().into()];
        let whole = pipeline.transform(&inputs).unwrap();
        let mut rows = 0;
        pipeline
            .for_each_block(&inputs, |range, features| {
                assert_eq!(range.start, rows);
                rows = range.end;
                range.clone().for_each(|row| {
                    assert_eq!(features.row(row - range.start), &whole[row << 16..][..1 << 16]);
                });
                Ok(())
            })
            .unwrap();
        assert_eq!(rows, 600);
    }

    /// A back end that counts the rows it receives and insists that they were checked.
    struct Counting {
        dims: [usize; 1],
        rows: &'static AtomicUsize,
    }

    impl FeatureMap<f32> for Counting {
        fn input_dims(&self) -> &[usize] {
            &self.dims
        }

        fn output_dim(&self) -> usize {
            2
        }

        fn transform_into(&self, inputs: &[Input<'_, f32>], mut out: RowsMut<'_, f32>) -> Result<(), Error> {
            assert!(inputs.iter().all(Input::is_known_finite), "these numbers would be looked at again");
            self.rows.fetch_add(out.rows(), Ordering::Relaxed);
            (0..out.rows()).for_each(|row| out.row_mut(row).fill(1.0));
            Ok(())
        }

        fn vjp_into(
            &self,
            inputs: &[Input<'_, f32>],
            _: Rows<'_, f32>,
            _: &mut [RowsMut<'_, f32>],
        ) -> Result<(), Error> {
            assert!(inputs.iter().all(Input::is_known_finite), "these numbers would be looked at again");
            Ok(())
        }
    }

    #[test]
    fn any_map_can_be_behind_a_pipeline_and_rows_are_checked_once() {
        static ROWS: AtomicUsize = AtomicUsize::new(0);
        let recipe = |features: usize, scaling: Scaling| Recipe {
            preparation: PreparationFit::new(scaling, &[3]).finish().unwrap(),
            spec: Spec::polynomial(3).with_features(features),
        };
        let x: Vec<f32> = (0..30).map(|i| i as f32).collect();
        let inputs = [Rows::new(&x, 10, 3).unwrap().into()];
        for scaling in [Scaling::None, Scaling::Unit] {
            let pipeline = Pipeline::new(recipe(2, scaling), Box::new(Counting { dims: [3], rows: &ROWS })).unwrap();
            let all = |range: Range<usize>, features: Rows<'_, f32>| {
                assert!(range == (0..10) && Input::from(features).is_known_finite());
                Ok(())
            };
            pipeline.for_each_block(&inputs, all).unwrap();
            pipeline.vjp_into(&inputs, Rows::new(&[0.0; 20], 10, 2).unwrap(), &mut []).unwrap();
            let mut bad = x.clone();
            bad[17] = f32::NAN;
            let bad = pipeline.transform(&[Rows::new(&bad, 10, 3).unwrap().into()]);
            assert!(matches!(bad, Err(Error::NotFinite { row: 5, column: 2, .. })));
        }
        assert_eq!(ROWS.load(Ordering::Relaxed), 20);
        let wrong = Pipeline::new(recipe(4, Scaling::None), Box::new(Counting { dims: [3], rows: &ROWS }));
        let message = "map: expected 4 features of columns [3], got 2 features of columns [3]";
        assert_eq!(wrong.unwrap_err().to_string(), message);
    }

    #[test]
    fn preparations_of_other_tables_are_errors() {
        let mut fit = PreparationFit::new(Scaling::Standard, &[3]);
        fit.update(&[Rows::new(&X, 4, 3).unwrap().into()]).unwrap();
        let recipe = Recipe { preparation: fit.finish().unwrap(), spec: Spec::polynomial(4).with_features(8) };
        assert!(recipe.pipeline::<f32>().unwrap_err().to_string().starts_with("preparation"));
    }
}
