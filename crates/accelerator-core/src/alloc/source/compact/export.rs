//! Memory for other processes: the chunks that contain a block, wherever it is.

use super::epochs::Mapper;
use super::{Compact, CompactSource};
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::{PageRange, SegmentId};
use crate::alloc::source::context::Context;
use crate::share::Piece;
use crate::sync::primitives::lock;
use crate::types::DriverResult;

impl CompactSource {
    /// Exports the chunks that contain these bytes of a segment, which may be an alias range.
    pub(super) fn export_chunks(
        &self,
        context: &Context,
        arena: ArenaId,
        bytes: PageRange,
    ) -> Option<DriverResult<(Vec<Piece>, u64)>> {
        if !context.arenas.of(arena).lock().is_shared() {
            return None;
        }
        let mut mapper = Mapper { context, arena, mapped: lock(self.mapped(arena)) };
        if !mapper.mapped.mappings.has(bytes.segment) {
            return None; // a segment of a device without virtual memory
        }
        let in_alias = mapper.in_arena(|compact| compact.chunks_in_alias(bytes));
        let (chunks, offset) =
            in_alias.unwrap_or_else(|| mapper.mapped.mappings.chunks_of(bytes.segment, bytes.offset..bytes.end()));
        Some(mapper.mappings().export(&chunks).map(|pieces| (pieces, offset)))
    }
}

impl Compact {
    /// Returns the chunks that contain these bytes, if the segment is an alias range, and the offset of the bytes in
    /// the first one.
    fn chunks_in_alias(&self, bytes: PageRange) -> Option<(Vec<(SegmentId, u64)>, u64)> {
        let alias = self.aliases.values().find(|alias| alias.segment == bytes.segment)?;
        let overlapping =
            |piece: &&super::aliases::Piece| piece.offset < bytes.end() && bytes.offset < piece.offset + piece.len;
        let pieces: Vec<_> = alias.pieces.iter().filter(overlapping).collect();
        let start = pieces.first().map_or(bytes.offset, |first| first.offset);
        Some((pieces.iter().map(|piece| self.place_of_chunk(piece.chunk)).collect(), bytes.offset - start))
    }
}

#[cfg(test)]
mod tests;
