//! Scaling of rows before sketching.

use std::fmt;
use std::str::FromStr;

use argand::{Argument, Error, Input, OwnedRows, Rows, Scalar};
use serde::{Deserialize, Serialize};

/// How to scale rows before sketching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// Unchanged.
    None,
    /// To unit norm.
    Unit,
    /// Subtract the smallest value of each column, then scale to unit norm: the paper's non-negative data.
    NonNegative,
    /// Subtract the mean of each column, divide by its standard deviation, then scale to unit norm: the paper's centred data.
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

/// The fitted columns of one table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Columns {
    /// Subtracted from every row; empty for nothing.
    shift: Vec<f64>,
    /// Multiplies every row after that; empty for nothing.
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
    /// Leaves rows unchanged.
    #[must_use]
    pub fn none() -> Self {
        Self { scaling: Scaling::None, tables: Vec::new() }
    }

    /// The kind of scaling.
    #[must_use]
    pub fn scaling(&self) -> Scaling {
        self.scaling
    }

    /// Checks that it fits tables with these numbers of columns.
    pub(crate) fn check(&self, dims: &[usize]) -> Result<(), Error> {
        if self.scaling == Scaling::None {
            return Ok(());
        }
        let fits = |(table, &dim): (&Columns, &usize)| {
            [&table.shift, &table.scale].iter().all(|values| values.is_empty() || values.len() == dim)
        };
        if self.tables.len() != dims.len() || !self.tables.iter().zip(dims).all(fits) {
            return Err(Error::invalid(Argument::Preparation, format!("one for columns {dims:?}"), "one for others"));
        }
        let numbers = self.tables.iter().flat_map(|table| table.shift.iter().chain(&table.scale));
        if numbers.clone().any(|number| !number.is_finite()) {
            return Err(Error::invalid(Argument::Preparation, "finite numbers", "NaN or infinity"));
        }
        Ok(())
    }

    /// The scaled rows of one table, one after the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] for rows of another width, [`Error::NotFinite`], and [`Error::Overflow`] for rows too long for their norm.
    pub fn scale<T: Scalar>(&self, rows: Rows<'_, T>) -> Result<Vec<T>, Error> {
        self.check(&[rows.columns()])?;
        let input = Input::from(rows).checked(Argument::Rows)?;
        match self.tables.first().filter(|_| self.scaling != Scaling::None) {
            Some(table) => table.dense(&input),
            None => Ok((0..rows.rows()).flat_map(|row| rows.row(row)).copied().collect()),
        }
    }

    /// The fitted columns of every table, if any.
    pub(crate) fn tables(&self) -> &[Columns] {
        &self.tables
    }

    /// The scaled rows of all tables, which must be finite and fit. Returns `None` if there is nothing to do.
    ///
    /// # Errors
    /// [`Error::Overflow`] for rows too long for their norm, and [`Error::Invalid`] for sparse rows too wide to become dense.
    pub fn apply<T: Scalar>(&self, inputs: &[Input<'_, T>]) -> Result<Option<Vec<OwnedRows<T>>>, Error> {
        if self.scaling == Scaling::None {
            return Ok(None);
        }
        inputs.iter().zip(&self.tables).map(|(input, table)| table.apply(input)).collect::<Result<_, _>>().map(Some)
    }
}

/// The most columns of a sparse table that may become dense.
const WIDEST_DENSE: usize = 1 << 16;

impl Columns {
    /// (x − shift) ∘ scale, and its norm.
    pub(crate) fn scaled(&self, row: &mut [f64]) -> f64 {
        row.iter_mut().zip(&self.shift).for_each(|(value, shift)| *value -= shift);
        row.iter_mut().zip(&self.scale).for_each(|(value, scale)| *value *= scale);
        row.iter().map(|value| value * value).sum::<f64>().sqrt()
    }

    /// The factor of a column.
    pub(crate) fn scale(&self, column: usize) -> f64 {
        self.scale.get(column).copied().unwrap_or(1.0)
    }

    /// Rows of unit norm, or of zeros: finite by construction.
    fn apply<T: Scalar>(&self, input: &Input<'_, T>) -> Result<OwnedRows<T>, Error> {
        let (rows, columns) = (input.rows(), input.columns());
        let Input::Sparse(table) = input else {
            return Ok(OwnedRows::dense(self.dense(input)?, rows, columns)?.known_finite());
        };
        if self.shift.iter().any(|&shift| shift != 0.0) {
            check_width(input)?;
            return Ok(OwnedRows::dense(self.dense(input)?, rows, columns)?.known_finite());
        }
        // Zeros stay zero.
        let (mut starts, mut columns_of, mut values) = (vec![0], vec![], vec![]);
        for index in 0..rows {
            let row: Vec<_> =
                table.row(index).map(|(column, value)| (column, value.to_f64() * self.scale(column))).collect();
            // Entries of the same column are summed first.
            let mut merged = row.clone();
            merged.sort_by_key(|&(column, _)| column);
            let sums = merged.chunk_by(|a, b| a.0 == b.0).map(|same| same.iter().map(|(_, value)| value).sum::<f64>());
            let factor = inverse::<T>(sums.map(|value: f64| value * value).sum::<f64>().sqrt(), index)?;
            for (column, value) in row {
                let value = T::from_f64(value * factor);
                // Entries of the same column may be large and cancel.
                if !value.is_finite() {
                    return Err(Error::Overflow { row: index, dtype: T::NAME });
                }
                columns_of.push(column as u64);
                values.push(value);
            }
            starts.push(values.len() as u64);
        }
        Ok(OwnedRows::sparse(starts, columns_of, values, columns)?.known_finite())
    }

    /// As [`Columns::apply`], one dense row after the other.
    fn dense<T: Scalar>(&self, input: &Input<'_, T>) -> Result<Vec<T>, Error> {
        let (mut values, mut row) = (Vec::with_capacity(input.rows() * input.columns()), vec![0.0; input.columns()]);
        for index in 0..input.rows() {
            read_row(input, index, &mut row);
            let factor = inverse::<T>(self.scaled(&mut row), index)?;
            values.extend(row.iter().map(|value| T::from_f64(value * factor)));
        }
        Ok(values)
    }
}

/// 1/‖u‖, or 0 for a row of zeros.
fn inverse<T: Scalar>(norm: f64, row: usize) -> Result<f64, Error> {
    match norm {
        0.0 => Ok(0.0),
        norm if norm.is_finite() => Ok(1.0 / norm),
        _ => Err(Error::Overflow { row, dtype: T::NAME }),
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

/// A dense or sparse row, in double precision.
pub(crate) fn read_row<T: Scalar>(input: &Input<'_, T>, index: usize, row: &mut [f64]) {
    match input {
        Input::Dense(table) => row.iter_mut().zip(table.row(index)).for_each(|(to, from)| *to = from.to_f64()),
        Input::Sparse(table) => {
            row.fill(0.0);
            table.row(index).for_each(|(column, value)| row[column] += value.to_f64());
        }
    }
}

/// Fits a [`Preparation`] to rows in blocks.
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
    /// Empty until the first rows.
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

    /// Whether it needs rows; otherwise [`finish`](Self::finish) can be called at once.
    #[must_use]
    pub fn needs_rows(&self) -> bool {
        matches!(self.scaling, Scaling::NonNegative | Scaling::Standard)
    }

    /// Adds some rows.
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
                    // Welford's recurrence: no cancellation, whatever the mean.
                    let difference = value - table.mean[column];
                    table.mean[column] += difference / count;
                    table.squares[column] += difference * (value - table.mean[column]);
                }
            }
        }
        self.rows += inputs.first().map_or(0, Input::rows);
        Ok(())
    }

    /// The fitted preparation. A constant column is divided by 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] if rows were needed and there were none.
    pub fn finish(self) -> Result<Preparation, Error> {
        if self.needs_rows() && self.rows == 0 {
            return Err(Error::invalid(Argument::Input(None), "at least one row to learn the scaling from", 0));
        }
        if self.scaling == Scaling::None {
            return Ok(Preparation::none());
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

#[cfg(test)]
mod tests {
    use argand::SparseRows;

    use super::*;

    const X: [f64; 12] = [1.0, 5.0, -2.0, 3.0, 5.0, 0.0, -1.0, 5.0, 7.0, 0.5, 5.0, 1.0];

    fn prepared(scaling: Scaling) -> (Preparation, Vec<f64>) {
        let inputs = [Rows::new(&X, 4, 3).unwrap().into()];
        let mut fit = PreparationFit::new(scaling, &[3]);
        for range in [0..1, 1..4] {
            fit.update(&inputs.map(|input: Input<'_, f64>| input.slice(range.clone()))).unwrap();
        }
        let preparation = fit.finish().unwrap();
        let values = preparation.scale(Rows::new(&X, 4, 3).unwrap()).unwrap();
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

    #[test]
    fn wrong_rows_are_errors() {
        let (preparation, _) = prepared(Scaling::Standard);
        assert!(preparation.check(&[4]).unwrap_err().to_string().starts_with("preparation"));
        assert!("centred".parse::<Scaling>().unwrap_err().to_string().contains("non-negative"));
        assert!(PreparationFit::new(Scaling::Standard, &[3]).finish().is_err());
        let mut fit = PreparationFit::new(Scaling::Standard, &[3]);
        let nan = [1.0, f64::NAN, 0.0];
        assert!(matches!(fit.update(&[Rows::new(&nan, 1, 3).unwrap().into()]), Err(Error::NotFinite { .. })));
        assert!(fit.update(&[Rows::new(&X, 3, 4).unwrap().into()]).unwrap_err().to_string().contains("3 columns"));
    }

    /// Finite rows with an infinite norm would become zeros.
    #[test]
    fn rows_too_long_for_their_norm_are_errors() {
        let preparation = PreparationFit::new(Scaling::Unit, &[2]).finish().unwrap();
        let long = [3.0, 4.0, 1e200, 1e200];
        let overflow = Err(Error::Overflow { row: 1, dtype: "f64" });
        assert_eq!(preparation.scale(Rows::new(&long, 2, 2).unwrap()), overflow);
        let sparse = SparseRows::new(&[0_u64, 2, 4][..], &[0_u64, 1, 0, 1][..], &long, 2).unwrap();
        assert_eq!(preparation.apply(&[sparse.into()]).map(|_| vec![]), overflow);
        let cancelling = SparseRows::new(&[0_u64, 3][..], &[0_u64, 0, 1][..], &[1e30_f32, -1e30, 1e-20], 2).unwrap();
        let overflow = preparation.apply(&[cancelling.into()]).map(|_| ());
        assert_eq!(overflow, Err(Error::Overflow { row: 0, dtype: "f32" }));
        let single = long.map(f32::from_f64);
        assert_eq!(preparation.scale(Rows::new(&single[..2], 1, 2).unwrap()), Ok(vec![0.6, 0.8]));
    }
}
