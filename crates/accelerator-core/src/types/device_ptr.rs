use std::fmt::Debug;
use std::hash::Hash;

/// A location in device memory: an address, or a buffer handle plus an offset (OpenCL). At most 24 bytes, aligned to 8 at most.
pub trait DevicePtr: Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// The location `bytes` further on, in the same driver allocation.
    fn offset(self, bytes: u64) -> Self;

    /// A number for traces and snapshots, unique among the locations that are live: [`offset`](Self::offset) moves it by as many
    /// bytes. Never dereferenced.
    fn trace_address(self) -> u64;
}
