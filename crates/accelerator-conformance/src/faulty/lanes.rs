//! Streams that run late: work given to a held stream, and what must wait for it, goes to the driver at the release.
#![allow(unsafe_code)] // `Backend::copy` and `Backend::fill`

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelerator_core::{Backend, DevicePtr, DriverError, DriverResult, Place};

use super::host::addresses;

/// A stream of a faulty driver.
pub struct FaultyStream<B: Backend> {
    number: usize,
    native: Arc<B::Stream>,
    /// Whether it says that its work is being captured.
    pub(super) capturing: AtomicBool,
}

/// What a stream was given to do.
pub(super) enum Work<B: Backend> {
    Copy { to: Place<B::Ptr>, from: Place<B::Ptr>, len: NonZeroU64 },
    Fill { at: B::Ptr, value: u8, len: NonZeroU64 },
    Record(Arc<Mark<B>>),
    Wait(Arc<Mark<B>>),
}

// SAFETY: Only the places in host memory keep it from being `Send` by itself; `Backend::copy` asks for host memory that
// stays valid until the stream has done the copy, whichever thread it is done on.
unsafe impl<B: Backend> Send for Work<B> {}

/// One record of an event.
pub(super) struct Mark<B: Backend> {
    pub(super) native: B::Event,
    /// The stream that it was recorded on.
    lane: usize,
    /// Whether the driver has been given it.
    submitted: AtomicBool,
}

/// All streams, and what they were given and the driver was not.
pub(super) struct Lanes<B: Backend> {
    /// Whether any lane is held or has work waiting. While none has, work goes straight to the driver, without the lock.
    deferring: AtomicBool,
    lanes: Mutex<Vec<Lane<B>>>,
}

struct Lane<B: Backend> {
    native: Arc<B::Stream>,
    held: bool,
    waiting: VecDeque<Work<B>>,
    /// What the driver said to work that it was given late; told at the next synchronise.
    error: Option<DriverError>,
}

impl<B: Backend> FaultyStream<B> {
    /// The stream of the driver inside. Work that it is given directly is not held.
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
    /// An event that was not recorded yet, which counts as complete.
    pub(super) fn unrecorded(native: B::Event) -> Self {
        Self { native, lane: 0, submitted: AtomicBool::new(true) }
    }

    /// A record on this stream that the driver is still to be given.
    pub(super) fn on(stream: &FaultyStream<B>, native: B::Event) -> Self {
        Self { native, lane: stream.number, submitted: AtomicBool::new(false) }
    }

    pub(super) fn is_submitted(&self) -> bool {
        self.submitted.load(Ordering::SeqCst)
    }
}

impl<B: Backend> Work<B> {
    fn must_wait(&self) -> bool {
        matches!(self, Self::Wait(mark) if !mark.is_submitted())
    }

    fn has_bytes(&self) -> bool {
        matches!(self, Self::Copy { .. } | Self::Fill { .. })
    }

    /// Whether it copies from or to these addresses of the host.
    fn touches(&self, host: &Range<usize>) -> bool {
        let Self::Copy { to, from, len } = self else { return false };
        [to, from].into_iter().any(|place| match place {
            Place::Host(start) => {
                let copied = addresses(*start, *len);
                copied.start < host.end && host.start < copied.end
            }
            Place::Device(_) => false,
        })
    }

    /// Whether it uses these addresses of the device.
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
            Self::Record(_) | Self::Wait(_) => false,
        }
    }

    fn submit(&self, inner: &B, native: &B::Stream) -> DriverResult<()> {
        match self {
            // SAFETY: Who made this work promised what `Backend::copy` asks for until the stream has done it.
            Self::Copy { to, from, len } => unsafe { inner.copy(*to, *from, *len, native) },
            // SAFETY: Who made this work promised what `Backend::fill` asks for until the stream has done it.
            Self::Fill { at, value, len } => unsafe { inner.fill(*at, *value, *len, native) },
            Self::Wait(mark) => inner.wait(native, &mark.native),
            Self::Record(mark) => {
                let recorded = inner.record(&mark.native, native);
                mark.submitted.store(true, Ordering::SeqCst);
                recorded
            }
        }
    }
}

impl<B: Backend> Lane<B> {
    /// Gives the driver what waited.
    fn submit_late(&mut self, inner: &B, work: &Work<B>) {
        if let Err(error) = work.submit(inner, &self.native) {
            self.error.get_or_insert(error);
        }
    }
}

impl<B: Backend> Lanes<B> {
    pub(super) fn new() -> Self {
        Self { deferring: AtomicBool::new(false), lanes: Mutex::new(Vec::new()) }
    }

    pub(super) fn add(&self, native: B::Stream) -> FaultyStream<B> {
        let native = Arc::new(native);
        let mut lanes = self.lanes();
        let lane = Lane { native: Arc::clone(&native), held: false, waiting: VecDeque::new(), error: None };
        lanes.push(lane);
        FaultyStream { number: lanes.len() - 1, native, capturing: AtomicBool::new(false) }
    }

    /// The driver's streams.
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

    /// Whether work for the stream has to wait.
    pub(super) fn defers(&self, stream: &FaultyStream<B>) -> bool {
        self.deferring.load(Ordering::SeqCst) && {
            let lane = &self.lanes()[stream.number];
            lane.held || !lane.waiting.is_empty()
        }
    }

    /// Whether work that the stream was given waits.
    pub(super) fn is_waiting(&self, stream: &FaultyStream<B>) -> bool {
        self.deferring.load(Ordering::SeqCst) && !self.lanes()[stream.number].waiting.is_empty()
    }

    /// Gives the work to the driver, or keeps it where the stream is held or waits for one that is.
    pub(super) fn submit(&self, inner: &B, stream: &FaultyStream<B>, work: Work<B>) -> DriverResult<()> {
        if !self.deferring.load(Ordering::SeqCst) {
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

    /// Gives the driver everything that the stream was given so far. The error of work given late, if any.
    pub(super) fn force(&self, inner: &B, stream: &FaultyStream<B>) -> DriverResult<()> {
        if !self.deferring.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut lanes = self.lanes();
        force(&mut lanes, inner, stream.number, None);
        self.advance(inner, &mut lanes);
        lanes[stream.number].error.take().map_or(Ok(()), Err)
    }

    /// Gives the driver everything up to this record of an event.
    pub(super) fn force_mark(&self, inner: &B, mark: &Mark<B>) {
        if mark.is_submitted() {
            return;
        }
        let mut lanes = self.lanes();
        force(&mut lanes, inner, mark.lane, Some(mark));
        self.advance(inner, &mut lanes);
    }

    /// Gives the driver what waits on every stream that was given copies or fills: memory is about to be given back.
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

    /// Whether work that waits copies from or to these addresses of the host.
    pub(super) fn touch(&self, host: &Range<usize>) -> bool {
        self.any_waiting(|work| work.touches(host))
    }

    /// Whether work that waits uses these addresses of the device.
    pub(super) fn touch_device(&self, device: &Range<u64>) -> bool {
        self.any_waiting(|work| work.touches_device(device))
    }

    fn any_waiting(&self, wanted: impl Fn(&Work<B>) -> bool) -> bool {
        self.deferring.load(Ordering::SeqCst)
            && self.lanes().iter().any(|lane| lane.waiting.iter().any(&wanted))
    }

    /// Gives the driver whatever need not wait any longer.
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
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the driver what waits on a lane, up to a record, and first whatever it waits for on others. A stream can only
/// wait for what was recorded before, so this comes to an end.
fn force<B: Backend>(lanes: &mut [Lane<B>], inner: &B, number: usize, until: Option<&Mark<B>>) {
    while !until.is_some_and(Mark::is_submitted) {
        let Some(work) = lanes[number].waiting.pop_front() else { return };
        if let Work::Wait(mark) = &work {
            force(lanes, inner, mark.lane, Some(mark));
        }
        lanes[number].submit_late(inner, &work);
    }
}
