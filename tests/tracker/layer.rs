//! Spans and events of the `tracing` crate.

use std::thread;

use accelerator_core::{GIB, MIB};
use accelerator_tracker::tracker::{Feed, current_scope, scope};
use accelerator_tracker::{MemoryTracker, TrackerLayer};
use tracing::subscriber::with_default;
use tracing::{info, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use crate::rig::{names, sim, trials};

trials! {
    spans_are_modules_and_those_without_spans_in_them_operators
    a_span_says_where_work_belongs_that_is_recorded_by_itself
    events_with_the_field_are_markers
    spans_go_from_thread_to_thread
    spans_stand_below_the_module_that_is_open
    without_a_run_spans_are_nothing
}

fn tracked(work: impl FnOnce(&MemoryTracker)) -> MemoryTracker {
    let tracker = MemoryTracker::of(sim(GIB));
    let subscriber = Registry::default().with(TrackerLayer::new(tracker.clone()));
    tracker.start_monitor(Feed::Explicit).unwrap();
    with_default(subscriber, || work(&tracker));
    tracker.stop().unwrap();
    tracker
}

fn spans_are_modules_and_those_without_spans_in_them_operators() {
    let tracker = tracked(|tracker| {
        info_span!("step").in_scope(|| {
            info_span!("forward").in_scope(|| {
                info_span!("addmm").in_scope(|| {});
                tracker.operator("view");
                info_span!("addmm").in_scope(|| {});
            });
            info_span!("optimizer").in_scope(|| tracker.operator("sqrt"));
        });
        info_span!("print").in_scope(|| {});
        tracker.operator("end");
    });
    let expected = [
        "step.forward.addmm_0",
        "step.forward.view_0",
        "step.forward.addmm_1",
        "step.optimizer.sqrt_0",
        "step.optimizer_0",
        "print_0",
        "end_0",
    ];
    assert_eq!(names(&tracker.stats()), expected);
}

fn a_span_says_where_work_belongs_that_is_recorded_by_itself() {
    let sim = sim(GIB);
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Automatic).unwrap();
    let subscriber = Registry::default().with(TrackerLayer::new(tracker.clone()));
    let kept =
        with_default(subscriber, || info_span!("addmm").in_scope(|| sim.allocate(MIB, sim.default_stream()).unwrap()));
    let stats = tracker.stats();
    assert_eq!(names(&stats), ["addmm.allocate_0", "addmm_0"]);
    assert_eq!(stats.operators[1].memory.allocated, kept.block_size());
}

fn events_with_the_field_are_markers() {
    let name = String::from("step 1");
    let tracker = tracked(|tracker| {
        info!(marker = "fw_start");
        tracker.operator("addmm");
        info!(marker = %name, "a message");
        info!(other = "nothing", "fw_start");
    });
    let stats = tracker.stats();
    let markers: Vec<_> = stats.markers.iter().map(|marker| (marker.name.as_str(), marker.position)).collect();
    assert_eq!(markers, [("fw_start", 0), ("step 1", 1)]);
}

fn spans_go_from_thread_to_thread() {
    let tracker = tracked(|tracker| {
        let outer = info_span!("outer");
        let inner = info_span!(parent: &outer, "inner");
        let entered = outer.enter();
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let work = || inner.in_scope(|| tracker.operator("there"));
        thread::scope(|threads| {
            let there = threads.spawn(|| tracing::dispatcher::with_default(&dispatch, work));
            there.join().unwrap();
        });
        assert_eq!(current_scope().as_deref(), Some("outer"));
        drop(entered);
        assert_eq!(current_scope(), None);
        drop(inner);
    });
    assert_eq!(names(&tracker.stats()), ["outer.inner.there_0", "outer.inner_0"]);
}

fn spans_stand_below_the_module_that_is_open() {
    let tracker = tracked(|tracker| {
        let _model = scope("model");
        info_span!("layer").in_scope(|| {
            let _forward = scope("forward");
            tracker.operator("addmm");
        });
    });
    assert_eq!(names(&tracker.stats()), ["model.layer.forward.addmm_0", "model.layer_0"]);
}

fn without_a_run_spans_are_nothing() {
    let tracker = MemoryTracker::of(sim(GIB));
    let subscriber = Registry::default().with(TrackerLayer::new(tracker.clone()));
    with_default(subscriber, || {
        info_span!("addmm").in_scope(|| info!(marker = "now"));
    });
    assert_eq!(tracker.stats(), Default::default());
}
