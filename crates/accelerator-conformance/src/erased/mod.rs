//! One type for every backend, so that what works with any of them is compiled once.
//!
//! From the bottom: `handles` are streams and events of any type, `pointers` are locations of any type, `face` is what a
//! backend does in terms of both, [`AnyBackend`] is a backend over such a face, and [`Opener`] finds and opens devices.
#![allow(unsafe_code)] // the backend trait is unsafe to implement

mod face;
mod handles;
mod opener;
mod pointers;

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverResult, EventFlags, MemoryInfo, Place, StreamKind,
    Unavailable, VirtualMemory,
};

use self::face::{Erased, Face};
pub use self::handles::{AnyEvent, AnyStream};
pub use self::opener::{Opened, Opener};
pub use self::pointers::AnyPtr;

/// A device of any backend.
///
/// A program over it is compiled once, and not again for each backend. Each call of the driver costs a few tens of
/// nanoseconds more; the allocator's own work costs the same, since a cached block needs no call of the driver. Copies
/// between two devices go through the host.
///
/// ```
/// use accelerator_conformance::{AnyBackend, Sim};
/// use accelerator_core::{Accelerator, AllocatorConfig, GIB, MIB, Result};
///
/// # fn main() -> Result<()> {
/// let any = AnyBackend::new(Sim::new(GIB));
/// let device: &Accelerator<AnyBackend> = Accelerator::new(any, 0, AllocatorConfig::default())?;
/// let buffer = device.allocate(MIB, device.default_stream())?;
/// assert_eq!(device.device().to_string(), "sim:0");
/// # drop(buffer);
/// # Ok(())
/// # }
/// ```
pub struct AnyBackend(Box<dyn Face>);

impl AnyBackend {
    /// Around a device that was opened.
    pub fn new<B: Backend>(inner: B) -> Self {
        Self(Box::new(Erased::new(inner)))
    }

    /// The backend inside, if it is a `B`.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) for another backend.
    pub fn of<B: Backend>(&self) -> DriverResult<&B> {
        Ok(self.erased::<B>()?.inner())
    }

    /// The location as the backend inside has it, for kernels.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) for another backend than `B`, and for a
    /// location that is not of this device.
    pub fn ptr_of<B: Backend>(&self, ptr: AnyPtr) -> DriverResult<B::Ptr> {
        self.erased::<B>()?.ptr(ptr)
    }

    fn erased<B: Backend>(&self) -> DriverResult<&Erased<B>> {
        let erased = (&*self.0 as &dyn Any).downcast_ref();
        erased.ok_or(handles::invalid("backend", "the driver belongs to another backend"))
    }
}

impl fmt::Debug for AnyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyBackend {{ around: {:?} }}", self.properties().name)
    }
}

// SAFETY: Every call goes to the backend inside, whose contract is the same, with the stream, the event and the location
// that it made itself; what another made is refused.
unsafe impl Backend for AnyBackend {
    /// Of no device: [`kind`](Self::kind) is that of the backend inside.
    const KIND: DeviceKind = DeviceKind::new("any");
    type Ptr = AnyPtr;
    type Stream = AnyStream;
    type Event = AnyEvent;

    /// Finds nothing: an [`Opener`] does.
    fn probe() -> Result<u32, Unavailable> {
        Err(Unavailable { reason: "a backend must be chosen first".to_owned() })
    }

    /// Opens nothing: an [`Opener`] does.
    fn open(_ordinal: u32) -> DriverResult<Self> {
        Err(handles::invalid("open", "a backend must be chosen first"))
    }

    fn kind(&self) -> DeviceKind {
        self.0.kind()
    }

    fn properties(&self) -> &DeviceProperties {
        self.0.properties()
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.0.memory_info()
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<AnyStream> {
        self.0.stream(kind)
    }

    fn synchronize(&self, stream: &AnyStream) -> DriverResult<()> {
        self.0.synchronize(stream)
    }

    fn is_idle(&self, stream: &AnyStream) -> DriverResult<bool> {
        self.0.is_idle(stream)
    }

    fn event(&self, flags: EventFlags) -> DriverResult<AnyEvent> {
        self.0.event(flags)
    }

    fn event_id(&self, event: &AnyEvent) -> u64 {
        self.0.event_id(event)
    }

    fn record(&self, event: &AnyEvent, stream: &AnyStream) -> DriverResult<()> {
        self.0.record(event, stream)
    }

    fn wait(&self, stream: &AnyStream, event: &AnyEvent) -> DriverResult<()> {
        self.0.wait(stream, event)
    }

    fn is_complete(&self, event: &AnyEvent) -> DriverResult<bool> {
        self.0.is_complete(event)
    }

    fn wait_host(&self, event: &AnyEvent) -> DriverResult<()> {
        self.0.wait_host(event)
    }

    fn elapsed_ns(&self, start: &AnyEvent, end: &AnyEvent) -> DriverResult<i64> {
        self.0.elapsed_ns(start, end)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<AnyPtr> {
        self.0.alloc(len)
    }

    unsafe fn dealloc(&self, ptr: AnyPtr, len: NonZeroU64) {
        // SAFETY: The caller's promise.
        unsafe { self.0.dealloc(ptr, len) };
    }

    unsafe fn copy(
        &self,
        dst: Place<AnyPtr>,
        src: Place<AnyPtr>,
        len: NonZeroU64,
        stream: &AnyStream,
    ) -> DriverResult<()> {
        // SAFETY: The caller's promise.
        unsafe { self.0.copy(dst, src, len, stream) }
    }

    unsafe fn fill(&self, dst: AnyPtr, value: u8, len: NonZeroU64, stream: &AnyStream) -> DriverResult<()> {
        // SAFETY: The caller's promise.
        unsafe { self.0.fill(dst, value, len, stream) }
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        self.0.alloc_host(len)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        // SAFETY: The caller's promise.
        unsafe { self.0.dealloc_host(ptr, len) };
    }

    fn is_capturing(&self, stream: &AnyStream) -> DriverResult<bool> {
        self.0.is_capturing(stream)
    }

    fn serializes_conflicts(&self) -> bool {
        self.0.serializes_conflicts()
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<AnyPtr>> {
        self.0.virtual_memory()
    }
}
