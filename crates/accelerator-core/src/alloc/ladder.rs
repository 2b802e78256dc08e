//! What happens when no free block serves a request: one function per rung, tried in turn.

use super::arena::{Arena, Taken};
use super::history::{HistoryAction, HistoryContext};
use super::in_flight::Step;
use super::ledger::Books;
use super::policy::{Request, share};
use super::{CachingAllocator, segment};
use crate::backend::{Backend, DevicePtr};
use crate::stream::Stream;
use crate::sync::Guard;
use crate::types::{DriverError, DriverErrorKind, OutOfMemoryCause, Result, StreamId};
use crate::virtual_memory::VirtualMemory;

/// A request that is climbing.
pub(super) struct Asked<B: Backend> {
    pub(super) request: Request,
    /// Bytes to take from the driver if no block is found.
    pub(super) segment: u64,
    pub(super) stream: Stream<B>,
    /// Whose arena it is to be served from.
    pub(super) arena: StreamId,
    /// Where it comes from, if that is recorded.
    pub(super) context: Option<HistoryContext>,
    /// Where new memory comes from.
    pub(super) source: Source<B::Ptr>,
}

/// Where new memory comes from.
pub(super) enum Source<P: 'static> {
    /// Segments of the size that is asked for.
    Segments,
    /// Expandable segments, whose pages this maps.
    Pages(&'static dyn VirtualMemory<P>),
    /// Chunks of the policy `compact`, which this maps; `None`: nothing does, and they are segments.
    Chunks(Option<&'static dyn VirtualMemory<P>>),
}

impl<B: Backend> Asked<B> {
    /// Tells the history, if one is kept, what the request was given.
    pub(super) fn record(&self, books: &mut Books, taken: &Taken<B::Ptr>) {
        if let Some(recorder) = &mut books.recorder {
            let (address, stream) = (taken.ptr.trace_address(), self.stream.id());
            recorder.allocated(address, self.request.requested, stream, self.context.clone());
        }
    }
}

/// What asking the driver for a segment led to.
pub(super) enum Grown<P> {
    Taken(Taken<P>),
    Refused(OutOfMemoryCause),
}

impl<B: Backend> CachingAllocator<B> {
    /// What becomes of a request that no free block of the arena serves, while nothing is to be done beside the books.
    #[cold]
    #[inline(never)]
    pub(super) fn after_plain_miss(
        &self,
        arena: Guard<'_, Arena<B::Ptr>>,
        request: Request,
        stream: Stream<B>,
    ) -> Result<Taken<B::Ptr>> {
        let asked = self.asked(&arena, request, stream, None);
        drop(arena);
        self.after_miss(&asked)
    }

    /// The request with what the ladder needs to know beside it.
    pub(super) fn asked(
        &self,
        arena: &Arena<B::Ptr>,
        request: Request,
        stream: Stream<B>,
        context: Option<HistoryContext>,
    ) -> Asked<B> {
        let source = match self.backend.virtual_memory() {
            memory if arena.compact.is_some() => Source::Chunks(memory),
            Some(memory) if arena.config.expandable_segments => Source::Pages(memory),
            _ => Source::Segments,
        };
        let segment = match source {
            Source::Chunks(Some(driver)) => request.size.next_multiple_of(driver.granularity().get()),
            _ => arena.config.segment(&request, self.backend.properties().largest_allocation),
        };
        Asked { request, segment, stream, arena: arena.stream, context, source }
    }

    /// Climbs the ladder, as the last step of a call.
    #[cold]
    pub(super) fn after_miss(&self, asked: &Asked<B>) -> Result<Taken<B::Ptr>> {
        let taken = self.climb(asked);
        self.sweep();
        self.tell_what_is_missing();
        taken
    }

    /// The ladder. PyTorch: `DeviceCachingAllocator::malloc` behind the first `get_free_block`.
    fn climb(&self, asked: &Asked<B>) -> Result<Taken<B::Ptr>> {
        let largest = self.backend.properties().largest_allocation;
        let size = asked.request.size;
        let is_hopeless = match asked.source {
            Source::Segments | Source::Chunks(None) => size > largest,
            Source::Chunks(Some(_)) => size > self.backend.properties().total_memory,
            Source::Pages(_) => false,
        };
        if is_hopeless {
            // No rung makes the driver give as much at once: the cache is left alone.
            let grown = self.grow(asked)?;
            return self.taken(grown, asked);
        }
        if let Some(taken) = self.ask_callbacks(asked) {
            return Ok(taken);
        }
        if let Some(taken) = self.reuse_pending(asked)? {
            return Ok(taken);
        }
        self.collect_garbage();
        if let Grown::Taken(taken) = self.grow(asked)? {
            return Ok(taken);
        }
        if self.release_oversize(&asked.request, asked.stream)
            && let Grown::Taken(taken) = self.grow(asked)?
        {
            return Ok(taken);
        }
        let grown = self.release_all_and_grow(asked)?;
        self.taken(grown, asked)
    }

    /// The end of the climb.
    fn taken(&self, grown: Grown<B::Ptr>, asked: &Asked<B>) -> Result<Taken<B::Ptr>> {
        match grown {
            Grown::Taken(taken) => Ok(taken),
            Grown::Refused(cause) => Err(self.out_of_memory(asked, cause)),
        }
    }

    /// Rung 1: callbacks that free memory, and the cache once more.
    fn ask_callbacks(&self, asked: &Asked<B>) -> Option<Taken<B::Ptr>> {
        self.hooks.free_memory().then(|| self.search_again(asked)).flatten()
    }

    /// Rung 2, only with `device_side_reuse`: a block that another stream still uses, behind a wait on the device.
    /// Waits for no other event than those that the block needs, and for none on the host.
    fn reuse_pending(&self, asked: &Asked<B>) -> Result<Option<Taken<B::Ptr>>> {
        if !self.arena(asked.arena).lock().config.device_side_reuse {
            return Ok(None);
        }
        while self.reuse_by_device_wait(asked)? {
            if let Some(taken) = self.search_again(asked) {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Rung 4: a segment from the driver. PyTorch: `alloc_block`.
    fn grow(&self, asked: &Asked<B>) -> Result<Grown<B::Ptr>> {
        let grown = match asked.source {
            Source::Chunks(driver) => self.grow_compact(driver, asked)?,
            Source::Segments | Source::Pages(_) => match self.charge(asked, asked.segment) {
                Ok(asking) => {
                    let grown = self.ask_driver(asked)?;
                    drop(asking); // before observers run: what they ask for may wait for it
                    grown
                }
                Err(cause) => Grown::Refused(cause),
            },
        };
        match grown {
            Grown::Refused(
                cause @ (OutOfMemoryCause::Rejected | OutOfMemoryCause::AllocationTooLarge { .. }),
            ) => Err(self.out_of_memory(asked, cause)),
            grown => Ok(grown),
        }
    }

    /// Sets bytes aside that the driver is to be asked for, for as long as the step is open; else why they are not to be had.
    pub(super) fn charge(&self, asked: &Asked<B>, bytes: u64) -> Result<Step<'_>, OutOfMemoryCause> {
        let mut books = self.ledger.lock();
        if !books.charge(bytes) {
            return Err(books.limit().map_or(OutOfMemoryCause::Device, |_| OutOfMemoryCause::Limit));
        }
        let asking = self.asking.begin();
        drop(books);
        if self.rejects_ahead_of_driver(asked, bytes) {
            return Err(OutOfMemoryCause::Rejected);
        }
        Ok(asking)
    }

    /// Asks for what is charged, and takes the charge back where there is none.
    fn ask_driver(&self, asked: &Asked<B>) -> Result<Grown<B::Ptr>> {
        match asked.source {
            Source::Pages(memory) => self.expand_charged(memory, asked),
            Source::Segments | Source::Chunks(_) => self.ask_for_segment(asked),
        }
    }

    /// Expands a segment by what the request needs. Its pages are charged as they are mapped, so what is left of its own charge
    /// goes.
    fn expand_charged(&self, memory: &dyn VirtualMemory<B::Ptr>, asked: &Asked<B>) -> Result<Grown<B::Ptr>> {
        let mut charge = asked.segment;
        let grown = self.expand(memory, asked, &mut charge);
        match grown {
            Ok(Grown::Refused(_)) => self.refused(charge, DriverErrorKind::OutOfMemory),
            _ => self.ledger.lock().refund(charge),
        }
        grown
    }

    fn ask_for_segment(&self, asked: &Asked<B>) -> Result<Grown<B::Ptr>> {
        match segment::take(self.backend, asked.segment) {
            Ok(ptr) => Ok(Grown::Taken(self.enter_segment(ptr, asked))),
            Err(error) => self.segment_refused(asked.segment, error).map(Grown::Refused),
        }
    }

    /// Takes the charge of a segment back that the driver would not give: why, for lack of memory; any other error is the caller's.
    pub(super) fn segment_refused(&self, size: u64, error: DriverError) -> Result<OutOfMemoryCause> {
        self.refused(size, error.kind);
        match error.kind {
            DriverErrorKind::OutOfMemory => Ok(OutOfMemoryCause::Device),
            DriverErrorKind::AllocationTooLarge => {
                let largest = self.backend.properties().largest_allocation;
                Ok(OutOfMemoryCause::AllocationTooLarge { largest, driver: error })
            }
            _ => Err(self.driver_error(error)),
        }
    }

    /// Takes a segment into the books, and the request off its start.
    fn enter_segment(&self, ptr: B::Ptr, asked: &Asked<B>) -> Taken<B::Ptr> {
        let Asked { request, segment, stream, context, .. } = asked;
        let clock = self.clock(request.pool);
        self.settled(self.arena(stream.id()).lock(), |arena, books| {
            let created = books.segment_made(&arena.config, request.pool, *segment);
            let taken = arena.add_segment(ptr, *segment, request, clock, created)?;
            if let Some(recorder) = &mut books.recorder {
                let address = ptr.trace_address();
                recorder.segment_made(address, *segment, stream.id(), context.clone());
                recorder.allocated(address, request.requested, stream.id(), context.clone());
            }
            Ok(taken)
        })
    }

    /// Takes a charge back for which the driver gave nothing.
    pub(super) fn refused(&self, segment: u64, why: DriverErrorKind) {
        let mut books = self.ledger.lock();
        books.refund(segment);
        let lacks_memory = matches!(why, DriverErrorKind::OutOfMemory | DriverErrorKind::AllocationTooLarge);
        if let Some(recorder) = books.recorder.as_mut().filter(|_| lacks_memory) {
            recorder.note(HistoryAction::Refused);
        }
    }

    /// With `throw_on_cudamalloc_oom`, whether a charged request exceeds the share of the device that the settings, as they
    /// are now, allow. Its charge is taken back then.
    fn rejects_ahead_of_driver(&self, asked: &Asked<B>, charged: u64) -> bool {
        let config = self.arena(asked.arena).lock().config;
        let allowed = share(config.memory_fraction, self.backend.properties().total_memory);
        let mut books = self.ledger.lock();
        let rejects = config.reject_ahead_of_driver && books.charged() > allowed;
        if rejects {
            books.refund(charged);
        }
        rejects
    }

    /// Rung 6: waits for all events, gives back every whole free segment, and asks the driver a last time. What other
    /// threads have charged and are refused does not count against it.
    fn release_all_and_grow(&self, asked: &Asked<B>) -> Result<Grown<B::Ptr>> {
        self.release_all()?;
        self.ledger.lock().statistics.num_alloc_retries += 1;
        match self.grow(asked)? {
            Grown::Refused(OutOfMemoryCause::Limit) => {
                self.asking.wait();
                self.grow(asked)
            }
            grown => Ok(grown),
        }
    }

    pub(super) fn search_again(&self, asked: &Asked<B>) -> Option<Taken<B::Ptr>> {
        self.search_attended(self.arena(asked.arena).lock(), asked)
    }
}
