//! The interface of a source of memory, and the requests made to it.

use super::context::{Context, Grown};
use crate::alloc::arena::Arena;
use crate::alloc::arenas::Parameters;
use crate::alloc::settings::Request;
use crate::sync::{Guard, OwnedLock};
use crate::types::{PoolKind, Result, StreamId};

/// A locked arena, and the request adapted to it.
pub(crate) type Entry<'a> = (Guard<'a, Arena>, Request);

/// A source of memory.
pub(crate) trait Source: Send + Sync {
    /// Returns whether it serves the misses in this arena under the current settings.
    fn serves(&self, arena: &Arena) -> bool;

    /// Returns the arena that serves a stream's request, and the request adapted to that arena, given the arena that
    /// would serve it without this source.
    fn enter<'a>(&self, _context: &'a Context, entry: Entry<'a>, _stream: StreamId) -> Entry<'a> {
        entry
    }

    /// Returns the number of bytes to request from the driver if no block serves the request.
    fn segment_size(&self, context: &Context, arena: &Arena, request: &Request) -> u64 {
        arena.config().segment(request, context.driver.properties().largest_allocation)
    }

    /// Returns whether no rung of the ladder can make the driver return this many bytes. The cache is then left alone.
    fn is_hopeless(&self, context: &Context, size: u64) -> bool {
        size > context.driver.properties().largest_allocation
    }

    /// Makes memory for a request and allocates its block there.
    ///
    /// # Errors
    /// [`Failure`](super::context::Failure). No memory is lost then.
    fn grow(&self, context: &Context, wanted: &Wanted<'_>) -> Grown;

    /// Gives the free memory of an arena's pool back to the driver, as far as it comes from this source.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if waiting or unmapping failed. Memory that is not given back stays
    /// free.
    fn release(&self, context: &Context, arena: &OwnedLock<Arena>, pool: PoolKind) -> Result<()>;
}

/// A request that no free block serves.
pub(crate) struct Wanted<'a> {
    pub(crate) parameters: Parameters,
    pub(crate) source: &'a dyn Source,
    /// The number of bytes to take from the driver.
    pub(crate) segment_size: u64,
}
