//! The private pools of a device: who uses them, which requests they serve, and the arenas with their memory.

mod holders;
#[cfg(test)]
#[cfg(loom)]
mod models;
mod routes;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use self::holders::Keeper;
use self::routes::Routes;
pub(crate) use self::routes::{Applies, RouteId};
use super::arena::{ArenaId, OwnSegments, Private};
use super::arenas::Arenas;
use crate::event::Events;
use crate::sync::primitives::{Mutex, lock};
use crate::sync::{Gate, Step};
use crate::types::{DriverError, MemPoolId, StreamId};

/// The private pools of a device.
///
/// The lock comes before those of the arenas, and is never held across a driver call or a filter of the user.
#[derive(Default)]
pub(crate) struct MemPools(Mutex<State>);

#[derive(Default)]
struct State {
    pools: BTreeMap<MemPoolId, MemPool>,
    routes: Routes,
    /// The pools that the graph of each capture underway will hold.
    captures: BTreeMap<u64, Vec<MemPoolId>>,
}

/// A private pool. PyTorch: `PrivatePool`.
#[derive(Default)]
struct MemPool {
    name: Option<Arc<str>>,
    /// The handles, routes and graphs that keep its memory. At 0, the pool is released: it serves no more requests, and
    /// its memory goes back to the driver as it becomes free.
    uses: u64,
    /// The uses among them that the program counts itself. It cannot take back others, whose holders rely on them.
    counted: u64,
    /// Requests that are using the pool now. It is not forgotten before they are done.
    requests: u32,
    /// Whether it helps out when the driver has no more memory.
    use_on_oom: bool,
    /// Whether blocks are handed out whole.
    no_split: bool,
    /// Whether its memory can be paused.
    pausable: bool,
    is_paused: bool,
    /// How many need all of its memory, also what is free, to stay where it is.
    keepers: u32,
    /// How many copies of its contents could not be waited for so far, and how many of them are over. There are two
    /// counters, since another copy may be noted while a thread waits for the earlier ones.
    copies: u64,
    copies_over: u64,
    /// How many graphs hold it. Their replays use memory that is free now.
    graphs: u32,
    /// Whether graphs that are captured by other means may hold it.
    has_foreign_graphs: bool,
    source: Option<Arc<dyn OwnSegments>>,
    /// One for each stream that has used it.
    arenas: Vec<(StreamId, ArenaId)>,
}

impl MemPool {
    /// Returns whether a graph may use its free memory. A pool with a graph's number is made for graphs, also for those
    /// that are captured by other means.
    fn is_held_by_graph(&self, id: MemPoolId) -> bool {
        self.graphs > 0 || self.has_foreign_graphs || id.numbers().0 > 0
    }

    /// Returns the arena that serves the requests of a stream. With `policy:compact`, one serves all streams, except in
    /// pools that must keep free memory where it is, or get it elsewhere.
    fn arena(&mut self, id: MemPoolId, stream: StreamId, arenas: &Arenas) -> ArenaId {
        let is_bound = self.pausable || self.no_split || self.source.is_some() || self.is_held_by_graph(id);
        let is_shared = !is_bound && arenas.shares_pools();
        self.arena_of(id, if is_shared { StreamId::SHARED } else { stream }, arenas)
    }

    fn arena_of(&mut self, id: MemPoolId, stream: StreamId, arenas: &Arenas) -> ArenaId {
        if let Some((_, arena)) = self.arenas.iter().find(|(of, _)| *of == stream) {
            return *arena;
        }
        let (whole, paged) = (self.no_split, self.pausable);
        let private = Private { pool: id, whole, paged, source: self.source.clone() };
        let arena = arenas.add_private(stream, private);
        self.arenas.push((stream, arena));
        arena
    }
}

/// A request that uses a pool.
pub(crate) struct Lease<'a> {
    pools: &'a MemPools,
    pub(crate) pool: MemPoolId,
    /// The arena that serves the request.
    pub(crate) arena: ArenaId,
    _inside: Step<'a>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(pool) = lock(&self.pools.0).pools.get_mut(&self.pool) {
            pool.requests -= 1;
        }
    }
}

/// Why no memory can be given to a request.
pub(crate) enum Unroutable {
    /// It goes to this pool.
    Paused(MemPoolId),
    /// Which pool it goes to is unknown.
    Driver(DriverError),
}

impl MemPools {
    /// Names a pool. Returns false if it does not exist.
    pub(crate) fn set_name(&self, id: MemPoolId, name: Arc<str>) -> bool {
        lock(&self.0).pools.get_mut(&id).map(|pool| pool.name = Some(name)).is_some()
    }

    /// Returns the name of a pool, if it has one.
    pub(crate) fn name(&self, id: MemPoolId) -> Option<Arc<str>> {
        lock(&self.0).pools.get(&id)?.name.clone()
    }

    /// Returns all pools, with their names.
    pub(crate) fn all(&self) -> Vec<(MemPoolId, Option<Arc<str>>)> {
        lock(&self.0).pools.iter().map(|(id, pool)| (*id, pool.name.clone())).collect()
    }

    /// Sets whether a pool helps out when the driver has no more memory. Returns false if it does not exist.
    pub(crate) fn set_use_on_oom(&self, id: MemPoolId, use_on_oom: bool) -> bool {
        lock(&self.0).pools.get_mut(&id).map(|pool| pool.use_on_oom = use_on_oom).is_some()
    }

    /// From now on, the pool hands out its free blocks whole. Returns false if it does not exist.
    pub(crate) fn set_no_split(&self, id: MemPoolId, arenas: &Arenas) -> bool {
        let mut state = lock(&self.0);
        let Some(pool) = state.pools.get_mut(&id) else { return false };
        pool.no_split = true;
        for (_, arena) in &pool.arenas {
            arenas.of(*arena).lock().set_whole();
        }
        true
    }

    /// From now on, graphs that are captured by other means may hold the pool. Returns false if it does not exist.
    pub(crate) fn set_has_foreign_graphs(&self, id: MemPoolId) -> bool {
        lock(&self.0).pools.get_mut(&id).map(|pool| pool.has_foreign_graphs = true).is_some()
    }

    /// From now on, the pool has only memory that can be paused. Returns false if it does not exist, or has had memory.
    pub(crate) fn set_pausable(&self, id: MemPoolId) -> bool {
        let mut state = lock(&self.0);
        let new = state.pools.get_mut(&id).filter(|pool| pool.arenas.is_empty() && pool.source.is_none());
        new.map(|pool| pool.pausable = true).is_some()
    }

    /// Sends requests to a pool, which must be in use until the route ends.
    pub(crate) fn begin(&self, id: MemPoolId, applies: Applies, arenas: &Arenas) -> RouteId {
        let mut state = lock(&self.0);
        let route = state.routes.add(id, applies);
        arenas.set_routed(true);
        route
    }

    /// Ends a route. Returns its pool.
    pub(crate) fn end(&self, route: RouteId, arenas: &Arenas) -> Option<MemPoolId> {
        let mut state = lock(&self.0);
        let route = state.routes.remove(route)?;
        if state.routes.is_empty() {
            arenas.set_routed(false);
        }
        drop(state);
        Some(route.pool)
    }

    /// Returns the pool that a request of this stream goes to, if it goes to one.
    ///
    /// # Errors
    /// The pool is paused, or the driver does not say whether the stream is captured.
    pub(crate) fn route<'a>(
        &'a self,
        stream: StreamId,
        events: &dyn Events,
        arenas: &'a Arenas,
    ) -> Result<Option<Lease<'a>>, Unroutable> {
        let routes = lock(&self.0).routes.all();
        for route in routes.iter().rev() {
            if !route.applies(stream, events).map_err(Unroutable::Driver)? {
                continue;
            }
            let mut state = lock(&self.0);
            // It may have ended after the list was read.
            if state.routes.contains(route) {
                return self
                    .lease(&mut state, route.pool, stream, arenas)
                    .ok_or(Unroutable::Paused(route.pool))
                    .map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the live pools that help out when the driver has no more memory, with their arenas for this stream. Not
    /// those which somebody keeps.
    pub(crate) fn on_oom<'a>(&'a self, stream: StreamId, arenas: &'a Arenas) -> Vec<Lease<'a>> {
        let mut state = lock(&self.0);
        let helps = |(id, pool): (&MemPoolId, &MemPool)| {
            let has_arena = pool.arenas.iter().any(|(of, _)| *of == stream || *of == StreamId::SHARED);
            let may_help = pool.use_on_oom && pool.uses > 0 && pool.keepers == 0;
            (may_help && has_arena).then_some(*id)
        };
        let helping: Vec<_> = state.pools.iter().filter_map(helps).collect();
        helping.into_iter().filter_map(|id| self.lease(&mut state, id, stream, arenas)).collect()
    }

    /// Returns the arena of a single stream in the pool of a request, for streams that a shared arena does not take.
    pub(crate) fn arena_of_stream(&self, lease: &Lease<'_>, stream: StreamId, arenas: &Arenas) -> Option<ArenaId> {
        let mut state = lock(&self.0);
        Some(state.pools.get_mut(&lease.pool)?.arena_of(lease.pool, stream, arenas))
    }

    /// Returns `None` if the pool is paused.
    fn lease<'a>(
        &'a self,
        state: &mut State,
        id: MemPoolId,
        stream: StreamId,
        arenas: &'a Arenas,
    ) -> Option<Lease<'a>> {
        let pool = state.pools.get_mut(&id).filter(|pool| !pool.is_paused)?;
        let arena = pool.arena(id, stream, arenas);
        let inside = arenas.gate(arena)?.enter()?;
        pool.requests += 1;
        Some(Lease { pools: self, pool: id, arena, _inside: inside })
    }

    /// Closes a pool for pausing: waits for the requests and uses underway, and refuses all others.
    ///
    /// # Errors
    /// Why it cannot be paused.
    pub(crate) fn close(&self, id: MemPoolId, arenas: &Arenas) -> Result<(), &'static str> {
        let mut state = lock(&self.0);
        let pool = state.pools.get_mut(&id).ok_or("does not exist")?;
        if !pool.pausable {
            return Err("cannot be paused: make it with MemPoolOptions::pausable");
        }
        if std::mem::replace(&mut pool.is_paused, true) {
            return Err("is paused already");
        }
        let closing: Vec<_> = pool.arenas.iter().filter_map(|(_, arena)| arenas.gate(*arena)).collect();
        drop(state); // the requests underway need the lock to end
        closing.into_iter().for_each(Gate::close);
        Ok(())
    }

    /// Opens a pool that was closed.
    pub(crate) fn open(&self, id: MemPoolId, arenas: &Arenas) {
        let mut state = lock(&self.0);
        let Some(pool) = state.pools.get_mut(&id) else { return };
        pool.is_paused = false;
        pool.arenas.iter().filter_map(|(_, arena)| arenas.gate(*arena)).for_each(Gate::open);
    }

    /// Returns whether a pool is paused.
    pub(crate) fn is_paused(&self, id: MemPoolId) -> bool {
        lock(&self.0).pools.get(&id).is_some_and(|pool| pool.is_paused)
    }

    /// Notes a copy of a closed pool's contents that may still run.
    pub(crate) fn note_copy(&self, id: MemPoolId) {
        if let Some(pool) = lock(&self.0).pools.get_mut(&id) {
            pool.copies += 1;
        }
    }

    /// Returns how many copies have been noted, if one of them may still run.
    pub(crate) fn copies(&self, id: MemPoolId) -> Option<u64> {
        let state = lock(&self.0);
        state.pools.get(&id).filter(|pool| pool.copies > pool.copies_over).map(|pool| pool.copies)
    }

    /// Notes that so many copies are over.
    pub(crate) fn copies_over(&self, id: MemPoolId, copies: u64) {
        if let Some(pool) = lock(&self.0).pools.get_mut(&id) {
            pool.copies_over = pool.copies_over.max(copies);
        }
    }

    /// Returns the live pools whose free memory no graph uses.
    pub(crate) fn reclaimable(&self) -> Vec<MemPoolId> {
        let state = lock(&self.0);
        let reclaimable =
            state.pools.iter().filter(|(id, pool)| pool.uses > 0 && !pool.is_paused && !pool.is_held_by_graph(**id));
        reclaimable.map(|(id, _)| *id).collect()
    }

    pub(crate) fn exists(&self, id: MemPoolId) -> bool {
        lock(&self.0).pools.contains_key(&id)
    }

    /// Returns whether a pool exists and is released.
    pub(crate) fn is_released(&self, id: MemPoolId) -> bool {
        lock(&self.0).pools.get(&id).is_some_and(|pool| pool.uses == 0)
    }

    /// Returns the released pools.
    pub(crate) fn released(&self) -> Vec<MemPoolId> {
        let state = lock(&self.0);
        state.pools.iter().filter(|(_, pool)| pool.uses == 0).map(|(id, _)| *id).collect()
    }

    /// Returns the arenas of a pool.
    pub(crate) fn arenas(&self, id: MemPoolId) -> Vec<ArenaId> {
        let state = lock(&self.0);
        let arenas = state.pools.get(&id).into_iter().flat_map(|pool| &pool.arenas);
        arenas.map(|(_, arena)| *arena).collect()
    }

    /// Forgets a released pool once it has no memory. Returns its source, which is the user's, so that the caller drops
    /// it with no lock held.
    pub(crate) fn forget_if_empty(&self, id: MemPoolId, arenas: &Arenas) -> Option<Arc<dyn OwnSegments>> {
        let mut state = lock(&self.0);
        let pool = state.pools.get(&id)?;
        let is_idle = pool.uses == 0 && pool.requests == 0 && pool.keepers == 0;
        if is_idle && pool.arenas.iter().all(|(_, arena)| arenas.of(*arena).lock().is_empty()) {
            let forgotten = state.pools.remove(&id);
            for (_, arena) in forgotten.iter().flat_map(|pool| &pool.arenas) {
                arenas.remove_private(*arena);
            }
            return forgotten?.source;
        }
        None
    }
}
