//! Who holds a private pool, and who may take its memory.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Faulty, Sim};
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, Backend, CaptureMode, ContextsOf, DriverErrorKind, Error, Graph,
    HistoryContext, MIB, MemPool, MemPoolId, MemPoolOptions, MemPoolRequests, Recording, Stream,
};

use crate::waiting::{soon, wait_until};

fn device<B: Backend>(backend: B, settings: &str) -> &'static Accelerator<B> {
    Accelerator::new(backend, 0, AllocatorConfig::default().updated(settings).unwrap()).unwrap()
}

fn allocate_in<B: Backend>(
    device: &'static Accelerator<B>,
    pool: MemPoolId,
    stream: Stream<B>,
    bytes: u64,
) -> Allocation<B> {
    let allocator = device.allocator();
    let route = allocator.begin_allocate_to_pool(pool, MemPoolRequests::ThisThread).unwrap();
    let block = allocator.allocate(NonZeroU64::new(bytes).unwrap(), stream).unwrap();
    allocator.end_allocate_to_pool(route);
    block
}

/// The memory went back to the driver under a copy of the contents, or under the replays of a graph.
#[test]
fn a_program_cannot_take_back_the_use_of_a_handle_or_of_a_graph() {
    let device = device(Sim::new(1 << 30), "");
    let (allocator, stream) = (device.allocator(), device.stream(0).unwrap());
    let refused = |pool| matches!(allocator.release_pool(pool), Err(Error::MemPool { .. }));
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    assert!(refused(pool.id()));
    let guard = pool.use_pool();
    assert!(refused(pool.id()));
    drop(guard);
    allocator.retain_pool(pool.id()).unwrap();
    allocator.release_pool(pool.id()).unwrap();
    assert!(refused(pool.id()));
    assert_eq!(pool.uses(), 1);
    let mut graph = Graph::new(device).unwrap();
    graph.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
    drop(device.allocate(MIB, stream).unwrap());
    graph.capture_end().unwrap();
    assert!(refused(graph.pool().unwrap()));
    let held = device.backend().used();
    allocator.empty_cache().unwrap();
    assert_eq!((device.backend().used(), held > 0), (held, true));
}

/// It ended the route, or the capture, with the same number.
#[test]
fn a_route_of_another_device_ends_nothing() {
    let [here, there] = [(); 2].map(|()| device(Sim::new(1 << 30), ""));
    let pool = MemPool::new(here, MemPoolOptions::default()).unwrap();
    let _guard = pool.use_pool();
    let other = there.allocator().begin_allocate_to_pool(MemPoolId::next_user(), MemPoolRequests::All).unwrap();
    here.allocator().end_allocate_to_pool(other);
    assert_eq!(pool.uses(), 2);
}

/// A thread that had asked ahead of the call whether a graph holds the pool gave memory back that a graph used.
#[test]
fn no_memory_of_a_pool_goes_back_once_it_is_kept_for_graphs() {
    let device = device(Faulty::new(Sim::new(1 << 30)), "");
    let allocator = device.allocator();
    let [first, second] = [(); 2].map(|()| device.stream(0).unwrap());
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    for stream in [first, second] {
        let block = allocate_in(device, pool.id(), stream, 20 * MIB);
        allocator.free(block).unwrap();
    }
    let (gate, id) = (device.backend().gate(Call::Dealloc), pool.id());
    let used = thread::scope(|scope| {
        scope.spawn(|| pool.trim().unwrap());
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let (kept, is_kept) = channel();
        scope.spawn(move || {
            allocator.keep_pool_for_graphs(id).unwrap();
            kept.send(device.backend().used()).unwrap();
        });
        let too_early = is_kept.recv_timeout(Duration::from_millis(100));
        gate.open();
        too_early.unwrap_or_else(|_| is_kept.recv().unwrap())
    });
    assert_eq!(device.backend().used(), used, "memory went back after the call");
}

/// How many frees have asked for a context, from the time that the pool is set back.
static FREES: AtomicU32 = AtomicU32::new(0);
static IS_SET_BACK: AtomicBool = AtomicBool::new(false);
static HAS_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Holds up the second free of a pool that is set back.
fn hold_up() -> Option<HistoryContext> {
    if IS_SET_BACK.load(Ordering::SeqCst) && FREES.fetch_add(1, Ordering::SeqCst) == 1 {
        wait_until(|| HAS_REQUESTED.load(Ordering::SeqCst));
    }
    None
}

/// The pool had lost its free memory to another request, and with it all allocations.
#[test]
fn a_pool_that_is_set_back_keeps_its_memory_although_another_request_needs_it() {
    let device = device(Sim::new(100 * MIB), "reclaim_live_pools:True");
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let recording = Recording { max_entries: 10, contexts: ContextsOf::All, capture: Some(hold_up) };
    allocator.record_history(Some(recording));
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let live = vec![(); 2].into_iter().map(|()| allocate_in(device, pool.id(), stream, 30 * MIB)).collect();
    let checkpoint = allocator.checkpoint_pool(pool.id()).unwrap();
    IS_SET_BACK.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let restoring = scope.spawn(|| allocator.restore_pool(&checkpoint, live).map_err(Error::from));
        while FREES.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        let requested = allocator.allocate(NonZeroU64::new(50 * MIB).unwrap(), device.stream(0).unwrap());
        HAS_REQUESTED.store(true, Ordering::SeqCst);
        assert_eq!(restoring.join().unwrap().unwrap().len(), 2);
        assert!(matches!(requested, Err(Error::OutOfMemory(_))));
    });
}

static RECORDED: OnceLock<(&'static Accelerator<Sim>, <Sim as Backend>::Ptr)> = OnceLock::new();

/// Asks about raw memory when it is dropped.
struct Asks;

impl Drop for Asks {
    fn drop(&mut self) {
        if let Some((device, ptr)) = RECORDED.get() {
            let _ = device.allocator().raw_size(*ptr);
        }
    }
}

/// The table of raw pointers was locked meanwhile.
#[test]
fn a_pool_of_raw_memory_is_set_back_under_no_lock() {
    let freed = soon(|| {
        let device = device(Sim::new(1 << 30), "");
        let allocator = device.allocator();
        let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
        let empty = {
            let block = allocate_in(device, pool.id(), device.default_stream(), MIB);
            allocator.free(block).unwrap();
            allocator.checkpoint_pool(pool.id()).unwrap()
        };
        let capture = Some((|| Some(Arc::new(Asks) as HistoryContext)) as fn() -> Option<HistoryContext>);
        allocator.record_history(Some(Recording { max_entries: 1, contexts: ContextsOf::All, capture }));
        let guard = pool.use_pool();
        let ptr = allocator.raw_alloc(MIB, device.default_stream()).unwrap().unwrap();
        drop(guard);
        RECORDED.get_or_init(|| (device, ptr));
        allocator.raw_restore_pool(&empty).unwrap().freed.len()
    });
    assert_eq!(freed, 1);
}

/// Another thread held the queues, so the use that was over was not noticed.
#[test]
fn a_pool_has_a_checkpoint_although_another_thread_waits_for_streams() {
    let device = device(Faulty::new(Sim::new(1 << 30)), "");
    let allocator = device.allocator();
    let [stream, user] = [(); 2].map(|()| device.stream(0).unwrap());
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let [used, other] = [pool.id(), MemPoolId::next_user()].map(|pool| {
        let block = allocate_in(device, pool, stream, MIB);
        allocator.record_use(&block, user).unwrap();
        block
    });
    allocator.free(other).unwrap();
    let gate = device.backend().gate(Call::WaitHost);
    thread::scope(|scope| {
        scope.spawn(|| allocator.empty_cache().unwrap());
        assert!(gate.wait_reached(Duration::from_secs(10)));
        allocator.free(used).unwrap();
        let checkpoint = scope.spawn(|| allocator.checkpoint_pool(pool.id()).map(|_| ()));
        thread::sleep(Duration::from_millis(50));
        gate.open();
        checkpoint.join().unwrap().unwrap();
    });
}

/// The request failed with less memory in use than it is allowed to have.
#[test]
fn no_request_is_rejected_for_memory_that_another_does_not_get() {
    let device = device(Faulty::new(Sim::new(100 * MIB)), "throw_on_cudamalloc_oom:True");
    let (allocator, gate) = (device.allocator(), device.backend().gate(Call::Alloc));
    let [one, other] = [(); 2].map(|()| device.stream(0).unwrap());
    let allocate = move |stream| allocator.allocate(NonZeroU64::new(60 * MIB).unwrap(), stream);
    thread::scope(|scope| {
        let fails = scope.spawn(move || allocate(one));
        assert!(gate.wait_reached(Duration::from_secs(10)));
        device.backend().fail_next(Call::Alloc, DriverErrorKind::Other);
        let succeeds = scope.spawn(move || allocate(other));
        thread::sleep(Duration::from_millis(50));
        gate.open();
        assert!(matches!(fails.join().unwrap(), Err(Error::Driver { .. })));
        allocator.free(succeeds.join().unwrap().unwrap()).unwrap();
    });
}
