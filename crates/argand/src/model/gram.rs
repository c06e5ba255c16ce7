//! The sums that closed-form learning needs, in one pass over the rows, to be added up across files and machines.

use std::borrow::Cow;
use std::sync::OnceLock;

use faer::Mat;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::archive::Archive;
use super::products::{Group, Packed, WIDTH};
use super::recipe::Recipe;
use crate::error::{Argument, Error, FileFault};
use crate::map::DEFAULT_MEMORY_LIMIT;
use crate::rows::{Input, Rows};

/// The lower triangle of a symmetric matrix, row by row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Triangle {
    dim: usize,
    values: Vec<f64>,
}

/// Rows whose products are summed up before they are added to those of others.
const CHUNK: usize = 1024;

impl Triangle {
    fn zeros(dim: usize) -> Self {
        Self { dim, values: vec![0.0; dim * (dim + 1) / 2] }
    }

    /// Entries 0..=row of a row.
    pub(crate) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * (row + 1) / 2..][..=row]
    }

    fn add(&mut self, other: &Self) {
        self.values.par_iter_mut().zip(&other.values).with_min_len(1 << 14).for_each(|(sum, value)| *sum += value);
    }

    /// Adds the products of rows.
    fn add_rows(&mut self, rows: &[&[f32]], packed: &mut Packed) {
        for rows in rows.chunks(CHUNK) {
            packed.fill(rows);
            packed.add_products(self.dim, &mut self.values);
        }
    }

    /// a·self + b·other + c·I as the lower triangle of a matrix; what is above is zero.
    pub(crate) fn combine(&self, a: f64, other: Option<(f64, &Self)>, c: f64) -> Mat<f64> {
        const COLUMNS: usize = 16;
        let mut matrix = Mat::zeros(self.dim, self.dim);
        // A few columns at a time, so that both sides are read and written in lines.
        for first in (0..self.dim).step_by(COLUMNS) {
            for row in first..self.dim {
                for column in first..=(first + COLUMNS - 1).min(row) {
                    let second = other.map_or(0.0, |(b, other)| b * other.row(row)[column]);
                    let diagonal = if row == column { c } else { 0.0 };
                    matrix[(row, column)] = a * self.row(row)[column] + second + diagonal;
                }
            }
        }
        matrix
    }
}

/// ΦᵀΦ of the rows of a class, or these rows while they are few.
#[derive(Debug, Clone, PartialEq)]
enum Products {
    /// Features, row by row.
    Rows(Vec<f32>),
    Sums(Triangle),
}

/// Classes from which on their rows are kept while they are few: with fewer that have [`most_kept`] rows, a factor that all of them
/// share takes more than it saves.
const KEEPING_CLASSES: usize = 5;

/// Rows of a class that are kept at most: three eighths of the features, in three eighths of the memory of the sums.
///
/// By way of n rows, a class takes nD²/2 + n²D multiplications instead of D³/6: fewer below n = 0.23D, and as much time at D/3, as
/// products of matrices are faster than factorisations. A predicted row takes nD instead of D²/2.
fn most_kept(dim: usize) -> usize {
    dim / 8 * 3
}

impl Products {
    fn add_rows(&mut self, rows: &[&[f32]], dim: usize, packed: &mut Packed) {
        match self {
            Self::Sums(sums) => sums.add_rows(rows, packed),
            Self::Rows(kept) if kept.len() / dim + rows.len() <= most_kept(dim) => {
                rows.iter().for_each(|row| kept.extend_from_slice(row));
            }
            Self::Rows(kept) => {
                let mut sums = sums_of(kept, dim, packed);
                sums.add_rows(rows, packed);
                *self = Self::Sums(sums);
            }
        }
    }

    fn merge(&mut self, other: &Self, dim: usize, packed: &mut Packed) {
        match (&mut *self, other) {
            (_, Self::Rows(rows)) => self.add_rows(&split(rows, dim), dim, packed),
            (Self::Sums(sums), Self::Sums(other)) => sums.add(other),
            (Self::Rows(kept), Self::Sums(other)) => {
                let mut sums = sums_of(kept, dim, packed);
                sums.add(other);
                *self = Self::Sums(sums);
            }
        }
    }
}

fn split(rows: &[f32], dim: usize) -> Vec<&[f32]> {
    rows.chunks_exact(dim).collect()
}

fn sums_of(rows: &[f32], dim: usize, packed: &mut Packed) -> Triangle {
    let mut sums = Triangle::zeros(dim);
    sums.add_rows(&split(rows, dim), packed);
    sums
}

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Targets {
    /// This many columns of numbers.
    Values(usize),
    /// One of this many classes; products of features are summed up over all of them.
    Classes(usize),
    /// One of this many classes; products of features are kept for every class, which
    /// [`GpClassifier`](super::GpClassifier) needs.
    ClassesApart(usize),
}

impl Targets {
    /// Columns of targets: classes count as 0 and 1.
    #[must_use]
    pub fn columns(self) -> usize {
        match self {
            Self::Values(columns) => columns,
            Self::Classes(classes) | Self::ClassesApart(classes) => classes,
        }
    }

    fn check(self) -> Result<(), Error> {
        let (fewest, what) = if let Self::Values(_) = self { (1, "1 column of numbers") } else { (2, "2 classes") };
        if self.columns() < fewest || u32::try_from(self.columns()).is_err() {
            return Err(Error::invalid(Argument::Targets, format!("at least {what}"), self.columns()));
        }
        Ok(())
    }

    /// Groups of rows whose products are apart.
    fn groups(self) -> usize {
        if let Self::ClassesApart(classes) = self { classes } else { 1 }
    }
}

/// Targets of some rows.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// Numbers.
    Values(Rows<'a, f64>),
    /// Classes, counted from 0.
    Classes(&'a [u32]),
}

impl Labels<'_> {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Values(rows) => rows.rows(),
            Self::Classes(classes) => classes.len(),
        }
    }
}

/// Sums over rows of features φ and targets y: all that ridge regression and Gaussian processes learn from.
///
/// # Formula
/// n, Φᵀ1, ΦᵀΦ (of all rows or of every class), ΦᵀY, Yᵀ1 and diag(YᵀY); Y has a column of zeros and ones for every class.
/// Features are f32, all sums f64.
///
/// # Cost
/// n·D² operations in all, also with the products of every class apart. Memory 4D² bytes, or that for every class; a class among
/// five or more keeps its rows instead, in 4D bytes each, while they are at most 3D/8. The products of all rows, 4D² bytes more, are
/// then summed up when a model first asks for them.
///
/// ```
/// use argand::model::{Gram, Labels, Recipe, Targets};
/// use argand::{FeatureMap, Rows, Spec};
/// let recipe = Recipe::from(Spec::polynomial(3).with_degree(2).with_features(64));
/// let pipeline = recipe.pipeline::<f32>()?;
/// let (x, y) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 1]);
/// let mut gram = Gram::new(&recipe, Targets::Classes(2))?;
/// pipeline.for_each_block(&[Rows::new(&x, 2, 3)?.into()], |range, features| {
///     gram.update(features, Labels::Classes(&y[range]))
/// })?;
/// let other = Gram::from_bytes(&gram.to_bytes())?; // from another machine, say
/// gram.merge(&other)?;
/// assert_eq!(gram.rows(), 4);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gram {
    recipe: Recipe,
    targets: Targets,
    rows: u64,
    /// One, or one for every class.
    products: Vec<Products>,
    /// The sums of all of them, once they have been asked for.
    total: OnceLock<Triangle>,
    /// Φᵀ(1, Y), feature by feature.
    moments: Vec<f64>,
    target_sums: Vec<f64>,
    target_squares: Vec<f64>,
}

impl PartialEq for Gram {
    fn eq(&self, other: &Self) -> bool {
        self.recipe == other.recipe
            && self.targets == other.targets
            && self.rows == other.rows
            && self.products == other.products
            && self.moments == other.moments
            && self.target_sums == other.target_sums
            && self.target_squares == other.target_squares
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    recipe: Recipe,
    targets: Targets,
    rows: u64,
    /// For every class the number of its rows, if they are kept; nothing if there are sums only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<Option<usize>>,
}

const KIND: &str = "gram";

impl Gram {
    /// No rows yet, within [`DEFAULT_MEMORY_LIMIT`].
    ///
    /// # Errors
    /// As [`Spec::validate`](crate::Spec::validate), [`Error::Invalid`] for no targets or a single class, and
    /// [`Error::TooLarge`].
    pub fn new(recipe: &Recipe, targets: Targets) -> Result<Self, Error> {
        Self::new_within(recipe, targets, DEFAULT_MEMORY_LIMIT)
    }

    /// As [`Gram::new`], with another limit in bytes.
    ///
    /// # Errors
    /// As [`Gram::new`].
    pub fn new_within(recipe: &Recipe, targets: Targets, memory_limit: u64) -> Result<Self, Error> {
        recipe.spec.validate()?;
        targets.check()?;
        let columns = targets.columns();
        let dim = recipe.spec.features;
        let needed = Self::bytes(dim, targets);
        if needed > memory_limit {
            return Err(Error::TooLarge { needed, limit: memory_limit });
        }
        let keep = targets.groups() >= KEEPING_CLASSES;
        let empty = if keep { Products::Rows(Vec::new()) } else { Products::Sums(Triangle::zeros(dim)) };
        Ok(Self {
            recipe: recipe.clone(),
            targets,
            rows: 0,
            products: vec![empty; targets.groups()],
            total: OnceLock::new(),
            moments: vec![0.0; dim * (columns + 1)],
            target_sums: vec![0.0; columns],
            target_squares: vec![0.0; columns],
        })
    }

    /// Bytes of the sums at most; `u64::MAX` if they cannot be counted.
    #[must_use]
    pub fn bytes(features: usize, targets: Targets) -> u64 {
        let (dim, columns) = (features as u128, targets.columns() as u128);
        let numbers = (dim * (dim + 1) / 2) * targets.groups() as u128 + dim * (columns + 1);
        u64::try_from(numbers * 8).unwrap_or(u64::MAX)
    }

    /// Adds rows: their features, and their targets.
    ///
    /// # Errors
    /// [`Error::Invalid`] for features or targets of another shape or kind and for classes that do not exist, and
    /// [`Error::NotFinite`]; the sums are then as they were.
    pub fn update(&mut self, features: Rows<'_, f32>, labels: Labels<'_>) -> Result<(), Error> {
        self.check(features, labels)?;
        self.total = OnceLock::new();
        let (dim, all): (_, Vec<usize>) = (features.columns(), (0..features.rows()).collect());
        let mut packed = Packed::new();
        for rows in all.chunks(CHUNK) {
            packed.fill(&rows.iter().map(|&row| features.row(row)).collect::<Vec<_>>());
            if let [Products::Sums(sums)] = &mut self.products[..] {
                packed.add_products(dim, &mut sums.values);
            }
            let columns = target_columns(rows, labels, self.targets.columns());
            let of_feature = columns.len() + 1;
            let moments = self.moments.par_chunks_mut(of_feature * WIDTH).enumerate().with_min_len(8);
            moments.for_each(|(group, moments)| {
                let group: Vec<&Group> = packed.group(group).collect();
                let of_columns = columns.iter().map(|column| column.products(&group));
                let sums = std::iter::once(sum(group.iter().copied())).chain(of_columns);
                for (at, sums) in sums.enumerate() {
                    moments.chunks_mut(of_feature).zip(sums).for_each(|(moments, sum)| moments[at] += sum);
                }
            });
            for (column, (sum, squares)) in
                columns.iter().zip(self.target_sums.iter_mut().zip(&mut self.target_squares))
            {
                let [first, second] = column.sums();
                *sum += first;
                *squares += second;
            }
        }
        if let (Targets::ClassesApart(classes), Labels::Classes(labels)) = (self.targets, labels) {
            let mut groups = vec![Vec::new(); classes];
            labels.iter().enumerate().for_each(|(row, &label)| groups[label as usize].push(features.row(row)));
            for (products, rows) in self.products.iter_mut().zip(&groups) {
                products.add_rows(rows, dim, &mut packed);
            }
        }
        self.rows += features.rows() as u64;
        Ok(())
    }

    pub(crate) fn check(&self, features: Rows<'_, f32>, labels: Labels<'_>) -> Result<(), Error> {
        let dim = self.recipe.spec.features;
        if features.columns() != dim {
            return Err(Error::invalid(Argument::Features, format!("{dim} columns"), features.columns()));
        }
        if labels.rows() != features.rows() {
            return Err(Error::invalid(
                Argument::Labels,
                format!("{} rows, as the features", features.rows()),
                labels.rows(),
            ));
        }
        match (self.targets, labels) {
            (Targets::Values(columns), Labels::Values(values)) => {
                if values.columns() != columns {
                    return Err(Error::invalid(Argument::Labels, format!("{columns} columns"), values.columns()));
                }
                Input::from(values).check_finite(Argument::Labels)?;
            }
            (Targets::Classes(classes) | Targets::ClassesApart(classes), Labels::Classes(labels)) => {
                check_classes(labels, classes)?;
            }
            (Targets::Values(_), Labels::Classes(_)) => {
                return Err(Error::invalid(Argument::Labels, "numbers, as this Gram is for regression", "classes"));
            }
            (_, Labels::Values(_)) => {
                return Err(Error::invalid(Argument::Labels, "classes, as this Gram is for classification", "numbers"));
            }
        }
        Input::from(features).check_finite(Argument::Features)
    }

    /// Adds the sums of other rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are of another recipe or kind of target.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.check_same(other)?;
        self.total = OnceLock::new();
        self.rows += other.rows;
        let (dim, mut packed) = (self.recipe.spec.features, Packed::new());
        for (products, other) in self.products.iter_mut().zip(&other.products) {
            products.merge(other, dim, &mut packed);
        }
        for (sums, others) in [
            (&mut self.moments, &other.moments),
            (&mut self.target_sums, &other.target_sums),
            (&mut self.target_squares, &other.target_squares),
        ] {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        }
        Ok(())
    }

    pub(crate) fn check_same(&self, other: &Self) -> Result<(), Error> {
        if other.recipe != self.recipe {
            let received = format!("{} seed {}", other.recipe.spec.method, other.recipe.spec.seed);
            return Err(Error::invalid(Argument::Other, "a Gram of the same scaling and sketch", received));
        }
        if other.targets != self.targets {
            let [expected, received] = [self, other].map(|gram| format!("{:?}", gram.targets));
            return Err(Error::invalid(Argument::Other, format!("a Gram of {expected}"), received));
        }
        Ok(())
    }

    /// How rows became features.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// What is predicted.
    #[must_use]
    pub fn targets(&self) -> Targets {
        self.targets
    }

    /// The number n of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// ΦᵀΦ, row by row in full.
    #[must_use]
    pub fn products(&self) -> Vec<f64> {
        let (total, dim) = (self.total(), self.recipe.spec.features);
        (0..dim).flat_map(|i| (0..dim).map(move |j| (i.max(j), i.min(j)))).map(|(i, j)| total.row(i)[j]).collect()
    }

    /// ΦᵀΦ of all rows.
    pub(crate) fn total(&self) -> &Triangle {
        if let ([Products::Sums(total)], _) | (_, Some(total)) = (&self.products[..], self.total.get()) {
            return total;
        }
        let (mut total, mut rows) = (Triangle::zeros(self.recipe.spec.features), Vec::new());
        for products in &self.products {
            match products {
                Products::Sums(sums) => total.add(sums),
                Products::Rows(kept) => rows.extend(split(kept, total.dim)),
            }
        }
        total.add_rows(&rows, &mut Packed::new());
        // Nothing waits for the cell while threads work on the sums: one that does could be the one that fills it.
        self.total.get_or_init(|| total)
    }

    /// ΦᵀΦ of one class, where they are apart.
    pub(crate) fn of_class(&self, class: usize) -> Cow<'_, Triangle> {
        match &self.products[class] {
            Products::Sums(sums) => Cow::Borrowed(sums),
            Products::Rows(rows) => Cow::Owned(sums_of(rows, self.recipe.spec.features, &mut Packed::new())),
        }
    }

    /// The features of the rows of a class, where they are kept.
    pub(crate) fn kept(&self, class: usize) -> Option<&[f32]> {
        if let Products::Rows(rows) = &self.products[class] { Some(rows) } else { None }
    }

    /// Φᵀ1
    #[must_use]
    pub fn feature_sums(&self) -> Vec<f64> {
        self.moments.iter().step_by(self.targets.columns() + 1).copied().collect()
    }

    /// Φᵀy of one column of targets; of a class, the sum of its features.
    #[must_use]
    pub fn moments(&self, column: usize) -> Vec<f64> {
        self.moments.iter().skip(column + 1).step_by(self.targets.columns() + 1).copied().collect()
    }

    /// Σ y of every column of targets; of classes, their numbers of rows.
    #[must_use]
    pub fn target_sums(&self) -> &[f64] {
        &self.target_sums
    }

    /// Σ y² of every column of targets.
    #[must_use]
    pub fn target_squares(&self) -> &[f64] {
        &self.target_squares
    }

    /// The sums as a file, to be sent and merged elsewhere.
    #[must_use]
    pub fn to_archive(&self) -> Archive {
        let dim = self.recipe.spec.features;
        let (mut kept, mut rows, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for products in &self.products {
            match products {
                Products::Rows(values) => {
                    kept.push(Some(values.len() / dim));
                    rows.extend_from_slice(values);
                }
                Products::Sums(triangle) => {
                    kept.push(None);
                    sums.extend_from_slice(&triangle.values);
                }
            }
        }
        // Sums alone are as they were before rows were kept.
        if kept.iter().all(Option::is_none) {
            kept.clear();
        }
        let keeps = !kept.is_empty();
        let header = Header { recipe: self.recipe.clone(), targets: self.targets, rows: self.rows, kept };
        let mut archive = Archive::new(KIND, &header);
        if keeps {
            archive = archive.with_f32("rows", rows);
        }
        archive
            .with_f64("products", sums)
            .with_f64("moments", self.moments.clone())
            .with_f64("target_sums", self.target_sums.clone())
            .with_f64("target_squares", self.target_squares.clone())
    }

    /// What [`Gram::to_archive`] made.
    ///
    /// # Errors
    /// [`Error::Archive`], and as [`Gram::new`] without a limit on memory beyond the bytes that are there.
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let Header { recipe, targets, rows, kept } = archive.header(KIND)?;
        targets.check()?;
        let (dim, columns, groups) = (recipe.spec.features, targets.columns(), targets.groups());
        if !kept.is_empty() && !matches!(targets, Targets::ClassesApart(_)) {
            return Err(Error::Archive(FileFault::Content("rows of classes that are not apart".to_owned())));
        }
        if !kept.is_empty() && kept.len() != groups {
            return Err(Error::Archive(FileFault::Content(format!("rows of {} classes, not of {groups}", kept.len()))));
        }
        let too_large = || Error::Archive(FileFault::Content("its header claims more than any memory".to_owned()));
        let numbers = |count: Option<usize>, each: Option<usize>| count?.checked_mul(each?);
        let counts = kept.iter().flatten().try_fold(0_usize, |sum, &count| sum.checked_add(count));
        let size = dim.checked_add(1).and_then(|next| dim.checked_mul(next)).map(|twice| twice / 2);
        let moments = numbers(Some(dim), columns.checked_add(1)).ok_or_else(too_large)?;
        let sums = numbers(Some(groups - kept.iter().flatten().count()), size).ok_or_else(too_large)?;
        let kept_numbers = numbers(counts, Some(dim)).ok_or_else(too_large)?;
        let sums = archive.take_f64("products", sums)?;
        let values = if kept.is_empty() { Vec::new() } else { archive.take_f32("rows", kept_numbers)? };
        let (mut sums, mut values) = (&sums[..], &values[..]);
        let products = (0..groups).map(|class| match kept.get(class).copied().flatten() {
            Some(count) => {
                let rows;
                (rows, values) = values.split_at(count * dim);
                Products::Rows(rows.to_vec())
            }
            None => {
                let triangle;
                (triangle, sums) = sums.split_at(dim * (dim + 1) / 2);
                Products::Sums(Triangle { dim, values: triangle.to_vec() })
            }
        });
        let products = products.collect();
        Ok(Self {
            total: OnceLock::new(),
            moments: archive.take_f64("moments", moments)?,
            target_sums: archive.take_f64("target_sums", columns)?,
            target_squares: archive.take_f64("target_squares", columns)?,
            recipe,
            targets,
            rows,
            products,
        })
    }

    /// As [`Gram::to_archive`], in bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_archive().to_bytes()
    }

    /// As [`Gram::from_archive`], from bytes.
    ///
    /// # Errors
    /// As [`Gram::from_archive`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_archive(Archive::from_bytes(bytes)?)
    }
}

/// Checks that all classes are among the first `classes` ones.
pub(crate) fn check_classes(labels: &[u32], classes: usize) -> Result<(), Error> {
    match labels.iter().position(|&label| label as usize >= classes) {
        None => Ok(()),
        Some(row) => {
            let received = format!("{} in row {row}", labels[row]);
            Err(Error::invalid(Argument::Labels, format!("classes below {classes}"), received))
        }
    }
}

/// A column of targets of some rows.
enum Column {
    Values(Vec<f64>),
    /// Ones in these places of the chunk, zeros elsewhere.
    Members(Vec<usize>),
}

impl Column {
    /// Σ yφ for a group of features of the same rows.
    fn products(&self, rows: &[&Group]) -> Group {
        match self {
            Self::Values(targets) => targets.iter().zip(rows).fold([0.0; WIDTH], |mut sums, (target, row)| {
                sums.iter_mut().zip(*row).for_each(|(sum, value)| *sum += target * value);
                sums
            }),
            Self::Members(places) => sum(places.iter().map(|&place| rows[place])),
        }
    }

    /// Σ y and Σ y².
    fn sums(&self) -> [f64; 2] {
        match self {
            Self::Values(targets) => [targets.iter().sum(), targets.iter().map(|target| target * target).sum()],
            Self::Members(places) => [places.len() as f64; 2],
        }
    }
}

fn sum<'a>(rows: impl Iterator<Item = &'a Group>) -> Group {
    rows.fold([0.0; WIDTH], |mut sums, row| {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        sums
    })
}

fn target_columns(rows: &[usize], labels: Labels<'_>, columns: usize) -> Vec<Column> {
    match labels {
        Labels::Values(values) => (0..columns)
            .map(|column| Column::Values(rows.iter().map(|&row| values.row(row)[column]).collect()))
            .collect(),
        Labels::Classes(labels) => {
            let mut members = vec![Vec::new(); columns];
            rows.iter().enumerate().for_each(|(place, &row)| members[labels[row] as usize].push(place));
            members.into_iter().map(Column::Members).collect()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Spec;
    use crate::rng::{Purpose, Stream};

    /// Random features and classes; the recipe is only a name for them.
    pub(crate) fn problem(rows: usize, dim: usize, classes: u32) -> (Recipe, Vec<f32>, Vec<u32>) {
        let mut stream = Stream::new(9, Purpose::Sample, 3, 0);
        #[allow(clippy::cast_possible_truncation, reason = "rounding is meant")]
        let features = (0..rows * dim).map(|_| stream.uniform() as f32 - 0.3).collect();
        let labels = (0..).map(|row| if row < 2 * classes { row % classes } else { stream.below(classes) });
        (Recipe::from(Spec::polynomial(3).with_degree(2).with_features(dim)), features, labels.take(rows).collect())
    }

    fn one_hot(labels: &[u32], classes: usize) -> Vec<f64> {
        labels
            .iter()
            .flat_map(|&label| (0..classes).map(move |class| f64::from(u8::from(class == label as usize))))
            .collect()
    }

    /// Sums by their definition.
    fn naive(features: &[f32], targets: &[f64], dim: usize, columns: usize) -> [Vec<f64>; 3] {
        let rows = features.len() / dim;
        let phi = |row: usize, i: usize| f64::from(features[row * dim + i]);
        let products = (0..dim * dim).map(|at| (0..rows).map(|row| phi(row, at / dim) * phi(row, at % dim)).sum());
        let moments = (0..columns * dim)
            .map(|at| (0..rows).map(|row| phi(row, at % dim) * targets[row * columns + at / dim]).sum());
        let sums = (0..dim).map(|i| (0..rows).map(|row| phi(row, i)).sum());
        [products.collect(), moments.collect(), sums.collect()]
    }

    fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
        assert_eq!(got.len(), want.len());
        let size = want.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() <= tolerance * size, "{got} {want}");
        }
    }

    /// Sizes around those of strips, tiles and chunks.
    #[test]
    fn sums_are_those_of_the_definition() {
        for (rows, dim) in [(1, 2), (37, 14), (4099, 66), (600, 258), (17, 514)] {
            let (recipe, features, labels) = problem(rows, dim, 3);
            let table = Rows::new(&features, rows, dim).unwrap();
            let mut hot = one_hot(&labels, 3);
            for targets in [Targets::Classes(3), Targets::ClassesApart(3), Targets::Values(3)] {
                let mut gram = Gram::new(&recipe, targets).unwrap();
                let labels = if let Targets::Values(_) = targets {
                    hot.iter_mut().enumerate().for_each(|(at, value)| *value += (at % 5) as f64);
                    Labels::Values(Rows::new(&hot, rows, 3).unwrap())
                } else {
                    Labels::Classes(&labels)
                };
                gram.update(table, labels).unwrap();
                let [products, moments, sums] = naive(&features, &hot, dim, 3);
                assert_close(&gram.products(), &products, 1e-12);
                let got: Vec<f64> = (0..3).flat_map(|column| gram.moments(column)).collect();
                assert_close(&got, &moments, 1e-12);
                assert_close(&gram.feature_sums(), &sums, 1e-12);
                for column in 0..3 {
                    let of = |power| (0..rows).map(|row| hot[row * 3 + column].powi(power)).sum::<f64>();
                    assert_close(&[gram.target_sums()[column], gram.target_squares()[column]], &[of(1), of(2)], 1e-12);
                }
                let matrix = gram.total().combine(2.0, Some((-1.0, gram.total())), 1.0);
                for (i, j) in [(0, 0), (dim - 1, 0), (dim - 1, dim - 1)] {
                    let want = products[i * dim + j] + f64::from(u8::from(i == j));
                    assert!((matrix[(i, j)] - want).abs() < 1e-5 * want.abs().max(1.0));
                }
                assert_eq!(Gram::from_bytes(&gram.to_bytes()).unwrap(), gram);
            }
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (recipe, features, labels) = problem(500, 30, 4);
        for targets in [Targets::Classes(4), Targets::ClassesApart(4)] {
            let of = |rows: std::ops::Range<usize>| {
                let mut gram = Gram::new(&recipe, targets).unwrap();
                let part = Rows::new(&features[rows.start * 30..rows.end * 30], rows.len(), 30).unwrap();
                gram.update(part, Labels::Classes(&labels[rows])).unwrap();
                gram
            };
            let (whole, mut sum) = (of(0..500), of(0..123));
            sum.merge(&of(123..500)).unwrap();
            assert_eq!(sum.rows(), 500);
            assert_eq!(sum.target_sums(), whole.target_sums());
            assert_close(&sum.products(), &whole.products(), 1e-12);
            let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            assert_eq!(threads.install(|| of(0..500)), whole, "one thread and several");
        }
    }

    impl Gram {
        /// The same sums without kept rows.
        pub(crate) fn folded(&self) -> Self {
            let mut folded = self.clone();
            let sums = (0..self.products.len()).map(|class| Products::Sums(self.of_class(class).into_owned()));
            folded.products = sums.collect();
            folded
        }
    }

    /// Classes of 3 to 36 rows, of which those up to 24 are kept, in one piece, in blocks and in parts that are merged.
    #[test]
    fn kept_rows_stand_for_their_products() {
        let (dim, classes, rows) = (66, 6, 100);
        let (recipe, features, _) = problem(rows, dim, 6);
        let ends = [3, 8, 20, 39, 64, 100];
        let label = |row: usize| ends.iter().position(|&end| row * 37 % rows < end).unwrap();
        let labels: Vec<u32> = (0..rows).map(|row| u32::try_from(label(row)).unwrap()).collect();
        let of = |cuts: &[usize]| {
            let mut gram = Gram::new(&recipe, Targets::ClassesApart(classes)).unwrap();
            for cut in cuts.windows(2) {
                let part = Rows::new(&features[cut[0] * dim..cut[1] * dim], cut[1] - cut[0], dim).unwrap();
                gram.update(part, Labels::Classes(&labels[cut[0]..cut[1]])).unwrap();
            }
            gram
        };
        let kept = |gram: &Gram| (0..classes).map(|class| gram.kept(class).is_some()).collect::<Vec<_>>();
        let whole = of(&[0, rows]);
        assert_eq!(kept(&whole), [true, true, true, true, false, false]);
        let mut grams = vec![of(&[0, 1, 50, 51, rows])];
        // Rows with rows, sums with rows and rows with sums.
        for cut in [50, 90, 10] {
            let mut parts = [of(&[0, cut]), of(&[cut, rows])];
            let [first, second] = &mut parts;
            assert_ne!(first.total().values, second.total().values);
            first.merge(second).unwrap();
            grams.push(first.clone());
        }
        grams.push(Gram::from_bytes(&whole.to_bytes()).unwrap());
        assert_eq!(grams[4], whole);
        grams.push(Gram::from_bytes(&whole.folded().to_bytes()).unwrap());
        grams.push(whole);
        let hot = one_hot(&labels, classes);
        let [products, moments, _] = naive(&features, &hot, dim, classes);
        for gram in &grams[..] {
            assert_close(&gram.products(), &products, 1e-12);
            let got: Vec<f64> = (0..classes).flat_map(|class| gram.moments(class)).collect();
            assert_close(&got, &moments, 1e-12);
            for class in 0..classes {
                let own = (0..rows).filter(|&row| labels[row] as usize == class);
                let own: Vec<f32> = own.flat_map(|row| &features[row * dim..][..dim]).copied().collect();
                let [products, ..] = naive(&own, &[], dim, 0);
                let sums = gram.of_class(class);
                let got: Vec<f64> =
                    (0..dim * dim).map(|at| (at / dim, at % dim)).map(|(i, j)| sums.row(i.max(j))[i.min(j)]).collect();
                assert_close(&got, &products, 1e-12);
            }
        }
        assert_eq!(kept(&grams[1]), kept(&grams[6]));
        assert_eq!(kept(&grams[5]), [false; 6]);
        let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        threads.install(|| {
            let same = of(&[0, rows]);
            assert_eq!((&same, same.total()), (&grams[6], grams[6].total()), "one thread and several");
        });
        // New rows count, whatever was asked before.
        let before = grams[6].total().clone();
        let mut more = grams[6].clone();
        more.update(Rows::new(&features[..dim], 1, dim).unwrap(), Labels::Classes(&[0])).unwrap();
        assert!(more.total().row(0)[0] > before.row(0)[0]);
    }

    #[test]
    fn kept_rows_of_other_numbers_are_errors() {
        let (recipe, features, labels) = problem(40, 60, 5);
        let mut gram = Gram::new(&recipe, Targets::ClassesApart(5)).unwrap();
        gram.update(Rows::new(&features, 40, 60).unwrap(), Labels::Classes(&labels)).unwrap();
        let rows = gram.kept(0).unwrap().to_vec();
        assert_eq!(Gram::from_archive(gram.to_archive()).unwrap(), gram);
        let counts: Vec<_> = (0..5).map(|class| gram.kept(class).map(|kept| kept.len() / 60)).collect();
        let of = |targets: Targets, kept: Vec<Option<usize>>, rows: Vec<f32>| {
            let header = Header { recipe: recipe.clone(), targets, rows: 40, kept };
            let archive = Archive::new(KIND, &header).with_f64("products", Vec::new()).with_f32("rows", rows);
            Gram::from_archive(archive).unwrap_err().to_string()
        };
        let with = |kept, rows| of(gram.targets, kept, rows);
        let more = |class: usize, count: usize| {
            let mut counts = counts.clone();
            counts[class] = Some(count);
            counts
        };
        assert!(with(counts[1..].to_vec(), rows.clone()).contains("4 classes, not of 5"));
        assert!(with(counts.clone(), rows.clone()).contains("\"rows\" has"));
        assert!(with(more(0, usize::MAX), rows.clone()).contains("any memory"));
        assert!(with(more(0, usize::MAX / 60), rows.clone()).contains("any memory"));
        assert!(of(Targets::Classes(5), vec![Some(1)], vec![0.0; 60]).contains("not apart"));
        assert!(with(vec![None; 5], Vec::new()).contains("\"products\" has 0 numbers"));
        assert!(with(Vec::new(), Vec::new()).contains("\"products\" has 0 numbers, not 9150"));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let (recipe, features, labels) = problem(10, 6, 3);
        let table = Rows::new(&features, 10, 6).unwrap();
        let mut gram = Gram::new(&recipe, Targets::Classes(3)).unwrap();
        gram.update(table, Labels::Classes(&labels)).unwrap();
        let before = gram.clone();
        let mut other = labels.clone();
        other[7] = 3;
        let message = gram.update(table, Labels::Classes(&other)).unwrap_err().to_string();
        assert!(message.contains("classes below 3, got 3 in row 7"), "{message}");
        assert!(gram.update(table, Labels::Classes(&labels[1..])).unwrap_err().to_string().contains("10 rows"));
        let numbers = [0.0; 30];
        let values = Labels::Values(Rows::new(&numbers, 10, 3).unwrap());
        assert!(gram.update(table, values).unwrap_err().to_string().contains("classes"));
        let narrow = Rows::new(&features[..50], 10, 5).unwrap();
        assert!(gram.update(narrow, Labels::Classes(&labels)).unwrap_err().to_string().contains("6 columns"));
        let mut bad = features.clone();
        bad[8] = f32::INFINITY;
        let bad = Rows::new(&bad, 10, 6).unwrap();
        assert!(matches!(gram.update(bad, Labels::Classes(&labels)), Err(Error::NotFinite { row: 1, column: 2, .. })));
        let mut seeded = recipe.clone();
        seeded.spec.seed = 1;
        assert!(gram.merge(&Gram::new(&seeded, Targets::Classes(3)).unwrap()).is_err());
        assert!(gram.merge(&Gram::new(&recipe, Targets::ClassesApart(3)).unwrap()).is_err());
        assert_eq!(gram, before);
        for targets in [Targets::Classes(1), Targets::Values(0), Targets::ClassesApart(usize::MAX)] {
            assert!(Gram::new(&recipe, targets).is_err());
        }
        let large = Recipe::from(Spec::polynomial(3).with_degree(2).with_features(1 << 31));
        assert!(matches!(Gram::new(&large, Targets::ClassesApart(1000)), Err(Error::TooLarge { .. })));
    }
}
