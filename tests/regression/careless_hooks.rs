//! User hooks may do what the documentation allows, and may panic.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Faulty, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, ContextsOf, HistoryContext, Keep, MIB, MemPool, MemPoolOptions, MemPoolRequests,
    Recording,
};
use accelerator_host::{Host, launch};

#[test]
fn a_callback_that_allocates_is_not_asked_for_its_own_requests() {
    let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    device.allocator().add_free_memory_callback(move || {
        count.fetch_add(1, Ordering::Relaxed);
        device.allocate(30 * MIB, stream).is_ok()
    });
    drop(device.allocate(5 * MIB, stream).unwrap());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_callback_that_panics_leaves_the_allocator_whole() {
    let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let id = device.allocator().add_free_memory_callback(|| panic_any("this panic is part of the test"));
    assert!(catch_unwind(AssertUnwindSafe(|| device.allocate(MIB, stream))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| device.allocate(MIB, stream))).is_err(), "it is asked again");
    assert!(device.allocator().remove_hook(id));
    drop(device.allocate(MIB, stream).unwrap());
    assert_eq!(device.allocator().statistics().active.all.current, 0);
}

#[test]
fn an_observer_that_panics_leaves_nobody_waiting() {
    let config = AllocatorConfig::default().updated("throw_on_cudamalloc_oom:True").unwrap();
    let device = Accelerator::new(Sim::new(100 * MIB), 0, config).unwrap();
    let stream = device.default_stream();
    let id = device.allocator().add_out_of_memory_observer(|_| panic_any("this panic is part of the test"));
    assert!(catch_unwind(AssertUnwindSafe(|| device.allocate(200 * MIB, stream))).is_err());
    assert!(device.allocator().remove_hook(id));
    device.allocator().set_memory_fraction(0.5).unwrap();
    assert!(device.allocate(60 * MIB, stream).is_err(), "the limit refuses it, on the last rung too");
    drop(device.allocate(50 * MIB, stream).unwrap());
}

/// Runs on a single thread, to show that the observer does not wait for itself.
#[test]
fn an_observer_of_a_rejection_may_run_out_of_memory_itself() {
    let config = AllocatorConfig::default().updated("throw_on_cudamalloc_oom:True").unwrap();
    let device = Accelerator::new(Sim::new(100 * MIB), 0, config).unwrap();
    let stream = device.default_stream();
    let refused = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&refused);
    device.allocator().add_out_of_memory_observer(move |_| {
        device.allocator().set_memory_fraction(0.5).unwrap();
        count.fetch_add(u64::from(device.allocate(60 * MIB, stream).is_err()), Ordering::Relaxed);
    });
    assert!(device.allocate(200 * MIB, stream).is_err());
    assert_eq!(refused.load(Ordering::Relaxed), 1);
}

#[test]
fn a_kernel_may_panic_with_what_panics_when_it_is_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any("dropped");
        }
    }

    let host = Accelerator::new(Host::new(0, 100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = host.default_stream();
    let buffer = host.allocate(16, stream).unwrap();
    launch(stream, buffer.slice::<u8>().unwrap(), |_| panic_any(Bomb)).unwrap();
    assert!(stream.synchronize().is_err());
    stream.synchronize().unwrap();
}

static RECORDED: OnceLock<&'static Accelerator<Sim>> = OnceLock::new();

/// Queries the allocator when it is dropped.
struct Asks;

impl Drop for Asks {
    fn drop(&mut self) {
        RECORDED.get().unwrap().allocator().statistics();
    }
}

#[test]
fn a_context_that_comes_too_late_is_dropped_under_no_lock() {
    fn ends_recording() -> Option<HistoryContext> {
        RECORDED.get()?.allocator().record_history(None);
        Some(Arc::new(Asks))
    }

    let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let buffer = device.allocate(MIB, device.default_stream()).unwrap();
    RECORDED.get_or_init(|| device);
    let (contexts, capture) = (ContextsOf::All, Some(ends_recording as _));
    device.allocator().record_history(Some(Recording { max_entries: 10, contexts, capture }));
    drop(buffer);
    assert_eq!(device.allocator().statistics().active.all.current, 0);
}

#[test]
fn a_progress_callback_that_panics_leaves_the_pool_as_it_was() {
    let device = Accelerator::new(Host::new(0, 100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap();
    let allocate = || {
        let _guard = pool.use_pool();
        device.allocate(3 * MIB, stream)
    };
    let mut buffer = allocate().unwrap();
    let mut fill = |value| {
        buffer.fill(value, stream)?;
        buffer.slice::<u8>()?.to_vec(stream).map(|bytes| assert!(bytes.iter().all(|byte| *byte == value)))
    };
    fill(1).unwrap();
    let panics = &mut |_| panic_any("this panic is part of the test");
    assert!(catch_unwind(AssertUnwindSafe(|| pool.pause_with(Keep::Host, panics))).is_err());
    assert!(!pool.is_paused());
    fill(2).unwrap();
    let _ = pool.pause(Keep::Host).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| pool.resume_with(panics))).is_err());
    assert!(pool.is_paused() && fill(3).is_err());
    let _ = pool.resume().unwrap();
    fill(4).unwrap();
    drop(allocate().unwrap());
}

/// The resume that followed gave out pages with anything in them, without an error.
#[test]
fn a_progress_callback_that_panics_loses_no_contents() {
    let device = Accelerator::new(Host::new(0, 100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap();
    let mut buffer = {
        let _guard = pool.use_pool();
        device.allocate(3 * MIB, stream).unwrap()
    };
    let file = std::env::temp_dir().join(format!("paused-in-panic-{}", std::process::id()));
    for (keep, value) in [(Keep::Host, 1), (Keep::File(file), 2)] {
        buffer.fill(value, stream).unwrap();
        let _ = pool.pause(keep.clone()).unwrap();
        let panics = &mut |_| panic_any("this panic is part of the test");
        assert!(catch_unwind(AssertUnwindSafe(|| pool.resume_with(panics))).is_err());
        let _ = pool.resume().unwrap();
        let bytes = buffer.slice::<u8>().unwrap().to_vec(stream).unwrap();
        assert!(bytes.iter().all(|byte| *byte == value), "{keep:?}: {}", bytes[0]);
    }
}

#[test]
fn a_choice_of_streams_that_panics_leaves_the_allocator_whole() {
    let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let panics = MemPoolRequests::Where(Box::new(|_| panic_any("this panic is part of the test")));
    let guard = pool.use_pool_for(panics).unwrap();
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| device.allocate(MIB, stream))).is_err());
    }
    drop(guard);
    drop(device.allocate(MIB, stream).unwrap());
    assert_eq!(device.allocator().statistics().active.all.current, 0);
}

#[test]
fn a_context_whose_capture_panics_costs_no_memory() {
    let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let capture = Some((|| panic_any("this panic is part of the test")) as fn() -> Option<HistoryContext>);
    let recording = |capture| Some(Recording { max_entries: 10, contexts: ContextsOf::All, capture });
    device.allocator().record_history(recording(capture));
    assert!(catch_unwind(AssertUnwindSafe(|| device.allocate(MIB, stream))).is_err());
    device.allocator().record_history(None);
    assert_eq!(device.allocator().statistics().active.all.current, 0);
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

static EXPANDING: OnceLock<&'static Accelerator<Faulty<Sim>>> = OnceLock::new();

/// Gives the cache back when it is dropped.
struct Empties;

impl Drop for Empties {
    fn drop(&mut self) {
        EXPANDING.get().unwrap().allocator().empty_cache().unwrap();
    }
}

/// It was dropped under the lock of the stream's reserved ranges, for which it then waited itself.
#[test]
fn a_context_that_gives_the_cache_back_is_dropped_under_no_lock_of_a_request_that_had_to_wait() {
    let config = AllocatorConfig::default().updated("expandable_segments:True").unwrap();
    let device = Accelerator::new(Faulty::new(Sim::new(100 * MIB)), 0, config).unwrap();
    EXPANDING.get_or_init(|| device);
    let stream = device.default_stream();
    let allocate = move || device.allocate(4 * MIB, stream).unwrap();
    // Three entries are kept. The first two are those of a free, whose context they alone have in the end.
    let capture = Some((|| Some(Arc::new(Empties) as HistoryContext)) as fn() -> _);
    let recording = Recording { max_entries: 3, contexts: ContextsOf::All, capture };
    device.allocator().record_history(Some(recording));
    drop(device.allocate(512, stream).unwrap());
    let gate = device.backend().gate(Call::Create);
    let growing = thread::spawn(allocate);
    assert!(gate.wait_reached(Duration::from_secs(10)));
    let (done, is_done) = channel();
    thread::spawn(move || done.send(allocate()));
    thread::sleep(Duration::from_millis(100)); // it waits for the pages of the other by then
    gate.open();
    let served = [growing.join().unwrap(), is_done.recv_timeout(Duration::from_secs(10)).unwrap()];
    assert_eq!(device.backend().used(), 20 * MIB, "from the same page, and the first one has gone back");
    drop(served);
}
