//! The order of work: exactly what lists, barriers and events guarantee.

use std::collections::BTreeSet;
use std::ptr;

use level_zero_sys::*;

use crate::alone::{Alone, bare, valid};
use crate::control;
use crate::program::*;

const SEEDS: u64 = 64;

pub(crate) fn trials() -> Vec<Alone> {
    vec![
        valid("ordering::without_the_flag_commands_change_places", &[], without_the_flag),
        valid("ordering::a_barrier_waits_for_what_came_before", &[], a_barrier),
        valid("ordering::a_barrier_with_events_waits_for_them_alone", &[], a_barrier_with_events),
        valid("ordering::what_follows_a_wait_waits", &[], what_follows_a_wait),
        bare("ordering::in_order_lists_keep_their_order", &[], in_order),
        bare("ordering::an_old_driver_knows_no_order", &[("ZE_SIM_API_VERSION", "1.6")], an_old_driver),
        bare("ordering::recorded_lists_keep_theirs", &[], recorded),
        valid("ordering::lists_do_not_wait_for_each_other", &[], two_lists),
        valid("ordering::one_seed_is_one_order", &[], one_seed),
    ]
}

/// Returns the values of the second byte over many seeds. Each time `work` gets a fresh list and two bytes that are 0.
fn seen(program: &Program, flags: u32, work: impl Fn(List, u64, u64)) -> BTreeSet<u8> {
    let list = program.list(flags);
    let (a, b) = (program.device_memory(1).unwrap(), program.device_memory(1).unwrap());
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        control::seed(seed);
        for address in [a, b] {
            program.fill(list, address, 0, 1).unwrap();
        }
        program.finish(list).unwrap();
        work(list, a, b);
        seen.insert(program.read(list, b, 1)[0]);
    }
    program.destroy_list(list).unwrap();
    for address in [a, b] {
        program.free(address).unwrap();
    }
    assert_eq!(control::violation_text(), "");
    seen
}

/// Writes `a` and copies it to `b`.
fn write_and_copy(program: &Program, list: List, a: u64, b: u64) {
    program.fill(list, a, 1, 1).unwrap();
    program.copy(list, b, a, 1).unwrap();
}

fn without_the_flag() {
    let program = Program::start();
    let found = seen(&program, 0, |list, a, b| write_and_copy(&program, list, a, b));
    assert_eq!(found, BTreeSet::from([0, 1]));
}

fn in_order() {
    let program = Program::start();
    let found = seen(&program, IN_ORDER, |list, a, b| write_and_copy(&program, list, a, b));
    assert_eq!(found, BTreeSet::from([1]));
}

fn an_old_driver() {
    let program = Program::start();
    let found = seen(&program, IN_ORDER, |list, a, b| write_and_copy(&program, list, a, b));
    assert_eq!(found, BTreeSet::from([0, 1]));
}

fn recorded() {
    let program = Program::start();
    let (context, device) = (program.context, program.devices[0]);
    let desc = ze_command_queue_desc_t::default();
    let queue = made(|queue| ze!(program, zeCommandQueueCreate(context, device, &raw const desc, queue))).unwrap();
    let (a, b) = (program.device_memory(1).unwrap(), program.device_memory(1).unwrap());
    let list = program.list(0);
    let run = |flags: u32| {
        let desc = ze_command_list_desc_t { flags, ..Default::default() };
        let own = made(|list| ze!(program, zeCommandListCreate(context, device, &raw const desc, list))).unwrap();
        write_and_copy(&program, own, a, b);
        done(ze!(program, zeCommandListClose(own))).unwrap();
        let mut seen = BTreeSet::new();
        for seed in 0..SEEDS {
            control::seed(seed);
            for address in [a, b] {
                program.fill(list, address, 0, 1).unwrap();
            }
            program.finish(list).unwrap();
            let mut lists = [own];
            let none = ptr::null_mut();
            done(ze!(program, zeCommandQueueExecuteCommandLists(queue, 1, lists.as_mut_ptr(), none))).unwrap();
            done(ze!(program, zeCommandQueueSynchronize(queue, FOR_EVER))).unwrap();
            seen.insert(program.read(list, b, 1)[0]);
        }
        seen
    };
    assert_eq!(run(0), BTreeSet::from([0, 1]));
    let in_order = ze_command_list_flag_t::ZE_COMMAND_LIST_FLAG_IN_ORDER.0;
    assert_eq!(run(in_order), BTreeSet::from([1]));
}

fn a_barrier() {
    let program = Program::start();
    let found = seen(&program, 0, |list, a, b| {
        program.fill(list, a, 1, 1).unwrap();
        program.barrier(list, ptr::null_mut(), &mut []).unwrap();
        program.copy(list, b, a, 1).unwrap();
    });
    assert_eq!(found, BTreeSet::from([1]));
}

fn a_barrier_with_events() {
    let program = Program::start();
    let pool = program.pool(HOST_VISIBLE, 2);
    let [awaited, unrelated] = [0, 1].map(|index| program.event(pool, index).unwrap());
    let run = |waits_for_the_fill: bool| {
        seen(&program, 0, |list, a, b| {
            program.reset(awaited).unwrap();
            program.reset(unrelated).unwrap();
            program.fill_with(list, a, &[1], 1, awaited, &mut []).unwrap();
            program.signal(list, unrelated).unwrap();
            let event = if waits_for_the_fill { awaited } else { unrelated };
            program.barrier(list, ptr::null_mut(), &mut [event]).unwrap();
            program.copy(list, b, a, 1).unwrap();
            program.finish(list).unwrap();
        })
    };
    assert_eq!(run(true), BTreeSet::from([1]));
    assert_eq!(run(false), BTreeSet::from([0, 1]), "such a barrier waits for nothing else");
}

fn what_follows_a_wait() {
    let program = Program::start();
    let pool = program.pool(HOST_VISIBLE, 1);
    let written = program.event(pool, 0).unwrap();
    let other = program.list(0);
    let found = seen(&program, 0, |list, a, b| {
        program.reset(written).unwrap();
        // The wait is submitted even before the command that signals.
        program.wait_in(list, &mut [written]).unwrap();
        program.copy(list, b, a, 1).unwrap();
        program.fill_with(other, a, &[1], 1, written, &mut []).unwrap();
        program.finish(list).unwrap();
    });
    assert_eq!(found, BTreeSet::from([1]));
}

fn two_lists() {
    let program = Program::start();
    let other = program.list(0);
    let found = seen(&program, 0, |list, a, b| {
        program.fill(other, a, 1, 1).unwrap();
        program.barrier(other, ptr::null_mut(), &mut []).unwrap();
        program.barrier(list, ptr::null_mut(), &mut []).unwrap();
        program.copy(list, b, a, 1).unwrap();
        program.finish(other).unwrap();
    });
    assert_eq!(found, BTreeSet::from([0, 1]));
}

fn one_seed() {
    let program = Program::start();
    let list = program.list(0);
    let a = program.device_memory(1).unwrap();
    // The last writer reveals the order of the fills.
    let run = |seed: u64| {
        control::seed(seed);
        let mut last = Vec::new();
        for _ in 0..20 {
            for value in 0..4 {
                program.fill(list, a, value, 1).unwrap();
            }
            last.push(program.read(list, a, 1)[0]);
        }
        last
    };
    let orders: Vec<_> = (0..8).map(run).collect();
    assert_eq!(orders, (0..8).map(run).collect::<Vec<_>>());
    assert!(orders.iter().collect::<BTreeSet<_>>().len() > 1, "{orders:?}");
    assert_eq!(orders.concat().into_iter().collect::<BTreeSet<_>>().len(), 4);
}
