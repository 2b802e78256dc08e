//! Memory of paused pools when driver calls fail.

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
