//! G, which requests go to which private pool: case 71.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelerator_core::{Error, MIB, MemPool, MemPoolId, MemPoolRequests, Stream};

use super::context::{Device, Driver};
use super::{Case, Context, Outcome};
use crate::outcome::{Failure, joined};

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(71, "requests_are_routed", requests_are_routed).of_any_policy()]
}

fn requests_are_routed(context: &Context) -> Outcome {
    let device = context.device()?;
    let side = device.side_stream()?;
    by_thread(device)?;
    by_stream(device, side)?;
    by_filter(device, side)?;
    the_youngest_wins(device, side)?;
    routes_by_number(device, side)?;

    let foreign = context.device()?.default_stream();
    let pool = device.pool()?;
    let mismatch = |result: Result<(), Error>| matches!(result, Err(Error::DeviceMismatch { .. }));
    assert!(mismatch(pool.use_pool_for(MemPoolRequests::Stream(foreign)).map(drop)));
    assert_eq!(pool.uses(), 1, "nothing changed");
    assert_eq!(went(device, device.default_stream())?, MemPoolId::DEFAULT);
    device.check_consistency();
    Ok(())
}

/// Returns the pool that a request of this thread went to.
fn went(device: Device, stream: Stream<Driver>) -> Result<MemPoolId, Failure> {
    let allocation = device.alloc_on(3 * MIB, stream)?;
    let pool = device.pool_of(&allocation).ok_or("an allocation is in no segment")?;
    device.free(allocation)?;
    Ok(pool)
}

/// Returns the pool that a request of another thread went to.
fn went_elsewhere(device: Device, stream: Stream<Driver>) -> Result<MemPoolId, Failure> {
    std::thread::scope(|scope| joined(scope.spawn(move || went(device, stream)).join()))?
}

fn by_thread(device: Device) -> Outcome {
    let (own, pool) = (device.default_stream(), device.pool()?);
    let guard = pool.use_pool();
    assert_eq!(went(device, own)?, pool.id());
    assert_eq!(went_elsewhere(device, own)?, MemPoolId::DEFAULT, "another thread's requests");
    drop(guard);
    assert_eq!(went(device, own)?, MemPoolId::DEFAULT, "the guard is gone");

    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = pool.use_pool();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert_eq!((went(device, own)?, pool.uses()), (MemPoolId::DEFAULT, 1), "a panic drops the guard");
    Ok(())
}

fn by_stream(device: Device, side: Stream<Driver>) -> Outcome {
    let (own, pool) = (device.default_stream(), device.pool()?);
    let _guard = pool.use_pool_for(MemPoolRequests::Stream(side))?;
    assert_eq!(went(device, side)?, pool.id());
    assert_eq!(went_elsewhere(device, side)?, pool.id(), "whichever thread asks");
    assert_eq!(went(device, own)?, MemPoolId::DEFAULT, "another stream's requests");
    Ok(())
}

fn by_filter(device: Device, side: Stream<Driver>) -> Outcome {
    let (own, pool) = (device.default_stream(), device.pool()?);
    let asked = Arc::new(AtomicU64::new(0));
    let filter = {
        let asked = Arc::clone(&asked);
        move |stream| {
            asked.fetch_add(1, Ordering::SeqCst);
            // This deadlocks if a lock is held.
            let _ = (device.statistics(), device.allocator().snapshot());
            stream == side.id()
        }
    };
    let guard = pool.use_pool_for(MemPoolRequests::Where(Box::new(filter)))?;
    assert_eq!(went(device, side)?, pool.id());
    assert_eq!(went_elsewhere(device, side)?, pool.id(), "whichever thread asks");
    assert_eq!(went(device, own)?, MemPoolId::DEFAULT, "the filter says no");
    assert_eq!(asked.load(Ordering::SeqCst), 3, "it is asked once for each request");
    drop(guard);
    assert_eq!(went(device, side)?, MemPoolId::DEFAULT);
    assert_eq!((asked.load(Ordering::SeqCst), Arc::strong_count(&asked)), (3, 1), "and dropped with its guard");
    Ok(())
}

fn the_youngest_wins(device: Device, side: Stream<Driver>) -> Outcome {
    let own = device.default_stream();
    let pools: [MemPool<Driver>; 4] = [device.pool()?, device.pool()?, device.pool()?, device.pool()?];
    let [all, stream, outer, inner] = &pools;
    let of_all = all.use_pool_for(MemPoolRequests::All)?;
    assert_eq!((went(device, own)?, went_elsewhere(device, side)?), (all.id(), all.id()));
    let of_stream = stream.use_pool_for(MemPoolRequests::Stream(side))?;
    assert_eq!((went(device, own)?, went_elsewhere(device, side)?), (all.id(), stream.id()));
    let outer_guard = outer.use_pool();
    assert_eq!((went(device, side)?, went_elsewhere(device, side)?), (outer.id(), stream.id()));
    let inner_guard = inner.use_pool();
    assert_eq!(went(device, own)?, inner.id());
    let again = outer.use_pool();
    assert_eq!(went(device, own)?, outer.id(), "the same pool again");
    drop(again);
    assert_eq!(went(device, own)?, inner.id());

    // Not in the order in which they began.
    drop(outer_guard);
    assert_eq!(went(device, own)?, inner.id());
    drop(of_all);
    assert_eq!((went(device, own)?, went_elsewhere(device, own)?), (inner.id(), MemPoolId::DEFAULT));
    drop(inner_guard);
    assert_eq!((went(device, own)?, went(device, side)?), (MemPoolId::DEFAULT, stream.id()));
    drop(of_stream);
    assert_eq!(went(device, side)?, MemPoolId::DEFAULT);
    assert!(pools.iter().all(|pool| pool.uses() == 1));
    Ok(())
}

/// Routes may be ended by another thread, and their pool needs no handle.
fn routes_by_number(device: Device, side: Stream<Driver>) -> Outcome {
    let (allocator, id) = (device.allocator(), MemPoolId::next_user());
    let route = allocator.begin_allocate_to_pool(id, MemPoolRequests::ThisThread)?;
    assert_eq!((allocator.pool_uses(id), went(device, side)?), (1, id), "the route makes the pool, and is its use");
    std::thread::scope(|scope| joined(scope.spawn(move || allocator.end_allocate_to_pool(route)).join()))?;
    assert_eq!((allocator.pool_uses(id), went(device, side)?), (0, MemPoolId::DEFAULT));
    assert!(allocator.pool_snapshot(id).segments.len() == 1, "its memory waits for `empty_cache`");
    allocator.empty_cache()?;
    assert!(allocator.pool_snapshot(id).segments.is_empty());
    Ok(())
}
