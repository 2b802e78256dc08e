//! How much may be added before a peak could move, in a form that takes few instructions.

use super::amounts::Amounts;
use super::packed::Packed;
use super::pair::Pair;

/// How much may be added before a peak could move.
///
/// Blocks are both allocated and active, and each of the two has its own peak. `words` has what may be added to both,
/// up to what fits into a word. That is all that the warm path checks. The rest changes when a block becomes pending or
/// ceases to be, and is moved to where it can be used by [`level`](Self::level), before an operation is refused.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Headroom {
    pub(super) words: Words,
    pub(super) allocated_beyond: Pair,
    active_beyond: Pair,
    split_beyond: Pair,
}

/// What operations change, in a form that takes few instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// Blocks that are both allocated and active, and their bytes.
    pub(super) blocks: Packed,
    /// Free blocks that share their segment with others, and their bytes.
    pub(super) split: Packed,
    /// The requested bytes.
    pub(super) requested: i64,
    /// The number of oversize blocks.
    pub(super) oversize: i64,
}

impl Headroom {
    pub(super) fn of(amounts: Amounts) -> Self {
        let mut headroom = Self::default();
        headroom.add(amounts);
        headroom
    }

    fn add(&mut self, Amounts { allocated, active, requested, split }: Amounts) {
        self.allocated_beyond = self.allocated_beyond + allocated;
        self.active_beyond = self.active_beyond + active;
        self.split_beyond = self.split_beyond + split;
        self.words.requested = self.words.requested.wrapping_add(requested.0[0]);
        self.words.oversize = self.words.oversize.wrapping_add(requested.0[1]);
        self.level();
    }

    pub(super) fn amounts(&self) -> Amounts {
        let Words { blocks, split, requested, oversize } = self.words;
        Amounts {
            allocated: blocks.pair() + self.allocated_beyond,
            active: blocks.pair() + self.active_beyond,
            requested: Pair::new(requested, oversize),
            split: split.pair() + self.split_beyond,
        }
    }

    pub(super) fn subtract(&mut self, Amounts { allocated, active, requested, split }: Amounts) {
        self.allocated_beyond = self.allocated_beyond - allocated;
        self.active_beyond = self.active_beyond - active;
        self.split_beyond = self.split_beyond - split;
        self.words.requested = self.words.requested.wrapping_sub(requested.0[0]);
        self.words.oversize = self.words.oversize.wrapping_sub(requested.0[1]);
    }

    /// Raises negative headroom to 0. Returns by how much.
    pub(super) fn cover(&mut self) -> Amounts {
        if self.is_in_words() {
            return self.words.cover();
        }
        let missing = self.amounts().missing();
        self.add(missing);
        missing
    }

    /// Moves all of another's here. Returns how much that is.
    pub(super) fn take(&mut self, other: &mut Self) -> Amounts {
        if *other == Self::default() {
            return Amounts::default();
        }
        let moved = std::mem::take(other).amounts();
        self.add(moved);
        moved
    }

    /// Returns whether the words have all of it, as they mostly have while no block is pending.
    fn is_in_words(&self) -> bool {
        let Self { words, allocated_beyond, active_beyond, split_beyond } = self;
        let is_beyond = *allocated_beyond != Pair::default() || *active_beyond != Pair::default();
        !is_beyond && *split_beyond == Pair::default() && !words.is_too_large()
    }

    /// As [`pending_over`](Self::pending_over), for a block that is not huge.
    #[inline(always)]
    pub(super) fn pending_over_plain(&mut self, bytes: u64, requested: u64) {
        let block = Pair::new(1, bytes as i64);
        let beyond = self.allocated_beyond - block;
        if beyond.0[0] < 0 || beyond.0[1] < 0 {
            return self.pending_over(bytes, requested);
        }
        // Both may be added again. This spares `level`.
        self.allocated_beyond = beyond;
        self.words.blocks = self.words.blocks.plus(Packed::new(1, bytes as i64));
        self.words.requested = self.words.requested.wrapping_add(requested as i64);
    }

    /// Counts a pending block that no stream uses any more.
    #[inline(always)]
    pub(super) fn pending_over(&mut self, bytes: u64, requested: u64) {
        self.active_beyond = self.active_beyond + Pair::new(1, bytes as i64);
        self.words.requested = self.words.requested.wrapping_add(requested as i64);
    }

    /// Moves as much as possible to where the warm path looks.
    #[cold]
    pub(super) fn level(&mut self) {
        let Words { blocks, split, .. } = self.words;
        let (allocated, active) = (blocks.pair() + self.allocated_beyond, blocks.pair() + self.active_beyond);
        self.words.blocks = Packed::of(allocated.least(active));
        (self.allocated_beyond, self.active_beyond) =
            (allocated - self.words.blocks.pair(), active - self.words.blocks.pair());
        let total = split.pair() + self.split_beyond;
        self.words.split = Packed::of(total);
        self.split_beyond = total - self.words.split.pair();
    }
}

impl Words {
    /// As [`Headroom::cover`], if nothing is beyond the words.
    fn cover(&mut self) -> Amounts {
        let (blocks, split) = (self.blocks.missing(), self.split.missing());
        let requested = (Pair::default() - Pair::new(self.requested, self.oversize)).increase();
        self.blocks = self.blocks.plus(Packed::new(blocks.0[0], blocks.0[1]));
        self.split = self.split.plus(Packed::new(split.0[0], split.0[1]));
        self.requested += requested.0[0];
        self.oversize += requested.0[1];
        Amounts { allocated: blocks, active: blocks, requested, split }
    }

    fn is_too_large(&self) -> bool {
        self.blocks.is_too_large() || self.split.is_too_large()
    }

    #[inline(always)]
    pub(super) fn minus(self, less: Self) -> Self {
        Self {
            blocks: self.blocks.minus(less.blocks),
            split: self.split.minus(less.split),
            requested: self.requested.wrapping_sub(less.requested),
            oversize: self.oversize.wrapping_sub(less.oversize),
        }
    }

    #[inline(always)]
    pub(super) fn plus(self, more: Self) -> Self {
        Self {
            blocks: self.blocks.plus(more.blocks),
            split: self.split.plus(more.split),
            requested: self.requested.wrapping_add(more.requested),
            oversize: self.oversize.wrapping_add(more.oversize),
        }
    }

    /// Returns whether anything in either is negative, or too large for a word.
    #[inline(always)]
    pub(super) fn overflow(&self, other: &Self) -> bool {
        let others = Packed::sign(self.requested | self.oversize | other.requested | other.oversize);
        self.blocks.or(self.split).or(other.blocks).or(other.split).or(others).overflow()
    }
}
