use std::fmt::Debug;
use std::hash::Hash;

/// A location in device memory: an address, or a buffer handle and an offset (OpenCL). The type has at most 24 bytes
/// and an alignment of at most 8.
pub trait DevicePtr: Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// The location `bytes` further on, in the same driver allocation.
    fn offset(self, bytes: u64) -> Self;

    /// A number for traces and snapshots, unique among live locations. [`offset`](Self::offset) by a number of bytes
    /// adds that number. Never dereferenced.
    fn trace_address(self) -> u64;
}
