//! The sums that closed-form learning needs, in one pass over the rows, to be added up across files and machines.

mod products;
mod targets;
#[cfg(test)]
pub(crate) mod tests;
mod triangle;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use argand::{Argument, DEFAULT_MEMORY_LIMIT, Error, FileFault, Input, Rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::archive::Archive;
use crate::blocks::SUMMED_ROWS;
use crate::engine::Engine;
use crate::recipe::Recipe;
use products::{Group, WIDTH};
use targets::{Column, sum, target_columns};
use triangle::{Products, most_kept, split, sums_of};

pub(crate) use products::Packed;
pub use targets::{Labels, Targets};
pub(crate) use targets::{Spread, check_classes};
pub(crate) use triangle::Triangle;

/// Sums over rows of features φ and targets y: all that ridge regression and Gaussian processes learn from.
///
/// # Formula
/// n, Φᵀ1, ΦᵀΦ (of all rows or of every class), ΦᵀY, Yᵀ1, diag(YᵀY) and Σ(y − ȳ)² of every column; Y has a column of zeros and ones for
/// every class.
/// Features are f32, all sums f64.
///
/// # Cost
/// n·D² operations in all, also with the products of every class apart. Memory 4D² bytes, or that for every class. Fewer than D rows
/// are kept instead, in 4D bytes each; so are those of a class among five or more, while they are at most 3D/8. The products of all
/// rows, 4D² bytes more, are then summed up when a model first asks for them.
///
/// ```
/// use argand_learn::{Gram, Labels, Recipe, Targets};
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
    /// Σ (y − ȳ)² of every column of numbers; zeros for classes, whose sums say it.
    target_spreads: Vec<f64>,
    /// Where the sums come from, and models are fitted to them.
    engine: Option<Arc<dyn Engine>>,
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
            && self.target_spreads == other.target_spreads
    }
}

/// Memory that [`Gram::update_with`] works in, of 8 D bytes for each of up to 1,024 rows.
#[derive(Debug, Default)]
pub struct Workspace(Packed);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    recipe: Recipe,
    targets: Targets,
    rows: u64,
    /// For every group the number of its rows, if they are kept; nothing if there are sums only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<Option<usize>>,
}

/// The array of Σ (y − ȳ)² in files.
const SPREADS: &str = "target_spreads";

/// The kind of the archive of a [`Gram`].
pub const SUMS: &str = "gram";

impl Gram {
    /// No rows yet, within [`DEFAULT_MEMORY_LIMIT`].
    ///
    /// # Errors
    /// As [`Spec::validate`](argand::Spec::validate), [`Error::Invalid`] for no targets or a single class, and
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
        Ok(Self {
            recipe: recipe.clone(),
            targets,
            rows: 0,
            products: vec![Products::empty(targets.groups(), dim); targets.groups()],
            total: OnceLock::new(),
            moments: vec![0.0; dim * (columns + 1)],
            target_sums: vec![0.0; columns],
            target_squares: vec![0.0; columns],
            target_spreads: vec![0.0; columns],
            engine: None,
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
        self.update_with(features, labels, &mut Workspace::default())
    }

    /// As [`Gram::update`], in memory that the next call can use again: the system takes its time to hand out fresh memory.
    ///
    /// # Errors
    /// As [`Gram::update`].
    pub fn update_with(
        &mut self,
        features: Rows<'_, f32>,
        labels: Labels<'_>,
        Workspace(packed): &mut Workspace,
    ) -> Result<(), Error> {
        self.check(features, labels)?;
        self.total = OnceLock::new();
        let (dim, all): (_, Vec<usize>) = (features.columns(), (0..features.rows()).collect());
        let most = most_kept(self.targets.groups(), dim);
        if let [products] = &mut self.products[..] {
            products.prepare(features.rows(), most, dim, packed);
        }
        for (part, rows) in all.chunks(SUMMED_ROWS).enumerate() {
            packed.fill(&rows.iter().map(|&row| features.row(row)).collect::<Vec<_>>());
            if let [Products::Sums(sums)] = &mut self.products[..] {
                packed.add_products(dim, &mut sums.values, self.rows == 0 && part == 0);
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
            self.add_targets(
                self.rows + (part * SUMMED_ROWS) as u64,
                rows.len() as u64,
                columns.iter().map(Column::sums),
            );
        }
        if let (Targets::ClassesApart(classes), Labels::Classes(labels)) = (self.targets, labels) {
            let mut groups = vec![Vec::new(); classes];
            labels.iter().enumerate().for_each(|(row, &label)| groups[label as usize].push(features.row(row)));
            for (products, rows) in self.products.iter_mut().zip(&groups) {
                products.add_rows(rows, most, dim, packed);
            }
        } else if let [Products::Rows(kept)] = &mut self.products[..] {
            all.iter().for_each(|&row| kept.extend_from_slice(features.row(row)));
        }
        self.rows += features.rows() as u64;
        Ok(())
    }

    /// Adds Σ y, Σ y² and Σ (y − ȳ)² of every column of so many rows to those of so many rows before.
    fn add_targets(&mut self, before: u64, rows: u64, others: impl IntoIterator<Item = [f64; 3]>) {
        let ours = self.target_sums.iter_mut().zip(&mut self.target_squares).zip(&mut self.target_spreads);
        for (((sum, square), spread), [other, others, apart]) in ours.zip(others) {
            if let Targets::Values(_) = self.targets {
                let ours = Spread { count: before as f64, sum: *sum, squares: *spread };
                *spread = ours.plus(Spread { count: rows as f64, sum: other, squares: apart }).squares;
            }
            *sum += other;
            *square += others;
        }
    }

    /// Adds the targets of rows whose products are summed up elsewhere, after those of so many rows before.
    pub(crate) fn add_labels(&mut self, before: u64, labels: Labels<'_>) {
        let all: Vec<usize> = (0..labels.rows()).collect();
        let columns = target_columns(&all, labels, self.targets.columns());
        self.add_targets(before, all.len() as u64, columns.iter().map(Column::sums));
    }

    pub(crate) fn check(&self, features: Rows<'_, f32>, labels: Labels<'_>) -> Result<(), Error> {
        let dim = self.recipe.spec.features;
        if features.columns() != dim {
            return Err(Error::invalid(Argument::Features, format!("{dim} columns"), features.columns()));
        }
        self.check_labels(labels, features.rows())?;
        Input::from(features).check_finite(Argument::Features)
    }

    /// Checks the targets of so many rows.
    pub(crate) fn check_labels(&self, labels: Labels<'_>, rows: usize) -> Result<(), Error> {
        if labels.rows() != rows {
            return Err(Error::invalid(Argument::Labels, format!("{rows} rows, as the features"), labels.rows()));
        }
        match (self.targets, labels) {
            (Targets::Values(columns), Labels::Values(values)) => {
                if values.columns() != columns {
                    return Err(Error::invalid(Argument::Labels, format!("{columns} columns"), values.columns()));
                }
                Input::from(values).check_finite(Argument::Labels)
            }
            (Targets::Classes(classes) | Targets::ClassesApart(classes), Labels::Classes(labels)) => {
                check_classes(labels, classes)
            }
            (Targets::Values(_), Labels::Classes(_)) => {
                Err(Error::invalid(Argument::Labels, "numbers, as this Gram is for regression", "classes"))
            }
            (_, Labels::Values(_)) => {
                Err(Error::invalid(Argument::Labels, "classes, as this Gram is for classification", "numbers"))
            }
        }
    }

    /// Takes the place of a Gram that knows the targets of its rows alone: the packed sums ZᵀZ of every group of rows, where a row of Z has
    /// the features, 1, and the targets unless their classes are apart.
    pub(crate) fn with_sums(mut self, rows: u64, sums: Vec<Vec<f64>>, engine: Option<&Arc<dyn Engine>>) -> Self {
        let (dim, columns) = (self.recipe.spec.features, self.targets.columns());
        let row = |packed: &[f64], row: usize| packed[row * (row + 1) / 2..][..=row].to_vec();
        let mut add = |column: usize, sums: &[f64]| {
            self.moments.chunks_exact_mut(columns + 1).zip(sums).for_each(|(moments, sum)| moments[column] += sum);
        };
        self.rows = rows;
        self.engine = engine.cloned();
        let mut products = Vec::with_capacity(sums.len());
        for (group, mut packed) in sums.into_iter().enumerate() {
            let of_ones = row(&packed, dim);
            add(0, &of_ones);
            if let Targets::ClassesApart(_) = self.targets {
                add(1 + group, &of_ones);
            } else {
                (0..columns).for_each(|column| add(1 + column, &row(&packed, dim + 1 + column)));
            }
            packed.truncate(dim * (dim + 1) / 2);
            packed.shrink_to_fit();
            products.push(Products::Sums(Triangle { dim, values: packed }));
        }
        self.products = products;
        self
    }

    /// Where models are fitted to the sums, if not on the processor.
    pub(crate) fn engine(&self) -> Option<&Arc<dyn Engine>> {
        self.engine.as_ref()
    }

    /// Adds the sums of other rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are of another recipe or kind of target.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.check_same(other)?;
        self.total = OnceLock::new();
        self.add_targets(self.rows, other.rows, (0..self.targets.columns()).map(|column| other.target(column)));
        self.rows += other.rows;
        let (dim, mut packed) = (self.recipe.spec.features, Packed::new());
        let most = most_kept(self.targets.groups(), dim);
        for (products, other) in self.products.iter_mut().zip(&other.products) {
            products.merge(other, most, dim, &mut packed);
        }
        self.moments.iter_mut().zip(&other.moments).for_each(|(sum, other)| *sum += other);
        Ok(())
    }

    /// As [`Gram::merge`] of these sums into those of earlier rows, to the last bit, but in the memory of these where it can be.
    ///
    /// # Errors
    /// As [`Gram::merge`].
    pub fn merge_after(&mut self, earlier: &Self) -> Result<(), Error> {
        let keeps_rows = |gram: &Self| gram.products.iter().any(|products| matches!(products, Products::Rows(_)));
        if keeps_rows(self) || keeps_rows(earlier) {
            // Rows stay in their order.
            let mut sum = earlier.clone();
            sum.merge(self)?;
            *self = sum;
            return Ok(());
        }
        self.merge(earlier)
    }

    /// The same sums with other numbers for the classes: class i becomes class `places[i]` of `classes`, of which the others have no rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sums of numbers, and for places that are not one below `classes` for each class.
    pub fn with_classes(&self, places: &[usize], classes: usize) -> Result<Self, Error> {
        let wrong = |expected: String, received: String| Err(Error::invalid(Argument::Labels, expected, received));
        let targets = match self.targets {
            Targets::Classes(_) => Targets::Classes(classes),
            Targets::ClassesApart(_) => Targets::ClassesApart(classes),
            Targets::Values(_) => return wrong("sums of classes".to_owned(), "sums of numbers".to_owned()),
        };
        let before = self.targets.columns();
        let mut taken = vec![false; classes];
        let free = |&place: &usize| place < classes && !std::mem::replace(&mut taken[place], true);
        if places.len() != before || !places.iter().all(free) {
            return wrong(format!("{before} different numbers below {classes}"), format!("{places:?}"));
        }
        let mut other = Self::new_within(&self.recipe, targets, u64::MAX)?;
        other.rows = self.rows;
        for (to, from) in other.moments.chunks_exact_mut(classes + 1).zip(self.moments.chunks_exact(before + 1)) {
            to[0] = from[0];
            places.iter().zip(&from[1..]).for_each(|(&place, &sum)| to[place + 1] = sum);
        }
        for (class, &place) in places.iter().enumerate() {
            other.target_sums[place] = self.target_sums[class];
            other.target_squares[place] = self.target_squares[class];
        }
        if let Targets::ClassesApart(_) = targets {
            places.iter().zip(&self.products).for_each(|(&place, products)| other.products[place] = products.clone());
        } else {
            other.products.clone_from(&self.products);
        }
        Ok(other)
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

    /// The features of all rows, where there are no classes apart and fewer rows than features.
    pub(crate) fn all_kept(&self) -> Option<&[f32]> {
        if let [Products::Rows(rows)] = &self.products[..] { Some(rows) } else { None }
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

    fn target(&self, column: usize) -> [f64; 3] {
        [self.target_sums[column], self.target_squares[column], self.target_spreads[column]]
    }

    /// Σ (y − ȳ)² of every column of targets, as near as Σ y and Σ y² say it.
    fn spreads_of_sums(&self) -> Vec<f64> {
        let of = |(square, sum): (&f64, &f64)| (square - sum * sum / (self.rows as f64).max(1.0)).max(0.0);
        self.target_squares.iter().zip(&self.target_sums).map(of).collect()
    }

    /// Σ (y − ȳ)² of every column of targets; zero for numbers that differ by rounding alone.
    #[must_use]
    pub fn target_spreads(&self) -> Vec<f64> {
        if !matches!(self.targets, Targets::Values(_)) {
            return self.spreads_of_sums();
        }
        let of = |(&sum, &squares): (&f64, &f64)| Spread { count: self.rows as f64, sum, squares }.significant();
        self.target_sums.iter().zip(&self.target_spreads).map(of).collect()
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
        let mut archive = Archive::new(SUMS, &header);
        if keeps {
            archive = archive.with_f32("rows", rows);
        }
        archive = archive
            .with_f64("products", sums)
            .with_f64("moments", self.moments.clone())
            .with_f64("target_sums", self.target_sums.clone())
            .with_f64("target_squares", self.target_squares.clone());
        // As files were before, where they say it all.
        let known = !matches!(self.targets, Targets::Values(_)) || self.target_spreads == self.spreads_of_sums();
        if known { archive } else { archive.with_f64(SPREADS, self.target_spreads.clone()) }
    }

    /// What [`Gram::to_archive`] made.
    ///
    /// # Errors
    /// [`Error::Archive`], and as [`Gram::new`] without a limit on memory beyond the bytes that are there.
    pub fn from_archive(mut archive: Archive) -> Result<Self, Error> {
        let Header { recipe, targets, rows, kept } = archive.header(SUMS)?;
        targets.check()?;
        let (dim, columns, groups) = (recipe.spec.features, targets.columns(), targets.groups());
        if !kept.is_empty() && kept.len() != groups {
            return Err(Error::Archive(FileFault::Content(format!("rows of {} groups, not of {groups}", kept.len()))));
        }
        if let ([Some(kept)], 1) = (&kept[..], groups)
            && *kept as u64 != rows
        {
            return Err(Error::Archive(FileFault::Content(format!("{kept} rows, not {rows}"))));
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
        let mut gram = Self {
            total: OnceLock::new(),
            moments: archive.take_f64("moments", moments)?,
            target_sums: archive.take_f64("target_sums", columns)?,
            target_squares: archive.take_f64("target_squares", columns)?,
            target_spreads: vec![0.0; columns],
            recipe,
            targets,
            rows,
            products,
            engine: None,
        };
        if let Targets::Values(_) = targets {
            gram.target_spreads =
                if archive.has(SPREADS) { archive.take_f64(SPREADS, columns)? } else { gram.spreads_of_sums() };
        }
        Ok(gram)
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
