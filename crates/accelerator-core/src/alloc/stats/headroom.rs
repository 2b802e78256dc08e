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
    /// Returns these amounts, with as much as possible where the warm path looks.
    #[inline]
    pub(super) fn of(Amounts { allocated, active, requested: Pair([requested, oversize]), split }: Amounts) -> Self {
        let words =
            Words { blocks: Packed::of(allocated.least(active)), split: Packed::of(split), requested, oversize };
        let blocks = words.blocks.pair();
        Self {
            words,
            allocated_beyond: allocated - blocks,
            active_beyond: active - blocks,
            split_beyond: split - words.split.pair(),
        }
    }

    #[inline]
    pub(super) fn amounts(&self) -> Amounts {
        let Amounts { allocated, active, requested, split } = self.words.amounts();
        Amounts {
            allocated: allocated + self.allocated_beyond,
            active: active + self.active_beyond,
            requested,
            split: split + self.split_beyond,
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
    #[inline(always)]
    pub(super) fn cover(&mut self) -> Amounts {
        let missing = self.words.amounts().missing();
        let covered = self.words.plus(Words::of(missing));
        if self.has_any_beyond() || covered.are_any_negative_or_too_large() {
            return self.cover_beyond();
        }
        self.words = covered;
        missing
    }

    /// As [`cover`](Self::cover), if not all of it is in words, or fits there.
    #[cold]
    #[inline(never)]
    fn cover_beyond(&mut self) -> Amounts {
        let amounts = self.amounts();
        let missing = amounts.missing();
        *self = Self::of(amounts + missing);
        missing
    }

    /// Moves all of another's here. Returns how much that is.
    #[inline(always)]
    pub(super) fn take(&mut self, other: &mut Self) -> Amounts {
        if *other == Self::default() {
            return Amounts::default(); // as often for one of the pools
        }
        let moved = std::mem::take(other);
        self.words = self.words.plus(moved.words);
        self.allocated_beyond = self.allocated_beyond + moved.allocated_beyond;
        self.active_beyond = self.active_beyond + moved.active_beyond;
        self.split_beyond = self.split_beyond + moved.split_beyond;
        if !self.is_level() {
            self.level();
        }
        moved.amounts()
    }

    /// Returns whether the words do not have all of it. While no block is pending, they mostly have.
    #[inline(always)]
    fn has_any_beyond(&self) -> bool {
        let Self { allocated_beyond: Pair(allocated), active_beyond: Pair(active), split_beyond: Pair(split), .. } =
            self;
        (allocated[0] | allocated[1] | active[0] | active[1] | split[0] | split[1]) != 0
    }

    /// As [`pending_over`](Self::pending_over), for a block that is not huge.
    #[inline(always)]
    pub(super) fn pending_over_plain(&mut self, bytes: u64, requested: u64) {
        let beyond = self.allocated_beyond - Pair::new(1, bytes as i64);
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
        if !self.is_level() {
            *self = Self::of(self.amounts());
        }
    }

    #[inline(always)]
    fn is_level(&self) -> bool {
        let movable = self.allocated_beyond.least(self.active_beyond);
        movable == Pair::default()
            && self.split_beyond == Pair::default()
            && !self.words.are_any_negative_or_too_large()
    }
}

impl Words {
    #[inline]
    fn amounts(&self) -> Amounts {
        let Self { blocks, split, requested, oversize } = *self;
        let blocks = blocks.pair();
        Amounts { allocated: blocks, active: blocks, requested: Pair::new(requested, oversize), split: split.pair() }
    }

    /// Returns amounts that are equally many allocated and active blocks, and fit into words.
    #[inline(always)]
    fn of(Amounts { allocated, requested: Pair([requested, oversize]), split, .. }: Amounts) -> Self {
        let packed = |Pair([count, bytes])| Packed::new(count, bytes);
        Self { blocks: packed(allocated), split: packed(split), requested, oversize }
    }

    #[inline(always)]
    fn are_any_negative_or_too_large(&self) -> bool {
        self.overflow(&Self::default())
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
        let words = self.blocks.or(self.split).or(other.blocks).or(other.split);
        words.overflow_or_negative(self.requested | self.oversize | other.requested | other.oversize)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn what_is_taken_from_another_is_where_the_warm_path_looks() {
        let mut rng = Rng::with_seed(1);
        let mut amounts = |least: i64| {
            let [allocated, active, requested, split] = [(); 4].map(|()| {
                let mut number = || rng.i64(least..8);
                Pair::new(number(), 512 * number())
            });
            Amounts { allocated, active, requested, split }
        };
        for _ in 0..1000 {
            let [mut one, mut other] = [(); 2].map(|()| {
                let mut headroom = Headroom::of(amounts(0));
                headroom.subtract(amounts(-8));
                headroom
            });
            let (before, more) = (one.amounts(), other.amounts());
            assert_eq!((one.take(&mut other), &other), (more, &Headroom::default()));
            assert_eq!(one, Headroom::of(before + more));
        }
        let [most, most_bytes] = Packed::MOST.0;
        let most = Amounts { split: Pair::new(most, most_bytes), ..Amounts::default() };
        let [mut one, mut other] = [(); 2].map(|()| Headroom::of(most));
        one.take(&mut other);
        assert_eq!(one, Headroom::of(most + most), "a word has no room for both");
    }
}
