//! Who holds private pools: handles, routes and graphs, and those that need the memory to stay where it is.

use std::sync::Arc;

use super::{Lease, MemPool, MemPools, OwnSegments, State};
use crate::sync::primitives::lock;
use crate::types::MemPoolId;

/// Keeps all memory of a pool where it is, also what is free, until it is dropped: while the contents are copied, or
/// the pool is set back.
pub(crate) struct Keeper<'a> {
    pools: &'a MemPools,
    pool: MemPoolId,
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        if let Some(pool) = lock(&self.pools.0).pools.get_mut(&self.pool) {
            pool.keepers -= 1;
        }
    }
}

impl MemPools {
    /// Adds a use of a pool, which is made if it does not exist: by a handle, a route or a graph. Returns a source that
    /// the pool does not need, because it has one, has had memory, or is pausable. It is the user's, so the caller
    /// drops it with no lock held.
    pub(crate) fn retain(&self, id: MemPoolId, source: Option<Arc<dyn OwnSegments>>) -> Option<Arc<dyn OwnSegments>> {
        retain(&mut lock(&self.0), id, source).1
    }

    /// Takes back a use of a pool by a handle, a route or a graph.
    pub(crate) fn release(&self, id: MemPoolId) {
        if let Some(pool) = lock(&self.0).pools.get_mut(&id) {
            pool.uses = pool.uses.saturating_sub(1);
        }
    }

    /// Adds a use that the program counts. Otherwise as [`retain`](Self::retain). PyTorch: `createOrIncrefPool`.
    pub(crate) fn retain_counted(
        &self,
        id: MemPoolId,
        source: Option<Arc<dyn OwnSegments>>,
    ) -> Option<Arc<dyn OwnSegments>> {
        let mut state = lock(&self.0);
        let (pool, rest) = retain(&mut state, id, source);
        pool.counted += 1;
        rest
    }

    /// Takes back a use that the program counts. Returns whether there was one. PyTorch: `releasePool`.
    pub(crate) fn release_counted(&self, id: MemPoolId) -> bool {
        let mut state = lock(&self.0);
        let pool = state.pools.get_mut(&id).filter(|pool| pool.counted > 0);
        pool.map(|pool| (pool.counted, pool.uses) = (pool.counted - 1, pool.uses - 1)).is_some()
    }

    /// Returns how many handles, routes and graphs use a pool; 0 also if it does not exist.
    pub(crate) fn uses(&self, id: MemPoolId) -> u32 {
        lock(&self.0).pools.get(&id).map_or(0, |pool| u32::try_from(pool.uses).unwrap_or(u32::MAX))
    }

    /// Keeps all memory of a pool where it is. Returns `None` if the pool does not exist.
    pub(crate) fn keep(&self, id: MemPoolId) -> Option<Keeper<'_>> {
        let mut state = lock(&self.0);
        state.pools.get_mut(&id)?.keepers += 1;
        Some(Keeper { pools: self, pool: id })
    }

    /// Returns whether the free memory of a pool must stay, too, because somebody keeps it.
    pub(crate) fn is_kept(&self, id: MemPoolId) -> bool {
        lock(&self.0).pools.get(&id).is_some_and(|pool| pool.keepers > 0)
    }

    /// Notes that a capture has begun, whose graph uses this pool already.
    pub(crate) fn capture_begun(&self, capture: u64, id: MemPoolId) {
        let mut state = lock(&self.0);
        state.captures.insert(capture, vec![id]);
        if let Some(pool) = state.pools.get_mut(&id) {
            pool.graphs += 1;
        }
    }

    /// Notes that a capture is over. Returns the pools that its graph holds.
    pub(crate) fn capture_ended(&self, capture: u64) -> Vec<MemPoolId> {
        lock(&self.0).captures.remove(&capture).unwrap_or_default()
    }

    /// Returns whether the graph of a capture underway holds the pool of a request. There is none if the capture began
    /// by other means.
    pub(crate) fn holds(&self, capture: u64, lease: &Lease<'_>) -> bool {
        lock(&self.0).captures.get(&capture).is_none_or(|held| held.contains(&lease.pool))
    }

    /// Makes the graph of a capture underway hold a pool, once.
    pub(crate) fn hold(&self, capture: u64, id: MemPoolId) {
        let mut state = lock(&self.0);
        let State { pools, captures, .. } = &mut *state;
        let (Some(held), Some(pool)) = (captures.get_mut(&capture), pools.get_mut(&id)) else { return };
        if !held.contains(&id) {
            held.push(id);
            pool.uses += 1;
            pool.graphs += 1;
        }
    }

    /// Takes back the use of a pool by a graph.
    pub(crate) fn release_from_graph(&self, id: MemPoolId) {
        if let Some(pool) = lock(&self.0).pools.get_mut(&id) {
            pool.graphs = pool.graphs.saturating_sub(1);
            pool.uses = pool.uses.saturating_sub(1);
        }
    }

    /// Returns whether a graph may use free memory of a pool; `None` if the pool does not exist.
    pub(crate) fn is_held_by_graph(&self, id: MemPoolId) -> Option<bool> {
        lock(&self.0).pools.get(&id).map(|pool| pool.is_held_by_graph(id))
    }
}

/// Adds a use of a pool. Returns the pool, and the source if the pool does not need it.
fn retain(
    state: &mut State,
    id: MemPoolId,
    source: Option<Arc<dyn OwnSegments>>,
) -> (&mut MemPool, Option<Arc<dyn OwnSegments>>) {
    let pool = state.pools.entry(id).or_default();
    pool.uses += 1;
    if !pool.arenas.is_empty() || pool.source.is_some() || pool.pausable {
        return (pool, source);
    }
    pool.source = source;
    (pool, None)
}
