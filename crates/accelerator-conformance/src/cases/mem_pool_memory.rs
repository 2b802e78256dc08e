//! G, how private pools use and give back memory, and what is told about it: cases 75, 76 and 98 to 100.

use accelerator_core::{Error, MIB, MemPool, MemPoolId, MemPoolOptions, OutOfMemory, PoolKind, PoolStat, Stat};

use super::context::{Device, Driver, address};
use super::mem_pools::is_refused;
use super::out_of_memory::refusal;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::Failure;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(75, "no_split", no_split),
        Case::new(76, "use_on_oom", use_on_oom),
        Case::new(98, "cache_of_one_pool", cache_of_one_pool),
        Case::new(99, "statistics_of_one_pool", statistics_of_one_pool),
        Case::new(100, "out_of_memory_in_a_pool", out_of_memory_in_a_pool),
    ]
}

fn no_split(context: &Context) -> Outcome {
    let device = context.device()?;
    let whole = MemPool::new(device.accelerator(), MemPoolOptions { no_split: true, ..MemPoolOptions::default() })?;
    // Requests, and the segments that they get.
    let sizes = [(500, 2 * MIB), (600, 2 * MIB), (3 * MIB, 20 * MIB), (4 * MIB, 20 * MIB), (15 * MIB, 16 * MIB)];
    let mut live = Vec::new();
    for (nth, (bytes, segment)) in sizes.into_iter().enumerate() {
        let allocation = device.alloc_in(&whole, bytes)?;
        assert_eq!(allocation.size(), segment, "{bytes} bytes get a whole segment");
        assert_eq!(allocation.requested().get(), bytes);
        live.push(allocation);
        assert_eq!(whole.snapshot().segments.len(), nth + 1);
        device.check_consistency();
    }
    let places: Vec<_> = live.iter().map(address).collect();
    device.free_all(live)?;
    // Each takes the smallest block, whole, and a third small one a new segment.
    let small = [device.alloc_in(&whole, 512)?, device.alloc_in(&whole, MIB)?, device.alloc_in(&whole, 1)?];
    assert!(small.iter().all(|allocation| allocation.size() == 2 * MIB));
    assert!(small[..2].iter().all(|allocation| places[..2].contains(&address(allocation))));
    let large = device.alloc_in(&whole, 2 * MIB)?;
    assert_eq!((address(&large), large.size()), (places[4], 16 * MIB));
    device.check_consistency();
    device.free_all(small)?;
    device.free(large)?;

    // A pool may become such a pool later. Blocks that were split before stay as they are.
    let later = device.pool()?;
    let split = [device.alloc_in(&later, 2 * MIB)?, device.alloc_in(&later, 2 * MIB)?];
    device.allocator().set_pool_no_split(later.id())?;
    let rest = device.alloc_in(&later, 2 * MIB)?;
    assert_eq!((rest.size(), later.snapshot().segments.len()), (16 * MIB, 1));
    device.check_consistency();
    device.free_all(split)?;
    device.free(rest)?;

    // Other memory is split as before.
    let [one, two] = [device.alloc(2 * MIB)?, device.alloc(2 * MIB)?];
    assert_eq!([one.size(), two.size()], [2 * MIB; 2]);
    Ok(device.free_all([one, two])?)
}

fn use_on_oom(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "")?;
    let helps = MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() };
    let pool = MemPool::new(device.accelerator(), helps)?;
    let free = device.alloc_in(&pool, 40 * MIB)?;
    let place = address(&free);
    device.free(free)?;

    let first = device.alloc(20 * MIB)?;
    assert_eq!(device.pool_of(&first), Some(MemPoolId::DEFAULT), "the driver has memory, so it is asked");
    let deallocs = device.calls(Call::Dealloc);
    let borrowed = device.alloc(30 * MIB)?;
    assert_eq!((address(&borrowed), device.calls(Call::Dealloc)), (place, deallocs), "then the pool's block helps");
    let statistics = device.statistics();
    assert_eq!((statistics.num_ooms, statistics.num_alloc_retries), (0, 0));
    device.check_consistency();
    device.free(borrowed)?;
    assert_eq!(pool.snapshot().segments[0].active_size, 0, "it goes back to the pool");

    // Requests of other pools and other streams get none of it.
    let (other, side) = (device.pool()?, device.side_stream()?);
    assert!(is_out_of_memory(device.alloc_in(&other, 30 * MIB)));
    assert!(is_out_of_memory(device.alloc_on(30 * MIB, side)));
    device.allocator().set_pool_use_on_oom(pool.id(), false)?;
    refusal(device, 30 * MIB)?;
    device.allocator().set_pool_use_on_oom(pool.id(), true)?;
    let borrowed = device.alloc(30 * MIB)?;
    assert_eq!(address(&borrowed), place);

    // A block that was borrowed outlives the pool.
    let id = pool.id();
    drop(pool);
    assert!(is_refused(device.allocator().release_pool(id), id));
    assert_eq!(device.pool_of(&borrowed), Some(id));
    device.check_consistency();
    device.free_all([first, borrowed])?;
    let all = device.alloc(64 * MIB)?;
    assert_eq!(device.reserved(), 64 * MIB, "a pool without uses gives its memory back");
    Ok(device.free(all)?)
}

fn is_out_of_memory<T>(result: accelerator_core::Result<T>) -> bool {
    matches!(result, Err(Error::OutOfMemory(_)))
}

fn cache_of_one_pool(context: &Context) -> Outcome {
    let device = context.device()?;
    let (allocator, user) = (device.allocator(), device.side_stream()?);
    let [one, two] = [device.pool()?, device.pool()?];
    let (live, half) = (device.alloc_in(&one, 3 * MIB)?, device.alloc_in(&one, 3 * MIB)?);
    let used = [device.alloc_in(&one, 22 * MIB)?, device.alloc_in(&two, 22 * MIB)?];
    device.free_all([device.alloc(30 * MIB)?, device.alloc_in(&one, 30 * MIB)?, device.alloc_in(&two, 30 * MIB)?])?;
    device.free(half)?;
    used.iter().try_for_each(|used| allocator.record_use(used, user))?;
    device.hold(user);
    device.free_all(used)?;

    // The cache of a live pool stays, unless the program asks.
    let calls = device.all_calls();
    allocator.empty_pool_cache(one.id())?;
    let unknown = MemPoolId::next_user();
    allocator.empty_pool_cache(unknown)?;
    assert_eq!(device.all_calls(), calls, "there is nothing to do");
    assert!(is_refused(allocator.trim_pool(unknown), unknown));
    let of = |pool: &MemPool<Driver>| pool.snapshot().segments.iter().map(|segment| segment.total_size).sum::<u64>();
    let (before, elsewhere) = (of(&one), of(&two));
    one.trim()?;
    assert_eq!((of(&one), of(&two)), (before - 52 * MIB, elsewhere), "all but the segment with a live block");
    assert_eq!(of(&one), 20 * MIB);
    device.check_consistency();

    // So does that of other pools when a pool is dropped. The block that is still used is waited for.
    let id = one.id();
    drop(one);
    assert_eq!(allocator.pool_snapshot(id).segments.len(), 1);
    device.free(live)?;
    allocator.empty_pool_cache(id)?;
    assert_eq!(allocator.pool_snapshot(id).segments, []);
    assert_eq!(of(&two), elsewhere);
    device.check_consistency();

    allocator.empty_cache()?;
    assert_eq!(device.reserved(), elsewhere, "only the live pool's");
    let pending = two.snapshot().segments.iter().any(|segment| segment.active_size > 0);
    assert!(!pending, "`empty_cache` waits for all blocks, and frees those of live pools");
    device.release(user);
    let id = two.id();
    drop(two);
    assert_eq!((device.reserved(), allocator.pool_snapshot(id).segments.len()), (0, 0));
    Ok(())
}

fn statistics_of_one_pool(context: &Context) -> Outcome {
    let device = context.device()?;
    let allocator = device.allocator();
    let [one, two] = [device.pool()?, device.pool()?];
    let taken = [700, 700, 3 * MIB, 18 * MIB].map(|bytes| device.alloc_in(&one, bytes));
    let mut live: Vec<_> = taken.into_iter().collect::<Result<_, _>>()?;
    let others = [device.alloc_in(&two, 5 * MIB)?, device.alloc(5 * MIB)?];
    device.free(live.remove(1))?;
    check_pools(device, &[&one, &two], (40 * MIB, 0))?;

    let mut places: Vec<_> = live.iter().map(|allocation| allocation.ptr()).collect();
    places.sort_by_key(|ptr| accelerator_core::DevicePtr::trace_address(*ptr));
    assert_eq!(allocator.pool_allocations(one.id()), places, "in the order of their addresses");
    device.free(live.remove(2))?;
    one.trim()?;
    check_pools(device, &[&one, &two], (40 * MIB, 18 * MIB))?;
    assert_eq!(allocator.pool_allocations(one.id()).len(), 2);

    // The counts stay after the pool.
    device.free_all(live)?;
    let id = one.id();
    drop(one);
    assert_eq!(allocator.pool_allocations(id), []);
    let reserved = allocator.reserved_by_private_pools();
    let whole = 40 * MIB as i64;
    let stat = reserved.get(&id).ok_or("a pool that is gone has counts")?.all;
    assert_eq!(stat, Stat { current: 0, peak: whole, allocated: whole, freed: whole });
    check_pools(device, &[&two], (20 * MIB, 0))?;
    Ok(device.free_all(others)?)
}

/// Checks the statistics and snapshots of pools against one another, and what the first pool has taken and given back
/// against what is expected.
fn check_pools(device: Device, pools: &[&MemPool<Driver>], (allocated, freed): (u64, u64)) -> Outcome {
    device.check_consistency();
    let (whole, reserved) = (device.allocator().snapshot(), device.allocator().reserved_by_private_pools());
    assert!(!reserved.contains_key(&MemPoolId::DEFAULT), "{reserved:?}");
    for pool in pools {
        let snapshot = pool.snapshot();
        let mut expected = whole.segments.clone();
        expected.retain(|segment| segment.mem_pool == pool.id());
        assert_eq!(snapshot.segments, expected, "{pool:?}");
        let PoolStat { all, small_pool, large_pool } = *reserved.get(&pool.id()).ok_or("a pool has no statistics")?;
        let sum = |kind: &[PoolKind]| {
            let segments = snapshot.segments.iter().filter(|segment| kind.contains(&segment.pool));
            segments.map(|segment| segment.total_size as i64).sum::<i64>()
        };
        let sums = [sum(&[PoolKind::Small, PoolKind::Large]), sum(&[PoolKind::Small]), sum(&[PoolKind::Large])];
        assert_eq!([all.current, small_pool.current, large_pool.current], sums, "{pool:?}");
        assert_eq!(all.current, all.allocated - all.freed);
    }
    let first = reserved.get(&pools[0].id()).ok_or("the pool has no statistics")?.all;
    assert_eq!((first.allocated, first.freed), (allocated as i64, freed as i64));
    Ok(())
}

fn out_of_memory_in_a_pool(context: &Context) -> Outcome {
    let device = context.device_with(100 * MIB, "")?;
    let [pool, other] = [device.pool()?, device.pool()?];
    // Both pools have a free segment, which is too small.
    let free = [device.alloc_in(&pool, 20 * MIB)?, device.alloc_in(&other, 20 * MIB)?, device.alloc(40 * MIB)?];
    device.free_all(free)?;
    let deallocs = device.calls(Call::Dealloc);
    let taken = device.alloc_in(&pool, 50 * MIB)?;
    assert_eq!(device.calls(Call::Dealloc) - deallocs, 1, "only the cache outside of the pools goes back");
    assert_eq!((pool.snapshot().segments.len(), other.snapshot().segments.len()), (2, 1));
    assert_eq!(device.statistics().num_alloc_retries, 1);
    device.check_consistency();

    let report = refused_in(device, &pool, 30 * MIB)?;
    assert_eq!((report.requested, report.reserved, report.allocated), (30 * MIB, 90 * MIB, 50 * MIB));
    assert_eq!(report.largest_cached, 20 * MIB, "the pool's own free block");
    let report = refusal(device, 30 * MIB)?;
    assert_eq!(report.largest_cached, 0, "outside of the pools nothing is free");
    assert_eq!(device.reserved(), 90 * MIB, "live pools keep their memory");
    device.check_consistency();

    // With the setting, they give it back, the one that needs memory too.
    let config = device.allocator().config();
    device.allocator().set_config(config.updated("reclaim_live_pools:True")?);
    let more = device.alloc_in(&pool, 30 * MIB)?;
    assert_eq!((pool.snapshot().segments.len(), other.snapshot().segments.len()), (2, 0));
    device.check_consistency();
    Ok(device.free_all([taken, more])?)
}

/// Returns the report of a request in a pool that must fail for lack of memory.
fn refused_in(device: Device, pool: &MemPool<Driver>, bytes: u64) -> Result<Box<OutOfMemory>, Failure> {
    match device.alloc_in(pool, bytes) {
        Err(Error::OutOfMemory(report)) => Ok(report),
        other => Err(format!("expected out of memory for {bytes} bytes in a pool, not {other:?}").into()),
    }
}
