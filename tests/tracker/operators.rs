//! The core's operator observers.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Mutex};
use std::thread;

use accelerator_core::{
    Backend, Device, GIB, MIB, Operator, OperatorKind, OperatorObserver, observe_operators, report_operator,
};
use accelerator_host::launch;

use crate::rig::{host, sim, trials};

trials! {
    each_is_told_once_in_order
    copies_between_devices_are_told_once
    copies_of_pinned_memory_are_told
    failed_and_empty_operations_are_not_operators
    observers_that_were_dropped_are_told_no_more
    what_an_observer_submits_is_not_told
    an_observer_that_panics_loses_no_memory
    launches_of_others_can_be_named
}

type Seen = Arc<Mutex<Vec<Operator>>>;

/// Observes what is submitted to this device.
fn observed(device: Device) -> (Seen, OperatorObserver) {
    let seen = Seen::default();
    let list = Arc::clone(&seen);
    let observer = observe_operators(move |operator| {
        if operator.device == device {
            list.lock().unwrap().push(*operator);
        }
    });
    (seen, observer)
}

fn kinds(seen: &Seen) -> Vec<(OperatorKind, u64)> {
    seen.lock().unwrap().iter().map(|operator| (operator.kind, operator.bytes)).collect()
}

fn each_is_told_once_in_order() {
    let host = host();
    let (stream, side) = (host.default_stream(), host.stream(0).unwrap());
    let (seen, _observer) = observed(host.device());
    let mut x = host.allocate(4000, side).unwrap();
    let mut y = host.allocate(4000, stream).unwrap();
    x.write(100, &[1; 300], stream).unwrap();
    y.fill(2, side).unwrap();
    y.copy_from(&x, stream).unwrap();
    launch(side, x.slice_mut::<u8>().unwrap(), |x| x.fill(3)).unwrap();
    x.read(0, &mut [0; 10], stream).unwrap();
    let expected = [
        (OperatorKind::Allocate, 4000),
        (OperatorKind::Allocate, 4000),
        (OperatorKind::CopyToDevice, 300),
        (OperatorKind::Fill, 4000),
        (OperatorKind::CopyWithin, 4000),
        (OperatorKind::Launch, 0),
        (OperatorKind::CopyToHost, 10),
    ];
    assert_eq!(kinds(&seen), expected);
    let streams: Vec<_> = seen.lock().unwrap().iter().map(|operator| operator.stream).collect();
    let (stream, side) = (stream.id(), side.id());
    assert_eq!(streams, [side, stream, stream, side, stream, side, stream]);
}

fn copies_between_devices_are_told_once() {
    let (here, there) = (host(), host());
    let source = there.allocate(MIB, there.default_stream()).unwrap();
    let mut destination = here.allocate(MIB, here.default_stream()).unwrap();
    let (seen, _observer) = observed(here.device());
    let (seen_there, _other) = observed(there.device());
    destination.copy_from(&source, here.default_stream()).unwrap();
    match here.backend().peer_copies() {
        Some(_) => {
            assert_eq!(kinds(&seen), [(OperatorKind::CopyFromPeer, MIB)]);
            assert_eq!(kinds(&seen_there), []);
        }
        None => {
            assert_eq!(kinds(&seen), [(OperatorKind::CopyToDevice, MIB)]);
            assert_eq!(kinds(&seen_there), [(OperatorKind::CopyToHost, MIB)]);
        }
    }
}

fn copies_of_pinned_memory_are_told() {
    let host = host();
    let stream = host.default_stream();
    let mut pinned = host.allocate_host(1000).unwrap();
    let mut buffer = host.allocate(1000, stream).unwrap();
    let (seen, _observer) = observed(host.device());
    buffer.copy_from_pinned(0, &pinned, 0..600, stream).unwrap();
    buffer.copy_to_pinned(0..500, &mut pinned, 0, stream).unwrap();
    assert_eq!(kinds(&seen), [(OperatorKind::CopyToDevice, 600), (OperatorKind::CopyToHost, 500)]);
}

fn failed_and_empty_operations_are_not_operators() {
    let sim = sim(20 * MIB);
    let stream = sim.default_stream();
    let (seen, _observer) = observed(sim.device());
    assert!(sim.allocate(GIB, stream).is_err());
    let mut empty = sim.allocate(0, stream).unwrap();
    empty.fill(0, stream).unwrap();
    empty.write(0, &[], stream).unwrap();
    let mut buffer = sim.allocate(MIB, stream).unwrap();
    assert!(buffer.fill(0, stream).is_err(), "a device without bytes refuses");
    assert!(buffer.write(0, &[1], stream).is_err());
    assert!(buffer.read(MIB, &mut [1], stream).is_err());
    assert_eq!(kinds(&seen), [(OperatorKind::Allocate, MIB)]);
}

fn observers_that_were_dropped_are_told_no_more() {
    let sim = sim(GIB);
    let allocate = || drop(sim.allocate(MIB, sim.default_stream()).unwrap());
    let (first, observer) = observed(sim.device());
    let (second, other) = observed(sim.device());
    allocate();
    drop(observer);
    thread::scope(|threads| threads.spawn(allocate).join()).unwrap();
    drop(other);
    allocate();
    assert_eq!((kinds(&first).len(), kinds(&second).len()), (1, 2));
}

fn what_an_observer_submits_is_not_told() {
    let (sim, other) = (sim(GIB), crate::rig::sim(GIB));
    let count = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&count);
    let _observer = observe_operators(move |operator| {
        if operator.device == sim.device() {
            *counter.lock().unwrap() += 1;
            drop(sim.allocate(MIB, sim.default_stream()).unwrap());
            drop(other.allocate(MIB, other.default_stream()).unwrap());
        }
    });
    let (seen, _other) = observed(other.device());
    drop(sim.allocate(MIB, sim.default_stream()).unwrap());
    assert_eq!((*count.lock().unwrap(), kinds(&seen)), (1, vec![]));
    drop(sim.allocate(MIB, sim.default_stream()).unwrap());
    assert_eq!(*count.lock().unwrap(), 2);
}

fn an_observer_that_panics_loses_no_memory() {
    let sim = sim(GIB);
    let stream = sim.default_stream();
    let observer = observe_operators(move |operator| {
        if operator.device == sim.device() {
            panic_any("this panic is part of the test");
        }
    });
    assert!(catch_unwind(AssertUnwindSafe(|| sim.allocate(MIB, stream))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| sim.allocate(MIB, stream))).is_err(), "it is called again");
    drop(observer);
    assert_eq!(sim.allocator().statistics().allocated_bytes.all.current, 0);
}

fn launches_of_others_can_be_named() {
    let sim = sim(GIB);
    let stream = sim.stream(0).unwrap();
    let (seen, _observer) = observed(sim.device());
    report_operator(|| Operator::on(stream, OperatorKind::Launch, 0).named("saxpy"));
    report_operator(|| Operator::new(OperatorKind::Launch, sim.device(), stream.id(), 0));
    let names: Vec<_> = seen.lock().unwrap().iter().map(|operator| (operator.name, operator.stream)).collect();
    assert_eq!(names, [("saxpy", stream.id()), ("launch", stream.id())]);
}
