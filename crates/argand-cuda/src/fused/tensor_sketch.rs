//! The host side of `tensor_sketch.cu`: flat TensorSketches in one pass.

use argand::draw::{Buckets, Product, Values};
use argand::{Error, Field, InputDims, Scalar, Spec};

use super::{Call, MOST_TABLES, Table, flat, narrow};
use crate::driver::{Device, Stream};
use crate::fourier::turn;
use crate::launch::{Lazy, arguments};
use crate::memory::{Buffer, View};
use crate::operator::positions;
use crate::product::roots;

/// As in the kernel.
const MOST_FACTORS: usize = 32;
const PER_LANE: usize = 16;
/// Slots that a code of 16 bits can name.
const MOST_SLOTS: usize = 1 << 14;
/// Bytes of shared memory that are not the launch's, rounded up.
const OWN_SHARED: usize = 1024;
/// log₂ of the lengths there are kernels for.
const SMALLEST: u32 = 6;
const LARGEST: u32 = 13;

/// A flat TensorSketch in one pass.
#[derive(Debug)]
pub(crate) struct TensorSketch {
    features: Lazy,
    pooled: Lazy,
    /// Transforms that a block computes side by side.
    teams: usize,
    complex: bool,
    root_coef0: f32,
    /// The memory that `arguments` points to.
    _tables: [Buffer; 4],
    arguments: Arguments,
}

/// `Arguments` in the kernel, field by field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Arguments {
    tables: [Table; MOST_TABLES],
    codes: u64,
    list_starts: u64,
    members: u64,
    twiddles: u64,
    out: u64,
    bad_row: u64,
    starts: u64,
    rows: i64,
    groups: i64,
    stride: i64,
    first_row: i64,
    root_gamma: f32,
    scale: f32,
    factors: i32,
    element: i32,
    out_element: i32,
    interleaved: i32,
    distinct: i32,
    slots: i32,
    lists: [i32; MOST_FACTORS + 1],
}

impl TensorSketch {
    /// The sketch in one pass, if it is a flat TensorSketch whose transforms and rows fit into shared memory.
    pub(super) fn new<'a>(device: &Device, spec: &Spec, product: &'a Product) -> Result<Option<Self>, Error> {
        let buckets = |values: &'a Values| if let Values::Buckets(buckets) = values { Some(&**buckets) } else { None };
        let (Some((factors, draw)), Some(method)) = (flat(product, buckets), spec.method.product()) else {
            return Ok(None);
        };
        let distinct = matches!(spec.inputs, InputDims::Distinct(_));
        let outputs = draw.outputs;
        let log = outputs.trailing_zeros();
        let applies = outputs.is_power_of_two()
            && (SMALLEST..=LARGEST).contains(&log)
            && factors.len() <= if distinct { MOST_TABLES } else { MOST_FACTORS }
            && device.info().compute_capability.0 >= 8;
        if !applies {
            return Ok(None);
        }
        let Some(tables) = Tables::of(&factors, spec.inputs.as_slice(), distinct, outputs) else { return Ok(None) };
        let lanes = outputs / PER_LANE;
        let teams = 32_usize.div_ceil(lanes);
        let shared = teams * (outputs + outputs / 16 + tables.slots) * size_of::<[f32; 2]>();
        if shared + OWN_SHARED > device.info().shared_memory {
            return Ok(None);
        }
        let (module, complex) = (format!("tensor_sketch_{log}"), draw.complex);
        let pooled_threads = lanes * teams;
        // A thread of the largest plays two lanes.
        let threads = if log == LARGEST { pooled_threads / 2 } else { pooled_threads };
        let kernel =
            |names: [&'static str; 2], threads| Lazy::new(&module, names[usize::from(complex)], shared, threads);
        let features = kernel(["features_real", "features_complex"], threads);
        let pooled = kernel(["pooled_real", "pooled_complex"], pooled_threads);

        let codes = device.upload(&tables.codes)?;
        let list_starts = device.upload(&tables.list_starts)?;
        let members = device.upload(&tables.members)?;
        let twiddles = device.upload(&twiddles(log))?;
        let arguments = Arguments {
            tables: [Table::default(); MOST_TABLES],
            codes: codes.address(),
            list_starts: list_starts.address(),
            members: members.address(),
            twiddles: twiddles.address(),
            out: 0,
            bad_row: 0,
            starts: 0,
            rows: 0,
            groups: 0,
            stride: 0,
            first_row: 0,
            root_gamma: f32::from_f64(roots(spec)[0]),
            // 1/√m for the inverse transform, and again for the mean over outputs.
            scale: f32::from_f64(1.0 / outputs as f64),
            factors: narrow(factors.len()),
            element: 0,
            out_element: 0,
            interleaved: i32::from(method.field == Field::Complex),
            distinct: i32::from(distinct),
            slots: narrow(tables.slots),
            lists: tables.lists,
        };
        let buffers = [codes, list_starts, members, twiddles];
        Ok(Some(Self {
            features,
            pooled,
            teams,
            complex,
            root_coef0: f32::from_f64(roots(spec)[1]),
            _tables: buffers,
            arguments,
        }))
    }

    fn arguments(&self, call: &Call<'_>) -> Arguments {
        Arguments {
            tables: Table::of(call.inputs, self.root_coef0),
            element: call.element(),
            rows: call.input_rows(),
            out: call.out.address,
            out_element: call.out.element.code(),
            stride: call.out.stride as i64,
            first_row: call.first_row as i64,
            bad_row: call.bad_row.0,
            ..self.arguments
        }
    }

    /// Queues the features of all rows.
    pub(super) fn transform(&self, stream: &Stream, call: &Call<'_>) -> Result<(), Error> {
        let arguments = self.arguments(call);
        let at_once = self.teams * if self.complex { 1 } else { 2 };
        self.features.launch(stream, call.out.rows.div_ceil(at_once), arguments!(arguments))
    }

    /// Queues the sums of the features of groups of rows; `starts` has one more entry than there are groups.
    pub(super) fn transform_pooled(&self, stream: &Stream, call: &Call<'_>, starts: View) -> Result<(), Error> {
        let groups = call.out.rows;
        let arguments = Arguments { starts: starts.0, groups: groups as i64, ..self.arguments(call) };
        self.pooled.launch_all(stream, [groups.div_ceil(self.teams), 1], arguments!(arguments))
    }
}

/// The tables of the count sketches.
struct Tables {
    /// What each bucket takes, 4 slot + quarter turns: [factor][number / 8][lane][number % 8].
    codes: Vec<u16>,
    /// Buckets of several coordinates: where each begins among the members, for all factors.
    list_starts: Vec<u32>,
    /// 4 coordinate + quarter turns, ascending in each list.
    members: Vec<u16>,
    /// The first list of each factor, and the end.
    lists: [i32; MOST_FACTORS + 1],
    /// Slots of a row: its columns, the constant, a zero, and the sums of lists.
    slots: usize,
}

impl Tables {
    /// The tables, unless codes have too few bits for the slots.
    fn of(factors: &[&Buckets], columns: &[usize], distinct: bool, outputs: usize) -> Option<Self> {
        let mut tables = Self {
            codes: Vec::new(),
            list_starts: vec![0],
            members: Vec::new(),
            lists: [0; MOST_FACTORS + 1],
            slots: 0,
        };
        let code = |slot: usize, turns: u8| u16::try_from(4 * slot + usize::from(turns)).ok();
        let mut first_list = 0;
        for (number, factor) in factors.iter().enumerate() {
            let columns = columns[if distinct { number } else { 0 }];
            if distinct {
                first_list = tables.list_starts.len() - 1;
            }
            tables.lists[number] = narrow(tables.list_starts.len() - 1);
            let (starts, order) = positions(outputs, &factor.buckets);
            let mut of_bucket = Vec::with_capacity(outputs);
            for range in starts.windows(2) {
                let own = &order[range[0] as usize..range[1] as usize];
                of_bucket.push(match *own {
                    [] => code(columns + 1, 0)?,
                    [only] => code(only as usize, factor.turns[only as usize])?,
                    _ => {
                        let list = tables.list_starts.len() - 1 - first_list;
                        for &coordinate in own {
                            tables.members.push(code(coordinate as usize, factor.turns[coordinate as usize])?);
                        }
                        tables.list_starts.push(u32::try_from(tables.members.len()).ok()?);
                        code(columns + 2 + list, 0)?
                    }
                });
            }
            tables.slots = tables.slots.max(columns + 2 + tables.list_starts.len() - 1 - first_list);
            let buckets = first_pass(outputs);
            tables.codes.extend(buckets.iter().map(|&bucket| of_bucket[bucket]));
        }
        tables.lists[factors.len()] = narrow(tables.list_starts.len() - 1);
        (tables.slots <= MOST_SLOTS).then_some(tables)
    }
}

/// log₂ of the radices of a transform's passes: `log_radix` in the kernel.
fn passes(log: u32) -> Vec<u32> {
    let before = log - 3;
    let count = before.div_ceil(4);
    (0..count).map(|pass| before / count + u32::from(pass < before % count)).chain([3]).collect()
}

/// The buckets in the order in which lanes read their codes.
fn first_pass(outputs: usize) -> Vec<usize> {
    let lanes = outputs / PER_LANE;
    let radix = 1 << passes(outputs.trailing_zeros())[0];
    let stride = outputs / radix;
    let bucket = |lane: usize, number: usize| lane + number / radix * lanes + number % radix * stride;
    (0..PER_LANE / 8)
        .flat_map(|part| (0..lanes).flat_map(move |lane| (0..8).map(move |within| (lane, 8 * part + within))))
        .map(|(lane, number)| bucket(lane, number))
        .collect()
}

/// The twiddles of all passes as real and imaginary parts: forward ones after the first by block, then inverse ones before the last by the
/// place within a block.
fn twiddles(log: u32) -> Vec<f32> {
    let radices = passes(log);
    let mut angles = Vec::new();
    let mut level = radices[0];
    for radix in &radices[1..] {
        let reversed = |block: u32| f64::from(block.reverse_bits()) / 2.0_f64.powi(32);
        angles.extend((0..1_u32 << level).map(|block| -reversed(block) / f64::from(1_u32 << (radix - 1))));
        level += radix;
    }
    let mut length = 1_u32 << log;
    for radix in &radices[..radices.len() - 1] {
        let stride = length >> radix;
        angles.extend((0..stride).map(|place| -2.0 * f64::from(place) / f64::from(length)));
        length = stride;
    }
    angles.into_iter().flat_map(turn).map(f32::from_f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Complex = [f64; 2];

    fn times([a, b]: Complex, [c, d]: Complex) -> Complex {
        [a * c - b * d, a * d + b * c]
    }

    /// The sum of x_t z^t.
    fn evaluate(x: &[Complex], z: Complex) -> Complex {
        x.iter().rev().fold([0.0; 2], |sum, x| {
            let [re, im] = times(sum, z);
            [re + x[0], im + x[1]]
        })
    }

    /// The sums of x_t u^t exp(−2πi qt/R): what the kernel's `transform` computes.
    fn pass(x: &[Complex], u: Complex) -> Vec<Complex> {
        (0..x.len()).map(|q| evaluate(x, times(u, turn(-2.0 * q as f64 / x.len() as f64)))).collect()
    }

    fn reversed(number: usize, bits: u32) -> usize {
        number.reverse_bits() >> (usize::BITS - bits)
    }

    /// Some passes of the kernel, with its twiddles: levels from `level` on, from natural to reversed order or back.
    fn run(data: &mut [Complex], level: u32, radix: u32, twiddle: impl Fn(usize, usize) -> Complex, back: bool) {
        let block = data.len() >> level;
        let stride = block >> radix;
        for (number, data) in data.chunks_exact_mut(block).enumerate() {
            for place in 0..stride {
                let at = |i: usize| place + i * stride;
                let order = |i: usize| if back { at(reversed(i, radix)) } else { at(i) };
                let x: Vec<Complex> = (0..1 << radix).map(|i| data[order(i)]).collect();
                for (q, value) in pass(&x, twiddle(number, place)).into_iter().enumerate() {
                    data[if back { at(q) } else { at(reversed(q, radix)) }] = value;
                }
            }
        }
    }

    /// The passes, as in the kernel, are the transform as it is defined, and back.
    #[test]
    fn twiddles_are_those_of_the_transform() {
        for log in [6, 7, 8, 10, 11] {
            let length = 1_usize << log;
            let radices = passes(log);
            assert_eq!(radices.iter().sum::<u32>(), log);
            assert!(radices.iter().all(|radix| (2..=4).contains(radix)), "{radices:?}");
            let table: Vec<Complex> =
                twiddles(log).chunks_exact(2).map(|pair| [f64::from(pair[0]), f64::from(pair[1])]).collect();
            let data: Vec<Complex> =
                (0..length).map(|at| [(at * 7 % 5) as f64 - 2.0, (at * 3 % 4) as f64 - 1.5]).collect();
            let mut got = data.clone();
            let (mut level, mut next) = (0, 0);
            for (number, &radix) in radices.iter().enumerate() {
                run(
                    &mut got,
                    level,
                    radix,
                    |block, _| if number == 0 { [1.0, 0.0] } else { table[next + block] },
                    false,
                );
                next += if number == 0 { 0 } else { 1 << level };
                level += radix;
            }
            let close = |a: Complex, b: Complex| (a[0] - b[0]).abs() + (a[1] - b[1]).abs() < 1e-4 * length as f64;
            for (position, &got) in got.iter().enumerate() {
                let want = evaluate(&data, turn(-2.0 * reversed(position, log) as f64 / length as f64));
                assert!(close(got, want), "{log}: {got:?} {want:?}");
            }
            // Back, with real and imaginary parts exchanged; twiddles of the passes before the last, the first pass's first.
            let mut starts = vec![next];
            let mut left = log;
            for radix in &radices {
                left -= radix;
                starts.push(starts[starts.len() - 1] + (1 << left));
            }
            assert_eq!(starts[radices.len() - 1], table.len());
            got.iter_mut().for_each(|[re, im]| std::mem::swap(re, im));
            for (number, &radix) in radices.iter().enumerate().rev() {
                level -= radix;
                let twiddle =
                    |_: usize, place: usize| if level + 3 == log { [1.0, 0.0] } else { table[starts[number] + place] };
                run(&mut got, level, radix, twiddle, true);
            }
            for (&[im, re], want) in got.iter().zip(data) {
                assert!(close([re / length as f64, im / length as f64], want), "{log}");
            }
        }
    }

    /// Slots and lists give the sums of every bucket.
    #[test]
    fn codes_are_the_count_sketch() {
        let (outputs, columns) = (128, 90);
        let factor = |step: usize| Buckets {
            turns: (0..=columns).map(|at| u8::try_from(at * step % 4).expect("few turns")).collect(),
            buckets: (0..=columns).map(|at| u32::try_from(at * at * step % outputs).expect("a bucket")).collect(),
        };
        let factors = [factor(5), factor(7), factor(11)];
        let x: Vec<f64> = (0..=columns).map(|at| at as f64 + 0.5).collect();
        for distinct in [false, true] {
            let tables = Tables::of(&factors.each_ref(), &[columns; 3], distinct, outputs).expect("tables");
            for (number, factor) in factors.iter().enumerate() {
                let mut slots: Vec<Complex> = x.iter().map(|&x| [x, 0.0]).chain([[0.0; 2]]).collect();
                let look_up = |slots: &[Complex], code: u16| {
                    times(slots[usize::from(code / 4)], argand::draw::quarter_turn((code % 4) as u8))
                };
                let (first, last) = if distinct { (number, number + 1) } else { (0, factors.len()) };
                let list = |factor: usize| usize::try_from(tables.lists[factor]).expect("a list");
                let lists = list(first)..list(last);
                for list in lists {
                    let members =
                        &tables.members[tables.list_starts[list] as usize..tables.list_starts[list + 1] as usize];
                    let sum = members
                        .iter()
                        .map(|&code| look_up(&slots, code))
                        .fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
                    slots.push(sum);
                }
                assert!(slots.len() <= tables.slots);
                let mut want = vec![[0.0; 2]; outputs];
                for (at, &bucket) in factor.buckets.iter().enumerate() {
                    let [re, im] = argand::draw::quarter_turn(factor.turns[at]);
                    want[bucket as usize][0] += re * x[at];
                    want[bucket as usize][1] += im * x[at];
                }
                let codes = &tables.codes[number * outputs..][..outputs];
                for (&bucket, &code) in first_pass(outputs).iter().zip(codes) {
                    assert_eq!(look_up(&slots, code), want[bucket], "bucket {bucket} of factor {number}");
                }
            }
        }
    }
}
