//! The model: who uses each pool, which pool a request goes to, and which memory is whose.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use accelerator_core::{MemPoolId, SegmentSnapshot};

use super::{Requests, STREAMS};

/// The stream that is captured.
pub(crate) const CAPTURED: usize = STREAMS - 1;

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The uses of each pool, those that were released included.
    pub(crate) uses: BTreeMap<MemPoolId, u32>,
    /// The pools that help out when the driver has no more memory.
    pub(crate) helping: BTreeSet<MemPoolId>,
    /// From the oldest; a capture is one, too.
    pub(crate) routes: Vec<Route>,
    routed: u64,
    /// The segments that the driver gave, with their pools.
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// The allocated blocks: their ends.
    pub(crate) live: BTreeMap<u64, u64>,
    /// Freed blocks that may not be reused yet.
    pub(crate) pending: Vec<Pending>,
}

#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) number: u64,
    pub(crate) pool: MemPoolId,
    pub(crate) applies: Applies,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Applies {
    To(Requests),
    ToTheCapture,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) size: u64,
    pub(crate) pool: MemPoolId,
    pub(crate) created: u64,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) block: Range<u64>,
    /// The held streams that still use it.
    pub(crate) users: Vec<usize>,
    /// Whether it was freed in the capture that is underway.
    pub(crate) captured: bool,
}

impl Model {
    pub(crate) fn uses_of(&self, pool: MemPoolId) -> u32 {
        self.uses.get(&pool).copied().unwrap_or(0)
    }

    pub(crate) fn add_use(&mut self, pool: MemPoolId) {
        *self.uses.entry(pool).or_default() += 1;
    }

    pub(crate) fn remove_use(&mut self, pool: MemPoolId) {
        *self.uses.get_mut(&pool).unwrap() -= 1;
    }

    pub(crate) fn begin(&mut self, pool: MemPoolId, applies: Applies) -> u64 {
        self.routed += 1;
        self.routes.push(Route { number: self.routed, pool, applies });
        self.routed
    }

    pub(crate) fn end(&mut self, number: u64) -> MemPoolId {
        let place = self.routes.iter().position(|route| route.number == number).unwrap();
        self.routes.remove(place).pool
    }

    /// Returns the pool that a request of a stream goes to.
    pub(crate) fn expected(&self, stream: usize) -> MemPoolId {
        let applies = |route: &&Route| match route.applies {
            Applies::To(Requests::All | Requests::ThisThread) => true,
            Applies::To(Requests::Stream(of)) => of == stream,
            Applies::To(Requests::Even) => stream.is_multiple_of(2),
            Applies::ToTheCapture => stream == CAPTURED,
        };
        self.routes.iter().rev().find(applies).map_or(MemPoolId::DEFAULT, |route| route.pool)
    }

    /// Returns the segment that contains a block.
    pub(crate) fn segment_of(&self, block: &Range<u64>) -> Segment {
        let (start, segment) = self.segments.range(..=block.start).next_back().unwrap();
        assert!(block.end <= start + segment.size, "{block:?} is in no segment");
        *segment
    }

    pub(crate) fn live_in(&self, pool: MemPoolId) -> Vec<u64> {
        let blocks = self.live.iter().filter(|(start, end)| self.segment_of(&(**start..**end)).pool == pool);
        blocks.map(|(start, _)| *start).collect()
    }

    pub(crate) fn allocated(&mut self, block: Range<u64>) {
        let overlaps = |other: &Range<u64>| other.start < block.end && block.start < other.end;
        if let Some((start, end)) = self.live.range(..block.end).next_back() {
            assert!(!overlaps(&(*start..*end)), "{block:?} overlaps {start}..{end}, which is allocated");
        }
        let pending = self.pending.iter().find(|pending| overlaps(&pending.block));
        assert!(pending.is_none(), "{block:?} overlaps {pending:?}");
        self.live.insert(block.start, block.end);
    }

    /// Notes that work of these streams is over.
    pub(crate) fn over(&mut self, is_over: impl Fn(usize) -> bool) {
        for pending in &mut self.pending {
            pending.users.retain(|user| !is_over(*user));
        }
        self.pending.retain(|pending| pending.captured || !pending.users.is_empty());
    }

    /// Notes that the streams that used freed blocks of this pool were waited for.
    pub(crate) fn awaited(&mut self, pool: MemPoolId) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|pending| self.segment_of(&pending.block).pool != pool);
        self.pending = pending;
    }

    /// Notes that the capture is over.
    pub(crate) fn capture_over(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.captured = false);
        self.over(|_| false);
    }

    /// Compares with the segments of a snapshot. New ones must be of this pool, and those that are gone must have been
    /// allowed to go.
    pub(crate) fn compare(&mut self, now: &[SegmentSnapshot], grown: MemPoolId, may_go: impl Fn(MemPoolId) -> bool) {
        let seen = |segment: &SegmentSnapshot| Segment {
            size: segment.total_size,
            pool: segment.mem_pool,
            created: segment.created,
        };
        let now: BTreeMap<u64, Segment> = now.iter().map(|segment| (segment.address, seen(segment))).collect();
        for (address, segment) in &now {
            match self.segments.get(address) {
                Some(before) => assert_eq!(before, segment, "a segment changed"),
                None => assert_eq!(segment.pool, grown, "a new segment"),
            }
        }
        for (address, segment) in self.segments.iter().filter(|(address, _)| !now.contains_key(*address)) {
            let is_released = self.uses_of(segment.pool) == 0;
            assert!(is_released || may_go(segment.pool), "the segment at {address} went back: {segment:?}");
        }
        self.segments = now;
    }

    /// Returns the bytes of the segments of each pool.
    pub(crate) fn reserved(&self) -> BTreeMap<MemPoolId, u64> {
        let mut reserved = BTreeMap::new();
        for segment in self.segments.values() {
            *reserved.entry(segment.pool).or_default() += segment.size;
        }
        reserved
    }
}
