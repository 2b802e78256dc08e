//! Allocation and free where something is to be done beside the arena's books: the account has no room, the history is recorded,
//! searches are counted for garbage collection, or what is freed goes back at once.

use std::sync::atomic::Ordering;

use super::CachingAllocator;
use super::account::NoRoom;
use super::arena::{Arena, Taken};
use super::block::BlockId;
use super::config::{AllocatorConfig, Policy};
use super::event_queues::PendingBlock;
use super::history::{CaptureContext, History, HistoryContext, Recorder, Recording};
use super::ladder::Asked;
use super::ledger::Books;
use super::policy::Request;
use crate::backend::{Backend, DevicePtr};
use crate::stream::Stream;
use crate::sync::Guard;
use crate::types::{PoolKind, Result};

impl<B: Backend> CachingAllocator<B> {
    /// Records from now on what happens, or no longer, and then forgets it. While it is recorded already, what is kept stays,
    /// under the new limits. PyTorch: `recordHistory`.
    pub fn record_history(&self, recording: Option<Recording>) {
        let mut setup = self.setup.lock_soon();
        let config = self.in_force(&setup.config);
        setup.recording = recording;
        // Ended first and begun last: so all that happens in between is recorded, or nothing.
        let ended = match recording {
            None => self.ledger.lock().recorder.take(),
            Some(_) => None,
        };
        for arena in self.all_arenas() {
            arena.lock().configure(config, recording.as_ref());
        }
        if let Some(recording) = recording {
            let mut books = self.ledger.lock();
            let fraction = books.fraction();
            match &mut books.recorder {
                Some(recorder) => recorder.change(&recording),
                None => books.recorder = Some(Box::new(Recorder::new(&recording, setup.config, fraction))),
            }
        }
        drop(setup);
        drop(ended);
        self.sweep();
    }

    /// What the allocator holds, and what was recorded before, at one moment. PyTorch: `snapshot` of the C++ allocator.
    pub fn history(&self) -> History {
        self.look(|snapshot, settings, books| match &books.recorder {
            Some(recorder) => recorder.history(snapshot),
            None => History::unrecorded(snapshot, settings, books.fraction()),
        })
    }

    /// The allocation, where segments may be expandable, or something is to be done beside the books.
    #[inline(never)]
    pub(super) fn allocate_otherwise<'a>(
        &'a self,
        mut arena: Guard<'a, Arena<B::Ptr>>,
        mut request: Request,
        stream: Stream<B>,
    ) -> Result<Taken<B::Ptr>> {
        if arena.config.policy == Policy::Compact {
            drop(arena);
            (arena, request) = self.to_shared(request, stream);
        }
        if !arena.attended {
            return match arena.take_by_policy(&request, stream.id(), self.clock(request.pool)) {
                Ok(Some(taken)) => Ok(taken),
                Ok(None) => self.after_plain_miss(arena, request, stream),
                Err(NoRoom) => self.allocate_without_room(arena, request, stream),
            };
        }
        let capture = arena.capture;
        let (arena, context) = self.captured(arena, capture);
        let asked = self.asked(&arena, request, stream, context);
        match self.search_attended(arena, &asked) {
            Some(taken) => Ok(taken),
            None => self.after_miss(&asked),
        }
    }

    /// The allocation, where all that is missing is room in the account.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_without_room(
        &self,
        arena: Guard<'_, Arena<B::Ptr>>,
        request: Request,
        stream: Stream<B>,
    ) -> Result<Taken<B::Ptr>> {
        let asked = self.asked(&arena, request, stream, None);
        let (taken, discarded) = self.settled(arena, taking(&asked, self.clock(request.pool)));
        drop(discarded);
        match taken {
            Some(taken) => Ok(taken),
            None => self.after_miss(&asked), // the arena was let go meanwhile
        }
    }

    /// The search of the cache, on the longer way. With a block, a call is at its end.
    pub(super) fn search_attended(
        &self,
        arena: Guard<'_, Arena<B::Ptr>>,
        asked: &Asked<B>,
    ) -> Option<Taken<B::Ptr>> {
        let clock = self.tick(&arena.config, asked.request.pool);
        let (taken, discarded) = self.counted(arena, taking(asked, clock));
        drop(discarded); // as `sweep`, without its look
        taken
    }

    /// The free, on the longer way.
    #[cold]
    #[inline(never)]
    pub(super) fn free_attended(&self, arena: Guard<'_, Arena<B::Ptr>>, block: BlockId) {
        let capture = arena.capture_of_frees;
        let (arena, context) = self.captured(arena, capture);
        let (arena_of, stream, caching) = (arena.stream, arena.stream_of(block), arena.config.caching);
        let clock = self.clock(arena.pool_of(block));
        let (ptr, requested) = arena.place_of(block);
        let free = |arena: &mut Arena<B::Ptr>, books: &mut Books| {
            let users = arena.free(block, clock)?.map(|users| (users, self.pending.recording.begin()));
            if let Some(recorder) = &mut books.recorder {
                let completed = users.is_none();
                recorder.freed(ptr.trace_address(), requested, stream, context.clone(), completed);
            }
            Ok((users, books.discarded()))
        };
        let (users, discarded) = self.counted(arena, free);
        match users {
            Some((users, recording)) => {
                self.await_uses(recording, PendingBlock { arena: arena_of, block }, &users);
            }
            None if caching => {}
            None => {
                self.release_uncached(self.arena(arena_of));
                self.sweep();
            }
        }
        drop(discarded); // as `sweep`, without its look
    }

    /// Where the calling thread is, if that is recorded. The user is asked under no lock: it is let go meanwhile.
    fn captured<'a>(
        &'a self,
        arena: Guard<'a, Arena<B::Ptr>>,
        capture: Option<CaptureContext>,
    ) -> (Guard<'a, Arena<B::Ptr>>, Option<HistoryContext>) {
        let Some(capture) = capture else { return (arena, None) };
        let stream = arena.stream;
        drop(arena);
        let context = capture();
        (self.arena(stream).lock(), context)
    }

    /// Drops the contexts that the history has let go. They are the user's, who may do anything then: so at the end of a call,
    /// when no lock is held and no step is open for which somebody waits.
    pub(super) fn sweep(&self) {
        let discarded = self.ledger.lock().discarded();
        drop(discarded);
    }

    /// Counts a search, for the age of free blocks: only while garbage collection is on. PyTorch:
    /// `get_free_blocks_call_count`.
    pub(super) fn tick(&self, config: &AllocatorConfig, pool: PoolKind) -> u32 {
        let clock = &self.clocks[pool as usize];
        if config.garbage_collection_threshold > 0.0 && self.ledger.lock().limit().is_some() {
            return clock.fetch_add(1, Ordering::Relaxed) + 1;
        }
        clock.load(Ordering::Relaxed)
    }
}

/// What a search of the cache found, and what the history lets go.
type Found<P> = (Option<Taken<P>>, Vec<HistoryContext>);

/// Takes a block from the cache and records it, which may have begun since somebody looked.
fn taking<B: Backend>(
    asked: &Asked<B>,
    clock: u32,
) -> impl Fn(&mut Arena<B::Ptr>, &mut Books) -> Result<Found<B::Ptr>, NoRoom> {
    let Asked { request, stream, context, .. } = asked;
    move |arena, books| {
        let taken = arena.take_by_policy(request, stream.id(), clock)?;
        if let (Some(taken), Some(recorder)) = (&taken, &mut books.recorder) {
            let address = taken.ptr.trace_address();
            recorder.allocated(address, request.requested, stream.id(), context.clone());
        }
        Ok((taken, books.discarded()))
    }
}
