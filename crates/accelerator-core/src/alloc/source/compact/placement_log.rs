//! The places of a stream's latest requests. A job that repeats a step makes the same requests in the same order. If
//! they go to the same places again, they find there what they found before and need no driver call.

use crate::alloc::blocks::SegmentId;

/// The number of requests kept: more than most jobs make in a step.
const KEPT: u16 = 1 << 14;
/// The number of consecutive request sizes that identify a part of a job.
const CONTEXT: usize = 4;
/// The number of slots for contexts. If several contexts share a slot, it belongs to the newest.
const SLOTS: usize = 1 << 15;
/// An odd number whose multiples have well-mixed high bits.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The latest requests, in a ring buffer.
#[derive(Debug, Default)]
pub(super) struct PlacementLog {
    /// Entries are numbered from 1.
    entries: Vec<Entry>,
    /// The number of the newest entry; 0 if there is none. The next one replaces the oldest, which is behind it.
    latest: u16,
    /// The number of the entry that is expected next; 0 if none.
    expected: u16,
    /// The sizes of the latest requests, the newest first. They identify a part of a job.
    context: [u64; CONTEXT],
    /// By context and size: the number of the entry that had them; 0 if none.
    slots: Vec<u16>,
}

/// A place that a request had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) segment: SegmentId,
    pub(super) position: u64,
}

/// A request. Its place is in separate fields, so that it takes 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    size: u64,
    position: u64,
    segment: SegmentId,
    /// The number of the same request's entry before; 0 if none.
    before: u16,
}

impl Entry {
    fn place(&self) -> Place {
        Place { segment: self.segment, position: self.position }
    }
}

/// The number of the same request's entry in an earlier step; 0 if the log has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Precedent(u16);

impl PlacementLog {
    /// Finds an earlier request of the same size: the expected one, or else one in the same context.
    #[inline(always)]
    pub(super) fn precedent(&self, size: u64) -> Precedent {
        let is_alike = |number: u16| self.entry(number).is_some_and(|entry| entry.size == size);
        if is_alike(self.expected) {
            return Precedent(self.expected);
        }
        let in_context = self.slots.get(self.slot(size)).copied().unwrap_or(0);
        Precedent(if is_alike(in_context) { in_context } else { 0 })
    }

    /// Returns the place that the request had last.
    #[inline(always)]
    pub(super) fn last(&self, Precedent(number): Precedent) -> Option<Place> {
        self.entry(number).map(Entry::place)
    }

    /// Returns the place that it had the time before. A block that outlives the same request in the next step
    /// alternates between two places.
    pub(super) fn last_but_one(&self, Precedent(number): Precedent) -> Option<Place> {
        let last = self.entry(number)?;
        self.entry(last.before).filter(|before| before.size == last.size).map(Entry::place)
    }

    #[inline(always)]
    fn entry(&self, number: u16) -> Option<&Entry> {
        self.entries.get(usize::from(number).wrapping_sub(1))
    }

    /// Records that a request of this size, which has this precedent, got this place.
    #[inline(always)]
    pub(super) fn note(&mut self, size: u64, Precedent(before): Precedent, place: Place) {
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, 0);
        }
        let (slot, number) = (self.slot(size), self.latest % KEPT + 1);
        self.slots[slot] = number;
        let Place { segment, position } = place;
        let new = Entry { size, position, segment, before };
        match self.entries.get_mut(usize::from(number - 1)) {
            Some(entry) => *entry = new,
            None => self.entries.push(new),
        }
        self.latest = number;
        self.expected = if before == 0 { 0 } else { before % KEPT + 1 };
        self.context.copy_within(..CONTEXT - 1, 1);
        self.context[0] = size;
    }

    /// Returns the slot for a request of this size after the latest ones.
    #[inline(always)]
    fn slot(&self, size: u64) -> usize {
        let mixed = self.context.iter().fold(size, |hash, size| (hash ^ size).wrapping_mul(MIX).rotate_left(23));
        (mixed >> 7) as usize % SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::blocks::Id;

    const MOST: usize = KEPT as usize;

    /// Logs a request of this size at this position. Returns the position that was predicted.
    fn log_at(log: &mut PlacementLog, size: u64, position: u64) -> Option<u64> {
        let precedent = log.precedent(size);
        let predicted = log.last(precedent);
        log.note(size, precedent, Place { segment: SegmentId::at(0), position });
        predicted.map(|place| place.position)
    }

    /// Logs each size at its own position. Returns how many positions were predicted correctly.
    fn predicted_right(log: &mut PlacementLog, sizes: &[u64]) -> usize {
        let mut right = 0;
        for (position, size) in (1000..).zip(sizes) {
            right += usize::from(log_at(log, *size, position) == Some(position));
        }
        right
    }

    #[test]
    fn a_repeated_round_is_predicted() {
        let mut log = PlacementLog::default();
        let round: Vec<u64> = (0..1000).map(|number| 512 * (1 + number * number * number % 9973)).collect();
        predicted_right(&mut log, &round);
        for _ in 0..100 {
            assert!(predicted_right(&mut log, &round) >= round.len() - CONTEXT);
        }
    }

    #[test]
    fn a_round_is_found_again_after_other_requests() {
        let mut log = PlacementLog::default();
        let round: Vec<u64> = (1..500).map(|number| 512 * number).collect();
        predicted_right(&mut log, &round);
        for odd in 0..20 {
            log_at(&mut log, 7 + odd, 0);
            assert!(predicted_right(&mut log, &round) >= round.len() - CONTEXT);
        }
    }

    #[test]
    fn rounds_are_predicted_only_if_the_log_holds_them() {
        for (len, expected) in [(MOST - CONTEXT, MOST - 4 * CONTEXT), (MOST + 1, 0)] {
            let mut log = PlacementLog::default();
            let round: Vec<u64> = (0..len as u64).collect();
            assert_eq!(predicted_right(&mut log, &round), 0);
            let right = predicted_right(&mut log, &round);
            // Contexts that share a slot are lost unless the entry is expected.
            assert!(if expected == 0 { right == 0 } else { right >= expected }, "{right} of {len}");
            assert!(log.entries.len() <= MOST);
        }
    }
}
