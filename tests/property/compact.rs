//! Programs under the policy `compact`. Memory is visible at several addresses, so ownership of bytes is determined by
//! the physical memory behind the addresses. Streams take over what others have freed, so the test records events of
//! its own to find out whose work is over.

#[path = "compact/checks.rs"]
mod checks;
#[path = "compact/expected.rs"]
mod expected;
#[path = "compact/machine.rs"]
mod machine;
#[path = "compact/programs.rs"]
mod programs;

use std::cell::Cell;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, GIB, MIB};
use proptest::strategy::Strategy;

use self::expected::Simulated;
use self::machine::Machine;
use self::programs::{Beside, programs};
use super::model::program::{Op, Program};
use super::model::settings::Settings;
use super::{a_pair_fails, check, each_call_fails_on, faulty, one_call_fails, pair_fails, without_failing_allocations};

/// Runs random programs and returns in how many tenths of them memory was aliased.
fn run_all<B: Simulated>(cases: u32, programs: impl Strategy<Value = Program>, driver: impl Fn(&Program) -> B) -> u32 {
    let (run, aliased) = (Cell::new(0), Cell::new(0));
    check(cases, programs, |program| {
        let mut machine = Machine::new(driver(program), program.capacity, true);
        machine.run(&program.ops);
        run.set(run.get() + 1);
        aliased.set(aliased.get() + u32::from(machine.aliased > 0));
        machine.finish();
    });
    aliased.get() * 10 / run.get()
}

fn faulty_device(program: &Program) -> Faulty<Sim> {
    Faulty::new(Sim::new(program.capacity))
}

#[test]
fn every_byte_has_one_user_at_a_time() {
    let programs = programs(100, Beside::Nothing).prop_map(without_failing_allocations);
    let aliased = run_all(120, programs, faulty_device);
    assert!(aliased >= 5, "too few programs aliased memory");
}

#[test]
fn every_byte_has_one_user_at_a_time_whatever_else_is_set() {
    let programs = programs(100, Beside::Everything).prop_map(without_failing_allocations);
    let aliased = run_all(120, programs, faulty_device);
    assert!(aliased >= 5, "too few programs aliased memory");
}

#[test]
fn every_byte_has_one_user_at_a_time_where_memory_shows_once() {
    let driver = |program: &Program| Faulty::new(Sim::new(program.capacity).without_second_mappings());
    let programs = programs(100, Beside::Everything).prop_map(without_failing_allocations);
    assert_eq!(run_all(60, programs, driver), 0);
}

#[test]
fn every_byte_has_one_user_at_a_time_without_virtual_memory() {
    let driver = |program: &Program| Faulty::new(Sim::new(program.capacity).without_virtual_memory());
    let programs = programs(100, Beside::Everything).prop_map(without_failing_allocations);
    assert_eq!(run_all(60, programs, driver), 0);
}

#[test]
fn every_byte_has_one_user_at_a_time_where_allocations_fail() {
    let aliased = run_all(60, programs(100, Beside::NoWaits), |program| Sim::new(program.capacity));
    assert!(aliased >= 5, "too few programs aliased memory");
}

fn allocate(mebibytes: u64, stream: u32) -> Op {
    Op::Allocate { bytes: mebibytes * MIB, stream }
}

fn on(compact: bool) -> Op {
    Op::Configure(Settings { compact: Some(compact), ..Settings::default() })
}

/// The unused rest of one stream's memory serves another stream, although nothing was freed.
#[test]
fn unused_memory_serves_every_stream() {
    let mut machine = Machine::new(Sim::new(64 * MIB), 64 * MIB, true);
    machine.run(&[on(true), allocate(8, 0), allocate(40, 1), allocate(4, 1), allocate(7, 1)]);
    assert_eq!(machine.expected.live.len(), 4, "8 + 40 + 4 + 7 are less than 64");
    machine.finish();
}

/// A request takes memory that is free in four places, at addresses of its own: one more driver allocation, which ends
/// when the cache is emptied.
#[test]
fn a_range_of_aliases_counts_as_a_driver_allocation() {
    let counts = |bytes: u64| {
        let mut machine = Machine::new(Sim::new(160 * MIB), 160 * MIB, true);
        let frees = (1..5).map(|nth| Op::Free { nth });
        machine.run(&[on(true)].into_iter().chain(vec![allocate(20, 0); 8]).chain(frees).collect::<Vec<_>>());
        machine.run(&[allocate(bytes, 0)]);
        let aliased = machine.aliased;
        machine.run(&[vec![Op::Free { nth: 0 }; 5], vec![Op::EmptyCache]].concat());
        let statistics = machine.accelerator.allocator().statistics();
        machine.finish();
        (aliased, statistics.num_device_alloc, statistics.num_device_free)
    };
    let ((_, allocated, freed), aliased) = (counts(20), counts(80));
    assert_eq!(aliased, (1, allocated + 1, freed + 1));
}

/// Each request needs other free memory than the last one. Aliases of it are given up before there are too many.
#[test]
fn alias_ranges_are_at_most_twice_as_long_as_the_memory() {
    const BLOCKS: usize = 8;
    let settings = AllocatorConfig::default().updated("policy:compact").unwrap();
    let device = Accelerator::new(Sim::new(BLOCKS as u64 * 20 * MIB), 0, settings).unwrap();
    let allocate = |mebibytes: u64| device.allocate(mebibytes * MIB, device.default_stream()).unwrap();
    let mut blocks: Vec<_> = (0..BLOCKS).map(|_| Some(allocate(20))).collect();
    for chosen in (0..1_u32 << BLOCKS).filter(|chosen| chosen.count_ones() == 4) {
        let chosen = || (0..BLOCKS).filter(move |nth| chosen >> nth & 1 == 1);
        chosen().for_each(|nth| blocks[nth] = None);
        drop(allocate(80));
        chosen().for_each(|nth| blocks[nth] = Some(allocate(20)));
        // Each is half as long as the memory. Two more ranges are those of the memory itself.
        let [reserved, released] = [Call::Reserve, Call::Release].map(|call| device.backend().calls().of(call));
        assert!(reserved - released <= 4 + 2, "{reserved} ranges, of which {released} were released");
    }
    assert!(device.backend().calls().of(Call::Reserve) > 50);
}

/// `max_split_size_mb` has no effect, so a block of any size is given out and freed without counting as oversize.
#[test]
fn no_block_counts_as_oversize() {
    let settings = AllocatorConfig::default().updated("policy:compact,max_split_size_mb:64").unwrap();
    let device = Accelerator::new(Sim::new(GIB), 0, settings).unwrap();
    let buffer = device.allocate(100 * MIB, device.default_stream()).unwrap();
    let oversize = || device.allocator().statistics().oversize_allocations;
    drop(buffer.begin_use(device.stream(0).unwrap()).unwrap());
    drop(buffer);
    assert_eq!((oversize().current, oversize().allocated, oversize().freed), (0, 0, 0));
}

/// Returns a short program that aliases memory, shares it between streams, and frees it.
fn mapping_aliases() -> Program {
    let held = [allocate(70, 0), Op::RecordUse { nth: 3, stream: 1 }, Op::Hold(1), allocate(33, 1)];
    let given_back = [Op::Release(1), Op::Free { nth: 1 }, allocate(45, 1), Op::EmptyCache];
    let again = [allocate(50, 2), Op::Synchronize(2), allocate(60, 0), Op::EmptyCache, on(false)];
    let ops = [
        vec![on(true)],
        vec![allocate(26, 0); 7],
        vec![Op::Free { nth: 1 }, Op::Free { nth: 2 }, Op::Free { nth: 3 }],
        held.to_vec(),
        vec![Op::Free { nth: 5 }, Op::Free { nth: 4 }],
        given_back.to_vec(),
        vec![Op::Free { nth: 0 }, Op::Free { nth: 1 }],
        again.to_vec(),
        vec![allocate(30, 0), on(true), Op::Free { nth: 2 }, allocate(100, 0)],
    ];
    Program { capacity: 256 * MIB, ops: ops.concat() }
}

/// Checks that everything allocated was released, including address space.
fn finish(machine: Machine<Faulty<Sim>>) {
    let driver = machine.driver();
    machine.finish();
    driver.clear_failures();
}

#[test]
fn the_program_whose_calls_fail_maps_aliases() {
    let program = mapping_aliases();
    let mut machine: Machine<_> = faulty(&program);
    machine.run(&program.ops);
    assert!(machine.aliased > 4, "alias ranges after {} steps", machine.aliased);
    finish(machine);
}

#[test]
fn any_single_failing_call_leaks_nothing_and_drifts_no_statistic() {
    let program = mapping_aliases();
    each_call_fails_on(|| Sim::new(program.capacity), &program, finish);
}

#[test]
fn any_single_failing_call_leaks_nothing_where_memory_shows_once() {
    let program = mapping_aliases();
    each_call_fails_on(|| Sim::new(program.capacity).without_second_mappings(), &program, finish);
}

#[test]
fn any_single_failing_call_leaks_nothing_without_virtual_memory() {
    let program = mapping_aliases();
    each_call_fails_on(|| Sim::new(program.capacity).without_virtual_memory(), &program, finish);
}

const PAIRS: [[Call; 2]; 12] = [
    [Call::Create, Call::Create],
    [Call::Create, Call::Map],
    [Call::Map, Call::Map],
    [Call::Map, Call::Unmap],
    [Call::Unmap, Call::Unmap],
    [Call::WaitHost, Call::Unmap],
    [Call::WaitHost, Call::WaitHost],
    [Call::Reserve, Call::Reserve],
    [Call::Reserve, Call::Create],
    [Call::Record, Call::Record],
    [Call::Event, Call::Record],
    [Call::IsComplete, Call::WaitHost],
];

#[test]
fn failing_twice_leaks_nothing_and_drifts_no_statistic() {
    let program = mapping_aliases();
    for pair in PAIRS {
        (0..program.ops.len()).for_each(|start| pair_fails(&program, start, pair, finish));
    }
}

#[test]
fn any_single_failing_call_of_any_program_leaks_nothing_and_drifts_no_statistic() {
    one_call_fails(500, programs(24, Beside::Everything), finish);
}

#[test]
fn failing_twice_in_any_program_leaks_nothing_and_drifts_no_statistic() {
    a_pair_fails(300, programs(60, Beside::Everything), &PAIRS, finish);
}

/// What one stream has freed immediately serves another, which waits for it on the device.
#[test]
fn late_work_keeps_its_bytes() {
    for freed_first in [true, false] {
        let block = Op::Allocate { bytes: 65_537, stream: 0 };
        let mut machine = Machine::new(Faulty::new(Sim::new(64 * MIB)), 64 * MIB, true);
        machine.run(&[on(true), Op::Hold(0), block.clone()]);
        machine.run(if freed_first { &[] } else { std::slice::from_ref(&block) });
        machine.run(&[Op::Free { nth: 0 }, allocate(1, 1), allocate(40, 2), allocate(17, 1), Op::Release(0)]);
        machine.finish();
    }
}
