//! Rebuilds the memory that was allocated before a history starts.
//!
//! The segments are created one after another. Each is filled to its end, including gaps. So only its end is free, and
//! each request is placed directly after the previous one. The allocations that fill the gaps are freed at the end.

use std::collections::BTreeMap;
use std::io;

use accelerator_core::{AllocatorConfig, GIB, MIB, Policy, RoundupDivisions};
use accelerator_tracker::limits::Budget;

use super::Options;
use super::entries::Live;
use super::expandable::Expandable;
use super::first_pass::MEMORY_OF_PART;
use super::output::Output;
use super::pieces::pieces;
use super::settings;
use super::survey::{EarlyBlock, EarlySegment, Start};
use crate::trace::Op;

/// Larger requests are served by segments of the large pool, which have no smaller free blocks.
pub(super) const SMALL: u64 = MIB;
pub(super) const SMALL_SEGMENT: u64 = 2 * MIB;

/// Rebuilds the memory. Returns the blocks by address.
///
/// # Errors
/// Errors of the output, and [`LimitError`](accelerator_tracker::limits::LimitError) as the inner error.
pub(super) fn rebuild(
    start: &Start,
    budget: Budget,
    options: &Options,
    output: &mut Output<'_>,
) -> io::Result<BTreeMap<u64, Live>> {
    let plain = plain(&start.config);
    let recorded = if options.settings { start.config } else { plain };
    let mut rebuild = Rebuild {
        recorded,
        plain,
        current: recorded,
        options,
        start,
        budget,
        output,
        fillers: Vec::new(),
        holes: Vec::new(),
        larger: Vec::new(),
        larger_expandable: Vec::new(),
        live: BTreeMap::new(),
        inexact: 0,
    };
    if !start.segments.is_empty() || !start.blocks.is_empty() {
        rebuild.all()?;
    }
    Ok(rebuild.live)
}

/// Returns settings under which a request gets a block of exactly its size, from a segment of a known size.
fn plain(config: &AllocatorConfig) -> AllocatorConfig {
    AllocatorConfig {
        max_split_size: u64::MAX,
        garbage_collection_threshold: 0.0,
        roundup_power2_divisions: RoundupDivisions::default(),
        reject_ahead_of_driver: false,
        expandable_segments: false,
        policy: Policy::Pytorch,
        ..*config
    }
}

pub(super) struct Rebuild<'a, 'b> {
    pub(super) start: &'a Start,
    pub(super) recorded: AllocatorConfig,
    pub(super) plain: AllocatorConfig,
    /// The current settings.
    current: AllocatorConfig,
    options: &'a Options,
    /// The memory that is left for allocations in gaps and holes, of which a range of any size may need many.
    budget: Budget,
    pub(super) output: &'a mut Output<'b>,
    pub(super) fillers: Vec<u64>,
    /// Allocations in pages that were not mapped.
    pub(super) holes: Vec<u64>,
    /// Placeholders for blocks that are larger under the recorded settings than under the plain ones.
    larger: Vec<(u64, &'a EarlyBlock)>,
    /// The same in expandable segments.
    pub(super) larger_expandable: Vec<(u64, &'a EarlyBlock)>,
    live: BTreeMap<u64, Live>,
    /// The number of segments and blocks that are not exactly as they were.
    pub(super) inexact: u64,
}

impl<'a> Rebuild<'a, '_> {
    fn all(&mut self) -> io::Result<()> {
        let (segments, blocks) = (self.start.segments.len(), self.start.blocks.len());
        let (blocks, segments) = (counted(blocks, "block"), counted(segments, "segment"));
        self.output.comment(&format!("before the history starts: {blocks} allocated, {segments}"))?;
        let mut rest: BTreeMap<_, _> = self.start.blocks.iter().map(|block| (block.address, block)).collect();
        let (mut classic, mut ranges) = (Vec::new(), Vec::new());
        for segment in &self.start.segments {
            if segment.is_expandable && !self.options.settings {
                continue; // the trace does not decide whether there are any
            }
            let end = segment.address.saturating_add(segment.size);
            let own: Vec<_> = rest.range(segment.address..end).map(|(_, block)| *block).collect();
            for block in &own {
                rest.remove(&block.address);
            }
            let segments = if segment.is_expandable { &mut ranges } else { &mut classic };
            segments.push((*segment, own));
        }
        let is_compact = self.recorded.policy == Policy::Compact;
        if is_compact {
            self.compact(&std::mem::take(&mut ranges))?;
        }
        let expandable = Expandable::all(ranges, &self.start.config, self.most_addresses());
        let has_holes = expandable.iter().any(Expandable::needs_holes);
        if has_holes {
            self.without_limits()?;
        }
        self.set(self.plain)?;
        for (segment, own) in &classic {
            self.segment(segment, own)?;
        }
        for segment in &expandable {
            self.set(self.expanding(segment))?;
            self.expandable(segment)?;
        }
        self.set(self.recorded)?;
        if has_holes {
            self.within_limits()?;
        }
        for block in rest.into_values() {
            self.inexact += u64::from(!is_compact);
            self.block(block, block.requested)?;
        }
        for (expandable_segments, larger) in
            [(false, std::mem::take(&mut self.larger)), (true, std::mem::take(&mut self.larger_expandable))]
        {
            for (id, block) in larger {
                self.set(AllocatorConfig { expandable_segments, ..self.recorded })?;
                self.output.free(id)?;
                self.block(block, block.requested)?;
            }
        }
        self.set(self.recorded)?;
        for id in std::mem::take(&mut self.fillers) {
            self.output.free(id)?;
        }
        if self.inexact > 0 {
            self.output.comment(&format!("{} of them are not exactly where they were", self.inexact))?;
        }
        if !self.start.ordered {
            self.output
                .comment("the order in which their segments were created is unknown: they are sorted by address")?;
        }
        self.output.write(Op::ResetPeak)?;
        self.output.write(Op::ResetAccumulated)?;
        self.output.comment("the history")
    }

    fn set(&mut self, config: AllocatorConfig) -> io::Result<()> {
        if !self.options.settings || config == self.current {
            return Ok(());
        }
        let settings = settings::line(&self.current, &config);
        self.current = config;
        self.output.write(Op::Conf { settings })
    }

    /// Returns how many bytes of addresses an expandable segment may cover.
    fn most_addresses(&self) -> u64 {
        let memory = self.start.capacity.unwrap_or(16 * GIB);
        memory.saturating_add(memory / 8)
    }

    /// Lifts the memory limits, since filling holes may need more memory than the recorded device had.
    fn without_limits(&mut self) -> io::Result<()> {
        if let (Some(bytes), true) = (self.start.capacity, self.options.refusals) {
            self.output.write(Op::Capacity { bytes: bytes.saturating_mul(16) })?;
        }
        self.output.write(Op::Fraction { fraction: 1.0 })
    }

    /// Frees the allocations in the holes, and restores the memory limits.
    fn within_limits(&mut self) -> io::Result<()> {
        for id in std::mem::take(&mut self.holes) {
            self.output.free(id)?;
        }
        self.output.write(Op::EmptyCache)?;
        if let (Some(bytes), true) = (self.start.capacity, self.options.refusals) {
            self.output.write(Op::Capacity { bytes })?;
        }
        let fraction = self.start.fraction.unwrap_or(self.start.config.memory_fraction);
        self.output.write(Op::Fraction { fraction })
    }

    fn segment(&mut self, segment: &EarlySegment, blocks: &[&'a EarlyBlock]) -> io::Result<()> {
        let stream = self.start.streams.of(segment.stream);
        let small = segment.size <= SMALL_SEGMENT;
        let size_of = |block: &EarlyBlock, room| self.size_of(block, room, small);
        let (pieces, outside) = pieces(segment, blocks, small, size_of, |size| small || size > SMALL);
        let first = pieces.first().map_or(segment.size, |piece| match piece.block {
            Some(block) if self.is_cut(block, piece.size, segment.size - piece.size, small) => block.requested,
            _ if small => piece.size.min(SMALL),
            _ => piece.size,
        });
        if self.segment_for(first) != segment.size {
            // A request of the segment's size creates it, and the free leaves it empty.
            self.inexact += u64::from(self.segment_for(segment.size) != segment.size);
            let whole = self.output.allocate(segment.size, stream)?;
            self.output.free(whole)?;
        }
        let mut left = segment.size;
        let mut smaller = Vec::new();
        for piece in pieces {
            left -= piece.size;
            match piece.block {
                Some(block) if self.is_cut(block, piece.size, left, small) => self.block(block, block.requested)?,
                // Allocate a placeholder now, and request the block when nothing else is free.
                Some(block) if is_whole(&self.plain, block.requested, piece.size, small) => {
                    smaller.push((self.output.allocate(piece.size, stream)?, block));
                }
                Some(block) if is_whole(&self.recorded, block.requested, piece.size, small) => {
                    let id = self.output.allocate(piece.size, stream)?;
                    self.larger.push((id, block));
                }
                Some(block) => {
                    self.inexact += 1;
                    self.block(block, piece.size)?;
                }
                None => {
                    let fillers = self.filled(piece.size, small, stream)?;
                    self.fillers.extend(fillers);
                }
            }
        }
        for (id, block) in smaller {
            self.output.free(id)?;
            self.block(block, block.requested)?;
        }
        for block in outside {
            self.inexact += 1;
            self.block(block, block.requested)?;
        }
        Ok(())
    }

    /// Returns the size of a block for which only the requested size is known. `room` is the space up to the next
    /// block. In the large pool, the block takes all of it if the rest would be too small for a block.
    fn size_of(&self, block: &EarlyBlock, room: u64, small: bool) -> u64 {
        let size = self.recorded.rounded(block.requested.min(room)).min(room);
        let kept_whole = size >= self.recorded.max_split_size;
        if !small && (room - size <= SMALL || kept_whole) { room } else { size }
    }

    /// Returns whether a request for the block gets exactly this size if `left` bytes follow it.
    fn is_cut(&self, block: &EarlyBlock, size: u64, left: u64, small: bool) -> bool {
        let rounded = self.plain.rounded(block.requested.min(size));
        rounded == size || (left == 0 && is_whole(&self.plain, block.requested, size, small))
    }

    /// Makes allocations that fill `size` bytes.
    pub(super) fn filled(&mut self, size: u64, small: bool, stream: u32) -> io::Result<Vec<u64>> {
        let most = if small { SMALL } else { size };
        let memory = size.div_ceil(most.max(1)).saturating_mul(MEMORY_OF_PART);
        self.budget.charge(memory).map_err(io::Error::other)?;
        let (mut left, mut filled) = (size, Vec::new());
        while left > 0 {
            let part = left.min(most);
            filled.push(self.output.allocate(part, stream)?);
            left -= part;
        }
        Ok(filled)
    }

    pub(super) fn block(&mut self, block: &EarlyBlock, bytes: u64) -> io::Result<()> {
        let stream = self.start.streams.of(block.stream);
        let id = self.output.allocate(bytes, stream)?;
        self.live.insert(block.address, Live { id, bytes, stream, user: None, segment: None });
        Ok(())
    }

    /// Returns the size of the segment that a request creates if nothing is free.
    fn segment_for(&self, requested: u64) -> u64 {
        const OWN: u64 = 10 * MIB;
        let size = self.plain.rounded(requested.min(1 << 60));
        match size {
            _ if !self.plain.caching => size,
            0..=SMALL => SMALL_SEGMENT,
            _ if size < OWN => self.plain.large_segment_size,
            _ => size.next_multiple_of(2 * MIB),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns whether a request gets a free block of this size without a split.
fn is_whole(config: &AllocatorConfig, requested: u64, size: u64, small: bool) -> bool {
    let rounded = config.rounded(requested.min(size));
    let kept_whole = rounded >= config.max_split_size;
    let same_side = kept_whole == (size >= config.max_split_size);
    let fits = requested <= size && rounded <= size && small == (rounded <= SMALL) && same_side;
    fits && (kept_whole || size - rounded <= if small { 0 } else { SMALL })
}
