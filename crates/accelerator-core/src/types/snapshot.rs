use super::{Device, PoolKind, StreamId};

/// All segments and blocks of an allocator at one moment. PyTorch: `torch.cuda.memory_snapshot`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The segments by address.
    pub segments: Vec<SegmentSnapshot>,
    /// Under the policy `compact`, addresses where memory of segments shows once more, each with those of its blocks that are not
    /// free: their bytes are [`Aliased`](BlockState::Aliased) in the segments.
    pub aliases: Vec<SegmentSnapshot>,
}

/// One driver allocation, or one range of mapped pages of an expandable segment, and what it is cut into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// The device.
    pub device: Device,
    /// [`DevicePtr::trace_address`](crate::DevicePtr::trace_address) of its start.
    pub address: u64,
    /// Its number in the order in which the segments of this allocator were made, from 0.
    pub created: u64,
    /// The stream that its blocks serve.
    pub stream: StreamId,
    /// The pool that its blocks serve.
    pub pool: PoolKind,
    /// Whether it is pages of an expandable segment, all of whose ranges have its number.
    pub expandable: bool,
    /// Bytes from the driver.
    pub total_size: u64,
    /// Bytes of allocated blocks.
    pub allocated_size: u64,
    /// Bytes of blocks allocated or still in use by a stream.
    pub active_size: u64,
    /// Bytes that were asked for, of the active blocks.
    pub requested_size: u64,
    /// Its blocks by address; together they are the segment, unless it is of [`Snapshot::aliases`].
    pub blocks: Vec<BlockSnapshot>,
}

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSnapshot {
    /// [`DevicePtr::trace_address`](crate::DevicePtr::trace_address) of its start.
    pub address: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes that were asked for; of a free block, what the last request it served asked for.
    pub requested_size: u64,
    /// Its state.
    pub state: BlockState,
}

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Allocated. PyTorch: `active_allocated`.
    Allocated,
    /// Freed, but a stream that used it has not come past its use. PyTorch: `active_pending_free`, in
    /// `_dump_snapshot` `active_awaiting_free`.
    PendingFree,
    /// Free. PyTorch: `inactive`.
    Inactive,
    /// In use by a block of [`Snapshot::aliases`]. PyTorch has none.
    Aliased,
}

impl BlockState {
    /// PyTorch's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocated => "active_allocated",
            Self::PendingFree => "active_pending_free",
            Self::Inactive => "inactive",
            Self::Aliased => "active_aliased",
        }
    }

    /// Whether a block has its bytes from here: it is allocated, or a stream still uses it.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Allocated | Self::PendingFree)
    }
}
