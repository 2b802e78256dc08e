//! The interface of a source of memory, and the requests made to it.

use super::context::{Context, Grown};
use crate::alloc::arena::{AllocatedBlock, Arena, ArenaId};
use crate::alloc::arenas::Parameters;
use crate::alloc::blocks::{Base, PageRange};
use crate::alloc::settings::Request;
use crate::share::Piece;
use crate::sync::{Guard, OwnedLock};
use crate::types::{DriverResult, PoolKind, Result, StreamId};

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

    /// Allocates free memory that the source keeps for other requests, because the request would fail otherwise.
    fn last_resort(&self, _context: &Context, _wanted: &Wanted<'_>) -> Option<AllocatedBlock> {
        None
    }

    /// Gives the free memory of an arena's pool back to the driver, as far as it comes from this source.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if waiting or unmapping failed. Memory that is not given back stays
    /// free.
    fn release(&self, context: &Context, arena: &OwnedLock<Arena>, pool: PoolKind) -> Result<()>;

    /// Gives back addresses of an arena where nothing is mapped. No request may come to the arena any more.
    fn release_unused_addresses(&self, _context: &Context, _arena: ArenaId) {}

    /// Returns where the pages of an arena are, paused or not, as far as it can be paused: runs of adjacent pages, each
    /// with the start of its reservation, the offset from there, and the length.
    fn page_runs(&self, _arena: ArenaId) -> Vec<(Base, u64, u64)> {
        Vec::new()
    }

    /// Returns the bytes of an arena that went back to the driver while they are paused.
    fn paused_bytes(&self, _arena: ArenaId) -> u64 {
        0
    }

    /// Exports the pages that contain these bytes of a segment. Returns them, and the offset of the bytes in the first
    /// one; `None` if the segment has no pages of this source.
    ///
    /// # Errors
    /// The driver's error.
    fn export(
        &self,
        _context: &Context,
        _arena: ArenaId,
        _bytes: PageRange,
    ) -> Option<DriverResult<(Vec<Piece>, u64)>> {
        None
    }

    /// Gives the pages of an arena back to the driver, but not their addresses and blocks. Nothing may use them.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver). The rest of the pages stays mapped then.
    fn pause(&self, _context: &Context, _arena: ArenaId) -> Result<()> {
        Ok(())
    }

    /// Maps new pages at the addresses of an arena's paused pages.
    ///
    /// # Errors
    /// [`Failure`](super::context::Failure). The rest of the pages stays paused then.
    fn resume(&self, _context: &Context, _arena: ArenaId, _limits: Limits) -> Grown<()> {
        Ok(())
    }
}

/// Whether the limits on memory hold for paused pages that come back.
#[derive(Clone, Copy)]
pub(crate) enum Limits {
    Hold,
    /// The pages went just now, in a pause that failed. A lower limit than before takes no memory from a program, so it
    /// does not take these either.
    Lifted,
}

/// A request that no free block serves.
pub(crate) struct Wanted<'a> {
    pub(crate) parameters: Parameters,
    pub(crate) source: &'a dyn Source,
    /// The number of bytes to take from the driver.
    pub(crate) segment_size: u64,
}
