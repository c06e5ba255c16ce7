//! The algebra of learning on features in double precision, where cuBLAS is found.

use std::fmt;
use std::sync::Arc;

use argand::{Error, FeatureMap, Input, Rows, check_shapes, check_vanishing, checked};

use crate::blas::{Blas, Square, Table};
use crate::driver::{Device, Stream};
use crate::host::Traffic;
use crate::launch::{Kernel, Shape, arguments};
use crate::memory::{Buffer, View};
use crate::sketch::CudaSketch;
use crate::view::{DeviceRows, Element};

const THREADS: usize = 256;

// Kernels take sizes as numbers of 64 bits.
const _: () = assert!(size_of::<usize>() == 8);

/// Rows of a diagonal block that is factored by one kernel; `BLOCK` in `algebra.cu`.
const BLOCK: usize = 64;

/// Bytes of rows in double precision that are worked on together.
const WORK_BYTES: usize = 1 << 29;

/// Strides are multiples of this many numbers, which lets cuBLAS read them in lines.
const ALIGNED: usize = 8;

/// Products, factors and variances in double precision on a GPU.
///
/// Symmetric and lower triangular matrices are packed: row i in the numbers from i(i + 1)/2 on. Every method waits for its result.
pub struct Algebra {
    stream: Stream,
    blas: Blas,
    widen: Kernel,
    pack: Kernel,
    unpack: Kernel,
    factor_block: Kernel,
    squared_norms: Kernel,
}

impl fmt::Debug for Algebra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Algebra").field("device", self.device()).finish_non_exhaustive()
    }
}

/// A matrix with memory of its own.
#[derive(Debug)]
struct Matrix {
    buffer: Buffer,
    stride: usize,
}

impl Matrix {
    fn table(&self) -> Table {
        Table { view: self.buffer.at::<f64>(0), stride: self.stride }
    }
}

/// The numbers of a packed triangle.
fn packed_length(size: usize) -> usize {
    size * (size + 1) / 2
}

impl Algebra {
    /// With a stream of its own; nothing if cuBLAS is not found.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn find(device: &Device) -> Result<Option<Self>, Error> {
        let Some(blas) = Blas::find(device) else { return Ok(None) };
        let kernel = |name| device.kernel("algebra_f64", name);
        Ok(Some(Self {
            stream: device.stream()?,
            blas,
            widen: kernel("widen")?,
            pack: kernel("pack")?,
            unpack: kernel("unpack")?,
            factor_block: kernel("factor_block")?,
            squared_norms: kernel("squared_norms")?,
        }))
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    fn matrix(&self, stream: &Stream, rows: usize, columns: usize) -> Result<Matrix, Error> {
        let stride = columns.next_multiple_of(ALIGNED);
        Ok(Matrix { buffer: stream.scratch(rows * stride * size_of::<f64>())?, stride })
    }

    /// Rows of features in double precision, in some order, and further numbers of the same rows behind them.
    fn widen(
        &self,
        stream: &Stream,
        features: &DeviceRows,
        others: (View, usize),
        order: View,
        out: Table,
        rows: usize,
    ) -> Result<(), Error> {
        let (others, more) = others;
        let arguments = arguments![
            features.address,
            features.stride,
            features.columns,
            others,
            more,
            order,
            out.view,
            out.stride,
            rows
        ];
        self.widen.launch(stream, by_row(rows), arguments)
    }

    fn pack(&self, stream: &Stream, matrix: Table, size: usize) -> Result<Vec<f64>, Error> {
        let packed = stream.scratch(packed_length(size) * size_of::<f64>())?;
        let into = packed.at::<f64>(0);
        let arguments = arguments![matrix.view, matrix.stride, into, size];
        self.pack.launch(stream, by_row(size), arguments)?;
        let mut values = vec![0.0; packed_length(size)];
        stream.read(&packed, 0, &mut values)?;
        Ok(values)
    }

    fn unpack(&self, stream: &Stream, packed: &[f64], size: usize) -> Result<Matrix, Error> {
        assert_eq!(packed.len(), packed_length(size), "the packed triangle of a matrix of this size");
        let (matrix, buffer) = (self.matrix(stream, size, size)?, stream.scratch(size_of_val(packed))?);
        stream.write(packed, &buffer, 0)?;
        let (from, into) = (buffer.at::<f64>(0), matrix.table());
        self.unpack.launch(stream, by_row(size), arguments![from, into.view, into.stride, size])?;
        Ok(matrix)
    }

    /// L of A = LLᵀ in place of A, both packed. Where A is not positive definite, L has numbers that are not.
    ///
    /// # Cost
    /// size³/3 operations, in steps of 64 columns.
    ///
    /// # Errors
    /// [`Error::Device`].
    ///
    /// # Panics
    /// If `packed` is not the triangle of a matrix of this size.
    pub fn cholesky(&self, size: usize, packed: &mut [f64]) -> Result<(), Error> {
        let stream = &self.stream;
        let matrix = self.unpack(stream, packed, size)?;
        let all = matrix.table();
        for first in (0..size).step_by(BLOCK) {
            let columns = BLOCK.min(size - first);
            let (corner, next) = (all.part_at(first, first), first + columns);
            let arguments = arguments![corner.view, corner.stride, columns];
            self.factor_block.launch(stream, Shape { grid: [1, 1], threads: THREADS }, arguments)?;
            let left = size - next;
            if left > 0 {
                let panel = all.part_at(next, first);
                self.blas.solve_rows(stream, corner, panel, [columns, left])?;
                self.blas.add_square(
                    stream,
                    Square::OfRows,
                    [-1.0, 1.0],
                    panel,
                    all.part_at(next, next),
                    [left, columns],
                )?;
            }
        }
        packed.copy_from_slice(&self.pack(stream, all, size)?);
        Ok(())
    }

    /// ΦΦᵀ of rows Φ, packed.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn inner_products(&self, rows: Rows<'_, f32>) -> Result<Vec<f64>, Error> {
        let (stream, count, columns) = (&self.stream, rows.rows(), rows.columns());
        let (numbers, features) = self.upload(rows)?;
        let (wide, products) = (self.matrix(stream, count, columns)?, self.matrix(stream, count, count)?);
        self.widen(stream, &features, (View::NONE, 0), View::NONE, wide.table(), count)?;
        drop(numbers);
        self.blas.add_square(stream, Square::OfRows, [1.0, 0.0], wide.table(), products.table(), [count, columns])?;
        self.pack(stream, products.table(), count)
    }

    /// Rows in device memory.
    fn upload(&self, rows: Rows<'_, f32>) -> Result<(Buffer, DeviceRows), Error> {
        let (count, columns) = (rows.rows(), rows.columns());
        let buffer = self.stream.scratch(count * columns * size_of::<f32>())?;
        let mut numbers = Vec::with_capacity(count * columns);
        (0..count).for_each(|row| numbers.extend_from_slice(rows.row(row)));
        self.stream.write(&numbers, &buffer, 0)?;
        let address = buffer.address();
        Ok((buffer, DeviceRows { address, element: Element::F32, rows: count, columns, stride: columns }))
    }

    /// Keeps lower triangular matrices on the device, for [`Factors::squared_norms`].
    ///
    /// # Errors
    /// [`Error::Device`].
    ///
    /// # Panics
    /// If one of them is not the packed triangle of a matrix of this size.
    pub fn factors(self, size: usize, packed: &[&[f64]]) -> Result<Factors, Error> {
        let lower = packed.iter().map(|packed| self.unpack(&self.stream, packed, size)).collect::<Result<_, _>>()?;
        Ok(Factors { lower, size, algebra: self })
    }
}

fn by_row(rows: usize) -> Shape {
    Shape { grid: [rows.min(1 << 16), 1], threads: THREADS }
}

/// Lower triangular matrices on a GPU.
#[derive(Debug)]
pub struct Factors {
    /// Dropped before the stream that their memory is returned on.
    lower: Vec<Matrix>,
    size: usize,
    algebra: Algebra,
}

impl Factors {
    /// ‖L⁻¹φ‖² of every row φ, for one matrix L after the other.
    ///
    /// # Cost
    /// size² operations for each row and matrix.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn squared_norms(&self, rows: Rows<'_, f32>) -> Result<Vec<Vec<f64>>, Error> {
        assert_eq!(rows.columns(), self.size, "rows as long as those of the matrices");
        let (algebra, stream, count) = (&self.algebra, &self.algebra.stream, rows.rows());
        let (_numbers, features) = algebra.upload(rows)?;
        let together = (WORK_BYTES / size_of::<f64>() / self.size.max(1)).clamp(1, count.max(1));
        let work = algebra.matrix(stream, together, self.size)?;
        let norms = stream.scratch(together * size_of::<f64>())?;
        let mut all = vec![vec![0.0; count]; self.lower.len()];
        for first in (0..count).step_by(together) {
            let part = features.range(first, together.min(count - first));
            for (lower, all) in self.lower.iter().zip(&mut all) {
                let (x, out) = (work.table(), norms.at::<f64>(0));
                algebra.widen(stream, &part, (View::NONE, 0), View::NONE, x, part.rows)?;
                algebra.blas.solve_rows(stream, lower.table(), x, [self.size, part.rows])?;
                let arguments = arguments![x.view, x.stride, self.size, out, part.rows];
                algebra.squared_norms.launch(stream, by_row(part.rows), arguments)?;
                stream.read(&norms, 0, &mut all[first..first + part.rows])?;
            }
        }
        Ok(all)
    }
}

/// Sums of products of features, which never leave the device.
///
/// # Formula
/// ZᵀZ for every group of rows, where a row of Z has the features of a row and then further numbers of the caller's.
///
/// # Cost
/// n·D² operations for n rows of D features; 8D² bytes of device memory for every group.
pub struct Products {
    /// Dropped before the stream that its memory is returned on.
    sums: Vec<Matrix>,
    sketch: Arc<CudaSketch<f32>>,
    more: usize,
    algebra: Algebra,
}

impl fmt::Debug for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Products")
            .field("sketch", &self.sketch)
            .field("groups", &self.sums.len())
            .finish_non_exhaustive()
    }
}

impl Products {
    /// No rows yet; `more` further numbers in every row.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn new(algebra: Algebra, sketch: Arc<CudaSketch<f32>>, more: usize, groups: usize) -> Result<Self, Error> {
        let width = sketch.output_dim() + more;
        let zeros = || -> Result<Matrix, Error> {
            let matrix = algebra.matrix(&algebra.stream, width, width)?;
            algebra.stream.fill(matrix.buffer.at::<u8>(0), matrix.buffer.bytes(), 0)?;
            Ok(matrix)
        };
        let sums = (0..groups).map(|_| zeros()).collect::<Result<_, _>>()?;
        algebra.stream.synchronize()?;
        Ok(Self { sums, sketch, more, algebra })
    }

    /// Adds rows: their further numbers, row by row, and their groups.
    ///
    /// # Errors
    /// As [`FeatureMap::transform_into`]. The sums are then of no use.
    ///
    /// # Panics
    /// If there are numbers or groups for another number of rows, or a group that does not exist.
    pub fn add(&mut self, inputs: &[Input<'_, f32>], others: &[f64], groups: &[u32]) -> Result<(), Error> {
        let rows = check_shapes(self.sketch.input_dims(), inputs)?;
        assert!(others.len() == rows * self.more && groups.len() == rows, "numbers and groups for every row");
        self.sketch.check_rows(inputs)?;
        let (dim, width) = (self.sketch.output_dim(), self.sketch.output_dim() + self.more);
        let most_rows = WORK_BYTES / (width * size_of::<f64>());
        // One block after the other, so that sums are added up in an order that depends on nothing else.
        let traffic = Traffic { lanes: 1, most_rows };
        self.sketch.in_flight(&traffic, &checked(inputs)?, None, &mut [], |stream, inputs, _, first, bad_row| {
            let rows = inputs[0].rows;
            let features = stream.scratch(rows * dim * size_of::<f32>())?;
            let table =
                DeviceRows { address: features.address(), element: Element::F32, rows, columns: dim, stride: dim };
            self.sketch.queue(stream, inputs, &table, first, bad_row)?;
            let others = &others[first * self.more..][..rows * self.more];
            self.add_on(stream, &table, others, &groups[first..][..rows])
        })?;
        check_vanishing(self.sketch.spec(), inputs)
    }

    /// Queues the sums of features in device memory.
    ///
    /// # Errors
    /// [`Error::Device`].
    ///
    /// # Panics
    /// If there are numbers or groups for another number of rows, or a group that does not exist.
    pub fn add_on(&self, stream: &Stream, features: &DeviceRows, others: &[f64], groups: &[u32]) -> Result<(), Error> {
        let (rows, dim) = (features.rows, self.sketch.output_dim());
        assert!(features.columns == dim && features.element == Element::F32, "features of the sketch");
        assert!(others.len() == rows * self.more && groups.len() == rows, "numbers and groups for every row");
        let mut starts = vec![0_usize; self.sums.len() + 1];
        groups.iter().for_each(|&group| starts[group as usize + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let (mut next, mut order) = (starts.clone(), vec![0_u32; rows]);
        for (row, &group) in (0_u32..).zip(groups) {
            order[next[group as usize]] = row;
            next[group as usize] += 1;
        }
        let order_there = stream.scratch(size_of_val(&order[..]))?;
        stream.write(&order, &order_there, 0)?;
        let others_there = stream.scratch(size_of_val(others))?;
        stream.write(others, &others_there, 0)?;
        let wide = self.algebra.matrix(stream, rows, dim + self.more)?;
        let others = (others_there.at::<f64>(0), self.more);
        self.algebra.widen(stream, features, others, order_there.at::<u32>(0), wide.table(), rows)?;
        let blas = &self.algebra.blas;
        for (range, sums) in starts.windows(2).zip(&self.sums) {
            let (z, sums, count) = (wide.table().part_at(range[0], 0), sums.table(), range[1] - range[0]);
            if count > 0 {
                blas.add_square(stream, Square::OfColumns, [1.0, 1.0], z, sums, [dim, count])?;
                let moments = [z.part_at(0, dim), z, sums.part_at(dim, 0)];
                blas.add_product(stream, moments, [self.more, dim + self.more, count])?;
            }
        }
        Ok(())
    }

    /// ZᵀZ of every group, packed. Waits for all work on the device.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn finish(self) -> Result<Vec<Vec<f64>>, Error> {
        let width = self.sketch.output_dim() + self.more;
        self.algebra.device().synchronize()?;
        self.sums.iter().map(|sums| self.algebra.pack(&self.algebra.stream, sums.table(), width)).collect()
    }
}
