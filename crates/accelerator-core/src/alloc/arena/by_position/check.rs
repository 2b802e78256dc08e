//! A check of the tables of pages.

use std::collections::{BTreeMap, BTreeSet};

use super::{ByPosition, Pages};
use crate::alloc::blocks::{BlockId, Blocks, Id, SegmentId, State};
use crate::types::PoolKind;

impl ByPosition {
    /// Compares the tables with the free blocks of the large pool.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(in crate::alloc::arena) fn check(&self, blocks: &Blocks) {
        let mut expected = BTreeMap::new();
        for (id, segment) in blocks.segments().filter(|(_, segment)| segment.pool == PoolKind::Large) {
            expected.insert(id.index(), (segment.position, BTreeMap::new()));
            for (block, free) in blocks.of_segment(id).filter(|(_, block)| block.state == State::Free) {
                let page = (free.end() - 1).wrapping_sub(segment.position) >> super::PAGE_LOG;
                expected.entry(id.index()).and_modify(|(_, firsts)| _ = firsts.entry(page as usize).or_insert(block));
            }
        }
        for (number, pages) in self.pages.iter().enumerate() {
            let (start, firsts) = expected.remove(&number).unwrap_or_default();
            assert!(firsts.is_empty() || pages.start == start, "the start of segment {number}");
            assert_eq!(pages.listed(), firsts, "the first free blocks of the pages of segment {number}");
        }
        assert!(expected.values().all(|(_, firsts)| firsts.is_empty()), "no table for {expected:?}");
        self.check_segments();
    }

    fn check_segments(&self) {
        let known: BTreeSet<SegmentId> = self.segments.iter().map(|(_, id)| *id).collect();
        assert!(known.len() == self.segments.len() && self.segments.is_sorted(), "{:?}", self.segments);
        let start = |(start, id): &(u64, SegmentId)| self.pages.get(id.index()).is_some_and(|at| at.start == *start);
        assert!(self.segments.iter().all(start), "{:?}", self.segments);
        let is_known = |number| known.contains(&SegmentId::at(number));
        let mut filled = self.pages.iter().enumerate().filter(|(_, pages)| pages.filled.first_from(0).is_some());
        assert!(filled.all(|(number, _)| is_known(number)), "a segment with free blocks is not in order");
    }
}

impl Pages {
    /// Returns the first blocks of the pages that have any, which the bits must tell.
    fn listed(&self) -> BTreeMap<usize, BlockId> {
        let first = |(page, first): (usize, &Option<BlockId>)| first.map(|first| (page, first));
        let listed: BTreeMap<usize, BlockId> = self.firsts.iter().enumerate().filter_map(first).collect();
        let filled = std::iter::successors(self.filled.first_from(0), |page| self.filled.first_from(page + 1));
        assert!(filled.eq(listed.keys().copied()), "the bits of the pages with free blocks");
        listed
    }
}
