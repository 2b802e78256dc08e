//! The threads' own counts, for comparison with the allocator's statistics.

use accelerator_core::{Allocation, Backend, MIB, PoolStat, Stat, Statistics};

/// Blocks, their bytes, and their requested bytes.
pub(crate) type Amounts = [i64; 3];

/// The current and the peak amounts of one holder: of both pools, of the small pool and of the large pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holding {
    pub(crate) current: [Amounts; 3],
    pub(crate) peak: [Amounts; 3],
}

/// Total allocated and freed amounts, by pool as in [`Holding`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) allocated: [Amounts; 3],
    pub(crate) freed: [Amounts; 3],
    pub(crate) failed: i64,
}

/// A block as recorded by the thread that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
}

impl Held {
    pub(crate) fn of<B: Backend>(allocation: &Allocation<B>) -> Self {
        use accelerator_core::DevicePtr;
        let address = allocation.ptr().trace_address();
        Self { address, size: allocation.size(), requested: allocation.requested().get() }
    }

    fn add_to(self, amounts: &mut [Amounts; 3], sign: i64) {
        let pool = if self.requested <= MIB { 1 } else { 2 };
        for pool in [0, pool] {
            let more = [1, self.size as i64, self.requested as i64];
            amounts[pool] = [0, 1, 2].map(|index| amounts[pool][index] + sign * more[index]);
        }
    }
}

impl Holding {
    pub(crate) fn add(&mut self, held: Held) {
        held.add_to(&mut self.current, 1);
        self.peak = each(self.peak, self.current, i64::max);
    }

    pub(crate) fn remove(&mut self, held: Held) {
        held.add_to(&mut self.current, -1);
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// Combines two holders. Their peaks need not have been simultaneous.
    pub(crate) fn and(self, other: Self) -> Self {
        let current = each(self.current, other.current, |one, other| one + other);
        Self { current, peak: each(self.peak, other.peak, |one, other| one + other) }
    }
}

impl Totals {
    pub(crate) fn allocated(&mut self, held: Held) {
        held.add_to(&mut self.allocated, 1);
    }

    pub(crate) fn freed(&mut self, held: Held) {
        held.add_to(&mut self.freed, 1);
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            allocated: each(self.allocated, other.allocated, |one, other| one + other),
            freed: each(self.freed, other.freed, |one, other| one + other),
            failed: self.failed + other.failed,
        }
    }
}

/// Returns the allocation statistics as amounts by pool.
pub(crate) fn allocated(statistics: &Statistics, value: fn(&Stat) -> i64) -> [Amounts; 3] {
    let of = |pools: &PoolStat| [&pools.all, &pools.small_pool, &pools.large_pool].map(value);
    let stats = [&statistics.allocation, &statistics.allocated_bytes, &statistics.requested_bytes].map(of);
    [0, 1, 2].map(|pool| stats.map(|stat| stat[pool]))
}

pub(crate) fn each(one: [Amounts; 3], other: [Amounts; 3], with: fn(i64, i64) -> i64) -> [Amounts; 3] {
    [0, 1, 2].map(|pool| [0, 1, 2].map(|index| with(one[pool][index], other[pool][index])))
}
