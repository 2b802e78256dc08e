//! Random programs on the caching allocator, compared with a naive model after every step.

mod model;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::DriverErrorKind;
use proptest::strategy::Strategy;
use proptest::test_runner::Config;

use model::machine::Machine;
use model::program::{Op, Program, programs};

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
        machine.run(&program);
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
        machine.run(&program);
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
        machine.run(&program);
        let calls = fallible_calls(&machine) - before;
        for kind in [DriverErrorKind::Other, DriverErrorKind::OutOfMemory] {
            for n in 1..=calls {
                let mut machine = faulty(&program);
                let driver = machine.accelerator().backend();
                driver.fail_call(n, kind);
                machine.run(&program);
                assert_eq!(driver.injected(), 1, "call {n} of {calls} did not fail");
                machine.finish();
            }
        }
    }
}

fn fallible_calls(machine: &Machine<Faulty<Sim>>) -> u64 {
    let calls = machine.accelerator().backend().calls();
    calls.total() - calls.of(Call::Dealloc)
}
