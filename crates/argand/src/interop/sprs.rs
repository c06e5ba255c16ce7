//! Sparse matrices of `sprs`.

use sprs::{CsMatViewI, SpIndex};

use crate::error::{Argument, Error};
use crate::rows::{Indices, Input, SparseRows};
use crate::scalar::Scalar;

/// The rows of a CSR matrix with indices of type `u32`, `u64` or `usize` (the default of `sprs`).
///
/// # Errors
/// [`Error::Invalid`] for a matrix in CSC form, and for a slice of rows of a larger matrix, whose row starts do not begin at 0.
///
/// ```
/// use argand::{FeatureMap, Spec, SparseRows};
/// use sprs::TriMat;
///
/// let mut entries = TriMat::new((2, 1000));
/// entries.add_triplet(0, 7, 2.0);
/// entries.add_triplet(0, 999, 1.0);
/// entries.add_triplet(1, 7, 1.5);
/// let x = entries.to_csr::<usize>();
/// let sketch = Spec::polynomial(1000).with_features(1024).with_method("tensor-sketch".parse()?).sketch::<f64>()?;
/// let features = sketch.transform(&[x.view().try_into()?])?;
/// let estimate: f64 = features[..1024].iter().zip(&features[1024..]).map(|(a, b)| a * b).sum();
/// assert!((estimate - 9.0).abs() < 0.5); // (2 · 1.5)² = 9
///
/// assert!(SparseRows::try_from(x.transpose_view()).is_err()); // CSC
/// # Ok::<(), argand::Error>(())
/// ```
impl<'a, T: Scalar, I: SpIndex, P: SpIndex> TryFrom<CsMatViewI<'a, T, I, P>> for SparseRows<'a, T>
where
    Indices<'a>: From<&'a [I]> + From<&'a [P]>,
{
    type Error = Error;

    fn try_from(matrix: CsMatViewI<'a, T, I, P>) -> Result<Self, Error> {
        if !matrix.is_csr() {
            let expected = "a matrix in CSR form (use to_csr())";
            return Err(Error::invalid(Argument::Data, expected, "CSC form"));
        }
        let columns = matrix.cols();
        let is_proper = matrix.indptr().is_proper();
        let (row_starts, columns_of, values) = matrix.into_raw_storage();
        if !is_proper {
            let expected = "0 first; for a part of a matrix, use SparseRows::new with its proper_indptr(), indices(), \
                            data() and cols()";
            let received = row_starts.first().map_or(0, |start| start.index());
            return Err(Error::invalid(Argument::RowStarts, expected, received));
        }
        Self::new(row_starts, columns_of, values, columns)
    }
}

/// As [`SparseRows`] from the same view.
impl<'a, T: Scalar, I: SpIndex, P: SpIndex> TryFrom<CsMatViewI<'a, T, I, P>> for Input<'a, T>
where
    Indices<'a>: From<&'a [I]> + From<&'a [P]>,
{
    type Error = Error;

    fn try_from(matrix: CsMatViewI<'a, T, I, P>) -> Result<Self, Error> {
        SparseRows::try_from(matrix).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use sprs::CsMatI;

    use super::*;

    fn entries<T: Scalar>(rows: &SparseRows<'_, T>) -> Vec<Vec<(usize, T)>> {
        (0..rows.rows()).map(|row| rows.row(row).collect()).collect()
    }

    fn check<I: SpIndex, P: SpIndex>()
    where
        for<'a> Indices<'a>: From<&'a [I]> + From<&'a [P]>,
    {
        let starts = [0, 2, 2, 3].map(P::from_usize).to_vec();
        let columns = [1, 4, 0].map(I::from_usize).to_vec();
        let matrix = CsMatI::<f32, I, P>::new((3, 5), starts, columns, vec![1.0, 2.0, 3.0]);
        let rows = SparseRows::try_from(matrix.view()).unwrap();
        assert_eq!(entries(&rows), [vec![(1, 1.0), (4, 2.0)], vec![], vec![(0, 3.0)]]);
        assert_eq!(rows.columns(), 5);
        assert_eq!(Input::try_from(matrix.view()).unwrap().columns(), 5);
    }

    #[test]
    fn every_type_of_index() {
        check::<u32, u32>();
        check::<u64, u64>();
        check::<usize, usize>();
        check::<u32, usize>();
        check::<usize, u64>();
    }

    #[test]
    fn no_rows_and_no_entries() {
        let none = CsMatI::<f64, usize>::zero((0, 3));
        assert_eq!(SparseRows::try_from(none.view()).unwrap().rows(), 0);
        let empty = CsMatI::<f64, usize>::zero((3, 2));
        assert_eq!(entries(&SparseRows::try_from(empty.view()).unwrap()), [vec![], vec![], vec![]]);
    }

    #[test]
    fn columns_first_and_parts_are_errors_that_say_what_to_do() {
        let matrix = CsMatI::<f64, usize>::eye(4);
        let message = SparseRows::try_from(matrix.transpose_view()).unwrap_err().to_string();
        assert_eq!(message, "data: expected a matrix in CSR form (use to_csr()), got CSC form");
        assert_eq!(SparseRows::try_from(matrix.transpose_view().to_csr().view()).unwrap().rows(), 4);

        let part = matrix.slice_outer(2..4);
        let message = SparseRows::try_from(part).unwrap_err().to_string();
        assert!(message.starts_with("row_starts: expected 0 first") && message.ends_with("got 2"), "{message}");
        let starts = part.proper_indptr();
        let rows = SparseRows::new(&starts[..], part.indices(), part.data(), part.cols()).unwrap();
        assert_eq!(entries(&rows), [vec![(2, 1.0)], vec![(3, 1.0)]]);
        // The first rows of a matrix start at 0.
        assert_eq!(SparseRows::try_from(matrix.slice_outer(..2)).unwrap().rows(), 2);
    }
}
