//! Buffers of pinned host memory.
#![allow(unsafe_code)] // bytes that the host and the device access in turn

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::{AnyBitPattern, NoUninit};

use super::CachingHostAllocator;
use super::memory::Block;
use super::pending::UseEnds;
use crate::backend::Backend;
use crate::event::{EventNumber, Events, is_over};
use crate::stream::{Instance, Stream};
use crate::sync::{get_mut, lock};
use crate::types::{Device, DriverError, DriverErrorKind, DriverResult, Error, Result, StreamId, check_bounds};

/// Host memory that a device accesses directly, so that copies run concurrently with the program:
/// [`Buffer::copy_from_pinned`](crate::Buffer::copy_from_pinned) and
/// [`Buffer::copy_to_pinned`](crate::Buffer::copy_to_pinned) return at once.
///
/// The host and the device never access the same bytes at the same time: [`bytes`](Self::bytes) waits for copies into
/// the buffer, [`bytes_mut`](Self::bytes_mut) waits for all copies, and copies on several streams run one after the
/// other if one of them writes. The buffer may be dropped while copies are in flight; its memory returns to the cache
/// when they are complete.
#[must_use]
pub struct PinnedBuffer<B: Backend> {
    allocator: &'static CachingHostAllocator<B>,
    /// `None` if the buffer has no bytes.
    block: Option<Block>,
    len: u64,
    /// The ends of copies into the buffer.
    writes: UseEnds,
    /// Whether the host has waited for these.
    settled: AtomicBool,
    shared: Mutex<Shared>,
}

/// What a shared reference to a buffer may change.
struct Shared {
    /// The ends of copies out of the buffer.
    reads: UseEnds,
    /// Streams whose uses this library does not see, until an event is recorded after them.
    noted: Vec<StreamId>,
    /// Those of them with copies of this library that have no event, and whether these write. Other copies come behind
    /// them.
    unmarked: Vec<(StreamId, bool)>,
}

/// An alignment that suits all common element types.
#[repr(align(64))]
struct Aligned;

const BEING_CAPTURED: DriverError = DriverError::refused(
    DriverErrorKind::Unsupported,
    "is_capturing",
    "the stream is being captured as a graph, which cannot use pinned memory",
);

impl<B: Backend> PinnedBuffer<B> {
    pub(super) fn new(allocator: &'static CachingHostAllocator<B>, block: Option<Block>, len: u64) -> Self {
        let shared = Mutex::new(Shared { reads: Vec::new(), noted: Vec::new(), unmarked: Vec::new() });
        Self { allocator, block, len, writes: Vec::new(), settled: AtomicBool::new(true), shared }
    }

    /// The number of bytes that were requested.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that the memory is pinned for.
    pub fn device(&self) -> Device {
        self.allocator.streams.owner.device
    }

    /// The start of the buffer; `None` if it has no bytes. Other libraries can work on it: record their streams with
    /// [`record_use`](Self::record_use).
    pub fn ptr(&self) -> Option<NonNull<u8>> {
        self.block.as_ref().map(Block::start)
    }

    /// The size of the buffer's block in bytes: `len`, rounded up.
    pub fn block_size(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.size().get())
    }

    /// Records that work of another library on `stream` uses the buffer. When the buffer is dropped, its memory is not
    /// reused until all work submitted to the stream by then is done. The safe interface records its copies itself.
    /// PyTorch: `record_event` of the host allocator.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device.
    pub fn record_use(&self, stream: Stream<B>) -> Result<()> {
        stream.check(self.allocator.streams.owner)?;
        if self.block.is_some() {
            lock(&self.shared).note(stream.id());
        }
        Ok(())
    }

    /// The bytes of the buffer. Waits for the copies into it that are in flight, but not for later work of their
    /// streams, and for all work submitted so far to streams recorded by [`record_use`](Self::record_use).
    ///
    /// # Errors
    /// [`Error::Driver`] if waiting or a copy failed, after which the bytes may be wrong; also if a recorded stream is
    /// being captured as a graph, which cannot be waited for.
    pub fn bytes(&self) -> Result<&[u8]> {
        if !self.settled.load(Ordering::Acquire) {
            for (_, event) in &self.writes {
                self.device().driver_result(self.allocator.pending.events.wait_on_host(*event))?;
            }
            self.settled.store(true, Ordering::Release);
        }
        self.device().driver_result(self.wait_for_noted())?;
        // SAFETY: The block has at least `len` initialized bytes and belongs to this buffer alone. Nothing writes to
        // them while they are borrowed: no copy into the buffer is in flight, and starting one needs a mutable borrow.
        Ok(unsafe { slice::from_raw_parts(self.start().as_ptr(), self.len as usize) })
    }

    /// The bytes of the buffer for writing. Waits for every use of the buffer in flight: copies, and all work submitted
    /// so far to streams recorded by [`record_use`](Self::record_use).
    ///
    /// # Errors
    /// [`Error::Driver`] if waiting or a copy failed, which is reported once; also if a recorded stream is being
    /// captured as a graph, which cannot be waited for.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let waited = self.wait();
        self.device().driver_result(waited)?;
        // SAFETY: As in `bytes`. No use at all is in flight, and the buffer is borrowed mutably.
        Ok(unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.len as usize) })
    }

    /// The bytes as elements. Waits like [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// [`Error::ElementSize`] if the length is not a multiple of the element size; otherwise as [`bytes`](Self::bytes).
    pub fn slice<T: AnyBitPattern>(&self) -> Result<&[T]> {
        let not_whole = Error::ElementSize { size: self.len, element: size_of::<T>() };
        bytemuck::try_cast_slice(self.bytes()?).map_err(|_| not_whole)
    }

    /// The bytes as elements for writing. Waits like [`bytes_mut`](Self::bytes_mut).
    ///
    /// # Errors
    /// [`Error::ElementSize`] if the length is not a multiple of the element size; otherwise as
    /// [`bytes_mut`](Self::bytes_mut).
    pub fn slice_mut<T: AnyBitPattern + NoUninit>(&mut self) -> Result<&mut [T]> {
        let not_whole = Error::ElementSize { size: self.len, element: size_of::<T>() };
        bytemuck::try_cast_slice_mut(self.bytes_mut()?).map_err(|_| not_whole)
    }

    /// The start of a range for a copy by this device instance; `None` if the range has no bytes.
    pub(crate) fn part(&self, range: &Range<u64>, instance: Instance) -> Result<Option<NonNull<u8>>> {
        self.allocator.streams.owner.check(instance, "the pinned buffer")?;
        let (offset, len) = (range.start, range.end.wrapping_sub(range.start));
        check_bounds(offset, len, self.len)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: `offset` is less than `len`, so the result lies in the block.
        Ok(self.ptr().map(|start| unsafe { start.add(offset as usize) }))
    }

    /// Makes the stream wait for copies into the buffer on other streams, ahead of a copy out of it. The caller then
    /// submits the copy and calls [`reading`](Self::reading).
    pub(crate) fn before_read(&self, stream: Stream<B>) -> Result<()> {
        let writes = if self.settled.load(Ordering::Acquire) { &[] } else { &*self.writes };
        let ordered = self.allocator.order_behind(writes, stream.id());
        self.device().driver_result(ordered.and_then(|()| self.order_behind_unmarked(stream.id(), true)))
    }

    /// Records that a copy out of the buffer was just submitted to the stream.
    pub(crate) fn reading(&self, stream: Stream<B>) -> DriverResult<()> {
        // Taken out while it is recorded, so that the driver is not called under the lock.
        let earlier = take_of(&mut lock(&self.shared).reads, stream);
        let event = self.copy_end(earlier, stream, false)?;
        lock(&self.shared).reads.extend(event.map(|event| (stream.id(), event)));
        Ok(())
    }

    /// Makes the stream wait for all copies on other streams, ahead of a copy into the buffer. The caller then submits
    /// the copy and calls [`writing`](Self::writing).
    pub(crate) fn before_write(&mut self, stream: Stream<B>) -> Result<()> {
        let uses = get_mut(&mut self.shared).reads.iter().chain(&self.writes);
        let ordered = self.allocator.order_behind(uses, stream.id());
        self.device().driver_result(ordered.and_then(|()| self.order_behind_unmarked(stream.id(), false)))
    }

    /// Records that a copy into the buffer was just submitted to the stream.
    pub(crate) fn writing(&mut self, stream: Stream<B>) -> DriverResult<()> {
        let earlier = take_of(&mut self.writes, stream);
        let event = self.copy_end(earlier, stream, true)?;
        self.writes.extend(event.map(|event| (stream.id(), event)));
        *self.settled.get_mut() = false;
        Ok(())
    }

    /// Records an event right after the copy that was just submitted, reusing the event of an earlier copy if there is
    /// one. If the driver cannot record it, waits for the copy before returning the error, since nothing else knows of
    /// the copy. If that fails, too, or if another thread has begun to capture the stream, records the stream as a user
    /// of the buffer.
    fn copy_end(
        &self,
        earlier: Option<EventNumber>,
        stream: Stream<B>,
        writes: bool,
    ) -> DriverResult<Option<EventNumber>> {
        let recorded = self.allocator.pending.events.record_again(earlier, stream.id());
        let is_known = match &recorded {
            Ok(event) => event.is_some(),
            Err(_) => self.allocator.streams.backend.synchronize(stream.native()).is_ok(),
        };
        if !is_known {
            lock(&self.shared).note_copy(stream.id(), writes);
        }
        recorded
    }

    /// Makes later work of the stream wait for copies on other streams that have no event yet, or only for those that
    /// write. Fails while one of these streams is being captured.
    fn order_behind_unmarked(&self, stream: StreamId, only_writes: bool) -> DriverResult<()> {
        let unmarked = lock(&self.shared).unmarked.clone();
        let mut others = unmarked.into_iter().filter(|(user, writes)| *user != stream && (*writes || !only_writes));
        others.try_for_each(|(user, _)| {
            let end = self.allocator.noted_end(user)?;
            let ordered = self.allocator.pending.events.wait_on_device(stream, end);
            self.allocator.pending.events.take_back(end);
            ordered
        })
    }

    /// Waits for all work submitted so far to the recorded streams. They stay recorded, since more work may follow.
    fn wait_for_noted(&self) -> DriverResult<()> {
        let noted = lock(&self.shared).noted.clone();
        noted.into_iter().try_for_each(|user| {
            let event = self.allocator.noted_end(user)?;
            let waited = self.allocator.pending.events.wait_on_host(event);
            self.allocator.pending.events.take_back(event);
            waited
        })
    }

    /// Waits for every use.
    fn wait(&mut self) -> DriverResult<()> {
        let (allocator, shared) = (self.allocator, get_mut(&mut self.shared));
        while let Some(user) = shared.noted.last().copied() {
            self.writes.push((user, allocator.noted_end(user)?)); // nobody knows whether it writes
            *self.settled.get_mut() = false;
            shared.noted.pop();
        }
        let mut result = Ok(());
        for uses in [&mut self.writes, &mut shared.reads] {
            while let Some((user, event)) = uses.pop() {
                match allocator.pending.events.wait_on_host(event) {
                    Ok(()) => allocator.pending.events.take_back(event),
                    // The use failed, so it is over.
                    failed if matches!(is_over(&allocator.pending.events, event), Ok(true)) => {
                        result = result.and(failed);
                    }
                    failed => {
                        uses.push((user, event));
                        return result.and(failed);
                    }
                }
            }
        }
        shared.unmarked.clear(); // their events were among the writes
        result
    }

    /// The start of the bytes. Suitably aligned for all elements, even if there are none.
    fn start(&self) -> NonNull<u8> {
        self.ptr().unwrap_or(NonNull::<Aligned>::dangling().cast())
    }
}

impl<B: Backend> CachingHostAllocator<B> {
    /// An event after all work submitted so far to a recorded stream.
    fn noted_end(&self, user: StreamId) -> DriverResult<EventNumber> {
        self.pending.events.record(user)?.ok_or(BEING_CAPTURED)
    }

    /// Makes later work of the stream wait for these uses on other streams. Fails while the stream is being captured: a
    /// captured copy runs when the graph is launched, by calls that this library does not see.
    fn order_behind<'a>(
        &self,
        uses: impl IntoIterator<Item = &'a (StreamId, EventNumber)>,
        stream: StreamId,
    ) -> DriverResult<()> {
        if self.pending.events.is_capturing(stream)? {
            return Err(BEING_CAPTURED);
        }
        let mut others = uses.into_iter().filter(|(user, _)| *user != stream);
        others.try_for_each(|(_, event)| self.pending.events.wait_on_device(stream, *event))
    }
}

impl Shared {
    fn note(&mut self, user: StreamId) {
        if !self.noted.contains(&user) {
            self.noted.push(user);
        }
    }

    /// Notes a stream with a copy that has no event.
    fn note_copy(&mut self, user: StreamId, writes: bool) {
        self.note(user);
        if !self.unmarked.contains(&(user, writes)) {
            self.unmarked.push((user, writes));
        }
    }
}

/// Removes and returns the event of this stream.
fn take_of<B: Backend>(uses: &mut UseEnds, stream: Stream<B>) -> Option<EventNumber> {
    let place = uses.iter().position(|(user, _)| *user == stream.id())?;
    Some(uses.swap_remove(place).1)
}

impl<B: Backend> Drop for PinnedBuffer<B> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let mut uses = std::mem::take(&mut self.writes);
        if *self.settled.get_mut() {
            uses.drain(..).for_each(|(_, event)| self.allocator.pending.events.take_back(event));
        }
        let Shared { reads, noted, .. } = get_mut(&mut self.shared);
        uses.append(reads);
        self.allocator.free(block, uses, std::mem::take(noted));
    }
}

impl<B: Backend> fmt::Debug for PinnedBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer {{ {}, {} bytes at {:?} }}", self.device(), self.len, self.ptr())
    }
}
