//! Events of the current accelerator.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use accelerator_core::{Backend, Device, Error, EventFlags, Result};

use crate::backends::{AnyEvent, dispatch};
use crate::current::current_stream;
use crate::stream::Stream;
use crate::typed::alike;

/// A point in the work of a stream. A program can wait for it, query whether it was reached, and measure time with it.
/// Threads can share it.
///
/// It belongs to the device of the stream that it is first recorded on. The first record creates the driver's event;
/// before that it counts as complete. PyTorch: `torch.Event`.
#[derive(Default)]
pub struct Event {
    flags: EventFlags,
    recorded: OnceLock<AnyEvent>,
}

impl Event {
    /// Creates an event without timing. PyTorch: `torch.Event()`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an event with these flags. PyTorch: `torch.Event(enable_timing=…, blocking=…, interprocess=…)`.
    ///
    /// [`record`](Self::record) fails if the driver refuses the flags.
    ///
    /// ```
    /// use accelerator::{Event, EventFlags};
    ///
    /// let timed = Event::with_flags(EventFlags::TIMING);
    /// let blocking = Event::with_flags(EventFlags { blocking: true, ..EventFlags::default() });
    /// ```
    pub const fn with_flags(flags: EventFlags) -> Self {
        Self { flags, recorded: OnceLock::new() }
    }

    /// Returns the flags that it was created with.
    pub fn flags(&self) -> EventFlags {
        self.flags
    }

    /// Returns its device, or `None` before the first record. PyTorch: `torch.Event.device`.
    pub fn device(&self) -> Option<Device> {
        self.recorded.get().map(AnyEvent::device)
    }

    /// Returns the driver's handle as a number, which is 0 before the first record or if the driver has no handle. If
    /// the driver creates a new event for each record, as OpenCL does, each record changes the number. PyTorch:
    /// `torch.Event.event_id`.
    ///
    /// For the handle itself, use [`typed`](Self::typed).
    pub fn event_id(&self) -> u64 {
        self.recorded.get().map_or(0, |event| dispatch!(AnyEvent, *event, ref event => event.id()))
    }

    /// Records the event after all work submitted to `stream` so far. `None` means the current stream of the current
    /// device. If the event is recorded again, the last record counts. PyTorch: `torch.Event.record`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if the stream belongs to a device other than that of the first record;
    /// [`Error::Driver`], with [`Unsupported`](accelerator_core::DriverErrorKind::Unsupported) for an interprocess
    /// event if the backend has none, and with [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument)
    /// for an interprocess event with timing on CUDA.
    pub fn record(&self, stream: Option<&Stream>) -> Result<()> {
        let stream = given_or_current(stream)?;
        let record = |event: &AnyEvent| dispatch!(AnyEvent, *event, ref event => event.record(stream.typed()?));
        if let Some(event) = self.recorded.get() {
            return record(event);
        }
        let event = stream.accelerator().new_event(self.flags);
        record(&event)?;
        // Another thread may have been faster, and the last record counts.
        self.recorded.set(event).or_else(|_| self.recorded.get().map_or(Ok(()), record))
    }

    /// Makes later work on `stream` wait for the last record of the event. `None` means the current stream of the
    /// current device. If the stream belongs to another device, the calling thread waits instead. An event that was
    /// never recorded delays nothing. PyTorch: `torch.Event.wait`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn wait(&self, stream: Option<&Stream>) -> Result<()> {
        let stream = given_or_current(stream)?;
        match self.recorded.get() {
            Some(event) if event.device() == stream.device() => {
                dispatch!(AnyEvent, *event, ref event => event.wait(stream.typed()?))
            }
            _ => self.synchronize(),
        }
    }

    /// Returns whether the work before it is done. An event that was never recorded counts as complete. PyTorch:
    /// `torch.Event.query`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn query(&self) -> Result<bool> {
        let Some(event) = self.recorded.get() else { return Ok(true) };
        dispatch!(AnyEvent, *event, ref event => event.is_complete())
    }

    /// Waits until the work before it is done. Returns immediately for an event that was never recorded. PyTorch:
    /// `torch.Event.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn synchronize(&self) -> Result<()> {
        let Some(event) = self.recorded.get() else { return Ok(()) };
        dispatch!(AnyEvent, *event, ref event => event.synchronize())
    }

    /// Returns the milliseconds from this event to `end`. PyTorch: `torch.Event.elapsed_time`.
    ///
    /// # Errors
    /// [`Error::ElapsedTime`] unless both events have timing, were recorded and are complete; [`Error::DeviceMismatch`]
    /// unless they belong to the same device; [`Error::Driver`].
    pub fn elapsed_time(&self, end: &Self) -> Result<f64> {
        match (self.recorded.get(), end.recorded.get()) {
            (Some(start), Some(end)) => start.elapsed_time(end),
            _ if self.flags.enable_timing && end.flags.enable_timing => {
                Err(Error::ElapsedTime("both events must be recorded first"))
            }
            _ => Err(Error::ElapsedTime("both events must be made with timing enabled")),
        }
    }

    /// Returns the core's event, for its native handle, or `None` before the first record.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if the event belongs to another backend.
    pub fn typed<B: Backend>(&self) -> Result<Option<&accelerator_core::Event<B>>> {
        let Some(event) = self.recorded.get() else { return Ok(None) };
        let found = event.device();
        let mismatch = Error::DeviceMismatch { what: "the event", expected: alike::<B>(found), found };
        event.as_any().downcast_ref().map(Some).ok_or(mismatch)
    }
}

impl AnyEvent {
    fn device(&self) -> Device {
        dispatch!(AnyEvent, *self, ref event => event.device())
    }

    fn as_any(&self) -> &dyn Any {
        dispatch!(AnyEvent, *self, ref event => event as &dyn Any)
    }

    fn elapsed_time(&self, end: &Self) -> Result<f64> {
        let (expected, found) = (self.device(), end.device());
        let mismatch = Error::DeviceMismatch { what: "the end event", expected, found };
        let end = end.as_any();
        dispatch!(AnyEvent, *self, ref start => start.elapsed_time(end.downcast_ref().ok_or(mismatch)?))
    }
}

fn given_or_current(stream: Option<&Stream>) -> Result<Stream> {
    stream.map_or_else(|| current_stream(None), |stream| Ok(*stream))
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("device", &self.device()).field("flags", &self.flags).finish()
    }
}
