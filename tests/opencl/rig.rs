//! Shared by the trials: a device, calls of other libraries, streams that wait, pseudo-random numbers.
#![allow(unsafe_code)]

use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use accelerator_conformance::unavailable;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, MemoryInfo, MemoryInfoSource, Place, Stream};
use accelerator_opencl::cl3::error_codes::error_text;
use accelerator_opencl::cl3::types::{cl_context, cl_event, cl_int};
use accelerator_opencl::cl3::{command_queue, event};
use accelerator_opencl::{OpenCl, OpenClPtr, OpenClStream};
use libtest_mimic::{Completion, Failed, Trial};

use crate::caches::give_back;

pub(crate) type Outcome = Result<(), Failed>;

/// Creates a trial that needs a device. It is ignored if there is none, or fails if `ACCELERATOR_REQUIRE` lists
/// `opencl`.
pub(crate) fn trial(name: impl Into<String>, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match OpenCl::probe() {
        Ok(_) => run().map(|()| Completion::Completed),
        Err(why) => Ok(Completion::ignored_with(unavailable(OpenCl::KIND.name(), &why.reason)?)),
    })
}

/// Opens the first device again.
pub(crate) fn device() -> Result<&'static Accelerator<OpenCl>, Failed> {
    around(OpenCl::with_capacity(0, None)?)
}

pub(crate) fn around<B: Backend>(backend: B) -> Result<&'static Accelerator<B>, Failed> {
    Ok(Accelerator::new(backend, 0, AllocatorConfig::default())?)
}

/// Checks that nothing is left after the cache is emptied.
pub(crate) fn check_all_gone<B: Backend>(device: &'static Accelerator<B>) -> Outcome {
    give_back(device)?;
    let total = device.properties().total_memory;
    assert_eq!(free(device)?.unwrap_or(total), total);
    Ok(())
}

/// Returns the free bytes by the backend's own accounting, or `None` if the driver reported them: other processes use
/// the device too.
pub(crate) fn free<B: Backend>(device: &'static Accelerator<B>) -> Result<Option<u64>, Failed> {
    let MemoryInfo { free, source, .. } = device.memory_info()?;
    Ok((source == MemoryInfoSource::Accounting).then_some(free))
}

/// Polls until the condition is true, which takes a moment.
pub(crate) fn becomes_true(mut ask: impl FnMut() -> Result<bool, Failed>) -> Outcome {
    let start = Instant::now();
    while !ask()? {
        if start.elapsed() > Duration::from_secs(60) {
            return Err("not true after a minute".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Fails if the stream is idle, or would be if it were not held.
pub(crate) fn check_busy(stream: Stream<OpenCl>) -> Outcome {
    for _ in 0..2 {
        assert!(!stream.is_idle()?);
        std::thread::sleep(Duration::from_millis(20)); // long enough for any runnable work to finish
    }
    assert!(!stream.is_idle()?);
    Ok(())
}

/// Returns the result of another library's call, with the name of its error.
pub(crate) fn called<T>(answer: Result<T, cl_int>) -> Result<T, Failed> {
    answer.map_err(|code| format!("{} ({code})", error_text(code)).into())
}

pub(crate) fn bytes(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

/// Copies from the device without the allocator and the buffers, and waits.
pub(crate) fn read_raw(backend: &OpenCl, from: OpenClPtr, len: u64, stream: &OpenClStream) -> Result<Vec<u8>, Failed> {
    let mut host = vec![0; len as usize];
    let to = Place::Host(NonNull::from(host.as_mut_slice()).cast());
    // SAFETY: Every caller passes an address with that many bytes. Those of the host stay alive until the
    // synchronization.
    let copied = unsafe { backend.copy(to, Place::Device(from), bytes(len), stream) };
    copied.and_then(|()| backend.synchronize(stream))?;
    Ok(host)
}

/// A user event, which holds a stream until it is ended.
///
/// Dropping it completes it, so that a failed trial leaves nothing waiting.
pub(crate) struct UserEvent {
    native: cl_event,
    ended: bool,
}

impl UserEvent {
    pub(crate) fn new(context: cl_context) -> Result<Self, Failed> {
        Ok(Self { native: called(event::create_user_event(context))?, ended: false })
    }

    /// Creates an event that all later work of the stream waits for. Also returns the event of the waiting command.
    pub(crate) fn ahead_of(backend: &OpenCl, stream: &OpenClStream) -> Result<(Self, Pending), Failed> {
        let own = Self::new(backend.native().0)?;
        let queue = stream.native();
        // SAFETY: Queue and event are live, and the list has one entry.
        let barrier = unsafe { command_queue::enqueue_barrier_with_wait_list(queue, 1, &own.native) };
        let barrier = Pending(called(barrier)?);
        called(command_queue::flush(queue))?;
        Ok((own, barrier))
    }

    /// Holds all later work of the stream.
    pub(crate) fn hold(stream: Stream<OpenCl>) -> Result<Self, Failed> {
        Ok(Self::ahead_of(stream.backend(), stream.native())?.0)
    }

    /// Ends the event: completes it, or fails it with a negative status.
    pub(crate) fn end(mut self, status: cl_int) -> Outcome {
        self.ended = true;
        called(event::set_user_event_status(self.native, status))
    }

    pub(crate) fn let_go(self) -> Outcome {
        self.end(event::CL_COMPLETE)
    }
}

impl Drop for UserEvent {
    fn drop(&mut self) {
        if !self.ended {
            // An error here is ignored, because the trial has already failed.
            let _ = event::set_user_event_status(self.native, event::CL_COMPLETE);
        }
        // SAFETY: Releases the reference from its creation.
        let _ = unsafe { event::release_event(self.native) };
    }
}

/// The event of a command.
pub(crate) struct Pending(pub(crate) cl_event);

impl Pending {
    /// Returns the command's status according to the driver: 0 when it is complete, negative when it failed.
    pub(crate) fn status(&self) -> Result<cl_int, Failed> {
        let status = event::get_event_info(self.0, event::CL_EVENT_COMMAND_EXECUTION_STATUS);
        called(status.map(cl_int::from))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // SAFETY: Releases the reference from enqueueing it.
        let _ = unsafe { event::release_event(self.0) };
    }
}

/// An empty list of events to wait for.
pub(crate) const NO_EVENTS: *const cl_event = ptr::null();
