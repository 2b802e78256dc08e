//! Timestamps that the device writes.
#![allow(unsafe_code)] // calls into the driver

use std::fmt;
use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;
use ash::vk;

use crate::device::{Device, lock};

/// The number of queries in a pool.
const QUERIES: u32 = 64;

/// Queries of a device that no event uses.
pub(crate) struct Timestamps {
    device: Arc<Device>,
    queries: Mutex<Queries>,
}

#[derive(Default)]
struct Queries {
    pools: Vec<vk::QueryPool>,
    unused: Vec<(vk::QueryPool, u32)>,
}

/// A query, for one record of an event. It is not used again before the work that writes it is over and no event has it.
pub(crate) struct Timestamp {
    home: Arc<Timestamps>,
    pool: vk::QueryPool,
    query: u32,
}

impl Timestamps {
    pub(crate) fn new(device: &Arc<Device>) -> Arc<Self> {
        Arc::new(Self { device: Arc::clone(device), queries: Mutex::default() })
    }

    pub(crate) fn timestamp(self: &Arc<Self>) -> DriverResult<Timestamp> {
        let mut queries = lock(&self.queries);
        if queries.unused.is_empty() {
            let description = vk::QueryPoolCreateInfo::default()
                .query_type(vk::QueryType::TIMESTAMP)
                .query_count(QUERIES);
            // SAFETY: The device lives as long as this value.
            let pool = unsafe { self.device.raw.create_query_pool(&description, None) };
            let pool = self.device.answer("vkCreateQueryPool", pool)?;
            queries.pools.push(pool);
            queries.unused.extend((0..QUERIES).map(|query| (pool, query)));
        }
        let (pool, query) = queries.unused.swap_remove(0);
        Ok(Timestamp { home: Arc::clone(self), pool, query })
    }
}

impl Timestamp {
    /// Records a command that writes the time at which all earlier commands are done.
    ///
    /// # Safety
    /// * The command buffer is being recorded, and the timestamp lives until it is done.
    pub(crate) unsafe fn write(&self, commands: vk::CommandBuffer) {
        let raw = &self.home.device.raw;
        // SAFETY: No other work uses the query.
        unsafe { raw.cmd_reset_query_pool(commands, self.pool, self.query, 1) };
        let last = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: The query was reset, and queues of this family write timestamps.
        unsafe { raw.cmd_write_timestamp(commands, last, self.pool, self.query) };
    }

    /// Returns the nanoseconds from this timestamp to a later one; negative if that came first. Both were written.
    pub(crate) fn nanoseconds_to(&self, end: &Self) -> DriverResult<i64> {
        let device = &self.home.device;
        let ticks = difference(self.ticks()?, end.ticks()?, device.family.timestamp_bits);
        Ok((ticks as f64 * f64::from(device.limits.timestamp_period)).round() as i64)
    }

    fn ticks(&self) -> DriverResult<u64> {
        let device = &self.home.device;
        let (mut ticks, flags) = ([0_u64], vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT);
        // SAFETY: The pool is alive and has the query, which work that is done has written.
        let read = unsafe { device.raw.get_query_pool_results(self.pool, self.query, &mut ticks, flags) };
        device.answer("vkGetQueryPoolResults", read).map(|()| ticks[0])
    }
}

/// Subtracts two counters of this many bits, which wrap.
fn difference(start: u64, end: u64, bits: u32) -> i64 {
    let unused = 64_u32.saturating_sub(bits).min(63);
    (end.wrapping_sub(start) << unused).cast_signed() >> unused
}

impl Drop for Timestamp {
    fn drop(&mut self) {
        lock(&self.home.queries).unused.push((self.pool, self.query));
    }
}

impl Drop for Timestamps {
    fn drop(&mut self) {
        let queries = self.queries.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for pool in queries.pools.drain(..) {
            // SAFETY: Each timestamp keeps this value alive, so no work uses the pool.
            unsafe { self.device.raw.destroy_query_pool(pool, None) };
        }
    }
}

impl fmt::Debug for Timestamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timestamps").finish_non_exhaustive()
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timestamp").field(&self.pool).field(&self.query).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn counters_wrap() {
        for (start, end, bits, expected) in [
            (5, 7, 64, 2),
            (7, 5, 64, -2),
            (u64::MAX, 1, 64, 2),
            ((1 << 36) - 1, 2, 36, 3),
            (2, (1 << 36) - 1, 36, -3),
            (0, 1 << 34, 36, 1 << 34),
            (u32::MAX.into(), 0, 32, 1),
        ] {
            assert_eq!(difference(start, end, bits), expected, "{start} to {end} of {bits} bits");
        }
    }
}
