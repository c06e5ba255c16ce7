//! G = Σ φφᵀ over a store, kept beside it, and queries multiplied by (G + λI)⁻¹.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use argand::{Advice, Argument, Error, Rows};
use argand_linalg::{Cholesky, ViewMut};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::reading::Block;
use super::selection::{Chosen, Selection};
use super::store::{Shard, Store};
use super::{Damping, Options, Progress, Stage, check_numbers};
use crate::archive::Archive;
use crate::blocks::{self, SOLVED_ROWS};
use crate::engine::Engine;
use crate::factor::{PackedFactor, cholesky, too_large};
use crate::gram::{Packed, Triangle};

/// The kind of the file of sums.
const KIND: &str = "gradient-gram";

/// Layers whose gradients are taken together.
struct Part<'a> {
    layers: &'a [Chosen],
    places: Range<usize>,
    file: PathBuf,
    header: Header,
}

/// What a file of sums says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    layers: Vec<Summand>,
    /// By the number of the first example: rows and checksum.
    shards: BTreeMap<u64, (usize, u32)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Summand {
    name: String,
    columns: Range<usize>,
}

impl<'a> Part<'a> {
    fn new(train: &Store, layers: &'a [Chosen]) -> Self {
        let summand = |layer: &Chosen| Summand { name: layer.name.clone(), columns: layer.train.clone() };
        let header = Header { layers: layers.iter().map(summand).collect(), shards: BTreeMap::new() };
        let key = crc32fast::hash(serde_json::to_string(&header.layers).unwrap_or_default().as_bytes());
        let places = layers.first().map_or(0, |layer| layer.places.start)..layers.last().map_or(0, |l| l.places.end);
        Self { layers, places, file: train.path().join(format!("gram-{key:08x}.sums")), header }
    }

    fn name(&self) -> String {
        match self.layers {
            [layer] => format!("layer \"{}\"", layer.name),
            layers => format!("{} layers together", layers.len()),
        }
    }

    fn dim(&self) -> usize {
        self.places.len()
    }

    /// The sums so far: those of the file, if all that it summed up is still there.
    fn begin(mut self, train: &Store) -> Summing<'a> {
        let kept = load(&self.file, &self.header.layers, self.dim()).filter(|(header, _)| {
            let there: BTreeMap<u64, (usize, u32)> = train.shards().iter().map(counted).collect();
            header.shards.iter().all(|(first, shard)| there.get(first) == Some(shard))
        });
        let sums = match kept {
            Some((header, sums)) => {
                self.header = header;
                sums
            }
            None => Triangle::zeros(self.dim()),
        };
        let lacks = |shard: &Shard| !self.header.shards.contains_key(&shard.first);
        let missing = train.shards().iter().map(lacks).collect();
        Summing { part: self, sums, missing }
    }
}

fn counted(shard: &Shard) -> (u64, (usize, u32)) {
    (shard.first, (shard.rows, shard.crc32))
}

/// The sums of a part.
struct Summing<'a> {
    part: Part<'a>,
    sums: Triangle,
    /// Whether a shard has still to be added.
    missing: Vec<bool>,
}

impl Summing<'_> {
    fn add(&mut self, block: &Block<'_>, columns: usize, packed: &mut Packed, options: &Options) -> Result<(), Error> {
        if !self.missing[block.index] {
            return Ok(());
        }
        let rows = block.numbers.chunks_exact(columns);
        let gathered: Vec<f32>;
        let rows: Vec<&[f32]> = if let [layer] = self.part.layers {
            rows.map(|row| &row[layer.train.clone()]).collect()
        } else {
            gathered = rows
                .flat_map(|row| self.part.layers.iter().flat_map(|layer| &row[layer.train.clone()]))
                .copied()
                .collect();
            gathered.chunks_exact(self.part.dim()).collect()
        };
        match &options.engine {
            Some(engine) => self.add_on(engine.as_ref(), &rows),
            None => {
                self.sums.add_rows(&rows, packed);
                Ok(())
            }
        }
    }

    /// ΦᵀΦ as the inner products of the columns.
    fn add_on(&mut self, engine: &dyn Engine, rows: &[&[f32]]) -> Result<(), Error> {
        let dim = self.part.dim();
        let columns: Vec<f32> = (0..dim).flat_map(|column| rows.iter().map(move |row| row[column])).collect();
        let products = engine.inner_products(Rows::new(&columns, dim, rows.len())?)?;
        self.sums.add_packed(&products);
        Ok(())
    }

    /// Writes the sums beside the store, whole or not at all; says why not.
    fn save(&mut self, train: &Store) -> Option<String> {
        if self.missing.iter().all(|missing| !missing) {
            return None;
        }
        self.part.header.shards = train.shards().iter().map(counted).collect();
        let archive = Archive::new(KIND, &self.part.header).with_f64("products", self.sums.values().to_vec());
        let failed = write_whole(&self.part.file, |file| archive.write_to(io::BufWriter::new(file))).err()?;
        let (file, name) = (self.part.file.display(), self.part.name());
        Some(format!("{file}: cannot keep the sums of {name}, which the next run will sum up again: {failed}"))
    }

    /// λ, for eigenvalues of this mean.
    fn lambda(&self, damping: Damping) -> f64 {
        match damping {
            Damping::Lambda(lambda) => lambda,
            Damping::Multiple(multiple) => multiple * self.sums.trace() / self.part.dim() as f64,
        }
    }

    /// The factor of G + λI.
    fn factor(&self, options: &Options) -> Result<Option<Cholesky>, Error> {
        let lambda = self.lambda(options.damping);
        if !lambda.is_finite() {
            let received = format!("one that makes λ {lambda} for {}", self.part.name());
            return Err(Error::invalid(Argument::Damping, "a number that makes λ finite", received));
        }
        if self.sums.trace() == 0.0 && lambda == 0.0 {
            return Ok(None);
        }
        let singular =
            || Error::Singular { what: format!("the curvature of {}", self.part.name()), advice: Advice::Damping };
        let factor = match &options.engine {
            Some(engine) => PackedFactor::on(engine.as_ref(), self.part.dim(), self.sums.plus(lambda))?
                .ok_or_else(singular)?
                .cholesky(),
            None => cholesky(self.sums.combine(1.0, None, lambda), "", Advice::Damping).map_err(|_| singular())?,
        };
        Ok(Some(factor))
    }
}

/// A = G + λI of some layers.
struct Factored<'a> {
    layers: &'a [Chosen],
    places: Range<usize>,
    /// None if gradients are all zero and nothing is added: they make no difference.
    factor: Option<Cholesky>,
    /// For every row of a projection of these layers, what A⁻¹ has at its places: one number, or those of a symmetric matrix of two rows.
    inverse: OnceLock<Vec<[f64; 3]>>,
}

impl Factored<'_> {
    /// A⁻¹ times some rows, in place of them: `width` numbers for each, of which those of these layers change.
    fn solve(&self, rows: &mut [&mut [f64]]) {
        let Some(factor) = &self.factor else {
            rows.iter_mut().for_each(|row| row[self.places.clone()].fill(0.0));
            return;
        };
        let dim = self.places.len();
        rows.par_chunks_mut(SOLVED_ROWS).for_each(|rows| {
            let chosen = |row: &&mut [f64]| row[self.places.clone()].to_vec();
            let mut right: Vec<f64> = rows.iter().flat_map(chosen).collect();
            factor.solve_lower(ViewMut::by_columns(&mut right, dim, rows.len()));
            factor.solve_upper(ViewMut::by_columns(&mut right, dim, rows.len()));
            for (row, solved) in rows.iter_mut().zip(right.chunks_exact(dim)) {
                row[self.places.clone()].copy_from_slice(solved);
            }
        });
    }

    fn rows(&self) -> Vec<(usize, Option<usize>)> {
        self.layers.iter().flat_map(|layer| (0..layer.rows()).map(|row| layer.places_of(row))).collect()
    }

    /// A⁻¹ = L⁻ᵀL⁻¹ consists of inner products of columns of L⁻¹.
    fn inverse(&self, factor: &Cholesky) -> Vec<[f64; 3]> {
        let dim = self.places.len();
        let some = |rows: &[(usize, Option<usize>)]| {
            let places = rows.iter().flat_map(|&(one, other)| [Some(one), other]).flatten();
            let places: Vec<usize> = places.map(|place| place - self.places.start).collect();
            let mut columns = vec![0.0; dim * places.len()];
            columns.chunks_exact_mut(dim).zip(&places).for_each(|(column, &place)| column[place] = 1.0);
            factor.solve_lower(ViewMut::by_columns(&mut columns, dim, places.len()));
            let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            let mut columns = columns.chunks_exact(dim);
            let mut next = || columns.next().unwrap_or_default();
            let of_row = |&(_, other): &(usize, Option<usize>)| {
                let one = next();
                let other = if other.is_some() { next() } else { &[] };
                [dot(one, one), dot(one, other), dot(other, other)]
            };
            rows.iter().map(of_row).collect::<Vec<_>>()
        };
        self.rows().par_chunks(SOLVED_ROWS / 2).flat_map_iter(some).collect()
    }

    /// Replaces u by B⁻¹u at the places of every row of a projection, where B is what A⁻¹ has there.
    fn weigh(&self, queries: &mut [&mut [f64]]) {
        let Some(factor) = &self.factor else { return };
        let (inverse, rows) = (self.inverse.get_or_init(|| self.inverse(factor)), self.rows());
        queries.par_iter_mut().for_each(|query| {
            for (&(one, other), &[a, b, c]) in rows.iter().zip(inverse) {
                match other {
                    None => query[one] /= a,
                    Some(other) => {
                        let (u, v, determinant) = (query[one], query[other], a * c - b * b);
                        (query[one], query[other]) = ((c * u - b * v) / determinant, (a * v - b * u) / determinant);
                    }
                }
            }
        });
    }
}

/// The damped curvature G + λI of a store, layer by layer or for all layers together.
pub(super) struct Curvature<'a> {
    train: &'a Store,
    selection: &'a Selection,
    options: &'a Options,
    /// Factors, if there is room for all of them.
    kept: Option<Vec<Factored<'a>>>,
    /// What went wrong without being an error.
    pub(super) notes: Vec<String>,
}

impl<'a> Curvature<'a> {
    pub(super) fn new(train: &'a Store, selection: &'a Selection, options: &'a Options) -> Self {
        Self { train, selection, options, kept: None, notes: Vec::new() }
    }

    /// Replaces every query φ, a row of `selection.width` numbers, by (G + λI)⁻¹φ.
    ///
    /// # Cost
    /// n·D² operations for sums that are not kept beside the store yet, D³/3 for each layer, once if all factors have room, and D² for each query.
    pub(super) fn precondition(
        &mut self,
        queries: &mut [f64],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Error> {
        let mut queries: Vec<&mut [f64]> = queries.chunks_exact_mut(self.selection.width).collect();
        self.for_each(progress, |part| part.solve(&mut queries))
    }

    /// Replaces preconditioned queries u = (G + λI)⁻¹φ' by B⁻¹u at the places of every row of a projection, where B is what (G + λI)⁻¹ has there, and examples φ by
    /// (G + λI)⁻¹φ. The product of both, summed up over the places of a row, is the part of the influence that goes with the row.
    ///
    /// # Cost
    /// D³ operations for each layer, and D² for each example.
    pub(super) fn leave_out(&mut self, queries: &mut [f64], examples: &mut [f64]) -> Result<(), Error> {
        let [mut queries, mut examples] =
            [queries, examples].map(|rows| rows.chunks_exact_mut(self.selection.width).collect::<Vec<_>>());
        self.for_each(&mut |_| (), |part| {
            part.solve(&mut examples);
            part.weigh(&mut queries);
        })
    }

    /// Calls `work` with the factors of all layers.
    fn for_each(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        mut work: impl FnMut(&Factored<'a>),
    ) -> Result<(), Error> {
        if let Some(kept) = &self.kept {
            kept.iter().for_each(work);
            return Ok(());
        }
        let Self { train, selection, options, .. } = *self;
        let each = if options.joint { selection.layers.len() } else { 1 };
        let mut parts = selection.layers.chunks(each).map(|layers| Part::new(train, layers)).peekable();
        let (mut factors, mut room) = (Vec::new(), blocks::SUMS_BYTES);
        while let Some(part) = parts.next() {
            let mut bytes = check_size(&part, options)?;
            let mut summings = vec![part.begin(train)];
            // As many layers as fit share a pass over the store.
            while let Some(part) = parts.next_if(|part| {
                bytes = bytes.saturating_add(bytes_of(part.dim()));
                bytes <= blocks::SUMS_BYTES
            }) {
                summings.push(part.begin(train));
            }
            sum_up(train, &mut summings, options, progress)?;
            for mut summing in summings {
                self.notes.extend(summing.save(train));
                let (layers, places) = (summing.part.layers, summing.part.places.clone());
                let factored = Factored { layers, places, factor: summing.factor(options)?, inverse: OnceLock::new() };
                work(&factored);
                // A factor is a whole matrix, twice as large as the sums.
                room = room.saturating_sub(bytes_of(summing.part.dim()).saturating_mul(2));
                if room > 0 {
                    factors.push(factored);
                }
            }
        }
        self.kept = (room > 0).then_some(factors);
        Ok(())
    }
}

/// Bytes of the sums.
fn bytes_of(dim: usize) -> u64 {
    u64::try_from(dim as u128 * (dim as u128 + 1) / 2 * 8).unwrap_or(u64::MAX)
}

fn check_size(part: &Part<'_>, options: &Options) -> Result<u64, Error> {
    let (bytes, dim) = (bytes_of(part.dim()), part.dim());
    // The sums, and their factor as a whole matrix.
    let needed = bytes.saturating_mul(3);
    if needed <= options.memory_limit {
        return Ok(bytes);
    }
    let expected = format!("features whose curvature fits into {} bytes", options.memory_limit);
    let received = format!("{dim} of {}, which take {needed}; choose fewer layers, or layers one by one", part.name());
    Err(Error::invalid(if options.joint { Argument::Joint } else { Argument::Layers }, expected, received))
}

/// Adds the shards that are missing.
fn sum_up(
    train: &Store,
    summings: &mut [Summing<'_>],
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let wanted = |&index: &usize| summings.iter().any(|summing| summing.missing[index]);
    let shards: Vec<usize> = train.all_shards().into_iter().filter(wanted).collect();
    let total = shards.iter().map(|&index| train.shards()[index].rows as u64).sum();
    let (columns, mut done) = (train.columns(), 0);
    let rows = blocks::summed_block(columns, options.engine.is_some());
    train.for_each_block(&shards, rows, |block| {
        check_numbers(
            train,
            &block,
            summings.iter().flat_map(|summing| summing.part.layers).map(|layer| &layer.train),
        )?;
        summings
            .par_iter_mut()
            .map_init(Packed::new, |packed, summing| summing.add(&block, columns, packed, options))
            .collect::<Result<(), Error>>()?;
        done += (block.numbers.len() / columns) as u64;
        progress(Progress { stage: Stage::Summing, done, total });
        Ok(())
    })
}

/// Sums of these layers, if the file is there and intact.
fn load(path: &Path, layers: &[Summand], dim: usize) -> Option<(Header, Triangle)> {
    let mut archive = Archive::read_from(BufReader::new(File::open(path).ok()?)).ok()?;
    let header: Header = archive.header(KIND).ok()?;
    if header.layers != layers {
        return None;
    }
    let size = dim.checked_add(1).and_then(|next| dim.checked_mul(next)).ok_or_else(too_large).ok()? / 2;
    Some((header, Triangle::from_values(dim, archive.take_f64("products", size).ok()?)))
}

/// Writes a file under another name, and renames it.
fn write_whole(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let unfinished = path.with_extension(format!("sums.{}.unfinished", std::process::id()));
    let attempt = || {
        let file = File::create(&unfinished)?;
        write(&file)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    attempt().inspect_err(|_| {
        // It may not even be there.
        let _ = fs::remove_file(&unfinished);
    })
}
