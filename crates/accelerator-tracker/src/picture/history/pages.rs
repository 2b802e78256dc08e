//! Expandable segments in a history: ranges of pages that grow, shrink and split.

use super::{State, mem_pool};
use crate::picture::MapSegment;
use crate::snapshot::{PoolKind, TraceEntry};

/// A size that pages of the small pool do not exceed. Pages of the large pool are larger.
const LARGEST_OF_SMALL: u64 = 10 << 20;

impl State {
    /// Merges the pages with the adjacent ranges.
    pub(super) fn add_pages(&mut self, entry: &TraceEntry) {
        self.reserved += i128::from(entry.size);
        let (mut start, mut end) = (entry.address, entry.address.saturating_add(entry.size));
        let mut pool = (entry.size <= LARGEST_OF_SMALL).then_some(PoolKind::Small);
        let before = self.segments.range(..start).next_back();
        let before = before.map(|(at, range)| (*at, at.saturating_add(range.size())));
        if let Some((at, _)) = before.filter(|(at, to)| *to == start && self.is_range(*at, entry)) {
            start = at;
            pool = self.take_range(at);
        }
        if self.is_range(end, entry) {
            let size = self.segments.get(&end).map_or(0, MapSegment::size);
            pool = self.take_range(end);
            end = end.saturating_add(size);
        }
        self.put_range(entry, pool.unwrap_or(PoolKind::Large), start, end);
    }

    /// Removes the pages from their range. The rest on either side becomes a separate range.
    pub(super) fn remove_pages(&mut self, entry: &TraceEntry) {
        self.reserved -= i128::from(entry.size);
        let (start, end) = (entry.address, entry.address.saturating_add(entry.size));
        let around = self.segments.range(..=start).next_back();
        let around = around.map(|(at, range)| (*at, at.saturating_add(range.size())));
        // The numbers in a file may be inconsistent.
        let Some((at, to)) = around.filter(|(at, to)| *to >= end && self.ranges.contains(at)) else { return };
        let pool = self.take_range(at).unwrap_or(PoolKind::Large);
        self.put_range(entry, pool, at, start);
        self.put_range(entry, pool, end, to);
    }

    /// Returns whether a range of the same stream and pool begins there.
    fn is_range(&self, at: u64, entry: &TraceEntry) -> bool {
        let is_same = |range: &MapSegment| (range.stream, range.mem_pool) == (entry.stream, mem_pool(entry));
        self.ranges.contains(&at) && self.segments.get(&at).is_some_and(is_same)
    }

    fn take_range(&mut self, at: u64) -> Option<PoolKind> {
        self.ranges.remove(&at);
        self.segments.remove(&at).map(|range| range.pool)
    }

    fn put_range(&mut self, entry: &TraceEntry, pool: PoolKind, address: u64, end: u64) {
        if end > address {
            self.ranges.insert(address);
            let (mem_pool, stream, is_alias, is_paused) = (mem_pool(entry), entry.stream, false, false);
            let range = MapSegment { pool, mem_pool, stream, address, is_alias, is_paused, blocks: Vec::new() };
            self.segments.insert(address, range);
            self.resize(address, end - address);
        }
    }
}
