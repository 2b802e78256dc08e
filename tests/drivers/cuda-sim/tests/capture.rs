//! Stream capture.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use std::thread;

use common::*;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;
const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const CAPTURED_EVENT: i32 = 907;

#[test]
fn captured_work_does_not_happen() {
    let _driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let a = alloc(1).unwrap();
    fill_now(a, 0, 1).unwrap();
    assert_eq!(capture_status(own), Ok(0));
    begin_capture(own, GLOBAL).unwrap();
    assert_eq!(capture_status(own), Ok(1));
    assert_eq!(begin_capture(own, GLOBAL), Err(401));
    fill(a, 1, 1, own).unwrap();
    fill(a, 3, 1, own).unwrap();
    let graph = end_capture(own).unwrap();
    assert_eq!(capture_status(own), Ok(0));
    synchronize().unwrap();
    assert_eq!(download(a, 1).unwrap(), [0]);
    fill(a, 2, 1, own).unwrap();
    synchronize().unwrap();
    assert_eq!(download(a, 1).unwrap(), [2]);
    destroy_graph(graph).unwrap();
    assert_eq!(destroy_graph(graph), Err(1));
    assert_eq!(end_capture(own), Err(401));
    assert_eq!([begin_capture(0, GLOBAL), begin_capture(own, 3)], [Err(UNSUPPORTED), Err(1)]);
    free(a).unwrap();
}

#[test]
fn what_is_unsafe_fails_and_spoils_the_capture() {
    let _driver = Exclusive::new();
    let (own, other, done) = (stream(NON_BLOCKING).unwrap(), stream(NON_BLOCKING).unwrap(), event(0).unwrap());
    let (a, pinned) = (alloc(8).unwrap(), alloc_pinned(8, 0).unwrap());
    let calls: [(&str, &dyn Fn() -> Outcome); 12] = [
        ("alloc", &|| alloc(1).map(drop)),
        ("free", &|| free(a)),
        ("alloc pinned", &|| alloc_pinned(1, 0).map(drop)),
        ("free pinned", &|| free_pinned(pinned)),
        ("query event", &|| query_event(done)),
        ("synchronize event", &|| synchronize_event(done)),
        ("query stream", &|| query_stream(other)),
        ("synchronize stream", &|| synchronize_stream(other)),
        ("synchronize", &synchronize),
        ("upload", &|| upload(a, &[0])),
        ("fill", &|| fill_now(a, 0, 1)),
        ("the stream itself", &|| query_stream(own)),
    ];
    for (name, call) in calls {
        begin_capture(own, GLOBAL).unwrap();
        assert_eq!(call(), Err(UNSUPPORTED), "{name}");
        assert_eq!(capture_status(own), Ok(2), "{name}");
        assert_eq!(fill(a, 0, 1, own), Err(INVALIDATED), "{name}");
        assert_eq!(end_capture(own), Err(INVALIDATED), "{name}");
        assert_eq!(capture_status(own), Ok(0), "{name}");
    }
    // A captured stream, and a context that has one, cannot be waited for in any mode.
    for call in [&|| synchronize_stream(own), &synchronize as &dyn Fn() -> Outcome] {
        begin_capture(own, RELAXED).unwrap();
        exchange_capture_mode(RELAXED);
        assert_eq!(call(), Err(UNSUPPORTED));
        exchange_capture_mode(GLOBAL);
        assert_eq!(end_capture(own), Err(INVALIDATED));
    }
    // Calls that are permitted during a capture.
    begin_capture(own, GLOBAL).unwrap();
    let another = event(0).unwrap();
    record(another, other).unwrap();
    destroy_event(another).unwrap();
    fill(a, 0, 1, other).unwrap();
    memory();
    end_capture(own).unwrap();
    free(a).unwrap();
    free_pinned(pinned).unwrap();
}

#[test]
fn thread_modes_determine_what_is_permitted() {
    let _driver = Exclusive::new();
    let context = retain(0).unwrap();
    let own = stream(NON_BLOCKING).unwrap();
    assert_eq!(exchange_capture_mode(RELAXED), GLOBAL);
    assert_eq!(exchange_capture_mode(GLOBAL), RELAXED);
    let elsewhere = |mode: u32| {
        let run = move || {
            set_current(context).unwrap();
            assert_eq!(exchange_capture_mode(mode), GLOBAL);
            alloc(1).and_then(free)
        };
        thread::spawn(run).join().unwrap()
    };
    let here = |mode: u32| {
        let before = exchange_capture_mode(mode);
        let outcome = alloc(1).and_then(free);
        exchange_capture_mode(before);
        outcome
    };
    let no = Err(UNSUPPORTED);
    let rules = [
        (GLOBAL, [no, no, Ok(())], [no, Ok(()), Ok(())]),
        (THREAD_LOCAL, [no, no, Ok(())], [Ok(()); 3]),
        (RELAXED, [Ok(()); 3], [Ok(()); 3]),
    ];
    for (capture, by_the_capturing, by_another) in rules {
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            for (expected, run) in [(by_the_capturing, &here as &dyn Fn(u32) -> Outcome), (by_another, &elsewhere)] {
                let expected = expected[mode as usize];
                begin_capture(own, capture).unwrap();
                assert_eq!(run(mode), expected, "capture {capture}, thread {mode}");
                assert_eq!(end_capture(own).is_ok(), expected.is_ok());
            }
        }
    }
}

#[test]
fn events_carry_a_capture_to_other_streams() {
    let _driver = Exclusive::new();
    let [own, side, far] = [NON_BLOCKING; 3].map(|flags| stream(flags).unwrap());
    let [fork, join, outside] = [NO_TIMING; 3].map(|flags| event(flags).unwrap());
    let a = alloc(1).unwrap();
    record(outside, far).unwrap();
    begin_capture(own, RELAXED).unwrap();
    fill(a, 1, 1, own).unwrap();
    record(fork, own).unwrap();
    wait_event(side, fork, 0).unwrap();
    assert_eq!(capture_status(side), Ok(1));
    fill(a, 2, 1, side).unwrap();
    record(join, side).unwrap();
    wait_event(own, join, 0).unwrap();
    end_capture(own).unwrap();
    assert_eq!(capture_status(side), Ok(0));
    assert_eq!([query_event(fork), wait_event(far, fork, 0)], [Err(CAPTURED_EVENT); 2], "until it is recorded again");
    record(fork, far).unwrap();
    synchronize_event(fork).unwrap();

    let forked = || {
        begin_capture(own, RELAXED).unwrap();
        record(fork, own).unwrap();
        wait_event(side, fork, 0).unwrap();
        fill(a, 2, 1, side).unwrap();
    };
    forked();
    assert_eq!(end_capture(own), Err(904), "the fork is not joined");
    forked();
    assert_eq!(end_capture(side), Err(903), "not the stream where it began");
    assert_eq!(end_capture(own), Err(INVALIDATED));
    begin_capture(own, RELAXED).unwrap();
    assert_eq!(wait_event(own, outside, 0), Err(905), "recorded outside the capture");
    assert_eq!(end_capture(own), Err(INVALIDATED));
    for call in [query_event, synchronize_event] {
        forked();
        exchange_capture_mode(RELAXED);
        assert_eq!(call(fork), Err(CAPTURED_EVENT));
        exchange_capture_mode(GLOBAL);
        assert_eq!(end_capture(own), Err(INVALIDATED));
    }
    forked();
    begin_capture(far, RELAXED).unwrap();
    assert_eq!(wait_event(far, fork, 0), Err(902), "recorded in another capture");
    assert_eq!([end_capture(far), end_capture(own)], [Err(INVALIDATED); 2]);
    begin_capture(own, GLOBAL).unwrap();
    assert_eq!(thread::spawn(move || (use_device(0), end_capture(own)).1).join().unwrap(), Err(908));
    assert_eq!(end_capture(own), Err(401), "the other thread has ended it");
    free(a).unwrap();
}

#[test]
fn the_legacy_stream_cannot_meet_a_capture_that_it_would_wait_for() {
    let _driver = Exclusive::new();
    let (blocking, free_one) = (stream(0).unwrap(), stream(NON_BLOCKING).unwrap());
    let a = alloc(1).unwrap();
    begin_capture(blocking, RELAXED).unwrap();
    assert_eq!(capture_status(0), Err(906));
    end_capture(blocking).unwrap(); // the query did not invalidate it
    begin_capture(blocking, RELAXED).unwrap();
    assert_eq!(fill(a, 0, 1, 0), Err(906));
    assert_eq!(end_capture(blocking), Err(INVALIDATED));
    begin_capture(free_one, RELAXED).unwrap();
    fill(a, 0, 1, 0).unwrap();
    end_capture(free_one).unwrap();
    free(a).unwrap();
}

#[test]
fn a_capture_ends_with_its_stream_and_with_its_context() {
    let _driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    begin_capture(own, GLOBAL).unwrap();
    destroy_stream(own).unwrap();
    alloc(1).and_then(free).unwrap();
    let own = stream(NON_BLOCKING).unwrap();
    begin_capture(own, GLOBAL).unwrap();
    cuda_sim::cuda_sim_fail_at(1, ILLEGAL_ADDRESS);
    assert_eq!(synchronize(), Err(ILLEGAL_ADDRESS));
    cuda_sim::cuda_sim_reset_sticky();
    alloc(1).and_then(free).unwrap();
}
