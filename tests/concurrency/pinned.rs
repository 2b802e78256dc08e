//! Threads on pinned host memory. Bytes travel through the device and other threads, and none get lost.

use std::sync::{Barrier, mpsc};
use std::thread;

use accelerator_conformance::{Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, Error, MIB, PinnedBuffer};
use accelerator_host::Host;
use fastrand::Rng;

const ROUNDS: u64 = 1_500;

/// Creates a buffer whose bytes encode its length and a number.
fn filled(device: &Accelerator<Host>, len: u64, number: u64) -> PinnedBuffer<Host> {
    let mut pinned = device.allocate_host(len).unwrap();
    pinned.bytes_mut().unwrap().fill((len ^ number) as u8);
    pinned
}

fn check(pinned: &PinnedBuffer<Host>, number: u64) {
    let expected = (pinned.len() ^ number) as u8;
    assert!(pinned.bytes().unwrap().iter().all(|byte| *byte == expected), "another buffer's bytes");
}

/// Copies to the device and back, drops some copies in flight, and passes the rest to the next thread, which checks
/// them.
fn work(
    device: &'static Accelerator<Host>,
    seed: u64,
    next: &mpsc::SyncSender<(PinnedBuffer<Host>, u64)>,
    own: &mpsc::Receiver<(PinnedBuffer<Host>, u64)>,
) {
    let (mut random, stream) = (Rng::with_seed(seed), device.dedicated_stream(0).unwrap());
    for _ in 0..ROUNDS {
        let (len, number) = (1 + random.u64(..20_000), random.u64(..256));
        let source = filled(device, len, number);
        let mut buffer = device.allocate(len, stream).unwrap();
        buffer.copy_from_pinned(0, &source, 0..len, stream).unwrap();
        let mut copy = device.allocate_host(len).unwrap();
        buffer.copy_to_pinned(0..len, &mut copy, 0, stream).unwrap();
        drop((source, buffer)); // the copies may not have begun
        match random.u64(..4) {
            0 => drop(copy),
            1 => check(&copy, number),
            _ => drop(next.try_send((copy, number))), // the receiving thread may be full or gone
        }
        if let Ok((pinned, number)) = own.try_recv() {
            check(&pinned, number);
        }
        if random.u64(..100) == 0 {
            device.host_allocator().empty_cache().unwrap();
        }
    }
}

fn threads_hand_pinned_memory_around(settings: &str) {
    const THREADS: u64 = 4;
    let config = AllocatorConfig::default().updated(settings).unwrap();
    let device = Accelerator::new(Host::new(0, 256 * MIB), 0, config).unwrap();
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::sync_channel(8)).unzip();
    thread::scope(|scope| {
        for (seed, own) in receivers.drain(..).enumerate() {
            let next = senders[(seed + 1) % senders.len()].clone();
            scope.spawn(move || work(device, seed as u64, &next, &own));
        }
    });
    drop(senders);
    device.allocator().set_config(config.updated("pinned_use_background_threads:False").unwrap());
    device.synchronize().unwrap();
    device.host_allocator().empty_cache().unwrap();
    let statistics = device.host_allocator().statistics();
    for stat in [statistics.active_requests, statistics.allocations, statistics.allocated_bytes] {
        assert_eq!((stat.current, stat.allocated), (0, stat.freed), "{statistics:?}");
    }
    // A buffer of 0 bytes does not count. Every other round creates two.
    assert_eq!(statistics.active_requests.allocated as u64, 2 * ROUNDS * THREADS);
}

#[test]
fn threads_hand_pinned_memory_around_by_themselves() {
    threads_hand_pinned_memory_around("");
}

#[test]
fn threads_hand_pinned_memory_around_with_a_background_thread() {
    threads_hand_pinned_memory_around("pinned_use_background_threads:True");
}

#[test]
fn threads_hand_pinned_memory_around_without_a_cache() {
    threads_hand_pinned_memory_around("pinned_max_cached_size_mb:0");
}

/// A thread that runs out of host memory waits for another thread's release, and gets that memory.
#[test]
fn two_threads_out_of_host_memory_at_once_both_get_what_fits() {
    let device = Accelerator::new(Faulty::new(Sim::default()), 0, AllocatorConfig::default()).unwrap();
    device.backend().set_host_capacity(64 << 10);
    for _ in 0..500 {
        let cached: Vec<_> = (0..15).map(|_| device.allocate_host(4 << 10).unwrap()).collect();
        drop(cached);
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let pinned = device.allocate_host(32 << 10).unwrap();
                    start.wait();
                    drop(pinned);
                });
            }
        });
        device.host_allocator().empty_cache().unwrap();
    }
    assert!(matches!(device.allocate_host(65 << 10), Err(Error::HostOutOfMemory(_))));
    assert_eq!(device.backend().live_host_allocations(), 0);
}
