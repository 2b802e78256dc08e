//! The calls of the backend trait, with injected faults.
#![allow(unsafe_code)] // the backend trait is unsafe to implement

use std::fmt;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverErrorKind, DriverResult, EventFlags, Graphs, Interprocess, MemoryInfo,
    Place, StreamKind, Unavailable, VirtualMemory,
};

use super::Faulty;
use super::host::addresses;
use super::lanes::{FaultyStream, Mark, Work};
use crate::calls::{Call, failure};
use crate::controls::Controls;

/// An event of a faulty driver.
pub struct FaultyEvent<B: Backend> {
    flags: EventFlags,
    /// The last record. Work that waits for an earlier record keeps that one.
    last: Mutex<Arc<Mark<B>>>,
}

impl<B: Backend> FaultyEvent<B> {
    fn last(&self) -> MutexGuard<'_, Arc<Mark<B>>> {
        lock(&self.last)
    }

    fn mark(&self) -> Arc<Mark<B>> {
        Arc::clone(&self.last())
    }
}

impl<B: Backend> fmt::Debug for FaultyEvent<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyEvent {{ inner: {:?} }}", self.last().native)
    }
}

// SAFETY: Memory, order and completion are those of the inner backend, whose contract is the same. Each stream's work
// goes to it in the order of submission, after everything that it waits for. An event is complete only once the inner
// backend has received it and reports so. A `dealloc` is passed on after all work that may use the memory. Nothing
// calls the core.
unsafe impl<B: Backend> Backend for Faulty<B> {
    const KIND: DeviceKind = B::KIND;
    type Ptr = B::Ptr;
    type Stream = FaultyStream<B>;
    type Event = FaultyEvent<B>;

    fn probe() -> Result<u32, Unavailable> {
        B::probe()
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        B::open(ordinal).map(Self::new)
    }

    fn kind(&self) -> DeviceKind {
        self.inner.kind()
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.entrance.admit(Call::MemoryInfo)?;
        Ok(self.budget.limited(self.inner.memory_info()?))
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<FaultyStream<B>> {
        self.entrance.admit(Call::Stream)?;
        Ok(self.lanes.add(self.inner.stream(kind)?))
    }

    fn synchronize(&self, stream: &FaultyStream<B>) -> DriverResult<()> {
        let injected = self.entrance.admit(Call::Synchronize);
        let late = self.lanes.force(&self.inner, stream);
        let waited = self.inner.synchronize(stream.inner());
        injected.and(late).and(waited)
    }

    fn is_idle(&self, stream: &FaultyStream<B>) -> DriverResult<bool> {
        self.entrance.admit(Call::IsIdle)?;
        Ok(!self.lanes.is_waiting(stream) && self.inner.is_idle(stream.inner())?)
    }

    fn event(&self, flags: EventFlags) -> DriverResult<FaultyEvent<B>> {
        self.entrance.admit(Call::Event)?;
        let unrecorded = Mark::unrecorded(self.inner.event(flags)?);
        Ok(FaultyEvent { flags, last: Mutex::new(Arc::new(unrecorded)) })
    }

    fn event_id(&self, event: &FaultyEvent<B>) -> u64 {
        self.inner.event_id(&event.mark().native)
    }

    fn record(&self, event: &FaultyEvent<B>, stream: &FaultyStream<B>) -> DriverResult<()> {
        self.entrance.admit(Call::Record)?;
        let mut last = event.last();
        if let Some(mark) = Arc::get_mut(&mut last)
            && !self.lanes.defers(&self.inner, stream)
        {
            // The common case uses the backend's own event: the same event is recorded again.
            self.inner.record(&mark.native, stream.inner())?;
            mark.set_captured(self.lanes.captures(&self.inner, stream));
            return Ok(());
        }
        let mark = Arc::new(Mark::on(stream, self.inner.event(event.flags)?));
        self.lanes.submit(&self.inner, stream, Work::Record(Arc::clone(&mark)))?;
        mark.set_captured(self.lanes.captures(&self.inner, stream));
        *last = mark;
        Ok(())
    }

    fn wait(&self, stream: &FaultyStream<B>, event: &FaultyEvent<B>) -> DriverResult<()> {
        self.entrance.admit(Call::Wait)?;
        self.lanes.submit(&self.inner, stream, Work::Wait(event.mark()))
    }

    fn is_complete(&self, event: &FaultyEvent<B>) -> DriverResult<bool> {
        self.entrance.admit(Call::IsComplete)?;
        let mark = event.mark();
        Ok(mark.is_submitted() && self.inner.is_complete(&mark.native)?)
    }

    fn wait_host(&self, event: &FaultyEvent<B>) -> DriverResult<()> {
        self.entrance.admit(Call::WaitHost)?;
        let mark = event.mark();
        self.lanes.force_mark(&self.inner, &mark);
        self.inner.wait_host(&mark.native)
    }

    fn elapsed_ns(&self, start: &FaultyEvent<B>, end: &FaultyEvent<B>) -> DriverResult<i64> {
        self.entrance.admit(Call::ElapsedNs)?;
        let (start, end) = (start.mark(), end.mark());
        self.inner.elapsed_ns(&start.native, &end.native)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<B::Ptr> {
        self.entrance.admit(Call::Alloc)?;
        if !self.budget.reserve(len) {
            return Err(failure(Call::Alloc, DriverErrorKind::OutOfMemory, "the device's limit is reached"));
        }
        match self.inner.alloc(len) {
            Ok(ptr) => {
                self.budget.enter(ptr, len);
                Ok(ptr)
            }
            Err(error) => {
                self.budget.refund(len);
                Err(error)
            }
        }
    }

    unsafe fn dealloc(&self, ptr: B::Ptr, len: NonZeroU64) {
        self.entrance.enter(Call::Dealloc);
        if !self.budget.remove(ptr, len) {
            return;
        }
        self.lanes.force_bytes(&self.inner);
        if !self.quarantined(ptr, len) {
            // SAFETY: `budget` listed it as a live allocation of the inner backend until now; work that uses it was
            // submitted to the backend before.
            unsafe { self.inner.dealloc(ptr, len) };
        }
        self.budget.refund(len);
    }

    unsafe fn copy(
        &self,
        dst: Place<B::Ptr>,
        src: Place<B::Ptr>,
        len: NonZeroU64,
        stream: &FaultyStream<B>,
    ) -> DriverResult<()> {
        self.entrance.admit(Call::Copy)?;
        self.lanes.submit(&self.inner, stream, Work::Copy { to: dst, from: src, len })
    }

    unsafe fn fill(&self, dst: B::Ptr, value: u8, len: NonZeroU64, stream: &FaultyStream<B>) -> DriverResult<()> {
        self.entrance.admit(Call::Fill)?;
        self.lanes.submit(&self.inner, stream, Work::Fill { at: dst, value, len })
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        self.entrance.admit(Call::AllocHost)?;
        self.host.alloc(&*self.inner, len)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        self.entrance.enter(Call::DeallocHost);
        if !self.host.remove(ptr, len) {
            return;
        }
        if self.lanes.touch(&addresses(ptr, len)) {
            self.host.budget().add_misuse(); // the caller promised that no such work is left
            self.lanes.force_bytes(&self.inner);
            self.settle();
        }
        // SAFETY: It was listed as a live allocation of the inner backend until now; the caller promises the rest.
        unsafe { self.host.dealloc(&*self.inner, ptr, len) };
    }

    fn is_capturing(&self, stream: &FaultyStream<B>) -> DriverResult<bool> {
        self.entrance.admit(Call::IsCapturing)?;
        Ok(stream.capturing.load(Ordering::SeqCst) || self.inner.is_capturing(stream.inner())?)
    }

    fn serializes_conflicts(&self) -> bool {
        self.inner.serializes_conflicts()
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

impl<B: Backend> Faulty<B> {
    /// Puts freed memory into quarantine, after the work that uses it. Returns whether it is there.
    fn quarantined(&self, ptr: B::Ptr, len: NonZeroU64) -> bool {
        if !self.quarantine.is_on() {
            return false;
        }
        let streams = self.lanes.natives();
        let first = streams.first().filter(|_| self.lanes.settle(&self.inner));
        first.is_some_and(|stream| self.quarantine.take(&self.inner, ptr, len, stream))
    }
}
