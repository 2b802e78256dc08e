//! Events, which can be recorded repeatedly.

use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{DeviceClock, lock};
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
struct Record {
    signal: Arc<Signal>,
    queue: Arc<Queue>,
}

impl XpuEvent {
    pub(crate) fn new(device: &Arc<Device>, signals: &Arc<Signals>) -> Self {
        Self { device: Arc::clone(device), signals: Arc::clone(signals), recorded: Mutex::new(None) }
    }

    fn recorded(&self) -> Option<Record> {
        lock(&self.recorded).clone()
    }

    pub(crate) fn record(&self, queue: &Arc<Queue>) -> DriverResult<()> {
        let signal = queue.record(&self.signals)?;
        let record = signal.map(|signal| Record { signal, queue: Arc::clone(queue) });
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
        self.recorded().map_or(Ok(()), |record| queue.wait_for(&record.signal))
    }

    /// Returns the Level Zero event of its last record as a number, or 0 if it was never recorded or no work preceded
    /// the record.
    pub(crate) fn id(&self) -> u64 {
        self.recorded().map_or(0, |record| record.signal.event.addr() as u64)
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        let asked = self.recorded().map_or(Ok(true), |record| record.signal.is_reached());
        // A lost device does no more work, so all of its work counts as complete.
        asked.or_else(|error| if self.device.is_lost() { Ok(true) } else { Err(error) })
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.device.health.check()?;
        self.recorded().map_or(Ok(()), |record| record.signal.wait())
    }

    pub(crate) fn elapsed_ns(&self, end: &Self, clock: DeviceClock) -> DriverResult<i64> {
        let (Some(from), Some(to)) = (self.recorded(), end.recorded()) else {
            let why = "an event was not recorded";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, "zeEventQueryKernelTimestamp", why));
        };
        let same_stream = Arc::ptr_eq(&from.queue, &to.queue);
        Ok(clock.elapsed_ns(from.signal.timestamp()?, to.signal.timestamp()?, same_stream))
    }
}
