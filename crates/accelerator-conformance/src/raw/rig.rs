//! What a raw case works with: the backend itself, memory and streams, and work that takes long enough to be looked at.
#![allow(unsafe_code)] // the backend's own methods

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, DevicePtr, DriverResult, EventFlags, Place, StreamKind};

use super::bytes;
use super::work::Scale;
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};
use crate::progress;

/// Some bytes: memory of the device or of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<P> {
    pub(super) place: Place<P>,
    pub(super) len: u64,
}

// SAFETY: It is an address. The rig keeps the memory until the case is over, and the case orders its accesses.
unsafe impl<P: Send> Send for Span<P> {}
// SAFETY: As for `Send`.
unsafe impl<P: Sync> Sync for Span<P> {}

impl<P: DevicePtr> Span<P> {
    /// Returns a part of it.
    pub(super) fn part(self, offset: u64, len: u64) -> Self {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a part of the span");
        let place = match self.place {
            Place::Device(start) => Place::Device(start.offset(offset)),
            // SAFETY: The offset lies within the memory.
            Place::Host(start) => Place::Host(unsafe { start.add(offset as usize) }),
            other => other, // a kind of place that the rig never makes
        };
        Self { place, len }
    }

    /// Returns where device memory begins.
    pub(super) fn device(&self) -> P {
        let Place::Device(start) = self.place else { unreachable!("device memory") };
        start
    }

    /// Returns the bytes of host memory. Call it only when no work writes to them.
    pub(super) fn bytes(&self) -> &[u8] {
        let Place::Host(start) = self.place else { unreachable!("only host memory is read directly") };
        // SAFETY: The rig keeps the memory, which is initialised; the caller knows that no work writes to it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len as usize) }
    }

    /// Returns the bytes of host memory. Call it only when no work uses them.
    #[allow(clippy::mut_from_ref, reason = "a span is an address; the case orders its accesses")]
    pub(super) fn bytes_mut(&self) -> &mut [u8] {
        let Place::Host(start) = self.place else { unreachable!("only host memory is written directly") };
        // SAFETY: The rig keeps the memory, which is initialised; the caller knows that no work uses it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len as usize) }
    }
}

/// A backend, and what a case has taken from it.
pub(super) struct Rig<'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) scale: &'a OnceLock<Scale>,
    step: Mutex<&'static str>,
    made: Mutex<Made<B>>,
}

struct Made<B: Backend> {
    streams: Vec<Arc<B::Stream>>,
    device: Vec<(B::Ptr, NonZeroU64)>,
    pinned: Vec<Span<B::Ptr>>,
    pageable: Vec<Box<[u8]>>,
}

impl<B: Backend> Default for Made<B> {
    fn default() -> Self {
        Self { streams: Vec::new(), device: Vec::new(), pinned: Vec::new(), pageable: Vec::new() }
    }
}

impl<'a, B: Backend> Rig<'a, B> {
    pub(super) fn new(backend: &'a B, scale: &'a OnceLock<Scale>) -> Self {
        Self { backend, scale, step: Mutex::new("the device can be used"), made: Mutex::default() }
    }

    /// Says which sentence of the contract is checked from here on. Errors and crashes repeat it.
    pub(super) fn step(&self, sentence: &'static &'static str) {
        progress::step(sentence);
        *lock(&self.step) = sentence;
    }

    /// Makes a call of the backend whose refusal is an answer.
    pub(super) fn ask<T>(&self, call: Call, make: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        let _inside = progress::inside(call);
        make()
    }

    /// Makes a call of the backend that must succeed.
    pub(super) fn call<T>(&self, call: Call, make: impl FnOnce() -> DriverResult<T>) -> Result<T, Failure> {
        self.ask(call, make).map_err(|error| {
            let step = *lock(&self.step);
            Failure::Failed(format!("`{}` failed: {error}; the case was checking that {step}", call.name()))
        })
    }

    /// Gives everything back. If `keep`, host memory is kept, because work may still use it after a failure.
    pub(super) fn finish(self, keep: bool) -> Outcome {
        let mut settled = Ok(());
        for stream in self.made().streams.clone() {
            settled = settled.and(self.synchronize(&stream));
        }
        let Made { device, pinned, pageable, .. } = std::mem::take(&mut *self.made());
        for (ptr, len) in device {
            let _inside = progress::inside(Call::Dealloc);
            // SAFETY: It comes from `alloc`, is given back once, and no work is submitted any more.
            unsafe { self.backend.dealloc(ptr, len) };
        }
        if keep || settled.is_err() {
            std::mem::forget(pageable);
            return settled;
        }
        for span in pinned {
            self.return_host(span);
        }
        settled
    }

    /// Gives memory of `alloc_host` back. All work that uses it is over.
    pub(super) fn dealloc_host(&self, span: Span<B::Ptr>) {
        let start = |span: &Span<B::Ptr>| span.bytes().as_ptr();
        let mut made = self.made();
        let Some(place) = made.pinned.iter().position(|other| start(other) == start(&span)) else { return };
        let span = made.pinned.swap_remove(place);
        drop(made);
        self.return_host(span);
    }

    fn return_host(&self, span: Span<B::Ptr>) {
        if let (Place::Host(start), Some(len)) = (span.place, NonZeroU64::new(span.len)) {
            let _inside = progress::inside(Call::DeallocHost);
            // SAFETY: It comes from `alloc_host`, and was listed until now. All work that uses it is over.
            unsafe { self.backend.dealloc_host(start, len) };
        }
    }

    fn made(&self) -> MutexGuard<'_, Made<B>> {
        lock(&self.made)
    }

    pub(super) fn stream(&self) -> Result<Arc<B::Stream>, Failure> {
        self.stream_of(StreamKind::Side { priority: 0 })
    }

    pub(super) fn stream_of(&self, kind: StreamKind) -> Result<Arc<B::Stream>, Failure> {
        let stream = Arc::new(self.call(Call::Stream, || self.backend.stream(kind))?);
        self.made().streams.push(Arc::clone(&stream));
        Ok(stream)
    }

    pub(super) fn event(&self, flags: EventFlags) -> Result<B::Event, Failure> {
        self.call(Call::Event, || self.backend.event(flags))
    }

    pub(super) fn plain_event(&self) -> Result<B::Event, Failure> {
        self.event(EventFlags::default())
    }

    pub(super) fn record(&self, event: &B::Event, stream: &B::Stream) -> Outcome {
        self.call(Call::Record, || self.backend.record(event, stream))
    }

    /// Returns a plain event, recorded on the stream now.
    pub(super) fn recorded(&self, stream: &B::Stream) -> Result<B::Event, Failure> {
        let event = self.plain_event()?;
        self.record(&event, stream).map(|()| event)
    }

    pub(super) fn wait(&self, stream: &B::Stream, event: &B::Event) -> Outcome {
        self.call(Call::Wait, || self.backend.wait(stream, event))
    }

    pub(super) fn is_complete(&self, event: &B::Event) -> Result<bool, Failure> {
        self.call(Call::IsComplete, || self.backend.is_complete(event))
    }

    pub(super) fn is_idle(&self, stream: &B::Stream) -> Result<bool, Failure> {
        self.call(Call::IsIdle, || self.backend.is_idle(stream))
    }

    pub(super) fn synchronize(&self, stream: &B::Stream) -> Outcome {
        self.call(Call::Synchronize, || self.backend.synchronize(stream))
    }

    pub(super) fn wait_host(&self, event: &B::Event) -> Outcome {
        self.call(Call::WaitHost, || self.backend.wait_host(event))
    }

    pub(super) fn alloc(&self, len: u64) -> Result<Span<B::Ptr>, Failure> {
        let len = length(len);
        let ptr = self.call(Call::Alloc, || self.backend.alloc(len))?;
        Ok(self.keep(ptr, len))
    }

    /// Like [`alloc`](Self::alloc), but returns the refusal if there is one.
    pub(super) fn try_alloc(&self, len: u64) -> DriverResult<Span<B::Ptr>> {
        let len = length(len);
        let ptr = self.ask(Call::Alloc, || self.backend.alloc(len))?;
        Ok(self.keep(ptr, len))
    }

    /// Takes over what `alloc` returned.
    fn keep(&self, ptr: B::Ptr, len: NonZeroU64) -> Span<B::Ptr> {
        self.made().device.push((ptr, len));
        Span { place: Place::Device(ptr), len: len.get() }
    }

    /// Gives device memory back.
    pub(super) fn dealloc(&self, span: Span<B::Ptr>) {
        let ptr = span.device();
        let mut made = self.made();
        let Some(place) = made.device.iter().position(|(start, _)| *start == ptr) else { return };
        let (ptr, len) = made.device.swap_remove(place);
        drop(made);
        let _inside = progress::inside(Call::Dealloc);
        // SAFETY: It comes from `alloc` and was listed until now. The case submits no more work that uses it.
        unsafe { self.backend.dealloc(ptr, len) };
    }

    /// Returns device memory that is already filled with one value.
    pub(super) fn filled(&self, len: u64, value: u8, stream: &B::Stream) -> Result<Span<B::Ptr>, Failure> {
        let span = self.alloc(len)?;
        self.fill(span, value, stream)?;
        self.synchronize(stream)?;
        Ok(span)
    }

    /// Returns memory of `alloc_host`, filled with one value.
    pub(super) fn pinned(&self, len: u64, value: u8) -> Result<Span<B::Ptr>, Failure> {
        let len = length(len);
        let start = self.call(Call::AllocHost, || self.backend.alloc_host(len))?;
        let span = Span { place: Place::Host(start), len: len.get() };
        self.made().pinned.push(span);
        span.bytes_mut().fill(value);
        Ok(span)
    }

    /// Returns ordinary host memory, filled with one value.
    pub(super) fn pageable(&self, len: u64, value: u8) -> Span<B::Ptr> {
        let mut memory = vec![value; len as usize].into_boxed_slice();
        let start = NonNull::from(&mut *memory).cast();
        self.made().pageable.push(memory);
        Span { place: Place::Host(start), len }
    }

    pub(super) fn fill(&self, span: Span<B::Ptr>, value: u8, stream: &B::Stream) -> Outcome {
        let (to, len) = (span.device(), length(span.len));
        // SAFETY: The rig keeps the memory until all streams are done.
        self.call(Call::Fill, || unsafe { self.backend.fill(to, value, len, stream) })
    }

    pub(super) fn copy(&self, dst: Span<B::Ptr>, src: Span<B::Ptr>, stream: &B::Stream) -> Outcome {
        assert_eq!(dst.len, src.len);
        let len = length(dst.len);
        // SAFETY: The rig keeps the memory until all streams are done. The cases do not access host memory while work
        // uses it.
        self.call(Call::Copy, || unsafe { self.backend.copy(dst.place, src.place, len, stream) })
    }

    /// Checks that device memory holds one value, once the stream is done: of `method`, says `sentence` otherwise.
    pub(super) fn holds(&self, span: Span<B::Ptr>, value: u8, stream: &B::Stream, sentence: &str) -> Outcome {
        let copy = self.pageable(span.len, !value);
        self.copy(copy, span, stream)?;
        self.synchronize(stream)?;
        bytes::all(copy.bytes(), value).map_err(|difference| format!("{sentence}: {difference}").into())
    }
}

/// Converts a length for a call, which takes at least one byte.
pub(super) fn length(len: u64) -> NonZeroU64 {
    NonZeroU64::new(len).unwrap_or(NonZeroU64::MIN)
}
