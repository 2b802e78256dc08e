//! Programs and threads that end in the middle of their work.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::thread;

use accelerator_core::{Accelerator, Buffer, MIB, MemPool, MemPoolOptions, PinnedBuffer};
use libtest_mimic::Failed;

use super::process::Outcome;
use super::simulated::{Simulated, check_all_gone, device, give_back};

/// What a program has when it ends: memory that a stream still has to use.
fn in_use<B: Simulated>(device: &'static Accelerator<B>) -> Result<(Vec<Buffer<B>>, PinnedBuffer<B>), Failed> {
    let (stream, other) = (device.default_stream(), device.stream(0)?);
    B::hold(other);
    let mut buffers = Vec::new();
    for bytes in [512, 3 * MIB, 30 * MIB] {
        let mut buffer = device.allocate(bytes, stream)?;
        buffer.fill(1, other)?;
        buffers.push(buffer);
    }
    let mut pinned = device.allocate_host(MIB)?;
    buffers[2].copy_to_pinned(0..MIB, &mut pinned, 0, other)?;
    Ok((buffers, pinned))
}

/// A thread unwinds, and the calls fail that drop what it has: each in turn, and then all from each on.
pub(crate) fn dropped_while_a_thread_unwinds<B: Simulated>() -> Outcome {
    for all in [false, true] {
        let fail = if all { B::fail_from } else { B::fail_at };
        for nth in 0..12 {
            let device = device::<B>()?;
            let pool = MemPool::new(device, MemPoolOptions::default())?;
            let unwound = thread::spawn(move || {
                let _guard = pool.use_pool();
                let _kept = in_use(device).map_err(|error| error.message().unwrap_or_default().to_owned()).unwrap();
                let own = device.dedicated_stream(0).unwrap();
                drop(device.allocate(MIB, own).unwrap());
                if nth > 0 {
                    fail(nth, B::REFUSED);
                }
                resume_unwind(Box::new("on purpose"))
            });
            let unwound: Result<(), _> = unwound.join();
            B::clear_faults();
            let reason = unwound.unwrap_err();
            assert_eq!(reason.downcast_ref(), Some(&"on purpose"), "call {nth}");
            give_back(device)?;
        }
        // A driver that refuses memory again and again does not get it back.
        assert!(all || B::live() == [0, 0], "the driver lacks {:?}", B::live());
    }
    Ok(())
}

/// Threads end with memory in their caches and in variables of their own, while calls fail.
pub(crate) fn threads_that_end_with_memory<B: Simulated>() -> Outcome {
    thread_local!(static KEPT: RefCell<Vec<Box<dyn std::any::Any>>> = const { RefCell::new(Vec::new()) });
    let device = device::<B>()?;
    for nth in 0..12 {
        let thread = thread::spawn(move || {
            let own = device.dedicated_stream(0).unwrap();
            // Enough to own the lock of the stream.
            (0..1500).for_each(|round| drop(device.allocate(1 + round * 40, own).unwrap()));
            let kept = in_use(device).map_err(|error| error.message().unwrap_or_default().to_owned()).unwrap();
            KEPT.with_borrow_mut(|all| all.push(Box::new(kept)));
            if nth > 0 {
                B::fail_at(nth, B::REFUSED);
            }
        });
        thread.join().map_err(|_| "a thread panicked as it ended")?;
        B::clear_faults();
    }
    check_all_gone(device)
}

/// The process ends with work that is held, and with memory that nobody freed.
pub(crate) fn exit_with_work_queued<B: Simulated>() -> Outcome {
    std::mem::forget(in_use(device::<B>()?)?);
    Ok(())
}
