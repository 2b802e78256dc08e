//! The memory of a device.

use super::compact::CompactSource;
use super::context::Context;
use super::expandable::Expandable;
use super::interface::{Source, Wanted};
use super::segments::Segments;
use crate::alloc::arena::Arena;
use crate::alloc::arenas::{Arenas, Parameters};
use crate::alloc::history::HistoryContext;
use crate::alloc::settings::Request;
use crate::types::{PoolKind, Result, StreamId};

/// The memory of a device: what it is kept in, and where it comes from.
pub(crate) struct Memory {
    pub(crate) context: Context,
    segments: Segments,
    expandable: Expandable,
    pub(crate) compact: CompactSource,
}

impl Memory {
    pub(crate) fn new(context: Context) -> Self {
        let (segments, expandable, compact) = Default::default();
        Self { context, segments, expandable, compact }
    }

    pub(crate) fn arenas(&self) -> &Arenas {
        &self.context.arenas
    }

    /// A request, with what the ladder needs to know beside it if no block serves it.
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

    /// Where new memory of an arena comes from, as it is set now.
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
        for pool in POOLS {
            for source in self.of_streams() {
                for arena in self.arenas().of_streams() {
                    released = released.and(source.release(&self.context, arena, &[pool]));
                }
            }
        }
        if let Some(arena) = self.arenas().shared() {
            released = released.and(self.compact.release(&self.context, arena, &POOLS));
        }
        self.context.wait_for_returns();
        released
    }

    /// With caching off, gives back what an arena holds free. What the driver refuses to take stays free, and
    /// is offered again.
    pub(crate) fn release_uncached(&self, stream: StreamId) {
        let arena = self.arenas().of(stream);
        let (is_shared, is_cached) = {
            let arena = arena.lock();
            (arena.is_shared(), arena.config().caching)
        };
        if is_shared {
            let _ = self.compact.release(&self.context, arena, &POOLS);
            return;
        }
        for pool in POOLS {
            if !is_cached {
                let _ = self.segments.release(&self.context, arena, &[pool]);
            }
            let _ = self.expandable.release(&self.context, arena, &[pool]);
        }
    }

    /// The sources of memory in streams' own arenas.
    fn of_streams(&self) -> [&dyn Source; 2] {
        [&self.segments, &self.expandable]
    }
}

const POOLS: [PoolKind; 2] = [PoolKind::Large, PoolKind::Small];
