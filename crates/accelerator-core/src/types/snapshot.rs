use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Device, MemPoolId, PoolKind, StreamId};

/// All segments and blocks of an allocator at one moment. PyTorch: `torch.cuda.memory_snapshot`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The segments, sorted by address.
    pub segments: Vec<SegmentSnapshot>,
    /// Under the policy `compact`, the ranges at which memory of segments is mapped a second time. Each has its blocks
    /// that are not free: their bytes are [`Aliased`](BlockState::Aliased) in the segments.
    pub aliases: Vec<SegmentSnapshot>,
    /// The names of the private pools that have one.
    pub pool_names: BTreeMap<MemPoolId, Arc<str>>,
}

/// One driver allocation, or one range of mapped pages of an expandable segment, and its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// The device.
    pub device: Device,
    /// [`DevicePtr::trace_address`](crate::DevicePtr::trace_address) of its start.
    pub address: u64,
    /// The number of the segment in the order of creation in this allocator, from 0.
    pub created: u64,
    /// The stream that its blocks serve.
    pub stream: StreamId,
    /// The pool that its blocks serve.
    pub pool: PoolKind,
    /// The memory pool that it belongs to. PyTorch: `segment_pool_id`.
    pub mem_pool: MemPoolId,
    /// Whether it consists of pages of an expandable segment. All ranges of such a segment have the same number.
    pub expandable: bool,
    /// Whether its memory is paused: its pages are back with the driver.
    pub paused: bool,
    /// Bytes held from the driver, or paused.
    pub total_size: u64,
    /// Bytes of allocated blocks.
    pub allocated_size: u64,
    /// Bytes of blocks that are allocated or still in use by a stream.
    pub active_size: u64,
    /// Bytes that were requested for the active blocks.
    pub requested_size: u64,
    /// The blocks, sorted by address. Together they make up the segment, unless it is one of [`Snapshot::aliases`].
    pub blocks: Vec<BlockSnapshot>,
}

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSnapshot {
    /// [`DevicePtr::trace_address`](crate::DevicePtr::trace_address) of its start.
    pub address: u64,
    /// The size of the block in bytes.
    pub size: u64,
    /// Bytes that were requested; for a free block, by the last request that it served.
    pub requested_size: u64,
    /// The state of the block.
    pub state: BlockState,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Allocated. PyTorch: `active_allocated`.
    Allocated,
    /// Freed, but a stream has not finished using it. PyTorch: `active_pending_free`, in `_dump_snapshot`
    /// `active_awaiting_free`.
    PendingFree,
    /// Free. PyTorch: `inactive`.
    Inactive,
    /// In use by a block of [`Snapshot::aliases`]. PyTorch has no such state.
    Aliased,
}

impl BlockState {
    /// PyTorch's name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocated => "active_allocated",
            Self::PendingFree => "active_pending_free",
            Self::Inactive => "inactive",
            Self::Aliased => "active_aliased",
        }
    }

    /// Whether the block is allocated or still in use by a stream.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Allocated | Self::PendingFree)
    }
}
