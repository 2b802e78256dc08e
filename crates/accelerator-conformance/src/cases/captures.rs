//! G, private pools of graphs: cases 72 and 73.
#![allow(unsafe_code)] // `Graph::replay`

use accelerator_core::{Backend, Buffer, CaptureMode, Error, Graph, Graphs, MIB, MemPoolId, Stream};

use super::context::{Device, Driver, address, holds};
use super::mem_pools::is_refused;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    const NEEDS: &[Capability] = &[Capability::Graphs];
    vec![
        Case::new(72, "captured_addresses_stay", captured_addresses_stay).needs(NEEDS).of_any_policy(),
        Case::new(73, "no_event_query_while_capturing", no_event_query_while_capturing).needs(NEEDS),
    ]
}

const SIZE: u64 = 3 * MIB;

pub(super) fn begin(device: Device, stream: Stream<Driver>, pool: Option<MemPoolId>) -> Result<Graph<Driver>, Failure> {
    begin_as(device, stream, pool, CaptureMode::default())
}

pub(super) fn begin_as(
    device: Device,
    stream: Stream<Driver>,
    pool: Option<MemPoolId>,
    mode: CaptureMode,
) -> Result<Graph<Driver>, Failure> {
    let mut graph = Graph::new(device.accelerator())?;
    graph.capture_begin(stream, pool, mode)?;
    Ok(graph)
}

fn pool_of(graph: &Graph<Driver>) -> Result<MemPoolId, Failure> {
    Ok(graph.pool().ok_or("a graph that captures has a pool")?)
}

/// Makes `stream` wait for the work of `other` so far, so that it takes part in a capture of `other`.
pub(super) fn join(device: Device, stream: Stream<Driver>, other: Stream<Driver>) -> Outcome {
    Ok(device.recorded(other)?.wait(stream)?)
}

fn captured_addresses_stay(context: &Context) -> Outcome {
    let device = context.device()?;
    replays_touch_only_the_pool(context, device)?;
    pools_of_graphs(device)?;
    device.allocator().empty_cache()?;
    assert_eq!(device.reserved(), 0);
    device.check_consistency();
    let collection = "garbage_collection_threshold:0.1,per_process_memory_fraction:0.9";
    for settings in ["caching:False", "max_split_size_mb:20", "reclaim_live_pools:True", collection] {
        memory_of_a_graph_stays(context.device_with(64 * MIB, settings)?, settings)?;
    }
    Ok(())
}

/// Whatever the settings, memory that a capture freed does not go back to the driver while the graph exists.
fn memory_of_a_graph_stays(device: Device, settings: &str) -> Outcome {
    let (stream, pool) = (device.side_stream()?, device.pool()?);
    let mut graph = begin(device, stream, Some(pool.id()))?;
    let captured = device.alloc_on(30 * MIB, stream)?;
    let place = address(&captured);
    device.free(captured)?;
    graph.capture_end()?;

    let guard = pool.use_pool();
    assert!(matches!(device.alloc_on(40 * MIB, stream), Err(Error::OutOfMemory(_))), "in the pool, `{settings}`");
    drop(guard);
    assert!(matches!(device.alloc(40 * MIB), Err(Error::OutOfMemory(_))), "elsewhere, `{settings}`");
    device.allocator().empty_cache()?;
    let segments = pool.snapshot().segments;
    assert!(segments.len() == 1 && segments[0].address == place, "the graph still writes there, `{settings}`");
    drop(graph);
    pool.trim()?;
    assert_eq!(device.reserved(), 0, "without the graph, the pool may be trimmed");
    Ok(())
}

fn replays_touch_only_the_pool(context: &Context, device: Device) -> Outcome {
    let (stream, allocator) = (device.side_stream()?, device.allocator());
    let has_bytes = context.offers(Capability::Bytes);
    // Blocks outside of the graph's pool would serve its requests.
    device.free_all([device.alloc_on(SIZE, stream)?, device.alloc(SIZE)?])?;
    let before = allocator.snapshot().segments.len();
    let mut graph = begin(device, stream, None)?;
    let id = pool_of(&graph)?;
    assert_eq!(allocator.pool_uses(id), 1);
    let mut out = device.buffer(SIZE, stream)?;
    let mut first = device.buffer(SIZE, stream)?;
    let place = first.ptr();
    first.fill(5, stream)?;
    out.copy_from(&first, stream)?;
    drop(first);
    let mut second = device.buffer(SIZE, stream)?;
    assert_eq!(second.ptr(), place, "later requests of the capture reuse what it freed");
    second.fill(6, stream)?;
    drop(second);
    let outside = device.alloc(SIZE)?;
    assert_eq!(device.pool_of(&outside), Some(MemPoolId::DEFAULT), "a stream that does not capture");
    graph.capture_end()?;
    assert_eq!(allocator.snapshot().segments.len(), before + 1, "the pool has one segment");
    device.check_consistency();

    // Nobody outside of the pool gets the memory that the capture freed, and it does not go back.
    allocator.empty_cache()?;
    allocator.empty_pool_cache(id)?;
    assert!(is_refused(allocator.trim_pool(id), id), "the graph uses the memory");
    assert_eq!(allocator.pool_snapshot(id).segments.len(), 1);
    let mut others = Vec::new();
    for nth in 0..8 {
        let other = device.alloc_on(SIZE, if nth % 2 == 0 { stream } else { device.default_stream() })?;
        assert_eq!(device.pool_of(&other), Some(MemPoolId::DEFAULT));
        device.free(other)?;
        others.push(device.buffer(SIZE, stream)?);
        assert_ne!(others.last().and_then(Buffer::ptr), place, "the graph still writes there");
    }
    if has_bytes {
        others.iter_mut().try_for_each(|other| other.fill(9, stream))?;
        for _ in 0..3 {
            out.fill(0, stream)?;
            // SAFETY: The graph uses only the memory of its pool. All work is on one stream.
            unsafe { graph.replay(stream) }?;
            holds(&out, 5, stream, "a replay must write what was captured")?;
        }
        others.iter().try_for_each(|other| holds(other, 9, stream, "a replay must write only to its pool"))?;
    }
    drop(others);
    device.free(outside)?;

    // The allocation outlives the graph.
    graph.reset()?;
    assert_eq!((graph.pool(), allocator.pool_uses(id)), (None, 0));
    allocator.empty_cache()?;
    if has_bytes {
        holds(&out, 5, stream, "memory outlives its graph")?;
    }
    drop(out);
    allocator.empty_cache()?;
    assert_eq!(device.reserved(), 0);
    Ok(())
}

fn pools_of_graphs(device: Device) -> Outcome {
    let (stream, allocator) = (device.side_stream()?, device.allocator());
    // Two graphs share a pool. A guard within a capture sends requests to another pool, which the graph then holds.
    let mut one = begin(device, stream, None)?;
    let id = pool_of(&one)?;
    device.free(device.alloc_on(SIZE, stream)?)?;
    one.capture_end()?;
    let mut two = begin(device, stream, Some(id))?;
    assert_eq!((pool_of(&two)?, allocator.pool_uses(id)), (id, 2));
    let pool = device.pool()?;
    let guard = pool.use_pool();
    let inner = device.alloc_on(SIZE, stream)?;
    assert_eq!(device.pool_of(&inner), Some(pool.id()), "the youngest route wins");
    drop(guard);
    let own = device.alloc_on(SIZE, stream)?;
    assert_eq!((device.pool_of(&own), allocator.pool_snapshot(id).segments.len()), (Some(id), 1), "the shared block");
    device.free_all([inner, own])?;
    let checkpoint = allocator.checkpoint_pool(id)?;
    let refused = allocator.restore_pool(&checkpoint, Vec::new());
    assert!(is_refused(refused, id), "no pool is set back during a capture");
    two.capture_end()?;

    let inner = pool.id();
    assert_eq!(pool.uses(), 2, "the handle and the graph");
    assert!(is_refused(pool.trim(), inner), "the graph uses the memory");
    drop(pool);
    drop(one);
    allocator.empty_cache()?;
    assert_eq!((allocator.pool_uses(id), allocator.pool_uses(inner)), (1, 1));
    assert_eq!((allocator.pool_snapshot(id).segments.len(), allocator.pool_snapshot(inner).segments.len()), (1, 1));
    drop(two);
    assert_eq!((allocator.pool_uses(id), allocator.pool_uses(inner)), (0, 0));

    // A graph has one capture, and a capture that is given up leaves nothing.
    let mut graph = begin(device, stream, None)?;
    let id = pool_of(&graph)?;
    let kept = device.alloc_on(SIZE, stream)?;
    assert!(matches!(graph.capture_begin(stream, None, CaptureMode::default()), Err(Error::Graph { .. })));
    // SAFETY: It fails before anything is submitted.
    assert!(matches!(unsafe { graph.replay(stream) }, Err(Error::Graph { .. })));
    drop(graph);
    assert_eq!(allocator.pool_uses(id), 0);
    device.free(kept)?;
    let after = device.alloc_on(SIZE, stream)?;
    assert_eq!(device.pool_of(&after), Some(MemPoolId::DEFAULT), "the stream captures no more");
    device.check_consistency();
    Ok(device.free(after)?)
}

fn no_event_query_while_capturing(context: &Context) -> Outcome {
    for settings in ["", "graph_capture_record_stream_reuse:True"] {
        let device = context.device_with(128 * MIB, settings)?;
        let [stream, side, user] = [device.side_stream()?, device.side_stream()?, device.side_stream()?];
        // An event is pending on the stream that will capture, and memory is cached.
        let used = device.alloc_on(15 * MIB, stream)?;
        device.allocator().record_use(&used, user)?;
        device.hold(user);
        device.free_all([used, device.alloc(40 * MIB)?])?;

        let mut graph = begin(device, stream, None)?;
        device.backend().start_log();
        let ordered = uses_in_a_capture(device, stream, side)?;
        let refused = device.alloc_on(70 * MIB, stream);
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        let caught = device.allocator().empty_cache();
        let log = device.backend().take_log();
        caught?;
        let forbidden = [Call::IsComplete, Call::WaitHost, Call::Synchronize, Call::IsIdle, Call::Dealloc];
        assert!(!log.iter().any(|call| forbidden.contains(call)), "the capture goes on without these: {log:?}");
        graph.capture_end()?;
        device.check_consistency();

        // The frees of the capture have taken effect once it is over.
        let pool = pool_of(&graph)?;
        let pending = || device.allocator().pool_snapshot(pool).segments.iter().map(|one| one.active_size).sum::<u64>();
        device.free_all([device.alloc(512)?])?;
        assert_eq!(pending(), 0, "with `{settings}`, {ordered} of the frees came before the end");
        device.release(user);
        user.synchronize()?;
        drop(graph);
        device.allocator().empty_cache()?;
        assert_eq!(device.reserved(), 0);
    }
    uses_outside_the_capture(context)
}

/// Frees blocks in a capture that a stream outside of it uses. Work on a buffer runs, so it is awaited. A use that the
/// allocator is told of counts as captured, as in PyTorch.
fn uses_outside_the_capture(context: &Context) -> Outcome {
    let device = context.device()?;
    let [stream, outside] = [device.side_stream()?, device.side_stream()?];
    let (worked_on, told_of) = (device.buffer(SIZE, stream)?, device.alloc_on(SIZE, stream)?);
    device.hold(outside);
    let mut graph = begin(device, stream, None)?;
    worked_on.record_use(outside)?;
    device.allocator().record_use(&told_of, outside)?;
    let bytes = worked_on.block_size();
    drop(worked_on);
    device.free(told_of)?;
    graph.capture_end()?;
    let pending = || {
        device.free(device.alloc(512)?)?;
        Ok::<_, Failure>(device.statistics().active_bytes.all.current.unsigned_abs())
    };
    assert_eq!(pending()?, bytes, "the block that work uses waits for it, and the other one for nothing");
    device.release(outside);
    outside.synchronize()?;
    assert_eq!(pending()?, 0, "the work is over");
    Ok(())
}

/// Frees blocks in a capture that two of its streams used. Returns how many of them were reused in the capture.
fn uses_in_a_capture(device: Device, stream: Stream<Driver>, side: Stream<Driver>) -> Result<u32, Failure> {
    let allocator = device.allocator();
    join(device, side, stream)?;
    let block = device.alloc_on(SIZE, stream)?;
    let place = address(&block);
    device.buffer(512, stream)?.fill(1, stream)?;
    allocator.record_use(&block, side)?;
    device.free(block)?;
    let next = device.alloc_on(SIZE, stream)?;
    assert_ne!(address(&next), place, "the other stream may still use it");

    let marked =
        device.backend().graphs().map_or(Ok(None), |graphs: &dyn Graphs<Driver>| graphs.mark(side.native()))?;
    join(device, stream, side)?;
    let ordered = device.alloc_on(SIZE, stream)?;
    let reuses = allocator.config().graph_capture_record_stream_reuse && marked.is_some();
    assert_eq!(address(&ordered) == place, reuses, "the other stream's use comes before this one's");
    device.free_all([next, ordered])?;
    Ok(u32::from(reuses))
}
