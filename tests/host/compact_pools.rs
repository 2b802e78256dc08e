//! Private pools under `policy:compact`.

use std::ops::Range;

use accelerator_core::{
    Accelerator, AllocatorConfig, Buffer, DevicePtr, GIB, MIB, MemPool, MemPoolId, MemPoolOptions, SegmentSnapshot,
};
use accelerator_host::Host;
use fastrand::Rng;

fn host(memory: u64) -> &'static Accelerator<Host> {
    let config = AllocatorConfig::default().updated("policy:compact").unwrap();
    Accelerator::new(Host::new(0, memory), 0, config).unwrap()
}

fn bytes(segment: &SegmentSnapshot) -> Range<u64> {
    segment.address..segment.address + segment.total_size
}

/// Returns the driver's memory in use.
fn held(host: &Accelerator<Host>) -> u64 {
    let memory = host.memory_info().unwrap();
    memory.total - memory.free
}

struct Live {
    buffer: Buffer<Host>,
    /// The pool that it must be in.
    pool: MemPoolId,
    value: u8,
}

#[test]
fn pools_share_no_memory_and_keep_their_bytes() {
    for seed in 0..8 {
        let host = host(8 * GIB);
        let mut random = Rng::with_seed(seed);
        let streams = [host.default_stream(), host.stream(0).unwrap(), host.stream(-1).unwrap()];
        let pools = [(); 2].map(|()| MemPool::new(host, MemPoolOptions::default()).unwrap());
        let mut live: Vec<Live> = Vec::new();
        for step in 0..600 {
            if random.u32(..100) < 45 && !live.is_empty() {
                let Live { buffer, value, .. } = live.swap_remove(random.usize(..live.len()));
                let mut found = vec![0; buffer.len() as usize];
                buffer.read(0, &mut found, buffer.stream()).unwrap();
                assert!(found.iter().all(|byte| *byte == value), "seed {seed}, step {step}");
                continue;
            }
            let chosen = random.usize(..3);
            let _guard = pools.get(chosen).map(MemPool::use_pool);
            let stream = streams[random.usize(..3)];
            let len = 1 << random.u32(8..23);
            let mut buffer = host.allocate(random.u64(1..=len), stream).unwrap();
            let value = random.u8(..);
            buffer.fill(value, stream).unwrap();
            live.push(Live { buffer, pool: pools.get(chosen).map_or(MemPoolId::DEFAULT, MemPool::id), value });
            if step % 50 == 0 {
                host.allocator().empty_cache().unwrap();
            }
        }
        let snapshot = host.allocator().snapshot();
        let all = || snapshot.segments.iter().chain(&snapshot.aliases);
        for Live { buffer, pool, .. } in &live {
            let start = buffer.ptr().unwrap().trace_address();
            assert!(all().any(|segment| segment.mem_pool == *pool && bytes(segment).contains(&start)), "seed {seed}");
        }
        for pool in &pools {
            let own: u64 = pool.snapshot().segments.iter().map(|segment| segment.total_size).sum();
            let counted = host.allocator().reserved_by_private_pools()[&pool.id()].all.current;
            assert_eq!(own, counted.unsigned_abs());
        }
        host.synchronize().unwrap();
        drop(live);
        drop(pools);
        host.allocator().empty_cache().unwrap();
        assert_eq!(held(host), 0, "seed {seed}");
    }
}

#[test]
fn the_memory_of_a_released_pool_is_there_for_everyone() {
    let host = host(256 * MIB);
    let stream = host.default_stream();
    let pool = MemPool::new(host, MemPoolOptions::default()).unwrap();
    let (kept, most) = {
        let _guard = pool.use_pool();
        (host.allocate(20 * MIB, stream).unwrap(), host.allocate(180 * MIB, stream).unwrap())
    };
    drop(pool);
    drop(most);
    let before = host.allocator().statistics();
    let other = host.allocate(200 * MIB, stream).unwrap();
    let after = host.allocator().statistics();
    assert_eq!(after.num_alloc_retries, before.num_alloc_retries, "no rung of last resort");
    drop((kept, other));
    host.allocator().empty_cache().unwrap();
    assert_eq!(held(host), 0);
}

#[test]
fn a_request_outside_takes_back_what_is_free_in_a_live_pool() {
    let host = host(256 * MIB);
    let stream = host.default_stream();
    let pool = MemPool::new(host, MemPoolOptions::default()).unwrap();
    let guard = pool.use_pool();
    drop(host.allocate(200 * MIB, stream).unwrap());
    drop(guard);
    assert!(held(host) >= 200 * MIB);
    let outside = host.allocate(200 * MIB, stream).unwrap();
    assert_eq!(outside.len(), 200 * MIB);
}
