//! Free blocks of similar sizes in best-fit order: a treap whose links are stored in the blocks.
//!
//! Most trees have one or two blocks. With ten thousand equal blocks, freed in any order, an operation takes a few
//! dozen steps; a sorted list would take thousands.

use super::{BlockId, Blocks, Id, Order};

/// The block at the root of a tree.
pub(crate) type Root = Option<BlockId>;

/// The sides of a block, used as indices.
const BEFORE: usize = 0;
const BEHIND: usize = 1;

/// Where a block is linked: below another block, or `None` for the root.
type Link = Option<(BlockId, usize)>;

/// Inserts a block and returns the new root.
#[inline(always)]
pub(crate) fn insert(blocks: &mut Blocks, root: Root, id: BlockId) -> Root {
    match root {
        None => {
            blocks[id].below = [None; 2];
            Some(id)
        }
        Some(_) => insert_below(blocks, root, id),
    }
}

/// Removes a block, which must be in the tree, and returns the new root.
#[inline(always)]
pub(crate) fn remove(blocks: &mut Blocks, root: Root, id: BlockId) -> Root {
    match blocks[id].below {
        [None, None] if root == Some(id) => None,
        _ => remove_below(blocks, root, id),
    }
}

/// Returns the first block of at least `size` bytes.
#[inline(always)]
pub(crate) fn first_from(blocks: &Blocks, root: Root, size: u64) -> Root {
    let (mut found, mut rest) = (None, root);
    while let Some(id) = rest {
        let block = &blocks[id];
        let fits = block.size >= size;
        if fits {
            found = rest;
        }
        rest = block.below[if fits { BEFORE } else { BEHIND }];
    }
    found
}

/// Returns the first block after this place in the order.
pub(crate) fn first_behind(blocks: &Blocks, root: Root, place: Order) -> Root {
    let (mut found, mut rest) = (None, root);
    while let Some(id) = rest {
        let is_behind = blocks.order(id) > place;
        if is_behind {
            found = rest;
        }
        rest = blocks[id].below[if is_behind { BEFORE } else { BEHIND }];
    }
    found
}

pub(crate) fn last(blocks: &Blocks, root: Root) -> Root {
    std::iter::successors(root, |id| blocks[*id].below[BEHIND]).last()
}

/// Appends all blocks in order.
pub(crate) fn list(blocks: &Blocks, root: Root, into: &mut Vec<BlockId>) {
    let Some(id) = root else { return };
    list(blocks, blocks[id].below[BEFORE], into);
    into.push(id);
    list(blocks, blocks[id].below[BEHIND], into);
}

#[inline(always)]
fn insert_below(blocks: &mut Blocks, mut root: Root, id: BlockId) -> Root {
    let place = blocks.order(id);
    let (mut link, mut rest) = (None, root);
    while let Some(top) = rest.filter(|top| rank(*top) >= rank(id)) {
        let side = side_of(place, blocks.order(top));
        (link, rest) = (Some((top, side)), blocks[top].below[side]);
    }
    hang(blocks, &mut root, link, Some(id));
    // Split the rest at the new block: blocks ordered before it go below one side, and the others below the other.
    let mut links = [(id, BEFORE), (id, BEHIND)];
    while let Some(top) = rest {
        let side = side_of(place, blocks.order(top));
        let (above, free) = links[1 - side];
        blocks[above].below[free] = rest;
        links[1 - side] = (top, side);
        rest = blocks[top].below[side];
    }
    for (above, free) in links {
        blocks[above].below[free] = None;
    }
    root
}

#[inline(always)]
fn remove_below(blocks: &mut Blocks, mut root: Root, id: BlockId) -> Root {
    let place = blocks.order(id);
    let (mut link, mut rest) = (None, root);
    while let Some(top) = rest.filter(|top| *top != id) {
        let side = side_of(place, blocks.order(top));
        (link, rest) = (Some((top, side)), blocks[top].below[side]);
    }
    // Merge the two subtrees below the removed block.
    let mut below = blocks[id].below;
    while let [Some(before), Some(behind)] = below {
        let (top, side) = if rank(before) >= rank(behind) { (before, BEHIND) } else { (behind, BEFORE) };
        hang(blocks, &mut root, link, Some(top));
        link = Some((top, side));
        below[1 - side] = blocks[top].below[side];
    }
    hang(blocks, &mut root, link, below[BEFORE].or(below[BEHIND]));
    root
}

#[inline(always)]
fn hang(blocks: &mut Blocks, root: &mut Root, link: Link, id: Root) {
    match link {
        Some((above, side)) => blocks[above].below[side] = id,
        None => *root = id,
    }
}

/// Returns the side of `other` on which a block belongs.
#[inline(always)]
fn side_of(block: Order, other: Order) -> usize {
    if block < other { BEFORE } else { BEHIND }
}

/// Returns the heap priority of a block. Priorities are as good as random, even among every nth block, so trees stay
/// flat. No two blocks have the same one.
#[inline(always)]
fn rank(id: BlockId) -> u32 {
    let mixed = (id.index() as u32).wrapping_mul(0x9e37_79b9);
    (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// The number of blocks in a tree. They have one size, and their numbers follow the order of their addresses.
    const MANY: usize = 10_000;

    fn blocks() -> (Blocks, Vec<BlockId>) {
        let mut blocks = Blocks::default();
        let ids = (0..MANY).map(|number| blocks.add_free(512, 512 * number as u64)).collect();
        (blocks, ids)
    }

    fn height(blocks: &Blocks, root: Root) -> usize {
        root.map_or(0, |id| 1 + blocks[id].below.map(|below| height(blocks, below)).into_iter().max().unwrap())
    }

    fn listed(blocks: &Blocks, root: Root) -> Vec<BlockId> {
        let mut listed = Vec::new();
        list(blocks, root, &mut listed);
        listed
    }

    #[test]
    fn a_tree_of_every_nth_block_is_flat() {
        let mut blocks = Blocks::default();
        let ids: Vec<BlockId> = (0..300_000).map(|number| blocks.add_free(512, 512 * number)).collect();
        // Steps for which a single multiplication would give monotonic priorities.
        for step in [1, 2, 34, 55, 89, 144, 610, 987] {
            let root = ids.iter().step_by(step).fold(None, |root, id| insert(&mut blocks, root, *id));
            assert!(height(&blocks, root) < 60, "every {step}th: {}", height(&blocks, root));
        }
    }

    #[test]
    fn a_tree_is_flat_whatever_the_order_in_which_blocks_come_and_go() {
        let mut random = Rng::with_seed(1);
        let (mut blocks, ids) = blocks();
        let mut shuffled = ids.clone();
        random.shuffle(&mut shuffled);
        let backward: Vec<BlockId> = ids.iter().rev().copied().collect();
        for order in [&ids, &backward, &shuffled] {
            let mut root = order.iter().fold(None, |root, id| insert(&mut blocks, root, *id));
            assert_eq!(listed(&blocks, root), ids);
            // A perfect tree of this size has 14 levels, and a random one about 30.
            assert!(height(&blocks, root) < 60, "{}", height(&blocks, root));
            let (gone, left) = order.split_at(MANY / 2);
            root = gone.iter().fold(root, |root, id| remove(&mut blocks, root, *id));
            let mut left = left.to_vec();
            left.sort_by_key(|id| blocks.order(*id));
            assert_eq!(listed(&blocks, root), left);
            assert!(height(&blocks, root) < 60, "{}", height(&blocks, root));
            left.iter().for_each(|id| root = remove(&mut blocks, root, *id));
            assert_eq!(root, None);
        }
    }
}
