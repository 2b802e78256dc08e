//! Streams of whichever backend it is.

use std::fmt;
use std::hash::{Hash, Hasher};

use accelerator_core::{Accelerator, Backend, Device, Result, StreamId};

use crate::backends::{AnyDevice, BuiltIn, dispatch};
use crate::device_arg::DeviceArg;
use crate::event::Event;
use crate::selection;

/// A stream of a device: work submitted to it runs in order, beside the work of other streams. A handle to copy.
/// PyTorch: `torch.Stream`.
#[derive(Clone, Copy)]
pub struct Stream {
    accelerator: AnyDevice,
    backend: BuiltIn,
    id: StreamId,
}

impl Stream {
    /// A stream of the device beside its default stream. A lower `priority` runs first; one outside the device's range
    /// becomes the nearest in it. Each priority has 32 streams, handed out in turn. Opens the device. PyTorch:
    /// `torch.Stream(device, priority=…)`.
    ///
    /// # Errors
    /// As [`DeviceArg`] says; what opening the device can fail with; [`Error::Driver`](crate::Error::Driver).
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>, priority: i32) -> Result<Self> {
        let target = device.into().resolve()?;
        let accelerator = target.open()?;
        Ok(Self { accelerator, backend: target.backend, id: accelerator.new_stream(priority)? })
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.accelerator.device()
    }

    /// Its number among the streams of its device; 0 is the default stream. PyTorch: `stream_id`.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Its priority; a lower number runs first.
    pub fn priority(&self) -> i32 {
        dispatch!(AnyDevice, self.accelerator, device => numbered(device, self.id).priority())
    }

    /// Whether all work submitted to it is done. PyTorch: `torch.Stream.query`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn query(&self) -> Result<bool> {
        dispatch!(AnyDevice, self.accelerator, device => numbered(device, self.id).is_idle())
    }

    /// Waits until all work submitted to it is done. PyTorch: `torch.Stream.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), errors of the work itself among it.
    pub fn synchronize(&self) -> Result<()> {
        dispatch!(AnyDevice, self.accelerator, device => numbered(device, self.id).synchronize())
    }

    /// Makes later work wait for the event as recorded now. PyTorch: `torch.Stream.wait_event`.
    ///
    /// # Errors
    /// As [`Event::wait`].
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        event.wait(Some(self))
    }

    /// Makes later work wait for all work submitted to `other` so far. PyTorch: `torch.Stream.wait_stream`.
    ///
    /// # Errors
    /// As [`Event::wait`].
    pub fn wait_stream(&self, other: &Self) -> Result<()> {
        self.wait_event(&other.record_event()?)
    }

    /// A new event without timing, recorded behind the work submitted so far. To record one that exists:
    /// [`Event::record`]. PyTorch: `torch.Stream.record_event`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn record_event(&self) -> Result<Event> {
        let event = Event::new(false);
        event.record(Some(self))?;
        Ok(event)
    }

    /// The current stream of an opened device on this thread. A device instance that the program opened by itself has no
    /// other than its default stream.
    pub(crate) fn current_of(backend: BuiltIn, accelerator: AnyDevice) -> Self {
        let selected = selection::stream(backend, accelerator.device().index);
        let of_this = selected.filter(|stream| stream.accelerator.address() == accelerator.address());
        of_this.unwrap_or(Self { accelerator, backend, id: StreamId::DEFAULT })
    }

    pub(crate) fn accelerator(&self) -> AnyDevice {
        self.accelerator
    }

    pub(crate) fn backend(&self) -> BuiltIn {
        self.backend
    }
}

/// The stream with this number. Numbers come from the device itself, so that it is there.
pub(crate) fn numbered<B: Backend>(
    accelerator: &Accelerator<B>,
    stream: StreamId,
) -> accelerator_core::Stream<B> {
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
