//! Allocation of ranges in a file.

use std::collections::BTreeMap;

/// The free ranges of a file of unlimited length.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// The lengths of the free ranges below `end`, by start. No two of them are adjacent, and none is adjacent to
    /// `end`.
    holes: BTreeMap<u64, u64>,
    /// Everything from this offset on is free.
    end: u64,
}

impl Ranges {
    /// Takes the lowest free range of this length. Returns `None` if its end would exceed `u64`.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let hole = self.holes.iter().find(|(_, free)| **free >= len).map(|(start, free)| (*start, *free));
        let Some((start, free)) = hole else {
            let start = self.end;
            self.end = start.checked_add(len)?;
            return Some(start);
        };
        self.holes.remove(&start);
        if free > len {
            self.holes.insert(start + len, free - len);
        }
        Some(start)
    }

    /// Gives back a range that `take` returned.
    pub(crate) fn give_back(&mut self, start: u64, len: u64) {
        let (mut start, mut end) = (start, start + len);
        if let Some(above) = self.holes.remove(&end) {
            end += above;
        }
        if let Some((below, free)) = self.holes.range(..start).next_back().map(|(below, free)| (*below, *free))
            && below + free == start
        {
            self.holes.remove(&below);
            start = below;
        }
        if end == self.end {
            self.end = start;
        } else {
            self.holes.insert(start, end - start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_hole_that_fits_is_taken() {
        let mut ranges = Ranges::default();
        let taken = [4, 2, 3, 1, 5].map(|len| ranges.take(len));
        assert_eq!(taken, [0, 4, 6, 9, 10].map(Some));
        ranges.give_back(4, 2);
        ranges.give_back(9, 1);
        assert_eq!([1, 1, 1, 1].map(|len| ranges.take(len)), [4, 5, 9, 15].map(Some));
        ranges.give_back(4, 1);
        ranges.give_back(6, 3);
        ranges.give_back(5, 1); // joins both
        assert_eq!(ranges.take(5), Some(4));
    }

    #[test]
    fn the_end_comes_down_with_what_lies_there() {
        let mut ranges = Ranges::default();
        assert_eq!([2, 2, 2].map(|len| ranges.take(len)), [0, 2, 4].map(Some));
        ranges.give_back(2, 2);
        ranges.give_back(4, 2);
        assert_eq!(ranges.take(100), Some(2));
        assert_eq!(ranges.take(u64::MAX), None);
        ranges.give_back(0, 2);
        ranges.give_back(2, 100);
        assert_eq!((ranges.holes.len(), ranges.end), (0, 0));
    }
}
