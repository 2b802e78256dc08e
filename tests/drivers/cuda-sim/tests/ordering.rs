//! The order of work: exactly what streams and events guarantee.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::*;
use cuda_sim::{cuda_sim_hold, cuda_sim_release, cuda_sim_seed};

const SEEDS: u64 = 64;

/// Returns what a consumer's stream reads of what a producer's stream writes, over many seeds.
fn seen(producer: Handle, consumer: Handle, waits: bool) -> BTreeSet<u8> {
    let (a, b) = (alloc(1).unwrap(), alloc(1).unwrap());
    let written = event(NO_TIMING).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        cuda_sim_seed(seed);
        fill_now(a, 0, 1).unwrap();
        synchronize().unwrap();
        fill(a, 1, 1, producer).unwrap();
        record(written, producer).unwrap();
        if waits {
            wait_event(consumer, written, 0).unwrap();
        }
        copy_on_device(b, a, 1, consumer).unwrap();
        // Recording an event again does not affect work that already waits for it.
        record(written, consumer).unwrap();
        synchronize().unwrap();
        seen.insert(download(b, 1).unwrap()[0]);
    }
    for address in [a, b] {
        free(address).unwrap();
    }
    destroy_event(written).unwrap();
    seen
}

#[test]
fn a_waiting_stream_sees_the_new_bytes_and_another_sees_either() {
    let driver = Exclusive::new();
    let [one, two] = [NON_BLOCKING; 2].map(|flags| stream(flags).unwrap());
    assert_eq!(seen(one, two, true), BTreeSet::from([1]));
    assert_eq!(seen(one, two, false), BTreeSet::from([0, 1]));
    assert_eq!(seen(one, one, false), BTreeSet::from([1]), "one stream keeps its order");
    assert_eq!(driver.violations(), 0);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let _driver = Exclusive::new();
    let (blocking, free) = (stream(0).unwrap(), stream(NON_BLOCKING).unwrap());
    let (legacy, per_thread, other) = (0, 2, stream(0).unwrap());
    let new = BTreeSet::from([1]);
    let either = BTreeSet::from([0, 1]);
    for (producer, consumer, expected) in [
        (legacy, blocking, &new),
        (blocking, legacy, &new),
        (1, blocking, &new),
        (per_thread, legacy, &new),
        (legacy, per_thread, &new),
        (legacy, free, &either),
        (free, legacy, &either),
        (blocking, other, &either),
        (blocking, per_thread, &either),
    ] {
        assert_eq!(seen(producer, consumer, false), *expected, "{producer} {consumer}");
    }
}

#[test]
fn one_seed_is_one_order() {
    let _driver = Exclusive::new();
    let streams = [NON_BLOCKING; 4].map(|flags| stream(flags).unwrap());
    let a = alloc(4).unwrap();
    // The last writer reveals the order in which four streams wrote.
    let run = |seed: u64| {
        cuda_sim_seed(seed);
        let mut last = Vec::new();
        for _ in 0..20 {
            for (index, stream) in streams.iter().enumerate() {
                fill(a, index as u8, 4, *stream).unwrap();
            }
            synchronize().unwrap();
            last.push(download(a, 1).unwrap()[0]);
        }
        last
    };
    let orders: Vec<_> = (0..8).map(run).collect();
    assert_eq!(orders, (0..8).map(run).collect::<Vec<_>>());
    assert!(orders.iter().collect::<BTreeSet<_>>().len() > 1, "{orders:?}");
    assert_eq!(orders.concat().into_iter().collect::<BTreeSet<_>>().len(), 4);
    free(a).unwrap();
}

#[test]
fn queries_make_progress_except_on_a_held_stream() {
    let _driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let (a, end) = (alloc(1).unwrap(), event(0).unwrap());
    assert_eq!(query_event(end), Ok(()), "nothing was recorded");
    let mut pending = 0;
    for seed in 0..SEEDS {
        cuda_sim_seed(seed);
        for _ in 0..10 {
            fill(a, 1, 1, own).unwrap();
        }
        record(end, own).unwrap();
        let ask = || if seed % 2 == 0 { query_event(end) } else { query_stream(own) };
        let asked = (0..1000).take_while(|_| ask() == Err(NOT_READY)).count();
        assert!(asked < 1000);
        pending += asked;
    }
    assert!(pending > 100, "{pending}");
    assert_eq!(cuda_sim_hold(own), 0);
    record(end, own).unwrap();
    assert!((0..1000).all(|_| query_event(end) == Err(NOT_READY)));
    // A wait releases the work submitted so far. Later work is held again.
    synchronize_event(end).unwrap();
    assert_eq!(query_event(end), Ok(()));
    record(end, own).unwrap();
    assert!((0..1000).all(|_| query_stream(own) == Err(NOT_READY)));
    assert_eq!(cuda_sim_release(own), 0);
    assert!((0..1000).any(|_| query_stream(own) == Ok(())));
    free(a).unwrap();
}

#[test]
fn work_of_destroyed_streams_and_events_still_happens() {
    let _driver = Exclusive::new();
    let (own, other) = (stream(NON_BLOCKING).unwrap(), stream(NON_BLOCKING).unwrap());
    let (a, written) = (alloc(1).unwrap(), event(NO_TIMING).unwrap());
    fill_now(a, 0, 1).unwrap();
    synchronize().unwrap();
    let before = cuda_sim::cuda_sim_live_streams();
    fill(a, 9, 1, own).unwrap();
    record(written, own).unwrap();
    wait_event(other, written, 0).unwrap();
    destroy_stream(own).unwrap();
    destroy_event(written).unwrap();
    assert_eq!(cuda_sim::cuda_sim_live_streams(), before - 1);
    assert_eq!(
        [fill(a, 1, 1, own), synchronize_stream(own), destroy_stream(own), destroy_event(written)],
        [Err(400); 4]
    );
    synchronize_stream(other).unwrap();
    assert_eq!(download(a, 1).unwrap(), [9]);
    assert_eq!([destroy_stream(0), destroy_stream(2), record(written, 0)], [Err(400); 3]);
    free(a).unwrap();
}

#[test]
fn virtual_time_passes_with_the_work() {
    let _driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let a = alloc(64 * MIB).unwrap();
    let [start, middle, end] = [0; 3].map(|flags| event(flags).unwrap());
    let untimed = event(NO_TIMING).unwrap();
    assert_eq!(elapsed(start, end), Err(400), "not recorded");
    let run = || {
        record(start, own).unwrap();
        fill(a, 1, 1 << 10, own).unwrap();
        record(middle, own).unwrap();
        fill(a, 1, 64 << 20, own).unwrap();
        record(end, own).unwrap();
    };
    run();
    cuda_sim_hold(own);
    assert_eq!(elapsed(start, end), Err(NOT_READY));
    cuda_sim_release(own);
    synchronize_stream(own).unwrap();
    let (short, long) = (elapsed(start, middle).unwrap(), elapsed(middle, end).unwrap());
    assert!(0.0 < short && short < long, "{short} {long}");
    run();
    synchronize_stream(own).unwrap();
    assert_eq!(elapsed(start, middle).unwrap(), short);
    record(untimed, own).unwrap();
    synchronize_stream(own).unwrap();
    assert_eq!([elapsed(start, untimed), elapsed(untimed, end)], [Err(400); 2]);
    free(a).unwrap();
}

#[test]
fn an_event_is_recorded_in_its_own_context_alone_and_waited_for_in_any() {
    let driver = Exclusive::new();
    let (first, written) = (stream(NON_BLOCKING).unwrap(), event(NO_TIMING).unwrap());
    let a = alloc(1).unwrap();
    use_device(1);
    let second = stream(NON_BLOCKING).unwrap();
    let b = alloc(1).unwrap();
    assert_eq!(record(written, second), Err(400));
    for seed in 0..SEEDS {
        cuda_sim_seed(seed);
        fill(a, seed as u8, 1, first).unwrap();
        record(written, first).unwrap();
        wait_event(second, written, 0).unwrap();
        copy_async(b, a, 1, second).unwrap();
        synchronize_stream(second).unwrap();
        assert_eq!(download(b, 1).unwrap(), [seed as u8]);
    }
    free(b).unwrap();
    free(a).unwrap();
    assert_eq!(driver.violations(), 0);
}

/// The argument of a host function: a channel that lets it continue, and the result of its driver call.
struct Gate {
    go: mpsc::Receiver<()>,
    answer: AtomicU32,
}

/// # Safety
/// * `data` is a [`Gate`] that lives until the stream is done.
unsafe extern "C" fn pass_gate(data: *mut c_void) {
    // SAFETY: the caller promises that `data` is a live `Gate`.
    let gate = unsafe { &*data.cast::<Gate>() };
    gate.go.recv().unwrap();
    gate.answer.store(synchronize().unwrap_err() as u32, Ordering::Relaxed);
}

#[test]
fn a_host_function_takes_its_time_on_a_thread_of_its_own() {
    let _driver = Exclusive::new();
    let (own, other) = (stream(NON_BLOCKING).unwrap(), stream(NON_BLOCKING).unwrap());
    let (go, wait) = mpsc::channel();
    let gate = Gate { go: wait, answer: AtomicU32::new(0) };
    let (a, after) = (alloc(1).unwrap(), event(NO_TIMING).unwrap());
    fill_now(a, 0, 1).unwrap();
    synchronize().unwrap();
    launch_host_function(own, pass_gate, &raw const gate as u64).unwrap();
    fill(a, 5, 1, own).unwrap();
    record(after, own).unwrap();
    wait_event(other, after, 0).unwrap();
    assert!((0..1000).all(|_| query_stream(other) == Err(NOT_READY)), "the gate is closed");
    // Several threads wait for work that only the function can release.
    let context = retain(0).unwrap();
    thread::scope(|scope| {
        let waits = move |wait: &dyn Fn() -> Outcome| {
            set_current(context).unwrap();
            wait()
        };
        let waiting = [
            scope.spawn(move || waits(&|| synchronize_stream(own))),
            scope.spawn(move || waits(&|| synchronize_event(after))),
            scope.spawn(move || waits(&|| synchronize_stream(other))),
            scope.spawn(move || waits(&synchronize)),
        ];
        thread::sleep(Duration::from_millis(20));
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        go.send(()).unwrap();
        for thread in waiting {
            thread.join().unwrap().unwrap();
        }
    });
    assert_eq!(download(a, 1).unwrap(), [5]);
    assert_eq!(gate.answer.load(Ordering::Relaxed), 800, "a host function may not call the driver");
    free(a).unwrap();
}

#[test]
fn many_threads_at_once() {
    let driver = Exclusive::new();
    let context = retain(0).unwrap();
    thread::scope(|scope| {
        for number in 0..8u8 {
            scope.spawn(move || {
                set_current(context).unwrap();
                let own = stream(NON_BLOCKING).unwrap();
                let done = event(NO_TIMING).unwrap();
                for round in 0..50u8 {
                    let (a, b) = (alloc(100).unwrap(), alloc(100).unwrap());
                    fill(a, number ^ round, 100, own).unwrap();
                    copy_on_device(b, a, 100, own).unwrap();
                    record(done, own).unwrap();
                    match round % 3 {
                        0 => synchronize_event(done).unwrap(),
                        1 => while query_event(done).is_err() {},
                        _ => {}
                    }
                    let mut bytes = [0; 100];
                    copy_async(bytes.as_mut_ptr() as u64, b, 100, own).unwrap();
                    assert_eq!(bytes, [number ^ round; 100]);
                    free(a).unwrap();
                    free(b).unwrap();
                }
                destroy_stream(own).unwrap();
                destroy_event(done).unwrap();
            });
        }
    });
    assert_eq!(driver.violations(), 0);
}
