//! Recording by a program's own calls and guards.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::thread;

use accelerator_conformance::Controls;
use accelerator_core::{GIB, KIB, MIB};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::tracker::{Feed, TrackerError, current_scope, scope, scope_absolute};

use crate::rig::{memory, names, sim, trials};

trials! {
    operators_carry_what_is_in_use_after_them
    memory_that_a_stream_still_uses_is_active
    modules_are_nested_in_names
    modules_with_full_names_are_named_as_in_pytorch
    modules_close_in_any_order_and_after_a_panic
    markers_stand_where_they_are_set
    retries_are_those_of_the_run
    a_start_clears_the_records_and_empties_the_cache
    without_a_run_nothing_is_recorded
    a_second_start_and_a_second_stop_are_refused
    threads_record_together
    the_facade_names_the_device
}

fn operators_carry_what_is_in_use_after_them() {
    let sim = sim(GIB);
    let stream = sim.default_stream();
    let weights = sim.allocate(4 * MIB, stream).unwrap(); // in a segment of 20 MiB
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Explicit).unwrap();
    let small = sim.allocate(1000, stream).unwrap(); // 1024 bytes in a segment of 2 MiB
    tracker.operator("addmm");
    let large = sim.allocate(3 * MIB, stream).unwrap(); // in the first segment
    tracker.operator("gelu");
    drop(small);
    tracker.operator("addmm");
    drop((weights, large));
    tracker.operator("zero");
    tracker.stop().unwrap();

    let stats = tracker.stats();
    assert_eq!(stats.device, Some(sim.device().to_string()));
    assert_eq!(stats.total_memory, Some(GIB));
    assert_eq!(stats.start, Some(memory(4 * MIB, 4 * MIB, 20 * MIB)));
    assert_eq!(names(&stats), ["addmm_0", "gelu_0", "addmm_1", "zero_0"]);
    let in_use: Vec<_> = stats.operators.iter().map(|operator| operator.memory).collect();
    let same = |allocated, reserved| memory(allocated, allocated, reserved);
    assert_eq!(
        in_use,
        [same(4 * MIB + KIB, 22 * MIB), same(7 * MIB + KIB, 22 * MIB), same(7 * MIB, 22 * MIB), same(0, 22 * MIB)]
    );
    let times: Vec<_> = stats.operators.iter().map(|operator| operator.time.unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

fn memory_that_a_stream_still_uses_is_active() {
    let sim = sim(GIB);
    let (stream, side) = (sim.default_stream(), sim.stream(0).unwrap());
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Explicit).unwrap();
    let buffer = sim.allocate(MIB, stream).unwrap();
    buffer.record_use(side).unwrap();
    sim.backend().hold(side.native());
    drop(buffer);
    tracker.operator("drop");
    sim.backend().release(side.native());
    assert_eq!(tracker.stats().operators[0].memory, memory(0, MIB, 2 * MIB));
}

fn modules_are_nested_in_names() {
    let tracker = MemoryTracker::of(sim(GIB));
    tracker.start_monitor(Feed::Explicit).unwrap();
    let layer = tracker.scope("layers.3");
    tracker.operator("view");
    {
        let _forward = tracker.scope("forward");
        tracker.operator("addmm");
        tracker.operator("view");
        // Other threads have their own modules.
        thread::scope(|threads| threads.spawn(|| tracker.operator("addmm")).join()).unwrap();
    }
    tracker.operator("addmm");
    drop(layer);
    tracker.operator("addmm");
    let expected = [
        "layers.3.view_0",
        "layers.3.forward.addmm_0",
        "layers.3.forward.view_1",
        "addmm_1",
        "layers.3.addmm_2",
        "addmm_3",
    ];
    assert_eq!(names(&tracker.stats()), expected);
}

/// The names that PyTorch's tracker gave to an equal network, from `tiny_transformer.tracker.pickle`. Operators that an
/// outer module runs after an inner one are excluded, because PyTorch attributes them to the inner one.
fn modules_with_full_names_are_named_as_in_pytorch() {
    let tracker = MemoryTracker::of(sim(GIB));
    tracker.start_monitor(Feed::Explicit).unwrap();
    let block = tracker.scope_absolute("blocks.0.forward");
    tracker.operator("view");
    {
        let _up = scope_absolute("blocks.0.up.forward");
        tracker.operator("addmm");
        let _part = scope("part");
        tracker.operator("addmm");
    }
    tracker.operator("add");
    drop(block);
    tracker.operator("add");
    let expected = [
        "blocks.0.forward.view_0",
        "blocks.0.up.forward.addmm_0",
        "blocks.0.up.forward.part.addmm_1",
        "blocks.0.forward.add_0",
        "add_1",
    ];
    assert_eq!(names(&tracker.stats()), expected);
}

fn modules_close_in_any_order_and_after_a_panic() {
    let (a, b, c) = (scope("a"), scope("b"), scope("c"));
    drop(b);
    assert_eq!(current_scope().as_deref(), Some("a.b.c"));
    drop(c);
    assert_eq!(current_scope().as_deref(), Some("a"));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _inner = scope("inner");
        panic_any("this panic is part of the test");
    }));
    assert!(unwound.is_err());
    assert_eq!(current_scope().as_deref(), Some("a"));
    drop(a);
    assert_eq!(current_scope(), None);
}

fn markers_stand_where_they_are_set() {
    let tracker = MemoryTracker::of(sim(GIB));
    tracker.start_monitor(Feed::Explicit).unwrap();
    tracker.forward_start();
    tracker.operator("addmm");
    tracker.operator("addmm");
    tracker.forward_backward_boundary();
    tracker.operator("addmm");
    tracker.marker("step 1");
    tracker.forward_start();
    let stats = tracker.stats();
    let markers: Vec<_> = stats.markers.iter().map(|marker| (marker.name.as_str(), marker.position)).collect();
    assert_eq!(markers, [("fw_start", 0), ("fw_bw_boundary", 2), ("step 1", 3), ("fw_start", 3)]);
}

fn retries_are_those_of_the_run() {
    let sim = sim(60 * MIB);
    let stream = sim.default_stream();
    let retry = || {
        drop(sim.allocate(40 * MIB, stream).unwrap());
        drop(sim.allocate(50 * MIB, stream).unwrap()); // requires releasing the cached 40
        sim.allocator().empty_cache().unwrap();
    };
    let tracker = MemoryTracker::of(sim);
    retry();
    tracker.start_monitor(Feed::Explicit).unwrap();
    retry();
    assert_eq!(tracker.stats().num_alloc_retries, 1);
    retry();
    tracker.stop().unwrap();
    retry();
    assert_eq!(sim.allocator().statistics().num_alloc_retries, 4);
    assert_eq!(tracker.stats().num_alloc_retries, 2);
}

fn a_start_clears_the_records_and_empties_the_cache() {
    let sim = sim(GIB);
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Explicit).unwrap();
    tracker.operator("addmm");
    tracker.marker("end");
    tracker.stop().unwrap();
    drop(sim.allocate(MIB, sim.default_stream()).unwrap());
    assert_eq!(sim.allocator().statistics().reserved_bytes.all.current, 2 * MIB as i64);
    tracker.start_monitor(Feed::Explicit).unwrap();
    assert_eq!(sim.allocator().statistics().reserved_bytes.all.current, 0);
    tracker.operator("addmm");
    let stats = tracker.stats();
    assert_eq!((names(&stats), stats.markers.len()), (vec!["addmm_0"], 0));
}

fn without_a_run_nothing_is_recorded() {
    let tracker = MemoryTracker::of(sim(GIB));
    let record = || {
        let _module = tracker.scope("module");
        tracker.operator("addmm");
        tracker.marker("now");
    };
    record();
    assert_eq!(tracker.stats(), Default::default());
    tracker.start_monitor(Feed::Explicit).unwrap();
    record();
    tracker.stop().unwrap();
    let stats = tracker.stats();
    record();
    assert_eq!(tracker.stats(), stats);
    assert_eq!((stats.operators.len(), stats.markers.len()), (1, 1));
}

fn a_second_start_and_a_second_stop_are_refused() {
    let tracker = MemoryTracker::of(sim(GIB));
    let error = tracker.stop().unwrap_err();
    assert_eq!(error.to_string(), "the tracker is not running: start it with `start_monitor`");
    tracker.start_monitor(Feed::Explicit).unwrap();
    tracker.operator("addmm");
    let error = tracker.clone().start_monitor(Feed::Explicit).unwrap_err();
    assert_eq!(error.to_string(), "the tracker is running: stop it first");
    assert!(matches!(tracker.load("nowhere").unwrap_err(), TrackerError::Running));
    tracker.operator("addmm");
    tracker.stop().unwrap();
    assert!(matches!(tracker.stop().unwrap_err(), TrackerError::NotRunning));
    assert_eq!(names(&tracker.stats()), ["addmm_0", "addmm_1"]);
    assert!(!tracker.is_running());
}

fn threads_record_together() {
    const EACH: usize = 500;
    let sim = sim(GIB);
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Explicit).unwrap();
    thread::scope(|threads| {
        for module in ["a", "b", "c", "d"] {
            let tracker = tracker.clone();
            threads.spawn(move || {
                let _module = scope(module);
                for _ in 0..EACH {
                    let buffer = sim.allocate(KIB, sim.default_stream()).unwrap();
                    tracker.operator("op");
                    drop(buffer);
                }
            });
        }
    });
    tracker.stop().unwrap();
    let stats = tracker.stats();
    assert_eq!(stats.operators.len(), 4 * EACH);
    // Numbered in their order, each number once.
    for (number, name) in names(&stats).into_iter().enumerate() {
        assert!(name.ends_with(&format!(".op_{number}")), "{name} at {number}");
    }
    for module in ["a.", "b.", "c.", "d."] {
        assert_eq!(names(&stats).iter().filter(|name| name.starts_with(module)).count(), EACH);
    }
    // Each saw at least its own buffer, and at most one for each thread.
    let seen: BTreeSet<_> = stats.operators.iter().map(|operator| operator.memory.allocated).collect();
    assert!(seen.iter().all(|bytes| (KIB..=4 * KIB).contains(bytes)), "{seen:?}");
}

fn the_facade_names_the_device() {
    accelerator::set_accelerator("host").unwrap();
    let tracker = MemoryTracker::new(None).unwrap();
    assert_eq!(tracker.device(), MemoryTracker::new("host:0").unwrap().device());
    let error = MemoryTracker::new("cuda").unwrap_err().to_string();
    assert!(error.contains("cuda") && error.contains("host"), "{error}");
    tracker.start_monitor(Feed::Automatic).unwrap();
    let buffer = accelerator::Buffer::from_slice(&[1.5_f32; 1024], None).unwrap();
    tracker.stop().unwrap();
    let stats = tracker.stats();
    assert_eq!(names(&stats), ["allocate_0", "copy_0"]);
    let taken = stats.operators[1].memory.allocated - stats.start.unwrap().allocated;
    assert_eq!(taken, buffer.block_size());
    assert_eq!(stats.device.as_deref(), Some("host:0"));
}
