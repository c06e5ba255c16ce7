//! From rows as they come to features: scaling, then a sketch.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Argument, Error};
use crate::map::{FeatureMap, Sketch};
use crate::rows::{Input, OwnedRows, Rows, RowsMut};
use crate::scalar::Scalar;
use crate::spec::Spec;

/// How rows are scaled before they are sketched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// Left as they are.
    None,
    /// To unit norm.
    Unit,
    /// Less the smallest value of each column, then to unit norm: the paper's non-negative data.
    NonNegative,
    /// Less the mean of each column and divided by its standard deviation, then to unit norm: the paper's centred data.
    Standard,
}

const SCALINGS: [(&str, Scaling); 4] = [
    ("none", Scaling::None),
    ("unit", Scaling::Unit),
    ("non-negative", Scaling::NonNegative),
    ("standard", Scaling::Standard),
];

impl FromStr for Scaling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = SCALINGS.iter().find(|(known, _)| *known == name).map(|&(_, scaling)| scaling);
        let names = || SCALINGS.map(|(name, _)| name).join(", ");
        known.ok_or_else(|| Error::invalid(Argument::Scaling, format!("one of {}", names()), format!("\"{name}\"")))
    }
}

impl fmt::Display for Scaling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(SCALINGS.iter().find(|(_, scaling)| scaling == self).map_or("", |(name, _)| name))
    }
}

/// What was learnt about the columns of one table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    /// Subtracted from every row; empty for nothing.
    shift: Vec<f64>,
    /// What every row is multiplied with after that; empty for nothing.
    scale: Vec<f64>,
}

/// A fitted [`Scaling`] of every input table.
///
/// # Formula
/// x ↦ u/‖u‖ with u = (x − shift) ∘ scale; a row of zeros stays one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    scaling: Scaling,
    tables: Vec<Columns>,
}

impl Preparation {
    /// Leaves rows as they are.
    #[must_use]
    pub fn none() -> Self {
        Self { scaling: Scaling::None, tables: Vec::new() }
    }

    /// The scaling that it does.
    #[must_use]
    pub fn scaling(&self) -> Scaling {
        self.scaling
    }

    /// Checks that it is one for tables with these numbers of columns.
    fn check(&self, dims: &[usize]) -> Result<(), Error> {
        if self.scaling == Scaling::None {
            return Ok(());
        }
        let fits = |(table, &dim): (&Columns, &usize)| {
            [&table.shift, &table.scale].iter().all(|values| values.is_empty() || values.len() == dim)
        };
        if self.tables.len() != dims.len() || !self.tables.iter().zip(dims).all(fits) {
            return Err(Error::invalid(
                Argument::Preparation,
                format!("one for columns {dims:?}"),
                "one for other tables",
            ));
        }
        let numbers = self.tables.iter().flat_map(|table| table.shift.iter().chain(&table.scale));
        if numbers.clone().any(|number| !number.is_finite()) {
            return Err(Error::invalid(Argument::Preparation, "finite numbers", "others"));
        }
        Ok(())
    }

    /// The scaled rows of a model of one table, one after the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] for rows of another table, [`Error::NotFinite`].
    pub fn scale<T: Scalar>(&self, rows: Rows<'_, T>) -> Result<Vec<T>, Error> {
        self.check(&[rows.columns()])?;
        let input = Input::from(rows);
        input.check_finite(Argument::Rows)?;
        match self.apply(&[input])?.and_then(|mut tables| tables.pop()) {
            Some(OwnedRows::Dense { values, .. }) => Ok(values),
            _ => Ok((0..rows.rows()).flat_map(|row| rows.row(row)).copied().collect()),
        }
    }

    /// Scales rows; the tables must fit. Returns `None` where there is nothing to do.
    fn apply<T: Scalar>(&self, inputs: &[Input<'_, T>]) -> Result<Option<Vec<OwnedRows<T>>>, Error> {
        if self.scaling == Scaling::None {
            return Ok(None);
        }
        inputs.iter().zip(&self.tables).map(|(input, table)| table.apply(input)).collect::<Result<_, _>>().map(Some)
    }
}

/// A sparse table with more columns than this is not made dense.
const WIDEST_DENSE: usize = 1 << 16;

impl Columns {
    /// (x − shift) ∘ scale, and its norm.
    fn scaled(&self, row: &mut [f64]) -> f64 {
        row.iter_mut().zip(&self.shift).for_each(|(value, shift)| *value -= shift);
        row.iter_mut().zip(&self.scale).for_each(|(value, scale)| *value *= scale);
        row.iter().map(|value| value * value).sum::<f64>().sqrt()
    }

    fn apply<T: Scalar>(&self, input: &Input<'_, T>) -> Result<OwnedRows<T>, Error> {
        let (rows, columns) = (input.rows(), input.columns());
        if let Input::Sparse(table) = input
            && self.shift.iter().all(|&shift| shift == 0.0)
        {
            // Zeros stay zeros.
            let (mut starts, mut columns_of, mut values) = (vec![0], vec![], vec![]);
            for row in 0..rows {
                let scale = |column: usize| self.scale.get(column).copied().unwrap_or(1.0);
                let row: Vec<_> =
                    table.row(row).map(|(column, value)| (column, value.to_f64() * scale(column))).collect();
                // Entries that name the same column are added up before they count.
                let mut merged = row.clone();
                merged.sort_by_key(|&(column, _)| column);
                let squares =
                    merged.chunk_by(|a, b| a.0 == b.0).map(|same| same.iter().map(|(_, value)| value).sum::<f64>());
                let norm = squares.map(|value: f64| value * value).sum::<f64>().sqrt();
                let factor = if norm > 0.0 { 1.0 / norm } else { 0.0 };
                for (column, value) in row {
                    columns_of.push(column as u64);
                    values.push(T::from_f64(value * factor));
                }
                starts.push(values.len() as u64);
            }
            return Ok(OwnedRows::Sparse { columns, starts, columns_of, values });
        }
        check_width(input)?;
        let (mut values, mut row) = (Vec::with_capacity(rows * columns), vec![0.0; columns]);
        for index in 0..rows {
            read_row(input, index, &mut row);
            let norm = self.scaled(&mut row);
            let factor = if norm > 0.0 { 1.0 / norm } else { 0.0 };
            values.extend(row.iter().map(|value| T::from_f64(value * factor)));
        }
        Ok(OwnedRows::Dense { rows, columns, values })
    }
}

/// Checks that rows may be made dense.
fn check_width<T: Scalar>(input: &Input<'_, T>) -> Result<(), Error> {
    if matches!(input, Input::Sparse(_)) && input.columns() > WIDEST_DENSE {
        let expected = format!("none or unit for sparse rows of more than {WIDEST_DENSE} columns");
        return Err(Error::invalid(Argument::Scaling, expected, "one that makes them dense"));
    }
    Ok(())
}

fn read_row<T: Scalar>(input: &Input<'_, T>, index: usize, row: &mut [f64]) {
    match input {
        Input::Dense(table) => row.iter_mut().zip(table.row(index)).for_each(|(to, from)| *to = from.to_f64()),
        Input::Sparse(table) => {
            row.fill(0.0);
            table.row(index).for_each(|(column, value)| row[column] += value.to_f64());
        }
    }
}

/// Learns a [`Preparation`] from rows that come in blocks.
///
/// # Cost
/// One pass over the numbers; memory for two numbers per column.
#[derive(Debug, Clone)]
pub struct PreparationFit {
    scaling: Scaling,
    rows: usize,
    tables: Vec<Statistics>,
}

#[derive(Debug, Clone)]
struct Statistics {
    dim: usize,
    /// Empty before the first rows.
    smallest: Vec<f64>,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

impl PreparationFit {
    /// For tables with these numbers of columns.
    #[must_use]
    pub fn new(scaling: Scaling, dims: &[usize]) -> Self {
        let table = |&dim: &usize| Statistics { dim, smallest: vec![], mean: vec![], squares: vec![] };
        Self { scaling, rows: 0, tables: dims.iter().map(table).collect() }
    }

    /// Whether rows are to be looked at; otherwise [`finish`](Self::finish) can be called at once.
    #[must_use]
    pub fn needs_rows(&self) -> bool {
        matches!(self.scaling, Scaling::NonNegative | Scaling::Standard)
    }

    /// Takes some rows into account.
    ///
    /// # Errors
    /// [`Error::NotFinite`], and [`Error::Invalid`] for tables of other widths.
    pub fn update<T: Scalar>(&mut self, inputs: &[Input<'_, T>]) -> Result<(), Error> {
        if !self.needs_rows() {
            return Ok(());
        }
        if inputs.len() != self.tables.len() {
            return Err(Error::invalid(Argument::Inputs, format!("{} tables", self.tables.len()), inputs.len()));
        }
        for (input, table) in inputs.iter().zip(&self.tables) {
            if input.columns() != table.dim {
                return Err(Error::invalid(Argument::Input(None), format!("{} columns", table.dim), input.columns()));
            }
            check_width(input)?;
            input.check_finite(Argument::Input(None))?;
        }
        let before = self.rows;
        for (input, table) in inputs.iter().zip(&mut self.tables) {
            table.smallest.resize(table.dim, f64::INFINITY);
            table.mean.resize(table.dim, 0.0);
            table.squares.resize(table.dim, 0.0);
            let mut row = vec![0.0; input.columns()];
            for index in 0..input.rows() {
                read_row(input, index, &mut row);
                let count = (before + index + 1) as f64;
                for (column, &value) in row.iter().enumerate() {
                    table.smallest[column] = table.smallest[column].min(value);
                    // Welford's recurrence: no cancellation, whatever the mean is.
                    let difference = value - table.mean[column];
                    table.mean[column] += difference / count;
                    table.squares[column] += difference * (value - table.mean[column]);
                }
            }
        }
        self.rows += inputs.first().map_or(0, Input::rows);
        Ok(())
    }

    /// What was learnt. A column of equal numbers is divided by 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] if rows were needed and there were none.
    pub fn finish(self) -> Result<Preparation, Error> {
        if self.needs_rows() && self.rows == 0 {
            return Err(Error::invalid(Argument::Input(None), "at least one row to learn the scaling from", 0));
        }
        let rows = self.rows as f64;
        let columns = |table: Statistics| match self.scaling {
            Scaling::None | Scaling::Unit => Columns { shift: vec![], scale: vec![] },
            Scaling::NonNegative => Columns { shift: table.smallest, scale: vec![] },
            Scaling::Standard => {
                let inverse = |&sum: &f64| if sum > 0.0 { (rows / sum).sqrt() } else { 1.0 };
                Columns { scale: table.squares.iter().map(inverse).collect(), shift: table.mean }
            }
        };
        Ok(Preparation { scaling: self.scaling, tables: self.tables.into_iter().map(columns).collect() })
    }
}

/// How rows become features, as plain data: a scaling and a sketch. Part of every model, and what two Grams must share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What is done to rows first.
    pub preparation: Preparation,
    /// The sketch of the result.
    pub spec: Spec,
}

impl From<Spec> for Recipe {
    fn from(spec: Spec) -> Self {
        Self { preparation: Preparation::none(), spec }
    }
}

impl Recipe {
    /// Draws the sketch.
    ///
    /// # Errors
    /// As [`Spec::sketch`], and [`Error::Invalid`] if the preparation is one for other tables.
    pub fn pipeline<T: Scalar>(&self) -> Result<Pipeline<T>, Error> {
        self.preparation.check(self.spec.inputs.as_slice())?;
        Ok(Pipeline { preparation: self.preparation.clone(), sketch: self.spec.sketch()? })
    }
}

/// A drawn [`Recipe`]: the [`FeatureMap`] from rows as they come.
#[derive(Debug)]
pub struct Pipeline<T> {
    preparation: Preparation,
    sketch: Sketch<T>,
}

/// Bytes of features that [`Pipeline::for_each_block`] holds at a time, about; and the bounds on its rows.
const BLOCK_BYTES: usize = 128 << 20;
const FEWEST_ROWS: usize = 256;
const MOST_ROWS: usize = 16384;

impl<T: Scalar> Pipeline<T> {
    /// What was drawn.
    #[must_use]
    pub fn recipe(&self) -> Recipe {
        Recipe { preparation: self.preparation.clone(), spec: self.sketch.spec().clone() }
    }

    /// Rows whose features fit a block of some 128 MB.
    #[must_use]
    pub fn block_rows(&self) -> usize {
        (BLOCK_BYTES / size_of::<T>() / self.output_dim()).clamp(FEWEST_ROWS, MOST_ROWS)
    }

    /// Computes features block by block, so that those of all rows are never there together.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_into`], with row numbers in all of the input, and those of `consume`.
    pub fn for_each_block(
        &self,
        inputs: &[Input<'_, T>],
        mut consume: impl FnMut(Range<usize>, Rows<'_, T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let rows = self.sketch.spec().check_inputs(inputs)?;
        let (block, columns) = (self.block_rows(), self.output_dim());
        let mut features = vec![T::ZERO; block.min(rows) * columns];
        for start in (0..rows).step_by(block) {
            let range = start..(start + block).min(rows);
            let inputs: Vec<_> = inputs.iter().map(|input| input.slice(range.clone())).collect();
            let features = &mut features[..range.len() * columns];
            self.transform_into(&inputs, RowsMut::new(features, range.len(), columns)?)
                .map_err(|error| error.in_rows_from(start))?;
            consume(range.clone(), Rows::new(features, range.len(), columns)?)?;
        }
        Ok(())
    }
}

impl<T: Scalar> FeatureMap<T> for Pipeline<T> {
    fn input_dims(&self) -> &[usize] {
        self.sketch.input_dims()
    }

    fn output_dim(&self) -> usize {
        self.sketch.output_dim()
    }

    fn transform_into(&self, inputs: &[Input<'_, T>], out: RowsMut<'_, T>) -> Result<(), Error> {
        self.sketch.spec().check_inputs(inputs)?;
        match self.preparation.apply(inputs)? {
            None => self.sketch.transform_into(inputs, out),
            Some(prepared) => {
                let views: Vec<_> = prepared.iter().map(OwnedRows::view).collect();
                self.sketch.transform_into(&views, out)
            }
        }
    }

    fn vjp_into(
        &self,
        inputs: &[Input<'_, T>],
        cotangent: Rows<'_, T>,
        gradients: &mut [RowsMut<'_, T>],
    ) -> Result<(), Error> {
        self.sketch.spec().check_inputs(inputs)?;
        let Some(prepared) = self.preparation.apply(inputs)? else {
            return self.sketch.vjp_into(inputs, cotangent, gradients);
        };
        let views: Vec<_> = prepared.iter().map(OwnedRows::view).collect();
        self.sketch.vjp_into(&views, cotangent, gradients)?;
        // Through u/‖u‖: the part along the row is lost, the rest is divided by the norm.
        for ((input, gradient), table) in inputs.iter().zip(gradients).zip(&self.preparation.tables) {
            let mut row = vec![0.0; input.columns()];
            for index in 0..input.rows() {
                read_row(input, index, &mut row);
                let norm = table.scaled(&mut row);
                let gradient = gradient.row_mut(index);
                let along: f64 = row.iter().zip(&*gradient).map(|(value, slope)| value * slope.to_f64()).sum();
                for (column, slope) in gradient.iter_mut().enumerate() {
                    let scale = table.scale.get(column).copied().unwrap_or(1.0);
                    let across = slope.to_f64() - row[column] * along / (norm * norm);
                    *slope = T::from_f64(if norm > 0.0 { across * scale / norm } else { 0.0 });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SparseRows;

    const X: [f64; 12] = [1.0, 5.0, -2.0, 3.0, 5.0, 0.0, -1.0, 5.0, 7.0, 0.5, 5.0, 1.0];

    fn prepared(scaling: Scaling) -> (Preparation, Vec<f64>) {
        let inputs = [Rows::new(&X, 4, 3).unwrap().into()];
        let mut fit = PreparationFit::new(scaling, &[3]);
        for range in [0..1, 1..4] {
            fit.update(&inputs.map(|input: Input<'_, f64>| input.slice(range.clone()))).unwrap();
        }
        let preparation = fit.finish().unwrap();
        let OwnedRows::Dense { values, .. } = preparation.apply(&inputs).unwrap().unwrap().remove(0) else { panic!() };
        (preparation, values)
    }

    #[test]
    fn scaled_by_hand() {
        let (_, values) = prepared(Scaling::NonNegative);
        let norm = |row: &[f64]| row.iter().map(|value| value * value).sum::<f64>().sqrt();
        // The smallest are -1, 5, -2: the first row is (2, 0, 0).
        assert_eq!(values[..3], [1.0, 0.0, 0.0]);
        assert!(values.chunks(3).all(|row| (norm(row) - 1.0).abs() < 1e-15));
        let (_, values) = prepared(Scaling::Standard);
        // Means 0.875, 5, 1.5 and sums of squares around them 8.1875, 0, 45; the second column is constant.
        let (first, third) = (0.125 / (8.1875_f64 / 4.0).sqrt(), -3.5 / (45_f64 / 4.0).sqrt());
        let length = f64::hypot(first, third);
        assert!((values[0] - first / length).abs() < 1e-9 && (values[2] - third / length).abs() < 1e-9);
        assert!(values[1] == 0.0);
    }

    #[test]
    fn sparse_rows_are_scaled_as_dense_ones() {
        let dense = [0.0, 3.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0];
        let sparse = SparseRows::new(&[0_u64, 3, 3][..], &[3_u64, 1, 3][..], &[1.0, 3.0, 3.0], 4).unwrap();
        for scaling in [Scaling::Unit, Scaling::NonNegative, Scaling::Standard] {
            let [of_dense, of_sparse] = [Rows::new(&dense, 2, 4).unwrap().into(), Input::from(sparse)].map(|input| {
                let mut fit = PreparationFit::new(scaling, &[4]);
                fit.update(&[input]).unwrap();
                let prepared = fit.finish().unwrap().apply(&[input]).unwrap().unwrap().remove(0);
                let mut row = vec![0.0; 4];
                (0..2)
                    .flat_map(|index| {
                        read_row(&prepared.view(), index, &mut row);
                        row.clone()
                    })
                    .collect::<Vec<f64>>()
            });
            assert_eq!(of_dense, of_sparse, "{scaling}");
        }
    }

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

    #[test]
    fn wrong_preparations_are_errors() {
        let (preparation, _) = prepared(Scaling::Standard);
        let recipe = Recipe { preparation, spec: Spec::polynomial(4).with_degree(2).with_features(8) };
        assert!(recipe.pipeline::<f32>().unwrap_err().to_string().starts_with("preparation"));
        assert!("centred".parse::<Scaling>().unwrap_err().to_string().contains("non-negative"));
        assert!(PreparationFit::new(Scaling::Standard, &[3]).finish().is_err());
        let mut fit = PreparationFit::new(Scaling::Standard, &[3]);
        let nan = [1.0, f64::NAN, 0.0];
        assert!(matches!(fit.update(&[Rows::new(&nan, 1, 3).unwrap().into()]), Err(Error::NotFinite { .. })));
        assert!(fit.update(&[Rows::new(&X, 3, 4).unwrap().into()]).unwrap_err().to_string().contains("3 columns"));
    }
}
