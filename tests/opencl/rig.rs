//! What the trials share: a device, calls of other libraries, streams that wait, numbers that look random.
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

/// A trial that needs a device. Ignored where there is none, unless `ACCELERATOR_REQUIRE` asks for one.
pub(crate) fn trial(name: impl Into<String>, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match OpenCl::probe() {
        Ok(_) => run().map(|()| Completion::Completed),
        Err(why) => unavailable(OpenCl::KIND.name(), &why.reason),
    })
}

/// The first device, opened anew.
pub(crate) fn device() -> Result<&'static Accelerator<OpenCl>, Failed> {
    around(OpenCl::with_capacity(0, None)?)
}

pub(crate) fn around<B: Backend>(backend: B) -> Result<&'static Accelerator<B>, Failed> {
    Ok(Accelerator::new(backend, 0, AllocatorConfig::default())?)
}

/// Fails unless nothing is left once the cache is given back.
pub(crate) fn check_all_gone<B: Backend>(device: &'static Accelerator<B>) -> Outcome {
    give_back(device)?;
    let total = device.properties().total_memory;
    assert_eq!(free(device)?.unwrap_or(total), total);
    Ok(())
}

/// Bytes that are free by the backend's own count; `None`: the driver told, and others use the device too.
pub(crate) fn free<B: Backend>(device: &'static Accelerator<B>) -> Result<Option<u64>, Failed> {
    let MemoryInfo { free, source, .. } = device.memory_info()?;
    Ok((source == MemoryInfoSource::Accounting).then_some(free))
}

/// Asks until it is true, which is soon.
pub(crate) fn becomes_true(mut ask: impl FnMut() -> Result<bool, Failed>) -> Outcome {
    let start = Instant::now();
    while !ask()? {
        if start.elapsed() > Duration::from_secs(60) {
            return Err("not after a minute".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Fails if the stream is idle, or would be if it were not held up.
pub(crate) fn check_busy(stream: Stream<OpenCl>) -> Outcome {
    for _ in 0..2 {
        assert!(!stream.is_idle()?);
        std::thread::sleep(Duration::from_millis(20)); // what may run has run by then
    }
    assert!(!stream.is_idle()?);
    Ok(())
}

/// What a call of another library answered, with the name of its error.
pub(crate) fn called<T>(answer: Result<T, cl_int>) -> Result<T, Failed> {
    answer.map_err(|code| format!("{} ({code})", error_text(code)).into())
}

pub(crate) fn bytes(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

/// Copies from the device past all that the allocator and the buffers know, and waits for it.
pub(crate) fn read_raw(
    backend: &OpenCl,
    from: OpenClPtr,
    len: u64,
    stream: &OpenClStream,
) -> Result<Vec<u8>, Failed> {
    let mut host = vec![0; len as usize];
    let to = Place::Host(NonNull::from(host.as_mut_slice()).cast());
    // SAFETY: Every caller gives a place with this many bytes; those of the host live past the synchronise.
    let copied = unsafe { backend.copy(to, Place::Device(from), bytes(len), stream) };
    copied.and_then(|()| backend.synchronize(stream))?;
    Ok(host)
}

/// A user event, which ends when it is told to: to hold a stream up with.
///
/// Dropped, it lets go, so that a trial that fails leaves nobody waiting.
pub(crate) struct UserEvent {
    native: cl_event,
    ended: bool,
}

impl UserEvent {
    pub(crate) fn new(context: cl_context) -> Result<Self, Failed> {
        Ok(Self { native: called(event::create_user_event(context))?, ended: false })
    }

    /// One that what the stream is given from now on waits for, and the event of the command that does.
    pub(crate) fn ahead_of(backend: &OpenCl, stream: &OpenClStream) -> Result<(Self, Pending), Failed> {
        let own = Self::new(backend.native().0)?;
        let queue = stream.native();
        // SAFETY: Queue and event live; the list has one entry.
        let barrier = unsafe { command_queue::enqueue_barrier_with_wait_list(queue, 1, &own.native) };
        let barrier = Pending(called(barrier)?);
        called(command_queue::flush(queue))?;
        Ok((own, barrier))
    }

    /// Holds up what the stream is given from now on.
    pub(crate) fn hold(stream: Stream<OpenCl>) -> Result<Self, Failed> {
        Ok(Self::ahead_of(stream.backend(), stream.native())?.0)
    }

    /// Ends it: complete, or failed with a negative status.
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
            // What goes wrong here is no news: the trial has failed already.
            let _ = event::set_user_event_status(self.native, event::CL_COMPLETE);
        }
        // SAFETY: The reference that came from making it.
        let _ = unsafe { event::release_event(self.native) };
    }
}

/// The event of a command.
pub(crate) struct Pending(pub(crate) cl_event);

impl Pending {
    /// How far the command is, by the driver's word: 0 when it is complete, negative when it failed.
    pub(crate) fn status(&self) -> Result<cl_int, Failed> {
        let status = event::get_event_info(self.0, event::CL_EVENT_COMMAND_EXECUTION_STATUS);
        called(status.map(cl_int::from))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // SAFETY: The reference that came from enqueueing it.
        let _ = unsafe { event::release_event(self.0) };
    }
}

/// No events to wait for.
pub(crate) const NO_EVENTS: *const cl_event = ptr::null();
