//! How blocks are chosen where that is not PyTorch's best fit.

use std::any::Any;
use std::fmt::Debug;

use super::store::{AllocatedBlock, Count, Store};
use crate::alloc::blocks::{Block, BlockId, SegmentId};
use crate::alloc::settings::Request;
use crate::alloc::stats::NeedsSettling;
use crate::types::StreamId;

/// Chooses the blocks of an arena that all streams share, and keeps what it must know for that.
///
/// Object-safe, since the arena names no policy; who brings one gets its own type back from
/// [`Arena::parts`](super::Arena::parts).
pub(crate) trait Placement: Any + Debug + Send {
    /// Allocates free bytes, if that needs neither the driver nor another stream.
    fn take(
        &mut self,
        store: &mut Store,
        request: &Request,
        stream: StreamId,
    ) -> Result<Option<AllocatedBlock>, NeedsSettling>;

    /// Makes a block free that `count` counts.
    fn put_back(&mut self, store: &mut Store, id: BlockId, count: Count) -> Result<(), NeedsSettling>;

    /// The stream that a block was allocated on.
    fn stream_of(&self, block: &Block) -> StreamId;

    /// The stream that a segment serves; `None`: none in particular.
    fn stream_of_segment(&self, segment: SegmentId) -> Option<StreamId>;

    /// The addresses at which the same memory shows once more, as far as there are blocks.
    fn aliases(&self) -> Vec<Alias>;
}

/// Addresses at which memory of several segments shows once more.
#[derive(Debug)]
pub(crate) struct Alias {
    pub(crate) segment: SegmentId,
    pub(crate) len: u64,
    pub(crate) blocks: Vec<BlockId>,
}
