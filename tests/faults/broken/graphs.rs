//! Graphs that are wrong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use accelerator_core::{
    Backend, CaptureMode, DriverError, DriverErrorKind, DriverResult, EventFlags, ExecutableGraph, Graphs,
};

use super::events::BrokenEvent;
use super::streams::{BrokenStream, Lane};
use super::{Broken, lock};
use crate::fault::{Fault, has, planted};

/// Whether an `end` has failed.
static END_FAILED: AtomicBool = AtomicBool::new(false);

struct BrokenGraph<B: Backend> {
    inner: Arc<B>,
    graph: Box<dyn ExecutableGraph<B>>,
    /// The same work, for a driver whose launches overlap.
    again: Option<Box<dyn ExecutableGraph<B>>>,
    launches: AtomicU32,
}

impl<B: Backend> fmt::Debug for BrokenGraph<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.graph.fmt(f)
    }
}

impl<B: Backend> Broken<B> {
    fn inner_graphs(&self, call: &'static str) -> DriverResult<&dyn Graphs<B>> {
        let gone = DriverError::refused(DriverErrorKind::Unsupported, call, "the driver has no graphs");
        self.inner.graphs().ok_or(gone)
    }

    pub(super) fn captures(&self, lane: &Lane<B>) -> DriverResult<bool> {
        let never_ends = has(Fault::FailedEndKeepsTheCapture) && END_FAILED.load(Ordering::SeqCst);
        Ok(never_ends || self.inner.is_capturing(lane.native())?)
    }

    /// Whether captured work of the stream is also given to the stream beside it.
    pub(super) fn doubles(&self, lane: &Lane<B>) -> DriverResult<bool> {
        Ok((has(Fault::CapturedWorkRunsAtOnce) || has(Fault::LaunchesOverlap)) && self.captures(lane)?)
    }

    /// Whether the driver forgets that the stream takes part in a capture once it waits for this event.
    pub(super) fn forgets_to_join(&self, lane: &Lane<B>, event: &BrokenEvent<B>) -> DriverResult<bool> {
        let joins = || Ok(!self.captures(lane)? && self.inner.is_complete(event.native()).is_err());
        if has(Fault::WaitDoesNotJoinACapture) { joins() } else { Ok(false) }
    }

    /// Loses what the stream has captured.
    pub(super) fn lose_the_capture(&self, lane: &Lane<B>) -> DriverResult<()> {
        if has(Fault::RefusedQueryLosesCapturedWork) && self.captures(lane)? {
            let graphs = self.inner_graphs("end")?;
            drop(graphs.end(lane.native())?);
            graphs.begin(lane.native(), CaptureMode::default())?;
        }
        Ok(())
    }

    /// Makes the stream wait for all others that capture.
    fn join(&self, lane: &Lane<B>) -> DriverResult<()> {
        let lanes = lock(&self.lanes).clone();
        for other in lanes.iter().filter(|other| other.number != lane.number) {
            if self.captures(other)? {
                self.inner.wait(lane.native(), &self.marked(other.native())?)?;
            }
        }
        Ok(())
    }
}

// SAFETY: As for `Broken`.
unsafe impl<B: Backend> Graphs<Self> for Broken<B> {
    fn begin(&self, stream: &BrokenStream<B>, mode: CaptureMode) -> DriverResult<()> {
        let lane = stream.lane();
        self.flush(lane)?;
        let graphs = self.inner_graphs("begin")?;
        if has(Fault::BeginTwice) && self.captures(lane)? {
            return Ok(());
        }
        graphs.begin(lane.native(), mode)?;
        if has(Fault::LaunchesOverlap) { graphs.begin(lane.beside(), mode) } else { Ok(()) }
    }

    fn end(&self, stream: &BrokenStream<B>) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        let lane = stream.lane();
        let graphs = self.inner_graphs("end")?;
        if has(Fault::EndWithoutBegin) && !self.captures(lane)? {
            graphs.begin(lane.native(), CaptureMode::default())?;
        }
        if has(Fault::EndJoinsStreams) {
            self.join(lane)?;
        }
        let graph = graphs.end(lane.native()).inspect_err(|_| END_FAILED.store(true, Ordering::SeqCst))?;
        let again = if has(Fault::LaunchesOverlap) { Some(graphs.end(lane.beside())?) } else { None };
        Ok(Box::new(BrokenGraph { inner: Arc::clone(&self.inner), graph, again, launches: AtomicU32::new(0) }))
    }

    fn capture_of(&self, stream: &BrokenStream<B>) -> DriverResult<Option<u64>> {
        let lane = stream.lane();
        let number = self.inner_graphs("capture_of")?.capture_of(lane.native())?;
        match planted() {
            Some(Fault::CaptureNumbersRepeat) => Ok(number.map(|_| 1)),
            Some(Fault::FailedEndKeepsTheCapture) if self.captures(lane)? => Ok(number.or(Some(1))),
            _ => Ok(number),
        }
    }

    fn mark(&self, stream: &BrokenStream<B>) -> DriverResult<Option<u64>> {
        let mark = self.inner_graphs("mark")?.mark(stream.lane().native())?;
        Ok(if has(Fault::MarkOutsideOfCaptures) { mark.or(Some(0)) } else { mark })
    }

    fn precede(&self, marks: &[u64], stream: &BrokenStream<B>) -> DriverResult<Vec<bool>> {
        match planted() {
            Some(Fault::PrecedeAlwaysTrue) => Ok(vec![true; marks.len()]),
            Some(Fault::PrecedeAlwaysFalse) => Ok(vec![false; marks.len()]),
            Some(Fault::PrecedeIgnoresOrder) => {
                let mut sorted = marks.to_vec();
                sorted.sort_unstable();
                self.inner_graphs("precede")?.precede(&sorted, stream.lane().native())
            }
            _ => self.inner_graphs("precede")?.precede(marks, stream.lane().native()),
        }
    }
}

// SAFETY: As for `Broken`.
unsafe impl<B: Backend> ExecutableGraph<Broken<B>> for BrokenGraph<B> {
    unsafe fn launch(&self, stream: &BrokenStream<B>) -> DriverResult<()> {
        let lane = stream.lane();
        let launches = self.launches.fetch_add(1, Ordering::SeqCst);
        match planted() {
            Some(Fault::LaunchDoesNothing) => Ok(()),
            Some(Fault::LaunchOnlyOnce) if launches > 0 => Ok(()),
            Some(Fault::LaunchOvertakesItsStream) => {
                // SAFETY: The caller promises the same for the stream, which waits for the launch.
                unsafe { self.graph.launch(lane.beside()) }?;
                let event = self.inner.event(EventFlags::default())?;
                self.inner.record(&event, lane.beside())?;
                self.inner.wait(lane.native(), &event)
            }
            _ => {
                let graph = self.again.as_ref().filter(|_| !launches.is_multiple_of(2)).unwrap_or(&self.graph);
                // SAFETY: The caller promises the same.
                unsafe { graph.launch(lane.native()) }
            }
        }
    }

    fn upload(&self, stream: &BrokenStream<B>) -> DriverResult<()> {
        self.graph.upload(stream.lane().native())
    }
}
