//! Runs a program, and compares the bytes and the statistics with what a program without streams would have.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Accelerator, DriverErrorKind, Error, Event, EventFlags, MemPool, MemPoolId, MemPoolOptions, MemPoolRequests,
    MemPoolRoute, PinnedBuffer, Result, Stream,
};

use super::captured::Captured;
use super::device::{Adversary, Plan};
use super::owned::{Owned, Tally};
use super::program::{Op, Program, chosen};

/// The value of freed memory.
const POISON: u8 = 0xDD;

/// A program that runs.
pub(crate) struct Machine {
    pub(crate) device: &'static Accelerator<Adversary>,
    pub(crate) streams: Vec<Stream<Adversary>>,
    pub(super) buffers: Vec<Owned>,
    pub(super) pinned: Vec<(PinnedBuffer<Adversary>, Option<u8>)>,
    events: Vec<Event<Adversary>>,
    pub(super) pools: Vec<MemPool<Adversary>>,
    pub(super) routes: Vec<(MemPoolId, MemPoolRoute)>,
    pub(crate) graphs: Vec<Captured>,
    /// Whether driver calls are made to fail, so that errors are expected.
    fails: bool,
    /// Whether other threads use the device, too, so that statistics are not those of this program alone.
    is_shared: bool,
    /// The streams whose work is captured, if other threads use the others.
    pub(crate) of_captures: Option<[Stream<Adversary>; 2]>,
    /// Held while work is captured, since the shadow knows of one capture at a time, and while this program waits for
    /// all streams, also to pause a pool: that is refused in a capture.
    pub(crate) capturing: Arc<Mutex<()>>,
    pub(crate) tally: Arc<Tally>,
}

impl Machine {
    pub(crate) fn new(program: &Program) -> Self {
        let backend = Adversary::new(program.memory, program.maps, program.seed);
        let (device, streams) = program.open(backend);
        Self::on(device, streams, false)
    }

    /// Returns a second program for the same device and the same streams, which runs on another thread.
    pub(crate) fn beside(&mut self) -> Self {
        self.is_shared = true;
        let of_captures = Some([(); 2].map(|()| self.device.stream(0).unwrap()));
        let capturing = Arc::clone(&self.capturing);
        Self { of_captures, capturing, ..Self::on(self.device, self.streams.clone(), true) }
    }

    fn on(device: &'static Accelerator<Adversary>, streams: Vec<Stream<Adversary>>, is_shared: bool) -> Self {
        let (buffers, pinned, events, pools, routes, graphs) = Default::default();
        let (fails, of_captures, capturing, tally) = Default::default();
        Self {
            device,
            streams,
            buffers,
            pinned,
            events,
            pools,
            routes,
            graphs,
            fails,
            is_shared,
            of_captures,
            capturing,
            tally,
        }
    }

    /// Runs the steps, and returns the number of driver calls that could have failed.
    pub(crate) fn run(&mut self, ops: &[Op], plan: Plan) -> u64 {
        self.fails = plan != Plan::None;
        self.device.backend().fail(plan);
        for op in ops {
            self.step(op);
            self.judge();
            #[cfg(debug_assertions)]
            if !self.is_shared {
                self.device.allocator().check();
            }
        }
        // A lost device stays lost.
        let after = if matches!(plan, Plan::Lost(_)) { Plan::Lost(1) } else { Plan::None };
        self.device.backend().fail(after)
    }

    /// Frees everything and checks that nothing is left.
    pub(crate) fn finish(mut self) {
        self.free_all();
        self.device.synchronize().unwrap();
        let allocator = self.device.allocator();
        allocator.empty_cache().unwrap();
        self.device.host_allocator().empty_cache().unwrap();
        self.judge();
        #[cfg(debug_assertions)]
        allocator.check();
        if !self.is_shared {
            self.count();
        }
        let statistics = allocator.statistics();
        assert_eq!(statistics.allocated_bytes.all.current, 0, "blocks are left");
        assert_eq!(self.device.backend().used(), 0, "memory is left: {statistics:?}");
        self.device.backend().retire();
    }

    /// Drops everything on a device that is lost. What the driver does not take back stays reserved.
    pub(crate) fn abandon(mut self) {
        let allocator = self.device.allocator();
        self.routes.drain(..).for_each(|(_, route)| allocator.end_allocate_to_pool(route));
        let Self { buffers, pinned, events, pools, graphs, .. } = &mut self;
        buffers.clear();
        pinned.clear();
        events.clear();
        pools.clear();
        graphs.clear();
        #[cfg(debug_assertions)]
        allocator.check();
        self.judge();
        assert_eq!(allocator.statistics().allocated_bytes.all.current, 0, "blocks are left");
        self.device.backend().retire();
    }

    /// Checks and frees everything that the program has.
    pub(crate) fn free_all(&mut self) {
        self.fails = false;
        while let Some((_, route)) = self.routes.pop() {
            self.device.allocator().end_allocate_to_pool(route);
        }
        self.pools.iter().filter(|pool| pool.is_paused()).for_each(|pool| drop(pool.resume()));
        self.synchronized().unwrap();
        let stream = self.streams[0];
        self.buffers.iter().filter(|owned| !self.is_paused(owned)).for_each(|owned| self.check(owned, stream));
        while !self.graphs.is_empty() {
            self.reset_graph(0);
        }
        self.buffers.clear();
        self.pinned.clear();
        self.pools.clear();
        self.events.clear();
    }

    fn step(&mut self, op: &Op) {
        let allocator = self.device.allocator();
        let stream = |number: &usize| self.streams[*number];
        match op {
            Op::Allocate { bytes, stream } => {
                let allocated = self.allocated(*bytes, self.streams[*stream]);
                self.buffers.extend(allocated);
            }
            Op::Free { nth, poison } => self.free(*nth, *poison),
            Op::Write { nth, stream, value } => self.write(*nth, *stream, *value),
            Op::Load { nth, part, stream, value } => self.load(*nth, *part, *stream, *value),
            Op::Read { nth, stream } => {
                let owned = self.buffer(*nth);
                owned.into_iter().for_each(|nth| self.check(&self.buffers[nth], self.streams[*stream]));
            }
            Op::Touch { nth, stream } => {
                if let Some(nth) = self.buffer(*nth) {
                    let touched = self.buffers[nth].kernel(None, self.streams[*stream]);
                    self.done(touched);
                }
            }
            Op::Copy { from, to, stream } => self.copy(*from, *to, *stream),
            Op::NewPinned { bytes } => {
                let pinned = self.device.allocate_host(*bytes);
                if let Some(pinned) = self.done(pinned) {
                    pinned.ptr().into_iter().for_each(|at| self.device.backend().handed_out_to_host(at, *bytes));
                    self.pinned.push((pinned, None));
                }
            }
            Op::FreePinned(nth) => {
                chosen(*nth, self.pinned.len()).into_iter().for_each(|nth| drop(self.pinned.swap_remove(nth)));
            }
            Op::ToPinned { nth, pinned, stream } => self.copy_to_pinned(*nth, *pinned, *stream),
            Op::FromPinned { nth, pinned, stream, value } => self.copy_from_pinned(*nth, *pinned, *stream, *value),
            Op::ReadPinned(nth) => {
                chosen(*nth, self.pinned.len()).into_iter().for_each(|nth| self.check_pinned(nth));
            }
            Op::Order { earlier, later } => {
                self.done(stream(later).wait_stream(stream(earlier)));
            }
            Op::Record(number) => {
                let event = self.device.event(EventFlags::default());
                if self.done(event.record(stream(number))).is_some() {
                    self.events.push(event);
                }
            }
            Op::Wait { nth, stream: number } => {
                let event = chosen(*nth, self.events.len()).map(|nth| &self.events[nth]);
                event.map(|event| self.done(event.wait(stream(number))));
            }
            Op::Query(nth) => {
                let event = chosen(*nth, self.events.len()).map(|nth| &self.events[nth]);
                event.map(|event| self.done(event.is_complete()));
            }
            Op::Synchronize(number) => {
                self.done(stream(number).synchronize());
            }
            Op::SynchronizeAll => {
                self.done(self.synchronized());
            }
            Op::EmptyCache => {
                self.done(allocator.empty_cache());
            }
            Op::Count => self.count(),
            Op::ResetPeaks => {
                allocator.reset_peak_statistics();
                self.tally.peak.store(self.tally.current.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Op::Configure(text) => allocator.set_config(allocator.config().updated(text).unwrap()),
            Op::Fraction(fraction) => allocator.set_memory_fraction(*fraction).unwrap(),
            Op::RefuseMemory(_) if self.fails => {}
            Op::RefuseMemory(count) => {
                self.device.backend().fail(Plan::Memory(*count));
            }
            Op::NewPool { pausable } => {
                let options = MemPoolOptions { pausable: *pausable, ..MemPoolOptions::default() };
                match MemPool::new(self.device, options) {
                    Ok(pool) => self.pools.push(pool),
                    Err(error) => assert!(*pausable || self.fails, "{error}"),
                }
            }
            Op::DropPool(nth) => self.drop_pool(*nth),
            Op::Route(nth) => {
                if let Some(nth) = chosen(*nth, self.pools.len()) {
                    let pool = self.pools[nth].id();
                    let requests = if self.is_shared { MemPoolRequests::ThisThread } else { MemPoolRequests::All };
                    let route = allocator.begin_allocate_to_pool(pool, requests).unwrap();
                    self.routes.push((pool, route));
                }
            }
            Op::EndRoute => {
                self.routes.pop().into_iter().for_each(|(_, route)| allocator.end_allocate_to_pool(route));
            }
            Op::Trim(nth) => {
                let pool = chosen(*nth, self.pools.len()).map(|nth| &self.pools[nth]);
                let pool = pool.filter(|pool| !pool.is_paused());
                pool.map(|pool| self.done(pool.trim()));
            }
            Op::Pause { nth, keep } => self.pause(*nth, *keep),
            Op::Resume(nth) => {
                let pool = chosen(*nth, self.pools.len()).map(|nth| &self.pools[nth]);
                let pool = pool.filter(|pool| pool.is_paused());
                pool.map(|pool| self.done(pool.resume()));
            }
            Op::Capture { stream, side, bytes, joins, value } => self.capture([*stream, *side], *bytes, *joins, *value),
            Op::Replay { nth, stream } => self.replay(*nth, *stream),
            Op::ResetGraph(nth) => self.reset_graph(*nth),
        }
    }

    pub(crate) fn synchronized(&self) -> Result<()> {
        let _capturing = lock(&self.capturing);
        self.device.synchronize()
    }

    /// Returns a new buffer, or `None` if there is no memory for it.
    pub(crate) fn allocated(&mut self, bytes: u64, stream: Stream<Adversary>) -> Option<Owned> {
        let allocated = self.device.allocate(bytes, stream);
        let pool = self.routes.last().map(|(pool, _)| *pool);
        let owned = Owned::new(self.done(allocated)?, pool, &self.tally);
        self.handed_out(&owned, stream);
        Some(owned)
    }

    /// Tells the judge that the allocator has given memory to a stream.
    pub(crate) fn handed_out(&self, owned: &Owned, stream: Stream<Adversary>) {
        let (at, size) = (owned.buffer.ptr(), owned.buffer.block_size());
        at.into_iter().for_each(|at| self.device.backend().handed_out(at, size, stream.native()));
    }

    fn free(&mut self, nth: usize, poison: bool) {
        let Some(nth) = chosen(nth, self.buffers.len()) else { return };
        let owned = self.buffers.swap_remove(nth);
        let stream = owned.buffer.stream();
        if poison && !self.is_paused(&owned) && owned.is_ordered(stream, true) {
            let poisoned = owned.kernel(Some(POISON), stream);
            self.done(poisoned);
        }
    }

    fn write(&mut self, nth: usize, stream: usize, value: u8) {
        let Some(nth) = self.buffer(nth) else { return };
        let stream = self.streams[stream];
        if self.ordered(&self.buffers[nth], stream, true) {
            let written = self.buffers[nth].kernel(Some(value), stream);
            let value = self.done(written).map(|()| value);
            self.buffers[nth].set(value);
        }
    }

    fn load(&mut self, nth: usize, part: usize, stream: usize, value: u8) {
        let Some(nth) = self.buffer(nth) else { return };
        let stream = self.streams[stream];
        if self.ordered(&self.buffers[nth], stream, true) {
            let parts = self.buffers[nth].parts();
            let part = part % parts.len();
            let (offset, len) = parts[part];
            let loaded = self.buffers[nth].buffer.write(offset, &vec![value; len as usize], stream);
            let value = self.done(loaded).map(|()| value);
            self.buffers[nth].set_part(part, value);
        }
    }

    fn copy(&mut self, from: usize, to: usize, stream: usize) {
        let (Some(from), Some(to), stream) = (self.buffer(from), self.buffer(to), self.streams[stream]) else { return };
        let (source, target) = (&self.buffers[from], &self.buffers[to]);
        if from == to || source.buffer.len() != target.buffer.len() || source.buffer.len() > 300_000 {
            return;
        }
        if self.ordered(source, stream, false) && self.ordered(target, stream, true) {
            let [source, target] = self.buffers.get_disjoint_mut([from, to]).unwrap();
            target.copied_from(source);
            let copied = target.buffer.copy_from(&source.buffer, stream);
            if self.done(copied).is_none() {
                self.buffers[to].set(None);
            }
        }
    }

    /// Orders a stream after the work on a buffer, if it is not. Returns whether it is then.
    pub(crate) fn ordered(&self, owned: &Owned, stream: Stream<Adversary>, writes: bool) -> bool {
        let is_ordered = || owned.is_ordered(stream, writes);
        is_ordered() || {
            let waited = self.streams.iter().filter(|other| **other != stream).all(|other| {
                let waited = stream.wait_stream(*other);
                self.done(waited).is_some()
            });
            waited && is_ordered()
        }
    }

    /// Compares the bytes of a buffer with what they must be, after the work on it.
    pub(crate) fn check(&self, owned: &Owned, stream: Stream<Adversary>) {
        if self.ordered(owned, stream, false) {
            let checked = owned.check(stream);
            self.done(checked);
        }
    }

    /// Returns a result, or `None` if it is an error that the program expects.
    pub(crate) fn done<T>(&self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::OutOfMemory(_) | Error::HostOutOfMemory(_)) => None,
            Err(Error::MemPool { .. }) if self.pools.iter().any(MemPool::is_paused) => None,
            Err(Error::Driver { source, .. }) if self.fails || source.kind == DriverErrorKind::OutOfMemory => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Chooses a buffer whose pool is not paused.
    pub(super) fn buffer(&self, nth: usize) -> Option<usize> {
        chosen(nth, self.buffers.len()).filter(|nth| !self.is_paused(&self.buffers[*nth]))
    }

    pub(crate) fn is_paused(&self, owned: &Owned) -> bool {
        let pool = self.pools.iter().find(|pool| Some(pool.id()) == owned.pool);
        pool.is_some_and(MemPool::is_paused)
    }

    /// Fails if the allocator did anything wrong.
    fn judge(&self) {
        let found = self.device.backend().violations();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    /// Compares statistics with the sums over all blocks, which other threads must not change.
    fn count(&self) {
        let Tally { current, peak } = &*self.tally;
        let statistics = self.device.allocator().statistics();
        let allocated = statistics.allocated_bytes.all;
        let expected = (current.load(Ordering::Relaxed), peak.load(Ordering::Relaxed));
        assert_eq!((allocated.current, allocated.peak), expected, "allocated bytes, now and at the peak");
        let reserved = statistics.reserved_bytes.all.current - statistics.paused_bytes;
        assert_eq!(reserved, self.device.backend().used() as i64, "reserved bytes, without paused ones");
    }
}
