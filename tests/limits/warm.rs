//! Once the cache serves all requests, nothing requests host memory.

use std::num::NonZeroU64;

use accelerator_conformance::{Call, Controls, Sim};
use accelerator_core::{Accelerator, Allocation, AllocatorConfig, GIB, MIB, Stream};

use crate::counting::counts;
use crate::sizes::Sizes;

const SMALL: NonZeroU64 = NonZeroU64::new(512).unwrap();
const LARGE: NonZeroU64 = NonZeroU64::new(4 * MIB).unwrap();

struct Device {
    accelerator: &'static Accelerator<Sim>,
    stream: Stream<Sim>,
    other: Stream<Sim>,
}

impl Device {
    fn new() -> Self {
        let accelerator = Accelerator::new(Sim::new(1024 * GIB), 0, AllocatorConfig::default()).unwrap();
        let [stream, other] = [(); 2].map(|()| accelerator.dedicated_stream(0).unwrap());
        Self { accelerator, stream, other }
    }

    fn allocate(&self, size: NonZeroU64) -> Allocation<Sim> {
        self.accelerator.allocator().allocate(size, self.stream).unwrap()
    }

    fn free(&self, allocation: Allocation<Sim>) {
        self.accelerator.allocator().free(allocation).unwrap();
    }

    fn record_use(&self, allocation: &Allocation<Sim>) {
        self.accelerator.allocator().record_use(allocation, self.other).unwrap();
    }

    /// Repeats an operation until the cache is warm, and then counts. The cache is warm when no operation requests a
    /// segment from the driver.
    fn check(&self, warm_up: u32, mut operation: impl FnMut(&Self)) {
        const COUNTED: u32 = 20_000;
        (0..warm_up).for_each(|_| operation(self));
        let segments = || self.accelerator.backend().calls().of(Call::Alloc);
        let (mut cold, mut calls, mut first) = (0, 0, None);
        for number in 0..COUNTED {
            let (segments_before, calls_before) = (segments(), counts().calls);
            operation(self);
            let asked = counts().calls - calls_before;
            if segments() > segments_before {
                cold += 1;
            } else if asked > 0 {
                calls += asked;
                first.get_or_insert(number);
            }
        }
        assert!(cold < COUNTED / 1000, "{cold} of {COUNTED} operations called the driver: not warm");
        assert_eq!(calls, 0, "host allocations in {COUNTED} warm operations, the first in number {first:?}");
    }
}

#[test]
fn small_pairs_take_no_host_memory() {
    Device::new().check(1000, |device| device.free(device.allocate(SMALL)));
}

#[test]
fn large_pairs_take_no_host_memory() {
    Device::new().check(1000, |device| device.free(device.allocate(LARGE)));
}

#[test]
fn stacks_of_random_sizes_take_no_host_memory() {
    let (mut sizes, mut stack) = (Sizes::new(), Vec::with_capacity(64));
    Device::new().check(3000, |device| {
        (0..64).for_each(|_| stack.push(device.allocate(sizes.size(9, 17))));
        while let Some(allocation) = stack.pop() {
            device.free(allocation);
        }
    });
}

#[test]
fn random_replacements_take_no_host_memory() {
    const LIVE: usize = 4096;
    let (mut sizes, mut live) = (Sizes::new(), Vec::with_capacity(LIVE));
    let device = Device::new();
    live.extend((0..LIVE).map(|_| device.allocate(sizes.size(9, 16))));
    device.check(400_000, |device| {
        device.free(live.swap_remove(sizes.below(LIVE)));
        live.push(device.allocate(sizes.size(9, 16)));
    });
}

#[test]
fn uses_by_a_second_stream_take_no_host_memory() {
    Device::new().check(1000, |device| {
        let allocation = device.allocate(SMALL);
        device.record_use(&allocation);
        device.free(allocation);
    });
}

/// The second stream lags behind, so freed blocks wait and become free later.
#[test]
fn uses_by_a_second_stream_that_is_late_take_no_host_memory() {
    let mut blocks = Vec::with_capacity(16);
    Device::new().check(1000, |device| {
        device.accelerator.backend().hold(device.other.native());
        for _ in 0..16 {
            let allocation = device.allocate(SMALL);
            device.record_use(&allocation);
            blocks.push(allocation);
        }
        blocks.drain(..).for_each(|allocation| device.free(allocation));
        device.accelerator.backend().release(device.other.native());
    });
}

#[test]
fn two_streams_by_turns_take_no_host_memory() {
    Device::new().check(1000, |device| {
        let allocator = device.accelerator.allocator();
        let others = allocator.allocate(LARGE, device.other).unwrap();
        device.free(device.allocate(SMALL));
        allocator.free(others).unwrap();
    });
}

#[test]
fn buffers_take_no_host_memory() {
    Device::new().check(1000, |device| {
        drop(device.accelerator.allocate(SMALL.get(), device.stream).unwrap());
    });
}

#[test]
fn buffers_used_by_a_second_stream_take_no_host_memory() {
    Device::new().check(1000, |device| {
        let buffer = device.accelerator.allocate(LARGE.get(), device.stream).unwrap();
        buffer.record_use(device.other).unwrap();
    });
}

#[test]
fn reading_the_statistics_takes_no_host_memory() {
    let device = Device::new();
    let _held = device.allocate(SMALL);
    device.check(10, |device| {
        let current = device.accelerator.allocator().statistics().allocation.all.current;
        assert_eq!(current, 1);
    });
}

/// The lock of the idle events belongs to the first thread, so the second one takes another path.
#[test]
fn events_that_another_thread_takes_back_are_used_again() {
    let device = Device::new();
    let work = || {
        let allocation = device.allocate(SMALL);
        device.record_use(&allocation);
        device.free(allocation);
    };
    work();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20).for_each(|_| work()));
    });
    assert_eq!(device.accelerator.backend().calls().of(Call::Event), 1);
}
