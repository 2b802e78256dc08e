//! Streams of the current accelerator.

use std::fmt;
use std::hash::{Hash, Hasher};

use accelerator_core::{Accelerator, Backend, Device, Error, Result, StreamId};

use crate::backends::{AnyDevice, dispatch};
use crate::device_arg::DeviceArg;
use crate::event::Event;

/// A stream of a device. Work submitted to it runs in order, and may run at the same time as work on other streams.
///
/// This is a handle that can be copied; the stream itself lives as long as its device. PyTorch: `torch.Stream`.
#[derive(Clone, Copy)]
pub struct Stream {
    accelerator: AnyDevice,
    id: StreamId,
}

impl Stream {
    /// Returns a stream of the device other than its default stream, with priority 0. Each priority has 32 streams,
    /// which are returned in turn. Opens the device. PyTorch: `torch.Stream(device)`.
    ///
    /// # Errors
    /// Errors of [`DeviceArg`] and of opening the device; [`Error::Driver`].
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        Self::with_priority(device, 0)
    }

    /// Like [`new`](Self::new), with a priority: a lower number runs first. A priority outside the device's range is
    /// clamped to it. PyTorch: `torch.Stream(device, priority=…)`.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn with_priority<'a>(device: impl Into<DeviceArg<'a>>, priority: i32) -> Result<Self> {
        let accelerator = device.into().open()?;
        Ok(Self { accelerator, id: accelerator.new_stream(priority)? })
    }

    /// Returns the stream of the device with this number. Opens the device. PyTorch:
    /// `torch.Stream(stream_id=…, device_index=…, device_type=…)`.
    ///
    /// # Errors
    /// [`Error::UnknownStream`] if the device has no such stream; errors of [`DeviceArg`] and of opening the device.
    pub fn from_id<'a>(device: impl Into<DeviceArg<'a>>, id: StreamId) -> Result<Self> {
        let accelerator = device.into().open()?;
        match accelerator.has_stream(id) {
            true => Ok(Self { accelerator, id }),
            false => Err(Error::UnknownStream { device: accelerator.device(), stream: id }),
        }
    }

    /// Returns its device. PyTorch: `torch.Stream.device`, `device_index`, `device_type`.
    pub fn device(&self) -> Device {
        self.accelerator.device()
    }

    /// Returns its number among the streams of its device; 0 is the default stream. PyTorch: `torch.Stream.stream_id`.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Returns its priority; a lower number runs first.
    pub fn priority(&self) -> i32 {
        dispatch!(AnyDevice, self.accelerator, device => numbered(device, self.id).priority())
    }

    /// Returns whether all work submitted to it is done. PyTorch: `torch.Stream.query`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn query(&self) -> Result<bool> {
        dispatch!(AnyDevice, self.accelerator, device => numbered(device, self.id).is_idle())
    }

    /// Waits until all work submitted to it is done. PyTorch: `torch.Stream.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`], also if the work failed.
    pub fn synchronize(&self) -> Result<()> {
        dispatch!(AnyDevice, self.accelerator, device => numbered(device, self.id).synchronize())
    }

    /// Returns whether work submitted to it is captured in a graph instead of being executed. PyTorch:
    /// `torch.Stream.is_capturing`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn is_capturing(&self) -> Result<bool> {
        dispatch!(AnyDevice, self.accelerator, device => numbered(device, self.id).is_capturing())
    }

    /// Makes later work wait for the last record of the event. PyTorch: `torch.Stream.wait_event`.
    ///
    /// # Errors
    /// The errors of [`Event::wait`].
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        event.wait(Some(self))
    }

    /// Makes later work wait for all work submitted to `other` so far. PyTorch: `torch.Stream.wait_stream`.
    ///
    /// # Errors
    /// The errors of [`Event::wait`].
    pub fn wait_stream(&self, other: &Self) -> Result<()> {
        self.wait_event(&other.record_event()?)
    }

    /// Creates an event without timing, and records it after all work submitted so far. PyTorch:
    /// `torch.Stream.record_event()`.
    ///
    /// # Errors
    /// The errors of [`Event::record`].
    pub fn record_event(&self) -> Result<Event> {
        let event = Event::new();
        self.record(&event)?;
        Ok(event)
    }

    /// Records an event after all work submitted so far. PyTorch: `torch.Stream.record_event(event)`.
    ///
    /// # Errors
    /// The errors of [`Event::record`].
    pub fn record(&self, event: &Event) -> Result<()> {
        event.record(Some(self))
    }

    /// Returns the current stream of a device on this thread. Opens the device.
    pub(crate) fn current(device: DeviceArg<'_>) -> Result<Self> {
        device.open().map(Self::current_of)
    }

    /// Returns the current stream of an open device on this thread.
    pub(crate) fn current_of(accelerator: AnyDevice) -> Self {
        Self::with_id(accelerator, accelerator.current_stream())
    }

    /// Returns the stream with this number, which must come from the device.
    pub(crate) fn with_id(accelerator: AnyDevice, id: StreamId) -> Self {
        Self { accelerator, id }
    }

    pub(crate) fn accelerator(&self) -> AnyDevice {
        self.accelerator
    }
}

/// Returns the stream with this number. The number must come from the device, so that the stream exists.
pub(crate) fn numbered<B: Backend>(accelerator: &Accelerator<B>, stream: StreamId) -> accelerator_core::Stream<B> {
    accelerator.stream_by_id(stream).unwrap_or(accelerator.default_stream())
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        (self.device(), self.id) == (other.device(), other.id)
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.device(), self.id).hash(state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream {{ {}, id: {}, priority: {} }}", self.device(), self.id, self.priority())
    }
}
