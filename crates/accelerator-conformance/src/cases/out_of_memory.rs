//! D, the path to an out-of-memory error: cases 43 and 46 to 49.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelerator_core::{Error, GIB, MIB, OutOfMemory, OutOfMemoryCause};

use super::context::{Device, address};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::Failure;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(43, "order_of_the_retries", order_of_the_retries),
        Case::new(46, "oversize_single_release", oversize_single_release),
        Case::new(47, "split_segments_stay", split_segments_stay),
        Case::new(48, "memory_fraction", memory_fraction).of_any_policy(),
        Case::new(49, "message_names_the_cause", message_names_the_cause),
    ]
}

/// Returns the report of an allocation that must fail for lack of memory.
pub(super) fn refusal(device: Device, bytes: u64) -> Result<Box<OutOfMemory>, Failure> {
    match device.alloc(bytes) {
        Err(Error::OutOfMemory(report)) => Ok(report),
        other => Err(format!("expected out of memory for {bytes} bytes, not {other:?}").into()),
    }
}

fn order_of_the_retries(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "")?;
    let other = device.side_stream()?;
    let asked_at = Arc::new(AtomicU64::new(0));
    let callback = {
        let asked_at = Arc::clone(&asked_at);
        move || {
            asked_at.store(device.calls(Call::Alloc), Ordering::Relaxed);
            false
        }
    };
    device.allocator().add_free_memory_callback(callback);
    // 30 MiB are cached for another stream; 20 MiB are freed but still used by it.
    let cached = device.alloc_on(30 * MIB, other)?;
    let used = device.alloc(20 * MIB)?;
    device.allocator().record_use(&used, other)?;
    device.hold(other);
    device.free_all([cached, used])?;

    device.backend().start_log();
    let allocs = device.calls(Call::Alloc);
    let taken = device.alloc(40 * MIB)?;
    assert_eq!(asked_at.load(Ordering::Relaxed), allocs, "callbacks are called before the driver");
    let log = device.backend().take_log();
    let expected = [
        Call::IsCapturing, // events are queried first, unless the stream is being captured
        Call::IsComplete,
        Call::Alloc,
        Call::WaitHost, // refused: wait for the pending block, release all cached segments, try once more
        Call::Dealloc,
        Call::Dealloc,
        Call::Alloc,
    ];
    assert_eq!(log, expected);
    let statistics = device.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms, statistics.num_sync_all_streams), (1, 0, 1));
    device.release(other);

    // With nothing to release, the order is the same and ends in the error.
    device.backend().start_log();
    refusal(device, 40 * MIB)?;
    assert_eq!(device.backend().take_log(), [Call::Alloc, Call::Alloc, Call::MemoryInfo]);
    let statistics = device.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms, statistics.num_sync_all_streams), (2, 1, 2));
    device.check_consistency();
    Ok(device.free(taken)?)
}

fn oversize_single_release(context: &Context) -> Outcome {
    let device = context.device_with(122 * MIB, "max_split_size_mb:20")?;
    let cached = [device.alloc(22 * MIB)?, device.alloc(30 * MIB)?, device.alloc(60 * MIB)?];
    device.free_all(cached)?;
    // The 60 MiB block is too large for this request to use, but its release makes enough room.
    device.backend().start_log();
    let taken = device.alloc(40 * MIB)?;
    assert_eq!(device.backend().take_log(), [Call::Alloc, Call::Dealloc, Call::Alloc]);
    assert_eq!(device.reserved(), (22 + 30 + 40) * MIB, "only one segment is released");
    device.free(taken)?;

    // No single block is large enough, so blocks are released from the largest down until there is room.
    let taken = device.alloc(66 * MIB)?;
    assert_eq!(device.reserved(), (22 + 66) * MIB, "40 and 30 MiB are released, 22 MiB stay");
    let statistics = device.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_sync_all_streams), (0, 0), "nothing was waited for");
    device.check_consistency();
    Ok(device.free(taken)?)
}

fn split_segments_stay(context: &Context) -> Outcome {
    let device = context.device_with(60 * MIB, "")?;
    let [live, rest, whole] = [device.alloc(2 * MIB)?, device.alloc(8 * MIB)?, device.alloc(30 * MIB)?];
    let place = address(&live);
    device.free_all([rest, whole])?;
    let taken = device.alloc(40 * MIB)?;
    let snapshot = device.allocator().snapshot();
    assert_eq!(snapshot.segments.len(), 2);
    assert!(snapshot.segments.iter().any(|segment| segment.address == place), "the split segment must stay");
    let report = refusal(device, 40 * MIB)?;
    assert_eq!((report.reserved, report.largest_cached), (60 * MIB, 18 * MIB));
    device.check_consistency();
    Ok(device.free_all([live, taken])?)
}

fn memory_fraction(context: &Context) -> Outcome {
    let device = context.device_with(200 * MIB, "")?;
    let total = device.properties().total_memory;
    assert_eq!(total, 200 * MIB, "the device must have at least this much memory");
    let allocator = device.allocator();
    assert_eq!(allocator.memory_fraction(), 1.0);
    for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY, -f64::INFINITY] {
        assert!(matches!(allocator.set_memory_fraction(wrong), Err(Error::InvalidFraction(_))), "{wrong}");
        assert_eq!(allocator.memory_fraction(), 1.0, "nothing changed");
    }

    allocator.set_memory_fraction(0.5)?;
    let half = device.alloc(100 * MIB)?;
    let report = refusal(device, 512)?;
    assert_eq!((report.cause, report.allowed), (OutOfMemoryCause::Limit, Some(100 * MIB)));
    device.free(half)?;
    refusal(device, 100 * MIB + 1)?;
    assert_eq!(device.reserved(), 0, "the cache was released to stay within the limit");

    let kept = device.alloc(50 * MIB)?;
    allocator.set_memory_fraction(0.0)?;
    assert_eq!(refusal(device, 512)?.cause, OutOfMemoryCause::Limit);
    device.free(kept)?;
    let taken = || device.calls(Call::Alloc) + device.calls(Call::Create);
    let before = taken();
    let again = device.alloc(50 * MIB)?;
    assert_eq!(taken(), before, "cached memory is used regardless of the fraction");

    allocator.set_memory_fraction(1.0)?;
    let rest = device.alloc(150 * MIB)?;
    assert_eq!(device.reserved(), total);
    let report = refusal(device, 512)?;
    assert_eq!((report.cause, report.allowed), (OutOfMemoryCause::Device, None));
    device.check_consistency();
    Ok(device.free_all([again, rest])?)
}

fn message_names_the_cause(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "")?;
    let (live, free) = (device.alloc(5 * MIB)?, device.alloc(3 * MIB)?);
    device.free(free)?;

    let report = refusal(device, GIB)?;
    assert_eq!(report.cause, OutOfMemoryCause::Device);
    assert_eq!((report.requested, report.segment), (GIB, GIB));
    assert_eq!((report.total, report.allowed), (Some(64 * MIB), None));
    assert!(report.free.is_some_and(|free| free <= 44 * MIB));
    assert_eq!((report.allocated, report.reserved, report.largest_cached), (5 * MIB, 20 * MIB, 15 * MIB));
    let text = report.to_string();
    for part in ["tried to allocate 1.00 GiB", "The device has no room", "5.00 MiB is allocated"] {
        assert!(text.contains(part), "`{part}` in: {text}");
    }
    assert!(text.contains("15.00 MiB is reserved but unallocated"), "{text}");
    assert!(!text.contains("fraction"), "no fraction is set: {text}");

    device.allocator().set_memory_fraction(0.5)?;
    let report = refusal(device, 17 * MIB)?;
    assert_eq!((report.cause, report.allowed), (OutOfMemoryCause::Limit, Some(32 * MIB)));
    assert_eq!(report.segment, 18 * MIB);
    let text = report.to_string();
    for part in ["The memory fraction does not allow it", "The memory fraction allows 32.00 MiB"] {
        assert!(text.contains(part), "`{part}` in: {text}");
    }
    assert!(text.contains("tried to allocate 17.00 MiB (a segment of 18.00 MiB)"), "{text}");
    Ok(device.free(live)?)
}
