//! Strips: addresses where chunks that lie apart at home show once more, one behind the other. A request that no home has room
//! for in one piece gets its bytes here. A strip is kept: what was once put together need not be again.
//!
//! Whether bytes are free is told by the blocks at home alone. A block in a strip holds *shadows*, the blocks at home that have
//! its bytes, in a chain.

use std::collections::BTreeSet;

use super::owners::Owner;
use crate::alloc::arena::Arena;
use crate::alloc::block::{Block, BlockId, SegmentId, State};
use crate::backend::DevicePtr;
use crate::types::PoolKind;

/// Chunks that show once more.
#[derive(Debug)]
pub(super) struct Strip {
    pub(super) segment: SegmentId,
    /// The position of its start.
    pub(super) start: u64,
    pub(super) pieces: Vec<Piece>,
    /// The blocks in it.
    pub(super) blocks: BTreeSet<BlockId>,
    /// When it was last used, as uses of strips are counted.
    pub(super) used: u64,
    /// The epochs in which blocks of it were last freed, of each owner.
    pub(super) freed: Vec<(Owner, u32)>,
    /// Whether its pieces are being unmapped.
    pub(super) leaves: bool,
}

/// One chunk of a strip. The same chunk may come twice, where a block has its end and then its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Bytes from the start of the strip.
    pub(super) offset: u64,
    /// The position of the chunk at home.
    pub(super) chunk: u64,
    pub(super) len: u64,
    pub(super) mapped: bool,
}

impl Strip {
    pub(super) fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |last| last.offset + last.len)
    }

    /// Where the bytes from a position on are at home, and how many, whether they are mapped or not.
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

impl super::Compact {
    /// The strip that a position is in: its start.
    pub(super) fn strip_of(&self, position: u64) -> Option<u64> {
        let (start, strip) = self.strips.range(..=position).next_back()?;
        (position < start + strip.len()).then_some(*start)
    }

    /// Bytes of the addresses where chunks show once more.
    pub(super) fn stitched(&self) -> u64 {
        self.strips.values().map(Strip::len).sum()
    }

    /// How many of them are of use.
    pub(super) fn strips_limit(&self) -> u64 {
        2 * self.reserved
    }

    /// Whether there are more.
    pub(super) fn has_old_strips(&self) -> bool {
        self.stitched() > self.strips_limit()
    }
}

impl<P: DevicePtr> Arena<P> {
    /// Takes in a strip of these chunks, so many of which were mapped: the position of its start.
    pub(super) fn add_strip(&mut self, ptr: P, chunks: &[(u64, u64)], mapped: usize) -> u64 {
        let mut offset = 0;
        let pieces = chunks.iter().enumerate().map(|(number, (chunk, len))| {
            let piece = Piece { offset, chunk: *chunk, len: *len, mapped: number < mapped };
            offset += len;
            piece
        });
        let pieces: Vec<_> = pieces.collect();
        let segment = self.blocks.add_empty_segment(ptr, offset, 0, PoolKind::Large, None);
        let start = self.blocks.segments[segment].position;
        let strip = Strip {
            segment,
            start,
            pieces,
            blocks: BTreeSet::new(),
            used: 0,
            freed: Vec::new(),
            leaves: false,
        };
        self.compact_mut().strips.insert(start, strip);
        start
    }

    /// Whether the owner can use bytes of a strip; `None`: they are not even free.
    pub(super) fn can_use_of_strip(
        &self,
        strip: u64,
        position: u64,
        size: u64,
        owner: Owner,
    ) -> Option<bool> {
        let strip = &self.compact().strips[&strip];
        if !strip.is_mapped(position, size) {
            return None;
        }
        strip.parts(position, size).try_fold(true, |known, (position, len)| {
            self.can_use_at_home(position, len, owner).map(|can_use| known & can_use)
        })
    }

    /// Bytes of a strip become a block.
    pub(super) fn claim_of_strip(&mut self, strip: u64, position: u64, size: u64, owner: Owner) -> BlockId {
        let parts: Vec<_> = self.compact().strips[&strip].parts(position, size).collect();
        let mut first = None;
        for (position, len) in parts.into_iter().rev() {
            let shadow = self.hold(position, len, owner);
            self.blocks[shadow].below[0] = first;
            first = Some(shadow);
        }
        let segment = self.compact().strips[&strip].segment;
        let block = Block::new(segment, &self.blocks.segments[segment], position, size);
        let below = [first, None];
        let id = self.blocks.blocks.insert(Block { state: State::Allocated, owner, below, ..block });
        let compact = self.compact_mut();
        compact.uses += 1;
        if let Some(strip) = compact.strips.get_mut(&strip) {
            strip.used = compact.uses;
            strip.blocks.insert(id);
        }
        id
    }

    /// The bytes of a block in a strip become free, and the block is gone.
    pub(super) fn leave_strip(&mut self, strip: u64, id: BlockId) {
        let Block { owner, mut below, .. } = self.blocks[id];
        self.blocks.blocks.remove(id);
        while let [Some(shadow), _] = below {
            below = self.blocks[shadow].below;
            self.put_free(shadow, owner);
        }
        let compact = self.compact_mut();
        let epoch = compact.owners[owner].epoch;
        if let Some(strip) = compact.strips.get_mut(&strip) {
            strip.blocks.remove(&id);
            strip.freed.retain(|(earlier, _)| *earlier != owner);
            strip.freed.push((owner, epoch));
        }
    }

    /// The shortest row of usable bytes in any strip that has so many: those that it has, and where it starts.
    pub(super) fn row_in_strips(&self, size: u64, owner: Owner) -> Option<(u64, u64)> {
        let strips = self.compact().strips.values().filter(|strip| !strip.leaves);
        strips.filter_map(|strip| self.row_in_strip(strip, size, owner)).min()
    }

    fn row_in_strip(&self, strip: &Strip, size: u64, owner: Owner) -> Option<(u64, u64)> {
        let mut best: Option<(u64, u64)> = None;
        let mut consider = |len: u64, start: u64| {
            if len >= size && best.is_none_or(|(best, _)| len < best) {
                best = Some((len, start));
            }
        };
        // The row so far: its bytes, where it starts, and its first piece.
        let (mut row, mut start, mut first) = (0, 0, 0);
        for (number, piece) in strip.pieces.iter().enumerate() {
            let Piece { offset, chunk, len, mapped } = *piece;
            let lead = if mapped { self.lead(chunk, len, owner) } else { 0 };
            if row == 0 {
                (start, first) = (offset, number);
            }
            let again = strip.pieces[first..number].iter().any(|earlier| earlier.chunk == chunk);
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
            row = if mapped { self.trail(chunk, len, owner) } else { 0 };
            (start, first) = (offset + len - row, number);
        }
        consider(row, start);
        best.map(|(len, start)| (len, strip.start + start))
    }
}
