//! Statistics, peaks and limits.
#![allow(unsafe_code)] // exported functions

use std::ffi::{c_int, c_void};

use accelerator_core::{PoolStat, Stat};

use crate::boundary::{or, status};
use crate::devices::{config, device, if_open};
use crate::pools::PoolNumber;

/// The number of numbers of [`accelerator_torch_statistics`].
const NUMBERS: usize = 9 * 3 * 4 + 2 * 4 + 7;

/// Writes the statistics in the order of PyTorch's `DeviceStats`: first those of pools, each for all, the small and the
/// large pool, and each of these as current, peak, allocated and freed; then both oversize ones; then the counters. All
/// are 0 for a device that is not in use yet.
///
/// # Safety
/// `numbers` has 123 numbers, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_statistics(index: c_int, numbers: *mut i64) -> c_int {
    status(|| {
        let s = if_open(index).map(|device| device.allocator().statistics()).unwrap_or_default();
        let pools = [
            s.allocation,
            s.segment,
            s.active,
            s.inactive_split,
            s.allocated_bytes,
            s.reserved_bytes,
            s.active_bytes,
            s.inactive_split_bytes,
            s.requested_bytes,
        ];
        let oversize = [s.oversize_allocations, s.oversize_segments].map(numbers_of);
        let counters = [
            s.num_alloc_retries,
            s.num_ooms,
            s.num_sync_all_streams,
            s.num_device_alloc,
            s.num_device_free,
            s.num_oom_rejections,
            s.max_split_size,
        ];
        let all = pools.into_iter().flat_map(of_pools).chain(oversize.into_iter().flatten()).chain(counters);
        // SAFETY: The caller's promise.
        let numbers = unsafe { std::slice::from_raw_parts_mut(numbers, NUMBERS) };
        numbers.iter_mut().zip(all).for_each(|(place, number)| *place = number);
        Ok(())
    })
}

fn of_pools(stat: PoolStat) -> impl Iterator<Item = i64> {
    [stat.all, stat.small_pool, stat.large_pool].into_iter().flat_map(numbers_of)
}

fn numbers_of(stat: Stat) -> [i64; 4] {
    [stat.current, stat.peak, stat.allocated, stat.freed]
}

/// Called with each private pool and twelve numbers: its reserved bytes, as in [`accelerator_torch_statistics`].
type Visit = extern "C" fn(*mut c_void, PoolNumber, *const i64);

/// Shows the bytes that private pools have reserved.
///
/// # Safety
/// `visit` may be called with `state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_reserved_by_pools(index: c_int, visit: Visit, state: *mut c_void) -> c_int {
    status(|| {
        for (pool, stat) in if_open(index).into_iter().flat_map(|device| device.allocator().reserved_by_private_pools())
        {
            let numbers: Vec<i64> = of_pools(stat).collect();
            visit(state, PoolNumber::of(pool), numbers.as_ptr());
        }
        Ok(())
    })
}

/// Lowers the peaks to the current values.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_reset_peaks(index: c_int) -> c_int {
    status(|| {
        if let Some(device) = if_open(index) {
            device.allocator().reset_peak_statistics();
        }
        Ok(())
    })
}

/// Sets the sums of increases and decreases to zero.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_reset_accumulated(index: c_int) -> c_int {
    status(|| {
        if let Some(device) = if_open(index) {
            device.allocator().reset_accumulated_statistics();
        }
        Ok(())
    })
}

/// Limits the allocator to a fraction of the device's memory.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_set_memory_fraction(index: c_int, fraction: f64) -> c_int {
    status(|| device(index)?.allocator().set_memory_fraction(fraction))
}

/// Returns the limit as a fraction of the device's memory.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_memory_fraction(index: c_int) -> f64 {
    or(1.0, || match if_open(index) {
        Some(device) => device.allocator().memory_fraction(),
        None => config().memory_fraction,
    })
}

/// Returns the bytes of the largest block that could be allocated. PyTorch: `cacheInfo`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_largest(index: c_int) -> u64 {
    or(0, || device(index).and_then(|device| device.allocator().largest_available()).unwrap_or(0))
}
