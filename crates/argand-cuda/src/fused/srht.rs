//! The host side of `srht.cu`: flat products of SRHTs in one pass.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use argand::draw::{Hadamard, Product, Values};
use argand::{Error, Field, InputDims, Scalar, Spec};
use rayon::prelude::*;

use super::{AdjointCall, Call, MOST_TABLES, Table, flat, narrow};
use crate::driver::{Device, Stream};
use crate::launch::{Lazy, arguments};
use crate::memory::{Buffer, View};
use crate::place::{BANKS, places, reads};
use crate::product::roots;
use crate::view::Element;

/// As in the kernel: the most warps of a block, and for the longest rows.
const MOST_WARPS: [usize; 2] = [8, 6];
/// Groups of four outputs of each thread, for pooled features, and single ones if they are few.
const POOLED_STEPS: usize = 4;
/// The most factors of an adjoint.
const MOST_ADJOINT_FACTORS: usize = 8;
/// Outputs that a round of the adjoint passes over, for each thread, before it gives up being full.
const FARTHEST: usize = 4;
/// log₂ of the padded dimensions there are kernels for.
const SMALLEST: u32 = 5;
const LARGEST: u32 = 11;

/// A flat product of SRHTs in one pass.
#[derive(Debug)]
pub(crate) struct Srht {
    features: Lazy,
    /// The same for aligned `f32`, real and imaginary parts apart.
    plain: Lazy,
    pooled: Pooled,
    /// The memory that `arguments` points to.
    _tables: [Buffer; 3],
    complex: bool,
    outputs: usize,
    root_coef0: f32,
    arguments: Arguments,
    /// The adjoint, where it fits.
    adjoint: Option<Adjoint>,
}

/// The kernel for pooled features.
#[derive(Debug)]
struct Pooled {
    kernel: Lazy,
    /// Blocks that the outputs are shared among.
    parts: usize,
    /// Places and gathers of few outputs, and which factors are short.
    few: Option<([Buffer; 2], u32)>,
}

#[derive(Debug)]
struct Adjoint {
    kernel: Lazy,
    factors: Vec<Arc<Hadamard>>,
    /// Values that each of them samples from.
    values: usize,
    seed: u64,
    /// Made when first needed.
    tables: OnceLock<AdjointTables>,
}

/// The tables of the adjoint: as those of features, for outputs in the order in which they are added.
#[derive(Debug)]
struct AdjointTables {
    places: Buffer,
    gathered: Buffer,
    order: Buffer,
    rounds: usize,
}

/// `AdjointArguments` in the kernel, field by field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct AdjointArguments {
    call: Arguments,
    gradients: [Table; MOST_TABLES],
    groups: i64,
    order: u64,
    rounds: i32,
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
    short_factors: u32,
}

impl Srht {
    /// The sketch in one pass, if it is flat, made of SRHTs alone, and small enough for shared memory.
    pub(super) fn new<'a>(device: &Device, spec: &Spec, product: &'a Product) -> Result<Option<Self>, Error> {
        let hadamard = |values: &'a Values| if let Values::Hadamard(hadamard) = values { Some(hadamard) } else { None };
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
        // Two warps transform a factor, all factors at once if there are few.
        let most_threads = 32 * MOST_WARPS[usize::from(log == LARGEST)];
        let threads = most_threads.min(64 * factors.len());
        let kernel =
            |names: [&'static str; 2], threads| Lazy::new(&module, names[usize::from(complex)], shared, threads);
        let features = kernel(["features_real", "features_complex"], threads);
        let plain = kernel(["features_real_plain", "features_complex_plain"], threads);
        let pooled = if outputs <= POOLED_STEPS * threads {
            let short = short_factors(&factors, 1 << log);
            let layout = Layout::of(&factors, 1 << log, Some(short), outputs, spec.seed);
            let tables = [device.upload(&layout.places)?, device.upload(&layout.gathered)?];
            let kernel = kernel(["pooled_few_real", "pooled_few_complex"], threads);
            Pooled { kernel, parts: 1, few: Some((tables, short)) }
        } else {
            let parts = outputs.div_ceil(4).div_ceil(POOLED_STEPS * most_threads);
            Pooled { kernel: kernel(["pooled_real", "pooled_complex"], most_threads), parts, few: None }
        };
        let adjoint_fits = 2 * shared <= device.info().shared_memory && factors.len() <= MOST_ADJOINT_FACTORS;
        let adjoint = adjoint_fits.then(|| Adjoint {
            // A round that adds to a quarter of the values is soon full.
            kernel: Lazy::new(
                &format!("srht_adjoint_{log}"),
                match (complex, factors.len()) {
                    (false, 2) => "adjoint_real_2",
                    (false, 3) => "adjoint_real_3",
                    (false, _) => "adjoint_real",
                    (true, 2) => "adjoint_complex_2",
                    (true, 3) => "adjoint_complex_3",
                    (true, _) => "adjoint_complex",
                },
                2 * shared,
                ((1 << log) / 4).clamp(64, most_threads),
            ),
            factors: factors.iter().map(|&factor| Arc::clone(factor)).collect(),
            values: 1 << log,
            seed: spec.seed,
            tables: OnceLock::new(),
        });
        let layout = Layout::of(&factors, 1 << log, None, outputs, spec.seed);
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
            short_factors: 0,
        };
        Ok(Some(Self {
            features,
            plain,
            pooled,
            _tables: [turns, places, gathered],
            complex,
            outputs,
            root_coef0: f32::from_f64(roots(spec)[1]),
            arguments,
            adjoint,
        }))
    }

    /// Rows that lie side by side in shared memory.
    fn rows_at_once(&self) -> usize {
        if self.complex { 2 } else { 4 }
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
        let plain = arguments.aligned == 1 && call.out.element == Element::F32 && arguments.interleaved == 0;
        let kernel = if plain { &self.plain } else { &self.features };
        kernel.launch(stream, call.out.rows.div_ceil(self.rows_at_once()), arguments!(arguments))
    }

    /// Queues the adjoint; `false` if there is no kernel for it.
    pub(super) fn adjoint(&self, stream: &Stream, call: &AdjointCall<'_>) -> Result<bool, Error> {
        let Some(adjoint) = &self.adjoint else { return Ok(false) };
        let element = call.gradients.first().map_or(Element::F32, |gradient| gradient.element);
        if call.gradients.iter().any(|gradient| gradient.element != element) {
            return Ok(false);
        }
        let tables = adjoint.tables(stream.device())?;
        let of_features = Arguments {
            places: tables.places.address(),
            gathered: tables.gathered.address(),
            outputs_padded: narrow(tables.order.bytes() / size_of::<i32>()),
            starts: call.groups.map_or(0, |(starts, _)| starts.0),
            ..self.arguments(&call.features)
        };
        let arguments = AdjointArguments {
            call: of_features,
            gradients: Table::of(call.gradients, 0.0),
            groups: call.groups.map_or(0, |(_, groups)| groups as i64),
            order: tables.order.address(),
            rounds: narrow(tables.rounds),
            gradient_element: element.code(),
        };
        let rows = call.features.inputs.first().map_or(0, |input| input.rows);
        adjoint.kernel.launch(stream, rows.div_ceil(self.rows_at_once()), arguments!(arguments))?;
        Ok(true)
    }

    /// Queues the sums of the features of groups of rows; `starts` has one more entry than there are groups.
    pub(super) fn transform_pooled(&self, stream: &Stream, call: &Call<'_>, starts: View) -> Result<(), Error> {
        let mut arguments = Arguments { starts: starts.0, ..self.arguments(call) };
        if let Some(([places, gathered], short_factors)) = &self.pooled.few {
            arguments.places = places.address();
            arguments.gathered = gathered.address();
            arguments.short_factors = *short_factors;
        }
        self.pooled.kernel.launch_all(stream, [call.out.rows, self.pooled.parts], arguments!(arguments))
    }
}

/// A bit for each factor of at most a quarter of the padded length. The longest is none of them; only distinct inputs, at most sixteen, differ in length.
fn short_factors(factors: &[&Arc<Hadamard>], padded: usize) -> u32 {
    let is_short = |factor: &Hadamard| (1 << SMALLEST).max(factor.turns.len()) <= padded / 4;
    (0..32).zip(factors).fold(0, |bits, (at, factor)| bits | u32::from(is_short(factor)) << at)
}

impl Adjoint {
    fn tables(&self, device: &Device) -> Result<&AdjointTables, Error> {
        if let Some(tables) = self.tables.get() {
            return Ok(tables);
        }
        let (values, threads) = (self.values, self.kernel.threads());
        let sampled: Vec<&[u32]> = self.factors.iter().map(|factor| &factor.sampled[..]).collect();
        let order = in_rounds(&sampled, values, threads);
        let parts: Vec<(Vec<u16>, Vec<u16>)> = sampled
            .par_iter()
            .map(|sampled| {
                let value = |output: i32| usize::try_from(output).ok().map(|output| sampled[output] as usize);
                let added = order.chunks(BANKS).map(|lanes| lanes.iter().filter_map(|&output| value(output)).collect());
                let slots = places(values, added.chain(stores(values)).collect(), self.seed);
                let gathered = order.iter().map(|&output| value(output).map_or(0, |value| BYTES * slots[value]));
                (in_lanes(values, |value| BYTES * slots[value]), gathered.collect())
            })
            .collect();
        let (places, gathered): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let tables = AdjointTables {
            places: device.upload(&places.concat())?,
            gathered: device.upload(&gathered.concat())?,
            rounds: order.len() / threads,
            order: device.upload(&order)?,
        };
        // If another thread was faster, its tables are the same.
        Ok(self.tables.get_or_init(|| tables))
    }
}

/// Marks a thread without an output.
const NONE: i32 = -1;

/// Outputs in rounds of one for each thread, so that those of a round sample different values of every factor. Neighbours stay close to each other.
fn in_rounds(sampled: &[&[u32]], values: usize, threads: usize) -> Vec<i32> {
    let outputs = sampled.first().map_or(0, |sampled| sampled.len());
    let mut order = Vec::with_capacity(outputs + threads);
    let mut waiting: VecDeque<usize> = (0..outputs).collect();
    let mut put_off = Vec::new();
    // The last round in which a value was taken, for each factor.
    let mut taken = vec![0; sampled.len() * values];
    for round in 1.. {
        let end = round * threads;
        while let Some(output) = waiting.pop_front() {
            let places =
                || sampled.iter().enumerate().map(|(factor, sampled)| factor * values + sampled[output] as usize);
            if places().any(|place| taken[place] == round) {
                put_off.push(output);
            } else {
                places().for_each(|place| taken[place] = round);
                order.push(narrow(output));
            }
            // Who has been put off comes first in the next round; a long search would take neighbours apart.
            if order.len() == end || put_off.len() == FARTHEST * threads {
                break;
            }
        }
        order.resize(end, NONE);
        put_off.drain(..).rev().for_each(|output| waiting.push_front(output));
        if waiting.is_empty() {
            break;
        }
    }
    order
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
    /// For few outputs, factors whose bit is set are transformed with a quarter of the padded length, and values that are not sampled have no place.
    fn of(factors: &[&Arc<Hadamard>], padded: usize, few: Option<u32>, outputs: usize, seed: u64) -> Self {
        let words = (padded / 32).div_ceil(32);
        // Outputs past the last repeat it, and are not written.
        let whole = outputs.next_multiple_of(4);
        let mut turns = vec![0_u32; factors.len() * words * 64];
        let parts: Vec<(Vec<u16>, Vec<u16>)> = factors
            .par_iter()
            .zip(turns.par_chunks_mut(words * 64))
            .enumerate()
            .map(|(at, (factor, turns))| {
                let short = few.is_some_and(|short| at < 32 && short >> at & 1 == 1);
                let values = if short { padded / 4 } else { padded };
                for (at, &turn) in factor.turns.iter().enumerate() {
                    let (number, lane) = (at / 32, at % 32);
                    let word = &mut turns[number / 32 * 64..][..64];
                    word[lane] |= u32::from(turn & 1) << (number % 32);
                    word[32 + lane] |= u32::from(turn >> 1 & 1) << (number % 32);
                }
                let sampled: Vec<u32> = (0..whole).map(|output| factor.sampled[output.min(outputs - 1)]).collect();
                let mut used = vec![few.is_none(); values];
                sampled.iter().for_each(|&value| used[value as usize] = true);
                let stored = stores(values).map(|together| together.into_iter().filter(|&value| used[value]).collect());
                let slots = places(values, reads(&sampled).into_iter().chain(stored).collect(), seed);
                let gathered = sampled.iter().map(|&value| BYTES * slots[value as usize]).collect();
                let place = |value: usize| if used[value] { BYTES * slots[value] } else { NOWHERE };
                let mut places: Vec<u16> = in_lanes(values, place);
                places.resize(padded, 0);
                (places, gathered)
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

/// Bytes of a slot.
const BYTES: u16 = 16;
/// The place of a value that is not stored, as in the kernel.
const NOWHERE: u16 = u16::MAX;

/// The value that a lane holds as its `number`-th after the last level: 32 neighbours, or every 32nd.
fn held(values: usize, lane: usize, number: usize) -> usize {
    let per_lane = values / 32;
    if per_lane >= 32 { lane * per_lane + number } else { 32 * number + lane }
}

/// The values that sixteen lanes store together.
fn stores(values: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..values / 32).flat_map(move |number| {
        [0, 16].map(|first| (first..first + 16).map(|lane| held(values, lane, number)).collect())
    })
}

/// Where the values of each lane lie: [number / 4][lane][number % 4].
fn in_lanes(values: usize, place: impl Fn(usize) -> u16) -> Vec<u16> {
    let per_lane = values / 32;
    let at_once = per_lane.min(4);
    let order = (0..per_lane / at_once)
        .flat_map(|step| (0..32).flat_map(move |lane| (0..at_once).map(move |within| (lane, step * at_once + within))));
    order.map(|(lane, number)| place(held(values, lane, number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_hold_every_output_once_and_no_value_twice() {
        for (values, outputs, factors, threads) in
            [(1024, 4096, 3, 256), (1024, 4096, 7, 256), (32, 1000, 4, 64), (64, 5, 1, 64)]
        {
            let sampled: Vec<Vec<u32>> = (0..factors)
                .map(|factor: u64| {
                    let mut state = factor + 1;
                    let mut next = || {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        u32::try_from((state >> 33) % values as u64).expect("a value")
                    };
                    (0..outputs).map(|_| next()).collect()
                })
                .collect();
            let sampled: Vec<&[u32]> = sampled.iter().map(Vec::as_slice).collect();
            let order = in_rounds(&sampled, values, threads);
            let mut listed: Vec<usize> = order.iter().filter_map(|&output| usize::try_from(output).ok()).collect();
            for round in order.chunks(threads) {
                assert_eq!(round.len(), threads);
                for sampled in &sampled {
                    let mut seen: Vec<u32> = round
                        .iter()
                        .filter_map(|&output| sampled.get(usize::try_from(output).ok()?).copied())
                        .collect();
                    let before = seen.len();
                    seen.sort_unstable();
                    seen.dedup();
                    assert_eq!(seen.len(), before);
                }
            }
            listed.sort_unstable();
            assert!(listed.into_iter().eq(0..outputs));
            if values == 1024 {
                assert!(order.len() < 3 * outputs / 2, "{} threads for {outputs} outputs", order.len());
            }
        }
    }
}
