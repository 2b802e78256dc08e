//! Finds the memory that was allocated on a device before its history starts, and other facts that the trace needs in
//! advance.

use std::collections::{HashMap, HashSet};

use accelerator_core::{AllocatorConfig, GIB};
use accelerator_tracker::snapshot::{Annotation, BlockState, DeviceNotes, Segment, TraceAction, TraceEntry};

use super::collection::Collections;
use super::ranges::Ranges;
use super::streams::Streams;

/// The results of the first pass for a device.
#[derive(Debug, Default)]
pub(super) struct DeviceSurvey {
    pub(super) entries: u64,
    completions: u64,
    pub(super) segments: Vec<Segment>,
    /// Address ranges at which memory of the segments is mapped a second time.
    pub(super) aliases: Vec<Segment>,
    streams: Streams,
    /// Blocks whose existence the entries read so far explain.
    live: HashSet<u64>,
    /// Segments whose existence the entries read so far explain.
    made: HashSet<u64>,
    /// Pages of expandable segments that were mapped or unmapped.
    pages: Ranges,
    early_blocks: Vec<EarlyBlock>,
    early_segments: Vec<EarlySegment>,
    /// Bytes reserved from the driver, relative to the start.
    growth: i64,
    largest_growth: i64,
    collections: Collections,
    /// The memory of the device in addition to the bytes at the start, according to the first request that failed.
    capacity_beyond: Option<i64>,
    pub(super) private_pools: bool,
}

/// A block that existed before the history starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyBlock {
    pub(super) address: u64,
    /// Its size in bytes, if it exists until the end.
    pub(super) size: Option<u64>,
    pub(super) requested: u64,
    pub(super) stream: u64,
    /// Whether its user had freed it while another stream still used it.
    pub(super) pending: bool,
}

/// A segment that existed before the history starts, or adjacent pages of an expandable one.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlySegment {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: u64,
    pub(super) is_expandable: bool,
}

/// The start of the history of one device.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) device: u32,
    pub(super) notes: Option<DeviceNotes>,
    pub(super) config: AllocatorConfig,
    /// The memory fraction, if it differs from the settings.
    pub(super) fraction: Option<f64>,
    pub(super) capacity: Option<u64>,
    pub(super) streams: Streams,
    /// The blocks, sorted by address.
    pub(super) blocks: Vec<EarlyBlock>,
    /// The segments, in the order in which they were created, as far as that is known.
    pub(super) segments: Vec<EarlySegment>,
    /// Whether that order is known.
    pub(super) ordered: bool,
    /// Whether the history records when streams finish with a block.
    pub(super) completes: bool,
    /// The annotations, sorted by time.
    pub(super) annotations: Vec<Annotation>,
    pub(super) reserved: u64,
    pub(super) allocated: u64,
    pub(super) warnings: Vec<String>,
}

/// All block sizes are multiples of this.
pub(super) const GRAIN: u64 = 512;

impl DeviceSurvey {
    /// Returns the number of known blocks, segments and ranges of pages.
    pub(super) fn parts(&self) -> usize {
        let before = self.early_blocks.len() + self.early_segments.len();
        let since = self.live.len() + self.made.len() + self.pages.len();
        self.segments.len() + self.aliases.len() + before + since + self.streams.len()
    }

    pub(super) fn entry(&mut self, entry: &TraceEntry) {
        self.entries += 1;
        self.private_pools |= entry.pool_id != (0, 0);
        let address = entry.address;
        let early = |pending| EarlyBlock { address, size: None, requested: entry.size, stream: entry.stream, pending };
        let bytes = i64::try_from(entry.size).unwrap_or(i64::MAX);
        match entry.action {
            TraceAction::Alloc => {
                self.live.insert(address);
                self.collections.allocated(address);
            }
            TraceAction::FreeRequested => {
                self.collections.interrupted();
                if self.live.insert(address) {
                    self.early_blocks.push(early(false));
                }
            }
            TraceAction::FreeCompleted => {
                self.completions += 1;
                self.collections.completed(address);
                if !self.live.remove(&address) {
                    self.early_blocks.push(early(true));
                }
            }
            TraceAction::SegmentAlloc => {
                self.made.insert(address);
                self.collections.segment_made(address, entry.size, self.growth);
                self.grow(bytes);
            }
            TraceAction::SegmentFree => {
                self.collections.segment_freed(address, bytes);
                if !self.made.remove(&address) {
                    let stream = entry.stream;
                    let early = EarlySegment { address, size: entry.size, stream, is_expandable: false };
                    self.early_segments.push(early);
                }
                self.grow(-bytes);
            }
            TraceAction::OutOfMemory { device_free } => {
                self.collections.interrupted();
                let free = i64::try_from(device_free).unwrap_or(i64::MAX);
                self.capacity_beyond.get_or_insert(self.growth.saturating_add(free));
            }
            TraceAction::SegmentMap => {
                self.pages.add(address, entry.size);
                self.collections.grows(self.growth);
                self.grow(bytes);
            }
            TraceAction::SegmentUnmap => {
                self.take_early_pages(address, entry.size, entry.stream);
                self.grow(-bytes);
            }
            TraceAction::Snapshot | TraceAction::Other => return,
        }
        self.streams.note(entry.stream);
    }

    fn grow(&mut self, bytes: i64) {
        self.growth = self.growth.saturating_add(bytes);
        self.largest_growth = self.largest_growth.max(self.growth);
    }

    /// Adds the pages that no entry has mapped or unmapped, so they existed before.
    fn take_early_pages(&mut self, address: u64, size: u64, stream: u64) {
        let early = self.pages.add(address, size).into_iter();
        let early = early.map(|(address, size)| EarlySegment { address, size, stream, is_expandable: true });
        self.early_segments.extend(early);
    }

    pub(super) fn start(
        mut self,
        device: u32,
        notes: Option<DeviceNotes>,
        config: AllocatorConfig,
        annotations: Vec<Annotation>,
        mut warnings: Vec<String>,
    ) -> Start {
        self.take_what_entries_do_not_tell();
        if self.private_pools {
            warnings.push("private pools are not supported: their requests use the common pool".to_owned());
        }
        let at_start: u64 = self.early_segments.iter().map(|segment| segment.size).fold(0, u64::saturating_add);
        let most = at_start.saturating_add_signed(self.largest_growth);
        let told = self.capacity_beyond.map(|beyond| at_start.saturating_add_signed(beyond).max(most));
        let capacity = match &notes {
            Some(notes) => Some(notes.total_memory).filter(|bytes| *bytes > 0),
            None => told.or_else(|| (most > 16 * GIB).then(|| whole(most, 8 * GIB))),
        };
        let threshold =
            Some(config.garbage_collection_threshold).filter(|threshold| *threshold > 0.0 && notes.is_none());
        let collected = threshold.zip(self.collections.least()).map(|(threshold, least)| {
            // Add a few bytes, less than the smallest difference of two sums of segments, so that rounding does not
            // matter.
            let share = (at_start.saturating_add_signed(least) as f64 / threshold) as u64;
            share.saturating_add(2 * GRAIN).max(most)
        });
        let capacity = match collected {
            Some(limit) => Some(capacity.unwrap_or(0).max(whole(limit.saturating_add(1), GIB))),
            None => capacity,
        };
        let inferred = collected.zip(capacity).map(|(limit, capacity)| limit as f64 / capacity as f64);
        if inferred.is_some() {
            warnings.push(
                "the snapshot does not contain the memory fraction: using one that matches its garbage collections"
                    .to_owned(),
            );
        }
        let fraction = inferred.or_else(|| notes.as_ref().map(|notes| notes.memory_fraction));
        let ordered = self.sort_segments(notes.as_ref());
        self.early_blocks.sort_by_key(|block| block.address);
        let segments = || self.segments.iter().chain(&self.aliases);
        let waiting = |segment: &Segment| segment.blocks.iter().any(|block| block.state == BlockState::PendingFree);
        // A history may have been recorded without some kinds of entries.
        let completes = notes.is_some() || self.completions > 0 || segments().any(waiting);
        let sum = |bytes: fn(&Segment) -> u64| segments().map(bytes).fold(0, u64::saturating_add);
        Start {
            device,
            fraction: fraction.filter(|fraction| *fraction != config.memory_fraction),
            notes,
            config,
            capacity,
            reserved: self.segments.iter().map(|segment| segment.total_size).fold(0, u64::saturating_add),
            allocated: sum(|segment| segment.allocated_size),
            streams: self.streams,
            blocks: self.early_blocks,
            segments: self.early_segments,
            ordered,
            completes,
            annotations,
            warnings,
        }
    }

    /// Adds memory that exists at the end but is in no entry, so it existed at the start.
    fn take_what_entries_do_not_tell(&mut self) {
        let segments = std::mem::take(&mut self.segments);
        for segment in &segments {
            self.streams.note(segment.stream);
            let (address, size, stream) = (segment.address, segment.total_size, segment.stream);
            if segment.is_expandable {
                self.take_early_pages(address, size, stream);
            } else if !self.made.contains(&address) {
                self.early_segments.push(EarlySegment { address, size, stream, is_expandable: false });
            }
            self.take_early_blocks(segment);
        }
        self.segments = segments;
        let aliases = std::mem::take(&mut self.aliases);
        for alias in &aliases {
            self.streams.note(alias.stream);
            self.take_early_blocks(alias);
        }
        self.aliases = aliases;
        self.join_early_pages();
    }

    fn take_early_blocks(&mut self, segment: &Segment) {
        let early = segment.blocks.iter().filter(|block| !self.live.contains(&block.address));
        self.early_blocks.extend(early.map(|block| EarlyBlock {
            address: block.address,
            size: Some(block.size),
            requested: block.requested_size,
            stream: segment.stream,
            pending: block.state == BlockState::PendingFree,
        }));
    }

    /// Merges adjacent pages into ranges.
    fn join_early_pages(&mut self) {
        let (mut pages, mut segments): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.early_segments).into_iter().partition(|early| early.is_expandable);
        pages.sort_by_key(|range| range.address);
        pages.dedup_by(|range, before| {
            let joins = before.stream == range.stream && before.address.saturating_add(before.size) == range.address;
            before.size += if joins { range.size } else { 0 };
            joins
        });
        segments.extend(pages);
        self.early_segments = segments;
    }

    /// Sorts the segments. Returns whether the order in which they were created is known.
    fn sort_segments(&mut self, notes: Option<&DeviceNotes>) -> bool {
        let order: &[u64] = notes.map(|notes| notes.segment_order.as_slice()).unwrap_or_default();
        let places: HashMap<_, _> = order.iter().enumerate().map(|(place, address)| (*address, place)).collect();
        // A segment that was released in the meantime has no place in the order. It was older than most others.
        self.early_segments.sort_by_key(|segment| (places.get(&segment.address).copied(), segment.address));
        let classic = self.early_segments.iter().filter(|segment| !segment.is_expandable);
        classic.filter(|segment| !places.contains_key(&segment.address)).count() <= 1
    }
}

/// Returns the bytes rounded up to whole units, or as many as there can be.
fn whole(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}
