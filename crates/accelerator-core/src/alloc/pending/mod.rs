//! Freed blocks that other streams still use, until their events are complete.

#[cfg(debug_assertions)]
mod check;
mod deferred;
mod queues;

use std::collections::VecDeque;

use self::deferred::{Captures, Deferred};
pub(crate) use self::queues::{EventQueues, PendingBlock};
use super::arena::{Arena, ArenaId};
use super::arenas::Parameters;
use super::blocks::{BlockId, User, Users};
use super::source::{Context, Memory};
use crate::event::{EventNumber, is_over};
use crate::sync::primitives::atomic::{AtomicBool, Ordering};
use crate::sync::primitives::{Mutex, lock};
use crate::sync::{Guard, InFlight, OwnedLock, Step};
use crate::types::{DriverResult, Result, StreamId};

/// The freed blocks that other streams still use.
#[derive(Default)]
pub(crate) struct PendingFrees {
    /// Held by the one thread that goes through them, driver calls included, or briefly by a thread that adds a use. An
    /// allocation that finds them locked goes on without them; only a thread that must wait for memory anyway waits for
    /// them.
    queues: OwnedLock<Queues>,
    /// Whether the queues may have any uses. The warm path checks this flag; the thread that holds the queues sets it.
    queued: AtomicBool,
    /// What waits outside the queues.
    arriving: Mutex<Arriving>,
    /// Whether there is any such thing. The warm path checks this flag, too; the thread that holds `arriving` sets it.
    has_arrived: AtomicBool,
    captures: Captures,
    /// Frees whose events are still being recorded.
    recording: InFlight,
}

/// A use of a freed block. It has no event if the driver refused to record one.
struct Arrived {
    user: StreamId,
    event: Option<EventNumber>,
    block: PendingBlock,
}

#[derive(Default)]
struct Arriving {
    /// Uses that arrived while another thread held the queues.
    uses: Vec<Arrived>,
    /// Frees that wait for the end of a capture.
    deferred: Vec<Deferred>,
}

#[derive(Default)]
struct Queues {
    recorded: EventQueues<EventNumber>,
    /// Uses whose events the driver refused to record. They are retried each time.
    unrecorded: VecDeque<(StreamId, PendingBlock)>,
    /// Empty. Its buffer is swapped with that of the uses that arrived.
    arriving: Vec<Arrived>,
}

impl Queues {
    #[inline(always)]
    fn push(&mut self, Arrived { user, event, block }: Arrived) {
        match event {
            Some(event) => self.recorded.push_back(user, event, block),
            None => self.unrecorded.push_back((user, block)),
        }
    }
}

impl PendingFrees {
    /// Returns whether there may be any. The warm path checks only this.
    #[inline(always)]
    pub(crate) fn may_have_any(&self) -> bool {
        self.queued.load(Ordering::Relaxed) | self.has_arrived.load(Ordering::Relaxed)
    }

    /// Begins a free that will [wait](Self::await_uses) for streams. It must be called before the arena is unlocked,
    /// because until its events are in their queues, the block is in no data structure.
    #[inline]
    pub(crate) fn begin(&self) -> Step<'_> {
        self.recording.begin()
    }

    /// Makes a freed block wait for these streams. PyTorch: `insert_events`.
    #[inline(always)]
    pub(crate) fn await_uses(&self, context: &Context, begun: Step<'_>, block: PendingBlock, users: &Users) {
        for User { stream: user, .. } in users.iter() {
            let event = context.events.record(user).ok().flatten();
            self.enter(Arrived { user, event, block });
        }
        drop(begun);
    }

    /// Adds a use to its queue, or to those that arrive while another thread goes through the queues.
    #[inline(always)]
    fn enter(&self, arrived: Arrived) {
        match self.queues.try_lock_owned() {
            Some(mut queues) => self.enter_into(&mut queues, arrived),
            None => self.enter_as_other(arrived),
        }
    }

    #[cold]
    fn enter_as_other(&self, arrived: Arrived) {
        if let Some(mut queues) = self.queues.try_lock() {
            self.enter_into(&mut queues, arrived);
        } else {
            let mut arriving = lock(&self.arriving);
            arriving.uses.push(arrived);
            self.has_arrived.store(true, Ordering::Release);
        }
    }

    #[inline(always)]
    fn enter_into(&self, queues: &mut Queues, arrived: Arrived) {
        self.queued.store(true, Ordering::Relaxed);
        self.take_in(queues);
        queues.push(arrived);
    }

    /// Moves the uses that have arrived into the queues.
    #[inline(always)]
    fn take_in(&self, queues: &mut Queues) {
        if self.has_arrived.load(Ordering::Acquire) {
            self.take_in_arrived(queues);
        }
    }

    #[cold]
    fn take_in_arrived(&self, queues: &mut Queues) {
        self.queued.store(true, Ordering::Relaxed); // ahead of the other flag, of which this takes the place
        let mut arriving = std::mem::take(&mut queues.arriving);
        let mut outside = lock(&self.arriving);
        std::mem::swap(&mut outside.uses, &mut arriving);
        self.has_arrived.store(!outside.deferred.is_empty(), Ordering::Relaxed);
        drop(outside);
        arriving.drain(..).for_each(|arrived| queues.push(arrived));
        queues.arriving = arriving;
    }

    /// Frees the blocks whose events are complete, without waiting. Asks about no event while work of this stream is
    /// being captured, because drivers then refuse event queries. PyTorch: `process_events`.
    #[inline(always)]
    pub(crate) fn poll(&self, memory: &Memory, stream: StreamId) -> Result<()> {
        let Context { events, .. } = &memory.context;
        if events.is_capturing(stream).map_err(|error| memory.context.error(error))? {
            return self.free_ordered(memory, stream);
        }
        match self.queues.try_lock_owned() {
            Some(mut queues) => self.take_complete_events(memory, &mut queues),
            None => self.poll_as_other(memory),
        }
    }

    /// As [`poll`](Self::poll), also if another thread goes through the queues just then.
    pub(crate) fn poll_behind_others(&self, memory: &Memory, stream: StreamId) -> Result<()> {
        let is_capturing = memory.context.events.is_capturing(stream).map_err(|error| memory.context.error(error))?;
        match is_capturing {
            true => self.free_ordered(memory, stream),
            false => self.take_complete_events(memory, &mut self.queues.lock()),
        }
    }

    #[cold]
    fn poll_as_other(&self, memory: &Memory) -> Result<()> {
        self.queues.try_lock().map_or(Ok(()), |mut queues| self.take_complete_events(memory, &mut queues))
    }

    #[inline(always)]
    fn take_complete_events(&self, memory: &Memory, queues: &mut Queues) -> Result<()> {
        let events = &*memory.context.events;
        self.take_events(memory, queues, |event| is_over(events, event))
    }

    /// Waits for all events and frees their blocks. PyTorch: `synchronize_and_free_events`.
    pub(crate) fn wait_for_all(&self, memory: &Memory) -> Result<()> {
        let Context { events, arenas, .. } = &memory.context;
        arenas.statistics().streams_awaited();
        self.recording.wait();
        let wait = |event| events.wait_until_over(event).map(|()| true);
        let mut queues = self.queues.lock();
        self.take_events(memory, &mut queues, wait)
    }

    /// Waits for the events of the chosen blocks and frees these.
    pub(crate) fn wait_for(&self, memory: &Memory, is_chosen: impl Fn(PendingBlock) -> bool) -> Result<()> {
        let Context { events, .. } = &memory.context;
        self.recording.wait();
        let mut queues = self.queues.lock();
        self.begin_pass(memory, &mut queues)?;
        let chosen: Vec<_> = queues.recorded.blocks().filter(|block| is_chosen(*block)).collect();
        for block in chosen {
            let mut uses = queues.recorded.take_all_of(block).into_iter();
            while let Some((user, event)) = uses.next() {
                if let Err(error) = events.wait_until_over(event) {
                    for (user, event) in std::iter::once((user, event)).chain(uses) {
                        queues.recorded.push_back(user, event, block);
                    }
                    return Err(memory.context.error(error));
                }
                use_over(memory, block);
            }
        }
        Ok(())
    }

    /// Goes through the queues, each from its oldest event to the first that is not complete.
    #[inline(always)]
    fn take_events(
        &self,
        memory: &Memory,
        queues: &mut Queues,
        is_over: impl Fn(EventNumber) -> DriverResult<bool>,
    ) -> Result<()> {
        self.begin_pass(memory, queues)?;
        let mut has_any = !queues.unrecorded.is_empty();
        for queue in queues.recorded.iter_mut() {
            while let Some((event, block)) = queue.front().copied() {
                if !is_over(event).map_err(|error| memory.context.error(error))? {
                    has_any = true;
                    break;
                }
                queue.pop_front();
                use_over(memory, block);
            }
        }
        self.queued.store(has_any, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the stream wait on the device for the uses of its smallest pending block that can serve the request, and
    /// frees that block. Returns whether there was one.
    pub(crate) fn reuse_by_device_wait(&self, memory: &Memory, wanted: &Parameters) -> Result<bool> {
        let context = &memory.context;
        let Some(mut queues) = self.queues.try_lock() else { return Ok(false) };
        self.take_in(&mut queues);
        record_again(context, &mut queues)?;
        let Some(chosen) = smallest_pending(context, &queues, wanted) else { return Ok(false) };
        let mut uses = queues.recorded.take_all_of(chosen).into_iter();
        while let Some((user, event)) = uses.next() {
            // If the driver refuses to wait for an event on the device, wait for it on the host.
            let ordered = context.events.wait_on_device(wanted.stream, event);
            let taken_back = ordered.map(|()| context.events.take_back(event));
            if let Err(error) = taken_back.or_else(|_| context.events.wait_until_over(event)) {
                for (user, event) in std::iter::once((user, event)).chain(uses) {
                    queues.recorded.push_back(user, event, chosen);
                }
                return Err(context.error(error));
            }
            use_over(memory, chosen);
        }
        Ok(true)
    }

    /// Moves what has arrived into the queues, and retries events that the driver refused to record.
    #[inline(always)]
    fn begin_pass(&self, memory: &Memory, queues: &mut Queues) -> Result<()> {
        if self.has_arrived.load(Ordering::Acquire) {
            self.end_deferred(memory, queues);
            self.take_in_arrived(queues);
        }
        if queues.unrecorded.is_empty() { Ok(()) } else { record_again(&memory.context, queues) }
    }
}

fn smallest_pending(context: &Context, queues: &Queues, wanted: &Parameters) -> Option<PendingBlock> {
    let arena = context.arenas.of(wanted.arena).lock();
    let here = queues.recorded.blocks().filter(|block| block.arena == wanted.arena);
    let own = here.filter(|pending| arena.stream_of(pending.block) == wanted.stream);
    let fitting = own.filter(|pending| arena.could_serve(pending.block, &wanted.request));
    fitting.min_by_key(|pending| arena.block(pending.block).size)
}

#[cold]
fn record_again(context: &Context, queues: &mut Queues) -> Result<()> {
    for _ in 0..queues.unrecorded.len() {
        let Some((user, block)) = queues.unrecorded.front().copied() else { break };
        let event = context.events.record(user).map_err(|error| context.error(error))?;
        queues.unrecorded.pop_front();
        queues.push(Arrived { user, event, block });
    }
    Ok(())
}

/// Notes that a stream has finished with a block. If it was the last, the block becomes free.
#[inline]
fn use_over(memory: &Memory, PendingBlock { arena, block }: PendingBlock) {
    let arenas = &memory.context.arenas;
    let owned = arenas.of_stream(arena).and_then(|arena| arena.lock_owned());
    let is_done = owned.is_some_and(|mut arena| {
        arena.is_plain() && arena.use_completed_plain(block, |pool| arenas.clock(pool)).is_ok()
    });
    if !is_done {
        use_over_in_any_arena(memory, arena, block);
    }
}

#[cold]
#[inline(never)]
fn use_over_in_any_arena(memory: &Memory, arena: ArenaId, block: BlockId) {
    let arenas = &memory.context.arenas;
    let mut arena = arenas.of(arena).lock();
    let clock = arenas.clock(arena.block(block).pool);
    let completed = |arena: &mut Arena| arena.use_completed_warm(block, clock);
    if arena.takes_slow_path() || arenas.perhaps_gathered(&mut arena, completed).is_err() {
        use_over_on_slow_path(memory, arena, block, clock);
    }
}

#[cold]
fn use_over_on_slow_path(memory: &Memory, arena: Guard<'_, Arena>, block: BlockId, clock: u32) {
    let (id, caching) = (arena.id(), arena.config().caching);
    let is_free = memory.context.arenas.enter(arena).use_completed(block, clock);
    if is_free && !caching {
        memory.release_uncached(id);
    }
}
