//! Events, which can be recorded repeatedly.

use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{DeviceClock, EventCapture, lock};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult};

use crate::device::Device;
use crate::queue::Queue;
use crate::signal::{Signal, Signals};

/// An event of an Intel GPU. It refers to the Level Zero event of its last record, which is used only once.
#[derive(Debug)]
pub struct XpuEvent {
    pub(crate) device: Arc<Device>,
    signals: Arc<Signals>,
    /// `None` if it was never recorded, or no work preceded the record.
    recorded: Mutex<Option<Record>>,
}

#[derive(Clone, Debug)]
enum Record {
    Submitted(Arc<Signal>, Arc<Queue>),
    /// The stream captured at the time.
    Captured(EventCapture),
}

impl XpuEvent {
    pub(crate) fn new(device: &Arc<Device>, signals: &Arc<Signals>) -> Self {
        Self { device: Arc::clone(device), signals: Arc::clone(signals), recorded: Mutex::new(None) }
    }

    fn recorded(&self) -> Option<Record> {
        lock(&self.recorded).clone()
    }

    /// Returns the signal of the last record and its queue, for `call`, which has no answer for records in captures.
    fn submitted(&self, call: &'static str) -> DriverResult<Option<(Arc<Signal>, Arc<Queue>)>> {
        match self.recorded() {
            None => Ok(None),
            Some(Record::Submitted(signal, queue)) => Ok(Some((signal, queue))),
            Some(Record::Captured(captured)) => Err(captured.unanswered(call)),
        }
    }

    pub(crate) fn record(&self, queue: &Arc<Queue>) -> DriverResult<()> {
        if !Arc::ptr_eq(&self.device, &queue.device) {
            // Its signals are events of a context that the queue may not know.
            let why = "the stream and the event belong to different devices";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, "zeCommandListAppendBarrier", why));
        }
        let record = match queue.device.captures.record_event(queue.number) {
            Some(captured) => Some(Record::Captured(captured)),
            None => queue.record(&self.signals)?.map(|signal| Record::Submitted(signal, Arc::clone(queue))),
        };
        *lock(&self.recorded) = record;
        Ok(())
    }

    /// Makes the queue wait for this event. The queue may belong to another device of the context.
    pub(crate) fn wait_on(&self, queue: &Queue) -> DriverResult<()> {
        self.device.health.check()?;
        if self.device.context() != queue.device.context() {
            let why = "the event belongs to a device of another driver";
            return Err(DriverError::refused(DriverErrorKind::Unsupported, "zeCommandListAppendBarrier", why));
        }
        let captures = &queue.device.captures;
        match self.recorded() {
            None => Ok(()),
            Some(Record::Captured(captured)) => captures.wait(queue.number, Some(&captured)).map(drop),
            Some(Record::Submitted(signal, _)) => {
                captures.wait(queue.number, None)?; // refuses if the queue captures
                queue.wait_for(&signal)
            }
        }
    }

    /// Returns the Level Zero event of its last record as a number, or 0 if it was never recorded, no work preceded the
    /// record, or a stream was capturing.
    pub(crate) fn id(&self) -> u64 {
        match self.recorded() {
            Some(Record::Submitted(signal, _)) => signal.event.addr() as u64,
            _ => 0,
        }
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        let asked = self.submitted("zeEventQueryStatus");
        let asked = asked.and_then(|submitted| submitted.map_or(Ok(true), |(signal, _)| signal.is_reached()));
        // A lost device does no more work, so all of its work counts as complete.
        asked.or_else(|error| if self.device.is_lost() { Ok(true) } else { Err(error) })
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.device.health.check()?;
        self.submitted("zeEventHostSynchronize")?.map_or(Ok(()), |(signal, _)| signal.wait())
    }

    pub(crate) fn elapsed_ns(&self, end: &Self, clock: DeviceClock) -> DriverResult<i64> {
        const CALL: &str = "zeEventQueryKernelTimestamp";
        let (Some((from, start)), Some((to, stop))) = (self.submitted(CALL)?, end.submitted(CALL)?) else {
            let why = "an event was not recorded";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, CALL, why));
        };
        Ok(clock.elapsed_ns(from.timestamp()?, to.timestamp()?, Arc::ptr_eq(&start, &stop)))
    }
}
