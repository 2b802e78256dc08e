//! E, cache control: cases 55 to 60.

use accelerator_core::{BlockState, Error, KIB, MIB};

use super::context::{Device, address};
use super::out_of_memory::refusal;
use super::{Case, Context, Outcome};
use crate::calls::Call;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(55, "empty_cache", empty_cache),
        Case::new(56, "garbage_collection", garbage_collection),
        Case::new(57, "oversize_blocks", oversize_blocks),
        Case::new(58, "rounding", rounding).of_any_policy(),
        Case::new(59, "settings", settings),
        Case::new(60, "cache_off", cache_off).of_any_policy(),
    ]
}

fn empty_cache(context: &Context) -> Outcome {
    let device = context.device()?;
    let (own, user) = (device.default_stream(), device.side_stream()?);
    let split = [device.alloc(3 * MIB)?, device.alloc(3 * MIB)?];
    let whole = [device.alloc(30 * MIB)?, device.alloc_on(500, user)?];
    let used = device.alloc(15 * MIB)?;
    device.allocator().record_use(&used, user)?;
    device.hold(user);
    let [live, half] = split;
    let place = address(&live);
    device.free_all(whole)?;
    device.free_all([half, used])?;

    device.backend().start_log();
    device.allocator().empty_cache()?;
    let log = device.backend().take_log();
    assert_eq!(log.iter().filter(|call| **call == Call::Dealloc).count(), 3);
    assert_eq!(log[0], Call::WaitHost, "the pending block is waited for first");
    let segments = device.allocator().snapshot().segments;
    assert_eq!(segments.len(), 1, "the split segment stays: {segments:?}");
    assert_eq!((segments[0].address, segments[0].stream), (place, own.id()));
    device.check_consistency();
    device.release(user);
    device.free(live)?;
    device.allocator().empty_cache()?;
    assert_eq!(device.reserved(), 0);
    device.backend().start_log();
    device.allocator().empty_cache()?;
    assert_eq!(device.backend().take_log(), [], "a second call has nothing to do");
    Ok(())
}

fn garbage_collection(context: &Context) -> Outcome {
    // The limit is 200 MiB; collection starts at 100 MiB.
    let settings = "per_process_memory_fraction:0.5,garbage_collection_threshold:0.5";
    let device = context.device_with(400 * MIB, settings)?;
    let sizes = [30 * MIB, 32 * MIB, 34 * MIB, 3 * MIB, 3 * MIB];
    let [old, middle, young, live, half] = sizes.map(|size| device.alloc(size));
    let (old, middle, young, live, half) = (old?, middle?, young?, live?, half?);
    let young_place = address(&young);
    device.free_all([old, half])?;
    // The age of a free block is counted in allocation requests.
    for _ in 0..10 {
        device.free_all([device.alloc(2 * MIB)?])?;
    }
    device.free_all([middle, young])?;

    device.backend().start_log();
    let next = device.alloc(40 * MIB)?;
    assert_eq!(
        device.backend().take_log(),
        [Call::Dealloc, Call::Alloc],
        "collected before asking the driver, without a wait"
    );
    let segments = device.allocator().snapshot().segments;
    // By size: the driver may return the same address for the new segment.
    assert!(!segments.iter().any(|segment| segment.total_size == 30 * MIB), "the oldest segment is released");
    assert!(segments.iter().any(|segment| segment.address == young_place), "the youngest segment stays");
    let inactive = |segment: &accelerator_core::SegmentSnapshot| {
        segment.blocks.iter().filter(|block| block.state == BlockState::Inactive).count()
    };
    assert!(segments.iter().any(|segment| segment.blocks.len() > 1 && inactive(segment) > 0), "split segments stay");
    assert_eq!(device.statistics().num_alloc_retries, 0);
    device.check_consistency();
    device.free_all([next, live])?;

    // Below the threshold nothing is collected.
    let device = context.device_with(400 * MIB, settings)?;
    let old = device.alloc(30 * MIB)?;
    device.free(old)?;
    for _ in 0..10 {
        device.free_all([device.alloc(2 * MIB)?])?;
    }
    device.free_all([device.alloc(40 * MIB)?])?;
    assert_eq!(device.calls(Call::Dealloc), 0);
    Ok(())
}

fn oversize_blocks(context: &Context) -> Outcome {
    let device = context.device_with(400 * MIB, "max_split_size_mb:20,max_non_split_rounding_mb:20")?;
    assert_eq!(device.statistics().max_split_size, 20 * MIB as i64);
    let large = device.alloc(60 * MIB)?;
    let place = address(&large);
    let oversize = || {
        let statistics = device.statistics();
        (statistics.oversize_allocations.current, statistics.oversize_segments.current)
    };
    assert_eq!(oversize(), (1, 1));
    device.free(large)?;
    assert_eq!(oversize(), (0, 1));
    // Pairs of a request and whether it may have the 60 MiB block, which is never split and serves only oversize
    // requests that are less than 20 MiB smaller.
    for (bytes, may) in [(5 * MIB, false), (19 * MIB, false), (40 * MIB, false), (40 * MIB + 1, true), (59 * MIB, true)]
    {
        let taken = device.alloc(bytes)?;
        assert_eq!(address(&taken) == place, may, "{bytes} bytes");
        assert!(!may || taken.size() == 60 * MIB, "not split");
        device.free(taken)?;
        device.check_consistency();
    }
    Ok(())
}

fn rounding(context: &Context) -> Outcome {
    let device = context.device_with(256 * MIB, "")?;
    let number = "roundup_power2_divisions:4";
    let table = "roundup_power2_divisions:[1:4,4:8,>:1]";
    for (settings, bytes, block) in [
        ("", 5_000, 5_120),
        // Four steps between powers of two, for requests of more than 4 × 512 bytes.
        (number, 1_200, 1_536),
        (number, 2_048, 2_048),
        (number, 2_049, 2_560),
        (number, 5_000, 5_120),
        (number, 100 * KIB, 112 * KIB),
        (number, 112 * KIB, 112 * KIB),
        (number, 112 * KIB + 1, 128 * KIB),
        (number, 33 * MIB, 40 * MIB),
        // The first entry also applies to all smaller sizes; from 2 MiB on there are no divisions; from 4 MiB on there
        // are eight steps.
        (table, 100 * KIB, 112 * KIB),
        (table, MIB + 100 * KIB, MIB + 256 * KIB),
        (table, 2 * MIB + 100, 2 * MIB + 512),
        (table, 4 * MIB + 1, 4 * MIB + 512 * KIB),
        (table, 8 * MIB + 1, 8 * MIB + 512),
    ] {
        device.allocator().set_config(context.config(settings)?);
        let allocation = device.alloc(bytes)?;
        assert_eq!(allocation.size(), block, "{bytes} bytes under `{settings}`");
        assert_eq!(device.statistics().requested_bytes.all.current, bytes as i64);
        device.check_consistency();
        device.free(allocation)?;
    }
    Ok(())
}

fn settings(context: &Context) -> Outcome {
    let device = context.device_with(256 * MIB, "max_split_size_mb:40")?;
    let allocator = device.allocator();
    let before = allocator.config();
    for (wrong, named) in [
        ("nonsense:1", "nonsense"),
        ("max_split_size_mb:5", "max_split_size_mb"),
        ("max_split_size_mb:many", "max_split_size_mb"),
        ("max_split_size_mb:", "max_split_size_mb"),
        ("max_split_size_mb", "max_split_size_mb"),
        ("large_segment_size_mb:10", "large_segment_size_mb"),
        ("garbage_collection_threshold:1", "garbage_collection_threshold"),
        ("garbage_collection_threshold:0", "garbage_collection_threshold"),
        ("per_process_memory_fraction:1.5", "per_process_memory_fraction"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions"),
        ("roundup_power2_divisions:[4:2", "roundup_power2_divisions"),
        ("throw_on_cudamalloc_oom:true", "throw_on_cudamalloc_oom"),
        ("caching:1", "caching"),
        (",", "key"),
    ] {
        match before.updated(wrong) {
            Err(Error::InvalidSetting { variable, settings, reason }) => {
                assert_eq!((variable, settings.as_str()), (None, wrong));
                assert!(reason.contains(named), "`{named}` in: {reason}");
            }
            other => return Err(format!("expected an error for `{wrong}`, not {other:?}").into()),
        }
    }
    assert_eq!(allocator.config(), before);

    // Settings that a new string omits return to their defaults, and the change applies from the next call on.
    let config = before.updated(" roundup_power2_divisions : 2 ,\tlarge_segment_size_mb:30")?;
    assert_eq!(config.max_split_size, u64::MAX, "omitted, so back to the default");
    let (first, second) = (device.alloc(5_000)?, device.side_stream()?);
    assert_eq!(first.size(), 5_120);
    allocator.set_config(config);
    let changed = [device.alloc(5_000)?, device.alloc_on(5_000, second)?];
    assert!(changed.iter().all(|allocation| allocation.size() == 6_144), "on streams made before and after");
    let large = device.alloc(5 * MIB)?;
    assert_eq!(device.statistics().reserved_bytes.large_pool.current, 30 * MIB as i64);
    device.free_all(changed)?;
    device.check_consistency();
    Ok(device.free_all([first, large])?)
}

fn cache_off(context: &Context) -> Outcome {
    let device = context.device_with(256 * MIB, "caching:False")?;
    for bytes in [1, 513, MIB, 3 * MIB + 1, 15 * MIB] {
        let (allocs, deallocs) = (device.calls(Call::Alloc), device.calls(Call::Dealloc));
        let allocation = device.alloc(bytes)?;
        assert_eq!((device.calls(Call::Alloc), device.calls(Call::Dealloc)), (allocs + 1, deallocs));
        assert_eq!(device.reserved(), bytes.next_multiple_of(512), "exactly what was requested");
        device.check_consistency();
        device.free(allocation)?;
        assert_eq!(device.calls(Call::Dealloc), deallocs + 1, "returned to the driver at once");
        assert_eq!(device.reserved(), 0);
    }
    // Memory that another stream still uses goes back once that stream is done with it.
    let user = device.side_stream()?;
    device.hold(user);
    let used = device.alloc(MIB)?;
    device.allocator().record_use(&used, user)?;
    device.free(used)?;
    assert_eq!(device.reserved(), MIB);
    device.release(user);
    user.synchronize()?;
    device.free_all([device.alloc(512)?])?;
    assert_eq!(device.reserved(), 0);

    refusal(device, 300 * MIB)?;
    switched_on_again(device)
}

fn switched_on_again(device: Device) -> Outcome {
    let live = device.alloc(3 * MIB)?;
    device.allocator().set_config(device.allocator().config().updated("caching:True")?);
    device.free(live)?;
    assert_eq!(device.reserved(), 3 * MIB, "cached from now on");
    device.check_consistency();
    Ok(())
}
