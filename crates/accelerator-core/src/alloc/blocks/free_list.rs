//! The free blocks of one pool of one stream, in the order in which best fit looks at them.
//!
//! Blocks of about one size share a bin; a bit for each bin that has any finds the next larger one in a few instructions.
//! One block stays outside the bins, the last that came: what is cut off a block and soon put back to it then touches
//! no bin. It is compared with the others by the full order, so best fit is what it would be without.

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

    /// Whether this is the block outside the bins.
    #[inline(always)]
    pub(crate) fn is_outside(&self, id: BlockId) -> bool {
        self.outside == Some(id)
    }

    /// Makes a block that is in it the one outside the bins, where its size may change.
    #[inline(always)]
    pub(crate) fn put_outside(&mut self, blocks: &mut Blocks, id: BlockId) {
        if !self.is_outside(id) {
            self.bins.remove(blocks, id);
            self.insert(blocks, id);
        }
    }

    /// Takes out a block that is in it.
    #[inline(always)]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        if self.is_outside(id) {
            self.outside = None;
        } else {
            self.bins.remove(blocks, id);
        }
    }

    /// The first block of at least `size` bytes.
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

    /// The block behind this one in the order of best fit.
    pub(crate) fn behind(&self, blocks: &Blocks, id: BlockId) -> Root {
        let place = blocks.order(id);
        let outside = self.outside.filter(|outside| blocks.order(*outside) > place);
        [outside, self.bins.behind(blocks, place)].into_iter().flatten().min_by_key(|id| blocks.order(*id))
    }

    pub(crate) fn largest(&self, blocks: &Blocks) -> Root {
        let inside = self.bins.largest(blocks);
        [self.outside, inside].into_iter().flatten().max_by_key(|id| blocks.order(*id))
    }

    /// All of them, in order.
    pub(crate) fn sorted(&self, blocks: &Blocks) -> Vec<BlockId> {
        let mut sorted = self.bins.sorted(blocks);
        if let Some(id) = self.outside {
            sorted.insert(sorted.partition_point(|other| blocks.order(*other) < blocks.order(id)), id);
        }
        sorted
    }
}

/// Sizes of fewer than so many smallest blocks have a bin each: those of the small pool, where most requests are.
const EXACT: u64 = 4096;
/// Above, each power of two is divided into so many bins.
const DIVISIONS: u64 = 64;
/// One for each bin that a size of 64 bits can have.
const BINS: usize = bin_of(u64::MAX) + 1;

/// Free blocks by size.
#[derive(Debug)]
struct Bins {
    /// A tree for each bin; empty until there is a block.
    roots: Vec<Root>,
    /// A bit for each bin: whether it has blocks.
    filled: [u64; BINS.div_ceil(64)],
    /// A bit for each word of those.
    summary: u128,
}

/// The bin of a size. Larger sizes have no smaller bin.
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
        // Only in its own bin can all be too small.
        found.or_else(|| tree::first_from(blocks, self.roots[self.next_filled(own + 1)?], size))
    }

    /// The first block behind this place.
    fn behind(&self, blocks: &Blocks, place: Order) -> Root {
        let own = bin_of(place.0);
        let bin = self.next_filled(own)?;
        let found = tree::first_behind(blocks, self.roots[bin], place);
        found.or_else(|| tree::first_behind(blocks, self.roots[self.next_filled(own + 1)?], place))
    }

    /// The first bin from this one on that has blocks.
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
