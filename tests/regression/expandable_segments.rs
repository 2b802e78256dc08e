//! Bugs that a review of expandable segments found.

use std::num::NonZeroU64;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, ContextsOf, DriverErrorKind, Error, GIB, HistoryAction, MIB, MemPool,
    MemPoolOptions, MemPoolRequests, OutOfMemoryCause, Recording, TraceAction,
};
use accelerator_host::{Host, launch};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

const EXPANDABLE: &str = "expandable_segments:True";

fn settings(text: &str) -> AllocatorConfig {
    AllocatorConfig::default().updated(text).unwrap()
}

fn device<B: Backend>(backend: B, text: &str) -> &'static Accelerator<B> {
    Accelerator::new(backend, 0, settings(text)).unwrap()
}

#[test]
fn statistics_are_summed_after_a_refused_request_made_counters_idle() {
    let device = device(Sim::new(90 * MIB), EXPANDABLE);
    let streams = [device.default_stream(), device.stream(0).unwrap(), device.stream(0).unwrap()];
    let blocks = [(4_756_997, 2), (20 * MIB, 0), (20 * MIB, 2), (19 * MIB, 0)]
        .map(|(bytes, stream)| device.allocate(bytes, streams[stream]).unwrap());
    device.allocator().reset_peak_statistics();
    drop(device.allocate(MIB, streams[1]).unwrap());
    assert!(device.allocate(10 * MIB, streams[0]).is_err());
    let active = device.allocator().statistics().active.all;
    assert_eq!((active.allocated, active.freed, active.peak), (5, 1, 5), "as in PyTorch");
    drop(blocks);
}

#[test]
fn an_error_of_a_streams_work_is_told_to_who_waits_for_that_stream() {
    let device = device(Host::new(0, 200 * MIB), EXPANDABLE);
    let [failing, other] = [device.default_stream(), device.stream(0).unwrap()];
    drop(device.allocate(100 * MIB, failing).unwrap());
    let mut few = device.allocate(8, failing).unwrap();
    launch(failing, few.slice_mut::<u8>().unwrap(), |few| assert!(few.is_empty(), "part of the test")).unwrap();
    let many = device.allocate(150 * MIB, other);
    assert!(many.is_ok(), "the pages of the first stream were released: {many:?}");
    assert!(failing.synchronize().is_err());
}

#[test]
fn what_is_still_mapped_after_two_failures_is_counted_and_goes_back() {
    let device = device(Faulty::new(Sim::new(GIB)), EXPANDABLE);
    drop(device.allocate(10 * MIB, device.default_stream()).unwrap());
    device.allocator().empty_cache().unwrap();
    let driver = device.backend();
    // The calls are reserve, and five times create, map, map. The second map of a page fails, and so does undoing the
    // first.
    driver.fail_call(8, DriverErrorKind::Other);
    driver.fail_next(Call::Unmap, DriverErrorKind::Other);
    let refused = device.allocate(100 * MIB, device.default_stream());
    driver.clear_failures();
    assert!(refused.is_err());
    let reserved = || device.allocator().statistics().reserved_bytes.all.current.unsigned_abs();
    assert_eq!(reserved(), driver.used());
    device.allocator().empty_cache().unwrap();
    assert_eq!((reserved(), driver.used()), (0, 0));
}

#[test]
fn pages_of_each_reserved_range_go_back_by_their_own_size() {
    let device = device(Sim::new(512 * MIB), EXPANDABLE);
    let allocate = |size: u64| device.allocate(size * MIB, device.default_stream()).unwrap();
    let (first, small) = (allocate(240), allocate(20));
    drop(first);
    // Pages have 12 MiB from now on. The first range, with pages of 20 MiB, has no contiguous room for the next
    // request.
    device.allocator().set_config(settings("expandable_segments:True,large_segment_size_mb:12"));
    let large = allocate(330);
    drop((small, large));
    device.allocator().empty_cache().unwrap();
    let reserved = device.allocator().statistics().reserved_bytes.all.current;
    assert_eq!((reserved, device.backend().used()), (0, 0));
    drop(allocate(480)); // all of it can be allocated again
}

#[test]
fn the_history_tells_that_pages_stayed() {
    let device = device(Faulty::new(Sim::new(GIB)), EXPANDABLE);
    let recording = Recording { max_entries: 1_000, contexts: ContextsOf::State, capture: None };
    device.allocator().record_history(Some(recording));
    drop(device.allocate(100 * MIB, device.default_stream()).unwrap());
    device.backend().fail_next(Call::Unmap, DriverErrorKind::Other);
    assert!(device.allocator().empty_cache().is_err());
    let entries = device.allocator().history().entries;
    let mapped = entries.iter().fold(0, |mapped, entry| match entry.action {
        HistoryAction::Trace(TraceAction::SegmentMap) => mapped + entry.size,
        HistoryAction::Trace(TraceAction::SegmentUnmap) => mapped - entry.size,
        _ => mapped,
    });
    assert_eq!(mapped, device.backend().used());
}

/// A mutant unmapped the pages after those that could not be unmapped, and lost the error. No test saw it.
#[test]
fn pages_behind_ones_that_could_not_be_unmapped_stay() {
    let device = device(Faulty::new(Sim::new(GIB)), EXPANDABLE);
    let [first, between, last] = [(); 3].map(|()| device.allocate(20 * MIB, device.default_stream()).unwrap());
    drop((first, last));
    device.backend().fail_next(Call::Unmap, DriverErrorKind::Other);
    assert!(matches!(device.allocator().empty_cache(), Err(Error::Driver { .. })));
    assert_eq!(device.backend().used(), 60 * MIB);
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 20 * MIB);
    drop(between);
}

/// Nobody can wait for such a stream. A mutant unmapped its pages, and no test saw it.
#[test]
fn pages_stay_while_their_stream_is_captured_by_other_means() {
    let device = device(Faulty::new(Sim::new(GIB)), EXPANDABLE);
    let stream = device.default_stream();
    drop(device.allocate(20 * MIB, stream).unwrap());
    device.backend().set_capturing(stream.native(), true);
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 20 * MIB);
    device.backend().set_capturing(stream.native(), false);
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

#[test]
fn of_two_threads_that_request_most_of_the_memory_one_gets_it() {
    let device = device(Faulty::new(Sim::new(4 * GIB)), EXPANDABLE);
    let streams = [device.default_stream(), device.stream(0).unwrap()];
    for _ in 0..300 {
        let together = Barrier::new(2);
        let served: usize = thread::scope(|scope| {
            let asking = streams.map(|stream| {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    let buffer = device.allocate(2_400 * MIB, stream);
                    together.wait();
                    usize::from(buffer.is_ok())
                })
            });
            asking.into_iter().map(|asking| asking.join().unwrap()).sum()
        });
        assert_eq!(served, 1);
        device.allocator().empty_cache().unwrap();
    }
}

#[test]
fn blocks_that_may_not_be_used_cause_no_waits_on_the_device() {
    let device = device(Faulty::new(Sim::new(GIB)), "expandable_segments:True,device_side_reuse:True");
    let [own, user] = [device.default_stream(), device.stream(0).unwrap()];
    let blocks = [(); 8].map(|()| device.allocate(20 * MIB, own).unwrap());
    for block in &blocks {
        block.record_use(user).unwrap();
    }
    Controls::hold(device.backend(), user.native());
    drop(blocks);
    device.allocator().set_config(settings("expandable_segments:False,device_side_reuse:True"));
    let waits = || device.backend().calls().of(Call::Wait);
    let before = waits();
    drop(device.allocate(20 * MIB, own).unwrap());
    assert_eq!(waits(), before);
}

/// Queries the allocator whenever it receives an event.
struct Asking {
    device: &'static Accelerator<Sim>,
    told: &'static AtomicU64,
}

impl Subscriber for Asking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        assert_eq!(self.device.allocator().statistics().num_ooms, 0);
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn missing_virtual_memory_is_reported_once_and_outside_locks() {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let device = device(Sim::new(GIB).without_virtual_memory(), "");
    subscriber::with_default(Asking { device, told: &TOLD }, || {
        let stream = device.default_stream();
        drop(device.allocate(MIB, stream).unwrap());
        assert_eq!(TOLD.load(Ordering::Relaxed), 0, "nothing has requested virtual memory yet");
        device.allocator().set_config(settings(EXPANDABLE));
        drop(device.allocate(20 * MIB, stream).unwrap());
        drop(device.allocate(40 * MIB, stream).unwrap());
        assert_eq!(TOLD.load(Ordering::Relaxed), 1);
        assert!(!device.allocator().statistics().expandable_segments);
    });
}

/// Pages between two blocks had no memory at the checkpoint, and have it at the restore.
#[test]
fn a_checkpoint_with_a_gap_is_restored_when_the_gap_is_filled() {
    let device = device(Sim::new(GIB), EXPANDABLE);
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let route = pool.use_pool_for(MemPoolRequests::All).unwrap();
    let allocate = |mib: u64| allocator.allocate(NonZeroU64::new(mib * MIB).unwrap(), stream).unwrap();
    let [first, between, last] = [20, 40, 60].map(allocate);
    allocator.free(between).unwrap();
    pool.trim().unwrap();
    let addresses = [&first, &last].map(|block| block.ptr());
    let checkpoint = allocator.checkpoint_pool(pool.id()).unwrap();
    let between = allocate(40);
    [first, between].into_iter().for_each(|block| allocator.free(block).unwrap());
    let restored = allocator.restore_pool(&checkpoint, vec![last]).unwrap();
    assert_eq!(restored.iter().map(|block| block.ptr()).collect::<Vec<_>>(), addresses);
    restored.into_iter().for_each(|block| allocator.free(block).unwrap());
    drop(route);
}

/// A mutant freed all allocations when the memory of one was gone, and another refused a checkpoint with all of its
/// memory. No test saw it.
#[test]
fn a_checkpoint_is_refused_only_if_memory_of_its_own_is_gone() {
    for (before, gone, is_refused) in [(true, 2, false), (true, 1, false), (true, 0, false), (false, 2, true)] {
        let device = device(Sim::new(GIB), EXPANDABLE);
        let (allocator, stream) = (device.allocator(), device.default_stream());
        let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
        let _route = pool.use_pool_for(MemPoolRequests::All).unwrap();
        let allocate = |mib: u64| allocator.allocate(NonZeroU64::new(mib * MIB).unwrap(), stream).unwrap();
        let mut blocks = Vec::from([20, 40, 60].map(allocate));
        let give_back = |block| {
            allocator.free(block).unwrap();
            pool.trim().unwrap();
        };
        let checkpoint = || allocator.checkpoint_pool(pool.id()).unwrap();
        let checkpoint = if before {
            give_back(blocks.remove(gone));
            checkpoint()
        } else {
            let checkpoint = checkpoint();
            give_back(blocks.remove(gone));
            checkpoint
        };
        match allocator.restore_pool(&checkpoint, blocks) {
            Ok(allocations) => assert_eq!((allocations.len(), is_refused), (2, false)),
            Err(refused) => assert_eq!((refused.allocations.len(), is_refused), (2, true), "{refused}"),
        }
    }
}

/// Each time that another thread took the free memory next to pages that were being mapped, more pages were mapped, all
/// for one charge.
#[test]
fn the_limit_holds_although_other_threads_take_what_is_next_to_new_pages() {
    for (limit, peak, retries) in [(140, 120, 1), (160, 160, 0)] {
        let device = device(Faulty::new(Sim::new(GIB)), "expandable_segments:True,large_segment_size_mb:40");
        let (allocator, stream) = (device.allocator(), device.default_stream());
        allocator.set_memory_fraction(limit as f64 / 1024.0).unwrap();
        let page = || device.allocate(40 * MIB, stream).unwrap();
        drop(page());
        // The request needs the free page and a new one. While that is mapped, the free one is taken, and so on.
        let gate = device.backend().gate(Call::Create);
        thread::scope(|scope| {
            let growing = scope.spawn(|| device.allocate(80 * MIB, stream).map(drop));
            assert!(gate.wait_reached(Duration::from_secs(10)));
            let first = page();
            let next = device.backend().gate(Call::Create);
            gate.open();
            assert!(next.wait_reached(Duration::from_secs(10)));
            let second = page();
            next.open();
            match growing.join().unwrap() {
                Err(Error::OutOfMemory(report)) => assert_eq!((report.cause, limit), (OutOfMemoryCause::Limit, 140)),
                grown => assert!(grown.is_ok() && limit == 160, "{grown:?}"),
            }
            drop((first, second));
        });
        let statistics = allocator.statistics();
        assert_eq!((statistics.reserved_bytes.all.peak, statistics.num_alloc_retries), (peak * MIB as i64, retries));
        drop(device.allocate(80 * MIB, stream).unwrap());
        allocator.empty_cache().unwrap();
        assert_eq!(device.backend().used(), 0);
        drop(device.allocate(limit * MIB, stream).unwrap()); // nothing stays charged
    }
}
