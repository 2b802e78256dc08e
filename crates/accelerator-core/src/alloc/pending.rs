//! Freed blocks that other streams still use, until their events are complete.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::CachingAllocator;
use super::arena::Arena;
use super::block::BlockId;
use super::event_queues::{EventQueues, PendingBlock};
use super::in_flight::{InFlight, Step};
use super::ladder::Asked;
use super::ledger::Books;
use super::uses::Users;
use crate::backend::{Backend, DevicePtr, DriverResult};
use crate::event::EventPool;
use crate::stream::Stream;
use crate::sync::{Guard, OwnedLock, lock};
use crate::types::{Result, StreamId};

/// The freed blocks that other streams still use.
pub(super) struct PendingFrees<B: Backend> {
    events: EventPool<B>,
    /// Held by the one thread that goes through them, driver calls included, or for a moment by one that puts a use in. An
    /// allocation that finds them held goes on without: only who must wait for memory anyway waits for it.
    queues: OwnedLock<Queues<B::Event>>,
    /// Whether they may have any: the warm path looks here. Set by who holds them.
    queued: AtomicBool,
    /// Uses that have come while somebody else held the queues.
    arrived: Mutex<Vec<Arrived<B::Event>>>,
    /// Whether there are any: the warm path looks here too. Set by who holds those.
    has_arrived: AtomicBool,
    /// Frees that are on their way there.
    pub(super) recording: InFlight,
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

impl<E> Queues<E> {
    fn push(&mut self, Arrived { user, event, block }: Arrived<E>) {
        match event {
            Some(event) => self.recorded.push_back(user, event, block),
            None => self.unrecorded.push_back((user, block)),
        }
    }

    fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.unrecorded.is_empty()
    }
}

impl<B: Backend> PendingFrees<B> {
    pub(super) fn new(events: EventPool<B>) -> Self {
        let queues =
            Queues { recorded: EventQueues::new(), unrecorded: VecDeque::new(), arriving: Vec::new() };
        Self {
            events,
            queues: OwnedLock::new(queues),
            queued: AtomicBool::new(false),
            arrived: Mutex::new(Vec::new()),
            has_arrived: AtomicBool::new(false),
            recording: InFlight::default(),
        }
    }

    /// Takes those in that have arrived.
    #[inline(always)]
    fn take_in(&self, queues: &mut Queues<B::Event>) {
        if self.has_arrived.load(Ordering::Acquire) {
            self.take_in_arrived(queues);
        }
    }

    #[cold]
    fn take_in_arrived(&self, queues: &mut Queues<B::Event>) {
        let mut arriving = std::mem::take(&mut queues.arriving);
        let mut arrived = lock(&self.arrived);
        std::mem::swap(&mut *arrived, &mut arriving);
        self.has_arrived.store(false, Ordering::Relaxed);
        drop(arrived);
        arriving.drain(..).for_each(|arrived| queues.push(arrived));
        queues.arriving = arriving;
    }

    /// An event is no longer needed.
    pub(super) fn put_back(&self, event: B::Event) {
        self.events.put_back(event);
    }

    /// Puts a use into its queue; while somebody else goes through those, to where it will be found.
    fn enter(&self, arrived: Arrived<B::Event>) {
        if let Some(mut queues) = self.queues.try_lock() {
            self.queued.store(true, Ordering::Relaxed);
            self.take_in(&mut queues);
            queues.push(arrived);
        } else {
            let mut all = lock(&self.arrived);
            all.push(arrived);
            self.has_arrived.store(true, Ordering::Release);
        }
    }
}

impl<B: Backend> CachingAllocator<B> {
    /// A freed block waits for these streams. The step was begun before the arena was let go: until the events are in their queues
    /// the block is in no book. PyTorch: `insert_events`.
    pub(super) fn await_uses(&self, recording: Step<'_>, block: PendingBlock, users: &Users) {
        users.for_each(|user| {
            let event = self.record_use_end(user).ok().flatten();
            self.pending.enter(Arrived { user, event, block });
        });
        drop(recording);
    }

    /// Frees the blocks whose events are complete, without waiting, unless work of this stream is being captured:
    /// drivers refuse the question then. PyTorch: `process_events`.
    #[inline(always)]
    pub(super) fn free_what_is_done(&self, stream: Stream<B>) -> Result<()> {
        let PendingFrees { queued, has_arrived, .. } = &self.pending;
        match queued.load(Ordering::Relaxed) | has_arrived.load(Ordering::Relaxed) {
            true => self.poll_events(stream),
            false => Ok(()),
        }
    }

    #[inline(never)]
    fn poll_events(&self, stream: Stream<B>) -> Result<()> {
        let Some(mut queues) = self.pending.queues.try_lock() else { return Ok(()) };
        if self.is_capturing(stream)? {
            return Ok(());
        }
        self.take_events(&mut queues, |event| self.backend.is_complete(event))
    }

    /// Waits for all events and frees their blocks. PyTorch: `synchronize_and_free_events`.
    pub(super) fn wait_for_all(&self) -> Result<()> {
        self.ledger.lock().statistics.num_sync_all_streams += 1;
        self.pending.recording.wait();
        self.take_events(&mut self.pending.queues.lock(), |event| self.wait_until_over(event).map(|()| true))
    }

    /// Waits for the event. Whether its work failed is for those to know who wait for the work.
    pub(super) fn wait_until_over(&self, event: &B::Event) -> DriverResult<()> {
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
        self.pending.queued.store(!queues.is_empty(), Ordering::Relaxed);
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
    pub(super) fn reuse_by_device_wait(&self, asked: &Asked<B>) -> Result<bool> {
        let Some(mut queues) = self.pending.queues.try_lock() else { return Ok(false) };
        self.take_in_and_record(&mut queues)?;
        let Some(chosen) = self.smallest_pending(&queues, asked) else { return Ok(false) };
        let mut uses = queues.recorded.take_all_of(chosen).into_iter();
        while let Some((user, event)) = uses.next() {
            // An event that the driver will not wait for on the device is waited for here instead.
            let ordered =
                self.backend.wait(asked.stream.native(), &event).or_else(|_| self.wait_until_over(&event));
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

    fn smallest_pending(&self, queues: &Queues<B::Event>, asked: &Asked<B>) -> Option<PendingBlock> {
        let arena = self.arena(asked.arena).lock();
        let here = queues.recorded.blocks().filter(|block| block.arena == asked.arena);
        let own = here.filter(|pending| arena.stream_of(pending.block) == asked.stream.id());
        let fitting = own.filter(|pending| arena.could_serve(pending.block, &asked.request));
        fitting.min_by_key(|pending| arena.size_of(pending.block))
    }

    /// Takes those in that have arrived, and has the driver record for those for which it would not before.
    #[inline(always)]
    fn take_in_and_record(&self, queues: &mut Queues<B::Event>) -> Result<()> {
        self.pending.take_in(queues);
        self.pending.queued.store(true, Ordering::Relaxed); // until somebody has seen that there are none
        if queues.unrecorded.is_empty() { Ok(()) } else { self.record_again(queues) }
    }

    #[cold]
    fn record_again(&self, queues: &mut Queues<B::Event>) -> Result<()> {
        for _ in 0..queues.unrecorded.len() {
            let Some((user, block)) = queues.unrecorded.pop_front() else { break };
            match self.record_use_end(user) {
                Ok(event) => queues.push(Arrived { user, event, block }),
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
    pub(super) fn record_use_end(&self, user: StreamId) -> DriverResult<Option<B::Event>> {
        match self.streams.get(user) {
            Some(stream) => self.pending.events.record_use_end(stream),
            None => Ok(None), // every number is of a stream
        }
    }

    pub(super) fn is_capturing(&self, stream: Stream<B>) -> Result<bool> {
        self.backend.is_capturing(stream.native()).map_err(|error| self.driver_error(error))
    }

    fn use_over(&self, PendingBlock { arena: stream, block }: PendingBlock) {
        let mut arena = self.arena(stream).lock();
        let clock = self.clock(arena.pool_of(block));
        if arena.attended || arena.use_completed(block, clock).is_err() {
            self.use_over_attended(arena, block, clock);
        }
    }

    #[cold]
    fn use_over_attended(&self, arena: Guard<'_, Arena<B::Ptr>>, block: BlockId, clock: u32) {
        let (arena_of, stream, caching) = (arena.stream, arena.stream_of(block), arena.config.caching);
        let complete = |arena: &mut Arena<B::Ptr>, books: &mut Books| {
            let (ptr, requested) = arena.place_of(block);
            let free = arena.use_completed(block, clock)?;
            if let Some(recorder) = books.recorder.as_mut().filter(|_| free) {
                recorder.free_completed(ptr.trace_address(), requested, stream);
            }
            Ok(free)
        };
        let free = self.counted(arena, complete);
        if free && !caching {
            self.release_uncached(self.arena(arena_of));
        }
    }
}
