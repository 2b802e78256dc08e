//! The memory of a device.

use super::compact::CompactSource;
use super::context::{Context, Grown};
use super::expandable::Expandable;
use super::interface::{Entry, Limits, Source, Wanted};
use super::segments::Segments;
use crate::alloc::arena::{Arena, ArenaId};
use crate::alloc::arenas::Parameters;
use crate::alloc::blocks::{Base, PageRange};
use crate::alloc::history::HistoryContext;
use crate::share::Piece;
use crate::sync::OwnedLock;
use crate::types::{DriverResult, PoolKind, Result, StreamId};

/// The memory of a device: its arenas, and the sources of new memory.
pub(crate) struct Memory {
    pub(crate) context: Context,
    sources: [Box<dyn Source>; 3],
}

const LARGE_FIRST: [PoolKind; 2] = [PoolKind::Large, PoolKind::Small];

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

    /// Gives all free memory outside of private pools back to the driver. PyTorch: `release_cached_blocks`.
    pub(crate) fn release(&self) -> Result<()> {
        let arenas = &self.context.arenas;
        let of_streams = self.release_from(|| arenas.of_streams(), LARGE_FIRST);
        let released = of_streams.and(self.release_from(|| arenas.shared().into_iter(), LARGE_FIRST));
        self.context.returning.wait();
        released
    }

    /// Gives all free memory of a private pool, which has these arenas, back to the driver.
    pub(crate) fn release_pool(&self, arenas: &[ArenaId]) -> Result<()> {
        let [large, small] = LARGE_FIRST;
        let released = self.release_from(|| arenas.iter().map(|id| self.context.arenas.of(*id)), [small, large]);
        self.context.returning.wait();
        released
    }

    /// Gives back the addresses of a released private pool, which has these arenas, where no memory is mapped.
    pub(crate) fn release_unused_addresses(&self, arenas: &[ArenaId]) {
        for arena in arenas {
            self.sources.iter().for_each(|source| source.release_unused_addresses(&self.context, *arena));
        }
    }

    /// With caching off, gives the free memory of an arena back. Memory that the driver refuses to take stays free, and
    /// is offered again later. A private pool keeps its memory, which a graph may use.
    pub(crate) fn release_uncached(&self, arena: ArenaId) {
        if arena.number_of_private().is_none() {
            let _ = self.release_from(|| std::iter::once(self.context.arenas.of(arena)), LARGE_FIRST);
        }
    }

    /// Returns where the pages of an arena are; see [`Source::page_runs`].
    pub(crate) fn page_runs(&self, arena: ArenaId) -> Vec<(Base, u64, u64)> {
        self.sources.iter().flat_map(|source| source.page_runs(arena)).collect()
    }

    /// Returns the bytes of an arena that went back to the driver while they are paused.
    pub(crate) fn paused_bytes(&self, arena: ArenaId) -> u64 {
        self.sources.iter().map(|source| source.paused_bytes(arena)).sum()
    }

    /// Exports the pages that contain these bytes of a segment; see [`Source::export`].
    pub(crate) fn export(&self, arena: ArenaId, bytes: PageRange) -> Option<DriverResult<(Vec<Piece>, u64)>> {
        self.sources.iter().find_map(|source| source.export(&self.context, arena, bytes))
    }

    /// Gives the pages of arenas back to the driver, but not their addresses and blocks.
    pub(crate) fn pause(&self, arenas: &[ArenaId]) -> Result<()> {
        let mut all = arenas.iter().flat_map(|arena| self.sources.iter().map(|source| (source, *arena)));
        all.try_for_each(|(source, arena)| source.pause(&self.context, arena))
    }

    /// Maps new pages at the addresses of paused pages of these arenas.
    pub(crate) fn resume(&self, arenas: &[ArenaId], limits: Limits) -> Grown<()> {
        let mut all = arenas.iter().flat_map(|arena| self.sources.iter().map(|source| (source, *arena)));
        all.try_for_each(|(source, arena)| source.resume(&self.context, arena, limits))
    }

    fn release_from<'a, I: Iterator<Item = &'a OwnedLock<Arena>>>(
        &self,
        arenas: impl Fn() -> I,
        pools: [PoolKind; 2],
    ) -> Result<()> {
        let mut released = Ok(());
        for pool in pools {
            for source in &self.sources {
                for arena in arenas() {
                    released = released.and(source.release(&self.context, arena, pool));
                }
            }
        }
        released
    }
}
