//! Freed blocks that other streams still use, until their events are complete.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::CachingAllocator;
use super::account::NoRoom;
use super::arena::{Arena, Users};
use super::block::BlockId;
use super::event_queues::{EventQueues, PendingBlock};
use super::in_flight::InFlight;
use super::ledger::Books;
use super::policy::Request;
use crate::backend::{Backend, DevicePtr, DriverResult};
use crate::event::EventPool;
use crate::stream::Stream;
use crate::sync::{Guard, lock, try_lock};
use crate::types::{Result, StreamId};

/// The freed blocks that other streams still use.
pub(super) struct PendingFrees<B: Backend> {
    pub(super) events: EventPool<B>,
    /// Uses not known to be over: the warm path looks only here.
    count: AtomicUsize,
    /// Those that have come since somebody went through the queues.
    arrived: Mutex<Vec<Arrived<B::Event>>>,
    /// Frees that are on their way there.
    pub(super) recording: InFlight,
    /// Held by the one thread that goes through them, driver calls included. An allocation that finds them held goes on
    /// without: only who must wait for memory anyway waits for it.
    queues: Mutex<Queues<B::Event>>,
}

/// A use of a freed block; without an event, if the driver would not record one.
struct Arrived<E> {
    user: StreamId,
    event: Option<E>,
    block: PendingBlock,
}

struct Queues<E> {
    recorded: EventQueues<E>,
    /// Uses whose event the driver would not record; tried again each time.
    unrecorded: VecDeque<(StreamId, PendingBlock)>,
    /// Empty. Its memory is used in turn with that of those who have arrived.
    arriving: Vec<Arrived<E>>,
}

impl<B: Backend> PendingFrees<B> {
    pub(super) fn new(events: EventPool<B>) -> Self {
        let queues =
            Queues { recorded: EventQueues::new(), unrecorded: VecDeque::new(), arriving: Vec::new() };
        Self {
            events,
            count: AtomicUsize::new(0),
            arrived: Mutex::new(Vec::new()),
            recording: InFlight::default(),
            queues: Mutex::new(queues),
        }
    }

    /// Takes those in that have arrived.
    fn take_in(&self, queues: &mut Queues<B::Event>) {
        std::mem::swap(&mut *lock(&self.arrived), &mut queues.arriving);
        for Arrived { user, event, block } in queues.arriving.drain(..) {
            match event {
                Some(event) => queues.recorded.push_back(user, event, block),
                None => queues.unrecorded.push_back((user, block)),
            }
        }
    }
}

impl<B: Backend> CachingAllocator<B> {
    /// A freed block waits for these streams. PyTorch: `insert_events`.
    pub(super) fn await_uses(&self, arena: StreamId, block: BlockId, users: &Users) {
        let block = PendingBlock { arena, block };
        self.pending.count.fetch_add(users.count(), Ordering::Relaxed);
        for user in users.iter() {
            let event = self.record_use_end(user).ok().flatten();
            lock(&self.pending.arrived).push(Arrived { user, event, block });
        }
    }

    /// Frees the blocks whose events are complete, without waiting, unless work of this stream is being captured:
    /// drivers refuse the question then. PyTorch: `process_events`.
    #[inline(always)]
    pub(super) fn free_what_is_done(&self, stream: Stream<B>) -> Result<()> {
        if self.pending.count.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.poll_events(stream) }
    }

    #[inline(never)]
    fn poll_events(&self, stream: Stream<B>) -> Result<()> {
        let Some(mut queues) = try_lock(&self.pending.queues) else { return Ok(()) };
        if self.is_capturing(stream)? {
            return Ok(());
        }
        self.take_events(&mut queues, |event| self.backend.is_complete(event))
    }

    /// Waits for all events and frees their blocks. PyTorch: `synchronize_and_free_events`.
    pub(super) fn wait_for_all(&self) -> Result<()> {
        self.ledger.lock().statistics.num_sync_all_streams += 1;
        self.pending.recording.wait();
        self.take_events(&mut lock(&self.pending.queues), |event| self.wait_until_over(event).map(|()| true))
    }

    /// Waits for the event. Whether its work failed is for those to know who wait for the work.
    fn wait_until_over(&self, event: &B::Event) -> DriverResult<()> {
        self.backend.wait_host(event).or_else(|error| match self.backend.is_complete(event) {
            Ok(true) => Ok(()),
            _ => Err(error),
        })
    }

    /// Goes through the queues, each from its oldest event to the first that is not over.
    fn take_events(
        &self,
        queues: &mut Queues<B::Event>,
        is_over: impl Fn(&B::Event) -> DriverResult<bool>,
    ) -> Result<()> {
        self.take_in_and_record(queues)?;
        let taken = queues.recorded.iter_mut().try_for_each(|queue| self.take_events_of(queue, &is_over));
        taken.map_err(|error| self.driver_error(error))
    }

    fn take_events_of(
        &self,
        queue: &mut VecDeque<(B::Event, PendingBlock)>,
        is_over: impl Fn(&B::Event) -> DriverResult<bool>,
    ) -> DriverResult<()> {
        while let Some((event, _)) = queue.front() {
            if !is_over(event)? {
                break;
            }
            if let Some((event, block)) = queue.pop_front() {
                self.pending.events.put_back(event);
                self.use_over(block);
            }
        }
        Ok(())
    }

    /// Makes the stream wait on the device for the uses of the smallest pending block of its own that can serve the
    /// request, and frees that block. Whether there was one.
    pub(super) fn reuse_by_device_wait(&self, request: &Request, stream: Stream<B>) -> Result<bool> {
        let Some(mut queues) = try_lock(&self.pending.queues) else { return Ok(false) };
        self.take_in_and_record(&mut queues)?;
        let Some(chosen) = self.smallest_pending(&queues, request, stream.id()) else { return Ok(false) };
        let mut uses = queues.recorded.take_all_of(chosen).into_iter();
        while let Some((user, event)) = uses.next() {
            // An event that the driver will not wait for on the device is waited for here instead.
            let ordered =
                self.backend.wait(stream.native(), &event).or_else(|_| self.wait_until_over(&event));
            if let Err(error) = ordered {
                for (user, event) in std::iter::once((user, event)).chain(uses) {
                    queues.recorded.push_back(user, event, chosen);
                }
                return Err(self.driver_error(error));
            }
            self.pending.events.put_back(event);
            self.use_over(chosen);
        }
        Ok(true)
    }

    fn smallest_pending(
        &self,
        queues: &Queues<B::Event>,
        request: &Request,
        stream: StreamId,
    ) -> Option<PendingBlock> {
        let arena = self.arena(stream).lock();
        let own = queues.recorded.blocks().filter(|block| block.arena == stream);
        let fitting = own.filter(|pending| arena.could_serve(pending.block, request));
        fitting.min_by_key(|pending| arena.size_of(pending.block))
    }

    /// Takes those in that have arrived, and has the driver record for those for which it would not before.
    fn take_in_and_record(&self, queues: &mut Queues<B::Event>) -> Result<()> {
        self.pending.take_in(queues);
        for _ in 0..queues.unrecorded.len() {
            let Some((user, block)) = queues.unrecorded.pop_front() else { break };
            match self.record_use_end(user) {
                Ok(Some(event)) => queues.recorded.push_back(user, event, block),
                Ok(None) => queues.unrecorded.push_back((user, block)),
                Err(error) => {
                    queues.unrecorded.push_front((user, block));
                    return Err(self.driver_error(error));
                }
            }
        }
        Ok(())
    }

    /// An event behind what `user` was given so far, which includes its use of a block; `None` while the work of `user` is
    /// being captured: then there can be none.
    fn record_use_end(&self, user: StreamId) -> DriverResult<Option<B::Event>> {
        match self.streams.get(user) {
            Some(stream) => self.pending.events.record_use_end(stream),
            None => Ok(None), // every number is of a stream
        }
    }

    fn is_capturing(&self, stream: Stream<B>) -> Result<bool> {
        self.backend.is_capturing(stream.native()).map_err(|error| self.driver_error(error))
    }

    fn use_over(&self, PendingBlock { arena: stream, block }: PendingBlock) {
        self.pending.count.fetch_sub(1, Ordering::Relaxed);
        let mut arena = self.arena(stream).lock();
        let clock = self.clock(arena.pool_of(block));
        if !(arena.plain && arena.use_completed(block, clock).is_ok()) {
            self.use_over_attended(arena, block, clock);
        }
    }

    #[cold]
    fn use_over_attended(&self, mut arena: Guard<'_, Arena<B::Ptr>>, block: BlockId, clock: u32) {
        let (stream, caching) = (arena.stream, arena.config.caching);
        let complete = |arena: &mut Arena<B::Ptr>, books: &mut Books| {
            let (ptr, requested) = arena.place_of(block);
            let free = arena.use_completed(block, clock)?;
            if let Some(recorder) = books.recorder.as_mut().filter(|_| free) {
                recorder.free_completed(ptr.trace_address(), requested, stream);
            }
            Ok(free)
        };
        let completed = complete(&mut arena, &mut self.ledger.lock());
        drop(arena);
        let free = completed.unwrap_or_else(|NoRoom| self.settled(stream, complete));
        if free && !caching {
            self.release_uncached(self.arena(stream));
        }
    }
}
