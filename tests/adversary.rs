//! Random programs on a device that does its worst within the contract: work runs late and in any permitted order, and
//! streams use memory without waiting for one another. Half of the buffers are overwritten before they are freed, if
//! nobody may be reading them.
//!
//! A shadow of the physical memory judges the allocator: no byte may be handed out while anybody may still use it. The
//! bytes that programs read back are compared with those of a program without streams, and allocated bytes with the sum
//! over all live blocks.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers, too, which clippy does not treat as tests

#[path = "adversary/captured.rs"]
mod captured;
mod cases;
#[path = "adversary/device/mod.rs"]
mod device;
#[path = "adversary/host.rs"]
mod host;
#[path = "adversary/machine.rs"]
mod machine;
#[path = "adversary/owned.rs"]
mod owned;
#[path = "adversary/pinned.rs"]
mod pinned;
#[path = "adversary/pools.rs"]
mod pools;
#[path = "adversary/program.rs"]
mod program;
mod readers;

use std::sync::atomic::{AtomicBool, Ordering};

use accelerator_core::{Accelerator, MIB, Stat};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::Index;

use device::{Adversary, Plan};
use machine::Machine;
use program::{Op, Program, programs};
use readers::read_while;

/// Runs a property under the name of the test, which is the name of the current thread.
fn check<S: Strategy>(cases: u32, inputs: S, property: impl Fn(&S::Value)) {
    cases::check(std::thread::current().name().unwrap(), cases, inputs, property);
}

fn run(program: &Program) {
    let _alone = Adversary::alone();
    let mut machine = Machine::new(program);
    machine.run(&program.ops, Plan::None);
    machine.finish();
}

/// Runs a program in which driver calls fail, given the number of calls that it makes.
fn run_failing(program: &Program, plan: impl FnOnce(u64) -> Plan) {
    let _alone = Adversary::alone();
    let mut machine = Machine::new(program);
    let calls = machine.run(&program.ops, Plan::None);
    machine.finish();
    let (mut machine, plan) = (Machine::new(program), plan(calls.max(1)));
    machine.run(&program.ops, plan);
    match plan {
        Plan::Lost(_) => machine.abandon(),
        _ => machine.finish(),
    }
}

#[test]
fn no_byte_is_handed_out_while_anybody_may_still_use_it() {
    check(1000, programs(80), run);
}

/// A call fails, or two calls, or all from some call on. Afterwards, calls succeed again, and nothing is lost. Or the
/// device is lost at some call.
#[test]
fn nor_when_driver_calls_fail() {
    let plans = (programs(60), any::<Index>(), any::<Index>(), 0..4);
    check(200, plans, |(program, first, second, kind)| {
        run_failing(program, |calls| {
            let [first, second] = [first, second].map(|nth| 1 + nth.index(calls as usize) as u64);
            match kind {
                0 => Plan::One(first),
                1 => Plan::Two(first, second),
                2 => Plan::From(first),
                _ => Plan::Lost(first),
            }
        });
    });
}

/// The contents are copied to pinned memory, which goes back when the pause fails. If the wait for the copy fails
/// twice, the copy may still read the pages, so nobody may get them.
#[test]
fn nor_when_calls_of_a_pause_fail() {
    let ops = vec![
        Op::NewPool { pausable: true },
        Op::Route(0),
        Op::Allocate { bytes: 3 * MIB, stream: 1 },
        Op::Write { nth: 0, stream: 1, value: 7 },
        Op::Allocate { bytes: 512, stream: 1 },
        Op::Pause { nth: 0, keep: true },
        Op::Allocate { bytes: 512, stream: 1 },
        Op::Free { nth: 0, poison: false },
        Op::EmptyCache,
        Op::Resume(0),
    ];
    for policy in ["", "policy:compact"] {
        let program = Program { seed: 1, memory: 64 * MIB, maps: true, policy, ops: ops.clone() };
        let mut whole = 0;
        run_failing(&program, |calls| {
            whole = calls;
            Plan::None
        });
        assert!(whole > 20, "the program makes only {whole} calls");
        for first in 1..=whole {
            run_failing(&program, |_| Plan::From(first));
            (first..first + 4).for_each(|second| run_failing(&program, |_| Plan::Two(first, second)));
        }
    }
}

#[test]
fn nor_between_threads() {
    check(60, vec(programs(150), 3), |programs| {
        let _alone = Adversary::alone();
        let mut machine = Machine::new(&programs[0]);
        let threads = programs.iter().map(|program| {
            let ops: Vec<_> = program.ops.iter().filter(|op| op.is_private()).cloned().collect();
            (machine.beside(), ops)
        });
        let mut threads: Vec<_> = threads.collect();
        let work = threads.iter_mut().map(|(other, ops)| {
            || {
                other.run(ops, Plan::None);
                other.free_all();
            }
        });
        read_while(work, 1, |over| read_peaks(machine.device, over));
        let peaks: Vec<_> = threads.iter().map(|(other, _)| other.tally.peak.load(Ordering::Relaxed)).collect();
        let peak = machine.device.allocator().statistics().allocated_bytes.all.peak;
        let possible = *peaks.iter().max().unwrap()..=peaks.iter().sum();
        assert!(possible.contains(&peak), "the peak is {peak}, and those of the threads are {peaks:?}");
        drop(threads);
        machine.finish();
    });
}

#[test]
fn kernels_that_nobody_orders_never_share_a_byte() {
    check(100, programs(80), host::run);
}

/// Reads statistics until a flag is set: no peak is below a value that was read before.
fn read_peaks(device: &Accelerator<Adversary>, over: &AtomicBool) {
    let mut highest = 0;
    while !over.load(Ordering::Relaxed) {
        let Stat { current, peak, .. } = device.allocator().statistics().allocated_bytes.all;
        assert!(peak >= highest.max(current), "a peak of {peak} was read, after {highest}, with {current} allocated");
        highest = peak;
        std::thread::yield_now();
    }
}
