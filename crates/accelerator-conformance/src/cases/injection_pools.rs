//! G, a failure at each driver call of a program with private pools and graphs: case 101.
#![allow(unsafe_code)] // `Graph::replay`

use accelerator_core::{
    Allocation, Backend, CaptureMode, DriverErrorKind, Graph, MIB, MemPool, MemPoolOptions, Stream,
};

use super::consistency::check_accumulated;
use super::context::{Device, Driver};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    // It sets a pool back to a checkpoint, which `policy:compact` does not have.
    let case = Case::new(101, "failure_at_every_driver_call_with_pools", failure_at_every_driver_call_with_pools);
    vec![case.needs(&[Capability::Execution])]
}

const SETTINGS: [&str; 5] = [
    "",
    "max_split_size_mb:20",
    "graph_capture_record_stream_reuse:True",
    "caching:False,reclaim_live_pools:True",
    "expandable_segments:True",
];
const KINDS: [DriverErrorKind; 2] = [DriverErrorKind::Other, DriverErrorKind::OutOfMemory];
const MEMORY: u64 = 128 * MIB;

fn failure_at_every_driver_call_with_pools(context: &Context) -> Outcome {
    for settings in SETTINGS {
        let device = context.device_with(MEMORY, settings)?;
        let streams = [device.side_stream()?, device.side_stream()?];
        assert_eq!(workload(device, streams)?, 0, "no failure may be injected here");
        for call in [Call::Begin, Call::End, Call::CaptureOf, Call::Launch] {
            device.backend().fail_next(call, DriverErrorKind::Other);
            let injected = workload(device, streams)?;
            assert_eq!(injected > 0, device.backend().graphs().is_some(), "`{}` is called", call.name());
        }
        for kind in KINDS {
            let mut n = 1;
            loop {
                device.backend().fail_call(n, kind);
                if workload(device, streams)? == 0 {
                    break;
                }
                n += 1;
            }
            assert!(n > 10, "the workload makes too few driver calls: {n}");
        }
    }
    Ok(())
}

/// Uses pools and a graph, then gives everything back. Whatever failed in between, no memory may be lost, the
/// statistics must be right and the device must be usable. Returns how many calls were made to fail.
fn workload(device: Device, streams: [Stream<Driver>; 2]) -> Result<u64, Failure> {
    let before = device.backend().injected();
    let mut work = Work { device, streams, live: Vec::new() };
    work.run()?;
    let live = work.live;
    let injected = device.backend().injected() - before;
    device.backend().clear_failures();
    device.check_consistency();
    device.free_all(live)?;
    device.backend().release_all();
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.check_consistency();
    check_accumulated(device);
    let allocator = device.allocator();
    assert_eq!((device.reserved(), device.backend().live_allocations()), (0, 0), "the driver has everything back");
    assert!(allocator.reserved_by_private_pools().values().all(|stat| stat.all.current == 0));
    device.check_reservations();

    // The stream is usable, in a capture and out of it.
    allocator.set_memory_fraction(0.5)?;
    let usable = device.alloc_on(MEMORY / 2, streams[0])?;
    device.free(usable)?;
    allocator.set_memory_fraction(1.0)?;
    if device.backend().graphs().is_some() {
        let mut graph = Graph::new(device.accelerator())?;
        graph.capture_begin(streams[0], None, CaptureMode::default())?;
        let captured = device.alloc_on(MIB, streams[0])?;
        assert_eq!(device.pool_of(&captured), graph.pool());
        device.free(captured)?;
        graph.capture_end()?;
        // SAFETY: The graph does nothing.
        unsafe { graph.replay(streams[0]) }?;
        streams[0].synchronize()?;
    }
    allocator.empty_cache()?;
    assert_eq!(device.reserved(), 0);
    Ok(injected)
}

struct Work {
    device: Device,
    /// The first one is captured.
    streams: [Stream<Driver>; 2],
    live: Vec<Allocation<Driver>>,
}

impl Work {
    /// Errors are expected; only the state that they leave matters.
    fn run(&mut self) -> Outcome {
        let device = self.device;
        let [stream, user] = self.streams;
        let options = MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() };
        let (pool, shared) = (MemPool::new(device.accelerator(), options)?, device.pool()?);
        let guard = pool.use_pool();
        for bytes in [700, 3 * MIB, 3 * MIB, 30 * MIB] {
            self.alloc(bytes, device.default_stream());
        }
        drop(guard);
        self.alloc(5 * MIB, stream);
        device.hold(user);
        self.use_and_free(1, user);
        self.free(2);

        self.capture(&shared)?;
        device.backend().release_all();
        self.checkpoint(&pool);
        let _ = pool.trim();
        // Memory is short here, and the pool helps.
        self.alloc(90 * MIB, device.default_stream());
        self.alloc(25 * MIB, device.default_stream());
        let guard = shared.use_pool();
        self.alloc(25 * MIB, stream);
        drop(guard);
        self.use_and_free(0, user);
        let id = pool.id();
        drop(pool);
        let _ = device.allocator().empty_pool_cache(id);
        let _ = device.allocator().empty_cache();
        Ok(())
    }

    /// Captures work in the shared pool, and replays it.
    fn capture(&mut self, shared: &MemPool<Driver>) -> Outcome {
        let device = self.device;
        let [stream, user] = self.streams;
        let Ok(mut graph) = Graph::new(device.accelerator()) else { return Ok(()) };
        let begun = graph.capture_begin(stream, Some(shared.id()), CaptureMode::default());
        if begun.is_ok() {
            let first = self.live.len();
            if let Ok(event) = device.recorded(stream) {
                let _ = event.wait(user);
            }
            for bytes in [3 * MIB, 700, 12 * MIB] {
                self.alloc(bytes, stream);
            }
            for captured in &self.live[first..] {
                assert_eq!(device.pool_of(captured), Some(shared.id()), "what a capture uses is in the graph's pool");
            }
            self.use_and_free(first, user);
            self.free(first);
            if let Ok(mut buffer) = device.buffer(MIB, stream) {
                let _ = buffer.fill(1, stream);
            }
            let _ = device.allocator().empty_cache();
            if let Ok(event) = device.recorded(user) {
                let _ = event.wait(stream);
            }
            self.alloc(3 * MIB, stream);
        }
        if graph.capture_end().is_ok() {
            for _ in 0..2 {
                let _ = graph.upload(stream);
                // SAFETY: The graph fills a buffer in its own pool. All replays are on one stream.
                let _ = unsafe { graph.replay(stream) };
            }
        }
        let _ = stream.synchronize();
        if begun.is_ok() {
            device.check_consistency();
        }
        let _ = graph.reset();
        assert_eq!((shared.uses(), graph.pool()), (1, None), "the handle");
        Ok(())
    }

    /// Sets the pool back to an earlier state, with all of its allocations.
    fn checkpoint(&mut self, pool: &MemPool<Driver>) {
        let device = self.device;
        let allocator = device.accelerator().allocator();
        let Ok(checkpoint) = allocator.checkpoint_pool(pool.id()) else { return };
        let guard = pool.use_pool();
        self.alloc(4 * MIB, device.default_stream());
        drop(guard);
        let of_pool = allocator.pool_allocations(pool.id());
        let (handed_over, others) = self.live.drain(..).partition(|one: &Allocation<_>| of_pool.contains(&one.ptr()));
        self.live = others;
        match allocator.restore_pool(&checkpoint, handed_over) {
            Ok(restored) => self.live.extend(restored),
            Err(failed) => self.live.extend(failed.allocations),
        }
        device.check_consistency();
    }

    fn alloc(&mut self, bytes: u64, stream: Stream<Driver>) {
        self.live.extend(self.device.alloc_on(bytes, stream));
    }

    fn use_and_free(&mut self, place: usize, user: Stream<Driver>) {
        if let Some(allocation) = self.live.get(place) {
            let _ = self.device.allocator().record_use(allocation, user);
        }
        self.free(place);
    }

    fn free(&mut self, place: usize) {
        if place < self.live.len() {
            let freed = self.device.free(self.live.remove(place));
            assert!(freed.is_ok(), "a free must not fail: {freed:?}");
        }
    }
}
