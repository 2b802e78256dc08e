//! Events: points in the work of streams.
#![allow(unsafe_code)] // records commands

use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::lock;

use crate::answer;
use crate::stream::VulkanStream;
use crate::timeline::{Kept, Point};
use crate::timestamps::{Query, Timestamps};

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
    query: Option<Arc<Query>>,
}

impl VulkanEvent {
    pub(crate) fn new(timestamps: Option<Arc<Timestamps>>) -> Self {
        Self { timestamps, last: Mutex::default() }
    }

    /// Records it. Without timing, this submits nothing: the last submission of the stream is the point.
    pub(crate) fn record(&self, stream: &VulkanStream) -> DriverResult<()> {
        let record = match &self.timestamps {
            None => Record { point: stream.timeline.now(), query: None },
            Some(timestamps) => {
                let query = Arc::new(timestamps.query()?);
                let kept: Vec<Kept> = vec![Box::new(Arc::clone(&query))];
                let write = |commands| {
                    // SAFETY: The command buffer is being recorded, and the submission keeps the query.
                    unsafe { query.write(commands) };
                };
                // SAFETY: As above.
                let point = unsafe { stream.timeline.submit(kept, write) }?;
                Record { point, query: Some(query) }
            }
        };
        *lock(&self.last) = Some(record);
        Ok(())
    }

    /// Returns the point of the last record.
    pub(crate) fn point(&self) -> Option<Point> {
        self.last().map(|record| record.point)
    }

    pub(crate) fn nanoseconds_to(&self, end: &Self) -> DriverResult<i64> {
        let none = answer::refused("vkGetQueryPoolResults", "an event without timing, or that was never recorded");
        let (start, end) = (self.last().ok_or(none)?, end.last().ok_or(none)?);
        let same_stream = start.point.is_on_stream_of(&end.point);
        start.query.ok_or(none)?.nanoseconds_to(&*end.query.ok_or(none)?, same_stream)
    }

    fn last(&self) -> Option<Record> {
        lock(&self.last).clone()
    }
}
