//! Pinned host memory as users have it.
#![allow(unsafe_code)] // bytes that the host and the device take turns with

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
use crate::event::{EventNumber, Events};
use crate::stream::{Instance, Stream};
use crate::sync::{get_mut, lock};
use crate::types::{
    Device, DriverError, DriverErrorKind, DriverResult, Error, Result, StreamId, check_bounds,
};

/// Host memory that a device copies from and to by itself, so that copies run beside the program:
/// [`Buffer::copy_from_pinned`](crate::Buffer::copy_from_pinned) and
/// [`Buffer::copy_to_pinned`](crate::Buffer::copy_to_pinned) return at once.
///
/// Host and device never have the same bytes at once: [`bytes`](Self::bytes) waits for copies into it,
/// [`bytes_mut`](Self::bytes_mut) for all copies, and copies on several streams come one after the other where one of
/// them writes. Dropped, also with copies under way, its memory goes back to the cache when they are over.
#[must_use]
pub struct PinnedBuffer<B: Backend> {
    allocator: &'static CachingHostAllocator<B>,
    /// None: of zero bytes.
    block: Option<Block>,
    len: u64,
    /// Where copies into it end.
    writes: UseEnds,
    /// Whether these were waited for.
    settled: AtomicBool,
    shared: Mutex<Shared>,
}

/// What those may add who have a buffer only to read.
struct Shared {
    /// Where copies out of it end.
    reads: UseEnds,
    /// Streams that use it in a way that was not seen from here: until their event is recorded.
    noted: Vec<StreamId>,
}

/// Alignment for elements of any usual type.
#[repr(align(64))]
struct Aligned;

const BEING_CAPTURED: DriverError = DriverError {
    kind: DriverErrorKind::Unsupported,
    call: "is_capturing",
    code: -1,
    name: "work of the stream is being captured as a graph, which pinned memory cannot be part of",
};

impl<B: Backend> PinnedBuffer<B> {
    pub(super) fn new(allocator: &'static CachingHostAllocator<B>, block: Option<Block>, len: u64) -> Self {
        let shared = Mutex::new(Shared { reads: Vec::new(), noted: Vec::new() });
        Self { allocator, block, len, writes: Vec::new(), settled: AtomicBool::new(true), shared }
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that it is pinned for.
    pub fn device(&self) -> Device {
        self.allocator.streams.owner.device
    }

    /// Where it lies; `None`: it has no bytes. For work of other libraries, whose streams are to be noted with
    /// [`record_use`](Self::record_use).
    pub fn ptr(&self) -> Option<NonNull<u8>> {
        self.block.as_ref().map(Block::start)
    }

    /// Bytes of its block: `len` rounded up.
    pub fn block_size(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.size().get())
    }

    /// Notes that work of another library on `stream` uses it: its memory is not reused before what the stream has been
    /// given when the buffer is dropped is done. Copies by the safe interface are noted by themselves. PyTorch:
    /// `record_event` of the host allocator.
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

    /// Its bytes, after waiting for the copies into it that are under way; for no later work of their streams. And for all
    /// that noted streams were given so far.
    ///
    /// # Errors
    /// [`Error::Driver`] where waiting failed, or a copy: then the bytes are not what they should be; for a noted stream whose
    /// work is being captured as a graph, which cannot be waited for.
    pub fn bytes(&self) -> Result<&[u8]> {
        if !self.settled.load(Ordering::Acquire) {
            for (_, event) in &self.writes {
                self.allocator
                    .streams
                    .owner
                    .device
                    .driver_result(self.allocator.pending.events.wait_on_host(*event))?;
            }
            self.settled.store(true, Ordering::Release);
        }
        self.allocator.streams.owner.device.driver_result(self.wait_for_noted())?;
        // SAFETY: The block has `len` bytes or more, initialised, and is this buffer's alone. Nothing writes to them while
        // they are borrowed: no copy into it is under way, and to start one takes the buffer mutably.
        Ok(unsafe { slice::from_raw_parts(self.start().as_ptr(), self.len as usize) })
    }

    /// Its bytes to write, after waiting for every use of it that is under way: copies, and what noted streams were given
    /// so far.
    ///
    /// # Errors
    /// [`Error::Driver`] where waiting failed, or a copy, which is told once; for a noted stream whose work is being
    /// captured as a graph, which cannot be waited for.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let waited = self.wait();
        self.allocator.streams.owner.device.driver_result(waited)?;
        // SAFETY: As in `bytes`; no use is under way at all, and the buffer is borrowed mutably.
        Ok(unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.len as usize) })
    }

    /// Its bytes as elements; waits as [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// [`Error::ElementSize`] where the length is no whole number of elements; as [`bytes`](Self::bytes).
    pub fn slice<T: AnyBitPattern>(&self) -> Result<&[T]> {
        let not_whole = Error::ElementSize { size: self.len, element: size_of::<T>() };
        bytemuck::try_cast_slice(self.bytes()?).map_err(|_| not_whole)
    }

    /// Its bytes as elements to write; waits as [`bytes_mut`](Self::bytes_mut).
    ///
    /// # Errors
    /// [`Error::ElementSize`] where the length is no whole number of elements; as [`bytes_mut`](Self::bytes_mut).
    pub fn slice_mut<T: AnyBitPattern + NoUninit>(&mut self) -> Result<&mut [T]> {
        let not_whole = Error::ElementSize { size: self.len, element: size_of::<T>() };
        bytemuck::try_cast_slice_mut(self.bytes_mut()?).map_err(|_| not_whole)
    }

    /// A range for a copy of this device instance; `None`: no bytes.
    pub(crate) fn part(&self, range: &Range<u64>, instance: Instance) -> Result<Option<NonNull<u8>>> {
        self.allocator.streams.owner.check(instance, "the pinned buffer")?;
        let (offset, len) = (range.start, range.end.wrapping_sub(range.start));
        check_bounds(offset, len, self.len)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: `offset` is less than `len`, so it lies in the block.
        Ok(self.ptr().map(|start| unsafe { start.add(offset as usize) }))
    }

    /// Makes the stream ready for a copy out of it: behind the copies into it on other streams. Then comes the copy, and
    /// [`reading`](Self::reading).
    pub(crate) fn before_read(&self, stream: Stream<B>) -> Result<()> {
        let writes = if self.settled.load(Ordering::Acquire) { &[] } else { &*self.writes };
        self.allocator.streams.owner.device.driver_result(self.allocator.order_behind(writes, stream.id()))
    }

    /// A copy out of it was just submitted to the stream.
    pub(crate) fn reading(&self, stream: Stream<B>) -> DriverResult<()> {
        // Taken out while it is recorded: the driver is not called under the lock.
        let earlier = take_of(&mut lock(&self.shared).reads, stream);
        let event = self.copy_end(earlier, stream)?;
        lock(&self.shared).reads.push((stream.id(), event));
        Ok(())
    }

    /// Makes the stream ready for a copy into it: behind all copies on other streams. Then comes the copy, and
    /// [`writing`](Self::writing).
    pub(crate) fn before_write(&mut self, stream: Stream<B>) -> Result<()> {
        let uses = get_mut(&mut self.shared).reads.iter().chain(&self.writes);
        let ordered = self.allocator.order_behind(uses, stream.id());
        self.allocator.streams.owner.device.driver_result(ordered)
    }

    /// A copy into it was just submitted to the stream.
    pub(crate) fn writing(&mut self, stream: Stream<B>) -> DriverResult<()> {
        let earlier = take_of(&mut self.writes, stream);
        let event = self.copy_end(earlier, stream)?;
        self.writes.push((stream.id(), event));
        *self.settled.get_mut() = false;
        Ok(())
    }

    /// Records an event, that of an earlier copy if there is one, right behind the copy that was just submitted. Where the
    /// driver does not, the copy is waited for before the error is told: nothing else would know of it. Where it does not do
    /// that either, the stream is noted.
    fn copy_end(&self, earlier: Option<EventNumber>, stream: Stream<B>) -> DriverResult<EventNumber> {
        let recorded = self.allocator.pending.events.record_again(earlier, stream.id());
        if recorded.is_err() && self.allocator.streams.backend.synchronize(stream.native()).is_err() {
            lock(&self.shared).note(stream.id());
        }
        recorded
    }

    /// Waits for what the noted streams were given so far. They stay noted: they may be given more.
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
            shared.reads.push((user, allocator.noted_end(user)?));
            shared.noted.pop();
        }
        let mut result = Ok(());
        for uses in [&mut self.writes, &mut shared.reads] {
            while let Some((user, event)) = uses.pop() {
                match allocator.pending.events.wait_on_host(event) {
                    Ok(()) => allocator.pending.events.take_back(event),
                    // What failed is over.
                    failed if matches!(allocator.pending.events.is_over(event), Ok(true)) => {
                        result = result.and(failed);
                    }
                    failed => {
                        uses.push((user, event));
                        return failed;
                    }
                }
            }
        }
        result
    }

    /// Where the bytes start, aligned for any element also where there are none.
    fn start(&self) -> NonNull<u8> {
        self.ptr().unwrap_or(NonNull::<Aligned>::dangling().cast())
    }
}

impl<B: Backend> CachingHostAllocator<B> {
    /// An event behind what a noted stream was given so far.
    fn noted_end(&self, user: StreamId) -> DriverResult<EventNumber> {
        self.pending.events.record(user)?.ok_or(BEING_CAPTURED)
    }

    /// Makes later work of the stream wait for these uses on other streams. Fails while its work is captured: a captured copy
    /// would be done when the graph is launched, by calls that are not seen from here.
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
}

/// Takes out the event of this stream.
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
        let Shared { reads, noted } = get_mut(&mut self.shared);
        uses.append(reads);
        self.allocator.free(block, uses, std::mem::take(noted));
    }
}

impl<B: Backend> fmt::Debug for PinnedBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer {{ {}, {} bytes at {:?} }}", self.device(), self.len, self.ptr())
    }
}
