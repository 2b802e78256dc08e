//! The free blocks of one pool of one stream, in best-fit order.
//!
//! Blocks of similar sizes share a bin. A bitmap of the bins that are not empty leads to the next larger one in a few
//! instructions. The block inserted last stays outside the bins, so a block that is split and soon merged back touches
//! no bin. It is compared with the others by the full order, so the result of best fit does not change.

use super::tree::{self, Root};
use super::{BlockId, Blocks, Order};
use crate::alloc::settings::MIN_BLOCK;

/// The free blocks of one pool of one stream.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    outside: Root,
    bins: Bins,
}

impl FreeList {
    #[inline(always)]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        if let Some(before) = self.outside.replace(id) {
            self.bins.insert(blocks, before);
        }
    }

    /// Returns the block outside the bins: the one that was split or inserted last.
    #[inline(always)]
    pub(crate) fn outside(&self) -> Root {
        self.outside
    }

    /// Returns whether this is the block outside the bins.
    #[inline(always)]
    pub(crate) fn is_outside(&self, id: BlockId) -> bool {
        self.outside == Some(id)
    }

    /// Moves a block of the list out of the bins, so that its size may change.
    #[inline(always)]
    pub(crate) fn put_outside(&mut self, blocks: &mut Blocks, id: BlockId) {
        if !self.is_outside(id) {
            self.bins.remove(blocks, id);
            self.insert(blocks, id);
        }
    }

    /// Removes a block, which must be in the list.
    #[inline(always)]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        if self.is_outside(id) {
            self.outside = None;
        } else {
            self.bins.remove(blocks, id);
        }
    }

    /// Returns the first block of at least `size` bytes.
    #[inline(always)]
    pub(crate) fn best_fit(&self, blocks: &Blocks, size: u64) -> Root {
        let outside = self.outside.filter(|id| blocks[*id].size >= size);
        if self.bins.is_empty() { outside } else { self.best_fit_of_all(blocks, size, outside) }
    }

    #[inline(never)]
    fn best_fit_of_all(&self, blocks: &Blocks, size: u64, outside: Root) -> Root {
        let inside = self.bins.best_fit(blocks, size);
        let (Some(one), Some(other)) = (outside, inside) else { return outside.or(inside) };
        if blocks.order(one) < blocks.order(other) { outside } else { inside }
    }

    /// Returns the block after this one in best-fit order.
    pub(crate) fn behind(&self, blocks: &Blocks, id: BlockId) -> Root {
        if self.bins.is_empty() {
            return None; // the block outside is the only one
        }
        let place = blocks.order(id);
        let outside = self.outside.filter(|outside| blocks.order(*outside) > place);
        [outside, self.bins.behind(blocks, place)].into_iter().flatten().min_by_key(|id| blocks.order(*id))
    }

    pub(crate) fn largest(&self, blocks: &Blocks) -> Root {
        let inside = self.bins.largest(blocks);
        [self.outside, inside].into_iter().flatten().max_by_key(|id| blocks.order(*id))
    }

    /// Returns all blocks, in order.
    pub(crate) fn sorted(&self, blocks: &Blocks) -> Vec<BlockId> {
        let mut sorted = self.bins.sorted(blocks);
        if let Some(id) = self.outside {
            sorted.insert(sorted.partition_point(|other| blocks.order(*other) < blocks.order(id)), id);
        }
        sorted
    }
}

/// Sizes below this many smallest blocks have a bin each: the sizes of the small pool, where most requests are.
const EXACT: u64 = 4096;
/// Above that, each power of two is divided into this many bins.
const DIVISIONS: u64 = 64;
/// One bin for every possible 64-bit size.
const BINS: usize = bin_of(u64::MAX) + 1;

/// Free blocks by size.
#[derive(Debug)]
struct Bins {
    /// A tree for each bin; empty until a block is inserted.
    roots: Vec<Root>,
    /// A bit for each bin: whether it has blocks.
    filled: [u64; BINS.div_ceil(64)],
    /// A bit for each word of `filled`: whether it is nonzero.
    summary: u128,
}

/// Returns the bin of a size. A larger size never has a smaller bin.
#[inline(always)]
const fn bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK;
    if units < EXACT {
        return units as usize;
    }
    let octave = (units / EXACT).ilog2() as u64;
    let division = (units >> octave) / (EXACT / DIVISIONS);
    (EXACT - DIVISIONS + DIVISIONS * octave + division) as usize
}

impl Default for Bins {
    fn default() -> Self {
        Self { roots: Vec::new(), filled: [0; BINS.div_ceil(64)], summary: 0 }
    }
}

impl Bins {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.summary == 0
    }

    #[inline(never)]
    fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        let bin = bin_of(blocks[id].size);
        if self.roots.is_empty() {
            self.roots.resize(BINS, None);
        }
        let root = &mut self.roots[bin];
        if root.is_none() {
            self.filled[bin / 64] |= 1 << (bin % 64);
            self.summary |= 1 << (bin / 64);
        }
        *root = tree::insert(blocks, *root, id);
    }

    #[inline(never)]
    fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        let bin = bin_of(blocks[id].size);
        let root = &mut self.roots[bin];
        *root = tree::remove(blocks, *root, id);
        if root.is_none() {
            self.filled[bin / 64] &= !(1 << (bin % 64));
            if self.filled[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }

    fn best_fit(&self, blocks: &Blocks, size: u64) -> Root {
        let own = bin_of(size);
        let bin = self.next_filled(own)?;
        let found = tree::first_from(blocks, self.roots[bin], size);
        // Only in the bin of `size` itself can every block be too small.
        found.or_else(|| tree::first_from(blocks, self.roots[self.next_filled(own + 1)?], size))
    }

    /// Returns the first block after this place in the order.
    fn behind(&self, blocks: &Blocks, place: Order) -> Root {
        let own = bin_of(place.0);
        let bin = self.next_filled(own)?;
        let found = tree::first_behind(blocks, self.roots[bin], place);
        found.or_else(|| tree::first_behind(blocks, self.roots[self.next_filled(own + 1)?], place))
    }

    /// Returns the first bin with blocks, starting from this one.
    #[inline(always)]
    fn next_filled(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let here = self.filled.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(64 * word + here.trailing_zeros() as usize);
        }
        let above = self.summary & (u128::MAX << word << 1);
        let word = (above != 0).then(|| above.trailing_zeros() as usize)?;
        Some(64 * word + self.filled[word].trailing_zeros() as usize)
    }

    fn largest(&self, blocks: &Blocks) -> Root {
        let word = self.summary.checked_ilog2()? as usize;
        tree::last(blocks, self.roots[64 * word + self.filled[word].ilog2() as usize])
    }

    fn sorted(&self, blocks: &Blocks) -> Vec<BlockId> {
        let mut sorted = Vec::new();
        let mut bin = self.next_filled(0);
        while let Some(filled) = bin {
            tree::list(blocks, self.roots[filled], &mut sorted);
            bin = self.next_filled(filled + 1);
        }
        sorted
    }
}

#[cfg(test)]
mod tests;
