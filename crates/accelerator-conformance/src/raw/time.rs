//! Elapsed time between events, compared with the host's clock.

use std::time::{Duration, Instant};

use accelerator_core::{Backend, EventFlags};

use super::rig::Rig;
use super::work::Worker;
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};

/// Of several attempts, each with twice the work, one must agree: the host may have been busy with something else,
/// which counts for less the longer the work takes.
const ROUNDS: u32 = 4;

/// Two events around long work.
struct Measured<B: Backend> {
    events: [B::Event; 2],
    /// The time by the host's clock.
    host: Duration,
}

/// The first event is on the stream `first`, and the second on the worker's.
fn measured<B: Backend>(
    rig: &Rig<B>,
    first: &B::Stream,
    worker: &Worker<B>,
    factor: u32,
) -> Result<Measured<B>, Failure> {
    let events = [rig.event(EventFlags::TIMING)?, rig.event(EventFlags::TIMING)?];
    rig.synchronize(first)?;
    rig.synchronize(&worker.stream)?;
    let start = Instant::now();
    rig.record(&events[0], first)?;
    rig.busy(worker, factor)?;
    rig.record(&events[1], &worker.stream)?;
    for event in &events {
        rig.poll(Call::IsComplete, || rig.is_complete(event))?;
    }
    Ok(Measured { events, host: start.elapsed() })
}

fn elapsed<B: Backend>(rig: &Rig<B>, start: &B::Event, end: &B::Event) -> Result<i64, Failure> {
    rig.call(Call::ElapsedNs, || rig.backend.elapsed_ns(start, end))
}

pub(super) fn elapsed_time_is_the_hosts<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`elapsed_ns` returns the nanoseconds between two events, of one or two streams, for work of any length");
    let (worker, other) = (rig.worker()?, rig.stream()?);
    let both = [(&worker.stream, "one stream"), (&other, "two streams")];
    for ((first, streams), factor) in both.into_iter().flat_map(|both| [1, 8].map(|factor| (both, factor))) {
        let mut wrong = String::new();
        for round in 0..ROUNDS {
            let Measured { events: [start, end], host } = measured(rig, first, &worker, factor << round)?;
            let device = elapsed(rig, &start, &end)?;
            let told = Duration::from_nanos(u64::try_from(device).unwrap_or(0));
            if told <= host * 2 && host <= told * 2 {
                wrong.clear();
                break;
            }
            wrong = format!(
                "`elapsed_ns` says {device} ns between events of {streams}, for work that took {host:.1?} by the \
                 host's clock"
            );
        }
        if !wrong.is_empty() {
            return Err(wrong.into());
        }
    }
    Ok(())
}

pub(super) fn elapsed_time_has_a_sign<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`elapsed_ns` is negative if the second event came first, and 0 between an event and itself");
    let worker = rig.worker()?;
    let Measured { events: [start, end], .. } = measured(rig, &worker.stream, &worker, 1)?;
    let (forth, back) = (elapsed(rig, &start, &end)?, elapsed(rig, &end, &start)?);
    if forth <= 0 || back >= 0 {
        return Err(format!("`elapsed_ns` says {forth} ns forth and {back} ns back").into());
    }
    if forth.abs_diff(back.saturating_neg()) > forth.unsigned_abs() / 100 {
        return Err(format!("`elapsed_ns` says {forth} ns forth, but {back} ns back").into());
    }
    match elapsed(rig, &start, &start)? {
        0 => Ok(()),
        other => Err(format!("`elapsed_ns` says {other} ns between an event and itself").into()),
    }
}
