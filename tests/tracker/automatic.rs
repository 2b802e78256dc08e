//! Work submitted to a device is recorded automatically.

use std::thread;

use accelerator_core::{GIB, KIB, MIB};
use accelerator_host::{launch, launch_named};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::tracker::{Feed, scope};

use crate::rig::{host, memory, names, sim, trials};

trials! {
    a_program_is_recorded_as_it_ran
    kernels_with_names_are_recorded_under_them
    other_devices_are_not_recorded
    recording_is_automatic_only_if_requested_and_until_the_stop
    a_dropped_tracker_records_no_more
    a_request_that_fails_is_none
    threads_are_in_their_own_modules
}

fn a_program_is_recorded_as_it_ran() {
    let host = host();
    let stream = host.default_stream();
    let tracker = MemoryTracker::of(host);
    tracker.start_monitor(Feed::Automatic).unwrap();
    let mut x = host.allocate(4000, stream).unwrap();
    x.fill(1, stream).unwrap();
    {
        let _layer = scope("layer");
        let mut y = host.allocate(2 * MIB, stream).unwrap();
        launch(stream, (x.slice::<u8>().unwrap(), y.slice_mut::<u8>().unwrap()), |(x, y)| y[0] = x[0]).unwrap();
        tracker.operator("gelu");
        y.read(0, &mut [0], stream).unwrap();
    }
    x.write(0, &[1; 8], stream).unwrap();
    tracker.stop().unwrap();
    let stats = tracker.stats();
    let expected =
        ["allocate_0", "fill_0", "layer.allocate_1", "layer.launch_0", "layer.gelu_0", "layer.copy_0", "copy_1"];
    assert_eq!(names(&stats), expected);
    let in_use: Vec<_> = stats.operators.iter().map(|operator| operator.memory).collect();
    let small = memory(4 * KIB, 4 * KIB, 2 * MIB); // 4000 bytes in blocks of 512
    let both = memory(4 * KIB + 2 * MIB, 4 * KIB + 2 * MIB, 22 * MIB);
    assert_eq!(in_use, [small, small, both, both, both, both, memory(4 * KIB, 4 * KIB, 22 * MIB)]);
    assert_eq!(stats.summary_top(2).operators, [("layer.allocate_1".into(), 2 << 20), ("allocate_0".into(), 4 << 10)]);
}

fn kernels_with_names_are_recorded_under_them() {
    let host = host();
    let stream = host.default_stream();
    let mut x = host.allocate(64, stream).unwrap();
    let tracker = MemoryTracker::of(host);
    tracker.start_monitor(Feed::Automatic).unwrap();
    launch_named("relu", stream, x.slice_mut::<u8>().unwrap(), |x| x.fill(1)).unwrap();
    launch(stream, (), |()| {}).unwrap();
    launch_named("barrier", stream, (), |()| {}).unwrap();
    assert_eq!(names(&tracker.stats()), ["relu_0", "launch_0", "barrier_0"]);
}

fn other_devices_are_not_recorded() {
    let (tracked, other) = (sim(GIB), sim(GIB));
    let tracker = MemoryTracker::of(tracked);
    tracker.start_monitor(Feed::Automatic).unwrap();
    let _other = other.allocate(MIB, other.default_stream()).unwrap();
    let _tracked = tracked.allocate(MIB, tracked.default_stream()).unwrap();
    assert_eq!(names(&tracker.stats()), ["allocate_0"]);
}

fn recording_is_automatic_only_if_requested_and_until_the_stop() {
    let sim = sim(GIB);
    let allocate = || drop(sim.allocate(MIB, sim.default_stream()).unwrap());
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Explicit).unwrap();
    allocate();
    tracker.stop().unwrap();
    assert_eq!(tracker.stats().operators, []);
    tracker.start_monitor(Feed::Automatic).unwrap();
    allocate();
    tracker.stop().unwrap();
    allocate();
    assert_eq!(names(&tracker.stats()), ["allocate_0"]);
}

fn a_dropped_tracker_records_no_more() {
    let sim = sim(GIB);
    let tracker = MemoryTracker::of(sim);
    let clone = tracker.clone();
    tracker.start_monitor(Feed::Automatic).unwrap();
    drop(tracker);
    drop(sim.allocate(MIB, sim.default_stream()).unwrap());
    assert_eq!(names(&clone.stats()), ["allocate_0"]);
    drop(clone);
    drop(sim.allocate(MIB, sim.default_stream()).unwrap());
}

fn a_request_that_fails_is_none() {
    let sim = sim(10 * MIB);
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Automatic).unwrap();
    assert!(sim.allocate(GIB, sim.default_stream()).is_err());
    assert_eq!(tracker.stats().operators, []);
}

fn threads_are_in_their_own_modules() {
    let sim = sim(GIB);
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Automatic).unwrap();
    let _here = scope("here");
    thread::scope(|threads| {
        let spawned = threads.spawn(|| {
            let _there = scope("there");
            drop(sim.allocate(MIB, sim.default_stream()).unwrap());
        });
        spawned.join().unwrap();
    });
    drop(sim.allocate(MIB, sim.default_stream()).unwrap());
    assert_eq!(names(&tracker.stats()), ["there.allocate_0", "here.allocate_1"]);
}
