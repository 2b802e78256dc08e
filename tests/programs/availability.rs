//! Which devices exist, and in which process.
#![allow(unsafe_code)] // calls `fork`

use accelerator_core::{Device, EventFlags};

use super::process::Outcome;
use super::simulated::{Simulated, check_all_gone, device};

/// The facade prefers the first of two devices.
pub(crate) fn facade_prefers<B: Simulated>() -> Outcome {
    use accelerator::memory;

    assert_eq!(accelerator::current_accelerator(), Some(B::KIND));
    assert_eq!(accelerator::device_count(), 2);
    let buffer = accelerator::Buffer::allocate(1000, None)?;
    assert_eq!(buffer.device(), Device { kind: B::KIND, index: 0 });
    assert_eq!((memory::memory_allocated(None)?, memory::memory_reserved(None)?), (1024, 2 << 20));
    drop(buffer);
    memory::empty_cache()?;
    assert_eq!(B::live()[0], 0);
    Ok(())
}

/// Every call in the child reports the fork, and none hangs.
pub(crate) fn after_fork<B: Simulated>() -> Outcome {
    let device = device::<B>()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(1 << 20, stream)?;
    let mut pinned = device.allocate_host(1000)?;
    let [event, unrecorded] = [(); 2].map(|()| device.event(EventFlags::TIMING));
    B::hold(stream);
    buffer.fill(1, stream)?;
    event.record(stream)?;
    // SAFETY: The child makes only our calls, `eprintln`, `alarm` and `_exit`, in a process that had one busy thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: Terminates the child if it hangs.
        unsafe { libc::alarm(20) };
        let answers = [
            device.synchronize().map_err(told),
            stream.synchronize().map_err(told),
            stream.is_idle().map(drop).map_err(told),
            stream.wait_event(&event).map_err(told),
            buffer.fill(1, stream).map_err(told),
            buffer.read(0, &mut [0; 10], stream).map_err(told),
            buffer.copy_to_pinned(0..10, &mut pinned, 0, stream).map_err(told),
            event.record(stream).map_err(told),
            unrecorded.record(stream).map_err(told),
            event.synchronize().map_err(told),
            device.memory_info().map(drop).map_err(told),
            device.dedicated_stream(0).map(drop).map_err(told),
            device.allocate(8 << 20, device.default_stream()).map(drop).map_err(told),
            device.allocate_host(8 << 20).map(drop).map_err(told),
            B::probe().map(drop).map_err(|why| why.reason),
            B::open(0).map(drop).map_err(told),
        ];
        drop((buffer, pinned, event));
        let clear = |answer: &Result<(), String>| answer.as_ref().is_err_and(|text| text.contains("forked"));
        let unclear = answers.iter().enumerate().filter(|(_, answer)| !clear(answer));
        let count = unclear.inspect(|(place, answer)| eprintln!("{place}: {answer:?}")).count();
        // SAFETY: Exits the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(count > 0)) };
    }
    let mut status = 0;
    // SAFETY: The call writes a number.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the forked process got an unclear error");
    drop((buffer, pinned, event));
    check_all_gone(device)
}

fn told(error: impl ToString) -> String {
    error.to_string()
}
