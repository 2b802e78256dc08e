//! Free blocks of one size, in the order of their positions: a pairing heap.
//!
//! The first block is at the top. Each block links its first child, and the children of a block link each other with
//! [`Block::below`]: the first slot has the next one, and the second the previous one, or for the first child its
//! parent. The top has no siblings, so its slots are free for the tree that it is in. Inserting a block takes a
//! comparison and a few writes, however many there are; removing one takes a number of steps that grows with the
//! logarithm, on average over several removals.

#[cfg(debug_assertions)]
mod check;

#[cfg(debug_assertions)]
pub(super) use self::check::check;

use super::{Block, BlockId};

const NEXT: usize = 0;
const PREVIOUS: usize = 1;

/// Puts a block, with all that is below it, below the top of another heap, which precedes it.
#[inline(always)]
pub(super) fn put_below(blocks: &mut [Block], top: BlockId, id: BlockId) {
    let first = blocks[top].child.replace(id);
    blocks[id].below = [first, Some(top)];
    if let Some(first) = first {
        blocks[first].below[PREVIOUS] = Some(id);
    }
}

/// Inserts a block into a heap that no tree links. Returns the top.
#[inline(always)]
pub(super) fn insert(blocks: &mut [Block], top: BlockId, id: BlockId) -> BlockId {
    let first = meld(blocks, top, id);
    blocks[first].below = [None; 2];
    first
}

/// Removes a block from a heap of several that no tree links.
#[inline(never)]
pub(super) fn remove_from(blocks: &mut [Block], top: &mut Option<BlockId>, id: BlockId) {
    if *top != Some(id) {
        return remove(blocks, id);
    }
    *top = take_below(blocks, id);
    if let Some(top) = *top {
        blocks[top].below = [None; 2];
    }
}

/// Removes a block that is not the top.
pub(super) fn remove(blocks: &mut [Block], id: BlockId) {
    let [next, previous] = blocks[id].below;
    // What is below the block takes its place, since that comes behind the parent, too.
    let instead = take_below(blocks, id);
    if let Some(instead) = instead {
        blocks[instead].below = [next, previous];
    }
    if let Some(next) = next {
        blocks[next].below[PREVIOUS] = instead.or(previous);
    }
    let Some(previous) = previous else { return };
    let link = match blocks[previous].child == Some(id) {
        true => &mut blocks[previous].child,
        false => &mut blocks[previous].below[NEXT],
    };
    *link = instead.or(next);
}

/// Takes everything below a block away from it, as one heap. Returns its top, whose slots are free.
pub(super) fn take_below(blocks: &mut [Block], id: BlockId) -> Option<BlockId> {
    let mut rest = blocks[id].child.take();
    // First meld pairs of neighbours, then all pairs: this order is what bounds the number of steps.
    let mut pairs = None;
    while let Some(one) = rest {
        let other = blocks[one].below[NEXT];
        rest = other.and_then(|other| blocks[other].below[NEXT]);
        let pair = other.map_or(one, |other| meld(blocks, one, other));
        blocks[pair].below[NEXT] = pairs;
        pairs = Some(pair);
    }
    let mut top = pairs?;
    rest = blocks[top].below[NEXT];
    while let Some(pair) = rest {
        rest = blocks[pair].below[NEXT];
        top = meld(blocks, top, pair);
    }
    Some(top)
}

/// Returns the block after the top. From then on it is the only one that is directly below the top.
pub(super) fn second(blocks: &mut [Block], top: BlockId) -> Option<BlockId> {
    let second = take_below(blocks, top)?;
    put_below(blocks, top, second);
    Some(second)
}

/// Returns all blocks, in any order. A heap may be as deep as it has blocks, so this does not recurse.
pub(super) fn all(blocks: &[Block], top: BlockId) -> impl Iterator<Item = BlockId> {
    std::iter::successors(Some(top), move |id| blocks[*id].child.or_else(|| after_all_below(blocks, top, *id)))
}

/// Returns the block that comes next after a block and all that is below it.
fn after_all_below(blocks: &[Block], top: BlockId, mut id: BlockId) -> Option<BlockId> {
    while id != top {
        let [next, previous] = blocks[id].below;
        if next.is_some() {
            return next;
        }
        // Back over the siblings to the parent.
        let mut previous = previous?;
        while blocks[previous].child != Some(id) {
            (id, previous) = (previous, blocks[previous].below[PREVIOUS]?);
        }
        id = previous;
    }
    None
}

#[inline(always)]
fn meld(blocks: &mut [Block], one: BlockId, other: BlockId) -> BlockId {
    let (top, below) = if precedes(blocks, one, other) { (one, other) } else { (other, one) };
    put_below(blocks, top, below);
    top
}

/// Returns whether `one` comes before `other`, which has the same size. If positions have wrapped and are equal, the
/// order does not matter.
#[inline(always)]
pub(super) fn precedes(blocks: &[Block], one: BlockId, other: BlockId) -> bool {
    blocks[one].position < blocks[other].position
}
