//! The host side of `steps.cu`: one function per kernel, with its arguments by type and in its order.

#![allow(clippy::too_many_arguments, reason = "kernels have many")]

use argand::Error;

use crate::blas::{Blas, Form};
use crate::driver::{Device, Stream};
use crate::launch::{Kernel, Shape, arguments};
use crate::memory::View;
use crate::real::Real;
use crate::view::DeviceRows;

/// Real and imaginary plane; the latter is absent where vectors are real.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planes {
    pub(crate) re: View,
    pub(crate) im: View,
}

impl Planes {
    /// The part of an operand, if planes hold several with this many numbers each.
    pub(crate) fn part<T>(self, index: usize, numbers: usize) -> Self {
        Self { re: self.re.skip::<T>(index * numbers), im: self.im.skip::<T>(index * numbers) }
    }

    pub(crate) fn real(self) -> Self {
        Self { im: View::NONE, ..self }
    }
}

/// All steps of one scalar type, loaded.
#[derive(Debug)]
pub(crate) struct Steps {
    device: Device,
    blas: Option<Blas>,
    load: Kernel,
    store: Kernel,
    fetch: Kernel,
    scale: Kernel,
    multiply: Kernel,
    product: Kernel,
    side_by_side: Kernel,
    apart: Kernel,
    srht: Kernel,
    srht_transpose: Kernel,
    signed_sums: Kernel,
    combine: Kernel,
    spread: Kernel,
    dense: Kernel,
    count_sketch: Kernel,
    count_sketch_transpose: Kernel,
    fourier: Kernel,
    normalise: Kernel,
    cosines: Kernel,
    cosine_cotangent: Kernel,
    across: Kernel,
    add_to_groups: Kernel,
    store_groups: Kernel,
    repeat_groups: Kernel,
}

const THREADS: usize = 256;

fn int(size: usize) -> i32 {
    i32::try_from(size).unwrap_or_else(|_| unreachable!("the sizes of a sketch on a device are below 2³¹"))
}

fn long(size: usize) -> i64 {
    i64::try_from(size).unwrap_or_else(|_| unreachable!("tables have fewer than 2⁶³ rows"))
}

/// An SRHT's tables in device memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SrhtTables {
    pub(crate) dim: usize,
    pub(crate) padded: usize,
    pub(crate) outputs: usize,
    pub(crate) complex: bool,
    pub(crate) turns: View,
    pub(crate) sampled: View,
    pub(crate) starts: View,
    pub(crate) order: View,
}

/// A Fourier transform's tables in device memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FourierTables {
    pub(crate) length: usize,
    pub(crate) padded: usize,
    pub(crate) roots: View,
    pub(crate) chirp: View,
    pub(crate) filter: View,
}

/// Which transform, of which order of frequencies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transform {
    pub(crate) inverse: bool,
    /// Whether the source is in the order of the transform's results.
    pub(crate) from_frequencies: bool,
    pub(crate) factor: f64,
}

impl Steps {
    pub(crate) fn load<T: Real>(device: &Device) -> Result<Self, Error> {
        let kernel = |name| device.kernel(T::STEPS, name);
        let shared = device.info().shared_memory;
        // Static shared memory of these is zero, so dynamic memory may be all of it.
        let with_all = |name| kernel(name)?.with_shared(shared);
        Ok(Self {
            device: device.clone(),
            blas: Blas::find(device),
            load: kernel("load")?,
            store: kernel("store")?,
            fetch: kernel("fetch")?,
            scale: kernel("scale")?,
            multiply: kernel("multiply")?,
            product: kernel("product")?,
            side_by_side: kernel("side_by_side")?,
            apart: kernel("apart")?,
            srht: with_all("srht")?,
            srht_transpose: with_all("srht_transpose")?,
            signed_sums: kernel("signed_sums")?,
            combine: kernel("combine")?,
            spread: kernel("spread")?,
            dense: kernel("dense")?,
            count_sketch: kernel("count_sketch")?,
            count_sketch_transpose: kernel("count_sketch_transpose")?,
            fourier: with_all("fourier")?,
            normalise: kernel("normalise")?,
            cosines: kernel("cosines")?,
            cosine_cotangent: kernel("cosine_cotangent")?,
            across: kernel("across")?,
            add_to_groups: kernel("add_to_groups")?,
            store_groups: kernel("store_groups")?,
            repeat_groups: kernel("repeat_groups")?,
        })
    }

    /// Blocks for this many independent numbers.
    fn for_each(&self, count: usize) -> Shape {
        let most = 32 * self.device.info().multiprocessors;
        Shape { grid: [count.div_ceil(THREADS).min(most), 1], threads: THREADS }
    }

    /// One block per row, with work space in shared memory if it fits, and else in scratch memory.
    fn per_row<T>(
        &self,
        kernel: &Kernel,
        stream: &Stream,
        rows: usize,
        numbers: usize,
        launch: impl Fn(&Kernel, Shape, View) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let threads = (numbers / 4).next_power_of_two().clamp(32, 1024);
        let bytes = numbers * size_of::<T>();
        let most = 8 * self.device.info().multiprocessors;
        if bytes <= self.device.info().shared_memory {
            return launch(&kernel.clone().sharing(bytes), Shape { grid: [rows.min(most), 1], threads }, View::NONE);
        }
        let blocks = rows.min(self.device.info().multiprocessors);
        let scratch = stream.scratch(blocks * bytes)?;
        launch(&kernel.clone().sharing(0), Shape { grid: [blocks, 1], threads }, scratch.at::<T>(0))
    }

    /// x̃ = (√γ x, √ν).
    pub(crate) fn load_rows(
        &self,
        stream: &Stream,
        x: &DeviceRows,
        dim: usize,
        [root_gamma, root_coef0]: [f64; 2],
        out: View,
    ) -> Result<(), Error> {
        let (element, stride, columns, wide, rows) =
            (x.element.code(), long(x.stride), int(x.columns), int(dim), long(x.rows));
        self.load.launch(
            stream,
            self.for_each(x.rows * dim),
            arguments![x.address, element, stride, columns, wide, root_gamma, root_coef0, out, rows],
        )
    }

    /// The first columns of a plane of some width into every `step`-th column of a table.
    pub(crate) fn store(
        &self,
        stream: &Stream,
        plane: View,
        [width, columns]: [usize; 2],
        factor: f64,
        out: &DeviceRows,
        [start, step]: [usize; 2],
        first_row: usize,
        bad_row: View,
    ) -> Result<(), Error> {
        let (width, wide, element, stride, start, step) =
            (int(width), int(columns), out.element.code(), long(out.stride), int(start), int(step));
        let (rows, first) = (long(out.rows), long(first_row));
        self.store.launch(
            stream,
            self.for_each(out.rows * columns),
            arguments![plane, width, wide, factor, out.address, element, stride, start, step, rows, first, bad_row],
        )
    }

    /// Adds the features of rows from `first_row` on to the sums of their groups.
    pub(crate) fn add_to_groups(
        &self,
        stream: &Stream,
        features: &DeviceRows,
        starts: View,
        groups: usize,
        first_row: usize,
        sums: View,
    ) -> Result<(), Error> {
        let (columns, count, first, rows) = (int(features.columns), long(groups), long(first_row), long(features.rows));
        let shape = Shape { grid: [groups.min(1 << 16), 1], threads: THREADS };
        let arguments = arguments![features.address, columns, starts, count, first, rows, sums];
        self.add_to_groups.launch(stream, shape, arguments)
    }

    /// The cotangents of the groups of rows from `first_row` on.
    pub(crate) fn repeat_groups(
        &self,
        stream: &Stream,
        cotangent: &DeviceRows,
        starts: View,
        first_row: usize,
        out: &DeviceRows,
    ) -> Result<(), Error> {
        let (element, stride, groups) = (cotangent.element.code(), long(cotangent.stride), long(cotangent.rows));
        let (first, rows, columns) = (long(first_row), long(out.rows), int(out.columns));
        let shape = Shape { grid: [out.rows.min(1 << 16), 1], threads: THREADS };
        let arguments =
            arguments![cotangent.address, element, stride, starts, groups, first, rows, columns, out.address];
        self.repeat_groups.launch(stream, shape, arguments)
    }

    /// The sums of groups as rows of a table.
    pub(crate) fn store_groups(
        &self,
        stream: &Stream,
        sums: View,
        starts: View,
        out: &DeviceRows,
        bad_row: View,
    ) -> Result<(), Error> {
        let (columns, element, stride, groups) =
            (int(out.columns), out.element.code(), long(out.stride), long(out.rows));
        let arguments = arguments![sums, columns, starts, out.address, element, stride, groups, bad_row];
        self.store_groups.launch(stream, self.for_each(out.rows * out.columns), arguments)
    }

    /// Every `step`-th column of a table into a plane.
    pub(crate) fn fetch(
        &self,
        stream: &Stream,
        table: &DeviceRows,
        [start, step]: [usize; 2],
        factor: f64,
        plane: View,
        columns: usize,
    ) -> Result<(), Error> {
        let (element, stride, start, step) = (table.element.code(), long(table.stride), int(start), int(step));
        let (wide, rows) = (int(columns), long(table.rows));
        self.fetch.launch(
            stream,
            self.for_each(table.rows * columns),
            arguments![table.address, element, stride, start, step, factor, plane, wide, rows],
        )
    }

    pub(crate) fn scale(&self, stream: &Stream, planes: Planes, factor: f64, count: usize) -> Result<(), Error> {
        let numbers = long(count);
        for plane in [planes.re, planes.im] {
            if plane != View::NONE {
                self.scale.launch(stream, self.for_each(count), arguments![plane, factor, numbers])?;
            }
        }
        Ok(())
    }

    pub(crate) fn multiply(
        &self,
        stream: &Stream,
        into: Planes,
        by: Planes,
        first: bool,
        count: usize,
    ) -> Result<(), Error> {
        let (first, numbers) = (i32::from(first), long(count));
        self.multiply.launch(stream, self.for_each(count), arguments![into.re, into.im, by.re, by.im, first, numbers])
    }

    pub(crate) fn product(
        &self,
        stream: &Stream,
        into: Planes,
        a: Planes,
        b: Planes,
        count: usize,
    ) -> Result<(), Error> {
        let numbers = long(count);
        self.product.launch(stream, self.for_each(count), arguments![into.re, into.im, a.re, a.im, b.re, b.im, numbers])
    }

    pub(crate) fn side_by_side(
        &self,
        stream: &Stream,
        from: Planes,
        columns: usize,
        factor: f64,
        out: View,
        rows: usize,
    ) -> Result<(), Error> {
        let (wide, height) = (int(columns), long(rows));
        self.side_by_side.launch(
            stream,
            self.for_each(2 * rows * columns),
            arguments![from.re, from.im, wide, factor, out, height],
        )
    }

    pub(crate) fn apart(
        &self,
        stream: &Stream,
        from: View,
        columns: usize,
        into: Planes,
        parts: usize,
        rows: usize,
    ) -> Result<(), Error> {
        let (wide, parts, height) = (int(columns), int(parts), long(rows));
        self.apart.launch(
            stream,
            self.for_each(2 * rows * columns),
            arguments![from, wide, into.re, into.im, parts, height],
        )
    }

    pub(crate) fn srht<T: Real>(
        &self,
        stream: &Stream,
        x: Planes,
        tables: &SrhtTables,
        into: Planes,
        first: bool,
        rows: usize,
    ) -> Result<(), Error> {
        let SrhtTables { dim, padded, outputs, complex, turns, sampled, .. } = *tables;
        let numbers = padded * if complex { 2 } else { 1 };
        let (dim, padded, outputs, complex, first, height) =
            (int(dim), int(padded), int(outputs), i32::from(complex), i32::from(first), long(rows));
        self.per_row::<T>(&self.srht, stream, rows, numbers, |kernel, shape, global| {
            kernel.launch(
                stream,
                shape,
                arguments![
                    x.re, x.im, dim, padded, turns, sampled, outputs, complex, into.re, into.im, first, global, height
                ],
            )
        })
    }

    pub(crate) fn srht_transpose<T: Real>(
        &self,
        stream: &Stream,
        v: Planes,
        tables: &SrhtTables,
        gradient: Planes,
        rows: usize,
    ) -> Result<(), Error> {
        let SrhtTables { dim, padded, outputs, complex, turns, starts, order, .. } = *tables;
        let numbers = padded * if complex { 2 } else { 1 };
        let (dim, padded, outputs, complex, height) =
            (int(dim), int(padded), int(outputs), i32::from(complex), long(rows));
        self.per_row::<T>(&self.srht_transpose, stream, rows, numbers, |kernel, shape, global| {
            kernel.launch(
                stream,
                shape,
                arguments![
                    v.re,
                    v.im,
                    outputs,
                    starts,
                    order,
                    turns,
                    dim,
                    padded,
                    complex,
                    gradient.re,
                    gradient.im,
                    global,
                    height
                ],
            )
        })
    }

    /// Signed sums: rows x outputs.
    pub(crate) fn signed_sums<T: Real>(
        &self,
        stream: &Stream,
        x: View,
        dim: usize,
        codes: View,
        outputs: usize,
        sums: View,
        rows: usize,
    ) -> Result<(), Error> {
        let (wide, count) = (int(dim), int(outputs));
        // As in the kernel: rows per block, and outputs per thread. A grid has at most 65535 blocks in its second direction.
        for first in (0..rows).step_by(8 * 65535) {
            let now = (rows - first).min(8 * 65535);
            let (x, sums, height) = (x.skip::<T>(first * dim), sums.skip::<T>(first * outputs), long(now));
            let shape =
                Shape { grid: [outputs.div_ceil(T::SIGN_OUTPUTS * THREADS), now.div_ceil(8)], threads: THREADS };
            self.signed_sums.launch(stream, shape, arguments![x, wide, codes, count, sums, height])?;
        }
        Ok(())
    }

    pub(crate) fn combine(
        &self,
        stream: &Stream,
        sums: Planes,
        outputs: usize,
        complex: bool,
        halves: bool,
        into: Planes,
        first: bool,
        rows: usize,
    ) -> Result<(), Error> {
        let (count, complex, halves, first, height) =
            (int(outputs), i32::from(complex), i32::from(halves), i32::from(first), long(rows));
        self.combine.launch(
            stream,
            self.for_each(rows * outputs),
            arguments![sums.re, sums.im, count, complex, halves, into.re, into.im, first, height],
        )
    }

    pub(crate) fn spread(
        &self,
        stream: &Stream,
        v: Planes,
        imaginary: bool,
        out: View,
        count: usize,
    ) -> Result<(), Error> {
        let (imaginary, numbers) = (i32::from(imaginary), long(count));
        self.spread.launch(stream, self.for_each(count), arguments![v.re, v.im, imaginary, out, numbers])
    }

    /// A Bᵀ, or C + A B.
    pub(crate) fn dense<T: Real>(
        &self,
        stream: &Stream,
        form: Form,
        matrices: [View; 3],
        sizes: [usize; 3],
    ) -> Result<(), Error> {
        if let Some(blas) = &self.blas {
            return blas.multiply::<T>(stream, form, matrices, sizes);
        }
        let ([a, b, c], [rows, columns, inner]) = (matrices, sizes);
        let transposed = i32::from(form == Form::ByTransposed);
        // As in the kernel: tiles of 64 x 64.
        for first in (0..rows).step_by(64 * 65535) {
            let now = (rows - first).min(64 * 65535);
            let (a, c) = (a.skip::<T>(first * inner), c.skip::<T>(first * columns));
            let (height, wide, deep) = (long(now), int(columns), int(inner));
            let shape = Shape { grid: [columns.div_ceil(64), now.div_ceil(64)], threads: THREADS };
            self.dense.launch(stream, shape, arguments![a, b, c, height, wide, deep, transposed])?;
        }
        Ok(())
    }

    pub(crate) fn count_sketch(
        &self,
        stream: &Stream,
        x: Planes,
        dim: usize,
        [starts, order, turns]: [View; 3],
        outputs: usize,
        into: Planes,
        rows: usize,
    ) -> Result<(), Error> {
        let (wide, count, height) = (int(dim), int(outputs), long(rows));
        self.count_sketch.launch(
            stream,
            self.for_each(rows * outputs),
            arguments![x.re, x.im, wide, starts, order, turns, count, into.re, into.im, height],
        )
    }

    pub(crate) fn count_sketch_transpose(
        &self,
        stream: &Stream,
        v: Planes,
        outputs: usize,
        [buckets, turns]: [View; 2],
        dim: usize,
        gradient: Planes,
        rows: usize,
    ) -> Result<(), Error> {
        let (count, wide, height) = (int(outputs), int(dim), long(rows));
        self.count_sketch_transpose.launch(
            stream,
            self.for_each(rows * dim),
            arguments![v.re, v.im, count, buckets, turns, wide, gradient.re, gradient.im, height],
        )
    }

    pub(crate) fn fourier<T: Real>(
        &self,
        stream: &Stream,
        source: Planes,
        tables: &FourierTables,
        which: Transform,
        into: Planes,
        first: bool,
        rows: usize,
    ) -> Result<(), Error> {
        let FourierTables { length, padded, roots, chirp, filter } = *tables;
        let (length, numbers, padded) = (int(length), 2 * padded, int(padded));
        let (inverse, reversed, first, height) =
            (i32::from(which.inverse), i32::from(which.from_frequencies), i32::from(first), long(rows));
        self.per_row::<T>(&self.fourier, stream, rows, numbers, |kernel, shape, global| {
            kernel.launch(
                stream,
                shape,
                arguments![
                    source.re,
                    source.im,
                    length,
                    padded,
                    roots,
                    chirp,
                    filter,
                    inverse,
                    reversed,
                    which.factor,
                    into.re,
                    into.im,
                    first,
                    global,
                    height
                ],
            )
        })
    }

    pub(crate) fn normalise(&self, stream: &Stream, x: &DeviceRows, out: View, norms: View) -> Result<(), Error> {
        let (element, stride, dim, rows) = (x.element.code(), long(x.stride), int(x.columns), long(x.rows));
        let shape = Shape { grid: [x.rows.min(8 * self.device.info().multiprocessors), 1], threads: THREADS };
        self.normalise.launch(stream, shape, arguments![x.address, element, stride, dim, out, norms, rows])
    }

    pub(crate) fn cosines(&self, stream: &Stream, angles: View, sines: View, count: usize) -> Result<(), Error> {
        let numbers = long(count);
        self.cosines.launch(stream, self.for_each(count), arguments![angles, sines, numbers])
    }

    pub(crate) fn cosine_cotangent(
        &self,
        stream: &Stream,
        [cosines, sines, of_cosines, of_sines]: [View; 4],
        count: usize,
    ) -> Result<(), Error> {
        let numbers = long(count);
        self.cosine_cotangent.launch(
            stream,
            self.for_each(count),
            arguments![cosines, sines, of_cosines, of_sines, numbers],
        )
    }

    pub(crate) fn across(
        &self,
        stream: &Stream,
        x: View,
        gradient: View,
        norms: View,
        dim: usize,
        rows: usize,
    ) -> Result<(), Error> {
        let (wide, height) = (int(dim), long(rows));
        let shape = Shape { grid: [rows.min(8 * self.device.info().multiprocessors), 1], threads: THREADS };
        self.across.launch(stream, shape, arguments![x, gradient, norms, wide, height])
    }
}
