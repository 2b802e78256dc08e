//! Memory of the current accelerator.

use std::fmt;
use std::ops::Range;

use accelerator_core::{Backend, Error, MIB, MemoryHandle, Result, StreamId};
use bytemuck::NoUninit;

use crate::backends::{AnyBuffer, AnyDevice, dispatch};
use crate::device_arg::DeviceArg;
use crate::pinned::PinnedBuffer;
use crate::stream::{Stream, numbered};

/// The size in bytes of the largest part that a copy between two backends stores on the host at a time.
const STAGING: u64 = 16 * MIB;

/// Memory of a device. When the buffer is dropped, its memory returns to the stream that it was allocated on. PyTorch:
/// a tensor's storage.
///
/// Its methods submit work to the current stream of its device, and record that the stream uses the buffer. So its
/// memory is not reused before that work is done. The program must use events to order work on two streams.
#[must_use]
pub struct Buffer {
    pub(crate) any: AnyBuffer,
}

impl Buffer {
    /// Allocates `len` bytes for work on the current stream of the device. Their contents are arbitrary. Opens the
    /// device. PyTorch: `torch.empty(…, device=…)`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Driver`]; errors of [`DeviceArg`] and of opening the device.
    #[inline]
    pub fn allocate<'a>(len: u64, device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        match device.into() {
            DeviceArg::Current => Self::allocate_on_current_device(len),
            device => Self::allocate_on_device(len, device),
        }
    }

    fn allocate_on_current_device(len: u64) -> Result<Self> {
        let device = DeviceArg::Current.open()?;
        dispatch!(AnyDevice, device, device => device.allocate_on_current(len, Self::of))
    }

    fn allocate_on_device(len: u64, device: DeviceArg<'_>) -> Result<Self> {
        let device = device.open()?;
        dispatch!(AnyDevice, device, device => device.allocate(len, device.current_stream()).map(Self::of))
    }

    /// Allocates `len` bytes for work on `stream`. Their contents are arbitrary.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn allocate_on(len: u64, stream: &Stream) -> Result<Self> {
        dispatch!(AnyDevice, stream.accelerator(), device => {
            device.allocate(len, numbered(device, stream.id())).map(Self::of)
        })
    }

    /// Allocates like [`allocate`](Self::allocate), and copies `elements` into the buffer. PyTorch:
    /// `torch.tensor(…, device=…)`.
    ///
    /// # Errors
    /// The errors of [`allocate`](Self::allocate).
    pub fn from_slice<'a, T: NoUninit>(elements: &[T], device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let mut buffer = Self::allocate(bytes.len() as u64, device)?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Makes a buffer of memory that another process [shares](Self::share). It stays allocated as long as the buffer
    /// exists, even if the other process ends, and counts in none of this process's statistics. Opens the device. Linux
    /// only. PyTorch: what a queue of `torch.multiprocessing` does with a tensor.
    ///
    /// # Errors
    /// [`Error::Sharing`] if the memory is not shared any more, belongs to another device, or is that of this process,
    /// or if the other process has ended; [`Error::Driver`]; errors of [`DeviceArg`] and of opening the device.
    ///
    /// # Safety
    /// * Other processes do not write bytes of the memory, nor read what this one writes, at the same time: the
    ///   programs order their work, as they order that of two streams.
    /// * If this process imports the same memory several times, the same applies to these buffers, and no call gets two
    ///   of them.
    /// * The process that the handle comes from is trusted: it says what is behind the handle.
    #[allow(unsafe_code)] // the promise is the caller's
    pub unsafe fn import<'a>(handle: &MemoryHandle, device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        dispatch!(AnyDevice, device.into().open()?, device => {
            // SAFETY: The caller promises it.
            Ok(Self { any: unsafe { device.import(handle, device.current_stream()) }?.into() })
        })
    }

    /// Lets other processes of this user [import](Self::import) the buffer, with this handle, until it is dropped. Each
    /// of them also gets access to other memory of the same segment. The memory is freed when no process imports it any
    /// more. Linux only, on CUDA devices and the host. PyTorch: `torch.Tensor.share_memory_`, and what a queue of
    /// `torch.multiprocessing` does with a tensor.
    ///
    /// # Errors
    /// [`Error::Sharing`] if the buffer cannot be shared, has no bytes, or is imported; [`Error::MemPool`] if it is
    /// paused; [`Error::Driver`].
    pub fn share(&mut self) -> Result<MemoryHandle> {
        dispatch!(AnyBuffer, self.any, ref mut buffer => buffer.share())
    }

    /// Returns the number of the stream that it was allocated on.
    pub fn stream_id(&self) -> StreamId {
        dispatch!(AnyBuffer, self.any, ref buffer => buffer.stream().id())
    }

    /// Fills it with a byte value, asynchronously.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn fill(&mut self, value: u8) -> Result<()> {
        let stream = self.current_stream();
        dispatch!(AnyBuffer, self.any, ref mut buffer => buffer.fill(value, stream.typed()?))
    }

    /// Copies `bytes` to `offset`, and returns once they have arrived.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Driver`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let stream = self.current_stream();
        dispatch!(AnyBuffer, self.any, ref mut buffer => buffer.write(offset, bytes, stream.typed()?))
    }

    /// Copies from `offset` into `bytes`, and returns once they have arrived.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Driver`].
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let stream = self.current_stream();
        dispatch!(AnyBuffer, self.any, ref buffer => buffer.read(offset, bytes, stream.typed()?))
    }

    /// Copies all of `source` to the start of this buffer, after the work on the current streams of both devices. The
    /// copy is asynchronous within a device, and between devices whose driver copies directly. Other copies go through
    /// the host, and the call returns once the bytes have arrived. PyTorch: `torch.Tensor.copy_`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the source is longer; [`Error::Driver`], after which the bytes of this buffer are
    /// unspecified if the source is on another device.
    pub fn copy_from(&mut self, source: &Self) -> Result<()> {
        if self.device().kind == source.device().kind {
            return self.copy_within_backend(source);
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

    /// Copies a range of pinned host memory to `offset`, asynchronously. The source may be dropped immediately.
    /// PyTorch: `torch.Tensor.copy_(…, non_blocking=True)`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::DeviceMismatch`] for memory that is pinned for another device;
    /// [`Error::Driver`].
    pub fn copy_from_pinned(&mut self, offset: u64, source: &PinnedBuffer, range: Range<u64>) -> Result<()> {
        let stream = self.current_stream();
        let mismatch = source.mismatch(self.device());
        dispatch!(AnyBuffer, self.any, ref mut buffer => {
            buffer.copy_from_pinned(offset, source.downcast().ok_or(mismatch)?, range, stream.typed()?)
        })
    }

    /// Copies a range to `offset` in pinned host memory, asynchronously. [`PinnedBuffer::bytes`] waits for the copy.
    /// The destination may be dropped immediately. PyTorch: `torch.Tensor.copy_(…, non_blocking=True)`.
    ///
    /// # Errors
    /// The errors of [`copy_from_pinned`](Self::copy_from_pinned).
    pub fn copy_to_pinned(&self, range: Range<u64>, destination: &mut PinnedBuffer, offset: u64) -> Result<()> {
        let stream = self.current_stream();
        let mismatch = destination.mismatch(self.device());
        dispatch!(AnyBuffer, self.any, ref buffer => {
            let destination = destination.downcast_mut().ok_or(mismatch)?;
            buffer.copy_to_pinned(range, destination, offset, stream.typed()?)
        })
    }

    fn of<B: Backend>(buffer: accelerator_core::Buffer<B>) -> Self
    where
        accelerator_core::Buffer<B>: Into<AnyBuffer>,
    {
        Self { any: buffer.into() }
    }

    fn copy_within_backend(&mut self, source: &Self) -> Result<()> {
        let (stream, source_stream) = (self.current_stream(), source.current_stream());
        let same_device = self.device() == source.device();
        dispatch!(AnyBuffer, self.any, ref mut buffer => match same_device {
            true => buffer.copy_from(source.typed()?, stream.typed()?),
            false => buffer.copy_from_peer(source.typed()?, stream.typed()?, source_stream.typed()?),
        })
    }

    fn current_stream(&self) -> Stream {
        Stream::current_of(dispatch!(AnyBuffer, self.any, ref buffer => buffer.accelerator().into()))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer {{ {}, {} bytes, stream: {} }}", self.device(), self.len(), self.stream_id())
    }
}
