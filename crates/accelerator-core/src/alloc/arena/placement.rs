//! How blocks are chosen where that is not PyTorch's best fit.

use std::any::Any;
use std::fmt::Debug;

use super::store::{AllocatedBlock, Count, Store};
use crate::alloc::blocks::{BlockId, SegmentId};
use crate::alloc::settings::Request;
use crate::alloc::stats::NeedsSettling;
use crate::types::StreamId;

/// The blocks of an arena that all streams share, and how they are chosen.
///
/// Object-safe, since the arena names no policy; who brings one gets its own type back from
/// [`Arena::placement`](super::Arena::placement).
pub(crate) trait Placement: Any + Debug + Send {
    fn store(&self) -> &Store;
    fn store_mut(&mut self) -> &mut Store;

    /// Allocates free bytes, if that needs neither the driver nor another stream.
    fn take(&mut self, request: &Request, stream: StreamId) -> Result<Option<AllocatedBlock>, NeedsSettling>;

    /// Makes a block free that `count` counts.
    fn put_back(&mut self, id: BlockId, count: Count) -> Result<(), NeedsSettling>;

    /// The stream that a block was allocated on.
    fn stream_of(&self, id: BlockId) -> StreamId;

    /// The stream that a segment serves.
    fn stream_of_segment(&self, segment: SegmentId) -> StreamId;

    /// The addresses at which the same memory shows once more, as far as there are blocks: a segment each.
    fn aliases(&self) -> Vec<(SegmentId, Vec<BlockId>)>;
}
