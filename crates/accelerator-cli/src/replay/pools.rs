use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use accelerator_conformance::{Controls, DriverSource};
use accelerator_core::{CachingAllocator, DevicePtr, MemPoolId, MemPoolRequests, MemPoolRoute, Result};

use super::outcome::{Outcome, ReplayError, SourceCalls};
use super::replayer::Replayer;
use crate::trace::{PoolName, PoolOp, PoolOption};

/// The private pools of a trace.
pub(super) struct Pools<B: Controls> {
    /// All that a line has named so far.
    named: BTreeSet<MemPoolId>,
    /// Those that requests are sent to.
    begun: Vec<(PoolName, MemPoolRoute)>,
    /// The allocators of pools that have their own.
    sources: BTreeMap<MemPoolId, Arc<DriverSource<B>>>,
}

impl<B: Controls> Pools<B> {
    pub(super) fn new() -> Self {
        Self { named: BTreeSet::new(), begun: Vec::new(), sources: BTreeMap::new() }
    }

    /// Returns the calls of the pools' own allocators.
    pub(super) fn calls(&self) -> Vec<SourceCalls> {
        let of = |(pool, source): (&MemPoolId, &Arc<DriverSource<B>>)| SourceCalls {
            pool: *pool,
            allocs: source.allocs(),
            frees: source.deallocs(),
        };
        self.sources.iter().map(of).collect()
    }

    /// Sends requests nowhere any more, and takes back all uses of the pools.
    pub(super) fn end(&mut self, allocator: &CachingAllocator<B>) {
        self.begun.drain(..).for_each(|(_, route)| allocator.end_allocate_to_pool(route));
        for pool in std::mem::take(&mut self.named) {
            while allocator.release_pool(pool).is_ok() {}
        }
    }

    fn begin(&mut self, pool: PoolName, begin: impl FnOnce() -> Result<MemPoolRoute>) -> Result<(), ReplayError> {
        if self.begun.iter().any(|(begun, _)| *begun == pool) {
            return Err(ReplayError::PoolBegun(pool));
        }
        self.begun.push((pool, begin()?));
        Ok(())
    }

    fn end_of(&mut self, pool: PoolName) -> Result<MemPoolRoute, ReplayError> {
        let place = self.begun.iter().position(|(begun, _)| *begun == pool);
        Ok(self.begun.remove(place.ok_or(ReplayError::PoolNotBegun(pool))?).1)
    }
}

impl<B: Controls> Replayer<B> {
    pub(super) fn pool_op(&mut self, op: &PoolOp) -> Result<Outcome, ReplayError> {
        let allocator = self.accelerator.allocator();
        let id = op.pool().id();
        self.pools.named.insert(id);
        match op {
            PoolOp::Create { pool, options } => self.create_pool(*pool, options)?,
            PoolOp::Release { .. } => {
                allocator.set_pool_use_on_oom(id, false)?;
                if !self.pauses.release(id) {
                    allocator.release_pool(id)?;
                    allocator.empty_pool_cache(id)?;
                }
            }
            PoolOp::Begin { pool, stream } => {
                let requests = match stream {
                    None => MemPoolRequests::All,
                    Some(stream) => MemPoolRequests::Stream(self.stream(*stream)?),
                };
                self.pools.begin(*pool, || allocator.begin_allocate_to_pool(id, requests))?;
            }
            PoolOp::End { pool } => allocator.end_allocate_to_pool(self.pools.end_of(*pool)?),
            PoolOp::Retain { .. } => allocator.retain_pool(id)?,
            PoolOp::Drop { .. } => allocator.release_pool(id)?,
            PoolOp::UseOnOom { on, .. } => allocator.set_pool_use_on_oom(id, *on)?,
            PoolOp::NoSplit { .. } => allocator.set_pool_no_split(id)?,
            PoolOp::EmptyCache { .. } => allocator.empty_pool_cache(id)?,
            PoolOp::Uses { .. } => return Ok(Outcome::PoolUses(id, allocator.pool_uses(id))),
            PoolOp::Live { ids, .. } => return Ok(Outcome::PoolLive(id, self.are_live_in(id, ids))),
            PoolOp::Snapshot { .. } => return Ok(self.segments(Some(id), allocator.pool_snapshot(id))),
            PoolOp::Checkpoint { pool, name } => self.checkpoint(*pool, name)?,
            PoolOp::Restore { pool, name } => return self.restore(*pool, name),
            PoolOp::Pause { pool, keep } => return self.pause(*pool, *keep),
            PoolOp::Resume { pool, others } => return self.resume(*pool, others),
        }
        Ok(Outcome::Done)
    }

    fn create_pool(&mut self, pool: PoolName, options: &[PoolOption]) -> Result<(), ReplayError> {
        if self.makes_pausable(options) {
            return self.pauses.create(self.accelerator, pool, options);
        }
        let (allocator, id) = (self.accelerator.allocator(), pool.id());
        if options.contains(&PoolOption::Allocator) {
            let source = Arc::new(DriverSource::new(self.accelerator.backend()));
            allocator.retain_pool_with_source(id, source.clone())?;
            self.pools.sources.insert(id, source);
        } else {
            allocator.retain_pool(id)?;
        }
        if options.contains(&PoolOption::UseOnOom) {
            allocator.set_pool_use_on_oom(id, true)?;
        }
        if options.contains(&PoolOption::NoSplit) {
            allocator.set_pool_no_split(id)?;
        }
        Ok(())
    }

    /// Returns whether these allocations, as far as they are live, are exactly those in the pool.
    fn are_live_in(&self, pool: MemPoolId, ids: &[u64]) -> bool {
        let expected: BTreeSet<_> = ids.iter().filter_map(|id| self.live.get(id)?.address()).collect();
        let live = self.accelerator.allocator().pool_allocations(pool);
        live.into_iter().map(DevicePtr::trace_address).eq(expected)
    }
}
