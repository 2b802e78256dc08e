//! Streams and events: queues, and markers in them.
#![allow(unsafe_code)] // calls into the driver

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use accelerator_core::{DriverError, DriverResult};
use cl3::types::{cl_command_queue, cl_event, cl_int, cl_ulong};
use cl3::{command_queue, event};

use crate::answer;
use crate::handle::{Event, Queue};

/// An idle queue comes to a marker within this time.
const SOON: Duration = Duration::from_millis(1);

/// An in-order command queue.
#[derive(Debug)]
pub struct OpenClStream {
    queue: Arc<Queue>,
    /// Whether another library has the queue, and may submit work that is not seen here.
    shared: AtomicBool,
    work: Mutex<Work>,
}

/// What was submitted here.
#[derive(Debug, Default)]
struct Work {
    /// Commands in order, without the first that are over.
    pending: VecDeque<Arc<Command>>,
    /// The first failure among those that are over, until it is told.
    failed: Option<DriverError>,
}

/// A command in a queue.
#[derive(Debug)]
pub(crate) struct Command {
    call: &'static str,
    event: Event,
}

/// A marker in a queue, a fresh one at each record.
#[derive(Debug, Default)]
pub struct OpenClEvent(Mutex<Option<Arc<Command>>>);

impl OpenClStream {
    pub(crate) fn new(queue: Arc<Queue>, shared: bool) -> Self {
        Self { queue, shared: AtomicBool::new(shared), work: Mutex::default() }
    }

    /// The queue, to submit work with other libraries; it lives as long as this. Flush it after work that nothing else
    /// here follows soon.
    pub fn native(&self) -> cl_command_queue {
        self.shared.store(true, Ordering::Relaxed);
        self.queue.raw()
    }

    /// Submits a command and sets it going.
    pub(crate) fn submit(
        &self,
        call: &'static str,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> DriverResult<Arc<Command>> {
        let event = answer::of(call, enqueue(self.queue.raw()))?;
        // SAFETY: The call just gave this reference.
        let command = Arc::new(Command { call, event: unsafe { Event::owned(event) } });
        let mut work = lock(&self.work);
        work.look();
        work.pending.push_back(Arc::clone(&command));
        drop(work);
        // It is submitted, whatever this answers: a queue that is broken tells so again.
        let _ = command_queue::flush(self.queue.raw());
        Ok(command)
    }

    /// `clFinish` tells nothing of commands that failed, so they are asked. Told once, as on other devices.
    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        let finished = answer::of("clFinish", command_queue::finish(self.queue.raw()));
        if finished.is_err() {
            // Nothing may touch host memory afterwards.
            let pending = lock(&self.work).pending.clone();
            for command in pending {
                let _ = command.wait();
            }
        }
        let mut work = lock(&self.work);
        work.look();
        finished.and(work.failed.take().map_or(Ok(()), Err))
    }

    /// A queue cannot be asked. What was submitted here is known; for what others submit there is a marker behind all
    /// work, which must be fresh each time and is given a moment.
    pub(crate) fn is_idle(&self) -> DriverResult<bool> {
        let mut work = lock(&self.work);
        work.look();
        if !work.pending.is_empty() || !self.shared.load(Ordering::Relaxed) {
            return Ok(work.pending.is_empty());
        }
        drop(work);
        let (marker, start) = (self.marker()?, Instant::now());
        while start.elapsed() < SOON {
            if marker.is_over()? {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    fn marker(&self) -> DriverResult<Arc<Command>> {
        self.submit("clEnqueueMarkerWithWaitList", |queue| {
            // SAFETY: The queue lives; there is no wait list.
            unsafe { command_queue::enqueue_marker_with_wait_list(queue, 0, ptr::null()) }
        })
    }
}

impl Work {
    /// Takes off what is over.
    fn look(&mut self) {
        while let Some(Ok(Some(outcome))) = self.pending.front().map(|command| command.outcome()) {
            self.failed = self.failed.or(outcome.err());
            self.pending.pop_front();
        }
    }
}

impl Command {
    /// What it came to; `None`: it is not over.
    fn outcome(&self) -> DriverResult<Option<DriverResult<()>>> {
        let status = event::get_event_info(self.event.raw(), event::CL_EVENT_COMMAND_EXECUTION_STATUS);
        Ok(match answer::of("clGetEventInfo", status.map(cl_int::from))? {
            failed if failed < 0 => Some(Err(answer::failed_command(self.call, failed))),
            event::CL_COMPLETE => Some(Ok(())),
            _ => None,
        })
    }

    /// Whether it is complete, or failed.
    fn is_over(&self) -> DriverResult<bool> {
        self.outcome().map(|outcome| outcome.is_some())
    }

    /// Waits until it is over, and tells what it came to.
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
        // Some drivers never get past a wait for a command that has failed already.
        let Some(marker) = self.marker().filter(|marker| marker.is_over() != Ok(true)) else {
            return Ok(());
        };
        let barrier = stream.submit("clEnqueueBarrierWithWaitList", |queue| {
            // SAFETY: Queue and event live; the list has one entry.
            unsafe { command_queue::enqueue_barrier_with_wait_list(queue, 1, &marker.event.raw()) }
        });
        barrier.map(drop)
    }

    /// The `cl_event` of its last record as a number; 0: it was never recorded.
    pub(crate) fn id(&self) -> u64 {
        self.marker().map_or(0, |marker| marker.event.raw().addr() as u64)
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        self.marker().map_or(Ok(true), |marker| marker.is_over())
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.marker().map_or(Ok(()), |marker| marker.wait())
    }

    /// When it was reached, by the device's clock. Some drivers leave the other times of markers at 0.
    pub(crate) fn reached_ns(&self) -> DriverResult<u64> {
        let Some(marker) = self.marker() else { return Ok(0) };
        let end = event::get_event_profiling_info(marker.event.raw(), event::CL_PROFILING_COMMAND_END);
        answer::of("clGetEventProfilingInfo", end.map(cl_ulong::from))
    }

    fn marker(&self) -> Option<Arc<Command>> {
        lock(&self.0).clone()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
