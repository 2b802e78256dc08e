use std::any::Any;
use std::ops::Range;

use accelerator_core::{Accelerator, Backend, Buffer, Device, Error, Result, StreamId};
use enum_dispatch::enum_dispatch;

use crate::backends::{AnyBuffer, AnyDevice, AnyPinned};
use crate::dispatch::PinnedDispatch;
use crate::stream::Stream;

/// Memory of a device.
#[enum_dispatch]
pub(crate) trait BufferDispatch {
    /// The `Buffer<B>`.
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn accelerator(&self) -> AnyDevice;
    fn stream(&self) -> StreamId;
    fn len(&self) -> u64;
    fn block_size(&self) -> u64;
    fn record_use(&self, stream: &Stream) -> Result<()>;
    fn fill(&mut self, value: u8, stream: &Stream) -> Result<()>;
    fn write(&mut self, offset: u64, bytes: &[u8], stream: &Stream) -> Result<()>;
    fn read(&self, offset: u64, bytes: &mut [u8], stream: &Stream) -> Result<()>;
    /// `source_stream` counts where the source is on another device.
    fn copy_from(&mut self, source: &AnyBuffer, stream: &Stream, source_stream: &Stream) -> Result<()>;
    fn copy_from_pinned(
        &mut self,
        offset: u64,
        source: &AnyPinned,
        range: Range<u64>,
        stream: &Stream,
    ) -> Result<()>;
    fn copy_to_pinned(
        &self,
        range: Range<u64>,
        destination: &mut AnyPinned,
        offset: u64,
        stream: &Stream,
    ) -> Result<()>;
}

impl<B: Backend> BufferDispatch for Buffer<B>
where
    &'static Accelerator<B>: Into<AnyDevice>,
{
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn accelerator(&self) -> AnyDevice {
        self.accelerator().into()
    }

    fn stream(&self) -> StreamId {
        self.stream().id()
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn block_size(&self) -> u64 {
        self.block_size()
    }

    fn record_use(&self, stream: &Stream) -> Result<()> {
        self.record_use(stream.typed()?)
    }

    fn fill(&mut self, value: u8, stream: &Stream) -> Result<()> {
        self.fill(value, stream.typed()?)
    }

    fn write(&mut self, offset: u64, bytes: &[u8], stream: &Stream) -> Result<()> {
        self.write(offset, bytes, stream.typed()?)
    }

    fn read(&self, offset: u64, bytes: &mut [u8], stream: &Stream) -> Result<()> {
        self.read(offset, bytes, stream.typed()?)
    }

    fn copy_from(&mut self, source: &AnyBuffer, stream: &Stream, source_stream: &Stream) -> Result<()> {
        let (expected, found) =
            (self.device(), crate::dispatch::DeviceDispatch::device(&source.accelerator()));
        let mismatch = Error::DeviceMismatch { what: "the source", expected, found };
        let source: &Self = source.as_any().downcast_ref().ok_or(mismatch)?;
        match expected == found {
            true => self.copy_from(source, stream.typed()?),
            false => self.copy_from_peer(source, stream.typed()?, source_stream.typed()?),
        }
    }

    fn copy_from_pinned(
        &mut self,
        offset: u64,
        source: &AnyPinned,
        range: Range<u64>,
        stream: &Stream,
    ) -> Result<()> {
        let mismatch = pinned_elsewhere(self.device(), source);
        let source = source.as_any().downcast_ref().ok_or(mismatch)?;
        self.copy_from_pinned(offset, source, range, stream.typed()?)
    }

    fn copy_to_pinned(
        &self,
        range: Range<u64>,
        destination: &mut AnyPinned,
        offset: u64,
        stream: &Stream,
    ) -> Result<()> {
        let mismatch = pinned_elsewhere(self.device(), destination);
        let destination = destination.as_any_mut().downcast_mut().ok_or(mismatch)?;
        self.copy_to_pinned(range, destination, offset, stream.typed()?)
    }
}

fn pinned_elsewhere(expected: Device, pinned: &AnyPinned) -> Error {
    Error::DeviceMismatch { what: "the pinned buffer", expected, found: pinned.device() }
}
