//! A check of the chains of uses.

use super::{Recorded, Uses};
use crate::alloc::blocks::Block;
use crate::alloc::blocks::slab::Id;

impl Uses {
    /// Follows the chains of these blocks, which are all that have any.
    ///
    /// # Panics
    /// If a link is of no use, two lead to the same one, or none does.
    pub(crate) fn check<'a>(&self, blocks: impl Iterator<Item = &'a Block>) {
        let mut visited = self.0.check();
        for block in blocks {
            let Some(Recorded::Chain(first)) = block.uses.recorded() else { continue };
            let mut next = Some(first);
            while let Some(one) = next {
                let index = one.index();
                assert!(index < visited.len(), "use {index} of {}", visited.len());
                assert!(!std::mem::replace(&mut visited[index], true), "use {index} is vacant, or of two blocks");
                next = self.0[one].next;
            }
        }
        assert!(visited.iter().all(|visited| *visited), "a use has no block, but is not vacant");
    }
}
