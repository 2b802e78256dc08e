//! Private memory pools of the current accelerator.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use accelerator_core::{
    Accelerator, Backend, Device, Error, Keep, MemPoolId, MemPoolOptions, PauseReport, Result, SegmentSource, Snapshot,
    StreamId,
};

use crate::backends::{AnyDevice, AnyMemPool, dispatch};
use crate::device_arg::DeviceArg;
use crate::stream::Stream;
use crate::typed::{alike, typed};

/// A private pool of a device's memory, with segments of its own. Only requests under a [`use_mem_pool`] get memory
/// from it, and they get it from nowhere else. PyTorch: `torch.cuda.MemPool`.
///
/// The pool keeps its memory until it is dropped, or [trimmed](Self::trim). Buffers may outlive it: when it is dropped,
/// its free memory goes back to the driver, and that of the buffers follows with a later
/// [`empty_cache`](crate::empty_cache). A graph that captured with the pool keeps its memory, too.
pub struct MemPool {
    any: AnyMemPool,
    device: Device,
}

impl MemPool {
    /// Makes a pool without memory. Opens the device. PyTorch: `torch.cuda.MemPool()`.
    ///
    /// # Errors
    /// Errors of [`DeviceArg`] and of opening the device.
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        Self::with_options(device, MemPoolOptions::default())
    }

    /// Makes a pool with these options. PyTorch: `torch.cuda.MemPool(use_on_oom=…, no_split=…)`.
    ///
    /// # Errors
    /// [`Error::MemPool`] if the pool is to be pausable and the device has no virtual memory, or if it cannot have this
    /// [name](MemPoolOptions::name); errors of [`DeviceArg`] and of opening the device.
    pub fn with_options<'a>(device: impl Into<DeviceArg<'a>>, options: MemPoolOptions) -> Result<Self> {
        let device = device.into().resolve()?.open()?;
        let any = dispatch!(AnyDevice, device, device => accelerator_core::MemPool::new(device, options)?.into());
        Ok(Self { any, device: device.device() })
    }

    /// Makes a pool whose segments come from this source instead of from the driver. PyTorch:
    /// `torch.cuda.MemPool(allocator)`.
    ///
    /// # Errors
    /// [`Error::DeviceKindMismatch`] if the current accelerator is a backend other than that of the source;
    /// [`Error::MemPool`] if the pool is to be pausable, or if it cannot have this name; errors of [`DeviceArg`] and of
    /// opening the device.
    pub fn with_source<'a, B: Backend>(
        device: impl Into<DeviceArg<'a>>,
        source: Arc<dyn SegmentSource<B::Ptr>>,
        options: MemPoolOptions,
    ) -> Result<Self> {
        let target = device.into().resolve()?;
        let device = Device { kind: target.backend.kind(), index: target.index };
        let pool = accelerator_core::MemPool::with_source(typed::<B>(device)?, source, options)?;
        let any = dispatch!(AnyDevice, target.open()?, device => of_backend(device, pool));
        let mismatch = Error::DeviceKindMismatch { expected: device.kind, found: B::KIND.to_string() };
        Ok(Self { any: any.ok_or(mismatch)?, device })
    }

    /// Returns its number. PyTorch: `MemPool.id`.
    pub fn id(&self) -> MemPoolId {
        dispatch!(AnyMemPool, self.any, ref pool => pool.id())
    }

    /// Returns its [name](MemPoolOptions::name), if it has one. PyTorch has no counterpart.
    pub fn name(&self) -> Option<Arc<str>> {
        dispatch!(AnyMemPool, self.any, ref pool => pool.name())
    }

    /// Returns its device. PyTorch: `MemPool.device`.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the number of handles, guards and graphs that use it. PyTorch: `MemPool.use_count`.
    pub fn use_count(&self) -> u32 {
        dispatch!(AnyMemPool, self.any, ref pool => pool.uses())
    }

    /// Returns its segments and blocks. PyTorch: `MemPool.snapshot`.
    pub fn snapshot(&self) -> Snapshot {
        dispatch!(AnyMemPool, self.any, ref pool => pool.snapshot())
    }

    /// Returns its free memory to the driver, after a wait for the streams that still use it. The pool goes on as
    /// before. PyTorch has no counterpart: there, memory stays in a pool that is in use.
    ///
    /// # Errors
    /// [`Error::MemPool`] if a graph holds the pool, or during a capture; [`Error::Driver`].
    pub fn trim(&self) -> Result<()> {
        dispatch!(AnyMemPool, self.any, ref pool => pool.trim())
    }

    /// Gives the pool's memory back to the driver, but not its addresses: buffers and statistics stay as they are, and
    /// [`resume`](Self::resume) maps memory at the same addresses. The pool must have been made
    /// [pausable](MemPoolOptions::pausable). Until it is resumed, requests to it and operations on its buffers fail.
    /// PyTorch has no counterpart. The core's [`pause_with`](accelerator_core::MemPool::pause_with) reports progress.
    ///
    /// # Errors
    /// As for [`MemPool::pause`](accelerator_core::MemPool::pause) of the core.
    pub fn pause(&self, keep: Keep) -> Result<PauseReport> {
        dispatch!(AnyMemPool, self.any, ref pool => pool.pause(keep))
    }

    /// Maps memory at the addresses of the paused pool, and copies back what was kept.
    ///
    /// # Errors
    /// As for [`MemPool::resume`](accelerator_core::MemPool::resume) of the core. The pool stays paused then.
    pub fn resume(&self) -> Result<PauseReport> {
        dispatch!(AnyMemPool, self.any, ref pool => pool.resume())
    }

    /// Returns whether it is paused.
    pub fn is_paused(&self) -> bool {
        dispatch!(AnyMemPool, self.any, ref pool => pool.is_paused())
    }

    /// Sends these requests to the pool until the guard is dropped. Of several pools that a request could go to, the
    /// one whose guard is the youngest serves it. PyTorch: `torch._C._cuda_beginAllocateToPool`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device.
    pub fn use_for(&self, requests: MemPoolRequests) -> Result<MemPoolGuard<'_>> {
        dispatch!(AnyMemPool, self.any, ref pool => {
            Ok(MemPoolGuard { _route: Box::new(pool.use_pool_for(requests.typed()?)?) })
        })
    }

    /// Returns the core's pool.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if the pool belongs to another backend.
    pub fn typed<B: Backend>(&self) -> Result<&accelerator_core::MemPool<B>> {
        let (any, found) = (dispatch!(AnyMemPool, self.any, ref pool => pool as &dyn Any), self.device);
        any.downcast_ref().ok_or(Error::DeviceMismatch { what: "the memory pool", expected: alike::<B>(found), found })
    }
}

/// Sends the requests of this thread to a pool until the guard is dropped. Guards may be nested; the youngest wins.
/// PyTorch: `torch.cuda.use_mem_pool`.
///
/// ```
/// use accelerator::{Buffer, MemPool, use_mem_pool};
/// # fn main() -> accelerator::Result<()> {
/// # accelerator::set_accelerator("host")?;
/// let pool = MemPool::new(None)?;
/// let buffer = {
///     let _guard = use_mem_pool(&pool);
///     Buffer::allocate(1024, None)? // from the pool
/// };
/// assert_eq!(pool.snapshot().segments[0].allocated_size, buffer.len());
/// # Ok(())
/// # }
/// ```
pub fn use_mem_pool(pool: &MemPool) -> MemPoolGuard<'_> {
    dispatch!(AnyMemPool, pool.any, ref pool => MemPoolGuard { _route: Box::new(pool.use_pool()) })
}

/// The requests that go to a memory pool.
pub enum MemPoolRequests {
    /// All of them.
    All,
    /// Those for work on this stream.
    Stream(Stream),
    /// Those that the calling thread makes.
    ThisThread,
    /// Those for work on the streams for which this function returns true. It runs once for each request, on the
    /// allocating thread, and must not allocate on the device itself.
    Where(Box<dyn Fn(StreamId) -> bool + Send + Sync>),
}

impl MemPoolRequests {
    fn typed<B: Backend>(self) -> Result<accelerator_core::MemPoolRequests<B>> {
        Ok(match self {
            Self::All => accelerator_core::MemPoolRequests::All,
            Self::Stream(stream) => accelerator_core::MemPoolRequests::Stream(stream.typed()?),
            Self::ThisThread => accelerator_core::MemPoolRequests::ThisThread,
            Self::Where(filter) => accelerator_core::MemPoolRequests::Where(filter),
        })
    }
}

/// Sends requests to a [`MemPool`] until it is dropped.
#[must_use = "requests go to the pool only until the guard is dropped"]
pub struct MemPoolGuard<'a> {
    /// The core's guard.
    _route: Box<dyn fmt::Debug + 'a>,
}

/// Returns the pool as that of this device's backend, if it is one.
fn of_backend<B: Backend, C: Backend>(_: &Accelerator<B>, pool: accelerator_core::MemPool<C>) -> Option<AnyMemPool>
where
    AnyMemPool: From<accelerator_core::MemPool<B>>,
{
    let mut pool = Some(pool);
    let same = (&mut pool as &mut dyn Any).downcast_mut::<Option<accelerator_core::MemPool<B>>>()?;
    same.take().map(AnyMemPool::from)
}

impl fmt::Debug for MemPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dispatch!(AnyMemPool, self.any, ref pool => pool.fmt(f))
    }
}

impl fmt::Debug for MemPoolRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("All"),
            Self::Stream(stream) => write!(f, "Stream({stream:?})"),
            Self::ThisThread => f.write_str("ThisThread"),
            Self::Where(_) => f.write_str("Where(…)"),
        }
    }
}

impl fmt::Debug for MemPoolGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self._route.fmt(f)
    }
}
