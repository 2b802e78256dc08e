//! An arena and the device statistics, locked together: for changes in both, and for operations that may move a peak.

use super::held::Held;
use super::{Arenas, Setup};
use crate::alloc::arena::{AllocatedBlock, Arena, ArenaId};
use crate::alloc::blocks::{Base, BlockId, PageRange, Segment, Users};
use crate::alloc::history::{HistoryContext, Recorder, Subject};
use crate::alloc::settings::Request;
use crate::alloc::stats::{Counting, DeviceStatistics, StreamCounters};
use crate::sync::Guard;
use crate::types::{PoolKind, StreamId, TraceAction};

/// The parameters of an allocation. PyTorch: `AllocParams`.
pub(crate) struct Parameters {
    pub(crate) request: Request,
    pub(crate) stream: StreamId,
    /// The arena that serves the request.
    pub(crate) arena: ArenaId,
    /// The context of the allocation, if contexts are recorded.
    pub(crate) context: Option<HistoryContext>,
}

/// A locked arena and the locked statistics. Operations are counted and recorded. If one needs
/// [settling](Self::settle), all other active arenas are locked, too, and the headroom is distributed again at the end.
pub(crate) struct Entered<'a> {
    arenas: &'a Arenas,
    /// `None` only while other arenas are being locked.
    arena: Option<Guard<'a, Arena>>,
    statistics: Option<Guard<'a, DeviceStatistics>>,
    settling: Option<Settling<'a>>,
}

/// The state while settling: the arena has all the headroom of the device, and its bounds are lifted.
struct Settling<'a> {
    /// The arenas that gave up their headroom.
    others: Option<(Guard<'a, Setup>, Vec<Guard<'a, Arena>>)>,
}

impl Arenas {
    pub(crate) fn enter<'a>(&'a self, arena: Guard<'a, Arena>) -> Entered<'a> {
        let statistics = Some(self.statistics());
        Entered { arenas: self, arena: Some(arena), statistics, settling: None }
    }

    /// Enters an arena with all headroom in hand.
    pub(crate) fn settle(&self, arena: ArenaId) -> Entered<'_> {
        let mut entered = self.enter(self.of(arena).lock());
        entered.settle();
        entered
    }

    /// Searches the cache on the slow path. If it returns a block, the call is complete.
    pub(crate) fn search(&self, arena: Guard<'_, Arena>, parameters: &Parameters) -> Option<AllocatedBlock> {
        let (entered, found) = self.searched(arena, parameters);
        drop(entered.leave()); // as in `drop_discarded`, without locking again
        found
    }

    /// Searches an arena of a private pool for another pool's request, which gets no block of an expandable segment.
    /// Discarded contexts stay with the recorder, as in [`search_again`](Self::search_again).
    pub(crate) fn search_outside_pages(
        &self,
        arena: Guard<'_, Arena>,
        parameters: &Parameters,
    ) -> Option<AllocatedBlock> {
        let clock = self.clock(parameters.request.pool);
        let mut entered = self.enter(arena);
        entered.take_by(parameters, |arena| arena.take_outside_pages(&parameters.request, clock))
    }

    /// Searches again after something has changed, within a call that is not over: it may hold locks, and have steps in
    /// flight. So discarded contexts stay with the recorder until the call [drops them](Self::drop_discarded) at its
    /// end.
    pub(crate) fn search_again(&self, parameters: &Parameters) -> Option<AllocatedBlock> {
        self.searched(self.of(parameters.arena).lock(), parameters).1
    }

    fn searched<'a>(
        &'a self,
        arena: Guard<'a, Arena>,
        parameters: &Parameters,
    ) -> (Entered<'a>, Option<AllocatedBlock>) {
        let clock = self.tick(&arena, parameters.request.pool);
        let mut entered = self.enter(arena);
        let found = entered.take(parameters, clock);
        (entered, found)
    }
}

impl<'a> Entered<'a> {
    pub(crate) fn arena(&mut self) -> &mut Arena {
        self.parts().0
    }

    pub(crate) fn statistics(&mut self) -> &mut DeviceStatistics {
        self.parts().1
    }

    pub(crate) fn parts(&mut self) -> (&mut Arena, &mut DeviceStatistics) {
        let both = self.arena.as_deref_mut().zip(self.statistics.as_deref_mut());
        both.unwrap_or_else(|| unreachable!("both are held except while settling begins"))
    }

    /// Unlocks both. Returns the contexts that the recorder has discarded, for the caller to drop.
    pub(crate) fn leave(mut self) -> Vec<HistoryContext> {
        self.statistics().discarded()
    }

    /// Allocates a free block, if one can serve the request.
    pub(crate) fn take(&mut self, parameters: &Parameters, clock: u32) -> Option<AllocatedBlock> {
        let Parameters { request, stream, .. } = parameters;
        self.take_by(parameters, |arena| arena.take(request, *stream, clock))
    }

    fn take_by(
        &mut self,
        parameters: &Parameters,
        take: impl Fn(&mut Arena) -> Counting<Option<AllocatedBlock>>,
    ) -> Option<AllocatedBlock> {
        let found = self.or_settled(take);
        if let Some(block) = &found {
            self.record(parameters, block);
        }
        found
    }

    /// Records the allocation of a block, while recording is on.
    pub(crate) fn record(&mut self, parameters: &Parameters, block: &AllocatedBlock) {
        let Parameters { request, stream, context, .. } = parameters;
        let mem_pool = self.arena().mem_pool();
        let subject = Subject { address: block.address(), size: request.requested, stream: *stream, mem_pool };
        self.if_recording(|recorder| recorder.allocated(subject, context.clone()));
    }

    /// Frees a block for its user. Returns the streams that it waits for, or `None` if it is free at once.
    pub(crate) fn free(&mut self, block: BlockId, clock: u32, context: Option<&HistoryContext>) -> Option<Users> {
        let subject = self.subject(block);
        let users = self.or_settled(|arena| arena.free(block, clock));
        self.if_recording(|recorder| recorder.freed(subject, context.cloned(), users.is_none()));
        users
    }

    /// Notes that one of the streams that a pending block waits for has finished. Returns whether it was the last.
    pub(crate) fn use_completed(&mut self, block: BlockId, clock: u32) -> bool {
        let subject = self.subject(block);
        let is_free = self.or_settled(|arena| arena.use_completed(block, clock));
        if is_free {
            self.if_recording(|recorder| recorder.free_completed(subject));
        }
        is_free
    }

    /// Performs an operation of the arena. If it needs settling, settles and repeats it.
    fn or_settled<T>(&mut self, operation: impl Fn(&mut Arena) -> Counting<T>) -> T {
        let counted = operation(self.arena());
        counted.unwrap_or_else(|_| settled(operation(self.settle())))
    }

    fn if_recording(&mut self, record: impl FnOnce(&mut Recorder)) {
        if let Some(recorder) = &mut self.statistics().recorder {
            record(recorder);
        }
    }

    fn subject(&mut self, block: BlockId) -> Subject {
        let arena = self.arena();
        let (address, size) = (arena.store().blocks.address(block), arena.block(block).requested);
        Subject { address, size, stream: arena.stream_of(block), mem_pool: arena.mem_pool() }
    }

    /// Counts and records a charged segment that the driver returned. The caller adds it to the arena.
    pub(crate) fn segment_made(&mut self, base: Base, size: u64, parameters: &Parameters) -> Segment {
        let Parameters { request: Request { pool, .. }, stream, context, .. } = parameters;
        let (arena, statistics) = self.parts();
        let holder = (arena.mem_pool(), *pool);
        let created = statistics.segment_made(arena.config(), holder, size);
        let subject = Subject { address: base.address(), size, stream: *stream, mem_pool: holder.0 };
        self.if_recording(|recorder| recorder.memory_came(TraceAction::SegmentAlloc, subject, 0, context.clone()));
        Segment::new(base, size, created, *pool, None)
    }

    /// Counts and records pages that the driver mapped, `charged` bytes of which were charged. The caller adds them to
    /// the arena.
    pub(crate) fn pages_mapped(&mut self, range: PageRange, charged: u64, parameters: &Parameters) {
        let (arena, statistics) = self.parts();
        statistics.pages_mapped((arena.mem_pool(), parameters.request.pool), range.len, charged);
        self.record_pages(range, parameters.context.clone());
    }

    fn record_pages(&mut self, range: PageRange, context: Option<HistoryContext>) {
        let subject = self.subject_of_pages(range);
        self.if_recording(|recorder| recorder.memory_came(TraceAction::SegmentMap, subject, range.offset, context));
    }

    /// Records that pages go back. This comes before the driver call, since the driver may give the pages to another
    /// process at once. [`pages_left`](Self::pages_left) comes after it.
    pub(crate) fn pages_leave(&mut self, ranges: impl IntoIterator<Item = PageRange>) {
        for range in ranges {
            let subject = self.subject_of_pages(range);
            self.if_recording(|recorder| recorder.memory_left(TraceAction::SegmentUnmap, subject));
        }
    }

    /// Counts the bytes of pages that went back, and records the pages that the driver refused to unmap as mapped
    /// again. The caller adds these to the arena.
    pub(crate) fn pages_left(&mut self, pool: PoolKind, bytes: u64, kept: impl IntoIterator<Item = PageRange>) {
        let (arena, statistics) = self.parts();
        statistics.pages_unmapped((arena.mem_pool(), pool), bytes);
        kept.into_iter().for_each(|range| self.record_pages(range, None));
    }

    fn subject_of_pages(&mut self, range: PageRange) -> Subject {
        let arena = self.arena();
        let address = arena.store().blocks.address_of(range);
        Subject { address, size: range.len, stream: arena.stream_of_segment(range.segment), mem_pool: arena.mem_pool() }
    }

    /// Moves all headroom to this arena and lifts its bounds. From then on none of its operations is refused, and
    /// anything that they add beyond the headroom moves the peaks. Other threads may enter the arena while the locks
    /// are taken.
    #[cold]
    pub(crate) fn settle(&mut self) -> &mut Arena {
        if self.settling.is_none() {
            let others = if self.arena().counters().is_alone { None } else { self.hold_others() };
            self.arena().counters_mut().lift_bounds();
            self.settling = Some(Settling { others });
        }
        self.arena()
    }

    fn hold_others(&mut self) -> Option<(Guard<'a, Setup>, Vec<Guard<'a, Arena>>)> {
        let id = self.arena().id();
        self.statistics = None;
        self.arena = None;
        let Held { setup, first, mut others, statistics } = self.arenas.hold_active(Some(id));
        (self.arena, self.statistics) = (first, Some(statistics));
        let counters = self.arena().counters_mut();
        others.iter_mut().for_each(|other| counters.take_headroom(other.counters_mut()));
        Some((setup, others))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Some(Settling { others }) = self.settling.take() else { return };
        let (arena, statistics) = self.parts();
        arena.counters_mut().restore_bounds();
        let Some((mut setup, mut others)) = others else { return };
        let counters = arena.counters_mut();
        others.retain_mut(|other| {
            let other = other.counters_mut();
            let is_idle = other.has_become_idle();
            if is_idle {
                counters.has_changed |= other.has_changed;
                statistics.make_idle(other);
            }
            !is_idle
        });
        deal_out_headroom(counters, others.iter_mut().map(|other| other.counters_mut()));
        setup.active.clear();
        setup.active.extend(others.iter().map(|other| other.id()).chain([arena.id()]));
    }
}

/// Distributes the headroom: at least half stays with the stream that asked, as it will ask again; the others get equal
/// parts.
fn deal_out_headroom<'a>(own: &mut StreamCounters, others: impl ExactSizeIterator<Item = &'a mut StreamCounters>) {
    own.is_alone = others.len() == 0;
    if own.is_alone {
        return;
    }
    let mut headroom = own.headroom();
    let part = headroom.halved(1 + others.len().next_power_of_two().ilog2()); // a shift, because divisions are slow
    for other in others {
        other.set_headroom(part);
        other.is_alone = false;
        headroom = headroom - part;
    }
    own.set_headroom(headroom);
}

/// Unwraps the result of an operation that had all headroom in hand.
pub(crate) fn settled<T>(result: Counting<T>) -> T {
    result.unwrap_or_else(|_| unreachable!("no operation is refused while bounds are lifted"))
}

#[cfg(test)]
mod tests;
