//! Freed blocks that streams still use, until their events are complete.

use std::collections::VecDeque;
use std::sync::Arc;

use super::CachingHostAllocator;
use super::memory::Block;
use crate::alloc::EventQueues;
use crate::backend::Backend;
use crate::event::{EventNumber, EventPool, Events, is_over};
use crate::sync::primitives::atomic::{AtomicUsize, Ordering};
use crate::sync::primitives::{Mutex, MutexGuard, lock, try_lock};
use crate::types::{DriverResult, StreamId};

/// The ends of the uses of a block, by stream.
pub(super) type UseEnds = Vec<(StreamId, EventNumber)>;

/// The uses of freed blocks that may not be over yet.
pub(super) struct PendingUses<B: Backend> {
    pub(super) events: EventPool<B>,
    /// The number of uses. The warm path reads only this.
    count: AtomicUsize,
    queues: Mutex<UseQueues>,
    /// Held by the thread that takes events off the queues, also across driver calls. An allocation that finds it
    /// locked goes on without it: only a thread that needs the memory waits for it.
    taking: Mutex<()>,
}

struct UseQueues {
    recorded: EventQueues<EventNumber, Use>,
    /// Uses whose event the driver could not record, or may not record while the stream is being captured. Recording is
    /// tried again each time.
    unrecorded: VecDeque<(StreamId, Arc<Block>)>,
    /// The number of the next use.
    next: u64,
}

/// A use that may not be over yet. Dropping the last use of a block frees it.
struct Use {
    /// Uses are checked in the order in which they were queued, as in PyTorch, so that blocks become free in the same
    /// order.
    number: u64,
    block: Arc<Block>,
}

impl<B: Backend> PendingUses<B> {
    pub(super) fn new(events: EventPool<B>) -> Self {
        let queues = UseQueues { recorded: EventQueues::default(), unrecorded: VecDeque::new(), next: 0 };
        Self { events, count: AtomicUsize::new(0), queues: Mutex::new(queues), taking: Mutex::new(()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

impl UseQueues {
    fn push(&mut self, user: StreamId, event: EventNumber, block: Arc<Block>) {
        let number = self.next;
        self.next += 1;
        self.recorded.push_back(user, event, Use { number, block });
    }

    /// Removes the oldest use before number `end`, ignoring the streams in `except`.
    fn pop(&mut self, end: u64, except: &[StreamId]) -> Option<(StreamId, EventNumber, Use)> {
        let oldest = self.recorded.oldest().map(|(user, used)| (used.number, user));
        let (_, user) = oldest.filter(|(number, user)| *number < end && !except.contains(user)).min()?;
        self.recorded.pop(user).map(|(event, used)| (user, event, used))
    }
}

impl<B: Backend> CachingHostAllocator<B> {
    /// Frees a block once these uses are over and all work submitted so far to the `noted` streams is done. PyTorch:
    /// `free`.
    pub(super) fn free(&self, block: Block, recorded: UseEnds, noted: Vec<StreamId>) {
        let uses = recorded.len() + noted.len();
        if uses == 0 {
            return self.make_available(block);
        }
        self.pending.count.fetch_add(uses, Ordering::Relaxed);
        let block = Arc::new(block);
        for (user, event) in recorded {
            lock(&self.pending.queues).push(user, event, Arc::clone(&block));
        }
        for user in noted {
            let _ = self.record_use_end(user, Arc::clone(&block)); // it is tried again later
        }
        self.drop_reference(block);
    }

    /// Frees the blocks whose events are complete, without waiting. PyTorch: `process_events`.
    pub(super) fn process_events(&self) -> DriverResult<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let Some(taking) = try_lock(&self.pending.taking) else { return Ok(()) };
        self.take_events(&taking)
    }

    /// Like [`process_events`](Self::process_events), but waits for another thread that is doing the same.
    pub(super) fn process_all_events(&self) -> DriverResult<()> {
        self.take_events(&lock(&self.pending.taking))
    }

    /// Checks the uses of each stream up to the first that is not over. Uses that other threads add meanwhile are left
    /// for the next time, since this might never end otherwise.
    fn take_events(&self, _taking: &MutexGuard<'_, ()>) -> DriverResult<()> {
        let mut result = self.record_unrecorded();
        let (end, mut slow) = (lock(&self.pending.queues).next, Vec::new());
        loop {
            let Some((user, event, used)) = lock(&self.pending.queues).pop(end, &slow) else { break };
            match is_over(&self.pending.events, event) {
                Ok(true) => {
                    self.drop_reference(used.block);
                    self.pending.count.fetch_sub(1, Ordering::Relaxed);
                }
                not_over => {
                    lock(&self.pending.queues).recorded.put_back(user, event, used);
                    slow.push(user);
                    result = result.and(not_over.map(drop));
                }
            }
        }
        result
    }

    fn record_unrecorded(&self) -> DriverResult<()> {
        let mut result = Ok(());
        let waiting = lock(&self.pending.queues).unrecorded.len(); // read before the loop, which would hold the lock
        for _ in 0..waiting {
            let Some((user, block)) = lock(&self.pending.queues).unrecorded.pop_front() else { break };
            result = result.and(self.record_use_end(user, block));
        }
        result
    }

    /// Records an event after all work submitted so far to `user`. If that fails, or while the stream is being
    /// captured, queues the use for another try: an event recorded in a capture would never be complete.
    fn record_use_end(&self, user: StreamId, block: Arc<Block>) -> DriverResult<()> {
        let recorded = self.pending.events.record(user);
        match recorded {
            Ok(Some(event)) => lock(&self.pending.queues).push(user, event, block),
            _ => lock(&self.pending.queues).unrecorded.push_back((user, block)),
        }
        recorded.map(drop)
    }

    /// Drops a reference to a block. The last one makes the block available.
    fn drop_reference(&self, block: Arc<Block>) {
        if let Some(block) = Arc::into_inner(block) {
            self.make_available(block);
        }
    }
}
