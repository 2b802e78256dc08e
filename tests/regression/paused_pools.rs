//! Memory of paused pools when driver calls fail, and when others give it back or need it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Faulty};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, Buffer, DriverErrorKind, Error, Keep, MIB, MemPool, MemPoolId,
    MemPoolOptions, OperatorKind, observe_operators,
};
use accelerator_host::Host;

use crate::waiting::soon;

pub(crate) type Failing = Faulty<Host>;

pub(crate) fn device() -> &'static Accelerator<Failing> {
    Accelerator::new(Faulty::new(Host::new(0, 100 * MIB)), 0, AllocatorConfig::default()).unwrap()
}

pub(crate) fn pausable<B: Backend>(device: &'static Accelerator<B>) -> MemPool<B> {
    MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap()
}

/// Returns a buffer in a pool, with this value in each byte.
pub(crate) fn filled(device: &'static Accelerator<Failing>, pool: &MemPool<Failing>, value: u8) -> Buffer<Failing> {
    let _guard = pool.use_pool();
    let mut buffer = device.allocate(3 * MIB, device.default_stream()).unwrap();
    buffer.fill(value, device.default_stream()).unwrap();
    buffer
}

pub(crate) fn check(buffer: &Buffer<Failing>, value: u8) {
    let bytes = buffer.slice::<u8>().unwrap().to_vec(buffer.stream()).unwrap();
    assert!(bytes.iter().all(|byte| *byte == value), "{} instead of {value}", bytes[0]);
}

/// Mutants told of no progress, and kept the pages of a resume that failed. No test saw it.
#[test]
fn a_pause_tells_how_far_it_is_and_a_resume_that_fails_gives_its_pages_back() {
    let device = device();
    let pool = pausable(device);
    let buffers = [filled(device, &pool, 1), filled(device, &pool, 2)];
    let mut told = Vec::new();
    let kept = pool.pause_with(Keep::Host, &mut |progress| told.push((progress.done, progress.total))).unwrap();
    assert!(told.is_sorted() && told.last() == Some(&(kept.bytes, kept.bytes)), "{told:?}");
    let used = device.backend().used();
    device.backend().fail_next(Call::Copy, DriverErrorKind::Other);
    assert!(pool.resume().is_err());
    assert_eq!((device.backend().used(), pool.is_paused()), (used, true));
    let _ = pool.resume().unwrap();
    buffers.iter().zip([1, 2]).for_each(|(buffer, value)| check(buffer, value));
}

#[test]
fn paused_memory_that_could_not_leave_is_given_up_once() {
    let device = device();
    let stream = device.default_stream();
    let pool = pausable(device);
    let mut buffer = {
        let _guard = pool.use_pool();
        device.allocate(30 * MIB, stream).unwrap()
    };
    buffer.fill(1, stream).unwrap();
    let bytes = pool.pause(Keep::Nothing).unwrap().bytes;
    drop((pool, buffer)); // in this order, as a pool gives back what is free
    let paused = || device.allocator().statistics().paused_bytes.unsigned_abs();
    for call in [Call::IsCapturing, Call::Record] {
        device.backend().fail_next(call, DriverErrorKind::Other);
        assert!(device.allocator().empty_cache().is_err(), "without `{}`", call.name());
        assert_eq!(paused(), bytes);
    }
    device.allocator().empty_cache().unwrap();
    assert_eq!((paused(), device.allocator().statistics().reserved_bytes.all.current), (0, 0));
    // The limit has counted it once, too.
    drop(device.allocate(100 * MIB, stream).unwrap());
}

/// While contents were copied, memory that had become free could be trimmed, which the copy then used.
#[test]
fn nothing_is_trimmed_while_contents_are_copied() {
    let device = Accelerator::new(Host::new(0, 400 * MIB), 0, AllocatorConfig::default()).unwrap();
    let stream = device.default_stream();
    let pool = pausable(device);
    let guard = pool.use_pool();
    let mut buffers: Vec<_> = (1..=4).map(|_| device.allocate(30 * MIB, stream).unwrap()).collect();
    drop(guard);
    for (value, buffer) in (1..).zip(&mut buffers) {
        buffer.fill(value, stream).unwrap();
    }
    let last = buffers.pop().unwrap();
    let mut drop_one = |_| {
        drop(buffers.pop());
        pool.trim().unwrap();
    };
    let _ = pool.pause_with(Keep::Host, &mut drop_one).unwrap();
    let _ = pool.resume_with(&mut drop_one).unwrap();
    let mut bytes = vec![0; 30 << 20];
    last.read(0, &mut bytes, stream).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 4));
    drop((last, buffers));
    pool.trim().unwrap();
    assert_eq!(device.allocator().statistics().reserved_bytes.all.current, 0);
}

/// A pool that was resumed without enough memory kept the pages that it had got until it gave up.
#[test]
fn a_request_gets_memory_that_is_too_little_for_a_resumed_pool() {
    let device = device();
    let (allocator, [stream, user]) = (device.allocator(), [(); 2].map(|()| device.stream(0).unwrap()));
    let pool = pausable(device);
    let buffer = {
        let _guard = pool.use_pool();
        device.allocate(60 * MIB, stream).unwrap()
    };
    let _ = pool.pause(Keep::Nothing).unwrap();
    let taken = device.allocate(50 * MIB, stream).unwrap();
    let awaited = allocator.allocate(NonZeroU64::new(512).unwrap(), stream).unwrap();
    allocator.record_use(&awaited, user).unwrap();
    allocator.free(awaited).unwrap();
    let gate = device.backend().gate(Call::WaitHost);
    thread::scope(|scope| {
        let resuming = scope.spawn(|| pool.resume().map(drop));
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let (done, is_done) = channel();
        scope.spawn(move || done.send(device.allocate(30 * MIB, user).map(drop)));
        let requested = is_done.recv_timeout(Duration::from_secs(10));
        gate.open();
        assert!(resuming.join().unwrap().is_err());
        requested.unwrap().unwrap();
    });
    drop(taken);
    let _ = pool.resume().unwrap();
    drop(buffer);
}

/// The pools before the one that was refused had given their pages up, contents and all.
#[test]
fn contents_stay_if_a_later_pool_cannot_be_paused() {
    let device = device();
    let (first, second, never) = (pausable(device), pausable(device), MemPool::new(device, <_>::default()).unwrap());
    let buffers = [filled(device, &first, 1), filled(device, &second, 2)];
    let file = std::env::temp_dir().join(format!("paused-over-{}", std::process::id()));
    std::fs::write(&file, "not ours").unwrap();
    let here = || (&first, Keep::Nothing);
    let intact = |refused: accelerator_core::Result<_>| {
        let refused = refused.map(|reports: Vec<_>| reports.len()).unwrap_err();
        assert!(!first.is_paused() && !second.is_paused(), "{refused}");
        check(&buffers[0], 1);
        check(&buffers[1], 2);
        refused
    };
    let there = intact(MemPool::pause_all([here(), (&second, Keep::File(file.clone()))]));
    assert!(matches!(there, Error::PoolFile(_)), "{there}");
    assert_eq!(std::fs::read(&file).unwrap(), b"not ours");
    std::fs::remove_file(&file).unwrap();
    let refused = intact(MemPool::pause_all([here(), (&never, Keep::Nothing)]));
    assert!(refused.to_string().contains("MemPoolOptions::pausable"), "{refused}");
    let twice = intact(MemPool::pause_all([here(), (&second, Keep::Nothing), (&first, Keep::Host)]));
    assert!(twice.to_string().ends_with("is given twice"), "{twice}");
    device.backend().fail_next(Call::AllocHost, DriverErrorKind::Other);
    assert!(matches!(intact(MemPool::pause_all([here(), (&second, Keep::Host)])), Error::Driver { .. }));

    let _ = second.pause(Keep::Host).unwrap();
    let paused = MemPool::pause_all([here(), (&second, Keep::Nothing)]).unwrap_err();
    assert!(paused.to_string().ends_with("is paused already"), "{paused}");
    let _ = second.resume().unwrap();
    check(&buffers[0], 1);
    check(&buffers[1], 2);
}

/// Only the driver can refuse anything once pages go. Pools whose pages have gone by then are resumed.
#[test]
fn whichever_call_fails_all_pools_go_on_with_what_was_kept() {
    let device = device();
    let pools = [(); 3].map(|()| pausable(device));
    let buffers: Vec<_> = pools.iter().zip(1..).map(|(pool, value)| filled(device, pool, value)).collect();
    let mut undone = 0;
    for call in 1.. {
        device.backend().start_log();
        device.backend().fail_call(call, DriverErrorKind::Other);
        let before = device.backend().injected();
        let paused = MemPool::pause_all(pools.iter().map(|pool| (pool, Keep::Host)));
        device.backend().clear_failures();
        undone += u32::from(device.backend().take_log().contains(&Call::Map));
        if paused.is_ok() {
            let _ = MemPool::resume_all(&pools.each_ref()).unwrap();
        }
        assert!(!pools.iter().any(MemPool::is_paused), "call {call}: {paused:?}");
        buffers.iter().zip(1..).for_each(|(buffer, value)| check(buffer, value));
        if device.backend().injected() == before {
            break;
        }
    }
    assert!(undone > 0, "no pool was resumed");
    assert_eq!(device.backend().misuses(), 0);
}

/// The second was taken for the first, given twice.
#[test]
fn pools_of_two_devices_may_have_the_same_number() {
    let (id, options) = (MemPoolId::next_user(), MemPoolOptions { pausable: true, ..MemPoolOptions::default() });
    let pools = [(); 2].map(|()| MemPool::with_id(device(), id, options.clone()).unwrap());
    assert_eq!(MemPool::pause_all(pools.iter().map(|pool| (pool, Keep::Host))).unwrap().len(), 2);
    assert_eq!(MemPool::resume_all(&pools.each_ref()).unwrap().len(), 2);
}

/// The end of the first handle's resume let the pages of the second one's pause go.
#[test]
fn the_end_of_a_resume_lets_no_pages_go_that_another_handle_copies() {
    let device = device();
    let first = pausable(device);
    let second = MemPool::with_id(device, first.id(), MemPoolOptions::default()).unwrap();
    let buffer = filled(device, &first, 1);
    let _ = first.pause(Keep::Host).unwrap();
    let (gate, copies) = (device.backend().gate(Call::DeallocHost), AtomicBool::new(false));
    thread::scope(|scope| {
        let resuming = scope.spawn(|| first.resume().map(drop));
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let pausing = scope.spawn(|| {
            let mut progress = |_| copies.store(true, Ordering::SeqCst);
            second.pause_with(Keep::Host, &mut progress).map(drop)
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!copies.load(Ordering::SeqCst), "the other handle is not done");
        gate.open();
        [resuming, pausing].into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
    let _ = first.resume().unwrap();
    check(&buffer, 1);
}

/// The buffer was in use until the observer returned, which waited for that.
#[test]
fn an_observer_of_work_on_a_buffer_pauses_its_pool() {
    // It has a number of its own, since the observer is told of the work of other tests, too.
    let device = Accelerator::new(Faulty::new(Host::new(0, 100 * MIB)), 7, AllocatorConfig::default()).unwrap();
    let pool = Arc::new(pausable(device));
    let (observed, mut buffer) = (Arc::clone(&pool), filled(device, &pool, 1));
    let observer = observe_operators(move |operator| {
        if operator.kind == OperatorKind::Fill && operator.device == device.device() {
            let _ = observed.pause(Keep::Host).unwrap();
        }
    });
    let buffer = soon(move || {
        buffer.fill(2, device.default_stream()).unwrap();
        buffer
    });
    drop(observer);
    assert!(pool.is_paused());
    let _ = pool.resume().unwrap();
    check(&buffer, 2);
}

/// A callback that paused or resumed the pool waited for itself.
#[test]
fn a_progress_callback_cannot_pause_or_resume_its_pool() {
    let device = device();
    let pool = Arc::new(pausable(device));
    let buffer = filled(device, &pool, 1);
    let same = Arc::clone(&pool);
    let is_refused = |result: Result<_, Error>| matches!(result, Err(Error::MemPool { .. }));
    soon(move || {
        let mut asked = 0;
        let mut ask = |_| {
            assert!(is_refused(same.pause(Keep::Nothing)) && is_refused(same.resume()));
            asked += 1;
        };
        let _ = same.pause_with(Keep::Host, &mut ask).unwrap();
        let _ = same.resume_with(&mut ask).unwrap();
        assert!(asked >= 2);
    });
    check(&buffer, 1);
}

/// It could never be resumed, also by other handles of the pool.
#[test]
fn a_pool_is_resumed_although_the_handle_that_paused_it_is_gone() {
    let device = device();
    let pool = pausable(device);
    let (buffer, id) = (filled(device, &pool, 1), pool.id());
    let other = MemPool::with_id(device, id, MemPoolOptions::default()).unwrap();
    let _ = pool.pause(Keep::Host).unwrap();
    drop(pool);
    let _ = other.resume().unwrap();
    check(&buffer, 1);
    // Without a handle, nothing keeps the contents. Allocations keep the pool.
    let _ = other.pause(Keep::Host).unwrap();
    drop(other);
    let another = MemPool::with_id(device, id, MemPoolOptions::default()).unwrap();
    let _ = another.resume().unwrap();
    assert!(!another.is_paused());
    device.synchronize().unwrap();
    drop(buffer);
}

/// It found no memory while the resumed pool, for which there was too little, had not given back what it had got.
#[test]
fn a_request_waits_for_the_pages_of_a_resumed_pool_that_lacks_others() {
    let config = AllocatorConfig::default().updated("expandable_segments:True").unwrap();
    let device = Accelerator::new(Faulty::new(Host::new(0, 100 * MIB)), 0, config).unwrap();
    let pool = pausable(device);
    let buffer = {
        let _guard = pool.use_pool();
        device.allocate(60 * MIB, device.default_stream()).unwrap()
    };
    let _ = pool.pause(Keep::Nothing).unwrap();
    let taken = device.allocate(60 * MIB, device.default_stream()).unwrap();
    let gate = device.backend().gate(Call::Destroy);
    thread::scope(|scope| {
        let resuming = scope.spawn(|| pool.resume().map(drop));
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let (done, is_done) = channel();
        let own = device.stream(0).unwrap();
        scope.spawn(move || done.send(device.allocate(40 * MIB, own)));
        let early = is_done.recv_timeout(Duration::from_millis(200));
        gate.open();
        resuming.join().unwrap().unwrap_err();
        let served = early.or_else(|_| is_done.recv_timeout(Duration::from_secs(10)));
        drop(served.unwrap().unwrap());
    });
    drop(taken);
    let _ = pool.resume().unwrap();
    drop(buffer);
}

/// The limit refused the pages that the driver had taken before it refused one, and the pool stayed paused.
#[test]
fn a_pause_that_fails_is_undone_above_a_lowered_limit() {
    let device = device();
    let pools = [pausable(device), pausable(device)];
    let buffers: Vec<_> = pools.iter().zip(1..).map(|(pool, value)| filled(device, pool, value)).collect();
    let check_contents = || buffers.iter().zip(1..).for_each(|(buffer, value)| check(buffer, value));
    device.allocator().set_memory_fraction(0.01).unwrap();
    let mut undone = 0;
    for call in 1.. {
        device.backend().start_log();
        device.backend().fail_call(call, DriverErrorKind::Other);
        let paused = MemPool::pause_all(pools.each_ref().map(|pool| (pool, Keep::Host)));
        device.backend().clear_failures();
        undone += u32::from(device.backend().take_log().contains(&Call::Map));
        if paused.is_ok() {
            break;
        }
        assert!(!pools.iter().any(MemPool::is_paused), "call {call}: {paused:?}");
        check_contents();
    }
    assert!(undone > 1, "no pages came back");
    let resumed = MemPool::resume_all(&pools.each_ref());
    assert!(matches!(resumed, Err(Error::OutOfMemory(_))), "the limit holds for a resume");
    device.allocator().set_memory_fraction(1.0).unwrap();
    let _ = MemPool::resume_all(&pools.each_ref()).unwrap();
    check_contents();
    assert_eq!(device.allocator().statistics().paused_bytes, 0);
}

/// A resume that needed nothing was refused.
#[test]
fn a_pool_without_memory_is_resumed_above_a_lowered_limit() {
    let device = device();
    let pool = pausable(device);
    drop(filled(device, &pool, 1));
    let live = device.allocate(50 * MIB, device.default_stream()).unwrap();
    assert_eq!(pool.pause(Keep::Nothing).unwrap().bytes, 0);
    device.allocator().set_memory_fraction(0.1).unwrap();
    assert_eq!(pool.resume().unwrap().bytes, 0);
    drop(live);
}
