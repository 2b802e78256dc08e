//! Freed blocks that other streams still use, until their events are complete.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::CachingAllocator;
use super::block::BlockId;
use super::event_queues::{EventQueues, PendingBlock};
use super::in_flight::InFlight;
use super::policy::Request;
use crate::backend::{Backend, DevicePtr, DriverResult};
use crate::event::EventPool;
use crate::stream::Stream;
use crate::sync::{lock, try_lock};
use crate::types::{Result, StreamId};

/// The freed blocks that other streams still use.
pub(super) struct PendingFrees<B: Backend> {
    pub(super) events: EventPool<B>,
    /// Uses not known to be over: the warm path looks only here.
    count: AtomicUsize,
    queues: Mutex<Queues<B::Event>>,
    /// Frees that are on their way into the queues.
    pub(super) recording: InFlight,
    /// Held by the one thread that takes events off the queues, driver calls included. An allocation that finds it
    /// held goes on without: only who must wait for memory anyway waits for it.
    taking: Mutex<()>,
}

struct Queues<E> {
    recorded: EventQueues<E>,
    /// Uses whose event the driver would not record; tried again each time.
    unrecorded: VecDeque<(StreamId, PendingBlock)>,
}

impl<B: Backend> PendingFrees<B> {
    pub(super) fn new(events: EventPool<B>) -> Self {
        let queues = Queues { recorded: EventQueues::new(), unrecorded: VecDeque::new() };
        let (count, recording) = (AtomicUsize::new(0), InFlight::default());
        Self { events, count, queues: Mutex::new(queues), recording, taking: Mutex::new(()) }
    }

    fn queues(&self) -> MutexGuard<'_, Queues<B::Event>> {
        lock(&self.queues)
    }
}

impl<B: Backend> CachingAllocator<B> {
    /// A freed block waits for these streams. PyTorch: `insert_events`.
    pub(super) fn await_uses(&self, arena: StreamId, block: BlockId, users: Vec<StreamId>) {
        let block = PendingBlock { arena, block };
        self.pending.count.fetch_add(users.len(), Ordering::Relaxed);
        for user in users {
            if !matches!(self.record_use_end(user, block), Ok(true)) {
                self.pending.queues().unrecorded.push_back((user, block));
            }
        }
    }

    /// Frees the blocks whose events are complete, without waiting, unless work of this stream is being captured:
    /// drivers refuse the question then. PyTorch: `process_events`.
    pub(super) fn free_what_is_done(&self, stream: Stream<B>) -> Result<()> {
        if self.pending.count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let Some(_taking) = try_lock(&self.pending.taking) else { return Ok(()) };
        if self.is_capturing(stream)? {
            return Ok(());
        }
        self.take_events(|event| self.backend.is_complete(event))
    }

    /// Waits for all events and frees their blocks. PyTorch: `synchronize_and_free_events`.
    pub(super) fn wait_for_all(&self) -> Result<()> {
        self.ledger.lock().statistics.num_sync_all_streams += 1;
        self.pending.recording.wait();
        let _taking = lock(&self.pending.taking);
        self.take_events(|event| self.wait_until_over(event).map(|()| true))
    }

    /// Waits for the event. Whether its work failed is for those to know who wait for the work.
    fn wait_until_over(&self, event: &B::Event) -> DriverResult<()> {
        self.backend.wait_host(event).or_else(|error| match self.backend.is_complete(event) {
            Ok(true) => Ok(()),
            _ => Err(error),
        })
    }

    /// Goes through the queues, each from its oldest event to the first that is not over. What other threads add meanwhile
    /// is left for the next time: they might never stop.
    fn take_events(&self, is_over: impl Fn(&B::Event) -> DriverResult<bool>) -> Result<()> {
        self.record_unrecorded().map_err(|error| self.driver_error(error))?;
        let queues = self.pending.queues().recorded.lengths();
        let result =
            queues.into_iter().try_for_each(|(user, length)| self.take_events_of(user, length, &is_over));
        self.pending.queues().recorded.prune();
        result.map_err(|error| self.driver_error(error))
    }

    fn take_events_of(
        &self,
        user: StreamId,
        most: usize,
        is_over: impl Fn(&B::Event) -> DriverResult<bool>,
    ) -> DriverResult<()> {
        for _ in 0..most {
            let Some((event, block)) = self.pending.queues().recorded.pop(user) else { break };
            let over = is_over(&event);
            if over != Ok(true) {
                self.pending.queues().recorded.put_back(user, event, block);
                return over.map(drop);
            }
            self.pending.events.put_back(event);
            self.use_over(block);
        }
        Ok(())
    }

    /// Makes the stream wait on the device for the uses of the smallest pending block of its own that can serve the
    /// request, and frees that block. Whether there was one.
    pub(super) fn reuse_by_device_wait(&self, request: &Request, stream: Stream<B>) -> Result<bool> {
        let Some(_taking) = try_lock(&self.pending.taking) else { return Ok(false) };
        self.record_unrecorded().map_err(|error| self.driver_error(error))?;
        let Some(chosen) = self.smallest_pending(request, stream.id()) else { return Ok(false) };
        let mut uses = self.pending.queues().recorded.take_all_of(chosen).into_iter();
        while let Some((user, event)) = uses.next() {
            // An event that the driver will not wait for on the device is waited for here instead.
            let ordered =
                self.backend.wait(stream.native(), &event).or_else(|_| self.wait_until_over(&event));
            if let Err(error) = ordered {
                for (user, event) in std::iter::once((user, event)).chain(uses) {
                    self.pending.queues().recorded.push_back(user, event, chosen);
                }
                return Err(self.driver_error(error));
            }
            self.pending.events.put_back(event);
            self.use_over(chosen);
        }
        Ok(true)
    }

    fn smallest_pending(&self, request: &Request, stream: StreamId) -> Option<PendingBlock> {
        let own: Vec<_> =
            self.pending.queues().recorded.blocks().filter(|block| block.arena == stream).collect();
        let arena = lock(self.arena(stream));
        let fitting = own.into_iter().filter(|pending| arena.could_serve(pending.block, request));
        fitting.min_by_key(|pending| arena.size_of(pending.block))
    }

    fn record_unrecorded(&self) -> DriverResult<()> {
        let waiting = self.pending.queues().unrecorded.len(); // ahead of the loop, which would keep the lock
        for _ in 0..waiting {
            let Some((user, block)) = self.pending.queues().unrecorded.pop_front() else { break };
            match self.record_use_end(user, block) {
                Ok(true) => {}
                Ok(false) => self.pending.queues().unrecorded.push_back((user, block)),
                Err(error) => {
                    self.pending.queues().unrecorded.push_front((user, block));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Records an event behind what `user` was given so far, which includes its use of the block. Whether that can be, which it
    /// cannot while the work of `user` is being captured.
    fn record_use_end(&self, user: StreamId, block: PendingBlock) -> DriverResult<bool> {
        let Some(stream) = self.streams.get(user) else { return Ok(true) };
        let Some(event) = self.pending.events.record_use_end(stream)? else { return Ok(false) };
        self.pending.queues().recorded.push_back(user, event, block);
        Ok(true)
    }

    fn is_capturing(&self, stream: Stream<B>) -> Result<bool> {
        self.backend.is_capturing(stream.native()).map_err(|error| self.driver_error(error))
    }

    fn use_over(&self, pending: PendingBlock) {
        self.pending.count.fetch_sub(1, Ordering::Relaxed);
        let arena = self.arena(pending.arena);
        let (free, caching) = {
            let mut arena = lock(arena);
            let clock = self.clock(arena.pool_of(pending.block));
            let (ptr, requested) = arena.place_of(pending.block);
            let mut books = self.ledger.lock();
            let free = arena.use_completed(pending.block, clock, &mut books);
            if let Some(recorder) = books.recorder.as_mut().filter(|_| free) {
                recorder.free_completed(ptr.trace_address(), requested, pending.arena);
            }
            (free, arena.config.caching)
        };
        if free && !caching {
            self.release_uncached(arena);
        }
    }
}
