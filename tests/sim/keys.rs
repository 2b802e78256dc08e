//! Allocations by their keys: the same statistics and blocks as by allocations, under every policy.
#![expect(unsafe_code, reason = "keys are used by unsafe methods")]

use std::collections::HashMap;
use std::num::NonZeroU64;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{
    Accelerator, Allocation, AllocationKey, BlockState, DevicePtr, Error, MIB, MemPool, MemPoolId, MemPoolOptions,
    MemPoolRequests, SegmentSnapshot, Stream,
};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    let settings = [("default", ""), ("expandable", "expandable_segments:True"), ("compact", "policy:compact")];
    let of_settings = settings.into_iter().flat_map(|(name, settings)| {
        [
            Trial::test(format!("keys::free_as_allocations_do ({name})"), move || frees(settings)),
            Trial::test(format!("keys::uses_are_waited_for ({name})"), move || uses(settings)),
        ]
    });
    let of_pools = [
        Trial::test("keys::of_pools_are_restored", pools),
        Trial::test("keys::pools_of_graphs_keep_free_memory", kept_pools),
    ];
    of_settings.chain(of_pools).collect()
}

type Device = &'static Accelerator<Sim>;

fn device(settings: &str) -> Result<Device, Failed> {
    super::device(Sim::new(1024 * MIB), settings)
}

fn allocate(device: Device, bytes: u64, stream: Stream<Sim>) -> Result<Allocation<Sim>, Failed> {
    Ok(device.allocator().allocate(NonZeroU64::new(bytes).ok_or("no bytes")?, stream)?)
}

fn key_of(allocation: Allocation<Sim>) -> Result<AllocationKey, Failed> {
    let key = allocation.into_key().map_err(|allocation| format!("{allocation:?} has no key"))?;
    assert_eq!(key.get().get() >> AllocationKey::BITS, 0);
    Ok(AllocationKey::new(key.get()))
}

fn frees(settings: &str) -> Result<(), Failed> {
    let (by_key, by_allocation) = (device(settings)?, device(settings)?);
    let streams = [by_key, by_allocation].map(|device| [device.default_stream(), device.stream(0).unwrap()]);
    let (mut keys, mut allocations) = (HashMap::new(), HashMap::new());
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..2_000_u64 {
        if number % 3 != 2 {
            let (bytes, stream) = (random.u64(1..=4 * MIB) >> random.u32(..12), random.usize(..2));
            let allocated = allocate(by_key, bytes.max(1), streams[0][stream])?;
            let address = allocated.ptr().trace_address();
            let key = key_of(allocated)?;
            assert_eq!(by_key.allocator().key_at(address), Some(key));
            look_up(by_key, address, key)?;
            keys.insert(number, (key, address));
            allocations.insert(number, allocate(by_allocation, bytes.max(1), streams[1][stream])?);
        } else if let Some(number) = keys.keys().copied().min_by_key(|number| number.wrapping_mul(0x9e37_79b9)) {
            let (key, address) = keys.remove(&number).ok_or("it is live")?;
            // SAFETY: The key's allocation has not been freed.
            unsafe { by_key.allocator().free_by_key(key) };
            assert_eq!(by_key.allocator().key_at(address), None);
            by_allocation.allocator().free(allocations.remove(&number).ok_or("it is live")?)?;
        }
        assert_eq!(by_key.allocator().statistics(), by_allocation.allocator().statistics());
    }
    let layout = |device: Device| {
        let segments = device.allocator().snapshot().segments.into_iter();
        segments.map(|segment| (segment.total_size, segment.blocks)).collect::<Vec<_>>()
    };
    assert_eq!(layout(by_key), layout(by_allocation));
    Ok(())
}

/// The segment and the block of an allocation are those of the snapshot.
fn look_up(device: Device, address: u64, key: AllocationKey) -> Result<(), Failed> {
    let snapshot = device.allocator().snapshot();
    // SAFETY: The key's allocation has not been freed.
    let (ptr, size) = unsafe { device.allocator().block_by_key(key) };
    let mut all = snapshot.segments.iter().chain(&snapshot.aliases);
    let mut blocks = all.clone().flat_map(|segment| &segment.blocks);
    let block = blocks.find(|block| block.address == address && block.state == BlockState::Allocated);
    assert_eq!(Some((ptr.trace_address(), size)), block.map(|block| (block.address, block.size)));
    let (start, bytes) = device.allocator().segment_at(address + size - 1).ok_or("the address is in a segment")?;
    let start = start.trace_address();
    let inside =
        |segment: &SegmentSnapshot| segment.address <= address && address - segment.address < segment.total_size;
    let segment = all.find(|segment| inside(segment)).ok_or("the segment is in the snapshot")?;
    // A snapshot shows the part of a segment that has memory.
    assert!(start <= segment.address && segment.address + segment.total_size <= start + bytes);
    assert_eq!(device.allocator().segment_at(1), None);
    let behind = device.allocator().segment_at(start + bytes).map(|(behind, _)| behind.trace_address());
    assert_ne!(behind, Some(start), "it is the first byte behind the segment");
    Ok(())
}

/// Free memory of a pool goes to other requests when the device is full, unless graphs may use it.
fn kept_pools() -> Result<(), Failed> {
    for (settings, is_kept, is_reused) in [
        ("policy:compact", false, true),
        ("policy:compact", true, false),
        ("reclaim_live_pools:True", false, true),
        ("reclaim_live_pools:True", true, false),
    ] {
        let device = device(settings)?;
        let (allocator, stream) = (device.allocator(), device.default_stream());
        let pool = MemPoolId::new(0, 7);
        allocator.retain_pool(pool)?;
        if is_kept {
            allocator.keep_pool_for_graphs(pool)?;
        }
        let route = allocator.begin_allocate_to_pool(pool, MemPoolRequests::All)?;
        allocator.free(allocate(device, 600 * MIB, stream)?)?;
        allocator.end_allocate_to_pool(route);
        let large = allocator.allocate(NonZeroU64::new(600 * MIB).ok_or("no bytes")?, stream);
        assert_eq!(large.is_ok(), is_reused, "{settings}, kept: {is_kept}");
        assert_eq!(allocator.checkpoint_pool(pool).is_ok(), is_kept || settings != "policy:compact");
        if let Ok(large) = large {
            allocator.free(large)?;
        }
        allocator.release_pool(pool)?;
    }
    let device = device("")?;
    let unknown = device.allocator().keep_pool_for_graphs(MemPoolId::new(0, 8));
    assert!(matches!(unknown, Err(Error::MemPool { .. })));
    let pool = MemPool::new(device, MemPoolOptions::default())?;
    for (pool, problem) in
        [(pool.id(), "has no use that `retain_pool` added"), (MemPoolId::new(0, 8), "does not exist")]
    {
        let Err(refused) = device.allocator().release_pool(pool) else { return Err("nobody retained it".into()) };
        assert!(refused.to_string().contains(problem), "{refused}");
    }
    Ok(())
}

/// A use by another stream is waited for. One by the allocation's own stream is not.
fn uses(settings: &str) -> Result<(), Failed> {
    let device = device(settings)?;
    let (own, other) = (device.default_stream(), device.stream(0)?);
    for (user, is_waited_for) in [(own, false), (other, true)] {
        let allocated = allocate(device, 20 * MIB, own)?;
        let address = allocated.ptr().trace_address();
        let key = key_of(allocated)?;
        device.backend().hold(user.native());
        // SAFETY: The key's allocation has not been freed.
        unsafe { device.allocator().record_use_by_key(key, user) }?;
        // SAFETY: As above.
        unsafe { device.allocator().free_by_key(key) };
        let next = allocate(device, 20 * MIB, own)?;
        assert_eq!(next.ptr().trace_address() != address, is_waited_for);
        device.backend().release(user.native());
        device.allocator().free(next)?;
    }
    let foreign = self::device(settings)?.default_stream();
    let key = key_of(allocate(device, 1, own)?)?;
    // SAFETY: The key's allocation has not been freed.
    let refused = unsafe { device.allocator().record_use_by_key(key, foreign) };
    assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
    Ok(())
}

fn pools() -> Result<(), Failed> {
    let device = device("")?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let pool = MemPool::new(device, MemPoolOptions::default())?;
    let inside = |bytes| {
        let _guard = pool.use_pool();
        allocate(device, bytes, stream)
    };
    let kept = inside(3 * MIB)?;
    let address = kept.ptr().trace_address();
    let checkpoint = allocator.checkpoint_pool(pool.id())?;
    let _ = [key_of(kept)?, key_of(inside(5 * MIB)?)?];
    // SAFETY: No key is used any more.
    let restored = unsafe { allocator.restore_pool_by_key(&checkpoint) }?;
    assert_eq!(restored.freed.len(), 2);
    assert_eq!(restored.allocated.iter().map(|(ptr, _)| ptr.trace_address()).collect::<Vec<_>>(), [address]);
    let key = allocator.key_at(address).ok_or("it is allocated again")?;
    assert_eq!(restored.allocated[0].1, Some(key));
    // SAFETY: The key was just found.
    unsafe { allocator.free_by_key(key) };
    assert!(allocator.pool_allocations(pool.id()).is_empty());
    Ok(())
}
