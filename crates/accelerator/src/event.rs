//! Events of whichever backend it is.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use accelerator_core::{Device, Error, EventFlags, Result};

use crate::backends::{AnyEvent, dispatch};
use crate::current::current_stream;
use crate::stream::Stream;

/// A point in the work of a stream, to wait for, to ask about and to measure time by. Shared freely between threads.
///
/// It belongs to the device of the stream that it is first recorded on. PyTorch: `torch.Event`.
pub struct Event {
    timing: bool,
    recorded: OnceLock<AnyEvent>,
}

impl Event {
    /// An event, with time or not. PyTorch: `torch.Event(enable_timing=…)`.
    pub const fn new(enable_timing: bool) -> Self {
        Self { timing: enable_timing, recorded: OnceLock::new() }
    }

    /// Its device, once it was recorded. PyTorch: `torch.Event.device`.
    pub fn device(&self) -> Option<Device> {
        self.recorded.get().map(AnyEvent::device)
    }

    /// Records it behind all work submitted to `stream` so far; `None`: the current stream of the current device.
    /// Recorded again, the last record counts. PyTorch: `torch.Event.record`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device than at the first record; [`Error::Driver`].
    pub fn record(&self, stream: Option<&Stream>) -> Result<()> {
        let stream = given_or_current(stream)?;
        let flags = EventFlags { timing: self.timing };
        let event = self.recorded.get_or_init(|| stream.accelerator().new_event(flags));
        dispatch!(AnyEvent, *event, ref event => event.record(stream.typed()?))
    }

    /// Makes later work of `stream` wait for it as recorded now; `None`: the current stream of the current device. One
    /// never recorded holds nothing up. For a stream of another device the calling thread waits. PyTorch:
    /// `torch.Event.wait`.
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

    /// Whether the work before it is done; of one never recorded it is. PyTorch: `torch.Event.query`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn query(&self) -> Result<bool> {
        let Some(event) = self.recorded.get() else { return Ok(true) };
        dispatch!(AnyEvent, *event, ref event => event.is_complete())
    }

    /// Waits until the work before it is done; one never recorded is not waited for. PyTorch:
    /// `torch.Event.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn synchronize(&self) -> Result<()> {
        let Some(event) = self.recorded.get() else { return Ok(()) };
        dispatch!(AnyEvent, *event, ref event => event.synchronize())
    }

    /// Milliseconds from this event to `end`. PyTorch: `torch.Event.elapsed_time`.
    ///
    /// # Errors
    /// [`Error::ElapsedTime`] where one is without timing, was never recorded or is not complete;
    /// [`Error::DeviceMismatch`] where they are of two devices; [`Error::Driver`].
    pub fn elapsed_time(&self, end: &Self) -> Result<f64> {
        match (self.recorded.get(), end.recorded.get()) {
            (Some(start), Some(end)) => start.elapsed_time(end),
            _ if self.timing && end.timing => Err(Error::ElapsedTime("both events must be recorded first")),
            _ => Err(Error::ElapsedTime("both events must be made with timing enabled")),
        }
    }
}

impl AnyEvent {
    fn device(&self) -> Device {
        dispatch!(AnyEvent, *self, ref event => event.device())
    }

    fn elapsed_time(&self, end: &Self) -> Result<f64> {
        let (expected, found) = (self.device(), end.device());
        let mismatch = Error::DeviceMismatch { what: "the end event", expected, found };
        let end = dispatch!(AnyEvent, *end, ref event => event as &dyn Any);
        dispatch!(AnyEvent, *self, ref start => start.elapsed_time(end.downcast_ref().ok_or(mismatch)?))
    }
}

fn given_or_current(stream: Option<&Stream>) -> Result<Stream> {
    stream.map_or_else(|| current_stream(None), |stream| Ok(*stream))
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("device", &self.device()).field("timing", &self.timing).finish()
    }
}
