//! The free blocks of one pool of one stream, in best-fit order.
//!
//! Blocks of similar sizes share a bin. A bitmap of the bins that are not empty leads to the next larger one in a few
//! instructions. The block inserted last stays outside the bins, so a block that is split and soon merged back touches
//! no bin. It is compared with the others by the full order, so the result of best fit does not change.

#[cfg(debug_assertions)]
mod check;

use super::tree::{self, Root};
use super::{Block, BlockId, heap, neighbour, order};
use crate::alloc::settings::MIN_BLOCK;

/// The free blocks of one pool of one stream. Sizes, also those looked for, are multiples of [`MIN_BLOCK`].
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    outside: Root,
    bins: Bins,
}

impl FreeList {
    #[inline(always)]
    pub(crate) fn insert(&mut self, blocks: &mut [Block], id: BlockId) {
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
    pub(crate) fn put_outside(&mut self, blocks: &mut [Block], id: BlockId) {
        if !self.is_outside(id) {
            self.bins.remove(blocks, id);
            self.insert(blocks, id);
        }
    }

    /// Removes a block, which must be in the list.
    #[inline(always)]
    pub(crate) fn remove(&mut self, blocks: &mut [Block], id: BlockId) {
        if self.is_outside(id) {
            self.outside = None;
        } else {
            self.bins.remove(blocks, id);
        }
    }

    /// Removes a block as [`remove`](Self::remove), and inserts another, whose size may still be unknown.
    #[inline(always)]
    pub(crate) fn replace(&mut self, blocks: &mut [Block], id: BlockId, new: BlockId) {
        if self.is_outside(id) {
            self.outside = Some(new);
        } else {
            self.bins.remove(blocks, id);
            self.insert(blocks, new);
        }
    }

    /// Returns the first block of at least `size` bytes.
    #[inline(always)]
    pub(crate) fn best_fit(&self, blocks: &[Block], size: u64) -> Root {
        let candidate = self.candidate_in(blocks, size, |bins| bins.best_fit(blocks, size, bin_of(size)));
        candidate.filter(|id| blocks[*id].size >= size)
    }

    /// As [`best_fit`](Self::best_fit), for a request of the large pool or of the small one. If no block has so many
    /// bytes, it may return one that has fewer.
    #[inline(always)]
    pub(crate) fn candidate<const LARGE: bool>(&self, blocks: &[Block], size: u64) -> Root {
        let bin = if LARGE { divided_bin_of(size) } else { (size / MIN_BLOCK) as usize };
        self.candidate_in(blocks, size, |bins| bins.best_fit(blocks, size, bin))
    }

    #[inline(always)]
    fn candidate_in(&self, blocks: &[Block], size: u64, best_fit: impl Fn(&Bins) -> Root) -> Root {
        if self.bins.is_empty() {
            return self.outside;
        }
        match best_fit(&self.bins) {
            // Without a block outside, this is `Block::NONE`, which has no bytes.
            Some(id) if neighbour(blocks, self.outside).size < size || !precedes(blocks, self.outside, id) => Some(id),
            _ => self.outside,
        }
    }

    /// Returns the block after this one, which is the first of its size.
    pub(crate) fn second(&self, blocks: &mut [Block], id: BlockId) -> Root {
        if self.bins.is_empty() {
            return None; // the block outside is the only one
        }
        let inside = self.bins.after(blocks, id);
        let outside = self.outside.filter(|outside| *outside != id && blocks[*outside].size >= blocks[id].size);
        [outside, inside].into_iter().flatten().min_by_key(|id| order(blocks, *id))
    }

    /// Returns this block and those after it, in order.
    pub(crate) fn from<'a>(&'a self, blocks: &'a [Block], id: BlockId) -> impl Iterator<Item = BlockId> + 'a {
        let place = order(blocks, id);
        let outside = self.outside.filter(|outside| order(blocks, *outside) >= place);
        let inside = self.bins.from(blocks, place.0).skip_while(move |id| order(blocks, *id) < place);
        merged(blocks, outside, inside)
    }

    pub(crate) fn largest(&self, blocks: &[Block]) -> Root {
        let inside = self.bins.largest(blocks);
        [self.outside, inside].into_iter().flatten().max_by_key(|id| order(blocks, *id))
    }

    /// Returns all blocks, in order.
    pub(crate) fn sorted(&self, blocks: &[Block]) -> Vec<BlockId> {
        self.sorted_if(blocks, |_| true)
    }

    /// Returns the blocks that a condition holds for, in order. Only these are sorted.
    pub(crate) fn sorted_if(&self, blocks: &[Block], condition: impl Fn(&Block) -> bool) -> Vec<BlockId> {
        let mut chosen = Vec::new();
        let mut choose = |id: BlockId| {
            if condition(&blocks[id]) {
                chosen.push(id);
            }
        };
        self.outside.into_iter().for_each(&mut choose);
        self.bins.roots_from(0).for_each(|root| tree::each(blocks, root, &mut choose));
        chosen.sort_unstable_by_key(|id| order(blocks, *id));
        chosen
    }
}

/// Returns whether the block outside precedes one in the bins.
#[inline(always)]
fn precedes(blocks: &[Block], outside: Root, inside: BlockId) -> bool {
    let (one, other) = (neighbour(blocks, outside), &blocks[inside]);
    one.size < other.size || one.size == other.size && one.position < other.position
}

/// Inserts a block into others that are in order.
fn merged(blocks: &[Block], block: Root, others: impl Iterator<Item = BlockId>) -> impl Iterator<Item = BlockId> {
    let (mut block, mut others) = (block, others.peekable());
    std::iter::from_fn(move || {
        let is_next = block.filter(|id| others.peek().is_none_or(|other| order(blocks, *id) < order(blocks, *other)));
        match is_next {
            Some(_) => block.take(),
            None => others.next(),
        }
    })
}

/// Sizes below this many smallest blocks have a bin each.
const EXACT: u64 = 2048;
/// Above that, each power of two is divided into this many bins.
const DIVISIONS: u64 = 64;
/// As many as one word for each word of bits can tell of. Sizes of 2⁵² bytes and more share the last one.
const BINS: usize = 64 * 64;

/// Free blocks by size.
#[derive(Debug)]
struct Bins {
    /// The blocks of each bin: a heap if it has one size, and otherwise a tree.
    roots: Box<[Root; BINS]>,
    /// A bit for each bin: whether it has blocks.
    filled: [u64; BINS / 64],
    /// A bit for each word of `filled`: whether it is nonzero.
    summary: u64,
}

/// Returns the bin of a size. A larger size never has a smaller bin.
#[inline(always)]
const fn bin_of(size: u64) -> usize {
    if size < EXACT * MIN_BLOCK { (size / MIN_BLOCK) as usize } else { divided_bin_of(size) }
}

/// Returns the bin of a size of at least [`EXACT`] smallest blocks.
#[inline(always)]
const fn divided_bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK;
    let octave = (units / EXACT).ilog2() as u64;
    let division = (units >> octave) / (EXACT / DIVISIONS);
    let bin = (EXACT - DIVISIONS + DIVISIONS * octave + division) as usize;
    if bin < BINS { bin } else { BINS - 1 }
}

impl Default for Bins {
    fn default() -> Self {
        Self { roots: Box::new([None; BINS]), filled: [0; BINS / 64], summary: 0 }
    }
}

impl Bins {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.summary == 0
    }

    #[inline(always)]
    fn root(&self, bin: usize) -> Root {
        self.roots[bin % BINS]
    }

    // Not inlined, so that the warm path keeps its registers. Each ends with a call, so that it needs none itself.
    #[inline(never)]
    fn insert(&mut self, blocks: &mut [Block], id: BlockId) {
        debug_assert!(blocks[id].size.is_multiple_of(MIN_BLOCK));
        let bin = bin_of(blocks[id].size) % BINS;
        let root = &mut self.roots[bin];
        match *root {
            Some(top) if bin < EXACT as usize => *root = Some(heap::insert(blocks, top, id)),
            Some(_) => tree::insert(blocks, root, id),
            None => {
                blocks[id].below = [None; 2];
                *root = Some(id);
                self.filled[bin / 64] |= 1 << (bin % 64);
                self.summary |= 1 << (bin / 64);
            }
        }
    }

    #[inline(never)]
    fn remove(&mut self, blocks: &mut [Block], id: BlockId) {
        let bin = bin_of(blocks[id].size) % BINS;
        let root = &mut self.roots[bin];
        if !tree::is_alone(blocks, *root, id) {
            return if bin < EXACT as usize {
                heap::remove_from(blocks, root, id)
            } else {
                tree::remove(blocks, root, id)
            };
        }
        *root = None;
        self.filled[bin / 64] &= !(1 << (bin % 64));
        if self.filled[bin / 64] == 0 {
            self.summary &= !(1 << (bin / 64));
        }
    }

    /// Returns the first block of at least `size` bytes, whose bin this is.
    #[inline(never)]
    fn best_fit(&self, blocks: &[Block], size: u64, own: usize) -> Root {
        let bin = self.next_filled(own % BINS)?;
        if bin < EXACT as usize {
            return self.root(bin); // of blocks of one size, the first one is at the root
        }
        if bin == own { self.best_fit_in_own(blocks, size, bin) } else { self.first_of(blocks, bin) }
    }

    /// As [`best_fit`](Self::best_fit), if the bin of the size has blocks, of which all may be too small.
    #[inline(never)]
    fn best_fit_in_own(&self, blocks: &[Block], size: u64, own: usize) -> Root {
        let found = tree::first_from(blocks, self.root(own), size);
        if found.is_some() { found } else { self.first_of(blocks, self.next_filled(own + 1)?) }
    }

    #[inline(always)]
    fn first_of(&self, blocks: &[Block], bin: usize) -> Root {
        Some(tree::first(blocks, self.root(bin)?))
    }

    /// Returns the first block after this one, which is the first of its size, or in no bin.
    fn after(&self, blocks: &mut [Block], id: BlockId) -> Root {
        let size = blocks[id].size;
        let first = self.best_fit(blocks, size, bin_of(size))?;
        if first != id {
            return Some(first);
        }
        heap::second(blocks, id).or_else(|| {
            let more = size.checked_add(MIN_BLOCK)?;
            self.best_fit(blocks, more, bin_of(more))
        })
    }

    /// Returns the first bin with blocks, starting from this one.
    #[inline(always)]
    fn next_filled(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let here = self.filled.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(64 * word + here.trailing_zeros() as usize);
        }
        let above = self.summary & (u64::MAX << word << 1);
        let word = (above != 0).then(|| above.trailing_zeros() as usize)?;
        Some(64 * word + self.filled[word].trailing_zeros() as usize)
    }

    fn largest(&self, blocks: &[Block]) -> Root {
        let word = self.summary.checked_ilog2()? as usize;
        tree::last(blocks, self.root(64 * word + self.filled[word].ilog2() as usize))
    }

    /// Returns the blocks in order, from the bin of this size on.
    fn from<'a>(&'a self, blocks: &'a [Block], size: u64) -> impl Iterator<Item = BlockId> + 'a {
        self.roots_from(bin_of(size)).flat_map(|root| {
            let mut of_bin = Vec::new();
            tree::each(blocks, root, &mut |id| of_bin.push(id));
            of_bin.sort_unstable_by_key(|id| order(blocks, *id));
            of_bin
        })
    }

    /// Returns the blocks at the roots of the filled bins from this one on.
    fn roots_from(&self, bin: usize) -> impl Iterator<Item = Root> {
        let bins = std::iter::successors(self.next_filled(bin), |bin| self.next_filled(bin + 1));
        bins.map(|bin| self.root(bin))
    }
}

#[cfg(test)]
mod tests;
