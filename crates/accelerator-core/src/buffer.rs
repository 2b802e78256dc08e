//! Device memory that frees itself, and typed views of it.
#![allow(unsafe_code)] // `Backend::copy` and `Backend::fill`

mod allocate;
mod sharing;

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit};

use self::sharing::Between;
use crate::accelerator::Accelerator;
use crate::alloc::Allocation;
use crate::backend::{Backend, Place};
use crate::imported::Imported;
use crate::operator::{Operator, OperatorKind, report_operator};
use crate::pinned::PinnedBuffer;
use crate::stream::Stream;
use crate::sync::Step;
use crate::types::{Device, DevicePtr, DriverResult, Error, Result, check_bounds};

/// Device memory. Dropping it frees the memory to the stream that it was allocated on.
///
/// Every operation on another stream records that use itself, so the memory is not reused before that work is done. The
/// *order* of work on two streams is up to the program, as everywhere: use events.
///
/// While the buffer's pool is [paused](crate::MemPool::pause), its operations fail with [`Error::MemPool`].
#[must_use]
pub struct Buffer<B: Backend> {
    accelerator: &'static Accelerator<B>,
    memory: Memory<B>,
}

enum Memory<B: Backend> {
    /// An allocation that no other process can import.
    Private(Allocation<B>),
    /// Memory of several processes, or no bytes. It is in an `Arc`, since the drop of a `Box` would be inlined into
    /// that of each buffer.
    Other { stream: Stream<B>, between: Option<Arc<Between<B>>> },
}

impl<B: Backend> Buffer<B> {
    /// The number of bytes that were requested.
    pub fn len(&self) -> u64 {
        match self.allocation() {
            Some(allocation) => allocation.requested().get(),
            None => self.import().map_or(0, Imported::len),
        }
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.accelerator.device()
    }

    /// The opened device.
    pub fn accelerator(&self) -> &'static Accelerator<B> {
        self.accelerator
    }

    /// The stream that the buffer was allocated on.
    pub fn stream(&self) -> Stream<B> {
        match &self.memory {
            Memory::Private(allocation) => allocation.stream(),
            Memory::Other { stream, .. } => *stream,
        }
    }

    /// The location of the buffer; `None` if it has no bytes. Other libraries can work on it: record their work on
    /// streams other than the buffer's own with [`record_use`](Self::record_use).
    pub fn ptr(&self) -> Option<B::Ptr> {
        self.allocation().map(Allocation::ptr).or_else(|| self.import().map(Imported::ptr))
    }

    /// The size of the buffer's block in bytes: `len`, rounded up. 0 for imported memory.
    pub fn block_size(&self) -> u64 {
        self.allocation().map_or(0, Allocation::size)
    }

    /// Records that `stream` uses the buffer. The safe operations do this themselves. PyTorch: `Tensor.record_stream`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device; [`Error::MemPool`] if the memory is paused.
    pub fn record_use(&self, stream: Stream<B>) -> Result<()> {
        self.begin_use(stream).map(drop)
    }

    /// Records that `stream` uses the buffer, and keeps its memory from being [paused](crate::MemPool::pause) until the
    /// work is submitted: until the returned value is dropped.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device; [`Error::MemPool`] if the memory is paused.
    pub fn begin_use(&self, stream: Stream<B>) -> Result<BufferUse> {
        let Some(allocation) = self.allocation() else {
            stream.check(self.accelerator.instance())?;
            if let Some(imported) = self.import() {
                imported.record_use(stream);
            }
            return Ok(BufferUse(None));
        };
        let allocator = self.accelerator.allocator();
        allocator.record_work(allocation, stream)?;
        allocator.begin_use(allocation).map(BufferUse)
    }

    /// Fills the buffer with one byte value, asynchronously on `stream`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::Driver`].
    pub fn fill(&mut self, value: u8, stream: Stream<B>) -> Result<()> {
        let Some((ptr, len, begun)) = self.part(0, self.len(), stream)? else { return Ok(()) };
        // SAFETY: `part` returns a range inside the allocation. `self` is borrowed mutably, and its memory is not
        // reused until this stream is done with it.
        let filled = unsafe { self.accelerator.backend().fill(ptr, value, len, stream.native()) };
        self.submitted(begun, filled, OperatorKind::Fill, len, stream)
    }

    /// Copies `bytes` to `offset`. Returns when they have arrived.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::DeviceMismatch`]; [`Error::Driver`], after which a part may have arrived.
    pub fn write(&mut self, offset: u64, bytes: &[u8], stream: Stream<B>) -> Result<()> {
        let Some((ptr, len, begun)) = self.part(offset, bytes.len() as u64, stream)? else { return Ok(()) };
        let source = Place::Host(NonNull::from(bytes).cast());
        let copied = self.copy_and_wait(Place::Device(ptr), source, len, stream);
        self.submitted(begun, copied, OperatorKind::CopyToDevice, len, stream)
    }

    /// Copies from `offset` into `bytes`. Returns when they have arrived.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::DeviceMismatch`]; [`Error::Driver`], after which a part may have arrived.
    pub fn read(&self, offset: u64, bytes: &mut [u8], stream: Stream<B>) -> Result<()> {
        let Some((ptr, len, begun)) = self.part(offset, bytes.len() as u64, stream)? else { return Ok(()) };
        let destination = Place::Host(NonNull::from(bytes).cast());
        let copied = self.copy_and_wait(destination, Place::Device(ptr), len, stream);
        self.submitted(begun, copied, OperatorKind::CopyToHost, len, stream)
    }

    /// Copies all of `source` to the start of this buffer, asynchronously on `stream`. A source on another device of
    /// the same kind is copied by [`copy_from_peer`](Self::copy_from_peer), after the work of the source's own stream.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for a longer source, [`Error::DeviceMismatch`], [`Error::Driver`]. After the last one,
    /// the bytes of this buffer are unspecified if the source is on another device.
    pub fn copy_from(&mut self, source: &Self, stream: Stream<B>) -> Result<()> {
        if source.device() != self.device() {
            return self.copy_from_peer(source, stream, source.stream());
        }
        let Some((to, len, begun)) = self.part(0, source.len(), stream)? else { return Ok(()) };
        let Some((from, _, begun_on_source)) = source.part(0, source.len(), stream)? else { return Ok(()) };
        let (to, from) = (Place::Device(to), Place::Device(from));
        // SAFETY: Both ranges lie inside their allocations. These are distinct, since one is borrowed mutably. Neither
        // is reused until this stream is done with it.
        let copied = unsafe { self.accelerator.backend().copy(to, from, len, stream.native()) };
        drop(begun_on_source);
        self.submitted(begun, copied, OperatorKind::CopyWithin, len, stream)
    }

    /// Copies a range of pinned host memory to `offset`, asynchronously on `stream`. The source may be dropped at once.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::DeviceMismatch`], also for memory that is pinned for another device;
    /// [`Error::Driver`], after which either nothing has been copied or the copy is complete. A stream that is being
    /// captured as a graph is refused, too, since the copy would run at an unknown time.
    pub fn copy_from_pinned(
        &mut self,
        offset: u64,
        source: &PinnedBuffer<B>,
        range: Range<u64>,
        stream: Stream<B>,
    ) -> Result<()> {
        let from = source.part(&range, self.accelerator.instance())?;
        let part = self.part(offset, range.end - range.start, stream)?;
        let Some(((to, len, begun), from)) = part.zip(from) else { return Ok(()) };
        source.before_read(stream)?;
        let (to, from) = (Place::Device(to), Place::Host(from));
        // SAFETY: Both ranges lie inside their allocations. The pinned one is kept until the event that `reading`
        // records is complete. Until then the host does not write to it, and copies into it wait.
        let copied = unsafe { self.accelerator.backend().copy(to, from, len, stream.native()) };
        let copied = copied.and_then(|()| source.reading(stream));
        self.submitted(begun, copied, OperatorKind::CopyToDevice, len, stream)
    }

    /// Copies a range to `offset` in pinned host memory, asynchronously on `stream`. [`PinnedBuffer::bytes`] waits for
    /// the copy. The destination may be dropped at once.
    ///
    /// # Errors
    /// As [`copy_from_pinned`](Self::copy_from_pinned).
    pub fn copy_to_pinned(
        &self,
        range: Range<u64>,
        destination: &mut PinnedBuffer<B>,
        offset: u64,
        stream: Stream<B>,
    ) -> Result<()> {
        let len = range.end.wrapping_sub(range.start);
        let part = self.part(range.start, len, stream)?;
        let to = destination.part(&(offset..offset.saturating_add(len)), self.accelerator.instance())?;
        let Some(((from, len, begun), to)) = part.zip(to) else { return Ok(()) };
        destination.before_write(stream)?;
        let (to, from) = (Place::Host(to), Place::Device(from));
        // SAFETY: Both ranges lie inside their allocations. The pinned one is kept until the event that `writing`
        // records is complete. Until then the host does not touch it, and other copies of it wait.
        let copied = unsafe { self.accelerator.backend().copy(to, from, len, stream.native()) };
        let copied = copied.and_then(|()| destination.writing(stream));
        self.submitted(begun, copied, OperatorKind::CopyToHost, len, stream)
    }

    /// A typed view for reading in a kernel.
    ///
    /// # Errors
    /// [`Error::ElementSize`] if the length is not a multiple of the element size.
    pub fn slice<T: AnyBitPattern>(&self) -> Result<Slice<'_, B, T>> {
        element_count::<T>(self.len()).map(|len| View { buffer: self, len, element: PhantomData })
    }

    /// A typed view for reading and writing in a kernel.
    ///
    /// # Errors
    /// [`Error::ElementSize`] if the length is not a multiple of the element size.
    pub fn slice_mut<T: AnyBitPattern + NoUninit>(&mut self) -> Result<SliceMut<'_, B, T>> {
        element_count::<T>(self.len()).map(|len| View { buffer: self, len, element: PhantomData })
    }

    /// The memory, unless it is that of another process or has no bytes.
    fn allocation(&self) -> Option<&Allocation<B>> {
        match &self.memory {
            Memory::Private(allocation) => Some(allocation),
            Memory::Other { between, .. } => between.as_deref().and_then(Between::allocation),
        }
    }

    /// A range for work on `stream`, which is recorded as a user; `None` if it has no bytes.
    fn part(&self, offset: u64, len: u64, stream: Stream<B>) -> Result<Option<Part<B>>> {
        check_bounds(offset, len, self.len())?;
        let begun = self.begin_use(stream)?;
        Ok(self.ptr().zip(NonZeroU64::new(len)).map(|(ptr, len)| (ptr.offset(offset), len, begun)))
    }

    fn copy_and_wait(
        &self,
        to: Place<B::Ptr>,
        from: Place<B::Ptr>,
        len: NonZeroU64,
        stream: Stream<B>,
    ) -> DriverResult<()> {
        let backend = self.accelerator.backend();
        stream.refuse_capture()?;
        // SAFETY: The device's end is inside the allocation. The host's end is a slice of `len` bytes that the caller
        // borrows until this function returns. It returns after `synchronize`: from then on, even if that failed,
        // nothing submitted before touches host memory. A graph has the copy only if another thread has begun a capture
        // of the stream since the check, which `Graph::replay` forbids.
        let copied = unsafe { backend.copy(to, from, len, stream.native()) };
        copied.and_then(|()| backend.synchronize(stream.native()))
    }

    /// Reports the work to the observers if it was submitted. They may pause the memory, so it is not in use then.
    fn submitted(
        &self,
        begun: BufferUse,
        result: DriverResult<()>,
        kind: OperatorKind,
        len: NonZeroU64,
        stream: Stream<B>,
    ) -> Result<()> {
        drop(begun);
        self.device().driver_result(result)?;
        report_operator(|| Operator::on(stream, kind, len.get()));
        Ok(())
    }
}

/// A range of a buffer, which is not paused meanwhile.
type Part<B> = (<B as Backend>::Ptr, NonZeroU64, BufferUse);

/// Keeps the memory of a buffer from being paused until it is dropped.
#[must_use = "the memory may be paused as soon as this is dropped"]
pub struct BufferUse(Option<Step<'static>>);

impl fmt::Debug for BufferUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "BufferUse" } else { "BufferUse(cannot be paused)" })
    }
}

impl<B: Backend> Drop for Buffer<B> {
    #[inline]
    fn drop(&mut self) {
        match &self.memory {
            Memory::Private(allocation) => self.accelerator.allocator().free_own(allocation),
            Memory::Other { .. } => self.withdraw(),
        }
    }
}

impl<B: Backend> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer {{ {}, {} bytes at {:?}, {:?} }}", self.device(), self.len(), self.ptr(), self.stream())
    }
}

/// The number of elements of `T` in `bytes` bytes.
///
/// # Errors
/// [`Error::ElementSize`] if `bytes` is not a multiple of the element size, or if elements have no size.
pub fn element_count<T>(bytes: u64) -> Result<usize> {
    let element = size_of::<T>();
    match bytes.checked_rem(element as u64) {
        Some(0) => Ok((bytes / element as u64) as usize),
        _ => Err(Error::ElementSize { size: bytes, element }),
    }
}

/// A buffer as elements, for reading in a kernel.
pub type Slice<'a, B, T> = View<&'a Buffer<B>, T>;

/// A buffer as elements, for reading and writing in a kernel.
pub type SliceMut<'a, B, T> = View<&'a mut Buffer<B>, T>;

/// A borrowed buffer as elements: a [`Slice`] or a [`SliceMut`].
#[derive(Debug)]
pub struct View<R, T> {
    buffer: R,
    len: usize,
    element: PhantomData<T>,
}

impl<B: Backend, R: Deref<Target = Buffer<B>>, T> View<R, T> {
    /// The buffer.
    pub fn buffer(&self) -> &Buffer<B> {
        &self.buffer
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, copied to the host.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn to_vec(&self, stream: Stream<B>) -> Result<Vec<T>>
    where
        T: AnyBitPattern + NoUninit,
    {
        let mut elements = vec![T::zeroed(); self.len];
        self.buffer.read(0, bytemuck::cast_slice_mut(&mut elements), stream)?;
        Ok(elements)
    }
}

impl<B: Backend, T: NoUninit> SliceMut<'_, B, T> {
    /// Copies `elements` to the start. Returns when they have arrived.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub fn write(&mut self, elements: &[T], stream: Stream<B>) -> Result<()> {
        self.buffer.write(0, bytemuck::cast_slice(elements), stream)
    }
}
