//! Statistics: what a stream counts by itself, and the sums of a device, peaks included.

mod amounts;
mod counters;
mod device;
mod pair;

pub(crate) use self::amounts::PoolAmounts;
pub(crate) use self::counters::{Bounds, Counted, NeedsSettling, StreamCounters};
pub(crate) use self::device::DeviceStatistics;
pub(crate) use self::pair::Pair;
