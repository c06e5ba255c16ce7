//! Tables of other libraries as [`Rows`](crate::Rows), [`RowsMut`](crate::RowsMut), [`SparseRows`](crate::SparseRows) and
//! [`Input`](crate::Input), without a copy.
//! Each library has a cargo feature of its name. All are off by default, and without one, none of its types appears in a signature.
//!
//! | feature | from | to |
//! |---|---|---|
//! | `ndarray` | `ArrayView2`, `&Array2`, with rows any distance apart | `Rows`, `Input` |
//! | `ndarray` | `ArrayViewMut2`, `&mut Array2` | `RowsMut` |
//! | `faer` | `MatRef` in row-major order, with rows any distance apart | `Rows`, `Input` |
//! | `faer` | `MatMut` in row-major order | `RowsMut` |
//! | `arrow` | `&FixedSizeListArray` of `Float32` or `Float64` | `Rows`, `Input` |
//! | `arrow` | `&PrimitiveArray` and a number of columns | `Rows`, by `arrow::rows` |
//! | `sprs` | `CsMatViewI` in CSR form with `u32`, `u64` or `usize` indices | `SparseRows`, `Input` |
//!
//! A table that cannot be borrowed as is gives an [`Error`](crate::Error) that says what to do; nothing is copied silently.
//!
//! Everything else goes through slices, which need no feature. Rows may have gaps between them, so some columns of a
//! larger table need no copy either:
//!
//! ```
//! use argand::Rows;
//! let table = [
//!     0.0, 1.0, 2.0, 3.0, //
//!     4.0, 5.0, 6.0, 7.0,
//! ];
//! let last_two = Rows::with_stride(&table[2..], 2, 2, 4)?; // 2 rows of 2 columns; rows start 4 numbers apart
//! assert_eq!(last_two.row(1), [6.0, 7.0]);
//! # Ok::<(), argand::Error>(())
//! ```

#[cfg(feature = "arrow")]
pub mod arrow;
#[cfg(feature = "faer")]
pub(crate) mod faer;
#[cfg(feature = "ndarray")]
pub(crate) mod ndarray;
#[cfg(feature = "sprs")]
mod sprs;

use crate::rows::Indices;

/// `usize`, the index type of most Rust code, without a copy: it is one of the two other types.
///
/// ```
/// use argand::SparseRows;
/// let (row_starts, columns_of) = (vec![0_usize, 2, 3], vec![0_usize, 3, 1]);
/// let rows = SparseRows::new(&row_starts[..], &columns_of[..], &[1.0_f32, 2.0, 3.0], 4)?;
/// assert_eq!(rows.row(0).collect::<Vec<_>>(), [(0, 1.0), (3, 2.0)]);
/// # Ok::<(), argand::Error>(())
/// ```
impl<'a> From<&'a [usize]> for Indices<'a> {
    fn from(indices: &'a [usize]) -> Self {
        #[cfg(target_pointer_width = "64")]
        return Self::U64(bytemuck::cast_slice(indices));
        #[cfg(not(target_pointer_width = "64"))]
        return Self::U32(bytemuck::cast_slice(indices));
    }
}
