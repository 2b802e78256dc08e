//! The memory of a device.

use super::compact::CompactSource;
use super::context::Context;
use super::expandable::Expandable;
use super::interface::{Entry, Source, Wanted};
use super::segments::Segments;
use crate::alloc::arena::{Arena, ArenaId};
use crate::alloc::arenas::Parameters;
use crate::alloc::history::HistoryContext;
use crate::sync::OwnedLock;
use crate::types::{PoolKind, Result, StreamId};

/// The memory of a device: its arenas, and the sources of new memory.
pub(crate) struct Memory {
    pub(crate) context: Context,
    sources: [Box<dyn Source>; 3],
}

impl Memory {
    pub(crate) fn new(context: Context) -> Self {
        let sources: [Box<dyn Source>; 3] =
            [Box::new(Segments), Box::new(Expandable::default()), Box::new(CompactSource::default())];
        Self { context, sources }
    }

    /// Prepares the data that the ladder needs if no block serves the request.
    pub(crate) fn wanted(&self, entry: &Entry<'_>, stream: StreamId, context: Option<HistoryContext>) -> Wanted<'_> {
        let (arena, request) = entry;
        let source = self.source_of(arena);
        let segment_size = source.segment_size(&self.context, arena, request);
        let parameters = Parameters { request: *request, stream, arena: arena.id(), context };
        Wanted { parameters, source, segment_size }
    }

    /// Returns the arena that serves a stream's request, and the request adapted to that arena, given the stream's own
    /// arena.
    pub(crate) fn enter<'a>(&'a self, own: Entry<'a>, stream: StreamId) -> Entry<'a> {
        self.sources.iter().fold(own, |entry, source| source.enter(&self.context, entry, stream))
    }

    /// Returns the source of new memory for an arena under the current settings.
    fn source_of(&self, arena: &Arena) -> &dyn Source {
        let source = self.sources.iter().find(|source| source.serves(arena));
        &**source.unwrap_or_else(|| unreachable!("every arena has a source"))
    }

    /// Gives all free memory back to the driver. PyTorch: `release_cached_blocks`.
    pub(crate) fn release(&self) -> Result<()> {
        let arenas = &self.context.arenas;
        let of_streams = self.release_from(|| arenas.of_streams());
        let released = of_streams.and(self.release_from(|| arenas.shared().into_iter()));
        self.context.returning.wait();
        released
    }

    /// With caching off, gives the free memory of an arena back. Memory that the driver refuses to take stays free, and
    /// is offered again later.
    pub(crate) fn release_uncached(&self, arena: ArenaId) {
        let _ = self.release_from(|| std::iter::once(self.context.arenas.of(arena)));
    }

    fn release_from<'a, I: Iterator<Item = &'a OwnedLock<Arena>>>(&self, arenas: impl Fn() -> I) -> Result<()> {
        let mut released = Ok(());
        for pool in [PoolKind::Large, PoolKind::Small] {
            for source in &self.sources {
                for arena in arenas() {
                    released = released.and(source.release(&self.context, arena, pool));
                }
            }
        }
        released
    }
}
