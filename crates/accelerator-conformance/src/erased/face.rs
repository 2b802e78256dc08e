//! The methods of a backend, with the same types for every backend.

use std::any::Any;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverErrorKind, DriverResult, EventFlags, Exported, Graphs, Interprocess,
    MemoryInfo, Pages, Place, StreamKind, VirtualMemory,
};

use super::AnyBackend;
use super::handles::{AnyEvent, AnyStream};
use super::pointers::{AnyPtr, Pointers};
use crate::calls::{Call, failure};

/// [`Backend`] as a trait object. Each method corresponds to the one of the same name.
pub(super) trait Face: Any + Send + Sync {
    fn kind(&self) -> DeviceKind;
    fn properties(&self) -> &DeviceProperties;
    fn memory_info(&self) -> DriverResult<MemoryInfo>;
    fn stream(&self, kind: StreamKind) -> DriverResult<AnyStream>;
    fn synchronize(&self, stream: &AnyStream) -> DriverResult<()>;
    fn is_idle(&self, stream: &AnyStream) -> DriverResult<bool>;
    fn event(&self, flags: EventFlags) -> DriverResult<AnyEvent>;
    fn event_id(&self, event: &AnyEvent) -> u64;
    fn record(&self, event: &AnyEvent, stream: &AnyStream) -> DriverResult<()>;
    fn wait(&self, stream: &AnyStream, event: &AnyEvent) -> DriverResult<()>;
    fn is_complete(&self, event: &AnyEvent) -> DriverResult<bool>;
    fn wait_host(&self, event: &AnyEvent) -> DriverResult<()>;
    fn elapsed_ns(&self, start: &AnyEvent, end: &AnyEvent) -> DriverResult<i64>;
    fn alloc(&self, len: NonZeroU64) -> DriverResult<AnyPtr>;
    /// # Safety
    /// * The requirements of [`Backend::dealloc`].
    unsafe fn dealloc(&self, ptr: AnyPtr, len: NonZeroU64);
    /// # Safety
    /// * The requirements of [`Backend::copy`].
    unsafe fn copy(
        &self,
        dst: Place<AnyPtr>,
        src: Place<AnyPtr>,
        len: NonZeroU64,
        stream: &AnyStream,
    ) -> DriverResult<()>;
    /// # Safety
    /// * The requirements of [`Backend::fill`].
    unsafe fn fill(&self, dst: AnyPtr, value: u8, len: NonZeroU64, stream: &AnyStream) -> DriverResult<()>;
    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>>;
    /// # Safety
    /// * The requirements of [`Backend::dealloc_host`].
    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64);
    fn is_capturing(&self, stream: &AnyStream) -> DriverResult<bool>;
    fn serializes_conflicts(&self) -> bool;
    fn interprocess(&self) -> Option<&dyn Interprocess<AnyPtr>>;
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<AnyPtr>>;
    fn graphs(&self) -> Option<&dyn Graphs<AnyBackend>>;
}

/// A backend and the pointers that it has handed out.
pub(super) struct Erased<B: Backend> {
    inner: B,
    pointers: Pointers<B::Ptr>,
}

impl<B: Backend> Erased<B> {
    pub(super) fn new(inner: B) -> Self {
        Self { inner, pointers: Pointers::new() }
    }

    pub(super) fn inner(&self) -> &B {
        &self.inner
    }

    pub(super) fn ptr(&self, ptr: AnyPtr) -> DriverResult<B::Ptr> {
        self.pointers.native(ptr)
    }

    fn between(&self, call: Call) -> DriverResult<&dyn Interprocess<B::Ptr>> {
        let none = failure(call, DriverErrorKind::Unsupported, "the backend has no memory between processes");
        self.inner.interprocess().ok_or(none)
    }

    fn pager(&self, call: Call) -> DriverResult<&dyn VirtualMemory<B::Ptr>> {
        let none = failure(call, DriverErrorKind::Unsupported, "the backend has no virtual memory");
        self.inner.virtual_memory().ok_or(none)
    }
}

impl<B: Backend> Face for Erased<B> {
    fn kind(&self) -> DeviceKind {
        self.inner.kind()
    }

    fn properties(&self) -> &DeviceProperties {
        self.inner.properties()
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.inner.memory_info()
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<AnyStream> {
        self.inner.stream(kind).map(AnyStream::new::<B>)
    }

    fn synchronize(&self, stream: &AnyStream) -> DriverResult<()> {
        self.inner.synchronize(stream.of::<B>()?)
    }

    fn is_idle(&self, stream: &AnyStream) -> DriverResult<bool> {
        self.inner.is_idle(stream.of::<B>()?)
    }

    fn event(&self, flags: EventFlags) -> DriverResult<AnyEvent> {
        self.inner.event(flags).map(AnyEvent::new::<B>)
    }

    fn event_id(&self, event: &AnyEvent) -> u64 {
        event.of::<B>().map_or(0, |event| self.inner.event_id(event))
    }

    fn record(&self, event: &AnyEvent, stream: &AnyStream) -> DriverResult<()> {
        self.inner.record(event.of::<B>()?, stream.of::<B>()?)
    }

    fn wait(&self, stream: &AnyStream, event: &AnyEvent) -> DriverResult<()> {
        self.inner.wait(stream.of::<B>()?, event.of::<B>()?)
    }

    fn is_complete(&self, event: &AnyEvent) -> DriverResult<bool> {
        self.inner.is_complete(event.of::<B>()?)
    }

    fn wait_host(&self, event: &AnyEvent) -> DriverResult<()> {
        self.inner.wait_host(event.of::<B>()?)
    }

    fn elapsed_ns(&self, start: &AnyEvent, end: &AnyEvent) -> DriverResult<i64> {
        self.inner.elapsed_ns(start.of::<B>()?, end.of::<B>()?)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<AnyPtr> {
        self.inner.alloc(len).map(|ptr| self.pointers.enter(ptr))
    }

    unsafe fn dealloc(&self, ptr: AnyPtr, len: NonZeroU64) {
        if let Some(native) = self.pointers.remove(ptr) {
            // SAFETY: The caller promises that `alloc` returned the pointer for this length and that no later work uses
            // it. It was listed until now, so it is freed only once.
            unsafe { self.inner.dealloc(native, len) };
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<AnyPtr>,
        src: Place<AnyPtr>,
        len: NonZeroU64,
        stream: &AnyStream,
    ) -> DriverResult<()> {
        let (dst, src) = (self.pointers.place(dst)?, self.pointers.place(src)?);
        // SAFETY: These are the same two places, for which the caller makes the required promises.
        unsafe { self.inner.copy(dst, src, len, stream.of::<B>()?) }
    }

    unsafe fn fill(&self, dst: AnyPtr, value: u8, len: NonZeroU64, stream: &AnyStream) -> DriverResult<()> {
        let dst = self.pointers.native(dst)?;
        // SAFETY: This is the same place, for which the caller makes the required promises.
        unsafe { self.inner.fill(dst, value, len, stream.of::<B>()?) }
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        self.inner.alloc_host(len)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        // SAFETY: The caller makes the same promise.
        unsafe { self.inner.dealloc_host(ptr, len) };
    }

    fn is_capturing(&self, stream: &AnyStream) -> DriverResult<bool> {
        self.inner.is_capturing(stream.of::<B>()?)
    }

    fn serializes_conflicts(&self) -> bool {
        self.inner.serializes_conflicts()
    }

    fn interprocess(&self) -> Option<&dyn Interprocess<AnyPtr>> {
        self.inner.interprocess().map(|_| self as &dyn Interprocess<AnyPtr>)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<AnyPtr>> {
        self.inner.virtual_memory().map(|_| self as &dyn VirtualMemory<AnyPtr>)
    }

    fn graphs(&self) -> Option<&dyn Graphs<AnyBackend>> {
        self.inner.graphs().map(|_| self as &dyn Graphs<AnyBackend>)
    }
}

// SAFETY: Address space, memory and mappings belong to the inner backend, whose contract is the same.
unsafe impl<B: Backend> VirtualMemory<AnyPtr> for Erased<B> {
    fn granularity(&self) -> NonZeroU64 {
        self.inner.virtual_memory().map_or(NonZeroU64::MIN, VirtualMemory::granularity)
    }

    fn maps_twice(&self) -> bool {
        self.inner.virtual_memory().is_some_and(VirtualMemory::maps_twice)
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<AnyPtr> {
        self.pager(Call::Reserve)?.reserve(len).map(|at| self.pointers.enter(at))
    }

    unsafe fn release(&self, at: AnyPtr, len: NonZeroU64) {
        if let (Some(native), Ok(pager)) = (self.pointers.remove(at), self.pager(Call::Release)) {
            // SAFETY: The caller promises that `reserve` returned the address for this length and that nothing is
            // mapped there. It was listed until now, so it is released only once.
            unsafe { pager.release(native, len) };
        }
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.pager(Call::Create)?.create(len)
    }

    unsafe fn destroy(&self, pages: Pages) {
        if let Ok(pager) = self.pager(Call::Destroy) {
            // SAFETY: The caller makes the same promise.
            unsafe { pager.destroy(pages) };
        }
    }

    unsafe fn map(&self, at: AnyPtr, pages: &Pages) -> DriverResult<()> {
        let native = self.pointers.native(at)?;
        // SAFETY: This is the same place, for which the caller makes the required promises.
        unsafe { self.pager(Call::Map)?.map(native, pages) }
    }

    unsafe fn unmap(&self, at: AnyPtr, len: NonZeroU64) -> DriverResult<()> {
        let native = self.pointers.native(at)?;
        // SAFETY: This is the same place, for which the caller makes the required promises.
        unsafe { self.pager(Call::Unmap)?.unmap(native, len) }
    }
}

// SAFETY: All memory is that of the inner backend, whose contract is the same.
unsafe impl<B: Backend> Interprocess<AnyPtr> for Erased<B> {
    unsafe fn export(&self, ptr: AnyPtr, len: NonZeroU64) -> DriverResult<Exported> {
        let native = self.pointers.native(ptr)?;
        // SAFETY: This is the same memory, for which the caller makes the required promises.
        unsafe { self.between(Call::Export)?.export(native, len) }
    }

    fn import(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<AnyPtr> {
        self.between(Call::Import)?.import(exported, len).map(|ptr| self.pointers.enter(ptr))
    }

    unsafe fn close(&self, ptr: AnyPtr, len: NonZeroU64) {
        if let (Some(native), Ok(between)) = (self.pointers.remove(ptr), self.between(Call::Close)) {
            // SAFETY: The caller promises that `import` returned the address for this length, and that no work uses it.
            // It was listed until now, so it is closed only once.
            unsafe { between.close(native, len) };
        }
    }

    unsafe fn export_pages(&self, pages: &Pages) -> DriverResult<Exported> {
        // SAFETY: The caller makes the same promise.
        unsafe { self.between(Call::ExportPages)?.export_pages(pages) }
    }

    fn import_pages(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<Pages> {
        self.between(Call::ImportPages)?.import_pages(exported, len)
    }
}
