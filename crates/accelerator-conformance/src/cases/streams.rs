//! C, blocks and the streams that use them: cases 31 to 38 and 40 to 42.

use accelerator_core::{BlockState, MIB};

use super::context::{Device, address, holds};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::joined;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(31, "same_stream_reuses_at_once", same_stream_reuses_at_once),
        Case::new(32, "another_stream_never_gets_it", another_stream_never_gets_it),
        Case::new(33, "recorded_use_delays_the_reuse", recorded_use_delays_the_reuse).of_any_policy(),
        Case::new(34, "recording_the_own_stream_is_nothing", recording_the_own_stream).of_any_policy(),
        Case::new(35, "recorded_twice_counts_once", recorded_twice_counts_once).of_any_policy(),
        Case::new(36, "recorded_then_stream_dropped", recorded_then_stream_dropped).of_any_policy(),
        Case::new(37, "free_requested_and_completed", free_requested_and_completed).of_any_policy(),
        Case::new(38, "slow_stream_holds_back_no_other", slow_stream_holds_back_no_other).of_any_policy(),
        Case::new(40, "free_on_another_thread", free_on_another_thread).of_any_policy(),
        Case::new(41, "same_stream_makes_no_event", same_stream_makes_no_event),
        Case::new(42, "safe_calls_note_their_use", safe_calls_note_their_use)
            .of_any_policy()
            .needs(&[Capability::Bytes]),
    ]
}

fn same_stream_reuses_at_once(context: &Context) -> Outcome {
    let device = context.device()?;
    for stream in [device.default_stream(), device.side_stream()?] {
        device.hold(stream); // the stream's state does not matter, since its later work is ordered behind
        for size in [700, 3 * MIB, 15 * MIB] {
            let first = device.alloc_on(size, stream)?;
            let (place, calls) = (address(&first), device.all_calls());
            device.free(first)?;
            let second = device.alloc_on(size, stream)?;
            assert_eq!((address(&second), device.all_calls()), (place, calls), "{size} bytes");
            device.free(second)?;
        }
    }
    Ok(())
}

fn another_stream_never_gets_it(context: &Context) -> Outcome {
    let device = context.device()?;
    let (one, two) = (device.side_stream()?, device.side_stream()?);
    let first = device.alloc_on(MIB, one)?;
    let place = address(&first);
    device.free(first)?;
    let second = device.alloc_on(MIB, two)?;
    let segments = device.allocator().snapshot().segments;
    assert_eq!(segments.len(), 2, "each stream has its own segments");
    for segment in &segments {
        let expected = if segment.address == place { one.id() } else { two.id() };
        assert_eq!(segment.stream, expected);
    }
    let third = device.alloc_on(MIB, one)?;
    assert_eq!(address(&third), place, "its own stream reuses the block");
    device.check_consistency();
    Ok(device.free_all([second, third])?)
}

fn recorded_use_delays_the_reuse(context: &Context) -> Outcome {
    let device = context.device()?;
    let user = device.side_stream()?;
    device.hold(user);
    let used = device.alloc(MIB)?;
    let place = address(&used);
    device.allocator().record_use(&used, user)?;
    device.free(used)?;
    let other = device.alloc(MIB)?;
    assert_ne!(address(&other), place, "no reuse while the other stream may still use it");
    device.release(user);
    device.synchronize()?;
    let again = device.alloc(MIB)?;
    assert_eq!(address(&again), place, "reused once the other stream is done");
    device.free_all([other, again])?;
    device.check_consistency();

    if context.offers(Capability::Bytes) {
        late_reader_sees_its_bytes(device)?;
    }
    Ok(())
}

fn late_reader_sees_its_bytes(device: Device) -> Outcome {
    let (own, reader) = (device.default_stream(), device.side_stream()?);
    let mut copy = device.filled(3 * MIB, 0)?;
    let source = device.filled(3 * MIB, 1)?;
    device.hold(reader);
    copy.copy_from(&source, reader)?;
    drop(source);
    let mut next = device.buffer(3 * MIB, own)?;
    next.fill(2, own)?;
    own.synchronize()?;
    device.release(reader);
    holds(&copy, 1, reader, "the late copy read memory that had been reused")?;
    Ok(())
}

fn recording_the_own_stream(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.side_stream()?;
    device.hold(stream);
    let first = device.alloc_on(MIB, stream)?;
    let (place, calls) = (address(&first), device.all_calls());
    device.allocator().record_use(&first, stream)?;
    device.free(first)?;
    let second = device.alloc_on(MIB, stream)?;
    assert_eq!((address(&second), device.all_calls()), (place, calls));
    Ok(device.free(second)?)
}

fn recorded_twice_counts_once(context: &Context) -> Outcome {
    let device = context.device()?;
    let (one, two) = (device.side_stream()?, device.side_stream()?);
    let used = device.alloc(MIB)?;
    for user in [one, two, one, one, two] {
        device.allocator().record_use(&used, user)?;
    }
    device.hold(one);
    device.hold(two);
    device.free(used)?;
    assert_eq!(device.calls(Call::Record), 2, "one event per stream");
    device.release(two);
    two.synchronize()?;
    device.free_all([device.alloc(512)?])?;
    assert_eq!(device.statistics().active_bytes.all.current, MIB as i64, "both streams must be done");
    device.release(one);
    one.synchronize()?;
    device.free_all([device.alloc(512)?])?;
    assert_eq!(device.statistics().active_bytes.all.current, 0);
    device.check_consistency();
    Ok(())
}

fn recorded_then_stream_dropped(context: &Context) -> Outcome {
    let device = context.device()?;
    let used = device.alloc(MIB)?;
    let user = {
        let user = device.dedicated_stream(0)?;
        device.hold(user);
        device.allocator().record_use(&used, user)?;
        user.id()
    };
    device.free(used)?;
    device.free_all([device.alloc(512)?])?;
    assert_eq!(device.statistics().active_bytes.all.current, MIB as i64, "the use outlives the stream's handle");
    let user = device.stream_by_id(user).ok_or("the stream outlives its handle")?;
    device.release(user);
    user.synchronize()?;
    device.free_all([device.alloc(512)?])?;
    assert_eq!(device.statistics().active_bytes.all.current, 0);
    Ok(())
}

fn free_requested_and_completed(context: &Context) -> Outcome {
    let device = context.device()?;
    let user = device.side_stream()?;
    device.hold(user);
    let used = device.alloc(1_000)?;
    device.allocator().record_use(&used, user)?;
    let in_numbers = || {
        let statistics = device.statistics();
        let (allocated, active) = (statistics.allocated_bytes.all.current, statistics.active_bytes.all.current);
        [allocated, active, statistics.requested_bytes.all.current, statistics.active.all.current]
    };
    let state = || {
        let segments = device.allocator().snapshot().segments;
        segments.first().and_then(|segment| segment.blocks.first()).map(|block| block.state)
    };
    assert_eq!((in_numbers(), state()), ([1_024, 1_024, 1_000, 1], Some(BlockState::Allocated)));
    device.free(used)?;
    assert_eq!((in_numbers(), state()), ([0, 1_024, 1_000, 1], Some(BlockState::PendingFree)));
    device.check_consistency();
    device.release(user);
    user.synchronize()?;
    assert_eq!(in_numbers(), [0, 1_024, 1_000, 1], "the block is pending until the next call polls");
    let trigger = device.alloc(3 * MIB)?;
    assert_eq!(in_numbers(), [3 * MIB as i64, 3 * MIB as i64, 3 * MIB as i64, 1]);
    device.free(trigger)?;
    device.check_consistency();
    Ok(())
}

fn slow_stream_holds_back_no_other(context: &Context) -> Outcome {
    let device = context.device()?;
    let (slow, fast) = (device.side_stream()?, device.side_stream()?);
    device.hold(slow);
    let (for_slow, for_fast) = (device.alloc(9 * MIB)?, device.alloc(9 * MIB)?);
    let place = address(&for_fast);
    device.allocator().record_use(&for_slow, slow)?;
    device.allocator().record_use(&for_fast, fast)?;
    device.free_all([for_slow, for_fast])?;
    fast.synchronize()?;
    let waits = device.calls(Call::WaitHost);
    let next = device.alloc(9 * MIB)?;
    assert_eq!(address(&next), place, "the fast stream's block must be free, though freed after the slow one's");
    assert_eq!(device.calls(Call::WaitHost), waits, "nothing was waited for");
    assert_eq!(device.statistics().active.all.current, 2);
    device.free(next)?;
    device.release(slow);
    Ok(())
}

fn free_on_another_thread(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.side_stream()?;
    let first = device.alloc_on(MIB, stream)?;
    let place = address(&first);
    let buffer = device.buffer(MIB, stream)?;
    let freed = std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            drop(buffer);
            device.free(first)
        });
        other.join()
    });
    joined(freed)??;
    assert_eq!(device.statistics().allocation.all.current, 0);
    let again = device.alloc_on(MIB, stream)?;
    assert_eq!(address(&again), place);
    device.check_consistency();
    Ok(device.free(again)?)
}

fn same_stream_makes_no_event(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.side_stream()?;
    let calls = device.all_calls();
    for round in 0..100 {
        let allocation = device.alloc_on(1 + round * 10, stream)?;
        device.free(allocation)?;
        drop(device.buffer(1 + round, stream)?);
    }
    assert_eq!(device.all_calls() - calls, 1, "the only driver call allocates one segment");
    assert_eq!(device.calls(Call::Alloc), 1);
    Ok(())
}

fn safe_calls_note_their_use(context: &Context) -> Outcome {
    const SIZE: u64 = 3 * MIB;
    let device = context.device()?;
    let (own, user) = (device.default_stream(), device.side_stream()?);
    for call in ["fill", "copy to", "copy from", "write", "read"] {
        let (mut buffer, mut other) = (device.filled(SIZE, 1)?, device.filled(SIZE, 2)?);
        let place = buffer.ptr();
        device.hold(user);
        match call {
            "fill" => buffer.fill(3, user)?,
            "copy to" => buffer.copy_from(&other, user)?,
            "copy from" => other.copy_from(&buffer, user)?,
            "write" => buffer.write(0, &[4; 100], user)?,
            _ => buffer.read(0, &mut [0; 100], user)?,
        }
        drop(buffer);
        // Reads and writes have waited for the stream already, but the block is free only once an event recorded after
        // them is polled.
        let pending = device.statistics().active_bytes.all.current - device.statistics().allocated_bytes.all.current;
        assert_eq!(pending, SIZE as i64, "`{call}` must record its use");
        let next = device.buffer(SIZE, own)?;
        assert_ne!(next.ptr(), place, "`{call}`: the memory must not be reused");
        drop((next, other));
        device.release(user);
        device.synchronize()?;
        device.allocator().empty_cache()?;
    }
    Ok(())
}
