//! Garbage collection in a history of PyTorch's. Such a history has the threshold, but not the memory fraction to which
//! it is relative.
//!
//! The collection runs before a new segment once more is reserved than the threshold allows, and stops when that is no
//! longer so. So the threshold is at least the reserved memory wherever nothing was released, and at least the
//! remaining memory wherever something was. The lowest threshold that satisfies this leads to the same collections.

use super::segments::Segments;

/// Follows a history. Bytes count from what was reserved at its start.
#[derive(Debug, Default)]
pub(super) struct Collections {
    segments: Segments,
    /// Bytes that the preceding entries released.
    given_back: i64,
    /// Whether new memory followed, before which a collection would have run.
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

    /// An entry that no new segment follows.
    pub(super) fn interrupted(&mut self) {
        (self.given_back, self.grown) = (0, false);
    }

    pub(super) fn segment_freed(&mut self, address: u64, size: i64) {
        self.segments.given_back(address);
        self.given_back += size;
    }

    /// A new segment. `reserved`: the bytes that were reserved before.
    pub(super) fn segment_made(&mut self, address: u64, size: u64, reserved: i64) {
        self.grows(reserved);
        self.segments.made(address, size);
    }

    /// New memory: a segment, or pages of one. `reserved`: the bytes that were reserved before.
    pub(super) fn grows(&mut self, reserved: i64) {
        if std::mem::replace(&mut self.grown, true) {
            return; // for the same request
        }
        let rest = self.segments.has_idle_beside(None);
        let rest_is_old = self.segments.has_large_idle();
        self.happened |= self.given_back > 0 && rest;
        if rest_is_old {
            self.least = self.least.max(Some(reserved));
        }
    }

    /// The lowest threshold possible, if a collection ever happened.
    pub(super) fn least(&self) -> Option<i64> {
        self.least.filter(|_| self.happened)
    }
}
