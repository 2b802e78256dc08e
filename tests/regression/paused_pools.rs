//! Memory of paused pools when driver calls fail, and when others give it back or need it.

use std::num::NonZeroU64;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Faulty};
use accelerator_core::{Accelerator, AllocatorConfig, DriverErrorKind, Keep, MIB, MemPool, MemPoolOptions};
use accelerator_host::Host;

#[test]
fn paused_memory_that_could_not_leave_is_given_up_once() {
    let device = Accelerator::new(Faulty::new(Host::new(0, 100 * MIB)), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap();
    let mut buffer = {
        let _guard = pool.use_pool();
        device.allocate(30 * MIB, stream).unwrap()
    };
    buffer.fill(1, stream).unwrap();
    let bytes = pool.pause(Keep::Nothing).unwrap().bytes;
    drop((pool, buffer)); // in this order, as a pool gives back what is free
    let paused = || device.allocator().statistics().paused_bytes.unsigned_abs();
    for call in [Call::IsCapturing, Call::Record] {
        device.backend().fail_next(call, DriverErrorKind::Other);
        assert!(device.allocator().empty_cache().is_err(), "without `{}`", call.name());
        assert_eq!(paused(), bytes);
    }
    device.allocator().empty_cache().unwrap();
    assert_eq!((paused(), device.allocator().statistics().reserved_bytes.all.current), (0, 0));
    // The limit has counted it once, too.
    drop(device.allocate(100 * MIB, stream).unwrap());
}

/// While contents were copied, memory that had become free could be trimmed, which the copy then used.
#[test]
fn nothing_is_trimmed_while_contents_are_copied() {
    let device = Accelerator::new(Host::new(0, 400 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap();
    let guard = pool.use_pool();
    let mut buffers: Vec<_> = (1..=4).map(|_| device.allocate(30 * MIB, stream).unwrap()).collect();
    drop(guard);
    for (value, buffer) in (1..).zip(&mut buffers) {
        buffer.fill(value, stream).unwrap();
    }
    let last = buffers.pop().unwrap();
    let mut drop_one = |_| {
        drop(buffers.pop());
        pool.trim().unwrap();
    };
    let _ = pool.pause_with(Keep::Host, &mut drop_one).unwrap();
    let _ = pool.resume_with(&mut drop_one).unwrap();
    let mut bytes = vec![0; 30 << 20];
    last.read(0, &mut bytes, stream).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 4));
    drop((last, buffers));
    pool.trim().unwrap();
    assert_eq!(device.allocator().statistics().reserved_bytes.all.current, 0);
}

/// A pool that was resumed without enough memory kept the pages that it had got until it gave up.
#[test]
fn a_request_gets_memory_that_is_too_little_for_a_resumed_pool() {
    let device = Accelerator::new(Faulty::new(Host::new(0, 100 * MIB)), 0, AllocatorConfig::default()).unwrap();
    let (allocator, [stream, user]) = (device.allocator(), [(); 2].map(|()| device.stream(0).unwrap()));
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap();
    let buffer = {
        let _guard = pool.use_pool();
        device.allocate(60 * MIB, stream).unwrap()
    };
    let _ = pool.pause(Keep::Nothing).unwrap();
    let taken = device.allocate(50 * MIB, stream).unwrap();
    let awaited = allocator.allocate(NonZeroU64::new(512).unwrap(), stream).unwrap();
    allocator.record_use(&awaited, user).unwrap();
    allocator.free(awaited).unwrap();
    let gate = device.backend().gate(Call::WaitHost);
    thread::scope(|scope| {
        let resuming = scope.spawn(|| pool.resume().map(drop));
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let (done, is_done) = channel();
        scope.spawn(move || done.send(device.allocate(30 * MIB, user).map(drop)));
        let requested = is_done.recv_timeout(Duration::from_secs(10));
        gate.open();
        assert!(resuming.join().unwrap().is_err());
        requested.unwrap().unwrap();
    });
    drop(taken);
    let _ = pool.resume().unwrap();
    drop(buffer);
}
