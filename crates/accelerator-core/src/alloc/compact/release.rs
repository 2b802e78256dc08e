//! Memory goes back: chunks that are wholly free, and strips that nobody uses.

use std::collections::HashSet;

use super::Compact;
use super::homes::Home;
use super::memory::Memory;
use super::owners::{Owner, Owners};
use super::strips::Strip;
use crate::alloc::CachingAllocator;
use crate::alloc::arena::Arena;
use crate::alloc::block::{Block, BlockId, SegmentId, State};
use crate::alloc::expandable::PageRange;
use crate::backend::{Backend, DevicePtr, DriverResult};
use crate::stream::Stream;
use crate::sync::lock;
use crate::types::{PoolKind, Result, StreamId};
use crate::virtual_memory::VirtualMemory;

/// Free chunks of one home, one behind the other, that are held to be given back.
struct Leaving {
    home: usize,
    pool: PoolKind,
    /// Where each starts, its length, and what holds it.
    chunks: Vec<(u64, u64, BlockId)>,
}

impl Leaving {
    fn start(&self) -> u64 {
        self.chunks.first().map_or(0, |(start, ..)| *start)
    }

    fn end(&self) -> u64 {
        self.chunks.last().map_or(0, |(start, len, _)| start + len)
    }
}

/// A chunk at a place in a strip: the strip, the number of the piece, where it is and how long.
type Shown = (u64, usize, u64, u64);

impl<B: Backend> CachingAllocator<B> {
    /// Gives every chunk back that is wholly free, and all strips without blocks, after waiting for the streams that freed them.
    ///
    /// What a stream freed whose work is being captured stays: it could not be waited for.
    pub(in crate::alloc) fn release_compact(&self) -> Result<()> {
        let Some(shared) = self.shared.get() else { return Ok(()) };
        let mut memory = lock(&self.compact);
        let Some(driver) = self.backend.virtual_memory() else {
            // Segments go without waiting, which their driver does; what is left of others serves any stream then.
            let waited = self.wait_for_epochs(&mut memory, None);
            self.give_back(shared, Arena::detach_idle_segments);
            return waited.map_err(|error| self.driver_error(error));
        };
        self.give_back_idle(driver, &mut memory, None, |_| true)?;
        let empty = shared.lock().remove_empty_homes();
        empty.into_iter().for_each(|home| memory.release_home(driver, home));
        Ok(())
    }

    /// Gives those of the chosen chunks back that are wholly free, and all strips without blocks, after waiting for one stream or all.
    pub(super) fn give_back_idle(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        waits_for: Option<Stream<B>>,
        is_chosen: impl Fn(u64) -> bool,
    ) -> Result<()> {
        self.wait_for_epochs(memory, waits_for).map_err(|error| self.driver_error(error))?;
        let _returning = self.returning.begin();
        self.drop_strips(driver, memory, 0).map_err(|error| self.driver_error(error))?;
        let (leaving, shown) = {
            let mut arena = self.arena(StreamId::SHARED).lock();
            let leaving = arena.chunks_to_give_back(is_chosen);
            let shown = arena.pieces_to_unmap(&leaving);
            if let Some(recorder) = &mut self.ledger.lock().recorder {
                for row in &leaving {
                    let range = arena.range_at(row.home, row.start(), row.end() - row.start());
                    let address = arena.address_of(range).trace_address();
                    recorder.pages_unmapped(address, range.len, arena.owner_of_home(row.home));
                }
            }
            (leaving, shown)
        };
        let mut result = Ok(());
        for (strip, piece, offset, len) in shown {
            result = result.and_then(|()| memory.unmap_piece(driver, strip, offset, len));
            if result.is_err() {
                self.arena(StreamId::SHARED).lock().set_shown(strip, piece, true);
            }
        }
        for leaving in leaving {
            result = self.give_back_chunks(driver, memory, leaving, result);
        }
        result.map_err(|error| self.driver_error(error))
    }

    /// Gives chunks back one by one, unless something has failed before.
    fn give_back_chunks(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        leaving: Leaving,
        mut result: DriverResult<()>,
    ) -> DriverResult<()> {
        let Leaving { home, pool, chunks } = leaving;
        let mut gone = 0;
        let mut kept = Vec::new();
        for (position, len, block) in chunks {
            result = result.and_then(|()| memory.destroy_chunk(driver, position));
            let mut arena = self.arena(StreamId::SHARED).lock();
            if result.is_ok() {
                arena.remove_chunk(home, position, len, block);
                gone += len;
            } else {
                kept.push((position, len, block));
            }
        }
        let mut arena = self.arena(StreamId::SHARED).lock();
        let mut books = self.ledger.lock();
        if gone > 0 {
            books.pages_unmapped(pool, gone);
        }
        for (position, len, block) in kept {
            let owner = arena.blocks[block].owner;
            arena.put_free(block, owner);
            if let Some(recorder) = &mut books.recorder {
                let range = arena.range_at(home, position, len);
                let (address, owner) = (arena.address_of(range), arena.owner_of_home(home));
                recorder.pages_mapped(address.trace_address(), range, owner, None);
            }
        }
        result
    }

    /// Where chunks show more often than is of use, gives up the strips that were not used for the longest time.
    pub(super) fn drop_old_strips(&self, driver: &dyn VirtualMemory<B::Ptr>, memory: &mut Memory<B>) {
        let limit = {
            let arena = self.arena(StreamId::SHARED).lock();
            let compact = arena.compact();
            if compact.has_old_strips() { compact.strips_limit() } else { u64::MAX }
        };
        if limit < u64::MAX {
            // What the driver would not unmap stays in the books, and is tried again.
            let _ = self.drop_strips(driver, memory, limit);
        }
    }

    /// Gives up strips that nobody uses, until the others have so many bytes at most.
    fn drop_strips(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        limit: u64,
    ) -> DriverResult<()> {
        let leaving = self.arena(StreamId::SHARED).lock().strips_to_drop(limit);
        let mut result = Ok(());
        for start in leaving {
            let pieces = self.arena(StreamId::SHARED).lock().compact().strips[&start].pieces.clone();
            for (number, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.mapped) {
                result = result.and_then(|()| memory.unmap_piece(driver, start, piece.offset, piece.len));
                if result.is_ok() {
                    self.arena(StreamId::SHARED).lock().set_shown(start, number, false);
                }
            }
            if self.arena(StreamId::SHARED).lock().remove_strip(start) {
                self.ledger.lock().statistics.num_device_free += 1;
                memory.release_strip(driver, start);
            }
        }
        result
    }
}

impl Strip {
    /// Whether it has no blocks, and all work on those that it had is over.
    fn is_idle(&self, owners: &Owners) -> bool {
        self.blocks.is_empty()
            && !self.leaves
            && self.freed.iter().all(|(owner, epoch)| owners.is_over(*owner, *epoch))
    }
}

impl<P: DevicePtr> Arena<P> {
    /// Holds the chosen chunks that are wholly free and whose work is over.
    fn chunks_to_give_back(&mut self, is_chosen: impl Fn(u64) -> bool) -> Vec<Leaving> {
        let mut leaving: Vec<Leaving> = Vec::new();
        for home in 0..self.compact().homes.len() {
            let Home { segment, pool, .. } = self.compact().homes[home];
            self.join_what_is_over(segment);
            for free in self.free_and_over(segment) {
                let Block { position, size, owner, .. } = self.blocks[free];
                let within = self.compact().chunks[pool as usize].range(position..position + size);
                let within = within.filter(|(start, len)| *start + *len <= position + size);
                let within: Vec<_> = within.map(|(start, len)| (*start, *len)).collect();
                let mut rest = free;
                for (start, len) in within.into_iter().filter(|(start, _)| is_chosen(*start)) {
                    let held = self.claim_part(rest, start - self.blocks[rest].position, len, owner);
                    self.blocks[held].state = State::Aliased;
                    rest = self.blocks[held].next.unwrap_or(held);
                    match leaving.last_mut().filter(|last| last.home == home && last.end() == start) {
                        Some(row) => row.chunks.push((start, len, held)),
                        None => leaving.push(Leaving { home, pool, chunks: vec![(start, len, held)] }),
                    }
                }
            }
        }
        leaving
    }

    /// Makes one block of free neighbours of several owners, where all their work is over.
    fn join_what_is_over(&mut self, home: SegmentId) {
        let mut at = self.blocks.segments[home].first;
        while let Some(id) = at {
            let next = self.blocks[id].next;
            at = next;
            if let Some(next) = next
                && self.is_free_and_over(id)
                && self.is_free_and_over(next)
                && !self.would_join_unfinished(next, self.blocks[id].owner)
            {
                let Block { owner, free_since, .. } = self.blocks[id];
                self.unlist(next);
                self.put_free_since(next, owner, free_since);
            }
        }
    }

    /// Whether the block, were it the owner's, would be one with bytes behind it on which work goes on.
    fn would_join_unfinished(&self, id: BlockId, owner: Owner) -> bool {
        self.blocks[id].next.is_some_and(|behind| {
            let Block { state, owner: of, .. } = self.blocks[behind];
            (state, of) == (State::Free, owner) && !self.is_free_and_over(behind)
        })
    }

    /// The free blocks of a home whose work is over.
    fn free_and_over(&self, home: SegmentId) -> Vec<BlockId> {
        let first = self.blocks.segments[home].first;
        let blocks = std::iter::successors(first, |id| self.blocks[*id].next);
        blocks.filter(|id| self.is_free_and_over(*id)).collect()
    }

    fn is_free_and_over(&self, id: BlockId) -> bool {
        let Block { state, owner, free_since, .. } = self.blocks[id];
        state == State::Free && self.compact().owners.is_over(owner, free_since)
    }

    /// Where the chunks show in strips, and no longer will.
    fn pieces_to_unmap(&mut self, leaving: &[Leaving]) -> Vec<Shown> {
        let chunks: HashSet<u64> =
            leaving.iter().flat_map(|leaving| leaving.chunks.iter().map(|(start, ..)| *start)).collect();
        let mut shown = Vec::new();
        for (start, strip) in &mut self.compact_mut().strips {
            for (number, piece) in strip.pieces.iter_mut().enumerate() {
                if piece.mapped && chunks.contains(&piece.chunk) {
                    piece.mapped = false;
                    shown.push((*start, number, piece.offset, piece.len));
                }
            }
        }
        shown
    }

    /// Whether a piece of a strip shows its chunk.
    fn set_shown(&mut self, strip: u64, piece: usize, mapped: bool) {
        if let Some(strip) = self.compact_mut().strips.get_mut(&strip) {
            strip.pieces[piece].mapped = mapped;
        }
    }

    /// A chunk that was held is gone: addresses without memory.
    fn remove_chunk(&mut self, home: usize, position: u64, len: u64, block: BlockId) {
        let held = &mut self.blocks[block];
        held.state = State::Unmapped;
        (held.owner, held.free_since) = (0, 0);
        self.merge(block);
        self.list(block);
        let compact = self.compact_mut();
        let Home { pool, segment, .. } = compact.homes[home];
        compact.chunks[pool as usize].remove(&position);
        compact.reserved -= len;
        compact.homes[home].owned -= len;
        // What is unmapped at the end is where the next chunk goes.
        let start = self.blocks.segments[segment].position;
        let end = self.unmapped[pool as usize].range(..self.end_of(home)).next_back();
        let Some((unmapped, last)) = end else { return };
        if *unmapped >= start && self.blocks[*last].next.is_none() {
            let end = *unmapped - start;
            let home = &mut self.compact_mut().homes[home];
            home.end = home.end.min(end);
        }
    }

    /// The strips that nobody uses, the one that was not used for the longest time first, until the others have so many bytes: they
    /// are given to nobody from now on.
    fn strips_to_drop(&mut self, limit: u64) -> Vec<u64> {
        let mut stitched = self.compact().stitched();
        let Compact { owners, strips, .. } = self.compact_mut();
        let mut idle: Vec<_> = strips.iter_mut().filter(|(_, strip)| strip.is_idle(owners)).collect();
        idle.sort_by_key(|(_, strip)| strip.used);
        let mut leaving = Vec::new();
        for (start, strip) in idle {
            if stitched <= limit && limit > 0 {
                break;
            }
            stitched -= strip.len();
            strip.leaves = true;
            leaving.push(*start);
        }
        leaving
    }

    /// Takes a strip out of the books, if nothing is mapped there any more; else it may be used again. Whether it is gone.
    fn remove_strip(&mut self, start: u64) -> bool {
        let compact = self.compact_mut();
        let Some(strip) = compact.strips.get_mut(&start) else { return false };
        if strip.pieces.iter().any(|piece| piece.mapped) {
            strip.leaves = false;
            return false;
        }
        let segment = strip.segment;
        compact.strips.remove(&start);
        self.blocks.segments.remove(segment);
        true
    }

    /// Takes the homes out of the books that have no chunks: these.
    fn remove_empty_homes(&mut self) -> Vec<SegmentId> {
        let empty = self.compact().homes.iter().filter(|home| home.owned == 0);
        let empty: Vec<_> = empty.map(|home| home.segment).collect();
        for segment in &empty {
            self.remove_unmapped(*segment);
        }
        self.compact_mut().homes.retain(|home| home.owned > 0);
        empty
    }

    fn owner_of_home(&self, home: usize) -> StreamId {
        let compact = self.compact();
        compact.owners[compact.homes[home].owner].stream
    }

    fn range_at(&self, home: usize, position: u64, len: u64) -> PageRange {
        let segment = self.compact().homes[home].segment;
        PageRange { segment, offset: position - self.blocks.segments[segment].position, len }
    }
}
