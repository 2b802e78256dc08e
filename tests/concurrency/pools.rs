//! Private pools on several threads: guards, routes that end elsewhere, and checkpoints.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{
    Accelerator, Allocation, CaptureMode, DevicePtr, Error, Graph, Keep, MIB, MemPool, MemPoolId, MemPoolOptions,
    MemPoolRequests, Stream,
};
use fastrand::Rng;

use super::readers::read_while;
use super::{Live, THREADS, check_empty, device};

const ROUNDS: u64 = 30_000;

/// Blocks that any thread may free.
type Passed = Mutex<Vec<Allocation<Sim>>>;

fn allocate(
    accelerator: &'static Accelerator<Sim>,
    bytes: u64,
    stream: Stream<Sim>,
    live: &Live,
) -> Option<Allocation<Sim>> {
    match accelerator.allocator().allocate(NonZeroU64::new(bytes).unwrap(), stream) {
        Ok(allocation) => {
            live.enter(&allocation);
            Some(allocation)
        }
        Err(Error::OutOfMemory(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

fn free(accelerator: &'static Accelerator<Sim>, allocation: Allocation<Sim>, live: &Live) {
    live.leave(&allocation);
    accelerator.allocator().free(allocation).unwrap();
}

/// The body of a thread: makes and drops pools, and allocates in them.
fn work(accelerator: &'static Accelerator<Sim>, shared: Stream<Sim>, live: &Live, passed: &Passed, seed: u64) {
    let allocator = accelerator.allocator();
    let own = accelerator.dedicated_stream(0).unwrap();
    let mut random = Rng::with_seed(seed);
    for _ in 0..ROUNDS / 60 {
        let options = MemPoolOptions { use_on_oom: random.bool(), no_split: random.bool(), ..Default::default() };
        let pool = MemPool::new(accelerator, options.clone()).unwrap();
        let guard = (random.u64(..4) > 0).then(|| pool.use_pool());
        let mut held: Vec<Allocation<Sim>> = Vec::new();
        for _ in 0..60 {
            match random.u64(..100) {
                0..45 => {
                    let most = [4096, MIB, 6 * MIB][random.usize(..3)];
                    let bytes = 1 + random.u64(..most);
                    let stream = if random.bool() { shared } else { own };
                    held.extend(allocate(accelerator, bytes, stream, live));
                }
                45..70 if !held.is_empty() => {
                    free(accelerator, held.swap_remove(random.usize(..held.len())), live);
                }
                70..80 => held.iter().for_each(|one| allocator.record_use(one, shared).unwrap()),
                80..84 => {
                    let all: BTreeSet<u64> =
                        allocator.pool_allocations(pool.id()).iter().map(|ptr| ptr.trace_address()).collect();
                    let is_in = |one: &Allocation<Sim>| all.contains(&one.ptr().trace_address());
                    assert!(guard.is_none() || held.iter().all(is_in), "a block of another pool");
                    let expected = if guard.is_some() { held.len() } else { 0 };
                    assert!(options.use_on_oom || all.len() == expected, "a block of another thread");
                }
                84..90 if options.use_on_oom => passed.lock().unwrap().extend(held.pop()),
                90..92 => allocator.empty_cache().unwrap(),
                92 => pool.trim().unwrap(),
                93 => accelerator.backend().hold(own.native()),
                94 => accelerator.backend().release(own.native()),
                95 => own.synchronize().unwrap(),
                _ => {
                    let other = passed.lock().unwrap().pop();
                    other.into_iter().for_each(|one| free(accelerator, one, live));
                }
            }
        }
        drop(guard);
        if random.bool() {
            drop(pool); // before its blocks
        }
        held.into_iter().for_each(|one| free(accelerator, one, live));
    }
    accelerator.backend().release(own.native());
}

#[test]
fn threads_have_pools_of_their_own() {
    let accelerator = device();
    let shared = accelerator.stream(0).unwrap();
    let (live, passed) = (Live::default(), Passed::default());
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (live, passed) = (&live, &passed);
            scope.spawn(move || work(accelerator, shared, live, passed, seed));
        }
    });
    passed.into_inner().unwrap().into_iter().for_each(|one| free(accelerator, one, &live));
    assert!(live.0.lock().unwrap().is_empty());
    let statistics = accelerator.allocator().statistics();
    assert!(statistics.num_ooms > 0 && statistics.num_device_free > 0, "the workload was too light: {statistics:?}");
    check_empty(accelerator, None);
    let reserved = accelerator.allocator().reserved_by_private_pools();
    assert_eq!(reserved.values().filter(|stat| stat.all.current != 0).count(), 0);
    let sum: i64 = reserved.values().map(|stat| stat.all.allocated).sum();
    assert!(sum > 0 && sum <= accelerator.allocator().statistics().reserved_bytes.all.allocated);
    assert_eq!(accelerator.backend().used(), 0);
}

/// Routes of all requests begin and end on one thread, and their pools with them, while others allocate.
#[test]
fn routes_end_while_others_allocate() {
    let accelerator = device();
    let (allocator, live) = (accelerator.allocator(), &Live::default());
    let work = [1, 2, 3].map(|seed| {
        move || {
            let own = accelerator.dedicated_stream(0).unwrap();
            let mut random = Rng::with_seed(seed);
            for _ in 0..ROUNDS {
                let allocation = allocate(accelerator, 1 + random.u64(..3 * MIB), own, live);
                allocation.into_iter().for_each(|one| free(accelerator, one, live));
            }
        }
    });
    read_while(work, 1, |over| {
        let mut nth = 0_u64;
        while !over.load(Ordering::Relaxed) {
            let requests = match nth % 2 {
                0 => MemPoolRequests::All,
                _ => MemPoolRequests::Where(Box::new(|stream| stream.get() % 2 == 0)),
            };
            let id = MemPoolId::next_user();
            let route = allocator.begin_allocate_to_pool(id, requests).unwrap();
            thread::yield_now();
            allocator.end_allocate_to_pool(route);
            allocator.empty_pool_cache(id).unwrap();
            nth += 1;
        }
    });
    assert!(!allocator.reserved_by_private_pools().is_empty(), "no request took a route");
    check_empty(accelerator, None);
    assert_eq!(accelerator.backend().used(), 0);
}

/// Threads capture graphs, whose pools go and leave their arenas to new ones, while others empty the cache. The memory
/// of a graph went back then.
#[test]
fn graphs_keep_their_memory_while_pools_come_and_go() {
    let accelerator = device();
    let allocator = accelerator.allocator();
    let round = |stream| {
        let mut graph = Graph::new(accelerator).unwrap();
        graph.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
        drop([512, MIB, 12 * MIB].map(|bytes| accelerator.allocate(bytes, stream).unwrap()));
        graph.capture_end().unwrap();
        allocator.empty_cache().unwrap();
        let held = allocator.reserved_by_private_pools()[&graph.pool().unwrap()].all;
        assert_eq!((held.current, held.freed), (held.peak, 0), "memory of a graph went back");
        graph.reset().unwrap();
        allocator.empty_cache().unwrap();
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            let stream = accelerator.dedicated_stream(0).unwrap();
            scope.spawn(move || (0..ROUNDS / 30).for_each(|_| round(stream)));
        }
    });
    check_empty(accelerator, None);
    assert_eq!(accelerator.backend().used(), 0);
}

/// In a pool that one arena serves under `compact`, streams are numbered as they come. A stream came without a number
/// when the policy changed just then.
#[test]
fn streams_come_to_pools_while_another_thread_changes_the_policy() {
    let accelerator = device();
    let (allocator, live) = (accelerator.allocator(), Live::default());
    let work = || {
        for _ in 0..ROUNDS {
            let id = MemPoolId::next_user();
            let route = allocator.begin_allocate_to_pool(id, MemPoolRequests::ThisThread).unwrap();
            let blocks = [0, 1].map(|priority| {
                let stream = accelerator.stream(priority).unwrap();
                allocate(accelerator, 2 * MIB, stream, &live)
            });
            blocks.into_iter().flatten().for_each(|one| free(accelerator, one, &live));
            allocator.end_allocate_to_pool(route);
            allocator.empty_pool_cache(id).unwrap();
        }
    };
    read_while([work], 1, |over| {
        let policies = ["policy:compact", "policy:pytorch"].map(|text| allocator.config().updated(text).unwrap());
        for config in policies.into_iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
            allocator.set_config(config);
        }
    });
    check_empty(accelerator, None);
    allocator.empty_cache().unwrap();
    assert_eq!(accelerator.backend().used(), 0);
}

/// One thread sets a pool back to a checkpoint, while another allocates in it. Either of them may be refused, but no
/// block has two owners.
#[test]
fn a_pool_is_set_back_while_another_thread_allocates_in_it() {
    let accelerator = device();
    let (allocator, stream) = (accelerator.allocator(), accelerator.default_stream());
    let live = Live::default();
    let pool = MemPool::new(accelerator, MemPoolOptions::default()).unwrap();
    let everywhere = pool.use_pool_for(MemPoolRequests::All).unwrap();
    let mut held: Vec<_> =
        [MIB; 4].into_iter().filter_map(|bytes| allocate(accelerator, bytes, stream, &live)).collect();
    let checkpoint = allocator.checkpoint_pool(pool.id()).unwrap();
    let stop = AtomicBool::new(false);
    let restored = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let allocation = allocate(accelerator, MIB, stream, &live);
                thread::yield_now();
                allocation.into_iter().for_each(|one| free(accelerator, one, &live));
                thread::yield_now();
            }
        });
        let mut restored = 0;
        for _ in 0..ROUNDS {
            held.iter().for_each(|one| live.leave(one));
            match allocator.restore_pool(&checkpoint, std::mem::take(&mut held)) {
                Ok(allocations) => {
                    restored += 1;
                    held = allocations;
                }
                Err(failed) => {
                    assert!(matches!(failed.error, Error::MemPool { .. }), "{failed:?}");
                    held = failed.allocations;
                }
            }
            held.iter().for_each(|one| live.enter(one));
        }
        stop.store(true, Ordering::Relaxed);
        restored
    });
    assert!(restored > 0, "never set back");
    held.into_iter().for_each(|one| free(accelerator, one, &live));
    drop(everywhere);
    drop(pool);
    check_empty(accelerator, None);
    assert_eq!(accelerator.backend().used(), 0);
}

/// Each thread resumes both pools, in an order of its own.
#[test]
fn pools_are_resumed_in_any_order() {
    let accelerator = device();
    let options = MemPoolOptions { pausable: true, ..MemPoolOptions::default() };
    let pools = [(); 2].map(|()| MemPool::new(accelerator, options.clone()).unwrap());
    let (done, is_done) = channel();
    let [first, second] = &pools;
    thread::scope(|scope| {
        for order in [[first, second], [second, first]] {
            let done = done.clone();
            scope.spawn(move || {
                for _ in 0..ROUNDS / 10 {
                    // The other thread may have paused or resumed one of them.
                    let _ = MemPool::pause_all(order.map(|pool| (pool, Keep::Nothing)));
                    let _ = MemPool::resume_all(&order);
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..2 {
            if is_done.recv_timeout(Duration::from_secs(60)).is_err() {
                std::process::abort(); // since threads that wait for each other cannot be joined
            }
        }
    });
}
