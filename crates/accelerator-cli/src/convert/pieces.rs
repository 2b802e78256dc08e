//! Divides a segment or range of pages that existed before a history starts into blocks and gaps.

use super::layout::SMALL;
use super::survey::{EarlyBlock, EarlySegment, GRAIN};

/// A part of a segment.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) size: u64,
    /// The block, or `None` for a gap.
    pub(super) block: Option<&'a EarlyBlock>,
}

/// Returns the pieces of a segment, and the blocks that do not fit into it. `size_of` returns the size of a block for
/// which only the requested size is known, given the room up to the next block. `fits` returns whether the pool has
/// blocks of this size.
pub(super) fn pieces<'a>(
    segment: &EarlySegment,
    blocks: &[&'a EarlyBlock],
    small: bool,
    size_of: impl Fn(&EarlyBlock, u64) -> u64,
    fits: impl Fn(u64) -> bool,
) -> (Vec<Piece<'a>>, Vec<&'a EarlyBlock>) {
    let (mut pieces, mut outside, mut end) = (Vec::new(), Vec::new(), 0);
    for (number, block) in blocks.iter().enumerate() {
        let place = block.address - segment.address;
        let next = blocks.get(number + 1).map_or(segment.size, |next| next.address - segment.address);
        let room = next - place;
        let size = block.size.unwrap_or_else(|| size_of(block, room));
        let aligned = place.is_multiple_of(GRAIN) && size.is_multiple_of(GRAIN) && size > 0;
        if place < end || size > room || !aligned || !fits(size) {
            outside.push(*block);
            continue;
        }
        gap(&mut pieces, place - end, small);
        pieces.push(Piece { size, block: Some(block) });
        end = place + size;
    }
    gap(&mut pieces, segment.size - end, small);
    (pieces, outside)
}

/// Adds a gap. If no request of its pool could fill it, it becomes part of the previous piece.
fn gap(pieces: &mut Vec<Piece<'_>>, size: u64, small: bool) {
    match pieces.last_mut() {
        _ if size == 0 => {}
        Some(last) if !small && size <= SMALL => last.size += size,
        _ => pieces.push(Piece { size, block: None }),
    }
}
