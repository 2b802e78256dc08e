//! How a thread sees that a capture has begun or ended while it called the driver.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the captures that are underway or about to begin, and how often one has begun or ended.
///
/// Whoever begins a capture counts it before the driver does so. Where the driver orders a call after the begin of a
/// capture, the caller sees that count afterwards. It is no atomic of the models, whose streams outlive their runs.
#[derive(Debug, Default)]
pub(crate) struct CaptureCount(AtomicU64);

/// A count that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CapturesSeen(u64);

/// How often one has begun or ended. The captures underway are counted in the bits below.
const CHANGE: u64 = 1 << 32;

impl CaptureCount {
    /// Notes that a capture is about to begin.
    pub(crate) fn begins(&self) {
        self.0.fetch_add(CHANGE + 1, Ordering::SeqCst);
    }

    /// Notes that a capture is over, or has not begun.
    pub(crate) fn ended(&self) {
        self.0.fetch_add(CHANGE - 1, Ordering::SeqCst);
    }

    /// Notes that a capture is over whose begin was not counted.
    pub(crate) fn ended_elsewhere(&self) {
        self.0.fetch_add(CHANGE, Ordering::SeqCst);
    }

    #[inline(always)]
    pub(crate) fn read(&self) -> CapturesSeen {
        CapturesSeen(self.0.load(Ordering::Acquire))
    }
}

impl CapturesSeen {
    /// Whether no capture was underway.
    #[inline(always)]
    pub(crate) fn is_none_underway(self) -> bool {
        self.0 & (CHANGE - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_underway_from_its_begin_to_its_end() {
        let count = CaptureCount::default();
        let before = count.read();
        let is_none_underway = || count.read().is_none_underway();
        assert!(is_none_underway());
        count.begins();
        count.begins();
        assert!(!is_none_underway());
        count.ended();
        assert!(!is_none_underway(), "the other one is");
        count.ended();
        assert!(is_none_underway());
        assert_ne!(count.read(), before, "some have begun and ended");
        let before = count.read();
        count.ended_elsewhere();
        assert!(is_none_underway());
        assert_ne!(count.read(), before);
    }
}
