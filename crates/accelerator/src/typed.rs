//! Converts the facade's types to the core's types for one backend: for kernels, native handles and other features of a
//! single backend.

use std::any::Any;

use accelerator_core::{Accelerator, Backend, Device, Error, Result};

use crate::backends::{AnyDevice, dispatch};
use crate::device_arg::DeviceArg;
use crate::stream::Stream;

/// Returns a device of the current accelerator as the core's type for its backend. Opens the device. For a backend
/// other than the current accelerator, use [`Accelerator::open`].
///
/// # Errors
/// [`Error::DeviceKindMismatch`] if the current accelerator is another backend; errors of [`DeviceArg`] and of opening
/// the device.
pub fn typed<'a, B: Backend>(device: impl Into<DeviceArg<'a>>) -> Result<&'static Accelerator<B>> {
    let target = device.into().resolve()?;
    let (expected, found) = (target.backend.kind(), B::KIND.to_string());
    downcast(target.open()?).ok_or(Error::DeviceKindMismatch { expected, found })
}

impl Stream {
    /// Returns the core's stream, for kernels and its native handle.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if the stream belongs to another backend.
    pub fn typed<B: Backend>(&self) -> Result<accelerator_core::Stream<B>> {
        downcast::<B>(self.accelerator()).and_then(|accelerator| accelerator.stream_by_id(self.id())).ok_or_else(|| {
            let found = self.device();
            Error::DeviceMismatch { what: "the stream", expected: alike::<B>(found), found }
        })
    }
}

fn downcast<B: Backend>(device: AnyDevice) -> Option<&'static Accelerator<B>> {
    dispatch!(AnyDevice, device, device => device as &dyn Any).downcast_ref()
}

/// Returns the device of `B` with the same index.
pub(crate) fn alike<B: Backend>(device: Device) -> Device {
    Device { kind: B::KIND, index: device.index }
}
