//! Events: points in the work of streams.
#![allow(unsafe_code)] // records commands

use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;

use crate::answer;
use crate::device::lock;
use crate::stream::VulkanStream;
use crate::timeline::{Kept, Point};
use crate::timestamps::{Timestamp, Timestamps};

/// A value of the timeline semaphore of the stream on which it was recorded last.
#[derive(Debug)]
pub struct VulkanEvent {
    /// `None` without timing.
    timestamps: Option<Arc<Timestamps>>,
    last: Mutex<Option<Record>>,
}

#[derive(Clone, Debug)]
struct Record {
    point: Point,
    timestamp: Option<Arc<Timestamp>>,
}

impl VulkanEvent {
    pub(crate) fn new(timestamps: Option<Arc<Timestamps>>) -> Self {
        Self { timestamps, last: Mutex::default() }
    }

    /// Records it. Without timing, this submits nothing: the last submission of the stream is the point.
    pub(crate) fn record(&self, stream: &VulkanStream) -> DriverResult<()> {
        let record = match &self.timestamps {
            None => Record { point: stream.timeline.now(), timestamp: None },
            Some(timestamps) => {
                let timestamp = Arc::new(timestamps.timestamp()?);
                let kept: Vec<Kept> = vec![Box::new(Arc::clone(&timestamp))];
                // SAFETY: The submission keeps the timestamp.
                let point = unsafe { stream.timeline.submit(kept, |commands| timestamp.write(commands)) }?;
                Record { point, timestamp: Some(timestamp) }
            }
        };
        *lock(&self.last) = Some(record);
        Ok(())
    }

    /// Returns the point of the last record.
    pub(crate) fn point(&self) -> Option<Point> {
        lock(&self.last).as_ref().map(|record| record.point.clone())
    }

    pub(crate) fn nanoseconds_to(&self, end: &Self) -> DriverResult<i64> {
        match (self.timestamp(), end.timestamp()) {
            (Some(start), Some(end)) => start.nanoseconds_to(&end),
            _ => Err(answer::refused("vkGetQueryPoolResults", "an event without timing, or that was never recorded")),
        }
    }

    fn timestamp(&self) -> Option<Arc<Timestamp>> {
        lock(&self.last).as_ref().and_then(|record| record.timestamp.clone())
    }
}
