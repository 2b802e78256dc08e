//! Random programs on the caching allocator, compared with a naive model after every step.
#![allow(clippy::unwrap_used, clippy::panic)] // also in helpers, which clippy does not take for tests

mod model;
#[path = "property/pinned.rs"]
mod pinned;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{DriverErrorKind, MIB};
use proptest::strategy::Strategy;
use proptest::test_runner::Config;

use model::machine::Machine;
use model::program::{Op, Program, programs};
use model::settings::Settings;

/// The environment variable `PROPTEST_CASES` asks for more.
fn config(cases: u32) -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Without the failing allocations of the program: there they would count as faults.
fn without_failing_allocations(mut program: Program) -> Program {
    program.ops.retain(|op| !matches!(op, Op::FailAllocs(_)));
    program
}

fn faulty(program: &Program) -> Machine<Faulty<Sim>> {
    Machine::new(Faulty::new(Sim::new(program.capacity)), program.capacity)
}

proptest::proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn the_allocator_equals_the_model(program in programs(100)) {
        let mut machine = Machine::new(Sim::new(program.capacity), program.capacity);
        machine.run(&program.ops);
        machine.finish();
    }
}

proptest::proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn the_allocator_equals_the_model_on_streams_that_wait(
        program in programs(100).prop_map(without_failing_allocations)
    ) {
        let mut machine = faulty(&program);
        machine.run(&program.ops);
        machine.finish();
    }
}

proptest::proptest! {
    #![proptest_config(config(5))]

    /// Every driver call of the program fails in turn, once for lack of memory and once for another reason.
    #[test]
    fn any_single_failing_call_leaks_nothing_and_drifts_no_statistic(
        program in programs(36).prop_map(without_failing_allocations)
    ) {
        let mut machine = faulty(&program);
        let before = fallible_calls(&machine);
        machine.run(&program.ops);
        let calls = fallible_calls(&machine) - before;
        for kind in [DriverErrorKind::Other, DriverErrorKind::OutOfMemory] {
            for n in 1..=calls {
                let mut machine = faulty(&program);
                let driver = machine.accelerator().backend();
                driver.fail_call(n, kind);
                machine.run(&program.ops);
                assert_eq!(driver.injected(), 1, "call {n} of {calls} did not fail");
                machine.finish();
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(config(8))]

    /// Two calls fail, so that what is done about the first fails too.
    #[test]
    fn failing_twice_leaks_nothing_and_drifts_no_statistic(
        program in programs(60).prop_map(without_failing_allocations)
    ) {
        let pairs = [
            [Call::Record, Call::Record],
            [Call::Event, Call::Record],
            [Call::IsComplete, Call::WaitHost],
            [Call::WaitHost, Call::WaitHost],
            [Call::Alloc, Call::Alloc],
        ];
        for pair in pairs {
            for start in [0, program.ops.len() / 3, program.ops.len() * 2 / 3] {
                let (first, second) = program.ops.split_at(start);
                let mut machine = faulty(&program);
                let driver = machine.accelerator().backend();
                machine.run(first);
                pair.into_iter().for_each(|call| driver.fail_next(call, DriverErrorKind::Other));
                machine.run(second);
                driver.clear_failures();
                machine.finish();
            }
        }
    }
}

/// A pending block is to be reused behind a wait, and neither the stream nor the host can wait: it stays pending.
#[test]
fn a_wait_that_fails_both_ways_loses_no_block() {
    for failing in [&[Call::Wait][..], &[Call::Wait, Call::WaitHost]] {
        let reuse = Settings { device_side_reuse: Some(true), ..Settings::default() };
        let allocate = Op::Allocate { bytes: 12 * MIB, stream: 0 };
        let mut machine = faulty(&Program { capacity: 64 * MIB, ops: Vec::new() });
        machine.run(&[Op::Configure(reuse), Op::Hold(1), Op::Hold(2), allocate.clone()]);
        machine.run(&[1, 2].map(|stream| Op::RecordUse { nth: 0, stream }));
        machine.run(&[Op::Free { nth: 0 }]);
        let driver = machine.accelerator().backend();
        failing.iter().for_each(|call| driver.fail_next(*call, DriverErrorKind::Other));
        machine.run(&[allocate.clone(), Op::Free { nth: 0 }]);
        assert_eq!(driver.injected(), failing.len() as u64);
        machine.run(&[allocate]);
        assert_eq!(driver.calls().of(Call::Alloc), 1, "the pending block was to be had");
        machine.finish();
    }
}

/// Ties are rare in random programs: the second block of the older segment against the first of the newer one.
#[test]
fn a_tie_goes_to_the_older_segment() {
    let allocate = Op::Allocate { bytes: MIB, stream: 0 };
    let mut machine = Machine::new(Sim::new(64 * MIB), 64 * MIB);
    machine.run(&vec![allocate.clone(); 4]);
    machine.run(&[Op::Free { nth: 1 }, Op::Free { nth: 1 }, allocate.clone(), allocate]);
    machine.finish();
}

fn fallible_calls(machine: &Machine<Faulty<Sim>>) -> u64 {
    let calls = machine.accelerator().backend().calls();
    calls.total() - calls.of(Call::Dealloc) - calls.of(Call::DeallocHost)
}
