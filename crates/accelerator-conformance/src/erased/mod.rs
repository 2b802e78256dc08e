//! One type for every backend, so that code that works with any of them is compiled once.
//!
//! From the bottom: `handles` contains streams and events of any type, `pointers` pointers of any type, and `face` the
//! methods of a backend in terms of both, with those of its `graphs`. [`AnyBackend`] is a backend over such a face, and
//! [`Opener`] finds and opens devices.
#![allow(unsafe_code)] // the backend trait is unsafe to implement

mod face;
mod graphs;
mod handles;
mod opener;
mod pointers;

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverErrorKind, DriverResult, EventFlags, Graphs, Interprocess, MemoryInfo,
    Place, StreamKind, Unavailable, VirtualMemory,
};

use self::face::{Erased, Face};
pub use self::handles::{AnyEvent, AnyStream};
pub use self::opener::{Opened, Opener};
pub use self::pointers::AnyPtr;
use crate::calls::Call;
use crate::progress;

/// A device of any backend.
///
/// A program that uses it is compiled once rather than once per backend. Each driver call costs a few tens of
/// nanoseconds more; the allocator's own work costs the same, since a cached block needs no driver call. Copies between
/// two devices go through the host.
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
    /// Wraps a device that was opened.
    pub fn new<B: Backend>(inner: B) -> Self {
        Self(Box::new(Erased::new(inner)))
    }

    /// Returns the inner backend, if it is a `B`.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) if it is another backend.
    pub fn of<B: Backend>(&self) -> DriverResult<&B> {
        Ok(self.erased::<B>()?.inner())
    }

    /// Whether pages can be exported, if there are any.
    pub(crate) fn exports_pages(&self) -> bool {
        let (Some(memory), Some(between)) = (self.virtual_memory(), self.interprocess()) else { return true };
        let Ok(pages) = memory.create(memory.granularity()) else { return true };
        // SAFETY: The pages were created above, and nobody accesses them.
        let exported = unsafe { between.export_pages(&pages) };
        // SAFETY: They are mapped nowhere.
        unsafe { memory.destroy(pages) };
        !matches!(exported, Err(error) if error.kind == DriverErrorKind::Unsupported)
    }

    /// Returns the inner backend's pointer, for kernels.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) if the backend is not `B`, or if the
    /// pointer does not belong to this device.
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

// SAFETY: Every call goes to the inner backend, whose contract is the same, with streams, events and pointers that it
// made itself; those of other backends are rejected.
unsafe impl Backend for AnyBackend {
    /// Matches no device: [`kind`](Self::kind) returns the kind of the inner backend.
    const KIND: DeviceKind = DeviceKind::new("any");
    type Ptr = AnyPtr;
    type Stream = AnyStream;
    type Event = AnyEvent;

    /// Finds no device: use an [`Opener`].
    fn probe() -> Result<u32, Unavailable> {
        Err(Unavailable::new("a backend must be chosen first"))
    }

    /// Opens no device: use an [`Opener`].
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
        let _inside = progress::inside(Call::MemoryInfo);
        self.0.memory_info()
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<AnyStream> {
        let _inside = progress::inside(Call::Stream);
        self.0.stream(kind)
    }

    fn synchronize(&self, stream: &AnyStream) -> DriverResult<()> {
        let _inside = progress::inside(Call::Synchronize);
        self.0.synchronize(stream)
    }

    fn is_idle(&self, stream: &AnyStream) -> DriverResult<bool> {
        let _inside = progress::inside(Call::IsIdle);
        self.0.is_idle(stream)
    }

    fn event(&self, flags: EventFlags) -> DriverResult<AnyEvent> {
        let _inside = progress::inside(Call::Event);
        self.0.event(flags)
    }

    fn event_id(&self, event: &AnyEvent) -> u64 {
        self.0.event_id(event)
    }

    fn record(&self, event: &AnyEvent, stream: &AnyStream) -> DriverResult<()> {
        let _inside = progress::inside(Call::Record);
        self.0.record(event, stream)
    }

    fn wait(&self, stream: &AnyStream, event: &AnyEvent) -> DriverResult<()> {
        let _inside = progress::inside(Call::Wait);
        self.0.wait(stream, event)
    }

    fn is_complete(&self, event: &AnyEvent) -> DriverResult<bool> {
        let _inside = progress::inside(Call::IsComplete);
        self.0.is_complete(event)
    }

    fn wait_host(&self, event: &AnyEvent) -> DriverResult<()> {
        let _inside = progress::inside(Call::WaitHost);
        self.0.wait_host(event)
    }

    fn elapsed_ns(&self, start: &AnyEvent, end: &AnyEvent) -> DriverResult<i64> {
        let _inside = progress::inside(Call::ElapsedNs);
        self.0.elapsed_ns(start, end)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<AnyPtr> {
        let _inside = progress::inside(Call::Alloc);
        self.0.alloc(len)
    }

    unsafe fn dealloc(&self, ptr: AnyPtr, len: NonZeroU64) {
        let _inside = progress::inside(Call::Dealloc);
        // SAFETY: The caller makes the same promise.
        unsafe { self.0.dealloc(ptr, len) };
    }

    unsafe fn copy(
        &self,
        dst: Place<AnyPtr>,
        src: Place<AnyPtr>,
        len: NonZeroU64,
        stream: &AnyStream,
    ) -> DriverResult<()> {
        let _inside = progress::inside(Call::Copy);
        // SAFETY: The caller makes the same promise.
        unsafe { self.0.copy(dst, src, len, stream) }
    }

    unsafe fn fill(&self, dst: AnyPtr, value: u8, len: NonZeroU64, stream: &AnyStream) -> DriverResult<()> {
        let _inside = progress::inside(Call::Fill);
        // SAFETY: The caller makes the same promise.
        unsafe { self.0.fill(dst, value, len, stream) }
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let _inside = progress::inside(Call::AllocHost);
        self.0.alloc_host(len)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        let _inside = progress::inside(Call::DeallocHost);
        // SAFETY: The caller makes the same promise.
        unsafe { self.0.dealloc_host(ptr, len) };
    }

    fn is_capturing(&self, stream: &AnyStream) -> DriverResult<bool> {
        self.0.is_capturing(stream)
    }

    fn serializes_conflicts(&self) -> bool {
        self.0.serializes_conflicts()
    }

    fn interprocess(&self) -> Option<&dyn Interprocess<AnyPtr>> {
        self.0.interprocess()
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<AnyPtr>> {
        self.0.virtual_memory()
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        self.0.graphs()
    }
}
