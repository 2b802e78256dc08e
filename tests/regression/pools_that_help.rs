//! Memory of private pools that others get when the driver has none, and pools that are set back meanwhile.
#![allow(unsafe_code, reason = "keys are used by unsafe methods")]

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use accelerator_conformance::{Faulty, Sim};
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, Backend, CachingAllocator, CaptureMode, ContextsOf, Error, Graph,
    HistoryContext, MIB, MemPool, MemPoolOptions, PoolCheckpoint, Recording, Stream,
};
use accelerator_host::Host;

use crate::waiting::wait_until;

fn device<B: Backend>(backend: B, settings: &str) -> &'static Accelerator<B> {
    Accelerator::new(backend, 0, AllocatorConfig::default().updated(settings).unwrap()).unwrap()
}

fn pool_that_helps<B: Backend>(device: &'static Accelerator<B>) -> MemPool<B> {
    MemPool::new(device, MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() }).unwrap()
}

fn allocate_in<B: Backend>(
    device: &'static Accelerator<B>,
    pool: &MemPool<B>,
    stream: Stream<B>,
    bytes: u64,
) -> Allocation<B> {
    let _guard = pool.use_pool();
    device.allocator().allocate(NonZeroU64::new(bytes).unwrap(), stream).unwrap()
}

/// Where a pool that is set back and another request meet.
struct Meeting {
    /// How many frees have asked for a context since the pool is set back; 100 before.
    frees: AtomicU32,
    requests: AtomicU32,
}

impl Meeting {
    const fn new() -> Self {
        Self { frees: AtomicU32::new(100), requests: AtomicU32::new(0) }
    }

    /// Holds up the second free of a pool that is set back until another request is over.
    fn hold_up(&self) -> Option<HistoryContext> {
        if self.frees.fetch_add(1, Ordering::SeqCst) == 1 {
            wait_until(|| self.requests.load(Ordering::SeqCst) > 0);
        }
        None
    }
}

type Live = Vec<Allocation<Sim>>;

/// Another request needs the memory that is free in a pool while `set_back` sets it back. The latter returns how many
/// allocations it has then. `capture` leads to the meeting.
fn is_kept_from_others(
    meeting: &Meeting,
    capture: fn() -> Option<HistoryContext>,
    set_back: impl FnOnce(&CachingAllocator<Sim>, &PoolCheckpoint, Live) -> Result<usize, Error> + Send,
) {
    let device = device(Sim::new(100 * MIB), "");
    let (allocator, stream) = (device.allocator(), device.default_stream());
    allocator.record_history(Some(Recording { max_entries: 10, contexts: ContextsOf::All, capture: Some(capture) }));
    let pool = pool_that_helps(device);
    let live: Live = (0..2).map(|_| allocate_in(device, &pool, stream, 30 * MIB)).collect();
    let checkpoint = allocator.checkpoint_pool(pool.id()).unwrap();
    meeting.frees.store(0, Ordering::SeqCst);
    thread::scope(|scope| {
        let restoring = scope.spawn(|| set_back(allocator, &checkpoint, live));
        wait_until(|| meeting.frees.load(Ordering::SeqCst) == 2);
        let _rest = device.allocate(40 * MIB, stream).unwrap();
        let requested = device.allocate(30 * MIB, stream); // as much as is free in the pool just then
        meeting.requests.store(1, Ordering::SeqCst);
        assert_eq!(restoring.join().unwrap().unwrap(), 2);
        assert!(matches!(requested, Err(Error::OutOfMemory(_))), "{requested:?}");
    });
}

/// All allocations were gone, although nobody had made a request to the pool.
#[test]
fn a_pool_that_is_set_back_helps_nobody_out() {
    static MEETING: Meeting = Meeting::new();
    is_kept_from_others(
        &MEETING,
        || MEETING.hold_up(),
        |allocator, checkpoint, live| Ok(allocator.restore_pool(checkpoint, live)?.len()),
    );
}

/// The same, where the program knows its allocations by their keys.
#[test]
fn a_pool_that_is_set_back_by_key_helps_nobody_out() {
    static MEETING: Meeting = Meeting::new();
    is_kept_from_others(
        &MEETING,
        || MEETING.hold_up(),
        |allocator, checkpoint, live| {
            assert!(live.into_iter().all(|allocation| allocation.into_key().is_ok()));
            // SAFETY: No key is used any more.
            let restored = unsafe { allocator.restore_pool_by_key(checkpoint) }?;
            Ok(restored.allocated.len())
        },
    );
}

/// The use could not be awaited, and all allocations were gone.
#[test]
fn allocations_stay_if_a_stream_that_used_them_is_captured() {
    let device = device(Faulty::new(Host::new(0, 100 * MIB)), "");
    let (allocator, stream, user) = (device.allocator(), device.stream(0).unwrap(), device.stream(0).unwrap());
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let live = vec![allocate_in(device, &pool, stream, MIB), allocate_in(device, &pool, stream, MIB)];
    let checkpoint = allocator.checkpoint_pool(pool.id()).unwrap();
    allocator.record_use(&live[1], user).unwrap();
    let mut graph = Graph::new(device).unwrap();
    thread::scope(|scope| {
        // On another thread, so that the current stream of this one is not captured.
        scope.spawn(|| graph.capture_begin(user, None, CaptureMode::Relaxed).unwrap());
    });
    let refused = allocator.restore_pool(&checkpoint, live).unwrap_err();
    assert!(matches!(refused.error, Error::MemPool { .. }), "{refused}");
    assert_eq!(refused.allocations.len(), 2);
    graph.capture_end().unwrap();
    assert_eq!(allocator.restore_pool(&checkpoint, refused.allocations).unwrap().len(), 2);
}
