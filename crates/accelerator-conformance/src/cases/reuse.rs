//! C and D, reuse after a wait on the device, an option that PyTorch does not have: cases 39, 44 and 45.

use accelerator_core::{BlockState, MIB};

use super::context::{address, holds};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::suite::Capability;

const DEVICE_SIDE_REUSE: &str = "device_side_reuse:True";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(39, "reuse_behind_a_device_side_wait", reuse_behind_a_device_side_wait),
        Case::new(44, "block_freed_by_waiting_is_found", block_freed_by_waiting_is_found),
        Case::new(45, "only_needed_events_are_waited_for", only_needed_events_are_waited_for),
    ]
}

fn reuse_behind_a_device_side_wait(context: &Context) -> Outcome {
    const SIZE: u64 = 3 * MIB;
    let device = context.device_with(64 * MIB, DEVICE_SIDE_REUSE)?;
    let (own, consumer) = (device.default_stream(), device.side_stream()?);
    if !context.offers(Capability::Bytes) {
        let used = device.alloc(15 * MIB)?;
        let place = address(&used);
        device.allocator().record_use(&used, consumer)?;
        device.hold(consumer);
        device.free(used)?;
        let next = device.alloc(15 * MIB)?;
        assert_eq!(address(&next), place);
        assert!(!device.recorded(own)?.is_complete()?, "its stream must wait for the consumer");
        device.release(consumer);
        return Ok(device.free(next)?);
    }
    // There are two copies, since free memory in the source's segment would serve the request without any wait.
    let mut copy = device.filled(SIZE, 0)?;
    let source = device.filled(SIZE, 1)?;
    let rest = device.filled(20 * MIB - 2 * SIZE, 9)?;
    let place = source.ptr();
    device.hold(consumer);
    copy.copy_from(&source, consumer)?;
    drop(source);
    let (waits, host_waits) = (device.calls(Call::Wait), device.calls(Call::WaitHost));
    let mut next = device.buffer(SIZE, own)?;
    assert_eq!(next.ptr(), place, "the block is reused at once");
    assert_eq!(device.calls(Call::Wait) - waits, 1, "there is one wait on the device");
    assert_eq!(device.calls(Call::WaitHost), host_waits, "there is no wait on the host");
    next.fill(2, own)?;
    let filled = device.recorded(own)?;
    assert!(!filled.is_complete()?, "the new owner must wait for the consumer");
    device.release(consumer);
    holds(&copy, 1, consumer, "the consumer must read the original bytes")?;
    holds(&next, 2, own, "the next buffer keeps its bytes")?;
    holds(&rest, 9, own, "the rest keeps its bytes")?;
    device.check_consistency();
    Ok(())
}

fn block_freed_by_waiting_is_found(context: &Context) -> Outcome {
    let device = context.device_with(20 * MIB, DEVICE_SIDE_REUSE)?;
    let user = device.side_stream()?;
    // One segment fills the device. It cannot be released, because part of it is live.
    let (used, kept) = (device.alloc(9 * MIB)?, device.alloc(9 * MIB)?);
    let place = address(&used);
    device.allocator().record_use(&used, user)?;
    device.hold(user);
    device.free(used)?;
    let allocs = device.calls(Call::Alloc);
    let next = device.alloc(8 * MIB)?;
    assert_eq!(address(&next), place, "no new segment is needed");
    assert_eq!(device.calls(Call::Alloc), allocs);
    let statistics = device.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms), (0, 0));
    device.release(user);
    device.check_consistency();
    Ok(device.free_all([next, kept])?)
}

fn only_needed_events_are_waited_for(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, DEVICE_SIDE_REUSE)?;
    let (one, two) = (device.side_stream()?, device.side_stream()?);
    device.hold(one);
    device.hold(two);
    let (larger, smaller) = (device.alloc(14 * MIB)?, device.alloc(12 * MIB)?);
    let (place, kept) = (address(&smaller), address(&larger));
    device.allocator().record_use(&larger, one)?;
    device.allocator().record_use(&smaller, two)?;
    device.free_all([larger, smaller])?;
    let next = device.alloc(11 * MIB)?;
    assert_eq!(address(&next), place, "the smallest block that is large enough is taken");
    assert_eq!((device.calls(Call::Wait), device.calls(Call::WaitHost)), (1, 0), "one wait, on the device");
    let snapshot = device.allocator().snapshot();
    let other = snapshot.segments.iter().find(|segment| segment.address == kept).ok_or("the other segment")?;
    assert_eq!(other.blocks[0].state, BlockState::PendingFree, "the other block stays pending");
    device.check_consistency();
    device.release(one);
    device.release(two);
    Ok(device.free(next)?)
}
