//! Timestamps that the device writes.
#![allow(unsafe_code)] // calls into the driver

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{DeviceClock, Pool, Pooled, Timestamp, get_mut, lock};
use ash::vk;

use crate::device::Device;

/// The number of queries in a pool.
const QUERIES: u32 = 64;

/// The queries of a device.
pub(crate) struct Timestamps {
    device: Arc<Device>,
    pools: Mutex<Vec<vk::QueryPool>>,
    unused: Arc<Pool<(vk::QueryPool, u32)>>,
}

/// A query for one record of an event. It is not used again before the work that writes it is over and no event has it.
pub(crate) struct Query {
    home: Arc<Timestamps>,
    /// The pool, and the number in it.
    place: Pooled<(vk::QueryPool, u32)>,
    submitted: Instant,
}

impl Timestamps {
    pub(crate) fn new(device: &Arc<Device>) -> Arc<Self> {
        Arc::new(Self { device: Arc::clone(device), pools: Mutex::default(), unused: Pool::new(usize::MAX) })
    }

    pub(crate) fn query(self: &Arc<Self>) -> DriverResult<Query> {
        let place = self.unused.take(|| {
            let description =
                vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(QUERIES);
            // SAFETY: The device lives as long as this value.
            let pool = unsafe { self.device.raw.create_query_pool(&description, None) };
            let pool = self.device.answer("vkCreateQueryPool", pool)?;
            lock(&self.pools).push(pool);
            (1..QUERIES).for_each(|number| self.unused.add((pool, number)));
            Ok((pool, 0))
        })?;
        Ok(Query { home: Arc::clone(self), place, submitted: Instant::now() })
    }
}

impl Query {
    /// Records a command that writes the time at which all earlier commands are done.
    ///
    /// # Safety
    /// * The command buffer is being recorded, and the query lives until it is done.
    pub(crate) unsafe fn write(&self, commands: vk::CommandBuffer) {
        let (raw, (pool, number)) = (&self.home.device.raw, *self.place);
        // SAFETY: No other work uses the query.
        unsafe { raw.cmd_reset_query_pool(commands, pool, number, 1) };
        let last = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: The query was reset, and queues of this family write timestamps.
        unsafe { raw.cmd_write_timestamp(commands, last, pool, number) };
    }

    /// Returns the nanoseconds from this query to another; negative if that came first. Both were written.
    pub(crate) fn nanoseconds_to(&self, end: &Self, same_stream: bool) -> DriverResult<i64> {
        let device = &self.home.device;
        let clock = DeviceClock::with_period(device.family.timestamp_bits, device.limits.timestamp_period);
        Ok(clock.elapsed_ns(self.timestamp()?, end.timestamp()?, same_stream))
    }

    fn timestamp(&self) -> DriverResult<Timestamp> {
        let (device, (pool, number)) = (&self.home.device, *self.place);
        let (mut ticks, flags) = ([0_u64], vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT);
        // SAFETY: The pool is alive and has the query, which work that is done has written.
        let read = unsafe { device.raw.get_query_pool_results(pool, number, &mut ticks, flags) };
        device.answer("vkGetQueryPoolResults", read)?;
        Ok(Timestamp { ticks: ticks[0], submitted: self.submitted })
    }
}

impl Drop for Timestamps {
    fn drop(&mut self) {
        for pool in get_mut(&mut self.pools).drain(..) {
            // SAFETY: Each query keeps this value alive, so no work uses the pool.
            self.device.destroy(|raw| unsafe { raw.destroy_query_pool(pool, None) });
        }
    }
}

impl fmt::Debug for Timestamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timestamps").finish_non_exhaustive()
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Query").field(&*self.place).finish()
    }
}
