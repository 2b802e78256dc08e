//! Private memory pools.
#![allow(unsafe_code)] // a source of segments

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use accelerator::core::{DevicePtr, DriverResult};
use accelerator::host::Host;
use accelerator::memory::{self, memory_reserved, memory_stats};
use accelerator::vulkan::Vulkan;
use accelerator::{
    Accelerator, Backend, Buffer, DriverError, DriverErrorKind, Error, Keep, MIB, MemPool, MemPoolId, MemPoolOptions,
    MemPoolRequests, SegmentSource, Stream, empty_cache, use_mem_pool,
};

use crate::process::processes;

/// Returns the pool that a buffer's segment belongs to.
fn pool_of(buffer: &Buffer) -> MemPoolId {
    let segments = memory::memory_snapshot().unwrap().segments;
    let address = buffer.typed::<Host>().unwrap().ptr().unwrap().trace_address();
    let holds = |start: u64, size: u64| (start..start + size).contains(&address);
    segments.iter().find(|segment| holds(segment.address, segment.total_size)).unwrap().mem_pool
}

processes! { on_host:
    fn only_the_requests_under_a_guard_go_to_the_pool() {
        let pool = MemPool::new(1)?;
        assert_eq!((pool.device().to_string().as_str(), pool.use_count()), ("host:1", 1));
        let before = Buffer::allocate(1024, 1)?;
        let guard = use_mem_pool(&pool);
        assert_eq!(pool.use_count(), 2);
        let (inside, elsewhere) = (Buffer::allocate(1024, 1)?, Buffer::allocate(1024, 0)?);
        let of_another_thread = thread::spawn(|| Buffer::allocate(1024, 1)).join().unwrap()?;
        drop(guard);
        let after = Buffer::allocate(1024, 1)?;

        assert_eq!(pool_of(&inside), pool.id());
        for buffer in [&before, &elsewhere, &of_another_thread, &after] {
            assert_eq!(pool_of(buffer), MemPoolId::DEFAULT);
        }
        assert_eq!(pool.snapshot(), memory::pool_snapshot(pool.id(), 1)?);
        assert_eq!(pool.snapshot().segments.len(), 1);
        assert_eq!(memory::pool_snapshot(pool.id(), 0)?.segments, []);
        assert_eq!(memory::pool_snapshot(pool.id(), 2)?.segments, [], "a device that is not open");
    }

    fn of_nested_guards_the_youngest_wins() {
        let (outer, inner) = (MemPool::new(None)?, MemPool::new(None)?);
        let _outer = use_mem_pool(&outer);
        {
            let _inner = use_mem_pool(&inner);
            assert_eq!(pool_of(&Buffer::allocate(1, None)?), inner.id());
        }
        assert_eq!(pool_of(&Buffer::allocate(1, None)?), outer.id());
    }

    fn requests_are_chosen_by_stream_and_by_function() {
        let pool = MemPool::new(None)?;
        let (chosen, other) = (Stream::new(None)?, Stream::new(None)?);
        for requests in [
            MemPoolRequests::Stream(chosen),
            MemPoolRequests::Where(Box::new(move |stream| stream == chosen.id())),
        ] {
            let _guard = pool.use_for(requests)?;
            let of_thread = thread::spawn(move || Buffer::allocate_on(1, &chosen)).join().unwrap()?;
            assert_eq!(pool_of(&of_thread), pool.id(), "on any thread");
            assert_eq!(pool_of(&Buffer::allocate_on(1, &other)?), MemPoolId::DEFAULT);
        }
        let _guard = pool.use_for(MemPoolRequests::All)?;
        assert_eq!(pool_of(&Buffer::allocate_on(1, &other)?), pool.id());
        let wrong = pool.use_for(MemPoolRequests::Stream(Stream::new(1)?));
        assert!(matches!(wrong, Err(Error::DeviceMismatch { .. })));
    }

    fn memory_stays_in_a_pool_until_it_is_trimmed_or_dropped() {
        let pool = MemPool::new(None)?;
        let allocate = || {
            let _guard = use_mem_pool(&pool);
            Buffer::allocate(4 * MIB, None)
        };
        drop(allocate()?);
        empty_cache()?;
        memory::empty_pool_cache(pool.id(), None)?;
        assert_eq!(memory_reserved(None)?, 20 * MIB, "the pool is in use");
        pool.trim()?;
        assert_eq!(memory_reserved(None)?, 0);

        let (kept, id) = (allocate()?, pool.id());
        drop(pool);
        assert_eq!(memory_reserved(None)?, 20 * MIB);
        drop(kept);
        memory::empty_pool_cache(id, None)?;
        assert_eq!(memory_reserved(None)?, 0);
    }

    fn statistics_list_what_each_pool_holds() {
        let (first, second) = (MemPool::new(None)?, MemPool::new(None)?);
        assert!(memory::reserved_by_private_pools(None)?.is_empty());
        drop({ let _guard = use_mem_pool(&first); Buffer::allocate(1, None)? });
        let kept = { let _guard = use_mem_pool(&second); Buffer::allocate(12 * MIB, None)? };
        let keys = [&first, &second].map(|pool| format!("reserved_bytes_by_private_pools.{}", pool.id()));
        let stats = memory_stats(None)?;
        assert_eq!(stats[&format!("{}.all.current", keys[0])], 2 << 20);
        assert_eq!(stats[&format!("{}.small_pool.peak", keys[0])], 2 << 20);
        assert_eq!(stats[&format!("{}.large_pool.current", keys[1])], 12 << 20);
        assert_eq!(stats["reserved_bytes.all.current"], 14 << 20);
        assert_eq!(memory::reserved_by_private_pools(None)?[&second.id()].all.current, 12 << 20);
        let row = |id: MemPoolId| {
            let summary = memory::memory_summary(None).unwrap();
            let line = summary.lines().find(|line| line.contains(&format!("Private pool {id} ")))?.to_owned();
            assert_eq!(Some(line.len()), summary.lines().next().map(str::len), "{summary}");
            Some(line.split('|').nth(2)?.trim().to_owned())
        };
        assert_eq!(row(second.id()).as_deref(), Some("12288 KiB"));
        let id = second.id();
        drop((second, kept));
        empty_cache()?;
        assert_eq!(row(id), None);
        assert_eq!(memory::reserved_by_private_pools(None)?[&id].all.current, 0, "a pool that is gone stays listed");
    }

    fn a_summary_has_names_and_what_is_paused() {
        let named = |name: &str| {
            let options = MemPoolOptions { name: Some(name.into()), pausable: true, ..MemPoolOptions::default() };
            MemPool::with_options(None, options)
        };
        let long = "a_name_that_is_wider_than_the_column";
        let (weights, cache) = (named("weights")?, named(long)?);
        assert_eq!((weights.name().as_deref(), cache.name().as_deref()), (Some("weights"), Some(long)));
        let kept = { let _guard = use_mem_pool(&weights); Buffer::allocate(12 * MIB, None)? };
        let other = { let _guard = use_mem_pool(&cache); Buffer::allocate(2 * MIB, None)? };
        let rows = || -> Vec<(String, String)> {
            let summary = memory::memory_summary(None).unwrap();
            let width = summary.chars().position(|c| c == '\n');
            assert!(summary.lines().all(|line| Some(line.chars().count()) == width), "{summary}");
            let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
            summary.lines().map(cells).filter(|cells| cells.len() > 3).map(|mut cells| {
                (std::mem::take(&mut cells[1]), std::mem::take(&mut cells[2]))
            }).collect()
        };
        let value = |name: &str| rows().into_iter().find(|row| row.0 == name).map(|row| row.1);
        let label = format!("weights ({})", weights.id());
        assert_eq!(value(&label).as_deref(), Some("12288 KiB"));
        let short = rows().into_iter().find(|row| row.0.ends_with(&format!("… ({})", cache.id()))).unwrap();
        assert!(short.0.starts_with("a_name_that") && short.0.chars().count() == 21, "{short:?}");
        assert_eq!((value("paused"), memory_stats(None)?["paused_bytes"]), (None, 0));

        let paused = weights.pause(Keep::Nothing)?;
        assert_eq!(memory_stats(None)?["paused_bytes"].unsigned_abs(), paused.bytes);
        assert_eq!(memory::statistics(None)?.map(|statistics| statistics.paused_bytes), Some(12 << 20));
        let told = rows();
        let under = |name: &str| {
            let at = told.iter().position(|row| row.0 == name).unwrap();
            told[at + 1..].iter().find(|row| !row.0.starts_with("from")).cloned()
        };
        let line = Some(("paused".to_owned(), "12288 KiB".to_owned()));
        assert_eq!((under("Reserved memory"), under(&label)), (line.clone(), line));
        assert_eq!(told.iter().filter(|row| row.0 == "paused").count(), 2, "{told:?}");
        let pools = memory::mem_pools(None)?;
        assert_eq!((pools[&weights.id()].paused_bytes, pools[&cache.id()].paused_bytes), (12 * MIB, 0));
        assert!(memory::mem_pools(1)?.is_empty(), "a device that is not open");
        assert_eq!(weights.resume()?.bytes, paused.bytes);
        assert_eq!(memory_stats(None)?["paused_bytes"], 0);
        drop((kept, other));
    }

    fn a_pool_helps_out_when_memory_runs_out(ACCELERATOR_HOST_CAPACITY = "32MiB") {
        let options = MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() };
        for (options, helps) in [(MemPoolOptions::default(), false), (options, true)] {
            let pool = MemPool::with_options(None, options)?;
            drop({ let _guard = use_mem_pool(&pool); Buffer::allocate(20 * MIB, None)? });
            let served = Buffer::allocate(18 * MIB, None);
            match served {
                Ok(buffer) => assert!(helps && pool_of(&buffer) == pool.id()),
                Err(error) => assert!(!helps && matches!(error, Error::OutOfMemory(_)), "{error}"),
            }
        }
    }

    fn an_error_says_what_private_pools_hold(ACCELERATOR_HOST_CAPACITY = "64MiB") {
        let pool = MemPool::new(None)?;
        let kept = { let _guard = use_mem_pool(&pool); Buffer::allocate(MIB, None)? };
        let error = || match Buffer::allocate(50 * MIB, None) {
            Err(Error::OutOfMemory(report)) => *report,
            other => panic!("{other:?}"),
        };
        drop({ let _guard = use_mem_pool(&pool); Buffer::allocate(30 * MIB, None)? });
        let ordinary = Buffer::allocate(2 * MIB, None)?;
        let report = error();
        assert_eq!((report.allocated, report.allocated_in_pools, report.free_in_pools), (3 * MIB, MIB, 31 * MIB));
        let text = report.to_string();
        assert!(text.contains("3.00 MiB is allocated, of which 1.00 MiB in private pools,"), "{text}");
        assert!(text.contains("reserved but unallocated, of which 31.00 MiB in private pools;"), "{text}");
        assert!(!text.contains("reclaim_live_pools"), "a request of 50 MiB would not fit: {text}");
        let helpful = match Buffer::allocate(28 * MIB, None) {
            Err(Error::OutOfMemory(report)) => report.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(helpful.contains("trim pools"), "{helpful}");

        memory::set_allocator_settings("reclaim_live_pools:True")?;
        drop(Buffer::allocate(28 * MIB, None)?);
        drop((ordinary, kept, pool));
        let text = error_without_pools().to_string();
        assert!(!text.contains("private pools"), "{text}");
    }

    fn a_pool_without_splits_hands_out_whole_segments() {
        let pool = MemPool::with_options(None, MemPoolOptions { no_split: true, ..MemPoolOptions::default() })?;
        let _guard = use_mem_pool(&pool);
        assert_eq!(Buffer::allocate(1, None)?.block_size(), 2 * MIB);
    }

    fn a_pool_gets_its_segments_from_its_own_source() {
        let source = Arc::new(Counted::default());
        let pool = MemPool::with_source::<Host>(1, Arc::<Counted>::clone(&source), MemPoolOptions::default())?;
        assert_eq!(pool.typed::<Host>()?.id(), pool.id());
        let buffer = { let _guard = use_mem_pool(&pool); Buffer::from_slice(&[7u8; 3], 1)? };
        assert_eq!((buffer.to_vec::<u8>()?, source.held.load(Ordering::Relaxed)), (vec![7; 3], 2 * MIB));
        let ordinary = Buffer::allocate(1, 1)?;
        drop(buffer);
        drop(pool);
        assert_eq!((source.held.load(Ordering::Relaxed), Arc::strong_count(&source)), (0, 1));
        drop(ordinary);

        let mistaken = MemPool::with_source::<Vulkan>(0, Arc::new(Refuses), MemPoolOptions::default());
        assert!(matches!(mistaken, Err(Error::DeviceKindMismatch { .. })));
    }
}

fn error_without_pools() -> Error {
    Buffer::allocate(500 * MIB, None).unwrap_err()
}

/// Takes memory from the host's device 1, and counts the bytes.
#[derive(Default)]
struct Counted {
    held: AtomicU64,
}

impl Counted {
    fn backend() -> &'static Host {
        Accelerator::<Host>::open(1).unwrap().backend()
    }
}

type HostPtr = <Host as Backend>::Ptr;

// SAFETY: It hands out the memory of the device that its pool is for.
unsafe impl SegmentSource<HostPtr> for Counted {
    fn alloc(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        self.held.fetch_add(len.get(), Ordering::Relaxed);
        Self::backend().alloc(len)
    }

    unsafe fn dealloc(&self, ptr: HostPtr, len: NonZeroU64) {
        self.held.fetch_sub(len.get(), Ordering::Relaxed);
        // SAFETY: The promises of this method are those of the backend's.
        unsafe { Self::backend().dealloc(ptr, len) };
    }
}

/// Has no memory.
struct Refuses;

// SAFETY: It hands out nothing.
unsafe impl<P: DevicePtr> SegmentSource<P> for Refuses {
    fn alloc(&self, _len: NonZeroU64) -> DriverResult<P> {
        Err(DriverError::refused(DriverErrorKind::OutOfMemory, "alloc", "there is none"))
    }

    unsafe fn dealloc(&self, _ptr: P, _len: NonZeroU64) {}
}
