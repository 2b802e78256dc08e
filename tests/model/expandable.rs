//! Checks for programs that have ever used expandable segments. Where a request is placed among pages that come and go
//! is up to the allocator. The model only decides what must have room, what may stay, and what is charged.

use accelerator_core::{BlockState, MIB, OutOfMemory, OutOfMemoryCause, PoolKind, SegmentSnapshot, Statistics};

use super::look::Seen;
use super::machine::{Driver, Machine};
use super::relations::pools;
use super::settings::Expected;
use super::{Entry, Model};

/// The settings give pages below 40 MiB, and the driver's granularity is 2 MiB.
const LARGEST_PAGE: u64 = 40 * MIB;

impl<B: Driver> Machine<B> {
    /// Checks an allocation. `had_room`: whether a free block was large enough before the call.
    pub(crate) fn check_expanded(&self, entry: &Entry, expected: Expected, had_room: bool, seen: &Seen) {
        let settings = &self.model.settings;
        match settings.expands() {
            true => assert_eq!(entry.size, expected.rounded, "{entry:?}"),
            false => assert!(
                entry.size == expected.rounded || (!expected.small && entry.size > expected.rounded),
                "{entry:?}, {expected:?}"
            ),
        }
        assert!(!had_room || seen.alloc + seen.create + seen.map == 0, "grew though there was room: {seen:?}");
        assert!(!had_room || seen.dealloc + seen.unmap == 0, "gave memory back though there was room: {seen:?}");
        assert!(!settings.expands() || seen.alloc == 0, "created a fixed-size segment: {seen:?}");
        assert!(settings.expands() || seen.create + seen.map == 0, "expanded a segment: {seen:?}");
    }

    /// Whether the call was to unmap pages, which waits for their stream first.
    pub(crate) fn waited_to_unmap(&self, seen: &Seen) -> bool {
        self.model.expanded && seen.synchronize + seen.record + seen.unmap > 0
    }

    /// Whether a free block of the stream can hold the request, so that no memory is needed.
    pub(crate) fn has_room(&self, stream: u32, expected: Expected) -> bool {
        let settings = &self.model.settings;
        let pool = if expected.small { PoolKind::Small } else { PoolKind::Large };
        let own = |segment: &&SegmentSnapshot| {
            let usable = settings.expands() || !segment.expandable;
            usable && segment.stream.get() == stream && segment.pool == pool
        };
        let mut blocks = self.model.segments.iter().filter(own).flat_map(|segment| &segment.blocks);
        let fits = |size: u64| size >= expected.rounded && settings.max_split.is_none();
        blocks.any(|block| block.state == BlockState::Inactive && fits(block.size))
    }

    /// Whether mapping whole pages explains the failure: they exceed the request, and those mapped before the driver
    /// refused remain mapped.
    pub(crate) fn lacks_pages(&self, report: &OutOfMemory, expected: Expected) -> bool {
        let expandable = matches!(report.cause, OutOfMemoryCause::Device) && self.model.settings.expands();
        expandable && report.reserved + expected.rounded + LARGEST_PAGE > self.capacity
    }

    /// Checks that no whole page is free. The caller checks whole segments.
    pub(crate) fn check_no_page_is_free(&self, of: Option<u32>) {
        let own = |segment: &&SegmentSnapshot| of.is_none_or(|stream| segment.stream.get() == stream);
        for segment in self.model.segments.iter().filter(own).filter(|segment| segment.expandable) {
            let page = if segment.pool == PoolKind::Small { 2 * MIB } else { LARGEST_PAGE };
            // A block of this size contains a whole page, at any alignment.
            let kept =
                segment.blocks.iter().find(|block| block.state == BlockState::Inactive && block.size >= 2 * page);
            assert_eq!(kept, None, "kept free pages of {segment:?}");
        }
    }
}

impl Model {
    /// Checks the current segment statistics. The model does not track how they developed.
    pub(crate) fn check_expanded_statistics(&self, statistics: &Statistics) {
        for (pool, chosen) in [None, Some(PoolKind::Small), Some(PoolKind::Large)].into_iter().enumerate() {
            let own = || self.segments.iter().filter(|segment| chosen.is_none_or(|pool| pool == segment.pool));
            let reserved: u64 = own().map(|segment| segment.total_size).sum();
            let segments = own().filter(|segment| !segment.expandable).count();
            let (name, stat) = pools(statistics.reserved_bytes)[pool];
            assert_eq!(stat.current, reserved as i64, "reserved_bytes.{name}");
            let (name, stat) = pools(statistics.segment)[pool];
            assert_eq!(stat.current, segments as i64, "segment.{name}");
        }
    }
}
