//! The contract between the core and a driver.

use std::fmt::Debug;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::graphs::Graphs;
use crate::host_memory;
use crate::interprocess::Interprocess;
use crate::types::{
    DeviceKind, DeviceProperties, DevicePtr, DriverError, DriverErrorKind, DriverResult, MemoryInfo, Unavailable,
};
use crate::virtual_memory::VirtualMemory;

/// One end of a copy. To a kind of place that it does not know, a backend answers with
/// [`DriverError::unknown_place`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Place<P> {
    /// Memory of the device.
    Device(P),
    /// Memory of the host.
    Host(NonNull<u8>),
}

/// The purpose of a new stream. Every kind is a stream like the others, whose work runs in the order of submission, so
/// a backend that makes no difference between them needs only the [`priority`](Self::priority).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamKind {
    /// The default stream of the device. It is made first, and only once.
    Default,
    /// A side stream, with a priority in the device's range (a lower number runs first).
    Side {
        /// The priority.
        priority: i32,
    },
}

impl StreamKind {
    /// The priority of the stream: 0 for the default stream.
    pub const fn priority(self) -> i32 {
        match self {
            Self::Default => 0,
            Self::Side { priority } => priority,
        }
    }
}

/// The abilities of a new event. `EventFlags::default()` is a plain event, which has none of them. PyTorch: the
/// arguments of `torch.Event`.
///
/// Name the flags that you set, and take the others from a constant, so that your code compiles when there are more:
///
/// ```
/// use accelerator_core::EventFlags;
///
/// let flags = EventFlags { blocking: true, ..EventFlags::TIMING };
/// assert!(flags.enable_timing && flags.blocking && !flags.interprocess);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFlags {
    /// Whether [`Backend::elapsed_ns`] may be called.
    pub enable_timing: bool,
    /// Whether a thread that waits for the event sleeps instead of polling, if the driver offers the choice. CUDA:
    /// `CU_EVENT_BLOCKING_SYNC`.
    pub blocking: bool,
    /// Whether other processes may open the event. CUDA: `CU_EVENT_INTERPROCESS`, which excludes timing.
    pub interprocess: bool,
}

impl EventFlags {
    /// An event for measuring elapsed time.
    pub const TIMING: Self = Self { enable_timing: true, blocking: false, interprocess: false };

    /// Refuses interprocess events, for backends that do not have them.
    ///
    /// # Errors
    /// [`Unsupported`](DriverErrorKind::Unsupported) from the driver function `call` if such an event is requested.
    pub fn refuse_interprocess(self, call: &'static str) -> DriverResult<()> {
        let name = "this backend has no interprocess events";
        match self.interprocess {
            true => Err(DriverError::refused(DriverErrorKind::Unsupported, call, name)),
            false => Ok(()),
        }
    }
}

/// One kind of accelerator: devices, streams, events and memory, as its driver provides them.
///
/// Implementations neither cache nor count; the core does. ADDING_A_BACKEND explains the methods one by one.
///
/// # Safety
///
/// *For backend authors.* The core hands out parts of the memory that [`alloc`](Self::alloc) returns to safe code. It
/// relies on all of the following:
/// * `alloc` returns `len` bytes with the alignment stated in the properties. They overlap no other live allocation,
///   and stay where they are until `dealloc`.
/// * Work on one stream runs in the order of submission. This includes reads: a copy reads its source when its turn
///   comes, since earlier work of the stream may still write it. Streams may share a hardware queue.
/// * `wait` orders later work after an event. It is work of its stream: a later `record`, `is_idle` and `synchronize`
///   include it.
/// * `is_complete` returns `true` only when all work before the record is done and its effects are visible, or when the
///   device is lost and does no more work.
/// * Work submitted before `dealloc` may still use the memory afterwards, so the memory must not return to the system
///   before that work is done. (`cuMemFree` waits; `clReleaseMemObject` defers; the host backend defers.)
/// * Dropping an event, pending or not, stops nothing: streams that wait for it keep waiting. Dropping a stream does
///   not stop its work either. Dropping the backend waits for all work that was submitted, also to streams that were
///   dropped before, or cancels it. Then nothing uses memory any more, and the backend gives its own back. The core
///   drops neither a backend that it has opened nor a stream of it. Programs that use a backend without the core do.
/// * [`Ptr`](Self::Ptr) keeps what [`DevicePtr`] says, since the core passes what [`offset`](DevicePtr::offset) returns
///   to the driver.
/// * No method panics or calls back into the core.
///
/// *For allocator authors.* Callers of the unsafe methods uphold the conditions that each method lists. The allocator
/// holds no lock across these calls, apart from the exceptions in docs/architecture/decisions.md.
#[allow(unsafe_code)] // the contract above is what makes the trait unsafe to implement
pub unsafe trait Backend: Send + Sync + Sized + 'static {
    /// The kind of these devices, and thereby their name.
    const KIND: DeviceKind;
    /// A location in device memory.
    type Ptr: DevicePtr;
    /// A stream. Its work runs in the order of submission.
    type Stream: Send + Sync + Debug + 'static;
    /// An event: a point in the work of a stream. Threads share it.
    type Event: Send + Sync + Debug + 'static;

    /// Returns the number of devices. It may load the driver and make what the driver needs to list its devices, but it
    /// makes no context and takes no memory of a device. Later calls take milliseconds at most.
    ///
    /// # Errors
    /// The reason if there are none: no driver, no device.
    fn probe() -> Result<u32, Unavailable>;

    /// Opens the device with this number. It may be open already: the two share the device's memory, but no streams.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::DriverErrorKind::InvalidArgument) for a number out of range; otherwise the driver's
    /// error.
    fn open(ordinal: u32) -> DriverResult<Self>;

    /// Returns the kind of this device, for backend types with several kinds.
    fn kind(&self) -> DeviceKind {
        Self::KIND
    }

    /// Returns the properties of the device. They never change.
    fn properties(&self) -> &DeviceProperties;

    /// Returns the free and total memory now. It may be slow: the warm path never calls it.
    ///
    /// # Errors
    /// The driver's error.
    fn memory_info(&self) -> DriverResult<MemoryInfo>;

    /// Makes a stream.
    ///
    /// # Errors
    /// The driver's error.
    fn stream(&self, kind: StreamKind) -> DriverResult<Self::Stream>;

    /// Waits until everything submitted to the stream so far is done.
    ///
    /// # Errors
    /// The driver's error, including errors of the work itself. Even then, no work submitted before accesses host
    /// memory any more.
    fn synchronize(&self, stream: &Self::Stream) -> DriverResult<()>;

    /// Returns whether everything submitted to the stream so far is done.
    ///
    /// # Errors
    /// The driver's error. "Not yet" is `Ok(false)`.
    fn is_idle(&self, stream: &Self::Stream) -> DriverResult<bool>;

    /// Makes an event. An event that was never recorded counts as complete.
    ///
    /// # Errors
    /// [`Unsupported`](crate::DriverErrorKind::Unsupported) for an interprocess event, if the backend has none
    /// ([`EventFlags::refuse_interprocess`]); otherwise the driver's error.
    fn event(&self, flags: EventFlags) -> DriverResult<Self::Event>;

    /// Returns the driver's handle of the event as a number, for other libraries and to distinguish live events; 0 if
    /// events have no handles of their own.
    fn event_id(&self, _event: &Self::Event) -> u64 {
        0
    }

    /// Records the event after the work submitted to the stream so far. The last record counts.
    ///
    /// # Errors
    /// The driver's error; the previous record then still counts.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> DriverResult<()>;

    /// Makes later work of the stream wait for the event as it is recorded now. Later records do not affect that. The
    /// call returns at once, while the awaited work runs.
    ///
    /// # Errors
    /// The driver's error.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> DriverResult<()>;

    /// Returns whether the event has been reached, without waiting. Work that failed counts as done, too:
    /// [`synchronize`](Self::synchronize) and [`wait_host`](Self::wait_host) return its error. After
    /// [`DeviceLost`](crate::DriverErrorKind::DeviceLost), no work runs any more, so the answer is `true`.
    ///
    /// # Errors
    /// The driver's error. "Not yet" is `Ok(false)`.
    fn is_complete(&self, event: &Self::Event) -> DriverResult<bool>;

    /// Waits on the host until the event has been reached.
    ///
    /// # Errors
    /// The driver's error, including errors of the work before the event.
    fn wait_host(&self, event: &Self::Event) -> DriverResult<()> {
        while !self.is_complete(event)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Returns the nanoseconds between two recorded, complete events with timing, of the same or of two streams;
    /// negative if `end` came first.
    ///
    /// # Errors
    /// The driver's error. The core has checked timing, record and completion.
    fn elapsed_ns(&self, start: &Self::Event, end: &Self::Event) -> DriverResult<i64>;

    /// Takes `len` bytes from the device.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory) is a normal result: the core frees cached memory and tries
    /// again. [`AllocationTooLarge`](crate::DriverErrorKind::AllocationTooLarge) for more than the driver ever gives at
    /// once ([`DeviceProperties::largest_allocation`]).
    fn alloc(&self, len: NonZeroU64) -> DriverResult<Self::Ptr>;

    /// Gives memory back to the device.
    ///
    /// # Safety
    /// * `ptr` and `len` are those of one `alloc` of this backend that has not been given back.
    /// * No work that uses the memory is submitted afterwards.
    unsafe fn dealloc(&self, ptr: Self::Ptr, len: NonZeroU64);

    /// Submits a copy of `len` bytes to the stream, between places of any kind. Lengths and places need no alignment.
    ///
    /// The source is read, and the destination written, when the stream gets there. Within device memory, and between
    /// it and memory of [`alloc_host`](Self::alloc_host), the call returns while earlier work runs. With other host
    /// memory it may wait for that work.
    ///
    /// # Errors
    /// The driver's error; nothing is copied then. A part may arrive all the same if one place is host memory that is
    /// not of [`alloc_host`](Self::alloc_host), which is not used after the call.
    ///
    /// # Safety
    /// * Both places are valid for `len` bytes, `dst` for writes, and do not overlap.
    /// * Host memory stays valid, and the host does not write it (if it is `src`) or access it (if it is `dst`), until
    ///   the stream has done the copy. Earlier work of the stream may.
    unsafe fn copy(
        &self,
        dst: Place<Self::Ptr>,
        src: Place<Self::Ptr>,
        len: NonZeroU64,
        stream: &Self::Stream,
    ) -> DriverResult<()>;

    /// Submits a fill of `len` bytes with `value` to the stream, and returns while earlier work runs. The length and
    /// the place need no alignment.
    ///
    /// # Errors
    /// The driver's error; nothing is filled then.
    ///
    /// # Safety
    /// * `dst` is valid for writes of `len` bytes.
    unsafe fn fill(&self, dst: Self::Ptr, value: u8, len: NonZeroU64, stream: &Self::Stream) -> DriverResult<()>;

    /// Takes `len` bytes of host memory that the device accesses directly, so that copies from and to it are
    /// asynchronous. The memory is initialised, and aligned to at least 64 bytes. It is ordinary memory if the device
    /// has no such memory or needs none. CUDA: `cuMemHostAlloc`.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory); otherwise the driver's error.
    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        host_memory::alloc(len)
    }

    /// Gives host memory back. CUDA: `cuMemFreeHost`.
    ///
    /// # Safety
    /// * `ptr` and `len` are those of one `alloc_host` of this backend that has not been given back.
    /// * All work that uses the memory is over, and none is submitted afterwards.
    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        // SAFETY: The caller guarantees that the memory comes from `alloc_host` and is given back once.
        unsafe { host_memory::dealloc(ptr, len) };
    }

    /// Returns whether work submitted to the stream is captured in a graph instead of run. Meanwhile the core neither
    /// queries events nor records any on that stream. CUDA: `cuStreamIsCapturing`.
    ///
    /// # Errors
    /// The driver's error.
    fn is_capturing(&self, _stream: &Self::Stream) -> DriverResult<bool> {
        Ok(false)
    }

    /// Returns whether work that accesses the same bytes never runs at the same time, even if the program forgot to
    /// order its streams, and if the same memory is mapped at two addresses. A backend must guarantee this if its safe
    /// code gets references to device memory, such as kernels that are closures over slices: otherwise two of them
    /// could have `&mut` to the same bytes. The core does not rely on it; the conformance suite checks it.
    fn serializes_conflicts(&self) -> bool {
        false
    }

    /// Returns the backend's graphs, if it has any.
    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        None
    }

    /// Returns the backend's direct copies between its devices, if it has any. Otherwise the core copies through the
    /// host.
    fn peer_copies(&self) -> Option<&dyn PeerCopies<Self>> {
        None
    }

    /// Returns the backend's memory that other processes can map, if it has any.
    fn interprocess(&self) -> Option<&dyn Interprocess<Self::Ptr>> {
        None
    }

    /// Returns the backend's separate management of address space and memory, if it has any.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Self::Ptr>> {
        None
    }
}

/// Copies between devices of one backend.
///
/// # Safety
/// As for [`Backend`]. The copy is work of the stream like any other, and waiting for an event of another device works
/// like waiting for one of this device.
#[allow(unsafe_code)] // the core relies on the contract, as for `Backend`
pub unsafe trait PeerCopies<B: Backend> {
    /// Submits a copy of `len` bytes, from memory of the device `source`, to a stream of this device. CUDA:
    /// `cuMemcpyPeerAsync`.
    ///
    /// # Errors
    /// [`Unsupported`](crate::DriverErrorKind::Unsupported) if there is no path between the two devices; the core then
    /// copies through the host. Otherwise the driver's error. Nothing is copied then.
    ///
    /// # Safety
    /// * `dst` is valid for writes of `len` bytes on this device, `src` for reads on `source`.
    /// * `src` is not given back before the stream has done the copy.
    unsafe fn copy_from(
        &self,
        dst: B::Ptr,
        source: &B,
        src: B::Ptr,
        len: NonZeroU64,
        stream: &B::Stream,
    ) -> DriverResult<()>;

    /// Makes later work of a stream of this device wait for an event of another device, as it is recorded now.
    ///
    /// # Errors
    /// The driver's error.
    fn wait(&self, stream: &B::Stream, event: &B::Event) -> DriverResult<()>;
}
