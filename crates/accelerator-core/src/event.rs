//! Events, and the pool from which the allocators take theirs.

use std::fmt;
use std::sync::{Mutex, OnceLock};

use crate::backend::{Backend, EventFlags};
use crate::current::current_stream;
use crate::stream::{Instance, Stream, Streams};
use crate::sync::{OwnedLock, Table, lock};
use crate::types::{Device, DriverResult, Error, Result, StreamId};

/// A point in the work of a stream, for waiting, querying and measuring time.
///
/// The driver's event is made when the event is first recorded. An event may be shared freely between threads. Dropping
/// it, pending or not, has no effect on the work. PyTorch: `torch.Event`.
pub struct Event<B: Backend> {
    owner: Instance,
    backend: &'static B,
    flags: EventFlags,
    native: OnceLock<B::Event>,
    making: Mutex<()>,
}

impl<B: Backend> Event<B> {
    pub(crate) fn new(owner: Instance, backend: &'static B, flags: EventFlags) -> Self {
        Self { owner, backend, flags, native: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The device of the event.
    pub fn device(&self) -> Device {
        self.owner.device
    }

    /// The driver's event; `None` before the first record.
    pub fn native(&self) -> Option<&B::Event> {
        self.native.get()
    }

    /// The driver's handle as a number; 0 before the first record, or if the driver has none. PyTorch:
    /// `torch.Event.event_id`.
    pub fn id(&self) -> u64 {
        self.native.get().map_or(0, |native| self.backend.event_id(native))
    }

    /// Records the event after the work submitted to the stream so far. The last record counts. PyTorch:
    /// `torch.Event.record`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device; [`Error::Driver`].
    pub fn record(&self, stream: Stream<B>) -> Result<()> {
        stream.check(self.owner)?;
        self.owner.device.driver_result(self.record_on(stream))
    }

    /// Makes later work of the stream wait for the event as it is recorded now. An event that was never recorded delays
    /// nothing. PyTorch: `torch.Event.wait`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device; [`Error::Driver`].
    pub fn wait(&self, stream: Stream<B>) -> Result<()> {
        stream.check(self.owner)?;
        let wait = |native| self.owner.device.driver_result(self.backend.wait(stream.native(), native));
        self.native.get().map_or(Ok(()), wait)
    }

    /// Whether the event has been reached; true if it was never recorded. PyTorch: `torch.Event.query`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn is_complete(&self) -> Result<bool> {
        self.native.get().map_or(Ok(true), |native| self.owner.device.driver_result(self.backend.is_complete(native)))
    }

    /// Waits on the host until the event has been reached. PyTorch: `torch.Event.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn synchronize(&self) -> Result<()> {
        self.native.get().map_or(Ok(()), |native| self.owner.device.driver_result(self.backend.wait_host(native)))
    }

    /// Milliseconds from this event to `end`. PyTorch: `torch.Event.elapsed_time`.
    ///
    /// # Errors
    /// [`Error::ElapsedTime`] if one of the events has no timing, was never recorded or is not complete;
    /// [`Error::DeviceMismatch`] if they belong to different devices; [`Error::Driver`].
    pub fn elapsed_time(&self, end: &Self) -> Result<f64> {
        end.owner.check(self.owner, "the end event")?;
        if !(self.flags.enable_timing && end.flags.enable_timing) {
            return Err(Error::ElapsedTime("both events must be made with timing enabled"));
        }
        let (Some(start), Some(stop)) = (self.native.get(), end.native.get()) else {
            return Err(Error::ElapsedTime("both events must be recorded first"));
        };
        if !(self.is_complete()? && end.is_complete()?) {
            return Err(Error::ElapsedTime("both events must be complete first: synchronize them"));
        }
        let nanoseconds = self.owner.device.driver_result(self.backend.elapsed_ns(start, stop))?;
        Ok(nanoseconds as f64 / 1e6)
    }

    fn record_on(&self, stream: Stream<B>) -> DriverResult<()> {
        if let Some(native) = self.native.get() {
            return self.backend.record(native, stream.native());
        }
        let _making = lock(&self.making);
        if let Some(native) = self.native.get() {
            return self.backend.record(native, stream.native());
        }
        let made = self.backend.event(self.flags)?;
        self.backend.record(&made, stream.native())?;
        // Only now, since an event with a driver's event counts as recorded.
        let _ = self.native.set(made);
        Ok(())
    }
}

impl<B: Backend> Stream<B> {
    /// Makes later work of the stream wait for the event as it is recorded now. PyTorch: `torch.Stream.wait_event`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for an event of another device or device instance; [`Error::Driver`].
    pub fn wait_event(self, event: &Event<B>) -> Result<()> {
        event.wait(self)
    }

    /// Makes later work of the stream wait for everything submitted to `other` so far. PyTorch:
    /// `torch.Stream.wait_stream`.
    ///
    /// # Errors
    /// As [`wait_event`](Self::wait_event).
    pub fn wait_stream(self, other: Self) -> Result<()> {
        let event = Event::new(other.owner(), other.backend(), EventFlags::default());
        event.record(other)?;
        event.wait(self)
    }
}

impl<B: Backend> fmt::Debug for Event<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner: Instance { device, .. }, flags, native, .. } = self;
        write!(f, "Event {{ {device}, timing: {}, native: {:?} }}", flags.enable_timing, native.get())
    }
}

/// The number of an event in its [`EventPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventNumber(u32);

/// Events on a device's streams, with both identified by number. They show an allocator when uses are over.
pub(crate) trait Events: Send + Sync {
    fn is_capturing(&self, stream: StreamId) -> DriverResult<bool>;

    /// Returns the number of the capture that the current stream of this thread takes part in.
    fn current_capture(&self) -> DriverResult<Option<u64>>;

    /// Returns the number of the capture that a stream takes part in, if the backend has graphs.
    fn capture_of(&self, stream: StreamId) -> DriverResult<Option<u64>>;

    /// [`Graphs::mark`](crate::Graphs::mark).
    fn mark(&self, stream: StreamId) -> DriverResult<Option<u64>>;

    /// [`Graphs::precede`](crate::Graphs::precede).
    fn precede(&self, marks: &[u64], stream: StreamId) -> DriverResult<Vec<bool>>;

    /// Records an event after the work submitted to the stream so far. Returns `None` while the stream is being
    /// captured, because the event would never be complete.
    fn record(&self, stream: StreamId) -> DriverResult<Option<EventNumber>>;

    /// Returns whether the work before an event is over.
    fn is_complete(&self, event: EventNumber) -> DriverResult<bool>;

    /// Waits on the host until the work before an event is over. Returns errors of that work.
    fn wait_on_host(&self, event: EventNumber) -> DriverResult<()>;

    /// Makes a stream wait for an event on the device.
    fn wait_on_device(&self, stream: StreamId, event: EventNumber) -> DriverResult<()>;

    /// Takes back an event that is no longer needed.
    fn take_back(&self, event: EventNumber);

    /// Waits on the host until the work before an event is over, and takes the event back. Errors of the work itself
    /// are not returned; they are for callers that wait for the work.
    fn wait_until_over(&self, event: EventNumber) -> DriverResult<()> {
        if let Err(error) = self.wait_on_host(event) {
            return if is_over(self, event).unwrap_or(false) { Ok(()) } else { Err(error) };
        }
        self.take_back(event);
        Ok(())
    }
}

/// Returns whether the work before an event is over. If so, takes the event back. This is no method of [`Events`],
/// whose implementation would have to copy what the driver returns.
#[inline(always)]
pub(crate) fn is_over(events: &(impl Events + ?Sized), event: EventNumber) -> DriverResult<bool> {
    let is_over = events.is_complete(event)?;
    if is_over {
        events.take_back(event);
    }
    Ok(is_over)
}

/// An allocator's events, without timing. They are reused, because making an event is slow.
pub(crate) struct EventPool<B: Backend> {
    backend: &'static B,
    streams: &'static Streams<B>,
    events: Table<B::Event>,
    idle: OwnedLock<Vec<EventNumber>>,
}

impl<B: Backend> EventPool<B> {
    pub(crate) fn new(streams: &'static Streams<B>) -> Self {
        Self { backend: streams.backend, streams, events: Table::default(), idle: OwnedLock::default() }
    }

    #[inline]
    fn native(&self, number: EventNumber) -> &B::Event {
        self.events.get(number.0).unwrap_or_else(|| unreachable!("every number has an event"))
    }

    #[inline]
    fn stream(&self, id: StreamId) -> &'static B::Stream {
        self.streams.get(id).unwrap_or_else(|| unreachable!("every number has a stream")).native()
    }

    /// As [`record`](Events::record), and reuses the given event if there is one. If it is not recorded, it becomes
    /// idle.
    #[inline]
    pub(crate) fn record_again(
        &self,
        event: Option<EventNumber>,
        stream: StreamId,
    ) -> DriverResult<Option<EventNumber>> {
        let (stream, captures) = (self.stream(stream), &self.streams.captures);
        let before = captures.read();
        let is_captured = self.backend.is_capturing(stream);
        if !matches!(is_captured, Ok(false)) {
            event.into_iter().for_each(|event| self.take_back(event));
            return is_captured.map(|_| None);
        }
        let event = self.record_on(event.or_else(|| self.take_idle()), stream)?;
        // Otherwise another thread may have begun a capture in between.
        if before.is_none_underway() && captures.read() == before {
            return Ok(Some(event));
        }
        self.record_beside_captures(event, stream)
    }

    #[inline]
    fn record_on(&self, event: Option<EventNumber>, stream: &B::Stream) -> DriverResult<EventNumber> {
        let event = match event {
            Some(event) => event,
            None => self.make()?,
        };
        let recorded = self.backend.record(self.native(event), stream);
        recorded.inspect_err(|_| self.take_back(event)).map(|()| event)
    }

    /// Records an event until no capture that the stream takes part in can have begun or ended meanwhile, or returns
    /// `None` if the stream is being captured.
    #[cold]
    fn record_beside_captures(&self, event: EventNumber, stream: &B::Stream) -> DriverResult<Option<EventNumber>> {
        let is_captured = || self.backend.is_capturing(stream).inspect_err(|_| self.take_back(event));
        loop {
            let before = self.streams.captures.read();
            if is_captured()? {
                self.take_back(event);
                return Ok(None);
            }
            self.record_on(Some(event), stream)?;
            if !is_captured()? && self.streams.captures.read() == before {
                return Ok(Some(event));
            }
        }
    }

    #[inline(always)]
    fn take_idle(&self) -> Option<EventNumber> {
        self.idle.lock_owned().map_or_else(|| self.take_idle_as_other(), |mut idle| idle.pop())
    }

    #[cold]
    fn take_idle_as_other(&self) -> Option<EventNumber> {
        self.idle.lock_soon().pop()
    }

    #[cold]
    fn take_back_as_other(&self, event: EventNumber) {
        put_back(&mut self.idle.lock_soon(), event);
    }

    #[cold]
    fn make(&self) -> DriverResult<EventNumber> {
        let event = self.backend.event(EventFlags::default())?;
        let (number, _) = self.events.push(|_| event);
        Ok(EventNumber(number))
    }
}

impl<B: Backend> Events for EventPool<B> {
    #[inline]
    fn is_capturing(&self, stream: StreamId) -> DriverResult<bool> {
        self.backend.is_capturing(self.stream(stream))
    }

    fn current_capture(&self) -> DriverResult<Option<u64>> {
        self.capture_of(current_stream(&self.streams.owner))
    }

    fn capture_of(&self, stream: StreamId) -> DriverResult<Option<u64>> {
        self.backend.graphs().map_or(Ok(None), |graphs| graphs.capture_of(self.stream(stream)))
    }

    fn mark(&self, stream: StreamId) -> DriverResult<Option<u64>> {
        self.backend.graphs().map_or(Ok(None), |graphs| graphs.mark(self.stream(stream)))
    }

    fn precede(&self, marks: &[u64], stream: StreamId) -> DriverResult<Vec<bool>> {
        let none = || Ok(vec![false; marks.len()]);
        self.backend.graphs().map_or_else(none, |graphs| graphs.precede(marks, self.stream(stream)))
    }

    #[inline]
    fn record(&self, stream: StreamId) -> DriverResult<Option<EventNumber>> {
        self.record_again(None, stream)
    }

    #[inline]
    fn is_complete(&self, event: EventNumber) -> DriverResult<bool> {
        self.backend.is_complete(self.native(event))
    }

    fn wait_on_host(&self, event: EventNumber) -> DriverResult<()> {
        self.backend.wait_host(self.native(event))
    }

    fn wait_on_device(&self, stream: StreamId, event: EventNumber) -> DriverResult<()> {
        self.backend.wait(self.stream(stream), self.native(event))
    }

    #[inline]
    fn take_back(&self, event: EventNumber) {
        match self.idle.lock_owned() {
            Some(mut idle) => put_back(&mut idle, event),
            None => self.take_back_as_other(event),
        }
    }
}

#[inline(always)]
fn put_back(idle: &mut Vec<EventNumber>, event: EventNumber) {
    debug_assert!(!idle.contains(&event), "an event is taken back once");
    idle.push(event);
}
