//! The host side of `srht.cu`: flat products of SRHTs in one pass.

use std::sync::OnceLock;

use argand::draw::{Hadamard, Product, Values};
use argand::{Error, Field, InputDims, Scalar, Spec};
use rayon::prelude::*;

use super::{AdjointCall, Call, MOST_TABLES, Table, flat, narrow};
use crate::driver::{Device, Stream};
use crate::launch::{Kernel, Shape, arguments};
use crate::memory::{Buffer, View};
use crate::place::places;
use crate::product::roots;
use crate::view::Element;

/// As in the kernel: the most warps of a block, and for the longest rows.
const MOST_WARPS: [usize; 2] = [8, 6];
/// Groups of four outputs of each thread, for pooled features.
const POOLED_STEPS: usize = 4;
/// The most factors of an adjoint.
const MOST_ADJOINT_FACTORS: usize = 8;
/// log₂ of the padded dimensions there are kernels for.
const SMALLEST: u32 = 5;
const LARGEST: u32 = 11;

/// A flat product of SRHTs in one pass.
#[derive(Debug)]
pub(crate) struct Srht {
    features: Kernel,
    /// The same for aligned `f32`, real and imaginary parts apart.
    plain: Kernel,
    pooled: Kernel,
    /// Blocks that run at once.
    blocks: usize,
    threads: usize,
    pooled_threads: usize,
    /// The memory that `arguments` points to.
    _tables: [Buffer; 3],
    complex: bool,
    outputs: usize,
    root_coef0: f32,
    arguments: Arguments,
    /// The adjoint and the blocks that run at once, where it fits: loaded when it is first needed.
    adjoint: Option<Adjoint>,
}

#[derive(Debug)]
struct Adjoint {
    module: String,
    shared: usize,
    kernel: OnceLock<(Kernel, usize)>,
}

/// `AdjointArguments` in the kernel, field by field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct AdjointArguments {
    call: Arguments,
    gradients: [Table; MOST_TABLES],
    groups: i64,
    gradient_element: i32,
}

/// `Arguments` in the kernel, field by field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Arguments {
    tables: [Table; MOST_TABLES],
    turns: u64,
    places: u64,
    gathered: u64,
    out: u64,
    bad_row: u64,
    starts: u64,
    rows: i64,
    stride: i64,
    first_row: i64,
    root_gamma: f32,
    scale: f32,
    factors: i32,
    outputs: i32,
    element: i32,
    interleaved: i32,
    aligned: i32,
    outputs_padded: i32,
    period: i32,
    distinct: i32,
    out_element: i32,
}

impl Srht {
    /// The sketch in one pass, if it is flat, made of SRHTs alone, and small enough for shared memory.
    pub(super) fn new<'a>(device: &Device, spec: &Spec, product: &'a Product) -> Result<Option<Self>, Error> {
        let hadamard =
            |values: &'a Values| if let Values::Hadamard(hadamard) = values { Some(&**hadamard) } else { None };
        let (Some((factors, draw)), Some(method)) = (flat(product, hadamard), spec.method.product()) else {
            return Ok(None);
        };
        let distinct = matches!(spec.inputs, InputDims::Distinct(_));
        // A shorter vector is transformed as a longer one with zeros: the first values are the same, to the last bit.
        let widest = factors.iter().map(|factor| factor.turns.len()).max().unwrap_or(1);
        let log = widest.next_power_of_two().trailing_zeros().max(SMALLEST);
        let shared = (factors.len() << log) * 16;
        let outputs = draw.outputs;
        let fits = log <= LARGEST
            && shared <= device.info().shared_memory
            && !(distinct && factors.len() > MOST_TABLES)
            && device.info().compute_capability.0 >= 8;
        if !fits {
            return Ok(None);
        }
        let (module, complex) = (format!("srht_{log}"), draw.complex);
        let kernel =
            |real, with_parts| device.kernel(&module, if complex { with_parts } else { real })?.with_shared(shared);
        let features = kernel("features_real", "features_complex")?;
        let plain = kernel("features_real_plain", "features_complex_plain")?;
        let pooled = kernel("pooled_real", "pooled_complex")?;

        let adjoint_fits = 2 * shared <= device.info().shared_memory
            && factors.len() <= MOST_ADJOINT_FACTORS
            && apart(&factors, 1 << log);
        let adjoint = adjoint_fits.then(|| Adjoint {
            module: format!("srht_adjoint_{log}"),
            shared: 2 * shared,
            kernel: OnceLock::new(),
        });
        let layout = Layout::of(&factors, 1 << log, outputs, spec.seed);
        // Two warps transform a factor, all factors at once if there are few.
        let pooled_threads = 32 * MOST_WARPS[usize::from(log == LARGEST)];
        let threads = pooled_threads.min(64 * factors.len());
        let blocks = device.info().multiprocessors * features.blocks_at_once(threads)?;
        let turns = device.upload(&layout.turns)?;
        let places = device.upload(&layout.places)?;
        let gathered = device.upload(&layout.gathered)?;
        let arguments = Arguments {
            tables: [Table::default(); MOST_TABLES],
            turns: turns.address(),
            places: places.address(),
            gathered: gathered.address(),
            out: 0,
            bad_row: 0,
            starts: 0,
            rows: 0,
            stride: 0,
            first_row: 0,
            root_gamma: f32::from_f64(roots(spec)[0]),
            scale: f32::from_f64(1.0 / (outputs as f64).sqrt()),
            factors: narrow(factors.len()),
            outputs: narrow(outputs),
            element: 0,
            interleaved: i32::from(method.field == Field::Complex),
            aligned: 0,
            outputs_padded: narrow(outputs.next_multiple_of(4)),
            period: narrow(layout.period),
            distinct: i32::from(distinct),
            out_element: 0,
        };
        Ok(Some(Self {
            features,
            plain,
            pooled,
            blocks,
            threads,
            pooled_threads,
            _tables: [turns, places, gathered],
            complex,
            outputs,
            root_coef0: f32::from_f64(roots(spec)[1]),
            arguments,
            adjoint,
        }))
    }

    fn arguments(&self, call: &Call<'_>) -> Arguments {
        let out = call.out;
        let four = 4 * out.element.bytes() as u64;
        let whole = self.outputs.is_multiple_of(4) && out.stride.is_multiple_of(4) && out.address.is_multiple_of(four);
        Arguments {
            tables: Table::of(call.inputs, self.root_coef0),
            element: call.element(),
            rows: call.input_rows(),
            out: out.address,
            out_element: out.element.code(),
            stride: out.stride as i64,
            first_row: call.first_row as i64,
            bad_row: call.bad_row.0,
            aligned: i32::from(whole),
            ..self.arguments
        }
    }

    /// Queues the features of all rows.
    pub(super) fn transform(&self, stream: &Stream, call: &Call<'_>) -> Result<(), Error> {
        let arguments = self.arguments(call);
        let blocks = call.out.rows.div_ceil(if self.complex { 2 } else { 4 }).min(self.blocks);
        let plain = arguments.aligned == 1 && call.out.element == Element::F32 && arguments.interleaved == 0;
        let kernel = if plain { &self.plain } else { &self.features };
        kernel.launch(stream, Shape { grid: [blocks, 1], threads: self.threads }, arguments!(arguments))
    }

    /// Queues the adjoint; `false` if there is no kernel for it.
    pub(super) fn adjoint(&self, stream: &Stream, call: &AdjointCall<'_>) -> Result<bool, Error> {
        let Some(adjoint) = &self.adjoint else { return Ok(false) };
        let element = call.gradients.first().map_or(Element::F32, |gradient| gradient.element);
        if call.gradients.iter().any(|gradient| gradient.element != element) {
            return Ok(false);
        }
        // Blocks of the same size as for pooled features: there is much to do for each row.
        let threads = self.pooled_threads;
        let (kernel, blocks) = match adjoint.kernel.get() {
            Some(loaded) => loaded,
            None => {
                let name = if self.complex { "adjoint_complex" } else { "adjoint_real" };
                let kernel = stream.device().kernel(&adjoint.module, name)?.with_shared(adjoint.shared)?;
                let blocks = stream.device().info().multiprocessors * kernel.blocks_at_once(threads)?;
                adjoint.kernel.get_or_init(|| (kernel, blocks))
            }
        };
        let rows = call.features.inputs.first().map_or(0, |input| input.rows);
        let arguments = AdjointArguments {
            call: Arguments { starts: call.groups.map_or(0, |(starts, _)| starts.0), ..self.arguments(&call.features) },
            gradients: Table::of(call.gradients, 0.0),
            groups: call.groups.map_or(0, |(_, groups)| groups as i64),
            gradient_element: element.code(),
        };
        let blocks = rows.div_ceil(if self.complex { 2 } else { 4 }).min(*blocks);
        kernel.launch(stream, Shape { grid: [blocks, 1], threads }, arguments!(arguments))?;
        Ok(true)
    }

    /// Queues the sums of the features of groups of rows; `starts` has one more entry than there are groups.
    pub(super) fn transform_pooled(&self, stream: &Stream, call: &Call<'_>, starts: View) -> Result<(), Error> {
        let arguments = Arguments { starts: starts.0, ..self.arguments(call) };
        let parts = self.outputs.div_ceil(4).div_ceil(POOLED_STEPS * self.pooled_threads);
        let shape = Shape { grid: [call.out.rows, parts], threads: self.pooled_threads };
        self.pooled.launch(stream, shape, arguments!(arguments))
    }
}

/// Whether every so many neighbouring outputs sample different values of each factor.
fn apart(factors: &[&Hadamard], length: usize) -> bool {
    factors.iter().all(|factor| {
        factor.sampled.chunks(length).all(|outputs| {
            let mut seen = vec![false; length];
            outputs.iter().all(|&value| !std::mem::replace(&mut seen[value as usize], true))
        })
    })
}

/// The tables of the kernel.
struct Layout {
    turns: Vec<u32>,
    places: Vec<u16>,
    gathered: Vec<u16>,
    /// Groups of four outputs after which the first factor's slots repeat.
    period: usize,
}

impl Layout {
    fn of(factors: &[&Hadamard], padded: usize, outputs: usize, seed: u64) -> Self {
        let per_lane = padded / 32;
        let words = per_lane.div_ceil(32);
        // Outputs past the last repeat it, and are not written.
        let whole = outputs.next_multiple_of(4);
        let mut turns = vec![0_u32; factors.len() * words * 64];
        let parts: Vec<(Vec<u16>, Vec<u16>)> = factors
            .par_iter()
            .zip(turns.par_chunks_mut(words * 64))
            .map(|(factor, turns)| {
                for (at, &turn) in factor.turns.iter().enumerate() {
                    let (number, lane) = (at / 32, at % 32);
                    let word = &mut turns[number / 32 * 64..][..64];
                    word[lane] |= u32::from(turn & 1) << (number % 32);
                    word[32 + lane] |= u32::from(turn >> 1 & 1) << (number % 32);
                }
                let sampled: Vec<u32> = (0..whole).map(|output| factor.sampled[output.min(outputs - 1)]).collect();
                // Lanes hold 32 neighbours, or every 32nd value, after the last level.
                let held = |lane: usize, number: usize| {
                    if per_lane >= 32 { lane * per_lane + number } else { 32 * number + lane }
                };
                let stores = (0..per_lane)
                    .flat_map(|number| [0, 16].map(|lane| (lane..lane + 16).map(|lane| held(lane, number)).collect()));
                let slots = places(padded, &sampled, stores.collect(), seed);
                let at_once = per_lane.min(4);
                let order = (0..per_lane / at_once).flat_map(|step| {
                    (0..32).flat_map(move |lane| (0..at_once).map(move |within| (lane, step * at_once + within)))
                });
                // Sixteen bytes a slot.
                let places = order.map(|(lane, number)| 16 * slots[held(lane, number)]).collect();
                (places, sampled.iter().map(|&value| 16 * slots[value as usize]).collect())
            })
            .collect();
        let (places, gathered): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        // A first factor whose rows are sorted runs through all rows of H again and again.
        let repeats = padded < whole
            && gathered.first().is_some_and(|first: &Vec<u16>| first.iter().zip(&first[padded..]).all(|(a, b)| a == b));
        let period = if repeats { padded / 4 } else { whole / 4 };
        Self {
            turns,
            places: places.concat(),
            // The kernel looks one factor ahead.
            gathered: gathered.into_iter().chain([vec![0; whole]]).flatten().collect(),
            period,
        }
    }
}
