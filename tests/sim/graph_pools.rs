//! Pools that graphs hold, memory that goes back during a capture, and routes to pools that end meanwhile.

use std::sync::Mutex;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{
    Accelerator, CaptureMode, Error, Graph, MIB, MemPool, MemPoolOptions, MemPoolRequests, OutOfMemoryCause,
};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("graph_pools::free_memory_of_a_pool_stays_while_a_graph_holds_it", held),
        Trial::test("graph_pools::a_capture_may_give_back_what_released_pools_have_if_its_mode_says_so", given_back),
        Trial::test("graph_pools::a_use_beside_a_capture_is_waited_for_after_it", beside),
        Trial::test("graph_pools::a_route_that_a_filter_ends_serves_no_request", ended_route),
        Trial::test("graph_pools::no_checkpoint_waits_while_its_stream_is_captured", checkpoint_in_a_capture),
    ]
}

fn device(settings: &str) -> Result<&'static Accelerator<Sim>, Failed> {
    super::device(Sim::new(64 * MIB).without_virtual_memory(), settings)
}

fn held() -> Result<(), Failed> {
    let device = device("reclaim_live_pools:True")?;
    let (stream, side) = (device.default_stream(), device.stream(0)?);
    let pool = MemPool::new(device, MemPoolOptions::default())?;
    let mut graph = Graph::new(device)?;
    graph.capture_begin(side, Some(pool.id()), CaptureMode::default())?;
    drop(device.allocate(40 * MIB, side)?);
    graph.capture_end()?;
    assert_eq!((pool.uses(), device.backend().used()), (2, 40 * MIB));

    let refused = pool.trim();
    assert!(matches!(refused, Err(Error::MemPool { .. })), "{refused:?}");
    let Err(Error::OutOfMemory(report)) = device.allocate(40 * MIB, stream) else { return Err("there is room".into()) };
    assert_eq!((report.cause, report.free_in_pools), (OutOfMemoryCause::Device, 40 * MIB));
    assert_eq!(device.backend().used(), 40 * MIB);

    graph.reset()?;
    assert_eq!(pool.uses(), 1);
    drop(device.allocate(40 * MIB, stream)?);
    assert_eq!(pool.snapshot().segments, [], "the request took what is free there");
    pool.trim()?;
    Ok(())
}

fn given_back() -> Result<(), Failed> {
    for (mode, left) in [(CaptureMode::Relaxed, 20), (CaptureMode::Global, 50), (CaptureMode::ThreadLocal, 50)] {
        let device = device("")?;
        let (stream, side) = (device.default_stream(), device.stream(0)?);
        let pool = MemPool::new(device, MemPoolOptions::default())?;
        let guard = pool.use_pool();
        let in_pool = device.allocate(30 * MIB, stream)?;
        drop(guard);
        drop(pool);
        drop([device.allocate(20 * MIB, stream)?, in_pool]);
        assert_eq!(device.backend().used(), 50 * MIB);

        let mut graph = Graph::new(device)?;
        graph.capture_begin(side, None, mode)?;
        device.allocator().empty_cache()?;
        assert_eq!(device.backend().used(), left * MIB, "{mode:?}");
        graph.capture_end()?;
        device.allocator().empty_cache()?;
        assert_eq!(device.backend().used(), 0);
    }
    Ok(())
}

/// Memory is freed in a capture of another stream than the one that uses it.
fn beside() -> Result<(), Failed> {
    let device = device("")?;
    let (stream, captured, user) = (device.default_stream(), device.stream(0)?, device.stream(0)?);
    let used = device.allocate(20 * MIB, stream)?;
    let place = used.ptr();
    device.backend().hold(user.native());
    let mut graph = Graph::new(device)?;
    graph.capture_begin(captured, None, CaptureMode::default())?;
    used.record_use(user)?;
    drop(used);
    graph.capture_end()?;
    let elsewhere = device.allocate(20 * MIB, stream)?;
    assert_ne!(elsewhere.ptr(), place, "it is still in use");
    device.backend().release(user.native());
    assert_eq!(device.allocate(20 * MIB, stream)?.ptr(), place);
    Ok(())
}

/// The filter of a younger route runs first.
fn ended_route() -> Result<(), Failed> {
    let device = device("")?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let pools = [(); 2].map(|()| MemPool::new(device, MemPoolOptions::default()));
    let [old, young] = [pools[0].as_ref(), pools[1].as_ref()].map(|pool| pool.map_err(|error| error.to_string()));
    let (old, young) = (old?, young?);
    let route = Mutex::new(Some(allocator.begin_allocate_to_pool(old.id(), MemPoolRequests::All)?));
    let filter = move |_| {
        let ended = route.lock().ok().and_then(|mut route| route.take());
        ended.into_iter().for_each(|route| device.allocator().end_allocate_to_pool(route));
        false
    };
    let filtered = allocator.begin_allocate_to_pool(young.id(), MemPoolRequests::Where(Box::new(filter)))?;
    let _outside = device.allocate(MIB, stream)?;
    allocator.end_allocate_to_pool(filtered);
    assert_eq!((old.uses(), young.uses()), (1, 1));
    assert_eq!([old, young].map(|pool| pool.snapshot().segments.len()), [0, 0]);
    assert_eq!(allocator.snapshot().segments.len(), 1);
    Ok(())
}

fn checkpoint_in_a_capture() -> Result<(), Failed> {
    let device = device("")?;
    let (allocator, own, user) = (device.allocator(), device.stream(0)?, device.stream(0)?);
    let pool = MemPool::new(device, MemPoolOptions::default())?;
    let guard = pool.use_pool();
    let used = device.allocate(20 * MIB, own)?;
    drop(guard);
    used.record_use(user)?;
    device.backend().hold(user.native());
    drop(used);
    let mut graph = Graph::new(device)?;
    graph.capture_begin(own, None, CaptureMode::default())?;
    let refused = allocator.checkpoint_pool(pool.id()).map(drop);
    assert!(matches!(refused, Err(Error::MemPool { .. })), "{refused:?}");
    graph.capture_end()?;
    allocator.checkpoint_pool(pool.id())?;
    assert_eq!(allocator.statistics().active_bytes.all.current, 0, "it waited");
    Ok(())
}
