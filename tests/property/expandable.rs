//! Programs that switch expandable segments on and off.

use accelerator_conformance::{Call, Faulty, Sim};
use accelerator_core::MIB;
use proptest::strategy::Strategy;

use super::model::machine::{Driver, Machine};
use super::model::program::{Op, expandable_programs};
use super::model::settings::Settings;
use super::{a_pair_fails, check, faulty, one_call_fails, without_failing_allocations};

/// Checks that everything allocated was released, including address space.
fn finish<B: Driver>(machine: Machine<B>) {
    let driver = machine.accelerator().backend();
    machine.finish();
    for (taken, given_back) in [(Call::Reserve, Call::Release), (Call::Create, Call::Destroy), (Call::Map, Call::Unmap)]
    {
        let [taken, given_back] = [taken, given_back].map(|call| driver.calls().of(call));
        assert!(driver.faults() > 0 || taken >= given_back, "{taken} taken, {given_back} given back");
    }
}

#[test]
fn the_allocator_equals_the_model() {
    check(150, expandable_programs(100), |program| {
        let mut machine = Machine::new(Sim::new(program.capacity), program.capacity);
        machine.run(&program.ops);
        finish(machine);
    });
}

#[test]
fn the_allocator_equals_the_model_on_streams_that_wait() {
    check(40, expandable_programs(100).prop_map(without_failing_allocations), |program| {
        let mut machine: Machine<_> = faulty(program);
        machine.run(&program.ops);
        finish(machine);
    });
}

/// Without caching, a poll that frees a block may give back its page, for which it waits. What is over because of that
/// wait, it finds as well.
#[test]
fn a_poll_that_waits_to_unmap_finds_more_uses_that_are_over() {
    let expandable = |on| Op::Configure(Settings { expandable: Some(on), ..Settings::default() });
    let mut machine = Machine::new(Sim::new(64 * MIB), 64 * MIB);
    machine.run(&[
        Op::Hold(1),
        Op::Hold(2),
        expandable(true),
        Op::Allocate { bytes: 1, stream: 1 },
        expandable(false),
        Op::Allocate { bytes: 1, stream: 0 },
        Op::RecordUse { nth: 1, stream: 0 },
        Op::RecordUse { nth: 0, stream: 1 },
        Op::RecordUse { nth: 0, stream: 2 },
        Op::Free { nth: 0 },
        Op::Free { nth: 0 },
        Op::Configure(Settings { caching: Some(false), ..Settings::default() }),
        Op::Allocate { bytes: 1, stream: 0 },
    ]);
    finish(machine);
}

#[test]
fn any_single_failing_call_leaks_nothing_and_drifts_no_statistic() {
    one_call_fails(500, expandable_programs(36), finish::<Faulty<Sim>>);
}

#[test]
fn failing_twice_leaks_nothing_and_drifts_no_statistic() {
    const PAIRS: [[Call; 2]; 6] = [
        [Call::Create, Call::Create],
        [Call::Create, Call::Map],
        [Call::Map, Call::Unmap],
        [Call::Unmap, Call::Unmap],
        [Call::WaitHost, Call::Unmap],
        [Call::Reserve, Call::Reserve],
    ];
    a_pair_fails(150, expandable_programs(60), &PAIRS, finish::<Faulty<Sim>>);
}
