//! Streams and events: queues, and markers in them.
#![allow(unsafe_code)] // calls into the driver

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_core::backend_kit::{Captures, EventCapture, Submissions, lock};
use accelerator_core::{DriverErrorKind, DriverResult};
use cl3::types::{cl_command_queue, cl_event, cl_int, cl_ulong};
use cl3::{command_queue, event};

use crate::answer;
use crate::handle::{Event, Queue};
use crate::work::Work;

/// The time within which an idle queue completes a marker.
const SOON: Duration = Duration::from_millis(1);

/// An in-order command queue.
#[derive(Debug)]
pub struct OpenClStream {
    queue: Arc<Queue>,
    pub(crate) captures: Arc<Captures<Work>>,
    /// Distinguishes all streams of the process in captures.
    pub(crate) number: u64,
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
pub struct OpenClEvent(Mutex<Option<Record>>);

#[derive(Clone, Debug)]
enum Record {
    Submitted(Arc<Command>),
    /// The stream captured at the time.
    Captured(EventCapture),
}

impl OpenClStream {
    pub(crate) fn new(queue: Arc<Queue>, shared: bool, captures: &Arc<Captures<Work>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (captures, number) = (Arc::clone(captures), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { queue, captures, number, shared: AtomicBool::new(shared), work: Mutex::default() }
    }

    /// Returns the queue, to submit work with other libraries. It is valid as long as this value lives. After such
    /// work, flush it unless something else follows soon on this stream. While the stream captures, such work runs at
    /// once: a graph cannot contain it.
    pub fn native(&self) -> cl_command_queue {
        self.shared.store(true, Ordering::Relaxed);
        self.queue.raw()
    }

    /// Returns the queue for a graph.
    pub(crate) fn raw(&self) -> cl_command_queue {
        self.queue.raw()
    }

    /// Captures work if the stream captures, and submits it otherwise.
    ///
    /// # Safety
    /// * The requirements of [`Work::enqueue`]; captured work is done when its graph is launched.
    pub(crate) unsafe fn run(&self, work: Work) -> DriverResult<()> {
        if self.captures.record(self.number, || work.clone()) {
            return Ok(());
        }
        // SAFETY: The queue is alive; the caller promises the rest.
        self.submit(work.call(), |queue| unsafe { work.enqueue(queue) }).map(drop)
    }

    /// Refuses a call that cannot be captured, if the stream captures.
    pub(crate) fn refuse_captured(&self, call: &'static str) -> DriverResult<()> {
        self.captures.refuse_captured(self.number, call)
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

    /// Waits for all work, for the host. Earlier work may still access host memory, even if the stream captures now.
    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        self.finish()?;
        self.refuse_captured("clFinish")
    }

    /// Waits for all work, however often the driver refuses to wait. `clFinish` does not report failed commands, so
    /// they are queried. Each error is reported once, as on other devices.
    pub(crate) fn finish(&self) -> DriverResult<()> {
        let finished = answer::of("clFinish", command_queue::finish(self.queue.raw()));
        if finished.is_err() {
            // Wait for each command, so that none touches host memory afterwards.
            let running: Vec<_> = lock(&self.work).iter().cloned().collect();
            for command in running {
                at_any_cost(|| command.await_end());
            }
        }
        let failure = self.work().take_failure();
        finished.and(failure)
    }

    /// Whether the stream is idle. OpenCL cannot query a queue. The state of commands submitted here is known. If other
    /// libraries submit commands too, each query submits a new marker after all work, and gives it a moment to
    /// complete.
    pub(crate) fn is_idle(&self) -> DriverResult<bool> {
        self.refuse_captured("clGetEventInfo")?;
        let is_done = self.work().is_empty();
        if !is_done || !self.shared.load(Ordering::Relaxed) {
            return Ok(is_done);
        }
        let (marker, start) = (self.marker()?, Instant::now());
        while start.elapsed() < SOON {
            if marker.is_over()? {
                return Ok(true);
            }
            thread::yield_now();
        }
        Ok(false)
    }

    /// Returns the commands that have not ended.
    fn work(&self) -> MutexGuard<'_, Submissions<Arc<Command>>> {
        let mut work = lock(&self.work);
        work.retire(|command| command.outcome().ok().flatten());
        work
    }

    pub(crate) fn marker(&self) -> DriverResult<Arc<Command>> {
        self.submit("clEnqueueMarkerWithWaitList", |queue| {
            // SAFETY: The queue is alive; there is no wait list.
            unsafe { command_queue::enqueue_marker_with_wait_list(queue, 0, ptr::null()) }
        })
    }
}

impl OpenClStream {
    /// Makes later work wait for a command, which must not have failed: some drivers hang then.
    pub(crate) fn wait_for(&self, command: &Command) -> DriverResult<()> {
        if let Some(outcome) = command.outcome()? {
            return outcome;
        }
        let barrier = self.submit("clEnqueueBarrierWithWaitList", |queue| {
            // SAFETY: The queue and the event are alive; the list has one entry.
            unsafe { command_queue::enqueue_barrier_with_wait_list(queue, 1, &command.event.raw()) }
        });
        barrier.map(drop)
    }
}

impl Drop for OpenClStream {
    /// Gives up the capture that it began, if it did. Waits for the work, so that the backend need not know queues that
    /// have gone.
    fn drop(&mut self) {
        self.captures.abandon(self.number);
        let _ = self.finish(); // nobody is left to be told
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
    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.await_end()?.unwrap_or(Ok(()))
    }

    /// Waits until the command has ended, and returns its result, or `None` if the driver waited without that. An error
    /// says nothing about the command.
    pub(crate) fn await_end(&self) -> DriverResult<Option<DriverResult<()>>> {
        let waited = answer::of("clWaitForEvents", event::wait_for_events(&[self.event.raw()]));
        // The wait for a command that failed is refused, too.
        match self.outcome()? {
            None => waited.map(|()| None),
            ended => Ok(ended),
        }
    }
}

/// Repeats a wait until it finds that its command has ended, or that the device is lost, which ends all work.
fn at_any_cost(mut wait: impl FnMut() -> DriverResult<Option<DriverResult<()>>>) {
    loop {
        match wait() {
            Ok(Some(_)) => return,
            Err(error) if error.kind == DriverErrorKind::DeviceLost => return,
            _ => thread::sleep(SOON),
        }
    }
}

impl OpenClEvent {
    pub(crate) fn record(&self, stream: &OpenClStream) -> DriverResult<()> {
        let record = match stream.captures.record_event(stream.number) {
            Some(captured) => Record::Captured(captured),
            None => Record::Submitted(stream.marker()?),
        };
        *lock(&self.0) = Some(record);
        Ok(())
    }

    pub(crate) fn wait_on(&self, stream: &OpenClStream) -> DriverResult<()> {
        match self.last() {
            None => Ok(()),
            Some(Record::Captured(captured)) => stream.captures.wait(stream.number, Some(&captured)).map(drop),
            Some(Record::Submitted(marker)) => {
                stream.captures.wait(stream.number, None)?; // refuses if the stream captures
                // Who waits is not told of failures.
                if marker.is_over() == Ok(true) { Ok(()) } else { stream.wait_for(&marker) }
            }
        }
    }

    /// Returns the `cl_event` of its last record as a number, or 0 if it was never recorded, or in a capture.
    pub(crate) fn id(&self) -> u64 {
        match self.last() {
            Some(Record::Submitted(marker)) => marker.event.raw().addr() as u64,
            _ => 0,
        }
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        match self.marker("clGetEventInfo")?.map_or(Ok(true), |marker| marker.is_over()) {
            Err(lost) if lost.kind == DriverErrorKind::DeviceLost => Ok(true), // no work runs any more
            answer => answer,
        }
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.marker("clWaitForEvents")?.map_or(Ok(()), |marker| marker.wait())
    }

    /// Returns when the marker was reached, by the device's clock. Some drivers leave the other times of markers at 0.
    pub(crate) fn reached_ns(&self) -> DriverResult<u64> {
        const CALL: &str = "clGetEventProfilingInfo";
        let Some(marker) = self.marker(CALL)? else { return Ok(0) };
        let end = event::get_event_profiling_info(marker.event.raw(), event::CL_PROFILING_COMMAND_END);
        answer::of(CALL, end.map(cl_ulong::from))
    }

    /// Returns the marker of its last record, for `call`, which has no answer for records in captures.
    fn marker(&self, call: &'static str) -> DriverResult<Option<Arc<Command>>> {
        match self.last() {
            None => Ok(None),
            Some(Record::Submitted(marker)) => Ok(Some(marker)),
            Some(Record::Captured(captured)) => Err(captured.unanswered(call)),
        }
    }

    fn last(&self) -> Option<Record> {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use accelerator_core::DriverError;

    use super::*;

    /// Returns the number of waits for a command of which the driver says this, in turn.
    fn waits(told: &[DriverResult<Option<DriverResult<()>>>]) -> usize {
        let mut told = told.iter().copied();
        let before = told.len();
        at_any_cost(|| told.next().unwrap_or(Ok(Some(Ok(())))));
        before - told.len()
    }

    #[test]
    fn a_command_is_awaited_although_the_driver_refuses_to_wait() {
        let refused = |kind| DriverError::new(kind, "clWaitForEvents", -5, "CL_OUT_OF_RESOURCES");
        let (busy, lost) = (refused(DriverErrorKind::Other), refused(DriverErrorKind::DeviceLost));
        let over = Ok(Some(Ok(())));
        assert_eq!(waits(&[over, over]), 1);
        assert_eq!(waits(&[Err(busy), Ok(None), Err(busy), over, over]), 4);
        assert_eq!(waits(&[Err(busy), Ok(Some(Err(busy))), over]), 2, "a command that failed has ended");
        assert_eq!(waits(&[Err(busy), Err(lost), over]), 2, "nothing runs on a lost device");
    }
}
