//! Aliases: ranges of addresses where chunks that lie apart in reserved ranges show once more, one behind the other. A request
//! that no reserved range has room for in one piece gets its bytes here. An alias is kept: what was once put together need
//! not be again.
//!
//! Whether bytes are free is told by the blocks of the reserved ranges alone. A block in an alias has *backing blocks*, those
//! of the reserved ranges that have its bytes, in a chain.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::Compact;
use crate::alloc::blocks::{Base, Block, BlockId, NewSegment, Owner, SegmentId, State};
use crate::types::PoolKind;

/// Chunks that show once more.
#[derive(Debug)]
pub(super) struct AliasRange {
    pub(super) segment: SegmentId,
    /// The position of its start.
    pub(super) start: u64,
    pub(super) pieces: Vec<Piece>,
    /// The blocks in it.
    pub(super) blocks: BTreeSet<BlockId>,
    /// When it was last used, as uses of aliases are counted.
    pub(super) used: u64,
    /// The epochs in which blocks of it were last freed, of each owner.
    pub(super) freed: Vec<(Owner, u32)>,
    /// Whether its pieces are being unmapped.
    pub(super) leaves: bool,
}

/// One chunk of an alias. The same chunk may come twice, where a block has its end and then its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Bytes from the start of the alias.
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
    /// How many of them are mapped.
    pub(super) mapped: usize,
}

impl AliasRange {
    pub(super) fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |last| last.offset + last.len)
    }

    /// Where the bytes from a position on are in reserved ranges, and how many, whether they are mapped or not.
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
    /// The alias that a position is in: its start.
    pub(super) fn alias_at(&self, position: u64) -> Option<u64> {
        let (start, alias) = self.aliases.range(..=position).next_back()?;
        (position < start + alias.len()).then_some(*start)
    }

    /// Bytes of the addresses where chunks show once more.
    pub(super) fn aliased(&self) -> u64 {
        self.aliases.values().map(AliasRange::len).sum()
    }

    /// How many of them are of use, where there are more.
    pub(super) fn aliases_limit(&self) -> Option<u64> {
        let limit = 2 * self.reserved;
        (self.aliased() > limit).then_some(limit)
    }

    /// Takes in an alias: its segment, and the position of its start.
    pub(super) fn add_alias(&mut self, alias: &MappedAlias) -> (SegmentId, u64) {
        let MappedAlias { addresses: (base, _), chunks, mapped } = alias;
        let mut offset = 0;
        let pieces = chunks.iter().enumerate().map(|(number, (chunk, len))| {
            let piece = Piece { offset, chunk: *chunk, len: *len, mapped: number < *mapped };
            offset += len;
            piece
        });
        let pieces: Vec<_> = pieces.collect();
        let addresses =
            NewSegment { base: *base, size: offset, created: 0, pool: PoolKind::Large, page: None };
        let segment = self.store.blocks.add_empty_segment(addresses);
        let start = self.store.blocks.segment(segment).position;
        let (blocks, used, freed, leaves) = Default::default();
        self.aliases.insert(start, AliasRange { segment, start, pieces, blocks, used, freed, leaves });
        (segment, start)
    }

    /// Whether the owner can use bytes of an alias; `None`: they are not even free.
    pub(super) fn can_use_in_alias(
        &self,
        alias: u64,
        position: u64,
        size: u64,
        owner: Owner,
    ) -> Option<bool> {
        let alias = &self.aliases[&alias];
        if !alias.is_mapped(position, size) {
            return None;
        }
        alias.parts(position, size).try_fold(true, |known, (position, len)| {
            self.can_use_in_range(position, len, owner).map(|can_use| known & can_use)
        })
    }

    /// Bytes of an alias become a block.
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

    /// The bytes of a block in an alias become free, and the block is gone.
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

    /// The shortest row of usable bytes in any alias that has so many: those that it has, and where it starts.
    pub(super) fn row_in_aliases(&self, size: u64, owner: Owner) -> Option<(u64, u64)> {
        let aliases = self.aliases.values().filter(|alias| !alias.leaves);
        aliases.filter_map(|alias| self.row_in_alias(alias, size, owner)).min()
    }

    fn row_in_alias(&self, alias: &AliasRange, size: u64, owner: Owner) -> Option<(u64, u64)> {
        let mut best: Option<(u64, u64)> = None;
        let mut consider = |len: u64, start: u64| {
            if len >= size && best.is_none_or(|(best, _)| len < best) {
                best = Some((len, start));
            }
        };
        // The row so far: its bytes, where it starts, and its first piece.
        let (mut row, mut start, mut first) = (0, 0, 0);
        for (number, piece) in alias.pieces.iter().enumerate() {
            let Piece { offset, chunk, len, mapped } = *piece;
            let (lead, trail) = if mapped { self.usable_ends(chunk, len, owner) } else { (0, 0) };
            if row == 0 {
                (start, first) = (offset, number);
            }
            let again = alias.pieces[first..number].iter().any(|earlier| earlier.chunk == chunk);
            if lead == len && !(again && row > 0) {
                row += len;
                continue;
            }
            if lead == len {
                // The same bytes once more: a row of its own.
                consider(row, start);
                (row, start, first) = (len, offset, number);
                continue;
            }
            consider(row + lead, start);
            row = trail;
            (start, first) = (offset + len - row, number);
        }
        consider(row, start);
        best.map(|(len, start)| (len, alias.start + start))
    }
}
