//! Reading stores that are larger than memory: a thread reads ahead of those that compute.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use argand::Error;

use super::store::{Shard, Store, failed, fault};

/// Blocks that are read ahead.
const AHEAD: usize = 2;
/// Blocks in memory: one that is filled, one that is worked on, and those in between.
pub(super) const BUFFERS: usize = AHEAD + 2;

/// Some rows of a shard.
pub(super) struct Block<'a> {
    pub(super) shard: &'a Shard,
    /// Its place among the shards of the store.
    pub(super) index: usize,
    /// The number of its first example.
    pub(super) first: u64,
    /// Row by row.
    pub(super) numbers: &'a [f32],
}

/// What the reading thread sends: the place of a shard, the first row, and the numbers.
type Sent = Result<(usize, usize, Vec<f32>), Error>;

impl Store {
    /// Calls `work` with all rows of some shards in blocks of `rows`, which end with their shard. The checksum of a shard is compared
    /// after its last row: what was computed is of use only if there is no error.
    ///
    /// # Errors
    /// [`Error::Store`] for files that cannot be read, are damaged or were replaced since the store was opened, and those of `work`.
    pub(super) fn for_each_block(
        &self,
        shards: &[usize],
        rows: usize,
        mut work: impl FnMut(Block<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let ((full, blocks), (empty, buffers)) = (sync_channel(AHEAD), channel());
        (0..BUFFERS).for_each(|_| drop(empty.send(Vec::new())));
        std::thread::scope(|scope| {
            scope.spawn(move || self.read_ahead(shards, rows, &full, &buffers));
            // The reading thread ends when nobody listens any more.
            let blocks = blocks;
            for block in &blocks {
                let (index, row, numbers) = block?;
                let shard = &self.shards()[index];
                work(Block { shard, index, first: shard.first + row as u64, numbers: &numbers })?;
                // If the reading thread has ended, it needs no buffers.
                let _ = empty.send(numbers);
            }
            Ok(())
        })
    }

    fn read_ahead(&self, shards: &[usize], rows: usize, full: &SyncSender<Sent>, buffers: &Receiver<Vec<f32>>) {
        for &index in shards {
            let read = self.read_shard(index, rows, full, buffers);
            match read.map_err(|error| self.shards()[index].check_unchanged().err().unwrap_or(error)) {
                Ok(true) => {}
                // If nobody listens, nobody needs to know.
                Ok(false) => return,
                Err(error) => return drop(full.send(Err(error))),
            }
        }
    }

    /// Whether somebody still wants to have more.
    fn read_shard(
        &self,
        index: usize,
        rows: usize,
        full: &SyncSender<Sent>,
        buffers: &Receiver<Vec<f32>>,
    ) -> Result<bool, Error> {
        let (shard, columns) = (&self.shards()[index], self.columns());
        let path = &shard.path;
        let mut file = File::open(path).map_err(|error| failed(path, "open", &error))?;
        let mut header = vec![0; shard.offset];
        file.read_exact(&mut header).map_err(|error| failed(path, "read", &error))?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header);
        for row in (0..shard.rows).step_by(rows) {
            let Ok(mut numbers) = buffers.recv() else { return Ok(false) };
            numbers.resize(rows.min(shard.rows - row) * columns, 0.0);
            read_numbers(path, &mut file, &mut numbers, |bytes| hasher.update(bytes))?;
            let last = row + rows >= shard.rows;
            if last && hasher.clone().finalize() != shard.crc32 {
                return Err(fault(
                    path,
                    "damaged: the checksum does not match; remove it and its .json file, and record its examples again",
                ));
            }
            if full.send(Ok((index, row, numbers))).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The places of all shards.
    pub(super) fn all_shards(&self) -> Vec<usize> {
        (0..self.shards().len()).collect()
    }
}

/// Reads numbers from the place where a file is.
fn read_numbers(path: &Path, file: &mut File, to: &mut [f32], seen: impl FnOnce(&[u8])) -> Result<(), Error> {
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(to);
    file.read_exact(bytes).map_err(|error| failed(path, "read", &error))?;
    seen(bytes);
    if cfg!(target_endian = "big") {
        to.iter_mut().for_each(|number| *number = f32::from_bits(number.to_bits().swap_bytes()));
    }
    Ok(())
}

/// A shard whose rows are read one by one.
pub(super) struct SingleRows<'a> {
    shard: &'a Shard,
    file: File,
    /// The row that was read last.
    numbers: Vec<f32>,
}

impl<'a> SingleRows<'a> {
    pub(super) fn open(shard: &'a Shard, columns: usize) -> Result<Self, Error> {
        let file = File::open(&shard.path);
        // Rows have no checksums of their own.
        shard.check_unchanged()?;
        let file = file.map_err(|error| failed(&shard.path, "open", &error))?;
        Ok(Self { shard, file, numbers: vec![0.0; columns] })
    }

    /// The row of an example of this shard.
    pub(super) fn read(&mut self, example: u64) -> Result<&[f32], Error> {
        let (shard, columns) = (self.shard, self.numbers.len());
        let place = shard.offset as u64 + (example - shard.first) * (columns * size_of::<f32>()) as u64;
        self.file.seek(SeekFrom::Start(place)).map_err(|error| failed(&shard.path, "read", &error))?;
        read_numbers(&shard.path, &mut self.file, &mut self.numbers, |_| ())?;
        Ok(&self.numbers)
    }
}
