//! Streams and events: queues, and markers in them.
#![allow(unsafe_code)] // calls into the driver

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelerator_core::DriverResult;
use cl3::types::{cl_command_queue, cl_event, cl_int, cl_ulong};
use cl3::{command_queue, event};

use crate::answer;
use crate::handle::{Event, Queue};

/// An in-order command queue.
#[derive(Debug)]
pub struct OpenClStream {
    queue: Arc<Queue>,
    /// How often something was submitted.
    submitted: AtomicU64,
    last: Mutex<Last>,
}

/// What the first submissions come to: a marker behind them, or that they are done.
#[derive(Clone, Debug, Default)]
struct Last {
    submitted: u64,
    marker: Option<Arc<Event>>,
}

/// A marker in a queue, a fresh one at each record.
#[derive(Debug, Default)]
pub struct OpenClEvent(Mutex<Option<Arc<Event>>>);

impl OpenClStream {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, submitted: AtomicU64::new(0), last: Mutex::default() }
    }

    /// The queue, to submit work with other libraries. Ask for it each time: that something is submitted is what
    /// [`is_idle`](accelerator_core::Stream::is_idle) goes by.
    pub fn native(&self) -> cl_command_queue {
        self.submitted.fetch_add(1, Ordering::AcqRel);
        self.queue.raw()
    }

    /// Submits a command and sets it going. The event of its end.
    pub(crate) fn submit(
        &self,
        call: &'static str,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> DriverResult<Event> {
        let event = answer::of(call, enqueue(self.queue.raw()))?;
        self.submitted.fetch_add(1, Ordering::AcqRel);
        // It is submitted, whatever this answers: a queue that is broken tells so again.
        let _ = command_queue::flush(self.queue.raw());
        // SAFETY: The call just gave this reference.
        Ok(unsafe { Event::owned(event) })
    }

    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        let submitted = self.submitted.load(Ordering::Acquire);
        answer::of("clFinish", command_queue::finish(self.queue.raw()))?;
        *lock(&self.last) = Last { submitted, marker: None };
        Ok(())
    }

    /// A queue cannot be asked, and a fresh marker in an idle one is not reached at once: so a marker is kept until something
    /// more is submitted.
    pub(crate) fn is_idle(&self) -> DriverResult<bool> {
        let submitted = self.submitted.load(Ordering::Acquire);
        if lock(&self.last).submitted < submitted {
            let marker = Some(self.marker()?);
            *lock(&self.last) = Last { submitted: submitted + 1, marker }; // the marker was submitted, too
        }
        let last = lock(&self.last).clone();
        last.marker.map_or(Ok(true), |marker| is_complete(&marker))
    }

    fn marker(&self) -> DriverResult<Arc<Event>> {
        let marker = self.submit("clEnqueueMarkerWithWaitList", |queue| {
            // SAFETY: The queue lives; there is no wait list.
            unsafe { command_queue::enqueue_marker_with_wait_list(queue, 0, ptr::null()) }
        });
        marker.map(Arc::new)
    }
}

impl OpenClEvent {
    pub(crate) fn record(&self, stream: &OpenClStream) -> DriverResult<()> {
        let marker = stream.marker()?;
        *lock(&self.0) = Some(marker);
        Ok(())
    }

    pub(crate) fn wait_on(&self, stream: &OpenClStream) -> DriverResult<()> {
        let Some(marker) = self.marker() else { return Ok(()) };
        let barrier = stream.submit("clEnqueueBarrierWithWaitList", |queue| {
            // SAFETY: Queue and event live; the list has one entry.
            unsafe { command_queue::enqueue_barrier_with_wait_list(queue, 1, &marker.raw()) }
        });
        barrier.map(drop)
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        self.marker().map_or(Ok(true), |marker| is_complete(&marker))
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        let Some(marker) = self.marker() else { return Ok(()) };
        answer::of("clWaitForEvents", event::wait_for_events(&[marker.raw()]))
    }

    /// When it was reached, by the device's clock. Some drivers leave the other times of markers at 0.
    pub(crate) fn reached_ns(&self) -> DriverResult<u64> {
        let Some(marker) = self.marker() else { return Ok(0) };
        let end = event::get_event_profiling_info(marker.raw(), event::CL_PROFILING_COMMAND_END);
        answer::of("clGetEventProfilingInfo", end.map(cl_ulong::from))
    }

    fn marker(&self) -> Option<Arc<Event>> {
        lock(&self.0).clone()
    }
}

fn is_complete(event: &Event) -> DriverResult<bool> {
    let status = event::get_event_info(event.raw(), event::CL_EVENT_COMMAND_EXECUTION_STATUS);
    match answer::of("clGetEventInfo", status.map(cl_int::from))? {
        failed if failed < 0 => Err(answer::error("a command ahead of the event (clGetEventInfo)", failed)),
        status => Ok(status == event::CL_COMPLETE),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
