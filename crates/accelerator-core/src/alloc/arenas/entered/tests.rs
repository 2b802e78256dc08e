use fastrand::Rng;

use super::*;
use crate::alloc::settings::AllocatorConfig;
use crate::alloc::stats::{Counted, NeedsSettling, Packed, Pair, PoolAmounts};
use crate::types::{PoolKind, PoolStat, Statistics};

/// The number of streams besides the default stream.
const OTHERS: u32 = 4;

/// Blocks that exist only in the counters, and the resulting statistics, counted naively.
struct Walk {
    random: Rng,
    arenas: Arenas,
    expected: Statistics,
    allocated: Vec<(StreamId, Counted)>,
    pending: Vec<(StreamId, Counted)>,
    /// Free blocks that share their segment with others, and their bytes, by stream and pool.
    split: [[Pair; 2]; OTHERS as usize + 1],
    refused: usize,
    fitted: usize,
    /// How many operations the plain functions counted.
    plain: usize,
    /// How many refused operations were counted with gathered headroom.
    gathered: u32,
}

/// The mix of operations for a while, so that different quantities come near their peaks in turn.
struct Phase {
    grows: bool,
    /// Only this many streams have blocks.
    streams: u32,
    pools: [PoolKind; 2],
    equal: bool,
    wastes: bool,
    keeps_whole: bool,
    splits: bool,
}

impl Phase {
    fn new(random: &mut Rng, streams: u32) -> Self {
        let pools = [0; 2].map(|_| if random.bool() { PoolKind::Small } else { PoolKind::Large });
        let [grows, equal, wastes, keeps_whole, splits] = [0; 5].map(|_| random.bool());
        Self { grows, streams, pools, equal, wastes, keeps_whole, splits }
    }
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            arenas: Arenas::new(AllocatorConfig::default(), 1 << 40, false, |_| unreachable!("nothing is shared")),
            expected: Statistics { max_split_size: -1, ..Statistics::default() },
            allocated: Vec::new(),
            pending: Vec::new(),
            split: Default::default(),
            refused: 0,
            plain: 0,
            fitted: 0,
            gathered: 0,
        }
    }

    fn step(&mut self, phase: &Phase) {
        match self.random.u64(..if phase.grows { 20 } else { 14 }) {
            0..4 => self.end_pending(phase),
            4..7 => self.free(phase, true),
            7..10 => self.free(phase, false),
            _ => self.give_out(phase),
        }
    }

    fn step_and_check(&mut self, phase: &Phase) {
        self.step(phase);
        if self.random.bool() {
            return;
        }
        self.check();
        match self.random.u64(..1000) {
            0 => {
                self.arenas.reset_peak();
                self.expected.reset_peak();
            }
            1 => {
                self.arenas.reset_accumulated();
                self.expected.reset_accumulated();
            }
            2..5 => assert_eq!(self.arenas.sum(), self.expected),
            _ => {}
        }
        self.check();
    }

    fn give_out(&mut self, phase: &Phase) {
        let stream = StreamId(self.random.u32(..phase.streams));
        let pool = phase.pools[self.random.usize(..2)];
        let bytes = 512 * (1 + if phase.equal { 9 } else { self.random.u64(..100) });
        let requested = if phase.wastes { 1 + self.random.u64(..bytes) } else { bytes };
        let oversize = phase.keeps_whole && self.random.bool();
        let block = Counted { pool, bytes, requested, oversize, split: Pair::default() };
        let block = self.with_split(phase, stream, block);
        self.count_plain(stream, block, given_out_plain, |counters| counters.given_out(block));
        let Statistics { allocation, allocated_bytes, active, active_bytes, requested_bytes, .. } = &mut self.expected;
        for (stat, amount) in [
            (allocation, 1),
            (allocated_bytes, bytes),
            (active, 1),
            (active_bytes, bytes),
            (requested_bytes, requested),
        ] {
            stat.update(pool, |stat| stat.increase(amount));
        }
        self.expected.oversize_allocations.increase(oversize.into());
        self.expect_split(block);
        self.allocated.push((stream, block));
    }

    /// Frees a block in one of the phase's pools. `used`: other streams still use it.
    fn free(&mut self, phase: &Phase, used: bool) {
        let count = self.allocated.len();
        let first = self.random.usize(..count.max(1));
        let mut places = (first..count).chain(0..first);
        let of_phase = places.find(|place| phase.pools.contains(&self.allocated[*place].1.pool));
        let Some(place) = of_phase else { return };
        let (stream, block) = self.allocated.swap_remove(place);
        let Counted { pool, bytes, oversize, .. } = block;
        if used {
            self.count(stream, |counters| {
                counters.pending_begun(pool, bytes, oversize);
                Ok(())
            });
            self.pending.push((stream, block));
        } else {
            let block = self.with_split(phase, stream, block);
            self.count_plain(stream, block, freed_plain, |counters| counters.freed(block));
            self.expect_inactive(block);
        }
        self.expected.allocation.update(pool, |stat| stat.decrease(1));
        self.expected.allocated_bytes.update(pool, |stat| stat.decrease(bytes));
        self.expected.oversize_allocations.decrease(oversize.into());
    }

    fn end_pending(&mut self, phase: &Phase) {
        if self.pending.is_empty() {
            return;
        }
        let (stream, block) = self.pending.swap_remove(self.random.usize(..self.pending.len()));
        let block = self.with_split(phase, stream, block);
        self.count_plain(stream, block, pending_over_plain, |counters| counters.pending_over(block));
        self.expect_inactive(block);
    }

    /// Returns the block with a random change to the split counts, such that their sums do not become negative.
    fn with_split(&mut self, phase: &Phase, stream: StreamId, block: Counted) -> Counted {
        if !phase.splits {
            return Counted { split: Pair::default(), ..block };
        }
        let there = &mut self.split[stream.0 as usize][block.pool as usize];
        let [count, bytes] = there.0;
        let split = Pair::new(
            self.random.u64(..3) as i64 - count.min(1),
            512 * self.random.u64(..101) as i64 - bytes.min(25_600),
        );
        *there = *there + split;
        Counted { split, ..block }
    }

    fn expect_inactive(&mut self, block: Counted) {
        let Counted { pool, bytes, requested, .. } = block;
        self.expected.active.update(pool, |stat| stat.decrease(1));
        self.expected.active_bytes.update(pool, |stat| stat.decrease(bytes));
        self.expected.requested_bytes.update(pool, |stat| stat.decrease(requested));
        self.expect_split(block);
    }

    fn expect_split(&mut self, block: Counted) {
        let change = |stat: &mut PoolStat, amount: i64| {
            stat.update(block.pool, |stat| match amount >= 0 {
                true => stat.increase(amount.unsigned_abs()),
                false => stat.decrease(amount.unsigned_abs()),
            });
        };
        change(&mut self.expected.inactive_split, block.split.0[0]);
        change(&mut self.expected.inactive_split_bytes, block.split.0[1]);
    }

    /// Counts an operation in the same way as the allocator, which tries the plain function first if it applies.
    fn count_plain(
        &mut self,
        stream: StreamId,
        block: Counted,
        plain: fn(&mut StreamCounters, Counted) -> Counting,
        general: impl Fn(&mut StreamCounters) -> Counting,
    ) {
        if !block.oversize && self.random.u8(..4) > 0 {
            let mut arena = self.arenas.of(ArenaId::of_stream(stream)).lock();
            let before = state(arena.counters());
            if plain(arena.counters_mut(), block).is_ok() {
                self.plain += 1;
                return;
            }
            assert_eq!(state(arena.counters()), before, "refused, but something changed");
            let repeated = |arena: &mut Arena| plain(arena.counters_mut(), block);
            if self.random.bool() && self.arenas.perhaps_gathered(&mut arena, repeated).is_ok() {
                self.gathered += 1;
                return;
            }
        }
        self.count(stream, general);
    }

    /// Counts an operation that always takes the general function.
    fn count(&mut self, stream: StreamId, operation: impl Fn(&mut StreamCounters) -> Counting) {
        let mut arena = self.arenas.of(ArenaId::of_stream(stream)).lock();
        let before = state(arena.counters());
        if operation(arena.counters_mut()).is_ok() {
            self.fitted += 1;
            return;
        }
        assert_eq!(state(arena.counters()), before, "refused, but something changed");
        self.refused += 1;
        let repeated = |arena: &mut Arena| operation(arena.counters_mut());
        if self.random.bool() && self.arenas.perhaps_gathered(&mut arena, repeated).is_ok() {
            self.gathered += 1;
            return;
        }
        settled(operation(self.arenas.enter(arena).settle().counters_mut()));
    }

    fn check(&self) {
        assert_eq!(self.arenas.sum(), self.expected);
    }
}

/// Returns what the counters tell.
fn state(counters: &StreamCounters) -> [PoolAmounts; 4] {
    [counters.current(), counters.headroom(), counters.bound(), counters.added()]
}

fn given_out_plain(counters: &mut StreamCounters, block: Counted) -> Counting {
    match block.pool {
        PoolKind::Small => given_out_plain_in::<false>(counters, block),
        PoolKind::Large => given_out_plain_in::<true>(counters, block),
    }
}

fn given_out_plain_in<const LARGE: bool>(counters: &mut StreamCounters, block: Counted) -> Counting {
    let Counted { bytes, requested, split: Pair([parts, size]), .. } = block;
    counters.given_out_plain::<LARGE>(bytes, requested, Packed::new(parts, size))?;
    let [more, more_bytes] = block.split.increase().0;
    counters.split_added::<LARGE>(more, more_bytes as u64);
    Ok(())
}

fn freed_plain(counters: &mut StreamCounters, block: Counted) -> Counting {
    match block.pool {
        PoolKind::Small => put_back_in::<false>(counters, block, StreamCounters::freed_plain::<false>),
        PoolKind::Large => put_back_in::<true>(counters, block, StreamCounters::freed_plain::<true>),
    }
}

fn pending_over_plain(counters: &mut StreamCounters, block: Counted) -> Counting {
    match block.pool {
        PoolKind::Small => put_back_in::<false>(counters, block, StreamCounters::pending_over_plain::<false>),
        PoolKind::Large => put_back_in::<true>(counters, block, StreamCounters::pending_over_plain::<true>),
    }
}

fn put_back_in<const LARGE: bool>(
    counters: &mut StreamCounters,
    block: Counted,
    count: fn(&mut StreamCounters, u64, u64),
) -> Counting {
    let Counted { bytes, requested, split: Pair([parts, size]), .. } = block;
    // A block that becomes free adds one part at most, and no more bytes than it has.
    if parts > 1 || size > bytes as i64 || counters.may_refuse_free::<LARGE>(bytes) {
        return Err(NeedsSettling);
    }
    count(counters, bytes, requested);
    let [more, more_bytes] = block.split.increase().0;
    counters.split_added::<LARGE>(more, more_bytes as u64);
    counters.split_changed::<LARGE>(Packed::new(parts, size));
    Ok(())
}

#[test]
fn statistics_equal_a_naive_count() {
    for seed in 0..12 {
        let mut walk = Walk::new(seed);
        for phase in 0..60 {
            // Streams are added one by one; at first there is only one.
            let phase = Phase::new(&mut walk.random, 1 + (phase / 10).min(OTHERS));
            (0..100).for_each(|_| walk.step_and_check(&phase));
        }
        // All paths were taken. Headroom is gathered only where a thread can own locks.
        let Walk { arenas, refused, fitted, plain, gathered, .. } = walk;
        let told = format!("{refused} refused, {fitted} fitted, {plain} plain, {gathered} gathered");
        assert!(refused > 300 && fitted > 500 && plain > 500, "{told}");
        assert_eq!(gathered > 300, arenas.setup.lock_owned().is_some(), "{told}");
    }
}
