//! Pinned host memory.

use accelerator::host::Host;
use accelerator::memory::{self, host_memory_stats};
use accelerator::{Accelerator, Buffer, Error, MIB, PinnedBuffer, Stream, StreamGuard, current_stream};
use accelerator_conformance::Sim;

use crate::process::{host, processes};

processes! { on_host:
    fn a_device_whose_pinned_memory_nobody_used_has_no_statistics() {
        memory::empty_host_cache()?;
        for device in 0..3 {
            assert!(host_memory_stats(device)?.is_empty());
            assert!(memory::host_statistics(device)?.is_none());
            memory::reset_peak_host_memory_stats(device)?;
            memory::reset_accumulated_host_memory_stats(device)?;
        }
        assert!((0..3).all(|index| Accelerator::<Host>::opened(index).is_none()), "none of this opens a device");

        drop(Buffer::allocate(1, 1)?);
        assert!(host_memory_stats(1)?.is_empty(), "the two allocators are separate");
        drop(PinnedBuffer::allocate(0, 1)?);
        assert!(host_memory_stats(1)?.is_empty(), "0 bytes need no memory");
        drop(PinnedBuffer::allocate(1, 1)?);
        assert!(!host_memory_stats(1)?.is_empty() && host_memory_stats(0)?.is_empty());
    }

    fn statistics_have_the_names_of_pytorch() {
        let kept = PinnedBuffer::allocate(1_000, None)?;
        drop(PinnedBuffer::allocate(3_000, None)?);
        let stats = host_memory_stats(None)?;
        for (name, value) in [
            ("active_bytes.current", 1_024),
            ("active_bytes.peak", 5_120),
            ("active_requests.freed", 1),
            ("allocated_bytes.current", 5_120),
            ("allocations.current", 2),
            ("num_host_alloc", 2),
            ("num_host_free", 0),
            ("host_alloc_time.count", 2),
        ] {
            assert_eq!(stats[name], value, "{name}");
        }
        assert_eq!(stats.len(), 28);
        let times = ["total", "max", "min", "avg"].map(|metric| stats[&format!("host_alloc_time.{metric}")]);
        assert!(times.iter().all(|time| *time >= 0) && times[1] <= times[0], "{times:?}");

        memory::empty_host_cache()?;
        memory::reset_peak_host_memory_stats(None)?;
        memory::reset_accumulated_host_memory_stats(None)?;
        let stats = host_memory_stats(None)?;
        assert_eq!((stats["allocated_bytes.current"], stats["allocated_bytes.peak"]), (1_024, 1_024));
        assert_eq!((stats["num_host_alloc"], stats["host_free_time.count"]), (0, 0));
        assert_eq!(kept.block_size(), 1_024);
    }

    fn copies_run_on_the_current_stream() {
        let numbers: Vec<u32> = (0..100_000).collect();
        let source = PinnedBuffer::from_slice(&numbers, None)?;
        assert_eq!((source.device(), source.len()), (host(0), 400_000));
        let side = Stream::new(None)?;
        let mut buffer = Buffer::allocate(source.len(), None)?;
        let mut copy = PinnedBuffer::allocate(source.len() / 2, None)?;
        let on_side = StreamGuard::new(&side)?;
        buffer.copy_from_pinned(0, &source, 0..source.len())?;
        buffer.copy_to_pinned(200_000..400_000, &mut copy, 0)?;
        drop(on_side);
        drop(source);
        assert_eq!(copy.slice::<u32>()?, &numbers[50_000..]);
        copy.slice_mut::<u64>()?[0] = 7;
        assert_eq!(copy.bytes()?[..8], 7_u64.to_ne_bytes());
        copy.bytes_mut()?.fill(1);
        current_stream(None)?.wait_stream(&side)?;
        assert_eq!(buffer.to_vec::<u32>()?, numbers, "the host's later writes did not reach the copy");

        let outside = buffer.copy_from_pinned(0, &copy, 0..copy.len() + 1);
        assert!(matches!(outside, Err(Error::OutOfBounds { .. })));
        assert!(matches!(copy.slice::<[u8; 3]>(), Err(Error::ElementSize { size: 200_000, element: 3 })));
    }

    fn memory_of_another_device_is_refused() {
        let mut elsewhere = PinnedBuffer::allocate(8, 1)?;
        let mut buffer = Buffer::allocate(8, 0)?;
        let refused = |result| matches!(result, Err(Error::DeviceMismatch { .. }));
        assert!(refused(buffer.copy_from_pinned(0, &elsewhere, 0..8)));
        assert!(refused(buffer.copy_to_pinned(0..8, &mut elsewhere, 0)));
        assert!(refused(elsewhere.record_stream(&current_stream(0)?)));
        elsewhere.record_stream(&current_stream(1)?)?;
        assert!(refused(elsewhere.typed::<Sim>().map(drop)));
        assert!(refused(elsewhere.typed_mut::<Sim>().map(drop)));
        assert_eq!(elsewhere.typed::<Host>()?.len(), 8);
        assert!(matches!(PinnedBuffer::allocate(1, 9), Err(Error::InvalidDevice { .. })));
        assert!(matches!(PinnedBuffer::allocate(u64::MAX, 0), Err(Error::HostOutOfMemory(_))));
    }

    fn settings_reach_pinned_memory(ACCELERATOR_ALLOC_CONF = "pinned_max_round_threshold_mb:1") {
        let odd = MIB + 8;
        assert_eq!(PinnedBuffer::allocate(odd, None)?.block_size(), odd, "set by the environment");
        memory::set_allocator_settings("pinned_max_cached_size_mb:0")?;
        for device in 0..2 {
            drop(PinnedBuffer::allocate(9, device)?);
            let stats = host_memory_stats(device)?;
            assert_eq!(stats["num_host_free"], 1, "nothing is cached, whether the device was opened before or not");
        }
        memory::empty_host_cache()?;
        assert_eq!(host_memory_stats(0)?["allocated_bytes.current"], 0);
    }
}
