//! Free blocks by position, found through the pages that they end in. Each segment has a table of pages, so listing a
//! block costs the same however many there are.

#[cfg(debug_assertions)]
mod check;

use super::bitmap::Bitmap;
use crate::alloc::blocks::{Block, BlockId, Blocks, Id, SegmentId, State};

/// The length of a page, as a power of two: 2 MiB.
const PAGE_LOG: u32 = 21;

/// Free blocks by position.
#[derive(Debug, Default)]
pub(super) struct ByPosition {
    /// The pages of each segment, indexed by its number.
    pages: Vec<Pages>,
    /// The segments in order of their start position.
    segments: Vec<(u64, SegmentId)>,
}

/// The pages of one segment.
#[derive(Debug, Default)]
struct Pages {
    /// The position of the segment's start.
    start: u64,
    /// For each page, the first of the free blocks that end in it.
    firsts: Vec<Option<BlockId>>,
    /// A bit for each page: whether a free block ends in it.
    filled: Bitmap,
}

impl ByPosition {
    #[inline(always)]
    pub(super) fn insert(&mut self, blocks: &Blocks, id: BlockId) {
        let start = blocks.segment(blocks[id].segment).position;
        match self.pages.get_mut(blocks[id].segment.index()) {
            Some(pages) if pages.start == start => pages.insert(blocks, id),
            _ => self.insert_first(blocks, id),
        }
    }

    /// Inserts the first block of a segment.
    #[cold]
    fn insert_first(&mut self, blocks: &Blocks, id: BlockId) {
        let segment = blocks[id].segment;
        let start = blocks.segment(segment).position;
        let count = self.pages.len().max(segment.index() + 1);
        self.pages.resize_with(count, || Pages { start: u64::MAX, ..Pages::default() });
        // The number may have been that of a segment that is gone, which has no free blocks any more.
        let pages = &mut self.pages[segment.index()];
        self.segments.retain(|(_, earlier)| *earlier != segment);
        let place = self.segments.partition_point(|(earlier, _)| *earlier < start);
        self.segments.insert(place, (start, segment));
        pages.start = start;
        pages.insert(blocks, id);
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, blocks: &Blocks, id: BlockId) {
        self.pages[blocks[id].segment.index()].remove(blocks, id);
    }

    /// Returns the free block that contains the byte at a position, if any.
    pub(super) fn at(&self, blocks: &Blocks, position: u64) -> Option<BlockId> {
        let behind = self.segments.partition_point(|(start, _)| *start <= position);
        let (_, segment) = *self.segments.get(behind.checked_sub(1)?)?;
        self.at_in(blocks, segment, position)
    }

    /// As [`at`](Self::at), for a position in or behind this segment.
    #[inline(always)]
    pub(super) fn at_in(&self, blocks: &Blocks, segment: SegmentId, position: u64) -> Option<BlockId> {
        let first = self.pages.get(segment.index())?.first_from(position)?;
        let mut here = std::iter::successors(Some(first), |id| blocks[*id].next);
        let found = here.find(|id| blocks[*id].end() > position)?;
        let Block { state, position: start, .. } = blocks[found];
        (state == State::Free && start <= position).then_some(found)
    }

    /// Calls the function for each free block, by position.
    pub(super) fn for_each(&self, blocks: &Blocks, mut each: impl FnMut(BlockId)) {
        for pages in self.segments.iter().map(|(_, segment)| &self.pages[segment.index()]) {
            let mut filled = pages.filled.first_from(0);
            while let Some(page) = filled {
                let mut next = pages.firsts[page];
                while let Some(id) = next.filter(|id| pages.page(blocks[*id].end() - 1) == page) {
                    if blocks[id].state == State::Free {
                        each(id);
                    }
                    next = blocks[id].next;
                }
                filled = pages.filled.first_from(page + 1);
            }
        }
    }
}

impl Pages {
    #[inline(always)]
    fn insert(&mut self, blocks: &Blocks, id: BlockId) {
        let end = blocks[id].end();
        let page = self.page(end - 1);
        if page >= self.firsts.len() {
            self.grow(page + 1);
        }
        let first = &mut self.firsts[page];
        if first.is_none_or(|first| end < blocks[first].end()) {
            *first = Some(id);
            self.filled.set(page);
        }
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.firsts.resize(count.next_multiple_of(64), None);
        self.filled.grow(count);
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &Blocks, id: BlockId) {
        let page = self.page(blocks[id].end() - 1);
        if self.firsts[page] != Some(id) {
            return;
        }
        let is_here = |id: &BlockId| self.page(blocks[*id].end() - 1) == page;
        let mut next = blocks[id].next.filter(is_here);
        while let Some(behind) = next
            && blocks[behind].state != State::Free
        {
            next = blocks[behind].next.filter(is_here);
        }
        self.firsts[page] = next;
        if next.is_none() {
            self.filled.clear(page);
        }
    }

    #[inline(always)]
    fn page(&self, position: u64) -> usize {
        (position.wrapping_sub(self.start) >> PAGE_LOG) as usize
    }

    /// Returns the first free block that ends in the page of this position or behind that page.
    #[inline(always)]
    fn first_from(&self, position: u64) -> Option<BlockId> {
        let page = self.page(position);
        let first = *self.firsts.get(page)?;
        first.or_else(|| self.first_behind(page))
    }

    #[inline(never)]
    fn first_behind(&self, page: usize) -> Option<BlockId> {
        self.firsts[self.filled.first_from(page)?]
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::alloc::blocks::{Base, Segment};
    use crate::types::{MIB, PoolKind};

    /// Adds a segment of many blocks, mostly shorter than a page. Returns them in order.
    fn segment(blocks: &mut Blocks, random: &mut Rng) -> Vec<BlockId> {
        let new = Segment::new(Base::unused(), 900 * MIB, 0, PoolKind::Large, None);
        let rest = blocks.add_segment(new, State::Allocated);
        let mut all = Vec::new();
        for _ in 0..300 {
            let most = if random.u8(..) < 32 { 20 * MIB } else { MIB / 2 };
            let front = Block { state: State::Allocated, ..blocks[rest].part(0, random.u64(1..=most / 512) * 512) };
            if front.size >= blocks[rest].size {
                break;
            }
            all.push(blocks.split_front(rest, front));
        }
        all.push(rest);
        all
    }

    #[test]
    fn the_same_free_blocks_are_found_as_by_a_look_at_all() {
        let mut random = Rng::with_seed(1);
        let (mut blocks, mut found) = (Blocks::default(), ByPosition::default());
        let all: Vec<BlockId> = (0..3).flat_map(|_| segment(&mut blocks, &mut random)).collect();
        let last = all.iter().map(|id| blocks[*id].end()).max().unwrap();
        for _ in 0..20_000 {
            let id = all[random.usize(..all.len())];
            if blocks[id].state == State::Free {
                found.remove(&blocks, id);
                blocks[id].state = State::Allocated;
            } else {
                blocks[id].state = State::Free;
                found.insert(&blocks, id);
            }
            let position = random.u64(..last + 10 * MIB);
            let is_there = |id: &&BlockId| {
                let block = &blocks[**id];
                block.state == State::Free && (block.position..block.end()).contains(&position)
            };
            assert_eq!(found.at(&blocks, position), all.iter().find(is_there).copied());
        }
        let mut in_order = Vec::new();
        found.for_each(&blocks, |id| in_order.push(id));
        assert_eq!(in_order, all.into_iter().filter(|id| blocks[*id].state == State::Free).collect::<Vec<_>>());
    }
}
