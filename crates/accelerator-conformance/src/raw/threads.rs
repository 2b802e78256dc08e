//! Many streams, and every method from many threads.

use std::sync::Mutex;
use std::thread;

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, EventFlags, MIB, StreamKind};

use super::bytes;
use super::rig::Rig;
use crate::calls::Call;
use crate::outcome::{Failure, Outcome, joined};

const STREAMS: usize = 40;

pub(super) fn many_streams<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"a device has 33 streams or more, of every priority, and each does its own work in order");
    let (least, greatest) = rig.backend.properties().stream_priorities;
    let mut lines = Vec::new();
    for number in 0..STREAMS {
        let priority = (greatest..=least).cycle().nth(number).unwrap_or(0);
        let stream = rig.stream_of(StreamKind::Side { priority })?;
        lines.push((stream, rig.alloc(65_536)?, rig.pinned(65_536, 0)?));
    }
    for round in 0..4 {
        for (number, (stream, device, host)) in lines.iter().enumerate() {
            rig.fill(*device, number as u8 ^ 0x80, stream)?;
            rig.fill(*device, number as u8 + round, stream)?;
            rig.copy(*host, *device, stream)?;
        }
        for (number, (stream, _, host)) in lines.iter().enumerate() {
            rig.synchronize(stream)?;
            bytes::all(host.bytes(), number as u8 + round)
                .map_err(|difference| format!("the work of one of {STREAMS} streams is not in order: {difference}"))?;
        }
    }
    Ok(())
}

const THREADS: u8 = 8;
const ROUNDS: u32 = 60;

pub(super) fn every_method_from_eight_threads<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"any thread may call any method at any time, several at once");
    let shared = rig.stream()?;
    let latest = Mutex::new(rig.recorded(&shared)?);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (shared, latest) = (&shared, &latest);
                scope.spawn(move || all_methods(rig, number, shared, latest))
            })
            .collect();
        threads.into_iter().map(|thread| joined(thread.join())?).fold(Ok(()), Result::and)
    })
}

/// Calls every method. The bytes of this thread must be those that it wrote, whatever other threads do.
fn all_methods<B: Backend>(rig: &Rig<B>, number: u8, shared: &B::Stream, latest: &Mutex<B::Event>) -> Outcome {
    let own = rig.stream()?;
    for round in 0..ROUNDS {
        let value = number ^ (round as u8).rotate_left(3);
        let len = 4096 + u64::from(round) * 257;
        let (device, host) = (rig.alloc(len)?, rig.pinned(len, !value)?);
        let stream = if round % 3 == 0 { shared } else { &*own };
        let started = rig.event(EventFlags::TIMING)?;
        rig.record(&started, stream)?;
        rig.fill(device, value, stream)?;
        rig.copy(host, device, stream)?;
        let ended = rig.event(EventFlags::TIMING)?;
        rig.record(&ended, stream)?;
        // Another thread's event, which that thread may be recording now.
        let other = {
            let mut latest = lock(latest);
            std::mem::replace(&mut *latest, rig.recorded(&own)?)
        };
        rig.wait(&own, &other)?;
        rig.is_complete(&other)?;
        drop(other);
        let told = match round % 4 {
            0 => rig.synchronize(stream).map(|()| "synchronize")?,
            1 => rig.wait_host(&ended).map(|()| "wait_host")?,
            2 => rig.poll(Call::IsComplete, || rig.is_complete(&ended)).map(|_| "is_complete")?,
            _ => {
                rig.wait(&own, &ended)?;
                rig.poll(Call::IsIdle, || rig.is_idle(&own)).map(|_| "wait` and `is_idle")?
            }
        };
        bytes::all(host.bytes(), value).map_err(|difference| -> Failure {
            format!("with {THREADS} threads, after `record` and `{told}` of one of them, {difference}").into()
        })?;
        let elapsed = rig.call(Call::ElapsedNs, || rig.backend.elapsed_ns(&started, &ended)).map_err(|failure| {
            Failure::Failed(format!("with {THREADS} threads, after `record` of two events, {}", failure.text()))
        })?;
        if elapsed < 0 {
            return Err(format!("`elapsed_ns` says {elapsed} ns between events of one stream, in their order").into());
        }
        let memory = rig.call(Call::MemoryInfo, || rig.backend.memory_info())?;
        if memory.free > memory.total || rig.backend.properties().total_memory < MIB {
            return Err(format!("`memory_info` says {memory:?} while threads allocate").into());
        }
        let _ = (rig.backend.event_id(&ended), rig.backend.kind(), rig.backend.serializes_conflicts());
        if rig.call(Call::IsCapturing, || rig.backend.is_capturing(&own))? {
            return Err("`is_capturing` said yes, though no capture was begun".into());
        }
        rig.dealloc(device);
        rig.dealloc_host(host);
    }
    rig.synchronize(&own)
}
