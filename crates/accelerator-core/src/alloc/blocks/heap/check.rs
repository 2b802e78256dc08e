//! A check of a heap.

use super::{NEXT, PREVIOUS, precedes};
use crate::alloc::blocks::{Block, BlockId};

/// Visits the blocks of a heap, whose links must lead back, and whose order must be that of positions.
///
/// # Panics
/// If anything is wrong.
pub(in crate::alloc::blocks) fn check(blocks: &[Block], top: BlockId, visit: &mut impl FnMut(BlockId)) {
    visit(top);
    let mut parents = vec![top];
    while let Some(parent) = parents.pop() {
        let (mut before, mut next) = (parent, blocks[parent].child);
        while let Some(id) = next {
            visit(id);
            let [behind, previous] = [NEXT, PREVIOUS].map(|link| blocks[id].below[link]);
            assert_eq!(previous, Some(before), "{id:?}: its parent or previous sibling");
            assert_eq!(blocks[id].size, blocks[top].size, "{id:?}: the size of its heap");
            assert!(!precedes(blocks, id, parent), "{id:?} precedes its parent {parent:?}");
            parents.push(id);
            (before, next) = (id, behind);
        }
    }
}
