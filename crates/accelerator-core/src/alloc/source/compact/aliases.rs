//! Aliases: address ranges at which chunks from different places in reserved ranges are mapped a second time, one after
//! another. They serve a request that fits in no contiguous part of a reserved range. An alias is kept, so that the
//! same chunks need not be combined again.
//!
//! Only the blocks of the reserved ranges record which bytes are free. A block in an alias range has *backing blocks*:
//! the blocks in reserved ranges that hold its bytes, in a chain.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::Compact;
use super::ranges::UsableChunk;
use crate::alloc::blocks::{Base, Block, BlockId, Owner, Segment, SegmentId, State};
use crate::types::PoolKind;

/// Chunks that are mapped a second time.
#[derive(Debug)]
pub(super) struct AliasRange {
    pub(super) segment: SegmentId,
    /// The position of its start.
    pub(super) start: u64,
    pub(super) pieces: Vec<Piece>,
    /// The alias blocks in it.
    pub(super) blocks: BTreeSet<BlockId>,
    /// The value of the alias use counter when it was last used.
    pub(super) used: u64,
    /// For each owner, the epoch in which a block of it was last freed.
    pub(super) freed: Vec<(Owner, u32)>,
    /// Whether its pieces are being unmapped.
    pub(super) leaves: bool,
}

/// A chunk in an alias range. The same chunk may occur twice, if a block uses first its end and later its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The byte offset from the start of the alias range.
    pub(super) offset: u64,
    /// The position of the chunk in its reserved range.
    pub(super) chunk: u64,
    pub(super) len: u64,
    pub(super) mapped: bool,
}

/// An alias that the driver has mapped.
pub(super) struct MappedAlias {
    pub(super) addresses: (Base, NonZeroU64),
    /// Its chunks, each with its length.
    pub(super) chunks: Vec<(u64, u64)>,
    /// How many of the chunks are mapped.
    pub(super) mapped: usize,
}

impl AliasRange {
    pub(super) fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |last| last.offset + last.len)
    }

    /// Returns the parts of reserved ranges that correspond to these bytes, as positions and lengths, mapped or not.
    pub(super) fn parts(&self, position: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
        let (from, to) = (position - self.start, position - self.start + size);
        self.pieces.iter().filter_map(move |piece| {
            let (start, end) = (piece.offset.max(from), (piece.offset + piece.len).min(to));
            (start < end).then(|| (piece.chunk + (start - piece.offset), end - start))
        })
    }

    fn is_mapped(&self, position: u64, size: u64) -> bool {
        let (from, to) = (position - self.start, position - self.start + size);
        let gone = |piece: &Piece| !piece.mapped && piece.offset < to && from < piece.offset + piece.len;
        !self.leaves && to <= self.len() && !self.pieces.iter().any(gone)
    }
}

impl Compact {
    /// Returns the start of the alias range that contains a position.
    pub(super) fn alias_at(&self, position: u64) -> Option<u64> {
        let (start, alias) = self.aliases.range(..=position).next_back()?;
        (position < start + alias.len()).then_some(*start)
    }

    /// Returns the limit for the total length of all alias ranges, if it is exceeded.
    pub(super) fn aliases_limit(&self) -> Option<u64> {
        let limit = 2 * self.costs.reserved;
        (self.aliased > limit).then_some(limit)
    }

    /// Adds an alias range. Returns its segment and start position.
    pub(super) fn add_alias(&mut self, alias: &MappedAlias) -> (SegmentId, u64) {
        let MappedAlias { addresses: (base, _), chunks, mapped } = alias;
        let mut offset = 0;
        let pieces = chunks.iter().enumerate().map(|(number, (chunk, len))| {
            let piece = Piece { offset, chunk: *chunk, len: *len, mapped: number < *mapped };
            offset += len;
            piece
        });
        let pieces: Vec<_> = pieces.collect();
        let addresses = Segment::new(*base, offset, 0, PoolKind::Large, None);
        let segment = self.store.blocks.add_empty_segment(addresses);
        let start = self.store.blocks.segment(segment).position;
        self.aliased += offset;
        let (blocks, used, freed, leaves) = Default::default();
        self.aliases.insert(start, AliasRange { segment, start, pieces, blocks, used, freed, leaves });
        (segment, start)
    }

    /// Returns whether the owner can use these bytes of an alias range; `None` if they are not all mapped and free.
    pub(super) fn can_use_in_alias(&self, alias: u64, position: u64, size: u64, owner: Owner) -> Option<bool> {
        let alias = &self.aliases[&alias];
        if !alias.is_mapped(position, size) {
            return None;
        }
        alias.parts(position, size).try_fold(true, |known, (position, len)| {
            self.can_use_in_range(position, len, owner).map(|can_use| known & can_use)
        })
    }

    /// Turns bytes of an alias range into a block.
    pub(super) fn claim_in_alias(&mut self, alias: u64, position: u64, size: u64, owner: Owner) -> BlockId {
        let parts: Vec<_> = self.aliases[&alias].parts(position, size).collect();
        let mut first = None;
        for (position, len) in parts.into_iter().rev() {
            let backing = self.hold(position, len, owner);
            self.store.blocks[backing].below[0] = first;
            first = Some(backing);
        }
        let segment = self.aliases[&alias].segment;
        let block = Block::new(segment, self.store.blocks.segment(segment), position, size);
        let below = [first, None];
        let id = self.store.blocks.add_alone(Block { state: State::Allocated, owner, below, ..block });
        self.uses += 1;
        if let Some(alias) = self.aliases.get_mut(&alias) {
            alias.used = self.uses;
            alias.blocks.insert(id);
        }
        id
    }

    /// Frees the bytes of an alias block and removes the block.
    pub(super) fn free_in_alias(&mut self, alias: u64, id: BlockId) {
        let Block { owner, mut below, .. } = self.store.blocks[id];
        self.store.blocks.remove_alone(id);
        while let [Some(backing), _] = below {
            below = self.store.blocks[backing].below;
            self.put_free(backing, owner);
        }
        let epoch = self.owners[owner].epoch;
        if let Some(alias) = self.aliases.get_mut(&alias) {
            alias.blocks.remove(&id);
            alias.freed.retain(|(earlier, _)| *earlier != owner);
            alias.freed.push((owner, epoch));
        }
    }

    /// Returns the length and position of the shortest row of usable bytes with enough bytes in any alias range.
    pub(super) fn row_in_aliases(&self, size: u64, usable: &[UsableChunk]) -> Option<(u64, u64)> {
        let can_serve = |alias: &&AliasRange| !usable.is_empty() && !alias.leaves && alias.len() >= size;
        let aliases = self.aliases.values().filter(can_serve);
        aliases.filter_map(|alias| alias.row(size, usable)).min()
    }
}

impl AliasRange {
    /// Returns the length and position of the shortest row of usable bytes with enough bytes.
    fn row(&self, size: u64, usable: &[UsableChunk]) -> Option<(u64, u64)> {
        let mut best: Option<(u64, u64)> = None;
        let mut consider = |len: u64, start: u64| {
            if len >= size && best.is_none_or(|(best, _)| len < best) {
                best = Some((len, start));
            }
        };
        // The current row: its length, its start, and the index of its first piece.
        let (mut row, mut start, mut first) = (0, 0, 0);
        for (number, piece) in self.pieces.iter().enumerate() {
            let Piece { offset, chunk, len, mapped } = *piece;
            let found = usable.binary_search_by_key(&chunk, |usable| usable.start).ok().filter(|_| mapped);
            let (lead, trail) = found.map_or((0, 0), |place| (usable[place].lead, usable[place].trail));
            if row == 0 {
                (start, first) = (offset, number);
            }
            let again = || self.pieces[first..number].iter().any(|earlier| earlier.chunk == chunk);
            if lead == len && !(row > 0 && again()) {
                row += len;
                continue;
            }
            if lead == len {
                // These bytes are already in the row, so a new one begins.
                consider(row, start);
                (row, start, first) = (len, offset, number);
                continue;
            }
            consider(row + lead, start);
            row = trail;
            (start, first) = (offset + len - row, number);
        }
        consider(row, start);
        best.map(|(len, start)| (len, self.start + start))
    }
}

#[cfg(test)]
mod tests;
