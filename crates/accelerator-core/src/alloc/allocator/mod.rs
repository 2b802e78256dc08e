//! The caching allocator with the types of a backend: a thin shell around [`DeviceAllocator`].
#![allow(unsafe_code)] // restores the type of erased pointers

mod allocation;
#[cfg(debug_assertions)]
mod check;
mod exact;
mod key;
mod mem_pools;
#[cfg(test)]
#[cfg(loom)]
mod models;
mod raw;
mod share;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

pub use self::allocation::{Allocation, ForeignAllocation};
pub use self::exact::{PoolCheckpoint, RestoreError, RestoredPool};
pub use self::key::{AllocationKey, RestoredKeys};
pub use self::mem_pools::{MemPoolRequests, MemPoolRoute};
use super::arena::{AllocatedBlock, ArenaId};
use super::blocks::{Base, BlockId};
use super::device::DeviceAllocator;
use super::driver::DriverOf;
use super::history::{History, Recording};
use super::settings::{AllocatorConfig, HostSettings, MIN_BLOCK, SMALL_SIZE};
use crate::backend::Backend;
use crate::event::EventPool;
use crate::stream::{AfterCaptures, Instance, Stream, Streams};
use crate::sync::primitives::Mutex;
use crate::sync::{HookId, Step};
use crate::types::{DevicePtr, OutOfMemory, Result, Snapshot, Statistics};

/// Serves memory of one device from a cache. It follows PyTorch's policy to the byte, unless
/// [`Policy::Compact`](crate::Policy::Compact) is set.
///
/// Given the same calls from one thread, statistics, segments and blocks equal those of PyTorch's own allocator.
///
/// Any thread may call any method at any time. The warm path waits for no lock that is held across a driver call or a
/// callback.
pub struct CachingAllocator<B: Backend> {
    owner: Instance,
    streams: &'static Streams<B>,
    device: DeviceAllocator,
    /// The allocations that were returned as pointers.
    raw: Mutex<HashMap<B::Ptr, Allocation<B>>>,
    after_captures: AfterCaptures,
}

/// A block from the warm path: its number in the lower half, and above that its size in smallest blocks, which fits
/// since no such block has a TiB. With a pointer of one word, it comes back in registers. So nothing is read in one
/// piece just after it was written in several, which is slow.
struct WarmBlock(NonZeroU64);

/// Moves a size, which is a multiple of the smallest block, above a block's number.
const SIZE_SHIFT: u32 = 32 - MIN_BLOCK.ilog2();

impl<B: Backend> CachingAllocator<B> {
    pub(crate) fn new(streams: &'static Streams<B>, config: AllocatorConfig) -> Self {
        let owner = streams.owner;
        let driver = Box::new(DriverOf::new(streams.backend));
        let events = Box::new(EventPool::new(streams));
        let device = DeviceAllocator::new(owner.device, driver, events, config);
        let (raw, after_captures) = Default::default();
        Self { owner, streams, device, raw, after_captures }
    }

    /// Allocates `bytes` bytes for work on `stream`. PyTorch: `raw_alloc_with_stream`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a
    /// stream of another device; [`Error::Driver`](crate::Error::Driver).
    #[inline(always)]
    pub fn allocate(&self, bytes: NonZeroU64, stream: Stream<B>) -> Result<Allocation<B>> {
        if self.owns(stream) {
            if self.device.may_have_pending() {
                self.device.poll(bytes, stream.id())?;
            }
            if let Some(allocation) = self.allocate_if_warm(bytes, stream) {
                return Ok(allocation);
            }
        }
        // Taken apart, so that the one above is not put into memory.
        let Allocation { arena, block, ptr, size, requested, stream } = self.allocate_elsewhere(bytes, stream)?;
        Ok(Allocation { arena, block, ptr, size, requested, stream })
    }

    #[inline(always)]
    fn owns(&self, stream: Stream<B>) -> bool {
        stream.owner().number == self.owner.number
    }

    /// Allocates on the warm path. Returns `None`, with nothing changed, if that does not serve the request. The stream
    /// must be of this device.
    #[inline(always)]
    fn allocate_if_warm(&self, bytes: NonZeroU64, stream: Stream<B>) -> Option<Allocation<B>> {
        let (WarmBlock(block), ptr) = match self.device.may_be_warm() {
            false => None,
            true if bytes.get() <= SMALL_SIZE => self.allocate_warm::<false>(bytes, stream),
            true => self.allocate_warm::<true>(bytes, stream),
        }?;
        let (arena, size) = (ArenaId::of_stream(stream.id()), (block.get() >> 32) * MIN_BLOCK);
        Some(Allocation { arena, block: BlockId::of_lower_half(block), ptr, size, requested: bytes, stream })
    }

    #[inline(always)]
    fn allocation(&self, block: AllocatedBlock, requested: NonZeroU64, stream: Stream<B>) -> Allocation<B> {
        let ptr = Self::ptr(&block);
        let AllocatedBlock { arena, block, size, .. } = block;
        Allocation { arena, block, ptr, size, requested, stream }
    }

    #[inline(never)]
    fn allocate_warm<const LARGE: bool>(&self, bytes: NonZeroU64, stream: Stream<B>) -> Option<(WarmBlock, B::Ptr)> {
        let allocated = self.device.allocate_warm::<LARGE>(bytes.get(), stream.id())?;
        let AllocatedBlock { block, size, .. } = allocated;
        Some((WarmBlock(NonZeroU64::from(block.get()) | size << SIZE_SHIFT), Self::ptr(&allocated)))
    }

    #[cold]
    #[inline(never)]
    fn allocate_elsewhere(&self, bytes: NonZeroU64, stream: Stream<B>) -> Result<Allocation<B>> {
        stream.check(self.owner)?;
        self.device.allocate(bytes, stream.id(), |block| self.allocation(block, bytes, stream))
    }

    #[inline(always)]
    fn ptr(block: &AllocatedBlock) -> B::Ptr {
        Self::base_ptr(block.base).offset(block.offset)
    }

    #[inline(always)]
    fn base_ptr(base: Base) -> B::Ptr {
        // SAFETY: The segments of this allocator come from its own driver or from a pool's source, whose pointers both
        // have the type `B::Ptr`.
        unsafe { base.ptr::<B::Ptr>() }
    }

    /// Frees an allocation. Its own stream may reuse the memory at once; if other streams used it, it becomes free when
    /// they have finished.
    ///
    /// # Errors
    /// [`ForeignAllocation`], which hands the allocation back, if it belongs to another device. If the driver cannot
    /// record an event, that is no error; it is retried later.
    #[inline]
    pub fn free(&self, allocation: Allocation<B>) -> Result<(), ForeignAllocation<B>> {
        if !self.owns(allocation.stream) {
            return Err(self.foreign(allocation));
        }
        self.free_own(&allocation);
        Ok(())
    }

    /// Frees an allocation of this allocator, which is not used again.
    #[inline(always)]
    pub(crate) fn free_own(&self, allocation: &Allocation<B>) {
        self.device.free(allocation.arena, allocation.block);
    }

    #[cold]
    fn foreign(&self, allocation: Allocation<B>) -> ForeignAllocation<B> {
        let error = allocation.stream.owner().mismatch(self.owner, "the allocation");
        ForeignAllocation { allocation, error }
    }

    /// Records that `stream` uses the allocation, so that the memory is not reused before that work is done. For the
    /// allocation's own stream, this has no effect. PyTorch: `record_stream`.
    ///
    /// While the current stream of this thread is being captured, the use counts as part of the capture, even if
    /// `stream` is not. If the allocation is freed in the capture, nothing waits for that use. PyTorch has this rule.
    /// [`Buffer::record_use`](crate::Buffer::record_use) asks whether `stream` itself is being captured.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for an allocation or a stream of another device.
    pub fn record_use(&self, allocation: &Allocation<B>, stream: Stream<B>) -> Result<()> {
        if self.is_foreign_use(allocation, stream)? {
            self.device.record_use(allocation.arena, allocation.block, stream.id());
        }
        Ok(())
    }

    /// As [`record_use`](Self::record_use), for work that really runs unless `stream` itself is being captured.
    pub(crate) fn record_work(&self, allocation: &Allocation<B>, stream: Stream<B>) -> Result<()> {
        if self.is_foreign_use(allocation, stream)? {
            self.device.record_work(allocation.arena, allocation.block, stream.id());
        }
        Ok(())
    }

    /// Returns whether `stream` is not the allocation's own.
    #[inline(always)]
    fn is_foreign_use(&self, allocation: &Allocation<B>, stream: Stream<B>) -> Result<bool> {
        self.check_owner(allocation)?;
        stream.check(self.owner)?;
        Ok(stream != allocation.stream)
    }

    /// Begins to use an allocation of this device: until the step ends, its memory is not paused.
    #[inline(always)]
    pub(crate) fn begin_use(&self, allocation: &Allocation<B>) -> Result<Option<Step<'_>>> {
        self.device.begin_use(allocation.arena)
    }

    /// Returns whether the allocator has ever been searched for a block: false if nobody has used it. PyTorch:
    /// `initialized`.
    pub fn is_used(&self) -> bool {
        self.device.arenas().all().next().is_some()
    }

    /// Returns everything counted so far. The result is consistent, even while other threads allocate.
    ///
    /// A peak is the peak of the sums over all threads, in the order in which their calls were counted.
    pub fn statistics(&self) -> Statistics {
        self.device.arenas().sum()
    }

    /// Resets every peak to the current value. PyTorch: `reset_peak_memory_stats`.
    pub fn reset_peak_statistics(&self) {
        self.device.arenas().reset_peak();
    }

    /// Resets the accumulated values and the event counters to 0. PyTorch: `reset_accumulated_memory_stats`.
    pub fn reset_accumulated_statistics(&self) {
        self.device.arenas().reset_accumulated();
    }

    /// Waits for the streams that still use freed blocks, and then gives every free segment, and every free page of
    /// expandable segments, back to the driver. PyTorch: `empty_cache`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if waiting or unmapping failed. Nothing is lost, and the call may be
    /// repeated.
    pub fn empty_cache(&self) -> Result<()> {
        self.device.empty_cache()
    }

    /// Returns all segments and blocks at one moment. If recording is on, the snapshot itself is recorded.
    pub fn snapshot(&self) -> Snapshot {
        self.device.snapshot()
    }

    /// Starts recording a history, or with `None` stops recording and discards the history. If recording is already on,
    /// the existing entries are kept, within the new limit. PyTorch: `recordHistory`.
    pub fn record_history(&self, recording: Option<Recording>) {
        self.device.arenas().record_history(recording);
    }

    /// Returns the current state and the recorded history, at one moment. PyTorch: `snapshot` of the C++ allocator.
    pub fn history(&self) -> History {
        self.device.history()
    }

    /// Returns the size of the largest block available without giving anything back: free on the device, or in the
    /// cache of any stream. PyTorch: `cacheInfo`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if the device cannot be queried.
    pub fn largest_available(&self) -> Result<u64> {
        self.device.largest_available()
    }

    /// Limits the memory taken from the driver to this fraction of the device's memory; 1 means no limit. Memory
    /// already taken stays. PyTorch: `set_per_process_memory_fraction`.
    ///
    /// # Errors
    /// [`Error::InvalidFraction`](crate::Error::InvalidFraction) if `fraction` is not between 0 and 1.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        self.device.set_memory_fraction(fraction)
    }

    /// Returns the memory fraction in force. PyTorch: `get_per_process_memory_fraction`.
    pub fn memory_fraction(&self) -> f64 {
        self.device.arenas().statistics().fraction
    }

    /// Returns the settings that were set last.
    pub fn config(&self) -> AllocatorConfig {
        self.device.arenas().config()
    }

    /// Changes the settings for later calls, including those of the device's pinned host memory. The memory fraction
    /// does not change; it is only read when the allocator is created.
    pub fn set_config(&self, config: AllocatorConfig) {
        self.device.set_config(config);
    }

    /// Adds a callback that is called to free memory when no block serves a request. It returns whether it freed any.
    /// PyTorch: `FreeMemoryCallback`.
    ///
    /// It runs on the allocating thread. It may allocate and free; its own requests do not call it again.
    pub fn add_free_memory_callback(&self, callback: impl Fn() -> bool + Send + Sync + 'static) -> HookId {
        self.device.hooks.callbacks.add(Arc::new(callback))
    }

    /// Adds an observer of requests that fail for lack of memory. PyTorch: `attachOutOfMemoryObserver`.
    ///
    /// It runs once for each such request, on the allocating thread. It may allocate and free; its own failing requests
    /// are not observed.
    pub fn add_out_of_memory_observer(&self, observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) -> HookId {
        self.device.hooks.observers.add(Arc::new(observer))
    }

    /// Removes a callback or observer. Returns whether it was registered.
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
