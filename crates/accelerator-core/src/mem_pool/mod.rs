//! Private memory pools.

mod contents;
mod kept;
mod sleep;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use self::contents::Contents;
pub use self::sleep::{Keep, PauseProgress, PauseReport};

use crate::accelerator::Accelerator;
use crate::alloc::{MemPoolRequests, MemPoolRoute};
use crate::backend::Backend;
use crate::mem_source::SegmentSource;
use crate::types::{MemPoolId, Result, Snapshot, is_pool_name};

/// How a [`MemPool`] behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemPoolOptions {
    /// What messages, reports and snapshots call the pool, such as `weights`. It has 1 to 100 visible characters, with
    /// spaces only between them. Several pools may have the same name.
    pub name: Option<Arc<str>>,
    /// Whether the pool's free blocks serve requests outside of private pools when the driver has no more memory. Not
    /// for pools of graphs, whose replays write to free memory, too.
    pub use_on_oom: bool,
    /// Whether free blocks are handed out whole, and each new segment to one request.
    pub no_split: bool,
    /// Whether the pool can be paused. All of its memory is then in pages of virtual memory, mostly of 2 MiB, whatever
    /// the settings.
    pub pausable: bool,
    /// Whether the pool is [trimmed](MemPool::trim) each time that a guard of it is dropped.
    pub trims: bool,
}

/// A private pool of device memory, with segments of its own. Only requests within a [`use_pool`](Self::use_pool) get
/// memory from it, and they get it from nowhere else. PyTorch: `torch.cuda.MemPool`.
///
/// Memory stays with the pool while it is in use. When the handle is dropped and no guard or graph uses the pool, its
/// free memory goes back to the driver; blocks that are still allocated follow with a later
/// [`empty_cache`](crate::CachingAllocator::empty_cache).
pub struct MemPool<B: Backend> {
    accelerator: &'static Accelerator<B>,
    id: MemPoolId,
    trims: bool,
    contents: Arc<Contents<B>>,
}

impl<B: Backend> MemPool<B> {
    /// Makes a pool without memory.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool is to be pausable and the device has no virtual memory, or
    /// if it cannot have this name.
    pub fn new(accelerator: &'static Accelerator<B>, options: MemPoolOptions) -> Result<Self> {
        Self::with_id(accelerator, MemPoolId::next_user(), options)
    }

    /// Makes a handle of the pool with this number, which is made if it does not exist. The options apply to the pool,
    /// except for `trims`. What one handle has paused, each other one can resume. If there was none for a while, the
    /// contents that were kept are gone. PyTorch: `createOrIncrefPool`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) for [`MemPoolId::DEFAULT`]; if the pool is to be pausable and has
    /// memory already or a source of its own, or the device has no virtual memory; or if it cannot have this name. A
    /// pool that existed before is as it was then.
    pub fn with_id(accelerator: &'static Accelerator<B>, id: MemPoolId, options: MemPoolOptions) -> Result<Self> {
        accelerator.allocator().hold_pool(id, None)?;
        Self::of_retained(accelerator, id, options)
    }

    /// Makes a pool whose segments come from this source instead of from the driver. PyTorch: `MemPool(allocator)`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool is to be pausable, or if it cannot have this name.
    pub fn with_source(
        accelerator: &'static Accelerator<B>,
        source: Arc<dyn SegmentSource<B::Ptr>>,
        options: MemPoolOptions,
    ) -> Result<Self> {
        let id = MemPoolId::next_user();
        accelerator.allocator().hold_pool(id, Some(source))?;
        Self::of_retained(accelerator, id, options)
    }

    /// Makes the handle that a use was just added for, or takes the use back.
    fn of_retained(accelerator: &'static Accelerator<B>, id: MemPoolId, options: MemPoolOptions) -> Result<Self> {
        set_options(accelerator, id, &options).inspect_err(|_| {
            accelerator.allocator().let_pool_go(id);
            let _ = accelerator.allocator().empty_pool_cache(id); // forgets a pool that is new
        })?;
        Ok(Self { accelerator, id, trims: options.trims, contents: Contents::of(accelerator, id) })
    }

    /// The number of the pool.
    pub fn id(&self) -> MemPoolId {
        self.id
    }

    /// The name of the pool, if it has one.
    pub fn name(&self) -> Option<Arc<str>> {
        self.accelerator.allocator().pool_name(self.id)
    }

    /// The number of handles, guards and graphs that use the pool. PyTorch: `MemPool.use_count`.
    pub fn uses(&self) -> u32 {
        self.accelerator.allocator().pool_uses(self.id)
    }

    /// The segments and blocks of the pool. PyTorch: `MemPool.snapshot`.
    pub fn snapshot(&self) -> Snapshot {
        self.accelerator.allocator().pool_snapshot(self.id)
    }

    /// Waits for the streams that still use freed blocks of the pool, and gives all of its free memory back to the
    /// driver. The pool goes on as before. While its contents are being copied, because it is paused or resumed, all of
    /// its memory stays.
    ///
    /// # Errors
    /// As for [`CachingAllocator::trim_pool`](crate::CachingAllocator::trim_pool).
    pub fn trim(&self) -> Result<()> {
        self.accelerator.allocator().trim_pool(self.id)
    }

    /// Sends the requests of this thread to the pool until the guard is dropped. Guards may be nested; the youngest
    /// wins. PyTorch: `torch.cuda.use_mem_pool`.
    pub fn use_pool(&self) -> MemPoolGuard<'_, B> {
        // No error is possible: the pool is private, and no stream is named. What the driver says of captures does not
        // matter before a request is made.
        let route = self.accelerator.allocator().begin_allocate_to_pool(self.id, MemPoolRequests::ThisThread).ok();
        MemPoolGuard { pool: self, route, on_thread: PhantomData }
    }

    /// Sends these requests to the pool until the guard is dropped.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a stream of another device.
    pub fn use_pool_for(&self, requests: MemPoolRequests<B>) -> Result<MemPoolGuard<'_, B>> {
        let route = self.accelerator.allocator().begin_allocate_to_pool(self.id, requests)?;
        Ok(MemPoolGuard { pool: self, route: Some(route), on_thread: PhantomData })
    }
}

/// Applies options to a pool that is in use, or none of them if one is refused.
fn set_options<B: Backend>(accelerator: &Accelerator<B>, id: MemPoolId, options: &MemPoolOptions) -> Result<()> {
    let allocator = accelerator.allocator();
    let set_name = || options.name.clone().map_or(Ok(()), |name| allocator.set_pool_name(id, name));
    // What can be refused comes first.
    if options.name.as_deref().is_some_and(|name| !is_pool_name(name)) {
        return set_name();
    }
    if options.pausable {
        allocator.set_pool_pausable(id)?;
    }
    set_name()?;
    allocator.set_pool_use_on_oom(id, options.use_on_oom)?;
    if options.no_split {
        allocator.set_pool_no_split(id)?;
    }
    Ok(())
}

impl<B: Backend> Drop for MemPool<B> {
    fn drop(&mut self) {
        let allocator = self.accelerator.allocator();
        let _ = allocator.set_pool_use_on_oom(self.id, false);
        allocator.let_pool_go(self.id);
        // Memory that the driver refuses to take stays free, and is offered again with the next `empty_cache`.
        let _ = allocator.empty_pool_cache(self.id);
    }
}

impl<B: Backend> fmt::Debug for MemPool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, pool, uses) = (self.accelerator.device(), self.id.with_name(self.name().as_deref()), self.uses());
        let paused = if self.is_paused() { ", paused" } else { "" };
        write!(f, "MemPool {{ {device}, {pool}, uses: {uses}{paused} }}")
    }
}

/// Sends requests to a [`MemPool`] until it is dropped.
#[must_use = "requests go to the pool only until the guard is dropped"]
pub struct MemPoolGuard<'a, B: Backend> {
    pool: &'a MemPool<B>,
    route: Option<MemPoolRoute>,
    /// It may stand for one thread, so it stays there.
    on_thread: PhantomData<*const ()>,
}

impl<B: Backend> Drop for MemPoolGuard<'_, B> {
    fn drop(&mut self) {
        if let Some(route) = self.route.take() {
            self.pool.accelerator.allocator().end_allocate_to_pool(route);
        }
        if self.pool.trims {
            // Memory that cannot go back now stays in the pool.
            let _ = self.pool.trim();
        }
    }
}

impl<B: Backend> fmt::Debug for MemPoolGuard<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemPoolGuard {{ {:?} }}", self.pool)
    }
}
