//! G, checkpoints of private pools and allocation at given addresses: case 74.

use std::num::NonZeroU64;

use accelerator_core::{Allocation, DevicePtr, Error, MIB, MemPool, MemPoolId, PoolCheckpoint, RestoreError};

use super::allocation::{raw_read, raw_write};
use super::context::{Device, Driver, address};
use super::mem_pools::is_refused;
use super::{Case, Context, Outcome};
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    // `policy:compact` has no checkpoints.
    vec![Case::new(74, "checkpoint_and_restore", checkpoint_and_restore)]
}

type Live = Vec<Allocation<Driver>>;

fn checkpoint_and_restore(context: &Context) -> Outcome {
    blocks_come_back(context)?;
    misuse_changes_nothing(context)?;
    pointers_come_back(context)?;
    at_an_address(context.device()?)
}

/// Allocates in the pool, so that most of these would get another address if earlier blocks were elsewhere.
fn steps(device: Device, pool: &MemPool<Driver>) -> Result<Live, Failure> {
    let sizes = [512, 900_000, 3 * MIB, 2 * MIB, 5 * MIB, 1_000, 12 * MIB];
    Ok(sizes.into_iter().map(|bytes| device.alloc_in(pool, bytes)).collect::<Result<_, _>>()?)
}

fn addresses(of: &Live) -> Vec<u64> {
    of.iter().map(address).collect()
}

fn blocks_come_back(context: &Context) -> Outcome {
    let device = context.device()?;
    let (allocator, pool) = (device.allocator(), device.pool()?);
    let mut live = steps(device, &pool)?;
    device.free_all([live.remove(4), live.remove(2)])?;
    live.sort_by_key(address);
    let (kept, sizes) = (addresses(&live), live.iter().map(Allocation::size).collect::<Vec<_>>());
    if context.offers(Capability::Bytes) {
        for (nth, allocation) in live.iter().enumerate() {
            raw_write(device, allocation.ptr(), nth as u8)?;
        }
    }
    let checkpoint = allocator.checkpoint_pool(pool.id())?;
    assert_eq!(checkpoint.pool(), pool.id());
    let at_checkpoint = layout(&pool);

    // What is allocated after a restore gets the same addresses each time, as long as the pool grows no further.
    live.extend(steps(device, &pool)?);
    let mut places = None;
    for round in 0..3 {
        // Others may be freed and allocated in between.
        if round > 0 {
            let freed = live.drain(round..round + 3).collect::<Vec<_>>();
            device.free_all(freed)?;
            live.push(device.alloc_in(&pool, 4 * MIB)?);
        }
        let calls = device.all_calls();
        live = allocator.restore_pool(&checkpoint, live)?;
        assert_eq!((addresses(&live), device.all_calls()), (kept.clone(), calls), "the driver is not called");
        assert!(live.iter().map(Allocation::size).eq(sizes.iter().copied()));
        let restored = layout(&pool);
        assert!(at_checkpoint.iter().all(|block| restored.contains(block)), "{restored:?} of {at_checkpoint:?}");
        device.check_consistency();
        let again = steps(device, &pool)?;
        let expected = places.get_or_insert_with(|| addresses(&again));
        assert_eq!(addresses(&again), *expected, "after restore {round}");
        live.extend(again);
    }
    live = allocator.restore_pool(&checkpoint, live)?;
    if context.offers(Capability::Bytes) {
        for (nth, allocation) in live.iter().enumerate() {
            assert_eq!(raw_read(device, allocation.ptr())?, nth as u8, "the bytes at {:#x}", address(allocation));
        }
    }
    device.free_all(live)?;
    device.check_consistency();
    Ok(())
}

/// Returns the allocated blocks of a pool: addresses and sizes.
fn layout(pool: &MemPool<Driver>) -> Vec<(u64, u64)> {
    let segments = pool.snapshot().segments;
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    blocks.filter(|block| block.state.is_active()).map(|block| (block.address, block.size)).collect()
}

fn misuse_changes_nothing(context: &Context) -> Outcome {
    let (device, elsewhere) = (context.device()?, context.device()?);
    let (allocator, user) = (device.allocator(), device.side_stream()?);
    let [pool, other] = [device.pool()?, device.pool()?];
    let mut live = steps(device, &pool)?;

    // A block that a stream still uses belongs to no checkpoint: the stream is waited for.
    let used = device.alloc_in(&pool, 3 * MIB)?;
    allocator.record_use(&used, user)?;
    device.hold(user);
    device.free(used)?;
    let checkpoint = allocator.checkpoint_pool(pool.id())?;
    assert_eq!(layout(&pool).len(), live.len(), "the block is free");
    device.release(user);
    let unknown = MemPoolId::next_user();
    for id in [MemPoolId::DEFAULT, unknown] {
        assert!(is_refused(allocator.checkpoint_pool(id), id), "a checkpoint of {id}");
    }

    let foreign = elsewhere.alloc(512)?;
    let (outside, of_other) = (device.alloc(512)?, device.alloc_in(&other, 512)?);
    let refused = |live: Live, checkpoint: &PoolCheckpoint| -> Result<(Live, Error), Failure> {
        let before = (device.statistics(), device.allocator().snapshot().segments, addresses(&live));
        match device.allocator().restore_pool(checkpoint, live) {
            Ok(_) => Err("a wrong restore succeeded".into()),
            Err(RestoreError { allocations, error }) => {
                let after = (device.statistics(), device.allocator().snapshot().segments, addresses(&allocations));
                assert_eq!(after, before, "nothing changed, and the allocations come back");
                Ok((allocations, error))
            }
        }
    };
    let mut error;
    let missing = live.remove(1);
    (live, error) = refused(live, &checkpoint)?;
    assert!(is_refused::<(), _>(Err(error), pool.id()), "an allocation is missing");
    live.push(missing);
    for wrong in [outside, of_other] {
        live.push(wrong);
        (live, error) = refused(live, &checkpoint)?;
        assert!(is_refused::<(), _>(Err(error), pool.id()), "an allocation of another pool");
        device.free_all(live.pop())?;
    }
    live.push(foreign);
    (live, error) = refused(live, &checkpoint)?;
    assert!(matches!(error, Error::DeviceMismatch { .. }), "{error:?}");
    elsewhere.free_all(live.pop())?;
    let RestoreError { allocations, error } =
        elsewhere.allocator().restore_pool(&checkpoint, Live::new()).err().ok_or("restored another device's pool")?;
    assert!(allocations.is_empty() && matches!(error, Error::DeviceMismatch { .. }), "{error:?}");

    // The memory is gone.
    device.free_all(live)?;
    pool.trim()?;
    let (_, error) = refused(Live::new(), &checkpoint)?;
    assert!(is_refused::<(), _>(Err(error), pool.id()));
    let id = pool.id();
    drop(pool);
    let (_, error) = refused(Live::new(), &checkpoint)?;
    assert!(is_refused::<(), _>(Err(error), id));
    device.check_consistency();
    Ok(())
}

/// The same for allocations that a program has as pointers.
fn pointers_come_back(context: &Context) -> Outcome {
    let device = context.device()?;
    let (allocator, stream, pool) = (device.allocator(), device.default_stream(), device.pool()?);
    let alloc = |bytes| -> Result<_, Failure> {
        let _guard = pool.use_pool();
        Ok(allocator.raw_alloc(bytes, stream)?.ok_or("no pointer")?)
    };
    let (one, two) = (alloc(3 * MIB)?, alloc(3 * MIB)?);
    let checkpoint = allocator.checkpoint_pool(pool.id())?;
    allocator.raw_free(one)?;
    let three = alloc(2 * MIB)?;
    let restored = allocator.raw_restore_pool(&checkpoint)?;
    assert_eq!((restored.freed, restored.allocated), (vec![three, two], vec![one, two]));
    assert_eq!(three, one, "which had the same address");
    device.check_consistency();
    allocator.raw_free(one)?;
    assert!(matches!(allocator.raw_free(one), Err(Error::UnknownPointer { .. })), "freed twice");

    // An allocation that is not a pointer is in the way.
    let other = device.alloc_in(&pool, 3 * MIB)?;
    let before = device.statistics();
    assert!(is_refused(allocator.raw_restore_pool(&checkpoint), pool.id()));
    assert_eq!(device.statistics(), before);
    device.free(other)?;
    allocator.raw_free(two)?;
    let restored = allocator.raw_restore_pool(&checkpoint)?;
    assert_eq!((restored.freed, restored.allocated), (vec![], vec![one, two]));
    allocator.raw_free(one)?;
    Ok(allocator.raw_free(two)?)
}

fn at_an_address(device: Device) -> Outcome {
    let (allocator, stream, pool) = (device.allocator(), device.default_stream(), device.pool()?);
    let whole = device.alloc_in(&pool, 20 * MIB)?;
    let start = whole.ptr();
    let at = |offset: u64, bytes: u64| {
        let _guard = pool.use_pool();
        let bytes = NonZeroU64::new(bytes).unwrap_or(NonZeroU64::MIN);
        allocator.allocate_at(start.offset(offset), bytes, stream)
    };
    assert!(at(0, 2 * MIB)?.is_none(), "it is allocated");
    device.free(whole)?;
    let middle = at(8 * MIB, 4 * MIB)?.ok_or("these bytes are free")?;
    assert_eq!((middle.ptr(), middle.size()), (start.offset(8 * MIB), 4 * MIB));
    device.check_consistency();
    for (offset, bytes) in
        [(8 * MIB, 2 * MIB), (7 * MIB, 2 * MIB), (11 * MIB, 2 * MIB), (19 * MIB, 2 * MIB), (40 * MIB, 2 * MIB)]
    {
        assert!(at(offset, bytes)?.is_none(), "{bytes} bytes at {offset} are not all free");
    }
    assert!(at(100, 2 * MIB)?.is_none(), "no block begins in between");
    let calls = device.all_calls();
    let neighbours = [at(6 * MIB, 2 * MIB)?, at(12 * MIB, 8 * MIB)?, at(0, 6 * MIB)?];
    assert_eq!(device.all_calls(), calls, "the driver is not called");
    let neighbours: Live = neighbours.into_iter().flatten().collect();
    assert_eq!((neighbours.len(), pool.snapshot().segments[0].blocks.len()), (3, 4));
    device.check_consistency();
    let outside = allocator.allocate_at(start.offset(6 * MIB), NonZeroU64::MIN, stream)?;
    assert!(outside.is_none(), "outside of the pool, its addresses are not free");
    device.free_all(neighbours)?;
    device.free(middle)?;
    let free = pool.snapshot().segments;
    assert_eq!((free.len(), free[0].blocks.len()), (1, 1), "the blocks are merged: {free:?}");
    device.check_consistency();
    Ok(())
}
