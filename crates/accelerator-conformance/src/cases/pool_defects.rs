//! G, uses of private pools with which PyTorch fails: case 107.

use accelerator_core::{
    Backend, CaptureMode, DevicePtr, Error, MIB, MemPool, MemPoolId, MemPoolOptions, MemPoolRequests,
};

use super::capture_defects::FORBIDDEN;
use super::captures::{begin, begin_as};
use super::context::{Device, address, holds};
use super::mem_pools::is_refused;
use super::{Case, Context, Outcome};
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(107, "pools_do_the_right_thing", pools_do_the_right_thing).of_any_policy()]
}

const EXPANDABLE: &str = "expandable_segments:True";

fn pools_do_the_right_thing(context: &Context) -> Outcome {
    for settings in ["", EXPANDABLE] {
        blocks_of_a_released_pool_stay(context, settings)?;
        a_released_number_can_be_used_again(context.device_with(256 * MIB, settings)?)?;
    }
    a_pool_without_memory_gives_its_addresses_back(context.device_with(40 * MIB, EXPANDABLE)?)?;
    a_pool_may_be_begun_twice(context.device()?)?;
    a_pool_that_helps_others_may_be_begun(context)?;
    if context.offers(Capability::Graphs) && context.device()?.backend().graphs().is_some() {
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            pools_are_released_in_a_capture(context.device_with(256 * MIB, "")?, mode)?;
        }
        for settings in ["", "graph_capture_record_stream_reuse:True"] {
            routes_end_in_a_capture(context.device_with(256 * MIB, settings)?)?;
        }
    }
    Ok(())
}

/// Returns the bytes that a pool holds according to its own count and to its segments, and those that the device holds.
fn held(device: Device, id: MemPoolId) -> [u64; 3] {
    let counted = device.allocator().reserved_by_private_pools();
    let counted = counted.get(&id).map_or(0, |stat| stat.all.current.unsigned_abs());
    let segments = device.allocator().snapshot().segments;
    let shown = segments.iter().filter(|segment| segment.mem_pool == id).map(|segment| segment.total_size).sum();
    [counted, shown, device.reserved()]
}

fn blocks_of_a_released_pool_stay(context: &Context, settings: &str) -> Outcome {
    let device = context.device_with(256 * MIB, settings)?;
    let stream = device.default_stream();
    let before = device.backend().live_reservations();
    let pool = device.pool()?;
    let id = pool.id();
    let guard = pool.use_pool();
    let mut live = Vec::new();
    // The first request maps several pages at once, and the free block lies in the middle.
    drop(device.buffer(120 * MIB, stream)?);
    for bytes in [12 * MIB, 60 * MIB, 12 * MIB, 700] {
        live.push(device.buffer(bytes, stream)?);
    }
    if context.offers(Capability::Bytes) {
        live.iter_mut().zip(1..).try_for_each(|(buffer, value)| buffer.fill(value, stream))?;
    }
    drop(live.remove(1));
    drop(guard);
    drop(pool);
    let [counted, shown, reserved] = held(device, id);
    assert!(counted == shown && shown == reserved && reserved >= 24 * MIB, "{counted}, {shown}, {reserved}");
    if context.has_virtual_memory() && settings == EXPANDABLE {
        assert!(reserved <= 90 * MIB, "free pages go back: {reserved}");
    }
    device.check_consistency();
    for (buffer, value) in live.iter().zip([1, 3, 4]).filter(|_| context.offers(Capability::Bytes)) {
        holds(buffer, value, stream, "a block outlives its pool")?;
    }
    while let Some(buffer) = live.pop() {
        let start = buffer.ptr().map_or(0, DevicePtr::trace_address);
        let segments = device.allocator().pool_snapshot(id).segments;
        let has_block = segments.iter().any(|of| (of.address..of.address + of.total_size).contains(&start));
        assert!(has_block, "the snapshot of the pool has the block");
        drop(buffer);
        device.allocator().empty_cache()?;
        device.check_consistency();
    }
    assert_eq!(held(device, id), [0; 3]);
    assert_eq!((device.backend().used(), device.backend().live_reservations()), (0, before));
    assert!(is_refused(device.allocator().set_pool_no_split(id), id), "the pool is forgotten");
    Ok(())
}

/// Pools that never get memory have addresses all the same.
fn a_pool_without_memory_gives_its_addresses_back(device: Device) -> Outcome {
    let live = [device.alloc(20 * MIB)?, device.alloc(20 * MIB)?];
    let before = device.backend().live_reservations();
    for empties in [false, true] {
        let pool = device.pool()?;
        let refused = device.alloc_in(&pool, 3 * MIB);
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        drop(pool);
        if empties {
            device.allocator().empty_cache()?;
        }
        assert_eq!(device.backend().live_reservations(), before, "the addresses of a released pool");
    }
    device.check_consistency();
    Ok(device.free_all(live)?)
}

/// Nothing goes back in a capture, unless the capture allows it, and everything afterwards.
fn pools_are_released_in_a_capture(device: Device, mode: CaptureMode) -> Outcome {
    let allocator = device.allocator();
    let [stream, user] = [device.side_stream()?, device.side_stream()?];
    let other = device.pool()?;
    let ids = [MemPoolId::next_user(), other.id()];
    allocator.retain_pool(ids[0])?;
    let route = allocator.begin_allocate_to_pool(ids[0], MemPoolRequests::ThisThread)?;
    let (free, used) = (device.alloc_on(40 * MIB, stream)?, device.alloc_on(30 * MIB, stream)?);
    allocator.end_allocate_to_pool(route);
    device.free(device.alloc_in(&other, 20 * MIB)?)?;
    allocator.record_use(&used, user)?;
    device.hold(user);
    device.free_all([free, used])?;
    allocator.release_pool(ids[0])?;

    let mut graph = begin_as(device, stream, None, mode)?;
    let forbidden = || FORBIDDEN.map(|call| device.calls(call)).iter().sum::<u64>();
    let before = forbidden();
    let in_the_capture = || {
        allocator.empty_pool_cache(ids[0])?;
        assert!(is_refused(allocator.release_pool(ids[0]), ids[0]), "it is released already");
        drop(other);
        assert!(is_refused(allocator.trim_pool(ids[1]), ids[1]), "not in a capture");
        assert_eq!(forbidden(), before, "the end of a pool waits for nothing in a capture, and gives nothing back");
        allocator.empty_cache()
    };
    in_the_capture()?;
    let gives_back = mode == CaptureMode::Relaxed;
    assert_eq!(forbidden() > before, gives_back, "only a relaxed capture allows it: {mode:?}");
    graph.capture_end()?;
    device.check_consistency();
    device.release(user);
    allocator.empty_cache()?;
    assert_eq!(device.reserved(), 0);
    assert!(ids.into_iter().all(|id| is_refused(allocator.set_pool_no_split(id), id)), "the pools are forgotten");
    Ok(())
}

fn routes_end_in_a_capture(device: Device) -> Outcome {
    let (stream, pool) = (device.side_stream()?, device.pool()?);
    let mut graph = begin(device, stream, None)?;
    let own = graph.pool();
    let guard = pool.use_pool();
    let inner = device.alloc_on(3 * MIB, stream)?;
    drop(guard);
    let outer = device.alloc_on(3 * MIB, stream)?;
    assert_eq!((device.pool_of(&inner), device.pool_of(&outer)), (Some(pool.id()), own));
    graph.capture_end()?;
    assert_eq!(pool.uses(), 2, "the handle and the graph");
    device.check_consistency();
    Ok(device.free_all([inner, outer])?)
}

fn a_released_number_can_be_used_again(device: Device) -> Outcome {
    let pool = device.pool()?;
    let id = pool.id();
    let first = device.alloc_in(&pool, 3 * MIB)?;
    drop(pool);
    let again = MemPool::with_id(device.accelerator(), id, MemPoolOptions::default())?;
    let second = device.alloc_in(&again, 3 * MIB)?;
    assert_ne!(address(&first), address(&second));
    assert_eq!([&first, &second].map(|block| device.pool_of(block)), [Some(id); 2]);
    let mut places = [first.ptr(), second.ptr()];
    places.sort_by_key(|ptr| DevicePtr::trace_address(*ptr));
    assert_eq!(device.allocator().pool_allocations(id), places);
    let [counted, shown, reserved] = held(device, id);
    assert!(counted == shown && shown == reserved, "{counted}, {shown}, {reserved}");
    device.check_consistency();
    device.free_all([first, second])?;
    drop(again);
    assert_eq!(held(device, id), [0; 3]);
    Ok(())
}

fn a_pool_may_be_begun_twice(device: Device) -> Outcome {
    let streams = [device.side_stream()?, device.side_stream()?];
    let pool = device.pool()?;
    let guards = streams.map(|stream| pool.use_pool_for(MemPoolRequests::Stream(stream)));
    assert!(guards.iter().all(Result::is_ok));
    for stream in streams {
        let block = device.alloc_on(700, stream)?;
        assert_eq!(device.pool_of(&block), Some(pool.id()));
        device.free(block)?;
    }
    drop(guards);
    assert_eq!(pool.uses(), 1);
    Ok(())
}

fn a_pool_that_helps_others_may_be_begun(context: &Context) -> Outcome {
    let device = context.device_with(40 * MIB, "")?;
    let side = device.side_stream()?;
    let helps = MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() };
    let pool = MemPool::new(device.accelerator(), helps)?;
    let guard = pool.use_pool_for(MemPoolRequests::Stream(side))?;
    let live = device.alloc(20 * MIB)?;
    device.free(device.alloc_on(20 * MIB, side)?)?;
    let refused = device.alloc(40 * MIB);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    let served = device.alloc_on(20 * MIB, side)?;
    assert_eq!(device.pool_of(&served), Some(pool.id()), "the requests of the stream still go to the pool");
    drop(guard);
    device.check_consistency();
    Ok(device.free_all([live, served])?)
}
