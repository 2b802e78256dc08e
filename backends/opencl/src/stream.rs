//! Streams and events: queues, and markers in them.
#![allow(unsafe_code)] // calls into the driver

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use accelerator_core::backend_kit::{Submissions, lock};
use accelerator_core::{DriverErrorKind, DriverResult};
use cl3::types::{cl_command_queue, cl_event, cl_int, cl_ulong};
use cl3::{command_queue, event};

use crate::answer;
use crate::handle::{Event, Queue};

/// The time within which an idle queue completes a marker.
const SOON: Duration = Duration::from_millis(1);

/// An in-order command queue.
#[derive(Debug)]
pub struct OpenClStream {
    queue: Arc<Queue>,
    /// Whether another library has the queue and may submit work that this stream does not see.
    shared: AtomicBool,
    /// The work submitted through this stream.
    work: Mutex<Submissions<Arc<Command>>>,
}

/// A command in a queue.
#[derive(Debug)]
pub(crate) struct Command {
    call: &'static str,
    event: Event,
}

/// A marker in a queue; each record makes a new one.
#[derive(Debug, Default)]
pub struct OpenClEvent(Mutex<Option<Arc<Command>>>);

impl OpenClStream {
    pub(crate) fn new(queue: Arc<Queue>, shared: bool) -> Self {
        Self { queue, shared: AtomicBool::new(shared), work: Mutex::default() }
    }

    /// Returns the queue, to submit work with other libraries. It is valid as long as this value lives. After such
    /// work, flush it unless something else follows soon on this stream.
    pub fn native(&self) -> cl_command_queue {
        self.shared.store(true, Ordering::Relaxed);
        self.queue.raw()
    }

    /// Submits a command and flushes the queue.
    pub(crate) fn submit(
        &self,
        call: &'static str,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> DriverResult<Arc<Command>> {
        let event = answer::of(call, enqueue(self.queue.raw()))?;
        // SAFETY: The call has just returned this reference.
        let command = Arc::new(Command { call, event: unsafe { Event::owned(event) } });
        self.work().push(Arc::clone(&command));
        // The command is submitted in any case: a broken queue reports its error again.
        let _ = command_queue::flush(self.queue.raw());
        Ok(command)
    }

    /// Waits for all work. `clFinish` does not report failed commands, so they are queried. Each error is reported
    /// once, as on other devices.
    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        let finished = answer::of("clFinish", command_queue::finish(self.queue.raw()));
        if finished.is_err() {
            // Wait for each command, so that none touches host memory afterwards.
            let running: Vec<_> = lock(&self.work).iter().cloned().collect();
            for command in running {
                let _ = command.wait();
            }
        }
        let failure = self.work().take_failure();
        finished.and(failure)
    }

    /// Whether the stream is idle. OpenCL cannot query a queue. The state of commands submitted here is known. If other
    /// libraries submit commands too, each query submits a new marker after all work, and gives it a moment to
    /// complete.
    pub(crate) fn is_idle(&self) -> DriverResult<bool> {
        let is_done = self.work().is_empty();
        if !is_done || !self.shared.load(Ordering::Relaxed) {
            return Ok(is_done);
        }
        let (marker, start) = (self.marker()?, Instant::now());
        while start.elapsed() < SOON {
            if marker.is_over()? {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Returns the commands that have not ended.
    fn work(&self) -> MutexGuard<'_, Submissions<Arc<Command>>> {
        let mut work = lock(&self.work);
        work.retire(|command| command.outcome().ok().flatten());
        work
    }

    fn marker(&self) -> DriverResult<Arc<Command>> {
        self.submit("clEnqueueMarkerWithWaitList", |queue| {
            // SAFETY: The queue is alive; there is no wait list.
            unsafe { command_queue::enqueue_marker_with_wait_list(queue, 0, ptr::null()) }
        })
    }
}

impl Drop for OpenClStream {
    /// Waits for the work, so that the backend need not know queues that have gone.
    fn drop(&mut self) {
        let _ = self.synchronize(); // nobody is left to be told
    }
}

impl Command {
    /// Returns the command's result, or `None` if it has not ended.
    fn outcome(&self) -> DriverResult<Option<DriverResult<()>>> {
        let status = event::get_event_info(self.event.raw(), event::CL_EVENT_COMMAND_EXECUTION_STATUS);
        Ok(match answer::of("clGetEventInfo", status.map(cl_int::from))? {
            failed if failed < 0 => Some(Err(answer::failed_command(self.call, failed))),
            event::CL_COMPLETE => Some(Ok(())),
            _ => None,
        })
    }

    /// Whether the command has completed or failed.
    fn is_over(&self) -> DriverResult<bool> {
        self.outcome().map(|outcome| outcome.is_some())
    }

    /// Waits until the command has ended, and returns its result.
    fn wait(&self) -> DriverResult<()> {
        let waited = answer::of("clWaitForEvents", event::wait_for_events(&[self.event.raw()]));
        self.outcome()?.unwrap_or(waited)
    }
}

impl OpenClEvent {
    pub(crate) fn record(&self, stream: &OpenClStream) -> DriverResult<()> {
        let marker = stream.marker()?;
        *lock(&self.0) = Some(marker);
        Ok(())
    }

    pub(crate) fn wait_on(&self, stream: &OpenClStream) -> DriverResult<()> {
        // Some drivers hang when they wait for a command that has already failed.
        let Some(marker) = self.marker().filter(|marker| marker.is_over() != Ok(true)) else {
            return Ok(());
        };
        let barrier = stream.submit("clEnqueueBarrierWithWaitList", |queue| {
            // SAFETY: The queue and the event are alive; the list has one entry.
            unsafe { command_queue::enqueue_barrier_with_wait_list(queue, 1, &marker.event.raw()) }
        });
        barrier.map(drop)
    }

    /// Returns the `cl_event` of its last record as a number, or 0 if it was never recorded.
    pub(crate) fn id(&self) -> u64 {
        self.marker().map_or(0, |marker| marker.event.raw().addr() as u64)
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        match self.marker().map_or(Ok(true), |marker| marker.is_over()) {
            Err(lost) if lost.kind == DriverErrorKind::DeviceLost => Ok(true), // no work runs any more
            answer => answer,
        }
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.marker().map_or(Ok(()), |marker| marker.wait())
    }

    /// Returns when the marker was reached, by the device's clock. Some drivers leave the other times of markers at 0.
    pub(crate) fn reached_ns(&self) -> DriverResult<u64> {
        let Some(marker) = self.marker() else { return Ok(0) };
        let end = event::get_event_profiling_info(marker.event.raw(), event::CL_PROFILING_COMMAND_END);
        answer::of("clGetEventProfilingInfo", end.map(cl_ulong::from))
    }

    fn marker(&self) -> Option<Arc<Command>> {
        lock(&self.0).clone()
    }
}
