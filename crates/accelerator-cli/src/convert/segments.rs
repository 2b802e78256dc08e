//! Tracks the segments in the course of a history, and which of them are unused.

use std::collections::BTreeMap;

use accelerator_core::MIB;

#[derive(Debug, Default)]
pub(super) struct Segments {
    all: BTreeMap<u64, Segment>,
    /// Always up to date, since each request needs it.
    idle: Idle,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) size: u64,
    /// The number of blocks that are not free.
    used: u64,
}

/// The number of segments that are entirely free.
#[derive(Debug, Default)]
struct Idle {
    all: usize,
    /// The number in the large pool.
    large: usize,
}

impl Segments {
    pub(super) fn made(&mut self, address: u64, size: u64) {
        self.given_back(address); // it may still be here if the history lost entries
        let segment = Segment { size, used: 0 };
        self.all.insert(address, segment);
        self.idle.add(&segment);
    }

    pub(super) fn given_back(&mut self, address: u64) -> Option<Segment> {
        let segment = self.all.remove(&address)?;
        if segment.used == 0 {
            self.idle.remove(&segment);
        }
        Some(segment)
    }

    /// Notes that a block in a segment was allocated.
    pub(super) fn taken(&mut self, block: u64) {
        let Some(segment) = around(&mut self.all, block) else { return };
        if segment.used == 0 {
            self.idle.remove(segment);
        }
        segment.used += 1;
    }

    /// Notes that a block in a segment is free again. Returns the size of the segment if all of it is free now.
    pub(super) fn left(&mut self, block: u64) -> Option<u64> {
        let segment = around(&mut self.all, block)?;
        if segment.used == 1 {
            self.idle.add(segment);
        }
        segment.used = segment.used.saturating_sub(1);
        (segment.used == 0).then_some(segment.size)
    }

    /// Returns whether a segment other than the one at `place` is entirely free.
    pub(super) fn has_idle_beside(&self, place: Option<u64>) -> bool {
        let own = place.and_then(|place| self.all.get(&place)).is_some_and(|segment| segment.used == 0);
        self.idle.all > usize::from(own)
    }

    /// Returns whether a segment of the large pool is entirely free.
    pub(super) fn has_large_idle(&self) -> bool {
        self.idle.large > 0
    }
}

impl Idle {
    fn add(&mut self, segment: &Segment) {
        self.all += 1;
        self.large += usize::from(segment.is_large());
    }

    fn remove(&mut self, segment: &Segment) {
        self.all -= 1;
        self.large -= usize::from(segment.is_large());
    }
}

impl Segment {
    fn is_large(&self) -> bool {
        self.size > 2 * MIB
    }
}

/// Returns the segment that contains the block.
fn around(segments: &mut BTreeMap<u64, Segment>, block: u64) -> Option<&mut Segment> {
    let (start, segment) = segments.range_mut(..=block).next_back()?;
    (block - start < segment.size).then_some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_segments_are_counted_as_they_are() {
        let mut segments = Segments::default();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let place = random.u64(..16) * 64 * MIB;
            match random.u8(..4) {
                0 => segments.made(place, if random.bool() { 2 * MIB } else { 32 * MIB }),
                1 => drop(segments.given_back(place)),
                2 => segments.taken(place + random.u64(..3) * MIB),
                _ => drop(segments.left(place)),
            }
            let idle: Vec<_> = segments.all.iter().filter(|(_, segment)| segment.used == 0).collect();
            assert_eq!(segments.has_idle_beside(Some(place)), idle.iter().any(|(address, _)| **address != place));
            assert_eq!(segments.has_idle_beside(None), !idle.is_empty());
            assert_eq!(segments.has_large_idle(), idle.iter().any(|(_, segment)| segment.size > 2 * MIB));
        }
    }
}
