use std::any::Any;

use accelerator_core::{Backend, Device, Error, Event, Result};
use enum_dispatch::enum_dispatch;

use crate::backends::AnyEvent;
use crate::stream::Stream;

/// An event that has been given to a device.
#[enum_dispatch]
pub(crate) trait EventDispatch {
    /// The `Event<B>`.
    fn as_any(&self) -> &dyn Any;
    fn device(&self) -> Device;
    fn record(&self, stream: &Stream) -> Result<()>;
    fn wait(&self, stream: &Stream) -> Result<()>;
    fn is_complete(&self) -> Result<bool>;
    fn synchronize(&self) -> Result<()>;
    fn elapsed_time(&self, end: &AnyEvent) -> Result<f64>;
}

impl<B: Backend> EventDispatch for Event<B> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> Device {
        self.device()
    }

    fn record(&self, stream: &Stream) -> Result<()> {
        self.record(stream.typed()?)
    }

    fn wait(&self, stream: &Stream) -> Result<()> {
        self.wait(stream.typed()?)
    }

    fn is_complete(&self) -> Result<bool> {
        self.is_complete()
    }

    fn synchronize(&self) -> Result<()> {
        self.synchronize()
    }

    fn elapsed_time(&self, end: &AnyEvent) -> Result<f64> {
        let (expected, found) = (self.device(), end.device());
        let mismatch = Error::DeviceMismatch { what: "the end event", expected, found };
        self.elapsed_time(end.as_any().downcast_ref().ok_or(mismatch)?)
    }
}
