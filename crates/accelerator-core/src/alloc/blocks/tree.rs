//! The free blocks of one bin: a binary tree of their sizes, in which blocks of one size are a [heap](super::heap).
//!
//! The tree is a treap whose links lie in the blocks: each node has a priority that depends on its size alone and is no
//! lower than those below it. The tree is therefore as flat as a random one, whatever the order in which sizes come and
//! go.

#[cfg(debug_assertions)]
mod check;

#[cfg(debug_assertions)]
pub(super) use self::check::check;

use super::{Block, BlockId, heap};

/// The topmost block of a tree; `None` if it is empty.
pub(crate) type Root = Option<BlockId>;

/// The slots of [`Block::below`](super::Block::below) of smaller and of larger sizes.
const SMALLER: usize = 0;
const LARGER: usize = 1;

/// The block and slot that link to a place in the tree; `None` for the root.
type Link = Option<(BlockId, usize)>;

/// Inserts a block into a tree that is not empty.
#[inline(never)]
pub(crate) fn insert(blocks: &mut [Block], root: &mut Root, id: BlockId) {
    let size = blocks[id].size;
    let (mut link, mut rest) = (None, *root);
    while let Some(top) = rest {
        let other = blocks[top].size;
        if other == size {
            return insert_among_equals(blocks, root, link, top, id);
        }
        // A size that is in the tree has its priority, so it is not below a lower one.
        if rank(other) < rank(size) {
            break;
        }
        let side = side_of(size, other);
        (link, rest) = (Some((top, side)), blocks[top].below[side]);
    }
    hang(blocks, root, link, Some(id));
    // Split the rest at the new size: smaller sizes go below one side, and larger ones below the other.
    let mut links = [(id, SMALLER), (id, LARGER)];
    while let Some(top) = rest {
        let side = side_of(size, blocks[top].size);
        let (above, free) = links[1 - side];
        blocks[above].below[free] = rest;
        links[1 - side] = (top, side);
        rest = blocks[top].below[side];
    }
    for (above, free) in links {
        blocks[above].below[free] = None;
    }
}

/// Returns whether this is the only block of the tree that it is in.
#[inline(always)]
pub(crate) fn is_alone(blocks: &[Block], root: Root, id: BlockId) -> bool {
    let block = &blocks[id];
    root == Some(id) && block.below == [None; 2] && block.child.is_none()
}

/// Removes a block, which must be in the tree and not be [alone](is_alone) there.
#[inline(never)]
pub(crate) fn remove(blocks: &mut [Block], root: &mut Root, id: BlockId) {
    let size = blocks[id].size;
    let (mut link, mut rest) = (None, *root);
    while let Some(top) = rest.filter(|top| *top != id) {
        let other = blocks[top].size;
        if other == size {
            return heap::remove(blocks, id);
        }
        let side = side_of(size, other);
        (link, rest) = (Some((top, side)), blocks[top].below[side]);
    }
    let mut below = blocks[id].below;
    if let Some(next) = heap::take_below(blocks, id) {
        blocks[next].below = below;
        return hang(blocks, root, link, Some(next));
    }
    // Merge the two subtrees below the removed block.
    while let [Some(smaller), Some(larger)] = below {
        let (top, side) = match rank(blocks[smaller].size) >= rank(blocks[larger].size) {
            true => (smaller, LARGER),
            false => (larger, SMALLER),
        };
        hang(blocks, root, link, Some(top));
        link = Some((top, side));
        below[1 - side] = blocks[top].below[side];
    }
    hang(blocks, root, link, below[SMALLER].or(below[LARGER]));
}

/// Returns the first block.
#[inline(always)]
pub(crate) fn first(blocks: &[Block], mut top: BlockId) -> BlockId {
    while let Some(smaller) = blocks[top].below[SMALLER] {
        top = smaller;
    }
    top
}

/// Returns the first block of at least `size` bytes.
#[inline(always)]
pub(crate) fn first_from(blocks: &[Block], root: Root, size: u64) -> Root {
    let (mut found, mut rest) = (None, root);
    while let Some(id) = rest {
        let block = &blocks[id];
        let fits = block.size >= size;
        if fits {
            found = rest;
        }
        rest = block.below[if fits { SMALLER } else { LARGER }];
    }
    found
}

/// Returns the last block.
pub(crate) fn last(blocks: &[Block], root: Root) -> Root {
    let largest = std::iter::successors(root, |id| blocks[*id].below[LARGER]).last()?;
    heap::all(blocks, largest).max_by_key(|id| blocks[*id].position)
}

/// Calls a function for each block, in any order.
pub(crate) fn each(blocks: &[Block], root: Root, function: &mut impl FnMut(BlockId)) {
    let Some(id) = root else { return };
    heap::all(blocks, id).for_each(&mut *function);
    let [smaller, larger] = blocks[id].below;
    each(blocks, smaller, function);
    each(blocks, larger, function);
}

#[inline(always)]
fn insert_among_equals(blocks: &mut [Block], root: &mut Root, link: Link, top: BlockId, id: BlockId) {
    if heap::precedes(blocks, top, id) {
        heap::put_below(blocks, top, id);
    } else {
        blocks[id].below = blocks[top].below;
        heap::put_below(blocks, id, top);
        hang(blocks, root, link, Some(id));
    }
}

#[inline(always)]
fn hang(blocks: &mut [Block], root: &mut Root, link: Link, id: Root) {
    match link {
        Some((above, side)) => blocks[above].below[side] = id,
        None => *root = id,
    }
}

/// Returns the side of another size on which a size belongs.
#[inline(always)]
fn side_of(size: u64, other: u64) -> usize {
    if size < other { SMALLER } else { LARGER }
}

/// Returns the heap priority of a size. Priorities are as good as random, even among every nth size, so trees stay
/// flat.
#[inline(always)]
fn rank(size: u64) -> u64 {
    let mixed = size.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
