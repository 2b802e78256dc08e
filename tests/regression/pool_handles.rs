//! Handles and guards of pools when something is refused.

use accelerator_conformance::{Call, Faulty, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, CaptureMode, DriverErrorKind, Error, Graph, MIB, MemPool, MemPoolId, MemPoolOptions,
};
use accelerator_host::Host;

/// Whatever was refused, options that came before it applied, and `use_on_oom` ended with the refused handle.
#[test]
fn a_handle_that_is_refused_leaves_its_pool_as_it_was() {
    let device = Accelerator::new(Sim::new(32 * MIB), 0, AllocatorConfig::default()).unwrap();
    let (stream, id) = (device.default_stream(), MemPoolId::next_user());
    let named = |name: &str| MemPoolOptions { name: Some(name.into()), use_on_oom: true, ..MemPoolOptions::default() };
    let pool = MemPool::with_id(device, id, named("weights")).unwrap();
    let allocate = |bytes| {
        let _guard = pool.use_pool();
        device.allocate(bytes, stream).unwrap()
    };
    drop(allocate(20 * MIB));
    for refused in [
        named(" not a name"),
        MemPoolOptions { pausable: true, ..named("has memory already") },
        MemPoolOptions { pausable: true, no_split: true, ..MemPoolOptions::default() },
        MemPoolOptions { no_split: true, ..named("two\nlines") },
    ] {
        let refusal = MemPool::with_id(device, id, refused.clone());
        assert!(matches!(refusal, Err(Error::MemPool { .. })), "{refusal:?}");
        assert_eq!((pool.name().as_deref(), pool.uses()), (Some("weights"), 1), "{refused:?}");
        assert_eq!(allocate(5 * MIB).block_size(), 5 * MIB, "blocks are split, after {refused:?}");
        let helped = device.allocate(20 * MIB, stream);
        assert!(helped.is_ok(), "the pool helps out, after {refused:?}: {helped:?}");
    }
}

/// It panicked as soon as the driver could not say which capture the current stream takes part in.
#[test]
fn a_guard_of_a_pool_begins_although_the_driver_does_not_say_what_is_captured() {
    let device = Accelerator::new(Faulty::new(Host::new(0, 100 * MIB)), 0, AllocatorConfig::default()).unwrap();
    let stream = device.stream(0).unwrap();
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let mut graph = Graph::new(device).unwrap();
    graph.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
    device.backend().fail_next(Call::CaptureOf, DriverErrorKind::Other);
    let guard = pool.use_pool();
    assert_eq!((device.backend().injected(), pool.uses()), (1, 2));
    drop(device.allocate(MIB, stream).unwrap());
    assert_eq!(pool.snapshot().segments.len(), 1, "requests go to the pool");
    drop(guard);
    graph.capture_end().unwrap();
    assert_eq!(pool.uses(), 2, "the graph holds the pool");
}
