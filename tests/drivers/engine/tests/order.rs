//! Which work happens when.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use std::collections::BTreeSet;
use std::ffi::c_void;

use common::{Exclusive, mark};
use sim_engine::{Condition, HostFunction, Operation, Spread, Waited, Work};

#[test]
fn lanes_are_in_order_and_otherwise_every_order_happens() {
    let mut orders = BTreeSet::new();
    for seed in 0..100 {
        let mut driver = Exclusive::new(seed);
        let (one, other) = (driver.lane(), driver.lane());
        let last =
            [(one, "a"), (other, "x"), (one, "b"), (other, "y")].map(|(lane, name)| driver.submit(lane, mark(name)));
        assert_eq!(driver.wait(&last), Waited::Over);
        orders.insert(driver.order().concat());
    }
    let all = ["abxy", "axby", "axyb", "xaby", "xayb", "xyab"];
    assert_eq!(orders, all.into_iter().map(str::to_owned).collect());
}

#[test]
fn one_seed_is_one_order() {
    let order = || {
        let mut driver = Exclusive::new(7);
        let lanes = [(); 5].map(|()| driver.lane());
        let last = lanes.map(|lane| driver.submit(lane, mark("a")).lane);
        let names = ["b", "c", "d", "e", "f"];
        let last: Vec<_> = last.iter().zip(names).map(|(lane, name)| driver.submit(*lane, mark(name))).collect();
        driver.wait(&last);
        driver.order()
    };
    assert_eq!(order(), order());
}

#[test]
fn an_operation_comes_after_all_its_conditions() {
    for seed in 0..50 {
        let mut driver = Exclusive::new(seed);
        let lanes = [(); 4].map(|()| driver.lane());
        let [a, b, c] = [0, 1, 2].map(|lane| driver.submit(lanes[lane], mark("before")));
        let last = driver.submit(lanes[3], mark("after").after([a, b, c]));
        driver.wait(&[last]);
        assert_eq!(driver.order(), ["before", "before", "before", "after"], "seed {seed}");
    }
}

#[test]
fn work_waits_for_a_signal_however_often_it_is_set_and_reset() {
    for seed in 0..50 {
        let mut driver = Exclusive::new(seed);
        let (setter, waiter) = (driver.lane(), driver.lane());
        let signal = driver.engine.signals.make();
        for _ in 0..2 {
            let waits = driver.submit(waiter, mark("waited").after([signal]));
            assert_eq!(driver.engine.awaiting(signal), [waits]);
            let sets = driver.submit(setter, mark("set").sets(signal));
            assert_eq!(driver.engine.setting(signal), [sets]);
            assert_eq!(driver.wait(&[waits]), Waited::Over);
            assert!(driver.engine.signals.is_set(signal));
            let times = driver.engine.signals.times(signal);
            assert_eq!(driver.reached.iter().rev().find(|(name, _)| *name == "set").map(|(_, times)| *times), times);
            let reset = driver.submit(waiter, Operation::new(Work::Reset(signal)));
            assert_eq!(driver.engine.resetting(signal), [reset]);
            driver.wait(&[reset]);
            assert!(!driver.engine.signals.is_set(signal));
        }
        assert_eq!(driver.order(), ["set", "waited", "set", "waited"], "seed {seed}");
    }
}

#[test]
fn a_wait_that_nothing_can_end_is_answered() {
    let mut driver = Exclusive::new(0);
    let (lane, other) = (driver.lane(), driver.lane());
    let [one, two] = [(); 2].map(|()| driver.engine.signals.make());
    // Each of the two waits for the signal that the other sets.
    let first = driver.submit(lane, mark("").after([two]).sets(one));
    let second = driver.submit(other, mark("").after([one]).sets(two));
    assert_eq!(driver.wait(&[first]), Waited::Never);
    assert_eq!(driver.wait(&[second]), Waited::Never);
    assert_eq!(driver.wait(&[Condition::Set(two)]), Waited::Never);
    // The host breaks the deadlock by setting a signal.
    let times = sim_engine::Times { began: 5, ended: 6 };
    driver.engine.signals.set(one, times);
    assert_eq!(driver.engine.signals.times(one), Some(times));
    assert_eq!(driver.wait(&[first, second]), Waited::Over);
    // A removed signal is never set.
    let lost = driver.submit(lane, mark("").after([one]));
    driver.engine.signals.remove(one);
    assert_eq!(driver.wait(&[lost]), Waited::Never);
}

#[test]
fn what_sets_a_signal_may_wait_for_another() {
    for seed in 0..20 {
        let mut driver = Exclusive::new(seed);
        let lanes = [(); 3].map(|()| driver.lane());
        let signals = [(); 3].map(|()| driver.engine.signals.make());
        driver.submit(lanes[0], mark("third").after([signals[1]]).sets(signals[2]));
        driver.submit(lanes[1], mark("second").after([signals[0]]).sets(signals[1]));
        driver.submit(lanes[2], mark("first").sets(signals[0]));
        driver.engine.lanes.values_mut().for_each(|lane| lane.held = true);
        assert_eq!(driver.wait(&[signals[2]]), Waited::Over);
        assert_eq!(driver.order(), ["first", "second", "third"], "seed {seed}");
    }
}

#[test]
fn a_signal_may_be_set_behind_other_work_of_a_held_lane() {
    let mut driver = Exclusive::new(0);
    let lane = driver.lane();
    let signal = driver.engine.signals.make();
    driver.submit(lane, mark("a"));
    driver.submit(lane, mark("b").sets(signal));
    let last = driver.submit(lane, mark("c"));
    driver.engine.lanes.get_mut(&lane).unwrap().held = true;
    for _ in 0..20 {
        driver.advance();
    }
    assert!(driver.order().is_empty());
    assert_eq!(driver.wait(&[signal]), Waited::Over);
    assert_eq!(driver.order(), ["a", "b"]);
    assert!(!driver.engine.is_over(last));
}

#[test]
fn a_bounded_wait_gives_up_in_virtual_time() {
    let mut driver = Exclusive::new(0);
    let (lane, other) = (driver.lane(), driver.lane());
    let signal = driver.engine.signals.make();
    let hundredths = [(); 10].map(|()| driver.submit(lane, Operation::new(Work::Nothing)));
    assert_eq!(driver.wait_until(&[hundredths[9]], 500), Waited::TooLate);
    assert_eq!(driver.engine.clock, 500);
    assert!(driver.engine.is_over(hundredths[4]) && !driver.engine.is_over(hundredths[5]));
    assert_eq!(driver.wait_until(&[hundredths[9]], 1_000), Waited::Over);
    let waits = driver.submit(other, mark("").after([signal]));
    assert_eq!(driver.wait_until(&[waits], u64::MAX), Waited::Never);
}

#[test]
fn a_spread_runs_in_any_order_between_its_barriers() {
    let mut orders = BTreeSet::new();
    for seed in 0..200 {
        let mut driver = Exclusive::new(seed);
        let lanes = [(); 4].map(|()| driver.lane()).to_vec();
        let mut spread = Spread::new(lanes);
        let engine = &mut driver.engine;
        for name in ["a", "b", "c"] {
            spread.submit(engine, mark(name));
        }
        spread.barrier(engine, mark("|"));
        for name in ["d", "e"] {
            spread.submit(engine, mark(name));
        }
        let ends = spread.ends(engine);
        assert!(!spread.is_idle(engine));
        driver.wait(&ends);
        assert!(spread.is_idle(&driver.engine));
        let order = driver.order().concat();
        let (before, after) = order.split_once('|').unwrap();
        assert_eq!((before.len(), after.len()), (3, 2), "seed {seed}: {order}");
        orders.insert(order);
        spread.close(&mut driver.engine);
        assert!(driver.engine.lanes.is_empty());
    }
    assert_eq!(orders.len(), 6 * 2, "all orders between barriers: {orders:?}");
}

#[test]
fn later_work_waits_for_a_gate_which_waits_for_nothing() {
    let mut orders = BTreeSet::new();
    for seed in 0..200 {
        let mut driver = Exclusive::new(seed);
        let lanes = [(); 4].map(|()| driver.lane()).to_vec();
        let mut spread = Spread::new(lanes);
        spread.submit(&mut driver.engine, mark("a"));
        spread.gate(&mut driver.engine, mark("|"));
        spread.submit(&mut driver.engine, mark("b"));
        let ends = spread.ends(&driver.engine);
        driver.wait(&ends);
        orders.insert(driver.order().concat());
    }
    assert_eq!(orders, ["a|b", "|ab", "|ba"].map(str::to_owned).into());
}

#[test]
fn work_of_a_closed_lane_still_happens_and_dropped_work_does_not() {
    let mut driver = Exclusive::new(0);
    let (closed, dropped) = (driver.lane_on(0), driver.lane_on(1));
    let signal = driver.engine.signals.make();
    let happens = driver.submit(closed, mark("happens"));
    let never = driver.submit(dropped, mark("never").sets(signal));
    driver.engine.close_lane(closed);
    driver.engine.drop_work(|_, lane| lane.device == 1);
    assert!(driver.engine.is_over(never) && driver.engine.lanes[&dropped].is_idle());
    assert_eq!(driver.wait(&[happens, never]), Waited::Over);
    assert_eq!(driver.wait(&[signal]), Waited::Never);
    assert_eq!(driver.order(), ["happens"]);
    assert!(!driver.engine.lanes.contains_key(&closed) && driver.engine.lanes.contains_key(&dropped));
}

#[test]
fn marks_tell_when_work_began_and_ended() {
    let mut driver = Exclusive::new(0);
    let lane = driver.lane();
    let memory = driver.allocate(0, 1 << 20);
    driver.submit(lane, mark("first"));
    let last = driver.submit(lane, Operation::new(Work::fill(memory, 1, 16_000)).mark("fill"));
    driver.wait(&[last]);
    let times: Vec<_> = driver.reached.iter().map(|(_, times)| (times.began, times.ended)).collect();
    assert_eq!(times, [(0, 100), (100, 2_100)]);
}

#[test]
fn a_host_function_runs_without_the_lock_and_in_its_turn() {
    /// Takes the lock, which waiting threads release.
    extern "C" fn function(_: *mut c_void) {
        let mut session = common::Session::new();
        let inside = sim_engine::thread::in_host_function();
        let clock = session.engine.clock;
        session.reached.push(("inside", sim_engine::Times { began: u64::from(inside), ended: clock }));
    }
    let mut driver = Exclusive::new(0);
    let lane = driver.lane();
    let signal = driver.engine.signals.make();
    let host = HostFunction { function, data: std::ptr::null_mut() };
    driver.submit(lane, mark("before"));
    driver.submit(lane, Operation::new(Work::HostFunction(host)).mark("over").sets(signal));
    let last = driver.submit(lane, mark("after"));
    assert_eq!(driver.wait(&[Condition::Set(signal), last.into()]), Waited::Over);
    assert_eq!(driver.order(), ["before", "inside", "over", "after"]);
    assert_eq!(driver.reached[1].1.began, 1, "the thread reports that it runs a host function");
}
