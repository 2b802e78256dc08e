//! Private pools, and captures.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::DeviceAllocator;
use crate::alloc::arena::{AllocatedBlock, Arena, OwnSegments};
use crate::alloc::blocks::{Base, Segment, State};
use crate::alloc::mem_pools::{Applies, RouteId};
use crate::graphs::CaptureMode;
use crate::sync::primitives::lock;
use crate::types::{MemPoolId, MemPoolInfo, PoolStat, Result, is_pool_name};

impl DeviceAllocator {
    /// [`MemPools::retain`](crate::alloc::mem_pools::MemPools::retain).
    pub(crate) fn retain_pool(&self, id: MemPoolId, source: Option<Arc<dyn OwnSegments>>) -> Result<()> {
        self.check_private(id)?;
        drop(self.mem_pools.retain(id, source));
        Ok(())
    }

    pub(crate) fn release_pool(&self, id: MemPoolId) {
        self.mem_pools.release(id);
    }

    /// [`MemPools::retain_counted`](crate::alloc::mem_pools::MemPools::retain_counted).
    pub(crate) fn retain_counted_pool(&self, id: MemPoolId, source: Option<Arc<dyn OwnSegments>>) -> Result<()> {
        self.check_private(id)?;
        drop(self.mem_pools.retain_counted(id, source));
        Ok(())
    }

    pub(crate) fn release_counted_pool(&self, id: MemPoolId) -> Result<()> {
        if self.mem_pools.release_counted(id) {
            return Ok(());
        }
        self.known(id, self.mem_pools.uses(id) > 0)?;
        Err(self.pool_error(id, "has no use that `retain_pool` added: handles, routes and graphs keep theirs"))
    }

    pub(crate) fn pool_uses(&self, id: MemPoolId) -> u32 {
        self.mem_pools.uses(id)
    }

    pub(crate) fn keep_for_graphs(&self, id: MemPoolId) -> Result<()> {
        let _reclaiming = lock(&self.reclaiming); // no other thread is giving memory of it back then
        self.known(id, self.mem_pools.set_has_foreign_graphs(id))
    }

    pub(crate) fn set_name(&self, id: MemPoolId, name: Arc<str>) -> Result<()> {
        if !is_pool_name(&name) {
            let problem = "cannot have this name: it must have 1 to 100 characters, all of them visible, with spaces \
                           only between them";
            return Err(self.pool_error(id, problem));
        }
        self.known(id, self.mem_pools.set_name(id, name))
    }

    pub(crate) fn name(&self, id: MemPoolId) -> Option<Arc<str>> {
        self.mem_pools.name(id)
    }

    /// Returns the names of the private pools that have one.
    pub(crate) fn pool_names(&self) -> BTreeMap<MemPoolId, Arc<str>> {
        self.mem_pools.all().into_iter().filter_map(|(id, name)| Some((id, name?))).collect()
    }

    /// Returns the private pools, with the memory that each has.
    pub(crate) fn pool_infos(&self) -> BTreeMap<MemPoolId, MemPoolInfo> {
        let reserved = self.reserved_by_private_pools();
        let info = |(id, name)| {
            let reserved_bytes = reserved.get(&id).map_or(0, |stat| stat.all.current.unsigned_abs());
            (id, MemPoolInfo { name, reserved_bytes, paused_bytes: self.paused_bytes(id).min(reserved_bytes) })
        };
        self.mem_pools.all().into_iter().map(info).collect()
    }

    pub(crate) fn set_use_on_oom(&self, id: MemPoolId, use_on_oom: bool) -> Result<()> {
        self.known(id, self.mem_pools.set_use_on_oom(id, use_on_oom))
    }

    pub(crate) fn set_no_split(&self, id: MemPoolId) -> Result<()> {
        self.known(id, self.mem_pools.set_no_split(id, self.arenas()))
    }

    /// From now on, the pool has only memory that can be paused.
    pub(crate) fn set_pausable(&self, id: MemPoolId) -> Result<()> {
        if self.driver().address_space().is_none() {
            return Err(self.pool_error(id, "cannot be pausable: this device has no virtual memory"));
        }
        let problem = "cannot become pausable: it does not exist, has memory already, or has a source of its own";
        if self.mem_pools.set_pausable(id) { Ok(()) } else { Err(self.pool_error(id, problem)) }
    }

    pub(crate) fn is_paused(&self, id: MemPoolId) -> bool {
        self.mem_pools.is_paused(id)
    }

    pub(crate) fn release_pool_from_graph(&self, id: MemPoolId) {
        self.mem_pools.release_from_graph(id);
    }

    /// Sends requests to a pool, of which this is one more use. In a capture, the graph comes to hold the pool, too.
    pub(crate) fn begin_route(&self, id: MemPoolId, applies: Applies) -> Result<RouteId> {
        // If the driver does not say whether there is a capture, each request asks again, and its graph holds the pool.
        let capture = self.known_capture(Self::current_capture);
        self.retain_pool(id, None)?;
        // A capture by other means may follow, too.
        if capture.is_some() || self.mem_pools.is_held_by_graph(id) == Some(true) {
            let _reclaiming = lock(&self.reclaiming);
            capture.into_iter().for_each(|capture| self.mem_pools.hold(capture, id));
        }
        Ok(self.mem_pools.begin(id, applies, self.arenas()))
    }

    /// Ends a route, and takes back its use of the pool.
    pub(crate) fn end_route(&self, route: RouteId) {
        if let Some(pool) = self.mem_pools.end(route, self.arenas()) {
            self.mem_pools.release(pool);
        }
    }

    /// Notes that a capture has begun, and sends the requests of its streams to this pool, which its graph holds.
    pub(crate) fn capture_begun(&self, capture: u64, mode: CaptureMode, pool: MemPoolId) -> RouteId {
        let _reclaiming = lock(&self.reclaiming);
        self.pending.capture_begun(capture, mode);
        self.mem_pools.capture_begun(capture, pool);
        self.mem_pools.begin(pool, Applies::Capture(capture), self.arenas())
    }

    /// Notes that a capture is over. Returns the pools that its graph holds.
    pub(crate) fn capture_ended(&self, capture: u64, route: RouteId) -> Vec<MemPoolId> {
        self.mem_pools.end(route, self.arenas());
        self.pending.capture_ended(capture);
        let held = self.mem_pools.capture_ended(capture);
        if self.arenas().config().graph_capture_record_stream_reuse
            && let Some(own) = held.first()
        {
            let arenas = self.mem_pools.arenas(*own);
            self.pending.end_deferred_of(&self.memory, capture, |block| arenas.contains(&block.arena));
        }
        held
    }

    /// Returns the bytes that each private pool has held from the driver.
    pub(crate) fn reserved_by_private_pools(&self) -> BTreeMap<MemPoolId, PoolStat> {
        self.arenas().statistics().reserved_by_private_pools()
    }

    /// Returns the allocated blocks of a pool, in the order of their addresses.
    pub(crate) fn allocated_in(&self, id: MemPoolId) -> Vec<AllocatedBlock> {
        let mut allocated = Vec::new();
        for id in self.mem_pools.arenas(id) {
            allocated.extend(allocated_blocks(&self.arenas().of(id).lock()));
        }
        allocated.sort_by_key(AllocatedBlock::address);
        allocated
    }

    /// Returns the allocated block that starts at this address. Looks at every block.
    pub(crate) fn allocated_at(&self, address: u64) -> Option<AllocatedBlock> {
        let is_there = |block: &AllocatedBlock| block.address() == address;
        self.arenas().all().find_map(|arena| allocated_blocks(&arena.lock()).find(is_there))
    }

    /// Returns the start and the size of the segment, or of the range of aliases, that contains this address.
    pub(crate) fn segment_at(&self, address: u64) -> Option<(Base, u64)> {
        let is_there = |segment: &&Segment| address.wrapping_sub(segment.base.address()) < segment.size;
        self.arenas().all().find_map(|arena| {
            let arena = arena.lock();
            let blocks = &arena.store().blocks;
            let aliases = arena.aliases().into_iter().map(|(segment, _)| blocks.segment(segment));
            let mut all = blocks.segments().map(|(_, segment)| segment).chain(aliases);
            all.find(is_there).map(|segment| (segment.base, segment.size))
        })
    }

    fn check_private(&self, id: MemPoolId) -> Result<()> {
        if id.is_default() { Err(self.pool_error(id, "is not a private pool")) } else { Ok(()) }
    }

    pub(super) fn known(&self, id: MemPoolId, is_known: bool) -> Result<()> {
        if is_known { Ok(()) } else { Err(self.pool_error(id, "does not exist, or is not in use any more")) }
    }
}

/// Returns the allocated blocks of an arena.
fn allocated_blocks(arena: &Arena) -> impl Iterator<Item = AllocatedBlock> {
    let store = arena.store();
    let blocks = &store.blocks;
    let in_segments = blocks.segments().flat_map(|(segment, _)| blocks.of_segment(segment)).map(|(id, _)| id);
    let in_aliases = arena.aliases().into_iter().flat_map(|(_, blocks)| blocks);
    let live = in_segments.chain(in_aliases).filter(|id| blocks[*id].state == State::Allocated);
    live.map(|id| store.allocated(id))
}
