//! A naive model of the allocator: a list of blocks with their sizes and streams, and sums over them. It has no free
//! lists, so it uses the previous snapshot to find where a block may come from. It has no events either: it derives
//! what streams have completed from the work submitted to them.

pub(crate) mod checks;
mod expandable;
mod look;
pub(crate) mod machine;
pub(crate) mod program;
pub(crate) mod relations;
pub(crate) mod settings;
pub(crate) mod streams;
pub(crate) mod tally;

use accelerator_core::SegmentSnapshot;

use self::settings::InForce;
use self::streams::{Over, Point, Streams};
use self::tally::Tally;

/// A block that is allocated or pending.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) stream: u32,
    pub(crate) small: bool,
    /// Other streams that used it.
    pub(crate) users: Vec<u32>,
    /// Set when freed: the uses that the allocator has not seen complete.
    pub(crate) pending: Option<Vec<Use>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// The point after the use in its stream's work.
    pub(crate) point: Point,
    /// Whether the allocator considers it over exactly if the stream has reached that point and the allocator has
    /// polled.
    pub(crate) sure: bool,
}

impl Entry {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.size
    }
}

/// The model's state.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) settings: InForce,
    pub(crate) entries: Vec<Entry>,
    pub(crate) segments: Vec<SegmentSnapshot>,
    pub(crate) tally: Tally,
    pub(crate) streams: Streams,
    pub(crate) fraction: f64,
    pub(crate) failing_allocs: u64,
    /// Whether segments were ever expandable. The model then has the blocks and the current sums, but does not track
    /// which pages were mapped and unmapped.
    pub(crate) expanded: bool,
    pub(crate) counters: Counters,
}

/// Event counts since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    pub(crate) num_ooms: i64,
    pub(crate) num_oom_rejections: i64,
    pub(crate) num_device_alloc: i64,
    pub(crate) num_device_free: i64,
    pub(crate) empty_caches: i64,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            settings: InForce::default(),
            entries: Vec::new(),
            segments: Vec::new(),
            tally: Tally::default(),
            streams: Streams::new(),
            fraction: 1.0,
            failing_allocs: 0,
            expanded: false,
            counters: Counters::default(),
        }
    }

    pub(crate) fn allocated(&mut self, entry: Entry) {
        self.count_allocated(&entry, 1);
        self.count_active(&entry, 1);
        self.entries.push(entry);
    }

    /// Frees a block. A block that other streams used stays active.
    pub(crate) fn freed(&mut self, start: u64) {
        let place = self.entries.iter().position(|e| e.start == start && e.pending.is_none()).unwrap();
        let mut entry = self.entries.remove(place);
        self.count_allocated(&entry, -1);
        if entry.users.is_empty() {
            self.count_active(&entry, -1);
            return;
        }
        let uses = entry.users.iter().map(|stream| Use { point: self.streams.work(*stream), sure: true });
        entry.pending = Some(uses.collect());
        self.entries.push(entry);
    }

    /// Records that no stream uses a freed block any more.
    pub(crate) fn deactivated(&mut self, start: u64) {
        let place = self.entries.iter().position(|e| e.start == start && e.pending.is_some()).unwrap();
        let entry = self.entries.remove(place);
        self.count_active(&entry, -1);
    }

    pub(crate) fn over(&self, used: &Use) -> Over {
        if used.sure { self.streams.over(used.point) } else { Over::Perhaps }
    }

    /// Whether the memory of a freed block may be reused.
    pub(crate) fn may_go(&self, entry: &Entry) -> bool {
        entry.pending.as_ref().is_some_and(|uses| uses.iter().all(|used| self.over(used) != Over::No))
    }

    /// Whether the next poll of the events must free it.
    pub(crate) fn must_go(&self, entry: &Entry) -> bool {
        entry.pending.as_ref().is_some_and(|uses| uses.iter().all(|used| self.over(used) == Over::Yes))
    }

    /// Makes the model uncertain about waits and uses, because a call failed on the way.
    pub(crate) fn unsure(&mut self) {
        self.streams.may_have_waited();
        self.entries.iter_mut().filter_map(|entry| entry.pending.as_mut()).flatten().for_each(|used| used.sure = false);
    }

    /// Records that the allocator may have polled every event, and so may have dropped uses that may have been over.
    pub(crate) fn may_have_polled(&mut self) {
        let Self { entries, streams, .. } = self;
        for used in entries.iter_mut().filter_map(|entry| entry.pending.as_mut()).flatten() {
            used.sure &= streams.over(used.point) == Over::No;
        }
    }

    /// Records that the allocator polled every event and dropped the uses that were over. Uses that may have been over
    /// may have been dropped.
    pub(crate) fn forget_uses_that_are_over(&mut self) {
        let Self { entries, streams, .. } = self;
        for uses in entries.iter_mut().filter_map(|entry| entry.pending.as_mut()) {
            uses.retain(|used| !used.sure || streams.over(used.point) != Over::Yes);
        }
        self.may_have_polled();
    }

    /// Takes the segments of a snapshot, and counts those that were added and removed.
    pub(crate) fn segments_changed(&mut self, now: Vec<SegmentSnapshot>) {
        let before = std::mem::replace(&mut self.segments, now);
        if self.expanded {
            return;
        }
        let after = self.segments.clone();
        let missing_in = |others: &[SegmentSnapshot], segment: &SegmentSnapshot| {
            !others.iter().any(|other| other.created == segment.created)
        };
        for gone in before.iter().filter(|segment| missing_in(&after, segment)) {
            self.count_segment(gone, -1);
        }
        for new in after.iter().filter(|segment| missing_in(&before, segment)) {
            self.count_segment(new, 1);
        }
    }

    pub(crate) fn outstanding_uses(&self) -> usize {
        self.entries.iter().filter_map(|entry| entry.pending.as_ref()).map(Vec::len).sum()
    }

    fn count_allocated(&mut self, entry: &Entry, sign: i64) {
        self.tally.change(|all| &mut all.allocation, entry.small, sign);
        self.tally.change(|all| &mut all.allocated_bytes, entry.small, sign * entry.size as i64);
        if self.settings.is_oversize(entry.size) {
            self.tally.change_oversize_allocations(sign);
        }
    }

    fn count_active(&mut self, entry: &Entry, sign: i64) {
        self.tally.change(|all| &mut all.active, entry.small, sign);
        self.tally.change(|all| &mut all.active_bytes, entry.small, sign * entry.size as i64);
        self.tally.change(|all| &mut all.requested_bytes, entry.small, sign * entry.requested as i64);
    }

    fn count_segment(&mut self, segment: &SegmentSnapshot, sign: i64) {
        let small = segment.pool == accelerator_core::PoolKind::Small;
        self.tally.change(|all| &mut all.segment, small, sign);
        self.tally.change(|all| &mut all.reserved_bytes, small, sign * segment.total_size as i64);
        self.counters.num_device_alloc += sign.max(0);
        self.counters.num_device_free += (-sign).max(0);
        if self.settings.is_oversize(segment.total_size) {
            self.tally.change_oversize_segments(sign);
        }
    }
}
