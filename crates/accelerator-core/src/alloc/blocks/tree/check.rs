//! A check of a tree of sizes.

use std::ops::Range;

use super::{LARGER, Root, SMALLER, rank};
use crate::alloc::blocks::{Block, BlockId, heap};

/// Visits the blocks of a tree, which must be in order.
///
/// # Panics
/// If anything is wrong.
pub(in crate::alloc::blocks) fn check(blocks: &[Block], root: Root, visit: &mut impl FnMut(BlockId)) {
    check_below(blocks, root, (0..u64::MAX, u64::MAX), visit);
}

/// Visits a part of a tree, whose sizes are in this range and have at most this rank.
fn check_below(blocks: &[Block], root: Root, (sizes, most): (Range<u64>, u64), visit: &mut impl FnMut(BlockId)) {
    let Some(top) = root else { return };
    heap::check(blocks, top, visit);
    let Block { size, below, .. } = blocks[top];
    assert!(sizes.contains(&size), "{top:?}: {size} bytes in a tree of {sizes:?}");
    assert!(rank(size) <= most, "{top:?} is below a block of lower rank");
    check_below(blocks, below[SMALLER], (sizes.start..size, rank(size)), visit);
    check_below(blocks, below[LARGER], (size + 1..sizes.end, rank(size)), visit);
}
