//! Events, and the ways to get records, waits and queries wrong.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use accelerator_core::{Backend, DriverError, DriverErrorKind, DriverResult, EventFlags};

use super::streams::{Deferred, Lane, within_patience};
use super::{Broken, for_ever, lock};
use crate::fault::{Fault, has, planted};

/// How many events a driver makes that runs out of them.
const EVENTS: u32 = 100;

/// An event with a fault.
pub(crate) struct BrokenEvent<B: Backend> {
    native: Arc<B::Event>,
    last: Mutex<Record<B>>,
}

/// The last record of an event.
struct Record<B: Backend> {
    /// The stream, if the event was recorded.
    lane: Option<Arc<Lane<B>>>,
    /// How often the stream had been synchronized.
    synchronized: u64,
    /// When it was submitted.
    at: Instant,
    /// Whether the event is never reached.
    lost: bool,
    /// Whether the program knows that the event was reached.
    reached: bool,
    /// How often the driver was asked.
    queries: u32,
}

impl<B: Backend> BrokenEvent<B> {
    pub(super) fn native(&self) -> &B::Event {
        &self.native
    }

    pub(super) fn submitted(&self) -> Instant {
        self.last().at
    }

    fn last(&self) -> MutexGuard<'_, Record<B>> {
        lock(&self.last)
    }

    fn is_of_a_side_stream(&self) -> bool {
        self.last().lane.as_ref().is_some_and(|lane| lane.number > 0)
    }

    /// The number of the stream of the last record.
    pub(super) fn stream_number(&self) -> i64 {
        self.last().lane.as_ref().map_or(0, |lane| lane.number as i64)
    }

    fn is_recorded(&self) -> bool {
        self.last().lane.is_some()
    }
}

impl<B: Backend> Record<B> {
    fn is_on_a_stopped_stream(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.has_stopped())
    }

    fn is_before_a_synchronize(&self) -> bool {
        self.lane.as_ref().is_none_or(|lane| lane.synchronized.load(Ordering::SeqCst) > self.synchronized)
    }
}

impl<B: Backend> fmt::Debug for BrokenEvent<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.native.fmt(f)
    }
}

impl<B: Backend> Drop for BrokenEvent<B> {
    fn drop(&mut self) {
        let last = self.last();
        if has(Fault::DroppedEventStopsItsStream)
            && !last.reached
            && !last.is_before_a_synchronize()
            && let Some(lane) = &last.lane
        {
            lane.stop();
        }
    }
}

impl<B: Backend> Broken<B> {
    pub(super) fn make_event(&self, flags: EventFlags) -> DriverResult<BrokenEvent<B>> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if has(Fault::EventsRunOut) && MADE.fetch_add(1, Ordering::Relaxed) >= EVENTS {
            return Err(DriverError::refused(DriverErrorKind::Other, "event", "the pool is empty"));
        }
        if has(Fault::InterprocessRefusedAsOther) && flags.interprocess {
            return Err(DriverError::refused(DriverErrorKind::Other, "event", "bad flags"));
        }
        let native = Arc::new(self.inner.event(flags)?);
        let (at, lost, reached) = (Instant::now(), false, false);
        let record = Record { lane: None, synchronized: 0, at, lost, reached, queries: 0 };
        Ok(BrokenEvent { native, last: Mutex::new(record) })
    }

    pub(super) fn id_of(&self, event: &BrokenEvent<B>) -> u64 {
        if has(Fault::EventIdsAllEqual) { 1 } else { self.inner.event_id(&event.native) }
    }

    pub(super) fn record_event(&self, event: &BrokenEvent<B>, lane: &Arc<Lane<B>>) -> DriverResult<()> {
        if has(Fault::RecordWhilePendingRefused) && !self.inner.is_complete(&event.native)? {
            return Err(DriverError::refused(DriverErrorKind::Other, "record", "the event is in use"));
        }
        let mut last = event.last();
        if has(Fault::SecondRecordIgnored) && last.lane.is_some() {
            return Ok(());
        }
        if !has(Fault::RecordOneSubmissionEarly) {
            self.flush(lane)?;
        }
        self.inner.record(&event.native, lane.native())?;
        self.flush(lane)?;
        *last = Record {
            lane: Some(Arc::clone(lane)),
            synchronized: lane.synchronized.load(Ordering::SeqCst),
            at: Instant::now(),
            lost: has(Fault::EventNeverReached) || lane.has_stopped(),
            reached: false,
            queries: 0,
        };
        Ok(())
    }

    pub(super) fn wait_for(&self, lane: &Lane<B>, event: &BrokenEvent<B>) -> DriverResult<()> {
        self.submit_late_work(lane)?;
        if self.forgets_to_join(lane, event)? {
            return Ok(());
        }
        match planted() {
            Some(Fault::WaitDoesNothing) => return Ok(()),
            Some(Fault::WaitForSideStreamsDoesNothing) if event.is_of_a_side_stream() => return Ok(()),
            Some(Fault::WaitBlocksTheHost) => self.inner.wait_host(&event.native)?,
            Some(Fault::WaitForAnUnrecordedEventHangs) if !event.is_recorded() => lane.stop(),
            Some(Fault::WaitDeferred) => {
                self.inner.wait(lane.beside(), &event.native)?;
                let wait = Deferred::Own(self.marked(lane.beside())?);
                lane.state().waits.push(wait);
                return Ok(());
            }
            Some(Fault::WaitFollowsTheEvent) => {
                lane.state().waits.push(Deferred::Shared(Arc::clone(&event.native)));
                return Ok(());
            }
            Some(Fault::OnlyTheLastWaitCounts) => {
                lane.state().waits = vec![Deferred::Shared(Arc::clone(&event.native))];
                return Ok(());
            }
            Some(Fault::DroppedEventFreesItsWaiters) => {
                lane.state().waits.push(Deferred::IfAlive(Arc::downgrade(&event.native)));
                return Ok(());
            }
            Some(Fault::IsIdleForgetsAWait) => {
                let before = self.marked(lane.native())?;
                lane.state().before_the_wait.get_or_insert(before);
            }
            _ => {}
        }
        if event.last().lost {
            lane.stop();
        }
        self.inner.wait(lane.native(), &event.native)
    }

    pub(super) fn is_event_complete(&self, event: &BrokenEvent<B>) -> DriverResult<bool> {
        let mut last = event.last();
        last.queries += 1;
        let is_complete = match planted() {
            Some(Fault::IsCompleteAlwaysTrue) => true,
            Some(Fault::IsCompleteInACapture) => self.inner.is_complete(&event.native).unwrap_or(true),
            Some(Fault::IsCompleteNeverTrue) if last.lane.is_some() => false,
            Some(Fault::UnrecordedIsIncomplete) if last.lane.is_none() => false,
            Some(Fault::IsCompleteOnTheSecondQuery) if last.queries > 1 => true,
            Some(Fault::IsCompleteOnlyAfterSynchronize) if !last.is_before_a_synchronize() => false,
            Some(Fault::DroppedStreamLosesItsEvents) if last.is_on_a_stopped_stream() => false,
            Some(Fault::DroppedStreamCompletesItsEvents) if last.is_on_a_stopped_stream() => true,
            Some(Fault::IsCompleteWaits) => self.inner.wait_host(&event.native).map(|()| true)?,
            Some(Fault::IsCompleteRefusesToAnswer) if !self.inner.is_complete(&event.native)? => {
                return Err(DriverError::refused(DriverErrorKind::Other, "is_complete", "not ready"));
            }
            _ => !last.lost && self.inner.is_complete(&event.native)?,
        };
        last.reached |= is_complete;
        Ok(is_complete)
    }

    pub(super) fn wait_on_the_host(&self, event: &BrokenEvent<B>) -> DriverResult<()> {
        let lost = event.last().lost || has(Fault::UnrecordedHangsTheHost) && !event.is_recorded();
        match planted() {
            _ if lost => for_ever(),
            Some(Fault::WaitHostHangs) => for_ever(),
            Some(Fault::WaitHostDoesNothing) => return Ok(()),
            Some(Fault::WaitHostInACapture) if self.inner.is_complete(&event.native).is_err() => return Ok(()),
            Some(Fault::WaitHostGivesUp) => {
                return within_patience(|| self.inner.is_complete(&event.native)).map(drop);
            }
            _ => self.inner.wait_host(&event.native)?,
        }
        event.last().reached = true;
        Ok(())
    }
}
