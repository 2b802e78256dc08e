//! A driver with a fault, around one without.
#![allow(unsafe_code)] // the backend trait is unsafe to implement

mod elapsed;
mod events;
mod graphs;
mod halves;
mod host_memory;
mod interprocess;
mod memory;
mod properties;
mod streams;
mod virtual_memory;
mod work;

use std::mem;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags, Graphs,
    Interprocess, MemoryInfo, Place, StreamKind, Unavailable, VirtualMemory,
};

pub(crate) use self::events::BrokenEvent;
use self::halves::Held;
use self::host_memory::HostMemory;
use self::memory::Memory;
use self::properties::Properties;
pub(crate) use self::streams::BrokenStream;
use self::streams::Lane;
use self::virtual_memory::Mappings;
use self::work::Work;
use crate::fault::{Fault, has};

/// The driver `B` with the fault of this process. Without a fault, it only passes calls on.
pub(crate) struct Broken<B: Backend> {
    inner: Arc<B>,
    properties: Properties,
    /// The first thread that made something on the device.
    thread: OnceLock<ThreadId>,
    lanes: Mutex<Vec<Arc<Lane<B>>>>,
    memory: Memory<B::Ptr>,
    host: HostMemory,
    mappings: Mappings<B::Ptr>,
    /// Held by a thread in a call that goes wrong when another thread makes it, too.
    alone: Mutex<()>,
    held: Mutex<Option<Held<B>>>,
}

/// Returns the error as one of another kind.
fn of_kind(kind: DriverErrorKind, error: DriverError) -> DriverError {
    DriverError::new(kind, error.call, error.code, error.name)
}

/// Waits for something that never happens.
fn for_ever() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

impl<B: Backend> Broken<B> {
    /// Refuses the calls of other threads, if that is the fault.
    fn enter(&self, call: &'static str) -> DriverResult<()> {
        let own = thread::current().id();
        match has(Fault::OtherThreadsRefused) && *self.thread.get_or_init(|| own) != own {
            true => Err(DriverError::refused(
                DriverErrorKind::InvalidArgument,
                call,
                "no context is current on this thread",
            )),
            false => Ok(()),
        }
    }

    /// Begins a call. Returns `None` if another thread is in such a call, and the fault is what happens then.
    fn alone(&self, fault: Fault) -> Option<Option<MutexGuard<'_, ()>>> {
        if !has(fault) {
            return Some(None);
        }
        let guard = self.alone.try_lock().ok()?;
        thread::sleep(Duration::from_millis(1)); // so that another thread comes
        Some(Some(guard))
    }
}

impl<B: Backend> Drop for Broken<B> {
    fn drop(&mut self) {
        if has(Fault::DroppedBackendDoesNotWait) {
            // The inner driver would wait, so it stays, with its streams.
            mem::forget((Arc::clone(&self.inner), mem::take(&mut *lock(&self.lanes))));
        }
    }
}

// SAFETY: It breaks this contract on purpose, in a process of its own that then ends. What reaches the inner driver
// keeps that driver's contract: work stays within live allocations, and each is given back at most once.
unsafe impl<B: Backend> Backend for Broken<B> {
    const KIND: DeviceKind = B::KIND;
    type Ptr = B::Ptr;
    type Stream = BrokenStream<B>;
    type Event = BrokenEvent<B>;

    fn probe() -> Result<u32, Unavailable> {
        properties::counted(B::probe()?)
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        let inner = properties::opened(ordinal, B::open)?;
        Ok(Self {
            properties: Properties::of(inner.properties()),
            inner: Arc::new(inner),
            thread: OnceLock::new(),
            lanes: Mutex::default(),
            memory: Memory::default(),
            host: HostMemory::default(),
            mappings: Mappings::default(),
            alone: Mutex::default(),
            held: Mutex::default(),
        })
    }

    fn kind(&self) -> DeviceKind {
        self.inner.kind()
    }

    fn properties(&self) -> &DeviceProperties {
        self.properties.stated()
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        Ok(self.memory.told(self.inner.memory_info()?))
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<BrokenStream<B>> {
        self.enter("stream")?;
        self.make_stream(kind)
    }

    fn synchronize(&self, stream: &BrokenStream<B>) -> DriverResult<()> {
        self.enter("synchronize")?;
        self.synchronize_stream(stream.lane())
    }

    fn is_idle(&self, stream: &BrokenStream<B>) -> DriverResult<bool> {
        self.enter("is_idle")?;
        self.is_stream_idle(stream.lane())
    }

    fn event(&self, flags: EventFlags) -> DriverResult<BrokenEvent<B>> {
        self.enter("event")?;
        self.make_event(flags)
    }

    fn event_id(&self, event: &BrokenEvent<B>) -> u64 {
        self.id_of(event)
    }

    fn record(&self, event: &BrokenEvent<B>, stream: &BrokenStream<B>) -> DriverResult<()> {
        self.enter("record")?;
        let Some(_guard) = self.alone(Fault::RecordsAtOnceLost) else { return Ok(()) };
        self.record_event(event, stream.lane())
    }

    fn wait(&self, stream: &BrokenStream<B>, event: &BrokenEvent<B>) -> DriverResult<()> {
        self.enter("wait")?;
        self.wait_for(stream.lane(), event)
    }

    fn is_complete(&self, event: &BrokenEvent<B>) -> DriverResult<bool> {
        self.is_event_complete(event)
    }

    fn wait_host(&self, event: &BrokenEvent<B>) -> DriverResult<()> {
        self.wait_on_the_host(event)
    }

    fn elapsed_ns(&self, start: &BrokenEvent<B>, end: &BrokenEvent<B>) -> DriverResult<i64> {
        self.elapsed(start, end)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<B::Ptr> {
        self.enter("alloc")?;
        self.allocate(len)
    }

    unsafe fn dealloc(&self, ptr: B::Ptr, len: NonZeroU64) {
        // SAFETY: The caller promises the same.
        unsafe { self.deallocate(ptr, len) };
    }

    unsafe fn copy(
        &self,
        dst: Place<B::Ptr>,
        src: Place<B::Ptr>,
        len: NonZeroU64,
        stream: &BrokenStream<B>,
    ) -> DriverResult<()> {
        self.enter("copy")?;
        let Some(_guard) = self.alone(Fault::SubmissionsAtOnceLost) else { return Ok(()) };
        // SAFETY: The caller promises the same.
        unsafe { self.submit(stream.lane(), Work::Copy { to: dst, from: src, len }) }
    }

    unsafe fn fill(&self, dst: B::Ptr, value: u8, len: NonZeroU64, stream: &BrokenStream<B>) -> DriverResult<()> {
        self.enter("fill")?;
        let Some(_guard) = self.alone(Fault::SubmissionsAtOnceLost) else { return Ok(()) };
        // SAFETY: The caller promises the same.
        unsafe { self.submit(stream.lane(), Work::Fill { at: dst, value, len }) }
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        self.enter("alloc_host")?;
        self.host.alloc(&*self.inner, len)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        // SAFETY: The caller promises the same.
        unsafe { self.host.dealloc(&*self.inner, ptr, len) };
    }

    fn is_capturing(&self, stream: &BrokenStream<B>) -> DriverResult<bool> {
        self.captures(stream.lane())
    }

    fn serializes_conflicts(&self) -> bool {
        halves::are_apart() || self.inner.serializes_conflicts()
    }

    fn interprocess(&self) -> Option<&dyn Interprocess<B::Ptr>> {
        self.inner.interprocess().map(|_| self as &dyn Interprocess<B::Ptr>)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<B::Ptr>> {
        self.inner.virtual_memory().map(|_| self as &dyn VirtualMemory<B::Ptr>)
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        self.inner.graphs().map(|_| self as &dyn Graphs<Self>)
    }
}
