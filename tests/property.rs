//! Random programs on the caching allocator, compared with a naive model after every step.
//!
//! The environment variables in `cases/mod.rs` set the number of programs and their seed, and where a failing one is
//! written. An allocator's own memory is never freed, so a very large number of programs needs several processes, each
//! with a different seed:
//!
//! ```text
//! for seed in $(seq 100); do
//!   PROPTEST_RNG_SEED=$seed PROPTEST_CASES=1000 cargo test --release -p accelerator-tests --test property NAME
//! done
//! ```
#![allow(clippy::unwrap_used, clippy::panic)] // helpers, too, which clippy does not treat as tests

mod cases;
#[path = "property/compact.rs"]
mod compact;
#[path = "property/expandable.rs"]
mod expandable;
#[path = "property/failing.rs"]
mod failing;
mod model;
#[path = "property/pinned.rs"]
mod pinned;
#[path = "property/pools.rs"]
mod pools;
#[path = "property/promise.rs"]
mod promise;
#[path = "property/streams.rs"]
mod streams;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{DriverErrorKind, MIB};
use proptest::prelude::{Strategy, any};
use proptest::sample::{Index, select};

use model::machine::{Driver, Machine};
use model::program::{Op, Program, programs};
use model::settings::Settings;

/// Runs a property under the name of the test, which is the name of the current thread.
fn check<S: Strategy>(cases: u32, inputs: S, property: impl Fn(&S::Value)) {
    cases::check(std::thread::current().name().unwrap(), cases, inputs, property);
}

/// Removes the program's failing allocations, which would count as faults.
fn without_failing_allocations(mut program: Program) -> Program {
    program.ops.retain(|op| !matches!(op, Op::FailAllocs(_)));
    program
}

/// Runs programs.
trait Subject<B: Driver> {
    fn new(driver: B, program: &Program) -> Self;

    fn driver(&self) -> &'static B;

    fn run(&mut self, ops: &[Op]);
}

impl<B: Driver> Subject<B> for Machine<B> {
    fn new(driver: B, program: &Program) -> Self {
        Self::new(driver, program.capacity)
    }

    fn driver(&self) -> &'static B {
        self.accelerator().backend()
    }

    fn run(&mut self, ops: &[Op]) {
        self.run(ops);
    }
}

fn faulty<S: Subject<Faulty<Sim>>>(program: &Program) -> S {
    S::new(Faulty::new(Sim::new(program.capacity)), program)
}

/// Runs the program once for each of its driver calls, with that call failing, for each kind of error.
fn each_call_fails_on<S: Subject<Faulty<Sim>>>(device: impl Fn() -> Sim, program: &Program, finish: fn(S)) {
    let calls = calls_of::<S>(&device, program);
    for kind in REASONS {
        for n in 1..=calls {
            call_fails(&device, program, (n, kind), finish);
        }
    }
}

/// Runs random programs with one failing call each. With a single failure, many programs run in little time.
fn one_call_fails<S: Subject<Faulty<Sim>>>(cases: u32, programs: impl Strategy<Value = Program>, finish: fn(S)) {
    let programs = programs.prop_map(without_failing_allocations);
    check(cases, (programs, any::<Index>(), select(&REASONS)), |(program, nth, kind)| {
        let device = || Sim::new(program.capacity);
        let calls = calls_of::<S>(&device, program);
        if calls > 0 {
            call_fails(&device, program, (1 + nth.index(calls as usize) as u64, *kind), finish);
        }
    });
}

const REASONS: [DriverErrorKind; 2] = [DriverErrorKind::Other, DriverErrorKind::OutOfMemory];

/// Returns how many of the program's calls may fail.
fn calls_of<S: Subject<Faulty<Sim>>>(device: &impl Fn() -> Sim, program: &Program) -> u64 {
    let mut subject = S::new(Faulty::new(device()), program);
    let before = fallible_calls(subject.driver());
    subject.run(&program.ops);
    fallible_calls(subject.driver()) - before
}

/// Runs the program with this call failing for this reason.
fn call_fails<S: Subject<Faulty<Sim>>>(
    device: &impl Fn() -> Sim,
    program: &Program,
    (n, kind): (u64, DriverErrorKind),
    finish: fn(S),
) {
    let mut subject = S::new(Faulty::new(device()), program);
    let driver = subject.driver();
    driver.fail_call(n, kind);
    subject.run(&program.ops);
    assert_eq!(driver.injected(), 1, "call {n} did not fail");
    finish(subject);
}

/// Runs random programs. From some step on, the next calls of a pair fail; each program uses one of the pairs.
fn a_pair_fails<S: Subject<Faulty<Sim>>>(
    cases: u32,
    programs: impl Strategy<Value = Program>,
    pairs: &'static [[Call; 2]],
    finish: fn(S),
) {
    let programs = programs.prop_map(without_failing_allocations);
    check(cases, (programs, any::<Index>(), select(pairs)), |(program, start, pair)| {
        pair_fails(program, start.index(program.ops.len() + 1), *pair, finish);
    });
}

/// Runs the program with the next calls of the pair failing from this step on.
fn pair_fails<S: Subject<Faulty<Sim>>>(program: &Program, start: usize, pair: [Call; 2], finish: fn(S)) {
    let (first, second) = program.ops.split_at(start);
    let mut subject: S = faulty(program);
    let driver = subject.driver();
    subject.run(first);
    pair.into_iter().for_each(|call| driver.fail_next(call, DriverErrorKind::Other));
    subject.run(second);
    driver.clear_failures();
    finish(subject);
}

#[test]
fn the_allocator_equals_the_model() {
    check(200, programs(100), |program| {
        let mut machine = Machine::new(Sim::new(program.capacity), program.capacity);
        machine.run(&program.ops);
        machine.finish();
    });
}

#[test]
fn the_allocator_equals_the_model_on_streams_that_wait() {
    check(40, programs(100).prop_map(without_failing_allocations), |program| {
        let mut machine: Machine<_> = faulty(program);
        machine.run(&program.ops);
        machine.finish();
    });
}

/// One driver call of a program fails, for lack of memory or for another reason.
#[test]
fn any_single_failing_call_leaks_nothing_and_drifts_no_statistic() {
    one_call_fails(500, programs(36), Machine::<Faulty<Sim>>::finish);
}

/// Two calls fail, so that the reaction to the first failure fails too.
#[test]
fn failing_twice_leaks_nothing_and_drifts_no_statistic() {
    const PAIRS: [[Call; 2]; 6] = [
        [Call::Record, Call::Record],
        [Call::Event, Call::Record],
        [Call::IsComplete, Call::WaitHost],
        [Call::Wait, Call::WaitHost],
        [Call::WaitHost, Call::WaitHost],
        [Call::Alloc, Call::Alloc],
    ];
    a_pair_fails(180, programs(60), &PAIRS, Machine::<Faulty<Sim>>::finish);
}

/// A pending block is to be reused after a wait, but neither the stream nor the host can wait. It stays pending.
#[test]
fn a_wait_that_fails_both_ways_loses_no_block() {
    for failing in [&[Call::Wait][..], &[Call::Wait, Call::WaitHost]] {
        let reuse = Settings { device_side_reuse: Some(true), ..Settings::default() };
        let allocate = Op::Allocate { bytes: 12 * MIB, stream: 0 };
        let mut machine: Machine<_> = faulty(&Program { capacity: 64 * MIB, ops: Vec::new() });
        machine.run(&[Op::Configure(reuse), Op::Hold(1), Op::Hold(2), allocate.clone()]);
        machine.run(&[1, 2].map(|stream| Op::RecordUse { nth: 0, stream }));
        machine.run(&[Op::Free { nth: 0 }]);
        let driver = machine.accelerator().backend();
        failing.iter().for_each(|call| driver.fail_next(*call, DriverErrorKind::Other));
        machine.run(&[allocate.clone(), Op::Free { nth: 0 }]);
        assert_eq!(driver.injected(), failing.len() as u64);
        machine.run(&[allocate]);
        assert_eq!(driver.calls().of(Call::Alloc), 1, "the pending block was available");
        machine.finish();
    }
}

/// A stream waits on the device for the second of another stream's two uses. A wait for the first stream then covers
/// both uses, although the other stream is held, so the first block is free, too.
#[test]
fn waiting_for_a_stream_includes_what_it_waits_for() {
    let allocate = |mebibytes| Op::Allocate { bytes: mebibytes * MIB, stream: 0 };
    let reuse = Settings { device_side_reuse: Some(true), ..Settings::default() };
    let mut machine: Machine<_> = faulty(&Program { capacity: 64 * MIB, ops: Vec::new() });
    machine.run(&[Op::Configure(reuse), allocate(12), allocate(22), Op::Hold(1)]);
    machine.run(&[0, 1].map(|nth| Op::RecordUse { nth, stream: 1 }));
    machine.run(&[Op::Free { nth: 0 }, Op::Free { nth: 0 }, allocate(22)]);
    let driver = machine.accelerator().backend();
    assert_eq!(driver.calls().of(Call::Wait), 1, "the second block is reused after a wait");
    machine.run(&[Op::Synchronize(0), allocate(12)]);
    assert_eq!(driver.calls().of(Call::Wait), 1, "the first was free already");
    assert_eq!(driver.calls().of(Call::Alloc), 2, "and is reused");
    machine.finish();
}

/// The event of a use cannot be recorded at first. It is recorded later, on a stream that is held by then, so it delays
/// what another stream does after a wait for it.
#[test]
fn an_event_that_is_recorded_late_keeps_later_work_waiting() {
    let allocate = |mebibytes, stream| Op::Allocate { bytes: mebibytes * MIB, stream };
    let reuse = Settings { device_side_reuse: Some(true), ..Settings::default() };
    let mut machine: Machine<_> = faulty(&Program { capacity: 64 * MIB, ops: Vec::new() });
    machine.run(&[Op::Configure(reuse), allocate(12, 0), Op::RecordUse { nth: 0, stream: 1 }]);
    let driver = machine.accelerator().backend();
    driver.fail_next(Call::Record, DriverErrorKind::Other);
    machine.run(&[Op::Free { nth: 0 }, Op::Hold(1), allocate(12, 0)]);
    assert_eq!(driver.calls().of(Call::Wait), 1, "after a wait for the held stream");
    machine.run(&[allocate(22, 2), Op::RecordUse { nth: 1, stream: 0 }, Op::Free { nth: 1 }, allocate(22, 3)]);
    assert_eq!(driver.calls().of(Call::Alloc), 3, "the block of stream 2 is in use");
    machine.finish();
}

/// Ties are rare in random programs. Here, the second block of the older segment competes with the first of the newer
/// one.
#[test]
fn a_tie_goes_to_the_older_segment() {
    let allocate = Op::Allocate { bytes: MIB, stream: 0 };
    let mut machine = Machine::new(Sim::new(64 * MIB), 64 * MIB);
    machine.run(&vec![allocate.clone(); 4]);
    machine.run(&[Op::Free { nth: 1 }, Op::Free { nth: 1 }, allocate.clone(), allocate]);
    machine.finish();
}

fn fallible_calls(driver: &Faulty<Sim>) -> u64 {
    let calls = driver.calls();
    let infallible = [Call::Dealloc, Call::DeallocHost, Call::Release, Call::Destroy];
    calls.total() - infallible.into_iter().map(|call| calls.of(call)).sum::<u64>()
}
