//! The promise of the policy `compact`: a request fails only if the pages that live blocks occupy leave no room for it.
//!
//! The witness is naive. It knows the live blocks, and asks the simulated device which pages of physical memory are
//! behind them. All other pages could be combined, so a request may fail only if there are too few of them.
//!
//! `cargo test` runs 1,000 programs, CI 3,000. On 2026-11-26, 1,000,000 ran by hand: `PROPTEST_RNG_SEED` from 1001 to
//! 1100, each with `PROPTEST_CASES=500` of 20 programs.

use std::collections::HashSet;
use std::num::NonZeroU64;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, DevicePtr, Error, MIB, MemPool, MemPoolOptions, MemPoolRequests,
    MemPoolRoute, OutOfMemory, Stream,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::check;

const STREAMS: usize = 3;
/// The size of a page. Chunks are single pages on devices as small as those of these programs.
const PAGE: u64 = 2 * MIB;
/// The number of programs that run on the same device, one after another. An allocator's memory is never freed.
const PROGRAMS: usize = 20;

/// Things are chosen by a number modulo the number of those that exist.
#[derive(Clone, Debug)]
enum Op {
    Allocate { bytes: u64, stream: usize },
    Free(usize),
    FreeMost,
    RecordUse { nth: usize, stream: usize },
    Hold(usize),
    Release(usize),
    EmptyCache,
    Expandable(bool),
    NewPool,
    DropPool(usize),
    Route(usize),
    EndRoute,
}

/// Programs that run on one device.
#[derive(Clone, Debug)]
struct Programs {
    capacity: u64,
    /// Each with the fraction of the device that it may use.
    programs: Vec<(Option<f64>, Vec<Op>)>,
}

fn programs() -> impl Strategy<Value = Programs> {
    let capacity = prop_oneof![Just(64 * MIB), Just(301 * MIB + 512), Just(1024 * MIB), 26 * MIB..400 * MIB];
    let program = (option::weighted(0.3, 0.1..1.0), vec(op(), 20..120));
    (capacity, vec(program, PROGRAMS)).prop_map(|(capacity, programs)| Programs { capacity, programs })
}

fn op() -> impl Strategy<Value = Op> {
    let (stream, nth) = (|| 0..STREAMS, any::<usize>);
    let bytes = prop_oneof![
        3 => 1_u64..128 << 10,
        3 => 64_u64 << 10..2 * MIB,
        3 => (1_u64..8).prop_map(|pages| pages * PAGE),
        3 => MIB..20 * MIB,
        2 => 20 * MIB..200 * MIB,
        1 => 200 * MIB..1100 * MIB,
    ];
    prop_oneof![
        50 => (bytes, stream()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        30 => nth().prop_map(Op::Free),
        2 => Just(Op::FreeMost),
        5 => (nth(), stream()).prop_map(|(nth, stream)| Op::RecordUse { nth, stream }),
        3 => stream().prop_map(Op::Hold),
        3 => stream().prop_map(Op::Release),
        1 => Just(Op::EmptyCache),
        2 => any::<bool>().prop_map(Op::Expandable),
        2 => Just(Op::NewPool),
        1 => nth().prop_map(Op::DropPool),
        3 => nth().prop_map(Op::Route),
        4 => Just(Op::EndRoute),
    ]
}

struct Machine {
    accelerator: &'static Accelerator<Sim>,
    streams: Vec<Stream<Sim>>,
    allocations: Vec<Allocation<Sim>>,
    pools: Vec<MemPool<Sim>>,
    routes: Vec<MemPoolRoute>,
    capacity: u64,
    /// The bytes that may be taken from the driver.
    limit: u64,
    refused: u64,
}

impl Machine {
    fn new(capacity: u64) -> Self {
        let config = AllocatorConfig::default().updated("policy:compact").unwrap();
        let accelerator = Accelerator::new(Sim::new(capacity), 0, config).unwrap();
        let mut streams = vec![accelerator.default_stream()];
        streams.extend((1..STREAMS).map(|_| accelerator.stream(0).unwrap()));
        let (allocations, pools, routes) = Default::default();
        Self { accelerator, streams, allocations, pools, routes, capacity, limit: capacity, refused: 0 }
    }

    fn run(&mut self, fraction: Option<f64>, ops: &[Op]) {
        let (allocator, capacity) = (self.accelerator.allocator(), self.capacity);
        allocator.set_memory_fraction(fraction.unwrap_or(1.0)).unwrap();
        self.limit = fraction.map_or(capacity, |fraction| (fraction * capacity as f64) as u64);
        ops.iter().for_each(|op| self.step(op));
        self.routes.drain(..).for_each(|route| allocator.end_allocate_to_pool(route));
        self.allocations.drain(..).for_each(|allocation| allocator.free(allocation).unwrap());
        self.pools.clear();
        self.streams.iter().for_each(|stream| self.accelerator.backend().release(stream.native()));
        allocator.empty_cache().unwrap();
        assert_eq!(self.accelerator.backend().used(), 0, "memory is left");
    }

    fn step(&mut self, op: &Op) {
        let (allocator, driver) = (self.accelerator.allocator(), self.accelerator.backend());
        let live = self.allocations.len();
        match *op {
            Op::Allocate { bytes, stream } => self.allocate(bytes, stream),
            Op::Free(nth) if live > 0 => allocator.free(self.allocations.swap_remove(nth % live)).unwrap(),
            Op::FreeMost => {
                let most: Vec<_> = self.allocations.drain(live / 8..).collect();
                most.into_iter().for_each(|allocation| allocator.free(allocation).unwrap());
            }
            Op::RecordUse { nth, stream } if live > 0 => {
                allocator.record_use(&self.allocations[nth % live], self.streams[stream]).unwrap();
            }
            Op::Free(_) | Op::RecordUse { .. } => {}
            Op::Hold(stream) => driver.hold(self.streams[stream].native()),
            Op::Release(stream) => driver.release(self.streams[stream].native()),
            Op::EmptyCache => allocator.empty_cache().unwrap(),
            Op::Expandable(on) => {
                let text = if on { "expandable_segments:True" } else { "expandable_segments:False" };
                allocator.set_config(allocator.config().updated(text).unwrap());
            }
            Op::NewPool => self.pools.push(MemPool::new(self.accelerator, MemPoolOptions::default()).unwrap()),
            Op::DropPool(nth) if !self.pools.is_empty() => drop(self.pools.swap_remove(nth % self.pools.len())),
            Op::Route(nth) if !self.pools.is_empty() => {
                let pool = self.pools[nth % self.pools.len()].id();
                self.routes.push(allocator.begin_allocate_to_pool(pool, MemPoolRequests::All).unwrap());
            }
            Op::EndRoute => self.routes.pop().into_iter().for_each(|route| allocator.end_allocate_to_pool(route)),
            Op::DropPool(_) | Op::Route(_) => {}
        }
        #[cfg(debug_assertions)]
        self.accelerator.allocator().check();
    }

    fn allocate(&mut self, bytes: u64, stream: usize) {
        let requested = NonZeroU64::new(bytes).unwrap();
        match self.accelerator.allocator().allocate(requested, self.streams[stream]) {
            Ok(allocation) => self.allocations.push(allocation),
            Err(Error::OutOfMemory(report)) => {
                self.refused += 1;
                let occupied = self.occupied();
                let room = (self.limit / PAGE * PAGE).saturating_sub(occupied);
                let needed = bytes.next_multiple_of(PAGE);
                assert!(needed > room, "{bytes} bytes were refused although {room} are left in whole pages: {report}");
                if bytes <= self.capacity {
                    self.check_report(&report, occupied);
                }
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Checks that the report accounts for every byte. Everything outside the pages of live blocks has gone back.
    fn check_report(&self, report: &OutOfMemory, occupied: u64) {
        let sum = |bytes: fn(&Allocation<Sim>) -> u64| self.allocations.iter().map(bytes).sum::<u64>();
        let (allocated, requested) = (sum(Allocation::size), sum(|allocation| allocation.requested().get()));
        let found = (report.allocated, report.pending, report.rounding, report.in_pieces, report.reserved);
        let expected = (allocated, 0, allocated - requested, occupied - allocated, occupied);
        assert_eq!(found, expected, "allocated, pending, rounding, in pieces, reserved: {report}");
    }

    /// Returns the bytes of all pages that live blocks occupy.
    fn occupied(&self) -> u64 {
        let physical = |allocation: &Allocation<Sim>| {
            let ranges = self.accelerator.backend().physical(allocation.ptr().trace_address(), allocation.size());
            ranges.unwrap_or_else(|| panic!("a live block has no memory"))
        };
        let ranges = self.allocations.iter().flat_map(physical);
        let pages = ranges.flat_map(|range| {
            let numbers = range.offset / PAGE..=(range.offset + range.len - 1) / PAGE;
            numbers.map(move |number| (range.memory, number))
        });
        pages.collect::<HashSet<_>>().len() as u64 * PAGE
    }
}

#[test]
fn a_request_fails_only_if_no_combination_of_pages_could_serve_it() {
    let refused = std::cell::Cell::new(0);
    check(50, programs(), |Programs { capacity, programs }| {
        let mut machine = Machine::new(*capacity);
        programs.iter().for_each(|(fraction, ops)| machine.run(*fraction, ops));
        refused.set(refused.get() + machine.refused);
    });
    assert!(refused.get() > 0, "no request was refused");
}
