//! Rebuilds the expandable segments that existed before a history starts.
//!
//! Pages are mapped at the lowest unmapped place. So the range from the first page to the last is filled, including
//! holes. Then the blocks in the holes are freed, and the cache is emptied to unmap their pages.

use std::collections::HashMap;
use std::io;

use accelerator_core::{AllocatorConfig, MIB};

use super::layout::{Rebuild, SMALL, SMALL_SEGMENT};
use super::pieces::{Piece, pieces};
use super::survey::{EarlyBlock, EarlySegment};

/// The ranges of mapped pages of one stream and pool, by address.
pub(super) struct Expandable<'a> {
    pub(super) small: bool,
    pub(super) ranges: Vec<(EarlySegment, Vec<&'a EarlyBlock>)>,
    page: u64,
    /// Whether the holes between ranges are small enough for the ranges to be addresses of one segment.
    has_holes: bool,
}

/// A lower limit for pages of the large pool.
const SMALLEST_PAGE: u64 = 10 * MIB;

impl<'a> Expandable<'a> {
    /// Groups the ranges into expandable segments. A segment may cover at most `most` bytes of addresses.
    pub(super) fn all(
        ranges: Vec<(EarlySegment, Vec<&'a EarlyBlock>)>,
        config: &AllocatorConfig,
        most: u64,
    ) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut known = HashMap::new();
        for (range, blocks) in ranges {
            let small = match blocks.first() {
                Some(block) => config.rounded(block.requested.min(range.size)) <= SMALL,
                None => !range.size.is_multiple_of(config.large_segment_size),
            };
            let place = *known.entry((small, range.stream)).or_insert(all.len());
            if place == all.len() {
                all.push(Self { small, ranges: Vec::new(), page: SMALL_SEGMENT, has_holes: true });
            }
            all[place].ranges.push((range, blocks));
        }
        for expandable in &mut all {
            expandable.ranges.sort_by_key(|(range, _)| range.address);
            if !expandable.small {
                expandable.page = expandable.large_page(config);
            }
            expandable.has_holes = expandable.span() <= most;
        }
        all
    }

    fn span(&self) -> u64 {
        let first = self.ranges.first().map_or(0, |(range, _)| range.address);
        self.ranges.last().map_or(0, |(range, _)| range.address.saturating_add(range.size) - first)
    }

    /// Returns the page size, which a snapshot does not contain. It is a known size that divides all ranges, or
    /// otherwise their greatest common divisor.
    fn large_page(&self, config: &AllocatorConfig) -> u64 {
        let first = self.ranges.first().map_or(0, |(range, _)| range.address);
        let places = self.ranges.iter().flat_map(|(range, _)| [range.address - first, range.size]);
        let divisor = places.fold(0, greatest_common_divisor);
        let known = [config.large_segment_size, AllocatorConfig::default().large_segment_size];
        let known = known.into_iter().find(|page| divisor.is_multiple_of(*page));
        let whole = Some(divisor).filter(|page| *page > SMALLEST_PAGE && page.is_multiple_of(MIB));
        known.or(whole).unwrap_or(config.large_segment_size)
    }

    /// Returns whether addresses must be filled that were not mapped.
    pub(super) fn needs_holes(&self) -> bool {
        self.has_holes && (self.ranges.len() > 1 || self.starts_with_small_gap())
    }

    fn starts_with_small_gap(&self) -> bool {
        let Some((range, blocks)) = self.ranges.first() else { return false };
        blocks.first().is_some_and(|block| !self.small && (1..=SMALL).contains(&(block.address - range.address)))
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl<'a> Rebuild<'a, '_> {
    /// Returns settings under which each request is placed directly after the previous one.
    pub(super) fn expanding(&self, expandable: &Expandable<'_>) -> AllocatorConfig {
        let page = if expandable.small { self.plain.large_segment_size } else { expandable.page };
        AllocatorConfig {
            expandable_segments: true,
            large_segment_size: page,
            // The text form of settings cannot have less.
            max_non_split_rounding: self.plain.max_non_split_rounding.max(page),
            ..self.plain
        }
    }

    pub(super) fn expandable(&mut self, expandable: &Expandable<'a>) -> io::Result<()> {
        let small = expandable.small;
        let mut end = expandable.ranges.first().map_or(0, |(range, _)| range.address);
        if expandable.starts_with_small_gap() && expandable.has_holes {
            end = end.saturating_sub(expandable.page);
        }
        for (range, blocks) in &expandable.ranges {
            let stream = self.start.streams.of(range.stream);
            // Each block is as large as its request. The rest of its place becomes a gap unless it is too small.
            let size_of = |block: &EarlyBlock, room: u64| self.recorded.rounded(block.requested.min(room)).min(room);
            let (mut pieces, outside) = pieces(range, blocks, small, size_of, |size| small == (size <= SMALL));
            let mut hole = if expandable.has_holes { range.address.saturating_sub(end) } else { 0 };
            if hole > 0
                && let Some(Piece { size, block: None }) = pieces.first().copied()
                && size <= SMALL
                && !small
            {
                hole += size; // too small for a request, so it is filled with the hole
                pieces.remove(0);
            }
            let holes = self.filled(hole, small, stream)?;
            self.holes.extend(holes);
            for piece in pieces {
                match piece.block {
                    Some(block) if self.plain.rounded(block.requested.min(piece.size)) == piece.size => {
                        self.block(block, block.requested)?;
                    }
                    Some(block) => {
                        let id = self.output.allocate(piece.size, stream)?;
                        self.larger_expandable.push((id, block));
                    }
                    None => {
                        let fillers = self.filled(piece.size, small, stream)?;
                        self.fillers.extend(fillers);
                    }
                }
            }
            for block in outside {
                self.inexact += 1;
                self.block(block, block.requested)?;
            }
            self.inexact += u64::from(!expandable.has_holes || !range.size.is_multiple_of(expandable.page));
            end = range.address.saturating_add(range.size);
        }
        Ok(())
    }
}
