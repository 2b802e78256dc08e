//! Sets of addresses.

use std::collections::BTreeMap;

/// Ranges that neither overlap nor touch, as a map from starts to ends.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Returns the number of ranges.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a range. Returns the start and the size of each part that was not there before.
    pub(super) fn add(&mut self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let end = start.saturating_add(size);
        let reached = self.0.range(..=end).rev().take_while(|(_, old_end)| **old_end >= start);
        let mut reached: Vec<_> = reached.map(|(start, end)| (*start, *end)).collect();
        reached.reverse();
        let (mut new, mut at) = (Vec::new(), start);
        for (old_start, old_end) in &reached {
            if *old_start > at {
                new.push((at, old_start - at));
            }
            at = at.max(*old_end);
            self.0.remove(old_start);
        }
        if end > at {
            new.push((at, end - at));
        }
        let first = reached.first().map_or(start, |(old_start, _)| start.min(*old_start));
        self.0.insert(first, at.max(end));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_parts_are_returned_once() {
        let (mut ranges, mut all) = (Ranges::default(), [false; 64]);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (start, size) = (random.u64(..64), random.u64(..8));
            let range = start..(start + size).min(64);
            let expected: Vec<_> = range.clone().filter(|place| !all[*place as usize]).collect();
            range.clone().for_each(|place| all[place as usize] = true);
            let new = ranges.add(start, range.end - start);
            let new: Vec<_> = new.iter().flat_map(|(start, size)| *start..start + size).collect();
            assert_eq!(new, expected);
            if ranges.0.len() > 3 {
                (ranges, all) = (Ranges::default(), [false; 64]);
            }
        }
    }
}
