//! What a source of memory does, and what it is asked for.

use super::context::{Context, Failure};
use crate::alloc::arena::{AllocatedBlock, Arena};
use crate::alloc::arenas::Parameters;
use crate::alloc::settings::Request;
use crate::sync::OwnedLock;
use crate::types::{PoolKind, Result};

/// A source of memory.
pub(crate) trait Source: Send + Sync {
    /// Bytes to ask the driver for, if no block serves the request.
    fn segment_size(&self, context: &Context, arena: &Arena, request: &Request) -> u64 {
        arena.config().segment(request, context.driver.properties().largest_allocation)
    }

    /// Whether no rung of the ladder can make the driver give so many bytes: the cache is left alone then.
    fn is_hopeless(&self, context: &Context, size: u64) -> bool {
        size > context.driver.properties().largest_allocation
    }

    /// Makes memory for a request, and allocates it there.
    ///
    /// # Errors
    /// [`Failure`]. Nothing is lost then.
    fn grow(&self, context: &Context, wanted: &Wanted<'_>) -> Result<AllocatedBlock, Failure>;

    /// Gives the free memory of an arena's pool back to the driver.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where waiting or unmapping failed; what is still there is free as before.
    fn release(&self, context: &Context, arena: &OwnedLock<Arena>, pool: PoolKind) -> Result<()>;
}

/// A request that no free block serves.
pub(crate) struct Wanted<'a> {
    pub(crate) parameters: Parameters,
    pub(crate) source: &'a dyn Source,
    /// Bytes to take from the driver.
    pub(crate) segment: u64,
}
