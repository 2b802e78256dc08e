//! The memory of a device.

use super::compact::CompactSource;
use super::context::Context;
use super::expandable::Expandable;
use super::interface::{Source, Wanted};
use super::segments::Segments;
use crate::alloc::arena::Arena;
use crate::alloc::arenas::Parameters;
use crate::alloc::history::HistoryContext;
use crate::alloc::settings::{Policy, Request};
use crate::sync::Guard;
use crate::types::{PoolKind, Result, StreamId};

/// The memory of a device: its arenas, and the sources of new memory.
pub(crate) struct Memory {
    pub(crate) context: Context,
    segments: Segments,
    expandable: Expandable,
    compact: CompactSource,
}

impl Memory {
    pub(crate) fn new(context: Context) -> Self {
        let (segments, expandable, compact) = Default::default();
        Self { context, segments, expandable, compact }
    }

    /// Prepares the data that the ladder needs if no block serves the request.
    pub(crate) fn wanted(
        &self,
        arena: &Arena,
        request: Request,
        stream: StreamId,
        context: Option<HistoryContext>,
    ) -> Wanted<'_> {
        let source = self.source_of(arena);
        let segment = source.segment_size(&self.context, arena, &request);
        let parameters = Parameters { request, stream, arena: arena.stream(), context };
        Wanted { parameters, source, segment }
    }

    /// Returns the arena that serves a stream's request, given the stream's own arena, and the request adapted to that
    /// arena.
    pub(crate) fn enter<'a>(
        &'a self,
        arena: Guard<'a, Arena>,
        request: Request,
        stream: StreamId,
    ) -> (Guard<'a, Arena>, Request) {
        match arena.config().policy {
            Policy::Pytorch => (arena, request),
            Policy::Compact => {
                drop(arena);
                let entered = self.compact.enter(&self.context, request, stream);
                entered.unwrap_or_else(|| (self.context.arenas.of(stream).lock(), request))
            }
        }
    }

    /// Returns the source of new memory for an arena under the current settings.
    fn source_of(&self, arena: &Arena) -> &dyn Source {
        match arena.is_shared() {
            true => &self.compact,
            false if arena.config().expandable_segments => &self.expandable,
            false => &self.segments,
        }
    }

    /// Gives all free memory back to the driver. PyTorch: `release_cached_blocks`.
    pub(crate) fn release(&self) -> Result<()> {
        let mut released = Ok(());
        let sources: [&dyn Source; 2] = [&self.segments, &self.expandable];
        for pool in POOLS {
            for source in sources {
                for arena in self.context.arenas.of_streams() {
                    released = released.and(source.release(&self.context, arena, pool));
                }
            }
        }
        for (arena, pool) in self.context.arenas.shared().into_iter().flat_map(|arena| POOLS.map(|pool| (arena, pool)))
        {
            released = released.and(self.compact.release(&self.context, arena, pool));
        }
        self.context.returning.wait();
        released
    }

    /// With caching off, gives the free memory of an arena back. Memory that the driver refuses to take stays free, and
    /// is offered again later.
    pub(crate) fn release_uncached(&self, stream: StreamId) {
        let (context, arena) = (&self.context, self.context.arenas.of(stream));
        let is_shared = arena.lock().is_shared();
        for pool in POOLS {
            let _ = match is_shared {
                true => self.compact.release(context, arena, pool),
                false => {
                    let segments = self.segments.release(context, arena, pool);
                    segments.and(self.expandable.release(context, arena, pool))
                }
            };
        }
    }
}

const POOLS: [PoolKind; 2] = [PoolKind::Large, PoolKind::Small];
