//! The contribution of one stream's blocks to the device statistics, counted without touching anything shared.
//!
//! A peak is the peak of a sum over all streams, so it seems that every allocation must see that sum. An escrow scheme
//! avoids this. Each stream's counters have *headroom*: how much they may add before any peak of the device could move.
//! The headroom of all streams together is the distance to the peaks, so peaks need no storage: each is the current
//! value plus all headroom. An operation that fits into its headroom moves no peak, and no other thread needs to know
//! of it. An operation that does not fit *needs settling*: it is refused before anything has changed, and repeated with
//! the headroom of all streams in hand. What it adds beyond that headroom moves the peaks. Then the headroom is
//! distributed again. The peaks are therefore the peaks of the sums in the order of the operations, as if a single lock
//! had serialised them. If no other stream has headroom, the peaks are raised in place instead.

use super::amounts::{Amounts, PoolAmounts};
use super::headroom::{Headroom, Words};
use super::packed::Packed;
use super::pair::Pair;
use crate::types::PoolKind;

/// One stream's part of the device statistics.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    pools: [PoolCounters; 2],
    /// How much both pools together may add.
    all: Headroom,
    /// Whether all headroom is here and only these counters can move a peak: no other stream is active, or their
    /// arenas are held.
    pub(crate) is_alone: bool,
    /// Whether anything has been counted since the last summation.
    pub(crate) has_changed: bool,
    /// Whether headroom may become negative, until [`restore_bounds`](Self::restore_bounds).
    is_boundless: bool,
    /// The number of blocks given out when [`has_become_idle`](Self::has_become_idle) was last called.
    given_out_before: i64,
}

#[derive(Debug, Default)]
struct PoolCounters {
    headroom: Headroom,
    /// The sums of everything ever added. They wrap, as in PyTorch.
    added: Added,
    /// The current values plus the headroom, so that the current values need no storage.
    bound: Amounts,
}

/// The sums of everything ever added. What is added together is not adjacent, since the compiler would add it as a
/// vector, which takes more instructions to fill.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Added {
    blocks: i64,
    split: i64,
    bytes: i64,
    oversize: i64,
    requested: i64,
    split_bytes: i64,
}

/// A block that is given out or comes back.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) pool: PoolKind,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
    /// Whether it counts as oversize.
    pub(crate) oversize: bool,
    /// The resulting change in the number and bytes of free blocks that share their segment with others.
    pub(crate) split: Pair,
}

/// The operation was refused because a peak might move, or because it takes more than plain functions do. Nothing has
/// changed.
#[derive(Debug)]
pub(crate) struct NeedsSettling;

/// The result of an operation that is counted.
pub(crate) type Counting<T = ()> = Result<T, NeedsSettling>;

impl StreamCounters {
    /// Counts a block that is given out.
    #[inline(always)]
    pub(crate) fn given_out(&mut self, block: Counted) -> Counting {
        self.change(block, || block.amounts(), |words| words.minus(block.words()))?;
        self.pools[block.pool as usize].added.add(block);
        Ok(())
    }

    /// Counts a block that becomes free at once.
    #[inline(always)]
    pub(crate) fn freed(&mut self, block: Counted) -> Counting {
        let change = || Amounts { split: block.split, ..Amounts::default() - block.without_split().amounts() };
        self.change(block, change, |words| words.plus(block.without_split().words()).minus(block.split_words()))?;
        self.pools[block.pool as usize].added.add_split(block.split);
        Ok(())
    }

    /// As [`given_out`](Self::given_out), for a block that is neither oversize nor huge, with the change of split
    /// blocks in words.
    #[inline(always)]
    pub(crate) fn given_out_plain<const LARGE: bool>(&mut self, bytes: u64, requested: u64, split: Packed) -> Counting {
        let (block, requested) = (Packed::new(1, bytes as i64), requested as i64);
        let less = |words: &Words| {
            (words.blocks.minus(block), words.split.minus(split), words.requested.wrapping_sub(requested))
        };
        let own = &mut self.pools[usize::from(LARGE)].headroom.words;
        let (one, all) = (less(own), less(&self.all.words));
        let overflow = one.0.or(one.1).or(all.0).or(all.1).overflow_or_negative(one.2 | all.2);
        if overflow && !self.is_alone {
            return Err(NeedsSettling);
        }
        (own.blocks, own.split, own.requested) = one;
        let all_words = &mut self.all.words;
        (all_words.blocks, all_words.split, all_words.requested) = all;
        self.pools[usize::from(LARGE)].added.add_block(bytes as i64, requested);
        self.has_changed = true;
        if overflow {
            self.cover(usize::from(LARGE));
        }
        Ok(())
    }

    /// Returns whether a block may be refused to become free at once, whatever it merges with.
    #[inline(always)]
    pub(crate) fn may_refuse_free<const LARGE: bool>(&self, bytes: u64) -> bool {
        !self.is_alone && self.refuses_free::<LARGE>(bytes, Packed::new(1, bytes as i64))
    }

    /// Returns whether a block is refused to become free at once, given the change of split blocks.
    #[inline(always)]
    pub(crate) fn refuses_free<const LARGE: bool>(&self, bytes: u64, split: Packed) -> bool {
        let (own, all) = (&self.pools[usize::from(LARGE)].headroom.words, &self.all.words);
        let block = Packed::new(1, bytes as i64);
        let freed = own.blocks.plus(block).or(all.blocks.plus(block));
        freed.or(own.split.minus(split)).or(all.split.minus(split)).overflow()
    }

    /// As [`given_out_plain`](Self::given_out_plain), for a block that becomes free at once and is
    /// [not refused](Self::may_refuse_free), apart from the change of split blocks.
    #[inline(always)]
    pub(crate) fn freed_plain<const LARGE: bool>(&mut self, bytes: u64, requested: u64) {
        let (own, all) = (&mut self.pools[usize::from(LARGE)].headroom.words, &mut self.all.words);
        let block = Packed::new(1, bytes as i64);
        (own.blocks, all.blocks) = (own.blocks.plus(block), all.blocks.plus(block));
        own.requested = own.requested.wrapping_add(requested as i64);
        all.requested = all.requested.wrapping_add(requested as i64);
        self.has_changed = true;
    }

    /// Counts the change of split blocks, after [`freed_plain`](Self::freed_plain) or
    /// [`pending_over_plain`](Self::pending_over_plain), which leave words that may be too large until then.
    #[inline(always)]
    pub(crate) fn split_changed<const LARGE: bool>(&mut self, split: Packed) {
        let (own, all) = (&mut self.pools[usize::from(LARGE)].headroom.words, &mut self.all.words);
        (own.split, all.split) = (own.split.minus(split), all.split.minus(split));
        if own.blocks.or(all.blocks).or(own.split).or(all.split).overflow() {
            self.cover(usize::from(LARGE));
        }
    }

    /// Counts split blocks among those ever added.
    #[inline(always)]
    pub(crate) fn split_added<const LARGE: bool>(&mut self, count: i64, bytes: u64) {
        self.pools[usize::from(LARGE)].added.add_parts(count, bytes as i64);
    }

    /// Raises the peaks by what was counted beyond the headroom, if no other stream has any. Otherwise a word has
    /// become too large, and what is in it is moved beyond.
    #[cold]
    #[inline(never)]
    fn cover(&mut self, pool: usize) {
        let PoolCounters { headroom, bound, .. } = &mut self.pools[pool];
        *bound = *bound + headroom.cover();
        self.all.cover();
    }

    /// Counts a block that was freed but is still used by streams.
    pub(crate) fn pending_begun(&mut self, pool: PoolKind, bytes: u64, oversize: bool) {
        self.has_changed = true;
        for headroom in [&mut self.pools[pool as usize].headroom, &mut self.all] {
            headroom.allocated_beyond = headroom.allocated_beyond + Pair::new(1, bytes as i64);
            headroom.words.oversize += i64::from(oversize);
        }
    }

    /// Counts a pending block that no stream uses any more.
    #[inline(always)]
    pub(crate) fn pending_over(&mut self, block: Counted) -> Counting {
        let split = || Amounts { split: block.split, ..Amounts::default() };
        self.change(block, split, |words| words.minus(block.split_words()))?;
        self.pools[block.pool as usize].added.add_split(block.split);
        let in_words = !self.is_boundless && !block.is_huge();
        for headroom in [&mut self.pools[block.pool as usize].headroom, &mut self.all] {
            match in_words {
                true => headroom.pending_over_plain(block.bytes, block.requested),
                false => headroom.pending_over(block.bytes, block.requested),
            }
        }
        Ok(())
    }

    /// As [`freed_plain`](Self::freed_plain), for a pending block that no stream uses any more.
    #[inline(always)]
    pub(crate) fn pending_over_plain<const LARGE: bool>(&mut self, bytes: u64, requested: u64) {
        self.pools[usize::from(LARGE)].headroom.pending_over_plain(bytes, requested);
        self.all.pending_over_plain(bytes, requested);
        self.has_changed = true;
    }

    /// Takes a change from the headroom: as words, or as amounts if they may become negative.
    #[inline(always)]
    fn change(&mut self, block: Counted, amounts: impl Fn() -> Amounts, change: impl Fn(Words) -> Words) -> Counting {
        let own = &mut self.pools[block.pool as usize].headroom;
        let (one, all) = (change(own.words), change(self.all.words));
        if self.is_boundless | block.is_huge() | one.overflow(&all) {
            return self.change_out_of_words(block, amounts, change);
        }
        (own.words, self.all.words) = (one, all);
        self.has_changed = true;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn change_out_of_words(
        &mut self,
        block: Counted,
        amounts: impl Fn() -> Amounts,
        change: impl Fn(Words) -> Words,
    ) -> Counting {
        let own = &mut self.pools[block.pool as usize].headroom;
        if self.is_boundless || self.is_alone {
            own.subtract(amounts());
            self.all.subtract(amounts());
            if !self.is_boundless {
                self.cover(block.pool as usize);
            }
        } else {
            own.level();
            self.all.level();
            let (one, all) = (change(own.words), change(self.all.words));
            if block.is_huge() || one.overflow(&all) {
                return Err(NeedsSettling);
            }
            (own.words, self.all.words) = (one, all);
        }
        self.has_changed = true;
        Ok(())
    }

    /// Returns the current values.
    pub(crate) fn current(&self) -> PoolAmounts {
        self.sum(PoolCounters::current)
    }

    /// Returns the sums of everything ever added.
    pub(crate) fn added(&self) -> PoolAmounts {
        self.sum(|pool| pool.added.amounts())
    }

    /// Returns the current values plus the headroom: this stream's part of the peaks.
    pub(crate) fn bound(&self) -> PoolAmounts {
        PoolAmounts { all: self.current().all + self.all.amounts(), ..self.sum(|pool| pool.bound) }
    }

    /// Returns the headroom.
    pub(crate) fn headroom(&self) -> PoolAmounts {
        PoolAmounts { all: self.all.amounts(), ..self.sum(|pool| pool.headroom.amounts()) }
    }

    /// Sets the headroom.
    pub(crate) fn set_headroom(&mut self, PoolAmounts { small, large, all }: PoolAmounts) {
        for (pool, amounts) in self.pools.iter_mut().zip([small, large]) {
            pool.bound = pool.current() + amounts;
            pool.headroom = Headroom::of(amounts);
        }
        self.all = Headroom::of(all);
    }

    /// Moves the headroom of another stream here.
    pub(crate) fn take_headroom(&mut self, other: &mut Self) {
        for (own, other) in self.pools.iter_mut().zip(&mut other.pools) {
            let moved = own.headroom.take(&mut other.headroom);
            (own.bound, other.bound) = (own.bound + moved, other.bound - moved);
        }
        self.all.take(&mut other.all);
    }

    fn sum(&self, of: impl Fn(&PoolCounters) -> Amounts) -> PoolAmounts {
        let [small, large] = self.pools.each_ref().map(of);
        PoolAmounts { small, large, all: small + large }
    }

    /// From now on, no operation is refused, until [`restore_bounds`](Self::restore_bounds).
    pub(crate) fn lift_bounds(&mut self) {
        self.is_boundless = true;
    }

    /// Ends [`lift_bounds`](Self::lift_bounds). Anything added meanwhile beyond the headroom moves the peaks.
    pub(crate) fn restore_bounds(&mut self) {
        self.is_boundless = false;
        for PoolCounters { headroom, bound, .. } in &mut self.pools {
            *bound = *bound + headroom.cover();
        }
        self.all.cover();
    }

    /// Returns whether the current values are all 0 and nothing was given out since the last call.
    pub(crate) fn has_become_idle(&mut self) -> bool {
        let given_out = self.added().all.allocated.0[0];
        let before = std::mem::replace(&mut self.given_out_before, given_out);
        given_out == before && self.current() == PoolAmounts::default()
    }
}

impl PoolCounters {
    fn current(&self) -> Amounts {
        self.bound - self.headroom.amounts()
    }
}

impl Added {
    #[inline(always)]
    fn add(&mut self, block: Counted) {
        self.add_block(block.bytes as i64, block.requested as i64);
        self.oversize = self.oversize.wrapping_add(block.oversize.into());
        self.add_split(block.split);
    }

    #[inline(always)]
    fn add_split(&mut self, change: Pair) {
        let [count, bytes] = change.increase().0;
        self.add_parts(count, bytes);
    }

    #[inline(always)]
    fn add_block(&mut self, bytes: i64, requested: i64) {
        self.blocks = self.blocks.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.requested = self.requested.wrapping_add(requested);
    }

    #[inline(always)]
    fn add_parts(&mut self, count: i64, bytes: i64) {
        self.split = self.split.wrapping_add(count);
        self.split_bytes = self.split_bytes.wrapping_add(bytes);
    }

    fn amounts(&self) -> Amounts {
        let blocks = Pair::new(self.blocks, self.bytes);
        let requested = Pair::new(self.requested, self.oversize);
        Amounts { allocated: blocks, active: blocks, requested, split: Pair::new(self.split, self.split_bytes) }
    }
}

impl Counted {
    #[inline(always)]
    fn without_split(self) -> Self {
        Self { split: Pair::default(), ..self }
    }

    #[inline(always)]
    fn words(&self) -> Words {
        let Self { bytes, requested, oversize, .. } = *self;
        let (blocks, requested) = (Packed::new(1, bytes as i64), requested as i64);
        Words { blocks, requested, oversize: oversize.into(), ..self.split_words() }
    }

    #[inline(always)]
    fn split_words(&self) -> Words {
        let [count, bytes] = self.split.0;
        Words { split: Packed::new(count, bytes), ..Words::default() }
    }

    /// Returns what it is if it is given out.
    #[inline(always)]
    fn amounts(&self) -> Amounts {
        let Self { bytes, requested, oversize, split, .. } = *self;
        let (blocks, requested) = (Pair::new(1, bytes as i64), Pair::new(requested as i64, oversize.into()));
        Amounts { allocated: blocks, active: blocks, requested, split }
    }

    /// Returns whether it is too large to be counted in words.
    #[inline(always)]
    fn is_huge(&self) -> bool {
        (self.bytes | self.split.0[1].unsigned_abs()) >= Packed::HUGE
    }
}

#[cfg(test)]
mod tests;
