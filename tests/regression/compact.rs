//! Bugs that a review of the policy `compact` found.

use accelerator_conformance::{Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, GIB, MIB};

/// Chunks of several streams are merged before they are released. Free memory after them may still be in use.
#[test]
fn memory_in_use_is_not_released_with_merged_chunks() {
    let settings = AllocatorConfig::default().updated("policy:compact").unwrap();
    let device = Accelerator::new(Faulty::new(Sim::new(GIB)), 0, settings).unwrap();
    let [first, second] = [device.default_stream(), device.stream(0).unwrap()];
    let [one, two, three] = [(); 3].map(|()| device.allocate(20 * MIB, first).unwrap());
    let place = three.ptr();
    drop(two);
    drop(device.allocate(20 * MIB, second).unwrap()); // memory that the first stream freed
    drop(one);
    drop(device.allocate(512, second).unwrap()); // a miss, which notices that all of that work is over
    device.backend().set_capturing(first.native(), true);
    drop(three);
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 20 * MIB, "captured work may use it");
    let elsewhere = device.allocate(20 * MIB, second).unwrap();
    assert_ne!(elsewhere.ptr(), place);
    drop(elsewhere);
    device.backend().set_capturing(first.native(), false);
    device.allocator().empty_cache().unwrap();
    assert_eq!((device.backend().used(), device.backend().misuses()), (0, 0));
}
