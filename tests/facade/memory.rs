//! Statistics, cache, limits and observers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelerator::host::Host;
use accelerator::memory::{self, memory_allocated, memory_reserved, memory_stats};
use accelerator::{Accelerator, Buffer, DeviceArg, Error, MIB, OutOfMemoryCause, current_stream, synchronize};

use crate::process::{host, processes};

processes! { on_host:
    fn a_device_that_nobody_used_has_no_statistics() {
        for device in [DeviceArg::Current, DeviceArg::Index(1), DeviceArg::from("host:2")] {
            let device = || device.clone();
            assert!(memory_stats(device())?.is_empty());
            assert!(memory::statistics(device())?.is_none());
            assert_eq!(memory_allocated(device())?, 0);
            assert_eq!(memory::max_memory_allocated(device())?, 0);
            assert_eq!(memory_reserved(device())?, 0);
            assert_eq!(memory::max_memory_reserved(device())?, 0);
            memory::reset_peak_memory_stats(device())?;
            memory::reset_accumulated_memory_stats(device())?;
            synchronize(device())?;
        }
        memory::empty_cache()?;
        memory::empty_host_cache()?;
        assert!(memory::memory_snapshot()?.segments.is_empty());
        assert!(memory::memory_summary(1)?.contains("host:1"));
        assert!((0..3).all(|index| Accelerator::<Host>::opened(index).is_none()), "none of this opens a device");

        let _buffer = Buffer::allocate(1, 1)?;
        assert!(Accelerator::<Host>::opened(0).is_none() && Accelerator::<Host>::opened(1).is_some());
        assert!(memory_stats(0)?.is_empty());
        assert!(!memory_stats(1)?.is_empty());
        current_stream(2)?;
        assert!(memory_stats(2)?.is_empty(), "opened, but not used");
    }

    fn statistics_are_those_of_the_device() {
        let buffer = Buffer::allocate(1024, "host:1")?;
        let freed = Buffer::allocate(600, 1)?;
        assert_eq!((buffer.len(), freed.len(), freed.block_size()), (1024, 600, 1024));
        drop(freed);
        assert_eq!(memory_allocated(1)?, 1024);
        assert_eq!(memory::max_memory_allocated(1)?, 2048);
        assert_eq!(memory_reserved(1)?, 2 * MIB);
        assert_eq!(memory_allocated(None)?, 0, "another device");

        let stats = memory_stats(1)?;
        assert_eq!(stats["allocated_bytes.all.current"], 1024);
        assert_eq!(stats["requested_bytes.small_pool.allocated"], 1624);
        assert_eq!(stats["allocation.all.freed"], 1);
        assert_eq!(stats["num_device_alloc"], 1);
        let names: BTreeSet<_> = stats.keys().filter_map(|key| key.strip_prefix("allocation.")).collect();
        assert_eq!(names.len(), 12);
        for name in names {
            assert_eq!(stats[&format!("allocated.{name}")], stats[&format!("allocation.{name}")], "{name}");
        }

        memory::reset_peak_memory_stats(1)?;
        memory::reset_accumulated_memory_stats(1)?;
        let stats = memory_stats(1)?;
        assert_eq!(stats["allocated_bytes.all.peak"], 1024);
        assert_eq!(stats["allocated_bytes.all.allocated"], 0);
        assert_eq!(stats["num_device_alloc"], 0);

        let snapshot = memory::memory_snapshot()?;
        assert_eq!(snapshot.segments.len(), 1);
        assert_eq!((snapshot.segments[0].device, snapshot.segments[0].allocated_size), (host(1), 1024));
    }

    fn requests_of_exactly_1_mib_are_small() {
        let differences = include_str!("../../docs/architecture/differences-from-pytorch.md");
        let stated = "PyTorch's code puts sizes up to and including 1 MiB into the small pool; we follow the code.";
        assert!(differences.contains(stated), "the documents no longer say what is tested here: {stated}");
        let [small, large] = ["allocation.small_pool.current", "allocation.large_pool.current"];
        let _small = Buffer::allocate(MIB, None)?;
        let stats = memory_stats(None)?;
        assert_eq!((stats[small], stats[large]), (1, 0));
        let _large = Buffer::allocate(MIB + 1, None)?;
        let stats = memory_stats(None)?;
        assert_eq!((stats[small], stats[large]), (1, 1));
    }

    fn empty_cache_empties_all_devices() {
        for device in 0..3 {
            drop(Buffer::allocate(1, device)?);
            assert_eq!(memory_reserved(device)?, 2 * MIB);
        }
        memory::empty_cache()?;
        for device in 0..3 {
            assert_eq!(memory_reserved(device)?, 0);
            memory::reset_accumulated_memory_stats(device)?;
            memory::reset_peak_memory_stats(device)?;
            assert!(!memory_stats(device)?.is_empty(), "a used device stays used");
        }
    }

    fn memory_info_and_fraction(ACCELERATOR_HOST_CAPACITY = "64MiB") {
        assert_eq!(memory::mem_get_info(None)?, (64 * MIB, 64 * MIB));
        let held = Buffer::allocate(10 * MIB, None)?;
        let info = memory::get_memory_info("host")?;
        assert_eq!((info.free, info.total), (54 * MIB, 64 * MIB));

        assert_eq!(memory::get_per_process_memory_fraction(None)?, 1.0);
        memory::set_per_process_memory_fraction(0.25, None)?;
        assert_eq!(memory::get_per_process_memory_fraction(None)?, 0.25);
        let error = Buffer::allocate(10 * MIB, None).unwrap_err();
        assert!(matches!(&error, Error::OutOfMemory(report) if report.cause == OutOfMemoryCause::Limit), "{error}");
        for bad in [-0.1, 1.1, f64::NAN] {
            let refused = memory::set_per_process_memory_fraction(bad, None);
            assert!(matches!(refused, Err(Error::InvalidFraction(_))));
        }
        assert_eq!(memory::get_per_process_memory_fraction(None)?, 0.25);
        drop(Buffer::allocate(40 * MIB, 1)?); // the other device has no such limit
        drop(held);
    }

    fn summaries_are_whole_unless_abbreviated() {
        let _buffer = Buffer::allocate(1, None)?;
        let (whole, abbreviated) = (memory::memory_summary(None)?, memory::memory_summary_abbreviated(None)?);
        assert!(whole.contains("Memory summary of host:0") && whole.contains("from large pool"));
        assert!(abbreviated.contains("Memory summary of host:0") && !abbreviated.contains("from large pool"));
        assert!(whole.lines().count() > abbreviated.lines().count());
    }

    fn settings_in_force_are_told(ACCELERATOR_ALLOC_CONF = "large_segment_size_mb:30") {
        assert_eq!(memory::get_allocator_settings()?.large_segment_size, 30 * MIB, "set by the environment");
        memory::set_allocator_settings("max_split_size_mb:64")?;
        let settings = memory::get_allocator_settings()?;
        assert_eq!((settings.max_split_size, settings.large_segment_size), (64 * MIB, 30 * MIB));
        assert!(settings.to_string().contains("max_split_size_mb:64"), "{settings}");
        let opened = accelerator::typed::<Host>(0)?.allocator().config();
        assert_eq!(opened, settings, "a device opened now has the same settings");
        assert!(memory::set_allocator_settings("no_such_key:1").is_err());
        assert_eq!(memory::get_allocator_settings()?, settings);
    }

    fn observers_and_callbacks_are_per_device(ACCELERATOR_HOST_CAPACITY = "64MiB") {
        let (ooms, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let observer = {
            let ooms = Arc::clone(&ooms);
            memory::attach_out_of_memory_observer(1, move |report| {
                assert_eq!((report.device, report.requested), (host(1), 100 * MIB));
                ooms.fetch_add(1, Ordering::Relaxed);
            })?
        };
        let callback = {
            let asked = Arc::clone(&asked);
            memory::add_free_memory_callback(1, move || {
                asked.fetch_add(1, Ordering::Relaxed);
                false
            })?
        };
        let counts = || (ooms.load(Ordering::Relaxed), asked.load(Ordering::Relaxed));
        assert!(matches!(Buffer::allocate(100 * MIB, 0), Err(Error::OutOfMemory(_))));
        assert_eq!(counts(), (0, 0));
        assert!(matches!(Buffer::allocate(100 * MIB, 1), Err(Error::OutOfMemory(_))));
        assert_eq!(counts(), (1, 1));
        assert_eq!(memory_stats(1)?["num_ooms"], 1);
        drop(Buffer::allocate(MIB, 1)?); // the device stays usable
        assert!(memory::remove_hook(observer) && memory::remove_hook(callback));
        assert!(!memory::remove_hook(observer));
        let before = counts();
        assert!(Buffer::allocate(100 * MIB, 1).is_err());
        assert_eq!(counts(), before);
    }
}
