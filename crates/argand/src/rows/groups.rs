//! Groups of consecutive rows.

use std::ops::Range;

use crate::error::{Argument, Error};

/// Groups of consecutive rows, such as the positions of an image or the tokens of a text: group `g` has the rows
/// `starts[g]..starts[g + 1]`, and every row belongs to one group. Groups may be empty.
///
/// ```
/// use argand::Groups;
/// let texts = Groups::from_starts(&[0, 5, 5, 7])?; // 5 tokens, none and 2
/// assert_eq!((texts.count(), texts.rows(), texts.range(2)), (3, 7, 5..7));
/// assert_eq!(Groups::even(8, 4)?, Groups::from_starts(&[0, 4, 8])?);
/// # Ok::<(), argand::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Groups {
    /// One more than there are groups: from 0 to the number of rows, never decreasing.
    starts: Vec<usize>,
}

impl Groups {
    /// Groups of `per_group` rows each.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rows cannot be divided into such groups.
    pub fn even(rows: usize, per_group: usize) -> Result<Self, Error> {
        if per_group == 0 || !rows.is_multiple_of(per_group) {
            return Err(Error::invalid(
                Argument::Groups,
                format!("a number of rows per group that divides {rows}"),
                per_group,
            ));
        }
        Ok(Self { starts: (0..=rows).step_by(per_group).collect() })
    }

    /// Groups from the first row of each, in order, and the number of all rows: one more entry than groups.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no entry, the first one is not 0, or one is smaller than the one before it.
    pub fn from_starts(starts: &[usize]) -> Result<Self, Error> {
        if starts.first() != Some(&0) {
            let received = starts.first().map_or("none".to_owned(), usize::to_string);
            return Err(Error::invalid(Argument::Groups, "starts from 0 on", received));
        }
        if let Some(group) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
            let (start, end) = (starts[group], starts[group + 1]);
            return Err(Error::invalid(Argument::Groups, format!("group {group} to end at {start} or later"), end));
        }
        Ok(Self { starts: starts.to_vec() })
    }

    /// Number of groups.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of rows, in all groups together.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.starts[self.count()]
    }

    /// The first row of each group, and the number of all rows.
    #[must_use]
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// The rows of group `group`.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn range(&self, group: usize) -> Range<usize> {
        self.starts[group]..self.starts[group + 1]
    }

    /// The group of a row. Not inlined into the loops that read rows, few of which need it.
    #[inline(never)]
    pub(crate) fn of_row(&self, row: usize) -> usize {
        // Of several groups that start here, all but the last are empty.
        self.starts.partition_point(|&start| start <= row) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_group() {
        for starts in [&[0][..], &[0, 0], &[0, 3], &[0, 0, 2, 2, 2, 5, 5]] {
            let groups = Groups::from_starts(starts).unwrap();
            assert_eq!((groups.count(), groups.starts()), (starts.len() - 1, starts));
            let of_rows: Vec<usize> = (0..groups.rows()).map(|row| groups.of_row(row)).collect();
            let expected: Vec<usize> =
                (0..groups.count()).flat_map(|group| groups.range(group).map(move |_| group)).collect();
            assert_eq!(of_rows, expected);
        }
        assert_eq!(Groups::even(6, 2), Groups::from_starts(&[0, 2, 4, 6]));
        assert_eq!(Groups::even(0, 2), Groups::from_starts(&[0]));
    }

    #[test]
    fn groups_that_cannot_be_are_errors() {
        let message = |groups: Result<Groups, Error>| groups.unwrap_err().to_string();
        for per_group in [0, 4, 7] {
            let expected = format!("groups: expected a number of rows per group that divides 6, got {per_group}");
            assert_eq!(message(Groups::even(6, per_group)), expected);
        }
        assert!(Groups::even(0, 0).is_err());
        assert_eq!(message(Groups::from_starts(&[])), "groups: expected starts from 0 on, got none");
        assert_eq!(message(Groups::from_starts(&[1, 2])), "groups: expected starts from 0 on, got 1");
        let decreasing = message(Groups::from_starts(&[0, 3, 2]));
        assert_eq!(decreasing, "groups: expected group 1 to end at 3 or later, got 2");
    }
}
