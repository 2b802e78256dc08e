//! From here to the core's types over one backend: for kernels, native handles and whatever a backend alone offers.

use accelerator_core::{Accelerator, Backend, Device, Error, Result};

use crate::backends::AnyDevice;
use crate::buffer::Buffer;
use crate::device_arg::DeviceArg;
use crate::dispatch::{BufferDispatch, DeviceDispatch, PinnedDispatch};
use crate::pinned::PinnedBuffer;
use crate::stream::Stream;

/// A device of the current accelerator as the core's type over its backend. Opens the device. For another backend than
/// the current accelerator there is [`Accelerator::open`].
///
/// # Errors
/// As [`DeviceArg`] says; [`Error::DeviceKindMismatch`] where the current accelerator is another backend; what opening
/// the device can fail with.
pub fn typed<'a, B: Backend>(device: impl Into<DeviceArg<'a>>) -> Result<&'static Accelerator<B>> {
    let target = device.into().resolve()?;
    let (expected, found) = (target.backend.kind().name(), B::KIND.to_string());
    downcast(target.open()?).ok_or(Error::DeviceKindMismatch { expected, found })
}

impl Stream {
    /// The core's stream, to launch kernels on.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another backend.
    pub fn typed<B: Backend>(&self) -> Result<accelerator_core::Stream<B>> {
        downcast::<B>(self.accelerator())
            .and_then(|accelerator| accelerator.stream_by_id(self.id()))
            .ok_or_else(|| mismatch::<B>("the stream", self.device()))
    }
}

impl Buffer {
    /// The core's buffer, to read in a kernel.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a buffer of another backend.
    pub fn typed<B: Backend>(&self) -> Result<&accelerator_core::Buffer<B>> {
        self.any().as_any().downcast_ref().ok_or_else(|| mismatch::<B>("the buffer", self.device()))
    }

    /// The core's buffer, to write in a kernel.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a buffer of another backend.
    pub fn typed_mut<B: Backend>(&mut self) -> Result<&mut accelerator_core::Buffer<B>> {
        let device = self.device();
        self.any_mut().as_any_mut().downcast_mut().ok_or_else(|| mismatch::<B>("the buffer", device))
    }
}

impl PinnedBuffer {
    /// The core's buffer, for other libraries.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for memory that is pinned for another backend.
    pub fn typed<B: Backend>(&self) -> Result<&accelerator_core::PinnedBuffer<B>> {
        self.any().as_any().downcast_ref().ok_or_else(|| mismatch::<B>("the pinned buffer", self.device()))
    }

    /// The core's buffer, for other libraries that write to it.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for memory that is pinned for another backend.
    pub fn typed_mut<B: Backend>(&mut self) -> Result<&mut accelerator_core::PinnedBuffer<B>> {
        let device = self.device();
        self.any_mut().as_any_mut().downcast_mut().ok_or_else(|| mismatch::<B>("the pinned buffer", device))
    }
}

fn downcast<B: Backend>(device: AnyDevice) -> Option<&'static Accelerator<B>> {
    device.as_any().downcast_ref()
}

fn mismatch<B: Backend>(what: &'static str, found: Device) -> Error {
    Error::DeviceMismatch { what, expected: Device { kind: B::KIND, index: found.index }, found }
}
