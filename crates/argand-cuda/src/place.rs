//! Where the fused kernel keeps transformed values in shared memory, so that few of its gathers collide.
//!
//! A gather reads sixteen bytes per lane, eight lanes at a time, from eight groups of banks: slot s lies in group s mod 8. Eight
//! lanes whose slots lie in different groups, or are the same, are served at once; otherwise as often as the fullest group has slots.
//! A lane stores half a slot at a time, sixteen lanes together, two for each group at best. Which slots are accessed together is
//! known when a sketch is drawn. A local search moves values between groups of banks until few collide.

/// Groups of banks, and lanes that read at a time.
pub(crate) const BANKS: usize = 8;

/// From one slot of a group of banks to the next.
const STEP: u16 = 8;

/// Random exchanges tried per value.
const TRIES: usize = 500;

/// The slot of every value, where these values are accessed together.
pub(crate) fn places(values: usize, accesses: Vec<Vec<usize>>, seed: u64) -> Vec<u16> {
    let mut search = Search::new(values, accesses.into_iter());
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: usize| {
        // xorshift64*: quality does not matter here, speed does.
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (((random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * limit as u64) >> 32) as usize
    };
    for _ in 0..TRIES * values {
        let (one, other) = (below(values), below(values));
        search.exchange_if_better(one, other);
    }
    search.slots()
}

/// The mean number of passes of a gather of eight lanes.
#[cfg(test)]
fn passes(slots: &[u16], sampled: &[u32]) -> f64 {
    let reads = reads(sampled);
    let total: usize = reads
        .iter()
        .map(|read| {
            let mut distinct = read.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let mut load = [0_usize; BANKS];
            distinct.iter().for_each(|&value| load[usize::from(slots[value]) % BANKS] += 1);
            load.into_iter().max().unwrap_or(0)
        })
        .sum();
    total as f64 / reads.len() as f64
}

/// The values of these outputs that eight lanes read at a time: lane l reads output 4 l + q in its q-th gather.
pub(crate) fn reads(sampled: &[u32]) -> Vec<Vec<usize>> {
    let lines = sampled.chunks(4 * BANKS);
    lines
        .flat_map(|line| (0..4).map(|q| line.iter().skip(q).step_by(4).map(|&value| value as usize).collect()))
        .collect()
}

struct Search {
    /// The bank of every value.
    bank: Vec<u8>,
    /// The accesses every value is in.
    accesses_of: Vec<Vec<u32>>,
    /// How many values of each bank an access has.
    load: Vec<[u8; BANKS]>,
}

impl Search {
    fn new(values: usize, accesses: impl Iterator<Item = Vec<usize>>) -> Self {
        let bank: Vec<u8> = (0..8_u8).cycle().take(values).collect();
        let mut accesses_of: Vec<Vec<u32>> = vec![Vec::new(); values];
        let mut load = Vec::new();
        for (number, access) in (0_u32..).zip(accesses) {
            let mut of_access = [0; BANKS];
            for value in access {
                // A value that several lanes read is sent to all of them.
                if accesses_of[value].last() != Some(&number) {
                    accesses_of[value].push(number);
                    of_access[usize::from(bank[value])] += 1;
                }
            }
            load.push(of_access);
        }
        Self { bank, accesses_of, load }
    }

    /// Moves one value to another bank; returns by how much the sum of squared loads changes.
    fn carry(&mut self, value: usize, to: u8) -> i32 {
        let from = self.bank[value];
        let mut change = 0;
        for &access in &self.accesses_of[value] {
            let load = &mut self.load[access as usize];
            change += 2 * (i32::from(load[usize::from(to)]) - i32::from(load[usize::from(from)]) + 1);
            load[usize::from(from)] -= 1;
            load[usize::from(to)] += 1;
        }
        self.bank[value] = to;
        change
    }

    fn exchange_if_better(&mut self, one: usize, other: usize) {
        let (bank_one, bank_other) = (self.bank[one], self.bank[other]);
        if bank_one == bank_other {
            return;
        }
        let change = self.carry(one, bank_other) + self.carry(other, bank_one);
        if change > 0 {
            self.carry(one, bank_one);
            self.carry(other, bank_other);
        }
    }

    /// Slots of each bank in ascending order: exchanges keep the banks equally full.
    fn slots(&self) -> Vec<u16> {
        let mut next: [u16; BANKS] = [0, 1, 2, 3, 4, 5, 6, 7];
        let slot = |&bank: &u8| {
            let next = &mut next[usize::from(bank)];
            let slot = *next;
            *next += STEP;
            slot
        };
        self.bank.iter().map(slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four copies of 1024 rows in random order, as in a sketch of 4096 outputs.
    fn sampled() -> Vec<u32> {
        let mut sampled: Vec<u32> = (0..4096).map(|at| at % 1024).collect();
        let mut state = 1_u64;
        for at in (1..sampled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sampled.swap(at, ((state >> 33) % (at as u64 + 1)) as usize);
        }
        sampled
    }

    #[test]
    fn every_value_has_a_slot_of_its_own() {
        for values in [32_u16, 1024, 2048] {
            let sampled: Vec<u32> = sampled().into_iter().filter(|&value| value < u32::from(values)).collect();
            let mut slots = places(usize::from(values), reads(&sampled), 1);
            slots.sort_unstable();
            assert!(slots.iter().copied().eq(0..values));
        }
    }

    #[test]
    fn the_search_leaves_few_collisions() {
        let sampled = sampled();
        let before = passes(&Search::new(1024, reads(&sampled).into_iter()).slots(), &sampled);
        let after = passes(&places(1024, reads(&sampled), 1), &sampled);
        assert!(before > 2.4 && after < 1.75, "{before} {after}");
    }
}
