//! A check of what the policy knows about its blocks.

use std::collections::BTreeSet;

use super::Compact;
use super::aliases::AliasRange;
use crate::alloc::blocks::{Block, State};

impl Compact {
    /// Checks that the chunks are the memory of the ranges, and that the backing blocks are those of aliases.
    pub(super) fn check_parts(&self) {
        let mut reserved = 0;
        for range in &self.ranges {
            let segment = self.store.blocks.segment(range.segment);
            assert!(segment.first.is_some(), "a range without blocks: {range:?}");
            let end = segment.position.wrapping_add(range.end);
            let owned: u64 = self.chunks[range.pool as usize].range(segment.position..end).map(|(_, len)| len).sum();
            let blocks = self.store.blocks.of_segment(range.segment).map(|(_, block)| block);
            let mapped = blocks.filter(|block| block.state != State::Unmapped).map(|block| block.size).sum();
            assert_eq!((owned, range.owned), (mapped, mapped), "the chunks of a range, and its memory: {range:?}");
            reserved += mapped;
        }
        assert_eq!(self.costs.reserved, reserved, "reserved bytes");
        let in_use = self.store.counters.current().all.requested.0[0];
        assert_eq!(self.costs.requested as i64, in_use, "requested bytes in use");
        let aliased: u64 = self.aliases.values().map(AliasRange::len).sum();
        assert_eq!(self.aliased, aliased, "the length of all aliases");
        self.check_backing();
    }

    /// Follows the backing blocks of each alias block, which alone link any.
    fn check_backing(&self) {
        let mut backing = BTreeSet::new();
        let mut of_aliases = BTreeSet::new();
        for (start, alias) in &self.aliases {
            assert_eq!(self.store.blocks.segment(alias.segment).position, *start, "the start of an alias");
            for id in &alias.blocks {
                of_aliases.insert(*id);
                let Block { size, below: [mut next, _], .. } = self.store.blocks[*id];
                let mut bytes = 0;
                while let Some(piece) = next {
                    assert!(backing.insert(piece), "{piece:?} holds the bytes of two blocks");
                    let block = &self.store.blocks[piece];
                    assert_eq!(block.state, State::Backing, "{piece:?} of the alias block {id:?}");
                    (next, bytes) = (block.below[0], bytes + block.size);
                }
                assert_eq!(bytes, size, "the bytes of the alias block {id:?}");
            }
        }
        let in_segments = self.store.blocks.segments().flat_map(|(id, _)| self.store.blocks.of_segment(id));
        for (id, block) in in_segments {
            match block.state {
                State::Backing => assert!(backing.remove(&id), "{id:?} holds the bytes of no block"),
                State::Allocated | State::Pending => assert_eq!(block.below[0], None, "{id:?} is taken for an alias"),
                State::Free | State::Unmapped => {}
            }
        }
        assert!(backing.is_empty(), "in no segment: {backing:?}");
    }
}
