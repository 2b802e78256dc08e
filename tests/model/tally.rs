//! The expected statistics.

use accelerator_core::{PoolStat, Stat, Statistics};

/// The statistics that the model counts. The others stay zero.
#[derive(Debug, Default)]
pub(crate) struct Tally(pub(crate) Statistics);

impl Tally {
    pub(crate) fn change(&mut self, quantity: fn(&mut Statistics) -> &mut PoolStat, small: bool, amount: i64) {
        let PoolStat { all, small_pool, large_pool } = quantity(&mut self.0);
        change(all, amount);
        change(if small { small_pool } else { large_pool }, amount);
    }

    pub(crate) fn change_oversize_allocations(&mut self, amount: i64) {
        change(&mut self.0.oversize_allocations, amount);
    }

    pub(crate) fn change_oversize_segments(&mut self, amount: i64) {
        change(&mut self.0.oversize_segments, amount);
    }

    pub(crate) fn reset_peaks(&mut self) {
        self.each(|stat| stat.peak = stat.current);
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.each(|stat| (stat.allocated, stat.freed) = (0, 0));
    }

    fn each(&mut self, change: fn(&mut Stat)) {
        let Statistics { allocation, segment, active, .. } = &mut self.0;
        for stat in [allocation, segment, active] {
            each_pool(stat, change);
        }
        let Statistics { allocated_bytes, reserved_bytes, active_bytes, requested_bytes, .. } = &mut self.0;
        for stat in [allocated_bytes, reserved_bytes, active_bytes, requested_bytes] {
            each_pool(stat, change);
        }
        change(&mut self.0.oversize_allocations);
        change(&mut self.0.oversize_segments);
    }
}

fn each_pool(PoolStat { all, small_pool, large_pool }: &mut PoolStat, change: fn(&mut Stat)) {
    [all, small_pool, large_pool].into_iter().for_each(change);
}

fn change(stat: &mut Stat, amount: i64) {
    stat.current += amount;
    stat.peak = stat.peak.max(stat.current);
    stat.allocated += amount.max(0);
    stat.freed += (-amount).max(0);
}
