//! Every method, from many threads at once.

use std::sync::{Arc, Mutex};
use std::{mem, thread};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, EventFlags, MIB, Pages};

use super::bytes;
use super::live::LiveRanges;
use super::peers::copy_from_peer;
use super::rig::{Rig, Span};
use super::virtual_memory::Mapper;
use crate::calls::Call;
use crate::outcome::{Failure, Outcome, joined};

const THREADS: u8 = 8;
const ROUNDS: u32 = 60;

/// Every so many rounds, a thread opens the device again, maps memory, or copies from another device. These take longer
/// than other calls.
const ROUNDS_PER_OPEN: u32 = 30;
const ROUNDS_PER_MAPPING: u32 = 5;
const ROUNDS_PER_PEER_COPY: u32 = 7;

/// The length of the memory in the last round, the longest.
const LONGEST: u64 = length_in(ROUNDS - 1);

const fn length_in(round: u32) -> u64 {
    4096 + round as u64 * 257
}

pub(super) fn every_method_from_eight_threads<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"any thread may call any method at any time, several at once");
    let devices = B::probe().map_err(|why| format!("`probe` found no device, but one is open: {}", why.reason))?;
    let has_peer = devices > 1 && rig.backend.peer_copies().is_some();
    let second = has_peer.then(|| open::<B>(1)).transpose()?;
    let peer = second.as_ref().map(|second| Rig::new(second, rig.scale));
    let stream = rig.stream()?;
    let latest = Mutex::new(rig.recorded(&stream)?);
    let shared = Shared { rig, peer: peer.as_ref(), devices, stream, latest, live: Mutex::default() };
    let outcome = thread::scope(|scope| {
        let shared = &shared;
        let run = |number| move || Thread::new(shared, number)?.all_rounds();
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(run(number))).collect();
        threads.into_iter().map(|thread| joined(thread.join())?).fold(Ok(()), Result::and)
    });
    if outcome.is_err() {
        // Work may still run, which may never end.
        mem::forget(peer);
        mem::forget(second);
        return outcome;
    }
    peer.map_or(Ok(()), |peer| peer.finish(false))
}

fn open<B: Backend>(number: u32) -> Result<B, Failure> {
    B::open(number).map_err(|error| format!("`open({number})` failed: {error}").into())
}

/// What all threads use.
struct Shared<'a, B: Backend> {
    rig: &'a Rig<'a, B>,
    /// Another device, if there are copies from it.
    peer: Option<&'a Rig<'a, B>>,
    /// How many devices there are.
    devices: u32,
    stream: Arc<B::Stream>,
    /// An event that some thread recorded last.
    latest: Mutex<B::Event>,
    /// The device memory and the address space that the threads have.
    live: Mutex<LiveRanges>,
}

/// A thread. Its bytes must be those that it wrote, whatever other threads do.
struct Thread<'a, B: Backend> {
    shared: &'a Shared<'a, B>,
    rig: &'a Rig<'a, B>,
    number: u8,
    own: Arc<B::Stream>,
    /// The other device, with a stream of it.
    peer: Option<(&'a Rig<'a, B>, Arc<B::Stream>)>,
    /// Two pieces of pageable memory.
    pageable: [Span<B::Ptr>; 2],
}

/// Device memory of one round.
struct Memory<P> {
    span: Span<P>,
    /// The reservation and the memory behind it, if it is mapped.
    mapped: Option<(Span<P>, Pages)>,
}

/// Work of one round, with what it uses.
struct Work<'a, B: Backend> {
    memory: Memory<B::Ptr>,
    stream: &'a B::Stream,
    started: B::Event,
    ended: B::Event,
    /// Where the work writes host memory, and which value.
    written: [(Span<B::Ptr>, u8); 2],
}

impl<'a, B: Backend> Thread<'a, B> {
    fn new(shared: &'a Shared<'a, B>, number: u8) -> Result<Self, Failure> {
        let rig = shared.rig;
        let own = rig.stream()?;
        let peer = shared.peer.map(|peer| peer.stream().map(|stream| (peer, stream))).transpose()?;
        let pageable = [rig.pageable(LONGEST, 0), rig.pageable(LONGEST, 0)];
        Ok(Self { shared, rig, number, own, peer, pageable })
    }

    fn all_rounds(&self) -> Outcome {
        for round in 0..ROUNDS {
            if round.is_multiple_of(ROUNDS_PER_OPEN) {
                self.probe_and_open()?;
            }
            let work = self.submit(round)?;
            self.wait_for_another_thread()?;
            let waited = self.wait_until_done(&work, round)?;
            work.check(self.rig, waited)?;
            self.ask_about_the_device()?;
            if round.is_multiple_of(ROUNDS_PER_PEER_COPY)
                && let Some((peer, stream)) = &self.peer
            {
                copy_from_peer((self.rig, work.memory.span, &self.own), (peer, stream), round as u8)?;
            }
            self.give_back(work)?;
        }
        self.rig.synchronize(&self.own)
    }

    /// Opens the device once more, and closes it.
    fn probe_and_open(&self) -> Outcome {
        let (before, now) = (self.shared.devices, B::probe());
        if !matches!(now, Ok(now) if now == before) {
            return Err(format!("with {THREADS} threads, `probe` found {before} devices and then {now:?}").into());
        }
        let again = open::<B>(0)?;
        let (name, expected) = (&again.properties().name, &self.rig.backend.properties().name);
        match name == expected {
            true => Ok(()),
            false => Err(format!("with {THREADS} threads, `open(0)` opened {name}, and not {expected}").into()),
        }
    }

    fn submit(&self, round: u32) -> Result<Work<'_, B>, Failure> {
        let rig = self.rig;
        let value = self.number ^ (round as u8).rotate_left(3);
        let memory = self.memory(round)?;
        let (device, len) = (memory.span, memory.span.len);
        let pinned = rig.pinned(len, !value)?;
        let [source, target] = self.pageable.map(|span| span.part(0, len));
        source.bytes_mut().fill(!value);
        target.bytes_mut().fill(value);
        let stream = if round.is_multiple_of(3) { &*self.shared.stream } else { &*self.own };
        let started = rig.event(EventFlags::TIMING)?;
        rig.record(&started, stream)?;
        rig.fill(device, value, stream)?;
        rig.copy(pinned, device, stream)?;
        rig.copy(device, source, stream)?;
        rig.copy(target, device, stream)?;
        let ended = rig.event(EventFlags::TIMING)?;
        rig.record(&ended, stream)?;
        Ok(Work { memory, stream, started, ended, written: [(pinned, value), (target, !value)] })
    }

    /// Takes device memory, in some rounds by mapping it.
    fn memory(&self, round: u32) -> Result<Memory<B::Ptr>, Failure> {
        let len = length_in(round);
        let mapper = Mapper::of(self.rig).filter(|_| round.is_multiple_of(ROUNDS_PER_MAPPING));
        let Some(mapper) = mapper else {
            let span = self.rig.alloc(len)?;
            self.add_live(Call::Alloc, span)?;
            return Ok(Memory { span, mapped: None });
        };
        let reserved = mapper.reserve(2)?;
        self.add_live(Call::Reserve, reserved)?;
        let pages = mapper.create()?;
        let page = mapper.map(reserved, 1, &pages)?;
        let len = len.min(page.len);
        Ok(Memory { span: page.part(page.len - len, len), mapped: Some((reserved, pages)) })
    }

    fn add_live(&self, method: Call, span: Span<B::Ptr>) -> Outcome {
        let added = lock(&self.shared.live).add(method, span.device(), span.len);
        added.map_err(|failure| format!("with {THREADS} threads, {}", failure.text()).into())
    }

    /// Makes the thread's stream wait for an event that another thread recorded.
    fn wait_for_another_thread(&self) -> Outcome {
        let own = self.rig.recorded(&self.own)?;
        let other = mem::replace(&mut *lock(&self.shared.latest), own);
        self.rig.wait(&self.own, &other)?;
        self.rig.is_complete(&other).map(drop)
    }

    /// Waits in one of several ways, and returns the methods that said that the work is done.
    fn wait_until_done(&self, work: &Work<B>, round: u32) -> Result<&'static str, Failure> {
        let (rig, ended) = (self.rig, &work.ended);
        Ok(match round % 4 {
            0 => rig.synchronize(work.stream).map(|()| "synchronize")?,
            1 => rig.wait_host(ended).map(|()| "wait_host")?,
            2 => rig.poll(Call::IsComplete, || rig.is_complete(ended)).map(|_| "is_complete")?,
            _ => {
                rig.wait(&self.own, ended)?;
                rig.poll(Call::IsIdle, || rig.is_idle(&self.own)).map(|_| "wait` and `is_idle")?
            }
        })
    }

    fn ask_about_the_device(&self) -> Outcome {
        let backend = self.rig.backend;
        let memory = self.rig.call(Call::MemoryInfo, || backend.memory_info())?;
        if memory.free > memory.total || backend.properties().total_memory < MIB {
            return Err(format!("`memory_info` says {memory:?} while threads allocate").into());
        }
        let _ = (backend.kind(), backend.serializes_conflicts(), backend.virtual_memory().map(|it| it.maps_twice()));
        match self.rig.call(Call::IsCapturing, || backend.is_capturing(&self.own))? {
            true => Err("`is_capturing` said yes, though no capture was begun".into()),
            false => Ok(()),
        }
    }

    /// Gives back what the work of a round used, which is over.
    fn give_back(&self, work: Work<B>) -> Outcome {
        let [(pinned, _), _] = work.written;
        self.rig.dealloc_host(pinned);
        let Memory { span, mapped } = work.memory;
        let Some((mapper, (reserved, pages))) = Mapper::of(self.rig).zip(mapped) else {
            lock(&self.shared.live).remove(span.device());
            self.rig.dealloc(span);
            return Ok(());
        };
        mapper.unmap(reserved, 1)?;
        mapper.destroy(pages);
        lock(&self.shared.live).remove(reserved.device());
        mapper.release(reserved);
        Ok(())
    }
}

impl<B: Backend> Work<'_, B> {
    /// Checks what the work wrote, and how long it took. `waited` names the methods that said that it is done.
    fn check(&self, rig: &Rig<B>, waited: &str) -> Outcome {
        for (span, value) in self.written {
            bytes::all(span.bytes(), value).map_err(|difference| {
                format!("with {THREADS} threads, after `record` and `{waited}` of one of them, {difference}")
            })?;
        }
        let elapsed = rig.call(Call::ElapsedNs, || rig.backend.elapsed_ns(&self.started, &self.ended));
        let elapsed = elapsed
            .map_err(|failure| format!("with {THREADS} threads, after `record` of two events, {}", failure.text()))?;
        let _ = rig.backend.event_id(&self.ended);
        match elapsed < 0 {
            true => Err(format!("`elapsed_ns` says {elapsed} ns between events of one stream, in their order").into()),
            false => Ok(()),
        }
    }
}
