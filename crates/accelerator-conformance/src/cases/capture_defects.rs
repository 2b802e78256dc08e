//! G, captures in which PyTorch hands memory out too early, fails, or depends on addresses: case 106.

use accelerator_core::{Allocation, CaptureMode, Error, MIB, MemPoolId, PoolStat, Stream};

use super::captures::{begin, begin_as, join};
use super::context::{Device, Driver, address};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::{Failure, joined};
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    let case = Case::new(106, "captures_do_the_right_thing", captures_do_the_right_thing);
    vec![case.needs(&[Capability::Graphs]).of_any_policy()]
}

/// Calls that break a capture, unless it is relaxed.
pub(super) const FORBIDDEN: [Call; 7] =
    [Call::IsComplete, Call::WaitHost, Call::Synchronize, Call::IsIdle, Call::Dealloc, Call::Unmap, Call::Destroy];
const REUSE: &str = "graph_capture_record_stream_reuse:True";
const SIZE: u64 = 5 * MIB;

fn captures_do_the_right_thing(context: &Context) -> Outcome {
    deferred_frees_end_in_the_order_of_the_frees(context)?;
    for settings in ["", REUSE] {
        on_device(context, settings, a_use_before_and_in_the_capture_is_awaited)?;
        on_device(context, settings, a_use_before_the_capture_is_not_overtaken)?;
        on_device(context, settings, other_requests_end_no_deferred_free)?;
        on_device(context, settings, captured_uses_leave_no_trace)?;
    }
    on_device(context, "", frees_outside_of_the_capture_await_its_end)?;
    let collects = !context.is_compact(); // which has no garbage collection
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let settings = "garbage_collection_threshold:0.1,per_process_memory_fraction:0.9";
        let is_collected = collects && mode == CaptureMode::Relaxed;
        on_device(context, settings, |device| captures_collect_garbage(device, mode, is_collected))?;
        let settings = "max_split_size_mb:20";
        on_device(context, settings, |device| captures_give_no_oversize_block_back(device, mode))?;
    }
    Ok(())
}

/// Runs a check on a device of its own, which then gives all of its memory back: there are many of them, and some
/// drivers have little memory or address space.
fn on_device<T>(
    context: &Context,
    settings: &str,
    check: impl FnOnce(Device) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let device = context.device_with(128 * MIB, settings)?;
    let checked = check(device)?;
    device.backend().release_all();
    device.synchronize()?;
    device.allocator().empty_cache()?;
    Ok(checked)
}

/// Looks for frees that are due, with a request elsewhere. Returns the bytes that are still in use.
fn in_use(device: Device) -> Result<u64, Error> {
    device.free(device.alloc(512)?)?;
    Ok(device.statistics().active_bytes.all.current.unsigned_abs())
}

/// Ends the work of a stream that was held. Nothing may be in use then.
fn nothing_is_used_after(device: Device, user: Stream<Driver>) -> Outcome {
    device.release(user);
    user.synchronize()?;
    assert_eq!(in_use(device)?, 0);
    Ok(())
}

/// Checks in a capture that the next request does not get the memory of a block that was freed in it.
fn is_not_handed_out(device: Device, place: u64, stream: Stream<Driver>) -> Outcome {
    let next = device.alloc_on(SIZE, stream)?;
    assert_ne!(address(&next), place, "in the capture");
    Ok(device.free(next)?)
}

/// Checks after a capture that its freed block is in use until the work of a stream that was held is over.
fn earlier_work_is_awaited(device: Device, user: Stream<Driver>) -> Outcome {
    assert_eq!(in_use(device)?, SIZE, "the work from before the capture is not over");
    nothing_is_used_after(device, user)
}

fn deferred_frees_end_in_the_order_of_the_frees(context: &Context) -> Outcome {
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [3, 0, 4, 1, 2]] {
        let at_once = on_device(context, "", |device| frees_in_a_capture(device, order, false))?;
        for _ in 0..2 {
            let deferred = on_device(context, "", |device| frees_in_a_capture(device, order, true))?;
            assert_eq!(deferred, at_once, "the blocks are free in the order {order:?}");
        }
    }
    Ok(())
}

/// Frees five neighbours in this order in a capture, and returns the counts of free parts of segments. If another
/// stream used the blocks, the frees take effect after the capture.
fn frees_in_a_capture(device: Device, order: [usize; 5], used: bool) -> Result<[PoolStat; 2], Failure> {
    let [stream, user] = [device.side_stream()?, device.side_stream()?];
    device.free(device.alloc(512)?)?;
    let mut graph = begin(device, stream, None)?;
    join(device, user, stream)?;
    let mut blocks = Vec::new();
    for part in 1..=5 {
        let block = device.alloc_on(part * MIB + MIB, stream)?;
        if used {
            device.allocator().record_use(&block, user)?;
        }
        blocks.push(Some(block));
    }
    device.free_all(order.into_iter().filter_map(|place| blocks[place].take()))?;
    join(device, stream, user)?;
    let pending = device.statistics().active_bytes.all.current;
    assert_eq!(pending, if used { 20 * MIB as i64 } else { 0 });
    graph.capture_end()?;
    assert_eq!(in_use(device)?, 0);
    device.check_consistency();
    let statistics = device.statistics();
    Ok([statistics.inactive_split, statistics.inactive_split_bytes])
}

fn a_use_before_and_in_the_capture_is_awaited(device: Device) -> Outcome {
    let [stream, user] = [device.side_stream()?, device.side_stream()?];
    let pool = device.pool()?;
    let block = device.alloc_in_on(&pool, SIZE, stream)?;
    let place = address(&block);
    device.hold(user);
    device.allocator().record_use(&block, user)?;
    let mut graph = begin(device, stream, Some(pool.id()))?;
    device.allocator().record_use(&block, user)?;
    device.free(block)?;
    is_not_handed_out(device, place, stream)?;
    graph.capture_end()?;
    earlier_work_is_awaited(device, user)
}

/// With the setting for reuse, the graph may order all captured uses, but says nothing of earlier ones.
fn a_use_before_the_capture_is_not_overtaken(device: Device) -> Outcome {
    let [stream, user, joined] = [device.side_stream()?, device.side_stream()?, device.side_stream()?];
    let pool = device.pool()?;
    let block = device.alloc_in_on(&pool, SIZE, stream)?;
    let place = address(&block);
    device.hold(user);
    device.allocator().record_use(&block, user)?;
    let mut graph = begin(device, stream, Some(pool.id()))?;
    device.buffer(512, stream)?.fill(1, stream)?;
    join(device, joined, stream)?;
    device.allocator().record_use(&block, joined)?;
    device.free(block)?;
    join(device, stream, joined)?;
    device.buffer(512, stream)?.fill(1, stream)?;
    is_not_handed_out(device, place, stream)?;
    graph.capture_end()?;
    earlier_work_is_awaited(device, user)
}

fn other_requests_end_no_deferred_free(device: Device) -> Outcome {
    let [stream, user, other] = [device.side_stream()?, device.side_stream()?, device.side_stream()?];
    let mut graph = begin_as(device, stream, None, CaptureMode::Relaxed)?;
    join(device, user, stream)?;
    let block = device.alloc_on(SIZE, stream)?;
    let place = address(&block);
    device.allocator().record_use(&block, user)?;
    device.free(block)?;
    for of_another in [other, device.default_stream()] {
        device.free(device.alloc_on(512, of_another)?)?;
        assert_eq!(device.statistics().active_bytes.all.current, SIZE as i64, "the capture goes on");
    }
    is_not_handed_out(device, place, stream)?;
    join(device, stream, user)?;
    graph.capture_end()?;
    assert_eq!(in_use(device)?, 0);
    Ok(())
}

/// Frees a block after the capture in which it was used. In its next life, it is like any other block.
fn captured_uses_leave_no_trace(device: Device) -> Outcome {
    let [stream, user] = [device.side_stream()?, device.side_stream()?];
    let pool = device.pool()?;
    let mut graph = begin(device, stream, Some(pool.id()))?;
    let block = device.alloc_on(SIZE, stream)?;
    let place = address(&block);
    device.allocator().record_use(&block, user)?;
    graph.capture_end()?;
    device.hold(user);
    device.free(block)?;
    assert_eq!(in_use(device)?, SIZE, "the free came after the capture, so it awaits the stream");
    nothing_is_used_after(device, user)?;

    let again = device.alloc_in_on(&pool, SIZE, stream)?;
    assert_eq!(address(&again), place);
    device.free(again)?;
    assert_eq!(in_use(device)?, 0, "nothing used it");
    let again = device.alloc_in_on(&pool, SIZE, stream)?;
    assert_eq!(address(&again), place);
    device.hold(user);
    device.allocator().record_use(&again, user)?;
    let mut graph = begin(device, stream, Some(pool.id()))?;
    device.free(again)?;
    graph.capture_end()?;
    assert_eq!(in_use(device)?, SIZE, "the use was not captured");
    nothing_is_used_after(device, user)
}

fn frees_outside_of_the_capture_await_its_end(device: Device) -> Outcome {
    let stream = device.side_stream()?;
    let (worked_on, used) = (device.buffer(SIZE, device.default_stream())?, [device.alloc(SIZE)?, device.alloc(SIZE)?]);
    device.free(device.alloc(512)?)?; // so that the driver is asked for no memory during the capture
    let mut graph = begin(device, stream, None)?;
    worked_on.record_use(stream)?;
    device.allocator().record_use(&used[0], stream)?;
    // The current stream of another thread does not capture.
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            device.allocator().record_use(&used[1], stream)?;
            drop(worked_on);
            device.free_all(used)?;
            (0..3).try_for_each(|_| in_use(device).map(|bytes| assert_eq!(bytes, 3 * SIZE, "the capture goes on")))
        });
        joined(elsewhere.join())
    })??;
    graph.capture_end()?;
    in_use(device)?; // The stream is asked for events now.
    stream.synchronize()?;
    assert_eq!(in_use(device)?, 0, "the capture is over");
    device.check_consistency();
    Ok(())
}

/// Returns the calls of a request in a capture, and its result.
fn calls_of_request(
    device: Device,
    pool: Option<MemPoolId>,
    (bytes, stream): (u64, Stream<Driver>),
    mode: CaptureMode,
) -> Result<(Vec<Call>, accelerator_core::Result<Allocation<Driver>>), Failure> {
    let mut graph = begin_as(device, stream, pool, mode)?;
    device.backend().start_log();
    let result = device.alloc_on(bytes, stream);
    let log = device.backend().take_log();
    graph.capture_end()?;
    Ok((log, result))
}

fn captures_collect_garbage(device: Device, mode: CaptureMode, expected: bool) -> Outcome {
    let stream = device.side_stream()?;
    device.free_all([device.alloc_on(30 * MIB, stream)?, device.alloc(40 * MIB)?])?;
    let (log, taken) = calls_of_request(device, None, (20 * MIB, stream), mode)?;
    assert_eq!(log.iter().any(|call| FORBIDDEN.contains(call)), expected, "{mode:?}: {log:?}");
    device.check_consistency();
    Ok(device.free(taken?)?)
}

fn captures_give_no_oversize_block_back(device: Device, mode: CaptureMode) -> Outcome {
    let (stream, pool) = (device.side_stream()?, device.pool()?);
    device.free_all([device.alloc_in_on(&pool, 40 * MIB, stream)?, device.alloc_on(40 * MIB, stream)?])?;
    for pool in [None, Some(pool.id())] {
        let (log, refused) = calls_of_request(device, pool, (80 * MIB, stream), mode)?;
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        assert!(!log.iter().any(|call| FORBIDDEN.contains(call)), "{mode:?}: {log:?}");
        assert_eq!(device.reserved(), 80 * MIB);
        device.check_consistency();
    }
    Ok(())
}
