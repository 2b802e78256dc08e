//! Giving memory back: completely free chunks, and aliases that are not in use.

use std::collections::HashSet;

use super::Compact;
use super::aliases::{AliasRange, Piece};
use super::epochs::Mapper;
use super::owners::Owners;
use super::ranges::ReservedRange;
use crate::alloc::blocks::{Block, BlockId, Owner, PageRange, SegmentId, State};
use crate::types::{DriverResult, PoolKind, Result, StreamId};

/// Free chunks of one range, adjacent to each other, that are to be given back.
struct Leaving {
    range: usize,
    pages: PageRange,
    /// The blocks that hold the chunks.
    chunks: Vec<BlockId>,
}

/// A piece of an alias that is hidden and is to be unmapped: the start of the alias, and the index of the piece.
type Hidden = (u64, usize);

impl Mapper<'_> {
    /// Gives back every completely free chunk of a pool, and all aliases without blocks, after waiting for the streams
    /// that freed them.
    ///
    /// Memory freed by a stream that is being captured stays, because that stream cannot be waited for.
    pub(super) fn release(&mut self, pool: PoolKind) -> Result<()> {
        if self.context.driver.address_space().is_none() {
            // Segments go back even if this wait fails, because their driver waits itself. After the wait, any stream
            // may use the memory that remains.
            let waited = self.wait_for_epochs(None);
            self.give_back_segments(|segment| segment.pool == pool);
            return waited.map_err(|error| self.context.error(error));
        }
        self.give_back_idle(None, |_, of| of == pool)?;
        let mut arena = self.arena();
        let ranges = &mut Compact::of(&mut arena).ranges;
        let empty: Vec<_> = ranges.extract_if(.., |range| range.owned == 0).collect();
        for range in &empty {
            arena.remove_unmapped(range.segment);
        }
        drop(arena);
        empty.into_iter().for_each(|range| self.mappings().release(range.segment));
        Ok(())
    }

    /// Gives back the chosen chunks that are completely free, and all aliases without blocks, after waiting for one
    /// stream or all.
    pub(super) fn give_back_idle(
        &mut self,
        waits_for: Option<StreamId>,
        is_chosen: impl Fn(u64, PoolKind) -> bool,
    ) -> Result<()> {
        let context = self.context;
        self.wait_for_epochs(waits_for).map_err(|error| context.error(error))?;
        let _returning = context.returning.begin();
        self.drop_aliases(0).map_err(|error| context.error(error))?;
        let (leaving, hidden) = {
            let mut entered = context.arenas.enter(self.arena());
            let compact = Compact::of(entered.arena());
            let leaving = compact.chunks_to_give_back(is_chosen);
            let hidden = compact.hide_chunks(&leaving);
            entered.pages_leave(leaving.iter().map(|row| row.pages));
            (leaving, hidden)
        };
        let mut result = self.unmap_pieces(hidden);
        for leaving in leaving {
            result = self.give_back_chunks(leaving, result);
        }
        result.map_err(|error| context.error(error))
    }

    /// Gives chunks back one by one, unless something has already failed.
    fn give_back_chunks(&mut self, leaving: Leaving, mut result: DriverResult<()>) -> DriverResult<()> {
        let Leaving { range, pages: PageRange { segment, mut offset, .. }, chunks } = leaving;
        let (mut gone, mut kept) = (0, Vec::new());
        for block in chunks {
            let pages = PageRange { segment, offset, len: self.arena().block(block).size };
            offset += pages.len;
            result = result.and_then(|()| self.mappings().unmake((segment, pages.offset)));
            if result.is_ok() {
                self.in_arena(|compact| compact.remove_chunk(range, block));
                gone += pages.len;
            } else {
                kept.push((block, pages));
            }
        }
        let mut entered = self.context.arenas.enter(self.arena());
        let compact = Compact::of(entered.arena());
        let pool = compact.store.blocks.segment(segment).pool;
        for (block, _) in &kept {
            compact.put_free(*block, compact.store.blocks[*block].owner);
        }
        entered.pages_left(pool, gone, kept.into_iter().map(|(_, pages)| pages));
        result
    }

    /// Unmaps pieces of aliases. If the driver refuses one, it and all later ones count as mapped again.
    fn unmap_pieces(&mut self, hidden: Vec<Hidden>) -> DriverResult<()> {
        let mut result = Ok(());
        for (alias, number) in hidden {
            let (segment, Piece { offset, len, .. }) = self.in_arena(|compact| {
                let alias = &compact.aliases[&alias];
                (alias.segment, alias.pieces[number])
            });
            result = result.and_then(|()| self.mappings().unmap_piece((segment, offset), len));
            if result.is_err() {
                let mapped = |alias: &mut AliasRange| alias.pieces[number].mapped = true;
                self.in_arena(|compact| compact.aliases.get_mut(&alias).map(mapped));
            }
        }
        result
    }

    /// Gives up the aliases that were not used for the longest time, if the total length of all exceeds the limit.
    pub(super) fn drop_old_aliases(&mut self) {
        if let Some(limit) = self.in_arena(|compact| compact.aliases_limit()) {
            // An alias that the driver refuses to unmap is kept and tried again later.
            let _ = self.drop_aliases(limit);
        }
    }

    /// Gives up aliases that are not in use, until the total length of the others is at most `limit`.
    fn drop_aliases(&mut self, limit: u64) -> DriverResult<()> {
        let (leaving, hidden) = self.in_arena(|compact| compact.aliases_to_drop(limit));
        let result = self.unmap_pieces(hidden);
        for alias in leaving {
            if let Some(segment) = self.in_arena(|compact| compact.remove_alias(alias)) {
                self.context.arenas.statistics().alias_unmapped();
                self.mappings().release(segment);
            }
        }
        result
    }
}

impl AliasRange {
    /// Returns whether it has no blocks, and all work on its former blocks is over.
    pub(super) fn is_idle(&self, owners: &Owners) -> bool {
        self.blocks.is_empty() && !self.leaves && self.freed.iter().all(|(owner, epoch)| owners.is_over(*owner, *epoch))
    }

    /// Hides the chosen pieces, so that they are no longer used. Returns them.
    fn hide(&mut self, is_chosen: impl Fn(&Piece) -> bool) -> Vec<Hidden> {
        let pieces = self.pieces.iter_mut().enumerate();
        let chosen = pieces.filter(|(_, piece)| piece.mapped && is_chosen(piece));
        let hide = |(number, piece): (usize, &mut Piece)| {
            piece.mapped = false;
            (self.start, number)
        };
        chosen.map(hide).collect()
    }
}

impl Compact {
    /// Holds the chosen chunks that are completely free and on which all work is over.
    fn chunks_to_give_back(&mut self, is_chosen: impl Fn(u64, PoolKind) -> bool) -> Vec<Leaving> {
        let mut leaving: Vec<Leaving> = Vec::new();
        for range in 0..self.ranges.len() {
            let ReservedRange { segment, pool, .. } = self.ranges[range];
            self.join_what_is_over(segment);
            for free in self.free_and_over(segment) {
                let Block { position, size, owner, .. } = self.store.blocks[free];
                let is_within = |start: u64, len| start + len <= position + size && is_chosen(start, pool);
                let chunks = self.chunks[pool as usize].range(position..position + size);
                let chunks = chunks.map(|(start, len)| (*start, *len));
                let within: Vec<_> = chunks.filter(|(start, len)| is_within(*start, *len)).collect();
                let mut rest = free;
                for (start, len) in within {
                    let held = self.store.claim_part(rest, start - self.store.blocks[rest].position, len, owner);
                    self.store.blocks[held].state = State::Backing;
                    rest = self.store.blocks[held].next.unwrap_or(held);
                    let offset = start - self.store.blocks.segment(segment).position;
                    let is_next = |row: &&mut Leaving| row.range == range && row.pages.end() == offset;
                    if let Some(row) = leaving.last_mut().filter(is_next) {
                        row.pages.len += len;
                        row.chunks.push(held);
                    } else {
                        let pages = PageRange { segment, offset, len };
                        leaving.push(Leaving { range, pages, chunks: vec![held] });
                    }
                }
            }
        }
        leaving
    }

    /// Merges free neighbours of different owners on which all work is over.
    fn join_what_is_over(&mut self, range: SegmentId) {
        let mut at = self.store.blocks.segment(range).first;
        while let Some(id) = at {
            let next = self.store.blocks[id].next;
            at = next;
            if let Some(next) = next
                && self.is_free_and_over(id)
                && self.is_free_and_over(next)
                && !self.would_join_unfinished(next, self.store.blocks[id].owner)
            {
                let Block { owner, free_since, .. } = self.store.blocks[id];
                self.store.free.unlist::<false>(&mut self.store.blocks, next);
                self.put_free_since(next, owner, free_since);
            }
        }
    }

    /// Returns whether giving the block to the owner would merge it with bytes after it on which work is not over.
    fn would_join_unfinished(&self, id: BlockId, owner: Owner) -> bool {
        self.store.blocks[id].next.is_some_and(|behind| {
            let Block { state, owner: of, .. } = self.store.blocks[behind];
            (state, of) == (State::Free, owner) && !self.is_free_and_over(behind)
        })
    }

    /// Returns the free blocks of a range on which all work is over.
    fn free_and_over(&self, range: SegmentId) -> Vec<BlockId> {
        let blocks = self.store.blocks.of_segment(range).map(|(id, _)| id);
        blocks.filter(|id| self.is_free_and_over(*id)).collect()
    }

    fn is_free_and_over(&self, id: BlockId) -> bool {
        let Block { state, owner, free_since, .. } = self.store.blocks[id];
        state == State::Free && self.owners.is_over(owner, free_since)
    }

    /// Hides the pieces of all aliases that are mapped to these chunks. Returns them.
    fn hide_chunks(&mut self, leaving: &[Leaving]) -> Vec<Hidden> {
        let blocks = leaving.iter().flat_map(|row| &row.chunks);
        let chunks: HashSet<u64> = blocks.map(|block| self.store.blocks[*block].position).collect();
        let aliases = self.aliases.values_mut();
        aliases.flat_map(|alias| alias.hide(|piece| chunks.contains(&piece.chunk))).collect()
    }

    /// Replaces a held chunk, which has been unmapped, by addresses without memory.
    fn remove_chunk(&mut self, range: usize, block: BlockId) {
        let held = &mut self.store.blocks[block];
        let (position, len) = (held.position, held.size);
        (held.owner, held.free_since) = (0, 0);
        self.store.merge_and_list(block, State::Unmapped);
        let ReservedRange { pool, segment, .. } = self.ranges[range];
        self.chunks[pool as usize].remove(&position);
        self.costs.reserved -= len;
        self.ranges[range].owned -= len;
        // If the end of the range is unmapped now, the next chunk goes there.
        let start = self.store.blocks.segment(segment).position;
        let end = self.store.free.unmapped(pool).range(..self.end_of(range)).next_back();
        let Some((unmapped, last)) = end else { return };
        if *unmapped >= start && self.store.blocks[*last].next.is_none() {
            let end = *unmapped - start;
            let range = &mut self.ranges[range];
            range.end = range.end.min(end);
        }
    }

    /// Chooses aliases that are not in use, the least recently used first, until the total length of the others is at
    /// most `limit`. From now on they serve no requests. Returns them with their pieces.
    fn aliases_to_drop(&mut self, limit: u64) -> (Vec<u64>, Vec<Hidden>) {
        let mut aliased = self.aliased;
        let Self { owners, aliases, .. } = self;
        let mut idle: Vec<_> = aliases.values_mut().filter(|alias| alias.is_idle(owners)).collect();
        idle.sort_by_key(|alias| alias.used);
        let (mut leaving, mut hidden) = (Vec::new(), Vec::new());
        for alias in idle {
            if aliased <= limit {
                break;
            }
            aliased -= alias.len();
            alias.leaves = true;
            leaving.push(alias.start);
            hidden.extend(alias.hide(|_| true));
        }
        (leaving, hidden)
    }

    /// Removes an alias and returns its segment, if nothing is mapped there any more. Otherwise the alias may be used
    /// again.
    fn remove_alias(&mut self, start: u64) -> Option<SegmentId> {
        let alias = self.aliases.get_mut(&start)?;
        alias.leaves = false;
        if alias.pieces.iter().any(|piece| piece.mapped) {
            return None;
        }
        let alias = self.aliases.remove(&start)?;
        self.aliased -= alias.len();
        self.store.blocks.remove_segment(alias.segment);
        Some(alias.segment)
    }
}

#[cfg(test)]
mod tests;
