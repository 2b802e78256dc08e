//! Pinned host memory, which the device accesses directly. docs/architecture/pinned-memory.md has the decisions and
//! their reasons.
//!
//! From the bottom up: only [`memory`] calls the driver for memory; [`class`] keeps the free blocks; [`pending`] keeps
//! freed blocks that streams still use; [`background`] checks these on a thread; [`buffer`] is the users' interface.

mod background;
mod buffer;
mod class;
mod memory;
#[cfg(test)]
#[cfg(loom)]
mod models;
mod pending;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

pub use self::buffer::PinnedBuffer;
use self::class::Classes;
use self::memory::Block;
use self::pending::PendingUses;
use crate::alloc::HostSettings;
use crate::backend::Backend;
use crate::event::EventPool;
use crate::stream::Streams;
use crate::sync::InFlight;
use crate::sync::primitives::atomic::{AtomicBool, Ordering};
use crate::sync::primitives::{Mutex, lock};
use crate::types::{DriverError, DriverErrorKind, DriverResult, Error, HostOutOfMemory, HostStatistics, Result};

/// Allocates pinned host memory from a cache, by PyTorch's policy: the sizes of blocks are powers of two, blocks are
/// never split, and the block that was freed last is reused first.
///
/// For the same calls from one thread, statistics and blocks equal those of PyTorch's own `CachingHostAllocator`. Any
/// thread may call any function at any time. No lock that an allocation or a free waits for is held across a driver
/// call.
pub struct CachingHostAllocator<B: Backend> {
    /// The streams of the device that the memory is pinned for.
    streams: &'static Streams<B>,
    settings: Arc<HostSettings>,
    classes: Classes,
    pending: PendingUses<B>,
    /// Whether the driver has ever returned memory.
    used: AtomicBool,
    /// Statistics of the memory held from the driver. The classes count the active blocks.
    statistics: Mutex<HostStatistics>,
    /// Whether the background thread is running.
    background: AtomicBool,
    /// Blocks on their way back to the driver.
    returning: InFlight,
}

impl<B: Backend> CachingHostAllocator<B> {
    pub(crate) fn new(streams: &'static Streams<B>, settings: Arc<HostSettings>) -> Self {
        Self {
            streams,
            settings,
            classes: Classes::new(),
            pending: PendingUses::new(EventPool::new(streams)),
            used: AtomicBool::new(false),
            statistics: Mutex::default(),
            background: AtomicBool::new(false),
            returning: InFlight::default(),
        }
    }

    /// Allocates a buffer of `len` bytes. The contents are unspecified.
    ///
    /// # Errors
    /// [`Error::HostOutOfMemory`], [`Error::Driver`].
    pub fn allocate(&'static self, len: u64) -> Result<PinnedBuffer<B>> {
        let block = NonZeroU64::new(len).map(|len| self.block(len)).transpose()?;
        Ok(PinnedBuffer::new(self, block, len))
    }

    /// Returns every free block to the driver. Does not wait for streams: blocks that streams still use stay allocated.
    /// PyTorch: `torch.accelerator.empty_host_cache`.
    ///
    /// # Errors
    /// [`Error::Driver`] if an event could not be queried; the free blocks are returned all the same.
    pub fn empty_cache(&self) -> Result<()> {
        let result = self.process_all_events();
        self.release();
        self.streams.owner.device.driver_result(result)
    }

    /// Whether the allocator has ever had memory: false if it has never been used.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// All statistics so far. While other threads work, the values for memory held from the driver and those for active
    /// memory may be from slightly different moments. PyTorch: `torch.cuda.host_memory_stats`.
    pub fn statistics(&self) -> HostStatistics {
        let mut statistics = *lock(&self.statistics);
        for class in self.classes.iter() {
            let class = lock(class);
            statistics.active_requests.add(&class.active_requests);
            statistics.active_bytes.add(&class.active_bytes);
        }
        statistics
    }

    /// Sets every peak to the current value, and the extremes of the times to 0. PyTorch:
    /// `reset_peak_host_memory_stats`.
    pub fn reset_peak_statistics(&self) {
        lock(&self.statistics).reset_peak();
        self.classes.iter().for_each(|class| lock(class).each_stat(crate::types::Stat::reset_peak));
    }

    /// Sets the accumulated values to 0. PyTorch: `reset_accumulated_host_memory_stats`.
    pub fn reset_accumulated_statistics(&self) {
        lock(&self.statistics).reset_accumulated();
        self.classes.iter().for_each(|class| lock(class).each_stat(crate::types::Stat::reset_accumulated));
    }

    fn block(&'static self, requested: NonZeroU64) -> Result<Block> {
        let in_background = self.settings.uses_background_thread();
        if !in_background {
            self.streams.owner.device.driver_result(self.process_events())?;
        }
        let Some(size) = self.settings.block_size(requested) else {
            return Err(self.out_of_memory(requested, None, None, 0));
        };
        if let Some(block) = self.classes.take(size) {
            return Ok(block);
        }
        if in_background {
            self.start_background();
        }
        self.after_miss(requested, size)
    }

    /// Serves a request for which there is no free block.
    #[cold]
    fn after_miss(&self, requested: NonZeroU64, size: NonZeroU64) -> Result<Block> {
        use DriverErrorKind::{AllocationTooLarge, OutOfMemory};
        let (mut answer, mut cached) = (self.ask_driver(size), 0);
        if matches!(&answer, Err(error) if error.kind == OutOfMemory) {
            // A stream that cannot be queried keeps its blocks; there may be enough memory without them.
            let _ = self.process_all_events();
            if let Some(block) = self.classes.take(size) {
                return Ok(block);
            }
            cached = self.release();
            answer = self.ask_driver(size);
        }
        match answer {
            Err(error) if matches!(error.kind, OutOfMemory | AllocationTooLarge) => {
                Err(self.out_of_memory(requested, Some(size), Some(error), cached))
            }
            answer => self.streams.owner.device.driver_result(answer),
        }
    }

    fn ask_driver(&self, size: NonZeroU64) -> DriverResult<Block> {
        let start = Instant::now();
        let block = memory::take(self.streams.backend, size)?;
        self.used.store(true, Ordering::Relaxed);
        let mut statistics = lock(&self.statistics);
        statistics.host_alloc_time.add(start.elapsed());
        statistics.allocations.increase(1);
        statistics.allocated_bytes.increase(size.get());
        drop(statistics);
        lock(self.classes.of(size)).activate(size);
        Ok(block)
    }

    /// Puts an active block that nothing uses any more into the cache, or returns it to the driver. PyTorch:
    /// `maybe_cache_block`.
    fn make_available(&self, block: Block) {
        if self.settings.caches(block.size()) {
            return self.classes.put_back(block);
        }
        let _returning = self.returning.begin();
        lock(self.classes.of(block.size())).deactivate(block.size());
        self.give_back(block);
    }

    /// Returns every free block to the driver, and waits for those that other threads are returning. Returns the number
    /// of bytes. PyTorch: `free_from_pool`.
    fn release(&self) -> u64 {
        let mut bytes = 0;
        for class in self.classes.iter() {
            let (free, _returning) = {
                let mut class = lock(class);
                (std::mem::take(&mut class.free), self.returning.begin())
            };
            for block in free {
                bytes += block.size().get();
                self.give_back(block);
            }
        }
        self.returning.wait();
        bytes
    }

    fn give_back(&self, block: Block) {
        let (size, start) = (block.size(), Instant::now());
        memory::give_back(self.streams.backend, block);
        let mut statistics = lock(&self.statistics);
        statistics.host_free_time.add(start.elapsed());
        statistics.allocations.decrease(1);
        statistics.allocated_bytes.decrease(size.get());
    }

    fn out_of_memory(
        &self,
        requested: NonZeroU64,
        block: Option<NonZeroU64>,
        driver: Option<DriverError>,
        cached: u64,
    ) -> Error {
        let block = block.map(NonZeroU64::get);
        let advice = [
            (
                block.is_some_and(|block| block > requested.get()),
                "Set pinned_max_round_threshold_mb so that large requests are not rounded up to a power of two.",
            ),
            (!self.pending.is_empty(), "Some of it is still in use by streams: synchronize them first."),
            (self.streams.owner.device.index > 0, "Other devices have their own caches: empty those, too."),
            (block.is_some(), "Pin less at a time: pinned memory cannot be paged out."),
        ];
        Error::HostOutOfMemory(Box::new(HostOutOfMemory {
            device: self.streams.owner.device,
            requested: requested.get(),
            block,
            driver,
            active: self.statistics().active_bytes.current.unsigned_abs(),
            cached,
            advice: advice.into_iter().filter_map(|(applies, text)| applies.then_some(text)).collect(),
        }))
    }
}

impl<B: Backend> std::fmt::Debug for CachingHostAllocator<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HostStatistics { allocated_bytes: allocated, active_bytes: active, .. } = self.statistics();
        let device = self.streams.owner.device;
        write!(f, "CachingHostAllocator {{ {device}, active: {active:?}, allocated: {allocated:?} }}")
    }
}
