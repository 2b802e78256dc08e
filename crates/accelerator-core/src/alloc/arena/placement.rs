//! How a policy other than best fit chooses blocks.

use std::any::Any;
use std::fmt::Debug;

use super::store::{AllocatedBlock, Count, Store};
use crate::alloc::blocks::{BlockId, SegmentId};
use crate::alloc::settings::Request;
use crate::alloc::stats::Counting;
use crate::types::StreamId;

/// The blocks of an arena that all streams share, and the policy that chooses among them.
///
/// It is object-safe, because the arena does not know the policy. The policy gets its own type back from
/// [`Arena::placement`](super::Arena::placement).
pub(crate) trait Placement: Any + Debug + Send {
    fn store(&self) -> &Store;
    fn store_mut(&mut self) -> &mut Store;

    /// Allocates free bytes, if nothing else needs to be done before or after. `request` is not adapted to the arena.
    fn take_at_once(&mut self, request: &Request, stream: StreamId) -> Option<AllocatedBlock>;

    /// Makes a block free, if nothing else needs to be done. Returns whether it did.
    fn free_at_once(&mut self, id: BlockId) -> bool;

    /// Allocates free bytes, if that needs neither the driver nor another stream.
    fn take(&mut self, request: &Request, stream: StreamId) -> Counting<Option<AllocatedBlock>>;

    /// Makes a block free and counts it with `count`.
    fn put_back(&mut self, id: BlockId, count: Count) -> Counting;

    /// Returns whether the settings limit which blocks are split and which requests they serve.
    fn limits_splits(&self) -> bool;

    /// Returns the stream that a block was allocated on.
    fn stream_of(&self, id: BlockId) -> StreamId;

    /// Returns the stream that a segment serves.
    fn stream_of_segment(&self, segment: SegmentId) -> StreamId;

    /// Returns the free bytes of the chunks that are partly in use.
    fn free_in_used_chunks(&self) -> u64;

    /// Returns whether it has any address range.
    fn has_ranges(&self) -> bool;

    /// Checks what the policy knows about its blocks.
    ///
    /// # Panics
    /// If anything is wrong.
    #[cfg(debug_assertions)]
    fn check(&self);

    /// Returns the address ranges at which memory is mapped a second time, each as a segment with its blocks.
    fn aliases(&self) -> Vec<(SegmentId, Vec<BlockId>)>;
}
