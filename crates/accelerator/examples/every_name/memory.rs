//! Statistics, limits, settings and histories of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use accelerator::memory::{self, DeviceMemory};
use accelerator::{
    Buffer, ContextsOf, Error, KIB, MIB, PinnedBuffer, Recording, Result, empty_cache, empty_host_cache,
    get_memory_info, max_memory_allocated, max_memory_reserved, memory_allocated, memory_reserved, memory_stats,
    reset_accumulated_memory_stats, reset_peak_memory_stats,
};

pub(crate) fn before_the_first_allocation() -> Result<()> {
    assert!(memory_stats(None)?.is_empty() && memory::statistics(None)?.is_none());
    assert!(memory::host_memory_stats(None)?.is_empty() && memory::host_statistics(None)?.is_none());
    assert_eq!((memory_allocated(None)?, memory_reserved(None)?), (0, 0));
    reset_peak_memory_stats(None)?;
    empty_cache()
}

pub(crate) fn run() -> Result<()> {
    device_statistics()?;
    host_statistics()?;
    limits_and_settings()?;
    histories()?;
    hooks()
}

fn device_statistics() -> Result<()> {
    empty_cache()?;
    reset_peak_memory_stats(None)?;
    reset_accumulated_memory_stats(None)?;
    let buffer = Buffer::allocate(KIB, None)?;
    assert_eq!((memory_allocated(None)?, max_memory_allocated(None)?), (KIB, KIB));
    assert_eq!((memory_reserved(None)?, max_memory_reserved(None)?), (2 * MIB, 2 * MIB));
    let stats = memory_stats(None)?;
    assert_eq!((stats["allocated_bytes.all.current"], stats["num_device_alloc"]), (1024, 1));
    assert_eq!(memory::statistics(None)?.map(|statistics| statistics.allocation.all.current), Some(1));

    let device = DeviceMemory::open(None)?;
    assert_eq!((device.device(), device.statistics().allocation.all.current), (buffer.device(), 1));
    let whole = memory::memory_summary(None)?;
    let abbreviated = memory::memory_summary_abbreviated(None)?;
    assert!(whole.contains("from large pool") && !abbreviated.contains("from large pool"));
    let (private, pools) = (memory::reserved_by_private_pools(None)?, memory::mem_pools(None)?);
    assert_eq!(memory::memory_summary_of(device.device(), &device.statistics(), &private, &pools, false), whole);
    assert_eq!(memory::memory_snapshot()?.segments.len(), 1);

    drop(buffer);
    empty_cache()?;
    assert_eq!((memory_reserved(None)?, max_memory_reserved(None)?), (0, 2 * MIB));
    Ok(())
}

fn host_statistics() -> Result<()> {
    memory::reset_peak_host_memory_stats(None)?;
    memory::reset_accumulated_host_memory_stats(None)?;
    let pinned = PinnedBuffer::allocate(MIB, None)?;
    assert_eq!(memory::host_memory_stats(None)?["active_bytes.current"], 1 << 20);
    assert_eq!(memory::host_statistics(None)?.map(|statistics| statistics.active_bytes.current), Some(1 << 20));
    drop(pinned);
    empty_host_cache()?;
    assert_eq!(memory::host_memory_stats(None)?["allocated_bytes.current"], 0);
    Ok(())
}

fn limits_and_settings() -> Result<()> {
    let info = get_memory_info(None)?;
    assert!(info.free <= info.total);
    assert_eq!(memory::mem_get_info(None)?.1, info.total);
    memory::set_per_process_memory_fraction(0.5, None)?;
    assert_eq!(memory::get_per_process_memory_fraction(None)?, 0.5);
    memory::set_per_process_memory_fraction(1.0, None)?;

    memory::set_allocator_settings("max_split_size_mb:64")?;
    let settings = memory::get_allocator_settings()?;
    assert_eq!(settings.max_split_size, 64 * MIB);
    assert!(settings.to_string().contains("max_split_size_mb:64"));
    memory::set_allocator_settings("")
}

fn histories() -> Result<()> {
    let recording = Recording { max_entries: 100, contexts: ContextsOf::State, capture: None };
    memory::record_history(None, Some(recording))?;
    drop(Buffer::allocate(1, None)?);
    let recorded = memory::histories()?;
    assert!(recorded.iter().any(|(_, history)| !history.entries.is_empty()));
    memory::record_history(None, None)
}

fn hooks() -> Result<()> {
    let (failed, asked) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counts_failed, counts_asked) = (Arc::clone(&failed), Arc::clone(&asked));
    let observer = memory::attach_out_of_memory_observer(None, move |_report| {
        counts_failed.fetch_add(1, Ordering::Relaxed);
    })?;
    let callback = memory::add_free_memory_callback(None, move || {
        counts_asked.fetch_add(1, Ordering::Relaxed);
        false
    })?;
    let too_much = get_memory_info(None)?.total * 2;
    assert!(matches!(Buffer::allocate(too_much, None), Err(Error::OutOfMemory(_))));
    assert_eq!((failed.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)), (1, 1));
    assert!(memory::remove_hook(observer) && memory::remove_hook(callback));
    Ok(())
}
