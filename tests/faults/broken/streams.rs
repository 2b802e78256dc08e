//! Streams, and the ways to get their completion wrong.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_core::{Backend, DriverError, DriverErrorKind, DriverResult, EventFlags, StreamKind};

use super::work::{Staged, Work};
use super::{Broken, for_ever, lock};
use crate::fault::{Fault, has, planted};

/// How long a driver waits that gives up.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

/// How many streams a driver makes that runs out of them.
const STREAMS: usize = 16;

/// A stream with a fault.
pub(crate) struct BrokenStream<B: Backend>(Arc<Lane<B>>);

/// The inner stream with what the faults need.
pub(super) struct Lane<B: Backend> {
    pub(super) number: usize,
    native: B::Stream,
    /// A second stream, whose work runs beside that of the first, for the faults that need one.
    beside: Option<B::Stream>,
    /// How often the stream was synchronized.
    pub(super) synchronized: AtomicU64,
    /// Whether the stream has stopped: its work never runs.
    stopped: AtomicBool,
    state: Mutex<State<B>>,
}

/// What was submitted to a stream, and not yet to the inner one.
pub(super) struct State<B: Backend> {
    pub(super) waits: Vec<Deferred<B>>,
    pub(super) late: Option<Work<B::Ptr>>,
    /// An event after the first work since the last synchronize.
    pub(super) first: Option<B::Event>,
    /// An event before a wait that no work has followed.
    pub(super) before_the_wait: Option<B::Event>,
    /// Bytes that were copied too early, or that arrive too late.
    pub(super) staged: Vec<Staged>,
}

/// A wait that was not passed on yet.
pub(super) enum Deferred<B: Backend> {
    /// For this event of the wrapper.
    Own(B::Event),
    /// For the program's event.
    Shared(Arc<B::Event>),
    /// For the program's event, if it is still there.
    IfAlive(Weak<B::Event>),
}

impl<B: Backend> Deferred<B> {
    fn submit(&self, inner: &B, native: &B::Stream) -> DriverResult<()> {
        match self {
            Self::Own(event) => inner.wait(native, event),
            Self::Shared(event) => inner.wait(native, event),
            Self::IfAlive(event) => event.upgrade().map_or(Ok(()), |event| inner.wait(native, &event)),
        }
    }
}

impl<B: Backend> BrokenStream<B> {
    pub(super) fn lane(&self) -> &Arc<Lane<B>> {
        &self.0
    }
}

impl<B: Backend> Drop for BrokenStream<B> {
    fn drop(&mut self) {
        if has(Fault::DroppedStreamLosesItsEvents) || has(Fault::DroppedStreamCompletesItsEvents) {
            self.0.stop();
        }
    }
}

impl<B: Backend> fmt::Debug for BrokenStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.native.fmt(f)
    }
}

impl<B: Backend> Lane<B> {
    pub(super) fn native(&self) -> &B::Stream {
        &self.native
    }

    /// The second stream; the first if the fault needs no second one.
    pub(super) fn beside(&self) -> &B::Stream {
        self.beside.as_ref().unwrap_or(&self.native)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<B>> {
        lock(&self.state)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl<B: Backend> Broken<B> {
    pub(super) fn make_stream(&self, kind: StreamKind) -> DriverResult<BrokenStream<B>> {
        let mut lanes = lock(&self.lanes);
        if has(Fault::StreamsRunOut) && lanes.len() >= STREAMS {
            return Err(DriverError::refused(DriverErrorKind::Other, "stream", "there are no queues left"));
        }
        let native = self.inner.stream(kind)?;
        let beside = match planted() {
            Some(
                Fault::WaitDeferred
                | Fault::ShortFillOvertakes
                | Fault::CopyOvertakes
                | Fault::DeallocDoesNotWait
                | Fault::CapturedWorkRunsAtOnce
                | Fault::LaunchesOverlap
                | Fault::LaunchOvertakesItsStream,
            ) => {
                let priority = self.inner.properties().stream_priorities.0;
                Some(self.inner.stream(StreamKind::Side { priority })?)
            }
            _ => None,
        };
        let lane = Arc::new(Lane {
            number: lanes.len(),
            native,
            beside,
            synchronized: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            state: Mutex::new(State {
                waits: Vec::new(),
                late: None,
                first: None,
                before_the_wait: None,
                staged: Vec::new(),
            }),
        });
        lanes.push(Arc::clone(&lane));
        Ok(BrokenStream(lane))
    }

    /// Passes on what is left of the stream's submissions, except waits that only work passes on.
    pub(super) fn flush(&self, lane: &Lane<B>) -> DriverResult<()> {
        if !has(Fault::WaitDeferred) {
            self.submit_waits(lane, &mut lane.state())?;
        }
        self.submit_late_work(lane)
    }

    pub(super) fn submit_waits(&self, lane: &Lane<B>, state: &mut State<B>) -> DriverResult<()> {
        state.waits.drain(..).try_for_each(|wait| wait.submit(&self.inner, &lane.native))
    }

    /// Returns an event at the end of the inner stream's work so far.
    pub(super) fn marked(&self, stream: &B::Stream) -> DriverResult<B::Event> {
        let event = self.inner.event(EventFlags::default())?;
        self.inner.record(&event, stream)?;
        Ok(event)
    }

    pub(super) fn synchronize_stream(&self, lane: &Lane<B>) -> DriverResult<()> {
        self.flush(lane)?;
        if lane.has_stopped() {
            for_ever();
        }
        match planted() {
            Some(Fault::SynchronizeDoesNothing) => return Ok(()),
            Some(Fault::SynchronizeInACapture) if self.captures(lane)? => return Ok(()),
            Some(Fault::SynchronizeGivesUp) => {
                return within_patience(|| self.inner.is_idle(&lane.native)).map(drop);
            }
            Some(Fault::SynchronizeWaitsForTheFirst) => {
                let first = lane.state().first.take();
                return first.map_or(Ok(()), |first| self.inner.wait_host(&first));
            }
            Some(Fault::SynchronizeOfTheDefaultStream) => {
                let default = Arc::clone(&lock(&self.lanes)[0]);
                return self.inner.synchronize(&default.native);
            }
            _ => self.inner.synchronize(&lane.native)?,
        }
        lane.synchronized.fetch_add(1, Ordering::SeqCst);
        lane.state().staged.drain(..).for_each(Staged::arrive);
        Ok(())
    }

    pub(super) fn is_stream_idle(&self, lane: &Lane<B>) -> DriverResult<bool> {
        self.flush(lane)?;
        self.lose_the_capture(lane)?;
        match planted() {
            Some(Fault::IsIdleAlwaysTrue) => Ok(true),
            Some(Fault::IsIdleInACapture) if self.captures(lane)? => Ok(true),
            Some(Fault::IsIdleNeverTrue) => Ok(false),
            Some(Fault::IsIdleWaits) => self.inner.synchronize(&lane.native).map(|()| true),
            Some(Fault::IsIdleRefusesToAnswer) => match self.inner.is_idle(&lane.native)? {
                true => Ok(true),
                false => Err(DriverError::refused(DriverErrorKind::Other, "is_idle", "not ready")),
            },
            Some(Fault::IsIdleForgetsAWait) => match &lane.state().before_the_wait {
                Some(event) => self.inner.is_complete(event),
                None => self.inner.is_idle(&lane.native),
            },
            _ => Ok(!lane.has_stopped() && self.inner.is_idle(&lane.native)?),
        }
    }
}

/// Asks until the answer is yes, but not for long.
pub(super) fn within_patience(mut is_done: impl FnMut() -> DriverResult<bool>) -> DriverResult<bool> {
    let start = Instant::now();
    while !is_done()? {
        if start.elapsed() > PATIENCE {
            return Ok(false);
        }
        thread::yield_now();
    }
    Ok(true)
}
