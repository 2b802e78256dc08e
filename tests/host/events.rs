//! Events and streams, and the times between events by another clock.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use accelerator_core::{Error, EventFlags, STREAMS_PER_PRIORITY};
use accelerator_host::launch;

use super::host;

#[test]
fn the_time_between_events_is_in_milliseconds() {
    const WORK: Duration = Duration::from_millis(20);
    let host = host();
    let stream = host.default_stream();
    let [start, end] = [(); 2].map(|()| host.event(EventFlags::TIMING));
    let began = Instant::now();
    start.record(stream).unwrap();
    launch(stream, (), move |()| std::thread::sleep(WORK)).unwrap();
    end.record(stream).unwrap();
    end.synchronize().unwrap();
    let most = began.elapsed().as_secs_f64() * 1e3;
    let elapsed = start.elapsed_time(&end).unwrap();
    assert!((20.0..=most).contains(&elapsed), "{elapsed} ms, of {most}");
    assert!((-most..=-20.0).contains(&end.elapsed_time(&start).unwrap()), "backwards");
}

#[test]
fn times_are_refused_that_are_not_known() {
    let (host, other) = (host(), super::host());
    let stream = host.default_stream();
    let [start, end] = [(); 2].map(|()| host.event(EventFlags::TIMING));
    let problem = |error| match error {
        Err(Error::ElapsedTime(problem)) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(start.elapsed_time(&end)), "both events must be recorded first");
    start.record(stream).unwrap();
    assert_eq!(problem(start.elapsed_time(&end)), "both events must be recorded first");
    assert_eq!(problem(end.elapsed_time(&start)), "both events must be recorded first");
    let (go, wait) = channel();
    launch(stream, (), move |()| wait.recv().unwrap()).unwrap();
    end.record(stream).unwrap();
    start.synchronize().unwrap();
    let incomplete = "both events must be complete first: synchronize them";
    assert_eq!([start.elapsed_time(&end), end.elapsed_time(&start)].map(problem), [incomplete; 2]);
    go.send(()).unwrap();
    end.synchronize().unwrap();
    let untimed = host.event(EventFlags::default());
    untimed.record(stream).unwrap();
    untimed.synchronize().unwrap();
    for refused in [start.elapsed_time(&untimed), untimed.elapsed_time(&end)] {
        assert_eq!(problem(refused), "both events must be made with timing enabled");
    }
    let foreign = other.event(EventFlags::TIMING);
    assert!(matches!(start.elapsed_time(&foreign), Err(Error::DeviceMismatch { what: "the end event", .. })));
}

#[test]
fn an_event_is_made_when_it_is_recorded_and_complete_when_the_work_is() {
    let host = host();
    let [stream, side] = [host.default_stream(), host.stream(0).unwrap()];
    let event = host.event(EventFlags::default());
    assert!(event.native().is_none() && event.is_complete().unwrap());
    assert_eq!(event.id(), 0);
    event.synchronize().unwrap();
    event.wait(side).unwrap();
    let (go, wait) = channel();
    launch(stream, (), move |()| wait.recv().unwrap()).unwrap();
    event.record(stream).unwrap();
    let native = std::ptr::from_ref(event.native().unwrap());
    side.wait_event(&event).unwrap();
    assert!(!event.is_complete().unwrap() && !stream.is_idle().unwrap() && !side.is_idle().unwrap());
    go.send(()).unwrap();
    event.synchronize().unwrap();
    assert!(event.is_complete().unwrap());
    event.record(side).unwrap();
    assert_eq!(native, std::ptr::from_ref(event.native().unwrap()), "the same event is recorded again");
}

#[test]
fn a_stream_waits_for_what_another_has_submitted_so_far() {
    let host = host();
    let [stream, side] = [host.default_stream(), host.stream(0).unwrap()];
    let (go, wait) = channel();
    launch(stream, (), move |()| wait.recv().unwrap()).unwrap();
    side.wait_stream(stream).unwrap();
    assert!(!side.is_idle().unwrap());
    go.send(()).unwrap();
    side.synchronize().unwrap();
    assert!(stream.is_idle().unwrap());
}

#[test]
fn streams_of_a_pool_are_handed_out_in_turn_and_those_of_their_own_never() {
    let host = host();
    let own = host.dedicated_stream(0).unwrap();
    let first: Vec<_> = (0..STREAMS_PER_PRIORITY).map(|_| host.stream(0).unwrap()).collect();
    let again: Vec<_> = (0..STREAMS_PER_PRIORITY).map(|_| host.stream(0).unwrap()).collect();
    assert_eq!(first, again);
    for (number, stream) in first.iter().enumerate() {
        assert_eq!(host.stream_by_id(stream.id()), Some(*stream));
        assert!(!first[..number].contains(stream) && *stream != own && *stream != host.default_stream());
    }
    let text = format!("{own:?}");
    assert!(text.contains(&host.device().to_string()) && text.contains(&format!("id: {}", own.id())), "{text}");
}
