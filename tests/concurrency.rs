//! Threads on one allocator: each owns its blocks exclusively, and every reader sees consistent statistics.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers, too, which clippy does not treat as tests

#[path = "concurrency/moments.rs"]
mod moments;
#[path = "concurrency/peaks.rs"]
mod peaks;
#[path = "concurrency/pinned.rs"]
mod pinned;
#[path = "concurrency/pools.rs"]
mod pools;
#[path = "concurrency/reader.rs"]
mod reader;
mod readers;
#[path = "concurrency/recording.rs"]
mod recording;
#[path = "model/relations.rs"]
mod relations;
#[path = "concurrency/stress.rs"]
mod stress;
#[path = "concurrency/tally.rs"]
mod tally;
#[path = "concurrency/worker.rs"]
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;

use accelerator_conformance::{Call, Controls, Sim};
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, Backend, Buffer, DevicePtr, Error, MIB, MemoryInfo, Snapshot, Statistics,
    Stream,
};
use fastrand::Rng;

use reader::read;
use relations::check_relations;

const THREADS: u64 = 6;
const ROUNDS: u64 = 30_000;
const CAPACITY: u64 = 512 * MIB;

/// The live blocks of all threads, by their start.
#[derive(Default)]
struct Live(Mutex<BTreeMap<u64, u64>>);

impl Live {
    fn enter(&self, allocation: &Allocation<Sim>) {
        let start = allocation.ptr().trace_address();
        let end = start + allocation.size();
        let mut live = self.0.lock().unwrap();
        let below = live.range(..end).next_back();
        assert!(below.is_none_or(|(_, end)| *end <= start), "{allocation:?} overlaps {below:?}");
        live.insert(start, end);
    }

    /// Called before the free, because other threads may get the memory immediately afterwards.
    fn leave(&self, allocation: &Allocation<Sim>) {
        assert!(self.0.lock().unwrap().remove(&allocation.ptr().trace_address()).is_some());
    }
}

fn device() -> &'static Accelerator<Sim> {
    Accelerator::new(Sim::new(CAPACITY), 0, AllocatorConfig::default()).unwrap()
}

/// The body of a thread: allocates on its own stream and on the shared one, and frees and uses blocks on other streams.
fn work(accelerator: &'static Accelerator<Sim>, shared: Stream<Sim>, live: &Live, seed: u64) -> i64 {
    let allocator = accelerator.allocator();
    let own = accelerator.dedicated_stream(0).unwrap();
    let mut random = Rng::with_seed(seed);
    let mut held = VecDeque::new();
    let mut served = 0;
    for _ in 0..ROUNDS {
        match random.u64(..100) {
            0..48 => {
                let bytes = [4096, MIB, 12 * MIB][random.usize(..3)];
                let bytes = NonZeroU64::new(1 + random.u64(..bytes)).unwrap();
                let stream = if random.u64(..3) == 0 { shared } else { own };
                match allocator.allocate(bytes, stream) {
                    Ok(allocation) => {
                        live.enter(&allocation);
                        held.push_back(allocation);
                        served += 1;
                    }
                    Err(Error::OutOfMemory(_)) => held.drain(..).for_each(|allocation| {
                        live.leave(&allocation);
                        allocator.free(allocation).unwrap();
                    }),
                    Err(error) => panic!("{error}"),
                }
            }
            48..85 => {
                let chosen = random.usize(..held.len().max(1));
                if let Some(allocation) = held.swap_remove_back(chosen) {
                    live.leave(&allocation);
                    allocator.free(allocation).unwrap();
                }
            }
            85..95 => {
                let user = if random.bool() { shared } else { own };
                if let Some(allocation) = held.front() {
                    allocator.record_use(allocation, user).unwrap();
                }
            }
            95 => accelerator.backend().hold(own.native()),
            96 => accelerator.backend().release(own.native()),
            97 => allocator.empty_cache().unwrap(),
            98 => own.synchronize().unwrap(),
            _ => {
                let settings = ["", "max_split_size_mb:20", "roundup_power2_divisions:4", "device_side_reuse:True"];
                let settings = settings[random.usize(..4)];
                allocator.set_config(allocator.config().updated(settings).unwrap());
            }
        }
    }
    accelerator.backend().release(own.native());
    for allocation in held {
        live.leave(&allocation);
        allocator.free(allocation).unwrap();
    }
    served
}

/// Checks that everything is exact again once all blocks are freed and the cache is emptied.
fn check_empty<B: Backend>(accelerator: &'static Accelerator<B>, served: Option<i64>) {
    check_nothing_is_left(accelerator, served);
    let statistics = accelerator.allocator().statistics();
    assert_eq!(statistics.num_device_alloc, statistics.num_device_free);
}

/// Like [`check_empty`], without comparing the driver's calls.
fn check_nothing_is_left<B: Backend>(accelerator: &'static Accelerator<B>, served: Option<i64>) {
    let allocator = accelerator.allocator();
    allocator.empty_cache().unwrap();
    let statistics = allocator.statistics();
    check_relations(&statistics);
    let pools = [
        statistics.allocation,
        statistics.segment,
        statistics.active,
        statistics.inactive_split,
        statistics.allocated_bytes,
        statistics.reserved_bytes,
        statistics.active_bytes,
        statistics.inactive_split_bytes,
        statistics.requested_bytes,
    ];
    for pool in pools {
        for stat in [pool.all, pool.small_pool, pool.large_pool] {
            assert_eq!((stat.current, stat.allocated), (0, stat.freed), "{statistics:?}");
        }
    }
    assert!(served.is_none_or(|served| statistics.allocation.all.allocated == served));
    assert_eq!(allocator.snapshot(), Snapshot::default());
    let MemoryInfo { free, total, .. } = accelerator.memory_info().unwrap();
    assert_eq!(free, total, "the driver's own statistics");
}

#[test]
fn threads_share_an_allocator() {
    let accelerator = device();
    let shared = accelerator.stream(0).unwrap();
    let live = Live::default();
    let (stop, served) = (AtomicBool::new(false), AtomicI64::new(0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(accelerator.allocator(), &stop));
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| {
                let (live, served) = (&live, &served);
                scope.spawn(move || served.fetch_add(work(accelerator, shared, live, seed), Ordering::Relaxed))
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        let reads = reader.join().unwrap().reads;
        assert!(reads > 0);
        assert!(results.iter().all(Result::is_ok), "a thread failed");
    });
    assert!(live.0.lock().unwrap().is_empty());
    let statistics = accelerator.allocator().statistics();
    let Statistics { num_alloc_retries, num_ooms, num_device_free, .. } = statistics;
    assert!(num_alloc_retries > 0 && num_ooms > 0 && num_device_free > 0, "the workload was too light: {statistics:?}");
    check_empty(accelerator, Some(served.into_inner()));
}

/// Threads create, look up and use streams concurrently.
#[test]
fn threads_make_streams_at_once() {
    let accelerator = device();
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                for bytes in 1..40 {
                    let stream = accelerator.stream(0).unwrap();
                    assert_eq!(accelerator.stream_by_id(stream.id()), Some(stream));
                    drop(accelerator.allocate(bytes, stream).unwrap());
                }
            });
        }
    });
    check_empty(accelerator, Some(THREADS as i64 * 39));
}

/// Two threads take turns. An event that is complete is used again, whichever of them recorded it.
#[test]
fn threads_share_their_events() {
    let accelerator = device();
    let (stream, user) = (accelerator.stream(0).unwrap(), accelerator.stream(0).unwrap());
    let turn = Barrier::new(2);
    let work = |number| {
        for round in 0..400 {
            turn.wait();
            if round % 2 == number {
                accelerator.allocate(MIB, stream).unwrap().record_use(user).unwrap();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| work(0));
        scope.spawn(|| work(1));
    });
    let made = accelerator.backend().calls().of(Call::Event);
    assert!((1..10).contains(&made), "{made} events");
}

/// A buffer may be dropped on any thread. Its memory returns to its stream after uses by other streams.
#[test]
fn buffers_are_freed_on_another_thread() {
    let accelerator = device();
    let allocator = accelerator.allocator();
    let (stream, user) = (accelerator.stream(0).unwrap(), accelerator.stream(0).unwrap());
    let (send, receive) = mpsc::sync_channel::<Buffer<Sim>>(8);
    thread::scope(|scope| {
        scope.spawn(move || receive.into_iter().for_each(drop));
        for bytes in 1..2000 {
            let buffer = accelerator.allocate(bytes * 64, stream).unwrap();
            if bytes % 3 == 0 {
                buffer.record_use(user).unwrap();
            }
            send.send(buffer).unwrap();
        }
        drop(send);
    });
    assert_eq!(allocator.statistics().allocation.all.current, 0);

    // A buffer dropped on another thread still waits for a stream that uses it.
    accelerator.backend().hold(user.native());
    let buffer = accelerator.allocate(MIB, stream).unwrap();
    let first = buffer.ptr();
    buffer.record_use(user).unwrap();
    thread::spawn(move || drop(buffer)).join().unwrap();
    let second = accelerator.allocate(MIB, stream).unwrap();
    assert_ne!(second.ptr(), first);
    accelerator.backend().release(user.native());
    drop(accelerator.allocate(1, stream).unwrap());
    assert_eq!(allocator.statistics().active.all.current, 1, "released memory is free at the next allocation");
    drop(second);
    check_empty(accelerator, None);
}

/// A thread that runs out of memory waits for another thread's release, and gets that memory.
#[test]
fn two_threads_out_of_memory_at_once_both_get_what_fits() {
    let device = Accelerator::new(Sim::new(1024 * MIB), 0, AllocatorConfig::default()).unwrap();
    let streams = [device.default_stream(), device.stream(0).unwrap()];
    let wanted = NonZeroU64::new(400 * MIB).unwrap();
    for _ in 0..500 {
        let cached: Vec<_> = (0..12).map(|_| device.allocate(80 * MIB, streams[0]).unwrap()).collect();
        drop(cached);
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for stream in streams {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let allocation = device.allocator().allocate(wanted, stream).unwrap();
                    start.wait();
                    device.allocator().free(allocation).unwrap();
                });
            }
        });
        device.allocator().empty_cache().unwrap();
    }
    assert_eq!(device.allocator().statistics().num_ooms, 0);
}
