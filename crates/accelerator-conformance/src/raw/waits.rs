//! Streams that wait for events of other streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accelerator_core::Backend;

use super::bytes;
use super::completion::Late;
use super::rig::Rig;
use super::work::Worker;
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};

const DONE_EARLY: &str = "the awaited work was done before the stream could wait for it";

/// The shapes in which a stream waits for another: how many streams hand the event on, and what else the waiting
/// stream has to do.
#[derive(Clone, Copy)]
struct Chain {
    links: usize,
    /// Work of the waiting stream before the wait.
    work_before: bool,
    /// Waits for events that are complete, before and after the one that counts.
    other_waits: bool,
}

pub(super) fn a_stream_waits_for_an_event<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`wait` orders later work of the stream after the event");
    let (early, worker, late_made) = (rig.stream()?, rig.worker()?, rig.stream()?);
    let late = Late::new(rig, &worker)?;
    let chains =
        [(0, false, false), (0, true, false), (0, false, true), (0, true, true), (1, false, false), (2, true, true)];
    for waiting in [&early, &late_made] {
        for (links, work_before, other_waits) in chains {
            let chain = Chain { links, work_before, other_waits };
            rig.asked(DONE_EARLY, |factor| waits_for(rig, &worker, &late, waiting, chain, factor))?;
        }
    }
    Ok(())
}

/// The waiting stream copies what the awaited work writes last.
fn waits_for<B: Backend>(
    rig: &Rig<B>,
    worker: &Worker<B>,
    late: &Late<B>,
    waiting: &Arc<B::Stream>,
    chain: Chain,
    factor: u32,
) -> Result<bool, Failure> {
    let (own, written, copy) = (rig.stream()?, rig.filled(4096, 0, waiting)?, rig.pinned(4096, 0)?);
    let other = rig.alloc(4096)?;
    let links = (0..chain.links).map(|_| rig.stream()).collect::<Result<Vec<_>, _>>()?;
    let complete = rig.recorded(&own)?;
    rig.synchronize(&own)?;
    late.submit(rig, worker, factor)?;
    rig.fill(written, 1, &worker.stream)?;
    let event = rig.recorded(&worker.stream)?;
    let mut handed_on = None;
    for link in &links {
        rig.wait(link, handed_on.as_ref().unwrap_or(&event))?;
        handed_on = Some(rig.recorded(link)?);
    }
    if chain.work_before {
        rig.fill(other, 2, waiting)?;
    }
    if chain.other_waits {
        rig.wait(waiting, &complete)?;
    }
    rig.wait(waiting, handed_on.as_ref().unwrap_or(&event))?;
    if chain.other_waits {
        rig.wait(waiting, &complete)?;
    }
    rig.copy(copy, written, waiting)?;
    let was_open = !rig.is_complete(&event)?;
    rig.synchronize(waiting)?;
    bytes::all(copy.bytes(), 1).map_err(|difference| {
        format!("`wait` did not hold back a copy of bytes that the awaited work writes: {difference}")
    })?;
    late.done("`wait` did not hold back its stream: the stream was done")?;
    Ok(was_open)
}

pub(super) fn a_wait_is_work<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"a wait is work of its stream: a later record, `is_idle` and `synchronize` include it");
    let (worker, waiting) = (rig.worker()?, rig.stream()?);
    let late = Late::new(rig, &worker)?;
    for question in [Call::IsComplete, Call::WaitHost, Call::IsIdle, Call::Synchronize] {
        rig.asked(DONE_EARLY, |factor| {
            late.submit(rig, &worker, factor)?;
            let event = rig.recorded(&worker.stream)?;
            rig.wait(&waiting, &event)?;
            let was_open = !rig.is_complete(&event)?;
            let told = match question {
                Call::IsComplete => {
                    let behind = rig.recorded(&waiting)?;
                    rig.poll(Call::IsComplete, || rig.is_complete(&behind))?;
                    "`is_complete` said yes for an event recorded behind a `wait`"
                }
                Call::WaitHost => {
                    rig.wait_host(&rig.recorded(&waiting)?)?;
                    "`wait_host` returned for an event recorded behind a `wait`"
                }
                Call::IsIdle => {
                    rig.poll(Call::IsIdle, || rig.is_idle(&waiting))?;
                    "`is_idle` said yes for a stream with a `wait`"
                }
                _ => {
                    rig.synchronize(&waiting)?;
                    "`synchronize` returned for a stream with a `wait`"
                }
            };
            late.done(told)?;
            Ok(was_open)
        })?;
    }
    Ok(())
}

/// Of several attempts, this many must show that a call waited for the work.
const ROUNDS: u32 = 3;

/// Checks that calls return while work runs. `make` makes them after the work was submitted, and returns the name of
/// the slowest with its time. They are to blame only if the work was over each time, and they took half of its time.
pub(super) fn returns_at_once<B: Backend>(
    rig: &Rig<B>,
    worker: &Worker<B>,
    mut make: impl FnMut() -> Result<(&'static str, Duration), Failure>,
) -> Outcome {
    let mut blame = String::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        rig.busy(worker, 2)?;
        let event = rig.recorded(&worker.stream)?;
        let submitted = start.elapsed();
        let was_open = !rig.is_complete(&event)?;
        let (slowest, time) = make()?;
        let is_open = !rig.is_complete(&event)?;
        rig.synchronize(&worker.stream)?;
        let all = start.elapsed();
        if is_open {
            return Ok(());
        }
        if !was_open || time < (all - submitted) / 2 {
            blame.clear();
            continue;
        }
        blame = format!("{slowest} took {time:.0?} and returned when the work was done: it must not block the host");
    }
    match blame.is_empty() {
        true => Err(Failure::NotAsked("could not ask: the work was done before the calls were made".into())),
        false => Err(blame.into()),
    }
}

/// Makes a call, and returns how long it took.
pub(super) fn timed(call: impl FnOnce() -> Outcome) -> Result<Duration, Failure> {
    let start = Instant::now();
    call().map(|()| start.elapsed())
}

pub(super) fn waits_and_records_do_not_block<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`wait` and `record` return while the work runs");
    let (worker, waiting) = (rig.worker()?, rig.stream()?);
    returns_at_once(rig, &worker, || {
        let event = rig.plain_event()?;
        let record = timed(|| rig.record(&event, &worker.stream))?;
        let wait = timed(|| rig.wait(&waiting, &event))?;
        Ok(if wait >= record { ("`wait`", wait) } else { ("`record`", record) })
    })
}

pub(super) fn a_wait_keeps_its_record<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`wait` is for the event as it is recorded then: later records do not affect it");
    let (worker, waiting, idle) = (rig.worker()?, rig.stream()?, rig.stream()?);
    let late = Late::new(rig, &worker)?;
    // A later record that is reached sooner must not end the wait.
    rig.asked(DONE_EARLY, |factor| {
        late.submit(rig, &worker, factor)?;
        let (event, last) = (rig.recorded(&worker.stream)?, rig.recorded(&worker.stream)?);
        rig.wait(&waiting, &event)?;
        rig.record(&event, &idle)?;
        rig.synchronize(&idle)?;
        let was_open = !rig.is_complete(&last)?;
        rig.synchronize(&waiting)?;
        late.done("a later `record` on an idle stream ended a `wait` for the first one")?;
        rig.synchronize(&worker.stream)?;
        Ok(was_open)
    })?;
    // One that is reached later must not prolong it. Here it is even behind the wait: if that followed it, the two
    // would wait for each other.
    let after = rig.stream()?;
    let event = rig.plain_event()?;
    rig.busy(&worker, 1)?;
    rig.record(&event, &worker.stream)?;
    rig.wait(&waiting, &event)?;
    let ended = rig.recorded(&waiting)?;
    rig.wait(&after, &ended)?;
    rig.record(&event, &after)?;
    let polled = rig.poll(Call::IsComplete, || rig.is_complete(&ended));
    polled.map_err(|failure| match failure {
        Failure::Stuck(why) => Failure::Stuck(format!("a `wait` follows a later `record` of its event: {why}")),
        other => other,
    })?;
    rig.synchronize(&after)
}
