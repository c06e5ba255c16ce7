//! From raw rows to features: scaling, then a sketch.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use argand::draw::Drawn;
use argand::fit::Fitting;
use argand::{Argument, Error, FeatureMap, FileFault, Input, OwnedRows, Rows, RowsMut, Scalar, Spec};
use serde::{Deserialize, Serialize};

use crate::blocks::feature_rows;
use crate::engine::{Engine, EngineSketch, StartSums, Summing};
use crate::gram::Targets;
use crate::preparation::{Preparation, read_row};

/// The whole way from a table to features, as plain data: columns by name, what becomes of missing numbers, a scaling and a
/// sketch. Part of every model; Grams must share it to merge. Whoever reads tables picks the columns and fills in numbers; a
/// [`Pipeline`] does the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Recipe {
    /// The names of the columns of every table, in the order of the sketch. A table without names has an empty list; no lists at
    /// all mean that no table has names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Vec<String>>,
    /// What becomes of missing numbers.
    #[serde(default, skip_serializing_if = "Missing::is_error")]
    pub missing: Missing,
    /// The scaling of rows.
    pub preparation: Preparation,
    /// The sketch of scaled rows.
    pub spec: Spec,
}

/// What becomes of rows in which a number is missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// They are errors.
    #[default]
    Error,
    /// They are left out.
    Drop,
    /// Missing numbers become these, one per column of every table: the means of the rows that were learnt from.
    Mean(Vec<Vec<f64>>),
}

impl Missing {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_error(&self) -> bool {
        *self == Self::Error
    }

    /// Checks that it fits tables with these numbers of columns.
    fn check(&self, dims: &[usize]) -> Result<(), Error> {
        if let Self::Mean(tables) = self
            && (!tables.iter().map(Vec::len).eq(dims.iter().copied())
                || tables.iter().flatten().any(|mean| !mean.is_finite()))
        {
            return Err(Error::invalid(Argument::Recipe, format!("finite means of columns {dims:?}"), "others"));
        }
        Ok(())
    }
}

impl From<Spec> for Recipe {
    fn from(spec: Spec) -> Self {
        Self::new(Preparation::none(), spec)
    }
}

/// What a file of a recipe that is more than a sketch says it is.
const FORMAT: &str = "argand-recipe";
const FORMAT_VERSION: u32 = 1;

/// A recipe as a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipeFile {
    format: String,
    version: u32,
    recipe: Recipe,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

/// Read first, so that a newer file is recognised before its unknown fields are rejected.
#[derive(Deserialize)]
struct Versions {
    #[serde(default)]
    format: String,
    #[serde(default)]
    version: u32,
}

impl Recipe {
    /// Scaled rows, sketched; of columns in their order, none of them missing.
    #[must_use]
    pub fn new(preparation: Preparation, spec: Spec) -> Self {
        Self { columns: Vec::new(), missing: Missing::Error, preparation, spec }
    }

    /// The same recipe with another sketch.
    #[must_use]
    pub fn with_spec(mut self, spec: Spec) -> Self {
        self.spec = spec;
        self
    }

    /// Checks that all parts are for the same tables.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn validate(&self) -> Result<(), Error> {
        self.spec.validate()?;
        let dims = self.spec.inputs.as_slice();
        self.preparation.check(dims)?;
        self.missing.check(dims)?;
        let fits = |(names, &dim): (&Vec<String>, &usize)| names.is_empty() || names.len() == dim;
        if !self.columns.is_empty() && (self.columns.len() != dims.len() || !self.columns.iter().zip(dims).all(fits)) {
            return Err(Error::invalid(Argument::Recipe, format!("names of columns {dims:?}"), "names of others"));
        }
        Ok(())
    }

    /// The recipe as JSON, with a checksum. One that is only a sketch is written as [`Spec::to_json`] writes it.
    #[must_use]
    pub fn to_json(&self) -> String {
        if *self == Self::from(self.spec.clone()) {
            return self.spec.to_json();
        }
        let (format, version) = (FORMAT.to_owned(), FORMAT_VERSION);
        let mut file = RecipeFile { format, version, recipe: self.clone(), checksum: None };
        // Strings, numbers and lists of them always serialise.
        let json = |file: &RecipeFile| serde_json::to_string_pretty(file).unwrap_or_default() + "\n";
        file.checksum = argand::json_checksum(&json(&file));
        json(&file)
    }

    /// Reads what [`Recipe::to_json`] or [`Spec::to_json`] wrote.
    ///
    /// # Errors
    /// As [`Spec::from_json`] and [`Recipe::validate`].
    pub fn from_json(text: &str) -> Result<Self, Error> {
        match serde_json::from_str::<Versions>(text) {
            Ok(Versions { format, version }) if format == FORMAT => {
                if version != FORMAT_VERSION {
                    let fault = FileFault::Newer { what: "version", found: version, newest: FORMAT_VERSION };
                    return Err(Error::Spec(fault));
                }
            }
            _ => return Spec::from_json(text).map(Self::from),
        }
        let file: RecipeFile = serde_json::from_str(text).map_err(|error| Error::Spec(FileFault::caused_by(error)))?;
        if file.checksum.is_some() && file.checksum != argand::json_checksum(text) {
            return Err(Error::Spec(FileFault::Checksum));
        }
        file.recipe.validate()?;
        Ok(file.recipe)
    }

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
        Ok(self.clone().with_spec(spec))
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
        Pipeline::new(self.clone().with_spec(drawn.spec), map)
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
            let spec = Spec::polynomial(3).with_degree(3).with_features(16).with_seed(5);
            let recipe = Recipe::new(fit.finish().unwrap(), spec);
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
            let recipe = Recipe::new(fit.finish().unwrap(), spec.clone());
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
        let recipe = |features: usize, scaling: Scaling| {
            let preparation = PreparationFit::new(scaling, &[3]).finish().unwrap();
            Recipe::new(preparation, Spec::polynomial(3).with_features(features))
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

    /// A recipe keeps names, means and scaling in its file; a plain one is the file of its sketch.
    #[test]
    fn recipes_are_files_that_notice_every_flipped_bit() {
        let plain = Recipe::from(Spec::polynomial(3).with_features(8));
        assert_eq!(plain.to_json(), plain.spec.to_json());
        assert_eq!(Recipe::from_json(&plain.to_json()), Ok(plain.clone()));
        let mut fit = PreparationFit::new(Scaling::Standard, &[3]);
        fit.update(&[Rows::new(&X, 4, 3).unwrap().into()]).unwrap();
        let recipe = Recipe {
            columns: vec![["a", "b, c", "ß"].map(str::to_owned).to_vec()],
            missing: Missing::Mean(vec![vec![0.1, 0.2, 0.3]]),
            preparation: fit.finish().unwrap(),
            ..plain
        };
        let json = recipe.to_json();
        assert_eq!(Recipe::from_json(&json), Ok(recipe.clone()));
        for at in 0..json.len() {
            for bit in 0..8 {
                let mut bytes = json.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let Ok(text) = String::from_utf8(bytes) else { continue };
                let read = Recipe::from_json(&text);
                assert!(read.is_err() || read == Ok(recipe.clone()), "byte {at}, bit {bit}: {read:?}");
            }
        }
        let newer = json.replacen("\"version\": 1", "\"version\": 2", 1);
        assert!(Recipe::from_json(&newer).unwrap_err().to_string().contains("upgrade"));
        for wrong in [
            Recipe { columns: vec![vec!["a".to_owned()]], ..recipe.clone() },
            Recipe { columns: vec![vec![], vec![]], ..recipe.clone() },
            Recipe { missing: Missing::Mean(vec![vec![1.0]]), ..recipe.clone() },
            Recipe { missing: Missing::Mean(vec![vec![1.0, f64::NAN, 2.0]]), ..recipe.clone() },
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn preparations_of_other_tables_are_errors() {
        let mut fit = PreparationFit::new(Scaling::Standard, &[3]);
        fit.update(&[Rows::new(&X, 4, 3).unwrap().into()]).unwrap();
        let recipe = Recipe::new(fit.finish().unwrap(), Spec::polynomial(4).with_features(8));
        assert!(recipe.pipeline::<f32>().unwrap_err().to_string().starts_with("preparation"));
    }
}
