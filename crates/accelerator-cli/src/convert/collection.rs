//! Garbage collection in a history of PyTorch's, which tells its threshold, but not the memory fraction that it is a share of.
//!
//! It runs ahead of a new segment once more is reserved than the threshold allows, and gives back until that is undone. So
//! the threshold is at least what was reserved where nothing went back, and at least what was left where something did.
//! The least of what fits leads to the same collections.

use super::segments::Segments;

/// Follows a history. Bytes count from what was reserved at its start.
#[derive(Debug, Default)]
pub(super) struct Collections {
    segments: Segments,
    /// What the entries just before gave back.
    given_back: i64,
    /// Whether they got memory, ahead of which it would have run.
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

    /// Something that no new segment follows.
    pub(super) fn interrupted(&mut self) {
        (self.given_back, self.grown) = (0, false);
    }

    pub(super) fn segment_freed(&mut self, address: u64, size: i64) {
        self.segments.given_back(address);
        self.given_back += size;
    }

    /// A new segment, with so much reserved before.
    pub(super) fn segment_made(&mut self, address: u64, size: u64, reserved: i64) {
        self.grows(reserved);
        self.segments.made(address, size);
    }

    /// New memory, of a segment or pages of one, with so much reserved before.
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

    /// The least that the threshold can have been, if it was ever reached.
    pub(super) fn least(&self) -> Option<i64> {
        self.least.filter(|_| self.happened)
    }
}
