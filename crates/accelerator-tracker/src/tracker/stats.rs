use std::time::Duration;

use accelerator::Statistics;
use serde::{Deserialize, Serialize};

use super::summary::Summary;

/// The data that a tracker recorded in one run, in bytes. Only PyTorch's files use MiB.
///
/// It contains everything that pictures need. A point of a curve is an element of [`operators`](Self::operators), whose
/// index is its position on PyTorch's axis "# Operator Calls". A [`Marker`] comes before the operator at its position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackerStats {
    /// The device, such as `host:0`, if known. PyTorch's files do not contain it.
    pub device: Option<String>,
    /// The memory of the device, if known.
    pub total_memory: Option<u64>,
    /// The memory in use at the start of the run, if known. The first operator is counted relative to it.
    pub start: Option<MemoryUse>,
    /// The operators, in the order in which they were recorded.
    pub operators: Vec<OperatorStats>,
    /// The markers, in the order in which they were set.
    pub markers: Vec<Marker>,
    /// How often the allocator released cached memory and retried during the run. PyTorch's files count from the start
    /// of the process.
    pub num_alloc_retries: u64,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorStats {
    /// Its module, its name, and the number of operators with that name before it, such as `layers.3.forward.addmm_0`.
    pub name: String,
    /// When it was recorded, from the start of the run, if known.
    pub time: Option<Duration>,
    /// The memory in use after it.
    pub memory: MemoryUse,
}

/// The memory of a device that was in use at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Bytes in live allocations.
    pub allocated: u64,
    /// Bytes in live allocations, and in freed ones that streams still used.
    pub active: u64,
    /// Bytes reserved from the device.
    pub reserved: u64,
}

/// A moment with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its name. Several markers may have the same name. PyTorch's tracker keeps only the last.
    pub name: String,
    /// The number of operators before it.
    pub position: usize,
    /// The time from the start of the run until it was set, if known.
    pub time: Option<Duration>,
}

/// The marker at the start of the forward pass, with PyTorch's name.
pub const FORWARD_START: &str = "fw_start";
/// The marker between the forward and the backward pass, with PyTorch's name. PyTorch's figures show it in red.
pub const FORWARD_BACKWARD_BOUNDARY: &str = "fw_bw_boundary";

impl TrackerStats {
    /// Returns the 20 operators that used the most memory, and the number of allocator retries. PyTorch:
    /// `MemoryTracker.summary()`.
    pub fn summary(&self) -> Summary {
        self.summary_top(Summary::DEFAULT_TOP)
    }

    /// Returns the [`summary`](Self::summary) with at most `top` operators. PyTorch: `MemoryTracker.summary(top)`.
    pub fn summary_top(&self, top: usize) -> Summary {
        Summary::new(self, top)
    }
}

impl MemoryUse {
    /// Amounts of memory are below this, so their differences fit into an `i64`.
    pub(super) const END: u64 = 1 << 63;

    /// Returns whether a device can have this much memory.
    pub(super) fn is_possible(&self) -> bool {
        [self.allocated, self.active, self.reserved].iter().all(|&amount| amount < Self::END)
    }
}

impl From<&Statistics> for MemoryUse {
    fn from(statistics: &Statistics) -> Self {
        let current = |stat: accelerator::PoolStat| stat.all.current.unsigned_abs(); // never negative
        Self {
            allocated: current(statistics.allocated_bytes),
            active: current(statistics.active_bytes),
            reserved: current(statistics.reserved_bytes),
        }
    }
}
