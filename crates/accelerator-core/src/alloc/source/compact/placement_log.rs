//! The places of a stream's latest requests. A job that repeats a step makes the same requests in the same order. If
//! they go to the same places again, they find there what they found before and need no driver call.

/// The number of requests kept: more than most jobs make in a step.
const KEPT: usize = 1 << 14;
/// The number of consecutive request sizes that identify a part of a job.
const CONTEXT: usize = 4;
/// The number of slots for contexts. If several contexts share a slot, it belongs to the newest.
const SLOTS: usize = 1 << 15;

/// The latest requests, in a ring buffer.
#[derive(Debug, Default)]
pub(super) struct PlacementLog {
    entries: Vec<Entry>,
    /// The index of the oldest entry, which the next one replaces.
    oldest: usize,
    /// The index of the entry that is expected next.
    expected: usize,
    /// By the hash of a context: the index of the entry that completes it, plus one; 0 if none.
    slots: Vec<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    size: u64,
    position: u64,
    /// The index of the same request's entry before, plus one; 0 if none.
    before: u16,
}

impl PlacementLog {
    /// Returns where a request of this size went the last two times it followed the same requests, the last one
    /// first. A block that outlives the same request in the next step alternates between two places.
    pub(super) fn predicted(&self, size: u64) -> impl Iterator<Item = u64> {
        let before = move |entry: &&Entry| {
            let before = self.entries.get(usize::from(entry.before).checked_sub(1)?);
            before.filter(|before| before.size == size)
        };
        let last = self.precedent(size).map(|place| &self.entries[place]);
        std::iter::successors(last, before).take(2).map(|entry| entry.position)
    }

    /// Records that a request of this size got this place.
    pub(super) fn note(&mut self, size: u64, position: u64) {
        let precedent = self.precedent(size);
        self.expected = precedent.map_or(usize::MAX, |place| (place + 1) % KEPT);
        let slot = self.slot(size);
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, 0);
        }
        let place = self.oldest;
        let new = Entry { size, position, before: precedent.map_or(0, |place| (place + 1) as u16) };
        match self.entries.get_mut(place) {
            Some(entry) => *entry = new,
            None => self.entries.push(new),
        }
        self.oldest = (place + 1) % KEPT;
        self.slots[slot] = (place + 1) as u16;
    }

    /// Returns the index of an earlier request of the same size: the expected entry, or else one in the same context.
    fn precedent(&self, size: u64) -> Option<usize> {
        let is_alike = |place: &usize| self.entries.get(*place).is_some_and(|entry| entry.size == size);
        let in_context = || (*self.slots.get(self.slot(size))? as usize).checked_sub(1);
        Some(self.expected).filter(is_alike).or_else(|| in_context().filter(is_alike))
    }

    /// Returns the slot for a request of this size after the latest ones.
    fn slot(&self, size: u64) -> usize {
        let latest = (1..=CONTEXT).map(|back| {
            let place = (self.oldest + KEPT - back) % KEPT;
            self.entries.get(place).map_or(0, |entry| entry.size)
        });
        let hash = latest.fold(size, |hash, size| (hash ^ size).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
        (hash >> 7) as usize % SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs each size at its own position. Returns how many positions were predicted correctly.
    fn predicted_right(log: &mut PlacementLog, sizes: &[u64]) -> usize {
        let mut right = 0;
        for (position, size) in (1000..).zip(sizes) {
            right += usize::from(log.predicted(*size).next() == Some(position));
            log.note(*size, position);
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
            log.note(7 + odd, 0);
            assert!(predicted_right(&mut log, &round) >= round.len() - CONTEXT);
        }
    }

    #[test]
    fn rounds_are_predicted_only_if_the_log_holds_them() {
        for (len, expected) in [(KEPT - CONTEXT, KEPT - 4 * CONTEXT), (KEPT + 1, 0)] {
            let mut log = PlacementLog::default();
            let round: Vec<u64> = (0..len as u64).collect();
            assert_eq!(predicted_right(&mut log, &round), 0);
            let right = predicted_right(&mut log, &round);
            // Contexts that share a slot are lost unless the entry is expected.
            assert!(if expected == 0 { right == 0 } else { right >= expected }, "{right} of {len}");
            assert!(log.entries.len() <= KEPT);
        }
    }
}
