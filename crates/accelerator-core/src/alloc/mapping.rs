//! Expandable segments grow and shrink: where the books of an arena and the pages of the driver come together.

use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::CachingAllocator;
use super::arena::{Arena, Taken};
use super::block::BlockId;
use super::config::{AllocatorConfig, Policy};
use super::expandable::{PageRange, Room};
use super::ladder::{Asked, Grown};
use super::ledger::Books;
use super::pages::Reservations;
use super::policy::TOO_LARGE;
use crate::backend::{Backend, DevicePtr, DriverResult};
use crate::sync::{OwnedLock, lock, try_lock};
use crate::types::{DriverError, DriverErrorKind, OutOfMemoryCause, PoolKind, Result, StreamId};
use crate::virtual_memory::VirtualMemory;

/// What is to be done for a request next.
enum Next<P> {
    Done(Taken<P>),
    Map(PageRange),
    Reserve,
}

impl<B: Backend> CachingAllocator<B> {
    /// Maps pages until a request has room, and takes it there. Pages that were mapped before one was refused stay, free. What
    /// is mapped uses up the request's charge. PyTorch: `try_allocate_expandable_block`.
    pub(super) fn expand(
        &self,
        memory: &dyn VirtualMemory<B::Ptr>,
        asked: &Asked<B>,
        charge: &mut u64,
    ) -> Result<Grown<B::Ptr>> {
        let stream = asked.stream.id();
        let mut reservations = match try_lock(self.reservations(stream)) {
            Some(reservations) => reservations,
            None => {
                let reservations = lock(self.reservations(stream));
                // What another thread has mapped meanwhile may do.
                if let Some(taken) = self.search_again(asked) {
                    return Ok(Grown::Taken(taken));
                }
                reservations
            }
        };
        let mut mapped = None;
        loop {
            let (done, cause) = match self.enter_and_look(mapped.take(), asked, charge) {
                Next::Done(taken) => return Ok(Grown::Taken(taken)),
                Next::Map(range) => {
                    let (len, done) = self.growing.take(|| reservations.map(memory, range), ran_out);
                    mapped = (len > 0).then_some(PageRange { len, ..range });
                    (done, OutOfMemoryCause::Device)
                }
                Next::Reserve => {
                    let Some((len, page)) = self.reservation_for(memory, asked) else {
                        return Ok(Grown::Refused(OutOfMemoryCause::Device));
                    };
                    let enter = |at| {
                        let created = self.ledger.lock().segment_numbered();
                        let mut arena = self.arena(stream).lock();
                        arena.add_expandable(at, len.get(), created, asked.request.pool, page)
                    };
                    (reservations.reserve(memory, len, page, enter), OutOfMemoryCause::AddressSpace)
                }
            };
            let Err(error) = done else { continue };
            if let Some(range) = mapped {
                // What the driver would not take back is free memory.
                self.settled(self.arena(stream).lock(), |arena, books| {
                    enter(arena, books, range, asked, charge);
                    Ok(())
                });
            }
            return match error.kind {
                DriverErrorKind::OutOfMemory => Ok(Grown::Refused(cause)),
                _ => Err(self.driver_error(error)),
            };
        }
    }

    /// Enters what was mapped into the books, and takes the request where there is room for it.
    fn enter_and_look(&self, mapped: Option<PageRange>, asked: &Asked<B>, charge: &mut u64) -> Next<B::Ptr> {
        let Asked { request, stream, context, .. } = asked;
        let clock = self.clock(request.pool);
        self.settled(self.arena(stream.id()).lock(), |arena, books| {
            let grown = mapped.map(|range| enter(arena, books, range, asked, charge));
            let room = grown.filter(|grown| arena.size_of(*grown) >= request.size).map(Room::Free);
            match room.unwrap_or_else(|| arena.room_for(request)) {
                Room::Free(block) => {
                    let fit = arena.config.fit_of_block(request, arena.size_of(block));
                    let taken = arena.take_block::<true>(block, request, fit, clock)?;
                    if let Some(recorder) = &mut books.recorder {
                        let address = taken.ptr.trace_address();
                        recorder.allocated(address, request.requested, stream.id(), context.clone());
                    }
                    Ok(Next::Done(taken))
                }
                Room::Unmapped(range) => Ok(Next::Map(range)),
                Room::Nowhere => Ok(Next::Reserve),
            }
        })
    }

    /// Bytes of the next reservation and of its pages; `None`: the request would not fit even there. PyTorch reserves 9/8 of the
    /// device's memory, since pages may be unmapped at the start while others are mapped at the end.
    fn reservation_for(
        &self,
        memory: &dyn VirtualMemory<B::Ptr>,
        asked: &Asked<B>,
    ) -> Option<(NonZeroU64, NonZeroU64)> {
        let page = self.arena(asked.stream.id()).lock().config.page(asked.request.pool);
        let page = page.checked_next_multiple_of(memory.granularity().get())?;
        let total = self.backend.properties().total_memory.min(TOO_LARGE);
        let len = (total + total / 8).checked_next_multiple_of(page)?;
        (len >= asked.request.size).then_some((NonZeroU64::new(len)?, NonZeroU64::new(page)?))
    }

    /// Gives the whole free pages of an arena's pool back to the driver, and reservations that then have none. With an error,
    /// what is still mapped is free as before.
    ///
    /// Nothing while work of the stream is being captured: it could not be waited for.
    pub(super) fn unmap_free(&self, arena: &OwnedLock<Arena<B::Ptr>>, pool: PoolKind) -> Result<()> {
        let id = arena.lock().stream;
        let (Some(memory), Some(reservations)) =
            (self.backend.virtual_memory(), self.reservations.get(id.get()))
        else {
            return Ok(());
        };
        let mut reservations = lock(reservations);
        let mut held = arena.lock();
        let ranges = held.remove_free_pages(pool);
        if ranges.is_empty() {
            return Ok(());
        }
        let _returning = self.returning.begin();
        if let Some(recorder) = &mut self.ledger.lock().recorder {
            for range in &ranges {
                recorder.pages_unmapped(held.address_of(*range).trace_address(), range.len, id);
            }
        }
        drop(held);
        let (may_unmap, mut result) = match self.wait_for_work(id) {
            Ok(over) => (over, Ok(())),
            Err(error) => (false, Err(error)),
        };
        for range in ranges.iter().copied() {
            let mut unmapped = 0;
            if may_unmap && result.is_ok() {
                (unmapped, result) = reservations.unmap(memory, range);
            }
            let mut arena = arena.lock();
            let mut books = self.ledger.lock();
            if unmapped > 0 {
                books.pages_unmapped(pool, unmapped);
            }
            if unmapped < range.len {
                let (offset, len) = (range.offset + unmapped, range.len - unmapped);
                let kept = PageRange { offset, len, ..range };
                arena.add_pages(kept);
                if let Some(recorder) = &mut books.recorder {
                    recorder.pages_mapped(arena.address_of(kept).trace_address(), kept, id, None);
                }
            }
        }
        for PageRange { segment, .. } in ranges {
            if arena.lock().remove_unmapped(segment) {
                reservations.release(memory, segment);
            }
        }
        result.map_err(|error| self.driver_error(error))
    }

    /// Waits until the work of a stream is over that it was given so far: drivers unmap without waiting. Errors of the work are
    /// for those who wait for the work. False: it is being captured, so it cannot be waited for.
    fn wait_for_work(&self, stream: StreamId) -> DriverResult<bool> {
        let Some(event) = self.record_use_end(stream)? else { return Ok(false) };
        self.wait_until_over(&event)?;
        self.pending.put_back(event);
        Ok(true)
    }

    fn reservations(&self, stream: StreamId) -> &Mutex<Reservations<B::Ptr>> {
        self.reservations.get_or_init(stream.get(), || Mutex::new(Reservations::new()))
    }

    /// The settings as they are in force here: without virtual memory there are no expandable segments, and what is not kept
    /// needs none, nor does the policy `compact`.
    pub(super) fn in_force(&self, config: &AllocatorConfig) -> AllocatorConfig {
        in_force(self.backend, config)
    }

    /// Tells once, as PyTorch does, that expandable segments are asked for in vain. Called under no lock, since who listens is
    /// the user.
    pub(super) fn tell_what_is_missing(&self) {
        if self.backend.virtual_memory().is_none()
            && !self.has_told.load(Ordering::Relaxed)
            && self.config().expandable_segments
            && !self.has_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "expandable_segments:True has no effect on {}: {} offers no virtual memory, so segments keep their size",
                self.owner.device,
                self.backend.properties().name,
            );
        }
    }
}

pub(super) fn in_force<B: Backend>(backend: &B, config: &AllocatorConfig) -> AllocatorConfig {
    let policy = if config.caching { config.policy } else { Policy::Pytorch };
    let wants_expandable = config.expandable_segments && policy == Policy::Pytorch;
    let expandable_segments = wants_expandable && config.caching && backend.virtual_memory().is_some();
    AllocatorConfig { expandable_segments, policy, ..*config }
}

/// Whether nothing was mapped, for lack of memory.
fn ran_out((mapped, done): &(u64, DriverResult<()>)) -> bool {
    let lacks_memory = |error: &DriverError| error.kind == DriverErrorKind::OutOfMemory;
    *mapped == 0 && done.as_ref().is_err_and(lacks_memory)
}

/// Enters mapped pages into the books: the free block that they are part of.
fn enter<B: Backend>(
    arena: &mut Arena<B::Ptr>,
    books: &mut Books,
    range: PageRange,
    asked: &Asked<B>,
    charge: &mut u64,
) -> BlockId {
    let charged = range.len.min(*charge);
    *charge -= charged;
    books.refund(charged);
    books.pages_mapped(asked.request.pool, range.len);
    if let Some(recorder) = &mut books.recorder {
        let address = arena.address_of(range).trace_address();
        recorder.pages_mapped(address, range, asked.stream.id(), asked.context.clone());
    }
    arena.add_pages(range)
}
