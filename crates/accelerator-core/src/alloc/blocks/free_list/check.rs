//! A check of a free list.

use super::{Block, BlockId, FreeList, bin_of, tree};

impl FreeList {
    /// Visits the blocks of the list, each of which must be in the bin of its size.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(crate) fn check(&self, blocks: &[Block], mut visit: impl FnMut(BlockId)) {
        self.outside.into_iter().for_each(&mut visit);
        for (word, roots) in self.bins.roots.chunks_exact(64).enumerate() {
            let filled = roots.iter().rev().fold(0, |bits, root| bits << 1 | u64::from(root.is_some()));
            assert_eq!(self.bins.filled[word], filled, "which bins have blocks, from {}", 64 * word);
            assert_eq!(self.bins.summary >> word & 1, u64::from(filled != 0), "whether word {word} has any");
        }
        for bin in std::iter::successors(self.bins.next_filled(0), |bin| self.bins.next_filled(bin + 1)) {
            tree::check(blocks, self.bins.root(bin), &mut |id| {
                visit(id);
                assert_eq!(bin_of(blocks[id].size), bin, "{id:?}: the bin of {} bytes", blocks[id].size);
            });
        }
    }
}
