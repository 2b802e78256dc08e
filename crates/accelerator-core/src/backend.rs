//! The contract between the core and a driver.

use std::fmt::Debug;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::host_memory;
use crate::types::{
    DeviceKind, DeviceProperties, DevicePtr, DriverError, DriverErrorKind, DriverResult, MemoryInfo,
    Unavailable,
};
use crate::virtual_memory::VirtualMemory;

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub enum Place<P> {
    /// Memory of the device.
    Device(P),
    /// Memory of the host.
    Host(NonNull<u8>),
}

/// What a new stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The default stream of the device. Made once, first.
    Default,
    /// A stream beside it, with a priority inside the device's range (a lower number runs first).
    Side {
        /// The priority.
        priority: i32,
    },
}

/// What a new event must be able to do. `EventFlags::default()` is a plain event, which can do none of it. PyTorch: the
/// arguments of `torch.Event`.
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
    /// Whether a thread that waits for the event sleeps instead of polling, where the driver offers the choice. CUDA:
    /// `CU_EVENT_BLOCKING_SYNC`.
    pub blocking: bool,
    /// Whether other processes may open the event. CUDA: `CU_EVENT_INTERPROCESS`, which excludes timing.
    pub interprocess: bool,
}

impl EventFlags {
    /// An event that elapsed time is measured with.
    pub const TIMING: Self = Self { enable_timing: true, blocking: false, interprocess: false };

    /// For backends without events that other processes can open.
    ///
    /// # Errors
    /// [`Unsupported`](DriverErrorKind::Unsupported) from the driver function `call` if such an event is asked for.
    pub fn refuse_interprocess(self, call: &'static str) -> DriverResult<()> {
        let name = "this backend has no interprocess events";
        match self.interprocess {
            true => Err(DriverError { kind: DriverErrorKind::Unsupported, call, code: -1, name }),
            false => Ok(()),
        }
    }
}

/// One kind of accelerator: devices, streams, events and memory as its driver gives them.
///
/// Nothing here caches or counts: the core does. ADDING_A_BACKEND goes through the methods one by one.
///
/// # Safety
///
/// *For backend authors.* The core hands out parts of what [`alloc`](Self::alloc) returned to safe code and
/// relies on all of this:
/// * `alloc` returns `len` bytes at the alignment that the properties name, that overlap no other live
///   allocation, and stay where they are until `dealloc`.
/// * Work on one stream runs in the order in which it was submitted; `wait` orders it behind an event;
///   `is_complete` says `true` only when all work before the record is done and its effects are visible.
/// * After `dealloc` work that was submitted earlier may still use the memory: it must not go back to the
///   system before that work is done. (`cuMemFree` waits; `clReleaseMemObject` defers; the host waits.)
/// * No method panics, or calls back into the core.
///
/// *For allocator authors.* Callers of the unsafe methods uphold what each lists. No lock of the allocator is
/// held across any of these calls.
#[allow(unsafe_code)] // the contract above is what makes the trait unsafe to implement
pub unsafe trait Backend: Send + Sync + Sized + 'static {
    /// The kind, and so the name, of these devices.
    const KIND: DeviceKind;
    /// A location in device memory.
    type Ptr: DevicePtr;
    /// A stream: work runs in the order in which it was submitted.
    type Stream: Send + Sync + Debug + 'static;
    /// An event: a point in the work of a stream. Shared between threads.
    type Event: Send + Sync + Debug + 'static;

    /// How many devices there are.
    ///
    /// # Errors
    /// Why there is none: no driver, no device. Found in milliseconds, and never a panic.
    fn probe() -> Result<u32, Unavailable>;

    /// Opens the device with this number.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::DriverErrorKind::InvalidArgument) for a number out of range; what the driver says.
    fn open(ordinal: u32) -> DriverResult<Self>;

    /// The kind of this device, where one type stands for several.
    fn kind(&self) -> DeviceKind {
        Self::KIND
    }

    /// What the device says about itself. The same at every call.
    fn properties(&self) -> &DeviceProperties;

    /// Free and total memory now. May be slow: never called on the warm path.
    ///
    /// # Errors
    /// What the driver says.
    fn memory_info(&self) -> DriverResult<MemoryInfo>;

    /// Makes a stream.
    ///
    /// # Errors
    /// What the driver says.
    fn stream(&self, kind: StreamKind) -> DriverResult<Self::Stream>;

    /// Waits until everything submitted to the stream so far is done.
    ///
    /// # Errors
    /// What the driver says, errors of the work itself among it. Then too, nothing that was submitted before touches
    /// host memory any more.
    fn synchronize(&self, stream: &Self::Stream) -> DriverResult<()>;

    /// Whether everything submitted to the stream so far is done.
    ///
    /// # Errors
    /// What the driver says. "Not yet" is `Ok(false)`.
    fn is_idle(&self, stream: &Self::Stream) -> DriverResult<bool>;

    /// Makes an event. One that was never recorded counts as complete.
    ///
    /// # Errors
    /// [`Unsupported`](crate::DriverErrorKind::Unsupported) for an interprocess event where there are none
    /// ([`EventFlags::refuse_interprocess`]); what the driver says.
    fn event(&self, flags: EventFlags) -> DriverResult<Self::Event>;

    /// The driver's handle of the event as a number, for other libraries and to tell events apart; 0 where it has none.
    fn event_id(&self, _event: &Self::Event) -> u64 {
        0
    }

    /// Records the event behind the work submitted to the stream so far. Recorded again, the last record counts.
    ///
    /// # Errors
    /// What the driver says; the event then stands for what it stood for before.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> DriverResult<()>;

    /// Makes later work of the stream wait for the event as recorded now; a later record changes nothing.
    ///
    /// # Errors
    /// What the driver says.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> DriverResult<()>;

    /// Whether the event has been reached. `Ok(false)`: not yet. Work that failed is over, too: its error comes out of
    /// [`synchronize`](Self::synchronize) and [`wait_host`](Self::wait_host).
    ///
    /// # Errors
    /// What the driver says.
    fn is_complete(&self, event: &Self::Event) -> DriverResult<bool>;

    /// Waits on the host until the event has been reached.
    ///
    /// # Errors
    /// What the driver says, errors of the work before it among it.
    fn wait_host(&self, event: &Self::Event) -> DriverResult<()> {
        while !self.is_complete(event)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Nanoseconds between two recorded, complete events with timing; negative where `end` was first.
    ///
    /// # Errors
    /// What the driver says. The core has checked timing, record and completion.
    fn elapsed_ns(&self, start: &Self::Event, end: &Self::Event) -> DriverResult<i64>;

    /// Takes `len` bytes from the device.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory) is normal: the core frees cached memory and asks again.
    fn alloc(&self, len: NonZeroU64) -> DriverResult<Self::Ptr>;

    /// Gives memory back to the device.
    ///
    /// # Safety
    /// * `ptr` and `len` are those of one `alloc` of this backend, not given back since.
    /// * No work that uses the memory is submitted afterwards.
    unsafe fn dealloc(&self, ptr: Self::Ptr, len: NonZeroU64);

    /// Submits a copy of `len` bytes to the stream.
    ///
    /// # Errors
    /// What the driver says; nothing is copied then.
    ///
    /// # Safety
    /// * Both places are valid for `len` bytes, `dst` for writes, and do not overlap.
    /// * Host memory stays valid, and is not written (as `src`) or touched (as `dst`), until the stream has
    ///   done the copy.
    unsafe fn copy(
        &self,
        dst: Place<Self::Ptr>,
        src: Place<Self::Ptr>,
        len: NonZeroU64,
        stream: &Self::Stream,
    ) -> DriverResult<()>;

    /// Submits a fill of `len` bytes with `value` to the stream.
    ///
    /// # Errors
    /// What the driver says; nothing is filled then.
    ///
    /// # Safety
    /// * `dst` is valid for writes of `len` bytes.
    unsafe fn fill(
        &self,
        dst: Self::Ptr,
        value: u8,
        len: NonZeroU64,
        stream: &Self::Stream,
    ) -> DriverResult<()>;

    /// Takes `len` bytes of host memory that the device copies from and to by itself, so that such copies are
    /// asynchronous: initialised, and aligned to 64 bytes at least. Where a device has no such memory, or needs none,
    /// ordinary memory. CUDA: `cuMemHostAlloc`.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory); what else the driver says.
    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        host_memory::alloc(len)
    }

    /// Gives host memory back. CUDA: `cuMemFreeHost`.
    ///
    /// # Safety
    /// * `ptr` and `len` are those of one `alloc_host` of this backend, not given back since.
    /// * All work that uses the memory is over, and none is submitted afterwards.
    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        // SAFETY: The caller promises that it is one of `alloc_host`, given back once.
        unsafe { host_memory::dealloc(ptr, len) };
    }

    /// Whether work submitted to the stream is written down as a graph instead of being done. Meanwhile the core
    /// neither asks about events nor records any there. CUDA: `cuStreamIsCapturing`.
    ///
    /// # Errors
    /// What the driver says.
    fn is_capturing(&self, _stream: &Self::Stream) -> DriverResult<bool> {
        Ok(false)
    }

    /// Whether work that touches the same bytes never runs at the same time, also where the program forgot to order its
    /// streams and where the same memory is mapped at two addresses. A backend must offer this whose safe code gets
    /// references to device memory, as kernels do that are closures over slices: without it, two of them would have
    /// `&mut` to the same bytes. The core does not rely on it; the conformance suite checks it.
    fn serializes_conflicts(&self) -> bool {
        false
    }

    /// Copies between devices of this backend that do not go through the host, where they are offered. Else the core
    /// goes through the host itself.
    fn peer_copies(&self) -> Option<&dyn PeerCopies<Self>> {
        None
    }

    /// Address space and memory apart, where they are offered.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Self::Ptr>> {
        None
    }
}

/// Copies between devices of one backend.
///
/// # Safety
/// As [`Backend`]: the copy is work of the stream like any other, and an event of another device is waited for as one
/// of this device is.
#[allow(unsafe_code)] // the core relies on the contract as on that of `Backend`
pub unsafe trait PeerCopies<B: Backend> {
    /// Submits a copy of `len` bytes, from memory of the device `source`, to a stream of this device. CUDA:
    /// `cuMemcpyPeerAsync`.
    ///
    /// # Errors
    /// [`Unsupported`](crate::DriverErrorKind::Unsupported) where there is no way between these two: the core then goes
    /// through the host. What else the driver says. Nothing is copied then.
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

    /// Makes later work of a stream of this device wait for an event of another as recorded now.
    ///
    /// # Errors
    /// What the driver says.
    fn wait(&self, stream: &B::Stream, event: &B::Event) -> DriverResult<()>;
}
