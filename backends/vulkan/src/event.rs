//! Events: points in the work of streams.
#![allow(unsafe_code)] // records commands

use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{EventCapture, lock};

use crate::answer;
use crate::device::Device;
use crate::stream::VulkanStream;
use crate::timeline::{Kept, Point, Timeline};
use crate::timestamps::{Query, Timestamps};

/// A value of the timeline semaphore of the stream on which it was recorded last.
#[derive(Debug)]
pub struct VulkanEvent {
    device: Arc<Device>,
    /// `None` without timing.
    timestamps: Option<Arc<Timestamps>>,
    last: Mutex<Option<Record>>,
}

#[derive(Clone, Debug)]
enum Record {
    Submitted {
        point: Point,
        query: Option<Arc<Query>>,
    },
    /// The stream captured at the time.
    Captured(EventCapture),
}

impl VulkanEvent {
    pub(crate) fn new(device: &Arc<Device>, timestamps: Option<Arc<Timestamps>>) -> Self {
        Self { device: Arc::clone(device), timestamps, last: Mutex::default() }
    }

    /// Records it. Without timing, this submits nothing: the last submission of the stream is the point.
    pub(crate) fn record(&self, stream: &VulkanStream) -> DriverResult<()> {
        let timeline = self.timeline("vkCmdWriteTimestamp", stream)?;
        if let Some(captured) = timeline.device.captures.record_event(timeline.number) {
            *lock(&self.last) = Some(Record::Captured(captured));
            return Ok(());
        }
        let record = match &self.timestamps {
            None => Record::Submitted { point: timeline.now(), query: None },
            Some(timestamps) => {
                let query = Arc::new(timestamps.query()?);
                let kept: Vec<Kept> = vec![Arc::clone(&query) as Kept];
                // SAFETY: The command buffer is being recorded, and the submission keeps the query.
                let write = |commands| unsafe { query.write(commands) };
                // SAFETY: As above.
                let point = unsafe { timeline.submit(kept, write) }?;
                Record::Submitted { point, query: Some(query) }
            }
        };
        *lock(&self.last) = Some(record);
        Ok(())
    }

    /// Makes the stream wait for the last record. If that was captured, so is the wait.
    pub(crate) fn make_wait(&self, stream: &VulkanStream) -> DriverResult<()> {
        let timeline = self.timeline("vkQueueSubmit", stream)?;
        let captures = &timeline.device.captures;
        match self.last() {
            None => Ok(()),
            Some(Record::Captured(captured)) => captures.wait(timeline.number, Some(&captured)).map(drop),
            Some(Record::Submitted { point, .. }) => {
                captures.wait(timeline.number, None)?; // refuses if the stream captures
                timeline.wait_for(&point)
            }
        }
    }

    /// Returns the point of the last record, for `call`, which has no answer for records in captures.
    pub(crate) fn point(&self, call: &'static str) -> DriverResult<Option<Point>> {
        Ok(self.submitted(call)?.map(|(point, _)| point))
    }

    pub(crate) fn nanoseconds_to(&self, end: &Self) -> DriverResult<i64> {
        const CALL: &str = "vkGetQueryPoolResults";
        let none = answer::refused(CALL, "an event without timing, or that was never recorded");
        let (start, from) = self.submitted(CALL)?.ok_or(none)?;
        let (end, to) = end.submitted(CALL)?.ok_or(none)?;
        from.ok_or(none)?.nanoseconds_to(&*to.ok_or(none)?, start.is_on_stream_of(&end))
    }

    fn submitted(&self, call: &'static str) -> DriverResult<Option<(Point, Option<Arc<Query>>)>> {
        match self.last() {
            None => Ok(None),
            Some(Record::Submitted { point, query }) => Ok(Some((point, query))),
            Some(Record::Captured(captured)) => Err(captured.unanswered(call)),
        }
    }

    /// Returns the timeline of a stream, unless it belongs to another logical device: Vulkan does not allow to use the
    /// objects of one with another.
    fn timeline<'a>(&self, call: &'static str, stream: &'a VulkanStream) -> DriverResult<&'a Arc<Timeline>> {
        let foreign = answer::refused(call, "the stream and the event belong to different devices");
        Some(&stream.timeline).filter(|timeline| Arc::ptr_eq(&self.device, &timeline.device)).ok_or(foreign)
    }

    fn last(&self) -> Option<Record> {
        lock(&self.last).clone()
    }
}
