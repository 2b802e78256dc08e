/// What an entry of a history records. PyTorch: `action` of an element of `device_traces`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceAction {
    /// A block was allocated.
    Alloc,
    /// A block was freed by its user.
    FreeRequested,
    /// A freed block is no longer used by any stream.
    FreeCompleted,
    /// A segment was allocated from the driver.
    SegmentAlloc,
    /// A segment was returned to the driver.
    SegmentFree,
    /// Pages were mapped into an expandable segment.
    SegmentMap,
    /// Pages of an expandable segment were returned to the driver.
    SegmentUnmap,
    /// A snapshot was taken: [`CachingAllocator::snapshot`](crate::CachingAllocator::snapshot).
    Snapshot,
    /// A request ran out of memory.
    OutOfMemory {
        /// The free memory of the device in bytes, if the driver reports it.
        device_free: u64,
    },
    /// An unknown action, in a file that another program wrote. Never recorded.
    Other,
}

impl TraceAction {
    /// PyTorch's name of the action; `other` for an unknown one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::OutOfMemory { .. } => "oom",
            Self::Other => "other",
        }
    }
}
