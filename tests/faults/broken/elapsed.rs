//! Elapsed times that are wrong.

use accelerator_core::{Backend, DriverError, DriverErrorKind, DriverResult};

use super::Broken;
use super::events::BrokenEvent;
use crate::fault::{Fault, planted};

impl<B: Backend> Broken<B> {
    pub(super) fn elapsed(&self, start: &BrokenEvent<B>, end: &BrokenEvent<B>) -> DriverResult<i64> {
        let elapsed = self.inner.elapsed_ns(start.native(), end.native());
        match planted() {
            Some(Fault::ElapsedBackwards) => Ok(-elapsed?),
            Some(Fault::ElapsedSignLost) => Ok(elapsed?.abs()),
            Some(Fault::ElapsedZero) => Ok(0),
            Some(Fault::ElapsedInMicroseconds) => Ok(elapsed? / 1_000),
            Some(Fault::ElapsedInTicks) => Ok(elapsed? / 52),
            Some(Fault::ElapsedTooLarge) => Ok(elapsed? * 1_000),
            Some(Fault::ElapsedWraps) => Ok(elapsed? % (1 << 20)),
            Some(Fault::ElapsedOfTwoClocks) => {
                Ok(elapsed? + (end.stream_number() - start.stream_number()) * 1_000_000_000)
            }
            Some(Fault::ElapsedOfTheSubmission) => {
                let (start, end) = (start.submitted(), end.submitted());
                let (after, before) = (end.saturating_duration_since(start), start.saturating_duration_since(end));
                Ok(after.as_nanos() as i64 - before.as_nanos() as i64)
            }
            Some(Fault::TimingRefused) => {
                Err(DriverError::refused(DriverErrorKind::InvalidArgument, "elapsed_ns", "the event has no timing"))
            }
            _ => elapsed,
        }
    }
}
