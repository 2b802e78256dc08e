//! The caching allocator with the types of a backend: a thin shell around [`DeviceAllocator`].
#![allow(unsafe_code)] // pointers get their type back

mod allocation;
mod raw;

use std::num::NonZeroU64;
use std::sync::Arc;

pub use self::allocation::{Allocation, ForeignAllocation};
use self::raw::RawTable;

use super::arena::AllocatedBlock;
use super::device::DeviceAllocator;
use super::driver::DriverOf;
use super::history::{History, Recording};
use super::settings::{AllocatorConfig, HostSettings};
use crate::backend::Backend;
use crate::event::EventPool;
use crate::stream::{Instance, Stream, Streams};
use crate::sync::HookId;
use crate::types::{DevicePtr, OutOfMemory, Result, Snapshot, Statistics};

/// Serves the memory of one device from a cache, by PyTorch's policy to the byte, unless [`Policy::Compact`](crate::Policy::Compact)
/// is set.
///
/// On the same calls from one thread, statistics, segments and blocks equal those of PyTorch's own allocator.
/// Any thread may call anything at any time; no lock that the warm path waits for is held across a driver call or a callback.
pub struct CachingAllocator<B: Backend> {
    owner: Instance,
    device: DeviceAllocator,
    raw: RawTable<B>,
}

impl<B: Backend> CachingAllocator<B> {
    pub(crate) fn new(streams: &'static Streams<B>, config: AllocatorConfig) -> Self {
        let owner = streams.owner;
        let driver = Box::new(DriverOf::new(streams.backend));
        let events = Box::new(EventPool::new(streams));
        let device = DeviceAllocator::new(owner.device, driver, events, config);
        Self { owner, device, raw: RawTable::default() }
    }

    /// Allocates `bytes` bytes for work on `stream`. PyTorch: `raw_alloc_with_stream`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a stream of another device, [`Error::Driver`](crate::Error::Driver).
    pub fn allocate(&self, bytes: NonZeroU64, stream: Stream<B>) -> Result<Allocation<B>> {
        stream.check(self.owner)?;
        self.device.allocate(bytes, stream.id(), |AllocatedBlock { arena, block, base, offset, size }| {
            // SAFETY: The segments of this allocator are of its driver, whose pointers are those of `B`.
            let ptr = unsafe { base.ptr::<B::Ptr>() }.offset(offset);
            Allocation { arena, block, ptr, size, requested: bytes, stream }
        })
    }

    /// Frees an allocation: at once for its own stream, and when they are done for others that used it.
    ///
    /// # Errors
    /// [`ForeignAllocation`] for an allocation of another device, which is handed back. A driver that cannot record an
    /// event is asked again later; that is no error here.
    pub fn free(&self, allocation: Allocation<B>) -> Result<(), ForeignAllocation<B>> {
        if let Err(error) = self.check_owner(&allocation) {
            return Err(ForeignAllocation { allocation, error });
        }
        self.device.free(allocation.arena, allocation.block);
        Ok(())
    }

    /// Notes that `stream` uses the allocation, so that its memory is not reused before that work is done. Of its
    /// own stream this is nothing. PyTorch: `record_stream`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for an allocation or a stream of another device.
    pub fn record_use(&self, allocation: &Allocation<B>, stream: Stream<B>) -> Result<()> {
        self.check_owner(allocation)?;
        stream.check(self.owner)?;
        if stream != allocation.stream {
            self.device.record_use(allocation.arena, allocation.block, stream.id());
        }
        Ok(())
    }

    /// Whether it was ever searched for a block: false for an allocator that nobody has used. PyTorch: `initialized`.
    pub fn is_used(&self) -> bool {
        self.device.arenas().all().next().is_some()
    }

    /// Everything counted so far. Consistent, also while other threads allocate.
    ///
    /// A peak is that of the sums over all threads, in the order in which their calls were counted.
    pub fn statistics(&self) -> Statistics {
        self.device.arenas().sum()
    }

    /// Sets every peak to the current value. PyTorch: `reset_peak_memory_stats`.
    pub fn reset_peak_statistics(&self) {
        self.device.arenas().reset_peak();
    }

    /// Sets the accumulated values and the counters of events to 0. PyTorch: `reset_accumulated_memory_stats`.
    pub fn reset_accumulated_statistics(&self) {
        self.device.arenas().reset_accumulated();
    }

    /// Gives every segment that is free, and of expandable ones every page that is, back to the driver, after waiting for the
    /// streams that still use freed blocks. PyTorch: `empty_cache`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where waiting or unmapping failed; nothing is lost, and it may be called again.
    pub fn empty_cache(&self) -> Result<()> {
        self.device.empty_cache()
    }

    /// All segments and blocks at one moment. A history notes that somebody looked.
    pub fn snapshot(&self) -> Snapshot {
        self.device.snapshot()
    }

    /// Records from now on what happens, or no longer, and then forgets it. While it is recorded already, what is kept stays,
    /// under the new limits. PyTorch: `recordHistory`.
    pub fn record_history(&self, recording: Option<Recording>) {
        self.device.arenas().record_history(recording);
    }

    /// What the allocator holds, and what was recorded before, at one moment. PyTorch: `snapshot` of the C++ allocator.
    pub fn history(&self) -> History {
        self.device.history()
    }

    /// Bytes of the largest block that could be had without giving anything back: free on the device or in the
    /// cache of any stream. PyTorch: `cacheInfo`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where the device cannot be asked.
    pub fn largest_available(&self) -> Result<u64> {
        self.device.largest_available()
    }

    /// Limits the memory taken from the driver to this share of the device's; 1: no limit. What is taken already
    /// stays. PyTorch: `set_per_process_memory_fraction`.
    ///
    /// # Errors
    /// [`Error::InvalidFraction`](crate::Error::InvalidFraction) outside 0..=1.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        self.device.set_memory_fraction(fraction)
    }

    /// The memory fraction in force. PyTorch: `get_per_process_memory_fraction`.
    pub fn memory_fraction(&self) -> f64 {
        self.device.arenas().statistics().fraction
    }

    /// The settings in force.
    pub fn config(&self) -> AllocatorConfig {
        self.device.arenas().config()
    }

    /// Changes the settings for later calls, also those of the device's pinned host memory. The memory fraction is not
    /// among what changes: it is read when the allocator is made.
    pub fn set_config(&self, config: AllocatorConfig) {
        self.device.set_config(config);
    }

    /// Adds a callback that is asked to free memory when a request finds no block; it says whether it freed any.
    /// PyTorch: `FreeMemoryCallback`.
    ///
    /// It may allocate and free; for requests of its own it is not asked. It runs on the thread that allocates.
    pub fn add_free_memory_callback(&self, callback: impl Fn() -> bool + Send + Sync + 'static) -> HookId {
        self.device.hooks.callbacks.add(Arc::new(callback))
    }

    /// Adds an observer of requests that fail for lack of memory. PyTorch: `attachOutOfMemoryObserver`.
    ///
    /// It runs once for each, on the thread that allocates, and may allocate and free; requests of its own that
    /// fail are not observed.
    pub fn add_out_of_memory_observer(
        &self,
        observer: impl Fn(&OutOfMemory) + Send + Sync + 'static,
    ) -> HookId {
        self.device.hooks.observers.add(Arc::new(observer))
    }

    /// Removes a callback or observer. Whether it was there.
    pub fn remove_hook(&self, id: HookId) -> bool {
        self.device.hooks.remove(id)
    }

    pub(crate) fn host_settings(&self) -> Arc<HostSettings> {
        Arc::clone(&self.device.host_settings)
    }

    fn check_owner(&self, allocation: &Allocation<B>) -> Result<()> {
        allocation.stream.owner().check(self.owner, "the allocation")
    }
}

impl<B: Backend> std::fmt::Debug for CachingAllocator<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Statistics { allocated_bytes, reserved_bytes, .. } = self.statistics();
        let (device, allocated, reserved) = (self.owner.device, allocated_bytes.all, reserved_bytes.all);
        write!(f, "CachingAllocator {{ {device}, allocated: {allocated:?}, reserved: {reserved:?} }}")
    }
}
