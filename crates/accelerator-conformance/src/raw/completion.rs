//! Whoever says that work is done must be right: at that moment its bytes are read without asking the stream.

use accelerator_core::{Backend, EventFlags};

use super::bytes;
use super::rig::{Rig, Span};
use super::work::Worker;
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};

/// Long work whose last piece, a copy of many bytes, writes ones to pinned memory.
pub(super) struct Late<B: Backend> {
    source: Span<B::Ptr>,
    pub(super) target: Span<B::Ptr>,
}

impl<B: Backend> Late<B> {
    pub(super) fn new(rig: &Rig<B>, worker: &Worker<B>) -> Result<Self, Failure> {
        // The copy alone takes some time, too: a record before it, instead of after it, must show.
        let len = rig.most_bytes();
        Ok(Self { source: rig.filled(len, 1, &worker.stream)?, target: rig.pinned(len, 0)? })
    }

    /// Submits the work.
    pub(super) fn submit(&self, rig: &Rig<B>, worker: &Worker<B>, factor: u32) -> Outcome {
        self.target.bytes_mut().fill(0);
        rig.busy(worker, factor)?;
        rig.copy(self.target, self.source, &worker.stream)
    }

    /// Checks that the work is done, now that `told` says so.
    pub(super) fn done(&self, told: &str) -> Outcome {
        let target = self.target.bytes();
        // Copies usually write these last, so they are read before a copy that still runs gets there.
        let end = bytes::all(&target[target.len().saturating_sub(END)..], 1);
        let compared = bytes::all(target, 1).and(end);
        compared.map_err(|difference| format!("{told}, and {}", difference.not_there_yet()).into())
    }
}

/// The number of bytes at the end that are read first.
const END: usize = 4096;

const DONE_EARLY: &str = "the work was done before it could be asked about";

pub(super) fn is_complete_means_done<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`is_complete` is true only when all work before the record is done and its effects are visible");
    let worker = rig.worker()?;
    let late = Late::new(rig, &worker)?;
    let flags = [
        EventFlags::default(),
        EventFlags { enable_timing: true, ..EventFlags::default() },
        EventFlags { blocking: true, ..EventFlags::default() },
    ];
    for flags in flags {
        rig.asked(DONE_EARLY, |factor| {
            let event = rig.event(flags)?;
            late.submit(rig, &worker, factor)?;
            rig.record(&event, &worker.stream)?;
            let asked = rig.poll(Call::IsComplete, || rig.is_complete(&event))?;
            late.done("`is_complete` said yes")?;
            Ok(asked)
        })?;
    }
    Ok(())
}

pub(super) fn is_idle_means_done<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`is_idle` is true only when everything submitted to the stream is done");
    let worker = rig.worker()?;
    let late = Late::new(rig, &worker)?;
    rig.asked(DONE_EARLY, |factor| {
        late.submit(rig, &worker, factor)?;
        let asked = rig.poll(Call::IsIdle, || rig.is_idle(&worker.stream))?;
        late.done("`is_idle` said yes")?;
        Ok(asked)
    })?;
    rig.step(&"`is_idle` becomes true once a stream is synchronized, and stays true until more work is submitted");
    rig.synchronize(&worker.stream)?;
    rig.poll(Call::IsIdle, || rig.is_idle(&worker.stream))?;
    for _ in 0..100 {
        if !rig.is_idle(&worker.stream)? {
            return Err("`is_idle` said no after it had said yes, and nothing was submitted in between".into());
        }
    }
    Ok(())
}

pub(super) fn synchronize_means_done<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`synchronize` returns once everything submitted to the stream is done");
    let worker = rig.worker()?;
    let late = Late::new(rig, &worker)?;
    rig.asked(DONE_EARLY, |factor| {
        late.submit(rig, &worker, factor)?;
        let event = rig.recorded(&worker.stream)?;
        let was_open = !rig.is_complete(&event)?;
        rig.synchronize(&worker.stream)?;
        late.done("`synchronize` returned")?;
        if !rig.is_complete(&event)? {
            return Err("`synchronize` returned, and `is_complete` says no for an event recorded before it".into());
        }
        Ok(was_open)
    })
}

pub(super) fn wait_host_means_done<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`wait_host` returns once the event has been reached");
    let worker = rig.worker()?;
    let late = Late::new(rig, &worker)?;
    for blocking in [false, true] {
        let flags = EventFlags { blocking, ..EventFlags::default() };
        rig.asked(DONE_EARLY, |factor| {
            let event = rig.event(flags)?;
            late.submit(rig, &worker, factor)?;
            rig.record(&event, &worker.stream)?;
            let was_open = !rig.is_complete(&event)?;
            rig.wait_host(&event)?;
            late.done("`wait_host` returned")?;
            if !rig.is_complete(&event)? {
                return Err("`wait_host` returned, and `is_complete` says no for the same event".into());
            }
            Ok(was_open)
        })?;
    }
    Ok(())
}

pub(super) fn recorded_again<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"the last `record` of an event counts");
    let (worker, other) = (rig.worker()?, rig.stream()?);
    let late = Late::new(rig, &worker)?;
    // The first record may still be open.
    rig.asked(DONE_EARLY, |factor| {
        rig.busy(&worker, factor)?;
        let event = rig.recorded(&worker.stream)?;
        let was_open = !rig.is_complete(&event)?;
        late.submit(rig, &worker, factor)?;
        rig.record(&event, &worker.stream)?;
        rig.poll(Call::IsComplete, || rig.is_complete(&event))?;
        late.done("`record` was called again while the first record was open, `is_complete` said yes too early")?;
        Ok(was_open)
    })?;
    // The first record is on the same stream, on another one, and one that was never asked about.
    for (first, asks) in [(&worker.stream, true), (&other, true), (&worker.stream, false)] {
        rig.asked(DONE_EARLY, |factor| {
            let event = rig.recorded(first)?;
            if asks {
                rig.poll(Call::IsComplete, || rig.is_complete(&event))?;
            }
            late.submit(rig, &worker, factor)?;
            rig.record(&event, &worker.stream)?;
            let asked = rig.poll(Call::IsComplete, || rig.is_complete(&event))?;
            late.done("`record` was called again, `is_complete` said yes as if it had not been")?;
            Ok(asked)
        })?;
        rig.asked(DONE_EARLY, |factor| {
            let event = rig.recorded(first)?;
            late.submit(rig, &worker, factor)?;
            rig.record(&event, &worker.stream)?;
            rig.wait(&other, &event)?;
            let was_open = !rig.is_complete(&event)?;
            rig.synchronize(&other)?;
            late.done("`record` was called again, a stream that then waited with `wait` was done")?;
            Ok(was_open)
        })?;
    }
    Ok(())
}

pub(super) fn unrecorded_is_complete<B: Backend>(rig: &Rig<B>) -> Outcome {
    const SENTENCE: &str = "an event that was never recorded counts as complete: `is_complete` says yes, and `wait` and \
                            `wait_host` do nothing";
    rig.step(&SENTENCE);
    let stream = rig.stream()?;
    for flags in [EventFlags::default(), EventFlags::TIMING] {
        let event = rig.event(flags)?;
        if !rig.is_complete(&event)? {
            return Err("`is_complete` said no for an event that was never recorded".into());
        }
        rig.wait_host(&event)?;
        rig.wait(&stream, &event)?;
        let filled = rig.filled(4096, 1, &stream)?;
        rig.holds(filled, 1, &stream, "`wait` for an event that was never recorded changed what followed")?;
    }
    Ok(())
}

pub(super) fn events_dropped_while_pending<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"dropping a pending event stops nothing: streams that wait for it keep waiting");
    let (worker, waiting) = (rig.worker()?, rig.stream()?);
    let late = Late::new(rig, &worker)?;
    let (own, copy) = (rig.filled(4096, 1, &waiting)?, rig.pinned(4096, 0)?);
    rig.asked(DONE_EARLY, |factor| {
        late.submit(rig, &worker, factor)?;
        let last = rig.recorded(&worker.stream)?;
        for _ in 0..16 {
            let event = rig.recorded(&worker.stream)?;
            rig.wait(&waiting, &event)?;
            drop(event);
        }
        rig.copy(copy, own, &waiting)?;
        let was_open = !rig.is_complete(&last)?;
        rig.synchronize(&waiting)?;
        late.done("an event was dropped after `wait`, the stream went on without waiting for it")?;
        rig.synchronize(&worker.stream)?;
        Ok(was_open)
    })
}

pub(super) fn streams_dropped_under_work<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"dropping a stream does not stop its work: events recorded on it are reached once the work is done");
    let (worker, waiting) = (rig.worker()?, rig.stream()?);
    let late = Late::new(rig, &worker)?;
    for waits in [false, true] {
        rig.asked(DONE_EARLY, |factor| {
            let gone = rig.worker_that_goes(&worker)?;
            late.submit(rig, &gone, factor)?;
            let event = rig.recorded(&gone.stream)?;
            let was_open = !rig.is_complete(&event)?;
            drop(gone);
            if waits {
                rig.wait(&waiting, &event)?;
                rig.synchronize(&waiting)?;
                late.done("a stream was dropped, a stream that waited for an event on it was done")?;
            } else {
                rig.poll(Call::IsComplete, || rig.is_complete(&event))?;
                late.done("a stream was dropped, `is_complete` said yes for an event on it")?;
            }
            Ok(was_open)
        })?;
    }
    Ok(())
}
