//! Where the name of a pool shows up, and what is said about paused memory.

use std::sync::Arc;

use accelerator_core::{
    Accelerator, AllocatorConfig, Error, Keep, MIB, MemPool, MemPoolId, MemPoolInfo, MemPoolOptions, OutOfMemory,
};
use accelerator_host::Host;

fn host() -> &'static Accelerator<Host> {
    Accelerator::new(Host::new(0, 64 * MIB), 0, AllocatorConfig::default()).unwrap()
}

fn named(host: &'static Accelerator<Host>, name: &str) -> MemPool<Host> {
    let options = MemPoolOptions { name: Some(name.into()), pausable: true, ..MemPoolOptions::default() };
    MemPool::new(host, options).unwrap()
}

fn out_of_memory(host: &'static Accelerator<Host>, bytes: u64) -> OutOfMemory {
    let error = host.allocate(bytes, host.default_stream()).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    let Error::OutOfMemory(report) = error else { unreachable!("it was checked") };
    *report
}

#[test]
fn errors_snapshots_and_lists_call_a_pool_by_its_name() {
    let host = host();
    let (weights, other) = (named(host, "weights"), named(host, "weights"));
    let id = weights.id();
    assert_ne!(id, other.id(), "names need not be different");
    assert_eq!(weights.name().as_deref(), Some("weights"));
    assert_eq!(format!("{weights:?}"), format!("MemPool {{ host:0, weights ({id}), uses: 1 }}"));
    let held = {
        let _guard = weights.use_pool();
        host.allocate(2 * MIB, host.default_stream()).unwrap()
    };
    let of_weights = [(id, Arc::from("weights"))];
    assert_eq!(weights.snapshot().pool_names, of_weights.clone().into());
    assert_eq!(host.allocator().snapshot().pool_names.len(), 2);
    assert_eq!(host.allocator().history().snapshot.pool_names[&id], of_weights[0].1);

    let paused_bytes = weights.pause(Keep::Host).unwrap().bytes;
    assert_eq!(format!("{weights:?}"), format!("MemPool {{ host:0, weights ({id}), uses: 1, paused }}"));
    let reserved_bytes: u64 = weights.snapshot().segments.iter().map(|segment| segment.total_size).sum();
    assert_eq!(paused_bytes, reserved_bytes);
    let info = MemPoolInfo { name: weights.name(), reserved_bytes, paused_bytes };
    assert_eq!(host.allocator().pools()[&id], info);
    let paused = format!("host:0: memory pool weights ({id}) is paused: resume it first");
    let _guard = weights.use_pool();
    for error in [
        host.allocate(1, host.default_stream()).unwrap_err(),
        held.read(0, &mut [0], host.default_stream()).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), paused);
    }
    let again = weights.pause(Keep::Nothing).unwrap_err().to_string();
    assert_eq!(again, format!("host:0: memory pool weights ({id}) is paused already"));
    let awake = other.resume().unwrap_err().to_string();
    assert_eq!(awake, format!("host:0: memory pool weights ({}) is not paused", other.id()));
    let folder = other.pause(Keep::File("/no/such/folder".into())).unwrap_err().to_string();
    assert!(
        folder.starts_with(&format!("host:0: memory pool weights ({}): /no/such/folder: ", other.id())),
        "{folder}"
    );
}

#[test]
fn a_pool_gets_a_name_later_and_a_bad_name_is_refused() {
    let host = host();
    let graphs = MemPoolId::next_graph();
    let allocator = host.allocator();
    assert!(allocator.set_pool_name(graphs, "graphs").unwrap_err().to_string().contains("does not exist"));
    allocator.retain_pool(graphs).unwrap();
    assert_eq!(allocator.pool_name(graphs), None);
    for name in ["first", "graphs"] {
        allocator.set_pool_name(graphs, name).unwrap();
    }
    for bad in ["", "two\nlines", "\u{1b}[2J", " weights", &"long".repeat(26)] {
        let refused = allocator.set_pool_name(graphs, bad).unwrap_err();
        assert!(matches!(refused, Error::MemPool { pool, .. } if pool == graphs));
        assert!(refused.to_string().contains("cannot have this name: it must have 1 to 100 characters"), "{refused}");
        let options = MemPoolOptions { name: Some(bad.into()), ..MemPoolOptions::default() };
        assert!(matches!(MemPool::new(host, options), Err(Error::MemPool { .. })), "{bad:?}");
    }
    assert_eq!(allocator.pool_name(graphs).as_deref(), Some("graphs"));
    assert_eq!(allocator.pools().len(), 1, "no pool is left of those that were refused");
    allocator.release_pool(graphs).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.pool_name(graphs), None);
}

#[test]
fn paused_memory_is_neither_allocated_nor_free_in_an_out_of_memory_error() {
    let host = host();
    let (weights, cache) = (named(host, "weights"), named(host, "kv_cache"));
    let stream = host.default_stream();
    let held = {
        let _guard = weights.use_pool();
        [24 * MIB, 4 * MIB].map(|bytes| host.allocate(bytes, stream).unwrap())
    };
    let small = {
        let _guard = cache.use_pool();
        host.allocate(2 * MIB, stream).unwrap()
    };
    let awake = out_of_memory(host, 60 * MIB);
    assert_eq!((awake.allocated, awake.reserved, awake.paused), (30 * MIB, 30 * MIB, 0));
    let (of_weights, of_cache) = (weights.id(), cache.id());
    let told = format!(" Private pools hold 28.00 MiB in weights ({of_weights}), 2.00 MiB in kv_cache ({of_cache}).");
    assert!(awake.to_string().contains(&told), "{awake}");

    let [_, freed] = held;
    assert_eq!(weights.pause(Keep::Nothing).unwrap().bytes, 28 * MIB);
    drop(freed);
    let ordinary = host.allocate(20 * MIB, stream).unwrap();
    drop(host.allocate(10 * MIB, stream).unwrap());
    let asleep = out_of_memory(host, 60 * MIB);
    assert_eq!((asleep.allocated, asleep.reserved, asleep.paused), (22 * MIB, 22 * MIB, 28 * MIB));
    assert_eq!((asleep.allocated_in_pools, asleep.free_in_pools, asleep.pending), (2 * MIB, 0, 0));
    let told = format!(
        " Private pools hold 2.00 MiB in kv_cache ({of_cache}). Paused, and so not held, are 28.00 MiB in weights \
         ({of_weights})."
    );
    assert!(asleep.to_string().contains(&told), "{asleep}");
    drop((ordinary, small));
}
