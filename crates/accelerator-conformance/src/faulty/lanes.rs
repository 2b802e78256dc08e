//! Streams that run late: work for a held stream, and work that must wait for it, goes to the driver at the release.
#![allow(unsafe_code)] // `Backend::copy` and `Backend::fill`

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, DevicePtr, DriverError, DriverResult, ExecutableGraph, Place};

use super::host::addresses;

/// A stream of a faulty driver.
pub struct FaultyStream<B: Backend> {
    number: usize,
    native: Arc<B::Stream>,
    /// Whether the stream claims that its work is being captured.
    pub(super) capturing: AtomicBool,
}

/// Work that a stream was given.
pub(super) enum Work<B: Backend> {
    Copy { to: Place<B::Ptr>, from: Place<B::Ptr>, len: NonZeroU64 },
    Fill { at: B::Ptr, value: u8, len: NonZeroU64 },
    Record(Arc<Mark<B>>),
    Wait(Arc<Mark<B>>),
    Launch(Arc<dyn ExecutableGraph<B>>),
}

// SAFETY: Only the host pointers keep it from being `Send` automatically. `Backend::copy` requires host memory that
// stays valid until the stream has done the copy, on whatever thread that happens.
unsafe impl<B: Backend> Send for Work<B> {}

/// One record of an event.
pub(super) struct Mark<B: Backend> {
    pub(super) native: B::Event,
    /// The stream on which it was recorded.
    lane: usize,
    /// Whether it was submitted to the driver.
    submitted: AtomicBool,
    /// Whether the record is part of a capture.
    captured: AtomicBool,
}

/// All streams, with the work that they were given and that was not yet submitted to the driver.
pub(super) struct Lanes<B: Backend> {
    /// Whether any lane is held or has work waiting. If not, work goes directly to the driver without taking the lock.
    deferring: AtomicBool,
    lanes: Mutex<Vec<Lane<B>>>,
    /// The number of captures in progress.
    captures: AtomicUsize,
}

struct Lane<B: Backend> {
    native: Arc<B::Stream>,
    held: bool,
    waiting: VecDeque<Work<B>>,
    /// The driver's error for work that was submitted late; returned by the next synchronize.
    error: Option<DriverError>,
}

impl<B: Backend> FaultyStream<B> {
    /// Returns the stream of the inner driver. Work submitted to it directly is not held.
    pub fn inner(&self) -> &B::Stream {
        &self.native
    }
}

impl<B: Backend> fmt::Debug for FaultyStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStream {{ number: {}, inner: {:?} }}", self.number, self.native)
    }
}

impl<B: Backend> Mark<B> {
    /// Makes a mark for an event that has not been recorded yet, which counts as complete.
    pub(super) fn unrecorded(native: B::Event) -> Self {
        Self { native, lane: 0, submitted: AtomicBool::new(true), captured: AtomicBool::new(false) }
    }

    /// Makes a mark for a record on this stream that is yet to be submitted to the driver.
    pub(super) fn on(stream: &FaultyStream<B>, native: B::Event) -> Self {
        Self { native, lane: stream.number, submitted: AtomicBool::new(false), captured: AtomicBool::new(false) }
    }

    pub(super) fn is_submitted(&self) -> bool {
        self.submitted.load(Ordering::SeqCst)
    }

    pub(super) fn set_captured(&self, captured: bool) {
        self.captured.store(captured, Ordering::SeqCst);
    }
}

impl<B: Backend> Work<B> {
    fn must_wait(&self) -> bool {
        matches!(self, Self::Wait(mark) if !mark.is_submitted())
    }

    fn has_bytes(&self) -> bool {
        matches!(self, Self::Copy { .. } | Self::Fill { .. } | Self::Launch(_))
    }

    /// Whether it is known to copy from or to these host addresses.
    fn touches(&self, host: &Range<usize>) -> bool {
        let Self::Copy { to, from, len } = self else { return false };
        [to, from].into_iter().any(|place| match place {
            Place::Host(start) => {
                let copied = addresses(*start, *len);
                copied.start < host.end && host.start < copied.end
            }
            _ => false,
        })
    }

    /// Whether it makes a stream take part in a capture.
    fn joins_a_capture(&self) -> bool {
        matches!(self, Self::Wait(mark) if mark.captured.load(Ordering::SeqCst))
    }

    /// Whether it is known to use these device addresses.
    fn touches_device(&self, device: &Range<u64>) -> bool {
        let overlaps = |at: &B::Ptr, len: &NonZeroU64| {
            let start = at.trace_address();
            start < device.end && device.start < start + len.get()
        };
        match self {
            Self::Copy { to, from, len } => {
                [to, from].into_iter().any(|place| matches!(place, Place::Device(at) if overlaps(at, len)))
            }
            Self::Fill { at, len, .. } => overlaps(at, len),
            Self::Record(_) | Self::Wait(_) | Self::Launch(_) => false,
        }
    }

    fn submit(&self, inner: &B, native: &B::Stream) -> DriverResult<()> {
        match self {
            // SAFETY: The creator of this work promised what `Backend::copy` requires until the stream has done it.
            Self::Copy { to, from, len } => unsafe { inner.copy(*to, *from, *len, native) },
            // SAFETY: The creator of this work promised what `Backend::fill` requires until the stream has done it.
            Self::Fill { at, value, len } => unsafe { inner.fill(*at, *value, *len, native) },
            Self::Wait(mark) => inner.wait(native, &mark.native),
            // SAFETY: The creator of this work promised what `ExecutableGraph::launch` requires until the stream has
            // done it.
            Self::Launch(graph) => unsafe { graph.launch(native) },
            Self::Record(mark) => {
                let recorded = inner.record(&mark.native, native);
                mark.submitted.store(true, Ordering::SeqCst);
                recorded
            }
        }
    }
}

impl<B: Backend> Lane<B> {
    /// Submits work that had to wait.
    fn submit_late(&mut self, inner: &B, work: &Work<B>) {
        if let Err(error) = work.submit(inner, &self.native) {
            self.error.get_or_insert(error);
        }
    }
}

impl<B: Backend> Lanes<B> {
    pub(super) fn new() -> Self {
        Self { deferring: AtomicBool::new(false), lanes: Mutex::new(Vec::new()), captures: AtomicUsize::new(0) }
    }

    pub(super) fn add(&self, native: B::Stream) -> FaultyStream<B> {
        let native = Arc::new(native);
        let mut lanes = self.lanes();
        let lane = Lane { native: Arc::clone(&native), held: false, waiting: VecDeque::new(), error: None };
        lanes.push(lane);
        FaultyStream { number: lanes.len() - 1, native, capturing: AtomicBool::new(false) }
    }

    /// Returns the driver's streams.
    pub(super) fn natives(&self) -> Vec<Arc<B::Stream>> {
        self.lanes().iter().map(|lane| Arc::clone(&lane.native)).collect()
    }

    pub(super) fn hold(&self, stream: &FaultyStream<B>) {
        let mut lanes = self.lanes();
        lanes[stream.number].held = true;
        self.deferring.store(true, Ordering::SeqCst);
    }

    pub(super) fn release(&self, inner: &B, stream: &FaultyStream<B>) {
        let mut lanes = self.lanes();
        lanes[stream.number].held = false;
        self.advance(inner, &mut lanes);
    }

    pub(super) fn release_all(&self, inner: &B) {
        let mut lanes = self.lanes();
        lanes.iter_mut().for_each(|lane| lane.held = false);
        self.advance(inner, &mut lanes);
    }

    /// Notes that a stream has begun to capture.
    pub(super) fn capture_begun(&self) {
        self.captures.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a capture is over.
    pub(super) fn capture_ended(&self) {
        self.captures.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether the stream takes part in a capture. Then its work goes to the driver at once.
    pub(super) fn captures(&self, inner: &B, stream: &FaultyStream<B>) -> bool {
        self.captures.load(Ordering::SeqCst) > 0 && inner.is_capturing(&stream.native).unwrap_or(false)
    }

    /// Waits for all streams that take part in no capture. Returns whether all work is done.
    pub(super) fn settle(&self, inner: &B) -> bool {
        let any_captures = self.captures.load(Ordering::SeqCst) > 0;
        let is_done = |stream: &Arc<B::Stream>| {
            !(any_captures && inner.is_capturing(stream).unwrap_or(false)) && inner.synchronize(stream).is_ok()
        };
        self.natives().iter().filter(|stream| !is_done(stream)).count() == 0
    }

    /// Whether new work for the stream has to wait.
    pub(super) fn defers(&self, inner: &B, stream: &FaultyStream<B>) -> bool {
        self.deferring.load(Ordering::SeqCst) && !self.captures(inner, stream) && {
            let lane = &self.lanes()[stream.number];
            lane.held || !lane.waiting.is_empty()
        }
    }

    /// Whether the stream has work waiting.
    pub(super) fn is_waiting(&self, stream: &FaultyStream<B>) -> bool {
        self.deferring.load(Ordering::SeqCst) && !self.lanes()[stream.number].waiting.is_empty()
    }

    /// Submits the work to the driver, or keeps it if the stream is held or waits for one that is.
    pub(super) fn submit(&self, inner: &B, stream: &FaultyStream<B>, work: Work<B>) -> DriverResult<()> {
        if !self.deferring.load(Ordering::SeqCst) {
            return work.submit(inner, &stream.native);
        }
        if work.joins_a_capture() || self.captures(inner, stream) {
            self.submit_waiting(inner, stream);
            return work.submit(inner, &stream.native);
        }
        let mut lanes = self.lanes();
        let lane = &mut lanes[stream.number];
        if !lane.held && lane.waiting.is_empty() && !work.must_wait() {
            return work.submit(inner, &stream.native);
        }
        lane.waiting.push_back(work);
        self.deferring.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Submits everything that the stream was given so far. Returns the error of work submitted late, if any.
    pub(super) fn force(&self, inner: &B, stream: &FaultyStream<B>) -> DriverResult<()> {
        if !self.deferring.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.submit_waiting(inner, stream);
        self.lanes()[stream.number].error.take().map_or(Ok(()), Err)
    }

    /// Like `force`, but leaves the error for the next synchronize.
    pub(super) fn submit_waiting(&self, inner: &B, stream: &FaultyStream<B>) {
        if self.is_waiting(stream) {
            let mut lanes = self.lanes();
            force(&mut lanes, inner, stream.number, None);
            self.advance(inner, &mut lanes);
        }
    }

    /// Submits everything up to this record of an event.
    pub(super) fn force_mark(&self, inner: &B, mark: &Mark<B>) {
        if mark.is_submitted() {
            return;
        }
        let mut lanes = self.lanes();
        force(&mut lanes, inner, mark.lane, Some(mark));
        self.advance(inner, &mut lanes);
    }

    /// Submits the waiting work of every stream that has copies or fills waiting, because memory is about to be freed.
    pub(super) fn force_bytes(&self, inner: &B) {
        if !self.deferring.load(Ordering::SeqCst) {
            return;
        }
        let mut lanes = self.lanes();
        for number in 0..lanes.len() {
            if lanes[number].waiting.iter().any(Work::has_bytes) {
                force(&mut lanes, inner, number, None);
            }
        }
        self.advance(inner, &mut lanes);
    }

    /// Whether any waiting work copies from or to these host addresses.
    pub(super) fn touch(&self, host: &Range<usize>) -> bool {
        self.any_waiting(|work| work.touches(host))
    }

    /// Whether any waiting work uses these device addresses.
    pub(super) fn touch_device(&self, device: &Range<u64>) -> bool {
        self.any_waiting(|work| work.touches_device(device))
    }

    fn any_waiting(&self, wanted: impl Fn(&Work<B>) -> bool) -> bool {
        self.deferring.load(Ordering::SeqCst) && self.lanes().iter().any(|lane| lane.waiting.iter().any(&wanted))
    }

    /// Submits all work that no longer has to wait.
    fn advance(&self, inner: &B, lanes: &mut [Lane<B>]) {
        let mut progress = true;
        while std::mem::take(&mut progress) {
            for lane in lanes.iter_mut().filter(|lane| !lane.held) {
                while lane.waiting.front().is_some_and(|work| !work.must_wait())
                    && let Some(work) = lane.waiting.pop_front()
                {
                    lane.submit_late(inner, &work);
                    progress = true;
                }
            }
        }
        let deferring = lanes.iter().any(|lane| lane.held || !lane.waiting.is_empty());
        self.deferring.store(deferring, Ordering::SeqCst);
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Lane<B>>> {
        lock(&self.lanes)
    }
}

/// Submits the waiting work of a lane, up to a record, and before that the work of other lanes that it waits for. A
/// stream can only wait for events that were recorded earlier, so this terminates.
fn force<B: Backend>(lanes: &mut [Lane<B>], inner: &B, number: usize, until: Option<&Mark<B>>) {
    while !until.is_some_and(Mark::is_submitted) {
        let Some(work) = lanes[number].waiting.pop_front() else { return };
        if let Work::Wait(mark) = &work {
            force(lanes, inner, mark.lane, Some(mark));
        }
        lanes[number].submit_late(inner, &work);
    }
}
