//! A naive model of the allocator: a list of blocks with their sizes and streams, and sums over it. It knows nothing
//! of free lists; where a block may come from it reads off the snapshot before.

pub(crate) mod checks;
mod expandable;
mod look;
pub(crate) mod machine;
pub(crate) mod program;
pub(crate) mod relations;
pub(crate) mod settings;
pub(crate) mod tally;

use accelerator_core::SegmentSnapshot;

use self::settings::InForce;
use self::tally::Tally;

/// A block that is allocated or waits for streams.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) stream: u32,
    pub(crate) small: bool,
    /// Streams beside its own that used it.
    pub(crate) users: Vec<u32>,
    /// Once freed: the uses not known to be over to the allocator.
    pub(crate) pending: Option<Vec<Use>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) stream: u32,
    pub(crate) over: Over,
}

/// Whether the device is past a use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Over {
    No,
    /// One cannot tell from outside.
    Perhaps,
    Yes,
}

impl Entry {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Whether nothing forbids that its memory is used again.
    pub(crate) fn may_go(&self) -> bool {
        self.pending.as_ref().is_some_and(|uses| uses.iter().all(|used| used.over != Over::No))
    }

    /// Whether the next look at the events must free it.
    pub(crate) fn must_go(&self) -> bool {
        self.pending.as_ref().is_some_and(|uses| uses.iter().all(|used| used.over == Over::Yes))
    }
}

/// The model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) settings: InForce,
    pub(crate) entries: Vec<Entry>,
    pub(crate) segments: Vec<SegmentSnapshot>,
    pub(crate) tally: Tally,
    pub(crate) held: Vec<bool>,
    pub(crate) fraction: f64,
    pub(crate) failing_allocs: u64,
    /// Whether streams wait for each other on the device, so that one cannot tell from outside what is over.
    pub(crate) lost_sight: bool,
    /// Whether segments were expandable at any time. Then it knows the blocks, and sums of what is there, but not which pages came
    /// and went.
    pub(crate) expanded: bool,
    pub(crate) counters: Counters,
}

/// The counts of events since they were last reset.
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
            tally: Tally::new(),
            held: vec![false; program::STREAMS as usize],
            fraction: 1.0,
            failing_allocs: 0,
            lost_sight: false,
            expanded: false,
            counters: Counters::default(),
        }
    }

    pub(crate) fn allocated(&mut self, entry: Entry) {
        self.count_allocated(&entry, 1);
        self.count_active(&entry, 1);
        self.entries.push(entry);
    }

    /// The block goes back to its user's allocator; with uses of other streams it stays active.
    pub(crate) fn freed(&mut self, start: u64) {
        let place = self.entries.iter().position(|e| e.start == start && e.pending.is_none()).unwrap();
        let mut entry = self.entries.remove(place);
        self.count_allocated(&entry, -1);
        if entry.users.is_empty() {
            self.count_active(&entry, -1);
            return;
        }
        let over = |stream: u32| if self.held[stream as usize] { Over::No } else { self.over() };
        let uses = entry.users.iter().map(|stream| Use { stream: *stream, over: over(*stream) });
        entry.pending = Some(uses.collect());
        self.entries.push(entry);
    }

    /// A freed block is no longer used by any stream.
    pub(crate) fn deactivated(&mut self, start: u64) {
        let place = self.entries.iter().position(|e| e.start == start && e.pending.is_some()).unwrap();
        let entry = self.entries.remove(place);
        self.count_active(&entry, -1);
    }

    /// The device came past everything that this stream was given.
    pub(crate) fn stream_done(&mut self, stream: u32) {
        let over = self.over();
        self.uses()
            .filter(|used| used.stream == stream && used.over == Over::No)
            .for_each(|used| used.over = over);
    }

    /// A stream was waited for ahead of unmapping pages; which one is not followed.
    pub(crate) fn may_be_over(&mut self) {
        self.uses().filter(|used| used.over == Over::No).for_each(|used| used.over = Over::Perhaps);
    }

    /// Something on the way failed, so uses that were not over may be now.
    pub(crate) fn unsure(&mut self) {
        self.uses().for_each(|used| used.over = Over::Perhaps);
    }

    /// A stream waits on the device for others from now on.
    pub(crate) fn lose_sight(&mut self) {
        self.lost_sight = true;
    }

    fn over(&self) -> Over {
        if self.lost_sight { Over::Perhaps } else { Over::Yes }
    }

    /// The allocator looked at every event.
    pub(crate) fn forget_uses_that_are_over(&mut self) {
        let pending = self.entries.iter_mut().filter_map(|entry| entry.pending.as_mut());
        pending.for_each(|uses| uses.retain(|used| used.over != Over::Yes));
    }

    /// Takes over the segments of a snapshot and counts those that came and went.
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

    fn uses(&mut self) -> impl Iterator<Item = &mut Use> {
        self.entries.iter_mut().filter_map(|entry| entry.pending.as_mut()).flatten()
    }

    fn count_allocated(&mut self, entry: &Entry, sign: i64) {
        self.tally.change("allocation", entry.small, sign);
        self.tally.change("allocated_bytes", entry.small, sign * entry.size as i64);
        if self.settings.is_oversize(entry.size) {
            self.tally.change_key("oversize_allocations", sign);
        }
    }

    fn count_active(&mut self, entry: &Entry, sign: i64) {
        self.tally.change("active", entry.small, sign);
        self.tally.change("active_bytes", entry.small, sign * entry.size as i64);
        self.tally.change("requested_bytes", entry.small, sign * entry.requested as i64);
    }

    fn count_segment(&mut self, segment: &SegmentSnapshot, sign: i64) {
        let small = segment.pool == accelerator_core::PoolKind::Small;
        self.tally.change("segment", small, sign);
        self.tally.change("reserved_bytes", small, sign * segment.total_size as i64);
        self.counters.num_device_alloc += sign.max(0);
        self.counters.num_device_free += (-sign).max(0);
        if self.settings.is_oversize(segment.total_size) {
            self.tally.change_key("oversize_segments", sign);
        }
    }
}
