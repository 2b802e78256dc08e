/// What an entry of a history tells, as PyTorch has it: `action` of an element of `device_traces`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceAction {
    /// A block was allocated.
    Alloc,
    /// A block was freed by its user.
    FreeRequested,
    /// And no other stream uses it any more.
    FreeCompleted,
    /// A segment was taken from the driver.
    SegmentAlloc,
    /// A segment goes back to the driver.
    SegmentFree,
    /// Pages were mapped into an expandable segment.
    SegmentMap,
    /// Pages of an expandable segment go back to the driver.
    SegmentUnmap,
    /// Somebody looked: [`CachingAllocator::snapshot`](crate::CachingAllocator::snapshot).
    Snapshot,
    /// A request failed for lack of memory.
    OutOfMemory {
        /// Bytes that the device had free, as far as it tells.
        device_free: u64,
    },
    /// One that is not known here, of a file that somebody else wrote. Never recorded.
    Other,
}

impl TraceAction {
    /// PyTorch's word for it; of what is not known here, `other`.
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
