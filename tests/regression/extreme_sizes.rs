//! Settings and sizes that caused overflows.

use std::num::NonZeroU64;

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, Error, MIB, OutOfMemoryCause};

#[test]
fn a_segment_holds_its_block_whatever_is_set() {
    for size in [0, 512, 2 * MIB + 1, u64::MAX] {
        let config = AllocatorConfig { large_segment_size: size, ..AllocatorConfig::default() };
        let device = Accelerator::new(Sim::default(), 0, config).unwrap();
        match device.allocate(9 * MIB, device.default_stream()) {
            Ok(_buffer) => {
                for segment in device.allocator().snapshot().segments {
                    let blocks: u64 = segment.blocks.iter().map(|block| block.size).sum();
                    assert_eq!(blocks, segment.total_size);
                    assert!(segment.total_size >= 9 * MIB && segment.total_size % 512 == 0);
                }
            }
            Err(error) => assert!(matches!(error, Error::OutOfMemory(_)) && size == u64::MAX, "{error}"),
        }
    }
}

/// Block sizes from PyTorch 2.15's allocator under the same setting.
#[test]
fn more_divisions_than_fit_round_to_powers_of_two() {
    let settings = "roundup_power2_divisions:36028797018963968";
    let config = AllocatorConfig::default().updated(settings).unwrap();
    let device = Accelerator::new(Sim::default(), 0, config).unwrap();
    for (requested, size) in [(300, 512), (5_000, 8_192), (3_000_000, 4_194_304)] {
        let buffer = device.allocate(requested, device.default_stream()).unwrap();
        assert_eq!(buffer.block_size(), size);
    }
}

#[test]
fn sums_beyond_what_statistics_count_wrap_and_live_memory_beyond_it_is_refused() {
    const LARGEST: u64 = (1 << 60) - 4 * MIB;
    let device = Accelerator::new(Sim::new(u64::MAX), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    for _ in 0..20 {
        drop(device.allocate(LARGEST, stream).unwrap());
    }
    let statistics = device.allocator().statistics();
    assert_eq!(statistics.allocated_bytes.all.current, 0);
    assert_eq!(statistics.allocated_bytes.all.allocated, statistics.allocated_bytes.all.freed);

    let mut live = Vec::new();
    let refusal = loop {
        match device.allocate(LARGEST, stream) {
            Ok(buffer) => live.push(buffer),
            Err(error) => break error,
        }
        assert!(live.len() < 10);
    };
    assert!(matches!(refusal, Error::OutOfMemory(report) if report.cause == OutOfMemoryCause::Device));
    drop(live);
    // A peak so close to the largest number leaves no room for sums.
    drop(device.allocate(1, stream).unwrap());
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

/// The size wrapped to 0, so a debug build panicked, and a release build gave out an empty block.
#[test]
fn a_size_that_no_device_has_was_allocated_at_an_address() {
    let device = Accelerator::new(Sim::default(), 0, AllocatorConfig::default()).unwrap();
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let allocation = allocator.allocate(NonZeroU64::new(512).unwrap(), stream).unwrap();
    let ptr = allocation.ptr();
    allocator.free(allocation).unwrap();
    let before = (allocator.statistics(), allocator.snapshot());
    for bytes in [1 << 60, u64::MAX - 510, u64::MAX] {
        match allocator.allocate_at(ptr, NonZeroU64::new(bytes).unwrap(), stream) {
            Err(Error::OutOfMemory(report)) => assert_eq!(report.cause, OutOfMemoryCause::TooLarge),
            other => unreachable!("{bytes} bytes: {other:?}"),
        }
        assert_eq!((allocator.statistics(), allocator.snapshot()), before);
    }
    let largest = NonZeroU64::new((1 << 60) - 1).unwrap();
    assert!(allocator.allocate_at(ptr, largest, stream).unwrap().is_none(), "no block is so large");
}

/// The largest whole number of MiB was taken for no limit, which has the same text, and was not written.
#[test]
fn a_size_close_to_no_limit_was_lost_when_settings_were_written() {
    let read = |text: &str| AllocatorConfig::default().updated(text).unwrap();
    for key in ["max_split_size_mb", "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"] {
        let config = read(&format!("{key}:18446744073709551615"));
        assert_ne!(config, AllocatorConfig::default());
        assert_eq!(config.to_string(), format!("{key}:17592186044415"));
        assert_eq!(read(&config.to_string()), config);
    }
    assert_eq!(AllocatorConfig::default().to_string(), "");
}

/// The limit was rounded up to whole blocks on the ladder.
#[test]
fn a_limit_of_splitting_near_the_largest_number_overflows_nothing() {
    let config = AllocatorConfig { max_split_size: u64::MAX - 1, ..AllocatorConfig::default() };
    let device = Accelerator::new(Sim::new(100 * MIB), 0, config).unwrap();
    let stream = device.default_stream();
    let free = device.allocate(20 * MIB, stream).unwrap();
    let kept = device.allocate(20 * MIB, stream).unwrap();
    drop(free);
    assert!(matches!(device.allocate(90 * MIB, stream), Err(Error::OutOfMemory(_))));
    drop(kept);
}
