//! A check of all arenas, in debug builds.

use std::collections::{BTreeMap, BTreeSet};

use super::Held;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::BlockId;
use crate::alloc::stats::PoolAmounts;
use crate::types::{MemPoolId, PoolKind, PoolStat};

impl Held<'_> {
    /// Checks each arena, and that together they have what the statistics say. All arenas must be held. Returns the
    /// blocks that wait for streams, each with the number of its uses.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(crate) fn check(&self) -> BTreeMap<(ArenaId, BlockId), u32> {
        let pending = self.arenas().flat_map(|arena| {
            let id = arena.id();
            arena.check().into_iter().map(move |(block, uses)| ((id, block), uses))
        });
        let pending = pending.collect();
        self.check_active();
        self.check_reserved(); // follows links, which are known to be right by now
        pending
    }

    /// Checks that arenas that are not active have no headroom, and that one that has all of it is alone.
    fn check_active(&self) {
        let active = &self.setup.active;
        let distinct: BTreeSet<ArenaId> = active.iter().copied().collect();
        assert_eq!(distinct.len(), active.len(), "an arena is active twice: {active:?}");
        let exists = |id: &ArenaId| self.arenas().any(|arena| arena.id() == *id);
        assert!(active.iter().all(exists), "no arena has this number: {active:?}");
        for arena in self.arenas() {
            let (id, counters) = (arena.id(), arena.counters());
            match distinct.contains(&id) {
                true => assert!(!counters.is_alone || active.len() == 1, "{id:?} is not alone: {active:?}"),
                false => {
                    let all = [counters.current(), counters.headroom(), counters.added()];
                    assert_eq!(all, [PoolAmounts::default(); 3], "{id:?} is not active");
                }
            }
        }
    }

    fn check_reserved(&self) {
        let totals = &self.statistics.totals;
        for pool in [PoolKind::Small, PoolKind::Large] {
            let of_pool = |stat: PoolStat| match pool {
                PoolKind::Small => stat.small_pool.current,
                PoolKind::Large => stat.large_pool.current,
            };
            let mut by_pool: BTreeMap<MemPoolId, u64> = BTreeMap::new();
            self.arenas().for_each(|arena| *by_pool.entry(arena.mem_pool()).or_default() += arena.mapped_bytes(pool));
            let reserved: u64 = by_pool.values().sum();
            assert_eq!(of_pool(totals.reserved_bytes), reserved as i64, "reserved bytes of {pool:?}");
            for (id, stat) in self.statistics.reserved_by_private_pools() {
                let of_blocks = by_pool.get(&id).copied().unwrap_or(0);
                assert_eq!(of_pool(stat), of_blocks as i64, "reserved bytes of {pool:?} in {id}");
            }
            let segments: usize = self.arenas().map(|arena| arena.count_of_segments(pool)).sum();
            assert_eq!(of_pool(totals.segment), segments as i64, "segments of {pool:?}");
        }
        let charged = totals.reserved_bytes.all.current - totals.paused_bytes;
        assert_eq!(self.statistics.charged as i64, charged, "charged bytes");
    }
}
