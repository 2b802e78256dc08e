//! Private memory pools by number, with explicit use counts: for graphs, and for programs that cannot hold a
//! [`MemPool`](crate::MemPool). PyTorch: the interface of `c10::cuda::CUDACachingAllocator`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::CachingAllocator;
use crate::alloc::driver::SourceOf;
use crate::alloc::mem_pools::{Applies, Keeper, RouteId};
use crate::alloc::source::Limits;
use crate::backend::Backend;
use crate::graphs::CaptureMode;
use crate::mem_source::SegmentSource;
use crate::stream::{Instance, Stream};
use crate::sync::Step;
use crate::sync::primitives::thread;
use crate::types::{DevicePtr, MemPoolId, MemPoolInfo, PoolStat, Result, Snapshot, StreamId};

/// The requests that go to a memory pool.
pub enum MemPoolRequests<B: Backend> {
    /// All of them.
    All,
    /// Those for work on this stream.
    Stream(Stream<B>),
    /// Those that the calling thread makes. PyTorch: `beginAllocateCurrentThreadToPool`.
    ThisThread,
    /// Those for work on the streams for which this function returns true. It runs once for each request, on the
    /// allocating thread, with no lock held, and must not allocate on the device itself.
    Where(Box<dyn Fn(StreamId) -> bool + Send + Sync>),
}

/// A route of requests to a memory pool, to be ended with
/// [`end_allocate_to_pool`](CachingAllocator::end_allocate_to_pool).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the route stays until it is ended"]
pub struct MemPoolRoute {
    owner: Instance,
    id: RouteId,
}

impl<B: Backend> CachingAllocator<B> {
    /// Adds a use of a pool, which is made if it does not exist. PyTorch: `createOrIncrefPool`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) for [`MemPoolId::DEFAULT`].
    pub fn retain_pool(&self, pool: MemPoolId) -> Result<()> {
        self.device.retain_counted_pool(pool, None)
    }

    /// Adds a use of a pool whose segments come from this source instead of from the driver. They are never expandable.
    /// The source of a pool that has memory already or is pausable stays the same.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) for [`MemPoolId::DEFAULT`].
    pub fn retain_pool_with_source(&self, pool: MemPoolId, source: Arc<dyn SegmentSource<B::Ptr>>) -> Result<()> {
        self.device.retain_counted_pool(pool, Some(Arc::new(SourceOf::<B>::new(source))))
    }

    /// Takes back a use that [`retain_pool`](Self::retain_pool) added. A pool without uses serves no more requests. Its
    /// memory goes back to the driver with the next [`empty_cache`](Self::empty_cache) or
    /// [`empty_pool_cache`](Self::empty_pool_cache), or when memory runs out, as far as it is free then; the rest
    /// later. PyTorch: `releasePool`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool has no such use. Those of a
    /// [`MemPool`](crate::MemPool), of routes and of graphs are theirs.
    pub fn release_pool(&self, pool: MemPoolId) -> Result<()> {
        self.device.release_counted_pool(pool)
    }

    /// Adds a use of a pool, by a handle or a graph.
    ///
    /// # Errors
    /// As for [`retain_pool`](Self::retain_pool).
    pub(crate) fn hold_pool(&self, pool: MemPoolId, source: Option<Arc<dyn SegmentSource<B::Ptr>>>) -> Result<()> {
        self.device.retain_pool(pool, source.map(|source| Arc::new(SourceOf::<B>::new(source)) as _))
    }

    /// Takes back a use that [`hold_pool`](Self::hold_pool) added.
    pub(crate) fn let_pool_go(&self, pool: MemPoolId) {
        self.device.release_pool(pool);
    }

    /// Returns the number of uses of a pool; 0 if it does not exist. PyTorch: `getPoolUseCount`.
    pub fn pool_uses(&self, pool: MemPoolId) -> u32 {
        self.device.pool_uses(pool)
    }

    /// Names a pool, in place of the name that it may have: for messages, reports and snapshots. Names need not be
    /// different.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool does not exist. The same if the name is empty, has more
    /// than 100 characters, has invisible ones such as control characters, or begins or ends with a space.
    pub fn set_pool_name(&self, pool: MemPoolId, name: impl Into<Arc<str>>) -> Result<()> {
        self.device.set_name(pool, name.into())
    }

    /// Returns the name of a pool; `None` if it has none or does not exist.
    pub fn pool_name(&self, pool: MemPoolId) -> Option<Arc<str>> {
        self.device.name(pool)
    }

    /// Returns all private pools, with their names and the memory that they have now.
    pub fn pools(&self) -> BTreeMap<MemPoolId, MemPoolInfo> {
        self.device.pool_infos()
    }

    /// Sets whether a pool's free blocks serve requests outside of private pools when the driver has no more memory.
    /// PyTorch: `setUseOnOOM`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool does not exist.
    pub fn set_pool_use_on_oom(&self, pool: MemPoolId, use_on_oom: bool) -> Result<()> {
        self.device.set_use_on_oom(pool, use_on_oom)
    }

    /// From now on, the pool hands out its free blocks whole, and each new segment to one request. This cannot be taken
    /// back. PyTorch: `setNoSplit`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool does not exist.
    pub fn set_pool_no_split(&self, pool: MemPoolId) -> Result<()> {
        self.device.set_no_split(pool)
    }

    /// Keeps a pool's free memory as long as the pool is in use, because graphs may use it that are captured without
    /// this crate. Call it before the pool's first request: under [`Policy::Compact`](crate::Policy::Compact), memory
    /// from before cannot be part of a [checkpoint](Self::checkpoint_pool). Pools of graphs, whose
    /// [first number](MemPoolId::numbers) is not zero, need no call.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool does not exist.
    pub fn keep_pool_for_graphs(&self, pool: MemPoolId) -> Result<()> {
        self.device.keep_for_graphs(pool)
    }

    /// Makes a pool without memory pausable: all of its memory will be in pages of virtual memory, mostly of 2 MiB,
    /// whatever the settings.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the device has no virtual memory, or the pool does not exist, has
    /// had memory already, or has a source of its own.
    pub fn set_pool_pausable(&self, pool: MemPoolId) -> Result<()> {
        self.device.set_pausable(pool)
    }

    /// Sends requests to a pool until the route is ended. The route is one more use of the pool, which is made if it
    /// does not exist. Of several routes that apply to a request, the youngest wins. In a capture, the graph comes to
    /// hold the pool, too. PyTorch: `beginAllocateToPool`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) for [`MemPoolId::DEFAULT`];
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a stream of another device.
    pub fn begin_allocate_to_pool(&self, pool: MemPoolId, requests: MemPoolRequests<B>) -> Result<MemPoolRoute> {
        let applies = match requests {
            MemPoolRequests::All => Applies::Everywhere,
            MemPoolRequests::Stream(stream) => {
                stream.check(self.owner)?;
                Applies::Stream(stream.id())
            }
            MemPoolRequests::ThisThread => Applies::Thread(thread::current().id()),
            MemPoolRequests::Where(filter) => Applies::Filter(filter),
        };
        let id = self.device.begin_route(pool, applies)?;
        self.streams.captures.begins(); // by other means than a `Graph`: those route requests first, as PyTorch does
        Ok(MemPoolRoute { owner: self.owner, id })
    }

    /// Ends a route, and takes back its use of the pool. Does nothing with a route of another device, which stays.
    /// PyTorch: `endAllocateToPool`, `releasePool`.
    pub fn end_allocate_to_pool(&self, route: MemPoolRoute) {
        if route.owner == self.owner {
            self.streams.captures.ended();
            self.device.end_route(route.id);
            self.do_what_waits_for_captures();
        }
    }

    /// Waits for the streams that still use freed blocks of a pool without uses, and gives its free memory back to the
    /// driver. Does nothing for a pool that is in use or does not exist. PyTorch: `emptyCache(mempool_id)`.
    ///
    /// # Errors
    /// As for [`empty_cache`](Self::empty_cache).
    pub fn empty_pool_cache(&self, pool: MemPoolId) -> Result<()> {
        self.device.empty_pool(pool)
    }

    /// Waits for the streams that still use freed blocks of a pool, and gives all of its free memory back to the
    /// driver, also while the pool is in use. PyTorch keeps that memory in the pool.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool does not exist, if a graph holds it, or during a capture;
    /// otherwise as for [`empty_cache`](Self::empty_cache).
    pub fn trim_pool(&self, pool: MemPoolId) -> Result<()> {
        self.device.trim_pool(pool)
    }

    /// Returns the segments and blocks of one pool. PyTorch: `MemPool.snapshot`.
    pub fn pool_snapshot(&self, pool: MemPoolId) -> Snapshot {
        self.device.snapshot_of_pool(pool)
    }

    /// Returns the starts of the allocated blocks of a pool, in the order of their addresses. PyTorch:
    /// `checkPoolLiveAllocations` compares with them.
    pub fn pool_allocations(&self, pool: MemPoolId) -> Vec<B::Ptr> {
        self.device.allocated_in(pool).iter().map(Self::ptr).collect()
    }

    /// Notes that a capture has begun, and sends the requests of its streams to a pool that its graph holds.
    pub(crate) fn capture_begun(&self, capture: u64, mode: CaptureMode, pool: MemPoolId) -> MemPoolRoute {
        MemPoolRoute { owner: self.owner, id: self.device.capture_begun(capture, mode, pool) }
    }

    /// Notes that a capture is over. Returns the pools that its graph holds.
    pub(crate) fn capture_ended(&self, capture: u64, route: MemPoolRoute) -> Vec<MemPoolId> {
        let held = self.device.capture_ended(capture, route.id);
        self.do_what_waits_for_captures();
        held
    }

    /// Does something that returns whether it is done. If it is not, because a stream captures, it is done when a
    /// capture ends, or with the next such thing. The end of a capture by other means is seen when its route ends.
    pub(crate) fn do_after_captures(&self, attempt: impl FnMut() -> bool + Send + 'static) {
        self.after_captures.add(&self.streams.captures, attempt);
    }

    /// Does what waits for the end of captures, as far as it can be done now.
    pub(crate) fn do_what_waits_for_captures(&self) {
        self.after_captures.capture_ended(&self.streams.captures);
    }

    /// Takes back a graph's use of a pool.
    pub(crate) fn release_pool_from_graph(&self, pool: MemPoolId) {
        self.device.release_pool_from_graph(pool);
    }

    /// [`DeviceAllocator::close_pool`](crate::alloc::device::DeviceAllocator::close_pool).
    pub(crate) fn close_pool(&self, pool: MemPoolId) -> Result<()> {
        self.device.close_pool(pool)
    }

    /// [`DeviceAllocator::keep_pool`](crate::alloc::device::DeviceAllocator::keep_pool).
    pub(crate) fn keep_pool(&self, pool: MemPoolId) -> Option<Keeper<'_>> {
        self.device.keep_pool(pool)
    }

    pub(crate) fn note_copy(&self, pool: MemPoolId) {
        self.device.note_copy(pool);
    }

    pub(crate) fn wait_for_copies(&self, pool: MemPoolId) -> Result<()> {
        self.device.wait_for_copies(pool)
    }

    pub(crate) fn open_pool(&self, pool: MemPoolId) {
        self.device.open_pool(pool);
    }

    pub(crate) fn shrink_closed_pool(&self, pool: MemPoolId) -> Result<Option<Keeper<'_>>> {
        self.device.shrink_closed_pool(pool)
    }

    pub(crate) fn give_pages_back(&self, pool: MemPoolId) -> Result<()> {
        self.device.give_pages_back(pool)
    }

    pub(crate) fn take_pages_again(&self, pool: MemPoolId, limits: Limits) -> Result<()> {
        self.device.take_pages_again(pool, limits)
    }

    /// Returns the runs of adjacent pages of a pool, each with its start and length.
    pub(crate) fn page_runs(&self, pool: MemPoolId) -> Vec<(B::Ptr, u64)> {
        let runs = self.device.page_runs(pool).into_iter();
        runs.map(|(base, offset, len)| (Self::base_ptr(base).offset(offset), len)).collect()
    }

    /// Returns the bytes of a pool that went back to the driver while it is paused.
    pub(crate) fn paused_bytes(&self, pool: MemPoolId) -> u64 {
        self.device.paused_bytes(pool)
    }

    /// Begins to use all memory of a pool: until the steps end, it is not paused.
    pub(crate) fn begin_use_of_pool(&self, pool: MemPoolId) -> Result<Vec<Step<'_>>> {
        self.device.begin_use_of_pool(pool)
    }

    /// Returns whether a pool is paused.
    pub fn is_pool_paused(&self, pool: MemPoolId) -> bool {
        self.device.is_paused(pool)
    }

    /// Returns the bytes that each private pool has held from the driver, also of pools that are gone. PyTorch:
    /// `reserved_bytes_by_private_pools`.
    pub fn reserved_by_private_pools(&self) -> BTreeMap<MemPoolId, PoolStat> {
        self.device.reserved_by_private_pools()
    }
}
