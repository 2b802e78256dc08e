//! A free blocked inside the driver kept other threads from finding memory that had become free.

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, MIB};

#[test]
fn memory_is_found_while_another_thread_records_for_its_free() {
    let device = Accelerator::new(Faulty::new(Sim::new(1 << 30)), 0, AllocatorConfig::default()).unwrap();
    let allocator = device.allocator();
    let [own, others, user] = [(); 3].map(|()| device.stream(0).unwrap());
    let [used, slow] = [own, others].map(|stream| {
        let block = allocator.allocate(NonZeroU64::new(20 * MIB).unwrap(), stream).unwrap();
        allocator.record_use(&block, user).unwrap();
        block
    });
    allocator.free(used).unwrap(); // its use is over at once, but has not been noticed
    let reserved = device.backend().used();
    let gate = device.backend().gate(Call::Record);
    thread::scope(|scope| {
        let freeing = scope.spawn(move || allocator.free(slow).unwrap());
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let again = allocator.allocate(NonZeroU64::new(20 * MIB).unwrap(), own).unwrap();
        gate.open();
        freeing.join().unwrap();
        allocator.free(again).unwrap();
    });
    assert_eq!(device.backend().used(), reserved, "the driver was called although memory was free");
}
