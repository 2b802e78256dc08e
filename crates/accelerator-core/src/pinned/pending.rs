//! Freed blocks that streams still use, until their events are complete.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::CachingHostAllocator;
use super::memory::Block;
use crate::alloc::EventQueues;
use crate::backend::Backend;
use crate::event::{EventNumber, EventPool, Events};
use crate::sync::{lock, try_lock};
use crate::types::{DriverResult, StreamId};

/// Where the uses of a block end, stream by stream.
pub(super) type UseEnds = Vec<(StreamId, EventNumber)>;

/// The uses of freed blocks that are not known to be over.
pub(super) struct PendingUses<B: Backend> {
    pub(super) events: EventPool<B>,
    /// How many there are: the warm path looks only here.
    count: AtomicUsize,
    queues: Mutex<UseQueues>,
    /// Held by the one thread that takes events off the queues, driver calls included. An allocation that finds it
    /// held goes on without: only who needs the memory waits for it.
    taking: Mutex<()>,
}

struct UseQueues {
    recorded: EventQueues<EventNumber, Use>,
    /// Uses whose event the driver would not record, or must not while the stream is captured; tried again each time.
    unrecorded: VecDeque<(StreamId, Arc<Block>)>,
    /// The number of the next use.
    next: u64,
}

/// A use that is not known to be over. Whoever lets go of the last one frees the block.
struct Use {
    /// Uses are gone through in the order in which they came into the queues, as in PyTorch, so that blocks become free
    /// in the same order.
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

    /// The oldest use before number `end` of a stream that is not among these.
    fn pop(&mut self, end: u64, except: &[StreamId]) -> Option<(StreamId, EventNumber, Use)> {
        let oldest = self.recorded.oldest().map(|(user, used)| (used.number, user));
        let (_, user) = oldest.filter(|(number, user)| *number < end && !except.contains(user)).min()?;
        self.recorded.pop(user).map(|(event, used)| (user, event, used))
    }
}

impl<B: Backend> CachingHostAllocator<B> {
    /// Frees a block once these uses are over, and what the noted streams were given so far. PyTorch: `free`.
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
            let _ = self.record_use_end(user, Arc::clone(&block)); // tried again each time
        }
        self.let_go(block);
    }

    /// Makes the blocks available whose events are complete, without waiting. PyTorch: `process_events`.
    pub(super) fn process_events(&self) -> DriverResult<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let Some(taking) = try_lock(&self.pending.taking) else { return Ok(()) };
        self.take_events(&taking)
    }

    /// As [`process_events`](Self::process_events), after what another thread is making available.
    pub(super) fn process_all_events(&self) -> DriverResult<()> {
        self.take_events(&lock(&self.pending.taking))
    }

    /// Goes through the uses, each stream's up to the first that is not over. What other threads add meanwhile is left
    /// for the next time: they might never stop.
    fn take_events(&self, _taking: &MutexGuard<'_, ()>) -> DriverResult<()> {
        let mut result = self.record_unrecorded();
        let (end, mut slow) = (lock(&self.pending.queues).next, Vec::new());
        loop {
            let Some((user, event, used)) = lock(&self.pending.queues).pop(end, &slow) else { break };
            match self.pending.events.is_over(event) {
                Ok(true) => self.use_over(used.block),
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
        let waiting = lock(&self.pending.queues).unrecorded.len(); // ahead of the loop, which would keep the lock
        for _ in 0..waiting {
            let Some((user, block)) = lock(&self.pending.queues).unrecorded.pop_front() else { break };
            result = result.and(self.record_use_end(user, block));
        }
        result
    }

    /// Records an event behind what `user` was given so far, now or another time. Not while its work is being captured: such
    /// an event would never be complete.
    fn record_use_end(&self, user: StreamId, block: Arc<Block>) -> DriverResult<()> {
        let recorded = self.pending.events.record(user);
        match recorded {
            Ok(Some(event)) => lock(&self.pending.queues).push(user, event, block),
            _ => lock(&self.pending.queues).unrecorded.push_back((user, block)),
        }
        recorded.map(drop)
    }

    fn use_over(&self, block: Arc<Block>) {
        self.let_go(block);
        self.pending.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes one holder off a block. The last one makes it available.
    fn let_go(&self, block: Arc<Block>) {
        if let Some(block) = Arc::into_inner(block) {
            self.make_available(block);
        }
    }
}
