//! Garbage collection in a history recorded by PyTorch. Such a history records the threshold, but not the memory
//! fraction to which the threshold is relative.
//!
//! Before a new segment, a collection runs if the reserved memory exceeds the threshold, and stops when it no longer
//! does. So the threshold is at least the reserved memory wherever nothing was released, and at least the remaining
//! memory wherever something was. The lowest threshold that satisfies this leads to the same collections.

use super::segments::Segments;

/// Follows a history. Bytes are relative to the reserved memory at its start.
#[derive(Debug, Default)]
pub(super) struct Collections {
    segments: Segments,
    /// Bytes that the preceding entries released.
    given_back: i64,
    /// Whether they were followed by new memory, before which a collection would have run.
    grown: bool,
    least: Option<i64>,
    happened: bool,
}

impl Collections {
    pub(super) fn allocated(&mut self, block: u64) {
        self.segments.taken(block);
        self.interrupted();
    }

    pub(super) fn completed(&mut self, block: u64) {
        self.segments.left(block);
    }

    /// Notes an entry that no new segment follows.
    pub(super) fn interrupted(&mut self) {
        (self.given_back, self.grown) = (0, false);
    }

    pub(super) fn segment_freed(&mut self, address: u64, size: i64) {
        self.segments.given_back(address);
        self.given_back = self.given_back.saturating_add(size);
    }

    /// Notes a new segment. `reserved` is the number of bytes reserved before.
    pub(super) fn segment_made(&mut self, address: u64, size: u64, reserved: i64) {
        self.grows(reserved);
        self.segments.made(address, size);
    }

    /// Notes new memory: a segment, or pages of one. `reserved` is the number of bytes reserved before.
    pub(super) fn grows(&mut self, reserved: i64) {
        if std::mem::replace(&mut self.grown, true) {
            return; // it belongs to the same request
        }
        let rest = self.segments.has_idle_beside(None);
        let rest_is_old = self.segments.has_large_idle();
        self.happened |= self.given_back > 0 && rest;
        if rest_is_old {
            self.least = self.least.max(Some(reserved));
        }
    }

    /// Returns the lowest possible threshold, if a collection ever happened.
    pub(super) fn least(&self) -> Option<i64> {
        self.least.filter(|_| self.happened)
    }
}
