//! Copies of the contents of paused pools for which nobody could wait.

use accelerator_conformance::Call;
use accelerator_core::{Accelerator, Buffer, DriverErrorKind, Error, Keep, MIB, MemPool, MemPoolOptions};

use crate::paused_pools::{Failing, check, device, filled, pausable};

/// Returns a pool that a failed pause has left paused, with all of its memory, since the wait for the copy of its last
/// eight MiB failed twice.
fn with_unfinished_copy(device: &'static Accelerator<Failing>) -> (MemPool<Failing>, Buffer<Failing>) {
    let (pool, stream) = (pausable(device), device.stream(0).unwrap());
    let mut buffer = {
        let _guard = pool.use_pool();
        device.allocate(40 * MIB, stream).unwrap()
    };
    buffer.fill(7, stream).unwrap();
    let before = device.backend().used();
    let paused = pool.pause_with(Keep::Host, &mut |_| {
        device.backend().fail_next(Call::Synchronize, DriverErrorKind::Other);
        device.backend().fail_next(Call::Record, DriverErrorKind::Other);
    });
    assert!(matches!(paused, Err(Error::Driver { .. })));
    assert!(pool.is_paused());
    assert_eq!(device.backend().used(), before);
    (pool, buffer)
}

/// Makes all waits for copies fail meanwhile.
fn without_waits<T>(device: &'static Accelerator<Failing>, run: impl FnOnce() -> T) -> T {
    (0..9).for_each(|_| device.backend().fail_next(Call::Record, DriverErrorKind::Other));
    let returned = run();
    device.backend().clear_failures();
    returned
}

/// The pool was open again, and other streams got pages that the copy could still read.
#[test]
fn a_pool_is_resumed_only_when_the_copy_of_a_failed_pause_is_over() {
    let device = device();
    let (pool, buffer) = with_unfinished_copy(device);
    let refused = without_waits(device, || pool.resume());
    assert!(matches!(refused, Err(Error::Driver { .. })));
    // Another handle does not open it either, although it knows nothing of the pause.
    let pool = without_waits(device, || {
        let id = pool.id();
        drop(pool);
        let pool = MemPool::with_id(device, id, MemPoolOptions::default()).unwrap();
        assert!(matches!(pool.resume(), Err(Error::Driver { .. })));
        pool
    });
    assert!(pool.is_paused());
    let _ = pool.resume().unwrap();
    check(&buffer, 7);
    let _ = pool.pause(Keep::Host).unwrap();
    let _ = pool.resume().unwrap();
    check(&buffer, 7);
}

#[test]
fn contents_that_a_failed_pause_left_stay_when_others_cannot_be_resumed() {
    let device = device();
    let other = pausable(device);
    let kept = filled(device, &other, 1);
    let _ = other.pause(Keep::Host).unwrap();
    let (pool, buffer) = with_unfinished_copy(device);
    let rest = device.allocate(58 * MIB, device.default_stream()).unwrap();
    assert!(matches!(MemPool::resume_all(&[&pool, &other]), Err(Error::OutOfMemory(_))));
    drop(rest);
    let _ = MemPool::resume_all(&[&pool, &other]).unwrap();
    check(&buffer, 7);
    check(&kept, 1);
}

/// The copy runs on the default stream, and the pool's memory belongs to another.
#[test]
fn pages_that_a_copy_may_use_stay_until_it_is_over() {
    let device = device();
    let (pool, buffer) = with_unfinished_copy(device);
    let used = device.backend().used();
    device.backend().set_capturing(device.default_stream().native(), true); // so nobody can wait for it
    drop((buffer, pool));
    device.allocator().empty_cache().unwrap();
    assert!(used >= 40 * MIB && device.backend().used() == used);
    device.backend().set_capturing(device.default_stream().native(), false);
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

/// A mutant waited for a copy that a lost device does not run any more. No test saw it.
#[test]
fn a_copy_of_a_lost_device_is_over() {
    let device = device();
    let (pool, _buffer) = with_unfinished_copy(device);
    device.backend().set_lost(true);
    let _ = pool.resume().unwrap();
    assert!(!pool.is_paused());
}
