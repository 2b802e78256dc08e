//! What the arenas of a private pool have in common.

use std::fmt;
use std::sync::Arc;

use super::DetachedSegment;
use crate::alloc::blocks::Base;
use crate::types::{DriverResult, MemPoolId};

/// The private pool that an arena belongs to.
#[derive(Clone, Default)]
pub(crate) struct Private {
    /// [`MemPoolId::DEFAULT`] if it belongs to none.
    pub(crate) pool: MemPoolId,
    /// Whether free blocks are handed out whole.
    pub(crate) whole: bool,
    /// Whether all of its memory is in small pages of virtual memory, whatever the settings, so that it can be paused.
    pub(crate) paged: bool,
    /// Where segments come from, if not from the driver.
    pub(crate) source: Option<Arc<dyn OwnSegments>>,
}

/// [`SegmentSource`](crate::SegmentSource) with its types erased.
pub(crate) trait OwnSegments: Send + Sync {
    fn alloc(&self, size: u64) -> DriverResult<Base>;

    fn dealloc(&self, segment: DetachedSegment);
}

impl fmt::Debug for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, whole, paged, source } = self;
        let own = source.is_some();
        write!(f, "Private {{ {pool}, whole: {whole}, paged: {paged}, own segments: {own} }}")
    }
}
