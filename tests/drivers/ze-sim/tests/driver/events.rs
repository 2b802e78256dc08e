//! Events, queues, fences, waiting and time.

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use level_zero_sys::*;

use crate::alone::{Alone, bare, valid};
use crate::control;
use crate::program::*;

pub(crate) fn trials() -> Vec<Alone> {
    vec![
        valid("events::are_signalled_reset_and_signalled_again", &[], again_and_again),
        valid("events::spoiling_them_is_a_violation", &[], spoiled),
        valid("events::a_reset_in_a_list_comes_in_its_turn", &[], reset_in_a_list),
        valid("events::asking_gets_there_and_a_held_list_does_not", &[], asking),
        valid("events::waiting_ends_when_its_time_is_over", &[], timeouts),
        valid("events::what_nothing_signals_is_told", &[("ZE_SIM_PATIENCE", "50")], in_vain),
        valid("events::lists_that_wait_for_each_other_are_told", &[("ZE_SIM_PATIENCE", "50")], in_a_circle),
        valid("events::another_thread_may_signal", &[("ZE_SIM_PATIENCE", "60000")], another_thread),
        valid("events::have_times_in_ticks_that_wrap", &[], times),
        valid("events::pools_have_so_many_places", &[], places),
        valid("events::that_count_are_refused", &[], counters),
        valid("events::the_host_sees_those_that_are_visible_to_it", &[], visibility),
        valid("events::queues_run_closed_lists_and_signal_fences", &[], queues),
        valid("events::what_is_destroyed_too_early_is_told", &[], too_early),
        bare("events::synchronous_lists_wait_at_every_call", &[], synchronous),
    ]
}

fn again_and_again() {
    let program = Program::start();
    let (list, other) = (program.list(0), program.list(0));
    let pool = program.pool(HOST_VISIBLE, 1);
    let event = program.event(pool, 0).unwrap();
    let a = program.device_memory(1).unwrap();
    assert_eq!(program.query(event), Err(NOT_READY));
    for round in 0..50 {
        control::seed(round);
        program.fill_with(list, a, &[round as u8], 1, event, &mut []).unwrap();
        let mut byte = 0xff_u8;
        program.copy_with(other, &raw mut byte as u64, a, 1, ptr::null_mut(), &mut [event]).unwrap();
        program.finish(other).unwrap();
        assert_eq!(byte, round as u8);
        program.wait_for(event, FOR_EVER).unwrap();
        assert_eq!(program.query(event), Ok(()));
        program.reset(event).unwrap();
        assert_eq!(program.query(event), Err(NOT_READY));
    }
    program.host_signal(event).unwrap();
    assert_eq!(program.query(event), Ok(()));
    control::expect_violations(0, &[]);
}

fn spoiled() {
    let program = Program::start();
    let list = program.list(0);
    let pool = program.pool(HOST_VISIBLE, 4);
    let [event, gone] = [0, 1].map(|index| program.event(pool, index).unwrap());
    control::hold(list as usize);
    program.signal(list, event).unwrap();
    program.signal(list, event).unwrap();
    control::expect_violations(0, &["signalled again before its last signal has happened"]);
    program.finish(list).unwrap();
    program.wait_in(list, &mut [event]).unwrap();
    program.host_signal(event).unwrap();
    control::expect_violations(1, &["signalled again while submitted commands have yet to wait"]);
    program.reset(event).unwrap();
    control::expect_violations(2, &["reset while 1 submitted commands have yet to wait for it"]);
    program.host_signal(event).unwrap();
    program.finish(list).unwrap();
    program.signal(list, gone).unwrap();
    program.destroy_event(gone).unwrap();
    control::expect_violations(3, &["destroyed while 1 submitted commands have yet to signal it"]);
    assert!(program.signal(list, gone).is_err());
}

fn reset_in_a_list() {
    let program = Program::start();
    let (list, other) = (program.list(0), program.list(0));
    let pool = program.pool(HOST_VISIBLE, 1);
    let event = program.event(pool, 0).unwrap();
    let barrier = || program.barrier(list, ptr::null_mut(), &mut []).unwrap();
    // Within one list this is correct any number of times, because the list orders the commands.
    for _ in 0..4 {
        program.signal(list, event).unwrap();
        program.wait_in(list, &mut [event]).unwrap();
        barrier();
        program.reset_in(list, event).unwrap();
        barrier();
    }
    program.finish(list).unwrap();
    assert_eq!(program.query(event), Err(NOT_READY));
    control::expect_violations(0, &[]);
    // A second list may execute its wait only after the reset.
    control::hold(other as usize);
    program.signal(list, event).unwrap();
    barrier();
    program.wait_in(other, &mut [event]).unwrap();
    program.reset_in(list, event).unwrap();
    program.finish(list).unwrap();
    control::expect_violations(0, &["reset while 1 commands submitted before"]);
    program.host_signal(event).unwrap();
    program.finish(other).unwrap();
}

fn asking() {
    let program = Program::start();
    let list = program.list(0);
    let pool = program.pool(HOST_VISIBLE, 1);
    let event = program.event(pool, 0).unwrap();
    let a = program.device_memory(1).unwrap();
    let mut pending = 0;
    for seed in 0..50 {
        control::seed(seed);
        for _ in 0..10 {
            program.fill(list, a, 1, 1).unwrap();
        }
        program.barrier(list, event, &mut []).unwrap();
        let asked = (0..1000).take_while(|_| program.query(event) == Err(NOT_READY)).count();
        assert!(asked < 1000);
        pending += asked;
        program.reset(event).unwrap();
    }
    assert!(pending > 100, "{pending}");
    assert_eq!(control::hold(list as usize), 0);
    program.barrier(list, event, &mut []).unwrap();
    assert!((0..1000).all(|_| program.query(event) == Err(NOT_READY)));
    assert_eq!(control::release(list as usize), 0);
    assert!((0..1000).any(|_| program.query(event) == Ok(())));
    assert_ne!(control::hold(7), 0);
}

fn timeouts() {
    let program = Program::start();
    let list = program.list(0);
    let pool = program.pool(HOST_VISIBLE, 2);
    let [event, last] = [0, 1].map(|index| program.event(pool, index).unwrap());
    let a = program.device_memory(64 * MIB).unwrap();
    // Takes more than four milliseconds of virtual time.
    let slow = || {
        program.fill_with(list, a, &[1], 64 * MIB, event, &mut []).unwrap();
    };
    slow();
    for _ in 0..100 {
        program.fill(list, a, 1, 64 * MIB).unwrap();
    }
    program.barrier(list, ptr::null_mut(), &mut []).unwrap();
    program.reset_in(list, event).unwrap();
    program.barrier(list, ptr::null_mut(), &mut []).unwrap();
    program.signal(list, last).unwrap();
    assert_eq!(program.wait_for(last, 10_000_000), Err(NOT_READY), "it takes four hundred milliseconds");
    program.wait_for(last, FOR_EVER).unwrap();
    slow();
    control::hold(list as usize);
    assert_eq!(program.wait_for(event, 1_000_000), Err(NOT_READY), "the list is held");
    control::release(list as usize);
    assert_eq!(program.wait_for(event, 1_000_000_000), Ok(()));
    control::hold(list as usize);
    program.reset(event).unwrap();
    program.barrier(list, event, &mut []).unwrap();
    assert_eq!(program.wait_for(event, FOR_EVER), Ok(()), "a wait without a timeout runs the submitted work");
    control::expect_violations(0, &[]);
}

fn in_vain() {
    let program = Program::start();
    let pool = program.pool(HOST_VISIBLE, 1);
    let event = program.event(pool, 0).unwrap();
    assert_eq!(program.wait_for(event, 1_000_000), Err(NOT_READY));
    control::expect_violations(0, &[]);
    assert_eq!(program.wait_for(event, FOR_EVER), Err(LOST));
    control::expect_violations(0, &["waits for something that no submitted work can signal"]);
}

fn in_a_circle() {
    let program = Program::start();
    let lists = [program.list(0), program.list(0)];
    let pool = program.pool(HOST_VISIBLE, 2);
    let [first, second] = [0, 1].map(|index| program.event(pool, index).unwrap());
    program.barrier(lists[0], first, &mut [second]).unwrap();
    program.barrier(lists[1], second, &mut [first]).unwrap();
    assert_eq!(program.wait_for(first, FOR_EVER), Err(LOST));
    control::expect_violations(0, &["waits for something that no submitted work can signal"]);
}

fn another_thread() {
    let program = Program::start();
    let list = program.list(0);
    let pool = program.pool(HOST_VISIBLE, 1);
    let event = program.event(pool, 0).unwrap() as usize;
    program.wait_in(list, &mut [event as Event]).unwrap();
    let start = Instant::now();
    let function = program.ze.zeEventHostSignal().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(100));
            // SAFETY: the event is live.
            done(unsafe { function(event as Event) }).unwrap();
        });
        program.finish(list).unwrap();
    });
    assert!(start.elapsed() < Duration::from_secs(30), "the signal wakes the waiting thread");
    control::expect_violations(0, &[]);
}

fn times() {
    let program = Program::start();
    let list = program.list(0);
    let pool = program.pool(HOST_VISIBLE | TIMESTAMPS, 2);
    let [start, end] = [0, 1].map(|index| program.event(pool, index).unwrap());
    let a = program.device_memory(16 * MIB).unwrap();
    let ask = |event| made(|times| ze!(program, zeEventQueryKernelTimestamp(event, times)));
    assert_eq!(ask(start).map(drop), Err(NOT_READY));
    let mut properties = ze_device_properties_t::default();
    done(ze!(program, zeDeviceGetProperties(program.devices[0], &raw mut properties))).unwrap();
    let mask = (1_u64 << properties.kernelTimestampValidBits) - 1;
    let mut wrapped = false;
    for bytes in [MIB, 16 * MIB] {
        program.barrier(list, start, &mut []).unwrap();
        program.fill(list, a, 1, bytes).unwrap();
        program.barrier(list, end, &mut []).unwrap();
        program.finish(list).unwrap();
        let (from, to) = (ask(start).unwrap().global.kernelEnd, ask(end).unwrap().global.kernelStart);
        // As the README says, a fill takes a nanosecond for every 16 bytes plus a microsecond.
        let nanoseconds = (to.wrapping_sub(from) & mask) * properties.timerResolution;
        let expected = bytes as u64 / 16 + 1_000;
        assert!(nanoseconds.abs_diff(expected) < 500, "{nanoseconds} {expected}");
        wrapped |= to < from;
        for event in [start, end] {
            program.reset(event).unwrap();
        }
    }
    assert!(wrapped, "32 bits of ticks wrap around even in a test");
    let plain = program.pool(HOST_VISIBLE, 1);
    let untimed = program.event(plain, 0).unwrap();
    program.host_signal(untimed).unwrap();
    assert!(ask(untimed).is_err());
    control::expect_violations(0, &["queried for timestamps, which its pool lacks"]);
}

fn places() {
    let program = Program::start();
    let pool = program.pool(HOST_VISIBLE, 2);
    let first = program.event(pool, 0).unwrap();
    program.event(pool, 1).unwrap();
    assert!(program.event(pool, 2).is_err());
    assert!(program.event(pool, 0).is_err());
    control::expect_violations(0, &["which is taken"]);
    program.destroy_event(first).unwrap();
    program.event(pool, 0).unwrap();
    program.destroy_pool(pool).unwrap();
    control::expect_violations(1, &["destroyed with 2 events left"]);
}

fn counters() {
    let program = Program::start();
    let counters = ze_event_pool_counter_based_exp_desc_t { flags: 1, ..Default::default() };
    let desc = ze_event_pool_desc_t { pNext: (&raw const counters).cast(), count: 1, ..Default::default() };
    let (context, none) = (program.context, ptr::null_mut());
    let pool = made(|pool| ze!(program, zeEventPoolCreate(context, &raw const desc, 0, none, pool)));
    assert_eq!(pool.map(drop), Err(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE));
}

fn visibility() {
    let program = Program::start();
    let list = program.list(0);
    let pool = program.pool(0, 1);
    let event = program.event(pool, 0).unwrap();
    program.signal(list, event).unwrap();
    program.finish(list).unwrap();
    control::expect_violations(0, &[]);
    assert_eq!(program.query(event), Ok(()));
    control::expect_violations(0, &["not visible to it"]);
}

/// Creates a queue and a list for it.
pub(crate) fn queue_and_list(program: &Program) -> (ze_command_queue_handle_t, List) {
    let (context, device) = (program.context, program.devices[0]);
    let desc = ze_command_queue_desc_t::default();
    let queue = made(|queue| ze!(program, zeCommandQueueCreate(context, device, &raw const desc, queue)));
    let desc = ze_command_list_desc_t::default();
    let list = made(|list| ze!(program, zeCommandListCreate(context, device, &raw const desc, list)));
    (queue.unwrap(), list.unwrap())
}

fn queues() {
    let program = Program::start();
    let (queue, list) = queue_and_list(&program);
    let desc = ze_fence_desc_t::default();
    let fence = made(|fence| ze!(program, zeFenceCreate(queue, &raw const desc, fence))).unwrap();
    let execute = |fence| {
        let mut lists = [list];
        done(ze!(program, zeCommandQueueExecuteCommandLists(queue, 1, lists.as_mut_ptr(), fence)))
    };
    let (a, b) = (program.device_memory(8).unwrap(), program.host_memory(8, 0).unwrap());
    program.fill(list, a, 7, 8).unwrap();
    program.barrier(list, ptr::null_mut(), &mut []).unwrap();
    program.copy(list, b, a, 8).unwrap();
    assert!(execute(fence).is_err());
    control::expect_violations(0, &["run before it is closed"]);
    done(ze!(program, zeCommandListClose(list))).unwrap();
    assert!(program.fill(list, a, 7, 8).is_err());
    control::expect_violations(1, &["which is closed"]);
    for _ in 0..2 {
        // SAFETY: the memory belongs to the trial.
        unsafe { (b as *mut u64).write_volatile(0) };
        assert_eq!(done(ze!(program, zeFenceQueryStatus(fence))), Err(NOT_READY));
        execute(fence).unwrap();
        done(ze!(program, zeFenceHostSynchronize(fence, FOR_EVER))).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { (b as *const u64).read_volatile() }, 0x0707_0707_0707_0707);
        done(ze!(program, zeFenceReset(fence))).unwrap();
    }
    control::hold(queue as usize);
    execute(fence).unwrap();
    execute(ptr::null_mut()).unwrap();
    done(ze!(program, zeFenceReset(fence))).unwrap();
    control::expect_violations(2, &["is run again while its work is not over", "is reset while its work is not"]);
    assert_eq!(done(ze!(program, zeCommandQueueSynchronize(queue, 0))), Err(NOT_READY));
    done(ze!(program, zeCommandListReset(list))).unwrap();
    control::expect_violations(4, &["is reset while its work is not over"]);
    done(ze!(program, zeCommandQueueSynchronize(queue, FOR_EVER))).unwrap();
    let desc = ze_command_list_desc_t { commandQueueGroupOrdinal: 1, ..Default::default() };
    let (context, device) = (program.context, program.devices[0]);
    let mut other = made(|list| ze!(program, zeCommandListCreate(context, device, &raw const desc, list))).unwrap();
    done(ze!(program, zeCommandListClose(other))).unwrap();
    let call = ze!(program, zeCommandQueueExecuteCommandLists(queue, 1, &raw mut other, ptr::null_mut()));
    let misfit = Err(ze_result_t::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    assert_eq!(done(call), misfit, "of another group of queues");
    program.destroy_list(other).unwrap();
    done(ze!(program, zeFenceDestroy(fence))).unwrap();
    done(ze!(program, zeCommandQueueDestroy(queue))).unwrap();
    program.destroy_list(list).unwrap();
    let live = [("allocations", 1), ("bytes", 8), ("host", 1), ("host_bytes", 8), ("contexts", 1)];
    assert_eq!(control::live(), live);
}

fn too_early() {
    let program = Program::start();
    let (queue, mut list) = queue_and_list(&program);
    let immediate = program.list(0);
    let a = program.device_memory(8).unwrap();
    control::hold(immediate as usize);
    control::hold(queue as usize);
    program.fill(immediate, a, 7, 8).unwrap();
    program.fill(list, a, 7, 8).unwrap();
    done(ze!(program, zeCommandListClose(list))).unwrap();
    let none = ptr::null_mut();
    done(ze!(program, zeCommandQueueExecuteCommandLists(queue, 1, &raw mut list, none))).unwrap();
    program.destroy_list(immediate).unwrap();
    program.destroy_list(list).unwrap();
    done(ze!(program, zeCommandQueueDestroy(queue))).unwrap();
    program.destroy_context(program.context).unwrap();
    let expected = ["command list", "command list", "command queue", "with 1 allocations left"];
    control::expect_violations(0, &expected);
}

fn synchronous() {
    let program = Program::start();
    let mode = ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    let desc = ze_command_queue_desc_t { mode, ..Default::default() };
    let (context, device) = (program.context, program.devices[0]);
    let list = made(|list| ze!(program, zeCommandListCreateImmediate(context, device, &raw const desc, list))).unwrap();
    let (a, mut byte) = (program.device_memory(1).unwrap(), 0_u8);
    for seed in 0..20 {
        control::seed(seed);
        program.fill(list, a, seed as u8, 1).unwrap();
        program.copy(list, &raw mut byte as u64, a, 1).unwrap();
        assert_eq!(byte, seed as u8);
    }
}
