use std::num::NonZeroU64;

use super::*;
use crate::alloc::AllocatorConfig;
use crate::alloc::account::Counted;
use crate::alloc::pair::Pair;
use crate::alloc::random::Random;
use crate::backend::{DevicePtr, DriverResult, EventFlags, Place, StreamKind};
use crate::stream::{Instance, Streams};
use crate::types::{
    Device, DeviceCapability, DeviceKind, DeviceProperties, MemoryInfo, PoolKind, PoolStat, Unavailable,
};

/// Streams beside the default stream.
const OTHERS: u32 = 4;

/// Blocks that nobody has but the accounts, and the statistics that they make, counted plainly.
struct Walk {
    random: Random,
    allocator: CachingAllocator<NoDriver>,
    expected: Statistics,
    allocated: Vec<(StreamId, Counted)>,
    pending: Vec<(StreamId, Counted)>,
    /// Free blocks that share their segment, and their bytes, by stream and pool.
    split: [[Pair; 2]; OTHERS as usize + 1],
    refused: usize,
    fitted: usize,
}

/// What blocks are like for a while: so now this quantity comes near its peak, now that.
struct Phase {
    grows: bool,
    /// There are blocks of the first so many streams.
    streams: u32,
    pools: [PoolKind; 2],
    equal: bool,
    wastes: bool,
    keeps_whole: bool,
    splits: bool,
}

impl Phase {
    fn new(random: &mut Random, streams: u32) -> Self {
        let pools = [0; 2].map(|_| if random.one_in(2) { PoolKind::Small } else { PoolKind::Large });
        let [grows, equal, wastes, keeps_whole, splits] = [0; 5].map(|_| random.one_in(2));
        Self { grows, streams, pools, equal, wastes, keeps_whole, splits }
    }
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            allocator: allocator(),
            expected: Statistics { max_split_size: -1, ..Statistics::default() },
            allocated: Vec::new(),
            pending: Vec::new(),
            split: Default::default(),
            refused: 0,
            fitted: 0,
        }
    }

    fn step(&mut self, phase: &Phase) {
        match self.random.below(if phase.grows { 20 } else { 14 }) {
            0..4 => self.end_pending(phase),
            4..7 => self.free(phase, true),
            7..10 => self.free(phase, false),
            _ => self.give_out(phase),
        }
    }

    fn step_and_check(&mut self, phase: &Phase) {
        self.step(phase);
        if self.random.one_in(2) {
            return;
        }
        self.check();
        match self.random.below(1000) {
            0 => {
                self.allocator.reset_peak_statistics();
                self.expected.reset_peak();
            }
            1 => {
                self.allocator.reset_accumulated_statistics();
                self.expected.reset_accumulated();
            }
            2..5 => assert_eq!(self.allocator.statistics(), self.expected),
            _ => {}
        }
        self.check();
    }

    fn give_out(&mut self, phase: &Phase) {
        let stream = StreamId(self.random.below(phase.streams.into()) as u32);
        let pool = phase.pools[self.random.index(2)];
        let bytes = 512 * (1 + if phase.equal { 9 } else { self.random.below(100) });
        let requested = if phase.wastes { 1 + self.random.below(bytes) } else { bytes };
        let oversize = phase.keeps_whole && self.random.one_in(2);
        let block = Counted { pool, bytes, requested, oversize, split: Pair::default() };
        let block = self.with_split(phase, stream, block);
        self.count(stream, |account| account.given_out(block));
        let Statistics { allocation, allocated_bytes, active, active_bytes, requested_bytes, .. } =
            &mut self.expected;
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

    /// Frees a block of the phase's pools; `used`: other streams still use it.
    fn free(&mut self, phase: &Phase, used: bool) {
        let count = self.allocated.len();
        let first = self.random.index(count.max(1));
        let mut places = (first..count).chain(0..first);
        let of_phase = places.find(|place| phase.pools.contains(&self.allocated[*place].1.pool));
        let Some(place) = of_phase else { return };
        let (stream, block) = self.allocated.swap_remove(place);
        let Counted { pool, bytes, oversize, .. } = block;
        if used {
            self.count(stream, |account| {
                account.pending_begun(pool, bytes, oversize);
                Ok(())
            });
            self.pending.push((stream, block));
        } else {
            let block = self.with_split(phase, stream, block);
            self.count(stream, |account| account.freed(block));
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
        let (stream, block) = self.pending.swap_remove(self.random.index(self.pending.len()));
        let block = self.with_split(phase, stream, block);
        self.count(stream, |account| account.pending_over(block));
        self.expect_inactive(block);
    }

    /// The block with some change of what is split, which does not become less than nothing.
    fn with_split(&mut self, phase: &Phase, stream: StreamId, block: Counted) -> Counted {
        if !phase.splits {
            return Counted { split: Pair::default(), ..block };
        }
        let there = &mut self.split[stream.0 as usize][block.pool as usize];
        let [count, bytes] = there.0;
        let split = Pair::new(
            self.random.below(3) as i64 - count.min(1),
            512 * self.random.below(101) as i64 - bytes.min(25_600),
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

    /// Does it as the allocator does.
    fn count(&mut self, stream: StreamId, operation: impl Fn(&mut Account) -> Result<(), NoRoom>) {
        let mut arena = self.allocator.arena(stream).lock();
        let before = format!("{:?}", arena.account);
        if operation(&mut arena.account).is_ok() {
            self.fitted += 1;
            return;
        }
        assert_eq!(format!("{:?}", arena.account), before, "refused, and yet something changed");
        self.refused += 1;
        self.allocator.settled(arena, |arena, _| operation(&mut arena.account));
    }

    fn check(&self) {
        assert_eq!(self.allocator.statistics(), self.expected);
    }
}

#[test]
fn statistics_are_those_of_one_plain_count() {
    for seed in 0..12 {
        let mut walk = Walk::new(seed);
        for phase in 0..60 {
            // Streams come one by one; at first there is one alone.
            let phase = Phase::new(&mut walk.random, 1 + (phase / 10).min(OTHERS));
            (0..100).for_each(|_| walk.step_and_check(&phase));
        }
        // Both ways were taken.
        assert!(walk.refused > 500 && walk.fitted > 1000, "{} refused, {} fitted", walk.refused, walk.fitted);
    }
}

/// An allocator for whom nobody has memory.
fn allocator() -> CachingAllocator<NoDriver> {
    let owner = Instance::new(Device { kind: NoDriver::KIND, index: 0 });
    let backend: &'static NoDriver = Box::leak(Box::new(NoDriver::open(0).unwrap()));
    let streams = Box::leak(Box::new(Streams::new(owner, backend, ())));
    CachingAllocator::new(owner, backend, streams, AllocatorConfig::default())
}

/// A device that is only there: books need no more of it.
struct NoDriver(DeviceProperties);

/// Has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Nothing {}

impl DevicePtr for Nothing {
    fn offset(self, _bytes: u64) -> Self {
        self
    }

    fn trace_address(self) -> u64 {
        match self {}
    }
}

/// Why no more of it is there.
const UNASKED: &str = "nobody asks the device for anything";

#[allow(unsafe_code)] // the trait is unsafe to implement
// SAFETY: It gives out no memory and takes no work.
unsafe impl Backend for NoDriver {
    const KIND: DeviceKind = DeviceKind::new("books");
    type Ptr = Nothing;
    type Stream = ();
    type Event = Nothing;

    fn probe() -> Result<u32, Unavailable> {
        Ok(1)
    }

    fn open(_ordinal: u32) -> DriverResult<Self> {
        Ok(Self(DeviceProperties {
            name: String::new(),
            driver: String::new(),
            total_memory: 1 << 40,
            largest_allocation: u64::MAX,
            alignment: 512,
            stream_priorities: (0, 0),
            capability: DeviceCapability { supported_dtypes: Vec::new() },
            uuid: None,
            pci_address: None,
        }))
    }

    fn properties(&self) -> &DeviceProperties {
        &self.0
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        unreachable!("{UNASKED}")
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<()> {
        unreachable!("{UNASKED}")
    }

    fn synchronize(&self, (): &()) -> DriverResult<()> {
        unreachable!("{UNASKED}")
    }

    fn is_idle(&self, (): &()) -> DriverResult<bool> {
        unreachable!("{UNASKED}")
    }

    fn event(&self, _flags: EventFlags) -> DriverResult<Nothing> {
        unreachable!("{UNASKED}")
    }

    fn record(&self, event: &Nothing, (): &()) -> DriverResult<()> {
        match *event {}
    }

    fn wait(&self, (): &(), event: &Nothing) -> DriverResult<()> {
        match *event {}
    }

    fn is_complete(&self, event: &Nothing) -> DriverResult<bool> {
        match *event {}
    }

    fn elapsed_ns(&self, start: &Nothing, _end: &Nothing) -> DriverResult<i64> {
        match *start {}
    }

    fn alloc(&self, _len: NonZeroU64) -> DriverResult<Nothing> {
        unreachable!("{UNASKED}")
    }

    unsafe fn dealloc(&self, ptr: Nothing, _len: NonZeroU64) {
        match ptr {}
    }

    unsafe fn copy(
        &self,
        _dst: Place<Nothing>,
        _src: Place<Nothing>,
        _len: NonZeroU64,
        (): &(),
    ) -> DriverResult<()> {
        unreachable!("{UNASKED}")
    }

    unsafe fn fill(&self, dst: Nothing, _value: u8, _len: NonZeroU64, (): &()) -> DriverResult<()> {
        match dst {}
    }
}
