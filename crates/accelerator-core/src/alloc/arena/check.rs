//! A check of a whole arena, in debug builds. Tests call it after every operation.

use super::{Arena, Store};
use crate::alloc::blocks::{Block, BlockId, Segment, SegmentId, Slot, State};
use crate::alloc::stats::{Amounts, Pair, PoolAmounts};
use crate::types::PoolKind;

impl Arena {
    /// Checks that each link and each list has numbers of slots that exist, that each block is in the one list of its
    /// state, and that the counters are the sums over the blocks. No other thread may have memory on its way. Returns
    /// the blocks that wait for streams, each with the number of its uses.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(crate) fn check(&self) -> Vec<(BlockId, u32)> {
        let alone = self.aliases().into_iter().flat_map(|(_, blocks)| blocks);
        let live = self.store().check(alone, self.is_shared());
        if let Some(placement) = &self.placement {
            placement.check();
        }
        let pending = live.into_iter().filter(|id| self.block(*id).state == State::Pending);
        pending.map(|id| (id, self.block(id).free_since)).collect()
    }

    /// Returns how many bytes have memory, in blocks of this pool.
    pub(crate) fn mapped_bytes(&self, pool: PoolKind) -> u64 {
        let blocks = &self.store().blocks;
        let of_pool = blocks.segments().filter(|(_, segment)| segment.pool == pool);
        let with_memory =
            of_pool.flat_map(|(id, _)| blocks.of_segment(id)).filter(|(_, of)| of.state != State::Unmapped);
        with_memory.map(|(_, block)| block.size).sum()
    }

    /// Returns the number of segments of this pool that are not expandable.
    pub(crate) fn count_of_segments(&self, pool: PoolKind) -> usize {
        let counts = |(_, segment): &(SegmentId, &Segment)| segment.pool == pool && segment.page.is_none();
        self.store().blocks.segments().filter(counts).count()
    }
}

impl Store {
    /// Returns the blocks.
    fn check(&self, alone: impl IntoIterator<Item = BlockId>, is_shared: bool) -> Vec<BlockId> {
        let slots = self.blocks.check(alone);
        let lists = self.free.check(&self.blocks);
        let mut live = Vec::new();
        for (id, slot) in slots.iter() {
            let Block { state, uses, free_since, .. } = self.blocks[id];
            let is_live = slot != Some(Slot::Vacant);
            let is_listed = is_live && matches!(state, State::Free | State::Unmapped);
            assert_eq!(lists.get(id), is_listed.then_some(state), "{id:?} is {slot:?}, {state:?}: its list");
            if is_live {
                assert!(state == State::Allocated || !uses.are_any(), "{id:?} has uses, but is {state:?}");
                assert!(state != State::Pending || free_since > 0, "{id:?} is pending, but waits for no stream");
                live.push(id);
            }
        }
        self.free.check_positions(&self.blocks);
        let of_live = || live.iter().map(|id| &self.blocks[*id]);
        self.uses.check(of_live());
        let expandable = self.blocks.segments().filter(|(_, segment)| segment.page.is_some()).count();
        assert_eq!(self.expandable, expandable, "the number of expandable segments");
        self.check_counters(of_live(), is_shared);
        live
    }

    fn check_counters<'a>(&self, live: impl Iterator<Item = &'a Block>, is_shared: bool) {
        let mut expected = PoolAmounts::default();
        for block in live {
            let of_pool = match block.pool {
                PoolKind::Small => &mut expected.small,
                PoolKind::Large => &mut expected.large,
            };
            *of_pool = *of_pool + amounts(block, is_shared);
        }
        expected.all = expected.small + expected.large;
        let counted = self.counters.current();
        let found = PoolAmounts {
            small: without_oversize(counted.small),
            large: without_oversize(counted.large),
            all: without_oversize(counted.all),
        };
        assert_eq!(found, expected, "the counters, and the sums over the blocks");
        let headroom = self.counters.headroom();
        let negative = [headroom.small, headroom.large, headroom.all].map(Amounts::missing);
        assert_eq!(negative, [Amounts::default(); 3], "negative headroom");
    }
}

/// Returns what a block counts as. In an arena that all streams share, no free block counts as split.
fn amounts(block: &Block, is_shared: bool) -> Amounts {
    let (one, none) = (Pair::new(1, block.size as i64), Pair::default());
    let is_split = block.state == State::Free && block.is_split() && !block.expandable && !is_shared;
    let is_active = matches!(block.state, State::Allocated | State::Pending);
    Amounts {
        allocated: if block.state == State::Allocated { one } else { none },
        active: if is_active { one } else { none },
        requested: if is_active { Pair::new(block.requested as i64, 0) } else { none },
        split: if is_split { one } else { none },
    }
}

/// Which blocks are oversize depends on the settings at the time at which they were counted.
fn without_oversize(counted: Amounts) -> Amounts {
    Amounts { requested: Pair::new(counted.requested.0[0], 0), ..counted }
}
