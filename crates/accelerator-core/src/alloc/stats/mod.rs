//! Statistics: the counters of each stream, and the sums of a device, including peaks.

mod amounts;
mod counters;
mod device;
mod headroom;
mod packed;
mod pair;

#[cfg(debug_assertions)]
pub(crate) use self::amounts::Amounts;
pub(crate) use self::amounts::PoolAmounts;
pub(crate) use self::counters::{Counted, Counting, NeedsSettling, StreamCounters};
pub(crate) use self::device::DeviceStatistics;
pub(crate) use self::packed::Packed;
pub(crate) use self::pair::Pair;
