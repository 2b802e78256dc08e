//! Memory of whichever backend it is.

use std::fmt;
use std::ops::Range;

use accelerator_core::{Device, Error, MIB, Result, StreamId};
use bytemuck::NoUninit;

use crate::backends::{AnyBuffer, BuiltIn};
use crate::current::current_stream;
use crate::device_arg::DeviceArg;
use crate::dispatch::{BufferDispatch, DeviceDispatch};
use crate::pinned::PinnedBuffer;
use crate::stream::Stream;

/// Bytes that a copy between two devices holds on the host at a time.
const STAGING: u64 = 16 * MIB;

/// Memory of a device. Dropped, it is freed to the stream that it was allocated on. PyTorch: a tensor's storage.
///
/// What is done with it runs on the current stream of its device, and that use is noted, so that the memory is not reused
/// before. The *order* of work on two streams is the program's business: use events.
#[must_use]
pub struct Buffer {
    any: AnyBuffer,
    backend: BuiltIn,
}

impl Buffer {
    /// Allocates `len` bytes for work on the current stream of the device; their contents are whatever was there. Opens
    /// the device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; as [`DeviceArg`] says; what opening the device can fail with; [`Error::Driver`].
    pub fn allocate<'a>(len: u64, device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        Self::allocate_on(len, &current_stream(device)?)
    }

    /// Allocates `len` bytes for work on `stream`; their contents are whatever was there.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn allocate_on(len: u64, stream: &Stream) -> Result<Self> {
        let any = stream.accelerator().allocate(len, stream.id())?;
        Ok(Self { any, backend: stream.backend() })
    }

    /// Allocates as [`allocate`](Self::allocate) and copies `elements` there. PyTorch: `torch.tensor(…, device=…)`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn from_slice<'a, T: NoUninit>(elements: &[T], device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let mut buffer = Self::allocate(bytes.len() as u64, device)?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.any.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its block: `len` rounded up. They are what the statistics count as allocated.
    pub fn block_size(&self) -> u64 {
        self.any.block_size()
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.any.accelerator().device()
    }

    /// The number of the stream that it was allocated on.
    pub fn stream_id(&self) -> StreamId {
        self.any.stream()
    }

    /// Notes that `stream` uses it, so that its memory is not reused before that work is done. All methods here do so by
    /// themselves; it is for work that another library does on it. PyTorch: `torch.Tensor.record_stream`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.any.record_use(stream)
    }

    /// Fills it with one byte value, asynchronously.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn fill(&mut self, value: u8) -> Result<()> {
        let stream = self.current_stream();
        self.any.fill(value, &stream)
    }

    /// Copies `bytes` to `offset`, and returns when they are there.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Driver`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let stream = self.current_stream();
        self.any.write(offset, bytes, &stream)
    }

    /// Copies from `offset` into `bytes`, and returns when they are there.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Driver`].
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.any.read(offset, bytes, &self.current_stream())
    }

    /// Copies all of `source` to its start: asynchronously on one device, and between devices whose driver copies by itself,
    /// behind the current streams of both; else by way of the host, and then it returns when the bytes are there. PyTorch:
    /// `torch.Tensor.copy_`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for a longer source; [`Error::Driver`], and then a part may have been copied between devices.
    pub fn copy_from(&mut self, source: &Self) -> Result<()> {
        if self.device().kind == source.device().kind {
            let (stream, source_stream) = (self.current_stream(), source.current_stream());
            return self.any.copy_from(&source.any, &stream, &source_stream);
        }
        if source.len() > self.len() {
            return Err(Error::OutOfBounds { offset: 0, len: source.len(), size: self.len() });
        }
        let mut staging = vec![0; source.len().min(STAGING) as usize];
        let mut offset = 0;
        while offset < source.len() {
            let bytes = &mut staging[..(source.len() - offset).min(STAGING) as usize];
            source.read(offset, bytes)?;
            self.write(offset, bytes)?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    /// Copies a range of pinned host memory to `offset`, asynchronously. The source may be dropped at once. PyTorch:
    /// `torch.Tensor.copy_(…, non_blocking=True)`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::DeviceMismatch`] for memory that is pinned for another device; [`Error::Driver`].
    pub fn copy_from_pinned(&mut self, offset: u64, source: &PinnedBuffer, range: Range<u64>) -> Result<()> {
        let stream = self.current_stream();
        self.any.copy_from_pinned(offset, source.any(), range, &stream)
    }

    /// Copies a range to `offset` in pinned host memory, asynchronously: [`PinnedBuffer::bytes`] waits for it. The
    /// destination may be dropped at once. PyTorch: `torch.Tensor.copy_(…, non_blocking=True)`.
    ///
    /// # Errors
    /// As [`copy_from_pinned`](Self::copy_from_pinned).
    pub fn copy_to_pinned(
        &self,
        range: Range<u64>,
        destination: &mut PinnedBuffer,
        offset: u64,
    ) -> Result<()> {
        self.any.copy_to_pinned(range, destination.any_mut(), offset, &self.current_stream())
    }

    pub(crate) fn any(&self) -> &AnyBuffer {
        &self.any
    }

    pub(crate) fn any_mut(&mut self) -> &mut AnyBuffer {
        &mut self.any
    }

    fn current_stream(&self) -> Stream {
        Stream::current_of(self.backend, self.any.accelerator())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer {{ {}, {} bytes, stream: {} }}", self.device(), self.len(), self.stream_id())
    }
}
