//! Plain values that every layer uses: devices, sizes, statistics, errors.

#[macro_use]
mod debug;
mod device;
mod device_ptr;
mod driver_error;
mod error;
mod host_stats;
mod mem_pool_id;
mod mem_pool_info;
mod oom;
mod pool_file;
mod printable;
mod sharing;
mod size;
mod snapshot;
mod stats;
mod trace_action;

pub use device::{
    Device, DeviceCapability, DeviceKind, DeviceProperties, MemoryInfo, MemoryInfoSource, PciAddress, Uuid,
};
pub use device_ptr::DevicePtr;
pub use driver_error::{DriverError, DriverErrorKind, DriverResult, Unavailable};
pub(crate) use error::check_bounds;
pub use error::{Error, Result};
pub use host_stats::{DurationStat, HostStatistics};
pub use mem_pool_id::MemPoolId;
pub use mem_pool_info::MemPoolInfo;
pub(crate) use mem_pool_info::is_pool_name;
pub use oom::{HostOutOfMemory, OutOfMemory, OutOfMemoryCause};
pub use pool_file::PoolFileError;
pub use printable::printable;
pub use sharing::SharingProblem;
pub use size::{Bytes, GIB, KIB, MIB, parse_bytes};
pub use snapshot::{BlockSnapshot, BlockState, SegmentSnapshot, Snapshot};
pub use stats::{PoolKind, PoolStat, Stat, Statistics};
pub use trace_action::TraceAction;

/// The number of a stream among the streams of its device. The core assigns it: 0 is the default stream, and the others
/// increase and are never reused. It is not a driver handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// The default stream of every device.
    pub const DEFAULT: Self = Self(0);
    /// Not a stream: stands for what no single stream has.
    pub(crate) const SHARED: Self = Self(u32::MAX);

    /// The stream with this number, whether or not a device has it.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
