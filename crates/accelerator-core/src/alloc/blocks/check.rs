//! A check of all blocks: each slot has a block or is vacant, and neighbours link each other.

use super::slab::Id;
use super::visited::Visited;
use super::{Block, BlockId, Blocks, Segment, SegmentId, State};
use crate::alloc::settings::MIN_BLOCK;

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Vacant,
    InSegment,
    /// A block outside the segments' chains.
    Alone,
}

impl Blocks {
    /// Checks the links between neighbours, and that no slot is lost. `alone`: the blocks outside the segments' chains.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(crate) fn check(&self, alone: impl IntoIterator<Item = BlockId>) -> Visited<Slot> {
        let mut visited = Visited::none_of(self);
        self.blocks.check(&mut visited);
        alone.into_iter().for_each(|id| visited.visit(id, Slot::Alone));
        let vacant = self.segments.check();
        for (id, segment) in self.segments() {
            assert!(!vacant[id.index()], "{id:?} has blocks, but is vacant");
            self.check_segment(id, segment, &mut visited);
        }
        let lost = visited.iter().find(|(_, slot)| slot.is_none());
        assert!(lost.is_none(), "a slot has no block, but is not vacant: {lost:?}");
        visited
    }

    fn check_segment(&self, id: SegmentId, segment: &Segment, visited: &mut Visited<Slot>) {
        let (mut before, mut next, mut position) = (None, segment.first, segment.position);
        while let Some(block) = next {
            visited.visit(block, Slot::InSegment);
            self.check_block(id, segment, block);
            let Block { previous, position: start, .. } = self[block];
            assert_eq!((previous, start), (before, position), "{block:?}: previous block, position");
            if let Some(before) = before {
                let kind = |block: BlockId| (self[block].state, self[block].owner);
                let merge = matches!(self[block].state, State::Free | State::Unmapped);
                assert!(!merge || kind(before) != kind(block), "{before:?} and {block:?} are not merged");
            }
            (before, next, position) = (Some(block), self[block].next, self[block].end());
        }
        assert_eq!(position, segment.position.wrapping_add(segment.size), "{id:?}: the end of its blocks");
    }

    fn check_block(&self, id: SegmentId, of: &Segment, block: BlockId) {
        let Block { segment, pool, expandable, size, .. } = self[block];
        assert_eq!((segment, pool, expandable), (id, of.pool, of.page.is_some()), "{block:?}: the kind of its segment");
        assert!(size > 0 && size.is_multiple_of(MIN_BLOCK), "{block:?}: {size} bytes");
    }
}
