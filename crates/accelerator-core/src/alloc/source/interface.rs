//! The interface of a source of memory, and the requests made to it.

use super::context::{Context, Failure};
use crate::alloc::arena::{AllocatedBlock, Arena};
use crate::alloc::arenas::Parameters;
use crate::alloc::settings::Request;
use crate::sync::OwnedLock;
use crate::types::{PoolKind, Result};

/// A source of memory.
pub(crate) trait Source: Send + Sync {
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
    /// [`Failure`]. No memory is lost then.
    fn grow(&self, context: &Context, wanted: &Wanted<'_>) -> Result<AllocatedBlock, Failure>;

    /// Gives the free memory of an arena's pool back to the driver.
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
    pub(crate) segment: u64,
}
